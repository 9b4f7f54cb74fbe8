//! Mirror backends. Each one turns a request to mirror ports into the commands that switch
//! mirroring on and off, and into checks of the result.

mod command;
mod mstreg;

use crate::config::{Config, Directions, MirrorBackend, RunLocation, TemplateError};
use crate::fabric::NodePort;
use crate::step::{MirrorStep, StepCommand};

/// Ports of a leaf that are to be mirrored to a sink on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MirrorRequest<'a> {
    /// Ports of compute nodes, all on the sink's leaf.
    pub(crate) sources: &'a [&'a NodePort],
    /// Port of the sink.
    pub(crate) sink: &'a NodePort,
    /// Job id.
    pub(crate) job: u32,
    /// A free port analyzer of the switch, if the backend needs one.
    pub(crate) analyzer: Option<u8>,
}

/// The step that mirrors the ports; `None` if nothing is mirrored.
pub(crate) fn step(config: &Config, request: &MirrorRequest) -> Result<Option<MirrorStep>, TemplateError> {
    match config.mirror.backend {
        MirrorBackend::None => Ok(None),
        MirrorBackend::Command => command::step(config, request).map(Some),
        MirrorBackend::Mstreg => Ok(Some(mstreg::step(config, request))),
    }
}

/// Number of mirror copies of a packet that passes a port in both directions: one per mirrored
/// direction.
pub(crate) fn copies_per_packet(config: &Config) -> u8 {
    let one_way = config.mirror.backend == MirrorBackend::Mstreg && config.mirror.mstreg.directions != Directions::Both;
    if one_way { 1 } else { 2 }
}

/// Warning if no command verifies that ports are mirrored, and that they no longer are.
pub(crate) fn unverified_warning(config: &Config) -> Option<String> {
    let remedy = match config.mirror.backend {
        MirrorBackend::None => return None,
        MirrorBackend::Mstreg if config.mirror.mstreg.read_back => return None,
        MirrorBackend::Mstreg => "set mirror.mstreg.read_back = true",
        MirrorBackend::Command => {
            let command = config.mirror.command.as_ref();
            match command.map(|command| (command.check_on.is_some(), command.check_off.is_some())) {
                None | Some((true, true)) => return None,
                Some((true, false)) => "set check_off in [mirror.command]",
                Some((false, true)) => "set check_on in [mirror.command]",
                Some((false, false)) => "set check, check_on and check_off in [mirror.command]",
            }
        }
    };
    Some(format!(
        "MIRRORING IS NOT VERIFIED: only the exit status of the commands counts, so a port that is not mirrored, or that stays mirrored after the job, is \
         not noticed; {remedy}"
    ))
}

/// Number of port analyzers of a switch; `None` if the backend does not choose them.
pub(crate) fn analyzers(config: &Config) -> Option<u8> {
    (config.mirror.backend == MirrorBackend::Mstreg).then_some(config.mirror.mstreg.analyzers)
}

/// A mirror step without commands.
fn step_without_commands(request: &MirrorRequest) -> MirrorStep {
    MirrorStep {
        leaf_guid: request.sink.leaf_guid,
        leaf_lid: request.sink.leaf_lid,
        ports: request.sources.iter().map(|source| source.leaf_port).collect(),
        sink: request.sink.node.clone(),
        sink_port: request.sink.leaf_port,
        analyzer: request.analyzer,
        on: Vec::new(),
        off: Vec::new(),
        check: Vec::new(),
        check_off: Vec::new(),
    }
}

/// A command of the step, on the node that `mirror.run_on` names.
fn command_on_node(config: &Config, request: &MirrorRequest, argv: Vec<String>) -> StepCommand {
    let node = match &config.mirror.run_on {
        RunLocation::Sink => Some(request.sink.node.clone()),
        RunLocation::Node(node) => Some(node.clone()),
        RunLocation::Here | RunLocation::First => None,
    };
    StepCommand { node, argv, timeout_s: config.mirror.timeout_s }
}
