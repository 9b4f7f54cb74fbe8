//! `ibscope slurm-task`: one part.

use super::options::typed;
use super::plan::{Part, Plan, replace};
use super::stamp::Stamp;
use crate::cli::analyze;
use crate::cli::common::output;
use anyhow::{Context as _, bail};
use clap::Args;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub(in crate::cli) struct SlurmTask {
    /// Folder of the plan
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Number of the capture, from 0
    #[arg(value_name = "TASK")]
    task: usize,
}

/// `ibscope slurm-task`: analyses one capture, if that is not done.
pub(in crate::cli) fn run(args: &SlurmTask) -> anyhow::Result<ExitCode> {
    let plan = Plan::read(&args.folder)?;
    let parts = plan.parts(&args.folder);
    let Some(part) = parts.get(args.task) else {
        bail!("{}: its plan has tasks 0 to {}", args.folder.display(), parts.len().saturating_sub(1));
    };
    let clocks = Some(Plan::clocks(&args.folder)).filter(|path| path.exists());
    let stamp = Stamp::now(part, &plan, clocks.as_deref())?;
    if stamp.is_of(part) {
        output::say(&format!("{}: is analysed already, and has not changed since", part.capture.display()));
        return Ok(ExitCode::SUCCESS);
    }
    tidy(part)?;
    let mut analyze = typed(part.capture, &part.profile, &plan.options)?;
    analyze.clocks = clocks;
    // A task that is ended is done again, from the beginning: half a capture would be taken for all of it.
    let code = analyze::run_until(&analyze, None)?;
    // A capture that grew meanwhile is analysed again the next time.
    replace(&part.stamp, &serde_json::to_vec_pretty(&stamp)?)?;
    Ok(code)
}

/// Takes away what a task of this part has left that was killed, and the stamp of what will be replaced.
fn tidy(part: &Part<'_>) -> anyhow::Result<()> {
    if part.stamp.exists() {
        fs::remove_file(&part.stamp).with_context(|| format!("{}: cannot be removed", part.stamp.display()))?;
    }
    let mut begun = part.profile.file_name().unwrap_or_default().to_owned();
    begun.push(".part-");
    let Some(folder) = part.profile.parent() else { return Ok(()) };
    let failed = || format!("{}: cannot be read", folder.display());
    for entry in fs::read_dir(folder).with_context(failed)? {
        let entry = entry.with_context(failed)?;
        if entry.file_name().as_encoded_bytes().starts_with(begun.as_encoded_bytes()) {
            // Another run of this task may have been quicker.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}
