//! The manifest of a run: which nodes and ports were captured where, and by which clock. A JSON file beside the captures.

mod clock;
mod make;

pub use clock::{CaptureClock, Exchange};
pub use make::FILE_NAME;

use crate::capture::Counted;
use crate::fabric::NodePort;
use crate::guid;
use crate::name::{self, NameError};
use crate::text_file;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The highest LID of a port; those above are of multicast groups.
const HIGHEST_LID: u16 = 0xbfff;

/// The highest LMC.
const HIGHEST_LMC: u8 = 7;

/// Version of the format that this program reads.
pub const VERSION: u32 = 1;

/// A manifest that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The file could not be read.
    #[error("{}: the manifest cannot be read: {source}; check the path and who may read it", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is no manifest.
    #[error("{}: not a manifest: {source}; give the manifest.json that the orchestrator left beside the captures", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong, with line and column.
        source: serde_json::Error,
    },
    /// A port in it cannot be.
    #[error("{}: {node} has LID {lid} with LMC {lmc}; expected a LID below 49152 and an LMC up to 7", path.display())]
    Port {
        /// The file.
        path: PathBuf,
        /// The node.
        node: String,
        /// Its LID.
        lid: u16,
        /// Its LMC.
        lmc: u8,
    },
    /// A name in it that none can have.
    #[error("{}: {source}", path.display())]
    Name {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: NameError,
    },
    /// The file could not be written.
    #[error("{}: the manifest cannot be written: {source}; check the folder, its owner and the space that is left", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is of another version.
    #[error("{}: a manifest of version {found}; this program reads version {VERSION}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
}

/// A port of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// Host name of the node.
    pub node: String,
    /// Its adapter, such as `mlx5_0`; empty where it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ca: String,
    /// Number of the adapter's port; 0 where it is not known.
    #[serde(default)]
    pub port: u8,
    /// GUID of the port.
    #[serde(with = "guid")]
    pub port_guid: u64,
    /// Base LID of the port.
    pub lid: u16,
    /// LID mask control: the port answers to `2^lmc` LIDs from the base LID on.
    pub lmc: u8,
    /// GUID of the leaf switch.
    #[serde(with = "guid")]
    pub leaf_guid: u64,
    /// Port of the leaf switch that the node is connected to.
    pub leaf_port: u8,
}

impl From<&NodePort> for Port {
    fn from(port: &NodePort) -> Self {
        let NodePort { node, ca, port, port_guid, lid, lmc, leaf_guid, leaf_port, .. } = port.clone();
        Self { node, ca, port, port_guid, lid, lmc, leaf_guid, leaf_port }
    }
}

/// How a capture ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ended {
    /// The signal that it ended after, such as `INT`; none where it had ended by itself. After `KILL` the end of the file is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Its exit status, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<i32>,
    /// What the program said about its count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<Counted>,
}

/// One capture that was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capture {
    /// Host name of the node that captured.
    pub sink: String,
    /// The file; relative to the folder of the manifest unless it is absolute.
    pub file: PathBuf,
    /// Whether that is a path on the sink, because the file was left there.
    #[serde(default)]
    pub on_sink: bool,
    /// Ports that were mirrored to the sink, by GUID.
    #[serde(with = "guid::list")]
    pub port_guids: Vec<u64>,
    /// Bytes of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// SHA-256 of the file, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
    /// Its clock, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<CaptureClock>,
    /// What its times are rounded to, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution_ns: Option<u64>,
}

/// Ports that were mirrored to a sink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mirror {
    /// GUID of the leaf switch.
    #[serde(with = "guid")]
    pub leaf_guid: u64,
    /// LID of the leaf switch.
    pub leaf_lid: u16,
    /// Its ports that were copied.
    pub ports: Vec<u8>,
    /// The node that the copies went to.
    pub sink: String,
    /// Port of the leaf that they left by.
    pub sink_port: u8,
    /// Copies that the switch dropped, where it counts them. Switches for InfiniBand do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<u64>,
}

/// A command that was run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandRun {
    /// Where it ran; nothing where the orchestrator did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// When it was started, in nanoseconds since the epoch.
    pub at_ns: i64,
    /// How long it took.
    #[serde(default)]
    pub took_ns: u64,
    /// Its exit status; nothing where it could not be run, or was cut off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<i32>,
    /// What it had to say where it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A run of the orchestrator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// [`VERSION`].
    pub version: u32,
    /// Slurm job id.
    pub job_id: u32,
    /// Name of the run, as its files have it.
    #[serde(default)]
    pub run: String,
    /// The job's user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The job's nodes, in its order.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// Those of them that MPI was to run on.
    #[serde(default)]
    pub compute_nodes: Vec<String>,
    /// Start of the run, in nanoseconds since the epoch.
    #[serde(default)]
    pub started_ns: i64,
    /// When it was undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ns: Option<i64>,
    /// Ports of the nodes that compute.
    #[serde(default)]
    pub ports: Vec<Port>,
    /// Ports that captured their traffic.
    #[serde(default)]
    pub sinks: Vec<Port>,
    /// What was mirrored.
    #[serde(default)]
    pub mirrors: Vec<Mirror>,
    /// The captures.
    #[serde(default)]
    pub captures: Vec<Capture>,
    /// Commands that were run, in order.
    #[serde(default)]
    pub commands: Vec<CommandRun>,
    /// What a reader should know: what was planned with doubts, and what went wrong.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl Manifest {
    /// Reads a manifest; the paths of its captures become those as seen from here.
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

    /// Names and numbers go to terminals and tables.
    fn check(&self, path: &Path) -> Result<(), ManifestError> {
        let named = |result: Result<(), NameError>| {
            result.map_err(|source| ManifestError::Name { path: path.to_owned(), source })
        };
        for Port { node, ca, lid, lmc, .. } in self.ports.iter().chain(&self.sinks) {
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
    fn files_are_relative_to_the_manifest() {
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
            (&PORT.replace("n001", "\\u001b[31m"), "node name \"\\u{1b}[31m\" is refused"),
            ("{\"version\": 1, \"job_id\": 1, \"node\": []}", "unknown field `node`"),
        ] {
            let message = read(text).unwrap_err().to_string();
            assert!(message.contains(what) && message.contains("manifest.json"), "{message}");
        }
        let missing = Manifest::read(Path::new("no/such/manifest.json")).unwrap_err().to_string();
        assert!(missing.contains("no/such/manifest.json: the manifest cannot be read"), "{missing}");
    }
}
