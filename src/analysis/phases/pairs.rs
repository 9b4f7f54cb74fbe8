//! Connections -> pairs of senders and receivers, as small numbers.

use crate::analysis::endpoint_label::{By, EndpointLabels, Label};
use crate::model::{Kind, Profile};
use std::collections::BTreeMap;

/// The pairs of a profile.
pub(super) struct Pairs {
    /// By connection; those that are no data have none.
    of_connection: Vec<Option<u32>>,
    /// Sender and receiver by pair, sorted.
    labels: Vec<(Label, Label)>,
}

impl Pairs {
    pub(super) fn new(profile: &Profile, by: By) -> Self {
        let who = EndpointLabels::new(profile, by);
        let ends = profile.connections.iter().map(|connection| {
            (connection.kind == Kind::Data).then(|| (who.sender(connection), who.receiver(connection)))
        });
        let ends: Vec<Option<(Label, Label)>> = ends.collect();
        let mut numbers: BTreeMap<&(Label, Label), u32> = ends.iter().flatten().map(|pair| (pair, 0)).collect();
        numbers.values_mut().zip(0..).for_each(|(number, next)| *number = next);
        let of_connection = ends.iter().map(|pair| pair.as_ref().and_then(|pair| numbers.get(pair).copied())).collect();
        let labels = numbers.into_keys().cloned().collect();
        Self { of_connection, labels }
    }

    /// The pair of a connection, where it carries data.
    pub(super) fn of(&self, connection: u32) -> Option<u32> {
        self.of_connection.get(connection as usize).copied().flatten()
    }

    /// Sender and receiver of a pair.
    pub(super) fn labels(&self, pair: u32) -> &(Label, Label) {
        &self.labels[pair as usize]
    }
}
