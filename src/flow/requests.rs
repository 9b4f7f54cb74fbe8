//! Requests that are seen for the first time -> starts of messages, and messages.

use super::assembly::Transport;
use super::envelopes::{First, immediate, reth};
use super::nccl::{self, Ended, Outcome};
use super::{Depth, Events, Following, MAX_WIREUPS, Tracker, introductions};
use crate::model::{MpiMessage, Packet, Start, Verb};
use ibscope_parsers::Endpoint;
use ibscope_parsers::ib::Service;
use ibscope_parsers::mpi::{self, Envelope, Form, Head, Length, Matching, Name, Part};

/// What an atomic operation works on.
const ATOMIC_BYTES: u64 = 8;

/// Keeps one more of these if there is room, and says how many were left out.
fn keep<T>(kept: &mut Vec<T>, one: T) -> u64 {
    let has_room = kept.len() < MAX_WIREUPS;
    if has_room {
        kept.push(one);
    }
    u64::from(!has_room)
}

impl Tracker {
    /// A request that is seen for the first time.
    pub(super) fn request(
        &mut self,
        id: u32,
        packet: Packet<'_>,
        batch_bytes: &[u8],
        number: i64,
        events: &mut Events,
    ) {
        let opcode = packet.opcode();
        if !(opcode.is_middle() || opcode.is_last() || opcode.is_first()) {
            self.following[id as usize].assembly.other(number);
        }
        if !(opcode.is_send() || opcode.is_write()) {
            if opcode.is_atomic() {
                self.messages.atomic(id, packet.record);
            } else if opcode.is_read_request()
                && (self.depth >= Depth::Messages || self.messages.awaits((packet.key.dst, packet.key.src)))
                && let Some(reth) = reth(packet.record, batch_bytes)
            {
                self.messages.read(id, packet, reth.va, |connection| self.pairing.partner(connection));
            }
            let bytes = if opcode.is_read_request() { u64::from(packet.extension) } else { ATOMIC_BYTES };
            self.time_request(id, packet.record, bytes, &mut events.timings);
            events.sizes.extend(Verb::of(opcode).map(|verb| (id, verb, bytes)));
            return;
        }
        let payload = packet.payload(batch_bytes);
        let begins = opcode.is_first() || opcode.is_only();
        if begins {
            self.time_request(id, packet.record, u64::from(packet.payload_bytes), &mut events.timings);
        }
        if opcode.is_only() {
            events.sizes.extend(Verb::of(opcode).map(|verb| (id, verb, u64::from(packet.payload_bytes))));
        }
        let head = if begins { self.head(id, packet, batch_bytes, events) } else { None };
        if opcode.is_only() && head.is_none() && !self.asks_for_data(packet) {
            return;
        }
        let message = begins.then(|| self.begin(id, packet, batch_bytes, head));
        if opcode.is_only() {
            if let Some(message) = message {
                self.finished(id, packet.pair(), &message, payload, events);
            }
            return;
        }
        let following = &mut self.following[id as usize];
        let keep = match &message {
            Some(message) => matches!(message.head, Some(Head { part: Part::Several, .. })),
            None => following.envelopes.may_hold_several(),
        };
        let immediate = immediate(packet.record, batch_bytes);
        let done = following.assembly.packet(packet.record, payload, number, message, keep, immediate);
        if opcode.is_last() {
            let bytes = done.as_ref().and_then(|message| message.message_bytes).unwrap_or(0);
            self.time_request(id, packet.record, bytes, &mut events.timings);
        }
        if let Some(message) = &done {
            self.time_message(id, message, &mut events.timings);
        }
        let following = &mut self.following[id as usize];
        let evicted = following.assembly.evict();
        for message in [done, evicted].into_iter().flatten() {
            let following = &mut self.following[id as usize];
            if !message.complete {
                following.missing().evicted += 1;
            }
            following.note(&message);
            events.sizes.extend(sized(id, &message));
            self.finished(id, packet.pair(), &message, &message.kept, events);
        }
    }

    /// Whether messages without an envelope matter.
    fn asks_for_data(&self, packet: Packet<'_>) -> bool {
        let (opcode, pair) = (packet.opcode(), packet.pair());
        self.depth >= Depth::Messages
            || opcode.is_write() && (opcode.has_immediate() || self.nccl.awaits(pair) || self.messages.awaits(pair))
    }

