//! What goes wrong on the fabric, and what the capture missed: totals, and by connection, link and time.

mod connection;
mod links;
mod pauses;
mod retransmissions;

pub(crate) use connection::{ConnectionHealth, acknowledged_requests, connections, plain_acks, slowdown};
pub(crate) use links::{Link, LinkDirection, links};
pub(crate) use pauses::{PauseRow, longest_pause_ns, pause_rows};
pub use retransmissions::{RepeatedBin, Retransmissions, retransmissions};

use crate::model::profile::Repeats;
use crate::model::{Health, Profile};

/// Columns of what was sent again, in front of those of [`Health`].
pub(crate) const REPEATS: [&str; 5] = [
    "retransmitted_request_packets",
    "retransmitted_response_packets",
    "repeated_acknowledge_packets",
    "retransmitted_wire_bytes",
    "retransmitted_payload_bytes",
];

/// All connections together.
pub(crate) fn totals(profile: &Profile) -> (Health, Repeats) {
    let (mut health, mut repeats) = (Health::default(), Repeats::default());
    for row in &profile.health {
        if let Some(connection) = profile.connections.get(row.connection as usize) {
            health += row.health;
            repeats += connection.repeats;
        }
    }
    (health, repeats)
}

/// All connections together: the repeats, and the columns of [`Health`].
pub(crate) fn total(profile: &Profile) -> Vec<(&'static str, u64)> {
    let (health, repeats) = totals(profile);
    REPEATS.into_iter().zip(repeats_values(&repeats)).chain(Health::COLUMNS.into_iter().zip(health.values())).collect()
}

/// In the order of [`REPEATS`].
pub(crate) const fn repeats_values(repeats: &Repeats) -> [u64; 5] {
    [
        repeats.request_packets,
        repeats.response_packets,
        repeats.acknowledge_packets,
        repeats.wire_bytes,
        repeats.payload_bytes,
    ]
}
