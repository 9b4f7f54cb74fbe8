//! Bounds on the packets that the capture and the fabric lost.
//!
//! What each connection proves goes in, the bounds of all connections come out. A record that is
//! missing at one of two observation points was lost on the fabric between them, or by the capture:
//!
//! ```text
//! first transmission, acknowledged    by the capture: the packet has passed both points
//! later transmission                  on the fabric: only lost packets are retransmitted
//! ACK                                 on the fabric at the rate of the data, the rest by the capture
//! datagram                            likewise
//! ```
//! If the capture loses records, some of them are later transmissions. Their number follows from
//! the share of the first transmissions that it lost. All estimates have margins for chance
//! ([`at_most`]).
//!
//! Invariant: no number counts as certain that one of the other causes explains.

use crate::model::PacketBounds;
use crate::model::traffic::{ObservationSums, PsnSteps};

/// Standard deviations of a margin.
const DEVIATIONS: f64 = 4.0;
/// Events that may have been expected where none was observed (95 %).
const CHANCE_EVENTS: f64 = 3.0;
/// Probability that all records that the capture lost are ACKs and later transmissions, at which
/// this is excluded.
const CHANCE: f64 = 0.15;
/// Expected events that do not occur.
const NEGLIGIBLE: f64 = 0.002;
/// Packets that show the share of the losses.
const ENOUGH_PACKETS: u64 = 100;
/// ACKs that the fabric may lose although all data arrive: with and without losses of the capture,
/// which explain missing ACKs too.
const ACKS_WITHOUT_DATA: [u64; 2] = [1, 3];

/// What is known of one connection.
#[derive(Debug)]
pub(super) struct ConnectionLoss<'a> {
    pub(super) observations: Option<&'a ObservationSums>,
    pub(super) service: LossService,
    /// Packets that no point has: at least, and at most (`None`: unlimited).
    pub(super) never: u64,
    pub(super) possible: Option<PossibleLoss>,
    /// Requests that the receiver reported as missing.
    pub(super) reported: u64,
    pub(super) retransmits: bool,
    /// PSNs of requests after the last response.
    pub(super) unanswered: u64,
    /// The connection sends data in response to requests.
    pub(super) sends_responses: bool,
    /// Distances between the PSNs of its requests.
    pub(super) steps: PsnSteps,
}

/// How losses of a connection show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LossService {
    Reliable,
    /// Datagrams that the library numbers.
    Numbered,
    /// Other packets, which nothing acknowledges.
    Unreliable,
}

/// Packets of a connection that possibly no observation point has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PossibleLoss {
    /// Missing PSNs.
    pub(super) packets: u64,
    /// ACKs that were asked for.
    pub(super) acks: u64,
    /// Ends of the connection, 0 to 2, beyond which nothing shows more packets or their absence.
    pub(super) open_ends: u64,
}

impl PossibleLoss {
    /// Nothing is missing.
    pub(super) const NONE: Self = Self { packets: 0, acks: 0, open_ends: 0 };
}

/// Packets that no observation point has, of connections whose points are in one input, or in
/// several: an input that loses records may miss both copies.
#[derive(Debug, Default)]
struct NeverCaptured {
    /// Packets that certainly no point has, and with one count per point.
    packets: u64,
    records: u64,
    possible: PossibleLoss,
    /// Largest number of points of a connection.
    points: u64,
    /// Captured packets of reliable connections: first transmissions of data and of ACKs, later
    /// transmissions.
    data: u64,
    acks: u64,
    later: u64,
    /// Packets without numbers: datagrams, and the acknowledgements of a library.
    datagrams: u64,
    /// Distances between the PSNs of requests.
    steps: PsnSteps,
    is_one_input: bool,
}

impl NeverCaptured {
    /// Mean length of the gap around a missing PSN.
    fn gap_packets(&self) -> f64 {
        let PsnSteps { steps, sum, squares } = self.steps;
        let missing = sum.saturating_sub(steps);
        if missing == 0 {
            return 1.0;
        }
        let squares = (squares + steps).saturating_sub(2 * sum);
        (squares as f64 / missing as f64).max(1.0)
    }

