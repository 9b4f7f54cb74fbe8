//! Bounds on the packets that the capture and the fabric lost.
//!
//! What each connection proves goes in, the bounds of all connections come out. A record that is
//! missing at one of two observation points was lost on the fabric between them, or by the capture:
//!
//! ```text
//! first transmission, acknowledged            by the capture: the packet has passed both points
//! later transmission                          on the fabric: a packet is sent again if it was lost
//! ACK, without any retransmission anywhere    by the capture: the fabric loses nothing
//! ACK otherwise, datagram                     either
//! ```
//! If the capture loses records, some of them are later transmissions. Their number follows from the
//! share of the first transmissions that it lost, with a margin for chance ([`margin`]).
//!
//! Invariant: no number counts as certain that one of the other causes explains.

use crate::model::PacketBounds;
use crate::model::traffic::ObservationSums;

/// Standard deviations of a margin. Losses come in bursts, so that counts scatter more than those of
/// single losses.
const DEVIATIONS: f64 = 4.0;
const BURST_PACKETS: f64 = 8.0;
/// Probability that all records that the capture lost are later transmissions, at which this is
/// excluded.
const CHANCE: f64 = 1e-4;
/// Events that may have been expected where none was observed (95 %).
const CHANCE_EVENTS: u64 = 3;
/// Packets that show the share of the losses.
const ENOUGH_PACKETS: u64 = 100;

/// Sums over all connections.
#[derive(Debug, Default)]
pub(super) struct LossSums {
    /// Packets that no point has: at least, and with one count per point.
    never_packets: u64,
    never_records: u64,
    /// Packets that no point has: at most, with one count per point. Unlimited connections are
    /// counted apart.
    possible_packets: u64,
    possible_records: u64,
    unlimited: u64,
    /// Requests that the receivers reported as missing, observed at the sender's port only.
    reported: u64,
    /// Missing records of first transmissions: certainly by the capture, and by either.
    first_certain: u64,
    first_doubtful: u64,
    /// Missing records of later transmissions: at points that were captured all the time, and at
    /// others.
    later: u64,
    later_doubtful: u64,
    /// Missing records of ACKs, likewise: a responder may send one again without a loss.
    acks: u64,
    acks_doubtful: u64,
    datagrams: u64,
    /// Datagrams of connections with several points, and packets of reliable ones.
    datagram_packets: u64,
    reliable_packets: u64,
    /// Records that should exist, of first and of later transmissions.
    first_records: u64,
    later_records: u64,
    later_packets: u64,
    first_acks: u64,
    /// A connection has retransmissions: the fabric may lose packets.
    retransmits: bool,
    /// A connection has a single observation point, or an unknown number.
    has_one_point: bool,
}

/// What is known of one connection.
pub(super) struct ConnectionLoss<'a> {
    pub(super) observations: Option<&'a ObservationSums>,
    pub(super) is_datagram: bool,
    /// Packets that no point has: at least, and at most (`None`: unlimited).
    pub(super) never: u64,
    pub(super) possible: Option<u64>,
    /// Requests that the receiver reported as missing.
    pub(super) reported: u64,
    pub(super) retransmits: bool,
    /// The last request has its response.
    pub(super) is_answered: bool,
}

