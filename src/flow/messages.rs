//! Assembles single MPI messages from transport messages: finds the message whose envelope
//! announced some data and adds the data to it.
//!
//! ```text
//! eager          SEND {envelope, data}
//! fragmented     SEND {envelope, id, data}  SEND {id, data} ...
//! rendezvous     SEND {envelope, request, address}    <- READ address ...   -> responses
//!            or  SEND {envelope, request}  <- {request, address}            -> WRITE address ...
//!            or  SEND {envelope, request}  <- {request, number}             -> SEND {number, data}
//! ```
//! This happens only where individual messages or times are requested; sums need the envelopes
//! alone. `reads` finds the READ that a response belongs to.

use super::Depth;
use super::arrivals::PendingTiming;
use super::assembly::{Transport, join_times};
use super::nccl::WriteSums;
use super::reads::{EndpointPair, RdmaRead, RdmaReads};
use super::rendezvous::{RendezvousPhase, RendezvousTracker};
use crate::model::{
    HashMap, Interval, NcclReceive, PacketRecord, PacketRef, RawMessage, RequiredDetection, SizeClass, TimingKey, Verb,
};
use ibscope_parsers::mpi::{
    Envelope, Length, LibraryStack, MatchFields, MpiHeader, MpiMessageId, MpiMessagePart, MpiMessageStart, Protocol,
};
use std::collections::BTreeMap;

/// Open messages per tracker; one more evicts the oldest as incomplete. Times need fewer: only
/// messages whose data were not captured stay open for long, and those have no times.
const MAX_OPEN: usize = 1 << 12;
const MAX_OPEN_FOR_TIMES: usize = 1 << 10;
/// Names per message, and memory ranges per message: a receiver may grant a long message in parts.
const MAX_GRANTS: usize = 64;
/// Messages with the same name between two endpoints, one per process. If there are more, a name
/// alone identifies none of them, only a name with its connection does.
const MAX_NAMESAKES: usize = 64;
/// Memory ranges that one address may lie in; overlapping ones belong to several messages. If there
/// are more, a READ belongs to the message whose envelope came over its own connection, or to none.
const MAX_OVERLAPPING: usize = 64;
/// Open READ requests between two endpoints in one direction; devices allow 16 per queue pair.
const MAX_READS: usize = 1 << 10;
const MAX_READS_FOR_TIMES: usize = 1 << 6;

/// Messages between some pairs of endpoints.
#[derive(Debug, Default)]
pub(super) struct MessageTracker {
    open: BTreeMap<u64, OpenMessage>,
    next: u64,
    /// Open messages by name. Processes of one node may use the same names; the connection then
    /// decides.
    names: HashMap<(EndpointPair, MpiMessageId), Vec<u64>>,
    /// Memory ranges by start and message.
    memory: HashMap<EndpointPair, BTreeMap<(u64, u64), Memory>>,
    reads: RdmaReads,
    /// Messages to emit.
    ready: Vec<RawMessage>,
    /// MPI messages that the current packet completed, where times are measured.
    complete: Vec<PendingTiming>,
    /// Individual messages are requested.
    emits: bool,
    /// Messages that were emitted as incomplete, because too many were incomplete at a time.
    pub(super) evicted: u64,
    /// Transport messages that belong to no MPI message are requested too.
    with_transport: bool,
    /// Rendezvous phases, where times are measured.
    rendezvous: Option<RendezvousTracker>,
    most_open: usize,
}

#[derive(Debug)]
struct OpenMessage {
    pair: EndpointPair,
    raw: RawMessage,
    left_bytes: u64,
    /// All packets of the transport message with the envelope were observed.
    envelope_complete: bool,
    /// The receiver has confirmed that it has all data, captured or not.
    receiver_done: bool,
    names: Vec<MpiMessageId>,
    /// Starts of its memory ranges.
    memory: Vec<u64>,
}

/// A memory range, of the sender or the receiver, that the data of a message pass through.
#[derive(Debug)]
struct Memory {
    end: u64,
    /// Bytes that READ requests cover.
    requested_bytes: u64,
}