    /// Packets that no point has, at most. `records_share` is the share of the records that the
    /// capture lost.
    fn at_most(&self, records_share: f64, retransmits: bool) -> u64 {
        let PossibleLoss { packets, acks, open_ends } = self.possible;
        if self.packets == 0 && records_share == 0.0 && self.data >= ENOUGH_PACKETS {
            // Nothing was lost: one packet may be.
            let is_open = open_ends + acks + self.datagrams > 0;
            return packets + u64::from(is_open);
        }
        // Where no packet was lost at all points: chance, or the losses of two inputs coincide.
        let chance = if self.is_one_input { CHANCE_EVENTS } else { CHANCE_EVENTS * (2.0 * records_share).min(1.0) };
        let data = self.data.max(1) as f64;
        let share = ((self.packets as f64 + chance) / data).max(records_share * records_share);
        let gap = self.gap_packets();
        let later = if retransmits { self.later } else { 0 };
        let expected = share * (open_ends as f64 * gap + (later + self.datagrams) as f64)
            + (share * self.acks as f64).min(acks as f64);
        let beyond = if self.data < ENOUGH_PACKETS { self.datagrams } else { 0 };
        packets + beyond.max(at_most(expected, if self.packets > 0 { 2.0 * gap } else { 1.0 }))
    }
}

/// Sums over all connections.
#[derive(Debug, Default)]
pub(super) struct LossSums {
    /// By whether one input has all points of the connection.
    never: [NeverCaptured; 2],
    /// Connections that may miss any number of packets.
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
    /// Those of `later` at inputs that have both points.
    later_in_one_input: u64,
    /// Missing records of ACKs, likewise: a responder may send one again without a loss.
    acks: u64,
    acks_doubtful: u64,
    /// Connections that miss ACKs: their ACKs, and the missing records.
    acks_by_connection: Vec<(u64, u64)>,
    /// Missing records of datagrams, and of datagrams that a library numbers and would send again.
    datagrams: u64,
    numbered_datagrams: u64,
    /// Datagrams without numbers of connections with several points.
    datagram_packets: u64,
    /// Records that should exist, of first transmissions, of later ones, and of ACKs.
    first_records: u64,
    later_records: u64,
    ack_records: u64,
    /// A connection has retransmissions: the fabric may lose packets.
    retransmits: bool,
    /// A library retransmits datagrams.
    retransmits_datagrams: bool,
    /// A connection has a single observation point, or an unknown number.
    has_one_point: bool,
}

