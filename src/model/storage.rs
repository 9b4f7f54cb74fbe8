//! Sums over the commands of storage protocols.

use super::VecMap;
use super::column::column_values;
use ibscope_parsers::ulp::UpperLayer;
use ibscope_parsers::ulp::storage::{QueueEvidence, StorageOperation, StorageStatus, UserData};
use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

/// Operations and results that are counted separately per connection. Further ones count as
/// [`StorageOperation::Other`], without their bytes.
pub const MAX_STORAGE_RESULTS: usize = 256;

/// Commands with one operation and one result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageCounts {
    /// Commands.
    pub commands: u64,
    /// Bytes that they transferred from the server to the client.
    pub read_bytes: u64,
    /// Bytes that they transferred from the client to the server.
    pub written_bytes: u64,
    /// Completed commands whose read bytes are not known, because a packet was truncated.
    pub read_unknown: u64,
    /// Completed commands whose written bytes are not known, likewise.
    pub written_unknown: u64,
    /// Lengths of the RDMA WRITEs of the server into the memory that the commands name.
    pub rdma_read_bytes: u64,
    /// Lengths of the RDMA READs of the server from the memory that the commands name.
    pub rdma_written_bytes: u64,
}

column_values! {
    StorageCounts {
        commands: "commands", Count, "commands; in rows of the kinds `without_command` and `truncated`, messages";
        read_bytes: "read_bytes", Bytes, "bytes that the commands transferred from the server to the client, as far as they are known";
        written_bytes: "written_bytes", Bytes, "bytes that the commands transferred from the client to the server, as far as they are known";
        read_unknown: "read_unknown", Count, "completed commands whose read bytes are not known, because packets are truncated";
        written_unknown: "written_unknown", Count, "completed commands whose written bytes are not known, because packets are truncated";
        rdma_read_bytes: "rdma_read_bytes", Bytes, "lengths of the RDMA WRITEs of the server into the memory that the commands name, up to 8 memory ranges per command";
        rdma_written_bytes: "rdma_written_bytes", Bytes, "lengths of the RDMA READs of the server from the memory that the commands name, likewise";
    }
}

impl AddAssign for StorageCounts {
    fn add_assign(&mut self, other: Self) {
        let (own, other) = (self.values(), other.values());
        *self = Self::from_values(std::array::from_fn(|column| own[column].saturating_add(other[column])));
    }
}

/// The commands of one connection, which its client sent, and messages that belong to none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageSums {
    /// The protocol.
    pub protocol: UpperLayer,
    /// By operation and result.
    pub results: VecMap<(StorageOperation, StorageStatus), StorageCounts>,
    /// Completions whose command was not observed.
    pub without_command: u64,
    /// Messages whose captured part shows neither a command nor a completion.
    pub truncated: u64,
    /// Most commands that were outstanding at a time.
    pub most_outstanding: u64,
    /// Commands that were dropped because too many were outstanding; their results are not known.
    pub dropped: u64,
    /// Evidence of the commands for the kind of the queue (`NVMe`).
    pub queue: QueueVotes,
}

/// Evidence for the kind of an `NVMe` queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueVotes {
    /// A Connect command stated that the queue is the admin queue, or that it is none.
    stated: [bool; 2],
    admin: u64,
    io: u64,
}

impl QueueVotes {
    /// Adds the evidence of a command or completion.
    pub const fn add(&mut self, evidence: QueueEvidence) {
        match evidence {
            QueueEvidence::None => {}
            QueueEvidence::Stated { is_admin } => self.stated[is_admin as usize] = true,
            QueueEvidence::Admin => self.admin += 1,
            QueueEvidence::Io => self.io += 1,
        }
    }

    /// True for an admin queue; `None` if that is not known, or if the evidence disagrees.
    #[must_use]
    pub const fn is_admin(&self) -> Option<bool> {
        match (self.stated, self.admin > 0, self.io > 0) {
            ([false, true], ..) | ([false, false], true, false) => Some(true),
            ([true, false], ..) | ([false, false], false, true) => Some(false),
            _ => None,
        }
    }

    const fn merge(&mut self, other: Self) {
        self.stated[0] |= other.stated[0];
        self.stated[1] |= other.stated[1];
        self.admin = self.admin.saturating_add(other.admin);
        self.io = self.io.saturating_add(other.io);
    }
}

