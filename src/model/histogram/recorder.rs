//! A histogram that values are added to one by one. There may be a million of them, of a few values each.

use super::{FEWEST_BITS, Histogram, KEPT_BITS, bucket, middle};
use crate::model::Few;
use serde::{Deserialize, Serialize};

/// Room that short lists are given at a time: steps that an allocator has blocks of.
const STEP: usize = 4;
/// Values that are kept as they are.
const MOST_FEW: usize = 32;
/// Buckets among which that of each value is searched. Of more, values are collected and sorted in: a search for each would wait for memory at every step.
const MOST_SEARCHED: usize = 40;
/// Values that are collected before they are sorted in.
const MOST_PENDING: usize = 256;

/// A histogram that grows.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "Histogram", into = "Histogram")]
pub struct Recorder {
    kept_bits: u8,
    held: Held,
}

#[derive(Clone, Debug)]
enum Held {
    /// The values themselves, from which all else follows. They take as much as their buckets would.
    Values(Vec<u32>),
    Counts(Box<Counts>),
}

/// Many values, or large ones: four bytes for each bucket.
#[derive(Clone, Debug)]
struct Counts {
    /// Buckets with their counts, the first of them sorted; all of them where they are few.
    counted: Vec<Counted>,
    sorted: u32,
    /// Counts for which these have no room, by bucket.
    beyond: Option<Box<Few<u16, u32>>>,
    samples: u64,
    /// Smallest and largest value; the other way round where there is none.
    extremes: (u64, u64),
    sum: u128,
    sum_of_squares: u128,
}

/// A bucket, and how many values are in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Counted {
    bucket: u16,
    count: u16,
}

impl Counted {
    /// Counts more values; what has no room goes beyond.
    #[inline]
    fn add(&mut self, more: u16, beyond: &mut Option<Box<Few<u16, u32>>>) {
        self.count = self.count.checked_add(more).unwrap_or_else(|| {
            let beyond = beyond.get_or_insert_default().or_default(self.bucket);
            *beyond = beyond.saturating_add(u32::from(self.count));
            more
        });
    }
}

// All buckets have a number that fits.
const _: () = assert!(bucket(u64::MAX, KEPT_BITS) <= u16::MAX as u32);

impl Default for Recorder {
    fn default() -> Self {
        Self { kept_bits: KEPT_BITS as u8, held: Held::Values(Vec::new()) }
    }
}

impl From<Histogram> for Recorder {
    fn from(histogram: Histogram) -> Self {
        let Histogram { kept_bits, buckets, samples, extremes, sum, sum_of_squares } = histogram;
        let mut counted = Vec::with_capacity(buckets.len());
        let mut beyond: Option<Box<Few<u16, u32>>> = None;
        for (bucket, count) in buckets {
            let bucket = bucket as u16;
            let kept = u16::try_from(count).unwrap_or(0);
            if count > u32::from(kept) {
                *beyond.get_or_insert_default().or_default(bucket) = count;
            }
            counted.push(Counted { bucket, count: kept });
        }
        let sorted = counted.len() as u32;
        let extremes = extremes.unwrap_or(NO_EXTREMES);
        let counts = Counts { counted, sorted, beyond, samples, extremes, sum, sum_of_squares };
        Self { kept_bits: kept_bits as u8, held: Held::Counts(Box::new(counts)) }
    }
}

impl From<Recorder> for Histogram {
    fn from(recorder: Recorder) -> Self {
        recorder.finish()
    }
}

/// Of no values.
const NO_EXTREMES: (u64, u64) = (u64::MAX, 0);

impl Recorder {
    /// Adds a value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        match &mut self.held {
            Held::Values(values) => match u32::try_from(value) {
                Ok(value) if values.len() < MOST_FEW => {
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
            Held::Counts(counts) => counts.record(value, u32::from(self.kept_bits)),
        }
    }

