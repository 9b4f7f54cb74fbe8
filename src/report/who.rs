//! Names of senders and receivers: endpoints, or the ranks behind them.

use crate::model::profile::ConnectionRow;
use crate::model::{JobRank, Profile, RankIndex};
use ibscope_parsers::{Endpoint, Qpn};
use std::fmt;

/// What rows and columns are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Ports: LID, GID or IP address.
    Endpoint,
    /// Ranks of `MPI_COMM_WORLD`.
    Rank,
}

/// A sender or receiver. Sorted numerically, unknown ranks last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Label {
    /// A port, with its name from the hosts file.
    Endpoint(Endpoint, Option<String>),
    /// A rank of `MPI_COMM_WORLD`, of the only job.
    Rank(u32),
    /// A rank of one of several jobs: ranks of different jobs are never added up.
    JobRank(JobRank),
    /// The rank is unknown; the job may be known where there are several.
    Unknown(Option<u32>),
}

impl Label {
    /// The label for people: a name where there is one.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Endpoint(_, Some(name)) => name.clone(),
            _ => self.to_string(),
        }
    }

    /// True where the rank is not known.
    #[must_use]
    pub const fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown(_))
    }

    /// The job of the rank where there are several.
    #[must_use]
    pub const fn job(&self) -> Option<u32> {
        match self {
            Self::JobRank(rank) => Some(rank.job),
            Self::Unknown(job) => *job,
            Self::Endpoint(..) | Self::Rank(_) => None,
        }
    }

    /// The rank without its job.
    #[must_use]
    pub const fn rank(&self) -> Option<u32> {
        match self {
            Self::Rank(rank) | Self::JobRank(JobRank { rank, .. }) => Some(*rank),
            Self::Endpoint(..) | Self::Unknown(_) => None,
        }
    }
}

/// The label for programs: never a name. Of several jobs, `2.0` is rank 0 of job 2.
impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Endpoint(endpoint, _) => write!(f, "{endpoint}"),
            Self::Rank(rank) => write!(f, "{rank}"),
            Self::JobRank(JobRank { job, rank }) => write!(f, "{job}.{rank}"),
            Self::Unknown(None) => f.write_str("unknown"),
            Self::Unknown(Some(job)) => write!(f, "{job}.unknown"),
        }
    }
}

/// Maps the ends of connections to labels.
pub(super) struct Who<'a> {
    by: By,
    profile: &'a Profile,
    ranks: RankIndex,
}

impl<'a> Who<'a> {
    pub(super) fn new(profile: &'a Profile, by: By) -> Self {
        Self { by, profile, ranks: RankIndex::new(&profile.ranks) }
    }

    /// The sender.
    pub(super) fn sender(&self, connection: &ConnectionRow) -> Label {
        self.label(connection.src, connection.src_qp, connection.job)
    }

    /// The receiver.
    pub(super) fn receiver(&self, connection: &ConnectionRow) -> Label {
        self.label(connection.dst, Some(connection.dest_qp), connection.job)
    }

    fn label(&self, endpoint: Endpoint, qpn: Option<Qpn>, job: Option<u32>) -> Label {
        let several = self.profile.jobs.len() > 1;
        match (self.by, self.ranks.rank(endpoint, qpn)) {
            (By::Endpoint, _) => Label::Endpoint(endpoint, self.profile.names.get(&endpoint).cloned()),
            (By::Rank, Some(rank)) if several => Label::JobRank(rank),
            (By::Rank, Some(rank)) => Label::Rank(rank.rank),
            (By::Rank, None) => Label::Unknown(job.filter(|_| several)),
        }
    }
}
