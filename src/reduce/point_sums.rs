//! Compares what the observation points of a connection hold: packets that one of them observed and
//! another one did not.
//!
//! In: the observations of a connection by each input. Out: [`ObservationSums`]. First and later
//! transmissions are counted separately, because only lost packets are retransmitted:
//!
//! ```text
//! PSN            4    5    5'   6
//! sender's port  1    1    1    1     5 was lost on the fabric, 6 by the capture at the receiver
//! receiver's     1         1          first: 1 of 3 missing there; later: none of 1
//! ```
//! The first transmission that a point observes counts as the first one of its PSN, so a packet
//! that was lost on the fabric shows as a missing later transmission: `5` and `5'` above are one
//! first transmission that both points have, and one later transmission that one point has.

use super::PartialSums;
use super::observation_points::{ObservationPoint, overlap};
use crate::model::observation::OCCURRENCES;
use crate::model::{Continuity, ObservationSums, PacketRole, PsnDigest};

/// The packets of a connection in an input, for the comparison with another input.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketDigests {
    /// The PSNs of the packets, and those of all further observations.
    digests: [PsnDigest; 2],
    transmissions: u64,
    is_observed_twice: bool,
}

impl PacketDigests {
    pub(super) const fn new(continuity: &Continuity, (transmissions, is_observed_twice): (u64, bool)) -> Self {
        let digests = [continuity.packets, continuity.later_packets];
        Self { digests, transmissions, is_observed_twice }
    }

    /// True if one of the inputs has a transmission that the other one misses. Two inputs can miss
    /// as many: each one transmission of another PSN. Further observations are retransmissions or
    /// mirror copies, so they are comparable only where both inputs have as many points.
    pub(super) fn differ(&self, other: &Self) -> bool {
        let [packets, later] = self.digests;
        let is_comparable = self.is_observed_twice == other.is_observed_twice;
        packets != other.digests[0]
            || self.transmissions != other.transmissions
            || is_comparable && later != other.digests[1]
    }
}

/// Records of a connection in one input.
#[derive(Clone, Copy, Debug)]
pub(super) struct PointRecords {
    /// By packet role and occurrence class.
    by_occurrence: [[u64; OCCURRENCES]; PacketRole::COUNT],
    packets: PacketDigests,
    /// Times of the first and of the last packet.
    times_ns: (i64, i64),
}

impl PointRecords {
    pub(super) fn new(partial: &PartialSums, packets: PacketDigests) -> Self {
        let by_occurrence = partial.all_sums().map(|sums| sums.map(|sums| sums.packets));
        Self { by_occurrence, packets, times_ns: partial.times_ns }
    }

    /// Records of first and of later transmissions of a role.
    fn records(&self, role: PacketRole, is_observed_twice: bool) -> [u64; 2] {
        let [first, second, odd, even] = self.by_occurrence[role as usize];
        if is_observed_twice { [first + second, odd + even] } else { [first, second + odd + even] }
    }

    /// First and later transmissions of a role.
    fn transmissions(&self, role: PacketRole, is_observed_twice: bool) -> [u64; 2] {
        let [first, second, odd, even] = self.by_occurrence[role as usize];
        if is_observed_twice { [first, odd] } else { [first, second + odd + even] }
    }
}

/// True if inputs that overlap in time hold different packets.
pub(super) fn differ(observed: &[(ObservationPoint, PointRecords)]) -> bool {
    let differs = |one: &(ObservationPoint, PointRecords), other: &(ObservationPoint, PointRecords)| {
        overlap(one.0.input_times_ns, other.0.input_times_ns) && one.1.packets.differ(&other.1.packets)
    };
    observed.iter().enumerate().any(|(at, one)| observed[..at].iter().any(|other| differs(one, other)))
}

/// Points of an input that observes the two ports of a connection, but has no packet of it: it lost
/// all of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct AbsentPoints {
    /// Index of the input.
    pub(super) input: usize,
    pub(super) points: u64,
    /// Time of the first and last record of the whole input, nanoseconds since the epoch.
    pub(super) input_times_ns: (i64, i64),
}

/// The packets at the points of a connection, if it has more than one. `counted` is the input that
/// counts; `None` if several do.
pub(super) fn compare(
    observed: &[(ObservationPoint, PointRecords)],
    absent: &[AbsentPoints],
    counted: Option<usize>,
) -> Option<Box<ObservationSums>> {
    let is_present = |absent: &&AbsentPoints, times_ns: (i64, i64)| overlap(absent.input_times_ns, times_ns);
    let has_absent = observed.iter().any(|(_, own)| absent.iter().any(|absent| is_present(&absent, own.times_ns)));
    if observed.len() == 1 && observed.iter().all(|(point, _)| !point.observed_twice) && !has_absent {
        return None;
    }
    // Without a single input or union that has all packets, nothing is known.
    let unknown = Some(Box::new(ObservationSums::default()));
    let Some((all, whole)) = observed.iter().find(|(point, _)| Some(point.input) == counted) else { return unknown };
    let points = || observed.iter().filter(|(point, _)| !point.is_union);
    let is_same = |(_, own): &(ObservationPoint, PointRecords)| !own.packets.differ(&whole.packets);
    let is_comparable = points().all(|(point, _)| overlap(point.input_times_ns, all.input_times_ns));
    if !is_comparable || !all.is_union && !points().all(is_same) {
        return unknown;
    }
    let captured = points().map(|(point, _)| (if point.observed_twice { 2 } else { 1 }, point.input_times_ns));
    let lost = absent.iter().filter(|absent| is_present(absent, whole.times_ns));
    let lost = lost.map(|absent| (absent.points, absent.input_times_ns));
    let is_one_input = points().count() == 1 && lost.clone().next().is_none();
    let mut sums = ObservationSums { is_one_input, ..ObservationSums::default() };
    for (count, (first, last)) in captured.chain(lost) {
        sums.points += count;
        sums.is_partial |= first > whole.times_ns.0 || last < whole.times_ns.1;
    }
    for role in [PacketRole::Request, PacketRole::Response, PacketRole::Acknowledge] {
        let sent = whole.transmissions(role, all.observed_twice);
        let mut held = [0; 2];
        for (point, own) in points() {
            let records = own.records(role, point.observed_twice);
            held = [held[0] + records[0], held[1] + records[1]];
        }
        let missing: [u64; 2] = std::array::from_fn(|at| (sent[at] * sums.points).saturating_sub(held[at]));
        let of = if role == PacketRole::Acknowledge { &mut sums.acks } else { &mut sums.data };
        of.first_packets += sent[0];
        of.later_packets += sent[1];
        of.first_missing += missing[0];
        of.later_missing += missing[1];
    }
    Some(Box::new(sums))
}
