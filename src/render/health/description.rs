//! Describes the problems of a whole profile, line by line.

use super::findings::mean_distance;
use super::pauses::descriptions as describe_pauses;
use crate::analysis::health::{UNKNOWN_IN_SAMPLES, mirror_load, plain_acks, requests_and_acks, slowdown, totals};
use crate::model::link::Speed;
use crate::model::profile::RetransmissionSums;
use crate::model::{Coverage, Health, Profile, count_either, duration as window, printable};
use crate::render::units::{bits_per_second, bytes, count_of, group, seconds_since, span as duration};
use crate::render::{paths, trust};

/// The totals as labeled lines.
pub(super) fn describe(profile: &Profile, speed: Option<&Speed>) -> Vec<DescriptionLine> {
    let (health, retransmissions) = totals(profile);
    let mut lines = vec![("trust", trust::sentence(&profile.trust))];
    let is_sampled = profile.sampling.is_some();
    if !is_sampled {
        lines.extend(profile.trust.reasons.iter().map(|reason| ("", printable(reason))));
    }
    lines.extend(speed.and_then(|speed| describe_mirror(profile, speed)));
    if is_sampled {
        lines.push(("retransmitted", UNKNOWN_IN_SAMPLES.to_owned()));
    } else {
        lines.extend(describe_retransmissions(&health, &retransmissions));
    }
    lines.extend(describe_naks(&health));
    lines.extend(describe_congestion(&health));
    lines.extend(describe_pauses(&profile.coverage, speed).into_iter().map(|line| ("pause", line)));
    lines.extend(describe_checksums(&profile.coverage));
    if !is_sampled {
        let late = format!("{} arrived after a packet with a later PSN", count_of(health.late_packets, "packet"));
        lines.push(("late", late));
        lines.extend(describe_order(&health));
    }
    lines.extend(paths::sentences(profile).into_iter().map(|sentence| ("path", sentence)));
    let acks = plain_acks(&health, &retransmissions);
    if acks > 0 && !is_sampled {
        let of_each = match requests_and_acks(profile) {
            (_, 0) => "no connection whose requests they acknowledge was captured".to_owned(),
            (requests, acks) => {
                format!("each for {:.2} SEND and WRITE packets on average", requests as f64 / acks as f64)
            }
        };
        lines.push(("ACKs", format!("{}, {of_each}", group(acks))));
    }
    if is_sampled {
        lines.push(("capture loss", UNKNOWN_IN_SAMPLES.to_owned()));
    } else {
        lines.extend(describe_losses(&health));
    }
    lines.extend(describe_losses_of_inputs(profile));
    lines.extend(describe_observations(&health));
    lines
}

