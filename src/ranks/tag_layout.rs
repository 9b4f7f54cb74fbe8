//! Detection of a connection's library, and of the layout of a job's tags.
//!
//! **Library.** The messages of a connection vote. A library needs nine of ten message starts, and
//! the opposite direction must not be another library.
//!
//! **Tag layout.** UCX and libfabric carry 64 tag bits, which each MPI library fills in its own
//! way. Many tags are valid in several layouts: an MPICH tag, read as Open MPI's, names rank 4096 r
//! on the communicator "tag". So all layouts are tried on all connections of a job, and each costs
//! the bits that describe its values in Elias' gamma code (Elias 1975: 2 floor(log2 n) + 1 bits for
//! n): every communicator once, and every sender's rank on it once. The right layout has few and
//! small ranks and contexts, so it is short. A value that MPI excludes costs [`IMPOSSIBLE_BITS`]: a
//! process with two ranks on one communicator, a process that sends to its own rank over the wire,
//! a rank or tag beyond any real one.
//!
//! Invariant: a layout is accepted only if the second best takes [`MARGIN_BITS`] more. A wrong
//! layout would win once in 32 000 times if the bits were exact probabilities.

use super::QueuePairPartners;
use crate::model::{Communicator, ConnectionKey, ConnectionTotals, QueuePair, UpperLayerVotes, Votes, tag_layouts};
use ibscope_parsers::Endpoint;
use ibscope_parsers::mpi::{LibraryStack, TagLayout};
use std::collections::{BTreeMap, BTreeSet};

/// Message starts in the opposite direction before it can rule a library out.
const MIN_MESSAGE_STARTS: u64 = 3;
/// Share of a connection's messages that must match the library, in percent.
const CONSISTENT_PERCENT: u64 = 90;
/// Messages with tags that prove UCX: those of a connection, or else those of one of its ports.
const MIN_UCX_MESSAGES: u64 = 8;
/// At least one in this many connections of a port must seem to be UCX's, if connections have few
/// messages.
const UCX_CONNECTIONS_ONE_IN: u64 = 4;
/// Cost of a value that MPI excludes.
const IMPOSSIBLE_BITS: u64 = 32;
/// Bits by which the best layout must be shorter than the next.
const MARGIN_BITS: u64 = 15;
/// Cost in advance of Open MPI's layout of 2.x: no release since 2018 has it, and tags of 3.0 are
/// valid in it, with ranks 16 times as large.
const OUTDATED_BITS: u64 = 16;

/// A connection whose messages match a library.
#[derive(Clone, Copy, Debug)]
pub(super) struct LibraryConnection<'a> {
    /// Index in the list of all connections.
    pub(super) index: usize,
    pub(super) connection: &'a ConnectionTotals,
    pub(super) stack: LibraryStack,
}

/// Libraries that one job may use at the same time: UCX connects over datagrams, and may stay
/// there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Family {
    Ob1,
    Ucx,
    Rxm,
    Mvapich2,
    Nccl,
}

impl Family {
    pub(super) const fn of(stack: LibraryStack) -> Self {
        match stack {
            LibraryStack::Ob1 => Self::Ob1,
            LibraryStack::UcxVerbs | LibraryStack::UcxMlx5 | LibraryStack::UcxUd => Self::Ucx,
            LibraryStack::Rxm => Self::Rxm,
            LibraryStack::Mvapich2 => Self::Mvapich2,
            LibraryStack::Nccl => Self::Nccl,
        }
    }

    /// True if envelopes between two processes travel on several queue pairs at the same time: by
    /// size (`openib`), by rail (MVAPICH2), or by channel (NCCL).
    pub(super) const fn has_parallel_queue_pairs(self) -> bool {
        matches!(self, Self::Ob1 | Self::Mvapich2 | Self::Nccl)
    }
}

pub(super) fn receiver(key: &ConnectionKey) -> QueuePair {
    QueuePair { endpoint: key.dst, qpn: key.dest_qp }
}

