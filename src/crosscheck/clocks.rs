//! Fits the clock of each rank in the trace to the clock of the capture, and measures the time from
//! the send call to the wire.
//!
//! In: message times of the trace and of the wire. Out: [`Clocks`]. A message is on the wire after
//! its send call begins and before its receive completes. So the sends of a rank bound the offset
//! of its clock from above, its receives bound it from below, and the clock is the line between the
//! two clouds of points ([`Clouds`]). Messages are matched by their position among all messages
//! with the same sender, receiver and tag, whose order MPI preserves.

use super::contexts::Contexts;
use super::single_messages::JobMessages;
use super::trace::{AppTrace, TraceMessages};
use super::wire::WireMessages;
use crate::model::histogram;
use crate::model::line::{Clouds, Line};
use serde::Serialize;
use std::collections::BTreeMap;

/// Largest drift that is considered: the timer resolution that Score-P measures in short runs may
/// be off by 0.1 %.
const MAX_SLOPE: f64 = 3e-3;

/// The clocks of a trace, relative to the capture.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Clocks {
    /// Clocks by rank.
    pub ranks: Vec<RankClock>,
    /// Time from the send call to the wire; `None` if no message was matched.
    pub send_to_wire: Option<Delays>,
    /// True if every message of each stream was matched, not only its first and last.
    pub all_messages_matched: bool,
}

/// The clock of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RankClock {
    /// World rank.
    pub rank: u32,
    /// Capture time at time 0 of the trace, in nanoseconds since the epoch.
    pub offset_ns: i64,
    /// Drift: how much faster the capture's clock runs than the trace's, in ppm.
    pub drift_ppm: f64,
    /// Uncertainty of the offset in nanoseconds; `None` if the rank only sends or only receives.
    pub uncertainty_ns: Option<u64>,
    /// True if the bounds contradict each other, so the clock does not run evenly.
    pub is_uneven: bool,
    /// Number of sent messages, which bound the clock from above.
    pub sent: u64,
    /// Number of received messages, which bound the clock from below.
    pub received: u64,
}

impl RankClock {
    /// The capture time that corresponds to a trace time.
    pub(super) fn capture_ns(&self, trace_ns: i64) -> i64 {
        self.offset_ns.saturating_add(trace_ns).saturating_add((trace_ns as f64 * self.drift_ppm / 1e6).round() as i64)
    }
}

/// A distribution of times, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Delays {
    /// Number of messages.
    pub count: u64,
    /// The shortest time; negative if the clock uncertainty exceeds it.
    pub min_ns: i64,
    /// The median.
    pub median_ns: i64,
    /// The 90th percentile.
    pub p90_ns: i64,
    /// The 99th percentile.
    pub p99_ns: i64,
    /// The longest time.
    pub max_ns: i64,
    /// The non-empty histogram classes: lower bound, exclusive upper bound, number of messages.
    /// Each power of two has eight classes.
    pub buckets: Vec<(i64, i64, u64)>,
}

impl Delays {
    fn of(mut times: Vec<i64>) -> Option<Self> {
        times.sort_unstable();
        let at = |percent: usize| times.get((times.len() * percent / 100).min(times.len() - 1)).copied();
        let (min_ns, max_ns) = (*times.first()?, *times.last()?);
        let [median_ns, p90_ns, p99_ns] = [at(50)?, at(90)?, at(99)?];
        let mut buckets: Vec<(i64, i64, u64)> = Vec::new();
        for &ns in &times {
            // The times are sorted, so equal classes follow each other.
            if let Some((.., count)) = buckets.last_mut().filter(|(_, to_ns, _)| ns < *to_ns) {
                *count += 1;
            } else {
                let (from_ns, to_ns) = class(ns);
                buckets.push((from_ns, to_ns, 1));
            }
        }
        Some(Self { count: times.len() as u64, min_ns, median_ns, p90_ns, p99_ns, max_ns, buckets })
    }
}