    /// Whether messages are followed one by one.
    fn follows_messages(&self) -> bool {
        self.times || self.depth >= Depth::Messages
    }

    /// What the first packet of a message shows.
    fn head(&mut self, id: u32, packet: Packet<'_>, batch_bytes: &[u8], events: &mut Events) -> Option<Head> {
        let pair = packet.pair();
        let payload = packet.payload(batch_bytes);
        match self.following[id as usize].envelopes.first(packet.record, batch_bytes) {
            First::Known(head) if head.form == Form::Nccl => {
                let reth = reth(packet.record, batch_bytes);
                let outcome = reth.and_then(|reth| self.nccl.clear_to_send(pair, id, payload, reth));
                let start = if outcome.is_some() { Start::Recognised(Form::Nccl, None) } else { Start::Unknown };
                events.starts.push((id, start));
                self.nccl_messages(outcome?, events);
                Some(head)
            }
            First::Known(head) => {
                self.known(id, packet, payload, &head, events);
                Some(head)
            }
            First::Repeated => {
                if let Some(health) = self.health.get_mut(id as usize) {
                    health.observed().library_repeats += 1;
                }
                events.starts.push((id, Start::Repeated));
                None
            }
            First::Unknown => {
                events.starts.push((id, Start::Unknown));
                None
            }
            First::Data => None,
        }
    }

    /// The first packet of a message that is followed to its end.
    fn begin(&mut self, id: u32, packet: Packet<'_>, batch_bytes: &[u8], head: Option<Head>) -> Transport {
        let pair = packet.pair();
        let needs_target = packet.opcode().is_write() && self.asks_for_data(packet);
        let target = needs_target.then(|| reth(packet.record, batch_bytes)).flatten();
        let mut message = Transport::new(packet.record, head, target);
        message.immediate = immediate(packet.record, batch_bytes);
        if self.follows_messages() {
            self.messages.begin(pair, id, &message);
        }
        message
    }

    /// The first packet of a message of an MPI library.
    fn known(&mut self, id: u32, packet: Packet<'_>, payload: &[u8], head: &Head, events: &mut Events) {
        let form = head.form;
        let pair = packet.pair();
        let start = |envelope| (id, Start::Recognised(form, envelope));
        match head.part {
            Part::Start(begun) => {
                events.starts.push(start(Some(begun.envelope)));
                match begun.envelope.length {
                    Length::Stated(mpi_bytes) => {
                        let message = MpiMessage { form, envelope: begun.envelope, mpi_bytes, time_ns: packet.time_ns };
                        events.mpi.push((id, message));
                    }
                    Length::NotCaptured => self.following[id as usize].missing().mpi_cut += 1,
                    // Known when all of the message is there.
                    Length::Beyond(_) => {}
                }
                if let Some(name @ Name::Request(_)) = begun.name {
                    self.echoes.request(pair, name, id);
                }
            }
            // Their envelopes are read when all of the message is there.
            Part::Several | Part::Cached { .. } => {}
            Part::Grant { of, .. } | Part::Done { of } => {
                events.starts.push(start(None));
                self.echoes.answer(pair, of, id);
            }
            Part::Data { .. } => events.starts.push(start(None)),
            Part::Control => {
                events.starts.push(start(None));
                if let Some(wireup) = introductions::wireup(form, packet, payload) {
                    self.introductions_left_out += keep(&mut self.wireups, wireup);
                }
                if packet.opcode().service() == Service::Ud
                    && let Some(introduction) = introductions::introduction(form, packet, payload)
                {
                    self.introductions_left_out += keep(&mut self.introductions, introduction);
                }
            }
        }
    }

