//! Output on a terminal of 80 columns, which `script` of util-linux provides.

use crate::runs;
use crate::tools::result;
use std::path::Path;
use std::process::Command;

/// The lines that a command writes to a terminal of 80 columns, without colors and progress bars.
fn on_terminal(arguments: &[&str]) -> Vec<String> {
    let words: Vec<String> = arguments.iter().map(|argument| format!("'{argument}'")).collect();
    let program = env!("CARGO_BIN_EXE_ibscope");
    let command = format!("stty rows 24 cols 80; '{program}' {} 2> /dev/null", words.join(" "));
    let output = Command::new("script").args(["-qec", &command, "/dev/null"]).env("NO_COLOR", "1").output();
    let output = output.expect("script, of Debian's essential package bsdutils");
    assert!(output.status.success(), "{arguments:?}");
    String::from_utf8(output.stdout).expect("text").lines().map(|line| line.trim_end_matches('\r').to_owned()).collect()
}

/// The words of a text, whatever the width of its lines.
fn words<'a>(lines: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    lines.into_iter().flat_map(str::split_whitespace).collect()
}

fn fits(line: &str) -> bool {
    line.chars().count() <= 80
}

/// A terminal gets the same words as a file.
#[test]
fn prose_is_wrapped_on_a_terminal_only() {
    let sink = runs::named("ompi-rc-loss1-ring2").sink();
    let place = sink.to_str().expect("path");
    for command in ["summary", "health"] {
        let shown = on_terminal(&[command, place]);
        let file = result(&[command], &[Path::new(place)]);
        assert!(file.lines().any(|line| !fits(line)), "{command}: no long line to wrap");
        let long: Vec<&String> = shown.iter().filter(|line| !fits(line) && !line.contains(place)).collect();
        assert!(long.is_empty(), "{command}: {long:?}");
        assert_eq!(words(shown.iter().map(String::as_str)), words(file.lines()), "{command}");
    }
}

/// Columns are left out in the documented order, and `--wide` shows all.
#[test]
fn latency_leaves_out_columns_on_a_narrow_terminal() {
    let sink = runs::named("ompi-rc-loss1-ring2").sink();
    let place = sink.to_str().expect("path");
    let shown = on_terminal(&["latency", place]);
    assert!(shown.iter().all(|line| fits(line)), "{shown:#?}");
    let text = shown.join(" ");
    let (_, left_out) = text.split_once("not shown at this width: ").expect("a line");
    let (names, _) = left_out.split_once("; --wide shows all").expect("the option");
    assert!("deviation, > 10.0 µs, mean, min, p90, max, samples".starts_with(names), "{names}");
    let headings = |lines: &[String]| words(lines.first().map(String::as_str)).join(" ");
    assert!(headings(&shown).contains("median") && !headings(&shown).contains("deviation"), "{shown:#?}");
    let wide = on_terminal(&["latency", "--wide", place]);
    let file = result(&["latency"], &[Path::new(place)]);
    assert_eq!(words(wide.iter().map(String::as_str)), words(file.lines()));
}

/// Every command with a table on captures, and the views with tables of their own.
const TABLES: [&str; 36] = [
    "summary",
    "matrix",
    "matrix --by rank",
    "matrix --unit wire-bytes",
    "timeline",
    "timeline --by rank",
    "timeline --stack class",
    "ranks",
    "collectives",
    "collectives --view instances",
    "waits",
    "storage",
    "storage --view timeline",
    "diagnose",
    "paths",
    "paths --by pair",
    "rates",
    "rates --by endpoint",
    "rates --by rank",
    "rates --by class",
    "rates --by link",
    "phases",
    "latency",
    "latency --by rank",
    "latency --view buckets",
    "latency --view surface",
    "latency --view surface --by rank",
    "latency --view timeline --by rank",
    "latency --link 100Gb/s",
    "latency --link 100Gb/s --by rank",
    "health",
    "health --by link",
    "health --by time",
    "health --by pause",
    "messages --transport",
    "inspect",
];

/// Runs whose tables are wide: losses, four nodes as LIDs and addresses, two ranks per node, storage.
const RUNS: [&str; 3] = ["ompi-rc-loss1-ring2", "ompi-openib-bt.S-4x1", "ompi-rc-halo-2x2"];

/// No line of a table is longer than the terminal, whatever the command.
#[test]
fn tables_fit_a_terminal_of_80_columns() {
    let mut long = Vec::new();
    for run in RUNS {
        let sink = runs::named(run).sink();
        let place = sink.to_str().expect("path");
        for table in TABLES {
            let arguments: Vec<&str> = table.split(' ').chain([place]).collect();
            let shown = on_terminal(&arguments);
            assert!(!shown.is_empty(), "{run}: {table} writes nothing");
            // Names of files stay whole.
            let too_long = |line: &&String| !fits(line) && !line.contains(place);
            long.extend(shown.iter().filter(too_long).take(1).map(|line| format!("{run}: {table}: {line}")));
        }
    }
    assert!(long.is_empty(), "{long:#?}");
}

/// The PSN is one of the columns of packets that a terminal of 80 columns shows.
#[test]
fn packets_have_their_psn_on_a_narrow_terminal() {
    for run in RUNS {
        let sink = runs::named(run).sink();
        let arguments = ["inspect", sink.to_str().expect("path")];
        let shown = on_terminal(&arguments);
        let heading = words(shown.first().map(String::as_str));
        assert_eq!(heading, ["time", "[s]", "source", "destination", "opcode", "PSN"], "{run}");
        let csv = result(&["inspect", "--format", "csv"], &[&sink]);
        let psns = csv.lines().skip(1).map(|line| line.split(',').nth(6).expect("PSN"));
        // The last line names the columns that are left out.
        let found = shown[1..].iter().filter_map(|line| line.split_whitespace().nth(4));
        assert!(psns.eq(found.take(csv.lines().count() - 1)), "{run}");
    }
}

/// Each table that leaves out columns names the option, and with it is that of a file.
#[test]
fn wide_shows_all_columns() {
    let sink = runs::named("ompi-rc-loss1-ring2").sink();
    let place = sink.to_str().expect("path");
    let tables =
        ["messages", "inspect", "phases", "health --by link", "rates --by link", "ranks", "latency --view surface"];
    for table in tables {
        let arguments: Vec<&str> = table.split(' ').chain([place]).collect();
        assert!(on_terminal(&arguments).join(" ").contains("; --wide shows all"), "{table}");
        let wide = on_terminal(&[arguments.as_slice(), &["--wide"]].concat());
        let (file, _) = arguments.split_at(arguments.len() - 1);
        let file = result(file, &[Path::new(place)]);
        assert!(!file.contains("--wide"), "{table}");
        assert_eq!(words(wide.iter().map(String::as_str)), words(file.lines()), "{table}");
    }
}
