//! Finds the iterations of a job: message k of a series belongs to iteration k, if the series of
//! most ranks have the same number of messages.
//!
//! In: the series of a job. Out: the series of its main loop. Times do not decide which iteration a
//! message belongs to, so slow iterations cannot be split or joined; they only exclude series whose
//! messages do not keep the order of the others.

use super::NoIterations;
use super::series::{self, MessageSeries, SeriesKey, SeriesRole};
use std::collections::{BTreeMap, BTreeSet};

/// Fewest repetitions of a message.
pub(super) const FEWEST: usize = 10;
/// Most messages of one series in an iteration.
const MOST_PER_ITERATION: usize = 8;
/// Most messages of a series before and after the loop: a barrier often precedes it.
const MOST_OUTSIDE: usize = 2;
/// A series keeps the order of the others if this share of its messages does.
const ORDERED_SHARE: f64 = 0.8;
/// The loop involves at least this share of the ranks.
const RANK_SHARE: f64 = 0.5;
/// The loop takes at least this share of the job's time: set-up and shutdown repeat messages too.
const TIME_SHARE: f64 = 0.1;
/// A message that is missing at an end of a series would be at most this many periods from its neighbor.
const OUTSIDE_PERIODS: f64 = 1.5;
/// Weight of steps without a message outside of the loop, against those with one.
const EXACT_WEIGHT: usize = 3;

/// The series of the main loop.
#[derive(Debug)]
pub(super) struct MainLoop {
    /// Number of repetitions of its messages.
    pub(super) repetitions: usize,
    /// Number of whole iterations: one less than `repetitions` if an iteration begins in the middle
    /// of the messages that repeat.
    pub(super) count: usize,
    /// Number of messages of the job.
    pub(super) of_messages: usize,
    pub(super) period_ns: u64,
    pub(super) jitter_ns: u64,
    pub(super) series: Vec<LoopSeries>,
    /// The ranks that begin their iterations with the same step of the program.
    pub(super) comparable: BTreeSet<u32>,
}

/// A step of the loop: what its messages have in common at all ranks, if all send equally long ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LoopStep {
    pub(super) role: SeriesRole,
    mpi_bytes: u64,
    /// Number of the message among those of an iteration that are alike, from 0.
    place: usize,
}

/// Messages of which each iteration has one.
#[derive(Debug)]
pub(super) struct LoopSeries {
    pub(super) step: LoopStep,
    pub(super) src: u32,
    pub(super) dst: u32,
    /// Number of messages before the first iteration.
    pub(super) before: usize,
    times_ns: Vec<(i64, i64)>,
}

impl LoopSeries {
    /// Times of the first and the last packet of the message of an iteration.
    pub(super) fn of(&self, iteration: usize) -> (i64, i64) {
        self.times_ns[self.before + iteration]
    }

    pub(super) fn begin_ns(&self, iteration: usize) -> i64 {
        self.of(iteration).0
    }

    /// Number of iterations that have a message.
    pub(super) fn iterations(&self) -> usize {
        self.times_ns.len().saturating_sub(self.before)
    }

    /// The median distance of its messages from `begins_ns`, as far as both go.
    pub(super) fn offset_ns(&self, begins_ns: &[i64]) -> i64 {
        let begins = (0..self.iterations()).map(|iteration| self.begin_ns(iteration));
        offset_ns(begins, begins_ns)
    }
}

/// Messages that are alike, the same number in each iteration.
#[derive(Debug)]
struct RepeatedSeries<'a> {
    key: &'a SeriesKey,
    per_iteration: usize,
    /// Number of messages before the loop.
    before: usize,
    times_ns: &'a [(i64, i64)],
}

impl RepeatedSeries<'_> {
    fn begin_ns(&self, iteration: usize) -> i64 {
        self.times_ns[self.before + iteration * self.per_iteration].0
    }

    fn offset_ns(&self, begins_ns: &[i64]) -> i64 {
        let iterations = (self.times_ns.len() - self.before) / self.per_iteration;
        offset_ns((0..iterations).map(|iteration| self.begin_ns(iteration)), begins_ns)
    }

    /// True if each message is one iteration.
    const fn is_exact(&self, count: usize) -> bool {
        self.times_ns.len() == count
    }

    /// The messages by their place in the iteration: a program may call the same operation twice.
    fn by_place(&self) -> impl Iterator<Item = LoopSeries> + '_ {
        let SeriesKey { src, dst, mpi_bytes, .. } = *self.key;
        (0..self.per_iteration).map(move |place| LoopSeries {
            step: LoopStep { role: self.key.role(), mpi_bytes, place },
            src,
            dst,
            before: 0,
            times_ns: self.times_ns.iter().skip(self.before + place).step_by(self.per_iteration).copied().collect(),
        })
    }
}

