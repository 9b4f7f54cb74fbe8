//! Components -> jobs.
//!
//! Where connection messages were captured, a component is a whole job: its processes are known. Where they were not,
//! each connection is a component of its own, and those of one job are put together by their ranks:
//!
//! ```text
//!             n1          n2          n3
//! a:          rank 0 <--> rank 1                  a and b: rank 0 is at n1 in both
//! b:          rank 0 <-------------> rank 2       one job, as nothing speaks against it
//! c:          rank 0 <--> rank 1                  c cannot be in the job of a: it has this connection already
//! ```
//! Two components are of different jobs where a rank is at different nodes, where connection messages name different
//! processes as one rank, or where both connect the same two ranks and the library has one queue pair for that. If a
//! component may be of several jobs, its job is unknown: jobs are never put together on a guess.

use super::component::{Component, Connections};
use super::gathering::Gathering;
use super::outline::{MAX_COMPARED, Nodes, Outline, common, is_dense};
use super::processes::Processes;
use super::reading::Family;
use ibscope_parsers::Endpoint;
use ibscope_parsers::mpi::TagLayout;
use ibscope_parsers::mpi::nccl::Release;
use std::collections::{BTreeMap, BTreeSet};

/// Share of the ranks up to the highest that are seen of a job of MPICH without collective operations, in percent. Any
/// program may fill UCX's tags as MPICH does, with a number of its own where the rank stands.
const DENSE_PERCENT: usize = 50;

/// Components of one job, and those that may be of several.
#[derive(Debug, Default)]
pub(super) struct Formed<'a> {
    pub(super) jobs: Vec<Job<'a>>,
    /// Components of MPI whose job is unknown, with the reason.
    pub(super) unclear: Vec<(Component<'a>, String)>,
    /// Components that do not prove to be MPI, with the reason.
    pub(super) refused: Vec<(Component<'a>, String)>,
}

/// A job.
#[derive(Debug)]
pub(super) struct Job<'a> {
    pub(super) components: Vec<Component<'a>>,
    pub(super) doubts: Doubts,
}

/// Why it is open whether a job is one and whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Doubts {
    /// Another job has the same ranks at other ports at the same time: it may be a part.
    pub(super) part: bool,
    /// What fits, and no connection messages, put its connections together: it may be several.
    pub(super) several: bool,
    /// What a port's queue pairs of NCCL show does not look like one process: it may be several.
    pub(super) processes: bool,
}

impl Job<'_> {
    pub(super) fn family(&self) -> Option<(Family, TagLayout)> {
        self.components.first().map(|own| (own.family, own.layout))
    }

    pub(super) fn times_ns(&self) -> (i64, i64) {
        let times = self.components.iter().map(|own| own.times_ns);
        times.fold((i64::MAX, i64::MIN), |sum, own| (sum.0.min(own.0), sum.1.max(own.1)))
    }

    /// Ports of its processes.
    pub(super) fn ports(&self) -> BTreeSet<Endpoint> {
        self.components.iter().flat_map(|own| own.ports.values().flatten().copied()).collect()
    }

    /// All ranks up to the highest are known, and no process that speaks is without one.
    pub(super) fn is_whole(&self) -> bool {
        let is_silent = |own: &Component<'_>| {
            let speaks = |votes: &super::component::Votes| !votes.envelopes.is_empty() || !votes.elsewhere.is_empty();
            own.votes.iter().all(|(process, votes)| own.ranks.contains_key(process) || !speaks(votes))
        };
        is_dense(self.ranks(), 100) && self.components.iter().all(is_silent)
    }

    fn ranks(&self) -> BTreeSet<u32> {
        self.components.iter().flat_map(|own| own.ranks.values().map(|rank| rank.rank)).collect()
    }
}

