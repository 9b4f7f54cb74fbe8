//! Profile and fabric -> bytes per link.
//!
//! In: the pairs of ports of a [`Profile`], the cables of a subnet, and the forwarding tables of
//! its switches if there are any. Out: the bytes of each link and direction, the sum of bytes times
//! links, and a placement with a smaller sum. Invariant: a link that every possible route of a pair
//! uses carries the bytes of the pair; a link that only some of its routes use has these bytes in
//! its upper bound only.

mod fabric;
mod mapping;
mod placement;
mod routes;
mod target;
#[cfg(test)]
mod tests;

pub use fabric::{FabricGraph, FabricListError};
pub use mapping::NoMapping;
pub use placement::{MAX_PASSES, MAX_PLACED_PORTS, NoPlacement, ProcessMove, ProcessPlacement};
pub use routes::{ForwardingTables, NoRoute};
pub use target::{MappingTarget, NoTarget};

use crate::analysis::Label;
use crate::analysis::endpoint_label::GroupBy;
use crate::analysis::matrix::{Selection, matrix};
use crate::analysis::observed_ports::may_miss_ports;
use crate::model::Profile;
use fabric::{LinkKey, key};
use ibscope_parsers::tools::NodeKind;
use ibscope_parsers::tools::ibnetdiscover::FabricPort;
use ibscope_parsers::{Endpoint, Lid};
use mapping::mapped;
use placement::{PlacedNode, improve};
use routes::RouteFinder;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Traffic of pairs of ports on a link, or on all links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkTraffic {
    /// Directed pairs of ports.
    pub pairs: u64,
    /// Bytes on the wire.
    pub wire_bytes: u64,
    /// InfiniBand payload bytes.
    pub payload_bytes: u64,
}

impl LinkTraffic {
    const fn add(&mut self, other: Self) {
        self.pairs += other.pairs;
        self.wire_bytes = self.wire_bytes.saturating_add(other.wire_bytes);
        self.payload_bytes = self.payload_bytes.saturating_add(other.payload_bytes);
    }
}

/// One direction of a cable and its traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkLoad {
    /// Port that sends.
    pub from: FabricPort,
    /// Description of its node.
    pub from_name: String,
    /// Port that receives.
    pub to: FabricPort,
    /// Description of its node.
    pub to_name: String,
    /// Traffic of the pairs whose route has the link.
    pub traffic: LinkTraffic,
    /// Bytes on the wire of the pairs whose route may have the link, those of `traffic` and those
    /// without a known route included; `None` if the captures may not show all ports.
    pub upper_wire_bytes: Option<u64>,
}

impl LinkLoad {
    /// True if both ends are switches.
    #[must_use]
    pub fn is_between_switches(&self) -> bool {
        self.from.kind == NodeKind::Switch && self.to.kind == NodeKind::Switch
    }

    /// True if the bytes are known.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.upper_wire_bytes == Some(self.traffic.wire_bytes)
    }
}

/// The traffic of a profile on a fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricMap {
    /// Ports of hosts, switches, and cables of the fabric.
    pub host_ports: usize,
    /// Number of switches.
    pub switches: usize,
    /// Number of cables.
    pub cables: usize,
    /// True if the routes are those of forwarding tables, and no assumed shortest paths.
    pub has_tables: bool,
    /// True if the captures may not show all ports, so that each link may carry more.
    pub is_partial: bool,
    /// Ports of the fabric with traffic.
    pub ports: usize,
    /// Traffic of the pairs with a known number of links.
    pub traffic: LinkTraffic,
    /// Bytes on the wire times the number of links of their routes.
    pub hop_bytes: u64,
    /// Traffic of pairs that are on no link, by the reason.
    pub left_out: BTreeMap<NoRoute, LinkTraffic>,
    /// Links with traffic, and all links between switches: most bytes first.
    pub links: Vec<LinkLoad>,
    /// Another placement, or why none is known.
    pub placement: Result<ProcessPlacement, NoPlacement>,
    /// The placement of the mapping, or why its bytes are unknown; `None` without a mapping.
    pub mapping: Option<Result<ProcessPlacement, NoMapping>>,
}

