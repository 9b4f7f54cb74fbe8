//! Finds the pairs of endpoints that several inputs observed, and of which no input is known to hold
//! all packets. `flow::UnionLedgers` reads the packets of these pairs from all inputs together.
//!
//! In: the connections of each input. Out: groups of inputs that overlap in time, and the pairs of
//! each group. Two inputs hold the same packets of a connection if they have the same PSNs and as
//! many transmissions of each. Invariant: inputs that follow each other in time are in different
//! groups, because their packets differ even if their PSNs are equal.

use super::combine;
use super::mirror_copies::{MirrorCopies, points_in_union};
use super::point_sums::PacketDigests;
use super::{PartialSums, observation_points};
use crate::model::{ConnectionEnd, ConnectionKey, PointCount};
use ibscope_parsers::Endpoint;
use rayon::prelude::*;
use std::collections::BTreeSet;

/// The connections of all inputs, to be compared.
#[derive(Debug, Default)]
pub struct InputOverlap {
    copies: Vec<MirrorCopies>,
    times_ns: Vec<Option<(i64, i64)>>,
}

impl InputOverlap {
    /// Adds the next input: the times of its first and last record, and all its connections in
    /// groups, all in any order.
    pub fn input<'a, G>(&mut self, times_ns: Option<(i64, i64)>, groups: impl ParallelIterator<Item = G>)
    where
        G: Iterator<Item = (&'a ConnectionKey, &'a PartialSums)>,
    {
        self.copies.push(MirrorCopies::detect(groups));
        self.times_ns.push(times_ns);
    }

    /// Observation points of a connection in an input, for its union with others.
    #[must_use]
    pub fn points_in_union(&self, input: usize, key: &ConnectionKey) -> PointCount {
        points_in_union(&self.copies, input, key)
    }

    /// The points of the pair of a connection in an input.
    fn points(&self, input: usize, key: &ConnectionKey) -> PointCount {
        self.copies.get(input).map(|copies| copies.of(key)).unwrap_or_default()
    }

    /// Groups of at least two inputs that overlap in time, directly or through others, with the
    /// times of each group.
    #[must_use]
    pub fn groups(&self) -> Vec<(Vec<usize>, (i64, i64))> {
        let with_times = self.times_ns.iter().enumerate().filter_map(|(input, times_ns)| Some((input, (*times_ns)?)));
        let mut inputs: Vec<(usize, (i64, i64))> = with_times.collect();
        inputs.sort_by_key(|(input, times_ns)| (*times_ns, *input));
        let mut groups: Vec<(Vec<usize>, (i64, i64))> = Vec::new();
        for (input, times_ns) in inputs {
            match groups.last_mut().filter(|(_, span_ns)| observation_points::overlap(*span_ns, times_ns)) {
                Some((group, span_ns)) => {
                    group.push(input);
                    span_ns.1 = span_ns.1.max(times_ns.1);
                }
                None => groups.push((vec![input], times_ns)),
            }
        }
        groups.retain(|(group, _)| group.len() > 1);
        groups.iter_mut().for_each(|(group, _)| group.sort_unstable());
        groups
    }

    /// The pairs of endpoints, smaller one first, with a connection that several of these inputs
    /// observed differently. Each input comes with its connections.
    #[must_use]
    pub fn differing_pairs<'a>(
        &self,
        inputs: impl Iterator<Item = (usize, Vec<(&'a ConnectionEnd, &'a PartialSums)>)>,
    ) -> BTreeSet<(Endpoint, Endpoint)> {
        let mut held: Vec<(ConnectionKey, PacketDigests)> = Vec::new();
        for (input, connections) in inputs {
            for (end, partial) in connections {
                let points = self.points(input, &end.key);
                let packets = combine::transmissions(&end.key, partial, points).traffic.packets;
                held.push((end.key, PacketDigests::new(&end.continuity, (packets, points.is_two()))));
            }
        }
        held.sort_unstable_by_key(|(key, _)| *key);
        let differing = held.array_windows().filter(|[one, other]| one.0 == other.0 && one.1.differ(&other.1));
        differing.map(|[(key, _), _]| key.port_pair()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_that_overlap_form_groups() {
        let times_ns = [Some((0, 10)), Some((20, 30)), Some((5, 15)), None, Some((12, 18)), Some((30, 40))];
        let overlap = InputOverlap { times_ns: times_ns.to_vec(), ..InputOverlap::default() };
        assert_eq!(overlap.groups(), [(vec![0, 2, 4], (0, 18))]);
    }
}
