//! The profile: the results of an analysis as tables. `profile` writes it, `report` reads it.

use super::RdmaSums;
use super::column::column_values;
use super::paths::ConnectionPaths;
use super::{
    BinCongestion, ClockRow, ConnectionClass, ConnectionKey, ConnectionShare, Coverage, Health, Histogram, PackedRows,
    SampledConnection, Sampling, SizeCategory, SizeClass, SizeSums, StorageRow, StreamSums, TimingKey, TrafficKind,
    Trust,
};
use ibscope_parsers::mpi::MpiOperation;
use ibscope_parsers::ulp::UpperLayer;
use ibscope_parsers::{Endpoint, Qpn};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// All results of an analysis. Tables are sorted; nothing depends on the number of threads or on
/// wall time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// The captures read.
    pub inputs: Vec<Input>,
    /// Counts over all inputs.
    pub coverage: Coverage,
    /// Whether the captures hold all packets.
    pub trust: Trust,
    /// The sampling of the captures; `None` if they are not sampled.
    pub sampling: Option<Sampling>,
    /// Notes for the reader of the result, one sentence each.
    pub notes: Vec<String>,
    /// Width of the timeline's bins in nanoseconds.
    pub bin_ns: i64,
    /// The time series have no counts of congestion: a version of ibscope without these columns wrote
    /// the profile.
    pub is_without_congestion: bool,
    /// Width of the bins of `senders` in nanoseconds; 0 without them.
    pub sender_bin_ns: i64,
    /// Width of the bins of the latency time series in nanoseconds; 0 if there is no such time
    /// series.
    pub latency_bin_ns: i64,
    /// MPI envelopes were parsed (no `--no-mpi`).
    pub mpi_read: bool,
    /// Times between packets were measured (neither `--no-times` nor `--no-mpi`).
    pub times_read: bool,
    /// Names of endpoints, from the hosts file.
    pub names: BTreeMap<Endpoint, String>,
    /// GUIDs of the leaf switches of endpoints, from the manifest of the run.
    pub leaves: BTreeMap<Endpoint, String>,
    /// Data rates of ports in bit/s, from the manifest of the captures.
    pub port_rates: BTreeMap<Endpoint, u64>,
    /// Version of ibscope that made the analysis.
    pub ibscope: String,
    /// Jobs, sorted by number, which follows the time of their first packet.
    pub jobs: Vec<JobRow>,
    /// Locations of the ranks of each job, with the evidence.
    pub ranks: Vec<RankRow>,
    /// Queue pairs with MPI traffic and unknown rank, with the reason, sorted by endpoint and queue
    /// pair.
    pub unassigned: Vec<UnassignedRow>,
    /// Sums per connection, sorted by their key.
    pub connections: Vec<ConnectionRow>,
    /// Sums per connection and bin, sorted by time and connection.
    pub timeline: Vec<TimelineRow>,
    /// The same sums by sender, job, class and bin, in narrower bins; empty if the bins of `timeline`
    /// are as narrow. `connection` is the first connection of the sender. Sorted by time and
    /// connection.
    pub senders: Vec<TimelineRow>,
    /// Messages of collective operations, sorted by connection and operation.
    pub collectives: Vec<CollectiveRow>,
    /// MPI messages by connection, communicator and tag, sorted by these; `None` in profiles of
    /// versions without this table.
    pub streams: Option<Vec<StreamRow>>,
    /// Times between packets, sorted by connection and timing key.
    pub latencies: PackedRows<LatencyRow>,
    /// Sizes of packets and messages, sorted by connection, category and class.
    pub sizes: PackedRows<SizeRow>,
    /// Time series of response times, sorted by time, latency and bucket.
    pub latency_timeline: Vec<LatencyBin>,
    /// Health of connections with counts other than 0, sorted by connection.
    pub health: PackedRows<HealthRow>,
    /// Commands of storage protocols, sorted by connection, operation and status; `None` in profiles
    /// of versions without this table.
    pub storage: Option<Vec<StorageRow>>,
    /// Connection management messages, sorted by time.
    pub cm: Vec<CmRow>,
    /// Serialized data that a merge with other profiles needs; `None` if not requested, and in a
    /// profile that was read from a file.
    pub parts: Option<Vec<u8>>,
}

