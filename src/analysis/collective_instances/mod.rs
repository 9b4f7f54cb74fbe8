//! The collective operations of a job, one by one, from their messages.
//!
//! In: the collective messages of captures. Out: a row for each operation on each communicator. The
//! stages: `communicators` groups the messages, `split` divides those of a communicator into
//! operations by the schedules of `algorithms`, `composites` joins those that one call may have sent,
//! and `entry` finds the rank that entered last.
//!
//! Invariant: an operation or algorithm that its messages do not determine is `unknown`.

mod algorithms;
mod communicators;
mod composites;
mod entry;
mod exchanges;
#[cfg(test)]
mod forced_programs;
#[cfg(test)]
mod programs;
mod schedule;
#[cfg(test)]
mod simulator;
mod split;
#[cfg(test)]
mod tests;
mod trees;
mod uncertain;

pub use split::Confidence;
pub use uncertain::UncertainOperations;

use super::endpoint_label::{GroupBy, Label};
use super::matrix::{Selection, matrix};
use super::theoretical_minimum::clocks_ns;
use crate::model::nodes::Nodes;
use crate::model::profile::{CoverageState, PairCoverage};
use crate::model::{JobRank, MessageRow, Profile, RankActivity};
use communicators::{CommunicatorMembers, ContextCommunicators};
use ibscope_parsers::mpi::{MPICH_WORLD_LAST, MpiOperation, TagLayout, mpich_leaders_parent};
use split::{CollectiveMessage, JobTimes, OperationMessages};
use std::collections::{BTreeMap, BTreeSet};

/// Most collective messages that are kept in memory, at 64 bytes each and up to 112 bytes for the
/// times of the ranks; later ones are counted only.
pub const MAX_MESSAGES: usize = 1 << 24;

/// Name of `MPI_COMM_WORLD` in outputs.
const WORLD: &str = "world";

/// Share of the reactions of ranks to messages that are shorter than the margin of `entry`: the
/// skew of the last rank must be longer than usual reactions.
const REACTIONS: f64 = 0.95;

/// One collective operation of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectiveInstance {
    /// Number of the job.
    pub job: u32,
    /// True for an operation of NCCL.
    pub is_nccl: bool,
    /// `world`, or context id and lowest world rank of the communicator, as in `3/1`.
    pub communicator: String,
    /// Number of the operation on this communicator, from 1.
    pub number: u64,
    /// The operation.
    pub operation: MpiOperation,
    /// Names of the algorithms that send these messages; empty if unknown.
    pub algorithms: Vec<&'static str>,
    /// Confidence in both.
    pub confidence: Confidence,
    /// True if messages of MPI on this communicator are missing: ibscope may assign messages of later
    /// calls to an earlier one.
    pub misses_messages: bool,
    /// Number of ranks of the communicator, as far as known; `None` if only the leaders of its nodes
    /// are.
    pub ranks: Option<u32>,
    /// Bytes per rank as in the arguments of the call: the vector of an Allreduce, Reduce or Bcast,
    /// one block of other operations.
    pub bytes: Option<u64>,
    /// Time of the first packet, nanoseconds since the epoch.
    pub start_ns: i64,
    /// Time of the last packet.
    pub end_ns: i64,
    /// World rank of the rank that entered last.
    pub last_rank: Option<u32>,
    /// Time from the entry of the rank before it to its entry.
    pub skew_ns: Option<u64>,
    /// Times of the packets of each rank, by rank; ranks without packets on the wire are missing.
    pub activity: Vec<RankActivity>,
}

impl CollectiveInstance {
    /// Duration in nanoseconds.
    #[must_use]
    pub const fn duration_ns(&self) -> i64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    /// Context id of the communicator; `None` for `world` and for communicators of NCCL.
    #[must_use]
    pub fn context(&self) -> Option<u32> {
        self.communicator.split_once('/').and_then(|(context, _)| context.parse().ok())
    }

    /// Bytes per second by the size that nccl-tests use: of an Allgather, Alltoall or
    /// `Reduce_scatter` the blocks of all ranks, of other operations the bytes per rank.
    #[must_use]
    pub fn algbw_bytes_per_s(&self) -> Option<f64> {
        let factor = match self.operation {
            MpiOperation::Allgather
            | MpiOperation::Alltoall
            | MpiOperation::ReduceScatterBlock
            | MpiOperation::Gather
            | MpiOperation::Scatter => f64::from(self.ranks?),
            _ => 1.0,
        };
        let bytes = self.bytes.filter(|bytes| *bytes > 0)?;
        (self.duration_ns() > 0).then(|| bytes as f64 * factor / (self.duration_ns() as f64 / 1e9))
    }

