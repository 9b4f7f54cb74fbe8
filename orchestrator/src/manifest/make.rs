//! Creates a manifest from a plan, and writes it to a file.

use super::{Manifest, ManifestCapture, ManifestError, ManifestMirror, ManifestPort, VERSION};
use crate::folder::{Folder, OwnerIds};
use crate::plan::{CapturePlan, Sink};
use crate::step::{MirrorStep, PlanStep};
use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;

/// Name of the file in the folder of a run.
pub const FILE_NAME: &str = "manifest.json";

impl Manifest {
    /// The manifest of a plan, without the results of the run. Captures are in the order of the
    /// plan's sinks, with their paths on the sinks.
    pub fn from_plan(plan: &CapturePlan) -> Self {
        let mirror = |step: &PlanStep| {
            let PlanStep::Mirror(MirrorStep { leaf_guid, leaf_lid, ports, sink, sink_port, .. }) = step else {
                return None;
            };
            let (ports, sink) = (ports.clone(), sink.clone());
            Some(ManifestMirror {
                leaf_guid: *leaf_guid,
                leaf_lid: *leaf_lid,
                ports,
                sink,
                sink_port: *sink_port,
                lost_ports: Vec::new(),
                dropped: None,
            })
        };
        let resolution_ns = plan.steps.iter().find_map(|step| match step {
            PlanStep::Capture(step) => Some(step.backend.resolution_ns()),
            _ => None,
        });
        let capture = |sink: &Sink| {
            let copied = plan
                .compute
                .iter()
                .filter(|port| port.leaf_guid == sink.leaf_guid && sink.sources.contains(&port.leaf_port));
            ManifestCapture {
                sink: sink.node.clone(),
                file: sink.file.clone(),
                on_sink: true,
                port_guids: copied.map(|port| port.port_guid).collect(),
                bytes: None,
                sha256: None,
                ended: None,
                clock: None,
                resolution_ns,
            }
        };
        Self {
            version: VERSION,
            job_id: plan.job.id,
            run: plan.run_name(),
            user: plan.job.user.clone(),
            nodes: plan.job.nodes.clone(),
            compute_nodes: plan.hostfile.clone(),
            started_ns: i64::try_from(plan.started_s).unwrap_or(0).saturating_mul(1_000_000_000),
            ended_ns: None,
            ports: plan.compute.iter().map(ManifestPort::from).collect(),
            sinks: plan.sinks.iter().map(|sink| ManifestPort::from(&sink.port)).collect(),
            mirrors: plan.steps.iter().filter_map(mirror).collect(),
            captures: plan.sinks.iter().map(capture).collect(),
            commands: Vec::new(),
            notes: plan.warnings.clone(),
        }
    }

    /// Writes the manifest into the folder atomically, readable by its owner only. Returns the
    /// path.
    pub fn write(&self, folder: &Folder, owner: Option<OwnerIds>) -> Result<PathBuf, ManifestError> {
        let path = folder.path().join(FILE_NAME);
        self.put(folder, owner).map_err(|source| ManifestError::Write { path: path.clone(), source })?;
        Ok(path)
    }

    fn put(&self, folder: &Folder, owner: Option<OwnerIds>) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        folder.replace(OsStr::new(FILE_NAME), &text, 0o600, owner)
    }
}
