//! Rates of a growing capture, from the sums at successive updates.
//!
//! In: the sums of the analysis so far, each with the time since the update before. Out: rates per
//! second for `top`-like views. Only the last `MAX_RATES` rates are kept.

use crate::model::live::LivePair;
use crate::model::profile::{RetransmissionSums, Traffic};
use crate::model::{LiveSums, PairEstimators, SampledConnection, SamplingPoints, SamplingWeight, SizeClass, SizeSums};
use ibscope_parsers::Endpoint;
use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Number of rates that are kept: the columns of the widest terminals.
const MAX_RATES: usize = 512;

/// The sums and rates of a growing capture.
#[derive(Clone, Debug, Default)]
pub struct LiveProgress {
    /// The sums of the last update.
    pub(crate) live: LiveSums,
    /// The end of the capture time that the rates cover so far, in nanoseconds since the epoch.
    reached_ns: Option<i64>,
    /// The time that the rates cover so far, in nanoseconds.
    watched_ns: i64,
    /// Bytes on the wire per second, one value per update, the newest last.
    pub(crate) rates: VecDeque<f64>,
    /// Packets per second in the last update.
    pub(crate) packets_per_s: f64,
    /// The highest rate so far, in bytes on the wire per second.
    pub(crate) peak: f64,
    /// Bytes on the wire per second of each pair in the last update.
    pairs: BTreeMap<(Endpoint, Endpoint), f64>,
    names: BTreeMap<Endpoint, String>,
    /// The sampling rate that the user gave.
    sampled: Option<u32>,
}

/// The rows of a live table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LiveRows {
    /// Pairs of endpoints.
    #[default]
    Pairs,
    /// Links: what each endpoint sent, and what it received.
    Links,
}

/// The order of the rows of a live table, the largest first. Rows with equal values have the order of
/// their bytes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LiveOrder {
    /// Bytes on the wire per second in the last update.
    #[default]
    Rate,
    /// Bytes on the wire.
    Wire,
    /// Packets.
    Packets,
    /// Retransmitted packets.
    Retransmitted,
}

impl LiveOrder {
    /// The order that follows, the first one after the last.
    #[must_use]
    pub const fn next(self) -> Self {
        match self {
            Self::Rate => Self::Wire,
            Self::Wire => Self::Packets,
            Self::Packets => Self::Retransmitted,
            Self::Retransmitted => Self::Rate,
        }
    }
}

/// The traffic of a row of a live table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LiveEnds {
    /// From the first endpoint to the second.
    Pair(Endpoint, Endpoint),
    /// All that the endpoint sent.
    Sent(Endpoint),
    /// All that the endpoint received.
    Received(Endpoint),
}

/// A row of a live table.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveRow {
    /// The traffic that it counts.
    pub ends: LiveEnds,
    /// Bytes on the wire per second since the update before.
    pub wire_bytes_per_s: f64,
    /// Sums since the start of the capture.
    pub traffic: Traffic,
    /// The retransmitted part of `traffic`.
    pub retransmissions: RetransmissionSums,
    /// For a sampled input, the estimators of the sums.
    pub estimators: Option<PairEstimators>,
}

impl LiveRow {
    fn add(&mut self, other: &Self) {
        self.wire_bytes_per_s += other.wire_bytes_per_s;
        self.traffic += other.traffic;
        self.retransmissions += other.retransmissions;
        if let (Some(own), Some(other)) = (&mut self.estimators, &other.estimators) {
            own.merge(other);
        }
    }

    /// Compares two rows: the one that comes first is less.
    fn compare(&self, other: &Self, order: LiveOrder) -> Ordering {
        let by_order = match order {
            LiveOrder::Rate => other.wire_bytes_per_s.total_cmp(&self.wire_bytes_per_s),
            LiveOrder::Wire => Ordering::Equal,
            LiveOrder::Packets => other.traffic.packets.cmp(&self.traffic.packets),
            LiveOrder::Retransmitted => other.retransmissions.packets().cmp(&self.retransmissions.packets()),
        };
        by_order.then(other.traffic.wire_bytes.cmp(&self.traffic.wire_bytes))
    }
}

impl LiveProgress {
    /// Starts without sums. `names` maps endpoints to the names that are shown; `sampled` is the
    /// sampling rate, if the user gives it.
    #[must_use]
    pub fn new(names: BTreeMap<Endpoint, String>, sampled: Option<u32>) -> Self {
        Self { names, sampled, ..Self::default() }
    }

