//! The class of a connection: the kind of program that causes its traffic.

use super::Verb;
use ibscope_parsers::ulp::{UpperLayer, UpperLayerMessage};
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// The class of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConnectionClass {
    /// MPI; the column `stack` names the library.
    Mpi,
    /// NCCL or RCCL.
    Nccl,
    /// `NVMe` over Fabrics.
    NvmeOf,
    /// NFS over RDMA.
    Nfs,
    /// iSCSI over RDMA.
    Iser,
    /// SCSI RDMA protocol.
    Srp,
    /// SMB Direct.
    Smb,
    /// IP over InfiniBand.
    Ipoib,
    /// Reliable Datagram Sockets.
    Rds,
    /// Lustre.
    Lustre,
    /// UCX of a program that is not MPI.
    Ucx,
    /// libfabric of a program that is not MPI.
    Libfabric,
    /// Plain verbs, such as perftest.
    Verbs,
    /// Management datagrams.
    Management,
    /// No class has enough evidence.
    #[default]
    Unknown,
}

impl ConnectionClass {
    /// All classes, in the order of outputs.
    pub const ALL: [Self; 15] = [
        Self::Mpi,
        Self::Nccl,
        Self::NvmeOf,
        Self::Nfs,
        Self::Iser,
        Self::Srp,
        Self::Smb,
        Self::Ipoib,
        Self::Rds,
        Self::Lustre,
        Self::Ucx,
        Self::Libfabric,
        Self::Verbs,
        Self::Management,
        Self::Unknown,
    ];

    /// The name used in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mpi => "mpi",
            Self::Nccl => "nccl",
            Self::NvmeOf => "nvmeof",
            Self::Nfs => "nfs",
            Self::Iser => "iser",
            Self::Srp => "srp",
            Self::Smb => "smb",
            Self::Ipoib => "ipoib",
            Self::Rds => "rds",
            Self::Lustre => "lustre",
            Self::Ucx => "ucx",
            Self::Libfabric => "libfabric",
            Self::Verbs => "verbs",
            Self::Management => "management",
            Self::Unknown => "unknown",
        }
    }

    /// True for traffic of the kernel and of storage: no process of an MPI job sends it.
    #[must_use]
    pub const fn is_of_no_job(self) -> bool {
        self.is_storage() || matches!(self, Self::Ipoib | Self::Rds)
    }

    /// True for protocols that carry files or blocks.
    #[must_use]
    pub const fn is_storage(self) -> bool {
        matches!(self, Self::NvmeOf | Self::Nfs | Self::Iser | Self::Srp | Self::Smb | Self::Lustre)
    }
}

impl From<UpperLayer> for ConnectionClass {
    fn from(protocol: UpperLayer) -> Self {
        match protocol {
            UpperLayer::NvmeOf => Self::NvmeOf,
            UpperLayer::Nfs => Self::Nfs,
            UpperLayer::Iser => Self::Iser,
            UpperLayer::Srp => Self::Srp,
            UpperLayer::SmbDirect => Self::Smb,
            UpperLayer::Ipoib => Self::Ipoib,
            UpperLayer::Rds => Self::Rds,
            UpperLayer::Lustre => Self::Lustre,
        }
    }
}

/// The classes of several connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassSet(u16);

impl ClassSet {
    /// Adds a class.
    pub const fn insert(&mut self, class: ConnectionClass) {
        self.0 |= 1 << class as u16;
    }

    /// True if the set contains this class.
    #[must_use]
    pub const fn contains(self, class: ConnectionClass) -> bool {
        self.0 & 1 << class as u16 != 0
    }

