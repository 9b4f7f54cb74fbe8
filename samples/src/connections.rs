//! The queue pairs of the nodes and their counters.
//!
//! Constant values (first PSN, queue pair number, UDP port) are not stored but computed again when
//! needed, so ten million connections take 24 bytes each.

use std::collections::BTreeSet;
use std::io;

use crate::pattern;
use crate::random::Random;
use crate::totals::PairTotals;
use crate::{SampleOptions, invalid_option};

/// Random numbers per connection: first PSN and IPv4 identification of each end, then UDP port and
/// transit time.
const DRAWS_PER_CONNECTION: u64 = 6;
/// First queue pair number of a node.
const FIRST_QPN: u32 = 0x81;

/// Counters of one end of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueuePairState {
    /// Requests sent, without retransmissions.
    requests: u32,
    /// Messages from the other end that this end has received completely.
    complete: u32,
    /// Packets sent, for the identification field of IPv4.
    packets: u16,
    /// True while a message from this end is in flight.
    pub(crate) busy: bool,
}

/// Two connected nodes.
#[derive(Clone, Debug)]
pub(crate) struct NodePair {
    /// Node numbers; with a pattern the smaller one is first.
    pub(crate) nodes: [u16; 2],
    /// First queue pair number of each node; the others follow.
    first_qpn: [u32; 2],
    /// Time at which the connection messages are complete; 0 before they start.
    pub(crate) ready_ns: u64,
    /// Totals of the packets that each node has sent to the other.
    pub(crate) totals: [PairTotals; 2],
}

/// All connections of a capture.
pub(crate) struct SampleConnections {
    /// Pairs of connected nodes.
    pub(crate) pairs: Vec<NodePair>,
    qps: usize,
    ends: Vec<[QueuePairState; 2]>,
    /// State of the random numbers before the first connection.
    random: Random,
}

impl SampleConnections {
    /// Connects the pairs in `sends`, or without a pattern each node to its neighbors. Skips the
    /// random numbers of all connections.
    pub(crate) fn new(options: &SampleOptions, sends: Option<&[(u16, u16)]>, random: &mut Random) -> io::Result<Self> {
        let nodes: Vec<(u16, u16)> = match sends {
            Some(sends) => {
                let both: BTreeSet<_> = sends.iter().map(|(from, to)| (*from.min(to), *from.max(to))).collect();
                both.into_iter().collect()
            }
            None => pattern::neighbor_pairs(options.lids).collect(),
        };
        let connections = nodes.len() as u64 * u64::from(options.qps);
        if connections > SampleOptions::MAX_CONNECTIONS {
            let most = SampleOptions::MAX_CONNECTIONS;
            return Err(invalid_option(format!(
                "{} pairs with {} queue pairs each: expected at most {most} connections",
                nodes.len(),
                options.qps
            )));
        }
        let mut next_qpn = vec![FIRST_QPN; usize::from(options.lids) + 1];
        let mut first_qpn = |node: u16| {
            let next = &mut next_qpn[usize::from(node)];
            *next += options.qps;
            *next - options.qps
        };
        let pair = |&(first, second): &(u16, u16)| NodePair {
            nodes: [first, second],
            first_qpn: [first_qpn(first), first_qpn(second)],
            ready_ns: 0,
            totals: [PairTotals::default(); 2],
        };
        let pairs: Vec<NodePair> = nodes.iter().map(pair).collect();
        if next_qpn.iter().any(|&next| next > 1 << 24) {
            return Err(invalid_option(format!(
                "{} queue pairs per pair of ports: a node can number at most 2^24",
                options.qps
            )));
        }
        let of_connections = random.clone();
        random.skip(connections * DRAWS_PER_CONNECTION);
        let ends = vec![[QueuePairState::default(); 2]; connections as usize];
        Ok(Self { pairs, qps: options.qps as usize, ends, random: of_connections })
    }

    /// Number of connections.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Index of the pair of nodes that the connection belongs to.
    pub(crate) fn pair_of(&self, connection: usize) -> usize {
        connection / self.qps
    }

    /// Connections of a pair of nodes.
    pub(crate) fn of_pair(&self, pair: usize) -> std::ops::Range<usize> {
        pair * self.qps..(pair + 1) * self.qps
    }

    /// Node at this end.
    pub(crate) fn node(&self, connection: usize, end: usize) -> u16 {
        self.pairs[connection / self.qps].nodes[end]
    }

    /// Queue pair number of this end.
    pub(crate) fn qpn(&self, connection: usize, end: usize) -> u32 {
        self.pairs[connection / self.qps].first_qpn[end] + (connection % self.qps) as u32
    }

    /// PSN of this end's next request.
    pub(crate) fn psn(&self, connection: usize, end: usize) -> u32 {
        let first = self.draw(connection, 2 * end as u64).below(1 << 24) as u32;
        first.wrapping_add(self.ends[connection][end].requests) & 0xFF_FFFF
    }

    /// Counts a request of this end and returns its PSN.
    pub(crate) fn request(&mut self, connection: usize, end: usize) -> u32 {
        let psn = self.psn(connection, end);
        let requests = &mut self.ends[connection][end].requests;
        *requests = requests.wrapping_add(1);
        psn
    }

    /// Counts a message that is complete at this end.
    pub(crate) fn complete(&mut self, connection: usize, end: usize) {
        let complete = &mut self.ends[connection][end].complete;
        *complete = complete.wrapping_add(1);
    }

    /// Message sequence number: messages that are complete at this end.
    pub(crate) fn msn(&self, connection: usize, end: usize) -> u32 {
        self.ends[connection][end].complete & 0xFF_FFFF
    }

    /// Counts an IPv4 packet of this end and returns its identification.
    pub(crate) fn next_ip_id(&mut self, connection: usize, end: usize) -> u16 {
        let first = self.draw(connection, 2 * end as u64 + 1).next() as u16;
        let packets = &mut self.ends[connection][end].packets;
        *packets = packets.wrapping_add(1);
        first.wrapping_add(*packets)
    }

    /// UDP source port of the connection.
    pub(crate) fn udp_source(&self, connection: usize) -> u16 {
        0xC000 | self.draw(connection, 4).below(1 << 14) as u16
    }

    /// Transit time from port to port in nanoseconds: constant, so that packets never overtake each
    /// other.
    pub(crate) fn transit_ns(&self, connection: usize) -> u64 {
        800 + self.draw(connection, 5).below(800)
    }

    /// The `busy` flags of both ends.
    pub(crate) fn busy(&mut self, connection: usize) -> [&mut bool; 2] {
        self.ends[connection].each_mut().map(|end| &mut end.busy)
    }

    /// Random numbers of a connection, from index `index` on.
    fn draw(&self, connection: usize, index: u64) -> Random {
        let mut random = self.random.clone();
        random.skip(connection as u64 * DRAWS_PER_CONNECTION + index);
        random
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory per connection that [`SampleOptions::MAX_CONNECTIONS`] assumes.
    #[test]
    fn a_connection_takes_24_bytes() {
        assert_eq!(size_of::<[QueuePairState; 2]>(), 24);
        assert!(size_of::<NodePair>() <= 150);
    }
}
