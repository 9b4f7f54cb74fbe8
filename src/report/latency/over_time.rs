//! Times over time: quantiles per bin, and medians by the size of the messages and the rate at which they came.
//!
//! Kept over time are the times that end with an answer, [`Interval::is_answer`], by the moment at which they begin. Quantiles are those of all
//! samples of a bin, found in the sum of the connections' coarse buckets, and so within 6.25 % of the truth.

use super::{number, size, time};
use crate::model::profile::{ConnectionRow, LatencyBin};
use crate::model::{Histogram, Interval, Kind, Profile, TimingKey};
use crate::report::ReportError;
use crate::report::columns::columns;
use crate::report::csv::ends;
use crate::report::json;
use crate::report::units::{duration, group, seconds_since, utc};
use crate::report::who::{By, Label, Who};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// Coarse buckets and their counts.
type Counts = BTreeMap<u16, u64>;

/// Times in bins of time.
#[derive(Clone, Debug, PartialEq)]
pub struct OverTime {
    /// Width of a bin in nanoseconds.
    pub bin_ns: i64,
    /// The first packet of the captures, from which times are told, in nanoseconds since the epoch.
    pub origin_ns: i64,
    /// Bins without a sample are left out.
    pub bins: BTreeMap<BinKey, Histogram>,
}

/// What a histogram over time is of. Sorted by time last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BinKey {
    /// Name of the interval.
    pub interval: &'static str,
    /// Who asks; `None` for all pairs together.
    pub pair: Option<(Label, Label)>,
    /// Start of the bin in nanoseconds since the epoch, a multiple of the width.
    pub time_ns: i64,
}

/// Times by size of the messages and rate of their connection.
#[derive(Clone, Debug, PartialEq)]
pub struct Surface {
    /// Width of the bins in which rates are taken, in nanoseconds.
    pub bin_ns: i64,
    /// Cells without a sample are left out.
    pub cells: BTreeMap<CellKey, Histogram>,
}

/// What a histogram of a surface is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CellKey {
    /// Name of the interval.
    pub interval: &'static str,
    /// Who asks; `None` for all pairs together.
    pub pair: Option<(Label, Label)>,
    /// Smallest length of the size class in bytes.
    pub from_bytes: u64,
    /// Smallest rate of the class in messages per second: 0, 1, 2, 4 ...
    pub from_rate: u64,
}

/// The times of a profile that are wanted, over time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// Pairs of these are kept apart.
    pub by: Option<By>,
    /// Only this interval.
    pub interval: Option<&'static str>,
    /// Width of the bins in nanoseconds, instead of that of the profile.
    pub bin_ns: Option<i64>,
}

impl Wanted {
    /// The rows, with what they are of.
    fn rows<'a>(
        &'a self,
        profile: &'a Profile,
    ) -> Result<impl Iterator<Item = (&'a LatencyBin, (u32, TimingKey), &'a ConnectionRow)>, ReportError> {
        let is_kept = |name: &str| Interval::ALL.iter().any(|interval| interval.is_answer() && interval.name() == name);
        if let Some(name) = self.interval.filter(|name| !is_kept(name)) {
            return Err(ReportError::NotOverTime { interval: name });
        }
        let latencies: Vec<_> = profile.latencies.iter().map(|row| (row.connection, row.timing)).collect();
        let row = move |bin: &'a LatencyBin| {
            let (index, timing) = *latencies.get(bin.latency as usize)?;
            let connection = profile.connections.get(index as usize)?;
            let is_wanted = self.interval.is_none_or(|name| name == timing.interval.name());
            (is_wanted && connection.kind == Kind::Data).then_some((bin, (index, timing), connection))
        };
        Ok(profile.latency_timeline.iter().filter_map(row))
    }

    fn pair(&self, who: &Who<'_>, connection: &ConnectionRow) -> Option<(Label, Label)> {
        self.by.map(|_| (who.sender(connection), who.receiver(connection)))
    }
}

/// Times in bins of time.
pub fn over_time(profile: &Profile, wanted: &Wanted) -> Result<OverTime, ReportError> {
    let profile_ns = profile.latency_bin_ns;
    if profile_ns <= 0 {
        return Err(ReportError::NoTimes);
    }
    let bin_ns = wanted.bin_ns.unwrap_or(profile_ns);
    if bin_ns % profile_ns != 0 {
        return Err(ReportError::Bins { wanted_ns: bin_ns, profile_ns });
    }
    let who = Who::new(profile, wanted.by.unwrap_or(By::Endpoint));
    let mut counts: BTreeMap<BinKey, Counts> = BTreeMap::new();
    for (bin, (_, timing), connection) in wanted.rows(profile)? {
        let key = BinKey {
            interval: timing.interval.name(),
            pair: wanted.pair(&who, connection),
            time_ns: bin.time_ns.div_euclid(bin_ns).saturating_mul(bin_ns),
        };
        *counts.entry(key).or_default().entry(bin.bucket).or_default() += u64::from(bin.count);
    }
    let origin_ns = crate::report::origin_ns(profile, counts.keys().map(|key| key.time_ns).min());
    Ok(OverTime { bin_ns, origin_ns, bins: histograms(counts) })
}

