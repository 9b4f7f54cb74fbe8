//! Figures as PDF, read by poppler: the texts of the SVG are texts of the PDF, in an embedded font.

use crate::runs;
use crate::tools::{has_programs, result, sample};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Programs of poppler-utils.
const PROGRAMS: [&str; 3] = ["/usr/bin/pdftotext", "/usr/bin/pdffonts", "/usr/bin/pdfinfo"];

fn printed(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect("started");
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// The texts of an SVG, unescaped.
fn texts(svg: &str) -> Vec<String> {
    let parts = svg.split("<text").skip(1).filter_map(|part| part.split("</text>").next());
    let texts = parts.filter_map(|part| part.split_once('>')).map(|(_, text)| text);
    let plain = |text: &str| {
        text.trim().replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
    };
    texts.map(plain).collect()
}

fn without_spaces(text: &str) -> String {
    text.split_whitespace().collect()
}

/// Draws a figure as SVG and PDF into the folder.
fn drawn(folder: &Path, command: &[&str], input: &Path) -> (String, PathBuf) {
    let (svg, pdf) = (folder.join("figure.svg"), folder.join("figure.pdf"));
    let files = ["--svg", svg.to_str().expect("path"), "--pdf", pdf.to_str().expect("path")];
    result(&[command, &files].concat(), &[input]);
    (fs::read_to_string(svg).expect("svg"), pdf)
}

#[test]
fn the_texts_of_figures_are_texts_in_the_pdf() {
    if !has_programs(&PROGRAMS, "no PDF was read") {
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let hosts = folder.path().join("hosts.csv");
    fs::write(&hosts, "endpoint,name\n17,a<b>&\"c\n18,node-0002\n").expect("written");
    let native = sample("openib-mixed-4x1");
    let port = runs::named("ompi-openib-bt.S-4x1").node(1);
    let with_hosts = ["matrix", "--title", "one run", "--hosts", hosts.to_str().expect("path")];
    for (command, input) in [
        (&with_hosts[..], &native),
        (&["timeline"], &native),
        (&["rates"], &native),
        (&["phases"], &native),
        (&["health"], &native),
        (&["latency", "--view", "surface"], &port),
    ] {
        let (svg, pdf) = drawn(folder.path(), command, input);
        let pdf = pdf.to_str().expect("path");
        let found = without_spaces(&printed("pdftotext", &["-raw", pdf, "-"]));
        let wanted = texts(&svg);
        assert!(wanted.len() > 5, "{command:?}");
        for text in wanted {
            assert!(found.contains(&without_spaces(&text)), "{command:?}: {text:?} is missing in {found}");
        }
        // Below two lines of headings: name, type, encoding, embedded, subset, Unicode map.
        let fonts = printed("pdffonts", &[pdf]);
        let fonts: Vec<Vec<&str>> = fonts.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
        assert!(!fonts.is_empty(), "{command:?}");
        for font in fonts {
            assert!(font[0].ends_with("DejaVuSans") && font.windows(3).any(|flags| flags == ["yes"; 3]), "{font:?}");
        }
        let info = printed("pdfinfo", &[pdf]);
        assert!(info.lines().any(|line| line.split_whitespace().eq(["Pages:", "1"])), "{info}");
        // 15.24 cm are 6 inches of 72 points.
        let size = info.lines().find_map(|line| line.strip_prefix("Page size:")).expect("page size");
        assert_eq!(size.split_whitespace().next().and_then(|width| width.parse().ok()), Some(432.0), "{info}");
    }
}

/// Neither the time nor the fonts of the system have an influence.
#[test]
fn the_same_figure_has_the_same_bytes() {
    let folder = tempfile::tempdir().expect("folder");
    let [one, other] = ["one.pdf", "other.pdf"].map(|name| {
        let place = folder.path().join(name);
        result(&["matrix", "--pdf", place.to_str().expect("path")], &[sample("openib-mixed-4x1")]);
        fs::read(place).expect("pdf")
    });
    assert!(one.starts_with(b"%PDF-") && one == other);
}
