//! Connections: observations of their packets, evidence from their messages, and sums.

use super::health::{BriefHealth, HealthEvents};
use super::paths::ConnectionPaths;
use super::profile::{RetransmissionSums, Traffic};
use super::{
    CongestionEvent, ConnectionKey, MpiMessage, OperationMix, PackedBins, PacketRole, RdmaSums, Recorder,
    RequiredDetection, SampledSums, SizeCategory, SizeClass, SizeSums, Sizes, StorageSums, Streams, TimingKey,
    UpperLayerVotes, VecMap,
};
use ibscope_parsers::mpi::nccl::Release;
use ibscope_parsers::mpi::{Envelope, Identity, LibraryStack, MatchFields, MpiOperation, TagLayout};
use ibscope_parsers::ulp::UpperLayerMessage;
use ibscope_parsers::{Endpoint, Psn, Qpn};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::hash::Hash;
use std::ops::AddAssign;

/// Result of the flow stage for one packet.
#[derive(Clone, Copy, Debug)]
pub struct PacketObservation {
    /// Dense number of the packet's connection within its tracker.
    pub connection: u32,
    /// Its role.
    pub role: PacketRole,
    /// Number of this observation of the packet (same connection, role and PSN) in this file: 1, 2,
    /// ...
    pub occurrence: u32,
    /// The packet counts as a transport message: Last or Only of SEND and WRITE, READ, atomic and
    /// FLUSH requests, datagrams.
    pub counts_message: bool,
    /// This packet shows that a request was observed twice although its sender did not retransmit it:
    /// a go-back-N retransmits all later requests too, and no sooner than the ACK can be late.
    pub shows_copy: bool,
}

/// Classification of the first packet of a transport message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartEvent {
    /// A message of this library stack, with or without an envelope.
    Recognized(LibraryStack, Option<Envelope>),
    /// A message that is recognized also matches this upper-layer protocol.
    AlsoMatches(UpperLayerMessage),
    /// A retransmission under a new PSN (UCX over UD).
    Retransmitted,
    /// A message of no known library; the upper-layer protocol that it looks like, if any.
    Unknown(Option<UpperLayerMessage>),
}

/// Tag layouts that the envelopes of a stack may have; only stacks with UCX-style tags have
/// several.
#[must_use]
pub const fn tag_layouts(stack: LibraryStack) -> &'static [TagLayout] {
    if stack.carries_tags() { &TagLayout::ALL } else { &[TagLayout::ALL[0]] }
}

/// A class of MPI messages, by the properties that are interpreted later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MpiClass {
    /// Library stack of the messages.
    pub stack: LibraryStack,
    /// Operation by tag layout, in the order of [`TagLayout::ALL`]; `None` if under that layout the
    /// messages do not belong to the application.
    pub operation: [Option<MpiOperation>; TagLayout::ALL.len()],
}

impl MpiClass {
    /// The class of a message.
    #[must_use]
    pub fn of(message: &MpiMessage) -> Self {
        let operation = TagLayout::ALL
            .map(|layout| message.envelope.matching.identity(layout).map(|identity| identity.operation()));
        Self { stack: message.stack, operation }
    }
}

/// A group of processes in which ranks are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Communicator {
    /// `MPI_COMM_WORLD`.
    World,
    /// Another communicator, by its context id. Disjoint communicators may have the same id.
    Context(u32),
}

impl Communicator {
    /// The communicator of an envelope. MPICH's contexts for collective operations are merged with
    /// the point-to-point ones.
    #[must_use]
    pub const fn of(identity: &Identity, layout: TagLayout) -> Self {
        match layout {
            _ if identity.world => Self::World,
            TagLayout::Mpich => Self::Context(identity.context & !1),
            TagLayout::OpenMpi | TagLayout::OpenMpi2 => Self::Context(identity.context),
        }
    }
}

/// Evidence for the library and the sender's rank in the first packets of a connection's messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Votes {
    /// First packets with an envelope, by stack.
    pub enveloped: [u64; LibraryStack::ALL.len()],
    /// First packets of a library without an envelope, by stack.
    pub bare: [u64; LibraryStack::ALL.len()],
    /// Envelopes by stack, tag layout, communicator and the sender's rank in it. At most
    /// [`Votes::MAX_RANKS`] ranks on `MPI_COMM_WORLD` per stack and layout, and as many on all
    /// other communicators together.
    pub ranks: VecMap<(LibraryStack, TagLayout, Communicator, u32), u64>,
    /// Envelopes on `MPI_COMM_WORLD` beyond that limit, by tag layout.
    pub uncounted_ranks: [u64; TagLayout::ALL.len()],
    /// Envelopes with a rank or tag larger than in real use, by tag layout.
    pub implausible: [u64; TagLayout::ALL.len()],
    /// Highest rank in an envelope on any communicator, by tag layout.
    pub highest_rank: [u32; TagLayout::ALL.len()],
    /// Spans of the library's sequence numbers, by communicator. At most
    /// [`Votes::MAX_SEQUENCE_SPANS`] communicators.
    pub sequence_spans: VecMap<u32, SequenceSpan>,
}

