//! Restricts a profile to one job, or to the ranks that messages name.
//!
//! Tables refer to connections by row number. These numbers are updated, so that the result is a
//! valid profile.

use super::paths::{FilteredPaths, PathFilter};
use super::profile::{ConnectionRow, JobRow, RankRow, UnassignedRow};
use super::{ClassSelection, JobRank, PackedRows, Profile, RankIndex};
use ibscope_parsers::{Endpoint, Qpn};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// A job that the profile does not contain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the profile has no job {job}; {}", describe_jobs(.jobs))]
pub struct UnknownJob {
    /// The requested number.
    pub job: u32,
    /// The jobs of the profile.
    pub jobs: Vec<JobRow>,
}

/// The jobs as part of a sentence.
fn describe_jobs(jobs: &[JobRow]) -> String {
    if jobs.is_empty() {
        return "no job was detected: no messages of an MPI library, and no ranks".to_owned();
    }
    let all: Vec<String> = jobs.iter().map(JobRow::describe).collect();
    format!("its jobs are: {}", all.join("; "))
}

impl JobRow {
    /// The job in short: `job 2 (Slurm 4711): Open MPI UCX rc_verbs, 4 ranks`.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut text = format!("job {}", self.job);
        if let Some(id) = &self.slurm_job_id {
            let _ = write!(text, " (Slurm {id})");
        }
        let library = if self.stack.is_empty() { "unknown library" } else { &self.stack };
        let ranks = match self.ranks {
            0 => "no rank is known".to_owned(),
            1 => "1 rank".to_owned(),
            count => format!("{count} ranks"),
        };
        let _ = write!(text, ": {library}, {ranks}");
        text
    }
}

/// Reason for queue pairs whose rank was inferred.
const LEFT_OUT: &str = "inferred; left out by --strict";

impl Profile {
    /// Keeps the traffic, ranks and queue pairs of one job. Counts over whole captures and notes do
    /// not change. Returns the new number of each connection by its old one; `None` if it is
    /// removed.
    pub fn keep_job(&mut self, job: u32) -> Result<Vec<Option<u32>>, UnknownJob> {
        let jobs = self.jobs_or_first();
        if !jobs.iter().any(|row| row.job == job) {
            return Err(UnknownJob { job, jobs });
        }
        let ranks = RankIndex::of(self);
        let mut kept = 0..;
        let numbers: Vec<Option<u32>> = self
            .connections
            .iter()
            .map(|row| if ranks.connection(row).job == Some(job) { kept.next() } else { None })
            .collect();
        self.renumber(&numbers);
        self.ranks.retain(|row| row.job == job);
        // A queue pair of unknown job may belong to this one.
        self.unassigned.retain(|row| row.job.is_none_or(|own| own == job));
        self.jobs.retain(|row| row.job == job);
        self.keep_connection_messages();
        self.parts = None;
        Ok(numbers)
    }

    /// The table of jobs. A profile of a version without this table has one job, with all ranks.
    fn jobs_or_first(&self) -> Vec<JobRow> {
        if !self.jobs.is_empty() || self.ranks.is_empty() {
            return self.jobs.clone();
        }
        let stack = self.connections.iter().find_map(|row| row.stack.clone()).unwrap_or_default();
        let ranks = self.ranks.iter().map(|row| row.rank).collect::<BTreeSet<_>>().len() as u32;
        vec![JobRow { job: 1, stack, ranks, ..JobRow::default() }]
    }

    /// Keeps the connections with packets that the filter accepts. A connection that also has other
    /// packets is kept whole, because only its packets and bytes are known by path fields.
    pub fn keep_paths(&mut self, filter: &PathFilter) -> FilteredPaths {
        let mut left = FilteredPaths::default();
        let mut kept = 0..;
        let mut number = |row: &ConnectionRow| {
            let packets = |accepted: bool| {
                let paths = row.paths.iter().filter(move |sums| filter.accepts(sums.fields) == accepted);
                paths.map(|sums| sums.packets).sum::<u64>()
            };
            if packets(true) == 0 {
                return None;
            }
            left.connections += 1;
            left.mixed_connections += u64::from(packets(false) > 0);
            left.other_packets += packets(false);
            kept.next()
        };
        let numbers: Vec<Option<u32>> = self.connections.iter().map(&mut number).collect();
        // A sender may have connections of both kinds.
        self.drop_senders();
        self.renumber(&numbers);
        self.parts = None;
        left
    }

