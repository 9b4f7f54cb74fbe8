//! Names of senders and receivers: endpoints, or the ranks behind them.

use crate::model::profile::ConnectionRow;
use crate::model::{Profile, RankIndex};
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
    /// A rank of `MPI_COMM_WORLD`.
    Rank(u32),
    /// The rank is not known.
    Unknown,
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
        matches!(self, Self::Unknown)
    }
}

/// The label for programs: never a name.
impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Endpoint(endpoint, _) => write!(f, "{endpoint}"),
            Self::Rank(rank) => write!(f, "{rank}"),
            Self::Unknown => f.write_str("unknown"),
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
        self.label(connection.src, connection.src_qp)
    }

    /// The receiver.
    pub(super) fn receiver(&self, connection: &ConnectionRow) -> Label {
        self.label(connection.dst, Some(connection.dest_qp))
    }

    fn label(&self, endpoint: Endpoint, qpn: Option<Qpn>) -> Label {
        match self.by {
            By::Endpoint => Label::Endpoint(endpoint, self.profile.names.get(&endpoint).cloned()),
            By::Rank => self.ranks.rank(endpoint, qpn).map_or(Label::Unknown, Label::Rank),
        }
    }
}