/// Messages of one communicator, with the sequence numbers that the library gives to the messages
/// from one process to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequenceSpan {
    /// Lowest unwrapped number; the first observed number is below 65 536.
    pub first: i64,
    /// Highest unwrapped number; a 16-bit number is unwrapped relative to the highest one before.
    pub last: i64,
    /// Observed messages.
    pub messages: u64,
}

impl SequenceSpan {
    fn one(number: i64) -> Self {
        Self { first: number, last: number, messages: 1 }
    }

    /// Adds a span of later messages, which was unwrapped separately.
    fn add(&mut self, later: Self) {
        let nearest = self.last + i64::from((later.first as u16).wrapping_sub(self.last as u16).cast_signed());
        let by = nearest - later.first;
        self.first = self.first.min(later.first + by);
        self.last = self.last.max(later.last + by);
        self.messages += later.messages;
    }
}

/// MPI results of a connection.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MpiTotals {
    /// Messages and MPI bytes by class.
    pub sums: VecMap<MpiClass, MpiSums>,
    /// Evidence for library and rank.
    pub votes: Votes,
    /// Their sizes by class.
    pub sizes: Sizes<MpiClass>,
    /// Messages by envelope.
    pub streams: Streams,
    /// Shares of NCCL messages that the connection carried, if known.
    pub shares: NcclShares,
}

/// Shares of NCCL messages: a message may be split over several connections, each of which counts
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NcclShares {
    /// Shares that start a message.
    pub first: u64,
    /// Shares that continue a message that starts on another connection.
    pub later: u64,
}

impl AddAssign for NcclShares {
    fn add_assign(&mut self, other: Self) {
        self.first += other.first;
        self.later += other.later;
    }
}

impl MpiTotals {
    fn merge(&mut self, later: Self) {
        self.shares += later.shares;
        for (class, sums) in later.sums {
            *self.sums.or_default(class) += sums;
        }
        self.votes.merge(&later.votes);
        self.sizes.merge(later.sizes);
        self.streams.merge(later.streams);
    }
}

impl Votes {
    /// Votes of a connection without MPI messages.
    const NONE: Self = Self {
        enveloped: [0; _],
        bare: [0; _],
        ranks: VecMap::new(),
        uncounted_ranks: [0; _],
        implausible: [0; _],
        highest_rank: [0; _],
        sequence_spans: VecMap::new(),
    };

    /// Ranks per connection: it belongs to one process, so a few ranks are enough to show a
    /// contradiction.
    pub const MAX_RANKS: usize = 16;
    /// Communicators per connection: programs have few, damaged captures any number.
    pub const MAX_SEQUENCE_SPANS: usize = 64;
    /// Ranks and tags beyond these do not occur in real jobs: they show that the tag layout is
    /// wrong.
    const PLAUSIBLE_RANKS: u32 = 1 << 14;
    const PLAUSIBLE_TAGS: i32 = 1 << 20;

    /// Counts the first packet of a library's message.
    pub fn start(&mut self, stack: LibraryStack, envelope: Option<Envelope>) {
        let Some(envelope) = envelope else {
            self.bare[stack as usize] += 1;
            return;
        };
        self.enveloped[stack as usize] += 1;
        for &layout in tag_layouts(stack) {
            self.envelope(stack, layout, &envelope);
        }
        if let (Some(sequence), MatchFields::Named(identity)) = (envelope.sequence, envelope.matching) {
            self.number(identity.context, SequenceSpan::one(sequence.into()));
        }
    }

    /// True if there were messages on communicators beyond the limit: missing ones among them are
    /// not detected.
    #[must_use]
    pub fn misses_sequence_numbers(&self) -> bool {
        let followed: u64 = self.sequence_spans.iter().map(|(_, numbered)| numbered.messages).sum();
        self.sequence_spans.len() >= Self::MAX_SEQUENCE_SPANS && followed < self.enveloped[LibraryStack::Ob1 as usize]
    }

    fn number(&mut self, context: u32, numbered: SequenceSpan) {
        if let Some(known) = self.sequence_spans.get_mut(&context) {
            known.add(numbered);
        } else if self.sequence_spans.len() < Self::MAX_SEQUENCE_SPANS {
            self.sequence_spans.or_insert_with(context, || numbered);
        }
    }

    fn envelope(&mut self, stack: LibraryStack, layout: TagLayout, envelope: &Envelope) {
        let Some(identity) = envelope.matching.identity(layout) else { return };
        let at = layout as usize;
        self.implausible[at] +=
            u64::from(identity.rank >= Self::PLAUSIBLE_RANKS || identity.tag >= Self::PLAUSIBLE_TAGS);
        self.highest_rank[at] = self.highest_rank[at].max(identity.rank);
        self.vote((stack, layout, Communicator::of(&identity, layout), identity.rank), 1);
    }

    /// Adds the votes of another part of the connection.
    pub fn merge(&mut self, other: &Self) {
        for stack in 0..self.enveloped.len() {
            self.enveloped[stack] += other.enveloped[stack];
            self.bare[stack] += other.bare[stack];
        }
        for (key, count) in other.ranks.iter() {
            self.vote(*key, *count);
        }
        for layout in 0..self.uncounted_ranks.len() {
            self.uncounted_ranks[layout] += other.uncounted_ranks[layout];
            self.implausible[layout] += other.implausible[layout];
            self.highest_rank[layout] = self.highest_rank[layout].max(other.highest_rank[layout]);
        }
        for (context, numbered) in other.sequence_spans.iter() {
            self.number(*context, *numbered);
        }
    }