impl LossSums {
    pub(super) fn add(&mut self, own: &ConnectionLoss<'_>) {
        let points = own.observations.map_or(1, |sums| sums.points);
        self.has_one_point |= points < 2;
        if own.service == LossService::Reliable {
            self.retransmits |= own.retransmits;
        } else {
            self.retransmits_datagrams |= own.retransmits;
        }
        self.reported += own.reported;
        // A point that was not captured all the time may have missed the packet for that reason.
        let is_partial = own.observations.is_some_and(|sums| sums.is_partial);
        let is_one_input = own.observations.is_none_or(|sums| sums.is_one_input);
        let never = &mut self.never[usize::from(is_one_input)];
        never.packets += own.never;
        // The fabric may have lost a datagram between the points.
        let is_at_one_point = is_partial || own.service != LossService::Reliable;
        never.records += own.never * if is_at_one_point { 1 } else { points.max(1) };
        never.points = never.points.max(points);
        never.is_one_input = is_one_input;
        // At one point, only a proof excludes that packets are missing.
        let is_limited =
            |possible: &PossibleLoss| points > 1 || points == 1 && !own.retransmits && *possible == PossibleLoss::NONE;
        match own.possible.filter(is_limited) {
            Some(possible) => {
                never.possible.packets += possible.packets;
                never.possible.acks += possible.acks;
                never.possible.open_ends += possible.open_ends;
            }
            None => self.unlimited += 1,
        }
        let Some(sums) = own.observations.filter(|sums| sums.points > 0) else { return };
        let (data, acks) = (sums.data, sums.acks);
        match own.service {
            LossService::Reliable => {}
            LossService::Numbered => {
                self.numbered_datagrams += data.missing() + acks.missing();
                never.data += data.first_packets;
                // The library does not number its acknowledgements.
                never.datagrams += data.first_packets / 2;
                return;
            }
            LossService::Unreliable => {
                self.datagrams += data.missing() + acks.missing();
                self.datagram_packets += data.first_packets + acks.first_packets;
                never.datagrams += data.first_packets + acks.first_packets;
                return;
            }
        }
        never.data += data.first_packets;
        never.acks += acks.first_packets;
        never.later += data.later_packets + acks.later_packets;
        never.steps.join(own.steps);
        self.first_records += data.first_packets * points;
        self.later_records += data.later_packets * points;
        self.ack_records += (acks.first_packets + acks.later_packets) * points;
        if sums.is_partial {
            self.first_doubtful += data.first_missing;
            self.later_doubtful += data.later_missing;
            self.acks_doubtful += acks.missing();
            return;
        }
        // A request that was answered has arrived. Nothing shows that a response has.
        let responses = if own.sends_responses { data.later_packets } else { 0 };
        let unanswered = own.unanswered.saturating_add(responses);
        let doubtful = data.first_missing.min(unanswered);
        self.first_doubtful += doubtful;
        self.first_certain += data.first_missing - doubtful;
        self.later += data.later_missing;
        self.later_in_one_input += if is_one_input { data.later_missing } else { 0 };
        self.acks += acks.missing();
        if acks.missing() > 0 {
            self.acks_by_connection.push((acks.first_packets, acks.missing()));
        }
    }

    /// Packets that the capture lost, packets that it has from no point, packets that the fabric
    /// lost.
    pub(super) fn bounds(&self) -> [PacketBounds; 3] {
        let of_capture = self.first_certain + self.never_records();
        let later = self.later_on_fabric();
        let acks = self.acks_on_fabric(later.1);
        let [datagrams, numbered] = self.datagrams_on_fabric(later.1);
        let hidden = self.hidden(later.1);
        let share = self.lost_share();
        let is_limited = self.unlimited == 0;
        let missing = self.first_certain
            + self.first_doubtful
            + self.later
            + self.later_doubtful
            + self.acks
            + self.acks_doubtful
            + self.datagrams
            + self.numbered_datagrams;
        let possible: Vec<(u64, u64)> =
            self.never.iter().map(|never| (never.at_most(share, self.retransmits), never.points)).collect();
        let possible_records: u64 = possible.iter().map(|(packets, points)| packets * points).sum();
        let possible_packets: u64 = possible.iter().map(|(packets, _)| packets).sum();
        let capture = PacketBounds {
            at_least: of_capture
                + (self.acks - acks.1)
                + (self.datagrams - datagrams)
                + (self.numbered_datagrams - numbered),
            at_most: is_limited.then(|| missing + possible_records + 2 * hidden - later.0 - acks.0),
        };
        let never =
            PacketBounds { at_least: self.never_packets(), at_most: is_limited.then(|| possible_packets + hidden) };
        let most = later.1
            + self.later_doubtful
            + self.first_doubtful
            + acks.1
            + self.acks_doubtful
            + datagrams
            + numbered
            + hidden
            + self.lost_twice();
        let fabric = PacketBounds {
            at_least: self.reported.max(later.0 + acks.0),
            at_most: (!self.has_one_point).then(|| most.max(self.reported)),
        };
        [capture, never, fabric]
    }

    /// Share of the records of first transmissions that the capture lost.
    fn lost_share(&self) -> f64 {
        let never = self.never_records();
        (self.first_certain + self.first_doubtful + never) as f64 / (self.first_records + never).max(1) as f64
    }

