//! The configuration: one TOML file. Keys that are not known are refused, and an error names the line and what to write instead.

mod check;
mod read;
mod template;
mod value;

pub use template::{Template, TemplateError, Values};
pub use value::{Owner, Place};

use crate::capture::CaptureBackend;
use crate::job::Job;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: the configuration cannot be read: {source}; check the path and who may read it", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Something in it is wrong.
    #[error("{}: line {line}: {what}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The line, from 1 on.
        line: usize,
        /// What is wrong, and what to do about it.
        what: String,
    },
}

/// What stands between the words of a comment or a constraint.
const DIVIDERS: [char; 9] = [',', ';', '&', '|', '*', '(', ')', '[', ']'];

/// How captures are made at a site.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// How nodes are reached.
    pub ssh: Ssh,
    /// What is different for single nodes, by name.
    #[serde(default, deserialize_with = "value::nodes")]
    pub nodes: BTreeMap<String, Node>,
    /// Where programs are.
    #[serde(default)]
    pub tools: Tools,
    /// How the fabric is explored.
    #[serde(default)]
    pub fabric: FabricOptions,
    /// Where the copies of packets go.
    #[serde(default)]
    pub sinks: Sinks,
    /// How ports are mirrored.
    pub mirror: Mirror,
    /// How sinks capture.
    pub capture: Capture,
    /// What becomes of the captures.
    pub collect: Collect,
    /// How the hooks behave.
    #[serde(default)]
    pub run: Run,
    /// What is done with the captures afterwards.
    #[serde(default)]
    pub analyze: Analyze,
}

impl Config {
    /// Whether the job asks for a capture, as `run.select` has it.
    pub fn selects(&self, job: &Job) -> bool {
        let asks = |text: &Option<String>| {
            text.iter()
                .flat_map(|text| text.split(|c: char| c.is_whitespace() || DIVIDERS.contains(&c)))
                .any(|word| word == self.run.word)
        };
        match self.run.select {
            Select::All => true,
            Select::Comment => asks(&job.comment),
            Select::Constraint => asks(&job.constraints),
        }
    }
}

/// How nodes are reached.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ssh {
    /// Who logs in.
    #[serde(default = "default::user", deserialize_with = "value::user")]
    pub user: String,
    /// The private key.
    #[serde(deserialize_with = "value::path")]
    pub key: PathBuf,
    /// Port of the daemons.
    #[serde(default = "default::port", deserialize_with = "value::port")]
    pub port: u16,
    /// Host keys of the nodes; a node whose key is not in it is refused.
    #[serde(deserialize_with = "value::path")]
    pub known_hosts: PathBuf,
    /// A host to go through.
    #[serde(default)]
    pub jump_host: Option<JumpHost>,
    /// A connection that takes longer has failed, in seconds.
    #[serde(default = "default::connect_timeout_s", deserialize_with = "value::seconds")]
    pub connect_timeout_s: u32,
    /// Nodes that are worked on at a time.
    #[serde(default = "default::parallel", deserialize_with = "value::at_least_one")]
    pub parallel: u32,
}

/// A host to go through. The same key is used there.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JumpHost {
    /// Name or address.
    #[serde(deserialize_with = "value::host")]
    pub address: String,
    /// Port of its daemon.
    #[serde(default = "default::port", deserialize_with = "value::port")]
    pub port: u16,
    /// Who logs in, where it is somebody else than on the nodes.
    #[serde(default, deserialize_with = "value::some_user")]
    pub user: Option<String>,
}

/// What is different for one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Name or address that it is reached by, where its name does not do.
    #[serde(default, deserialize_with = "value::some_host")]
    pub address: Option<String>,
    /// Port of its ssh daemon.
    #[serde(default, deserialize_with = "value::some_port")]
    pub port: Option<u16>,
}

/// Programs, by absolute paths: on the nodes, and where the orchestrator runs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tools {
    /// ibstat, on the nodes.
    #[serde(deserialize_with = "value::path")]
    pub ibstat: PathBuf,
    /// ibtracert, on the nodes.
    #[serde(deserialize_with = "value::path")]
    pub ibtracert: PathBuf,
    /// ibnetdiscover, where `fabric.run_on` says.
    #[serde(deserialize_with = "value::path")]
    pub ibnetdiscover: PathBuf,
    /// ibdump, on the sinks.
    #[serde(deserialize_with = "value::path")]
    pub ibdump: PathBuf,
    /// tcpdump, on the sinks.
    #[serde(deserialize_with = "value::path")]
    pub tcpdump: PathBuf,
    /// mstreg, where `mirror.run_on` says.
    #[serde(deserialize_with = "value::path")]
    pub mstreg: PathBuf,
    /// ibscope, for `analyze.after`.
    #[serde(deserialize_with = "value::path")]
    pub ibscope: PathBuf,
    /// sbatch, for `analyze.after = "sbatch"`.
    #[serde(deserialize_with = "value::path")]
    pub sbatch: PathBuf,
}

impl Default for Tools {
    fn default() -> Self {
        let usr = |name: &str| Path::new("/usr").join(name);
        Self {
            ibstat: usr("sbin/ibstat"),
            ibtracert: usr("sbin/ibtracert"),
            ibnetdiscover: usr("sbin/ibnetdiscover"),
            ibdump: usr("bin/ibdump"),
            tcpdump: usr("bin/tcpdump"),
            mstreg: usr("bin/mstreg"),
            ibscope: usr("local/bin/ibscope"),
            sbatch: usr("bin/sbatch"),
        }
    }
}

