//! Identification: the library of each connection, the jobs, and the rank of each queue pair.
//!
//! ```text
//! connection messages -> processes   queue pairs that one process owns, on any number of ports
//! message votes       -> detection   library and tag layout of each connection
//! both                -> component   processes that exchange messages, and their ranks
//! components          -> jobs        joined only on evidence, never on a guess
//! jobs                -> infer       ranks that follow from others, marked as inferred
//! ```
//! The captures' connections and connection messages go in ([`IdentityEvidence`]); jobs, ranks and
//! pair coverage come out ([`ResolvedRanks`]). Invariant: a tag layout, a job or a rank is accepted
//! only if its evidence exceeds the next best by a stated margin. Otherwise it is unknown, with a
//! reason ([`UnassignedRow`]). The user's [`rankmap`] overrides all of it.

pub mod hosts;
pub mod rankmap;

mod aliases;
mod classes;
mod cm;
mod communicators;
mod component;
mod component_sets;
mod coverage;
mod detection;
mod doubtful;
mod infer;
mod jobs;
mod loss;
mod nccl;
mod outline;
mod pair_numbers;
mod pairs;
mod partners;
mod processes;
mod reverse;
mod sampling;
mod tag_layout;
mod trust;
mod unassigned;
mod uncounted;

pub use coverage::mark_unseen_payload;
pub use detection::Detection;
pub use pairs::{named_queue_pairs, pair};
pub use partners::{PairEvidence, QueuePairPartners};
pub use sampling::{SamplingOfConnections, StatedRate};

use crate::model::profile::{CmRow, JobRow, PairCoverage, RankRow, UnassignedRow};
use crate::model::{
    ConnectionClass, ConnectionTotals, MpiConnectionMessage, NcclProcesses, QueuePair, RecordSeries, Trust,
    WorkerWireup,
};
use aliases::QueuePairAliases;
use classes::{JobClass, JobClasses};
use cm::CmExchange;
use component::{Component, Rank};
use ibscope_parsers::Endpoint;
use jobs::{InferredJob, JobUncertainty};
use outline::NodePorts;
use processes::{EndId, Processes};
use rayon::prelude::*;
use reverse::ReverseConnections;
use std::collections::{BTreeMap, BTreeSet};
use unassigned::{RankAssignment, data_ends};

/// The input of the identification.
#[derive(Clone, Copy, Debug)]
pub struct IdentityEvidence<'a> {
    /// Connections with the votes of their messages.
    pub connections: &'a [Box<ConnectionTotals>],
    /// Connection management messages, after [`clear_contradicted_ranks`].
    pub cm: &'a [CmRow],
    /// UCX wire-up messages.
    pub wireups: &'a [WorkerWireup],
    /// For each wire-up message, the queue pairs that it may name, as [`named_queue_pairs`] finds
    /// them.
    pub named_queue_pairs: &'a [Vec<QueuePair>],
    /// Connection messages of Open MPI's `udcm` and of MVAPICH2.
    pub connection_messages: &'a [MpiConnectionMessage],
    /// True if only a time window of the captures was read.
    pub is_window: bool,
    /// Names of endpoints: endpoints with the same name are ports of one node.
    pub names: &'a BTreeMap<Endpoint, String>,
    /// Processes that NCCL messages show.
    pub nccl: &'a NcclProcesses,
    /// The sampling rate, if the user gives it or the samples state it.
    pub sampled: Option<StatedRate<'a>>,
    /// By input: the records that its observation points should have and do have.
    pub records: &'a [RecordSeries],
    /// True if frames that may hold RoCE were not read: their PSNs look like those of a sample.
    pub has_unread_frames: bool,
}

/// Removes the ranks from CM messages whose exchange contradicts them.
pub fn clear_contradicted_ranks(rows: &mut [CmRow]) {
    cm::clear_contradicted_ranks(rows);
}

/// Clears losses that were inferred from the responses of another connection. A tracker matches
/// requests and responses of one input. If an input holds only one direction of a connection, the
/// tracker may match its requests with responses of another connection that have the same PSNs.
pub fn clear_foreign_losses(connections: &mut [Box<ConnectionTotals>], paired: &QueuePairPartners) {
    reverse::clear_foreign_losses(connections, paired);
}

