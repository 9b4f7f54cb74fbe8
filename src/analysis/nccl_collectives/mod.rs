//! The collective operations of NCCL, one by one, from its messages.
//!
//! In: messages whose receives were captured. Out: a row for each operation. No message names its
//! operation. It follows from which ranks sent how many messages of which sizes, from the order of
//! messages (a rank cannot forward what it has not received), and from the start of the data: a
//! broadcast forwards what it received, a reduction does not. Stages: `split` divides the
//! messages of a communicator into operations, `classify` compares each with the schedules of
//! NCCL's algorithms (`src/device/all_reduce.h`, `all_gather.h`, `reduce_scatter.h`,
//! `broadcast.h`, `reduce.h`, `src/graph/trees.cc`).
//!
//! Invariant: an operation has one name only if its messages exclude all others. Data between ranks
//! of one node (`NVLink`, shared memory) are not on the wire; ranks that only send and receive
//! there are not counted.

mod channels;
mod classify;
mod connections;
mod split;
#[cfg(test)]
mod tests;
mod trees;

pub use channels::{NcclDataPath, NcclPathShare};

use super::collective_instances::{CollectiveInstance, Confidence};
use crate::model::{MessageRow, NcclReceive, PacketRecord, Profile, RankActivity};
use ibscope_parsers::mpi::MpiOperation;
use std::collections::{BTreeMap, BTreeSet};

/// Most messages that are kept, at 96 bytes each; later ones are counted only.
pub const MAX_TRANSFERS: usize = 1 << 23;

/// A message of NCCL.
#[derive(Clone, Copy, Debug)]
pub struct NcclTransfer {
    /// Number of the job.
    pub job: u32,
    /// Rank of the sender.
    pub src: u32,
    /// Rank of the receiver.
    pub dst: u32,
    /// Times of the first and the last packet, nanoseconds since the epoch.
    pub times_ns: (i64, i64),
    /// Length in bytes.
    pub bytes: u64,
    /// The receive that it fills.
    pub receive: NcclReceive,
}

/// An operation of NCCL, as its API names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NcclOperation {
    /// `ncclAllReduce`.
    AllReduce,
    /// `ncclAllGather`.
    AllGather,
    /// `ncclReduceScatter`.
    ReduceScatter,
    /// `ncclBroadcast`.
    Broadcast,
    /// `ncclReduce`.
    Reduce,
    /// `ncclSend` and `ncclRecv` between all ranks, each with the same length.
    AllToAll,
    /// Other `ncclSend` and `ncclRecv`.
    SendRecv,
}

impl NcclOperation {
    /// The name in a list of operations that may have sent the same messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "allreduce",
            Self::AllGather => "allgather",
            Self::ReduceScatter => "reduce_scatter",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::AllToAll => "alltoall",
            Self::SendRecv => "sendrecv",
        }
    }

    /// The MPI operation with the same result.
    #[must_use]
    pub const fn mpi(self) -> MpiOperation {
        match self {
            Self::AllReduce => MpiOperation::Allreduce,
            Self::AllGather => MpiOperation::Allgather,
            Self::ReduceScatter => MpiOperation::ReduceScatterBlock,
            Self::Broadcast => MpiOperation::Bcast,
            Self::Reduce => MpiOperation::Reduce,
            Self::AllToAll => MpiOperation::Alltoall,
            Self::SendRecv => MpiOperation::PointToPoint,
        }
    }

    /// True for `ncclSend` and `ncclRecv`.
    const fn is_p2p(self) -> bool {
        matches!(self, Self::AllToAll | Self::SendRecv)
    }
}

/// The pattern of the connections of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NcclAlgorithm {
    /// Each rank sends to the next one.
    Ring,
    /// Each rank sends to its parent and back; NCCL uses one or two binary trees.
    Tree,
    /// Each rank sends to each other one.
    Direct,
}

impl NcclAlgorithm {
    /// The name used in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::Tree => "tree",
            Self::Direct => "direct",
        }
    }
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NcclCollective {
    /// Number of the job.
    pub job: u32,
    /// `world`, or the lowest rank of the communicator.
    pub communicator: String,
    /// Number of the operation on this communicator, from 1.
    pub number: u64,
    /// The operations that send these messages, sorted; empty if none is known.
    pub operations: Vec<NcclOperation>,
    /// The pattern, if the operations are known.
    pub algorithm: Option<NcclAlgorithm>,
    /// True if the order of many messages excludes other operations; see `classify`.
    pub is_certain: bool,
    /// Ranks that the wire shows.
    pub ranks: u32,
    /// Connections of NCCL between each pair of ranks that communicate: the channels.
    pub channels: u32,
    /// Bytes as in the arguments of the call: the block of each rank of an `AllGather`,
    /// `ReduceScatter` or `AllToAll`, the vector of others. `None` if unknown.
    pub bytes: Option<u64>,
    /// Times of the first and the last packet of data, nanoseconds since the epoch.
    pub times_ns: (i64, i64),
    /// The rank that began to send last, and how much later than the rank before it, in
    /// nanoseconds. `None` if ranks wait for others before they send.
    pub last: Option<(u32, u64)>,
    /// Times of the packets of data of each rank, by rank.
    pub activity: Vec<RankActivity>,
}

impl NcclCollective {
    /// The only operation that sends these messages.
    #[must_use]
    pub fn operation(&self) -> Option<NcclOperation> {
        self.operations.first().copied().filter(|_| self.operations.len() == 1)
    }

