//! Ranks of queue pairs without envelopes, inferred from the only rank of their port.
//!
//! Libraries open queue pairs that carry no envelopes: for a size class (`openib`), for large
//! messages (rails), or for one-sided operations. If every port of a job has a single rank, another
//! queue pair between two of its ports belongs to the same two processes, provided it is of the
//! same library: connection messages name it, or its messages match the library. Invariant: these
//! ranks are marked as inferred.

use super::component::{Rank, RankEvidence};
use super::jobs::InferredJob;
use super::outline::is_dense;
use super::processes::Processes;
use super::tag_layout::{self, Family};
use super::{QueuePairPartners, RanksByQueuePair, ResolvedRanks, ReverseConnections};
use crate::model::{ConnectionTotals, QueuePair, TrafficKind, ranges};
use ibscope_parsers::Endpoint;
use std::collections::{BTreeMap, BTreeSet};

/// The jobs, and the ports with messages of unknown processes.
pub(super) struct KnownJobs<'a> {
    pub(super) jobs: &'a [InferredJob<'a>],
    pub(super) blocked: &'a BTreeSet<Endpoint>,
}

/// Assigns queue pairs the rank of their port, and connections the job of their ports. Returns the ports
/// of connections that may carry one-sided operations of a job and that were not assigned to ranks.
pub(super) fn by_port(
    (paired, reverse): (&QueuePairPartners, &ReverseConnections<'_>),
    known: &KnownJobs<'_>,
    processes: &mut Processes,
    ranks: &mut RanksByQueuePair,
    identified: &mut ResolvedRanks,
) -> BTreeSet<(Endpoint, Endpoint)> {
    let connections = reverse.connections;
    let jobs = known.jobs;
    let alone = ports_of_one_rank(connections, jobs, ranks, known.blocked, processes);
    let places: Vec<JobPlace> = jobs.iter().map(|job| JobPlace::new(job, processes)).collect();
    let with_envelopes = connections.iter().filter(|own| !is_bare(own));
    let with_envelopes: BTreeSet<(Endpoint, QueuePair)> =
        with_envelopes.map(|own| (own.key.src, tag_layout::receiver(&own.key))).collect();
    let others = connections.iter().filter(|own| tag_layout::is_another_protocol(own));
    let others: BTreeSet<QueuePair> = others.map(|own| tag_layout::receiver(&own.key)).collect();
    let mut found: Vec<(QueuePair, (u32, Rank))> = Vec::new();
    let mut withheld = BTreeSet::new();
    for (index, connection) in connections.iter().enumerate() {
        let receiver = tag_layout::receiver(&connection.key);
        // A datagram queue pair may serve the connection setup of other processes; its traffic
        // belongs to no pair of ranks.
        let is_data = connection.key.kind == TrafficKind::Data && !connection.key.is_datagram();
        let Some((sender, _)) = paired.partner(receiver).filter(|_| is_data) else { continue };
        if others.contains(&sender) || others.contains(&receiver) {
            continue;
        }
        let both = (&**connection, reverse.connected(index));
        let back = QueuePair { endpoint: connection.key.src, ..sender };
        // Open MPI's `osc/ucx` has a UCX worker of its own: its queue pairs carry no envelopes in
        // either direction.
        let is_silent = is_bare(connection) && !with_envelopes.contains(&(receiver.endpoint, back));
        let of = |end: &QueuePair| ranks.get(end).or_else(|| alone.get(&end.endpoint)).copied();
        let (Some(from), Some(to)) = (of(&sender), of(&receiver)) else {
            let mut may_own = places.iter().filter(|place| place.may_own(both, [sender, receiver], processes));
            if is_silent && connection.traffic.payload_bytes > 0 && may_own.next().is_some() {
                withheld.insert((connection.key.src, connection.key.dst));
            }
            continue;
        };
        if from.0 != to.0 || from.1.rank == to.1.rank {
            continue;
        }
        let Some(place) = places.get(from.0 as usize - 1) else { continue };
        let is_new = !ranks.contains_key(&sender) || !ranks.contains_key(&receiver);
        if is_new && !place.owns(both, [sender, receiver], processes) {
            continue;
        }
        let inferred = |rank: Rank| Rank { evidence: RankEvidence::Port, agreeing: 0, disagreeing: 0, ..rank };
        for (end, (number, rank)) in [(sender, from), (receiver, to)] {
            if !ranks.contains_key(&end) {
                found.push((end, (number, inferred(rank))));
            }
        }
        identified.job_of[index] = Some(from.0);
        identified.one_sided[index] = is_new && is_silent && place.family == Some(Family::Ucx);
    }
    ranks.extend(found);
    identified.notes.extend(one_sided_note(connections, identified));
    withheld
}

/// The note on one-sided operations that count for a job.
fn one_sided_note(connections: &[Box<ConnectionTotals>], identified: &ResolvedRanks) -> Option<String> {
    let found = connections.iter().zip(&identified.one_sided).zip(&identified.job_of);
    let found: Vec<(&ConnectionTotals, u32)> =
        found.filter_map(|((own, is_one_sided), job)| Some((&**own, (*job)?)).filter(|_| *is_one_sided)).collect();
    let jobs: BTreeSet<u32> = found.iter().map(|(_, job)| *job).collect();
    let job = ranges(jobs.iter().copied());
    (!found.is_empty()).then(|| {
        format!(
            "job{} {job}: connections without MPI messages that count as one-sided operations: {}. They are between the ports \
             of its ranks and of the same library; another program of this library between these ports would count too",
            if jobs.len() == 1 { "" } else { "s" },
            found.len(),
        )
    })
}

/// Evidence that a connection without ranks belongs to a job.
struct JobPlace {
    family: Option<Family>,
    ports: BTreeSet<Endpoint>,
    times_ns: (i64, i64),
    /// Ports of queue pairs that connection messages name, if they name all queue pairs of the job with
    /// messages: then they name those without messages too.
    named_ports: BTreeSet<Endpoint>,
}

impl JobPlace {
    fn new(job: &InferredJob<'_>, processes: &mut Processes) -> Self {
        let family = job.family().map(|(family, _)| family);
        let ends = || job.components.iter().flat_map(|own| &own.connections).flat_map(|(_, (from, to))| [*from, *to]);
        let all_named = ends().all(|end| processes.is_named(end));
        let ports = ends().filter(|_| all_named).filter_map(|end| Some(processes.queue_pair(end)?.endpoint));
        Self { family, ports: job.ports(), times_ns: job.times_ns(), named_ports: ports.collect() }
    }

    /// True if the connection is within the times of the job, and of its library: connection messages of UCX
    /// name both ends, or all messages of both directions match the library. Where connection messages name
    /// all queue pairs of the job, a match is not enough: they must name these ends too.
    fn owns(
        &self,
        (own, back): (&ConnectionTotals, Option<&ConnectionTotals>),
        ends: [QueuePair; 2],
        processes: &mut Processes,
    ) -> bool {
        let Some(family) = self.family else { return false };
        let is_named = |end: QueuePair| processes.find(end).is_some_and(|end| processes.is_named(end));
        let is_named = ends.map(is_named) == [true; 2];
        let must_be_named = ends.iter().all(|end| self.named_ports.contains(&end.endpoint));
        let matches =
            messages_match(own, family) && back.is_none_or(|back| back.starts() == 0 || messages_match(back, family));
        self.times_ns.0 <= own.times_ns.0
            && own.times_ns.1 <= self.times_ns.1
            && (matches && (is_named || !must_be_named) || family == Family::Ucx && is_named)
    }

    /// Like [`Self::owns`], for a job of UCX whose ports include both ends.
    fn may_own(
        &self,
        both: (&ConnectionTotals, Option<&ConnectionTotals>),
        ends: [QueuePair; 2],
        processes: &mut Processes,
    ) -> bool {
        self.family == Some(Family::Ucx)
            && ends.iter().all(|end| self.ports.contains(&end.endpoint))
            && self.owns(both, ends, processes)
    }
}

/// Ports with a single rank, of jobs that have all ranks up to the highest and one rank per port.
/// `blocked` are ports with messages of unknown processes.
fn ports_of_one_rank(
    connections: &[Box<ConnectionTotals>],
    jobs: &[InferredJob<'_>],
    ranks: &RanksByQueuePair,
    blocked: &BTreeSet<Endpoint>,
    processes: &Processes,
) -> BTreeMap<Endpoint, (u32, Rank)> {
    let mut ports: BTreeMap<Endpoint, BTreeMap<(u32, u32), Rank>> = BTreeMap::new();
    for (end, (job, rank)) in ranks {
        ports.entry(end.endpoint).or_default().insert((*job, rank.rank), *rank);
    }
    // Conflicting votes may have left a rank out, so every sender of envelopes must have a rank.
    let has_unranked_sender = |job: &InferredJob<'_>| {
        let mut with_envelopes =
            job.components.iter().flat_map(|own| &own.connections).filter(|(found, _)| !is_bare(found.connection));
        with_envelopes.any(|(_, (from, _))| processes.queue_pair(*from).is_some_and(|own| !ranks.contains_key(&own)))
    };
    let mut known: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for (job, rank) in ranks.values() {
        known.entry(*job).or_default().insert(rank.rank);
    }
    let beside_unranked = ports_beside_unranked(connections, jobs, &ports);
    let is_single = |number: u32, job: &InferredJob<'_>| {
        let own = job.ports();
        is_dense(known.get(&number).into_iter().flatten().copied(), 100)
            && job.is_whole()
            && !has_unranked_sender(job)
            && own.is_disjoint(blocked)
            && own.is_disjoint(&beside_unranked)
            && own.iter().all(|port| ports.get(port).is_some_and(|own| own.len() == 1))
    };
    let single: BTreeSet<u32> =
        (1..).zip(jobs).filter(|(number, job)| is_single(*number, job)).map(|(number, _)| number).collect();
    let one = |(port, own): (&Endpoint, &BTreeMap<(u32, u32), Rank>)| {
        let ((job, _), rank) = own.first_key_value().filter(|_| own.len() == 1)?;
        single.contains(job).then_some((*port, (*job, *rank)))
    };
    ports.iter().filter_map(one).collect()
}

