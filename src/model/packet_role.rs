//! The role of a packet in the sequence numbers of its connection.

use ibscope_parsers::ib::{Opcode, Service};

/// The role of a packet in the sequence numbers of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PacketRole {
    /// SEND, WRITE, READ request, atomic, datagram, and unknown opcodes. Numbered by the sender.
    Request = 0,
    /// Response with data: READ response, atomic acknowledgement. Carries a PSN of its request.
    Response = 1,
    /// ACK or NAK. Carries the PSN that it acknowledges.
    Acknowledge = 2,
    /// Not numbered: congestion notifications.
    Other = 3,
}

impl PacketRole {
    /// Number of roles.
    pub const COUNT: usize = 4;

    /// The role of a packet with this opcode.
    #[must_use]
    #[inline]
    pub const fn of(opcode: Opcode) -> Self {
        ROLES[opcode.0 as usize]
    }

    const fn classify(opcode: Opcode) -> Self {
        if opcode.is_ack() {
            Self::Acknowledge
        } else if opcode.is_response() {
            Self::Response
        } else if matches!(opcode.service(), Service::Cnp) {
            Self::Other
        } else {
            Self::Request
        }
    }
}

/// Roles by opcode, as a table, because every packet needs one.
const ROLES: [PacketRole; 256] = {
    let mut roles = [PacketRole::Request; 256];
    let mut code = 0;
    while code < roles.len() {
        roles[code] = PacketRole::classify(Opcode(code as u8));
        code += 1;
    }
    roles
};
