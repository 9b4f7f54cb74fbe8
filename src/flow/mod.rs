//! Tracks the connections of one input: packets in file order go in; the observation of each
//! packet, transport messages, MPI messages, times and health events come out.
//!
//! A [`Tracker`] takes all packets between the endpoint pairs that are assigned to it, so many
//! trackers run in parallel and share nothing. It keeps per connection (one direction):
//!
//! - how often each PSN was observed (`ledger`),
//! - the open transport messages (`assembly`),
//! - the MPI library and envelope state that the first packets of messages show (`envelopes`),
//! - retransmissions, NAKs and congestion flags (`health`), and losses, by a comparison of requests
//!   with their responses (`completeness`).
//!
//! It keeps per tracker the links between connections: responses that pair the two
//! directions (`pairing`, `echoes`), NCCL's receives (`nccl`), and MPI messages that span several
//! transport messages (`messages`).
//!
//! Invariant: a tracker counts observations and does not decide whether a second observation is a
//! mirror copy or a retransmission. Only the whole input shows that (`reduce`).

mod arrivals;
mod assembly;
mod ballot;
mod cm;
mod completeness;
mod connection;
mod connection_messages;
mod echoes;
mod envelopes;
mod health;
mod ledger;
mod messages;
mod msn;
mod nccl;
mod pairing;
mod port_copies;
mod rails;
mod reaction;
mod reads;
mod rendezvous;
mod reordering;
mod request_order;
mod requests;
mod storage;
mod timing;
mod union;
mod waiting;

pub use cm::connection_management;
pub use rails::assign_shares;
pub use union::{UnionInput, UnionLedgers};

use crate::model::health::HealthEvents;
use crate::model::{
    ConnectionEnd, ConnectionKey, Continuity, CtsQueue, HashMap, MissingMessages, MpiConnectionMessage, MpiMessage,
    PacketFlags, PacketObservation, PacketRecord, PacketRef, PacketRole, PagedVec, PsnSteps, RawMessage, SeededHasher,
    StartEvent, Timing, TrafficKind, Verb, WorkerWireup, constant_hash,
};
use assembly::Assembly;
use ballot::CandidateVotes;
use connection::{Connection, NO_MSN, NO_PSN, Restart, psn};
use echoes::Echoes;
use envelopes::Envelopes;
use hashbrown::HashTable;
use health::{HealthTracker, ResponseCount};
use ibscope_parsers::ib::{Opcode, Service};
use ibscope_parsers::{Endpoint, Psn};
use messages::MessageTracker;
use nccl::Nccl;
use pairing::ConnectionPairing;
use std::hash::BuildHasher as _;
use std::hint::black_box;
use storage::StorageTracker;
use timing::{ConnectionTimer, ObservationCounts};

/// Path MTU that the span of a READ request assumes while the path MTU is unknown: the largest, so
/// that no span is longer than the true one.
const LARGEST_MTU_BYTES: u32 = 4096;
/// Wire-up messages kept per tracker, and connection messages kept per tracker. A connection needs
/// a few.
const MAX_WIREUPS: usize = 1 << 16;

/// Up to this many connections, the state of a tracker stays in the processor caches: a connection
/// takes half a kibibyte, and there are 32 trackers.
const NEAR_CONNECTIONS: usize = 64;

/// Depth of the analysis of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// Packets and transport messages only.
    Packets,
    /// Also MPI envelopes, as sums.
    Envelopes,
    /// Also single MPI messages.
    Messages,
    /// Also transport messages that belong to no MPI message.
    TransportMessages,
}