/// One capture that was read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// Path as given, `-` for standard input.
    pub name: String,
    /// Bytes read, before decompression.
    pub length_bytes: u64,
    /// XXH3-128 of the bytes read, hexadecimal.
    pub xxh3_128: String,
    /// SHA-256 of the bytes read, hexadecimal, if requested.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sha256: Option<String>,
    /// Format and link types as text.
    pub format: String,
    /// Pairs of endpoints whose packets this file contains once. If both ports of a pair are
    /// mirrored into the file, it contains every packet twice.
    pub pairs_observed_once: u64,
    /// Pairs of endpoints whose packets this file contains twice.
    pub pairs_observed_twice: u64,
    /// Its clock, if it was compared with that of another input.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub clock: Option<ClockRow>,
    /// The analysis was interrupted before the end of this input; a note gives the offset.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub interrupted: bool,
    /// This input was not read to its end: it is truncated or damaged, or the analysis was
    /// interrupted.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub ends_early: bool,
    /// The share of its connections that was analyzed; `None` for all.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub share: Option<ConnectionShare>,
    /// Counts over this input only.
    pub coverage: Coverage,
}

/// Sums of one connection. Every packet counts once, however many mirror copies and files contain
/// it.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectionRow {
    /// Sender.
    pub src: Endpoint,
    /// Receiver.
    pub dst: Endpoint,
    /// Kind of traffic.
    pub kind: TrafficKind,
    /// BTH service, opcode bits 7 to 5.
    pub service: u8,
    /// The receiver's queue pair.
    pub dest_qp: Qpn,
    /// The sender's queue pair, if known.
    pub src_qp: Option<Qpn>,
    /// Evidence for it: `deth` (datagrams carry it), `cm`, `connection_message`, `wireup`, `echo`,
    /// `responses` or `only_connection`.
    pub src_qp_evidence: Option<Cow<'static, str>>,
    /// Time of the first packet in nanoseconds since the epoch.
    pub first_time_ns: i64,
    /// Time of the last packet in nanoseconds since the epoch.
    pub last_time_ns: i64,
    /// The sums.
    pub traffic: Traffic,
    /// Retransmissions.
    pub retransmissions: RetransmissionSums,
    /// Library whose envelopes were detected.
    pub stack: Option<String>,
    /// The kind of program that it belongs to.
    pub class: ConnectionClass,
    /// Number of its job; `None` if it belongs to none, or may belong to several.
    pub job: Option<u32>,
    /// One-sided MPI operations: WRITEs and READs between processes of a job that belong to no
    /// message with an envelope; `None` if there are none.
    pub one_sided: Option<RdmaSums>,
    /// Share of the connection's packets and messages in the capture.
    pub coverage: PairCoverage,
    /// The samples, if the capture is sampled; boxed, because most captures are not.
    pub sampled: Option<Box<SampledConnection>>,
    /// Its packets by path fields; empty in profiles that were written before these were read.
    pub paths: ConnectionPaths,
    /// True if the captures show it at both of its ports, at the same time; `None` in profiles that were
    /// written before this was stored.
    pub is_at_both_ports: Option<bool>,
}

/// Coverage of a pair's packets and messages by the capture: shown with every count of the
/// pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairCoverage {
    /// Coverage class.
    pub state: CoverageState,
    /// Packets missing in the capture, according to the sequence numbers.
    pub missing_packets: u64,
    /// MPI messages with a known start and an unknown length; no other count includes them.
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

/// The four classes of coverage, best first: the worst connection determines the class of several.
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
    /// Missing packets cannot be detected.
    Unknown,
}

impl CoverageState {
    /// All classes, in the order of their discriminants.
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
    /// Its number; jobs are numbered from 1 by the time of their first packet.
    pub job: u32,
    /// The library.
    pub stack: String,
    /// Number of known ranks, including inferred ones.
    pub ranks: u32,
    /// Time of the first packet of its connections in nanoseconds since the epoch.
    pub first_time_ns: i64,
    /// Time of the last packet in nanoseconds since the epoch.
    pub last_time_ns: i64,
    /// Slurm's job id, if a manifest gives it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub slurm_job_id: Option<String>,
    /// True if another job has the same ranks at other ports at the same time, so both may be parts
    /// of one job.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub may_be_part: bool,
    /// True if the clocks of its inputs could not be compared, or if the clocks of two ports in one input
    /// differ by an unknown time: times between packets at different ports may be wrong.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub lacks_common_clock: bool,
    /// Longest median delay in nanoseconds between the two observations of packets of a connection, if
    /// the second ones come after ACKs: times at different ports may be wrong by as much.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub copy_delay_ns: Option<u64>,
}

impl ConnectionRow {
    /// The key of the connection.
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
    /// Name of the operation; `collective` if the library does not identify it.
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
    /// Its envelope; `None` for messages of a connection with too many tags.
    pub envelope: Option<StreamEnvelope>,
    /// The MPI operation of the messages.
    pub operation: MpiOperation,
    /// The sums.
    pub sums: StreamSums,
}