    /// Adds all values of another. The result keeps as many bits as the coarser of the two.
    pub fn merge(&mut self, other: Self) {
        if let (Held::Values(values), Held::Values(others)) = (&mut self.held, &other.held)
            && values.len() + others.len() <= MOST_FEW
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

    /// Goes over to counts, with a value that has no room.
    #[cold]
    fn count(&mut self, values: Vec<u32>, value: u64) {
        let mut counts = Counts::default();
        let all = values.into_iter().map(u64::from).chain([value]);
        all.for_each(|value| counts.record(value, u32::from(self.kept_bits)));
        self.held = Held::Counts(Box::new(counts));
    }

    /// Buckets that it needs, or a few more; with `exact`, neither more nor less.
    pub fn buckets(&mut self, exact: bool) -> usize {
        let kept_bits = u32::from(self.kept_bits);
        match &mut self.held {
            Held::Values(values) if exact => {
                values.sort_unstable();
                values.chunk_by(|a, b| bucket(u64::from(*a), kept_bits) == bucket(u64::from(*b), kept_bits)).count()
            }
            Held::Values(values) => values.len(),
            Held::Counts(counts) => {
                if exact {
                    counts.sort_in();
                }
                counts.counted.len()
            }
        }
    }

    /// Keeps one bit less of each value, if it may.
    pub fn coarsen(&mut self) {
        let from = u32::from(self.kept_bits);
        if from > FEWEST_BITS {
            self.kept_bits -= 1;
            if let Held::Counts(counts) = &mut self.held {
                counts.coarsen(from);
            }
        }
    }

    /// All values so far.
    #[must_use]
    pub fn finish(self) -> Histogram {
        let kept_bits = u32::from(self.kept_bits);
        let mut counts = match self.held {
            Held::Counts(counts) => *counts,
            Held::Values(values) => {
                let mut counts = Counts::default();
                counts.counted.reserve_exact(values.len());
                values.into_iter().for_each(|value| counts.record(u64::from(value), kept_bits));
                counts
            }
        };
        counts.sort_in();
        let Counts { counted, mut beyond, samples, extremes, sum, sum_of_squares, .. } = counts;
        let of_bucket = |counted: Counted| {
            let beyond = beyond.as_mut().and_then(|beyond| beyond.get_mut(&counted.bucket).copied()).unwrap_or(0);
            (u32::from(counted.bucket), beyond.saturating_add(u32::from(counted.count)))
        };
        let buckets = counted.into_iter().map(of_bucket).collect();
        let extremes = (samples > 0).then_some(extremes);
        Histogram { kept_bits, buckets, samples, extremes, sum, sum_of_squares }
    }
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            counted: Vec::new(),
            sorted: 0,
            beyond: None,
            samples: 0,
            extremes: NO_EXTREMES,
            sum: 0,
            sum_of_squares: 0,
        }
    }
}

impl Counts {
    #[inline]
    fn record(&mut self, value: u64, kept_bits: u32) {
        self.samples += 1;
        self.extremes = (self.extremes.0.min(value), self.extremes.1.max(value));
        self.sum += u128::from(value);
        self.sum_of_squares = self.sum_of_squares.saturating_add(u128::from(value) * u128::from(value));
        let bucket = bucket(value, kept_bits) as u16;
        if self.counted.len() <= MOST_SEARCHED {
            return self.count_in_place(bucket);
        }
        if self.counted.len() == self.counted.capacity() {
            self.make_room();
        }
        self.counted.push(Counted { bucket, count: 1 });
    }

    /// Counts a value of a bucket that stands among few, or is put in its place there.
    fn count_in_place(&mut self, bucket: u16) {
        let Self { counted, beyond, .. } = self;
        let place = counted.partition_point(|counted| counted.bucket < bucket);
        if let Some(kept) = counted.get_mut(place).filter(|counted| counted.bucket == bucket) {
            return kept.add(1, beyond);
        }
        if counted.len() == counted.capacity() {
            counted.reserve_exact(STEP);
        }
        counted.insert(place, Counted { bucket, count: 1 });
        self.sorted = counted.len() as u32;
    }

