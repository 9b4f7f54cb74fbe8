//! The bins of a profile -> bins of any width without gaps, and the window with the most traffic.
//!
//! A profile bin that crosses the edge of a new bin is split in proportion to the overlap, as if
//! its packets were evenly distributed. The parts are differences of rounded sums from the start of
//! the bin, so they always add up to its value:
//!
//! ```text
//! profile   |      10      |       5      |
//! sum up to 0    3    6    10   11   13   15      (rounded down)
//! new       |  3 |  3 |  4 | 1  | 2  | 2  |
//! ```

use super::{Peak, RateValues, VALUES};
use crate::analysis::sliding_sums::sliding_sums;
use std::collections::BTreeMap;
use std::iter::Peekable;

/// Iterator over consecutive bins of one width.
pub(super) struct EvenBins<'a> {
    fine: Peekable<std::collections::btree_map::Iter<'a, i64, RateValues>>,
    fine_ns: i128,
    bin_ns: i128,
    next_ns: i128,
    end_ns: i128,
}

impl<'a> EvenBins<'a> {
    /// The bins from the start to the end of `grid`, which are multiples of `bin_ns`.
    pub(super) fn new(fine: &'a BTreeMap<i64, RateValues>, fine_ns: i64, grid: (i128, i128), bin_ns: i64) -> Self {
        let (next_ns, end_ns) = grid;
        Self { fine: fine.iter().peekable(), fine_ns: fine_ns.into(), bin_ns: bin_ns.into(), next_ns, end_ns }
    }

    /// The part of a profile bin's value that lies in the first `ns` nanoseconds of the bin.
    fn up_to(&self, value: u64, ns: i128) -> u64 {
        u64::try_from(i128::from(value) * ns.clamp(0, self.fine_ns) / self.fine_ns).unwrap_or(value)
    }
}

impl Iterator for EvenBins<'_> {
    type Item = (i64, RateValues);

    fn next(&mut self) -> Option<Self::Item> {
        let (from_ns, to_ns) = (self.next_ns, self.next_ns + self.bin_ns);
        if from_ns >= self.end_ns {
            return None;
        }
        self.next_ns = to_ns;
        let mut sums = RateValues::default();
        while let Some((start_ns, values)) = self.fine.peek() {
            let start_ns = i128::from(**start_ns);
            if start_ns >= to_ns {
                break;
            }
            for (sum, value) in sums.iter_mut().zip(values.iter()) {
                let part = self.up_to(*value, to_ns - start_ns) - self.up_to(*value, from_ns - start_ns);
                *sum = sum.saturating_add(part);
            }
            if start_ns + self.fine_ns > to_ns {
                break;
            }
            self.fine.next();
        }
        // Times near the limits of 64 bits belong to no real capture.
        let start_ns = from_ns.clamp(i64::MIN.into(), i64::MAX.into());
        Some((i64::try_from(start_ns).unwrap_or_default(), sums))
    }
}

