//! Marks pairs of ranks whose counts may be too low, because messages have no rank or were not
//! captured.
//!
//! In: the connections and their ranks. Out: the coverage of each pair that may own uncounted
//! messages becomes incomplete or unknown. The left column is a connection with uncounted messages,
//! the right column is the pairs of ranks that may own these messages:
//!
//! ```text
//! both ports have ranks        any two ranks at these ports
//! one end has a rank           any pair with that rank in its job: the partner may use more ports
//! one port has ranks           any pair with a rank at that port
//! no port has ranks            pairs at ports with neighboring LIDs: one port may have several LIDs
//! requests were not captured   any pair with a rank at the port that responded
//! connection messages alone    the pair that they connect
//! a second connection          any two ranks at its ports
//! one-sided operations         any two ranks at its ports
//! ```
//! Invariant: a pair that may own an uncounted message is never called complete.

use super::coverage::{RanksOfEnds, mark_numbers_missing};
use super::tag_layout;
use super::{Detection, QueuePairPartners, ResolvedRanks, ReverseConnections};
use crate::model::profile::{CoverageState, RankRow};
use crate::model::{ConnectionClass, ConnectionTotals, JobRank, RankIndex, TrafficKind, count_of};
use ibscope_parsers::{Endpoint, Lid};
use rayon::prelude::*;
use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};

/// Marks the pairs in `identified` that may own uncounted messages. `withheld` are ports with one-sided
/// operations that may be of their ranks. With `is_window`, packets outside the window do not count as
/// missing.
pub(super) fn mark_uncounted(
    (reverse, withheld): (&ReverseConnections<'_>, &BTreeSet<(Endpoint, Endpoint)>),
    paired: &QueuePairPartners,
    is_window: bool,
    identified: &mut ResolvedRanks,
) {
    let connections = reverse.connections;
    if identified.jobs.is_empty() {
        return;
    }
    let ranks = RankIndex::new(&identified.ranks);
    let ends: Vec<RanksOfEnds> = connections.par_iter().map(|own| ranks_of_ends(own, &ranks, paired)).collect();
    mark_numbers_missing(connections, &ends, is_window, identified);
    let ResolvedRanks { detection, classes, .. } = &*identified;
    let search = UncountedSearch { reverse, detection, classes, ends: &ends };
    let mut uncounted = search.run(&identified.job_of, &RanksAtPorts::new(&identified.ranks), is_window);
    uncounted.maybe_between.extend(withheld);
    let connected = ConnectedRanks::new(connections, &ends);
    let rows = connections.iter().zip(ends).zip(&mut identified.coverage).zip(&identified.job_of);
    for (((own, ends), coverage), job) in rows {
        if job.is_some() {
            let state = uncounted.state(own, ends);
            coverage.state = coverage.state.max(state.unwrap_or(coverage.state));
        }
        if connected.misses(own, ends) {
            coverage.state = coverage.state.max(CoverageState::Unknown);
        }
    }
    identified.notes.extend(uncounted.notes());
}

/// Pairs of ranks with a captured connection of a connected service, and the jobs of these ranks.
#[derive(Default)]
struct ConnectedRanks {
    ranks: BTreeSet<(JobRank, JobRank)>,
    jobs: BTreeSet<u32>,
}

impl ConnectedRanks {
    fn new(connections: &[Box<ConnectionTotals>], ends: &[RanksOfEnds]) -> Self {
        let mut found = Self::default();
        let is_connected = |own: &ConnectionTotals| own.key.kind == TrafficKind::Data && !own.key.is_datagram();
        for (_, ends) in connections.iter().zip(ends).filter(|(own, _)| is_connected(own)) {
            found.jobs.extend(ends.iter().flatten().map(|end| end.job));
            if let [Some(src), Some(dst)] = *ends {
                found.ranks.insert((src, dst));
            }
        }
        found
    }

    /// True if only connection messages (datagrams) between two ranks were captured, and not the
    /// connection that they set up.
    fn misses(&self, own: &ConnectionTotals, ends: RanksOfEnds) -> bool {
        let [Some(src), Some(dst)] = ends else { return false };
        own.key.is_datagram()
            && !has_envelopes(own)
            && self.jobs.contains(&src.job)
            && !self.ranks.contains(&(src, dst))
    }
}

fn ranks_of_ends(own: &ConnectionTotals, ranks: &RankIndex, paired: &QueuePairPartners) -> RanksOfEnds {
    let receiver = tag_layout::receiver(&own.key);
    let sender =
        if own.key.is_datagram() { Some(own.key.src_qp) } else { paired.partner(receiver).map(|(end, _)| end.qpn) };
    [ranks.ranks(own.key.src, sender).next(), ranks.ranks(own.key.dst, Some(own.key.dest_qp)).next()]
}

/// The ranks at each port, and the ports of each rank.
#[derive(Default)]
struct RanksAtPorts {
    ranks: BTreeMap<Endpoint, BTreeSet<JobRank>>,
    ports: BTreeMap<JobRank, BTreeSet<Endpoint>>,
}

impl RanksAtPorts {
    fn new(rows: &[RankRow]) -> Self {
        let mut found = Self::default();
        for row in rows {
            if let Ok(port) = row.endpoint.parse() {
                let rank = JobRank { job: row.job, rank: row.rank };
                found.ranks.entry(port).or_default().insert(rank);
                found.ports.entry(rank).or_default().insert(port);
            }
        }
        found
    }

    /// The ranks at any of these ports.
    fn at_any(&self, ports: &BTreeSet<Endpoint>) -> BTreeSet<JobRank> {
        ports.iter().filter_map(|port| self.ranks.get(port)).flatten().copied().collect()
    }
}

/// Finds the connections with uncounted messages.
struct UncountedSearch<'a> {
    reverse: &'a ReverseConnections<'a>,
    detection: &'a Detection,
    /// By connection.
    classes: &'a [ConnectionClass],
    /// By connection.
    ends: &'a [RanksOfEnds],
}