/// Connections whose messages match one library, and whose opposite direction, if known, matches it
/// too. `is_stated` decides whether connection messages of UCX list a queue pair.
pub(super) fn library_connections<'a>(
    connections: &'a [Box<ConnectionTotals>],
    paired: &QueuePairPartners,
    is_stated: impl Fn(QueuePair) -> bool,
) -> Vec<LibraryConnection<'a>> {
    let all = connections.iter().enumerate();
    let found: Vec<LibraryConnection<'_>> = all
        .filter_map(|(index, own)| Some(LibraryConnection { index, connection: own, stack: consistent_stack(own)? }))
        .collect();
    if found.is_empty() {
        return found;
    }
    let own: BTreeMap<QueuePair, Option<LibraryStack>> = connections
        .iter()
        .filter(|connection| !connection.key.is_datagram() && connection.starts() >= MIN_MESSAGE_STARTS)
        .map(|connection| (receiver(&connection.key), consistent_stack(connection)))
        .collect();
    let is_consistent = |found: &LibraryConnection<'_>| {
        let partner = paired.partner(receiver(&found.connection.key)).map(|(end, _)| end);
        partner.and_then(|end| own.get(&end)).is_none_or(|back| *back == Some(found.stack))
    };
    let found: Vec<LibraryConnection<'_>> = found.into_iter().filter(is_consistent).collect();
    let ports = PortEvidence::by_port(connections, &found);
    let is_likely = |found: &LibraryConnection<'_>| {
        let key = &found.connection.key;
        let sender = || paired.partner(receiver(key)).map(|(end, _)| end);
        Family::of(found.stack) != Family::Ucx
            || enveloped(found) >= MIN_UCX_MESSAGES
            || key.is_datagram()
            || std::iter::once(receiver(key)).chain(sender()).any(&is_stated)
            || [key.src, key.dst].iter().all(|port| ports.get(port).is_some_and(PortEvidence::shows_ucx))
    };
    found.into_iter().filter(is_likely).collect()
}

fn enveloped(found: &LibraryConnection<'_>) -> u64 {
    found.connection.votes().enveloped[found.stack as usize]
}

/// Evidence of the connections of a port for UCX. Few messages of another protocol can look like
/// messages of UCX, which one byte identifies: of a thousand short connections of a storage protocol,
/// one does. At the port of a rank, many do.
#[derive(Default)]
struct PortEvidence {
    /// Connections with messages.
    connections: u64,
    /// Those of UCX among them.
    ucx_connections: u64,
    /// Messages of these with tags.
    ucx_messages: u64,
}

impl PortEvidence {
    /// The ports of connections that seem to be UCX's.
    fn by_port(connections: &[Box<ConnectionTotals>], found: &[LibraryConnection<'_>]) -> BTreeMap<Endpoint, Self> {
        let mut ports: BTreeMap<Endpoint, Self> = BTreeMap::new();
        for own in found.iter().filter(|found| Family::of(found.stack) == Family::Ucx) {
            for port in [own.connection.key.src, own.connection.key.dst] {
                let evidence = ports.entry(port).or_default();
                evidence.ucx_connections += 1;
                evidence.ucx_messages += enveloped(own);
            }
        }
        for connection in connections.iter().filter(|connection| connection.starts() > 0) {
            for port in [connection.key.src, connection.key.dst] {
                ports.entry(port).and_modify(|evidence| evidence.connections += 1);
            }
        }
        ports
    }

    const fn shows_ucx(&self) -> bool {
        self.ucx_messages >= MIN_UCX_MESSAGES && self.ucx_connections * UCX_CONNECTIONS_ONE_IN >= self.connections
    }
}

/// The library that nearly all messages match.
pub(super) fn consistent_stack(connection: &ConnectionTotals) -> Option<LibraryStack> {
    matching_stack(connection).filter(|stack| !is_overruled(*stack, connection))
}

fn matching_stack(connection: &ConnectionTotals) -> Option<LibraryStack> {
    let (votes, starts) = (connection.votes(), connection.starts());
    LibraryStack::ALL.into_iter().find(|&stack| {
        let matching = votes.enveloped[stack as usize] + votes.bare[stack as usize];
        matching > 0 && matching * 100 >= starts * CONSISTENT_PERCENT
    })
}

/// True if the messages match UCX, and the compared ones another protocol distinctively.
pub(super) fn is_another_protocol(connection: &ConnectionTotals) -> bool {
    matching_stack(connection).is_some_and(|stack| is_overruled(stack, connection))
}

/// True for UCX if the compared messages match another protocol distinctively. One byte identifies a
/// message of UCX, so the commands of storage protocols look like them.
fn is_overruled(stack: LibraryStack, connection: &ConnectionTotals) -> bool {
    let is_most = |matching: &u64| matching * 100 >= compared(connection) * CONSISTENT_PERCENT;
    Family::of(stack) == Family::Ucx
        && connection.upper_layers.as_ref().is_some_and(|votes| votes.distinctive.iter().any(is_most))
}

/// At least this many messages were compared with other protocols.
pub(super) fn compared(connection: &ConnectionTotals) -> u64 {
    connection.starts().min(UpperLayerVotes::COMPARED_MESSAGES.into())
}

/// Process numbers of the sender and the receiver.
pub(super) type ProcessPair = (u32, u32);

/// Result of the choice of a tag layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LayoutChoice {
    /// One layout beats all others by the margin.
    Clear(TagLayout),
    /// The best layouts; none of them wins by the margin.
    Open(Vec<TagLayout>),
}

