//! The buckets of the histograms: how often each time was measured.

use super::labels::{ends, has_pairs};
use crate::analysis::Label;
use crate::analysis::latency::LatencyKey;
use crate::model::Histogram;
use crate::model::column::ColumnUnit::{Count, Nanoseconds};
use crate::render::table::Table;
use crate::render::table::groups::{self, HasKey, HasPair};
use crate::render::units::{group, time};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Maximum number of rows of the terminal table; csv has all.
const MAX_ROWS: usize = 200;

/// A bucket that is not empty.
pub(in crate::render) struct BucketRow<'a> {
    key: &'a LatencyKey,
    ns: u64,
    count: u64,
    /// Percentage of the times in this bucket and below.
    up_to_percent: f64,
}

impl HasPair for BucketRow<'_> {
    fn pair(&self) -> Option<(&Label, &Label)> {
        ends(self.key)
    }
}

impl HasKey for BucketRow<'_> {
    fn key(&self) -> &LatencyKey {
        self.key
    }
}

/// The columns of `latency --view buckets`.
pub(in crate::render) fn buckets_table<'a>(has_pairs: bool) -> Table<BucketRow<'a>> {
    Table::new("ibscope latency --view buckets --format csv")
        .with(groups::key(has_pairs))
        .column("ns", Nanoseconds, "the middle of the bucket", |row: &BucketRow<'_>| row.ns)
        .shown("time", |row| time(row.ns as f64))
        .column("count", Count, "times in the bucket", |row| row.count)
        .shown("samples", |row| group(row.count))
        .with(groups::job)
}

fn rows(latencies: &BTreeMap<LatencyKey, Histogram>) -> impl Iterator<Item = BucketRow<'_>> {
    latencies.iter().flat_map(|(key, times)| {
        let all = times.samples().max(1) as f64;
        times.values().scan(0, move |up_to, (ns, count)| {
            *up_to += count;
            Some(BucketRow { key, ns, count, up_to_percent: *up_to as f64 * 100.0 / all })
        })
    })
}

/// Writes one csv row per bucket that is not empty.
pub fn bucket_csv(latencies: &BTreeMap<LatencyKey, Histogram>, out: &mut dyn Write) -> io::Result<()> {
    buckets_table(true).csv(rows(latencies), out)
}

/// The terminal table of the buckets, with cumulative percentages; `nothing` if there are no rows.
#[must_use]
pub fn bucket_table(latencies: &BTreeMap<LatencyKey, Histogram>, nothing: &str) -> String {
    if latencies.is_empty() {
        return nothing.to_owned();
    }
    let table = buckets_table(has_pairs(latencies));
    let text = table
        .shown("cumulative", |row: &BucketRow<'_>| format!("{:.1} %", row.up_to_percent))
        .text(rows(latencies).take(MAX_ROWS));
    let count = latencies.values().map(|times| times.values().count()).sum::<usize>();
    let more = match count.saturating_sub(MAX_ROWS) {
        0 => String::new(),
        more => format!("... and {} more; --format csv or json lists all\n", group(more as u64)),
    };
    format!("{text}\n{more}")
}
