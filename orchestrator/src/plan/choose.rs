//! Which nodes compute, which become sinks, and which sink gets the copies of which ports.

use super::{PlanError, counted};
use crate::config::{Config, MirrorBackend};
use crate::fabric::{Fabric, NodePort};
use crate::guid;
use crate::job::Job;
use crate::mirror;
use crate::step::{MirrorStep, Step};
use std::collections::{BTreeMap, BTreeSet};

/// A sink and what is copied to it.
#[derive(Debug)]
pub(super) struct Group<'a> {
    /// The port that captures.
    pub(super) sink: &'a NodePort,
    /// The ports whose traffic it gets: its own where nothing is mirrored.
    pub(super) sources: Vec<&'a NodePort>,
    /// The switch's analyser, where the backend needs one.
    pub(super) analyser: Option<u8>,
}

/// What was chosen.
#[derive(Debug, Default)]
pub(super) struct Choice<'a> {
    /// Ports of the nodes that compute, in the job's order.
    pub(super) compute: Vec<&'a NodePort>,
    /// Sinks, by leaf.
    pub(super) groups: Vec<Group<'a>>,
    /// Nodes that do not compute.
    left: BTreeSet<&'a str>,
    /// Nodes that remain for MPI, in the job's order.
    pub(super) remaining: Vec<String>,
    /// What the user should know.
    pub(super) warnings: Vec<String>,
}

/// Chooses sinks for the job.
pub(super) fn choose<'a>(
    config: &Config,
    job: &Job,
    fabric: &'a Fabric,
    others: &[Step],
) -> Result<Choice<'a>, PlanError> {
    let order: BTreeMap<&str, usize> =
        job.nodes.iter().enumerate().map(|(index, node)| (node.as_str(), index)).collect();
    let mut ports: Vec<&NodePort> = fabric.ports.iter().filter(|port| order.contains_key(port.node.as_str())).collect();
    ports.sort_by(|a, b| (order[a.node.as_str()], &a.ca, a.port).cmp(&(order[b.node.as_str()], &b.ca, b.port)));
    if ports.is_empty() {
        return Err(PlanError::NoPorts(job.id));
    }
    let mut choice = match config.mirror.backend {
        MirrorBackend::None => on_every_node(&ports),
        MirrorBackend::Command | MirrorBackend::Mstreg => mirrored(config, job, fabric, &ports, others)?,
    };
    if choice.compute.is_empty() {
        return Err(PlanError::NoCompute(job.id));
    }
    let seen: BTreeSet<&str> = ports.iter().map(|port| port.node.as_str()).collect();
    for node in job.nodes.iter().filter(|node| !seen.contains(node.as_str())) {
        choice
            .warnings
            .push(format!("{node}: no active port was found; what it sends and receives is not captured there"));
    }
    let (left, remaining): (Vec<&String>, _) = job.nodes.iter().partition(|node| choice.left.contains(node.as_str()));
    choice.remaining = remaining.into_iter().cloned().collect();
    if !left.is_empty() {
        choice.warnings.push(format!(
            "kept out of the hostfile to capture: {}; start MPI on the hostfile's {}",
            left.iter().map(|node| node.as_str()).collect::<Vec<_>>().join(", "),
            counted(choice.remaining.len(), "node")
        ));
    }
    Ok(choice)
}

/// Every port captures what passes it.
fn on_every_node<'a>(ports: &[&'a NodePort]) -> Choice<'a> {
    let groups = ports.iter().map(|&sink| Group { sink, sources: vec![sink], analyser: None }).collect();
    Choice { compute: ports.to_vec(), groups, ..Choice::default() }
}

/// What other runs use of one leaf.
struct Taken<'a>(Vec<&'a MirrorStep>);