/// Chooses the tag layout of these connections.
pub(super) fn layout(connections: &[(LibraryConnection<'_>, ProcessPair)]) -> LayoutChoice {
    let tagged: Vec<_> = connections.iter().filter(|(matching, _)| matching.stack.carries_tags()).collect();
    if tagged.is_empty() {
        let only = connections.first().map(|(matching, _)| tag_layouts(matching.stack)[0]);
        return only.map_or(LayoutChoice::Open(Vec::new()), LayoutChoice::Clear);
    }
    let mut bits: Vec<(u64, TagLayout)> =
        TagLayout::ALL.into_iter().map(|layout| (description_bits(&tagged, layout), layout)).collect();
    bits.sort_by_key(|(bits, _)| *bits);
    match bits[..] {
        [(best, layout), (next, _), ..] if best + MARGIN_BITS <= next => LayoutChoice::Clear(layout),
        [(best, _), ..] => {
            LayoutChoice::Open(bits.into_iter().filter(|(own, _)| *own == best).map(|(_, layout)| layout).collect())
        }
        [] => LayoutChoice::Open(Vec::new()),
    }
}

/// Number of bits that describe the envelopes of these connections in a layout.
fn description_bits(connections: &[&(LibraryConnection<'_>, ProcessPair)], layout: TagLayout) -> u64 {
    let mut communicators: BTreeSet<Communicator> = BTreeSet::new();
    let mut ranks: BTreeMap<(u32, Communicator), BTreeSet<u32>> = BTreeMap::new();
    let mut bits = if layout == TagLayout::OpenMpi2 { OUTDATED_BITS } else { 0 };
    for (LibraryConnection { connection, stack, .. }, (sender, _)) in connections {
        let votes = connection.votes();
        for (communicator, rank, _) in votes.of(*stack, layout) {
            communicators.insert(communicator);
            ranks.entry((*sender, communicator)).or_default().insert(rank);
        }
        let Votes { implausible, uncounted_ranks: crowded, .. } = votes;
        bits += IMPOSSIBLE_BITS * u64::from(implausible[layout as usize] > 0);
        bits += IMPOSSIBLE_BITS * u64::from(crowded[layout as usize] > 0);
    }
    bits += communicators.iter().map(|communicator| communicator_bits(*communicator)).sum::<u64>();
    for own in ranks.values() {
        bits += own.iter().map(|rank| gamma_bits(u64::from(*rank) + 1)).sum::<u64>();
        bits += IMPOSSIBLE_BITS * (own.len() as u64 - 1);
    }
    let world = |process: u32| ranks.get(&(process, Communicator::World)).filter(|own| own.len() == 1);
    let to_itself = |(_, (sender, receiver)): &&&(LibraryConnection<'_>, ProcessPair)| {
        sender != receiver && world(*sender).is_some_and(|own| Some(own) == world(*receiver))
    };
    bits + IMPOSSIBLE_BITS * connections.iter().filter(to_itself).count() as u64
}

const fn communicator_bits(communicator: Communicator) -> u64 {
    match communicator {
        Communicator::World => 1,
        Communicator::Context(context) => gamma_bits(context as u64 + 1),
    }
}

/// Length of Elias' gamma code of a number from 1 on.
const fn gamma_bits(number: u64) -> u64 {
    2 * number.ilog2() as u64 + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::MpiTotals;
    use ibscope_parsers::mpi::{Envelope, Length, MatchFields};

    /// A connection with four messages for each of these UCX tags.
    fn connection(tags: &[u64]) -> ConnectionTotals {
        let mut seen = MpiTotals::default();
        for tag in tags.iter().flat_map(|tag| [*tag; 4]) {
            let envelope = Envelope { matching: MatchFields::UcxTag(tag), length: Length::Explicit(8), sequence: None };
            seen.votes.start(LibraryStack::UcxVerbs, Some(envelope));
        }
        ConnectionTotals { mpi: Some(Box::new(seen)), ..super::super::tests::connection(17, 18, 40) }
    }

    fn read(sides: &[(&ConnectionTotals, ProcessPair)]) -> LayoutChoice {
        let found = |(connection, sides): &(&'static ConnectionTotals, ProcessPair)| {
            (LibraryConnection { index: 0, connection, stack: LibraryStack::UcxVerbs }, *sides)
        };
        let leaked: Vec<(&'static ConnectionTotals, ProcessPair)> =
            sides.iter().map(|(own, sides)| (&*Box::leak(Box::new((*own).clone())), *sides)).collect();
        layout(&leaked.iter().map(found).collect::<Vec<_>>())
    }

    fn open_mpi(rank: u64, tag: u64) -> u64 {
        tag << 40 | rank << 20
    }

    fn mpich(rank: u64, tag: u64) -> u64 {
        rank << 32 | tag
    }

    #[test]
    fn two_ranks_are_enough_for_each_library() {
        for tag in [0, 1, 7, 42, 1000] {
            let (zero, one) = (connection(&[open_mpi(0, tag)]), connection(&[open_mpi(1, tag)]));
            assert_eq!(read(&[(&zero, (0, 1)), (&one, (1, 0))]), LayoutChoice::Clear(TagLayout::OpenMpi), "{tag}");
            let (zero, one) = (connection(&[mpich(0, tag)]), connection(&[mpich(1, tag)]));
            assert_eq!(read(&[(&zero, (0, 1)), (&one, (1, 0))]), LayoutChoice::Clear(TagLayout::Mpich), "{tag}");
        }
    }

    #[test]
    fn ranks_of_mpich_are_not_taken_for_multiples_of_4096() {
        let ranks: Vec<ConnectionTotals> = (0..4).map(|rank| connection(&[mpich(rank, 0), mpich(rank, 3)])).collect();
        let sides: Vec<_> = (0..).zip(&ranks).map(|(at, own)| (own, (at, (at + 1) % 4))).collect();
        assert_eq!(read(&sides), LayoutChoice::Clear(TagLayout::Mpich));
    }

    #[test]
    fn the_layout_of_open_mpi_2_is_detected() {
        let old = |rank: u64| connection(&[6 << 40 | rank << 16]);
        assert_eq!(read(&[(&old(0), (0, 1)), (&old(1), (1, 0))]), LayoutChoice::Clear(TagLayout::OpenMpi2));
    }

    #[test]
    fn one_empty_tag_leaves_the_layout_open() {
        assert!(matches!(read(&[(&connection(&[0]), (0, 1))]), LayoutChoice::Open(_)));
    }

    #[test]
    fn gamma_code() {
        // Elias 1975, table 1: 1 -> 1 bit, 2 and 3 -> 3 bits, 4 to 7 -> 5 bits.
        assert_eq!([1, 2, 3, 4, 7, 8].map(gamma_bits), [1, 3, 3, 5, 5, 7]);
    }
}
