//! The fingerprint of a task: the files and the options that its partial profile is made from.

use super::options::parse_options;
use super::plan::{PlanTask, SlurmPlan};
use crate::cli::common::{files, input};
use crate::pipeline;
use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use xxhash_rust::xxh3::xxh3_128;

/// Inputs of a partial profile. While the fingerprint stays the same, the profile is up to date.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TaskFingerprint {
    files: Vec<FileFingerprint>,
    options: Vec<String>,
    /// The files that the options name.
    tables: Vec<TableFingerprint>,
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

/// A file that an option names, for example `--hosts hosts.csv`.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct TableFingerprint {
    path: PathBuf,
    /// XXH3-128 of its content, in hex; `None` if there is no such file.
    digest: Option<String>,
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
            tables: tables(part, plan)?,
            ibscope: env!("CARGO_PKG_VERSION").to_owned(),
        })
    }

    /// True if the partial profile exists and has this fingerprint.
    pub(super) fn matches(&self, part: &PlanTask<'_>) -> bool {
        let text = fs::read_to_string(&part.fingerprint).unwrap_or_default();
        serde_json::from_str::<Self>(&text).is_ok_and(|stored| self.is_like(&stored))
            && pipeline::is_profile(&part.profile)
    }

    /// True if both are equal, except for tables that do not exist now: nobody has corrected them.
    fn is_like(&self, stored: &Self) -> bool {
        let is_same_table = |(now, before): (&TableFingerprint, &TableFingerprint)| {
            now.path == before.path && (now.digest.is_none() || now.digest == before.digest)
        };
        self.files == stored.files
            && self.options == stored.options
            && self.ibscope == stored.ibscope
            && self.tables.len() == stored.tables.len()
            && self.tables.iter().zip(&stored.tables).all(is_same_table)
    }
}

/// The files that the options of the plan name, as they are now. A file is small, and a corrected one may
/// have the length of the old one, so its content counts instead of its length and time.
fn tables(part: &PlanTask<'_>, plan: &SlurmPlan) -> anyhow::Result<Vec<TableFingerprint>> {
    let analyze = parse_options(part.files, &part.profile, &plan.options)?;
    let table = |path: &Path| {
        let digest =
            if path.exists() { Some(format!("{:032x}", xxh3_128(files::read(path)?.as_bytes()))) } else { None };
        Ok(TableFingerprint { path: path.to_owned(), digest })
    };
    input::files(&[], &analyze.reading).into_iter().map(table).collect()
}
