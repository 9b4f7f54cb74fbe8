//! What keeps the sums of an analysis small: wider bins and coarser times where there would be too many.
//!
//! How wide and how coarse they end depends on the packets alone: what a width needs only grows, so a width once too narrow stays too narrow.

use super::Options;
use crate::model::duration;
use crate::reduce::{Accumulator, Counted, OverTime};
use rayon::prelude::*;

/// Bins are not made wider than this: all of a capture lies in one or two of them then, and a cell is left per connection.
const WIDEST_BIN_NS: i64 = 1 << 60;
/// Buckets that all histograms of times may have in all while two significant digits are kept, of four bytes each.
const MANY_BUCKETS: usize = 1 << 19;
/// And while fewer are: those of some hundred thousand connections.
const MOST_BUCKETS: usize = 1 << 22;
/// Bits by which times may be kept less finely with two digits left, and at most; beyond that their histograms have few buckets each.
const TWO_DIGITS: u32 = 4;
const MAX_COARSENESS: u32 = 6;

/// The bounds of all that grows with time and with the spread of times.
pub(super) struct Bounds {
    traffic: Timeline,
    times: Timeline,
    /// Bits by which times are kept less finely than they might.
    coarseness: u32,
}

/// How wide the bins of a timeline are, and how many cells it may have.
struct Timeline {
    which: OverTime,
    bin_ns: Option<i64>,
    max_cells: usize,
    widened: bool,
}

impl Bounds {
    pub(super) fn new(options: &Options) -> Self {
        let timeline = |which, bin_ns, max_cells| Timeline { which, bin_ns, max_cells, widened: false };
        let times_bin_ns = options.bin_ns.filter(|_| options.read_times);
        Self {
            traffic: timeline(OverTime::Traffic, options.bin_ns, options.max_cells),
            times: timeline(OverTime::Times, times_bin_ns, options.max_cells / 4),
            coarseness: 0,
        }
    }

    /// Holds all sums of an analysis within the bounds.
    pub(super) fn hold(&mut self, sums: &mut [&mut Accumulator]) {
        self.traffic.widen(sums);
        self.times.widen(sums);
        while self.coarseness < MAX_COARSENESS
            && exceeds(max_buckets(self.coarseness), |counted| {
                sums.par_iter_mut().map(|sums| sums.buckets(counted)).sum()
            })
        {
            self.coarseness += 1;
            sums.par_iter_mut().for_each(|sums| sums.coarsen());
        }
    }

    /// Brings sums that were held by themselves to the widest bins and the coarsest times of all, and holds them together.
    pub(super) fn level(&mut self, sums: &mut [&mut Accumulator]) {
        self.traffic.level(sums);
        self.times.level(sums);
        self.coarseness = sums.iter().map(|sums| sums.coarseness()).max().unwrap_or(0);
        let coarseness = self.coarseness;
        sums.par_iter_mut().for_each(|sums| (sums.coarseness()..coarseness).for_each(|_| sums.coarsen()));
        self.hold(sums);
    }

    /// Width of the bins of the traffic and of the times in nanoseconds, 0 where there are none.
    pub(super) fn bins_ns(&self) -> (i64, i64) {
        (self.traffic.bin_ns.unwrap_or_default(), self.times.bin_ns.unwrap_or_default())
    }

    /// What the reader of the result must know of it.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        notes.extend(self.traffic.note("the timeline's bins", "it"));
        notes.extend(self.times.note("the bins of the latencies over time", "them"));
        if self.coarseness > 0 {
            notes.push(format!(
                "times are kept to {} % instead of 0.05 %: more finely those of all connections would take more than {} buckets",
                0.05 * f64::from(1u32 << self.coarseness),
                max_buckets(self.coarseness - 1)
            ));
        }
        notes
    }
}

/// Buckets that all histograms of times may have where they are kept so much less finely.
const fn max_buckets(coarseness: u32) -> usize {
    if coarseness < TWO_DIGITS { MANY_BUCKETS } else { MOST_BUCKETS }
}

/// Whether there are more, counted no more exactly than it takes to tell.
fn exceeds(most: usize, mut count: impl FnMut(Counted) -> usize) -> bool {
    [Counted::AtMost, Counted::Held, Counted::Joined].into_iter().all(|counted| count(counted) > most)
}

