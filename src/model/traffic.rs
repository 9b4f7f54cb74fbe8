//! Connections, what was seen of them, and the sums over them.

use super::health::{BriefHealth, Observed};
use super::profile::{Repeats, Traffic};
use super::{Claim, ConnectionKey, Few, MpiMessage, RdmaSums, Recorder, SizeOf, Sizes, Streams, TimingKey, Turn};
use ibscope_parsers::mpi::nccl::Release;
use ibscope_parsers::mpi::{Envelope, Form, Identity, Matching, Operation, TagLayout};
use ibscope_parsers::{Endpoint, Qpn};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::hash::Hash;
use std::ops::AddAssign;

/// What the flow stage says of one packet.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Dense number of the packet's connection within its tracker.
    pub connection: u32,
    /// Its turn.
    pub turn: Turn,
    /// How often this packet (same connection, turn and PSN) has been seen in this file, this time included: 1, 2, ...
    pub occurrence: u32,
    /// A transport message starts to count with this packet: Last or Only of SEND and WRITE, READ, atomic and FLUSH
    /// requests, datagrams.
    pub counts_message: bool,
}

/// What the first packet of a transport message showed of an MPI library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// A message of this form, with an envelope or without.
    Recognised(Form, Option<Envelope>),
    /// The same message again, under a new transport number (UCX over UD).
    Repeated,
    /// Nothing that is known.
    Unknown,
}

/// Layouts under which the envelopes of a form can be read: only tags leave a choice.
#[must_use]
pub const fn readings(form: Form) -> &'static [TagLayout] {
    if form.carries_tags() { &TagLayout::ALL } else { &[TagLayout::ALL[0]] }
}

/// MPI messages and their length, told apart by what decides later what they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MpiClass {
    /// Layout of the messages.
    pub form: Form,
    /// Operation that they belong to, by layout of the tag in the order of [`TagLayout::ALL`]; `None`: under that layout they are no
    /// messages of the application.
    pub operation: [Option<Operation>; TagLayout::ALL.len()],
}

impl MpiClass {
    /// The class of a message.
    #[must_use]
    pub fn of(message: &MpiMessage) -> Self {
        let operation = TagLayout::ALL
            .map(|layout| message.envelope.matching.identity(layout).map(|identity| identity.operation()));
        Self { form: message.form, operation }
    }
}

/// A group of processes in which ranks are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Communicator {
    /// `MPI_COMM_WORLD`.
    World,
    /// Another one, by its context id. Disjoint communicators may share one.
    Context(u32),
}

impl Communicator {
    /// The communicator that an envelope names. MPICH's contexts of collective operations are joined with those of the rest.
    #[must_use]
    pub const fn of(identity: &Identity, layout: TagLayout) -> Self {
        match layout {
            _ if identity.world => Self::World,
            TagLayout::Mpich => Self::Context(identity.context & !1),
            TagLayout::OpenMpi | TagLayout::OpenMpi2 => Self::Context(identity.context),
        }
    }
}

/// What the first packets of a connection's messages said of the library and of the sender's rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Votes {
    /// Those with an envelope, by form.
    pub enveloped: [u64; Form::ALL.len()],
    /// Those that belong to a library and carry no envelope, by form.
    pub bare: [u64; Form::ALL.len()],
    /// Envelopes by form, tag layout, communicator and the sender's rank in it. At most [`Votes::MAX_RANKS`] ranks of each form and
    /// layout on `MPI_COMM_WORLD`, and as many on all others together.
    pub ranks: Few<(Form, TagLayout, Communicator, u32), u64>,
    /// Envelopes on `MPI_COMM_WORLD` that found no place in `ranks`, by tag layout.
    pub crowded: [u64; TagLayout::ALL.len()],
    /// Envelopes whose rank or tag is larger than any in real use, by tag layout.
    pub implausible: [u64; TagLayout::ALL.len()],
    /// Highest rank that an envelope named on any communicator, by tag layout.
    pub highest_rank: [u32; TagLayout::ALL.len()],
    /// Messages that the library numbers, by communicator. At most [`Votes::MAX_NUMBERED`] communicators.
    pub numbered: Few<u32, Numbered>,
}

