//! Measures times between packets of a connection: from requests to their responses, between
//! messages, and between the observations of a packet at two ports.
//!
//! A *response* is an ACK, a NAK or a packet with response data. The responses to the requests of
//! `A -> B, QP b` go over `B -> A, QP a`, another connection, which the packets do not name.
//! `pairing` finds it; until the pair is clear, responses wait, so that no time counts for the
//! wrong connection.

use super::arrivals::{Arrivals, PendingTiming};
use super::assembly::Transport;
use super::port_copies::{Arrival, PortCopies, SecondObservation, make_room};
use super::reads::SMALLEST_MTU_BYTES;
use super::{Events, LARGEST_MTU_BYTES, Tracker};
use crate::model::{CopyOrder, Interval, ObservedPorts, PacketRecord, PacketRole, SizeClass, Timing, TimingKey, Verb};
use ibscope_parsers::Psn;
use ibscope_parsers::ib::Service;
use std::collections::VecDeque;

/// Requests of a connection that may wait for a response.
const MAX_WAITING: usize = 1 << 8;
/// Responses that may wait until their connection is paired. If there are more, earlier requests
/// are not measured: a later response would give too long a time.
const MAX_PENDING_RESPONSES: usize = 1 << 8;
/// PSNs from a request to an earlier ACK that acknowledges it: the records of the two are not in the order
/// of the packets. At a larger distance, the queue pair number may serve a new connection.
const OVERTAKEN_PSNS: i32 = 256;
/// Initial and maximum number of first observations that are kept for second observations. Only a
/// capture of two ports needs more than the first, and then the room grows.
const FIRST_ROOM: u16 = 16;
const MAX_ROOM: u16 = 1 << 12;
/// Room of a new connection once a tracker has made [`ENOUGH_FIRST_OBSERVATIONS`] and fewer second
/// observations than one in [`SECOND_OBSERVATION_RATIO`]: most captures see one port only.
const LITTLE_ROOM: u16 = 2;
const ENOUGH_FIRST_OBSERVATIONS: u32 = 1 << 9;
const SECOND_OBSERVATION_RATIO: u32 = 1 << 6;

/// Timing state of one connection.
#[derive(Debug, Default)]
pub(super) struct ConnectionTimer {
    /// Requests that wait for a response, by PSN.
    waiting: VecDeque<PendingRequest>,
    /// Requests whose response was observed once; at a mirror sink the response appears again.
    completed: VecDeque<PendingRequest>,
    /// PSN of the last ACK.
    acknowledged: Option<Psn>,
    /// Responses on this connection while its partner is unknown.
    pending_responses: Option<Box<PendingResponses>>,
    /// Observations of requests and, if there are any, of responses.
    requests: PortCopies,
    responses: Option<Box<PortCopies>>,
    /// Second observations of requests, in relation to their ACKs.
    copy_order: CopyOrder,
    /// Entries that `completed` and each list of first observations may have.
    room: u16,
    last_start_ns: Option<i64>,
    /// Start of the message before the current one, and of the current one, if this has several packets:
    /// its length is known at its end.
    begun_ns: Option<(i64, i64)>,
    /// Times that end with the second observation of a packet.
    arrivals: Option<Box<Arrivals>>,
}

#[derive(Debug, Default)]
struct PendingResponses {
    responses: Vec<ResponsePacket>,
    /// There were more than [`MAX_PENDING_RESPONSES`].
    overflowed: bool,
}

/// How often packets are observed, estimated from the first packets.
#[derive(Debug, Default)]
pub(super) struct ObservationCounts {
    first_observations: u32,
    second_observations: u32,
}

impl ObservationCounts {
    fn count(&mut self, occurrence: u32) {
        if self.first_observations < ENOUGH_FIRST_OBSERVATIONS && occurrence <= 2 {
            *(if occurrence == 1 { &mut self.first_observations } else { &mut self.second_observations }) += 1;
        }
    }