/// Ports of a job with a connection whose messages match the job's library, to a port without ranks.
/// With several LIDs per port, each connection may use another LID. The port without ranks may then be
/// another LID of a port with several ranks, and other queue pairs may belong to any of these ranks.
fn ports_beside_unranked(
    connections: &[Box<ConnectionTotals>],
    jobs: &[InferredJob<'_>],
    ports: &BTreeMap<Endpoint, BTreeMap<(u32, u32), Rank>>,
) -> BTreeSet<Endpoint> {
    let beside = |own: &ConnectionTotals| {
        let is_data = own.key.kind == TrafficKind::Data && !own.key.is_datagram();
        let (src, dst) = (own.key.src, own.key.dst);
        let (port, ranks) = match (ports.get(&src), ports.get(&dst)) {
            (Some(ranks), None) => (src, ranks),
            (None, Some(ranks)) => (dst, ranks),
            _ => return None,
        };
        let mut families = ranks.keys().filter_map(|(job, _)| jobs.get(*job as usize - 1)?.family());
        (is_data && families.any(|(family, _)| messages_match(own, family))).then_some(port)
    };
    connections.iter().filter_map(|own| beside(own)).collect()
}

/// True if the connection has messages, and all of them match the library.
fn messages_match(connection: &ConnectionTotals, family: Family) -> bool {
    let votes = connection.votes();
    let own: u64 = ibscope_parsers::mpi::LibraryStack::ALL
        .into_iter()
        .filter(|stack| Family::of(*stack) == family)
        .map(|stack| votes.enveloped[stack as usize] + votes.bare[stack as usize])
        .sum();
    own > 0 && own == connection.starts()
}

/// True if no message of the connection carries an envelope.
fn is_bare(connection: &ConnectionTotals) -> bool {
    connection.votes().enveloped.iter().sum::<u64>() == 0
}
