//! Turns the first observations of requests into starts of messages and into messages.

use super::arrivals::PendingTiming;
use super::assembly::Transport;
use super::envelopes::{FirstPacket, immediate, reth};
use super::nccl::{self, NcclMessage, NcclOutcome};
use super::storage::{CommandTime, MessageSpan, StorageSend};
use super::{Depth, Events, MAX_WIREUPS, MessageState, Tracker, connection_messages};
use crate::model::{
    MpiMessage, ObservedPorts, PacketRecord, PacketRef, PacketRole, StartEvent, Timing, TruncatedHeader, Verb,
    start_hash,
};
use ibscope_parsers::Endpoint;
use ibscope_parsers::ib::Service;
use ibscope_parsers::mpi::{
    self, Envelope, Length, LibraryStack, MatchFields, MpiHeader, MpiMessageId, MpiMessagePart,
};
use ibscope_parsers::ulp::{self, UpperLayerMessage};

/// Size of the operand of an atomic operation.
const ATOMIC_BYTES: u64 = 8;

/// Keeps an item if there is room. Returns the number of items left out (0 or 1).
fn push_bounded<T>(kept: &mut Vec<T>, one: T) -> u64 {
    let has_room = kept.len() < MAX_WIREUPS;
    if has_room {
        kept.push(one);
    }
    u64::from(!has_room)
}

/// Takes the first observation of a multicast datagram, which is the start of a message.
#[cold]
pub(super) fn multicast(id: u32, packet: PacketRef<'_>, batch_bytes: &[u8], events: &mut Events) {
    let packet_bytes = u32::from(packet.payload_bytes);
    let captured = packet.payload(batch_bytes);
    let payload = mpi::Payload { captured, packet_bytes, message_bytes: Some(packet_bytes) };
    events.starts.push((id, StartEvent::Unknown(ulp::recognize(true, &payload))));
}

impl Tracker {
    /// Takes the first observation of a request.
    pub(super) fn request(
        &mut self,
        id: u32,
        packet: PacketRef<'_>,
        batch_bytes: &[u8],
        number: i64,
        events: &mut Events,
    ) {
        let opcode = packet.opcode();
        if !(opcode.is_middle() || opcode.is_last() || opcode.is_first()) {
            self.message_states[id as usize].assembly.other_request_at(number);
        }
        if !(opcode.is_send() || opcode.is_write()) {
            if opcode.is_atomic() {
                self.messages.atomic(id, packet.record);
            } else if opcode.is_read_request() {
                self.storage_data(id, packet, (batch_bytes, number), events);
                if (self.depth >= Depth::Messages || self.messages.awaits((packet.key.dst, packet.key.src)))
                    && let Some(reth) = reth(packet.record, batch_bytes)
                {
                    let memory = (reth.va, reth.dma_len.into());
                    self.messages.read(id, packet, memory, |connection| self.pairing.partner(connection));
                }
            }
            let asked_bytes =
                if opcode.is_read_request() { packet.extension().map(u64::from) } else { Some(ATOMIC_BYTES) };
            // A READ of unknown length belongs to no size class.
            let Some(bytes) = asked_bytes else { return };
            self.time_request(id, packet.record, bytes, &mut events.timings);
            events.sizes.extend(Verb::of(opcode).map(|verb| (id, verb, bytes)));
            return;
        }
        if opcode.is_write() && opcode.has_immediate() && !packet.has_extension_headers() {
            self.note_truncated(id, TruncatedHeader::Immediate);
        }
        let payload = packet.payload(batch_bytes);
        let begins = opcode.is_first() || opcode.is_only();
        if begins {
            self.time_request(id, packet.record, u64::from(packet.payload_bytes), &mut events.timings);
        }
        if opcode.is_only() {
            events.sizes.extend(Verb::of(opcode).map(|verb| (id, verb, u64::from(packet.payload_bytes))));
        }
        let head = if begins {
            self.storage_data(id, packet, (batch_bytes, number), events);
            self.parse_head(id, packet, (batch_bytes, number), events)
        } else {
            None
        };
        if opcode.is_only() && head.is_none() && !self.expects_data(packet) {
            return;
        }
        let message = begins.then(|| self.begin(id, packet, batch_bytes, head));
        if opcode.is_only() {
            if let Some(message) = message {
                self.finished(id, packet.pair(), &message, payload, events);
            }
            return;
        }
        let following = &mut self.message_states[id as usize];
        let keep = match &message {
            Some(message) => matches!(message.head, Some(MpiHeader { part: MpiMessagePart::Coalesced, .. })),
            None => following.envelopes.may_hold_several(),
        };
        let immediate = immediate(packet.record, batch_bytes);
        let done = following.assembly.packet(packet.record, payload, number, message, keep, immediate);
        // A message of unknown length belongs to no size class.
        if opcode.is_last()
            && let Some(bytes) = done.as_ref().and_then(|message| message.message_bytes)
        {
            self.time_request(id, packet.record, bytes, &mut events.timings);
        }
        if let Some(message) = &done {
            self.time_message(id, message, &mut events.timings);
        }
        let following = &mut self.message_states[id as usize];
        let evicted = following.assembly.evict();
        for message in [done, evicted].into_iter().flatten() {
            let following = &mut self.message_states[id as usize];
            if !message.complete {
                following.missing().evicted += 1;
            }
            following.note(&message);
            events.sizes.extend(sized(id, &message));
            self.finished(id, packet.pair(), &message, &message.payload, events);
        }
    }

