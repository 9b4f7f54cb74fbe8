//! SRP: SCSI RDMA Protocol (T10 SRP r16a; Linux `include/scsi/srp.h`). All fields are big-endian.
//!
//! ```text
//! command:  P+0 0x02   P+2 0 [3]   P+5 formats of the buffer descriptors, 4 bits each way
//!           P+6 descriptors out u8, in u8   P+8 tag u64   P+16 0 [4]   P+20 LUN u64   P+28 0
//!           P+29 task attribute   P+30 0   P+31 length of further CDB bytes   P+32 CDB [16]
//!           P+48 further CDB bytes, buffer descriptors
//! response: P+0 0xC1   P+2 0 [2]   P+4 request limit u32   P+8 tag u64   P+16 0 [2]   P+18 flags u8
//!           P+19 status u8   P+28 sense bytes u32   P+32 response bytes u32   P+36 data
//! direct descriptor:   address u64, key u32, length u32
//! indirect descriptor: table (a direct one), total length u32, direct ones
//! residuals of a response: P+20 data out u32, P+24 data in u32, if flags (0x08, 0x20) say so
//! login:    CM private data of the REQ: +0 0x00   +1 0 [7]   +8 tag u64   +16 longest message u32   +20 0 [4]
//!           +24 buffer formats u16   +30 0 [2]   +32 initiator port [16]   +48 target port [16]
//! ```
//! The service id of a login is a GUID that the target chooses (Linux: that of its adapter), so the
//! private data show the protocol.

use super::storage_message::{
    ClientCommand, ClientMemory, CommandTransfer, QueueEvidence, StorageCompletion, StorageMessage, StorageStatus,
};
use super::storage_operation::StorageOperation;
use super::{MatchStrength, bytes, has_length, is_zero};
use crate::mpi::Payload;
use alloc::vec::Vec;

const TASK_MANAGEMENT: u8 = 0x01;
const COMMAND: u8 = 0x02;
const INITIATOR_LOGOUT: u8 = 0x03;
const CREDIT_RESPONSE: u8 = 0x41;
const TARGET_LOGOUT: u8 = 0x80;
const CREDIT_REQUEST: u8 = 0x81;
const LOGIN_RESPONSE: u8 = 0xC0;
const RESPONSE: u8 = 0xC1;
const COMMAND_BYTES: u64 = 48;
const RESPONSE_BYTES: u64 = 36;
const TASK_MANAGEMENT_BYTES: u64 = 48;
const SHORT_BYTES: u64 = 16;
/// Formats of buffer descriptors: none, direct, indirect, immediate.
const FORMAT_LAST: u8 = 3;
const DIRECT_BYTES: u64 = 16;
/// Table descriptor and total length, before the descriptors of an indirect buffer.
const INDIRECT_BYTES: u64 = 20;
const IMMEDIATE_BYTES: u64 = 4;
const RESPONSE_VALID: u8 = 1;
const SENSE_VALID: u8 = 2;
const OUT_UNDERRUN: u8 = 0x08;
const IN_UNDERRUN: u8 = 0x20;
const FLAGS: u8 = 0x3F;
const LOGIN_BYTES: usize = 64;
const LONGEST_MESSAGES: core::ops::RangeInclusive<u32> = 64..=1 << 16;
/// Direct, indirect and immediate buffers.
const LOGIN_FORMATS: u16 = 0x0E;

/// Matches an information unit.
pub(super) fn message(payload: &Payload<'_>) -> Option<MatchStrength> {
    let captured = payload.captured;
    let is_distinctive = match *captured.first()? {
        COMMAND => is_command(payload),
        RESPONSE => is_response(payload),
        TASK_MANAGEMENT => {
            has_length(payload, TASK_MANAGEMENT_BYTES) && is_zero(captured, 2..8) && is_zero(captured, 16..20)
        }
        INITIATOR_LOGOUT | CREDIT_RESPONSE => has_length(payload, SHORT_BYTES) && is_zero(captured, 1..8),
        TARGET_LOGOUT | CREDIT_REQUEST => {
            let is_possible = has_length(payload, SHORT_BYTES) && is_zero(captured, 2..4);
            return is_possible.then_some(MatchStrength::Possible);
        }
        LOGIN_RESPONSE => return is_zero(captured, 1..4).then_some(MatchStrength::Possible),
        _ => false,
    };
    is_distinctive.then_some(MatchStrength::Distinctive)
}

