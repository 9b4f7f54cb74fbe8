//! Times between packets as terminal tables, csv and JSON.
//!
//! In: histograms by interval, verb, size class and pair. Out: text; csv and JSON have the same
//! rows.

mod bars;
mod buckets;
mod labels;
mod missing;
mod quantiles;
mod subject;
mod surface;
mod time_series;

pub use bars::bars;
pub(super) use buckets::buckets_table;
pub use buckets::{bucket_csv, bucket_table};
pub(super) use labels::{ends, has_pairs, key_json};
pub use missing::{NOT_MEASURED, empty_message, notes, requirements};
pub use subject::Subject;
pub(super) use surface::columns_of_surface;
pub use surface::{surface_csv, surface_json, surface_table};
pub(super) use time_series::columns_of_time_series;
pub use time_series::{time_series_csv, time_series_json, time_series_table};

use super::table::groups::{self, HasKey, HasPair};
use super::table::{Table, write_document};
use super::units::time;
use crate::analysis::Label;
use crate::analysis::latency::LatencyKey;
use crate::model::column::ColumnUnit::{Count, Nanoseconds};
use crate::model::{Histogram, Profile};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// A histogram with its key, and the limit above which times are counted.
pub(super) struct LatencyTableRow<'a> {
    key: &'a LatencyKey,
    times: &'a Histogram,
    limit_ns: u64,
}

impl HasPair for LatencyTableRow<'_> {
    fn pair(&self) -> Option<(&Label, &Label)> {
        ends(self.key)
    }
}

impl HasKey for LatencyTableRow<'_> {
    fn key(&self) -> &LatencyKey {
        self.key
    }
}

impl LatencyTableRow<'_> {
    fn quantile(&self, share: f64) -> u64 {
        self.times.quantile(share)
    }
}

/// The columns of `latency`.
pub(super) fn latencies_table<'a>(limit_ns: u64, has_pairs: bool) -> Table<LatencyTableRow<'a>> {
    Table::new("ibscope latency --format csv")
        .with(groups::key(has_pairs))
        .column("samples", Count, "times that were measured", |row: &LatencyTableRow<'_>| row.times.samples())
        .headed("samples")
        .column("min_ns", Nanoseconds, "the shortest time", |row| row.times.min())
        .headed("min")
        .shown("median", |row| time(row.quantile(0.5) as f64))
        .column("mean_ns", Nanoseconds, "mean of the times", |row| row.times.mean())
        .decimals(1)
        .headed("mean")
        .column(
            "p10_ns",
            Nanoseconds,
            "10 % of the times are shorter; exact to three digits, as are all quantiles",
            |row| row.quantile(0.1),
        )
        .column("median_ns", Nanoseconds, "half of the times are shorter", |row| row.quantile(0.5))
        .column("p90_ns", Nanoseconds, "90 % of the times are shorter", |row| row.quantile(0.9))
        .headed("p90")
        .column("p95_ns", Nanoseconds, "95 % of the times are shorter", |row| row.quantile(0.95))
        .column("p99_ns", Nanoseconds, "99 % of the times are shorter", |row| row.quantile(0.99))
        .headed("p99")
        .column("max_ns", Nanoseconds, "the longest time", |row| row.times.max())
        .headed("max")
        .column("standard_deviation_ns", Nanoseconds, "standard deviation of the times", |row| {
            row.times.standard_deviation()
        })
        .decimals(1)
        .headed("deviation")
        .column("above_limit", Count, "samples that are longer than `--limit`", |row| row.times.above(row.limit_ns))
        .shown(above_heading(limit_ns), |row| {
            let LatencyTableRow { times, limit_ns, .. } = row;
            format!("{:.1} %", times.above(*limit_ns) as f64 * 100.0 / times.samples().max(1) as f64)
        })
        .with(groups::job)
}

fn rows(latencies: &BTreeMap<LatencyKey, Histogram>, limit_ns: u64) -> impl Iterator<Item = LatencyTableRow<'_>> {
    latencies.iter().map(move |(key, times)| LatencyTableRow { key, times, limit_ns })
}

/// The terminal table; `nothing` if there are no rows. If the table is wider than `width` columns, it
/// leaves out the deviation, the share above the limit, the mean, the minimum, the p90, the maximum and
/// the samples, in this order, until it fits.
#[must_use]
pub fn table(
    latencies: &BTreeMap<LatencyKey, Histogram>,
    limit_ns: u64,
    nothing: &str,
    width: Option<usize>,
) -> String {
    if latencies.is_empty() {
        return nothing.to_owned();
    }
    let above = above_heading(limit_ns);
    let rows: Vec<_> = rows(latencies, limit_ns).collect();
    let table = latencies_table(limit_ns, has_pairs(latencies));
    format!("{}\n", table.text_within(&rows, width, &["deviation", &above, "mean", "min", "p90", "max", "samples"]))
}

fn above_heading(limit_ns: u64) -> String {
    format!("> {}", time(limit_ns as f64))
}

/// Writes one csv row per histogram.
pub fn csv(latencies: &BTreeMap<LatencyKey, Histogram>, limit_ns: u64, out: &mut dyn Write) -> io::Result<()> {
    latencies_table(limit_ns, true).csv(rows(latencies, limit_ns), out)
}

/// Writes one JSON object with the csv rows, each with its buckets as pairs of nanoseconds and
/// count.
pub fn json(latencies: &BTreeMap<LatencyKey, Histogram>, limit_ns: u64, out: &mut dyn Write) -> io::Result<()> {
    let buckets = |row: &LatencyTableRow<'_>| json!(row.times.values().collect::<Vec<_>>());
    let rows = latencies_table(limit_ns, true).objects_with(rows(latencies, limit_ns), "buckets", buckets);
    write_document(out, "ibscope latency", 2, json!({ "limit_ns": limit_ns, "latencies": rows }))
}

/// Writes the response times of all requests together as `key: value` lines, which the scripts of
/// Collie (a tool that searches for performance anomalies of RDMA) read: SEND and WRITE to their
/// acknowledgement, READ and atomics to the end of their response.
pub fn collie(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let mut times = Histogram::default();
    for row in &profile.latencies {
        if row.timing.interval.is_response_time() {
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
