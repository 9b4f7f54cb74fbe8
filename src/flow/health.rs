//! Health of one connection: retransmission episodes, late packets, NAKs, congestion flags and the
//! requests whose responses are still expected.
//!
//! **Go-back-N**: a sender numbers its requests in ascending order. A request at or below the
//! highest PSN so far shows that the sender has gone back. The packets from there to the next new
//! PSN, or to the next step back, are an episode if at least one of them is a retransmission.
//!
//! ```text
//! PSN   4  5  6  7 | 5  6  7  8     episode of 3 packets; cost: from the first 5 to the second 5
//! ```
//! Only the end of the input shows whether second observations are mirror copies. So episodes are
//! counted for both cases: with one observation point every observation is a transmission, with two
//! only the first, third, fifth and so on are.

use super::msn::MsnCheck;
use super::reaction::{self, ReactionMeasurement};
use super::reordering::Reordering;
use crate::model::congestion::nak_code;
use crate::model::health::{Episodes, HealthEvents};
use crate::model::{PacketFlags, PacketRecord, PacketRole, PsnDigest};
use ibscope_parsers::ib::{Aeth, AethKind};

/// Latest first transmissions whose time is kept. Also the distance between the sparse times.
const RECENT_PACKETS: usize = 32;
/// Older times that are kept, one per [`RECENT_PACKETS`] packets.
const SPARSE_TIMES: usize = 32;
/// Ranges of expected responses that a connection may have; when it reaches this number,
/// `completeness` compares as many as it can. A queue pair has at most 16 READs in flight.
const MAX_EXPECTED_RANGES: usize = 128;
/// READ requests with an unknown number of responses that are kept. If there are more, responses
/// without a request no longer prove that a request is missing.
const MAX_READS_OF_UNKNOWN_LENGTH: usize = 64;
/// First responses that wait to be compared with the requests.
const MAX_FIRST_RESPONSES: usize = 512;

/// After this number of second observations, all requests count as observed twice, if the second
/// observations are more than half of the first ones.
const ENOUGH_COPIES: u32 = 64;

/// No number yet.
const NONE_YET: i64 = i64::MIN;

/// Health of one connection before the end of its input. State that most connections do not need is
/// boxed.
#[derive(Debug)]
pub(super) struct HealthTracker {
    /// Highest PSN that a request took; a READ request takes several.
    high: i64,
    /// Highest PSN of a response.
    high_response: i64,
    /// PSNs and times of the first transmissions of requests, in two rings one after the other: the
    /// latest [`RECENT_PACKETS`], and every 32nd of the older ones.
    sent_ns: Vec<SentTime>,
    sent: u32,
    mirror_copies: u32,
    /// The next new request ends an episode or belongs to a running measurement.
    is_awaiting_request: bool,
    /// Requests are observed twice, so only the case of two observation points is still counted.
    observed_twice: bool,
    /// Requests for data and their responses.
    pub(super) data: Option<Box<DataRequests>>,
    anomalies: Option<Box<Anomalies>>,
    /// Message sequence numbers of the ACKs and responses that this connection sent.
    pub(super) msns: MsnCheck,
    /// Messages whose last packet was observed; wraps around.
    pub(super) message_ends: u32,
    /// Requests that ask for an ACK, and ACKs without NAKs, each PSN once.
    pub(super) ack_requests: PsnDigest,
    pub(super) acks: PsnDigest,
    /// Number of the requests that ask for an ACK; wraps around.
    pub(super) asking_requests: u32,
}

/// Knowledge of the number of responses to a request for data.
#[derive(Clone, Copy, Debug)]
pub(super) enum ResponseCount {
    /// The path MTU and the length of the READ are known, or there is one response.
    Exact,
    /// A READ of this many bytes, before the path MTU is known.
    ByPathMtu(u32),
    /// A READ whose length the record does not hold.
    Unknown,
}

