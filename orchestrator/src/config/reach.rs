//! Sections on how nodes are reached, where programs are, and how the fabric is explored.

use super::Place;
use super::value;
use serde::Deserialize;
use std::path::{Path, PathBuf};

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
    /// Nodes up to this number are asked one by one whatever is known of them: `ibstat` and `ibtracert` on each, held against `ibnetdiscover`.
    pub check_nodes: usize,
    /// Where `ibnetdiscover` runs: `here`, `first` (the job's first node) or the name of a node.
    pub run_on: Place,
    /// A tool that takes longer has failed, in seconds.
    #[serde(deserialize_with = "value::seconds")]
    pub timeout_s: u32,
}

impl Default for FabricOptions {
    fn default() -> Self {
        Self { check_nodes: 16, run_on: Place::Here, timeout_s: 10 }
    }
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
}
