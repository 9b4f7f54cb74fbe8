//! The parts of storage messages that all protocols have in common.

use super::storage_operation::StorageOperation;
use alloc::borrow::Cow;
use alloc::format;
use alloc::vec::Vec;

/// A message of a storage protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageMessage {
    /// A command of a client.
    Command(ClientCommand),
    /// The completion of the command with this id; [`super::storage::completion`] reads the rest.
    Completion(u64),
    /// Neither: credits, logins, events.
    Other,
    /// The captured part shows neither the kind nor the id.
    Truncated,
}

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCommand {
    /// Identifies the command among those that are outstanding on the connection.
    pub id: u64,
    /// Operation and lengths, needed to read the completion.
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

/// Protection of the parameters of an RPC (`RPCSEC_GSS`, RFC 2203).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Wrapping {
    /// Not wrapped.
    #[default]
    None,
    /// A length and a sequence number come first, a checksum last.
    Integrity,
    /// They are encrypted.
    Privacy,
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
    /// Protection of the parameters of an RPC (`RPCSEC_GSS`).
    pub(super) wrapping: Wrapping,
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
            wrapping: Wrapping::None,
            is_single: true,
        }
    }

    /// A command of unknown lengths.
    pub(super) const fn of_unknown_length(operation: StorageOperation) -> Self {
        Self { operation, read_bytes: None, written_bytes: None, wrapping: Wrapping::None, is_single: false }
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
    /// A completion with this status; the lengths are those of the command.
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