/// Requests for data, their responses, and the progress of their comparison.
#[derive(Debug)]
pub(super) struct DataRequests {
    /// The connection that responds to this one.
    pub(super) partner: Option<u32>,
    /// Requests below `requests_compared` have been compared; responses below `responses_compared`
    /// were used for it.
    pub(super) requests_compared: i64,
    pub(super) responses_compared: i64,
    /// Missing request PSNs below `requests_compared` that were acknowledged.
    pub(super) explained: u64,
    /// PSNs that need a response: sorted, disjoint ranges.
    pub(super) expected_responses: Vec<(i64, i64)>,
    /// PSNs of the first response of each request that later comparisons need.
    pub(super) first_responses: Vec<i64>,
    /// PSN and length in bytes of READ requests that were observed before the path MTU was known.
    pub(super) reads_of_unknown_length: Vec<(i64, u32)>,
    /// There were more than [`MAX_READS_OF_UNKNOWN_LENGTH`] such READ requests, or some whose length the
    /// records do not hold.
    pub(super) is_unsure: bool,
}

impl Default for DataRequests {
    fn default() -> Self {
        Self {
            partner: None,
            requests_compared: NONE_YET,
            responses_compared: NONE_YET,
            explained: 0,
            expected_responses: Vec::new(),
            first_responses: Vec::new(),
            reads_of_unknown_length: Vec::new(),
            is_unsure: false,
        }
    }
}

/// State of connections with anomalies.
#[derive(Debug, Default)]
struct Anomalies {
    episode_states: [EpisodeState; 2],
    /// Running measurement after a congestion notification.
    reaction: Option<ReactionMeasurement>,
    observed: Option<Box<HealthEvents>>,
    /// NAKs about requests that were observed once, and about requests that were not observed.
    naks_by_observations: [u64; 2],
    /// Order of requests, and of responses.
    reordering: [Reordering; 2],
}

/// PSN and time of a first transmission: 40 bits of nanoseconds (18 minutes) and 24 bits of PSN, in
/// one word, so that a cache line holds eight.
#[derive(Clone, Copy, Debug)]
struct SentTime(u64);

impl SentTime {
    const NUMBER_BITS: u32 = 24;

    const fn new(number: i64, time_ns: i64) -> Self {
        Self(time_ns.cast_unsigned() << Self::NUMBER_BITS | number.cast_unsigned() & 0xFF_FFFF)
    }

    /// The unwrapped PSN: the highest one at or below `high` with these 24 bits.
    const fn number(self, high: i64) -> i64 {
        high - (high.wrapping_sub(self.0.cast_signed()) & 0xFF_FFFF)
    }

    /// The time, if it is within 9 minutes of `now_ns`.
    const fn time_ns(self, now_ns: i64) -> i64 {
        let ago = now_ns.cast_unsigned() << Self::NUMBER_BITS;
        let ago = ago.wrapping_sub(self.0 >> Self::NUMBER_BITS << Self::NUMBER_BITS);
        now_ns.saturating_sub(ago.cast_signed() >> Self::NUMBER_BITS)
    }
}

/// The current run of packets after a step back.
#[derive(Clone, Copy, Debug, Default)]
struct EpisodeState {
    open: bool,
    counted: bool,
    last_number: i64,
    began_ns: i64,
    first_sent_ns: Option<i64>,
}

impl Default for HealthTracker {
    fn default() -> Self {
        Self {
            high: NONE_YET,
            high_response: NONE_YET,
            sent_ns: Vec::new(),
            sent: 0,
            mirror_copies: 0,
            is_awaiting_request: false,
            observed_twice: false,
            data: None,
            anomalies: None,
            msns: MsnCheck::default(),
            message_ends: 0,
            ack_requests: PsnDigest::default(),
            acks: PsnDigest::default(),
            asking_requests: 0,
        }
    }
}

impl HealthTracker {
    /// The health events, to add to.
    pub(super) fn observed(&mut self) -> &mut HealthEvents {
        self.anomalies().observed.get_or_insert_default()
    }