/// How the fabric is explored.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FabricOptions {
    /// Nodes up to this number are traced one by one besides: `ibstat` and `ibtracert` on each, held against `ibnetdiscover`.
    pub trace_nodes: usize,
    /// Where `ibnetdiscover` runs: `here`, `first` (the job's first node) or the name of a node.
    pub run_on: Place,
    /// A tool that takes longer has failed, in seconds.
    #[serde(deserialize_with = "value::seconds")]
    pub timeout_s: u32,
}

impl Default for FabricOptions {
    fn default() -> Self {
        Self { trace_nodes: 16, run_on: Place::Here, timeout_s: 10 }
    }
}

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
    pub check_on: Option<template::Text>,
    /// What a line of its output holds when it is not mirrored.
    #[serde(default)]
    pub check_off: Option<template::Text>,
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

/// How sinks capture.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capture {
    /// By what.
    pub backend: CaptureBackend,
    /// Folder on the sinks. Every sink has its own file there, named by job, start and node.
    #[serde(deserialize_with = "value::path")]
    pub directory: PathBuf,
    /// Bytes that must be free in the folder before a capture starts.
    #[serde(default)]
    pub disk_limit_bytes: u64,
    /// Who owns captures and manifest; else who made them.
    #[serde(default)]
    pub owner: Option<Owner>,
    /// A capture that does not run after so long has failed to start, in seconds.
    #[serde(default = "default::ready_s", deserialize_with = "value::seconds")]
    pub ready_s: u32,
    /// A capture that has not ended so long after a signal gets the next one, in seconds.
    #[serde(default = "default::stop_s", deserialize_with = "value::seconds")]
    pub stop_s: u32,
    /// For `backend = "ibdump"`.
    #[serde(default)]
    pub ibdump: Ibdump,
    /// For `backend = "tcpdump"`.
    #[serde(default)]
    pub tcpdump: Tcpdump,
}

/// Options of ibdump.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ibdump {
    /// Packets that may come in one burst, as a power of two (`-b`); 12 without it.
    #[serde(deserialize_with = "value::some_burst")]
    pub max_burst_log2: Option<u8>,
    /// Bytes of a buffer in front of the file, emptied by a thread of its own (`-p`).
    pub writer_thread_bytes: Option<u64>,
    /// Bytes of memory that packets are kept in until the end (`-M`); the capture ends when it is full.
    pub memory_bytes: Option<u64>,
}

/// Options of tcpdump.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tcpdump {
    /// Device to capture at; the HCA by its own name without it.
    #[serde(deserialize_with = "value::some_device")]
    pub interface: Option<String>,
    /// Bytes kept of each packet (`-s`).
    pub snaplen: Option<u32>,
    /// KiB of the kernel's buffer (`-B`).
    pub buffer_kib: Option<u32>,
    /// Which packets are kept; all without it.
    #[serde(deserialize_with = "value::some_filter")]
    pub filter: Option<String>,
}

/// What becomes of the captures.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Collect {
    /// Folder for manifests, and for captures that are fetched: each run has its own in it.
    #[serde(deserialize_with = "value::path")]
    pub directory: PathBuf,
    /// Captures are fetched; else they stay where they are.
    #[serde(default)]
    pub fetch: bool,
    /// Captures that were fetched whole are deleted on the sinks.
    #[serde(default)]
    pub delete_fetched: bool,
}

/// Which jobs are captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Select {
    /// Those that ask for it by a word in `--comment`.
    #[default]
    Comment,
    /// Those that ask for it by a word in `--constraint`.
    Constraint,
    /// All.
    All,
}

/// How the hooks behave.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Run {
    /// Folder for journals and locks; must survive a restart of the machine.
    #[serde(deserialize_with = "value::path")]
    pub state_dir: PathBuf,
    /// Log file.
    #[serde(deserialize_with = "value::some_path")]
    pub log: Option<PathBuf>,
    /// Whether the system's log is told too.
    pub syslog: bool,
    /// A hook ends after so long, in seconds; must be less than Slurm's `PrologEpilogTimeout`.
    #[serde(deserialize_with = "value::seconds")]
    pub deadline_s: u32,
    /// The job runs when its capture cannot be started; else the hook fails and Slurm requeues the job.
    pub fail_open: bool,
    /// Which jobs are captured.
    pub select: Select,
    /// The word that asks for it.
    #[serde(deserialize_with = "value::word")]
    pub word: String,
    /// `SLURM_CONF` for the programs that are started: hooks have none.
    #[serde(deserialize_with = "value::some_path")]
    pub slurm_conf: Option<PathBuf>,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            state_dir: PathBuf::from("/var/lib/ibscope"),
            log: None,
            syslog: true,
            deadline_s: 30,
            fail_open: true,
            select: Select::Comment,
            word: "ibscope=on".to_owned(),
            slurm_conf: None,
        }
    }
}

/// Where the captures are analysed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum After {
    /// Nowhere.
    #[default]
    None,
    /// On each sink, by the epilog.
    Sink,
    /// In a batch job that the epilog submits.
    Sbatch,
}

/// What is done with the captures afterwards.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Analyze {
    /// Where they are analysed.
    pub after: After,
    /// Arguments of sbatch in front of the rest, for example `["--partition=post"]`.
    #[serde(deserialize_with = "value::arguments")]
    pub sbatch: Vec<String>,
}

/// What stands where a key is not given.
mod default {
    pub(super) fn user() -> String {
        "root".to_owned()
    }

    pub(super) fn port() -> u16 {
        22
    }

    pub(super) fn connect_timeout_s() -> u32 {
        3
    }

    pub(super) fn parallel() -> u32 {
        32
    }

    pub(super) fn mirror_timeout_s() -> u32 {
        5
    }

    pub(super) fn ready_s() -> u32 {
        3
    }

    pub(super) fn stop_s() -> u32 {
        5
    }
}
