//! Whether the numbers of two queue pairs fit: those of the requests to one and of the responses to
//! the other.
//!
//! ```text
//! A -> B, QP 7:  requests with PSNs 0 to 41, 12 messages, the last one asks for an ACK
//! B -> A, QP 5:  responses up to PSN 41, MSN 12        agree
//! B -> A, QP 6:  responses up to PSN 60                contradict: no request has PSN 60
//! B -> A, QP 8:  responses up to PSN 30                open: were the last ones in flight?
//! ```
//! Connections and their [`Continuity`] go in. Two queue pairs are compared in both senses. If whole
//! connections are missing in the capture, responses may find requests with their PSNs on a wrong
//! connection, because libraries begin all connections with the same PSN. Invariant: two queue
//! pairs are admitted only if the numbers agree in one sense at least and contradict in none, or if
//! the capture ended before the responses came.

use super::tag_layout;
use crate::model::traffic::ConnectionTotals;
use crate::model::{Continuity, HashMap, QueuePair, TrafficKind};
use ibscope_parsers::Endpoint;

/// PSNs have 24 bits and wrap: a number that is ahead by more than half the range is behind.
const MASK: u32 = 0xFF_FFFF;
const HALF: u32 = 1 << 23;
/// Time before the end of the captures, in nanoseconds, in which requests may be without a response:
/// some round trips through a congested fabric.
const IN_FLIGHT_NS: i64 = 2_000_000;
/// Requests without a response at most, in PSNs, of the only connection of two ports, in a capture that
/// misses no connection: chance has nothing else to choose from.
const ONLY_UNANSWERED_PSNS: u64 = 16;
/// Mean distances between captured packets that the last ones may be apart if packets are missing.
/// Chance exceeds it once in 3000 times (e^-8).
const DISTANCES: u64 = 8;

/// The numbers of all connected queue pairs.
pub(super) struct PairNumbers<'a> {
    connections: &'a [Box<ConnectionTotals>],
    /// The connection by receiver and sending port.
    indices: HashMap<(QueuePair, Endpoint), u32>,
    is_window: bool,
    /// Time of the last packet, in nanoseconds since the epoch.
    last_time_ns: i64,
    /// No connection misses a request.
    is_gapless: bool,
    /// Directed pairs of ports, sorted, with the number of their connections.
    port_pairs: Vec<((Endpoint, Endpoint), u32)>,
    /// All pairs of ports have as many connections in one direction as in the other.
    is_balanced: bool,
}

/// The numbers of the packets to one queue pair.
struct ConnectionNumbers {
    /// Request messages, if the first packet is the first one of the connection and none is missing.
    sent_messages: Option<u64>,
    /// The connection's PSNs form one sequence.
    is_certain: bool,
    last_request: Option<u32>,
    /// The last request that asks for a response.
    last_asking: Option<u32>,
    last_response: Option<u32>,
    /// The capture holds ACKs.
    has_acks: bool,
    /// Messages of the other direction that the responses acknowledge.
    acknowledged_messages: u64,
    /// Responses with data that the requests expect, if the path MTU is known.
    expected_responses: Option<u64>,
    /// Responses with data in the capture.
    responses: u64,
    /// Mean distance between captured requests, in PSNs.
    distance: u64,
    last_time_ns: i64,
}

/// The comparison of requests and responses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NumberFit {
    Agree,
    /// There is nothing to compare.
    Silent,
    /// The last requests that ask for a response have none. They take `psns` PSNs, `u64::MAX` if there
    /// are no requests for the responses.
    Open {
        psns: u64,
    },
    Contradict,
}

impl<'a> PairNumbers<'a> {
    /// In a window (`is_window`), the numbers of messages do not count: connections began before it.
    pub(super) fn new(connections: &'a [Box<ConnectionTotals>], is_window: bool) -> Self {
        let data = (0..).zip(connections).filter(|(_, own)| own.key.kind == TrafficKind::Data);
        let mut numbers = Self {
            connections,
            indices: HashMap::default(),
            is_window,
            last_time_ns: i64::MIN,
            is_gapless: true,
            port_pairs: Vec::new(),
            is_balanced: true,
        };
        for (index, own) in data.filter(|(_, own)| !own.key.is_datagram()) {
            numbers.indices.insert((tag_layout::receiver(&own.key), own.key.src), index);
            numbers.last_time_ns = numbers.last_time_ns.max(own.times_ns.1);
            numbers.is_gapless &= own.continuity.missing_requests == 0;
            // The connections are sorted by key.
            let ports = (own.key.src, own.key.dst);
            match numbers.port_pairs.last_mut().filter(|(last, _)| *last == ports) {
                Some((_, count)) => *count += 1,
                None => numbers.port_pairs.push((ports, 1)),
            }
        }
        numbers.is_balanced =
            numbers.port_pairs.iter().all(|((src, dst), count)| numbers.connections_between(*dst, *src) == *count);
        numbers
    }

