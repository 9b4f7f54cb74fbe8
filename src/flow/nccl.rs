//! Measures NCCL messages over verbs: matches the receives that a receiver has posted with the
//! WRITEs that fill them.
//!
//! ```text
//! B -> A  WRITE                      {address, size, keys}, rank of A; index 1, 2, 3 ...   a queue
//! A -> B  WRITE                      a share of the message, at the address or after it    a path
//! A -> B  WRITE with immediate data  a share, nothing, or the lengths of several messages
//! ```
//! No data packet names a process: the clear-to-send elements give the sender's rank, the WRITEs
//! with immediate data give the lengths. A message may be split over several queue pairs, called
//! *paths* here, on one port or on several. Each path carries one WRITE with immediate data per
//! message, which gives the length of the whole message. So every path counts whole messages, and
//! notes whether its shares start messages or continue them. `rails` decides which paths count,
//! when all paths are known.
//!
//! A path belongs to one queue and takes its receives in index order. Half of the receives, or all,
//! may be posted through another port, and a capture may miss some. Then the memory key identifies
//! the queue, and the rank is the one that all its elements have named.

use super::assembly::{Transport, join_times};
use crate::model::traffic::CtsPath;
use crate::model::{ConnectionKey, CtsQueue, HashMap, NcclReceive, QueuePair};
use ibscope_parsers::Endpoint;
use ibscope_parsers::ib::Reth;
use ibscope_parsers::mpi::nccl::{self, Immediate, Release};
use ibscope_parsers::mpi::{Envelope, Identity, Length, MatchFields};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Receives kept per queue: no connection has more requests in flight (`NCCL_NET_MAX_REQUESTS`).
const MAX_RECEIVES: usize = 32;
/// Receives kept per queue once all queues together hold more than [`MANY_RECEIVES`].
const FEW_RECEIVES: usize = 4;
/// Number of receives in all queues above which each queue keeps only [`FEW_RECEIVES`].
const MANY_RECEIVES: usize = 1 << 14;
/// Messages of a path that may wait for their queue or their length.
const MAX_WAITING: usize = 32;
/// WRITEs of a path for one message, except the last one.
const MAX_CHAIN: usize = 8;
/// Memory keys kept per queue: a connection has one or two regions, and one per buffer that its
/// user has registered.
const MAX_KEYS: usize = 64;
/// Buffers of a queue, and unmatched shares of a path, that are kept as evidence.
const MAX_EVIDENCE: usize = 32;
/// Distance that an index may have from the highest one of its queue if its address does not
/// confirm it. Packets may be lost before the capture and retransmitted.
const WINDOW: u64 = 64;
/// PSNs have 24 bits.
const PSN_MASK: u32 = 0xFF_FFFF;

type DataDirection = (Endpoint, Endpoint);

/// NCCL traffic between some pairs of endpoints.
#[derive(Debug, Default)]
pub(super) struct Nccl {
    /// By number of the connection that carries the clear-to-send elements.
    queues: HashMap<u32, CtsQueueState>,
    /// Queues by the direction of their data.
    by_direction: HashMap<DataDirection, Vec<u32>>,
    /// By number of the connection that carries the data. Only data that is, or may be, NCCL's.
    paths: HashMap<u32, DataPath>,
    /// Number of receives in all queues.
    receive_count: usize,
}

/// Clear-to-send elements that came over one connection.
#[derive(Debug)]
struct CtsQueueState {
    release: Release,
    highest_index: u64,
    /// Index of one element and its address in the sender's memory.
    slot: (u64, u64),
    /// Address of the ring, the same for all queues of a connection.
    ring: u64,
    /// Greatest common divisor of the distances between the indices.
    step: u64,
    /// Keys of the first element, by device of the receiver.
    r_keys: RKeys,
    /// Keys of all elements, up to [`MAX_KEYS`].
    known_keys: Vec<u32>,
    /// Address and length of the first buffers, if the receiver has several devices.
    evidence: Vec<(u64, u64)>,
    /// Sorted by index.
    receives: VecDeque<Receive>,
    ranks: QueueRanks,
    immediate_format: Option<Immediate>,
    /// Largest number of paths observed for one message without an explicit length.
    width: usize,
}

type RKeys = SmallVec<[u32; 2]>;

/// A receive, or several that were posted together.
#[derive(Debug)]
struct Receive {
    index: u64,
    /// Time of its clear-to-send elements.
    posted_ns: i64,
    r_keys: RKeys,
    buffers: SmallVec<[Buffer; 1]>,
    /// Sums of the WRITEs, for messages without explicit lengths.
    sums: Option<Box<ShareSums>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Buffer {
    address: u64,
    capacity_bytes: u64,
    /// Rank of the sender.
    rank: Option<u32>,
}

impl Buffer {
    const fn overlaps(&self, other: &Self) -> bool {
        self.address < other.address.saturating_add(other.capacity_bytes)
            && other.address < self.address.saturating_add(self.capacity_bytes)
    }
}

/// Messages whose lengths are the sums of their shares.
#[derive(Debug, Default)]
struct ShareSums {
    /// Connections that have carried the last WRITE.
    ended: SmallVec<[u32; 2]>,
    /// The connection that carries first shares.
    first: Option<u32>,
    /// By buffer: the sums, and the end of the furthest share.
    buffers: SmallVec<[(WriteSums, u64); 1]>,
}

/// A queue pair that carries data.
#[derive(Debug, Default)]
struct DataPath {
    queue: Option<u32>,
    /// Whether the last share that matched a receive of the queue was the first of its message.
    /// `None` if no share matched, so that only the memory key identifies the queue.
    is_first: Option<bool>,
    /// Address and length of shares, until one matches a receive.
    evidence: Vec<(u64, u64)>,
    /// The rank of the queue is certain: the path belongs to this queue, or all queues with this
    /// memory key have named the same rank.
    is_one_rank: bool,
    /// Lowest index that the next message may have.
    next_index: u64,
    /// PSN after the last WRITE, if all packets of that were observed.
    next_psn: Option<u32>,
    /// WRITEs since the last one with immediate data.
    chain: SmallVec<[NcclShare; 1]>,
    /// No packet is missing since the last WRITE with immediate data.
    is_whole: bool,
    /// Messages whose queue or length is not known yet.
    waiting: Vec<PathMessage>,
}

/// Ranks that the elements of a queue have named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum QueueRanks {
    #[default]
    Unknown,
    /// Always the same one; `None` if the release gives no rank.
    One(Option<u32>),
    Several,
}

