//! Problems of the fabric and losses of the capture: totals, and sums by connection, link and time.

mod connection;
mod links;
mod mirror;
mod pauses;
mod time_series;

pub(crate) use connection::{ConnectionHealth, connections, plain_acks, requests_and_acks, severity, slowdown};
pub(crate) use links::{Link, LinkDirection, Links, links};
pub(crate) use mirror::{MirrorLoad, mirror_load};
pub use pauses::PauseTimes;
pub(crate) use pauses::{PauseRow, longest_pause_ns, pause_rows};
pub use time_series::{HealthBin, HealthSeries, HealthSums, health_series};

use crate::model::column::ColumnDescription;
use crate::model::profile::{ConnectionRow, RetransmissionSums};
use crate::model::{Health, Profile};

/// Reason why a sampled capture has no retransmissions, reordered or lost packets in its health.
pub(crate) const UNKNOWN_IN_SAMPLES: &str =
    "unknown, because a sample does not show why a packet is missing or appears twice";

/// The known parts of the health of a connection.
pub(crate) fn known_health(connection: &ConnectionRow, health: &Health) -> Health {
    if connection.sampled.is_some() { health.of_samples() } else { *health }
}

/// The retransmissions of a connection; none if they are not known.
pub(crate) fn known_retransmissions(connection: &ConnectionRow) -> RetransmissionSums {
    if connection.sampled.is_some() { RetransmissionSums::default() } else { connection.retransmissions }
}

/// True if a column of [`Health`] or [`RetransmissionSums`] is known in a capture.
pub(crate) fn is_known(column: &str, is_sampled: bool) -> bool {
    !is_sampled || Health::OF_SINGLE_PACKETS.contains(&column)
}

/// Sums over all connections. In a sampled capture, sums that are not [known](is_known) are 0.
pub(crate) fn totals(profile: &Profile) -> (Health, RetransmissionSums) {
    let (mut health, mut sums) = (Health::default(), RetransmissionSums::default());
    for row in &profile.health {
        if let Some(connection) = profile.connections.get(row.connection as usize) {
            health += known_health(connection, &row.health);
            sums += known_retransmissions(connection);
        }
    }
    (health, sums)
}

/// Sums over all connections: the retransmission columns, then the columns of [`Health`]; `None` for
/// those that are not known.
pub(crate) fn column_totals(profile: &Profile) -> Vec<(ColumnDescription, Option<u64>)> {
    let (health, sums) = totals(profile);
    let retransmissions = RetransmissionSums::COLUMNS.into_iter().zip(sums.values());
    let all = retransmissions.chain(Health::COLUMNS.into_iter().zip(health.values()));
    all.map(|(column, count)| (column, is_known(column.name, profile.sampling.is_some()).then_some(count))).collect()
}
