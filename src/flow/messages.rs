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
//!
//! Invariant: a message is complete only if the data are its own. So a transport message belongs to
//! the message that its first packet belonged to, and a message *retires* (takes no new data) once
//! its end was observed: its completion notice, another message with its name, or a new grant of its
//! memory. Messages that a READ cannot distinguish form a *group*, and are complete together.

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
use std::collections::{BTreeMap, BTreeSet};

/// Open messages per tracker; one more evicts the oldest as incomplete. Times need fewer: only
/// messages whose data were not captured stay open for long, and those have no times.
const MAX_OPEN: usize = 1 << 12;
const MAX_OPEN_FOR_TIMES: usize = 1 << 10;
/// Names, memory ranges, and transport messages in flight per message: a receiver may grant a long
/// message in parts.
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
    /// The message of each transport message in flight, by connection and PSN of its first packet.
    in_flight: HashMap<(u32, u32), u64>,
    /// Rendezvous that wait for a grant or a READ, by the connection of their envelope.
    ungranted: HashMap<u32, Vec<u64>>,
    /// Open messages that share memory, by group.
    groups: HashMap<u64, Vec<u64>>,
    /// Messages to emit.
    ready: Vec<RawMessage>,
    /// MPI messages that the current packet completed, where times are measured.
    /// Each with the time of its last packet in nanoseconds since the epoch.
    complete: Vec<(PendingTiming, i64)>,
    /// Individual messages are requested.
    emits: bool,
    /// So are messages without a time.
    emits_untimed: bool,
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
    end: MessageEnd,
    /// Data that belong to this message or to another one were not assigned, or they exceed its
    /// length.
    is_doubtful: bool,
    /// Its transport messages in flight, by connection and PSN, and the number of its open READs.
    in_flight: Vec<(u32, u32)>,
    open_reads: u32,
    /// Number of its group.
    group: Option<u64>,
    names: Vec<(EndpointPair, MpiMessageId)>,
    /// Starts of its memory ranges.
    memory: Vec<u64>,
}

/// Whether the end of a message was observed.
#[derive(Clone, Copy, Debug)]
enum MessageEnd {
    NotObserved,
    /// A completion notice may be its own: the receiver has all data, captured or not.
    Likely,
    /// The message takes no new data.
    Retired,
}

impl OpenMessage {
    fn new(pair: EndpointPair, raw: RawMessage, length_bytes: u64) -> Self {
        Self {
            pair,
            raw,
            left_bytes: length_bytes,
            envelope_complete: false,
            end: MessageEnd::NotObserved,
            is_doubtful: false,
            in_flight: Vec::new(),
            open_reads: 0,
            group: None,
            names: Vec::new(),
            memory: Vec::new(),
        }
    }

    /// True if no data can follow.
    const fn has_ended(&self) -> bool {
        matches!(self.end, MessageEnd::Retired) && self.open_reads == 0 && self.in_flight.is_empty()
    }
}

/// A memory range, of the sender or the receiver, that the data of a message pass through.
#[derive(Debug)]
struct Memory {
    end: u64,
    /// Bytes that READ requests or WRITEs cover.
    requested_bytes: u64,
}

impl Memory {
    const fn has_room(&self, start: u64, bytes: u64) -> bool {
        self.requested_bytes.saturating_add(bytes) <= self.end - start
    }
}

impl MessageTracker {
    /// An empty tracker. `depth` is the depth of the analysis; `times` asks for rendezvous phases.
    pub(super) fn new(depth: Depth, times: bool) -> Self {
        let wants_all = depth >= Depth::Messages;
        Self {
            emits: wants_all,
            emits_untimed: wants_all,
            with_transport: depth == Depth::TransportMessages,
            rendezvous: times.then(RendezvousTracker::default),
            most_open: if wants_all { MAX_OPEN } else { MAX_OPEN_FOR_TIMES },
            reads: RdmaReads::new(if wants_all { MAX_READS } else { MAX_READS_FOR_TIMES }),
            ..Self::default()
        }
    }

