//! Plans the capture of a job: which nodes are sinks, which ports are mirrored to them, and all
//! steps in order.
//!
//! Planning changes nothing and depends only on its inputs, so that `ibscope capture plan` can show
//! a plan.

mod choose;
mod show;

use crate::capture::{self, CaptureLimits};
use crate::config::{CaptureMode, Config, MirrorBackend, TemplateError};
use crate::fabric::{Fabric, NodePort};
use crate::guid;
use crate::job::SlurmJob;
use crate::mirror::{self, MirrorRequest};
use crate::name::{self, NameError};
use crate::step::{CaptureStep, HostfileStep, PlanStep};
use crate::text::plural;
use crate::timestamp::timestamp;
use choose::SinkGroup;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Reason why there is no plan.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// No node of the job has a port in the fabric.
    #[error("job {0}: none of its nodes has an active port; check with ibstat on one of them")]
    NoPorts(u32),
    /// All nodes are sinks.
    #[error(
        "job {0}: all of its nodes are sinks, so none remains to compute; remove them from the partition, or from sinks.nodes"
    )]
    NoCompute(u32),
    /// No leaf has a sink.
    #[error(
        "job {job}: no leaf has a sink, so nothing would be captured ({}); add nodes to sinks.nodes{}",
        reasons.join("; "),
        if *from_job { "" } else { ", or set sinks.from_job = true" }
    )]
    NoSinks {
        /// Job id.
        job: u32,
        /// True if `sinks.from_job` is set.
        from_job: bool,
        /// Reasons, one clause per leaf.
        reasons: Vec<String>,
    },
    /// A leaf has no sink, and `sinks.required` is true.
    #[error("job {job}: {reason}; add a node of this leaf to sinks.nodes, or set sinks.required = false")]
    NoSink {
        /// Job id.
        job: u32,
        /// Reason, as a clause.
        reason: String,
    },
    /// A node or an adapter has a name that is not valid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A template cannot be filled.
    #[error("[mirror.command]: {0}")]
    Template(#[from] TemplateError),
}

/// Inputs of a plan besides configuration, job and fabric.
#[derive(Clone, Debug, Default)]
pub struct PlanContext {
    /// Start of the run in seconds since the epoch; part of the names of its files.
    pub started_s: u64,
    /// Steps of other runs that are not undone. Their sinks and analyzers are occupied.
    pub others: Vec<PlanStep>,
}

/// A port that captures, and the ports that are mirrored to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sink {
    /// Name of the node.
    pub node: String,
    /// Port of the node.
    pub port: NodePort,
    /// GUID of the leaf switch whose ports are mirrored.
    #[serde(with = "guid")]
    pub leaf_guid: u64,
    /// Ports of the leaf that are mirrored; the sink's own port if nothing is mirrored.
    pub sources: Vec<u8>,
    /// Largest rate of mirrored packets in Gbit/s: the sum of the ports' rates, counted twice if
    /// both directions are mirrored.
    pub mirrored_gbits: f64,
    /// Path of the capture on the sink.
    pub file: PathBuf,
}

impl Sink {
    /// Largest rate of mirrored packets relative to the rate of the sink's link; `None` if the
    /// link's rate is unknown.
    pub fn oversubscription(&self) -> Option<f64> {
        (self.port.rate_gbits > 0.0).then(|| self.mirrored_gbits / self.port.rate_gbits)
    }
}

/// The plan of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapturePlan {
    /// The job.
    pub job: SlurmJob,
    /// Start of the run, in seconds since the epoch.
    pub started_s: u64,
    /// Ports of the nodes that compute.
    pub compute: Vec<NodePort>,
    /// Sinks that capture the traffic of these ports.
    pub sinks: Vec<Sink>,
    /// Steps in order: captures, then mirrors, then the hostfile. Undoing removes the mirrors
    /// first, then stops the captures, and removes the hostfile last.
    pub steps: Vec<PlanStep>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// Nodes that remain for MPI.
    pub hostfile: Vec<String>,
}