impl UncountedSearch<'_> {
    fn run(&self, job_of: &[Option<u32>], at_ports: &RanksAtPorts, is_window: bool) -> UncountedTraffic {
        let mut found = UncountedTraffic::default();
        let mut may_be_at: [BTreeSet<Endpoint>; 2] = Default::default();
        let unpaired = LazyCell::new(|| UnpairedConnections::new(self.reverse));
        for (index, (own, job)) in self.reverse.connections.iter().zip(job_of).enumerate() {
            let reverse = self.reverse.connected(index);
            let [sender, receiver] = self.ends[index];
            // Its messages are of no rank, although a few of a storage protocol resemble those of a library.
            let is_of_no_job =
                own.key.kind != TrafficKind::Data || self.classes.get(index).is_some_and(|class| class.is_of_no_job());
            if own.continuity.restarted && !is_of_no_job {
                // The messages of the second connection are not counted.
                found.maybe_between.insert((own.key.src, own.key.dst));
            }
            let ports = (own.key.dst, own.key.src);
            let is_unpaired = !is_window && reverse.is_none() && responds(own);
            if is_unpaired && unpaired.may_hold_requests(ports) {
                found.unpaired.insert(ports);
                found.maybe_between.insert(ports);
            } else if is_unpaired {
                found.unanswerable.insert(ports);
                let ports = receiver.and_then(|rank| Some((rank, at_ports.ranks.get(&own.key.src)?)));
                found.requests.extend(ports.into_iter().flat_map(|(from, to)| to.iter().map(move |to| (from, *to))));
            }
            if is_of_no_job || !self.is_uncounted((own, reverse), sender.is_some() && receiver.is_some()) {
                continue;
            }
            let ports = (own.key.src, own.key.dst);
            match (sender, receiver) {
                (Some(sender), None) if *job == Some(sender.job) => _ = found.of_rank[0].insert(sender),
                (None, Some(receiver)) if *job == Some(receiver.job) => _ = found.of_rank[1].insert(receiver),
                (None, None) if has_envelopes(own) => {
                    let has_ranks = [own.key.src, own.key.dst].map(|port| at_ports.ranks.contains_key(&port));
                    match has_ranks {
                        [true, false] => _ = may_be_at[0].insert(own.key.src),
                        [false, true] => _ = may_be_at[1].insert(own.key.dst),
                        [false, false] => _ = found.neighbors.insert(first_of_ports(own)),
                        [true, true] => {}
                    }
                }
                _ => {}
            }
            // With both ranks unknown, the messages may come from a program outside the job.
            let may_be_foreign = sender.is_none() && receiver.is_none();
            let between = if may_be_foreign { &mut found.maybe_between } else { &mut found.between };
            between.insert(ports);
        }
        found.maybe_of_rank = may_be_at.map(|ports| at_ports.at_any(&ports));
        found
    }

    /// True if messages of the connection may be missing in the counts of ranks.
    fn is_uncounted(&self, (own, reverse): (&ConnectionTotals, Option<&ConnectionTotals>), is_known: bool) -> bool {
        // If a connection has data but no message starts, too little was captured to distinguish
        // MPI from storage.
        let has_only_middles = own.starts() == 0 && own.traffic.payload_bytes > 0 && !reverse.is_some_and(is_storage);
        let is_detected = self.detection.stack(&own.key).is_some();
        own.key.kind == TrafficKind::Data
            && (has_envelopes(own) && !(is_detected && is_known)
                || has_only_middles && !is_known && !own.key.is_datagram())
    }
}

