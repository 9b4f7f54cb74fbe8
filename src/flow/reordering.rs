//! Recognizes packets that arrive out of order although nothing was lost, as with adaptive routing.
//!
//! ```text
//! PSN   4  6  7  5  8          5 is late by a distance of 2: the highest PSN before it is 7
//! PSN   4  6  7  5  6  7  8    5 was lost upstream: 6 and 7 are retransmitted (go-back-N)
//! ```
//! A sender retransmits all packets from the lost one on. Late packets are therefore reordered if
//! no packet is observed again until the next new PSN. A receiver that requests a single packet
//! (selective repeat) names it in a NAK: such a packet is a retransmission.
//!
//! If the capture has two observation points, packets are in order at the port of the sender, and
//! their second observations show the order at the port of the receiver.

use crate::model::health::ReorderingSums;

/// No number yet.
const NONE_YET: i64 = i64::MIN;

/// Order of the requests or responses of a connection.
#[derive(Debug)]
pub(super) struct Reordering {
    /// Boxed, because few connections have late packets.
    late: Option<Box<LatePackets>>,
    /// A packet was retransmitted since the last new PSN, for one observation point and for two.
    has_retransmission: [bool; 2],
    /// Highest PSN that was observed twice.
    high_twice: i64,
    /// PSN that the latest NAK asked for.
    requested: i64,
}

/// Late packets, for one observation point and for two.
#[derive(Debug, Default)]
struct LatePackets {
    /// Since the last new PSN.
    pending: [ReorderingSums; 2],
    /// Before: those that no retransmission explains.
    reordered: [ReorderingSums; 2],
}

impl Default for Reordering {
    fn default() -> Self {
        Self { late: None, has_retransmission: [false; 2], high_twice: NONE_YET, requested: NONE_YET }
    }
}

impl Reordering {
    /// Takes the next new PSN.
    #[inline]
    pub(super) fn new_high(&mut self) {
        self.conclude(0);
    }

    /// Takes a packet that is no new PSN. `high` is the highest PSN before it.
    pub(super) fn later(&mut self, number: i64, (occurrence, span): (u32, u32), high: i64) {
        match occurrence {
            1 if number == self.requested => self.has_retransmission[0] = true,
            1 => self.late(0, high - number),
            _ => self.has_retransmission[0] = true,
        }
        match occurrence {
            1 => {}
            2 if number > self.high_twice => {
                self.conclude(1);
                self.high_twice = number + i64::from(span.max(1)) - 1;
            }
            2 => self.late(1, self.high_twice - number),
            _ => self.has_retransmission[1] = true,
        }
    }

    /// Takes the PSN that a NAK asks for.
    pub(super) const fn note_nak(&mut self, number: i64) {
        self.requested = number;
    }

    /// The reordered packets, at the end of the input: packets that are still late were not
    /// retransmitted. `None` without late packets.
    pub(super) fn end(&mut self) -> Option<[ReorderingSums; 2]> {
        self.conclude(0);
        self.conclude(1);
        self.late.take().map(|late| late.reordered)
    }

    #[cold]
    fn late(&mut self, reading: usize, distance_psns: i64) {
        let late = self.late.get_or_insert_default();
        late.pending[reading].add(distance_psns.max(0).cast_unsigned());
    }

    fn conclude(&mut self, reading: usize) {
        let has_retransmission = std::mem::take(&mut self.has_retransmission[reading]);
        let Some(late) = &mut self.late else { return };
        let pending = std::mem::take(&mut late.pending[reading]);
        if !has_retransmission {
            late.reordered[reading] += pending;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reordered packets after these PSNs with their occurrences, for one and two observation
    /// points.
    fn reordered(packets: &[(i64, u32)], nak: Option<i64>) -> [ReorderingSums; 2] {
        let (mut order, mut high) = (Reordering::default(), NONE_YET);
        if let Some(number) = nak {
            order.note_nak(number);
        }
        for &(number, occurrence) in packets {
            if number > high {
                high = number;
                order.new_high();
            } else {
                order.later(number, (occurrence, 1), high);
            }
        }
        order.end().unwrap_or_default()
    }

    const fn packets(packets: u64, distance_psns: u64, longest_psns: u64) -> ReorderingSums {
        ReorderingSums { packets, distance_psns, longest_psns }
    }

    #[test]
    fn late_packets_without_retransmission_are_reordered() {
        let once = |numbers: &[i64]| numbers.iter().map(|number| (*number, 1)).collect::<Vec<_>>();
        assert_eq!(reordered(&once(&[4, 6, 7, 5, 8]), None)[0], packets(1, 2, 2));
        assert_eq!(reordered(&once(&[4, 8, 5, 6, 7, 9, 11, 10]), None)[0], packets(4, 3 + 2 + 1 + 1, 3));
        assert_eq!(reordered(&once(&[4, 5, 6]), None)[0], packets(0, 0, 0));
    }

    #[test]
    fn packets_of_a_go_back_n_episode_are_not_reordered() {
        let lost = [(4, 1), (6, 1), (7, 1), (5, 1), (6, 2), (7, 2), (8, 1)];
        assert_eq!(reordered(&lost, None)[0], packets(0, 0, 0));
        // The packets after it count again.
        let then = [&lost[..], &[(10, 1), (9, 1)]].concat();
        assert_eq!(reordered(&then, None)[0], packets(1, 1, 1));
    }

    #[test]
    fn a_packet_that_the_receiver_asked_for_is_not_reordered() {
        assert_eq!(reordered(&[(4, 1), (6, 1), (7, 1), (5, 1), (8, 1)], Some(5))[0], packets(0, 0, 0));
    }

    /// In order at the sender; 5 arrives after 7 at the receiver.
    #[test]
    fn second_observations_show_the_order_at_the_receiver() {
        let both = [(4, 1), (5, 1), (6, 1), (7, 1), (4, 2), (6, 2), (7, 2), (5, 2), (8, 1), (8, 2)];
        assert_eq!(reordered(&both, None)[1], packets(1, 2, 2));
        // 5 is lost between the ports, and retransmitted from 5 on.
        let lost = [(4, 1), (5, 1), (6, 1), (4, 2), (6, 2), (5, 2), (6, 3), (5, 3), (6, 4), (7, 1), (7, 2)];
        assert_eq!(reordered(&lost, None)[1], packets(0, 0, 0));
    }
}
