//! `ibscope slurm-analyze`: analyzes many captures on a cluster, with one task of an array job per
//! capture, and a job that merges the partial profiles.
//!
//! In: captures. Out: one folder next to the output profile, with the plan, the two job scripts,
//! the log of each task, and a partial profile and a fingerprint per capture. Invariant: while a
//! capture exists, its partial profile counts only if the fingerprint matches the capture and the
//! options. A task that runs again therefore skips finished work, and so does a second call of the
//! command.

pub(super) mod analyze;
mod fingerprint;
pub(super) mod merge;
mod options;
mod plan;
pub(super) mod task;
