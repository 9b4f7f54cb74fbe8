//! The manifest of a run: which ports of which nodes were captured in which file, and by which
//! clock. A JSON file in the folder of the captures.

mod clock;
mod make;

pub use clock::{CaptureClock, ClockExchange};
pub use make::FILE_NAME;

use crate::capture::{CaptureLimit, CaptureRing, PacketCounts, ProfileCounts};
use crate::fabric::NodePort;
use crate::guid;
use crate::name::{self, NameError};
use crate::text_file;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Highest unicast LID; higher ones are multicast LIDs.
const HIGHEST_LID: u16 = 0xbfff;

/// Highest LMC.
const HIGHEST_LMC: u8 = 7;

/// Version of the format that this program reads and writes.
pub const VERSION: u32 = 1;

/// Reason why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The file cannot be read.
    #[error("{}: the manifest cannot be read: {source}; check the path and its permissions", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The file is not a manifest.
    #[error("{}: not a manifest: {source}; give the manifest.json that ibscope wrote into the folder of the captures", path.display())]
    Format {
        /// Path of the file.
        path: PathBuf,
        /// Parse error, with line and column.
        source: serde_json::Error,
    },
    /// A port has a LID or LMC that is not valid.
    #[error("{}: {node} has LID {lid} with LMC {lmc}; expected a LID below 49152 and an LMC up to 7", path.display())]
    Port {
        /// Path of the file.
        path: PathBuf,
        /// Name of the node.
        node: String,
        /// LID of the port.
        lid: u16,
        /// LMC of the port.
        lmc: u8,
    },
    /// A node or device name is not valid.
    #[error("{}: {source}", path.display())]
    Name {
        /// Path of the file.
        path: PathBuf,
        /// Description of the fault.
        source: NameError,
    },
    /// The file cannot be written.
    #[error("{}: the manifest cannot be written: {source}; check the folder, its owner and the free space", path.display())]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The manifest has another version.
    #[error("{}: a manifest of version {found}; this program reads version {VERSION}", path.display())]
    Version {
        /// Path of the file.
        path: PathBuf,
        /// Version of the file.
        found: u32,
    },
}

/// A port of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestPort {
    /// Host name of the node.
    pub node: String,
    /// Name of the adapter, such as `mlx5_0`; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ca: String,
    /// Number of the adapter's port; 0 if unknown.
    #[serde(default)]
    pub port: u8,
    /// GUID of the port.
    #[serde(with = "guid")]
    pub port_guid: u64,
    /// Base LID of the port.
    pub lid: u16,
    /// LID mask control: the port has `2^lmc` LIDs, from the base LID on.
    pub lmc: u8,
    /// GUID of the leaf switch.
    #[serde(with = "guid")]
    pub leaf_guid: u64,
    /// Port of the leaf switch that the node is connected to.
    pub leaf_port: u8,
    /// Rate of the port in Gbit/s, as `ibstat` prints it; absent in manifests from before it was
    /// recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_gbits: Option<f64>,
}

impl From<&NodePort> for ManifestPort {
    fn from(port: &NodePort) -> Self {
        let NodePort { node, ca, port, port_guid, lid, lmc, rate_gbits, leaf_guid, leaf_port, .. } = port.clone();
        let rate_gbits = Some(rate_gbits).filter(|rate| *rate > 0.0);
        Self { node, ca, port, port_guid, lid, lmc, leaf_guid, leaf_port, rate_gbits }
    }
}

/// End of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestCaptureEnd {
    /// Last signal that was sent, such as `INT`; `None` if the program ended by itself. After
    /// `KILL` the end of the file is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Exit status of the program, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<i32>,
    /// Packet counts that the program printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<PacketCounts>,
    /// Limit at which the capture was stopped: the packets after it are missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<CaptureLimit>,
    /// Ring of files that were joined to this one: if it is full, earlier packets may be missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ring: Option<CaptureRing>,
    /// Counts of an analysis that ran beside the capture. The file is an archive with a partial
    /// profile then, and no packets were stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileCounts>,
}

/// A capture of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestCapture {
    /// Host name of the node that captured.
    pub sink: String,
    /// Path of the file; relative to the folder of the manifest unless it is absolute.
    pub file: PathBuf,
    /// True if the path is one on the sink, because the file stayed there.
    #[serde(default)]
    pub on_sink: bool,
    /// Ports that were mirrored to the sink, by GUID.
    #[serde(with = "guid::list")]
    pub port_guids: Vec<u64>,
    /// Size of the file in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// SHA-256 of the file, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// End of the capture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<ManifestCaptureEnd>,
    /// Clock of the capture's timestamps, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<CaptureClock>,
    /// Resolution of the timestamps, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution_ns: Option<u64>,
}

/// Ports that were mirrored to a sink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestMirror {
    /// GUID of the leaf switch.
    #[serde(with = "guid")]
    pub leaf_guid: u64,
    /// LID of the leaf switch.
    pub leaf_lid: u16,
    /// Ports of the leaf that were mirrored.
    pub ports: Vec<u8>,
    /// Node that received the mirrored packets.
    pub sink: String,
    /// Port of the leaf that leads to the sink.
    pub sink_port: u8,
    /// Ports that were no longer mirrored at the end of the job: their packets are missing from an unknown
    /// time on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_ports: Vec<u8>,
    /// Mirrored packets that the switch dropped, if it counts them. InfiniBand switches do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<u64>,
}

