//! Collective operations in the report, one by one.

use super::{has_browser, look, pictures};
use crate::runs;
use crate::tools::{CsvRow, csv_rows, result};
use serde_json::{Value, json};
use std::path::Path;

fn report(inputs: &[&Path], page: &Path) -> Value {
    result(&["report", "-o", page.to_str().expect("path")], inputs);
    let seen = look(&["--lanes".as_ref(), page, &pictures()]);
    assert_eq!(seen["complaints"], json!([]), "the console is silent");
    for width in ["1280", "390"] {
        assert!(seen[width]["overflow"].as_i64().expect("pixels") <= 0, "the page overflows {width} pixels");
    }
    seen
}

/// The operations of the page: communicator, number, operation, algorithm, confidence.
fn names(rows: &Value) -> Vec<[String; 5]> {
    let text = |cell: &Value| cell.as_str().expect("text").to_owned();
    let of_row = |row: &Value| [0, 1, 2, 3, 4].map(|at| text(&row[at]));
    rows.as_array().expect("rows").iter().map(of_row).collect()
}

/// The same of `collectives --view instances`.
fn expected<'a>(rows: impl Iterator<Item = &'a CsvRow>) -> Vec<[String; 5]> {
    let columns = ["communicator", "instance", "operation", "algorithm", "confidence"];
    rows.map(|row| columns.map(|column| row[column].clone())).collect()
}

#[test]
fn lanes_have_the_operations_of_the_command() {
    if !has_browser() {
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let capture = runs::of_second_set("ompi5-coll-default-4x1").sink();
    let seen = report(&[&capture], &folder.path().join("lanes.html"));
    let rows = csv_rows(&result(&["collectives", "--view", "instances", "--format", "csv"], &[&capture]));
    assert_eq!(names(&seen["rows"]), expected(rows.iter()));
    // A bar for each rank of each operation, as the trace has slices.
    let trace: Value = serde_json::from_str(&result(&["trace"], &[&capture])).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let slices = events.iter().filter(|event| event["cat"] == "collective");
    for width in ["1280", "390"] {
        let bars = seen[width]["bars"].as_array().expect("bars");
        assert_eq!(bars.len(), slices.clone().count(), "{width}");
        let is_visible = |bar: &Value| bar["width"].as_f64().is_some_and(|width| width >= 1.0);
        assert!(bars.iter().all(is_visible), "{width}");
    }
    // The tip of the first bar, of the first operation.
    let tip: Vec<&str> = seen["tip"].as_array().expect("tip").iter().filter_map(Value::as_str).collect();
    assert_eq!(tip[0], format!("{}, rank 0", rows[0]["operation"]), "{tip:?}");
    assert!(tip[1].ends_with(&format!("{}, operation {}", rows[0]["communicator"], rows[0]["instance"])), "{tip:?}");
    // The window on the timeline: operations that overlap it, in seconds from the first packet.
    let origin_ns = trace["otherData"]["start_ns"].as_i64().expect("start");
    let window: Vec<f64> = seen["window"].as_array().expect("window").iter().filter_map(Value::as_f64).collect();
    let time_s = |row: &CsvRow, column: &str| (row[column].parse::<i64>().expect("time") - origin_ns) as f64 / 1e9;
    let within = rows.iter().filter(|row| time_s(row, "start_ns") < window[1] && time_s(row, "end_ns") >= window[0]);
    let within = expected(within);
    assert!(!within.is_empty() && within.len() < rows.len(), "{window:?}");
    assert_eq!(names(&seen["rows in window"]), within);
}

#[test]
fn a_profile_shows_how_to_get_operations() {
    if !has_browser() {
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let profile = folder.path().join("job.ibp");
    let capture = runs::of_second_set("ompi5-coll-default-4x1").sink();
    result(&["analyze", "-o", profile.to_str().expect("path")], &[capture]);
    let seen = report(&[&profile], &folder.path().join("lanes-profile.html"));
    assert_eq!(seen["rows"], json!([]));
    assert!(seen["note"].as_str().expect("note").contains("ibscope report CAPTURE"), "{}", seen["note"]);
}
