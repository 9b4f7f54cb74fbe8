//! Distributions of times that can be merged without loss: HDR histograms with three significant
//! digits.

mod recorder;

pub use recorder::Recorder;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Significant bits of a value that its bucket keeps.
const KEPT_BITS: u32 = 11;
/// Minimum of kept bits when memory is short: relative error of a bucket at most 3 %.
const MIN_BITS: u32 = 5;
/// Kept bits in the buckets of a timeline: eight buckets per power of two.
const COARSE_BITS: u32 = 4;
/// Number of possible coarse buckets.
pub const COARSE_BUCKETS: u16 = bucket(u64::MAX, COARSE_BITS) as u16 + 1;

/// Counts of values by bucket, with their exact extremes and sums.
///
/// The buckets are those of an HDR histogram: 11 significant bits of a value are kept, so the
/// middle of a bucket is off by less than 0.05 %. Merging histograms gives the histogram of all
/// values, in any order. Fewer bits are kept where all histograms together would need too many
/// buckets ([`Histogram::coarsen`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "HistogramParts", into = "HistogramParts")]
pub struct Histogram {
    kept_bits: u32,
    /// Non-empty buckets with their counts, sorted.
    buckets: Vec<(u32, u32)>,
    samples: u64,
    extremes: Option<(u64, u64)>,
    sum: u128,
    sum_of_squares: u128,
}

/// The stored form of a [`Histogram`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistogramParts {
    /// Significant bits of a value that its bucket keeps.
    pub kept_bits: u32,
    /// Buckets with their counts.
    pub buckets: Vec<(u32, u32)>,
    /// Number of values.
    pub samples: u64,
    /// Smallest and largest value.
    pub extremes: Option<(u64, u64)>,
    /// Sum of all values.
    pub sum: u128,
    /// Sum of their squares.
    pub sum_of_squares: u128,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { kept_bits: KEPT_BITS, buckets: Vec::new(), samples: 0, extremes: None, sum: 0, sum_of_squares: 0 }
    }
}

/// The bucket of a value: with 11 kept bits the value itself below 2048, then 1024 buckets per
/// power of two.
const fn bucket(value: u64, kept_bits: u32) -> u32 {
    if value >> kept_bits == 0 {
        return value as u32;
    }
    let shift = value.ilog2() + 1 - kept_bits;
    (shift << (kept_bits - 1)) + (value >> shift) as u32
}

/// The coarse bucket of a value: exact below 16, otherwise with an error of at most 6.25 %.
#[must_use]
pub const fn coarse_bucket(value: u64) -> u16 {
    bucket(value, COARSE_BITS) as u16
}

/// The values of a coarse bucket: from the first (inclusive) to the second (exclusive).
#[must_use]
pub const fn coarse_range(bucket: u16) -> (u64, u64) {
    let bucket = bucket as u32;
    if bucket >> COARSE_BITS == 0 {
        return (bucket as u64, bucket as u64 + 1);
    }
    let shift = (bucket >> (COARSE_BITS - 1)) - 1;
    let kept = (bucket - (shift << (COARSE_BITS - 1))) as u64;
    (kept << shift, (kept << shift).saturating_add(1 << shift))
}

/// The middle of a bucket.
const fn middle(bucket: u32, kept_bits: u32) -> u64 {
    if bucket >> kept_bits == 0 {
        return bucket as u64;
    }
    let shift = (bucket >> (kept_bits - 1)) - 1;
    let kept = (bucket - (shift << (kept_bits - 1))) as u64;
    // Avoids an overflow: the highest bucket ends with the largest value.
    (kept << shift) + ((1u64 << shift) - 1) / 2
}

impl Histogram {
    /// Adds all values of another histogram. The result keeps as many bits as the coarser of the
    /// two.
    pub fn merge(&mut self, other: &Self) {
        while self.kept_bits > other.kept_bits {
            self.drop_bit();
        }
        let kept_bits = self.kept_bits;
        let others = other.buckets.iter().map(|&(found, count)| {
            let found =
                if other.kept_bits == kept_bits { found } else { bucket(middle(found, other.kept_bits), kept_bits) };
            (found, count)
        });
        self.add(others);
        self.samples += other.samples;
        self.extremes = match (self.extremes, other.extremes) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
        self.sum = self.sum.saturating_add(other.sum);
        self.sum_of_squares = self.sum_of_squares.saturating_add(other.sum_of_squares);
    }

