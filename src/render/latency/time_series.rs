//! Times over time as a table for people, csv and JSON.

use super::quantiles::{Pair, csv, names, row_json, table};
use crate::analysis::latency::LatencySeries;
use crate::model::Histogram;
use crate::render::units::{duration, seconds_since, utc};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// Most lines of times over time for people.
const MAX_LINES: usize = 60;

/// A table for people, with so many bins together in a line that all fit on a screen; without rows, what is said of `nothing`.
#[must_use]
pub fn time_series_table(series: &LatencySeries, nothing: &str) -> String {
    let times = || series.bins.keys().map(|key| i128::from(key.time_ns));
    let Some((first_ns, last_ns)) = times().min().zip(times().max()) else { return nothing.to_owned() };
    let has_pairs = series.bins.keys().any(|key| key.pair.is_some());
    let labels: &[&str] = if has_pairs { &["interval", "from", "to", "time [s]"] } else { &["interval", "time [s]"] };
    let of: BTreeSet<_> = series.bins.keys().map(|key| (key.interval, &key.pair)).collect();
    let lines = (MAX_LINES / of.len()).max(1) as i128;
    let bin_ns = i128::from(series.bin_ns);
    let width_ns = bin_ns * (((last_ns - first_ns) / bin_ns + lines) / lines);
    let mut sums: BTreeMap<(&str, &Pair, i128), Histogram> = BTreeMap::new();
    for (key, times) in &series.bins {
        let line_ns = first_ns + (i128::from(key.time_ns) - first_ns) / width_ns * width_ns;
        let sum = sums.entry((key.interval, &key.pair, line_ns));
        sum.and_modify(|sum| sum.merge(times)).or_insert_with(|| times.clone());
    }
    let whole = |ns: i128| i64::try_from(ns).unwrap_or(i64::MAX);
    let rows = sums.iter().map(|((interval, pair, line_ns), times)| {
        let mut row = vec![(*interval).to_owned()];
        row.extend(names(pair.as_ref()));
        row.push(seconds_since(series.origin_ns, whole(*line_ns)));
        (row, times)
    });
    let table = table(labels, &[labels.len() - 1], rows);
    format!(
        "quantiles per {} from {}; time in s from the first packet\n{table}",
        duration(whole(width_ns)),
        utc(whole(first_ns))
    )
}

/// `interval,src,dst,time_ns,samples,p10_ns,median_ns,p90_ns,p99_ns,job`; `src`, `dst` and `job` are empty where all pairs are together.
pub fn time_series_csv(series: &LatencySeries, out: &mut dyn Write) -> io::Result<()> {
    csv(
        "time_ns",
        series.bins.iter().map(|(key, times)| (key.interval, &key.pair, key.time_ns.to_string(), times)),
        out,
    )
}

/// One object with the rows of the csv.
pub fn time_series_json(series: &LatencySeries, out: &mut dyn Write) -> io::Result<()> {
    let rows = series
        .bins
        .iter()
        .map(|(key, times)| row_json(key.interval, &key.pair, &[("time_ns", json!(key.time_ns))], times));
    let rows: Vec<_> = rows.collect();
    let document =
        json!({ "schema": "ibscope latency over time", "version": 1, "bin_ns": series.bin_ns, "bins": rows });
    writeln!(out, "{document:#}")
}