    /// Missing later transmissions that were lost on the fabric: at least and at most.
    fn later_on_fabric(&self) -> (u64, u64) {
        let of_capture = at_most(self.lost_share() * self.later_records as f64, 4.0);
        (self.later.saturating_sub(of_capture), self.later)
    }

    /// Missing ACKs that were lost on the fabric: at least and at most. `lost_data` are the data
    /// packets that the fabric lost, at most.
    fn acks_on_fabric(&self, lost_data: u64) -> (u64, u64) {
        let is_lossless = self.lost_share() == 0.0 && self.never_packets() == 0;
        if !self.retransmits {
            return (0, self.acks.min(ACKS_WITHOUT_DATA[usize::from(is_lossless)]));
        }
        let rate = (lost_data + self.reported) as f64 / (self.first_records / 2).max(1) as f64;
        let expected = rate * (self.ack_records / 2) as f64;
        let most = self.acks.min(at_most(expected, 2.0) + 2);
        if !is_lossless || self.datagrams + self.numbered_datagrams > 0 {
            return (0, most);
        }
        // The capture lost no first transmission: it can only have lost a few records, all of them
        // of ACKs and later transmissions, or a burst of the ACKs of one connection.
        let is_usual = |acks: u64, missing: u64| {
            let expected = rate * acks as f64;
            missing as f64 <= expected + 2.0 * expected.sqrt() + 1.0
        };
        let usual = self.acks_by_connection.iter().filter(|(acks, missing)| is_usual(*acks, *missing));
        let usual: u64 = usual.map(|(_, missing)| missing).sum();
        let others = self.later_records + self.ack_records;
        let share = others as f64 / (self.first_records + others).max(1) as f64;
        (most.min(usual).saturating_sub(chance(share)), most)
    }

    /// Missing datagrams that the fabric may have lost: those without and with numbers.
    fn datagrams_on_fabric(&self, lost_data: u64) -> [u64; 2] {
        let reliable: u64 = self.never.iter().map(|never| never.data).sum();
        let most = |missing: u64, packets: u64| {
            if reliable < ENOUGH_PACKETS {
                return missing;
            }
            let lost = (lost_data + self.reported) as f64 + CHANCE_EVENTS;
            missing.min(at_most(lost / reliable as f64 * packets as f64, 2.0))
        };
        let without = most(self.datagrams, self.datagram_packets);
        // A library sends a numbered datagram again that was lost.
        let numbered =
            if self.retransmits_datagrams { self.numbered_datagrams } else { self.numbered_datagrams.min(3) };
        [without, numbered]
    }

    fn never_records(&self) -> u64 {
        self.never.iter().map(|never| never.records).sum()
    }

    fn never_packets(&self) -> u64 {
        self.never.iter().map(|never| never.packets).sum()
    }

    /// Retransmissions that do not show, at most: each point has the record of one of the two
    /// transmissions, which looks like one transmission at both.
    fn hidden(&self, on_fabric: u64) -> u64 {
        if !self.retransmits || self.later_records == 0 && self.lost_share() == 0.0 {
            return 0;
        }
        // One of two points may have lost all of them.
        let share = (2.0 * self.lost_share()).min(0.6);
        let shown = (1.0 - share) * (1.0 - share);
        at_most(on_fabric.max(1) as f64 * 2.0 * share * (1.0 - share) / shown, 2.0).max(1)
    }

    /// Packets that the fabric may have lost in pairs: of two transmissions of a PSN, none reached
    /// the receiver, so that their two records in one input look like those of one transmission.
    fn lost_twice(&self) -> u64 {
        let share = self.later as f64 / (self.first_records / 2).max(1) as f64;
        let expected = share * self.later_in_one_input as f64;
        if expected < 0.01 { 0 } else { 2 * (1 + (2.0 * expected).floor() as u64) }
    }
}

/// So many events in a row of this probability each are excluded.
fn chance(probability: f64) -> u64 {
    (CHANCE.ln() / probability.clamp(1e-9, 0.9).ln()).ceil() as u64
}