impl LossSums {
    pub(super) fn add(&mut self, own: &ConnectionLoss<'_>) {
        let points = own.observations.map_or(1, |sums| sums.points);
        self.has_one_point |= points < 2;
        self.retransmits |= own.retransmits;
        self.reported += own.reported;
        self.never_packets += own.never;
        // A point that was not captured all the time may have missed the packet for that reason.
        let is_partial = own.observations.is_some_and(|sums| sums.is_partial);
        self.never_records += own.never * if is_partial { 1 } else { points.max(1) };
        // At one point, a retransmission hides whether the capture has all transmissions.
        match own.possible.filter(|_| points > 1 || points == 1 && !own.retransmits) {
            Some(possible) => {
                self.possible_packets += possible;
                self.possible_records += possible * points;
            }
            None => self.unlimited += 1,
        }
        let Some(sums) = own.observations.filter(|sums| sums.points > 0) else { return };
        let (data, acks) = (sums.data, sums.acks);
        let packets = data.first_packets + acks.first_packets;
        if own.is_datagram {
            self.datagrams += data.missing() + acks.missing();
            self.datagram_packets += packets;
            return;
        }
        self.reliable_packets += packets;
        self.first_records += data.first_packets * points;
        self.later_records += data.later_packets * points;
        self.later_packets += data.later_packets;
        self.first_acks += acks.first_packets;
        if sums.is_partial {
            self.first_doubtful += data.first_missing;
            self.later_doubtful += data.later_missing;
            self.acks_doubtful += acks.missing();
            return;
        }
        let doubtful = if own.is_answered { data.first_missing.min(data.later_packets) } else { data.first_missing };
        self.first_doubtful += doubtful;
        self.first_certain += data.first_missing - doubtful;
        self.later += data.later_missing;
        self.acks += acks.missing();
    }

    /// Packets that the capture lost, packets that it has from no point, packets that the fabric
    /// lost.
    pub(super) fn bounds(&self) -> [PacketBounds; 3] {
        let of_capture = self.first_certain + self.never_records;
        let share = (of_capture + self.first_doubtful) as f64 / (self.first_records + self.never_records).max(1) as f64;
        let on_fabric = self.later.saturating_sub(self.later_of_capture(share));
        // Missing ACKs prove no loss on the fabric: a burst of losses of the capture may hit them
        // alone.
        // Retransmissions with a record at one point each look like one transmission at both.
        let any = of_capture + self.first_doubtful + self.later + self.acks + self.datagrams;
        let hidden = if self.retransmits && any > 0 { at_most(4.0 * share * self.later_packets as f64) + 1 } else { 0 };
        let is_limited = self.unlimited == 0;
        let hidden_datagrams = self.datagrams_never_captured();
        let missing = self.first_certain
            + self.first_doubtful
            + self.later
            + self.later_doubtful
            + self.acks
            + self.acks_doubtful
            + self.datagrams;
        let capture = PacketBounds {
            at_least: of_capture + self.acks_of_capture(),
            at_most: is_limited.then(|| missing + self.possible_records + 2 * (hidden_datagrams + hidden) - on_fabric),
        };
        let never = PacketBounds {
            at_least: self.never_packets,
            at_most: is_limited.then(|| self.possible_packets + hidden_datagrams + hidden),
        };
        let acks = if self.retransmits { self.acks + self.acks_doubtful } else { 0 };
        let both = self.lost_twice(on_fabric);
        let fabric_most =
            self.later + self.later_doubtful + self.first_doubtful + acks + self.datagrams + hidden + both;
        let fabric = PacketBounds {
            at_least: self.reported.max(on_fabric),
            at_most: (!self.has_one_point).then(|| fabric_most.max(self.reported)),
        };
        [capture, never, fabric]
    }

    /// Missing later transmissions that the capture may have lost, with its `share` of lost records.
    fn later_of_capture(&self, share: f64) -> u64 {
        if self.later == 0 {
            return 0;
        }
        if share > 0.0 {
            return at_most(share * self.later_records as f64);
        }
        chance(self.later_records as f64 / (self.first_records + self.later_records).max(1) as f64)
    }

    /// Packets that the fabric may have lost in pairs: of two transmissions of a PSN, none reached
    /// the receiver, so that their two records look like those of one transmission.
    fn lost_twice(&self, on_fabric: u64) -> u64 {
        let share = on_fabric as f64 / (self.reliable_packets.max(1) as f64);
        if self.later_packets == 0 { 0 } else { 2 * (1 + (2.0 * share * on_fabric as f64).ceil() as u64) }
    }

