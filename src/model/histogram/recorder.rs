//! A histogram in memory to which values are added one by one. An analysis may hold a million of
//! these recorders with a few values each.

use super::{Histogram, KEPT_BITS, MIN_BITS, bucket, middle};
use crate::model::VecMap;
use serde::{Deserialize, Serialize};

/// Growth of short lists, in entries; matches block sizes of the allocator.
const STEP: usize = 4;
/// Number of values that a recorder stores before it counts them in buckets.
const MAX_VALUES: usize = 32;
/// Number of buckets up to which each value is searched. With more buckets, new values are
/// collected and merged by sorting, because a search would wait for memory at every step.
const MAX_SEARCHED_BUCKETS: usize = 40;
/// Number of values that are collected before they are merged.
const MAX_PENDING_BUCKETS: usize = 256;

/// A histogram that values can be added to.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "Histogram", into = "Histogram")]
pub struct Recorder {
    kept_bits: u8,
    state: RecorderState,
}

#[derive(Clone, Debug)]
enum RecorderState {
    /// Each value, which takes as much memory as its bucket would.
    Values(Vec<u32>),
    Counts(Box<HistogramCounts>),
}

/// The form for many values or large values: four bytes per bucket.
#[derive(Clone, Debug)]
struct HistogramCounts {
    /// Buckets with their counts. The first `sorted` ones are sorted; if there are few, all of
    /// them.
    buckets: Vec<BucketCount>,
    sorted: u32,
    /// Counts beyond 16 bits, by bucket.
    overflow: Option<Box<VecMap<u16, u32>>>,
    samples: u64,
    /// Smallest and largest value; [`NO_EXTREMES`] if there is none.
    extremes: (u64, u64),
    sum: u128,
    sum_of_squares: u128,
}

/// A bucket and the number of its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct BucketCount {
    bucket: u16,
    count: u16,
}

impl BucketCount {
    /// Adds to the count; an overflow goes to `beyond`.
    #[inline]
    fn add(&mut self, more: u16, beyond: &mut Option<Box<VecMap<u16, u32>>>) {
        self.count = self.count.checked_add(more).unwrap_or_else(|| {
            let beyond = beyond.get_or_insert_default().or_default(self.bucket);
            *beyond = beyond.saturating_add(u32::from(self.count));
            more
        });
    }
}

// All bucket numbers fit into 16 bits.
const _: () = assert!(bucket(u64::MAX, KEPT_BITS) <= u16::MAX as u32);

impl Default for Recorder {
    fn default() -> Self {
        Self { kept_bits: KEPT_BITS as u8, state: RecorderState::Values(Vec::new()) }
    }
}

impl From<Histogram> for Recorder {
    fn from(histogram: Histogram) -> Self {
        let Histogram { kept_bits, buckets, samples, extremes, sum, sum_of_squares } = histogram;
        let mut counted = Vec::with_capacity(buckets.len());
        let mut beyond: Option<Box<VecMap<u16, u32>>> = None;
        for (bucket, count) in buckets {
            let bucket = bucket as u16;
            let kept = u16::try_from(count).unwrap_or(0);
            if count > u32::from(kept) {
                *beyond.get_or_insert_default().or_default(bucket) = count;
            }
            counted.push(BucketCount { bucket, count: kept });
        }
        let sorted = counted.len() as u32;
        let extremes = extremes.unwrap_or(NO_EXTREMES);
        let counts =
            HistogramCounts { buckets: counted, sorted, overflow: beyond, samples, extremes, sum, sum_of_squares };
        Self { kept_bits: kept_bits as u8, state: RecorderState::Counts(Box::new(counts)) }
    }
}

impl From<Recorder> for Histogram {
    fn from(recorder: Recorder) -> Self {
        recorder.finish()
    }
}

/// The bucket that holds the values of bucket `found` when one bit less than `from` is kept.
const fn coarser_bucket(found: u16, from: u32) -> u16 {
    bucket(middle(found as u32, from), from - 1) as u16
}

