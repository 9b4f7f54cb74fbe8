//! Bar charts of a distribution of times, for figures and terminals.
//!
//! The axis goes from 0 to twice the 90th percentile, rounded up to a round number: a few outliers
//! do not squeeze the rest, and two captures of the same application have the same axis.

use crate::analysis::round_numbers::round_up;
use crate::model::Histogram;

/// Samples by time, as bars of equal width.
pub(crate) struct BarHistogram {
    /// End of the axis in nanoseconds.
    pub(crate) limit_ns: u64,
    /// Samples of each bar.
    pub(crate) counts: Vec<u64>,
    /// Samples beyond the end of the axis.
    pub(crate) beyond: u64,
}

impl BarHistogram {
    /// Builds the chart with one of the given numbers of bars, which must be in descending order:
    /// the most that the resolution of the capture's clock allows without leaving every second bar
    /// empty.
    pub(crate) fn new(times: &Histogram, choices: &[u64]) -> Self {
        let limit_ns = round_up(2 * times.quantile(0.9).clamp(5, u64::MAX / 16));
        let finest_ns = finest(times, limit_ns);
        let fits = |bars: &&u64| limit_ns / **bars * 10 >= finest_ns * 9;
        let bars = choices.iter().find(fits).or(choices.last()).copied().unwrap_or(1).min(limit_ns);
        let mut counts = vec![0; usize::try_from(bars).unwrap_or_default()];
        let mut beyond = 0;
        for (value, count) in times.values() {
            let bar = u128::from(value) * u128::from(bars) / u128::from(limit_ns);
            match usize::try_from(bar).ok().and_then(|bar| counts.get_mut(bar)) {
                Some(bar) => *bar += count,
                None => beyond += count,
            }
        }
        Self { limit_ns, counts, beyond }
    }
}

/// The smallest difference between two measured times below a limit: the resolution of the
/// capture's clock or of the histogram's buckets. 0 if there are too few values to measure it.
fn finest(times: &Histogram, limit_ns: u64) -> u64 {
    const FEW: usize = 5;
    let values: Vec<u64> = times.values().map(|(value, _)| value).take_while(|value| *value < limit_ns).collect();
    if values.len() < FEW {
        return 0;
    }
    values.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap_or_default()
}