/// Envelope fields that the messages of a stream have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamEnvelope {
    /// Context id of the communicator.
    pub context: u32,
    /// The communicator is `MPI_COMM_WORLD`.
    pub world: bool,
    /// The sender's rank in the communicator.
    pub rank: u32,
    /// Tag; nonblocking collectives have one tag each, of which this is the first.
    pub tag: i32,
}

/// Times between packets of one connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyRow {
    /// Index into [`Profile::connections`]: the connection of the requests.
    pub connection: u32,
    /// Interval, verb and size class.
    pub timing: TimingKey,
    /// The times, in nanoseconds.
    pub histogram: Histogram,
}

/// Sizes of packets or messages of one connection and one class. Mirror copies and retransmissions
/// do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeRow {
    /// Index into [`Profile::connections`].
    pub connection: u32,
    /// Category of packets or messages.
    pub category: SizeCategory,
    /// Size class: from one power of two to the next.
    pub size: SizeClass,
    /// The sums.
    pub sums: SizeSums,
}

/// Times of one kind and one coarse bucket that start in one bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LatencyBin {
    /// Start of the bin in nanoseconds since the epoch, a multiple of the bin's width.
    pub time_ns: i64,
    /// Index into [`Profile::latencies`].
    pub latency: u32,
    /// Their [`coarse_bucket`](super::histogram::coarse_bucket).
    pub bucket: u16,
    /// Number of times.
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

/// Sums of packets and messages, for matrices and timelines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Packets sent, including retransmissions and ACKs.
    pub packets: u64,
    /// Wire bytes of these packets: LRH to VCRC, or whole Ethernet frames.
    pub wire_bytes: u64,
    /// InfiniBand payload of the packets that are not retransmissions.
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

column_values! {
    Traffic {
        packets: "packets", Count, "every transmission: requests, responses, acknowledgements, retransmissions; a packet and its mirror copy count once";
        wire_bytes: "wire_bytes", Bytes, "bytes of these packets, from LRH to VCRC or the whole Ethernet frame";
        payload_bytes: "payload_bytes", Bytes, "InfiniBand payload of these packets without retransmissions";
        messages: "messages", Count, "transport messages that the sender started";
        p2p_messages: "p2p_messages", Count, "MPI messages, point-to-point";
        p2p_mpi_bytes: "p2p_mpi_bytes", Bytes, "their MPI length";
        collective_messages: "collective_messages", Count, "MPI messages of collective operations";
        collective_mpi_bytes: "collective_mpi_bytes", Bytes, "their MPI length";
    }
}

impl std::ops::AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.wire_bytes += other.wire_bytes;
        self.payload_bytes += other.payload_bytes;
        self.messages += other.messages;
        self.p2p_messages += other.p2p_messages;
        // Lengths come from envelopes: a damaged capture may contain any value.
        self.p2p_mpi_bytes = self.p2p_mpi_bytes.saturating_add(other.p2p_mpi_bytes);
        self.collective_messages += other.collective_messages;
        self.collective_mpi_bytes = self.collective_mpi_bytes.saturating_add(other.collective_mpi_bytes);
    }
}

/// Retransmissions of a connection: included in `packets` and `wire_bytes`, not in `payload_bytes`
/// or messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetransmissionSums {
    /// Retransmitted requests.
    pub request_packets: u64,
    /// Retransmitted READ responses and atomic acknowledgements.
    pub response_packets: u64,
    /// Duplicate ACKs.
    pub acknowledge_packets: u64,
    /// Wire bytes of all of them.
    pub wire_bytes: u64,
    /// Payload bytes of all of them.
    pub payload_bytes: u64,
}

column_values! {
    RetransmissionSums {
        request_packets: "retransmitted_request_packets", Count, "retransmitted requests: same connection, same PSN; also READ requests that repeat the rest of an earlier READ";
        response_packets: "retransmitted_response_packets", Count, "retransmitted READ responses and atomic acknowledgements";
        acknowledge_packets: "duplicate_acknowledge_packets", Count, "acknowledgements of PSNs that were acknowledged before";
        wire_bytes: "retransmitted_wire_bytes", Bytes, "bytes on the wire of all these packets";
        payload_bytes: "retransmitted_payload_bytes", Bytes, "InfiniBand payload of all these packets";
    }
}

impl std::ops::AddAssign for RetransmissionSums {
    fn add_assign(&mut self, other: Self) {
        self.request_packets += other.request_packets;
        self.response_packets += other.response_packets;
        self.acknowledge_packets += other.acknowledge_packets;
        self.wire_bytes += other.wire_bytes;
        self.payload_bytes += other.payload_bytes;
    }
}

