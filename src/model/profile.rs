//! The profile: what an analysis found, in tables. Written by `profile`, read by `report`.

use super::RdmaSums;
use super::{
    ClockRow, ConnectionKey, Coverage, Health, Histogram, Kind, Packed, SizeClass, SizeOf, SizeSums, StreamSums,
    TimingKey,
};
use ibscope_parsers::mpi::Operation;
use ibscope_parsers::{Endpoint, Qpn};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything that an analysis keeps of its captures. Tables are sorted; nothing depends on threads or on wall time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// The captures read.
    pub inputs: Vec<Input>,
    /// Counts over all inputs.
    pub coverage: Coverage,
    /// Things the reader of the result must know, one sentence each.
    pub notes: Vec<String>,
    /// Width of the timeline's bins in nanoseconds.
    pub bin_ns: i64,
    /// Width of the bins of the times in nanoseconds; 0 where times were not kept over time.
    pub latency_bin_ns: i64,
    /// MPI envelopes were looked for (`--no-mpi` was not given).
    pub mpi_read: bool,
    /// Times between packets were measured (neither `--no-times` nor `--no-mpi` was given).
    pub times_read: bool,
    /// Names of endpoints, from the hosts file.
    pub names: BTreeMap<Endpoint, String>,
    /// Leaf switches of endpoints, as the manifest of the run knows them: their GUIDs.
    pub leaves: BTreeMap<Endpoint, String>,
    /// Version of the program that made the analysis.
    pub ibscope: String,
    /// Jobs, sorted by number: by the time of their first packet.
    pub jobs: Vec<JobRow>,
    /// Which rank of which job runs where, and the evidence for it.
    pub ranks: Vec<RankRow>,
    /// Queue pairs with MPI traffic whose rank is unknown, with the reason, sorted by endpoint and queue pair.
    pub unassigned: Vec<UnassignedRow>,
    /// Sums per connection, sorted by their key.
    pub connections: Vec<ConnectionRow>,
    /// Sums per connection and bin, sorted by time and connection.
    pub timeline: Vec<TimelineRow>,
    /// Messages of collective operations, sorted by connection and operation.
    pub collectives: Vec<CollectiveRow>,
    /// MPI messages by connection, communicator and tag, sorted by these; `None` where the profile was written before they were kept.
    pub streams: Option<Vec<StreamRow>>,
    /// Times between packets, sorted by connection and what they are of.
    pub latencies: Packed<LatencyRow>,
    /// Sizes of packets and messages, sorted by connection, what they are of, and class.
    pub sizes: Packed<SizeRow>,
    /// Those that end with an answer over time, sorted by time, latency and bucket.
    pub latency_timeline: Vec<LatencyBin>,
    /// Health of connections that have something to say, sorted by connection.
    pub health: Packed<HealthRow>,
    /// Connection management messages, sorted by time.
    pub cm: Vec<CmRow>,
    /// What a merge with other profiles needs, as it is written down; `None` where it was not asked for, and in a profile that was read.
    pub parts: Option<Vec<u8>>,
}

/// One capture that was read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// Path as given, `-` for standard input.
    pub name: String,
    /// Bytes read, compressed as they are.
    pub length_bytes: u64,
    /// XXH3-128 of the bytes read, hexadecimal.
    pub xxh3_128: String,
    /// SHA-256 of the bytes read, hexadecimal; only where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sha256: Option<String>,
    /// Format and link types, for people.
    pub format: String,
    /// How many times a packet stands in this file where both its ports were mirrored into it: pairs of endpoints seen
    /// once and twice.
    pub pairs_seen_once: u64,
    /// See `pairs_seen_once`.
    pub pairs_seen_twice: u64,
    /// Its clock, where it was held against another input's.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub clock: Option<ClockRow>,
    /// The analysis was interrupted before the end of this input; a note says where.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub interrupted: bool,
    /// Counts over this input alone.
    pub coverage: Coverage,
}