/// State of the connections between some pairs of endpoints, in one input.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
pub struct Tracker {
    depth: Depth,
    /// Times between packets are measured.
    times: bool,
    /// Health events are collected.
    tracks_health: bool,
    /// The packets of each connection are digested, so that inputs can be compared.
    digests: bool,
    /// The current packet was overtaken only because several inputs are read together.
    is_overtaken: bool,
    /// New connections are no longer tracked.
    is_closed: bool,
    /// Connection numbers by connection key.
    index: HashTable<u32>,
    hasher: SeededHasher,
    connections: PagedVec<Connection>,
    /// One entry per connection, where messages, health or times are asked for.
    message_states: PagedVec<MessageState>,
    health: PagedVec<HealthTracker>,
    timers: PagedVec<ConnectionTimer>,
    observation_counts: ObservationCounts,
    /// Path MTU between two endpoints (smaller one first): the largest payload of a First or Middle
    /// packet.
    mtu_bytes: HashMap<(Endpoint, Endpoint), u16>,
    pairing: ConnectionPairing,
    echoes: Echoes,
    nccl: Nccl,
    storage: StorageTracker,
    messages: MessageTracker,
    wireups: Vec<WorkerWireup>,
    connection_messages: Vec<MpiConnectionMessage>,
    /// Wire-up messages and connection messages beyond [`MAX_WIREUPS`].
    connection_messages_left_out: u64,
    cts_queues: Vec<CtsQueue>,
    /// Messages that were evicted from connections as incomplete.
    evicted: u64,
}

/// AETH syndrome of a NAK with code 0, PSN sequence error.
const NAK_SEQUENCE: u32 = 0b011_00000;

/// State of the messages of a connection.
#[derive(Debug, Default)]
struct MessageState {
    assembly: Assembly,
    envelopes: Envelopes,
    /// Boxed, because most connections miss no messages.
    missing: Option<Box<MissingMessages>>,
}

impl MessageState {
    fn missing(&mut self) -> &mut MissingMessages {
        self.missing.get_or_insert_default()
    }
}

/// Events that packets caused or completed, with the numbers of their connections.
#[derive(Debug, Default)]
pub struct Events {
    /// First observations of packets that start a message.
    pub starts: Vec<(u32, StartEvent)>,
    /// MPI messages whose length is now known.
    pub mpi: Vec<(u32, MpiMessage)>,
    /// Messages that are complete or evicted.
    pub messages: Vec<RawMessage>,
    /// Times between packets.
    pub timings: Vec<Timing>,
    /// Transport messages whose length is known: payload in bytes.
    pub sizes: Vec<(u32, Verb, u64)>,
    /// Shares of NCCL messages: true for the share that starts a message.
    pub shares: Vec<(u32, bool)>,
}

impl Tracker {
    /// An empty tracker. `times` asks for times between packets and needs at least
    /// [`Depth::Envelopes`], because the paired connections show which response belongs to which
    /// request. `health` asks for health events.
    #[must_use]
    pub fn new(depth: Depth, times: bool, health: bool) -> Self {
        Self {
            depth,
            times: times && depth >= Depth::Envelopes,
            tracks_health: health,
            digests: false,
            is_overtaken: false,
            is_closed: false,
            index: HashTable::new(),
            hasher: SeededHasher::default(),
            connections: PagedVec::default(),
            message_states: PagedVec::default(),
            health: PagedVec::default(),
            timers: PagedVec::default(),
            observation_counts: ObservationCounts::default(),
            mtu_bytes: HashMap::default(),
            pairing: ConnectionPairing::default(),
            echoes: Echoes::default(),
            nccl: Nccl::default(),
            storage: StorageTracker::default(),
            messages: MessageTracker::new(depth, times && depth >= Depth::Envelopes),
            wireups: Vec::new(),
            connection_messages: Vec::new(),
            connection_messages_left_out: 0,
            cts_queues: Vec::new(),
            evicted: 0,
        }
    }

    /// Also emits the single MPI messages whose times are measured.
    pub const fn emit_messages(&mut self) {
        self.messages.emit_messages();
    }

    /// Also digests the packets of each connection, so that inputs can be compared.
    pub const fn digest_packets(&mut self) {
        self.digests = true;
    }

    /// Hash that identifies a message in all inputs: of its connection key and the PSN of its first
    /// packet.
    #[must_use]
    pub fn hash(&self, message: &RawMessage) -> u64 {
        let key = self.connections.get(message.connection as usize).map(|connection| connection.key);
        let of_connection = key.map_or(0, |key| constant_hash(&key));
        constant_hash(&(of_connection, message.psn))
    }

