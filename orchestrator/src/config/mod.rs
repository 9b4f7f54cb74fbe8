//! The configuration: one TOML file. Keys that are not known are refused, and an error names the line and what to write instead.

mod capture;
mod check;
mod mirror;
mod reach;
mod read;
mod run;
mod template;
mod value;
mod wrong;

pub use capture::{Capture, CaptureBackend, Ibdump, Tcpdump};
pub use mirror::{Directions, Mirror, MirrorBackend, MirrorCommand, Mstreg, Sinks};
pub use reach::{FabricOptions, JumpHost, Node, Ssh, Tools};
pub use run::{After, Analyze, Collect, Run, Select};
pub use template::{Template, TemplateError, Text, Values};
pub use value::{Owner, Place};

use crate::job::Job;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

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
