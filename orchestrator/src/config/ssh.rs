//! The sections `[ssh]`, `[nodes]`, `[tools]` and `[fabric]`: how nodes are reached, where programs
//! are, and how the fabric is explored.

use super::RunLocation;
use super::value;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// Access to the nodes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SshConfig {
    /// User to log in as.
    #[serde(default = "default::user", deserialize_with = "value::user")]
    pub user: String,
    /// Private key.
    #[serde(deserialize_with = "value::path")]
    pub key: PathBuf,
    /// Socket of an agent that holds the private key, which may then have a passphrase.
    #[serde(default, deserialize_with = "value::some_path")]
    pub agent: Option<PathBuf>,
    /// ibscope on the sinks, which a user without root's rights calls with sudo for the commands that
    /// need these rights.
    #[serde(default, deserialize_with = "value::some_path")]
    pub helper: Option<PathBuf>,
    /// Port of the ssh daemons.
    #[serde(default = "default::port", deserialize_with = "value::port")]
    pub port: u16,
    /// File with the host keys of the nodes. A node whose key is not in it is refused.
    #[serde(deserialize_with = "value::path")]
    pub known_hosts: PathBuf,
    /// Host to log in through.
    #[serde(default)]
    pub jump_host: Option<JumpHost>,
    /// Time limit of a connection attempt, in seconds.
    #[serde(default = "default::connect_timeout_s", deserialize_with = "value::seconds")]
    pub connect_timeout_s: u32,
    /// Number of nodes to work on at the same time.
    #[serde(default = "default::parallel", deserialize_with = "value::at_least_one")]
    pub parallel: u32,
}

/// Host to log in through, with the same key.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JumpHost {
    /// Name or address.
    #[serde(deserialize_with = "value::host")]
    pub address: String,
    /// Port of the ssh daemon.
    #[serde(default = "default::port", deserialize_with = "value::port")]
    pub port: u16,
    /// User to log in as. Default: the same as on the nodes.
    #[serde(default, deserialize_with = "value::some_user")]
    pub user: Option<String>,
}

/// Settings of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// Name or address for connections, if the node's own name cannot be used.
    #[serde(default, deserialize_with = "value::some_host")]
    pub address: Option<String>,
    /// Port of the ssh daemon.
    #[serde(default, deserialize_with = "value::some_port")]
    pub port: Option<u16>,
}

/// Absolute paths of programs, on the nodes and on the machine of the orchestrator.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tools {
    /// ibstat, on the nodes.
    #[serde(deserialize_with = "value::path")]
    pub ibstat: PathBuf,
    /// ibtracert, on the nodes.
    #[serde(deserialize_with = "value::path")]
    pub ibtracert: PathBuf,
    /// ibnetdiscover, on the machine of `fabric.run_on`.
    #[serde(deserialize_with = "value::path")]
    pub ibnetdiscover: PathBuf,
    /// ibdump, on the sinks.
    #[serde(deserialize_with = "value::path")]
    pub ibdump: PathBuf,
    /// tcpdump, on the sinks.
    #[serde(deserialize_with = "value::path")]
    pub tcpdump: PathBuf,
    /// mstreg, on the machine of `mirror.run_on`.
    #[serde(deserialize_with = "value::path")]
    pub mstreg: PathBuf,
    /// ibscope, for `analyze.after`.
    #[serde(deserialize_with = "value::path")]
    pub ibscope: PathBuf,
    /// sbatch, for `analyze.after = "sbatch"`.
    #[serde(deserialize_with = "value::path")]
    pub sbatch: PathBuf,
    /// squeue, which the sweeper asks whether a job has ended. Default: beside `sbatch`, which
    /// [`Config::parse`](super::Config::parse) fills in.
    #[serde(deserialize_with = "value::path")]
    pub squeue: PathBuf,
}

impl Tools {
    /// Fills in the default that depends on another key.
    pub(super) fn complete(&mut self) {
        if self.squeue.as_os_str().is_empty() {
            self.squeue = self.sbatch.with_file_name("squeue");
        }
    }
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
            ibscope: usr("bin/ibscope"),
            sbatch: usr("bin/sbatch"),
            squeue: PathBuf::new(),
        }
    }
}

/// Exploration of the fabric.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FabricOptions {
    /// Number of nodes of each job, from the first, for which `ibstat` and `ibtracert` run even if
    /// the ports are known; the results are compared with those of `ibnetdiscover`.
    pub check_nodes: usize,
    /// Machine on which `ibnetdiscover` runs: `here`, `first` (the job's first node) or the name of
    /// a node.
    pub run_on: RunLocation,
    /// Time limit of ibstat, ibtracert and ibnetdiscover, in seconds.
    #[serde(deserialize_with = "value::seconds")]
    pub timeout_s: u32,
}

impl Default for FabricOptions {
    fn default() -> Self {
        Self { check_nodes: 16, run_on: RunLocation::Here, timeout_s: 10 }
    }
}

/// Default values of keys.
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
}
