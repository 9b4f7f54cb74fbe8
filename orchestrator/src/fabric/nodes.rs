//! The ports of a node, as `ibstat` lists them.

use super::{FabricError, NodePort, tool};
use crate::config::CaptureBackend;
use crate::config::{Config, MirrorBackend};
use crate::name;
use crate::remote::Runner;
use ibscope_parsers::tools::ibstat::{self, Ca, CaPort, LinkLayer, PortState};
use ibscope_parsers::tools::ibtracert::SwitchPort;
use std::fmt;

/// An active port.
#[derive(Clone, Debug)]
pub(super) struct ActivePort {
    pub(super) node: String,
    pub(super) ca: String,
    pub(super) node_guid: u64,
    pub(super) state: CaPort,
}

/// Ports of one node.
#[derive(Debug)]
pub(super) struct NodeInventory {
    pub(super) name: String,
    /// Active ports.
    pub(super) ports: Vec<ActivePort>,
    /// Skipped ports: name and reason.
    pub(super) left_out: Vec<(String, String)>,
}

impl fmt::Display for ActivePort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} port {}", self.node, self.ca, self.state.number)
    }
}

impl ActivePort {
    pub(super) fn is_infiniband(&self) -> bool {
        self.state.link_layer == LinkLayer::InfiniBand
    }

    /// First and last LID.
    pub(super) fn lids(&self) -> (u16, u16) {
        (self.state.base_lid, self.state.base_lid.saturating_add((1 << self.state.lmc) - 1))
    }

    /// The port with its leaf port.
    pub(super) fn with_leaf(&self, leaf: Option<SwitchPort>) -> NodePort {
        NodePort {
            node: self.node.clone(),
            ca: self.ca.clone(),
            port: self.state.number,
            port_guid: self.state.port_guid,
            lid: self.state.base_lid,
            lmc: self.state.lmc,
            rate_gbits: f64::from(self.state.rate_gbits_tenths) / 10.0,
            leaf_guid: leaf.map_or(0, |leaf| leaf.guid),
            leaf_lid: leaf.and_then(|leaf| leaf.lid).unwrap_or(0),
            leaf_port: leaf.map_or(0, |leaf| leaf.port),
        }
    }
}

/// Runs ibstat on a node. `is_sink` is true for a reserved sink.
pub(super) fn query(
    config: &Config,
    node: &str,
    is_sink: bool,
    runner: &dyn Runner,
) -> Result<NodeInventory, FabricError> {
    let program = tool::name(&config.tools.ibstat);
    let output = tool::run(config, runner, Some(node), &config.tools.ibstat, &[])?;
    if !output.is_success() {
        return Err(FabricError::Failed {
            node: node.to_owned(),
            tool: program,
            printed: tool::failure_reason(&output),
        });
    }
    let cas = ibstat::parse(&tool::text(&output)).map_err(|source| FabricError::Unreadable {
        node: node.to_owned(),
        tool: program,
        source,
    })?;
    let answer = split_ports(node, cas, takes_ethernet(config));
    if answer.ports.is_empty() {
        let ports = answer.left_out.iter().map(|(port, why)| format!("{port}: {why}"));
        let seen = ports.collect::<Vec<_>>().join("; ");
        let seen = if seen.is_empty() { "ibstat lists none".to_owned() } else { seen };
        return Err(FabricError::NoPort { node: node.to_owned(), seen, is_sink });
    }
    Ok(answer)
}

/// Ethernet ports can only be captured at the node itself: an InfiniBand switch cannot mirror them.
fn takes_ethernet(config: &Config) -> bool {
    config.capture.backend == CaptureBackend::Tcpdump && config.mirror.backend == MirrorBackend::None
}

/// Splits the ports of a node into active and skipped ones.
fn split_ports(node: &str, cas: Vec<Ca>, takes_ethernet: bool) -> NodeInventory {
    let mut answer = NodeInventory { name: node.to_owned(), ports: Vec::new(), left_out: Vec::new() };
    for Ca { name, node_guid, ports } in cas {
        for state in ports {
            if let Some(why) = exclusion_reason(&name, &state, takes_ethernet) {
                answer.left_out.push((format!("{} port {}", name.escape_default(), state.number), why));
            } else {
                answer.ports.push(ActivePort { node: node.to_owned(), ca: name.clone(), node_guid, state });
            }
        }
    }
    answer
}

/// Reason why a port cannot be captured, or `None`.
fn exclusion_reason(ca: &str, port: &CaPort, takes_ethernet: bool) -> Option<String> {
    if name::device(ca).is_err() {
        return Some("its name is not a valid device name".to_owned());
    }
    match port.link_layer {
        LinkLayer::Ethernet if !takes_ethernet => return Some("Ethernet".to_owned()),
        LinkLayer::Unknown => return Some("its link layer is unknown".to_owned()),
        LinkLayer::InfiniBand | LinkLayer::Ethernet => {}
    }
    if port.state != PortState::Active {
        // The LID of an inactive port is stale.
        let old = if port.base_lid == 0 { "" } else { ", though it still shows a LID" };
        let physical = port.physical_state.escape_default();
        return Some(format!("{} ({physical}){old}", port.state.name()));
    }
    if port.link_layer == LinkLayer::InfiniBand && (port.base_lid == 0 || port.port_guid == 0) {
        return Some("active without a LID or GUID".to_owned());
    }
    None
}

/// One sentence for all ports of the same name and reason, because clusters have hundreds of them.
pub(super) fn left_out(nodes: &[NodeInventory]) -> Vec<String> {
    let mut groups: Vec<(&(String, String), Vec<&str>)> = Vec::new();
    for node in nodes {
        for port in &node.left_out {
            match groups.iter_mut().find(|(same, _)| *same == port) {
                Some((_, names)) => names.push(&node.name),
                None => groups.push((port, vec![&node.name])),
            }
        }
    }
    let sentence = |((port, why), names): (&(String, String), Vec<&str>)| {
        format!("{port} of {} is skipped: {why}", join_names(&names))
    };
    groups.into_iter().map(sentence).collect()
}

/// `n001, n002, n003 and 9 more`.
fn join_names(names: &[&str]) -> String {
    const SHOWN: usize = 3;
    match names.len() {
        0..=SHOWN => names.join(", "),
        all => format!("{} and {} more", names[..SHOWN].join(", "), all - SHOWN),
    }
}
