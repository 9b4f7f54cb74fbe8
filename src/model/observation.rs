//! Observations of a packet: their classes, and the observation points that explain them.
//!
//! The same packet is observed again at a second observation point, and if the sender retransmits it.
//! Invariant: the class depends on the number of the observation alone.

use super::PacketRole;
use ibscope_parsers::mpi::{Envelope, LibraryStack};
use ibscope_parsers::ulp::UpperLayerMessage;

/// Occurrence classes of a packet: first, second, odd from the third, even from the fourth.
pub const OCCURRENCES: usize = 4;

/// Class of the `occurrence`-th observation of a packet.
#[must_use]
pub const fn occurrence_class(occurrence: u32) -> usize {
    match occurrence {
        0 | 1 => 0,
        2 => 1,
        odd if odd % 2 == 1 => 2,
        _ => 3,
    }
}

/// Observation points of a directed pair of endpoints in one input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PointCount {
    /// Later observations of a packet are retransmissions.
    #[default]
    One,
    /// Every second observation is a mirror copy.
    Two,
    /// Neither explains the observations: a later one may be a mirror copy or a retransmission, so only the
    /// first one of each PSN counts.
    Unclear,
}

impl PointCount {
    /// True if the input holds both mirror copies of each packet.
    #[must_use]
    pub const fn is_two(self) -> bool {
        matches!(self, Self::Two)
    }
}

/// Result of the flow stage for one packet.
#[derive(Clone, Copy, Debug)]
pub struct PacketObservation {
    /// Dense number of the packet's connection within its tracker.
    pub connection: u32,
    /// Its role.
    pub role: PacketRole,
    /// Number of this observation of the packet (same connection, role and PSN) in this file: 1, 2,
    /// ...
    pub occurrence: u32,
    /// The packet counts as a transport message: Last or Only of SEND and WRITE, READ, atomic and
    /// FLUSH requests, datagrams.
    pub counts_message: bool,
    /// This packet shows that a request was observed twice although its sender did not retransmit it:
    /// a go-back-N retransmits all later requests too, and no sooner than the ACK can be late.
    pub shows_copy: bool,
}

/// Classification of the first packet of a transport message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartEvent {
    /// A message of this library stack, with or without an envelope.
    Recognized(LibraryStack, Option<Envelope>),
    /// A message that is recognized also matches this upper-layer protocol.
    AlsoMatches(UpperLayerMessage),
    /// A retransmission under a new PSN (UCX over UD).
    Retransmitted,
    /// A message of no known library; the upper-layer protocol that it looks like, if any.
    Unknown(Option<UpperLayerMessage>),
}
