//! Which collective operations a phase holds, as far as a profile tells: it keeps operations per connection as a whole, and by time only that a message
//! was of a collective.

use crate::model::Profile;
use std::collections::BTreeMap;

/// A collective operation in a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its name.
    pub operation: String,
    /// Messages that are certainly of it; 0 where the phase may hold some.
    pub at_least: u64,
}

/// The operations of the connections that had messages of collectives in a phase. Certain are those of connections that had all of theirs in it, and of
/// those that only have one.
pub(super) fn seen(profile: &Profile, messages: &BTreeMap<u32, u64>) -> Vec<Seen> {
    let mut operations: BTreeMap<&str, u64> = BTreeMap::new();
    // Sorted by connection.
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
    operations.into_iter().map(|(operation, at_least)| Seen { operation: operation.to_owned(), at_least }).collect()
}