/// Messages of one communicator by the numbers that the library gives to all that one process sends another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbered {
    /// Lowest number; the one that was seen first is below 65 536.
    pub first: i64,
    /// Highest number; those of 16 bits are taken on from the highest before.
    pub last: i64,
    /// Messages seen.
    pub messages: u64,
}

impl Numbered {
    fn one(number: i64) -> Self {
        Self { first: number, last: number, messages: 1 }
    }

    /// Adds messages that came later, by their own count from 0 on.
    fn add(&mut self, later: Self) {
        let nearest = self.last + i64::from((later.first as u16).wrapping_sub(self.last as u16).cast_signed());
        let by = nearest - later.first;
        self.first = self.first.min(later.first + by);
        self.last = self.last.max(later.last + by);
        self.messages += later.messages;
    }
}

/// What the messages of a connection have shown of MPI.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MpiSeen {
    /// Messages and MPI bytes by class.
    pub sums: Few<MpiClass, MpiSums>,
    /// What they said of library and rank.
    pub votes: Votes,
    /// Their sizes by class.
    pub sizes: Sizes<MpiClass>,
    /// Messages by envelope.
    pub streams: Streams,
    /// Which shares of NCCL's messages it has carried, where that is known.
    pub shares: Shares,
}

/// Shares of NCCL's messages: a message may be split over several connections, and each of these counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shares {
    /// Those that begin a message.
    pub first: u64,
    /// Those that continue one that another connection begins.
    pub later: u64,
}

impl AddAssign for Shares {
    fn add_assign(&mut self, other: Self) {
        self.first += other.first;
        self.later += other.later;
    }
}

impl MpiSeen {
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
    /// Of a connection whose messages have shown nothing.
    const NONE: Self = Self {
        enveloped: [0; _],
        bare: [0; _],
        ranks: Few::new(),
        crowded: [0; _],
        implausible: [0; _],
        highest_rank: [0; _],
        numbered: Few::new(),
    };

    /// A connection belongs to one process, so a few ranks are room enough to see that they contradict each other.
    pub const MAX_RANKS: usize = 16;
    /// Programs have a few communicators; those of a broken capture are without number.
    pub const MAX_NUMBERED: usize = 64;
    /// Ranks and tags beyond these are not seen in real jobs: they tell a wrong reading of a tag.
    const PLAUSIBLE_RANKS: u32 = 1 << 14;
    const PLAUSIBLE_TAGS: i32 = 1 << 20;

    /// Counts the first packet of a message of a library.
    pub fn start(&mut self, form: Form, envelope: Option<Envelope>) {
        let Some(envelope) = envelope else {
            self.bare[form as usize] += 1;
            return;
        };
        self.enveloped[form as usize] += 1;
        for &layout in readings(form) {
            self.envelope(form, layout, &envelope);
        }
        if let (Some(sequence), Matching::Named(identity)) = (envelope.sequence, envelope.matching) {
            self.number(identity.context, Numbered::one(sequence.into()));
        }
    }

    /// True where messages of further communicators than are followed were numbered: whether some of them are missing does not
    /// show.
    #[must_use]
    pub fn lacks_numbers(&self) -> bool {
        let followed: u64 = self.numbered.iter().map(|(_, numbered)| numbered.messages).sum();
        self.numbered.len() >= Self::MAX_NUMBERED && followed < self.enveloped[Form::Ob1 as usize]
    }

    fn number(&mut self, context: u32, numbered: Numbered) {
        if let Some(known) = self.numbered.get_mut(&context) {
            known.add(numbered);
        } else if self.numbered.len() < Self::MAX_NUMBERED {
            self.numbered.or_insert_with(context, || numbered);
        }
    }

    fn envelope(&mut self, form: Form, layout: TagLayout, envelope: &Envelope) {
        let Some(identity) = envelope.matching.identity(layout) else { return };
        let at = layout as usize;
        self.implausible[at] +=
            u64::from(identity.rank >= Self::PLAUSIBLE_RANKS || identity.tag >= Self::PLAUSIBLE_TAGS);
        self.highest_rank[at] = self.highest_rank[at].max(identity.rank);
        self.vote((form, layout, Communicator::of(&identity, layout), identity.rank), 1);
    }

