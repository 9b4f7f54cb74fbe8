//! Describes the problems of one connection: its label, and one sentence per finding.

use crate::analysis::Label;
use crate::analysis::health::{ConnectionHealth, slowdown};
use crate::model::{Health, count_either};
use crate::render::units::{count_of, group, span as duration};

/// The label of a connection: ranks where known, else ports by name; service and queue pair.
pub(super) fn connection_label(row: &ConnectionHealth<'_>) -> String {
    let name = |rank: &Label, endpoint: &Label| match rank {
        Label::Rank(..) => format!("rank {rank}"),
        _ => endpoint.name(),
    };
    let (src, dst) = (name(&row.ranks.0, &row.endpoints.0), name(&row.ranks.1, &row.endpoints.1));
    format!("{src} → {dst}, {} queue pair {:#x}", row.service(), row.connection.dest_qp.value())
}

/// One sentence per problem: how often it occurred, and what to check next.
pub(super) fn findings(row: &ConnectionHealth<'_>) -> Vec<String> {
    let health = &row.health;
    let groups = [
        naks(health),
        retransmissions(row),
        protocol(health),
        congestion(health),
        damage(health),
        losses(health),
        order(health),
    ];
    let found = groups.into_iter().flatten();
    found.filter(|(count, _)| *count > 0).map(|(_, sentence)| sentence).collect()
}

/// A count, and the sentence that reports it unless it is 0.
type CountedFinding = (u64, String);

fn naks(health: &Health) -> Vec<CountedFinding> {
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
            "a fault in the responder's adapter or host, see its logs",
        ),
        (health.nak_invalid_rd, "invalid RD request", "a wrong reliable datagram domain at the responder"),
        (health.nak_reserved, "reserved code", "a broken adapter or a damaged capture"),
    ];
    let sentence = |(count, name, next): (u64, &str, &str)| {
        (count, format!("{}: {name}, which ends the connection; check for {next}", count_of(count, "NAK")))
    };
    let mut found: Vec<CountedFinding> = fatal.into_iter().map(sentence).collect();
    found.push((
        health.rnr_naks,
        format!(
            "{}, waits of up to {}: the sender of this connection posts too few receive buffers for the incoming messages",
            count_of(health.rnr_naks, "RNR NAK"),
            duration(health.longest_rnr_timer_ns)
        ),
    ));
    found.push((
        health.nak_sequence,
        format!(
            "{}, PSN sequence error: packets of the opposite direction were lost on their way to the sender of these NAKs; check \
             symbol errors and discards of the links to this sender",
            count_of(health.nak_sequence, "NAK")
        ),
    ));
    found
}

fn retransmissions(row: &ConnectionHealth<'_>) -> Vec<CountedFinding> {
    let health = &row.health;
    let retransmissions = row.retransmissions;
    let cost = match health.episodes_timed {
        0 => String::new(),
        _ => format!(
            " that took {} in total, {} the longest",
            duration(health.episode_ns),
            duration(health.longest_episode_ns)
        ),
    };
    vec![
        (
            retransmissions.request_packets,
            format!(
                "{} retransmitted in {}{cost}: requests or their ACKs were lost; check symbol errors and discards of the \
                 ports on the path, and the timeout of the queue pair",
                count_of(retransmissions.request_packets, "request"),
                count_of(health.episodes, "go-back-N episode")
            ),
        ),
        (
            retransmissions.response_packets,
            format!(
                "{} retransmitted: responses were lost on the way to the receiver of this connection; check the ports on that path",
                count_of(retransmissions.response_packets, "READ or atomic response")
            ),
        ),
    ]
}

