//! The sums of an application trace: the common form of OTF2 archives and plain tables.

use super::eztrace;
use super::message_sums::MessageSums;
use super::message_times::MessageTimes;
use super::trace_calls::TraceCalls;
use crate::model::HashMap;
use ibscope_parsers::tools::otf2_print::Collective;
use std::collections::{BTreeMap, BTreeSet};

/// Limit of streams with separate tags, some 100 bytes each. A program may use a new tag for each
/// message.
const MAX_STREAMS: usize = 1 << 19;

/// All communication in a trace.
#[derive(Clone, Debug, Default)]
pub struct AppTrace {
    /// The trace, as the user named it.
    pub name: String,
    /// The tracer that wrote it.
    pub tracer: Tracer,
    /// Ranks of `MPI_COMM_WORLD`, with the host if the trace contains it.
    pub ranks: BTreeMap<u32, Option<String>>,
    /// Communicators in the order of their references.
    pub communicators: Vec<TraceCommunicator>,
    /// Messages sent.
    pub sends: TraceMessages,
    /// Messages received.
    pub receives: TraceMessages,
    /// Calls of collective operations.
    pub collectives: BTreeMap<CollectiveKey, CollectiveSums>,
    /// The same calls, one by one.
    pub calls: TraceCalls,
    /// One-sided operations by the rank that sends and the rank that receives the bytes.
    pub rma: BTreeMap<(u32, u32), MessageSums>,
    /// Messages with tag 17 and with tag 18 that the tracer itself must have sent to rank 0, by
    /// sender. Known for eztrace only, from its definitions.
    pub own: BTreeMap<u32, [MessageSums; 2]>,
    /// Number of events.
    pub events: u64,
    /// Time of the first and last event, in nanoseconds of the trace's clock.
    pub times_ns: Option<(i64, i64)>,
    /// Notes for the reader of the result, one sentence each.
    pub notes: Vec<String>,
}

/// The program that wrote a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tracer {
    /// Score-P, with its name and version as recorded in the trace.
    ScoreP(String),
    /// eztrace.
    Eztrace,
    /// Another tracer, with its name as recorded in the trace.
    Other(String),
    /// A table of sums instead of a trace.
    #[default]
    Table,
}

impl Tracer {
    /// The name used in outputs.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::ScoreP(name) | Self::Other(name) => name,
            Self::Eztrace => "eztrace",
            Self::Table => "a table",
        }
    }

    /// A hint on how to make the tracer record point-to-point messages.
    pub(super) const fn how_to_record_messages(&self) -> &'static str {
        match self {
            Self::ScoreP(_) => {
                "Score-P: is p2p among SCOREP_MPI_ENABLE_GROUPS, and does no filter exclude MPI_Send and similar calls?"
            }
            Self::Eztrace => "eztrace: was its module for the MPI library loaded (`eztrace -t openmpi` or `-t mpich`)?",
            Self::Other(_) | Self::Table => "Does the tracer record MPI_Send and the like?",
        }
    }
}

/// A communicator.
#[derive(Clone, Debug, Default)]
pub struct TraceCommunicator {
    /// Name of the communicator, often empty.
    pub name: String,
    /// World ranks of the members, by rank in the communicator.
    pub members: Vec<u32>,
    /// World ranks of the remote group of an intercommunicator.
    pub remote: Option<Vec<u32>>,
    /// True for a communicator of each process alone (`MPI_COMM_SELF`).
    pub is_self: bool,
}

impl TraceCommunicator {
    /// World rank of member `peer`, as seen by `world_rank`; for intercommunicators, a member of
    /// the other group.
    #[must_use]
    pub fn peer(&self, world_rank: u32, peer: u32) -> Option<u32> {
        if self.is_self {
            return Some(world_rank);
        }
        let group = match &self.remote {
            Some(remote) if self.members.contains(&world_rank) => remote,
            _ => &self.members,
        };
        group.get(peer as usize).copied()
    }

    /// The name used in outputs.
    #[must_use]
    pub fn label(&self) -> String {
        let size = self.members.len() + self.remote.as_ref().map_or(0, Vec::len);
        if self.name.is_empty() { format!("unnamed communicator of {size}") } else { self.name.clone() }
    }
}

/// Identifies a stream of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamKey {
    /// World rank of the sender.
    pub src: u32,
    /// World rank of the receiver.
    pub dst: u32,
    /// Index into [`AppTrace::communicators`].
    pub communicator: u32,
    /// Tag; `None` if tags are not distinguished.
    pub tag: Option<i32>,
}

/// Messages of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceStream {
    /// The sums.
    pub sums: MessageSums,
    /// Times of the first and the last message, in nanoseconds of the trace's clock; `None` in
    /// tables.
    pub times_ns: Option<(i64, i64)>,
}