    fn connections_between(&self, src: Endpoint, dst: Endpoint) -> u32 {
        let found = self.port_pairs.binary_search_by_key(&(src, dst), |(ports, _)| *ports);
        found.map_or(0, |at| self.port_pairs[at].1)
    }

    /// The numbers of the packets from a port to a queue pair.
    fn of(&self, to: QueuePair, from: Endpoint) -> Option<ConnectionNumbers> {
        let index = self.indices.get(&(to, from))?;
        Some(ConnectionNumbers::new(&self.connections[*index as usize], self.is_window))
    }

    /// True if two queue pairs may be the two ends of one connection.
    pub(super) fn admit(&self, a: QueuePair, b: QueuePair) -> bool {
        let (Some(to_a), Some(to_b)) = (self.of(a, b.endpoint), self.of(b, a.endpoint)) else { return true };
        let fits = [to_a.fit(&to_b, self.is_gapless), to_b.fit(&to_a, self.is_gapless)];
        if fits.contains(&NumberFit::Contradict) {
            return false;
        }
        let open = fits.iter().filter_map(|fit| if let NumberFit::Open { psns } = fit { Some(*psns) } else { None });
        let Some(unanswered_psns) = open.max().filter(|_| !fits.contains(&NumberFit::Agree)) else { return true };
        let idle_ns = self.last_time_ns.saturating_sub(to_a.last_time_ns.min(to_b.last_time_ns));
        let is_only = || self.is_balanced && self.connections_between(a.endpoint, b.endpoint) == 1;
        let are_few = unanswered_psns <= ONLY_UNANSWERED_PSNS || !self.is_gapless;
        idle_ns <= IN_FLIGHT_NS || are_few && is_only()
    }
}

impl ConnectionNumbers {
    fn new(own: &ConnectionTotals, is_window: bool) -> Self {
        let continuity = &own.continuity;
        let Continuity { first_psn, missing_requests, uncertain, guessed_reads, restarted, .. } = *continuity;
        let is_certain = !uncertain && !restarted;
        // PSN 0 is the first one of UCX and NCCL. Others begin at any PSN.
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
    fn fit(&self, responses: &Self, is_gapless: bool) -> NumberFit {
        if !self.is_certain {
            return NumberFit::Silent;
        }
        let Some(last_response) = responses.last_response else {
            let expects_responses = self.expected_responses.is_some_and(|expected| expected > 0);
            return if expects_responses { NumberFit::Open { psns: u64::MAX } } else { NumberFit::Silent };
        };
        if let Some(sent) = self.sent_messages {
            let has_more_responses = self.expected_responses.is_some_and(|expected| responses.responses > expected);
            if responses.acknowledged_messages > sent || has_more_responses {
                return NumberFit::Contradict;
            }
        }
        let Some(last_request) = self.last_request else { return NumberFit::Open { psns: u64::MAX } };
        let tolerance = if is_gapless { 0 } else { DISTANCES * self.distance };
        let ahead = ahead_of(last_request, last_response);
        if ahead > tolerance {
            // If requests are missing, the last READ may be, which takes any number of PSNs.
            return if is_gapless { NumberFit::Contradict } else { NumberFit::Open { psns: ahead } };
        }
        match self.last_asking.map(|last| ahead_of(last_response, last)) {
            Some(psns) if psns <= tolerance => NumberFit::Agree,
            Some(psns) if responses.has_acks => NumberFit::Open { psns },
            // Responses to READs say nothing of the requests after them, and an adapter need not ask
            // for every ACK.
            Some(_) | None => NumberFit::Silent,
        }
    }
}

/// How far a PSN is ahead of another one; 0 if it is not.
const fn ahead_of(other: u32, psn: u32) -> u64 {
    let ahead = psn.wrapping_sub(other) & MASK;
    if ahead < HALF { ahead as u64 } else { 0 }
}

/// The later one of two PSNs.
fn later(a: Option<u32>, b: Option<u32>) -> Option<u32> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b.wrapping_sub(a) & MASK < HALF { b } else { a }),
        (a, b) => a.or(b),
    }
}
