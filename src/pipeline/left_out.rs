//! Notes on everything that a bound on memory left out of the numbers.

use super::AnalysisOptions;
use crate::model::Coverage;

/// A note for each count that is not zero. `cm` counts connection management messages beyond the
/// bound.
pub(super) fn notes(coverage: &Coverage, cm: u64, options: &AnalysisOptions) -> Vec<String> {
    let beyond = format!("packets of connections beyond --max-connections {}", options.limits.max_connections);
    let all = [
        (
            coverage.untracked_packets,
            beyond.as_str(),
            "They are missing from all other numbers, and the coverage of all pairs is unknown; give a larger --max-connections",
        ),
        (
            coverage.overlap_left_out,
            "packets of overlapping files that were not stored",
            "They may count twice, and the coverage of all pairs is unknown",
        ),
        (cm, "connection management messages that were counted but not stored", "Ranks in them may be unknown"),
        (
            coverage.connection_messages_left_out,
            "wire-up and connection messages that were counted but not stored",
            "Ranks derived from them may be unknown",
        ),
        (
            coverage.pause_frames_left_out,
            "pause frames of senders beyond the bound",
            "They are missing from the table of pauses",
        ),
        (
            coverage.statistics_left_out,
            "statistics of interfaces beyond the bound",
            "The packets that these interfaces dropped are not counted",
        ),
        (
            coverage.window_overflows,
            "connections with more PSN gaps than are tracked",
            "Late retransmissions may count as new packets",
        ),
        (
            coverage.messages_evicted,
            "messages dropped because too many were incomplete at a time",
            "They count as incomplete, and their lengths may be missing from the sums",
        ),
    ];
    let left_out = all.into_iter().filter(|(count, ..)| *count > 0);
    left_out.map(|(count, what, effect)| format!("{what}: {count}. {effect}")).collect()
}
