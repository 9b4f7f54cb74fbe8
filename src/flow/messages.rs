//! From transport messages to single MPI messages: the data that follow an envelope are given to it.
//!
//! ```text
//! eager          SEND {envelope, data}
//! in pieces      SEND {envelope, id, data}  SEND {id, data} ...
//! rendezvous     SEND {envelope, request, address}    <- READ address ...   -> responses
//!            or  SEND {envelope, request}  <- {request, address}            -> WRITE address ...
//!            or  SEND {envelope, request}  <- {request, number}             -> SEND {number, data} ...
//! ```
//! Only done where single messages or times are asked for: sums need the envelopes alone. Which response belongs to which READ is told by `reads`.

use super::Depth;
use super::arrivals::Begun;
use super::assembly::{Transport, join_times};
use super::nccl::Written;
use super::reads::{Pair, Read, Reads};
use super::rendezvous::{Phase, Rendezvous};
use crate::model::{Claim, HashMap, Interval, Moved, Packet, PacketRecord, RawMessage, SizeClass, TimingKey};
use ibscope_parsers::mpi::{Envelope, Form, Head, Length, Matching, Name, Part, Protocol, Start};
use std::collections::BTreeMap;

/// Messages that may be open per tracker; beyond that the oldest is given out as incomplete. Where times alone are asked for a few are enough: those
/// whose data were not captured stay open, and none of them is missed.
const MAX_OPEN: usize = 1 << 12;
const MAX_OPEN_FOR_TIMES: usize = 1 << 10;
/// Names, and pieces of memory, that a message may have: a receiver may grant a long message piece by piece.
const MAX_GRANTS: usize = 64;
/// Messages that may have the same name between two endpoints: one of each process. Of more none is meant, but by its own
/// connection.
const MAX_NAMESAKES: usize = 64;
/// Pieces of memory that are looked at for one address; overlapping ones belong to several messages. Of more a READ is that
/// of a message whose envelope came over its own connection, or of none.
const MAX_OVERLAPPING: usize = 64;
/// READ requests that may be open between two endpoints in one direction: 16 per queue pair is what devices allow.
const MAX_READS: usize = 1 << 10;
const MAX_READS_FOR_TIMES: usize = 1 << 6;

/// Messages between some pairs of endpoints.
#[derive(Debug, Default)]
pub(super) struct Messages {
    open: BTreeMap<u64, Open>,
    next: u64,
    /// Processes of one node may use the same names: the message that is meant is told by its connection.
    names: HashMap<(Pair, Name), Vec<u64>>,
    /// By start and message.
    memory: HashMap<Pair, BTreeMap<(u64, u64), Memory>>,
    reads: Reads,
    /// Messages that can be given out, where they are wanted.
    ready: Vec<RawMessage>,
    /// MPI messages that are complete with the packet that has just been seen, where times are measured.
    complete: Vec<Begun>,
    /// Single messages are wanted.
    gives: bool,
    /// Messages given out incomplete because too many were open.
    pub(super) evicted: u64,
    /// Transport messages that belong to no MPI message are wanted too.
    with_transport: bool,
    /// The phases of rendezvous, where times are measured.
    rendezvous: Option<Rendezvous>,
    most_open: usize,
}

#[derive(Debug)]
struct Open {
    pair: Pair,
    raw: RawMessage,
    left_bytes: u64,
    /// The transport message with its envelope was seen whole.
    begun: bool,
    /// The receiver has said that it has all: its data have come, whether they were captured or not.
    answered: bool,
    names: Vec<Name>,
    /// Starts of its pieces of memory.
    memory: Vec<u64>,
}

/// Memory through which the data of a message go, at either end.
#[derive(Debug)]
struct Memory {
    end: u64,
    /// Bytes that READ requests have asked for.
    asked_bytes: u64,
}