/// Times by size and rate. The rate is that of the messages which the connection began to send in the bin, answered or not.
pub fn surface(profile: &Profile, wanted: &Wanted) -> Result<Surface, ReportError> {
    let (times_ns, traffic_ns) = (profile.latency_bin_ns, profile.bin_ns);
    if times_ns <= 0 || traffic_ns <= 0 {
        return Err(ReportError::NoTimes);
    }
    // Both began with the same width, and each was doubled for itself.
    let least_ns = times_ns.max(traffic_ns);
    let bin_ns = wanted.bin_ns.unwrap_or(least_ns);
    if bin_ns % times_ns != 0 || bin_ns % traffic_ns != 0 {
        return Err(ReportError::Bins { wanted_ns: bin_ns, profile_ns: least_ns });
    }
    let mut messages: BTreeMap<(u32, i64), u64> = BTreeMap::new();
    for row in &profile.timeline {
        *messages.entry((row.connection, row.time_ns.div_euclid(bin_ns))).or_default() += row.traffic.messages;
    }
    let who = Who::new(profile, wanted.by.unwrap_or(By::Endpoint));
    let mut counts: BTreeMap<CellKey, Counts> = BTreeMap::new();
    for (bin, (index, timing), connection) in wanted.rows(profile)? {
        let sent = messages.get(&(index, bin.time_ns.div_euclid(bin_ns))).copied().unwrap_or_default();
        let key = CellKey {
            interval: timing.interval.name(),
            pair: wanted.pair(&who, connection),
            from_bytes: timing.size.from_bytes(),
            from_rate: rate_class(sent, bin_ns),
        };
        *counts.entry(key).or_default().entry(bin.bucket).or_default() += u64::from(bin.count);
    }
    Ok(Surface { bin_ns, cells: histograms(counts) })
}

/// The smallest rate of the class of so many messages in a bin: rates from one power of two to the next, and all below 1 per second.
fn rate_class(messages: u64, bin_ns: i64) -> u64 {
    let per_second = u128::from(messages) * 1_000_000_000 / u128::from(bin_ns.unsigned_abs()).max(1);
    u64::try_from(per_second).unwrap_or(u64::MAX).checked_ilog2().map_or(0, |power| 1 << power)
}

fn histograms<K: Ord>(counts: BTreeMap<K, Counts>) -> BTreeMap<K, Histogram> {
    counts.into_iter().map(|(key, counts)| (key, Histogram::of_coarse(&counts))).collect()
}

/// Most lines of times over time for people.
const MAX_LINES: usize = 60;

/// Names and values, in the order of the csv.
fn values(times: &Histogram) -> [(&'static str, u64); 5] {
    let quantile = |share| times.quantile(share);
    [
        ("samples", times.samples()),
        ("p10_ns", quantile(0.1)),
        ("median_ns", quantile(0.5)),
        ("p90_ns", quantile(0.9)),
        ("p99_ns", quantile(0.99)),
    ]
}

/// Labels of both ends, for people.
fn names(pair: Option<&(Label, Label)>) -> Vec<String> {
    pair.map(|(src, dst)| vec![src.name(), dst.name()]).unwrap_or_default()
}

/// A table for people, of rows with the same first columns.
fn table<'a>(labels: &[&str], right: &[usize], rows: impl Iterator<Item = (Vec<String>, &'a Histogram)>) -> String {
    let header = [labels, &["samples", "p10", "median", "p90", "p99"]].concat();
    let mut table = columns(&header, right.iter().copied().chain(labels.len()..header.len()));
    for (mut row, times) in rows {
        let [(_, samples), quantiles @ ..] = values(times);
        row.push(group(samples));
        row.extend(quantiles.map(|(_, ns)| time(ns as f64)));
        table.add_row(row);
    }
    format!("{}\n", table.trim_fmt())
}

