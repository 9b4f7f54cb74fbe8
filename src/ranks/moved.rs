//! Queue pairs whose packets carry another address than the connection messages that name them.
//!
//! Connection messages state the port of a process, packets carry the path that was chosen: with several LIDs per port
//! (LMC) each connection may use another one, and a second rail has an address of its own. Both messages of an exchange
//! state a queue pair number and the first PSN. A connection between two queue pairs with these numbers, which begins
//! with these PSNs, is the one that is meant, if the ports that the messages name have none and no other one fits.

use super::cm::Exchange;
use super::{Pairs, Witnesses, reading};
use crate::model::traffic::ConnectionTotals;
use crate::model::{HashMap, Kind, QueuePair, Wireup};
use ibscope_parsers::mpi::ucx_wireup::{Lane, lanes};
use ibscope_parsers::{Endpoint, Qpn};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

/// Queue pairs as packets show them, by the name that connection messages give them.
#[derive(Clone, Debug, Default)]
pub(super) struct Moved(HashMap<QueuePair, QueuePair>);

impl Moved {
    /// The queue pair that is meant by a name.
    pub(super) fn actual(&self, named: QueuePair) -> QueuePair {
        self.0.get(&named).copied().unwrap_or(named)
    }

    /// The queue pair that is meant by a name, where packets show it at another port.
    pub(super) fn elsewhere(&self, named: QueuePair) -> Option<QueuePair> {
        self.0.get(&named).copied()
    }
}

/// The most bits of a LID that the LID mask control of a port gives to paths (InfiniBand Architecture, 7.11.1).
const LMC_LIMIT: u32 = 7;

/// Connections between queue pairs of the same two numbers that are compared with the names; of more none is taken.
const MAX_ALIKE: usize = 1 << 10;

/// Two queue pairs that an exchange names as the ends of a connection, and the PSN that each expects first.
type Named = [(QueuePair, u32); 2];

/// Connections by the numbers of their queue pairs, the lower one first.
type Connected = HashMap<(Qpn, Qpn), SmallVec<[[QueuePair; 2]; 1]>>;

/// The first PSN that each connected queue pair was sent; `None` where only answers were seen.
type FirstPsns = HashMap<QueuePair, Option<u32>>;

/// Finds what connection messages name and packets show elsewhere.
pub(super) fn moved(witnesses: &Witnesses<'_>, exchanges: &[Exchange], paired: &Pairs) -> Moved {
    let mut named: Vec<Named> = exchanges.iter().filter_map(by_cm).collect();
    if named.is_empty() && witnesses.wireups.is_empty() {
        return Moved::default();
    }
    let first_psns = first_psns(witnesses.connections);
    let mut connected = connected(&first_psns, paired);
    named.extend(by_wireup(witnesses.wireups, |a, b| connected.contains_key(&numbers(a, b))));
    named.retain(|ends| {
        let is_shown = ends.iter().all(|(end, _)| first_psns.contains_key(end));
        if is_shown && let Some(connections) = connected.get_mut(&numbers(ends[0].0, ends[1].0)) {
            let shown = sorted(ends.map(|(end, _)| end));
            connections.retain(|connection| *connection != shown);
        }
        !is_shown
    });
    let mut found = Found::default();
    let mut open = Vec::new();
    for ends in &named {
        match fitting(ends, &connected, &first_psns) {
            ways if ways.is_empty() => {}
            ways if ways.len() == 1 => found.add(ends, ways[0]),
            ways => open.push((ends, ways)),
        }
    }
    // Each that is told apart shows where ports have others, which may tell more apart.
    while !open.is_empty() {
        let before = open.len();
        open.retain(|(ends, ways)| match found.way(ends, ways) {
            Some(actual) => {
                found.add(ends, actual);
                false
            }
            None => true,
        });
        if open.len() == before {
            break;
        }
    }
    found.settle()
}

/// What names stand for, as far as it is seen.
#[derive(Debug, Default)]
struct Found {
    actual: HashMap<QueuePair, BTreeSet<QueuePair>>,
    names: HashMap<QueuePair, BTreeSet<QueuePair>>,
    /// Ports at which queue pairs of a port are shown.
    ports: BTreeSet<(Endpoint, Endpoint)>,
}

impl Found {
    fn add(&mut self, ends: &Named, actual: [QueuePair; 2]) {
        for ((name, _), actual) in ends.iter().zip(actual) {
            self.actual.entry(*name).or_default().insert(actual);
            self.names.entry(actual).or_default().insert(*name);
            self.ports.insert((name.endpoint, actual.endpoint));
        }
    }

