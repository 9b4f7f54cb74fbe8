//! `NVMe` over Fabrics, RDMA transport (NVM Express RDMA Transport Specification 1.0; Linux
//! `drivers/nvme/host/rdma.c`, `include/linux/nvme.h`).
//!
//! The host sends a command capsule per command, the controller a response capsule. Data travel by
//! READ and WRITE of the controller, or inside the command capsule. All fields are little-endian.
//!
//! ```text
//! command:  P+0 opcode u8   P+1 flags u8, 0x40 (SGL)   P+2 command id u16   P+16 metadata pointer u64, 0
//!           P+24 SGL: address u64, length, key         P+39 SGL type u8     P+64 data
//!           connect (opcode 0x7F, type 1): P+42 queue id u16, 0 is the admin queue
//!           P+40 command dwords 10 to 15       READ, WRITE: P+48 blocks - 1 u16
//! response: P+0 result u64  P+8 SQ head u16   P+10 SQ id u16   P+12 command id u16   P+14 status u16
//! ```

use super::storage_message::{
    ClientCommand, ClientMemory, CommandTransfer, QueueEvidence, StorageCompletion, StorageMessage, StorageStatus,
};
use super::storage_operation::{
    FABRICS_CONNECT, FABRICS_PROPERTY_GET, FABRICS_PROPERTY_SET, NVME_IDENTIFY, NVME_KEEP_ALIVE, NVME_READ, NVME_WRITE,
    StorageOperation,
};
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
/// Length of the data of an Identify command.
const IDENTIFY_BYTES: u64 = 4096;
/// Namespaces are numbered from 1; the number above the last one denotes all of them.
const LAST_NAMESPACE: u32 = 0xFFFF_FFFE;
const SMALLEST_BLOCK_BYTES: u64 = 512;
/// End of the data pointer in a command.
const DESCRIPTOR_END: usize = 40;
/// Largest queue (CAP.MQES is 16 bits; RDMA hosts create at most 1024 entries).
const SQ_HEAD_LIMIT: u16 = 1024;

/// Matches a command or a response capsule.
pub(super) fn message(payload: &Payload<'_>) -> Option<MatchStrength> {
    if has_length(payload, RESPONSE_BYTES) && payload.packet_bytes == 16 {
        return is_response(payload.captured).then_some(MatchStrength::Possible);
    }
    let is_usual = payload.captured.first().is_some_and(|opcode| *opcode <= OPCODE_LAST || *opcode == FABRICS);
    (is_usual && is_command(payload)).then_some(MatchStrength::Distinctive)
}