/// Sums of one connection. Every packet is counted once, whatever the number of copies and files.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectionRow {
    /// Sender.
    pub src: Endpoint,
    /// Receiver.
    pub dst: Endpoint,
    /// What the packets are counted as.
    pub kind: Kind,
    /// BTH service, opcode bits 7 to 5.
    pub service: u8,
    /// The receiver's queue pair.
    pub dest_qp: Qpn,
    /// The sender's queue pair, where it is known.
    pub src_qp: Option<Qpn>,
    /// What told it: `deth` (datagrams name it), `cm`, `introduction`, `wireup`, `echo`, `answers`
    /// or `alone`.
    pub src_qp_evidence: Option<String>,
    /// Time of the first packet in nanoseconds since the epoch.
    pub first_time_ns: i64,
    /// Time of the last packet in nanoseconds since the epoch.
    pub last_time_ns: i64,
    /// The sums.
    pub traffic: Traffic,
    /// What was repeated.
    pub repeats: Repeats,
    /// Library whose envelopes were recognised.
    pub stack: Option<String>,
    /// Number of the job that the connection belongs to; `None` where it belongs to none or to one that
    /// cannot be told from another.
    pub job: Option<u32>,
    /// One-sided MPI operations: its WRITEs and READs, which belong to no message with an envelope, between processes of a
    /// job; `None` where it carries none of these.
    pub one_sided: Option<RdmaSums>,
    /// How much of the connection's messages the capture holds.
    pub coverage: PairCoverage,
}

/// How much of a pair's messages the capture holds: goes with every count of the pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairCoverage {
    /// The class.
    pub state: CoverageState,
    /// Packets that were sent and are not in the capture, as far as sequence numbers show them.
    pub missing_packets: u64,
    /// MPI messages that were begun and whose length is unknown: they are in no count.
    pub missing_messages: u64,
}

impl PairCoverage {
    /// Adds another connection of the same pair.
    pub fn merge(&mut self, other: &Self) {
        self.state = self.state.max(other.state);
        self.missing_packets = self.missing_packets.saturating_add(other.missing_packets);
        self.missing_messages = self.missing_messages.saturating_add(other.missing_messages);
    }
}

/// The four classes of coverage, the best first: of several connections the worst one counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CoverageState {
    /// No packet is missing between the first and the last one of the capture.
    #[default]
    Complete,
    /// Packets or messages are missing: counts are lower bounds.
    Incomplete,
    /// The mirror sampled the packets: counts are those of the sample.
    Sampled,
    /// Whether packets are missing cannot be told.
    Unknown,
}

impl CoverageState {
    /// All of them, in the order of their discriminants.
    pub const ALL: [Self; 4] = [Self::Complete, Self::Incomplete, Self::Sampled, Self::Unknown];

    /// The name used in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Incomplete => "incomplete",
            Self::Sampled => "sampled",
            Self::Unknown => "unknown",
        }
    }
}

/// A job: processes that exchange messages of one library.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRow {
    /// Its number, from 1 by the time of the first packet.
    pub job: u32,
    /// The library.
    pub stack: String,
    /// Ranks that are known, inferred ones included.
    pub ranks: u32,
    /// Time of the first packet of its connections in nanoseconds since the epoch.
    pub first_time_ns: i64,
    /// Time of the last packet in nanoseconds since the epoch.
    pub last_time_ns: i64,
    /// Slurm's job id, where a manifest names it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub slurm_job_id: Option<String>,
}

impl ConnectionRow {
    /// The connection.
    #[must_use]
    pub fn key(&self) -> ConnectionKey {
        let Self { src, dst, kind, service, dest_qp, .. } = *self;
        let mut key = ConnectionKey { src, dst, kind, service, dest_qp, src_qp: Qpn::new(0) };
        if key.is_datagram() {
            key.src_qp = self.src_qp.unwrap_or(key.src_qp);
        }
        key
    }
}

