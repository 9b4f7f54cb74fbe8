//! The class of each connection: the only place that decides it.
//!
//! Evidence for the two directions of a connection counts together:
//!
//! ```text
//! library     messages of an MPI library or of NCCL were detected, or a process of such a job owns
//!             one of the queue pairs
//! CM          service id or private data name a protocol, for one of the queue pairs
//! messages    nine of ten messages match one upper-layer protocol, some of them distinctively
//! tags        messages of UCX or libfabric whose tags no MPI library can have sent
//! ```
//! Invariant: a wrong class is worse than `unknown`. Evidence for two classes gives `unknown`. A
//! connection without such evidence is `mpi` if it can only be the connection setup of a job, and
//! `verbs` if all its messages are alike and no job ran at the same time.

use super::cm::CmExchange;
use super::reverse::{ReverseConnections, sender};
use super::tag_layout::{self, Family};
use super::{IdentityEvidence, QueuePairPartners, ResolvedRanks};
use crate::model::{
    ConnectionClass, ConnectionKey, ConnectionTotals, OperationMix, QueuePair, TrafficKind, UpperLayerVotes, Votes,
    tag_layouts,
};
use ibscope_parsers::mpi::LibraryStack;
use ibscope_parsers::mpi::ucx_wireup::lanes;
use ibscope_parsers::ulp::{UpperLayer, tcp_port};
use ibscope_parsers::{Endpoint, Qpn};
use rayon::prelude::*;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

/// Share of the messages that must match a protocol, in percent.
const MATCHING_PERCENT: u64 = 90;
/// Messages that must match it distinctively. One of them by chance is as likely as one in a million.
const MIN_DISTINCTIVE: u64 = 3;
/// Messages with tags that no MPI library can have sent. A few random messages can look like three
/// of them.
const MIN_IMPOSSIBLE: u64 = 10;
/// Alike messages that show plain verbs. Libraries and protocols mix sizes and operations long before.
const MIN_ALIKE: u32 = 50;
/// The port on which perftest listens by default (`perftest_parameters.h`, `DEF_PORT`).
const PERFTEST_PORT: u16 = 18515;
/// Connection setup and teardown lie within this time around the messages of a job.
const AROUND_NS: i64 = 5_000_000_000;

/// The classes of jobs, and of the queue pairs that their processes own.
#[derive(Clone, Debug, Default)]
pub(super) struct JobClasses {
    /// By job number, from 1.
    pub(super) jobs: BTreeMap<u32, JobClass>,
    /// Queue pairs that connection messages assign to a process of a job.
    pub(super) queue_pairs: BTreeMap<QueuePair, u32>,
    /// Ports with messages of a library that belong to no job.
    pub(super) foreign_ports: BTreeSet<Endpoint>,
}

/// The properties of a job that matter for the classes of other connections.
#[derive(Clone, Debug)]
pub(super) struct JobClass {
    pub(super) family: Option<Family>,
    pub(super) ports: BTreeSet<Endpoint>,
    pub(super) times_ns: (i64, i64),
}

impl JobClass {
    fn class(&self) -> ConnectionClass {
        if self.family == Some(Family::Nccl) { ConnectionClass::Nccl } else { ConnectionClass::Mpi }
    }

    fn is_near(&self, times_ns: (i64, i64)) -> bool {
        times_ns.0 <= self.times_ns.1.saturating_add(AROUND_NS)
            && self.times_ns.0.saturating_sub(AROUND_NS) <= times_ns.1
    }
}