    fn note_truncated(&mut self, id: u32, header: TruncatedHeader) {
        self.message_states[id as usize].missing().truncated_headers[header as usize] += 1;
    }

    /// True if messages without an envelope matter.
    fn expects_data(&self, packet: PacketRef<'_>) -> bool {
        let (opcode, pair) = (packet.opcode(), packet.pair());
        self.depth >= Depth::Messages
            || opcode.is_write() && (opcode.has_immediate() || self.nccl.awaits(pair) || self.messages.awaits(pair))
    }

    /// True if individual messages are tracked.
    fn tracks_messages(&self) -> bool {
        self.times || self.depth >= Depth::Messages
    }

    /// Classifies the first packet of a message and emits its start.
    fn parse_head(
        &mut self,
        id: u32,
        packet: PacketRef<'_>,
        (batch_bytes, number): (&[u8], i64),
        events: &mut Events,
    ) -> Option<MpiHeader> {
        let pair = packet.pair();
        let payload = packet.payload(batch_bytes);
        if self.is_nccl_data(id, packet, batch_bytes) {
            return None;
        }
        match self.message_states[id as usize].envelopes.first(packet.record, batch_bytes) {
            FirstPacket::Recognized(head, _) if head.stack == LibraryStack::Nccl => {
                let reth = reth(packet.record, batch_bytes);
                let outcome = reth.and_then(|reth| self.nccl.clear_to_send(pair, (id, packet.time_ns), payload, reth));
                let start = if outcome.is_some() {
                    StartEvent::Recognized(LibraryStack::Nccl, None)
                } else {
                    StartEvent::Unknown(None)
                };
                events.starts.push((id, start));
                self.nccl_messages(outcome?, events);
                Some(head)
            }
            FirstPacket::Recognized(head, upper_layer) => {
                events.starts.extend(upper_layer.map(|message| (id, StartEvent::AlsoMatches(message))));
                self.storage_message(id, packet, (payload, number), upper_layer, events);
                self.library_message(id, packet, payload, &head, events);
                Some(head)
            }
            FirstPacket::Retransmitted => {
                if let Some(health) = self.health.get_mut(id as usize) {
                    health.observed().library_retransmissions += 1;
                }
                events.starts.push((id, StartEvent::Retransmitted));
                None
            }
            FirstPacket::Unknown(message) => {
                events.starts.push((id, StartEvent::Unknown(message)));
                self.storage_message(id, packet, (payload, number), message, events);
                None
            }
            FirstPacket::Data => None,
            FirstPacket::Truncated(start) => {
                self.note_truncated(id, start);
                if start == TruncatedHeader::Send {
                    events.starts.push((id, StartEvent::Unknown(None)));
                    self.storage_message(id, packet, (payload, number), None, events);
                }
                None
            }
        }
    }

    /// True for the first packet of a WRITE into memory that an NCCL receiver posted. Its payload may
    /// look like a header of an MPI library.
    fn is_nccl_data(&self, id: u32, packet: PacketRef<'_>, batch_bytes: &[u8]) -> bool {
        packet.opcode().is_write()
            && self.nccl.awaits(packet.pair())
            && reth(packet.record, batch_bytes).is_some_and(|reth| self.nccl.is_data(packet.pair(), id, &reth))
    }

