//! What times are measured between, of what, and how they are kept apart.

use ibscope_parsers::ib::{Opcode, Service};
use ibscope_parsers::mpi::{Form, Matching, TagLayout};
use serde::{Deserialize, Serialize};

/// From which moment to which; all of them as the capture's clock stamped the packets.
///
/// ```text
/// requester  |--First--Middle--Last---------------------|--First ...        READ--------------------
///            |<----- message ----->|<-- acknowledged -->|                      |<- first response ->|
/// responder  |---------------------------------ACK------|                      |----First------Last-|
///            |<--------------- interval --------------->|                      |<- last response -------->|
///
/// sender     |--ready to send------------------------------First--data--Last--------------------------------|
///            |<--------- rendezvous request ----------->|<- rendezvous data ->|<- rendezvous completion ->|
/// receiver   |----------------READ, or clear to send-----------------Last---------------------done--------|
///            |<------------------------- MPI message ---------------------->|
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum Interval {
    /// Last packet of a message that asks for it -> the ACK that covers it. One ACK may complete several messages. Sent again, the message counts
    /// from its first transmission.
    Acknowledged,
    /// READ request -> first packet of its response.
    FirstResponse,
    /// READ request -> last packet of its response; atomic -> its response.
    LastResponse,
    /// First -> last packet of a message of several packets.
    Message,
    /// First packet of a message -> first packet of the next one on the same connection.
    Interval,
    /// Packet at the port of its sender -> the same packet at the port of its receiver, where one capture holds both.
    Transit,
    /// First packet of the ready to send of a rendezvous -> first packet of its data, which are those that follow in other messages, READ responses or WRITEs.
    RendezvousRequest,
    /// First -> last packet of the data of a rendezvous.
    RendezvousData,
    /// Last packet of the data of a rendezvous -> the library's message that says that they are there, at the sender's port. Not all ways of
    /// sending data have one.
    RendezvousCompletion,
    /// First packet of an MPI message at its sender's port -> its last one at its receiver's port, where the captures hold both.
    MpiMessage,
}

impl Interval {
    /// True for the times that a requester waits until its request is done: these are kept over time as well.
    #[must_use]
    pub const fn is_answer(self) -> bool {
        matches!(self, Self::Acknowledged | Self::LastResponse)
    }

    /// All of them, in the order of their discriminants.
    pub const ALL: [Self; 10] = [
        Self::Acknowledged,
        Self::FirstResponse,
        Self::LastResponse,
        Self::Message,
        Self::Interval,
        Self::Transit,
        Self::RendezvousRequest,
        Self::RendezvousData,
        Self::RendezvousCompletion,
        Self::MpiMessage,
    ];

    /// True for times of MPI messages: shown only where a library is believed.
    #[must_use]
    pub const fn is_of_mpi(self) -> bool {
        matches!(self, Self::RendezvousRequest | Self::RendezvousData | Self::RendezvousCompletion | Self::MpiMessage)
    }

    /// The name used in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Acknowledged => "acknowledged",
            Self::FirstResponse => "first_response",
            Self::LastResponse => "last_response",
            Self::Message => "message",
            Self::Interval => "interval",
            Self::Transit => "transit",
            Self::RendezvousRequest => "rendezvous_request",
            Self::RendezvousData => "rendezvous_data",
            Self::RendezvousCompletion => "rendezvous_completion",
            Self::MpiMessage => "mpi_message",
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum Verb {
    /// SEND.
    Send,
    /// RDMA WRITE.
    Write,
    /// RDMA READ.
    Read,
    /// Atomic operations.
    Atomic,
    /// Unreliable datagrams.
    Datagram,
}

impl Verb {
    /// All of them, in the order of their discriminants.
    pub const ALL: [Self; 5] = [Self::Send, Self::Write, Self::Read, Self::Atomic, Self::Datagram];

