//! The document of a profile, `profile.json`: everything except the tables, and the digests of the
//! other files.

use super::VERSION;
use crate::model::profile::{Input, JobRow, RankRow, UnassignedRow};
use crate::model::{Coverage, Profile, Sampling, Trust, printable};
use ibscope_parsers::Endpoint;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const FORMAT: &str = "ibscope profile";

/// The fields that every version has.
#[derive(Deserialize)]
pub(super) struct DocumentHeader {
    pub(super) format: String,
    pub(super) version: u32,
    pub(super) ibscope: String,
}

#[derive(Serialize, Deserialize)]
pub(super) struct ProfileDocument {
    format: String,
    version: u32,
    /// Version of the program that wrote the profile.
    ibscope: String,
    inputs: Vec<Input>,
    coverage: Coverage,
    /// Profiles of older versions have no verdict.
    #[serde(default)]
    trust: Trust,
    /// Absent for captures that are not sampled.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    sampling: Option<Sampling>,
    notes: Vec<String>,
    /// Width of the timeline's bins in nanoseconds.
    bin_ns: i64,
    /// Width of the bins of the series of senders in nanoseconds; absent without one.
    #[serde(skip_serializing_if = "is_zero", default)]
    sender_bin_ns: i64,
    /// Width of the bins of the latency time series in nanoseconds; 0 without one.
    latency_bin_ns: i64,
    /// MPI envelopes were read.
    mpi_read: bool,
    /// Latencies were measured.
    times_read: bool,
    endpoints: Vec<EndpointEntry>,
    #[serde(default)]
    jobs: Vec<JobRow>,
    ranks: Vec<RankRow>,
    /// Queue pairs with MPI traffic and unknown rank.
    #[serde(default)]
    unassigned: Vec<UnassignedRow>,
    /// Digests of the other files of the profile.
    tables: BTreeMap<String, TableDigest>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(width_ns: &i64) -> bool {
    *width_ns == 0
}

/// Length and digest of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TableDigest {
    pub(super) length_bytes: u64,
    /// Hexadecimal.
    xxh3_128: String,
}

impl TableDigest {
    pub(super) fn of(bytes: &[u8]) -> Self {
        let xxh3_128 = format!("{:032x}", xxhash_rust::xxh3::xxh3_128(bytes));
        Self { length_bytes: bytes.len() as u64, xxh3_128 }
    }
}

/// An endpoint with traffic, or one that the hosts file names.
#[derive(Serialize, Deserialize)]
struct EndpointEntry {
    endpoint: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    name: Option<String>,
    /// Its leaf switch, if a manifest has it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    leaf: Option<String>,
    /// Data rate of its port in bit/s, if a manifest has it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    bit_per_s: Option<u64>,
}

impl ProfileDocument {
    pub(super) fn new(profile: &Profile, tables: BTreeMap<String, TableDigest>) -> Self {
        let seen = profile.connections.iter().flat_map(|connection| [connection.src, connection.dst]);
        let endpoints: BTreeSet<Endpoint> = seen
            .chain(profile.names.keys().copied())
            .chain(profile.leaves.keys().copied())
            .chain(profile.port_rates.keys().copied())
            .collect();
        let entry = |endpoint: Endpoint| EndpointEntry {
            endpoint: endpoint.to_string(),
            name: profile.names.get(&endpoint).cloned(),
            leaf: profile.leaves.get(&endpoint).cloned(),
            bit_per_s: profile.port_rates.get(&endpoint).copied(),
        };
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            ibscope: env!("CARGO_PKG_VERSION").to_owned(),
            inputs: profile.inputs.clone(),
            coverage: profile.coverage.clone(),
            trust: profile.trust.clone(),
            sampling: profile.sampling,
            notes: profile.notes.clone(),
            bin_ns: profile.bin_ns,
            sender_bin_ns: profile.sender_bin_ns,
            latency_bin_ns: profile.latency_bin_ns,
            mpi_read: profile.mpi_read,
            times_read: profile.times_read,
            endpoints: endpoints.into_iter().map(entry).collect(),
            jobs: profile.jobs.clone(),
            ranks: profile.ranks.clone(),
            unassigned: profile.unassigned.clone(),
            tables,
        }
    }

    /// The profile without its tables, and the digests of the other files.
    pub(super) fn into_profile(self) -> (Profile, BTreeMap<String, TableDigest>) {
        let printable_text = |entry: &EndpointEntry, text: &Option<String>| {
            Some((entry.endpoint.parse().ok()?, printable(text.as_deref()?)))
        };
        let rate =
            |entry: &EndpointEntry| Some((entry.endpoint.parse().ok()?, entry.bit_per_s.filter(|rate| *rate > 0)?));
        let profile = Profile {
            inputs: self.inputs.into_iter().map(printable_input).collect(),
            coverage: printable_coverage(self.coverage),
            trust: printable_trust(self.trust),
            sampling: self.sampling.filter(Sampling::is_sound),
            notes: self.notes.iter().map(|note| printable(note)).collect(),
            bin_ns: self.bin_ns,
            sender_bin_ns: self.sender_bin_ns,
            latency_bin_ns: self.latency_bin_ns,
            mpi_read: self.mpi_read,
            times_read: self.times_read,
            names: self.endpoints.iter().filter_map(|entry| printable_text(entry, &entry.name)).collect(),
            leaves: self.endpoints.iter().filter_map(|entry| printable_text(entry, &entry.leaf)).collect(),
            port_rates: self.endpoints.iter().filter_map(rate).collect(),
            ibscope: printable(&self.ibscope),
            jobs: self.jobs.into_iter().map(printable_job).collect(),
            ranks: self.ranks.into_iter().map(|row| RankRow { evidence: printable(&row.evidence), ..row }).collect(),
            unassigned: self
                .unassigned
                .into_iter()
                .map(|row| UnassignedRow { reason: printable(&row.reason), ..row })
                .collect(),
            ..Profile::default()
        };
        (profile, self.tables)
    }
}

/// A verdict without control characters.
fn printable_trust(mut trust: Trust) -> Trust {
    trust.reasons = trust.reasons.iter().map(|reason| printable(reason)).collect();
    trust.input_losses.iter_mut().for_each(|loss| loss.input = printable(&loss.input));
    trust
}

/// A job without control characters.
fn printable_job(mut job: JobRow) -> JobRow {
    job.stack = printable(&job.stack);
    job.slurm_job_id = job.slurm_job_id.as_deref().map(printable);
    job
}

/// An input without control characters. Its name stays as it is: outputs make it printable.
fn printable_input(input: Input) -> Input {
    Input {
        xxh3_128: printable(&input.xxh3_128),
        sha256: input.sha256.as_deref().map(printable),
        format: printable(&input.format),
        coverage: printable_coverage(input.coverage),
        ..input
    }
}

/// A coverage whose names have no control characters.
fn printable_coverage(coverage: Coverage) -> Coverage {
    fn plain<T>(counts: BTreeMap<String, T>) -> BTreeMap<String, T> {
        counts.into_iter().map(|(name, count)| (printable(&name), count)).collect()
    }
    Coverage {
        other_frames: plain(coverage.other_frames),
        undecoded: plain(coverage.undecoded),
        encapsulated: plain(coverage.encapsulated),
        mirror_losses: plain(coverage.mirror_losses),
        pause_frames: plain(coverage.pause_frames),
        pauses: plain(coverage.pauses),
        ..coverage
    }
}
