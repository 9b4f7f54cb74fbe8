//! The Slurm job: its id, its nodes, and the texts by which it can request a capture.
//!
//! Read from the environment of a hook or from a node list; all node names are checked.

use crate::name::{self, NameError};
use crate::text::printable;
use ibscope_parsers::tools::hostlist;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};

/// Maximum number of nodes of a job. A longer list counts as a mistake.
pub const MAX_NODES: usize = 1 << 16;

/// Variable with which the option `--ibscope` arrives: Slurm puts `SPANK_` in front of the names that
/// plugins choose.
const OPTION: &str = "SPANK_IBSCOPE";

/// Variables whose exact value matters: ids, names of nodes and hooks, and counts.
const EXACT: [&str; 9] = [
    "SLURM_JOB_ID",
    "SLURM_JOBID",
    "SLURM_JOB_NODELIST",
    "SLURM_NODELIST",
    "SLURMD_NODENAME",
    "SLURM_SCRIPT_CONTEXT",
    "SLURM_JOB_UID",
    "SLURM_UID",
    "SLURM_JOB_RESTART_COUNT",
];

/// Reason why a job cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// A variable is missing.
    #[error("{0} is not set; run this as a Slurm hook, or give --job and --nodelist")]
    Missing(&'static str),
    /// A variable whose exact value matters is not UTF-8.
    #[error("{variable}={value:?} is not UTF-8; expected a text as Slurm writes it")]
    NotUtf8 {
        /// Name of the variable.
        variable: &'static str,
        /// Value of the variable.
        value: OsString,
    },
    /// The job id is not a positive number.
    #[error("{variable}={value:?} is not a job id; expected a number of 1 or more")]
    Id {
        /// Name of the variable.
        variable: &'static str,
        /// Value of the variable.
        value: String,
    },
    /// The node list cannot be expanded.
    #[error("the list of nodes cannot be read: {0}; expected one as Slurm writes it, for example n[001-003,007]")]
    List(#[from] ibscope_parsers::tools::ToolError),
    /// The node list is empty.
    #[error("the list of nodes is empty; give at least one")]
    Empty,
    /// A node is listed twice.
    #[error("{0} is listed twice in the list of nodes; list every node once")]
    Twice(String),
    /// A node name is not valid.
    #[error(transparent)]
    Name(#[from] NameError),
}

/// Slurm's hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlurmHook {
    /// `PrologSlurmctld`: once per job, before all other hooks.
    PrologSlurmctld,
    /// `EpilogSlurmctld`: once per job.
    EpilogSlurmctld,
    /// `Prolog`: on every node.
    PrologSlurmd,
    /// `Epilog`: on every node.
    EpilogSlurmd,
}

/// A Slurm job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlurmJob {
    /// Job id.
    pub id: u32,
    /// Node names, in Slurm's order.
    pub nodes: Vec<String>,
    /// The user's `--comment`.
    #[serde(default)]
    pub comment: Option<String>,
    /// The user's `--constraint`, if Slurm passes it on.
    #[serde(default)]
    pub constraints: Option<String>,
    /// The user's `--ibscope=on` or `--ibscope=off`, an option that `packaging/spank` adds to Slurm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ibscope_option: Option<bool>,
    /// User name for display, without control characters.
    #[serde(default)]
    pub user: Option<String>,
    /// Number of the user.
    #[serde(default)]
    pub user_id: Option<u32>,
    /// Partition of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// Number of times that the job was requeued and started again with the same id.
    #[serde(default)]
    pub restart_count: u32,
    /// Hook that passed the job, if any.
    #[serde(default)]
    pub hook: Option<SlurmHook>,
    /// Node on which the hook runs, for hooks of slurmd.
    #[serde(default)]
    pub hook_node: Option<String>,
}

