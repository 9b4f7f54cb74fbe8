//! The sections `[sinks]` and `[mirror]`: which nodes receive mirrored packets, and how ports are
//! mirrored.

use super::template::{CommandTemplate, TextTemplate};
use super::{RunLocation, value};
use serde::Deserialize;
use std::path::PathBuf;

/// Nodes that receive mirrored packets.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sinks {
    /// Nodes that are reserved as sinks. The leaf of each is discovered.
    #[serde(deserialize_with = "value::node_list")]
    pub nodes: Vec<String>,
    /// On a leaf without a reserved sink, use the job's last node there as sink and leave it out of
    /// the hostfile.
    pub from_job: bool,
    /// Maximum number of sinks that a job uses on one leaf. They share the leaf's ports.
    #[serde(deserialize_with = "value::at_least_one")]
    pub per_leaf: u32,
    /// If a leaf has no sink: true makes the start fail; false skips its ports, with a warning.
    pub required: bool,
    /// A job waits at most this many seconds for a sink that another run uses.
    pub wait_s: u32,
    /// Folder for the hostfile of the nodes that remain, `ibscope-JOB.hosts`; best on a file system
    /// that the compute nodes share.
    #[serde(deserialize_with = "value::some_path")]
    pub hostfile_directory: Option<PathBuf>,
}

impl Default for Sinks {
    fn default() -> Self {
        Self { nodes: Vec::new(), from_job: false, per_leaf: 1, required: false, wait_s: 5, hostfile_directory: None }
    }
}

/// Mirror backend: how mirroring is switched on and off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MirrorBackend {
    /// Nothing is mirrored: every compute node captures at its own HCA.
    None,
    /// A command of the site.
    Command,
    /// Registers of the switch, written by mstreg.
    Mstreg,
}

/// Mirroring of the ports.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MirrorConfig {
    /// Program that switches mirroring.
    pub backend: MirrorBackend,
    /// Machine on which the commands run: `here`, `sink` (the sink that receives the packets) or
    /// the name of a node.
    #[serde(default)]
    pub run_on: RunLocation,
    /// Time limit of a command, in seconds.
    #[serde(default = "default::mirror_timeout_s", deserialize_with = "value::seconds")]
    pub timeout_s: u32,
    /// Commands for `backend = "command"`.
    #[serde(default)]
    pub command: Option<MirrorCommand>,
    /// Options for `backend = "mstreg"`.
    #[serde(default)]
    pub mstreg: Mstreg,
}

/// Commands of the site. Each runs once per port, or once per leaf if it has `{ports}`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MirrorCommand {
    /// Mirrors the port, or the ports, to the sink's port.
    pub on: CommandTemplate,
    /// Stops mirroring; must succeed also for ports that are not mirrored.
    pub off: CommandTemplate,
    /// Shows whether the port, or each of the ports, is mirrored, for `check_on` and `check_off`.
    #[serde(default)]
    pub check: Option<CommandTemplate>,
    /// Text that a line of the check's output contains for each port that is mirrored to the sink.
    #[serde(default)]
    pub check_on: Option<TextTemplate>,
    /// Text that a line of the check's output contains for each port that is not mirrored.
    #[serde(default)]
    pub check_off: Option<TextTemplate>,
}

/// Options for the switch registers MPAT and MPAR.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mstreg {
    /// Port analyzers of the switch: the largest number of sinks per leaf, over all jobs.
    #[serde(deserialize_with = "value::analyzers")]
    pub analyzers: u8,
    /// HCA through which the switch is reached. Default: the first one.
    #[serde(deserialize_with = "value::some_device")]
    pub adapter: Option<String>,
    /// Direction of the packets to mirror.
    pub directions: Directions,
    /// Virtual lane of the mirrored packets. Default: the switch chooses.
    #[serde(deserialize_with = "value::some_vl")]
    pub vl: Option<u8>,
    /// Delay mirrored packets instead of dropping them when the sink's port is busy. This can slow
    /// the job down.
    pub lossless: bool,
    /// Read the registers back after writing them.
    pub read_back: bool,
}

impl Default for Mstreg {
    fn default() -> Self {
        Self { analyzers: 8, adapter: None, directions: Directions::Both, vl: None, lossless: false, read_back: true }
    }
}

/// Direction of packets at a port, as the switch sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Directions {
    /// Both directions.
    #[default]
    Both,
    /// Into the switch: packets that the node sends.
    Ingress,
    /// Out of the switch: packets that the node receives.
    Egress,
}

/// Default values of keys.
mod default {
    pub(super) fn mirror_timeout_s() -> u32 {
        5
    }
}
