//! What the sums of one input say while they still grow. Copies are told from repeats by what is there so far, as they are at the end.

use super::Partial;
use super::combine::{Transmissions, transmissions};
use super::copies::Copies;
use crate::model::live::{Live, LivePair};
use crate::model::profile::{Repeats, Traffic};
use crate::model::{ConnectionKey, Kind, SizeOf, Sizes};
use ibscope_parsers::Endpoint;
use std::collections::BTreeMap;

/// Adds up the connections of an input so far. What of it was read is not known here.
#[must_use]
pub fn live(connections: &[(ConnectionKey, &Partial)]) -> Live {
    let copies = Copies::decide(connections.iter().map(|(key, partial)| (key, *partial)));
    let mut live = Live::default();
    let mut pairs: BTreeMap<(Endpoint, Endpoint), LivePair> = BTreeMap::new();
    let mut sizes = Sizes::<SizeOf>::default();
    for (key, partial) in connections {
        let Transmissions { traffic, repeats, mirror_copies } = transmissions(key, partial, copies.twice(key));
        live.coverage.mirror_copies += mirror_copies;
        if key.kind != Kind::Data {
            continue;
        }
        live.connections += 1;
        let new = || LivePair { src: key.src, dst: key.dst, traffic: Traffic::default(), repeats: Repeats::default() };
        let pair = pairs.entry((key.src, key.dst)).or_insert_with(new);
        pair.traffic += traffic;
        pair.repeats += repeats;
        for (of, sums) in partial.sizes.iter() {
            sizes.add(*of, *sums);
        }
    }
    live.pairs = pairs.into_values().collect();
    live.sizes = sizes.into_sorted();
    live
}
