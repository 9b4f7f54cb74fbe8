//! Round trips of the transport: the time after which a packet that the network delivers is
//! acknowledged, regardless of the processes.

use crate::model::profile::ConnectionRow;
use crate::model::{Histogram, Interval, Profile, TrafficKind, Verb};
use ibscope_parsers::Endpoint;
use std::collections::BTreeMap;

/// Median round trips by pair of ports.
pub(super) struct RoundTrips(BTreeMap<(Endpoint, Endpoint), u64>);

/// Two ports, the lower one first.
fn pair(one: Endpoint, other: Endpoint) -> (Endpoint, Endpoint) {
    (one.min(other), one.max(other))
}

impl RoundTrips {
    /// Takes SENDs with their acknowledgements, and READs with their first response.
    pub(super) fn of(profile: &Profile) -> Self {
        let mut directions: BTreeMap<(Endpoint, Endpoint), Histogram> = BTreeMap::new();
        for row in &profile.latencies {
            let is_round_trip = match row.timing.interval {
                Interval::Acknowledged => row.timing.verb == Verb::Send,
                Interval::FirstResponse => row.timing.verb == Verb::Read,
                _ => false,
            };
            let connection = profile.connections.get(row.connection as usize);
            if let Some(connection) = connection.filter(|own| is_round_trip && own.kind == TrafficKind::Data) {
                directions.entry((connection.src, connection.dst)).or_default().merge(&row.histogram);
            }
        }
        let mut pairs: BTreeMap<(Endpoint, Endpoint), u64> = BTreeMap::new();
        for ((src, dst), times) in directions {
            // The longer of both directions: a capture at one port shows only the turnaround of this
            // port for the packets that arrive there.
            let longest_ns = pairs.entry(pair(src, dst)).or_default();
            *longest_ns = times.quantile(0.5).max(*longest_ns);
        }
        Self(pairs)
    }

    /// Median round trip between the ports of a connection in nanoseconds; `None` if no packet shows
    /// it, as for datagrams.
    pub(super) fn median_ns(&self, connection: &ConnectionRow) -> Option<u64> {
        self.0.get(&pair(connection.src, connection.dst)).copied().filter(|median_ns| *median_ns > 0)
    }
}
