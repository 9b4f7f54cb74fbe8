//! What will be done for a job, worked out before any of it is: pure, so that it can be looked at (`ibscope capture plan`).

use crate::fabric::NodePort;
use crate::guid;
use crate::job::Job;
use crate::step::Step;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What a plan depends on besides configuration, job and fabric.
#[derive(Clone, Debug, Default)]
pub struct Situation {
    /// When the run starts, in seconds since the epoch: names its files.
    pub started_s: u64,
    /// Steps of other runs that are not undone: their sinks and analysers are taken.
    pub others: Vec<Step>,
}

/// A port that captures, and what is copied to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sink {
    /// The node.
    pub node: String,
    /// Its port.
    pub port: NodePort,
    /// The leaf switch whose ports are copied.
    #[serde(with = "guid")]
    pub leaf_guid: u64,
    /// Ports of the leaf that are copied; the sink's own where nothing is mirrored.
    pub sources: Vec<u8>,
    /// Sum of the rates of what is copied, both ways where both are: all that can come, in Gb/s.
    pub mirrored_gbits: f64,
    /// The capture on the sink.
    pub file: PathBuf,
}

/// What will be done for a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The job.
    pub job: Job,
    /// When the run starts, in seconds since the epoch.
    pub started_s: u64,
    /// Ports of the nodes that compute.
    pub compute: Vec<NodePort>,
    /// Where their traffic is captured.
    pub sinks: Vec<Sink>,
    /// What is done, in this order; it is undone in the reverse one.
    pub steps: Vec<Step>,
    /// What the user should know.
    pub warnings: Vec<String>,
    /// The nodes that remain for MPI.
    pub hostfile: Vec<String>,
}
