//! Single messages: as the flow stage finds them, and as they are shown.

use super::Verb;
use ibscope_parsers::mpi::{Form, Identity, Matching, Protocol};

/// What moved the data of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Moved {
    /// SEND on a connected queue pair.
    Send = 0,
    /// Unreliable datagrams.
    Datagram = 1,
    /// RDMA WRITE by the sender.
    Write = 2,
    /// RDMA READ by the receiver.
    Read = 3,
    /// Compare and swap, fetch and add, atomic write. Not of MPI messages.
    Atomic = 4,
}

impl Moved {
    /// All of them, in the order of their discriminants.
    pub const ALL: [Self; 5] = [Self::Send, Self::Datagram, Self::Write, Self::Read, Self::Atomic];

    /// The name used in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Datagram => "datagram",
            Self::Write => "write",
            Self::Read => "read",
            Self::Atomic => "atomic",
        }
    }

    /// The same as what times are kept apart by.
    #[must_use]
    pub const fn verb(self) -> Verb {
        match self {
            Self::Send => Verb::Send,
            Self::Datagram => Verb::Datagram,
            Self::Write => Verb::Write,
            Self::Read => Verb::Read,
            Self::Atomic => Verb::Atomic,
        }
    }
}

/// A message of one input, not yet settled: neither its library nor its ranks are believed, and another input may show it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawMessage {
    /// Dense number of its connection within its tracker: the one that carried its first packet.
    pub connection: u32,
    /// PSN of its first packet.
    pub psn: u32,
    /// Form, envelope and protocol; `None` for a transport message that belongs to no MPI message.
    pub mpi: Option<(Form, Matching, Protocol)>,
    /// What moved (most of) its data.
    pub moved: Moved,
    /// Length of the MPI message; of the transport message, where it is none. In bytes; `None` where packets that tell it are missing.
    pub length_bytes: Option<u64>,
    /// LRH to VCRC, or whole Ethernet frames, of its packets: envelope and data, every packet once, no acknowledgements.
    pub wire_bytes: u64,
    /// Those packets.
    pub packets: u64,
    /// Time of its first and of its last packet, nanoseconds since the epoch.
    pub times_ns: (i64, i64),
    /// All its packets were captured.
    pub complete: bool,
}

/// A message as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageRow {
    /// Index into [`super::Profile::connections`].
    pub connection: u32,
    /// Number of the job; `None` where the message belongs to none.
    pub job: Option<u32>,
    /// World rank of the sender.
    pub src_rank: Option<u32>,
    /// World rank of the receiver.
    pub dst_rank: Option<u32>,
    /// Sender in its communicator, tag and context; `None` for a transport message that belongs to no MPI message.
    pub mpi: Option<(Identity, Protocol)>,
    /// See [`RawMessage`].
    pub raw: RawMessage,
}

impl MessageRow {
    /// Sender in its communicator, tag and context.
    #[must_use]
    pub fn identity(&self) -> Option<&Identity> {
        self.mpi.as_ref().map(|(identity, _)| identity)
    }

    /// Name of the library's protocol.
    #[must_use]
    pub fn protocol(&self) -> Option<&'static str> {
        self.mpi.as_ref().map(|(_, protocol)| protocol.name())
    }

    /// Name of the MPI operation that the message belongs to.
    #[must_use]
    pub fn operation(&self) -> Option<&'static str> {
        self.identity().map(|identity| identity.operation().name())
    }

    /// Length of the MPI message.
    #[must_use]
    pub fn mpi_bytes(&self) -> Option<u64> {
        self.raw.length_bytes.filter(|_| self.mpi.is_some())
    }

    /// Length of a transport message that belongs to no MPI message.
    #[must_use]
    pub fn payload_bytes(&self) -> Option<u64> {
        self.raw.length_bytes.filter(|_| self.mpi.is_none())
    }
}
