//! A placement of ranks by another program.
//!
//! In: the number of a node per rank, as a program for static mapping (Scotch) chose it. Out: the bytes
//! times links of the placement. Invariant: the number of a node is its place among the nodes of the
//! map, by their lowest LID, as in `target`.
//!
//! The wire does not show messages between ranks of one node. A placement is therefore compared only
//! if the ranks of each node stay together.

use super::placement::{NoPlacement, PlacedNode, ProcessPlacement, hop_bytes};
use super::routes::RouteFinder;
use crate::model::Profile;
use ibscope_parsers::{Endpoint, Lid};
use std::collections::{BTreeMap, BTreeSet};

/// Reason why the bytes times links of a mapping are unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoMapping {
    /// The mapping has no place for a rank with traffic.
    NoPlace(u32),
    /// The mapping names a node that the map does not have: its number, and the number of nodes.
    NoNode(u32, usize),
    /// Two ranks of one node are on two nodes.
    Separated(u32, u32),
    /// The processes of two nodes are on this one.
    Shared(String),
    /// The processes of a node move to one with another number of ports.
    Ports(String),
    /// No placement can be compared.
    Placement(NoPlacement),
}

impl NoMapping {
    /// The reason, as the end of "unknown, because ...".
    #[must_use]
    pub fn because(&self) -> String {
        match self {
            Self::NoPlace(rank) => format!("the mapping does not have rank {rank}"),
            Self::NoNode(node, count) => {
                format!("the mapping has node {node}, and the map has only {count} nodes, numbered from 0")
            }
            Self::Separated(one, other) => format!(
                "it separates ranks {one} and {other}, which are on one node: their messages are not on the wire"
            ),
            Self::Shared(node) => format!("it places the processes of two nodes on {node}"),
            Self::Ports(node) => format!("the processes of {node} move to a node with another number of ports"),
            Self::Placement(reason) => reason.because(),
        }
    }
}

/// The bytes times links if the ranks are on the nodes that `mapping` has for them.
pub(super) fn mapped(
    profile: &Profile,
    mapping: &BTreeMap<u32, u32>,
    nodes: &[PlacedNode],
    flows: &BTreeMap<(u16, u16), u64>,
    finder: &mut RouteFinder<'_>,
) -> Result<ProcessPlacement, NoMapping> {
    let places = places(profile, mapping, nodes)?;
    hop_bytes(nodes, flows, finder, &places).map_err(NoMapping::Placement)
}

/// The new place of the processes of each node. Nodes without ranks keep theirs.
fn places(profile: &Profile, mapping: &BTreeMap<u32, u32>, nodes: &[PlacedNode]) -> Result<Vec<usize>, NoMapping> {
    let node_of: BTreeMap<u16, usize> =
        nodes.iter().enumerate().flat_map(|(node, own)| own.lids.iter().map(move |lid| (*lid, node))).collect();
    // By node: the rank that chose its place, and the place.
    let mut chosen: BTreeMap<usize, (u32, usize)> = BTreeMap::new();
    for row in &profile.ranks {
        let lid = row.endpoint.parse::<Endpoint>().ok().and_then(Endpoint::lid);
        let Some(&node) = lid.and_then(|Lid(lid)| node_of.get(&lid)) else { continue };
        let place = *mapping.get(&row.rank).ok_or(NoMapping::NoPlace(row.rank))?;
        let at = place as usize;
        if at >= nodes.len() {
            return Err(NoMapping::NoNode(place, nodes.len()));
        }
        let (first, known) = *chosen.entry(node).or_insert((row.rank, at));
        if known != at {
            return Err(NoMapping::Separated(first, row.rank));
        }
    }
    let places: Vec<usize> = (0..nodes.len()).map(|node| chosen.get(&node).map_or(node, |(_, place)| *place)).collect();
    let mut used = BTreeSet::new();
    for (node, place) in places.iter().enumerate() {
        if !used.insert(place) {
            return Err(NoMapping::Shared(nodes[*place].name.clone()));
        }
        if nodes[node].lids.len() != nodes[*place].lids.len() {
            return Err(NoMapping::Ports(nodes[node].name.clone()));
        }
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::fabric_map::{FabricGraph, fabric_map};
    use crate::analysis::fixture::{connection, rank};
    use ibscope_parsers::tools::ibnetdiscover;

    /// Two leaves with two hosts each, and a cable between the leaves. Hosts have the LIDs 1 to 4.
    const TWO_LEAVES: &str = "\
CA 1 1 0x101 4x HDR - SW 11 1 0xa ( 'h1' - 'a' )
CA 2 1 0x102 4x HDR - SW 11 2 0xa ( 'h2' - 'a' )
CA 3 1 0x103 4x HDR - SW 12 1 0xb ( 'h3' - 'b' )
CA 4 1 0x104 4x HDR - SW 12 2 0xb ( 'h4' - 'b' )
SW 11 3 0xa 4x HDR - SW 12 3 0xb ( 'a' - 'b' )
";

    fn fabric() -> FabricGraph {
        FabricGraph::of(&ibnetdiscover::parse_ports(TWO_LEAVES).expect("text")).expect("fabric")
    }

    /// LIDs 1 and 3 exchange 4000 bytes on the wire, and so do 2 and 4. Rank r is at LID r + 1, and
    /// rank 4 is at LID 1 too.
    fn profile() -> Profile {
        let connections = vec![connection(None, (1, 1), (3, 2), 1), connection(None, (2, 1), (4, 2), 1)];
        let ranks = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 1)].map(|(number, lid)| rank(1, number, lid, None));
        Profile { connections, ranks: ranks.to_vec(), ..Profile::default() }
    }

    fn of(places: [u32; 5]) -> Result<ProcessPlacement, NoMapping> {
        let mapping = (0..).zip(places).collect();
        fabric_map(&profile(), &fabric(), None, Some(&mapping)).mapping.expect("a mapping")
    }

    /// Between the leaves, 8000 bytes take 3 links. With the processes of LIDs 2 and 3 swapped, they
    /// take 2 links.
    #[test]
    fn hop_bytes_follow_from_the_places_of_the_ranks() {
        let found = of([0, 2, 1, 3, 0]).expect("known");
        assert_eq!((found.before_hop_bytes, found.after_hop_bytes), (24_000, 16_000));
        let moves: Vec<(&str, &str)> =
            found.moves.iter().map(|own| (own.node.as_str(), own.to_node.as_str())).collect();
        assert_eq!(moves, [("h2", "h3"), ("h3", "h2")]);
        let same = of([0, 1, 2, 3, 0]).expect("known");
        assert_eq!((same.after_hop_bytes, same.moves.len()), (24_000, 0));
    }

    #[test]
    fn other_mappings_are_unknown() {
        assert_eq!(of([0, 2, 1, 3, 3]), Err(NoMapping::Separated(0, 4)));
        assert_eq!(of([0, 0, 1, 3, 0]), Err(NoMapping::Shared("h1".to_owned())));
        assert_eq!(of([0, 4, 1, 3, 0]), Err(NoMapping::NoNode(4, 4)));
        let short = BTreeMap::from([(0, 0), (1, 1), (2, 2)]);
        let found = fabric_map(&profile(), &fabric(), None, Some(&short)).mapping;
        assert_eq!(found, Some(Err(NoMapping::NoPlace(3))));
    }
}
