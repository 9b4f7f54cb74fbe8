//! Commands and completions of storage protocols.
//!
//! In: the first packet of a SEND of a protocol that [`super::recognize`] has found. Out: the id of
//! the command, its operation, the memory that it offers to the server, and the bytes that it
//! transfers. `NVMe` over Fabrics, NFS over RDMA, iSER and SRP are decoded; the layouts are in their
//! modules. Invariant: a number that the captured bytes do not show is `None`.

use super::{UpperLayer, iser, nfs_rpc, nvmeof, srp};
use crate::mpi::Payload;
use alloc::borrow::Cow;
use alloc::format;
use alloc::vec::Vec;

/// A message of a storage protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageMessage {
    /// A command of a client.
    Command(StorageCommand),
    /// The completion of the command with this id; [`completion`] reads the rest.
    Completion(u64),
    /// Neither: credits, logins, events.
    Other,
    /// The captured part shows neither the kind nor the id.
    Truncated,
}

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageCommand {
    /// Identifies the command among those that are outstanding on the connection.
    pub id: u64,
    /// What the completion has to be read with.
    pub transfer: CommandTransfer,
    /// Memory from which or into which the server transfers the data of the command.
    pub memory: Vec<ClientMemory>,
    /// Memory into which the server writes a reply that is too long for a SEND.
    pub reply: Option<ClientMemory>,
    /// The kind of queue that the command shows (`NVMe`).
    pub queue: QueueEvidence,
}

/// A range of a client's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientMemory {
    /// Remote key.
    pub key: u32,
    /// Its first address.
    pub address: u64,
    /// Its length in bytes.
    pub length_bytes: u32,
}

/// The operation of a command and the bytes that it asks to transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandTransfer {
    /// The operation.
    pub operation: StorageOperation,
    /// Bytes from the server to the client; `None` where the completion shows them, or where they
    /// are not known.
    pub read_bytes: Option<u64>,
    /// Bytes from the client to the server, likewise.
    pub written_bytes: Option<u64>,
    /// How the parameters of an RPC are wrapped (`RPCSEC_GSS`).
    pub(super) wrapping: nfs_rpc::Wrapping,
    /// The call holds one READ or WRITE and nothing else that transfers data.
    pub(super) is_single: bool,
}

impl CommandTransfer {
    /// A command whose lengths are those of its own fields.
    pub(super) const fn sized(operation: StorageOperation, read_bytes: u64, written_bytes: u64) -> Self {
        Self {
            operation,
            read_bytes: Some(read_bytes),
            written_bytes: Some(written_bytes),
            wrapping: nfs_rpc::Wrapping::None,
            is_single: true,
        }
    }

    /// A command of unknown lengths.
    pub(super) const fn of_unknown_length(operation: StorageOperation) -> Self {
        Self { operation, read_bytes: None, written_bytes: None, wrapping: nfs_rpc::Wrapping::None, is_single: false }
    }
}

/// Evidence for the kind of an `NVMe` queue: admin and I/O commands share operation codes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueEvidence {
    /// None.
    #[default]
    None,
    /// The command that connects the queue gives its number: 0 is the admin queue.
    Stated {
        /// The queue is the admin queue.
        is_admin: bool,
    },
    /// Only admin queues have such commands.
    Admin,
    /// Only I/O queues have such commands.
    Io,
}

/// The operation of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum StorageOperation {
    /// `NVMe`: operation code of an admin or I/O command.
    Nvme(u8),
    /// `NVMe`: type of a Fabrics command.
    NvmeFabrics(u8),
    /// NFS version 3: procedure.
    Nfs3(u32),
    /// NFS version 4: the operation that a COMPOUND is for.
    Nfs4(u32),
    /// A remote procedure of another program or version.
    Rpc(u32),
    /// SCSI: operation code of a CDB.
    Scsi(u8),
    /// The captured part does not show it.
    Unknown,
    /// One of more operations than are counted apart.
    Other,
}

