//! Chooses the job of the capture that was traced.
//!
//! A trace is of one job, and a capture may contain several jobs with the same rank numbers. The
//! job with the most messages in common with the trace is chosen. If several jobs match equally
//! well, the user must choose.

use super::{Crosscheck, CrosscheckError, CrosscheckVerdict, PairComparison, RankSums};
use crate::model::{Profile, ranges};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// The job numbers of a profile.
pub(super) fn of(profile: &Profile) -> BTreeSet<u32> {
    let named = profile.jobs.iter().map(|row| row.job);
    // Profiles written by versions without jobs have only ranks.
    named.chain(profile.ranks.iter().map(|row| row.job)).collect()
}

/// Compares the trace with each job and returns the best match. Fails if several jobs match equally
/// well.
pub(super) fn compare(
    profile: &Profile,
    compare: impl Fn(u32) -> Result<Crosscheck, CrosscheckError>,
) -> Result<Crosscheck, CrosscheckError> {
    let jobs = of(profile);
    let mut results: Vec<Crosscheck> = Vec::new();
    let mut first_error = None;
    for job in &jobs {
        match compare(*job) {
            Ok(result) => results.push(result),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    results.sort_by_cached_key(|result| Reverse(likeness(result)));
    let best = results.iter().take_while(|result| likeness(result) == likeness(&results[0]));
    let best: BTreeSet<u32> = best.map(|result| result.job).collect();
    match (best.len(), first_error) {
        (0, Some(error)) => Err(error),
        (0, None) => Err(CrosscheckError::NoRanks),
        (1, _) => Ok(results.swap_remove(0)),
        _ => Err(CrosscheckError::SeveralJobs { jobs: ranges(best) }),
    }
}

/// The quality of a match: messages in common minus the excess on the wire, then the fewest pairs
/// that differ.
fn likeness(result: &Crosscheck) -> (i128, Reverse<usize>) {
    let of_pair =
        |pair: &PairComparison| common(pair.trace.messages, pair.wire.messages.saturating_sub(pair.tracer.messages));
    let of_rank = |rank: &RankSums| common(rank.trace_bytes, rank.wire.bytes.saturating_sub(rank.tracer.bytes));
    let common = result.pairs.iter().map(of_pair).chain(result.ranks.iter().map(of_rank)).sum();
    let verdicts = result.pairs.iter().map(|pair| pair.verdict).chain(result.ranks.iter().map(|rank| rank.verdict));
    (common, Reverse(verdicts.filter(|verdict| *verdict == CrosscheckVerdict::Unexplained).count()))
}

fn common(in_trace: u64, on_wire: u64) -> i128 {
    i128::from(in_trace.min(on_wire)) - i128::from(on_wire.saturating_sub(in_trace))
}
