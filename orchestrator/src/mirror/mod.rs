//! What switches mirroring on and off. Every backend says by which commands, and how to see whether they worked.

mod command;
mod mstreg;

use crate::config::{Config, Directions, MirrorBackend, Place, TemplateError};
use crate::fabric::NodePort;
use crate::step::{Command, MirrorStep};

/// Ports of a leaf that are to be copied to a sink on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    /// The ports of compute nodes, all on the sink's leaf.
    pub(crate) sources: &'a [&'a NodePort],
    /// The sink's.
    pub(crate) sink: &'a NodePort,
    /// The job's id.
    pub(crate) job: u32,
    /// The analyser that is free, where the backend needs one.
    pub(crate) analyser: Option<u8>,
}

/// The step that does it; `None` where nothing is mirrored.
pub(crate) fn step(config: &Config, asked: &Asked) -> Result<Option<MirrorStep>, TemplateError> {
    match config.mirror.backend {
        MirrorBackend::None => Ok(None),
        MirrorBackend::Command => command::step(config, asked).map(Some),
        MirrorBackend::Mstreg => Ok(Some(mstreg::step(config, asked))),
    }
}

/// How often a packet's way past a port is copied: each way once.
pub(crate) fn ways(config: &Config) -> u8 {
    let one_way = config.mirror.backend == MirrorBackend::Mstreg && config.mirror.mstreg.directions != Directions::Both;
    if one_way { 1 } else { 2 }
}

/// Port analysers of a switch that the backend can use; `None` where it does not choose them.
pub(crate) fn analysers(config: &Config) -> Option<u8> {
    (config.mirror.backend == MirrorBackend::Mstreg).then_some(config.mirror.mstreg.analysers)
}

/// A step without commands.
fn empty(asked: &Asked) -> MirrorStep {
    MirrorStep {
        leaf_guid: asked.sink.leaf_guid,
        leaf_lid: asked.sink.leaf_lid,
        ports: asked.sources.iter().map(|source| source.leaf_port).collect(),
        sink: asked.sink.node.clone(),
        sink_port: asked.sink.leaf_port,
        analyser: asked.analyser,
        on: Vec::new(),
        off: Vec::new(),
        check: Vec::new(),
        check_off: Vec::new(),
    }
}

/// The command, where the configuration has it run.
fn run(config: &Config, asked: &Asked, argv: Vec<String>) -> Command {
    let node = match &config.mirror.run_on {
        Place::Sink => Some(asked.sink.node.clone()),
        Place::Node(node) => Some(node.clone()),
        Place::Here | Place::First => None,
    };
    Command { node, argv, timeout_s: config.mirror.timeout_s }
}
