//! The collective messages of a profile, summed by operation, sender and receiver.
//!
//! In: a [`Profile`]. Out: the messages and MPI bytes that each operation puts on the wire. The
//! algorithm of the MPI library determines them, so they can differ from the sizes in the arguments
//! of the calls.

use super::endpoint_label::{EndpointLabels, GroupBy, Label};
use crate::model::{Profile, TrafficKind};
use std::collections::BTreeMap;

/// The collective messages from one rank or endpoint to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectiveTotals {
    /// Number of MPI messages.
    pub messages: u64,
    /// MPI bytes of these messages.
    pub mpi_bytes: u64,
}

/// Totals by operation, sender and receiver.
pub type Collectives = BTreeMap<(String, Label, Label), CollectiveTotals>;

/// Sums the collective messages of a profile by operation and by pair of ranks or endpoints.
#[must_use]
pub fn collectives(profile: &Profile, by: GroupBy) -> Collectives {
    let labels = EndpointLabels::new(profile, by);
    let mut table = Collectives::new();
    for row in &profile.collectives {
        let connection = profile.connections.get(row.connection as usize);
        let Some(connection) = connection.filter(|connection| connection.kind == TrafficKind::Data) else { continue };
        let key = (row.operation.clone(), labels.sender(connection), labels.receiver(connection));
        let sums = table.entry(key).or_default();
        sums.messages += row.messages;
        sums.mpi_bytes = sums.mpi_bytes.saturating_add(row.mpi_bytes);
    }
    table
}

/// Number of pairs and totals by job and operation. The job is `None` for endpoints.
pub(crate) fn by_operation(collectives: &Collectives) -> BTreeMap<(Option<u32>, &str), (u64, CollectiveTotals)> {
    let mut operations: BTreeMap<(Option<u32>, &str), (u64, CollectiveTotals)> = BTreeMap::new();
    for ((operation, src, _), sums) in collectives {
        let (pairs, total) = operations.entry((src.job(), operation)).or_default();
        *pairs += 1;
        total.messages += sums.messages;
        total.mpi_bytes = total.mpi_bytes.saturating_add(sums.mpi_bytes);
    }
    operations
}