impl FabricMap {
    /// The link between switches that carries the most bytes. `None` if there is none with traffic,
    /// or if traffic without a known route, or ports that are not captured, leave open which one it is.
    #[must_use]
    pub fn hottest(&self) -> Option<&LinkLoad> {
        let mut links = self.links.iter().filter(|link| link.is_between_switches());
        let first = links.next().filter(|link| link.traffic.wire_bytes > 0)?;
        links.all(|link| link.upper_wire_bytes.is_some_and(|upper| upper <= first.traffic.wire_bytes)).then_some(first)
    }

    /// Bytes on the wire that are on no link, because their route is unknown.
    #[must_use]
    pub fn left_out_bytes(&self) -> u64 {
        left_out_bytes(&self.left_out)
    }

    /// True if several shortest paths leave open which links some bytes are on.
    #[must_use]
    pub fn has_open_routes(&self) -> bool {
        let known_bytes = |link: &LinkLoad| link.traffic.wire_bytes.saturating_add(self.left_out_bytes());
        self.links.iter().any(|link| link.upper_wire_bytes.is_some_and(|upper| upper > known_bytes(link)))
    }
}

fn left_out_bytes(left_out: &BTreeMap<NoRoute, LinkTraffic>) -> u64 {
    left_out.values().map(|traffic| traffic.wire_bytes).fold(0, u64::saturating_add)
}

/// Puts the traffic of a profile on the links of a fabric. Management and multicast traffic is left
/// out, as in [`matrix`]; so is traffic inside a port. `mapping` has the number of a node by rank.
#[must_use]
pub fn fabric_map(
    profile: &Profile,
    fabric: &FabricGraph,
    tables: Option<&ForwardingTables>,
    mapping: Option<&BTreeMap<u32, u32>>,
) -> FabricMap {
    let mut finder = RouteFinder::new(fabric, tables);
    let sums = MapSums::of(profile, &mut finder);
    let nodes = nodes(profile, fabric, &finder, &sums.flows);
    let is_partial = may_miss_ports(profile);
    let no_route = || sums.left_out.keys().next().map(|reason| NoPlacement::Route(*reason));
    let unknown = is_partial.then_some(NoPlacement::PortsMissing).or_else(no_route);
    let placement = match unknown {
        Some(reason) => Err(reason),
        None => improve(&nodes, &sums.flows, &mut finder, MAX_PASSES),
    };
    let mapping = mapping.map(|mapping| match unknown {
        Some(reason) => Err(NoMapping::Placement(reason)),
        None => mapped(profile, mapping, &nodes, &sums.flows, &mut finder),
    });
    FabricMap {
        host_ports: fabric.host_ports(),
        switches: fabric.switches(),
        cables: fabric.cables(),
        has_tables: tables.is_some(),
        is_partial,
        ports: nodes.iter().map(|node| node.lids.len()).sum(),
        traffic: sums.traffic,
        hop_bytes: sums.hop_bytes,
        links: links(fabric, &sums, is_partial),
        left_out: sums.left_out,
        placement,
        mapping,
    }
}

/// The nodes of [`fabric_map`] as leaves of a tree, in the order of their numbers in a mapping.
pub fn mapping_target(
    profile: &Profile,
    fabric: &FabricGraph,
    tables: Option<&ForwardingTables>,
) -> Result<MappingTarget, NoTarget> {
    let mut finder = RouteFinder::new(fabric, tables);
    let sums = MapSums::of(profile, &mut finder);
    if let Some(reason) = sums.left_out.keys().next() {
        return Err(NoTarget::Placement(NoPlacement::Route(*reason)));
    }
    target::target(&nodes(profile, fabric, &finder, &sums.flows), &mut finder)
}

/// Traffic by the LIDs of sender and receiver; `None` for an endpoint without a LID.
type LidPair = (Option<u16>, Option<u16>);

fn pairs(profile: &Profile) -> BTreeMap<LidPair, LinkTraffic> {
    let lid = |label: &Label| match label {
        Label::Endpoint(endpoint, _) => endpoint.lid().map(|lid| lid.0),
        _ => None,
    };
    let mut pairs: BTreeMap<LidPair, LinkTraffic> = BTreeMap::new();
    for (src, dst, cell) in matrix(profile, GroupBy::Endpoint, Selection::All).rows().filter(|(src, dst, _)| src != dst)
    {
        let traffic = LinkTraffic { pairs: 1, wire_bytes: cell.wire_bytes, payload_bytes: cell.payload_bytes };
        pairs.entry((lid(src), lid(dst))).or_default().add(traffic);
    }
    pairs
}

