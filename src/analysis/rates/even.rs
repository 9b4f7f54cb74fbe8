//! The bins of a profile -> even bins of any width without gaps, and the fullest window.
//!
//! Where a bin of the profile lies across the edge of new ones, each gets the part of it that the overlap is of its width, as if its packets
//! came evenly. Parts are differences of rounded sums from the bin's start, so nothing is lost or invented:
//!
//! ```text
//! profile   |      10      |       5      |
//! sum up to 0    3    6    10   11   13   15      (rounded down)
//! new       |  3 |  3 |  4 | 1  | 2  | 2  |
//! ```

use super::{Peak, VALUES, Values};
use std::collections::{BTreeMap, VecDeque};
use std::iter::Peekable;

/// Bins of one width, one after the other.
pub(super) struct Even<'a> {
    fine: Peekable<std::collections::btree_map::Iter<'a, i64, Values>>,
    fine_ns: i128,
    bin_ns: i128,
    next_ns: i128,
    end_ns: i128,
}

impl<'a> Even<'a> {
    /// The bins from the start to the end of `grid`, which are multiples of `bin_ns`.
    pub(super) fn new(fine: &'a BTreeMap<i64, Values>, fine_ns: i64, grid: (i128, i128), bin_ns: i64) -> Self {
        let (next_ns, end_ns) = grid;
        Self { fine: fine.iter().peekable(), fine_ns: fine_ns.into(), bin_ns: bin_ns.into(), next_ns, end_ns }
    }

    /// What of a bin's value comes before some time from its start.
    fn up_to(&self, value: u64, ns: i128) -> u64 {
        u64::try_from(i128::from(value) * ns.clamp(0, self.fine_ns) / self.fine_ns).unwrap_or(value)
    }
}

impl Iterator for Even<'_> {
    type Item = (i64, Values);

    fn next(&mut self) -> Option<Self::Item> {
        let (from_ns, to_ns) = (self.next_ns, self.next_ns + self.bin_ns);
        if from_ns >= self.end_ns {
            return None;
        }
        self.next_ns = to_ns;
        let mut sums = Values::default();
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
        // Times near the ends of what 64 bits hold belong to no real capture.
        let start_ns = from_ns.clamp(i64::MIN.into(), i64::MAX.into());
        Some((i64::try_from(start_ns).unwrap_or_default(), sums))
    }
}

/// The fullest window for each value. One that starts with a bin that is not empty is as full as any, so only those are looked at; near the end
/// of the span it is moved back into it.
pub(super) fn peaks(fine: &BTreeMap<i64, Values>, window_ns: i64, span_ns: (i64, i64)) -> [Peak; VALUES.len()] {
    let latest_ns = span_ns.1.saturating_sub(window_ns).max(span_ns.0);
    std::array::from_fn(|index| {
        let mut peak: Option<Peak> = None;
        let mut held: VecDeque<(i64, u64)> = VecDeque::new();
        // Wider than its parts: what envelopes state may be anything.
        let mut sum: u128 = 0;
        // Backwards: the window that starts with a bin holds what comes up to its length later.
        for (&start_ns, values) in fine.iter().rev() {
            held.push_front((start_ns, values[index]));
            sum += u128::from(values[index]);
            while let Some((last_ns, value)) = held.back().copied() {
                if last_ns.saturating_sub(start_ns) < window_ns {
                    break;
                }
                held.pop_back();
                sum -= u128::from(value);
            }
            let found = Peak { sum: u64::try_from(sum).unwrap_or(u64::MAX), start_ns: start_ns.min(latest_ns) };
            // Of equal ones the earliest, which comes last here.
            if values[index] > 0 && peak.is_none_or(|peak| found.sum >= peak.sum) {
                peak = Some(found);
            }
        }
        peak.unwrap_or(Peak { sum: 0, start_ns: span_ns.0 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fine(values: &[(i64, u64)], fine_ns: i64) -> BTreeMap<i64, Values> {
        let mut bins: BTreeMap<i64, Values> = BTreeMap::new();
        values.iter().for_each(|&(bin, value)| bins.entry(bin * fine_ns).or_default()[0] += value);
        bins
    }

    #[test]
    fn a_bin_is_shared_out_as_drawn() {
        let fine = fine(&[(0, 10), (1, 5)], 3);
        let found: Vec<_> = Even::new(&fine, 3, (0, 6), 1).map(|(start, values)| (start, values[0])).collect();
        assert_eq!(found, [(0, 3), (1, 3), (2, 4), (3, 1), (4, 2), (5, 2)]);
        // Four at a time: 10 and a third of 5, rounded down; then the rest.
        let wide: Vec<_> = Even::new(&fine, 3, (0, 8), 4).map(|(start, values)| (start, values[0])).collect();
        assert_eq!(wide, [(0, 11), (4, 4)]);
    }

    proptest! {
        /// Whatever the widths: bins follow each other without gaps, nothing is lost or invented, up to any edge no more has passed than the
        /// profile's bins hold, and not less than those that have ended; and multiples are exact.
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
            let bins: Vec<(i64, Values)> = Even::new(&fine, fine_ns, (start.into(), end.into()), bin_ns).collect();
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

        /// Against a window that is moved bin by bin over all of them, empty ones too.
        #[test]
        fn the_fullest_window_is_found(
            values in prop::collection::vec((0i64..60, 0u64..50), 1..30),
            fine_ns in 1i64..20,
            window in 1i64..80,
        ) {
            let fine = fine(&values, fine_ns);
            let (first, last) = (*fine.keys().next().unwrap() / fine_ns, *fine.keys().next_back().unwrap() / fine_ns);
            let window = window.min(last - first + 1);
            let held = |start: i64| -> u64 {
                fine.iter().filter(|(time, _)| (start..start + window).contains(&(**time / fine_ns))).map(|(_, values)| values[0]).sum()
            };
            let most = (first..=last + 1 - window).map(held).max().unwrap();
            let span_ns = (first * fine_ns, (last + 1) * fine_ns);
            let [peak, ..] = peaks(&fine, window * fine_ns, span_ns);
            prop_assert_eq!(peak.sum, most);
            prop_assert_eq!(held(peak.start_ns / fine_ns), most);
            prop_assert!(span_ns.0 <= peak.start_ns && peak.start_ns + window * fine_ns <= span_ns.1);
        }
    }
}
