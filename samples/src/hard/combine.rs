//! Combines recordings and moves them in time.

use super::{RecordedPacket, Recording};

/// All records in order of time; records of equal time keep the order of the recordings. The
/// recordings must have one link type.
#[must_use]
pub fn merge(recordings: &[Recording]) -> Recording {
    let mut records: Vec<RecordedPacket> =
        recordings.iter().flat_map(|recording| recording.records.iter().cloned()).collect();
    records.sort_by_key(|record| record.time_ns);
    recordings.first().map_or_else(Recording::default, |first| first.with(records))
}

/// The records of all recordings, one recording after the other, whatever their times.
#[must_use]
pub fn concatenate(recordings: &[Recording]) -> Recording {
    let records = recordings.iter().flat_map(|recording| recording.records.iter().cloned()).collect();
    recordings.first().map_or_else(Recording::default, |first| first.with(records))
}

/// Moves all times by `offset_ns`; a negative offset moves them back.
#[must_use]
pub fn shift(recording: &Recording, offset_ns: i64) -> Recording {
    recording.retimed(|time_ns| time_ns.saturating_add_signed(offset_ns))
}

/// A clock that runs fast by `ppm` and is correct at the first record.
#[must_use]
pub fn drift(recording: &Recording, ppm: i64) -> Recording {
    let (start_ns, _) = recording.span_ns();
    recording.retimed(|time_ns| {
        let elapsed_ns = time_ns.saturating_sub(start_ns).cast_signed();
        time_ns.saturating_add_signed((i128::from(elapsed_ns) * i128::from(ppm) / 1_000_000) as i64)
    })
}

/// Moves the recordings of one run so that the earliest record is at `start_ns`.
#[must_use]
pub fn start_at(recordings: &[Recording], start_ns: u64) -> Vec<Recording> {
    let starts = recordings.iter().filter(|recording| !recording.records.is_empty());
    let first_ns = starts.map(|recording| recording.span_ns().0).min().unwrap_or(0);
    let offset_ns = start_ns.cast_signed() - first_ns.cast_signed();
    recordings.iter().map(|recording| shift(recording, offset_ns)).collect()
}
