//! Chooses which nodes compute and which become sinks, and assigns ports to sinks.
//!
//! All ports that a sink receives are on its own leaf. Sinks, ports and analyzers of other runs are
//! not used.

use super::PlanError;
use crate::config::{Config, MirrorBackend};
use crate::fabric::{Fabric, NodePort};
use crate::guid;
use crate::job::SlurmJob;
use crate::mirror;
use crate::step::{MirrorStep, PlanStep};
use crate::text::plural;
use std::collections::{BTreeMap, BTreeSet};

/// A sink and the ports that are mirrored to it.
#[derive(Debug)]
pub(super) struct SinkGroup<'a> {
    /// Port that captures.
    pub(super) sink: &'a NodePort,
    /// Ports whose traffic the sink captures; its own port if nothing is mirrored.
    pub(super) sources: Vec<&'a NodePort>,
    /// Port analyzer of the switch, if the backend needs one.
    pub(super) analyzer: Option<u8>,
}

/// Chosen nodes and sinks.
#[derive(Debug, Default)]
pub(super) struct SinkChoice<'a> {
    /// Ports of the nodes that compute, in the job's order.
    pub(super) compute: Vec<&'a NodePort>,
    /// Sinks with their ports, by leaf.
    pub(super) groups: Vec<SinkGroup<'a>>,
    /// Nodes of the job that are sinks.
    non_compute_nodes: BTreeSet<&'a str>,
    /// Nodes that remain for MPI, in the job's order.
    pub(super) remaining: Vec<String>,
    /// Warnings for the user.
    pub(super) warnings: Vec<String>,
}

/// Chooses sinks for the job.
pub(super) fn choose<'a>(
    config: &Config,
    job: &SlurmJob,
    fabric: &'a Fabric,
    others: &[PlanStep],
) -> Result<SinkChoice<'a>, PlanError> {
    let order: BTreeMap<&str, usize> =
        job.nodes.iter().enumerate().map(|(index, node)| (node.as_str(), index)).collect();
    let mut ports: Vec<&NodePort> = fabric.ports.iter().filter(|port| order.contains_key(port.node.as_str())).collect();
    ports.sort_by(|a, b| (order[a.node.as_str()], &a.ca, a.port).cmp(&(order[b.node.as_str()], &b.ca, b.port)));
    if ports.is_empty() {
        return Err(PlanError::NoPorts(job.id));
    }
    let mut choice = match config.mirror.backend {
        MirrorBackend::None => capture_on_every_node(&ports),
        MirrorBackend::Command | MirrorBackend::Mstreg => choose_mirrored(config, job, fabric, &ports, others)?,
    };
    if choice.compute.is_empty() {
        return Err(PlanError::NoCompute(job.id));
    }
    let seen: BTreeSet<&str> = ports.iter().map(|port| port.node.as_str()).collect();
    for node in job.nodes.iter().filter(|node| !seen.contains(node.as_str())) {
        choice.warnings.push(format!("{node}: no active port was found; its traffic is not captured there"));
    }
    let (left, remaining): (Vec<&String>, _) =
        job.nodes.iter().partition(|node| choice.non_compute_nodes.contains(node.as_str()));
    choice.remaining = remaining.into_iter().cloned().collect();
    if !left.is_empty() {
        choice.warnings.push(format!(
            "not in the hostfile, because they are sinks: {}; start MPI on the {} of the hostfile",
            left.iter().map(|node| node.as_str()).collect::<Vec<_>>().join(", "),
            plural(choice.remaining.len(), "node")
        ));
    }
    Ok(choice)
}

/// Every port captures its own traffic.
fn capture_on_every_node<'a>(ports: &[&'a NodePort]) -> SinkChoice<'a> {
    let groups = ports.iter().map(|&sink| SinkGroup { sink, sources: vec![sink], analyzer: None }).collect();
    SinkChoice { compute: ports.to_vec(), groups, ..SinkChoice::default() }
}

/// Mirror steps of other runs on one leaf.
struct LeafUsage<'a>(Vec<&'a MirrorStep>);