    /// Envelopes by communicator and rank, for one stack and layout.
    pub fn of(&self, stack: LibraryStack, layout: TagLayout) -> impl Iterator<Item = (Communicator, u32, u64)> + '_ {
        self.ranks
            .range((stack, layout, Communicator::World, 0)..=(stack, layout, Communicator::Context(u32::MAX), u32::MAX))
            .map(|(&(_, _, communicator, rank), &count)| (communicator, rank, count))
    }

    /// Envelopes on `MPI_COMM_WORLD` by rank, for one stack and layout.
    pub fn world(&self, stack: LibraryStack, layout: TagLayout) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.of(stack, layout)
            .take_while(|(communicator, ..)| *communicator == Communicator::World)
            .map(|(_, rank, count)| (rank, count))
    }

    fn vote(&mut self, key: (LibraryStack, TagLayout, Communicator, u32), count: u64) {
        if let Some(votes) = self.ranks.get_mut(&key) {
            *votes += count;
            return;
        }
        // A wrong tag layout gives any number of ranks and contexts, which must not displace those
        // of the right one.
        let (stack, layout, communicator, _) = key;
        let is_world = communicator == Communicator::World;
        let held = self.of(stack, layout).filter(|(other, ..)| (*other == Communicator::World) == is_world).count();
        if held < Self::MAX_RANKS {
            *self.ranks.or_default(key) = count;
        } else if is_world {
            self.uncounted_ranks[layout as usize] += count;
        }
    }
}

/// Counts of incomplete messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingMessages {
    /// MPI messages with a known start and an unknown length.
    pub mpi_incomplete: u64,
    /// MPI messages with a captured rank, but without tag or length.
    pub mpi_truncated: u64,
    /// Packets by [`TruncatedHeader`] that were captured too short to show whether they are part of a
    /// library's message.
    pub truncated_headers: [u64; TruncatedHeader::COUNT],
    /// Transport messages with missing packets.
    pub with_gaps: u64,
    /// Transport messages with a missing first packet.
    pub without_start: u64,
    /// Messages that ibscope stopped tracking before their end, because too many were incomplete at
    /// a time.
    pub evicted: u64,
}

/// Packet that was captured without the header that may show a message of a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TruncatedHeader {
    /// First packet of a SEND, or datagram.
    Send,
    /// First packet of an RDMA WRITE, which carries envelopes of some libraries only.
    Write,
    /// Last packet of an RDMA WRITE, without its immediate data, which end a message of NCCL.
    Immediate,
}

impl TruncatedHeader {
    /// Number of kinds.
    pub const COUNT: usize = 3;
}

impl MissingMessages {
    /// Packets that may belong to a message, and were captured too short to show it or its length.
    #[must_use]
    pub fn truncated_packets(&self) -> u64 {
        self.mpi_truncated + self.truncated_headers.iter().sum::<u64>()
    }

    /// Packets that may start or end a message of this library, and were captured too short to show it.
    #[must_use]
    pub const fn truncated_headers_of(&self, stack: LibraryStack) -> u64 {
        let [sends, writes, immediate] = self.truncated_headers;
        match stack {
            LibraryStack::Ob1 | LibraryStack::Mvapich2 => sends + writes,
            // The data of NCCL's messages have no envelope.
            LibraryStack::Nccl => immediate,
            LibraryStack::UcxVerbs | LibraryStack::UcxMlx5 | LibraryStack::UcxUd | LibraryStack::Rxm => sends,
        }
    }
}

impl AddAssign for MissingMessages {
    fn add_assign(&mut self, other: Self) {
        self.mpi_incomplete += other.mpi_incomplete;
        self.mpi_truncated += other.mpi_truncated;
        for (own, other) in self.truncated_headers.iter_mut().zip(other.truncated_headers) {
            *own += other;
        }
        self.with_gaps += other.with_gaps;
        self.without_start += other.without_start;
        self.evicted += other.evicted;
    }
}

/// Largest jump of PSNs that counts as a gap of missing packets. A larger one may also be a new
/// connection on a reused queue pair number.
pub const MAX_HOLE: i64 = 1 << 16;