impl StorageSums {
    /// No commands yet.
    #[must_use]
    pub fn new(protocol: UpperLayer) -> Self {
        Self {
            protocol,
            results: VecMap::new(),
            without_command: 0,
            truncated: 0,
            most_outstanding: 0,
            dropped: 0,
            queue: QueueVotes::default(),
        }
    }

    /// Adds commands with the same operation and result.
    pub fn add(&mut self, operation: StorageOperation, status: StorageStatus, counts: StorageCounts) {
        let key = (operation, status);
        if self.results.len() < MAX_STORAGE_RESULTS || self.results.iter().any(|(known, _)| *known == key) {
            *self.results.or_default(key) += counts;
            return;
        }
        // What these commands transferred may be file data, or not.
        let status = if status.is_error() { StorageStatus::Failed(u32::MAX) } else { status };
        let counts = StorageCounts {
            commands: counts.commands,
            read_unknown: counts.commands,
            written_unknown: counts.commands,
            ..StorageCounts::default()
        };
        *self.results.or_default((StorageOperation::Other, status)) += counts;
    }

    /// Adds those of the same connection in a later input, unless their protocols differ.
    pub fn merge(&mut self, later: &Self) {
        if self.protocol != later.protocol {
            return;
        }
        later.results.iter().for_each(|((operation, status), counts)| self.add(*operation, *status, *counts));
        self.without_command = self.without_command.saturating_add(later.without_command);
        self.truncated = self.truncated.saturating_add(later.truncated);
        self.most_outstanding = self.most_outstanding.max(later.most_outstanding);
        self.dropped = self.dropped.saturating_add(later.dropped);
        self.queue.merge(later.queue);
    }
}

/// The meaning of the column `kind`.
pub(crate) const STORAGE_KIND: &str = "`read`, `write` or `other` (no file or block data); `unknown` where the operation or the kind of an NVMe queue was not captured; `admin` for commands that set up or manage a connection; `without_command` for completions whose command was not observed; `truncated` for messages that are neither, as far as captured; `dropped` for those among the commands without a completion that were dropped because too many were outstanding";
/// The meaning of the column `result`.
pub(crate) const STORAGE_RESULT: &str = "`success`, `error`, `unknown` (status not captured) or `no_completion`";

/// Kind of the commands or messages of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StorageRowKind {
    /// Commands that read file or block data.
    Read,
    /// Commands that write file or block data.
    Write,
    /// Commands that transfer no file or block data.
    Other,
    /// Commands whose operation or kind of queue is not known.
    Unknown,
    /// Commands that set up or manage a connection: an `NVMe` admin queue, Fabrics commands.
    Admin,
    /// Completions whose command was not observed.
    WithoutCommand,
    /// Messages whose captured part shows neither a command nor a completion.
    Truncated,
    /// Commands among those without a completion that were dropped because too many were outstanding.
    Dropped,
}

impl StorageRowKind {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::Read,
        Self::Write,
        Self::Other,
        Self::Unknown,
        Self::Admin,
        Self::WithoutCommand,
        Self::Truncated,
        Self::Dropped,
    ];

    /// The name in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Other => "other",
            Self::Unknown => "unknown",
            Self::Admin => "admin",
            Self::WithoutCommand => "without_command",
            Self::Truncated => "truncated",
            Self::Dropped => "dropped",
        }
    }

    /// True for the commands that the sums of a client and a server count.
    #[must_use]
    pub const fn is_counted(self) -> bool {
        matches!(self, Self::Read | Self::Write | Self::Other | Self::Unknown)
    }

    /// The kind of an operation. `is_admin` is the kind of an `NVMe` queue.
    #[must_use]
    pub const fn of(operation: StorageOperation, is_admin: Option<bool>) -> Self {
        match (operation, is_admin) {
            (StorageOperation::NvmeFabrics(_), _) | (StorageOperation::Nvme(_), Some(true)) => return Self::Admin,
            (StorageOperation::Nvme(_), None) => return Self::Unknown,
            _ => {}
        }
        match operation.user_data() {
            UserData::Read => Self::Read,
            UserData::Written => Self::Write,
            UserData::None => Self::Other,
            UserData::Unknown => Self::Unknown,
        }
    }
}

/// The result of a command in a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StorageResult {
    /// Success.
    Success,
    /// The completion reports an error.
    Error,
    /// The completion was observed, and its status was not captured.
    Unknown,
    /// No completion was observed.
    NoCompletion,
}

impl StorageResult {
    /// All results.
    pub const ALL: [Self; 4] = [Self::Success, Self::Error, Self::Unknown, Self::NoCompletion];

