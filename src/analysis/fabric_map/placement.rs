//! A placement of the processes on the same nodes that sends fewer bytes over links.
//!
//! In: bytes between ports and the links between all pairs of them. Out: swaps of whole nodes.
//! Processes of one node stay together. The search swaps two nodes with equally many ports if this
//! reduces the sum of bytes times links, pair by pair in the order of the nodes, until no swap
//! helps. The result is a local minimum: a better placement may exist.

use super::routes::{NoRoute, RouteFinder};
use crate::analysis::observed_ports::PORTS_MAY_BE_MISSING;
use std::collections::BTreeMap;

/// Ports of the nodes that can be placed: all routes between them are computed.
pub const MAX_PLACED_PORTS: usize = 256;
/// Passes over all pairs of nodes.
pub const MAX_PASSES: u32 = 32;

/// The ports of a node with traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlacedNode {
    pub(super) name: String,
    /// LIDs, sorted.
    pub(super) lids: Vec<u16>,
}

/// Another placement of the processes on the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessPlacement {
    /// Bytes times links as the processes are placed.
    pub before_hop_bytes: u64,
    /// Bytes times links in the other placement.
    pub after_hop_bytes: u64,
    /// Nodes whose processes move; none if no swap helps.
    pub moves: Vec<ProcessMove>,
    /// True if the search ended at [`MAX_PASSES`].
    pub is_unfinished: bool,
}

/// The new place of the processes of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessMove {
    /// Node that the processes run on.
    pub node: String,
    /// Node that they move to.
    pub to_node: String,
}

/// Reason why no other placement is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPlacement {
    /// More than [`MAX_PLACED_PORTS`] ports.
    TooManyPorts,
    /// The captures may not show the traffic of all ports.
    PortsMissing,
    /// A route between two ports of the nodes is unknown.
    Route(NoRoute),
}

impl NoPlacement {
    /// The reason, as the end of "unknown, because ...".
    #[must_use]
    pub fn because(self) -> String {
        match self {
            Self::TooManyPorts => format!("the traffic has more than {MAX_PLACED_PORTS} ports"),
            Self::PortsMissing => PORTS_MAY_BE_MISSING.to_owned(),
            Self::Route(reason) => {
                format!("a route between two of the ports is unknown: {}", reason.because())
            }
        }
    }
}

/// Searches a better placement, in at most `most_passes` passes over all pairs of nodes. `nodes` are
/// sorted; `flows` are bytes by the LIDs of sender and receiver, all of them LIDs of the nodes.
pub(super) fn improve(
    nodes: &[PlacedNode],
    flows: &BTreeMap<(u16, u16), u64>,
    finder: &mut RouteFinder<'_>,
    most_passes: u32,
) -> Result<ProcessPlacement, NoPlacement> {
    let search = Search::new(nodes, flows, finder)?;
    let mut places: Vec<usize> = (0..nodes.len()).collect();
    let before_hop_bytes = search.total(&places);
    let mut passes = 0;
    let mut is_better = true;
    while is_better && passes < most_passes {
        is_better = search.pass(&mut places);
        passes += 1;
    }
    let after_hop_bytes = search.total(&places);
    Ok(ProcessPlacement { before_hop_bytes, after_hop_bytes, moves: moves(nodes, &places), is_unfinished: is_better })
}

/// The placement in which the processes of each node are at `places`, a permutation of the nodes.
pub(super) fn hop_bytes(
    nodes: &[PlacedNode],
    flows: &BTreeMap<(u16, u16), u64>,
    finder: &mut RouteFinder<'_>,
    places: &[usize],
) -> Result<ProcessPlacement, NoPlacement> {
    let search = Search::new(nodes, flows, finder)?;
    let own: Vec<usize> = (0..nodes.len()).collect();
    Ok(ProcessPlacement {
        before_hop_bytes: search.total(&own),
        after_hop_bytes: search.total(places),
        moves: moves(nodes, places),
        is_unfinished: false,
    })
}

fn moves(nodes: &[PlacedNode], places: &[usize]) -> Vec<ProcessMove> {
    let moved = places.iter().enumerate().filter(|(node, place)| node != *place);
    moved
        .map(|(node, &place)| ProcessMove { node: nodes[node].name.clone(), to_node: nodes[place].name.clone() })
        .collect()
}