/// Missing packets of a connection, by sequence numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts about one connection")]
pub struct Continuity {
    /// Request packets, between the first and the last observed one, that were not observed.
    pub missing_requests: u64,
    /// The missing packets are uncertain: READ requests of unknown length precede gaps, or PSNs
    /// jump too far, or an input that does not count contains packets before or after those that
    /// do, or two inputs that follow each other may hold the same packet.
    pub uncertain: bool,
    /// True if READ requests were observed before the path MTU was known, so `expected_responses`
    /// is too low.
    pub guessed_reads: bool,
    /// PSN of the first request.
    pub first_psn: Option<u32>,
    /// Request packets, without retransmissions.
    pub request_packets: u64,
    /// Later observations of these packets: at another port, or retransmitted.
    pub requests_again: u64,
    /// READ responses and atomic acknowledgements that the requests of the connection expect, at
    /// least.
    pub expected_responses: u64,
    /// READ responses and atomic acknowledgements, without retransmissions.
    pub response_packets: u64,
    /// Later observations of these packets.
    pub responses_again: u64,
    /// Latest message sequence number in the ACKs of this connection: the number of request
    /// messages of the other direction that its receiver has completed since the connection was set
    /// up (AETH, InfiniBand Architecture 9.7.5).
    pub last_msn: Option<u32>,
    /// The first request was observed again a second or more later: the queue pair may serve a second
    /// connection, or these are mirror copies of a port with another clock.
    pub restarted: bool,
    /// Missing datagrams by the library's own sequence numbers; `None` without such numbers.
    pub missing_datagrams: Option<u64>,
    /// Datagrams before the first one of the capture, by the same numbers.
    pub datagrams_before: u64,
    /// PSN of the last request; the last PSN of its responses for a READ.
    pub last_request: Option<u32>,
    /// PSN of the last request that asks for a response; for a READ, the last PSN of its responses.
    pub last_asking: Option<u32>,
    /// PSNs of the last ACK and the last response of this connection.
    pub last_responses: [Option<u32>; 2],
    /// Requests that ask for an ACK.
    pub ack_requests: PsnDigest,
    /// The number of these requests.
    pub asking_requests: u64,
    /// ACKs of this connection, without NAKs.
    pub acks: PsnDigest,
    /// NAKs of this connection, PSN sequence error, about requests that the input had observed
    /// once, and about requests that it had not observed.
    pub naks_observed_once: u64,
    /// See [`Self::naks_observed_once`].
    pub naks_unobserved: u64,
    /// Packets known to be lost on the fabric: observed at the sender's port and rejected as
    /// missing by the receiver.
    pub lost_on_fabric: u64,
    /// The inputs that count hold every packet twice: they have two observation points.
    pub is_observed_twice: bool,
    /// Inputs that do not count observed the connection too: they may hold packets that the others
    /// miss.
    pub is_in_other_inputs: bool,
    /// Inputs that hold packets of the connection. Set when the inputs are combined.
    #[serde(skip)]
    pub held_by: InputSet,
    /// The ledgers overflowed.
    pub has_overflowed: bool,
    /// Packets repeat as neither one nor two observation points explain, and not all equally often. Set
    /// when the inputs are combined.
    #[serde(skip)]
    pub has_unclear_copies: bool,
    /// The PSNs of all packets, each once, by role. Only with several inputs, which it compares.
    pub packets: PsnDigest,
    /// The PSNs of all further observations. Likewise.
    pub later_packets: PsnDigest,
    /// Distances between the PSNs of requests.
    pub psn_steps: PsnSteps,
    /// Packets have a wrong ICRC, and others of the same port in the same input have a right one: they
    /// were damaged or changed, so their headers and contents prove nothing. Set when the inputs are
    /// combined.
    #[serde(skip)]
    pub has_damaged: bool,
}

/// Whether any of some packets had a right ICRC, and whether any had a wrong one. In one byte, because
/// each tracked connection has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IcrcsSeen(u8);

impl IcrcsSeen {
    /// Adds a packet; neither is true if its ICRC was not checked.
    #[inline]
    pub const fn add(&mut self, is_right: bool, is_wrong: bool) {
        self.0 |= is_right as u8 | (is_wrong as u8) << 1;
    }

    /// True if at least one was right.
    #[must_use]
    pub const fn has_right(self) -> bool {
        self.0 & 1 != 0
    }

    /// True if at least one was wrong.
    #[must_use]
    pub const fn has_wrong(self) -> bool {
        self.0 & 2 != 0
    }
}

/// Second observations of requests. At the receiver's port, a request comes before its ACK.
///
/// Each tracked connection has one, so it takes two bytes: both counts are halved when one exceeds 255.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyOrder {
    /// Second observations of requests.
    copies: u8,
    /// Those that were recorded after the ACK of the request.
    after_ack: u8,
}

impl CopyOrder {
    /// So many second observations after the ACK show late copies, if they are at least one in
    /// [`Self::LATE_RATIO`] of all. Single records of a mirror may exchange places.
    const ENOUGH_LATE: u8 = 4;
    const LATE_RATIO: u16 = 4;

    /// The second observation of one request.
    #[must_use]
    pub const fn of(is_after_ack: bool) -> Self {
        Self { copies: 1, after_ack: is_after_ack as u8 }
    }

    /// True if a request was recorded after its ACK.
    #[must_use]
    pub const fn has_late(self) -> bool {
        self.after_ack > 0
    }

    /// True if the second observations are late: the clocks of two ports differ by more than a response
    /// takes, or a device delays the copies.
    #[must_use]
    pub const fn is_late(self) -> bool {
        self.after_ack >= Self::ENOUGH_LATE && self.after_ack as u16 * Self::LATE_RATIO >= self.copies as u16
    }
}

impl AddAssign for CopyOrder {
    fn add_assign(&mut self, other: Self) {
        let sums = [(self.copies, other.copies), (self.after_ack, other.after_ack)];
        let mut sums = sums.map(|(own, other)| u16::from(own) + u16::from(other));
        if sums.iter().any(|sum| *sum > u16::from(u8::MAX)) {
            sums = sums.map(|sum| sum / 2);
        }
        [self.copies, self.after_ack] = sums.map(|sum| sum as u8);
    }
}

