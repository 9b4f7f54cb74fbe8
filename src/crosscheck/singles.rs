//! What captures tell beyond a profile: messages one by one.

use super::message_sums::Sums;
use super::moments::Moments;
use super::wire::{Ends, WireKey};
use crate::model::{MessageRow, Moved, PacketRecord};
use std::collections::BTreeMap;

/// Single messages on the wire: when those with an envelope came, and what RDMA moved that belongs to no message.
#[derive(Clone, Debug, Default)]
pub struct Singles {
    moments: Moments<(Option<u32>, WireKey)>,
    /// By job; `None` where it was not looked for.
    rdma: Option<BTreeMap<Option<u32>, Rdma>>,
}

/// What RDMA moved, by the rank that the bytes come from and the one that they go to, where these
/// are identified.
pub(super) type Rdma = BTreeMap<Ends, Sums>;

/// Single messages of one job.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobSingles<'a> {
    singles: &'a Singles,
    job: u32,
}

impl<'a> JobSingles<'a> {
    /// The times of a stream; `None` where they were not kept.
    pub(super) fn times_ns(self, key: WireKey) -> Option<&'a [i64]> {
        self.singles.moments.of(&(Some(self.job), key))
    }

    /// What RDMA moved; `None` where it was not looked for.
    pub(super) fn rdma(self, ends: Ends) -> Option<Sums> {
        let of_job = self.singles.rdma.as_ref()?.get(&Some(self.job));
        Some(of_job.and_then(|rdma| rdma.get(&ends)).copied().unwrap_or_default())
    }
}

impl Singles {
    pub(super) const fn of_job(&self, job: u32) -> JobSingles<'_> {
        JobSingles { singles: self, job }
    }

    /// None yet. `with_rdma`: rows that belong to no MPI message will be among them.
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
                self.moments.add((row.job, (src, dst, identity.context, identity.tag)), row.raw.times_ns.0);
            }
            return;
        }
        let bytes = row.raw.length_bytes.unwrap_or(0);
        // Operations of no length, by which libraries wait for the ones before, move nothing.
        let Some(rdma) = self.rdma.as_mut().filter(|_| bytes > 0) else { return };
        let ends: &[Ends] = match row.raw.moved {
            Moved::Write => &[(src, dst)],
            // Its data come from where the request goes to.
            Moved::Read => &[(dst, src)],
            Moved::Atomic => &[(src, dst), (dst, src)],
            Moved::Send | Moved::Datagram => &[],
        };
        for pair in ends {
            let of_job = rdma.entry(row.job).or_default();
            *of_job.entry(*pair).or_default() += Sums { messages: 1, bytes };
        }
    }

    /// When all have been added.
    #[must_use]
    pub fn sorted(mut self) -> Self {
        self.moments.sort();
        self
    }
}
