//! Bounds on the sums of an analysis: wider bins and coarser latency buckets if there are too many.
//!
//! While captures are read, the traffic has [`CELLS_PER_ROW`] times as many cells as the tables of the
//! profile have rows, so that totals and senders keep narrow bins where pairs do not (`series.rs`).
//!
//! Invariant: the final width and coarseness depend on the packets alone. The number of cells at a
//! given width only grows, so a width that was too narrow once stays too narrow.

use super::AnalysisOptions;
use crate::model::duration;
use crate::reduce::{Accumulator, CountPrecision, TimeSeriesKind};
use rayon::prelude::*;

/// Maximum width of bins. They stop earlier if a whole capture lies in one or two bins.
const WIDEST_BIN_NS: i64 = 1 << 60;
/// Cells of the traffic per row of a table of the profile, about ten bytes each once they are sealed.
const CELLS_PER_ROW: usize = 32;
/// Traffic cells that are kept open until all of them are sealed, about 50 bytes each.
const OPEN_CELLS: usize = 1 << 19;
/// Maximum number of buckets of all latency histograms together, four bytes each, as long as two
/// significant digits remain.
const MANY_BUCKETS: usize = 1 << 19;
/// The same at a coarser precision: enough for some hundred thousand connections.
const MAX_BUCKETS: usize = 1 << 22;
/// Bits of precision that can be dropped while two digits remain.
const TWO_DIGITS: u32 = 4;
/// Buckets by which the latency histograms may exceed their bound between two exact counts, four bytes
/// each. Each connection adds some, because an exact count visits each connection.
const UNCOUNTED_BUCKETS: usize = 1 << 17;
const UNCOUNTED_PER_CONNECTION: usize = 4;
/// Maximum number of bits of precision that are dropped. Each histogram then has few buckets.
const MAX_COARSENESS: u32 = 6;
/// Number of possible coarseness levels, including 0 bits.
const COARSENESS_LEVELS: usize = MAX_COARSENESS as usize + 1;

/// The bounds of the time series and of the latency histograms.
pub(super) struct MemoryBounds {
    traffic: TimelineBounds,
    times: TimelineBounds,
    /// Bits of precision that latencies have lost.
    coarseness: u32,
}

/// Bin width of a time series, and the number of cells it may have.
struct TimelineBounds {
    which: TimeSeriesKind,
    bin_ns: Option<i64>,
    /// Rows that the option allows, and cells in memory for each.
    max_rows: usize,
    cells_per_row: usize,
    widened: bool,
    /// The number of cells when bins of the whole capture were still too many.
    whole_cells: Option<usize>,
}

impl MemoryBounds {
    pub(super) fn new(options: &AnalysisOptions) -> Self {
        let timeline = |which, bin_ns, (max_rows, cells_per_row)| TimelineBounds {
            which,
            bin_ns,
            max_rows,
            cells_per_row,
            widened: false,
            whole_cells: None,
        };
        let times_bin_ns = options.bin_ns.filter(|_| options.measures.times);
        Self {
            traffic: timeline(TimeSeriesKind::Traffic, options.bin_ns, (options.limits.max_cells, CELLS_PER_ROW)),
            times: timeline(TimeSeriesKind::Times, times_bin_ns, (options.limits.max_cells / 4, 1)),
            coarseness: 0,
        }
    }

    /// Widens bins and coarsens latencies until all sums are within the bounds.
    pub(super) fn enforce(&mut self, sums: &mut [&mut Accumulator]) {
        self.enforce_with(0, sums);
    }

    /// As [`Self::enforce`], but latencies may have some more buckets than their bound. An exact count
    /// visits every connection, which takes too long after every round; the margin makes exact counts
    /// rare. The result is the same if [`Self::enforce`] follows at the end.
    pub(super) fn enforce_roughly(&mut self, sums: &mut [&mut Accumulator]) {
        let connections: usize = sums.iter().map(|sums| sums.partials().len()).sum();
        self.enforce_with(UNCOUNTED_BUCKETS + connections * UNCOUNTED_PER_CONNECTION, sums);
    }

