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
use super::{IdentityEvidence, QueuePairPartners, RanksByQueuePair, ResolvedRanks};
use crate::model::traffic::ConnectionTotals;
use crate::model::{QueuePair, TrafficKind};
use ibscope_parsers::Endpoint;
use std::collections::{BTreeMap, BTreeSet};

/// Assigns queue pairs the rank of their port, and connections the job of their ports. Ports in
/// `blocked` have messages of unknown processes.
pub(super) fn by_port(
    evidence: &IdentityEvidence<'_>,
    paired: &QueuePairPartners,
    jobs: &[InferredJob<'_>],
    processes: &mut Processes,
    ranks: &mut RanksByQueuePair,
    blocked: &BTreeSet<Endpoint>,
    identified: &mut ResolvedRanks,
) {
    let alone = ports_of_one_rank(evidence.connections, jobs, ranks, blocked, processes);
    let times_ns: Vec<(i64, i64)> = jobs.iter().map(InferredJob::times_ns).collect();
    let with_envelopes = evidence.connections.iter().filter(|own| !is_bare(own));
    let with_envelopes: BTreeSet<(Endpoint, QueuePair)> =
        with_envelopes.map(|own| (own.key.src, tag_layout::receiver(&own.key))).collect();
    let others = evidence.connections.iter().filter(|own| tag_layout::is_another_protocol(own));
    let others: BTreeSet<QueuePair> = others.map(|own| tag_layout::receiver(&own.key)).collect();
    let mut found: Vec<(QueuePair, (u32, Rank))> = Vec::new();
    for (index, connection) in evidence.connections.iter().enumerate() {
        let receiver = tag_layout::receiver(&connection.key);
        // A datagram queue pair may serve the connection setup of other processes; its traffic
        // belongs to no pair of ranks.
        let is_data = connection.key.kind == TrafficKind::Data && !connection.key.is_datagram();
        let Some((sender, _)) = paired.partner(receiver).filter(|_| is_data) else { continue };
        if others.contains(&sender) || others.contains(&receiver) {
            continue;
        }
        let of = |end: &QueuePair| ranks.get(end).or_else(|| alone.get(&end.endpoint)).copied();
        let (Some(from), Some(to)) = (of(&sender), of(&receiver)) else { continue };
        if from.0 != to.0 || from.1.rank == to.1.rank {
            continue;
        }
        let Some(job) = jobs.get(from.0 as usize - 1) else { continue };
        let is_new = !ranks.contains_key(&sender) || !ranks.contains_key(&receiver);
        let (first_ns, last_ns) = times_ns[from.0 as usize - 1];
        let is_within = first_ns <= connection.times_ns.0 && connection.times_ns.1 <= last_ns;
        if is_new && !(is_within && is_of_library(connection, [sender, receiver], job, processes)) {
            continue;
        }
        let inferred = |rank: Rank| Rank { evidence: RankEvidence::Port, agreeing: 0, disagreeing: 0, ..rank };
        for (end, (number, rank)) in [(sender, from), (receiver, to)] {
            if !ranks.contains_key(&end) {
                found.push((end, (number, inferred(rank))));
            }
        }
        identified.job_of[index] = Some(from.0);
        let back = QueuePair { endpoint: connection.key.src, ..sender };
        // Open MPI's `osc/ucx` has a UCX worker of its own: its queue pairs carry no envelopes in
        // either direction.
        let is_silent = is_bare(connection) && !with_envelopes.contains(&(receiver.endpoint, back));
        let is_of_ucx = job.family().is_some_and(|(family, _)| family == Family::Ucx);
        identified.one_sided[index] = is_new && is_silent && is_of_ucx;
    }
    ranks.extend(found);
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
/// With several LIDs per port, each connection may have another one. The unranked port may then be one
/// more LID of a port with several ranks, and any other queue pair may be of any of them.
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

/// True if the connection is of the job's library: connection messages name both ends, or all its
/// messages match the library.
fn is_of_library(
    connection: &ConnectionTotals,
    ends: [QueuePair; 2],
    job: &InferredJob<'_>,
    processes: &mut Processes,
) -> bool {
    let Some((family, _)) = job.family() else { return false };
    let is_named = |end: QueuePair| processes.find(end).is_some_and(|end| processes.is_named(end));
    messages_match(connection, family) || family == Family::Ucx && ends.map(is_named) == [true; 2]
}

/// True if no message of the connection carries an envelope.
fn is_bare(connection: &ConnectionTotals) -> bool {
    connection.votes().enveloped.iter().sum::<u64>() == 0
}
