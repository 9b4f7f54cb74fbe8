//! `ibscope slurm-analyze`: many captures on a cluster, one task of an array job for each, and a job that merges what they leave.
//!
//! Everything is in one folder beside the profile that is to come: the plan, the two job scripts, the profile of each part with a stamp
//! that says of what it is, and what the tasks printed. So a task that runs again finds what is done, and giving the command once more does what is left.

pub(super) mod analyze;
pub(super) mod merge;
mod options;
mod plan;
mod stamp;
pub(super) mod task;