impl OverTime {
    /// A table for people, with so many bins together in a line that all fit on a screen; without rows, what is said of `nothing`.
    #[must_use]
    pub fn table(&self, nothing: &str) -> String {
        let times = || self.bins.keys().map(|key| i128::from(key.time_ns));
        let Some((first_ns, last_ns)) = times().min().zip(times().max()) else { return nothing.to_owned() };
        let has_pairs = self.bins.keys().any(|key| key.pair.is_some());
        let labels: &[&str] =
            if has_pairs { &["interval", "from", "to", "time [s]"] } else { &["interval", "time [s]"] };
        let of: BTreeSet<_> = self.bins.keys().map(|key| (key.interval, &key.pair)).collect();
        let lines = (MAX_LINES / of.len()).max(1) as i128;
        let bin_ns = i128::from(self.bin_ns);
        let width_ns = bin_ns * (((last_ns - first_ns) / bin_ns + lines) / lines);
        let mut sums: BTreeMap<(&str, &Pair, i128), Histogram> = BTreeMap::new();
        for (key, times) in &self.bins {
            let line_ns = first_ns + (i128::from(key.time_ns) - first_ns) / width_ns * width_ns;
            let sum = sums.entry((key.interval, &key.pair, line_ns));
            sum.and_modify(|sum| sum.merge(times)).or_insert_with(|| times.clone());
        }
        let whole = |ns: i128| i64::try_from(ns).unwrap_or(i64::MAX);
        let rows = sums.iter().map(|((interval, pair, line_ns), times)| {
            let mut row = vec![(*interval).to_owned()];
            row.extend(names(pair.as_ref()));
            row.push(seconds_since(self.origin_ns, whole(*line_ns)));
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
    pub fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        csv(
            "time_ns",
            self.bins.iter().map(|(key, times)| (key.interval, &key.pair, key.time_ns.to_string(), times)),
            out,
        )
    }

    /// One object with the rows of the csv.
    pub fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        let rows = self
            .bins
            .iter()
            .map(|(key, times)| row_json(key.interval, &key.pair, &[("time_ns", json!(key.time_ns))], times));
        let rows: Vec<_> = rows.collect();
        let document =
            json!({ "schema": "ibscope latency over time", "version": 1, "bin_ns": self.bin_ns, "bins": rows });
        writeln!(out, "{document:#}")
    }
}

impl Surface {
    /// A table for people; without rows, what is said of `nothing`.
    #[must_use]
    pub fn table(&self, nothing: &str) -> String {
        if self.cells.is_empty() {
            return nothing.to_owned();
        }
        let has_pairs = self.cells.keys().any(|key| key.pair.is_some());
        let labels: &[&str] = if has_pairs {
            &["interval", "from", "to", "size", "messages/s"]
        } else {
            &["interval", "size", "messages/s"]
        };
        let rows = self.cells.iter().map(|(key, times)| {
            let mut row = vec![key.interval.to_owned()];
            row.extend(names(key.pair.as_ref()));
            row.push(size(Some(key.from_bytes)));
            row.push(match key.from_rate {
                0 => "below 1".to_owned(),
                1 => "1".to_owned(),
                from => format!("{}-{}", group(from), group((from - 1).saturating_add(from))),
            });
            (row, times)
        });
        table(labels, &[labels.len() - 2, labels.len() - 1], rows)
    }

    /// `interval,src,dst,from_bytes,from_rate,samples,p10_ns,median_ns,p90_ns,p99_ns,job`.
    pub fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let place = |key: &CellKey| format!("{},{}", key.from_bytes, key.from_rate);
        csv(
            "from_bytes,from_rate",
            self.cells.iter().map(|(key, times)| (key.interval, &key.pair, place(key), times)),
            out,
        )
    }

    /// One object with the rows of the csv.
    pub fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        let rows = self.cells.iter().map(|(key, times)| {
            let place = [("from_bytes", json!(key.from_bytes)), ("from_rate", json!(key.from_rate))];
            row_json(key.interval, &key.pair, &place, times)
        });
        let rows: Vec<_> = rows.collect();
        let document =
            json!({ "schema": "ibscope latency surface", "version": 1, "bin_ns": self.bin_ns, "cells": rows });
        writeln!(out, "{document:#}")
    }
}

type Pair = Option<(Label, Label)>;

fn csv<'a>(
    place: &str,
    rows: impl Iterator<Item = (&'a str, &'a Pair, String, &'a Histogram)>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let names = values(&Histogram::default()).map(|(name, _)| name).join(",");
    writeln!(out, "interval,src,dst,{place},{names},job")?;
    for (interval, pair, place, times) in rows {
        let [src, dst, job] = ends(pair.as_ref());
        let values = values(times).map(|(_, value)| number(value as f64)).join(",");
        writeln!(out, "{interval},{src},{dst},{place},{values},{job}")?;
    }
    Ok(())
}

fn row_json(
    interval: &str,
    pair: &Pair,
    place: &[(&str, serde_json::Value)],
    times: &Histogram,
) -> serde_json::Map<String, serde_json::Value> {
    let mut row = serde_json::Map::new();
    row.insert("interval".to_owned(), json!(interval));
    row.extend(json::ends(pair.as_ref()).map(|(name, value)| (name.to_owned(), value)));
    row.extend(place.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    row.extend(values(times).map(|(name, value)| (name.to_owned(), json!(value))));
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_classed_by_powers_of_two() {
        // In bins of 10 ms: n messages are 100 n per second.
        let class = |messages| rate_class(messages, 10_000_000);
        assert_eq!([class(0), class(1), class(2), class(3), class(41)], [0, 64, 128, 256, 4096]);
        // One message in an hour, one per second.
        assert_eq!([rate_class(1, 3_600_000_000_000), rate_class(1, 1_000_000_000)], [0, 1]);
        assert_eq!(rate_class(u64::MAX, 1), 1 << 63);
    }
}
