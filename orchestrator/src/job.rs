//! The job: its nodes, and whether it is to be captured.

use crate::name::{self, NameError};
use crate::text::printable;
use ibscope_parsers::tools::hostlist;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Nodes that a job may have; a list that holds more is a mistake.
pub const MOST_NODES: usize = 1 << 16;

/// Why a job cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// A variable is missing.
    #[error("{0} is not set; run this as a Slurm hook, or give --job and --nodelist")]
    Missing(&'static str),
    /// The id is none.
    #[error("{variable}={value:?} is no job id; expected a number from 1 on")]
    Id {
        /// Name of the variable.
        variable: &'static str,
        /// What it holds.
        value: String,
    },
    /// The list cannot be expanded.
    #[error("the list of nodes cannot be read: {0}; expected one as Slurm writes it, for example n[001-003,007]")]
    List(#[from] ibscope_parsers::tools::ToolError),
    /// It is empty.
    #[error("the list of nodes is empty; give at least one")]
    Empty,
    /// A node stands twice.
    #[error("{0} stands twice in the list of nodes; name every node once")]
    Twice(String),
    /// A node has a name that none can have.
    #[error(transparent)]
    Name(#[from] NameError),
}

/// A hook of Slurm's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hook {
    /// `PrologSlurmctld`: once per job, before all else.
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
pub struct Job {
    /// Its id.
    pub id: u32,
    /// Its nodes, in Slurm's order.
    pub nodes: Vec<String>,
    /// What the user gave as `--comment`.
    #[serde(default)]
    pub comment: Option<String>,
    /// What the user gave as `--constraint`, where Slurm tells it.
    #[serde(default)]
    pub constraints: Option<String>,
    /// The user's name, for people: without control characters.
    #[serde(default)]
    pub user: Option<String>,
    /// How often it was started again under the same id.
    #[serde(default)]
    pub restart_count: u32,
    /// The hook that it was told by, where it was one.
    #[serde(default)]
    pub hook: Option<Hook>,
    /// The node that the hook runs on, where it is one of a node.
    #[serde(default)]
    pub hook_node: Option<String>,
}

impl Job {
    /// The job that a hook of Slurm's runs for, as its environment tells it.
    pub fn from_environment(vars: impl Iterator<Item = (String, String)>) -> Result<Self, JobError> {
        let vars: BTreeMap<String, String> = vars.filter(|(name, _)| name.starts_with("SLURM")).collect();
        // Slurm writes the null pointer of a text that there is none of.
        let told = |name: &str| vars.get(name).filter(|text| !text.is_empty() && *text != "(null)").cloned();
        let (variable, id) = told("SLURM_JOB_ID")
            .map(|id| ("SLURM_JOB_ID", id))
            .or_else(|| Some(("SLURM_JOBID", told("SLURM_JOBID")?)))
            .ok_or(JobError::Missing("SLURM_JOB_ID"))?;
        let id = id.parse().ok().filter(|id| *id > 0).ok_or(JobError::Id { variable, value: id })?;
        // The hooks of the controller have the one, those of a node the other.
        let list = told("SLURM_JOB_NODELIST")
            .or_else(|| told("SLURM_NODELIST"))
            .ok_or(JobError::Missing("SLURM_JOB_NODELIST"))?;
        let hook = match told("SLURM_SCRIPT_CONTEXT").as_deref() {
            Some("prolog_slurmctld") => Some(Hook::PrologSlurmctld),
            Some("epilog_slurmctld") => Some(Hook::EpilogSlurmctld),
            Some("prolog_slurmd") => Some(Hook::PrologSlurmd),
            Some("epilog_slurmd") => Some(Hook::EpilogSlurmd),
            _ => None,
        };
        let hook_node = told("SLURMD_NODENAME");
        hook_node.as_deref().map_or(Ok(()), name::node)?;
        Ok(Self {
            comment: told("SLURM_JOB_COMMENT"),
            constraints: told("SLURM_JOB_CONSTRAINTS"),
            user: told("SLURM_JOB_USER").map(|user| printable(user.as_bytes())),
            restart_count: told("SLURM_JOB_RESTART_COUNT").and_then(|count| count.parse().ok()).unwrap_or(0),
            hook,
            hook_node,
            ..Self::named(id, &list)?
        })
    }

    /// The job of this id on these nodes, in Slurm's notation.
    pub fn named(id: u32, nodelist: &str) -> Result<Self, JobError> {
        let nodes = hostlist::expand(nodelist, MOST_NODES)?;
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
