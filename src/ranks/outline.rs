//! Outlines: the properties of a component that decide which components it may join.

use super::component::Component;
use super::processes::{EndId, Processes};
use super::tag_layout::{Family, LibraryConnection};
use crate::model::nodes::node;
use ibscope_parsers::Endpoint;
use ibscope_parsers::mpi::TagLayout;
use ibscope_parsers::mpi::nccl::Release;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum of jobs to compare pairwise for being one job; with more, any two may be one.
pub(super) const MAX_COMPARED: usize = 1 << 10;

/// Ports of each node, as far as names show them.
#[derive(Debug)]
pub(super) struct NodePorts(BTreeMap<Endpoint, Endpoint>);

impl NodePorts {
    pub(super) fn new(names: &BTreeMap<Endpoint, String>) -> Self {
        let mut first: BTreeMap<&str, Endpoint> = BTreeMap::new();
        Self(names.iter().map(|(port, name)| (*port, *first.entry(node(name)).or_insert(*port))).collect())
    }

    /// The port that represents all ports of the node.
    pub(super) fn of(&self, port: Endpoint) -> Endpoint {
        self.0.get(&port).copied().unwrap_or(port)
    }
}

/// The properties of a component that decide which components it may join.
#[derive(Debug)]
pub(super) struct Outline {
    /// Ports of each rank; the first port of a node represents all its ports.
    pub(super) ports: BTreeMap<u32, BTreeSet<Endpoint>>,
    /// Processes of each rank that connection messages name.
    named: BTreeMap<u32, BTreeSet<EndId>>,
    /// Connected ranks, the lower one first, with the times of the first and the last packet
    /// between them in nanoseconds since the epoch.
    links: BTreeMap<(u32, u32), (i64, i64)>,
    pub(super) key: (Family, TagLayout),
    /// NCCL release, if known.
    release: Option<Release>,
}

/// Entries that two maps have in common. Iterates over the smaller map: one set may be a whole job
/// and the other a single connection.
pub(super) fn common<'a, K: Ord, V>(
    a: &'a BTreeMap<K, V>,
    b: &'a BTreeMap<K, V>,
) -> impl Iterator<Item = (&'a K, &'a V, &'a V)> {
    let (small, large) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    small.iter().filter_map(|(key, own)| Some((key, own, large.get(key)?)))
}

impl Outline {
    pub(super) fn new(component: &Component<'_>, nodes: &NodePorts, processes: &mut Processes) -> Self {
        let by_rank = component.processes_by_rank();
        let mut named: BTreeMap<u32, BTreeSet<EndId>> = BTreeMap::new();
        for (rank, own) in &by_rank {
            let known: BTreeSet<EndId> = own.iter().copied().filter(|process| processes.is_named(*process)).collect();
            if !known.is_empty() {
                named.insert(*rank, known);
            }
        }
        let mut links = BTreeMap::new();
        // Queue pairs that two processes opened but do not use carry no envelopes.
        let has_envelopes = |found: &LibraryConnection<'_>| found.connection.votes().enveloped.iter().sum::<u64>() > 0;
        for (found, (from, to)) in component.connections.iter().filter(|(found, _)| has_envelopes(found)) {
            let rank = |end: EndId, processes: &mut Processes| Some(component.ranks.get(&processes.process(end))?.rank);
            if let (Some(from), Some(to)) = (rank(*from, processes), rank(*to, processes)) {
                add_times(&mut links, (from.min(to), from.max(to)), found.connection.times_ns);
            }
        }
        let of_process =
            |process: &EndId| component.ports.get(process).into_iter().flatten().map(|port| nodes.of(*port));
        let ports = by_rank.iter().map(|(rank, own)| (*rank, own.iter().flat_map(of_process).collect())).collect();
        Self { ports, named, links, key: (component.family, component.layout), release: component.release }
    }

    /// True if both have the same rank at the same port.
    pub(super) fn touches(&self, other: &Self) -> bool {
        self.key == other.key && common(&self.ports, &other.ports).any(|(_, own, others)| !own.is_disjoint(others))
    }

