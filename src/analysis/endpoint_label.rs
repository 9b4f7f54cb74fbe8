//! Labels of senders and receivers in tables: endpoints, the ranks at them, or the nodes and leaf
//! switches that they belong to.

use crate::analysis::port_groups::{PortGroup, PortGroups};
use crate::model::profile::ConnectionRow;
use crate::model::{ConnectionRanks, JobRank, Profile, RankIndex, TrafficKind};
use ibscope_parsers::Endpoint;
use std::cmp::Ordering;
use std::fmt;

/// The rows and columns of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupBy {
    /// Ports: LID, GID or IP address.
    Endpoint,
    /// Ranks of `MPI_COMM_WORLD`.
    Rank,
    /// Nodes: the ports whose names have the same node part. A port without a name is a node.
    Node,
    /// Leaf switches, with all ports that are connected to them.
    Leaf,
}

impl GroupBy {
    /// The name used in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Endpoint => "endpoint",
            Self::Rank => "rank",
            Self::Node => "node",
            Self::Leaf => "leaf",
        }
    }

    /// A row or column in sentences.
    #[must_use]
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Endpoint => "endpoint",
            Self::Rank => "rank",
            Self::Node => "node",
            Self::Leaf => "leaf switch",
        }
    }

    /// Several rows or columns in sentences.
    #[must_use]
    pub const fn nouns(self) -> &'static str {
        match self {
            Self::Endpoint => "endpoints",
            Self::Rank => "ranks",
            Self::Node => "nodes",
            Self::Leaf => "leaf switches",
        }
    }

    /// True if rows and columns are ports or groups of ports, which send traffic of all kinds, and
    /// which jobs share.
    #[must_use]
    pub const fn is_of_ports(self) -> bool {
        !matches!(self, Self::Rank)
    }
}

/// Whether a profile contains one job or several. With several jobs, a rank alone identifies no
/// process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Jobs {
    /// One job: labels show the plain rank.
    One,
    /// Several jobs: labels show the job number before the rank.
    Several,
}

/// Text shown in place of an unknown rank.
pub(crate) const UNKNOWN: &str = "unknown";

/// A sender or receiver. Labels sort by job, then numerically; unknown ranks follow the known ranks
/// of their job, and traffic of no job comes last.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Label {
    /// A port, with its name from the hosts file.
    Endpoint(Endpoint, Option<String>),
    /// A rank of `MPI_COMM_WORLD`. Ranks of different jobs are never added up.
    Rank(JobRank, Jobs),
    /// A process of this job whose rank is unknown.
    Unknown(u32, Jobs),
    /// An endpoint of traffic that belongs to no job.
    NoJob,
    /// A node or leaf switch.
    Group(PortGroup),
}

impl Label {
    /// The label of a rank in a profile with one job.
    #[must_use]
    pub const fn only(rank: u32) -> Self {
        Self::Rank(JobRank { job: 1, rank }, Jobs::One)
    }

    /// The label for display: the name if there is one.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Endpoint(_, Some(name)) => name.clone(),
            _ => self.to_string(),
        }
    }

    /// The rank alone, or `unknown`: for tables with a separate job column.
    #[must_use]
    pub fn without_job(&self) -> String {
        self.rank().map_or_else(
            || if self.is_unknown() { UNKNOWN.to_owned() } else { self.to_string() },
            |rank| rank.to_string(),
        )
    }

    /// The job and rank; `None` if the rank is unknown.
    #[must_use]
    pub const fn process(&self) -> Option<JobRank> {
        match self {
            Self::Rank(rank, _) => Some(*rank),
            Self::Endpoint(..) | Self::Unknown(..) | Self::NoJob | Self::Group(..) => None,
        }
    }

    /// True if the rank is unknown.
    #[must_use]
    pub const fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown(..) | Self::NoJob)
    }

    /// The number of the job.
    #[must_use]
    pub const fn job(&self) -> Option<u32> {
        match self {
            Self::Rank(JobRank { job, .. }, _) | Self::Unknown(job, _) => Some(*job),
            Self::Endpoint(..) | Self::NoJob | Self::Group(..) => None,
        }
    }

    /// True for an endpoint of traffic that belongs to no job.
    #[must_use]
    pub const fn is_no_job(&self) -> bool {
        matches!(self, Self::NoJob)
    }

    /// The same label without the job number, for tables whose heading names the job.
    #[must_use]
    pub fn of_one_job(&self) -> Self {
        match self {
            Self::Rank(rank, _) => Self::Rank(*rank, Jobs::One),
            Self::Unknown(job, _) => Self::Unknown(*job, Jobs::One),
            Self::Endpoint(..) | Self::NoJob | Self::Group(..) => self.clone(),
        }
    }

    /// The rank without its job.
    #[must_use]
    pub const fn rank(&self) -> Option<u32> {
        match self.process() {
            Some(JobRank { rank, .. }) => Some(rank),
            None => None,
        }
    }

    /// The sort key. One table never mixes endpoints and ranks.
    fn order(&self) -> (Option<(&Endpoint, &Option<String>)>, u64, u64) {
        let known_first = |number: Option<u32>| number.map_or(u64::MAX, u64::from);
        let endpoint = if let Self::Endpoint(endpoint, name) = self { Some((endpoint, name)) } else { None };
        (endpoint, known_first(self.job()), known_first(self.rank()))
    }
}

impl Ord for Label {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            // The usual case, without building sort keys: a matrix compares labels very often.
            (Self::Endpoint(own, own_name), Self::Endpoint(other, other_name)) => {
                own.cmp(other).then_with(|| own_name.cmp(other_name))
            }
            (Self::Group(own), Self::Group(other)) => own.cmp(other),
            _ => self.order().cmp(&other.order()),
        }
    }
}