/// Jobs, ranks and unassigned queue pairs.
#[derive(Clone, Debug, Default)]
pub struct ResolvedRanks {
    /// The library and the tag layout of each connection.
    pub detection: Detection,
    /// Jobs by number.
    pub jobs: Vec<JobRow>,
    /// Ranks, sorted by job, rank, endpoint and queue pair.
    pub ranks: Vec<RankRow>,
    /// Queue pairs without a rank, sorted by endpoint and queue pair.
    pub unassigned: Vec<UnassignedRow>,
    /// The class of each connection, in connection order.
    pub classes: Vec<ConnectionClass>,
    /// The job of each connection, in connection order.
    pub job_of: Vec<Option<u32>>,
    /// The capture coverage of each connection, in connection order.
    pub coverage: Vec<PairCoverage>,
    /// For each connection, in connection order, whether it carries one-sided operations.
    pub one_sided: Vec<bool>,
    /// Whether the capture holds all packets, as far as connections show it.
    pub trust: Trust,
    /// The sampling of the capture, if it is sampled.
    pub sampling: SamplingOfConnections,
    /// Notes for the user, one sentence each.
    pub notes: Vec<String>,
}

/// Job and rank of each queue pair.
type RanksByQueuePair = BTreeMap<QueuePair, (u32, Rank)>;

/// Identifies jobs and ranks.
#[must_use]
pub fn identify(evidence: &IdentityEvidence<'_>, paired: &QueuePairPartners) -> ResolvedRanks {
    let mut exchanges = cm::exchanges(evidence.cm);
    let aliases = aliases::find_aliases(evidence, &exchanges, paired);
    for exchange in &mut exchanges {
        exchange.requester = aliases.actual(exchange.requester);
        exchange.replier = aliases.actual(exchange.replier);
    }
    let reverse = ReverseConnections::new(evidence.connections, paired);
    let IdentifiedJobs { mut identified, assignment, uncertainties, job_classes, ambiguous, withheld } =
        jobs_and_ranks(evidence, (paired, &reverse), &exchanges, &aliases);
    let IdentityEvidence { connections, cm, is_window, .. } = *evidence;
    let first_psns = cm
        .iter()
        .filter_map(|row| Some((aliases.actual(QueuePair { endpoint: row.src, qpn: row.qpn? }), row.starting_psn?)));
    let first_psns: BTreeMap<QueuePair, u32> = first_psns.collect();
    let view = coverage::views(&reverse, &first_psns, &identified.detection, is_window);
    let coverage = |index| view(index).coverage(&identified.detection);
    identified.coverage = (0..connections.len()).into_par_iter().map(coverage).collect();
    identified.sampling = sampling::detect(evidence);
    identified.classes = classes::classify(evidence, (paired, &reverse), &exchanges, &job_classes, &identified);
    coverage::mark_truncated(connections, &identified.classes, &mut identified.coverage);
    if identified.sampling.sampling.is_some() {
        coverage::mark_sampled(connections, &mut identified.coverage, evidence.sampled.is_some());
    }
    let views = (0..connections.len()).map(view);
    identified.trust = trust::judge(views, cm, identified.sampling.sampling.is_some(), evidence.records);
    if let Some(assignment) = assignment {
        assignment.list_unassigned(connections, paired, &mut identified);
    }
    uncounted::mark_uncounted((&reverse, &withheld), paired, is_window, &mut identified);
    doubtful::mark_uncertain_jobs(&uncertainties, &mut identified);
    doubtful::mark_ambiguous(&ambiguous, &mut identified);
    identified
}

/// Jobs and ranks, and the evidence against them.
#[derive(Default)]
struct IdentifiedJobs {
    identified: ResolvedRanks,
    /// `None` if no library was detected: then the queue pairs need no ranks.
    assignment: Option<RankAssignment>,
    uncertainties: BTreeMap<u32, JobUncertainty>,
    job_classes: JobClasses,
    /// Connections of a library whose messages may belong to several processes.
    ambiguous: BTreeSet<usize>,
    /// Ports of connections that may carry one-sided operations of the ranks at these ports.
    withheld: BTreeSet<(Endpoint, Endpoint)>,
}