fn is_command(payload: &Payload<'_>) -> bool {
    let captured = payload.captured;
    let (Some([formats, out, into]), Some([reserved, attribute, also_reserved, further])) =
        (bytes(captured, 5), bytes(captured, 28))
    else {
        return false;
    };
    let (out_format, in_format) = (formats >> 4, formats & 0xF);
    let is_shaped = is_zero(captured, 2..5)
        && is_zero(captured, 16..20)
        && [reserved, also_reserved] == [0; 2]
        && matches!(attribute, 0 | 1 | 2 | 4)
        && out_format.max(in_format) <= FORMAT_LAST;
    // The low two bits of the length are reserved: it counts words.
    let length =
        COMMAND_BYTES + u64::from(further & !3) + descriptor_bytes(out_format, out) + descriptor_bytes(in_format, into);
    // Immediate data follow the command at an offset that the login sets.
    let has_data = [out_format, in_format].contains(&FORMAT_LAST);
    is_shaped && (has_length(payload, length) || has_data)
}

/// Length of the buffer descriptor of one direction.
fn descriptor_bytes(format: u8, count: u8) -> u64 {
    match format {
        1 => DIRECT_BYTES,
        2 => INDIRECT_BYTES + DIRECT_BYTES * u64::from(count),
        3 => IMMEDIATE_BYTES,
        _ => 0,
    }
}

fn is_response(payload: &Payload<'_>) -> bool {
    let captured = payload.captured;
    let (Some([flags]), Some(sense), Some(response)) = (bytes(captured, 18), bytes(captured, 28), bytes(captured, 32))
    else {
        return false;
    };
    let valid = |flag: u8, bytes: [u8; 4]| if flags & flag == 0 { 0 } else { u64::from(u32::from_be_bytes(bytes)) };
    let length = RESPONSE_BYTES + valid(SENSE_VALID, sense) + valid(RESPONSE_VALID, response);
    is_zero(captured, 2..4) && is_zero(captured, 16..18) && flags & !FLAGS == 0 && has_length(payload, length)
}

/// True for the private data of a login through the CM of InfiniBand.
pub(super) fn is_login(data: &[u8]) -> bool {
    let (Some(longest), Some(formats)) = (bytes(data, 16), bytes(data, 24)) else { return false };
    let formats = u16::from_be_bytes(formats);
    data.len() >= LOGIN_BYTES
        && is_zero(data, 0..8)
        && is_zero(data, 20..24)
        && is_zero(data, 30..32)
        && LONGEST_MESSAGES.contains(&u32::from_be_bytes(longest))
        && formats != 0
        && formats & !LOGIN_FORMATS == 0
        && !is_zero(data, 32..48)
        && !is_zero(data, 48..64)
        && is_zero(data, LOGIN_BYTES..data.len())
}

/// Reads an information unit: commands and their responses; all others are
/// [`StorageMessage::Other`].
pub(super) fn storage_message(payload: &Payload<'_>) -> StorageMessage {
    let captured = payload.captured;
    let Some(kind) = captured.first() else { return StorageMessage::Truncated };
    let tag = bytes(captured, 8).map(u64::from_be_bytes);
    let message = match (*kind, tag) {
        (COMMAND, Some(tag)) => command(captured, tag).map(StorageMessage::Command),
        (RESPONSE, Some(tag)) => Some(StorageMessage::Completion(tag)),
        (COMMAND | RESPONSE, None) => None,
        _ => Some(StorageMessage::Other),
    };
    message.unwrap_or(StorageMessage::Truncated)
}

