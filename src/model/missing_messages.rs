//! Counts of messages that a capture holds in part.

use ibscope_parsers::mpi::LibraryStack;
use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

/// Counts of incomplete messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingMessages {
    /// MPI messages with a known start and an unknown length.
    pub mpi_incomplete: u64,
    /// MPI messages with a captured rank, but without tag or length.
    pub mpi_truncated: u64,
    /// Packets by [`TruncatedHeader`] that were captured too short to show whether they are part of a
    /// library's message.
    pub truncated_headers: [u64; TruncatedHeader::COUNT],
    /// Transport messages with missing packets.
    pub with_gaps: u64,
    /// Transport messages with a missing first packet.
    pub without_start: u64,
    /// Messages that ibscope stopped tracking before their end, because too many were incomplete at
    /// a time.
    pub evicted: u64,
}

/// Packet that was captured without the header that may show a message of a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TruncatedHeader {
    /// First packet of a SEND, or datagram.
    Send,
    /// First packet of an RDMA WRITE, which carries envelopes of some libraries only.
    Write,
    /// Last packet of an RDMA WRITE, without its immediate data, which end a message of NCCL.
    Immediate,
}

impl TruncatedHeader {
    /// Number of kinds.
    pub const COUNT: usize = 3;
}

impl MissingMessages {
    /// Packets that may belong to a message, and were captured too short to show it or its length.
    #[must_use]
    pub fn truncated_packets(&self) -> u64 {
        self.mpi_truncated + self.truncated_headers.iter().sum::<u64>()
    }

    /// Packets that may start or end a message of this library, and were captured too short to show it.
    #[must_use]
    pub const fn truncated_headers_of(&self, stack: LibraryStack) -> u64 {
        let [sends, writes, immediate] = self.truncated_headers;
        match stack {
            LibraryStack::Ob1 | LibraryStack::Mvapich2 => sends + writes,
            // The data of NCCL's messages have no envelope.
            LibraryStack::Nccl => immediate,
            LibraryStack::UcxVerbs | LibraryStack::UcxMlx5 | LibraryStack::UcxUd | LibraryStack::Rxm => sends,
        }
    }
}

impl AddAssign for MissingMessages {
    fn add_assign(&mut self, other: Self) {
        self.mpi_incomplete += other.mpi_incomplete;
        self.mpi_truncated += other.mpi_truncated;
        for (own, other) in self.truncated_headers.iter_mut().zip(other.truncated_headers) {
            *own += other;
        }
        self.with_gaps += other.with_gaps;
        self.without_start += other.without_start;
        self.evicted += other.evicted;
    }
}
