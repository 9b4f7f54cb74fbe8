//! A request packet on its way from the traffic generator to the delivery.

use crate::stack::Words;

/// A request packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestPacket {
    pub(crate) template: u16,
    /// True for the last packet of a message.
    pub(crate) is_last: bool,
    pub(crate) ack_req: bool,
    pub(crate) psn: u32,
    pub(crate) words: Words,
}
