//! What cannot be asked for.

/// Arguments that contradict each other, or that cannot be.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(in crate::cli) struct UsageError(pub(in crate::cli) &'static str);
