//! The fingerprint of a task: the files and the options that its partial profile is made from.

use super::plan::{PlanTask, SlurmPlan};
use crate::cli::common::files;
use crate::pipeline;
use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Inputs of a partial profile. While the fingerprint stays the same, the profile is up to date.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TaskFingerprint {
    files: Vec<FileFingerprint>,
    options: Vec<String>,
    ibscope: String,
}

/// One file of the capture.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FileFingerprint {
    path: PathBuf,
    length_bytes: u64,
    modified_ns: u128,
    /// Its clock, if the merge has written one.
    clock: Option<String>,
}

impl TaskFingerprint {
    /// The fingerprint of the files and the options as they are now.
    pub(super) fn current(part: &PlanTask<'_>, plan: &SlurmPlan, clocks: Option<&Path>) -> anyhow::Result<Self> {
        let clocks = files::clocks(clocks)?.unwrap_or_default();
        let of_file = |path: &PathBuf| {
            let failed = || format!("{}: cannot be read", path.display());
            let found = fs::metadata(path).with_context(failed)?;
            let modified = found.modified().with_context(failed)?.duration_since(SystemTime::UNIX_EPOCH);
            Ok(FileFingerprint {
                path: path.clone(),
                length_bytes: found.len(),
                modified_ns: modified.unwrap_or_default().as_nanos(),
                clock: clocks.get(path).map(|clock| format!("{clock:?}")),
            })
        };
        Ok(Self {
            files: part.files.iter().map(of_file).collect::<anyhow::Result<_>>()?,
            options: plan.options.clone(),
            ibscope: env!("CARGO_PKG_VERSION").to_owned(),
        })
    }

    /// True if the partial profile exists and has this fingerprint.
    pub(super) fn matches(&self, part: &PlanTask<'_>) -> bool {
        let text = fs::read_to_string(&part.fingerprint).unwrap_or_default();
        serde_json::from_str::<Self>(&text).is_ok_and(|stored| stored == *self) && pipeline::is_profile(&part.profile)
    }
}
