//! Finds the endpoints and ranks that share a node: their messages to each other are not on the
//! wire.

use super::{JobRank, Profile};
use ibscope_parsers::Endpoint;
use std::collections::{BTreeMap, BTreeSet};

impl Profile {
    /// The name of an endpoint, or the endpoint itself.
    #[must_use]
    pub fn name_of(&self, endpoint: Endpoint) -> String {
        self.names.get(&endpoint).cloned().unwrap_or_else(|| endpoint.to_string())
    }

    /// The node of an endpoint: its name in the hosts file or manifest, which all ports of the node
    /// share. A name like `node1/mlx5_0:1`, as in manifests, is a port of `node1`. An endpoint
    /// without a name is its own node.
    #[must_use]
    pub fn node_of(&self, endpoint: Endpoint) -> String {
        let Some(name) = self.names.get(&endpoint) else { return endpoint.to_string() };
        node(name).to_owned()
    }
}

/// The node part of an endpoint's name, without adapter and port.
#[must_use]
pub fn node(name: &str) -> &str {
    let is_port = |text: &str| {
        text.split_once(':').is_some_and(|(adapter, port)| {
            let is_adapter = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
            !adapter.is_empty() && adapter.bytes().all(is_adapter) && port.parse::<u8>().is_ok()
        })
    };
    match name.rsplit_once('/') {
        Some((node, port)) if !node.is_empty() && is_port(port) => node,
        _ => name,
    }
}

/// Nodes by rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    names: Vec<String>,
    /// Indices into `names`, sorted; several if the ports of a rank have different names.
    by_rank: BTreeMap<JobRank, BTreeSet<u32>>,
}

impl Nodes {
    /// Nodes of the ranks of a profile.
    #[must_use]
    pub fn of(profile: &Profile) -> Self {
        let mut nodes_by_rank: BTreeMap<JobRank, BTreeSet<String>> = BTreeMap::new();
        for row in &profile.ranks {
            let node = row.endpoint.parse().map_or_else(|_| row.endpoint.clone(), |endpoint| profile.node_of(endpoint));
            nodes_by_rank.entry(JobRank { job: row.job, rank: row.rank }).or_default().insert(node);
        }
        let names: BTreeSet<String> = nodes_by_rank.values().flatten().cloned().collect();
        let names: Vec<String> = names.into_iter().collect();
        let number = |name: &String| names.binary_search(name).unwrap_or_default() as u32;
        let by_rank = nodes_by_rank.iter().map(|(rank, nodes)| (*rank, nodes.iter().map(number).collect())).collect();
        Self { names, by_rank }
    }

    /// True if two ranks, of any jobs, are on the same node. A rank shares its node with itself.
    #[must_use]
    pub fn are_shared(&self, a: JobRank, b: JobRank) -> bool {
        match (self.by_rank.get(&a), self.by_rank.get(&b)) {
            (Some(a), Some(b)) => !a.is_disjoint(b),
            _ => false,
        }
    }

    /// Names of the nodes of a rank.
    pub fn names(&self, rank: JobRank) -> impl Iterator<Item = &str> {
        let nodes = self.by_rank.get(&rank).into_iter().flatten();
        nodes.filter_map(|node| self.names.get(*node as usize)).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::profile::RankRow;

    #[test]
    fn ports_of_one_name_are_one_node() {
        assert_eq!(node("node1/mlx5_0:1"), "node1");
        for name in ["node1", "rack 3/node1", "/mlx5_0:1", "node1/mlx5_0", "node1/mlx5 0:1"] {
            assert_eq!(node(name), name);
        }
    }

    #[test]
    fn ranks_share_nodes_by_endpoint_or_by_name() {
        let row = |rank, endpoint: &str| RankRow {
            job: 1,
            rank,
            endpoint: endpoint.to_owned(),
            qpn: None,
            evidence: "envelope".to_owned(),
            agreeing: 1,
            disagreeing: 0,
            inferred: false,
        };
        let mut profile = Profile {
            ranks: vec![row(0, "1"), row(1, "1"), row(2, "2"), row(3, "3"), row(4, "4")],
            ..Profile::default()
        };
        for (endpoint, name) in [("2", "b/mlx5_0:1"), ("3", "b/mlx5_1:1"), ("4", "c")] {
            profile.names.insert(endpoint.parse().unwrap(), name.to_owned());
        }
        let nodes = Nodes::of(&profile);
        let rank = |rank| JobRank { job: 1, rank };
        let shared: Vec<(u32, u32)> = (0..5)
            .flat_map(|a| (0..a).map(move |b| (b, a)))
            .filter(|(a, b)| nodes.are_shared(rank(*a), rank(*b)))
            .collect();
        assert_eq!(shared, [(0, 1), (2, 3)]);
        assert_eq!(nodes.names(rank(3)).collect::<Vec<_>>(), ["b"]);
        assert!(!nodes.are_shared(rank(0), rank(9)), "a rank without a place");
    }
}
