//! Sums over all data connections of a profile, shared by several outputs.

use crate::analysis::endpoint_label::GroupBy;
use crate::analysis::matrix::{CountingRule, Selection};
use crate::model::profile::{RetransmissionSums, Traffic};
use crate::model::{ClassSet, ConnectionClass, PairEstimators, Profile, TrafficKind};
use ibscope_parsers::Endpoint;
use std::collections::BTreeSet;

/// Totals of a profile, without management and multicast traffic.
#[derive(Debug, Default)]
pub(crate) struct ProfileTotals<'a> {
    /// Number of connections.
    pub(crate) connections: u64,
    /// Traffic of all connections.
    pub(crate) traffic: Traffic,
    /// The part of `traffic` on connections of NCCL.
    pub(crate) nccl: Traffic,
    /// The retransmitted part of `traffic`.
    pub(crate) retransmissions: RetransmissionSums,
    /// Endpoints of the connections.
    pub(crate) endpoints: BTreeSet<Endpoint>,
    /// Classes of the connections.
    pub(crate) classes: ClassSet,
    /// MPI libraries that were detected, and NCCL.
    pub(crate) stacks: BTreeSet<&'a str>,
    /// For a sampled capture, the estimators of `traffic`.
    pub(crate) estimators: Option<PairEstimators>,
}

impl<'a> ProfileTotals<'a> {
    /// The totals of a profile.
    pub(crate) fn of(profile: &'a Profile) -> Self {
        let mut totals = Self::default();
        for connection in profile.connections.iter().filter(|connection| connection.kind == TrafficKind::Data) {
            totals.connections += 1;
            totals.traffic += connection.traffic;
            if connection.class == ConnectionClass::Nccl {
                totals.nccl += connection.traffic;
            }
            totals.classes.insert(connection.class);
            totals.retransmissions += connection.retransmissions;
            totals.endpoints.extend([connection.src, connection.dst]);
            totals.stacks.extend(connection.stack.as_deref());
            if let Some(sampling) = profile.sampling {
                let rule = CountingRule::of(profile, connection, GroupBy::Endpoint, Selection::All);
                let own = rule.estimators(connection, None, sampling.quality());
                totals.estimators.get_or_insert_default().merge(&own);
            }
        }
        totals
    }

    /// A sum of MPI messages or bytes; `None` if no MPI library was detected.
    pub(crate) fn mpi(&self, of: impl Fn(&Traffic) -> u64) -> Option<u64> {
        (!self.stacks.is_empty()).then(|| of(&self.traffic))
    }
}