fn jobs_and_ranks(
    evidence: &IdentityEvidence<'_>,
    (paired, reverse): (&QueuePairPartners, &ReverseConnections<'_>),
    exchanges: &[CmExchange],
    aliases: &QueuePairAliases,
) -> IdentifiedJobs {
    let connections = evidence.connections;
    let mut identified = ResolvedRanks {
        job_of: vec![None; connections.len()],
        one_sided: vec![false; connections.len()],
        ..ResolvedRanks::default()
    };
    let stated: BTreeSet<QueuePair> = evidence.wireups.iter().flat_map(aliases::listed_queue_pairs).collect();
    let mut candidates = tag_layout::library_connections(connections, paired, |end| stated.contains(&end));
    let reused = processes::reused_queue_pairs(evidence);
    let ambiguous = doubtful::ambiguous_connections(connections, &candidates, &reused, paired);
    candidates.retain(|found| !ambiguous.contains(&found.index));
    if candidates.is_empty() {
        return IdentifiedJobs { identified, ambiguous, ..IdentifiedJobs::default() };
    }
    let mut processes = processes::named_processes(evidence, exchanges, aliases, &reused);
    let (known, unread) = component::components(candidates, evidence, exchanges, paired, &mut processes);
    let (ranked, silent): (Vec<_>, Vec<_>) = known.into_iter().partition(|own| !own.ranks.is_empty());
    let mut formed = jobs::form(ranked, &NodePorts::new(evidence.names), &mut processes);
    formed.jobs.sort_by_key(InferredJob::times_ns);
    let unclaimed = jobs::attach(&mut formed.jobs, silent, unread, &mut processes);
    let several = "several processes used the number of the queue pair, one after the other or in two subnets; analyze one job at a time, e.g. with --from and --to";
    let mut reasons: BTreeMap<QueuePair, String> = reused.into_iter().map(|end| (end, several.to_owned())).collect();
    let mut ranks = RanksByQueuePair::new();
    for (number, job) in (1..).zip(&formed.jobs) {
        identified.detection.add(&job.components);
        for own in &job.components {
            own.connections.iter().for_each(|(found, _)| identified.job_of[found.index] = Some(number));
        }
        let found = ranks_of(job, evidence.names, &mut processes, &mut identified.notes);
        for (queue_pair, rank) in found {
            if let Some((other, _)) = ranks.insert(queue_pair, (number, rank)).filter(|(other, _)| *other != number) {
                ranks.remove(&queue_pair);
                reasons.insert(queue_pair, format!("jobs {other} and {number} both claim it"));
            }
        }
    }
    // The library of these messages is known even if their job is not.
    formed.unclear.iter().for_each(|(own, _)| identified.detection.add(std::slice::from_ref(own)));
    let mut blocked: BTreeSet<Endpoint> = BTreeSet::new();
    for (own, reason) in formed.unclear.iter().chain(&formed.not_mpi) {
        blocked.extend(own.ports.values().flatten());
        ends_of(own, &processes).for_each(|queue_pair| _ = reasons.insert(queue_pair, reason.clone()));
    }
    for (ends, reason) in unclaimed {
        blocked.extend(ends.iter().map(|queue_pair: &QueuePair| queue_pair.endpoint));
        ends.into_iter().for_each(|queue_pair| _ = reasons.insert(queue_pair, reason.clone()));
    }
    let job_classes = job_classes(&formed.jobs, &mut processes, &blocked);
    let known = infer::KnownJobs { jobs: &formed.jobs, blocked: &blocked };
    let withheld = infer::by_port((paired, reverse), &known, &mut processes, &mut ranks, &mut identified);
    identified.jobs = job_rows(&formed.jobs, &ranks);
    identified.ranks = rows(connections, paired, &ranks);
    let uncertainties = (1..).zip(&formed.jobs).map(|(number, job)| (number, job.uncertainty));
    let uncertainties = uncertainties.filter(|(_, own)| *own != JobUncertainty::default()).collect();
    let assignment = Some(RankAssignment { ranks, reasons });
    IdentifiedJobs { identified, assignment, uncertainties, job_classes, ambiguous, withheld }
}

/// Evidence of the jobs for the classes of connections. `blocked` are ports with messages of
/// unknown processes.
fn job_classes(jobs: &[InferredJob<'_>], processes: &mut Processes, blocked: &BTreeSet<Endpoint>) -> JobClasses {
    let mut classes = JobClasses { foreign_ports: blocked.clone(), ..JobClasses::default() };
    let mut owners: BTreeMap<EndId, u32> = BTreeMap::new();
    for (number, job) in (1..).zip(jobs) {
        let family = job.family().map(|(family, _)| family);
        classes.jobs.insert(number, JobClass { family, ports: job.ports(), times_ns: job.times_ns() });
        let members = job.components.iter().flat_map(|own| own.votes.keys());
        members.for_each(|process| _ = owners.insert(processes.process(*process), number));
    }
    for (queue_pair, end) in processes.named_queue_pairs() {
        classes.queue_pairs.extend(owners.get(&processes.process(end)).map(|job| (queue_pair, *job)));
    }
    classes
}

fn ends_of<'a>(own: &'a Component<'_>, processes: &'a Processes) -> impl Iterator<Item = QueuePair> + 'a {
    own.connections.iter().flat_map(|(_, (from, to))| [*from, *to]).filter_map(|end| processes.queue_pair(end))
}

