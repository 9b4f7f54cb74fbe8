//! Storage over time as terminal table, csv and JSON rows.

use super::storage::{HasStoragePair, nothing, pair, quantile};
use super::table::Table;
use super::units::{bytes, duration, group, seconds_since, time, utc};
use crate::analysis::storage::{Storage, StoragePair};
use crate::analysis::storage_timeline::{StorageBin, StorageTimeline};
use crate::model::Histogram;
use crate::model::column::ColumnUnit::{Bytes, Count, Nanoseconds, Timestamp};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Maximum number of lines of all terminal tables together.
const MAX_LINES: i128 = 60;

impl HasStoragePair for StorageBin {
    fn storage_pair(&self) -> &StoragePair {
        &self.pair
    }
}

/// The columns of `storage --view timeline`. Shown times count from `origin_ns`.
fn timeline_table(origin_ns: i64) -> Table<StorageBin> {
    Table::new("ibscope storage --view timeline --format csv")
        .column(
            "time_ns",
            Timestamp,
            "start of the bin, a multiple of its width; bins without traffic are left out",
            |bin: &StorageBin| bin.time_ns,
        )
        .shown("time [s]", move |bin| seconds_since(origin_ns, bin.time_ns))
        .with(pair)
        .column(
            "to_client_bytes",
            Bytes,
            "payload from the server to the client on the wire in this bin: the data that are read, and completions",
            |bin| bin.to_client_bytes,
        )
        .shown("read", |bin| bytes(bin.to_client_bytes))
        .column(
            "to_server_bytes",
            Bytes,
            "payload from the client to the server on the wire in this bin: the data that are written, and commands",
            |bin| bin.to_server_bytes,
        )
        .shown("written", |bin| bytes(bin.to_server_bytes))
        .column(
            "commands",
            Count,
            "completed commands that began in this bin, without those whose time is unknown; empty if they were not measured, or if packets are truncated before the command",
            |bin| bin.times.as_ref().map(Histogram::samples),
        )
        .shown("commands", |bin| bin.times.as_ref().map_or_else(|| "?".to_owned(), |times| group(times.samples())))
        .column(
            "latency_median_ns",
            Nanoseconds,
            "half of these commands took less time until their completion, within 6.25 %; empty without commands",
            |bin| bin.times.as_ref().and_then(|times| quantile(times, 0.5)),
        )
        .shown("median", |bin| {
            let median = bin.times.as_ref().and_then(|times| quantile(times, 0.5));
            median.map_or_else(|| "-".to_owned(), |ns| time(ns as f64))
        })
        .column(
            "latency_max_ns",
            Nanoseconds,
            "the longest of these times, within 6.25 %",
            |bin| bin.times.as_ref().filter(|times| times.samples() > 0).map(Histogram::max),
        )
        .column(
            "job_bytes",
            Bytes,
            "payload of MPI and NCCL from and to the client's port in this bin; the same in the rows of all its servers",
            |bin| bin.job_bytes,
        )
        .shown("MPI, NCCL", |bin| bytes(bin.job_bytes))
}

/// The columns, for the column description.
pub(super) fn described_table() -> Table<StorageBin> {
    timeline_table(0)
}

/// The terminal table: one part per client and server, whose lines combine bins so that all fit on a
/// screen.
#[must_use]
pub fn timeline_text(storage: &Storage, timeline: &StorageTimeline) -> String {
    let Some((start_ns, end_ns)) = timeline.span_ns() else { return nothing(storage) };
    let mut pairs: BTreeMap<&StoragePair, BTreeMap<i128, StorageBin>> = BTreeMap::new();
    timeline.bins.iter().for_each(|bin| _ = pairs.entry(&bin.pair).or_default());
    let lines = (MAX_LINES / pairs.len() as i128).max(1);
    let (first_ns, bin_ns) = (i128::from(start_ns), i128::from(timeline.bin_ns));
    let bins = (i128::from(end_ns) - first_ns) / bin_ns;
    let line_ns = bin_ns * ((bins + lines - 1) / lines).max(1);
    for bin in &timeline.bins {
        let line = first_ns + (i128::from(bin.time_ns) - first_ns) / line_ns * line_ns;
        let of_pair = pairs.entry(&bin.pair).or_default();
        match of_pair.get_mut(&line) {
            Some(sum) => add(sum, bin),
            None => _ = of_pair.insert(line, StorageBin { time_ns: whole(line), ..bin.clone() }),
        }
    }
    let part = |(pair, lines): (&StoragePair, BTreeMap<i128, StorageBin>)| {
        let mut table = timeline_table(timeline.origin_ns);
        // Class, client and server are in the heading.
        table.shown.drain(1..4);
        let ports = format!("{}: client {}, server {}", pair.class.name(), pair.client.name(), pair.server.name());
        format!("\n{ports}\n{}\n", table.text(lines.into_values()))
    };
    let sampled = timeline.sampled.as_ref().map(|sampled| format!("{sampled}\n")).unwrap_or_default();
    let parts: String = pairs.into_iter().map(part).collect();
    format!(
        "storage over time, {} per line, the first from {};\npayload in each direction; time in s from the first packet\n{sampled}{parts}",
        duration(whole(line_ns)),
        utc(start_ns),
    )
}

fn whole(ns: i128) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

/// Adds a later bin of the same client and server.
fn add(sum: &mut StorageBin, bin: &StorageBin) {
    sum.to_client_bytes += bin.to_client_bytes;
    sum.to_server_bytes += bin.to_server_bytes;
    sum.job_bytes += bin.job_bytes;
    if let (Some(sum), Some(times)) = (&mut sum.times, &bin.times) {
        sum.merge(times);
    }
}

/// Writes one csv row per bin, client and server.
pub fn timeline_csv(timeline: &StorageTimeline, out: &mut dyn Write) -> io::Result<()> {
    timeline_table(timeline.origin_ns).csv(&timeline.bins, out)
}

/// The bin width and the csv rows in JSON.
#[must_use]
pub fn timeline_value(timeline: &StorageTimeline) -> Value {
    json!({ "bin_ns": timeline.bin_ns, "bins": timeline_table(timeline.origin_ns).objects(&timeline.bins) })
}