/// Messages of one collective operation on one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectiveRow {
    /// Index into [`Profile::connections`].
    pub connection: u32,
    /// Name of the operation, `collective` where the library does not say which.
    pub operation: String,
    /// MPI messages.
    pub messages: u64,
    /// Their MPI bytes.
    pub mpi_bytes: u64,
}

/// MPI messages of one connection, communicator and tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamRow {
    /// Index into [`Profile::connections`].
    pub connection: u32,
    /// What their envelopes say; `None` for those messages of a connection that have more tags than are kept apart.
    pub envelope: Option<StreamEnvelope>,
    /// The MPI operation that they belong to.
    pub operation: Operation,
    /// The sums.
    pub sums: StreamSums,
}

/// What the envelopes of a stream say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamEnvelope {
    /// Context id of the communicator.
    pub context: u32,
    /// The communicator is `MPI_COMM_WORLD`.
    pub world: bool,
    /// The sender's rank in the communicator.
    pub rank: u32,
    /// Tag; of nonblocking collectives, which have one each, that of the first.
    pub tag: i32,
}

/// Times between packets of one connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyRow {
    /// Index into [`Profile::connections`]: that of the requests.
    pub connection: u32,
    /// From which moment to which, and of what.
    pub timing: TimingKey,
    /// The times, in nanoseconds.
    pub histogram: Histogram,
}

/// Sizes of packets or messages of one connection, of one class. Each counts once, whatever was copied or sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeRow {
    /// Index into [`Profile::connections`].
    pub connection: u32,
    /// Of what.
    pub of: SizeOf,
    /// From which power of two to the next.
    pub size: SizeClass,
    /// The sums.
    pub sums: SizeSums,
}

/// Times of one kind and one coarse bucket that begin in one bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LatencyBin {
    /// Start of the bin in nanoseconds since the epoch, a multiple of the bin's width.
    pub time_ns: i64,
    /// Index into [`Profile::latencies`].
    pub latency: u32,
    /// Their [`coarse_bucket`](super::histogram::coarse_bucket).
    pub bucket: u16,
    /// How many they are.
    pub count: u32,
}

/// Health of one connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthRow {
    /// Index into [`Profile::connections`].
    pub connection: u32,
    /// The counts.
    pub health: Health,
}

/// What matrices and timelines add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Transmissions, retransmissions and ACKs included.
    pub packets: u64,
    /// LRH to VCRC, or whole Ethernet frames, of those packets.
    pub wire_bytes: u64,
    /// InfiniBand payload of those packets that are no repeats.
    pub payload_bytes: u64,
    /// Transport messages.
    pub messages: u64,
    /// MPI messages, point-to-point.
    pub p2p_messages: u64,
    /// Their MPI bytes.
    pub p2p_mpi_bytes: u64,
    /// MPI messages of collective operations.
    pub collective_messages: u64,
    /// Their MPI bytes.
    pub collective_mpi_bytes: u64,
}

impl std::ops::AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.wire_bytes += other.wire_bytes;
        self.payload_bytes += other.payload_bytes;
        self.messages += other.messages;
        self.p2p_messages += other.p2p_messages;
        // Lengths are what envelopes state: a broken capture may state anything.
        self.p2p_mpi_bytes = self.p2p_mpi_bytes.saturating_add(other.p2p_mpi_bytes);
        self.collective_messages += other.collective_messages;
        self.collective_mpi_bytes = self.collective_mpi_bytes.saturating_add(other.collective_mpi_bytes);
    }
}

/// Repeated packets of a connection: counted in `packets` and `wire_bytes`, never in `payload_bytes` or messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repeats {
    /// Repeated requests.
    pub request_packets: u64,
    /// Repeated READ responses and atomic acknowledgements.
    pub response_packets: u64,
    /// Repeated acknowledgements.
    pub acknowledge_packets: u64,
    /// Wire bytes of all of them.
    pub wire_bytes: u64,
    /// Payload bytes of all of them.
    pub payload_bytes: u64,
}

