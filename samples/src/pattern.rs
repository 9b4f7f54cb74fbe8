//! Communication patterns: pairs of sender and receiver.

use std::collections::BTreeSet;

use crate::random::Random;

/// Without a pattern, each node connects to at most this many nodes after it (node 1 follows the
/// last) and as many before it, so that memory grows with the number of nodes and not with its
/// square.
pub(crate) const PEERS_EACH_WAY: u16 = 32;

/// Communication patterns. All senders send equally often, in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum TrafficPattern {
    /// Each node sends to the next, the last to the first.
    Ring,
    /// Neighbors on a periodic two-dimensional grid exchange messages.
    Halo2d,
    /// Neighbors on a periodic three-dimensional grid exchange messages.
    Halo3d,
    /// Each node sends to every other node.
    AllToAll,
    /// The first node exchanges messages with every other node.
    MasterWorker,
    /// Each node exchanges messages with its parent in a binomial tree.
    Tree,
    /// Each node sends to a random number of random nodes.
    Random,
}

impl TrafficPattern {
    /// Sorted pairs of sender and receiver, nodes numbered from 1. `None` if this number of nodes
    /// does not form the pattern.
    pub(crate) fn directions(self, nodes: u16, seed: u64) -> Option<Vec<(u16, u16)>> {
        let all = || (0..nodes).flat_map(move |a| (0..nodes).map(move |b| (a, b))).filter(|(a, b)| a != b);
        let directions: BTreeSet<(u16, u16)> = match self {
            Self::Ring => (0..nodes).map(|node| (node, (node + 1) % nodes)).collect(),
            Self::Halo2d => exchange_on_grid(&sides(nodes, 2)?),
            Self::Halo3d => exchange_on_grid(&sides(nodes, 3)?),
            Self::AllToAll => all().collect(),
            Self::MasterWorker => all().filter(|(a, b)| *a == 0 || *b == 0).collect(),
            // The parent of a node is the node without its lowest set bit.
            Self::Tree => all()
                .filter(|(a, b)| a & a.wrapping_sub(1) == *b && *a > 0 || b & b.wrapping_sub(1) == *a && *b > 0)
                .collect(),
            Self::Random => random(nodes, &mut Random::new(seed ^ 0x7061_7474_6572_6e73)),
        };
        Some(directions.into_iter().map(|(from, to)| (from + 1, to + 1)).collect())
    }
}

/// Sides of a grid, as equal as possible, the longest first; each at least 2.
fn sides(nodes: u16, dimensions: u32) -> Option<Vec<u16>> {
    if dimensions == 1 {
        return (nodes >= 2).then(|| vec![nodes]);
    }
    // The shortest side is at most the root; the others are chosen in the same way.
    let shortest = (2..nodes).take_while(|side| u64::from(*side).pow(dimensions) <= u64::from(nodes));
    let fitting: Vec<u16> = shortest.filter(|side| nodes.is_multiple_of(*side)).collect();
    let (shortest, mut sides) =
        fitting.into_iter().rev().find_map(|side| Some((side, sides(nodes / side, dimensions - 1)?)))?;
    sides.push(shortest);
    Some(sides)
}

/// Pairs of neighbors on a grid; the last side varies fastest.
fn exchange_on_grid(sides: &[u16]) -> BTreeSet<(u16, u16)> {
    let nodes: u16 = sides.iter().product();
    let mut directions = BTreeSet::new();
    let mut stride = nodes;
    for side in sides {
        let block = stride;
        stride /= side;
        for node in 0..nodes {
            let along = node % block / stride;
            let next = node - along * stride + (along + 1) % side * stride;
            directions.extend([(node, next), (next, node)]);
        }
    }
    directions
}

/// Random receivers for each node: one to twice the square root of the number of nodes.
fn random(nodes: u16, random: &mut Random) -> BTreeSet<(u16, u16)> {
    let most = u64::from((2 * nodes.isqrt()).min(nodes - 1));
    let mut directions = BTreeSet::new();
    for node in 0..nodes {
        let count = 1 + random.below(most);
        let mut chosen = BTreeSet::new();
        while (chosen.len() as u64) < count {
            let other = random.below(nodes.into()) as u16;
            if other != node {
                chosen.insert((node, other));
            }
        }
        directions.append(&mut chosen);
    }
    directions
}

