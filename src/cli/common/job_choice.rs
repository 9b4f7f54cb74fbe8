//! Which job a command shows.

/// A job, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum JobChoice {
    /// Each for itself.
    All,
    /// The job of this number.
    Only(u32),
}