/// A set of inputs. All inputs from the 64th on count as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InputSet(u64);

impl InputSet {
    const fn bit(input: u32) -> u64 {
        1 << if input < u64::BITS { input } else { u64::BITS - 1 }
    }

    /// Adds an input.
    pub const fn insert(&mut self, input: u32) {
        self.0 |= Self::bit(input);
    }

    /// True if the set contains the input, or possibly, from the 64th on.
    #[must_use]
    pub const fn may_contain(self, input: u32) -> bool {
        self.0 & Self::bit(input) != 0
    }
}

/// Distances from each observed PSN to the next observed one. Over the last runs of PSNs only, so
/// that they take no memory while a capture is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PsnSteps {
    /// Number of distances.
    pub steps: u64,
    /// Their sum.
    pub sum: u64,
    /// The sum of their squares.
    pub squares: u64,
}

impl PsnSteps {
    /// Adds `steps` times the distance `step`.
    pub const fn add(&mut self, step: u64, steps: u64) {
        self.steps += steps;
        self.sum += step * steps;
        self.squares = self.squares.saturating_add(step.saturating_mul(step).saturating_mul(steps));
    }

    /// Mean length of the gap around a missing PSN; 1 if none is missing.
    #[must_use]
    pub fn gap_packets(self) -> f64 {
        let missing = self.sum.saturating_sub(self.steps);
        if missing == 0 {
            return 1.0;
        }
        let squares = (self.squares.saturating_add(self.steps)).saturating_sub(2 * self.sum);
        (squares as f64 / missing as f64).max(1.0)
    }

    /// Number of gaps; gaps that are much shorter than the longest ones count little.
    #[must_use]
    pub fn gaps(self) -> f64 {
        self.sum.saturating_sub(self.steps) as f64 / self.gap_packets()
    }

    /// Adds those of a later part.
    pub const fn join(&mut self, later: Self) {
        self.steps += later.steps;
        self.sum += later.sum;
        self.squares = self.squares.saturating_add(later.squares);
    }
}

/// Digest of a multiset of PSNs: two with equal digests are equal. A sum, so that the order of the
/// packets does not matter and parts add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PsnDigest(u64);

impl PsnDigest {
    /// Adds a PSN.
    #[inline]
    pub const fn add(&mut self, psn: u32) {
        // The finalizer of splitmix64 spreads PSNs over 64 bits.
        let mixed = (psn as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        self.0 = self.0.wrapping_add(mixed ^ mixed >> 31);
    }

    /// Adds the PSNs of a later part.
    pub const fn join(&mut self, later: Self) {
        self.0 = self.0.wrapping_add(later.0);
    }
}

impl Continuity {
    /// Adds a later part of the same connection. By the PSNs of their requests, requests may be
    /// missing between the parts, or be in both.
    pub fn add(&mut self, later: &Self) {
        let next = self.last_request.zip(later.first_psn);
        let hole = next.map_or(0, |(last, first)| i64::from(Psn::new(first).since(Psn::new(last))) - 1);
        let is_hole = (0..=MAX_HOLE).contains(&hole);
        self.missing_requests += later.missing_requests + if is_hole { hole.cast_unsigned() } else { 0 };
        self.uncertain |= later.uncertain || !is_hole;
        self.guessed_reads |= later.guessed_reads;
        self.first_psn = self.first_psn.or(later.first_psn);
        self.request_packets += later.request_packets;
        self.requests_again += later.requests_again;
        self.expected_responses += later.expected_responses;
        self.response_packets += later.response_packets;
        self.responses_again += later.responses_again;
        self.last_msn = later.last_msn.or(self.last_msn);
        self.restarted |= later.restarted;
        self.has_damaged |= later.has_damaged;
        self.last_request = later.last_request.or(self.last_request);
        self.last_asking = later.last_asking.or(self.last_asking);
        for (own, later) in self.last_responses.iter_mut().zip(later.last_responses) {
            *own = later.or(*own);
        }
        self.ack_requests.join(later.ack_requests);
        self.asking_requests += later.asking_requests;
        self.acks.join(later.acks);
        self.naks_observed_once += later.naks_observed_once;
        self.naks_unobserved += later.naks_unobserved;
        self.lost_on_fabric += later.lost_on_fabric;
        self.is_observed_twice &= later.is_observed_twice;
        self.is_in_other_inputs |= later.is_in_other_inputs;
        self.has_overflowed |= later.has_overflowed;
        self.has_unclear_copies |= later.has_unclear_copies;
        self.psn_steps.join(later.psn_steps);
        self.packets.join(later.packets);
        self.later_packets.join(later.later_packets);
        if self.missing_datagrams.is_none() {
            self.datagrams_before = later.datagrams_before;
        }
        self.missing_datagrams = match (self.missing_datagrams, later.missing_datagrams) {
            (Some(own), Some(others)) => Some(own + others),
            (own, others) => own.or(others),
        };
    }
}

/// Lowest and highest PSN by packet role ([`PacketRole`]).
pub type PsnSpans = [Option<(u32, u32)>; 3];

/// The lowest and the highest number of the datagrams to one endpoint of UCX, by UCX's own numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatagramSpan {
    /// The endpoint of the receiver.
    pub endpoint: u32,
    /// Lowest number, modulo 2^16.
    pub first: u16,
    /// Highest number, modulo 2^16.
    pub last: u16,
    /// Datagrams to the endpoint before the first one.
    pub before: u64,
}