    /// Numbers of the connections with these keys. New connections are added; after
    /// [`Tracker::close`] a new key gives `None`.
    pub fn connections(&mut self, keys: &[ConnectionKey], numbers: &mut Vec<Option<u32>>) {
        numbers.clear();
        // All look-ups come first, so that their cache misses overlap.
        numbers.extend(keys.iter().map(|key| self.find(key)));
        for (key, number) in keys.iter().zip(numbers).filter(|(_, number)| number.is_none()) {
            *number = self.connection(key);
        }
    }

    /// Adds a connection. Returns false if it exists already.
    pub fn add_connection(&mut self, key: &ConnectionKey) -> bool {
        let before = self.tracked_connections();
        self.connection(key);
        self.tracked_connections() > before
    }

    /// From now on, tracks no new connections.
    pub const fn close(&mut self) {
        self.is_closed = true;
    }

    /// True if the tracker has so few connections that the processor caches hold their state.
    #[must_use]
    pub fn is_near(&self) -> bool {
        self.connections.len() <= NEAR_CONNECTIONS
    }

    /// Number of tracked connections.
    #[must_use]
    pub fn tracked_connections(&self) -> usize {
        self.connections.len()
    }

    /// Prefetches the state that [`Tracker::packet`] will need for the next packets. `known` are
    /// the connection numbers by slot.
    pub fn look_ahead(&self, packets: &[PacketRecord], known: &[Option<u32>], batch_bytes: &[u8]) {
        if self.is_near() && self.depth == Depth::Packets {
            return;
        }
        for packet in packets {
            // Most packets are requests, and the other ledgers lie next to the request ledger.
            let connection = known[packet.slot() as usize].and_then(|id| self.connections.get(id as usize));
            black_box(connection.map(|connection| connection.ledgers[0].high()));
            if self.depth > Depth::Packets {
                // Envelopes lie in the first cache lines of the payload.
                let payload = packet.payload(batch_bytes);
                black_box((payload.first().copied(), payload.get(40).copied()));
            }
        }
    }

    /// Takes the next packet, of connection `id`, and adds its events to `events`. `batch_bytes`
    /// are the bytes of its batch.
    #[expect(clippy::inline_always, reason = "the loop over the packets of one input keeps its state in registers")]
    #[inline(always)]
    pub fn packet(
        &mut self,
        packet: PacketRef<'_>,
        id: u32,
        batch_bytes: &[u8],
        events: &mut Events,
    ) -> PacketObservation {
        let opcode = packet.opcode();
        let role = PacketRole::of(opcode);
        let span = self.psns_of(packet, id);
        let mut shows_copy = false;
        // The index returned this number, so the connection exists.
        let connection = &mut self.connections[id as usize];
        let has_repeated_all = connection.restart == Restart::Possible && connection.has_repeated_all();
        connection.icrcs.add(packet.has_right_icrc(), packet.packet_flags().contains(PacketFlags::ICRC_BAD));
        let (number, occurrence) = if let Some(ledger) = connection.ledgers.get_mut(role as usize) {
            let entry = ledger.note(packet.psn(), span);
            if self.digests {
                let digest =
                    if entry.occurrence == 1 { &mut connection.packets } else { &mut connection.later_packets };
                digest.add((role as u32) << 24 | packet.psn().value());
            }
            match role {
                PacketRole::Request if entry.occurrence > 1 => {
                    connection.note_retransmission(entry, packet.time_ns);
                    let high = connection.ledgers[0].high().unwrap_or(entry.number);
                    let numbers = (entry.number, entry.number + i64::from(span.max(1)));
                    shows_copy = connection.request_order.observed_again(numbers, high, packet.time_ns);
                }
                PacketRole::Request => {
                    shows_copy = connection.request_order.new_request(packet.time_ns);
                    if connection.first.is_none() {
                        connection.first = i32::try_from(entry.number).ok();
                        connection.first_time_ns = packet.time_ns;
                    }
                    let is_read_or_atomic = opcode.is_read_request() || opcode.is_atomic();
                    if is_read_or_atomic {
                        connection.expected_responses = connection.expected_responses.saturating_add(span);
                    }
                    if is_read_or_atomic || packet.ack_requested() {
                        connection.note_asking(entry.number + i64::from(span.max(1)) - 1);
                    }
                }
                PacketRole::Acknowledge => {
                    connection.note_nak_at_end(entry, packet.nak().is_some());
                    if entry.occurrence == 1 {
                        connection.acknowledged(packet.record);
                    }
                }
                _ if entry.occurrence == 1 && !opcode.is_middle() => connection.acknowledged(packet.record),
                _ => {}
            }
            let occurrence = if connection.restart == Restart::No {
                entry.occurrence
            } else {
                connection.occurrence_after_restart((role, span), entry, has_repeated_all)
            };
            (entry.number, occurrence)
        } else {
            connection.others = connection.others.saturating_add(1);
            (0, connection.others)
        };
        let counts_message = opcode.ends_request();
        let seen = PacketObservation { connection: id, role, occurrence, counts_message, shows_copy };
        if self.tracks_health || self.depth > Depth::Packets {
            self.track_packet(packet, &seen, (number, span), batch_bytes, events);
        }
        seen
    }

