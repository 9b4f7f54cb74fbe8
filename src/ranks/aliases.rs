//! Queue pairs whose packets carry a different address than the connection messages that name them.
//!
//! Connection messages state the port of a process; packets carry the address of the chosen path.
//! With several LIDs per port (LMC) each connection may use a different LID, and a second rail has
//! its own address. Both messages of an exchange state a queue pair number and the first PSN. A
//! connection between two queue pairs with these numbers that starts with these PSNs is an alias of
//! the stated one. Invariant: an alias is accepted only if the stated ports have no such queue
//! pairs, no other connection is consistent, and the two ports exchange no packets, as ports of one
//! node.

use super::cm::CmExchange;
use super::{IdentityEvidence, QueuePairPartners, tag_layout};
use crate::model::{ConnectionTotals, HashMap, QueuePair, TrafficKind, WorkerWireup};
use ibscope_parsers::mpi::ucx_wireup::{UcxLane, lanes};
use ibscope_parsers::{Endpoint, Qpn};
use smallvec::SmallVec;
use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};

/// Queue pairs in packets, by the queue pairs that connection messages state.
#[derive(Clone, Debug, Default)]
pub(super) struct QueuePairAliases(HashMap<QueuePair, QueuePair>);

impl QueuePairAliases {
    /// The queue pair in packets for a stated one, which may be the same.
    pub(super) fn actual(&self, named: QueuePair) -> QueuePair {
        self.0.get(&named).copied().unwrap_or(named)
    }

    /// The queue pair in packets for a stated one, if packets show it at another port.
    pub(super) fn alias(&self, named: QueuePair) -> Option<QueuePair> {
        self.0.get(&named).copied()
    }
}

/// Maximum LID mask control of a port: the number of low LID bits that select a path (InfiniBand
/// Architecture, 7.11.1).
const LMC_LIMIT: u32 = 7;

/// Maximum number of connections with the same two queue pair numbers; if exceeded, none is
/// compared.
const MAX_ALIKE: usize = 1 << 10;

/// Two queue pairs that an exchange states as the ends of a connection, each with the PSN that it
/// expects first.
type ConnectionMessageEnds = [(QueuePair, u32); 2];

/// Connections by the numbers of their queue pairs, the lower number first.
type ConnectionsByQpns = HashMap<(Qpn, Qpn), SmallVec<[[QueuePair; 2]; 1]>>;

/// The first PSN sent to each connected queue pair; `None` if only responses were observed.
type FirstPsns = HashMap<QueuePair, Option<u32>>;

