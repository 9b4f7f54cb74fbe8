//! If an input has no packet of a connection, decides whether the input lost all of them, or holds
//! other connections of the same ports.
//!
//! Each receive queue of an adapter, each link of an aggregation and each collector of a mirror may
//! write a file of its own. A hash assigns every connection to one of these files:
//!
//! ```text
//! connection    1    2    3    4
//! file a        x         x         parts of one observation point: a did not lose 2 and 4
//! file b             x         x
//! file c        x    x    x         another observation point: it lost 4
//! ```
//! Two observation points of the same ports have most connections in common, because random losses
//! leave some packets of each connection. Two parts of one observation point have no connection in
//! common. In: the connections of all inputs in one shard, which holds both directions of a pair of
//! ports. Out: an [`Absence`] per connection. Invariant: if there are too few packets to
//! distinguish parts from losses, the absence is unclear.

use super::PartialSums;
use super::observation_points::overlap;
use super::point_sums::AbsentPoints;
use crate::model::{ConnectionKey, TrafficKind};
use ibscope_parsers::Endpoint;
use std::collections::BTreeMap;

/// Number of packets from which a connection cannot plausibly have lost all of them while its input
/// goes on capturing.
const ENOUGH_PACKETS: u64 = 16;

/// An input that holds a connection, and the times of the first and last record of the input, in
/// nanoseconds since the epoch.
pub(super) type InputSpan = (usize, (i64, i64));

/// A connection in one input.
#[derive(Clone, Copy, Debug)]
struct PairConnection {
    key: ConnectionKey,
    /// Distinct packets.
    packets: u64,
    /// Times of the first and last packet, in nanoseconds since the epoch.
    times_ns: (i64, i64),
}

impl PairConnection {
    /// True for a connected service: a hash assigns all its packets to one file. The packets of a
    /// datagram queue pair may take different paths.
    fn is_connected(&self) -> bool {
        self.key.kind == TrafficKind::Data && self.key.can_be_retransmitted()
    }
}

/// How the packets of two inputs between a directed pair of endpoints are related.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InputRelation {
    /// Both inputs hold packets of the same connection: two observation points.
    SamePackets,
    /// The inputs hold different connections: parts of one observation point.
    Parts,
    /// Too few packets to decide.
    Unclear,
}

/// For one connection: the inputs that observe packets between its ports, but hold no packet of the
/// connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Absence {
    /// Inputs that lost all packets of the connection.
    pub(super) lost: Vec<AbsentPoints>,
    /// True if at least one input may have lost the packets, or may hold another part of the
    /// connections.
    pub(super) is_unclear: bool,
}

/// The connections of all inputs in one shard.
#[derive(Debug)]
pub(super) struct PairParts {
    /// The connections of each input, sorted by key; empty if there is only one input.
    inputs: Vec<Vec<PairConnection>>,
    /// The pair of endpoints of the last query.
    pair: Option<(Endpoint, Endpoint)>,
    /// Relations of the inputs for `pair`, by the lower and the higher input.
    relations: BTreeMap<(usize, usize), InputRelation>,
}

impl PairParts {
    /// Takes the connections of each input, sorted by key.
    pub(super) fn new<'a, I>(inputs: impl ExactSizeIterator<Item = I>) -> Self
    where
        I: Iterator<Item = (&'a ConnectionKey, &'a PartialSums)>,
    {
        let connection = |(key, partial): (&ConnectionKey, &PartialSums)| PairConnection {
            key: *key,
            packets: partial.first.iter().map(|sums| sums.packets).sum(),
            times_ns: partial.times_ns,
        };
        let is_compared = inputs.len() > 1;
        let inputs =
            inputs.map(|input| if is_compared { input.map(connection).collect() } else { Vec::new() }).collect();
        Self { inputs, pair: None, relations: BTreeMap::new() }
    }

    /// Decides for each input in `absent`, which has no packet of the connection, whether the input
    /// lost all of them. `holders` are the inputs with packets of the connection; `times_ns` are
    /// the times of the first and last packet of the connection, in nanoseconds since the epoch.
    pub(super) fn absence(
        &mut self,
        key: &ConnectionKey,
        absent: impl Iterator<Item = AbsentPoints>,
        (holders, times_ns): (&[InputSpan], (i64, i64)),
    ) -> Absence {
        let mut absence = Absence::default();
        for own in absent.filter(|own| overlap(own.input_times_ns, times_ns)) {
            let holders = holders.iter().filter(|(_, times_ns)| overlap(*times_ns, own.input_times_ns));
            let relations: Vec<InputRelation> =
                holders.map(|(holder, _)| self.relation(key, own.input, *holder)).collect();
            if relations.contains(&InputRelation::Parts) {
                continue;
            }
            absence.is_unclear |= relations.contains(&InputRelation::Unclear);
            // Only one of several parts of one observation point can have lost the connection.
            absence.is_unclear |= absence.lost.iter().any(|other| {
                overlap(other.input_times_ns, own.input_times_ns)
                    && self.relation(key, own.input, other.input) != InputRelation::SamePackets
            });
            absence.lost.push(own);
        }
        absence
    }

