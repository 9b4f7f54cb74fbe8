//! Other protocols between the endpoints of a job, built packet by packet from their
//! specifications.
//!
//! Every function returns the packets once, in order of time, as the senders put them on the wire.
//! [`mirrored`] adds the second copy that a sink sees when it mirrors both ports.

mod channel;
mod ipoib;
mod lustre;
mod storage;
mod ucx;

pub use channel::{Channel, Side};
pub use ipoib::{connected, datagrams};
pub use lustre::o2iblnd;
pub use storage::{iser, smb_direct, srp};
pub use ucx::tagged;

use ibscope_parsers::frame::LinkType;

use super::rewrite::End;
use super::{Recording, combine};
use crate::Random;

/// Who talks, when and how much.
#[derive(Clone, Copy, Debug)]
pub struct Talk {
    /// The initiator, client or first process.
    pub client: End,
    /// The target, server or second process.
    pub server: End,
    /// Time of the first packet, nanoseconds since the epoch.
    pub start_ns: u64,
    /// Time between the beginnings of two operations.
    pub step_ns: u64,
    /// Number of operations.
    pub operations: u64,
}

/// A protocol: makes the packets of a talk in one framing.
pub type Protocol = fn(&Talk, LinkType, &mut Random) -> Recording;

/// All of them by name.
pub const ALL: [(&str, Protocol); 7] = [
    ("srp", srp),
    ("iser", iser),
    ("smb-direct", smb_direct),
    ("ipoib-datagram", datagrams),
    ("ipoib-connected", connected),
    ("o2iblnd", o2iblnd),
    ("ucx-tags", tagged),
];

/// Every packet twice, the second a microsecond later: at the sender's and at the receiver's port.
#[must_use]
pub fn mirrored(traffic: &Recording) -> Recording {
    combine::merge(&[traffic.clone(), combine::shift(traffic, 1000)])
}
