//! Windows -> phases, by kernel change-point detection.
//!
//! In: the traffic of each time step, by pair and message category. Out: ranges of steps, one per
//! phase. Phases never overlap, and each is at least one window long (the last may be shorter).
//!
//! Two steps are similar if their traffic is distributed alike: the similarity is the Bhattacharyya
//! coefficient `sum(sqrt(p * q))` of their shares by category (weight 2/3) and by pair and category
//! (weight 1/3), from 0 to 1. The coefficient is a kernel, so the cost of a phase is the distance
//! of its steps from their mean in the space of the kernel: Z. Harchaoui and O. Cappé,
//! "Retrospective multiple change-point estimation with kernels", IEEE/SP 14th Workshop on
//! Statistical Signal Processing, 2007; S. Arlot, A. Celisse and Z. Harchaoui, "A kernel multiple
//! change-point algorithm via model selection", JMLR 20(162), 2019. Dynamic programming finds the
//! phases with the least sum of costs and of a penalty per change point (B. Jackson et al., "An
//! algorithm for optimal partitioning of data on an interval", IEEE Signal Processing Letters
//! 12(2), 2005).
//!
//! If the profile has finer bins, steps are narrower than a window, so the result does not depend
//! on where windows would begin. The steps of one window together weigh as much as those of any
//! other. The penalty grows with the mean difference between successive windows, so traffic that
//! always changes is not split into many phases. Steps without traffic have no weight, but a pause
//! that is longer than all others nearby reduces the penalty of a change point after it: recurring
//! pauses belong to the pattern, and a pause alone, as after a lost packet, splits no phase. Rates
//! are not compared: the same pattern at another speed is the same phase.
//!
//! Some change points are given: the moments at which all connections end and others begin
//! (`turnovers.rs`). No phase spans such a moment.

use super::windows::{MESSAGE_CATEGORIES, MessageCategory, Window};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Length of a pause in windows that has the full effect, and the share of the penalty that it then
/// removes.
const PAUSE: (f64, f64) = (3.0, 0.8);
/// The pause must be the longest one within this many windows on either side.
const NEIGHBORHOOD_WINDOWS: i64 = 5;
/// Weights of the two similarities: by category, and by pair and category.
const WEIGHTS: (f64, f64) = (2.0 / 3.0, 1.0 / 3.0);
/// The penalty: its factor (times the mean distance of successive windows times the logarithm of
/// their number), and its minimum.
const PENALTY: (f64, f64) = (0.8, 0.3);

/// How far on either side of a pause or turnover others are compared with it, in nanoseconds.
pub(super) const fn neighborhood_ns(window_ns: i64) -> i64 {
    window_ns.saturating_mul(NEIGHBORHOOD_WINDOWS)
}

/// The phases, as ranges of `steps`. `steps` are the non-empty steps of width `step_ns`, a window
/// is `window_ns` wide, and all connections have ended at each of `ends_ns`.
pub(super) fn phases(steps: &[Window], step_ns: i64, window_ns: i64, ends_ns: &BTreeSet<i64>) -> Vec<Range<usize>> {
    if steps.is_empty() {
        return Vec::new();
    }
    let starts_ns: Vec<i64> = steps.iter().map(|step| step.number.saturating_mul(step_ns)).collect();
    let around = StepLocator { starts_ns: &starts_ns };
    let before_ns = window_ns / 2;
    let window_of = |ns: i64| ns.saturating_sub(before_ns)..ns.saturating_add(window_ns - before_ns);
    let weights: Vec<f64> = starts_ns.iter().map(|ns| 1.0 / around.steps(window_of(*ns)).len().max(1) as f64).collect();
    let costs = Costs::new(&similarities(steps), &weights);
    let count = costs.weight(0..steps.len()).max(2.0);
    let penalty = (PENALTY.0 * mean_window_distance(&costs, &weights, &around, window_ns) * count.ln()).max(PENALTY.1);
    let pause_ns = |step: usize| {
        let before = step.checked_sub(1).map(|before| starts_ns[before].saturating_add(step_ns));
        before.map_or(0, |before| starts_ns[step].saturating_sub(before).max(0))
    };
    let pauses_ns: Vec<i64> = (0..steps.len()).map(pause_ns).collect();
    let penalties: Vec<f64> = (0..steps.len())
        .map(|step| {
            let far_ns = neighborhood_ns(window_ns);
            let near = around.steps(
                starts_ns[step].saturating_sub(far_ns)..starts_ns[step].saturating_add(far_ns).saturating_add(1),
            );
            let is_longest = near.filter(|other| *other != step).all(|other| pauses_ns[other] < pauses_ns[step]);
            let windows = if is_longest { pauses_ns[step] as f64 / window_ns as f64 } else { 0.0 };
            penalty * (1.0 - PAUSE.1 * (windows / PAUSE.0).min(1.0))
        })
        .collect();
    let forced = forced_change_points(&starts_ns, window_ns, ends_ns);
    let is_allowed = |Range { start, end }: Range<usize>| {
        let is_long = starts_ns.get(end).is_none_or(|end_ns| end_ns.saturating_sub(starts_ns[start]) >= window_ns);
        let next = forced.partition_point(|step| *step <= start);
        is_long && forced.get(next).is_none_or(|step| *step >= end)
    };
    segments(&costs, &penalties, is_allowed)
}

