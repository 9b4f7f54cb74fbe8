//! Sections on what becomes of captures and how the hooks behave.

use super::value;
use serde::Deserialize;
use std::path::PathBuf;

/// What becomes of the captures.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Collect {
    /// Folder for manifests, and for captures that are fetched: each run has its own in it.
    #[serde(deserialize_with = "value::path")]
    pub directory: PathBuf,
    /// Captures are fetched; else they stay where they are.
    #[serde(default)]
    pub fetch: bool,
    /// Captures that were fetched whole are deleted on the sinks.
    #[serde(default)]
    pub delete_fetched: bool,
}

/// Which jobs are captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Select {
    /// Those that ask for it by a word in `--comment`.
    #[default]
    Comment,
    /// Those that ask for it by a word in `--constraint`.
    Constraint,
    /// All.
    All,
}

/// How the hooks behave.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Run {
    /// Folder for journals and locks; must survive a restart of the machine.
    #[serde(deserialize_with = "value::path")]
    pub state_dir: PathBuf,
    /// Log file.
    #[serde(deserialize_with = "value::some_path")]
    pub log: Option<PathBuf>,
    /// Whether the system's log is told too.
    pub syslog: bool,
    /// A hook ends after so long, in seconds; must be less than Slurm's `PrologEpilogTimeout`.
    #[serde(deserialize_with = "value::seconds")]
    pub deadline_s: u32,
    /// The job runs when its capture cannot be started; else the hook fails and Slurm requeues the job.
    pub fail_open: bool,
    /// Which jobs are captured.
    pub select: Select,
    /// The word that asks for it.
    #[serde(deserialize_with = "value::word")]
    pub word: String,
    /// `SLURM_CONF` for the programs that are started: hooks have none.
    #[serde(deserialize_with = "value::some_path")]
    pub slurm_conf: Option<PathBuf>,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            state_dir: PathBuf::from("/var/lib/ibscope"),
            log: None,
            syslog: true,
            deadline_s: 30,
            fail_open: true,
            select: Select::Comment,
            word: "ibscope=on".to_owned(),
            slurm_conf: None,
        }
    }
}

/// Where the captures are analysed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum After {
    /// Nowhere.
    #[default]
    None,
    /// On each sink, by the epilog.
    Sink,
    /// In a batch job that the epilog submits.
    Sbatch,
}

/// What is done with the captures afterwards.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Analyze {
    /// Where they are analysed.
    pub after: After,
    /// Arguments of sbatch in front of the rest, for example `["--partition=post"]`.
    #[serde(deserialize_with = "value::arguments")]
    pub sbatch: Vec<String>,
}
