//! The groups of ports that a matrix sums: the ports of a node, and the ports of a leaf switch.
//!
//! In: the names and leaf switches of the ports of a [`Profile`]. Out: the group of each port.
//! Invariant: the order of groups depends on all named ports, not on those with traffic, so it is the
//! same for every time window.

use crate::model::nodes::node;
use crate::model::{HashMap, Profile};
use ibscope_parsers::Endpoint;
use std::sync::Arc;

/// Name of the group of all ports whose leaf switch is unknown.
const UNKNOWN_LEAF: &str = "unknown";

/// Several ports: those of a node or of a leaf switch. Groups sort by their lowest port; the ports
/// without a known leaf switch come last.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortGroup {
    is_unknown: bool,
    first: Option<Endpoint>,
    name: Arc<str>,
}

impl PortGroup {
    /// The name of the node, the identifier of the leaf switch, or `unknown`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// The group of each port of a profile.
pub(crate) struct PortGroups {
    by_port: HashMap<Endpoint, PortGroup>,
    /// True for leaf switches: ports without one share a group. Ports without a name are nodes.
    of_leaves: bool,
}

impl PortGroups {
    /// Groups the ports by node.
    pub(crate) fn nodes(profile: &Profile) -> Self {
        let named = profile.names.iter().map(|(endpoint, name)| (*endpoint, node(name)));
        Self { by_port: grouped(named), of_leaves: false }
    }

    /// Groups the ports by leaf switch.
    pub(crate) fn leaves(profile: &Profile) -> Self {
        let named = profile.leaves.iter().map(|(endpoint, leaf)| (*endpoint, leaf.as_str()));
        Self { by_port: grouped(named), of_leaves: true }
    }

    /// The group of a port.
    pub(crate) fn of(&self, endpoint: Endpoint) -> PortGroup {
        match self.by_port.get(&endpoint) {
            Some(group) => group.clone(),
            None if self.of_leaves => PortGroup { is_unknown: true, first: None, name: UNKNOWN_LEAF.into() },
            None => PortGroup { is_unknown: false, first: Some(endpoint), name: endpoint.to_string().into() },
        }
    }
}

/// Groups of equal names. The ports are sorted, so the first one of a name is the lowest.
fn grouped<'a>(ports: impl Iterator<Item = (Endpoint, &'a str)>) -> HashMap<Endpoint, PortGroup> {
    let mut groups: HashMap<&str, PortGroup> = HashMap::default();
    let group_of = |(endpoint, name): (Endpoint, &'a str)| {
        let new = || PortGroup { is_unknown: false, first: Some(endpoint), name: name.into() };
        (endpoint, groups.entry(name).or_insert_with(new).clone())
    };
    ports.map(group_of).collect()
}
