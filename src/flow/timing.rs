//! When packets of a connection were seen -> the times between what asks and what answers.
//!
//! The answers to the requests of `A -> B, QP b` come on `B -> A, QP a`: another connection, which the packets do not name. Which one it is
//! is told by `pairing`; until that is clear, answers wait, so that none is counted for the wrong connection.

use super::arrivals::Arrivals;
use super::assembly::Transport;
use super::{Events, Tracker};
use crate::model::{Interval, PacketRecord, Sight, SizeClass, Timing, TimingKey, Turn, Verb};
use ibscope_parsers::Psn;
use ibscope_parsers::ib::Service;
use std::collections::VecDeque;

/// Messages of a connection that may wait for an answer.
const MAX_WAITING: usize = 1 << 8;
/// Answers that may wait until it is known what they answer. Beyond that the requests before are not measured: a later answer
/// would show too long a time.
const MAX_HELD: usize = 1 << 8;
/// What is kept at first, and at most, for the second sight of packets. Only a capture of two ports needs more, and asks for it.
const FIRST_ROOM: u16 = 16;
const MAX_ROOM: u16 = 1 << 12;
/// What is kept at first of connections that come where a tracker has seen so many packets, and not one in this many twice: most captures are of one port.
const LITTLE_ROOM: u16 = 2;
const ENOUGH_FIRSTS: u32 = 1 << 9;
const SELDOM: u32 = 1 << 6;

/// The clock of one connection.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// Requests that wait for an answer, in the order sent.
    waiting: VecDeque<Waiting>,
    /// Those whose answer was seen once: at a sink it comes again.
    answered: VecDeque<Waiting>,
    /// Answers on this connection whose partner is not known yet.
    held: Option<Box<Held>>,
    /// First sights of requests and, where there are any, of responses.
    requests: Firsts,
    responses: Option<Box<Firsts>>,
    /// Entries that `answered` and each list of first sights may hold.
    room: u16,
    last_start_ns: Option<i64>,
    /// What ends with the second sight of a packet, where anything does.
    arrivals: Option<Box<Arrivals>>,
}

#[derive(Debug, Default)]
struct Held {
    answers: Vec<Answer>,
    /// There were more of them.
    overflowed: bool,
}

/// First sights by number, and when they were.
#[derive(Debug, Default)]
struct Firsts(VecDeque<(i64, i64)>);

/// Room for one more entry, and for little beyond: there are many lists.
fn make_room<T>(list: &mut VecDeque<T>) {
    if list.len() == list.capacity() {
        list.reserve_exact((list.len() / 2).max(1));
    }
}

/// How often packets are seen, as far as the first ones show.
#[derive(Debug, Default)]
pub(super) struct Sights {
    firsts: u32,
    seconds: u32,
}

impl Sights {
    fn count(&mut self, occurrence: u32) {
        if self.firsts < ENOUGH_FIRSTS {
            *(if occurrence == 1 { &mut self.firsts } else { &mut self.seconds }) += 1;
        }
    }

    /// Room that a new connection has for what may come a second time.
    pub(super) const fn room(&self) -> u16 {
        if self.firsts == ENOUGH_FIRSTS && self.seconds < ENOUGH_FIRSTS / SELDOM { LITTLE_ROOM } else { FIRST_ROOM }
    }
}

/// A request that wants an answer.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// The PSN that the answer has to reach: of the last packet of a message, of a READ request, of an atomic.
    psn: Psn,
    verb: Verb,
    size: SizeClass,
    time_ns: i64,
    /// The first response was seen so often.
    first_responses: u8,
}

/// What answers.
#[derive(Clone, Copy, Debug)]
struct Answer {
    psn: Psn,
    kind: AnswerKind,
    time_ns: i64,
    /// Seen for the first time (0) or the second (1).
    sight: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerKind {
    /// ACK: everything up to its PSN has arrived.
    Acknowledge,
    /// NAK: everything before its PSN has arrived.
    Refuse,
    /// Response to a READ, or to an atomic, that begins, ends, or both.
    Response { verb: Verb, first: bool, last: bool },
}

impl Tracker {
    /// An answer that is seen for the first or second time: measured at once, or when it is clear what it answers.
    pub(super) fn time_answer(&mut self, id: u32, packet: &PacketRecord, occurrence: u32, timings: &mut Vec<Timing>) {
        let sight = usize::from(occurrence == 2);
        let answer = Answer { psn: packet.psn(), kind: AnswerKind::of(packet), time_ns: packet.time_ns, sight };
        let held = &mut self.clocks[id as usize].held;
        let Some(partner) = self.pairing.partner(id) else {
            let Held { answers, overflowed } = &mut **held.get_or_insert_default();
            if answers.len() < MAX_HELD {
                answers.push(answer);
            } else {
                *overflowed = true;
            }
            return;
        };
        let held = held.take();
        let clock = &mut self.clocks[partner as usize];
        for answer in held.iter().flat_map(|held| &held.answers) {
            clock.answer(partner, answer, timings);
        }
        if held.is_some_and(|held| held.overflowed) {
            clock.forget();
        }
        clock.answer(partner, &answer, timings);
    }

