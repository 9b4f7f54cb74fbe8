//! Which connection carries MPI, which job it belongs to, and who is which rank. Decided once, when all has been read.
//!
//! ```text
//! connection messages -> processes    queue pairs that one process owns, on any number of ports
//! votes of messages   -> reading      the library of a connection, and how its tags are read
//! both                -> component    processes that exchange messages, and the rank of each
//! components          -> jobs         never two added up, never one guessed
//! jobs                -> infer        ranks that follow from others, marked as such
//! ```
//! A reading, a job and a rank are accepted where the evidence beats the next best by a stated margin; else they are
//! unknown, with the reason (`UnassignedRow`). [`rankmap`] is what the user says, which goes before.

pub mod hosts;
pub mod rankmap;

mod cm;
mod communicators;
mod component;
mod coverage;
mod detection;
mod gathering;
mod infer;
mod jobs;
mod moved;
mod nccl;
mod outline;
mod pairs;
mod partners;
mod processes;
mod reading;

pub use coverage::mark_unseen_payload;
pub use detection::Detection;
pub use pairs::{named, pair};
pub use partners::{Evidence, Pairs};

use crate::model::profile::{CmRow, CoverageState, JobRow, PairCoverage, RankRow, UnassignedRow};
use crate::model::traffic::ConnectionTotals;
use crate::model::{Introduction, Kind, NcclProcesses, QueuePair, Wireup, ranges};
use cm::Exchange;
use component::{Component, Rank};
use ibscope_parsers::Endpoint;
use jobs::{Doubts, Job};
use moved::Moved;
use outline::Nodes;
use processes::{End, Processes};
use std::collections::{BTreeMap, BTreeSet};

/// Unassigned queue pairs that are listed; a broken capture may have any number.
const MAX_UNASSIGNED: usize = 1 << 16;

/// Everything that shows ranks.
#[derive(Clone, Copy, Debug)]
pub struct Witnesses<'a> {
    /// Connections with the votes of their messages.
    pub connections: &'a [Box<ConnectionTotals>],
    /// Connection management messages, of which [`keep_agreed`] has been asked.
    pub cm: &'a [CmRow],
    /// UCX's wire-up messages.
    pub wireups: &'a [Wireup],
    /// The queue pairs that each of these may name, as [`named`] finds them.
    pub named: &'a [Vec<QueuePair>],
    /// Introductions of Open MPI's `udcm` and of MVAPICH2.
    pub introductions: &'a [Introduction],
    /// Only a window of the time of the captures was read.
    pub is_window: bool,
    /// Names of endpoints: those with one name are ports of one node.
    pub names: &'a BTreeMap<Endpoint, String>,
    /// What NCCL's messages show of its processes.
    pub nccl: &'a NcclProcesses,
}

/// Takes ranks out of CM messages whose exchange does not agree on them.
pub fn keep_agreed(rows: &mut [CmRow]) {
    cm::keep_agreed(rows);
}

/// Jobs, ranks, and what stays unknown.
#[derive(Clone, Debug, Default)]
pub struct Identified {
    /// The library of each connection, and how its envelopes are read.
    pub detection: Detection,
    /// Jobs by number.
    pub jobs: Vec<JobRow>,
    /// Ranks, sorted by job, rank, endpoint and queue pair.
    pub ranks: Vec<RankRow>,
    /// Queue pairs without a rank, sorted by endpoint and queue pair.
    pub unassigned: Vec<UnassignedRow>,
    /// The job of each connection, in their order.
    pub job_of: Vec<Option<u32>>,
    /// How much of each connection the captures hold, in their order.
    pub coverage: Vec<PairCoverage>,
    /// Connections with one-sided operations, in their order.
    pub one_sided: Vec<bool>,
    /// What the reader has to know, one sentence each.
    pub notes: Vec<String>,
}

/// Ranks by queue pair, with their job.
type Ranks = BTreeMap<QueuePair, (u32, Rank)>;