/// Finds the main loop.
pub(super) fn find(series_of_job: &BTreeMap<SeriesKey, MessageSeries>) -> Result<MainLoop, NoIterations> {
    let all = series::ranks(series_of_job.keys());
    let count = repetitions(series_of_job, &all).ok_or(NoIterations::NotRepeated)?;
    let mut chosen: Vec<RepeatedSeries<'_>> =
        series_of_job.iter().filter_map(|(key, own)| part_of(key, own, count)).collect();
    let begins_ns = begins_ns(&chosen, count);
    let (period_ns, _) = period_and_jitter_ns(&begins_ns);
    align(&mut chosen, &begins_ns, period_ns, job_times_ns(series_of_job))?;
    chosen.retain(|own| is_ordered(own, &begins_ns, period_ns));
    if !covers(chosen.iter().map(|own| (own.key.src, own.key.dst)), &all) {
        return Err(NoIterations::NotOrdered);
    }
    let (period_ns, jitter_ns) = period_and_jitter_ns(&self::begins_ns(&chosen, count));
    let of_messages = series_of_job.values().map(MessageSeries::len).sum();
    let series = chosen.iter().flat_map(RepeatedSeries::by_place).collect();
    Ok(MainLoop { repetitions: count, count, of_messages, period_ns, jitter_ns, series, comparable: BTreeSet::new() })
}

/// True if enough ranks send and receive.
fn covers(pairs: impl Iterator<Item = (u32, u32)>, all: &BTreeSet<u32>) -> bool {
    let (senders, receivers): (BTreeSet<u32>, BTreeSet<u32>) = pairs.unzip();
    let both = senders.intersection(&receivers).count();
    both >= 2 && both as f64 >= RANK_SHARE * all.len() as f64
}

/// The number of iterations: the length of the series of half of the ranks that makes most steps of
/// the ranks a part of the loop. Operations with many messages per call have no greater weight.
fn repetitions(series: &BTreeMap<SeriesKey, MessageSeries>, all: &BTreeSet<u32>) -> Option<usize> {
    let begin_ns = series.values().filter_map(MessageSeries::begin_ns).min()?;
    let end_ns = series.values().filter_map(MessageSeries::end_ns).max()?;
    let job_ns = end_ns.saturating_sub(begin_ns);
    let mut by_length: BTreeMap<usize, Vec<&SeriesKey>> = BTreeMap::new();
    for (key, own) in series.iter().filter(|(_, own)| own.len() >= FEWEST) {
        let span_ns = own.end_ns()?.saturating_sub(own.begin_ns()?);
        if span_ns as f64 >= TIME_SHARE * job_ns as f64 {
            by_length.entry(own.len()).or_default().push(key);
        }
    }
    let steps = |count: usize, is_exact: bool| -> usize {
        let parts =
            by_length.iter().filter(|(length, _)| is_part(**length, count) && (**length % count == 0) == is_exact);
        parts.flat_map(|(_, keys)| keys.iter().map(|key| (key.src, key.role()))).collect::<BTreeSet<_>>().len()
    };
    let whole = by_length.iter().filter(|(_, keys)| covers(keys.iter().map(|key| (key.src, key.dst)), all));
    let score = |count: usize| EXACT_WEIGHT * steps(count, true) + steps(count, false);
    whole.max_by_key(|(count, _)| (score(**count), **count)).map(|(count, _)| *count)
}

/// The series as part of a loop of `count` iterations; `None` if its length does not allow it.
fn part_of<'a>(key: &'a SeriesKey, own: &'a MessageSeries, count: usize) -> Option<RepeatedSeries<'a>> {
    let per_iteration = own.len() / count;
    let times_ns = own.times_ns();
    is_part(own.len(), count).then_some(RepeatedSeries { key, per_iteration, before: 0, times_ns })
}

fn is_part(length: usize, count: usize) -> bool {
    (1..=MOST_PER_ITERATION).contains(&(length / count)) && length % count <= MOST_OUTSIDE
}

/// Times of the first and the last message of a job.
fn job_times_ns(series: &BTreeMap<SeriesKey, MessageSeries>) -> (i64, i64) {
    let begin_ns = series.values().filter_map(MessageSeries::begin_ns).min();
    let end_ns = series.values().filter_map(MessageSeries::end_ns).max();
    (begin_ns.unwrap_or_default(), end_ns.unwrap_or_default())
}

