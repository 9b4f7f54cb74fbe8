//! Traffic inside a node or leaf switch that the captures do not show.
//!
//! In: the ports and ranks of a [`Profile`], and the labels of a matrix by node or leaf switch. Out:
//! the inside of each label. Invariant: the inside counts named ports without traffic too, which may
//! have sent packets that no capture shows.

use crate::analysis::Label;
use crate::analysis::port_groups::{PortGroup, PortGroups};
use crate::model::Profile;
use ibscope_parsers::Endpoint;
use std::collections::{BTreeMap, BTreeSet};

/// Traffic inside a node or leaf switch that the captures do not show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupInside {
    /// True if two ranks of a job are on one of its nodes: their messages are not on the wire.
    pub has_ranks_on_one_node: bool,
    /// True if it has several ports, which may send to each other.
    pub has_several_ports: bool,
}

/// The inside of each group of a matrix.
pub(crate) fn insides(profile: &Profile, groups: &PortGroups, labels: &[Label]) -> Vec<GroupInside> {
    let mut ports: BTreeMap<PortGroup, BTreeSet<Endpoint>> = BTreeMap::new();
    let used = profile.connections.iter().flat_map(|row| [row.src, row.dst]);
    for endpoint in used.chain(profile.names.keys().copied()).chain(profile.leaves.keys().copied()) {
        ports.entry(groups.of(endpoint)).or_default().insert(endpoint);
    }
    let mut ranks: BTreeMap<(u32, String), (BTreeSet<u32>, BTreeSet<PortGroup>)> = BTreeMap::new();
    for row in &profile.ranks {
        let Ok(endpoint) = row.endpoint.parse() else { continue };
        let (own, groups_of_node) = ranks.entry((row.job, profile.node_of(endpoint))).or_default();
        own.insert(row.rank);
        groups_of_node.insert(groups.of(endpoint));
    }
    let shared = ranks.into_values().filter(|(own, _)| own.len() > 1);
    let shared: BTreeSet<PortGroup> = shared.flat_map(|(_, groups)| groups).collect();
    let inside = |label: &Label| match label {
        Label::Group(group) => GroupInside {
            has_ranks_on_one_node: shared.contains(group),
            has_several_ports: ports.get(group).is_some_and(|ports| ports.len() > 1),
        },
        _ => GroupInside::default(),
    };
    labels.iter().map(inside).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::GroupBy;
    use crate::analysis::fixture::two_jobs;
    use crate::analysis::matrix::{CellValue, Selection, TrafficUnit, matrix};

    /// The ports 9 and 10 are of node `b`, 11 has no name; 10 and 11 are at one leaf switch.
    fn profile() -> Profile {
        let mut profile = two_jobs();
        let port = |text: &str| text.parse::<Endpoint>().expect("LID");
        profile.names = [(port("9"), "b/mlx5_0:1".to_owned()), (port("10"), "b/mlx5_1:1".to_owned())].into();
        profile.leaves = [(port("10"), "leaf2".to_owned()), (port("11"), "leaf2".to_owned())].into();
        profile
    }

    fn names(labels: &[Label]) -> Vec<String> {
        labels.iter().map(Label::name).collect()
    }

    /// By endpoint, the fixture has 10 packets of connections from 9 to 10 and so on: 30, 50 and 70.
    #[test]
    fn nodes_and_leaf_switches_have_the_sums_of_their_ports() {
        let profile = profile();
        let packets = |by| {
            let found = matrix(&profile, by, Selection::All);
            let cells = found.cells.iter().map(|(ends, cell)| (*ends, cell.packets)).collect::<Vec<_>>();
            (names(&found.labels), cells)
        };
        assert_eq!(packets(GroupBy::Node), (vec!["b".to_owned(), "11".to_owned()], vec![((0, 0), 100), ((0, 1), 50)]));
        let leaves = vec!["leaf2".to_owned(), "unknown".to_owned()];
        assert_eq!(packets(GroupBy::Leaf), (leaves, vec![((0, 1), 70), ((1, 0), 80)]));
    }

    #[test]
    fn messages_between_ranks_on_a_node_are_not_on_the_wire() {
        let mut profile = profile();
        profile.connections.retain(|row| row.dst.to_string() == "11");
        let found = matrix(&profile, GroupBy::Node, Selection::All);
        assert_eq!(found.cell_value((0, 0), TrafficUnit::Packets), CellValue::OneNode, "{:?}", found.insides);
        assert_eq!(found.cell_value((1, 1), TrafficUnit::Packets), CellValue::Nothing);
        assert_eq!(found.pairs_on_one_node(), [(0, 0)]);
        let hidden = crate::analysis::matrix::Matrix { is_partial: true, insides: Vec::new(), ..found };
        assert_eq!(hidden.cell_value((0, 0), TrafficUnit::Packets), CellValue::Nothing, "one port");
        let inside = GroupInside { has_ranks_on_one_node: false, has_several_ports: true };
        let wide = crate::analysis::matrix::Matrix { insides: vec![inside; 2], ..hidden };
        assert_eq!(wide.cell_value((0, 0), TrafficUnit::Packets), CellValue::NotCaptured);
    }
}