    /// Keeps the connections of these classes.
    pub fn keep_classes(&mut self, classes: ClassSelection) {
        let mut kept = 0..;
        let numbers: Vec<Option<u32>> =
            self.connections.iter().map(|row| if classes.contains(row.class) { kept.next() } else { None }).collect();
        self.renumber(&numbers);
        self.parts = None;
    }

    /// Keeps the connections with a new number, and their rows in all tables.
    fn renumber(&mut self, numbers: &[Option<u32>]) {
        let mut keeps = numbers.iter().map(Option::is_some);
        self.connections.retain(|_| keeps.next().unwrap_or(false));
        self.timeline.retain_mut(|row| renumber_one(&mut row.connection, numbers));
        self.senders.retain_mut(|row| renumber_one(&mut row.connection, numbers));
        self.collectives.retain_mut(|row| renumber_one(&mut row.connection, numbers));
        if let Some(streams) = &mut self.streams {
            streams.retain_mut(|row| renumber_one(&mut row.connection, numbers));
        }
        if let Some(storage) = &mut self.storage {
            storage.retain_mut(|row| renumber_one(&mut row.connection, numbers));
        }
        retain(&mut self.sizes, |row| renumber_one(&mut row.connection, numbers));
        retain(&mut self.health, |row| renumber_one(&mut row.connection, numbers));
        let latencies = retain(&mut self.latencies, |row| renumber_one(&mut row.connection, numbers));
        self.latency_timeline.retain_mut(|row| renumber_one(&mut row.latency, &latencies));
    }

    /// Keeps the connection management messages of the remaining connections: messages with one of
    /// their queue pairs, and the other messages of the same exchange.
    fn keep_connection_messages(&mut self) {
        let ends = self
            .connections
            .iter()
            .flat_map(|row| [row.src_qp.map(|qpn| (row.src, qpn)), Some((row.dst, row.dest_qp))].into_iter().flatten());
        let queue_pairs: BTreeSet<(Endpoint, Qpn)> = ends.collect();
        let named = self.cm.iter().filter(|row| row.qpn.is_some_and(|qpn| queue_pairs.contains(&(row.src, qpn))));
        let exchanges: BTreeSet<(Endpoint, u32)> = named
            .flat_map(|row| [Some((row.src, row.local_comm_id)), row.remote_comm_id.map(|id| (row.dst, id))])
            .flatten()
            .collect();
        self.cm.retain(|row| {
            exchanges.contains(&(row.src, row.local_comm_id))
                || row.remote_comm_id.is_some_and(|id| exchanges.contains(&(row.dst, id)))
        });
    }

    /// Removes inferred ranks; their queue pairs become unassigned.
    pub fn drop_inferred_ranks(&mut self) {
        let (inferred, named): (Vec<RankRow>, Vec<RankRow>) = self.ranks.drain(..).partition(|row| row.inferred);
        self.ranks = named;
        if inferred.is_empty() {
            return;
        }
        let ranks = RankIndex::new(&inferred);
        let mut left_out: BTreeSet<(Endpoint, Qpn, u32)> = BTreeSet::new();
        for row in self.connections.iter().filter(|row| row.stack.is_some() || row.one_sided.is_some()) {
            for (endpoint, qpn) in [(row.src, row.src_qp), (row.dst, Some(row.dest_qp))] {
                let rank = qpn.and_then(|qpn| Some((qpn, ranks.rank(endpoint, Some(qpn))?)));
                let is_of_job = |job: u32| row.job.is_none_or(|own| own == job);
                if let Some((qpn, JobRank { job, .. })) = rank.filter(|(_, rank)| is_of_job(rank.job)) {
                    left_out.insert((endpoint, qpn, job));
                }
            }
        }
        self.unassigned.extend(left_out.into_iter().map(|(endpoint, qpn, job)| UnassignedRow {
            job: Some(job),
            endpoint: endpoint.to_string(),
            qpn: qpn.value(),
            reason: LEFT_OUT.to_owned(),
        }));
        self.unassigned.sort_by_cached_key(|row| (row.endpoint.parse::<Endpoint>().ok(), row.qpn));
        for job in &mut self.jobs {
            let ranks: BTreeSet<u32> = self.ranks.iter().filter(|row| row.job == job.job).map(|row| row.rank).collect();
            job.ranks = ranks.len() as u32;
        }
    }
}