    /// Bytes per second that a rank sends or receives at least, as nccl-tests define it.
    #[must_use]
    pub fn busbw_bytes_per_s(&self) -> Option<f64> {
        let ranks = f64::from(self.ranks?);
        let factor = match self.operation {
            MpiOperation::Allreduce => 2.0 * (ranks - 1.0) / ranks,
            MpiOperation::Bcast | MpiOperation::Reduce => 1.0,
            MpiOperation::Allgather
            | MpiOperation::Allgatherv
            | MpiOperation::Alltoall
            | MpiOperation::ReduceScatter
            | MpiOperation::ReduceScatterBlock
            | MpiOperation::Gather
            | MpiOperation::Scatter => (ranks - 1.0) / ranks,
            _ => return None,
        };
        self.algbw_bytes_per_s().map(|algbw| algbw * factor)
    }
}

/// The operations, and the messages that belong to none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectiveInstances {
    /// The operations by job and start.
    pub instances: Vec<CollectiveInstance>,
    /// Collective messages without job or ranks.
    pub without_ranks: u64,
    /// Collective messages beyond [`MAX_MESSAGES`].
    pub beyond_bound: u64,
}

/// A collective message, with world ranks.
#[derive(Clone, Copy, Debug)]
struct WorldMessage {
    job: u32,
    context: u32,
    src: u32,
    dst: u32,
    /// Rank of the sender in its communicator.
    communicator_rank: u32,
    is_world: bool,
    operation: MpiOperation,
    tag: i32,
    bytes: Option<u64>,
    times_ns: (i64, i64),
    is_first: bool,
}

/// Collects the collective messages of captures.
#[derive(Clone, Debug)]
pub struct CollectiveCollector {
    messages: Vec<WorldMessage>,
    max_messages: usize,
    /// Connections that carried a message.
    used: BTreeSet<u32>,
    without_ranks: u64,
    /// Communicators with messages without ranks.
    contexts_without_ranks: BTreeSet<ContextId>,
    beyond_bound: u64,
}

impl Default for CollectiveCollector {
    fn default() -> Self {
        Self::with_limit(MAX_MESSAGES)
    }
}

impl CollectiveCollector {
    /// Keeps at most `max_messages`.
    pub(crate) const fn with_limit(max_messages: usize) -> Self {
        Self {
            messages: Vec::new(),
            max_messages,
            used: BTreeSet::new(),
            without_ranks: 0,
            contexts_without_ranks: BTreeSet::new(),
            beyond_bound: 0,
        }
    }

    /// Adds a message; point-to-point messages are ignored.
    pub fn add(&mut self, row: &MessageRow) {
        let Some(identity) = row.identity() else { return };
        let is_first = self.used.insert(row.connection);
        let operation = identity.operation();
        if operation == MpiOperation::PointToPoint {
            return;
        }
        let (Some(job), Some(src), Some(dst)) = (row.job, row.src_rank, row.dst_rank) else {
            self.without_ranks += 1;
            self.contexts_without_ranks.insert(context_id(identity.context, identity.world));
            return;
        };
        if self.messages.len() >= self.max_messages {
            self.beyond_bound += 1;
            return;
        }
        self.messages.push(WorldMessage {
            job,
            context: identity.context,
            src,
            dst,
            communicator_rank: identity.rank,
            is_world: identity.world,
            operation,
            tag: identity.tag,
            bytes: row.mpi_bytes(),
            times_ns: row.raw.times_ns,
            is_first,
        });
    }

    /// Divides the messages into operations. `profile` is that of the same captures.
    #[must_use]
    pub fn finish(mut self, profile: &Profile) -> CollectiveInstances {
        self.messages.sort_by_key(|message| (message.job, message.times_ns, message.src, message.dst, message.tag));
        let nodes = Nodes::of(profile);
        let clock_bound_ns = clock_bound_ns(profile);
        let missing = MissingMessageHints::new(self.contexts_without_ranks, profile);
        let mut instances = Vec::new();
        for messages in self.messages.chunk_by(|a, b| a.job == b.job) {
            instances.extend(of_job(messages, &nodes, profile, (clock_bound_ns, &missing)));
        }
        CollectiveInstances { instances, without_ranks: self.without_ranks, beyond_bound: self.beyond_bound }
    }
}

