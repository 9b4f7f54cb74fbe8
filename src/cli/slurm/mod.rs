//! `ibscope slurm-analyze`: analyzes many captures on a cluster, with one task of an array job per
//! capture (all files of a rotated one) or per share of a capture, and a job that merges the partial
//! profiles.
//!
//! In: captures. Out: one folder next to the output profile, with the plan, the two job scripts,
//! and the log, the partial profile and the fingerprint of each task. Invariant: while a capture
//! exists, a partial profile counts only if the fingerprint matches the capture, the options, and the
//! files that the options name. A task that runs again therefore skips finished work, and so does a
//! second call of the command.

pub(super) mod analyze;
mod fingerprint;
pub(super) mod merge;
mod options;
mod plan;
mod rotation;
pub(super) mod task;
