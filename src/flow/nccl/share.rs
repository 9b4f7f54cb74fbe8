//! The WRITEs of NCCL messages: where they start in a receive, their sums, and the messages that they
//! make.

use crate::flow::assembly::{Transport, join_times};
use crate::model::NcclReceive;
use ibscope_parsers::mpi::{Envelope, Identity, Length, MatchFields};
use smallvec::SmallVec;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Buffer {
    pub(super) address: u64,
    pub(super) capacity_bytes: u64,
    /// Rank of the sender.
    pub(super) rank: Option<u32>,
}

impl Buffer {
    pub(super) const fn overlaps(&self, other: &Self) -> bool {
        self.address < other.address.saturating_add(other.capacity_bytes)
            && other.address < self.address.saturating_add(self.capacity_bytes)
    }
}

/// Position in a receive at which a WRITE starts.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceivePosition {
    pub(super) index: u64,
    pub(super) buffer: usize,
    pub(super) offset: u64,
}

/// A WRITE of a path and its position.
#[derive(Clone, Copy, Debug)]
pub(super) struct NcclShare {
    pub(super) position: Option<ReceivePosition>,
    pub(super) sums: WriteSums,
}

/// Sums of one or several WRITEs.
#[derive(Clone, Copy, Debug)]
pub(in crate::flow) struct WriteSums {
    /// Number of the connection.
    pub(in crate::flow) connection: u32,
    /// PSN of the first packet.
    pub(in crate::flow) psn: u32,
    /// Length in bytes.
    pub(in crate::flow) length_bytes: u64,
    /// Wire bytes of the packets: LRH to VCRC, or whole Ethernet frames.
    pub(in crate::flow) wire_bytes: u64,
    /// Number of packets.
    pub(in crate::flow) packets: u64,
    /// Times of the first and the last packet.
    pub(in crate::flow) times_ns: (i64, i64),
    /// All packets were observed.
    pub(in crate::flow) complete: bool,
    /// Other paths carry the rest of the message.
    pub(in crate::flow) is_part: bool,
    /// [`start_hash`](crate::model::start_hash) of the data.
    pub(super) start_hash: Option<u32>,
}

impl WriteSums {
    pub(super) fn of(connection: u32, message: &Transport) -> Self {
        Self {
            connection,
            psn: message.psn,
            length_bytes: message.target.map_or(0, |reth| reth.dma_len.into()),
            wire_bytes: message.wire_bytes,
            packets: message.packets,
            times_ns: message.times_ns,
            complete: message.complete,
            is_part: false,
            start_hash: message.start_hash,
        }
    }

    pub(super) fn and(self, later: Self) -> Self {
        Self {
            length_bytes: self.length_bytes.saturating_add(later.length_bytes),
            wire_bytes: self.wire_bytes + later.wire_bytes,
            packets: self.packets + later.packets,
            times_ns: join_times(self.times_ns, later.times_ns),
            complete: self.complete && later.complete,
            ..self
        }
    }

    /// These WRITEs as a message of `length_bytes` bytes.
    pub(super) const fn message(self, length_bytes: u64) -> Self {
        Self { length_bytes, is_part: self.length_bytes < length_bytes, ..self }
    }

    /// Another message in the same packets, which count for the first one.
    pub(super) const fn none(self) -> Self {
        Self { length_bytes: 0, wire_bytes: 0, packets: 0, ..self }
    }
}

/// The receive that a path's messages fill.
#[derive(Debug)]
pub(super) struct MatchedReceive {
    pub(super) index: u64,
    pub(super) posted_ns: i64,
    pub(super) buffers: SmallVec<[Buffer; 1]>,
}

impl MatchedReceive {
    /// The receive of message number `at`, whose sums are `written`.
    pub(super) fn of_message(&self, ring: u64, at: usize, written: &WriteSums) -> Option<NcclReceive> {
        let buffer = self.buffers.get(at)?;
        Some(NcclReceive {
            ring,
            index: self.index,
            posted_ns: self.posted_ns,
            buffer_address: buffer.address,
            buffer_bytes: buffer.capacity_bytes,
            data_hash: written.start_hash,
        })
    }
}

/// A message that has ended. It has no envelope if the release gives no rank.
#[derive(Debug)]
pub(in crate::flow) struct NcclMessage {
    pub(in crate::flow) envelope: Option<Envelope>,
    pub(in crate::flow) sums: WriteSums,
    pub(in crate::flow) receive: Option<NcclReceive>,
}

impl NcclMessage {
    pub(super) fn of(rank: Option<u32>, written: WriteSums, receive: Option<NcclReceive>) -> Self {
        let envelope = rank.map(|rank| envelope(rank, Length::Explicit(written.length_bytes)));
        Self { envelope, sums: written, receive }
    }
}

/// Result of an NCCL packet.
#[derive(Debug, Default)]
pub(in crate::flow) struct NcclOutcome {
    /// The WRITE is NCCL data, or may be.
    pub(in crate::flow) is_data: bool,
    /// Shares by connection number: true for a share that starts its message.
    pub(in crate::flow) shares: SmallVec<[(u32, bool); 1]>,
    /// Messages that have ended.
    pub(in crate::flow) ended: Vec<NcclMessage>,
    /// Messages of unknown sender or length: their connections, and their senders if known.
    pub(in crate::flow) unknown: Vec<(u32, Option<u32>)>,
    /// Messages that may not be NCCL's, because the owner of the memory is unknown.
    pub(in crate::flow) others: Vec<WriteSums>,
}

/// Envelope of a message from this rank.
pub(in crate::flow) const fn envelope(rank: u32, length: Length) -> Envelope {
    let identity = Identity { rank, context: 0, tag: 0, world: true, collective: false };
    Envelope { matching: MatchFields::Named(identity), length, sequence: None }
}
