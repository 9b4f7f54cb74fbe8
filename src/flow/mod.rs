//! Packets of one input, in file order -> what each is to its connection, and the MPI messages.
//!
//! A tracker sees all traffic between the pairs of endpoints dealt to it, so many of them run side by side and share
//! nothing. It keeps state per connection and direction: which sequence numbers were seen how often (`ledger`), and
//! which messages are open (`heads`). It does not decide whether a packet seen twice is a mirror copy or a repeat: that
//! is known only when the whole input has been seen (`reduce`).

mod cm;
mod heads;
mod ledger;
mod pairing;
mod wireup;

pub use cm::connection_management;

use crate::model::{ConnectionKey, Kind, MpiMessage, PacketRecord, Seen, Start, Turn, Wireup};
use foldhash::fast::FixedState;
use heads::Heads;
use ibscope_parsers::ib::{Opcode, Service};
use ibscope_parsers::{Endpoint, Qpn};
use ledger::Ledger;
use pairing::Pairing;
use std::collections::HashMap;

/// Path MTU that is assumed for the span of a READ request while none is known: the largest, so that a span is never
/// longer than the truth.
const LARGEST_MTU_BYTES: u32 = 4096;
/// Wire-up messages that are kept per tracker; a connection needs a few.
const MAX_WIREUPS: usize = 1 << 16;

/// State of the connections between some pairs of endpoints, in one input.
#[derive(Debug, Default)]
pub struct Tracker {
    index: HashMap<ConnectionKey, u32, FixedState>,
    connections: Vec<Connection>,
    /// Largest payload of a First or Middle packet between two endpoints (in order): the path MTU.
    mtu_bytes: HashMap<(Endpoint, Endpoint), u16, FixedState>,
    pairing: Pairing,
    wireups: Vec<Wireup>,
}

/// What is left to say of a connection when its input has ended.
#[derive(Clone, Debug)]
pub struct ConnectionEnd {
    /// The connection.
    pub key: ConnectionKey,
    /// MPI messages that were begun and not ended.
    pub mpi_incomplete: u64,
    /// Its ledgers overflowed.
    pub overflowed: bool,
    /// Votes for the sender's queue pair.
    pub partners: Vec<(Qpn, u64)>,
}

#[derive(Debug, Default)]
struct Connection {
    ledgers: [Ledger; 3],
    /// Unnumbered packets.
    others: u32,
    heads: Heads,
}

/// What one packet is, and what it completes.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// The packet's place in its connection.
    pub seen: Seen,
    /// What the start of a message showed, where the packet is one and has not been seen before.
    pub start: Option<Start>,
    /// An MPI message whose length is now known.
    pub message: Option<MpiMessage>,
}

impl Tracker {
    /// Takes the next packet. `batch_bytes` are those of its batch; `read_mpi` asks for envelopes.
    pub fn packet(&mut self, packet: &PacketRecord, batch_bytes: &[u8], read_mpi: bool) -> Outcome {
        let opcode = packet.opcode();
        let key = key(packet, opcode);
        let id = self.connection(key);
        let turn = turn(opcode);
        let span = self.span(packet, opcode);
        // `connection` has just given this number.
        let connection = &mut self.connections[id as usize];
        let (number, occurrence) = if let Some(ledger) = connection.ledgers.get_mut(turn as usize) {
            let entry = ledger.note(packet.psn(), span);
            (entry.number, entry.occurrence)
        } else {
            connection.others = connection.others.saturating_add(1);
            (0, connection.others)
        };
        let counts_message = opcode.is_request() && !(opcode.is_first() || opcode.is_middle());
        let mut outcome =
            Outcome { seen: Seen { connection: id, turn, occurrence, counts_message }, start: None, message: None };
        if !read_mpi || packet.kind() != Kind::Data {
            return outcome;
        }
        if occurrence == 1 && !key.is_datagram() {
            // What asks for an ACK gets one with its PSN; READ requests and atomics get data with theirs.
            let wants_answer = packet.ack_requested() || opcode.is_read_request() || opcode.is_atomic();
            match turn {
                Turn::Request if wants_answer => self.pairing.request(&key, id, packet.psn().value()),
                Turn::Response | Turn::Acknowledge => self.pairing.answer(&key, id, packet.psn().value()),
                Turn::Request | Turn::Other => {}
            }
        }
        if turn == Turn::Request {
            if occurrence == 1 {
                (outcome.start, outcome.message) = connection.heads.request(packet, batch_bytes, number);
                if let Some(Start::Recognised(form, None)) = outcome.start
                    && self.wireups.len() < MAX_WIREUPS
                {
                    self.wireups.extend(wireup::read(form, packet, batch_bytes));
                }
            }
            if opcode.is_last() && opcode.is_send() {
                outcome.message = connection.heads.last(packet, number);
            }
        }
        outcome
    }

