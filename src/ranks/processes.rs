//! Queue pairs -> processes.
//!
//! A process is a set of queue pairs, on any number of ports. Which belong together follows from what libraries say of
//! themselves while they connect: UCX's wire-up messages name their worker, introductions (`udcm`, MVAPICH2) come from
//! one datagram queue pair, and CM private data of `openib` state job and rank. Where none of it was captured each queue
//! pair is a process of its own, as far as can be seen.
//!
//! Senders whose queue pair is unknown are ends too: what they say of themselves counts for their connection alone.

use super::cm::Exchange;
use super::moved::{Moved, listed};
use super::{Witnesses, reading};
use crate::model::traffic::ConnectionTotals;
use crate::model::{HashMap, QueuePair, Wireup};
use ibscope_parsers::Endpoint;
use ibscope_parsers::mpi::nccl::Release;
use std::collections::{BTreeMap, BTreeSet};

/// Number of an end of connections: a queue pair, or the unknown sender of one connection.
pub(super) type End = u32;

/// Sets of ends that grow together. The end with the smallest number stands for its set.
#[derive(Debug, Default)]
pub(super) struct Sets(Vec<End>);

impl Sets {
    pub(super) fn add(&mut self) -> End {
        let next = self.0.len() as End;
        self.0.push(next);
        next
    }

    /// The end that stands for the set of an end.
    pub(super) fn of(&mut self, end: End) -> End {
        let mut at = end;
        while self.0[at as usize] != at {
            // Halves the path for the next time.
            let next = self.0[self.0[at as usize] as usize];
            self.0[at as usize] = next;
            at = next;
        }
        at
    }

