//! What bounds on memory have left out of the numbers: said wherever these are shown.

use super::Options;
use crate::model::Coverage;

/// A sentence or two for each thing that was left out. `cm` are connection management messages that were not kept.
pub(super) fn notes(coverage: &Coverage, cm: u64, options: &Options) -> Vec<String> {
    let beyond = format!("packets of connections beyond --max-connections {}", options.max_connections);
    let all = [
        (
            coverage.not_followed,
            beyond.as_str(),
            "They are in no other number, and whether pairs are complete is unknown; give a larger one",
        ),
        (
            coverage.seam_left_out,
            "packets of files that overlap and that were not remembered",
            "They may count twice, and whether pairs are complete is unknown",
        ),
        (cm, "connection management messages that were counted and not kept", "Ranks that they state may be unknown"),
        (
            coverage.introductions_left_out,
            "wire-up messages and introductions that were counted and not kept",
            "Ranks that follow from them may be unknown",
        ),
        (
            coverage.pause_frames_left_out,
            "pause frames of senders beyond those that are told apart",
            "They are in no table of pauses",
        ),
        (
            coverage.statistics_left_out,
            "statistics of interfaces beyond those that are told apart",
            "What these interfaces have dropped is not counted",
        ),
        (
            coverage.window_overflows,
            "connections with more holes in their PSNs than are remembered",
            "Packets that came again long after may count as new",
        ),
        (
            coverage.messages_evicted,
            "messages given up because too many were open at a time",
            "They are incomplete, and their lengths may be in no sum",
        ),
    ];
    let said = all.into_iter().filter(|(count, ..)| *count > 0);
    said.map(|(count, what, why)| format!("{what}: {count}. {why}")).collect()
}
