//! Sums over all connections that carry data, which several outputs tell in their own words.

use super::units::bytes;
use crate::model::profile::{Repeats, Traffic};
use crate::model::{Kind, Profile};
use ibscope_parsers::Endpoint;
use std::collections::BTreeSet;

/// What all connections of a profile come to. Management and multicast traffic stand outside it.
#[derive(Debug, Default)]
pub(super) struct Totals<'a> {
    /// How many connections there are.
    pub(super) connections: u64,
    /// What they carried.
    pub(super) traffic: Traffic,
    /// What of it was sent again.
    pub(super) repeats: Repeats,
    /// Their ends.
    pub(super) endpoints: BTreeSet<Endpoint>,
    /// The libraries that were recognised.
    pub(super) stacks: BTreeSet<&'a str>,
}

impl<'a> Totals<'a> {
    /// The totals of a profile.
    pub(super) fn of(profile: &'a Profile) -> Self {
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

    /// What is to be said where collective operations carry more than point-to-point messages, which matrices by rank show alone.
    pub(super) fn mostly_collective(&self) -> Option<String> {
        let Traffic { p2p_mpi_bytes, collective_mpi_bytes, .. } = self.traffic;
        (collective_mpi_bytes > p2p_mpi_bytes).then(|| {
            format!(
                "collective operations carry most of the MPI bytes: {}, point-to-point messages {}; `matrix --by rank` shows point-to-point \
                 messages alone, with --traffic all both",
                bytes(collective_mpi_bytes),
                bytes(p2p_mpi_bytes)
            )
        })
    }

    /// A sum of MPI messages or bytes: not known where no library was recognised.
    pub(super) fn mpi(&self, of: impl Fn(&Traffic) -> u64) -> Option<u64> {
        (!self.stacks.is_empty()).then(|| of(&self.traffic))
    }
}
