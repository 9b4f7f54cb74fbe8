//! One connection: how bad it is, and what to look at next.

use super::super::units::{counted, group, span as duration};
use super::super::who::{By, Label, Who};
use crate::model::profile::{ConnectionRow, HealthRow, Repeats};
use crate::model::{Health, Profile};
use ibscope_parsers::ib::Opcode;
use std::collections::HashMap;

/// What one packet counts when connections are compared: a NAK that ends a connection, a wrong check sum, a receiver that is not ready.
const WEIGHT_FATAL: u64 = 10_000;
const WEIGHT_DAMAGED: u64 = 100;
const WEIGHT_RNR: u64 = 10;

/// One connection.
#[derive(Clone, Debug)]
pub(super) struct Row<'a> {
    pub(super) connection: &'a ConnectionRow,
    pub(super) health: Health,
    /// How many requests an ACK acknowledged, where the connection back is known.
    pub(super) requests_per_ack: Option<f64>,
    pub(super) endpoints: (Label, Label),
    pub(super) ranks: (Label, Label),
}

impl Row<'_> {
    pub(super) fn repeats(&self) -> Repeats {
        self.connection.repeats
    }

    pub(super) fn service(&self) -> &'static str {
        Opcode(self.connection.service << 5).service().name()
    }

    /// For people: the rank where it is known, else the port by its name.
    pub(super) fn who(&self) -> String {
        let name = |rank: &Label, endpoint: &Label| match rank {
            Label::Rank(..) => format!("rank {rank}"),
            _ => endpoint.name(),
        };
        let (src, dst) = (name(&self.ranks.0, &self.endpoints.0), name(&self.ranks.1, &self.endpoints.1));
        format!("{src} -> {dst}, {} queue pair {:#x}", self.service(), self.connection.dest_qp.value())
    }

    pub(super) fn severity(&self) -> u64 {
        severity(&self.health, &self.repeats())
    }

    /// What went wrong and what to look at next, one sentence each.
    pub(super) fn findings(&self) -> Vec<String> {
        let health = &self.health;
        let repeats = self.repeats();
        let mut findings = Vec::new();
        let mut say = |count: u64, what: String| {
            if count > 0 {
                findings.push(what);
            }
        };
        let fatal = [
            (
                health.nak_invalid_request,
                "invalid request",
                "a message longer than the receive buffer, or an operation that the queue pair does not allow",
            ),
            (
                health.nak_remote_access,
                "remote access error",
                "a wrong key or address: the memory was deregistered or never registered",
            ),
            (
                health.nak_remote_operational,
                "remote operational error",
                "a fault in the responder's adapter or host: see its logs",
            ),
            (health.nak_invalid_rd, "invalid RD request", "the reliable datagram domain of the responder"),
            (health.nak_reserved, "of a reserved code", "an adapter or a capture that is broken"),
        ];
        for (count, name, next) in fatal {
            say(count, format!("{}: {name}, which ends the connection; look for {next}", counted(count, "NAK")));
        }
        say(
            health.rnr_naks,
            format!(
                "{}, waits of up to {}: the sender of this row posts too few receive buffers for what comes in",
                counted(health.rnr_naks, "RNR NAK"),
                duration(health.longest_rnr_timer_ns)
            ),
        );
        say(
            health.nak_sequence,
            format!(
                "{}: PSN sequence error: packets towards the sender of this row were lost on the path; check symbol errors and \
                 discards of its link and of the leaf ports",
                counted(health.nak_sequence, "NAK")
            ),
        );
        let cost = match health.episodes_timed {
            0 => String::new(),
            _ => format!(
                " that cost {} together, {} the longest",
                duration(health.episode_ns),
                duration(health.longest_episode_ns)
            ),
        };
        say(
            repeats.request_packets,
            format!(
                "{} sent again in {}{cost}: they or their ACKs were lost; check symbol errors and discards of the \
                 ports on the path, and the time-out of the queue pair",
                counted(repeats.request_packets, "request"),
                counted(health.episodes, "go-back-N episode")
            ),
        );
        say(
            repeats.response_packets,
            format!(
                "{} sent again: responses were lost on the way to the receiver of this row; check the ports on that path",
                counted(repeats.response_packets, "READ or atomic response")
            ),
        );
        say(
            health.cnp_packets,
            format!(
                "{}: what comes the other way meets congestion; look for incast or a slow receiver",
                counted(health.cnp_packets, "congestion notification")
            ),
        );
        say(
            health.fecn_packets + health.ecn_ce_packets,
            format!(
                "{} marked for congestion on their way (FECN {}, ECN {}): a queue on this path is full",
                counted(health.fecn_packets + health.ecn_ce_packets, "packet"),
                group(health.fecn_packets),
                group(health.ecn_ce_packets)
            ),
        );
        say(
            health.becn_packets,
            format!(
                "{} with BECN: the receiver of this row was asked to slow down",
                counted(health.becn_packets, "packet")
            ),
        );
        say(
            health.icrc_bad_packets,
            format!(
                "{} with a wrong ICRC: damage inside an adapter or switch, or in the capture",
                counted(health.icrc_bad_packets, "packet")
            ),
        );
        say(
            health.vcrc_bad_packets,
            format!(
                "{} with a wrong VCRC: damage on a cable, or in the capture; check symbol errors of the links",
                counted(health.vcrc_bad_packets, "packet")
            ),
        );
        say(
            health.cnp_reactions,
            format!(
                "requests came {:.1} times as far apart after congestion notifications ({} measured)",
                slowdown(health).unwrap_or(1.0),
                group(health.cnp_reactions)
            ),
        );
        say(
            health.library_repeats,
            format!(
                "{} sent again by UCX: they or their ACKs were lost or late; check discards, and UCX_UD_TIMEOUT",
                counted(health.library_repeats, "datagram")
            ),
        );
        say(
            health.lost(),
            format!(
                "capture loss of {} ({} to {}): they were acknowledged and never seen; the mirror port or the sink dropped them",
                counted(health.lost(), "packet"),
                group(health.lost_at_least),
                group(health.lost_at_most)
            ),
        );
        say(
            health.open_psns,
            format!(
                "{} PSNs never seen, and no acknowledgement of them: lost on the path, or by a capture that lacks the other direction",
                group(health.open_psns)
            ),
        );
        say(
            health.late_packets,
            format!(
                "{} behind a later PSN: sent again after a loss before the capture, or out of order (several paths)",
                counted(health.late_packets, "packet")
            ),
        );
        findings
    }
}