/// Extremes of no values.
const NO_EXTREMES: (u64, u64) = (u64::MAX, 0);

impl Recorder {
    /// Adds a value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        match &mut self.state {
            RecorderState::Values(values) => match u32::try_from(value) {
                Ok(value) if values.len() < MAX_VALUES => {
                    if values.len() == values.capacity() {
                        values.reserve_exact(STEP);
                    }
                    values.push(value);
                }
                _ => {
                    let values = std::mem::take(values);
                    self.count(values, value);
                }
            },
            RecorderState::Counts(counts) => counts.record(value, u32::from(self.kept_bits)),
        }
    }

    /// Adds all values of another recorder. The result keeps as many bits as the coarser of the
    /// two.
    pub fn merge(&mut self, other: Self) {
        if let (RecorderState::Values(values), RecorderState::Values(others)) = (&mut self.state, &other.state)
            && values.len() + others.len() <= MAX_VALUES
        {
            values.reserve_exact(others.len());
            values.extend(others);
            self.kept_bits = self.kept_bits.min(other.kept_bits);
            return;
        }
        let mut sum = std::mem::take(self).finish();
        sum.merge(&other.finish());
        *self = sum.into();
    }

    /// Changes the state to counts, because `value` does not fit into the list.
    #[cold]
    fn count(&mut self, values: Vec<u32>, value: u64) {
        let mut counts = HistogramCounts::default();
        let all = values.into_iter().map(u64::from).chain([value]);
        all.for_each(|value| counts.record(value, u32::from(self.kept_bits)));
        self.state = RecorderState::Counts(Box::new(counts));
    }

    /// Upper bound of the number of buckets.
    #[must_use]
    pub const fn buckets(&self) -> usize {
        match &self.state {
            RecorderState::Values(values) => values.len(),
            RecorderState::Counts(counts) => counts.buckets.len(),
        }
    }

    /// Adds to `counts[n]` the number of buckets that the recorder has after `n` more bits of each
    /// value are dropped.
    pub fn add_buckets(&mut self, counts: &mut [usize]) {
        let finest = u32::from(self.kept_bits);
        match &mut self.state {
            RecorderState::Values(values) => {
                values.sort_unstable();
                let mut kept_bits = finest;
                for count in counts {
                    let same = |a: &u32, b: &u32| bucket(u64::from(*a), kept_bits) == bucket(u64::from(*b), kept_bits);
                    *count += values.chunk_by(same).count();
                    kept_bits = (kept_bits - 1).max(MIN_BITS);
                }
            }
            RecorderState::Counts(recorded) => {
                recorded.sort_in();
                let mut buckets: Vec<u16> = recorded.buckets.iter().map(|counted| counted.bucket).collect();
                let mut kept_bits = finest;
                for count in counts {
                    *count += buckets.len();
                    if kept_bits > MIN_BITS {
                        buckets.iter_mut().for_each(|found| *found = coarser_bucket(*found, kept_bits));
                        buckets.dedup();
                        kept_bits -= 1;
                    }
                }
            }
        }
    }

    /// Keeps one bit less of each value, down to the minimum.
    pub fn coarsen(&mut self) {
        let from = u32::from(self.kept_bits);
        if from > MIN_BITS {
            self.kept_bits -= 1;
            if let RecorderState::Counts(counts) = &mut self.state {
                counts.coarsen(from);
            }
        }
    }

    /// The histogram of all values.
    #[must_use]
    pub fn finish(self) -> Histogram {
        let kept_bits = u32::from(self.kept_bits);
        let mut counts = match self.state {
            RecorderState::Counts(counts) => *counts,
            RecorderState::Values(values) => return histogram_of(values, kept_bits),
        };
        counts.sort_in();
        let HistogramCounts { buckets: counted, overflow: mut beyond, samples, extremes, sum, sum_of_squares, .. } =
            counts;
        let of_bucket = |counted: BucketCount| {
            let beyond = beyond.as_mut().and_then(|beyond| beyond.get_mut(&counted.bucket).copied()).unwrap_or(0);
            (u32::from(counted.bucket), beyond.saturating_add(u32::from(counted.count)))
        };
        let buckets = counted.into_iter().map(of_bucket).collect();
        let extremes = (samples > 0).then_some(extremes);
        Histogram { kept_bits, buckets, samples, extremes, sum, sum_of_squares }
    }
}

