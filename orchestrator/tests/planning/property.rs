//! Properties of every plan, for any fabric, job and configuration.

use crate::lab;
use ibscope_orchestrator::fabric::{Fabric, NodePort};
use ibscope_orchestrator::job::SlurmJob;
use ibscope_orchestrator::manifest::Manifest;
use ibscope_orchestrator::plan::{self, CapturePlan, PlanContext};
use ibscope_orchestrator::step::{MirrorStep, PlanStep};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// A fabric of up to 12 nodes with one or two ports each, on up to 4 leaves, in any order. Some of
/// the nodes are reserved as sinks.
fn fabrics() -> impl Strategy<Value = (Fabric, Vec<String>, Vec<String>)> {
    let node = (prop::collection::vec(0_u64..4, 1..3), 0_u8..4, any::<bool>());
    prop::collection::vec(node, 1..12).prop_flat_map(|nodes| {
        let mut fabric = Fabric::default();
        let (mut job, mut reserved) = (Vec::new(), Vec::new());
        let mut used: BTreeMap<u64, u8> = BTreeMap::new();
        for (index, (leaves, role, _)) in nodes.iter().enumerate() {
            let node = format!("m{index}");
            for (number, leaf) in leaves.iter().enumerate() {
                let leaf_port = used.entry(*leaf).or_default();
                *leaf_port += 1;
                let lid = (index * 2 + number + 100) as u16;
                fabric.ports.push(NodePort {
                    node: node.clone(),
                    ca: format!("mlx5_{number}"),
                    port: 1,
                    port_guid: u64::from(lid),
                    lid,
                    lmc: 0,
                    rate_gbits: 100.0,
                    leaf_guid: 0x1000 + leaf,
                    leaf_lid: 1 + *leaf as u16,
                    leaf_port: *leaf_port,
                });
            }
            if *role != 1 {
                job.push(node.clone());
            }
            if *role <= 1 {
                reserved.push(node);
            }
        }
        let ports = fabric.ports.clone();
        (Just(fabric).boxed(), Just(job), Just(reserved), Just(ports).prop_shuffle())
            .prop_map(|(fabric, job, reserved, ports)| (Fabric { ports, ..fabric }, job, reserved))
    })
}

fn plan_of(
    fabric: &Fabric,
    job: &[String],
    reserved: &[String],
    from_job: bool,
    per_leaf: u32,
    mstreg: bool,
    others: &[PlanStep],
) -> Option<CapturePlan> {
    if job.is_empty() || (reserved.is_empty() && !from_job) {
        return None;
    }
    let nodes: Vec<String> = reserved.iter().map(|node| format!("\"{node}\"")).collect();
    let sinks = format!(
        "nodes = [{}]\nfrom_job = {from_job}\nper_leaf = {per_leaf}\nhostfile_directory = \"/h\"",
        nodes.join(",")
    );
    let config = if mstreg { lab::by_mstreg(&sinks) } else { lab::by_command(&sinks) };
    let job = SlurmJob { id: 5, nodes: job.to_vec(), ..SlurmJob::default() };
    let situation = PlanContext { started_s: lab::STARTED_S, others: others.to_vec() };
    plan::plan(&config, &job, fabric, &situation).ok()
}

fn mirrors(plan: &CapturePlan) -> impl Iterator<Item = &MirrorStep> {
    plan.steps.iter().filter_map(|step| if let PlanStep::Mirror(step) = step { Some(step) } else { None })
}

proptest! {
    #[test]
    fn plans_are_consistent(
        (fabric, job, reserved) in fabrics(),
        from_job in any::<bool>(),
        per_leaf in 1_u32..4,
        mstreg in any::<bool>(),
    ) {
        let Some(plan) = plan_of(&fabric, &job, &reserved, from_job, per_leaf, mstreg, &[]) else { return Ok(()) };
        let sinks: BTreeSet<&str> = plan.sinks.iter().map(|sink| sink.node.as_str()).collect();
        prop_assert!(!plan.hostfile.is_empty() && !plan.sinks.is_empty());
        prop_assert!(plan.hostfile.iter().all(|node| job.contains(node) && !reserved.contains(node) && !sinks.contains(node.as_str())));
        // A node that is not in the hostfile is reserved as a sink, or captures.
        for node in job.iter().filter(|node| !plan.hostfile.contains(node)) {
            prop_assert!(reserved.contains(node) || sinks.contains(node.as_str()), "{} is idle", node);
        }
        // Every port of a node that computes is mirrored exactly once if its leaf has a sink, to a
        // sink on that leaf; no other port is mirrored.
        let mut mirrored: BTreeMap<(u64, u8), usize> = BTreeMap::new();
        let mut analyzers = BTreeSet::new();
        for (step, sink) in mirrors(&plan).zip(&plan.sinks) {
            prop_assert_eq!((step.leaf_guid, &step.ports, step.sink_port), (sink.port.leaf_guid, &sink.sources, sink.port.leaf_port));
            prop_assert!(step.analyzer.is_none_or(|analyzer| analyzers.insert((step.leaf_guid, analyzer))));
            prop_assert_eq!(step.analyzer.is_some(), mstreg);
            for port in &step.ports {
                *mirrored.entry((step.leaf_guid, *port)).or_default() += 1;
            }
        }
        prop_assert_eq!(mirrors(&plan).count(), plan.sinks.len());
        let leaves: BTreeSet<u64> = plan.sinks.iter().map(|sink| sink.leaf_guid).collect();
        let expected: BTreeMap<(u64, u8), usize> = fabric.ports.iter()
            .filter(|port| plan.hostfile.contains(&port.node) && leaves.contains(&port.leaf_guid))
            .map(|port| ((port.leaf_guid, port.leaf_port), 1))
            .collect();
        prop_assert_eq!(mirrored, expected);
        // No two captures share a file.
        let files: BTreeSet<_> = plan.sinks.iter().map(|sink| &sink.file).collect();
        prop_assert_eq!(files.len(), plan.sinks.len());
        // The order of the ports in the fabric changes nothing.
        let mut sorted = fabric.clone();
        sorted.ports.sort_by_key(|port| port.lid);
        prop_assert_eq!(plan_of(&sorted, &job, &reserved, from_job, per_leaf, mstreg, &[]), Some(plan.clone()));
        // A plan for a second run uses no resources of the first run.
        if let Some(second) = plan_of(&fabric, &job, &reserved, from_job, per_leaf, mstreg, &plan.steps) {
            let uses = |plan: &CapturePlan| -> BTreeSet<(u64, u8)> {
                mirrors(plan).flat_map(|step| step.ports.iter().chain([&step.sink_port]).map(|port| (step.leaf_guid, *port))).collect()
            };
            prop_assert!(uses(&plan).is_disjoint(&uses(&second)));
        }
        let manifest = Manifest::from_plan(&plan);
        prop_assert_eq!(manifest.captures.iter().map(|capture| capture.port_guids.len()).sum::<usize>(), expected_ports(&plan));
    }
}

fn expected_ports(plan: &CapturePlan) -> usize {
    plan.sinks.iter().map(|sink| sink.sources.len()).sum()
}
