//! Profile -> the share of each class of connections.

use crate::model::profile::Traffic;
use crate::model::{ConnectionClass, Profile};
use std::collections::BTreeMap;

/// The traffic of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClassShare {
    /// Directed connections.
    pub(crate) connections: u64,
    /// Their sums.
    pub(crate) traffic: Traffic,
}

/// The traffic of each class, management and multicast included, most wire bytes first.
pub(crate) fn class_shares(profile: &Profile) -> Vec<(ConnectionClass, ClassShare)> {
    let mut shares: BTreeMap<ConnectionClass, ClassShare> = BTreeMap::new();
    for connection in &profile.connections {
        let share = shares.entry(connection.class).or_default();
        share.connections += 1;
        share.traffic += connection.traffic;
    }
    let mut shares: Vec<_> = shares.into_iter().collect();
    // The sort is stable, so equal classes stay in the order of outputs.
    shares.sort_by_key(|(_, share)| std::cmp::Reverse(share.traffic.wire_bytes));
    shares
}
