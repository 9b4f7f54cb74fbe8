//! The csv views and the JSON output of a command contain the same numbers.

use crate::runs;
use crate::tools::{result, sample};
use serde_json::Value;
use std::collections::BTreeMap;

/// The rows of a csv by column name.
fn rows(csv: &str) -> Vec<BTreeMap<&str, &str>> {
    let mut lines = csv.lines();
    let header: Vec<&str> = lines.next().expect("header").split(',').collect();
    let mut found = Vec::new();
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        assert_eq!(fields.len(), header.len(), "{line}");
        found.push(header.iter().copied().zip(fields).collect());
    }
    found
}

/// A JSON value in csv form.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Compares these columns of every csv row, in order, with the JSON objects.
fn assert_same(csv: &str, objects: &[Value], columns: &[&str]) {
    let found: Vec<Vec<&str>> = rows(csv).iter().map(|row| columns.iter().map(|name| row[name]).collect()).collect();
    let expected: Vec<Vec<String>> =
        objects.iter().map(|object| columns.iter().map(|name| text(&object[name])).collect()).collect();
    assert!(!expected.is_empty());
    assert_eq!(found, expected);
}

fn json(arguments: &[&str], inputs: &[impl AsRef<std::path::Path>]) -> Value {
    serde_json::from_str(&result(&[arguments, &["--format", "json"]].concat(), inputs)).expect("json")
}

fn csv(arguments: &[&str], view: &str, inputs: &[impl AsRef<std::path::Path>]) -> String {
    result(&[arguments, &["--format", "csv", "--view", view]].concat(), inputs)
}

#[test]
fn buckets_of_times() {
    let input = [sample("openib-mixed-4x1")];
    let arguments = ["latency", "--by", "rank"];
    let document = json(&arguments, &input);
    let buckets: Vec<Value> = document["latencies"]
        .as_array()
        .expect("latencies")
        .iter()
        .flat_map(|row| {
            row["buckets"].as_array().expect("buckets").iter().map(|bucket| {
                let mut row = row.clone();
                (row["ns"], row["count"]) = (bucket[0].clone(), bucket[1].clone());
                row
            })
        })
        .collect();
    let found = csv(&arguments, "buckets", &input);
    assert_same(&found, &buckets, &["interval", "verb", "from_bytes", "src", "dst", "ns", "count"]);
    // The counts add up to the samples.
    let sum = |name: &str, csv: &str| rows(csv).iter().map(|row| row[name].parse::<u64>().expect("count")).sum::<u64>();
    assert_eq!(sum("count", &found), sum("samples", &csv(&arguments, "histogram", &input)));
    let table = result(&["latency", "--view", "buckets", "--interval", "acknowledged"], &input);
    assert!(table.contains("cumulative") && table.contains("100.0 %"), "{table}");
}

#[test]
fn matrices_and_collectives_of_phases() {
    let input = [sample("openib-mixed-4x1")];
    let document = json(&["phases"], &input);
    let of = |part: &str| document[part].as_array().expect("part").clone();
    let cells =
        ["phase", "from_ns", "to_ns", "src", "dst", "messages", "mpi_bytes", "payload_bytes", "wire_bytes", "packets"];
    assert_same(&csv(&["phases"], "matrices", &input), &of("matrices"), &cells);
    let operations = ["phase", "from_ns", "to_ns", "operation", "at_least_messages"];
    assert_same(&csv(&["phases"], "collectives", &input), &of("collectives"), &operations);
}

#[cfg(target_os = "linux")]
#[test]
fn parts_of_a_cross_check() {
    let run = runs::named("scorep-ompi-rc-halo-4x1");
    let inputs = [run.sink(), run.folder.join("trace/traces.otf2")];
    let document = json(&["crosscheck"], &inputs);
    let all = &document;
    let array = |value: &Value| value.as_array().expect("array").clone();
    let ranks = array(&all["clocks"]);
    let found = csv(&["crosscheck"], "clocks", &inputs);
    assert_same(&found, &ranks, &["rank", "offset_ns", "uncertainty_ns", "is_uneven", "sent", "received"]);
    for (row, rank) in rows(&found).iter().zip(&ranks) {
        let drift: f64 = row["drift_ppm"].parse().expect("number");
        assert!((drift - rank["drift_ppm"].as_f64().expect("number")).abs() < 1e-9, "{rank}");
    }
    let delays = &all["send_to_wire"];
    let found = csv(&["crosscheck"], "delays", &inputs);
    let number = |text: &str| text.parse::<i64>().expect("number");
    let classes: Vec<[i64; 3]> =
        rows(&found).iter().map(|row| ["from_ns", "to_ns", "messages"].map(|name| number(row[name]))).collect();
    assert_same(&found, &array(&all["delays"]), &["from_ns", "to_ns", "messages"]);
    assert_eq!(classes.iter().map(|[.., count]| *count).sum::<i64>(), delays["count"].as_i64().expect("count"));
    // The minimum and the maximum lie in the first and the last class.
    let (first, last) = (classes[0], classes[classes.len() - 1]);
    let [min, max] = ["min_ns", "max_ns"].map(|name| delays[name].as_i64().expect("time"));
    assert!((first[0]..first[1]).contains(&min) && (last[0]..last[1]).contains(&max), "{delays}");
    assert_same(
        &csv(&["crosscheck"], "calls", &inputs),
        &array(&all["calls"]),
        &["operation", "calls", "sent_bytes", "received_bytes"],
    );
    assert_eq!(rows(&csv(&["crosscheck"], "one-sided", &inputs)).len(), array(&all["one_sided"]).len());
    assert_eq!(rows(&csv(&["crosscheck"], "differences", &inputs)).len(), 0, "nothing differs");
}

/// A table with impossible values for one pair: the tag is unknown, and both sides are reported.
#[cfg(target_os = "linux")]
#[test]
fn differences_of_a_cross_check() {
    let run = runs::named("scorep-ompi-rc-halo-4x1");
    let folder = tempfile::tempdir().expect("folder");
    let table = folder.path().join("table.csv");
    std::fs::write(&table, "src,dst,messages,bytes\n0,1,1000000,1000000\n").expect("table");
    let path = |path: &std::path::Path| path.to_str().expect("path").to_owned();
    let ran = |form: &[&str]| {
        let ran = crate::tools::ibscope([&["crosscheck", &path(&run.sink()), &path(&table)], form].concat());
        assert_eq!(ran.code, 4, "{}", ran.stderr);
        ran.stdout
    };
    let document: Value = serde_json::from_str(&ran(&["--format", "json"])).expect("json");
    let differences = document["differences"].as_array().expect("differences");
    let columns = ["src", "dst", "tag", "trace_messages", "trace_bytes", "wire_messages", "wire_mpi_bytes"];
    assert_same(&ran(&["--format", "csv", "--view", "differences"]), differences, &columns);
}