    /// True if the two cannot be of one job.
    pub(super) fn contradicts(&self, other: &Self) -> bool {
        let is_elsewhere = common(&self.ports, &other.ports).any(|(_, own, others)| own.is_disjoint(others));
        self.key != other.key
            || self.is_of_another_release(other)
            || is_elsewhere
            || self.has_contradicting_processes(other)
            || self.has_conflicting_link(other)
    }

    fn is_of_another_release(&self, other: &Self) -> bool {
        self.release.zip(other.release).is_some_and(|(own, others)| own != others)
    }

    /// True if a connection of one and a connection of the other exclude each other in a job.
    pub(super) fn has_conflicting_link(&self, other: &Self) -> bool {
        let mut common = common(&self.links, &other.links);
        if !self.key.0.has_parallel_queue_pairs() {
            return common.next().is_some();
        }
        // Two processes connect all their queue pairs at once. Queue pairs that were in use earlier
        // and that no connection message names are therefore of another job. NCCL's queue pairs
        // have no names.
        let is_named = |outline: &Self, (a, b): &(u32, u32)| [a, b].iter().all(|rank| outline.named.contains_key(rank));
        common.any(|(link, own, others)| {
            let is_apart = own.1 < others.0 || others.1 < own.0;
            is_apart && (self.key.0 == Family::Nccl || is_named(self, link) != is_named(other, link))
        })
    }

    /// True if the two may be one job on several ports of each node: a rank is at another port at
    /// the same time, and nothing else contradicts.
    pub(super) fn may_be_same_job(&self, other: &Self) -> bool {
        let overlaps = |own: &(i64, i64), others: &(i64, i64)| own.0 <= others.1 && others.0 <= own.1;
        let meets = |own: &(i64, i64)| other.links.values().any(|others| overlaps(own, others));
        // NCCL's processes have no names; those on several ports are joined by the memory they
        // share.
        self.key == other.key
            && self.key.0 != Family::Nccl
            && common(&self.ports, &other.ports).next().is_some()
            && !self.has_contradicting_processes(other)
            && !self.has_conflicting_link(other)
            && self.links.values().any(meets)
    }

    /// True if connection messages name different processes for one rank.
    fn has_contradicting_processes(&self, other: &Self) -> bool {
        common(&self.named, &other.named).any(|(_, own, others)| own.is_disjoint(others))
    }

    /// True if all ranks up to the highest are present.
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

/// True if at least `percent` of the ranks up to the highest are present.
pub(super) fn is_dense(ranks: impl IntoIterator<Item = u32>, percent: usize) -> bool {
    let ranks: BTreeSet<u32> = ranks.into_iter().collect();
    let highest = ranks.last().copied().unwrap_or(0);
    ranks.len() * 100 >= (highest as usize + 1) * percent
}

#[cfg(test)]
pub(super) mod fixture {
    use super::super::component::{Rank, RankEvidence};
    use super::*;
    use ibscope_parsers::Lid;

    /// A component of processes with known ranks, each at one port: rank and LID.
    pub(in crate::ranks) fn component(
        processes: &mut Processes,
        ranks: &[(u32, u16)],
    ) -> (Outline, Component<'static>) {
        let ends: Vec<(EndId, u32, Endpoint)> = ranks
            .iter()
            .map(|(rank, lid)| (processes.unknown_sender(), *rank, Endpoint::from_lid(Lid(*lid))))
            .collect();
        let known = |rank| Rank { rank, agreeing: 3, disagreeing: 0, evidence: RankEvidence::Envelopes };
        let component = Component {
            family: Family::Ucx,
            layout: TagLayout::OpenMpi,
            connections: Vec::new(),
            votes: BTreeMap::new(),
            ranks: ends.iter().map(|(end, rank, _)| (*end, known(*rank))).collect(),
            ports: ends.iter().map(|(end, _, port)| (*end, BTreeSet::from([*port]))).collect(),
            times_ns: (0, 1),
            release: None,
            fills_elements: false,
        };
        (Outline::new(&component, &NodePorts::new(&BTreeMap::new()), processes), component)
    }
}
