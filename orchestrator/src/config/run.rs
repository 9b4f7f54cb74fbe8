//! The sections `[collect]`, `[run]` and `[analyze]`: the handling of captures, and how the hooks
//! behave.

use super::value;
use serde::Deserialize;
use std::path::PathBuf;

/// Destination of the captures.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollectConfig {
    /// Folder for manifests and fetched captures. Each run creates a folder of its own in it.
    #[serde(deserialize_with = "value::path")]
    pub directory: PathBuf,
    /// Fetch the captures from the sinks. Otherwise they stay there.
    #[serde(default)]
    pub fetch: bool,
    /// Delete a capture on its sink after it was fetched completely.
    #[serde(default)]
    pub delete_fetched: bool,
    /// Folders of runs are deleted this many days after their end.
    #[serde(default, deserialize_with = "value::some_limit")]
    pub keep_days: Option<u64>,
    /// Bytes that all folders of runs may use. The oldest are deleted first.
    #[serde(default, deserialize_with = "value::some_limit")]
    pub disk_limit_bytes: Option<u64>,
}

/// The jobs that are captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobSelection {
    /// Jobs with a certain word in `--comment`.
    #[default]
    Comment,
    /// Jobs with a certain word in `--constraint`.
    Constraint,
    /// All jobs.
    All,
}

/// Behavior of the hooks.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunConfig {
    /// Folder for journals and locks; must survive a reboot.
    #[serde(deserialize_with = "value::path")]
    pub state_dir: PathBuf,
    /// Log file.
    #[serde(deserialize_with = "value::some_path")]
    pub log: Option<PathBuf>,
    /// Log to syslog too.
    pub syslog: bool,
    /// File for metrics, which `node_exporter` reads (`--collector.textfile.directory`).
    #[serde(deserialize_with = "value::some_path")]
    pub metrics: Option<PathBuf>,
    /// Time limit of a hook in seconds; must be less than Slurm's `PrologEpilogTimeout`.
    #[serde(deserialize_with = "value::seconds")]
    pub deadline_s: u32,
    /// If a capture cannot be started: true lets the job run; false makes the hook fail, and Slurm
    /// requeues the job.
    pub fail_open: bool,
    /// The jobs that are captured.
    pub select: JobSelection,
    /// Word by which a job requests a capture.
    #[serde(deserialize_with = "value::word")]
    pub word: String,
    /// Users whose jobs may be captured, by name or number. Empty: all users.
    #[serde(deserialize_with = "value::users")]
    pub users: Vec<String>,
    /// Partitions whose jobs may be captured. Empty: all partitions.
    pub partitions: Vec<String>,
    /// Write into the job's `AdminComment` whether and where it is captured, and why not.
    pub admin_comment: bool,
    /// `SLURM_CONF` for the programs that the hook starts, because hooks run without it.
    #[serde(deserialize_with = "value::some_path")]
    pub slurm_conf: Option<PathBuf>,
}

impl Default for RunConfig {
    fn default() -> Self {
        Self {
            state_dir: PathBuf::from("/var/lib/ibscope"),
            log: None,
            syslog: true,
            metrics: None,
            deadline_s: 30,
            fail_open: true,
            select: JobSelection::Comment,
            word: "ibscope=on".to_owned(),
            users: Vec::new(),
            partitions: Vec::new(),
            admin_comment: false,
            slurm_conf: None,
        }
    }
}

/// Machine on which the captures are analyzed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AnalysisLocation {
    /// Nowhere.
    #[default]
    None,
    /// On each sink, started by the epilog.
    Sink,
    /// In a batch job that the epilog submits.
    Sbatch,
}

/// Analysis after the captures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AnalyzeConfig {
    /// Machine on which the captures are analyzed.
    pub after: AnalysisLocation,
    /// Further arguments of sbatch, for example `["--partition=post"]`.
    #[serde(deserialize_with = "value::arguments")]
    pub sbatch: Vec<String>,
}
