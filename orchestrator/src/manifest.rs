//! The manifest of a run: which nodes and ports were captured where, and by which clock. A JSON file beside the captures.

use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

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
    /// It is of another version.
    #[error("{}: a manifest of version {found}; this program reads version {VERSION}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
}

/// One port of a compute node whose traffic was mirrored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// Host name of the node.
    pub node: String,
    /// GUID of the port.
    pub port_guid: u64,
    /// Base LID of the port.
    pub lid: u16,
    /// LID mask control: the port answers to `2^lmc` LIDs from the base LID on.
    pub lmc: u8,
    /// GUID of the leaf switch.
    pub leaf_guid: u64,
    /// Port of the leaf switch that the node is connected to.
    pub leaf_port: u8,
}

/// How the clock that stamped a capture runs against the run's reference clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureClock {
    /// A time on the capture's clock, nanoseconds since the epoch: where `offset_ns` holds.
    pub at_ns: i64,
    /// By how much it was ahead of the reference then, in nanoseconds.
    pub offset_ns: i64,
    /// How much faster it runs, in parts per million.
    #[serde(default)]
    pub drift_ppm: f64,
    /// The truth is not farther from this than so much.
    #[serde(default)]
    pub uncertainty_ns: u64,
}

/// One capture that was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capture {
    /// Host name of the node that captured.
    pub sink: String,
    /// The file; relative to the folder of the manifest unless it is absolute.
    pub file: PathBuf,
    /// Ports that were mirrored to the sink, by GUID.
    pub port_guids: Vec<u64>,
    /// Its clock, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<CaptureClock>,
}

/// A run of the orchestrator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// [`VERSION`].
    pub version: u32,
    /// Slurm job id.
    pub job_id: u32,
    /// The job's ports.
    #[serde(default)]
    pub ports: Vec<Port>,
    /// The captures of their traffic.
    #[serde(default)]
    pub captures: Vec<Capture>,
}

impl Manifest {
    /// Reads a manifest; the paths of its captures become those as seen from here.
    pub fn read(path: &Path) -> Result<Self, ManifestError> {
        let text = fs::read_to_string(path).map_err(|source| ManifestError::Read { path: path.to_owned(), source })?;
        let mut manifest: Self =
            serde_json::from_str(&text).map_err(|source| ManifestError::Format { path: path.to_owned(), source })?;
        if manifest.version != VERSION {
            return Err(ManifestError::Version { path: path.to_owned(), found: manifest.version });
        }
        let folder = path.parent().unwrap_or(Path::new(""));
        for capture in &mut manifest.captures {
            capture.file = folder.join(&capture.file);
        }
        Ok(manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ("{\"version\": 1, \"job_id\": 1, \"nodes\": []}", "unknown field `nodes`"),
        ] {
            let message = read(text).unwrap_err().to_string();
            assert!(message.contains(what) && message.contains("manifest.json"), "{message}");
        }
        let missing = Manifest::read(Path::new("no/such/manifest.json")).unwrap_err().to_string();
        assert!(missing.contains("no/such/manifest.json: the manifest cannot be read"), "{missing}");
    }
}
