//! Counts neighbors on grids whose places are numbered in rank order.
//!
//! In: a number of places and a predicate on pairs of places. Out: the number of neighbor pairs of
//! each grid that satisfy the predicate. Row-major and column-major numbering are both covered,
//! because the sides occur in every order.

/// Maximum number of dimensions of a grid: with more dimensions or sides, patterns fit by chance.
const DIMENSIONS: usize = 3;
/// On a shorter side, neighbors with corners are the same as all pairs.
const SHORTEST_WITH_CORNERS: u32 = 4;

/// A grid. Sides of 1 are unused dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    pub(super) sides: [u32; DIMENSIONS],
    /// True for dimensions in which the last place is a neighbor of the first.
    pub(super) is_round: [bool; DIMENSIONS],
    /// True if neighbors across corners count.
    pub(super) has_corners: bool,
}

/// The sides of a grid, without a choice of neighbors. Sides of 1 are unused dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GridSides([u32; DIMENSIONS]);

/// Steps from a place to half of its neighbors, straight steps first. The other half are the same
/// pairs from the other end.
const STEPS: [[i32; DIMENSIONS]; 13] = [
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1],
    [1, 1, 0],
    [1, -1, 0],
    [1, 0, 1],
    [1, 0, -1],
    [0, 1, 1],
    [0, 1, -1],
    [1, 1, 1],
    [1, 1, -1],
    [1, -1, 1],
    [1, -1, -1],
];
/// Number of straight steps in [`STEPS`].
const STRAIGHT_STEPS: usize = 3;

/// Numbers of neighbor pairs on all grids with the same sides: straight pairs and pairs across
/// corners. The index is the set of dimensions (bits) in which the pair wraps around.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Neighbors {
    straight: [u64; 1 << DIMENSIONS],
    across_corners: [u64; 1 << DIMENSIONS],
}

impl Neighbors {
    /// The number of pairs that are neighbors on this grid.
    pub(super) fn on(&self, grid: &Grid) -> u64 {
        let round = grid.is_round.iter().rev().fold(0, |bits, is_round| bits << 1 | usize::from(*is_round));
        let wraps = (0..1 << DIMENSIONS).filter(|around: &usize| around & !round == 0);
        let corners = |around: usize| if grid.has_corners { self.across_corners[around] } else { 0 };
        wraps.map(|around| self.straight[around] + corners(around)).sum()
    }
}

impl GridSides {
    /// The sides of all grids of `places` places with two or three dimensions.
    pub(super) fn all(places: u32) -> Vec<Self> {
        let mut all = Vec::new();
        for first in divisors(places) {
            for second in divisors(places / first) {
                // A grid of two dimensions has a third side of 1.
                if first > 1 && second > 1 {
                    all.push(Self([first, second, places / first / second]));
                }
            }
        }
        all
    }

    /// All grids with these sides.
    pub(super) fn grids(self) -> Vec<Grid> {
        let Self(sides) = self;
        let mut grids = Vec::new();
        for round in 0..8_u8 {
            let is_round = [0, 1, 2].map(|dimension| round >> dimension & 1 == 1);
            // On a side of 2, both directions lead to the same neighbor.
            if sides.iter().zip(is_round).any(|(side, is_round)| is_round && *side <= 2) {
                continue;
            }
            let corners: &[bool] = if self.may_have_corners() { &[false, true] } else { &[false] };
            grids.extend(corners.iter().map(|&has_corners| Grid { sides, is_round, has_corners }));
        }
        grids
    }

    fn may_have_corners(self) -> bool {
        self.0.iter().all(|side| *side == 1 || *side >= SHORTEST_WITH_CORNERS)
    }

    /// Counts the neighbor pairs that satisfy `is_of_kind`, which gets the lower place first. The
    /// time is linear in the number of places.
    pub(super) fn neighbors(self, is_of_kind: impl Fn(u32, u32) -> bool) -> Neighbors {
        let [first, second, third] = self.0;
        let steps = if self.may_have_corners() { &STEPS[..] } else { &STEPS[..STRAIGHT_STEPS] };
        let mut found = Neighbors::default();
        for place in 0..first * second * third {
            let at = [place / (second * third), place / third % second, place % third];
            for (index, step) in steps.iter().enumerate() {
                let Some((other, around)) = self.stepped(at, *step) else { continue };
                if is_of_kind(place.min(other), place.max(other)) {
                    let counts = if index < STRAIGHT_STEPS { &mut found.straight } else { &mut found.across_corners };
                    counts[around] += 1;
                }
            }
        }
        found
    }

