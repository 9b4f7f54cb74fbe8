//! `ibscope slurm-task`: analyzes the capture of one task, or a share of it.

use super::fingerprint::TaskFingerprint;
use super::options::parse_options;
use super::plan::{PlanTask, SlurmPlan, replace};
use crate::cli::analyze;
use crate::cli::common::output;
use anyhow::{Context as _, bail};
use clap::Args;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub(in crate::cli) struct SlurmTaskArgs {
    /// Folder that `slurm-analyze` wrote
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Number of the task, from 0
    #[arg(value_name = "TASK")]
    task: usize,
}

/// Runs `ibscope slurm-task`: analyzes one capture or share, unless that is done already.
pub(in crate::cli) fn run(args: &SlurmTaskArgs) -> anyhow::Result<ExitCode> {
    let plan = SlurmPlan::read(&args.folder)?;
    let parts = plan.tasks(&args.folder);
    let Some(part) = parts.get(args.task) else {
        bail!("{}: the plan has tasks 0 to {} only", args.folder.display(), parts.len().saturating_sub(1));
    };
    let clocks = Some(SlurmPlan::clocks(&args.folder)).filter(|path| path.exists());
    let fingerprint = TaskFingerprint::current(part, &plan, clocks.as_deref())?;
    if fingerprint.matches(part) {
        output::eprint_line(&format!("{}: is already analyzed and has not changed", part.capture()));
        return Ok(ExitCode::SUCCESS);
    }
    tidy(part)?;
    let mut analyze = parse_options(part.files, &part.profile, &plan.options)?;
    (analyze.clocks, analyze.share) = (clocks, part.share);
    // Without a stop signal: an interrupted task starts over, because half a capture must not pass
    // for a whole one.
    let code = analyze::run_until(&analyze, None)?;
    // The fingerprint from before the analysis, so that a capture that has grown since is analyzed
    // again, and so is one whose table was corrected since.
    replace(&part.fingerprint, &serde_json::to_vec_pretty(&fingerprint)?)?;
    Ok(code)
}

/// Removes the fingerprint of the profile to be replaced, and the scratch files that a killed run
/// of this task left behind.
fn tidy(part: &PlanTask<'_>) -> anyhow::Result<()> {
    if part.fingerprint.exists() {
        fs::remove_file(&part.fingerprint)
            .with_context(|| format!("{}: cannot be removed", part.fingerprint.display()))?;
    }
    let mut begun = part.profile.file_name().unwrap_or_default().to_owned();
    begun.push(".part-");
    let Some(folder) = part.profile.parent() else { return Ok(()) };
    let failed = || format!("{}: cannot be read", folder.display());
    for entry in fs::read_dir(folder).with_context(failed)? {
        let entry = entry.with_context(failed)?;
        if entry.file_name().as_encoded_bytes().starts_with(begun.as_encoded_bytes()) {
            // Another run of this task may have removed it.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}