/// The node of an endpoint: ports with the same name belong to one node; a port without a name is a
/// node of its own.
fn node(endpoint: Endpoint, names: &BTreeMap<Endpoint, String>) -> (Option<&str>, Option<Endpoint>) {
    match names.get(&endpoint) {
        Some(name) => (Some(name), None),
        None => (None, Some(endpoint)),
    }
}

/// The ranks of a job's queue pairs. If processes on different nodes claim a rank, none of them
/// gets it.
fn ranks_of(
    job: &InferredJob<'_>,
    names: &BTreeMap<Endpoint, String>,
    processes: &mut Processes,
    notes: &mut Vec<String>,
) -> BTreeMap<QueuePair, Rank> {
    let mut of_process: BTreeMap<EndId, Rank> = BTreeMap::new();
    let mut members = Vec::new();
    for own in &job.components {
        for (process, votes) in &own.votes {
            let Some(ports) = own.ports.get(process) else { continue };
            let rank = own.ranks.get(process);
            of_process.extend(rank.map(|rank| (*process, *rank)));
            members.push((*process, communicators::Member { ports, votes, rank: rank.map(|rank| rank.rank) }));
        }
    }
    let (ends, members): (Vec<EndId>, Vec<_>) = members.into_iter().unzip();
    for (at, rank) in communicators::infer(&members) {
        of_process.insert(ends[at], rank);
    }
    let mut places: BTreeMap<u32, BTreeMap<EndId, BTreeSet<_>>> = BTreeMap::new();
    for (process, member) in ends.iter().zip(&members) {
        if let Some(rank) = of_process.get(process) {
            let nodes = member.ports.iter().map(|port| node(*port, names));
            places.entry(rank.rank).or_default().entry(*process).or_default().extend(nodes);
        }
    }
    places.retain(|_, claims| {
        let mut all = claims.values();
        let first = all.next();
        first.is_some_and(|first| all.any(|other| other.is_disjoint(first)))
    });
    for (rank, claims) in &places {
        let ports: BTreeSet<String> = ends
            .iter()
            .zip(&members)
            .filter(|(process, _)| claims.contains_key(process))
            .flat_map(|(_, member)| member.ports.iter().map(Endpoint::to_string))
            .collect();
        let ports: Vec<String> = ports.into_iter().collect();
        notes.push(format!(
            "rank {rank} is claimed at {}, so it is unknown at all of them; if they are ports of one node, give them one name with --hosts",
            ports.join(" and ")
        ));
    }
    of_process.retain(|_, rank| !places.contains_key(&rank.rank));
    let mut ranks = BTreeMap::new();
    for own in &job.components {
        for (_, (from, to)) in &own.connections {
            for end in [*from, *to] {
                let rank = of_process.get(&processes.process(end));
                if let (Some(queue_pair), Some(rank)) = (processes.queue_pair(end), rank) {
                    ranks.insert(queue_pair, *rank);
                }
            }
        }
    }
    ranks
}