/// Links from each port of the nodes to each other one.
pub(super) fn lengths(nodes: &[PlacedNode], finder: &mut RouteFinder<'_>) -> Result<Vec<Vec<u64>>, NoPlacement> {
    let lids: Vec<u16> = nodes.iter().flat_map(|node| node.lids.iter().copied()).collect();
    if lids.len() > MAX_PLACED_PORTS {
        return Err(NoPlacement::TooManyPorts);
    }
    let mut lengths = Vec::with_capacity(lids.len());
    for &src in &lids {
        let row: Result<Vec<u64>, NoRoute> =
            lids.iter().map(|&dst| finder.route(src, dst).map(|route| route.length)).collect();
        lengths.push(row.map_err(NoPlacement::Route)?);
    }
    Ok(lengths)
}

/// A port of a node: the node, and the number of the port in it.
type PlacedPort = (usize, usize);

/// Bytes between two ports.
#[derive(Clone, Copy)]
struct PortFlow {
    src: PlacedPort,
    dst: PlacedPort,
    bytes: u64,
}

struct Search {
    /// Number of the first port of each node.
    first: Vec<usize>,
    /// Number of ports of each node.
    ports: Vec<usize>,
    /// Links from port to port.
    lengths: Vec<Vec<u64>>,
    flows: Vec<PortFlow>,
    /// Indices of the flows of each node.
    of_node: Vec<Vec<usize>>,
}

impl Search {
    fn new(
        nodes: &[PlacedNode],
        flows: &BTreeMap<(u16, u16), u64>,
        finder: &mut RouteFinder<'_>,
    ) -> Result<Self, NoPlacement> {
        let lengths = lengths(nodes, finder)?;
        let ports: Vec<usize> = nodes.iter().map(|node| node.lids.len()).collect();
        let first = ports.iter().scan(0, |next, count| Some(std::mem::replace(next, *next + count))).collect();
        let place: BTreeMap<u16, PlacedPort> = nodes
            .iter()
            .enumerate()
            .flat_map(|(node, own)| own.lids.iter().enumerate().map(move |(port, lid)| (*lid, (node, port))))
            .collect();
        let flow = |(&(src, dst), &bytes): (&(u16, u16), &u64)| {
            Some(PortFlow { src: *place.get(&src)?, dst: *place.get(&dst)?, bytes })
        };
        let flows: Vec<PortFlow> = flows.iter().filter_map(flow).collect();
        let mut of_node = vec![Vec::new(); nodes.len()];
        for (index, flow) in flows.iter().enumerate() {
            of_node[flow.src.0].push(index);
            if flow.dst.0 != flow.src.0 {
                of_node[flow.dst.0].push(index);
            }
        }
        Ok(Self { first, ports, lengths, flows, of_node })
    }

    /// Swaps the nodes of each pair whose swap helps. Returns true if one did.
    fn pass(&self, places: &mut [usize]) -> bool {
        let mut is_better = false;
        for a in 0..places.len() {
            for b in a + 1..places.len() {
                if self.ports[a] != self.ports[b] {
                    continue;
                }
                let before = self.of_pair(a, b, places);
                places.swap(a, b);
                if self.of_pair(a, b, places) < before {
                    is_better = true;
                } else {
                    places.swap(a, b);
                }
            }
        }
        is_better
    }

    /// Bytes times links of the flows of two nodes, each flow once.
    fn of_pair(&self, a: usize, b: usize, places: &[usize]) -> u64 {
        let shared = |flow: &PortFlow| flow.src.0 == a || flow.dst.0 == a;
        let of_a = self.of_node[a].iter().map(|&index| self.flows[index]);
        let of_b = self.of_node[b].iter().map(|&index| self.flows[index]).filter(|flow| !shared(flow));
        of_a.chain(of_b).map(|flow| self.hop_bytes(flow, places)).sum()
    }

    fn total(&self, places: &[usize]) -> u64 {
        self.flows.iter().map(|&flow| self.hop_bytes(flow, places)).sum()
    }

    fn hop_bytes(&self, flow: PortFlow, places: &[usize]) -> u64 {
        let port = |(node, port): PlacedPort| self.first[places[node]] + port;
        flow.bytes.saturating_mul(self.lengths[port(flow.src)][port(flow.dst)])
    }
}