/// Replaces a number by its new one. Returns false if it has none.
fn renumber_one(number: &mut u32, numbers: &[Option<u32>]) -> bool {
    let new = numbers.get(*number as usize).copied().flatten();
    new.map(|new| *number = new).is_some()
}

/// Keeps the rows for which `keeps` returns true. Returns the new number of each row by its old
/// one.
fn retain<T: Serialize + DeserializeOwned>(
    rows: &mut PackedRows<T>,
    mut keeps: impl FnMut(&mut T) -> bool,
) -> Vec<Option<u32>> {
    let mut kept = PackedRows::default();
    let mut numbers = Vec::with_capacity(rows.len());
    for mut row in rows.iter() {
        let keeps = keeps(&mut row);
        numbers.push(keeps.then_some(kept.len() as u32));
        if keeps {
            kept.push(&row);
        }
    }
    *rows = kept;
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::profile::{
        CmRow, CollectiveRow, ConnectionRow, HealthRow, LatencyBin, LatencyRow, PairCoverage, RetransmissionSums,
        TimelineRow, Traffic,
    };
    use crate::model::{Health, Interval, Recorder, SizeClass, TimingKey, TrafficKind, Verb};

    fn endpoint(lid: u16) -> Endpoint {
        Endpoint::from_lid(ibscope_parsers::Lid(lid))
    }

    fn connection(job: Option<u32>, src: (u16, u32), dst: (u16, u32)) -> ConnectionRow {
        ConnectionRow {
            src: endpoint(src.0),
            dst: endpoint(dst.0),
            kind: TrafficKind::Data,
            service: 0,
            dest_qp: Qpn::new(dst.1),
            src_qp: Some(Qpn::new(src.1)),
            src_qp_evidence: None,
            first_time_ns: 0,
            last_time_ns: 0,
            traffic: Traffic { packets: 1, ..Traffic::default() },
            retransmissions: RetransmissionSums::default(),
            stack: job.map(|_| "a library".to_owned()),
            job,
            class: crate::model::ConnectionClass::default(),
            one_sided: None,
            coverage: PairCoverage::default(),
            sampled: None,
            paths: smallvec::SmallVec::default(),
            is_at_both_ports: None,
        }
    }

    fn rank(job: u32, rank: u32, lid: u16, qpn: Option<u32>, inferred: bool) -> RankRow {
        let (endpoint, evidence) = (endpoint(lid).to_string(), "envelope".to_owned());
        RankRow { job, rank, endpoint, qpn, evidence, agreeing: 1, disagreeing: 0, inferred }
    }

    /// Jobs 1 and 2 and other traffic in turn. Each table has a row for each of six connections,
    /// with its number as value.
    fn profile() -> Profile {
        let job = |job| JobRow { job, stack: "a library".to_owned(), ranks: 2, ..JobRow::default() };
        let mut profile = Profile { jobs: vec![job(1), job(2)], streams: Some(Vec::new()), ..Profile::default() };
        profile.ranks = vec![
            rank(1, 0, 1, Some(10), false),
            rank(1, 1, 2, Some(10), true),
            rank(2, 0, 1, Some(20), false),
            rank(2, 1, 2, None, true),
        ];
        for (number, (job, qpn)) in
            (0..).zip([(Some(1), 10), (Some(2), 20), (None, 30), (Some(1), 10), (Some(2), 20), (None, 30)])
        {
            let ends = if number < 3 { (1, 2) } else { (2, 1) };
            profile.connections.push(connection(job, (ends.0, qpn), (ends.1, qpn)));
            let traffic = Traffic { packets: u64::from(number), ..Traffic::default() };
            profile.timeline.push(TimelineRow { connection: number, traffic, ..TimelineRow::default() });
            let operation = "bcast".to_owned();
            profile.collectives.push(CollectiveRow {
                connection: number,
                operation,
                messages: number.into(),
                mpi_bytes: 0,
            });
            profile.health.push(&HealthRow {
                connection: number,
                health: Health { rnr_naks: number.into(), ..Health::default() },
            });
            let timing = TimingKey { interval: Interval::Acknowledged, verb: Verb::Send, size: SizeClass::of(0) };
            let mut times = Recorder::default();
            times.record(number.into());
            let histogram = times.finish();
            profile.latencies.push(&LatencyRow { connection: number, timing, histogram });
            profile.latency_timeline.push(LatencyBin { time_ns: 0, latency: number, bucket: 0, count: number });
        }
        let cm = |src, dst, message: &str, ids: (u32, Option<u32>), qpn: Option<u32>| CmRow {
            time_ns: 0,
            src: endpoint(src),
            dst: endpoint(dst),
            message: message.to_owned(),
            local_comm_id: ids.0,
            remote_comm_id: ids.1,
            qpn: qpn.map(Qpn::new),
            starting_psn: None,
            protocol: None,
            service_id: None,
            world_rank: None,
            mpi_job: None,
            mpi_port: None,
            mpi_queue: None,
        };
        profile.cm = vec![
            cm(1, 2, "REQ", (7, None), Some(20)),
            cm(1, 2, "REQ", (8, None), Some(30)),
            cm(2, 1, "REP", (7, Some(7)), Some(20)),
            cm(1, 2, "RTU", (7, Some(7)), None),
            cm(1, 2, "RTU", (8, Some(8)), None),
        ];
        profile
    }

    #[test]
    fn one_job_keeps_its_rows_under_new_numbers() {
        let mut only = profile();
        assert_eq!(only.keep_job(2).unwrap(), [None, Some(0), None, None, Some(1), None]);
        assert_eq!(only.connections.iter().map(|row| row.job).collect::<Vec<_>>(), [Some(2), Some(2)]);
        assert_eq!(
            only.timeline.iter().map(|row| (row.connection, row.traffic.packets)).collect::<Vec<_>>(),
            [(0, 1), (1, 4)]
        );
        assert_eq!(
            only.collectives.iter().map(|row| (row.connection, row.messages)).collect::<Vec<_>>(),
            [(0, 1), (1, 4)]
        );
        assert_eq!(
            only.health.iter().map(|row| (row.connection, row.health.rnr_naks)).collect::<Vec<_>>(),
            [(0, 1), (1, 4)]
        );
        assert_eq!(
            only.latencies.iter().map(|row| (row.connection, row.histogram.max())).collect::<Vec<_>>(),
            [(0, 1), (1, 4)]
        );
        assert_eq!(
            only.latency_timeline.iter().map(|row| (row.latency, row.count)).collect::<Vec<_>>(),
            [(0, 1), (1, 4)]
        );
        assert_eq!(only.ranks.iter().map(|row| (row.job, row.rank)).collect::<Vec<_>>(), [(2, 0), (2, 1)]);
        assert_eq!(only.jobs.len(), 1);
        assert_eq!(only.cm.iter().map(|row| row.message.as_str()).collect::<Vec<_>>(), ["REQ", "REP", "RTU"]);
    }

    #[test]
    fn an_unknown_job_lists_the_jobs_of_the_profile() {
        let error = profile().keep_job(3).unwrap_err().to_string();
        assert_eq!(
            error,
            "the profile has no job 3; its jobs are: job 1: a library, 2 ranks; job 2: a library, 2 ranks"
        );
        let none = Profile::default().keep_job(1).unwrap_err().to_string();
        assert!(none.contains("no job was detected"), "{none}");
    }

    #[test]
    fn profiles_without_a_table_of_jobs_are_job_1() {
        let mut old = profile();
        old.jobs.clear();
        old.ranks.retain(|row| row.job == 1);
        old.connections.iter_mut().for_each(|row| row.job = None);
        let before = old.connections.len();
        old.keep_job(1).unwrap();
        assert_eq!(old.connections.len(), before);
    }

    #[test]
    fn inferred_ranks_become_unassigned_queue_pairs() {
        let mut strict = profile();
        strict.drop_inferred_ranks();
        assert_eq!(strict.ranks.iter().map(|row| (row.job, row.rank)).collect::<Vec<_>>(), [(1, 0), (2, 0)]);
        // For a rank of a whole port: the queue pairs with traffic of its job.
        let rows: Vec<_> = strict.unassigned.iter().map(|row| (row.endpoint.as_str(), row.qpn, row.job)).collect();
        assert_eq!(rows, [("2", 10, Some(1)), ("2", 20, Some(2))]);
        assert!(strict.unassigned.iter().all(|row| row.reason == "inferred; left out by --strict"));
        assert_eq!(strict.jobs.iter().map(|job| job.ranks).collect::<Vec<_>>(), [1, 1]);
        assert_eq!(strict.connections, profile().connections);
    }
}
