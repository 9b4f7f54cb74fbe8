//! Expected and observed records of one input over time.
//!
//! In: by connection and bin, the transmissions of all inputs together and the records of one
//! input. Out: when records are missing, and how bursty the losses are. A packet can pass the
//! points of two inputs in different bins, so a deficit is a loss only if no later bin has a
//! surplus that balances it:
//!
//! ```text
//! bin                    0    1    2    3
//! expected              10   10   10   10
//! observed               9   11    7   10
//! deficit so far         1    0    3    3
//! missing from the bin   0    0    3    0
//! ```
//! Invariant: sums can be added in any order.

use super::PsnSteps;
use std::collections::BTreeMap;

/// Records of one input, expected and observed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordSeries {
    /// By bin; empty without a time series.
    bins: BTreeMap<i64, RecordCount>,
    /// All records.
    pub total: RecordCount,
    /// Distances between the PSNs of requests in this input.
    pub steps: PsnSteps,
}

/// Numbers of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordCount {
    /// Records that the observation points should have, from the transmissions in all inputs.
    pub expected: u64,
    /// Records that they captured.
    pub observed: u64,
}

impl RecordCount {
    /// Records that are missing.
    #[must_use]
    pub const fn missing(self) -> u64 {
        self.expected.saturating_sub(self.observed)
    }

    const fn add(&mut self, other: Self) {
        self.expected += other.expected;
        self.observed += other.observed;
    }
}

/// Missing records of a bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingInBin {
    /// Number of the bin: time divided by the bin's width.
    pub bin: i64,
    /// Records that should exist.
    pub expected: u64,
    /// Missing records.
    pub missing: u64,
}

impl RecordSeries {
    /// Adds records of a bin.
    pub fn add_bin(&mut self, bin: i64, count: RecordCount) {
        self.bins.entry(bin).or_default().add(count);
    }

    /// Adds records to the total.
    pub const fn add_total(&mut self, count: RecordCount) {
        self.total.add(count);
    }

    /// Adds the series of other connections.
    pub fn merge(&mut self, other: &Self) {
        other.bins.iter().for_each(|(bin, count)| self.add_bin(*bin, *count));
        self.total.add(other.total);
        self.steps.join(other.steps);
    }

    /// The bins in the order of time, with their missing records.
    #[must_use]
    pub fn missing(&self) -> Vec<MissingInBin> {
        let mut deficit = 0;
        let so_far = self.bins.values().map(|count| {
            deficit += count.expected.cast_signed() - count.observed.cast_signed();
            deficit
        });
        let mut lasting: Vec<i64> = so_far.collect();
        let mut least = i64::MAX;
        for deficit in lasting.iter_mut().rev() {
            least = least.min(*deficit);
            *deficit = least.max(0);
        }
        let before = std::iter::once(0).chain(lasting.iter().copied());
        let bins = self.bins.iter().zip(lasting.iter().zip(before));
        bins.map(|((bin, count), (after, before))| MissingInBin {
            bin: *bin,
            expected: count.expected,
            missing: (after - before).unsigned_abs(),
        })
        .collect()
    }

    /// Number of records that one loss event takes, at least 1: the variance of the missing records
    /// by bin in relation to that of single losses, or the mean length of a gap between PSNs.
    #[must_use]
    pub fn burst_records(&self) -> f64 {
        let missing = self.total.missing();
        if missing <= 1 {
            return 1.0;
        }
        self.steps.gap_packets().max(self.overdispersion()).clamp(1.0, missing as f64)
    }

    /// Pearson's chi-square of the missing records by bin, divided by the degrees of freedom. Each
    /// bin should miss records in proportion to those that it should have. Without two bins, all
    /// missing records may be one burst.
    fn overdispersion(&self) -> f64 {
        let bins: Vec<MissingInBin> = self.missing().into_iter().filter(|bin| bin.expected > 0).collect();
        let expected: u64 = bins.iter().map(|bin| bin.expected).sum();
        let missing: u64 = bins.iter().map(|bin| bin.missing).sum();
        if bins.len() < 2 {
            return self.total.missing() as f64;
        }
        if missing == 0 {
            return 1.0;
        }
        let share = missing as f64 / expected as f64;
        let square = |bin: &MissingInBin| {
            let mean = bin.expected as f64 * share;
            (bin.missing as f64 - mean).powi(2) / mean
        };
        bins.iter().map(square).sum::<f64>() / (bins.len() - 1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(bins: &[(u64, u64)]) -> RecordSeries {
        let mut series = RecordSeries::default();
        for (bin, (expected, observed)) in (0..).zip(bins) {
            let count = RecordCount { expected: *expected, observed: *observed };
            series.add_bin(bin, count);
            series.add_total(count);
        }
        series
    }

    fn missing(bins: &[(u64, u64)]) -> Vec<u64> {
        series(bins).missing().iter().map(|bin| bin.missing).collect()
    }

    #[test]
    fn a_deficit_that_a_later_bin_makes_up_for_is_no_loss() {
        assert_eq!(missing(&[(10, 9), (10, 11), (10, 7), (10, 10)]), [0, 0, 3, 0]);
        // The clock of the input is ahead.
        assert_eq!(missing(&[(10, 12), (10, 10), (10, 5)]), [0, 0, 3]);
        assert_eq!(missing(&[(10, 0), (10, 20)]), [0, 0]);
    }

    /// 40 of 400 records: one of ten in each bin, and all in one bin.
    #[test]
    fn the_length_of_a_burst_follows_from_the_spread_over_time() {
        let even = series(&[(100, 90), (100, 90), (100, 90), (100, 90)]);
        assert!((even.burst_records() - 1.0).abs() < 1e-9);
        let burst = series(&[(100, 100), (100, 60), (100, 100), (100, 100)]);
        // (30^2 + 3 * 10^2) / 10 / 3
        assert!((burst.burst_records() - 40.0).abs() < 1e-9);
    }
}