    /// The name in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Error => "error",
            Self::Unknown => "unknown",
            Self::NoCompletion => "no_completion",
        }
    }
}

impl From<StorageStatus> for StorageResult {
    fn from(status: StorageStatus) -> Self {
        match status {
            StorageStatus::Success => Self::Success,
            StorageStatus::NotCaptured => Self::Unknown,
            StorageStatus::NoCompletion => Self::NoCompletion,
            StorageStatus::Failed(_) | StorageStatus::RpcRejected(_) | StorageStatus::TransportFailed(_) => Self::Error,
        }
    }
}

/// Commands of a connection with one operation and one status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageRow {
    /// Index into [`super::Profile::connections`]: the connection that carries the commands.
    pub connection: u32,
    /// Their kind.
    pub kind: StorageRowKind,
    /// Name of the operation; empty for messages that belong to no command.
    pub operation: String,
    /// Result.
    pub result: StorageResult,
    /// The status that the completions carry, in the notation of the protocol.
    pub status: String,
    /// Number and bytes.
    pub counts: StorageCounts,
    /// Most commands of the connection that were outstanding at a time.
    pub most_outstanding: u64,
}

impl StorageSums {
    /// The rows of a profile, sorted.
    #[must_use]
    pub fn rows(&self, connection: u32) -> Vec<StorageRow> {
        let is_admin = self.queue.is_admin();
        let most_outstanding = self.most_outstanding;
        let command =
            |(&(operation, status), counts): (&(StorageOperation, StorageStatus), &StorageCounts)| StorageRow {
                connection,
                kind: StorageRowKind::of(operation, is_admin),
                operation: operation.name(is_admin).into_owned(),
                result: status.into(),
                status: status.name().into_owned(),
                counts: *counts,
                most_outstanding,
            };
        let messages = [
            (StorageRowKind::WithoutCommand, self.without_command),
            (StorageRowKind::Truncated, self.truncated),
            (StorageRowKind::Dropped, self.dropped),
        ];
        let message = |(kind, commands)| StorageRow {
            connection,
            kind,
            operation: String::new(),
            result: StorageResult::Unknown,
            status: String::new(),
            counts: StorageCounts { commands, ..StorageCounts::default() },
            most_outstanding,
        };
        let messages = messages.into_iter().filter(|(_, messages)| *messages > 0).map(message);
        self.results.iter().map(command).chain(messages).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One operation with ever new statuses.
    #[test]
    fn results_beyond_the_bound_count_together_without_bytes() {
        let mut sums = StorageSums::new(UpperLayer::Nfs);
        let counts = StorageCounts { commands: 1, read_bytes: 10, ..StorageCounts::default() };
        for status in 1..=MAX_STORAGE_RESULTS as u32 {
            sums.add(StorageOperation::Nfs4(25), StorageStatus::Failed(status), counts);
        }
        assert_eq!(sums.results.len(), MAX_STORAGE_RESULTS);
        sums.add(StorageOperation::Nfs4(25), StorageStatus::Failed(9999), counts);
        sums.add(StorageOperation::Nfs4(25), StorageStatus::Failed(7), counts);
        let others = (StorageOperation::Other, StorageStatus::Failed(u32::MAX));
        let found = sums.results.iter().find(|(key, _)| **key == others).map(|(_, counts)| *counts);
        let expected = StorageCounts { commands: 1, read_unknown: 1, written_unknown: 1, ..StorageCounts::default() };
        assert_eq!(found, Some(expected));
        let all: u64 = sums.results.iter().map(|(_, counts)| counts.commands).sum();
        assert_eq!(all, MAX_STORAGE_RESULTS as u64 + 2);
    }

    #[test]
    fn contradicting_evidence_gives_no_kind_of_queue() {
        use QueueEvidence::{Admin, Io, Stated};
        let votes = |evidence: &[QueueEvidence]| {
            let mut votes = QueueVotes::default();
            evidence.iter().for_each(|evidence| votes.add(*evidence));
            votes.is_admin()
        };
        assert_eq!(votes(&[]), None);
        assert_eq!(votes(&[Io, Io]), Some(false));
        assert_eq!(votes(&[Admin, Io]), None);
        assert_eq!(votes(&[Stated { is_admin: true }, Io]), Some(true));
        assert_eq!(votes(&[Stated { is_admin: true }, Stated { is_admin: false }]), None);
    }
}
