//! From what the flow stage observed to the health of a connection, once it is known whether the input holds each packet once or twice.

use super::{OCCURRENCES, Partial};
use crate::model::Health;
use crate::model::health::Observed;
use crate::model::{ConnectionKey, Sums, Turn};

/// The health of a connection in one input.
pub(super) fn of_connection(key: &ConnectionKey, partial: &Partial, observed: &Observed, twice: bool) -> Health {
    // Copies of NAKs and notifications are as many as they are themselves; an odd one has lost its copy.
    let events = |sights: u64| if twice { sights.div_ceil(2) } else { sights };
    // A mark is set between the two points, or before the first: the copy that has it counts.
    let marked = |[odd, even]: [u64; 2]| if twice { odd.max(even) } else { odd + even };
    let sent = |turn: Turn| {
        let [first, second, odd, even] = partial.sums(turn as usize).map(|sums: Sums| sums.packets);
        if twice { first + odd } else { first + second + odd + even }
    };
    let [fecn_packets, becn_packets, ecn_ce_packets, icrc_bad_packets, vcrc_bad_packets] = observed.marked.map(marked);
    let [nak_sequence, nak_invalid_request, nak_remote_access, nak_remote_operational, nak_invalid_rd, nak_reserved] =
        observed.naks.map(events);
    let episodes = observed.episodes[usize::from(twice)];
    let datagram = key.is_datagram();
    let cnp_packets = sent(Turn::Other);
    Health {
        request_packets: if datagram { 0 } else { sent(Turn::Request) },
        data_requests: observed.data_requests,
        acknowledge_packets: sent(Turn::Acknowledge),
        episodes: episodes.count,
        episode_packets: episodes.packets,
        episodes_timed: episodes.timed,
        episode_ns: episodes.total_ns,
        longest_episode_ns: episodes.longest_ns,
        late_packets: observed.late,
        nak_sequence,
        nak_invalid_request,
        nak_remote_access,
        nak_remote_operational,
        nak_invalid_rd,
        nak_reserved,
        rnr_naks: events(observed.rnr_naks),
        longest_rnr_timer_ns: observed.longest_rnr_timer_ns,
        cnp_packets,
        cnp_reactions: observed.reaction.count,
        cnp_gap_before_ns: observed.reaction.before_ns,
        cnp_gap_after_ns: observed.reaction.after_ns,
        fecn_packets,
        // Every notification has it.
        becn_packets: becn_packets.saturating_sub(cnp_packets),
        ecn_ce_packets,
        icrc_bad_packets,
        vcrc_bad_packets,
        library_repeats: observed.library_repeats,
        datagram_gap_psns: if datagram { observed.open_psns } else { 0 },
        open_psns: if datagram { 0 } else { observed.open_psns },
        lost_requests: observed.loss.requests,
        lost_responses: observed.loss.responses,
        lost_at_least: observed.loss.at_least,
        lost_at_most: observed.loss.at_most,
        one_sided_packets: if twice { one_sided(partial) } else { 0 },
        missing_in_other_inputs: 0,
    }
}

/// Transmissions without a copy.
fn one_sided(partial: &Partial) -> u64 {
    let odd = |by_occurrence: &[Sums; OCCURRENCES]| {
        let [first, second, odd, even] = by_occurrence.map(|sums| sums.packets);
        (first + odd).saturating_sub(second + even)
    };
    partial.all_sums().iter().map(odd).sum()
}
