//! Packets of one input, in file order -> what each is to its connection, and the messages.
//!
//! A tracker sees all traffic between the pairs of endpoints dealt to it, so many of them run side by side and share
//! nothing. It keeps state per connection and direction: which sequence numbers were seen how often (`ledger`), which
//! transport messages are open (`assembly`), and what their starts have shown (`envelopes`); and per tracker what goes from one
//! connection to another: answers that pair them (`pairing`, `echoes`), the receives of NCCL (`nccl`), and, where single messages are asked
//! for, MPI messages in several transport messages (`messages`). What goes wrong is counted on the way (`health`), and what the capture
//! missed is told when requests are held against answers (`completeness`). It does not decide whether a packet seen twice is a mirror copy or a
//! repeat: that is known only when the whole input has been seen (`reduce`).

mod arrivals;
mod assembly;
mod ballot;
mod cm;
mod completeness;
mod echoes;
mod envelopes;
mod health;
mod introductions;
mod ledger;
mod messages;
mod nccl;
mod pairing;
mod rails;
mod reaction;
mod reads;
mod rendezvous;
mod requests;
mod timing;
mod waiting;

pub use cm::connection_management;
pub use rails::assign_shares;

use crate::model::health::Observed;
use crate::model::{
    ConnectionEnd, ConnectionKey, Continuity, CtsQueue, HashMap, Introduction, Kind, Missing, MpiMessage, Packet,
    PacketRecord, Paged, RawMessage, Seeded, Seen, Start, Timing, Turn, Verb, Wireup, constant_hash,
};
use assembly::Assembly;
use echoes::Echoes;
use envelopes::Envelopes;
use hashbrown::HashTable;
use health::Health;
use ibscope_parsers::Endpoint;
use ibscope_parsers::ib::{Opcode, Service};
use ledger::Ledger;
use messages::Messages;
use nccl::Nccl;
use pairing::Pairing;
use std::hash::BuildHasher as _;
use std::hint::black_box;
use timing::{Clock, Sights};

/// Path MTU that is assumed for the span of a READ request while none is known: the largest, so that a span is never
/// longer than the truth.
const LARGEST_MTU_BYTES: u32 = 4096;
/// Wire-up messages that are kept per tracker, and introductions; a connection needs a few.
const MAX_WIREUPS: usize = 1 << 16;

/// Connections of a tracker whose state lies in the caches of a processor: half a kibibyte each, and there are 32 trackers.
const NEAR_CONNECTIONS: usize = 64;

/// What to look for beyond packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// Packets and transport messages alone.
    Packets,
    /// MPI envelopes, as sums.
    Envelopes,
    /// Single MPI messages.
    Messages,
    /// Single messages, those of the transport that belong to no MPI message too.
    TransportMessages,
}

/// State of the connections between some pairs of endpoints, in one input.
#[derive(Debug)]
pub struct Tracker {
    depth: Depth,
    /// Times between packets are measured.
    times: bool,
    /// What goes wrong is followed.
    follows_health: bool,
    /// No connection is followed but those that are known.
    is_closed: bool,
    /// Numbers of the connections, by their keys.
    index: HashTable<u32>,
    hasher: Seeded,
    connections: Paged<Connection>,
    /// As many of each where they are asked for: of messages, of what goes wrong, of times.
    following: Paged<Following>,
    health: Paged<Health>,
    clocks: Paged<Clock>,
    sights: Sights,
    /// Largest payload of a First or Middle packet between two endpoints (in order): the path MTU.
    mtu_bytes: HashMap<(Endpoint, Endpoint), u16>,
    pairing: Pairing,
    echoes: Echoes,
    nccl: Nccl,
    messages: Messages,
    wireups: Vec<Wireup>,
    introductions: Vec<Introduction>,
    /// Wire-up messages and introductions that there was no room for.
    introductions_left_out: u64,
    cts_queues: Vec<CtsQueue>,
    /// Messages given up before connections were.
    evicted: u64,
}

