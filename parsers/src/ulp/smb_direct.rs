//! SMB Direct (MS-SMBD; Linux `fs/smb/common/smbdirect`). All fields are little-endian.
//!
//! ```text
//! negotiate request:  P+0 version u16, 0x0100, twice          P+4 0 u16   P+6 credits u16   ... 20 bytes
//! negotiate response: P+0 version u16, 0x0100, three times    P+6 0 u16   ... 32 bytes
//! data transfer:      P+0 credits requested u16, granted u16  P+4 flags u16, 0 or 1   P+6 0 u16
//!                     P+8 bytes that remain u32   P+12 offset of the data u32, 0 or 24
//!                     P+16 bytes of data u32      P+24 data: an SMB 2 message, or the rest of one
//! ```

use super::{MatchStrength, bytes, has_length};
use crate::mpi::Payload;

/// TCP port that SMB uses on InfiniBand and RoCE.
pub const PORT: u16 = 445;
/// TCP port that IANA registers for SMB Direct; Windows uses it on iWARP only.
pub const IWARP_PORT: u16 = 5445;

const VERSION: [u8; 2] = [0x00, 0x01];
const REQUEST_BYTES: u64 = 20;
const RESPONSE_BYTES: u64 = 32;
/// Length of a data transfer without data, with and without padding.
const EMPTY_BYTES: [u64; 2] = [20, 24];
const DATA_OFFSET: u32 = 24;
/// Largest SMB message in fragments.
const REMAINING_LIMIT: u32 = 1 << 24;

/// Matches a message.
pub(super) fn message(payload: &Payload<'_>) -> Option<MatchStrength> {
    let captured = payload.captured;
    if is_negotiation(payload) {
        return Some(MatchStrength::Distinctive);
    }
    let (flags, reserved) = (bytes(captured, 4).map(u16::from_le_bytes)?, bytes::<2>(captured, 6)?);
    let word = |at: usize| bytes(captured, at).map(u32::from_le_bytes);
    let (remaining, offset, length) = (word(8)?, word(12)?, word(16)?);
    if flags > 1 || reserved != [0; 2] || remaining >= REMAINING_LIMIT {
        return None;
    }
    if length == 0 {
        let is_empty = offset == 0 && remaining == 0 && EMPTY_BYTES.iter().any(|bytes| has_length(payload, *bytes));
        return (is_empty && payload.message_bytes.is_some()).then_some(MatchStrength::Possible);
    }
    let is_data = offset == DATA_OFFSET && has_length(payload, u64::from(DATA_OFFSET) + u64::from(length));
    is_data.then_some(MatchStrength::Distinctive)
}

fn is_negotiation(payload: &Payload<'_>) -> bool {
    let field = |at: usize| bytes::<2>(payload.captured, at);
    let has_versions = field(0) == Some(VERSION) && field(2) == Some(VERSION);
    let is_request = field(4) == Some([0; 2]) && has_length(payload, REQUEST_BYTES);
    let is_response = field(4) == Some(VERSION) && field(6) == Some([0; 2]) && has_length(payload, RESPONSE_BYTES);
    has_versions && payload.message_bytes.is_some() && (is_request || is_response)
}