    /// Takes the first packet of a message that may be a command or completion of a storage
    /// protocol; `found` is the protocol that its payload matches. Inlined, because nearly all
    /// captures have neither.
    #[inline]
    fn storage_message(
        &mut self,
        id: u32,
        packet: PacketRef<'_>,
        payload: (&[u8], i64),
        found: Option<UpperLayerMessage>,
        events: &mut Events,
    ) {
        if found.is_some() || !self.storage.is_idle() {
            self.storage_send(id, packet, payload, found, events);
        }
    }

    fn storage_send(
        &mut self,
        id: u32,
        packet: PacketRef<'_>,
        (captured, number): (&[u8], i64),
        found: Option<UpperLayerMessage>,
        events: &mut Events,
    ) {
        let opcode = packet.opcode();
        if !opcode.is_send() || !opcode.service().is_connected() {
            return;
        }
        let Some(protocol) = self.storage.protocol_of(id, found) else { return };
        let packet_bytes = u32::from(packet.payload_bytes);
        let message_bytes = opcode.is_only().then_some(packet_bytes);
        self.storage_start(id, MessageSpan::packet(number), events);
        let send = StorageSend {
            connection: id,
            pair: packet.pair(),
            partner: self.pairing.partner(id),
            time_ns: packet.time_ns,
            payload: mpi::Payload { captured, packet_bytes, message_bytes },
        };
        let Some(time) = self.storage.send(protocol, send) else { return };
        if self.storage_time(&time, events) {
            let CommandTime { connection, from_ns, key, .. } = time;
            let pending = PendingTiming { connection, from_ns, key, required_detection: None };
            self.await_arrival(id, number, pending, &mut events.timings);
        }
    }

    /// Takes the start of a message of a storage connection.
    fn storage_start(&mut self, id: u32, span: MessageSpan, events: &mut Events) {
        let observed = self.connections[id as usize].ledgers[PacketRole::Request as usize].runs();
        for time in self.storage.starts(id, span, observed) {
            self.storage_time(&time, events);
        }
    }

    /// Emits the time of a command, if both ends have a time.
    fn storage_time(&self, time: &CommandTime, events: &mut Events) -> bool {
        let CommandTime { connection, from_ns, until_ns, key } = *time;
        let has_time = self.times && from_ns != PacketRecord::NO_TIME && until_ns != PacketRecord::NO_TIME;
        if has_time {
            let times_ns = (from_ns, until_ns);
            events.timings.push(Timing::between(connection, (key, None), ObservedPorts::OnePort, times_ns));
        }
        has_time
    }

    /// Emits the times of commands that the end of the input confirms.
    pub(super) fn finish_storage_times(&mut self, events: &mut Events) {
        for time in self.storage.finish_times() {
            self.storage_time(&time, events);
        }
    }

    /// Takes the first packet of a WRITE, or a READ request, that may move the data of a command.
    #[inline]
    fn storage_data(&mut self, id: u32, packet: PacketRef<'_>, captured: (&[u8], i64), events: &mut Events) {
        if !self.storage.is_idle() {
            self.storage_rdma(id, packet, captured, events);
        }
    }

    fn storage_rdma(
        &mut self,
        id: u32,
        packet: PacketRef<'_>,
        (batch_bytes, number): (&[u8], i64),
        events: &mut Events,
    ) {
        let is_write = packet.opcode().is_write();
        if !is_write && !packet.opcode().is_read_request() {
            return;
        }
        let partner = self.pairing.partner(id);
        if self.storage.is_queue(partner)
            && let Some(reth) = reth(packet.record, batch_bytes)
        {
            let mtu_bytes = if is_write {
                Some(packet.payload_bytes)
            } else {
                self.mtu_bytes.get(&packet.key.port_pair()).copied()
            };
            let is_one_packet = is_write && packet.opcode().is_only();
            let span = if is_one_packet {
                MessageSpan::packet(number)
            } else {
                MessageSpan::data(number, reth.dma_len, mtu_bytes.map(u32::from))
            };
            self.storage_start(id, span, events);
            let written = is_write.then(|| packet.payload(batch_bytes));
            self.storage.rdma((id, partner), reth, written);
        }
    }