/// Decides how many messages of each series precede the loop, jointly for the series of one step: all ranks
/// take part in the same iteration of it.
///
/// ```text
/// rank 0    1   2   3   4           rank 0   0   1   2   3
/// rank 1      1   2   3   |  end    rank 1  |  1   2   3        start of the captures
/// ```
/// If some series of a step have fewer messages than others, the captures start or end within an iteration,
/// and the missing messages must lie outside of them. If both ends allow it, nothing shows which iteration a
/// message belongs to: the delay of a straggler can be any part of a period.
fn align(
    chosen: &mut [RepeatedSeries<'_>],
    begins_ns: &[i64],
    period_ns: u64,
    (from_ns, to_ns): (i64, i64),
) -> Result<(), NoIterations> {
    let mut steps: BTreeMap<_, Vec<&mut RepeatedSeries<'_>>> = BTreeMap::new();
    for own in chosen {
        let SeriesKey { operation, context, tag, mpi_bytes, .. } = *own.key;
        steps.entry((operation, context, tag, mpi_bytes, own.per_iteration)).or_default().push(own);
    }
    let margin_ns = (period_ns as f64 * OUTSIDE_PERIODS) as i64;
    for mut step in steps.into_values() {
        let fewest = step.iter().map(|own| own.times_ns.len()).min().unwrap_or_default();
        let is_short = |own: &&&mut RepeatedSeries<'_>| own.times_ns.len() == fewest;
        let is_ragged = step.iter().any(|own| own.times_ns.len() > fewest);
        let may_start_later = step
            .iter()
            .filter(is_short)
            .all(|own| own.times_ns.first().is_some_and(|first| first.0.saturating_sub(margin_ns) < from_ns));
        let may_end_sooner = step
            .iter()
            .filter(is_short)
            .all(|own| own.times_ns.last().is_some_and(|last| last.0.saturating_add(margin_ns) > to_ns));
        for own in &mut step {
            let further = own.times_ns.len() - fewest;
            own.before = match (is_ragged, may_start_later, may_end_sooner) {
                (true, true, true) => return Err(NoIterations::EdgesUnclear),
                (true, true, false) => further,
                (true, false, true) => 0,
                (false, ..) | (true, false, false) => messages_before(own, begins_ns),
            };
        }
    }
    Ok(())
}

/// How many messages of the series precede the loop: the number that brings its iterations nearest
/// to those of the others.
fn messages_before(own: &mut RepeatedSeries<'_>, begins_ns: &[i64]) -> usize {
    let outside = own.times_ns.len() - own.per_iteration * begins_ns.len();
    let distance = |before: usize| {
        own.before = before;
        (own.offset_ns(begins_ns).unsigned_abs(), before)
    };
    (0..=outside).map(distance).min().map_or(0, |(_, before)| before)
}

/// The median distance of `begins` from `others_ns`, as far as both go.
fn offset_ns(begins: impl Iterator<Item = i64>, others_ns: &[i64]) -> i64 {
    median(begins.zip(others_ns).map(|(begin_ns, other_ns)| begin_ns.saturating_sub(*other_ns)).collect())
}

/// The median time of each iteration over the series with one message in each.
fn begins_ns(series: &[RepeatedSeries<'_>], count: usize) -> Vec<i64> {
    let exact: Vec<&RepeatedSeries<'_>> = series.iter().filter(|own| own.is_exact(count)).collect();
    (0..count).map(|iteration| median(exact.iter().map(|own| own.begin_ns(iteration)).collect())).collect()
}

/// Median and interquartile range of the times between iterations, in nanoseconds.
fn period_and_jitter_ns(begins_ns: &[i64]) -> (u64, u64) {
    let mut steps_ns: Vec<i64> = begins_ns.windows(2).map(|two| two[1].saturating_sub(two[0])).collect();
    steps_ns.sort_unstable();
    let at = |share: f64| steps_ns[((steps_ns.len() - 1) as f64 * share).round() as usize];
    if steps_ns.is_empty() {
        return (0, 0);
    }
    (at(0.5).max(0).unsigned_abs(), at(0.75).saturating_sub(at(0.25)).max(0).unsigned_abs())
}

/// True if the messages of the series come once per iteration: at a constant distance from the
/// others, give or take a period.
fn is_ordered(own: &RepeatedSeries<'_>, begins_ns: &[i64], period_ns: u64) -> bool {
    let middle_ns = own.offset_ns(begins_ns);
    let is_near =
        |(k, begin): &(usize, &i64)| own.begin_ns(*k).saturating_sub(**begin).abs_diff(middle_ns) <= period_ns;
    let near = begins_ns.iter().enumerate().filter(is_near).count();
    middle_ns.unsigned_abs() <= period_ns && near as f64 >= ORDERED_SHARE * begins_ns.len() as f64
}

/// The median; the lower one of an even number. 0 for no values.
pub(super) fn median(mut values: Vec<i64>) -> i64 {
    let middle = values.len().saturating_sub(1) / 2;
    if values.is_empty() { 0 } else { *values.select_nth_unstable(middle).1 }
}

/// For each value, the median of the other values; 0 if there are none.
pub(super) fn medians_of_others(values: &[i64]) -> Vec<i64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    // Without the value itself, the values after it move forward by one place.
    let middle = sorted.len().saturating_sub(2) / 2;
    let other = |value: &i64| {
        let at = if *value > sorted[middle] { middle } else { middle + 1 };
        sorted.get(at).copied().unwrap_or_default()
    };
    values.iter().map(other).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn medians_of_others_are_those_of_lists_without_the_value(values in prop::collection::vec(-3i64..3, 0..9)) {
            let without = |at: usize| [&values[..at], &values[at + 1..]].concat();
            let expected: Vec<i64> = (0..values.len()).map(|at| median(without(at))).collect();
            prop_assert_eq!(medians_of_others(&values), expected);
        }
    }
}