    /// Sorts in what has come, and makes room for as much again as is worth a sorting.
    #[inline(never)]
    fn make_room(&mut self) {
        self.sort_in();
        let room = (self.counted.len() / 2).min(MOST_PENDING);
        if self.counted.capacity() - self.counted.len() < room {
            self.counted.reserve_exact(room);
        }
    }

    fn sort_in(&mut self) {
        if self.counted.len() == self.sorted as usize {
            return;
        }
        // Those that came, and then two sorted runs: that is what the stable sort is fastest with.
        self.counted[self.sorted as usize..].sort_unstable();
        self.counted.sort_by_key(|counted| counted.bucket);
        self.join();
    }

    /// Joins the counts of a bucket.
    fn join(&mut self) {
        let Self { counted, beyond, .. } = self;
        counted.dedup_by(|next, kept| {
            let is_same = next.bucket == kept.bucket;
            if is_same {
                kept.add(next.count, beyond);
            }
            is_same
        });
        self.sorted = self.counted.len() as u32;
    }

    /// Keeps one bit less of each value.
    fn coarsen(&mut self, from: u32) {
        self.sort_in();
        let coarser = |found: u16| bucket(middle(u32::from(found), from), from - 1) as u16;
        for counted in &mut self.counted {
            counted.bucket = coarser(counted.bucket);
        }
        if let Some(finer) = self.beyond.take() {
            let mut beyond = Box::<Few<u16, u32>>::default();
            for (found, count) in *finer {
                let sum = beyond.or_default(coarser(found));
                *sum = sum.saturating_add(count);
            }
            self.beyond = Some(beyond);
        }
        self.join();
        self.counted.shrink_to_fit();
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

    /// As values, as buckets that are searched, and as buckets that are collected and sorted in: the largest first, and all again.
    #[test]
    fn each_way_to_keep_values_holds_all_of_them() {
        let bounds = [MOST_FEW, MOST_SEARCHED, MOST_SEARCHED + MOST_PENDING, 2 * MOST_PENDING];
        for count in bounds.into_iter().flat_map(|bound| [bound, bound + 1, bound + 2]) {
            let values: Vec<u64> = (0..count as u64).rev().collect();
            let mut recorder = of(&values);
            assert_eq!(matches!(recorder.held, Held::Values(_)), count <= MOST_FEW);
            values.iter().for_each(|value| recorder.record(*value));
            assert_eq!(recorder.buckets(true), count);
            let Histogram { buckets, samples, extremes, sum, .. } = recorder.finish();
            assert_eq!(buckets, (0..count as u32).map(|value| (value, 2)).collect::<Vec<_>>());
            assert_eq!((samples, extremes), (2 * count as u64, Some((0, count as u64 - 1))));
            assert_eq!(sum, (count * (count - 1)) as u128);
        }
    }

    proptest! {
        /// Against the values themselves, whether they are few or many, small or large, of one list or of two, coarse early or late.
        #[test]
        fn what_it_holds_is_what_came(
            values in prop::collection::vec(prop_oneof![1u64..4000, 1u64..1 << 34], 0..6 * MOST_FEW),
            cut in 0usize..6 * MOST_FEW,
            coarser in (0u32..8, 0u32..8),
        ) {
            let (one, other) = values.split_at(cut.min(values.len()));
            let mut parts = [of(one), of(other)];
            (0..coarser.0).for_each(|_| parts[0].coarsen());
            (0..coarser.1).for_each(|_| parts[1].coarsen());
            let [mut recorder, other] = parts;
            recorder.merge(other);
            let kept_bits = KEPT_BITS - coarser.0.max(coarser.1).min(KEPT_BITS - FEWEST_BITS);
            let mut buckets: Vec<u32> = values.iter().map(|value| bucket(*value, kept_bits)).collect();
            buckets.sort_unstable();
            let expected: Vec<(u32, u32)> = buckets.chunk_by(|a, b| a == b).map(|all| (all[0], all.len() as u32)).collect();
            prop_assert!(recorder.buckets(false) >= expected.len());
            prop_assert_eq!(recorder.buckets(true), expected.len());
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
