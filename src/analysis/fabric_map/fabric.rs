//! The cables of a subnet as a graph: hosts at switches, and switches at each other.

use crate::model::HashMap;
use ibscope_parsers::tools::NodeKind;
use ibscope_parsers::tools::ibnetdiscover::{FabricPort, PortLine};
use petgraph::graph::{NodeIndex, UnGraph};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// The port that sends into a link: GUID and number. It identifies one direction of a cable.
pub(super) type LinkKey = (u64, u8);

/// The ports of a subnet with their cables.
#[derive(Debug, Default)]
pub struct FabricGraph {
    /// Port at the other end, by port.
    cables: BTreeMap<LinkKey, FabricPort>,
    ports: BTreeMap<LinkKey, FabricPort>,
    hosts: HashMap<u16, LinkKey>,
    /// Description of each node by the GUID of its ports.
    names: HashMap<u64, String>,
    /// Switches, with one edge per cable between two of them.
    switches: UnGraph<u64, (LinkKey, LinkKey)>,
    indices: HashMap<u64, NodeIndex>,
}

/// Reason why a list of ports describes no fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FabricListError {
    /// Two lines connect one port differently, as in a file of two sweeps.
    #[error("port {number} of {guid:#018x} has two cables; give the output of one run of ibnetdiscover -p")]
    TwoCables {
        /// GUID of the port.
        guid: u64,
        /// Number of the port.
        number: u8,
    },
    /// Two ports of hosts have one LID, as in a file of two subnets.
    #[error("two ports have LID {0}; give the output of ibnetdiscover -p for one subnet")]
    TwoPorts(u16),
    /// No port is connected.
    #[error("no line has a port with a cable; give the output of ibnetdiscover -p")]
    Empty,
}

impl FabricGraph {
    /// The fabric of the lines of `ibnetdiscover -p`.
    pub fn of(lines: &[PortLine]) -> Result<Self, FabricListError> {
        let mut fabric = Self::default();
        for line in lines {
            fabric.add_names(line);
            fabric.add_port(line.port)?;
            let Some(remote) = line.remote else { continue };
            fabric.add_port(remote)?;
            fabric.add_cable(line.port, remote)?;
            fabric.add_cable(remote, line.port)?;
        }
        if fabric.cables.is_empty() {
            return Err(FabricListError::Empty);
        }
        fabric.connect_switches();
        Ok(fabric)
    }

    fn add_names(&mut self, line: &PortLine) {
        let Some((near, far)) = line.names() else { return };
        let both = [(Some(line.port), Some(near)), (line.remote, far)];
        for (port, name) in both.into_iter().filter_map(|(port, name)| port.zip(name)) {
            self.names.entry(port.guid).or_insert_with(|| name.to_owned());
        }
    }

    fn add_port(&mut self, port: FabricPort) -> Result<(), FabricListError> {
        let key = key(port);
        self.ports.entry(key).or_insert(port);
        if port.kind != NodeKind::Switch && port.lid != 0 && *self.hosts.entry(port.lid).or_insert(key) != key {
            return Err(FabricListError::TwoPorts(port.lid));
        }
        Ok(())
    }

    fn add_cable(&mut self, from: FabricPort, to: FabricPort) -> Result<(), FabricListError> {
        match self.cables.entry(key(from)) {
            Entry::Vacant(place) => _ = place.insert(to),
            Entry::Occupied(known) if key(*known.get()) == key(to) => {}
            Entry::Occupied(_) => return Err(FabricListError::TwoCables { guid: from.guid, number: from.number }),
        }
        Ok(())
    }

    fn connect_switches(&mut self) {
        let switches: Vec<u64> =
            self.ports.values().filter(|port| port.kind == NodeKind::Switch).map(|port| port.guid).collect();
        for guid in switches {
            self.indices.entry(guid).or_insert_with(|| self.switches.add_node(guid));
        }
        for (&near, far) in &self.cables {
            let far = key(*far);
            // Each cable is listed from both ends.
            if near < far
                && let (Some(&a), Some(&b)) = (self.indices.get(&near.0), self.indices.get(&far.0))
            {
                self.switches.add_edge(a, b, (near, far));
            }
        }
    }

    /// Number of ports of hosts and of other nodes that are no switches.
    #[must_use]
    pub fn host_ports(&self) -> usize {
        self.ports.values().filter(|port| port.kind != NodeKind::Switch).count()
    }

    /// Number of switches.
    #[must_use]
    pub fn switches(&self) -> usize {
        self.switches.node_count()
    }

    /// Number of cables.
    #[must_use]
    pub fn cables(&self) -> usize {
        self.cables.len() / 2
    }

    pub(super) const fn graph(&self) -> &UnGraph<u64, (LinkKey, LinkKey)> {
        &self.switches
    }

    pub(super) fn index(&self, switch_guid: u64) -> Option<NodeIndex> {
        self.indices.get(&switch_guid).copied()
    }

    /// The port of a host that has this LID.
    pub(super) fn host(&self, lid: u16) -> Option<LinkKey> {
        self.hosts.get(&lid).copied()
    }

    /// The port of a host with this GUID.
    pub(super) fn host_of_guid(&self, guid: u64) -> Option<LinkKey> {
        let mut ports = self.ports.range((guid, 0)..=(guid, u8::MAX));
        ports.next().filter(|(_, port)| port.kind != NodeKind::Switch).map(|(key, _)| *key)
    }

    /// The port at the other end of a cable.
    pub(super) fn far(&self, port: LinkKey) -> Option<FabricPort> {
        self.cables.get(&port).copied()
    }

    /// Both ends of every link: each cable twice, once in each direction.
    pub(super) fn links(&self) -> impl Iterator<Item = (FabricPort, FabricPort)> {
        self.cables.iter().filter_map(|(from, to)| Some((*self.ports.get(from)?, *to)))
    }

    /// The description of a node, or its GUID.
    #[must_use]
    pub fn name(&self, guid: u64) -> String {
        self.names.get(&guid).cloned().unwrap_or_else(|| format!("{guid:#018x}"))
    }
}

/// The key of a port.
pub(super) const fn key(port: FabricPort) -> LinkKey {
    (port.guid, port.number)
}