impl Messages {
    /// None yet. `depth` says what they are wanted for, `times` whether the phases of rendezvous are.
    pub(super) fn new(depth: Depth, times: bool) -> Self {
        let wants_all = depth >= Depth::Messages;
        Self {
            gives: wants_all,
            with_transport: depth == Depth::TransportMessages,
            rendezvous: times.then(Rendezvous::default),
            most_open: if wants_all { MAX_OPEN } else { MAX_OPEN_FOR_TIMES },
            reads: Reads::new(if wants_all { MAX_READS } else { MAX_READS_FOR_TIMES }),
            ..Self::default()
        }
    }

    /// Asks for single messages whatever else they are wanted for.
    pub(super) const fn give(&mut self) {
        self.gives = true;
    }

    /// A message that is complete, or that nothing more will come of.
    #[inline]
    fn put(&mut self, message: RawMessage) {
        if self.rendezvous.is_some()
            && message.complete
            && message.times_ns.0 != PacketRecord::NO_TIME
            && let (Some((form, matching, _)), Some(bytes)) = (message.mpi, message.length_bytes)
        {
            let key =
                TimingKey { interval: Interval::MpiMessage, verb: message.moved.verb(), size: SizeClass::of(bytes) };
            let (connection, from_ns) = (message.connection, message.times_ns.0);
            self.complete.push(Begun { connection, from_ns, key, claim: Claim::of(form, matching) });
        }
        if self.gives {
            self.ready.push(message);
        }
    }