    /// The name that outputs give to messages with ranks: `MPI`, unless NCCL sends them.
    #[must_use]
    pub const fn library(self) -> &'static str {
        match (self.contains(ConnectionClass::Nccl), self.has_only_nccl()) {
            (false, _) => "MPI",
            (true, true) => "NCCL",
            (true, false) => "MPI and NCCL",
        }
    }

    /// True if NCCL, and no MPI library, sends the messages with ranks. Messages of NCCL do not name
    /// their operation.
    #[must_use]
    pub const fn has_only_nccl(self) -> bool {
        self.contains(ConnectionClass::Nccl) && !self.contains(ConnectionClass::Mpi)
    }

    /// Adds all classes of another set.
    pub const fn merge(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// The classes, in the order of outputs.
    pub fn iter(self) -> impl Iterator<Item = ConnectionClass> {
        ConnectionClass::ALL.into_iter().filter(move |class| self.contains(*class))
    }
}

/// The classes that a command shows: one, or all storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassSelection {
    /// One class.
    One(ConnectionClass),
    /// All classes that are storage.
    Storage,
}

impl ClassSelection {
    /// The name of the selection of all storage.
    pub const STORAGE: &'static str = "storage";

    /// True if the selection contains this class.
    #[must_use]
    pub fn contains(self, class: ConnectionClass) -> bool {
        match self {
            Self::One(one) => one == class,
            Self::Storage => class.is_storage(),
        }
    }

    /// The name used on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::One(class) => class.name(),
            Self::Storage => Self::STORAGE,
        }
    }
}

impl FromStr for ClassSelection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == Self::STORAGE {
            return Ok(Self::Storage);
        }
        let class = ConnectionClass::ALL.into_iter().find(|class| class.name() == text);
        class.map(Self::One).ok_or_else(|| format!("`{text}` is not a class"))
    }
}

/// Messages of a connection by upper-layer protocol: evidence for its class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpperLayerVotes {
    /// Messages that match a protocol, by protocol.
    pub matching: [u64; UpperLayer::ALL.len()],
    /// Those of them that a random payload would not match, by protocol.
    pub distinctive: [u64; UpperLayer::ALL.len()],
}

impl UpperLayerVotes {
    /// Messages of a library at the start of a connection that are compared with upper-layer
    /// protocols.
    pub const COMPARED_MESSAGES: u32 = 16;

    /// Counts a message.
    pub const fn add(&mut self, message: UpperLayerMessage) {
        self.matching[message.protocol as usize] += 1;
        self.distinctive[message.protocol as usize] += message.is_distinctive as u64;
    }

    /// Adds those of another part or direction.
    pub fn merge(&mut self, other: &Self) {
        for protocol in 0..self.matching.len() {
            self.matching[protocol] += other.matching[protocol];
            self.distinctive[protocol] += other.distinctive[protocol];
        }
    }
}

/// Operations of a connection and the sizes of its messages: the only property of programs that use
/// verbs without a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationMix {
    /// Messages.
    pub messages: u32,
    /// Smallest message in bytes; larger than the largest one without messages.
    pub smallest_bytes: u32,
    /// Largest message in bytes.
    pub largest_bytes: u32,
    /// A bit for each verb.
    pub verbs: u8,
}

impl Default for OperationMix {
    fn default() -> Self {
        Self { messages: 0, smallest_bytes: u32::MAX, largest_bytes: 0, verbs: 0 }
    }
}

impl OperationMix {
    /// Adds a message.
    #[inline]
    pub fn add(&mut self, verb: Verb, bytes: u64) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.messages = self.messages.saturating_add(1);
        self.smallest_bytes = self.smallest_bytes.min(bytes);
        self.largest_bytes = self.largest_bytes.max(bytes);
        self.verbs |= 1 << verb as u8;
    }

    /// Adds those of another part or direction.
    pub fn merge(&mut self, other: &Self) {
        self.messages = self.messages.saturating_add(other.messages);
        self.smallest_bytes = self.smallest_bytes.min(other.smallest_bytes);
        self.largest_bytes = self.largest_bytes.max(other.largest_bytes);
        self.verbs |= other.verbs;
    }
}