/// The report of the tracker on a connection at the end of its input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConnectionEnd {
    /// The connection.
    pub key: ConnectionKey,
    /// Counts of incomplete messages, if any.
    pub missing: Option<Box<MissingMessages>>,
    /// Gaps that sequence numbers show; the reduction fills in the counts of observed packets.
    pub continuity: Continuity,
    /// Lowest and highest PSN of its packets by role, if the ledger still has the lowest one.
    pub psn_spans: PsnSpans,
    /// Its datagrams by endpoint, if they have numbers of their own.
    pub datagram_spans: Vec<DatagramSpan>,
    /// The ledgers overflowed.
    pub overflowed: bool,
    /// ICRCs of its packets.
    pub icrcs: IcrcsSeen,
    /// Second observations of its requests, in relation to their ACKs; when the inputs are combined, of
    /// all requests between its ports.
    pub copy_order: CopyOrder,
    /// Votes of responses for the sender's queue pair: by PSN, and by returned request numbers. 0 if the
    /// responses come before the requests of this queue pair, and so belong to another one.
    pub partners: [Vec<(Qpn, u64)>; 2],
    /// Health events, if there were any.
    pub health: Option<Box<HealthEvents>>,
    /// Commands of a storage protocol, if it carries some.
    pub storage: Option<Box<StorageSums>>,
}

impl ConnectionEnd {
    /// The end of a connection without events.
    #[must_use]
    pub fn new(key: ConnectionKey) -> Self {
        Self {
            key,
            missing: None,
            continuity: Continuity::default(),
            psn_spans: [None; 3],
            datagram_spans: Vec::new(),
            overflowed: false,
            icrcs: IcrcsSeen::default(),
            copy_order: CopyOrder::default(),
            partners: [Vec::new(), Vec::new()],
            health: None,
            storage: None,
        }
    }
}

/// Packets that some observation points of a connection hold and others do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObservationSums {
    /// Observation points of the connection; 0 if it is not known what they hold together.
    pub points: u64,
    /// A point was not captured all the time in which the connection had packets.
    pub is_partial: bool,
    /// One input has all points: its records do not name theirs, and its losses may hit all.
    pub is_one_input: bool,
    /// Requests, and responses with data.
    pub data: MissingRecords,
    /// ACKs and NAKs.
    pub acks: MissingRecords,
}

/// Packets, and records of them that are missing at an observation point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MissingRecords {
    /// Packets, each PSN once.
    pub first_packets: u64,
    /// Further transmissions of the same PSNs.
    pub later_packets: u64,
    /// Records of the first transmissions that are missing at a point.
    pub first_missing: u64,
    /// Records of further transmissions that are missing at a point.
    pub later_missing: u64,
}

impl MissingRecords {
    /// All missing records.
    #[must_use]
    pub const fn missing(&self) -> u64 {
        self.first_missing + self.later_missing
    }
}

/// Sums of one connection over all inputs, without mirror copies. Its library is not detected yet.
#[derive(Clone, Debug)]
pub struct ConnectionTotals {
    /// The connection.
    pub key: ConnectionKey,
    /// Time of its first and last packet, nanoseconds since the epoch.
    pub times_ns: (i64, i64),
    /// Sums without the MPI columns.
    pub traffic: Traffic,
    /// Sums of all observations: the samples, if the capture is sampled.
    pub sampled: SampledSums,
    /// Retransmissions.
    pub retransmissions: RetransmissionSums,
    /// Other health counts.
    pub health: BriefHealth,
    /// First packets of messages that belong to no known library.
    pub unknown_starts: u64,
    /// First packets of messages that match an upper-layer protocol, if any.
    pub upper_layers: Option<Box<UpperLayerVotes>>,
    /// Its operations and the sizes of its messages.
    pub operations: OperationMix,
    /// MPI results, if any.
    pub mpi: Option<Box<MpiTotals>>,
    /// Commands of a storage protocol, if it carries some.
    pub storage: Option<Box<StorageSums>>,
    /// Counts of incomplete messages, if any.
    pub missing: Option<Box<MissingMessages>>,
    /// Missing packets, by sequence numbers.
    pub continuity: Continuity,
    /// Packets that not all of its observation points hold; `None` with one point.
    pub observations: Option<Box<ObservationSums>>,
    /// RDMA WRITEs and READs within the traffic.
    pub rdma: RdmaSums,
    /// Packets by path fields.
    pub paths: ConnectionPaths,
    /// Indices of the inputs that these sums come from, in time order; usually one.
    pub inputs: SmallVec<[u32; 2]>,
    /// Votes for the sender's queue pair, which the packets do not carry: responses that are
    /// consistent with requests to it. 0 counts against it, see [`ConnectionEnd::partners`].
    pub partners: VecMap<Qpn, u64>,
    /// The same votes from replies that return a request number.
    pub echoes: VecMap<Qpn, u64>,
    /// Times between packets, with the detection that they require.
    pub latencies: VecMap<(Option<RequiredDetection>, TimingKey), Recorder>,
    /// Sizes of packets and messages.
    pub sizes: VecMap<(SizeCategory, SizeClass), SizeSums>,
    /// Time series of response times, unsorted.
    pub time_bins: Vec<TimeBin>,
    /// Time series of these sums; entries of one bin are adjacent.
    pub bins: Box<PackedBins<BinSums>>,
}