impl QueueRanks {
    fn add(&mut self, rank: Option<u32>) {
        *self = match *self {
            Self::Unknown => Self::One(rank),
            Self::One(known) if known == rank => Self::One(rank),
            Self::One(_) | Self::Several => Self::Several,
        };
    }
}

/// Position in a receive at which a WRITE starts.
#[derive(Clone, Copy, Debug)]
struct ReceivePosition {
    index: u64,
    buffer: usize,
    offset: u64,
}

/// A WRITE of a path and its position.
#[derive(Clone, Copy, Debug)]
struct NcclShare {
    position: Option<ReceivePosition>,
    sums: WriteSums,
}

/// Sums of one or several WRITEs.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteSums {
    /// Number of the connection.
    pub(super) connection: u32,
    /// PSN of the first packet.
    pub(super) psn: u32,
    /// Length in bytes.
    pub(super) length_bytes: u64,
    /// Wire bytes of the packets: LRH to VCRC, or whole Ethernet frames.
    pub(super) wire_bytes: u64,
    /// Number of packets.
    pub(super) packets: u64,
    /// Times of the first and the last packet.
    pub(super) times_ns: (i64, i64),
    /// All packets were observed.
    pub(super) complete: bool,
    /// Other paths carry the rest of the message.
    pub(super) is_part: bool,
    /// [`start_hash`](crate::model::start_hash) of the data.
    start_hash: Option<u32>,
}

impl WriteSums {
    fn of(connection: u32, message: &Transport) -> Self {
        Self {
            connection,
            psn: message.psn,
            length_bytes: message.target.map_or(0, |reth| reth.dma_len.into()),
            wire_bytes: message.wire_bytes,
            packets: message.packets,
            times_ns: message.times_ns,
            complete: message.complete,
            is_part: false,
            start_hash: message.start_hash,
        }
    }

    fn and(self, later: Self) -> Self {
        Self {
            length_bytes: self.length_bytes.saturating_add(later.length_bytes),
            wire_bytes: self.wire_bytes + later.wire_bytes,
            packets: self.packets + later.packets,
            times_ns: join_times(self.times_ns, later.times_ns),
            complete: self.complete && later.complete,
            ..self
        }
    }

    /// These WRITEs as a message of `length_bytes` bytes.
    const fn message(self, length_bytes: u64) -> Self {
        Self { length_bytes, is_part: self.length_bytes < length_bytes, ..self }
    }

    /// Another message in the same packets, which count for the first one.
    const fn none(self) -> Self {
        Self { length_bytes: 0, wire_bytes: 0, packets: 0, ..self }
    }
}

/// A message, or several that were received together, as carried by one path.
#[derive(Debug)]
struct PathMessage {
    /// Immediate data, most significant byte first.
    word: u32,
    /// Shares before the last WRITE.
    chain: SmallVec<[NcclShare; 1]>,
    /// The last WRITE.
    last: NcclShare,
    /// The first packet of the last WRITE was observed.
    is_started: bool,
    /// All WRITEs of the message were observed.
    is_whole: bool,
    /// Lengths in the payload of the last WRITE.
    lengths: SmallVec<[u32; 2]>,
    /// The matching receive, if there is one.
    receive: Option<MatchedReceive>,
    /// For a message without data, which matches no receive, the one that follows that of the
    /// message before it.
    next_receive: Option<MatchedReceive>,
}

/// The receive that a path's messages fill.
#[derive(Debug)]
struct MatchedReceive {
    index: u64,
    posted_ns: i64,
    buffers: SmallVec<[Buffer; 1]>,
}

impl MatchedReceive {
    /// The receive of message number `at`, whose sums are `written`.
    fn of_message(&self, ring: u64, at: usize, written: &WriteSums) -> Option<NcclReceive> {
        let buffer = self.buffers.get(at)?;
        Some(NcclReceive {
            ring,
            index: self.index,
            posted_ns: self.posted_ns,
            buffer_address: buffer.address,
            buffer_bytes: buffer.capacity_bytes,
            data_hash: written.start_hash,
        })
    }
}

/// Lengths of the messages that a last WRITE ends.
enum MessageLengths {
    /// One length per message, in bytes.
    Stated(SmallVec<[u64; 1]>),
    /// The sum of their shares.
    Sum,
    /// Unknown until a later message shows the format.
    Wait,
    /// Unknown.
    Unknown,
}

/// A message that has ended. It has no envelope if the release gives no rank.
#[derive(Debug)]
pub(super) struct NcclMessage {
    pub(super) envelope: Option<Envelope>,
    pub(super) sums: WriteSums,
    pub(super) receive: Option<NcclReceive>,
}

/// Result of an NCCL packet.
#[derive(Debug, Default)]
pub(super) struct NcclOutcome {
    /// The WRITE is NCCL data, or may be.
    pub(super) is_data: bool,
    /// Shares by connection number: true for a share that starts its message.
    pub(super) shares: SmallVec<[(u32, bool); 1]>,
    /// Messages that have ended.
    pub(super) ended: Vec<NcclMessage>,
    /// Messages of unknown sender or length: their connections, and their senders if known.
    pub(super) unknown: Vec<(u32, Option<u32>)>,
    /// Messages that may not be NCCL's, because the owner of the memory is unknown.
    pub(super) others: Vec<WriteSums>,
}

