//! The queue pairs of the nodes, and what each of them has sent.
//!
//! What never changes (PSN of the first request, number, port) is not stored but drawn again where it is needed, so that ten million
//! connections take 24 bytes each.

use std::collections::BTreeSet;
use std::io;

use crate::pattern;
use crate::random::Random;
use crate::totals::PairTotals;
use crate::{Options, refuse};

/// Random numbers that one connection takes: of each end its first PSN and IPv4 identification, then the UDP port and the transit time.
const DRAWS_PER_CONNECTION: u64 = 6;
/// A node numbers its queue pairs from here.
const FIRST_QPN: u32 = 0x81;

/// What changes of one end of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct End {
    /// Requests sent, repeats not counted.
    requests: u32,
    /// Messages from the other end that are complete here.
    complete: u32,
    /// Packets sent, as the identification of IPv4 counts them.
    packets: u16,
    /// A message from this end is under way.
    pub(crate) busy: bool,
}

/// Two nodes that are connected.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    /// Both, the one that was connected first before the other.
    pub(crate) nodes: [u16; 2],
    /// The first queue pair of each; the others follow.
    first_qpn: [u32; 2],
    /// When both have introduced themselves to each other; 0 before they begin.
    pub(crate) ready_ns: u64,
    /// What each has sent to the other.
    pub(crate) totals: [PairTotals; 2],
}

/// All connections.
pub(crate) struct Connections {
    /// Every two nodes that are connected.
    pub(crate) pairs: Vec<Pair>,
    qps: usize,
    ends: Vec<[End; 2]>,
    /// Where the random numbers of the first connection begin.
    random: Random,
}

impl Connections {
    /// Connects the nodes: those between whom somebody sends, or without a pattern many to many. Takes the random numbers of all
    /// connections.
    pub(crate) fn new(options: &Options, sends: Option<&[(u16, u16)]>, random: &mut Random) -> io::Result<Self> {
        let nodes: Vec<(u16, u16)> = match sends {
            Some(sends) => {
                let both: BTreeSet<_> = sends.iter().map(|(from, to)| (*from.min(to), *from.max(to))).collect();
                both.into_iter().collect()
            }
            None => pattern::anyone(options.lids).collect(),
        };
        let connections = nodes.len() as u64 * u64::from(options.qps);
        if connections > Options::MAX_CONNECTIONS {
            let most = Options::MAX_CONNECTIONS;
            return Err(refuse(format!(
                "{} pairs with {} queue pairs each: {most} are possible",
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
        let pair = |&(first, second): &(u16, u16)| Pair {
            nodes: [first, second],
            first_qpn: [first_qpn(first), first_qpn(second)],
            ready_ns: 0,
            totals: [PairTotals::default(); 2],
        };
        let pairs: Vec<Pair> = nodes.iter().map(pair).collect();
        if next_qpn.iter().any(|&next| next > 1 << 24) {
            return Err(refuse(format!("{} queue pairs per pair of ports: a node has numbers for 2^24", options.qps)));
        }
        let of_connections = random.clone();
        random.skip(connections * DRAWS_PER_CONNECTION);
        let ends = vec![[End::default(); 2]; connections as usize];
        Ok(Self { pairs, qps: options.qps as usize, ends, random: of_connections })
    }

    /// Number of connections.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The pair of nodes whose connection this is.
    pub(crate) fn pair_of(&self, connection: usize) -> usize {
        connection / self.qps
    }

    /// The connections of a pair.
    pub(crate) fn of_pair(&self, pair: usize) -> std::ops::Range<usize> {
        pair * self.qps..(pair + 1) * self.qps
    }

    /// Node of this end.
    pub(crate) fn node(&self, connection: usize, end: usize) -> u16 {
        self.pairs[connection / self.qps].nodes[end]
    }

    /// Queue pair number of this end.
    pub(crate) fn qpn(&self, connection: usize, end: usize) -> u32 {
        self.pairs[connection / self.qps].first_qpn[end] + (connection % self.qps) as u32
    }

    /// PSN of the next request of this end.
    pub(crate) fn psn(&self, connection: usize, end: usize) -> u32 {
        let first = self.draw(connection, 2 * end as u64).below(1 << 24) as u32;
        first.wrapping_add(self.ends[connection][end].requests) & 0xFF_FFFF
    }

    /// The next request of this end is sent; returns its PSN.
    pub(crate) fn request(&mut self, connection: usize, end: usize) -> u32 {
        let psn = self.psn(connection, end);
        let requests = &mut self.ends[connection][end].requests;
        *requests = requests.wrapping_add(1);
        psn
    }

    /// A message is complete at this end.
    pub(crate) fn complete(&mut self, connection: usize, end: usize) {
        let complete = &mut self.ends[connection][end].complete;
        *complete = complete.wrapping_add(1);
    }

    /// Messages that are complete at this end, as an ACK counts them.
    pub(crate) fn msn(&self, connection: usize, end: usize) -> u32 {
        self.ends[connection][end].complete & 0xFF_FFFF
    }

    /// Identification of the next IPv4 packet of this end, which is sent.
    pub(crate) fn next_ip_id(&mut self, connection: usize, end: usize) -> u16 {
        let first = self.draw(connection, 2 * end as u64 + 1).next() as u16;
        let packets = &mut self.ends[connection][end].packets;
        *packets = packets.wrapping_add(1);
        first.wrapping_add(*packets)
    }

    /// UDP source port.
    pub(crate) fn udp_source(&self, connection: usize) -> u16 {
        0xC000 | self.draw(connection, 4).below(1 << 14) as u16
    }

    /// From one port to the other: fixed, so that packets never overtake each other.
    pub(crate) fn transit_ns(&self, connection: usize) -> u64 {
        800 + self.draw(connection, 5).below(800)
    }

    /// Messages under way, by end.
    pub(crate) fn busy(&mut self, connection: usize) -> [&mut bool; 2] {
        self.ends[connection].each_mut().map(|end| &mut end.busy)
    }

    /// The random numbers of a connection from that of this index on.
    fn draw(&self, connection: usize, index: u64) -> Random {
        let mut random = self.random.clone();
        random.skip(connection as u64 * DRAWS_PER_CONNECTION + index);
        random
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the limit of connections promises in bytes.
    #[test]
    fn a_connection_takes_24_bytes() {
        assert_eq!(size_of::<[End; 2]>(), 24);
        assert!(size_of::<Pair>() <= 150);
    }
}
