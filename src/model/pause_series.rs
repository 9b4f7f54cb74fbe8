//! Pause and PFC frames over time.
//!
//! In: the time of each frame and the pauses that it requests. Out: sums by bin, of all senders.
//! Invariant: there are at most [`MAX_PAUSE_BINS`] bins, because the width of a bin doubles whenever
//! there are more. The width depends only on the times of all frames, so sums may be merged in any
//! order.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// Maximum number of bins with pause frames.
pub const MAX_PAUSE_BINS: usize = 1 << 10;
/// Width of the narrowest bin in nanoseconds: 1 ms.
const NARROWEST_NS: i64 = 1_000_000;
/// Widest bins, which hold all times in a few bins; a wider one would not fit into 64 bits.
const WIDEST_DOUBLINGS: u32 = 43;

/// The frames in a bin, and the pauses that they request for all classes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseBin {
    /// Pause and PFC frames.
    pub frames: u64,
    /// Requests for a pause; a PFC frame may have one for each of its classes.
    pub pauses: u64,
    /// Requests to resume (0 quanta).
    pub resumes: u64,
    /// Sum of the requested pauses in quanta of 512 bit times (IEEE 802.3, annexes 31B and 31D): an
    /// upper bound of the paused time, because a frame renews the pause before it.
    pub quanta: u64,
}

impl PauseBin {
    /// Adds a request.
    pub fn add(&mut self, quanta: u16) {
        self.pauses += u64::from(quanta > 0);
        self.resumes += u64::from(quanta == 0);
        self.quanta = self.quanta.saturating_add(u64::from(quanta));
    }
}

impl AddAssign for PauseBin {
    fn add_assign(&mut self, other: Self) {
        self.frames = self.frames.saturating_add(other.frames);
        self.pauses = self.pauses.saturating_add(other.pauses);
        self.resumes = self.resumes.saturating_add(other.resumes);
        self.quanta = self.quanta.saturating_add(other.quanta);
    }
}

/// The bins with pause frames.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseSeries {
    /// A bin is 2 to this power times 1 ms wide.
    doublings: u32,
    /// By the number of the bin: its start divided by its width.
    bins: BTreeMap<i64, PauseBin>,
}

impl PauseSeries {
    /// True without frames.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bins.is_empty()
    }

    /// Width of a bin in nanoseconds.
    #[must_use]
    pub fn bin_ns(&self) -> i64 {
        NARROWEST_NS << self.doublings.min(WIDEST_DOUBLINGS)
    }

    /// The start of each bin with frames in nanoseconds since the epoch, a multiple of the width, and
    /// its sums.
    pub fn bins(&self) -> impl Iterator<Item = (i64, PauseBin)> {
        let bin_ns = self.bin_ns();
        self.bins.iter().map(move |(number, sums)| (number.saturating_mul(bin_ns), *sums))
    }

    /// Frames in all bins.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.bins.values().fold(0, |sum, bin| sum.saturating_add(bin.frames))
    }

    /// Adds sums at a time in nanoseconds since the epoch.
    pub fn add(&mut self, time_ns: i64, sums: PauseBin) {
        *self.bins.entry(time_ns.div_euclid(self.bin_ns())).or_default() += sums;
        self.bound();
    }

    /// Adds the frames of another part of the capture.
    pub fn merge(&mut self, other: &Self) {
        while self.doublings < other.doublings.min(WIDEST_DOUBLINGS) {
            self.double();
        }
        other.bins().for_each(|(time_ns, sums)| self.add(time_ns, sums));
    }

    fn bound(&mut self) {
        while self.bins.len() > MAX_PAUSE_BINS && self.doublings < WIDEST_DOUBLINGS {
            self.double();
        }
    }

    /// Merges the bins by twos.
    fn double(&mut self) {
        self.doublings += 1;
        let mut wider: BTreeMap<i64, PauseBin> = BTreeMap::new();
        for (number, sums) in std::mem::take(&mut self.bins) {
            *wider.entry(number.div_euclid(2)).or_default() += sums;
        }
        self.bins = wider;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;
    const ONE: PauseBin = PauseBin { frames: 1, pauses: 1, resumes: 0, quanta: 7 };

    fn series(times_ns: impl IntoIterator<Item = i64>) -> PauseSeries {
        let mut series = PauseSeries::default();
        times_ns.into_iter().for_each(|time_ns| series.add(time_ns, ONE));
        series
    }

    #[test]
    fn frames_count_in_the_bin_of_their_time() {
        let series = series([-1, 0, MS - 1, 5 * MS]);
        let frames: Vec<_> = series.bins().map(|(start_ns, bin)| (start_ns, bin.frames, bin.quanta)).collect();
        assert_eq!(frames, [(-MS, 1, 7), (0, 2, 14), (5 * MS, 1, 7)]);
        assert_eq!((series.bin_ns(), series.frames()), (MS, 4));
    }

    #[test]
    fn more_bins_than_the_bound_are_merged_by_twos() {
        let most = MAX_PAUSE_BINS as i64;
        assert_eq!(series((0..most).map(|bin| bin * MS)).bin_ns(), MS);
        let wide = series((0..=most).map(|bin| bin * MS));
        assert_eq!((wide.bin_ns(), wide.frames(), wide.bins().count()), (2 * MS, 1025, 513));
        // The earliest and the latest times, too.
        let ends = series((0..=most).map(|bin| bin * MS).chain([i64::MIN, i64::MAX]));
        assert_eq!(ends.frames(), 1027);
    }

    #[test]
    fn parts_may_be_merged_in_any_order() {
        let times_ns: Vec<i64> = (0..3000).map(|number| number * number % 7919 * MS).collect();
        let whole = series(times_ns.iter().copied());
        assert!(whole.bin_ns() > MS);
        for split in [1, 100, 1500, 2999] {
            let (first, second) = times_ns.split_at(split);
            let [a, b] = [first, second].map(|part| series(part.iter().copied()));
            let [mut ab, mut ba] = [a.clone(), b.clone()];
            ab.merge(&b);
            ba.merge(&a);
            assert_eq!((&ab, &ba), (&whole, &whole), "{split}");
        }
    }

    #[test]
    fn damaged_widths_do_not_overflow() {
        let damaged: PauseSeries =
            serde_json::from_str(r#"{"doublings": 4000000000, "bins": {"9223372036854775807": {"frames": 1, "pauses": 0, "resumes": 0, "quanta": 0}}}"#)
                .expect("a series");
        let mut sum = series([0]);
        sum.merge(&damaged);
        assert_eq!(sum.frames(), 2);
        assert!(damaged.bin_ns() > 0);
    }
}
