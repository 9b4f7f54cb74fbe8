//! Detects how many observation points one input holds for a pair of endpoints: one, or two if both
//! ports were mirrored into it.
//!
//! In: all connections of an input. Out: for each directed pair, whether its packets were observed
//! twice. With two points, nearly every packet appears twice, or four times if it was retransmitted
//! once. With one point, it appears once. The share of packets with an odd count decides: with one
//! point nearly all packets have one, with two only those whose copy is lost. If about half of them
//! have one, the capture of two points lost many records, or one point saw many retransmissions.
//! Then the kinds of packets decide: a go-back-N retransmits requests or responses, but not the
//! ACKs, and a capture loses all kinds alike.
//!
//! Invariant: all connections of a directed pair have the same number of observation points.

use super::PartialSums;
use crate::model::{ConnectionKey, PacketRole, PacketSums};
use ibscope_parsers::Endpoint;
use rayon::prelude::*;

/// Distinct packets that suffice to decide for a directed pair. With fewer, both directions decide
/// together, and then the whole input.
const ENOUGH: u64 = 16;

/// Percentages of packets with an odd count between which the kinds of packets decide: two points
/// of which many records are lost.
const UNCLEAR_PERCENT: std::ops::Range<u64> = 33..76;
/// If at least so many percent of the packets of each kind have an even count, they have two points.
const EVEN_PERCENT: u64 = 25;

/// Distinct packets by role, and how many of them were observed an odd number of times.
#[derive(Clone, Copy, Debug, Default)]
struct CopyEvidence {
    distinct: [u64; 3],
    odd: [u64; 3],
}

impl CopyEvidence {
    fn add(&mut self, other: Self) {
        for role in 0..3 {
            self.distinct[role] += other.distinct[role];
            self.odd[role] += other.odd[role];
        }
    }

    /// True for two observation points; `None` with fewer than `enough` distinct packets.
    fn is_observed_twice(self, enough: u64) -> Option<bool> {
        let [distinct, odd]: [u64; 2] = [self.distinct, self.odd].map(|of| of.iter().sum());
        (distinct >= enough.max(1)).then(|| odd * 2 < distinct)
    }

    /// As [`Self::is_observed_twice`], if the evidence is clear, or if two kinds of packets agree.
    /// `both` is the evidence of both directions: a port is mirrored in both.
    fn is_clearly_observed_twice(self, both: Self) -> Option<bool> {
        let [distinct, odd]: [u64; 2] = [self.distinct, self.odd].map(|of| of.iter().sum());
        if !UNCLEAR_PERCENT.contains(&(odd * 100 / distinct.max(1))) {
            return self.is_observed_twice(ENOUGH);
        }
        let mut kinds = both.distinct.iter().zip(both.odd).filter(|(distinct, _)| **distinct >= ENOUGH);
        let is_even = |(distinct, odd): (&u64, u64)| (distinct - odd.min(*distinct)) * 100 >= distinct * EVEN_PERCENT;
        (distinct >= ENOUGH && kinds.clone().count() > 1).then(|| kinds.all(is_even))
    }
}

/// For every directed pair of one input, sorted, whether it was observed twice. There may be as
/// many pairs as connections.
#[derive(Debug, Default)]
pub(super) struct MirrorCopies {
    observed_twice: Vec<((Endpoint, Endpoint), bool)>,
}

impl MirrorCopies {
    /// Decides from all connections of an input, which come in groups.
    pub(super) fn detect<'a, G>(groups: impl ParallelIterator<Item = G>) -> Self
    where
        G: Iterator<Item = (&'a ConnectionKey, &'a PartialSums)>,
    {
        let groups: Vec<Vec<PairEvidence>> = groups.map(by_pair).collect();
        let mut pairs = groups.concat();
        pairs.par_sort_unstable_by_key(|(pair, _)| *pair);
        pairs.dedup_by(join_same);
        let mut all = CopyEvidence::default();
        pairs.iter().for_each(|(_, own)| all.add(*own));
        let decide = |(src, dst): (Endpoint, Endpoint), own: CopyEvidence| {
            let mut both = own;
            if let Ok(back) = pairs.binary_search_by_key(&(dst, src), |(pair, _)| *pair) {
                both.add(pairs[back].1);
            }
            let found = own
                .is_clearly_observed_twice(both)
                .or_else(|| own.is_observed_twice(ENOUGH))
                .or_else(|| both.is_observed_twice(ENOUGH))
                .or_else(|| all.is_observed_twice(1));
            found.unwrap_or(false)
        };
        Self { observed_twice: pairs.par_iter().map(|&(pair, own)| (pair, decide(pair, own))).collect() }
    }