/// What every packet needs of its connection.
#[derive(Debug)]
struct Connection {
    key: ConnectionKey,
    /// Unnumbered packets.
    others: u32,
    /// Response packets that its READ requests ask for; at most so many are counted.
    asked_packets: u32,
    /// Latest message sequence number of its acknowledgements; [`NO_MSN`] before the first.
    last_msn: u32,
    /// A READ request was seen before the path MTU was known.
    guesses: bool,
    /// Its first request came again long after it was acknowledged.
    restarted: bool,
    /// Number of the first request; the time of the first packet.
    first: Option<i32>,
    first_time_ns: i64,
    ledgers: [Ledger; 3],
}

/// No acknowledgement yet: message sequence numbers have 24 bits.
const NO_MSN: u32 = u32::MAX;
const MSN_MASK: u32 = 0xFF_FFFF;
/// No transport waits so long before it sends a request again: 4.096 us x 2^31 is the longest timer in theory, and
/// the retry limit of 7 with the usual 2^14 to 2^18 ends below.
const RESTART_NS: i64 = 1_000_000_000;

impl Connection {
    fn new(key: ConnectionKey, others: usize) -> Self {
        Self {
            key,
            others: 0,
            asked_packets: 0,
            last_msn: NO_MSN,
            guesses: false,
            restarted: false,
            first: None,
            first_time_ns: PacketRecord::NO_TIME,
            ledgers: [Ledger::default(), Ledger::default(), Ledger::of_acks(others)],
        }
    }

    /// Takes the message sequence number of an acknowledgement. Copies lag behind, so the latest one counts.
    #[inline]
    const fn acknowledged(&mut self, aeth: u32) {
        let msn = aeth & MSN_MASK;
        if self.last_msn == NO_MSN || (msn.wrapping_sub(self.last_msn) & MSN_MASK) < (MSN_MASK >> 1) {
            self.last_msn = msn;
        }
    }

    /// A request that was seen before. The first one of all, acknowledged and after a second: it belongs to another
    /// connection under the same numbers.
    #[cold]
    fn seen_again(&mut self, number: i64, time_ns: i64) {
        let Some(first) = self.first else { return };
        let first = i64::from(first);
        let high = self.ledgers[0].high().unwrap_or(first);
        self.restarted |= number == first && high > first && time_ns.saturating_sub(self.first_time_ns) >= RESTART_NS;
    }
}

/// The messages of a connection.
#[derive(Debug, Default)]
struct Following {
    assembly: Assembly,
    envelopes: Envelopes,
    /// Most connections miss nothing.
    missing: Option<Box<Missing>>,
}

impl Following {
    fn missing(&mut self) -> &mut Missing {
        self.missing.get_or_insert_default()
    }
}

/// What packets showed and completed, with the numbers of their connections.
#[derive(Debug, Default)]
pub struct Events {
    /// Starts of messages that have not been seen before.
    pub starts: Vec<(u32, Start)>,
    /// MPI messages whose length is now known.
    pub mpi: Vec<(u32, MpiMessage)>,
    /// Messages that are complete, or that nothing more will come of.
    pub messages: Vec<RawMessage>,
    /// Times between packets.
    pub timings: Vec<Timing>,
    /// Transport messages whose length is known, in bytes of payload.
    pub sizes: Vec<(u32, Verb, u64)>,
    /// Shares of NCCL's messages: true where they begin a message.
    pub shares: Vec<(u32, bool)>,
}

