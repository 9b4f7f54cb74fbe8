//! What a trace of the application says, added up: the common form of OTF2 archives and plain tables.

use super::eztrace;
use super::message_sums::Sums;
use super::moments::Moments;
use crate::model::HashMap;
use ibscope_parsers::tools::otf2_print::Collective;
use std::collections::{BTreeMap, BTreeSet};

/// Streams that are kept apart by tag, some 100 bytes each. A program that gives each message a tag of its own would have any number.
const MAX_STREAMS: usize = 1 << 19;

/// Everything that a trace says of communication.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// What was read, as the user named it.
    pub name: String,
    /// What wrote it.
    pub tracer: Tracer,
    /// Ranks of `MPI_COMM_WORLD`, with the host where the trace tells it.
    pub ranks: BTreeMap<u32, Option<String>>,
    /// Communicators in the order of their references.
    pub communicators: Vec<Communicator>,
    /// Messages that were sent.
    pub sends: Messages,
    /// Messages that were received.
    pub receives: Messages,
    /// Calls of collective operations.
    pub collectives: BTreeMap<CollectiveKey, CollectiveSums>,
    /// One-sided operations by the rank that sends and the one that receives the bytes.
    pub rma: BTreeMap<(u32, u32), Sums>,
    /// Messages that the tracer must have sent rank 0 itself, by sender: those of tag 17, and those
    /// of tag 18. eztrace's definitions prove them; of other tracers none are known.
    pub own: BTreeMap<u32, [Sums; 2]>,
    /// Events read.
    pub events: u64,
    /// Time of the first and last event, in nanoseconds of the trace's clock.
    pub times_ns: Option<(i64, i64)>,
    /// Things the reader of the result must know, one sentence each.
    pub notes: Vec<String>,
}

/// What wrote a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tracer {
    /// Score-P, with what it calls itself.
    ScoreP(String),
    /// eztrace.
    Eztrace,
    /// Another one, with what it calls itself.
    Other(String),
    /// Not a trace but sums.
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

    /// How point-to-point messages come into its traces.
    pub(super) const fn how_to_record_messages(&self) -> &'static str {
        match self {
            Self::ScoreP(_) => {
                "Score-P: is p2p among SCOREP_MPI_ENABLE_GROUPS, and does no filter exclude MPI_Send and the like?"
            }
            Self::Eztrace => "eztrace: was its module of the MPI library loaded (`eztrace -t openmpi` or `-t mpich`)?",
            Self::Other(_) | Self::Table => "Does the tracer record MPI_Send and the like?",
        }
    }
}

/// A communicator.
#[derive(Clone, Debug, Default)]
pub struct Communicator {
    /// Its name, often empty.
    pub name: String,
    /// World ranks of its members, by rank in it.
    pub members: Vec<u32>,
    /// Those of the other group of an intercommunicator.
    pub remote: Option<Vec<u32>>,
    /// Each process alone.
    pub is_self: bool,
}

impl Communicator {
    /// World rank of the other side of a message of `world_rank`.
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

    /// How it is called in outputs.
    #[must_use]
    pub fn label(&self) -> String {
        let size = self.members.len() + self.remote.as_ref().map_or(0, Vec::len);
        if self.name.is_empty() { format!("unnamed communicator of {size}") } else { self.name.clone() }
    }
}

/// Which messages are one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamKey {
    /// World rank of the sender.
    pub src: u32,
    /// World rank of the receiver.
    pub dst: u32,
    /// Index into [`Trace::communicators`].
    pub communicator: u32,
    /// Tag; `None` where there are too many to keep them apart.
    pub tag: Option<i32>,
}

/// Messages of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// The sums.
    pub sums: Sums,
    /// Times of the first and the last of them, in nanoseconds of the trace's clock; none in tables.
    pub times_ns: Option<(i64, i64)>,
}

/// Streams of messages, not more than can be held.
#[derive(Clone, Debug, Default)]
pub struct Messages {
    streams: HashMap<StreamKey, Stream>,
    folded: bool,
    /// Times of single messages.
    pub(super) moments: Moments<StreamKey>,
}

impl Messages {
    /// Adds messages.
    pub fn add(&mut self, key: StreamKey, stream: Stream) {
        if let (1, Some((time_ns, _))) = (stream.sums.messages, stream.times_ns) {
            self.moments.add(key, time_ns);
        }
        self.count(key, stream);
    }

    fn count(&mut self, mut key: StreamKey, stream: Stream) {
        if self.folded {
            fold(&mut key);
        }
        let held = self.streams.entry(key).or_insert(Stream { sums: Sums::default(), times_ns: stream.times_ns });
        held.sums += stream.sums;
        if let (Some(times), Some(others)) = (&mut held.times_ns, stream.times_ns) {
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
    pub fn sorted(&self) -> BTreeMap<StreamKey, Stream> {
        self.streams.iter().map(|(key, stream)| (*key, *stream)).collect()
    }

    /// Tags are no longer told apart: there were too many.
    #[must_use]
    pub const fn is_folded(&self) -> bool {
        self.folded
    }

    /// What all streams add up to.
    #[must_use]
    pub fn total(&self) -> Sums {
        let mut total = Sums::default();
        self.streams.values().for_each(|stream| total += stream.sums);
        total
    }
}

/// Forgets a tag, but for those of eztrace's own messages.
pub(super) fn fold(key: &mut StreamKey) {
    key.tag = key.tag.filter(|tag| eztrace::TAGS.contains(tag));
}

/// Which calls of collective operations are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CollectiveKey {
    /// The operation.
    pub operation: Collective,
    /// Index into [`Trace::communicators`].
    pub communicator: u32,
    /// World rank of the root, where there is one.
    pub root: Option<u32>,
    /// World rank of the caller.
    pub rank: u32,
}

/// Calls of a collective operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectiveSums {
    /// Calls.
    pub calls: u64,
    /// Bytes sent, as the tracer counts them.
    pub sent: u64,
    /// Bytes received, as the tracer counts them.
    pub received: u64,
}

impl Trace {
    /// World ranks that communicate or are known.
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
    fn tags_are_forgotten_where_there_are_too_many() {
        let mut messages = Messages::default();
        let one = Stream { sums: Sums { messages: 1, bytes: 8 }, times_ns: Some((1, 1)) };
        for tag in 0..=MAX_STREAMS as i32 {
            messages.add(StreamKey { src: 0, dst: 1, communicator: 0, tag: Some(tag) }, one);
        }
        assert!(messages.is_folded());
        let streams = messages.sorted();
        let tags: Vec<Option<i32>> = streams.keys().map(|key| key.tag).collect();
        assert_eq!(tags, [None, Some(17), Some(18)]);
        assert_eq!(messages.total(), Sums { messages: MAX_STREAMS as u64 + 1, bytes: 8 * (MAX_STREAMS as u64 + 1) });
    }

    #[test]
    fn peers_are_found_in_every_kind_of_communicator() {
        let group = Communicator { members: vec![3, 1], ..Communicator::default() };
        assert_eq!((group.peer(3, 1), group.peer(1, 0), group.peer(1, 2)), (Some(1), Some(3), None));
        let own = Communicator { is_self: true, ..Communicator::default() };
        assert_eq!(own.peer(7, 0), Some(7));
        let inter = Communicator { members: vec![0, 1], remote: Some(vec![2, 3]), ..Communicator::default() };
        assert_eq!((inter.peer(0, 1), inter.peer(3, 1)), (Some(3), Some(1)));
    }
}
