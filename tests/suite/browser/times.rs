//! Latencies in the report: time series of percentiles, and histograms of a pair of ranks.

use super::{has_browser, look, pictures};
use crate::tools::{result, sample};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The rows of a csv by column name.
fn rows(csv: &str) -> Vec<BTreeMap<&str, &str>> {
    let mut lines = csv.lines();
    let header: Vec<&str> = lines.next().expect("header").split(',').collect();
    lines.map(|line| header.iter().copied().zip(line.split(',')).collect()).collect()
}

#[test]
fn latencies_are_those_of_the_command() {
    if !has_browser() {
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let [profile, page] = ["job.ibp", "times.html"].map(|name| folder.path().join(name));
    let place = |path: &std::path::Path| path.to_str().expect("path").to_owned();
    result(&["analyze", "-o", &place(&profile)], &[sample("openib-mixed-4x1")]);
    result(&["report", "-o", &place(&page)], &[&profile]);
    let seen = look(&["--times".as_ref(), &page, &pictures()]);
    assert_eq!(seen["complaints"], json!([]), "the console is silent");

    // Time series of percentiles: in all bins, each line's value on its logarithmic axis.
    let csv = result(&["latency", "--view", "timeline", "--interval", "acknowledged", "--format", "csv"], &[&profile]);
    let summary: Value = serde_json::from_str(&result(&["summary", "--format", "json"], &[&profile])).expect("json");
    let origin_ns = summary["facts"]["first_time_ns"].as_i64().expect("time");
    let bins = rows(&csv);
    assert!(bins.len() > 20, "{csv}");
    for (line, column) in ["p99_ns", "p90_ns", "median_ns"].into_iter().enumerate() {
        let points: Vec<[f64; 2]> = seen["drawn"][line]
            .as_array()
            .expect("points")
            .iter()
            .filter_map(|point| Some([point[0].as_f64()?, point[1].as_f64()?]))
            .collect();
        for bin in &bins {
            let from_s = (bin["time_ns"].parse::<i64>().expect("time") - origin_ns) as f64 / 1e9;
            let log = bin[column].parse::<f64>().expect("time").log10();
            let has = points.iter().any(|[x, y]| (x - from_s).abs() < 1e-9 && (y - log).abs() < 1e-9);
            assert!(has, "{column}: {bin:?}");
        }
    }

    // Histograms: as many samples as the command counts, for all pairs and for each.
    let samples = |arguments: &[&str], pair: &str| {
        let csv = result(&[&["latency", "--all-sizes", "--format", "csv"], arguments].concat(), &[&profile]);
        let own = |row: &&BTreeMap<&str, &str>| {
            row["interval"] == "acknowledged" && (pair.is_empty() || format!("{},{}", row["src"], row["dst"]) == pair)
        };
        let most = rows(&csv).iter().filter(own).map(|row| row["samples"].parse::<u64>().expect("number")).max();
        most.expect("a row")
    };
    let bars = seen["bars"].as_object().expect("pairs");
    assert_eq!(bars.len(), 13, "all, and 12 pairs of 4 ranks");
    for (pair, drawn) in bars {
        let count: u64 = drawn[1][0].as_array().expect("bars").iter().filter_map(|bar| bar[1].as_u64()).sum();
        let arguments: &[&str] = if pair.is_empty() { &[] } else { &["--by", "rank"] };
        assert_eq!(count, samples(arguments, pair), "{pair}");
    }

    // The window that is brushed on the timeline is marked.
    let marked = &seen["marked"][0];
    assert_eq!(json!([marked[0]["xAxis"], marked[1]["xAxis"]]), seen["window"]);
}
