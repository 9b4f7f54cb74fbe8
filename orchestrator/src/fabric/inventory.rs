//! Cache of the ports of nodes. With it, one `ibnetdiscover -p` locates the nodes of a large job,
//! and ibstat need not run on each node.

use super::cables::Cables;
use super::nodes::{ActivePort, NodeInventory};
use crate::folder::Folder;
use ibscope_parsers::tools::NodeKind;
use ibscope_parsers::tools::ibstat::{CaPort, LinkLayer, PortState};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::Path;

/// Name of the file in the state folder.
const FILE: &str = "ports.json";

/// Ports of nodes, by node name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Inventory {
    nodes: BTreeMap<String, Vec<KnownPort>>,
}

/// A port that was active when its node was queried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KnownPort {
    ca: String,
    node_guid: u64,
    port_guid: u64,
    number: u8,
    lmc: u8,
    rate_gbits_tenths: u32,
}

impl Inventory {
    /// Reads the inventory of a state folder. It only saves time: a missing or unreadable inventory
    /// counts as empty, and all nodes are queried.
    pub fn read(state_dir: &Path) -> Self {
        let bytes = Folder::open(state_dir).and_then(|folder| folder.bytes(FILE));
        bytes.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
    }

    /// Replaces the inventory of an existing state folder atomically.
    pub fn write(&self, state_dir: &Path) -> io::Result<()> {
        Folder::open(state_dir)?.replace(OsStr::new(FILE), &serde_json::to_vec(self)?, 0o600, None)
    }

    /// True if the inventory has the ports of this node.
    pub(super) fn has(&self, node: &str) -> bool {
        self.nodes.contains_key(node)
    }

    /// Stores the ports that a node reported. A node with an Ethernet port is not stored, because
    /// no sweep shows that port: the node is queried each time.
    pub(super) fn store(&mut self, node: &NodeInventory) {
        self.nodes.remove(&node.name);
        if node.ports.iter().all(ActivePort::is_infiniband) {
            let known = node.ports.iter().map(|port| KnownPort {
                ca: port.ca.clone(),
                node_guid: port.node_guid,
                port_guid: port.state.port_guid,
                number: port.state.number,
                lmc: port.state.lmc,
                rate_gbits_tenths: port.state.rate_gbits_tenths,
            });
            self.nodes.insert(node.name.clone(), known.collect());
        }
    }

    /// The node's ports as the fabric shows them now. `None` if they differ from the stored ones: a
    /// port is missing, a port was added, or the fabric gives a port the name of another node,
    /// because its adapter was moved. Then the node must be queried.
    pub(super) fn recall(&self, node: &str, cables: &Cables) -> Option<NodeInventory> {
        let known = self.nodes.get(node)?;
        if known.is_empty() || cables.port_count(node) != known.len() {
            return None;
        }
        let port = |known: &KnownPort| {
            let cable = cables.by_guid(known.port_guid)?;
            let on_switch = cable.far.is_some_and(|far| far.kind == NodeKind::Switch);
            let is_same = cable.name.as_deref() == Some(node) && cable.host.number == known.number;
            (is_same && on_switch && cable.host.lid != 0).then(|| ActivePort {
                node: node.to_owned(),
                ca: known.ca.clone(),
                node_guid: known.node_guid,
                state: CaPort {
                    number: known.number,
                    state: PortState::Active,
                    physical_state: String::new(),
                    rate_gbits_tenths: known.rate_gbits_tenths,
                    base_lid: cable.host.lid,
                    lmc: known.lmc,
                    sm_lid: 0,
                    port_guid: known.port_guid,
                    link_layer: LinkLayer::InfiniBand,
                },
            })
        };
        let ports = known.iter().map(port).collect::<Option<Vec<ActivePort>>>()?;
        Some(NodeInventory { name: node.to_owned(), ports, left_out: Vec::new() })
    }
}
