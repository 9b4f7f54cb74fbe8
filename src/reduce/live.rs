//! Sums of one input while it grows, for `watch`.
//!
//! In: the connections of an input so far. Out: sums per pair of endpoints. Invariant: mirror
//! copies are distinguished from retransmissions by the packets so far, with the same rule as at
//! the end.

use super::PartialSums;
use super::combine::{TransmissionSums, transmissions};
use super::mirror_copies::MirrorCopies;
use crate::model::live::{LivePair, LiveSums};
use crate::model::{ConnectionKey, SizeCategory, Sizes, TrafficKind};
use ibscope_parsers::Endpoint;
use std::collections::BTreeMap;

/// Adds up the connections of an input so far. Of the coverage, only the mirror copies are set.
#[must_use]
pub fn live_sums(connections: &[(ConnectionKey, &PartialSums)]) -> LiveSums {
    let copies = MirrorCopies::detect(rayon::iter::once(connections.iter().map(|(key, partial)| (key, *partial))));
    let mut live = LiveSums::default();
    let mut pairs: BTreeMap<(Endpoint, Endpoint), LivePair> = BTreeMap::new();
    let mut sizes = Sizes::<SizeCategory>::default();
    for (key, partial) in connections {
        let TransmissionSums { traffic, retransmissions, mirror_copies } = transmissions(key, partial, copies.of(key));
        live.coverage.mirror_copies += mirror_copies;
        if key.kind != TrafficKind::Data {
            continue;
        }
        live.connections += 1;
        let pair = pairs.entry((key.src, key.dst)).or_insert_with(|| LivePair::new(key.src, key.dst));
        pair.traffic += traffic;
        pair.retransmissions += retransmissions;
        let sampled = partial.sampled();
        pair.sampled += sampled;
        live.quality.extend(&sampled);
        for (of, sums) in partial.sizes.iter() {
            sizes.add(*of, *sums);
        }
    }
    live.pairs = pairs.into_values().collect();
    live.sizes = sizes.into_sorted();
    live
}