    /// The row for outputs. A last rank whose skew is within `clock_bound_ns` is left out.
    #[must_use]
    pub fn instance(&self, clock_bound_ns: i64) -> CollectiveInstance {
        let last = self.last.filter(|(_, skew_ns)| *skew_ns > clock_bound_ns.unsigned_abs());
        let confidence = match (self.operations.len(), self.is_certain) {
            (0, _) => Confidence::Unknown,
            (1, true) => Confidence::High,
            (1, false) => Confidence::Medium,
            _ => Confidence::Low,
        };
        CollectiveInstance {
            job: self.job,
            is_nccl: true,
            communicator: self.communicator.clone(),
            number: self.number,
            operation: self.operation().map_or(MpiOperation::Collective, NcclOperation::mpi),
            algorithms: match self.operation() {
                Some(_) => self.algorithm.map(NcclAlgorithm::name).into_iter().collect(),
                None => self.operations.iter().map(|own| own.name()).collect(),
            },
            confidence,
            misses_messages: false,
            ranks: Some(self.ranks),
            bytes: self.bytes,
            start_ns: self.times_ns.0,
            end_ns: self.times_ns.1,
            last_rank: last.map(|(rank, _)| rank),
            skew_ns: last.map(|(_, skew_ns)| skew_ns),
            activity: self.activity.clone(),
        }
    }
}

/// Operations, and the messages that belong to none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NcclCollectives {
    /// The operations by job and start.
    pub instances: Vec<NcclCollective>,
    /// Messages of NCCL without ranks, without times, or whose receive was not captured.
    pub left_out: u64,
    /// Messages beyond [`MAX_TRANSFERS`].
    pub beyond_bound: u64,
}

/// The parts of the data that channels and rails carry, and the messages that belong to none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NcclPathShares {
    /// By job, sender and receiver: the channels, then the rails.
    pub shares: Vec<NcclPathShare>,
    /// As in [`NcclCollectives`].
    pub left_out: u64,
    /// As in [`NcclCollectives`].
    pub beyond_bound: u64,
}

/// Collects the messages of NCCL.
#[derive(Clone, Debug)]
pub struct NcclCollector {
    transfers: Vec<NcclTransfer>,
    /// Messages of known length that are left out, by ranks.
    unassigned: channels::UnassignedSums,
    max_transfers: usize,
    left_out: u64,
    beyond_bound: u64,
}

impl Default for NcclCollector {
    fn default() -> Self {
        Self::with_limit(MAX_TRANSFERS)
    }
}

impl NcclCollector {
    /// Keeps at most `max_transfers`.
    pub(crate) const fn with_limit(max_transfers: usize) -> Self {
        Self { transfers: Vec::new(), unassigned: BTreeMap::new(), max_transfers, left_out: 0, beyond_bound: 0 }
    }

    /// Adds a message of NCCL.
    pub fn add(&mut self, row: &MessageRow) {
        let Some(transfer) = transfer(row) else {
            self.left_out += 1;
            if let Some((ranks, bytes)) = unassigned(row) {
                let sums = self.unassigned.entry(ranks).or_default();
                *sums = (sums.0 + 1, sums.1.saturating_add(bytes));
            }
            return;
        };
        if self.transfers.len() >= self.max_transfers {
            self.beyond_bound += 1;
            return;
        }
        self.transfers.push(transfer);
    }

    /// Divides the messages into operations. Times of different packets may be wrong by
    /// `clock_bound_ns` relative to each other.
    #[must_use]
    pub fn finish(self, clock_bound_ns: i64) -> NcclCollectives {
        let instances = collectives(self.transfers, clock_bound_ns);
        NcclCollectives { instances, left_out: self.left_out, beyond_bound: self.beyond_bound }
    }

    /// Divides the messages by channel, and the data of the profile by rail.
    #[must_use]
    pub fn shares(self, profile: &Profile) -> NcclPathShares {
        let shares = channels::shares(self.transfers, self.unassigned, profile);
        NcclPathShares { shares, left_out: self.left_out, beyond_bound: self.beyond_bound }
    }
}

/// Ranks and length of a message.
fn unassigned(row: &MessageRow) -> Option<(channels::Ranks, u64)> {
    row.identity()?;
    Some(((row.job?, row.src_rank?, row.dst_rank?), row.mpi_bytes()?))
}

fn transfer(row: &MessageRow) -> Option<NcclTransfer> {
    row.identity()?;
    let (src, dst) = (row.src_rank?, row.dst_rank?);
    let is_whole = row.raw.complete && row.raw.times_ns.0 != PacketRecord::NO_TIME;
    is_whole.then_some(NcclTransfer {
        job: row.job?,
        src,
        dst,
        times_ns: row.raw.times_ns,
        bytes: row.mpi_bytes()?,
        receive: row.raw.receive?,
    })
}

/// The operations of these messages, by job and start.
#[must_use]
pub fn collectives(transfers: Vec<NcclTransfer>, clock_bound_ns: i64) -> Vec<NcclCollective> {
    let mut ranks_of: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for transfer in &transfers {
        ranks_of.entry(transfer.job).or_default().extend([transfer.src, transfer.dst]);
    }
    let mut found: Vec<NcclCollective> = Vec::new();
    for communicator in connections::communicators(transfers) {
        let Some(job) = communicator.connections.first().map(|own| own.job) else { continue };
        let is_world = ranks_of.get(&job) == Some(&communicator.ranks);
        let lowest = communicator.ranks.first().copied().unwrap_or_default();
        let name = if is_world { "world".to_owned() } else { lowest.to_string() };
        found.extend(
            split::operations(&communicator, clock_bound_ns)
                .into_iter()
                .zip(1..)
                .map(|(operation, number)| NcclCollective { job, communicator: name.clone(), number, ..operation }),
        );
    }
    found.sort_by(|a, b| (a.job, a.times_ns, &a.communicator).cmp(&(b.job, b.times_ns, &b.communicator)));
    found
}
