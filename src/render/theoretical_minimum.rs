//! Predicted against measured times as a table for people, csv and JSON.

use super::latency::{LABELS, key_csv, key_job, key_json, labelled, number, time};
use super::units::{bytes, duration, group};
use crate::analysis::latency::Key;
use crate::analysis::theoretical_minimum::Path;
use crate::model::{Coverage, Histogram};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// A table for people, with what was assumed and how far stamps can be trusted; without rows, what is said of `nothing`.
#[must_use]
pub fn table(latencies: &BTreeMap<Key, Histogram>, path: &Path, coverage: &Coverage, nothing: &str) -> String {
    if latencies.is_empty() {
        return nothing.to_owned();
    }
    let header = ["samples", "floor", "median", "deviation", "median / floor", "error"];
    let row = |key: &Key, times: &Histogram| {
        vec![
            group(times.samples()),
            time(path.minimum_ns(key)),
            time(times.quantile(0.5) as f64),
            time(times.standard_deviation()),
            path.ratio(key, times).map_or_else(|| "-".to_owned(), shown),
            format!("+- {}", time(path.error_ns(key, coverage))),
        ]
    };
    let table = labelled(latencies, &header, row);
    let share = coverage.same_time as f64 * 100.0 / stamped(coverage).max(1) as f64;
    let stamps = match coverage.same_time {
        0 => "no record has the stamp of the one before it".to_owned(),
        _ => format!(
            "{share:.1} % of the records have the stamp of the one before; at most {} have one stamp, and at most {} follow behind the first of such, \
             which take {} on this link",
            group(coverage.same_time_most),
            bytes(coverage.same_time_most_bytes),
            time(path.burst_ns(coverage))
        ),
    };
    let clocks = match path.clocks_ns {
        0 => String::new(),
        ns => format!("; transits and MPI messages between inputs: their clocks may differ by {}", time(ns as f64)),
    };
    let switches = if path.hops == 1 { "switch" } else { "switches" };
    format!(
        "{}\n\nfloor   links of {}, {} {switches} of {} each way, path MTU {}; the smallest message of each size, at the requester's port\n\
         error   the clock ticks every {}; {stamps}{clocks}\n",
        table,
        path.speed.describe(),
        path.hops,
        duration(i64::from(path.switch_ns)),
        path.mtu_bytes,
        duration(coverage.clock_ns.cast_signed()),
    )
}

/// Records whose stamps were looked at.
const fn stamped(coverage: &Coverage) -> u64 {
    coverage.records.saturating_sub(coverage.outside_window)
}

/// A ratio to three digits.
fn shown(ratio: f64) -> String {
    match ratio {
        ratio if ratio < 10.0 => format!("{ratio:.2}"),
        ratio if ratio < 100.0 => format!("{ratio:.1}"),
        ratio => group(ratio.round() as u64),
    }
}

/// Names and values of a row, in the order of the csv.
fn values(key: &Key, times: &Histogram, path: &Path, coverage: &Coverage) -> [(&'static str, Option<f64>); 6] {
    [
        ("samples", Some(times.samples() as f64)),
        ("floor_ns", Some(path.minimum_ns(key))),
        ("median_ns", Some(times.quantile(0.5) as f64)),
        ("standard_deviation_ns", Some(times.standard_deviation())),
        ("ratio", path.ratio(key, times)),
        ("error_ns", Some(path.error_ns(key, coverage))),
    ]
}

/// `interval,verb,from_bytes,src,dst` and the values.
pub fn csv(
    latencies: &BTreeMap<Key, Histogram>,
    path: &Path,
    coverage: &Coverage,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out, "{LABELS},samples,floor_ns,median_ns,standard_deviation_ns,ratio,error_ns,job")?;
    for (key, times) in latencies {
        let cell = |(name, value): (&str, Option<f64>)| match value {
            None => String::new(),
            Some(ratio) if name == "ratio" => format!("{ratio:.3}"),
            Some(value) => number(value),
        };
        let values = values(key, times, path, coverage).map(cell).join(",");
        writeln!(out, "{},{values},{}", key_csv(key), key_job(key))?;
    }
    Ok(())
}

/// One object with the rows of the csv, what was assumed, and what is known of the stamps.
pub fn json(
    latencies: &BTreeMap<Key, Histogram>,
    path: &Path,
    coverage: &Coverage,
    out: &mut dyn Write,
) -> io::Result<()> {
    let row = |(key, times): (&Key, &Histogram)| {
        let mut object = key_json(key);
        object.extend(values(key, times, path, coverage).map(|(name, value)| (name.to_owned(), json!(value))));
        // A count, which is no time.
        object.insert("samples".to_owned(), json!(times.samples()));
        object
    };
    let document = json!({
        "schema": "ibscope latency floors",
        "version": 1,
        "link": {
            "gbit_per_s": path.speed.gbit_per_s(), "hops": path.hops, "switch_ns": path.switch_ns, "mtu_bytes": path.mtu_bytes,
            "header_bytes": path.header_bytes,
        },
        "stamps": {
            "clock_ns": coverage.clock_ns, "records": stamped(coverage), "same_time": coverage.same_time,
            "same_time_most": coverage.same_time_most, "same_time_most_bytes": coverage.same_time_most_bytes, "clocks_ns": path.clocks_ns,
        },
        "latencies": latencies.iter().map(row).collect::<Vec<_>>(),
    });
    writeln!(out, "{document:#}")
}
