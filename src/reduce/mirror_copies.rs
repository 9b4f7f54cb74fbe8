//! Detects how many observation points one input holds for a pair of endpoints: one, or two if both
//! ports were mirrored into it.
//!
//! In: all connections of an input. Out: for each directed pair, whether its packets were observed
//! twice. With two points, nearly every packet appears twice, or four times if it was retransmitted
//! once. With one point, it appears once. The share of packets with an odd count decides: with one
//! point, nearly all packets have an odd count; with two points, only those whose copy is lost. If
//! about half of the packets have an odd count, either the capture of two points lost many records, or
//! one point observed many retransmissions. Then the kinds of packets decide: a go-back-N retransmits
//! requests or responses, but not the ACKs, and a capture loses all kinds alike.
//!
//! The kinds of packets also show captures with neither one nor two points. With three or more points, or
//! with a second point for a part of the time, ACKs are observed again immediately, as often as requests
//! and responses, and so are datagrams. If a device delays the mirror copies, more ACKs are observed again
//! than timeouts explain. Such pairs are [`PointCount::Unclear`]: only the first observation of each
//! packet counts. If the ACKs are missing, or if few packets are observed again, the order of the
//! requests shows whether a go-back-N explains these later observations (`flow`, `request_order`).
//!
//! Invariant: all connections of a directed pair have the same number of observation points.

use super::PartialSums;
use crate::model::{ConnectionKey, PacketRole, PacketSums, PointCount};
use ibscope_parsers::Endpoint;
use ibscope_parsers::ib::{Opcode, Service};
use rayon::prelude::*;

/// Distinct packets that suffice to decide for a directed pair. With fewer, both directions decide
/// together, and then the whole input.
const ENOUGH: u64 = 16;

/// Range of the share of packets with an odd count, in percent, in which the packet kinds decide: two
/// points may have lost many records.
const UNCLEAR_PERCENT: std::ops::Range<u64> = 33..76;
/// Share of the packets with an even count, in percent, from which there are two points, if the packets
/// of each kind reach it.
const EVEN_PERCENT: u64 = 25;

/// Share of the ACKs or datagrams that are observed again, in percent, from which their number of points
/// is unclear: losses on the fabric cause a smaller share.
const UNCLEAR_LATER_PERCENT: u64 = 5;

/// Share of the ACKs and of the data that are observed again later, in percent, from which their number of
/// points is unclear: after a timeout, a request and its ACK are observed again, but not one ACK in five.
const DELAYED_LATER_PERCENT: u64 = 20;

/// If there are at least so many datagrams, and each was observed again, they are copies of a second point:
/// the transport never retransmits datagrams.
const FEW_DATAGRAMS: u64 = 4;

/// Requests that are observed again are copies if no go-back-N explains at least half of them and at least
/// so many, unless NAKs explain them: after an RNR NAK, the sender retransmits its last request soon, and
/// some adapters retransmit only the request that a NAK names.
const ENOUGH_SHOWN_COPIES: u64 = 4;

/// Numbers of packets: distinct ones, those observed at least twice, and later odd observations.
#[derive(Clone, Copy, Debug, Default)]
struct ObservedPackets {
    distinct: u64,
    second: u64,
    odd: u64,
}

impl ObservedPackets {
    fn add(&mut self, other: Self) {
        self.distinct += other.distinct;
        self.second += other.second;
        self.odd += other.odd;
    }

    /// Later observations that are no copies of the second point, if there is one.
    const fn later_observations(self, is_observed_twice: bool) -> u64 {
        if is_observed_twice { self.odd } else { self.second }
    }

    /// True if more of the packets are observed again than losses explain.
    const fn is_frequent(self, is_observed_twice: bool) -> bool {
        self.exceeds_later_share(is_observed_twice, UNCLEAR_LATER_PERCENT)
    }

    /// True if there are enough packets, and at least `percent` of them are observed again.
    const fn exceeds_later_share(self, is_observed_twice: bool, percent: u64) -> bool {
        self.distinct >= ENOUGH && self.later_observations(is_observed_twice) * 100 >= self.distinct * percent
    }
}

