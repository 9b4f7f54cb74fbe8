//! `NVMe` over Fabrics, RDMA transport (NVM Express RDMA Transport Specification 1.0; Linux
//! `drivers/nvme/host/rdma.c`, `include/linux/nvme.h`).
//!
//! The host sends a command capsule per command, the controller a response capsule. Data travel by
//! READ and WRITE of the controller, or inside the command capsule. All fields are little-endian.
//!
//! ```text
//! command:  P+0 opcode u8   P+1 flags u8, 0x40 (SGL)   P+2 command id u16   P+16 metadata pointer u64, 0
//!           P+24 SGL: address u64, length, key         P+39 SGL type u8     P+64 data
//! response: P+0 result u64  P+8 SQ head u16   P+10 SQ id u16   P+12 command id u16   P+14 status u16
//! ```

use super::{MatchStrength, bytes, has_length, is_zero};
use crate::mpi::Payload;

/// TCP port that IANA registers for `NVMe` over Fabrics.
pub const PORT: u16 = 4420;

const COMMAND_BYTES: u32 = 64;
const RESPONSE_BYTES: u64 = 16;
/// Flags of a command whose data pointer is a scatter-gather list, which Fabrics requires.
const SGL_FLAGS: u8 = 0x40;
/// Types of SGL: data block by offset (data in the capsule), keyed data block, the same with
/// invalidation of the key.
const IN_CAPSULE: u8 = 0x01;
const KEYED: [u8; 2] = [0x40, 0x4F];
/// Opcode of Fabrics commands, and the highest one of the commands in the base and NVM command sets
/// that hosts use.
const FABRICS: u8 = 0x7F;
const OPCODE_LAST: u8 = 0x24;
/// Largest queue (CAP.MQES is 16 bits; RDMA hosts create at most 1024 entries).
const SQ_HEAD_LIMIT: u16 = 1024;

/// Matches a command or a response capsule.
pub(super) fn message(payload: &Payload<'_>) -> Option<MatchStrength> {
    if has_length(payload, RESPONSE_BYTES) && payload.packet_bytes == 16 {
        return is_response(payload.captured).then_some(MatchStrength::Possible);
    }
    is_command(payload).then_some(MatchStrength::Distinctive)
}

fn is_command(payload: &Payload<'_>) -> bool {
    let Payload { captured, packet_bytes, message_bytes } = *payload;
    let (Some([opcode, flags]), Some([sgl])) = (bytes(captured, 0), bytes(captured, 39)) else { return false };
    let is_opcode = opcode <= OPCODE_LAST || opcode == FABRICS;
    if packet_bytes < COMMAND_BYTES || flags != SGL_FLAGS || !is_opcode || !is_zero(captured, 16..24) {
        return false;
    }
    let data_bytes = bytes(captured, 32).map_or(0, u32::from_le_bytes);
    let expected = if sgl == IN_CAPSULE { COMMAND_BYTES.checked_add(data_bytes) } else { Some(COMMAND_BYTES) };
    (sgl == IN_CAPSULE || KEYED.contains(&sgl)) && (message_bytes.is_none() || message_bytes == expected)
}

fn is_response(captured: &[u8]) -> bool {
    let (Some(head), Some(status)) = (bytes(captured, 8), bytes(captured, 14)) else { return false };
    // Bit 0, the phase tag, is reserved in Fabrics.
    u16::from_le_bytes(head) <= SQ_HEAD_LIMIT && u16::from_le_bytes(status) & 1 == 0
}
