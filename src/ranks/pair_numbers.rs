//! Checks whether two queue pairs can be the two ends of one connection: compares the PSNs and
//! message counts of the requests to one with those of the responses to the other.
//!
//! ```text
//! A -> B, QP 7:  requests with PSNs 0 to 41, 12 messages, the last one asks for an ACK
//! B -> A, QP 5:  responses up to PSN 41, MSN 12        agree
//! B -> A, QP 6:  responses up to PSN 60                contradict: no request has PSN 60
//! B -> A, QP 8:  responses up to PSN 30                open: were the last ones in flight?
//! ```
//! In: the connections and their [`Continuity`]. Out: whether two queue pairs may be paired. The
//! comparison runs in both directions. If whole connections are missing in the capture, responses
//! may match the requests of a wrong connection, because libraries start all connections at the
//! same PSN. Invariant: two queue pairs are admitted only if the numbers agree in at least one
//! direction and contradict in none, or if the capture ended before the responses came.

use super::tag_layout;
use crate::model::{ConnectionTotals, Continuity, HashMap, QueuePair, TrafficKind};
use ibscope_parsers::{Endpoint, Psn};
use std::sync::OnceLock;

/// Time before the end of the captures, in nanoseconds, in which requests may still wait for a
/// response: several round trips through a congested fabric.
const IN_FLIGHT_NS: i64 = 2_000_000;
/// Maximum number of unanswered requests, in PSNs, of the only connection of two ports in a capture
/// that misses no connection. A wrong pairing is unlikely, because there is no other candidate.
const ONLY_UNANSWERED_PSNS: u64 = 16;
/// If packets are missing, the last request and the last response may differ by this many mean
/// distances between captured packets. Random losses exceed this number once in 3000 times (e^-8).
const DISTANCES: u64 = 8;

/// The numbers of all connected queue pairs.
pub(super) struct PairNumbers<'a> {
    connections: &'a [Box<ConnectionTotals>],
    /// Positions in `connections`, by receiving queue pair and sending port.
    indices: HashMap<(QueuePair, Endpoint), u32>,
    is_window: bool,
    /// Time of the last packet, in nanoseconds since the epoch.
    last_time_ns: i64,
    /// True if no connection misses a request.
    is_gapless: bool,
    /// Counted only if the numbers of two queue pairs are open.
    port_pairs: OnceLock<PortPairs>,
}

/// The connections between ports.
struct PortPairs {
    /// Number of connections of each directed pair of ports, sorted by pair.
    connections: Vec<((Endpoint, Endpoint), u32)>,
    /// True if each pair of ports has as many connections in one direction as in the other.
    is_balanced: bool,
}

/// The numbers of the packets to one queue pair.
struct ConnectionNumbers {
    /// Number of request messages; `None` unless the capture holds all requests from the first one
    /// of the connection on.
    sent_messages: Option<u64>,
    /// True if the connection's PSNs form one sequence.
    is_certain: bool,
    /// PSN of the last request.
    last_request: Option<u32>,
    /// PSN of the last request that asks for a response.
    last_asking: Option<u32>,
    /// PSN of the last ACK or response, whichever is later.
    last_response: Option<u32>,
    /// True if the capture holds ACKs.
    has_acks: bool,
    /// Number of messages of the other direction that the responses acknowledge.
    acknowledged_messages: u64,
    /// Number of READ responses and atomic acknowledgements that the requests expect; `None` if a
    /// READ was observed before the path MTU was known.
    expected_responses: Option<u64>,
    /// Number of READ responses and atomic acknowledgements in the capture.
    responses: u64,
    /// Mean distance between captured requests, in PSNs.
    distance: u64,
    /// Time of the last packet, in nanoseconds since the epoch.
    last_time_ns: i64,
}

/// Result of the comparison of requests with responses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NumberRelation {
    /// The last request that asks for a response has it.
    Consistent,
    /// There is nothing to compare.
    NotComparable,
    /// The last requests that ask for a response have none, or the responses are ahead of requests
    /// of which some are missing. `psns` is the distance in PSNs, `u64::MAX` if one side has no
    /// packets to compare.
    Unanswered { psns: u64 },
    /// Responses are ahead of requests that are all captured, or acknowledge more than was sent.
    Inconsistent,
}

impl<'a> PairNumbers<'a> {
    /// With `is_window` (a time window), message counts are not compared, because connections may
    /// have started before the window.
    pub(super) fn new(connections: &'a [Box<ConnectionTotals>], is_window: bool) -> Self {
        let mut numbers = Self {
            connections,
            indices: HashMap::default(),
            is_window,
            last_time_ns: i64::MIN,
            is_gapless: true,
            port_pairs: OnceLock::new(),
        };
        numbers.indices.reserve(connections.len());
        for (index, own) in (0..).zip(connections).filter(|(_, own)| is_connected(own)) {
            numbers.indices.insert((tag_layout::receiver(&own.key), own.key.src), index);
            numbers.last_time_ns = numbers.last_time_ns.max(own.times_ns.1);
            numbers.is_gapless &= own.continuity.missing_requests == 0;
        }
        numbers
    }

    /// The numbers of the packets from a port to a queue pair.
    fn of(&self, to: QueuePair, from: Endpoint) -> Option<ConnectionNumbers> {
        let index = self.indices.get(&(to, from))?;
        Some(ConnectionNumbers::new(&self.connections[*index as usize], self.is_window))
    }