/// Identifies jobs and ranks.
#[must_use]
pub fn identify(witnesses: &Witnesses<'_>, paired: &Pairs) -> Identified {
    let mut exchanges = cm::exchanges(witnesses.cm);
    let moved = moved::moved(witnesses, &exchanges, paired);
    for exchange in &mut exchanges {
        exchange.requester = moved.actual(exchange.requester);
        exchange.replier = moved.actual(exchange.replier);
    }
    let (mut identified, doubts) = jobs_and_ranks(witnesses, paired, &exchanges, &moved);
    let Witnesses { connections, cm, is_window, .. } = *witnesses;
    let first_psns = cm
        .iter()
        .filter_map(|row| Some((moved.actual(QueuePair { endpoint: row.src, qpn: row.qpn? }), row.starting_psn?)));
    let first_psns: BTreeMap<QueuePair, u32> = first_psns.collect();
    identified.coverage = coverage::coverage(connections, &first_psns, paired, &identified.detection, is_window);
    coverage::mark_uncounted(connections, paired, is_window, &mut identified);
    mark_doubts(&doubts, &mut identified);
    identified
}

/// Says which jobs may be one, or several; what their pairs have sent is unknown then.
fn mark_doubts(doubts: &BTreeMap<u32, Doubts>, identified: &mut Identified) {
    let mut note = |of: fn(&Doubts) -> bool, what: &str| {
        let jobs: Vec<u32> = doubts.iter().filter(|(_, doubts)| of(doubts)).map(|(job, _)| *job).collect();
        if !jobs.is_empty() {
            let plural = if jobs.len() == 1 { "" } else { "s" };
            identified.notes.push(format!("job{plural} {}: {what}", ranges(jobs)));
        }
    };
    note(
        |doubts| doubts.part,
        "the same ranks appear at other ports at the same time, and no connection message separates them, so they may be one job on several ports; capture from the start of the job",
    );
    note(
        |doubts| doubts.several,
        "identified by consistent ranks only; no connection message shows that all connections belong to one job, so it may be several jobs; capture from the start of the job",
    );
    note(
        |doubts| doubts.processes,
        "identified by its ports only; the memory that its messages write to does not look like that of one process per port, so it may be several jobs; capture one job at a time",
    );
    for (coverage, job) in identified.coverage.iter_mut().zip(&identified.job_of) {
        if job.is_some_and(|job| doubts.contains_key(&job)) {
            coverage.state = coverage.state.max(CoverageState::Unknown);
        }
    }
}

fn jobs_and_ranks(
    witnesses: &Witnesses<'_>,
    paired: &Pairs,
    exchanges: &[Exchange],
    moved: &Moved,
) -> (Identified, BTreeMap<u32, Doubts>) {
    let connections = witnesses.connections;
    let mut identified = Identified {
        job_of: vec![None; connections.len()],
        one_sided: vec![false; connections.len()],
        ..Identified::default()
    };
    let fitting = reading::fitting_connections(connections, paired);
    if fitting.is_empty() {
        return (identified, BTreeMap::new());
    }
    let mut processes = processes::named(witnesses, exchanges, moved);
    let (known, unread) = component::components(fitting, witnesses, exchanges, paired, &mut processes);
    let (ranked, silent): (Vec<_>, Vec<_>) = known.into_iter().partition(|own| !own.ranks.is_empty());
    let mut formed = jobs::form(ranked, &Nodes::new(witnesses.names), &mut processes);
    formed.jobs.sort_by_key(Job::times_ns);
    let unclaimed = jobs::attach(&mut formed.jobs, silent, unread, &mut processes);
    let mut reasons: BTreeMap<QueuePair, String> = BTreeMap::new();
    let mut ranks = Ranks::new();
    for (number, job) in (1..).zip(&formed.jobs) {
        identified.detection.add(&job.components);
        for own in &job.components {
            own.connections.iter().for_each(|(fit, _)| identified.job_of[fit.index] = Some(number));
        }
        let found = ranks_of(job, witnesses.names, &mut processes, &mut identified.notes);
        for (queue_pair, rank) in found {
            if let Some((other, _)) = ranks.insert(queue_pair, (number, rank)).filter(|(other, _)| *other != number) {
                ranks.remove(&queue_pair);
                reasons.insert(queue_pair, format!("jobs {other} and {number} both claim it"));
            }
        }
    }
    // Their messages are MPI's, whosoever they are.
    formed.unclear.iter().for_each(|(own, _)| identified.detection.add(std::slice::from_ref(own)));
    let mut blocked: BTreeSet<Endpoint> = BTreeSet::new();
    for (own, reason) in formed.unclear.iter().chain(&formed.refused) {
        blocked.extend(own.ports.values().flatten());
        ends_of(own, &processes).for_each(|queue_pair| _ = reasons.insert(queue_pair, reason.clone()));
    }
    for (ends, reason) in unclaimed {
        blocked.extend(ends.iter().map(|queue_pair: &QueuePair| queue_pair.endpoint));
        ends.into_iter().for_each(|queue_pair| _ = reasons.insert(queue_pair, reason.clone()));
    }
    infer::by_port(witnesses, paired, &formed.jobs, &mut processes, &mut ranks, &blocked, &mut identified);
    identified.jobs = job_rows(&formed.jobs, &ranks);
    identified.unassigned = unassigned(connections, paired, &ranks, &reasons, &mut identified);
    identified.ranks = rows(connections, paired, &ranks);
    let doubts = (1..).zip(&formed.jobs).map(|(number, job)| (number, job.doubts));
    let doubts = doubts.filter(|(_, doubts)| *doubts != Doubts::default()).collect();
    (identified, doubts)
}