/// The largest number that chance gives if this many are expected, in bursts of `burst` events.
fn at_most(expected: f64, burst: f64) -> u64 {
    if expected < NEGLIGIBLE {
        return 0;
    }
    (expected + DEVIATIONS * (expected * burst).sqrt()).ceil() as u64
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
            is_one_input: false,
            data: MissingRecords { first_packets: 1000, later_packets, first_missing, later_missing },
            acks: MissingRecords { first_packets: 500, first_missing: acks, ..MissingRecords::default() },
        }
    }

    fn connection(observations: &ObservationSums) -> ConnectionLoss<'_> {
        ConnectionLoss {
            observations: Some(observations),
            service: LossService::Reliable,
            never: 0,
            possible: Some(PossibleLoss::NONE),
            reported: 0,
            retransmits: observations.data.later_packets > 0,
            unanswered: 0,
            sends_responses: false,
            steps: PsnSteps::default(),
        }
    }

    fn bounds(observations: &ObservationSums, never: u64, possible: Option<PossibleLoss>) -> [PacketBounds; 3] {
        let mut all = LossSums::default();
        all.add(&ConnectionLoss { never, possible, ..connection(observations) });
        all.bounds()
    }

    /// The fabric loses ACKs like data. It lost no data, so it lost one ACK at most.
    #[test]
    fn records_missing_at_one_point_without_retransmissions_were_lost_by_the_capture() {
        let [capture, never, fabric] = bounds(&sums([30, 0, 12], 0), 0, Some(PossibleLoss::NONE));
        assert_eq!((capture.at_least, fabric), (41, PacketBounds { at_least: 0, at_most: Some(1) }));
        assert_eq!((capture.at_most, never), (Some(42), PacketBounds::NONE));
        let [capture, _, fabric] = bounds(&sums([30, 0, 0], 0), 0, Some(PossibleLoss::NONE));
        assert_eq!((capture, fabric), (PacketBounds { at_least: 30, at_most: Some(30) }, PacketBounds::NONE));
    }

    #[test]
    fn a_packet_that_no_point_has_counts_at_both() {
        let missing = PossibleLoss { packets: 5, acks: 0, open_ends: 0 };
        let [capture, never, _] = bounds(&sums([0, 0, 0], 0), 3, Some(missing));
        assert_eq!((capture.at_least, never), (6, PacketBounds { at_least: 3, at_most: Some(5) }));
        assert_eq!(capture.at_most, Some(10));
        // With an unknown end: more, in proportion to the share of the losses.
        let [_, never, _] = bounds(&sums([0, 0, 0], 0), 3, Some(PossibleLoss { open_ends: 2, ..missing }));
        assert!(never.at_most.is_some_and(|most| (6..10).contains(&most)), "{never:?}");
        let [capture, never, _] = bounds(&sums([0, 0, 0], 0), 3, None);
        assert_eq!((capture.at_most, never.at_most), (None, None));
    }

    /// The capture has all first transmissions, so it can hardly have lost later ones.
    #[test]
    fn missing_later_transmissions_were_lost_on_the_fabric() {
        let [capture, _, fabric] = bounds(&sums([0, 100, 0], 100), 0, Some(PossibleLoss::NONE));
        assert!(fabric.at_least == 100 && fabric.at_most.is_some_and(|most| (101..110).contains(&most)), "{fabric:?}");
        assert!(capture.at_least == 0 && capture.at_most.is_some_and(|most| (2..20).contains(&most)), "{capture:?}");
    }

    /// 30 of the 50 missing ACKs are those of one connection, more than the fabric loses of others.
    #[test]
    fn acks_lost_in_a_burst_prove_no_loss_on_the_fabric() {
        let all = |acks: &[u64]| {
            let mut all = LossSums::default();
            for acks in acks {
                all.add(&connection(&sums([0, 10, *acks], 10)));
            }
            all.bounds()[2]
        };
        assert!((25..30).contains(&all(&[5, 5]).at_least));
        assert!((20..25).contains(&all(&[30, 4]).at_least));
    }
}
