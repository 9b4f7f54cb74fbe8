//! What will be done for a job, worked out before any of it is: pure, so that it can be looked at (`ibscope capture plan`).

mod choose;
mod show;

use crate::capture;
use crate::config::{Config, MirrorBackend, TemplateError};
use crate::fabric::{Fabric, NodePort};
use crate::guid;
use crate::job::Job;
use crate::mirror::{self, Asked};
use crate::name::{self, NameError};
use crate::stamp::stamp;
use crate::step::{CaptureStep, HostfileStep, Step};
use choose::Group;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Why there is no plan.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// The fabric shows none of the job's nodes.
    #[error("job {0}: none of its nodes has an active port; check with ibstat on one of them")]
    NoPorts(u32),
    /// All nodes are sinks.
    #[error(
        "job {0}: all of its nodes are sinks, so that none remains to compute; take them out of the partition, or out of sinks.nodes"
    )]
    NoCompute(u32),
    /// No leaf has a sink.
    #[error(
        "job {job}: no leaf has a sink, so that nothing would be captured ({}); add nodes to sinks.nodes, or set sinks.from_job = true",
        reasons.join("; ")
    )]
    NoSinks {
        /// The job's id.
        job: u32,
        /// Why, a clause per leaf.
        reasons: Vec<String>,
    },
    /// One has none, and the configuration wants one on each.
    #[error("job {job}: {reason}; add a node on it to sinks.nodes, or set sinks.required = false")]
    NoSink {
        /// The job's id.
        job: u32,
        /// Why.
        reason: String,
    },
    /// A node or an adapter with a name that none can have.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A template that cannot be filled.
    #[error("[mirror.command]: {0}")]
    Template(#[from] TemplateError),
}

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

impl Sink {
    /// How many times more than the sink's link carries can come; `None` where the link's rate is not known.
    pub fn oversubscription(&self) -> Option<f64> {
        (self.port.rate_gbits > 0.0).then(|| self.mirrored_gbits / self.port.rate_gbits)
    }
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
    /// What is done, in this order: captures, then mirrors, then the hostfile. Undone in the reverse one, the fabric first.
    pub steps: Vec<Step>,
    /// What the user should know.
    pub warnings: Vec<String>,
    /// The nodes that remain for MPI.
    pub hostfile: Vec<String>,
}

impl Plan {
    /// Name of the run: of its files, and of its folder. Other runs of the same job have another one.
    pub fn run_name(&self) -> String {
        run_name(&self.job, self.started_s)
    }
}

fn run_name(job: &Job, started_s: u64) -> String {
    format!("ibscope-{}-{}", job.id, stamp(started_s))
}

/// The nodes whose place in the fabric must be known: the job's, and those kept as sinks.
pub fn nodes_needed(config: &Config, job: &Job) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let kept = if config.mirror.backend == MirrorBackend::None { &[][..] } else { &config.sinks.nodes };
    job.nodes.iter().chain(kept).filter(|node| seen.insert(node.as_str())).cloned().collect()
}

/// Works out what will be done.
pub fn plan(config: &Config, job: &Job, fabric: &Fabric, situation: &Situation) -> Result<Plan, PlanError> {
    for port in &fabric.ports {
        name::node(&port.node)?;
        name::device(&port.ca)?;
    }
    let mut warnings: Vec<String> = fabric.disagreements.iter().chain(&fabric.left_out).cloned().collect();
    let choice = choose::choose(config, job, fabric, &situation.others)?;
    let run = run_name(job, situation.started_s);
    let mut captures = Vec::new();
    let mut mirrors = Vec::new();
    let mut sinks = Vec::new();
    for Group { sink, sources, analyser } in &choice.groups {
        let (captured, step) = capture(config, &run, sink);
        captures.push(Step::Capture(step));
        let asked = Asked { sources, sink, job: job.id, analyser: *analyser };
        mirrors.extend(mirror::step(config, &asked)?.map(Step::Mirror));
        let mirrored_gbits = match config.mirror.backend {
            MirrorBackend::None => 0.0,
            _ => sources.iter().map(|source| source.rate_gbits).sum::<f64>() * f64::from(mirror::ways(config)),
        };
        sinks.push(Sink {
            node: sink.node.clone(),
            port: (*sink).clone(),
            leaf_guid: sink.leaf_guid,
            sources: sources.iter().map(|source| source.leaf_port).collect(),
            mirrored_gbits,
            file: captured,
        });
    }
    warnings.extend(choice.warnings);
    warnings.extend(sinks.iter().filter_map(oversubscribed));
    let mut steps = captures;
    steps.append(&mut mirrors);
    if let Some(directory) = &config.sinks.hostfile_directory {
        let path = directory.join(format!("ibscope-{}.hosts", job.id));
        steps.push(Step::Hostfile(HostfileStep { path, lines: choice.remaining.clone() }));
    }
    Ok(Plan {
        job: job.clone(),
        started_s: situation.started_s,
        compute: choice.compute.into_iter().cloned().collect(),
        sinks,
        steps,
        warnings,
        hostfile: choice.remaining,
    })
}

/// The capture at a sink: its file and the step.
fn capture(config: &Config, run: &str, sink: &NodePort) -> (PathBuf, CaptureStep) {
    let base = format!("{run}-{}-{}-{}", sink.node, sink.ca, sink.port);
    let file = config.capture.directory.join(format!("{base}.pcap"));
    let step = CaptureStep {
        node: sink.node.clone(),
        argv: capture::argv(config, &sink.ca, sink.port, &file),
        file: file.clone(),
        log: config.capture.directory.join(format!("{base}.log")),
        backend: config.capture.backend,
    };
    (file, step)
}

/// What to say where more can come to a sink than its link carries.
fn oversubscribed(sink: &Sink) -> Option<String> {
    let Sink { node, port, sources, mirrored_gbits, .. } = sink;
    if *mirrored_gbits == 0.0 {
        return None;
    }
    let Some(factor) = sink.oversubscription() else {
        return Some(format!(
            "sink {node}: the rate of its link is not known, nor whether the copies of {} fit on it",
            counted(sources.len(), "port")
        ));
    };
    (factor > 1.0).then(|| {
        let ports = counted(sources.len(), "port");
        format!(
            "sink {node}: {ports} mirrored, up to {mirrored_gbits:.0} Gb/s onto a link of {:.0} Gb/s ({factor:.1} times); copies are lost while \
             the ports are busier than {:.0} % on average",
            port.rate_gbits,
            100.0 / factor
        )
    })
}

fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
