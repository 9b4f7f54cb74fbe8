//! Sums of packets and messages, as a whole and by bin of the time series.

use super::{CongestionEvent, MpiClass, TimingKey};
use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

/// Sums of one kind of packets or messages of a connection in one bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BinSums {
    /// The kind.
    pub class: BinClass,
    /// The sums; for MPI messages `payload_bytes` holds MPI bytes.
    pub sums: PacketSums,
    /// Messages.
    pub messages: u64,
}

/// Kinds of sums in a bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BinClass {
    /// Packets that are not retransmissions.
    Sent,
    /// Retransmissions.
    Retransmitted,
    /// MPI messages of a class.
    Mpi(MpiClass),
    /// Packets that show congestion or a NAK; they are in `Sent` or `Retransmitted` too.
    Congestion(CongestionEvent),
}

/// Times of one kind and one coarse bucket in one bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeBin {
    /// Number of the bin in which they start: time divided by the bin's width.
    pub bin: i64,
    /// Interval, verb and size class.
    pub key: TimingKey,
    /// Their [`coarse_bucket`](super::histogram::coarse_bucket).
    pub bucket: u16,
    /// Number of times.
    pub count: u32,
}

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketSums {
    /// Packets.
    pub packets: u64,
    /// Wire bytes: LRH to VCRC, or whole Ethernet frames.
    pub wire_bytes: u64,
    /// InfiniBand payload, without pad and ICRC.
    pub payload_bytes: u64,
}

impl PacketSums {
    /// True if there are no packets.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.packets == 0
    }
}

impl AddAssign for PacketSums {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.wire_bytes += other.wire_bytes;
        // May hold MPI bytes too, which come from envelopes.
        self.payload_bytes = self.payload_bytes.saturating_add(other.payload_bytes);
    }
}