    /// True if two queue pairs may be the two ends of one connection.
    pub(super) fn admit(&self, a: QueuePair, b: QueuePair) -> bool {
        let (Some(to_a), Some(to_b)) = (self.of(a, b.endpoint), self.of(b, a.endpoint)) else { return true };
        let relations = [to_a.relation(&to_b, self.is_gapless), to_b.relation(&to_a, self.is_gapless)];
        if relations.contains(&NumberRelation::Inconsistent) {
            return false;
        }
        let open = relations
            .iter()
            .filter_map(|relation| if let NumberRelation::Unanswered { psns } = relation { Some(*psns) } else { None });
        let Some(unanswered_psns) = open.max().filter(|_| !relations.contains(&NumberRelation::Consistent)) else {
            return true;
        };
        let idle_ns = self.last_time_ns.saturating_sub(to_a.last_time_ns.min(to_b.last_time_ns));
        let is_only = || {
            let ports = self.port_pairs.get_or_init(|| PortPairs::new(self.connections));
            ports.is_balanced && ports.connections_between(a.endpoint, b.endpoint) == 1
        };
        let are_few = unanswered_psns <= ONLY_UNANSWERED_PSNS || !self.is_gapless;
        idle_ns <= IN_FLIGHT_NS || are_few && is_only()
    }
}

/// True for data of a connected service.
fn is_connected(own: &ConnectionTotals) -> bool {
    own.key.kind == TrafficKind::Data && !own.key.is_datagram()
}

impl PortPairs {
    /// `all` is sorted by key.
    fn new(all: &[Box<ConnectionTotals>]) -> Self {
        let mut connections: Vec<((Endpoint, Endpoint), u32)> = Vec::new();
        for own in all.iter().filter(|own| is_connected(own)) {
            let ports = (own.key.src, own.key.dst);
            match connections.last_mut().filter(|(last, _)| *last == ports) {
                Some((_, count)) => *count += 1,
                None => connections.push((ports, 1)),
            }
        }
        let mut found = Self { connections, is_balanced: true };
        found.is_balanced =
            found.connections.iter().all(|((src, dst), count)| found.connections_between(*dst, *src) == *count);
        found
    }

    fn connections_between(&self, src: Endpoint, dst: Endpoint) -> u32 {
        let found = self.connections.binary_search_by_key(&(src, dst), |(ports, _)| *ports);
        found.map_or(0, |at| self.connections[at].1)
    }
}

impl ConnectionNumbers {
    fn new(own: &ConnectionTotals, is_window: bool) -> Self {
        let continuity = &own.continuity;
        let Continuity { first_psn, missing_requests, uncertain, guessed_reads, restarted, .. } = *continuity;
        let is_certain = !uncertain && !restarted;
        // UCX and NCCL start at PSN 0. Other libraries start at any PSN.
        let is_gapless = is_certain && !guessed_reads && missing_requests == 0;
        let is_whole = !is_window && is_gapless && first_psn == Some(0);
        let [acknowledged, responded] = continuity.last_responses;
        let requests = continuity.request_packets.max(1);
        Self {
            sent_messages: is_whole.then_some(own.traffic.messages),
            is_certain,
            last_request: continuity.last_request,
            last_asking: continuity.last_asking,
            last_response: later(acknowledged, responded),
            has_acks: acknowledged.is_some(),
            acknowledged_messages: continuity.last_msn.map_or(0, u64::from),
            expected_responses: (!continuity.guessed_reads).then_some(continuity.expected_responses),
            responses: continuity.response_packets,
            distance: (requests + missing_requests).div_ceil(requests),
            last_time_ns: own.times_ns.1,
        }
    }

    /// Compares these requests with the responses of the other direction.
    fn relation(&self, responses: &Self, is_gapless: bool) -> NumberRelation {
        if !self.is_certain {
            return NumberRelation::NotComparable;
        }
        let Some(last_response) = responses.last_response else {
            let expects_responses = self.expected_responses.is_some_and(|expected| expected > 0);
            return if expects_responses {
                NumberRelation::Unanswered { psns: u64::MAX }
            } else {
                NumberRelation::NotComparable
            };
        };
        if let Some(sent) = self.sent_messages {
            let has_more_responses = self.expected_responses.is_some_and(|expected| responses.responses > expected);
            if responses.acknowledged_messages > sent || has_more_responses {
                return NumberRelation::Inconsistent;
            }
        }
        let Some(last_request) = self.last_request else { return NumberRelation::Unanswered { psns: u64::MAX } };
        let tolerance = if is_gapless { 0 } else { DISTANCES * self.distance };
        let ahead = ahead_of(last_request, last_response);
        if ahead > tolerance {
            // If requests are missing, the last READ may be among them, and a READ takes any number of
            // PSNs.
            return if is_gapless { NumberRelation::Inconsistent } else { NumberRelation::Unanswered { psns: ahead } };
        }
        match self.last_asking.map(|last| ahead_of(last_response, last)) {
            Some(psns) if psns <= tolerance => NumberRelation::Consistent,
            Some(psns) if responses.has_acks => NumberRelation::Unanswered { psns },
            // Responses to READs show nothing about the requests after them, and an adapter need
            // not ask for every ACK.
            Some(_) | None => NumberRelation::NotComparable,
        }
    }
}

/// Number of PSNs by which `psn` is ahead of `other`; 0 if `psn` is not ahead.
fn ahead_of(other: u32, psn: u32) -> u64 {
    u64::try_from(Psn::new(psn).since(Psn::new(other))).unwrap_or(0)
}

/// The later of two PSNs, with wraparound.
fn later(a: Option<u32>, b: Option<u32>) -> Option<u32> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if Psn::new(b).since(Psn::new(a)) >= 0 { b } else { a }),
        (a, b) => a.or(b),
    }
}