/// The peak window of each value. A window that would exceed the end of the span is moved back.
pub(super) fn peaks(fine: &BTreeMap<i64, RateValues>, window_ns: i64, span_ns: (i64, i64)) -> [Peak; VALUES.len()] {
    let latest_ns = span_ns.1.saturating_sub(window_ns).max(span_ns.0);
    std::array::from_fn(|index| {
        let bins = fine.iter().rev().map(|(start_ns, values)| (*start_ns, values[index]));
        let sums = sliding_sums(bins.clone(), window_ns).zip(bins);
        let found = sums.filter(|(_, (_, value))| *value > 0).map(|((start_ns, sum), _)| Peak {
            sum: u64::try_from(sum).unwrap_or(u64::MAX),
            start_ns: start_ns.min(latest_ns),
        });
        // Of equal windows the earliest, which comes last.
        found.max_by_key(|peak| peak.sum).unwrap_or(Peak { sum: 0, start_ns: span_ns.0 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fine(values: &[(i64, u64)], fine_ns: i64) -> BTreeMap<i64, RateValues> {
        let mut bins: BTreeMap<i64, RateValues> = BTreeMap::new();
        values.iter().for_each(|&(bin, value)| bins.entry(bin * fine_ns).or_default()[0] += value);
        bins
    }

    #[test]
    fn a_bin_is_split_as_in_the_drawing() {
        let fine = fine(&[(0, 10), (1, 5)], 3);
        let found: Vec<_> = EvenBins::new(&fine, 3, (0, 6), 1).map(|(start, values)| (start, values[0])).collect();
        assert_eq!(found, [(0, 3), (1, 3), (2, 4), (3, 1), (4, 2), (5, 2)]);
        // Four at a time: 10 and a third of 5, rounded down; then the rest.
        let wide: Vec<_> = EvenBins::new(&fine, 3, (0, 8), 4).map(|(start, values)| (start, values[0])).collect();
        assert_eq!(wide, [(0, 11), (4, 4)]);
    }

    proptest! {
        /// For all widths: bins follow each other without gaps, and their sums equal the profile's.
        /// Up to any edge, the sum is at least that of the profile bins that have ended and at most
        /// that of those that have begun; multiples of the profile's width are exact.
        #[test]
        fn sums_are_kept(
            values in prop::collection::vec((-40i64..40, 0u64..1_000_000), 1..40),
            fine_ns in 1i64..50,
            bin_ns in 1i64..120,
        ) {
            let fine = fine(&values, fine_ns);
            let (first, last) = (*fine.keys().next().unwrap(), *fine.keys().next_back().unwrap() + fine_ns);
            let start = first.div_euclid(bin_ns) * bin_ns;
            let end = (last + bin_ns - 1).div_euclid(bin_ns) * bin_ns;
            let bins: Vec<(i64, RateValues)> = EvenBins::new(&fine, fine_ns, (start.into(), end.into()), bin_ns).collect();
            prop_assert!(bins.iter().map(|(time, _)| *time).eq((0..(end - start) / bin_ns).map(|bin| start + bin * bin_ns)));
            let sum = |bins: &mut dyn Iterator<Item = u64>| bins.sum::<u64>();
            prop_assert_eq!(sum(&mut bins.iter().map(|(_, values)| values[0])), sum(&mut fine.values().map(|values| values[0])));
            for (edge, _) in bins.iter().skip(1) {
                let passed = sum(&mut bins.iter().filter(|(time, _)| time < edge).map(|(_, values)| values[0]));
                let of = |is: &dyn Fn(i64) -> bool| sum(&mut fine.iter().filter(|(time, _)| is(**time)).map(|(_, values)| values[0]));
                let (ended, begun) = (of(&|time| time + fine_ns <= *edge), of(&|time| time < *edge));
                prop_assert!((ended..=begun).contains(&passed));
                prop_assert!(bin_ns % fine_ns != 0 || ended == begun);
            }
        }

        /// Compares the result with a window that is moved bin by bin over all of them, empty ones
        /// included.
        #[test]
        fn the_fullest_window_is_found(
            values in prop::collection::vec((0i64..60, 0u64..50), 1..30),
            fine_ns in 1i64..20,
            window in 1i64..80,
        ) {
            let fine = fine(&values, fine_ns);
            let (first, last) = (*fine.keys().next().unwrap() / fine_ns, *fine.keys().next_back().unwrap() / fine_ns);
            let window = window.min(last - first + 1);
            let inside = |start: i64| -> u64 {
                fine.iter().filter(|(time, _)| (start..start + window).contains(&(**time / fine_ns))).map(|(_, values)| values[0]).sum()
            };
            let most = (first..=last + 1 - window).map(inside).max().unwrap();
            let span_ns = (first * fine_ns, (last + 1) * fine_ns);
            let [peak, ..] = peaks(&fine, window * fine_ns, span_ns);
            prop_assert_eq!(peak.sum, most);
            prop_assert_eq!(inside(peak.start_ns / fine_ns), most);
            prop_assert!(span_ns.0 <= peak.start_ns && peak.start_ns + window * fine_ns <= span_ns.1);
        }
    }
}