    fn enforce_with(&mut self, uncounted_buckets: usize, sums: &mut [&mut Accumulator]) {
        if sums.iter().map(|sums| sums.open_cells()).sum::<usize>() > OPEN_CELLS {
            sums.par_iter_mut().for_each(|sums| sums.seal());
        }
        self.traffic.widen(uncounted_buckets > 0, sums);
        self.times.widen(uncounted_buckets > 0, sums);
        let most = max_buckets(self.coarseness).saturating_add(uncounted_buckets);
        if self.coarseness < MAX_COARSENESS && sums.par_iter_mut().map(|sums| sums.buckets()).sum::<usize>() > most {
            self.coarsen(sums);
        }
    }

    /// Coarsens latencies until their number of buckets is within the bound.
    fn coarsen(&mut self, sums: &mut [&mut Accumulator]) {
        // One visit of each connection counts the buckets at every coarseness.
        let counts = sums.par_iter_mut().map(|sums| sums.buckets_if_coarser::<COARSENESS_LEVELS>());
        let counts = counts.reduce(|| [0; COARSENESS_LEVELS], |a, b| std::array::from_fn(|level| a[level] + b[level]));
        let before = self.coarseness;
        let fits = |bits: &u32| counts[*bits as usize] <= max_buckets(before + bits);
        let bits = (0..MAX_COARSENESS - before).find(fits).unwrap_or(MAX_COARSENESS - before);
        if bits > 0 {
            self.coarseness += bits;
            sums.par_iter_mut().for_each(|sums| sums.coarsen(bits));
        }
    }

    /// Brings sums that were bounded separately to the widest bins and the coarsest latencies among
    /// them, then enforces the bounds on all of them together.
    pub(super) fn level(&mut self, sums: &mut [&mut Accumulator]) {
        self.align(sums);
        self.enforce(sums);
    }

    /// As [`Self::level`], within the margin of [`Self::enforce_roughly`]. Called again whenever more
    /// sums are there, it visits the connections of the earlier ones only to widen or coarsen them.
    pub(super) fn level_roughly(&mut self, sums: &mut [&mut Accumulator]) {
        self.align(sums);
        self.enforce_roughly(sums);
    }

    /// Brings sums to the widest bins and the coarsest latencies among them.
    fn align(&mut self, sums: &mut [&mut Accumulator]) {
        self.traffic.level(sums);
        self.times.level(sums);
        self.coarseness = sums.iter().map(|sums| sums.coarseness()).max().unwrap_or(0);
        let coarseness = self.coarseness;
        let finer = sums.par_iter_mut().filter(|sums| sums.coarseness() < coarseness);
        finer.for_each(|sums| sums.coarsen(coarseness - sums.coarseness()));
    }

    /// Bin widths of the timeline and of the latency time series in nanoseconds, 0 without one.
    pub(super) fn bins_ns(&self) -> (i64, i64) {
        (self.traffic.bin_ns.unwrap_or_default(), self.times.bin_ns.unwrap_or_default())
    }

    /// Notes on widened bins and coarser latencies.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        notes.extend(self.times.note("the bins of the latency time series", "them"));
        if self.coarseness > 0 {
            notes.push(format!(
                "latencies have a resolution of {} % instead of 0.05 %: a finer one would take more than {} buckets",
                0.05 * f64::from(1u32 << self.coarseness),
                max_buckets(self.coarseness - 1)
            ));
        }
        notes
    }
}

/// Buckets that all latency histograms may have at this coarseness.
const fn max_buckets(coarseness: u32) -> usize {
    if coarseness < TWO_DIGITS { MANY_BUCKETS } else { MAX_BUCKETS }
}

/// True if there are more than `most`. Counts exactly only if the cheap estimates do not decide.
fn exceeds(most: usize, mut count: impl FnMut(CountPrecision) -> usize) -> bool {
    let precisions = [CountPrecision::UpperBound, CountPrecision::Current, CountPrecision::Exact];
    precisions.into_iter().all(|counted| count(counted) > most)
}