fn ends_of<'a>(own: &'a Component<'_>, processes: &'a Processes) -> impl Iterator<Item = QueuePair> + 'a {
    own.connections.iter().flat_map(|(_, (from, to))| [*from, *to]).filter_map(|end| processes.queue_pair(end))
}

/// Ports with one name belong to one node; without names each is a node by itself.
fn node(endpoint: Endpoint, names: &BTreeMap<Endpoint, String>) -> (Option<&str>, Option<Endpoint>) {
    match names.get(&endpoint) {
        Some(name) => (Some(name), None),
        None => (None, Some(endpoint)),
    }
}

/// The ranks of a job's queue pairs. A rank that processes at different nodes claim is believed of none of them.
fn ranks_of(
    job: &Job<'_>,
    names: &BTreeMap<Endpoint, String>,
    processes: &mut Processes,
    notes: &mut Vec<String>,
) -> BTreeMap<QueuePair, Rank> {
    let mut of_process: BTreeMap<End, Rank> = BTreeMap::new();
    let mut members = Vec::new();
    for own in &job.components {
        for (process, votes) in &own.votes {
            let Some(ports) = own.ports.get(process) else { continue };
            let rank = own.ranks.get(process);
            of_process.extend(rank.map(|rank| (*process, *rank)));
            members.push((*process, communicators::Member { ports, votes, rank: rank.map(|rank| rank.rank) }));
        }
    }
    let (ends, members): (Vec<End>, Vec<_>) = members.into_iter().unzip();
    for (at, rank) in communicators::infer(&members) {
        of_process.insert(ends[at], rank);
    }
    let mut places: BTreeMap<u32, BTreeMap<End, BTreeSet<_>>> = BTreeMap::new();
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
            "rank {rank} is claimed at {}: unknown at all of them; name the ports of one node alike with --hosts if they are",
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

fn job_rows(jobs: &[Job<'_>], ranks: &Ranks) -> Vec<JobRow> {
    let mut known: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for (job, rank) in ranks.values() {
        known.entry(*job).or_default().insert(rank.rank);
    }
    let row = |(number, job): (u32, &Job<'_>)| {
        let (first_time_ns, last_time_ns) = job.times_ns();
        JobRow {
            job: number,
            stack: detection::name_of(job),
            ranks: known.get(&number).map_or(0, BTreeSet::len) as u32,
            first_time_ns,
            last_time_ns,
            slurm_job_id: None,
        }
    };
    (1..).zip(jobs).map(row).collect()
}

/// Queue pairs that carry data.
fn data_ends(connections: &[Box<ConnectionTotals>], paired: &Pairs) -> BTreeSet<QueuePair> {
    let mut ends = BTreeSet::new();
    for key in connections.iter().map(|connection| &connection.key).filter(|key| key.kind == Kind::Data) {
        let receiver = reading::receiver(key);
        ends.insert(receiver);
        if key.is_datagram() {
            ends.insert(QueuePair { endpoint: key.src, qpn: key.src_qp });
        } else {
            ends.extend(paired.partner(receiver).map(|(end, _)| end));
        }
    }
    ends
}

fn unassigned(
    connections: &[Box<ConnectionTotals>],
    paired: &Pairs,
    ranks: &Ranks,
    reasons: &BTreeMap<QueuePair, String>,
    identified: &mut Identified,
) -> Vec<UnassignedRow> {
    let mut jobs: BTreeMap<QueuePair, u32> = BTreeMap::new();
    let mut mpi: BTreeSet<QueuePair> = BTreeSet::new();
    for (connection, job) in connections.iter().zip(&identified.job_of) {
        let receiver = reading::receiver(&connection.key);
        let both = [Some(receiver), paired.partner(receiver).map(|(end, _)| end)];
        for end in both.into_iter().flatten() {
            jobs.extend(job.map(|job| (end, job)));
            if identified.detection.form(&connection.key).is_some() {
                mpi.insert(end);
            }
        }
    }
    let row = |end: QueuePair| {
        let by_default = if mpi.contains(&end) {
            "its messages name no rank of MPI_COMM_WORLD"
        } else {
            "no MPI message was recognized on it"
        };
        UnassignedRow {
            job: jobs.get(&end).copied(),
            endpoint: end.endpoint.to_string(),
            qpn: end.qpn.value(),
            reason: reasons.get(&end).cloned().unwrap_or_else(|| by_default.to_owned()),
        }
    };
    let all: Vec<QueuePair> =
        data_ends(connections, paired).into_iter().filter(|end| !ranks.contains_key(end)).collect();
    if all.len() > MAX_UNASSIGNED {
        identified
            .notes
            .push(format!("{} queue pairs have no rank; the first {MAX_UNASSIGNED} of them are listed", all.len()));
    }
    all.into_iter().take(MAX_UNASSIGNED).map(row).collect()
}

/// One row for a port whose queue pairs all belong to one rank by the same evidence, else one for each queue pair.
fn rows(connections: &[Box<ConnectionTotals>], paired: &Pairs, ranks: &Ranks) -> Vec<RankRow> {
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
            rows.extend(together(*endpoint, &known));
        } else {
            rows.extend(known.iter().map(|(end, (job, own))| row(*endpoint, Some(end.qpn.value()), *job, own)));
        }
    }
    rows.sort_by(|a, b| (a.job, a.rank, &a.endpoint, a.qpn).cmp(&(b.job, b.rank, &b.endpoint, b.qpn)));
    rows
}

