//! Compares two profiles, or several: which values differ, by how much, and whether chance can explain it.
//!
//! In: two profiles, A and B. Out: a [`Comparison`]. Counts are exact, so they are equal or they
//! differ. Times are samples, so a difference of medians or of 99th percentiles may be chance. For
//! each quantile, the module computes the interval that contains the true quantile with 99 %
//! confidence for any distribution, by order statistics: of `n` sorted samples, those at the ranks
//! `n q ± 2.576 √(n q (1 - q))` (W. J. Conover, *Practical Nonparametric Statistics*, 3rd edition
//! 1999, section 3.2). A difference is beyond chance only if the two intervals do not overlap,
//! which is stricter than a test at 1 %. The share of pairs of samples in which the time of B is
//! the longer one, ties counting half (the Mann-Whitney statistic as a share), shows the size of
//! the difference independently of outliers.
//!
//! A sampled capture shows the times between those packets only that were both sampled. These times
//! are biased, so their comparison is unknown.
//!
//! Both methods assume independent samples. Samples of one run are not quite independent, and two
//! runs differ for reasons that one run of each cannot show.

mod intervals;
mod placement;
mod several;
mod time_series;

pub use placement::{MovedRank, Placements};
pub use several::{PairInRuns, RunsComparison, TimesInRuns, ValueInRuns, compare_runs};
pub use time_series::{ComparedSeries, time_series};

use super::AnalysisError;
use super::endpoint_label::{GroupBy, Jobs, Label};
use super::health;
use super::latency::{LatencyGrouping, LatencyKey, latencies};
use super::matrix::{self, MatrixCell, Selection};
use super::observed_ports::may_miss_ports;
use super::rates::{self, VALUES};
use super::totals::ProfileTotals;
use crate::model::{Histogram, JobRank, Profile};
use ibscope_parsers::Endpoint;
use intervals::{ConfidenceInterval, confidence_interval, share_longer};
use std::collections::{BTreeMap, BTreeSet};

/// Quantiles that are compared, by name.
const QUANTILES: [(&str, f64); 2] = [("median_ns", 0.5), ("p99_ns", 0.99)];

/// The result of comparing two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ComparisonVerdict {
    /// Times whose confidence intervals do not overlap.
    BeyondChance,
    /// Counts that differ.
    Differs,
    /// Only one profile has the value.
    OneOnly,
    /// One value per run, so the effect of chance is unknown.
    OneValue,
    /// Times whose confidence intervals overlap.
    WithinChance,
    /// Too few samples for a confidence interval.
    TooFew,
    /// Times of which a run has only those of sampled packets, which are biased.
    Unknown,
    /// Counts that are equal.
    Equal,
}

impl ComparisonVerdict {
    /// The name used in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BeyondChance => "beyond chance",
            Self::Differs => "differs",
            Self::OneOnly => "one only",
            Self::OneValue => "one value each",
            Self::WithinChance => "within chance",
            Self::TooFew => "too few samples",
            Self::Unknown => "unknown",
            Self::Equal => "equal",
        }
    }
}

/// A value in both profiles.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueComparison {
    /// Name of the value, with its unit.
    pub value: &'static str,
    /// The value in A and in B; `None` if the profile has none.
    pub values: [Option<f64>; 2],
    /// The confidence intervals in A and in B, for times of captures that are not sampled only.
    pub confidence_intervals: [Option<ConfidenceInterval>; 2],
    /// The result of the comparison.
    pub verdict: ComparisonVerdict,
}

impl ValueComparison {
    fn count(value: &'static str, a: Option<u64>, b: Option<u64>) -> Self {
        let verdict = match (a, b) {
            (Some(a), Some(b)) if a == b => ComparisonVerdict::Equal,
            (None, None) => ComparisonVerdict::Equal,
            (Some(_), Some(_)) => ComparisonVerdict::Differs,
            _ => ComparisonVerdict::OneOnly,
        };
        Self {
            value,
            values: [a, b].map(|count| count.map(|count| count as f64)),
            confidence_intervals: [None, None],
            verdict,
        }
    }