/// Distinct packets by role, and how many of them were observed an odd number of times.
#[derive(Clone, Copy, Debug, Default)]
struct CopyEvidence {
    distinct: [u64; 3],
    odd: [u64; 3],
    /// Requests and responses of connected services.
    data: ObservedPackets,
    /// ACKs; their later observations count only if they follow immediately, because after a timeout, the
    /// sender retransmits a request and the receiver its ACK.
    acks: ObservedPackets,
    /// ACKs; their later observations count only within [`DELAYED_NS`](super::DELAYED_NS).
    delayed_acks: ObservedPackets,
    /// Packets of unacknowledged services (datagrams, UC), likewise.
    datagrams: ObservedPackets,
    /// Packets that show that a request was observed twice and not retransmitted.
    shown_copies: u64,
    /// Second observations of requests.
    requests_again: u64,
    naks: u64,
}

impl CopyEvidence {
    fn add(&mut self, other: Self) {
        for role in 0..3 {
            self.distinct[role] += other.distinct[role];
            self.odd[role] += other.odd[role];
        }
        self.data.add(other.data);
        self.acks.add(other.acks);
        self.delayed_acks.add(other.delayed_acks);
        self.datagrams.add(other.datagrams);
        self.shown_copies += other.shown_copies;
        self.requests_again += other.requests_again;
        self.naks += other.naks;
    }

    /// True if neither one nor two points explain how often packets are observed: ACKs are observed again
    /// about as often as the data; or datagrams are observed again, which the transport never retransmits;
    /// or requests are observed again in an order that no go-back-N explains. `None` without enough
    /// packets.
    fn is_unclear(self, twice: bool) -> Option<bool> {
        let Self { data, acks, delayed_acks, datagrams, shown_copies, requests_again, naks, .. } = self;
        let are_all_observed_again =
            datagrams.distinct >= FEW_DATAGRAMS && datagrams.later_observations(twice) >= datagrams.distinct;
        if datagrams.is_frequent(twice) || are_all_observed_again {
            return Some(true);
        }
        // With two points, every request has a copy.
        let are_copies = !twice && shown_copies >= ENOUGH_SHOWN_COPIES && shown_copies * 2 >= requests_again;
        // A second point also copies ACKs. If there are many ACKs and none is observed again, the sender
        // retransmitted single requests.
        if are_copies && naks == 0 && (acks.distinct < ENOUGH || acks.later_observations(twice) > 0) {
            return Some(true);
        }
        if data.distinct < ENOUGH || acks.distinct < ENOUGH {
            return None;
        }
        // After the loss of an ACK, one request and one ACK are observed again. After the loss of a request,
        // only requests are.
        let [of_acks, of_delayed_acks, of_data] =
            [acks, delayed_acks, data].map(|of| of.later_observations(twice) as f64 / of.distinct.max(1) as f64);
        let are_frequent = acks.is_frequent(twice) && data.is_frequent(twice);
        let are_copied = (are_frequent || are_copies) && of_acks >= 0.6 * of_data;
        let are_delayed = [delayed_acks, data].iter().all(|of| of.exceeds_later_share(twice, DELAYED_LATER_PERCENT));
        Some(are_copied || are_delayed && of_delayed_acks >= 0.6 * of_data)
    }