    /// Takes the health events, if there are any.
    pub(super) fn take_observed(&mut self) -> Option<Box<HealthEvents>> {
        let Anomalies { reordering, observed, .. } = self.anomalies.as_deref_mut()?;
        for found in reordering.iter_mut().filter_map(Reordering::end) {
            let reordered = &mut observed.get_or_insert_default().reordered;
            reordered.iter_mut().zip(found).for_each(|(reordered, found)| *reordered += found);
        }
        observed.take().filter(|observed| **observed != HealthEvents::default())
    }

    /// Requests for data and their responses, to add to.
    pub(super) fn data(&mut self) -> &mut DataRequests {
        self.data.get_or_insert_default()
    }

    /// Requests below this number have been compared with their responses.
    pub(super) fn requests_compared(&self) -> i64 {
        self.data.as_ref().map_or(NONE_YET, |data| data.requests_compared)
    }

    /// Responses below this number have been used for that comparison.
    pub(super) fn responses_compared(&self) -> i64 {
        self.data.as_ref().map_or(NONE_YET, |data| data.responses_compared)
    }

    /// Missing request PSNs below [`Self::requests_compared`] that were acknowledged.
    pub(super) fn explained(&self) -> u64 {
        self.data.as_ref().map_or(0, |data| data.explained)
    }

    /// PSNs of first responses.
    pub(super) fn first_responses(&self) -> &[i64] {
        self.data.as_ref().map_or(&[], |data| &data.first_responses)
    }

    fn anomalies(&mut self) -> &mut Anomalies {
        self.anomalies.get_or_insert_default()
    }

    /// Takes a request of a connected service that takes `span` PSNs.
    #[inline]
    pub(super) fn request(&mut self, number: i64, span: u32, occurrence: u32, time_ns: i64) {
        if number > self.high {
            self.high = number + i64::from(span.max(1)) - 1;
            if self.is_awaiting_request {
                self.first_transmission(time_ns);
            }
            self.remember(number, time_ns);
            return;
        }
        self.note_order(0, number, (occurrence, span), self.high);
        if self.observed_twice && occurrence.is_multiple_of(2) {
            return;
        }
        self.later_occurrence(number, occurrence, time_ns);
    }

    /// Notes the order of a packet at or below `high`: `of` is 0 for requests and 1 for responses.
    fn note_order(&mut self, of: usize, number: i64, (occurrence, span): (u32, u32), high: i64) {
        self.anomalies().reordering[of].later(number, (occurrence, span), high);
    }

    /// Records that the receiver asked for this request: from now on, the request is a
    /// retransmission.
    #[cold]
    pub(super) fn note_request_by_nak(&mut self, number: i64) {
        self.anomalies().reordering[0].note_nak(number);
    }

    /// Takes a request, other than a READ or atomic, whose PSN was observed before. Other requests
    /// may not use the PSNs of the latest READ.
    #[cold]
    pub(super) fn later_request(&mut self, number: i64, occurrence: u32) {
        let latest = self.data.as_ref().and_then(|data| data.expected_responses.last().copied());
        let is_reused = |(start, end): (i64, i64)| (start..end).contains(&number) && end > self.high;
        if latest.is_some_and(is_reused) {
            self.observed().reused_psns[usize::from(occurrence.is_multiple_of(2))] += 1;
        }
    }

    /// Takes a new request that ends an episode or belongs to a measurement.
    fn first_transmission(&mut self, time_ns: i64) {
        let Anomalies { episode_states: readings, reaction, observed, reordering, .. } = self.anomalies();
        reordering[0].new_high();
        readings.iter_mut().for_each(|reading| reading.open = false);
        if time_ns != PacketRecord::NO_TIME {
            reaction.take_if(|running| running.request(time_ns, &mut observed.get_or_insert_default().reaction));
        }
        self.is_awaiting_request = reaction.is_some();
    }

