//! The error for a command line that clap accepts but that contradicts itself.

/// Arguments that contradict each other or are impossible. The exit code is 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(in crate::cli) struct UsageError(pub(in crate::cli) &'static str);
