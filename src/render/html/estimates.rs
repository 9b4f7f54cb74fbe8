//! The estimates of a page of a sampled capture, by pair of endpoints, ranks, nodes and leaf
//! switches.
//!
//! The page shows them for the whole run, and never adds them up: the interval of a sum is not the
//! sum of the intervals. Invariant: there are at most [`MAX_PAIRS`] pairs of each kind, those with
//! the most packets, and the page reports how many have none.

use crate::analysis::matrix::{Matrix, Selection, matrix};
use crate::analysis::{GroupBy, Label};
use crate::model::sampling::{Estimate, EstimatedSum};
use crate::model::{PairEstimators, Profile};
use ibscope_parsers::Endpoint;
use serde_json::{Value, json};
use std::cmp::Reverse;

/// Maximum number of pairs with estimates: some 100 bytes each.
const MAX_PAIRS: usize = 20_000;

/// The estimates of a page; null if the capture is not sampled.
pub(super) fn document(profile: &Profile, endpoints: &[Endpoint], labels: &[&Label]) -> Value {
    if profile.sampling.is_none() {
        return Value::Null;
    }
    let by = |by: GroupBy| {
        let of = |selection| matrix(profile, by, selection);
        let all = [Selection::P2p, Selection::Collective, Selection::All].map(of);
        let place = |label: &Label| match label {
            Label::Endpoint(endpoint, _) => endpoints.binary_search(endpoint).ok(),
            Label::Group(_) => all[0].labels.binary_search(label).ok(),
            _ => labels.binary_search(&label).ok(),
        };
        pairs(&all, &place)
    };
    json!({
        "endpoint": by(GroupBy::Endpoint), "rank": by(GroupBy::Rank), "node": by(GroupBy::Node),
        "leaf": by(GroupBy::Leaf),
    })
}

/// The estimates by pair, and the number of pairs beyond the limit. For each pair: sender,
/// receiver, then the estimates of messages by selection, payload bytes, wire bytes and packets.
fn pairs([p2p, collective, all]: &[Matrix; 3], place: &impl Fn(&Label) -> Option<usize>) -> Value {
    let mut ends: Vec<(u32, u32)> = all.cells.keys().copied().collect();
    ends.sort_by_key(|ends| (Reverse(all.cells[ends].packets), *ends));
    let left_out = ends.len().saturating_sub(MAX_PAIRS);
    ends.truncate(MAX_PAIRS);
    let row = |ends: (u32, u32)| {
        let [src, dst] = [ends.0, ends.1].map(|end| all.labels.get(end as usize).and_then(place));
        let messages = [p2p, collective, all].map(|matrix| value(EstimatedSum::MESSAGES, estimators(matrix, ends)));
        let others = [EstimatedSum::PAYLOAD_BYTES, EstimatedSum::WIRE_BYTES, EstimatedSum::PACKETS];
        let others = others.map(|sum| value(sum, estimators(all, ends)));
        json!([src, dst, messages[0], messages[1], messages[2], others[0], others[1], others[2]])
    };
    json!({ "pairs": ends.into_iter().map(row).collect::<Vec<_>>(), "left_out": left_out })
}

fn estimators(matrix: &Matrix, ends: (u32, u32)) -> Option<&PairEstimators> {
    matrix.estimators.as_ref()?.get(&ends)
}

/// An estimate with its interval, `too few`, or null if it is not known.
fn value(sum: EstimatedSum, pair: Option<&PairEstimators>) -> Value {
    match pair.map_or(Estimate::Unknown, |pair| sum.estimate(pair)) {
        Estimate::Known(value) => json!([value.estimate, value.low, value.high]),
        Estimate::TooFew => json!("too few"),
        Estimate::Unknown => Value::Null,
    }
}
