//! The storage commands of a profile, by client and server.
//!
//! In: a [`Profile`]. Out: commands, bytes, errors and times per class, client and server; the same
//! by operation and status, and by size; and the reasons why a number is not known. Invariant: a
//! number that packets beyond the snap length would change is `None`, and so is a quantile that
//! commands without a time could raise at will.

use super::endpoint_label::{EndpointLabels, GroupBy, Label};
use crate::model::profile::{ConnectionRow, CoverageState, LatencyRow};
use crate::model::{
    ConnectionClass, Histogram, Interval, Profile, StorageCounts, StorageResult, StorageRow, StorageRowKind,
    TrafficKind, Verb, count_of,
};
use ibscope_parsers::ib::Opcode;
use std::collections::{BTreeMap, BTreeSet};

/// A client and a server of one class.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoragePair {
    /// The class of the connections.
    pub class: ConnectionClass,
    /// The port that sends the commands.
    pub client: Label,
    /// The port that completes them.
    pub server: Label,
}

impl StoragePair {
    /// The opposite direction.
    fn reversed(&self) -> Self {
        Self { class: self.class, client: self.server.clone(), server: self.client.clone() }
    }
}

/// The commands of a client at a server, without those that only set up or manage a connection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StorageTotals {
    /// Commands; `None` if messages are truncated so that some cannot be counted.
    pub commands: Option<u64>,
    /// File or block data from the server to the client, in bytes.
    pub read_bytes: Option<u64>,
    /// File or block data from the client to the server, in bytes.
    pub written_bytes: Option<u64>,
    /// Completions that report an error.
    pub errors: Option<u64>,
    /// Commands whose completion was not observed.
    pub without_completion: u64,
    /// Completions whose command was not observed.
    pub without_command: u64,
    /// Commands that set up or manage a connection; they are in no other number.
    pub admin_commands: u64,
    /// Most commands of one connection that were outstanding at a time; `None` if packets are missing.
    pub most_outstanding: Option<u64>,
    /// A lower bound of it.
    pub outstanding_at_least: u64,
    /// Completed commands without a time: it is not certain that the completion is theirs.
    pub untimed: u64,
    /// Times from command to completion, in nanoseconds.
    pub times: Histogram,
}

/// Commands with one operation and one status.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OperationKey {
    /// Client and server.
    pub pair: StoragePair,
    /// Kind of the commands.
    pub kind: StorageRowKind,
    /// The operation.
    pub operation: String,
    /// The result.
    pub result: StorageResult,
    /// The status of the protocol.
    pub status: String,
}

/// Times of the commands with data of one size class.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SizeKey {
    /// Client and server.
    pub pair: StoragePair,
    /// `read`, `write` or `other`.
    pub kind: &'static str,
    /// Smallest length of the class in bytes; 0 for commands without file or block data.
    pub from_bytes: u64,
}

/// All numbers of `ibscope storage`.
#[derive(Clone, Debug, Default)]
pub struct Storage {
    /// By client and server.
    pub pairs: BTreeMap<StoragePair, StorageTotals>,
    /// By operation and status.
    pub operations: BTreeMap<OperationKey, StorageCounts>,
    /// By size.
    pub sizes: BTreeMap<SizeKey, Histogram>,
    /// The reason why no command can be seen.
    pub unknown_because: Option<String>,
    /// Limits of these numbers, one sentence each.
    pub notes: Vec<String>,
}

impl Storage {
    /// The numbers of a profile without storage commands.
    #[must_use]
    pub fn not_analyzed() -> Self {
        let because = "the profile was written with `--no-mpi` or by an earlier version of ibscope";
        Self { unknown_because: Some(because.to_owned()), ..Self::default() }
    }

    /// The commands of each class. A number that is not known for one pair is not known for its
    /// class.
    #[must_use]
    pub fn by_class(&self) -> BTreeMap<ConnectionClass, StorageTotals> {
        let mut classes: BTreeMap<ConnectionClass, StorageTotals> = BTreeMap::new();
        for (pair, totals) in &self.pairs {
            match classes.get_mut(&pair.class) {
                Some(sum) => sum.merge(totals),
                None => _ = classes.insert(pair.class, totals.clone()),
            }
        }
        classes
    }
}

