//! Individual messages on the wire, which captures contain and profiles do not.

use super::message_sums::MessageSums;
use super::message_times::MessageTimes;
use super::wire::{RankEnds, WireKey};
use super::wire_operation::WireOperation;
use crate::model::{MessageRow, PacketRecord, Verb};
use std::collections::BTreeMap;

/// Individual messages on the wire: the times of messages with an envelope, and RDMA operations
/// that belong to no message.
#[derive(Clone, Debug, Default)]
pub struct SingleMessages {
    times: MessageTimes<(Option<u32>, WireKey)>,
    /// RDMA by job; `None` if it is not collected.
    rdma: Option<BTreeMap<Option<u32>, RdmaByRanks>>,
    /// Collective operations; `None` if they are unknown.
    operations: Option<Vec<WireOperation>>,
}

/// RDMA operations and bytes by the rank that the bytes come from and the rank that they go to.
pub(super) type RdmaByRanks = BTreeMap<RankEnds, MessageSums>;

/// Individual messages of one job.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobMessages<'a> {
    messages: &'a SingleMessages,
    job: u32,
}

impl<'a> JobMessages<'a> {
    /// The times of a stream; `None` if they were not kept.
    pub(super) fn times_ns(self, key: WireKey) -> Option<&'a [i64]> {
        self.messages.times.of(&(Some(self.job), key))
    }

    /// The RDMA between two ranks; `None` if it was not collected.
    pub(super) fn rdma(self, ends: RankEnds) -> Option<MessageSums> {
        let of_job = self.messages.rdma.as_ref()?.get(&Some(self.job));
        Some(of_job.and_then(|rdma| rdma.get(&ends)).copied().unwrap_or_default())
    }

    /// The collective operations of the job in the order of their starts; `None` if they are
    /// unknown.
    pub(super) fn operations(self) -> Option<Vec<&'a WireOperation>> {
        let operations = self.messages.operations.as_ref()?;
        let mut of_job: Vec<&WireOperation> = operations.iter().filter(|own| own.job == self.job).collect();
        of_job.sort_by_key(|own| (own.start_ns, own.end_ns, own.number));
        Some(of_job)
    }
}

impl SingleMessages {
    pub(super) const fn of_job(&self, job: u32) -> JobMessages<'_> {
        JobMessages { messages: self, job }
    }

    /// An empty collection. `with_rdma`: also collect RDMA operations that belong to no MPI
    /// message.
    #[must_use]
    pub fn new(with_rdma: bool) -> Self {
        Self { rdma: with_rdma.then(BTreeMap::new), ..Self::default() }
    }

    /// Adds a message.
    pub fn add(&mut self, row: &MessageRow) {
        let (src, dst) = (row.src_rank, row.dst_rank);
        if let Some(identity) = row.identity() {
            let is_timed = !identity.collective && row.raw.times_ns.0 != PacketRecord::NO_TIME;
            if let Some((src, dst)) = src.zip(dst).filter(|_| is_timed) {
                self.times.add((row.job, (src, dst, identity.context, identity.tag)), row.raw.times_ns.0);
            }
            return;
        }
        let bytes = row.raw.length_bytes.unwrap_or(0);
        // Operations of length 0, with which libraries wait for earlier ones, move no data.
        let Some(rdma) = self.rdma.as_mut().filter(|_| bytes > 0) else { return };
        let ends: &[RankEnds] = match row.raw.transfer_verb {
            Verb::Write => &[(src, dst)],
            // The data of a READ comes from the receiver of the request.
            Verb::Read => &[(dst, src)],
            Verb::Atomic => &[(src, dst), (dst, src)],
            Verb::Send | Verb::Datagram => &[],
        };
        for pair in ends {
            let of_job = rdma.entry(row.job).or_default();
            *of_job.entry(*pair).or_default() += MessageSums { messages: 1, bytes };
        }
    }

    /// Adds the collective operations that the messages form.
    #[must_use]
    pub fn with_operations(mut self, operations: Vec<WireOperation>) -> Self {
        self.operations = Some(operations);
        self
    }

    /// Sorts the times of each stream, after all messages were added.
    #[must_use]
    pub fn sorted(mut self) -> Self {
        self.times.sort();
        self
    }
}
