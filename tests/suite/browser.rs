//! The HTML report in a browser: a person sees the numbers that the commands print.

mod accessibility;
mod checked;
mod classes;
mod compared;
mod exports;
mod jobs;
mod lanes;
mod names;
mod perfetto;
mod rows;
mod state;
mod tables;
mod times;

use crate::python::{run, venv};
use crate::runs::decompressed;
use crate::tools::{has_programs, ibscope, result, sample, samples_folder};
use ibscope::crosscheck::{self, Clocks, Crosscheck, CrosscheckVerdict, MessageSums, PairComparison};
use ibscope::model::profile::{ConnectionRow, PairCoverage, RankRow, RetransmissionSums, TimelineRow, Traffic};
use ibscope::model::{Profile, TrafficKind};
use ibscope::render::html::{Page, ReportComparison};
use ibscope_parsers::{Endpoint, Lid, Qpn};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The browser, its driver, and tools that inspect its print, from Debian packages.
const PROGRAMS: [&str; 4] = ["/usr/bin/chromium", "/usr/bin/chromedriver", "/usr/bin/pdftotext", "/usr/bin/pdftoppm"];
/// Columns of the csv after sender and receiver, in the order of the tooltip.
const COLUMNS: [&str; 5] = ["messages", "MPI bytes", "payload bytes", "wire bytes", "packets"];

fn has_browser() -> bool {
    has_programs(&PROGRAMS, "the report was not looked at")
}

/// Output of `tests/browser/look.py`.
fn look(arguments: &[&Path]) -> Value {
    drive("look.py", arguments)
}

/// Output of a script that drives the browser.
fn drive(script: &str, arguments: &[&Path]) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser");
    let mut command = Command::new(venv(&folder.join("requirements.txt")));
    command.arg(folder.join(script)).args(arguments);
    serde_json::from_str(&run(&mut command, "the page could not be looked at")).expect("json")
}

/// A path as an argument.
fn place(path: &Path) -> &str {
    path.to_str().expect("path")
}

/// The report of a sample with four ranks; it is in this folder.
fn report_of_sample(folder: &Path) -> PathBuf {
    let [profile, page] = ["job.ibp", "report.html"].map(|name| folder.join(name));
    result(&["analyze", "-o", place(&profile)], &[sample("openib-mixed-4x1")]);
    result(&["report", "-o", place(&page)], &[&profile]);
    page
}

/// Folder for screenshots, for people to look at.
fn pictures() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("browser")
}

/// Cells by sender and receiver, in the order of [`COLUMNS`], as text; empty if unknown.
type PageCells = BTreeMap<(String, String), Vec<String>>;

/// Output of the `ibscope matrix` command that the page shows.
fn printed(command: &str, profile: &Path) -> PageCells {
    let words: Vec<&str> = command.split(' ').collect();
    assert_eq!((words[0], words[1]), ("ibscope", "matrix"), "{command}");
    let csv = result(&[&["matrix", "--format", "csv"], &words[3..]].concat(), &[profile]);
    let row = |line: &str| {
        let mut fields = line.split(',').map(str::to_owned);
        let mut next = || fields.next().expect("field");
        ((next(), next()), fields.take(COLUMNS.len()).collect())
    };
    csv.lines().skip(1).map(row).collect()
}

/// Cells from the tooltips of both directions, and the number of cells. `names` maps labels of the
/// page to those of the csv.
fn hovered(window: &Value, names: &BTreeMap<&str, &str>) -> (PageCells, usize) {
    let mut cells = PageCells::new();
    let tips = window["cells"].as_array().expect("cells");
    for tip in tips {
        assert_eq!(tip["hidden"], false, "{tip}");
        let (src, dst) = tip["title"].as_str().expect("title").split_once(" → ").expect("arrow");
        let label = |name: &str| names.get(name).copied().unwrap_or(name).replace("rank ", "");
        let rows = tip["values"].as_array().expect("rows");
        assert!(rows.iter().map(|row| row[0].as_str().expect("name")).eq(COLUMNS), "{tip}");
        let way = |index: usize| -> Vec<String> {
            rows.iter().filter_map(|row| Some(row.get(index)?.as_str()?.to_owned())).collect()
        };
        for (pair, values) in [((label(src), label(dst)), way(1)), ((label(dst), label(src)), way(2))] {
            // A pair without packets shows nothing, and a cell on the diagonal has one direction.
            if values.last().is_some_and(|packets| !packets.is_empty()) {
                let before = cells.insert(pair, values.clone());
                assert!(before.is_none_or(|before| before == values), "both tooltips of a pair are equal: {tip}");
            }
        }
    }
    (cells, tips.len())
}

