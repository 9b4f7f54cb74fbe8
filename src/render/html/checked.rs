//! A trace of the application beside the wire, in a page: what `ibscope crosscheck` says.
//!
//! Pairs are packed (`packed.rs`), in the order of their ranks:
//!
//! ```text
//! pairs | sender | receiver | verdict | outcome | causes, a bit each | messages and bytes of:
//! trace, wire, tracer, missing, not identified, excess | wire, payload, sent again
//! ```
//! What is in excess may be below 0: twice the number, or twice its amount less 1.

use super::packed::{self, Columns};
use crate::analysis::crosscheck::{agrees, called, operations, outcomes};
use crate::crosscheck::{Cause, CollectivePair, Crosscheck, Outcome, Pair, RankClock, Verdict};
use crate::render::crosscheck::{delays, lines, sentences};
use serde_json::{Value, json};
use std::io;

/// Verdicts in the order of their numbers.
const VERDICTS: [Verdict; 4] = [Verdict::Equal, Verdict::Explained, Verdict::Tolerated, Verdict::Unexplained];
/// Pairs of collective operations, and clocks of ranks, that are listed.
const MOST_ROWS: usize = 1000;

/// Everything but the pairs.
pub(super) fn document(crosscheck: &Crosscheck) -> Value {
    let collective = |pair: &CollectivePair| {
        json!([
            pair.operation,
            pair.src,
            pair.dst,
            pair.promised_bytes,
            pair.wire_messages,
            pair.wire_bytes,
            pair.tracer.messages,
            pair.tracer.bytes
        ])
    };
    let (differences, more) = sentences(crosscheck);
    let all = called(crosscheck).count();
    let clocks: Vec<&RankClock> = crosscheck.clocks.ranks.iter().take(MOST_ROWS).collect();
    json!({
        "lines": lines(crosscheck),
        "agrees": agrees(crosscheck),
        "verdicts": VERDICTS.map(Verdict::name),
        "outcomes": outcomes(crosscheck).map(|(outcome, count)| (outcome.name(), count)),
        "causes": Cause::ALL.map(Cause::text),
        "differences": differences,
        "more_differences": more,
        "operations": operations(crosscheck),
        "collectives": called(crosscheck).take(MOST_ROWS).map(collective).collect::<Vec<_>>(),
        "more_collectives": all.saturating_sub(MOST_ROWS),
        "clocks": clocks,
        "more_clocks": crosscheck.clocks.ranks.len() - clocks.len(),
        "send_to_wire": crosscheck.clocks.send_to_wire,
        "delays": delays(&crosscheck.clocks),
        "nodes": crosscheck.nodes,
        "notes": crosscheck.notes,
    })
}

/// The pairs.
pub(super) fn pack(crosscheck: &Crosscheck) -> io::Result<String> {
    let place = |at: Option<usize>| at.unwrap_or_default() as u64;
    let verdict = |pair: &Pair| place(VERDICTS.iter().position(|verdict| *verdict == pair.verdict));
    let outcome = |pair: &Pair| place(Outcome::ALL.iter().position(|outcome| *outcome == pair.outcome()));
    let causes =
        |pair: &Pair| (0..).zip(Cause::ALL).map(|(bit, cause)| u64::from(pair.causes.contains(&cause)) << bit).sum();
    let of: [&dyn Fn(&Pair) -> u64; 20] = [
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
    let mut columns = Columns::default();
    columns.put(std::iter::once(crosscheck.pairs.len() as u64))?;
    of.into_iter().try_for_each(|of| columns.put(crosscheck.pairs.iter().map(of)))?;
    Ok(packed::base64(&columns.finish()?))
}

/// A number that may be below 0, as one that is not.
fn signed(value: i128) -> u64 {
    let twice = value.unsigned_abs().saturating_mul(2);
    u64::try_from(if value < 0 { twice - 1 } else { twice }).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_below_0_have_a_place() {
        assert_eq!([0, 1, -1, 7, -7, i128::MIN, i128::MAX].map(signed), [0, 2, 1, 14, 13, u64::MAX, u64::MAX]);
    }
}
