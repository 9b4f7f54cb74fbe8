//! A queue pair that carries NCCL data, and the messages that end on it.

use super::share::{MatchedReceive, NcclShare, ReceivePosition, WriteSums};
use crate::flow::assembly::Transport;
use ibscope_parsers::ib::Reth;
use ibscope_parsers::mpi::nccl::{self, Immediate, Release};
use smallvec::SmallVec;

/// WRITEs of a path for one message, except the last one.
pub(super) const MAX_CHAIN: usize = 8;

/// Buffers of a queue, and unmatched shares of a path, that are kept as evidence.
pub(super) const MAX_EVIDENCE: usize = 32;

/// PSNs have 24 bits.
const PSN_MASK: u32 = 0xFF_FFFF;

/// A queue pair that carries data.
#[derive(Debug, Default)]
pub(super) struct DataPath {
    pub(super) queue: Option<u32>,
    /// Whether the last share that matched a receive of the queue was the first of its message.
    /// `None` if no share matched, so that only the memory key identifies the queue.
    pub(super) is_first: Option<bool>,
    /// Address and length of shares, until one matches a receive.
    pub(super) evidence: Vec<(u64, u64)>,
    /// The rank of the queue is certain: the path belongs to this queue, or all queues with this
    /// memory key have named the same rank.
    pub(super) is_one_rank: bool,
    /// Lowest index that the next message may have.
    pub(super) next_index: u64,
    /// PSN after the last WRITE, if all packets of that were observed.
    next_psn: Option<u32>,
    /// WRITEs since the last one with immediate data.
    pub(super) chain: SmallVec<[NcclShare; 1]>,
    /// No packet is missing since the last WRITE with immediate data.
    pub(super) is_whole: bool,
    /// Messages whose queue or length is not known yet.
    pub(super) waiting: Vec<PathMessage>,
}

impl DataPath {
    /// Notes whether a WRITE directly follows the one before it.
    pub(super) fn note_continuity(&mut self, message: &Transport) {
        if self.next_psn != Some(message.psn) {
            self.chain.clear();
            self.is_whole = false;
        }
        let packets = u32::try_from(message.packets).ok().filter(|_| message.complete);
        self.next_psn = packets.map(|packets| message.psn.wrapping_add(packets) & PSN_MASK);
    }

    /// Notes the position of a WRITE, or that it matched no receive.
    pub(super) fn note_position(&mut self, reth: &Reth, place: Option<ReceivePosition>) {
        if let Some(place) = place {
            self.next_index = place.index;
            self.is_first = Some(place.offset == 0);
            self.evidence = Vec::new();
        } else if self.is_first.is_none() && reth.dma_len > 0 && self.evidence.len() < MAX_EVIDENCE {
            self.evidence.push((reth.va, reth.dma_len.into()));
        }
    }

    pub(super) fn push(&mut self, share: NcclShare) {
        if self.chain.len() == MAX_CHAIN {
            self.chain.clear();
            self.is_whole = false;
        }
        self.chain.push(share);
    }
}

/// A message, or several that were received together, as carried by one path.
#[derive(Debug)]
pub(super) struct PathMessage {
    /// Immediate data, most significant byte first.
    pub(super) word: u32,
    /// Shares before the last WRITE.
    pub(super) chain: SmallVec<[NcclShare; 1]>,
    /// The last WRITE.
    pub(super) last: NcclShare,
    /// The first packet of the last WRITE was observed.
    pub(super) is_started: bool,
    /// All WRITEs of the message were observed.
    pub(super) is_whole: bool,
    /// Lengths in the payload of the last WRITE.
    pub(super) lengths: SmallVec<[u32; 2]>,
    /// The matching receive, if there is one.
    pub(super) receive: Option<MatchedReceive>,
    /// For a message without data, which matches no receive, the one that follows that of the
    /// message before it.
    pub(super) next_receive: Option<MatchedReceive>,
}

impl PathMessage {
    pub(super) fn shares(&self) -> impl Iterator<Item = &NcclShare> {
        self.chain.iter().chain([&self.last])
    }

    /// All WRITEs of the message as one.
    pub(super) fn together(&self) -> WriteSums {
        let first = self.chain.first().unwrap_or(&self.last).sums;
        self.shares().skip(1).fold(first, |sum, share| sum.and(share.sums))
    }

    /// True if this path carries nothing of messages that other paths carry.
    pub(super) fn is_empty_share_of(&self, lengths: &[u64]) -> bool {
        self.is_whole
            && lengths.iter().any(|bytes| *bytes > 0)
            && self.shares().take(self.chain.len().max(1)).all(|share| share.sums.length_bytes == 0)
    }

    /// The format of the immediate data, if only one is consistent with the position of the only
    /// share.
    pub(super) fn immediate_format(&self) -> Option<Immediate> {
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
    pub(super) fn count(&self, reading: Option<Immediate>, release: Release) -> Option<usize> {
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

    pub(super) fn lengths(&self, count: Option<usize>, reading: Option<Immediate>) -> MessageLengths {
        let Some(count) = count else {
            return if reading.is_none() { MessageLengths::Wait } else { MessageLengths::Unknown };
        };
        if count > 1 {
            return self.several_lengths(count);
        }
        let Some(reading) = reading else { return MessageLengths::Wait };
        let Some(bytes) = reading.length_bytes(self.word) else { return MessageLengths::Sum };
        let together = self.together();
        let buffer = self.receive.as_ref().and_then(|receive| receive.buffers.first());
        // NCCL sends at most what the receiver has room for.
        let is_too_long = buffer.is_some_and(|buffer| u64::from(bytes) > buffer.capacity_bytes);
        if is_too_long || together.complete && together.length_bytes > bytes.into() {
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
    pub(super) fn messages(&self, lengths: &[u64]) -> SmallVec<[WriteSums; 1]> {
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

/// Lengths of the messages that a last WRITE ends.
pub(super) enum MessageLengths {
    /// One length per message, in bytes.
    Stated(SmallVec<[u64; 1]>),
    /// The sum of their shares.
    Sum,
    /// Unknown until a later message shows the format.
    Wait,
    /// Unknown.
    Unknown,
}