/// The histogram of a few values.
fn histogram_of(mut values: Vec<u32>, kept_bits: u32) -> Histogram {
    values.sort_unstable();
    let wide = || values.iter().map(|value| u128::from(*value));
    let mut buckets: Vec<(u32, u32)> = Vec::with_capacity(values.len());
    for value in &values {
        let found = bucket(u64::from(*value), kept_bits);
        match buckets.last_mut() {
            Some((last, count)) if *last == found => *count += 1,
            _ => buckets.push((found, 1)),
        }
    }
    Histogram {
        kept_bits,
        buckets,
        samples: values.len() as u64,
        extremes: values.first().zip(values.last()).map(|(first, last)| (u64::from(*first), u64::from(*last))),
        sum: wide().sum(),
        // At most 32 squares of 64 bits each.
        sum_of_squares: wide().map(|value| value * value).sum(),
    }
}

impl Default for HistogramCounts {
    fn default() -> Self {
        Self {
            buckets: Vec::new(),
            sorted: 0,
            overflow: None,
            samples: 0,
            extremes: NO_EXTREMES,
            sum: 0,
            sum_of_squares: 0,
        }
    }
}

impl HistogramCounts {
    #[inline]
    fn record(&mut self, value: u64, kept_bits: u32) {
        self.samples += 1;
        self.extremes = (self.extremes.0.min(value), self.extremes.1.max(value));
        self.sum += u128::from(value);
        self.sum_of_squares = self.sum_of_squares.saturating_add(u128::from(value) * u128::from(value));
        let bucket = bucket(value, kept_bits) as u16;
        if self.buckets.len() <= MAX_SEARCHED_BUCKETS {
            return self.count_in_place(bucket);
        }
        if self.buckets.len() == self.buckets.capacity() {
            self.make_room();
        }
        self.buckets.push(BucketCount { bucket, count: 1 });
    }

    /// Counts a value in a short sorted list.
    fn count_in_place(&mut self, bucket: u16) {
        let Self { buckets: counted, overflow: beyond, .. } = self;
        let place = counted.partition_point(|counted| counted.bucket < bucket);
        if let Some(kept) = counted.get_mut(place).filter(|counted| counted.bucket == bucket) {
            return kept.add(1, beyond);
        }
        if counted.len() == counted.capacity() {
            counted.reserve_exact(STEP);
        }
        counted.insert(place, BucketCount { bucket, count: 1 });
        self.sorted = counted.len() as u32;
    }

    /// Merges the collected values, and makes room for the values until the next merge.
    #[inline(never)]
    fn make_room(&mut self) {
        self.sort_in();
        let room = (self.buckets.len() / 2).min(MAX_PENDING_BUCKETS);
        if self.buckets.capacity() - self.buckets.len() < room {
            self.buckets.reserve_exact(room);
        }
    }

    fn sort_in(&mut self) {
        if self.buckets.len() == self.sorted as usize {
            return;
        }
        // A sorted run behind a sorted run: the best case of the stable sort.
        self.buckets[self.sorted as usize..].sort_unstable();
        self.buckets.sort_by_key(|counted| counted.bucket);
        self.join();
    }

    /// Joins the counts of equal buckets.
    fn join(&mut self) {
        let Self { buckets: counted, overflow: beyond, .. } = self;
        counted.dedup_by(|next, kept| {
            let is_same = next.bucket == kept.bucket;
            if is_same {
                kept.add(next.count, beyond);
            }
            is_same
        });
        self.sorted = self.buckets.len() as u32;
    }

