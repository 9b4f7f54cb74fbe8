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
    /// For a message of NCCL, the receive that it fills, if that was captured.
    pub receive: Option<NcclReceive>,
}

/// A receive that an NCCL process posted, and the start of the data that filled it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NcclReceive {
    /// Address of the ring of elements in the sender's memory: with the sender it identifies one
    /// connection of NCCL, which may have several queue pairs.
    pub ring: u64,
    /// Number of the receive on that connection, from 1.
    pub index: u64,
    /// Time of the packet that posted it, nanoseconds since the epoch.
    pub posted_ns: i64,
    /// Address of the buffer in the receiver's memory.
    pub buffer_address: u64,
    /// Length of the buffer in bytes.
    pub buffer_bytes: u64,
    /// Hash of the start of the data ([`start_hash`]).
    pub data_hash: Option<u32>,
}

/// Bytes of the data that [`start_hash`] covers.
const HASHED_BYTES: usize = 64;

/// Hash of the first 64 bytes of data, to detect that a rank forwards what it received. Covers
/// every second word of 32 bits: NCCL's LL protocol writes flags between the data, which differ at
/// each hop. `None` if fewer bytes were captured, or if all these words are equal: sums of zeros
/// look like copies.
#[must_use]
pub fn start_hash(data: &[u8]) -> Option<u32> {
    let (words, _) = data.get(..HASHED_BYTES)?.as_chunks::<4>();
    let first = words.first()?;
    if words.iter().step_by(2).all(|word| word == first) {
        return None;
    }
    let hash = words.iter().step_by(2).fold(0x811C_9DC5_u64, |hash, word| {
        (hash ^ u64::from(u32::from_le_bytes(*word))).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
    });
    Some((hash ^ hash >> 32) as u32)
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
