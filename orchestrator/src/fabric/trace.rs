//! What a packet sees on its way from a port: `ibtracert`.

use super::cables::Cable;
use super::nodes::Port;
use super::tool;
use crate::config::Config;
use crate::guid;
use crate::remote::Runner;
use ibscope_parsers::tools::NodeKind;
use ibscope_parsers::tools::ibtracert::{self, End, SwitchPort};

/// LIDs to trace to, the best first. A trace to oneself passes no switch, and a one-node job has nobody else: the subnet manager is in the
/// port's own subnet for certain, and so is the leaf.
pub(super) fn targets(port: &Port, cable: Option<&Cable>, ports: &[&Port]) -> Vec<u16> {
    let (first, last) = port.lids();
    let leaf = cable.and_then(|cable| cable.far).filter(|far| far.kind == NodeKind::Switch).map(|far| far.lid);
    // The same subnet manager may have the same LID in another subnet: the last resort.
    let neighbour = ports.iter().find(|other| {
        let lid = other.state.base_lid;
        other.is_infiniband() && other.state.sm_lid == port.state.sm_lid && !(first..=last).contains(&lid)
    });
    let candidates = [Some(port.state.sm_lid), leaf, neighbour.map(|other| other.state.base_lid)];
    let mut targets: Vec<u16> = Vec::new();
    for lid in candidates.into_iter().flatten() {
        if lid != 0 && !(first..=last).contains(&lid) && !targets.contains(&lid) {
            targets.push(lid);
        }
    }
    targets
}

/// Traces from a port to one of the targets; the leaf, or why no trace told it.
pub(super) fn leaf(config: &Config, port: &Port, targets: &[u16], runner: &dyn Runner) -> Result<SwitchPort, String> {
    let mut why = "no other LID is known to trace to".to_owned();
    for target in targets {
        match one(config, port, *target, runner) {
            Ok(leaf) => return Ok(leaf),
            Err(reason) => why = reason,
        }
    }
    Err(why)
}

fn one(config: &Config, port: &Port, target: u16, runner: &dyn Runner) -> Result<SwitchPort, String> {
    let [number, from, to] =
        [u16::from(port.state.number), port.state.base_lid, target].map(|number| number.to_string());
    let arguments = ["-C", &port.ca, "-P", &number, &from, &to];
    let output = tool::run(config, runner, Some(&port.node), &config.tools.ibtracert, &arguments)
        .map_err(|error| error.to_string())?;
    // A trace that fails has often told the leaf before.
    let trace = ibtracert::parse(&tool::text(&output)).map_err(|error| error.to_string())?;
    if let Some(End { node_guid, .. }) = trace.from
        && node_guid != port.node_guid
    {
        return Err(format!("LID {from} leads to node {}, not to this one", guid::text(node_guid)));
    }
    trace.leaf().ok_or_else(|| {
        if output.is_success() { format!("the way to LID {target} passes no switch") } else { tool::said(&output) }
    })
}