    /// Keeps one bit less of each value; `from` is the number kept so far.
    fn coarsen(&mut self, from: u32) {
        self.sort_in();
        for counted in &mut self.buckets {
            counted.bucket = coarser_bucket(counted.bucket, from);
        }
        if let Some(finer) = self.overflow.take() {
            let mut beyond = Box::<VecMap<u16, u32>>::default();
            for (found, count) in *finer {
                let sum = beyond.or_default(coarser_bucket(found, from));
                *sum = sum.saturating_add(count);
            }
            self.overflow = Some(beyond);
        }
        self.join();
        self.buckets.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> Recorder {
        let mut recorder = Recorder::default();
        values.iter().for_each(|value| recorder.record(*value));
        recorder
    }

    fn exact_buckets<const LEVELS: usize>(recorder: &mut Recorder) -> [usize; LEVELS] {
        let mut counts = [0; LEVELS];
        recorder.add_buckets(&mut counts);
        counts
    }

    /// Adds each value twice, in descending order: the recorder stores values, searches buckets, or
    /// collects buckets.
    #[test]
    fn each_state_keeps_all_values() {
        let bounds =
            [MAX_VALUES, MAX_SEARCHED_BUCKETS, MAX_SEARCHED_BUCKETS + MAX_PENDING_BUCKETS, 2 * MAX_PENDING_BUCKETS];
        for count in bounds.into_iter().flat_map(|bound| [bound, bound + 1, bound + 2]) {
            let values: Vec<u64> = (0..count as u64).rev().collect();
            let mut recorder = of(&values);
            assert_eq!(matches!(recorder.state, RecorderState::Values(_)), count <= MAX_VALUES);
            values.iter().for_each(|value| recorder.record(*value));
            assert_eq!(exact_buckets(&mut recorder), [count]);
            let Histogram { buckets, samples, extremes, sum, .. } = recorder.finish();
            assert_eq!(buckets, (0..count as u32).map(|value| (value, 2)).collect::<Vec<_>>());
            assert_eq!((samples, extremes), (2 * count as u64, Some((0, count as u64 - 1))));
            assert_eq!(sum, (count * (count - 1)) as u128);
        }
    }

    proptest! {
        /// Compares the histogram with a list of the values: few or many, small or large, in one or
        /// two recorders, coarsened early or late.
        #[test]
        fn the_histogram_equals_that_of_the_recorded_values(
            values in prop::collection::vec(prop_oneof![1u64..4000, 1u64..1 << 34], 0..6 * MAX_VALUES),
            split in 0usize..6 * MAX_VALUES,
            coarser in (0u32..8, 0u32..8),
        ) {
            let (one, other) = values.split_at(split.min(values.len()));
            let mut parts = [of(one), of(other)];
            (0..coarser.0).for_each(|_| parts[0].coarsen());
            (0..coarser.1).for_each(|_| parts[1].coarsen());
            let [mut recorder, other] = parts;
            recorder.merge(other);
            let kept_bits = KEPT_BITS - coarser.0.max(coarser.1).min(KEPT_BITS - MIN_BITS);
            let mut buckets: Vec<u32> = values.iter().map(|value| bucket(*value, kept_bits)).collect();
            buckets.sort_unstable();
            let expected: Vec<(u32, u32)> = buckets.chunk_by(|a, b| a == b).map(|all| (all[0], all.len() as u32)).collect();
            prop_assert!(recorder.buckets() >= expected.len());
            let mut coarser = recorder.clone();
            for counted in exact_buckets::<{ 2 + (KEPT_BITS - MIN_BITS) as usize }>(&mut recorder) {
                prop_assert_eq!(counted, coarser.clone().finish().buckets.len());
                coarser.coarsen();
            }
            let wide = || values.iter().map(|value| u128::from(*value));
            prop_assert_eq!(recorder.finish(), Histogram {
                kept_bits,
                buckets: expected,
                samples: values.len() as u64,
                extremes: values.iter().copied().min().zip(values.iter().copied().max()),
                sum: wide().sum(),
                sum_of_squares: wide().map(|value| value * value).sum(),
            });
        }
    }
}