/// The class of each connection, in connection order.
pub(super) fn classify(
    evidence: &IdentityEvidence<'_>,
    (paired, reverse): (&QueuePairPartners, &ReverseConnections<'_>),
    exchanges: &[CmExchange],
    jobs: &JobClasses,
    identified: &ResolvedRanks,
) -> Vec<ConnectionClass> {
    let connections = evidence.connections;
    let stated = stated_classes(evidence, exchanges);
    let lanes = WireupLanes::new(evidence, jobs);
    let is_sampled = identified.sampling.sampling.is_some();
    let class = |index: usize| {
        let connection = &*connections[index];
        match connection.key.kind {
            TrafficKind::Management => return ConnectionClass::Management,
            TrafficKind::Data | TrafficKind::Multicast => {}
        }
        let back = reverse.index(index).filter(|back| *back != index);
        let both: SmallVec<[usize; 2]> = std::iter::once(index).chain(back).collect();
        let ends = ends(&connection.key, paired);
        let mut found: BTreeSet<ConnectionClass> = BTreeSet::new();
        found.extend(both.iter().filter_map(|index| library_class(&connections[*index].key, *index, jobs, identified)));
        let owners = ends.iter().filter_map(|end| jobs.jobs.get(jobs.queue_pairs.get(end)?));
        found.extend(owners.map(JobClass::class));
        let directions = || both.iter().map(|index| &*connections[*index]);
        // The detection of a library has compared the messages of the whole job, so a resemblance
        // of single messages does not outweigh it.
        if found.is_empty() {
            found.extend(protocol(directions()).map(ConnectionClass::from));
        }
        found.extend(ends.iter().filter_map(|end| stated.get(end)).flatten());
        if found.is_empty() {
            found.extend(library_of_no_mpi(directions()));
        }
        let only = found.first().copied().filter(|_| found.len() == 1);
        match only {
            None if found.is_empty() => match remaining(directions(), &ends, jobs, &lanes) {
                // A sample of a library's messages may show one operation and one size only.
                ConnectionClass::Verbs if is_sampled => ConnectionClass::Unknown,
                class => class,
            },
            only => only.unwrap_or_default(),
        }
    };
    (0..connections.len()).into_par_iter().map(class).collect()
}

/// Both queue pairs, as far as they are known. A datagram queue pair may serve several programs, so
/// it is no evidence for one connection.
fn ends(key: &ConnectionKey, paired: &QueuePairPartners) -> SmallVec<[QueuePair; 2]> {
    std::iter::once(tag_layout::receiver(key)).chain(sender(key, paired)).collect()
}

/// The classes that CM messages state, by queue pair.
fn stated_classes(
    evidence: &IdentityEvidence<'_>,
    exchanges: &[CmExchange],
) -> BTreeMap<QueuePair, BTreeSet<ConnectionClass>> {
    let mut stated: BTreeMap<QueuePair, BTreeSet<ConnectionClass>> = BTreeMap::new();
    for row in evidence.cm {
        let is_perftest = row.service_id.and_then(tcp_port) == Some(PERFTEST_PORT);
        let class = row.protocol.map(ConnectionClass::from).or(is_perftest.then_some(ConnectionClass::Verbs));
        // The service id of a datagram service (SIDR) names the queue pair of all its users.
        if let (Some(class), Some(qpn), "REQ" | "REP") = (class, row.qpn, &*row.message) {
            stated.entry(QueuePair { endpoint: row.src, qpn }).or_default().insert(class);
        }
    }
    for CmExchange { requester, replier, named, .. } in exchanges {
        // A class that one message states holds for both ends, also at the addresses of the packets.
        let classes: BTreeSet<ConnectionClass> =
            named.iter().filter_map(|end| stated.get(end)).flatten().copied().collect();
        for end in [requester, replier].into_iter().chain(named) {
            stated.entry(*end).or_default().extend(&classes);
        }
    }
    stated
}

/// The class of the library whose messages were detected, or of the connection's job.
fn library_class(
    key: &ConnectionKey,
    index: usize,
    jobs: &JobClasses,
    identified: &ResolvedRanks,
) -> Option<ConnectionClass> {
    if let Some(stack) = identified.detection.stack(key) {
        return Some(if stack == LibraryStack::Nccl { ConnectionClass::Nccl } else { ConnectionClass::Mpi });
    }
    let job = identified.job_of.get(index).copied().flatten()?;
    jobs.jobs.get(&job).map(JobClass::class)
}

/// The upper-layer protocol of nearly all messages.
fn protocol<'a>(directions: impl Iterator<Item = &'a ConnectionTotals> + Clone) -> Option<UpperLayer> {
    let (mut votes, mut starts) = (UpperLayerVotes::default(), 0);
    // If a library seemed to send the later messages, only the first ones were compared.
    let is_another = directions.clone().any(tag_layout::is_another_protocol);
    for connection in directions {
        starts += if is_another { tag_layout::compared(connection) } else { connection.starts() };
        connection.upper_layers.iter().for_each(|own| votes.merge(own));
    }
    UpperLayer::ALL.into_iter().find(|protocol| {
        let (matching, distinctive) = (votes.matching[*protocol as usize], votes.distinctive[*protocol as usize]);
        distinctive >= MIN_DISTINCTIVE && matching * 100 >= starts * MATCHING_PERCENT
    })
}

