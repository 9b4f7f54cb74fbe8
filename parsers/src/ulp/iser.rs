//! iSER: iSCSI extensions for RDMA (RFC 7145; Linux `include/scsi/iser.h`), and the iSCSI PDU
//! behind its header (RFC 7143). All fields are big-endian.
//!
//! ```text
//! P+0 0001 | WSV RSV 0 0   P+1 0 [3]   P+4 write STag u32, base u64   P+16 read STag u32, base u64
//! P+28 iSCSI header [48]: opcode (6 bits) ... P+32 length of further headers in words u8
//!                         P+33 length of data (3)     P+76 further headers, data
//! ```

use super::{MatchStrength, bytes, is_zero};
use crate::mpi::Payload;

/// TCP port that IANA registers for iSCSI.
pub const PORT: u16 = 3260;

/// Type "iSCSI control-type PDU" in the upper bits of the first byte; below are two flags.
const CONTROL: u8 = 0x10;
const CONTROL_MASK: u8 = 0xF3;
const HEADER_BYTES: usize = 28;
const PDU_HEADER_BYTES: u64 = 48;
const OPCODE_MASK: u8 = 0x3F;

/// Opcodes of iSCSI that travel in a control-type PDU: the initiator's, then the target's. Data-In,
/// Data-Out and R2T become READ and WRITE; unsolicited Data-Out is a SEND.
const OPCODES: [u8; 16] =
    [0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x10, 0x20, 0x21, 0x22, 0x23, 0x24, 0x26, 0x32, 0x3F];

/// Matches a control-type PDU.
pub(super) fn message(payload: &Payload<'_>) -> Option<MatchStrength> {
    let captured = payload.captured;
    let [first] = bytes(captured, 0)?;
    let [opcode] = bytes(captured, HEADER_BYTES)?;
    let [further_words, high, middle, low] = bytes(captured, HEADER_BYTES + 4)?;
    if first & CONTROL_MASK != CONTROL || !is_zero(captured, 1..4) || !OPCODES.contains(&(opcode & OPCODE_MASK)) {
        return None;
    }
    let data_bytes = u64::from(u32::from_be_bytes([0, high, middle, low]));
    let headers = HEADER_BYTES as u64 + PDU_HEADER_BYTES + 4 * u64::from(further_words);
    let Some(message_bytes) = payload.message_bytes.map(u64::from) else { return Some(MatchStrength::Possible) };
    // Data may end without the padding to whole words.
    let is_whole = message_bytes == headers + data_bytes || message_bytes == headers + data_bytes.next_multiple_of(4);
    is_whole.then_some(MatchStrength::Distinctive)
}