    /// Room of a new connection for first observations.
    pub(super) const fn room(&self) -> u16 {
        if self.first_observations == ENOUGH_FIRST_OBSERVATIONS
            && self.second_observations < ENOUGH_FIRST_OBSERVATIONS / SECOND_OBSERVATION_RATIO
        {
            LITTLE_ROOM
        } else {
            FIRST_ROOM
        }
    }
}

/// A request that waits for a response.
#[derive(Clone, Copy, Debug)]
struct PendingRequest {
    /// PSN that the response has to reach: of the last packet of a message, of a READ request or of
    /// an atomic.
    psn: Psn,
    verb: Verb,
    /// Length of the message.
    bytes: u64,
    time_ns: i64,
    /// How often the first response was observed.
    first_responses: u8,
    /// PSN of the response that completed it.
    completed_by: Option<Psn>,
}

/// An ACK, a NAK or a packet with response data.
#[derive(Clone, Copy, Debug)]
struct ResponsePacket {
    psn: Psn,
    kind: ResponseKind,
    payload_bytes: u64,
    time_ns: i64,
    /// 0 for the first observation, 1 for the second.
    observation: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseKind {
    /// ACK: all packets up to its PSN have arrived.
    Acknowledge,
    /// NAK: all packets before its PSN have arrived.
    Nak,
    /// Response data of a READ or atomic: the first packet, the last, both or neither.
    Data { verb: Verb, first: bool, last: bool },
}

impl Tracker {
    /// Takes the first or second observation of a response. It is measured at once, or later if its
    /// connection has no clear partner yet.
    pub(super) fn time_response(&mut self, id: u32, packet: &PacketRecord, occurrence: u32, timings: &mut Vec<Timing>) {
        let observation = usize::from(occurrence == 2);
        let response = ResponsePacket {
            psn: packet.psn(),
            kind: ResponseKind::of(packet),
            payload_bytes: packet.payload_bytes.into(),
            time_ns: packet.time_ns,
            observation,
        };
        let pending = &mut self.timers[id as usize].pending_responses;
        let Some(partner) = self.pairing.partner(id) else {
            let PendingResponses { responses, overflowed } = &mut **pending.get_or_insert_default();
            if responses.len() < MAX_PENDING_RESPONSES {
                responses.push(response);
            } else {
                *overflowed = true;
            }
            return;
        };
        let pending = pending.take();
        let connections = &self.connections;
        let misses_none = || [partner, id].into_iter().all(|id| connections[id as usize].misses_no_request());
        let clock = &mut self.timers[partner as usize];
        for response in pending.iter().flat_map(|pending| &pending.responses) {
            clock.response(partner, response, misses_none, timings);
        }
        if pending.is_some_and(|pending| pending.overflowed) {
            clock.forget();
        }
        clock.response(partner, &response, misses_none, timings);
    }

    /// Takes one of the first three observations of a request or response: times that end at the
    /// receiver's port, and the transit time to it.
    pub(super) fn time_observation(
        &mut self,
        id: u32,
        packet: &PacketRecord,
        role: PacketRole,
        (number, occurrence): (i64, u32),
        timings: &mut Vec<Timing>,
    ) {
        self.observation_counts.count(occurrence);
        let clock = &mut self.timers[id as usize];
        let arrival = match occurrence {
            1 => return clock.first_observation(role, number, packet.time_ns),
            2 => clock.second_observation(role, number, packet),
            _ => clock.copies(role).third(number, packet),
        };
        if let Some(arrival) = arrival {
            self.arrival(id, role, &arrival, timings);
        }
    }

