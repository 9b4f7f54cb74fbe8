//! Storage over time, beside the jobs of its clients.
//!
//! In: a [`Profile`] with its timeline. Out: per bin, client and server the data in each direction,
//! the commands that began, and the data of MPI and NCCL at the client's port, which shows a job
//! that waits for its storage. Invariant: the bytes of all bins are those of the connections;
//! commands are `None` where not all can be counted.

use super::AnalysisError;
use super::endpoint_label::{EndpointLabels, GroupBy, Label};
use super::storage::{Storage, StoragePair};
use crate::model::profile::{ConnectionRow, LatencyBin};
use crate::model::{ConnectionClass, Histogram, Interval, Profile, StorageRow, StorageRowKind, TrafficKind};
use std::collections::{BTreeMap, BTreeSet};

/// The storage traffic of a client and a server in one bin.
#[derive(Clone, Debug, PartialEq)]
pub struct StorageBin {
    /// Start of the bin in nanoseconds since the epoch, a multiple of the bin width.
    pub time_ns: i64,
    /// Class, client and server.
    pub pair: StoragePair,
    /// Payload from the server to the client, in bytes: data that are read, and completions.
    pub to_client_bytes: u64,
    /// Payload from the client to the server, in bytes: data that are written, and commands.
    pub to_server_bytes: u64,
    /// Times of the completed commands that began in this bin, in nanoseconds; `None` if they were
    /// not measured, or if some cannot be read.
    pub times: Option<Histogram>,
    /// Payload of MPI and NCCL from and to the client's port, in bytes.
    pub job_bytes: u64,
}

/// Storage over time. Bins without traffic of a client and a server, and of the client's jobs, are
/// omitted.
#[derive(Clone, Debug, PartialEq)]
pub struct StorageTimeline {
    /// Width of a bin in nanoseconds.
    pub bin_ns: i64,
    /// Origin of relative times (the first packet of the captures), in nanoseconds since the epoch.
    pub origin_ns: i64,
    /// Time of the last packet of the captures; `None` if it is not known.
    pub captured_until_ns: Option<i64>,
    /// For a sampled capture, the sentence on sampling.
    pub sampled: Option<String>,
    /// Bins sorted by time, class, client, server.
    pub bins: Vec<StorageBin>,
    /// Payload of MPI and NCCL from and to the ports of all clients by bin, each packet once.
    pub job_bytes: BTreeMap<i64, u64>,
}

impl StorageTimeline {
    /// Start of the first bin and end of the last one, in nanoseconds since the epoch.
    #[must_use]
    pub fn span_ns(&self) -> Option<(i64, i64)> {
        let (first, last) = (self.bins.first()?, self.bins.last()?);
        Some((first.time_ns, last.time_ns.saturating_add(self.bin_ns)))
    }
}

/// The direction of a storage connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StorageDirection {
    ToServer,
    ToClient,
}

/// Bytes of a bin, and its commands by coarse bucket of their time.
#[derive(Default)]
struct StorageBinSums {
    to_client_bytes: u64,
    to_server_bytes: u64,
    job_bytes: u64,
    times: BTreeMap<u16, u64>,
}

/// Builds the timeline of the storage traffic in bins of `bin_ns`, or in the narrowest bins of the
/// profile if that is `None`. `storage` is that of the profile.
pub fn storage_timeline(
    profile: &Profile,
    storage: &Storage,
    bin_ns: Option<i64>,
) -> Result<StorageTimeline, AnalysisError> {
    if profile.bin_ns <= 0 {
        return Err(AnalysisError::NoTimeline);
    }
    // Both time series start with the same bin width, and each doubles its width on its own.
    let times_ns = if profile.latency_bin_ns > 0 { profile.latency_bin_ns } else { profile.bin_ns };
    let least_ns = profile.bin_ns.max(times_ns);
    let bin_ns = bin_ns.unwrap_or(least_ns);
    if bin_ns % profile.bin_ns != 0 || bin_ns % times_ns != 0 {
        return Err(AnalysisError::Bins { wanted_ns: bin_ns, profile_ns: least_ns });
    }
    let start_ns = |time_ns: i64| time_ns.div_euclid(bin_ns).saturating_mul(bin_ns);
    let roles = StorageRoles::of(profile, storage);
    let mut sums: BTreeMap<(i64, &StoragePair), StorageBinSums> = BTreeMap::new();
    let mut job_bytes: BTreeMap<i64, u64> = BTreeMap::new();
    for row in profile.timeline.iter().filter(|row| row.traffic.payload_bytes > 0) {
        let (time_ns, bytes) = (start_ns(row.time_ns), row.traffic.payload_bytes);
        if let Some((pair, direction)) = roles.connection(row.connection) {
            let sum = sums.entry((time_ns, pair)).or_default();
            match direction {
                StorageDirection::ToClient => sum.to_client_bytes += bytes,
                StorageDirection::ToServer => sum.to_server_bytes += bytes,
            }
        }
        let pairs = roles.pairs_of_job(profile, row.connection);
        if !pairs.is_empty() {
            *job_bytes.entry(time_ns).or_default() += bytes;
        }
        pairs.into_iter().for_each(|pair| sums.entry((time_ns, pair)).or_default().job_bytes += bytes);
    }
    for (bin, pair) in roles.times(profile) {
        let times = &mut sums.entry((start_ns(bin.time_ns), pair)).or_default().times;
        *times.entry(bin.bucket).or_default() += u64::from(bin.count);
    }
    let are_measured = are_measured(profile);
    let bin = |((time_ns, pair), sums): ((i64, &StoragePair), StorageBinSums)| {
        let is_counted = storage.pairs.get(pair).is_some_and(|totals| totals.commands.is_some());
        let StorageBinSums { to_client_bytes, to_server_bytes, job_bytes, times } = sums;
        let times = (are_measured && is_counted).then(|| Histogram::of_coarse(&times));
        StorageBin { time_ns, pair: pair.clone(), to_client_bytes, to_server_bytes, times, job_bytes }
    };
    let bins: Vec<StorageBin> = sums.into_iter().map(bin).collect();
    let origin_ns = super::origin_ns(profile, bins.first().map(|bin| bin.time_ns));
    let sampled = profile.sampling.map(|sampling| sampling.describe());
    let captured_until_ns = super::captured_until_ns(profile);
    Ok(StorageTimeline { bin_ns, origin_ns, captured_until_ns, sampled, bins, job_bytes })
}