    /// Adds what another part of the connection said.
    pub fn merge(&mut self, other: &Self) {
        for form in 0..self.enveloped.len() {
            self.enveloped[form] += other.enveloped[form];
            self.bare[form] += other.bare[form];
        }
        for (key, count) in other.ranks.iter() {
            self.vote(*key, *count);
        }
        for layout in 0..self.crowded.len() {
            self.crowded[layout] += other.crowded[layout];
            self.implausible[layout] += other.implausible[layout];
            self.highest_rank[layout] = self.highest_rank[layout].max(other.highest_rank[layout]);
        }
        for (context, numbered) in other.numbered.iter() {
            self.number(*context, *numbered);
        }
    }

    /// Envelopes by communicator and rank, of one form under one layout.
    pub fn of(&self, form: Form, layout: TagLayout) -> impl Iterator<Item = (Communicator, u32, u64)> + '_ {
        self.ranks
            .range((form, layout, Communicator::World, 0)..=(form, layout, Communicator::Context(u32::MAX), u32::MAX))
            .map(|(&(_, _, communicator, rank), &count)| (communicator, rank, count))
    }

    /// Envelopes on `MPI_COMM_WORLD` by rank, of one form under one layout.
    pub fn world(&self, form: Form, layout: TagLayout) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.of(form, layout)
            .take_while(|(communicator, ..)| *communicator == Communicator::World)
            .map(|(_, rank, count)| (rank, count))
    }

    fn vote(&mut self, key: (Form, TagLayout, Communicator, u32), count: u64) {
        if let Some(votes) = self.ranks.get_mut(&key) {
            *votes += count;
            return;
        }
        // The wrong reading of a tag gives any number of ranks and contexts: they must not crowd out those of the right one.
        let (form, layout, communicator, _) = key;
        let is_world = communicator == Communicator::World;
        let held = self.of(form, layout).filter(|(other, ..)| (*other == Communicator::World) == is_world).count();
        if held < Self::MAX_RANKS {
            *self.ranks.or_default(key) = count;
        } else if is_world {
            self.crowded[layout as usize] += count;
        }
    }
}

/// Messages of which something is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// MPI messages that were begun and whose length is not known.
    pub mpi_incomplete: u64,
    /// MPI messages whose rank was captured and whose tag or length was not.
    pub mpi_cut: u64,
    /// Transport messages of which packets are missing.
    pub with_gaps: u64,
    /// Those of them whose first packet is missing.
    pub without_start: u64,
    /// Messages given up because too many were open.
    pub evicted: u64,
}

impl AddAssign for Missing {
    fn add_assign(&mut self, other: Self) {
        self.mpi_incomplete += other.mpi_incomplete;
        self.mpi_cut += other.mpi_cut;
        self.with_gaps += other.with_gaps;
        self.without_start += other.without_start;
        self.evicted += other.evicted;
    }
}

/// What sequence numbers show of packets that a capture does not hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Continuity {
    /// Request packets between the first and the last one that were never seen.
    pub missing_requests: u64,
    /// READ requests whose length in packets is unknown stand before some of the holes: these may be none. Or PSNs jump so far
    /// that it is unknown what lies between. Or an input that does not count holds packets before or after those that do.
    pub uncertain: bool,
    /// PSN of the first request.
    pub first_psn: Option<u32>,
    /// Request packets, each once.
    pub request_packets: u64,
    /// READ response packets that the connection's READ requests ask for, at least.
    pub asked_packets: u64,
    /// READ responses and atomic acknowledgements, each once.
    pub response_packets: u64,
    /// Latest message sequence number in the acknowledgements on this connection: so many request messages of the
    /// other direction has its receiver completed since the connection exists (AETH, InfiniBand Architecture 9.7.5).
    pub last_msn: Option<u32>,
    /// The first request came again long after it was acknowledged: the queue pair number serves a second connection.
    pub restarted: bool,
    /// Datagrams that the library's own numbers show to be missing; `None` where there are no such numbers.
    pub missing_datagrams: Option<u64>,
    /// Datagrams before the first of the capture, by the same numbers.
    pub datagrams_before: u64,
}

