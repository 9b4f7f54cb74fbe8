//! Which job of the capture is the one that was traced.
//!
//! A trace is of one job, and a capture may hold several, whose ranks have the same numbers. The
//! job of the trace is the one that has most messages in common with it; where two have as many,
//! only the user knows.

use super::{Crosscheck, CrosscheckError, Pair, RankSums, Verdict};
use crate::model::{Profile, ranges};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// The jobs of a profile, by number.
pub(super) fn of(profile: &Profile) -> BTreeSet<u32> {
    let named = profile.jobs.iter().map(|row| row.job);
    // Profiles that were written before there were jobs have ranks alone.
    named.chain(profile.ranks.iter().map(|row| row.job)).collect()
}

/// Compares with each job, of which the likeliest counts.
pub(super) fn compare(
    profile: &Profile,
    compare: impl Fn(u32) -> Result<Crosscheck, CrosscheckError>,
) -> Result<Crosscheck, CrosscheckError> {
    let jobs = of(profile);
    let mut results: Vec<Crosscheck> = Vec::new();
    let mut refused = None;
    for job in &jobs {
        match compare(*job) {
            Ok(result) => results.push(result),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    results.sort_by_cached_key(|result| Reverse(likeness(result)));
    let best = results.iter().take_while(|result| likeness(result) == likeness(&results[0]));
    let best: BTreeSet<u32> = best.map(|result| result.job).collect();
    match (best.len(), refused) {
        (0, Some(error)) => Err(error),
        (0, None) => Err(CrosscheckError::NoRanks),
        (1, _) => Ok(results.swap_remove(0)),
        _ => Err(CrosscheckError::SeveralJobs { jobs: ranges(best) }),
    }
}

/// How much trace and wire have in common, less what the wire has beyond; then how few pairs
/// differ.
fn likeness(result: &Crosscheck) -> (i128, Reverse<usize>) {
    let of_pair = |pair: &Pair| common(pair.trace.messages, pair.wire.messages.saturating_sub(pair.tracer.messages));
    let of_rank = |rank: &RankSums| common(rank.trace_bytes, rank.wire.bytes.saturating_sub(rank.tracer.bytes));
    let common = result.pairs.iter().map(of_pair).chain(result.ranks.iter().map(of_rank)).sum();
    let verdicts = result.pairs.iter().map(|pair| pair.verdict).chain(result.ranks.iter().map(|rank| rank.verdict));
    (common, Reverse(verdicts.filter(|verdict| *verdict == Verdict::Unexplained).count()))
}

fn common(in_trace: u64, on_wire: u64) -> i128 {
    i128::from(in_trace.min(on_wire)) - i128::from(on_wire.saturating_sub(in_trace))
}
