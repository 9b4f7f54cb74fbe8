//! Names of senders and receivers: endpoints, or the ranks behind them.

use crate::model::Profile;
use crate::model::profile::ConnectionRow;
use ibscope_parsers::Endpoint;
use std::collections::{BTreeMap, BTreeSet};
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
    /// Endpoints with one rank.
    alone: BTreeMap<Endpoint, u32>,
    queue_pairs: BTreeMap<(Endpoint, u32), u32>,
}

impl<'a> Who<'a> {
    pub(super) fn new(profile: &'a Profile, by: By) -> Self {
        let mut ranks: BTreeMap<Endpoint, BTreeSet<u32>> = BTreeMap::new();
        let mut queue_pairs = BTreeMap::new();
        for row in &profile.ranks {
            let Ok(endpoint) = row.endpoint.parse::<Endpoint>() else { continue };
            ranks.entry(endpoint).or_default().insert(row.rank);
            if let Some(qpn) = row.qpn {
                queue_pairs.insert((endpoint, qpn), row.rank);
            }
        }
        let alone = ranks.into_iter().filter_map(|(endpoint, ranks)| match ranks.into_iter().collect::<Vec<_>>()[..] {
            [rank] => Some((endpoint, rank)),
            _ => None,
        });
        Self { by, profile, alone: alone.collect(), queue_pairs }
    }

    /// The sender. Its queue pair is known for datagrams only.
    pub(super) fn sender(&self, connection: &ConnectionRow) -> Label {
        self.label(connection.src, connection.src_qp.map(ibscope_parsers::Qpn::value))
    }

    /// The receiver.
    pub(super) fn receiver(&self, connection: &ConnectionRow) -> Label {
        self.label(connection.dst, Some(connection.dest_qp.value()))
    }

    fn label(&self, endpoint: Endpoint, qpn: Option<u32>) -> Label {
        match self.by {
            By::Endpoint => Label::Endpoint(endpoint, self.profile.names.get(&endpoint).cloned()),
            By::Rank => {
                let by_qp = qpn.and_then(|qpn| self.queue_pairs.get(&(endpoint, qpn)));
                by_qp.or_else(|| self.alone.get(&endpoint)).map_or(Label::Unknown, |&rank| Label::Rank(rank))
            }
        }
    }
}
