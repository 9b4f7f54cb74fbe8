//! Pause and PFC frames by sender and priority class, and over time, with the pauses that they
//! request.

use crate::model::coverage::Pauses;
use crate::model::link::Speed;
use crate::model::pause_series::PauseBin;
use crate::model::{Coverage, Profile};

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
    quanta_ns(pauses.longest_quanta, speed)
}

fn quanta_ns(quanta: u64, speed: Option<&Speed>) -> Option<u64> {
    speed.map(|speed| speed.bits_ns(quanta.saturating_mul(Pauses::QUANTUM_BITS)).round() as u64)
}

/// Pause and PFC frames over time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PauseTimes {
    /// Width of a bin in nanoseconds. It depends on the number of bins with frames, not on the bins
    /// of the traffic.
    pub bin_ns: i64,
    /// Origin of relative times (the first packet of the captures), in nanoseconds since the epoch.
    pub origin_ns: i64,
    /// Start of each bin with frames in nanoseconds since the epoch, and its sums.
    pub bins: Vec<(i64, PauseBin)>,
    /// All frames.
    pub frames: u64,
    /// Frames in no bin: their time is unknown.
    pub without_bin: u64,
}

impl PauseTimes {
    /// The pause and PFC frames of a profile.
    #[must_use]
    pub fn of(profile: &Profile) -> Self {
        let coverage = &profile.coverage;
        let series = &coverage.pause_series;
        let frames = coverage.pause_frames.values().fold(coverage.pause_frames_left_out, |a, b| a.saturating_add(*b));
        let bins: Vec<(i64, PauseBin)> = series.bins().collect();
        let origin_ns = crate::analysis::origin_ns(profile, bins.first().map(|(time_ns, _)| *time_ns));
        let without_bin = frames.saturating_sub(series.frames());
        Self { bin_ns: series.bin_ns(), origin_ns, bins, frames, without_bin }
    }

    /// Start of the first bin and end of the last one, in nanoseconds since the epoch.
    #[must_use]
    pub fn span_ns(&self) -> Option<(i64, i64)> {
        let (first, last) = (self.bins.first()?, self.bins.last()?);
        Some((first.0, last.0.saturating_add(self.bin_ns)))
    }

    /// The requested pauses of a bin in nanoseconds, if the link speed is known.
    #[must_use]
    pub fn paused_ns(sums: PauseBin, speed: Option<&Speed>) -> Option<u64> {
        quanta_ns(sums.quanta, speed)
    }
}