    /// A request or response that is seen for the first or second time, for the time between the two.
    pub(super) fn time_sight(
        &mut self,
        id: u32,
        packet: &PacketRecord,
        turn: Turn,
        (number, occurrence): (i64, u32),
        timings: &mut Vec<Timing>,
    ) {
        self.sights.count(occurrence);
        let clock = &mut self.clocks[id as usize];
        if occurrence == 1 {
            clock.first_sight(turn, number, packet.time_ns);
            return;
        }
        if let Some(arrivals) = &mut clock.arrivals {
            arrivals.arrived(turn, number, packet.time_ns, timings);
        }
        if let Some(first_ns) = clock.second_sight(turn, number)
            && let Some(verb) = Verb::of(packet.opcode())
        {
            let size = SizeClass::of(u64::from(packet.payload_bytes));
            let key = TimingKey { interval: Interval::Transit, verb, size };
            timings.push(Timing::between(id, (key, None), Sight::Twice, (first_ns, packet.time_ns)));
        }
    }

    /// A message of several packets that is complete.
    pub(super) fn time_message(&mut self, id: u32, message: &Transport, timings: &mut Vec<Timing>) {
        let (first_ns, last_ns) = message.times_ns;
        if !self.times || first_ns == PacketRecord::NO_TIME {
            return;
        }
        if let (Some(verb), Some(bytes)) = (Verb::of(message.opcode), message.message_bytes) {
            let key = TimingKey { interval: Interval::Message, verb, size: SizeClass::of(bytes) };
            timings.push(Timing::between(id, (key, None), Sight::Any, (first_ns, last_ns)));
        }
    }

    /// A request that is seen for the first time: a message begins, or ends and asks for an answer. `bytes` is the length of the message as far
    /// as it is known.
    pub(super) fn time_request(&mut self, id: u32, packet: &PacketRecord, bytes: u64, timings: &mut Vec<Timing>) {
        if !self.times || packet.time_ns == PacketRecord::NO_TIME {
            return;
        }
        let opcode = packet.opcode();
        let Some(verb) = Verb::of(opcode) else { return };
        let clock = &mut self.clocks[id as usize];
        let begins = !opcode.is_middle() && !opcode.is_last();
        if begins && let Some(before_ns) = clock.last_start_ns.replace(packet.time_ns) {
            let key = TimingKey { interval: Interval::Interval, verb, size: SizeClass::of(bytes) };
            timings.push(Timing::between(id, (key, None), Sight::Any, (before_ns, packet.time_ns)));
        }
        let ends = !opcode.is_first() && !opcode.is_middle();
        let is_answered = packet.ack_requested() || matches!(verb, Verb::Read | Verb::Atomic);
        if ends && is_answered && matches!(opcode.service(), Service::Rc | Service::Xrc) {
            clock.asks(packet, verb, bytes);
        }
    }
}

impl Tracker {
    /// What single messages have shown with this packet, for times or to be given out.
    pub(super) fn time_messages(&mut self, id: u32, turn: Turn, number: i64, events: &mut Events) {
        // Without times there are no clocks, and nothing waits for one.
        if let Some(clock) = self.clocks.get_mut(id as usize) {
            let room = usize::from(clock.room);
            for phase in self.messages.take_phases() {
                events.timings.push(phase.timing());
                if let Some(begun) = phase.begun() {
                    clock.arrivals.get_or_insert_default().await_second(turn, number, begun, room);
                }
            }
            for begun in self.messages.take_complete() {
                clock.arrivals.get_or_insert_default().await_second(turn, number, begun, room);
            }
        }
        events.messages.extend(self.messages.take());
    }
}

impl AnswerKind {
    fn of(packet: &PacketRecord) -> Self {
        let opcode = packet.opcode();
        if opcode.is_ack() {
            // AETH syndrome, bits 6 and 5: 0 ACK, 1 RNR NAK, 3 NAK.
            return if packet.extension >> 24 & 0x60 == 0 { Self::Acknowledge } else { Self::Refuse };
        }
        let verb = if opcode.is_read_response() { Verb::Read } else { Verb::Atomic };
        let (first, last) = (!opcode.is_middle() && !opcode.is_last(), !opcode.is_middle() && !opcode.is_first());
        Self::Response { verb, first, last }
    }
}

impl Clock {
    /// Of a new connection, with room for what may come a second time.
    pub(super) fn new(room: u16) -> Self {
        Self { room, ..Self::default() }
    }