impl CapturePlan {
    /// Name of the run, used for its files and its folder. Each run of a job has another name.
    pub fn run_name(&self) -> String {
        run_name(&self.job, self.started_s)
    }
}

fn run_name(job: &SlurmJob, started_s: u64) -> String {
    format!("ibscope-{}-{}", job.id, timestamp(started_s))
}

/// Nodes that must be located in the fabric: the nodes of the job, and the reserved sinks.
pub fn nodes_needed(config: &Config, job: &SlurmJob) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let reserved = if config.mirror.backend == MirrorBackend::None { &[][..] } else { &config.sinks.nodes };
    job.nodes.iter().chain(reserved).filter(|node| seen.insert(node.as_str())).cloned().collect()
}

/// Creates the plan.
pub fn plan(
    config: &Config,
    job: &SlurmJob,
    fabric: &Fabric,
    situation: &PlanContext,
) -> Result<CapturePlan, PlanError> {
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
    for SinkGroup { sink, sources, analyzer } in &choice.groups {
        let (captured, step) = capture(config, &run, sink);
        captures.push(PlanStep::Capture(step));
        let request = MirrorRequest { sources, sink, job: job.id, analyzer: *analyzer };
        mirrors.extend(mirror::step(config, &request)?.map(PlanStep::Mirror));
        let mirrored_gbits = match config.mirror.backend {
            MirrorBackend::None => 0.0,
            _ => {
                sources.iter().map(|source| source.rate_gbits).sum::<f64>()
                    * f64::from(mirror::copies_per_packet(config))
            }
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
    warnings.extend(mirror::unverified_warning(config));
    warnings.extend(choice.warnings);
    warnings.extend(sinks.iter().filter_map(oversubscription_warning));
    let mut steps = captures;
    steps.append(&mut mirrors);
    if let Some(directory) = &config.sinks.hostfile_directory {
        let path = directory.join(format!("ibscope-{}.hosts", job.id));
        steps.push(PlanStep::Hostfile(HostfileStep { path, lines: choice.remaining.clone() }));
    }
    Ok(CapturePlan {
        job: job.clone(),
        started_s: situation.started_s,
        compute: choice.compute.into_iter().cloned().collect(),
        sinks,
        steps,
        warnings,
        hostfile: choice.remaining,
    })
}

/// The capture on a sink: the path of its file, and the step.
fn capture(config: &Config, run: &str, sink: &NodePort) -> (PathBuf, CaptureStep) {
    let base = format!("{run}-{}-{}-{}", sink.node, sink.ca, sink.port);
    let at = |extension: &str| config.capture.directory.join(format!("{base}.{extension}"));
    let is_profile = config.capture.mode == CaptureMode::Profile;
    let (file, argv) = if is_profile {
        let archive = at("ibp.tar");
        (archive.clone(), capture::profile_argv(config, &sink.ca, sink.port, &archive))
    } else {
        (at("pcap"), capture::argv(config, &sink.ca, sink.port, &at("pcap")))
    };
    let step = CaptureStep {
        node: sink.node.clone(),
        argv,
        file: file.clone(),
        log: at("log"),
        backend: config.capture.backend,
        limits: CaptureLimits::of(config),
        ring_files: config.capture.ring_files,
        is_profile,
    };
    (file, step)
}

/// Warning if mirrored packets can exceed the rate of the sink's link.
fn oversubscription_warning(sink: &Sink) -> Option<String> {
    let Sink { node, port, sources, mirrored_gbits, .. } = sink;
    if *mirrored_gbits == 0.0 {
        return None;
    }
    let Some(factor) = sink.oversubscription() else {
        return Some(format!(
            "sink {node}: the rate of its link is unknown; the mirrored packets of {} may exceed it",
            plural(sources.len(), "port")
        ));
    };
    (factor > 1.0).then(|| {
        let ports = plural(sources.len(), "port");
        format!(
            "sink {node}: {ports} mirrored, up to {mirrored_gbits:.0} Gb/s onto a link of {:.0} Gb/s ({factor:.1} times); mirrored packets are lost while \
             the ports are busier than {:.0} % on average",
            port.rate_gbits,
            100.0 / factor
        )
    })
}