    pub(super) fn join(&mut self, a: End, b: End) {
        let (a, b) = (self.of(a), self.of(b));
        self.0[a.max(b) as usize] = a.min(b);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// All ends, and the processes they belong to.
#[derive(Debug, Default)]
pub(super) struct Processes {
    numbers: HashMap<QueuePair, End>,
    queue_pairs: Vec<Option<QueuePair>>,
    sets: Sets,
    /// Ends that a library's own connection messages name: such a process is known, and equals no other.
    named: Vec<bool>,
    /// The release of NCCL that ends show.
    releases: BTreeMap<End, Release>,
    /// Ends of which the process may be several.
    doubtful: BTreeSet<End>,
}

impl Processes {
    /// The number of a queue pair.
    pub(super) fn end(&mut self, queue_pair: QueuePair) -> End {
        if let Some(end) = self.numbers.get(&queue_pair) {
            return *end;
        }
        let end = self.add(Some(queue_pair));
        self.numbers.insert(queue_pair, end);
        end
    }

    /// An end of which only its connection is known.
    pub(super) fn unknown_sender(&mut self) -> End {
        self.add(None)
    }

    fn add(&mut self, queue_pair: Option<QueuePair>) -> End {
        self.queue_pairs.push(queue_pair);
        self.named.push(false);
        self.sets.add()
    }

    /// The number of a queue pair that is known already.
    pub(super) fn find(&self, queue_pair: QueuePair) -> Option<End> {
        self.numbers.get(&queue_pair).copied()
    }

    /// The queue pair of an end.
    pub(super) fn queue_pair(&self, end: End) -> Option<QueuePair> {
        self.queue_pairs[end as usize]
    }

    /// The process of an end: the end that stands for it.
    pub(super) fn process(&mut self, end: End) -> End {
        self.sets.of(end)
    }

    /// Number of ends.
    pub(super) fn len(&self) -> usize {
        self.sets.len()
    }

    /// True where a library's connection messages name the process.
    pub(super) fn is_named(&mut self, end: End) -> bool {
        let process = self.process(end);
        self.named[process as usize]
    }

    pub(super) fn set_release(&mut self, end: End, release: Release) {
        self.releases.insert(end, release);
    }

    /// The release of NCCL that an end shows.
    pub(super) fn release(&self, end: End) -> Option<Release> {
        self.releases.get(&end).copied()
    }

    /// The process of this end may be several.
    pub(super) fn doubt(&mut self, end: End) {
        self.doubtful.insert(end);
    }

    /// Processes that may be several, by the end that stands for them.
    pub(super) fn doubtful(&mut self) -> BTreeSet<End> {
        let Self { doubtful, sets, .. } = self;
        doubtful.iter().map(|end| sets.of(*end)).collect()
    }

    /// These ends belong to one process.
    pub(super) fn join(&mut self, ends: &[End]) {
        for end in ends {
            self.sets.join(ends[0], *end);
        }
    }

    /// These queue pairs belong to one process, which its library names.
    fn join_named(&mut self, queue_pairs: impl IntoIterator<Item = QueuePair>) {
        let ends: Vec<End> = queue_pairs.into_iter().map(|queue_pair| self.end(queue_pair)).collect();
        self.join(&ends);
        ends.iter().for_each(|end| self.named[*end as usize] = true);
    }

    /// Whoever stands for a process carries its mark.
    fn settle_names(&mut self) {
        for end in 0..self.sets.len() as End {
            let process = self.sets.of(end);
            self.named[process as usize] |= self.named[end as usize];
        }
    }
}

/// The queue pairs of UCX's workers. Their ids are random 64-bit numbers, so one on two ports is one process; one that
/// opens the same endpoint at two ports is not: something has copied its messages.
fn workers(witnesses: &Witnesses<'_>, moved: &Moved) -> BTreeMap<(u64, Option<Endpoint>), Vec<QueuePair>> {
    let mut ports: BTreeMap<(u64, u64), BTreeSet<Endpoint>> = BTreeMap::new();
    for wireup in witnesses.wireups {
        ports.entry((wireup.worker, wireup.sender_endpoint)).or_default().insert(wireup.src);
    }
    let copied: BTreeSet<u64> =
        ports.iter().filter(|(_, ports)| ports.len() > 1).map(|((worker, _), _)| *worker).collect();
    let mut workers: BTreeMap<(u64, Option<Endpoint>), Vec<QueuePair>> = BTreeMap::new();
    let other_ports = |wireup: &Wireup| listed(wireup).any(|listed| listed.endpoint != wireup.src);
    let shown: BTreeSet<QueuePair> = if witnesses.wireups.iter().any(other_ports) {
        witnesses.connections.iter().map(|own| reading::receiver(&own.key)).collect()
    } else {
        BTreeSet::new()
    };
    for (wireup, ends) in witnesses.wireups.iter().zip(witnesses.named) {
        let port = copied.contains(&wireup.worker).then_some(wireup.src);
        let own = workers.entry((wireup.worker, port)).or_default();
        own.extend(wireup.datagram_qp.map(|qpn| QueuePair { endpoint: wireup.src, qpn }));
        own.extend(ends);
        let at_other_ports =
            |listed: QueuePair| (listed.endpoint != wireup.src && shown.contains(&listed)).then_some(listed);
        own.extend(listed(wireup).filter_map(|listed| moved.elsewhere(listed).or_else(|| at_other_ports(listed))));
    }
    workers
}

/// Jobs of `openib` of which an exchange stands at several ports with the same queue pair numbers and the same first PSNs, which are
/// random: something has copied its packets, so that what is at another port is no rail.
fn copied(exchanges: &[Exchange]) -> BTreeSet<u32> {
    let mut ports: BTreeMap<_, BTreeSet<[Endpoint; 2]>> = BTreeMap::new();
    for Exchange { requester, replier, first_psns, stated } in exchanges {
        if let (Some(stated), (Some(first), Some(other))) = (stated, first_psns) {
            let numbers = (stated.job, requester.qpn, replier.qpn, *first, *other);
            ports.entry(numbers).or_default().insert([requester.endpoint, replier.endpoint]);
        }
    }
    ports.into_iter().filter(|(_, ports)| ports.len() > 1).map(|((job, ..), _)| job).collect()
}

/// Times of the first and the last packet to each queue pair, nanoseconds since the epoch.
type InUse = HashMap<QueuePair, (i64, i64)>;

fn in_use(connections: &[Box<ConnectionTotals>]) -> InUse {
    let mut in_use = InUse::default();
    for own in connections {
        let (first_ns, last_ns) = own.times_ns;
        let times = in_use.entry(reading::receiver(&own.key)).or_insert((first_ns, last_ns));
        *times = (times.0.min(first_ns), times.1.max(last_ns));
    }
    in_use
}

/// The processes that connection messages name.
pub(super) fn named(witnesses: &Witnesses<'_>, exchanges: &[Exchange], moved: &Moved) -> Processes {
    let mut processes = Processes::default();
    workers(witnesses, moved).into_values().for_each(|own| processes.join_named(own));
    let copied = copied(exchanges);
    let mut ranks: BTreeMap<(u32, u32, Option<Endpoint>), Vec<QueuePair>> = BTreeMap::new();
    for said in witnesses.introductions {
        let own = said.queue_pairs.iter().map(|&qpn| QueuePair { endpoint: said.from.endpoint, qpn });
        let own: Vec<QueuePair> = own.chain([said.from]).collect();
        if let (Some(job), Some(rank)) = (said.job, said.world_rank) {
            ranks.entry((job, rank, None)).or_default().extend(&own);
        }
        processes.join_named(own);
    }
    for exchange in exchanges {
        if let Some(stated) = exchange.stated {
            for (rank, end) in [(stated.requester, exchange.requester), (stated.replier, exchange.replier)] {
                let port = copied.contains(&stated.job).then_some(end.endpoint);
                ranks.entry((stated.job, rank, port)).or_default().push(end);
            }
        }
    }
    ranks.into_values().for_each(|own| processes.join_named(own));
    let in_use = if witnesses.nccl.same.is_empty() { InUse::default() } else { in_use(witnesses.connections) };
    for pair in &witnesses.nccl.same {
        // Memory of a process that has ended may be at the same addresses in the next one.
        let times = in_use.get(&pair.a).zip(in_use.get(&pair.b));
        if times.is_none_or(|(a, b)| a.0 <= b.1 && b.0 <= a.1) {
            let ends = [processes.end(pair.a), processes.end(pair.b)];
            processes.join(&ends);
        }
    }
    processes.settle_names();
    processes
}
