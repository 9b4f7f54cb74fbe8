//! The value of `--job`.

/// A job, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum JobChoice {
    /// All jobs, each on its own.
    All,
    /// The job of this number.
    Only(u32),
}
