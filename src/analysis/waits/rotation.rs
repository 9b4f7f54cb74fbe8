//! Rotates the main loop so that its iterations begin where the ranks compute longest.
//!
//! The numbers of messages show how many iterations there are, not where one begins: a loop of
//! computation, exchange and barrier has the same messages as a loop of barrier, computation and
//! exchange. A straggler is visible at the first message after its computation, so this message has
//! to be the first of the iteration.

use super::iterations::{LoopSeries, LoopStep, MainLoop, median};
use super::series::SeriesRole;
use std::collections::BTreeMap;

/// The message that begins an iteration follows the send before it after at least this share of the
/// longest pause between two sends of its rank.
const LONG_SHARE: f64 = 0.5;

/// Rotates the loop. It loses its last iteration if some messages move to the iteration before.
pub(super) fn rotate(main: &mut MainLoop) {
    let computed_ns = pauses_ns(main, true);
    let mut by_role: BTreeMap<SeriesRole, i64> = BTreeMap::new();
    for (own, ns) in main.series.iter().zip(&computed_ns) {
        *by_role.entry(own.step.role).or_default() += ns;
    }
    let Some((&role, _)) = by_role.iter().max_by_key(|(_, ns)| **ns) else { return };
    let begins_ns = first_messages(main, &computed_ns, role);
    main.comparable = begins_ns.keys().copied().collect();
    let count = main.count;
    for own in &mut main.series {
        if let Some(begins_ns) = begins_ns.get(&own.src) {
            own.before = messages_before(own, begins_ns);
        }
    }
    main.count = main.series.iter().map(LoopSeries::iterations).min().unwrap_or(count).min(count);
}

/// Time that each series follows the send before it of the same rank, or, `with_arrivals`, the event
/// before it, in all iterations.
fn pauses_ns(main: &MainLoop, with_arrivals: bool) -> Vec<i64> {
    let mut events: BTreeMap<u32, Vec<(i64, Option<usize>)>> = BTreeMap::new();
    for (index, own) in main.series.iter().enumerate() {
        for (first_ns, last_ns) in (0..main.count).map(|iteration| own.of(iteration)) {
            events.entry(own.src).or_default().push((first_ns, Some(index)));
            if with_arrivals {
                events.entry(own.dst).or_default().push((last_ns, None));
            }
        }
    }
    let mut pauses_ns = vec![0i64; main.series.len()];
    for own in events.values_mut() {
        own.sort_unstable();
        for two in own.windows(2) {
            if let Some(index) = two[1].1 {
                pauses_ns[index] = pauses_ns[index].saturating_add(two[1].0.saturating_sub(two[0].0));
            }
        }
    }
    pauses_ns
}

/// For each rank, the times of the message that begins an iteration.
///
/// All ranks begin with the same step of the program, the one that follows the longest computation
/// of all ranks together: a rank that began with another step would be late or early against them.
/// The pause before the step decides whether a rank begins with it, because messages arrive while a
/// straggler computes. A rank without such a pause sends longer or shorter messages, and begins with
/// the message that is nearest to the step of the others.
fn first_messages(main: &MainLoop, computed_ns: &[i64], role: SeriesRole) -> BTreeMap<u32, Vec<i64>> {
    let mut of_ranks: BTreeMap<u32, Vec<(&LoopSeries, i64)>> = BTreeMap::new();
    let mut by_step: BTreeMap<LoopStep, i64> = BTreeMap::new();
    let sends_ns = pauses_ns(main, false);
    for ((own, computed_ns), pause_ns) in main.series.iter().zip(computed_ns).zip(sends_ns) {
        if own.step.role == role {
            of_ranks.entry(own.src).or_default().push((own, pause_ns));
            *by_step.entry(own.step).or_default() += computed_ns;
        }
    }
    let Some((&step, _)) = by_step.iter().max_by_key(|(_, ns)| **ns) else { return BTreeMap::new() };
    let of_step = || main.series.iter().filter(|own| own.step == step);
    let others_ns: Vec<i64> =
        (0..main.count).map(|iteration| median(of_step().map(|own| own.begin_ns(iteration)).collect())).collect();
    let first = |(rank, series): (u32, Vec<(&LoopSeries, i64)>)| {
        let longest_ns = series.iter().map(|own| own.1).max()?;
        let long = || series.iter().filter(|own| own.1 as f64 >= LONG_SHARE * longest_ns as f64).map(|own| own.0);
        let same = long().filter(|own| own.step == step).min_by_key(|own| own.begin_ns(0));
        let first = same.or_else(|| long().min_by_key(|own| own.offset_ns(&others_ns).unsigned_abs()))?;
        Some((rank, (0..main.count).map(|iteration| first.begin_ns(iteration)).collect()))
    };
    of_ranks.into_iter().filter_map(first).collect()
}

/// The number of messages of the series before the first iteration, if none may precede
/// `begins_ns`.
fn messages_before(own: &mut LoopSeries, begins_ns: &[i64]) -> usize {
    let before = own.before;
    let is_after = |moved: &usize| {
        own.before = *moved;
        own.offset_ns(begins_ns) >= 0
    };
    (before..=before + 1).find(is_after).unwrap_or(before)
}
