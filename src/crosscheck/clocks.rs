//! The clock of each rank in the trace against that of the capture, and how long a send call takes to reach the wire.
//!
//! A message is on the wire after its send call and before its receive is complete. So what a rank sends bounds the offset of its clock from above, what it
//! receives bounds it from below, and the clock is the line between the two clouds ([`Clouds`]). Messages are matched by their place among those of
//! the same sender, receiver and tag, in which MPI keeps their order.

use super::contexts::Contexts;
use super::singles::JobSingles;
use super::trace::{Messages, Trace};
use super::wire::Wire;
use crate::model::histogram;
use crate::model::line::{Clouds, Line};
use serde::Serialize;
use std::collections::BTreeMap;

/// Largest difference of rates that is looked for: the resolution that Score-P measures in short runs may be off by 0.1 %.
const MAX_SLOPE: f64 = 3e-3;

/// Clocks of a trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Clocks {
    /// By rank.
    pub ranks: Vec<RankClock>,
    /// Time from the send call to the wire; `None` where no message was matched.
    pub send_to_wire: Option<Delays>,
    /// Every message was matched, not the first and the last of each stream alone.
    pub of_every_message: bool,
}

/// The clock of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RankClock {
    /// World rank.
    pub rank: u32,
    /// Time of the capture's clock when the trace's shows its first moment, nanoseconds since the epoch.
    pub offset_ns: i64,
    /// What the capture's clock gains on the trace's, in millionths.
    pub drift_ppm: f64,
    /// How far off that may be, in nanoseconds; `None` where the rank only sends or only receives.
    pub uncertainty_ns: Option<u64>,
    /// The bounds contradict each other: the clock does not run evenly.
    pub is_uneven: bool,
    /// Messages that bound it from above and from below.
    pub sent: u64,
    /// See above.
    pub received: u64,
}

impl RankClock {
    /// Time of the capture for a time of the trace.
    pub(super) fn capture_ns(&self, trace_ns: i64) -> i64 {
        self.offset_ns.saturating_add(trace_ns).saturating_add((trace_ns as f64 * self.drift_ppm / 1e6).round() as i64)
    }
}

/// A distribution of times, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Delays {
    /// Messages.
    pub count: u64,
    /// The shortest; below 0 where the clocks are not known well enough.
    pub min_ns: i64,
    /// Half are shorter.
    pub median_ns: i64,
    /// Nine of ten are shorter.
    pub p90_ns: i64,
    /// 99 of 100 are shorter.
    pub p99_ns: i64,
    /// The longest.
    pub max_ns: i64,
    /// How many there are from the first to just below the second of these times: eight classes for each power of two, those that are not empty.
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
            // They are sorted: the same class comes again at once.
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

/// The class of a time: from the first, up to but without the second. Those below 0 are as those above it.
fn class(ns: i64) -> (i64, i64) {
    let (from_ns, to_ns) = histogram::coarse_range(histogram::coarse_bucket(ns.unsigned_abs()));
    let [from_ns, to_ns] = [from_ns, to_ns].map(|ns| i64::try_from(ns).unwrap_or(i64::MAX));
    if ns < 0 { (1 - to_ns, 1 - from_ns) } else { (from_ns, to_ns) }
}

/// Which of a stream's messages the wire lacks, where it has fewer than the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lacking {
    /// The last ones: the capture ended early.
    Last,
    /// The first ones: it began late.
    First,
}

/// Time in the trace and time on the wire.
type Match = (i64, i64);

/// Matched messages of a rank.
#[derive(Clone, Debug, Default)]
struct Matched {
    sent: Vec<Match>,
    received: Vec<Match>,
}

