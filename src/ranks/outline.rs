//! What of a component decides which others it may be joined with.

use super::component::Component;
use super::processes::{End, Processes};
use super::reading::{Family, Fitting};
use crate::model::nodes::node;
use ibscope_parsers::Endpoint;
use ibscope_parsers::mpi::TagLayout;
use ibscope_parsers::mpi::nccl::Release;
use std::collections::{BTreeMap, BTreeSet};

/// Jobs that are compared with each other, each with each, to find those that may be one; of more, each may be.
pub(super) const MAX_COMPARED: usize = 1 << 10;

/// Ports of nodes, as the names say that they have.
#[derive(Debug)]
pub(super) struct Nodes(BTreeMap<Endpoint, Endpoint>);

impl Nodes {
    pub(super) fn new(names: &BTreeMap<Endpoint, String>) -> Self {
        let mut first: BTreeMap<&str, Endpoint> = BTreeMap::new();
        Self(names.iter().map(|(port, name)| (*port, *first.entry(node(name)).or_insert(*port))).collect())
    }

    /// The port that stands for all ports of the node.
    pub(super) fn of(&self, port: Endpoint) -> Endpoint {
        self.0.get(&port).copied().unwrap_or(port)
    }
}

/// What of a component decides which others it may be joined with.
#[derive(Debug)]
pub(super) struct Outline {
    /// Ports of each rank; the first one of a node stands for all that are known to be of it.
    pub(super) ports: BTreeMap<u32, BTreeSet<Endpoint>>,
    /// Processes of each rank that connection messages name.
    named: BTreeMap<u32, BTreeSet<End>>,
    /// Ranks that are connected, the lower one first, with the times of the first and the last packet between them,
    /// nanoseconds since the epoch.
    links: BTreeMap<(u32, u32), (i64, i64)>,
    pub(super) key: (Family, TagLayout),
    /// Release of NCCL, where one is known.
    release: Option<Release>,
}

/// Entries that two maps have in common, found by those of the smaller one: of two sets one may be a whole job and the
/// other a connection.
pub(super) fn common<'a, K: Ord, V>(
    a: &'a BTreeMap<K, V>,
    b: &'a BTreeMap<K, V>,
) -> impl Iterator<Item = (&'a K, &'a V, &'a V)> {
    let (small, large) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    small.iter().filter_map(|(key, own)| Some((key, own, large.get(key)?)))
}

impl Outline {
    pub(super) fn new(component: &Component<'_>, nodes: &Nodes, processes: &mut Processes) -> Self {
        let by_rank = component.processes_by_rank();
        let mut named: BTreeMap<u32, BTreeSet<End>> = BTreeMap::new();
        for (rank, own) in &by_rank {
            let known: BTreeSet<End> = own.iter().copied().filter(|process| processes.is_named(*process)).collect();
            if !known.is_empty() {
                named.insert(*rank, known);
            }
        }
        let mut links = BTreeMap::new();
        // Queue pairs that two processes have opened beside the one that they use carry no envelope.
        let speaks = |fit: &Fitting<'_>| fit.connection.votes().enveloped.iter().sum::<u64>() > 0;
        for (fit, (from, to)) in component.connections.iter().filter(|(fit, _)| speaks(fit)) {
            let rank = |end: End, processes: &mut Processes| Some(component.ranks.get(&processes.process(end))?.rank);
            if let (Some(from), Some(to)) = (rank(*from, processes), rank(*to, processes)) {
                add_times(&mut links, (from.min(to), from.max(to)), fit.connection.times_ns);
            }
        }
        let of_process = |process: &End| component.ports.get(process).into_iter().flatten().map(|port| nodes.of(*port));
        let ports = by_rank.iter().map(|(rank, own)| (*rank, own.iter().flat_map(of_process).collect())).collect();
        Self { ports, named, links, key: (component.family, component.layout), release: component.release }
    }

    /// Both know a rank, at one port.
    pub(super) fn touches(&self, other: &Self) -> bool {
        self.key == other.key && common(&self.ports, &other.ports).any(|(_, own, others)| !own.is_disjoint(others))
    }

    /// They cannot be of one job.
    pub(super) fn contradicts(&self, other: &Self) -> bool {
        let is_elsewhere = common(&self.ports, &other.ports).any(|(_, own, others)| own.is_disjoint(others));
        self.key != other.key
            || self.is_of_another_release(other)
            || is_elsewhere
            || self.is_another(other)
            || self.doubles(other)
    }

    fn is_of_another_release(&self, other: &Self) -> bool {
        self.release.zip(other.release).is_some_and(|(own, others)| own != others)
    }

    /// A connection of the one cannot stand beside one of the other in one job.
    pub(super) fn doubles(&self, other: &Self) -> bool {
        let mut common = common(&self.links, &other.links);
        if !self.key.0.has_parallel_queue_pairs() {
            return common.next().is_some();
        }
        // Two processes connect all their queue pairs at once: those that were used before, and which no connection
        // message names, are of another job. Nothing names those of NCCL.
        let is_named = |outline: &Self, (a, b): &(u32, u32)| [a, b].iter().all(|rank| outline.named.contains_key(rank));
        common.any(|(link, own, others)| {
            let is_apart = own.1 < others.0 || others.1 < own.0;
            is_apart && (self.key.0 == Family::Nccl || is_named(self, link) != is_named(other, link))
        })
    }

    /// They may be one job on several ports of each node: a rank is at another port at the same time, and nothing else
    /// speaks against it.
    pub(super) fn may_be_twin(&self, other: &Self) -> bool {
        let overlaps = |own: &(i64, i64), others: &(i64, i64)| own.0 <= others.1 && others.0 <= own.1;
        let meets = |own: &(i64, i64)| other.links.values().any(|others| overlaps(own, others));
        // Nothing names NCCL's processes; those on several ports show it by the memory that they share.
        self.key == other.key
            && self.key.0 != Family::Nccl
            && common(&self.ports, &other.ports).next().is_some()
            && !self.is_another(other)
            && !self.doubles(other)
            && self.links.values().any(meets)
    }

    /// Connection messages name different processes as one rank.
    fn is_another(&self, other: &Self) -> bool {
        common(&self.named, &other.named).any(|(_, own, others)| own.is_disjoint(others))
    }

    /// All ranks up to the highest are there.
    pub(super) fn is_whole(&self) -> bool {
        is_dense(self.ports.keys().copied(), 100)
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (rank, ports) in &other.ports {
            self.ports.entry(*rank).or_default().extend(ports);
        }
        for (rank, named) in &other.named {
            self.named.entry(*rank).or_default().extend(named);
        }
        self.release = self.release.or(other.release);
        other.links.iter().for_each(|(link, times)| add_times(&mut self.links, *link, *times));
    }
}

fn add_times(links: &mut BTreeMap<(u32, u32), (i64, i64)>, link: (u32, u32), (first_ns, last_ns): (i64, i64)) {
    let own = links.entry(link).or_insert((first_ns, last_ns));
    *own = (own.0.min(first_ns), own.1.max(last_ns));
}

/// So many percent of the numbers up to the highest rank are there.
pub(super) fn is_dense(ranks: impl IntoIterator<Item = u32>, percent: usize) -> bool {
    let ranks: BTreeSet<u32> = ranks.into_iter().collect();
    let highest = ranks.last().copied().unwrap_or(0);
    ranks.len() * 100 >= (highest as usize + 1) * percent
}