    /// Starts a transport message with its first packet.
    fn begin(&mut self, id: u32, packet: PacketRef<'_>, batch_bytes: &[u8], head: Option<MpiHeader>) -> Transport {
        let pair = packet.pair();
        let needs_target = packet.opcode().is_write() && self.expects_data(packet);
        let target = needs_target.then(|| reth(packet.record, batch_bytes)).flatten();
        let mut message = Transport::new(packet.record, head, target);
        message.immediate = immediate(packet.record, batch_bytes);
        if target.is_some() && self.depth >= Depth::Messages {
            message.start_hash = start_hash(packet.payload(batch_bytes));
        }
        if self.tracks_messages() {
            self.messages.begin(pair, id, &message);
        }
        message
    }

    /// Takes the first packet of a message of an MPI library.
    fn library_message(
        &mut self,
        id: u32,
        packet: PacketRef<'_>,
        payload: &[u8],
        head: &MpiHeader,
        events: &mut Events,
    ) {
        let stack = head.stack;
        let pair = packet.pair();
        let start = |envelope| (id, StartEvent::Recognized(stack, envelope));
        match head.part {
            MpiMessagePart::Start(begun) => {
                events.starts.push(start(Some(begun.envelope)));
                match begun.envelope.length {
                    Length::Explicit(mpi_bytes) => {
                        let message =
                            MpiMessage { stack, envelope: begun.envelope, mpi_bytes, time_ns: packet.time_ns };
                        events.mpi.push((id, message));
                    }
                    Length::NotCaptured => self.message_states[id as usize].missing().mpi_truncated += 1,
                    // The length is known when the message is complete.
                    Length::AfterHeaders(_) => {}
                }
                if let Some(name @ MpiMessageId::SenderRequest(_)) = begun.id {
                    self.echoes.request(pair, name, id);
                }
            }
            // The envelopes are parsed when the message is complete.
            MpiMessagePart::Coalesced | MpiMessagePart::Cached { .. } => {}
            MpiMessagePart::Grant { message: of, .. } | MpiMessagePart::Done { message: of } => {
                events.starts.push(start(None));
                self.echoes.reply(pair, of, id);
            }
            MpiMessagePart::Data { .. } => events.starts.push(start(None)),
            MpiMessagePart::Control => {
                events.starts.push(start(None));
                if let Some(wireup) = connection_messages::wireup(stack, packet, payload) {
                    self.connection_messages_left_out += push_bounded(&mut self.wireups, wireup);
                }
                if packet.opcode().service() == Service::Ud
                    && let Some(message) = connection_messages::connection_message(stack, packet, payload)
                {
                    self.connection_messages_left_out += push_bounded(&mut self.connection_messages, message);
                }
            }
        }
    }

    /// Takes a message that is complete or evicted. `body` is its captured payload, where needed.
    pub(super) fn finished(
        &mut self,
        id: u32,
        pair: (Endpoint, Endpoint),
        message: &Transport,
        body: &[u8],
        events: &mut Events,
    ) {
        if self.may_be_nccl(pair, message) && self.nccl_write(id, pair, message, body, events) {
            return;
        }
        let following = &mut self.message_states[id as usize];
        let mut envelopes: Vec<Envelope> = Vec::new();
        match message.head {
            Some(MpiHeader { stack, part: MpiMessagePart::Start(start), .. })
                if matches!(start.envelope.length, Length::AfterHeaders(_)) =>
            {
                if let Some(message_bytes) = message.message_bytes {
                    let mpi_bytes = start.envelope.length.in_message(message_bytes);
                    let time_ns = message.times_ns.0;
                    events.mpi.push((id, MpiMessage { stack, envelope: start.envelope, mpi_bytes, time_ns }));
                } else {
                    following.missing().mpi_incomplete += 1;
                }
            }
            Some(MpiHeader { stack, part: MpiMessagePart::Coalesced, .. }) => {
                let message_bytes = message.message_bytes.and_then(|bytes| u32::try_from(bytes).ok());
                envelopes
                    .extend(message_bytes.into_iter().flat_map(|bytes| mpi::coalesced_envelopes(stack, body, bytes)));
                // Envelopes beyond the captured part cannot be counted; at least one is missing.
                let is_truncated = message.complete && message_bytes.is_some_and(|bytes| body.len() < bytes as usize);
                if is_truncated {
                    following.missing().mpi_truncated += 1;
                }
            }
            Some(MpiHeader { part: MpiMessagePart::Cached { mpi_bytes }, .. }) => {
                let length = Length::Explicit(mpi_bytes);
                let cached = following.envelopes.cached().map(MatchFields::Named);
                envelopes.extend(cached.map(|matching| Envelope { matching, length, sequence: None }));
            }
            _ => {}
        }
        if let Some(MpiHeader { stack, part: MpiMessagePart::Coalesced | MpiMessagePart::Cached { .. }, .. }) =
            message.head
        {
            if envelopes.is_empty() {
                // The packets with the envelopes are missing, or the capture began after them.
                events.starts.push((id, StartEvent::Recognized(stack, None)));
                following.missing().mpi_incomplete += 1;
            }
            for envelope in &envelopes {
                events.starts.push((id, StartEvent::Recognized(stack, Some(*envelope))));
                let mpi_bytes = envelope.length.in_message(0);
                let time_ns = message.times_ns.0;
                events.mpi.push((id, MpiMessage { stack, envelope: *envelope, mpi_bytes, time_ns }));
            }
        }
        if self.tracks_messages() {
            let is_response = matches!(
                message.head,
                Some(MpiHeader { part: MpiMessagePart::Grant { .. } | MpiMessagePart::Done { .. }, .. })
            );
            let partner = if is_response { self.pairing.partner(id) } else { None };
            self.messages.transport(pair, (id, partner), message, &envelopes);
        }
    }

