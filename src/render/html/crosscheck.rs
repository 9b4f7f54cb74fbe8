//! The cross-check of a page: a trace of the application compared with the captured traffic, with
//! the numbers of `ibscope crosscheck`.
//!
//! Pairs are packed (`packed.rs`), in the order of their ranks:
//!
//! ```text
//! pairs | sender | receiver | verdict | outcome | causes, a bit each | messages and bytes of:
//! trace, wire, tracer, missing, not identified, excess | bytes: wire, payload, retransmitted
//! ```
//! An excess may be negative. It is packed as 2n for n >= 0 and as 2|n| - 1 for n < 0.

use super::packed::{self, PackedColumns};
use crate::analysis::crosscheck::{agrees, called_pairs, operations, outcomes};
use crate::crosscheck::{
    Cause, CollectivePair, Crosscheck, CrosscheckOutcome, CrosscheckVerdict, PairComparison, RankClock,
};
use crate::render::crosscheck::{delays, lines, sentences};
use serde_json::{Value, json};
use std::io;

/// Verdicts in the order of their packed numbers.
const VERDICTS: [CrosscheckVerdict; 4] = [
    CrosscheckVerdict::Equal,
    CrosscheckVerdict::Explained,
    CrosscheckVerdict::Tolerated,
    CrosscheckVerdict::Unexplained,
];
/// Maximum number of listed pairs of collective operations, and of listed clocks of ranks.
const MAX_ROWS: usize = 1000;

/// Returns the cross-check part of the document, without the pairs.
pub(super) fn document(crosscheck: &Crosscheck) -> Value {
    let collective = |pair: &CollectivePair| {
        json!([
            pair.operation,
            pair.src,
            pair.dst,
            pair.expected_bytes,
            pair.wire_messages,
            pair.wire_bytes,
            pair.tracer.messages,
            pair.tracer.bytes
        ])
    };
    let (differences, more) = sentences(crosscheck);
    let all = called_pairs(crosscheck).count();
    let clocks: Vec<&RankClock> = crosscheck.clocks.ranks.iter().take(MAX_ROWS).collect();
    json!({
        "lines": lines(crosscheck),
        "agrees": agrees(crosscheck),
        "verdicts": VERDICTS.map(CrosscheckVerdict::name),
        "outcomes": outcomes(crosscheck).map(|(outcome, count)| (outcome.name(), count)),
        "causes": Cause::ALL.map(Cause::text),
        "differences": differences,
        "more_differences": more,
        "operations": operations(crosscheck),
        "collectives": called_pairs(crosscheck).take(MAX_ROWS).map(collective).collect::<Vec<_>>(),
        "more_collectives": all.saturating_sub(MAX_ROWS),
        "clocks": clocks,
        "more_clocks": crosscheck.clocks.ranks.len() - clocks.len(),
        "send_to_wire": crosscheck.clocks.send_to_wire,
        "delays": delays(&crosscheck.clocks),
        "nodes": crosscheck.nodes,
        "notes": crosscheck.notes,
    })
}

/// Packs the pairs.
pub(super) fn pack(crosscheck: &Crosscheck) -> io::Result<String> {
    let place = |at: Option<usize>| at.unwrap_or_default() as u64;
    let verdict = |pair: &PairComparison| place(VERDICTS.iter().position(|verdict| *verdict == pair.verdict));
    let outcome =
        |pair: &PairComparison| place(CrosscheckOutcome::ALL.iter().position(|outcome| *outcome == pair.outcome()));
    let causes = |pair: &PairComparison| {
        (0..).zip(Cause::ALL).map(|(bit, cause)| u64::from(pair.causes.contains(&cause)) << bit).sum()
    };
    let of: [&dyn Fn(&PairComparison) -> u64; 20] = [
        &|pair| pair.src.into(),
        &|pair| pair.dst.into(),
        &verdict,
        &outcome,
        &causes,
        &|pair| pair.trace.messages,
        &|pair| pair.trace.bytes,
        &|pair| pair.wire.messages,
        &|pair| pair.wire.bytes,
        &|pair| pair.tracer.messages,
        &|pair| pair.tracer.bytes,
        &|pair| pair.missing.messages,
        &|pair| pair.missing.bytes,
        &|pair| pair.unidentified.messages,
        &|pair| pair.unidentified.bytes,
        &|pair| signed(pair.excess().0),
        &|pair| signed(pair.excess().1),
        &|pair| pair.wire_bytes,
        &|pair| pair.payload_bytes,
        &|pair| pair.retransmitted_wire_bytes,
    ];
    let mut columns = PackedColumns::default();
    columns.put(std::iter::once(crosscheck.pairs.len() as u64))?;
    of.into_iter().try_for_each(|of| columns.put(crosscheck.pairs.iter().map(of)))?;
    Ok(packed::base64(&columns.finish()?))
}

/// Encodes a number that may be negative as a non-negative number.
fn signed(value: i128) -> u64 {
    let twice = value.unsigned_abs().saturating_mul(2);
    u64::try_from(if value < 0 { twice - 1 } else { twice }).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_numbers_are_encoded() {
        assert_eq!([0, 1, -1, 7, -7, i128::MIN, i128::MAX].map(signed), [0, 2, 1, 14, 13, u64::MAX, u64::MAX]);
    }
}