    /// Sequence numbers that a packet takes.
    #[inline]
    fn psns_of(&mut self, packet: PacketRef<'_>, id: u32) -> u32 {
        let opcode = packet.opcode();
        if opcode.is_first() || opcode.is_middle() || opcode.is_read_request() {
            self.span(packet, id, opcode)
        } else {
            1
        }
    }

    /// As [`Self::packet`], for a packet that is late only because another input held a later one.
    fn overtaken_packet(
        &mut self,
        packet: PacketRef<'_>,
        id: u32,
        batch_bytes: &[u8],
        events: &mut Events,
    ) -> PacketObservation {
        self.is_overtaken = true;
        let seen = self.packet(packet, id, batch_bytes, events);
        self.is_overtaken = false;
        if seen.role == PacketRole::Request && seen.occurrence == 1 {
            let connection = &mut self.connections[id as usize];
            let number = connection.ledgers[0].number(packet.psn());
            connection.first = connection.first.map(|first| first.min(i32::try_from(number).unwrap_or(first)));
        }
        seen
    }

    /// Passes a packet on to health, times and messages.
    #[inline(never)]
    fn track_packet(
        &mut self,
        packet: PacketRef<'_>,
        seen: &PacketObservation,
        (number, span): (i64, u32),
        batch_bytes: &[u8],
        events: &mut Events,
    ) {
        let PacketObservation { connection: id, role, occurrence, .. } = *seen;
        let opcode = packet.opcode();
        let is_datagram = opcode.service() == Service::Ud;
        if self.tracks_health {
            self.track_health(packet, seen, number, span);
        }
        // Nothing acknowledges datagrams, so their second observations do not show different clocks.
        let is_repeated = || occurrence > 1 && self.connections[id as usize].restart != Restart::No;
        if self.times
            && occurrence <= 3
            && packet.kind() == TrafficKind::Data
            && (opcode.service() == Service::Rc || !is_repeated())
            && packet.time_ns != PacketRecord::NO_TIME
        {
            match role {
                PacketRole::Request | PacketRole::Response => {
                    self.time_observation(id, packet.record, role, (number, occurrence), &mut events.timings);
                }
                // The vote of the first observation comes first.
                PacketRole::Acknowledge if occurrence == 2 => {
                    self.time_response(id, packet.record, occurrence, &mut events.timings);
                }
                PacketRole::Acknowledge | PacketRole::Other => {}
            }
        }
        if occurrence != 1 || self.depth == Depth::Packets {
            return;
        }
        match packet.kind() {
            TrafficKind::Data => {}
            TrafficKind::Multicast => return requests::multicast(id, packet, batch_bytes, events),
            TrafficKind::Management => return,
        }
        if !is_datagram {
            // A request that asks for an ACK gets one with its PSN; READ requests and atomics get
            // data with theirs.
            let expects_response = packet.ack_requested() || opcode.is_read_request() || opcode.is_atomic();
            match role {
                PacketRole::Request if expects_response => {
                    self.pairing.request(packet.key, id, packet.psn().value());
                }
                PacketRole::Response | PacketRole::Acknowledge => {
                    let connections = &self.connections;
                    let last_sent = |candidate: u32| connections[candidate as usize].last_sent();
                    self.pairing.response(packet.key, id, packet.psn().value(), last_sent);
                    if self.times && packet.time_ns != PacketRecord::NO_TIME {
                        self.time_response(id, packet.record, occurrence, &mut events.timings);
                    }
                }
                PacketRole::Request | PacketRole::Other => {}
            }
        }
        match role {
            PacketRole::Request => self.request(id, packet, batch_bytes, number, events),
            PacketRole::Response if self.messages.reads(packet.pair()) => {
                self.messages.read_response(id, packet, self.pairing.partner(id));
            }
            PacketRole::Response | PacketRole::Acknowledge | PacketRole::Other => {}
        }
        if self.messages.has_ready() {
            self.time_messages(id, (role, number, packet.time_ns), events);
        }
    }