/// The histogram class of a time: lower bound and exclusive upper bound. Negative times mirror the
/// classes of positive times.
fn class(ns: i64) -> (i64, i64) {
    let (from_ns, to_ns) = histogram::coarse_range(histogram::coarse_bucket(ns.unsigned_abs()));
    let [from_ns, to_ns] = [from_ns, to_ns].map(|ns| i64::try_from(ns).unwrap_or(i64::MAX));
    if ns < 0 { (1 - to_ns, 1 - from_ns) } else { (from_ns, to_ns) }
}

/// The messages of a stream that are missing on the wire if it has fewer than the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MissingEnd {
    /// The last ones: the capture ended early.
    Last,
    /// The first ones: the capture began late.
    First,
}

/// Time in the trace and time on the wire.
pub(super) type TimePair = (i64, i64);

/// Matched messages of a rank.
#[derive(Clone, Debug, Default)]
pub(super) struct MatchedTimes {
    pub(super) sent: Vec<TimePair>,
    pub(super) received: Vec<TimePair>,
}

/// Fits the clocks of all ranks. `singles` contains the time of each message on the wire if
/// captures were read. Otherwise only the times of the first and the last message of each stream
/// are known.
pub(super) fn fit(trace: &AppTrace, wire: &WireMessages, singles: JobMessages<'_>, contexts: &Contexts) -> Clocks {
    let (mut matched, mut whole) = matches(trace, wire, singles, contexts, None);
    let is_known = |matched: &BTreeMap<u32, MatchedTimes>| {
        !matched.is_empty() && matched.values().all(|rank| !rank.sent.is_empty() && !rank.received.is_empty())
    };
    if !is_known(&matched) {
        // No rank has complete streams in both directions, so the capture began late or ended
        // early. Use whichever assumption fits better.
        let ways = [MissingEnd::Last, MissingEnd::First].map(|missing_end| {
            let (matched, whole) = matches(trace, wire, singles, contexts, Some(missing_end));
            let contradiction: f64 = matched.values().filter_map(|rank| Some(rank.line()?.1.margin.min(0.0))).sum();
            (contradiction, matched, whole)
        });
        let best = ways.into_iter().reduce(|last, first| if first.0 > last.0 { first } else { last });
        if let Some((_, best, best_whole)) = best {
            (matched, whole) = (best, best_whole);
        }
    }
    let mut clocks = Clocks { all_messages_matched: whole, ..Clocks::default() };
    let mut delays = Vec::new();
    for (rank, matched) in &matched {
        let Some(clock) = matched.clock(*rank) else { continue };
        delays.extend(matched.sent.iter().map(|(trace_ns, wire_ns)| wire_ns - clock.capture_ns(*trace_ns)));
        clocks.ranks.push(clock);
    }
    clocks.send_to_wire = Delays::of(delays);
    clocks
}

/// Messages from one rank to another with one tag, in all communicators, because eztrace mislabels
/// communicators.
#[derive(Clone, Debug, Default)]
struct TagStream {
    messages: u64,
    times_ns: Option<(i64, i64)>,
    /// Times of all messages, sorted; `None` if they were not kept.
    moments: Option<Vec<i64>>,
    /// Number of communicators or contexts.
    over: usize,
}

impl TagStream {
    fn add(&mut self, messages: u64, times_ns: Option<(i64, i64)>, moments: Option<&[i64]>) {
        self.messages = self.messages.saturating_add(messages);
        self.times_ns = match (self.times_ns, times_ns) {
            (Some(own), Some(others)) => Some((own.0.min(others.0), own.1.max(others.1))),
            (own, others) => own.or(others),
        };
        let complete = moments.filter(|moments| moments.len() as u64 == messages);
        self.moments = match (self.over, &mut self.moments, complete) {
            (0, _, complete) => complete.map(<[i64]>::to_vec),
            (_, Some(own), Some(others)) => {
                own.extend_from_slice(others);
                own.sort_unstable();
                return self.over += 1;
            }
            _ => None,
        };
        self.over += 1;
    }

    /// The time of the message at index `place`. Without single times, only the first and the last
    /// message have one.
    fn time_ns(&self, place: u64) -> Option<i64> {
        match (&self.moments, self.times_ns) {
            (Some(moments), _) => moments.get(usize::try_from(place).ok()?).copied(),
            (None, Some((first_ns, _))) if place == 0 => Some(first_ns),
            (None, Some((_, last_ns))) if place + 1 == self.messages => Some(last_ns),
            _ => None,
        }
    }
}