    /// Which of several is meant: the only one between ports that others have shown to belong to those of the names; of
    /// one connection read both ways round, that in which LIDs differ in fewer of the lowest bits, as those of one port do.
    fn way(&self, ends: &Named, ways: &[[QueuePair; 2]]) -> Option<[QueuePair; 2]> {
        let is_known = |way: &&[QueuePair; 2]| {
            let mut pairs = way.iter().zip(ends);
            pairs.all(|(actual, (name, _))| {
                actual.endpoint == name.endpoint || self.ports.contains(&(name.endpoint, actual.endpoint))
            })
        };
        let mut known = ways.iter().filter(is_known);
        match (known.next(), known.next(), ways) {
            (Some(way), None, _) => Some(*way),
            (None, _, [one, other]) if sorted(*one) == sorted(*other) => {
                match [one, other].map(|way| differing_bits(ends, way)) {
                    [Some(a), b] if b.is_none_or(|b| a < b) => Some(*one),
                    [a, Some(b)] if a.is_none_or(|a| b < a) => Some(*other),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Names that stand for one queue pair, which has one name.
    fn settle(self) -> Moved {
        let only = |(name, actual): (QueuePair, BTreeSet<QueuePair>)| {
            let actual = actual.first().copied().filter(|_| actual.len() == 1)?;
            (self.names.get(&actual)?.len() == 1).then_some((name, actual))
        };
        Moved(self.actual.into_iter().filter_map(only).collect())
    }
}

/// The lowest bits in which LIDs differ from those of the names, if they may be paths of one port.
fn differing_bits(ends: &Named, way: &[QueuePair; 2]) -> Option<u32> {
    let bits = |(actual, (name, _)): (&QueuePair, &(QueuePair, u32))| {
        Some(u16::BITS - (actual.endpoint.lid()?.0 ^ name.endpoint.lid()?.0).leading_zeros())
    };
    let most = way.iter().zip(ends).map(bits).try_fold(0, |most: u32, bits| Some(most.max(bits?)));
    most.filter(|bits| *bits <= LMC_LIMIT)
}

/// The numbers of two queue pairs, the lower one first.
fn numbers(a: QueuePair, b: QueuePair) -> (Qpn, Qpn) {
    (a.qpn.min(b.qpn), a.qpn.max(b.qpn))
}

fn sorted([a, b]: [QueuePair; 2]) -> [QueuePair; 2] {
    [a.min(b), a.max(b)]
}

fn by_cm(exchange: &Exchange) -> Option<Named> {
    let (requester, replier) = exchange.first_psns;
    Some([(exchange.requester, requester?), (exchange.replier, replier?)])
}

/// The queue pairs that a wire-up message lists: at the ports that it states, where one of these is the port that it was
/// sent from; else at that port.
pub(super) fn listed(wireup: &Wireup) -> impl Iterator<Item = QueuePair> + '_ {
    let states_ports = lanes(&wireup.address).any(|lane| lane.device.is_some_and(|device| device.port == wireup.src));
    lanes(&wireup.address).map(move |Lane { qpn, device, .. }| {
        let endpoint = device.filter(|_| states_ports).map_or(wireup.src, |device| device.port);
        QueuePair { endpoint, qpn }
    })
}

/// Lanes of an endpoint of UCX (`UCP_MAX_LANES` is 16), with room for those that it had before its connection stood. What
/// lists more is several endpoints of one id, and names nothing.
const MAX_LANES: usize = 32;

/// What UCX's requests and replies name: every lane of the one with every lane of the other, of those between which there
/// is a connection. Both PSNs are 0 (`uct_rc_iface_qp_connect`).
fn by_wireup(wireups: &[Wireup], is_connected: impl Fn(QueuePair, QueuePair) -> bool) -> BTreeSet<Named> {
    let mut endpoints: BTreeMap<(Endpoint, u64), BTreeMap<u64, BTreeSet<QueuePair>>> = BTreeMap::new();
    for wireup in wireups {
        let workers = endpoints.entry((wireup.src, wireup.sender_endpoint)).or_default();
        workers.entry(wireup.worker).or_default().extend(listed(wireup));
    }
    let of = |endpoint, id| -> Option<Vec<QueuePair>> {
        let workers = endpoints.get(&(endpoint, id)).filter(|workers| workers.len() == 1)?;
        let lanes = workers.values().next().filter(|lanes| lanes.len() <= MAX_LANES)?;
        Some(lanes.iter().copied().collect())
    };
    let replies = wireups.iter().filter(|wireup| wireup.receiver_endpoint != 0);
    let replies: BTreeSet<_> =
        replies.map(|wireup| ((wireup.src, wireup.sender_endpoint), (wireup.dst, wireup.receiver_endpoint))).collect();
    let mut named = BTreeSet::new();
    for ((src, sender), (dst, receiver)) in replies {
        let own = of(src, sender).unwrap_or_default();
        let others = of(dst, receiver).unwrap_or_default();
        for &own in &own {
            let others = others.iter().filter(|other| is_connected(own, **other));
            named.extend(others.map(|&other| [(own.min(other), 0), (own.max(other), 0)]));
        }
    }
    named
}

fn first_psns(connections: &[Box<ConnectionTotals>]) -> FirstPsns {
    let connected = connections.iter().filter(|own| own.key.kind == Kind::Data && !own.key.is_datagram());
    connected.map(|own| (reading::receiver(&own.key), own.continuity.first_psn)).collect()
}

fn connected(first_psns: &FirstPsns, paired: &Pairs) -> Connected {
    let mut connected = Connected::default();
    for &end in first_psns.keys() {
        // Where packets went both ways, once.
        if let Some((other, _)) =
            paired.partner(end).filter(|(other, _)| end < *other || !first_psns.contains_key(other))
        {
            connected.entry(numbers(end, other)).or_default().push(sorted([end, other]));
        }
    }
    connected
}

/// Connections between queue pairs with these numbers that begin with these PSNs, in the order of the names.
fn fitting(ends: &Named, connected: &Connected, first_psns: &FirstPsns) -> Vec<[QueuePair; 2]> {
    let fits = |actual: &[QueuePair; 2]| {
        let seen = actual.map(|end| first_psns.get(&end).copied().flatten());
        let agrees = |(seen, (_, named)): (&Option<u32>, &(QueuePair, u32))| seen.is_none_or(|seen| seen == *named);
        let is_meant = |(actual, (name, _)): (&QueuePair, &(QueuePair, u32))| {
            actual == name || actual.qpn == name.qpn && !first_psns.contains_key(name)
        };
        actual.iter().zip(ends).all(is_meant) && seen.iter().any(Option::is_some) && seen.iter().zip(ends).all(agrees)
    };
    let candidates =
        connected.get(&numbers(ends[0].0, ends[1].0)).filter(|all| all.len() <= MAX_ALIKE).into_iter().flatten();
    candidates.flat_map(|&[low, high]| [[low, high], [high, low]]).filter(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibscope_parsers::Lid;

    /// A request or reply of endpoint 1 or 2 that lists so many queue pairs, from this number on.
    fn wireup(from: u64, lanes: u32) -> Wireup {
        let to = 3 - from;
        let mut address = vec![0; 9];
        address.push(0x40);
        for lane in 0..lanes {
            let [low, middle, high, _] = (0x1000 * from as u32 + lane).to_le_bytes();
            address.extend([4, 0, low, middle, high, if lane + 1 == lanes { 0x80 } else { 0 }]);
        }
        Wireup {
            src: Endpoint::from_lid(Lid(from as u16)),
            dst: Endpoint::from_lid(Lid(to as u16)),
            worker: from,
            sender_endpoint: from,
            receiver_endpoint: to,
            datagram_qp: None,
            address,
        }
    }

    /// Every lane with every lane takes the product of their numbers, so there is a bound, and what is not connected is
    /// left out.
    #[test]
    fn lanes_of_an_endpoint_are_few() {
        let named = |lanes: u32| by_wireup(&[wireup(1, lanes), wireup(2, lanes)], |_, _| true).len();
        assert_eq!([named(2), named(MAX_LANES as u32), named(MAX_LANES as u32 + 1)], [4, MAX_LANES * MAX_LANES, 0]);
        let connected = by_wireup(&[wireup(1, 3), wireup(2, 3)], |own, _| own.qpn == Qpn::new(0x1001));
        assert_eq!(connected.len(), 3);
    }

    /// Connections between queue pairs of the same numbers, of which one begins as the names say.
    #[test]
    fn of_too_many_connections_of_the_same_numbers_none_is_taken() {
        let end = |lid: u16, qpn: u32| QueuePair { endpoint: Endpoint::from_lid(Lid(lid)), qpn: Qpn::new(qpn) };
        let named: Named = [(end(1, 0x10), 500), (end(2, 0x20), 500)];
        for (connections, expected) in [(MAX_ALIKE as u16, 1), (MAX_ALIKE as u16 + 1, 0)] {
            let (mut connected, mut first_psns) = (Connected::default(), FirstPsns::default());
            for connection in 0..connections {
                let ends = [end(100 + connection, 0x10), end(5000 + connection, 0x20)];
                first_psns.extend(ends.map(|end| (end, Some(if connection == 3 { 500 } else { 900 }))));
                connected.entry(numbers(ends[0], ends[1])).or_default().push(sorted(ends));
            }
            assert_eq!(fitting(&named, &connected, &first_psns).len(), expected);
        }
    }
}
