//! Quantiles of times per bin as terminal table, csv and JSON.

use super::quantiles::{self, HasTimes, quantiles};
use crate::analysis::Label;
use crate::analysis::latency::{BinKey, LatencySeries};
use crate::model::Histogram;
use crate::model::column::ColumnUnit::Timestamp;
use crate::render::table::groups::{self, HasPair};
use crate::render::table::{Table, write_document};
use crate::render::units::{duration, seconds_since, utc};
use serde_json::json;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// Maximum number of lines of the terminal table.
const MAX_LINES: usize = 60;

/// Sender and receiver; `None` where all pairs are combined.
type Pair = Option<(Label, Label)>;

/// The times of one bin.
pub(in crate::render) struct TimeSeriesRow<'a> {
    interval: &'static str,
    pair: &'a Pair,
    time_ns: i64,
    /// Time of the first packet; the terminal table shows times relative to it.
    origin_ns: i64,
    times: Cow<'a, Histogram>,
}

impl HasPair for TimeSeriesRow<'_> {
    fn pair(&self) -> Option<(&Label, &Label)> {
        self.pair.as_ref().map(|(src, dst)| (src, dst))
    }
}

impl HasTimes for TimeSeriesRow<'_> {
    fn times(&self) -> &Histogram {
        &self.times
    }
}

/// The columns of `latency --view timeline`.
pub(in crate::render) fn columns_of_time_series<'a>(has_pairs: bool) -> Table<TimeSeriesRow<'a>> {
    Table::new("ibscope latency --view timeline --format csv")
        .name("interval", groups::INTERVAL, |row: &TimeSeriesRow<'_>| Some(row.interval))
        .headed("interval")
        .with(groups::shown_pair(has_pairs))
        .column("time_ns", Timestamp, "start of the bin in which the requests were sent", |row| row.time_ns)
        .shown("time [s]", |row| seconds_since(row.origin_ns, row.time_ns))
        .with(quantiles)
        .with(groups::job)
}

fn rows(series: &LatencySeries) -> impl Iterator<Item = TimeSeriesRow<'_>> {
    series.bins.iter().map(|(key, times)| {
        let BinKey { interval, pair, time_ns } = key;
        let origin_ns = series.origin_ns;
        TimeSeriesRow { interval, pair, time_ns: *time_ns, origin_ns, times: Cow::Borrowed(times) }
    })
}

/// The terminal table, which combines bins so that all lines fit on a screen; `nothing` if there
/// are no rows. If the table is wider than `width` columns, it leaves out columns as
/// [`surface_table`](super::surface_table) does.
#[must_use]
pub fn time_series_table(series: &LatencySeries, nothing: &str, width: Option<usize>) -> String {
    let times = || series.bins.keys().map(|key| i128::from(key.time_ns));
    let Some((first_ns, last_ns)) = times().min().zip(times().max()) else { return nothing.to_owned() };
    let has_pairs = series.bins.keys().any(|key| key.pair.is_some());
    let of: BTreeSet<_> = series.bins.keys().map(|key| (key.interval, &key.pair)).collect();
    let lines = (MAX_LINES / of.len()).max(1) as i128;
    let bin_ns = i128::from(series.bin_ns);
    let width_ns = bin_ns * (((last_ns - first_ns) / bin_ns + lines) / lines);
    let mut sums: BTreeMap<(&'static str, &Pair, i128), Histogram> = BTreeMap::new();
    for (key, times) in &series.bins {
        let line_ns = first_ns + (i128::from(key.time_ns) - first_ns) / width_ns * width_ns;
        let sum = sums.entry((key.interval, &key.pair, line_ns));
        sum.and_modify(|sum| sum.merge(times)).or_insert_with(|| times.clone());
    }
    let whole = |ns: i128| i64::try_from(ns).unwrap_or(i64::MAX);
    let rows = sums.into_iter().map(|((interval, pair, line_ns), times)| TimeSeriesRow {
        interval,
        pair,
        time_ns: whole(line_ns),
        origin_ns: series.origin_ns,
        times: Cow::Owned(times),
    });
    format!(
        "quantiles per {} from {}; time in s from the first packet\n{}\n",
        duration(whole(width_ns)),
        utc(whole(first_ns)),
        columns_of_time_series(has_pairs).text_within(&rows.collect::<Vec<_>>(), width, &quantiles::LEFT_OUT)
    )
}

/// Writes one csv row per bin with times.
pub fn time_series_csv(series: &LatencySeries, out: &mut dyn Write) -> io::Result<()> {
    columns_of_time_series(true).csv(rows(series), out)
}

/// Writes one JSON object with the csv rows.
pub fn time_series_json(series: &LatencySeries, out: &mut dyn Write) -> io::Result<()> {
    let bins = columns_of_time_series(true).objects(rows(series));
    write_document(out, "ibscope latency over time", 2, json!({ "bin_ns": series.bin_ns, "bins": bins }))
}