impl Tracker {
    /// A tracker that has seen nothing. `times` asks for the times between packets, which take [`Depth::Envelopes`] at least: the
    /// pairs of connections show which packet answers which. `health` asks for what goes wrong.
    #[must_use]
    pub fn new(depth: Depth, times: bool, health: bool) -> Self {
        Self {
            depth,
            times: times && depth >= Depth::Envelopes,
            follows_health: health,
            is_closed: false,
            index: HashTable::new(),
            hasher: Seeded::default(),
            connections: Paged::default(),
            following: Paged::default(),
            health: Paged::default(),
            clocks: Paged::default(),
            sights: Sights::default(),
            mtu_bytes: HashMap::default(),
            pairing: Pairing::default(),
            echoes: Echoes::default(),
            nccl: Nccl::default(),
            messages: Messages::new(depth, times && depth >= Depth::Envelopes),
            wireups: Vec::new(),
            introductions: Vec::new(),
            introductions_left_out: 0,
            cts_queues: Vec::new(),
            evicted: 0,
        }
    }

    /// Asks for the single MPI messages that times are measured of.
    pub const fn give_messages(&mut self) {
        self.messages.give();
    }

    /// A number that stands for a message in all inputs alike: one of its connection and the PSN of its first packet.
    #[must_use]
    pub fn hash(&self, message: &RawMessage) -> u64 {
        let key = self.connections.get(message.connection as usize).map(|connection| connection.key);
        let of_connection = key.map_or(0, |key| constant_hash(&key));
        constant_hash(&(of_connection, message.psn))
    }

    /// The numbers of these connections, which are made where they are new; `None` for new ones after [`Tracker::close`].
    pub fn connections(&mut self, keys: &[ConnectionKey], numbers: &mut Vec<Option<u32>>) {
        numbers.clear();
        // A processor waits for memory once for all of them and not for each.
        numbers.extend(keys.iter().map(|key| self.find(key)));
        for (key, number) in keys.iter().zip(numbers).filter(|(_, number)| number.is_none()) {
            *number = self.connection(key);
        }
    }

    /// Makes a connection. False where it is known.
    pub fn admit(&mut self, key: &ConnectionKey) -> bool {
        let before = self.followed();
        self.connection(key);
        self.followed() > before
    }

    /// From now on no connection is followed but those that are known.
    pub const fn close(&mut self) {
        self.is_closed = true;
    }

    /// True with so few connections that the processor's caches hold all of their state.
    #[must_use]
    pub fn is_near(&self) -> bool {
        self.connections.len() <= NEAR_CONNECTIONS
    }

    /// Connections that are followed.
    #[must_use]
    pub fn followed(&self) -> usize {
        self.connections.len()
    }

    /// Touches what [`Tracker::packet`] will need of packets that come next, as [`Tracker::connections`] does. `known` are the connections by slot.
    pub fn look_ahead(&self, packets: &[PacketRecord], known: &[Option<u32>], batch_bytes: &[u8]) {
        if self.is_near() && self.depth == Depth::Packets {
            return;
        }
        for packet in packets {
            // Requests are most of what comes, and the other ledgers are next to theirs.
            let connection = known[packet.slot() as usize].and_then(|id| self.connections.get(id as usize));
            black_box(connection.map(|connection| connection.ledgers[0].high()));
            if self.depth > Depth::Packets {
                // Envelopes lie in the first lines of the payload.
                let payload = packet.payload(batch_bytes);
                black_box((payload.first().copied(), payload.get(40).copied()));
            }
        }
    }