/// Finds the aliases of all stated queue pairs.
pub(super) fn find_aliases(
    evidence: &IdentityEvidence<'_>,
    exchanges: &[CmExchange],
    paired: &QueuePairPartners,
) -> QueuePairAliases {
    let mut named: Vec<ConnectionMessageEnds> = exchanges.iter().filter_map(by_cm).collect();
    if named.is_empty() && evidence.wireups.is_empty() {
        return QueuePairAliases::default();
    }
    let first_psns = first_psns(evidence.connections);
    let mut connected = connections_by_qpns(&first_psns, paired, &own_queue_pairs(evidence));
    named.extend(by_wireup(evidence.wireups, |a, b| connected.contains_key(&sorted_qpns(a, b))));
    named.retain(|ends| {
        let is_shown = ends.iter().all(|(end, _)| first_psns.contains_key(end));
        if is_shown && let Some(connections) = connected.get_mut(&sorted_qpns(ends[0].0, ends[1].0)) {
            let shown = sorted(ends.map(|(end, _)| end));
            connections.retain(|connection| *connection != shown);
        }
        !is_shown
    });
    let ports_with_traffic: LazyCell<BTreeSet<(Endpoint, Endpoint)>, _> = LazyCell::new(|| {
        let data = evidence.connections.iter().filter(|own| own.key.kind == TrafficKind::Data);
        data.map(|own| own.key.port_pair()).collect()
    });
    // Ports of one node do not exchange packets.
    let may_be_one_node = |a: Endpoint, b: Endpoint| !ports_with_traffic.contains(&(a.min(b), a.max(b)));
    let unexplained = unexplained_ports(&named, &connected, &first_psns);
    let mut found = AliasCandidates::default();
    let mut open = Vec::new();
    for ends in &named {
        let mut ways = consistent_connections(ends, &connected, &first_psns);
        // The connection of another exchange, which was not captured, may look like the stated one.
        ways.retain(|way| !way.iter().any(|end| unexplained.contains(&end.endpoint)));
        ways.retain(|way| {
            let mut ports = way.iter().zip(ends).map(|(actual, (name, _))| (actual.endpoint, name.endpoint));
            ports.all(|(actual, name)| actual == name || may_be_one_node(actual, name))
        });
        match ways {
            ways if ways.is_empty() => {}
            ways if ways.len() == 1 => found.add(ends, ways[0]),
            ways => open.push((ends, ways)),
        }
    }
    // Each resolved exchange shows which ports belong together, which may resolve others.
    while !open.is_empty() {
        let before = open.len();
        open.retain(|(ends, ways)| match found.choose(ends, ways) {
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
    if !open.is_empty() {
        for (ends, actual) in by_lid_mask(&open, &found, &ports_with_traffic).unwrap_or_default() {
            found.add(ends, actual);
        }
    }
    found.into_aliases()
}

/// Resolves all open exchanges by the LIDs of ports: a port with the LID mask control `k` has the 2^k
/// LIDs that differ in their low `k` bits. Accepts a `k` only if no two ports with such LIDs exchange
/// packets, all aliases found so far agree, and each open exchange has exactly one connection, which no
/// other one has.
fn by_lid_mask<'a>(
    open: &[(&'a ConnectionMessageEnds, Vec<[QueuePair; 2]>)],
    found: &AliasCandidates,
    ports_with_traffic: &BTreeSet<(Endpoint, Endpoint)>,
) -> Option<Vec<(&'a ConnectionMessageEnds, [QueuePair; 2])>> {
    let bits_of = |ports: &BTreeSet<(Endpoint, Endpoint)>| -> Option<Vec<u32>> {
        ports.iter().map(|(one, other)| lid_bits(*one, *other)).collect()
    };
    let least = bits_of(&found.ports)?.into_iter().max().unwrap_or(0);
    let below = bits_of(ports_with_traffic)?.into_iter().min()?;
    for mask_control in least..below.min(LMC_LIMIT + 1) {
        let mut resolved = Vec::with_capacity(open.len());
        let mut taken: BTreeSet<[QueuePair; 2]> = BTreeSet::new();
        for (ends, ways) in open {
            let of_ports = |way: &&[QueuePair; 2]| differing_bits(ends, way).is_some_and(|bits| bits <= mask_control);
            let mut ways = ways.iter().filter(of_ports);
            if let (Some(way), None) = (ways.next(), ways.next())
                && taken.insert(sorted(*way))
            {
                resolved.push((*ends, *way));
            }
        }
        if resolved.len() == open.len() {
            return Some(resolved);
        }
    }
    None
}

/// Ports with a connection from PSN 0 on, as UCX starts them, whose queue pair numbers no exchange
/// states, although exchanges state others from PSN 0 on: the capture misses exchanges of these ports,
/// and so it may miss connections too.
fn unexplained_ports(
    named: &[ConnectionMessageEnds],
    connected: &ConnectionsByQpns,
    first_psns: &FirstPsns,
) -> BTreeSet<Endpoint> {
    let of_ucx = named.iter().filter(|ends| ends.iter().all(|(_, psn)| *psn == 0));
    let stated: BTreeSet<(Qpn, Qpn)> = of_ucx.map(|ends| sorted_qpns(ends[0].0, ends[1].0)).collect();
    if stated.is_empty() {
        return BTreeSet::new();
    }
    let starts_at_0 = |end: &QueuePair| first_psns.get(end).copied().flatten() == Some(0);
    let unstated = connected.iter().filter(|(qpns, _)| !stated.contains(qpns)).flat_map(|(_, connections)| connections);
    let from_0 = unstated.filter(|connection| connection.iter().all(starts_at_0));
    from_0.flatten().map(|end| end.endpoint).collect()
}

/// Candidates: observed queue pairs of stated ones, and the reverse.
#[derive(Debug, Default)]
struct AliasCandidates {
    actual: HashMap<QueuePair, BTreeSet<QueuePair>>,
    names: HashMap<QueuePair, BTreeSet<QueuePair>>,
    /// Pairs of a stated port and a port where packets showed one of its queue pairs.
    ports: BTreeSet<(Endpoint, Endpoint)>,
}

impl AliasCandidates {
    fn add(&mut self, ends: &ConnectionMessageEnds, actual: [QueuePair; 2]) {
        for ((name, _), actual) in ends.iter().zip(actual) {
            self.actual.entry(*name).or_default().insert(actual);
            self.names.entry(actual).or_default().insert(*name);
            self.ports.insert((name.endpoint, actual.endpoint));
        }
    }

    /// Chooses the only connection whose ports are known to belong to the stated ports. If the
    /// candidates are one connection in both orientations, chooses the orientation whose LIDs
    /// differ in fewer low bits, because LIDs of one port differ only in their low bits.
    fn choose(&self, ends: &ConnectionMessageEnds, ways: &[[QueuePair; 2]]) -> Option<[QueuePair; 2]> {
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

    /// The aliases: pairs of a stated and an observed queue pair that exclude each other's
    /// alternatives.
    fn into_aliases(self) -> QueuePairAliases {
        let only = |(name, actual): (QueuePair, BTreeSet<QueuePair>)| {
            let actual = actual.first().copied().filter(|_| actual.len() == 1)?;
            (self.names.get(&actual)?.len() == 1).then_some((name, actual))
        };
        QueuePairAliases(self.actual.into_iter().filter_map(only).collect())
    }
}

/// Number of low bits that contain all differences between the stated and the observed LIDs; `None`
/// if they cannot be LIDs of one port.
fn differing_bits(ends: &ConnectionMessageEnds, way: &[QueuePair; 2]) -> Option<u32> {
    let bits = |(actual, (name, _)): (&QueuePair, &(QueuePair, u32))| lid_bits(actual.endpoint, name.endpoint);
    let most = way.iter().zip(ends).map(bits).try_fold(0, |most: u32, bits| Some(most.max(bits?)));
    most.filter(|bits| *bits <= LMC_LIMIT)
}

/// Number of low bits that contain all differences between the LIDs of two ports.
fn lid_bits(one: Endpoint, other: Endpoint) -> Option<u32> {
    Some(u16::BITS - (one.lid()?.0 ^ other.lid()?.0).leading_zeros())
}

/// The numbers of two queue pairs, the lower one first.
fn sorted_qpns(a: QueuePair, b: QueuePair) -> (Qpn, Qpn) {
    (a.qpn.min(b.qpn), a.qpn.max(b.qpn))
}

fn sorted([a, b]: [QueuePair; 2]) -> [QueuePair; 2] {
    [a.min(b), a.max(b)]
}

fn by_cm(exchange: &CmExchange) -> Option<ConnectionMessageEnds> {
    let (requester, replier) = exchange.first_psns;
    Some([(exchange.requester, requester?), (exchange.replier, replier?)])
}

/// The queue pairs that a wire-up message lists: at the ports that it states if one of them sent
/// the message, otherwise all at the sending port.
pub(super) fn listed_queue_pairs(wireup: &WorkerWireup) -> impl Iterator<Item = QueuePair> + '_ {
    let states_ports = lanes(&wireup.address).any(|lane| lane.device.is_some_and(|device| device.port == wireup.src));
    lanes(&wireup.address).map(move |UcxLane { qpn, device, .. }| {
        let endpoint = device.filter(|_| states_ports).map_or(wireup.src, |device| device.port);
        QueuePair { endpoint, qpn }
    })
}

/// Maximum number of lanes of a UCX endpoint: `UCP_MAX_LANES` (16), plus the lanes from before the
/// endpoint was connected. A longer list comes from several endpoints with the same id, and is
/// ignored.
const MAX_LANES: usize = 32;

/// The connections that UCX requests and replies state: every lane of one endpoint with every lane
/// of the other, if they are connected. Both PSNs are 0 (`uct_rc_iface_qp_connect`).
fn by_wireup(
    wireups: &[WorkerWireup],
    is_connected: impl Fn(QueuePair, QueuePair) -> bool,
) -> BTreeSet<ConnectionMessageEnds> {
    let mut endpoints: BTreeMap<(Endpoint, u64), BTreeMap<u64, BTreeSet<QueuePair>>> = BTreeMap::new();
    for wireup in wireups {
        let workers = endpoints.entry((wireup.src, wireup.sender_endpoint)).or_default();
        workers.entry(wireup.worker).or_default().extend(listed_queue_pairs(wireup));
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
    let connected = connections.iter().filter(|own| own.key.kind == TrafficKind::Data && !own.key.is_datagram());
    connected.map(|own| (tag_layout::receiver(&own.key), own.continuity.first_psn)).collect()
}

/// Queue pairs that a wire-up message from their own port lists, each with the port that receives
/// the message. These queue pairs are no aliases, even if the message of the other end was not
/// captured: processes that start in the same way on several nodes have the same queue pair
/// numbers.
fn own_queue_pairs(evidence: &IdentityEvidence<'_>) -> BTreeSet<(QueuePair, Endpoint)> {
    let messages = evidence.wireups.iter().zip(evidence.named_queue_pairs);
    messages.flat_map(|(wireup, own)| own.iter().map(|own| (*own, wireup.dst))).collect()
}

/// Groups the connections by their queue pair numbers; skips the connections between a queue pair
/// and a port in `own`.
fn connections_by_qpns(
    first_psns: &FirstPsns,
    paired: &QueuePairPartners,
    own: &BTreeSet<(QueuePair, Endpoint)>,
) -> ConnectionsByQpns {
    let mut connected = ConnectionsByQpns::default();
    for &end in first_psns.keys() {
        // A connection with packets in both directions counts once.
        if let Some((other, _)) =
            paired.partner(end).filter(|(other, _)| end < *other || !first_psns.contains_key(other))
            && !own.contains(&(end, other.endpoint))
            && !own.contains(&(other, end.endpoint))
        {
            connected.entry(sorted_qpns(end, other)).or_default().push(sorted([end, other]));
        }
    }
    connected
}

/// Connections between queue pairs with the stated numbers that start with the stated PSNs, in the
/// order of the stated ends.
fn consistent_connections(
    ends: &ConnectionMessageEnds,
    connected: &ConnectionsByQpns,
    first_psns: &FirstPsns,
) -> Vec<[QueuePair; 2]> {
    let is_consistent = |actual: &[QueuePair; 2]| {
        let seen = actual.map(|end| first_psns.get(&end).copied().flatten());
        let agrees = |(seen, (_, named)): (&Option<u32>, &(QueuePair, u32))| seen.is_none_or(|seen| seen == *named);
        let is_possible = |(actual, (name, _)): (&QueuePair, &(QueuePair, u32))| {
            actual == name || actual.qpn == name.qpn && !first_psns.contains_key(name)
        };
        actual.iter().zip(ends).all(is_possible)
            && seen.iter().any(Option::is_some)
            && seen.iter().zip(ends).all(agrees)
    };
    let candidates =
        connected.get(&sorted_qpns(ends[0].0, ends[1].0)).filter(|all| all.len() <= MAX_ALIKE).into_iter().flatten();
    candidates.flat_map(|&[low, high]| [[low, high], [high, low]]).filter(is_consistent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibscope_parsers::Lid;

    /// A request or reply of endpoint 1 or 2 that lists `lanes` queue pairs with consecutive
    /// numbers.
    fn wireup(from: u64, lanes: u32) -> WorkerWireup {
        let to = 3 - from;
        let mut address = vec![0; 9];
        address.push(0x40);
        for lane in 0..lanes {
            let [low, middle, high, _] = (0x1000 * from as u32 + lane).to_le_bytes();
            address.extend([4, 0, low, middle, high, if lane + 1 == lanes { 0x80 } else { 0 }]);
        }
        WorkerWireup {
            src: Endpoint::from_lid(Lid(from as u16)),
            dst: Endpoint::from_lid(Lid(to as u16)),
            worker: from,
            sender_endpoint: from,
            receiver_endpoint: to,
            datagram_qp: None,
            address,
        }
    }

    /// The number of lane pairs is a product, so there is a bound; pairs without a connection are
    /// left out.
    #[test]
    fn endpoints_with_too_many_lanes_are_ignored() {
        let named = |lanes: u32| by_wireup(&[wireup(1, lanes), wireup(2, lanes)], |_, _| true).len();
        assert_eq!([named(2), named(MAX_LANES as u32), named(MAX_LANES as u32 + 1)], [4, MAX_LANES * MAX_LANES, 0]);
        let connected = by_wireup(&[wireup(1, 3), wireup(2, 3)], |own, _| own.qpn == Qpn::new(0x1001));
        assert_eq!(connected.len(), 3);
    }

    fn end(lid: u16, qpn: u32) -> QueuePair {
        QueuePair { endpoint: Endpoint::from_lid(Lid(lid)), qpn: Qpn::new(qpn) }
    }

    /// Two exchanges with the same queue pair numbers; each port has the LIDs up to its first one plus 3.
    #[test]
    fn lids_of_one_port_tell_connections_with_the_same_numbers_apart() {
        let stated = [[4, 8], [12, 16]].map(|[a, b]| [(end(a, 0x10), 0), (end(b, 0x11), 0)]);
        let connections = [[5, 9], [14, 17]].map(|[a, b]| [end(a, 0x10), end(b, 0x11)]);
        let open = stated.each_ref().map(|ends| (ends, connections.to_vec()));
        let traffic = |lids: &[[u16; 2]]| -> BTreeSet<(Endpoint, Endpoint)> {
            lids.iter().map(|[a, b]| (end(*a, 0).endpoint, end(*b, 0).endpoint)).collect()
        };
        let own = traffic(&[[5, 9], [14, 17]]);
        let none = AliasCandidates::default();
        let expected = vec![(&stated[0], connections[0]), (&stated[1], connections[1])];
        assert_eq!(by_lid_mask(&open, &none, &own), Some(expected));
        // Two ports of the same four LIDs exchange packets.
        assert_eq!(by_lid_mask(&open, &none, &traffic(&[[5, 9], [14, 17], [5, 6]])), None);
        // Another alias has a LID elsewhere.
        let elsewhere = AliasCandidates { ports: traffic(&[[4, 20]]), ..AliasCandidates::default() };
        assert_eq!(by_lid_mask(&open, &elsewhere, &own), None);
        // Both exchanges state the same ports.
        let same = [open[0].clone(), (open[0].0, open[0].1.clone())];
        assert_eq!(by_lid_mask(&same, &none, &own), None);
    }

    /// Connections between queue pairs of the same numbers; one starts with the stated PSNs.
    #[test]
    fn too_many_connections_with_the_same_numbers_have_no_alias() {
        let named: ConnectionMessageEnds = [(end(1, 0x10), 500), (end(2, 0x20), 500)];
        for (connections, expected) in [(MAX_ALIKE as u16, 1), (MAX_ALIKE as u16 + 1, 0)] {
            let (mut connected, mut first_psns) = (ConnectionsByQpns::default(), FirstPsns::default());
            for connection in 0..connections {
                let ends = [end(100 + connection, 0x10), end(5000 + connection, 0x20)];
                first_psns.extend(ends.map(|end| (end, Some(if connection == 3 { 500 } else { 900 }))));
                connected.entry(sorted_qpns(ends[0], ends[1])).or_default().push(sorted(ends));
            }
            assert_eq!(consistent_connections(&named, &connected, &first_psns).len(), expected);
        }
    }
}
