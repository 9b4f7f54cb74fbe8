//! A capture while it grows: from the sums at two moments to rates, as a line of text or as a screen.

mod line;
mod screen;

pub use line::{header, line};
pub use screen::draw;

use crate::model::profile::{Repeats, Traffic};
use crate::model::{Live, SizeClass, SizeSums};
use ibscope_parsers::Endpoint;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Rates that are remembered: as many as the widest terminals have columns.
const MAX_RATES: usize = 512;

/// What is known of a capture that grows.
#[derive(Debug, Default)]
pub struct Progress {
    /// The last sums.
    live: Live,
    /// The moment of the capture up to which rates are told, nanoseconds since the epoch.
    reached_ns: Option<i64>,
    /// Time that the rates so far cover.
    watched_ns: i64,
    /// Bytes on the wire per second, by look, the last one at the end.
    rates: VecDeque<f64>,
    /// The last rate of packets per second.
    packets_per_s: f64,
    /// The highest rate of bytes on the wire per second.
    peak: f64,
    /// Bytes on the wire per second of each pair since the look before.
    pairs: BTreeMap<(Endpoint, Endpoint), f64>,
    names: BTreeMap<Endpoint, String>,
}

/// One pair of endpoints, as it is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// `sender → receiver`, by name where there is one.
    pub pair: String,
    /// Bytes on the wire per second since the look before.
    pub wire_bytes_per_s: f64,
    /// Sums so far.
    pub traffic: Traffic,
    /// What of them was sent again.
    pub repeats: Repeats,
}

impl Progress {
    /// Nothing yet. Endpoints are shown by these names.
    #[must_use]
    pub fn new(names: BTreeMap<Endpoint, String>) -> Self {
        Self { names, ..Self::default() }
    }

    /// Takes the sums as they are now, `passed` after those before.
    ///
    /// Rates are those of the capture where it is read faster than it was made (a file that was there already), and else those of its growth.
    pub fn look(&mut self, live: Live, passed: Duration) {
        let (traffic, _) = live.total();
        let (before, _) = self.live.total();
        let passed_ns = i64::try_from(passed.as_nanos()).unwrap_or(i64::MAX);
        let last_ns = live.coverage.last_time_ns;
        let reached_ns = self.reached_ns.or(live.coverage.first_time_ns);
        let advanced_ns = last_ns.zip(reached_ns).map_or(0, |(last, reached)| last.saturating_sub(reached));
        let interval_ns = advanced_ns.max(passed_ns).max(1);
        self.reached_ns = match self.reached_ns {
            // Before the first look nothing was followed.
            None => last_ns,
            Some(reached_ns) => Some(reached_ns.saturating_add(interval_ns)),
        };
        self.watched_ns = self.watched_ns.saturating_add(interval_ns);
        // Copies may be told from repeats only now: then there is less than before.
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 * 1e9 / interval_ns as f64;
        let wire = rate(traffic.wire_bytes, before.wire_bytes);
        self.packets_per_s = rate(traffic.packets, before.packets);
        self.peak = self.peak.max(wire);
        if self.rates.len() == MAX_RATES {
            self.rates.pop_front();
        }
        self.rates.push_back(wire);
        let known: BTreeMap<_, _> =
            self.live.pairs.iter().map(|pair| ((pair.src, pair.dst), pair.traffic.wire_bytes)).collect();
        let of = |pair: &crate::model::live::LivePair| {
            let before = known.get(&(pair.src, pair.dst)).copied().unwrap_or(0);
            ((pair.src, pair.dst), rate(pair.traffic.wire_bytes, before))
        };
        self.pairs = live.pairs.iter().map(of).collect();
        self.live = live;
    }

    /// The busiest pairs: by their rate now, then by their sums.
    #[must_use]
    pub fn busiest(&self, most: usize) -> Vec<Row> {
        let mut rows: Vec<(f64, &crate::model::live::LivePair)> = self
            .live
            .pairs
            .iter()
            .map(|pair| (self.pairs.get(&(pair.src, pair.dst)).copied().unwrap_or(0.0), pair))
            .collect();
        rows.sort_by(|(rate, pair), (other_rate, other)| {
            other_rate.total_cmp(rate).then(other.traffic.wire_bytes.cmp(&pair.traffic.wire_bytes))
        });
        rows.truncate(most);
        let name = |endpoint: &Endpoint| self.names.get(endpoint).cloned().unwrap_or_else(|| endpoint.to_string());
        let row = |(rate, pair): (f64, &crate::model::live::LivePair)| Row {
            pair: format!("{} → {}", name(&pair.src), name(&pair.dst)),
            wire_bytes_per_s: rate,
            traffic: pair.traffic,
            repeats: pair.repeats,
        };
        rows.into_iter().map(row).collect()
    }

    /// Messages of the transport by size, all verbs together.
    fn sizes(&self) -> BTreeMap<SizeClass, SizeSums> {
        let mut classes: BTreeMap<SizeClass, SizeSums> = BTreeMap::new();
        for ((of, class), sums) in &self.live.sizes {
            if of.distribution() == "messages" {
                classes.entry(*class).and_modify(|all| *all += *sums).or_insert(*sums);
            }
        }
        classes
    }

    /// Time of the capture from its first packet to its last, in nanoseconds.
    fn span_ns(&self) -> u64 {
        let coverage = &self.live.coverage;
        let ends = coverage.first_time_ns.zip(coverage.last_time_ns);
        ends.map_or(0, |(first, last)| last.saturating_sub(first).unsigned_abs())
    }

    /// Bytes on the wire per second, since the look before.
    fn rate(&self) -> f64 {
        self.rates.back().copied().unwrap_or(0.0)
    }

    /// Bytes on the wire per second, over all looks.
    fn mean(&self) -> f64 {
        let (traffic, _) = self.live.total();
        traffic.wire_bytes as f64 * 1e9 / self.watched_ns.max(1) as f64
    }
}

/// A share in percent: what is there is never shown as nothing, what is not all never as all.
fn percent(part: u64, all: u64) -> String {
    if part == 0 || all == 0 {
        return "0 %".to_owned();
    }
    if part >= all {
        return "100 %".to_owned();
    }
    format!("{:.2} %", (part as f64 * 100.0 / all as f64).clamp(0.01, 99.99))
}

#[cfg(test)]
mod tests;