/// The direction of the data that an operation transfers to or from files or blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserData {
    /// None; the operation may still transfer other data, such as attributes.
    None,
    /// From the server to the client.
    Read,
    /// From the client to the server.
    Written,
    /// Not known.
    Unknown,
}

impl StorageOperation {
    /// The direction of the file or block data. An `NVMe` queue that is an admin queue has none.
    #[must_use]
    pub const fn user_data(self) -> UserData {
        match self {
            Self::Nvme(opcode) => nvmeof::user_data(opcode),
            Self::Scsi(opcode) => scsi_user_data(opcode),
            Self::Nfs3(nfs_rpc::NFS3_READ) | Self::Nfs4(nfs_rpc::NFS4_READ | nfs_rpc::NFS4_READ_PLUS) => UserData::Read,
            Self::Nfs3(nfs_rpc::NFS3_WRITE) | Self::Nfs4(nfs_rpc::NFS4_WRITE) => UserData::Written,
            Self::NvmeFabrics(_) | Self::Nfs3(_) | Self::Nfs4(_) | Self::Rpc(_) => UserData::None,
            Self::Unknown | Self::Other => UserData::Unknown,
        }
    }

    /// The name in the specification, in lower case. `is_admin` is the kind of an `NVMe` queue.
    #[must_use]
    pub fn name(self, is_admin: Option<bool>) -> Cow<'static, str> {
        let (known, code) = match self {
            Self::Nvme(opcode) => (is_admin.and_then(|is_admin| nvmeof::name(opcode, is_admin)), u32::from(opcode)),
            Self::NvmeFabrics(kind) => (nvmeof::fabrics_name(kind), u32::from(kind)),
            Self::Nfs3(procedure) => (nfs_rpc::name_of_v3(procedure), procedure),
            Self::Nfs4(operation) => (nfs_rpc::name_of_v4(operation), operation),
            Self::Rpc(program) => return Cow::Owned(format!("program {program}")),
            Self::Scsi(opcode) => (scsi_name(opcode), u32::from(opcode)),
            Self::Unknown => (Some("unknown"), 0),
            Self::Other => (Some("other"), 0),
        };
        known.map_or_else(|| Cow::Owned(format!("operation {code:#04x}")), Cow::Borrowed)
    }
}

/// Result of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum StorageStatus {
    /// Success.
    Success,
    /// The status of the protocol: `NVMe` status code type and code, NFS or SCSI status.
    Failed(u32),
    /// The RPC layer rejected the call: 0x100 + `reject_stat`, or `accept_stat`.
    RpcRejected(u32),
    /// The transport failed: `RDMA_ERROR` of RPC-over-RDMA, the iSCSI or SRP response code.
    TransportFailed(u32),
    /// A completion whose status was not captured.
    NotCaptured,
    /// No completion was observed.
    NoCompletion,
}

impl StorageStatus {
    /// True for a completion that reports an error.
    #[must_use]
    pub const fn is_error(self) -> bool {
        matches!(self, Self::Failed(_) | Self::RpcRejected(_) | Self::TransportFailed(_))
    }

    /// The name in outputs.
    #[must_use]
    pub fn name(self) -> Cow<'static, str> {
        match self {
            Self::Success => Cow::Borrowed("success"),
            Self::Failed(status) => Cow::Owned(format!("status {status:#x}")),
            Self::RpcRejected(status) => Cow::Owned(format!("rpc {status:#x}")),
            Self::TransportFailed(status) => Cow::Owned(format!("transport {status:#x}")),
            Self::NotCaptured => Cow::Borrowed("not captured"),
            Self::NoCompletion => Cow::Borrowed("no completion"),
        }
    }
}

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageCompletion {
    /// The result.
    pub status: StorageStatus,
    /// Bytes from the server to the client; `None` if they are not known. 0 after an error.
    pub read_bytes: Option<u64>,
    /// Bytes from the client to the server, likewise.
    pub written_bytes: Option<u64>,
    /// The completion names an I/O queue (`NVMe`).
    pub queue: QueueEvidence,
}

