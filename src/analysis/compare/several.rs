//! Compares three or more profiles: how much each value varies, and which run deviates.
//!
//! In: profiles. Out: a [`RunsComparison`]. One run has one value of each kind, so chance shows in the
//! variation between the runs. A run deviates beyond chance if its value lies outside the 99 %
//! prediction interval of the others (F. E. Grubbs, *Procedures for Detecting Outlying Observations in
//! Samples*, Technometrics 11, 1969; the level is divided by the number of runs, because each could
//! deviate). The test assumes that runs vary by a normal distribution. With three runs it detects only
//! deviations of more than 160 times the difference of the other two.
//!
//! Invariant: a pair that the captures of a run may not show has no value in it, never 0.

use super::{ComparisonVerdict, ConfidenceInterval, confidence_interval};
use super::{
    QUANTILES, cells_by_pair, default_grouping, mpi_bytes, peak_window_ns, placement, rate_values, total_values,
};
use crate::analysis::AnalysisError;
use crate::analysis::endpoint_label::{GroupBy, Label};
use crate::analysis::health;
use crate::analysis::latency::{LatencyGrouping, LatencyKey, latencies};
use crate::analysis::matrix::{MatrixCell, Selection};
use crate::analysis::observed_ports::may_miss_ports;
use crate::model::{Histogram, Profile};
use statrs::distribution::{ContinuousCDF as _, StudentsT};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Share of the values that vary by chance in which a run seems to deviate.
const LEVEL: f64 = 0.01;

/// A value in all runs.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueInRuns {
    /// Name of the value, with its unit.
    pub value: &'static str,
    /// The value in each run; `None` if the run has none, or does not show it.
    pub values: Vec<Option<f64>>,
    /// Whether chance can explain the variation.
    pub verdict: ComparisonVerdict,
    /// Index of the run that deviates beyond chance.
    pub deviating: Option<usize>,
}

impl ValueInRuns {
    /// Tests whether a run deviates. `step` is the least difference that two runs can have.
    fn tested(value: &'static str, values: Vec<Option<f64>>, step: f64) -> Self {
        let mut own = Self::untested(value, values);
        if own.verdict == ComparisonVerdict::OneValue {
            (own.verdict, own.deviating) = match own.known().count() {
                ..3 => (ComparisonVerdict::TooFew, None),
                _ => match deviating(&own.values, step) {
                    None => (ComparisonVerdict::WithinChance, None),
                    run => (ComparisonVerdict::BeyondChance, run),
                },
            };
        }
        own
    }

    /// A value that no test applies to.
    fn untested(value: &'static str, values: Vec<Option<f64>>) -> Self {
        let mut known = values.iter().flatten();
        let verdict = match (known.next(), known.clone().next()) {
            (Some(_), None) if values.len() > 1 => ComparisonVerdict::OneOnly,
            (Some(first), _) if known.any(|other| other.total_cmp(first).is_ne()) => ComparisonVerdict::OneValue,
            _ => ComparisonVerdict::Equal,
        };
        Self { value, values, verdict, deviating: None }
    }

    fn known(&self) -> impl Iterator<Item = f64> {
        self.values.iter().flatten().copied()
    }

    /// The median over the runs that have the value; the mean of the middle two if their number is even.
    #[must_use]
    pub fn median(&self) -> Option<f64> {
        let mut sorted: Vec<f64> = self.known().collect();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        Some(f64::midpoint(*sorted.get(last / 2)?, *sorted.get(last.div_ceil(2))?))
    }

    /// The smallest value.
    #[must_use]
    pub fn minimum(&self) -> Option<f64> {
        self.known().min_by(f64::total_cmp)
    }

    /// The largest value.
    #[must_use]
    pub fn maximum(&self) -> Option<f64> {
        self.known().max_by(f64::total_cmp)
    }

    /// The difference between the largest and the smallest value, divided by the median; `None` if less
    /// than two runs have the value, or if the median is 0 and they differ.
    #[must_use]
    pub fn spread(&self) -> Option<f64> {
        let range = self.maximum()? - self.minimum()?;
        if self.known().count() < 2 {
            return None;
        }
        if range == 0.0 { Some(0.0) } else { Some(range / self.median()?).filter(|spread| spread.is_finite()) }
    }

