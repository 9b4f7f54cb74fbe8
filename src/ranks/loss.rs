//! Bounds on the packets that the capture and the fabric lost.
//!
//! In: the evidence of each connection. Out: the bounds of all connections together. A record that
//! is missing at one of two observation points was lost on the fabric between them, or by the
//! capture:
//!
//! ```text
//! first transmission, acknowledged    by the capture: the packet has passed both points
//! later transmission                  on the fabric: only lost packets are retransmitted
//! ACK                                 on the fabric at the rate of the data, the rest by the capture
//! datagram                            likewise
//! ```
//! If the capture loses records, some of them are later transmissions. Their number follows from
//! the share of the first transmissions that it lost. Losses come in bursts, so the margins count
//! loss events instead of packets ([`most_without_trace`]).
//!
//! Invariant: a number that another cause could explain never counts as certain.

use crate::model::{ObservationSums, PacketBounds, PsnSteps, RecordCount, RecordSeries};

/// Probability that a number of losses without a trace exceeds its bound.
const TAIL: f64 = 1e-4;
/// The same, for a cause that no observed loss has.
const CHANCE: f64 = 0.03;
/// Number of events above which [`quantile`] uses a normal distribution.
const MANY_EVENTS: f64 = 600.0;
/// Packets that show the share of the losses.
const ENOUGH_PACKETS: u64 = 100;

/// Evidence of one connection.
#[derive(Debug)]
pub(super) struct ConnectionLoss<'a> {
    pub(super) observations: Option<&'a ObservationSums>,
    pub(super) service: LossService,
    /// Lower and upper bound of the packets that are missing at all points (upper `None`:
    /// unlimited).
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

/// Service of a connection, by how its losses can be detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LossService {
    Reliable,
    /// Datagrams that the library numbers.
    Numbered,
    /// Other packets, which are not acknowledged.
    Unreliable,
}

/// Packets of a connection that may be missing at all observation points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PossibleLoss {
    /// Missing PSNs.
    pub(super) packets: u64,
    /// ACKs that were asked for.
    pub(super) acks: u64,
    /// Ends of the connection, 0 to 2, beyond which packets may be missing without evidence.
    pub(super) open_ends: u64,
}

impl PossibleLoss {
    /// Nothing is missing.
    pub(super) const NONE: Self = Self { packets: 0, acks: 0, open_ends: 0 };
}

/// Packets that are missing at all observation points, of connections whose points are in one input
/// or in several. An input that loses records may miss both copies.
#[derive(Debug, Default)]
struct MissingPackets {
    /// Packets that are certainly missing at all points, and the same counted once per point.
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

/// Losses of records of an input, from its time series.
#[derive(Clone, Copy, Debug)]
struct RecordLosses {
    count: RecordCount,
    /// Records that one loss event takes.
    burst: f64,
}

impl Default for RecordLosses {
    fn default() -> Self {
        Self { count: RecordCount::default(), burst: 1.0 }
    }
}

/// Losses of records of the inputs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CaptureLosses {
    /// The two inputs that miss the largest shares of their records, the worse one first.
    worst: [RecordLosses; 2],
}

impl CaptureLosses {
    pub(super) fn new(inputs: &[RecordSeries]) -> Self {
        let losses = |input: &RecordSeries| RecordLosses { count: input.total, burst: input.burst_records() };
        let mut losses: Vec<RecordLosses> = inputs.iter().map(losses).collect();
        losses.sort_by(|one, other| share(other.count).total_cmp(&share(one.count)));
        Self { worst: std::array::from_fn(|at| losses.get(at).copied().unwrap_or_default()) }
    }

    /// Records that one loss event takes, at the input with the longest ones.
    fn burst(&self) -> f64 {
        self.worst[0].burst.max(self.worst[1].burst)
    }

    /// Packets that two inputs lose together: not more than either loses.
    const fn common_burst(&self) -> f64 {
        self.worst[0].burst.min(self.worst[1].burst)
    }

    /// True if at most one input misses records.
    const fn is_one_sided(&self) -> bool {
        self.worst[1].count.missing() == 0
    }