impl std::ops::AddAssign for Repeats {
    fn add_assign(&mut self, other: Self) {
        self.request_packets += other.request_packets;
        self.response_packets += other.response_packets;
        self.acknowledge_packets += other.acknowledge_packets;
        self.wire_bytes += other.wire_bytes;
        self.payload_bytes += other.payload_bytes;
    }
}

impl Repeats {
    /// All of them.
    #[must_use]
    pub const fn packets(&self) -> u64 {
        self.request_packets + self.response_packets + self.acknowledge_packets
    }
}

/// Repeated packets in a bin, of whatever turn: what [`Repeats`] adds up over all time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repeated {
    /// Packets that were sent before.
    pub packets: u64,
    /// LRH to VCRC, or whole Ethernet frames, of those packets.
    pub wire_bytes: u64,
}

impl std::ops::AddAssign for Repeated {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.wire_bytes += other.wire_bytes;
    }
}

/// Sums of one connection in one bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimelineRow {
    /// Start of the bin in nanoseconds since the epoch, a multiple of the bin's width.
    pub time_ns: i64,
    /// Index into [`Profile::connections`].
    pub connection: u32,
    /// The sums.
    pub traffic: Traffic,
    /// What of them was sent again.
    pub repeated: Repeated,
}

/// The job of rows that do not name one.
const fn first_job() -> u32 {
    1
}

/// Where a rank runs, and the evidence for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankRow {
    /// Number of the job.
    #[serde(default = "first_job")]
    pub job: u32,
    /// Rank in `MPI_COMM_WORLD`.
    pub rank: u32,
    /// Its endpoint, as text.
    pub endpoint: String,
    /// Its queue pair, where the rank belongs to that one only.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub qpn: Option<u32>,
    /// What says so: `envelope` (messages name the rank), `cm` (the library's connection messages do), `communicator` (inferred: it has this
    /// rank on a communicator where all known processes have their world rank), `rankmap` (the user).
    pub evidence: String,
    /// First packets of messages on `MPI_COMM_WORLD`, and connection messages, of this process that named this rank.
    pub agreeing: u64,
    /// Those that named another.
    pub disagreeing: u64,
    /// No message or connection message names the rank: it follows from others.
    #[serde(default)]
    pub inferred: bool,
}

/// A queue pair with MPI traffic whose rank is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnassignedRow {
    /// Number of the job, where that is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub job: Option<u32>,
    /// Its endpoint, as text.
    pub endpoint: String,
    /// The queue pair.
    pub qpn: u32,
    /// Why its rank is unknown, and what would show it.
    pub reason: String,
}

/// One connection management message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CmRow {
    /// Capture time in nanoseconds since the epoch.
    pub time_ns: i64,
    /// Sender.
    pub src: Endpoint,
    /// Receiver.
    pub dst: Endpoint,
    /// `REQ`, `REP`, `RTU`, `REJ`, `MRA`, `DREQ`, `DREP` ...
    pub message: String,
    /// The sender's communication id.
    pub local_comm_id: u32,
    /// The receiver's communication id, where the message has it.
    pub remote_comm_id: Option<u32>,
    /// The sender's queue pair (REQ, REP), or the one to be closed (DREQ).
    pub qpn: Option<Qpn>,
    /// First PSN that the receiver is to use.
    pub starting_psn: Option<u32>,
    /// Service id (REQ).
    pub service_id: Option<u64>,
    /// Rank in `MPI_COMM_WORLD` that the sender's private data states (Open MPI's `openib`).
    pub world_rank: Option<u32>,
    /// Job that the sender's private data states beside its rank.
    #[serde(default)]
    pub mpi_job: Option<u32>,
    /// TCP port number at which the sender listens for connections, stated beside its rank (REQ).
    #[serde(default)]
    pub mpi_port: Option<u16>,
    /// Number of the receive queue that the connection is for, stated beside the rank.
    #[serde(default)]
    pub mpi_queue: Option<u8>,
}
