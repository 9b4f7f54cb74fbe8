//! The health of one connection, and a severity by which connections are sorted.

use crate::analysis::endpoint_label::{EndpointLabels, GroupBy, Label};
use crate::model::profile::{ConnectionRow, HealthRow, RetransmissionSums};
use crate::model::{Health, Profile};
use ibscope_parsers::ib::Opcode;
use ibscope_parsers::{Endpoint, Qpn};
use std::collections::HashMap;

/// Severity of one packet: a NAK that ends a connection; a packet with a bad checksum, or that
/// violates the protocol; an RNR NAK.
const WEIGHT_FATAL: u64 = 10_000;
const WEIGHT_DAMAGED: u64 = 100;
const WEIGHT_RNR: u64 = 10;

/// One connection and its health.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionHealth<'a> {
    pub(crate) connection: &'a ConnectionRow,
    pub(crate) health: Health,
    pub(crate) retransmissions: RetransmissionSums,
    /// Mean number of requests that an ACK acknowledges, if the connection of the ACKs is known.
    pub(crate) requests_per_ack: Option<f64>,
    pub(crate) endpoints: (Label, Label),
    pub(crate) ranks: (Label, Label),
}

impl ConnectionHealth<'_> {
    pub(crate) fn service(&self) -> &'static str {
        Opcode(self.connection.service << 5).service().name()
    }

    /// Severity of the connection's problems, for sorting.
    pub(crate) fn severity(&self) -> u64 {
        severity(&self.health, &self.retransmissions)
    }
}

/// Severity of problems, for sorting.
pub(crate) fn severity(health: &Health, retransmissions: &RetransmissionSums) -> u64 {
    let fatal = health.naks() - health.nak_sequence;
    let damaged = health.icrc_bad_packets + health.vcrc_bad_packets;
    let broken = health.wrong_msn_packets + health.reused_psn_packets + health.stalled_transmissions;
    let single = retransmissions.request_packets
        + retransmissions.response_packets
        + health.nak_sequence
        + health.late_packets
        + health.reordered_packets
        + health.cnp_packets
        + health.fecn_packets
        + health.becn_packets
        + health.ecn_ce_packets
        + health.library_retransmissions
        + health.unobserved_psns
        + health.lost();
    [(fatal, WEIGHT_FATAL), (broken + damaged, WEIGHT_DAMAGED), (health.rnr_naks, WEIGHT_RNR), (single, 1)]
        .into_iter()
        .fold(0u64, |sum, (count, weight)| sum.saturating_add(count.saturating_mul(weight)))
}

/// SEND, WRITE and FLUSH packets without retransmissions: the requests that ACKs acknowledge.
const fn acknowledged_requests(health: &Health, retransmissions: &RetransmissionSums) -> u64 {
    health.request_packets.saturating_sub(retransmissions.request_packets).saturating_sub(health.data_requests)
}

/// ACKs without NAKs and without duplicates.
pub(crate) const fn plain_acks(health: &Health, retransmissions: &RetransmissionSums) -> u64 {
    let excluded = health.naks() + health.rnr_naks + retransmissions.acknowledge_packets;
    health.acknowledge_packets.saturating_sub(excluded)
}

/// Ratio of the gap between requests after congestion notifications (CNPs) to the gap before them.
pub(crate) fn slowdown(health: &Health) -> Option<f64> {
    (health.cnp_gap_before_ns > 0).then(|| health.cnp_gap_after_ns as f64 / health.cnp_gap_before_ns as f64)
}

/// The ACKs of each connection, by the queue pair that they go to.
struct AcksByReceiver(HashMap<(Endpoint, Endpoint, u8, Qpn), u64>);

impl AcksByReceiver {
    fn new(profile: &Profile) -> Self {
        let place = |row: &ConnectionRow| (row.src, row.dst, row.service, row.dest_qp);
        let rows = profile.health.iter();
        let rows = rows.filter_map(|row| Some((profile.connections.get(row.connection as usize)?, row.health)));
        Self(rows.map(|(row, health)| (place(row), plain_acks(&health, &row.retransmissions))).collect())
    }

    /// The requests of a connection and their ACKs, if the connection of the ACKs is known.
    fn requests_and_acks(&self, connection: &ConnectionRow, health: &Health) -> Option<(u64, u64)> {
        let requests = acknowledged_requests(health, &connection.retransmissions);
        // ACKs go to the sender's queue pair.
        let back = (connection.dst, connection.src, connection.service, connection.src_qp?);
        let acks = self.0.get(&back).copied().filter(|acks| *acks > 0 && requests > 0)?;
        Some((requests, acks))
    }
}

/// The requests of all connections and their ACKs, where the connection of the ACKs is known.
pub(crate) fn requests_and_acks(profile: &Profile) -> (u64, u64) {
    let acks = AcksByReceiver::new(profile);
    let found = |row: HealthRow| acks.requests_and_acks(profile.connections.get(row.connection as usize)?, &row.health);
    profile.health.iter().filter_map(found).fold((0, 0), |sum, own| (sum.0 + own.0, sum.1 + own.1))
}

/// The connections that have a health row.
pub(crate) fn connections(profile: &Profile) -> impl Iterator<Item = ConnectionHealth<'_>> {
    let (ports, ranks) = (EndpointLabels::new(profile, GroupBy::Endpoint), EndpointLabels::new(profile, GroupBy::Rank));
    let acks = AcksByReceiver::new(profile);
    let row = move |HealthRow { connection, health }: HealthRow| {
        let connection = profile.connections.get(connection as usize)?;
        let per_ack = acks.requests_and_acks(connection, &health).filter(|_| connection.sampled.is_none());
        Some(ConnectionHealth {
            connection,
            health: super::known_health(connection, &health),
            retransmissions: super::known_retransmissions(connection),
            requests_per_ack: per_ack.map(|(requests, acks)| requests as f64 / acks as f64),
            endpoints: (ports.sender(connection), ports.receiver(connection)),
            ranks: (ranks.sender(connection), ranks.receiver(connection)),
        })
    };
    profile.health.iter().filter_map(row)
}
