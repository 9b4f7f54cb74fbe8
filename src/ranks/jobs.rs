//! Jobs, formed from components.
//!
//! If connection messages were captured, a component is a whole job, because its processes are
//! known. If not, each connection is a component, and the components of a job are joined by their
//! ranks:
//!
//! ```text
//!             n1          n2          n3
//! a:          rank 0 <--> rank 1                  a and b: rank 0 is at n1 in both,
//! b:          rank 0 <-------------> rank 2       and nothing contradicts, so they are one job
//! c:          rank 0 <--> rank 1                  c is another job: a has this connection already
//! ```
//! Two components belong to different jobs if a rank is on different nodes, if connection messages
//! name different processes for one rank, or if both connect the same two ranks and the library
//! uses one queue pair per pair. Invariant: a component that may belong to several jobs is assigned
//! to none.

use super::component::{Component, ComponentConnections, RankEvidence};
use super::component_sets::ComponentSets;
use super::outline::{MAX_COMPARED, NodePorts, Outline, common, is_dense};
use super::processes::{EndId, Processes};
use super::tag_layout::Family;
use crate::model::arithmetic::gcd;
use ibscope_parsers::Endpoint;
use ibscope_parsers::mpi::TagLayout;
use ibscope_parsers::mpi::nccl::Release;
use std::collections::{BTreeMap, BTreeSet};

/// Share of the ranks up to the highest that must appear in a job without collective operations, in
/// percent. Any program may fill the tags of UCX or libfabric, with another number in place of the rank.
const DENSE_PERCENT: usize = 50;

/// Jobs, and components without a job.
#[derive(Debug, Default)]
pub(super) struct JobGrouping<'a> {
    pub(super) jobs: Vec<InferredJob<'a>>,
    /// MPI components that may belong to several jobs, with the reason.
    pub(super) unclear: Vec<(Component<'a>, String)>,
    /// Components without proof that they are MPI, with the reason.
    pub(super) not_mpi: Vec<(Component<'a>, String)>,
}

/// A job.
#[derive(Debug)]
pub(super) struct InferredJob<'a> {
    pub(super) components: Vec<Component<'a>>,
    pub(super) uncertainty: JobUncertainty,
}

/// Reasons why a job may not be exactly one job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct JobUncertainty {
    /// Another job has the same ranks at other ports at the same time: the job may be part of a
    /// larger one.
    pub(super) may_be_part: bool,
    /// Consistent ranks alone join its connections, without connection messages: it may be several
    /// jobs.
    pub(super) may_be_several: bool,
    /// The NCCL queue pairs of a port may belong to several processes: it may be several jobs.
    pub(super) has_doubtful_processes: bool,
}

impl InferredJob<'_> {
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

    /// True if all ranks up to the highest are known and every process that sends envelopes has a
    /// rank.
    pub(super) fn is_whole(&self) -> bool {
        let is_silent = |own: &Component<'_>| {
            let sends_envelopes = |votes: &super::component::RankVotes| {
                !votes.envelopes.is_empty() || !votes.other_communicators.is_empty()
            };
            own.votes.iter().all(|(process, votes)| own.ranks.contains_key(process) || !sends_envelopes(votes))
        };
        is_dense(self.ranks(), 100) && self.components.iter().all(is_silent)
    }

    fn ranks(&self) -> BTreeSet<u32> {
        self.components.iter().flat_map(|own| own.ranks.values().map(|rank| rank.rank)).collect()
    }
}

/// Groups components with known ranks into jobs.
pub(super) fn form<'a>(
    components: Vec<Component<'a>>,
    nodes: &NodePorts,
    processes: &mut Processes,
) -> JobGrouping<'a> {
    let mut formed = JobGrouping::default();
    let (components, same): (Vec<_>, Vec<_>) =
        components.into_iter().partition(|own| !connects_one_rank(own, processes));
    let reason = "both ends of a connection claim the same rank: the program may not be MPI";
    formed.not_mpi.extend(same.into_iter().map(|own| (own, reason.to_owned())));
    let mut outlined: Vec<(Outline, Component<'a>)> =
        components.into_iter().map(|own| (Outline::new(&own, nodes, processes), own)).collect();
    outlined.sort_by_key(|(_, own)| own.times_ns);
    // Whole jobs first: each part then joins one of them, or none.
    let (mut whole, parts): (Vec<_>, Vec<_>) = outlined.into_iter().partition(|(outline, _)| outline.is_whole());
    let competing = competing_components(&whole);
    for at in competing.into_iter().rev() {
        formed.unclear.push((whole.remove(at).1, several_jobs_reason(2)));
    }
    let mut sets = ComponentSets::default();
    for (outline, component) in whole.into_iter().chain(parts) {
        if let Some((component, jobs)) = sets.add(outline, component) {
            formed.unclear.push((component, several_jobs_reason(jobs)));
        }
    }
    let mut jobs = sets.finish();
    complete(&mut jobs);
    let parts = part_of_several(&jobs);
    let may_be_parts = possible_parts(&jobs);
    let doubtful = processes.doubtful();
    for (at, (_, components)) in jobs.into_iter().enumerate() {
        if let Some(count) = parts.get(&at) {
            formed.unclear.extend(components.into_iter().map(|own| (own, several_jobs_reason(*count))));
            continue;
        }
        let uncertainty = JobUncertainty {
            may_be_part: may_be_parts.contains(&at),
            may_be_several: by_ranks(&components, processes),
            has_doubtful_processes: components
                .iter()
                .flat_map(|own| own.votes.keys())
                .any(|process| doubtful.contains(process)),
        };
        let job = InferredJob { components, uncertainty };
        match not_mpi_reason(&job) {
            None => formed.jobs.push(job),
            Some(reason) => formed.not_mpi.extend(job.components.into_iter().map(|own| (own, reason.clone()))),
        }
    }
    formed
}

