//! Time series of two runs, each relative to its own start.

use crate::analysis::AnalysisError;
use crate::analysis::rates::{self, DEFAULT_WINDOW_NS, RateValues, Rates};
use crate::model::Profile;

/// Maximum number of bins of a run: a chart has no more pixels.
const MAX_BINS: i128 = 600;

/// The traffic of one run over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComparedSeries {
    /// Width of a bin in nanoseconds, the same in both runs.
    pub bin_ns: i64,
    /// Start of the first bin, in nanoseconds from the first packet of the run.
    pub first_ns: i64,
    /// Time from the first to the last packet of the run, in nanoseconds.
    pub span_ns: i64,
    /// Sums of the bins, without gaps, in the order of [`rates::VALUES`].
    pub bins: Vec<RateValues>,
    /// True if an MPI library was detected.
    pub has_mpi: bool,
}

/// The time series of two runs in bins of one width: at least the wider bins of the two profiles,
/// and at most `MAX_BINS` bins.
pub fn time_series(profiles: [&Profile; 2]) -> Result<[ComparedSeries; 2], AnalysisError> {
    let of = |profile, bin_ns| rates::rates(profile, None, bin_ns, DEFAULT_WINDOW_NS);
    let [a, b] = profiles.map(|profile| of(profile, None));
    let both = [a?, b?];
    let span = |rates: &Rates| i128::from(rates.span_ns.1) - i128::from(rates.span_ns.0);
    let (longest, fine) =
        both.iter().fold((0, 1), |(longest, fine), rates| (span(rates).max(longest), rates.fine_ns.max(fine)));
    // The first bin may begin before the first bin of the profile, and the last one end after its
    // last.
    let together = (longest / ((MAX_BINS - 2) * i128::from(fine)) + 1).max(1);
    let bin_ns = i64::try_from(i128::from(fine) * together).unwrap_or(i64::MAX);
    let [a, b] = profiles.map(|profile| of(profile, Some(bin_ns)).map(|rates| series(&rates)));
    Ok([a?, b?])
}

fn series(rates: &Rates) -> ComparedSeries {
    let mut bins = rates.bins(&rates.total).peekable();
    let first_ns = bins.peek().map_or(0, |(start_ns, _)| start_ns.saturating_sub(rates.origin_ns));
    let bins = bins.map(|(_, values)| values).collect();
    let span_ns = rates.captured_until_ns.saturating_sub(rates.origin_ns);
    ComparedSeries { bin_ns: rates.bin_ns, first_ns, span_ns, bins, has_mpi: rates.total.has_mpi }
}