    /// True if runs have different values.
    #[must_use]
    pub fn varies(&self) -> bool {
        self.minimum() != self.maximum()
    }
}

/// The run whose value is the least probable one given the others, if it is beyond chance.
fn deviating(values: &[Option<f64>], step: f64) -> Option<usize> {
    let known: Vec<(usize, f64)> =
        values.iter().enumerate().filter_map(|(run, value)| Some((run, (*value)?))).collect();
    let others = known.len().checked_sub(1).filter(|others| *others > 1)? as f64;
    let distribution = StudentsT::new(0.0, 1.0, others - 1.0).ok()?;
    let probability = |own: &(usize, f64)| {
        let rest = || known.iter().filter(|other| other.0 != own.0).map(|(_, value)| *value);
        let mean = rest().sum::<f64>() / others;
        let variance = rest().map(|value| (value - mean).powi(2)).sum::<f64>() / (others - 1.0);
        // Whole numbers of packets can be equal by chance, although more runs would vary.
        let rounding = step * step / 12.0;
        let error = ((variance + rounding) * (1.0 + 1.0 / others)).sqrt();
        let distance = (own.1 - mean).abs();
        if error > 0.0 { 2.0 * distribution.sf(distance / error) } else { f64::from(u8::from(distance == 0.0)) }
    };
    let least = known.iter().map(|own| (own.0, probability(own))).min_by(|a, b| a.1.total_cmp(&b.1))?;
    (least.1 * known.len() as f64 <= LEVEL).then_some(least.0)
}

/// Traffic between two ranks or endpoints in all runs.
#[derive(Clone, Debug, PartialEq)]
pub struct PairInRuns {
    /// Sender and receiver.
    pub pair: (Label, Label),
    /// The values of the pair, in the order of the outputs.
    pub values: Vec<ValueInRuns>,
    /// False for a run whose captures have no packet of the pair, and may not show all ports.
    pub is_captured: Vec<bool>,
}

impl PairInRuns {
    fn new(pair: (Label, Label), cells: &[MatrixCell], is_partial: &[bool]) -> Self {
        let is_captured: Vec<bool> =
            cells.iter().zip(is_partial).map(|(cell, is_partial)| !is_partial || cell.packets > 0).collect();
        let of = |value, get: &dyn Fn(&MatrixCell) -> Option<u64>, parts: &dyn Fn(&MatrixCell) -> u64| {
            let captured = cells.iter().zip(&is_captured);
            let values = captured.map(|(cell, shown)| get(cell).filter(|_| *shown).map(|count| count as f64));
            let size = |cell: &MatrixCell| get(cell).unwrap_or(0) as f64 / parts(cell).max(1) as f64;
            ValueInRuns::tested(value, values.collect(), cells.iter().map(size).fold(0.0, f64::max))
        };
        let count = |value, get: fn(&MatrixCell) -> u64| of(value, &|cell| Some(get(cell)), &get);
        let values = vec![
            count("messages", |cell| cell.messages),
            of("mpi_bytes", &|cell| mpi_bytes(cell, cells), &|cell| cell.messages),
            of("payload_bytes", &|cell| Some(cell.payload_bytes), &|cell| cell.packets),
            of("wire_bytes", &|cell| Some(cell.wire_bytes), &|cell| cell.packets),
            count("packets", |cell| cell.packets),
        ];
        Self { pair, values, is_captured }
    }

    /// A value of the pair by its name.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&ValueInRuns> {
        self.values.iter().find(|own| own.value == name)
    }

    /// True if a value varies over the runs that show the pair.
    #[must_use]
    pub fn varies(&self) -> bool {
        self.values.iter().any(ValueInRuns::varies)
    }

    /// The sort weight: the difference between the largest and the smallest number of bytes on the wire.
    fn weight(&self) -> u64 {
        let wire = self.value("wire_bytes").and_then(|wire| Some(wire.maximum()? - wire.minimum()?));
        wire.unwrap_or(0.0) as u64
    }
}

