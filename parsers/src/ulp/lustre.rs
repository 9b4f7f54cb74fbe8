//! Lustre's `LNet` over verbs, `o2iblnd` (Lustre `lnet/klnds/o2iblnd/o2iblnd-idl.h`). Fields are in
//! the byte order of the sender.
//!
//! ```text
//! P+0 0x0BE91B91 u32   P+4 version u16: 0x11, 0x12   P+6 type u8   P+7 credits u8
//! P+8 length of the message u32   P+12 checksum u32   P+16 source u64, its incarnation u64
//! P+32 destination u64, its incarnation u64   P+48 body
//! ```
//! The private data of CM REQ and REP are such a message too: a connection request or its reply.

use super::{MatchStrength, bytes};
use crate::mpi::Payload;

/// Port of the listener (module parameter `service`).
pub const PORT: u16 = 987;

/// `LNET_PROTO_IB_MAGIC`.
const MAGIC: u32 = 0x0BE9_1B91;
const VERSIONS: [u16; 2] = [0x11, 0x12];
/// Connection request and reply.
const CONNECTION: [u8; 2] = [0xC0, 0xC1];
/// Length of a message: its header, and at most `IBLND_MSG_SIZE`.
const LENGTHS: core::ops::RangeInclusive<u32> = 48..=4096;
/// No operation, immediate, PUT and GET messages.
const MESSAGES: core::ops::RangeInclusive<u8> = 0xD0..=0xD7;

/// Magic number, version and length, in the sender's byte order.
fn header(data: &[u8]) -> Option<(u8, u32)> {
    let (magic, version, [kind], length) = (bytes(data, 0)?, bytes(data, 4)?, bytes(data, 6)?, bytes(data, 8)?);
    if u32::from_le_bytes(magic) == MAGIC && VERSIONS.contains(&u16::from_le_bytes(version)) {
        return Some((kind, u32::from_le_bytes(length)));
    }
    let is_big_endian = u32::from_be_bytes(magic) == MAGIC && VERSIONS.contains(&u16::from_be_bytes(version));
    is_big_endian.then_some((kind, u32::from_be_bytes(length)))
}

/// Matches a message.
pub(super) fn message(payload: &Payload<'_>) -> Option<MatchStrength> {
    let (kind, length) = header(payload.captured)?;
    (MESSAGES.contains(&kind) && LENGTHS.contains(&length)).then_some(MatchStrength::Distinctive)
}

/// True for a connection request or reply.
pub(super) fn is_private_data(data: &[u8]) -> bool {
    header(data).is_some_and(|(kind, _)| CONNECTION.contains(&kind))
}
