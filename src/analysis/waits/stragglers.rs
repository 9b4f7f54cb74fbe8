//! Finds the ranks that begin most iterations late because of their own time.
//!
//! The delay of a rank in an iteration is the smaller of two delays: how much later than the others
//! it begins, and how much more time of its own it needs before. The first delay alone would
//! include ranks that wait for a straggler; the second alone would include ranks that finished the
//! previous iteration early.
//!
//! Inside a node, ranks wait for each other without a message on the wire. If some of them do not
//! send in the step that begins an iteration, as in hierarchical collective operations, the delay of
//! the sender may be theirs.

use super::Straggler;
use super::iterations::{FEWEST, median, medians_of_others};
use super::rank_times::LoopTimes;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The lower bound of a straggler's delay is at least this share of the period.
const DELAY_SHARE: f64 = 0.05;

/// If it is unclear whether a rank responds to messages, at most this share of the ranks begins as
/// late. In a pipeline, where each rank responds to the previous one, half of the ranks do.
const LATE_SHARE: f64 = 0.25;

/// Delay with which a rank begins each iteration, in nanoseconds.
#[derive(Default)]
struct IterationDelays {
    /// The smaller of the two delays against the other ranks.
    delays_ns: Vec<i64>,
    /// Against the first rank of the iteration.
    after_first_ns: Vec<i64>,
}

/// The stragglers, longest delay first.
pub(super) fn stragglers(times: &LoopTimes) -> Vec<Straggler> {
    let delays = delays(times);
    let after_first_ns: BTreeMap<u32, i64> =
        delays.iter().map(|(rank, own)| (*rank, median(own.after_first_ns.clone()))).collect();
    let is_alone = |rank: &u32| {
        let as_late = after_first_ns.values().filter(|other| **other > after_first_ns[rank] / 2).count();
        as_late as f64 <= LATE_SHARE * after_first_ns.len() as f64
    };
    let late = delays.into_iter().filter(|(rank, _)| !times.may_answer.contains(rank) || is_alone(rank));
    let mut found: Vec<Straggler> =
        late.filter_map(|(rank, own)| straggler(rank, own.delays_ns, times.period_ns)).collect();
    found.sort_by_key(|straggler| (Reverse(straggler.delay_ns), straggler.rank));
    found
}

fn delays(times: &LoopTimes) -> BTreeMap<u32, IterationDelays> {
    let mut by_iteration: BTreeMap<usize, Vec<(u32, i64, i64)>> = BTreeMap::new();
    for (&rank, entries) in times.entries.iter().filter(|(rank, _)| times.comparable.contains(rank)) {
        for entry in entries {
            by_iteration.entry(entry.iteration).or_default().push((rank, entry.begin_ns, entry.own_ns));
        }
    }
    let mut delays: BTreeMap<u32, IterationDelays> = BTreeMap::new();
    for entries in by_iteration.values().filter(|entries| entries.len() > 1) {
        let first_ns = entries.iter().map(|entry| entry.1).min().unwrap_or_default();
        let of = |value: fn(&(u32, i64, i64)) -> i64| medians_of_others(&entries.iter().map(value).collect::<Vec<_>>());
        let others = of(|entry| entry.1).into_iter().zip(of(|entry| entry.2));
        for ((rank, begin_ns, own_ns), (others_begin_ns, others_own_ns)) in entries.iter().zip(others) {
            let late_ns = begin_ns.saturating_sub(others_begin_ns);
            let longer_ns = own_ns.saturating_sub(others_own_ns);
            let own = delays.entry(*rank).or_default();
            own.delays_ns.push(late_ns.min(longer_ns));
            own.after_first_ns.push(begin_ns.saturating_sub(first_ns));
        }
    }
    delays
}

/// A rank as straggler, if the lower bound of its median delay is positive. The bound is an order
/// statistic: three standard deviations of the number of values below the median.
fn straggler(rank: u32, mut delays_ns: Vec<i64>, period_ns: u64) -> Option<Straggler> {
    if delays_ns.len() + 1 < FEWEST {
        return None;
    }
    delays_ns.sort_unstable();
    let count = delays_ns.len() as f64;
    let low = (count / 2.0 - 1.5 * count.sqrt()).floor().max(0.0) as usize;
    let delay_low_ns = u64::try_from(delays_ns[low]).ok().filter(|low| *low > 0)?;
    let delay_ns = u64::try_from(median(delays_ns)).ok()?;
    (delay_low_ns as f64 >= DELAY_SHARE * period_ns as f64).then_some(Straggler {
        rank,
        or_ranks: Vec::new(),
        delay_ns,
        delay_low_ns,
    })
}
