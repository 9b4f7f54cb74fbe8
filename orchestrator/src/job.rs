//! The Slurm job: its id, its nodes, and the texts by which it can request a capture.
//!
//! Read from the environment of a hook or from a node list; all node names are checked.

use crate::name::{self, NameError};
use crate::text::printable;
use ibscope_parsers::tools::hostlist;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of nodes of a job. A longer list counts as a mistake.
pub const MAX_NODES: usize = 1 << 16;

/// Variable with which the option `--ibscope` arrives: Slurm puts `SPANK_` in front of the names that
/// plugins choose.
const OPTION: &str = "SPANK_IBSCOPE";

/// Reason why a job cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// A variable is missing.
    #[error("{0} is not set; run this as a Slurm hook, or give --job and --nodelist")]
    Missing(&'static str),
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
