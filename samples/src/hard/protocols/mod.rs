//! Traffic of other protocols between the endpoints of a job, built packet by packet from their
//! specifications.
//!
//! Every function returns each packet once, in order of time, as the senders transmit them.
//! [`mirrored`] adds the second mirror copy of a sink that mirrors both ports.

mod channel;
mod ipoib;
mod lustre;
mod storage;
mod ucx;

pub use channel::{Channel, ChannelSide};
pub use ipoib::{connected, datagrams};
pub use lustre::o2iblnd;
pub use storage::{iser, smb_direct, srp};
pub use ucx::tagged;

use ibscope_parsers::frame::LinkType;

use super::rewrite::QueuePairAddress;
use super::{Recording, combine};
use crate::Random;

/// Participants, times and size of a conversation.
#[derive(Clone, Copy, Debug)]
pub struct Conversation {
    /// The initiator, client or first process.
    pub client: QueuePairAddress,
    /// The target, server or second process.
    pub server: QueuePairAddress,
    /// Time of the first packet in nanoseconds since the epoch.
    pub start_ns: u64,
    /// Time between the starts of two operations in nanoseconds.
    pub step_ns: u64,
    /// Number of operations.
    pub operations: u64,
}

/// A protocol: generates the packets of a conversation in one framing.
pub type ProtocolGenerator = fn(&Conversation, LinkType, &mut Random) -> Recording;

/// All protocols by name.
pub const ALL: [(&str, ProtocolGenerator); 7] = [
    ("srp", srp),
    ("iser", iser),
    ("smb-direct", smb_direct),
    ("ipoib-datagram", datagrams),
    ("ipoib-connected", connected),
    ("o2iblnd", o2iblnd),
    ("ucx-tags", tagged),
];

/// Adds a second copy of every packet a microsecond later: one at the sender's port, one at the
/// receiver's.
#[must_use]
pub fn mirrored(traffic: &Recording) -> Recording {
    combine::merge(&[traffic.clone(), combine::shift(traffic, 1000)])
}
