//! What the jobs run: one part, or the merge of all.

use super::plan::{Part, Plan, replace};
use super::{SlurmMerge, SlurmTask, typed};
use crate::cli::args::Merge;
use crate::cli::{commands, files, output};
use crate::pipeline;
use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

/// Parts that a message names.
const MOST_NAMED: usize = 8;

/// Of what the profile of a part is: while this stays the same there is nothing to do.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    length_bytes: u64,
    modified_ns: u128,
    options: Vec<String>,
    /// The clock of the capture, where the merge has found one, as its row of the file of clocks.
    clock: Option<String>,
    ibscope: String,
}

impl Stamp {
    /// As it is now.
    fn now(part: &Part<'_>, plan: &Plan, clocks: Option<&Path>) -> anyhow::Result<Self> {
        let failed = || format!("{}: cannot be read", part.capture.display());
        let found = fs::metadata(part.capture).with_context(failed)?;
        let modified = found.modified().with_context(failed)?.duration_since(SystemTime::UNIX_EPOCH);
        let clocks = files::clocks(clocks)?.unwrap_or_default();
        Ok(Self {
            length_bytes: found.len(),
            modified_ns: modified.unwrap_or_default().as_nanos(),
            options: plan.options.clone(),
            clock: clocks.get(part.capture).map(|clock| format!("{clock:?}")),
            ibscope: env!("CARGO_PKG_VERSION").to_owned(),
        })
    }

    /// True where the part's profile is of this.
    fn is_of(&self, part: &Part<'_>) -> bool {
        let text = fs::read_to_string(&part.stamp).unwrap_or_default();
        serde_json::from_str::<Self>(&text).is_ok_and(|stamp| stamp == *self) && pipeline::is_profile(&part.profile)
    }
}

/// `ibscope slurm-task`: analyses one capture, if that is not done.
pub(in crate::cli) fn task(args: &SlurmTask) -> anyhow::Result<ExitCode> {
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
    let code = commands::analyze_until(&analyze, None)?;
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

/// `ibscope slurm-merge`: merges the parts, if all are there.
pub(in crate::cli) fn merge(args: &SlurmMerge) -> anyhow::Result<ExitCode> {
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
    crate::cli::merge::run_with(
        &merge,
        &notes,
        "submit the jobs again: captures whose clock has changed are analysed again",
    )
}