/// The steps that begin a phase in any case: the first step after each of `ends_ns`, if it is at
/// least a window after the first step and after the forced change point before.
fn forced_change_points(starts_ns: &[i64], window_ns: i64, ends_ns: &BTreeSet<i64>) -> Vec<usize> {
    let mut forced = Vec::new();
    let mut before = 0;
    for end_ns in ends_ns {
        let step = starts_ns.partition_point(|start| start <= end_ns);
        if starts_ns.get(step).is_some_and(|start| start.saturating_sub(starts_ns[before]) >= window_ns) {
            forced.push(step);
            before = step;
        }
    }
    forced
}

/// Finds the steps in a time range.
struct StepLocator<'a> {
    starts_ns: &'a [i64],
}

impl StepLocator<'_> {
    /// The steps that begin within a time range.
    fn steps(&self, ns: Range<i64>) -> Range<usize> {
        let before = |ns: i64| self.starts_ns.partition_point(|start| *start < ns);
        before(ns.start)..before(ns.end)
    }
}

/// The mean distance between the window before a step and the window that begins with the step.
fn mean_window_distance(costs: &Costs, weights: &[f64], around: &StepLocator<'_>, window_ns: i64) -> f64 {
    let (mut sum, mut of) = (0.0, 0.0);
    for (step, ns) in around.starts_ns.iter().enumerate() {
        let before = around.steps(ns.saturating_sub(window_ns)..*ns);
        if !before.is_empty() {
            sum += weights[step] * costs.distance(before, around.steps(*ns..ns.saturating_add(window_ns)));
            of += weights[step];
        }
    }
    if of > 0.0 { sum / of } else { 0.0 }
}

/// The similarity of each pair of windows, row by row.
fn similarities(windows: &[Window]) -> Vec<f64> {
    let count = windows.len();
    let mut similar = vec![0.0; count * count];
    let mut roots: BTreeMap<(u32, MessageCategory), Vec<(usize, f64)>> = BTreeMap::new();
    let mut services = [const { Vec::new() }; MESSAGE_CATEGORIES];
    for (index, window) in windows.iter().enumerate() {
        let total: f64 = window.parts.iter().map(|(_, _, weight)| weight).sum();
        let mut shares = [0.0; MESSAGE_CATEGORIES];
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

/// The costs of phases, computed from prefix sums of the similarities.
struct Costs {
    /// Sums over all rows and columns before, as a matrix of `side` rows.
    sums: Vec<f64>,
    /// Sums of each step's similarity to itself, over the steps before.
    own: Vec<f64>,
    /// Sums of the weights of the steps before.
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

    /// The sum over a rectangle of rows and columns.
    fn sum(&self, rows: Range<usize>, columns: Range<usize>) -> f64 {
        let at = |row: usize, column: usize| self.sums[row * self.side + column];
        at(rows.end, columns.end) - at(rows.start, columns.end) - at(rows.end, columns.start)
            + at(rows.start, columns.start)
    }

    fn of(&self, steps: Range<usize>) -> f64 {
        self.own[steps.end] - self.own[steps.start] - self.sum(steps.clone(), steps.clone()) / self.weight(steps)
    }

    /// Half the squared distance between the means of two ranges of steps, 0 to 1.
    fn distance(&self, a: Range<usize>, b: Range<usize>) -> f64 {
        let (of_a, of_b) = (self.weight(a.clone()), self.weight(b.clone()));
        let (inside_a, inside_b) = (self.sum(a.clone(), a.clone()), self.sum(b.clone(), b.clone()));
        f64::midpoint(inside_a / (of_a * of_a), inside_b / (of_b * of_b)) - self.sum(a, b) / (of_a * of_b)
    }
}

/// The cheapest segmentation into allowed phases, each with its cost and penalty. Of equally cheap
/// ones, the one with the longest last phase.
fn segments(costs: &Costs, penalties: &[f64], is_allowed: impl Fn(Range<usize>) -> bool) -> Vec<Range<usize>> {
    let mut best = vec![(0.0, 0)];
    for end in 1..=penalties.len() {
        let mut cheapest = (f64::INFINITY, 0);
        for start in (0..end).filter(|start| is_allowed(*start..end)) {
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