    /// A packet that wants an answer, when it is seen for the first time.
    pub(super) fn asks(&mut self, packet: &PacketRecord, verb: Verb, bytes: u64) {
        if self.waiting.len() == MAX_WAITING {
            self.waiting.pop_front();
        }
        let size = SizeClass::of(bytes);
        let time_ns = packet.time_ns;
        let request = Waiting { psn: packet.psn(), verb, size, time_ns, first_responses: 0 };
        // In the order of their PSNs: what was lost before the capture comes late.
        let later = self.waiting.iter().rev().take_while(|other| other.psn.since(request.psn) > 0).count();
        make_room(&mut self.waiting);
        self.waiting.insert(self.waiting.len() - later, request);
    }

    /// What answers its requests so far is not known: none of them is measured.
    fn forget(&mut self) {
        self.waiting.clear();
        self.answered.clear();
    }

    /// A request or response is seen for the first time.
    pub(super) fn first_sight(&mut self, turn: Turn, number: i64, time_ns: i64) {
        let room = usize::from(self.room);
        let Firsts(firsts) = self.firsts(turn);
        if firsts.len() >= room {
            firsts.pop_front();
        }
        make_room(firsts);
        firsts.push_back((number, time_ns));
    }

    fn firsts(&mut self, turn: Turn) -> &mut Firsts {
        if turn == Turn::Request { &mut self.requests } else { self.responses.get_or_insert_default() }
    }

    /// The same for the second time: when the first time was.
    pub(super) fn second_sight(&mut self, turn: Turn, number: i64) -> Option<i64> {
        let Firsts(firsts) = self.firsts(turn);
        // Copies come in the order of the packets, so it is near the front.
        let Some(at) = firsts.iter().position(|(first, _)| *first == number) else {
            self.room = (self.room * 2).min(MAX_ROOM);
            return None;
        };
        let (_, first_ns) = firsts[at];
        // What was passed over has lost its copy, or its copy comes late: it keeps its place for a while.
        firsts.remove(at);
        Some(first_ns)
    }

