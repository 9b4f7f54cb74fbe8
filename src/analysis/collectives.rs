//! Messages of collective operations: how much each operation really puts on the wire, and between whom.

use super::endpoint_label::{By, EndpointLabels, Label};
use crate::model::{Kind, Profile};
use std::collections::BTreeMap;

/// Messages and bytes between two ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// MPI messages.
    pub messages: u64,
    /// Their MPI bytes.
    pub mpi_bytes: u64,
}

/// Sums by operation, sender and receiver.
pub type Collectives = BTreeMap<(String, Label, Label), Sums>;

/// The collective operations of a profile, by pair of ranks or endpoints.
#[must_use]
pub fn collectives(profile: &Profile, by: By) -> Collectives {
    let who = EndpointLabels::new(profile, by);
    let mut table = Collectives::new();
    for row in &profile.collectives {
        let connection = profile.connections.get(row.connection as usize);
        let Some(connection) = connection.filter(|connection| connection.kind == Kind::Data) else { continue };
        let key = (row.operation.clone(), who.sender(connection), who.receiver(connection));
        let sums = table.entry(key).or_default();
        sums.messages += row.messages;
        sums.mpi_bytes = sums.mpi_bytes.saturating_add(row.mpi_bytes);
    }
    table
}

/// Pairs and sums by job and operation. Endpoints are of no job.
pub(crate) fn by_operation(collectives: &Collectives) -> BTreeMap<(Option<u32>, &str), (u64, Sums)> {
    let mut operations: BTreeMap<(Option<u32>, &str), (u64, Sums)> = BTreeMap::new();
    for ((operation, src, _), sums) in collectives {
        let (pairs, total) = operations.entry((src.job(), operation)).or_default();
        *pairs += 1;
        total.messages += sums.messages;
        total.mpi_bytes = total.mpi_bytes.saturating_add(sums.mpi_bytes);
    }
    operations
}