    /// A message that is complete, or that nothing more will come of. `body` is its captured payload, where that is needed.
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
        let following = &mut self.following[id as usize];
        let mut envelopes: Vec<Envelope> = Vec::new();
        match message.head {
            Some(Head { form, part: Part::Start(start), .. }) if matches!(start.envelope.length, Length::Beyond(_)) => {
                if let Some(message_bytes) = message.message_bytes {
                    let mpi_bytes = start.envelope.length.of(message_bytes);
                    let time_ns = message.times_ns.0;
                    events.mpi.push((id, MpiMessage { form, envelope: start.envelope, mpi_bytes, time_ns }));
                } else {
                    following.missing().mpi_incomplete += 1;
                }
            }
            Some(Head { form, part: Part::Several, .. }) => {
                let message_bytes = message.message_bytes.and_then(|bytes| u32::try_from(bytes).ok());
                envelopes.extend(message_bytes.into_iter().flat_map(|bytes| mpi::several(form, body, bytes)));
                // What follows the captured part cannot be counted: one message at least.
                let is_cut = message.complete && message_bytes.is_some_and(|bytes| body.len() < bytes as usize);
                if is_cut {
                    following.missing().mpi_cut += 1;
                }
            }
            Some(Head { part: Part::Cached { mpi_bytes }, .. }) => {
                let length = Length::Stated(mpi_bytes);
                let cached = following.envelopes.cached().map(Matching::Named);
                envelopes.extend(cached.map(|matching| Envelope { matching, length, sequence: None }));
            }
            _ => {}
        }
        if let Some(Head { form, part: Part::Several | Part::Cached { .. }, .. }) = message.head {
            if envelopes.is_empty() {
                // The packets with the envelopes are missing, or the capture began after them.
                events.starts.push((id, Start::Recognised(form, None)));
                following.missing().mpi_incomplete += 1;
            }
            for envelope in &envelopes {
                events.starts.push((id, Start::Recognised(form, Some(*envelope))));
                let mpi_bytes = envelope.length.of(0);
                let time_ns = message.times_ns.0;
                events.mpi.push((id, MpiMessage { form, envelope: *envelope, mpi_bytes, time_ns }));
            }
        }
        if self.follows_messages() {
            let answers = matches!(message.head, Some(Head { part: Part::Grant { .. } | Part::Done { .. }, .. }));
            let partner = if answers { self.pairing.partner(id) } else { None };
            self.messages.transport(pair, (id, partner), message, &envelopes);
        }
    }

    /// Whether a message may be data of NCCL: a WRITE without an envelope that it awaits, or that ends with immediate data.
    fn may_be_nccl(&self, pair: (Endpoint, Endpoint), message: &Transport) -> bool {
        message.head.is_none()
            && message.opcode.is_write()
            && (self.nccl.awaits(pair) || message.immediate.is_some() && !self.messages.awaits(pair))
    }

    /// A WRITE that may be data of NCCL. False where it is none.
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
            events.starts.push((id, Start::Recognised(Form::Nccl, None)));
        }
        self.nccl_messages(outcome, events);
        true
    }

    /// Messages of NCCL that have ended.
    pub(super) fn nccl_messages(&mut self, outcome: Outcome, events: &mut Events) {
        events.shares.extend(outcome.shares);
        for Ended { envelope, written } in outcome.ended {
            let id = written.connection;
            events.starts.push((id, Start::Recognised(Form::Nccl, envelope)));
            if self.follows_messages() {
                self.messages.written(&written, envelope.map(|envelope| envelope.matching));
            }
            let Some(envelope) = envelope else { continue };
            let (mpi_bytes, time_ns) = (written.length_bytes, written.times_ns.0);
            events.mpi.push((id, MpiMessage { form: Form::Nccl, envelope, mpi_bytes, time_ns }));
        }
        for (id, rank) in outcome.unknown {
            let envelope = rank.map(|rank| nccl::envelope(rank, Length::NotCaptured));
            events.starts.push((id, Start::Recognised(Form::Nccl, envelope)));
            self.following[id as usize].missing().mpi_incomplete += 1;
        }
        for written in outcome.others {
            // Another input may know that it is one.
            self.following[written.connection as usize].missing().mpi_incomplete += 1;
            if self.follows_messages() {
                self.messages.written(&written, None);
            }
        }
    }
}

/// A message of several packets with its length, where that is known: its first and last packets were seen.
pub(super) fn sized(id: u32, message: &Transport) -> Option<(u32, Verb, u64)> {
    Some((id, Verb::of(message.opcode)?, message.message_bytes?))
}

impl Following {
    /// Notes a message that nothing more will come of.
    pub(super) fn note(&mut self, message: &Transport) {
        if !message.complete {
            self.missing().with_gaps += 1;
        }
        if !message.started {
            self.missing().without_start += 1;
        }
    }
}
