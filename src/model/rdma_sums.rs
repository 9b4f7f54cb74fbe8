//! Sums over RDMA operations without envelopes.

use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

/// RDMA WRITEs and READs in the direction of their data, without retransmissions; the data of a
/// READ is the payload of its responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RdmaSums {
    /// Operations whose first packet was observed.
    pub messages: u64,
    /// InfiniBand payload.
    pub payload_bytes: u64,
}

impl AddAssign for RdmaSums {
    fn add_assign(&mut self, other: Self) {
        self.messages += other.messages;
        self.payload_bytes += other.payload_bytes;
    }
}
