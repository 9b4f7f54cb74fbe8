//! Connections that share processes, and the ranks of those.
//!
//! Processes that exchange messages of one library are a component. What its messages and connection messages say is
//! collected per process; a rank is accepted where the votes for it outweigh all others by [`CLEAR`].

use super::cm::Exchange;
use super::processes::{End, Processes, Sets};
use super::reading::{self, Family, Fitting, Reading};
use super::{Witnesses, nccl};
use crate::model::QueuePair;
use crate::model::traffic::Communicator;
use ibscope_parsers::Endpoint;
use ibscope_parsers::mpi::nccl::Release;
use ibscope_parsers::mpi::{Operation, TagLayout};
use std::collections::{BTreeMap, BTreeSet};

/// How many times as many votes as all others together a rank needs.
const CLEAR: u64 = 20;
/// Messages on `MPI_COMM_WORLD` that make a process's rank count where a component has to prove that it is MPI.
const ENOUGH: u64 = 3;

/// What shows a rank, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Evidence {
    /// The library's connection messages state it.
    Stated,
    /// Envelopes name it.
    Envelopes,
    /// It has this rank on communicators on which all known processes have their world rank.
    Communicator,
    /// It is the only rank of its port.
    Port,
}

impl Evidence {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Stated => "cm",
            Self::Envelopes => "envelope",
            Self::Communicator => "communicator",
            Self::Port => "port",
        }
    }

    /// No message names the rank: it follows from others.
    pub(super) const fn is_inferred(self) -> bool {
        matches!(self, Self::Communicator | Self::Port)
    }
}

/// Connections with the ends that send and receive.
pub(super) type Connections<'a> = Vec<(Fitting<'a>, (End, End))>;

/// A rank, and the votes for and against it.
#[expect(clippy::struct_field_names, reason = "the number of a rank has no other name")]
#[derive(Clone, Copy, Debug)]
pub(super) struct Rank {
    pub(super) rank: u32,
    pub(super) agreeing: u64,
    pub(super) disagreeing: u64,
    pub(super) evidence: Evidence,
}

/// What messages show of one process.
#[derive(Clone, Debug, Default)]
pub(super) struct Votes {
    /// Envelopes on `MPI_COMM_WORLD` by the rank they name.
    pub(super) envelopes: BTreeMap<u32, u64>,
    /// Envelopes on other communicators by context id and the rank they name there.
    pub(super) elsewhere: BTreeMap<(u32, u32), u64>,
    /// Connection messages by the rank they state.
    pub(super) stated: BTreeMap<u32, u64>,
}

impl Votes {
    /// The rank that outweighs all others.
    pub(super) fn rank(&self) -> Option<Rank> {
        let stated = !self.stated.is_empty();
        let candidates = if stated { &self.stated } else { &self.envelopes };
        let (&rank, _) = candidates.iter().max_by_key(|&(rank, count)| (count, std::cmp::Reverse(rank)))?;
        let agreeing = [&self.envelopes, &self.stated].iter().filter_map(|votes| votes.get(&rank)).sum::<u64>();
        let all = self.envelopes.values().chain(self.stated.values()).sum::<u64>();
        let evidence = if stated { Evidence::Stated } else { Evidence::Envelopes };
        let disagreeing = all - agreeing;
        (agreeing >= disagreeing * CLEAR).then_some(Rank { rank, agreeing, disagreeing, evidence })
    }
}

/// Processes that exchange messages, directly or through others.
#[derive(Debug)]
pub(super) struct Component<'a> {
    pub(super) family: Family,
    /// How its tags are read.
    pub(super) layout: TagLayout,
    /// Connections, with the ends that send and receive.
    pub(super) connections: Vec<(Fitting<'a>, (End, End))>,
    /// What is known of each process.
    pub(super) votes: BTreeMap<End, Votes>,
    /// Their ranks, where votes are clear.
    pub(super) ranks: BTreeMap<End, Rank>,
    /// Ports of each process.
    pub(super) ports: BTreeMap<End, BTreeSet<Endpoint>>,
    /// Time of the first and of the last packet of its connections, nanoseconds since the epoch.
    pub(super) times_ns: (i64, i64),
    /// The release of NCCL that its messages show, where they show one.
    pub(super) release: Option<Release>,
}