/// Numbers of connections whose opposite direction is unknown, by the source and destination port
/// of their requests.
#[derive(Default)]
struct UnpairedConnections {
    requests: BTreeMap<(Endpoint, Endpoint), usize>,
    responses: BTreeMap<(Endpoint, Endpoint), usize>,
    /// Pairs of ports, in both directions, whose connections are in different inputs.
    divided: BTreeSet<(Endpoint, Endpoint)>,
}

impl UnpairedConnections {
    fn new(reverse: &ReverseConnections<'_>) -> Self {
        let mut found = Self::default();
        let mut first_inputs = BTreeMap::new();
        let data = reverse.connections.iter().enumerate().filter(|(_, own)| own.key.kind == TrafficKind::Data);
        for (index, own) in data.filter(|(_, own)| !own.key.is_datagram()) {
            let (src, dst) = (own.key.src, own.key.dst);
            let first = first_inputs.entry(own.key.port_pair()).or_insert(own);
            if !own.inputs.iter().any(|input| first.inputs.contains(input)) {
                found.divided.extend([(src, dst), (dst, src)]);
            }
            let is_unpaired = reverse.connected(index).is_none();
            if own.continuity.request_packets > 0 {
                *found.requests.entry((src, dst)).or_default() += usize::from(is_unpaired);
            }
            if is_unpaired && responds(own) {
                *found.responses.entry((dst, src)).or_default() += 1;
            }
        }
        found
    }

    /// True if the capture may hold the requests that all these responses answer. Either at least
    /// as many connections have requests without known responses, or the inputs hold different
    /// connections, so a pairing may be wrong.
    fn may_hold_requests(&self, ports: (Endpoint, Endpoint)) -> bool {
        let [requests, responses] = [&self.requests, &self.responses].map(|of| of.get(&ports).copied());
        requests >= responses || requests.is_some() && self.divided.contains(&ports)
    }
}

/// True for requests that match no library. Storage sends the data of a READ in the opposite
/// direction of such requests.
fn is_storage(requests: &ConnectionTotals) -> bool {
    requests.starts() > 0 && !has_envelopes(requests)
}

/// True if the connection carries responses.
fn responds(own: &ConnectionTotals) -> bool {
    let continuity = &own.continuity;
    own.key.kind == TrafficKind::Data
        && (continuity.last_msn.is_some_and(|msn| msn > 0) || continuity.response_packets > 0)
}

/// True if at least half of the messages match a library. In storage traffic, a few match by
/// chance.
fn has_envelopes(own: &ConnectionTotals) -> bool {
    let enveloped = own.votes().enveloped.iter().sum::<u64>();
    enveloped > 0 && enveloped * 2 >= own.starts()
}

