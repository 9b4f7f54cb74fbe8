//! Two profiles side by side: what differs, by how much, and whether that may be chance.
//!
//! Counts are exact, so they are equal or they differ. Times are samples, so a difference of medians (and of 99th percentiles) may be chance. For
//! each, the interval is given that holds the true quantile with 99 % confidence, whatever the distribution, by order statistics: of `n` sorted
//! samples those at the ranks `n q ± 2.576 √(n q (1 - q))` (W. J. Conover, *Practical Nonparametric Statistics*, 3rd edition 1999, section 3.2). Only
//! where the two intervals have no value in common a difference is called beyond chance, which is stricter than a test at 1 %. Beside it stands
//! how often a time of B is the longer one when one of each is drawn, ties counting half (the statistic of Mann and Whitney, as a share): the size of the
//! difference, in a form that outliers do not move.
//!
//! Both take samples to be independent. Those of one run are not quite, and a run differs from the next one for reasons that one run of each cannot show.

mod intervals;
mod placement;
mod time_series;

pub use placement::{MovedRank, Placements};
pub use time_series::{ComparedSeries, time_series};

use super::AnalysisError;
use super::endpoint_label::{By, Jobs, Label};
use super::health;
use super::latency::{Apart, Key, latencies};
use super::matrix::{self, Cell, Selection};
use super::rates::{self, VALUES};
use super::totals::Totals;
use crate::model::profile::Traffic;
use crate::model::{Histogram, JobRank, Profile};
use ibscope_parsers::Endpoint;
use intervals::{Bounds, bounds, share_longer};
use std::collections::BTreeMap;

/// Quantiles that are compared, by name.
const QUANTILES: [(&str, f64); 2] = [("median_ns", 0.5), ("p99_ns", 0.99)];

/// What can be said of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Times whose intervals have no value in common.
    BeyondChance,
    /// Counts that differ.
    Differs,
    /// It is in one of the two alone.
    OneOnly,
    /// One value of each run: nothing says what chance does to it.
    OneValue,
    /// Times whose intervals have values in common.
    WithinChance,
    /// So few samples that there is no interval.
    TooFew,
    /// Counts that are equal.
    Equal,
}

impl Verdict {
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
            Self::Equal => "equal",
        }
    }
}

/// One value in both.
#[derive(Clone, Debug, PartialEq)]
pub struct Pairing {
    /// Its name, with its unit.
    pub value: &'static str,
    /// In A and in B, where it is there.
    pub values: [Option<f64>; 2],
    /// The interval of each, of times.
    pub bounds: [Option<Bounds>; 2],
    /// What can be said of them.
    pub verdict: Verdict,
}

impl Pairing {
    fn count(value: &'static str, a: Option<u64>, b: Option<u64>) -> Self {
        let verdict = match (a, b) {
            (Some(a), Some(b)) if a == b => Verdict::Equal,
            (None, None) => Verdict::Equal,
            (Some(_), Some(_)) => Verdict::Differs,
            _ => Verdict::OneOnly,
        };
        Self { value, values: [a, b].map(|count| count.map(|count| count as f64)), bounds: [None, None], verdict }
    }

    /// What differs and is no number.
    pub(crate) const fn differing(value: &'static str) -> Self {
        Self { value, values: [None; 2], bounds: [None, None], verdict: Verdict::Differs }
    }

    fn rate(value: &'static str, values: [Option<f64>; 2]) -> Self {
        let verdict = match values {
            [Some(_), Some(_)] => Verdict::OneValue,
            [None, None] => Verdict::Equal,
            _ => Verdict::OneOnly,
        };
        Self { value, values, bounds: [None, None], verdict }
    }

    /// B less A, where both are there.
    #[must_use]
    pub fn difference(&self) -> Option<f64> {
        let [a, b] = self.values;
        Some(b? - a?)
    }

    /// B as a multiple of A, where that is a number.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        let [a, b] = self.values;
        let ratio = b? / a?;
        ratio.is_finite().then_some(ratio)
    }
}

/// Times of one kind in both.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    /// What they are of.
    pub key: Key,
    /// How many samples.
    pub samples: [u64; 2],
    /// Median and 99th percentile.
    pub quantiles: Vec<Pairing>,
    /// How often a time of B is the longer one, where both have some.
    pub longer_in_b: Option<f64>,
}

impl Times {
    /// What the difference weighs: that of the medians, as often as it is there.
    fn weight(&self) -> f64 {
        let median = self.quantiles.first().and_then(Pairing::difference).unwrap_or(0.0);
        median.abs() * self.samples.into_iter().min().unwrap_or(0) as f64
    }
}

