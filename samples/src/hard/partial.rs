//! Removes or truncates records of a recording.

use std::ops::Range;

use super::{RecordedPacket, Recording, transmissions};
use crate::Random;

/// Unit that a sampling switch keeps or drops as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplingUnit {
    /// Single records: the mirror copies of a packet are sampled independently.
    Record,
    /// All mirror copies of a transmission together.
    Transmission,
}

/// Selection of the units that a sampling switch keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplingScheme {
    /// Every k-th unit.
    Periodic,
    /// Each unit with probability 1/k.
    Random,
}

/// The records of a range of indices: late start, early end, or both.
#[must_use]
pub fn window(recording: &Recording, records: Range<usize>) -> Recording {
    recording.with(recording.records.get(records).unwrap_or_default().to_vec())
}

/// The records captured in a time range, the end excluded.
#[must_use]
pub fn between(recording: &Recording, times_ns: Range<u64>) -> Recording {
    keep(recording, |_, record| times_ns.contains(&record.time_ns))
}

/// Keeps 1 of `one_in` units of the recordings of one run. A recording holds at most `copies` of
/// each transmission.
#[must_use]
pub fn subsample(
    recordings: &[Recording],
    copies: usize,
    one_in: u64,
    (unit, choice): (SamplingUnit, SamplingScheme),
    random: &mut Random,
) -> Vec<Recording> {
    let one_in = one_in.max(1);
    let phase = random.below(one_in);
    let mut is_kept = |index: usize| match choice {
        SamplingScheme::Periodic => index as u64 % one_in == phase,
        SamplingScheme::Random => random.below(one_in) == 0,
    };
    match unit {
        SamplingUnit::Record => recordings.iter().map(|recording| keep(recording, |index, _| is_kept(index))).collect(),
        SamplingUnit::Transmission => {
            let found = transmissions(recordings, copies);
            let kept: Vec<bool> = (0..found.count).map(is_kept).collect();
            let pairs = recordings.iter().zip(&found.transmission);
            pairs.map(|(recording, of)| keep(recording, |index, _| kept[of[index]])).collect()
        }
    }
}

/// Drops `per_mille` of the records, in bursts of `burst` records on average (1: independently).
#[must_use]
pub fn lose(recording: &Recording, per_mille: u64, burst: u64, random: &mut Random) -> Recording {
    let burst = burst.max(1);
    let mut is_lost = false;
    // A two-state model with geometric lengths. A burst ends with probability 1/burst and begins as
    // often as the share of losses requires.
    let begin_ppm = per_mille * 1_000_000 / burst / (1000 - per_mille.min(999));
    keep(recording, |_, _| {
        is_lost = if is_lost { random.below(burst) != 0 } else { random.below(1_000_000) < begin_ppm };
        !is_lost
    })
}

/// Truncates every record to `snap_bytes` and keeps the original lengths.
#[must_use]
pub fn truncate(recording: &Recording, snap_bytes: usize) -> Recording {
    let truncate = |record: &RecordedPacket| match record.data.get(..snap_bytes) {
        Some(kept) => RecordedPacket { data: kept.into(), ..record.clone() },
        None => record.clone(),
    };
    recording.with(recording.records.iter().map(truncate).collect())
}

/// The records for which `is_kept` returns true, given index and record.
#[must_use]
pub fn keep(recording: &Recording, mut is_kept: impl FnMut(usize, &RecordedPacket) -> bool) -> Recording {
    let records = recording.records.iter().enumerate();
    recording
        .with(records.filter(|(index, record)| is_kept(*index, record)).map(|(_, record)| record.clone()).collect())
}