fn command(captured: &[u8], tag: u64) -> Option<ClientCommand> {
    let [formats, out_count, in_count] = bytes(captured, 5)?;
    let [further] = bytes(captured, 31)?;
    let operation =
        bytes(captured, 32).map_or(StorageOperation::Unknown, |[opcode]: [u8; 1]| StorageOperation::Scsi(opcode));
    let mut memory = Vec::new();
    let start = (COMMAND_BYTES + u64::from(further & !3)) as usize;
    let written_bytes = buffer(captured, start, formats >> 4, out_count, &mut memory);
    let next = start + descriptor_bytes(formats >> 4, out_count) as usize;
    let read_bytes = buffer(captured, next, formats & 0xF, in_count, &mut memory);
    let transfer = CommandTransfer { read_bytes, written_bytes, ..CommandTransfer::of_unknown_length(operation) };
    Some(ClientCommand { id: tag, transfer, memory, reply: None, queue: QueueEvidence::None })
}

/// The length of the buffer of one direction, if its descriptor was captured. Adds its memory.
fn buffer(captured: &[u8], at: usize, format: u8, count: u8, memory: &mut Vec<ClientMemory>) -> Option<u64> {
    let word = |at: usize| bytes(captured, at).map(u32::from_be_bytes);
    match format {
        0 => Some(0),
        1 => {
            memory.extend(direct(captured, at));
            word(at + 12).map(u64::from)
        }
        2 => {
            let first = at + INDIRECT_BYTES as usize;
            let entries = (0..usize::from(count)).map(|entry| first + entry * DIRECT_BYTES as usize);
            memory.extend(entries.filter_map(|entry| direct(captured, entry)));
            word(at + 16).map(u64::from)
        }
        // Immediate data: the length is the first word.
        3 => word(at).map(u64::from),
        _ => None,
    }
}

/// A direct descriptor.
fn direct(captured: &[u8], at: usize) -> Option<ClientMemory> {
    let word = |at: usize| bytes(captured, at).map(u32::from_be_bytes);
    let address = bytes(captured, at).map(u64::from_be_bytes)?;
    Some(ClientMemory { key: word(at + 8)?, address, length_bytes: word(at + 12)? })
}

/// Reads a response.
pub(super) fn completion(payload: &Payload<'_>, transfer: &CommandTransfer) -> StorageCompletion {
    let captured = payload.captured;
    let Some([flags, status]) = bytes(captured, 18) else {
        return StorageCompletion::of(StorageStatus::NotCaptured, transfer);
    };
    let residual = |flag: u8, at: usize| {
        if flags & flag == 0 { Some(0) } else { bytes(captured, at).map(|bytes| u64::from(u32::from_be_bytes(bytes))) }
    };
    let status = match status {
        0 if flags & RESPONSE_VALID == 0 => StorageStatus::Success,
        // The response data come before the sense data; the code is their last byte of four.
        0 => response_code(captured),
        status => StorageStatus::Failed(status.into()),
    };
    let completion = StorageCompletion::of(status, transfer);
    if status != StorageStatus::Success {
        return completion;
    }
    let left = |expected: Option<u64>, residual: Option<u64>| expected?.checked_sub(residual?);
    StorageCompletion {
        read_bytes: left(completion.read_bytes, residual(IN_UNDERRUN, 24)),
        written_bytes: left(completion.written_bytes, residual(OUT_UNDERRUN, 20)),
        ..completion
    }
}

fn response_code(captured: &[u8]) -> StorageStatus {
    match bytes(captured, RESPONSE_BYTES as usize + 3) {
        None => StorageStatus::NotCaptured,
        Some([0]) => StorageStatus::Success,
        Some([code]) => StorageStatus::TransportFailed(code.into()),
    }
}
