//! Bar charts of a distribution of times. Figures and the report use bars of nearly equal ratio,
//! which show all times. Terminals use bars of equal width.
//!
//! The axis of bars of equal width goes from 0 to twice the 90th percentile, rounded up to a round
//! number. So a few outliers do not squeeze the rest, and two captures of the same application
//! usually have the same axis.

use crate::analysis::round_numbers::round_up;
use crate::model::Histogram;

/// The preferred numbers of ISO 3 in hundredths, finest first: round numbers whose ratios are nearly
/// equal.
const PREFERRED: [&[u64]; 4] = [
    &[100, 112, 125, 140, 160, 180, 200, 224, 250, 280, 315, 355, 400, 450, 500, 560, 630, 710, 800, 900],
    &[100, 125, 160, 200, 250, 315, 400, 500, 630, 800],
    &[100, 160, 250, 400, 630],
    &[100],
];
/// Maximum number of bars of equal ratio; more would be too narrow.
const ROUND_BARS: usize = 60;

/// Samples by time: bars of nearly equal ratio between round times, from the smallest to the
/// largest time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RoundBars {
    /// Edges of the bars in nanoseconds, ascending; one more than there are bars. The first edge is
    /// 0 if times of 0 were measured.
    pub(crate) edges_ns: Vec<u64>,
    /// Number of samples per bar, from its lower edge (included) to its upper edge (excluded).
    pub(crate) counts: Vec<u64>,
}

impl RoundBars {
    /// Builds the finest bars that the resolution of the times allows at the median.
    pub(crate) fn new(times: &Histogram) -> Self {
        let finest_ns = finest(times, u64::MAX);
        let median_ns = times.quantile(0.5);
        let fits = |edges: &Vec<u64>| {
            let above = edges.partition_point(|edge| *edge <= median_ns);
            let width_ns = edges.get(above).zip(edges.get(above.wrapping_sub(1))).map_or(0, |(end, start)| end - start);
            edges.len() <= ROUND_BARS + 1 && width_ns >= finest_ns
        };
        let mut choices = PREFERRED.iter().map(|numbers| edges(times, numbers));
        let edges_ns = choices.find(fits).unwrap_or_else(|| edges(times, PREFERRED[3]));
        let mut counts = vec![0; edges_ns.len() - 1];
        for (value, count) in times.values() {
            let bar = edges_ns.partition_point(|edge| *edge <= value).saturating_sub(1).min(edges_ns.len() - 2);
            if let Some(sum) = counts.get_mut(bar) {
                *sum += count;
            }
        }
        Self { edges_ns, counts }
    }

    /// Position of a time on an axis of bars that are 1 wide: an integer at an edge, logarithmic
    /// within a bar.
    pub(crate) fn position(&self, ns: u64) -> f64 {
        let above = self.edges_ns.partition_point(|edge| *edge <= ns).clamp(1, self.counts.len());
        let [start, end, ns] = [self.edges_ns[above - 1], self.edges_ns[above], ns].map(|ns| ns.max(1) as f64);
        let within = if end > start { (ns / start).ln() / (end / start).ln() } else { 0.0 };
        (above - 1) as f64 + within.clamp(0.0, 1.0)
    }
}

/// The edges of the bars in nanoseconds, from the largest edge that is not above any time to the
/// smallest edge that is above all times.
fn edges(times: &Histogram, hundredths: &[u64]) -> Vec<u64> {
    let values = || times.values().map(|(value, _)| value);
    let (least, most) = (values().find(|value| *value > 0).unwrap_or(1), values().last().unwrap_or(1));
    let powers = (0..20).map(|power| 10_u128.pow(power));
    let round = powers.flat_map(|one| hundredths.iter().map(move |number| u128::from(*number) * one / 100));
    let mut edges: Vec<u64> = round.filter(|edge| *edge > 0).filter_map(|edge| u64::try_from(edge).ok()).collect();
    edges.push(u64::MAX);
    edges.dedup();
    let first = edges.partition_point(|edge| *edge <= least).saturating_sub(1).min(edges.len() - 2);
    let end = (edges.partition_point(|edge| *edge <= most) + 1).clamp(first + 2, edges.len());
    let zero = (values().next() == Some(0)).then_some(0);
    zero.into_iter().chain(edges[first..end].iter().copied()).collect()
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Recorder;

    fn of(values: &[u64]) -> Histogram {
        let mut recorder = Recorder::default();
        values.iter().for_each(|value| recorder.record(*value));
        recorder.finish()
    }

    #[test]
    fn bars_have_round_edges_and_show_the_largest_time() {
        // Five decades: 51 bars with ten in each, because 101 would be too many.
        let bars = RoundBars::new(&of(&[1_000, 1_500, 99_000_000]));
        assert_eq!((bars.edges_ns[0], bars.edges_ns.last()), (1_000, Some(&100_000_000)));
        assert_eq!((bars.counts[0], bars.counts.last(), bars.counts.iter().sum()), (1, Some(&1), 3_u64));
        assert_eq!(bars.edges_ns.len(), bars.counts.len() + 1);
        assert_eq!(bars.edges_ns[..4], [1_000, 1_250, 1_600, 2_000]);
    }

    #[test]
    fn bars_are_not_finer_than_the_clock() {
        // Times in whole microseconds: with the edges 4, 4.5 and 5 µs, every second bar would be
        // empty.
        let times: Vec<u64> = (1..=9).flat_map(|us| vec![us * 1_000; 10]).collect();
        let bars = RoundBars::new(&of(&times));
        let above = bars.edges_ns.partition_point(|edge| *edge <= 5_000);
        assert!(bars.edges_ns[above] - bars.edges_ns[above - 1] >= 1_000, "{bars:?}");
        assert_eq!(bars.counts.iter().sum::<u64>(), 90);
    }

    #[test]
    fn times_of_0_have_a_bar_of_their_own() {
        let bars = RoundBars::new(&of(&[0, 0, 3]));
        assert_eq!((bars.edges_ns[0], bars.edges_ns[1], bars.counts[0]), (0, 3, 2));
        assert_eq!(RoundBars::new(&of(&[u64::MAX])).counts.iter().sum::<u64>(), 1);
    }

    #[test]
    fn positions_are_in_the_ratio_of_the_times() {
        let bars = RoundBars { edges_ns: vec![10, 100, 1000], counts: vec![1, 1] };
        assert!((bars.position(10)).abs() < 1e-9 && (bars.position(1000) - 2.0).abs() < 1e-9);
        assert!((bars.position(316) - 1.5).abs() < 1e-3);
    }
}