    /// A difference of something that is not a number.
    pub(crate) const fn differing(value: &'static str) -> Self {
        Self { value, values: [None; 2], confidence_intervals: [None, None], verdict: ComparisonVerdict::Differs }
    }

    fn rate(value: &'static str, values: [Option<f64>; 2]) -> Self {
        let verdict = match values {
            [Some(_), Some(_)] => ComparisonVerdict::OneValue,
            [None, None] => ComparisonVerdict::Equal,
            _ => ComparisonVerdict::OneOnly,
        };
        Self { value, values, confidence_intervals: [None, None], verdict }
    }

    /// B minus A, if both exist.
    #[must_use]
    pub fn difference(&self) -> Option<f64> {
        let [a, b] = self.values;
        Some(b? - a?)
    }

    /// B divided by A, if the result is finite.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        let [a, b] = self.values;
        let ratio = b? / a?;
        ratio.is_finite().then_some(ratio)
    }
}

/// The times with one key in both profiles.
#[derive(Clone, Debug, PartialEq)]
pub struct LatencyComparison {
    /// Interval, verb and size class of the times.
    pub key: LatencyKey,
    /// Number of samples in A and in B.
    pub samples: [u64; 2],
    /// Median and 99th percentile.
    pub quantiles: Vec<ValueComparison>,
    /// Share of pairs of samples in which the time of B is the longer one; `None` if one side has
    /// none, or is a sampled capture.
    pub longer_in_b: Option<f64>,
}

impl LatencyComparison {
    /// The sort weight: the difference of the medians times the smaller number of samples.
    fn weight(&self) -> f64 {
        let median = self.quantiles.first().and_then(ValueComparison::difference).unwrap_or(0.0);
        median.abs() * self.samples.into_iter().min().unwrap_or(0) as f64
    }
}

/// Traffic between two ranks or endpoints in both profiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairTraffic {
    /// Sender and receiver.
    pub pair: (Label, Label),
    /// The cells of A and B; all 0 if the profile has no traffic of the pair.
    pub cells: [MatrixCell; 2],
    /// False if the captures of A or B have no packet of the pair, and may not show all ports: the
    /// pair may have sent some.
    pub is_captured: [bool; 2],
}

impl PairTraffic {
    /// The sort weight: the difference in bytes on the wire; 0 if it is not known.
    fn weight(&self) -> u64 {
        if !self.is_known() {
            return 0;
        }
        self.cells[0].wire_bytes.abs_diff(self.cells[1].wire_bytes)
    }

    /// True if both runs show the pair, so that its values can be compared.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.is_captured == [true; 2]
    }

    /// True if both runs show the pair, and a value that both have differs.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.is_known() && self.values().iter().any(|pairing| pairing.verdict == ComparisonVerdict::Differs)
    }

    /// The values of both cells, compared one by one; `None` for a run that does not show the pair.
    #[must_use]
    pub fn values(&self) -> Vec<ValueComparison> {
        let of = |value, get: &dyn Fn(&MatrixCell) -> Option<u64>| {
            let [a, b] = [0, 1].map(|side| get(&self.cells[side]).filter(|_| self.is_captured[side]));
            ValueComparison::count(value, a, b)
        };
        vec![
            of("messages", &|cell| Some(cell.messages)),
            of("mpi_bytes", &|cell| mpi_bytes(cell, &self.cells)),
            of("payload_bytes", &|cell| Some(cell.payload_bytes)),
            of("wire_bytes", &|cell| Some(cell.wire_bytes)),
            of("packets", &|cell| Some(cell.packets)),
        ]
    }
}