    /// True if an observed packet could be another copy.
    const fn has_later_observations(self, twice: bool) -> bool {
        self.data.later_observations(twice)
            + self.acks.later_observations(twice)
            + self.datagrams.later_observations(twice)
            > 0
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

/// For every directed pair of one input, sorted, its observation points. There may be as many pairs as
/// connections.
#[derive(Debug, Default)]
pub(super) struct MirrorCopies {
    pairs: Vec<((Endpoint, Endpoint), PairCopies)>,
}

/// Observation points of a directed pair in one input.
#[derive(Clone, Copy, Debug)]
struct PairCopies {
    points: PointCount,
    /// Second observations of requests, in both directions.
    requests_again: u64,
}

/// Observation points of a connection in an input, for its union with others. If another input with one
/// observation point observes as many requests again, the sender retransmitted them, because the copies of
/// one mirror are in one input.
pub(super) fn points_in_union(copies: &[MirrorCopies], input: usize, key: &ConnectionKey) -> PointCount {
    let of = |copies: &MirrorCopies| copies.find(key).map(|own| (own.points, own.requests_again));
    let Some((points, requests_again)) = copies.get(input).and_then(of) else { return PointCount::One };
    let others = copies.iter().enumerate().filter(|(other, _)| *other != input);
    let mut clear = others.filter_map(|(_, other)| of(other)).filter(|(points, _)| *points == PointCount::One);
    match points {
        PointCount::Unclear if requests_again > 0 && clear.any(|(_, again)| again >= requests_again) => PointCount::One,
        points => points,
    }
}

impl MirrorCopies {
    /// Decides for each pair of an input. `groups` are its connections.
    pub(super) fn detect<'a, G>(groups: impl ParallelIterator<Item = G>) -> Self
    where
        G: Iterator<Item = (&'a ConnectionKey, &'a PartialSums)>,
    {
        let groups: Vec<Vec<CopiesOfPair>> = groups.map(by_pair).collect();
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
            let twice = found.unwrap_or(false);
            // The whole input decides for a pair with few packets.
            let of_all = || both.has_later_observations(twice) && all.is_unclear(twice).unwrap_or(false);
            let points = match both.is_unclear(twice).unwrap_or_else(of_all) {
                true => PointCount::Unclear,
                false if twice => PointCount::Two,
                false => PointCount::One,
            };
            PairCopies { points, requests_again: both.requests_again }
        };
        Self { pairs: pairs.par_iter().map(|&(pair, own)| (pair, decide(pair, own))).collect() }
    }

    fn find(&self, key: &ConnectionKey) -> Option<PairCopies> {
        let found = self.pairs.binary_search_by_key(&(key.src, key.dst), |(pair, _)| *pair);
        found.ok().map(|at| self.pairs[at].1)
    }

    /// The points of the pair of a connection; one point if the input holds no packet of the pair.
    pub(super) fn of(&self, key: &ConnectionKey) -> PointCount {
        self.find(key).map(|own| own.points).unwrap_or_default()
    }

    /// Number of points at which the input observes the pair's packets; 0 without packets, 1 if unclear.
    pub(super) fn points(&self, key: &ConnectionKey) -> u64 {
        self.find(key).map_or(0, |own| 1 + u64::from(own.points.is_two()))
    }

    /// Number of pairs observed once and twice.
    pub(super) fn count_pairs(&self) -> (u64, u64) {
        let twice = self.pairs.iter().filter(|(_, own)| own.points.is_two()).count() as u64;
        (self.pairs.len() as u64 - twice, twice)
    }
}

/// A directed pair of endpoints with the evidence of its connections.
type CopiesOfPair = ((Endpoint, Endpoint), CopyEvidence);

/// The pairs of some connections, sorted.
fn by_pair<'a>(connections: impl Iterator<Item = (&'a ConnectionKey, &'a PartialSums)>) -> Vec<CopiesOfPair> {
    let mut pairs: Vec<CopiesOfPair> =
        connections.map(|(key, partial)| ((key.src, key.dst), evidence(key, partial))).collect();
    pairs.sort_unstable_by_key(|(pair, _)| *pair);
    pairs.dedup_by(join_same);
    pairs
}

/// Adds the evidence of a pair to that of the one before if both are the same pair.
fn join_same((next, evidence): &mut CopiesOfPair, (pair, sum): &mut CopiesOfPair) -> bool {
    let is_same = next == pair;
    if is_same {
        sum.add(*evidence);
    }
    is_same
}