    /// Takes the arrival of a packet: ends the times that wait for it.
    fn arrival(&mut self, id: u32, role: PacketRole, arrival: &Arrival, timings: &mut Vec<Timing>) {
        let Arrival { number, packet, first_ns } = arrival;
        self.timers[id as usize].arrived(role, (*number, packet.time_ns), timings);
        if let Some(first_ns) = *first_ns
            && let Some(verb) = Verb::of(packet.opcode())
        {
            let size = SizeClass::of(u64::from(packet.payload_bytes));
            let key = TimingKey { interval: Interval::Transit, verb, size };
            timings.push(Timing::between(id, (key, None), ObservedPorts::BothPorts, (first_ns, packet.time_ns)));
        }
        if role == PacketRole::Response {
            self.time_response(id, packet, 2, timings);
        }
    }

    /// Takes the arrivals that no further observation contradicts, at the end of the input.
    pub(super) fn finish_times(&mut self, timings: &mut Vec<Timing>) {
        for id in 0..self.timers.len() as u32 {
            for role in [PacketRole::Request, PacketRole::Response] {
                for arrival in self.timers[id as usize].finish(role) {
                    self.arrival(id, role, &arrival, timings);
                }
            }
            let arrivals = self.timers[id as usize].arrivals.as_mut();
            arrivals.into_iter().for_each(|arrivals| arrivals.finish(timings));
        }
    }

    /// How the second observations of a connection's requests relate to their ACKs.
    pub(super) fn copy_order(&self, id: u32) -> CopyOrder {
        self.timers.get(id as usize).map(|clock| clock.copy_order).unwrap_or_default()
    }

    /// Takes a complete message of several packets.
    pub(super) fn time_message(&mut self, id: u32, message: &Transport, timings: &mut Vec<Timing>) {
        let (first_ns, last_ns) = message.times_ns;
        if !self.times || first_ns == PacketRecord::NO_TIME {
            return;
        }
        if let (Some(verb), Some(bytes)) = (Verb::of(message.opcode), message.message_bytes) {
            let key = TimingKey { interval: Interval::Message, verb, size: SizeClass::of(bytes) };
            timings.push(Timing::between(id, (key, None), ObservedPorts::Any, (first_ns, last_ns)));
            let begun_ns = self.timers[id as usize].begun_ns.take_if(|(_, start_ns)| *start_ns == first_ns);
            let key = TimingKey { interval: Interval::Interval, ..key };
            let interval = |times_ns| Timing::between(id, (key, None), ObservedPorts::Any, times_ns);
            timings.extend(begun_ns.map(interval));
        }
    }

    /// Takes the first observation of a request that starts a message, or ends one and asks for a
    /// response. `bytes` is the length of the message as far as known.
    pub(super) fn time_request(&mut self, id: u32, packet: &PacketRecord, bytes: u64, timings: &mut Vec<Timing>) {
        if !self.times || packet.time_ns == PacketRecord::NO_TIME {
            return;
        }
        let opcode = packet.opcode();
        let Some(verb) = Verb::of(opcode) else { return };
        let clock = &mut self.timers[id as usize];
        let begins = !opcode.is_middle() && !opcode.is_last();
        let before_ns = if begins { clock.last_start_ns.replace(packet.time_ns) } else { None };
        if opcode.is_first() {
            clock.begun_ns = before_ns.map(|before_ns| (before_ns, packet.time_ns));
        } else if let Some(before_ns) = before_ns {
            let key = TimingKey { interval: Interval::Interval, verb, size: SizeClass::of(bytes) };
            timings.push(Timing::between(id, (key, None), ObservedPorts::Any, (before_ns, packet.time_ns)));
        }
        let ends = !opcode.is_first() && !opcode.is_middle();
        let expects_response = packet.ack_requested() || matches!(verb, Verb::Read | Verb::Atomic);
        if ends && expects_response && matches!(opcode.service(), Service::Rc | Service::Xrc) {
            clock.request(packet, verb, bytes);
        }
    }
}

impl Tracker {
    /// Queues a time until the arrival of the request that ends it.
    pub(super) fn await_arrival(&mut self, id: u32, number: i64, pending: PendingTiming, timings: &mut Vec<Timing>) {
        if let Some(clock) = self.timers.get_mut(id as usize) {
            clock.await_arrival(PacketRole::Request, number, pending, timings);
        }
    }