impl<'a> LeafUsage<'a> {
    fn on(leaf_guid: u64, others: &'a [PlanStep]) -> Self {
        let of_leaf = |step: &'a PlanStep| match step {
            PlanStep::Mirror(step) if step.leaf_guid == leaf_guid => Some(step),
            _ => None,
        };
        Self(others.iter().filter_map(of_leaf).collect())
    }

    /// True if another run mirrors the port, or mirrors packets to it.
    fn uses_port(&self, port: &NodePort) -> bool {
        self.0.iter().any(|step| step.sink_port == port.leaf_port || step.ports.contains(&port.leaf_port))
    }

    /// Free analyzers; `None` for a backend that needs none.
    fn free_analyzers(&self, analyzers: Option<u8>) -> Option<Vec<u8>> {
        let used: BTreeSet<u8> = self.0.iter().filter_map(|step| step.analyzer).collect();
        analyzers.map(|number| (0..number).filter(|analyzer| !used.contains(analyzer)).collect())
    }
}

/// Chooses at least one sink per leaf where possible.
fn choose_mirrored<'a>(
    config: &Config,
    job: &SlurmJob,
    fabric: &'a Fabric,
    ports: &[&'a NodePort],
    others: &[PlanStep],
) -> Result<SinkChoice<'a>, PlanError> {
    let is_reserved = |port: &NodePort| config.sinks.nodes.contains(&port.node);
    let mut leaves: BTreeMap<u64, Vec<&NodePort>> = BTreeMap::new();
    for port in ports.iter().filter(|port| !is_reserved(port)) {
        leaves.entry(port.leaf_guid).or_default().push(port);
    }
    if leaves.is_empty() {
        return Err(PlanError::NoCompute(job.id));
    }

    // Choose the sinks of all leaves first: a node of the job that becomes a sink stops computing
    // on all of its leaves.
    let mut left: BTreeSet<&str> =
        ports.iter().filter(|port| is_reserved(port)).map(|port| port.node.as_str()).collect();
    let mut chosen: BTreeMap<u64, Vec<&NodePort>> = BTreeMap::new();
    let mut missing = Vec::new();
    for (&leaf, members) in &leaves {
        let taken = LeafUsage::on(leaf, others);
        let most = config.sinks.per_leaf as usize;
        let most = taken.free_analyzers(mirror::analyzers(config)).map_or(most, |free| free.len().min(most));
        let mut reserved: Vec<&NodePort> =
            fabric.ports.iter().filter(|port| is_reserved(port) && port.leaf_guid == leaf).collect();
        reserved
            .sort_by_key(|port| (config.sinks.nodes.iter().position(|node| *node == port.node), &port.ca, port.port));
        let mut sinks: Vec<&NodePort> =
            reserved.iter().copied().filter(|port| !taken.uses_port(port)).take(most).collect();
        if sinks.is_empty() && config.sinks.from_job {
            sinks = sinks_from_job(members, most, &leaves, &taken, &mut left);
        }
        if sinks.is_empty() {
            missing.push(no_sink_reason(leaf, members, most, !reserved.is_empty(), config));
        } else {
            chosen.insert(leaf, sinks);
        }
    }
    if config.sinks.required && !missing.is_empty() {
        return Err(PlanError::NoSink { job: job.id, reason: missing.swap_remove(0) });
    }
    if chosen.is_empty() {
        return Err(PlanError::NoSinks { job: job.id, from_job: config.sinks.from_job, reasons: missing });
    }

    let mut choice = assign_sources(config, ports, &chosen, left.clone(), others);
    // If there are more sinks than ports, the surplus nodes of the job compute again.
    let captures = |node: &str, choice: &SinkChoice| choice.groups.iter().any(|group| group.sink.node == node);
    let idle: BTreeSet<&str> = left
        .iter()
        .copied()
        .filter(|node| !config.sinks.nodes.iter().any(|reserved| reserved == node) && !captures(node, &choice))
        .collect();
    if !idle.is_empty() {
        chosen.values_mut().for_each(|sinks| sinks.retain(|sink| !idle.contains(sink.node.as_str())));
        choice = assign_sources(config, ports, &chosen, &left - &idle, others);
    }
    if choice.groups.is_empty() {
        return Err(PlanError::NoSinks { job: job.id, from_job: config.sinks.from_job, reasons: choice.warnings });
    }
    for reason in missing {
        choice
            .warnings
            .push(format!("{reason}: its ports are not mirrored; their traffic is captured only at the other end"));
    }
    Ok(choice)
}

