//! Whether the captures show the traffic of all ports.
//!
//! A capture of one port shows the traffic of this port only. So the traffic between two other ports is
//! missing, and nothing in the captures shows it. Invariant: a port counts as captured only if a connection
//! of it was captured at both of its ports. Several files of one port, with different connections in each,
//! do not show that.

use crate::model::{Profile, TrafficKind};
use ibscope_parsers::Endpoint;
use std::collections::BTreeSet;

/// What is wrong if [`may_miss_ports`], as a clause of a sentence.
pub(crate) const PORTS_MAY_BE_MISSING: &str = "the captures may not show all ports";

/// True if the captures hold all traffic between the ports in them: at most one port was not captured
/// itself. False if the profile does not state it.
#[must_use]
pub(crate) fn sees_all_ports(profile: &Profile) -> bool {
    let (ports, uncaptured) = (ports(profile), uncaptured_ports(profile));
    // A capture of two ports shows one of them at least.
    uncaptured.len() <= 1 || ports.len() <= 2
}

/// True if the captures may not show the traffic of all ports, so a pair without captured packets
/// may have sent some. False for a profile that names no input.
#[must_use]
pub(crate) fn may_miss_ports(profile: &Profile) -> bool {
    !profile.inputs.is_empty() && !sees_all_ports(profile)
}

/// Ports of the data connections that were not captured, as far as the profile states it.
#[must_use]
pub(crate) fn uncaptured_ports(profile: &Profile) -> BTreeSet<Endpoint> {
    let mut ports = ports(profile);
    let data = profile.connections.iter().filter(|connection| connection.kind == TrafficKind::Data);
    let captured = data.filter(|connection| connection.is_at_both_ports == Some(true));
    captured.flat_map(|connection| [connection.src, connection.dst]).for_each(|port| _ = ports.remove(&port));
    ports
}

/// Ports of the data connections.
fn ports(profile: &Profile) -> BTreeSet<Endpoint> {
    let data = profile.connections.iter().filter(|connection| connection.kind == TrafficKind::Data);
    data.flat_map(|connection| [connection.src, connection.dst]).collect()
}

/// True if the captures show each packet at both of its ports, as far as the profile states it: each input
/// has both ports of its pairs, or the inputs together have both ports of each connection and none misses
/// records of another one. True for a profile without inputs.
#[must_use]
pub(super) fn shows_each_packet_at_both_ports(profile: &Profile) -> bool {
    // The files after the first one of a rotated capture have no pairs of their own.
    let mut with_pairs =
        profile.inputs.iter().filter(|input| input.pairs_observed_once + input.pairs_observed_twice > 0).peekable();
    if profile.inputs.is_empty()
        || with_pairs.peek().is_some() && with_pairs.all(|input| input.pairs_observed_once == 0)
    {
        return true;
    }
    // Records that an input misses are not counted if records are not in the order of capture.
    let is_out_of_order = profile.inputs.iter().any(|input| input.coverage.is_out_of_order());
    profile.connections.iter().all(|connection| connection.is_at_both_ports == Some(true))
        && !is_out_of_order
        && profile.trust.input_losses.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::fixture::connection;
    use crate::model::Coverage;
    use crate::model::profile::{ConnectionRow, Input};

    /// A profile of an input with these connections: LIDs, and whether both ports were captured.
    fn of(connections: &[(u16, u16, bool)]) -> Profile {
        let connection = |&(src, dst, is_at_both_ports): &(u16, u16, bool)| ConnectionRow {
            is_at_both_ports: Some(is_at_both_ports),
            ..connection(None, (src, 7), (dst, 7), 1)
        };
        let input = Input {
            name: String::new(),
            length_bytes: 1,
            xxh3_128: String::new(),
            sha256: None,
            format: String::new(),
            pairs_observed_once: 1,
            pairs_observed_twice: 1,
            clock: None,
            interrupted: false,
            ends_early: false,
            share: None,
            coverage: Coverage::default(),
        };
        Profile { connections: connections.iter().map(connection).collect(), inputs: vec![input], ..Profile::default() }
    }

    #[test]
    fn all_ports_but_one_are_captured() {
        // Each pair at both ports, in one sink or in several captures.
        assert!(!may_miss_ports(&of(&[(1, 2, true), (2, 1, true), (3, 4, true)])));
        // All ports but 4.
        assert!(!may_miss_ports(&of(&[(1, 2, true), (1, 3, true), (1, 4, false), (2, 4, false)])));
        // Ports 1 and 2: 3 and 4 may exchange packets.
        assert!(may_miss_ports(&of(&[(1, 2, true), (1, 3, false), (2, 4, false)])));
        // One port, whose files hold different connections, or the ports 2 and 3: nothing tells them apart.
        assert!(may_miss_ports(&of(&[(1, 2, false), (1, 3, false)])));
        // One of two ports.
        assert!(!may_miss_ports(&of(&[(1, 2, false), (2, 1, false)])));
        assert!(!may_miss_ports(&Profile { inputs: Vec::new(), ..of(&[(1, 2, false), (1, 3, false)]) }));
    }
}
