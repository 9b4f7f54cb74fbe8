//! Individual messages of captures, with the ranks that the whole analysis infers.
//!
//! The library, the ranks, and the inputs from which each connection is counted are known only at
//! the end. Messages therefore wait in spills, one per shard, and are merged by the time of their
//! last packet. Within a shard, messages come in order of completion. Messages that are incomplete
//! at the end of the capture follow, so their last packets may be earlier than those of the
//! messages before them.

use super::conclude::AnalysisResult;
use super::run;
use super::spill;
use super::{AnalysisOptions, PipelineError};
use crate::flow::Depth;
use crate::model::{ConnectionRanks, MessageRow, Profile, RankIndex, RawMessage, UnknownJob};
use crate::ranks::Detection;
use ibscope_parsers::mpi::LibraryStack;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::path::PathBuf;

/// Iterator over the messages, with the profile of the same captures.
pub struct MessageIter {
    profile: Profile,
    ranks: RankIndex,
    detection: Detection,
    with_transport: bool,
    sources: Vec<ShardMessages>,
    /// The next message of each source, the earliest on top.
    next: BinaryHeap<Reverse<(i64, usize)>>,
}

/// The messages of one shard of one input.
struct ShardMessages {
    /// Row of each connection in the profile, by its number in the tracker; `None` if the profile
    /// counts the connection from other inputs only.
    connections: Vec<Option<u32>>,
    messages: spill::SpillReader,
    next: Option<RawMessage>,
}

/// Analyzes captures for their messages, in the order that the module describes. `with_transport`
/// includes transport messages that belong to no MPI message. Calls `progress` from time to time
/// with the number of bytes read so far.
pub fn messages(
    paths: &[PathBuf],
    options: &AnalysisOptions,
    with_transport: bool,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<MessageIter, PipelineError> {
    let depth = if with_transport { Depth::TransportMessages } else { Depth::Messages };
    let AnalysisResult { profile, detection, spills } = run::run(paths, options, depth, progress)?;
    let mut stream = MessageIter {
        ranks: RankIndex::of(&profile),
        profile,
        detection,
        with_transport,
        sources: Vec::new(),
        next: BinaryHeap::new(),
    };
    for (connections, spill) in spills {
        let messages = spill.read().map_err(PipelineError::Spill)?;
        stream.sources.push(ShardMessages { connections, messages, next: None });
        stream.advance(stream.sources.len() - 1).map_err(PipelineError::Spill)?;
    }
    Ok(stream)
}

impl MessageIter {
    /// The profile of the same captures.
    #[must_use]
    pub const fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Drops inferred ranks.
    pub fn drop_inferred_ranks(&mut self) {
        self.profile.drop_inferred_ranks();
        self.ranks = RankIndex::of(&self.profile);
    }

    /// Keeps the messages of one job, and its part of the profile.
    pub fn keep_job(&mut self, job: u32) -> Result<(), UnknownJob> {
        let numbers = self.profile.keep_job(job)?;
        let kept = |connection: u32| numbers.get(connection as usize).copied().flatten();
        for connection in self.sources.iter_mut().flat_map(|source| &mut source.connections) {
            *connection = connection.and_then(kept);
        }
        self.ranks = RankIndex::of(&self.profile);
        Ok(())
    }

    fn advance(&mut self, index: usize) -> io::Result<()> {
        let source = &mut self.sources[index];
        source.next = source.messages.next().transpose()?;
        if let Some(message) = &source.next {
            self.next.push(Reverse((message.times_ns.1, index)));
        }
        Ok(())
    }

    /// The row of a message, or `None` if the message does not count.
    fn row(&self, index: usize, raw: RawMessage) -> Option<MessageRow> {
        let connection = self.sources[index].connections.get(raw.connection as usize).copied().flatten()?;
        let row = self.profile.connections.get(connection as usize)?;
        let mpi = raw.mpi.and_then(|(stack, matching, protocol)| {
            let (detected, layout) = self.detection.stack_and_layout(&row.key())?;
            // Each connection that carries a part of an NCCL message yields the message, which
            // counts on one of them only.
            let counts = stack != LibraryStack::Nccl || row.traffic.p2p_messages > 0;
            let identity = matching.identity(layout).filter(|_| detected == stack && counts)?;
            Some((identity, protocol))
        });
        let ConnectionRanks { job, src, dst } = self.ranks.connection(row);
        (mpi.is_some() || self.with_transport).then_some(MessageRow {
            connection,
            job,
            src_rank: src,
            dst_rank: dst,
            mpi,
            raw,
        })
    }
}

impl Iterator for MessageIter {
    type Item = io::Result<MessageRow>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Reverse((_, index)) = self.next.pop()?;
            let raw = self.sources[index].next.take();
            if let Err(error) = self.advance(index) {
                return Some(Err(error));
            }
            if let Some(row) = raw.and_then(|raw| self.row(index, raw)) {
                return Some(Ok(row));
            }
        }
    }
}