    /// Takes the times of individual messages and the messages to emit after this packet.
    pub(super) fn time_messages(
        &mut self,
        id: u32,
        (role, number, time_ns): (PacketRole, i64, i64),
        events: &mut Events,
    ) {
        // Without times there are no timers, and no time waits for one.
        if let Some(clock) = self.timers.get_mut(id as usize) {
            for phase in self.messages.take_phases() {
                events.timings.push(phase.timing());
                if let Some(pending) = phase.pending() {
                    clock.await_arrival(role, number, pending, &mut events.timings);
                }
            }
            for pending in self.messages.take_complete(time_ns) {
                clock.await_arrival(role, number, pending, &mut events.timings);
            }
        }
        events.messages.extend(self.messages.take());
    }
}

impl ResponseKind {
    fn of(packet: &PacketRecord) -> Self {
        let opcode = packet.opcode();
        if opcode.is_ack() {
            return if packet.nak().is_some() { Self::Nak } else { Self::Acknowledge };
        }
        let verb = if opcode.is_read_response() { Verb::Read } else { Verb::Atomic };
        let (first, last) = (!opcode.is_middle() && !opcode.is_last(), !opcode.is_middle() && !opcode.is_first());
        Self::Data { verb, first, last }
    }
}

impl PendingRequest {
    /// True if this is the last response to the READ or atomic. A response does not name its
    /// request, so its PSN and length have to agree with the length that the READ asks for: all
    /// packets before the last one carry the path MTU.
    fn ends_with(&self, response: &ResponsePacket) -> bool {
        let ResponseKind::Data { verb, last: true, .. } = response.kind else { return false };
        let Ok(packets_before) = u64::try_from(response.psn.since(self.psn)) else { return false };
        let bytes_before = self.bytes.checked_sub(response.payload_bytes);
        let is_length = |before: u64| match packets_before {
            0 => before == 0,
            packets => {
                let mtu_bytes = before / packets;
                let least = response.payload_bytes.max(SMALLEST_MTU_BYTES);
                before.is_multiple_of(packets) && (least..=LARGEST_MTU_BYTES.into()).contains(&mtu_bytes)
            }
        };
        verb == self.verb
            && if verb == Verb::Atomic { packets_before == 0 } else { bytes_before.is_some_and(is_length) }
    }

    /// True if this response comes after the last packet that can respond to the request, which the
    /// capture therefore misses.
    fn is_passed_by(&self, response: &ResponsePacket) -> bool {
        let most = self.bytes.div_ceil(SMALLEST_MTU_BYTES).max(1);
        u64::try_from(response.psn.since(self.psn)).is_ok_and(|passed| passed >= most)
    }
}

impl ConnectionTimer {
    /// Queues a time until the arrival of the packet that ends it.
    fn await_arrival(&mut self, role: PacketRole, number: i64, pending: PendingTiming, timings: &mut Vec<Timing>) {
        let room = usize::from(self.room);
        self.arrivals.get_or_insert_default().wait(role, number, pending, room, timings);
    }

    /// Ends the times that wait for this packet.
    fn arrived(&mut self, role: PacketRole, (number, time_ns): (i64, i64), timings: &mut Vec<Timing>) {
        let Some(mut arrivals) = self.arrivals.take() else { return };
        arrivals.arrived(role, (number, time_ns), self.copies(role), timings);
        self.arrivals = Some(arrivals);
    }

    /// A timer of a new connection with room for this many first observations.
    pub(super) fn new(room: u16) -> Self {
        Self { room, ..Self::default() }
    }