    /// True if the input holds both mirror copies of the pair's packets.
    pub(super) fn is_observed_twice(&self, key: &ConnectionKey) -> bool {
        let found = self.observed_twice.binary_search_by_key(&(key.src, key.dst), |(pair, _)| *pair);
        found.is_ok_and(|at| self.observed_twice[at].1)
    }

    /// Number of points at which the input observes the pair's packets.
    pub(super) fn points(&self, key: &ConnectionKey) -> u64 {
        let found = self.observed_twice.binary_search_by_key(&(key.src, key.dst), |(pair, _)| *pair);
        found.map_or(0, |at| 1 + u64::from(self.observed_twice[at].1))
    }

    /// Number of pairs observed once and twice.
    pub(super) fn count_pairs(&self) -> (u64, u64) {
        let twice = self.observed_twice.iter().filter(|(_, twice)| *twice).count() as u64;
        (self.observed_twice.len() as u64 - twice, twice)
    }
}

/// A directed pair of endpoints with the evidence of its connections.
type PairEvidence = ((Endpoint, Endpoint), CopyEvidence);

/// The pairs of some connections, sorted.
fn by_pair<'a>(connections: impl Iterator<Item = (&'a ConnectionKey, &'a PartialSums)>) -> Vec<PairEvidence> {
    let mut pairs: Vec<PairEvidence> =
        connections.map(|(key, partial)| ((key.src, key.dst), evidence(partial))).collect();
    pairs.sort_unstable_by_key(|(pair, _)| *pair);
    pairs.dedup_by(join_same);
    pairs
}

/// Adds the evidence of a pair to that of the one before if both are the same pair.
fn join_same((next, evidence): &mut PairEvidence, (pair, sum): &mut PairEvidence) -> bool {
    let is_same = next == pair;
    if is_same {
        sum.add(*evidence);
    }
    is_same
}

fn evidence(partial: &PartialSums) -> CopyEvidence {
    let mut evidence = CopyEvidence::default();
    // Packets without a PSN cannot be distinguished, so they are no evidence.
    for role in [PacketRole::Request, PacketRole::Response, PacketRole::Acknowledge] {
        let [first, second, odd, even] = partial.sums(role as usize).map(|sums: PacketSums| sums.packets);
        evidence.distinct[role as usize] += first;
        evidence.odd[role as usize] += (first + odd).saturating_sub(second + even);
    }
    evidence
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(requests: (u64, u64), acks: (u64, u64)) -> CopyEvidence {
        CopyEvidence { distinct: [requests.0, 0, acks.0], odd: [requests.1, 0, acks.1] }
    }

    /// A capture of two points loses 30 % of its records at random. Of the packets that it holds, it
    /// has both copies of 54 %: 0.7^2 / (1 - 0.3^2).
    #[test]
    fn many_lost_records_are_no_retransmissions() {
        for odd in [40, 46, 52] {
            let lossy = evidence((100, odd), (100, 92 - odd));
            assert_eq!(lossy.is_clearly_observed_twice(lossy), Some(true), "{odd}");
        }
        // One point, and half of the requests were retransmitted.
        let retransmitted = evidence((100, 50), (60, 55));
        assert_eq!(retransmitted.is_clearly_observed_twice(retransmitted), Some(false));
        // Nothing but the requests.
        let requests = evidence((100, 50), (3, 3));
        assert_eq!(requests.is_clearly_observed_twice(requests), None);
    }
}