    /// Emits the messages that are still open. Returns the final state of all connections, ordered
    /// by number.
    pub fn finish(&mut self, events: &mut Events) -> Vec<ConnectionEnd> {
        let keys: Vec<ConnectionKey> = self.keys().collect();
        for (id, key) in (0..).zip(&keys).take(self.message_states.len()) {
            while let Some(message) = self.message_states[id as usize].assembly.oldest() {
                self.message_states[id as usize].note(&message);
                events.sizes.extend(requests::sized(id, &message));
                self.finished(id, (key.src, key.dst), &message, &[], events);
            }
        }
        let outcome = self.nccl.finish();
        self.nccl_messages(outcome, events);
        self.cts_queues.extend(self.nccl.queues(&keys));
        self.messages.finish();
        self.finish_storage_times(events);
        self.finish_times(&mut events.timings);
        // Messages that are still open have no time.
        events.messages.extend(self.messages.take());
        let observed = self.observed(&keys);
        let mut storage = self.storage.finish();
        let responders = self.responders_of_guesses();
        let end = |((id, key), health): ((u32, &ConnectionKey), Option<Box<HealthEvents>>)| {
            let connection = &self.connections[id as usize];
            // Coalesced ACKs always leave gaps, so a full ACK ledger matters only if an ACK older
            // than its runs arrives. Datagrams have one sequence for all destinations.
            let [requests, responses, acks] = &connection.ledgers;
            let overflowed = requests.overflowed() || responses.overflowed() || acks.observed_dropped_psn();
            let partner = |own: &CandidateVotes| {
                let is_refuted = own.is_refuted() && self.connections[own.candidate as usize].last_sent().is_some();
                (keys[own.candidate as usize].dest_qp, if is_refuted { 0 } else { u64::from(own.votes) })
            };
            let partners = [self.pairing.ballot(), self.echoes.ballot()].map(|ballot| ballot.all(id));
            let following = self.message_states.get(id as usize);
            ConnectionEnd {
                key: *key,
                missing: following.and_then(|following| following.missing.clone()),
                continuity: self.continuity(id, &responders),
                psn_spans: connection.psn_spans(),
                datagram_spans: following.map(|following| following.envelopes.datagram_spans()).unwrap_or_default(),
                // Datagrams count by the library's own sequence numbers, where it has them.
                overflowed: overflowed && !key.is_datagram()
                    || following.is_some_and(|following| following.envelopes.overflowed()),
                icrcs: connection.icrcs,
                copy_order: self.copy_order(id),
                partners: partners.map(|votes| votes.iter().map(partner).collect()),
                health,
                storage: storage.remove(&id),
            }
        };
        (0..).zip(&keys).zip(observed).map(end).collect()
    }