/// A label and its text; without a label, the line continues the previous one.
type DescriptionLine = (&'static str, String);

fn describe_retransmissions(health: &Health, retransmissions: &RetransmissionSums) -> Vec<DescriptionLine> {
    let sent = format!(
        "{}, {}, {}, {} on the wire",
        count_of(retransmissions.request_packets, "request"),
        count_of(retransmissions.response_packets, "response"),
        count_of(retransmissions.acknowledge_packets, "duplicate ACK"),
        bytes(retransmissions.wire_bytes)
    );
    let cost = match health.episodes_timed {
        0 => String::new(),
        timed => format!(
            ", {} in total, {} on average, {} the longest",
            duration(health.episode_ns),
            duration(health.episode_ns / timed),
            duration(health.longest_episode_ns)
        ),
    };
    vec![("retransmitted", sent), ("go-back-N", format!("{}{cost}", count_of(health.episodes, "episode")))]
}

fn describe_naks(health: &Health) -> [DescriptionLine; 2] {
    let naks = format!(
        "{} PSN sequence, {} invalid request, {} remote access, {} remote operation, {} invalid RD, {} reserved",
        group(health.nak_sequence),
        group(health.nak_invalid_request),
        group(health.nak_remote_access),
        group(health.nak_remote_operational),
        group(health.nak_invalid_rd),
        group(health.nak_reserved)
    );
    let timer = match health.rnr_naks {
        0 => String::new(),
        _ => format!(", waits of up to {}", duration(health.longest_rnr_timer_ns)),
    };
    [("NAKs", naks), ("RNR NAKs", format!("{}{timer}", group(health.rnr_naks)))]
}

fn describe_congestion(health: &Health) -> Vec<DescriptionLine> {
    let packets = format!(
        "{} CNP, {} FECN, {} BECN, {} ECN-CE",
        group(health.cnp_packets),
        group(health.fecn_packets),
        group(health.becn_packets),
        group(health.ecn_ce_packets)
    );
    let reaction = slowdown(health).map(|times| {
        let count = count_of(health.cnp_reactions, "CNP");
        ("", format!("requests were {times:.1} times as far apart after a CNP ({count} measured)"))
    });
    [("congestion", packets)].into_iter().chain(reaction).collect()
}

/// Reordering and violations of the protocol, if there are any.
fn describe_order(health: &Health) -> Vec<DescriptionLine> {
    let mut lines = Vec::new();
    if health.reordered_packets > 0 {
        lines.push((
            "reordered",
            format!(
                "{} without a loss, {:.1} PSNs late on average, {} the most",
                count_of(health.reordered_packets, "packet"),
                mean_distance(health),
                group(health.longest_reorder_distance_psns)
            ),
        ));
    }
    if health.wrong_msn_packets + health.reused_psn_packets > 0 {
        lines.push((
            "protocol",
            format!(
                "{} with a wrong MSN, {} that reuse PSNs of a READ",
                count_either(health.wrong_msn_packets, "ACK or response", "ACKs or responses"),
                count_of(health.reused_psn_packets, "request")
            ),
        ));
    }
    if health.stalled_transmissions > 0 {
        let sent = group(health.stalled_transmissions);
        let line = format!("a request was sent {sent} times, and was still not acknowledged at the end of the capture");
        lines.push(("no progress", line));
    }
    lines
}

fn describe_checksums(coverage: &Coverage) -> impl Iterator<Item = DescriptionLine> {
    let checks =
        [("wrong ICRC", coverage.icrc_ok, coverage.icrc_bad), ("wrong VCRC", coverage.vcrc_ok, coverage.vcrc_bad)];
    // Only native captures have a VCRC, and not all of them.
    let shown = checks.into_iter().filter(|(label, ok, bad)| ok + bad > 0 || *label == "wrong ICRC");
    shown.map(|(label, ok, bad)| (label, format!("{} of {} checked", group(bad), group(ok + bad))))
}

/// The load of the sink's link, and its meaning.
fn describe_mirror(profile: &Profile, speed: &Speed) -> Option<DescriptionLine> {
    let load = mirror_load(profile, speed)?;
    let meaning = if load.is_full() {
        ": the mirrored ports probably send more than the link carries, and the mirror drops the rest; mirror fewer ports"
    } else {
        ""
    };
    Some((
        "mirror",
        format!(
            "up to {} captured over {}, at {} s: {:.0} % of {}{meaning}",
            bits_per_second(load.bytes_per_s),
            window(load.window_ns),
            seconds_since(load.origin_ns, load.from_ns),
            load.link_percent,
            speed.describe()
        ),
    ))
}

fn describe_losses(health: &Health) -> [DescriptionLine; 1] {
    [(
        "capture loss",
        format!(
            "{} and {} missing from the capture, inferred from ACKs and later packets ({} to {}); {} missing without evidence of delivery",
            count_of(health.lost_requests, "request"),
            count_of(health.lost_responses, "response"),
            group(health.lost_at_least),
            count_of(health.lost_at_most, "packet"),
            count_of(health.unobserved_psns, "PSN")
        ),
    )]
}

/// Evidence of the interfaces and of other inputs for lost packets.
fn describe_losses_of_inputs(profile: &Profile) -> Vec<DescriptionLine> {
    let mut lines = Vec::new();
    let drops = profile.coverage.interface_drops;
    if drops > 0 {
        let packets = count_of(drops, "packet");
        lines.push(("", format!("{packets} dropped by the capturing interfaces, by their own count")));
    }
    let missing = profile.inputs.iter().filter(|input| input.coverage.missing_packets > 0);
    lines.extend(missing.map(|input| {
        let packets = count_of(input.coverage.missing_packets, "packet");
        let name = printable(&input.name);
        (
            "",
            format!(
                "{name} is missing {packets} that another input has: lost by this capture, or on the fabric upstream of its observation point"
            ),
        )
    }));
    lines
}

/// Packets that one of two ports observed, and those of the libraries' own protocols.
fn describe_observations(health: &Health) -> Vec<DescriptionLine> {
    let mut lines = Vec::new();
    if health.single_observation_packets > 0 {
        let packets = count_of(health.single_observation_packets, "packet");
        lines.push((
            "one port only",
            format!(
                "{packets} observed at one of two ports only: lost on the fabric, or by the capture at the other port"
            ),
        ));
    }
    if health.library_retransmissions + health.datagram_gap_psns > 0 {
        lines.push((
            "datagrams",
            format!(
                "{} retransmitted by UCX; {} of UD queue pairs not observed (normal: a queue pair numbers the datagrams to all destinations in one sequence)",
                group(health.library_retransmissions),
                count_of(health.datagram_gap_psns, "PSN")
            ),
        ));
    }
    lines
}