impl Component<'_> {
    /// Ranks that are known, with their processes. A rank of two processes is known of neither.
    pub(super) fn processes_by_rank(&self) -> BTreeMap<u32, Vec<End>> {
        let mut by_rank: BTreeMap<u32, Vec<End>> = BTreeMap::new();
        for (process, rank) in &self.ranks {
            by_rank.entry(rank.rank).or_default().push(*process);
        }
        by_rank
    }

    /// Ranks that enough messages name, or that connection messages state: nothing but MPI has two of them.
    pub(super) fn strong_ranks(&self) -> impl Iterator<Item = u32> + '_ {
        let is_strong = |rank: &&Rank| rank.evidence == Evidence::Stated || rank.agreeing >= ENOUGH;
        self.ranks.values().filter(is_strong).map(|rank| rank.rank)
    }

    /// Communicators other than `MPI_COMM_WORLD` that its messages name.
    pub(super) fn contexts(&self) -> BTreeSet<u32> {
        self.votes.values().flat_map(|votes| votes.elsewhere.keys().map(|(context, _)| *context)).collect()
    }

    /// Messages of collective operations that the library names.
    pub(super) fn has_named_collectives(&self) -> bool {
        let mut classes = self
            .connections
            .iter()
            .filter_map(|(fit, _)| fit.connection.mpi.as_ref())
            .flat_map(|seen| seen.sums.iter().filter_map(|(class, _)| class.operation[self.layout as usize]));
        classes.any(|operation| !matches!(operation, Operation::PointToPoint | Operation::Collective))
    }
}

