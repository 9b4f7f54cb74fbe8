//! `ibscope slurm-merge`: merges the partial profiles of all tasks.

use super::fingerprint::TaskFingerprint;
use super::plan::{PlanTask, SlurmPlan};
use crate::cli::merge::{self, MergeArgs};
use crate::model::ranges;
use crate::pipeline;
use anyhow::bail;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Captures that a message lists by name.
const MAX_NAMED: usize = 8;

#[derive(Debug, Args)]
pub(in crate::cli) struct SlurmMergeArgs {
    /// Folder that `slurm-analyze` wrote
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Merge the available partial profiles if some are missing, and note this in the profile
    #[arg(long)]
    allow_missing: bool,
}

/// Runs `ibscope slurm-merge`. Fails if partial profiles are missing, unless `--allow-missing` is
/// given.
pub(in crate::cli) fn run(args: &SlurmMergeArgs) -> anyhow::Result<ExitCode> {
    let plan = SlurmPlan::read(&args.folder)?;
    let clocks = SlurmPlan::clocks(&args.folder);
    let known = Some(clocks.as_path()).filter(|path| path.exists());
    let mut profiles = Vec::new();
    let mut missing = Vec::new();
    let parts: Vec<(usize, PlanTask<'_>)> = plan.tasks(&args.folder).into_iter().enumerate().collect();
    // The fingerprint of a deleted capture cannot be computed. Its profile counts if the stored
    // fingerprint shows that the analysis was complete.
    let is_there = |part: &PlanTask<'_>| match TaskFingerprint::current(part, &plan, known) {
        Ok(fingerprint) => fingerprint.matches(part),
        Err(_) => part.fingerprint.exists() && pipeline::is_profile(&part.profile),
    };
    for shares in parts.chunk_by(|(_, a), (_, b)| a.files == b.files) {
        let absent: Vec<u32> =
            shares.iter().filter(|(_, part)| !is_there(part)).map(|(task, _)| *task as u32).collect();
        // A capture without one of its shares is as good as missing: the pairs of this share would look as
        // if they had no traffic.
        if absent.is_empty() {
            profiles.extend(shares.iter().map(|(_, part)| part.profile.clone()));
        } else {
            missing.extend(shares.first().map(|(_, part)| (part, absent)));
        }
    }
    let mut notes = Vec::new();
    if !missing.is_empty() {
        let named = missing.iter().take(MAX_NAMED).map(|(part, tasks)| {
            let noun = if tasks.len() == 1 { "task" } else { "tasks" };
            format!("{} ({noun} {})", part.capture(), ranges(tasks.iter().copied()))
        });
        let named = named.collect::<Vec<_>>().join(", ");
        let more = missing.len().checked_sub(MAX_NAMED).filter(|more| *more > 0);
        let more = more.map(|more| format!(" and {more} more")).unwrap_or_default();
        let what = format!("{} of {} captures are not analyzed: {named}{more}", missing.len(), plan.captures.len());
        if !args.allow_missing || profiles.is_empty() {
            let folder = args.folder.display();
            bail!(
                "{what}; {folder}/analyze-TASK.log shows why. Submit the jobs again (finished tasks are skipped), or merge without these captures: \
                 `ibscope slurm-merge --allow-missing {folder}`"
            );
        }
        notes.push(what);
    }
    let merge = MergeArgs::of(profiles, plan.output.clone(), clocks);
    merge::run_with(&merge, &notes, "submit the jobs again: they analyze the captures whose clock has changed")
}
