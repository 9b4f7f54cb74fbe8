//! The section on how sinks capture.

use super::{Owner, value};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The program that captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaptureBackend {
    /// ibdump: InfiniBand, on an HCA of NVIDIA's.
    Ibdump,
    /// tcpdump: `RoCE`.
    Tcpdump,
}

/// How sinks capture.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capture {
    /// By what.
    pub backend: CaptureBackend,
    /// Folder on the sinks. Every sink has its own file there, named by job, start and node.
    #[serde(deserialize_with = "value::path")]
    pub directory: PathBuf,
    /// Bytes that must be free in the folder before a capture starts.
    #[serde(default)]
    pub disk_limit_bytes: u64,
    /// Who owns captures and manifest; else who made them.
    #[serde(default)]
    pub owner: Option<Owner>,
    /// A capture that does not run after so long has failed to start, in seconds.
    #[serde(default = "default::ready_s", deserialize_with = "value::seconds")]
    pub ready_s: u32,
    /// A capture that has not ended so long after a signal gets the next one, in seconds.
    #[serde(default = "default::stop_s", deserialize_with = "value::seconds")]
    pub stop_s: u32,
    /// For `backend = "ibdump"`.
    #[serde(default)]
    pub ibdump: Ibdump,
    /// For `backend = "tcpdump"`.
    #[serde(default)]
    pub tcpdump: Tcpdump,
}

/// Options of ibdump.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ibdump {
    /// Packets that may come in one burst, as a power of two (`-b`); 12 without it.
    #[serde(deserialize_with = "value::some_burst")]
    pub max_burst_log2: Option<u8>,
    /// Bytes of a buffer in front of the file, emptied by a thread of its own (`-p`).
    pub writer_thread_bytes: Option<u64>,
    /// Bytes of memory that packets are kept in until the end (`-M`); the capture ends when it is full.
    pub memory_bytes: Option<u64>,
}

/// Options of tcpdump.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tcpdump {
    /// Device to capture at; the HCA by its own name without it.
    #[serde(deserialize_with = "value::some_device")]
    pub interface: Option<String>,
    /// Bytes kept of each packet (`-s`).
    pub snaplen: Option<u32>,
    /// KiB of the kernel's buffer (`-B`).
    pub buffer_kib: Option<u32>,
    /// Which packets are kept; all without it.
    #[serde(deserialize_with = "value::some_filter")]
    pub filter: Option<String>,
}

/// What stands where a key is not given.
mod default {
    pub(super) fn ready_s() -> u32 {
        3
    }

    pub(super) fn stop_s() -> u32 {
        5
    }
}