impl Timeline {
    fn widen(&mut self, sums: &mut [&mut Accumulator]) {
        let which = self.which;
        while let Some(bin_ns) = self.bin_ns.filter(|bin_ns| *bin_ns < WIDEST_BIN_NS)
            && exceeds(self.max_cells, |counted| sums.par_iter_mut().map(|sums| sums.cells(which, counted)).sum())
        {
            self.bin_ns = Some(bin_ns.saturating_mul(2));
            self.widened = true;
            sums.par_iter_mut().for_each(|sums| sums.widen(which));
        }
    }

    fn level(&mut self, sums: &mut [&mut Accumulator]) {
        let which = self.which;
        let Some(widest_ns) = sums.iter().filter_map(|sums| sums.bin_ns(which)).max() else { return };
        self.widened |= self.bin_ns.is_some_and(|bin_ns| bin_ns < widest_ns);
        self.bin_ns = self.bin_ns.map(|_| widest_ns);
        sums.par_iter_mut().for_each(|sums| {
            while sums.bin_ns(which).is_some_and(|bin_ns| bin_ns < widest_ns) {
                sums.widen(which);
            }
        });
    }

    fn note(&self, bins: &str, it: &str) -> Option<String> {
        let bin_ns = self.bin_ns.filter(|_| self.widened)?;
        let cells = self.max_cells;
        Some(if bin_ns < WIDEST_BIN_NS {
            format!("{bins} were widened to {} to keep {it} within {cells} cells", duration(bin_ns))
        } else {
            format!("{bins} were widened to the whole of the capture: narrower ones would take more than {cells} cells")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interval, Sight, SizeClass, Timing, TimingKey, Verb};

    /// Times of a connection: below this, each is a bucket.
    const OF_CONNECTION: usize = 1 << 11;

    /// Times whose buckets are so many in all.
    fn with_buckets(buckets: usize) -> Accumulator {
        let mut sums = Accumulator::new(None, false);
        sums.grow(buckets.div_ceil(OF_CONNECTION));
        let key = TimingKey { interval: Interval::Acknowledged, verb: Verb::Send, size: SizeClass::of(8) };
        for bucket in 0..buckets {
            let connection = (bucket / OF_CONNECTION) as u32;
            let ns = (bucket % OF_CONNECTION) as i64;
            sums.timing(&Timing::between(connection, (key, None), Sight::Any, (0, ns)));
        }
        sums
    }

    fn held(coarseness: u32, sums: &mut Accumulator) -> Bounds {
        let mut bounds = Bounds { coarseness, ..Bounds::new(&Options::default()) };
        bounds.hold(&mut [sums]);
        bounds
    }

    #[test]
    fn times_of_more_buckets_than_the_bound_are_coarser_and_said() {
        for (buckets, coarseness) in [(MANY_BUCKETS, 0), (MANY_BUCKETS + 1, 1)] {
            let mut sums = with_buckets(buckets);
            let bounds = held(0, &mut sums);
            assert_eq!((bounds.coarseness, sums.coarseness()), (coarseness, coarseness));
            let notes = bounds.notes();
            assert_eq!(notes.len() as u32, coarseness, "{notes:?}");
            assert!(notes.iter().all(|note| note.contains("0.1 % instead of 0.05 %")), "{notes:?}");
            // With a bit less kept, two values from 1024 on share a bucket; the one beyond is alone in its connection.
            let of_connection = [2048, 1024 + 512][coarseness as usize];
            let expected = MANY_BUCKETS / OF_CONNECTION * of_connection + (buckets - MANY_BUCKETS);
            assert_eq!(sums.buckets(Counted::Joined), expected);
        }
    }

    /// With two digits left more buckets may stay, and at the coarsest all of them.
    #[test]
    fn times_are_not_kept_coarser_than_the_coarsest() {
        let mut sums = with_buckets(MANY_BUCKETS + 1);
        assert_eq!(held(TWO_DIGITS, &mut sums).coarseness, TWO_DIGITS);
        assert_eq!([max_buckets(TWO_DIGITS - 1), max_buckets(TWO_DIGITS)], [MANY_BUCKETS, MOST_BUCKETS]);
        for (count, is_too_many) in [(MOST_BUCKETS, false), (MOST_BUCKETS + 1, true)] {
            assert_eq!(exceeds(max_buckets(TWO_DIGITS), |_| count), is_too_many);
        }
        assert_eq!(held(MAX_COARSENESS, &mut sums).coarseness, MAX_COARSENESS);
    }
}