    /// True if a message may be data of NCCL: a WRITE without an envelope that NCCL expects, or
    /// that ends with immediate data.
    fn may_be_nccl(&self, pair: (Endpoint, Endpoint), message: &Transport) -> bool {
        message.head.is_none()
            && message.opcode.is_write()
            && (self.nccl.awaits(pair) || message.immediate.is_some() && !self.messages.awaits(pair))
    }

    /// Takes a WRITE that may be data of NCCL. Returns false if it is not.
    fn nccl_write(
        &mut self,
        id: u32,
        pair: (Endpoint, Endpoint),
        message: &Transport,
        body: &[u8],
        events: &mut Events,
    ) -> bool {
        let outcome = self.nccl.write(pair, id, message, body);
        if !outcome.is_data {
            return false;
        }
        if message.immediate.is_none() {
            events.starts.push((id, StartEvent::Recognized(LibraryStack::Nccl, None)));
        }
        self.nccl_messages(outcome, events);
        true
    }

    /// Takes the result of an NCCL packet: shares, messages that ended, and messages of unknown
    /// sender or length.
    pub(super) fn nccl_messages(&mut self, outcome: NcclOutcome, events: &mut Events) {
        events.shares.extend(outcome.shares);
        for NcclMessage { envelope, sums: written, receive } in outcome.ended {
            let id = written.connection;
            events.starts.push((id, StartEvent::Recognized(LibraryStack::Nccl, envelope)));
            if self.tracks_messages() {
                self.messages.nccl_message(&written, receive, envelope.map(|envelope| envelope.matching));
            }
            let Some(envelope) = envelope else { continue };
            let (mpi_bytes, time_ns) = (written.length_bytes, written.times_ns.0);
            events.mpi.push((id, MpiMessage { stack: LibraryStack::Nccl, envelope, mpi_bytes, time_ns }));
        }
        for (id, rank) in outcome.unknown {
            let envelope = rank.map(|rank| nccl::envelope(rank, Length::NotCaptured));
            events.starts.push((id, StartEvent::Recognized(LibraryStack::Nccl, envelope)));
            self.message_states[id as usize].missing().mpi_incomplete += 1;
        }
        for written in outcome.others {
            // Another input may show that it is one.
            self.message_states[written.connection as usize].missing().mpi_incomplete += 1;
            if self.tracks_messages() {
                self.messages.nccl_message(&written, None, None);
            }
        }
    }
}

/// Length of a message of several packets, if its first and last packets were observed.
pub(super) fn sized(id: u32, message: &Transport) -> Option<(u32, Verb, u64)> {
    Some((id, Verb::of(message.opcode)?, message.message_bytes?))
}

impl MessageState {
    /// Counts a message that is evicted.
    pub(super) fn note(&mut self, message: &Transport) {
        if !message.complete {
            self.missing().with_gaps += 1;
        }
        if !message.started {
            self.missing().without_start += 1;
        }
    }
}