    /// Missing packets and messages of a connection, by its sequence numbers. Datagrams are left
    /// out: they have one sequence for all destinations. `responders` are those of
    /// [`Self::responders_of_guesses`].
    fn continuity(&self, id: u32, responders: &HashMap<u32, u32>) -> Continuity {
        let connection = &self.connections[id as usize];
        let numbered = !connection.key.is_datagram();
        let requests = &connection.ledgers[PacketRole::Request as usize];
        let missing_requests = if numbered { requests.missing_numbers() } else { 0 };
        let envelopes = self.message_states.get(id as usize).map(|following| &following.envelopes);
        let datagrams = envelopes.and_then(Envelopes::missing_datagrams);
        let health = self.health.get(id as usize);
        let [ack_requests, acks] = health.map(|health| [health.ack_requests, health.acks]).unwrap_or_default();
        let [naks_observed_once, naks_unobserved] = health.map(HealthTracker::naks_by_observations).unwrap_or_default();
        Continuity {
            missing_requests: missing_requests.saturating_sub(self.explained(id, missing_requests, responders)),
            uncertain: connection.guesses && missing_requests > 0 && self.depth == Depth::Packets
                || numbered && requests.jumps(),
            guessed_reads: connection.guesses,
            first_psn: connection.first.filter(|_| numbered).map(|number| psn(number.into())),
            expected_responses: u64::from(connection.expected_responses),
            last_msn: Some(connection.last_msn).filter(|msn| *msn != NO_MSN),
            restarted: connection.restart != Restart::No,
            missing_datagrams: datagrams,
            last_request: requests.high().map(psn).filter(|_| numbered),
            last_asking: Some(connection.last_asking).filter(|psn| numbered && *psn != NO_PSN),
            last_responses: connection.responded().map(|number| number.map(psn)),
            ack_requests,
            asking_requests: health.map_or(0, |health| health.asking_requests.into()),
            acks,
            naks_observed_once,
            naks_unobserved,
            psn_steps: if numbered { requests.steps() } else { PsnSteps::default() },
            datagrams_before: envelopes.map_or(0, Envelopes::datagrams_before),
            packets: connection.packets,
            later_packets: connection.later_packets,
            ..Continuity::default()
        }
    }

    /// Drops all connections at the end of an input, after [`Tracker::finish`].
    pub fn forget(&mut self) {
        *self = Self {
            wireups: std::mem::take(&mut self.wireups),
            connection_messages: std::mem::take(&mut self.connection_messages),
            connection_messages_left_out: self.connection_messages_left_out,
            cts_queues: std::mem::take(&mut self.cts_queues),
            evicted: self.evicted(),
            digests: self.digests,
            ..Self::new(self.depth, self.times, self.tracks_health)
        };
    }

