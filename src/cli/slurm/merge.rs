//! `ibscope slurm-merge`: the merge of all parts.

use super::plan::Plan;
use super::stamp::Stamp;
use crate::cli::merge::{self, Merge};
use crate::pipeline;
use anyhow::bail;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Parts that a message names.
const MOST_NAMED: usize = 8;

#[derive(Debug, Args)]
pub(in crate::cli) struct SlurmMerge {
    /// Folder of the plan
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Merge the available partial profiles if some are missing, and note this in the profile
    #[arg(long)]
    allow_missing: bool,
}

/// `ibscope slurm-merge`: merges the parts, if all are there.
pub(in crate::cli) fn run(args: &SlurmMerge) -> anyhow::Result<ExitCode> {
    let plan = Plan::read(&args.folder)?;
    let clocks = Plan::clocks(&args.folder);
    let known = Some(clocks.as_path()).filter(|path| path.exists());
    let mut profiles = Vec::new();
    let mut lacking = Vec::new();
    let parts = plan.parts(&args.folder);
    for (task, part) in parts.iter().enumerate() {
        // A capture that is gone by now was analysed while it was there.
        let is_there = match Stamp::now(part, &plan, known) {
            Ok(stamp) => stamp.is_of(part),
            Err(_) => part.stamp.exists() && pipeline::is_profile(&part.profile),
        };
        if is_there { profiles.push(part.profile.clone()) } else { lacking.push((task, part.capture)) }
    }
    let mut notes = Vec::new();
    if !lacking.is_empty() {
        let named =
            lacking.iter().take(MOST_NAMED).map(|(task, capture)| format!("{} (task {task})", capture.display()));
        let named = named.collect::<Vec<_>>().join(", ");
        let more = lacking.len().checked_sub(MOST_NAMED).filter(|more| *more > 0);
        let more = more.map(|more| format!(" and {more} more")).unwrap_or_default();
        let what = format!("{} of {} captures are not analysed: {named}{more}", lacking.len(), parts.len());
        if !args.allow_missing || profiles.is_empty() {
            let folder = args.folder.display();
            bail!(
                "{what}; {folder}/analyze-TASK.log says why. Submit the jobs again: what is done stays. Or merge without them: \
                 `ibscope slurm-merge --allow-missing {folder}`"
            );
        }
        notes.push(what);
    }
    let merge = Merge::of(profiles, plan.output.clone(), clocks);
    merge::run_with(&merge, &notes, "submit the jobs again: captures whose clock has changed are analysed again")
}
