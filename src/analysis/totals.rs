//! Sums over all connections that carry data, which several outputs tell in their own words.

use crate::model::profile::{Repeats, Traffic};
use crate::model::{Kind, Profile};
use ibscope_parsers::Endpoint;
use std::collections::BTreeSet;

/// What all connections of a profile come to. Management and multicast traffic stand outside it.
#[derive(Debug, Default)]
pub(crate) struct Totals<'a> {
    /// How many connections there are.
    pub(crate) connections: u64,
    /// What they carried.
    pub(crate) traffic: Traffic,
    /// What of it was sent again.
    pub(crate) repeats: Repeats,
    /// Their ends.
    pub(crate) endpoints: BTreeSet<Endpoint>,
    /// The libraries that were recognised.
    pub(crate) stacks: BTreeSet<&'a str>,
}

impl<'a> Totals<'a> {
    /// The totals of a profile.
    pub(crate) fn of(profile: &'a Profile) -> Self {
        let mut totals = Self::default();
        for connection in profile.connections.iter().filter(|connection| connection.kind == Kind::Data) {
            totals.connections += 1;
            totals.traffic += connection.traffic;
            totals.repeats += connection.repeats;
            totals.endpoints.extend([connection.src, connection.dst]);
            totals.stacks.extend(connection.stack.as_deref());
        }
        totals
    }

    /// A sum of MPI messages or bytes: not known where no library was recognised.
    pub(crate) fn mpi(&self, of: impl Fn(&Traffic) -> u64) -> Option<u64> {
        (!self.stacks.is_empty()).then(|| of(&self.traffic))
    }
}