/// Puts components together. Those without a known rank are not asked.
pub(super) fn form<'a>(components: Vec<Component<'a>>, nodes: &Nodes, processes: &mut Processes) -> Formed<'a> {
    let mut outlined: Vec<(Outline, Component<'a>)> =
        components.into_iter().map(|own| (Outline::new(&own, nodes, processes), own)).collect();
    outlined.sort_by_key(|(_, own)| own.times_ns);
    let mut formed = Formed::default();
    // Whole jobs first: what is left is part of one of them, or of none.
    let (mut whole, parts): (Vec<_>, Vec<_>) = outlined.into_iter().partition(|(outline, _)| outline.is_whole());
    let rivals = rivals(&whole);
    for at in rivals.into_iter().rev() {
        formed.unclear.push((whole.remove(at).1, several(2)));
    }
    let mut gathering = Gathering::default();
    for (outline, component) in whole.into_iter().chain(parts) {
        if let Some((component, jobs)) = gathering.add(outline, component) {
            formed.unclear.push((component, several(jobs)));
        }
    }
    let mut jobs = gathering.finish();
    complete(&mut jobs);
    let parts = part_of_several(&jobs);
    let twins = twins(&jobs);
    let doubtful = processes.doubtful();
    for (at, (_, components)) in jobs.into_iter().enumerate() {
        if let Some(count) = parts.get(&at) {
            formed.unclear.extend(components.into_iter().map(|own| (own, several(*count))));
            continue;
        }
        let doubts = Doubts {
            part: twins.contains(&at),
            several: by_ranks(&components, processes),
            processes: components.iter().flat_map(|own| own.votes.keys()).any(|process| doubtful.contains(process)),
        };
        let job = Job { components, doubts };
        match refusal(&job) {
            None => formed.jobs.push(job),
            Some(reason) => formed.refused.extend(job.components.into_iter().map(|own| (own, reason.clone()))),
        }
    }
    formed
}

