//! Neighbours on a grid whose places are numbered in the order of ranks (the last dimension first, or the first: both are tried).

/// Grids that patterns are held against: more dimensions, or sides, fit by chance.
const DIMENSIONS: usize = 3;
/// A side shorter than this has the same neighbours with corners as everyone with everyone.
const SHORTEST_WITH_CORNERS: u32 = 4;

/// A grid. Sides of 1 are dimensions that it does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    pub(super) sides: [u32; DIMENSIONS],
    /// The last is a neighbour of the first.
    pub(super) is_round: [bool; DIMENSIONS],
    /// Neighbours across corners count too.
    pub(super) has_corners: bool,
}

/// The sides of a grid, whatever its neighbors are: 1 for dimensions that it does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sides([u32; DIMENSIONS]);

/// Steps from a place to half of those around it, straight ones first; the other half are the same pairs from the other end.
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
/// How many of them are straight.
const STRAIGHT_STEPS: usize = 3;

/// How many pairs of neighbors there are of some kind, on all grids of the same sides at once: by the dimensions (bits) in
/// which only a round grid has them, straight ones and those across corners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Neighbors {
    straight: [u64; 1 << DIMENSIONS],
    across_corners: [u64; 1 << DIMENSIONS],
}

impl Neighbors {
    /// Those that are neighbors on this grid.
    pub(super) fn on(&self, grid: &Grid) -> u64 {
        let round = grid.is_round.iter().rev().fold(0, |bits, is_round| bits << 1 | usize::from(*is_round));
        let wraps = (0..1 << DIMENSIONS).filter(|around: &usize| around & !round == 0);
        let corners = |around: usize| if grid.has_corners { self.across_corners[around] } else { 0 };
        wraps.map(|around| self.straight[around] + corners(around)).sum()
    }
}

impl Sides {
    /// The sides of all grids of so many places with two or three dimensions.
    pub(super) fn all(places: u32) -> Vec<Self> {
        let mut all = Vec::new();
        for first in divisors(places) {
            for second in divisors(places / first) {
                // Of two dimensions the third side is 1.
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
            // A side of 2 has one neighbor either way.
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

    /// Counts the pairs of neighbors that are of a kind, the lower place first. It takes as long as there are places.
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

    /// The place one step away, and the dimensions (bits) in which the step goes around the end.
    fn stepped(self, at: [u32; DIMENSIONS], step: [i32; DIMENSIONS]) -> Option<(u32, usize)> {
        let (mut place, mut around) = (0, 0);
        for dimension in 0..DIMENSIONS {
            let side = self.0[dimension];
            let next = match at[dimension].checked_add_signed(step[dimension]) {
                Some(next) if next < side => next,
                // A side of 2 has one neighbor either way.
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
    /// How many dimensions it has.
    pub(super) fn dimensions(&self) -> usize {
        self.sides.iter().filter(|side| **side > 1).count()
    }

    /// True where all its sides are 2: then it is what exchanges with partners at distances of powers of two look like as well.
    pub(super) fn is_hypercube(&self) -> bool {
        self.sides.iter().all(|side| *side <= 2)
    }

    /// How many pairs of neighbours there are.
    pub(super) fn pairs(&self) -> u64 {
        let places: u64 = self.sides.iter().map(|side| u64::from(*side)).product();
        // Ordered pairs along one side, each with itself too.
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

    /// True where two places are neighbors, by how far they are apart in each dimension.
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

    /// Every grid against the distances of each two of its places: all pairs, and those of a kind.
    #[test]
    fn neighbors_are_one_step_apart() {
        let is_odd = |a: u32, b: u32| (a * 7 + b * 3) % 5 < 2;
        for places in [4, 6, 8, 12, 16, 27, 36, 64] {
            let pairs: Vec<(u32, u32)> = (0..places).flat_map(|b| (0..b).map(move |a| (a, b))).collect();
            for sides in Sides::all(places) {
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

    /// 720 = 2^4 x 3^2 x 5 is a product of three in 15 x 6 x 3 ways, of which 1 x n x m and n x 1 x m, 30 each, are left out.
    #[test]
    fn looking_at_all_grids_takes_as_many_steps_as_there_are_places() {
        let looked = std::cell::Cell::new(0_u64);
        let all = Sides::all(720);
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
        let sides: Vec<[u32; 3]> = Sides::all(16).iter().map(|sides| sides.0).collect();
        assert_eq!(sides, [[2, 2, 4], [2, 4, 2], [2, 8, 1], [4, 2, 2], [4, 4, 1], [8, 2, 1]]);
        assert!(Sides::all(7).is_empty());
    }
}
