//! The clock of each rank in the trace against that of the capture, and how long a send call takes to reach the wire.
//!
//! A message is on the wire after its send call and before its receive is complete. So what a rank sends bounds the offset of its clock from above, what it
//! receives bounds it from below, and the clock is the line between the two clouds ([`Clouds`]). Messages are matched by their place in their stream (sender,
//! receiver, communicator, tag), in which MPI keeps their order.

use super::contexts::Contexts;
use super::moments::Moments;
use super::trace::{Messages, Stream, StreamKey, Trace};
use super::wire::Wire;
use crate::model::line::{Clouds, Line};
use serde::Serialize;
use std::collections::BTreeMap;

/// Largest difference of rates that is looked for: the resolution that Score-P measures in short runs may be off by 0.1 %.
const MAX_SLOPE: f64 = 3e-3;

/// Which messages on the wire are one stream: sender, receiver, context and tag.
pub type WireKey = (u32, u32, u32, i32);

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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
}

impl Delays {
    fn of(mut times: Vec<i64>) -> Option<Self> {
        times.sort_unstable();
        let at = |percent: usize| times.get((times.len() * percent / 100).min(times.len() - 1)).copied();
        let (min_ns, max_ns) = (*times.first()?, *times.last()?);
        let [median_ns, p90_ns, p99_ns] = [at(50)?, at(90)?, at(99)?];
        Some(Self { count: times.len() as u64, min_ns, median_ns, p90_ns, p99_ns, max_ns })
    }
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

/// Fits the clocks of all ranks. `moments` are the times of the wire's messages, where captures were read; else the first and the last of each stream
/// are there.
pub(super) fn fit(trace: &Trace, wire: &Wire, moments: &Moments<WireKey>, contexts: &Contexts) -> Clocks {
    let (mut matched, mut whole) = matches(trace, wire, moments, contexts, None);
    let is_known = |matched: &BTreeMap<u32, Matched>| {
        !matched.is_empty() && matched.values().all(|rank| !rank.sent.is_empty() && !rank.received.is_empty())
    };
    if !is_known(&matched) {
        // No whole stream tells, so the capture began late or ended early: as fits better.
        let ways = [Lacking::Last, Lacking::First].map(|lacking| {
            let (matched, whole) = matches(trace, wire, moments, contexts, Some(lacking));
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

/// Messages of the trace with their times on the wire, by rank, and whether they are all messages of their streams.
fn matches(
    trace: &Trace,
    wire: &Wire,
    moments: &Moments<WireKey>,
    contexts: &Contexts,
    lacking: Option<Lacking>,
) -> (BTreeMap<u32, Matched>, bool) {
    // Communicators that follow each other may share a context: then it is not clear which message is which.
    let mut of_context: BTreeMap<WireKey, u32> = BTreeMap::new();
    let sends = trace.sends.sorted();
    let wire_key = |key: &StreamKey| Some((key.src, key.dst, *contexts.of.get(&key.communicator)?, key.tag?));
    sends.keys().filter_map(wire_key).for_each(|key| *of_context.entry(key).or_default() += 1);
    let on_wire: BTreeMap<WireKey, crate::model::StreamSums> = wire
        .messages()
        .filter_map(|((src, dst), envelope, sums)| Some(((src, dst, envelope?.context, envelope?.tag), sums)))
        .collect();
    let mut matched: BTreeMap<u32, Matched> = BTreeMap::new();
    let mut whole = true;
    let receives = trace.receives.sorted();
    for (key, stream) in &sends {
        let Some(wire_key) = wire_key(key).filter(|key| of_context.get(key) == Some(&1)) else { continue };
        let Some(sums) = on_wire.get(&wire_key) else { continue };
        let Some(times_ns) = sums.times_ns else { continue };
        let skipped = match stream.sums.messages.checked_sub(sums.messages) {
            Some(0) => 0,
            Some(_) if lacking == Some(Lacking::Last) => 0,
            Some(missing) if lacking == Some(Lacking::First) => missing,
            // Among more messages than the trace has it is not clear which are meant.
            _ => continue,
        };
        let times = moments.of(&wire_key).filter(|times| times.len() as u64 == sums.messages);
        let on_wire = times.map_or_else(
            || {
                whole = false;
                vec![(0, times_ns.0), (sums.messages - 1, times_ns.1)]
            },
            |times| (0..).zip(times.iter().copied()).collect(),
        );
        let matches = |messages: &Messages, stream: &Stream| -> Vec<Match> {
            let in_trace = messages.moments.of(key);
            let time = |place: u64| match (in_trace, stream.times_ns) {
                (Some(times), _) => times.get(usize::try_from(place).ok()?).copied(),
                (None, Some(times)) if place == 0 => Some(times.0),
                (None, Some(times)) if place + 1 == stream.sums.messages => Some(times.1),
                _ => None,
            };
            on_wire.iter().filter_map(|(place, wire_ns)| Some((time(place + skipped)?, *wire_ns))).collect()
        };
        matched.entry(key.src).or_default().sent.extend(matches(&trace.sends, stream));
        if let Some(received) = receives.get(key).filter(|received| received.sums.messages == stream.sums.messages) {
            matched.entry(key.dst).or_default().received.extend(matches(&trace.receives, received));
        }
    }
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
    let late_ns = clocks.send_to_wire.map_or(0, |delays| delays.p99_ns.max(0));
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
}
