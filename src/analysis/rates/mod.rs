//! Profile -> rates over time, peak rates over a window, and sizes of packets and messages, in
//! total and by pair.
//!
//! In: the timeline of a [`Profile`], or for totals and classes that of its senders, whose bins may
//! be narrower. Out: [`Rates`] in bins without gaps of any width (`even_bins.rs`), and the window
//! of a given length with the most traffic ([`Peak`]). Peaks come from the bins of the profile,
//! regardless of the width of the output bins.

mod even_bins;

use super::AnalysisError;
use super::endpoint_label::{EndpointLabels, GroupBy, Label};
use super::matrix::{CountingRule, Selection};
use crate::model::profile::TimelineRow;
use crate::model::{
    ClassSet, ConnectionClass, PairEstimators, Profile, SizeCategory, SizeClass, SizeSums, TrafficKind,
};
use even_bins::EvenBins;
use std::collections::BTreeMap;

/// Default length of the peak window: 100 ms.
pub const DEFAULT_WINDOW_NS: i64 = 100_000_000;
/// Limit of the rows of an output: bins times pairs.
const MAX_ROWS: i128 = 1 << 26;
/// Limit of the rows if the user chose no bin width: neither a clock that jumps by days nor many
/// pairs may turn a small capture into a large csv.
const MAX_ROWS_UNASKED: i128 = 1 << 20;

/// Names of the values with a rate, as in outputs.
pub const VALUES: [&str; 6] = ["wire_bytes", "payload_bytes", "packets", "messages", "mpi_messages", "mpi_bytes"];
/// Indices into [`VALUES`].
pub(crate) const WIRE_BYTES: usize = 0;
pub(crate) const PAYLOAD_BYTES: usize = 1;
pub(crate) const PACKETS: usize = 2;
pub(crate) const MESSAGES: usize = 3;
pub(crate) const MPI_MESSAGES: usize = 4;
pub(crate) const MPI_BYTES: usize = 5;

/// Sums in the order of [`VALUES`].
pub type RateValues = [u64; VALUES.len()];

/// The grouping of `rates`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateGrouping {
    /// Pairs of endpoints or ranks.
    Pairs(GroupBy),
    /// Classes of connections.
    Class,
}

impl RateGrouping {
    /// The name used in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pairs(by) => by.name(),
            Self::Class => "class",
        }
    }
}

/// The window with the largest sum of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// The sum in the window.
    pub sum: u64,
    /// Start of the window in nanoseconds since the epoch; the earliest of several equal windows.
    pub start_ns: i64,
}

/// The traffic of one pair over time, or of all pairs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateSeries {
    /// Sums over the whole time.
    pub sums: RateValues,
    /// Peaks in the order of [`VALUES`], each in its own window.
    pub peaks: [Peak; VALUES.len()],
    /// True if an MPI library was detected.
    pub has_mpi: bool,
    /// Classes of the connections.
    pub classes: ClassSet,
    /// Sizes of packets and messages; retransmissions do not count.
    pub sizes: BTreeMap<(SizeCategory, SizeClass), SizeSums>,
    /// For a sampled capture, the estimators of the sums.
    pub estimators: Option<PairEstimators>,
    /// Sums of the non-empty profile bins by start time.
    fine: BTreeMap<i64, RateValues>,
    /// For a sampled capture, the estimators of these sums.
    fine_estimators: BTreeMap<i64, PairEstimators>,
}

/// Rates over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rates {
    /// The grouping; `None` for the total only.
    pub by: Option<RateGrouping>,
    /// Width of a bin in nanoseconds.
    pub bin_ns: i64,
    /// Width of a profile bin in nanoseconds, which is the resolution of the peaks.
    pub fine_ns: i64,
    /// Length of the peak window in nanoseconds: the requested length in whole bins of the profile,
    /// at most their span.
    pub window_ns: i64,
    /// Start of the first and end of the last bin of the profile.
    pub span_ns: (i64, i64),
    /// Times of the first and the last packet within that span, which do not depend on the bins.
    /// Means are over this time.
    pub traffic_ns: (i64, i64),
    /// Origin of relative times (the first packet of the captures), in nanoseconds since the epoch.
    pub origin_ns: i64,
    /// Time of the last packet of the captures, in nanoseconds since the epoch. A bin that ends
    /// later is only partly captured.
    pub captured_until_ns: i64,
    /// True if the analysis looked for MPI messages.
    pub mpi_read: bool,
    /// For a sampled capture, the sentence on sampling.
    pub sampled: Option<String>,
    /// All pairs together.
    pub total: RateSeries,
    /// The series of each pair.
    pub pairs: BTreeMap<(Label, Label), RateSeries>,
    /// The series of each class.
    pub classes: BTreeMap<ConnectionClass, RateSeries>,
}