    /// The connections in the order of their numbers.
    pub fn finish(&self) -> Vec<ConnectionEnd> {
        let mut keys: Vec<(u32, ConnectionKey)> = self.index.iter().map(|(key, id)| (*id, *key)).collect();
        keys.sort_unstable_by_key(|(id, _)| *id);
        let end = |(id, key): &(u32, ConnectionKey)| {
            let connection = &self.connections[*id as usize];
            // Coalesced ACKs leave holes by nature, and so do datagrams (one sequence for all destinations).
            let [requests, responses, _] = &connection.ledgers;
            let overflowed = requests.overflowed() || responses.overflowed();
            let partner = |&(partner, votes): &(u32, u32)| (keys[partner as usize].1.dest_qp, u64::from(votes));
            ConnectionEnd {
                key: *key,
                mpi_incomplete: connection.heads.incomplete(),
                overflowed: overflowed && !key.is_datagram(),
                partners: self.pairing.votes(*id).iter().map(partner).collect(),
            }
        };
        keys.iter().map(end).collect()
    }

    /// UCX's wire-up messages, in the order seen.
    #[must_use]
    pub fn wireups(&self) -> &[Wireup] {
        &self.wireups
    }

    fn connection(&mut self, key: ConnectionKey) -> u32 {
        // Looked up first: nearly every packet's connection is known, and a look-up is much cheaper than an entry.
        if let Some(id) = self.index.get(&key) {
            return *id;
        }
        let id = self.connections.len() as u32;
        self.connections.push(Connection::default());
        self.index.insert(key, id);
        id
    }

    /// Sequence numbers that the packet takes, and the path MTU as it becomes known.
    fn span(&mut self, packet: &PacketRecord, opcode: Opcode) -> u32 {
        if opcode.is_first() || opcode.is_middle() {
            let mtu = self.mtu_bytes.entry(in_order(packet)).or_default();
            *mtu = (*mtu).max(packet.payload_bytes);
        } else if opcode.is_read_request() {
            let mtu = self.mtu_bytes.get(&in_order(packet)).map_or(LARGEST_MTU_BYTES, |&mtu| u32::from(mtu).max(1));
            return packet.extension.div_ceil(mtu).max(1);
        }
        1
    }
}

fn in_order(packet: &PacketRecord) -> (Endpoint, Endpoint) {
    (packet.src.min(packet.dst), packet.src.max(packet.dst))
}

fn key(packet: &PacketRecord, opcode: Opcode) -> ConnectionKey {
    let src_qp = if opcode.service() == Service::Ud { Qpn::new(packet.extension) } else { Qpn::new(0) };
    ConnectionKey {
        src: packet.src,
        dst: packet.dst,
        kind: packet.kind(),
        service: opcode.0 >> 5,
        dest_qp: packet.dest_qp(),
        src_qp,
    }
}

fn turn(opcode: Opcode) -> Turn {
    if opcode.is_ack() {
        Turn::Acknowledge
    } else if opcode.is_response() {
        Turn::Response
    } else if opcode.service() == Service::Cnp {
        Turn::Other
    } else {
        Turn::Request
    }
}
