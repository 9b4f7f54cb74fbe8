//! Sections on which nodes receive copies of packets, and how ports are mirrored.

use super::template::{Template, Text};
use super::{Place, value};
use serde::Deserialize;
use std::path::PathBuf;

/// Which nodes receive the copies of packets.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sinks {
    /// Nodes kept for this; the leaf of each is discovered.
    #[serde(deserialize_with = "value::node_list")]
    pub nodes: Vec<String>,
    /// Where a leaf has none of these, the job's last node on it becomes one and leaves the hostfile.
    pub from_job: bool,
    /// Sinks that a job takes on one leaf, where there are so many; its ports are shared among them.
    #[serde(deserialize_with = "value::at_least_one")]
    pub per_leaf: u32,
    /// A leaf without a sink ends the start; else its ports are not captured, and it is said.
    pub required: bool,
    /// Folder for the hostfile of the nodes that remain, `ibscope-JOB.hosts`; best one that the compute nodes see too.
    #[serde(deserialize_with = "value::some_path")]
    pub hostfile_directory: Option<PathBuf>,
}

impl Default for Sinks {
    fn default() -> Self {
        Self { nodes: Vec::new(), from_job: false, per_leaf: 1, required: false, hostfile_directory: None }
    }
}

/// What switches mirroring on and off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MirrorBackend {
    /// Nothing does: every compute node captures at its own HCA.
    None,
    /// A command of the site's.
    Command,
    /// Registers of the switch, written by mstreg.
    Mstreg,
}

/// How ports are mirrored.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mirror {
    /// By what.
    pub backend: MirrorBackend,
    /// Where its commands run: `here`, `sink` (the sink that the copies go to) or the name of a node.
    #[serde(default)]
    pub run_on: Place,
    /// A command that takes longer has failed, in seconds.
    #[serde(default = "default::mirror_timeout_s", deserialize_with = "value::seconds")]
    pub timeout_s: u32,
    /// For `backend = "command"`.
    #[serde(default)]
    pub command: Option<MirrorCommand>,
    /// For `backend = "mstreg"`.
    #[serde(default)]
    pub mstreg: Mstreg,
}

/// The site's command. Each is run once per port.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MirrorCommand {
    /// Mirrors one port to the sink's.
    pub on: Template,
    /// Ends it; must be right also where the port is not mirrored.
    pub off: Template,
    /// Shows whether a port is mirrored, for `check_on` and `check_off`.
    #[serde(default)]
    pub check: Option<Template>,
    /// What a line of its output holds when the port is mirrored to the sink.
    #[serde(default)]
    pub check_on: Option<Text>,
    /// What a line of its output holds when it is not mirrored.
    #[serde(default)]
    pub check_off: Option<Text>,
}

/// Registers MPAT and MPAR of the switch.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mstreg {
    /// Port analysers that the switch has: at most so many sinks per leaf, over all jobs.
    #[serde(deserialize_with = "value::analysers")]
    pub analysers: u8,
    /// HCA that the switch is reached by, where there are several; the first one without it.
    #[serde(deserialize_with = "value::some_device")]
    pub adapter: Option<String>,
    /// Which way packets pass the leaf's port when they are copied.
    pub directions: Directions,
    /// Virtual lane that copies are queued on; the switch's choice without it.
    #[serde(deserialize_with = "value::some_vl")]
    pub vl: Option<u8>,
    /// Copies wait instead of being dropped when the sink's port is busy. This can slow the job down.
    pub lossless: bool,
    /// Whether registers are read back.
    pub read_back: bool,
}

impl Default for Mstreg {
    fn default() -> Self {
        Self { analysers: 8, adapter: None, directions: Directions::Both, vl: None, lossless: false, read_back: true }
    }
}

/// Which way packets pass a port, seen from the switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Directions {
    /// Both ways.
    #[default]
    Both,
    /// Into the switch: what the node sends.
    Ingress,
    /// Out of the switch: what the node receives.
    Egress,
}

/// What stands where a key is not given.
mod default {
    pub(super) fn mirror_timeout_s() -> u32 {
        5
    }
}
