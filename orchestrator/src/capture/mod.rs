//! Programs that capture: how they are called, say that they are ready, and tell what they have.

mod ibdump;
mod tcpdump;

pub use crate::config::CaptureBackend;

use crate::config::Config;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

/// What a program says about its capture when it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Packets in the file.
    pub packets: u64,
    /// Their bytes, where it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Packets that it knows it has lost, where it says so. ibdump never does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<u64>,
}

impl CaptureBackend {
    /// Whether what the program has said (standard output and standard error) tells that it captures. Both may say it late, or when
    /// they end, because their output is buffered: silence is no failure as long as they run and the file is there.
    pub fn is_ready(self, log: &str) -> bool {
        match self {
            Self::Ibdump => ibdump::is_ready(log),
            Self::Tcpdump => tcpdump::is_ready(log),
        }
    }

    /// What the program has captured, after its end. Both end well on SIGINT and SIGTERM, and lose the file's tail on SIGKILL.
    pub fn counted(self, log: &str) -> Option<Counted> {
        match self {
            Self::Ibdump => ibdump::counted(log),
            Self::Tcpdump => tcpdump::counted(log),
        }
    }

    /// Packets are with the program so long after they came: those that the kernel still keeps for tcpdump when it is stopped are lost, and it keeps them for up to
    /// a second where there are few.
    pub fn behind(self) -> Duration {
        match self {
            Self::Ibdump => Duration::ZERO,
            Self::Tcpdump => Duration::from_millis(1200),
        }
    }

    /// What it rounds times to: ibdump writes microseconds, tcpdump is asked for nanoseconds.
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

/// The call that captures a port of an adapter into a file.
pub(crate) fn argv(config: &Config, adapter: &str, port: u8, file: &Path) -> Vec<String> {
    match config.capture.backend {
        CaptureBackend::Ibdump => ibdump::argv(config, adapter, port, file),
        CaptureBackend::Tcpdump => tcpdump::argv(config, adapter, file),
    }
}

/// A path of the configuration's, which are all UTF-8.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// An option with its value, where there is one.
fn option(name: &str, value: Option<impl ToString>) -> impl Iterator<Item = String> {
    value.map(|value| [name.to_owned(), value.to_string()]).into_iter().flatten()
}
