//! Symbols, sentences and lists that mark pairs with an incomplete capture in terminal output.

use super::units::{count_of, group};
use crate::analysis::Label;
use crate::analysis::coverage::States;
use crate::analysis::matrix::Matrix;
use crate::model::profile::{CoverageState, PairCoverage};

/// Maximum number of pairs in the list of missing packets and messages.
const MAX_PAIRS: usize = 10;

/// The symbol before a number in a table; empty for complete pairs.
pub(crate) const fn symbol(state: CoverageState) -> &'static str {
    match state {
        CoverageState::Complete => "",
        CoverageState::Incomplete => "≥",
        CoverageState::Sampled => "~",
        CoverageState::Unknown => "?",
    }
}

/// The name of a state, and its meaning for the numbers.
pub(crate) const fn meaning(state: CoverageState) -> &'static str {
    match state {
        CoverageState::Complete => "complete: every message of the pair was captured",
        CoverageState::Incomplete => "incomplete: packets or messages are missing, so the numbers are lower bounds",
        CoverageState::Sampled => "sampled: the mirror sampled the packets, so the numbers are those of the sample",
        CoverageState::Unknown => "unknown: messages of the pair may be missing, or may belong to another job",
    }
}

/// One sentence per state other than complete; none if all pairs are complete.
pub(crate) fn sentences(states: &States) -> Vec<String> {
    if let Some(state) = states.of_all().filter(|state| *state != CoverageState::Complete) {
        return vec![format!("Coverage of all pairs is {}.", meaning(state))];
    }
    states
        .incomplete()
        .map(|(state, count)| format!("{} {} ({}).", symbol(state), meaning(state), count_of(count, "pair")))
        .collect()
}

/// The note of outputs that do not show the coverage of single pairs; `None` if no pair is incomplete
/// or unknown.
pub(crate) fn note(states: &States) -> Option<String> {
    let part = |state: CoverageState| {
        let (count, all) = states.count(state);
        let which = if count == all { "all".to_owned() } else { format!("{} of {}", group(count), group(all)) };
        (count > 0).then(|| format!("{which} pairs of endpoints are {}", meaning(state)))
    };
    let parts: Vec<String> = [CoverageState::Incomplete, CoverageState::Unknown].into_iter().filter_map(part).collect();
    (!parts.is_empty()).then(|| format!("{}; `ibscope matrix --by endpoint` shows the pairs", parts.join("; ")))
}

/// One line per pair with known missing packets or messages, the most first.
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
    let mut lines: Vec<String> = rows.iter().take(MAX_PAIRS).map(line).collect();
    if let Some(more) = rows.len().checked_sub(MAX_PAIRS).filter(|more| *more > 0) {
        lines.push(format!("and {}", count_of(more as u64, "more pair")));
    }
    lines
}

/// The missing packets and messages: `3 packets, 1 message`.
fn counts(coverage: &PairCoverage) -> String {
    let parts = [(coverage.missing_packets, "packet"), (coverage.missing_messages, "message")];
    let parts: Vec<String> =
        parts.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| count_of(count, what)).collect();
    parts.join(", ")
}