    /// The name used in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "SEND",
            Self::Write => "WRITE",
            Self::Read => "READ",
            Self::Atomic => "ATOMIC",
            Self::Datagram => "DATAGRAM",
        }
    }

    /// The verb of a request, or of the READ and atomic that a response answers.
    #[must_use]
    pub fn of(opcode: Opcode) -> Option<Self> {
        if opcode.service() == Service::Ud {
            Some(Self::Datagram)
        } else if opcode.is_send() {
            Some(Self::Send)
        } else if opcode.is_write() {
            Some(Self::Write)
        } else if opcode.is_read_request() || opcode.is_read_response() {
            Some(Self::Read)
        } else if opcode.is_atomic() || opcode.is_response() {
            Some(Self::Atomic)
        } else {
            None
        }
    }
}

/// Lengths from one power of two to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct SizeClass(u8);

impl TryFrom<u8> for SizeClass {
    type Error = &'static str;

    fn try_from(class: u8) -> Result<Self, Self::Error> {
        if u32::from(class) <= u64::BITS { Ok(Self(class)) } else { Err("no length is in this class") }
    }
}

impl From<SizeClass> for u8 {
    fn from(class: SizeClass) -> Self {
        class.0
    }
}

impl SizeClass {
    /// The class of a length in bytes.
    #[must_use]
    pub const fn of(bytes: u64) -> Self {
        Self(if bytes == 0 { 0 } else { bytes.ilog2() as u8 + 1 })
    }

    /// Smallest length of the class, in bytes: 0, 1, 2, 4 ...
    #[must_use]
    pub const fn from_bytes(self) -> u64 {
        if self.0 == 0 { 0 } else { 1 << (self.0 - 1) }
    }
}

/// What a histogram of times is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TimingKey {
    /// From which moment to which.
    pub interval: Interval,
    /// Of what.
    pub verb: Verb,
    /// How long the messages are (packets, where single packets are measured).
    pub size: SizeClass,
}

/// What must be believed of a connection for a time of its MPI messages to count: their form, and that they are the application's under the
/// layout of its tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Claim {
    form: Form,
    /// Layouts under which they are the application's, one bit each.
    layouts: u8,
}

impl Claim {
    /// The claim of a message to be one of MPI.
    #[must_use]
    pub fn of(form: Form, matching: Matching) -> Self {
        let reads = |layout: &TagLayout| matching.identity(*layout).is_some();
        let layouts = TagLayout::ALL.into_iter().filter(reads).fold(0, |bits, layout| bits | 1 << layout as u8);
        Self { form, layouts }
    }

    /// True where this is what is believed.
    #[must_use]
    pub fn holds(self, (form, layout): (Form, TagLayout)) -> bool {
        self.form == form && self.layouts & 1 << layout as u8 != 0
    }
}

/// Which sights of the packets a time was measured between. At a sink that holds both ports, the first sight of a packet is at its sender's
/// port and the second at its receiver's, so what answers is taken from its second sight there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Sight {
    /// Of one port: first sights only. Right where a capture holds each packet once.
    Alone,
    /// First sight of what asks, second of what answers. Right where a capture holds each packet twice.
    Twice,
    /// Either: packets of one sender alone.
    Any,
}

/// One measured time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Number of the connection of the request within its tracker.
    pub connection: u32,
    /// What it is of.
    pub key: TimingKey,
    /// What it claims, where it is of MPI messages.
    pub claim: Option<Claim>,
    /// Which sights it lies between.
    pub sight: Sight,
    /// When it began, in nanoseconds since the epoch.
    pub from_ns: i64,
    /// The time in nanoseconds; a clock that steps back gives 0.
    pub ns: u64,
}

impl Timing {
    /// The time between two moments, in nanoseconds since the epoch.
    #[must_use]
    pub fn between(
        connection: u32,
        (key, claim): (TimingKey, Option<Claim>),
        sight: Sight,
        (from_ns, to_ns): (i64, i64),
    ) -> Self {
        // Clocks may step back.
        let ns = u64::try_from(to_ns.saturating_sub(from_ns)).unwrap_or(0);
        Self { connection, key, claim, sight, from_ns, ns }
    }
}