impl StorageTotals {
    /// A quantile of the times; `None` if the commands without a time may be so many of the longest
    /// that any value is possible.
    #[must_use]
    pub fn time_quantile(&self, share: f64) -> Option<u64> {
        let completed = self.times.samples().saturating_add(self.untimed) as f64;
        let is_bounded = self.times.samples() > 0 && self.untimed as f64 <= completed * (1.0 - share);
        is_bounded.then(|| self.times.quantile(share))
    }

    /// Adds another client or server.
    fn merge(&mut self, other: &Self) {
        let sum = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_add(b?));
        self.commands = sum(self.commands, other.commands);
        self.read_bytes = sum(self.read_bytes, other.read_bytes);
        self.written_bytes = sum(self.written_bytes, other.written_bytes);
        self.errors = sum(self.errors, other.errors);
        self.without_completion += other.without_completion;
        self.without_command += other.without_command;
        self.admin_commands += other.admin_commands;
        let most = self.most_outstanding.zip(other.most_outstanding);
        self.most_outstanding = most.map(|(own, other)| own.max(other));
        self.outstanding_at_least = self.outstanding_at_least.max(other.outstanding_at_least);
        self.untimed += other.untimed;
        self.times.merge(&other.times);
    }
}

/// Sums the storage commands of a profile. `None` if the profile has none of them because it was
/// written without MPI analysis or by an earlier version.
#[must_use]
pub fn storage(profile: &Profile) -> Option<Storage> {
    let rows = profile.storage.as_ref().filter(|_| profile.mpi_read)?;
    let labels = EndpointLabels::new(profile, GroupBy::Endpoint);
    let mut sums: BTreeMap<StoragePair, StoragePairSums> = BTreeMap::new();
    let mut storage = Storage::default();
    for row in rows {
        let Some(connection) = data_connection(profile, row.connection) else { continue };
        let pair = pair(&labels, connection);
        sums.entry(pair.clone()).or_default().add(row);
        let operation = row.operation.clone();
        let key = OperationKey { pair, kind: row.kind, operation, result: row.result, status: row.status.clone() };
        *storage.operations.entry(key).or_default() += row.counts;
    }
    // A queue with commands of its set-up only has no I/O to measure.
    let has_counted: BTreeSet<u32> =
        rows.iter().filter(|row| row.kind.is_counted()).map(|row| row.connection).collect();
    let latencies = (!has_counted.is_empty()).then_some(&profile.latencies);
    for LatencyRow { connection, timing, histogram } in latencies.into_iter().flatten() {
        if timing.interval != Interval::StorageCommand || !has_counted.contains(&connection) {
            continue;
        }
        let Some(own) = data_connection(profile, connection) else { continue };
        let pair = pair(&labels, own);
        sums.entry(pair.clone()).or_default().times.merge(&histogram);
        let kind = match timing.verb {
            Verb::Read => StorageRowKind::Read,
            Verb::Write => StorageRowKind::Write,
            _ => StorageRowKind::Other,
        };
        let key = SizeKey { pair, kind: kind.name(), from_bytes: timing.size.from_bytes() };
        storage.sizes.entry(key).or_default().merge(&histogram);
    }
    storage.notes.extend(join_directions(&mut sums));
    let incomplete = with_missing_packets(profile, &labels);
    for (pair, sums) in &mut sums {
        sums.is_timed = profile.times_read;
        sums.misses_packets = incomplete.contains(pair) || incomplete.contains(&pair.reversed());
    }
    storage.notes.extend(sums.iter().flat_map(|(pair, sums)| sums.notes(pair)));
    storage.notes.extend(undecoded(profile, rows, &labels));
    if profile.sampling.is_some() {
        storage.notes.push(
            "the capture is sampled: most commands or their completions are missing, so commands, bytes and errors are too low; a command has a time only if the completion is certainly its own"
                .to_owned(),
        );
    }
    storage.sizes.retain(|key, _| sums.get(&key.pair).is_none_or(|sums| sums.untimed() * 2 <= sums.completed()));
    storage.pairs = sums.into_iter().map(|(pair, sums)| (pair, sums.totals())).collect();
    let truncation = truncation(profile);
    if storage.pairs.is_empty() {
        storage.unknown_because = truncation;
    } else {
        let note = |because| format!("commands on connections of class `unknown` cannot be seen, because {because}");
        storage.notes.extend(truncation.filter(|_| has_payload(profile, ConnectionClass::Unknown)).map(note));
    }
    Some(storage)
}