/// Traffic between two ranks or endpoints in both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairTraffic {
    /// Sender and receiver.
    pub pair: (Label, Label),
    /// In A and in B; nothing where there is none.
    pub cells: [Cell; 2],
}

impl PairTraffic {
    /// What the difference weighs, in bytes on the wire.
    fn weight(&self) -> u64 {
        self.cells[0].wire_bytes.abs_diff(self.cells[1].wire_bytes)
    }

    /// Its values.
    #[must_use]
    pub fn values(&self) -> Vec<Pairing> {
        let of =
            |value, get: &dyn Fn(&Cell) -> Option<u64>| Pairing::count(value, get(&self.cells[0]), get(&self.cells[1]));
        // No MPI message and no library are no difference.
        let mpi = self.cells.iter().any(|cell| cell.mpi_bytes.is_some());
        vec![
            of("messages", &|cell| Some(cell.messages)),
            of("mpi_bytes", &|cell| mpi.then(|| cell.mpi_bytes.unwrap_or(0))),
            of("payload_bytes", &|cell| Some(cell.payload_bytes)),
            of("wire_bytes", &|cell| Some(cell.wire_bytes)),
            of("packets", &|cell| Some(cell.packets)),
        ]
    }
}

/// Two profiles side by side.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// What they are called.
    pub names: [String; 2],
    /// What pairs are of.
    pub by: By,
    /// Where the ranks are.
    pub placements: Placements,
    /// Sums.
    pub totals: Vec<Pairing>,
    /// Pairs, those with most difference first.
    pub pairs: Vec<PairTraffic>,
    /// Times, those with most difference first.
    pub times: Vec<Times>,
    /// Rates: means, and peaks over a window.
    pub rates: Vec<(&'static str, Pairing)>,
    /// Length of that window in each, in nanoseconds.
    pub windows_ns: [i64; 2],
    /// What went wrong.
    pub health: Vec<Pairing>,
}

