//! Computes the health of a connection from the events that the flow stage counted.
//!
//! In: events and packet sums of one connection in one input, and the observation points of its pair
//! there. Out: its [`Health`]. Invariant: a mirror copy never counts as an event of its own.

use super::PartialSums;
use crate::model::health::{CountsByObservation, Episodes, HealthEvents, ReorderingSums};
use crate::model::observation::OCCURRENCES;
use crate::model::{ConnectionKey, Health, PacketRole, PacketSums, PointCount};

/// Transmissions of one request that show that a connection makes no progress. Adapters usually
/// retransmit seven times; a capture may end within an ordinary recovery.
const MIN_STALLED: u64 = 4;

/// The health of a connection in one input.
pub(super) fn of_connection(
    key: &ConnectionKey,
    partial: &PartialSums,
    observed: &HealthEvents,
    points: PointCount,
) -> Health {
    let twice = points.is_two();
    // Mirror copies of NAKs and RNR NAKs double their number; an odd one has lost its copy.
    let observed_events = |observations: u64| if twice { observations.div_ceil(2) } else { observations };
    let events = |observations: CountsByObservation| match points {
        PointCount::One | PointCount::Two => observed_events(observations.all()),
        PointCount::Unclear => observations.first(),
    };
    // FECN, BECN or CE is set between the two observation points, or before the first. The
    // observation that has it counts.
    let by_parity = |[odd, even]: [u64; 2]| if twice { odd.max(even) } else { odd + even };
    let flagged = |observations: CountsByObservation| match points {
        PointCount::One | PointCount::Two => by_parity(observations.by_parity()),
        PointCount::Unclear => observations.first().max(observations.second()),
    };
    let sent = |role: PacketRole| {
        let [first, second, odd, even] = partial.sums(role as usize).map(|sums: PacketSums| sums.packets);
        match points {
            PointCount::One => first + second + odd + even,
            PointCount::Two => first + odd,
            PointCount::Unclear if role == PacketRole::Other => first + second + odd + even,
            PointCount::Unclear => first,
        }
    };
    let [fecn_packets, becn_packets, ecn_ce_packets, icrc_bad_packets, vcrc_bad_packets] =
        observed.flagged.map(flagged);
    let [nak_sequence, nak_invalid_request, nak_remote_access, nak_remote_operational, nak_invalid_rd, nak_reserved] =
        observed.naks.map(events);
    // Copies look like steps back of the sender.
    let is_known = points != PointCount::Unclear;
    let episodes = if is_known { observed.episodes[usize::from(twice)] } else { Episodes::default() };
    let reordered = if is_known { observed.reordered[usize::from(twice)] } else { ReorderingSums::default() };
    let stalled_transmissions = observed_events(observed.stalled_observations);
    let datagram = key.is_datagram();
    Health {
        request_packets: if datagram { 0 } else { sent(PacketRole::Request) },
        data_requests: observed.data_requests,
        acknowledge_packets: sent(PacketRole::Acknowledge),
        episodes: episodes.count,
        episode_packets: episodes.packets,
        episodes_timed: episodes.timed,
        episode_ns: episodes.total_ns,
        longest_episode_ns: episodes.longest_ns,
        late_packets: observed.late_packets,
        reordered_packets: reordered.packets,
        reorder_distance_psns: reordered.distance_psns,
        longest_reorder_distance_psns: reordered.longest_psns,
        reused_psn_packets: by_parity(observed.reused_psns),
        wrong_msn_packets: observed.wrong_msns,
        stalled_transmissions: if stalled_transmissions < MIN_STALLED { 0 } else { stalled_transmissions },
        nak_sequence,
        nak_invalid_request,
        nak_remote_access,
        nak_remote_operational,
        nak_invalid_rd,
        nak_reserved,
        rnr_naks: events(observed.rnr_naks),
        longest_rnr_timer_ns: observed.longest_rnr_timer_ns,
        cnp_packets: sent(PacketRole::Other),
        cnp_reactions: observed.reaction.count,
        cnp_gap_before_ns: observed.reaction.before_ns,
        cnp_gap_after_ns: observed.reaction.after_ns,
        fecn_packets,
        becn_packets,
        ecn_ce_packets,
        icrc_bad_packets,
        vcrc_bad_packets,
        library_retransmissions: observed.library_retransmissions,
        datagram_gap_psns: if datagram { observed.unobserved_psns } else { 0 },
        unobserved_psns: if datagram { 0 } else { observed.unobserved_psns },
        lost_requests: observed.loss.requests,
        lost_responses: observed.loss.responses,
        lost_at_least: observed.loss.at_least,
        lost_at_most: observed.loss.at_most,
        single_observation_packets: if twice { single_observations(partial) } else { 0 },
        missing_in_other_inputs: 0,
    }
}

/// Transmissions whose mirror copy is missing.
fn single_observations(partial: &PartialSums) -> u64 {
    let odd = |by_occurrence: &[PacketSums; OCCURRENCES]| {
        let [first, second, odd, even] = by_occurrence.map(|sums| sums.packets);
        (first + odd).saturating_sub(second + even)
    };
    partial.all_sums().iter().map(odd).sum()
}