fn evidence(key: &ConnectionKey, partial: &PartialSums) -> CopyEvidence {
    let [shown_copies, naks] = partial.order_of_requests();
    let mut evidence = CopyEvidence { shown_copies, naks, ..CopyEvidence::default() };
    let is_unacknowledged = matches!(Opcode(key.service << 5).service(), Service::Ud | Service::Uc);
    // Packets without a PSN cannot be distinguished, so they are no evidence.
    for role in [PacketRole::Request, PacketRole::Response, PacketRole::Acknowledge] {
        let [first, second, odd, even] = partial.sums(role as usize).map(|sums: PacketSums| sums.packets);
        evidence.distinct[role as usize] += first;
        evidence.odd[role as usize] += (first + odd).saturating_sub(second + even);
        let [quick, delayed] =
            partial.soon_packets(role).map(|[second, odd, _]| ObservedPackets { distinct: first, second, odd });
        if role == PacketRole::Request {
            evidence.requests_again += second;
        }
        match role {
            _ if is_unacknowledged => evidence.datagrams.add(delayed),
            PacketRole::Acknowledge => {
                evidence.acks.add(quick);
                evidence.delayed_acks.add(delayed);
            }
            _ => evidence.data.add(ObservedPackets { distinct: first, second, odd }),
        }
    }
    evidence
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(requests: (u64, u64), acks: (u64, u64)) -> CopyEvidence {
        CopyEvidence { distinct: [requests.0, 0, acks.0], odd: [requests.1, 0, acks.1], ..CopyEvidence::default() }
    }

    fn observed(distinct: u64, second: u64, odd: u64) -> ObservedPackets {
        ObservedPackets { distinct, second, odd }
    }

    /// Three points, four points, and a second point for a tenth of the time.
    #[test]
    fn more_than_two_points_or_a_second_one_for_a_part_of_the_time_are_unclear() {
        for (twice, second, odd) in [(false, 100, 100), (true, 100, 100), (false, 10, 0)] {
            let copies = CopyEvidence {
                data: observed(100, second, odd),
                acks: observed(100, second, odd),
                ..Default::default()
            };
            assert_eq!(copies.is_unclear(twice), Some(true), "{second}");
            let datagrams = CopyEvidence { datagrams: observed(100, second, odd), ..Default::default() };
            assert_eq!(datagrams.is_unclear(twice), Some(true), "{second}");
        }
    }

    /// A second point for a short time.
    #[test]
    fn an_order_of_requests_that_no_go_back_n_explains_is_unclear() {
        let copies =
            CopyEvidence { data: observed(200, 6, 0), shown_copies: 6, requests_again: 6, ..Default::default() };
        let with_acks = |second| CopyEvidence { acks: observed(200, second, 0), ..copies };
        assert_eq!([copies, with_acks(1)].map(|copies| copies.is_unclear(false)), [Some(true); 2]);
        assert_eq!(with_acks(0).is_unclear(false), Some(false));
        // A go-back-N explains most of them.
        let explained = CopyEvidence { shown_copies: 2, ..with_acks(6) };
        assert_eq!(explained.is_unclear(false), Some(false));
        assert_eq!(CopyEvidence { shown_copies: 2, ..copies }.is_unclear(false), None);
        // NAKs explain retransmitted requests, but no retransmitted ACKs.
        let with_naks = |second| CopyEvidence { naks: 6, ..with_acks(second) };
        assert_eq!([6, 1].map(|second| with_naks(second).is_unclear(false)), [Some(true), Some(false)]);
        assert_eq!(CopyEvidence { naks: 6, ..copies }.is_unclear(false), None);
    }

    /// A device delays the second copies of all packets, or those of a third.
    #[test]
    fn delayed_copies_of_data_and_acks_are_unclear() {
        for (second, delayed, is_unclear) in [(100, 100, true), (30, 28, true), (30, 2, false), (10, 10, false)] {
            let copies = CopyEvidence {
                data: observed(100, second, 0),
                acks: observed(100, 0, 0),
                delayed_acks: observed(100, delayed, 0),
                ..Default::default()
            };
            assert_eq!(copies.is_unclear(false), Some(is_unclear), "{second}, {delayed}");
        }
    }

    /// A lost request is retransmitted; after a lost ACK, a request and an ACK are retransmitted.
    #[test]
    fn retransmissions_are_clear() {
        for (data, acks) in [((1000, 400), (1000, 0)), ((1000, 100), (1000, 50))] {
            let lossy = CopyEvidence {
                data: observed(data.0, data.1, 0),
                acks: observed(acks.0, acks.1, 0),
                ..Default::default()
            };
            assert_eq!(lossy.is_unclear(false), Some(false), "{data:?}");
        }
        // Two points.
        let twice = CopyEvidence { data: observed(100, 100, 5), acks: observed(100, 98, 0), ..Default::default() };
        assert_eq!(twice.is_unclear(true), Some(false));
        assert_eq!(CopyEvidence { data: observed(100, 50, 0), ..Default::default() }.is_unclear(false), None);
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
