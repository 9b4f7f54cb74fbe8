//! Traces in Perfetto: its own reader accepts all of them without an error, and shows the messages
//! that `ibscope messages` prints.

use super::{drive, has_browser, pictures};
use crate::runs;
use crate::tools::{result, sample};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A message: sender, receiver, start time and duration.
type PerfettoMessage = (String, String, i64, i64);

fn rows(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap_or_else(|| panic!("{value}"))
}

fn ns(value: &Value) -> i64 {
    value.as_i64().unwrap_or_else(|| panic!("{value}"))
}

/// Perfetto's view of a trace of these inputs, and the time that its times are relative to.
fn read(input: &Path, folder: &Path, name: &str) -> (Value, i64) {
    let trace = folder.join("trace.json");
    result(&["trace", "-o", trace.to_str().expect("path")], &[input]);
    let document: Value = serde_json::from_slice(&fs::read(&trace).expect("trace")).expect("JSON");
    fs::create_dir_all(pictures()).expect("folder");
    let seen = drive("perfetto.py", &[&trace, &pictures().join(name)]);
    assert_eq!(seen["errors"], json!([]), "Perfetto has read all of it");
    (seen, document["otherData"]["start_ns"].as_i64().expect("start"))
}

#[test]
fn perfetto_shows_every_message_at_both_ends() {
    if !has_browser() {
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let capture = runs::named("ompi-rc-notrace-mixed-4x1").sink();
    let (seen, start_ns) = read(&capture, folder.path(), "perfetto.png");

    let csv = result(&["messages", "--format", "csv"], &[&capture]);
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next().expect("header");
    let mut messages: Vec<PerfettoMessage> = lines
        .map(|fields| {
            let at = |name: &str| fields[header.iter().position(|column| *column == name).expect("column")];
            let [from, to] = ["first_time_ns", "last_time_ns"].map(|name| at(name).parse::<i64>().expect("time"));
            let [src, dst] = ["src_rank", "dst_rank"].map(|name| format!("rank {}", at(name)));
            // A slice has at least 1 ns, because viewers do not draw slices without a duration.
            (src, dst, from - start_ns, (to - from).max(1))
        })
        .collect();
    messages.sort();
    assert!(messages.len() > 100);

    // Flows: from the sender's slice to the receiver's, which are as long as the message.
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let mut flows: Vec<PerfettoMessage> = rows(&seen["flows"])
        .iter()
        .map(|flow| {
            assert_eq!([&flow[2], &flow[3]], [&flow[4], &flow[5]], "both slices are the message: {flow}");
            (text(&flow[0]), text(&flow[1]), ns(&flow[2]), ns(&flow[3]))
        })
        .collect();
    flows.sort();
    assert_eq!(flows, messages);

    // Slices: two per message, not nested, each on a track that names the end.
    let mut ends: BTreeMap<(String, bool, i64, i64), i64> = BTreeMap::new();
    for (src, dst, from, lasted) in messages {
        *ends.entry((src, true, from, lasted)).or_default() += 1;
        *ends.entry((dst, false, from, lasted)).or_default() += 1;
    }
    let mut of_operations = 0;
    for slice in rows(&seen["slices"]) {
        assert_eq!(slice[5], 0, "{slice}");
        if text(&slice[1]).starts_with("collectives") {
            of_operations += 1;
            continue;
        }
        let sends = text(&slice[1]).starts_with("sends");
        assert!(sends || text(&slice[1]).starts_with("receives"), "{slice}");
        *ends.entry((text(&slice[0]), sends, ns(&slice[2]), ns(&slice[3]))).or_default() -= 1;
    }
    assert!(ends.values().all(|count| *count == 0), "{ends:?}");
    // Collective operations: each of the four ranks sends or receives in each of them.
    let operations = result(&["collectives", "--view", "instances", "--format", "csv"], &[&capture]);
    assert_eq!(of_operations, 4 * (operations.lines().count() - 1));
}

#[test]
fn perfetto_shows_the_rates_of_a_profile() {
    if !has_browser() {
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let profile = folder.path().join("job.ibp");
    result(&["analyze", "--bin", "10ms", "-o", profile.to_str().expect("path")], &[sample("openib-mixed-4x1")]);
    let (seen, _) = read(&profile, folder.path(), "perfetto-rates.png");
    // The bytes sent are the rate times the width of a bin.
    let mut sent: BTreeMap<String, f64> = BTreeMap::new();
    for row in rows(&seen["counters"]) {
        let process = row[0].as_str().expect("process").to_owned();
        *sent.entry(process).or_default() += row[3].as_f64().expect("rate") * 0.01;
    }
    let csv = result(&["matrix", "--by", "rank", "--traffic", "all", "--format", "csv"], &[&profile]);
    let mut expected: BTreeMap<String, f64> = BTreeMap::new();
    for line in csv.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        *expected.entry(format!("rank {}", fields[0])).or_default() += fields[5].parse::<f64>().expect("bytes");
    }
    assert!(sent.keys().eq(expected.keys()), "{sent:?}");
    for (process, bytes) in expected {
        assert!((sent[&process] - bytes).abs() < 1.0, "{process}: {} and {bytes}", sent[&process]);
    }
}
