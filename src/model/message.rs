//! Individual messages: as the flow stage finds them, and as they are shown.

use super::Verb;
use ibscope_parsers::mpi::{Identity, LibraryStack, MatchFields, Protocol};

/// A message of one input as found: its library is not confirmed, its ranks are unknown, and
/// another input may contain it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawMessage {
    /// Number of its connection within its tracker: the connection of its first packet.
    pub connection: u32,
    /// PSN of its first packet.
    pub psn: u32,
    /// Library stack, match fields and protocol; `None` for a transport message that belongs to no
    /// MPI message.
    pub mpi: Option<(LibraryStack, MatchFields, Protocol)>,
    /// The verb that transferred (most of) its data.
    pub transfer_verb: Verb,
    /// Length in bytes of the MPI message, or of the transport message if it is none; `None` if the
    /// packets that show it are missing.
    pub length_bytes: Option<u64>,
    /// Wire bytes of its packets (LRH to VCRC, or whole Ethernet frames): envelope and data, each
    /// packet once, without ACKs.
    pub wire_bytes: u64,
    /// Number of these packets.
    pub packets: u64,
    /// Times of its first and last packet, nanoseconds since the epoch.
    pub times_ns: (i64, i64),
    /// All its packets were captured.
    pub complete: bool,
}

/// A message as shown to users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageRow {
    /// Index into [`super::Profile::connections`].
    pub connection: u32,
    /// Number of its job, if it belongs to one.
    pub job: Option<u32>,
    /// World rank of the sender.
    pub src_rank: Option<u32>,
    /// World rank of the receiver.
    pub dst_rank: Option<u32>,
    /// Sender in its communicator, tag and context; `None` for a transport message that belongs to
    /// no MPI message.
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

    /// Length of the MPI message in bytes.
    #[must_use]
    pub fn mpi_bytes(&self) -> Option<u64> {
        self.raw.length_bytes.filter(|_| self.mpi.is_some())
    }

    /// Length in bytes of a transport message that belongs to no MPI message.
    #[must_use]
    pub fn payload_bytes(&self) -> Option<u64> {
        self.raw.length_bytes.filter(|_| self.mpi.is_none())
    }
}