impl RateSeries {
    fn add(&mut self, row: &TimelineRow, has_mpi: bool, class: ConnectionClass) {
        let traffic = &row.traffic;
        self.classes.insert(class);
        let values = [
            traffic.wire_bytes,
            traffic.payload_bytes,
            traffic.packets,
            traffic.messages,
            traffic.p2p_messages + traffic.collective_messages,
            traffic.p2p_mpi_bytes.saturating_add(traffic.collective_mpi_bytes),
        ];
        add(&mut self.sums, &values);
        add(self.fine.entry(row.time_ns).or_default(), &values);
        self.has_mpi |= has_mpi;
    }

    /// Adds the estimators of a connection, or with a time those of its part in a bin.
    fn estimate(&mut self, own: &PairEstimators, time_ns: Option<i64>) {
        let estimators = match time_ns {
            None => self.estimators.get_or_insert_default(),
            Some(time_ns) => self.fine_estimators.entry(time_ns).or_default(),
        };
        estimators.merge(own);
    }

    /// The value if it is known: MPI values are unknown if no library was detected.
    #[must_use]
    pub fn known(&self, index: usize, value: u64) -> Option<u64> {
        (index < MPI_MESSAGES || self.has_mpi).then_some(value)
    }
}

fn add(sums: &mut RateValues, values: &RateValues) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum = sum.saturating_add(*value);
    }
}

impl Rates {
    /// All bins of a series in time order: start and sums.
    pub fn bins<'a>(&self, series: &'a RateSeries) -> impl Iterator<Item = (i64, RateValues)> + use<'a> {
        EvenBins::new(&series.fine, self.fine_ns, self.grid(), self.bin_ns)
    }

    /// For a sampled capture, the estimators of the bin that starts at `time_ns`; `None` if the
    /// bins are not whole bins of the profile.
    #[must_use]
    pub fn bin_estimators(&self, series: &RateSeries, time_ns: i64) -> Option<PairEstimators> {
        let end_ns = time_ns.saturating_add(self.bin_ns);
        let bins = series.fine_estimators.range(time_ns..end_ns.max(time_ns));
        (self.sampled.is_some() && !self.is_shared_out()).then(|| {
            bins.fold(PairEstimators::default(), |mut all, (_, own)| {
                all.merge(own);
                all
            })
        })
    }

    /// Number of bins.
    #[must_use]
    pub fn count(&self) -> i128 {
        let (first, end) = self.grid();
        (end - first) / i128::from(self.bin_ns)
    }

    /// Doubles the bin width until the output is within the limit for runs without a chosen bin
    /// width.
    #[must_use]
    pub fn widened(mut self) -> Self {
        // A span that contains time 0 needs two bins, however wide they are.
        let most = (MAX_ROWS_UNASKED / self.series()).max(2);
        while self.count() > most {
            self.bin_ns = self.bin_ns.saturating_mul(2);
        }
        self
    }

    /// Number of series in an output, at least 1.
    fn series(&self) -> i128 {
        self.pairs.len().max(self.classes.len()).max(1) as i128
    }

    /// Start of the first and end of the last bin.
    fn grid(&self) -> (i128, i128) {
        let (bin_ns, start, end) = (i128::from(self.bin_ns), i128::from(self.span_ns.0), i128::from(self.span_ns.1));
        let next = (end + bin_ns - 1).div_euclid(bin_ns) * bin_ns;
        if start < end { (start.div_euclid(bin_ns) * bin_ns, next) } else { (0, 0) }
    }

    /// True if profile bins had to be split because the bin width is no multiple of theirs.
    #[must_use]
    pub fn is_shared_out(&self) -> bool {
        self.bin_ns % self.fine_ns != 0
    }

    /// The mean rate of a sum per second.
    #[must_use]
    pub fn mean(&self, sum: u64) -> f64 {
        per_second(sum, self.traffic_length_ns())
    }

    /// Length of the time with traffic in nanoseconds; a bin if all packets have one time.
    #[must_use]
    pub fn traffic_length_ns(&self) -> i64 {
        match self.traffic_ns.1.saturating_sub(self.traffic_ns.0) {
            0 => self.fine_ns,
            length_ns => length_ns,
        }
    }

    /// Length of the time with traffic, if that of the captures differs by more than 1 % and means
    /// would seem wrong.
    #[must_use]
    pub fn own_length_ns(&self) -> Option<i64> {
        let (own, all) = (self.traffic_length_ns(), self.captured_until_ns.saturating_sub(self.origin_ns));
        (i128::from(own.abs_diff(all)) * 100 > i128::from(all)).then_some(own)
    }

    /// The rate of a peak per second.
    #[must_use]
    pub fn peak(&self, peak: Peak) -> f64 {
        // A window that is longer than the traffic holds all of it: its rate is the mean.
        per_second(peak.sum, self.window_ns.min(self.traffic_length_ns()))
    }

    /// Fails if bins times pairs exceed the limit of rows.
    pub fn check_rows(&self) -> Result<(), AnalysisError> {
        check(self.count() * self.series())
    }

    /// Fails if the bins exceed the limit of rows, for outputs of all pairs together.
    pub fn check_bins(&self) -> Result<(), AnalysisError> {
        check(self.count())
    }
}

