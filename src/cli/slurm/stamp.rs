//! What the profile of a part is of.

use super::plan::{Part, Plan};
use crate::cli::common::files;
use crate::pipeline;
use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use std::time::SystemTime;

/// Of what the profile of a part is: while this stays the same there is nothing to do.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stamp {
    length_bytes: u64,
    modified_ns: u128,
    options: Vec<String>,
    /// The clock of the capture, where the merge has found one, as its row of the file of clocks.
    clock: Option<String>,
    ibscope: String,
}

impl Stamp {
    /// As it is now.
    pub(super) fn now(part: &Part<'_>, plan: &Plan, clocks: Option<&Path>) -> anyhow::Result<Self> {
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
    pub(super) fn is_of(&self, part: &Part<'_>) -> bool {
        let text = fs::read_to_string(&part.stamp).unwrap_or_default();
        serde_json::from_str::<Self>(&text).is_ok_and(|stamp| stamp == *self) && pipeline::is_profile(&part.profile)
    }
}