/// The MPI bytes of one of the cells of a pair: 0 without packets, if another cell has MPI bytes; `None` if
/// the library of the packets was not detected.
fn mpi_bytes(cell: &MatrixCell, cells: &[MatrixCell]) -> Option<u64> {
    let is_empty = cell.packets == 0 && cells.iter().any(|other| other.mpi_bytes.is_some());
    cell.mpi_bytes.or_else(|| is_empty.then_some(0))
}

/// The comparison of two profiles.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Names of the profiles.
    pub names: [String; 2],
    /// Whether pairs are of ranks or endpoints.
    pub by: GroupBy,
    /// Nodes of the ranks.
    pub placements: Placements,
    /// Totals of the profiles.
    pub totals: Vec<ValueComparison>,
    /// Pairs, the largest difference first.
    pub pairs: Vec<PairTraffic>,
    /// Times, the clearest verdict and largest difference first.
    pub times: Vec<LatencyComparison>,
    /// Rates by `mean` or `peak`; peaks are over a window.
    pub rates: Vec<(&'static str, ValueComparison)>,
    /// Length of the peak window in A and in B, in nanoseconds.
    pub windows_ns: [i64; 2],
    /// Totals of the health columns.
    pub health: Vec<ValueComparison>,
}

/// Compares two profiles. If `by` is `None`, pairs are of ranks if both profiles know ranks,
/// otherwise of endpoints.
pub fn compare(profiles: [&Profile; 2], names: [String; 2], by: Option<GroupBy>) -> Result<Comparison, AnalysisError> {
    let by = by.unwrap_or_else(|| default_grouping(&profiles));
    let (rates, windows_ns) = compare_rates(profiles)?;
    let placements = placement::placements(profiles);
    Ok(Comparison {
        names,
        by,
        totals: totals(profiles, &placements),
        placements,
        pairs: pairs(profiles, by, Selection::All),
        times: times(profiles),
        rates,
        windows_ns,
        health: compare_health(profiles),
    })
}

/// Ranks if all profiles know ranks, otherwise endpoints.
fn default_grouping(profiles: &[&Profile]) -> GroupBy {
    if profiles.iter().all(|profile| !profile.ranks.is_empty()) { GroupBy::Rank } else { GroupBy::Endpoint }
}