/// The times with one key in all runs.
#[derive(Clone, Debug, PartialEq)]
pub struct TimesInRuns {
    /// Interval, verb and size class of the times.
    pub key: LatencyKey,
    /// Median and 99th percentile.
    pub quantiles: Vec<ValueInRuns>,
}

impl TimesInRuns {
    /// With `is_sampled`, a run is a sampled capture, so that its times cannot be compared.
    fn new(key: LatencyKey, times: &[&Histogram], is_sampled: bool) -> Self {
        let quantile = |(value, share): (&'static str, f64)| {
            let values = times.iter().map(|times| (times.samples() > 0).then(|| times.quantile(share) as f64));
            let values: Vec<Option<f64>> = values.collect();
            if is_sampled && values.iter().flatten().count() > 1 {
                return ValueInRuns { value, values, verdict: ComparisonVerdict::Unknown, deviating: None };
            }
            // The relative width of the buckets of a histogram.
            let width = if times.iter().any(|times| times.is_coarse()) { 1.0 / 16.0 } else { 1.0 / 1024.0 };
            let step = values.iter().flatten().copied().fold(0.0, f64::max) * width;
            let bounds: Vec<_> = times.iter().map(|times| confidence_interval(times, share)).collect();
            let mut own = ValueInRuns::tested(value, values, step.max(1.0));
            let is_apart = |run: usize| is_apart(run, &bounds, &own.values);
            if let Some(verdict) =
                own.deviating.map(is_apart).filter(|verdict| *verdict != ComparisonVerdict::BeyondChance)
            {
                (own.verdict, own.deviating) = (verdict, None);
            }
            own
        };
        Self { key, quantiles: QUANTILES.into_iter().map(quantile).collect() }
    }

    /// The sort key: deviating medians first, then the largest spread.
    fn order(&self) -> (bool, Reverse<u64>) {
        let median = self.quantiles.first();
        let spread = median.and_then(ValueInRuns::spread).unwrap_or(0.0);
        (median.is_none_or(|median| median.deviating.is_none()), Reverse((spread * 1e6) as u64))
    }
}

/// Whether the confidence interval of a run overlaps that of no other run with times.
fn is_apart(run: usize, bounds: &[Option<ConfidenceInterval>], values: &[Option<f64>]) -> ComparisonVerdict {
    let of = |index: usize| bounds.get(index).copied().flatten();
    let others: Option<Vec<ConfidenceInterval>> = values
        .iter()
        .enumerate()
        .filter(|(other, value)| *other != run && value.is_some())
        .map(|(other, _)| of(other))
        .collect();
    match of(run).zip(others) {
        None => ComparisonVerdict::TooFew,
        Some((own, others)) if others.iter().all(|other| own.high_ns < other.low_ns || other.high_ns < own.low_ns) => {
            ComparisonVerdict::BeyondChance
        }
        Some(_) => ComparisonVerdict::WithinChance,
    }
}

/// The comparison of several profiles.
#[derive(Clone, Debug)]
pub struct RunsComparison {
    /// Names of the profiles.
    pub names: Vec<String>,
    /// Whether pairs are of ranks or endpoints.
    pub by: GroupBy,
    /// For each run, the number of ranks that are on another node than in the first run.
    pub moved_ranks: Vec<usize>,
    /// Totals of the profiles.
    pub totals: Vec<ValueInRuns>,
    /// Rates by `mean` or `peak`; peaks are over a window.
    pub rates: Vec<(&'static str, ValueInRuns)>,
    /// Length of the peak window in each run, in nanoseconds.
    pub windows_ns: Vec<i64>,
    /// Totals of the health columns. They are rare events, so none is tested.
    pub health: Vec<ValueInRuns>,
    /// Pairs, the largest range of bytes on the wire first.
    pub pairs: Vec<PairInRuns>,
    /// Times, deviating medians first.
    pub times: Vec<TimesInRuns>,
}

impl RunsComparison {
    /// True if pairs have MPI bytes.
    #[must_use]
    pub fn has_mpi_bytes(&self) -> bool {
        self.pairs
            .iter()
            .any(|pair| pair.value("mpi_bytes").and_then(ValueInRuns::maximum).is_some_and(|most| most > 0.0))
    }

