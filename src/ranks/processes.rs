//! Processes: sets of queue pairs, on any number of ports.
//!
//! Connection messages show which queue pairs belong to one process: UCX wire-up messages name
//! their worker, connection messages of `udcm` and MVAPICH2 come from one datagram queue pair, and
//! the CM private data of `openib` state job and rank. Without captured connection messages each
//! queue pair counts as a process of its own.
//!
//! Senders whose queue pair is unknown are ends too; their votes count for their connection only.

use super::aliases::{QueuePairAliases, listed_queue_pairs};
use super::cm::CmExchange;
use super::{IdentityEvidence, tag_layout};
use crate::model::{ConnectionTotals, HashMap, QueuePair, TrafficKind, WorkerWireup};
use ibscope_parsers::ib::{Opcode, Service};
use ibscope_parsers::mpi::nccl::Release;
use ibscope_parsers::{Endpoint, Psn};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Number of an end of a connection: a queue pair, or the unknown sender of one connection.
pub(super) type EndId = u32;

/// Disjoint sets of ends. The end with the smallest number represents its set.
#[derive(Debug, Default)]
pub(super) struct UnionFind(Vec<EndId>);

impl UnionFind {
    pub(super) fn add(&mut self) -> EndId {
        let next = self.0.len() as EndId;
        self.0.push(next);
        next
    }

    /// The representative of an end's set.
    pub(super) fn find(&mut self, end: EndId) -> EndId {
        let mut at = end;
        while self.0[at as usize] != at {
            // Path halving: shortens the path for later calls.
            let next = self.0[self.0[at as usize] as usize];
            self.0[at as usize] = next;
            at = next;
        }
        at
    }

