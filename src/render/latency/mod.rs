//! Times between packets as a table for people, csv and JSON.

mod absent;
mod bars;
mod buckets;
mod labels;
mod quantiles;
mod subject;
mod surface;
mod time_series;
mod units;

pub use absent::{NOT_MEASURED, notes, nothing, takes};
pub use bars::bars;
pub use buckets::{bucket_csv, bucket_table};
pub(super) use labels::{LABELS, key_csv, key_job, key_json, labelled};
pub use subject::Subject;
pub use surface::{surface_csv, surface_json, surface_table};
pub use time_series::{time_series_csv, time_series_json, time_series_table};
pub(super) use units::{number, size, time};

use super::units::group;
use crate::analysis::latency::Key;
use crate::model::{Histogram, Profile};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// A table for people; without rows, what is said of `nothing`.
#[must_use]
pub fn table(latencies: &BTreeMap<Key, Histogram>, limit_ns: u64, nothing: &str) -> String {
    if latencies.is_empty() {
        return nothing.to_owned();
    }
    let above = format!("> {}", time(limit_ns as f64));
    let header = ["samples", "min", "median", "mean", "p90", "p99", "max", "deviation", above.as_str()];
    let row = |_: &Key, times: &Histogram| {
        let of = |ns: u64| time(ns as f64);
        let share = times.above(limit_ns) as f64 * 100.0 / times.samples().max(1) as f64;
        vec![
            group(times.samples()),
            of(times.min()),
            of(times.quantile(0.5)),
            time(times.mean()),
            of(times.quantile(0.9)),
            of(times.quantile(0.99)),
            of(times.max()),
            time(times.standard_deviation()),
            format!("{share:.1} %"),
        ]
    };
    format!("{}\n", labelled(latencies, &header, row))
}

/// Names and values of a histogram, in the order of the csv.
fn values(times: &Histogram, limit_ns: u64) -> [(&'static str, f64); 11] {
    let quantile = |share| times.quantile(share) as f64;
    [
        ("samples", times.samples() as f64),
        ("min_ns", times.min() as f64),
        ("mean_ns", times.mean()),
        ("p10_ns", quantile(0.1)),
        ("median_ns", quantile(0.5)),
        ("p90_ns", quantile(0.9)),
        ("p95_ns", quantile(0.95)),
        ("p99_ns", quantile(0.99)),
        ("max_ns", times.max() as f64),
        ("standard_deviation_ns", times.standard_deviation()),
        ("above_limit", times.above(limit_ns) as f64),
    ]
}

/// A row of labels and values for each histogram.
pub fn csv(latencies: &BTreeMap<Key, Histogram>, limit_ns: u64, out: &mut dyn Write) -> io::Result<()> {
    let names = values(&Histogram::default(), limit_ns).map(|(name, _)| name).join(",");
    writeln!(out, "{LABELS},{names},job")?;
    for (key, times) in latencies {
        let values = values(times, limit_ns).map(|(_, value)| number(value)).join(",");
        writeln!(out, "{},{values},{}", key_csv(key), key_job(key))?;
    }
    Ok(())
}

/// One object with the rows of the csv, and the buckets of each as pairs of nanoseconds and count.
pub fn json(latencies: &BTreeMap<Key, Histogram>, limit_ns: u64, out: &mut dyn Write) -> io::Result<()> {
    let row = |(key, times): (&Key, &Histogram)| {
        let mut object = key_json(key);
        object.insert("buckets".to_owned(), json!(times.values().collect::<Vec<_>>()));
        object.extend(values(times, limit_ns).map(|(name, value)| (name.to_owned(), json!(value))));
        object
    };
    let rows: Vec<_> = latencies.iter().map(row).collect();
    let document = json!({ "schema": "ibscope latency", "version": 1, "limit_ns": limit_ns, "latencies": rows });
    writeln!(out, "{document:#}")
}

/// `key: value` lines of all requests and their answers together, in the words of scripts that read that form: SEND and WRITE to their
/// acknowledgement, READ and atomics to the end of their response.
pub fn collie(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let mut times = Histogram::default();
    for row in &profile.latencies {
        if row.timing.interval.is_answer() {
            times.merge(&row.histogram);
        }
    }
    writeln!(out, "latency_samples: {}", times.samples())?;
    writeln!(out, "latency_min_ns: {}", times.min())?;
    writeln!(out, "latency_avg_ns: {:.0}", times.mean())?;
    for (name, share) in [("median", 0.5), ("p95", 0.95), ("p99", 0.99)] {
        writeln!(out, "latency_{name}_ns: {}", times.quantile(share))?;
    }
    writeln!(out, "latency_max_ns: {}", times.max())
}
