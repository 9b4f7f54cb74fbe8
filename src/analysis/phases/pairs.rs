//! Numbers the pairs of senders and receivers of a profile's connections.

use crate::analysis::endpoint_label::{EndpointLabels, GroupBy, Label};
use crate::model::{Profile, TrafficKind};
use std::collections::BTreeMap;

/// The pairs of a profile, as numbers in label order.
pub(super) struct PairIndex {
    /// Pair by connection; `None` for connections that carry no data.
    of_connection: Vec<Option<u32>>,
    /// Sender and receiver by pair number, sorted.
    labels: Vec<(Label, Label)>,
}

impl PairIndex {
    pub(super) fn new(profile: &Profile, by: GroupBy) -> Self {
        let endpoint_labels = EndpointLabels::new(profile, by);
        let ends = profile.connections.iter().map(|connection| {
            (connection.kind == TrafficKind::Data)
                .then(|| (endpoint_labels.sender(connection), endpoint_labels.receiver(connection)))
        });
        let ends: Vec<Option<(Label, Label)>> = ends.collect();
        let mut numbers: BTreeMap<&(Label, Label), u32> = ends.iter().flatten().map(|pair| (pair, 0)).collect();
        numbers.values_mut().zip(0..).for_each(|(number, next)| *number = next);
        let of_connection = ends.iter().map(|pair| pair.as_ref().and_then(|pair| numbers.get(pair).copied())).collect();
        let labels = numbers.into_keys().cloned().collect();
        Self { of_connection, labels }
    }

    /// The pair of a connection; `None` if the connection carries no data.
    pub(super) fn of(&self, connection: u32) -> Option<u32> {
        self.of_connection.get(connection as usize).copied().flatten()
    }

    /// Sender and receiver of a pair.
    pub(super) fn labels(&self, pair: u32) -> &(Label, Label) {
        &self.labels[pair as usize]
    }
}