/// Context id of a communicator; `None` for `world`.
type ContextId = Option<u32>;

fn context_id(context: u32, is_world: bool) -> ContextId {
    (!is_world).then_some(context)
}

/// Where collective messages may be missing.
struct MissingMessageHints {
    /// Communicators with messages whose ranks are unknown.
    contexts: BTreeSet<ContextId>,
    /// Pairs of ranks whose capture is not complete.
    pairs: RankPairs,
    /// Pairs of ranks with packets or messages that are missing.
    proven_pairs: RankPairs,
}

impl MissingMessageHints {
    fn new(contexts: BTreeSet<ContextId>, profile: &Profile) -> Self {
        let is_proven = |coverage: &PairCoverage| {
            matches!(coverage.state, CoverageState::Incomplete | CoverageState::Sampled)
                || coverage.missing_packets > 0
                || coverage.missing_messages > 0
        };
        Self {
            contexts,
            pairs: RankPairs::with(profile, |coverage| coverage.state != CoverageState::Complete),
            proven_pairs: RankPairs::with(profile, is_proven),
        }
    }
}

/// Directed pairs of ranks.
struct RankPairs(BTreeSet<(JobRank, JobRank)>);

impl RankPairs {
    /// The pairs of a profile whose coverage fulfills a condition.
    fn with(profile: &Profile, is_wanted: impl Fn(&PairCoverage) -> bool) -> Self {
        let ranks = matrix(profile, GroupBy::Rank, Selection::All);
        let wanted = ranks.rows().filter(|(.., cell)| is_wanted(&cell.coverage));
        let pair = |(src, dst, _): (&Label, &Label, _)| match (src, dst) {
            (Label::Rank(src, _), Label::Rank(dst, _)) => Some((*src, *dst)),
            _ => None,
        };
        Self(wanted.filter_map(pair).collect())
    }

    /// True if two of the ranks are a pair.
    fn has_between(&self, ranks: &BTreeSet<JobRank>) -> bool {
        let of_sender = |src: &JobRank| {
            let [first, last] = [0, u32::MAX].map(|rank| (*src, JobRank { job: src.job, rank }));
            self.0.range(first..=last).any(|(_, dst)| ranks.contains(dst))
        };
        ranks.iter().any(of_sender)
    }
}

/// Bound on the error of a difference of two times: the errors of the inputs' clocks, and the tick of
/// the captures.
pub(crate) fn clock_bound_ns(profile: &Profile) -> i64 {
    let tick_ns = profile.coverage.clock_ns;
    i64::try_from(clocks_ns(profile).saturating_mul(2).saturating_add(tick_ns)).unwrap_or(i64::MAX)
}

/// A communicator that was split into operations.
struct SplitCommunicator {
    name: String,
    ranks: Option<u32>,
    is_of_leaders: bool,
    misses_messages: bool,
    world_ranks: Vec<Option<u32>>,
    messages: Vec<CollectiveMessage>,
    operations: Vec<OperationMessages>,
}

impl SplitCommunicator {
    /// Times of the packets of each rank in one of its operations.
    fn activity(&self, operation: &OperationMessages) -> Vec<RankActivity> {
        // Without ranks in the communicator, messages have world ranks.
        let world = |rank: u32| match self.world_ranks.get(rank as usize) {
            Some(world) => *world,
            None => Some(rank),
        };
        let messages = operation.messages.iter().filter_map(|&index| self.messages.get(index));
        RankActivity::of_messages(
            messages.filter_map(|message| Some((world(message.src)?, world(message.dst)?, message.times_ns))),
        )
    }
}

