//! Sums over RDMA without envelopes.

use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

/// RDMA WRITEs and READs in the direction of their bytes, without repeats: of a READ what its responses carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RdmaSums {
    /// Those whose first packet was seen.
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
