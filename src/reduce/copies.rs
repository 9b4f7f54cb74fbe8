//! How many observation points one input holds for a pair of endpoints: 1, or 2 where both ports were mirrored into it.
//!
//! At a sink that sees both ports nearly every packet stands twice (four times when it was sent twice ...); elsewhere
//! once. The share of packets with an odd count tells: all of them with one point, only the lost ones with two.

use super::Partial;
use crate::model::{ConnectionKey, Sums, Turn};
use ibscope_parsers::Endpoint;

/// Packets of a pair that settle the question by themselves. Below that the two directions, and then the whole input,
/// are asked.
const ENOUGH: u64 = 16;

/// Distinct packets of a pair, and those of them that were seen an odd number of times.
#[derive(Clone, Copy, Debug, Default)]
struct Evidence {
    distinct: u64,
    odd: u64,
}

impl Evidence {
    fn add(&mut self, other: Self) {
        self.distinct += other.distinct;
        self.odd += other.odd;
    }

    /// Two points, if that can be told from this much.
    fn twice(self, enough: u64) -> Option<bool> {
        (self.distinct >= enough.max(1)).then_some(self.odd * 2 < self.distinct)
    }
}

/// The answer for every directed pair of one input, sorted: there may be as many as connections.
#[derive(Debug, Default)]
pub(super) struct Copies {
    twice: Vec<((Endpoint, Endpoint), bool)>,
}

impl Copies {
    /// Decides from all connections of an input.
    pub(super) fn decide<'a>(connections: impl Iterator<Item = (&'a ConnectionKey, &'a Partial)>) -> Self {
        let mut pairs: Vec<((Endpoint, Endpoint), Evidence)> = Vec::new();
        let mut all = Evidence::default();
        for (key, partial) in connections {
            let evidence = evidence(partial);
            all.add(evidence);
            let pair = (key.src, key.dst);
            match pairs.last_mut().filter(|(last, _)| *last == pair) {
                Some((_, sum)) => sum.add(evidence),
                None => pairs.push((pair, evidence)),
            }
        }
        pairs.sort_unstable_by_key(|(pair, _)| *pair);
        pairs.dedup_by(|(next, evidence), (pair, sum)| {
            let is_same = next == pair;
            if is_same {
                sum.add(*evidence);
            }
            is_same
        });
        let decide = |(src, dst): (Endpoint, Endpoint), own: Evidence| {
            let mut both = own;
            if let Ok(back) = pairs.binary_search_by_key(&(dst, src), |(pair, _)| *pair) {
                both.add(pairs[back].1);
            }
            let found = own.twice(ENOUGH).or_else(|| both.twice(ENOUGH)).or_else(|| all.twice(1));
            found.unwrap_or(false)
        };
        Self { twice: pairs.iter().map(|&(pair, own)| (pair, decide(pair, own))).collect() }
    }

    /// True where both copies of the pair's packets are in the input.
    pub(super) fn twice(&self, key: &ConnectionKey) -> bool {
        let found = self.twice.binary_search_by_key(&(key.src, key.dst), |(pair, _)| *pair);
        found.is_ok_and(|at| self.twice[at].1)
    }

    /// Pairs seen once and twice.
    pub(super) fn count(&self) -> (u64, u64) {
        let twice = self.twice.iter().filter(|(_, twice)| *twice).count() as u64;
        (self.twice.len() as u64 - twice, twice)
    }
}

fn evidence(partial: &Partial) -> Evidence {
    let mut evidence = Evidence::default();
    // Unnumbered packets cannot be told from each other, so they say nothing.
    for turn in [Turn::Request, Turn::Response, Turn::Acknowledge] {
        let [first, second, odd, even] = partial.sums(turn as usize).map(|sums: Sums| sums.packets);
        evidence.distinct += first;
        evidence.odd += (first + odd).saturating_sub(second + even);
    }
    evidence
}