/// UCX or libfabric, if nearly all messages are theirs and no MPI library can have sent their tags.
fn library_of_no_mpi<'a>(directions: impl Iterator<Item = &'a ConnectionTotals>) -> Option<ConnectionClass> {
    let classes: Vec<Option<ConnectionClass>> = directions
        .filter(|connection| connection.starts() > 0)
        .map(|connection| {
            let stack = tag_layout::consistent_stack(connection)?;
            let class = match Family::of(stack) {
                Family::Ucx => ConnectionClass::Ucx,
                Family::Rxm => ConnectionClass::Libfabric,
                Family::Ob1 | Family::Mvapich2 | Family::Nccl => return None,
            };
            contradicts_mpi(connection.votes(), stack).then_some(class)
        })
        .collect();
    classes.first().copied().flatten().filter(|first| classes.iter().all(|class| *class == Some(*first)))
}

/// True if no tag layout of an MPI library explains the tags of a connection: its sender would have
/// several ranks in `MPI_COMM_WORLD`, or ranks and tags beyond any real one.
fn contradicts_mpi(votes: &Votes, stack: LibraryStack) -> bool {
    tag_layouts(stack).iter().all(|&layout| {
        let several = votes.world(stack, layout).filter(|(_, count)| *count >= MIN_IMPOSSIBLE).count() > 1;
        let at = layout as usize;
        several || votes.implausible[at] >= MIN_IMPOSSIBLE || votes.uncounted_ranks[at] >= MIN_IMPOSSIBLE
    })
}

/// Queue pair numbers that UCX wire-up messages list. The messages name them at addresses that the
/// packets may not have (a second rail, captured with LIDs), so only their count is certain.
#[derive(Debug, Default)]
struct WireupLanes {
    /// Observed queue pairs by number, if all of them must be lanes of one job.
    jobs: BTreeMap<Qpn, u32>,
}

impl WireupLanes {
    /// A number belongs to a job if wire-up messages of its workers, and of no other worker, list at
    /// least as many queue pairs with this number as the captures show.
    fn new(evidence: &IdentityEvidence<'_>, jobs: &JobClasses) -> Self {
        let mut stated: BTreeMap<Qpn, BTreeSet<(u64, Endpoint)>> = BTreeMap::new();
        let mut owners: BTreeMap<Qpn, BTreeSet<Option<u32>>> = BTreeMap::new();
        for wireup in evidence.wireups {
            let owner = super::aliases::listed_queue_pairs(wireup).find_map(|end| jobs.queue_pairs.get(&end).copied());
            for lane in lanes(&wireup.address) {
                let port = lane.device.map_or(wireup.src, |device| device.port);
                stated.entry(lane.qpn).or_default().insert((wireup.worker, port));
                owners.entry(lane.qpn).or_default().insert(owner);
            }
        }
        if stated.is_empty() {
            return Self::default();
        }
        let mut observed: BTreeMap<Qpn, BTreeSet<Endpoint>> = BTreeMap::new();
        let connected = evidence.connections.iter().map(|connection| &connection.key);
        for key in connected.filter(|key| key.kind == TrafficKind::Data && !key.is_datagram()) {
            observed.entry(key.dest_qp).or_default().insert(key.dst);
        }
        let job = |(qpn, ports): (Qpn, BTreeSet<Endpoint>)| {
            let is_enough = stated.get(&qpn).is_some_and(|stated| ports.len() <= stated.len());
            let mut owners = owners.get(&qpn)?.iter();
            let job = owners.next().copied().flatten()?;
            (is_enough && owners.next().is_none()).then_some((qpn, job))
        };
        Self { jobs: observed.into_iter().filter_map(job).collect() }
    }