    /// Takes the first observation of a request that expects a response.
    pub(super) fn request(&mut self, packet: &PacketRecord, verb: Verb, bytes: u64) {
        // A later ACK is that of another request.
        let is_overtaken = |acknowledged: Psn| (0..OVERTAKEN_PSNS).contains(&acknowledged.since(packet.psn()));
        if !matches!(verb, Verb::Read | Verb::Atomic) && self.acknowledged.is_some_and(is_overtaken) {
            return;
        }
        if self.waiting.len() == MAX_WAITING {
            self.waiting.pop_front();
        }
        let time_ns = packet.time_ns;
        let request =
            PendingRequest { psn: packet.psn(), verb, bytes, time_ns, first_responses: 0, completed_by: None };
        // Keep the order of PSNs: a packet that was lost upstream of the capture comes late.
        let later = self.waiting.iter().rev().take_while(|other| other.psn.since(request.psn) > 0).count();
        make_room(&mut self.waiting);
        self.waiting.insert(self.waiting.len() - later, request);
    }

    /// Drops the waiting requests without measuring them: their responses are unknown.
    fn forget(&mut self) {
        self.waiting.clear();
        self.completed.clear();
    }

    fn copies(&mut self, role: PacketRole) -> &mut PortCopies {
        if role == PacketRole::Request { &mut self.requests } else { self.responses.get_or_insert_default() }
    }

    /// Takes the first observation of a request or response.
    fn first_observation(&mut self, role: PacketRole, number: i64, time_ns: i64) {
        let room = usize::from(self.room);
        self.copies(role).first(number, time_ns, room);
    }

    /// Takes the second observation of a request or response. Returns an arrival, of this packet or of
    /// an earlier one.
    fn second_observation(&mut self, role: PacketRole, number: i64, packet: &PacketRecord) -> Option<Arrival> {
        if role == PacketRole::Request && matches!(packet.opcode().service(), Service::Rc | Service::Xrc) {
            let is_after_ack = |acknowledged: Psn| (0..OVERTAKEN_PSNS).contains(&acknowledged.since(packet.psn()));
            self.copy_order += CopyOrder::of(self.acknowledged.is_some_and(is_after_ack));
        }
        match self.copies(role).second(number, packet) {
            SecondObservation::Arrived(arrival) => Some(arrival),
            SecondObservation::Doubtful(earlier) => earlier,
            SecondObservation::Unpaired(arrival) => {
                self.room = (self.room * 2).min(MAX_ROOM);
                Some(arrival)
            }
        }
    }

    /// The arrivals that no third observation contradicted.
    fn finish(&mut self, role: PacketRole) -> VecDeque<Arrival> {
        match (role, &mut self.responses) {
            (PacketRole::Request, _) => self.requests.finish(),
            (_, Some(responses)) => responses.finish(),
            (_, None) => VecDeque::new(),
        }
    }