impl Nccl {
    /// Takes clear-to-send elements that `src`, the receiver of the data, sent to `dst`, the sender
    /// of the data. `None` if the index is too far from the earlier ones: then these bytes are no
    /// clear-to-send elements.
    pub(super) fn clear_to_send(
        &mut self,
        (src, dst): DataDirection,
        (connection, time_ns): (u32, i64),
        payload: &[u8],
        reth: Reth,
    ) -> Option<NcclOutcome> {
        let cts = nccl::cts(payload, reth.dma_len)?;
        let queue = self.queues.entry(connection).or_insert_with(|| {
            self.by_direction.entry((dst, src)).or_default().push(connection);
            CtsQueueState::new(&cts, reth.va)
        });
        let is_near = cts.index.abs_diff(queue.highest_index) <= WINDOW;
        if !is_near && !is_one_ring(cts.release, queue.slot, (cts.index, reth.va)) {
            return None;
        }
        let before = queue.receives.len();
        let most = if self.receive_count > MANY_RECEIVES { FEW_RECEIVES } else { MAX_RECEIVES };
        let mut outcome = NcclOutcome::default();
        queue.add(Receive::of(&cts, time_ns), most, &mut outcome);
        self.receive_count = self.receive_count + queue.receives.len() - before;
        Some(outcome)
    }

    /// True if receives were posted for data of this direction.
    pub(super) fn awaits(&self, direction: DataDirection) -> bool {
        !self.by_direction.is_empty() && self.by_direction.contains_key(&direction)
    }

    /// Takes a WRITE from the sender of data to the receiver. `body` is its captured payload, if it
    /// is a single packet.
    pub(super) fn write(
        &mut self,
        direction: DataDirection,
        connection: u32,
        message: &Transport,
        body: &[u8],
    ) -> NcclOutcome {
        let mut outcome = NcclOutcome::default();
        let position = self.receive_position(direction, connection, message);
        let is_bound = self.paths.get(&connection).is_some_and(|path| path.queue.is_some());
        if !is_bound && message.immediate.is_none() {
            return outcome;
        }
        outcome.is_data = true;
        let path = self.paths.entry(connection).or_default();
        path.note_continuity(message);
        let share = NcclShare { position, sums: WriteSums::of(connection, message) };
        match message.immediate {
            None => path.push(share),
            Some(word) => self.end(connection, word, share, (message, body), &mut outcome),
        }
        outcome
    }

    /// Emits the remaining messages at the end of the input.
    pub(super) fn finish(&mut self) -> NcclOutcome {
        let mut outcome = NcclOutcome::default();
        let mut paths: Vec<u32> = self.paths.keys().copied().collect();
        paths.sort_unstable();
        // A message on one path may resolve messages that wait on another path.
        paths.iter().for_each(|connection| self.resolve(*connection, &mut outcome));
        let mut queues: Vec<(&u32, &mut CtsQueueState)> = self.queues.iter_mut().collect();
        queues.sort_unstable_by_key(|(connection, _)| **connection);
        for (_, queue) in queues {
            queue.receives.drain(..).for_each(|receive| receive.end(queue.ring, queue.width, &mut outcome));
        }
        for connection in &paths {
            let Some(path) = self.paths.get_mut(connection) else { continue };
            // Messages that are received together end with their last WRITE, and the WRITEs still
            // in `chain` have had none.
            if path.queue.is_some() {
                outcome.unknown.extend(path.chain.drain(..).map(|_| (*connection, None)));
            }
            for message in path.waiting.drain(..) {
                if path.queue.is_some() {
                    outcome.unknown.push((*connection, None));
                } else {
                    outcome.others.push(message.together());
                }
            }
        }
        self.receive_count = 0;
        outcome
    }

    /// The queues as evidence for grouping. `keys` are the connection keys by number.
    pub(super) fn queues(&self, keys: &[ConnectionKey]) -> Vec<CtsQueue> {
        let mut paths: HashMap<u32, Vec<CtsPath>> = HashMap::default();
        for (connection, path) in &self.paths {
            let Some(queue) = path.queue else { continue };
            let qpn = keys[*connection as usize].dest_qp;
            paths.entry(queue).or_default().push(CtsPath { qpn, unmatched: path.evidence.clone() });
        }
        let as_evidence = |(connection, queue): (&u32, &CtsQueueState)| {
            let ConnectionKey { src, dst, dest_qp, .. } = keys[*connection as usize];
            let mut paths = paths.remove(connection).unwrap_or_default();
            paths.sort_unstable();
            CtsQueue {
                from: src,
                to: QueuePair { endpoint: dst, qpn: dest_qp },
                index: queue.slot.0,
                address: queue.slot.1,
                release: queue.release,
                step: queue.step,
                r_keys: queue.r_keys.to_vec(),
                memory: queue.evidence.clone(),
                paths,
            }
        };
        let mut queues: Vec<CtsQueue> = self.queues.iter().map(as_evidence).collect();
        queues.sort_unstable();
        queues
    }

    /// Finds the receive that a WRITE fills, in the queue of its path. A path without a queue gets
    /// the one with such a receive, or else one whose memory has this key.
    fn receive_position(
        &mut self,
        direction: DataDirection,
        connection: u32,
        message: &Transport,
    ) -> Option<ReceivePosition> {
        let reth = message.target?;
        let path = self.paths.get(&connection);
        let (own, from) =
            path.map_or((None, 0), |path| (path.queue.filter(|_| path.is_first.is_some()), path.next_index));
        let among = match &own {
            Some(number) => std::slice::from_ref(number),
            None => self.by_direction.get(&direction)?,
        };
        let queues = among.iter().filter_map(|number| Some((*number, self.queues.get(number)?)));
        let is_last = message.immediate.is_some();
        // Empty shares do not count: they may point after the message, where others start.
        let mut placed = queues.clone().filter(|_| reth.dma_len > 0);
        let found = placed.find_map(|(number, queue)| Some((number, queue.position(&reth, from, is_last)?)));
        let mut with_key = queues.filter(|(_, queue)| queue.known_keys.contains(&reth.r_key));
        let by_key = with_key.next();
        let is_one_rank = by_key.is_some_and(|(_, queue)| with_key.all(|(_, other)| other.ranks == queue.ranks));
        let number = found.map(|(number, _)| number).or(by_key.map(|(number, _)| number))?;
        let path = self.paths.entry(connection).or_default();
        path.queue = Some(number);
        path.is_one_rank = is_one_rank || found.is_some() || path.is_first.is_some();
        path.note_position(&reth, found.map(|(_, place)| place));
        found.map(|(_, place)| place)
    }