    /// Upper bound of the packets that are missing at all points without a trace, from the losses
    /// of the inputs and from the `never` packets that are certainly missing at all points. The
    /// loss of packets like the `exposed` observed ones leaves no trace, nor does that of
    /// `open_ends` bursts at the ends of connections.
    fn without_trace(&self, never: f64, (exposed, open_ends): (f64, f64), is_one_input: bool) -> u64 {
        let [worst, second] = self.worst;
        let ratio =
            |input: RecordLosses, burst: f64| (exposed + open_ends * burst) / input.count.observed.max(1) as f64;
        if is_one_input {
            let missing = worst.count.missing() as f64 + 2.0 * never;
            return most_without_trace(missing, ratio(worst, worst.burst), worst.burst, TAIL);
        }
        // The losses of two inputs coincide.
        let missing = worst.count.missing() as f64 + never;
        let most = missing + 4.0 * (worst.burst * missing.max(worst.burst)).sqrt();
        let share = (most / worst.count.expected.max(1) as f64).min(1.0);
        let burst = self.common_burst();
        let tail = if self.is_one_sided() && never == 0.0 { CHANCE } else { TAIL };
        most_without_trace(second.count.missing() as f64 + never, share * ratio(second, burst), burst, tail)
    }
}

fn share(count: RecordCount) -> f64 {
    count.missing() as f64 / count.expected.max(1) as f64
}

impl MissingPackets {
    /// Upper bound of the packets that are missing at all points. `records_share` is the share of
    /// the records that the capture lost.
    fn at_most(&self, records_share: f64, retransmits: bool, losses: &CaptureLosses) -> u64 {
        let PossibleLoss { packets, acks, open_ends } = self.possible;
        if self.packets == 0 && records_share == 0.0 && self.data >= ENOUGH_PACKETS {
            // Nothing was lost: one packet may be.
            let is_open = open_ends + acks + self.datagrams > 0;
            return packets + u64::from(is_open);
        }
        let gap = self.steps.gap_packets();
        let burst = gap.max(if self.is_one_input { losses.burst() } else { losses.common_burst() });
        // From the numbered packets of these connections, and from those of the inputs.
        let without_trace = |exposed: u64| {
            let (exposed, ends) = (exposed as f64, open_ends as f64);
            let own = most_without_trace(
                self.packets as f64,
                (exposed + ends * burst) / self.data.max(1) as f64,
                burst,
                TAIL,
            );
            own.min(losses.without_trace(self.packets as f64, (exposed, ends), self.is_one_input))
        };
        let others = self.datagrams + if retransmits { self.later } else { 0 };
        // ACKs: a share of all, or every one that was asked for.
        let with_acks = without_trace(others + if acks > 0 { self.acks } else { 0 });
        let beyond = if self.data < ENOUGH_PACKETS { self.datagrams } else { 0 };
        packets + beyond.max(with_acks.min(without_trace(others) + acks))
    }
}

/// Sums over all connections.
#[derive(Debug, Default)]
pub(super) struct LossSums {
    /// By whether one input has all points of the connection.
    never: [MissingPackets; 2],
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
    /// Missing records of ACKs, likewise: a responder may send a duplicate ACK without a loss.
    acks: u64,
    acks_doubtful: u64,
    /// Connections that miss ACKs: their ACKs, and the missing records.
    acks_by_connection: Vec<(u64, u64)>,
    /// Missing records of datagrams, and of datagrams that a library numbers and would retransmit.
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
    losses: CaptureLosses,
}

impl LossSums {
    pub(super) fn new(losses: CaptureLosses) -> Self {
        Self { losses, ..Self::default() }
    }

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
        // A request with a response has arrived. There is no such evidence for a response.
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

    /// Packets that the capture lost, packets that are missing at all points, packets that the
    /// fabric lost.
    pub(super) fn bounds(&self) -> [PacketBounds; 3] {
        let of_capture = self.first_certain + self.never_records();
        let certain = self.certain_on_fabric();
        let acks = self.acks_on_fabric();
        let [datagrams, numbered] = self.datagrams_on_fabric();
        let hidden = self.hidden();
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
        let possible: Vec<(u64, u64)> = self
            .never
            .iter()
            .map(|never| (never.at_most(share, self.retransmits, &self.losses), never.points))
            .collect();
        let possible_records: u64 = possible.iter().map(|(packets, points)| packets * points).sum();
        let possible_packets: u64 = possible.iter().map(|(packets, _)| packets).sum();
        let capture = PacketBounds {
            at_least: of_capture
                + (self.acks - acks)
                + (self.datagrams - datagrams)
                + (self.numbered_datagrams - numbered),
            at_most: is_limited.then(|| missing + possible_records + 2 * hidden - certain),
        };
        let never =
            PacketBounds { at_least: self.never_packets(), at_most: is_limited.then(|| possible_packets + hidden) };
        let most = self.later
            + self.later_doubtful
            + self.first_doubtful
            + acks
            + self.acks_doubtful
            + datagrams
            + numbered
            + hidden
            + self.lost_twice();
        let fabric = PacketBounds {
            at_least: self.reported.max(certain),
            at_most: (!self.has_one_point).then(|| most.max(self.reported)),
        };
        [capture, never, fabric]
    }