    /// Emits individual messages with their times at any depth.
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
            let (connection, (from_ns, last_ns)) = (message.connection, message.times_ns);
            let required_detection = Some(RequiredDetection::of(stack, matching));
            self.complete.push((PendingTiming { connection, from_ns, key, required_detection }, last_ns));
        }
        if self.emits {
            self.ready.push(message);
        }
    }

    /// Takes the messages to emit.
    pub(super) fn take(&mut self) -> std::vec::Drain<'_, RawMessage> {
        self.ready.drain(..)
    }

    /// Takes the MPI messages whose last packet is the current one, of this time. Messages of NCCL that
    /// were received together end before the packet that shows it.
    pub(super) fn take_complete(&mut self, time_ns: i64) -> impl Iterator<Item = PendingTiming> + '_ {
        self.complete.drain(..).filter(move |(_, last_ns)| *last_ns == time_ns).map(|(pending, _)| pending)
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
                self.start(connection, message, stack, &start);
            }
            Some(MpiHeader { stack, part: MpiMessagePart::Coalesced | MpiMessagePart::Cached { .. }, .. }) => {
                self.several(connection, message, stack, several);
            }
            Some(MpiHeader { part: MpiMessagePart::Data { header_bytes, .. }, .. }) => {
                let data_bytes = message.payload_bytes.saturating_sub(u64::from(header_bytes));
                self.data(connection, message, data_bytes);
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
                self.done(pair, of, (connection, partner));
                self.transport_only(connection, message);
            }
            Some(MpiHeader { part: MpiMessagePart::Control, .. }) | None => {
                self.data(connection, message, message.payload_bytes);
            }
        }
    }

    /// Takes a transport message that may be data of an MPI message.
    fn data(&mut self, connection: u32, message: &Transport, data_bytes: u64) {
        match self.take_in_flight(connection, message.psn) {
            Some(id) => {
                self.add_data(id, data_bytes, &raw(connection, message), message.times_ns);
                self.close_if_ended(id);
            }
            None => self.transport_only(connection, message),
        }
    }

    /// Takes a completion notice. `connection` carries the notice, `partner` is the connection whose
    /// requests it responds to.
    fn done(&mut self, pair: EndpointPair, of: MpiMessageId, (connection, partner): (u32, Option<u32>)) {
        let back = (pair.1, pair.0);
        // The receiver returns the sender's name, the sender returns the receiver's. Memory may be
        // that of either, so the direction of its notice is part of its name.
        let (named, likely) = match of {
            MpiMessageId::ReceiverRequest(_) => (pair, [Some(connection), None]),
            MpiMessageId::Fragment(_) => (pair, [Some(connection), partner]),
            MpiMessageId::SenderRequest(_) | MpiMessageId::MultiPacket(_) => (back, [partner, None]),
        };
        let Some(namesakes) = self.names.get(&(named, of)) else {
            if matches!(of, MpiMessageId::ReceiverRequest(_)) {
                self.doubt_ungranted(connection);
            }
            return;
        };
        let is_own = |id: &&u64| {
            self.open.get(id).is_some_and(|open| likely.iter().flatten().any(|own| *own == open.raw.connection))
        };
        let own = namesakes.iter().find(is_own).or_else(|| match namesakes.as_slice() {
            [only] if is_pointer(of) => Some(only),
            _ => None,
        });
        if let Some(id) = own.copied() {
            if self.open.get(&id).is_some_and(|open| open.pair == pair) {
                self.grant_done(id);
            } else {
                self.retire(id);
            }
        } else if let Some(open) = namesakes.first().copied().and_then(|id| self.open.get_mut(&id)) {
            open.end = MessageEnd::Likely;
        }
    }

    /// Takes the first packet of a transport message. An MPI message with data elsewhere is open
    /// from here on: these data may be complete before the transport message is, if a packet of the
    /// latter was lost.
    pub(super) fn begin(&mut self, pair: EndpointPair, connection: u32, message: &Transport) {
        let (stack, start) = match message.head {
            Some(MpiHeader { stack, part: MpiMessagePart::Start(start), .. }) => (stack, start),
            Some(MpiHeader { part: MpiMessagePart::Data { message: of, .. }, .. }) => {
                match self.find_by_name(pair, of, Some(connection)) {
                    Some(id) => self.expect_end(connection, message.psn, id),
                    None if matches!(of, MpiMessageId::ReceiverRequest(_)) => self.doubt_ungranted(connection),
                    None => {}
                }
                return;
            }
            Some(MpiHeader { part: MpiMessagePart::Control, .. }) | None => {
                let target = message.target.map(|reth| (reth.va, u64::from(reth.dma_len)));
                if let Some(id) = target.and_then(|target| self.written(pair, connection, target)) {
                    self.expect_end(connection, message.psn, id);
                }
                return;
            }
            Some(_) => return,
        };
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
        self.open.insert(id, OpenMessage::new(pair, raw, length_bytes));
        self.name(id, pair, name);
        if let Some(done) = start.done_id {
            self.name(id, (pair.1, pair.0), done);
        }
        self.expect_end(connection, message.psn, id);
        if start.protocol == Protocol::Rendezvous {
            self.ungranted.entry(connection).or_default().push(id);
        }
        if let Some((address, bytes)) = start.memory {
            self.open_memory(address, bytes, id);
        }
        if let Some(rendezvous) = self.rendezvous.as_mut().filter(|_| start.protocol == Protocol::Rendezvous) {
            let required = RequiredDetection::of(stack, start.envelope.matching);
            rendezvous.begin(id, pair, (connection, message.times_ns.0), required, start.done_id);
        }
    }

    /// Takes the transport message that carries an envelope, complete or evicted.
    fn start(&mut self, connection: u32, message: &Transport, stack: LibraryStack, start: &MpiMessageStart) {
        let length_bytes = match start.envelope.length {
            Length::Explicit(bytes) => Some(bytes),
            Length::AfterHeaders(_) => message.message_bytes.map(|bytes| start.envelope.length.in_message(bytes)),
            Length::NotCaptured => None,
        };
        let inline_bytes = message.payload_bytes.saturating_sub(u64::from(start.header_bytes));
        let mut raw = raw(connection, message);
        if let (Some(_), Some(length_bytes)) = (start.id, length_bytes)
            && matches!(start.envelope.length, Length::Explicit(_))
        {
            // The message is open since its first packet, unless it was evicted.
            if let Some(id) = self.take_in_flight(connection, message.psn) {
                if let Some(open) = self.open.get_mut(&id) {
                    open.envelope_complete = message.complete;
                }
                self.add(id, inline_bytes.min(length_bytes), &raw);
                self.close_if_ended(id);
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
        } else if self.emits_untimed {
            // The end of its other parts is unknown here, so the message has no time.
            self.ready.push(message);
        }
    }

    /// Names a message. `pair` is the direction of its data, or of its completion notice if that is
    /// named.
    fn name(&mut self, id: u64, pair: EndpointPair, name: MpiMessageId) {
        let Some(connection) = self.open.get(&id).map(|open| open.raw.connection) else { return };
        // A library reuses a name when its message is done, even if the capture missed that.
        let namesakes = self.names.get(&(pair, name)).into_iter().flatten().copied();
        let is_done = |other: &u64| self.open.get(other).is_some_and(|other| other.raw.connection == connection);
        let done: Vec<u64> = namesakes.filter(is_done).collect();
        if done.contains(&id) {
            return;
        }
        done.into_iter().for_each(|other| self.retire(other));
        let namesakes = self.names.entry((pair, name)).or_default();
        let Some(open) = self.open.get_mut(&id) else { return };
        // One entry beyond the limit shows that there were more.
        if open.names.len() < MAX_GRANTS && namesakes.len() <= MAX_NAMESAKES {
            open.names.push((pair, name));
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
        self.grant_found(id);
        if let Some(receiver) = receiver {
            self.name(id, pair, receiver);
        }
        if let Some(done @ MpiMessageId::Fragment(_)) = done {
            self.name(id, pair, done);
        }
        if let Some((address, bytes)) = memory {
            self.end_overlapping(address, bytes, id);
            self.open_memory(address, bytes, id);
        }
    }

    /// Takes the notice that the sender wrote to the only memory range that the receiver granted. A
    /// message that is granted in parts has one notice per part, which may come before the next part.
    fn grant_done(&mut self, id: u64) {
        let Some(open) = self.open.get_mut(&id) else { return };
        let [start] = open.memory[..] else { return };
        let Some(memory) = self.memory.get(&open.pair).and_then(|memory| memory.get(&(start, id))) else { return };
        if memory.has_room(start, 1) {
            // The WRITE is missing.
            open.is_doubtful = true;
            if memory.end - start >= open.left_bytes {
                self.retire(id);
            }
        }
    }

    /// Notes that a message waits for no grant.
    fn grant_found(&mut self, id: u64) {
        let Some(connection) = self.open.get(&id).map(|open| open.raw.connection) else { return };
        if let Some(ungranted) = self.ungranted.get_mut(&connection) {
            ungranted.retain(|other| *other != id);
            if ungranted.is_empty() {
                self.ungranted.remove(&connection);
            }
        }
    }

    /// Takes data or a completion notice of an unknown message on this connection. If only one
    /// message of the connection waits for a grant, the capture may have missed that grant.
    fn doubt_ungranted(&mut self, connection: u32) {
        if let Some([only]) = self.ungranted.get(&connection).map(Vec::as_slice)
            && let Some(open) = self.open.get_mut(only)
        {
            open.is_doubtful = true;
        }
    }

    /// Retires messages whose receiver grants the same memory again: it would have received them.
    fn end_overlapping(&mut self, address: u64, bytes: u64, id: u64) {
        let Some(own) = self.open.get(&id) else { return };
        let (pair, connection) = (own.pair, own.raw.connection);
        let end = address.saturating_add(if bytes == 0 { own.raw.length_bytes.unwrap_or(0) } else { bytes });
        let Some(memory) = self.memory.get(&pair) else { return };
        let before = memory.range(..(end, 0)).rev().take(MAX_OVERLAPPING);
        let is_open = |start: u64, memory: &Memory, other: u64| {
            address < memory.end
                && other != id
                && memory.has_room(start, 1)
                && self.open.get(&other).is_some_and(|other| other.raw.connection == connection)
        };
        let open = before.filter(|((start, other), memory)| is_open(*start, memory, *other));
        let ended: Vec<u64> = open.map(|((_, other), _)| *other).collect();
        ended.into_iter().for_each(|other| self.retire(other));
    }

    /// Ends the search for data of a message: only transport messages and READs that have begun may
    /// still complete it.
    fn retire(&mut self, id: u64) {
        let Some(open) = self.open.get_mut(&id) else { return };
        open.end = MessageEnd::Retired;
        self.forget_names(id);
        self.close_if_ended(id);
    }

    fn close_if_ended(&mut self, id: u64) {
        if self.open.get(&id).is_some_and(|open| open.has_ended() && !open.raw.complete) {
            self.close(id);
        }
    }

    /// Notes that a transport message belongs to a message, until the former ends.
    fn expect_end(&mut self, connection: u32, psn: u32, id: u64) {
        if let Some(open) = self.open.get_mut(&id).filter(|open| open.in_flight.len() < MAX_GRANTS) {
            open.in_flight.push((connection, psn));
            self.in_flight.insert((connection, psn), id);
        }
    }

    /// The message of a transport message that ends, if the message is still open.
    fn take_in_flight(&mut self, connection: u32, psn: u32) -> Option<u64> {
        let id = self.in_flight.remove(&(connection, psn))?;
        self.open.get_mut(&id)?.in_flight.retain(|other| *other != (connection, psn));
        Some(id)
    }

    fn open_memory(&mut self, address: u64, bytes: u64, message: u64) {
        let Some(open) = self.open.get_mut(&message).filter(|open| open.memory.len() < MAX_GRANTS) else { return };
        let bytes = if bytes == 0 { open.raw.length_bytes.unwrap_or(0) } else { bytes };
        open.memory.push(address);
        let memory = Memory { end: address.saturating_add(bytes), requested_bytes: 0 };
        self.memory.entry(open.pair).or_default().insert((address, message), memory);
    }

    /// The message that a WRITE of `bytes` to this address belongs to. Of the memory ranges at the
    /// address, that of a message from the same connection, with the nearest start, of the latest
    /// message.
    fn written(&mut self, pair: EndpointPair, connection: u32, (address, bytes): (u64, u64)) -> Option<u64> {
        let open = &self.open;
        let memory = self.memory.get_mut(&pair)?.range_mut(..=(address, u64::MAX)).rev().take(MAX_OVERLAPPING);
        let covering =
            memory.into_iter().filter(|((start, _), memory)| address < memory.end && memory.has_room(*start, 1));
        let is_other = |id: u64| open.get(&id).is_none_or(|open| open.raw.connection != connection);
        let ((_, id), memory) = covering.min_by_key(|((_, id), _)| is_other(*id))?;
        memory.requested_bytes = memory.requested_bytes.saturating_add(bytes);
        Some(*id)
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
            let is_rdma = matches!(part.transfer_verb, Verb::Read | Verb::Write);
            open.is_doubtful |= is_rdma && data_bytes > open.left_bytes;
        }
        // A part with missing packets leaves its message incomplete.
        open.left_bytes = open.left_bytes.saturating_sub(data_bytes);
        if open.left_bytes > 0 || !open.envelope_complete {
            return;
        }
        raw.complete = !open.is_doubtful;
        // The messages of a group are complete when all of them are.
        let is_whole = |member: &u64| self.open.get(member).is_some_and(|open| open.raw.complete);
        let others = self.open.get(&id).and_then(|open| self.groups.get(&open.group?));
        if others.is_none_or(|members| !is_whole(&id) || members.iter().all(is_whole)) {
            self.close(id);
        } else {
            self.forget_names(id);
        }
    }

    /// Emits a message, and with it the others of its group: as complete if all are whole.
    fn close(&mut self, id: u64) {
        let group = self.open.get(&id).and_then(|open| open.group);
        let Some(members) = group.and_then(|group| self.groups.remove(&group)) else {
            if let Some(raw) = self.remove(id) {
                self.emit(raw);
            }
            return;
        };
        let are_whole = members.iter().all(|id| self.open.get(id).is_some_and(|open| open.raw.complete));
        for id in members {
            if let Some(open) = self.open.get_mut(&id) {
                open.raw.complete &= are_whole;
            }
            // Which packet ended which of them is not certain, so they have no time.
            if let Some(raw) = self.remove(id)
                && self.emits_untimed
            {
                self.ready.push(raw);
            }
        }
    }

    fn remove(&mut self, id: u64) -> Option<RawMessage> {
        self.grant_found(id);
        self.forget_names(id);
        let open = self.open.remove(&id)?;
        for transport in open.in_flight {
            if self.in_flight.get(&transport) == Some(&id) {
                self.in_flight.remove(&transport);
            }
        }
        if let Some(rendezvous) = &mut self.rendezvous {
            rendezvous.end(id, &open.raw);
        }
        Some(open.raw)
    }

    /// Removes the names and the memory ranges of a message.
    fn forget_names(&mut self, id: u64) {
        let Some(open) = self.open.get_mut(&id) else { return };
        for name in open.names.drain(..) {
            if let Some(namesakes) = self.names.get_mut(&name) {
                namesakes.retain(|other| *other != id);
                if namesakes.is_empty() {
                    self.names.remove(&name);
                }
            }
        }
        if let Some(memory) = self.memory.get_mut(&open.pair) {
            open.memory.drain(..).for_each(|start| _ = memory.remove(&(start, id)));
        }
    }

    /// Joins messages, and the groups that they belong to, to one group.
    fn group(&mut self, messages: &[u64]) {
        let groups = messages.iter().filter_map(|id| self.open.get(id)?.group);
        let groups: BTreeSet<u64> = groups.collect();
        let alone = messages.iter().copied().filter(|id| self.open.get(id).is_some_and(|open| open.group.is_none()));
        let mut members: Vec<u64> = alone.collect();
        let Some(number) = groups.first().or(members.first()).copied() else { return };
        members.extend(groups.iter().filter_map(|group| self.groups.remove(group)).flatten());
        for id in &members {
            self.open.get_mut(id).into_iter().for_each(|open| open.group = Some(number));
        }
        self.groups.insert(number, members);
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
        if let Some(id) = message {
            self.grant_found(id);
            self.open.get_mut(&id).into_iter().for_each(|open| open.open_reads += 1);
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
        let mut covering: Vec<_> = memory.into_iter().filter(|(_, memory)| address < memory.end).collect();
        let is_crowd = covering.len() > MAX_OVERLAPPING;
        let is_partner =
            |message: u64| open.get(&message).and_then(|open| likely(open.raw.connection)) == Some(connection);
        covering.retain(|((_, message), _)| !is_crowd || is_partner(*message));
        // If an earlier READ was not captured, its message may still be open when the buffer is
        // reused.
        let rank = |start: u64, message: u64, memory: &Memory| {
            let is_answered = open.get(&message).is_some_and(|open| matches!(open.end, MessageEnd::Likely));
            (!memory.has_room(start, bytes), !is_partner(message), is_answered)
        };
        let best = covering.iter().map(|((start, message), memory)| rank(*start, *message, memory)).min()?;
        // Only a READ that continues an earlier one covers requested data again.
        if best.0 && covering.iter().all(|((start, _), _)| *start == address) {
            return None;
        }
        let is_alike = |rank: (bool, bool, bool)| (rank.0, rank.1) == (best.0, best.1);
        let alike = covering.iter().filter(|((start, id), memory)| is_alike(rank(*start, *id, memory)));
        let alike: Vec<u64> = alike.map(|((_, id), _)| *id).collect();
        let ((_, message), chosen) =
            covering.into_iter().min_by_key(|((start, id), memory)| (rank(*start, *id, memory), *id))?;
        chosen.requested_bytes = chosen.requested_bytes.saturating_add(bytes);
        let message = *message;
        if alike.len() > 1 && !best.0 {
            self.group(&alike);
        }
        Some(message)
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
            Some(id) => {
                if let Some(open) = self.open.get_mut(&id) {
                    open.open_reads = open.open_reads.saturating_sub(1);
                }
                self.add_data(id, read.data_bytes, &read.request, read.data_ns);
                self.close_if_ended(id);
            }
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

/// True if a name is an address: processes seldom share one, as they do numbers that count up.
const fn is_pointer(name: MpiMessageId) -> bool {
    let (MpiMessageId::MultiPacket(value)
    | MpiMessageId::SenderRequest(value)
    | MpiMessageId::ReceiverRequest(value)
    | MpiMessageId::Fragment(value)) = name;
    value > u32::MAX as u64
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
mod tests;