impl SlurmJob {
    /// Reads the job from the environment of this process. Slurm passes the texts of the user as they
    /// are, in any character set.
    pub fn from_own_environment() -> Result<Self, JobError> {
        Self::from_os_environment(std::env::vars_os())
    }

    fn from_os_environment(vars: impl Iterator<Item = (OsString, OsString)>) -> Result<Self, JobError> {
        let mut decoded = Vec::new();
        for (name, value) in vars {
            // Slurm's names are ASCII.
            let Ok(name) = name.into_string() else { continue };
            let variable = EXACT.into_iter().find(|&exact| exact == name);
            match (variable, value.into_string()) {
                (_, Ok(value)) => decoded.push((name, value)),
                (Some(variable), Err(value)) => return Err(JobError::NotUtf8 { variable, value }),
                // Dropping such a comment would drop the word `ibscope=off` in it.
                (None, Err(value)) => decoded.push((name, latin1(&value))),
            }
        }
        Self::from_environment(decoded.into_iter())
    }

    /// Number of times that Slurm had started the job before; `None` if this is unknown, because no hook
    /// passed it.
    pub(crate) fn known_restarts(&self) -> Option<u32> {
        self.hook.map(|_| self.restart_count)
    }

    /// Reads the job from the environment of a Slurm hook.
    pub fn from_environment(vars: impl Iterator<Item = (String, String)>) -> Result<Self, JobError> {
        let vars: BTreeMap<String, String> =
            vars.filter(|(name, _)| name.starts_with("SLURM") || name == OPTION).collect();
        // Slurm prints a missing text as a null pointer.
        let value = |name: &str| vars.get(name).filter(|text| !text.is_empty() && *text != "(null)").cloned();
        let (variable, id) = value("SLURM_JOB_ID")
            .map(|id| ("SLURM_JOB_ID", id))
            .or_else(|| Some(("SLURM_JOBID", value("SLURM_JOBID")?)))
            .ok_or(JobError::Missing("SLURM_JOB_ID"))?;
        let id = id.parse().ok().filter(|id| *id > 0).ok_or(JobError::Id { variable, value: id })?;
        // slurmctld sets the one variable, slurmd the other.
        let list = value("SLURM_JOB_NODELIST")
            .or_else(|| value("SLURM_NODELIST"))
            .ok_or(JobError::Missing("SLURM_JOB_NODELIST"))?;
        let hook = match value("SLURM_SCRIPT_CONTEXT").as_deref() {
            Some("prolog_slurmctld") => Some(SlurmHook::PrologSlurmctld),
            Some("epilog_slurmctld") => Some(SlurmHook::EpilogSlurmctld),
            Some("prolog_slurmd") => Some(SlurmHook::PrologSlurmd),
            Some("epilog_slurmd") => Some(SlurmHook::EpilogSlurmd),
            _ => None,
        };
        let hook_node = value("SLURMD_NODENAME");
        hook_node.as_deref().map_or(Ok(()), name::node)?;
        Ok(Self {
            comment: value("SLURM_JOB_COMMENT"),
            constraints: value("SLURM_JOB_CONSTRAINTS"),
            ibscope_option: value(OPTION).and_then(|text| match text.as_str() {
                "on" => Some(true),
                "off" => Some(false),
                // Not from the plugin.
                _ => None,
            }),
            user: value("SLURM_JOB_USER").map(|user| printable(user.as_bytes())),
            user_id: value("SLURM_JOB_UID").or_else(|| value("SLURM_UID")).and_then(|id| id.parse().ok()),
            partition: value("SLURM_JOB_PARTITION").map(|partition| printable(partition.as_bytes())),
            restart_count: value("SLURM_JOB_RESTART_COUNT").and_then(|count| count.parse().ok()).unwrap_or(0),
            hook,
            hook_node,
            ..Self::from_nodelist(id, &list)?
        })
    }