type TagStreams = BTreeMap<(u32, u32, i32), TagStream>;

/// The messages of a trace.
fn of_trace(messages: &TraceMessages) -> TagStreams {
    let mut lines = TagStreams::new();
    for (key, stream) in messages.sorted() {
        let Some(tag) = key.tag else { continue };
        let line = lines.entry((key.src, key.dst, tag)).or_default();
        line.add(stream.sums.messages, stream.times_ns, messages.times.of(&key));
    }
    lines
}

/// Pairs of trace and wire times by rank, and whether they cover every message of their streams.
fn matches(
    trace: &AppTrace,
    wire: &WireMessages,
    singles: JobMessages<'_>,
    contexts: &Contexts,
    missing_end: Option<MissingEnd>,
) -> (BTreeMap<u32, MatchedTimes>, bool) {
    let mut on_wire = TagStreams::new();
    for ((src, dst), envelope, sums) in wire.messages() {
        let Some(envelope) = envelope.filter(|envelope| contexts.tracer != Some(envelope.context)) else { continue };
        let line = on_wire.entry((src, dst, envelope.tag)).or_default();
        let times_ns = singles.times_ns((src, dst, envelope.context, envelope.tag));
        line.add(sums.messages, sums.times_ns, times_ns);
    }
    let receives = of_trace(&trace.receives);
    let mut matched: BTreeMap<u32, MatchedTimes> = BTreeMap::new();
    let mut whole = true;
    for (key, sent) in of_trace(&trace.sends) {
        let Some(wire) = on_wire.get(&key) else { continue };
        let skipped = match sent.messages.checked_sub(wire.messages) {
            Some(0) => 0,
            Some(_) if missing_end == Some(MissingEnd::Last) => 0,
            Some(missing) if missing_end == Some(MissingEnd::First) => missing,
            // The wire has more messages than the trace: the match is ambiguous.
            _ => continue,
        };
        whole &= wire.moments.is_some() && sent.moments.is_some();
        let places = |line: &TagStream| -> Vec<TimePair> {
            let all = if wire.moments.is_some() && line.moments.is_some() { 0..wire.messages } else { 0..0 };
            let ends = if all.is_empty() { [Some(0), wire.messages.checked_sub(1)] } else { [None; 2] };
            all.chain(ends.into_iter().flatten())
                .filter_map(|place| Some((line.time_ns(place + skipped)?, wire.time_ns(place)?)))
                .collect()
        };
        let (src, dst, _) = key;
        matched.entry(src).or_default().sent.extend(places(&sent));
        // Receives in several communicators may complete in another order than they were sent.
        let received = receives.get(&key).filter(|received| received.messages == sent.messages && wire.over == 1);
        matched.entry(dst).or_default().received.extend(received.map(places).unwrap_or_default());
    }
    matched.retain(|_, rank| !rank.sent.is_empty() || !rank.received.is_empty());
    (matched, whole)
}

impl MatchedTimes {
    /// A base of the offsets in nanoseconds, and the line fitted to the remaining offsets.
    fn line(&self) -> Option<(i64, Line)> {
        let base_ns = self.sent.first().or(self.received.first()).map(|(trace_ns, wire_ns)| wire_ns - trace_ns)?;
        let points = |matches: &[TimePair]| -> Vec<(f64, f64)> {
            matches
                .iter()
                .map(|(trace_ns, wire_ns)| (*trace_ns as f64, (wire_ns - trace_ns - base_ns) as f64))
                .collect()
        };
        let mut clouds = Clouds { upper: points(&self.sent), lower: points(&self.received), max_slope: MAX_SLOPE };
        clouds.reduce();
        if let Some(line) = clouds.fit() {
            return Some((base_ns, line));
        }
        // Only sends or only receives: take the tightest bound, without drift.
        let nearest =
            |points: &[(f64, f64)], better: fn(f64, f64) -> f64| points.iter().map(|point| point.1).reduce(better);
        let at = nearest(&clouds.upper, f64::min).or_else(|| nearest(&clouds.lower, f64::max))?;
        Some((base_ns, Line { at, slope: 0.0, margin: f64::INFINITY }))
    }

