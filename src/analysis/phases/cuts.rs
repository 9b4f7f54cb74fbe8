//! Windows -> phases: kernel change-point detection.
//!
//! Two windows are as similar as their traffic is distributed alike: the Bhattacharyya coefficient `sum(sqrt(p * q))` of their shares, by service
//! (twice) and by pair and service (once), 0 to 1. That is a kernel, so a phase costs what its windows lie apart from their mean in the kernel's space:
//! Z. Harchaoui and O. Cappé, "Retrospective multiple change-point estimation with kernels", IEEE/SP 14th Workshop on Statistical Signal Processing,
//! 2007; S. Arlot, A. Celisse and Z. Harchaoui, "A kernel multiple change-point algorithm via model selection", JMLR 20(162), 2019. The phases are
//! those of the least sum of costs and a penalty for each cut, found exactly by dynamic programming (B. Jackson et al., "An algorithm for optimal
//! partitioning of data on an interval", IEEE Signal Processing Letters 12(2), 2005).
//!
//! The traffic is looked at in steps, finer than a window where the profile has finer bins, so that it does not matter where windows would begin. Steps
//! with traffic weigh the same, together one per window, and phases begin at least a window apart. The penalty grows with what successive windows
//! differ anyway, so traffic that is never twice the same is not cut to pieces. Steps without traffic do not count, but a pause that is longer than all
//! others around it makes a cut there cheaper: pauses that come again and again belong to the pattern, and a pause alone, as that of a lost packet, changes
//! none. Rates are not compared: faster or slower is the same pattern.
//!
//! Some cuts need not be looked for: where all connections end and others begin (`turnovers.rs`). No phase goes on across these.

use super::windows::{SERVICES, Service, Window};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A pause of so many windows makes a cut as cheap as a pause can, and this much of the penalty it takes away.
const PAUSE: (f64, f64) = (3.0, 0.8);
/// So many windows to either side of a pause, others are not to be as long.
const AROUND_WINDOWS: i64 = 5;
/// Weights of the two similarities: the services as a whole, and the pairs.
const WEIGHTS: (f64, f64) = (2.0 / 3.0, 1.0 / 3.0);
/// Of the penalty: of the mean distance of successive windows times the logarithm of their number, and the least.
const PENALTY: (f64, f64) = (0.8, 0.3);

/// How far to either side something is to stand out.
pub(super) const fn around_ns(window_ns: i64) -> i64 {
    window_ns.saturating_mul(AROUND_WINDOWS)
}

/// The phases, as ranges of steps. `steps` are those with traffic, `step_ns` wide; a window is `window_ns` wide, and at each of `ends_ns` all connections
/// have ended.
pub(super) fn phases(steps: &[Window], step_ns: i64, window_ns: i64, ends_ns: &BTreeSet<i64>) -> Vec<Range<usize>> {
    if steps.is_empty() {
        return Vec::new();
    }
    let starts_ns: Vec<i64> = steps.iter().map(|step| step.number.saturating_mul(step_ns)).collect();
    let around = Around { starts_ns: &starts_ns };
    let before_ns = window_ns / 2;
    let window_of = |ns: i64| ns.saturating_sub(before_ns)..ns.saturating_add(window_ns - before_ns);
    let weights: Vec<f64> = starts_ns.iter().map(|ns| 1.0 / around.steps(window_of(*ns)).len().max(1) as f64).collect();
    let costs = Costs::new(&similarities(steps), &weights);
    let count = costs.weight(0..steps.len()).max(2.0);
    let penalty = (PENALTY.0 * unrest(&costs, &weights, &around, window_ns) * count.ln()).max(PENALTY.1);
    let pause_ns = |step: usize| {
        let before = step.checked_sub(1).map(|before| starts_ns[before].saturating_add(step_ns));
        before.map_or(0, |before| starts_ns[step].saturating_sub(before).max(0))
    };
    let pauses_ns: Vec<i64> = (0..steps.len()).map(pause_ns).collect();
    let penalties: Vec<f64> = (0..steps.len())
        .map(|step| {
            let far_ns = around_ns(window_ns);
            let near = around.steps(
                starts_ns[step].saturating_sub(far_ns)..starts_ns[step].saturating_add(far_ns).saturating_add(1),
            );
            let is_longest = near.filter(|other| *other != step).all(|other| pauses_ns[other] < pauses_ns[step]);
            let windows = if is_longest { pauses_ns[step] as f64 / window_ns as f64 } else { 0.0 };
            penalty * (1.0 - PAUSE.1 * (windows / PAUSE.0).min(1.0))
        })
        .collect();
    let certain = certain(&starts_ns, window_ns, ends_ns);
    let may_be = |Range { start, end }: Range<usize>| {
        let is_long = starts_ns.get(end).is_none_or(|end_ns| end_ns.saturating_sub(starts_ns[start]) >= window_ns);
        let next = certain.partition_point(|step| *step <= start);
        is_long && certain.get(next).is_none_or(|step| *step >= end)
    };
    segments(&costs, &penalties, may_be)
}

/// The steps with which a phase begins in any case: the first after each end, a window or more from each other and from the first of all.
fn certain(starts_ns: &[i64], window_ns: i64, ends_ns: &BTreeSet<i64>) -> Vec<usize> {
    let mut certain = Vec::new();
    let mut before = 0;
    for end_ns in ends_ns {
        let step = starts_ns.partition_point(|start| start <= end_ns);
        if starts_ns.get(step).is_some_and(|start| start.saturating_sub(starts_ns[before]) >= window_ns) {
            certain.push(step);
            before = step;
        }
    }
    certain
}

