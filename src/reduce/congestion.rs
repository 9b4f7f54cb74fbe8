//! Congestion and NAKs over time: the slots of their cells, and the packets that count.
//!
//! In: packets with congestion flags, congestion notifications and NAKs, mirror copies included. Out:
//! per bin the packets of each kind. Invariant: the counts of all bins add up to those that `health`
//! computes from the events of the flow stage.

use super::mirror_copies::PointCount;
use crate::model::congestion::{CongestionEvent, NAK_CODES, nak_code};
use crate::model::{PacketFlags, PacketObservation, PacketRecord, PacketRole};
use ibscope_parsers::ib::{Aeth, AethKind};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// The slot of a cell that counts packets of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum CongestionSlot {
    /// Packets with a flag, and congestion notifications; `true` for the even observations (second,
    /// fourth ...) of the same packet.
    Packet(CongestionEvent, bool),
    /// Observations of NAKs by [`nak_code`].
    Nak(u8),
    /// Observations of RNR NAKs.
    RnrNak,
}

/// Kinds of flagged packets.
const FLAGS: [(PacketFlags, CongestionEvent); 3] = [
    (PacketFlags::ECN_CE, CongestionEvent::EcnCe),
    (PacketFlags::FECN, CongestionEvent::Fecn),
    (PacketFlags::BECN, CongestionEvent::Becn),
];

impl CongestionSlot {
    /// True if a packet may have slots; most packets have none.
    #[inline]
    pub(super) const fn may_have(packet: &PacketRecord, role: PacketRole) -> bool {
        packet.packet_flags().is_any_set() || matches!(role, PacketRole::Other) || Self::is_nak(packet, role)
    }

    /// True for a NAK or an RNR NAK.
    #[inline]
    pub(super) const fn is_nak(packet: &PacketRecord, role: PacketRole) -> bool {
        matches!(role, PacketRole::Acknowledge) && packet.nak().is_some()
    }

    /// The slots of a packet.
    #[cold]
    pub(super) fn of(packet: &PacketRecord, observation: &PacketObservation) -> SmallVec<[Self; 4]> {
        let is_even = observation.occurrence.is_multiple_of(2);
        let is_notification = observation.role == PacketRole::Other;
        let flags = FLAGS.into_iter().filter(|(flag, event)| {
            // Every notification has BECN.
            packet.packet_flags().contains(*flag) && !(is_notification && *event == CongestionEvent::Becn)
        });
        let mut slots: SmallVec<[Self; 4]> = flags.map(|(_, event)| Self::Packet(event, is_even)).collect();
        if is_notification {
            slots.push(Self::Packet(CongestionEvent::Notification, is_even));
        }
        if let Some(aeth) = packet.nak().filter(|_| observation.role == PacketRole::Acknowledge) {
            slots.push(match Aeth::from_word(aeth).kind() {
                AethKind::RnrNak { .. } => Self::RnrNak,
                kind => Self::Nak(nak_code(&kind).unwrap_or_default() as u8),
            });
        }
        slots
    }

    /// True if the slot is in range.
    pub(super) const fn is_sound(self) -> bool {
        !matches!(self, Self::Nak(code) if code as usize >= NAK_CODES)
    }
}

/// Decides which observations of one connection count, bin after bin.
pub(super) struct CongestionCounter {
    observed_twice: bool,
    /// By flag, if every packet was observed twice: the even observations count. A switch sets a flag
    /// between the observation points, or before the first.
    counts_even: [bool; FLAGS.len()],
    /// Observations of NAKs so far by code; RNR NAKs last.
    naks: [u64; NAK_CODES + 1],
}

impl CongestionCounter {
    /// A counter for cells with these observations, in any order.
    pub(super) fn new(points: PointCount, cells: &(impl Iterator<Item = (CongestionSlot, u64)> + Clone)) -> Self {
        let observed_twice = points.is_two();
        let observations = |of: CongestionSlot| {
            cells.clone().filter(|(slot, _)| *slot == of).map(|(_, observations)| observations).sum::<u64>()
        };
        let counts_even = FLAGS.map(|(_, event)| {
            let [odd, even] = [false, true].map(|is_even| CongestionSlot::Packet(event, is_even));
            observed_twice && observations(even) > observations(odd)
        });
        Self { observed_twice, counts_even, naks: [0; NAK_CODES + 1] }
    }

    /// The event of a slot, and the packets of the next cell that count.
    pub(super) fn next(&mut self, slot: CongestionSlot, observations: u64) -> (CongestionEvent, u64) {
        match slot {
            CongestionSlot::Packet(event, is_even) => {
                let flag = FLAGS.iter().position(|(_, of)| *of == event);
                let counts_even = flag.is_some_and(|flag| self.counts_even[flag]);
                (event, if !self.observed_twice || is_even == counts_even { observations } else { 0 })
            }
            CongestionSlot::Nak(code) => (CongestionEvent::Nak, self.halved(usize::from(code), observations)),
            CongestionSlot::RnrNak => (CongestionEvent::RnrNak, self.halved(NAK_CODES, observations)),
        }
    }

    /// The first, third, fifth ... of all observations of a NAK are transmissions if every packet was
    /// observed twice.
    fn halved(&mut self, of: usize, observations: u64) -> u64 {
        if !self.observed_twice {
            return observations;
        }
        let Some(so_far) = self.naks.get_mut(of) else { return 0 };
        let before = so_far.div_ceil(2);
        *so_far = so_far.saturating_add(observations);
        so_far.div_ceil(2) - before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(points: PointCount, cells: &[(CongestionSlot, u64)]) -> Vec<u64> {
        let mut counter = CongestionCounter::new(points, &cells.iter().copied());
        cells.iter().map(|(slot, observations)| counter.next(*slot, *observations).1).collect()
    }

    /// Five observations of NAKs are three NAKs at two observation points, wherever the bins lie.
    #[test]
    fn copies_of_naks_do_not_count() {
        let nak = CongestionSlot::Nak(0);
        for bins in [[5, 0, 0], [1, 1, 3], [1, 2, 2], [2, 2, 1]] {
            let cells = bins.map(|observations| (nak, observations));
            assert_eq!(counted(PointCount::Two, &cells).iter().sum::<u64>(), 3, "{bins:?}");
            assert_eq!(counted(PointCount::One, &cells), bins);
        }
        assert_eq!(counted(PointCount::Two, &[(nak, 1), (nak, 1), (nak, 2)]), [1, 0, 1]);
        // Each code has its own copies.
        assert_eq!(counted(PointCount::Two, &[(nak, 1), (CongestionSlot::RnrNak, 1)]), [1, 1]);
    }

    /// The switch between two observation points marks packets, so that only the second observations
    /// have the mark.
    #[test]
    fn marks_count_at_the_observation_point_that_has_more() {
        let marked = |is_even| CongestionSlot::Packet(CongestionEvent::EcnCe, is_even);
        let cells = [(marked(false), 1), (marked(true), 3), (marked(true), 2)];
        assert_eq!(counted(PointCount::Two, &cells), [0, 3, 2]);
        assert_eq!(counted(PointCount::One, &cells), [1, 3, 2]);
        let notification = |is_even| CongestionSlot::Packet(CongestionEvent::Notification, is_even);
        assert_eq!(counted(PointCount::Two, &[(notification(false), 2), (notification(true), 2)]), [2, 0]);
    }
}