    /// Takes a congestion notification (CNP) to the sender.
    pub(super) fn congestion_notification(&mut self, now_ns: i64) {
        let count = self.sent as usize;
        let at = |back: usize| Some(self.sent_ns.get(count.checked_sub(back)? % RECENT_PACKETS)?.time_ns(now_ns));
        let times_ns = at(1).zip(at(reaction::GAPS as usize + 1));
        if let Some((last_ns, first_ns)) = times_ns
            && self.anomalies().reaction.is_none()
        {
            self.anomalies().reaction = Some(ReactionMeasurement::new(last_ns, last_ns.saturating_sub(first_ns)));
            self.is_awaiting_request = true;
        }
    }

    fn later_occurrence(&mut self, number: i64, occurrence: u32, time_ns: i64) {
        self.is_awaiting_request = true;
        if occurrence == 1 {
            self.observed().late_packets += 1;
        }
        if occurrence == 2 {
            self.mirror_copies += 1;
            self.observed_twice = self.mirror_copies >= ENOUGH_COPIES && self.mirror_copies > self.sent / 2;
        }
        if !self.observed_twice {
            self.step_back(0, number, occurrence >= 2, time_ns);
        }
        if occurrence % 2 == 1 {
            self.step_back(1, number, occurrence >= 3, time_ns);
        }
    }

    /// Takes a READ response or an atomic acknowledgement. `starts` is true for the first response
    /// to a request, `is_overtaken` for one that is late only because several inputs are read
    /// together.
    #[inline]
    pub(super) fn response(&mut self, number: i64, occurrence: u32, (starts, is_overtaken): (bool, bool)) {
        if starts && occurrence == 1 {
            self.data().first_responses.push(number);
        }
        if number > self.high_response {
            self.high_response = number;
            if let Some(anomalies) = &mut self.anomalies {
                anomalies.reordering[1].new_high();
            }
            return;
        }
        if is_overtaken {
            return;
        }
        if occurrence == 1 {
            self.observed().late_packets += 1;
        }
        self.note_order(1, number, (occurrence, 1), self.high_response);
    }

    /// Takes the AETH of an ACK or response.
    #[inline]
    pub(super) fn check_msn(&mut self, packet: &PacketRecord, occurrence: u32) {
        let is_wrong = packet.extension().is_some_and(|aeth| self.msns.check(packet.psn().value(), aeth, occurrence));
        if is_wrong {
            self.observed().wrong_msns += 1;
        }
    }

    /// NAKs about requests that the input had observed once, and about requests that it had not
    /// observed.
    pub(super) fn naks_by_observations(&self) -> [u64; 2] {
        self.anomalies.as_ref().map_or([0; 2], |anomalies| anomalies.naks_by_observations)
    }

    /// Counts a NAK by the observations of its request so far.
    #[cold]
    pub(super) fn note_nak(&mut self, observations: Option<u32>) {
        match observations {
            Some(1) => self.anomalies().naks_by_observations[0] += 1,
            Some(0) => self.anomalies().naks_by_observations[1] += 1,
            _ => {}
        }
    }

    /// Takes an ACK or NAK.
    #[inline]
    pub(super) fn acknowledge(&mut self, number: i64, occurrence: u32, packet: &PacketRecord) {
        match packet.nak() {
            Some(aeth) => self.nak(Aeth::from_word(aeth), occurrence),
            None if occurrence == 1 => self.acks.add(number as u32 & 0xFF_FFFF),
            None => {}
        }
    }

    #[cold]
    fn nak(&mut self, aeth: Aeth, occurrence: u32) {
        let (kind, observed) = (aeth.kind(), self.observed());
        if let AethKind::RnrNak { timer_ns } = kind {
            observed.rnr_naks.add(occurrence);
            observed.longest_rnr_timer_ns = observed.longest_rnr_timer_ns.max(timer_ns);
        } else if let Some(code) = nak_code(&kind) {
            observed.naks[code].add(occurrence);
        }
    }