/// The next larger blocks of the allocator have 896 bytes, and there may be a million of these.
const _: () = assert!(size_of::<ConnectionTotals>() <= 768);

impl ConnectionTotals {
    /// Evidence for library and rank.
    #[must_use]
    pub fn votes(&self) -> &Votes {
        static NONE: Votes = Votes::NONE;
        self.mpi.as_ref().map_or(&NONE, |mpi| &mpi.votes)
    }

    /// Number of first packets of messages that were classified.
    #[must_use]
    pub fn starts(&self) -> u64 {
        let votes = self.votes();
        self.unknown_starts + votes.enveloped.iter().chain(&votes.bare).sum::<u64>()
    }

    /// Adds the MPI results of a later input.
    pub fn merge_mpi(&mut self, later: Option<Box<MpiTotals>>) {
        match (&mut self.mpi, later) {
            (Some(mpi), Some(later)) => mpi.merge(*later),
            (None, later) => self.mpi = later,
            (Some(_), None) => {}
        }
    }
}

/// Minimum ratio between the votes of the best candidate and the next.
const CLEAR_RATIO: u64 = 2;

/// The candidate with at least twice as many votes as the next one.
pub fn clear_favorite<T: Copy + Ord>(votes: impl Iterator<Item = (T, u64)> + Clone) -> Option<T> {
    let (best, most) = votes.clone().max_by_key(|&(candidate, count)| (count, std::cmp::Reverse(candidate)))?;
    let next = votes.filter(|(candidate, _)| *candidate != best).map(|(_, count)| count).max().unwrap_or(0);
    (most >= next.saturating_mul(CLEAR_RATIO).max(1)).then_some(best)
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct QueuePair {
    /// The port.
    pub endpoint: Endpoint,
    /// Its queue pair number.
    pub qpn: Qpn,
}

/// A wire-up message of UCX: the queue pairs of a worker (process).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WorkerWireup {
    /// Sender.
    pub src: Endpoint,
    /// Receiver.
    pub dst: Endpoint,
    /// Id of the sender's worker.
    pub worker: u64,
    /// The sender's UCX endpoint.
    pub sender_endpoint: u64,
    /// The receiver's UCX endpoint; 0 in a wire-up request.
    pub receiver_endpoint: u64,
    /// The sender's datagram queue pair, if the message came as a datagram.
    pub datagram_qp: Option<Qpn>,
    /// Address of the sender's worker, which contains its queue pair numbers.
    pub address: Vec<u8>,
}

/// A datagram in which an MPI library gives the identity and queue pairs of its process to another
/// one: Open MPI's `udcm` and MVAPICH2's connection messages.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MpiConnectionMessage {
    /// The library.
    pub stack: LibraryStack,
    /// Datagram queue pair of the sender.
    pub from: QueuePair,
    /// Datagram queue pair of the receiver.
    pub to: QueuePair,
    /// Distinguishes connection messages between the same two processes; equal in both directions
    /// if the library has such a number, else 0.
    pub number: u32,
    /// The sender's rank in `MPI_COMM_WORLD`, if given.
    pub world_rank: Option<u32>,
    /// The library's number of the job, if given.
    pub job: Option<u32>,
    /// The sender's queue pairs for this connection, in the order of those in the reply.
    pub queue_pairs: Vec<Qpn>,
}

/// The clear-to-send elements that one queue pair of an NCCL connection carries, from the receiver
/// of data to the sender.
///
/// The elements of one connection alternate between the devices of the receiver. So a connection
/// has one such queue per device, perhaps between other ports. All elements lie in one ring in the
/// sender's memory, with disjoint indices.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CtsQueue {
    /// The receiver's port.
    pub from: Endpoint,
    /// The sender's queue pair.
    pub to: QueuePair,
    /// Index of one element; indices start at 1.
    pub index: u64,
    /// Address of that element in the sender's memory.
    pub address: u64,
    /// Layout of the elements.
    pub release: Release,
    /// Greatest common divisor of the distances between the indices; 0 if there was only one.
    pub step: u64,
    /// Keys of one memory region of the receiver, by device.
    pub r_keys: Vec<u32>,
    /// Address and length of some buffers that the elements name, if the receiver has several
    /// devices.
    pub memory: Vec<(u64, u64)>,
    /// Paths that carry the data for these elements, or for those of the same connection through
    /// other devices.
    pub paths: Vec<CtsPath>,
}

/// A queue pair of the receiver, at the port of the [`CtsQueue`], that carries data.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CtsPath {
    /// Its queue pair number.
    pub qpn: Qpn,
    /// Address and length of some shares, if none of them matches an element observed at this port.
    pub unmatched: Vec<(u64, u64)>,
}