    pub(super) fn join(&mut self, a: EndId, b: EndId) {
        let (a, b) = (self.find(a), self.find(b));
        self.0[a.max(b) as usize] = a.min(b);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// All ends, and their processes.
#[derive(Debug, Default)]
pub(super) struct Processes {
    numbers: HashMap<QueuePair, EndId>,
    queue_pairs: Vec<Option<QueuePair>>,
    sets: UnionFind,
    /// True for ends that a library's connection messages name. Such a process is known, and
    /// differs from every other.
    named: Vec<bool>,
    /// The NCCL release of ends.
    releases: BTreeMap<EndId, Release>,
    /// Ends whose process may be several.
    doubtful: BTreeSet<EndId>,
}

impl Processes {
    /// The number of a queue pair; adds it if it is new.
    pub(super) fn end(&mut self, queue_pair: QueuePair) -> EndId {
        if let Some(end) = self.numbers.get(&queue_pair) {
            return *end;
        }
        let end = self.add(Some(queue_pair));
        self.numbers.insert(queue_pair, end);
        end
    }

    /// Adds an end whose queue pair is unknown.
    pub(super) fn unknown_sender(&mut self) -> EndId {
        self.add(None)
    }

    fn add(&mut self, queue_pair: Option<QueuePair>) -> EndId {
        self.queue_pairs.push(queue_pair);
        self.named.push(false);
        self.sets.add()
    }

    /// The number of a queue pair, if it was added.
    pub(super) fn find(&self, queue_pair: QueuePair) -> Option<EndId> {
        self.numbers.get(&queue_pair).copied()
    }

    /// The queue pair of an end.
    pub(super) fn queue_pair(&self, end: EndId) -> Option<QueuePair> {
        self.queue_pairs[end as usize]
    }

    /// The queue pairs that belong to a named process, with their ends.
    pub(super) fn named_queue_pairs(&mut self) -> Vec<(QueuePair, EndId)> {
        let all: Vec<(QueuePair, EndId)> = self.numbers.iter().map(|(queue_pair, end)| (*queue_pair, *end)).collect();
        all.into_iter().filter(|(_, end)| self.is_named(*end)).collect()
    }

    /// The process of an end: the representative of its set.
    pub(super) fn process(&mut self, end: EndId) -> EndId {
        self.sets.find(end)
    }

    /// Number of ends.
    pub(super) fn len(&self) -> usize {
        self.sets.len()
    }

    /// True if a library's connection messages name the process.
    pub(super) fn is_named(&mut self, end: EndId) -> bool {
        let process = self.process(end);
        self.named[process as usize]
    }

    pub(super) fn set_release(&mut self, end: EndId, release: Release) {
        self.releases.insert(end, release);
    }

    /// The NCCL release of an end.
    pub(super) fn release(&self, end: EndId) -> Option<Release> {
        self.releases.get(&end).copied()
    }

    /// Flags the process of this end as possibly several.
    pub(super) fn doubt(&mut self, end: EndId) {
        self.doubtful.insert(end);
    }

    /// Processes that may be several, by representative.
    pub(super) fn doubtful(&mut self) -> BTreeSet<EndId> {
        let Self { doubtful, sets, .. } = self;
        doubtful.iter().map(|end| sets.find(*end)).collect()
    }

    /// Joins the ends into one process.
    pub(super) fn join(&mut self, ends: &[EndId]) {
        for end in ends {
            self.sets.join(ends[0], *end);
        }
    }

    /// Joins the queue pairs into one process that its library names.
    fn join_named(&mut self, queue_pairs: impl IntoIterator<Item = QueuePair>) {
        let ends: Vec<EndId> = queue_pairs.into_iter().map(|queue_pair| self.end(queue_pair)).collect();
        self.join(&ends);
        ends.iter().for_each(|end| self.named[*end as usize] = true);
    }

    /// Copies the flag of each named end to its representative.
    fn propagate_names(&mut self) {
        for end in 0..self.sets.len() as EndId {
            let process = self.sets.find(end);
            self.named[process as usize] |= self.named[end as usize];
        }
    }
}

/// Queue pairs that several processes used: a later process reuses the number of a process that has
/// ended, or two subnets have equal addresses. Two kinds of evidence show them: several UCX workers
/// name the queue pair, or its requests come from two ports with two sequences of PSNs.
pub(super) fn reused_queue_pairs(evidence: &IdentityEvidence<'_>) -> BTreeSet<QueuePair> {
    // Worker ids are random 64-bit numbers, so two ids are two workers.
    let mut owners: BTreeMap<QueuePair, BTreeSet<u64>> = BTreeMap::new();
    for (wireup, ends) in evidence.wireups.iter().zip(evidence.named_queue_pairs) {
        let datagram = wireup.datagram_qp.map(|qpn| QueuePair { endpoint: wireup.src, qpn });
        for end in ends.iter().copied().chain(datagram) {
            owners.entry(end).or_default().insert(wireup.worker);
        }
    }
    let named = owners.into_iter().filter(|(_, workers)| workers.len() > 1).map(|(end, _)| end);
    named.chain(reconnected_queue_pairs(evidence.connections)).collect()
}

/// Queue pairs of reliable connections with requests from two ports, whose PSNs are not one sequence.
/// Such a queue pair has one partner (InfiniBand Architecture, 9.7.1), which continues its sequence
/// of PSNs if its path migrates to another port.
fn reconnected_queue_pairs(connections: &[Box<ConnectionTotals>]) -> BTreeSet<QueuePair> {
    let is_reliable = |own: &&ConnectionTotals| {
        own.key.kind == TrafficKind::Data && Opcode(own.key.service << 5).service() == Service::Rc
    };
    let with_requests = connections.iter().map(|own| &**own).filter(|own| own.continuity.request_packets > 0);
    let mut all: Vec<&ConnectionTotals> = with_requests.filter(is_reliable).collect();
    let receiver = |own: &ConnectionTotals| tag_layout::receiver(&own.key);
    all.par_sort_unstable_by_key(|own| (receiver(own), own.times_ns, own.key.src));
    let begins_anew = |pair: &[&ConnectionTotals]| {
        let (last, first) = (pair[0].continuity.last_request, pair[1].continuity.first_psn);
        let is_behind = |(last, first)| Psn::new(first).since(Psn::new(last)) <= 0;
        receiver(pair[0]) == receiver(pair[1]) && last.zip(first).is_some_and(is_behind)
    };
    all.windows(2).filter(|pair| begins_anew(pair)).map(|pair| receiver(pair[0])).collect()
}

/// The queue pairs of each UCX worker, except those in `reused`. Worker ids are random 64-bit
/// numbers, so one id at two ports is one process. Exception: if a worker opens the same endpoint
/// at two ports, its messages were duplicated, and each port counts as a worker of its own.
fn workers(
    evidence: &IdentityEvidence<'_>,
    aliases: &QueuePairAliases,
    reused: &BTreeSet<QueuePair>,
) -> BTreeMap<(u64, Option<Endpoint>), Vec<QueuePair>> {
    let mut ports: BTreeMap<(u64, u64), BTreeSet<Endpoint>> = BTreeMap::new();
    for wireup in evidence.wireups {
        ports.entry((wireup.worker, wireup.sender_endpoint)).or_default().insert(wireup.src);
    }
    let duplicated: BTreeSet<u64> =
        ports.iter().filter(|(_, ports)| ports.len() > 1).map(|((worker, _), _)| *worker).collect();
    let mut workers: BTreeMap<(u64, Option<Endpoint>), Vec<QueuePair>> = BTreeMap::new();
    let other_ports = |wireup: &WorkerWireup| listed_queue_pairs(wireup).any(|listed| listed.endpoint != wireup.src);
    let shown: BTreeSet<QueuePair> = if evidence.wireups.iter().any(other_ports) {
        evidence.connections.iter().map(|own| tag_layout::receiver(&own.key)).collect()
    } else {
        BTreeSet::new()
    };
    for (wireup, ends) in evidence.wireups.iter().zip(evidence.named_queue_pairs) {
        let port = duplicated.contains(&wireup.worker).then_some(wireup.src);
        let own = workers.entry((wireup.worker, port)).or_default();
        own.extend(wireup.datagram_qp.map(|qpn| QueuePair { endpoint: wireup.src, qpn }));
        own.extend(ends);
        let at_other_ports =
            |listed: QueuePair| (listed.endpoint != wireup.src && shown.contains(&listed)).then_some(listed);
        own.extend(
            listed_queue_pairs(wireup).filter_map(|listed| aliases.alias(listed).or_else(|| at_other_ports(listed))),
        );
    }
    workers.values_mut().for_each(|own| own.retain(|end| !reused.contains(end)));
    workers
}

/// `openib` jobs with an exchange that appears at several ports with the same queue pair numbers
/// and the same first PSNs. First PSNs are random, so the packets were duplicated, and the other
/// port is no rail.
fn duplicated_jobs(exchanges: &[CmExchange]) -> BTreeSet<u32> {
    let mut ports: BTreeMap<_, BTreeSet<[Endpoint; 2]>> = BTreeMap::new();
    for CmExchange { requester, replier, first_psns, stated_ranks: stated, .. } in exchanges {
        if let (Some(stated), (Some(first), Some(other))) = (stated, first_psns) {
            let numbers = (stated.job, requester.qpn, replier.qpn, *first, *other);
            ports.entry(numbers).or_default().insert([requester.endpoint, replier.endpoint]);
        }
    }
    ports.into_iter().filter(|(_, ports)| ports.len() > 1).map(|((job, ..), _)| job).collect()
}

/// Times of the first and the last packet to each queue pair, in nanoseconds since the epoch.
type UsePeriods = HashMap<QueuePair, (i64, i64)>;

fn use_periods(connections: &[Box<ConnectionTotals>]) -> UsePeriods {
    let mut in_use = UsePeriods::default();
    for own in connections {
        let (first_ns, last_ns) = own.times_ns;
        let times = in_use.entry(tag_layout::receiver(&own.key)).or_insert((first_ns, last_ns));
        *times = (times.0.min(first_ns), times.1.max(last_ns));
    }
    in_use
}

/// The processes that connection messages name. `reused` are the queue pairs that several processes
/// use ([`reused_queue_pairs`]).
pub(super) fn named_processes(
    evidence: &IdentityEvidence<'_>,
    exchanges: &[CmExchange],
    aliases: &QueuePairAliases,
    reused: &BTreeSet<QueuePair>,
) -> Processes {
    let mut processes = Processes::default();
    workers(evidence, aliases, reused).into_values().for_each(|own| processes.join_named(own));
    let duplicated = duplicated_jobs(exchanges);
    let mut ranks: BTreeMap<(u32, u32, Option<Endpoint>), Vec<QueuePair>> = BTreeMap::new();
    for message in evidence.connection_messages {
        let own = message.queue_pairs.iter().map(|&qpn| QueuePair { endpoint: message.from.endpoint, qpn });
        let own: Vec<QueuePair> = own.chain([message.from]).collect();
        if let (Some(job), Some(rank)) = (message.job, message.world_rank) {
            ranks.entry((job, rank, None)).or_default().extend(&own);
        }
        processes.join_named(own);
    }
    for exchange in exchanges {
        if let Some(stated) = exchange.stated_ranks {
            for (rank, end) in [(stated.requester, exchange.requester), (stated.replier, exchange.replier)] {
                let port = duplicated.contains(&stated.job).then_some(end.endpoint);
                ranks.entry((stated.job, rank, port)).or_default().push(end);
            }
        }
    }
    ranks.into_values().for_each(|own| processes.join_named(own));
    let in_use = if evidence.nccl.same.is_empty() { UsePeriods::default() } else { use_periods(evidence.connections) };
    for pair in &evidence.nccl.same {
        // A later process may map its memory at the addresses of a process that has ended, and a
        // UCX process may reuse its queue pair number.
        let times = in_use.get(&pair.a).zip(in_use.get(&pair.b));
        let ends = [processes.end(pair.a), processes.end(pair.b)];
        let is_named = ends.iter().any(|end| processes.named[*end as usize]);
        let are_concurrent = pair.shares_ring || times.is_none_or(|(a, b)| a.0 <= b.1 && b.0 <= a.1);
        if !is_named && are_concurrent {
            processes.join(&ends);
        }
    }
    processes.propagate_names();
    processes
}

#[cfg(test)]
mod tests {
    use super::super::tests::connection;
    use super::{QueuePair, reconnected_queue_pairs};
    use crate::model::ConnectionTotals;
    use ibscope_parsers::Qpn;

    /// Requests from a port to queue pair 0x40 of port 17, with these first and last PSNs.
    fn requests(src: u16, start_ns: i64, (first, last): (u32, u32)) -> Box<ConnectionTotals> {
        let mut own = Box::new(connection(src, 17, 0x40));
        own.times_ns = (start_ns, start_ns + 100);
        own.continuity.request_packets = 1;
        (own.continuity.first_psn, own.continuity.last_request) = (Some(first), Some(last));
        own
    }

    #[test]
    fn a_second_sequence_of_psns_from_another_port_is_another_connection() {
        let first = requests(18, 0, (0, 40));
        for (start_ns, psns, is_reused) in [
            (200, (0, 7), true),
            (200, (40, 47), true),
            (200, (41, 50), false),
            (200, (43, 50), false),
            (-200, (0xFF_FFF0, 0xFF_FFFF), false),
            (-200, (0, 7), true),
        ] {
            let found = reconnected_queue_pairs(&[first.clone(), requests(19, start_ns, psns)]);
            let reused = QueuePair { endpoint: first.key.dst, qpn: Qpn::new(0x40) };
            assert_eq!(found.into_iter().collect::<Vec<_>>(), vec![reused; usize::from(is_reused)], "{psns:?}");
        }
        assert!(reconnected_queue_pairs(&[first]).is_empty());
    }
}
