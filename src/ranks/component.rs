//! Components: processes that exchange messages of one library, and their ranks.
//!
//! Connections, connection messages and processes go in. Votes from envelopes and connection
//! messages are collected per process. Invariant: a rank is accepted only if it has
//! [`CLEAR_MAJORITY`] times as many votes as all others together.

use super::cm::CmExchange;
use super::processes::{EndId, Processes, UnionFind};
use super::tag_layout::{self, Family, LayoutChoice, LibraryConnection};
use super::{IdentityEvidence, nccl};
use crate::model::{Communicator, ConnectionTotals, QueuePair};
use ibscope_parsers::Endpoint;
use ibscope_parsers::mpi::nccl::Release;
use ibscope_parsers::mpi::{MpiOperation, TagLayout};
use std::collections::{BTreeMap, BTreeSet};

/// Required ratio of the votes for a rank to the votes for all others together.
const CLEAR_MAJORITY: u64 = 20;
/// Envelopes on `MPI_COMM_WORLD` that a rank needs to count as proof that a component is MPI.
const MIN_WORLD_MESSAGES: u64 = 3;

/// Kind of evidence for a rank, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RankEvidence {
    /// The library's connection messages state the rank.
    Stated,
    /// Envelopes name the rank.
    Envelopes,
    /// The process has this rank on communicators where all known processes have their world rank.
    Communicator,
    /// The rank is the only one of its port.
    Port,
}

impl RankEvidence {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Stated => "cm",
            Self::Envelopes => "envelope",
            Self::Communicator => "communicator",
            Self::Port => "port",
        }
    }

    /// True if no message names the rank, but it follows from other ranks.
    pub(super) const fn is_inferred(self) -> bool {
        matches!(self, Self::Communicator | Self::Port)
    }
}

/// Connections, each with its sending and receiving end.
pub(super) type ComponentConnections<'a> = Vec<(LibraryConnection<'a>, (EndId, EndId))>;

/// A rank, with the votes for and against it.
#[expect(clippy::struct_field_names, reason = "no other name fits the number of a rank")]
#[derive(Clone, Copy, Debug)]
pub(super) struct Rank {
    pub(super) rank: u32,
    pub(super) agreeing: u64,
    pub(super) disagreeing: u64,
    pub(super) evidence: RankEvidence,
}

/// The votes of one process.
#[derive(Clone, Debug, Default)]
pub(super) struct RankVotes {
    /// Envelopes on `MPI_COMM_WORLD`, by the rank they name.
    pub(super) envelopes: BTreeMap<u32, u64>,
    /// Envelopes on other communicators, by context id and the rank they name there.
    pub(super) other_communicators: BTreeMap<(u32, u32), u64>,
    /// Connection messages, by the rank they state.
    pub(super) stated: BTreeMap<u32, u64>,
}

impl RankVotes {
    /// The rank with a clear majority.
    pub(super) fn rank(&self) -> Option<Rank> {
        let stated = !self.stated.is_empty();
        let candidates = if stated { &self.stated } else { &self.envelopes };
        let (&rank, _) = candidates.iter().max_by_key(|&(rank, count)| (count, std::cmp::Reverse(rank)))?;
        let agreeing = [&self.envelopes, &self.stated].iter().filter_map(|votes| votes.get(&rank)).sum::<u64>();
        let all = self.envelopes.values().chain(self.stated.values()).sum::<u64>();
        let evidence = if stated { RankEvidence::Stated } else { RankEvidence::Envelopes };
        let disagreeing = all - agreeing;
        (agreeing >= disagreeing * CLEAR_MAJORITY).then_some(Rank { rank, agreeing, disagreeing, evidence })
    }
}

/// Processes that exchange messages, directly or through others.
#[derive(Debug)]
pub(super) struct Component<'a> {
    pub(super) family: Family,
    /// Layout of its tags.
    pub(super) layout: TagLayout,
    /// Connections, each with its sending and receiving end.
    pub(super) connections: Vec<(LibraryConnection<'a>, (EndId, EndId))>,
    /// Votes of each process.
    pub(super) votes: BTreeMap<EndId, RankVotes>,
    /// Rank of each process with a clear majority.
    pub(super) ranks: BTreeMap<EndId, Rank>,
    /// Ports of each process.
    pub(super) ports: BTreeMap<EndId, BTreeSet<Endpoint>>,
    /// Time of the first and of the last packet of its connections, nanoseconds since the epoch.
    pub(super) times_ns: (i64, i64),
    /// The NCCL release that the messages show.
    pub(super) release: Option<Release>,
    /// A message fills an element that NCCL announced: the WRITE has the memory key and an address of
    /// the element, and its immediate data state a length that is consistent with the WRITE. One such
    /// message is better evidence than several envelopes: key and address alone agree by chance once
    /// in 2^60.
    pub(super) fills_elements: bool,
}