fn data_connection(profile: &Profile, connection: u32) -> Option<&ConnectionRow> {
    profile.connections.get(connection as usize).filter(|row| row.kind == TrafficKind::Data)
}

fn pair(labels: &EndpointLabels<'_>, connection: &ConnectionRow) -> StoragePair {
    StoragePair { class: connection.class, client: labels.sender(connection), server: labels.receiver(connection) }
}

/// The ends of storage connections of which packets are missing, or sampled by the mirror.
fn with_missing_packets(profile: &Profile, labels: &EndpointLabels<'_>) -> BTreeSet<StoragePair> {
    let is_sampled = profile.sampling.is_some();
    let misses = |row: &&ConnectionRow| {
        let state = row.coverage.state;
        row.class.is_storage()
            && row.kind == TrafficKind::Data
            && (is_sampled
                || row.coverage.missing_packets > 0
                || matches!(state, CoverageState::Incomplete | CoverageState::Sampled))
    };
    profile.connections.iter().filter(misses).map(|row| pair(labels, row)).collect()
}

/// Captured bytes of a packet from which on every storage protocol is recognized: 48 bytes of iSCSI
/// after 28 of iSER, after the headers of IPv6 and of a tunnel.
const RECOGNIZED_BYTES: usize = 256;

fn has_payload(profile: &Profile, class: ConnectionClass) -> bool {
    let is_it = |row: &ConnectionRow| {
        let is_connected = Opcode(row.service << 5).service().is_connected();
        row.class == class && row.kind == TrafficKind::Data && is_connected
    };
    profile.connections.iter().any(|row| is_it(row) && row.traffic.payload_bytes > 0)
}

/// The reason why commands cannot be seen, if packets that may be commands are truncated.
fn truncation(profile: &Profile) -> Option<String> {
    let may_be_decoded = [
        ConnectionClass::Unknown,
        ConnectionClass::NvmeOf,
        ConnectionClass::Nfs,
        ConnectionClass::Iser,
        ConnectionClass::Srp,
    ];
    let coverage = &profile.coverage;
    let longest_bytes = coverage.longest_truncated_bytes;
    let hides_commands = coverage.truncated > 0
        && longest_bytes < RECOGNIZED_BYTES
        && may_be_decoded.into_iter().any(|class| has_payload(profile, class));
    hides_commands.then(|| match longest_bytes {
        0 => "packets are truncated".to_owned(),
        snap_bytes => format!("packets are truncated (snap length {snap_bytes})"),
    })
}

/// Moves messages that belong to no command to the opposite direction if that has the commands. If
/// none has, the roles of the two ports are not known: the pair is left out, and a note returned.
fn join_directions(sums: &mut BTreeMap<StoragePair, StoragePairSums>) -> Vec<String> {
    let without: Vec<StoragePair> =
        sums.iter().filter(|(_, sums)| !sums.has_commands()).map(|(pair, _)| pair.clone()).collect();
    let mut truncated: BTreeMap<StoragePair, u64> = BTreeMap::new();
    for pair in without {
        let Some(own) = sums.remove(&pair) else { continue };
        let StoragePair { class, client, server } = pair;
        let back = StoragePair { class, client: server, server: client };
        if let Some(other) = sums.get_mut(&back).filter(|other| other.has_commands()) {
            other.truncated += own.truncated;
            other.without_command += own.without_command;
            continue;
        }
        let (client, server) =
            if back.client <= back.server { (back.client, back.server) } else { (back.server, back.client) };
        *truncated.entry(StoragePair { class, client, server }).or_default() += own.truncated + own.without_command;
    }
    let note = |(StoragePair { class, client, server }, messages): (StoragePair, u64)| {
        format!(
            "{} {} ↔ {}: commands, bytes and errors are unknown, because {} show no command: packets are truncated or missing",
            class.name(),
            client.name(),
            server.name(),
            count_of(messages, "message")
        )
    };
    truncated.into_iter().map(note).collect()
}