/// The sums over the pairs of a profile.
#[derive(Default)]
struct MapSums {
    traffic: LinkTraffic,
    hop_bytes: u64,
    left_out: BTreeMap<NoRoute, LinkTraffic>,
    /// Traffic of each link on routes.
    certain: BTreeMap<LinkKey, LinkTraffic>,
    /// Further bytes on the wire that each link may carry.
    possible: BTreeMap<LinkKey, u64>,
    /// Bytes on the wire of the pairs with routes.
    flows: BTreeMap<(u16, u16), u64>,
}

impl MapSums {
    fn of(profile: &Profile, finder: &mut RouteFinder<'_>) -> Self {
        let mut sums = Self::default();
        for ((src, dst), traffic) in pairs(profile) {
            sums.add(src, dst, traffic, finder);
        }
        sums
    }

    fn add(&mut self, src: Option<u16>, dst: Option<u16>, traffic: LinkTraffic, finder: &mut RouteFinder<'_>) {
        let lids = src.zip(dst).ok_or(NoRoute::NotInFabric);
        let route = lids.and_then(|(src, dst)| Ok(((src, dst), finder.route(src, dst)?)));
        let (lids, route) = match route {
            Ok(found) => found,
            Err(reason) => return self.left_out.entry(reason).or_default().add(traffic),
        };
        self.traffic.add(traffic);
        self.hop_bytes = self.hop_bytes.saturating_add(traffic.wire_bytes.saturating_mul(route.length));
        self.flows.insert(lids, traffic.wire_bytes);
        route.certain.iter().for_each(|link| self.certain.entry(*link).or_default().add(traffic));
        for link in route.possible {
            let bytes = self.possible.entry(link).or_default();
            *bytes = bytes.saturating_add(traffic.wire_bytes);
        }
    }
}

/// The nodes of the LIDs, with their ports, by their lowest LID. A port without a name in the hosts
/// file is a node, with its description in the fabric.
fn nodes(
    profile: &Profile,
    fabric: &FabricGraph,
    finder: &RouteFinder<'_>,
    flows: &BTreeMap<(u16, u16), u64>,
) -> Vec<PlacedNode> {
    let lids: BTreeSet<u16> = flows.keys().flat_map(|(src, dst)| [*src, *dst]).collect();
    let mut nodes: BTreeMap<String, PlacedNode> = BTreeMap::new();
    for lid in lids {
        let endpoint = Endpoint::from_lid(Lid(lid));
        let node = profile.node_of(endpoint);
        let is_named = profile.names.contains_key(&endpoint);
        let port = finder.port(lid).filter(|_| !is_named);
        let name = port.map_or_else(|| node.clone(), |(guid, _)| fabric.name(guid));
        nodes.entry(node).or_insert_with(|| PlacedNode { name, lids: Vec::new() }).lids.push(lid);
    }
    let mut nodes: Vec<PlacedNode> = nodes.into_values().collect();
    nodes.sort_by(|a, b| a.lids.cmp(&b.lids));
    nodes
}

fn links(fabric: &FabricGraph, sums: &MapSums, is_partial: bool) -> Vec<LinkLoad> {
    let left_out_bytes = left_out_bytes(&sums.left_out);
    let load = |(from, to): (FabricPort, FabricPort)| {
        let traffic = sums.certain.get(&key(from)).copied().unwrap_or_default();
        let possible = sums.possible.get(&key(from)).copied().unwrap_or_default();
        let upper_bytes = traffic.wire_bytes.saturating_add(possible);
        let load = LinkLoad {
            from,
            from_name: fabric.name(from.guid),
            to,
            to_name: fabric.name(to.guid),
            traffic,
            upper_wire_bytes: (!is_partial).then_some(upper_bytes.saturating_add(left_out_bytes)),
        };
        (upper_bytes > 0 || load.is_between_switches()).then_some(load)
    };
    let mut links: Vec<LinkLoad> = fabric.links().filter_map(load).collect();
    links.sort_by_key(|link| (Reverse(link.traffic.wire_bytes), Reverse(link.upper_wire_bytes), key(link.from)));
    links
}