/// Which steps lie where.
struct Around<'a> {
    starts_ns: &'a [i64],
}

impl Around<'_> {
    /// The steps that begin in a time.
    fn steps(&self, ns: Range<i64>) -> Range<usize> {
        let before = |ns: i64| self.starts_ns.partition_point(|start| *start < ns);
        before(ns.start)..before(ns.end)
    }
}

/// The mean distance of the window before a step from that which begins with it.
fn unrest(costs: &Costs, weights: &[f64], around: &Around<'_>, window_ns: i64) -> f64 {
    let (mut sum, mut of) = (0.0, 0.0);
    for (step, ns) in around.starts_ns.iter().enumerate() {
        let before = around.steps(ns.saturating_sub(window_ns)..*ns);
        if !before.is_empty() {
            sum += weights[step] * costs.apart(before, around.steps(*ns..ns.saturating_add(window_ns)));
            of += weights[step];
        }
    }
    if of > 0.0 { sum / of } else { 0.0 }
}

/// How similar each two windows are, row by row.
fn similarities(windows: &[Window]) -> Vec<f64> {
    let count = windows.len();
    let mut similar = vec![0.0; count * count];
    let mut roots: BTreeMap<(u32, Service), Vec<(usize, f64)>> = BTreeMap::new();
    let mut services = [const { Vec::new() }; SERVICES];
    for (index, window) in windows.iter().enumerate() {
        let total: f64 = window.parts.iter().map(|(_, _, weight)| weight).sum();
        let mut shares = [0.0; SERVICES];
        for (pair, service, weight) in &window.parts {
            shares[*service as usize] += weight / total;
            roots.entry((*pair, *service)).or_default().push((index, (weight / total).sqrt()));
        }
        for (service, share) in services.iter_mut().zip(shares) {
            service.push((index, share.sqrt()));
        }
    }
    let parts = services.iter().map(|roots| (WEIGHTS.0, roots)).chain(roots.values().map(|roots| (WEIGHTS.1, roots)));
    for (weight, roots) in parts {
        for (row, a) in roots {
            for (column, b) in roots {
                similar[row * count + column] += weight * a * b;
            }
        }
    }
    similar
}

/// What a phase costs, from sums over rectangles of similarities.
struct Costs {
    /// Sum over the rows and columns before, one more of each than there are steps.
    sums: Vec<f64>,
    /// Sum of the steps' similarities to themselves before.
    own: Vec<f64>,
    /// Sum of the weights before.
    weights: Vec<f64>,
    side: usize,
}

impl Costs {
    fn new(similar: &[f64], weights: &[f64]) -> Self {
        let count = weights.len();
        let side = count + 1;
        let mut sums = vec![0.0; side * side];
        let (mut own, mut before) = (vec![0.0; side], vec![0.0; side]);
        for row in 0..count {
            own[row + 1] = own[row] + weights[row] * similar[row * count + row];
            before[row + 1] = before[row] + weights[row];
            let mut of_row = 0.0;
            for column in 0..count {
                of_row += weights[row] * weights[column] * similar[row * count + column];
                sums[(row + 1) * side + column + 1] = sums[row * side + column + 1] + of_row;
            }
        }
        Self { sums, own, weights: before, side }
    }

    fn weight(&self, steps: Range<usize>) -> f64 {
        self.weights[steps.end] - self.weights[steps.start]
    }

    /// Sum over some rows and some columns.
    fn sum(&self, rows: Range<usize>, columns: Range<usize>) -> f64 {
        let at = |row: usize, column: usize| self.sums[row * self.side + column];
        at(rows.end, columns.end) - at(rows.start, columns.end) - at(rows.end, columns.start)
            + at(rows.start, columns.start)
    }

    fn of(&self, steps: Range<usize>) -> f64 {
        self.own[steps.end] - self.own[steps.start] - self.sum(steps.clone(), steps.clone()) / self.weight(steps)
    }

    /// How far the means of two stretches lie apart: half the square of their distance, 0 to 1.
    fn apart(&self, a: Range<usize>, b: Range<usize>) -> f64 {
        let (of_a, of_b) = (self.weight(a.clone()), self.weight(b.clone()));
        let (inside_a, inside_b) = (self.sum(a.clone(), a.clone()), self.sum(b.clone(), b.clone()));
        f64::midpoint(inside_a / (of_a * of_a), inside_b / (of_b * of_b)) - self.sum(a, b) / (of_a * of_b)
    }
}

/// The cheapest of all phases that may be, of which each costs its penalty too; of equal ones those with the longest last phase.
fn segments(costs: &Costs, penalties: &[f64], may_be: impl Fn(Range<usize>) -> bool) -> Vec<Range<usize>> {
    let mut best = vec![(0.0, 0)];
    for end in 1..=penalties.len() {
        let mut cheapest = (f64::INFINITY, 0);
        for start in (0..end).filter(|start| may_be(*start..end)) {
            let cost = best[start].0 + costs.of(start..end) + penalties[start];
            if cost < cheapest.0 - 1e-9 {
                cheapest = (cost, start);
            }
        }
        best.push(cheapest);
    }
    let mut segments = Vec::new();
    let mut end = penalties.len();
    while end > 0 {
        let start = best[end].1;
        segments.push(start..end);
        end = start;
    }
    segments.reverse();
    segments
}
