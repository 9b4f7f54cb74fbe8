//! Determines the leaf port of a node's port by comparing the output of ibstat, ibnetdiscover and
//! ibtracert.

use super::cables::{Cable, Cables};
use super::nodes::ActivePort;
use super::{Fabric, FabricError, NodeFaults};
use crate::guid;
use ibscope_parsers::tools::NodeKind;
use ibscope_parsers::tools::ibtracert::SwitchPort;

/// Leaf port of a node's port.
#[derive(Debug)]
pub(super) struct PortAttachment {
    /// The leaf port, or the reason why it is unknown.
    pub(super) leaf: Result<SwitchPort, String>,
    /// Warnings about tools that contradict each other.
    pub(super) disagreements: Vec<String>,
}

/// Determines where a port is connected, unless it is probably the port of another node. A trace takes
/// precedence over the sweep: it is newer, and it starts at the node itself.
pub(super) fn resolve(
    port: &ActivePort,
    cable: Option<&Cable>,
    trace: Option<Result<SwitchPort, String>>,
    cables: &Cables,
) -> PortAttachment {
    if let Some(why) = cables.name_conflict(port) {
        return PortAttachment { leaf: Err(why), disagreements: Vec::new() };
    }
    let mut disagreements: Vec<String> = cable.and_then(|cable| ibstat_mismatch(port, cable)).into_iter().collect();
    let swept = match cable.map(|cable| cable.far) {
        Some(Some(far)) if far.kind == NodeKind::Switch => {
            Ok(SwitchPort { guid: far.guid, lid: Some(far.lid), port: far.number })
        }
        Some(Some(_)) => Err("ibnetdiscover shows no switch at the other end of the cable"),
        Some(None) => Err("ibnetdiscover shows nothing at the other end of the cable"),
        None if cables.is_empty() => Err("ibnetdiscover reported no ports"),
        None => Err("ibnetdiscover does not list the port"),
    };
    let leaf = match (swept, trace) {
        (Ok(swept), None) => Ok(swept),
        (Ok(swept), Some(Ok(traced))) => {
            if swept != traced {
                disagreements.push(format!(
                    "{port}: ibnetdiscover reports {}, ibtracert reports {}; using ibtracert. Check the cable, and plan again if it was moved",
                    leaf_text(swept),
                    leaf_text(traced)
                ));
            }
            Ok(traced)
        }
        (Ok(swept), Some(Err(why))) => {
            disagreements.push(format!(
                "{port}: ibtracert does not report the leaf switch ({why}); using ibnetdiscover alone: {}",
                leaf_text(swept)
            ));
            Ok(swept)
        }
        (Err(no_sweep), Some(Ok(traced))) => {
            // Another warning already reports that the sweep failed.
            if !cables.is_empty() {
                disagreements.push(format!("{port}: {no_sweep}; using ibtracert alone: {}", leaf_text(traced)));
            }
            Ok(traced)
        }
        (Err(no_sweep), Some(Err(why))) => Err(format!("{no_sweep}, and ibtracert failed: {why}")),
        (Err(no_sweep), None) => Err(no_sweep.to_owned()),
    };
    PortAttachment { leaf, disagreements }
}

/// Warning if the sweep and ibstat on the node report different LIDs or port numbers.
fn ibstat_mismatch(port: &ActivePort, cable: &Cable) -> Option<String> {
    let (node, sweep) = ((port.state.base_lid, port.state.number), (cable.host.lid, cable.host.number));
    (node != sweep).then(|| {
        format!(
            "{port}: ibstat reports LID {} and port {}, ibnetdiscover reports LID {} and port {}; using ibstat",
            node.0, node.1, sweep.0, sweep.1
        )
    })
}

fn leaf_text(leaf: SwitchPort) -> String {
    let lid = leaf.lid.map_or_else(String::new, |lid| format!(" (LID {lid})"));
    format!("switch {}{lid} port {}", guid::text(leaf.guid), leaf.port)
}

/// Records the ports whose leaf is unknown. A node with another port whose leaf is known goes on
/// with that port; a node without such a port has a fault.
pub(super) fn require_leaf_per_node(
    fabric: &mut Fabric,
    missing: Vec<(&ActivePort, String)>,
    faults: &mut NodeFaults<'_>,
) {
    for (port, why) in missing {
        let node = port.node.as_str();
        if fabric.ports.iter().any(|known| known.node == node) {
            fabric.left_out.push(format!("{port} is skipped: {why}"));
        } else {
            let why = format!("{} port {}: {why}", port.ca, port.state.number);
            faults.add(node, FabricError::NoLeaf { node: node.to_owned(), why });
        }
    }
}
