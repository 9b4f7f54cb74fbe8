//! One connection in words: who it is, and what to look at next.

use crate::analysis::Label;
use crate::analysis::health::{ConnectionHealth, slowdown};
use crate::render::units::{counted, group, span as duration};

/// For people: the rank where it is known, else the port by its name.
pub(super) fn who(row: &ConnectionHealth<'_>) -> String {
    let name = |rank: &Label, endpoint: &Label| match rank {
        Label::Rank(..) => format!("rank {rank}"),
        _ => endpoint.name(),
    };
    let (src, dst) = (name(&row.ranks.0, &row.endpoints.0), name(&row.ranks.1, &row.endpoints.1));
    format!("{src} -> {dst}, {} queue pair {:#x}", row.service(), row.connection.dest_qp.value())
}

/// What went wrong and what to look at next, one sentence each.
pub(super) fn findings(row: &ConnectionHealth<'_>) -> Vec<String> {
    let health = &row.health;
    let repeats = row.repeats();
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