/// Compares two profiles. Without `by`, pairs are of ranks where both know some.
pub fn compare(profiles: [&Profile; 2], names: [String; 2], by: Option<By>) -> Result<Comparison, AnalysisError> {
    let know_ranks = profiles.iter().all(|profile| !profile.ranks.is_empty());
    let by = by.unwrap_or(if know_ranks { By::Rank } else { By::Endpoint });
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

fn totals(profiles: [&Profile; 2], placements: &Placements) -> Vec<Pairing> {
    let sums = profiles.map(Totals::of);
    let count = |value, of: fn(&Totals<'_>) -> u64| Pairing::count(value, Some(of(&sums[0])), Some(of(&sums[1])));
    let of = |value, get: fn(&Traffic) -> u64| {
        Pairing::count(value, Some(get(&sums[0].traffic)), Some(get(&sums[1].traffic)))
    };
    let mpi = |value, get: fn(&Traffic) -> u64| Pairing::count(value, sums[0].mpi(get), sums[1].mpi(get));
    let span = |profile: &Profile| {
        let (first, last) = profile.coverage.first_time_ns.zip(profile.coverage.last_time_ns)?;
        Some(last.abs_diff(first) as f64)
    };
    let ranks = profiles.map(|profile| {
        let ranks: std::collections::BTreeSet<(u32, u32)> =
            profile.ranks.iter().map(|row| (row.job, row.rank)).collect();
        Some(ranks.len() as u64)
    });
    let on_one_node = placements.pairs_on_one_node;
    vec![
        Pairing::rate("time_ns", profiles.map(span)),
        Pairing::count("ranks", ranks[0], ranks[1]),
        Pairing::count("pairs_on_one_node", Some(on_one_node[0]), Some(on_one_node[1])),
        count("connections", |totals| totals.connections),
        of("packets", |traffic| traffic.packets),
        of("wire_bytes", |traffic| traffic.wire_bytes),
        of("payload_bytes", |traffic| traffic.payload_bytes),
        of("messages", |traffic| traffic.messages),
        mpi("p2p_messages", |traffic| traffic.p2p_messages),
        mpi("p2p_mpi_bytes", |traffic| traffic.p2p_mpi_bytes),
        mpi("collective_messages", |traffic| traffic.collective_messages),
        mpi("collective_mpi_bytes", |traffic| traffic.collective_mpi_bytes),
    ]
}

/// Pairs of both, those with most difference first.
#[must_use]
pub fn pairs(profiles: [&Profile; 2], by: By, selection: Selection) -> Vec<PairTraffic> {
    // An endpoint is the same one where only one of the two knows its name.
    let name = |endpoint: &Endpoint| profiles.iter().find_map(|profile| profile.names.get(endpoint).cloned());
    let label = |label: &Label| match label {
        Label::Endpoint(endpoint, _) => Label::Endpoint(*endpoint, name(endpoint)),
        // The job of each side has a number of its own.
        Label::Rank(JobRank { rank, .. }, Jobs::One) => Label::only(*rank),
        Label::Unknown(_, Jobs::One) => Label::Unknown(1, Jobs::One),
        other => other.clone(),
    };
    let mut table: BTreeMap<(Label, Label), [Cell; 2]> = BTreeMap::new();
    for (index, profile) in profiles.into_iter().enumerate() {
        let matrix = matrix::matrix(profile, by, selection);
        for (src, dst, cell) in matrix.rows() {
            table.entry((label(src), label(dst))).or_default()[index] = *cell;
        }
    }
    let mut pairs: Vec<PairTraffic> = table.into_iter().map(|(pair, cells)| PairTraffic { pair, cells }).collect();
    // Equal ones stay in the order of their names.
    pairs.sort_by_key(|pair| std::cmp::Reverse(pair.weight()));
    pairs
}

fn times(profiles: [&Profile; 2]) -> Vec<Times> {
    let [a, b] = profiles.map(|profile| latencies(profile, Apart { by: None, sizes: true }));
    let nothing = Histogram::default();
    let mut keys: Vec<&Key> = a.keys().chain(b.keys()).collect();
    keys.sort();
    keys.dedup();
    let of = |key: &Key| {
        let both = [a.get(key).unwrap_or(&nothing), b.get(key).unwrap_or(&nothing)];
        let samples = both.map(Histogram::samples);
        let quantile = |(value, share): (&'static str, f64)| {
            let known = both.map(|times| (times.samples() > 0).then(|| times.quantile(share) as f64));
            let bounds = both.map(|times| bounds(times, share));
            let verdict = match (samples, bounds) {
                ([0, _] | [_, 0], _) => Verdict::OneOnly,
                (_, [Some(a), Some(b)]) if a.high_ns < b.low_ns || b.high_ns < a.low_ns => Verdict::BeyondChance,
                (_, [Some(_), Some(_)]) => Verdict::WithinChance,
                _ => Verdict::TooFew,
            };
            Pairing { value, values: known, bounds, verdict }
        };
        Times {
            key: key.clone(),
            samples,
            quantiles: QUANTILES.into_iter().map(quantile).collect(),
            longer_in_b: share_longer(both[0], both[1]),
        }
    };
    let mut times: Vec<Times> = keys.into_iter().map(of).collect();
    let verdict = |times: &Times| times.quantiles.first().map_or(Verdict::Equal, |median| median.verdict);
    times.sort_by(|one, other| verdict(one).cmp(&verdict(other)).then(other.weight().total_cmp(&one.weight())));
    times
}

/// Rates by `mean` or `peak`, and the window of the peaks in each.
type RatesOfBoth = (Vec<(&'static str, Pairing)>, [i64; 2]);

fn compare_rates(profiles: [&Profile; 2]) -> Result<RatesOfBoth, AnalysisError> {
    // Peaks are comparable over windows of one length, so of the coarser bins.
    let coarser_ns = profiles.iter().map(|profile| profile.bin_ns).max().unwrap_or(0);
    let window_ns = rates::DEFAULT_WINDOW_NS.max(coarser_ns);
    let [a, b] = profiles.map(|profile| rates::rates(profile, None, None, window_ns));
    let both = [a?, b?];
    let mut table = Vec::new();
    for (index, value) in VALUES.into_iter().enumerate() {
        let of = |get: &dyn Fn(&rates::Rates) -> f64| {
            both.each_ref().map(|rates| rates.total.known(index, 0).map(|_| get(rates)))
        };
        table.push(("mean", Pairing::rate(value, of(&|rates| rates.mean(rates.total.sums[index])))));
        table.push(("peak", Pairing::rate(value, of(&|rates| rates.peak(rates.total.peaks[index])))));
    }
    Ok((table, both.map(|rates| rates.window_ns)))
}

fn compare_health(profiles: [&Profile; 2]) -> Vec<Pairing> {
    let [a, b] = profiles.map(health::total);
    a.into_iter().zip(b).map(|((name, a), (_, b))| Pairing::count(name, Some(a), Some(b))).collect()
}