/// Sorts connections into components. Those whose tags cannot be read with a margin are listed apart.
pub(super) fn components<'a>(
    fitting: Vec<Fitting<'a>>,
    witnesses: &Witnesses<'_>,
    exchanges: &[Exchange],
    paired: &super::Pairs,
    processes: &mut Processes,
) -> (Vec<Component<'a>>, Vec<Connections<'a>>) {
    let with_ends = ends(fitting, witnesses, paired, processes);
    let mut sets = Sets::default();
    (0..processes.len()).for_each(|_| _ = sets.add());
    for (_, (from, to)) in &with_ends {
        sets.join(processes.process(*from), processes.process(*to));
    }
    let mut groups: BTreeMap<(End, Family), Connections<'a>> = BTreeMap::new();
    for (fit, (from, to)) in with_ends {
        let group = sets.of(processes.process(from));
        groups.entry((group, Family::of(fit.form))).or_default().push((fit, (from, to)));
    }
    let stated = stated(witnesses, exchanges, processes);
    let (mut known, mut unread) = (Vec::new(), Vec::new());
    for ((_, family), connections) in groups {
        let sides: Vec<_> = connections
            .iter()
            .map(|(fit, (from, to))| (*fit, (processes.process(*from), processes.process(*to))))
            .collect();
        match reading::layout(&sides) {
            Reading::Clear(layout) => known.push(component(family, layout, connections, &stated, processes)),
            Reading::Open(layouts) => unread.push((family, layouts, connections)),
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

/// How tags of a family are read at each port.
type LayoutsAt = BTreeMap<(Family, Endpoint), BTreeSet<TagLayout>>;

fn note_layout(layouts_at: &mut LayoutsAt, own: &Component<'_>) {
    for port in own.ports.values().flatten() {
        layouts_at.entry((own.family, *port)).or_default().insert(own.layout);
    }
}

/// The only layout of the components of a family that have a port in common with these connections: tags that read
/// alike in several layouts are read as those of their neighbors.
fn layout_around(
    layouts_at: &LayoutsAt,
    family: Family,
    connections: &[(Fitting<'_>, (End, End))],
) -> Option<TagLayout> {
    let keys = connections.iter().map(|(fit, _)| &fit.connection.key);
    let ports: BTreeSet<Endpoint> = keys.flat_map(|key| [key.src, key.dst]).collect();
    let around = ports.iter().filter_map(|port| layouts_at.get(&(family, *port)));
    let layouts: BTreeSet<TagLayout> = around.flatten().copied().collect();
    layouts.first().copied().filter(|_| layouts.len() == 1)
}

/// The ends of connections.
fn ends<'a>(
    fitting: Vec<Fitting<'a>>,
    witnesses: &Witnesses<'_>,
    paired: &super::Pairs,
    processes: &mut Processes,
) -> Connections<'a> {
    let mut of_nccl = nccl::Ends::default();
    let mut with_ends = Vec::new();
    for fit in fitting {
        let key = &fit.connection.key;
        let receiver = reading::receiver(key);
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
        if Family::of(fit.form) == Family::Nccl {
            let times_ns = fit.connection.times_ns;
            of_nccl.add(key.src, times_ns, from);
            of_nccl.add(key.dst, times_ns, to);
        }
        with_ends.push((fit, (from, to)));
    }
    of_nccl.join(witnesses.nccl, processes);
    with_ends
}

/// Ranks that connection messages state, by process.
fn stated(
    witnesses: &Witnesses<'_>,
    exchanges: &[Exchange],
    processes: &mut Processes,
) -> BTreeMap<End, BTreeMap<u32, u64>> {
    let mut stated: BTreeMap<End, BTreeMap<u32, u64>> = BTreeMap::new();
    let mut state = |processes: &mut Processes, queue_pair: QueuePair, rank: u32| {
        let Some(end) = processes.find(queue_pair) else { return };
        *stated.entry(processes.process(end)).or_default().entry(rank).or_default() += 1;
    };
    for exchange in exchanges {
        let Some(ranks) = exchange.stated else { continue };
        state(processes, exchange.requester, ranks.requester);
        state(processes, exchange.replier, ranks.replier);
    }
    for said in witnesses.introductions {
        if let Some(rank) = said.world_rank {
            state(processes, said.from, rank);
        }
    }
    stated
}

/// A component whose tags are read as those of a job that has its ports. Its ranks are not believed: they would be of a
/// reading that nothing here supports.
pub(super) fn read_as<'a>(
    family: Family,
    layout: TagLayout,
    connections: Vec<(Fitting<'a>, (End, End))>,
    processes: &mut Processes,
) -> Component<'a> {
    let own = component(family, layout, connections, &BTreeMap::new(), processes);
    Component { ranks: BTreeMap::new(), ..own }
}

fn component<'a>(
    family: Family,
    layout: TagLayout,
    connections: Vec<(Fitting<'a>, (End, End))>,
    stated: &BTreeMap<End, BTreeMap<u32, u64>>,
    processes: &mut Processes,
) -> Component<'a> {
    let mut votes: BTreeMap<End, Votes> = BTreeMap::new();
    let mut ports: BTreeMap<End, BTreeSet<Endpoint>> = BTreeMap::new();
    let mut times_ns = (i64::MAX, i64::MIN);
    for (fit, (from, to)) in &connections {
        let (key, times) = (&fit.connection.key, fit.connection.times_ns);
        times_ns = (times_ns.0.min(times.0), times_ns.1.max(times.1));
        let (from, to) = (processes.process(*from), processes.process(*to));
        ports.entry(from).or_default().insert(key.src);
        ports.entry(to).or_default().insert(key.dst);
        // The receiver may never send: it is a process all the same.
        votes.entry(to).or_default();
        let sender = votes.entry(from).or_default();
        for (communicator, rank, count) in fit.connection.votes().of(fit.form, layout) {
            match communicator {
                Communicator::World => *sender.envelopes.entry(rank).or_default() += count,
                Communicator::Context(context) => *sender.elsewhere.entry((context, rank)).or_default() += count,
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
    Component { family, layout, connections, votes, ranks, ports, times_ns, release }
}