#[test]
fn the_report_shows_what_the_commands_print() {
    if !has_browser() {
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let profile = folder.path().join("job.ibp");
    let hosts = samples_folder().join("hosts-native.csv");
    let place = |path: &Path| path.to_str().expect("path").to_owned();
    result(&["analyze", "-o", &place(&profile), "--hosts", &place(&hosts)], &[sample("openib-mixed-4x1")]);
    let page = folder.path().join("report.html");
    result(&["report", "-o", &place(&page)], &[&profile]);
    let seen = look(&[&page, &pictures()]);

    assert_eq!(seen["complaints"], serde_json::json!([]), "the console is silent");
    let charted = seen["charted"].as_str().expect("the tip of a chart");
    assert!(charted.contains("messages") && charted.contains('B'), "{charted:?}");
    assert_eq!(
        seen["injected"],
        serde_json::json!(["job.ibp – ibscope report", ""]),
        "no other script runs, no other style counts"
    );
    let refused = seen["refused"].as_array().expect("complaints");
    assert_eq!(refused.len(), 2, "{refused:?}");
    assert!(refused.iter().all(|text| text.as_str().is_some_and(|text| text.contains("Content Security Policy"))));
    let asked: Vec<&str> = seen["requests"].as_array().expect("requests").iter().filter_map(Value::as_str).collect();
    assert!(matches!(asked[..], [own] if own.starts_with("file:///") && own.ends_with("report.html")), "{asked:?}");

    let nodes = [("node1", "17"), ("node2", "18"), ("node3", "19"), ("node4", "20")].into();
    let mut windows = Vec::new();
    for (state, has_window) in [
        ("whole", false),
        ("brushed", true),
        ("keyboard", true),
        ("typed", true),
        ("endpoints", false),
        ("reordered", false),
        ("collective", false),
    ] {
        let window = &seen[state];
        let command = window["command"].as_str().expect("command");
        assert_eq!(command.contains("--from") && command.contains("--to"), has_window, "{state}: {command}");
        let (cells, count) = hovered(window, &nodes);
        assert_eq!(count, 16, "{state}");
        assert!(!cells.is_empty(), "{state}");
        assert_eq!(cells, printed(command, &profile), "{state}: {command}");
        windows.push((command.to_owned(), cells));
    }
    // These are time windows, and contain less than the whole.
    let whole = &windows[0].1;
    for [(one, some), (other, others)] in [[0, 1], [1, 2], [2, 3]].map(|pair| pair.map(|at| &windows[at])) {
        assert!(one != other && some != others, "{one} and {other}");
    }
    assert!(windows[1..4].iter().all(|(_, cells)| cells != whole));

    // By keyboard: the second cell of the first row.
    let spoken = seen["spoken"].as_str().expect("spoken");
    let collective = &windows[6].1[&("0".to_owned(), "1".to_owned())][0];
    assert_eq!(spoken, format!("rank 0 to rank 1: {collective} messages"));

    let background = |when: &str| seen["backgrounds"][when].as_str().expect("background").to_owned();
    assert_ne!(background("light"), background("dark"));
    assert_eq!(background("button"), background("light"), "the button overrides the system");
    assert_eq!(background("after print"), background("dark"), "what was dark before is dark again");
    assert_printed(&seen);
    for (width, over) in [1200, 800].into_iter().zip(seen["overflow"].as_array().expect("overflow")) {
        assert!(over.as_i64().expect("pixels") <= 0, "the page overflows {width} pixels");
    }
}

/// The print has the title, the headings of all sections and the totals of the matrix. No page is
/// blank or dark, and none has controls.
fn assert_printed(seen: &Value) {
    let pages = seen["pages"].as_array().expect("pages");
    assert!((3..=12).contains(&pages.len()), "{} pages", pages.len());
    // Lines may break at other places than in the browser.
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = words(&pages.iter().map(|page| page["text"].as_str().expect("text")).collect::<String>());
    let list = |name: &str| seen[name].as_array().expect("list").iter().map(|text| words(text.as_str().expect("text")));
    assert!(text.starts_with(&words(seen["title"].as_str().expect("title"))), "{text}");
    assert!(list("headings").len() >= 8 && list("totals").len() >= 5, "{seen}");
    for expected in list("headings").chain(list("totals")) {
        assert!(text.contains(&expected), "{expected:?} is not in the print: {text}");
    }
    for control in ["Whole time", "Skip to the matrix", "Drag over the timeline"] {
        assert!(!text.contains(control), "{control:?} is on paper");
    }
    for (number, page) in (1..).zip(pages) {
        let dark = page["dark"].as_f64().expect("share");
        assert!((0.005..0.6).contains(&dark), "page {number}: {dark} of it is not white");
        assert_eq!(page["margin"], 255, "page {number} has a white margin");
    }
}

#[test]
fn a_profile_is_shown_as_a_whole() {
    let folder = tempfile::tempdir().expect("folder");
    let place = |name: &str| folder.path().join(name).to_str().expect("path").to_owned();
    result(&["analyze", "-o", &place("job.ibp")], &[sample("ucx-ud-ring2")]);
    let ran = ibscope(["report", &place("job.ibp"), "-o", &place("report.html"), "--from", "0.5"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(ran.stderr.contains("give the captures to analyze a time window"), "{}", ran.stderr);
    assert!(!Path::new(&place("report.html")).exists());
    assert_eq!(ibscope(["report", &place("job.ibp")]).code, 2, "the output path is required");
}

/// A name that would run as a script if it were markup.
const EVIL: &str = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">";

const EVIL_FILE: &str = "<img src=x onerror=\"document.title='owned'\">&lt;b&gt;.pcap";

#[test]
fn foreign_names_stay_text() {
    if !has_browser() {
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let place = |name: &str| folder.path().join(name).to_str().expect("path").to_owned();
    fs::write(place("hosts.csv"), format!("endpoint,name\n17,{EVIL}\n18,</script><!--\n")).expect("hosts");
    // A truncated file of that name, so that a note contains the name.
    let whole = decompressed(&sample("ucx-rc-ring2-loss1"));
    let capture = folder.path().join(EVIL_FILE);
    fs::write(&capture, &whole[..whole.len() - 10]).expect("capture");
    let page = place("report.html");
    result(&["report", "-o", &page, "--hosts", &place("hosts.csv")], &[&capture]);
    let seen = look(&["--names".as_ref(), page.as_ref()]);
    assert_eq!(seen["complaints"], serde_json::json!([]));
    assert!(seen["title"].as_str().expect("title").starts_with(EVIL_FILE), "{}", seen["title"]);
    // The data, the library and the page's own script.
    assert_eq!((&seen["scripts"], &seen["images"]), (&serde_json::json!(3), &serde_json::json!(0)));
    let texts = seen["texts"].as_array().expect("texts");
    for name in [EVIL, "</script><!--"] {
        assert!(texts.iter().any(|text| text == name), "{name}: {texts:?}");
    }
    let body = seen["body"].as_str().expect("text");
    let is_note = |line: &str| line.contains(EVIL_FILE) && line.contains("truncated_input");
    assert!(body.lines().any(is_note), "{body}");
    // Browsers open figures too: text stays text.
    let svg = place("matrix.svg");
    result(&["matrix", "--svg", &svg, "--hosts", &place("hosts.csv")], &[&capture]);
    let svg = fs::read_to_string(svg).expect("svg");
    assert!(svg.contains("&lt;/script&gt;") && !svg.contains("<script") && !svg.contains("<img"));
}

/// A job of `ranks` ranks, one per port and 64 ports per leaf switch. Each rank exchanges messages
/// with its six neighbors on a grid, and one rank of each leaf with one of every other, for 20
/// bins: as many cells as a profile has.
fn large(ranks: u16) -> Profile {
    const BINS: i64 = 20;
    const BIN_NS: i64 = 10_000_000;
    const START_NS: i64 = 1_700_000_000_000_000_000;
    let endpoint = |rank: u16| Endpoint::from_lid(Lid(rank + 1));
    let neighbors = |rank: u16| {
        let near = [1, 16, 256]
            .into_iter()
            .flat_map(move |step| [(rank + step) % ranks, (rank + ranks - step % ranks) % ranks]);
        let far = (0..ranks).step_by(64).filter(move |other| rank.is_multiple_of(64) && *other != rank);
        near.chain(far).collect::<BTreeSet<u16>>()
    };
    let sums = |src: u16, dst: u16, bin: i64| {
        // Varied numbers, which compress as badly as real ones.
        let bytes = (u64::from(src) * 7919 + u64::from(dst) * 104_729 + bin as u64 * 1_299_709) % 1_000_003;
        let packets = bytes / 4096 + 1;
        Traffic {
            packets,
            wire_bytes: bytes + packets * 58,
            payload_bytes: bytes + 32,
            messages: bytes % 13 + 1,
            p2p_messages: bytes % 11 + 1,
            p2p_mpi_bytes: bytes,
            collective_messages: bytes % 3,
            collective_mpi_bytes: bytes % 3 * 8,
        }
    };
    let mut profile = Profile { bin_ns: BIN_NS, mpi_read: true, ..Profile::default() };
    for (src, dst) in (0..ranks).flat_map(|src| neighbors(src).into_iter().map(move |dst| (src, dst))) {
        let mut traffic = Traffic::default();
        (0..BINS).for_each(|bin| traffic += sums(src, dst, bin));
        profile.connections.push(ConnectionRow {
            src: endpoint(src),
            dst: endpoint(dst),
            kind: TrafficKind::Data,
            service: 0,
            dest_qp: Qpn::new(64),
            src_qp: Some(Qpn::new(64)),
            src_qp_evidence: None,
            first_time_ns: START_NS,
            last_time_ns: START_NS + BINS * BIN_NS,
            traffic,
            retransmissions: RetransmissionSums::default(),
            stack: Some("Open MPI UCX rc_verbs".to_owned()),
            job: None,
            class: ibscope::model::ConnectionClass::default(),
            one_sided: None,
            sampled: None,
            coverage: PairCoverage::default(),
            paths: smallvec::SmallVec::default(),
            is_at_both_ports: None,
        });
    }
    for bin in 0..BINS {
        for (connection, row) in (0..).zip(&profile.connections) {
            let rank = |endpoint: Endpoint| endpoint.to_string().parse::<u16>().expect("LID") - 1;
            let traffic = sums(rank(row.src), rank(row.dst), bin);
            let time_ns = START_NS + bin * BIN_NS;
            profile.timeline.push(TimelineRow { time_ns, connection, traffic, ..TimelineRow::default() });
        }
    }
    profile.coverage.first_time_ns = Some(START_NS);
    profile.coverage.last_time_ns = Some(START_NS + BINS * BIN_NS);
    for rank in 0..ranks {
        profile.names.insert(endpoint(rank), format!("node{rank:04}"));
        profile.leaves.insert(endpoint(rank), format!("leaf{:02}", rank / 64));
        let evidence = "envelope".to_owned();
        let endpoint = endpoint(rank).to_string();
        profile.ranks.push(RankRow {
            rank: rank.into(),
            endpoint,
            qpn: None,
            evidence,
            agreeing: 9,
            disagreeing: 0,
            job: 1,
            inferred: false,
        });
    }
    profile
}

/// The comparison of the job with a job in which every third connection sent more.
fn busier(profile: &Profile) -> ReportComparison {
    let mut other = profile.clone();
    for connection in other.connections.iter_mut().step_by(3) {
        connection.traffic.wire_bytes += 1_000_003;
        connection.traffic.p2p_messages += 7;
    }
    ReportComparison::new([profile, &other], ["large.ibp".to_owned(), "busier.ibp".to_owned()]).expect("compared")
}

/// The cross-check of the job with a trace in which every fifth pair is missing a message.
fn traced(profile: &Profile) -> Crosscheck {
    let rank = |endpoint: Endpoint| endpoint.to_string().parse::<u32>().expect("LID") - 1;
    let pair = |(index, row): (usize, &ConnectionRow)| {
        let wire = MessageSums { messages: row.traffic.p2p_messages, bytes: row.traffic.p2p_mpi_bytes };
        let is_incomplete = index % 5 == 0;
        PairComparison {
            src: rank(row.src),
            dst: rank(row.dst),
            trace: MessageSums { messages: wire.messages - u64::from(is_incomplete), bytes: wire.bytes },
            wire,
            tracer: MessageSums::default(),
            missing: MessageSums::default(),
            unidentified: MessageSums::default(),
            beyond: MessageSums::default(),
            verdict: if is_incomplete { CrosscheckVerdict::Unexplained } else { CrosscheckVerdict::Equal },
            causes: Vec::new(),
            differences: Vec::new(),
            wire_bytes: row.traffic.wire_bytes,
            payload_bytes: row.traffic.payload_bytes,
            retransmitted_wire_bytes: 0,
        }
    };
    Crosscheck {
        trace: "large.csv".to_owned(),
        tracer: "a table".to_owned(),
        events: 0,
        job: 1,
        jobs: 1,
        placement: "the table",
        traffic: crosscheck::RankTraffic::default(),
        nodes: BTreeMap::new(),
        not_identified: BTreeSet::new(),
        tolerance_percent: 0.0,
        pairs: profile.connections.iter().enumerate().map(pair).collect(),
        ranks: Vec::new(),
        unidentified: Vec::new(),
        clocks: Clocks::default(),
        collective_calls: Vec::new(),
        collectives: Vec::new(),
        operations: None,
        one_sided: Vec::new(),
        notes: Vec::new(),
    }
}

#[test]
fn a_thousand_ranks_fit_into_a_page() {
    assert_pages([(64, 2 * MIB, 3 * MIB), (1024, 6 * MIB, 10 * MIB)]);
}

#[test]
#[ignore = "takes minutes; `make soak` runs it"]
fn thousands_of_ranks_fit_into_a_page() {
    assert_pages([(4096, 12 * MIB, 20 * MIB)]);
}

const MIB: u64 = 1 << 20;

/// Pages of many ranks are usable. For each number of ranks, the bounds are the length of a plain page
/// and of one with a comparison and a cross-check. Prints how fast they open and does not assert it,
/// because machines differ.
#[expect(clippy::print_stdout, reason = "the times are a result")]
fn assert_pages<const N: usize>(sizes: [(u16, u64, u64); N]) {
    let folder = pictures();
    fs::create_dir_all(&folder).expect("folder");
    for (ranks, most_plain_bytes, most_bytes) in sizes {
        let page = folder.join(format!("{ranks}-ranks.html"));
        let profile = large(ranks);
        let mut plain = Vec::new();
        Page::of(&profile, "large.ibp").write(&mut plain).expect("written");
        assert!((plain.len() as u64) < most_plain_bytes, "{ranks} ranks: {} bytes", plain.len());
        let mut text = Vec::new();
        // With both optional parts of a page: a comparison and a cross-check.
        let (compared, crosscheck) = (busier(&profile), traced(&profile));
        let page_of =
            Page { comparison: Some(&compared), crosscheck: Some(&crosscheck), ..Page::of(&profile, "large.ibp") };
        page_of.write(&mut text).expect("written");
        assert!((text.len() as u64) < most_bytes, "{ranks} ranks: {} bytes", text.len());
        fs::write(&page, &text).expect("page");
        if !has_browser() {
            continue;
        }
        let seen = look(&["--weigh".as_ref(), &page, &folder.join(format!("{ranks}-ranks.png"))]);
        let bytes = seen["memory_bytes"].as_u64().expect("bytes");
        let [opened, cpu, window] = ["opened_ms", "cpu_ms", "window_ms"].map(|name| &seen[name]);
        println!(
            "{ranks} ranks: {} KiB, opened in {opened} ms ({cpu} ms of a processor), window in {window} ms, {} MiB of memory",
            text.len() >> 10,
            bytes / MIB
        );
        assert_eq!(seen["complaints"], serde_json::json!([]));
        assert!((MIB..500 * MIB).contains(&bytes), "{ranks} ranks: {bytes} bytes");
    }
}