/// The operations of one job.
fn of_job(
    messages: &[WorldMessage],
    nodes: &Nodes,
    profile: &Profile,
    (clock_bound_ns, missing): (i64, &MissingMessageHints),
) -> Vec<CollectiveInstance> {
    let Some(job) = messages.first().map(|message| message.job) else { return Vec::new() };
    let size = world_size(messages, profile, job);
    let communicators = communicators(messages, size, has_leaders(profile, job));
    let gaps_of = |communicator: &CommunicatorMembers| {
        split::gaps_ns(communicator.messages.iter().filter_map(|&index| Some(messages.get(index)?.times_ns.0)))
    };
    let gaps_ns = communicators.iter().flat_map(|own| gaps_of(&own.members)).collect();
    let times = JobTimes { clock_bound_ns, gap_ns: split::usual_ns(gaps_ns) };
    let split: Vec<SplitCommunicator> =
        communicators.into_iter().map(|own| split_one(own, messages, nodes, (times, missing))).collect();
    let mut reactions: Vec<i64> = Vec::new();
    for one in &split {
        let of =
            |operation: &OperationMessages| entry::reactions(operation, one.world_ranks.len() as u32, &one.messages);
        reactions.extend(one.operations.iter().flat_map(of));
    }
    reactions.sort_unstable();
    let usual_ns = reactions.get((reactions.len() as f64 * REACTIONS) as usize).copied().unwrap_or(0);
    let margin_ns = usual_ns.saturating_add(clock_bound_ns);
    let mut instances: Vec<CollectiveInstance> = split
        .iter()
        .flat_map(|one| one.operations.iter().map(move |operation| instance(job, one, operation, margin_ns)))
        .collect();
    instances.sort_by(|a, b| (a.start_ns, &a.communicator).cmp(&(b.start_ns, &b.communicator)));
    let mut numbers: BTreeMap<String, u64> = BTreeMap::new();
    for instance in &mut instances {
        let number = numbers.entry(instance.communicator.clone()).or_default();
        *number += 1;
        instance.number = *number;
    }
    instances
}

/// Number of ranks of the job: as the profile states it, or as the messages show it.
fn world_size(messages: &[WorldMessage], profile: &Profile, job: u32) -> u32 {
    let of_messages = messages.iter().map(|message| message.src.max(message.dst));
    let of_ranks = profile.ranks.iter().filter(|row| row.job == job).map(|row| row.rank);
    of_messages.chain(of_ranks).max().map_or(0, |rank| rank.saturating_add(1))
}

/// True if the context ids of the job's library show which communicators are those of the leaders of
/// the nodes.
fn has_leaders(profile: &Profile, job: u32) -> bool {
    profile.jobs.iter().any(|row| row.job == job && row.stack.starts_with(TagLayout::Mpich.name()))
}

/// A communicator with its name.
struct NamedCommunicator {
    name: String,
    members: CommunicatorMembers,
    /// Number of its ranks; `None` if `members` are leaders of its nodes.
    ranks: Option<u32>,
    /// True if `members` are the leaders of its nodes.
    is_of_leaders: bool,
}

/// The communicators of a job with their names. With `has_leaders`, messages between the leaders of
/// the nodes are apart, under the name of the communicator whose call sent them.
fn communicators(messages: &[WorldMessage], size: u32, has_leaders: bool) -> Vec<NamedCommunicator> {
    let mut world = CommunicatorMembers::world(size);
    let mut contexts: BTreeMap<(u32, bool), ContextCommunicators> = BTreeMap::new();
    for (index, message) in messages.iter().enumerate() {
        if message.is_world {
            world.messages.push(index);
        } else {
            let pair = (message.src, message.dst);
            let parent = mpich_leaders_parent(message.context).filter(|_| has_leaders);
            let key = (parent.unwrap_or(message.context), parent.is_some());
            contexts.entry(key).or_default().add(index, pair, message.communicator_rank);
        }
    }
    let mut communicators = Vec::new();
    if !world.messages.is_empty() {
        communicators.push(NamedCommunicator {
            name: WORLD.to_owned(),
            members: world,
            ranks: Some(size),
            is_of_leaders: false,
        });
    }
    for ((context, is_of_leaders), found) in contexts {
        // A process that is no leader cannot fill the gaps of a communicator between leaders.
        let processes = if is_of_leaders { u32::MAX } else { size };
        for members in found.into_communicators(processes) {
            let is_world = is_of_leaders && context <= MPICH_WORLD_LAST;
            let lowest = members.lowest().unwrap_or_default();
            let known = members.world_ranks().map_or(members.known(), |ranks| ranks.len()) as u32;
            communicators.push(NamedCommunicator {
                name: if is_world { WORLD.to_owned() } else { format!("{context}/{lowest}") },
                ranks: if is_world { Some(size) } else { (!is_of_leaders).then_some(known) },
                members,
                is_of_leaders,
            });
        }
    }
    communicators
}