    /// A job with this id on these nodes, in Slurm's notation.
    pub fn from_nodelist(id: u32, nodelist: &str) -> Result<Self, JobError> {
        let nodes = hostlist::expand(nodelist, MAX_NODES)?;
        if nodes.is_empty() {
            return Err(JobError::Empty);
        }
        let mut seen = BTreeSet::new();
        for node in &nodes {
            name::node(node)?;
            if !seen.insert(node) {
                return Err(JobError::Twice(node.clone()));
            }
        }
        Ok(Self { id, nodes, ..Self::default() })
    }
}

/// A text with one character per byte. Words in ASCII keep their bytes in every such character set, and
/// in most others.
fn latin1(text: &OsStr) -> String {
    text.as_encoded_bytes().iter().map(|&byte| char::from(byte)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use std::os::unix::ffi::OsStringExt as _;
    use std::path::Path;

    fn job(variable: &str, value: &[u8]) -> Result<SlurmJob, JobError> {
        let mut vars: BTreeMap<&str, &[u8]> = BTreeMap::new();
        vars.insert("SLURM_JOB_ID", b"7");
        vars.insert("SLURM_JOB_NODELIST", b"n[001-002]");
        vars.insert("SLURM_SCRIPT_CONTEXT", b"prolog_slurmctld");
        vars.insert(variable, value);
        let vars = vars.into_iter().map(|(name, value)| (name.into(), OsString::from_vec(value.to_vec())));
        SlurmJob::from_os_environment(vars)
    }

    #[test]
    fn words_count_in_a_comment_of_any_character_set() {
        let text = |select: &str| {
            format!(
                "[ssh]\nkey = \"/k\"\nknown_hosts = \"/h\"\n[mirror]\nbackend = \"none\"\n[capture]\nbackend = \"ibdump\"\n\
                 directory = \"/c\"\n[collect]\ndirectory = \"/r\"\n[run]\nselect = \"{select}\"\n"
            )
        };
        let config = |select| Config::parse(&text(select), Path::new("x")).unwrap();
        let [all, by_comment] = ["all", "comment"].map(config);
        // Latin-1, with a no-break space, UTF-8, and Shift JIS.
        for before in [&b"Pr\xfcfung "[..], b"Gr\xf6\xdfe\xa0", "Pr\u{fc}fung ".as_bytes(), b"\x83e\x83X\x83g "] {
            let with = |word: &str| job("SLURM_JOB_COMMENT", &[before, word.as_bytes()].concat()).unwrap();
            assert!(!all.selects(&with("ibscope=off")), "{before:?}");
            assert!(all.selects(&with("ibscope=offer")), "{before:?}");
            assert!(by_comment.selects(&with("ibscope=on")), "{before:?}");
            assert!(!by_comment.selects(&with("ibscope=of")), "{before:?}");
        }
        assert_eq!(job("SLURM_JOB_COMMENT", b"Pr\xfcfung").unwrap().comment.as_deref(), Some("Pr\u{fc}fung"));
        assert_eq!(job("SLURM_JOB_CONSTRAINTS", b"\xfc").unwrap().constraints.as_deref(), Some("\u{fc}"));
        assert_eq!(job("SLURM_JOB_NAME", b"\xff\xfe").unwrap().id, 7, "other variables do not matter");
    }

    #[test]
    fn exact_values_must_be_utf8() {
        for variable in ["SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURMD_NODENAME", "SLURM_JOB_RESTART_COUNT"] {
            let error = job(variable, b"1\xfc").unwrap_err().to_string();
            assert_eq!(error, format!("{variable}=\"1\\xFC\" is not UTF-8; expected a text as Slurm writes it"));
        }
    }

    #[test]
    fn restarts_are_known_from_hooks_only() {
        assert_eq!(job("SLURM_JOB_RESTART_COUNT", b"2").unwrap().known_restarts(), Some(2));
        assert_eq!(SlurmJob::from_nodelist(7, "n1").unwrap().known_restarts(), None);
    }
}