    /// Takes the next packet, of the connection with this number; `batch_bytes` are those of its batch; what it shows is added to `events`.
    #[inline]
    pub fn packet(&mut self, packet: Packet<'_>, id: u32, batch_bytes: &[u8], events: &mut Events) -> Seen {
        let opcode = packet.opcode();
        let turn = Turn::of(opcode);
        let span = if opcode.is_first() || opcode.is_middle() || opcode.is_read_request() {
            self.span(packet, id, opcode)
        } else {
            1
        };
        // The index has given this number.
        let connection = &mut self.connections[id as usize];
        let (number, occurrence) = if let Some(ledger) = connection.ledgers.get_mut(turn as usize) {
            let entry = ledger.note(packet.psn(), span);
            match turn {
                Turn::Request if entry.occurrence > 1 => connection.seen_again(entry.number, packet.time_ns),
                Turn::Request => {
                    if connection.first.is_none() {
                        connection.first = i32::try_from(entry.number).ok();
                        connection.first_time_ns = packet.time_ns;
                    }
                    if opcode.is_read_request() {
                        connection.asked_packets = connection.asked_packets.saturating_add(span);
                    }
                }
                _ if entry.occurrence == 1 && !opcode.is_middle() => connection.acknowledged(packet.extension),
                _ => {}
            }
            (entry.number, entry.occurrence)
        } else {
            connection.others = connection.others.saturating_add(1);
            (0, connection.others)
        };
        let counts_message = opcode.is_request() && !(opcode.is_first() || opcode.is_middle());
        let seen = Seen { connection: id, turn, occurrence, counts_message };
        if self.follows_health || self.depth > Depth::Packets {
            self.follow(packet, &seen, (number, span), batch_bytes, events);
        }
        seen
    }

    /// What a packet is beyond its number: to the health of its connection, to times and to messages.
    #[inline(never)]
    fn follow(
        &mut self,
        packet: Packet<'_>,
        seen: &Seen,
        (number, span): (i64, u32),
        batch_bytes: &[u8],
        events: &mut Events,
    ) {
        let Seen { connection: id, turn, occurrence, .. } = *seen;
        let opcode = packet.opcode();
        let is_datagram = opcode.service() == Service::Ud;
        if self.follows_health {
            self.health(packet, seen, number, span);
        }
        if self.times && occurrence <= 2 && packet.kind() == Kind::Data && packet.time_ns != PacketRecord::NO_TIME {
            if matches!(turn, Turn::Request | Turn::Response) {
                self.time_sight(id, packet.record, turn, (number, occurrence), &mut events.timings);
            }
            // What is seen for the first time votes first.
            if occurrence == 2 && matches!(turn, Turn::Response | Turn::Acknowledge) && !is_datagram {
                self.time_answer(id, packet.record, occurrence, &mut events.timings);
            }
        }
        if occurrence != 1 || self.depth == Depth::Packets || packet.kind() != Kind::Data {
            return;
        }
        if !is_datagram {
            // What asks for an ACK gets one with its PSN; READ requests and atomics get data with theirs.
            let wants_answer = packet.ack_requested() || opcode.is_read_request() || opcode.is_atomic();
            match turn {
                Turn::Request if wants_answer => {
                    self.pairing.request(packet.key, id, packet.psn().value());
                }
                Turn::Response | Turn::Acknowledge => {
                    self.pairing.answer(packet.key, id, packet.psn().value());
                    if self.times && packet.time_ns != PacketRecord::NO_TIME {
                        self.time_answer(id, packet.record, occurrence, &mut events.timings);
                    }
                }
                Turn::Request | Turn::Other => {}
            }
        }
        match turn {
            Turn::Request => self.request(id, packet, batch_bytes, number, events),
            Turn::Response if self.messages.reads(packet.pair()) => {
                self.messages.read_response(id, packet, self.pairing.partner(id));
            }
            Turn::Response | Turn::Acknowledge | Turn::Other => {}
        }
        if self.messages.has_ready() {
            self.time_messages(id, turn, number, events);
        }
    }