/// Fits the clocks of all ranks. `singles` has the times of the wire's messages, where captures
/// were read; else the first and the last of each stream are there.
pub(super) fn fit(trace: &Trace, wire: &Wire, singles: JobSingles<'_>, contexts: &Contexts) -> Clocks {
    let (mut matched, mut whole) = matches(trace, wire, singles, contexts, None);
    let is_known = |matched: &BTreeMap<u32, Matched>| {
        !matched.is_empty() && matched.values().all(|rank| !rank.sent.is_empty() && !rank.received.is_empty())
    };
    if !is_known(&matched) {
        // No whole stream tells, so the capture began late or ended early: as fits better.
        let ways = [Lacking::Last, Lacking::First].map(|lacking| {
            let (matched, whole) = matches(trace, wire, singles, contexts, Some(lacking));
            let contradiction: f64 = matched.values().filter_map(|rank| Some(rank.line()?.1.margin.min(0.0))).sum();
            (contradiction, matched, whole)
        });
        let best = ways.into_iter().reduce(|last, first| if first.0 > last.0 { first } else { last });
        if let Some((_, best, best_whole)) = best {
            (matched, whole) = (best, best_whole);
        }
    }
    let mut clocks = Clocks { of_every_message: whole, ..Clocks::default() };
    let mut delays = Vec::new();
    for (rank, matched) in &matched {
        let Some(clock) = matched.clock(*rank) else { continue };
        delays.extend(matched.sent.iter().map(|(trace_ns, wire_ns)| wire_ns - clock.capture_ns(*trace_ns)));
        clocks.ranks.push(clock);
    }
    clocks.send_to_wire = Delays::of(delays);
    clocks
}

/// Messages from one rank to another with one tag. Over whatever communicator: eztrace calls them by wrong names.
#[derive(Clone, Debug, Default)]
struct Row {
    messages: u64,
    times_ns: Option<(i64, i64)>,
    /// Of each message, sorted; `None` where they were not kept.
    moments: Option<Vec<i64>>,
    /// Communicators or contexts.
    over: usize,
}

impl Row {
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

    /// Time of a message by its place; of those whose moments were not kept, of the first and the last.
    fn time_ns(&self, place: u64) -> Option<i64> {
        match (&self.moments, self.times_ns) {
            (Some(moments), _) => moments.get(usize::try_from(place).ok()?).copied(),
            (None, Some((first_ns, _))) if place == 0 => Some(first_ns),
            (None, Some((_, last_ns))) if place + 1 == self.messages => Some(last_ns),
            _ => None,
        }
    }
}

type Lines = BTreeMap<(u32, u32, i32), Row>;

/// The messages of a trace.
fn of_trace(messages: &Messages) -> Lines {
    let mut lines = Lines::new();
    for (key, stream) in messages.sorted() {
        let Some(tag) = key.tag else { continue };
        let line = lines.entry((key.src, key.dst, tag)).or_default();
        line.add(stream.sums.messages, stream.times_ns, messages.moments.of(&key));
    }
    lines
}

/// Messages of the trace with their times on the wire, by rank, and whether they are all messages of their streams.
fn matches(
    trace: &Trace,
    wire: &Wire,
    singles: JobSingles<'_>,
    contexts: &Contexts,
    lacking: Option<Lacking>,
) -> (BTreeMap<u32, Matched>, bool) {
    let mut on_wire = Lines::new();
    for ((src, dst), envelope, sums) in wire.messages() {
        let Some(envelope) = envelope.filter(|envelope| contexts.tracer != Some(envelope.context)) else { continue };
        let line = on_wire.entry((src, dst, envelope.tag)).or_default();
        let times_ns = singles.times_ns((src, dst, envelope.context, envelope.tag));
        line.add(sums.messages, sums.times_ns, times_ns);
    }
    let receives = of_trace(&trace.receives);
    let mut matched: BTreeMap<u32, Matched> = BTreeMap::new();
    let mut whole = true;
    for (key, sent) in of_trace(&trace.sends) {
        let Some(wire) = on_wire.get(&key) else { continue };
        let skipped = match sent.messages.checked_sub(wire.messages) {
            Some(0) => 0,
            Some(_) if lacking == Some(Lacking::Last) => 0,
            Some(missing) if lacking == Some(Lacking::First) => missing,
            // Among more messages than the trace has it is not clear which are meant.
            _ => continue,
        };
        whole &= wire.moments.is_some() && sent.moments.is_some();
        let places = |line: &Row| -> Vec<Match> {
            let all = if wire.moments.is_some() && line.moments.is_some() { 0..wire.messages } else { 0..0 };
            let ends = if all.is_empty() { [Some(0), wire.messages.checked_sub(1)] } else { [None; 2] };
            all.chain(ends.into_iter().flatten())
                .filter_map(|place| Some((line.time_ns(place + skipped)?, wire.time_ns(place)?)))
                .collect()
        };
        let (src, dst, _) = key;
        matched.entry(src).or_default().sent.extend(places(&sent));
        // Receives over several communicators may end in another order.
        let received = receives.get(&key).filter(|received| received.messages == sent.messages && wire.over == 1);
        matched.entry(dst).or_default().received.extend(received.map(places).unwrap_or_default());
    }
    matched.retain(|_, rank| !rank.sent.is_empty() || !rank.received.is_empty());
    (matched, whole)
}