    /// Datagrams that no point has, at most: the same share as of the packets of reliable
    /// connections, whose PSNs show all that are missing.
    fn datagrams_never_captured(&self) -> u64 {
        if self.datagram_packets == 0 {
            return 0;
        }
        if self.reliable_packets < ENOUGH_PACKETS {
            return self.datagram_packets;
        }
        let share = (self.never_packets + CHANCE_EVENTS) as f64 / self.reliable_packets as f64;
        let expected = share * self.datagram_packets as f64;
        let margin = if self.never_packets == 0 { 3.0 * expected.sqrt() } else { margin(expected) };
        ((expected + margin).ceil() as u64).min(self.datagram_packets)
    }

    /// Missing ACKs that the capture certainly lost: the fabric loses ACKs like requests.
    fn acks_of_capture(&self) -> u64 {
        if !self.retransmits {
            return self.acks;
        }
        let packets = (self.first_records / 2).max(1) as f64;
        let share = (self.later + self.reported + self.first_doubtful) as f64 / packets;
        self.acks.saturating_sub(at_most(share * self.first_acks as f64))
    }
}

/// So many events in a row of this probability each are excluded.
fn chance(probability: f64) -> u64 {
    (CHANCE.ln() / probability.clamp(1e-9, 0.99).ln()).ceil() as u64
}

/// The largest number that chance gives if this many are expected.
fn at_most(expected: f64) -> u64 {
    (expected + margin(expected)).ceil() as u64
}

fn margin(expected: f64) -> f64 {
    DEVIATIONS * (expected * BURST_PACKETS).sqrt() + DEVIATIONS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::traffic::MissingRecords;

    fn sums(missing: [u64; 3], later_packets: u64) -> ObservationSums {
        let [first_missing, later_missing, acks] = missing;
        ObservationSums {
            points: 2,
            is_partial: false,
            data: MissingRecords { first_packets: 1000, later_packets, first_missing, later_missing },
            acks: MissingRecords { first_packets: 500, first_missing: acks, ..MissingRecords::default() },
        }
    }

    fn bounds(observations: &ObservationSums, never: u64, possible: Option<u64>) -> [PacketBounds; 3] {
        let mut all = LossSums::default();
        let retransmits = observations.data.later_packets > 0;
        let observations = Some(observations);
        let own = ConnectionLoss {
            observations,
            is_datagram: false,
            never,
            possible,
            reported: 0,
            retransmits,
            is_answered: true,
        };
        all.add(&own);
        all.bounds()
    }

    fn exactly(packets: u64) -> PacketBounds {
        PacketBounds { at_least: packets, at_most: Some(packets) }
    }

    #[test]
    fn records_missing_at_one_point_without_retransmissions_were_lost_by_the_capture() {
        let found = bounds(&sums([30, 0, 12], 0), 0, Some(0));
        assert_eq!(found, [exactly(42), PacketBounds::NONE, PacketBounds::NONE]);
    }

    #[test]
    fn a_packet_that_no_point_has_counts_at_both() {
        let [capture, never, _] = bounds(&sums([0, 0, 0], 0), 3, Some(5));
        assert_eq!(
            (capture, never),
            (PacketBounds { at_least: 6, at_most: Some(10) }, PacketBounds { at_least: 3, at_most: Some(5) })
        );
        let [capture, never, _] = bounds(&sums([0, 0, 0], 0), 3, None);
        assert_eq!((capture.at_most, never.at_most), (None, None));
    }

    /// 100 of 1000 later transmissions were missing at the receiver. Fewer than three of them would
    /// be the capture's with a probability above one in ten thousand.
    #[test]
    fn missing_later_transmissions_were_lost_on_the_fabric() {
        let [capture, _, fabric] = bounds(&sums([0, 100, 0], 100), 0, Some(0));
        // The bounds beyond the missing records allow for losses that hide each other.
        assert!(fabric.at_least == 96 && fabric.at_most.is_some_and(|most| (100..150).contains(&most)), "{fabric:?}");
        assert!(capture.at_least == 0 && capture.at_most.is_some_and(|most| (4..20).contains(&most)), "{capture:?}");
    }
}