impl MessageTracker {
    /// An empty tracker. `depth` is the depth of the analysis; `times` asks for rendezvous phases.
    pub(super) fn new(depth: Depth, times: bool) -> Self {
        let wants_all = depth >= Depth::Messages;
        Self {
            emits: wants_all,
            with_transport: depth == Depth::TransportMessages,
            rendezvous: times.then(RendezvousTracker::default),
            most_open: if wants_all { MAX_OPEN } else { MAX_OPEN_FOR_TIMES },
            reads: RdmaReads::new(if wants_all { MAX_READS } else { MAX_READS_FOR_TIMES }),
            ..Self::default()
        }
    }

    /// Emits individual messages at any depth.
    pub(super) const fn emit_messages(&mut self) {
        self.emits = true;
    }

    /// Emits a message that is complete or evicted.
    #[inline]
    fn emit(&mut self, message: RawMessage) {
        if self.rendezvous.is_some()
            && message.complete
            && message.times_ns.0 != PacketRecord::NO_TIME
            && let (Some((stack, matching, _)), Some(bytes)) = (message.mpi, message.length_bytes)
        {
            let key =
                TimingKey { interval: Interval::MpiMessage, verb: message.transfer_verb, size: SizeClass::of(bytes) };
            let (connection, from_ns) = (message.connection, message.times_ns.0);
            self.complete.push(PendingTiming {
                connection,
                from_ns,
                key,
                required_detection: Some(RequiredDetection::of(stack, matching)),
            });
        }
        if self.emits {
            self.ready.push(message);
        }
    }

