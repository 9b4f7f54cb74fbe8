//! The links between two ports of a fabric: by the forwarding tables of its switches, or as shortest
//! paths.

use super::fabric::{FabricGraph, LinkKey, key};
use crate::model::HashMap;
use ibscope_parsers::tools::NodeKind;
use ibscope_parsers::tools::forwarding::ForwardingTable;
use petgraph::algo::dijkstra;
use petgraph::graph::NodeIndex;
use petgraph::visit::EdgeRef as _;
use std::collections::BTreeSet;

/// InfiniBand limits a route to this number of links, as `ibtracert` does.
const MOST_LINKS: usize = 64;

/// The links of a route, each as the port that sends into it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Route {
    /// Links on the route.
    pub(super) certain: Vec<LinkKey>,
    /// Links that are on some of several shortest paths, one of which is the route.
    pub(super) possible: Vec<LinkKey>,
    /// Number of links of the route.
    pub(super) length: u64,
}

/// Reason why no route is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoRoute {
    /// A LID that no host of the fabric has.
    NotInFabric,
    /// No cables lead from one port to the other.
    NotConnected,
    /// A switch on the way has no forwarding table in the file.
    NoTable,
    /// A forwarding table on the way has no entry for the LID.
    NoEntry,
    /// The tables lead elsewhere: to a port without a cable, to another host, or in a cycle.
    Astray,
}

impl NoRoute {
    /// The reason, as the end of "unknown, because ...".
    #[must_use]
    pub const fn because(self) -> &'static str {
        match self {
            Self::NotInFabric => "no host of the fabric has the LID",
            Self::NotConnected => "no cables of the fabric connect the ports",
            Self::NoTable => "a switch on the way has no forwarding table in the file",
            Self::NoEntry => "a forwarding table on the way has no entry for the LID",
            Self::Astray => "the forwarding tables do not lead to the port",
        }
    }
}

/// The forwarding tables of the switches of a fabric.
#[derive(Debug, Default)]
pub struct ForwardingTables {
    ports: HashMap<u64, HashMap<u16, u8>>,
    /// GUID of the port by LID, as the tables name it.
    owners: HashMap<u16, u64>,
}

impl ForwardingTables {
    /// The tables of the text of `dump_fts`.
    #[must_use]
    pub fn of(tables: &[ForwardingTable]) -> Self {
        let mut all = Self::default();
        for table in tables {
            let ports = all.ports.entry(table.switch_guid).or_default();
            for entry in &table.entries {
                ports.insert(entry.lid, entry.port);
                entry.port_guid.iter().for_each(|&guid| _ = all.owners.insert(entry.lid, guid));
            }
        }
        all
    }
}

/// Finds routes. Without forwarding tables, routes are assumed to be shortest paths.
pub(super) struct RouteFinder<'a> {
    fabric: &'a FabricGraph,
    tables: Option<&'a ForwardingTables>,
    /// Links from each switch to the switch of a destination, by that switch.
    distances: HashMap<NodeIndex, HashMap<NodeIndex, usize>>,
}

impl<'a> RouteFinder<'a> {
    pub(super) fn new(fabric: &'a FabricGraph, tables: Option<&'a ForwardingTables>) -> Self {
        Self { fabric, tables, distances: HashMap::default() }
    }

    /// The port of a host that has this LID. `ibnetdiscover -p` shows the first LID of a port only;
    /// forwarding tables also name the port of the others.
    pub(super) fn port(&self, lid: u16) -> Option<LinkKey> {
        let owner = || self.fabric.host_of_guid(*self.tables?.owners.get(&lid)?);
        self.fabric.host(lid).or_else(owner)
    }

    /// The route from the port of one LID to that of another.
    pub(super) fn route(&mut self, src: u16, dst: u16) -> Result<Route, NoRoute> {
        let ends = self.port(src).zip(self.port(dst));
        let (from, to) = ends.ok_or(NoRoute::NotInFabric)?;
        if from == to {
            return Ok(Route::default());
        }
        let first = self.fabric.far(from).ok_or(NoRoute::NotConnected)?;
        if key(first) == to {
            return Ok(Route { certain: vec![from], possible: Vec::new(), length: 1 });
        }
        if first.kind != NodeKind::Switch {
            return Err(NoRoute::NotConnected);
        }
        match self.tables {
            Some(tables) => self.by_tables(tables, from, first.guid, dst, to),
            None => self.shortest(from, first.guid, to),
        }
    }

    /// Walks from switch to switch through the ports that their tables name.
    fn by_tables(
        &self,
        tables: &ForwardingTables,
        from: LinkKey,
        first: u64,
        dst: u16,
        to: LinkKey,
    ) -> Result<Route, NoRoute> {
        let (mut certain, mut switch) = (vec![from], first);
        while certain.len() < MOST_LINKS {
            let table = tables.ports.get(&switch).ok_or(NoRoute::NoTable)?;
            let out = (switch, *table.get(&dst).ok_or(NoRoute::NoEntry)?);
            let far = self.fabric.far(out).ok_or(NoRoute::Astray)?;
            certain.push(out);
            if key(far) == to {
                let length = certain.len() as u64;
                return Ok(Route { certain, possible: Vec::new(), length });
            }
            if far.kind != NodeKind::Switch {
                return Err(NoRoute::Astray);
            }
            switch = far.guid;
        }
        Err(NoRoute::Astray)
    }

    /// Goes through all shortest paths at once, one link nearer to the destination with each step. A
    /// link that all of them share is the only one of its step.
    fn shortest(&mut self, from: LinkKey, first: u64, to: LinkKey) -> Result<Route, NoRoute> {
        let fabric = self.fabric;
        let last = fabric.far(to).filter(|port| port.kind == NodeKind::Switch).ok_or(NoRoute::NotConnected)?;
        let ends = fabric.index(first).zip(fabric.index(last.guid));
        let (start, end) = ends.ok_or(NoRoute::NotConnected)?;
        let distances = self
            .distances
            .entry(end)
            .or_insert_with(|| dijkstra(fabric.graph(), end, None, |_| 1_usize).into_iter().collect());
        let whole = *distances.get(&start).ok_or(NoRoute::NotConnected)?;
        let mut route = Route { certain: vec![from, key(last)], possible: Vec::new(), length: whole as u64 + 2 };
        let mut reached = BTreeSet::from([start]);
        for left in (0..whole).rev() {
            let nearer = reached.iter().flat_map(|&node| fabric.graph().edges(node));
            let step: Vec<(LinkKey, NodeIndex)> = nearer
                .filter(|edge| distances.get(&edge.target()) == Some(&left))
                .map(|edge| {
                    let (a, b) = *edge.weight();
                    let source = fabric.graph()[edge.source()];
                    (if a.0 == source { a } else { b }, edge.target())
                })
                .collect();
            let links = step.iter().map(|(link, _)| *link);
            if step.len() == 1 {
                route.certain.extend(links);
            } else {
                route.possible.extend(links);
            }
            reached = step.into_iter().map(|(_, node)| node).collect();
        }
        Ok(route)
    }
}