/// Pairs of connected nodes without a pattern, each once; nodes are numbered from 1.
pub(crate) fn neighbor_pairs(nodes: u16) -> impl Iterator<Item = (u16, u16)> {
    let reach = PEERS_EACH_WAY.min(nodes / 2);
    (0..nodes).flat_map(move |first| {
        (1..=reach)
            .filter(move |&distance| distance * 2 != nodes || first < distance)
            .map(move |distance| (first + 1, (u32::from(first) + u32::from(distance)) as u16 % nodes + 1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Up to 65 nodes, every two nodes are connected: n (n - 1) / 2 different pairs.
    #[test]
    fn all_pairs_of_few_nodes() {
        for nodes in 2..=2 * PEERS_EACH_WAY + 1 {
            let pairs: Vec<_> = neighbor_pairs(nodes).collect();
            let unordered: BTreeSet<_> = pairs.iter().map(|&(a, b)| (a.min(b), a.max(b))).collect();
            let expected = usize::from(nodes) * (usize::from(nodes) - 1) / 2;
            assert_eq!((pairs.len(), unordered.len()), (expected, expected), "{nodes} nodes");
            assert!(pairs.iter().all(|&(a, b)| a != b && (1..=nodes).contains(&a) && (1..=nodes).contains(&b)));
        }
    }

    #[test]
    fn many_nodes_have_64_peers_each() {
        assert_eq!(neighbor_pairs(0xBFFF).count(), 0xBFFF * usize::from(PEERS_EACH_WAY));
    }

    fn directions(pattern: TrafficPattern, nodes: u16) -> Vec<(u16, u16)> {
        pattern.directions(nodes, 1).unwrap()
    }

    #[test]
    fn patterns_match_their_documentation() {
        assert_eq!(directions(TrafficPattern::Ring, 4), [(1, 2), (2, 3), (3, 4), (4, 1)]);
        assert_eq!(directions(TrafficPattern::MasterWorker, 3), [(1, 2), (1, 3), (2, 1), (3, 1)]);
        assert_eq!(directions(TrafficPattern::AllToAll, 3).len(), 6);
        // 0 is the parent of 1, 2 and 4; 2 of 3; 4 of 5 and 6; 6 of 7.
        let to_parent: Vec<_> = directions(TrafficPattern::Tree, 8).into_iter().filter(|(a, b)| a > b).collect();
        assert_eq!(to_parent, [(2, 1), (3, 1), (4, 3), (5, 1), (6, 5), (7, 5), (8, 7)]);
        // 4 rows of 3: 6 ends the second row, so 4 is its neighbor across the edge; 1 has 3 and 10
        // across edges.
        let of = |node: u16| -> Vec<u16> {
            directions(TrafficPattern::Halo2d, 12)
                .into_iter()
                .filter(|(from, _)| *from == node)
                .map(|(_, to)| to)
                .collect()
        };
        assert_eq!([of(6), of(1)], [vec![3, 4, 5, 9], vec![2, 3, 4, 10]]);
    }

    /// Number of nodes times neighbors; a side of 2 has one neighbor instead of two.
    #[test]
    fn grid_sides_are_as_equal_as_possible() {
        assert_eq!([sides(16, 2), sides(64, 3), sides(16, 3)], [vec![4, 4], vec![4, 4, 4], vec![4, 2, 2]].map(Some));
        assert_eq!(directions(TrafficPattern::Halo2d, 64).len(), 64 * 4);
        assert_eq!(directions(TrafficPattern::Halo3d, 64).len(), 64 * 6);
        assert_eq!(directions(TrafficPattern::Halo3d, 16).len(), 16 * 4);
        for (pattern, nodes) in [(TrafficPattern::Halo2d, 13), (TrafficPattern::Halo2d, 2), (TrafficPattern::Halo3d, 6)]
        {
            assert_eq!(pattern.directions(nodes, 0), None);
        }
    }

    #[test]
    fn random_partners_depend_on_the_seed() {
        let of = |seed| TrafficPattern::Random.directions(64, seed).unwrap();
        assert_eq!(of(5), of(5));
        assert!(of(5) != of(6));
        let sent: Vec<usize> = (1..=64).map(|node| of(5).iter().filter(|(from, _)| *from == node).count()).collect();
        assert!(sent.iter().all(|count| (1..=16).contains(count)), "{sent:?}");
    }
}
