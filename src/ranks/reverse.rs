//! The opposite direction of each connection.
//!
//! Connections, sorted by key, and the partners of their queue pairs go in. The index of each
//! opposite direction comes out, found once for coverage, classes and trust.

use super::QueuePairPartners;
use super::tag_layout;
use crate::model::{ConnectionKey, ConnectionTotals, Health, QueuePair};
use ibscope_parsers::Qpn;
use rayon::prelude::*;

/// For each connection, the connection in the opposite direction.
pub(super) struct ReverseConnections<'a> {
    pub(super) connections: &'a [Box<ConnectionTotals>],
    indices: Vec<Option<u32>>,
}

impl<'a> ReverseConnections<'a> {
    /// Finds the opposite directions of all connections, which are sorted by key.
    pub(super) fn new(connections: &'a [Box<ConnectionTotals>], paired: &QueuePairPartners) -> Self {
        // Side by side, because a search of a million boxes waits for memory at every step.
        let keys: Vec<ConnectionKey> = connections.par_iter().map(|own| own.key).collect();
        let reverse = |key| keys.binary_search(&reverse_key(key, paired)?).ok().map(|at| at as u32);
        Self { connections, indices: keys.par_iter().map(reverse).collect() }
    }

    /// The index of the opposite direction.
    pub(super) fn index(&self, connection: usize) -> Option<usize> {
        self.indices[connection].map(|at| at as usize)
    }

    /// The opposite direction of a connected service. The datagrams of two queue pairs have nothing
    /// to do with each other.
    pub(super) fn connected(&self, connection: usize) -> Option<&'a ConnectionTotals> {
        let at = self.index(connection).filter(|_| !self.connections[connection].key.is_datagram())?;
        Some(&self.connections[at])
    }
}

/// Clears the losses of each connection whose opposite direction is unknown, or shares no input
/// with the connection.
pub(super) fn clear_foreign_losses(connections: &mut [Box<ConnectionTotals>], paired: &QueuePairPartners) {
    let has_loss = |own: &ConnectionTotals| own.health.whole().lost_at_most > 0;
    if !connections.iter().any(|own| has_loss(own)) {
        return;
    }
    let reverse = ReverseConnections::new(connections, paired);
    let is_foreign = |index: usize| {
        let own: &ConnectionTotals = &reverse.connections[index];
        // The opposite direction may count from another input that holds both.
        let shares_input =
            |back: &ConnectionTotals| own.inputs.iter().any(|input| back.continuity.held_by.may_contain(*input));
        has_loss(own) && !reverse.connected(index).is_some_and(shares_input)
    };
    let foreign: Vec<bool> = (0..reverse.connections.len()).into_par_iter().map(is_foreign).collect();
    for (own, _) in connections.iter_mut().zip(foreign).filter(|(_, is_foreign)| *is_foreign) {
        own.health.change(|health| {
            let (lost_requests, lost_responses, lost_at_least, lost_at_most) = (0, 0, 0, 0);
            *health = Health { lost_requests, lost_responses, lost_at_least, lost_at_most, ..*health };
        });
    }
}

/// The key of the opposite direction.
fn reverse_key(key: &ConnectionKey, paired: &QueuePairPartners) -> Option<ConnectionKey> {
    let sender = sender(key, paired)?;
    let src_qp = if key.is_datagram() { key.dest_qp } else { Qpn::new(0) };
    Some(ConnectionKey { src: key.dst, dst: key.src, dest_qp: sender.qpn, src_qp, ..*key })
}

/// The sender's queue pair.
pub(super) fn sender(key: &ConnectionKey, paired: &QueuePairPartners) -> Option<QueuePair> {
    if key.is_datagram() {
        return Some(QueuePair { endpoint: key.src, qpn: key.src_qp });
    }
    paired.partner(tag_layout::receiver(key)).map(|(end, _)| end)
}