    /// The job of a connection whose two queue pairs are lanes of one job. UCX starts with PSN 0
    /// and puts no SEND without its own header on a lane.
    fn job<'a>(&self, mut directions: impl Iterator<Item = &'a ConnectionTotals>, ends: &[QueuePair]) -> Option<u32> {
        let of: Vec<Option<&u32>> = ends.iter().map(|end| self.jobs.get(&end.qpn)).collect();
        let job = of.first().copied().flatten().copied()?;
        let is_lane = |connection: &ConnectionTotals| {
            bare_ucx(connection) == connection.starts() && connection.continuity.first_psn.is_none_or(|psn| psn == 0)
        };
        (of.len() == 2 && of.iter().all(|of| *of == Some(&job)) && directions.all(is_lane)).then_some(job)
    }
}

/// The class of a connection without evidence of its own.
fn remaining<'a>(
    directions: impl Iterator<Item = &'a ConnectionTotals> + Clone,
    ends: &[QueuePair],
    jobs: &JobClasses,
    lanes: &WireupLanes,
) -> ConnectionClass {
    let Some(first) = directions.clone().next() else { return ConnectionClass::Unknown };
    if let Some(job) = lanes.job(directions.clone(), ends).and_then(|job| jobs.jobs.get(&job)) {
        return job.class();
    }
    let mut near = jobs.jobs.values().filter(|job| job.is_near(first.times_ns));
    if is_bare_ucx(directions.clone()) {
        let ports = [first.key.src, first.key.dst];
        let is_of_job =
            |job: &JobClass| job.family == Some(Family::Ucx) && ports.iter().all(|port| job.ports.contains(port));
        let is_foreign = ports.iter().any(|port| jobs.foreign_ports.contains(port));
        if near.clone().any(is_of_job) {
            return if is_foreign { ConnectionClass::Unknown } else { ConnectionClass::Mpi };
        }
    }
    let is_job_near = near.next().is_some();
    if !is_job_near && is_plain_verbs(directions) { ConnectionClass::Verbs } else { ConnectionClass::Unknown }
}

/// True if all messages are UCX's and none has a tag: wire-up and acknowledgements.
fn is_bare_ucx<'a>(mut directions: impl Iterator<Item = &'a ConnectionTotals> + Clone) -> bool {
    let has_messages = directions.clone().any(|connection| connection.starts() > 0);
    has_messages && directions.all(|connection| connection.starts() == bare_ucx(connection))
}

/// Messages of UCX without a tag.
fn bare_ucx(connection: &ConnectionTotals) -> u64 {
    let stacks = LibraryStack::ALL.into_iter().filter(|stack| Family::of(*stack) == Family::Ucx);
    stacks.map(|stack| connection.votes().bare[stack as usize]).sum()
}

/// True if all messages have one operation and one size, and no message is that of a library or
/// protocol.
fn is_plain_verbs<'a>(directions: impl Iterator<Item = &'a ConnectionTotals>) -> bool {
    let mut mix = OperationMix::default();
    let (mut starts, mut recognized) = (0, 0);
    for connection in directions {
        mix.merge(&connection.operations);
        starts += connection.starts();
        // The constant payload of a benchmark may look like a control message of a library. A
        // library sends other messages too.
        recognized += connection.votes().enveloped.iter().sum::<u64>();
        recognized += connection.upper_layers.as_ref().map_or(0, |votes| votes.matching.iter().sum::<u64>());
    }
    mix.verbs.is_power_of_two()
        && mix.smallest_bytes == mix.largest_bytes
        && mix.messages >= MIN_ALIKE
        && recognized * 100 <= starts * (100 - MATCHING_PERCENT)
}