    /// Takes the WRITE that ends a message on its path.
    fn end(
        &mut self,
        connection: u32,
        word: u32,
        last: NcclShare,
        (transport, body): (&Transport, &[u8]),
        outcome: &mut NcclOutcome,
    ) {
        let Some(path) = self.paths.get_mut(&connection) else { return };
        let chain = std::mem::take(&mut path.chain);
        let is_whole = std::mem::replace(&mut path.is_whole, true);
        let place = last.position.or_else(|| chain.iter().rev().find_map(|share| share.position));
        let queue = path.queue.and_then(|number| self.queues.get(&number));
        let receive = place.and_then(|place| queue?.receive(place.index));
        // The receive must have as many buffers as there are WRITEs; otherwise the WRITEs fill
        // another one.
        let receive = receive.filter(|receive| {
            let (writes, most) = (chain.len(), receive.buffers.len());
            writes == most || writes < most && (writes == 0 || !is_whole)
        });
        if let Some(receive) = receive {
            path.next_index = receive.index + 1;
            let places = chain.iter().chain([&last]).filter_map(|share| share.position);
            let own = places.filter(|place| place.index == receive.index);
            outcome.shares.extend(own.map(|place| (connection, place.offset == 0)));
        }
        let dma_bytes = transport.target.map_or(0, |reth| reth.dma_len);
        let is_empty = receive.is_none() && is_whole && chain.is_empty() && dma_bytes == 0;
        let next = queue.filter(|_| is_empty).and_then(|queue| queue.receive(path.next_index));
        let next_receive = next.filter(|receive| receive.buffers.len() == 1).map(Receive::matched);
        // Indices of a path ascend.
        path.next_index += u64::from(next_receive.is_some());
        path.waiting.push(PathMessage {
            word,
            chain,
            last,
            is_started: transport.started,
            is_whole,
            lengths: nccl::lengths(body, dma_bytes).into_iter().flatten().collect(),
            receive: receive.map(Receive::matched),
            next_receive,
        });
        if path.queue.is_some() {
            self.resolve(connection, outcome);
        } else if path.waiting.len() > MAX_WAITING {
            outcome.others.push(path.waiting.remove(0).together());
        }
    }

    /// Emits the messages of a path whose queue and length are known.
    fn resolve(&mut self, connection: u32, outcome: &mut NcclOutcome) {
        let Some(path) = self.paths.get_mut(&connection) else { return };
        let Some(queue) = path.queue.and_then(|number| self.queues.get_mut(&number)) else { return };
        queue.immediate_format =
            queue.immediate_format.or_else(|| path.waiting.iter().find_map(PathMessage::immediate_format));
        let mut left = Vec::new();
        for message in path.waiting.drain(..) {
            let of_queue = match queue.ranks {
                QueueRanks::One(rank) if path.is_one_rank => Some([rank; MAX_CHAIN]),
                QueueRanks::One(_) | QueueRanks::Unknown | QueueRanks::Several => None,
            };
            let of_receive: Option<SmallVec<[Option<u32>; 1]>> =
                message.receive.as_ref().map(|receive| receive.buffers.iter().map(|own| own.rank).collect());
            let count = message.count(queue.immediate_format, queue.release);
            let Some(ranks) = of_receive.as_deref().or(of_queue.as_ref().map(<[_; _]>::as_slice)) else {
                outcome.unknown.extend(std::iter::repeat_n((connection, None), count.unwrap_or(1)));
                continue;
            };
            let unknown = ranks.iter().take(count.unwrap_or(1)).map(|rank| (connection, *rank));
            match message.lengths(count, queue.immediate_format) {
                MessageLengths::Wait => left.push(message),
                MessageLengths::Sum if queue.sum(&message, path.is_first == Some(true)) => {}
                MessageLengths::Sum | MessageLengths::Unknown => outcome.unknown.extend(unknown),
                MessageLengths::Stated(lengths) => {
                    outcome.shares.extend(message.is_empty_share_of(&lengths).then_some((connection, false)));
                    let messages = message.messages(&lengths).into_iter().zip(ranks).enumerate();
                    outcome.ended.extend(messages.map(|(at, (written, rank))| {
                        let receive = message.receive.as_ref().or(message.next_receive.as_ref());
                        let receive = receive.and_then(|receive| receive.of_message(queue.ring, at, &written));
                        NcclMessage::of(*rank, written, receive)
                    }));
                }
            }
        }
        let surplus = left.len().saturating_sub(MAX_WAITING);
        outcome.unknown.extend(left.drain(..surplus).map(|_| (connection, None)));
        path.waiting = left;
    }
}

impl NcclMessage {
    fn of(rank: Option<u32>, written: WriteSums, receive: Option<NcclReceive>) -> Self {
        let envelope = rank.map(|rank| envelope(rank, Length::Explicit(written.length_bytes)));
        Self { envelope, sums: written, receive }
    }
}

/// Envelope of a message from this rank.
pub(super) const fn envelope(rank: u32, length: Length) -> Envelope {
    let identity = Identity { rank, context: 0, tag: 0, world: true, collective: false };
    Envelope { matching: MatchFields::Named(identity), length, sequence: None }
}

impl CtsQueueState {
    fn new(cts: &nccl::Cts<'_>, address: u64) -> Self {
        Self {
            release: cts.release,
            highest_index: cts.index,
            slot: (cts.index, address),
            ring: cts.release.ring_address(cts.index, address),
            step: 0,
            r_keys: cts.elements().next().map(|element| r_keys(&element).collect()).unwrap_or_default(),
            known_keys: Vec::new(),
            evidence: Vec::new(),
            receives: VecDeque::new(),
            ranks: QueueRanks::Unknown,
            immediate_format: None,
            width: 0,
        }
    }

