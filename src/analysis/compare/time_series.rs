//! Both runs over time, each from its own start.

use crate::analysis::AnalysisError;
use crate::analysis::rates::{self, DEFAULT_WINDOW_NS, Rates, Values};
use crate::model::Profile;

/// Bins of a run at most: more are no pixels.
const MOST_BINS: i128 = 600;

/// What one run sent over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComparedSeries {
    /// Width of a bin in nanoseconds, the same in both.
    pub bin_ns: i64,
    /// Start of the first bin, in nanoseconds from the first packet of the run.
    pub first_ns: i64,
    /// Sums of the bins, without gaps, in the order of [`rates::VALUES`].
    pub bins: Vec<Values>,
    /// An MPI library was recognised.
    pub has_mpi: bool,
}

/// The courses of two runs, in bins of one width: as fine as both have, and so many that they can be drawn.
pub fn time_series(profiles: [&Profile; 2]) -> Result<[ComparedSeries; 2], AnalysisError> {
    let of = |profile, bin_ns| rates::rates(profile, None, bin_ns, DEFAULT_WINDOW_NS);
    let [a, b] = profiles.map(|profile| of(profile, None));
    let both = [a?, b?];
    let span = |rates: &Rates| i128::from(rates.span_ns.1) - i128::from(rates.span_ns.0);
    let (longest, fine) =
        both.iter().fold((0, 1), |(longest, fine), rates| (span(rates).max(longest), rates.fine_ns.max(fine)));
    // One bin of the page may begin before the first of the profile, and another end behind the last.
    let together = (longest / ((MOST_BINS - 2) * i128::from(fine)) + 1).max(1);
    let bin_ns = i64::try_from(i128::from(fine) * together).unwrap_or(i64::MAX);
    let [a, b] = profiles.map(|profile| of(profile, Some(bin_ns)).map(|rates| course(&rates)));
    Ok([a?, b?])
}

fn course(rates: &Rates) -> ComparedSeries {
    let mut bins = rates.bins(&rates.total).peekable();
    let first_ns = bins.peek().map_or(0, |(start_ns, _)| start_ns.saturating_sub(rates.origin_ns));
    let bins = bins.map(|(_, values)| values).collect();
    ComparedSeries { bin_ns: rates.bin_ns, first_ns, bins, has_mpi: rates.total.has_mpi }
}