impl PartialOrd for Label {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The label for programs: the address or number, or the name of a node or leaf switch. With several
/// jobs, `2.0` is rank 0 of job 2.
impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Endpoint(endpoint, _) => write!(f, "{endpoint}"),
            Self::Rank(JobRank { rank, .. }, Jobs::One) => write!(f, "{rank}"),
            Self::Rank(JobRank { job, rank }, Jobs::Several) => write!(f, "{job}.{rank}"),
            Self::Unknown(_, Jobs::One) => f.write_str(UNKNOWN),
            Self::Unknown(job, Jobs::Several) => write!(f, "{job}.{UNKNOWN}"),
            Self::NoJob => f.write_str("no job"),
            Self::Group(group) => f.write_str(group.name()),
        }
    }
}

/// Maps the source and destination of connections to labels.
pub(crate) struct EndpointLabels<'a> {
    by: GroupBy,
    profile: &'a Profile,
    jobs: Jobs,
    ranks: RankIndex,
    /// The job that all connections belong to.
    only_job: Option<u32>,
    /// By node and leaf switch, the groups of the ports.
    groups: Option<PortGroups>,
}

impl<'a> EndpointLabels<'a> {
    pub(crate) fn new(profile: &'a Profile, by: GroupBy) -> Self {
        let jobs = if profile.jobs.len() > 1 { Jobs::Several } else { Jobs::One };
        let groups = match by {
            GroupBy::Endpoint | GroupBy::Rank => None,
            GroupBy::Node => Some(PortGroups::nodes(profile)),
            GroupBy::Leaf => Some(PortGroups::leaves(profile)),
        };
        let mut data = profile.connections.iter().filter(|connection| connection.kind == TrafficKind::Data);
        let only_job = match &profile.jobs[..] {
            [only] if data.all(|connection| connection.job == Some(only.job)) => Some(only.job),
            _ => None,
        };
        Self { by, profile, jobs, ranks: RankIndex::of(profile), only_job, groups }
    }

    /// The groups of the ports, by node and leaf switch.
    pub(crate) const fn groups(&self) -> Option<&PortGroups> {
        self.groups.as_ref()
    }

    /// The label of the sender of a connection.
    pub(crate) fn sender(&self, connection: &ConnectionRow) -> Label {
        self.label(connection, connection.src, |ranks| ranks.src)
    }

    /// The label of the receiver of a connection.
    pub(crate) fn receiver(&self, connection: &ConnectionRow) -> Label {
        self.label(connection, connection.dst, |ranks| ranks.dst)
    }

    /// The label of a port without a queue pair, whose rank is therefore unknown.
    pub(crate) fn port(&self, endpoint: Endpoint) -> Label {
        match (self.by, self.only_job) {
            (GroupBy::Endpoint | GroupBy::Node | GroupBy::Leaf, _) => self.endpoint(endpoint),
            (GroupBy::Rank, Some(job)) => Label::Unknown(job, Jobs::One),
            (GroupBy::Rank, None) => Label::NoJob,
        }
    }

    /// The label of a port by endpoint, node or leaf switch.
    fn endpoint(&self, endpoint: Endpoint) -> Label {
        if let Some(groups) = &self.groups {
            return Label::Group(groups.of(endpoint));
        }
        Label::Endpoint(endpoint, self.profile.names.get(&endpoint).cloned())
    }

    fn label(
        &self,
        connection: &ConnectionRow,
        endpoint: Endpoint,
        of: impl Fn(ConnectionRanks) -> Option<u32>,
    ) -> Label {
        if self.by.is_of_ports() {
            return self.endpoint(endpoint);
        }
        let ranks = self.ranks.connection(connection);
        match (ranks.job, of(ranks)) {
            (None, _) => Label::NoJob,
            (Some(job), Some(rank)) => Label::Rank(JobRank { job, rank }, self.jobs),
            (Some(job), None) => Label::Unknown(job, self.jobs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::fixture::{connection, job};

    /// A port may also carry the traffic of other programs.
    #[test]
    fn a_port_belongs_to_the_only_job_if_all_connections_do() {
        let port = Endpoint::from_lid(ibscope_parsers::Lid(1));
        let label = |jobs: [Option<u32>; 2]| {
            let connections = jobs.map(|job| connection(job, (1, 7), (2, 7), 1)).into();
            let profile = Profile { connections, jobs: vec![job(1, 2, None)], ..Profile::default() };
            EndpointLabels::new(&profile, GroupBy::Rank).port(port)
        };
        assert_eq!(label([Some(1), Some(1)]), Label::Unknown(1, Jobs::One));
        assert_eq!(label([Some(1), None]), Label::NoJob);
    }

    #[test]
    fn labels_are_sorted_by_job_and_no_job_comes_last() {
        let rank = |job, rank| Label::Rank(JobRank { job, rank }, Jobs::Several);
        let mut labels = [Label::NoJob, rank(2, 0), Label::Unknown(1, Jobs::Several), rank(1, 10), rank(1, 9)];
        labels.sort();
        let text: Vec<String> = labels.iter().map(ToString::to_string).collect();
        assert_eq!(text, ["1.9", "1.10", "1.unknown", "2.0", "no job"]);
        let plain: Vec<String> = labels.iter().map(Label::without_job).collect();
        assert_eq!(plain, ["9", "10", "unknown", "0", "unknown"]);
    }
}
