//! The fingerprint of a task: the capture and the options that its partial profile is made from.

use super::plan::{PlanTask, SlurmPlan};
use crate::cli::common::files;
use crate::pipeline;
use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use std::time::SystemTime;

/// Inputs of a partial profile. While the fingerprint stays the same, the profile is up to date.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TaskFingerprint {
    length_bytes: u64,
    modified_ns: u128,
    options: Vec<String>,
    /// The clock of the capture, if the merge has written one.
    clock: Option<String>,
    ibscope: String,
}

impl TaskFingerprint {
    /// The fingerprint of the capture and the options as they are now.
    pub(super) fn current(part: &PlanTask<'_>, plan: &SlurmPlan, clocks: Option<&Path>) -> anyhow::Result<Self> {
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

    /// True if the partial profile exists and has this fingerprint.
    pub(super) fn matches(&self, part: &PlanTask<'_>) -> bool {
        let text = fs::read_to_string(&part.fingerprint).unwrap_or_default();
        serde_json::from_str::<Self>(&text).is_ok_and(|stored| stored == *self) && pipeline::is_profile(&part.profile)
    }
}