impl StorageCompletion {
    /// A completion with this status of a command whose own fields give the lengths.
    pub(super) const fn of(status: StorageStatus, transfer: &CommandTransfer) -> Self {
        let (read_bytes, written_bytes) = match status {
            StorageStatus::Success => (transfer.read_bytes, transfer.written_bytes),
            // A command that failed has transferred nothing that counts.
            StorageStatus::NotCaptured | StorageStatus::NoCompletion => {
                (if_none(transfer.read_bytes), if_none(transfer.written_bytes))
            }
            _ => (Some(0), Some(0)),
        };
        Self { status, read_bytes, written_bytes, queue: QueueEvidence::None }
    }
}

/// A length that does not depend on the result.
const fn if_none(bytes: Option<u64>) -> Option<u64> {
    if let Some(0) = bytes { bytes } else { None }
}

/// Reads a reply that the server writes into memory: the first packet of its RDMA WRITE. `None` if it
/// is none to the command `id`.
#[must_use]
pub fn long_reply(captured: &[u8], id: u64, transfer: &CommandTransfer) -> Option<StorageCompletion> {
    nfs_rpc::long_reply(captured, id, transfer)
}

/// True for the protocols whose commands are decoded.
#[must_use]
pub const fn is_decoded(protocol: UpperLayer) -> bool {
    matches!(protocol, UpperLayer::NvmeOf | UpperLayer::Nfs | UpperLayer::Iser | UpperLayer::Srp)
}

/// Reads the first packet of a SEND.
#[must_use]
pub fn message(protocol: UpperLayer, payload: &Payload<'_>) -> StorageMessage {
    match protocol {
        UpperLayer::NvmeOf => nvmeof::storage_message(payload),
        UpperLayer::Nfs => nfs_rpc::storage_message(payload),
        UpperLayer::Iser => iser::storage_message(payload),
        UpperLayer::Srp => srp::storage_message(payload),
        UpperLayer::SmbDirect | UpperLayer::Ipoib | UpperLayer::Rds | UpperLayer::Lustre => StorageMessage::Other,
    }
}

/// Reads the completion of a command.
#[must_use]
pub fn completion(protocol: UpperLayer, payload: &Payload<'_>, transfer: &CommandTransfer) -> StorageCompletion {
    match protocol {
        UpperLayer::NvmeOf => nvmeof::completion(payload, transfer),
        UpperLayer::Nfs => nfs_rpc::completion(payload, transfer),
        UpperLayer::Iser => iser::completion(payload, transfer),
        UpperLayer::Srp => srp::completion(payload, transfer),
        UpperLayer::SmbDirect | UpperLayer::Ipoib | UpperLayer::Rds | UpperLayer::Lustre => {
            StorageCompletion::of(StorageStatus::NotCaptured, transfer)
        }
    }
}

/// READ and WRITE commands of SCSI (SBC-4): 6, 10, 12, 16 and 32 bytes long; the last ones share an
/// operation code with other commands, so they are not among these.
const fn scsi_user_data(opcode: u8) -> UserData {
    match opcode {
        0x08 | 0x28 | 0xA8 | 0x88 => UserData::Read,
        0x0A | 0x2A | 0xAA | 0x8A | 0x2E | 0xAE | 0x8E => UserData::Written,
        0x7F => UserData::Unknown,
        _ => UserData::None,
    }
}

const fn scsi_name(opcode: u8) -> Option<&'static str> {
    Some(match opcode {
        0x00 => "test unit ready",
        0x03 => "request sense",
        0x08 | 0x28 | 0xA8 | 0x88 => "read",
        0x0A | 0x2A | 0xAA | 0x8A => "write",
        0x12 => "inquiry",
        0x1A | 0x5A => "mode sense",
        0x25 => "read capacity",
        0x2E | 0xAE | 0x8E => "write and verify",
        0x35 | 0x91 => "synchronize cache",
        0x41 | 0x93 => "write same",
        0x42 => "unmap",
        0x5E => "persistent reserve in",
        0x5F => "persistent reserve out",
        0x89 => "compare and write",
        0x9E => "service action in",
        0xA0 => "report luns",
        0xA3 => "maintenance in",
        _ => return None,
    })
}
