//! The receives that clear-to-send elements post over one connection, and the ranks that they name.

use super::path::{MAX_EVIDENCE, PathMessage};
use super::share::{Buffer, MatchedReceive, NcclMessage, NcclOutcome, NcclShare, ReceivePosition, WriteSums};
use crate::model::arithmetic::gcd;
use ibscope_parsers::ib::Reth;
use ibscope_parsers::mpi::nccl::{self, Immediate, Release};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Memory keys kept per queue: a connection has one or two regions, and one per buffer that its
/// user has registered.
pub(super) const MAX_KEYS: usize = 64;

/// Clear-to-send elements that came over one connection.
#[derive(Debug)]
pub(super) struct CtsQueueState {
    pub(super) release: Release,
    pub(super) highest_index: u64,
    /// Index of one element and its address in the sender's memory.
    pub(super) slot: (u64, u64),
    /// Address of the ring, the same for all queues of a connection.
    pub(super) ring: u64,
    /// Greatest common divisor of the distances between the indices.
    pub(super) step: u64,
    /// Keys of the first element, by device of the receiver.
    pub(super) r_keys: RKeys,
    /// Keys of all elements, up to [`MAX_KEYS`].
    pub(super) known_keys: Vec<u32>,
    /// Address and length of the first buffers, if the receiver has several devices.
    pub(super) evidence: Vec<(u64, u64)>,
    /// Sorted by index.
    pub(super) receives: VecDeque<Receive>,
    pub(super) ranks: QueueRanks,
    pub(super) immediate_format: Option<Immediate>,
    /// Largest number of paths observed for one message without an explicit length.
    pub(super) width: usize,
}

impl CtsQueueState {
    pub(super) fn new(cts: &nccl::Cts<'_>, address: u64) -> Self {
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
    pub(super) fn add(&mut self, receive: Receive, most: usize, outcome: &mut NcclOutcome) {
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

    pub(super) fn receive(&self, index: u64) -> Option<&Receive> {
        let at = self.receives.binary_search_by_key(&index, |receive| receive.index).ok()?;
        self.receives.get(at)
    }

    /// Position of a WRITE in the first receive, at this index or later, that the WRITE may fill.
    /// The last WRITE is never matched to a receive of several messages.
    pub(super) fn position(&self, reth: &Reth, from: u64, is_last: bool) -> Option<ReceivePosition> {
        let candidates = self.receives.iter().filter(|receive| receive.index >= from);
        candidates.filter(|receive| !is_last || receive.buffers.len() == 1).find_map(|receive| receive.position(reth))
    }

    /// Adds the shares of a message to those of other paths. Returns false if the receive is gone.
    pub(super) fn sum(&mut self, message: &PathMessage, is_first: bool) -> bool {
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

pub(super) type RKeys = SmallVec<[u32; 2]>;

/// A receive, or several that were posted together.
#[derive(Debug)]
pub(super) struct Receive {
    pub(super) index: u64,
    /// Time of its clear-to-send elements.
    pub(super) posted_ns: i64,
    pub(super) r_keys: RKeys,
    pub(super) buffers: SmallVec<[Buffer; 1]>,
    /// Sums of the WRITEs, for messages without explicit lengths.
    pub(super) sums: Option<Box<ShareSums>>,
}

impl Receive {
    pub(super) fn of(cts: &nccl::Cts<'_>, posted_ns: i64) -> Self {
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

    pub(super) fn matched(&self) -> MatchedReceive {
        MatchedReceive { index: self.index, posted_ns: self.posted_ns, buffers: self.buffers.clone() }
    }

    pub(super) fn position(&self, reth: &Reth) -> Option<ReceivePosition> {
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
    pub(super) fn end(self, ring: u64, width: usize, outcome: &mut NcclOutcome) {
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

/// Messages whose lengths are the sums of their shares.
#[derive(Debug, Default)]
pub(super) struct ShareSums {
    /// Connections that have carried the last WRITE.
    pub(super) ended: SmallVec<[u32; 2]>,
    /// The connection that carries first shares.
    pub(super) first: Option<u32>,
    /// By buffer: the sums, and the end of the furthest share.
    pub(super) buffers: SmallVec<[(WriteSums, u64); 1]>,
}

/// Ranks that the elements of a queue have named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum QueueRanks {
    #[default]
    Unknown,
    /// Always the same one; `None` if the release gives no rank.
    One(Option<u32>),
    Several,
}

impl QueueRanks {
    pub(super) fn add(&mut self, rank: Option<u32>) {
        *self = match *self {
            Self::Unknown => Self::One(rank),
            Self::One(known) if known == rank => Self::One(rank),
            Self::One(_) | Self::Several => Self::Several,
        };
    }
}

/// Keys of an element, by device of the receiver.
pub(super) fn r_keys(element: &nccl::Element) -> impl Iterator<Item = u32> + use<> {
    element.r_keys.into_iter().filter(|key| *key != 0)
}

/// True if elements with these (index, address) pairs may belong to one ring.
pub(in crate::flow) fn is_one_ring(release: Release, a: (u64, u64), b: (u64, u64)) -> bool {
    let [indices, distance] = [(a.0, b.0), (a.1, b.1)].map(|(a, b)| i128::from(a) - i128::from(b));
    let (fewest, most) = release.ring_slots();
    let (fewest, most) = (i128::from(fewest), i128::from(most));
    let slot_bytes = i128::from(release.slot_bytes().max(1));
    let slots = distance / slot_bytes;
    distance % slot_bytes == 0 && slots.abs() < most && (slots - indices) % fewest == 0
}
