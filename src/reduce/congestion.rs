//! Congestion and NAKs over time: the slots of their cells, and the packets that count.
//!
//! In: packets with congestion flags, congestion notifications and NAKs, mirror copies included. Out:
//! per bin the packets of each kind. Invariant: the counts of all bins add up to those that `health`
//! computes from the events of the flow stage.

use crate::model::congestion::{CongestionEvent, NAK_CODES, nak_code};
use crate::model::observation::{OCCURRENCES, occurrence_class};
use crate::model::{PacketFlags, PacketObservation, PacketRecord, PacketRole, PointCount};
use ibscope_parsers::ib::{Aeth, AethKind};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// The slot of a cell that counts packets of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum CongestionSlot {
    /// Packets with a flag, and congestion notifications, by the class of the observation.
    Packet(CongestionEvent, u8),
    /// Observations of NAKs by [`nak_code`]; `true` for the first ones.
    Nak(u8, bool),
    /// Observations of RNR NAKs; `true` for the first ones.
    RnrNak(bool),
}

/// Kinds of flagged packets.
pub(super) const FLAGS: [(PacketFlags, CongestionEvent); 3] = [
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
        let class = occurrence_class(observation.occurrence) as u8;
        let is_first = observation.occurrence == 1;
        let is_notification = observation.role == PacketRole::Other;
        let flags = FLAGS.into_iter().filter(|(flag, event)| {
            // Every notification has BECN.
            packet.packet_flags().contains(*flag) && !(is_notification && *event == CongestionEvent::Becn)
        });
        let mut slots: SmallVec<[Self; 4]> = flags.map(|(_, event)| Self::Packet(event, class)).collect();
        if is_notification {
            slots.push(Self::Packet(CongestionEvent::Notification, class));
        }
        if let Some(aeth) = packet.nak().filter(|_| observation.role == PacketRole::Acknowledge) {
            slots.push(match Aeth::from_word(aeth).kind() {
                AethKind::RnrNak { .. } => Self::RnrNak(is_first),
                kind => Self::Nak(nak_code(&kind).unwrap_or_default() as u8, is_first),
            });
        }
        slots
    }

    /// True if the slot is in range.
    pub(super) const fn is_sound(self) -> bool {
        match self {
            Self::Packet(_, class) => (class as usize) < OCCURRENCES,
            Self::Nak(code, _) => (code as usize) < NAK_CODES,
            Self::RnrNak(_) => true,
        }
    }
}

/// Decides which observations of one connection count, bin after bin.
pub(super) struct CongestionCounter {
    points: PointCount,
    /// By flag, with two points: the even observations count. With an unclear number: the second ones.
    /// A switch sets a flag between the observation points, or before the first.
    counts_second: [bool; FLAGS.len()],
    /// Observations of NAKs so far by code; RNR NAKs last.
    naks: [u64; NAK_CODES + 1],
}

impl CongestionCounter {
    /// A counter for cells with these observations, in any order.
    pub(super) fn new(points: PointCount, cells: &(impl Iterator<Item = (CongestionSlot, u64)> + Clone)) -> Self {
        let observations = |event: CongestionEvent, classes: &[u8]| {
            let is_it =
                |slot: &CongestionSlot| classes.iter().any(|class| *slot == CongestionSlot::Packet(event, *class));
            cells.clone().filter(|(slot, _)| is_it(slot)).map(|(_, observations)| observations).sum::<u64>()
        };
        let counts_second = FLAGS.map(|(_, event)| match points {
            PointCount::One => false,
            PointCount::Two => observations(event, &[1, 3]) > observations(event, &[0, 2]),
            PointCount::Unclear => observations(event, &[1]) > observations(event, &[0]),
        });
        Self { points, counts_second, naks: [0; NAK_CODES + 1] }
    }

    /// The event of a slot, and the packets of the next cell that count.
    pub(super) fn next(&mut self, slot: CongestionSlot, observations: u64) -> (CongestionEvent, u64) {
        match slot {
            CongestionSlot::Packet(event, class) => {
                let flag = FLAGS.iter().position(|(_, of)| *of == event);
                let counts_second = flag.is_some_and(|flag| self.counts_second[flag]);
                let counts = match self.points {
                    PointCount::One => true,
                    PointCount::Two => (class % 2 == 1) == counts_second,
                    // Notifications have no PSNs that show which of them are mirror copies.
                    PointCount::Unclear => flag.is_none() || class == u8::from(counts_second),
                };
                (event, if counts { observations } else { 0 })
            }
            CongestionSlot::Nak(code, is_first) => {
                (CongestionEvent::Nak, self.naks(usize::from(code), is_first, observations))
            }
            CongestionSlot::RnrNak(is_first) => (CongestionEvent::RnrNak, self.naks(NAK_CODES, is_first, observations)),
        }
    }

    /// The first, third, fifth ... of all observations of a NAK are transmissions if every packet was
    /// observed twice. With an unclear number of points, only first observations are known to be.
    fn naks(&mut self, of: usize, is_first: bool, observations: u64) -> u64 {
        match self.points {
            PointCount::One => return observations,
            PointCount::Unclear => return if is_first { observations } else { 0 },
            PointCount::Two => {}
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
        let nak = CongestionSlot::Nak(0, true);
        for bins in [[5, 0, 0], [1, 1, 3], [1, 2, 2], [2, 2, 1]] {
            let cells = bins.map(|observations| (nak, observations));
            assert_eq!(counted(PointCount::Two, &cells).iter().sum::<u64>(), 3, "{bins:?}");
            assert_eq!(counted(PointCount::One, &cells), bins);
        }
        assert_eq!(counted(PointCount::Two, &[(nak, 1), (nak, 1), (nak, 2)]), [1, 0, 1]);
        // Each code has its own copies.
        assert_eq!(counted(PointCount::Two, &[(nak, 1), (CongestionSlot::RnrNak(true), 1)]), [1, 1]);
        // Four observations of each of two NAKs.
        assert_eq!(counted(PointCount::Unclear, &[(nak, 2), (CongestionSlot::Nak(0, false), 6)]), [2, 0]);
    }

    /// The switch between two observation points marks packets, so that only the second observations
    /// have the mark.
    #[test]
    fn marks_count_at_the_observation_point_that_has_more() {
        let marked = |class| CongestionSlot::Packet(CongestionEvent::EcnCe, class);
        let cells = [(marked(0), 1), (marked(1), 3), (marked(1), 2)];
        assert_eq!(counted(PointCount::Two, &cells), [0, 3, 2]);
        assert_eq!(counted(PointCount::One, &cells), [1, 3, 2]);
        let notification = |class| CongestionSlot::Packet(CongestionEvent::Notification, class);
        assert_eq!(counted(PointCount::Two, &[(notification(0), 2), (notification(1), 2)]), [2, 0]);
        // Five packets with four observations each, the marks set after the first.
        let cells = [(marked(1), 5), (marked(2), 5), (marked(3), 5)];
        assert_eq!(counted(PointCount::Unclear, &cells), [5, 0, 0]);
    }
}