    /// Gives out what was still open, and what is left to say of the connections, in the order of their numbers.
    pub fn finish(&mut self, events: &mut Events) -> Vec<ConnectionEnd> {
        let keys: Vec<ConnectionKey> = self.keys().collect();
        for (id, key) in (0..).zip(&keys).take(self.following.len()) {
            while let Some(message) = self.following[id as usize].assembly.oldest() {
                self.following[id as usize].note(&message);
                events.sizes.extend(requests::sized(id, &message));
                self.finished(id, (key.src, key.dst), &message, &[], events);
            }
        }
        let outcome = self.nccl.finish();
        self.nccl_messages(outcome, events);
        self.cts_queues.extend(self.nccl.queues(&keys));
        self.messages.finish();
        // Nothing that is still open has a time.
        events.messages.extend(self.messages.take());
        let observed = self.observed(&keys);
        let end = |((id, key), health): ((u32, &ConnectionKey), Option<Box<Observed>>)| {
            let connection = &self.connections[id as usize];
            // Coalesced ACKs leave holes by nature, and so do datagrams (one sequence for all destinations).
            let [requests, responses, _] = &connection.ledgers;
            let overflowed = requests.overflowed() || responses.overflowed();
            let partner = |&(partner, votes): &(u32, u32)| (keys[partner as usize].dest_qp, u64::from(votes));
            let partners = [self.pairing.ballot(), self.echoes.ballot()].map(|ballot| ballot.votes(id));
            let following = self.following.get(id as usize);
            ConnectionEnd {
                key: *key,
                missing: following.and_then(|following| following.missing.as_deref()).copied().unwrap_or_default(),
                continuity: self.continuity(id),
                // Datagrams are known by the library's own numbers, where they have some.
                overflowed: overflowed && !key.is_datagram()
                    || following.is_some_and(|following| following.envelopes.overflowed()),
                partners: partners.map(|votes| votes.iter().map(partner).collect()),
                health,
            }
        };
        (0..).zip(&keys).zip(observed).map(end).collect()
    }

    /// What sequence numbers show to be missing of a connection. Datagrams have one sequence for all destinations.
    fn continuity(&self, id: u32) -> Continuity {
        let connection = &self.connections[id as usize];
        let numbered = !connection.key.is_datagram();
        let missing_requests = if numbered { connection.ledgers[0].never_seen() } else { 0 };
        let envelopes = self.following.get(id as usize).map(|following| &following.envelopes);
        let datagrams = envelopes.and_then(Envelopes::missing_datagrams);
        Continuity {
            missing_requests: missing_requests.saturating_sub(self.explained(id, missing_requests)),
            uncertain: connection.guesses && missing_requests > 0 && self.depth == Depth::Packets
                || numbered && connection.ledgers[0].jumps(),
            first_psn: connection.first.filter(|_| numbered).map(|number| number as u32 & MSN_MASK),
            asked_packets: u64::from(connection.asked_packets),
            last_msn: Some(connection.last_msn).filter(|msn| *msn != NO_MSN),
            restarted: connection.restarted,
            missing_datagrams: datagrams,
            datagrams_before: envelopes.map_or(0, Envelopes::datagrams_before),
            ..Continuity::default()
        }
    }

    /// Gives up all connections: an input has ended, and what is left of them has been said.
    pub fn forget(&mut self) {
        *self = Self {
            wireups: std::mem::take(&mut self.wireups),
            introductions: std::mem::take(&mut self.introductions),
            introductions_left_out: self.introductions_left_out,
            cts_queues: std::mem::take(&mut self.cts_queues),
            evicted: self.evicted(),
            ..Self::new(self.depth, self.times, self.follows_health)
        };
    }