    fn relation(&mut self, key: &ConnectionKey, one: usize, other: usize) -> InputRelation {
        let pair = (key.src, key.dst);
        if self.pair != Some(pair) {
            self.pair = Some(pair);
            self.relations.clear();
        }
        let inputs = (one.min(other), one.max(other));
        let known = self.relations.get(&inputs).copied();
        let relation = known.unwrap_or_else(|| self.compare(pair, inputs));
        self.relations.insert(inputs, relation);
        relation
    }

    fn compare(&self, (src, dst): (Endpoint, Endpoint), (one, other): (usize, usize)) -> InputRelation {
        let [own, others] = [one, other].map(|input| self.between(input, src, dst));
        let [back, others_back] = [one, other].map(|input| self.between(input, dst, src));
        let is_connected = |held: &PairConnection| held.is_connected();
        let [mut shared, mut shared_back] = [common(own, others), common(back, others_back)];
        if shared.clone().any(is_connected) {
            return InputRelation::SamePackets;
        }
        if shared.next().is_some() {
            let have_connected = [own, others].iter().all(|input| input.iter().any(is_connected));
            return if have_connected { InputRelation::Unclear } else { InputRelation::SamePackets };
        }
        let shows = |held: &&PairConnection| held.is_connected() && held.packets >= ENOUGH_PACKETS;
        let mut active = own.iter().chain(back).filter(shows);
        let coincides = |held: &PairConnection| {
            others.iter().chain(others_back).filter(shows).any(|other| overlap(held.times_ns, other.times_ns))
        };
        if !shared_back.any(is_connected) && active.any(coincides) {
            InputRelation::Parts
        } else {
            InputRelation::Unclear
        }
    }

    /// The connections of an input from one endpoint to another.
    fn between(&self, input: usize, src: Endpoint, dst: Endpoint) -> &[PairConnection] {
        let all = self.inputs.get(input).map(Vec::as_slice).unwrap_or_default();
        let start = all.partition_point(|held| (held.key.src, held.key.dst) < (src, dst));
        let own = &all[start..];
        &own[..own.partition_point(|held| (held.key.src, held.key.dst) == (src, dst))]
    }
}

/// The connections in `own` that are also in `others`.
fn common<'a>(
    own: &'a [PairConnection],
    others: &'a [PairConnection],
) -> impl Iterator<Item = &'a PairConnection> + Clone {
    own.iter().filter(|held| others.binary_search_by_key(&held.key, |other| other.key).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibscope_parsers::{Lid, Qpn};

    const TIMES_NS: (i64, i64) = (0, 1000);

    fn key(dest_qp: u32) -> ConnectionKey {
        let [src, dst] = [1, 2].map(|lid| Endpoint::from_lid(Lid(lid)));
        ConnectionKey { src, dst, kind: TrafficKind::Data, service: 0, dest_qp: Qpn::new(dest_qp), src_qp: Qpn::new(0) }
    }

    /// Inputs with these connections, each given by queue pair and number of packets.
    fn parts(inputs: &[&[(u32, u64)]]) -> PairParts {
        let held =
            |(qpn, packets): &(u32, u64)| PairConnection { key: key(*qpn), packets: *packets, times_ns: TIMES_NS };
        let inputs = inputs.iter().map(|input| input.iter().map(held).collect()).collect();
        PairParts { inputs, pair: None, relations: BTreeMap::new() }
    }

    /// The inputs that lost all packets to this queue pair; `None` if unclear.
    fn lost(inputs: &[&[(u32, u64)]], qpn: u32) -> Option<Vec<usize>> {
        let mut parts = parts(inputs);
        let holds = |input: usize| parts.inputs[input].iter().any(|held| held.key == key(qpn));
        let (holders, absent): (Vec<usize>, Vec<usize>) = (0..inputs.len()).partition(|input| holds(*input));
        let holders: Vec<(usize, (i64, i64))> = holders.into_iter().map(|input| (input, TIMES_NS)).collect();
        let absent = absent.into_iter().map(|input| AbsentPoints { input, points: 1, input_times_ns: TIMES_NS });
        let absence = parts.absence(&key(qpn), absent, (&holders, TIMES_NS));
        (!absence.is_unclear).then(|| absence.lost.iter().map(|own| own.input).collect())
    }

    /// The drawing in the module header.
    #[test]
    fn parts_of_one_point_lose_nothing_and_another_point_does() {
        let inputs: [&[(u32, u64)]; 3] = [&[(1, 20), (3, 20)], &[(2, 20), (4, 20)], &[(1, 20), (2, 20), (3, 20)]];
        assert_eq!([1, 2, 3].map(|qpn| lost(&inputs, qpn)), [const { Some(Vec::new()) }; 3]);
        assert_eq!(lost(&inputs, 4), Some(vec![2]));
        assert_eq!(lost(&[inputs[2], inputs[0]], 2), Some(vec![1]));
    }

    #[test]
    fn a_connection_of_too_few_packets_shows_nothing() {
        let of = |packets| lost(&[&[(1, packets)], &[(2, ENOUGH_PACKETS)]], 1);
        assert_eq!(of(ENOUGH_PACKETS), Some(Vec::new()));
        assert_eq!(of(ENOUGH_PACKETS - 1), None);
    }

    /// The connection is missing in two parts of one observation point: one of them lost its
    /// packets.
    #[test]
    fn of_two_parts_only_one_lost_a_connection() {
        assert_eq!(lost(&[&[(1, 20)], &[(2, 20)], &[(1, 20), (2, 20), (3, 20)]], 3), None);
    }
}