    /// The clock of the rank; `None` without matches.
    pub(super) fn clock(&self, rank: u32) -> Option<RankClock> {
        let (base_ns, line) = self.line()?;
        Some(RankClock {
            rank,
            offset_ns: base_ns + line.at.round() as i64,
            drift_ppm: line.slope * 1e6,
            uncertainty_ns: line.margin.is_finite().then(|| line.margin.abs().round() as u64),
            is_uneven: line.margin < 0.0,
            sent: self.sent.len() as u64,
            received: self.received.len() as u64,
        })
    }
}

/// Number of trace messages that were sent before the capture began or after it ended, according to
/// the fitted clocks, by sender, receiver and tag. Messages within the uncertainty of either end
/// are included.
pub(super) fn outside(
    trace: &AppTrace,
    clocks: &Clocks,
    capture_ns: (i64, i64),
) -> BTreeMap<(u32, u32, Option<i32>), u64> {
    let by_rank: BTreeMap<u32, &RankClock> = clocks.ranks.iter().map(|clock| (clock.rank, clock)).collect();
    let late_ns = clocks.send_to_wire.as_ref().map_or(0, |delays| delays.p99_ns.max(0));
    let mut outside = BTreeMap::new();
    for key in trace.sends.sorted().into_keys() {
        let (Some(clock), Some(times)) = (by_rank.get(&key.src), trace.sends.times.of(&key)) else { continue };
        let slack_ns = late_ns + clock.uncertainty_ns.unwrap_or(0) as i64;
        let is_outside = |time_ns: &&i64| {
            let at_ns = clock.capture_ns(**time_ns);
            at_ns < capture_ns.0.saturating_add(slack_ns) || at_ns > capture_ns.1.saturating_sub(slack_ns)
        };
        *outside.entry((key.src, key.dst, key.tag)).or_default() += times.iter().filter(is_outside).count() as u64;
    }
    outside
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_between_sends_and_receives_is_found() {
        // The trace's clock starts at 5 s of the capture's and loses 100 ppm. A message reaches the
        // wire 20 us after its call, and its receive completes 30 us later.
        let wire_ns = |trace_ns: i64| 5_000_000_000 + trace_ns + trace_ns / 10_000;
        let times = (0..100).map(|n| n * 10_000_000);
        let matched = MatchedTimes {
            sent: times.clone().map(|trace_ns| (trace_ns, wire_ns(trace_ns) + 20_000)).collect(),
            received: times.map(|trace_ns| (trace_ns + 5_000_000, wire_ns(trace_ns + 5_000_000) - 30_000)).collect(),
        };
        let clock = matched.clock(3).expect("a clock");
        assert!((clock.drift_ppm - 100.0).abs() < 0.1, "{clock:?}");
        // Halfway between the two bounds, 25 us from each.
        assert!((clock.offset_ns - 4_999_995_000).abs() < 50, "{clock:?}");
        assert!((24_900..=25_100).contains(&clock.uncertainty_ns.expect("both sides")), "{clock:?}");
    }

    #[test]
    fn quantiles_are_those_of_the_times() {
        let delays = Delays::of((1..=100).rev().collect()).expect("times");
        assert_eq!(
            (delays.min_ns, delays.median_ns, delays.p90_ns, delays.p99_ns, delays.max_ns),
            (1, 51, 91, 100, 100)
        );
        assert_eq!(Delays::of(Vec::new()), None);
    }

    #[test]
    fn classes_hold_all_times() {
        // Classes are exact up to 15; from 16 on, there are eight per power of two.
        let times = vec![-17, -3, 0, 3, 3, 16, 17, 18];
        let delays = Delays::of(times).expect("times");
        assert_eq!(delays.buckets, [(-17, -15, 1), (-3, -2, 1), (0, 1, 1), (3, 4, 2), (16, 18, 2), (18, 20, 1)]);
    }
}