/// True if two processes that no connection message names have the same rank and exchange messages: a
/// rank does not send to itself over the wire.
fn connects_one_rank(component: &Component<'_>, processes: &mut Processes) -> bool {
    component.family != Family::Nccl
        && component.connections.iter().any(|(_, ends)| {
            let [from, to] = [ends.0, ends.1].map(|end| processes.process(end));
            let rank = |process: EndId| component.ranks.get(&process).map(|rank| rank.rank);
            from != to
                && rank(from).is_some_and(|own| rank(to) == Some(own))
                && ![from, to].iter().any(|process| processes.is_named(*process))
        })
}

/// Whole components that compete: only one of them can be part of a larger component, and the
/// capture does not show which one.
fn competing_components(whole: &[(Outline, Component<'_>)]) -> BTreeSet<usize> {
    if whole.len() > MAX_COMPARED {
        return parts_of_larger(whole);
    }
    let joins = |one: &Outline, larger: &Outline| {
        larger.ports.len() > one.ports.len() && larger.touches(one) && !larger.contradicts(one)
    };
    let joins: Vec<Vec<bool>> =
        whole.iter().map(|(one, _)| whole.iter().map(|(larger, _)| joins(one, larger)).collect()).collect();
    let mut competing = BTreeSet::new();
    for (at, (one, _)) in whole.iter().enumerate() {
        for (other_at, (other, _)) in whole.iter().enumerate().skip(at + 1) {
            let is_of_one = joins[at].iter().zip(&joins[other_at]).any(|(one, other)| *one && *other);
            if is_of_one && one.ports.keys().eq(other.ports.keys()) && one.has_conflicting_link(other) {
                competing.extend([at, other_at]);
            }
        }
    }
    competing
}

/// Components that share a rank at a port with a larger component.
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

fn several_jobs_reason(jobs: usize) -> String {
    format!(
        "{jobs} jobs may own this queue pair: only their connection messages show which; start the capture before the jobs"
    )
}

/// True if two sets of components may be one job: they have no common rank, and together all ranks.
fn may_be_one_job(a: &Outline, b: &Outline) -> bool {
    let highest = a.ports.keys().next_back().max(b.ports.keys().next_back()).copied().unwrap_or(0);
    a.key == b.key
        && a.ports.len() + b.ports.len() == highest as usize + 1
        && common(&a.ports, &b.ports).next().is_none()
        && !a.contradicts(b)
}

/// Jobs that may be part of another one: a job on several rails whose connection messages were not
/// captured.
fn possible_parts(jobs: &[(Outline, Vec<Component<'_>>)]) -> BTreeSet<usize> {
    let may_be = |at: &usize| {
        let mut others = jobs.iter().enumerate().filter(|(other, _)| other != at);
        others.any(|(_, (outline, _))| jobs[*at].0.may_be_same_job(outline))
    };
    (0..jobs.len()).filter(|at| jobs.len() > MAX_COMPARED || may_be(at)).collect()
}

/// True if consistent ranks alone join the components. Two jobs with different pairs of ranks on
/// the same nodes would be consistent as well.
fn by_ranks(components: &[Component<'_>], processes: &mut Processes) -> bool {
    let mut ends = components.iter().flat_map(|own| own.ranks.keys());
    components.len() > 1 && ends.any(|end| !processes.is_named(*end))
}

/// Jobs that are whole only together with one of several others, with the number of these.
fn part_of_several(jobs: &[(Outline, Vec<Component<'_>>)]) -> BTreeMap<usize, usize> {
    let others = |at: usize| {
        let candidates = || jobs.iter().filter(|(outline, _)| may_be_one_job(&jobs[at].0, outline)).count();
        if jobs.len() > MAX_COMPARED { jobs.len() } else { candidates() }
    };
    let parts = (0..jobs.len()).filter(|&at| !jobs[at].0.is_whole());
    parts.map(|at| (at, others(at))).filter(|(_, others)| *others > 1).collect()
}

/// Joins two jobs without a common rank that are whole only together, if each is the only choice
/// for the other.
fn complete(jobs: &mut Vec<(Outline, Vec<Component<'_>>)>) {
    while jobs.len() <= MAX_COMPARED {
        // Two partners are enough to decide.
        let partners = |at: usize| -> Vec<usize> {
            let candidates =
                (0..jobs.len()).filter(|&other| other != at && may_be_one_job(&jobs[at].0, &jobs[other].0));
            candidates.take(2).collect()
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

/// The reason why a set of components is not an MPI job, if it is not.
fn not_mpi_reason(job: &InferredJob<'_>) -> Option<String> {
    let strong: BTreeSet<u32> = job.components.iter().flat_map(Component::strong_ranks).collect();
    // A receiver of NCCL names the sender only, so two nodes that send one way show one rank.
    let fills_elements = job.components.iter().any(|own| own.fills_elements);
    if strong.len() < 2 && !fills_elements {
        return Some("fewer than two processes send enough messages that name their rank".to_owned());
    }
    let is_stated = |own: &Component<'_>| own.ranks.values().any(|rank| rank.evidence == RankEvidence::Stated);
    if job.components.iter().any(|own| own.has_named_collectives() || is_stated(own)) {
        return None;
    }
    job.family().and_then(|(family, layout)| other_numbers_reason(family, layout, &job.ranks()))
}

/// The reason why the ranks of messages without collective operations are probably other numbers of a
/// program that is not MPI, or of an MPI library with another tag layout.
fn other_numbers_reason(family: Family, layout: TagLayout, ranks: &BTreeSet<u32>) -> Option<String> {
    let name = match family {
        Family::Ucx | Family::Rxm => layout.name(),
        Family::Mvapich2 => "MVAPICH2",
        // Their headers have more fields that must be consistent.
        Family::Ob1 | Family::Nccl => return None,
    };
    let (count, all) = (ranks.len(), u64::from(ranks.last().copied().unwrap_or(0)) + 1);
    let factor = ranks.iter().fold(0, |factor, rank| gcd(factor, (*rank).into()));
    let what = if !is_dense(ranks.iter().copied(), DENSE_PERCENT) {
        format!("name only {count} of {all} ranks")
    } else if factor > 1 {
        format!("name only ranks that are multiples of {factor}")
    } else if layout == TagLayout::OpenMpi2 {
        "have the layout of a release before 2018".to_owned()
    } else {
        return None;
    };
    Some(format!(
        "read as messages of {name}, the messages {what}, and none is of a collective operation: the program may not be MPI, or \
         may use other tags; start the capture before the job"
    ))
}

/// The properties of a job by which components without ranks are assigned.
struct JobScope {
    key: Option<(Family, TagLayout)>,
    release: Option<Release>,
    ports: BTreeSet<Endpoint>,
    contexts: BTreeSet<u32>,
}

impl JobScope {
    fn new(job: &InferredJob<'_>) -> Self {
        let contexts = job.components.iter().flat_map(Component::contexts).collect();
        let release = job.components.iter().find_map(|own| own.release);
        Self { key: job.family(), release, ports: job.ports(), contexts }
    }

    /// True if the component has a port of the job and uses only communicators of the job. Messages
    /// of other programs at the same ports may parse as UCX messages. So without a known
    /// communicator, connection messages must name the processes, and all ports must be ports of
    /// the job.
    fn accepts(
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

    /// True if connections with an ambiguous tag layout lie between ports of the job.
    fn spans(&self, family: Option<Family>, ports: &BTreeSet<Endpoint>) -> bool {
        self.key.map(|key| key.0) == family && ports.is_subset(&self.ports)
    }
}

/// Assigns components without ranks, and connections without a clear tag layout, to the only job of
/// their library that accepts them. Returns the queue pairs of the others, with the reason.
pub(super) fn attach<'a>(
    jobs: &mut [InferredJob<'a>],
    silent: Vec<Component<'a>>,
    unread: Vec<ComponentConnections<'a>>,
    processes: &mut Processes,
) -> Vec<(Vec<crate::model::QueuePair>, String)> {
    let mut unclaimed = Vec::new();
    let places: Vec<JobScope> = jobs.iter().map(JobScope::new).collect();
    let mut at_port: BTreeMap<Endpoint, Vec<usize>> = BTreeMap::new();
    for (at, place) in places.iter().enumerate() {
        place.ports.iter().for_each(|port| at_port.entry(*port).or_default().push(at));
    }
    // The only job at these ports that `takes` accepts, otherwise the number of candidates. With
    // too many jobs at a port, all of them count as candidates.
    let only = |ports: &BTreeSet<Endpoint>, takes: &dyn Fn(&JobScope) -> bool| -> Result<usize, usize> {
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
        match only(&ports, &|place| place.accepts(&own, &ports, &contexts, is_of_library)) {
            Ok(at) => {
                jobs[at].uncertainty.may_be_several |= own.ports.keys().any(|process| !processes.is_named(*process));
                jobs[at].components.push(own);
            }
            Err(takers) => unclaimed.push(unclaimed_queue_pairs(&own.connections, takers, processes)),
        }
    }
    for connections in unread {
        let keys = connections.iter().map(|(found, _)| &found.connection.key);
        let ports = keys.flat_map(|key| [key.src, key.dst]).collect();
        let family = connections.first().map(|(found, _)| Family::of(found.stack));
        let taker = only(&ports, &|place| place.spans(family, &ports));
        match (taker, taker.ok().and_then(|at| places[at].key)) {
            (Ok(at), Some((family, layout))) => {
                jobs[at].components.push(super::component::component_with_layout(
                    family,
                    layout,
                    connections,
                    processes,
                ));
            }
            (Ok(_), None) => unclaimed.push(unclaimed_queue_pairs(&connections, 0, processes)),
            (Err(takers), _) => unclaimed.push(unclaimed_queue_pairs(&connections, takers, processes)),
        }
    }
    unclaimed
}

fn unclaimed_queue_pairs(
    connections: &ComponentConnections<'_>,
    takers: usize,
    processes: &Processes,
) -> (Vec<crate::model::QueuePair>, String) {
    let ends = connections.iter().flat_map(|(_, (from, to))| [*from, *to]);
    let ends = ends.filter_map(|end| processes.queue_pair(end)).collect();
    let reason = match takers {
        0 => {
            "the messages of the queue pair name no rank, and no evidence shows to which of the jobs at the same ports \
              they belong"
                .to_owned()
        }
        count => several_jobs_reason(count),
    };
    (ends, reason)
}

#[cfg(test)]
mod tests {
    use super::super::outline::fixture::component;
    use super::*;

    /// `count` jobs: incomplete ones of ranks 0 and 5, each at two ports of its own, followed by
    /// `last`.
    fn jobs(count: usize, last: &[&[(u32, u16)]]) -> Vec<(Outline, Vec<Component<'static>>)> {
        let mut processes = Processes::default();
        let parts = (0..count - last.len()).map(|job| [(0, 100 + 2 * job as u16), (5, 101 + 2 * job as u16)]);
        let ranks: Vec<Vec<(u32, u16)>> = parts.map(Vec::from).chain(last.iter().map(|ranks| ranks.to_vec())).collect();
        let all = ranks.iter().map(|ranks| component(&mut processes, ranks));
        all.map(|(outline, component)| (outline, vec![component])).collect()
    }

    #[test]
    fn with_too_many_jobs_to_compare_all_are_in_doubt() {
        for (count, expected) in [(MAX_COMPARED, 0), (MAX_COMPARED + 1, MAX_COMPARED + 1)] {
            let jobs = jobs(count, &[]);
            assert_eq!(possible_parts(&jobs).len(), expected);
            let parts = part_of_several(&jobs);
            assert_eq!((parts.len(), parts.values().all(|others| *others == count)), (expected, true));
        }
    }

    /// Ranks 0 and 1 of one job and 2 and 3 of the other are whole together.
    #[test]
    fn with_too_many_jobs_to_compare_none_are_joined() {
        for (count, left) in [(MAX_COMPARED, MAX_COMPARED - 1), (MAX_COMPARED + 1, MAX_COMPARED + 1)] {
            let mut jobs = jobs(count, &[&[(0, 1), (1, 2)], &[(2, 3), (3, 4)]]);
            complete(&mut jobs);
            assert_eq!(jobs.len(), left);
        }
    }

    /// The first component shares a rank at a port with the second, which is larger: it may be part
    /// of it.
    #[test]
    fn with_too_many_components_to_compare_those_sharing_a_port_with_a_larger_one_are_unclear() {
        let mut processes = Processes::default();
        let mut whole =
            vec![component(&mut processes, &[(0, 1), (1, 2)]), component(&mut processes, &[(0, 1), (1, 3), (2, 4)])];
        assert_eq!(competing_components(&whole), BTreeSet::new());
        while whole.len() <= MAX_COMPARED {
            let lid = 100 + 2 * whole.len() as u16;
            whole.push(component(&mut processes, &[(0, lid), (1, lid + 1)]));
        }
        assert_eq!(competing_components(&whole), BTreeSet::from([0]));
    }
}
