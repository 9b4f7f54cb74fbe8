//! Connections, what was seen of them, and the sums over them.

use super::Kind;
use super::profile::{Repeats, Traffic};
use ibscope_parsers::mpi::{Envelope, Form, TagLayout};
use ibscope_parsers::{Endpoint, Qpn};
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// One direction of traffic to one queue pair. The source queue pair is known for datagrams only (the BTH has none).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionKey {
    /// Who sends.
    pub src: Endpoint,
    /// Who receives.
    pub dst: Endpoint,
    /// What the packets are counted as.
    pub kind: Kind,
    /// BTH service, opcode bits 7 to 5.
    pub service: u8,
    /// The receiver's queue pair.
    pub dest_qp: Qpn,
    /// The sender's queue pair for datagrams, 0 for the connected services.
    pub src_qp: Qpn,
}

impl ConnectionKey {
    /// Datagrams (UD) are neither acknowledged nor repeated by the transport.
    #[must_use]
    pub const fn is_datagram(&self) -> bool {
        self.service == 3
    }
}

/// What a packet is to the sequence numbers of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Turn {
    /// It asks for something: SEND, WRITE, READ request, atomic, datagram; unknown opcodes too. Numbered by the sender.
    Request = 0,
    /// It answers with data: READ response, atomic acknowledgement. Numbered by the receiver's requests.
    Response = 1,
    /// ACK or NAK. Carries the number it acknowledges.
    Acknowledge = 2,
    /// Not numbered: congestion notifications.
    Other = 3,
}

impl Turn {
    /// How many there are.
    pub const COUNT: usize = 4;
}

/// What the flow stage says of one packet.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Dense number of the packet's connection within its tracker.
    pub connection: u32,
    /// Its turn.
    pub turn: Turn,
    /// How often this packet (same connection, turn and PSN) has been seen in this file, this time included: 1, 2, ...
    pub occurrence: u32,
    /// A transport message starts to count with this packet: Last or Only of SEND and WRITE, READ, atomic and FLUSH
    /// requests, datagrams.
    pub counts_message: bool,
}

/// An MPI message whose envelope was read and whose length is known.
#[derive(Clone, Copy, Debug)]
pub struct MpiMessage {
    /// Layout of the message.
    pub form: Form,
    /// Sender and tag.
    pub envelope: Envelope,
    /// MPI length in bytes.
    pub mpi_bytes: u64,
    /// Time of the packet that carried the envelope.
    pub time_ns: i64,
}

/// What the first packet of a transport message showed of an MPI library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// A message of this form, with an envelope or without.
    Recognised(Form, Option<Envelope>),
    /// The same message again, under a new transport number (UCX over UD).
    Repeated,
    /// Nothing that is known.
    Unknown,
}

/// MPI messages and their length, told apart by what decides later whether they are collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MpiClass {
    /// Layout of the messages.
    pub form: Form,
    /// Collective, by layout of the tag in the order of [`TagLayout::ALL`].
    pub collective: [bool; 2],
}

impl MpiClass {
    /// The class of a message.
    #[must_use]
    pub fn of(message: &MpiMessage) -> Self {
        let collective = TagLayout::ALL.map(|layout| message.envelope.matching.identity(layout).collective);
        Self { form: message.form, collective }
    }
}

/// What the first packets of a connection's messages said of the library and of the sender's rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Votes {
    /// First packets of messages that were looked at.
    pub starts: u64,
    /// Those with an envelope, by form.
    pub enveloped: [u64; Form::ALL.len()],
    /// Those that belong to a library and carry no envelope, by form.
    pub bare: [u64; Form::ALL.len()],
    /// Envelopes on `MPI_COMM_WORLD`, by form, tag layout and rank. At most [`Votes::MAX_RANKS`] ranks of each form and layout.
    pub world: BTreeMap<(Form, TagLayout, u32), u64>,
    /// Envelopes on `MPI_COMM_WORLD` that found no place in `world`, by tag layout.
    pub crowded: [u64; 2],
    /// Envelopes whose rank or tag is larger than any in real use, by tag layout.
    pub implausible: [u64; 2],
}