fn protocol(health: &Health) -> Vec<CountedFinding> {
    vec![
        (
            health.stalled_transmissions,
            format!(
                "no progress: the oldest request that was not acknowledged was sent {} times; the receiver is gone, or its \
                 packets do not arrive; check its host and the path back",
                group(health.stalled_transmissions)
            ),
        ),
        (
            health.wrong_msn_packets,
            format!(
                "{} with a wrong MSN from the sender of this connection: a faulty adapter or a damaged capture; its peer may \
                 complete requests that were not executed",
                count_either(health.wrong_msn_packets, "ACK or response", "ACKs or responses")
            ),
        ),
        (
            health.reused_psn_packets,
            format!(
                "{} that reuse PSNs of the responses to the preceding READ: a faulty adapter; the receiver and all counts here \
                 treat these requests as retransmissions",
                count_of(health.reused_psn_packets, "request")
            ),
        ),
    ]
}

fn order(health: &Health) -> Vec<CountedFinding> {
    let late = health.late_packets.saturating_sub(health.reordered_packets);
    vec![
        (
            health.reordered_packets,
            format!(
                "{} reordered without a loss, by {:.1} PSNs on average and {} at most: packets take several paths (adaptive \
                 routing); the receiver must accept them out of order",
                count_of(health.reordered_packets, "packet"),
                mean_distance(health),
                group(health.longest_reorder_distance_psns)
            ),
        ),
        (
            late,
            format!(
                "{} arrived after a packet with a later PSN: retransmitted because of a loss upstream of the capture",
                count_of(late, "packet")
            ),
        ),
    ]
}

/// Mean reorder distance in PSNs.
pub(super) fn mean_distance(health: &Health) -> f64 {
    health.reorder_distance_psns as f64 / health.reordered_packets.max(1) as f64
}

fn congestion(health: &Health) -> Vec<CountedFinding> {
    let notified = health.fecn_packets + health.ecn_ce_packets;
    vec![
        (
            health.cnp_packets,
            format!(
                "{}: the opposite direction is congested; check for incast or a slow receiver",
                count_of(health.cnp_packets, "congestion notification")
            ),
        ),
        (
            notified,
            format!(
                "{} with FECN or ECN (FECN {}, ECN {}): a queue on this path is full",
                count_of(notified, "packet"),
                group(health.fecn_packets),
                group(health.ecn_ce_packets)
            ),
        ),
        (
            health.becn_packets,
            format!(
                "{} with BECN: the receiver of this connection was asked to slow down",
                count_of(health.becn_packets, "packet")
            ),
        ),
    ]
}

fn damage(health: &Health) -> Vec<CountedFinding> {
    vec![
        (
            health.icrc_bad_packets,
            format!(
                "{} with a wrong ICRC: damage inside an adapter or switch, or in the capture",
                count_of(health.icrc_bad_packets, "packet")
            ),
        ),
        (
            health.vcrc_bad_packets,
            format!(
                "{} with a wrong VCRC: damage on a cable, or in the capture; check symbol errors of the links",
                count_of(health.vcrc_bad_packets, "packet")
            ),
        ),
    ]
}

fn losses(health: &Health) -> Vec<CountedFinding> {
    vec![
        (
            health.cnp_reactions,
            format!(
                "requests were {:.1} times as far apart after congestion notifications ({} measured)",
                slowdown(health).unwrap_or(1.0),
                count_of(health.cnp_reactions, "notification")
            ),
        ),
        (
            health.library_retransmissions,
            format!(
                "{} retransmitted by UCX: datagrams or their ACKs were lost or late; check discards, and UCX_UD_TIMEOUT",
                count_of(health.library_retransmissions, "datagram")
            ),
        ),
        (
            health.lost(),
            format!(
                "capture loss of {} ({} to {}): acknowledged but not in the capture; the mirror port or the sink dropped packets",
                count_of(health.lost(), "packet"),
                group(health.lost_at_least),
                group(health.lost_at_most)
            ),
        ),
        (
            health.unobserved_psns,
            format!(
                "{} neither observed nor acknowledged: lost on the path, or the capture is missing the other direction",
                count_of(health.unobserved_psns, "PSN")
            ),
        ),
    ]
}