impl RetransmissionSums {
    /// Number of packets of all three.
    #[must_use]
    pub const fn packets(&self) -> u64 {
        self.request_packets + self.response_packets + self.acknowledge_packets
    }
}

/// Retransmitted packets in a bin, of any role: the time series of [`RetransmissionSums`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BinRetransmissions {
    /// Retransmitted packets.
    pub packets: u64,
    /// Wire bytes of these packets: LRH to VCRC, or whole Ethernet frames.
    pub wire_bytes: u64,
}

column_values! {
    BinRetransmissions {
        packets: "retransmitted_packets", Count, "retransmitted packets";
        wire_bytes: "retransmitted_wire_bytes", Bytes, "bytes on the wire of the retransmitted packets";
    }
}

impl std::ops::AddAssign for BinRetransmissions {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.wire_bytes += other.wire_bytes;
    }
}

/// Sums of one connection in one bin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimelineRow {
    /// Start of the bin in nanoseconds since the epoch, a multiple of the bin's width.
    pub time_ns: i64,
    /// Index into [`Profile::connections`].
    pub connection: u32,
    /// The sums.
    pub traffic: Traffic,
    /// The retransmissions among them.
    pub retransmissions: BinRetransmissions,
    /// The packets among them that show congestion, loss or a slow receiver.
    pub congestion: BinCongestion,
}

impl Profile {
    /// The time series with the narrowest bins that are enough for sums by sender, job and class, and
    /// the width of its bins. The connection of a row shows no receiver.
    #[must_use]
    pub fn sender_series(&self) -> (&[TimelineRow], i64) {
        if self.sender_bin_ns > 0 { (&self.senders, self.sender_bin_ns) } else { (&self.timeline, self.bin_ns) }
    }

    /// Drops the series by sender, so that [`Profile::sender_series`] is that of connections.
    pub fn drop_senders(&mut self) {
        (self.senders, self.sender_bin_ns) = (Vec::new(), 0);
    }
}

/// Job number of rows without one.
const fn first_job() -> u32 {
    1
}

/// The location of a rank, with the evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankRow {
    /// Number of the job.
    #[serde(default = "first_job")]
    pub job: u32,
    /// Rank in `MPI_COMM_WORLD`.
    pub rank: u32,
    /// Its endpoint as text.
    pub endpoint: String,
    /// Its queue pair, if the rank is known for this queue pair only.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub qpn: Option<u32>,
    /// Source of the rank: `envelope` (messages carry it), `cm` (the library's connection messages
    /// carry it), `communicator` (inferred: its rank on a communicator where all known processes
    /// have their world rank), `rankmap` (the user).
    pub evidence: String,
    /// First packets of messages on `MPI_COMM_WORLD`, and connection messages, of this process with
    /// this rank.
    pub agreeing: u64,
    /// The number of such packets and messages with another rank.
    pub disagreeing: u64,
    /// No message or connection message carries the rank; it follows from other ranks.
    #[serde(default)]
    pub inferred: bool,
}

impl RankRow {
    /// The evidence of a rank from the user's rank map.
    pub const OF_MAP: &str = "rankmap";
}

/// A queue pair with MPI traffic and unknown rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnassignedRow {
    /// Number of the job, if known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub job: Option<u32>,
    /// Its endpoint as text.
    pub endpoint: String,
    /// The queue pair.
    pub qpn: u32,
    /// Reason why its rank is unknown, and the remedy.
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
    /// The receiver's communication id, if the message has it.
    pub remote_comm_id: Option<u32>,
    /// The sender's queue pair (REQ, REP), or the one to close (DREQ).
    pub qpn: Option<Qpn>,
    /// First PSN that the receiver shall use.
    pub starting_psn: Option<u32>,
    /// Service id (REQ).
    pub service_id: Option<u64>,
    /// Upper-layer protocol that service id or private data name.
    #[serde(default)]
    pub protocol: Option<UpperLayer>,
    /// Rank in `MPI_COMM_WORLD` from the sender's private data (Open MPI's `openib`).
    pub world_rank: Option<u32>,
    /// Job from the sender's private data.
    #[serde(default)]
    pub mpi_job: Option<u32>,
    /// TCP port at which the sender listens for connections, from its private data (REQ).
    #[serde(default)]
    pub mpi_port: Option<u16>,
    /// Number of the receive queue of the connection, from the private data.
    #[serde(default)]
    pub mpi_queue: Option<u8>,
}