    /// The connections so far, in the order of their numbers, which go from 0 on.
    pub fn keys(&self) -> impl Iterator<Item = ConnectionKey> + Clone + '_ {
        self.connections.iter().map(|connection| connection.key)
    }

    /// Messages that were given up because too many were open, beside those of single connections.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        // Of those that are followed for their times none is missed.
        let messages = if self.depth >= Depth::Messages { self.messages.evicted } else { 0 };
        self.evicted + messages
    }

    /// UCX's wire-up messages, in the order seen.
    #[must_use]
    pub fn wireups(&self) -> &[Wireup] {
        &self.wireups
    }

    /// Introductions of processes, in the order seen.
    #[must_use]
    pub fn introductions(&self) -> &[Introduction] {
        &self.introductions
    }

    /// Wire-up messages and introductions that were not kept.
    #[must_use]
    pub const fn introductions_left_out(&self) -> u64 {
        self.introductions_left_out
    }

    /// NCCL's queues of clear-to-send elements, each once per input.
    #[must_use]
    pub fn cts_queues(&self) -> &[CtsQueue] {
        &self.cts_queues
    }

    /// What the packet says of its connection's health. `number` and `span` are those of the ledger.
    #[inline]
    fn health(&mut self, packet: Packet<'_>, seen: &Seen, number: i64, span: u32) {
        let ledgers = &self.connections[seen.connection as usize].ledgers;
        let health = &mut self.health[seen.connection as usize];
        if packet.marks().any() {
            health.marked(packet.marks(), seen.occurrence);
        }
        let crowded = match seen.turn {
            Turn::Request if is_connected(packet.opcode().service()) => {
                health.request(number, span, seen.occurrence, packet.time_ns);
                if seen.occurrence != 1 {
                    return;
                }
                let opcode = packet.opcode();
                let asks = opcode.is_read_request() || opcode.is_atomic();
                if asks {
                    let guessed = opcode.is_read_request() && !self.mtu_bytes.contains_key(&in_order(packet));
                    health.ask(number, span, guessed.then_some(packet.extension));
                }
                ledgers[0].crowded(health.done()) || asks && health.crowded().is_some()
            }
            Turn::Response => {
                let opcode = packet.opcode();
                let starts = opcode.is_first() || opcode.is_only() || !opcode.is_read_response();
                health.response(number, seen.occurrence, starts);
                seen.occurrence == 1 && (ledgers[1].crowded(health.used()) || health.crowded_starts().is_some())
            }
            Turn::Acknowledge => {
                health.acknowledge(number, packet.extension);
                return;
            }
            Turn::Other => return self.slow_down(packet),
            Turn::Request => return,
        };
        if crowded {
            self.reconcile_midway(seen.connection, seen.turn);
        }
    }

    /// The connection with this key, made where it is new.
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
            self.following.push(Following::default());
        }
        if self.follows_health {
            self.health.push(Health::default());
        }
        if self.times {
            self.clocks.push(Clock::new(self.sights.room()));
        }
        let Self { index, hasher, connections, .. } = self;
        let hash = |id: &u32| hasher.hash_one(connections[*id as usize].key);
        index.insert_unique(hasher.hash_one(key), id, hash);
        Some(id)
    }

    /// The connection with this key, if it is known.
    #[inline]
    fn find(&self, key: &ConnectionKey) -> Option<u32> {
        self.index.find(self.hasher.hash_one(key), |id| self.connections[*id as usize].key == *key).copied()
    }

    /// Sequence numbers that the packet takes, and the path MTU as it becomes known.
    fn span(&mut self, packet: Packet<'_>, id: u32, opcode: Opcode) -> u32 {
        if opcode.is_first() || opcode.is_middle() {
            let mtu = self.mtu_bytes.entry(in_order(packet)).or_default();
            *mtu = (*mtu).max(packet.payload_bytes);
        } else if opcode.is_read_request() {
            let known = self.mtu_bytes.get(&in_order(packet)).copied();
            self.connections[id as usize].guesses |= known.is_none();
            let mtu = known.map_or(LARGEST_MTU_BYTES, |mtu| u32::from(mtu).max(1));
            return packet.extension.div_ceil(mtu).max(1);
        }
        1
    }
}

/// Services whose requests run upwards by one number per connection: RC, UC, XRC.
const fn is_connected(service: Service) -> bool {
    matches!(service, Service::Rc | Service::Uc | Service::Xrc)
}

fn in_order(packet: Packet<'_>) -> (Endpoint, Endpoint) {
    (packet.key.src.min(packet.key.dst), packet.key.src.max(packet.key.dst))
}