    /// Measures what an answer answers.
    fn answer(&mut self, connection: u32, answer: &Answer, timings: &mut Vec<Timing>) {
        let before = timings.len();
        let sight = if answer.sight == 0 { Sight::Alone } else { Sight::Twice };
        let mut measured = |interval, request: &Waiting| {
            let key = TimingKey { interval, verb: request.verb, size: request.size };
            timings.push(Timing::between(connection, (key, None), sight, (request.time_ns, answer.time_ns)));
        };
        if let AnswerKind::Response { verb, first: true, .. } = answer.kind {
            // Its first response, whether the last one has been seen or not.
            let lists = self.waiting.iter_mut().chain(&mut self.answered);
            let mut own = lists.filter(|request| request.verb == verb && request.psn == answer.psn);
            if let Some(request) = own.find(|request| usize::from(request.first_responses) == answer.sight) {
                request.first_responses += 1;
                if verb == Verb::Read {
                    measured(Interval::FirstResponse, request);
                }
            }
        }
        let (list, mut answered) = match answer.sight {
            0 => (&mut self.waiting, Some(&mut self.answered)),
            _ => (&mut self.answered, None),
        };
        let reached = |request: &Waiting| answer.psn.since(request.psn);
        // A READ is complete with the last packet of its response, which belongs to the READ that began last before it.
        let ended = match answer.kind {
            AnswerKind::Response { verb, last: true, .. } => list
                .iter()
                .filter(|request| request.verb == verb && reached(request) >= 0)
                .map(|request| request.psn)
                .min_by_key(|psn| answer.psn.since(*psn)),
            _ => None,
        };
        let is_covered = |request: &Waiting| match (request.verb, answer.kind) {
            // Only its own response completes it.
            (Verb::Read | Verb::Atomic, _) => ended == Some(request.psn),
            (_, AnswerKind::Acknowledge) => reached(request) >= 0,
            (_, AnswerKind::Refuse | AnswerKind::Response { .. }) => reached(request) > 0,
        };
        let mut kept = 0;
        // Requests are in the order of their PSNs: what follows the first that is not reached is not reached either.
        while let Some(request) = list.get(kept).copied() {
            if is_covered(&request) {
                let is_response = matches!(request.verb, Verb::Read | Verb::Atomic);
                measured(if is_response { Interval::LastResponse } else { Interval::Acknowledged }, &request);
                list.remove(kept);
                if let Some(answered) = &mut answered {
                    make_room(answered);
                    answered.push_back(request);
                }
                continue;
            }
            if reached(&request) < 0 {
                break;
            }
            kept += 1;
        }
        if answer.sight == 0 {
            let room = usize::from(self.room);
            let excess = self.answered.len().saturating_sub(room);
            self.answered.drain(..excess);
        } else if timings.len() == before {
            self.room = (self.room * 2).min(MAX_ROOM);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Depth;
    use super::*;
    use crate::model::{ConnectionKey, Kind, Marks};
    use ibscope_parsers::ib::Opcode;
    use ibscope_parsers::{Endpoint, Lid, Qpn};

    const SEND_ONLY: u8 = 0x04;
    const ACK: u8 = 0x11;

    fn packet(opcode: u8, psn: u32, time_ns: i64) -> PacketRecord {
        let number = (Kind::Data, Psn::new(psn), true);
        PacketRecord::new(time_ns, (Opcode(opcode), 0), number, Marks::default(), 30, 0, 0, (0, 0))
    }

    /// A clock with so many SENDs that wait, one each nanosecond.
    fn asked(requests: u32) -> Clock {
        let mut clock = Clock::new(MAX_ROOM);
        (0..requests).for_each(|psn| clock.asks(&packet(SEND_ONLY, psn, psn.into()), Verb::Send, 8));
        clock
    }

    fn answer(psn: u32, time_ns: i64) -> Answer {
        Answer { psn: Psn::new(psn), kind: AnswerKind::Acknowledge, time_ns, sight: 0 }
    }

    #[test]
    fn the_oldest_of_too_many_requests_is_not_measured() {
        for requests in [MAX_WAITING as u32, MAX_WAITING as u32 + 1] {
            let mut timings = Vec::new();
            asked(requests).answer(0, &answer(requests - 1, 1000), &mut timings);
            let mut took: Vec<u64> = timings.iter().map(|timing| timing.ns).collect();
            took.sort_unstable();
            let first = requests - MAX_WAITING as u32;
            assert_eq!(took, (first..requests).rev().map(|psn| 1000 - u64::from(psn)).collect::<Vec<_>>());
        }
    }

    /// Answers are held until votes show whose they are. The last one held acknowledges a request of time 0.
    #[test]
    fn answers_beyond_those_that_are_held_give_no_wrong_times() {
        let ends = [1, 2].map(|lid| Endpoint::from_lid(Lid(lid)));
        let key =
            |src: Endpoint, dst: Endpoint, qpn| ConnectionKey::of((src, dst), Opcode(SEND_ONLY), Qpn::new(qpn), 0);
        let keys = [key(ends[0], ends[1], 7), key(ends[1], ends[0], 8)];
        for (held, expected) in [(MAX_HELD as i64, vec![500]), (MAX_HELD as i64 + 1, vec![])] {
            let mut tracker = Tracker::new(Depth::Envelopes, true, false);
            tracker.connections(&keys, &mut Vec::new());
            let mut timings = Vec::new();
            tracker.clocks[0].asks(&packet(SEND_ONLY, 10, 0), Verb::Send, 8);
            for number in 1..=held {
                let psn = if number == held { 10 } else { 9 };
                tracker.time_answer(1, &packet(ACK, psn, 500), 1, &mut timings);
            }
            assert_eq!(timings.len(), 0);
            tracker.pairing.request(&keys[0], 0, 10);
            tracker.pairing.answer(&keys[1], 1, 10);
            // Much later: a request that comes now is measured whatever was held.
            tracker.time_answer(1, &packet(ACK, 10, 90_000), 1, &mut timings);
            assert_eq!(timings.iter().map(|timing| timing.ns).collect::<Vec<_>>(), expected);
            tracker.clocks[0].asks(&packet(SEND_ONLY, 11, 100_000), Verb::Send, 8);
            timings.clear();
            tracker.time_answer(1, &packet(ACK, 11, 100_300), 1, &mut timings);
            assert_eq!(timings.iter().map(|timing| timing.ns).collect::<Vec<_>>(), [300]);
        }
    }

    #[test]
    fn second_sights_beyond_the_most_room_are_not_measured() {
        let most = i64::from(MAX_ROOM);
        for (packets, first) in [(most, Some(0)), (most + 1, None)] {
            // Room grows where copies are missed, and no further.
            let mut clock = Clock::new(MAX_ROOM / 2);
            assert!((0..3).all(|_| clock.second_sight(Turn::Request, -1).is_none()));
            assert_eq!(clock.room, MAX_ROOM);
            (0..packets).for_each(|number| clock.first_sight(Turn::Request, number, number));
            assert_eq!(clock.second_sight(Turn::Request, 0), first);
            assert_eq!(clock.second_sight(Turn::Request, 1), Some(1));
        }
    }
}
