//! Finds the leaf of a port by tracing a route from it: `ibtracert`.

use super::cables::Cable;
use super::nodes::ActivePort;
use super::tool;
use crate::config::Config;
use crate::guid;
use crate::remote::Runner;
use ibscope_parsers::tools::NodeKind;
use ibscope_parsers::tools::ibtracert::{self, RouteEnd, SwitchPort};

/// LIDs to trace to, the best first. A trace to the port itself passes no switch, and a job of one
/// node has no other node. The subnet manager and the leaf are certain to be in the port's own
/// subnet.
pub(super) fn targets(port: &ActivePort, cable: Option<&Cable>, ports: &[&ActivePort]) -> Vec<u16> {
    let (first, last) = port.lids();
    let leaf = cable.and_then(|cable| cable.far).filter(|far| far.kind == NodeKind::Switch).map(|far| far.lid);
    // Last resort: another subnet can have a subnet manager with the same LID.
    let neighbor = ports.iter().find(|other| {
        let lid = other.state.base_lid;
        other.is_infiniband() && other.state.sm_lid == port.state.sm_lid && !(first..=last).contains(&lid)
    });
    let candidates = [Some(port.state.sm_lid), leaf, neighbor.map(|other| other.state.base_lid)];
    let mut targets: Vec<u16> = Vec::new();
    for lid in candidates.into_iter().flatten() {
        if lid != 0 && !(first..=last).contains(&lid) && !targets.contains(&lid) {
            targets.push(lid);
        }
    }
    targets
}

/// Traces from a port to the targets until one trace shows the leaf. The error is the reason of the
/// last failure.
pub(super) fn leaf(
    config: &Config,
    port: &ActivePort,
    targets: &[u16],
    runner: &dyn Runner,
) -> Result<SwitchPort, String> {
    let mut why = "there is no other known LID to which a route could be traced".to_owned();
    for target in targets {
        match run_ibtracert(config, port, *target, runner) {
            Ok(leaf) => return Ok(leaf),
            Err(reason) => why = reason,
        }
    }
    Err(why)
}

fn run_ibtracert(config: &Config, port: &ActivePort, target: u16, runner: &dyn Runner) -> Result<SwitchPort, String> {
    let [number, from, to] =
        [u16::from(port.state.number), port.state.base_lid, target].map(|number| number.to_string());
    let arguments = ["-C", &port.ca, "-P", &number, &from, &to];
    let output = tool::run(config, runner, Some(&port.node), &config.tools.ibtracert, &arguments)
        .map_err(|error| error.to_string())?;
    // A trace that fails has often shown the leaf before.
    let trace = ibtracert::parse(&tool::text(&output)).map_err(|error| error.to_string())?;
    if let Some(RouteEnd { node_guid, .. }) = trace.from
        && node_guid != port.node_guid
    {
        return Err(format!("LID {from} leads to node {}, not to this one", guid::text(node_guid)));
    }
    trace.leaf().ok_or_else(|| {
        if output.is_success() {
            format!("the route to LID {target} passes no switch")
        } else {
            tool::failure_reason(&output)
        }
    })
}
