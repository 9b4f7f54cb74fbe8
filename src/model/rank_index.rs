//! From an end of a connection to the rank behind it.

use super::profile::RankRow;
use ibscope_parsers::{Endpoint, Qpn};
use std::collections::{BTreeMap, BTreeSet};

/// A rank of a job. Sorted by job, then by rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobRank {
    /// Number of the job.
    pub job: u32,
    /// Rank in its `MPI_COMM_WORLD`.
    pub rank: u32,
}

/// The ranks of a profile, by endpoint and queue pair.
#[derive(Clone, Debug, Default)]
pub struct RankIndex {
    /// Endpoints that are one rank as a whole.
    alone: BTreeMap<Endpoint, JobRank>,
    queue_pairs: BTreeMap<(Endpoint, Qpn), JobRank>,
}

impl RankIndex {
    /// Indexes the rows of a rank map. Rows whose endpoint is no address name nothing; nor do rows of two ranks without queue pairs at one endpoint.
    #[must_use]
    pub fn new(rows: &[RankRow]) -> Self {
        let mut whole: BTreeMap<Endpoint, BTreeSet<JobRank>> = BTreeMap::new();
        let mut queue_pairs = BTreeMap::new();
        for row in rows {
            let Ok(endpoint) = row.endpoint.parse::<Endpoint>() else { continue };
            let rank = JobRank { job: row.job, rank: row.rank };
            match row.qpn {
                Some(qpn) => _ = queue_pairs.insert((endpoint, Qpn::new(qpn)), rank),
                None => _ = whole.entry(endpoint).or_default().insert(rank),
            }
        }
        let alone = whole.into_iter().filter_map(|(endpoint, ranks)| match ranks.into_iter().collect::<Vec<_>>()[..] {
            [rank] => Some((endpoint, rank)),
            _ => None,
        });
        Self { alone: alone.collect(), queue_pairs }
    }

    /// The rank at an endpoint: that of the queue pair, or that of the endpoint as a whole.
    #[must_use]
    pub fn rank(&self, endpoint: Endpoint, qpn: Option<Qpn>) -> Option<JobRank> {
        let first = (endpoint, Qpn::new(0));
        let has_several = || self.queue_pairs.range(first..).next().is_some_and(|((other, _), _)| *other == endpoint);
        match qpn {
            Some(qpn) => self.queue_pairs.get(&(endpoint, qpn)).or_else(|| self.alone.get(&endpoint)).copied(),
            // It may be any of them.
            None if has_several() => None,
            None => self.alone.get(&endpoint).copied(),
        }
    }
}
