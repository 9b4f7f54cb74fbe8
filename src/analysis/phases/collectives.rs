//! Collective operations of a phase.
//!
//! A profile counts operations per connection over the whole time. Per time bin, it counts only the
//! collective messages of all operations together. So the number of messages of an operation in a
//! phase is a lower bound.

use crate::model::Profile;
use std::collections::BTreeMap;

/// A collective operation in a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseCollective {
    /// Name of the operation.
    pub operation: String,
    /// Lower bound of the messages of this operation in the phase; 0 if the phase may contain some.
    pub at_least: u64,
}

/// The operations of all connections with collective messages in a phase. `messages` counts these
/// by connection. Counts are certain if a connection has only one operation, or had all its
/// collective messages in the phase.
pub(super) fn phase_collectives(profile: &Profile, messages: &BTreeMap<u32, u64>) -> Vec<PhaseCollective> {
    let mut operations: BTreeMap<&str, u64> = BTreeMap::new();
    // The rows are sorted by connection.
    for rows in profile.collectives.chunk_by(|a, b| a.connection == b.connection) {
        let Some(inside) = rows.first().and_then(|row| messages.get(&row.connection)).copied() else { continue };
        let whole: u64 = rows.iter().map(|row| row.messages).sum();
        for row in rows {
            let certain = match rows.len() {
                1 => inside,
                _ if inside == whole => row.messages,
                _ => 0,
            };
            *operations.entry(&row.operation).or_default() += certain;
        }
    }
    operations
        .into_iter()
        .map(|(operation, at_least)| PhaseCollective { operation: operation.to_owned(), at_least })
        .collect()
}