impl Continuity {
    /// Adds a later part of the same connection.
    pub fn add(&mut self, later: &Self) {
        self.missing_requests += later.missing_requests;
        self.uncertain |= later.uncertain;
        self.first_psn = self.first_psn.or(later.first_psn);
        self.request_packets += later.request_packets;
        self.asked_packets += later.asked_packets;
        self.response_packets += later.response_packets;
        self.last_msn = later.last_msn.or(self.last_msn);
        self.restarted |= later.restarted;
        if self.missing_datagrams.is_none() {
            self.datagrams_before = later.datagrams_before;
        }
        self.missing_datagrams = match (self.missing_datagrams, later.missing_datagrams) {
            (Some(own), Some(others)) => Some(own + others),
            (own, others) => own.or(others),
        };
    }
}

/// What the tracker reports of a connection at the end of its input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConnectionEnd {
    /// The connection.
    pub key: ConnectionKey,
    /// Messages of which packets are missing.
    pub missing: Missing,
    /// Gaps that sequence numbers show; the reduction fills in the counts of observed packets.
    pub continuity: Continuity,
    /// The ledgers overflowed.
    pub overflowed: bool,
    /// Votes of responses for the sender's queue pair: by PSN, and by repeated request numbers.
    pub partners: [Vec<(Qpn, u64)>; 2],
    /// Health events, if there were any.
    pub health: Option<Box<Observed>>,
}

impl ConnectionEnd {
    /// The end of a connection of which nothing is known but its packets.
    #[must_use]
    pub fn new(key: ConnectionKey) -> Self {
        Self {
            key,
            missing: Missing::default(),
            continuity: Continuity::default(),
            overflowed: false,
            partners: [Vec::new(), Vec::new()],
            health: None,
        }
    }
}

/// The sums of one connection over all inputs, without mirror copies; the library is not yet known.
#[derive(Clone, Debug)]
pub struct ConnectionTotals {
    /// The connection.
    pub key: ConnectionKey,
    /// Time of its first and last packet, nanoseconds since the epoch.
    pub times_ns: (i64, i64),
    /// Sums without the MPI columns.
    pub traffic: Traffic,
    /// What was repeated.
    pub repeats: Repeats,
    /// What else went wrong.
    pub health: BriefHealth,
    /// First packets of messages that are of no library.
    pub unknown_starts: u64,
    /// What its messages have shown of MPI, if anything.
    pub mpi: Option<Box<MpiSeen>>,
    /// Messages of which something is missing, if any.
    pub missing: Option<Box<Missing>>,
    /// What sequence numbers show to be missing.
    pub continuity: Continuity,
    /// RDMA WRITEs and READs, of the traffic.
    pub rdma: RdmaSums,
    /// Indices of the inputs whose packets these sums are of, in the order of time: one, as a rule.
    pub inputs: SmallVec<[u32; 2]>,
    /// Votes for the sender's queue pair, which the packets do not name: how many answers fit the requests that went to it.
    pub partners: Few<Qpn, u64>,
    /// The same from answers that repeat the number of a request.
    pub echoes: Few<Qpn, u64>,
    /// Times between packets, with what must be believed for them to count.
    pub timings: Few<(Option<Claim>, TimingKey), Recorder>,
    /// Sizes of packets and messages.
    pub sizes: Sizes<SizeOf>,
    /// Those that end with an answer over time, in any order.
    pub time_bins: Vec<TimeBin>,
    /// The same sums over time; those of a bin stand together.
    pub bins: Vec<BinSums>,
}

impl ConnectionTotals {
    /// What its messages said of library and rank.
    #[must_use]
    pub fn votes(&self) -> &Votes {
        static NONE: Votes = Votes::NONE;
        self.mpi.as_ref().map_or(&NONE, |mpi| &mpi.votes)
    }

