//! A trace of the application in the report: a person sees the numbers that `ibscope crosscheck`
//! prints.

use super::{has_browser, look, pictures, place};
use crate::runs;
use crate::tools::{ibscope, result};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Columns of the csv, in the order of the tooltip's rows: messages and bytes.
const ROWS: [[&str; 2]; 6] = [
    ["trace_messages", "trace_bytes"],
    ["wire_messages", "wire_mpi_bytes"],
    ["tracer_messages", "tracer_bytes"],
    ["missing_messages", "missing_bytes"],
    ["unidentified_messages", "unidentified_bytes"],
    ["excess_messages", "excess_bytes"],
];

/// The rows of a csv by column name.
fn rows(csv: &str) -> Vec<BTreeMap<&str, &str>> {
    let mut lines = csv.lines();
    let header: Vec<&str> = lines.next().expect("header").split(',').collect();
    lines.map(|line| header.iter().copied().zip(line.split(',')).collect()).collect()
}

#[test]
fn the_report_shows_the_numbers_of_crosscheck() {
    if !has_browser() {
        return;
    }
    let run = runs::named("scorep-ompi-rc-halo-4x1");
    let trace = run.folder.join("trace/traces.otf2");
    let folder = tempfile::tempdir().expect("folder");
    let profile = folder.path().join("job.ibp");
    result(&["analyze", "-o", place(&profile)], &[run.sink()]);
    let page = folder.path().join("checked.html");
    result(&["report", "-o", place(&page), "--trace", place(&trace)], &[&profile]);
    let seen = look(&["--checked".as_ref(), &page, &pictures()]);
    assert_eq!(seen["complaints"], json!([]), "the console is silent");
    assert!(seen["overflow"].as_i64().expect("pixels") <= 0);

    let csv = result(&["crosscheck", "--format", "csv"], &[&profile, &trace]);
    let printed = rows(&csv);
    let pairs: BTreeMap<String, &BTreeMap<&str, &str>> = printed
        .iter()
        .filter(|row| row["operation"] == "point-to-point")
        .map(|row| (format!("rank {} → rank {}", row["src"], row["dst"]), row))
        .collect();
    assert!(!pairs.is_empty());
    let mut found = 0;
    for tip in seen["tips"].as_array().expect("tips") {
        let Some(row) = pairs.get(tip["title"].as_str().expect("title")) else {
            assert_eq!(tip["values"], json!([]), "{tip}");
            continue;
        };
        found += 1;
        assert_eq!([&tip["verdict"], &tip["causes"]], [row["verdict"], row["causes"]], "{tip}");
        for (line, columns) in tip["values"].as_array().expect("rows").iter().zip(ROWS) {
            assert_eq!([&line[1], &line[2]], columns.map(|name| row[name]), "{tip}");
        }
    }
    assert_eq!(found, pairs.len());
    assert_eq!(seen["pairs"].as_array().expect("pairs").len(), pairs.len());
    for row in pairs.values() {
        assert!(seen["lines"].as_str().expect("lines").contains(row["verdict"]), "{}", seen["lines"]);
    }

    collectives_are_those_of_the_command(&seen, &printed);
    let document: Value =
        serde_json::from_str(&result(&["crosscheck", "--format", "json"], &[&profile, &trace])).expect("json");
    let delays = &document["send_to_wire"];
    let bars: u64 = seen["delays"][0].as_array().expect("bars").iter().map(|bar| bar.as_u64().expect("count")).sum();
    assert_eq!(json!(bars), delays["count"], "every message is in a bar");
}

/// Messages and bytes by operation, and by operation and pair.
fn collectives_are_those_of_the_command(seen: &Value, printed: &[BTreeMap<&str, &str>]) {
    let number = |text: &str| text.parse::<u64>().unwrap_or(0);
    let plain = |value: &Value| number(&value.as_str().expect("text").replace('\u{202f}', ""));
    let own = || printed.iter().filter(|row| row["operation"] != "point-to-point");
    let operations = seen["operations"].as_array().expect("operations");
    assert!(!operations.is_empty());
    for operation in operations {
        let of = || own().filter(|row| row["operation"] == operation[0]);
        let messages: u64 = of().map(|row| number(row["wire_messages"])).sum();
        let pairs = of().filter(|row| number(row["trace_bytes"]) > 0).count();
        assert_eq!([plain(&operation[5]), plain(&operation[2])], [messages, pairs as u64], "{operation}");
    }
    let shown = seen["collectives"].as_array().expect("collectives");
    assert!(!shown.is_empty());
    for row in shown {
        let (src, dst) = row[1].as_str().expect("pair").split_once(" → ").expect("arrow");
        let line = own()
            .find(|line| line["operation"] == row[0] && (line["src"], line["dst"]) == (src, dst))
            .unwrap_or_else(|| panic!("{row}"));
        let less = |all: &str, tracer: &str| number(line[all]) - number(line[tracer]);
        let expected = [
            number(line["trace_bytes"]),
            less("wire_messages", "tracer_messages"),
            less("wire_mpi_bytes", "tracer_bytes"),
        ];
        assert_eq!([2, 3, 4].map(|at| plain(&row[at])), expected, "{row}");
    }
}

#[test]
fn a_trace_that_differs_is_noted() {
    let run = runs::named("scorep-ompi-rc-halo-4x1");
    let folder = tempfile::tempdir().expect("folder");
    let (profile, page, table) =
        (folder.path().join("job.ibp"), folder.path().join("page.html"), folder.path().join("table.csv"));
    result(&["analyze", "-o", place(&profile)], &[run.sink()]);
    // More messages than there can be.
    std::fs::write(&table, "src,dst,messages,bytes\n0,1,1000000,1000000\n").expect("table");
    let ran = ibscope(["report", place(&profile), "-o", place(&page), "--trace", place(&table)]);
    assert_eq!((ran.code, ran.stdout.as_str()), (4, ""), "{}", ran.stderr);
    assert!(ran.stderr.contains("differ") && page.exists(), "{}", ran.stderr);
    let ran = ibscope(["report", place(&profile), "-o", place(&page), "--tolerance", "5"]);
    assert_eq!(ran.code, 2, "a tolerance of what? {}", ran.stderr);
}