    /// Takes a packet with congestion flags or checksum errors. BECN does not count in a congestion
    /// notification, which always has it.
    #[cold]
    pub(super) fn flagged(&mut self, flags: PacketFlags, (role, occurrence): (PacketRole, u32)) {
        for (count, flag) in self.observed().flagged.iter_mut().zip(PacketFlags::ALL) {
            if flags.contains(flag) && !(role == PacketRole::Other && flag == PacketFlags::BECN) {
                count.add(occurrence);
            }
        }
    }

    /// Takes the first observation of a request that expects data, and the number of its responses.
    pub(super) fn expect_responses(&mut self, number: i64, span: u32, responses: ResponseCount) {
        self.observed().data_requests += 1;
        let DataRequests { expected_responses, reads_of_unknown_length, is_unsure, .. } = self.data();
        insert(expected_responses, number, number + i64::from(span.max(1)));
        match responses {
            ResponseCount::Exact => {}
            ResponseCount::ByPathMtu(length_bytes) if reads_of_unknown_length.len() < MAX_READS_OF_UNKNOWN_LENGTH => {
                reads_of_unknown_length.push((number, length_bytes));
            }
            ResponseCount::ByPathMtu(_) | ResponseCount::Unknown => *is_unsure = true,
        }
    }

    /// If too many expected ranges wait: the number below which they can be compared now.
    pub(super) fn requests_to_compare(&self) -> Option<i64> {
        let expected = &self.data.as_ref()?.expected_responses;
        let &(start, _) = expected.get(MAX_EXPECTED_RANGES - RECENT_PACKETS)?;
        (expected.len() >= MAX_EXPECTED_RANGES).then_some(start)
    }

    /// If too many first responses wait: the number below which they can be compared now.
    pub(super) fn responses_to_compare(&self) -> Option<i64> {
        let number = self.first_responses().get(MAX_FIRST_RESPONSES - MAX_FIRST_RESPONSES / 4).copied();
        number.filter(|_| self.first_responses().len() >= MAX_FIRST_RESPONSES)
    }

    /// Highest request PSN, if any.
    pub(super) fn high(&self) -> Option<i64> {
        (self.high != NONE_YET).then_some(self.high)
    }

    fn remember(&mut self, number: i64, time_ns: i64) {
        if time_ns == PacketRecord::NO_TIME {
            return;
        }
        let sent = SentTime::new(number, time_ns);
        let (count, at) = (self.sent as usize, self.sent as usize % RECENT_PACKETS);
        let ring = &mut self.sent_ns;
        if at == 0 && count > 0 {
            if count == RECENT_PACKETS {
                ring.extend_from_within(..1);
            }
            ring_put(ring, RECENT_PACKETS + count / RECENT_PACKETS % SPARSE_TIMES, sent);
        }
        ring_put(ring, at, sent);
        // On overflow, continues at a multiple of both ring lengths that is larger than both.
        self.sent = self.sent.checked_add(1).unwrap_or(1 << 31);
    }

    /// Time of the first transmission of a PSN; for a PSN without a first observation, that of the
    /// next higher PSN.
    fn first_sent_ns(&self, number: i64, was_seen: bool, now_ns: i64) -> Option<i64> {
        let count = self.sent as usize;
        let mut higher = None;
        for back in 1..=count.min(RECENT_PACKETS) {
            let entry = self.sent_ns.get((count - back) % RECENT_PACKETS)?;
            let (sent, time_ns) = (entry.number(self.high), entry.time_ns(now_ns));
            if sent == number || sent < number && was_seen {
                return Some(time_ns);
            }
            if sent < number {
                return higher;
            }
            higher = Some(time_ns);
        }
        if count <= RECENT_PACKETS {
            // The PSN lies before all observed ones.
            return higher;
        }
        let steps = count.div_ceil(RECENT_PACKETS);
        let before = (1..=steps.min(SPARSE_TIMES))
            .filter_map(|back| self.sent_ns.get(RECENT_PACKETS + (steps - back) % SPARSE_TIMES));
        before.copied().find(|entry| entry.number(self.high) <= number).map(|entry| entry.time_ns(now_ns))
    }

