//! What a packet is to the sequence numbers of its connection.

use ibscope_parsers::ib::{Opcode, Service};

/// What a packet is to the sequence numbers of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Turn {
    /// It asks for something: SEND, WRITE, READ request, atomic, datagram; unknown opcodes too. Numbered by the sender.
    Request = 0,
    /// It answers with data: READ response, atomic acknowledgement. Numbered by the receiver's requests.
    Response = 1,
    /// ACK or NAK. Carries the number it acknowledges.
    Acknowledge = 2,
    /// Not numbered: congestion notifications.
    Other = 3,
}

impl Turn {
    /// How many there are.
    pub const COUNT: usize = 4;

    /// The turn of a packet.
    #[must_use]
    #[inline]
    pub const fn of(opcode: Opcode) -> Self {
        TURNS[opcode.0 as usize]
    }

    const fn decide(opcode: Opcode) -> Self {
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

/// By opcode: it is asked for every packet.
const TURNS: [Turn; 256] = {
    let mut turns = [Turn::Request; 256];
    let mut code = 0;
    while code < turns.len() {
        turns[code] = Turn::decide(Opcode(code as u8));
        code += 1;
    }
    turns
};