    /// Takes the messages to emit.
    pub(super) fn take(&mut self) -> std::vec::Drain<'_, RawMessage> {
        self.ready.drain(..)
    }

    /// Takes the MPI messages that the current packet completed.
    pub(super) fn take_complete(&mut self) -> std::vec::Drain<'_, PendingTiming> {
        self.complete.drain(..)
    }

    /// Takes the rendezvous phases that have ended.
    pub(super) fn take_phases(&mut self) -> impl Iterator<Item = RendezvousPhase> + '_ {
        self.rendezvous.iter_mut().flat_map(|rendezvous| rendezvous.phases.drain(..))
    }

    /// True if there are messages or phases to take.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
            || !self.complete.is_empty()
            || self.rendezvous.as_ref().is_some_and(|rendezvous| !rendezvous.phases.is_empty())
    }

    /// True while a message is open whose data may go by READ or WRITE from the first endpoint to
    /// the second.
    pub(super) fn awaits(&self, pair: EndpointPair) -> bool {
        !self.open.is_empty() && self.memory.get(&pair).is_some_and(|memory| !memory.is_empty())
    }

    /// True while a READ is open whose responses go from the first endpoint to the second.
    pub(super) fn reads(&self, pair: EndpointPair) -> bool {
        self.reads.awaits(pair)
    }

    /// Takes a transport message that is complete or evicted. `several` are the envelopes of a
    /// message that holds several MPI messages, or whose envelope comes from the header cache.
    /// `partner` is the connection whose requests its connection responds to.
    pub(super) fn transport(
        &mut self,
        pair: EndpointPair,
        (connection, partner): (u32, Option<u32>),
        message: &Transport,
        several: &[Envelope],
    ) {
        match message.head {
            // Without its length, it cannot be shown as an MPI message.
            Some(MpiHeader { part: MpiMessagePart::Start(start), .. })
                if start.envelope.length == Length::NotCaptured =>
            {
                self.transport_only(connection, message);
            }
            Some(MpiHeader { stack, part: MpiMessagePart::Start(start), .. }) => {
                self.start(pair, connection, message, stack, &start);
            }
            Some(MpiHeader { stack, part: MpiMessagePart::Coalesced | MpiMessagePart::Cached { .. }, .. }) => {
                self.several(connection, message, stack, several);
            }
            Some(MpiHeader { part: MpiMessagePart::Data { message: of, header_bytes }, .. }) => {
                let data_bytes = message.payload_bytes.saturating_sub(u64::from(header_bytes));
                match self.find_by_name(pair, of, Some(connection)) {
                    Some(id) => self.add_data(id, data_bytes, &raw(connection, message), message.times_ns),
                    None => self.transport_only(connection, message),
                }
            }
            Some(MpiHeader {
                part: MpiMessagePart::Grant { message: of, receiver_id: receiver, memory, done_id: done },
                ..
            }) => {
                self.memory_granted(((pair.1, pair.0), partner), of, receiver, memory, done);
                self.transport_only(connection, message);
            }
            Some(MpiHeader { part: MpiMessagePart::Done { message: of }, .. }) => {
                if let Some(rendezvous) = &mut self.rendezvous {
                    rendezvous.done(pair, of, [partner, Some(connection)], message.times_ns.1);
                }
                if let Some(open) =
                    self.find_by_name((pair.1, pair.0), of, partner).and_then(|id| self.open.get_mut(&id))
                {
                    open.receiver_done = true;
                }
                self.transport_only(connection, message);
            }
            Some(MpiHeader { part: MpiMessagePart::Control, .. }) | None => {
                let id = message.target.and_then(|reth| self.memory_at(pair, reth.va));
                match id {
                    Some(id) => self.add_data(id, message.payload_bytes, &raw(connection, message), message.times_ns),
                    None => self.transport_only(connection, message),
                }
            }
        }
    }

    /// Takes the first packet of a transport message. An MPI message with data elsewhere is open
    /// from here on: these data may be complete before the transport message is, if a packet of the
    /// latter was lost.
    pub(super) fn begin(&mut self, pair: EndpointPair, connection: u32, message: &Transport) {
        let Some(MpiHeader { stack, part: MpiMessagePart::Start(start), .. }) = message.head else { return };
        let (Some(name), Length::Explicit(length_bytes)) = (start.id, start.envelope.length) else { return };
        if self.open.len() >= self.most_open
            && let Some((&oldest, _)) = self.open.first_key_value()
        {
            self.evicted += 1;
            self.close(oldest);
        }
        let id = self.next;
        self.next += 1;
        let mut raw = raw(connection, message);
        raw.mpi = Some((stack, start.envelope.matching, start.protocol));
        (raw.length_bytes, raw.wire_bytes, raw.packets, raw.complete) = (Some(length_bytes), 0, 0, false);
        let (names, memory) = (Vec::new(), Vec::new());
        self.open.insert(
            id,
            OpenMessage {
                pair,
                raw,
                left_bytes: length_bytes,
                envelope_complete: false,
                receiver_done: false,
                names,
                memory,
            },
        );
        self.name(id, name);
        if let Some((address, bytes)) = start.memory {
            self.open_memory(address, bytes, id);
        }
        if let Some(rendezvous) = self.rendezvous.as_mut().filter(|_| start.protocol == Protocol::Rendezvous) {
            let required = RequiredDetection::of(stack, start.envelope.matching);
            rendezvous.begin(id, pair, (connection, message.times_ns.0), required, start.done_id);
        }
    }

    /// Takes the transport message that carries an envelope, complete or evicted.
    fn start(
        &mut self,
        pair: EndpointPair,
        connection: u32,
        message: &Transport,
        stack: LibraryStack,
        start: &MpiMessageStart,
    ) {
        let length_bytes = match start.envelope.length {
            Length::Explicit(bytes) => Some(bytes),
            Length::AfterHeaders(_) => message.message_bytes.map(|bytes| start.envelope.length.in_message(bytes)),
            Length::NotCaptured => None,
        };
        let inline_bytes = message.payload_bytes.saturating_sub(u64::from(start.header_bytes));
        let mut raw = raw(connection, message);
        if let (Some(name), Some(length_bytes)) = (start.id, length_bytes)
            && matches!(start.envelope.length, Length::Explicit(_))
        {
            // The message is open since its first packet, unless it was evicted.
            if let Some(id) = self.find_by_name(pair, name, Some(connection)) {
                if let Some(open) = self.open.get_mut(&id) {
                    open.envelope_complete = message.complete;
                }
                self.add(id, inline_bytes.min(length_bytes), &raw);
            }
            return;
        }
        raw.mpi = Some((stack, start.envelope.matching, start.protocol));
        raw.length_bytes = length_bytes;
        raw.complete &= length_bytes.is_some_and(|length_bytes| inline_bytes >= length_bytes);
        self.emit(raw);
    }

    fn several(&mut self, connection: u32, message: &Transport, stack: LibraryStack, envelopes: &[Envelope]) {
        let whole = raw(connection, message);
        for (index, envelope) in envelopes.iter().enumerate() {
            // All messages share the same packets, which count for the first one.
            let shared = index > 0;
            self.emit(RawMessage {
                mpi: Some((stack, envelope.matching, Protocol::Eager)),
                length_bytes: Some(envelope.length.in_message(message.payload_bytes)),
                wire_bytes: if shared { 0 } else { whole.wire_bytes },
                packets: if shared { 0 } else { whole.packets },
                ..whole
            });
        }
        if envelopes.is_empty() {
            self.transport_only(connection, message);
        }
    }

    /// Takes an NCCL message that has ended. Without `matching` it is only a transport message.
    pub(super) fn nccl_message(
        &mut self,
        written: &WriteSums,
        receive: Option<NcclReceive>,
        matching: Option<MatchFields>,
    ) {
        if matching.is_none() && !self.with_transport {
            return;
        }
        let message = RawMessage {
            connection: written.connection,
            psn: written.psn,
            mpi: matching.map(|matching| (LibraryStack::Nccl, matching, Protocol::Rendezvous)),
            transfer_verb: Verb::Write,
            length_bytes: Some(written.length_bytes),
            wire_bytes: written.wire_bytes,
            packets: written.packets,
            times_ns: written.times_ns,
            complete: written.complete,
            receive,
        };
        if !written.is_part {
            self.emit(message);
        } else if self.emits {
            // The end of its other parts is unknown here, so the message has no time.
            self.ready.push(message);
        }
    }

    fn name(&mut self, id: u64, name: MpiMessageId) {
        let Some(OpenMessage { pair, raw, .. }) = self.open.get(&id) else { return };
        let (pair, connection) = (*pair, raw.connection);
        let namesakes = self.names.entry((pair, name)).or_default();
        // A library reuses a name when its message is done, even if the capture missed that.
        namesakes.retain(|other| self.open.get(other).is_some_and(|other| other.raw.connection != connection));
        let Some(open) = self.open.get_mut(&id) else { return };
        // One entry beyond the limit shows that there were more.
        if open.names.len() < MAX_GRANTS && namesakes.len() <= MAX_NAMESAKES {
            open.names.push(name);
            namesakes.push(id);
        }
    }

    /// The open message of this name: the one whose envelope came over `connection`, or else the
    /// oldest.
    fn find_by_name(&self, pair: EndpointPair, name: MpiMessageId, connection: Option<u32>) -> Option<u64> {
        let namesakes = self.names.get(&(pair, name))?;
        let own = |id: &&u64| self.open.get(id).is_some_and(|open| Some(open.raw.connection) == connection);
        let oldest = || namesakes.first().filter(|_| namesakes.len() <= MAX_NAMESAKES);
        namesakes.iter().find(own).or_else(oldest).copied()
    }

    fn memory_granted(
        &mut self,
        (pair, connection): (EndpointPair, Option<u32>),
        of: MpiMessageId,
        receiver: Option<MpiMessageId>,
        memory: Option<(u64, u64)>,
        done: Option<MpiMessageId>,
    ) {
        let Some(id) = self.find_by_name(pair, of, connection) else { return };
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
        let memory = Memory { end: address.saturating_add(bytes), requested_bytes: 0 };
        self.memory.entry(open.pair).or_default().insert((address, message), memory);
    }

    /// The message with a memory range at this address: the range with the nearest start, and of
    /// these the latest.
    fn memory_at(&self, pair: EndpointPair, address: u64) -> Option<u64> {
        let before = self.memory.get(&pair)?.range(..=(address, u64::MAX)).rev().take(MAX_OVERLAPPING);
        before.into_iter().find(|(_, memory)| address < memory.end).map(|((_, message), _)| *message)
    }

    /// Adds data that came in another transport message than the envelope.
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
        // The verb of a rendezvous is that of its data, not of its envelope.
        if data_bytes > 0 {
            raw.transfer_verb = part.transfer_verb;
        }
        // A part with missing packets leaves its message incomplete.
        open.left_bytes = open.left_bytes.saturating_sub(data_bytes);
        if open.left_bytes == 0 && open.envelope_complete {
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
        self.emit(open.raw);
    }

    fn transport_only(&mut self, connection: u32, message: &Transport) {
        if self.with_transport {
            self.emit(raw(connection, message));
        }
    }

    /// Takes an atomic operation: a message of 8 bytes in one packet.
    pub(super) fn atomic(&mut self, connection: u32, packet: &PacketRecord) {
        if self.with_transport {
            let mut message = raw(connection, &Transport::new(packet, None, None));
            (message.transfer_verb, message.length_bytes) = (Verb::Atomic, Some(8));
            self.emit(message);
        }
    }

    /// Takes a READ request by the receiver of the data: of `bytes` from `address` on. `likely` gives
    /// the connection whose requests a connection responds to.
    pub(super) fn read(
        &mut self,
        connection: u32,
        packet: PacketRef<'_>,
        (address, bytes): (u64, u64),
        likely: impl Fn(u32) -> Option<u32>,
    ) {
        let pair = (packet.key.dst, packet.key.src);
        let message = self.read_of(pair, connection, address, bytes, likely);
        if message.is_none() && !self.with_transport {
            return;
        }
        let mut seen = raw(connection, &Transport::new(packet.record, None, None));
        (seen.transfer_verb, seen.complete, seen.length_bytes) = (Verb::Read, false, Some(bytes));
        if message.is_some() {
            // The request goes against the direction of the message, so its packet does not count
            // for it.
            (seen.wire_bytes, seen.packets) = (0, 0);
        }
        if let Some(oldest) = self.reads.add(pair, RdmaRead::new(connection, packet, message, seen)) {
            self.evicted += 1;
            self.finish_read(&oldest);
        }
    }

    /// The message that a READ fetches. One buffer may be sent to several processes at the same
    /// time (`MPI_Bcast`), so the READ belongs to the message whose envelope came from the queue
    /// pair that it goes to.
    fn read_of(
        &mut self,
        pair: EndpointPair,
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
            let is_requested = memory.requested_bytes.saturating_add(bytes) > memory.end - start;
            let open = open.get(message);
            // If an earlier READ was not captured, its message may still be open when the buffer is
            // reused.
            let is_answered = open.is_some_and(|open| open.receiver_done);
            (is_answered, is_requested, !is_partner(*message), *message)
        })?;
        best.requested_bytes = best.requested_bytes.saturating_add(bytes);
        Some(*message)
    }

    /// Takes the first observation of a READ response. `likely` is the connection whose requests
    /// its connection responds to.
    pub(super) fn read_response(&mut self, connection: u32, packet: PacketRef<'_>, likely: Option<u32>) {
        if let Some(read) = self.reads.response(connection, packet, likely) {
            self.finish_read(&read);
        }
    }

    fn finish_read(&mut self, read: &RdmaRead) {
        match read.message {
            Some(id) => self.add_data(id, read.data_bytes, &read.request, read.data_ns),
            None => self.emit(read.request),
        }
    }

    /// Emits all open messages as incomplete.
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
        Verb::Write
    } else if opcode.service() == ibscope_parsers::ib::Service::Ud {
        Verb::Datagram
    } else {
        Verb::Send
    };
    RawMessage {
        connection,
        psn: message.psn,
        mpi: None,
        transfer_verb: moved,
        length_bytes: message.message_bytes,
        wire_bytes: message.wire_bytes,
        packets: message.packets,
        times_ns: message.times_ns,
        complete: message.complete,
        receive: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ConnectionKey, PacketFields};
    use ibscope_parsers::ib::Opcode;
    use ibscope_parsers::{Endpoint, Lid, Psn, Qpn};

    const SEND_ONLY: u8 = 0x04;
    const READ_REQUEST: u8 = 0x0C;
    const READ_RESPONSE_ONLY: u8 = 0x10;
    const PIECE_BYTES: u64 = 100;

    fn pair() -> EndpointPair {
        (Endpoint::from_lid(Lid(1)), Endpoint::from_lid(Lid(2)))
    }

    fn record(opcode: u8, psn: u32, (length_bytes, payload_bytes): (u32, u16)) -> PacketRecord {
        PacketRecord::new(PacketFields {
            time_ns: i64::from(psn),
            opcode: Opcode(opcode),
            psn: Psn::new(psn),
            extension: length_bytes,
            payload_bytes,
            ..PacketFields::default()
        })
    }

    fn transport(part: MpiMessagePart, bytes: u16) -> Transport {
        let head = MpiHeader { stack: LibraryStack::UcxVerbs, part, datagram: None };
        Transport::new(&record(SEND_ONLY, 0, (0, bytes)), Some(head), None)
    }

    /// A ready-to-send for `bytes` bytes, with memory to READ them from.
    fn ready_to_send(
        messages: &mut MessageTracker,
        connection: u32,
        request: u64,
        bytes: u64,
        memory: Option<(u64, u64)>,
    ) {
        let envelope = Envelope { matching: MatchFields::UcxTag(7), length: Length::Explicit(bytes), sequence: None };
        let start = MpiMessageStart {
            envelope,
            protocol: Protocol::Rendezvous,
            header_bytes: 0,
            id: Some(MpiMessageId::SenderRequest(request)),
            memory,
            done_id: None,
        };
        let message = transport(MpiMessagePart::Start(start), 0);
        messages.begin(pair(), connection, &message);
        messages.transport(pair(), (connection, None), &message, &[]);
    }

    /// The receiver grants one memory range.
    fn grant(messages: &mut MessageTracker, request: u64, piece: u64) {
        let part = MpiMessagePart::Grant {
            message: MpiMessageId::SenderRequest(request),
            receiver_id: None,
            memory: Some((piece * PIECE_BYTES, PIECE_BYTES)),
            done_id: None,
        };
        let (src, dst) = pair();
        messages.transport((dst, src), (99, None), &transport(part, 0), &[]);
    }

    /// A WRITE to one memory range.
    fn write(messages: &mut MessageTracker, connection: u32, piece: u64) {
        let reth = ibscope_parsers::ib::Reth { va: piece * PIECE_BYTES, r_key: 9, dma_len: PIECE_BYTES as u32 };
        let message = Transport::new(&record(0x0A, 0, (0, PIECE_BYTES as u16)), None, Some(reth));
        messages.transport(pair(), (connection, None), &message, &[]);
    }

    fn key(from: Endpoint, to: Endpoint) -> ConnectionKey {
        ConnectionKey::of((from, to), Opcode(SEND_ONLY), Qpn::new(7), 0)
    }

    /// The receiver READs from `address`. A connection responds to the requests of the connection
    /// with its number plus 1000.
    fn read(messages: &mut MessageTracker, connection: u32, psn: u32, address: u64) {
        let key = key(pair().1, pair().0);
        let record = record(READ_REQUEST, psn, (PIECE_BYTES as u32, 0));
        messages
            .read(connection, PacketRef { key: &key, record: &record }, (address, PIECE_BYTES), |own| Some(own + 1000));
    }

    fn respond(messages: &mut MessageTracker, psn: u32, likely: u32) {
        let key = key(pair().0, pair().1);
        let record = record(READ_RESPONSE_ONLY, psn, (0, PIECE_BYTES as u16));
        messages.read_response(55 + likely, PacketRef { key: &key, record: &record }, Some(likely));
    }

    /// All messages, as connection and completeness.
    fn all(messages: &mut MessageTracker) -> Vec<(u32, bool)> {
        messages.finish();
        let mut all: Vec<(u32, bool)> = messages.take().map(|message| (message.connection, message.complete)).collect();
        all.sort_unstable();
        all
    }

    fn complete(messages: &mut MessageTracker) -> usize {
        all(messages).iter().filter(|(_, complete)| *complete).count()
    }

    #[test]
    fn the_oldest_of_too_many_open_messages_is_evicted_and_counted() {
        for (depth, times, most) in [(Depth::Messages, false, MAX_OPEN), (Depth::Envelopes, true, MAX_OPEN_FOR_TIMES)] {
            let mut messages = MessageTracker::new(depth, times);
            messages.emit_messages();
            (0..most as u32).for_each(|message| ready_to_send(&mut messages, message, message.into(), 100, None));
            assert_eq!((messages.evicted, messages.take().count()), (0, 0));
            ready_to_send(&mut messages, 9999, 9999, 100, None);
            let given: Vec<(u32, bool)> = messages.take().map(|own| (own.connection, own.complete)).collect();
            assert_eq!((messages.evicted, given), (1, vec![(0, false)]));
            assert_eq!(all(&mut messages).len(), most);
        }
    }

    /// The sender writes every part of the message.
    #[test]
    fn a_message_in_too_many_parts_is_incomplete() {
        for (pieces, is_complete) in [(MAX_GRANTS as u64, true), (MAX_GRANTS as u64 + 1, false)] {
            let mut messages = MessageTracker::new(Depth::Messages, false);
            ready_to_send(&mut messages, 1, 7, pieces * PIECE_BYTES, None);
            (0..pieces).for_each(|piece| grant(&mut messages, 7, piece));
            (0..pieces).for_each(|piece| write(&mut messages, 1, piece));
            assert_eq!(all(&mut messages), [(1, is_complete)]);
        }
    }

    /// Messages with the same name, one per process, then a grant of the oldest without its
    /// connection.
    #[test]
    fn too_many_messages_with_one_name_match_none_of_them() {
        for (namesakes, granted) in [(MAX_NAMESAKES as u32, 1), (MAX_NAMESAKES as u32 + 1, 0)] {
            let mut messages = MessageTracker::new(Depth::Messages, false);
            (0..namesakes).for_each(|connection| ready_to_send(&mut messages, connection, 7, PIECE_BYTES, None));
            grant(&mut messages, 7, 3);
            write(&mut messages, 0, 3);
            assert_eq!(complete(&mut messages), granted);
        }
        // With a connection, every message is found up to the limit, and none beyond.
        let mut messages = MessageTracker::new(Depth::Messages, false);
        (0..MAX_NAMESAKES as u32 + 2)
            .for_each(|connection| ready_to_send(&mut messages, connection, 7, PIECE_BYTES, None));
        for connection in 0..MAX_NAMESAKES as u32 + 2 {
            let data = MpiMessagePart::Data { message: MpiMessageId::SenderRequest(7), header_bytes: 0 };
            messages.transport(pair(), (connection, None), &transport(data, PIECE_BYTES as u16), &[]);
        }
        let last = MAX_NAMESAKES as u32 + 1;
        assert!(all(&mut messages).into_iter().all(|(connection, complete)| complete == (connection < last)));
    }

    /// One buffer that goes to several processes, and the READ of each process.
    #[test]
    fn with_too_many_messages_of_one_buffer_a_read_needs_its_connection() {
        for (processes, complete) in [(MAX_OVERLAPPING as u32, MAX_OVERLAPPING), (MAX_OVERLAPPING as u32 + 1, 64)] {
            let mut messages = MessageTracker::new(Depth::Messages, false);
            for own in 0..processes {
                ready_to_send(&mut messages, own, own.into(), PIECE_BYTES, Some((0x1000, PIECE_BYTES)));
            }
            // The READ of the oldest comes first; beyond the limit its memory range is not among
            // those searched.
            for own in 0..processes {
                read(&mut messages, 1000 + own, own, 0x1000);
                respond(&mut messages, own, 1000 + own);
            }
            let all = all(&mut messages);
            assert_eq!(all.iter().filter(|(_, complete)| *complete).count(), complete.max(processes as usize));
        }
        // A READ without a known connection takes a message only within the limit.
        for (processes, expected) in [(MAX_OVERLAPPING as u32, 1), (MAX_OVERLAPPING as u32 + 1, 0)] {
            let mut messages = MessageTracker::new(Depth::Messages, false);
            for own in 0..processes {
                ready_to_send(&mut messages, own, own.into(), PIECE_BYTES, Some((0x1000, PIECE_BYTES)));
            }
            read(&mut messages, 7, 0, 0x1000);
            respond(&mut messages, 0, 7);
            assert_eq!(complete(&mut messages), expected);
        }
    }

    /// READs of one message each are in flight, then all get their responses.
    #[test]
    fn the_oldest_of_too_many_reads_is_evicted_and_counted() {
        for (depth, times, most) in [(Depth::Messages, false, MAX_READS), (Depth::Envelopes, true, MAX_READS_FOR_TIMES)]
        {
            for (reads, evicted) in [(most as u32, 0), (most as u32 + 1, 1)] {
                let mut messages = MessageTracker::new(depth, times);
                messages.emit_messages();
                for own in 0..reads {
                    let memory = Some((u64::from(own) * PIECE_BYTES, PIECE_BYTES));
                    // More messages than may be open for times: the READs alone are checked there.
                    ready_to_send(&mut messages, own, own.into(), PIECE_BYTES, memory);
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