impl Votes {
    /// A connection belongs to one process, so a few ranks are room enough to see that they contradict each other.
    pub const MAX_RANKS: usize = 16;

    /// Adds what another part of the connection said.
    pub fn merge(&mut self, other: &Self) {
        self.starts += other.starts;
        for form in 0..self.enveloped.len() {
            self.enveloped[form] += other.enveloped[form];
            self.bare[form] += other.bare[form];
        }
        for (key, count) in &other.world {
            self.vote(*key, *count);
        }
        self.crowded = std::array::from_fn(|layout| self.crowded[layout] + other.crowded[layout]);
        self.implausible = std::array::from_fn(|layout| self.implausible[layout] + other.implausible[layout]);
    }

    /// Counts envelopes of one rank on `MPI_COMM_WORLD`.
    pub fn vote(&mut self, key: (Form, TagLayout, u32), count: u64) {
        // The wrong reading of a tag gives any number of ranks: they must not crowd out those of the right one.
        let (form, layout, _) = key;
        if let Some(votes) = self.world.get_mut(&key) {
            *votes += count;
        } else if self.world.range((form, layout, 0)..=(form, layout, u32::MAX)).count() < Self::MAX_RANKS {
            self.world.insert(key, count);
        } else {
            self.crowded[layout as usize] += count;
        }
    }
}

/// All that one connection's packets add up to, mirror copies and files settled, MPI not yet.
#[derive(Clone, Debug)]
pub struct ConnectionTotals {
    /// The connection.
    pub key: ConnectionKey,
    /// Time of its first and last packet, nanoseconds since the epoch.
    pub times_ns: (i64, i64),
    /// Sums without the MPI columns.
    pub traffic: Traffic,
    /// What was repeated.
    pub repeats: Repeats,
    /// Messages and MPI bytes by class.
    pub mpi: BTreeMap<MpiClass, MpiSums>,
    /// What its messages said of library and rank.
    pub votes: Votes,
    /// Votes for the sender's queue pair, which the packets do not name: how many answers fit the requests that went to it.
    pub partners: BTreeMap<Qpn, u64>,
    /// The same sums over time, sorted by bin.
    pub bins: Vec<BinTotals>,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueuePair {
    /// The port.
    pub endpoint: Endpoint,
    /// The queue pair at it.
    pub qpn: Qpn,
}

/// A wire-up message of UCX: which worker (process) has which queue pairs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wireup {
    /// Sender.
    pub src: Endpoint,
    /// Receiver.
    pub dst: Endpoint,
    /// Id of the sender's worker.
    pub worker: u64,
    /// The sender's UCX endpoint.
    pub sender_endpoint: u64,
    /// The receiver's UCX endpoint; 0 in requests.
    pub receiver_endpoint: u64,
    /// The sender's datagram queue pair, where it came as a datagram.
    pub datagram_qp: Option<Qpn>,
    /// The address of the sender's worker, which holds its queue pair numbers somewhere.
    pub address: Vec<u8>,
}

/// What a connection's packets add up to in one bin.
#[derive(Clone, Debug, Default)]
pub struct BinTotals {
    /// Number of the bin: time divided by the bin's width.
    pub bin: i64,
    /// Sums without the MPI columns.
    pub traffic: Traffic,
    /// Messages and MPI bytes by class.
    pub mpi: Vec<(MpiClass, MpiSums)>,
}

/// MPI messages and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MpiSums {
    /// Messages.
    pub messages: u64,
    /// MPI bytes.
    pub mpi_bytes: u64,
}

impl AddAssign for MpiSums {
    fn add_assign(&mut self, other: Self) {
        self.messages += other.messages;
        self.mpi_bytes += other.mpi_bytes;
    }
}

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Packets.
    pub packets: u64,
    /// LRH to VCRC, or whole Ethernet frames.
    pub wire_bytes: u64,
    /// InfiniBand payload, without pad and ICRC.
    pub payload_bytes: u64,
}

impl Sums {
    /// True when there was no packet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.packets == 0
    }
}

impl AddAssign for Sums {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.wire_bytes += other.wire_bytes;
        self.payload_bytes += other.payload_bytes;
    }
}
