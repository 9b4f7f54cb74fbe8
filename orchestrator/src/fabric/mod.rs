//! Locates the nodes of a job in the fabric: the adapters, LIDs and states of their ports, and the
//! leaf switch and port that each is connected to.
//!
//! Two sources are compared: `ibnetdiscover -p` lists every cable of a subnet, and `ibstat` and
//! `ibtracert` show the fabric as each node sees it. Ports are matched by GUID only. Node
//! descriptions identify nothing, because they can be any text.

mod attachment;
mod cables;
mod inventory;
mod nodes;
pub(crate) mod present;
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

/// An active port of a node, and the switch port that it is connected to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodePort {
    /// Slurm's name of the node.
    pub node: String,
    /// Name of the adapter, such as `mlx5_0`.
    pub ca: String,
    /// Number of the adapter's port, from 1.
    pub port: u8,
    /// GUID of the port.
    #[serde(with = "guid")]
    pub port_guid: u64,
    /// First LID; 0 for an Ethernet port.
    pub lid: u16,
    /// LID mask control: the port has `2^lmc` LIDs, from the first on.
    pub lmc: u8,
    /// Rate of the port, in Gbit/s.
    pub rate_gbits: f64,
    /// GUID of the leaf switch. 0 if it is unknown, which is an error unless nothing is mirrored.
    #[serde(with = "guid")]
    pub leaf_guid: u64,
    /// LID of the leaf switch.
    pub leaf_lid: u16,
    /// Port of the leaf switch that the node is connected to.
    pub leaf_port: u8,
}

/// Ports of the nodes in question.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fabric {
    /// Active ports, ordered by node, adapter and port.
    pub ports: Vec<NodePort>,
    /// Warnings, one sentence each: `ibnetdiscover`, `ibtracert` and `ibstat` contradict each
    /// other, or one of them failed.
    pub disagreements: Vec<String>,
    /// Ports that are skipped, with the reason; one sentence for all ports of the same name and
    /// reason.
    pub left_out: Vec<String>,
}

/// Reason why nodes cannot be located in the fabric.
#[derive(Debug, thiserror::Error)]
pub enum FabricError {
    /// The list of nodes is empty.
    #[error("the list of nodes is empty; name at least one node")]
    NoNodes,
    /// A tool could not be run.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// `ibstat` failed.
    #[error("{node}: {tool} failed: {printed}; run it there by hand, and check tools.ibstat in the configuration")]
    Failed {
        /// Name of the node.
        node: String,
        /// Path of the program.
        tool: String,
        /// Error output of the program.
        printed: String,
    },
    /// The output of `ibstat` cannot be parsed.
    #[error("{node}: {source}; run {tool} there by hand: another version may have another output format")]
    Unreadable {
        /// Name of the node.
        node: String,
        /// Path of the program.
        tool: String,
        /// Parse error.
        source: ToolError,
    },
    /// A node has no port that can be captured.
    #[error(
        "{node}: no InfiniBand port is active ({seen}); check the cable and the subnet manager, or {}",
        if *is_sink { "remove the node from sinks.nodes" } else { "exclude the node from the job" }
    )]
    NoPort {
        /// Name of the node.
        node: String,
        /// Ports of the node, with the reason why each is skipped.
        seen: String,
        /// True for a reserved sink that is not a node of the job.
        is_sink: bool,
    },
    /// The leaf of a node's ports is unknown.
    #[error(
        "{node}: the leaf switch is unknown: {why}; run ibnetdiscover -p and ibtracert by hand, and check fabric.run_on in the configuration"
    )]
    NoLeaf {
        /// Name of the node.
        node: String,
        /// Failed attempts to find the leaf.
        why: String,
    },
    /// Two node names lead to one machine.
    #[error(
        "{node} and {other} show the same port {}: two names lead to one machine; check the addresses in the [nodes] section of the configuration",
        guid::text(*port_guid)
    )]
    SamePort {
        /// Name of the node.
        node: String,
        /// Name of the other node.
        other: String,
        /// GUID of the port that both nodes report.
        port_guid: u64,
    },
    /// Several nodes have faults.
    #[error("{first} (also failed: {})", others.join(", "))]
    Several {
        /// Fault of the first node.
        first: Box<FabricError>,
        /// Names of the other nodes.
        others: Vec<String>,
    },
}