fn split_one(
    own: NamedCommunicator,
    messages: &[WorldMessage],
    nodes: &Nodes,
    (times, missing): (JobTimes, &MissingMessageHints),
) -> SplitCommunicator {
    let NamedCommunicator { name, members: communicator, ranks, is_of_leaders } = own;
    let known = communicator.world_ranks();
    let world_ranks = known.clone().unwrap_or_default();
    let number_of: BTreeMap<u32, u32> =
        (0..).zip(&world_ranks).filter_map(|(rank, world)| world.map(|world| (world, rank))).collect();
    let of_message = |index: &usize| {
        let message = messages.get(*index)?;
        Some(CollectiveMessage {
            // Without ranks in the communicator, the world ranks distinguish the members.
            src: if known.is_some() { message.communicator_rank } else { message.src },
            dst: if known.is_some() { *number_of.get(&message.dst)? } else { message.dst },
            operation: message.operation,
            tag: message.tag,
            bytes: message.bytes,
            times_ns: message.times_ns,
            is_first: message.is_first,
        })
    };
    let members: Vec<CollectiveMessage> = communicator.messages.iter().filter_map(of_message).collect();
    let job = messages.first().map_or(0, |message| message.job);
    let world = |rank: u32| world_ranks.get(rank as usize).copied().flatten().map(|rank| JobRank { job, rank });
    let is_visible = |src: u32, dst: u32| match (world(src), world(dst)) {
        (Some(src), Some(dst)) => !nodes.are_shared(src, dst),
        _ => false,
    };
    let mut operations = composites::operations(world_ranks.len() as u32, &members, &is_visible, times);
    let own = || communicator.messages.iter().filter_map(|index| messages.get(*index));
    let ranks_of = |message: &WorldMessage| [message.src, message.dst].map(|rank| JobRank { job, rank });
    let ranks_with_messages: BTreeSet<JobRank> = own().flat_map(ranks_of).collect();
    let misses_messages = own()
        .any(|message| missing.contexts.contains(&context_id(message.context, message.is_world)))
        || missing.proven_pairs.has_between(&ranks_with_messages);
    // If a message is missing, messages of later calls take its place in earlier operations.
    if misses_messages || missing.pairs.has_between(&ranks_with_messages) {
        let sure = operations.iter_mut().filter(|operation| operation.confidence != Confidence::Unknown);
        sure.for_each(|operation| operation.confidence = Confidence::Low);
    }
    SplitCommunicator { name, ranks, is_of_leaders, misses_messages, world_ranks, messages: members, operations }
}

/// True if the leaders of the nodes exchange as many bytes as each rank passed to the call, not the
/// blocks of all ranks of a node.
const fn has_same_bytes(operation: MpiOperation) -> bool {
    matches!(
        operation,
        MpiOperation::Allreduce
            | MpiOperation::Barrier
            | MpiOperation::Bcast
            | MpiOperation::Exscan
            | MpiOperation::Reduce
            | MpiOperation::Scan
    )
}

fn instance(job: u32, one: &SplitCommunicator, operation: &OperationMessages, margin_ns: i64) -> CollectiveInstance {
    let times = operation.messages.iter().filter_map(|&index| one.messages.get(index)).map(|message| message.times_ns);
    let (start_ns, end_ns) = times.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or_default();
    // The leader of a node enters after the other ranks of the node, which the wire does not show.
    let last = if one.is_of_leaders {
        None
    } else {
        entry::last_entry(operation, one.world_ranks.len() as u32, &one.messages, margin_ns)
    };
    let last_rank = last.and_then(|last| one.world_ranks.get(last.rank as usize).copied().flatten());
    CollectiveInstance {
        job,
        is_nccl: false,
        communicator: one.name.clone(),
        number: 0,
        operation: operation.operation,
        algorithms: operation.algorithms.clone(),
        confidence: operation.confidence,
        misses_messages: one.misses_messages,
        ranks: one.ranks,
        bytes: operation.bytes.filter(|_| !one.is_of_leaders || has_same_bytes(operation.operation)),
        start_ns,
        end_ns,
        last_rank,
        skew_ns: last.filter(|_| last_rank.is_some()).and_then(|last| last.skew_ns),
        activity: one.activity(operation),
    }
}