    /// Takes a transmission at or below the highest PSN. `reading` is 0 for one observation point,
    /// 1 for two.
    fn step_back(&mut self, reading: usize, number: i64, is_retransmission: bool, time_ns: i64) {
        let before = self.anomalies().episode_states[reading];
        if !before.open || number <= before.last_number {
            let first_sent_ns = self.first_sent_ns(number, is_retransmission, time_ns);
            self.anomalies().episode_states[reading] =
                EpisodeState { open: true, counted: false, last_number: number, began_ns: time_ns, first_sent_ns };
        }
        let Anomalies { episode_states: readings, observed, .. } = self.anomalies();
        let run = &mut readings[reading];
        run.last_number = number;
        if is_retransmission {
            let episodes = &mut observed.get_or_insert_default().episodes[reading];
            episodes.packets += 1;
            if !run.counted {
                run.counted = true;
                count_episode(episodes, run);
            }
        }
    }
}

fn count_episode(episodes: &mut Episodes, run: &EpisodeState) {
    episodes.count += 1;
    if let Some(first_ns) = run.first_sent_ns
        && run.began_ns != PacketRecord::NO_TIME
    {
        let cost_ns = run.began_ns.saturating_sub(first_ns).max(0).cast_unsigned();
        episodes.timed += 1;
        episodes.total_ns = episodes.total_ns.saturating_add(cost_ns);
        episodes.longest_ns = episodes.longest_ns.max(cost_ns);
    }
}

/// Writes to a ring that may not have its full length yet.
fn ring_put<T>(ring: &mut Vec<T>, at: usize, value: T) {
    if let Some(slot) = ring.get_mut(at) {
        *slot = value;
        return;
    }
    // Most connections fill only a part of their ring, and there are many: grow by block sizes of
    // the allocator.
    if ring.len() == ring.capacity() {
        ring.reserve_exact(if ring.is_empty() { 5 } else { 4 });
    }
    ring.push(value);
}