/// True for the shape of a command, with any operation code.
fn is_command(payload: &Payload<'_>) -> bool {
    let Payload { captured, packet_bytes, message_bytes } = *payload;
    let (Some([_, flags]), Some([sgl])) = (bytes(captured, 0), bytes(captured, 39)) else { return false };
    if packet_bytes < COMMAND_BYTES || flags != SGL_FLAGS || !is_zero(captured, 16..24) {
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

/// Reads a command or response capsule.
pub(super) fn storage_message(payload: &Payload<'_>) -> StorageMessage {
    let captured = payload.captured;
    if payload.packet_bytes == RESPONSE_BYTES as u32 && has_length(payload, RESPONSE_BYTES) {
        let id = bytes(captured, 12).map(|id| u64::from(u16::from_le_bytes(id)));
        return id.map_or(StorageMessage::Truncated, StorageMessage::Completion);
    }
    if payload.packet_bytes < COMMAND_BYTES {
        return StorageMessage::Other;
    }
    if captured.len() < DESCRIPTOR_END {
        return StorageMessage::Truncated;
    }
    if !is_command(payload) {
        return StorageMessage::Other;
    }
    command(captured).map_or(StorageMessage::Truncated, StorageMessage::Command)
}

fn command(captured: &[u8]) -> Option<ClientCommand> {
    let [opcode, _] = bytes(captured, 0)?;
    let id = u64::from(u16::from_le_bytes(bytes(captured, 2)?));
    let [kind] = bytes(captured, 4)?;
    let operation =
        if opcode == FABRICS { StorageOperation::NvmeFabrics(kind) } else { StorageOperation::Nvme(opcode) };
    let [sgl] = bytes(captured, 39)?;
    let data_bytes = if sgl == IN_CAPSULE {
        u64::from(u32::from_le_bytes(bytes(captured, 32)?))
    } else {
        let [low, middle, high] = bytes(captured, 32)?;
        u64::from(u32::from_le_bytes([low, middle, high, 0]))
    };
    // The low two bits of an operation code give the direction of the data.
    let transfer = match (if opcode == FABRICS { kind } else { opcode }) & 3 {
        1 => CommandTransfer::sized(operation, 0, data_bytes),
        2 => CommandTransfer::sized(operation, data_bytes, 0),
        3 => CommandTransfer::of_unknown_length(operation),
        _ => CommandTransfer::sized(operation, 0, 0),
    };
    let memory = if sgl == IN_CAPSULE || data_bytes == 0 {
        None
    } else {
        let (key, address) = (bytes(captured, 35).map(u32::from_le_bytes), bytes(captured, 24).map(u64::from_le_bytes));
        key.zip(address).map(|(key, address)| ClientMemory { key, address, length_bytes: data_bytes as u32 })
    };
    let queue = queue(opcode, kind, data_bytes, captured);
    Some(ClientCommand { id, transfer, memory: memory.into_iter().collect(), reply: None, queue })
}

/// The kind of queue that a command shows.
fn queue(opcode: u8, kind: u8, data_bytes: u64, captured: &[u8]) -> QueueEvidence {
    if opcode == FABRICS {
        return match kind {
            FABRICS_CONNECT => bytes(captured, 42).map_or(QueueEvidence::None, |queue| QueueEvidence::Stated {
                is_admin: u16::from_le_bytes(queue) == 0,
            }),
            FABRICS_PROPERTY_SET | FABRICS_PROPERTY_GET => QueueEvidence::Admin,
            _ => QueueEvidence::None,
        };
    }
    let word = |at: usize| bytes(captured, at).map(u32::from_le_bytes);
    let (Some(namespace), Some(first), Some(third)) = (word(4), word(40), word(48)) else { return QueueEvidence::None };
    match opcode {
        NVME_IDENTIFY if data_bytes == IDENTIFY_BYTES => QueueEvidence::Admin,
        NVME_KEEP_ALIVE if data_bytes == 0 && namespace == 0 => QueueEvidence::Admin,
        NVME_READ | NVME_WRITE if (1..=LAST_NAMESPACE).contains(&namespace) => {
            let blocks = u64::from(third & 0xFFFF) + 1;
            // Get Log Page has the operation code of NVME_READ, and its own length in words.
            let is_log_page = u64::from(first >> 16) + 1 == data_bytes / 4;
            let is_whole = data_bytes.is_multiple_of(blocks) && data_bytes / blocks >= SMALLEST_BLOCK_BYTES;
            if is_whole && !is_log_page { QueueEvidence::Io } else { QueueEvidence::None }
        }
        _ => QueueEvidence::None,
    }
}

/// Reads a response capsule.
pub(super) fn completion(payload: &Payload<'_>, transfer: &CommandTransfer) -> StorageCompletion {
    let status = bytes(payload.captured, 14).map_or(StorageStatus::NotCaptured, |status| {
        // Status code and status code type, without "more" and "do not retry".
        match u32::from(u16::from_le_bytes(status) >> 1) & 0x7FF {
            0 => StorageStatus::Success,
            status => StorageStatus::Failed(status),
        }
    });
    let names_queue = bytes(payload.captured, 10).is_some_and(|queue| u16::from_le_bytes(queue) != 0);
    let queue = if names_queue { QueueEvidence::Io } else { QueueEvidence::None };
    StorageCompletion { queue, ..StorageCompletion::of(status, transfer) }
}
