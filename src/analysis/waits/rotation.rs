//! Rotates the main loop so that its iterations begin where the ranks compute longest.
//!
//! The numbers of messages show how many iterations there are, not where one begins: a loop of
//! computation, exchange and barrier has the same messages as a loop of barrier, computation and
//! exchange. A straggler shows at the first message after its computation, so this message has to be
//! the first of the iteration.

use super::iterations::{LoopSeries, MainLoop, offset_ns};
use super::series::SeriesRole;
use std::collections::BTreeMap;

/// An iteration begins with the first message of a rank that follows at least this share of its
/// longest computation.
const LONG_SHARE: f64 = 0.5;

/// Rotates the loop. It loses its last iteration if some messages move to the iteration before.
pub(super) fn rotate(main: &mut MainLoop) {
    let computed_ns = computed_ns(main);
    let mut by_role: BTreeMap<SeriesRole, i64> = BTreeMap::new();
    for (own, ns) in main.series.iter().zip(&computed_ns) {
        *by_role.entry(own.role).or_default() += ns;
    }
    let Some((&role, _)) = by_role.iter().max_by_key(|(_, ns)| **ns) else { return };
    let begins_ns = first_messages(main, &computed_ns, role);
    let count = main.count;
    for own in &mut main.series {
        if let Some(begins_ns) = begins_ns.get(&own.src) {
            own.before = messages_before(own, begins_ns);
        }
    }
    main.count = main.series.iter().map(LoopSeries::iterations).min().unwrap_or(count).min(count);
}

/// Time that each series follows without any other event of its sender, in all iterations.
fn computed_ns(main: &MainLoop) -> Vec<i64> {
    let mut events: BTreeMap<u32, Vec<(i64, Option<usize>)>> = BTreeMap::new();
    for (index, own) in main.series.iter().enumerate() {
        for (first_ns, last_ns) in (0..main.count).flat_map(|iteration| own.of(iteration)) {
            events.entry(own.src).or_default().push((*first_ns, Some(index)));
            events.entry(own.dst).or_default().push((*last_ns, None));
        }
    }
    let mut computed_ns = vec![0i64; main.series.len()];
    for own in events.values_mut() {
        own.sort_unstable();
        for two in own.windows(2) {
            if let Some(index) = two[1].1 {
                computed_ns[index] = computed_ns[index].saturating_add(two[1].0.saturating_sub(two[0].0));
            }
        }
    }
    computed_ns
}

/// For each rank, the times of the message that begins an iteration.
fn first_messages(main: &MainLoop, computed_ns: &[i64], role: SeriesRole) -> BTreeMap<u32, Vec<i64>> {
    let mut of_ranks: BTreeMap<u32, Vec<(&LoopSeries, i64)>> = BTreeMap::new();
    for (own, ns) in main.series.iter().zip(computed_ns).filter(|(own, _)| own.role == role) {
        of_ranks.entry(own.src).or_default().push((own, *ns));
    }
    let first = |(rank, series): (u32, Vec<(&LoopSeries, i64)>)| {
        let longest_ns = series.iter().map(|own| own.1).max()?;
        let long = series.into_iter().filter(|own| own.1 as f64 >= LONG_SHARE * longest_ns as f64);
        let (first, _) = long.min_by_key(|(own, _)| own.begin_ns(0))?;
        Some((rank, (0..main.count).map(|iteration| first.begin_ns(iteration)).collect()))
    };
    of_ranks.into_iter().filter_map(first).collect()
}

/// The number of messages of the series before the first iteration, if none may precede
/// `begins_ns`.
fn messages_before(own: &mut LoopSeries, begins_ns: &[i64]) -> usize {
    let (before, per_iteration) = (own.before, own.per_iteration);
    let is_after = |moved: &usize| {
        own.before = *moved;
        offset_ns(own, begins_ns) >= 0
    };
    (before..=before + per_iteration).find(is_after).unwrap_or(before)
}
