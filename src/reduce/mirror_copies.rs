//! Detects how many observation points one input holds for a pair of endpoints: one, or two if both
//! ports were mirrored into it.
//!
//! In: all connections of an input. Out: for each directed pair, whether its packets were observed
//! twice. With two points, nearly every packet appears twice, or four times if it was retransmitted
//! once. With one point, it appears once. The share of packets with an odd count decides: with one
//! point nearly all packets have one, with two only those whose copy is lost.
//!
//! Invariant: all connections of a directed pair have the same number of observation points.

use super::PartialSums;
use crate::model::{ConnectionKey, PacketRole, PacketSums};
use ibscope_parsers::Endpoint;

/// Distinct packets that suffice to decide for a directed pair. With fewer, both directions decide
/// together, and then the whole input.
const ENOUGH: u64 = 16;

/// Distinct packets, and how many of them were observed an odd number of times.
#[derive(Clone, Copy, Debug, Default)]
struct CopyEvidence {
    distinct: u64,
    odd: u64,
}

impl CopyEvidence {
    fn add(&mut self, other: Self) {
        self.distinct += other.distinct;
        self.odd += other.odd;
    }

    /// True for two observation points; `None` with fewer than `enough` distinct packets.
    fn is_observed_twice(self, enough: u64) -> Option<bool> {
        (self.distinct >= enough.max(1)).then_some(self.odd * 2 < self.distinct)
    }
}

/// For every directed pair of one input, sorted, whether it was observed twice. There may be as
/// many pairs as connections.
#[derive(Debug, Default)]
pub(super) struct MirrorCopies {
    observed_twice: Vec<((Endpoint, Endpoint), bool)>,
}

impl MirrorCopies {
    /// Decides from all connections of an input.
    pub(super) fn detect<'a>(connections: impl Iterator<Item = (&'a ConnectionKey, &'a PartialSums)>) -> Self {
        let mut pairs: Vec<((Endpoint, Endpoint), CopyEvidence)> = Vec::new();
        let mut all = CopyEvidence::default();
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
        let decide = |(src, dst): (Endpoint, Endpoint), own: CopyEvidence| {
            let mut both = own;
            if let Ok(back) = pairs.binary_search_by_key(&(dst, src), |(pair, _)| *pair) {
                both.add(pairs[back].1);
            }
            let found = own
                .is_observed_twice(ENOUGH)
                .or_else(|| both.is_observed_twice(ENOUGH))
                .or_else(|| all.is_observed_twice(1));
            found.unwrap_or(false)
        };
        Self { observed_twice: pairs.iter().map(|&(pair, own)| (pair, decide(pair, own))).collect() }
    }

    /// True if the input holds both mirror copies of the pair's packets.
    pub(super) fn is_observed_twice(&self, key: &ConnectionKey) -> bool {
        let found = self.observed_twice.binary_search_by_key(&(key.src, key.dst), |(pair, _)| *pair);
        found.is_ok_and(|at| self.observed_twice[at].1)
    }

    /// Number of pairs observed once and twice.
    pub(super) fn count_pairs(&self) -> (u64, u64) {
        let twice = self.observed_twice.iter().filter(|(_, twice)| *twice).count() as u64;
        (self.observed_twice.len() as u64 - twice, twice)
    }
}

fn evidence(partial: &PartialSums) -> CopyEvidence {
    let mut evidence = CopyEvidence::default();
    // Packets without a PSN cannot be distinguished, so they are no evidence.
    for role in [PacketRole::Request, PacketRole::Response, PacketRole::Acknowledge] {
        let [first, second, odd, even] = partial.sums(role as usize).map(|sums: PacketSums| sums.packets);
        evidence.distinct += first;
        evidence.odd += (first + odd).saturating_sub(second + even);
    }
    evidence
}
