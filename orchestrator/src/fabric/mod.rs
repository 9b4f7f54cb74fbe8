//! Where the nodes of a job are in the fabric: the adapters, LIDs and states of their ports, and the leaf switch and port that each is connected to.
//!
//! Two ways lead there, and both are gone: one `ibnetdiscover -p` tells every cable of a subnet, and `ibstat` and `ibtracert` on the
//! nodes tell what each sees of itself. Ports are matched by GUID alone. Descriptions of nodes are left aside, since they can be anything.

mod agree;
mod cables;
mod inventory;
mod nodes;
mod tool;
mod trace;

use crate::config::{Config, MirrorBackend};
use crate::guid;
use crate::remote::{self, RemoteError, Runner};
use cables::Cables;
use ibscope_parsers::tools::ToolError;
pub use inventory::Inventory;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::panic;
use std::thread;

/// A port of a node that is in use, and the switch port that it is connected to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodePort {
    /// Name of the node as Slurm has it.
    pub node: String,
    /// Name of the adapter, such as `mlx5_0`.
    pub ca: String,
    /// Number of the adapter's port, from 1.
    pub port: u8,
    /// GUID of the port.
    #[serde(with = "guid")]
    pub port_guid: u64,
    /// First LID; 0 for a port of Ethernet.
    pub lid: u16,
    /// LID mask control: the port answers to `2^lmc` LIDs from the first on.
    pub lmc: u8,
    /// Rate of the port.
    pub rate_gbits: f64,
    /// GUID of the leaf switch; 0 where it is not known, which is an error unless nothing is mirrored.
    #[serde(with = "guid")]
    pub leaf_guid: u64,
    /// LID of the leaf switch.
    pub leaf_lid: u16,
    /// Port of the leaf switch that the node is connected to.
    pub leaf_port: u8,
}

/// The ports of the nodes that were asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fabric {
    /// Ports in use, in the order of the nodes, then of adapters and ports.
    pub ports: Vec<NodePort>,
    /// Where `ibnetdiscover`, `ibtracert` and `ibstat` do not say the same, or one of them failed: a sentence each.
    pub disagreements: Vec<String>,
    /// Ports that were left out and why, a sentence for all ports of the same name and reason.
    pub left_out: Vec<String>,
}

/// Why the place of the nodes in the fabric is not known.
#[derive(Debug, thiserror::Error)]
pub enum FabricError {
    /// No node was asked for.
    #[error("there are no nodes to look for; check the list of nodes")]
    NoNodes,
    /// A tool could not be run.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// `ibstat` failed.
    #[error("{node}: {tool} failed: {said}; run it there by hand, and check tools.ibstat in the configuration")]
    Failed {
        /// The node.
        node: String,
        /// The program.
        tool: String,
        /// What it said.
        said: String,
    },
    /// `ibstat` wrote something that cannot be read.
    #[error("{node}: {source}; run {tool} there by hand: another version may write something else")]
    Unreadable {
        /// The node.
        node: String,
        /// The program.
        tool: String,
        /// What is wrong with it.
        source: ToolError,
    },
    /// A node has no port that could be captured.
    #[error(
        "{node}: no InfiniBand port is active ({seen}); check the cable and the subnet manager, or take the node out of the job"
    )]
    NoPort {
        /// The node.
        node: String,
        /// Its ports and why each is of no use.
        seen: String,
    },
    /// The leaf of a node's ports is not known.
    #[error(
        "{node}: the leaf switch is not known: {why}; run ibnetdiscover -p and ibtracert by hand, and check fabric.run_on in the configuration"
    )]
    NoLeaf {
        /// The node.
        node: String,
        /// What was tried.
        why: String,
    },
    /// Two names lead to one machine.
    #[error(
        "{node} and {other} show the same port {}: two names lead to one machine; check the addresses in the [nodes] section of the configuration",
        guid::text(*port_guid)
    )]
    SamePort {
        /// A node.
        node: String,
        /// The other one.
        other: String,
        /// GUID of the port that both show.
        port_guid: u64,
    },
    /// Several nodes have faults.
    #[error("{first} (there is something wrong with {} too)", others.join(", "))]
    Several {
        /// The first one.
        first: Box<FabricError>,
        /// The other nodes.
        others: Vec<String>,
    },
}