    /// Takes the current sums, `passed` after the update before.
    ///
    /// Rates are per second of capture time if the file is read faster than it was captured (an
    /// existing file), otherwise per second of real time.
    pub fn update(&mut self, live: LiveSums, passed: Duration) {
        let (traffic, _) = live.total();
        let (before, _) = self.live.total();
        let passed_ns = i64::try_from(passed.as_nanos()).unwrap_or(i64::MAX);
        let last_ns = live.coverage.last_time_ns;
        let reached_ns = self.reached_ns.or(live.coverage.first_time_ns);
        let advanced_ns = last_ns.zip(reached_ns).map_or(0, |(last, reached)| last.saturating_sub(reached));
        let interval_ns = advanced_ns.max(passed_ns).max(1);
        self.reached_ns = match self.reached_ns {
            // The first update covers everything up to its last packet.
            None => last_ns,
            Some(reached_ns) => Some(reached_ns.saturating_add(interval_ns)),
        };
        self.watched_ns = self.watched_ns.saturating_add(interval_ns);
        // Sums may shrink: packets are detected as mirror copies later than they are counted.
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
        let of = |pair: &LivePair| {
            let before = known.get(&(pair.src, pair.dst)).copied().unwrap_or(0);
            ((pair.src, pair.dst), rate(pair.traffic.wire_bytes, before))
        };
        self.pairs = live.pairs.iter().map(of).collect();
        self.live = live;
    }

    /// The first `most` rows in an order, and the number of all rows.
    #[must_use]
    pub fn rows(&self, rows: LiveRows, order: LiveOrder, most: usize) -> (Vec<LiveRow>, usize) {
        let of = |pair: &LivePair, ends: LiveEnds| LiveRow {
            ends,
            wire_bytes_per_s: self.pair_rate(pair),
            traffic: pair.traffic,
            retransmissions: pair.retransmissions,
            estimators: self.estimators(pair),
        };
        let pairs = self.live.pairs.iter();
        let mut all: Vec<LiveRow> = match rows {
            LiveRows::Pairs => pairs.map(|pair| of(pair, LiveEnds::Pair(pair.src, pair.dst))).collect(),
            LiveRows::Links => {
                let mut links: BTreeMap<LiveEnds, LiveRow> = BTreeMap::new();
                for pair in pairs {
                    for ends in [LiveEnds::Sent(pair.src), LiveEnds::Received(pair.dst)] {
                        let own = of(pair, ends);
                        links.entry(ends).and_modify(|link| link.add(&own)).or_insert(own);
                    }
                }
                links.into_values().collect()
            }
        };
        all.sort_by(|row, other| row.compare(other, order));
        let count = all.len();
        all.truncate(most);
        (all, count)
    }

    /// The name of a row: `sender → receiver`, `endpoint sent` or `endpoint received`.
    pub(crate) fn row_name(&self, ends: LiveEnds) -> String {
        match ends {
            LiveEnds::Pair(src, dst) => format!("{} → {}", self.name(src), self.name(dst)),
            LiveEnds::Sent(endpoint) => format!("{} sent", self.name(endpoint)),
            LiveEnds::Received(endpoint) => format!("{} received", self.name(endpoint)),
        }
    }

    /// Bytes on the wire per second of a pair in the last update.
    fn pair_rate(&self, pair: &LivePair) -> f64 {
        self.pairs.get(&(pair.src, pair.dst)).copied().unwrap_or(0.0)
    }

    /// The name of an endpoint, or the endpoint itself.
    pub(crate) fn name(&self, endpoint: Endpoint) -> String {
        self.names.get(&endpoint).cloned().unwrap_or_else(|| endpoint.to_string())
    }

    /// The sampling rate so far: the one that the user gave, or the only one that the samples state,
    /// with the samples that were lost. `None` if the input is not sampled, or at several rates.
    pub(crate) fn one_in(&self) -> Option<f64> {
        let coverage = &self.live.coverage;
        let stated = || coverage.stated_one_in().filter(|one_in| *one_in > 1);
        self.sampled.map(f64::from).or_else(|| stated().map(|one_in| coverage.with_lost_samples(one_in)))
    }

    /// The estimators of a pair. How many points sample its packets is decided at the end, so the
    /// intervals cover all cases.
    fn estimators(&self, pair: &LivePair) -> Option<PairEstimators> {
        let most = self.live.coverage.sample_sources.most_points().max(2);
        let weight = Some(SamplingWeight { one_in: self.one_in()?, points: SamplingPoints::up_to(most) });
        let quality = self.live.quality;
        Some(PairEstimators::of(&SampledConnection { sums: pair.sampled, weight, quality }))
    }

    /// The estimators of all pairs.
    pub(crate) fn total_estimators(&self) -> Option<PairEstimators> {
        self.live.pairs.iter().filter_map(|pair| self.estimators(pair)).reduce(|mut all, own| {
            all.merge(&own);
            all
        })
    }

    /// Transport messages by size class, all verbs together.
    pub(crate) fn sizes(&self) -> BTreeMap<SizeClass, SizeSums> {
        let mut classes: BTreeMap<SizeClass, SizeSums> = BTreeMap::new();
        for ((of, class), sums) in &self.live.sizes {
            if of.distribution() == "messages" {
                classes.entry(*class).and_modify(|all| *all += *sums).or_insert(*sums);
            }
        }
        classes
    }

    /// Time from the first to the last packet of the capture, in nanoseconds.
    pub(crate) fn span_ns(&self) -> u64 {
        let coverage = &self.live.coverage;
        let ends = coverage.first_time_ns.zip(coverage.last_time_ns);
        ends.map_or(0, |(first, last)| last.saturating_sub(first).unsigned_abs())
    }

