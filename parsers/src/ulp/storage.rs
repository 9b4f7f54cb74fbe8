//! Commands and completions of storage protocols.
//!
//! In: the first packet of a SEND of a protocol that [`super::recognize`] has found. Out: the id of
//! the command, its operation, the memory that it offers to the server, and the bytes that it
//! transfers. `NVMe` over Fabrics, NFS over RDMA, iSER and SRP are decoded; the layouts are in their
//! modules. Invariant: a number that the captured bytes do not show is `None`.

pub use super::storage_message::{
    ClientCommand, ClientMemory, CommandTransfer, QueueEvidence, StorageCompletion, StorageMessage, StorageStatus,
};
pub use super::storage_operation::{StorageOperation, UserData};

use super::{UpperLayer, iser, nfs_rpc, nvmeof, srp};
use crate::mpi::Payload;

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