/// A command that was run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandRun {
    /// Node where the command ran; `None` for the machine of the orchestrator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Start time, in nanoseconds since the epoch.
    pub at_ns: i64,
    /// Duration in nanoseconds.
    #[serde(default)]
    pub took_ns: u64,
    /// Exit status; `None` if the command could not be run or did not end in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<i32>,
    /// Reason of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A run of the orchestrator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Format version, [`VERSION`].
    pub version: u32,
    /// Slurm job id.
    pub job_id: u32,
    /// Name of the run, as in the names of its files.
    #[serde(default)]
    pub run: String,
    /// User of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Nodes of the job, in Slurm's order.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// Nodes that remained for MPI.
    #[serde(default)]
    pub compute_nodes: Vec<String>,
    /// Start of the run, in nanoseconds since the epoch.
    #[serde(default)]
    pub started_ns: i64,
    /// Time at which the run was undone, in nanoseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ns: Option<i64>,
    /// Ports of the nodes that compute.
    #[serde(default)]
    pub ports: Vec<ManifestPort>,
    /// Ports of the sinks.
    #[serde(default)]
    pub sinks: Vec<ManifestPort>,
    /// Mirrored ports.
    #[serde(default)]
    pub mirrors: Vec<ManifestMirror>,
    /// Captures.
    #[serde(default)]
    pub captures: Vec<ManifestCapture>,
    /// Commands that were run, in order.
    #[serde(default)]
    pub commands: Vec<CommandRun>,
    /// Warnings of the plan, and faults during the run.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl Manifest {
    /// Reads a manifest. Paths of captures become relative to the current folder instead of the
    /// manifest's.
    pub fn read(path: &Path) -> Result<Self, ManifestError> {
        let text = text_file::read(path).map_err(|source| ManifestError::Read { path: path.to_owned(), source })?;
        let mut manifest: Self =
            serde_json::from_str(&text).map_err(|source| ManifestError::Format { path: path.to_owned(), source })?;
        if manifest.version != VERSION {
            return Err(ManifestError::Version { path: path.to_owned(), found: manifest.version });
        }
        manifest.check(path)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        for capture in manifest.captures.iter_mut().filter(|capture| !capture.on_sink) {
            capture.file = folder.join(&capture.file);
        }
        Ok(manifest)
    }

    /// Checks names and LIDs, because they appear in terminals and tables.
    fn check(&self, path: &Path) -> Result<(), ManifestError> {
        let named = |result: Result<(), NameError>| {
            result.map_err(|source| ManifestError::Name { path: path.to_owned(), source })
        };
        for ManifestPort { node, ca, lid, lmc, .. } in self.ports.iter().chain(&self.sinks) {
            named(name::node(node))?;
            named(if ca.is_empty() { Ok(()) } else { name::device(ca) })?;
            if *lid > HIGHEST_LID || *lmc > HIGHEST_LMC {
                return Err(ManifestError::Port { path: path.to_owned(), node: node.clone(), lid: *lid, lmc: *lmc });
            }
        }
        self.captures.iter().try_for_each(|capture| named(name::node(&capture.sink)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const PORT: &str = r#"{"version": 1, "job_id": 1, "ports": [
        {"node": "n001", "port_guid": "0x10", "lid": 49152, "lmc": 0, "leaf_guid": 3, "leaf_port": 1}]}"#;

    fn read(text: &str) -> Result<Manifest, ManifestError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("manifest.json");
        fs::write(&path, text).unwrap();
        Manifest::read(&path).map(|mut manifest| {
            for capture in &mut manifest.captures {
                capture.file = capture.file.strip_prefix(folder.path()).unwrap_or(&capture.file).to_owned();
            }
            manifest
        })
    }

    #[test]
    fn paths_of_captures_are_relative_to_the_manifest() {
        let text = r#"{"version": 1, "job_id": 7, "captures": [
            {"sink": "sink1", "file": "sink1.pcap", "port_guids": [1], "clock": {"at_ns": 10, "offset_ns": -5}},
            {"sink": "sink2", "file": "/scratch/sink2.pcap", "port_guids": []}]}"#;
        let manifest = read(text).unwrap();
        let files: Vec<&str> = manifest.captures.iter().filter_map(|capture| capture.file.to_str()).collect();
        assert_eq!(files, ["sink1.pcap", "/scratch/sink2.pcap"]);
        let clock = CaptureClock { at_ns: 10, offset_ns: -5, drift_ppm: 0.0, uncertainty_ns: 0 };
        assert_eq!(manifest.captures[0].clock, Some(clock));
    }

    #[test]
    fn faults_are_named() {
        for (text, what) in [
            ("", "not a manifest"),
            ("{\"version\": 2, \"job_id\": 1}", "version 2"),
            (PORT, "n001 has LID 49152 with LMC 0; expected a LID below 49152"),
            (&PORT.replace("49152", "8").replace("\"lmc\": 0", "\"lmc\": 8"), "n001 has LID 8 with LMC 8"),
            (&PORT.replace("0x10", "0xzz"), "expected a GUID"),
            (&PORT.replace("n001", "\\u001b[31m"), "node name \"\\u{1b}[31m\" is not valid"),
            ("{\"version\": 1, \"job_id\": 1, \"node\": []}", "unknown field `node`"),
        ] {
            let message = read(text).unwrap_err().to_string();
            assert!(message.contains(what) && message.contains("manifest.json"), "{message}");
        }
        let missing = Manifest::read(Path::new("no/such/manifest.json")).unwrap_err().to_string();
        assert!(missing.contains("no/such/manifest.json: the manifest cannot be read"), "{missing}");
    }
}
