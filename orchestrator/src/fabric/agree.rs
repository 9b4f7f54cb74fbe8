//! What the tools say of one port, held against each other.

use super::cables::{Cable, Cables};
use super::nodes::Port;
use super::{Fabric, FabricError, several};
use crate::guid;
use ibscope_parsers::tools::NodeKind;
use ibscope_parsers::tools::ibtracert::SwitchPort;

/// Where a port is connected.
#[derive(Debug)]
pub(super) struct Place {
    /// The leaf, or why it is not known.
    pub(super) leaf: Result<SwitchPort, String>,
    /// What does not fit together.
    pub(super) disagreements: Vec<String>,
}

/// Settles where a port is. A trace counts more than the sweep: it is younger, and it was asked of the node itself.
pub(super) fn place(
    port: &Port,
    cable: Option<&Cable>,
    trace: Option<Result<SwitchPort, String>>,
    cables: &Cables,
) -> Place {
    let mut disagreements: Vec<String> = cable.and_then(|cable| own_view(port, cable)).into_iter().collect();
    let swept = match cable.map(|cable| cable.far) {
        Some(Some(far)) if far.kind == NodeKind::Switch => {
            Ok(SwitchPort { guid: far.guid, lid: Some(far.lid), port: far.number })
        }
        Some(Some(_)) => Err("ibnetdiscover shows no switch at the other end of its cable"),
        Some(None) => Err("ibnetdiscover shows nothing at the other end of its cable"),
        None if cables.is_empty() => Err("ibnetdiscover told nothing"),
        None => Err("ibnetdiscover does not list it"),
    };
    let leaf = match (swept, trace) {
        (Ok(swept), None) => Ok(swept),
        (Ok(swept), Some(Ok(traced))) => {
            if swept != traced {
                disagreements.push(format!(
                    "{port}: ibnetdiscover says {}, ibtracert says {}; ibtracert is believed. Check the cable, and plan again if one was moved",
                    shown(swept),
                    shown(traced)
                ));
            }
            Ok(traced)
        }
        (Ok(swept), Some(Err(why))) => {
            disagreements.push(format!(
                "{port}: ibtracert does not tell the leaf ({why}); ibnetdiscover alone is believed: {}",
                shown(swept)
            ));
            Ok(swept)
        }
        (Err(silence), Some(Ok(traced))) => {
            // One sentence tells already that the sweep failed.
            if !cables.is_empty() {
                disagreements.push(format!("{port}: {silence}; ibtracert alone is believed: {}", shown(traced)));
            }
            Ok(traced)
        }
        (Err(silence), Some(Err(why))) => Err(format!("{silence}, and ibtracert failed: {why}")),
        (Err(silence), None) => Err(silence.to_owned()),
    };
    Place { leaf, disagreements }
}

/// Where the sweep and the node itself say different things of the port.
fn own_view(port: &Port, cable: &Cable) -> Option<String> {
    let (node, sweep) = ((port.state.base_lid, port.state.number), (cable.host.lid, cable.host.number));
    (node != sweep).then(|| {
        format!(
            "{port}: ibstat says LID {} and port {}, ibnetdiscover says LID {} and port {}; ibstat is believed",
            node.0, node.1, sweep.0, sweep.1
        )
    })
}

fn shown(leaf: SwitchPort) -> String {
    let lid = leaf.lid.map_or_else(String::new, |lid| format!(" (LID {lid})"));
    format!("switch {}{lid} port {}", guid::text(leaf.guid), leaf.port)
}

/// A node with a port whose leaf is known goes on without the others; one without any cannot.
pub(super) fn settle(fabric: &mut Fabric, missing: Vec<(&Port, String)>) -> Result<(), FabricError> {
    let mut errors = Vec::new();
    for (port, why) in missing {
        let node = port.node.as_str();
        if fabric.ports.iter().any(|known| known.node == node) {
            fabric.left_out.push(format!("{port} is left out: {why}"));
        } else if errors.iter().all(|(other, _)| other != node) {
            let why = format!("{} port {}: {why}", port.ca, port.state.number);
            errors.push((node.to_owned(), FabricError::NoLeaf { node: node.to_owned(), why }));
        }
    }
    several(errors).map_or(Ok(()), Err)
}