/// Finds the ports of `nodes`. Asks them by `ibstat` and the fabric by `ibnetdiscover -p`, at the same time; then traces from each port of
/// the first `fabric.check_nodes` nodes, and from those that `ibnetdiscover` does not know. Nodes beyond these that have been asked before, as `inventory` knows, are
/// not asked again where the fabric shows the same ports.
pub fn discover(
    config: &Config,
    nodes: &[String],
    inventory: &mut Inventory,
    runner: &dyn Runner,
) -> Result<Fabric, FabricError> {
    let mut seen = BTreeSet::new();
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).filter(|node| seen.insert(*node)).collect();
    let first = *nodes.first().ok_or(FabricError::NoNodes)?;
    let most = config.ssh.parallel as usize;
    let checked: BTreeSet<&str> = nodes.iter().take(config.fabric.check_nodes).copied().collect();
    // A sink has to answer anyway.
    let is_sink = |node: &str| config.sinks.nodes.iter().any(|sink| sink == node);
    let (known, asked): (Vec<&str>, Vec<&str>) =
        nodes.iter().partition(|node| inventory.has(node) && !checked.contains(*node) && !is_sink(node));
    let ask = |nodes: &[&str]| {
        all(remote::parallel(nodes, most, |node| (node.to_string(), nodes::ask(config, node, runner))))
    };
    let read = || Cables::read(config, first, runner);
    let (answers, mut cables) = thread::scope(|scope| {
        let cables = thread::Builder::new().spawn_scoped(scope, read);
        let answers = ask(&asked);
        // Without a thread of their own the cables come after the nodes.
        let joined = cables.map(|cables| cables.join().unwrap_or_else(|fault| panic::resume_unwind(fault)));
        (answers, joined.unwrap_or_else(|_| read()))
    });
    let (mut found, mut doubtful) = (BTreeMap::new(), Vec::new());
    for node in known {
        match inventory.recall(node, &cables) {
            Some(recalled) => _ = found.insert(node, recalled),
            None => doubtful.push(node),
        }
    }
    for (node, answer) in
        asked.into_iter().chain(doubtful.iter().copied()).zip(answers?.into_iter().chain(ask(&doubtful)?))
    {
        inventory.learn(&answer);
        found.insert(node, answer);
    }
    let found: Vec<nodes::Node> = nodes.iter().filter_map(|node| found.remove(node)).collect();
    let ports: Vec<&nodes::Port> = found.iter().flat_map(|node| &node.ports).collect();
    distinct(&ports)?;
    cables.look_further(config, &ports, runner);
    let places = remote::parallel(&ports, most, |port| {
        let known = cables.get(port);
        let wanted = port.is_infiniband() && (known.is_none() || checked.contains(port.node.as_str()));
        let trace = wanted.then(|| trace::leaf(config, port, &trace::targets(port, known, &ports), runner));
        agree::place(port, known, trace, &cables)
    });
    let mut fabric = Fabric { left_out: nodes::left_out(&found), ..Fabric::default() };
    // Where all ports are of Ethernet there is no fabric to ask.
    if ports.iter().any(|port| port.is_infiniband()) {
        fabric.disagreements = cables.into_faults();
    }
    let mut missing = Vec::new();
    for (port, place) in ports.iter().zip(places) {
        fabric.disagreements.extend(place.disagreements);
        let leaf = match place.leaf {
            Ok(leaf) => Some(leaf),
            // Only mirroring needs the leaf.
            Err(why) if config.mirror.backend == MirrorBackend::None => {
                if port.is_infiniband() {
                    fabric.disagreements.push(format!("{port}: the leaf switch is not known: {why}"));
                }
                None
            }
            Err(why) => {
                missing.push((*port, why));
                continue;
            }
        };
        fabric.ports.push(port.at(leaf));
    }
    agree::settle(&mut fabric, missing)?;
    Ok(fabric)
}

/// What all of them gave, or the first error with the names of the other nodes that have one.
fn all<T>(answers: Vec<(String, Result<T, FabricError>)>) -> Result<Vec<T>, FabricError> {
    let mut values = Vec::with_capacity(answers.len());
    let mut errors = Vec::new();
    for (node, answer) in answers {
        match answer {
            Ok(value) => values.push(value),
            Err(error) => errors.push((node, error)),
        }
    }
    several(errors).map_or(Ok(values), Err)
}

/// One error of the errors of nodes.
fn several(errors: Vec<(String, FabricError)>) -> Option<FabricError> {
    let mut errors = errors.into_iter();
    let (_, first) = errors.next()?;
    let others: Vec<String> = errors.map(|(node, _)| node).collect();
    Some(if others.is_empty() { first } else { FabricError::Several { first: Box::new(first), others } })
}

/// A port belongs to one node.
fn distinct(ports: &[&nodes::Port]) -> Result<(), FabricError> {
    let mut owners = BTreeMap::new();
    for port in ports {
        if let Some(other) = owners.insert(port.state.port_guid, port.node.as_str()) {
            let (node, other) = (other.to_owned(), port.node.clone());
            return Err(FabricError::SamePort { node, other, port_guid: port.state.port_guid });
        }
    }
    Ok(())
}
