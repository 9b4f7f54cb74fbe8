//! Evidence for the library of a connection and for the rank of its sender: votes of the first packets
//! of its messages.
//!
//! Invariant: the votes of a connection take bounded memory, whatever its packets contain.

use super::VecMap;
use ibscope_parsers::mpi::{Envelope, Identity, LibraryStack, MatchFields, TagLayout};
use serde::{Deserialize, Serialize};

/// Tag layouts that the envelopes of a stack may have; only stacks with UCX-style tags have
/// several.
#[must_use]
pub const fn tag_layouts(stack: LibraryStack) -> &'static [TagLayout] {
    if stack.carries_tags() { &TagLayout::ALL } else { &[TagLayout::ALL[0]] }
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

impl Votes {
    /// Votes of a connection without MPI messages.
    pub(super) const NONE: Self = Self {
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

/// Minimum ratio between the votes of the best candidate and the next.
const CLEAR_RATIO: u64 = 2;

/// The candidate with at least twice as many votes as the next one.
pub fn clear_favorite<T: Copy + Ord>(votes: impl Iterator<Item = (T, u64)> + Clone) -> Option<T> {
    let (best, most) = votes.clone().max_by_key(|&(candidate, count)| (count, std::cmp::Reverse(candidate)))?;
    let next = votes.filter(|(candidate, _)| *candidate != best).map(|(_, count)| count).max().unwrap_or(0);
    (most >= next.saturating_mul(CLEAR_RATIO).max(1)).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibscope_parsers::mpi::Length;

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
