//! Pause and PFC frames: who asks for how long a pause, and for which class.

use crate::model::Coverage;
use crate::model::coverage::Pauses;
use crate::model::link::Speed;

/// What one sender asks for, of one class or of all its traffic; nothing where no frame could be read.
pub(crate) struct PauseRow<'a> {
    /// The sender and the kind of its frames.
    pub(crate) sender: &'a str,
    /// Frames of that sender and kind, whatever class they are about.
    pub(crate) frames: u64,
    /// Empty where it is about all traffic.
    pub(crate) class: &'a str,
    pub(crate) asked: Option<&'a Pauses>,
}

pub(crate) fn pause_rows(coverage: &Coverage) -> impl Iterator<Item = PauseRow<'_>> {
    coverage.pause_frames.iter().flat_map(|(sender, frames)| {
        let own =
            coverage.pauses.range(sender.clone()..).take_while(move |(what, _)| what.starts_with(sender.as_str()));
        let mut of: Vec<PauseRow<'_>> = own
            .map(|(what, asked)| {
                let class = what[sender.len()..].trim_start();
                PauseRow { sender, frames: *frames, class, asked: Some(asked) }
            })
            .collect();
        if of.is_empty() {
            of.push(PauseRow { sender, frames: *frames, class: "", asked: None });
        }
        of
    })
}

/// The longest pause asked for, where the speed of the link is known.
pub(crate) fn longest_pause_ns(asked: &Pauses, speed: Option<&Speed>) -> Option<u64> {
    speed.map(|speed| speed.bits_ns(asked.longest_quanta.saturating_mul(Pauses::QUANTUM_BITS)).round() as u64)
}
