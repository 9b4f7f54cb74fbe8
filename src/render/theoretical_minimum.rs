//! Measured times compared with the theoretical minimum latency: terminal table, csv and JSON.

use super::latency::{ends, has_pairs};
use super::table::groups::{self, HasKey, HasPair};
use super::table::{Table, write_document};
use super::units::{bytes, duration, group, time};
use crate::analysis::Label;
use crate::analysis::latency::LatencyKey;
use crate::analysis::theoretical_minimum::FabricPath;
use crate::model::column::ColumnUnit::{Count, Nanoseconds, Ratio};
use crate::model::{Coverage, Histogram};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Measured times, and the path whose minimum they are compared with.
pub(super) struct MinimumRow<'a> {
    key: &'a LatencyKey,
    times: &'a Histogram,
    path: &'a FabricPath,
    coverage: &'a Coverage,
}

impl HasPair for MinimumRow<'_> {
    fn pair(&self) -> Option<(&Label, &Label)> {
        ends(self.key)
    }
}

impl HasKey for MinimumRow<'_> {
    fn key(&self) -> &LatencyKey {
        self.key
    }
}

impl MinimumRow<'_> {
    fn ratio(&self) -> Option<f64> {
        self.path.ratio(self.key, self.times)
    }

    fn error_ns(&self) -> f64 {
        self.path.error_ns(self.key, self.coverage)
    }
}

/// The columns of `latency --link`.
pub(super) fn columns<'a>(has_pairs: bool) -> Table<MinimumRow<'a>> {
    Table::new("ibscope latency --link 100Gb/s --format csv")
        .with(groups::key(has_pairs))
        .column("samples", Count, "times that were measured", |row: &MinimumRow<'_>| row.times.samples())
        .headed("samples")
        .column(
            "theoretical_minimum_ns",
            Nanoseconds,
            "the shortest time that the link and the switches allow",
            |row| row.path.minimum_ns(row.key),
        )
        .decimals(1)
        .headed("minimum")
        .column("median_ns", Nanoseconds, "half of the times are shorter", |row| row.times.quantile(0.5))
        .headed("median")
        .column("standard_deviation_ns", Nanoseconds, "standard deviation of the times", |row| {
            row.times.standard_deviation()
        })
        .decimals(1)
        .headed("deviation")
        .column(
            "median_over_minimum",
            Ratio,
            "median divided by the theoretical minimum; empty where the minimum is 0",
            MinimumRow::ratio,
        )
        .decimals(3)
        .shown("median / minimum", |row| row.ratio().map_or_else(|| "-".to_owned(), format_ratio))
        .column(
            "error_ns",
            Nanoseconds,
            "uncertainty of the times, from the ticks and the errors of the clocks",
            MinimumRow::error_ns,
        )
        .decimals(1)
        .shown("error", |row| format!("+- {}", time(row.error_ns())))
        .with(groups::job)
}

fn rows<'a>(
    latencies: &'a BTreeMap<LatencyKey, Histogram>,
    path: &'a FabricPath,
    coverage: &'a Coverage,
) -> impl Iterator<Item = MinimumRow<'a>> {
    latencies.iter().map(move |(key, times)| MinimumRow { key, times, path, coverage })
}

/// The terminal table, with the assumptions about the path and the accuracy of the timestamps;
/// `nothing` if there are no rows. If the table is wider than `width` columns, it leaves out the error,
/// the deviation, the samples, the minimum and the median, in this order, until it fits.
#[must_use]
pub fn table(
    latencies: &BTreeMap<LatencyKey, Histogram>,
    path: &FabricPath,
    coverage: &Coverage,
    nothing: &str,
    width: Option<usize>,
) -> String {
    if latencies.is_empty() {
        return nothing.to_owned();
    }
    let table = columns(has_pairs(latencies)).text_within(
        &rows(latencies, path, coverage).collect::<Vec<_>>(),
        width,
        &["error", "deviation", "samples", "minimum", "median"],
    );
    let share = coverage.same_time as f64 * 100.0 / timestamped_records(coverage).max(1) as f64;
    let timestamps = match coverage.same_time {
        0 => "no record has the same timestamp as the one before".to_owned(),
        _ => format!(
            "{share:.1} % of the records have the same timestamp as the record before; at most {} consecutive records share \
             one timestamp; without the first of them, such records hold at most {}, which take {} on this link",
            group(coverage.same_time_longest_run),
            bytes(coverage.same_time_longest_run_bytes),
            time(path.burst_ns(coverage))
        ),
    };
    let clocks = match path.clocks_ns {
        0 => String::new(),
        ns => format!(
            "; times of transits and MPI messages between two inputs may be wrong by {}, because their clocks may differ",
            time(ns as f64)
        ),
    };
    let switches = if path.hops == 1 { "switch" } else { "switches" };
    format!(
        "{}\n\nminimum: links of {} and {} {switches} in each direction ({} per switch), path MTU {}; for the smallest message of each size class, at the requester's port\n\
         error:   the clock ticks every {}; {timestamps}{clocks}\n",
        table,
        path.speed.describe(),
        path.hops,
        duration(i64::from(path.switch_ns)),
        path.mtu_bytes,
        duration(coverage.clock_ns.cast_signed()),
    )
}

/// Number of records whose timestamps were examined.
const fn timestamped_records(coverage: &Coverage) -> u64 {
    coverage.records.saturating_sub(coverage.outside_window)
}

/// Formats a ratio with three significant digits.
fn format_ratio(ratio: f64) -> String {
    match ratio {
        ratio if ratio < 10.0 => format!("{ratio:.2}"),
        ratio if ratio < 100.0 => format!("{ratio:.1}"),
        ratio => group(ratio.round() as u64),
    }
}

/// Writes one csv row per histogram.
pub fn csv(
    latencies: &BTreeMap<LatencyKey, Histogram>,
    path: &FabricPath,
    coverage: &Coverage,
    out: &mut dyn Write,
) -> io::Result<()> {
    columns(true).csv(rows(latencies, path, coverage), out)
}

/// Writes one JSON object with the csv rows, the assumptions about the path, and the accuracy of
/// the timestamps.
pub fn json(
    latencies: &BTreeMap<LatencyKey, Histogram>,
    path: &FabricPath,
    coverage: &Coverage,
    out: &mut dyn Write,
) -> io::Result<()> {
    let members = json!({
        "link": {
            "gbit_per_s": path.speed.gbit_per_s(), "hops": path.hops, "switch_ns": path.switch_ns, "mtu_bytes": path.mtu_bytes,
            "header_bytes": path.header_bytes,
        },
        "timestamps": {
            "clock_ns": coverage.clock_ns, "records": timestamped_records(coverage), "same_time": coverage.same_time,
            "same_time_longest_run": coverage.same_time_longest_run, "same_time_longest_run_bytes": coverage.same_time_longest_run_bytes, "clocks_ns": path.clocks_ns,
        },
        "latencies": columns(true).objects(rows(latencies, path, coverage)),
    });
    write_document(out, "ibscope theoretical minimum", 2, members)
}