/// True if bins of this width hold all packets in one or two bins: wider ones would not be fewer.
fn is_one_or_two_bins(sums: &[&mut Accumulator], bin_ns: i64) -> bool {
    let times = sums.iter().filter_map(|sums| sums.times_ns());
    let all = times.reduce(|(first, last), (own_first, own_last)| (first.min(own_first), last.max(own_last)));
    all.is_none_or(|(first, last)| last.div_euclid(bin_ns) - first.div_euclid(bin_ns) <= 1)
}

impl TimelineBounds {
    fn widen(&mut self, is_rough: bool, sums: &mut [&mut Accumulator]) {
        let which = self.which;
        let count = |sums: &mut [&mut Accumulator], counted| -> usize {
            sums.par_iter_mut().map(|sums| sums.cells(which, counted)).sum()
        };
        // Wider bins did not help, so look again only if the capture has become much longer.
        let is_longer =
            |cells: usize, sums: &mut [&mut Accumulator]| count(sums, CountPrecision::UpperBound) / 2 > cells;
        if is_rough && self.whole_cells.is_some_and(|cells| !is_longer(cells, sums)) {
            return;
        }
        self.whole_cells = None;
        while let Some(bin_ns) = self.bin_ns.filter(|bin_ns| *bin_ns < WIDEST_BIN_NS)
            && exceeds(self.max_rows.saturating_mul(self.cells_per_row), |counted| count(sums, counted))
        {
            if is_one_or_two_bins(sums, bin_ns) {
                self.whole_cells = Some(count(sums, CountPrecision::Current));
                return;
            }
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
        let cells = self.max_rows;
        let bin = duration(bin_ns);
        Some(if self.whole_cells.is_some() {
            format!("{bins} were widened to {bin}, the whole capture, and still take more than {cells} cells")
        } else {
            format!("{bins} were widened to {bin} to keep {it} within {cells} cells")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        Interval, ObservedPorts, PacketFields, PacketObservation, PacketRecord, PacketRole, SizeClass, Timing,
        TimingKey, Verb,
    };
    use crate::pipeline::AnalysisLimits;
    use ibscope_parsers::ib::Opcode;

    /// Distinct latencies of one connection: each is a bucket of its own below this number.
    const OF_CONNECTION: usize = 1 << 11;

    /// Sums whose histograms have this many buckets together.
    fn with_buckets(buckets: usize) -> Accumulator {
        let mut sums = Accumulator::new(None, false);
        sums.grow(buckets.div_ceil(OF_CONNECTION));
        let key = TimingKey { interval: Interval::Acknowledged, verb: Verb::Send, size: SizeClass::of(8) };
        for bucket in 0..buckets {
            let connection = (bucket / OF_CONNECTION) as u32;
            let ns = (bucket % OF_CONNECTION) as i64;
            sums.timing(&Timing::between(connection, (key, None), ObservedPorts::Any, (0, ns)));
        }
        sums
    }

    fn enforced(coarseness: u32, sums: &mut Accumulator) -> MemoryBounds {
        let mut bounds = MemoryBounds { coarseness, ..MemoryBounds::new(&AnalysisOptions::default()) };
        bounds.enforce(&mut [sums]);
        bounds
    }

    #[test]
    fn latencies_beyond_the_bucket_bound_get_coarser_with_a_note() {
        for (buckets, coarseness) in [(MANY_BUCKETS, 0), (MANY_BUCKETS + 1, 1)] {
            let mut sums = with_buckets(buckets);
            let bounds = enforced(0, &mut sums);
            assert_eq!((bounds.coarseness, sums.coarseness()), (coarseness, coarseness));
            let notes = bounds.notes();
            assert_eq!(notes.len() as u32, coarseness, "{notes:?}");
            assert!(notes.iter().all(|note| note.contains("0.1 % instead of 0.05 %")), "{notes:?}");
            // One bit coarser, two values from 1024 on share a bucket; the value beyond the bound
            // is alone in its connection.
            let of_connection = [2048, 1024 + 512][coarseness as usize];
            let expected = MANY_BUCKETS / OF_CONNECTION * of_connection + (buckets - MANY_BUCKETS);
            assert_eq!(sums.buckets_if_coarser(), [expected]);
        }
    }

    /// Between rounds, buckets beyond the bound are not counted until there may be many.
    #[test]
    fn rough_bounds_leave_some_buckets_uncounted_and_exact_ones_none() {
        let connections = MANY_BUCKETS.div_ceil(OF_CONNECTION) + 1;
        let most = MANY_BUCKETS + UNCOUNTED_BUCKETS;
        let beyond = most + UNCOUNTED_PER_CONNECTION * 2 * connections;
        for (buckets, coarseness) in [(MANY_BUCKETS + 1, 0), (most, 0), (beyond, 1)] {
            let mut sums = with_buckets(buckets);
            let mut bounds = MemoryBounds::new(&AnalysisOptions::default());
            bounds.enforce_roughly(&mut [&mut sums]);
            assert_eq!((bounds.coarseness, sums.coarseness()), (coarseness, coarseness), "{buckets}");
            bounds.enforce(&mut [&mut sums]);
            assert_eq!(bounds.coarseness, 1);
        }
    }

    /// Sums with one packet per nanosecond from `first_ns` on, in bins of 1 ns.
    fn with_packets(first_ns: i64, packets: i64) -> Accumulator {
        let mut sums = Accumulator::new(Some(1), false);
        sums.grow(1);
        for time_ns in first_ns..first_ns + packets {
            let role = PacketRole::Request;
            let observation =
                PacketObservation { connection: 0, role, occurrence: 1, counts_message: true, shows_copy: false };
            let fields = PacketFields { opcode: Opcode(4), time_ns, ..PacketFields::default() };
            sums.packet(&PacketRecord::new(fields), &observation);
        }
        sums
    }

    /// Profiles are leveled while they are loaded: as many cells remain as at the end, at any time.
    #[test]
    fn sums_that_are_added_one_after_the_other_stay_within_the_bounds() {
        let limits = AnalysisLimits { max_cells: 1, ..AnalysisLimits::default() };
        let options = AnalysisOptions { bin_ns: Some(1), limits, ..AnalysisOptions::default() };
        // Each is within the bound alone. One packet per nanosecond fills a bin of every width.
        let packets = CELLS_PER_ROW as i64;
        let mut all: Vec<Accumulator> = (0..4).map(|number| with_packets(number * packets, packets)).collect();
        let mut bounds = MemoryBounds::new(&options);
        for (loaded, bin_ns) in [(1, 1), (2, 2), (3, 4), (4, 4)] {
            let mut sums: Vec<&mut Accumulator> = all.iter_mut().take(loaded).collect();
            bounds.level_roughly(&mut sums);
            assert_eq!(bounds.bins_ns(), (bin_ns, 1));
            let cells = |sums: &mut Accumulator| sums.cells(TimeSeriesKind::Traffic, CountPrecision::Exact);
            let cells = all.iter_mut().take(loaded).map(cells);
            assert_eq!(cells.sum::<usize>(), loaded * CELLS_PER_ROW / bin_ns as usize);
        }
    }

    /// With fewer than two digits the larger bound applies, and the coarsest precision keeps any
    /// number.
    #[test]
    fn coarseness_stops_at_its_maximum() {
        let mut sums = with_buckets(MANY_BUCKETS + 1);
        assert_eq!(enforced(TWO_DIGITS, &mut sums).coarseness, TWO_DIGITS);
        assert_eq!([max_buckets(TWO_DIGITS - 1), max_buckets(TWO_DIGITS)], [MANY_BUCKETS, MAX_BUCKETS]);
        for (count, is_too_many) in [(MAX_BUCKETS, false), (MAX_BUCKETS + 1, true)] {
            assert_eq!(exceeds(max_buckets(TWO_DIGITS), |_| count), is_too_many);
        }
        assert_eq!(enforced(MAX_COARSENESS, &mut sums).coarseness, MAX_COARSENESS);
    }
}
