//! Whether the captures show the traffic of all ports.

use crate::model::{Profile, TrafficKind};
use std::collections::BTreeSet;

/// True if the captures probably hold all traffic between the ports in them: a sink of all ports
/// records each packet twice; alternatively, each port has an input, and all inputs overlap in time.
/// A capture of some ports shows only a part of the traffic of the others.
#[must_use]
pub(crate) fn sees_all_ports(profile: &Profile) -> bool {
    let data = profile.connections.iter().filter(|connection| connection.kind == TrafficKind::Data);
    let endpoints = data.flat_map(|connection| [connection.src, connection.dst]).collect::<BTreeSet<_>>().len();
    shows_all_traffic(profile, endpoints)
}

/// True if a pair without packets in the captures may have sent some: the captures do not show the
/// traffic of all ports. False for a profile that names no input.
#[must_use]
pub(crate) fn may_miss_ports(profile: &Profile) -> bool {
    !profile.inputs.is_empty() && !sees_all_ports(profile)
}

/// Like [`sees_all_ports`], for a number of places: ports, or processes that may have several ports.
#[must_use]
pub(crate) fn shows_all_traffic(profile: &Profile, places: usize) -> bool {
    let [once, twice] = profile
        .inputs
        .iter()
        .fold([0, 0], |[once, twice], input| [once + input.pairs_observed_once, twice + input.pairs_observed_twice]);
    let times = || profile.inputs.iter().map(|input| (input.coverage.first_time_ns, input.coverage.last_time_ns));
    let latest_start = times().map(|(first, _)| first).max().flatten();
    let first_end = times().filter_map(|(_, last)| last).min();
    let at_once = latest_start.zip(first_end).is_some_and(|(start, end)| start <= end);
    twice > 0 && once * 20 <= twice || at_once && profile.inputs.len() + 1 >= places
}