    /// Measures the requests of `connection` that this response completes. `misses_none` is true if the
    /// capture misses no request of the two directions, and therefore probably no ACK.
    fn response(
        &mut self,
        connection: u32,
        response: &ResponsePacket,
        misses_none: impl Fn() -> bool,
        timings: &mut Vec<Timing>,
    ) {
        let before = timings.len();
        let observed_ports = if response.observation == 0 { ObservedPorts::OnePort } else { ObservedPorts::BothPorts };
        let mut measured = |interval, request: &PendingRequest| {
            let key = TimingKey { interval, verb: request.verb, size: SizeClass::of(request.bytes) };
            timings.push(Timing::between(connection, (key, None), observed_ports, (request.time_ns, response.time_ns)));
        };
        if let ResponseKind::Data { verb, first: true, .. } = response.kind {
            // The first response, whether the last one was observed or not.
            let lists = self.waiting.iter_mut().chain(&mut self.completed);
            let mut own = lists.filter(|request| request.verb == verb && request.psn == response.psn);
            if let Some(request) = own.find(|request| usize::from(request.first_responses) == response.observation) {
                request.first_responses += 1;
                if verb == Verb::Read {
                    measured(Interval::FirstResponse, request);
                }
            }
        }
        let (list, mut completed) = match response.observation {
            0 => (&mut self.waiting, Some(&mut self.completed)),
            _ => (&mut self.completed, None),
        };
        let reached = |request: &PendingRequest| response.psn.since(request.psn);
        // The second observation of another response is later: that of its own is missing.
        let is_own = |request: &PendingRequest| request.completed_by.is_none_or(|psn| psn == response.psn);
        let is_covered = |request: &PendingRequest| match (request.verb, response.kind) {
            // Only its own response completes it.
            (Verb::Read | Verb::Atomic, _) => request.ends_with(response) && is_own(request),
            (_, ResponseKind::Acknowledge) => reached(request) >= 0,
            (_, ResponseKind::Nak | ResponseKind::Data { .. }) => reached(request) > 0,
        };
        let mut kept = 0;
        // Requests are sorted by PSN: after the first one beyond the response, no other is reached.
        while let Some(request) = list.get(kept).copied() {
            if is_covered(&request) {
                if matches!(request.verb, Verb::Read | Verb::Atomic) {
                    measured(Interval::LastResponse, &request);
                } else if is_own(&request) && (reached(&request) == 0 || misses_none()) {
                    // A later ACK covers the request too, if the responder coalesced the ACKs. If packets
                    // are missing, the ACK that came first may be one of them.
                    measured(Interval::Acknowledged, &request);
                }
                list.remove(kept);
                if let Some(completed) = &mut completed {
                    make_room(completed);
                    completed.push_back(PendingRequest { completed_by: Some(response.psn), ..request });
                }
                continue;
            }
            if reached(&request) < 0 {
                break;
            }
            if request.is_passed_by(response) {
                list.remove(kept);
            } else {
                kept += 1;
            }
        }
        if response.observation == 0 {
            if response.kind == ResponseKind::Acknowledge {
                self.acknowledged = Some(response.psn);
            }
            let room = usize::from(self.room);
            let excess = self.completed.len().saturating_sub(room);
            self.completed.drain(..excess);
        } else if timings.len() == before {
            self.room = (self.room * 2).min(MAX_ROOM);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Depth;
    use super::*;
    use crate::model::{ConnectionKey, PacketFields};
    use ibscope_parsers::ib::Opcode;
    use ibscope_parsers::{Endpoint, Lid, Qpn};

    const SEND_ONLY: u8 = 0x04;
    const READ_REQUEST: u8 = 0x0C;
    const ACK: u8 = 0x11;

    fn packet(opcode: u8, psn: u32, time_ns: i64) -> PacketRecord {
        let (opcode, psn) = (Opcode(opcode), Psn::new(psn));
        PacketRecord::new(PacketFields { time_ns, opcode, psn, ack_requested: true, ..PacketFields::default() })
    }

    /// A timer with this many waiting SENDs, one per nanosecond.
    fn with_waiting_sends(requests: u32) -> ConnectionTimer {
        let mut clock = ConnectionTimer::new(MAX_ROOM);
        (0..requests).for_each(|psn| clock.request(&packet(SEND_ONLY, psn, psn.into()), Verb::Send, 8));
        clock
    }

    fn response(psn: u32, time_ns: i64) -> ResponsePacket {
        let kind = ResponseKind::Acknowledge;
        ResponsePacket { psn: Psn::new(psn), kind, payload_bytes: 0, time_ns, observation: 0 }
    }

    #[test]
    fn the_oldest_of_too_many_requests_is_not_measured() {
        for requests in [MAX_WAITING as u32, MAX_WAITING as u32 + 1] {
            let mut timings = Vec::new();
            let mut clock = with_waiting_sends(requests);
            (0..requests).for_each(|psn| clock.response(0, &response(psn, 1000), || false, &mut timings));
            let took: Vec<u64> = timings.iter().map(|timing| timing.ns).collect();
            let first = requests - MAX_WAITING as u32;
            assert_eq!(took, (first..requests).map(|psn| 1000 - u64::from(psn)).collect::<Vec<_>>());
        }
    }

    /// The ACKs of PSNs 0 and 1 were coalesced, or may be missing.
    #[test]
    fn a_later_ack_gives_a_time_only_if_no_packet_is_missing() {
        for (misses_none, expected) in [(true, &[1000, 999, 998][..]), (false, &[998])] {
            let mut timings = Vec::new();
            with_waiting_sends(4).response(0, &response(2, 1000), || misses_none, &mut timings);
            assert_eq!(timings.iter().map(|timing| timing.ns).collect::<Vec<_>>(), expected);
        }
    }

    /// Of the ACK of PSN 0 only one of two observations was captured.
    #[test]
    fn the_second_observation_of_a_later_ack_gives_no_time() {
        let second = |psn, time_ns| ResponsePacket { observation: 1, ..response(psn, time_ns) };
        let mut timings = Vec::new();
        let mut clock = with_waiting_sends(2);
        clock.response(0, &response(0, 100), || true, &mut timings);
        clock.response(0, &response(1, 5000), || true, &mut timings);
        timings.clear();
        clock.response(0, &second(1, 5010), || true, &mut timings);
        assert_eq!(timings.iter().map(|timing| timing.ns).collect::<Vec<_>>(), [5009]);
    }

    /// A request after its own ACK is in the wrong place: the next ACK is not the one for it.
    #[test]
    fn a_request_after_its_ack_is_not_measured() {
        for (sent_psn, expected) in [(1, &[2][..]), (2, &[2][..]), (3, &[9000, 2])] {
            let mut timings = Vec::new();
            let mut clock = with_waiting_sends(0);
            clock.response(0, &response(2, 999), || true, &mut timings);
            clock.request(&packet(SEND_ONLY, sent_psn, 1000), Verb::Send, 8);
            clock.request(&packet(SEND_ONLY, 10, 9998), Verb::Send, 8);
            clock.response(0, &response(10, 10_000), || true, &mut timings);
            assert_eq!(timings.iter().map(|timing| timing.ns).collect::<Vec<_>>(), expected, "{sent_psn}");
        }
    }

    /// The last response to a READ has the PSN and the length that follow from the length of the
    /// READ and from any path MTU.
    #[test]
    fn only_its_own_last_response_ends_a_read() {
        let last = |psn, payload_bytes| ResponsePacket {
            psn: Psn::new(psn),
            kind: ResponseKind::Data { verb: Verb::Read, first: false, last: true },
            payload_bytes,
            time_ns: 500,
            observation: 0,
        };
        // READ of 9000 bytes from PSN 10 on: 4096 + 4096 + 808, or 8 * 1024 + 808.
        for (psn, payload_bytes, ends) in
            [(12, 808, true), (18, 808, true), (12, 4096, false), (13, 808, false), (11, 808, false), (60, 0, false)]
        {
            let mut clock = ConnectionTimer::new(FIRST_ROOM);
            clock.request(&packet(READ_REQUEST, 10, 0), Verb::Read, 9000);
            let mut timings = Vec::new();
            clock.response(0, &last(psn, payload_bytes), || false, &mut timings);
            assert_eq!(timings.len(), usize::from(ends), "{psn}, {payload_bytes} bytes");
            // PSN 60 is beyond all responses, so the READ does not wait any longer.
            assert_eq!(clock.waiting.is_empty(), ends || psn == 60, "{psn}, {payload_bytes} bytes");
        }
    }

    /// A later READ of the same length has responses of the same shape. The capture misses the second
    /// observation of the last response to the first one.
    #[test]
    fn the_second_observation_of_another_last_response_ends_no_read() {
        let last = |psn, observation| ResponsePacket {
            psn: Psn::new(psn),
            kind: ResponseKind::Data { verb: Verb::Read, first: false, last: true },
            payload_bytes: 1024,
            time_ns: psn.into(),
            observation,
        };
        let mut clock = ConnectionTimer::new(FIRST_ROOM);
        let mut timings = Vec::new();
        // READs of 8192 bytes: the last response has PSN 17 with a path MTU of 1024, 25 with 512.
        clock.request(&packet(READ_REQUEST, 10, 0), Verb::Read, 8192);
        clock.response(0, &last(17, 0), || false, &mut timings);
        clock.request(&packet(READ_REQUEST, 18, 0), Verb::Read, 8192);
        clock.response(0, &last(25, 0), || false, &mut timings);
        timings.clear();
        clock.response(0, &last(25, 1), || false, &mut timings);
        assert_eq!(timings.iter().map(|timing| timing.ns).collect::<Vec<_>>(), [25]);
    }

    /// Responses wait until votes show their partner. The last one acknowledges a request of time
    /// 0.
    #[test]
    fn too_many_waiting_responses_give_no_wrong_times() {
        let ends = [1, 2].map(|lid| Endpoint::from_lid(Lid(lid)));
        let key =
            |src: Endpoint, dst: Endpoint, qpn| ConnectionKey::of((src, dst), Opcode(SEND_ONLY), Qpn::new(qpn), 0);
        let keys = [key(ends[0], ends[1], 7), key(ends[1], ends[0], 8)];
        for (pending, expected) in
            [(MAX_PENDING_RESPONSES as i64, vec![500]), (MAX_PENDING_RESPONSES as i64 + 1, vec![])]
        {
            let mut tracker = Tracker::new(Depth::Envelopes, true, false);
            tracker.connections(&keys, &mut Vec::new());
            let mut timings = Vec::new();
            tracker.timers[0].request(&packet(SEND_ONLY, 10, 0), Verb::Send, 8);
            for number in 1..=pending {
                let psn = if number == pending { 10 } else { 9 };
                tracker.time_response(1, &packet(ACK, psn, 500), 1, &mut timings);
            }
            assert_eq!(timings.len(), 0);
            tracker.pairing.request(&keys[0], 0, 10);
            tracker.pairing.response(&keys[1], 1, 10, |_| None);
            // Much later, a new request is measured, regardless of earlier pending requests.
            tracker.time_response(1, &packet(ACK, 10, 90_000), 1, &mut timings);
            assert_eq!(timings.iter().map(|timing| timing.ns).collect::<Vec<_>>(), expected);
            tracker.timers[0].request(&packet(SEND_ONLY, 11, 100_000), Verb::Send, 8);
            timings.clear();
            tracker.time_response(1, &packet(ACK, 11, 100_300), 1, &mut timings);
            assert_eq!(timings.iter().map(|timing| timing.ns).collect::<Vec<_>>(), [300]);
        }
    }

    #[test]
    fn second_observations_beyond_the_maximum_room_are_not_measured() {
        let most = i64::from(MAX_ROOM);
        for (packets, first) in [(most, Some(0)), (most + 1, None)] {
            // Room grows when a second observation has no first, up to the limit.
            let mut clock = ConnectionTimer::new(MAX_ROOM / 2);
            let second = |clock: &mut ConnectionTimer, number: i64| {
                let packet = packet(SEND_ONLY, number.rem_euclid(1 << 24) as u32, 5000);
                clock.second_observation(PacketRole::Request, number, &packet).and_then(|arrival| arrival.first_ns)
            };
            assert!((0..3).all(|_| second(&mut clock, -1).is_none()));
            assert_eq!(clock.room, MAX_ROOM);
            (0..packets).for_each(|number| clock.first_observation(PacketRole::Request, number, number));
            assert_eq!(second(&mut clock, 0), first);
            assert_eq!(second(&mut clock, 1), Some(1));
        }
    }
}
