//! A plan becomes a manifest, and a manifest a file.

use super::{Capture, Manifest, ManifestError, Mirror, Port, VERSION};
use crate::plan::{Plan, Sink};
use crate::step::{MirrorStep, Step};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};

/// Name of the file in the folder of a run.
pub const FILE_NAME: &str = "manifest.json";

impl Manifest {
    /// What a plan says of the run already: all but what came of it. Captures stand in the order of the plan's sinks, and are on the sinks.
    pub fn planned(plan: &Plan) -> Self {
        let mirror = |step: &Step| {
            let Step::Mirror(MirrorStep { leaf_guid, leaf_lid, ports, sink, sink_port, .. }) = step else {
                return None;
            };
            let (ports, sink) = (ports.clone(), sink.clone());
            Some(Mirror {
                leaf_guid: *leaf_guid,
                leaf_lid: *leaf_lid,
                ports,
                sink,
                sink_port: *sink_port,
                dropped: None,
            })
        };
        let resolution_ns = plan.steps.iter().find_map(|step| match step {
            Step::Capture(step) => Some(step.backend.resolution_ns()),
            _ => None,
        });
        let capture = |sink: &Sink| {
            let copied = plan
                .compute
                .iter()
                .filter(|port| port.leaf_guid == sink.leaf_guid && sink.sources.contains(&port.leaf_port));
            Capture {
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
            ports: plan.compute.iter().map(Port::from).collect(),
            sinks: plan.sinks.iter().map(|sink| Port::from(&sink.port)).collect(),
            mirrors: plan.steps.iter().filter_map(mirror).collect(),
            captures: plan.sinks.iter().map(capture).collect(),
            commands: Vec::new(),
            notes: plan.warnings.clone(),
        }
    }

    /// Writes the manifest into the folder, in one step and readable for its owner alone, and says where. `owner` are user and group by number.
    pub fn write(&self, folder: &Path, owner: Option<(u32, Option<u32>)>) -> Result<PathBuf, ManifestError> {
        let path = folder.join(FILE_NAME);
        self.put(folder, &path, owner).map_err(|source| ManifestError::Write { path: path.clone(), source })?;
        Ok(path)
    }

    fn put(&self, folder: &Path, path: &Path, owner: Option<(u32, Option<u32>)>) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        let scratch = folder.join(format!(".{FILE_NAME}.part-{}", std::process::id()));
        match fs::remove_file(&scratch) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let written = (|| {
            // Made anew: the mode is that of the file from its first moment on.
            let mut file = File::options().write(true).create_new(true).mode(0o600).open(&scratch)?;
            file.write_all(&text)?;
            if let Some((user, group)) = owner {
                fchown(&file, Some(user), group)?;
            }
            file.sync_all()?;
            fs::rename(&scratch, path)?;
            File::open(folder)?.sync_all()
        })();
        if written.is_err() {
            // What is in the way of the manifest is told already; the scratch file may not be there at all.
            let _ = fs::remove_file(&scratch);
        }
        written
    }
}
