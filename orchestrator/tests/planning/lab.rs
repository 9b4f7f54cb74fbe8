//! The fabric of the simulator: 15 nodes n001 to n015 on three leaves, five on each, in order on
//! ports 1 to 5.

use ibscope_orchestrator::config::Config;
use ibscope_orchestrator::fabric::{Fabric, NodePort};
use ibscope_orchestrator::job::SlurmJob;
use ibscope_orchestrator::plan::{self, CapturePlan, PlanContext, PlanError};
use std::path::Path;

/// GUIDs and LIDs of the leaves.
pub(crate) const LEAVES: [(u64, u16); 3] =
    [(0xb859_9f03_0000_1000, 2), (0xb859_9f03_0000_1001, 4), (0xb859_9f03_0000_1002, 6)];

/// LIDs of the nodes, as opensm assigned them.
const LIDS: [u16; 15] = [1, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20];

/// Start of the runs: 2026-11-21 20:00:22 UTC.
pub(crate) const STARTED_S: u64 = 1_795_291_222;

/// The port of the n-th node, from 1.
pub(crate) fn port(number: usize) -> NodePort {
    let (leaf_guid, leaf_lid) = LEAVES[(number - 1) / 5];
    NodePort {
        node: format!("n{number:03}"),
        ca: "mlx5_0".to_owned(),
        port: 1,
        port_guid: 0x1070_fd03_0000_0001 + 0x10 * number as u64,
        lid: LIDS[number - 1],
        lmc: 0,
        rate_gbits: 200.0,
        leaf_guid,
        leaf_lid,
        leaf_port: ((number - 1) % 5 + 1) as u8,
    }
}

/// The whole fabric.
pub(crate) fn fabric() -> Fabric {
    Fabric { ports: (1..=15).map(port).collect(), ..Fabric::default() }
}

/// A configuration with these sections for sinks, mirror and capture.
pub(crate) fn config(sections: &str) -> Config {
    let text = format!(
        "[ssh]\nkey = \"/k\"\nknown_hosts = \"/h\"\n[collect]\ndirectory = \"/runs\"\n{sections}\n{}",
        if sections.contains("[capture]") { "" } else { "[capture]\nbackend = \"ibdump\"\ndirectory = \"/cap\"" }
    );
    Config::parse(&text, Path::new("capture.toml")).expect("a configuration")
}

/// The backend `command`, with these keys of `[sinks]`.
pub(crate) fn by_command(sinks: &str) -> Config {
    config(&format!(
        "[sinks]\n{sinks}\n[mirror]\nbackend = \"command\"\n[mirror.command]\n\
         on = [\"/m\", \"on\", \"{{leaf_lid}}\", \"{{port}}\", \"{{sink_port}}\"]\noff = [\"/m\", \"off\", \"{{leaf_lid}}\", \"{{port}}\"]"
    ))
}

/// The backend `mstreg`, with these keys of `[sinks]`.
pub(crate) fn by_mstreg(sinks: &str) -> Config {
    config(&format!("[sinks]\n{sinks}\n[mirror]\nbackend = \"mstreg\""))
}

/// A plan without other runs.
pub(crate) fn planned(config: &Config, nodes: &str) -> Result<CapturePlan, PlanError> {
    beside(config, 17, nodes, &[])
}

/// A plan while other runs are not undone.
pub(crate) fn beside(config: &Config, id: u32, nodes: &str, others: &[&CapturePlan]) -> Result<CapturePlan, PlanError> {
    let others = others.iter().flat_map(|plan| plan.steps.clone()).collect();
    let situation = PlanContext { started_s: STARTED_S, others };
    plan::plan(config, &SlurmJob::from_nodelist(id, nodes).expect("a job"), &fabric(), &situation)
}