/// The rows of a client and a server, added up.
#[derive(Default)]
struct StoragePairSums {
    /// `read_unknown` and `written_unknown`: completed commands that may have read, or may have written,
    /// an unknown number of bytes.
    counts: StorageCounts,
    errors: u64,
    /// Completions without a status.
    unknown_results: u64,
    without_completion: u64,
    without_command: u64,
    truncated: u64,
    dropped: u64,
    admin_commands: u64,
    most_outstanding: u64,
    times: Histogram,
    /// The profile has times.
    is_timed: bool,
    /// Packets between the two are missing.
    misses_packets: bool,
}

impl StoragePairSums {
    /// Completed commands without a time.
    fn untimed(&self) -> u64 {
        let completed = self.completed().saturating_sub(self.times.samples());
        if self.is_timed && self.truncated == 0 { completed } else { 0 }
    }

    const fn completed(&self) -> u64 {
        self.counts.commands.saturating_sub(self.without_completion)
    }

    /// True if the times of most commands are known: without these, even the median is unknown.
    fn has_fair_times(&self) -> bool {
        self.truncated == 0 && self.untimed() * 2 <= self.completed()
    }

    const fn has_commands(&self) -> bool {
        self.counts.commands + self.admin_commands > 0
    }

    fn add(&mut self, row: &StorageRow) {
        let commands = row.counts.commands;
        match row.kind {
            StorageRowKind::Admin => self.admin_commands += commands,
            StorageRowKind::WithoutCommand => self.without_command += commands,
            StorageRowKind::Truncated => self.truncated += commands,
            StorageRowKind::Dropped => self.dropped += commands,
            StorageRowKind::Read | StorageRowKind::Write | StorageRowKind::Other | StorageRowKind::Unknown => {
                self.most_outstanding = self.most_outstanding.max(row.most_outstanding);
                self.add_commands(row);
            }
        }
    }

    fn add_commands(&mut self, row: &StorageRow) {
        let counts = &row.counts;
        self.counts.commands += counts.commands;
        match row.result {
            StorageResult::Success => {}
            StorageResult::Error => self.errors += counts.commands,
            StorageResult::Unknown => self.unknown_results += counts.commands,
            StorageResult::NoCompletion => {
                self.without_completion += counts.commands;
                return;
            }
        }
        match row.kind {
            StorageRowKind::Read => {
                self.counts.read_bytes = self.counts.read_bytes.saturating_add(counts.read_bytes);
                self.counts.read_unknown += counts.read_unknown;
            }
            StorageRowKind::Write => {
                self.counts.written_bytes = self.counts.written_bytes.saturating_add(counts.written_bytes);
                self.counts.written_unknown += counts.written_unknown;
            }
            StorageRowKind::Unknown => {
                // Whether these bytes are file or block data is not known.
                self.counts.read_unknown += if counts.read_bytes > 0 { counts.commands } else { counts.read_unknown };
                self.counts.written_unknown +=
                    if counts.written_bytes > 0 { counts.commands } else { counts.written_unknown };
            }
            _ => {}
        }
    }