impl<'a> Taken<'a> {
    fn on(leaf_guid: u64, others: &'a [Step]) -> Self {
        let of_leaf = |step: &'a Step| match step {
            Step::Mirror(step) if step.leaf_guid == leaf_guid => Some(step),
            _ => None,
        };
        Self(others.iter().filter_map(of_leaf).collect())
    }

    /// Whether another run copies the port's packets, or copies packets to it.
    fn has(&self, port: &NodePort) -> bool {
        self.0.iter().any(|step| step.sink_port == port.leaf_port || step.ports.contains(&port.leaf_port))
    }

    /// Analysers that are free; `None` stands for a backend that needs none.
    fn free(&self, analysers: Option<u8>) -> Option<Vec<u8>> {
        let used: BTreeSet<u8> = self.0.iter().filter_map(|step| step.analyser).collect();
        analysers.map(|number| (0..number).filter(|analyser| !used.contains(analyser)).collect())
    }
}

/// One sink at least per leaf, where there can be one.
fn mirrored<'a>(
    config: &Config,
    job: &Job,
    fabric: &'a Fabric,
    ports: &[&'a NodePort],
    others: &[Step],
) -> Result<Choice<'a>, PlanError> {
    let is_kept = |port: &NodePort| config.sinks.nodes.contains(&port.node);
    let mut leaves: BTreeMap<u64, Vec<&NodePort>> = BTreeMap::new();
    for port in ports.iter().filter(|port| !is_kept(port)) {
        leaves.entry(port.leaf_guid).or_default().push(port);
    }
    if leaves.is_empty() {
        return Err(PlanError::NoCompute(job.id));
    }

    // Sinks of all leaves first, for a node of the job that becomes one stops computing on all its leaves.
    let mut left: BTreeSet<&str> = ports.iter().filter(|port| is_kept(port)).map(|port| port.node.as_str()).collect();
    let mut chosen: BTreeMap<u64, Vec<&NodePort>> = BTreeMap::new();
    let mut missing = Vec::new();
    for (&leaf, members) in &leaves {
        let taken = Taken::on(leaf, others);
        let most = config.sinks.per_leaf as usize;
        let most = taken.free(mirror::analysers(config)).map_or(most, |free| free.len().min(most));
        let mut kept: Vec<&NodePort> =
            fabric.ports.iter().filter(|port| is_kept(port) && port.leaf_guid == leaf).collect();
        kept.sort_by_key(|port| (config.sinks.nodes.iter().position(|node| *node == port.node), &port.ca, port.port));
        let mut sinks: Vec<&NodePort> = kept.iter().copied().filter(|port| !taken.has(port)).take(most).collect();
        if sinks.is_empty() && config.sinks.from_job {
            sinks = from_job(members, most, &leaves, &taken, &mut left);
        }
        if sinks.is_empty() {
            missing.push(reason(leaf, members, most, !kept.is_empty(), config));
        } else {
            chosen.insert(leaf, sinks);
        }
    }
    if config.sinks.required && !missing.is_empty() {
        return Err(PlanError::NoSink { job: job.id, reason: missing.swap_remove(0) });
    }
    if chosen.is_empty() {
        return Err(PlanError::NoSinks { job: job.id, reasons: missing });
    }

    let mut choice = deal(config, ports, &chosen, left.clone(), others);
    // More sinks than there are ports for them: those of the job compute again.
    let captures = |node: &str, choice: &Choice| choice.groups.iter().any(|group| group.sink.node == node);
    let idle: BTreeSet<&str> = left
        .iter()
        .copied()
        .filter(|node| !config.sinks.nodes.iter().any(|kept| kept == node) && !captures(node, &choice))
        .collect();
    if !idle.is_empty() {
        chosen.values_mut().for_each(|sinks| sinks.retain(|sink| !idle.contains(sink.node.as_str())));
        choice = deal(config, ports, &chosen, &left - &idle, others);
    }
    if choice.groups.is_empty() {
        return Err(PlanError::NoSinks { job: job.id, reasons: choice.warnings });
    }
    for reason in missing {
        choice.warnings.push(format!(
            "{reason}: its ports are not captured, and their traffic is seen only where the other end is"
        ));
    }
    Ok(choice)
}

