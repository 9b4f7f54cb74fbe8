//! The nodes of a map as the leaves of a tree, the target of a program for static mapping (Scotch).
//!
//! In: the links between all pairs of nodes. Out: a tree in which the distance of two leaves is the
//! number of links between their nodes. Invariant: the distances of the tree are those of the
//! fabric; nodes whose distances do not form a tree have none.

use super::placement::{NoPlacement, PlacedNode, lengths};
use super::routes::RouteFinder;
use std::collections::{BTreeMap, BTreeSet};

/// The nodes as leaves of a tree whose nodes of one level have equally many children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappingTarget {
    /// By level, from the root: the number of children, and the links that a path through the level
    /// takes in addition to a path below it.
    pub levels: Vec<(u64, u64)>,
    /// Number of the leaf of each node. Leaves without a node are not used.
    pub leaves: Vec<u64>,
}

/// Reason why nodes have no tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoTarget {
    /// The traffic has fewer than two nodes.
    OneNode,
    /// A node has several ports, so its distances are several.
    Ports(String),
    /// Two nodes are near a third one, and farther from each other, or farther in one direction.
    NoTree,
    /// The distances are not known.
    Placement(NoPlacement),
}

impl NoTarget {
    /// The reason, as the end of "there is no tree of nodes, because ...".
    #[must_use]
    pub fn because(&self) -> String {
        match self {
            Self::OneNode => "the traffic has fewer than two nodes".to_owned(),
            Self::Ports(node) => format!("{node} has several ports"),
            Self::NoTree => "the numbers of links between the nodes do not form a tree".to_owned(),
            Self::Placement(reason) => reason.because(),
        }
    }
}

/// The tree of the nodes.
pub(super) fn target(nodes: &[PlacedNode], finder: &mut RouteFinder<'_>) -> Result<MappingTarget, NoTarget> {
    if nodes.len() < 2 {
        return Err(NoTarget::OneNode);
    }
    if let Some(node) = nodes.iter().find(|node| node.lids.len() > 1) {
        return Err(NoTarget::Ports(node.name.clone()));
    }
    let lengths = lengths(nodes, finder).map_err(NoTarget::Placement)?;
    let distances: BTreeSet<u64> = lengths.iter().flatten().copied().filter(|length| *length > 0).collect();
    // From the leaves: the cluster of each node is the lowest number among the nodes within a distance.
    let mut below: Vec<usize> = (0..nodes.len()).collect();
    let mut leaves = vec![0; nodes.len()];
    let mut levels = Vec::new();
    let (mut nearer, mut used) = (0, 1);
    for distance in distances {
        let clusters = clusters(&lengths, distance).ok_or(NoTarget::NoTree)?;
        let mut children: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for (cluster, child) in clusters.iter().zip(&below) {
            children.entry(*cluster).or_default().insert(*child);
        }
        for (leaf, (cluster, child)) in leaves.iter_mut().zip(clusters.iter().zip(&below)) {
            let place = children[cluster].range(..*child).count() as u64;
            *leaf += place * used;
        }
        let most = children.values().map(BTreeSet::len).max().unwrap_or(1) as u64;
        levels.push((most, distance - nearer));
        (nearer, used, below) = (distance, used * most, clusters);
    }
    levels.reverse();
    Ok(MappingTarget { levels, leaves })
}

/// The cluster of each node; `None` if two nodes are within `distance` of a third one and not of each
/// other.
fn clusters(lengths: &[Vec<u64>], distance: u64) -> Option<Vec<usize>> {
    let first = |row: &Vec<u64>| row.iter().position(|length| *length <= distance);
    let clusters: Vec<usize> = lengths.iter().map(first).collect::<Option<_>>()?;
    let is_consistent = |(row, own): (&Vec<u64>, &usize)| {
        row.iter().zip(&clusters).all(|(length, other)| (*length <= distance) == (own == other))
    };
    lengths.iter().zip(&clusters).all(is_consistent).then_some(clusters)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes 0 and 3 are at one leaf switch, 1 and 2 at others. Its leaves are 0 and 1.
    #[test]
    fn clusters_are_nodes_within_a_distance() {
        let lengths = [[0, 4, 4, 2], [4, 0, 4, 4], [4, 4, 0, 4], [2, 4, 4, 0]].map(Vec::from);
        assert_eq!(clusters(&lengths, 2), Some(vec![0, 1, 2, 0]));
        assert_eq!(clusters(&lengths, 4), Some(vec![0, 0, 0, 0]));
    }

    /// A ring of four switches: 0 is near 1 and 3, which are farther from each other.
    #[test]
    fn a_ring_is_no_tree() {
        let lengths = [[0, 3, 4, 3], [3, 0, 3, 4], [4, 3, 0, 3], [3, 4, 3, 0]].map(Vec::from);
        assert_eq!(clusters(&lengths, 3), None);
    }
}
