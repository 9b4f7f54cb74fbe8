//! The health of one connection, and a severity by which connections are sorted.

use crate::analysis::endpoint_label::{EndpointLabels, GroupBy, Label};
use crate::model::profile::{ConnectionRow, HealthRow, RetransmissionSums};
use crate::model::{Health, Profile};
use ibscope_parsers::ib::Opcode;
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
pub(crate) const fn acknowledged_requests(health: &Health, retransmissions: &RetransmissionSums) -> u64 {
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

/// The connections that have a health row.
pub(crate) fn connections(profile: &Profile) -> impl Iterator<Item = ConnectionHealth<'_>> {
    let (ports, ranks) = (EndpointLabels::new(profile, GroupBy::Endpoint), EndpointLabels::new(profile, GroupBy::Rank));
    // ACKs go to the sender's queue pair.
    let place = |connection: &ConnectionRow| (connection.src, connection.dst, connection.service, connection.dest_qp);
    let acks: HashMap<_, u64> = profile
        .health
        .iter()
        .filter_map(|row| Some((profile.connections.get(row.connection as usize)?, row.health)))
        .map(|(connection, health)| (place(connection), plain_acks(&health, &connection.retransmissions)))
        .collect();
    let requests_per_ack = move |connection: &ConnectionRow, health: &Health| {
        let requests = acknowledged_requests(health, &connection.retransmissions);
        let back = (connection.dst, connection.src, connection.service, connection.src_qp?);
        let acks = acks.get(&back).copied().filter(|acks| *acks > 0 && requests > 0)?;
        Some(requests as f64 / acks as f64)
    };
    let row = move |HealthRow { connection, health }: HealthRow| {
        let connection = profile.connections.get(connection as usize)?;
        let per_ack = requests_per_ack(connection, &health).filter(|_| connection.sampled.is_none());
        Some(ConnectionHealth {
            connection,
            health: super::known_health(connection, &health),
            retransmissions: super::known_retransmissions(connection),
            requests_per_ack: per_ack,
            endpoints: (ports.sender(connection), ports.receiver(connection)),
            ranks: (ranks.sender(connection), ranks.receiver(connection)),
        })
    };
    profile.health.iter().filter_map(row)
}