fn totals(profiles: [&Profile; 2], placements: &Placements) -> Vec<ValueComparison> {
    let [a, b] = [0, 1].map(|side| total_values(profiles[side], placements.pairs_on_one_node[side]));
    let compared = |((value, a), (_, b)): ((&'static str, Option<u64>), (_, Option<u64>))| match value {
        "time_ns" => ValueComparison::rate(value, [a, b].map(|ns| ns.map(|ns| ns as f64))),
        _ => ValueComparison::count(value, a, b),
    };
    a.into_iter().zip(b).map(compared).collect()
}

/// Time of the first and the last record, nanoseconds since the epoch; of a time window, those of the first
/// and the last packet of a connection.
fn span_ns(profile: &Profile) -> Option<(i64, i64)> {
    if profile.coverage.outside_window == 0 {
        return profile.coverage.first_time_ns.zip(profile.coverage.last_time_ns);
    }
    // A connection without any timestamp has its last time before its first.
    let times = profile.connections.iter().map(|connection| (connection.first_time_ns, connection.last_time_ns));
    let times = times.filter(|(first, last)| first <= last);
    times.reduce(|all, own| (all.0.min(own.0), all.1.max(own.1)))
}

/// The totals of one profile with their names, in the order of the outputs.
fn total_values(profile: &Profile, pairs_on_one_node: u64) -> Vec<(&'static str, Option<u64>)> {
    let sums = ProfileTotals::of(profile);
    let span = span_ns(profile);
    let ranks: BTreeSet<(u32, u32)> = profile.ranks.iter().map(|row| (row.job, row.rank)).collect();
    let of_ranks = |count: u64| (!ranks.is_empty()).then_some(count);
    vec![
        ("time_ns", span.map(|(first, last)| last.abs_diff(first))),
        ("ranks", of_ranks(ranks.len() as u64)),
        ("pairs_on_one_node", of_ranks(pairs_on_one_node)),
        ("connections", Some(sums.connections)),
        ("packets", Some(sums.traffic.packets)),
        ("wire_bytes", Some(sums.traffic.wire_bytes)),
        ("payload_bytes", Some(sums.traffic.payload_bytes)),
        ("messages", Some(sums.traffic.messages)),
        ("p2p_messages", sums.mpi(|traffic| traffic.p2p_messages)),
        ("p2p_mpi_bytes", sums.mpi(|traffic| traffic.p2p_mpi_bytes)),
        ("collective_messages", sums.mpi(|traffic| traffic.collective_messages)),
        ("collective_mpi_bytes", sums.mpi(|traffic| traffic.collective_mpi_bytes)),
    ]
}

/// The pairs of both profiles, the largest difference first.
#[must_use]
pub fn pairs(profiles: [&Profile; 2], by: GroupBy, selection: Selection) -> Vec<PairTraffic> {
    let is_partial = profiles.map(may_miss_ports);
    let pair_of = |(pair, cells): ((Label, Label), Vec<MatrixCell>)| {
        let cells = [0, 1].map(|side| cells.get(side).copied().unwrap_or_default());
        let is_captured = [0, 1].map(|side| !is_partial[side] || cells[side].packets > 0);
        PairTraffic { pair, cells, is_captured }
    };
    let mut pairs: Vec<PairTraffic> = cells_by_pair(&profiles, by, selection).into_iter().map(pair_of).collect();
    // The sort is stable: pairs with equal differences stay in label order.
    pairs.sort_by_key(|pair| std::cmp::Reverse(pair.weight()));
    pairs
}

/// The cells of each pair, one per profile; all 0 if the profile has no traffic of the pair.
fn cells_by_pair(
    profiles: &[&Profile],
    by: GroupBy,
    selection: Selection,
) -> BTreeMap<(Label, Label), Vec<MatrixCell>> {
    // If only one profile knows the name of an endpoint, all use it.
    let name = |endpoint: &Endpoint| profiles.iter().find_map(|profile| profile.names.get(endpoint).cloned());
    let label = |label: &Label| match label {
        Label::Endpoint(endpoint, _) => Label::Endpoint(*endpoint, name(endpoint)),
        // Single jobs are compared even if their numbers differ.
        Label::Rank(JobRank { rank, .. }, Jobs::One) => Label::only(*rank),
        Label::Unknown(_, Jobs::One) => Label::Unknown(1, Jobs::One),
        other => other.clone(),
    };
    let mut table: BTreeMap<(Label, Label), Vec<MatrixCell>> = BTreeMap::new();
    for (index, profile) in profiles.iter().enumerate() {
        let matrix = matrix::matrix(profile, by, selection);
        for (src, dst, cell) in matrix.rows() {
            let cells =
                table.entry((label(src), label(dst))).or_insert_with(|| vec![MatrixCell::default(); profiles.len()]);
            cells[index] = *cell;
        }
    }
    table
}

fn times(profiles: [&Profile; 2]) -> Vec<LatencyComparison> {
    let [a, b] = profiles.map(|profile| latencies(profile, LatencyGrouping { by: None, sizes: true }));
    let nothing = Histogram::default();
    let are_sampled = profiles.map(|profile| profile.sampling.is_some());
    let mut keys: Vec<&LatencyKey> = a.keys().chain(b.keys()).collect();
    keys.sort();
    keys.dedup();
    let of = |key: &LatencyKey| {
        let both = [a.get(key).unwrap_or(&nothing), b.get(key).unwrap_or(&nothing)];
        let samples = both.map(Histogram::samples);
        let quantile = |(value, share): (&'static str, f64)| {
            let known = both.map(|times| (times.samples() > 0).then(|| times.quantile(share) as f64));
            let bounds = [0, 1].map(|side| confidence_interval(both[side], share).filter(|_| !are_sampled[side]));
            let verdict = match (samples, bounds) {
                ([0, _] | [_, 0], _) => ComparisonVerdict::OneOnly,
                _ if are_sampled.contains(&true) => ComparisonVerdict::Unknown,
                (_, [Some(a), Some(b)]) if a.high_ns < b.low_ns || b.high_ns < a.low_ns => {
                    ComparisonVerdict::BeyondChance
                }
                (_, [Some(_), Some(_)]) => ComparisonVerdict::WithinChance,
                _ => ComparisonVerdict::TooFew,
            };
            ValueComparison { value, values: known, confidence_intervals: bounds, verdict }
        };
        LatencyComparison {
            key: key.clone(),
            samples,
            quantiles: QUANTILES.into_iter().map(quantile).collect(),
            longer_in_b: share_longer(both[0], both[1]).filter(|_| !are_sampled.contains(&true)),
        }
    };
    let mut times: Vec<LatencyComparison> = keys.into_iter().map(of).collect();
    let verdict =
        |times: &LatencyComparison| times.quantiles.first().map_or(ComparisonVerdict::Equal, |median| median.verdict);
    times.sort_by(|one, other| verdict(one).cmp(&verdict(other)).then(other.weight().total_cmp(&one.weight())));
    times
}

/// Rates by `mean` or `peak`, and the length of the peak window in A and in B.
type ComparedRates = (Vec<(&'static str, ValueComparison)>, [i64; 2]);

fn compare_rates(profiles: [&Profile; 2]) -> Result<ComparedRates, AnalysisError> {
    let window_ns = peak_window_ns(&profiles);
    let [a, b] = profiles.map(|profile| rate_values(profile, window_ns));
    let ((a, a_window_ns), (b, b_window_ns)) = (a?, b?);
    let compared =
        |(of_a, of_b): (NamedRate, NamedRate)| (of_a.what, ValueComparison::rate(of_a.value, [of_a.rate, of_b.rate]));
    Ok((a.into_iter().zip(b).map(compared).collect(), [a_window_ns, b_window_ns]))
}

/// Length of the windows of peaks: peaks are comparable only over windows of equal length, which the
/// coarsest bins determine.
fn peak_window_ns(profiles: &[&Profile]) -> i64 {
    let coarsest_ns = profiles.iter().map(|profile| profile.bin_ns).max().unwrap_or(0);
    rates::DEFAULT_WINDOW_NS.max(coarsest_ns)
}

/// A mean or peak rate of a profile.
struct NamedRate {
    /// `mean` or `peak`.
    what: &'static str,
    /// The name of the value, without the time.
    value: &'static str,
    /// The value per second; `None` if it is not known.
    rate: Option<f64>,
}

/// The rates of one profile in the order of the outputs, and the length of the peak window.
fn rate_values(profile: &Profile, window_ns: i64) -> Result<(Vec<NamedRate>, i64), AnalysisError> {
    let rates = rates::rates(profile, None, None, window_ns)?;
    let total = &rates.total;
    let of_value = |(index, value): (usize, &'static str)| {
        let known = |rate: f64| total.known(index, 0).map(|_| rate);
        let mean = NamedRate { what: "mean", value, rate: known(rates.mean(total.sums[index])) };
        [mean, NamedRate { what: "peak", value, rate: known(rates.peak(total.peaks[index])) }]
    };
    Ok((VALUES.into_iter().enumerate().flat_map(of_value).collect(), rates.window_ns))
}

fn compare_health(profiles: [&Profile; 2]) -> Vec<ValueComparison> {
    let [a, b] = profiles.map(health::column_totals);
    a.into_iter().zip(b).map(|((column, a), (_, b))| ValueComparison::count(column.name, a, b)).collect()
}