/// How bad it is, for comparison.
pub(super) fn severity(health: &Health, repeats: &Repeats) -> u64 {
    let fatal = health.naks() - health.nak_sequence;
    let damaged = health.icrc_bad_packets + health.vcrc_bad_packets;
    let single = repeats.request_packets
        + repeats.response_packets
        + health.nak_sequence
        + health.late_packets
        + health.cnp_packets
        + health.fecn_packets
        + health.becn_packets
        + health.ecn_ce_packets
        + health.library_repeats
        + health.open_psns
        + health.lost();
    [(fatal, WEIGHT_FATAL), (damaged, WEIGHT_DAMAGED), (health.rnr_naks, WEIGHT_RNR), (single, 1)]
        .into_iter()
        .fold(0u64, |sum, (count, weight)| sum.saturating_add(count.saturating_mul(weight)))
}

/// SEND, WRITE and FLUSH packets, first transmissions: what ACKs are for.
pub(super) const fn acknowledged_requests(health: &Health, repeats: &Repeats) -> u64 {
    health.request_packets.saturating_sub(repeats.request_packets).saturating_sub(health.data_requests)
}

/// ACKs, first transmissions, without NAKs.
pub(super) const fn plain_acks(health: &Health, repeats: &Repeats) -> u64 {
    let refusals = health.naks() + health.rnr_naks + repeats.acknowledge_packets;
    health.acknowledge_packets.saturating_sub(refusals)
}

/// How many times as far apart requests came after notifications of congestion.
pub(super) fn slowdown(health: &Health) -> Option<f64> {
    (health.cnp_gap_before_ns > 0).then(|| health.cnp_gap_after_ns as f64 / health.cnp_gap_before_ns as f64)
}

/// The connections with something to say.
pub(super) fn rows(profile: &Profile) -> impl Iterator<Item = Row<'_>> {
    let (ports, ranks) = (Who::new(profile, By::Endpoint), Who::new(profile, By::Rank));
    // ACKs go to the sender's queue pair.
    let place = |connection: &ConnectionRow| (connection.src, connection.dst, connection.service, connection.dest_qp);
    let acks: HashMap<_, u64> = profile
        .health
        .iter()
        .filter_map(|row| Some((profile.connections.get(row.connection as usize)?, row.health)))
        .map(|(connection, health)| (place(connection), plain_acks(&health, &connection.repeats)))
        .collect();
    let requests_per_ack = move |connection: &ConnectionRow, health: &Health| {
        let requests = acknowledged_requests(health, &connection.repeats);
        let back = (connection.dst, connection.src, connection.service, connection.src_qp?);
        let acks = acks.get(&back).copied().filter(|acks| *acks > 0 && requests > 0)?;
        Some(requests as f64 / acks as f64)
    };
    let row = move |HealthRow { connection, health }: HealthRow| {
        let connection = profile.connections.get(connection as usize)?;
        Some(Row {
            connection,
            health,
            requests_per_ack: requests_per_ack(connection, &health),
            endpoints: (ports.sender(connection), ports.receiver(connection)),
            ranks: (ranks.sender(connection), ranks.receiver(connection)),
        })
    };
    profile.health.iter().filter_map(row)
}