/// The row of a port that is one rank: with the strongest evidence, and all votes.
fn together(endpoint: Endpoint, known: &[(&QueuePair, &(u32, Rank))]) -> Option<RankRow> {
    let (_, (job, first)) = known.first()?;
    let evidence = known.iter().map(|(_, (_, own))| own.evidence).min()?;
    // Queue pairs of one process carry the same votes.
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
    use crate::model::traffic::ConnectionTotals;
    use crate::model::{ConnectionKey, Kind};
    use ibscope_parsers::{Endpoint, Qpn};

    /// Queue pairs of one port, of which no message names a rank.
    #[test]
    fn queue_pairs_beyond_those_that_are_listed_are_counted() {
        use super::{MAX_UNASSIGNED, unassigned};
        for (count, note) in [(MAX_UNASSIGNED, None), (MAX_UNASSIGNED + 1, Some("65537 queue pairs have no rank"))] {
            let connections: Vec<Box<ConnectionTotals>> =
                (0..count).map(|number| Box::new(connection(3, 4, 0x100 + number as u32))).collect();
            let mut identified = super::Identified { job_of: vec![None; count], ..super::Identified::default() };
            let (paired, nobody) = (super::Pairs::default(), std::collections::BTreeMap::new());
            let rows = unassigned(&connections, &paired, &nobody, &std::collections::BTreeMap::new(), &mut identified);
            assert_eq!(rows.len(), MAX_UNASSIGNED);
            assert_eq!(identified.notes.len(), usize::from(note.is_some()));
            assert!(note.is_none_or(|note| identified.notes[0].starts_with(note)), "{:?}", identified.notes);
        }
    }

    /// A reliable connection without any traffic, between LIDs.
    #[expect(clippy::default_trait_access, reason = "the types of so many empty fields say nothing")]
    pub(super) fn connection(src: u16, dst: u16, dest_qp: u32) -> ConnectionTotals {
        let endpoint = |lid: u16| lid.to_string().parse::<Endpoint>().expect("a LID");
        let key = ConnectionKey {
            src: endpoint(src),
            dst: endpoint(dst),
            kind: Kind::Data,
            service: 0,
            dest_qp: Qpn::new(dest_qp),
            src_qp: Qpn::new(0),
        };
        ConnectionTotals {
            key,
            times_ns: (0, 0),
            traffic: Default::default(),
            repeats: Default::default(),
            health: Default::default(),
            unknown_starts: 0,
            mpi: None,
            missing: None,
            continuity: Default::default(),
            rdma: Default::default(),
            inputs: Default::default(),
            partners: Default::default(),
            echoes: Default::default(),
            timings: Default::default(),
            sizes: Default::default(),
            time_bins: Vec::new(),
            bins: Vec::new(),
        }
    }
}
