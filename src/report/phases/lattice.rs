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

impl Grid {
    /// All grids of so many places with two or three dimensions.
    pub(super) fn all(places: u32) -> Vec<Self> {
        let mut grids = Vec::new();
        for first in divisors(places) {
            for second in divisors(places / first) {
                let sides = [first, second, places / first / second];
                // Of two dimensions the third side is 1.
                if first == 1 || second == 1 {
                    continue;
                }
                for round in 0..8_u8 {
                    let is_round = [0, 1, 2].map(|dimension| round >> dimension & 1 == 1);
                    // A side of 2 has one neighbour either way.
                    if sides.iter().zip(is_round).any(|(side, is_round)| is_round && *side <= 2) {
                        continue;
                    }
                    let corners: &[bool] = if sides.iter().all(|side| *side == 1 || *side >= SHORTEST_WITH_CORNERS) {
                        &[false, true]
                    } else {
                        &[false]
                    };
                    grids.extend(corners.iter().map(|&has_corners| Self { sides, is_round, has_corners }));
                }
            }
        }
        grids
    }

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

    /// True where two places are neighbours.
    pub(super) fn are_neighbours(&self, a: u32, b: u32) -> bool {
        let [_, second, third] = self.sides;
        let at = |place: u32| [place / (second * third), place / third % second, place % third];
        let (a, b) = (at(a), at(b));
        let apart = |dimension: usize| {
            let along = a[dimension].abs_diff(b[dimension]);
            if self.is_round[dimension] { along.min(self.sides[dimension].abs_diff(along)) } else { along }
        };
        let apart: [u32; DIMENSIONS] = std::array::from_fn(apart);
        if self.has_corners { apart.iter().max() == Some(&1) } else { apart.iter().sum::<u32>() == 1 }
    }
}

fn divisors(number: u32) -> impl Iterator<Item = u32> {
    (1..=number).filter(move |divisor| number.is_multiple_of(*divisor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Every grid against steps from each of its places.
    #[test]
    fn neighbours_are_one_step_apart() {
        for places in [4, 6, 8, 12, 16, 27, 36, 64] {
            for grid in Grid::all(places) {
                let [_, second, third] = grid.sides.map(i64::from);
                let step = |place: u32, by: [i64; 3]| -> Option<u32> {
                    let place = i64::from(place);
                    let mut at = [place / (second * third), place / third % second, place % third];
                    for dimension in 0..3 {
                        let side = i64::from(grid.sides[dimension]);
                        at[dimension] += by[dimension];
                        if grid.is_round[dimension] {
                            at[dimension] = (at[dimension] + side) % side;
                        }
                        if !(0..side).contains(&at[dimension]) {
                            return None;
                        }
                    }
                    u32::try_from(at[0] * second * third + at[1] * third + at[2]).ok()
                };
                let steps: Vec<[i64; 3]> = (0..27)
                    .map(|n| [n / 9 - 1, n / 3 % 3 - 1, n % 3 - 1])
                    .filter(|by| {
                        *by != [0; 3] && (grid.has_corners || by.iter().filter(|part| **part != 0).count() == 1)
                    })
                    .collect();
                let mut pairs = 0;
                for place in 0..places {
                    let reached: BTreeSet<u32> = steps.iter().filter_map(|by| step(place, *by)).collect();
                    for other in 0..places {
                        assert_eq!(
                            grid.are_neighbours(place, other),
                            reached.contains(&other),
                            "{grid:?} {place} {other}"
                        );
                    }
                    pairs += reached.len() as u64;
                }
                assert_eq!(grid.pairs() * 2, pairs, "{grid:?}");
            }
        }
    }

    #[test]
    fn grids_of_16_places() {
        let mut sides: Vec<[u32; 3]> = Grid::all(16).iter().map(|grid| grid.sides).collect();
        sides.dedup();
        assert_eq!(sides, [[2, 2, 4], [2, 4, 2], [2, 8, 1], [4, 2, 2], [4, 4, 1], [8, 2, 1]]);
        assert!(Grid::all(7).is_empty());
    }
}
