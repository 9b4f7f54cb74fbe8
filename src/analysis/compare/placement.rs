//! Compares the nodes of the ranks of two runs.
//!
//! Ranks that share a node do not use the wire between them, so a run of the same program with
//! another placement has another matrix.

use crate::analysis::endpoint_label::{Jobs, Label};
use crate::model::{JobRank, Profile};
use ibscope_parsers::Endpoint;
use std::collections::{BTreeMap, BTreeSet};

/// Nodes by rank. A rank is on one node, but may have several unnamed endpoints.
type NodesByRank = BTreeMap<JobRank, BTreeSet<String>>;

/// A rank whose node in B differs from its node in A.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedRank {
    /// The rank, with its job if a profile has several jobs.
    pub rank: Label,
    /// Node in A and in B: a name, or endpoints joined by "and".
    pub nodes: [String; 2],
}

/// The placement of the ranks of both runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placements {
    /// Number of ranks that both profiles identify.
    pub ranks: usize,
    /// Ranks whose nodes differ, sorted.
    pub moved: Vec<MovedRank>,
    /// Ordered pairs of ranks that share a node, in A and in B.
    pub pairs_on_one_node: [u64; 2],
}

/// Compares the nodes of the ranks.
pub(super) fn placements(profiles: [&Profile; 2]) -> Placements {
    let [a, b] = profiles;
    let both = [nodes(a, b), nodes(b, a)];
    let jobs = if profiles.iter().any(|profile| profile.jobs.len() > 1) { Jobs::Several } else { Jobs::One };
    let moved = |(rank, in_a): (&JobRank, &BTreeSet<String>)| {
        let in_b = both[1].get(rank).filter(|in_b| *in_b != in_a)?;
        Some(MovedRank { rank: Label::Rank(*rank, jobs), nodes: [in_a, in_b].map(text) })
    };
    Placements {
        ranks: both[0].keys().filter(|rank| both[1].contains_key(rank)).count(),
        moved: both[0].iter().filter_map(moved).collect(),
        pairs_on_one_node: both.each_ref().map(pairs_on_one_node),
    }
}

/// The nodes of a profile's ranks. Names that only the other profile knows are used as well: an
/// address means the same endpoint in both.
fn nodes(own: &Profile, other: &Profile) -> NodesByRank {
    let mut nodes = NodesByRank::new();
    for row in &own.ranks {
        let endpoint = row.endpoint.parse::<Endpoint>().ok();
        let name = endpoint.and_then(|endpoint| own.names.get(&endpoint).or_else(|| other.names.get(&endpoint)));
        // Ports (`node/adapter:port`) belong to their node.
        let node = name.map_or(row.endpoint.as_str(), |name| name.split('/').next().unwrap_or(name));
        nodes.entry(JobRank { job: row.job, rank: row.rank }).or_default().insert(node.to_owned());
    }
    nodes
}

fn pairs_on_one_node(nodes: &NodesByRank) -> u64 {
    // A rank with two endpoints puts both on one node.
    let mut together: Vec<(BTreeSet<&String>, u64)> = Vec::new();
    for own in nodes.values() {
        let mut joined: (BTreeSet<&String>, u64) = (own.iter().collect(), 1);
        together.retain(|(names, ranks)| {
            let is_apart = names.is_disjoint(&joined.0);
            if !is_apart {
                joined.0.extend(names);
                joined.1 += ranks;
            }
            is_apart
        });
        together.push(joined);
    }
    together.into_iter().map(|(_, ranks)| ranks * (ranks - 1)).sum()
}

fn text(nodes: &BTreeSet<String>) -> String {
    nodes.iter().map(String::as_str).collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_share_a_node_by_any_of_its_endpoints() {
        let of = |rows: &[(u32, &[&str])]| {
            let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            pairs_on_one_node(&rows.iter().map(|(rank, names)| (JobRank { job: 1, rank: *rank }, own(names))).collect())
        };
        assert_eq!(of(&[(0, &["17"]), (1, &["18"])]), 0);
        assert_eq!(of(&[(0, &["17"]), (1, &["17"]), (2, &["18"]), (3, &["18"])]), 4);
        // Ranks 0 and 1 use one rail each, rank 2 uses both.
        assert_eq!(of(&[(0, &["17"]), (1, &["33"]), (2, &["17", "33"])]), 6);
    }
}
