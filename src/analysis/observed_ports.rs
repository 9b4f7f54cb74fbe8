//! Whether the captures show the traffic of all ports.

use crate::model::{Profile, TrafficKind};
use std::collections::BTreeSet;

/// What is wrong if [`may_miss_ports`], as a clause of a sentence.
pub(crate) const PORTS_MAY_BE_MISSING: &str = "the captures may not show all ports";

/// True if the captures probably hold all traffic between the ports in them: a sink of all ports
/// records each packet twice; alternatively, each port has an input, and all inputs overlap in time.
/// A capture of some ports shows only a part of the traffic of the others.
#[must_use]
pub(crate) fn sees_all_ports(profile: &Profile) -> bool {
    let data = profile.connections.iter().filter(|connection| connection.kind == TrafficKind::Data);
    let endpoints = data.flat_map(|connection| [connection.src, connection.dst]).collect::<BTreeSet<_>>().len();
    shows_all_traffic(profile, endpoints)
}

/// True if the captures may not show the traffic of all ports, so a pair without captured packets
/// may have sent some. False for a profile that names no input.
#[must_use]
pub(crate) fn may_miss_ports(profile: &Profile) -> bool {
    !profile.inputs.is_empty() && !sees_all_ports(profile) && !shows_both_ports_of_each_pair(profile)
}

/// True if inputs that overlap in time together contain nearly every pair twice: at the sender's
/// and at the receiver's port. More than twice proves nothing, because a filter may have removed
/// pairs from the profile.
fn shows_both_ports_of_each_pair(profile: &Profile) -> bool {
    let data = profile.connections.iter().filter(|connection| connection.kind == TrafficKind::Data);
    let pairs = data.map(|connection| (connection.src, connection.dst)).collect::<BTreeSet<_>>().len() as u64;
    let observed = ports_of_pairs(profile);
    are_at_once(profile) && observed <= 2 * pairs && observed * 20 >= pairs * 38
}

/// True if the captures show each packet at both of its ports, as far as the profile states it: each input
/// has both ports of its pairs, or the inputs together have two ports per pair and none misses records
/// of another one. True for a profile without inputs.
pub(super) fn shows_each_packet_at_both_ports(profile: &Profile) -> bool {
    let inputs = &profile.inputs;
    if inputs.iter().all(|input| input.pairs_observed_once == 0 && input.pairs_observed_twice > 0) {
        return true;
    }
    let pairs = profile.connections.iter().map(|connection| (connection.src, connection.dst));
    let pairs = pairs.collect::<BTreeSet<_>>().len() as u64;
    // Records that an input misses are not counted if records are not in the order of capture.
    let is_out_of_order = inputs.iter().any(|input| input.coverage.is_out_of_order());
    ports_of_pairs(profile) == 2 * pairs
        && are_at_once(profile)
        && !is_out_of_order
        && profile.trust.input_losses.is_empty()
}

/// Observation points of all pairs, over all inputs.
fn ports_of_pairs(profile: &Profile) -> u64 {
    profile.inputs.iter().map(|input| input.pairs_observed_once + 2 * input.pairs_observed_twice).sum()
}

/// True if all inputs overlap in time.
fn are_at_once(profile: &Profile) -> bool {
    let times = || profile.inputs.iter().map(|input| (input.coverage.first_time_ns, input.coverage.last_time_ns));
    let latest_start = times().map(|(first, _)| first).max().flatten();
    let first_end = times().filter_map(|(_, last)| last).min();
    latest_start.zip(first_end).is_some_and(|(start, end)| start <= end)
}

/// Like [`sees_all_ports`], for a number of places: ports, or processes that may have several ports.
#[must_use]
pub(crate) fn shows_all_traffic(profile: &Profile, places: usize) -> bool {
    let [once, twice] = profile
        .inputs
        .iter()
        .fold([0, 0], |[once, twice], input| [once + input.pairs_observed_once, twice + input.pairs_observed_twice]);
    twice > 0 && once * 20 <= twice || are_at_once(profile) && profile.inputs.len() + 1 >= places
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::fixture::connection;
    use crate::model::Coverage;
    use crate::model::profile::Input;

    /// A profile with six pairs of four ports. For each input: the number of pairs observed once
    /// and observed twice, and its times in nanoseconds.
    fn of(inputs: &[(u64, u64, [i64; 2])]) -> Profile {
        let pairs = [(1, 2), (2, 1), (1, 3), (3, 1), (3, 4), (4, 3)];
        let connections = pairs.map(|(src, dst)| connection(None, (src, 7), (dst, 7), 1)).into();
        let input = |&(pairs_observed_once, pairs_observed_twice, [first, last]): &(u64, u64, [i64; 2])| Input {
            name: String::new(),
            length_bytes: 1,
            xxh3_128: String::new(),
            sha256: None,
            format: String::new(),
            pairs_observed_once,
            pairs_observed_twice,
            clock: None,
            interrupted: false,
            ends_early: false,
            share: None,
            coverage: Coverage { first_time_ns: Some(first), last_time_ns: Some(last), ..Coverage::default() },
        };
        Profile { connections, inputs: inputs.iter().map(input).collect(), ..Profile::default() }
    }

    #[test]
    fn two_sinks_that_show_each_pair_at_both_ports_miss_none() {
        // The pairs 1, 2 and 3, 4 at one sink each, and 1, 3 at both.
        assert!(!may_miss_ports(&of(&[(2, 2, [0, 9]), (2, 2, [1, 8])])));
        // The same counts one after the other: files of one capture, which shows some ports.
        assert!(may_miss_ports(&of(&[(2, 2, [0, 9]), (2, 2, [10, 19])])));
        // One sink of two.
        assert!(may_miss_ports(&of(&[(6, 0, [0, 9])])));
        // All pairs at both ports of one sink.
        assert!(!may_miss_ports(&of(&[(0, 6, [0, 9])])));
        assert!(!may_miss_ports(&of(&[])), "a profile without inputs");
    }
}
