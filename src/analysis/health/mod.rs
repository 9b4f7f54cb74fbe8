//! Problems of the fabric and losses of the capture: totals, and sums by connection, link and time.

mod connection;
mod links;
mod mirror;
mod pauses;
mod retransmissions;

pub(crate) use connection::{ConnectionHealth, acknowledged_requests, connections, plain_acks, slowdown};
pub(crate) use links::{Link, LinkDirection, Links, links};
pub(crate) use mirror::{MirrorLoad, mirror_load};
pub(crate) use pauses::{PauseRow, longest_pause_ns, pause_rows};
pub use retransmissions::{RetransmissionBin, Retransmissions, retransmissions};

use crate::model::column::ColumnDescription;
use crate::model::profile::RetransmissionSums;
use crate::model::{Health, Profile};

/// Sums over all connections.
pub(crate) fn totals(profile: &Profile) -> (Health, RetransmissionSums) {
    let (mut health, mut sums) = (Health::default(), RetransmissionSums::default());
    for row in &profile.health {
        if let Some(connection) = profile.connections.get(row.connection as usize) {
            health += row.health;
            sums += connection.retransmissions;
        }
    }
    (health, sums)
}

/// Sums over all connections: the retransmission columns, then the columns of [`Health`].
pub(crate) fn column_totals(profile: &Profile) -> Vec<(ColumnDescription, u64)> {
    let (health, sums) = totals(profile);
    let retransmissions = RetransmissionSums::COLUMNS.into_iter().zip(sums.values());
    retransmissions.chain(Health::COLUMNS.into_iter().zip(health.values())).collect()
}