    /// Takes what can be given out.
    pub(super) fn take(&mut self) -> std::vec::Drain<'_, RawMessage> {
        self.ready.drain(..)
    }

    /// Takes the MPI messages that are complete with the packet that has just been seen.
    pub(super) fn take_complete(&mut self) -> std::vec::Drain<'_, Begun> {
        self.complete.drain(..)
    }

    /// Takes the phases of rendezvous that have ended.
    pub(super) fn take_phases(&mut self) -> impl Iterator<Item = Phase> + '_ {
        self.rendezvous.iter_mut().flat_map(|rendezvous| rendezvous.phases.drain(..))
    }

    /// True where something can be given out.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
            || !self.complete.is_empty()
            || self.rendezvous.as_ref().is_some_and(|rendezvous| !rendezvous.phases.is_empty())
    }

    /// True while messages are open whose data may come by READ or WRITE from the one to the other.
    pub(super) fn awaits(&self, pair: Pair) -> bool {
        !self.open.is_empty() && self.memory.get(&pair).is_some_and(|memory| !memory.is_empty())
    }

    /// True while READs are open whose responses go from the one to the other.
    pub(super) fn reads(&self, pair: Pair) -> bool {
        self.reads.awaits(pair)
    }

    /// A transport message, complete or given up. `several` are its envelopes where it holds more than one MPI message, or where
    /// its own stands elsewhere; `partner` is the connection whose requests its connection answers.
    pub(super) fn transport(
        &mut self,
        pair: Pair,
        (connection, partner): (u32, Option<u32>),
        message: &Transport,
        several: &[Envelope],
    ) {
        match message.head {
            // Neither its length nor its tag can be shown.
            Some(Head { part: Part::Start(start), .. }) if start.envelope.length == Length::NotCaptured => {
                self.transport_only(connection, message);
            }
            Some(Head { form, part: Part::Start(start), .. }) => self.start(pair, connection, message, form, &start),
            Some(Head { form, part: Part::Several | Part::Cached { .. }, .. }) => {
                self.several(connection, message, form, several);
            }
            Some(Head { part: Part::Data { of, header_bytes }, .. }) => {
                let data_bytes = message.payload_bytes.saturating_sub(u64::from(header_bytes));
                match self.named(pair, of, Some(connection)) {
                    Some(id) => self.add_data(id, data_bytes, &raw(connection, message), message.times_ns),
                    None => self.transport_only(connection, message),
                }
            }
            Some(Head { part: Part::Grant { of, receiver, memory, done }, .. }) => {
                self.grant(((pair.1, pair.0), partner), of, receiver, memory, done);
                self.transport_only(connection, message);
            }
            Some(Head { part: Part::Done { of }, .. }) => {
                if let Some(rendezvous) = &mut self.rendezvous {
                    rendezvous.done(pair, of, [partner, Some(connection)], message.times_ns.1);
                }
                if let Some(open) = self.named((pair.1, pair.0), of, partner).and_then(|id| self.open.get_mut(&id)) {
                    open.answered = true;
                }
                self.transport_only(connection, message);
            }
            Some(Head { part: Part::Control, .. }) | None => {
                let id = message.target.and_then(|reth| self.memory_at(pair, reth.va));
                match id {
                    Some(id) => self.add_data(id, message.payload_bytes, &raw(connection, message), message.times_ns),
                    None => self.transport_only(connection, message),
                }
            }
        }
    }

    /// The first packet of a transport message. An MPI message that goes on elsewhere is open from here on: its next parts may be
    /// complete before its first is, where a packet of that was lost.
    pub(super) fn begin(&mut self, pair: Pair, connection: u32, message: &Transport) {
        let Some(Head { form, part: Part::Start(start), .. }) = message.head else { return };
        let (Some(name), Length::Stated(length_bytes)) = (start.name, start.envelope.length) else { return };
        if self.open.len() >= self.most_open
            && let Some((&oldest, _)) = self.open.first_key_value()
        {
            self.evicted += 1;
            self.close(oldest);
        }
        let id = self.next;
        self.next += 1;
        let mut raw = raw(connection, message);
        raw.mpi = Some((form, start.envelope.matching, start.protocol));
        (raw.length_bytes, raw.wire_bytes, raw.packets, raw.complete) = (Some(length_bytes), 0, 0, false);
        let (names, memory) = (Vec::new(), Vec::new());
        self.open
            .insert(id, Open { pair, raw, left_bytes: length_bytes, begun: false, answered: false, names, memory });
        self.name(id, name);
        if let Some((address, bytes)) = start.memory {
            self.open_memory(address, bytes, id);
        }
        if let Some(rendezvous) = self.rendezvous.as_mut().filter(|_| start.protocol == Protocol::Rendezvous) {
            let claim = Claim::of(form, start.envelope.matching);
            rendezvous.begin(id, pair, (connection, message.times_ns.0), claim, start.done);
        }
    }

    /// The transport message that carries an envelope, complete or given up.
    fn start(&mut self, pair: Pair, connection: u32, message: &Transport, form: Form, start: &Start) {
        let length_bytes = match start.envelope.length {
            Length::Stated(bytes) => Some(bytes),
            Length::Beyond(_) => message.message_bytes.map(|bytes| start.envelope.length.of(bytes)),
            Length::NotCaptured => None,
        };
        let inline_bytes = message.payload_bytes.saturating_sub(u64::from(start.header_bytes));
        let mut raw = raw(connection, message);
        if let (Some(name), Some(length_bytes)) = (start.name, length_bytes)
            && matches!(start.envelope.length, Length::Stated(_))
        {
            // It was open from its first packet on, unless it had to be given out.
            if let Some(id) = self.named(pair, name, Some(connection)) {
                if let Some(open) = self.open.get_mut(&id) {
                    open.begun = message.complete;
                }
                self.add(id, inline_bytes.min(length_bytes), &raw);
            }
            return;
        }
        raw.mpi = Some((form, start.envelope.matching, start.protocol));
        raw.length_bytes = length_bytes;
        raw.complete &= length_bytes.is_some_and(|length_bytes| inline_bytes >= length_bytes);
        self.put(raw);
    }

    fn several(&mut self, connection: u32, message: &Transport, form: Form, envelopes: &[Envelope]) {
        let whole = raw(connection, message);
        for (index, envelope) in envelopes.iter().enumerate() {
            // They share the packets: the first has them.
            let shared = index > 0;
            self.put(RawMessage {
                mpi: Some((form, envelope.matching, Protocol::Eager)),
                length_bytes: Some(envelope.length.of(message.payload_bytes)),
                wire_bytes: if shared { 0 } else { whole.wire_bytes },
                packets: if shared { 0 } else { whole.packets },
                ..whole
            });
        }
        if envelopes.is_empty() {
            self.transport_only(connection, message);
        }
    }

    /// A message of NCCL that has ended; without `matching` it is one of the transport alone.
    pub(super) fn written(&mut self, written: &Written, matching: Option<Matching>) {
        if matching.is_none() && !self.with_transport {
            return;
        }
        let message = RawMessage {
            connection: written.connection,
            psn: written.psn,
            mpi: matching.map(|matching| (Form::Nccl, matching, Protocol::Rendezvous)),
            moved: Moved::Write,
            length_bytes: Some(written.length_bytes),
            wire_bytes: written.wire_bytes,
            packets: written.packets,
            times_ns: written.times_ns,
            complete: written.complete,
        };
        if !written.is_part {
            self.put(message);
        } else if self.gives {
            // When the rest of it comes is not known here, so it has no time of its own.
            self.ready.push(message);
        }
    }

    fn name(&mut self, id: u64, name: Name) {
        let Some(Open { pair, raw, .. }) = self.open.get(&id) else { return };
        let (pair, connection) = (*pair, raw.connection);
        let namesakes = self.names.entry((pair, name)).or_default();
        // A number is used again when its message is done, whether the end of that was captured or not.
        namesakes.retain(|other| self.open.get(other).is_some_and(|other| other.raw.connection != connection));
        let Some(open) = self.open.get_mut(&id) else { return };
        // The one beyond the bound shows that it was reached.
        if open.names.len() < MAX_GRANTS && namesakes.len() <= MAX_NAMESAKES {
            open.names.push(name);
            namesakes.push(id);
        }
    }

    /// The message of this name: of several the one whose envelope came over `connection`, the oldest of these, or of all.
    fn named(&self, pair: Pair, name: Name, connection: Option<u32>) -> Option<u64> {
        let namesakes = self.names.get(&(pair, name))?;
        let own = |id: &&u64| self.open.get(id).is_some_and(|open| Some(open.raw.connection) == connection);
        let oldest = || namesakes.first().filter(|_| namesakes.len() <= MAX_NAMESAKES);
        namesakes.iter().find(own).or_else(oldest).copied()
    }

    fn grant(
        &mut self,
        (pair, connection): (Pair, Option<u32>),
        of: Name,
        receiver: Option<Name>,
        memory: Option<(u64, u64)>,
        done: Option<Name>,
    ) {
        let Some(id) = self.named(pair, of, connection) else { return };
        if let Some(rendezvous) = &mut self.rendezvous {
            rendezvous.grant(id, pair, done);
        }
        if let Some(receiver) = receiver {
            self.name(id, receiver);
        }
        if let Some((address, bytes)) = memory {
            self.open_memory(address, bytes, id);
        }
    }

    fn open_memory(&mut self, address: u64, bytes: u64, message: u64) {
        let Some(open) = self.open.get_mut(&message).filter(|open| open.memory.len() < MAX_GRANTS) else { return };
        let bytes = if bytes == 0 { open.raw.length_bytes.unwrap_or(0) } else { bytes };
        open.memory.push(address);
        let memory = Memory { end: address.saturating_add(bytes), asked_bytes: 0 };
        self.memory.entry(open.pair).or_default().insert((address, message), memory);
    }

    /// The message whose data go through this address; the one that begins nearest to it, the latest of these.
    fn memory_at(&self, pair: Pair, address: u64) -> Option<u64> {
        let before = self.memory.get(&pair)?.range(..=(address, u64::MAX)).rev().take(MAX_OVERLAPPING);
        before.into_iter().find(|(_, memory)| address < memory.end).map(|((_, message), _)| *message)
    }

    /// Data that came in a message of their own, between two times.
    fn add_data(&mut self, id: u64, data_bytes: u64, part: &RawMessage, times_ns: (i64, i64)) {
        if let Some(rendezvous) = self.rendezvous.as_mut().filter(|_| data_bytes > 0) {
            rendezvous.data(id, times_ns);
        }
        self.add(id, data_bytes, part);
    }

    fn add(&mut self, id: u64, data_bytes: u64, part: &RawMessage) {
        let Some(open) = self.open.get_mut(&id) else { return };
        let raw = &mut open.raw;
        raw.wire_bytes += part.wire_bytes;
        raw.packets += part.packets;
        raw.times_ns = join_times(raw.times_ns, part.times_ns);
        // The data of a rendezvous say what moved it, not its envelope.
        if data_bytes > 0 {
            raw.moved = part.moved;
        }
        // A part with holes leaves its message incomplete: what is missing of it never comes.
        open.left_bytes = open.left_bytes.saturating_sub(data_bytes);
        if open.left_bytes == 0 && open.begun {
            raw.complete = true;
            self.close(id);
        }
    }

    fn close(&mut self, id: u64) {
        let Some(open) = self.open.remove(&id) else { return };
        for name in open.names {
            if let Some(namesakes) = self.names.get_mut(&(open.pair, name)) {
                namesakes.retain(|other| *other != id);
                if namesakes.is_empty() {
                    self.names.remove(&(open.pair, name));
                }
            }
        }
        if let Some(memory) = self.memory.get_mut(&open.pair) {
            open.memory.iter().for_each(|start| _ = memory.remove(&(*start, id)));
        }
        if let Some(rendezvous) = &mut self.rendezvous {
            rendezvous.end(id, &open.raw);
        }
        self.put(open.raw);
    }

    fn transport_only(&mut self, connection: u32, message: &Transport) {
        if self.with_transport {
            self.put(raw(connection, message));
        }
    }

    /// An atomic operation: a message of 8 bytes in one packet.
    pub(super) fn atomic(&mut self, connection: u32, packet: &PacketRecord) {
        if self.with_transport {
            let mut message = raw(connection, &Transport::new(packet, None, None));
            (message.moved, message.length_bytes) = (Moved::Atomic, Some(8));
            self.put(message);
        }
    }

    /// A READ request of the receiver of the data, from `address` on. `likely` gives the connection whose requests another one
    /// answers.
    pub(super) fn read(
        &mut self,
        connection: u32,
        packet: Packet<'_>,
        address: u64,
        likely: impl Fn(u32) -> Option<u32>,
    ) {
        let pair = (packet.key.dst, packet.key.src);
        let message = self.read_of(pair, connection, address, u64::from(packet.extension), likely);
        if message.is_none() && !self.with_transport {
            return;
        }
        let mut seen = raw(connection, &Transport::new(packet.record, None, None));
        (seen.moved, seen.complete, seen.length_bytes) = (Moved::Read, false, Some(u64::from(packet.extension)));
        if message.is_some() {
            // The message's own packets go from its sender to its receiver.
            (seen.wire_bytes, seen.packets) = (0, 0);
        }
        if let Some(oldest) = self.reads.add(pair, Read::new(connection, packet, message, seen)) {
            self.evicted += 1;
            self.finish_read(&oldest);
        }
    }

    /// The message that a READ fetches data of. One buffer may be sent to several processes at the same time (`MPI_Bcast`): the
    /// request goes to the queue pair that the envelope came from.
    fn read_of(
        &mut self,
        pair: Pair,
        connection: u32,
        address: u64,
        bytes: u64,
        likely: impl Fn(u32) -> Option<u32>,
    ) -> Option<u64> {
        let open = &self.open;
        let memory = self.memory.get_mut(&pair)?.range_mut(..=(address, u64::MAX)).rev().take(MAX_OVERLAPPING + 1);
        let covering: Vec<_> = memory.into_iter().filter(|(_, memory)| address < memory.end).collect();
        let is_crowd = covering.len() > MAX_OVERLAPPING;
        let is_partner =
            |message: u64| open.get(&message).and_then(|open| likely(open.raw.connection)) == Some(connection);
        let covering = covering.into_iter().filter(|((_, message), _)| !is_crowd || is_partner(*message));
        let ((_, message), best) = covering.min_by_key(|((start, message), memory)| {
            let is_asked_for = memory.asked_bytes.saturating_add(bytes) > memory.end - start;
            let open = open.get(message);
            // Where the READ was not captured, the buffer may be used again before anything has come of it.
            let is_answered = open.is_some_and(|open| open.answered);
            (is_answered, is_asked_for, !is_partner(*message), *message)
        })?;
        best.asked_bytes = best.asked_bytes.saturating_add(bytes);
        Some(*message)
    }

    /// A READ response that has not been seen before. `likely` is the connection whose requests its connection answers.
    pub(super) fn read_response(&mut self, connection: u32, packet: Packet<'_>, likely: Option<u32>) {
        if let Some(read) = self.reads.response(connection, packet, likely) {
            self.finish_read(&read);
        }
    }

    fn finish_read(&mut self, read: &Read) {
        match read.message {
            Some(id) => self.add_data(id, read.data_bytes, &read.seen, read.data_ns),
            None => self.put(read.seen),
        }
    }

    /// Gives out what is still open.
    pub(super) fn finish(&mut self) {
        self.reads.take().for_each(|read| self.finish_read(&read));
        while let Some((&oldest, _)) = self.open.first_key_value() {
            self.close(oldest);
        }
    }
}