fn job_rows(jobs: &[InferredJob<'_>], ranks: &RanksByQueuePair) -> Vec<JobRow> {
    let mut known: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for (job, rank) in ranks.values() {
        known.entry(*job).or_default().insert(rank.rank);
    }
    let row = |(number, job): (u32, &InferredJob<'_>)| {
        let (first_time_ns, last_time_ns) = job.times_ns();
        JobRow {
            job: number,
            stack: detection::name_of(job),
            ranks: known.get(&number).map_or(0, BTreeSet::len) as u32,
            first_time_ns,
            last_time_ns,
            slurm_job_id: None,
            may_be_part: job.uncertainty.may_be_part,
            lacks_common_clock: false,
            copy_delay_ns: None,
        }
    };
    (1..).zip(jobs).map(row).collect()
}

/// The rank table: one row per port if all queue pairs of the port have one rank by the same kind
/// of evidence, otherwise one row per queue pair.
fn rows(connections: &[Box<ConnectionTotals>], paired: &QueuePairPartners, ranks: &RanksByQueuePair) -> Vec<RankRow> {
    let mut ports: BTreeMap<Endpoint, Vec<QueuePair>> = BTreeMap::new();
    for end in data_ends(connections, paired) {
        ports.entry(end.endpoint).or_default().push(end);
    }
    let mut rows = Vec::new();
    for (endpoint, ends) in &ports {
        let known: Vec<(&QueuePair, &(u32, Rank))> = ends.iter().filter_map(|end| ranks.get_key_value(end)).collect();
        let kinds: BTreeSet<_> =
            known.iter().map(|(_, (job, own))| (*job, own.rank, own.evidence.is_inferred())).collect();
        if kinds.len() == 1 && known.len() == ends.len() {
            rows.extend(single_rank_row(*endpoint, &known));
        } else {
            rows.extend(known.iter().map(|(end, (job, own))| row(*endpoint, Some(end.qpn.value()), *job, own)));
        }
    }
    rows.sort_by(|a, b| (a.job, a.rank, &a.endpoint, a.qpn).cmp(&(b.job, b.rank, &b.endpoint, b.qpn)));
    rows
}

/// The row of a port with a single rank: the strongest evidence, and the most votes.
fn single_rank_row(endpoint: Endpoint, known: &[(&QueuePair, &(u32, Rank))]) -> Option<RankRow> {
    let (_, (job, first)) = known.first()?;
    let evidence = known.iter().map(|(_, (_, own))| own.evidence).min()?;
    // All queue pairs of a process carry the same votes.
    let votes = known.iter().map(|(_, (_, own))| (own.agreeing, own.disagreeing)).max()?;
    Some(row(endpoint, None, *job, &Rank { evidence, agreeing: votes.0, disagreeing: votes.1, ..*first }))
}

fn row(endpoint: Endpoint, qpn: Option<u32>, job: u32, own: &Rank) -> RankRow {
    RankRow {
        job,
        rank: own.rank,
        endpoint: endpoint.to_string(),
        qpn,
        evidence: own.evidence.name().to_owned(),
        agreeing: own.agreeing,
        disagreeing: own.disagreeing,
        inferred: own.evidence.is_inferred(),
    }
}

#[cfg(test)]
mod tests {
    use crate::model::{ConnectionKey, ConnectionTotals, TrafficKind};
    use ibscope_parsers::{Endpoint, Qpn};

    /// A reliable connection between two LIDs, without traffic.
    #[expect(clippy::default_trait_access, reason = "the types of so many empty fields say nothing")]
    pub(super) fn connection(src: u16, dst: u16, dest_qp: u32) -> ConnectionTotals {
        let endpoint = |lid: u16| lid.to_string().parse::<Endpoint>().expect("a LID");
        let key = ConnectionKey {
            src: endpoint(src),
            dst: endpoint(dst),
            kind: TrafficKind::Data,
            service: 0,
            dest_qp: Qpn::new(dest_qp),
            src_qp: Qpn::new(0),
        };
        ConnectionTotals {
            key,
            times_ns: (0, 0),
            traffic: Default::default(),
            sampled: Default::default(),
            retransmissions: Default::default(),
            health: Default::default(),
            unknown_starts: 0,
            upper_layers: None,
            operations: Default::default(),
            storage: None,
            mpi: None,
            missing: None,
            continuity: Default::default(),
            observations: None,
            rdma: Default::default(),
            paths: smallvec::SmallVec::default(),
            inputs: Default::default(),
            partners: Default::default(),
            echoes: Default::default(),
            latencies: Default::default(),
            sizes: Default::default(),
            time_bins: Vec::new(),
            bins: Box::default(),
        }
    }
}