/// Components that are whole, of which only one can be part of a larger one: which of them is, and which is a job of its
/// own, does not show.
fn rivals(whole: &[(Outline, Component<'_>)]) -> BTreeSet<usize> {
    if whole.len() > MAX_COMPARED {
        return parts_of_larger(whole);
    }
    let joins = |one: &Outline, larger: &Outline| {
        larger.ports.len() > one.ports.len() && larger.touches(one) && !larger.contradicts(one)
    };
    let joins: Vec<Vec<bool>> =
        whole.iter().map(|(one, _)| whole.iter().map(|(larger, _)| joins(one, larger)).collect()).collect();
    let mut rivals = BTreeSet::new();
    for (at, (one, _)) in whole.iter().enumerate() {
        for (other_at, (other, _)) in whole.iter().enumerate().skip(at + 1) {
            let is_of_one = joins[at].iter().zip(&joins[other_at]).any(|(one, other)| *one && *other);
            if is_of_one && one.ports.keys().eq(other.ports.keys()) && one.doubles(other) {
                rivals.extend([at, other_at]);
            }
        }
    }
    rivals
}

/// Components that have a rank at a port in common with a larger one.
fn parts_of_larger(whole: &[(Outline, Component<'_>)]) -> BTreeSet<usize> {
    let places = |own: &Outline| -> Vec<(u32, Endpoint)> {
        own.ports.iter().flat_map(|(rank, ports)| ports.iter().map(|port| (*rank, *port))).collect()
    };
    let mut most: BTreeMap<(u32, Endpoint), usize> = BTreeMap::new();
    for (own, _) in whole {
        for place in places(own) {
            let most = most.entry(place).or_default();
            *most = own.ports.len().max(*most);
        }
    }
    let is_part = |own: &Outline| places(own).iter().any(|place| most.get(place) > Some(&own.ports.len()));
    whole.iter().enumerate().filter(|(_, (own, _))| is_part(own)).map(|(at, _)| at).collect()
}

fn several(jobs: usize) -> String {
    format!("{jobs} jobs may own this queue pair: their connection messages would show which; capture from their start")
}

/// Two sets of components may be one job: no rank in common, whole together.
fn fits(a: &Outline, b: &Outline) -> bool {
    let highest = a.ports.keys().next_back().max(b.ports.keys().next_back()).copied().unwrap_or(0);
    a.key == b.key
        && a.ports.len() + b.ports.len() == highest as usize + 1
        && common(&a.ports, &b.ports).next().is_none()
        && !a.contradicts(b)
}

/// Jobs of which another one may be a part: on several rails, of which no connection message was captured.
fn twins(jobs: &[(Outline, Vec<Component<'_>>)]) -> BTreeSet<usize> {
    let may_be = |at: &usize| {
        let mut others = jobs.iter().enumerate().filter(|(other, _)| other != at);
        others.any(|(_, (outline, _))| jobs[*at].0.may_be_twin(outline))
    };
    (0..jobs.len()).filter(|at| jobs.len() > MAX_COMPARED || may_be(at)).collect()
}

/// Ranks that fit alone say that the components are one job: of two jobs with other pairs of ranks on the same nodes they
/// fit as well.
fn by_ranks(components: &[Component<'_>], processes: &mut Processes) -> bool {
    let mut ends = components.iter().flat_map(|own| own.ranks.keys());
    components.len() > 1 && ends.any(|end| !processes.is_named(*end))
}

/// Jobs that are whole only together with one of several others, and how many these are.
fn part_of_several(jobs: &[(Outline, Vec<Component<'_>>)]) -> BTreeMap<usize, usize> {
    let others = |at: usize| {
        let fitting = || jobs.iter().filter(|(outline, _)| fits(&jobs[at].0, outline)).count();
        if jobs.len() > MAX_COMPARED { jobs.len() } else { fitting() }
    };
    let parts = (0..jobs.len()).filter(|&at| !jobs[at].0.is_whole());
    parts.map(|at| (at, others(at))).filter(|(_, others)| *others > 1).collect()
}

/// Joins jobs that have no rank in common and are whole only together, where each fits one other alone.
fn complete(jobs: &mut Vec<(Outline, Vec<Component<'_>>)>) {
    while jobs.len() <= MAX_COMPARED {
        // Whether there are two is enough to know.
        let partners = |at: usize| -> Vec<usize> {
            let fitting = (0..jobs.len()).filter(|&other| other != at && fits(&jobs[at].0, &jobs[other].0));
            fitting.take(2).collect()
        };
        let pair = (0..jobs.len()).find_map(|at| match partners(at)[..] {
            [other] if partners(other) == [at] => Some((at.min(other), at.max(other))),
            _ => None,
        });
        let Some((at, other)) = pair else { return };
        let (outline, components) = jobs.remove(other);
        jobs[at].0.add(&outline);
        jobs[at].1.extend(components);
    }
}

/// Why a set of components is no MPI job, if it is none.
fn refusal(job: &Job<'_>) -> Option<String> {
    let strong: BTreeSet<u32> = job.components.iter().flat_map(Component::strong_ranks).collect();
    if strong.len() < 2 {
        return Some("fewer than two processes send enough messages that name their rank".to_owned());
    }
    let ranks = job.ranks();
    let is_mpich = job.family() == Some((Family::Ucx, TagLayout::Mpich));
    if is_mpich
        && !is_dense(ranks.iter().copied(), DENSE_PERCENT)
        && !job.components.iter().any(Component::has_named_collectives)
    {
        let highest = ranks.last().copied().unwrap_or(0);
        return Some(format!(
            "tags read as MPICH's name {} of {} ranks and no collective operation: this may be another UCX program",
            ranks.len(),
            u64::from(highest) + 1
        ));
    }
    None
}

/// What of a job decides which connections without ranks belong to it.
struct Place {
    key: Option<(Family, TagLayout)>,
    release: Option<Release>,
    ports: BTreeSet<Endpoint>,
    contexts: BTreeSet<u32>,
}

impl Place {
    fn new(job: &Job<'_>) -> Self {
        let contexts = job.components.iter().flat_map(Component::contexts).collect();
        let release = job.components.iter().find_map(|own| own.release);
        Self { key: job.family(), release, ports: job.ports(), contexts }
    }

    /// The component has a port of the job, and speaks of communicators of the job alone. Messages of other programs
    /// may parse as UCX's, on the same ports: where they name no communicator of the job, connection messages have to
    /// name the processes.
    fn takes(
        &self,
        own: &Component<'_>,
        ports: &BTreeSet<Endpoint>,
        contexts: &BTreeSet<u32>,
        is_of_library: bool,
    ) -> bool {
        let is_known = !contexts.is_empty() && contexts.is_subset(&self.contexts);
        self.key == Some((own.family, own.layout))
            && self.release.zip(own.release).is_none_or(|(job, own)| job == own)
            && if is_known { !ports.is_disjoint(&self.ports) } else { is_of_library && ports.is_subset(&self.ports) }
    }

    /// Connections whose tags read alike in all layouts are between ports of the job.
    fn spans(&self, family: Option<Family>, ports: &BTreeSet<Endpoint>) -> bool {
        self.key.map(|key| key.0) == family && ports.is_subset(&self.ports)
    }
}

/// Gives components that name no rank, and those whose tags cannot be read alone, to the one job of their library that
/// they fit. Returns the queue pairs that no job takes, with the reason.
pub(super) fn attach<'a>(
    jobs: &mut [Job<'a>],
    silent: Vec<Component<'a>>,
    unread: Vec<Connections<'a>>,
    processes: &mut Processes,
) -> Vec<(Vec<crate::model::QueuePair>, String)> {
    let mut unclaimed = Vec::new();
    let places: Vec<Place> = jobs.iter().map(Place::new).collect();
    let mut at_port: BTreeMap<Endpoint, Vec<usize>> = BTreeMap::new();
    for (at, place) in places.iter().enumerate() {
        place.ports.iter().for_each(|port| at_port.entry(*port).or_default().push(at));
    }
    // The only job at these ports that takes what is there, else how many may: where too many are there to ask, all of them.
    let only = |ports: &BTreeSet<Endpoint>, takes: &dyn Fn(&Place) -> bool| -> Result<usize, usize> {
        let lists = ports.iter().filter_map(|port| at_port.get(port));
        if let Some(crowd) = lists.clone().map(Vec::len).find(|count| *count > MAX_COMPARED) {
            return Err(crowd);
        }
        let near: BTreeSet<usize> = lists.flatten().copied().collect();
        let takers: Vec<usize> = near.into_iter().filter(|at| takes(&places[*at])).collect();
        if let [at] = takers[..] { Ok(at) } else { Err(takers.len()) }
    };
    for own in silent {
        let ports: BTreeSet<Endpoint> = own.ports.values().flatten().copied().collect();
        let contexts = own.contexts();
        let is_of_library = own.family != Family::Ucx || own.ports.keys().all(|process| processes.is_named(*process));
        match only(&ports, &|place| place.takes(&own, &ports, &contexts, is_of_library)) {
            Ok(at) => {
                jobs[at].doubts.several |= own.ports.keys().any(|process| !processes.is_named(*process));
                jobs[at].components.push(own);
            }
            Err(takers) => unclaimed.push(refused(&own.connections, takers, processes)),
        }
    }
    for connections in unread {
        let keys = connections.iter().map(|(fit, _)| &fit.connection.key);
        let ports = keys.flat_map(|key| [key.src, key.dst]).collect();
        let family = connections.first().map(|(fit, _)| Family::of(fit.form));
        let taker = only(&ports, &|place| place.spans(family, &ports));
        match (taker, taker.ok().and_then(|at| places[at].key)) {
            (Ok(at), Some((family, layout))) => {
                jobs[at].components.push(super::component::read_as(family, layout, connections, processes));
            }
            (Ok(_), None) => unclaimed.push(refused(&connections, 0, processes)),
            (Err(takers), _) => unclaimed.push(refused(&connections, takers, processes)),
        }
    }
    unclaimed
}

fn refused(
    connections: &Connections<'_>,
    takers: usize,
    processes: &Processes,
) -> (Vec<crate::model::QueuePair>, String) {
    let ends = connections.iter().flat_map(|(_, (from, to))| [*from, *to]);
    let ends = ends.filter_map(|end| processes.queue_pair(end)).collect();
    let reason = match takers {
        0 => "its messages name no rank, and nothing shows that they are of a job at its ports".to_owned(),
        count => several(count),
    };
    (ends, reason)
}

#[cfg(test)]
mod tests {
    use super::super::component::{Evidence, Rank};
    use super::super::processes::End;
    use super::*;
    use ibscope_parsers::Lid;

    /// Processes with these ranks, each at the port of this number.
    fn component(processes: &mut Processes, ranks: &[(u32, u16)]) -> (Outline, Component<'static>) {
        let ends: Vec<(End, u32, Endpoint)> = ranks
            .iter()
            .map(|(rank, lid)| (processes.unknown_sender(), *rank, Endpoint::from_lid(Lid(*lid))))
            .collect();
        let known = |rank| Rank { rank, agreeing: 3, disagreeing: 0, evidence: Evidence::Envelopes };
        let component = Component {
            family: Family::Ucx,
            layout: TagLayout::OpenMpi,
            connections: Vec::new(),
            votes: BTreeMap::new(),
            ranks: ends.iter().map(|(end, rank, _)| (*end, known(*rank))).collect(),
            ports: ends.iter().map(|(end, _, port)| (*end, BTreeSet::from([*port]))).collect(),
            times_ns: (0, 1),
            release: None,
        };
        (Outline::new(&component, &Nodes::new(&BTreeMap::new()), processes), component)
    }

    /// So many jobs of ranks 0 and 5, which are not whole, each at two ports of its own; and behind them these.
    fn jobs(count: usize, last: &[&[(u32, u16)]]) -> Vec<(Outline, Vec<Component<'static>>)> {
        let mut processes = Processes::default();
        let parts = (0..count - last.len()).map(|job| [(0, 100 + 2 * job as u16), (5, 101 + 2 * job as u16)]);
        let ranks: Vec<Vec<(u32, u16)>> = parts.map(Vec::from).chain(last.iter().map(|ranks| ranks.to_vec())).collect();
        let all = ranks.iter().map(|ranks| component(&mut processes, ranks));
        all.map(|(outline, component)| (outline, vec![component])).collect()
    }

    #[test]
    fn jobs_beyond_those_that_are_compared_are_in_doubt() {
        for (count, in_doubt) in [(MAX_COMPARED, 0), (MAX_COMPARED + 1, MAX_COMPARED + 1)] {
            let jobs = jobs(count, &[]);
            assert_eq!(twins(&jobs).len(), in_doubt);
            let parts = part_of_several(&jobs);
            assert_eq!((parts.len(), parts.values().all(|others| *others == count)), (in_doubt, true));
        }
    }

    /// Ranks 0 and 1 of the one and 2 and 3 of the other are whole together.
    #[test]
    fn jobs_beyond_those_that_are_compared_are_not_put_together() {
        for (count, left) in [(MAX_COMPARED, MAX_COMPARED - 1), (MAX_COMPARED + 1, MAX_COMPARED + 1)] {
            let mut jobs = jobs(count, &[&[(0, 1), (1, 2)], &[(2, 3), (3, 4)]]);
            complete(&mut jobs);
            assert_eq!(jobs.len(), left);
        }
    }

    /// The first has a rank at a port in common with the second, which is larger: it may be a part of that.
    #[test]
    fn of_more_components_than_are_compared_those_that_touch_a_larger_one_are_unclear() {
        let mut processes = Processes::default();
        let mut whole =
            vec![component(&mut processes, &[(0, 1), (1, 2)]), component(&mut processes, &[(0, 1), (1, 3), (2, 4)])];
        assert_eq!(rivals(&whole), BTreeSet::new());
        while whole.len() <= MAX_COMPARED {
            let lid = 100 + 2 * whole.len() as u16;
            whole.push(component(&mut processes, &[(0, lid), (1, lid + 1)]));
        }
        assert_eq!(rivals(&whole), BTreeSet::from([0]));
    }
}