/// False if the profile has times of commands, but no time series of them: it was written by an
/// earlier version.
fn are_measured(profile: &Profile) -> bool {
    let times: Vec<bool> =
        profile.latencies.iter().map(|row| row.timing.interval == Interval::StorageCommand).collect();
    let is_of_command = |latency: u32| times.get(latency as usize).copied().unwrap_or(false);
    profile.times_read
        && profile.latency_bin_ns > 0
        && (!times.contains(&true) || profile.latency_timeline.iter().any(|bin| is_of_command(bin.latency)))
}

/// The connections with the storage traffic, and with that of the jobs of its clients.
struct StorageRoles<'a> {
    /// By number of the connection.
    connections: BTreeMap<u32, (&'a StoragePair, StorageDirection)>,
    /// The pairs of each client.
    by_client: BTreeMap<&'a Label, Vec<&'a StoragePair>>,
    labels: EndpointLabels<'a>,
    /// Connections whose commands are counted.
    counted: BTreeSet<u32>,
}

impl<'a> StorageRoles<'a> {
    fn of(profile: &'a Profile, storage: &'a Storage) -> Self {
        let labels = EndpointLabels::new(profile, GroupBy::Endpoint);
        let rows = profile.storage.as_deref().unwrap_or_default();
        let is_command = |row: &&StorageRow| row.kind.is_counted() || row.kind == StorageRowKind::Admin;
        let with_commands: BTreeSet<u32> = rows.iter().filter(is_command).map(|row| row.connection).collect();
        let counted = rows.iter().filter(|row| row.kind.is_counted()).map(|row| row.connection).collect();
        let mut connections = BTreeMap::new();
        let is_storage = |row: &ConnectionRow| row.class.is_storage() && row.kind == TrafficKind::Data;
        for (number, row) in (0u32..).zip(&profile.connections).filter(|(_, row)| is_storage(row)) {
            let (client, server, class) = (labels.sender(row), labels.receiver(row), row.class);
            let there = StoragePair { class, client: client.clone(), server: server.clone() };
            let back = StoragePair { class, client: server, server: client };
            let find = |pair: &StoragePair| storage.pairs.get_key_value(pair).map(|(pair, _)| pair);
            let role = match (find(&there), find(&back)) {
                // Each port serves the other one.
                (Some(there), Some(_)) if with_commands.contains(&number) => (there, StorageDirection::ToServer),
                (_, Some(back)) => (back, StorageDirection::ToClient),
                (Some(there), None) => (there, StorageDirection::ToServer),
                (None, None) => continue,
            };
            connections.insert(number, role);
        }
        let mut by_client: BTreeMap<&Label, Vec<&StoragePair>> = BTreeMap::new();
        storage.pairs.keys().for_each(|pair| by_client.entry(&pair.client).or_default().push(pair));
        Self { connections, by_client, labels, counted }
    }

    fn connection(&self, number: u32) -> Option<(&'a StoragePair, StorageDirection)> {
        self.connections.get(&number).copied()
    }

    /// The pairs whose client sends or receives over this connection, if a job uses it.
    fn pairs_of_job(&self, profile: &Profile, number: u32) -> BTreeSet<&'a StoragePair> {
        let row = profile.connections.get(number as usize);
        let is_job = |row: &&ConnectionRow| {
            matches!(row.class, ConnectionClass::Mpi | ConnectionClass::Nccl) && row.kind == TrafficKind::Data
        };
        let Some(row) = row.filter(is_job) else { return BTreeSet::new() };
        let ends = [self.labels.sender(row), self.labels.receiver(row)];
        ends.iter().filter_map(|end| self.by_client.get(end)).flatten().copied().collect()
    }

    /// The times of commands, by the time at which the commands began.
    fn times<'p>(&self, profile: &'p Profile) -> impl Iterator<Item = (&'p LatencyBin, &'a StoragePair)> {
        let latencies: Vec<_> = profile.latencies.iter().map(|row| (row.connection, row.timing.interval)).collect();
        profile.latency_timeline.iter().filter_map(move |bin| {
            let &(number, interval) = latencies.get(bin.latency as usize)?;
            let (pair, _) = self.connection(number).filter(|_| self.counted.contains(&number))?;
            (interval == Interval::StorageCommand).then_some((bin, pair))
        })
    }
}