    /// Adds counts, sorted by bucket.
    fn add(&mut self, more: impl Iterator<Item = (u32, u32)>) {
        // After a few merges most buckets exist already; only the new ones are inserted.
        let mut beyond: Vec<(u32, u32)> = Vec::new();
        let mut at = 0;
        for (bucket, count) in more {
            let behind = self.buckets[at..].binary_search_by_key(&bucket, |(bucket, _)| *bucket);
            at += behind.unwrap_or_else(|place| place);
            let held = if behind.is_ok() { self.buckets.get_mut(at) } else { beyond.last_mut() };
            match held {
                Some((found, sum)) if *found == bucket => *sum = sum.saturating_add(count),
                _ => beyond.push((bucket, count)),
            }
        }
        // Both lists are sorted and have no bucket in common: merge from the back, until the rest
        // is in place. Usually few new buckets lie between many others, which move as a block.
        let mut left = self.buckets.len();
        self.buckets.resize(left + beyond.len(), (0, 0));
        while let Some(next) = beyond.pop() {
            let place = self.buckets[..left].partition_point(|held| held.0 < next.0);
            self.buckets.copy_within(place..left, place + beyond.len() + 1);
            self.buckets[place + beyond.len()] = next;
            left = place;
        }
    }

    /// Keeps one bit less of each value, down to the minimum: half as many buckets, each twice as
    /// wide.
    pub fn coarsen(&mut self) {
        if self.kept_bits > MIN_BITS {
            self.drop_bit();
        }
    }

    fn drop_bit(&mut self) {
        let from = self.kept_bits;
        self.kept_bits -= 1;
        let buckets = std::mem::take(&mut self.buckets);
        self.add(buckets.into_iter().map(|(found, count)| (bucket(middle(found, from), from - 1), count)));
        self.buckets.shrink_to_fit();
    }

    /// True if fewer than three significant digits are kept.
    #[must_use]
    pub const fn is_coarse(&self) -> bool {
        self.kept_bits < KEPT_BITS
    }

    /// Number of values.
    #[must_use]
    pub const fn samples(&self) -> u64 {
        self.samples
    }

    /// Smallest value, exact; 0 if there is none.
    #[must_use]
    pub fn min(&self) -> u64 {
        self.extremes.map_or(0, |(min, _)| min)
    }

    /// Largest value, exact; 0 if there is none.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.extremes.map_or(0, |(_, max)| max)
    }

    /// Arithmetic mean, from the exact sum.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.samples().max(1) as f64
    }

    /// Standard deviation of the population (not of a sample), from the exact sums.
    #[must_use]
    pub fn standard_deviation(&self) -> f64 {
        let mean = self.mean();
        let of_squares = self.sum_of_squares as f64 / self.samples().max(1) as f64;
        (of_squares - mean * mean).max(0.0).sqrt()
    }

    /// Smallest value that at least the fraction `share` (0 to 1) of the values does not exceed, to
    /// three significant digits.
    #[must_use]
    pub fn quantile(&self, share: f64) -> u64 {
        let samples = self.samples();
        let wanted = ((share * samples as f64).ceil() as u64).clamp(1, samples.max(1));
        let mut seen = 0;
        for &(bucket, count) in &self.buckets {
            seen += u64::from(count);
            if seen >= wanted {
                // Not `clamp`, which panics: stored extremes may be in the wrong order.
                return middle(bucket, self.kept_bits).max(self.min()).min(self.max());
            }
        }
        self.max()
    }

    /// Number of values above a limit, to the resolution of the buckets.
    #[must_use]
    pub fn above(&self, limit: u64) -> u64 {
        let from = bucket(limit, self.kept_bits);
        self.buckets.iter().filter(|(bucket, _)| *bucket > from).map(|(_, count)| u64::from(*count)).sum()
    }

    /// Middles of the non-empty buckets with their counts, ascending.
    pub fn values(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.buckets.iter().map(|&(bucket, count)| (middle(bucket, self.kept_bits), u64::from(count)))
    }

    /// Histogram of coarse buckets. Its extremes and sums are those of the middles of the buckets.
    #[must_use]
    pub fn of_coarse(counts: &BTreeMap<u16, u64>) -> Self {
        let middles = || counts.iter().map(|(bucket, count)| (middle(u32::from(*bucket), COARSE_BITS), *count));
        let (first, last) = (middles().next(), middles().next_back());
        let sum = |of: &dyn Fn(u128) -> u128| {
            let terms = middles().map(|(value, count)| of(u128::from(value)).saturating_mul(u128::from(count)));
            terms.fold(0, u128::saturating_add)
        };
        let stored = |(bucket, count): (&u16, &u64)| (u32::from(*bucket), u32::try_from(*count).unwrap_or(u32::MAX));
        Self {
            kept_bits: COARSE_BITS,
            buckets: counts.iter().map(stored).collect(),
            samples: counts.values().sum(),
            extremes: first.zip(last).map(|((min, _), (max, _))| (min, max)),
            sum: sum(&|value| value),
            sum_of_squares: sum(&|value| value * value),
        }
    }

    /// Non-empty buckets with their counts, ascending.
    #[must_use]
    pub fn buckets(&self) -> &[(u32, u32)] {
        &self.buckets
    }

    /// The stored form.
    #[must_use]
    pub fn into_parts(self) -> HistogramParts {
        let Self { kept_bits, buckets, samples, extremes, sum, sum_of_squares } = self;
        HistogramParts { kept_bits, buckets, samples, extremes, sum, sum_of_squares }
    }

    /// Restores a stored histogram. Buckets may be in any order; invalid numbers are replaced by
    /// the nearest valid ones.
    #[must_use]
    pub fn from_parts(parts: HistogramParts) -> Self {
        let HistogramParts { kept_bits, mut buckets, samples, extremes, sum, sum_of_squares } = parts;
        let kept_bits = kept_bits.clamp(MIN_BITS, KEPT_BITS);
        buckets.retain(|(bucket, _)| *bucket <= self::bucket(u64::MAX, kept_bits));
        buckets.sort_unstable();
        Self { kept_bits, buckets, samples, extremes, sum, sum_of_squares }
    }
}

