//! What is said of pairs whose messages the capture does not hold in full: symbols beside the numbers, and what they mean.

use super::units::{counted, group};
use crate::analysis::Label;
use crate::analysis::coverage::States;
use crate::analysis::matrix::Matrix;
use crate::model::profile::{CoverageState, PairCoverage};

/// Pairs whose missing packets and messages are listed.
const MOST_PAIRS: usize = 10;

/// What stands before a number in a table; nothing before those that are complete.
pub(crate) const fn symbol(state: CoverageState) -> &'static str {
    match state {
        CoverageState::Complete => "",
        CoverageState::Incomplete => "≥",
        CoverageState::Sampled => "~",
        CoverageState::Unknown => "?",
    }
}

/// What a state means for the numbers.
pub(crate) const fn meaning(state: CoverageState) -> &'static str {
    match state {
        CoverageState::Complete => "complete: no packet is missing",
        CoverageState::Incomplete => "incomplete: packets or messages are missing, so the numbers are lower bounds",
        CoverageState::Sampled => "sampled: the mirror sampled the packets, so the numbers are those of the sample",
        CoverageState::Unknown => "unknown: whether packets are missing is unknown",
    }
}

/// A sentence for each state that is not complete, and nothing where all is complete.
pub(crate) fn sentences(states: &States) -> Vec<String> {
    if let Some(state) = states.of_all().filter(|state| *state != CoverageState::Complete) {
        return vec![format!("Coverage of all pairs is {}.", meaning(state))];
    }
    states
        .incomplete()
        .map(|(state, count)| format!("{} {} ({}).", symbol(state), meaning(state), counted(count, "pair")))
        .collect()
}

/// What is known to be missing of pairs, the most first: a line each.
pub(crate) fn missing(matrix: &Matrix) -> Vec<String> {
    let mut rows: Vec<(&Label, &Label, PairCoverage)> = matrix
        .rows()
        .map(|(src, dst, cell)| (src, dst, cell.coverage))
        .filter(|(_, _, coverage)| coverage.missing_packets + coverage.missing_messages > 0)
        .collect();
    rows.sort_by_key(|(_, _, coverage)| std::cmp::Reverse((coverage.missing_messages, coverage.missing_packets)));
    let line = |(src, dst, coverage): &(&Label, &Label, PairCoverage)| {
        format!("{} → {}: {}", src.name(), dst.name(), counts(coverage))
    };
    let mut lines: Vec<String> = rows.iter().take(MOST_PAIRS).map(line).collect();
    if let Some(more) = rows.len().checked_sub(MOST_PAIRS).filter(|more| *more > 0) {
        lines.push(format!("and {} more pairs", group(more as u64)));
    }
    lines
}

/// What is missing, in words.
fn counts(coverage: &PairCoverage) -> String {
    let parts = [(coverage.missing_packets, "packet"), (coverage.missing_messages, "message")];
    let parts: Vec<String> =
        parts.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| counted(count, what)).collect();
    parts.join(", ")
}