/// Ports and ranks that may own uncounted messages.
#[derive(Default)]
struct UncountedTraffic {
    /// Pairs of ports with uncounted messages of ranks at these ports.
    between: BTreeSet<(Endpoint, Endpoint)>,
    /// Pairs of ports with uncounted messages of ranks at these ports, or of a program outside the
    /// job.
    maybe_between: BTreeSet<(Endpoint, Endpoint)>,
    /// Senders and receivers of messages whose other rank is unknown.
    of_rank: [BTreeSet<JobRank>; 2],
    /// Senders and receivers that may own messages at one of their ports.
    maybe_of_rank: [BTreeSet<JobRank>; 2],
    /// First LIDs of the blocks that exchanged messages without any rank.
    neighbors: BTreeSet<[Endpoint; 2]>,
    /// Ranks whose requests were not captured, each with every rank that may be the receiver.
    requests: BTreeSet<(JobRank, JobRank)>,
    /// Source and destination ports of requests that were not captured.
    unanswerable: BTreeSet<(Endpoint, Endpoint)>,
    /// Source and destination ports of requests that may be captured, but were not paired with
    /// their responses.
    unpaired: BTreeSet<(Endpoint, Endpoint)>,
}

impl UncountedTraffic {
    /// The state of a connection of a job with these ranks; `None` if nothing indicates missing messages.
    fn state(&self, own: &ConnectionTotals, ends: RanksOfEnds) -> Option<CoverageState> {
        let ports = (own.key.src, own.key.dst);
        let is_of = |ranks: &[BTreeSet<JobRank>; 2]| {
            ends.iter().zip(ranks).any(|(end, ranks)| end.is_some_and(|end| ranks.contains(&end)))
        };
        let is_unseen = match ends {
            [Some(src), Some(dst)] => src.job == dst.job && src != dst && self.requests.contains(&(src, dst)),
            _ => false,
        };
        if is_unseen || self.between.contains(&ports) || is_of(&self.of_rank) {
            return Some(CoverageState::Incomplete);
        }
        let may_miss = self.maybe_between.contains(&ports)
            || is_of(&self.maybe_of_rank)
            || self.neighbors.contains(&first_of_ports(own));
        may_miss.then_some(CoverageState::Unknown)
    }

    fn notes(&self) -> impl Iterator<Item = String> {
        let name = |ports: &BTreeSet<(Endpoint, Endpoint)>| {
            let (from, to) = *ports.first()?;
            let more = match ports.len() - 1 {
                0 => String::new(),
                more => format!(" and those of {}", count_of(more as u64, "more directed pair")),
            };
            Some((format!("requests from {from} to {to}"), more))
        };
        let unanswerable = name(&self.unanswerable).map(|(requests, more)| {
            format!(
                "{requests}{more} have responses but were not captured, so no count includes their data; capture both directions of all ports"
            )
        });
        let unpaired = name(&self.unpaired).map(|(requests, more)| {
            format!(
                "{requests}{more} could not be matched with their responses; MPI messages of these ports may be unknown; \
                 if several captures hold parts of the traffic, analyze them as files in one run"
            )
        });
        unanswerable.into_iter().chain(unpaired)
    }
}

/// Maximum number of LIDs per port that is assumed. The subnet manager assigns `2^LMC` LIDs to a
/// port, the first a multiple of `2^LMC` (IBTA volume 1, 3.5.10). Fabrics use an LMC of at most 3.
const LIDS_OF_PORT: u16 = 8;

/// The first LIDs of the blocks that contain the sender's and the receiver's LID; endpoints without
/// a LID stay unchanged.
fn first_of_ports(own: &ConnectionTotals) -> [Endpoint; 2] {
    let first = |lid: Lid| Endpoint::from_lid(Lid(lid.0 / LIDS_OF_PORT * LIDS_OF_PORT));
    [own.key.src, own.key.dst].map(|port| port.lid().map_or(port, first))
}
