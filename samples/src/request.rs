//! What a sender asks to have delivered.

use crate::stack::Words;

/// A request packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) template: u16,
    /// A message ends with it.
    pub(crate) is_last: bool,
    pub(crate) ack_req: bool,
    pub(crate) psn: u32,
    pub(crate) words: Words,
}
