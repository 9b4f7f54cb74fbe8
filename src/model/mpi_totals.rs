//! MPI results of a connection: messages and bytes by class, votes, sizes and envelopes.
//!
//! The class keeps the properties that depend on the tag layout, which is detected later.

use super::{MpiMessage, Sizes, Streams, VecMap, Votes};
use ibscope_parsers::mpi::{LibraryStack, MpiOperation, TagLayout};
use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

/// A class of MPI messages, by the properties that are interpreted later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MpiClass {
    /// Library stack of the messages.
    pub stack: LibraryStack,
    /// Operation by tag layout, in the order of [`TagLayout::ALL`]; `None` if under that layout the
    /// messages do not belong to the application.
    pub operation: [Option<MpiOperation>; TagLayout::ALL.len()],
}

impl MpiClass {
    /// The class of a message.
    #[must_use]
    pub fn of(message: &MpiMessage) -> Self {
        let operation = TagLayout::ALL
            .map(|layout| message.envelope.matching.identity(layout).map(|identity| identity.operation()));
        Self { stack: message.stack, operation }
    }
}

/// MPI results of a connection.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MpiTotals {
    /// Messages and MPI bytes by class.
    pub sums: VecMap<MpiClass, MpiSums>,
    /// Evidence for library and rank.
    pub votes: Votes,
    /// Their sizes by class.
    pub sizes: Sizes<MpiClass>,
    /// Messages by envelope.
    pub streams: Streams,
    /// Shares of NCCL messages that the connection carried, if known.
    pub shares: NcclShares,
}

/// Shares of NCCL messages: a message may be split over several connections, each of which counts
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NcclShares {
    /// Shares that start a message.
    pub first: u64,
    /// Shares that continue a message that starts on another connection.
    pub later: u64,
}

impl AddAssign for NcclShares {
    fn add_assign(&mut self, other: Self) {
        self.first += other.first;
        self.later += other.later;
    }
}

impl MpiTotals {
    pub(super) fn merge(&mut self, later: Self) {
        self.shares += later.shares;
        for (class, sums) in later.sums {
            *self.sums.or_default(class) += sums;
        }
        self.votes.merge(&later.votes);
        self.sizes.merge(later.sizes);
        self.streams.merge(later.streams);
    }
}

/// MPI messages and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MpiSums {
    /// Messages.
    pub messages: u64,
    /// MPI bytes.
    pub mpi_bytes: u64,
}

impl AddAssign for MpiSums {
    fn add_assign(&mut self, other: Self) {
        self.messages += other.messages;
        // Lengths come from envelopes: a damaged capture may contain any value.
        self.mpi_bytes = self.mpi_bytes.saturating_add(other.mpi_bytes);
    }
}