fn raw(connection: u32, message: &Transport) -> RawMessage {
    let opcode = message.opcode;
    let moved = if opcode.is_write() {
        Moved::Write
    } else if opcode.service() == ibscope_parsers::ib::Service::Ud {
        Moved::Datagram
    } else {
        Moved::Send
    };
    RawMessage {
        connection,
        psn: message.psn,
        mpi: None,
        moved,
        length_bytes: message.message_bytes,
        wire_bytes: message.wire_bytes,
        packets: message.packets,
        times_ns: message.times_ns,
        complete: message.complete,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ConnectionKey, Kind, Marks};
    use ibscope_parsers::ib::Opcode;
    use ibscope_parsers::{Endpoint, Lid, Psn, Qpn};

    const SEND_ONLY: u8 = 0x04;
    const READ_REQUEST: u8 = 0x0C;
    const READ_RESPONSE_ONLY: u8 = 0x10;
    const PIECE_BYTES: u64 = 100;

    fn pair() -> Pair {
        (Endpoint::from_lid(Lid(1)), Endpoint::from_lid(Lid(2)))
    }

    fn record(opcode: u8, psn: u32, (length_bytes, payload_bytes): (u32, u16)) -> PacketRecord {
        let number = (Kind::Data, Psn::new(psn), false);
        let opcode = (Opcode(opcode), 0);
        PacketRecord::new(i64::from(psn), opcode, number, Marks::default(), 30, length_bytes, 0, (payload_bytes, 0))
    }

    fn transport(part: Part, bytes: u16) -> Transport {
        let head = Head { form: Form::UcxVerbs, part, datagram: None };
        Transport::new(&record(SEND_ONLY, 0, (0, bytes)), Some(head), None)
    }

    /// A ready to send of so many bytes, with memory to READ them from.
    fn ask(messages: &mut Messages, connection: u32, request: u64, bytes: u64, memory: Option<(u64, u64)>) {
        let envelope = Envelope { matching: Matching::UcxTag(7), length: Length::Stated(bytes), sequence: None };
        let start = Start {
            envelope,
            protocol: Protocol::Rendezvous,
            header_bytes: 0,
            name: Some(Name::Request(request)),
            memory,
            done: None,
        };
        let message = transport(Part::Start(start), 0);
        messages.begin(pair(), connection, &message);
        messages.transport(pair(), (connection, None), &message, &[]);
    }

    /// The receiver grants a piece of memory under a name of its own.
    fn grant(messages: &mut Messages, request: u64, piece: u64) {
        let part = Part::Grant {
            of: Name::Request(request),
            receiver: None,
            memory: Some((piece * PIECE_BYTES, PIECE_BYTES)),
            done: None,
        };
        let (src, dst) = pair();
        messages.transport((dst, src), (99, None), &transport(part, 0), &[]);
    }

    /// A WRITE to a piece.
    fn write(messages: &mut Messages, connection: u32, piece: u64) {
        let reth = ibscope_parsers::ib::Reth { va: piece * PIECE_BYTES, r_key: 9, dma_len: PIECE_BYTES as u32 };
        let message = Transport::new(&record(0x0A, 0, (0, PIECE_BYTES as u16)), None, Some(reth));
        messages.transport(pair(), (connection, None), &message, &[]);
    }

    fn key(from: Endpoint, to: Endpoint) -> ConnectionKey {
        ConnectionKey::of((from, to), Opcode(SEND_ONLY), Qpn::new(7), 0)
    }

    /// The receiver READs from an address; the connection that it answers is its own number with 1000 added.
    fn read(messages: &mut Messages, connection: u32, psn: u32, address: u64) {
        let key = key(pair().1, pair().0);
        let record = record(READ_REQUEST, psn, (PIECE_BYTES as u32, 0));
        messages.read(connection, Packet { key: &key, record: &record }, address, |own| Some(own + 1000));
    }

    fn respond(messages: &mut Messages, psn: u32, likely: u32) {
        let key = key(pair().0, pair().1);
        let record = record(READ_RESPONSE_ONLY, psn, (0, PIECE_BYTES as u16));
        messages.read_response(55 + likely, Packet { key: &key, record: &record }, Some(likely));
    }

    /// All messages, by connection and whether they are complete; none of them is counted twice.
    fn all(messages: &mut Messages) -> Vec<(u32, bool)> {
        messages.finish();
        let mut all: Vec<(u32, bool)> = messages.take().map(|message| (message.connection, message.complete)).collect();
        all.sort_unstable();
        all
    }

    fn complete(messages: &mut Messages) -> usize {
        all(messages).iter().filter(|(_, complete)| *complete).count()
    }

    #[test]
    fn the_oldest_of_too_many_open_messages_is_given_out_and_counted() {
        for (depth, times, most) in [(Depth::Messages, false, MAX_OPEN), (Depth::Envelopes, true, MAX_OPEN_FOR_TIMES)] {
            let mut messages = Messages::new(depth, times);
            messages.give();
            (0..most as u32).for_each(|message| ask(&mut messages, message, message.into(), 100, None));
            assert_eq!((messages.evicted, messages.take().count()), (0, 0));
            ask(&mut messages, 9999, 9999, 100, None);
            let given: Vec<(u32, bool)> = messages.take().map(|own| (own.connection, own.complete)).collect();
            assert_eq!((messages.evicted, given), (1, vec![(0, false)]));
            assert_eq!(all(&mut messages).len(), most);
        }
    }

    /// A message in so many pieces, all of which are written.
    #[test]
    fn a_message_of_more_pieces_than_are_kept_is_incomplete() {
        for (pieces, is_complete) in [(MAX_GRANTS as u64, true), (MAX_GRANTS as u64 + 1, false)] {
            let mut messages = Messages::new(Depth::Messages, false);
            ask(&mut messages, 1, 7, pieces * PIECE_BYTES, None);
            (0..pieces).for_each(|piece| grant(&mut messages, 7, piece));
            (0..pieces).for_each(|piece| write(&mut messages, 1, piece));
            assert_eq!(all(&mut messages), [(1, is_complete)]);
        }
    }

    /// Messages of one number, one of each process, and then the grant of the oldest without its connection.
    #[test]
    fn of_too_many_messages_of_one_name_none_is_guessed() {
        for (namesakes, granted) in [(MAX_NAMESAKES as u32, 1), (MAX_NAMESAKES as u32 + 1, 0)] {
            let mut messages = Messages::new(Depth::Messages, false);
            (0..namesakes).for_each(|connection| ask(&mut messages, connection, 7, PIECE_BYTES, None));
            grant(&mut messages, 7, 3);
            write(&mut messages, 0, 3);
            assert_eq!(complete(&mut messages), granted);
        }
        // What says its connection is known of all of them, and of no message beyond.
        let mut messages = Messages::new(Depth::Messages, false);
        (0..MAX_NAMESAKES as u32 + 2).for_each(|connection| ask(&mut messages, connection, 7, PIECE_BYTES, None));
        for connection in 0..MAX_NAMESAKES as u32 + 2 {
            let data = Part::Data { of: Name::Request(7), header_bytes: 0 };
            messages.transport(pair(), (connection, None), &transport(data, PIECE_BYTES as u16), &[]);
        }
        let last = MAX_NAMESAKES as u32 + 1;
        assert!(all(&mut messages).into_iter().all(|(connection, complete)| complete == (connection < last)));
    }

    /// One buffer that goes to so many processes, and the READ of each: of the last ones first.
    #[test]
    fn of_too_many_messages_of_one_buffer_a_read_is_of_its_own_or_of_none() {
        for (processes, complete) in [(MAX_OVERLAPPING as u32, MAX_OVERLAPPING), (MAX_OVERLAPPING as u32 + 1, 64)] {
            let mut messages = Messages::new(Depth::Messages, false);
            for own in 0..processes {
                ask(&mut messages, own, own.into(), PIECE_BYTES, Some((0x1000, PIECE_BYTES)));
            }
            // That of the oldest comes first: beyond the bound its memory is not among those that are looked at.
            for own in 0..processes {
                read(&mut messages, 1000 + own, own, 0x1000);
                respond(&mut messages, own, 1000 + own);
            }
            let all = all(&mut messages);
            assert_eq!(all.iter().filter(|(_, complete)| *complete).count(), complete.max(processes as usize));
        }
        // Whose connection is not known is taken where all are looked at, and by none where they are not.
        for (processes, expected) in [(MAX_OVERLAPPING as u32, 1), (MAX_OVERLAPPING as u32 + 1, 0)] {
            let mut messages = Messages::new(Depth::Messages, false);
            for own in 0..processes {
                ask(&mut messages, own, own.into(), PIECE_BYTES, Some((0x1000, PIECE_BYTES)));
            }
            read(&mut messages, 7, 0, 0x1000);
            respond(&mut messages, 0, 7);
            assert_eq!(complete(&mut messages), expected);
        }
    }

    /// So many READs of one message each are under way, and then all are answered.
    #[test]
    fn the_oldest_of_too_many_reads_is_given_up_and_counted() {
        for (depth, times, most) in [(Depth::Messages, false, MAX_READS), (Depth::Envelopes, true, MAX_READS_FOR_TIMES)]
        {
            for (reads, evicted) in [(most as u32, 0), (most as u32 + 1, 1)] {
                let mut messages = Messages::new(depth, times);
                messages.give();
                for own in 0..reads {
                    let memory = Some((u64::from(own) * PIECE_BYTES, PIECE_BYTES));
                    // More than may be open for times: those are told by the READs alone.
                    ask(&mut messages, own, own.into(), PIECE_BYTES, memory);
                    read(&mut messages, 1000 + own, own, u64::from(own) * PIECE_BYTES);
                }
                (0..reads).for_each(|own| respond(&mut messages, own, 1000 + own));
                assert_eq!(messages.evicted, evicted);
                let all = all(&mut messages);
                assert_eq!(all[0], (0, evicted == 0));
                assert!(all.len() == reads as usize && all[1..].iter().all(|(_, complete)| *complete));
            }
        }
    }
}