    fn totals(self) -> StorageTotals {
        let known = |number: u64, is_known: bool| (is_known && self.truncated == 0).then_some(number);
        let is_whole = !self.misses_packets && self.without_command == 0 && self.dropped == 0;
        let (untimed, has_fair_times) = (self.untimed(), self.has_fair_times());
        StorageTotals {
            commands: known(self.counts.commands, true),
            read_bytes: known(self.counts.read_bytes, self.counts.read_unknown == 0),
            written_bytes: known(self.counts.written_bytes, self.counts.written_unknown == 0),
            errors: known(self.errors, self.unknown_results == 0),
            without_completion: self.without_completion,
            without_command: self.without_command,
            admin_commands: self.admin_commands,
            most_outstanding: known(self.most_outstanding, is_whole),
            outstanding_at_least: self.most_outstanding,
            untimed,
            // The commands that can be read, or that have a time, are no fair sample of all.
            times: if has_fair_times { self.times } else { Histogram::default() },
        }
    }

    fn notes(&self, pair: &StoragePair) -> Vec<String> {
        let name = format!("{} {} → {}", pair.class.name(), pair.client.name(), pair.server.name());
        let mut notes = Vec::new();
        let mut note = |count: u64, text: String| notes.extend((count > 0).then(|| format!("{name}: {text}")));
        note(
            self.truncated,
            format!(
                "commands, bytes and errors are unknown, because the snap length truncated {} before the command",
                count_of(self.truncated, "message")
            ),
        );
        let unknown = self.counts.read_unknown.max(self.counts.written_unknown);
        note(
            unknown,
            format!(
                "bytes are unknown, because {} completed whose operation or length is not known: {}",
                count_of(unknown, "command"),
                if pair.class == ConnectionClass::NvmeOf {
                    "the capture does not show whether their queue is an admin queue"
                } else {
                    "packets are truncated"
                }
            ),
        );
        note(
            self.unknown_results,
            format!(
                "errors are unknown, because the status of {} was not captured",
                count_of(self.unknown_results, "completion")
            ),
        );
        note(
            self.without_completion,
            format!(
                "{} without a completion in the capture; their bytes are not counted",
                count_of(self.without_completion, "command")
            ),
        );
        note(
            if self.truncated == 0 { self.without_command } else { 0 },
            format!(
                "{} without a command in the capture; commands and bytes may be too low",
                count_of(self.without_command, "completion")
            ),
        );
        note(
            self.untimed(),
            format!(
                "the times of {} of {} are unknown: packets are missing, so the completion may belong to a later command with the same id; the longer a command takes, the more often its time is unknown",
                self.untimed(),
                count_of(self.completed(), "completed command")
            ),
        );
        note(
            self.dropped,
            format!(
                "{} dropped, because too many were outstanding; their bytes are not counted",
                count_of(self.dropped, "command")
            ),
        );
        notes
    }
}

/// Notes on connections of storage classes without a decoded command in either direction.
fn undecoded(profile: &Profile, rows: &[StorageRow], labels: &EndpointLabels<'_>) -> Vec<String> {
    let ends = |row: &ConnectionRow| {
        let (a, b) = (labels.sender(row), labels.receiver(row));
        if a <= b { (row.class, a, b) } else { (row.class, b, a) }
    };
    let decoded: BTreeSet<_> =
        rows.iter().filter_map(|row| data_connection(profile, row.connection)).map(ends).collect();
    let mut payload_bytes: BTreeMap<_, u64> = BTreeMap::new();
    let is_storage = |row: &&ConnectionRow| row.class.is_storage() && row.kind == TrafficKind::Data;
    for row in profile.connections.iter().filter(is_storage) {
        if row.traffic.payload_bytes > 0 && !decoded.contains(&ends(row)) {
            *payload_bytes.entry(ends(row)).or_default() += row.traffic.payload_bytes;
        }
    }
    let note = |((class, a, b), payload_bytes): ((ConnectionClass, Label, Label), u64)| {
        let why = match class {
            ConnectionClass::Smb | ConnectionClass::Lustre => "ibscope does not decode the commands of this class",
            _ => "no command was captured in full: check the snap length, and that the capture has both directions",
        };
        format!(
            "{} {} ↔ {}: commands are unknown, because {why}; payload: {payload_bytes} B",
            class.name(),
            a.name(),
            b.name()
        )
    };
    payload_bytes.into_iter().map(note).collect()
}
