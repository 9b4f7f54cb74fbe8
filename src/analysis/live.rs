//! A capture while it grows: from the sums at two moments to rates.

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
    pub(crate) live: Live,
    /// The moment of the capture up to which rates are told, nanoseconds since the epoch.
    reached_ns: Option<i64>,
    /// Time that the rates so far cover.
    watched_ns: i64,
    /// Bytes on the wire per second, by look, the last one at the end.
    pub(crate) rates: VecDeque<f64>,
    /// The last rate of packets per second.
    pub(crate) packets_per_s: f64,
    /// The highest rate of bytes on the wire per second.
    pub(crate) peak: f64,
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
    pub(crate) fn sizes(&self) -> BTreeMap<SizeClass, SizeSums> {
        let mut classes: BTreeMap<SizeClass, SizeSums> = BTreeMap::new();
        for ((of, class), sums) in &self.live.sizes {
            if of.distribution() == "messages" {
                classes.entry(*class).and_modify(|all| *all += *sums).or_insert(*sums);
            }
        }
        classes
    }

    /// Time of the capture from its first packet to its last, in nanoseconds.
    pub(crate) fn span_ns(&self) -> u64 {
        let coverage = &self.live.coverage;
        let ends = coverage.first_time_ns.zip(coverage.last_time_ns);
        ends.map_or(0, |(first, last)| last.saturating_sub(first).unsigned_abs())
    }

    /// Bytes on the wire per second, since the look before.
    pub(crate) fn rate(&self) -> f64 {
        self.rates.back().copied().unwrap_or(0.0)
    }

    /// Bytes on the wire per second, over all looks.
    pub(crate) fn mean(&self) -> f64 {
        let (traffic, _) = self.live.total();
        traffic.wire_bytes as f64 * 1e9 / self.watched_ns.max(1) as f64
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::model::live::LivePair;

    const SECOND: Duration = Duration::from_secs(1);

    /// Sums of two pairs of endpoints, up to a moment of the capture.
    pub(crate) fn live(last_ns: i64, [first, second]: [u64; 2]) -> Live {
        let pair = |src: &str, dst: &str, wire_bytes: u64| LivePair {
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
            traffic: Traffic { packets: wire_bytes / 100, wire_bytes, ..Traffic::default() },
            repeats: Repeats::default(),
        };
        let mut live = Live { pairs: vec![pair("17", "18", first), pair("18", "17", second)], ..Live::default() };
        live.coverage.first_time_ns = Some(0);
        live.coverage.last_time_ns = Some(last_ns);
        live.coverage.records = (first + second) / 100;
        live
    }

    fn assert_close(found: f64, expected: f64) {
        assert!((found - expected).abs() <= expected * 1e-12, "{found}, not {expected}");
    }

    #[test]
    fn rates_are_those_of_the_capture_or_of_its_growth() {
        let mut progress = Progress::default();
        // Ten seconds of a file, read in one.
        progress.look(live(10_000_000_000, [1_000_000, 0]), SECOND);
        assert_close(progress.rate(), 100_000.0);
        // It goes on, and comes as it is made: 1.1 s of it within 1 s are no faster than 1.1 s allow.
        progress.look(live(11_100_000_000, [1_110_000, 0]), SECOND);
        assert_close(progress.rate(), 100_000.0);
        // Nothing comes for two looks, and then what was sent within the last second.
        progress.look(live(11_100_000_000, [1_110_000, 0]), SECOND);
        progress.look(live(11_100_000_000, [1_110_000, 0]), SECOND);
        assert_close(progress.rate(), 0.0);
        progress.look(live(14_000_000_000, [1_110_000, 50_000]), SECOND);
        assert_eq!((progress.rate(), progress.packets_per_s, progress.peak), (50_000.0, 500.0, 100_000.0));
        // 10 s, 1.1 s, two looks without packets and one with some.
        assert_close(progress.mean(), 1_160_000.0 / 14.1);
        let busiest: Vec<String> = progress.busiest(5).into_iter().map(|row| row.pair).collect();
        assert_eq!(busiest, ["18 → 17", "17 → 18"], "by the rate now, not by the sum");
    }
}
