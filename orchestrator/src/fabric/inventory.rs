//! What nodes have said of their ports: with it one `ibnetdiscover -p` tells where the nodes of a large job are, and nobody has to ask each of them.

use super::cables::Cables;
use super::nodes::{Node, Port};
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

/// Ports of nodes by the nodes' names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Inventory {
    nodes: BTreeMap<String, Vec<Known>>,
}

/// A port that was in use when its node was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    ca: String,
    node_guid: u64,
    port_guid: u64,
    number: u8,
    lmc: u8,
    rate_gbits_tenths: u32,
}

impl Inventory {
    /// Reads the one of a state folder. It saves time only: one that is not there or cannot be read is empty, and nodes are asked.
    pub fn read(state_dir: &Path) -> Self {
        let bytes = Folder::open(state_dir).and_then(|folder| folder.bytes(FILE));
        bytes.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
    }

    /// Writes it into a state folder that is there, in one step.
    pub fn write(&self, state_dir: &Path) -> io::Result<()> {
        Folder::open(state_dir)?.put(OsStr::new(FILE), &serde_json::to_vec(self)?, 0o600, None)
    }

    /// Whether a node has been asked before.
    pub(super) fn has(&self, node: &str) -> bool {
        self.nodes.contains_key(node)
    }

    /// Keeps what a node has said. Ports of Ethernet are in no fabric, so such nodes are always asked.
    pub(super) fn learn(&mut self, node: &Node) {
        self.nodes.remove(&node.name);
        if node.ports.iter().all(Port::is_infiniband) {
            let known = node.ports.iter().map(|port| Known {
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

    /// The node as the fabric shows it now. None where that is not just what the node said: a port that is not there, one more than before, or one that the
    /// fabric calls by another node's name, since adapters are moved. Then the node is to be asked.
    pub(super) fn recall(&self, node: &str, cables: &Cables) -> Option<Node> {
        let known = self.nodes.get(node)?;
        if known.is_empty() || cables.named(node) != known.len() {
            return None;
        }
        let port = |known: &Known| {
            let cable = cables.by_guid(known.port_guid)?;
            let on_switch = cable.far.is_some_and(|far| far.kind == NodeKind::Switch);
            let is_same = cable.name.as_deref() == Some(node) && cable.host.number == known.number;
            (is_same && on_switch && cable.host.lid != 0).then(|| Port {
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
        let ports = known.iter().map(port).collect::<Option<Vec<Port>>>()?;
        Some(Node { name: node.to_owned(), ports, left_out: Vec::new() })
    }
}