    /// Adds a receive. Ends the receives that it shows to be done, and the oldest ones beyond
    /// `most`.
    fn add(&mut self, receive: Receive, most: usize, outcome: &mut NcclOutcome) {
        self.highest_index = self.highest_index.max(receive.index);
        self.step = gcd(self.step, receive.index.abs_diff(self.slot.0));
        for key in &receive.r_keys {
            if self.known_keys.len() < MAX_KEYS && !self.known_keys.contains(key) {
                self.known_keys.push(*key);
            }
        }
        for Buffer { address, capacity_bytes: room_bytes, rank } in &receive.buffers {
            self.ranks.add(*rank);
            if self.r_keys.len() > 1 && self.evidence.len() < MAX_EVIDENCE {
                self.evidence.push((*address, *room_bytes));
            }
        }
        let has_ended = |other: &Receive| other.index < receive.index && other.is_before(&receive);
        if self.receives.iter().any(has_ended) {
            let (ended, open): (VecDeque<_>, _) = self.receives.drain(..).partition(has_ended);
            self.receives = open;
            ended.into_iter().for_each(|ended| ended.end(self.ring, self.width, outcome));
        }
        let at = self.receives.partition_point(|other| other.index < receive.index);
        if self.receives.get(at).is_none_or(|other| other.index != receive.index) {
            self.receives.insert(at, receive);
        }
        while self.receives.len() > most
            && let Some(receive) = self.receives.pop_front()
        {
            receive.end(self.ring, self.width, outcome);
        }
    }

    fn receive(&self, index: u64) -> Option<&Receive> {
        let at = self.receives.binary_search_by_key(&index, |receive| receive.index).ok()?;
        self.receives.get(at)
    }

    /// Position of a WRITE in the first receive, at this index or later, that the WRITE may fill.
    /// The last WRITE is never matched to a receive of several messages.
    fn position(&self, reth: &Reth, from: u64, is_last: bool) -> Option<ReceivePosition> {
        let candidates = self.receives.iter().filter(|receive| receive.index >= from);
        candidates.filter(|receive| !is_last || receive.buffers.len() == 1).find_map(|receive| receive.position(reth))
    }

    /// Adds the shares of a message to those of other paths. Returns false if the receive is gone.
    fn sum(&mut self, message: &PathMessage, is_first: bool) -> bool {
        let by_number = (self.immediate_format == Some(Immediate::Number)).then(|| u64::from(message.word) + 1);
        let index = message.receive.as_ref().map(|receive| receive.index).or(by_number);
        let Some(receive) = self.receives.iter_mut().find(|receive| Some(receive.index) == index) else { return false };
        let none = (message.last.sums.none(), 0);
        let sums = receive.sums.get_or_insert_with(|| {
            let buffers = SmallVec::from_elem(none, receive.buffers.len());
            Box::new(ShareSums { buffers, ..ShareSums::default() })
        });
        sums.ended.push(message.last.sums.connection);
        if is_first {
            sums.first = Some(message.last.sums.connection);
        }
        self.width = self.width.max(sums.ended.len());
        for NcclShare { position: place, sums: written } in message.shares() {
            let Some(place) = place.filter(|place| place.index == receive.index) else { continue };
            let Some((sum, end)) = sums.buffers.get_mut(place.buffer) else { continue };
            *sum = if sum.packets == 0 { *written } else { sum.and(*written) };
            *end = (*end).max(place.offset.saturating_add(written.length_bytes));
        }
        true
    }
}

/// Keys of an element, by device of the receiver.
fn r_keys(element: &nccl::Element) -> impl Iterator<Item = u32> + use<> {
    element.r_keys.into_iter().filter(|key| *key != 0)
}

impl Receive {
    fn of(cts: &nccl::Cts<'_>, posted_ns: i64) -> Self {
        let buffer = |element: nccl::Element| Buffer {
            address: element.address,
            capacity_bytes: element.size_bytes,
            rank: element.rank,
        };
        Self {
            index: cts.index,
            posted_ns,
            r_keys: cts.elements().flat_map(|element| r_keys(&element)).collect(),
            buffers: cts.elements().map(buffer).collect(),
            sums: None,
        }
    }

    fn matched(&self) -> MatchedReceive {
        MatchedReceive { index: self.index, posted_ns: self.posted_ns, buffers: self.buffers.clone() }
    }

    fn position(&self, reth: &Reth) -> Option<ReceivePosition> {
        let holds = |buffer: &Buffer| reth.va.checked_sub(buffer.address).is_some_and(|at| at < buffer.capacity_bytes);
        let buffer = self.buffers.iter().position(holds).filter(|_| self.r_keys.contains(&reth.r_key))?;
        Some(ReceivePosition { index: self.index, buffer, offset: reth.va - self.buffers[buffer].address })
    }

    /// True if this receive is done when `other` is posted: both share memory, and memory is posted
    /// again after it was filled. The same receive may be observed twice.
    fn is_before(&self, other: &Self) -> bool {
        let overlaps = |own: &Buffer| other.buffers.iter().any(|others| own.overlaps(others));
        self.buffers != other.buffers && self.buffers.iter().any(overlaps)
    }

    /// Ends a receive: emits its messages if their lengths are the sums of their shares. `width` is
    /// the number of paths per message.
    fn end(self, ring: u64, width: usize, outcome: &mut NcclOutcome) {
        let Self { index, posted_ns, r_keys, buffers, sums } = self;
        let Some(sums) = sums else { return };
        // WRITEs over other devices are not observed here.
        let is_whole = sums.ended.len() == width && r_keys.len() == buffers.len();
        let receive = MatchedReceive { index, posted_ns, buffers };
        let path = sums.first.or_else(|| sums.ended.first().copied().filter(|_| width == 1));
        for (at, ((written, end), buffer)) in sums.buffers.into_iter().zip(&receive.buffers).enumerate() {
            match path.filter(|_| is_whole && written.length_bytes == end) {
                Some(connection) => {
                    // The first of the shares is not known to be the start of the data.
                    let written = WriteSums { connection, start_hash: None, ..written };
                    let receive = receive.of_message(ring, at, &written);
                    outcome.ended.push(NcclMessage::of(buffer.rank, written, receive));
                }
                None => outcome.unknown.extend(sums.ended.iter().map(|connection| (*connection, buffer.rank))),
            }
        }
    }
}