/// Deals the ports of the nodes that compute to the sinks of their leaves.
fn deal<'a>(
    config: &Config,
    ports: &[&'a NodePort],
    chosen: &BTreeMap<u64, Vec<&'a NodePort>>,
    left: BTreeSet<&'a str>,
    others: &[Step],
) -> Choice<'a> {
    let compute = ports.iter().filter(|port| !left.contains(port.node.as_str())).copied().collect();
    let mut choice = Choice { compute, left, ..Choice::default() };
    for (leaf, sinks) in chosen {
        let taken = Taken::on(*leaf, others);
        let (busy, sources) = choice
            .compute
            .iter()
            .filter(|port| port.leaf_guid == *leaf)
            .partition::<Vec<&NodePort>, _>(|port| taken.has(port));
        for NodePort { node, leaf_port, .. } in busy {
            choice.warnings.push(format!(
                "{node}: port {leaf_port} of leaf {} belongs to another run, which has to end first; it is not captured for this one",
                guid::text(*leaf)
            ));
        }
        choice.groups.extend(shared(sinks, &sources, taken.free(mirror::analysers(config)).as_deref()));
    }
    choice
}

/// The last of the job's nodes on a leaf. Nodes that are sinks on another leaf already come first, and no leaf is left without a node
/// that computes.
fn from_job<'a>(
    members: &[&'a NodePort],
    most: usize,
    leaves: &BTreeMap<u64, Vec<&'a NodePort>>,
    taken: &Taken,
    left: &mut BTreeSet<&'a str>,
) -> Vec<&'a NodePort> {
    let mut sinks: Vec<&NodePort> =
        members.iter().copied().filter(|port| left.contains(port.node.as_str()) && !taken.has(port)).collect();
    sinks.truncate(most);
    while sinks.len() < most {
        let spare = |node: &str, left: &BTreeSet<&str>| {
            let others = |port: &&NodePort| port.node != node && !left.contains(port.node.as_str());
            leaves
                .values()
                .filter(|ports| ports.iter().any(|port| port.node == node))
                .all(|ports| ports.iter().any(others))
        };
        let nodes = members.iter().rev().filter(|port| !taken.has(port)).map(|port| port.node.as_str());
        let Some(last) = nodes.filter(|node| !left.contains(node)).find(|node| spare(node, left)) else { break };
        left.insert(last);
        let room = most - sinks.len();
        sinks.extend(members.iter().filter(|port| port.node == last && !taken.has(port)).take(room));
    }
    sinks
}

/// Why a leaf has no sink.
fn reason(leaf: u64, members: &[&NodePort], most: usize, has_kept: bool, config: &Config) -> String {
    let leaf = guid::text(leaf);
    if most == 0 {
        return format!(
            "leaf {leaf} has no sink, because other runs use all of its analysers (mirror.mstreg.analysers = {})",
            config.mirror.mstreg.analysers
        );
    }
    if has_kept {
        return format!("leaf {leaf} has no sink, because other runs use those of sinks.nodes that are on it");
    }
    if config.sinks.from_job {
        let node = members.first().map_or("", |port| &port.node);
        return format!("leaf {leaf} has no sink, because the job has only {node} there, which has to compute");
    }
    format!("leaf {leaf} has no sink, because none of sinks.nodes is on it")
}

/// Deals the ports to the sinks in turn. A sink that gets none is left out.
fn shared<'a>(sinks: &[&'a NodePort], sources: &[&'a NodePort], free: Option<&[u8]>) -> Vec<Group<'a>> {
    let group = |(index, &sink): (usize, &&'a NodePort)| Group {
        sink,
        sources: sources.iter().copied().skip(index).step_by(sinks.len()).collect(),
        analyser: free.and_then(|free| free.get(index).copied()),
    };
    sinks.iter().enumerate().map(group).filter(|group| !group.sources.is_empty()).collect()
}