/// Finds the ports of `nodes`: see [`discover_with_sinks`].
pub fn discover(
    config: &Config,
    nodes: &[String],
    inventory: &mut Inventory,
    runner: &dyn Runner,
) -> Result<Fabric, FabricError> {
    discover_with_sinks(config, nodes, &[], inventory, runner).map(|(fabric, _)| fabric)
}

/// Finds the ports of `nodes`, and those of reserved sinks. A fault of a node is an error. A sink with a
/// fault is skipped, because other sinks may have none; the faults of sinks are returned beside the
/// ports. A sink that is also one of `nodes` is a node.
///
/// Runs `ibstat` on the nodes and `ibnetdiscover -p` at the same time, then `ibtracert` from each
/// port of the first `fabric.check_nodes` nodes and from each port that `ibnetdiscover` does not
/// list. Further nodes whose ports `inventory` has are not queried again if the fabric shows the
/// same ports.
pub fn discover_with_sinks(
    config: &Config,
    nodes: &[String],
    sinks: &[String],
    inventory: &mut Inventory,
    runner: &dyn Runner,
) -> Result<(Fabric, Vec<FabricError>), FabricError> {
    let mut seen = BTreeSet::new();
    let mut all: Vec<&str> = nodes.iter().map(String::as_str).filter(|node| seen.insert(*node)).collect();
    let sinks: Vec<&str> = sinks.iter().map(String::as_str).filter(|sink| seen.insert(*sink)).collect();
    all.extend(&sinks);
    let mut faults = NodeFaults { sinks: sinks.into_iter().collect(), faults: Vec::new() };
    let checked: BTreeSet<&str> = all.iter().take(config.fabric.check_nodes).copied().collect();
    let (mut answers, mut cables) = query(config, &all, &checked, &faults, inventory, runner)?;
    let mut found = Vec::new();
    for node in all {
        match answers.remove(node) {
            Some(Ok(answer)) => found.push(answer),
            Some(Err(fault)) => faults.add(node, fault),
            // Another node has a fault.
            None => {}
        }
    }
    faults.require_nodes()?;
    let found = distinct(found, &mut faults);
    faults.require_nodes()?;
    let ports: Vec<&nodes::ActivePort> = found.iter().flat_map(|node| &node.ports).collect();
    cables.sweep_other_subnets(config, &ports, runner);
    let places = remote::parallel(&ports, config.ssh.parallel as usize, |port| {
        let known = cables.get(port);
        let wanted = port.is_infiniband() && (known.is_none() || checked.contains(port.node.as_str()));
        let trace = wanted.then(|| trace::leaf(config, port, &trace::targets(port, known, &ports), runner));
        attachment::resolve(port, known, trace, &cables)
    });
    let mut fabric = Fabric { left_out: nodes::left_out(&found), ..Fabric::default() };
    // If all ports are Ethernet, the faults of ibnetdiscover do not matter.
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
                    fabric.disagreements.push(format!("{port}: the leaf switch is unknown: {why}"));
                }
                None
            }
            Err(why) => {
                missing.push((*port, why));
                continue;
            }
        };
        fabric.ports.push(port.with_leaf(leaf));
    }
    attachment::require_leaf_per_node(&mut fabric, missing, &mut faults);
    faults.require_nodes()?;
    Ok((fabric, faults.faults.into_iter().map(|(_, fault)| fault).collect()))
}

/// Result of querying a node.
type NodeQueryResult = Result<nodes::NodeInventory, FabricError>;