impl From<HistogramParts> for Histogram {
    fn from(parts: HistogramParts) -> Self {
        Self::from_parts(parts)
    }
}

impl From<Histogram> for HistogramParts {
    fn from(histogram: Histogram) -> Self {
        histogram.into_parts()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> Histogram {
        let mut recorder = Recorder::default();
        values.iter().for_each(|&value| recorder.record(value));
        recorder.finish()
    }

    /// The value at the rank of a quantile in a sorted list.
    fn exact(sorted: &[u64], share: f64) -> u64 {
        let rank = ((share * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len());
        sorted[rank - 1]
    }

    #[test]
    fn an_empty_histogram_gives_zeros() {
        let empty = Histogram::default();
        assert_eq!((empty.samples(), empty.min(), empty.max(), empty.quantile(0.5)), (0, 0, 0, 0));
        assert!(empty.mean() == 0.0 && empty.standard_deviation() == 0.0);
    }

    #[test]
    fn mean_and_deviation_of_a_known_list() {
        let histogram = of(&[2, 4, 4, 4, 5, 5, 7, 9]);
        assert!((histogram.mean() - 5.0).abs() < 1e-12);
        assert!((histogram.standard_deviation() - 2.0).abs() < 1e-12);
        assert_eq!((histogram.above(4), histogram.above(9)), (4, 0));
    }

    #[test]
    fn buckets_are_in_order_and_hold_their_middle() {
        let mut last = None;
        for value in (0..5000)
            .chain((12..64).flat_map(|bits| [(1u64 << bits) - 1, 1 << bits, (1 << bits) + 12_345]))
            .chain([u64::MAX])
        {
            let found = bucket(value, KEPT_BITS);
            assert_eq!(bucket(middle(found, KEPT_BITS), KEPT_BITS), found, "{value}");
            let error = middle(found, KEPT_BITS).abs_diff(value);
            assert!(error * 2000 <= value, "{value}: {}", middle(found, KEPT_BITS));
            if let Some((before, of)) = last
                && value > before
            {
                assert!(found >= of, "{value}");
            }
            last = Some((value, found));
        }
    }

    /// Coarse histograms keep fewer bits than any other.
    #[test]
    fn a_coarse_histogram_can_be_merged_into_any() {
        let coarse = Histogram::of_coarse(&BTreeMap::from([(coarse_bucket(1000), 3)]));
        for mut sum in [Histogram::default(), of(&[1000, 2000])] {
            let before = sum.samples();
            sum.merge(&coarse);
            assert_eq!(sum.samples(), before + 3);
            assert!(sum.quantile(0.5).abs_diff(1000) <= 1000 / 16, "{}", sum.quantile(0.5));
        }
    }

    proptest! {
        /// Three significant digits: error below 0.05 %.
        #[test]
        fn quantiles_are_those_of_the_sorted_list(
            values in prop::collection::vec((0u32..40).prop_flat_map(|bits| 0..1u64 << bits | 1), 1..400),
            share in 0.0f64..=1.0,
        ) {
            let histogram = of(&values);
            let mut sorted = values;
            sorted.sort_unstable();
            for share in [share, 0.1, 0.5, 0.9, 0.95, 0.99] {
                let (found, exact) = (histogram.quantile(share), exact(&sorted, share));
                prop_assert!(found.abs_diff(exact) * 2000 <= exact, "{share}: {found}, not {exact}");
            }
            prop_assert_eq!((histogram.min(), histogram.max()), (sorted[0], sorted[sorted.len() - 1]));
            prop_assert_eq!(histogram.samples(), sorted.len() as u64);
        }

        /// Error at most one in sixteen.
        #[test]
        fn coarse_quantiles_are_near_those_of_the_sorted_list(
            values in prop::collection::vec((0u32..64).prop_flat_map(|bits| 0..=(1u64 << bits) - 1), 1..400),
            split in 0usize..400,
        ) {
            let coarse = |values: &[u64]| {
                let mut counts = BTreeMap::new();
                values.iter().for_each(|value| *counts.entry(coarse_bucket(*value)).or_default() += 1);
                Histogram::of_coarse(&counts)
            };
            let histogram = coarse(&values);
            let (one, other) = values.split_at(split.min(values.len()));
            let mut merged = coarse(one);
            merged.merge(&coarse(other));
            prop_assert_eq!(&merged, &histogram);
            let mut sorted = values;
            sorted.sort_unstable();
            for share in [0.0, 0.1, 0.5, 0.9, 0.99, 1.0] {
                let (found, exact) = (histogram.quantile(share), exact(&sorted, share));
                prop_assert!(found.abs_diff(exact) <= exact / 16, "{share}: {found}, not {exact}");
            }
            prop_assert_eq!(histogram.samples(), sorted.len() as u64);
            prop_assert!(coarse_bucket(u64::MAX) + 1 == COARSE_BUCKETS);
        }

        #[test]
        fn any_split_adds_up(values in prop::collection::vec((any::<u64>(), 0usize..4), 0..300)) {
            let mut parts = vec![Recorder::default(); 4];
            let mut whole = Recorder::default();
            for (value, part) in values {
                parts[part].record(value);
                whole.record(value);
            }
            let whole = whole.finish();
            let mut sum = Histogram::default();
            parts.into_iter().rev().for_each(|part| sum.merge(&part.finish()));
            prop_assert_eq!(&sum, &whole);
            prop_assert_eq!(Histogram::from_parts(whole.clone().into_parts()), whole);
        }

        /// Counts too large for their 16-bit field add up as well.
        #[test]
        fn large_counts_add_up(value in 0u64..1 << 30, count in 65_000u32..140_000, others in prop::collection::vec(0u64..1 << 30, 0..40)) {
            let mut recorder = Recorder::default();
            (0..count).for_each(|_| recorder.record(value));
            others.iter().for_each(|&other| recorder.record(other));
            let mut expected = of(&others);
            let found = bucket(value, KEPT_BITS);
            let own = expected.buckets.iter().find(|(bucket, _)| *bucket == found).map_or(0, |(_, count)| *count);
            expected.buckets.retain(|(bucket, _)| *bucket != found);
            expected.buckets.push((found, own + count));
            expected.buckets.sort_unstable();
            let mut again: Recorder = recorder.clone().finish().into();
            prop_assert_eq!(&again.clone().finish().buckets, &expected.buckets);
            prop_assert_eq!(recorder.clone().finish(), again.clone().finish());
            recorder.coarsen();
            again.coarsen();
            expected.coarsen();
            prop_assert_eq!(&recorder.finish().buckets, &expected.buckets);
            prop_assert_eq!(&again.finish().buckets, &expected.buckets);
        }

        /// The order of coarsening and recording does not matter, and quantiles are as exact as the
        /// kept bits.
        #[test]
        fn coarser_histograms_add_up_too(values in prop::collection::vec(0u64..1 << 40, 1..600), steps in 0u32..9, at in 0usize..600) {
            let mut early = Recorder::default();
            for (index, &value) in values.iter().enumerate() {
                if index == at.min(values.len() - 1) {
                    (0..steps).for_each(|_| early.coarsen());
                }
                early.record(value);
            }
            let fine = of(&values);
            let mut late = fine.clone();
            (0..steps).for_each(|_| late.coarsen());
            prop_assert_eq!(&early.finish(), &late);
            let mut sum = fine.clone();
            sum.merge(&late);
            prop_assert_eq!((sum.samples(), sum.is_coarse()), (2 * fine.samples(), steps > 0));
            for share in [0.1, 0.5, 0.9] {
                let (coarse, fine) = (late.quantile(share), fine.quantile(share));
                // Half a bucket.
                let kept_bits = KEPT_BITS - steps.min(KEPT_BITS - MIN_BITS);
                prop_assert!(coarse.abs_diff(fine) <= fine >> kept_bits, "{share}: {coarse}, not {fine}");
            }
        }
    }
}