    /// Share of the records of first transmissions that the capture lost.
    fn lost_share(&self) -> f64 {
        let never = self.never_records();
        (self.first_certain + self.first_doubtful + never) as f64 / (self.first_records + never).max(1) as f64
    }

    /// Missing later transmissions and ACKs that were certainly lost on the fabric: the capture
    /// lost no more of them than the share of its losses of first transmissions explains.
    fn certain_on_fabric(&self) -> u64 {
        if !self.retransmits {
            return 0;
        }
        let first_lost = self.first_certain + self.first_doubtful + self.never_records();
        let traced = self.first_records.saturating_sub(first_lost).max(1) as f64;
        let burst = self.losses.burst();
        let is_lossless = first_lost == 0 && self.never_packets() == 0;
        if !is_lossless || self.datagrams + self.numbered_datagrams > 0 {
            let ratio = self.later_records as f64 / traced;
            return self.later.saturating_sub(most_without_trace(first_lost as f64, ratio, burst, TAIL));
        }
        // The capture can only have lost a few records, all of them of ACKs and later
        // transmissions, or a burst of the ACKs of one connection.
        let rate = (self.later + self.reported) as f64 / (self.first_records / 2).max(1) as f64;
        let is_usual = |acks: u64, missing: u64| {
            let expected = rate * acks as f64;
            missing as f64 <= expected + 2.0 * expected.sqrt() + 1.0
        };
        let usual = self.acks_by_connection.iter().filter(|(acks, missing)| is_usual(*acks, *missing));
        let usual: u64 = usual.map(|(_, missing)| missing).sum();
        let (later, acks) = (self.later_records as f64, self.ack_records as f64);
        let of_both = most_without_trace(0.0, (later + acks) / traced, burst, CHANCE);
        let of_later = most_without_trace(0.0, later / (traced + acks), burst, CHANCE);
        let of_capture = of_both.min(self.acks + of_later);
        (self.later + self.acks_on_fabric().min(usual)).saturating_sub(of_capture)
    }

    /// Missing ACKs that the fabric may have lost: it loses ACKs like data.
    fn acks_on_fabric(&self) -> u64 {
        let (data, acks) = (self.first_records.max(1) as f64, self.ack_records as f64);
        if self.retransmits {
            let lost_data = (self.later + self.reported) as f64;
            return self.acks.min(most_without_trace(lost_data, acks / data, self.losses.burst(), TAIL));
        }
        // The fabric lost no data. If one input misses no record, it also lost none of the ACKs that
        // this input should have.
        let hidden = if self.losses.is_one_sided() { acks / 2.0 } else { acks };
        self.acks.min(most_without_trace(0.0, hidden / (data + acks - hidden), 1.0, CHANCE))
    }

