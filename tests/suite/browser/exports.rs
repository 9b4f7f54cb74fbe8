//! The exports of the report: each csv is the output of the command that the page copies, and each
//! drawing is a picture.

use super::{has_browser, look, pictures, place, report_of_sample};
use crate::runs;
use crate::tools::{self, ProgramResult, result};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The output of a command line without quotes: the last of one or two commands, run in a folder.
fn output(line: &str, folder: &Path) -> String {
    let run = |command: &str| {
        let words: Vec<&str> = command.split(' ').collect();
        assert_eq!(words[0], "ibscope", "{line}");
        let ran = ProgramResult::from(tools::command(&words[1..]).current_dir(folder).output().expect("started"));
        assert!([0, 4].contains(&ran.code), "{command}: {}", ran.stderr);
        ran.stdout
    };
    line.split(" && ").map(run).last().expect("a command")
}

/// Compares the csv of all views of a page with the output of their commands. Returns the names of the
/// views with a csv.
fn checked<'a>(views: &'a Value, folder: &Path) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    for (view, exports) in views.as_object().expect("views") {
        if let Some(csv) = exports["csv"].as_str() {
            let command = exports["copy"].as_str().expect("command");
            assert_eq!(csv, output(command, folder), "{view}: {command}");
            assert!(csv.lines().count() > 1 || view == "findings", "{view}: {command} has rows");
            found.insert(view.as_str());
        }
        if let Some(svg) = exports["svg"].as_str() {
            roxmltree::Document::parse(svg).unwrap_or_else(|error| panic!("{view}: {error}"));
            let [width, height, colors] =
                [0, 1, 2].map(|at| exports["png"][at].as_u64().unwrap_or_else(|| panic!("{view}: {}", exports["png"])));
            assert!(width >= 600 && height >= 200 && colors > 8, "{view}: {width} x {height}, {colors} colors");
        }
    }
    found
}

/// The exports of a page before and after choices of the user; `csv` leaves out the drawings.
fn exports_of(page: &Path, name: &str, kinds: &str) -> Value {
    let seen = look(&["--exports".as_ref(), page, &pictures().join(name), kinds.as_ref()]);
    assert_eq!(seen["complaints"], json!([]), "the console is silent");
    seen
}

#[test]
fn exports_of_a_profile_are_the_output_of_the_commands() {
    if !has_browser() {
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let page = report_of_sample(folder.path());
    let seen = exports_of(&page, "exports", "all");
    let all = [
        "findings",
        "timeline",
        "matrix",
        "phases",
        "graph",
        "histogram",
        "latency-by-size",
        "percentiles",
        "latencies",
        "sizes",
        "collectives",
        "health",
        "ranks",
    ];
    assert_eq!(checked(&seen["new"], folder.path()), all.into_iter().collect());
    let chosen = checked(&seen["chosen"], folder.path());
    assert!(["timeline", "matrix", "histogram"].iter().all(|view| chosen.contains(view)), "{chosen:?}");
    // The files follow the choices.
    for view in ["matrix", "histogram"] {
        for kind in ["csv", "svg", "copy"] {
            assert_ne!(seen["new"][view][kind], seen["chosen"][view][kind], "{view}: {kind}");
        }
    }
    let command = seen["chosen"]["matrix"]["copy"].as_str().expect("command");
    assert!(["--by endpoint", "--from", "--to"].iter().all(|option| command.contains(option)), "{command}");
    let drawn: Vec<&str> = all.into_iter().filter(|view| seen["new"][view]["svg"].is_string()).collect();
    assert_eq!(drawn, ["timeline", "matrix", "graph", "histogram", "latency-by-size", "percentiles", "sizes"]);
    // The numbers of the matrix are texts of its drawing.
    let svg = seen["new"]["matrix"]["svg"].as_str().expect("svg");
    assert!(svg.contains("KiB</text>") && svg.contains("sending rank"), "{svg}");
}

/// Captures with several classes.
#[test]
fn exports_of_captures_are_the_output_of_the_commands() {
    check_captures(&[(runs::of_second_set("mixed-mpi-plus-nfs").sink(), &[])]);
}

/// A time window, and options that change the numbers.
#[test]
#[ignore = "takes a minute; `make soak` runs it"]
fn exports_of_captures_with_options_are_the_output_of_the_commands() {
    check_captures(&[
        (runs::of_second_set("ompi5-coll-default-4x1").sink(), &["--from", "0.1", "--to", "2"]),
        (runs::of_second_set("twojobs-mixed-halo-2x1").sink(), &["--strict"]),
    ]);
}

/// Checks the exports of reports on captures, each with some options.
fn check_captures(captures: &[(PathBuf, &[&str])]) {
    if !has_browser() {
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let page = folder.path().join("report.html");
    let hosts = folder.path().join("hosts.csv");
    fs::write(&hosts, "endpoint,name\n10.0.0.1,first\n").expect("hosts");
    for (capture, window) in captures {
        let options = [&["report", "-o", place(&page), "--hosts", place(&hosts)], *window].concat();
        result(&options, &[capture]);
        let seen = exports_of(&page, "exports-captures", "csv");
        for state in ["new", "chosen"] {
            let found = checked(&seen[state], folder.path());
            let some = ["timeline", "matrix", "graph", "histogram", "sizes", "health"];
            assert!(some.iter().all(|view| found.contains(view)), "{found:?}");
            assert!(!found.contains("findings"), "the command reads captures in narrower bins");
            let command = seen[state]["health"]["copy"].as_str().expect("command");
            assert!(command.contains("--hosts") && window.iter().all(|word| command.contains(word)), "{command}");
        }
    }
}

#[test]
#[ignore = "takes minutes; `make soak` runs it"]
fn exports_of_many_senders_another_run_and_a_trace_are_the_output_of_the_commands() {
    if !has_browser() {
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let [capture, page, profile, other] =
        ["wide.pcap", "report.html", "job.ibp", "other.ibp"].map(|name| folder.path().join(name));
    let options = ibscope_samples::SampleOptions {
        bytes: 4 << 20,
        lids: 16,
        mirror: 1,
        seed: 7,
        ..ibscope_samples::SampleOptions::default()
    };
    let mut bytes = Vec::new();
    ibscope_samples::generate(&options, &mut bytes).expect("generated");
    fs::write(&capture, bytes).expect("capture");
    result(&["analyze", "--bin", "1ms", "-o", place(&profile)], &[&capture]);
    result(&["report", "-o", place(&page)], &[&profile]);
    let seen = exports_of(&page, "exports-senders", "all");
    assert!(checked(&seen["new"], folder.path()).contains("senders"), "{}", seen["new"]);

    let run = runs::named("scorep-ompi-rc-halo-4x1");
    let trace = run.folder.join("trace/traces.otf2");
    result(&["analyze", "-o", place(&profile)], &[run.sink()]);
    result(&["analyze", "-o", place(&other)], &[runs::named("ompi-rc-notrace-mixed-4x1").sink()]);
    result(&["report", "-o", place(&page), "--compare", place(&other), "--trace", place(&trace)], &[&profile]);
    let seen = exports_of(&page, "exports-compared", "all");
    let found = checked(&seen["new"], folder.path());
    let compared = ["compared", "compared-pairs", "compared-times", "rates-of-a", "rates-of-b"];
    let of_trace = ["crosscheck", "crosscheck-pairs", "delays", "clocks"];
    assert!(compared.iter().chain(&of_trace).all(|view| found.contains(view)), "{found:?}");
}