    /// The pairs with the largest medians of a value, at most `most`, largest first. Pairs with equal
    /// medians are in label order.
    #[must_use]
    pub fn busiest(&self, value: &str, most: usize) -> Vec<&PairInRuns> {
        let median = |pair: &PairInRuns| pair.value(value).and_then(ValueInRuns::median).unwrap_or(0.0);
        let mut pairs: Vec<&PairInRuns> = self.pairs.iter().filter(|pair| median(pair) > 0.0).collect();
        pairs.sort_by(|a, b| median(b).total_cmp(&median(a)).then_with(|| a.pair.cmp(&b.pair)));
        pairs.truncate(most);
        pairs
    }
}

/// Compares several profiles. If `by` is `None`, pairs are of ranks if all profiles know ranks,
/// otherwise of endpoints.
pub fn compare_runs(
    profiles: &[&Profile],
    names: Vec<String>,
    by: Option<GroupBy>,
) -> Result<RunsComparison, AnalysisError> {
    let by = by.unwrap_or_else(|| default_grouping(profiles));
    let first = profiles.first().copied();
    let placements: Vec<placement::Placements> =
        profiles.iter().map(|own| placement::placements([first.unwrap_or(own), own])).collect();
    let (rates, windows_ns) = rates(profiles)?;
    let is_partial: Vec<bool> = profiles.iter().map(|profile| may_miss_ports(profile)).collect();
    let cells = cells_by_pair(profiles, by, Selection::All);
    let mut pairs: Vec<PairInRuns> =
        cells.into_iter().map(|(pair, cells)| PairInRuns::new(pair, &cells, &is_partial)).collect();
    // The sort is stable: pairs with equal ranges stay in label order.
    pairs.sort_by_key(|pair| Reverse(pair.weight()));
    let health: Vec<_> = profiles.iter().map(|profile| health::column_totals(profile)).collect();
    Ok(RunsComparison {
        names,
        by,
        moved_ranks: placements.iter().map(|own| own.moved.len()).collect(),
        totals: totals(profiles, &placements),
        rates,
        windows_ns,
        health: by_name(health.iter().map(|own| own.iter().map(|(column, count)| (column.name, *count))))
            .map(|(name, counts)| ValueInRuns::untested(name, counts))
            .collect(),
        pairs,
        times: times(profiles),
    })
}

/// The values of all runs by their names; all runs have the same names in one order.
fn by_name<I: Iterator<Item = (&'static str, Option<u64>)>>(
    mut runs: impl Iterator<Item = I>,
) -> impl Iterator<Item = (&'static str, Vec<Option<f64>>)> {
    let real = |count: Option<u64>| count.map(|count| count as f64);
    let first = runs.next().into_iter().flatten();
    let mut table: Vec<(&'static str, Vec<Option<f64>>)> =
        first.map(|(name, count)| (name, vec![real(count)])).collect();
    for run in runs {
        table.iter_mut().zip(run).for_each(|((_, values), (_, count))| values.push(real(count)));
    }
    table.into_iter()
}

fn totals(profiles: &[&Profile], placements: &[placement::Placements]) -> Vec<ValueInRuns> {
    let of_run =
        |(own, placed): (&&Profile, &placement::Placements)| total_values(own, placed.pairs_on_one_node[1]).into_iter();
    let table: Vec<_> = by_name(profiles.iter().zip(placements).map(of_run)).collect();
    let most = |name: &str| {
        let values = table.iter().find(|own| own.0 == name).into_iter().flat_map(|own| own.1.iter().flatten());
        values.copied().fold(1.0, f64::max)
    };
    let step = |name: &str| match name {
        "wire_bytes" | "payload_bytes" => most(name) / most("packets"),
        "p2p_mpi_bytes" => most(name) / most("p2p_messages"),
        "collective_mpi_bytes" => most(name) / most("collective_messages"),
        _ => 1.0,
    };
    table.iter().map(|(name, values)| ValueInRuns::tested(name, values.clone(), step(name))).collect()
}

/// Rates by `mean` or `peak`, and the length of the peak window of each run.
type RatesOfRuns = (Vec<(&'static str, ValueInRuns)>, Vec<i64>);

fn rates(profiles: &[&Profile]) -> Result<RatesOfRuns, AnalysisError> {
    let window_ns = peak_window_ns(profiles);
    let runs: Vec<_> = profiles.iter().map(|own| rate_values(own, window_ns)).collect::<Result<_, _>>()?;
    let count = runs.first().map_or(0, |(rates, _)| rates.len());
    let of = |index: usize| {
        let own = || runs.iter().filter_map(move |(rates, _)| rates.get(index));
        let first = own().next()?;
        Some((first.what, ValueInRuns::tested(first.value, own().map(|rate| rate.rate).collect(), 0.0)))
    };
    Ok(((0..count).filter_map(of).collect(), runs.iter().map(|(_, window_ns)| *window_ns).collect()))
}

fn times(profiles: &[&Profile]) -> Vec<TimesInRuns> {
    let runs: Vec<_> = profiles.iter().map(|own| latencies(own, LatencyGrouping { by: None, sizes: true })).collect();
    let nothing = Histogram::default();
    let is_sampled = profiles.iter().any(|profile| profile.sampling.is_some());
    let keys: BTreeSet<&LatencyKey> = runs.iter().flat_map(|run| run.keys()).collect();
    let of = |key: &LatencyKey| {
        let times: Vec<&Histogram> = runs.iter().map(|run| run.get(key).unwrap_or(&nothing)).collect();
        TimesInRuns::new(key.clone(), &times, is_sampled)
    };
    let mut times: Vec<TimesInRuns> = keys.into_iter().map(of).collect();
    times.sort_by_key(TimesInRuns::order);
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(values: &[f64], step: f64) -> ValueInRuns {
        ValueInRuns::tested("packets", values.iter().copied().map(Some).collect(), step)
    }

    #[test]
    fn statistics_of_runs() {
        let odd = value(&[3.0, 1.0, 2.0], 1.0);
        assert_eq!(
            (odd.median(), odd.minimum(), odd.maximum(), odd.spread()),
            (Some(2.0), Some(1.0), Some(3.0), Some(1.0))
        );
        assert_eq!(value(&[4.0, 1.0, 2.0, 3.0], 1.0).median(), Some(2.5));
        let missing = ValueInRuns::tested("packets", vec![None, Some(7.0), None], 1.0);
        assert_eq!(
            (missing.median(), missing.spread(), missing.verdict),
            (Some(7.0), None, ComparisonVerdict::OneOnly)
        );
        let zeros = value(&[0.0, 0.0, 4.0], 1.0);
        assert_eq!((zeros.spread(), zeros.varies()), (None, true), "no relative spread around 0");
        assert_eq!(value(&[5.0; 4], 1.0).verdict, ComparisonVerdict::Equal);
        let two = ValueInRuns::tested("packets", vec![Some(1.0), None, Some(2.0)], 1.0);
        assert_eq!(two.verdict, ComparisonVerdict::TooFew);
    }

    /// Grubbs (1969), table 1: of five values, the one-sided critical value at 0.5 % is 1.764. That is
    /// the two-sided test at 1 %.
    #[test]
    fn the_test_is_that_of_grubbs() {
        let of = |outlier: f64| {
            let values = [-1.0, -0.5, 0.5, 1.0, outlier];
            let mean = outlier / 5.0;
            let variance = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / 4.0;
            ((outlier - mean) / variance.sqrt(), value(&values, 0.0).deviating)
        };
        let (below, above) = (of(9.5), of(11.0));
        assert!(below.0 < 1.7635 && above.0 > 1.7645, "{below:?} {above:?}");
        assert_eq!((below.1, above.1), (None, Some(4)));
    }

    #[test]
    fn equal_runs_do_not_make_one_more_packet_a_deviation() {
        assert_eq!(value(&[0.0, 0.0, 1.0], 1.0).verdict, ComparisonVerdict::WithinChance);
        assert_eq!(value(&[100.0, 100.0, 100.0, 101.0], 1.0).deviating, None);
        // One more message of 4 KiB is one step, however many bytes it has.
        assert_eq!(value(&[1e6, 1e6, 1e6 + 4096.0], 4096.0).deviating, None);
        assert_eq!(value(&[100.0, 100.0, 100.0, 500.0], 1.0).deviating, Some(3));
    }
}