impl DataPath {
    /// Notes whether a WRITE directly follows the one before it.
    fn note_continuity(&mut self, message: &Transport) {
        if self.next_psn != Some(message.psn) {
            self.chain.clear();
            self.is_whole = false;
        }
        let packets = u32::try_from(message.packets).ok().filter(|_| message.complete);
        self.next_psn = packets.map(|packets| message.psn.wrapping_add(packets) & PSN_MASK);
    }

    /// Notes the position of a WRITE, or that it matched no receive.
    fn note_position(&mut self, reth: &Reth, place: Option<ReceivePosition>) {
        if let Some(place) = place {
            self.next_index = place.index;
            self.is_first = Some(place.offset == 0);
            self.evidence = Vec::new();
        } else if self.is_first.is_none() && reth.dma_len > 0 && self.evidence.len() < MAX_EVIDENCE {
            self.evidence.push((reth.va, reth.dma_len.into()));
        }
    }

    fn push(&mut self, share: NcclShare) {
        if self.chain.len() == MAX_CHAIN {
            self.chain.clear();
            self.is_whole = false;
        }
        self.chain.push(share);
    }
}

impl PathMessage {
    fn shares(&self) -> impl Iterator<Item = &NcclShare> {
        self.chain.iter().chain([&self.last])
    }

    /// All WRITEs of the message as one.
    fn together(&self) -> WriteSums {
        let first = self.chain.first().unwrap_or(&self.last).sums;
        self.shares().skip(1).fold(first, |sum, share| sum.and(share.sums))
    }

    /// True if this path carries nothing of messages that other paths carry.
    fn is_empty_share_of(&self, lengths: &[u64]) -> bool {
        self.is_whole
            && lengths.iter().any(|bytes| *bytes > 0)
            && self.shares().take(self.chain.len().max(1)).all(|share| share.sums.length_bytes == 0)
    }

    /// The format of the immediate data, if only one is consistent with the position of the only
    /// share.
    fn immediate_format(&self) -> Option<Immediate> {
        let mut shares = self.shares().filter(|share| share.sums.length_bytes > 0);
        let (NcclShare { position: place, sums: written }, None) = (shares.next()?, shares.next()) else { return None };
        let place = (*place).filter(|_| written.complete)?;
        self.receive.as_ref().filter(|receive| receive.index == place.index && receive.buffers.len() == 1)?;
        let is_consistent =
            |read: &Immediate| read.is_consistent(self.word, place.index, place.offset, written.length_bytes);
        let mut consistent = Immediate::ALL.into_iter().filter(is_consistent);
        consistent.next().filter(|_| consistent.next().is_none())
    }

    /// Number of messages; `None` if unknown.
    fn count(&self, reading: Option<Immediate>, release: Release) -> Option<usize> {
        if let Some(receive) = &self.receive {
            return Some(receive.buffers.len());
        }
        let last_bytes = self.last.sums.length_bytes;
        if self.is_whole {
            return Some(self.chain.len().max(1));
        }
        // One message has at most one WRITE before the last.
        if self.chain.len() > 1 {
            return Some(self.lengths.len()).filter(|count| *count >= self.chain.len());
        }
        // Lengths of several messages always fit into one packet.
        if !self.is_started || last_bytes == 0 && release.writes_lengths() {
            return Some(1);
        }
        if last_bytes == 0 {
            return None;
        }
        let Some(first) = self.lengths.first() else {
            return (nccl::lengths(&[0; 32], last_bytes as u32).is_none()).then_some(1);
        };
        // For several messages the immediate data are 0 or the first length.
        let stated = reading?.length_bytes(self.word)?;
        match (u64::from(stated) < last_bytes, stated == *first) {
            (true, _) => Some(self.lengths.len()),
            (false, false) => Some(1),
            (false, true) => None,
        }
    }

    fn lengths(&self, count: Option<usize>, reading: Option<Immediate>) -> MessageLengths {
        let Some(count) = count else {
            return if reading.is_none() { MessageLengths::Wait } else { MessageLengths::Unknown };
        };
        if count > 1 {
            return self.several_lengths(count);
        }
        let Some(reading) = reading else { return MessageLengths::Wait };
        let Some(bytes) = reading.length_bytes(self.word) else { return MessageLengths::Sum };
        let together = self.together();
        if together.complete && together.length_bytes > bytes.into() {
            return MessageLengths::Unknown;
        }
        MessageLengths::Stated([bytes.into()].into_iter().collect())
    }

    /// Lengths of messages that were received together.
    fn several_lengths(&self, count: usize) -> MessageLengths {
        if self.lengths.len() != count {
            return if self.last.sums.length_bytes == 0 { MessageLengths::Sum } else { MessageLengths::Unknown };
        }
        let is_longer = |(share, bytes): (&NcclShare, &u32)| share.sums.length_bytes > u64::from(*bytes);
        if self.chain.len() == count && self.chain.iter().zip(&self.lengths).any(is_longer) {
            // The lengths were cleared.
            return MessageLengths::Sum;
        }
        MessageLengths::Stated(self.lengths.iter().map(|bytes| u64::from(*bytes)).collect())
    }

    /// The WRITEs of each message: all of them for a single message, one each for several.
    fn messages(&self, lengths: &[u64]) -> SmallVec<[WriteSums; 1]> {
        let together = self.together();
        let last = self.last.sums;
        let share = |at: usize| match (lengths.len(), self.chain.get(at)) {
            (1, _) => together,
            (count, Some(share)) if self.chain.len() == count && at + 1 < count => share.sums,
            (count, Some(share)) if self.chain.len() == count => {
                WriteSums { length_bytes: share.sums.length_bytes, ..share.sums.and(last) }
            }
            _ if at == 0 => WriteSums { length_bytes: 0, complete: false, ..together },
            _ => WriteSums { complete: false, ..together.none() },
        };
        lengths.iter().enumerate().map(|(at, bytes)| share(at).message(*bytes)).collect()
    }
}