    /// Bytes on the wire per second in the last update.
    pub(crate) fn rate(&self) -> f64 {
        self.rates.back().copied().unwrap_or(0.0)
    }

    /// Bytes on the wire per second over all updates.
    pub(crate) fn mean(&self) -> f64 {
        let (traffic, _) = self.live.total();
        traffic.wire_bytes as f64 * 1e9 / self.watched_ns.max(1) as f64
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::model::sampling::SampledSums;

    const SECOND: Duration = Duration::from_secs(1);

    /// Sums of two pairs of endpoints, up to `last_ns` of the capture.
    pub(crate) fn live(last_ns: i64, [first, second]: [u64; 2]) -> LiveSums {
        let pair = |src: &str, dst: &str, wire_bytes: u64| LivePair {
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
            traffic: Traffic { packets: wire_bytes / 100, wire_bytes, ..Traffic::default() },
            retransmissions: RetransmissionSums::default(),
            sampled: SampledSums::default(),
        };
        let mut live =
            LiveSums { pairs: vec![pair("17", "18", first), pair("18", "17", second)], ..LiveSums::default() };
        live.coverage.first_time_ns = Some(0);
        live.coverage.last_time_ns = Some(last_ns);
        live.coverage.records = (first + second) / 100;
        live
    }

    fn assert_close(found: f64, expected: f64) {
        assert!((found - expected).abs() <= expected * 1e-12, "{found}, not {expected}");
    }

    #[test]
    fn rates_are_per_second_of_capture_time_or_of_real_time() {
        let mut progress = LiveProgress::default();
        // Ten seconds of a file, read in one update.
        progress.update(live(10_000_000_000, [1_000_000, 0]), SECOND);
        assert_close(progress.rate(), 100_000.0);
        // The file grows as it is captured: 1.1 s of capture time arrive within 1 s, so the rate is
        // per 1.1 s.
        progress.update(live(11_100_000_000, [1_110_000, 0]), SECOND);
        assert_close(progress.rate(), 100_000.0);
        // Two updates without packets, then the packets of the last second.
        progress.update(live(11_100_000_000, [1_110_000, 0]), SECOND);
        progress.update(live(11_100_000_000, [1_110_000, 0]), SECOND);
        assert_close(progress.rate(), 0.0);
        progress.update(live(14_000_000_000, [1_110_000, 50_000]), SECOND);
        assert_eq!((progress.rate(), progress.packets_per_s, progress.peak), (50_000.0, 500.0, 100_000.0));
        // 10 s, 1.1 s, two updates without packets and one with some.
        assert_close(progress.mean(), 1_160_000.0 / 14.1);
        let names = names(&progress, LiveRows::Pairs, LiveOrder::Rate);
        assert_eq!(names, ["18 → 17", "17 → 18"], "by the rate now, not by the sum");
    }

    fn names(progress: &LiveProgress, rows: LiveRows, order: LiveOrder) -> Vec<String> {
        let (rows, count) = progress.rows(rows, order, usize::MAX);
        assert_eq!(rows.len(), count);
        rows.into_iter().map(|row| progress.row_name(row.ends)).collect()
    }

    #[test]
    fn rows_have_the_chosen_order() {
        let mut progress = LiveProgress::default();
        let mut sums = live(1_000_000_000, [3_000, 2_000]);
        progress.update(sums.clone(), SECOND);
        (sums.pairs[0].traffic.wire_bytes, sums.pairs[1].traffic.wire_bytes) = (3_100, 2_900);
        (sums.pairs[0].traffic.packets, sums.pairs[1].traffic.packets) = (5, 50);
        sums.pairs[0].retransmissions.request_packets = 2;
        progress.update(sums, SECOND);
        let mut order = LiveOrder::default();
        for expected in ["18 → 17", "17 → 18", "18 → 17", "17 → 18"] {
            assert_eq!(names(&progress, LiveRows::Pairs, order)[0], expected, "{order:?}");
            order = order.next();
        }
        assert_eq!(order, LiveOrder::default());
        assert_eq!(progress.rows(LiveRows::Pairs, order, 1).1, 2);
    }

    /// Three pairs of three endpoints: each link has the sums of its pairs.
    #[test]
    fn links_are_sums_of_pairs() {
        let mut sums = live(1_000_000_000, [3_000, 2_000]);
        sums.pairs.push(LivePair { dst: "19".parse().unwrap(), ..sums.pairs[0] });
        let mut progress = LiveProgress::new(BTreeMap::from([("17".parse().unwrap(), "node1".to_owned())]), None);
        progress.update(sums, SECOND);
        let (links, count) = progress.rows(LiveRows::Links, LiveOrder::Wire, 2);
        assert_eq!(count, 5, "17 and 18 in both directions, 19 received");
        assert_eq!(
            (&*progress.row_name(links[0].ends), links[0].traffic.wire_bytes, links[0].traffic.packets),
            ("node1 sent", 6_000, 60)
        );
        assert_close(links[0].wire_bytes_per_s, 6_000.0);
        assert_eq!(links[1].traffic.wire_bytes, 3_000);
    }
}