impl Component<'_> {
    /// The processes of each rank; a rank may have several.
    pub(super) fn processes_by_rank(&self) -> BTreeMap<u32, Vec<EndId>> {
        let mut by_rank: BTreeMap<u32, Vec<EndId>> = BTreeMap::new();
        for (process, rank) in &self.ranks {
            by_rank.entry(rank.rank).or_default().push(*process);
        }
        by_rank
    }

    /// Ranks that connection messages state or that enough envelopes name. Two of them prove a job.
    pub(super) fn strong_ranks(&self) -> impl Iterator<Item = u32> + '_ {
        let is_strong = |rank: &&Rank| rank.evidence == RankEvidence::Stated || rank.agreeing >= MIN_WORLD_MESSAGES;
        self.ranks.values().filter(is_strong).map(|rank| rank.rank)
    }

    /// Context ids of the communicators other than `MPI_COMM_WORLD` in its messages.
    pub(super) fn contexts(&self) -> BTreeSet<u32> {
        self.votes.values().flat_map(|votes| votes.other_communicators.keys().map(|(context, _)| *context)).collect()
    }

    /// True if there are messages of collective operations that the library names.
    pub(super) fn has_named_collectives(&self) -> bool {
        let mut classes = self
            .connections
            .iter()
            .filter_map(|(found, _)| found.connection.mpi.as_ref())
            .flat_map(|seen| seen.sums.iter().filter_map(|(class, _)| class.operation[self.layout as usize]));
        classes.any(|operation| !matches!(operation, MpiOperation::PointToPoint | MpiOperation::Collective))
    }
}

/// Groups connections into components. Returns separately the connections whose tag layout is not
/// clear.
pub(super) fn components<'a>(
    connections: Vec<LibraryConnection<'a>>,
    evidence: &IdentityEvidence<'_>,
    exchanges: &[CmExchange],
    paired: &super::QueuePairPartners,
    processes: &mut Processes,
) -> (Vec<Component<'a>>, Vec<ComponentConnections<'a>>) {
    let with_ends = ends(connections, evidence, paired, processes);
    let mut sets = UnionFind::default();
    (0..processes.len()).for_each(|_| _ = sets.add());
    for (_, (from, to)) in &with_ends {
        sets.join(processes.process(*from), processes.process(*to));
    }
    let mut groups: BTreeMap<(EndId, Family), ComponentConnections<'a>> = BTreeMap::new();
    for (found, (from, to)) in with_ends {
        let group = sets.find(processes.process(from));
        groups.entry((group, Family::of(found.stack))).or_default().push((found, (from, to)));
    }
    let stated = stated_ranks(evidence, exchanges, processes);
    let (mut known, mut unread) = (Vec::new(), Vec::new());
    for ((_, family), connections) in groups {
        let sides: Vec<_> = connections
            .iter()
            .map(|(found, (from, to))| (*found, (processes.process(*from), processes.process(*to))))
            .collect();
        match tag_layout::layout(&sides) {
            LayoutChoice::Clear(layout) => known.push(component(family, layout, connections, &stated, processes)),
            LayoutChoice::Open(layouts) => unread.push((family, layouts, connections)),
        }
    }
    let mut apart = Vec::new();
    let mut layouts_at = LayoutsAt::new();
    known.iter().for_each(|own| note_layout(&mut layouts_at, own));
    for (family, layouts, connections) in unread {
        match layout_around(&layouts_at, family, &connections).filter(|layout| layouts.contains(layout)) {
            Some(layout) => {
                let own = component(family, layout, connections, &stated, processes);
                note_layout(&mut layouts_at, &own);
                known.push(own);
            }
            None => apart.push(connections),
        }
    }
    (known, apart)
}

/// Tag layouts of each family, by port.
type LayoutsAt = BTreeMap<(Family, Endpoint), BTreeSet<TagLayout>>;

fn note_layout(layouts_at: &mut LayoutsAt, own: &Component<'_>) {
    for port in own.ports.values().flatten() {
        layouts_at.entry((own.family, *port)).or_default().insert(own.layout);
    }
}