/// True if elements with these (index, address) pairs may belong to one ring.
pub(super) fn is_one_ring(release: Release, a: (u64, u64), b: (u64, u64)) -> bool {
    let [indices, distance] = [(a.0, b.0), (a.1, b.1)].map(|(a, b)| i128::from(a) - i128::from(b));
    let (fewest, most) = release.ring_slots();
    let (fewest, most) = (i128::from(fewest), i128::from(most));
    let slot_bytes = i128::from(release.slot_bytes().max(1));
    let slots = distance / slot_bytes;
    distance % slot_bytes == 0 && slots.abs() < most && (slots - indices) % fewest == 0
}

/// Greatest common divisor; with 0 the other number.
pub(super) const fn gcd(a: u64, b: u64) -> u64 {
    let (mut a, mut b) = (a, b);
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{PacketFields, PacketRecord};
    use ibscope_parsers::ib::Opcode;
    use ibscope_parsers::{Lid, Psn, Qpn};

    const QUEUE: u32 = 0;
    const PATH: u32 = 1;
    const RING: u64 = 0x5577_0000_0000;
    const BUFFERS: u64 = 0x7F12_0000_0000;
    const BUFFER_BYTES: u64 = 1 << 20;
    const KEY: u32 = 0x1700;
    /// Size of each receive when several are posted together in one buffer.
    const PART_BYTES: u64 = 1 << 16;

    fn data_way() -> DataDirection {
        (Endpoint::from_lid(Lid(1)), Endpoint::from_lid(Lid(2)))
    }

    fn buffer(index: u64) -> u64 {
        BUFFERS + index * BUFFER_BYTES
    }

    /// Posts a receive with this index, from this rank, for `messages` messages; elements in the
    /// format of NCCL 2.20.
    fn post(nccl: &mut Nccl, index: u64, rank: u32, (keys, messages): ([u32; 2], u64)) -> NcclOutcome {
        let element = |part: u64| {
            let mut bytes = vec![0; 64];
            bytes[..8].copy_from_slice(&(buffer(index) + part * PART_BYTES).to_le_bytes());
            bytes[8..12].copy_from_slice(&(PART_BYTES as u32).to_le_bytes());
            bytes[12..16].copy_from_slice(&keys[0].to_le_bytes());
            bytes[16..20].copy_from_slice(&keys[1].to_le_bytes());
            bytes[20..24].copy_from_slice(&(messages as u32).to_le_bytes());
            bytes[24..28].copy_from_slice(&rank.to_le_bytes());
            bytes[32..40].copy_from_slice(&index.to_le_bytes());
            bytes
        };
        let payload: Vec<u8> = (0..messages).flat_map(element).collect();
        let (src, dst) = data_way();
        let reth = Reth { va: RING + index % 256 * 512, r_key: 1, dma_len: payload.len() as u32 };
        nccl.clear_to_send((dst, src), (QUEUE, 0), &payload, reth).expect("an element")
    }

    /// A WRITE of one packet over a path; with immediate data it ends a message.
    fn write(
        nccl: &mut Nccl,
        psn: u32,
        (va, key): (u64, u32),
        bytes: u16,
        word: Option<u32>,
        body: &[u8],
    ) -> NcclOutcome {
        let opcode = Opcode(if word.is_some() { 0x0B } else { 0x0A });
        let psn = Psn::new(psn);
        let record = PacketRecord::new(PacketFields { opcode, psn, payload_bytes: bytes, ..PacketFields::default() });
        let reth = Reth { va, r_key: key, dma_len: bytes.into() };
        let message = Transport { immediate: word, ..Transport::new(&record, None, Some(reth)) };
        nccl.write(data_way(), PATH, &message, body)
    }

    /// Rank and length of the messages that ended, the number of unknown messages, and the number
    /// of messages that may not be NCCL's.
    type OutcomeSums = (Vec<(Option<u32>, u64)>, usize, usize);

    fn add(sum: &mut OutcomeSums, outcome: NcclOutcome) {
        let rank = |envelope: Envelope| envelope.matching.identity(ibscope_parsers::mpi::TagLayout::OpenMpi);
        let ended = outcome.ended.into_iter();
        sum.0.extend(ended.map(|own| (own.envelope.and_then(rank).map(|own| own.rank), own.sums.length_bytes)));
        sum.1 += outcome.unknown.len();
        sum.2 += outcome.others.len();
    }

    fn length(index: u64) -> u16 {
        0x0700 + index as u16
    }

    /// Posts receives of two ranks in turn, then writes their messages.
    fn receives(count: u64) -> OutcomeSums {
        let (mut nccl, mut sum) = (Nccl::default(), OutcomeSums::default());
        for index in 1..=count {
            add(&mut sum, post(&mut nccl, index, index as u32 % 2, ([KEY, 0], 1)));
        }
        for index in 1..=count {
            let bytes = length(index);
            add(&mut sum, write(&mut nccl, index as u32, (buffer(index), KEY), bytes, Some(bytes.into()), &[]));
        }
        add(&mut sum, nccl.finish());
        sum
    }

    /// 2.8 has rings of 8 elements, 2.19 of 256; an index far away must be in its slot.
    #[test]
    fn the_length_of_a_ring_follows_the_release() {
        let is_one = |release: Release, slots: u64, distance: u64| {
            let slot = |index: u64| RING + index % slots * u64::from(release.slot_bytes());
            is_one_ring(release, (9, slot(9)), (9 + distance, slot(9 + distance)))
        };
        for distance in [1, 7, 8, 63, 64, 100, 255, 256, 1000, 123_457] {
            assert!(is_one(Release::From2_8, 8, distance), "{distance}");
            for release in [Release::From2_12, Release::From2_20, Release::From2_24, Release::From2_30] {
                assert!(is_one(release, 64, distance) && is_one(release, 256, distance), "{release:?}, {distance}");
            }
        }
        assert!(!is_one(Release::From2_20, 8, 100));
        assert!(!is_one(Release::From2_8, 64, 100));
    }

    #[test]
    fn a_message_whose_receive_is_gone_is_unknown() {
        let most = MAX_RECEIVES as u64;
        for (count, unknown) in [(most, 0), (most + 1, 1)] {
            let expected = (1 + unknown..=count).map(|index| (Some(index as u32 % 2), u64::from(length(index))));
            assert_eq!(receives(count), (expected.collect(), unknown as usize, 0));
        }
    }

    /// Messages to unknown memory wait; those beyond the limit are counted as such.
    #[test]
    fn messages_to_unknown_memory_beyond_the_limit_are_counted() {
        for count in [MAX_WAITING as u64, MAX_WAITING as u64 + 1] {
            let (mut nccl, mut sum) = (Nccl::default(), OutcomeSums::default());
            for index in 0..count {
                add(&mut sum, write(&mut nccl, index as u32, (buffer(index), KEY), length(index), Some(7), &[]));
            }
            assert_eq!(sum, (vec![], 0, count as usize - MAX_WAITING));
            add(&mut sum, nccl.finish());
            assert_eq!(sum, (vec![], 0, count as usize));
        }
    }

    /// Empty messages do not show the format of the lengths; one with data then shows it for the
    /// waiting ones.
    #[test]
    fn too_many_messages_without_a_length_are_unknown() {
        for (count, unknown) in [(MAX_WAITING as u64, 0), (MAX_WAITING as u64 + 1, 1)] {
            let (mut nccl, mut sum) = (Nccl::default(), OutcomeSums::default());
            add(&mut sum, post(&mut nccl, 1, 3, ([KEY, 0], 1)));
            (0..count).for_each(|index| add(&mut sum, write(&mut nccl, index as u32, (0, KEY), 0, Some(0), &[])));
            assert_eq!(sum, (vec![], unknown, 0));
            let bytes = length(1);
            add(&mut sum, write(&mut nccl, count as u32, (buffer(1), KEY), bytes, Some(bytes.into()), &[]));
            let mut expected = vec![(Some(3), 0); MAX_WAITING];
            expected.push((Some(3), u64::from(bytes)));
            assert_eq!(sum, (expected, unknown, 0));
        }
    }

    /// Messages received together: one WRITE each, and one with all lengths. With one WRITE too
    /// many the WRITEs cannot be assigned, but the last one still has the lengths.
    #[test]
    fn too_many_writes_are_not_assigned_to_messages() {
        for writes in [MAX_CHAIN as u64, MAX_CHAIN as u64 + 1] {
            let (mut nccl, mut sum) = (Nccl::default(), OutcomeSums::default());
            add(&mut sum, post(&mut nccl, 1, 3, ([KEY, 0], MAX_CHAIN as u64)));
            let lengths: Vec<u32> = (0..MAX_CHAIN as u32).map(|part| 100 + part).collect();
            for part in 0..writes {
                let at = part.min(MAX_CHAIN as u64 - 1);
                let bytes = lengths[at as usize] as u16;
                add(&mut sum, write(&mut nccl, part as u32, (buffer(1) + at * PART_BYTES, KEY), bytes, None, &[]));
            }
            let body: Vec<u8> = lengths.iter().flat_map(|bytes| bytes.to_le_bytes()).collect();
            add(&mut sum, write(&mut nccl, writes as u32, (RING, KEY), body.len() as u16, Some(0), &body));
            add(&mut sum, nccl.finish());
            let expected: Vec<(Option<u32>, u64)> = lengths.iter().map(|bytes| (Some(3), u64::from(*bytes))).collect();
            assert_eq!(sum, (expected, 0, 0), "{writes}");
        }
    }

    /// Every receive has memory with its own key, and the message comes when all receives are gone.
    #[test]
    fn memory_with_a_key_beyond_the_limit_has_no_known_owner() {
        for (keys, others) in [(MAX_KEYS as u64, 0), (MAX_KEYS as u64 + 1, 1)] {
            let (mut nccl, mut sum) = (Nccl::default(), OutcomeSums::default());
            for index in 1..=keys + MAX_RECEIVES as u64 {
                let key = KEY + index.min(keys) as u32;
                add(&mut sum, post(&mut nccl, index, 3, ([key, 0], 1)));
            }
            add(&mut sum, write(&mut nccl, 0, (buffer(0), KEY + keys as u32), 700, Some(700), &[]));
            // A message that waits for its length is unknown in the end.
            add(&mut sum, nccl.finish());
            assert_eq!(sum, (vec![], 1 - others, others));
        }
    }

    #[test]
    fn evidence_of_a_queue_and_of_a_path_is_bounded() {
        let key = |(src, dst): DataDirection| ConnectionKey::of((src, dst), Opcode(4), Qpn::new(7), 0);
        let (src, dst) = data_way();
        for count in [MAX_EVIDENCE as u64, MAX_EVIDENCE as u64 + 1] {
            let mut nccl = Nccl::default();
            (1..=count).for_each(|index| _ = post(&mut nccl, index, 3, ([KEY, KEY + 1], 1)));
            // To memory that no receive names.
            for index in 1..=count {
                write(&mut nccl, index as u32, (buffer(1000 + index), KEY), 8, Some(8), &[]);
            }
            let queues = nccl.queues(&[key((dst, src)), key((src, dst))]);
            let expected: Vec<(u64, u64)> =
                (1..=MAX_EVIDENCE as u64).map(|index| (buffer(index), PART_BYTES)).collect();
            assert_eq!((queues.len(), &queues[0].memory), (1, &expected));
            let unplaced: Vec<u64> = queues[0].paths[0].unmatched.iter().map(|(address, _)| *address).collect();
            let expected: Vec<u64> = (1..=MAX_EVIDENCE as u64).map(|index| buffer(1000 + index)).collect();
            assert_eq!(unplaced, expected);
        }
    }
}