impl Matched {
    /// The base of the differences, and the line of what is left of them.
    fn line(&self) -> Option<(i64, Line)> {
        let base_ns = self.sent.first().or(self.received.first()).map(|(trace_ns, wire_ns)| wire_ns - trace_ns)?;
        let points = |matches: &[Match]| -> Vec<(f64, f64)> {
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
        // One side alone: the nearest message, with no drift.
        let nearest =
            |points: &[(f64, f64)], better: fn(f64, f64) -> f64| points.iter().map(|point| point.1).reduce(better);
        let at = nearest(&clouds.upper, f64::min).or_else(|| nearest(&clouds.lower, f64::max))?;
        Some((base_ns, Line { at, slope: 0.0, margin: f64::INFINITY }))
    }

    fn clock(&self, rank: u32) -> Option<RankClock> {
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

/// Messages of the trace that were sent before the capture began or after it ended, as far as clocks tell, by sender, receiver and tag. Those within the
/// slack of its ends count, as they may have been.
pub(super) fn outside(
    trace: &Trace,
    clocks: &Clocks,
    capture_ns: (i64, i64),
) -> BTreeMap<(u32, u32, Option<i32>), u64> {
    let by_rank: BTreeMap<u32, &RankClock> = clocks.ranks.iter().map(|clock| (clock.rank, clock)).collect();
    let late_ns = clocks.send_to_wire.as_ref().map_or(0, |delays| delays.p99_ns.max(0));
    let mut outside = BTreeMap::new();
    for key in trace.sends.sorted().into_keys() {
        let (Some(clock), Some(times)) = (by_rank.get(&key.src), trace.sends.moments.of(&key)) else { continue };
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
        // The trace's clock starts at 5 s of the capture's and loses 100 millionths; a call takes 20 us to the wire, and from there 30 us to its end.
        let wire_ns = |trace_ns: i64| 5_000_000_000 + trace_ns + trace_ns / 10_000;
        let times = (0..100).map(|n| n * 10_000_000);
        let matched = Matched {
            sent: times.clone().map(|trace_ns| (trace_ns, wire_ns(trace_ns) + 20_000)).collect(),
            received: times.map(|trace_ns| (trace_ns + 5_000_000, wire_ns(trace_ns + 5_000_000) - 30_000)).collect(),
        };
        let clock = matched.clock(3).expect("a clock");
        assert!((clock.drift_ppm - 100.0).abs() < 0.1, "{clock:?}");
        // In the middle between the two bounds, 25 us to either side.
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
        // Exact up to 15; from 16 on eight for each power of two.
        let times = vec![-17, -3, 0, 3, 3, 16, 17, 18];
        let delays = Delays::of(times).expect("times");
        assert_eq!(delays.buckets, [(-17, -15, 1), (-3, -2, 1), (0, 1, 1), (3, 4, 2), (16, 18, 2), (18, 20, 1)]);
    }
}
