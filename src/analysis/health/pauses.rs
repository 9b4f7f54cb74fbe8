//! Pause and PFC frames by sender and priority class, with the pauses that they request.

use crate::model::Coverage;
use crate::model::coverage::Pauses;
use crate::model::link::Speed;

/// The pauses that one sender requests for one class or for all its traffic.
pub(crate) struct PauseRow<'a> {
    /// The sender and the kind of its frames.
    pub(crate) sender: &'a str,
    /// Frames of that sender and kind, for all classes.
    pub(crate) frames: u64,
    /// The priority class; empty for all traffic.
    pub(crate) class: &'a str,
    pub(crate) pauses: Option<&'a Pauses>,
}

pub(crate) fn pause_rows(coverage: &Coverage) -> impl Iterator<Item = PauseRow<'_>> {
    coverage.pause_frames.iter().flat_map(|(sender, frames)| {
        let own =
            coverage.pauses.range(sender.clone()..).take_while(move |(what, _)| what.starts_with(sender.as_str()));
        let mut of: Vec<PauseRow<'_>> = own
            .map(|(what, pauses)| {
                let class = what[sender.len()..].trim_start();
                PauseRow { sender, frames: *frames, class, pauses: Some(pauses) }
            })
            .collect();
        if of.is_empty() {
            of.push(PauseRow { sender, frames: *frames, class: "", pauses: None });
        }
        of
    })
}

/// The longest requested pause in nanoseconds, if the link speed is known.
pub(crate) fn longest_pause_ns(pauses: &Pauses, speed: Option<&Speed>) -> Option<u64> {
    speed.map(|speed| speed.bits_ns(pauses.longest_quanta.saturating_mul(Pauses::QUANTUM_BITS)).round() as u64)
}