    /// The place one step away, and the dimensions (bits) in which the step wraps around.
    fn stepped(self, at: [u32; DIMENSIONS], step: [i32; DIMENSIONS]) -> Option<(u32, usize)> {
        let (mut place, mut around) = (0, 0);
        for dimension in 0..DIMENSIONS {
            let side = self.0[dimension];
            let next = match at[dimension].checked_add_signed(step[dimension]) {
                Some(next) if next < side => next,
                // On a side of 2, both directions lead to the same neighbor.
                _ if side <= 2 => return None,
                beyond => {
                    around |= 1 << dimension;
                    if beyond.is_some() { 0 } else { side - 1 }
                }
            };
            place = place * side + next;
        }
        Some((place, around))
    }
}

impl Grid {
    /// Number of dimensions.
    pub(super) fn dimensions(&self) -> usize {
        self.sides.iter().filter(|side| **side > 1).count()
    }

    /// True if all sides are at most 2. Exchanges with partners at distances of powers of two have
    /// the same pairs.
    pub(super) fn is_hypercube(&self) -> bool {
        self.sides.iter().all(|side| *side <= 2)
    }

    /// Number of neighbor pairs.
    pub(super) fn pairs(&self) -> u64 {
        let places: u64 = self.sides.iter().map(|side| u64::from(*side)).product();
        // Ordered pairs along one side, including each place with itself.
        let along = self.sides.iter().zip(self.is_round).map(|(side, is_round)| {
            let side = u64::from(*side);
            if is_round { 3 * side } else { 3 * side - 2 }
        });
        if self.has_corners {
            (along.product::<u64>() - places) / 2
        } else {
            along.zip(self.sides).map(|(pairs, side)| (pairs - u64::from(side)) / 2 * (places / u64::from(side))).sum()
        }
    }
}

fn divisors(number: u32) -> impl Iterator<Item = u32> {
    (1..=number).filter(move |divisor| number.is_multiple_of(*divisor))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// True if two places are neighbors, computed from their distance in each dimension.
    fn are_neighbors(grid: &Grid, a: u32, b: u32) -> bool {
        let [_, second, third] = grid.sides;
        let at = |place: u32| [place / (second * third), place / third % second, place % third];
        let (a, b) = (at(a), at(b));
        let apart = |dimension: usize| {
            let along = a[dimension].abs_diff(b[dimension]);
            if grid.is_round[dimension] { along.min(grid.sides[dimension].abs_diff(along)) } else { along }
        };
        let apart: [u32; DIMENSIONS] = std::array::from_fn(apart);
        if grid.has_corners { apart.iter().max() == Some(&1) } else { apart.iter().sum::<u32>() == 1 }
    }

    /// Compares every grid with the distances of all pairs of its places: all pairs, and those of a
    /// kind.
    #[test]
    fn neighbors_are_one_step_apart() {
        let is_odd = |a: u32, b: u32| (a * 7 + b * 3) % 5 < 2;
        for places in [4, 6, 8, 12, 16, 27, 36, 64] {
            let pairs: Vec<(u32, u32)> = (0..places).flat_map(|b| (0..b).map(move |a| (a, b))).collect();
            for sides in GridSides::all(places) {
                let (all, odd) = (sides.neighbors(|_, _| true), sides.neighbors(is_odd));
                for grid in sides.grids() {
                    let expected: Vec<_> = pairs.iter().filter(|(a, b)| are_neighbors(&grid, *a, *b)).collect();
                    let expected_odd = expected.iter().filter(|(a, b)| is_odd(*a, *b)).count() as u64;
                    assert_eq!(all.on(&grid), expected.len() as u64, "{grid:?}");
                    assert_eq!(grid.pairs(), expected.len() as u64, "{grid:?}");
                    assert_eq!(odd.on(&grid), expected_odd, "{grid:?}");
                }
            }
        }
    }

    /// 720 = 2^4 x 3^2 x 5 is a product of three in 15 x 6 x 3 ways, of which 1 x n x m and n x 1 x
    /// m, 30 each, are omitted.
    #[test]
    fn looking_at_all_grids_takes_as_many_steps_as_there_are_places() {
        let looked = std::cell::Cell::new(0_u64);
        let all = GridSides::all(720);
        let count = |_, _| {
            looked.set(looked.get() + 1);
            true
        };
        all.iter().for_each(|sides| _ = sides.neighbors(count));
        let most = all.len() as u64 * 720 * STEPS.len() as u64;
        assert_eq!(all.len(), 270 - 30 - 30 + 1);
        assert!(looked.get() <= most, "{} steps, more than {most}", looked.get());
    }

    #[test]
    fn grids_of_16_places() {
        let sides: Vec<[u32; 3]> = GridSides::all(16).iter().map(|sides| sides.0).collect();
        assert_eq!(sides, [[2, 2, 4], [2, 4, 2], [2, 8, 1], [4, 2, 2], [4, 4, 1], [8, 2, 1]]);
        assert!(GridSides::all(7).is_empty());
    }
}