    /// Missing datagrams that the fabric may have lost: those without and with numbers.
    fn datagrams_on_fabric(&self) -> [u64; 2] {
        let reliable: u64 = self.never.iter().map(|never| never.data).sum();
        let lost_data = (self.later + self.reported) as f64;
        let most = |missing: u64, packets: u64| {
            if reliable < ENOUGH_PACKETS {
                return missing;
            }
            missing.min(most_without_trace(lost_data, packets as f64 / reliable as f64, self.losses.burst(), TAIL))
        };
        let without = most(self.datagrams, self.datagram_packets);
        // A library retransmits a lost datagram that it numbers.
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

    /// Upper bound of the hidden retransmissions: each point has the record of one of the two
    /// transmissions, which looks like one transmission observed at both points.
    fn hidden(&self) -> u64 {
        if !self.retransmits || self.later_records == 0 && self.lost_share() == 0.0 {
            return 0;
        }
        // One of two points may have lost all of them.
        let worst = (2.0 * self.lost_share()).min(0.6);
        let second = share(self.losses.worst[1].count).min(worst);
        let shown = (1.0 - worst) * (1.0 - worst);
        // The fabric lost one record, the capture another one.
        let one = self.later.max(1) as f64 * 2.0 * worst * (1.0 - worst);
        // The capture lost two of four records.
        let [apart, together] = &self.never;
        let two = apart.later as f64 * 4.0 * worst * second + together.later as f64 * 6.0 * worst * worst;
        let most = most_of((one + two) / shown, self.losses.burst());
        if worst > 0.0 { most.max(1) } else { most }
    }

    /// Packets that the fabric may have lost in pairs: of two transmissions of a PSN, none reached
    /// the receiver, so that their two records in one input look like those of one transmission.
    fn lost_twice(&self) -> u64 {
        let share = self.later as f64 / (self.first_records / 2).max(1) as f64;
        let expected = share * self.later_in_one_input as f64;
        if expected < 0.01 { 0 } else { 2 * (1 + (2.0 * expected).floor() as u64) }
    }
}

/// Upper bound of the losses without a trace, from those with a trace: `seen` losses left a trace,
/// and the packets whose loss leaves none are `ratio` times as many as those whose loss leaves one.
///
/// A loss event takes `burst` packets and hits any of them. The number of events without a trace
/// before the next one with a trace therefore has a negative binomial distribution; the quantile
/// leaves `tail`.
fn most_without_trace(seen: f64, ratio: f64, burst: f64, tail: f64) -> u64 {
    let events = seen / burst + 1.0;
    let step = |event: f64| (events + event - 1.0) / event * ratio / (1.0 + ratio);
    let spread = events * ratio * (1.0 + ratio);
    quantile(events * (1.0 + ratio).ln(), step, (events * ratio, spread), (burst, tail))
}

/// Upper bound of the losses if this many are expected, in bursts: a Poisson distribution of the
/// events.
fn most_of(expected: f64, burst: f64) -> u64 {
    let events = expected / burst;
    quantile(events, |event| events / event, (events, events), (burst, TAIL))
}

/// Quantile of a number of events, in packets. The probability of no event is `exp(-none)`, that of
/// `n` events is `step(n)` times that of `n - 1`; a normal distribution replaces one with many.
fn quantile(none: f64, step: impl Fn(f64) -> f64, (mean, variance): (f64, f64), (burst, tail): (f64, f64)) -> u64 {
    if none > MANY_EVENTS || mean > MANY_EVENTS {
        return ((mean + 4.0 * variance.sqrt()) * burst).ceil() as u64;
    }
    let mut probability = (-none).exp();
    let (mut left, mut events) = (1.0 - probability, 0.0);
    while left > tail && events < 100.0 * MANY_EVENTS {
        events += 1.0;
        probability *= step(events);
        left -= probability;
    }
    (events * burst).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::MissingRecords;

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

    /// The fabric lost none of 2000 records of data and of the 500 records of ACKs of one input. Of
    /// `n` losses, all were among the other 500 records of ACKs with a probability of `1/6^n`.
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

    /// The capture has all 2000 records of first transmissions and all 1000 of ACKs, so it can hardly
    /// have lost two of the 200 later ones: `1/16^2` is below 0.03, `1/16` is not.
    #[test]
    fn missing_later_transmissions_were_lost_on_the_fabric() {
        let [capture, _, fabric] = bounds(&sums([0, 100, 0], 100), 0, Some(PossibleLoss::NONE));
        assert_eq!(fabric, PacketBounds { at_least: 99, at_most: Some(100) });
        assert_eq!(capture, PacketBounds { at_least: 0, at_most: Some(1) });
    }

    /// Quantiles of the negative binomial and the Poisson distribution, by their sums.
    #[test]
    fn quantiles_leave_their_tails() {
        // Geometric: q = 1/3, so 1/3^9 = 5.1e-5 is the first power below 1e-4.
        assert_eq!(most_without_trace(0.0, 0.5, 1.0, 1e-4), 8);
        // The same events, of 50 records each.
        assert_eq!(most_without_trace(0.0, 0.5, 50.0, 1e-4), 400);
        // 3 + 1 events, q = 1/2: P(> n) is the binomial P(at most 3 of n + 4): 0.00014 for 20, 0.00008
        // for 21.
        assert_eq!(most_without_trace(3.0, 1.0, 1.0, 1e-4), 21);
        assert_eq!(most_without_trace(10.0, 0.0, 1.0, 1e-4), 0);
        // Poisson with mean 1: P(> 5) = 0.00059, P(> 6) = 0.00008.
        assert_eq!(most_of(1.0, 1.0), 6);
        assert_eq!(most_of(5.0, 5.0), 30);
        // Far above: the normal distribution.
        assert_eq!(most_of(10_000.0, 1.0), 10_400);
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