    /// Keys of the connections, ordered by number from 0 on.
    pub fn keys(&self) -> impl Iterator<Item = ConnectionKey> + Clone + '_ {
        self.connections.iter().map(|connection| connection.key)
    }

    /// Messages that ibscope stopped tracking before their end, because too many were incomplete at
    /// a time.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        // If messages are tracked only for their times, an evicted message changes no number.
        let messages = if self.depth >= Depth::Messages { self.messages.evicted } else { 0 };
        self.evicted + messages
    }

    /// UCX's wire-up messages, in the order observed.
    #[must_use]
    pub fn wireups(&self) -> &[WorkerWireup] {
        &self.wireups
    }

    /// Connection messages of Open MPI (udcm) and MVAPICH2, in the order observed.
    #[must_use]
    pub fn connection_messages(&self) -> &[MpiConnectionMessage] {
        &self.connection_messages
    }

    /// Wire-up messages and connection messages beyond the limit, which were not kept.
    #[must_use]
    pub const fn connection_messages_left_out(&self) -> u64 {
        self.connection_messages_left_out
    }

    /// NCCL's queues of clear-to-send elements, each once per input.
    #[must_use]
    pub fn cts_queues(&self) -> &[CtsQueue] {
        &self.cts_queues
    }

    /// Adds a packet to the health of its connection. `number` and `span` are those of its ledger.
    #[inline]
    fn track_health(&mut self, packet: PacketRef<'_>, seen: &PacketObservation, number: i64, span: u32) {
        let ledgers = &self.connections[seen.connection as usize].ledgers;
        let health = &mut self.health[seen.connection as usize];
        if packet.packet_flags().is_any_set() {
            health.flagged(packet.packet_flags(), (seen.role, seen.occurrence));
        }
        let crowded = match seen.role {
            PacketRole::Request if packet.opcode().service().is_connected() => {
                if !self.is_overtaken {
                    health.request(number, span, seen.occurrence, packet.time_ns);
                }
                let opcode = packet.opcode();
                let asks = opcode.is_read_request() || opcode.is_atomic();
                if seen.occurrence != 1 {
                    if !asks && health.data.is_some() {
                        health.later_request(number, seen.occurrence);
                    }
                    return;
                }
                health.message_ends = health.message_ends.wrapping_add(u32::from(seen.counts_message));
                if !asks && packet.ack_requested() {
                    health.ack_requests.add(packet.psn().value());
                    health.asking_requests = health.asking_requests.wrapping_add(1);
                }
                if asks {
                    let responses = match packet.extension() {
                        _ if !opcode.is_read_request() => ResponseCount::Exact,
                        None => ResponseCount::Unknown,
                        Some(_) if self.mtu_bytes.contains_key(&packet.key.port_pair()) => ResponseCount::Exact,
                        Some(read_bytes) => ResponseCount::ByPathMtu(read_bytes),
                    };
                    health.expect_responses(number, span, responses);
                }
                ledgers[0].is_nearly_full(health.requests_compared()) || asks && health.requests_to_compare().is_some()
            }
            PacketRole::Response => {
                let opcode = packet.opcode();
                let starts = opcode.is_first() || opcode.is_only() || !opcode.is_read_response();
                health.response(number, seen.occurrence, (starts, self.is_overtaken));
                if !opcode.is_middle() && !self.is_overtaken {
                    health.check_msn(packet.record, seen.occurrence);
                }
                seen.occurrence == 1
                    && (ledgers[1].is_nearly_full(health.responses_compared())
                        || health.responses_to_compare().is_some())
            }
            PacketRole::Acknowledge => {
                health.acknowledge(number, seen.occurrence, packet.record);
                if !self.is_overtaken {
                    health.check_msn(packet.record, seen.occurrence);
                }
                if seen.occurrence == 1 && packet.nak().is_some_and(|aeth| aeth >> 24 == NAK_SEQUENCE) {
                    self.note_nak(seen.connection, packet.psn());
                }
                return;
            }
            PacketRole::Other => return self.slow_down(packet),
            PacketRole::Request => return,
        };
        if crowded {
            self.reconcile_midway(seen.connection, seen.role);
        }
    }

    /// Counts a NAK (PSN sequence error) by the observations of the request that it asks for.
    #[cold]
    fn note_nak(&mut self, id: u32, psn: Psn) {
        let Some(request) = self.pairing.partner(id) else { return };
        let ledger = &self.connections[request as usize].ledgers[0];
        let observations = ledger.observations(psn);
        if observations == Some(0) {
            self.health[request as usize].note_request_by_nak(ledger.number(psn));
        }
        self.health[id as usize].note_nak(observations);
    }

    /// The connection with this key, added if it is new; `None` if it is new after
    /// [`Tracker::close`].
    #[cold]
    fn connection(&mut self, key: &ConnectionKey) -> Option<u32> {
        if let Some(id) = self.find(key) {
            return Some(id);
        }
        if self.is_closed {
            return None;
        }
        let others = self.connections.len();
        let id = others as u32;
        self.connections.push(Connection::new(*key, others));
        if self.depth > Depth::Packets {
            self.message_states.push(MessageState::default());
        }
        if self.tracks_health {
            self.health.push(HealthTracker::default());
        }
        if self.times {
            self.timers.push(ConnectionTimer::new(self.observation_counts.room()));
        }
        let Self { index, hasher, connections, .. } = self;
        let hash = |id: &u32| hasher.hash_one(connections[*id as usize].key);
        index.insert_unique(hasher.hash_one(key), id, hash);
        Some(id)
    }

    /// The connection with this key, if it is tracked.
    #[inline]
    fn find(&self, key: &ConnectionKey) -> Option<u32> {
        self.index.find(self.hasher.hash_one(key), |id| self.connections[*id as usize].key == *key).copied()
    }

    /// Sequence numbers that a packet takes. Learns the path MTU from First and Middle packets.
    fn span(&mut self, packet: PacketRef<'_>, id: u32, opcode: Opcode) -> u32 {
        if opcode.is_first() || opcode.is_middle() {
            let mtu = self.mtu_bytes.entry(packet.key.port_pair()).or_default();
            *mtu = (*mtu).max(packet.payload_bytes);
        } else if opcode.is_read_request() {
            let mtu = self.mtu_bytes.get(&packet.key.port_pair()).copied();
            let read_bytes = packet.extension();
            self.connections[id as usize].guesses |= mtu.is_none() || read_bytes.is_none();
            let mtu = mtu.map_or(LARGEST_MTU_BYTES, |mtu| u32::from(mtu).max(1));
            return read_bytes.map_or(1, |bytes| bytes.div_ceil(mtu).max(1));
        }
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::PacketFields;
    use ibscope_parsers::{Lid, Qpn};

    /// The occurrences of SENDs with these PSNs, a millisecond apart, from these times (in seconds) on.
    fn occurrences(parts: &[(i64, &[u32])]) -> Vec<Vec<u32>> {
        let [src, dst] = [1, 2].map(|lid| Endpoint::from_lid(Lid(lid)));
        let key =
            ConnectionKey { src, dst, kind: TrafficKind::Data, service: 0, dest_qp: Qpn::new(7), src_qp: Qpn::new(0) };
        let mut tracker = Tracker::new(Depth::Packets, false, false);
        let id = tracker.connection(&key).unwrap();
        let mut occurrence = |(time_ms, psn): (i64, &u32)| {
            let fields = PacketFields {
                time_ns: time_ms * 1_000_000,
                opcode: Opcode(4),
                psn: Psn::new(*psn),
                ..PacketFields::default()
            };
            let packet = PacketRef { key: &key, record: &PacketRecord::new(fields) };
            tracker.packet(packet, id, &[], &mut Events::default()).occurrence
        };
        parts.iter().map(|(start_s, psns)| (start_s * 1000..).zip(*psns).map(&mut occurrence).collect()).collect()
    }

    #[test]
    fn packets_of_a_second_connection_are_no_first_observations() {
        let found = occurrences(&[(0, &[5, 6, 7, 8]), (2, &[5, 6, 7, 8, 9, 10])]);
        assert_eq!(found[1], [2, 2, 2, 2, 3, 3]);
        // The first connection lost a packet.
        let found = occurrences(&[(0, &[5, 7, 8]), (2, &[5, 6, 7, 8, 9])]);
        assert_eq!(found[1], [2, 3, 2, 2, 3]);
        // Two ports.
        let found = occurrences(&[(0, &[5, 5, 6, 6, 7, 7]), (2, &[5, 5, 6, 6, 7, 7, 8, 8])]);
        assert_eq!(found[1], [5, 6, 5, 6, 5, 6, 3, 4]);
    }

    /// The clock of the second port is 2 s ahead.
    #[test]
    fn late_mirror_copies_are_second_observations() {
        let found = occurrences(&[(0, &[5, 6, 7, 8]), (2, &[5, 6, 9, 7, 8, 10, 9]), (4, &[10, 11, 11])]);
        assert_eq!(found, [vec![1; 4], vec![2, 2, 1, 2, 2, 1, 2], vec![2, 1, 2]]);
    }
}
