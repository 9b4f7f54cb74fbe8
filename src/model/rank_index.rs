//! Finds the rank at an end of a connection.

use super::Profile;
use super::profile::{ConnectionRow, RankRow};
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

/// The job of a connection, and the ranks at its ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionRanks {
    /// The job; `None` if the connection belongs to none, and then both ranks are unknown.
    pub job: Option<u32>,
    /// Rank of the sender in the job's `MPI_COMM_WORLD`.
    pub src: Option<u32>,
    /// Rank of the receiver.
    pub dst: Option<u32>,
}

/// The ranks of a profile, by endpoint and queue pair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankIndex {
    /// The profile assigns connections to jobs. Profiles of versions without jobs do not.
    has_jobs: bool,
    /// Endpoints that belong to one rank of a job, by endpoint and job.
    endpoint_ranks: BTreeMap<(Endpoint, u32), JobRank>,
    queue_pairs: BTreeMap<(Endpoint, Qpn), JobRank>,
    /// Endpoints with queue pairs that are assigned to ranks of a job.
    queue_pair_endpoints: BTreeSet<(Endpoint, u32)>,
}

impl RankIndex {
    /// Indexes the ranks of a profile.
    #[must_use]
    pub fn of(profile: &Profile) -> Self {
        Self { has_jobs: !profile.jobs.is_empty(), ..Self::new(&profile.ranks) }
    }

    /// Indexes the rows of a rank map. Ignores rows with an invalid endpoint, and rows without a
    /// queue pair that assign several ranks of one job to the same endpoint.
    #[must_use]
    pub fn new(rows: &[RankRow]) -> Self {
        let mut whole: BTreeMap<(Endpoint, u32), BTreeSet<JobRank>> = BTreeMap::new();
        let mut queue_pairs = BTreeMap::new();
        for row in rows {
            let Ok(endpoint) = row.endpoint.parse::<Endpoint>() else { continue };
            let rank = JobRank { job: row.job, rank: row.rank };
            match row.qpn {
                Some(qpn) => _ = queue_pairs.insert((endpoint, Qpn::new(qpn)), rank),
                None => _ = whole.entry((endpoint, row.job)).or_default().insert(rank),
            }
        }
        let alone = whole.into_iter().filter_map(|(place, ranks)| match ranks.into_iter().collect::<Vec<_>>()[..] {
            [rank] => Some((place, rank)),
            _ => None,
        });
        let with_queue_pairs =
            queue_pairs.iter().map(|((endpoint, _), rank): (&(Endpoint, Qpn), &JobRank)| (*endpoint, rank.job));
        Self {
            has_jobs: false,
            endpoint_ranks: alone.collect(),
            queue_pair_endpoints: with_queue_pairs.collect(),
            queue_pairs,
        }
    }

    /// The job of a connection and the ranks at its ends. If the profile has no table of jobs, the
    /// job follows from the ranks at the ends, or is job 1 if these do not show exactly one job. An
    /// index without ranks has no job.
    #[must_use]
    pub fn connection(&self, connection: &ConnectionRow) -> ConnectionRanks {
        let ConnectionRow { src, dst, src_qp, dest_qp, .. } = *connection;
        let job = connection.job.or_else(|| {
            let has_ranks = !(self.endpoint_ranks.is_empty() && self.queue_pairs.is_empty());
            (has_ranks && !self.has_jobs).then(|| self.job(connection).unwrap_or(1))
        });
        let Some(job) = job else { return ConnectionRanks::default() };
        let rank = |endpoint, qpn| self.rank_in(job, endpoint, qpn);
        ConnectionRanks { job: Some(job), src: rank(src, src_qp), dst: rank(dst, Some(dest_qp)) }
    }

    /// The job that the ranks at both ends have in common, or the job of the only known end.
    #[must_use]
    pub fn job(&self, connection: &ConnectionRow) -> Option<u32> {
        let jobs = |endpoint, qpn| self.ranks(endpoint, qpn).map(|rank| rank.job).collect::<BTreeSet<u32>>();
        let (src, dst) = (jobs(connection.src, connection.src_qp), jobs(connection.dst, Some(connection.dest_qp)));
        let common = match (src.is_empty(), dst.is_empty()) {
            (true, _) => dst,
            (_, true) => src,
            _ => &src & &dst,
        };
        if common.len() == 1 { common.first().copied() } else { None }
    }

    /// True if this queue pair is assigned to a rank, not only its endpoint.
    #[must_use]
    pub fn has_queue_pair(&self, endpoint: Endpoint, qpn: Qpn) -> bool {
        self.queue_pairs.contains_key(&(endpoint, qpn))
    }

    /// The rank of this job at an endpoint: that of the queue pair, or else that of the endpoint.
    #[must_use]
    pub fn rank_in(&self, job: u32, endpoint: Endpoint, qpn: Option<Qpn>) -> Option<u32> {
        let named = qpn.and_then(|qpn| self.queue_pairs.get(&(endpoint, qpn)));
        // An unknown queue pair may be one that is assigned to another rank, so the rank of the
        // endpoint does not apply if the endpoint has assigned queue pairs.
        let alone = || {
            self.endpoint_ranks.get(&(endpoint, job)).filter(|_| qpn.is_some() || !self.has_queue_pairs(endpoint, job))
        };
        named.or_else(alone).filter(|rank| rank.job == job).map(|rank| rank.rank)
    }

    /// The rank at an endpoint, if only one is possible.
    #[must_use]
    pub fn rank(&self, endpoint: Endpoint, qpn: Option<Qpn>) -> Option<JobRank> {
        let mut ranks = self.ranks(endpoint, qpn);
        ranks.next().filter(|_| ranks.next().is_none())
    }

    /// The possible ranks at an end of a connection: that of its queue pair, or one of each job
    /// that the endpoint belongs to.
    pub fn ranks(&self, endpoint: Endpoint, qpn: Option<Qpn>) -> impl Iterator<Item = JobRank> + '_ {
        let named = qpn.and_then(|qpn| self.queue_pairs.get(&(endpoint, qpn))).copied();
        let alone = self.endpoint_ranks.range((endpoint, 0)..=(endpoint, u32::MAX)).map(|(_, rank)| *rank);
        // An unknown queue pair may be one that is assigned to another rank, so the rank of the
        // endpoint does not apply if the endpoint has assigned queue pairs.
        let may_be = move |rank: &JobRank| qpn.is_some() || !self.has_queue_pairs(endpoint, rank.job);
        named.into_iter().chain(alone.filter(move |rank| named.is_none() && may_be(rank)))
    }

    /// True if queue pairs at the endpoint are assigned to ranks of the job.
    fn has_queue_pairs(&self, endpoint: Endpoint, job: u32) -> bool {
        self.queue_pair_endpoints.contains(&(endpoint, job))
    }
}
