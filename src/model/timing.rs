//! The times that are measured, and the keys that they are grouped by.

use ibscope_parsers::ib::{Opcode, Service};
use ibscope_parsers::mpi::{LibraryStack, MatchFields, TagLayout};
use serde::{Deserialize, Serialize};

/// Start and end of a time, by the capture timestamps of packets.
///
/// ```text
/// requester  |--First--Middle--Last-------------------|--First ...   READ--------------------
///            |<----- message ----->|<- acknowledged ->|                 |<- first response ->|
/// responder  |-------------------------------ACK------|                 |----First------Last-|
///            |<-------------- interval -------------->|                 |<- last response ---->|
///
/// sender     |--ready-to-send--------------------First--data--Last------------------------------|
///            |<---- rendezvous request ------>|<- rendezvous data ->|<- rendezvous completion ->|
/// receiver   |----------READ, or clear-to-send-------------Last---------------------done--------|
///            |<-------------------- MPI message ----------------->|
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum Interval {
    /// Last packet of a message that requests an ACK -> the ACK that covers it. One ACK may complete
    /// several messages; if packets are missing, it completes only the message with its PSN. A
    /// retransmitted message counts from its first transmission.
    Acknowledged,
    /// READ request -> first packet of its response.
    FirstResponse,
    /// READ request -> last packet of its response; atomic -> its response.
    LastResponse,
    /// First -> last packet of a message of several packets.
    Message,
    /// First packet of a message -> first packet of the next one on the same connection.
    Interval,
    /// Packet at the port of its sender -> the same packet at the port of its receiver, if one
    /// capture contains both.
    Transit,
    /// First packet of the ready-to-send of a rendezvous -> first packet of its data, in later
    /// messages, READ responses or WRITEs.
    RendezvousRequest,
    /// First -> last packet of the data of a rendezvous.
    RendezvousData,
    /// Last packet of the data of a rendezvous -> the library's completion notice, at the sender's
    /// port. Not every protocol has one.
    RendezvousCompletion,
    /// First packet of an MPI message at its sender's port -> its last packet at its receiver's
    /// port, if the captures contain both.
    MpiMessage,
    /// First packet of the command of a storage protocol -> first packet of its completion.
    StorageCommand,
}

impl Interval {
    /// True for response times, which a requester waits for.
    #[must_use]
    pub const fn is_response_time(self) -> bool {
        matches!(self, Self::Acknowledged | Self::LastResponse)
    }

    /// True for times from a request to a response, which is a packet of another connection.
    #[must_use]
    pub const fn ends_with_response(self) -> bool {
        matches!(self, Self::Acknowledged | Self::FirstResponse | Self::LastResponse)
    }

    /// True for times that also get a time series.
    #[must_use]
    pub const fn has_time_series(self) -> bool {
        self.is_response_time() || matches!(self, Self::StorageCommand)
    }

    /// All intervals, in the order of their discriminants.
    pub const ALL: [Self; 11] = [
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
        Self::StorageCommand,
    ];

    /// True for times of MPI messages: shown only if a library was detected.
    #[must_use]
    pub const fn requires_detection(self) -> bool {
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
            Self::StorageCommand => "storage_command",
        }
    }
}

/// The operation that transfers data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum Verb {
    /// SEND on a connected queue pair.
    Send,
    /// RDMA WRITE by the sender of the data.
    Write,
    /// RDMA READ by the receiver of the data.
    Read,
    /// Compare and swap, fetch and add, atomic write. Never an MPI message.
    Atomic,
    /// Unreliable datagrams.
    Datagram,
}

impl Verb {
    /// All verbs, in the order of their discriminants.
    pub const ALL: [Self; 5] = [Self::Send, Self::Write, Self::Read, Self::Atomic, Self::Datagram];

    /// The name in outputs of times and sizes.
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

    /// The name in outputs of individual messages.
    #[must_use]
    pub const fn lowercase_name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Write => "write",
            Self::Read => "read",
            Self::Atomic => "atomic",
            Self::Datagram => "datagram",
        }
    }

    /// The verb of a request, or of the READ or atomic that a response belongs to.
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

/// A class of lengths, from one power of two to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct SizeClass(u8);

impl TryFrom<u8> for SizeClass {
    type Error = &'static str;

    fn try_from(class: u8) -> Result<Self, Self::Error> {
        if u32::from(class) <= u64::BITS { Ok(Self(class)) } else { Err("the size class is above 64, the largest one") }
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

/// The key of a histogram of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TimingKey {
    /// Start and end.
    pub interval: Interval,
    /// Operation.
    pub verb: Verb,
    /// Size class of the messages, or of the packets where single packets are measured.
    pub size: SizeClass,
}

/// The detection result that a time of MPI messages requires of its connection: this library stack,
/// with a tag layout under which the message belongs to the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequiredDetection {
    stack: LibraryStack,
    /// Layouts under which the message belongs to the application, one bit each.
    layouts: u8,
}

impl RequiredDetection {
    /// The requirement of a message.
    #[must_use]
    pub fn of(stack: LibraryStack, matching: MatchFields) -> Self {
        let reads = |layout: &TagLayout| matching.identity(*layout).is_some();
        let layouts = TagLayout::ALL.into_iter().filter(reads).fold(0, |bits, layout| bits | 1 << layout as u8);
        Self { stack, layouts }
    }

    /// True if the detected stack and layout meet the requirement.
    #[must_use]
    pub fn is_met_by(self, (stack, layout): (LibraryStack, TagLayout)) -> bool {
        self.stack == stack && self.layouts & 1 << layout as u8 != 0
    }
}

/// The observations that a time was measured between. At a mirror sink of both ports, the first
/// observation of a packet is at its sender's port and the second at its receiver's. A response
/// counts there from its second observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ObservedPorts {
    /// One port: first observations only. Valid if the capture contains every packet once.
    OnePort,
    /// First observation of the request, second of the response. Valid if the capture contains
    /// every packet twice.
    BothPorts,
    /// Valid in both cases: packets of one sender only.
    Any,
}

/// One measured time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Number of the connection of the request within its tracker.
    pub connection: u32,
    /// Interval, verb and size class.
    pub key: TimingKey,
    /// Required detection, for times of MPI messages.
    pub required_detection: Option<RequiredDetection>,
    /// The observations that it was measured between.
    pub observed_ports: ObservedPorts,
    /// Its start, in nanoseconds since the epoch.
    pub from_ns: i64,
    /// The time in nanoseconds; 0 if the clock stepped back.
    pub ns: u64,
}

impl Timing {
    /// The time between two moments, in nanoseconds since the epoch.
    #[must_use]
    pub fn between(
        connection: u32,
        (key, required_detection): (TimingKey, Option<RequiredDetection>),
        observed_ports: ObservedPorts,
        (from_ns, to_ns): (i64, i64),
    ) -> Self {
        // Clocks may step back.
        let ns = u64::try_from(to_ns.saturating_sub(from_ns)).unwrap_or(0);
        Self { connection, key, required_detection, observed_ports, from_ns, ns }
    }
}