    /// First packets of messages that were looked at.
    #[must_use]
    pub fn starts(&self) -> u64 {
        let votes = self.votes();
        self.unknown_starts + votes.enveloped.iter().chain(&votes.bare).sum::<u64>()
    }

    /// Adds what a later input has seen of MPI.
    pub fn merge_mpi(&mut self, later: Option<Box<MpiSeen>>) {
        match (&mut self.mpi, later) {
            (Some(mpi), Some(later)) => mpi.merge(*later),
            (None, later) => self.mpi = later,
            (Some(_), None) => {}
        }
    }
}

/// How much better the favourite must be than the next.
const CLEAR: u64 = 2;

/// The candidate with clearly the most votes: twice as many as the next.
pub fn clear_favourite<T: Copy + Ord>(votes: impl Iterator<Item = (T, u64)> + Clone) -> Option<T> {
    let (best, most) = votes.clone().max_by_key(|&(candidate, count)| (count, std::cmp::Reverse(candidate)))?;
    let next = votes.filter(|(candidate, _)| *candidate != best).map(|(_, count)| count).max().unwrap_or(0);
    (most >= next.saturating_mul(CLEAR).max(1)).then_some(best)
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct QueuePair {
    /// The port.
    pub endpoint: Endpoint,
    /// The queue pair at it.
    pub qpn: Qpn,
}

/// A wire-up message of UCX: which worker (process) has which queue pairs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Wireup {
    /// Sender.
    pub src: Endpoint,
    /// Receiver.
    pub dst: Endpoint,
    /// Id of the sender's worker.
    pub worker: u64,
    /// The sender's UCX endpoint.
    pub sender_endpoint: u64,
    /// The receiver's UCX endpoint; 0 in requests.
    pub receiver_endpoint: u64,
    /// The sender's datagram queue pair, where it came as a datagram.
    pub datagram_qp: Option<Qpn>,
    /// The address of the sender's worker, which holds its queue pair numbers somewhere.
    pub address: Vec<u8>,
}

/// A datagram in which an MPI library introduces its process to another: Open MPI's `udcm` and MVAPICH2's connection messages.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Introduction {
    /// The library.
    pub form: Form,
    /// Who speaks: its datagram queue pair.
    pub from: QueuePair,
    /// Who is spoken to.
    pub to: QueuePair,
    /// Tells introductions of the same two processes apart, the same in both directions where the library has such a number.
    pub number: u32,
    /// The speaker's rank in `MPI_COMM_WORLD`, where it is said.
    pub world_rank: Option<u32>,
    /// The library's number of the job, where it is said.
    pub job: Option<u32>,
    /// The speaker's queue pairs for this connection; those of the answer belong to them one by one.
    pub queue_pairs: Vec<Qpn>,
}

/// The clear-to-send elements that one queue pair of an NCCL connection carries, from the receiver of data to their sender.
///
/// The elements of one connection take turns over the devices of the receiver, so there is one of these for each of them, perhaps between
/// other ports. They lie in one ring in the sender's memory, and their indices do not overlap.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CtsQueue {
    /// The receiver's port.
    pub from: Endpoint,
    /// The sender's queue pair.
    pub to: QueuePair,
    /// Index of one of the elements, from 1.
    pub index: u64,
    /// Address of that element in the sender's memory.
    pub address: u64,
    /// Layout of the elements.
    pub release: Release,
    /// Greatest common divisor of the distances between the indices of its elements; 0 where there was one.
    pub step: u64,
    /// Keys of one region of the receiver's memory, by device.
    pub r_keys: Vec<u32>,
    /// Address and length of the memory that some of the elements name, where the receiver has several devices.
    pub memory: Vec<(u64, u64)>,
    /// Where the data come that answer these elements, or those of the same connection through other devices.
    pub paths: Vec<CtsPath>,
}

/// A queue pair of the receiver over which data come, at the port of the [`CtsQueue`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CtsPath {
    /// Its number.
    pub qpn: Qpn,
    /// Address and length of some of what was written, where none of it answers an element that was seen at this port.
    pub unplaced: Vec<(u64, u64)>,
}