const fn check(rows: i128) -> Result<(), AnalysisError> {
    if rows > MAX_ROWS { Err(AnalysisError::TooManyBins { rows, most: MAX_ROWS }) } else { Ok(()) }
}

pub(crate) fn per_second(sum: u64, ns: i64) -> f64 {
    if ns > 0 { sum as f64 * 1e9 / ns as f64 } else { 0.0 }
}

/// Computes the rates of a profile, in bins of `bin_ns` or, if it is `None`, of the profile's
/// width, and those of each pair. The peak window is rounded up to whole bins of the profile. Fails
/// if the profile has no timeline.
pub fn rates(
    profile: &Profile,
    by: Option<GroupBy>,
    bin_ns: Option<i64>,
    window_ns: i64,
) -> Result<Rates, AnalysisError> {
    grouped_rates(profile, by.map(RateGrouping::Pairs), bin_ns, window_ns)
}

/// Like [`rates`], with the rates of each pair or class.
pub fn grouped_rates(
    profile: &Profile,
    by: Option<RateGrouping>,
    bin_ns: Option<i64>,
    window_ns: i64,
) -> Result<Rates, AnalysisError> {
    let pairs_by = if let Some(RateGrouping::Pairs(by)) = by { Some(by) } else { None };
    // Only connections have receivers and estimates.
    let (rows, fine_ns) = if pairs_by.is_some() || profile.sampling.is_some() {
        (&profile.timeline[..], profile.bin_ns)
    } else {
        profile.sender_series()
    };
    if fine_ns <= 0 {
        return Err(AnalysisError::NoTimeline);
    }
    let labels = EndpointLabels::new(profile, pairs_by.unwrap_or(GroupBy::Endpoint));
    let mut total = RateSeries::default();
    let mut pairs: BTreeMap<(Label, Label), RateSeries> = BTreeMap::new();
    let mut classes: BTreeMap<ConnectionClass, RateSeries> = BTreeMap::new();
    let data =
        |index: u32| profile.connections.get(index as usize).filter(|connection| connection.kind == TrafficKind::Data);
    for row in rows {
        let Some(connection) = data(row.connection) else { continue };
        let has_mpi = profile.mpi_read && connection.stack.is_some();
        let class = connection.class;
        total.add(row, has_mpi, class);
        if pairs_by.is_some() {
            let pair = (labels.sender(connection), labels.receiver(connection));
            pairs.entry(pair).or_default().add(row, has_mpi, class);
        }
        if by == Some(RateGrouping::Class) {
            classes.entry(class).or_default().add(row, has_mpi, class);
        }
    }
    estimate(profile, &labels, &mut total, &mut pairs, &mut classes);
    for row in &profile.sizes {
        let Some(connection) = data(row.connection) else { continue };
        let pair = pairs_by.and_then(|_| pairs.get_mut(&(labels.sender(connection), labels.receiver(connection))));
        for series in [Some(&mut total), pair, classes.get_mut(&connection.class)].into_iter().flatten() {
            series.sizes.entry((row.category, row.size)).and_modify(|sums| *sums += row.sums).or_insert(row.sums);
        }
    }
    let ends = total.fine.keys().next().zip(total.fine.keys().next_back());
    let span_ns = ends.map_or((0, 0), |(first, last)| (*first, last.saturating_add(fine_ns)));
    let most = span_ns.1.saturating_sub(span_ns.0).max(fine_ns);
    let traffic_ns = traffic_ns(profile, span_ns);
    let window_ns = match whole_bins(window_ns.max(1), fine_ns).min(most) {
        long_ns if long_ns >= traffic_ns.1.saturating_sub(traffic_ns.0) => most,
        window_ns => window_ns,
    };
    for series in std::iter::once(&mut total).chain(pairs.values_mut()).chain(classes.values_mut()) {
        series.peaks = even_bins::peaks(&series.fine, window_ns, span_ns);
    }
    let bin_ns = bin_ns.unwrap_or(fine_ns);
    let origin_ns = super::origin_ns(profile, Some(span_ns.0));
    let captured_until_ns = profile.coverage.last_time_ns.unwrap_or(span_ns.1);
    let mpi_read = profile.mpi_read;
    let sampled = profile.sampling.map(|sampling| sampling.describe());
    Ok(Rates {
        by,
        bin_ns,
        fine_ns,
        window_ns,
        span_ns,
        traffic_ns,
        origin_ns,
        captured_until_ns,
        mpi_read,
        sampled,
        total,
        pairs,
        classes,
    })
}