/// Message sums by stream, up to a limit of streams.
#[derive(Clone, Debug, Default)]
pub struct TraceMessages {
    streams: HashMap<StreamKey, TraceStream>,
    folded: bool,
    /// Times of individual messages.
    pub(super) times: MessageTimes<StreamKey>,
}

impl TraceMessages {
    /// Adds messages to a stream. Without room for another stream, all tags but eztrace's are
    /// dropped.
    pub fn add(&mut self, key: StreamKey, stream: TraceStream) {
        if let (1, Some((time_ns, _))) = (stream.sums.messages, stream.times_ns) {
            self.times.add(key, time_ns);
        }
        self.count(key, stream);
    }

    fn count(&mut self, mut key: StreamKey, stream: TraceStream) {
        if self.folded {
            fold(&mut key);
        }
        let entry =
            self.streams.entry(key).or_insert(TraceStream { sums: MessageSums::default(), times_ns: stream.times_ns });
        entry.sums += stream.sums;
        if let (Some(times), Some(others)) = (&mut entry.times_ns, stream.times_ns) {
            *times = (times.0.min(others.0), times.1.max(others.1));
        }
        if !self.folded && self.streams.len() > MAX_STREAMS {
            self.folded = true;
            for (key, stream) in std::mem::take(&mut self.streams) {
                self.count(key, stream);
            }
        }
    }

    /// All streams, sorted.
    #[must_use]
    pub fn sorted(&self) -> BTreeMap<StreamKey, TraceStream> {
        self.streams.iter().map(|(key, stream)| (*key, *stream)).collect()
    }

    /// True if tags are no longer distinguished, because there were too many.
    #[must_use]
    pub const fn is_folded(&self) -> bool {
        self.folded
    }

    /// The sum of all streams.
    #[must_use]
    pub fn total(&self) -> MessageSums {
        let mut total = MessageSums::default();
        self.streams.values().for_each(|stream| total += stream.sums);
        total
    }
}

/// Drops the tag, unless eztrace uses it for its own messages.
pub(super) fn fold(key: &mut StreamKey) {
    key.tag = key.tag.filter(|tag| eztrace::TAGS.contains(tag));
}

/// Identifies calls of a collective operation that are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CollectiveKey {
    /// The operation.
    pub operation: Collective,
    /// Index into [`AppTrace::communicators`].
    pub communicator: u32,
    /// World rank of the root, for operations with a root.
    pub root: Option<u32>,
    /// World rank of the caller.
    pub rank: u32,
}

/// Sums over calls of a collective operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectiveSums {
    /// Number of calls.
    pub calls: u64,
    /// Bytes sent, as the tracer counts them.
    pub sent: u64,
    /// Bytes received, as the tracer counts them.
    pub received: u64,
}

impl AppTrace {
    /// World ranks that are defined or communicate.
    #[must_use]
    pub fn all_ranks(&self) -> BTreeSet<u32> {
        let of_messages = self.sends.streams.keys().flat_map(|key| [key.src, key.dst]);
        self.ranks.keys().copied().chain(of_messages).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_dropped_above_the_limit() {
        let mut messages = TraceMessages::default();
        let one = TraceStream { sums: MessageSums { messages: 1, bytes: 8 }, times_ns: Some((1, 1)) };
        for tag in 0..=MAX_STREAMS as i32 {
            messages.add(StreamKey { src: 0, dst: 1, communicator: 0, tag: Some(tag) }, one);
        }
        assert!(messages.is_folded());
        let streams = messages.sorted();
        let tags: Vec<Option<i32>> = streams.keys().map(|key| key.tag).collect();
        assert_eq!(tags, [None, Some(17), Some(18)]);
        assert_eq!(
            messages.total(),
            MessageSums { messages: MAX_STREAMS as u64 + 1, bytes: 8 * (MAX_STREAMS as u64 + 1) }
        );
    }

    #[test]
    fn peers_are_found_in_every_kind_of_communicator() {
        let group = TraceCommunicator { members: vec![3, 1], ..TraceCommunicator::default() };
        assert_eq!((group.peer(3, 1), group.peer(1, 0), group.peer(1, 2)), (Some(1), Some(3), None));
        let own = TraceCommunicator { is_self: true, ..TraceCommunicator::default() };
        assert_eq!(own.peer(7, 0), Some(7));
        let inter = TraceCommunicator { members: vec![0, 1], remote: Some(vec![2, 3]), ..TraceCommunicator::default() };
        assert_eq!((inter.peer(0, 1), inter.peer(3, 1)), (Some(3), Some(1)));
    }
}
