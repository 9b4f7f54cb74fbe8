//! Distributions of times that can be added up without loss: HDR histograms with three significant digits.

/// Values below this have a bucket each; above, a power of two has half as many.
const EXACT: u64 = 2048;
/// Bits of a value that its bucket keeps.
const KEPT_BITS: u32 = 11;

/// Counts of values by bucket, and their exact extremes and sums.
///
/// The buckets are those of an HDR histogram: a value is kept to 11 bits, so that what a bucket stands for is wrong by less than 0.05 %.
/// Adding up histograms gives the histogram of all values, whatever the order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Bucket and count, sorted; only those that are not empty.
    buckets: Vec<(u32, u64)>,
    extremes: Option<(u64, u64)>,
    sum: u128,
    sum_of_squares: u128,
}

/// What a [`Histogram`] is stored as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramParts {
    /// Bucket and count.
    pub buckets: Vec<(u32, u64)>,
    /// Smallest and largest value.
    pub extremes: Option<(u64, u64)>,
    /// Sum of all values.
    pub sum: u128,
    /// Sum of their squares.
    pub sum_of_squares: u128,
}

/// The bucket of a value: below 2048 the value itself, then 1024 for each power of two.
const fn bucket(value: u64) -> u32 {
    if value < EXACT {
        return value as u32;
    }
    let shift = value.ilog2() + 1 - KEPT_BITS;
    shift * (EXACT as u32 / 2) + (value >> shift) as u32
}

/// The middle of the values of a bucket.
const fn middle(bucket: u32) -> u64 {
    let half = EXACT as u32 / 2;
    if bucket < EXACT as u32 {
        return bucket as u64;
    }
    let shift = bucket / half - 1;
    let kept = (bucket - shift * half) as u64;
    // The highest bucket ends with the largest value.
    (kept << shift) + ((1u64 << shift) - 1) / 2
}

impl Histogram {
    /// Adds a value.
    pub fn record(&mut self, value: u64) {
        let bucket = bucket(value);
        match self.buckets.binary_search_by_key(&bucket, |(bucket, _)| *bucket) {
            Ok(at) => self.buckets[at].1 += 1,
            Err(at) => self.buckets.insert(at, (bucket, 1)),
        }
        self.extremes = Some(self.extremes.map_or((value, value), |(min, max)| (min.min(value), max.max(value))));
        self.sum += u128::from(value);
        self.sum_of_squares += u128::from(value) * u128::from(value);
    }

    /// Adds all values of another.
    pub fn merge(&mut self, other: &Self) {
        let (mine, others) = (std::mem::take(&mut self.buckets), &other.buckets);
        self.buckets.reserve(mine.len().max(others.len()));
        let (mut a, mut b) = (mine.iter().peekable(), others.iter().peekable());
        loop {
            let next = match (a.peek(), b.peek()) {
                (None, None) => break,
                (Some(x), Some(y)) if x.0 == y.0 => {
                    let both = (x.0, x.1 + y.1);
                    b.next();
                    a.next();
                    both
                }
                (Some(x), Some(y)) if y.0 < x.0 => {
                    let next = **y;
                    b.next();
                    next
                }
                (Some(x), _) => {
                    let next = **x;
                    a.next();
                    next
                }
                (None, Some(y)) => {
                    let next = **y;
                    b.next();
                    next
                }
            };
            self.buckets.push(next);
        }
        self.extremes = match (self.extremes, other.extremes) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
        self.sum += other.sum;
        self.sum_of_squares += other.sum_of_squares;
    }

    /// Number of values.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// Smallest value, exactly; 0 where there is none.
    #[must_use]
    pub fn min(&self) -> u64 {
        self.extremes.map_or(0, |(min, _)| min)
    }

    /// Largest value, exactly; 0 where there is none.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.extremes.map_or(0, |(_, max)| max)
    }

    /// Arithmetic mean, from the exact sum.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.samples().max(1) as f64
    }

    /// Standard deviation of the values (not of a sample), from the exact sums.
    #[must_use]
    pub fn standard_deviation(&self) -> f64 {
        let mean = self.mean();
        let of_squares = self.sum_of_squares as f64 / self.samples().max(1) as f64;
        (of_squares - mean * mean).max(0.0).sqrt()
    }

    /// The smallest value that at least this share of the values does not exceed, to three significant digits; `share` from 0 to 1.
    #[must_use]
    pub fn quantile(&self, share: f64) -> u64 {
        let samples = self.samples();
        let wanted = ((share * samples as f64).ceil() as u64).clamp(1, samples.max(1));
        let mut seen = 0;
        for &(bucket, count) in &self.buckets {
            seen += count;
            if seen >= wanted {
                return middle(bucket).clamp(self.min(), self.max());
            }
        }
        self.max()
    }

    /// Number of values above a limit, to the resolution of the buckets.
    #[must_use]
    pub fn above(&self, limit: u64) -> u64 {
        let from = bucket(limit);
        self.buckets.iter().filter(|(bucket, _)| *bucket > from).map(|(_, count)| count).sum()
    }

    /// The middles of the buckets that are not empty, in order, and their counts.
    pub fn values(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.buckets.iter().map(|&(bucket, count)| (middle(bucket), count))
    }

    /// What is to be stored.
    #[must_use]
    pub fn parts(&self) -> HistogramParts {
        let Self { buckets, extremes, sum, sum_of_squares } = self.clone();
        HistogramParts { buckets, extremes, sum, sum_of_squares }
    }

    /// What was stored. Buckets may come in any order.
    #[must_use]
    pub fn from_parts(parts: HistogramParts) -> Self {
        let HistogramParts { mut buckets, extremes, sum, sum_of_squares } = parts;
        buckets.sort_unstable();
        Self { buckets, extremes, sum, sum_of_squares }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        values.iter().for_each(|&value| histogram.record(value));
        histogram
    }

    /// The value at a rank of the sorted list.
    fn exact(sorted: &[u64], share: f64) -> u64 {
        let rank = ((share * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len());
        sorted[rank - 1]
    }

    #[test]
    fn an_empty_one_says_nothing() {
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
            let found = bucket(value);
            assert_eq!(bucket(middle(found)), found, "{value}");
            let error = middle(found).abs_diff(value);
            assert!(error * 2000 <= value, "{value}: {}", middle(found));
            if let Some((before, of)) = last
                && value > before
            {
                assert!(found >= of, "{value}");
            }
            last = Some((value, found));
        }
    }

    proptest! {
        /// Three significant digits: off by less than half of one in a thousand.
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

        #[test]
        fn any_split_adds_up(values in prop::collection::vec((any::<u64>(), 0usize..4), 0..300)) {
            let mut parts = vec![Histogram::default(); 4];
            let mut whole = Histogram::default();
            for (value, part) in values {
                parts[part].record(value);
                whole.record(value);
            }
            let mut sum = Histogram::default();
            parts.iter().rev().for_each(|part| sum.merge(part));
            prop_assert_eq!(&sum, &whole);
            prop_assert_eq!(Histogram::from_parts(whole.parts()), whole);
        }
    }
}