/// Adds the estimators of a sampled capture to the series of all pairs, of each pair and of each
/// class.
fn estimate(
    profile: &Profile,
    labels: &EndpointLabels<'_>,
    total: &mut RateSeries,
    pairs: &mut BTreeMap<(Label, Label), RateSeries>,
    classes: &mut BTreeMap<ConnectionClass, RateSeries>,
) {
    let Some(sampling) = profile.sampling else { return };
    let whole = (0..).zip(&profile.connections).map(|(index, _)| (index, None));
    let bins = profile.timeline.iter().map(|row| (row.connection, Some(row)));
    for (index, row) in whole.chain(bins) {
        let connection = profile.connections.get(index as usize);
        let Some(connection) = connection.filter(|connection| connection.kind == TrafficKind::Data) else { continue };
        let rule = CountingRule::of(profile, connection, GroupBy::Endpoint, Selection::All);
        let own = rule.estimators(connection, row.map(|row| &row.traffic), sampling.quality());
        let pair = pairs.get_mut(&(labels.sender(connection), labels.receiver(connection)));
        for series in std::iter::once(&mut *total).chain(pair).chain(classes.get_mut(&connection.class)) {
            series.estimate(&own, row.map(|row| row.time_ns));
        }
    }
}

/// Times of the first and the last packet within the bins of `span_ns`. A window of a profile is
/// whole bins, and connections may begin before it.
fn traffic_ns(profile: &Profile, span_ns: (i64, i64)) -> (i64, i64) {
    let data = profile.connections.iter().filter(|connection| connection.kind == TrafficKind::Data);
    // A connection without any timestamp has its last time before its first.
    let timed = data.filter(|connection| connection.first_time_ns <= connection.last_time_ns);
    let times = timed.map(|connection| (connection.first_time_ns, connection.last_time_ns));
    let exact = times.reduce(|all, own| (all.0.min(own.0), all.1.max(own.1))).unwrap_or(span_ns);
    (exact.0.max(span_ns.0), exact.1.min(span_ns.1))
}

/// A length rounded up to whole bins.
fn whole_bins(length_ns: i64, bin_ns: i64) -> i64 {
    let bin_ns = i128::from(bin_ns);
    i64::try_from((i128::from(length_ns) + bin_ns - 1) / bin_ns * bin_ns).unwrap_or(i64::MAX)
}