/// What the elements of NCCL show of processes.
#[derive(Clone, Debug, Default)]
pub struct NcclProcesses {
    /// Queue pairs of one process.
    pub same: Vec<SameProcess>,
    /// The release whose elements ask for the data that a queue pair sends, or receives. A process has one.
    pub releases: BTreeMap<QueuePair, Release>,
    /// An address in the ring of a queue pair that sends data.
    pub rings: BTreeMap<QueuePair, u64>,
    /// Queue pairs that send data, with another one of the same port whose ring lies at the same place.
    pub overlapping: BTreeMap<QueuePair, QueuePair>,
}

/// Two queue pairs, perhaps at different ports, that belong to one process: a library has written to memory that only this process has, or has
/// read the same ring of elements through both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SameProcess {
    /// The one.
    pub a: QueuePair,
    /// The other.
    pub b: QueuePair,
}

/// What some of a connection's packets add up to in one bin.
#[derive(Clone, Copy, Debug)]
pub struct BinSums {
    /// Number of the bin: time divided by the bin's width.
    pub bin: i64,
    /// What they are.
    pub of: BinOf,
    /// Their sums; of MPI messages their bytes stand in `payload_bytes`.
    pub sums: Sums,
    /// Messages.
    pub messages: u64,
}

/// What sums of a bin are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinOf {
    /// Packets that are no repeats.
    Sent,
    /// Packets that were sent before.
    Repeated,
    /// MPI messages of a class.
    Mpi(MpiClass),
}

/// Times of one kind and one coarse bucket in one bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeBin {
    /// Number of the bin in which they begin: time divided by the bin's width.
    pub bin: i64,
    /// What they are of.
    pub key: TimingKey,
    /// Their [`coarse_bucket`](super::histogram::coarse_bucket).
    pub bucket: u16,
    /// How many they are.
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
        // Lengths are what envelopes state: a broken capture may state anything.
        self.mpi_bytes = self.mpi_bytes.saturating_add(other.mpi_bytes);
    }
}

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sums {
    /// Packets.
    pub packets: u64,
    /// LRH to VCRC, or whole Ethernet frames.
    pub wire_bytes: u64,
    /// InfiniBand payload, without pad and ICRC.
    pub payload_bytes: u64,
}

impl Sums {
    /// True when there was no packet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.packets == 0
    }
}

impl AddAssign for Sums {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.wire_bytes += other.wire_bytes;
        // It holds the MPI bytes of a bin too.
        self.payload_bytes = self.payload_bytes.saturating_add(other.payload_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibscope_parsers::mpi::Length;

    /// A message of `ob1` from a rank, on a communicator.
    fn start(votes: &mut Votes, rank: u32, context: u32, sequence: u16) {
        let identity = Identity { rank, context, tag: 7, world: context == 0, collective: false };
        let envelope =
            Envelope { matching: Matching::Named(identity), length: Length::Stated(8), sequence: Some(sequence) };
        votes.start(Form::Ob1, Some(envelope));
    }

    #[test]
    fn ranks_beyond_those_that_are_told_apart_are_counted() {
        for ranks in [Votes::MAX_RANKS as u32, Votes::MAX_RANKS as u32 + 1] {
            let mut votes = Votes::default();
            (0..ranks).for_each(|rank| start(&mut votes, rank, 0, 1));
            let beyond = u64::from(ranks) - Votes::MAX_RANKS as u64;
            for &layout in readings(Form::Ob1) {
                assert_eq!(votes.world(Form::Ob1, layout).count(), Votes::MAX_RANKS);
                assert_eq!(votes.crowded[layout as usize], beyond);
            }
        }
    }

    #[test]
    fn messages_of_communicators_beyond_those_that_are_followed_are_said() {
        for communicators in [Votes::MAX_NUMBERED as u32, Votes::MAX_NUMBERED as u32 + 1] {
            let mut votes = Votes::default();
            (0..communicators).for_each(|context| start(&mut votes, 0, context, 1));
            assert_eq!(votes.numbered.len(), Votes::MAX_NUMBERED);
            assert_eq!(votes.lacks_numbers(), communicators as usize > Votes::MAX_NUMBERED);
        }
    }
}