/// Assigns the ports of the nodes that compute to the sinks of their leaves.
fn assign_sources<'a>(
    config: &Config,
    ports: &[&'a NodePort],
    chosen: &BTreeMap<u64, Vec<&'a NodePort>>,
    left: BTreeSet<&'a str>,
    others: &[PlanStep],
) -> SinkChoice<'a> {
    let compute = ports.iter().filter(|port| !left.contains(port.node.as_str())).copied().collect();
    let mut choice = SinkChoice { compute, non_compute_nodes: left, ..SinkChoice::default() };
    for (leaf, sinks) in chosen {
        let taken = LeafUsage::on(*leaf, others);
        let (busy, sources) = choice
            .compute
            .iter()
            .filter(|port| port.leaf_guid == *leaf)
            .partition::<Vec<&NodePort>, _>(|port| taken.uses_port(port));
        for NodePort { node, leaf_port, .. } in busy {
            choice.warnings.push(format!(
                "{node}: port {leaf_port} of leaf {} is in use by another run until that run ends; it is not captured for this job",
                guid::text(*leaf)
            ));
        }
        choice.groups.extend(share_sources(
            sinks,
            &sources,
            taken.free_analyzers(mirror::analyzers(config)).as_deref(),
        ));
    }
    choice
}

/// The job's last nodes on a leaf. Nodes that are sinks on another leaf already come first, and
/// every leaf keeps at least one node that computes.
fn sinks_from_job<'a>(
    members: &[&'a NodePort],
    most: usize,
    leaves: &BTreeMap<u64, Vec<&'a NodePort>>,
    taken: &LeafUsage,
    left: &mut BTreeSet<&'a str>,
) -> Vec<&'a NodePort> {
    let mut sinks: Vec<&NodePort> =
        members.iter().copied().filter(|port| left.contains(port.node.as_str()) && !taken.uses_port(port)).collect();
    sinks.truncate(most);
    while sinks.len() < most {
        let may_be_sink = |node: &str, left: &BTreeSet<&str>| {
            let others = |port: &&NodePort| port.node != node && !left.contains(port.node.as_str());
            leaves
                .values()
                .filter(|ports| ports.iter().any(|port| port.node == node))
                .all(|ports| ports.iter().any(others))
        };
        let nodes = members.iter().rev().filter(|port| !taken.uses_port(port)).map(|port| port.node.as_str());
        let Some(last) = nodes.filter(|node| !left.contains(node)).find(|node| may_be_sink(node, left)) else { break };
        left.insert(last);
        let room = most - sinks.len();
        sinks.extend(members.iter().filter(|port| port.node == last && !taken.uses_port(port)).take(room));
    }
    sinks
}

/// Reason why a leaf has no sink.
fn no_sink_reason(leaf: u64, members: &[&NodePort], most: usize, has_reserved: bool, config: &Config) -> String {
    let leaf = guid::text(leaf);
    if most == 0 {
        return format!(
            "leaf {leaf} has no sink, because other runs use all of its analyzers (mirror.mstreg.analyzers = {})",
            config.mirror.mstreg.analyzers
        );
    }
    if has_reserved {
        return format!("leaf {leaf} has no sink, because other runs use all nodes of sinks.nodes on it");
    }
    if config.sinks.from_job {
        let node = members.first().map_or("", |port| &port.node);
        return format!("leaf {leaf} has no sink, because the job's only node there, {node}, must compute");
    }
    format!("leaf {leaf} has no sink, because none of sinks.nodes is on it")
}

/// Assigns the ports to the sinks round-robin. A sink without a port is dropped.
fn share_sources<'a>(sinks: &[&'a NodePort], sources: &[&'a NodePort], free: Option<&[u8]>) -> Vec<SinkGroup<'a>> {
    let group = |(index, &sink): (usize, &&'a NodePort)| SinkGroup {
        sink,
        sources: sources.iter().copied().skip(index).step_by(sinks.len()).collect(),
        analyzer: free.and_then(|free| free.get(index).copied()),
    };
    sinks.iter().enumerate().map(group).filter(|group| !group.sources.is_empty()).collect()
}
