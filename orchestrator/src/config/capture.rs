//! The section `[capture]`: how sinks capture.

use super::{Owner, value};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Capture program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaptureBackend {
    /// ibdump: InfiniBand, on an NVIDIA HCA.
    Ibdump,
    /// tcpdump: `RoCE`.
    Tcpdump,
}

/// Data that a capture keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CaptureMode {
    /// All packets, in a file.
    #[default]
    Packets,
    /// Only a profile: the sink analyzes the packets while they arrive, and stores none of them.
    Profile,
}

/// Limits of the analysis on a sink, for `mode = "profile"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProfileOptions {
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Cores.
    #[serde(deserialize_with = "value::at_least_one")]
    pub cpus: u32,
    /// Bytes of packets that may wait for the analysis.
    pub queue_bytes: u64,
}

impl Default for ProfileOptions {
    fn default() -> Self {
        Self { memory_bytes: 4 << 30, cpus: 1, queue_bytes: 64 << 20 }
    }
}

/// Capturing on the sinks.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureConfig {
    /// Capture program.
    pub backend: CaptureBackend,
    /// What a capture keeps.
    #[serde(default)]
    pub mode: CaptureMode,
    /// Limits of the analysis for `mode = "profile"`.
    #[serde(default)]
    pub profile: ProfileOptions,
    /// Folder on the sinks. Each sink writes a file of its own in it, named after job, start time
    /// and node.
    #[serde(deserialize_with = "value::path")]
    pub directory: PathBuf,
    /// Bytes that must be free in the folder before a capture starts.
    #[serde(default)]
    pub min_free_bytes: u64,
    /// A capture ends when its file has this many bytes.
    #[serde(default, deserialize_with = "value::some_limit")]
    pub max_bytes: Option<u64>,
    /// Keep this many of the newest files of a capture, which have `max_bytes` together, instead of
    /// ending the capture at `max_bytes`.
    #[serde(default, deserialize_with = "value::some_ring")]
    pub ring_files: Option<u32>,
    /// A capture ends after this many seconds.
    #[serde(default, deserialize_with = "value::some_limit")]
    pub max_s: Option<u64>,
    /// Bytes that all captures in the folder of a sink may use. Captures of ended jobs are deleted,
    /// the oldest first, so that there is room for one of `max_bytes`.
    #[serde(default, deserialize_with = "value::some_limit")]
    pub disk_limit_bytes: Option<u64>,
    /// Captures that stay on the sinks are deleted this many days after they ended.
    #[serde(default, deserialize_with = "value::some_limit")]
    pub keep_days: Option<u64>,
    /// Owner of captures and manifest. Default: the user that created them.
    #[serde(default)]
    pub owner: Option<Owner>,
    /// A capture that does not run after this many seconds has failed to start.
    #[serde(default = "default::ready_s", deserialize_with = "value::seconds")]
    pub ready_s: u32,
    /// A capture that does not end within this many seconds after a signal gets the next signal.
    #[serde(default = "default::stop_s", deserialize_with = "value::seconds")]
    pub stop_s: u32,
    /// Options for `backend = "ibdump"`.
    #[serde(default)]
    pub ibdump: Ibdump,
    /// Options for `backend = "tcpdump"`.
    #[serde(default)]
    pub tcpdump: Tcpdump,
}

impl CaptureConfig {
    /// Bytes on a sink that one capture may need: the files of a ring are joined at the end, and stay
    /// until then.
    pub(crate) fn needed_bytes(&self) -> Option<u64> {
        let copies = if self.ring_files.is_some() { 2 } else { 1 };
        self.max_bytes.map(|bytes| bytes.saturating_mul(copies))
    }

    /// Bytes of each file of a ring, in the unit of tcpdump.
    pub(crate) fn ring_file_megabytes(&self) -> Option<u64> {
        let files = u64::from(self.ring_files?);
        Some(self.max_bytes? / files / 1_000_000)
    }
}

/// Options of ibdump.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ibdump {
    /// Largest burst in packets, as a power of two (`-b`). Default: 12, chosen by ibdump.
    #[serde(deserialize_with = "value::some_burst")]
    pub max_burst_log2: Option<u8>,
    /// Bytes of the buffer that a separate thread writes to the file (`-p`).
    pub writer_thread_bytes: Option<u64>,
    /// Bytes of memory that hold the packets until the end (`-M`). The capture ends when it is
    /// full.
    pub memory_bytes: Option<u64>,
}

/// Options of tcpdump.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tcpdump {
    /// Device to capture at. Default: the HCA by its own name.
    #[serde(deserialize_with = "value::some_device")]
    pub interface: Option<String>,
    /// Bytes to keep of each packet (`-s`).
    pub snaplen: Option<u32>,
    /// Size of the kernel's buffer in KiB (`-B`).
    pub buffer_kib: Option<u32>,
    /// Filter for the packets to keep. Default: all packets.
    #[serde(deserialize_with = "value::some_filter")]
    pub filter: Option<String>,
}

/// Default values of keys.
mod default {
    pub(super) fn ready_s() -> u32 {
        3
    }

    pub(super) fn stop_s() -> u32 {
        5
    }
}
