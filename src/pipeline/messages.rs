//! Captures -> single messages, with the ranks that the whole of the captures tells.
//!
//! Which library, which ranks and which inputs count is known when everything has been read. So messages wait in spills, one per
//! shard, and come out merged by the time of their last packet. Those of a shard come as they were complete, so that a message which never was
//! comes after its time.

use super::analysis;
use super::conclude::Finished;
use super::spill;
use super::{Error, Options};
use crate::flow::Depth;
use crate::model::{ConnectionRanks, MessageRow, Profile, RankIndex, RawMessage, UnknownJob};
use crate::ranks::Detection;
use ibscope_parsers::mpi::Form;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::path::PathBuf;

/// Messages, and the profile that they belong to.
pub struct MessageStream {
    profile: Profile,
    ranks: RankIndex,
    detection: Detection,
    with_transport: bool,
    sources: Vec<Source>,
    /// The next message of each source, the earliest on top.
    next: BinaryHeap<Reverse<(i64, usize)>>,
}

/// The messages of one shard of one input.
struct Source {
    /// By number of the connection in the tracker: its row in the profile, where this input counts for it.
    connections: Vec<Option<u32>>,
    messages: spill::Messages,
    head: Option<RawMessage>,
}

/// Analyses captures for their messages, in the order in which they were complete, incomplete ones last. `with_transport` asks for transport
/// messages that belong to no MPI message too. `progress` is told the bytes read so far, now and then.
pub fn messages(
    paths: &[PathBuf],
    options: &Options,
    with_transport: bool,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<MessageStream, Error> {
    let depth = if with_transport { Depth::TransportMessages } else { Depth::Messages };
    let Finished { profile, detection, spills } = analysis::run(paths, options, depth, progress)?;
    let mut stream = MessageStream {
        ranks: RankIndex::of(&profile),
        profile,
        detection,
        with_transport,
        sources: Vec::new(),
        next: BinaryHeap::new(),
    };
    for (connections, spill) in spills {
        let messages = spill.read().map_err(Error::Spill)?;
        stream.sources.push(Source { connections, messages, head: None });
        stream.advance(stream.sources.len() - 1).map_err(Error::Spill)?;
    }
    Ok(stream)
}

impl MessageStream {
    /// What the same captures add up to.
    #[must_use]
    pub const fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Leaves out inferred ranks.
    pub fn leave_out_inferred(&mut self) {
        self.profile.leave_out_inferred();
        self.ranks = RankIndex::of(&self.profile);
    }

    /// Keeps the messages of one job, and its part of the profile.
    pub fn only_job(&mut self, job: u32) -> Result<(), UnknownJob> {
        let numbers = self.profile.only_job(job)?;
        let kept = |connection: u32| numbers.get(connection as usize).copied().flatten();
        for connection in self.sources.iter_mut().flat_map(|source| &mut source.connections) {
            *connection = connection.and_then(kept);
        }
        self.ranks = RankIndex::of(&self.profile);
        Ok(())
    }

    fn advance(&mut self, index: usize) -> io::Result<()> {
        let source = &mut self.sources[index];
        source.head = source.messages.next().transpose()?;
        if let Some(message) = &source.head {
            self.next.push(Reverse((message.times_ns.1, index)));
        }
        Ok(())
    }

    /// The message as it is shown, if it is to be.
    fn row(&self, index: usize, raw: RawMessage) -> Option<MessageRow> {
        let connection = self.sources[index].connections.get(raw.connection as usize).copied().flatten()?;
        let row = self.profile.connections.get(connection as usize)?;
        let mpi = raw.mpi.and_then(|(form, matching, protocol)| {
            let (detected, layout) = self.detection.reading(&row.key())?;
            // Messages of NCCL are seen on all connections that carry a part of them, and count on one.
            let counts = form != Form::Nccl || row.traffic.p2p_messages > 0;
            let identity = matching.identity(layout).filter(|_| detected == form && counts)?;
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

impl Iterator for MessageStream {
    type Item = io::Result<MessageRow>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Reverse((_, index)) = self.next.pop()?;
            let raw = self.sources[index].head.take();
            if let Err(error) = self.advance(index) {
                return Some(Err(error));
            }
            if let Some(row) = raw.and_then(|raw| self.row(index, raw)) {
                return Some(Ok(row));
            }
        }
    }
}
