//! iSER: iSCSI extensions for RDMA (RFC 7145; Linux `include/scsi/iser.h`), and the iSCSI PDU after
//! its header (RFC 7143). All fields are big-endian.
//!
//! ```text
//! P+0 0001 | WSV RSV 0 0   P+1 0 [3]   P+4 write STag u32, base u64   P+16 read STag u32, base u64
//! P+28 iSCSI header [48]: opcode (6 bits) ... P+32 length of further headers in words u8
//!                         P+33 length of data (3)     P+76 further headers, data
//! SCSI command:  P+29 F R W 0 0 attribute (3)   P+44 task tag u32   P+48 expected length u32
//!                P+60 CDB [16]
//! SCSI response: P+29 0 0 0 o u O U 0           P+30 response u8    P+31 status u8
//!                P+44 task tag u32   P+68 bidirectional residual u32   P+72 residual u32
//! ```
//! The target READs and WRITEs the memory of the `STag`s; it sends no Data-In, R2T or solicited
//! Data-Out. The residual is the part of the expected length that was not transferred (U, underflow).

use super::storage_message::{
    ClientCommand, ClientMemory, CommandTransfer, QueueEvidence, StorageCompletion, StorageMessage, StorageStatus,
};
use super::storage_operation::StorageOperation;
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

const SCSI_COMMAND: u8 = 0x01;
const SCSI_RESPONSE: u8 = 0x21;
const READ_FLAG: u8 = 0x40;
const WRITE_FLAG: u8 = 0x20;
const UNDERFLOW: u8 = 0x02;
/// The `STag` of a direction is valid.
const WRITE_VALID: u8 = 0x08;
const READ_VALID: u8 = 0x04;

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

/// Reads a PDU: SCSI commands and responses; all others are [`StorageMessage::Other`].
pub(super) fn storage_message(payload: &Payload<'_>) -> StorageMessage {
    let captured = payload.captured;
    let (Some([first]), Some([opcode])) = (bytes(captured, 0), bytes(captured, HEADER_BYTES)) else {
        return if payload.is_truncated() { StorageMessage::Truncated } else { StorageMessage::Other };
    };
    if first & CONTROL_MASK != CONTROL {
        return StorageMessage::Other;
    }
    let message = match opcode & OPCODE_MASK {
        SCSI_COMMAND => command(captured, first).map(StorageMessage::Command),
        SCSI_RESPONSE => bytes(captured, 44).map(|tag| StorageMessage::Completion(u32::from_be_bytes(tag).into())),
        _ => Some(StorageMessage::Other),
    };
    message.unwrap_or(StorageMessage::Truncated)
}

fn command(captured: &[u8], first: u8) -> Option<ClientCommand> {
    let word = |at: usize| bytes(captured, at).map(u32::from_be_bytes);
    let [flags] = bytes(captured, 29)?;
    let (tag, expected) = (word(44)?, word(48).map(u64::from));
    let operation =
        bytes(captured, 60).map_or(StorageOperation::Unknown, |[opcode]: [u8; 1]| StorageOperation::Scsi(opcode));
    let length = |flag: u8| if flags & flag == 0 { Some(0) } else { expected };
    let mut transfer = CommandTransfer::of_unknown_length(operation);
    // A bidirectional command has the length of its READ in a further header.
    transfer.read_bytes = length(READ_FLAG).filter(|_| flags & (READ_FLAG | WRITE_FLAG) != READ_FLAG | WRITE_FLAG);
    transfer.written_bytes = length(WRITE_FLAG);
    let range = |flag: u8, at: usize| {
        let address = bytes(captured, at + 4).map(u64::from_be_bytes)?;
        let length_bytes = word(48).filter(|_| first & flag != 0)?;
        Some(ClientMemory { key: word(at)?, address, length_bytes })
    };
    let memory = [range(WRITE_VALID, 4), range(READ_VALID, 16)].into_iter().flatten().collect();
    Some(ClientCommand { id: tag.into(), transfer, memory, reply: None, queue: QueueEvidence::None })
}

/// Reads a SCSI response.
pub(super) fn completion(payload: &Payload<'_>, transfer: &CommandTransfer) -> StorageCompletion {
    let Some([flags, response, status]) = bytes(payload.captured, 29) else {
        return StorageCompletion::of(StorageStatus::NotCaptured, transfer);
    };
    let status = match (response, status) {
        (0, 0) => StorageStatus::Success,
        (0, status) => StorageStatus::Failed(status.into()),
        (response, _) => StorageStatus::TransportFailed(response.into()),
    };
    let mut completion = StorageCompletion::of(status, transfer);
    if flags & UNDERFLOW != 0 && status == StorageStatus::Success {
        let residual = bytes(payload.captured, 72).map(|bytes| u64::from(u32::from_be_bytes(bytes)));
        let left =
            |expected: Option<u64>| if expected == Some(0) { expected } else { expected?.checked_sub(residual?) };
        completion.read_bytes = left(completion.read_bytes);
        completion.written_bytes = left(completion.written_bytes);
    }
    completion
}