/// Evidence about processes from NCCL's elements.
#[derive(Clone, Debug, Default)]
pub struct NcclProcesses {
    /// Pairs of queue pairs that belong to one process.
    pub same: Vec<SameProcess>,
    /// NCCL release by queue pair that sends or receives data. A process has one release.
    pub releases: BTreeMap<QueuePair, Release>,
    /// Address of a ring element, by queue pair that sends data.
    pub rings: BTreeMap<QueuePair, u64>,
    /// Queue pairs that send data, each with another one of the same port whose ring has the same
    /// address.
    pub overlapping: BTreeMap<QueuePair, QueuePair>,
}

/// Two queue pairs, perhaps at different ports, of one process: both were used for memory or for a
/// ring of elements that only one process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SameProcess {
    /// One queue pair.
    pub a: QueuePair,
    /// The other queue pair.
    pub b: QueuePair,
    /// They share one ring of elements, so they were in use at the same time, even if their inputs have
    /// different clocks.
    pub shares_ring: bool,
}

/// Sums of one kind of packets or messages of a connection in one bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BinSums {
    /// The kind.
    pub class: BinClass,
    /// The sums; for MPI messages `payload_bytes` holds MPI bytes.
    pub sums: PacketSums,
    /// Messages.
    pub messages: u64,
}

/// Kinds of sums in a bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BinClass {
    /// Packets that are not retransmissions.
    Sent,
    /// Retransmissions.
    Retransmitted,
    /// MPI messages of a class.
    Mpi(MpiClass),
    /// Packets that show congestion or a NAK; they are in `Sent` or `Retransmitted` too.
    Congestion(CongestionEvent),
}

/// Times of one kind and one coarse bucket in one bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeBin {
    /// Number of the bin in which they start: time divided by the bin's width.
    pub bin: i64,
    /// Interval, verb and size class.
    pub key: TimingKey,
    /// Their [`coarse_bucket`](super::histogram::coarse_bucket).
    pub bucket: u16,
    /// Number of times.
    pub count: u32,
}

/// MPI messages and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MpiSums {
    /// Messages.
    pub messages: u64,
    /// MPI bytes.
    pub mpi_bytes: u64,
}

impl AddAssign for MpiSums {
    fn add_assign(&mut self, other: Self) {
        self.messages += other.messages;
        // Lengths come from envelopes: a damaged capture may contain any value.
        self.mpi_bytes = self.mpi_bytes.saturating_add(other.mpi_bytes);
    }
}

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketSums {
    /// Packets.
    pub packets: u64,
    /// Wire bytes: LRH to VCRC, or whole Ethernet frames.
    pub wire_bytes: u64,
    /// InfiniBand payload, without pad and ICRC.
    pub payload_bytes: u64,
}

impl PacketSums {
    /// True if there are no packets.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.packets == 0
    }
}

impl AddAssign for PacketSums {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.wire_bytes += other.wire_bytes;
        // May hold MPI bytes too, which come from envelopes.
        self.payload_bytes = self.payload_bytes.saturating_add(other.payload_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibscope_parsers::mpi::Length;

    #[test]
    fn many_late_copies_keep_their_ratio() {
        for (late, of, is_late) in
            [(3, 3, false), (4, 16, true), (4, 17, false), (5000, 10_000, true), (2000, 10_000, false)]
        {
            let mut order = CopyOrder::default();
            (0..of).for_each(|number| order += CopyOrder::of(number * late % of < late));
            assert_eq!(order.is_late(), is_late, "{late} of {of}: {order:?}");
        }
    }

    /// A message of `ob1` from this rank on this communicator.
    fn start(votes: &mut Votes, rank: u32, context: u32, sequence: u16) {
        let identity = Identity { rank, context, tag: 7, world: context == 0, collective: false };
        let envelope =
            Envelope { matching: MatchFields::Named(identity), length: Length::Explicit(8), sequence: Some(sequence) };
        votes.start(LibraryStack::Ob1, Some(envelope));
    }

    #[test]
    fn ranks_beyond_the_limit_are_counted() {
        for ranks in [Votes::MAX_RANKS as u32, Votes::MAX_RANKS as u32 + 1] {
            let mut votes = Votes::default();
            (0..ranks).for_each(|rank| start(&mut votes, rank, 0, 1));
            let beyond = u64::from(ranks) - Votes::MAX_RANKS as u64;
            for &layout in tag_layouts(LibraryStack::Ob1) {
                assert_eq!(votes.world(LibraryStack::Ob1, layout).count(), Votes::MAX_RANKS);
                assert_eq!(votes.uncounted_ranks[layout as usize], beyond);
            }
        }
    }

    #[test]
    fn messages_on_communicators_beyond_the_limit_are_reported() {
        for communicators in [Votes::MAX_SEQUENCE_SPANS as u32, Votes::MAX_SEQUENCE_SPANS as u32 + 1] {
            let mut votes = Votes::default();
            (0..communicators).for_each(|context| start(&mut votes, 0, context, 1));
            assert_eq!(votes.sequence_spans.len(), Votes::MAX_SEQUENCE_SPANS);
            assert_eq!(votes.misses_sequence_numbers(), communicators as usize > Votes::MAX_SEQUENCE_SPANS);
        }
    }
}