/// Adds a range to sorted, disjoint ranges. Normally it comes last.
pub(super) fn insert(ranges: &mut Vec<(i64, i64)>, start: i64, end: i64) {
    let from = ranges.iter().rposition(|range| range.1 < start).map_or(0, |index| index + 1);
    let to = ranges.iter().rposition(|range| range.0 <= end).map_or(0, |index| index + 1);
    let joined = ranges.get(from..to.max(from)).unwrap_or_default();
    let start = joined.first().map_or(start, |first| first.0.min(start));
    let end = joined.last().map_or(end, |last| last.1.max(end));
    ranges.splice(from..to.max(from), [(start, end)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Health after these requests (PSN, occurrence), one microsecond apart.
    fn sent(packets: &[(i64, u32)]) -> HealthEvents {
        let mut health = HealthTracker::default();
        for (time_us, &(number, occurrence)) in packets.iter().enumerate() {
            health.request(number, 1, occurrence, time_us as i64 * 1000);
        }
        *health.observed()
    }

    #[test]
    fn an_episode_costs_the_time_from_the_first_to_the_second_transmission() {
        let observed = sent(&[(4, 1), (5, 1), (6, 1), (7, 1), (5, 2), (6, 2), (7, 2), (8, 1)]);
        let once = Episodes { count: 1, packets: 3, timed: 1, total_ns: 3000, longest_ns: 3000 };
        assert_eq!(observed.episodes[0], once);
        assert_eq!(observed.late_packets, 0);
    }

    #[test]
    fn a_retransmission_of_a_packet_lost_before_the_capture_is_late_and_starts_an_episode() {
        // 5 was not observed before; 6 was sent one microsecond later.
        let observed = sent(&[(4, 1), (6, 1), (7, 1), (5, 1), (6, 2), (7, 2), (8, 1)]);
        let once = Episodes { count: 1, packets: 2, timed: 1, total_ns: 2000, longest_ns: 2000 };
        assert_eq!((observed.episodes[0], observed.late_packets), (once, 1));
        // Reordering alone is no episode.
        let observed = sent(&[(4, 1), (6, 1), (5, 1), (7, 1)]);
        assert_eq!((observed.episodes[0], observed.late_packets), (Episodes::default(), 1));
    }

    #[test]
    fn a_sender_that_steps_back_twice_has_two_episodes() {
        let observed = sent(&[(1, 1), (2, 1), (1, 2), (2, 2), (1, 3), (2, 3), (3, 1)]);
        let once = Episodes { count: 2, packets: 4, timed: 2, total_ns: 2000 + 4000, longest_ns: 4000 };
        assert_eq!(observed.episodes[0], once);
    }

    #[test]
    fn a_read_restarted_in_the_middle_is_an_episode() {
        let mut health = HealthTracker::default();
        for (number, span, occurrence, time_ns) in [(10, 8, 1, 0), (14, 4, 2, 500), (18, 1, 1, 600)] {
            health.request(number, span, occurrence, time_ns);
        }
        let once = Episodes { count: 1, packets: 1, timed: 1, total_ns: 500, longest_ns: 500 };
        assert_eq!((health.observed().episodes[0], health.observed().late_packets), (once, 0));
    }

    #[test]
    fn mirror_copies_at_two_points_are_no_episodes() {
        let observed = sent(&[(1, 1), (1, 2), (2, 1), (2, 2), (1, 3), (1, 4), (2, 3), (2, 4), (3, 1), (3, 2)]);
        let twice = Episodes { count: 1, packets: 2, timed: 1, total_ns: 4000, longest_ns: 4000 };
        assert_eq!(observed.episodes[1], twice);
    }

    #[test]
    fn old_times_are_known_to_within_32_packets() {
        let packets: Vec<(i64, u32)> = (0..200).map(|number| (number, 1)).chain([(70, 2), (200, 1)]).collect();
        // PSN 64 is the latest kept one at or below 70.
        assert_eq!(sent(&packets).episodes[0].total_ns, (200 - 64) * 1000);
        let packets: Vec<(i64, u32)> = (0..2000).map(|number| (number, 1)).chain([(70, 2), (2000, 1)]).collect();
        assert_eq!(sent(&packets).episodes[0], Episodes { count: 1, packets: 1, ..Episodes::default() });
    }

    #[test]
    fn a_sent_time_keeps_its_number_and_time() {
        let (number, time_ns) = (0x12_3456_789A, 1_700_000_000_123_456_789);
        let sent = SentTime::new(number, time_ns);
        for later in [0, 1, 1000, 0xFF_FFFF] {
            assert_eq!(sent.number(number + later), number);
        }
        for later_ns in [0, 1, 500_000_000_000, -1, -1_000_000] {
            assert_eq!(sent.time_ns(time_ns + later_ns), time_ns);
        }
    }

    #[test]
    fn after_many_mirror_copies_only_two_points_are_counted() {
        let both = |number| [(number, 1), (number, 2)];
        let again = [(1990, 3), (1990, 4), (1991, 3), (1991, 4)];
        let packets: Vec<(i64, u32)> = (0..2000).flat_map(both).chain(again).chain(both(2000)).collect();
        let twice = Episodes { count: 1, packets: 2, timed: 1, total_ns: 20_000, longest_ns: 20_000 };
        assert_eq!(sent(&packets).episodes[1], twice);
    }

    #[test]
    fn ranges_join() {
        let mut ranges = Vec::new();
        for (start, end) in [(10, 12), (20, 25), (12, 14), (0, 5), (30, 31), (13, 22), (5, 6)] {
            insert(&mut ranges, start, end);
        }
        assert_eq!(ranges, [(0, 6), (10, 25), (30, 31)]);
    }
}
