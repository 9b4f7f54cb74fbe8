//! Windows -> phases: kernel change-point detection.
//!
//! Two windows are as similar as their traffic is distributed alike: the Bhattacharyya coefficient `sum(sqrt(p * q))` of their shares, by service
//! (twice) and by pair and service (once), 0 to 1. That is a kernel, so a phase costs what its windows lie apart from their mean in the kernel's space:
//! Z. Harchaoui and O. Cappé, "Retrospective multiple change-point estimation with kernels", IEEE/SP 14th Workshop on Statistical Signal Processing,
//! 2007; S. Arlot, A. Celisse and Z. Harchaoui, "A kernel multiple change-point algorithm via model selection", JMLR 20(162), 2019. The phases are
//! those of the least sum of costs and a penalty for each cut, found exactly by dynamic programming (B. Jackson et al., "An algorithm for optimal
//! partitioning of data on an interval", IEEE Signal Processing Letters 12(2), 2005).
//!
//! The penalty grows with what successive windows differ anyway, so traffic that is never twice the same is not cut to pieces. Windows without
//! traffic do not count, but the longer a pause the cheaper is a cut there. Rates are not compared: faster or slower is the same pattern.

use super::windows::{SERVICES, Service, Window};
use std::collections::BTreeMap;
use std::ops::Range;

/// After so many windows in a row without traffic a cut costs nothing.
const PAUSE_WINDOWS: i64 = 5;
/// Weights of the two similarities: the services as a whole, and the pairs.
const WEIGHTS: (f64, f64) = (2.0 / 3.0, 1.0 / 3.0);
/// Of the penalty: of the mean distance of successive windows times the logarithm of their number, and the least.
const PENALTY: (f64, f64) = (0.6, 0.3);

/// The phases, as ranges of windows.
pub(super) fn phases(windows: &[Window]) -> Vec<Range<usize>> {
    let count = windows.len();
    if count == 0 {
        return Vec::new();
    }
    let similar = similarities(windows);
    let apart: f64 = (1..count).map(|next| 1.0 - similar[(next - 1) * count + next]).sum();
    let noise = apart / (count - 1).max(1) as f64;
    let penalty = (PENALTY.0 * noise * (count as f64).ln()).max(PENALTY.1);
    let penalty_before = |window: usize| {
        let before = window.checked_sub(1).map_or(i64::MIN, |before| windows[before].number);
        let pause = windows[window].number.saturating_sub(before).saturating_sub(1).min(PAUSE_WINDOWS);
        penalty * (1.0 - pause as f64 / PAUSE_WINDOWS as f64)
    };
    let penalties: Vec<f64> = (0..count).map(penalty_before).collect();
    segments(&Costs::new(&similar, count), &penalties)
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
    /// Sum over the rows and columns before, one more of each than there are windows.
    sums: Vec<f64>,
    /// Sum of the windows' similarities to themselves before.
    own: Vec<f64>,
    side: usize,
}

impl Costs {
    fn new(similar: &[f64], count: usize) -> Self {
        let side = count + 1;
        let mut sums = vec![0.0; side * side];
        let mut own = vec![0.0; side];
        for row in 0..count {
            own[row + 1] = own[row] + similar[row * count + row];
            let mut of_row = 0.0;
            for column in 0..count {
                of_row += similar[row * count + column];
                sums[(row + 1) * side + column + 1] = sums[row * side + column + 1] + of_row;
            }
        }
        Self { sums, own, side }
    }

    fn of(&self, Range { start, end }: Range<usize>) -> f64 {
        let at = |row: usize, column: usize| self.sums[row * self.side + column];
        let inside = at(end, end) - at(start, end) - at(end, start) + at(start, start);
        self.own[end] - self.own[start] - inside / (end - start) as f64
    }
}

/// The cheapest phases, of which each costs its penalty too; of equal ones those with the longest last phase.
fn segments(costs: &Costs, penalties: &[f64]) -> Vec<Range<usize>> {
    let mut best = vec![(0.0, 0)];
    for end in 1..=penalties.len() {
        let mut cheapest = (f64::INFINITY, 0);
        for start in 0..end {
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
