//! Packets of one input, in file order -> what each is to its connection, and the MPI messages.
//!
//! A tracker sees all traffic between the pairs of endpoints dealt to it, so many of them run side by side and share
//! nothing. It keeps state per connection and direction: which sequence numbers were seen how often (`ledger`), and
//! which messages are open (`heads`). It does not decide whether a packet seen twice is a mirror copy or a repeat: that
//! is known only when the whole input has been seen (`reduce`).

mod cm;
mod heads;
mod ledger;

pub use cm::connection_management;

use crate::model::{ConnectionKey, Kind, MpiMessage, PacketRecord, Seen, Start, Turn};
use foldhash::fast::FixedState;
use heads::Heads;
use ibscope_parsers::ib::{Opcode, Service};
use ibscope_parsers::{Endpoint, Qpn};
use ledger::Ledger;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Path MTU that is assumed for the span of a READ request while none is known: the largest, so that a span is never
/// longer than the truth.
const LARGEST_MTU_BYTES: u32 = 4096;

/// State of the connections between some pairs of endpoints, in one input.
#[derive(Debug, Default)]
pub struct Tracker {
    index: HashMap<ConnectionKey, u32, FixedState>,
    connections: Vec<Connection>,
    /// Largest payload of a First or Middle packet between two endpoints (in order): the path MTU.
    mtu_bytes: HashMap<(Endpoint, Endpoint), u16, FixedState>,
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
        let id = self.connection(key(packet, opcode));
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
        if read_mpi && turn == Turn::Request && packet.kind() == Kind::Data {
            if occurrence == 1 {
                (outcome.start, outcome.message) = connection.heads.request(packet, batch_bytes, number);
            }
            if opcode.is_last() && opcode.is_send() {
                outcome.message = connection.heads.last(packet, number);
            }
        }
        outcome
    }

    /// The connections in the order of their numbers, each with the messages that were begun and not ended, and whether
    /// its ledgers overflowed.
    pub fn finish(&self) -> impl Iterator<Item = (ConnectionKey, u64, bool)> {
        let mut keys: Vec<(u32, ConnectionKey)> = self.index.iter().map(|(key, id)| (*id, *key)).collect();
        keys.sort_unstable_by_key(|(id, _)| *id);
        keys.into_iter().zip(&self.connections).map(|((_, key), connection)| {
            let overflowed = connection.ledgers.iter().any(Ledger::overflowed);
            // Datagrams leave holes by nature (one sequence for all destinations), so their ledgers always overflow.
            (key, connection.heads.incomplete(), overflowed && !key.is_datagram())
        })
    }

    fn connection(&mut self, key: ConnectionKey) -> u32 {
        match self.index.entry(key) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                let id = self.connections.len() as u32;
                self.connections.push(Connection::default());
                *entry.insert(id)
            }
        }
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