/// The tag layout that all components of the family with a common port have. Tags that are valid in
/// several layouts get the layout of their neighbors.
fn layout_around(
    layouts_at: &LayoutsAt,
    family: Family,
    connections: &[(LibraryConnection<'_>, (EndId, EndId))],
) -> Option<TagLayout> {
    let keys = connections.iter().map(|(found, _)| &found.connection.key);
    let ports: BTreeSet<Endpoint> = keys.flat_map(|key| [key.src, key.dst]).collect();
    let around = ports.iter().filter_map(|port| layouts_at.get(&(family, *port)));
    let layouts: BTreeSet<TagLayout> = around.flatten().copied().collect();
    layouts.first().copied().filter(|_| layouts.len() == 1)
}

/// The sending and the receiving end of each connection.
fn ends<'a>(
    connections: Vec<LibraryConnection<'a>>,
    evidence: &IdentityEvidence<'_>,
    paired: &super::QueuePairPartners,
    processes: &mut Processes,
) -> ComponentConnections<'a> {
    let mut of_nccl = nccl::NcclEnds::default();
    let mut with_ends = Vec::new();
    for found in connections {
        let key = &found.connection.key;
        let receiver = tag_layout::receiver(key);
        let to = processes.end(receiver);
        let sender = if key.is_datagram() {
            Some(QueuePair { endpoint: key.src, qpn: key.src_qp })
        } else {
            paired.partner(receiver).map(|(end, _)| end)
        };
        let from = match sender {
            Some(sender) => processes.end(sender),
            None => processes.unknown_sender(),
        };
        if Family::of(found.stack) == Family::Nccl {
            let times_ns = found.connection.times_ns;
            of_nccl.add(key.src, times_ns, from);
            of_nccl.add(key.dst, times_ns, to);
        }
        with_ends.push((found, (from, to)));
    }
    of_nccl.join(evidence.nccl, processes);
    with_ends
}

/// Ranks that connection messages state, by process.
fn stated_ranks(
    evidence: &IdentityEvidence<'_>,
    exchanges: &[CmExchange],
    processes: &mut Processes,
) -> BTreeMap<EndId, BTreeMap<u32, u64>> {
    let mut stated: BTreeMap<EndId, BTreeMap<u32, u64>> = BTreeMap::new();
    let mut state = |processes: &mut Processes, queue_pair: QueuePair, rank: u32| {
        let Some(end) = processes.find(queue_pair) else { return };
        *stated.entry(processes.process(end)).or_default().entry(rank).or_default() += 1;
    };
    for exchange in exchanges {
        let Some(ranks) = exchange.stated_ranks else { continue };
        state(processes, exchange.requester, ranks.requester);
        state(processes, exchange.replier, ranks.replier);
    }
    for message in evidence.connection_messages {
        if let Some(rank) = message.world_rank {
            state(processes, message.from, rank);
        }
    }
    stated
}

/// A component whose tag layout comes from a job at its ports. It gets no ranks: nothing in its own
/// messages supports the layout.
pub(super) fn component_with_layout<'a>(
    family: Family,
    layout: TagLayout,
    connections: Vec<(LibraryConnection<'a>, (EndId, EndId))>,
    processes: &mut Processes,
) -> Component<'a> {
    let own = component(family, layout, connections, &BTreeMap::new(), processes);
    Component { ranks: BTreeMap::new(), ..own }
}

fn component<'a>(
    family: Family,
    layout: TagLayout,
    connections: Vec<(LibraryConnection<'a>, (EndId, EndId))>,
    stated: &BTreeMap<EndId, BTreeMap<u32, u64>>,
    processes: &mut Processes,
) -> Component<'a> {
    let mut votes: BTreeMap<EndId, RankVotes> = BTreeMap::new();
    let mut ports: BTreeMap<EndId, BTreeSet<Endpoint>> = BTreeMap::new();
    let mut times_ns = (i64::MAX, i64::MIN);
    let mut fills_elements = false;
    for (found, (from, to)) in &connections {
        let (key, times) = (&found.connection.key, found.connection.times_ns);
        times_ns = (times_ns.0.min(times.0), times_ns.1.max(times.1));
        let (from, to) = (processes.process(*from), processes.process(*to));
        ports.entry(from).or_default().insert(key.src);
        ports.entry(to).or_default().insert(key.dst);
        fills_elements |= family == Family::Nccl && fills_an_element(found.connection);
        // A receiver that never sends is a process as well.
        votes.entry(to).or_default();
        let sender = votes.entry(from).or_default();
        for (communicator, rank, count) in found.connection.votes().of(found.stack, layout) {
            match communicator {
                Communicator::World => *sender.envelopes.entry(rank).or_default() += count,
                Communicator::Context(context) => {
                    *sender.other_communicators.entry((context, rank)).or_default() += count;
                }
            }
        }
    }
    for (process, votes) in &mut votes {
        votes.stated = stated.get(process).cloned().unwrap_or_default();
    }
    let ranks = votes.iter().filter_map(|(process, votes)| Some((*process, votes.rank()?))).collect();
    let ends = connections.iter().flat_map(|(_, (from, to))| [*from, *to]);
    let releases: BTreeSet<Release> = ends.filter_map(|end| processes.release(end)).collect();
    let release = releases.first().copied().filter(|_| releases.len() == 1);
    Component { family, layout, connections, votes, ranks, ports, times_ns, release, fills_elements }
}

/// True if an NCCL connection has a counted message whose data fill an element from its start.
fn fills_an_element(connection: &ConnectionTotals) -> bool {
    connection
        .mpi
        .as_ref()
        .is_some_and(|mpi| mpi.shares.first > 0 && mpi.sums.iter().any(|(_, sums)| sums.messages > 0))
}
