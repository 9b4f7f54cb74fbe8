//! Capture programs: their command lines, and how their output shows that they are ready and how
//! many packets they captured.

mod ibdump;
mod tcpdump;

pub use crate::config::CaptureBackend;

use crate::config::{Config, ProfileOptions};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Counts that a capture program prints when it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketCounts {
    /// Packets in the file.
    pub packets: u64,
    /// Bytes of these packets, if the program prints them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Packets that the program lost, if it reports them. ibdump never does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<u64>,
}

/// Limits of a capture, which its node enforces. A capture is stopped within about a second after
/// it reached a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureLimits {
    /// Size of the file in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// Duration in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_s: Option<u64>,
}

impl CaptureLimits {
    /// True if there is no limit.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// The limits of the configuration.
    pub(crate) fn of(config: &Config) -> Self {
        // A ring never exceeds its size.
        let max_bytes = config.capture.max_bytes.filter(|_| config.capture.ring_files.is_none());
        Self { max_bytes, max_s: config.capture.max_s }
    }
}

/// Records that were analyzed while they were captured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileCounts {
    /// Packets that the analysis received.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Packets that the analysis could not keep up with. They are not in the profile.
    pub dropped_packets: u64,
    /// Bytes of these packets.
    pub dropped_bytes: u64,
    /// How memory and CPU of the analysis were limited.
    pub limited_by: String,
}

impl ProfileCounts {
    /// Prefix of the counts, as JSON, in the log of a capture.
    pub const PREFIX: &str = "ibscope: profile ";

    /// Counts in the log of a capture.
    pub(crate) fn of_log(log: &str) -> Option<Self> {
        serde_json::from_str(log.lines().rev().find_map(|line| line.strip_prefix(Self::PREFIX))?).ok()
    }
}

/// The ring of files of a capture, which are joined at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureRing {
    /// Number of files that the ring can have.
    pub files: u32,
    /// True if the ring had all its files at the end: earlier packets may have been overwritten.
    pub is_full: bool,
}

/// A limit that ended a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaptureLimit {
    /// `capture.max_bytes`
    MaxBytes,
    /// `capture.max_s`
    MaxS,
}

impl CaptureLimit {
    /// Name of the key in the section `[capture]`.
    pub fn key(self) -> &'static str {
        match self {
            Self::MaxBytes => "max_bytes",
            Self::MaxS => "max_s",
        }
    }
}

impl CaptureBackend {
    /// True if the program's output (standard output and standard error) shows that it is
    /// capturing.
    ///
    /// Both programs buffer their output, and may print the line late or only when they end. A
    /// missing line is not a failure while the program runs and its file exists.
    pub fn is_ready(self, log: &str) -> bool {
        match self {
            Self::Ibdump => ibdump::is_ready(log),
            Self::Tcpdump => tcpdump::is_ready(log),
        }
    }

    /// Counts that the program printed when it ended. Both programs end cleanly on SIGINT and
    /// SIGTERM; SIGKILL truncates the file.
    pub fn packet_counts(self, log: &str) -> Option<PacketCounts> {
        match self {
            Self::Ibdump => ibdump::packet_counts(log),
            Self::Tcpdump => tcpdump::packet_counts(log),
        }
    }

    /// Time from the arrival of a packet until the program receives it. The kernel keeps packets
    /// for tcpdump for up to a second at low rates, and drops them if tcpdump is stopped earlier.
    pub fn buffering_delay(self) -> Duration {
        match self {
            Self::Ibdump => Duration::ZERO,
            Self::Tcpdump => Duration::from_millis(1200),
        }
    }

    /// Resolution of the timestamps: ibdump writes microseconds; tcpdump is called with an option
    /// for nanoseconds.
    pub fn resolution_ns(self) -> u64 {
        match self {
            Self::Ibdump => 1_000,
            Self::Tcpdump => 1,
        }
    }

    /// Name of the program.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ibdump => "ibdump",
            Self::Tcpdump => "tcpdump",
        }
    }
}

/// Command line that captures one port of an adapter and analyzes the packets at once. The partial
/// profile is written to an archive.
pub(crate) fn profile_argv(config: &Config, adapter: &str, port: u8, archive: &Path) -> Vec<String> {
    let ProfileOptions { memory_bytes, cpus, queue_bytes } = config.capture.profile;
    let packets = relay_folder(archive).join("packets");
    let mut words = vec![text(&config.tools.ibscope)];
    words.extend(["capture", "relay", "--packets"].map(str::to_owned));
    words.extend([text(&packets), "--profile".to_owned(), text(archive)]);
    words.extend(option("--queue-bytes", Some(queue_bytes)));
    words.extend(option("--memory-bytes", Some(memory_bytes)));
    words.extend(option("--cpus", Some(cpus)));
    words.push("--".to_owned());
    words.extend(argv(config, adapter, port, &packets));
    words
}

/// Folder that the relay of a profile creates and removes.
pub(crate) fn relay_folder(archive: &Path) -> PathBuf {
    archive.with_extension("").with_extension("relay")
}

/// Command line that captures one port of an adapter into a file.
pub(crate) fn argv(config: &Config, adapter: &str, port: u8, file: &Path) -> Vec<String> {
    match config.capture.backend {
        CaptureBackend::Ibdump => ibdump::argv(config, adapter, port, file),
        CaptureBackend::Tcpdump => tcpdump::argv(config, adapter, file),
    }
}

/// A path of the configuration as text. The configuration has only UTF-8 paths.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// An option and its value; nothing if there is no value.
fn option(name: &str, value: Option<impl ToString>) -> impl Iterator<Item = String> {
    value.map(|value| [name.to_owned(), value.to_string()]).into_iter().flatten()
}