/// Reads the cables of the fabric, and the ports of each node: from the inventory, if the fabric shows
/// the same ports, or else from the node.
fn query<'a>(
    config: &Config,
    nodes: &[&'a str],
    checked: &BTreeSet<&str>,
    faults: &NodeFaults<'_>,
    inventory: &mut Inventory,
    runner: &dyn Runner,
) -> Result<(BTreeMap<&'a str, NodeQueryResult>, Cables), FabricError> {
    let first = *nodes.first().ok_or(FabricError::NoNodes)?;
    // A sink must be reachable by ssh anyway.
    let is_sink = |node: &str| config.sinks.nodes.iter().any(|sink| sink == node);
    let (known, unknown): (Vec<&str>, Vec<&str>) =
        nodes.iter().partition(|node| inventory.has(node) && !checked.contains(*node) && !is_sink(node));
    let ask = |nodes: &[&'a str]| -> Vec<(&'a str, NodeQueryResult)> {
        remote::parallel(nodes, config.ssh.parallel as usize, |node| {
            (*node, nodes::query(config, node, faults.is_sink(node), runner))
        })
    };
    let read = || Cables::read(config, first, runner);
    let (answers, cables) = thread::scope(|scope| {
        let cables = thread::Builder::new().spawn_scoped(scope, read);
        let answers = ask(&unknown);
        // If no thread can be started, ibnetdiscover runs after the queries of the nodes.
        let joined = cables.map(|cables| cables.join().unwrap_or_else(|fault| panic::resume_unwind(fault)));
        (answers, joined.unwrap_or_else(|_| read()))
    });
    let (mut found, mut doubtful) = (BTreeMap::new(), Vec::new());
    for node in known {
        match inventory.recall(node, &cables) {
            Some(recalled) => _ = found.insert(node, Ok(recalled)),
            None => doubtful.push(node),
        }
    }
    let has_failed = answers.iter().any(|(node, answer)| answer.is_err() && !faults.is_sink(node));
    let asked_later = if has_failed { Vec::new() } else { ask(&doubtful) };
    for (node, answer) in answers.into_iter().chain(asked_later) {
        if let Ok(answer) = &answer {
            inventory.store(answer);
        }
        found.insert(node, answer);
    }
    Ok((found, cables))
}

/// Faults of nodes, which are errors, and of reserved sinks, which are skipped.
struct NodeFaults<'a> {
    /// The reserved sinks, without those that are nodes of the job.
    sinks: BTreeSet<&'a str>,
    /// One fault for each name.
    faults: Vec<(String, FabricError)>,
}

impl NodeFaults<'_> {
    fn is_sink(&self, node: &str) -> bool {
        self.sinks.contains(node)
    }

    fn add(&mut self, node: &str, fault: FabricError) {
        if self.faults.iter().all(|(other, _)| other != node) {
            self.faults.push((node.to_owned(), fault));
        }
    }

    /// An error if a node that is no sink has a fault: the first fault, with the names of the other nodes.
    fn require_nodes(&mut self) -> Result<(), FabricError> {
        let (of_sinks, of_nodes) =
            std::mem::take(&mut self.faults).into_iter().partition(|(node, _)| self.sinks.contains(node.as_str()));
        self.faults = of_sinks;
        several(of_nodes).map_or(Ok(()), Err)
    }
}

/// Combines the errors of several nodes into one.
fn several(errors: Vec<(String, FabricError)>) -> Option<FabricError> {
    let mut errors = errors.into_iter();
    let (_, first) = errors.next()?;
    let others: Vec<String> = errors.map(|(node, _)| node).collect();
    Some(if others.is_empty() { first } else { FabricError::Several { first: Box::new(first), others } })
}

/// The nodes that do not report a port of a node before them. For the others, adds a fault.
fn distinct(found: Vec<nodes::NodeInventory>, faults: &mut NodeFaults<'_>) -> Vec<nodes::NodeInventory> {
    let (mut owners, mut kept) = (BTreeMap::<u64, String>::new(), Vec::with_capacity(found.len()));
    for node in found {
        let mut own = BTreeSet::new();
        let shared = node.ports.iter().map(|port| port.state.port_guid).find_map(|port_guid| {
            let other = owners.get(&port_guid).or_else(|| (!own.insert(port_guid)).then_some(&node.name))?;
            Some(FabricError::SamePort { node: other.clone(), other: node.name.clone(), port_guid })
        });
        if let Some(fault) = shared {
            faults.add(&node.name, fault);
            continue;
        }
        owners.extend(own.into_iter().map(|port_guid| (port_guid, node.name.clone())));
        kept.push(node);
    }
    kept
}
