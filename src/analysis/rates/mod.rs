//! Profile -> rates over time in even bins, their peaks over a window, and how large packets and messages are; in total and by pair.
//!
//! The numbers are those of the timeline. What is new is their form: bins without gaps of any width (`even`), and the window of a given
//! length in which most was sent ([`Peak`]), which is looked for in the finest bins that there are.

mod even;

use super::AnalysisError;
use super::endpoint_label::{By, EndpointLabels, Label};
use crate::model::profile::TimelineRow;
use crate::model::{Kind, Profile, SizeClass, SizeOf, SizeSums};
use even::Even;
use std::collections::BTreeMap;

/// Length of the window unless another is asked for: 100 ms.
pub const DEFAULT_WINDOW_NS: i64 = 100_000_000;
/// Rows that are written at most: bins times pairs.
const MAX_ROWS: i128 = 1 << 26;
/// Rows where nobody has asked for a width: neither a clock that jumps by days nor many pairs may make a small capture a
/// large csv.
const MAX_ROWS_UNASKED: i128 = 1 << 20;

/// What has a rate, by its name in outputs.
pub const VALUES: [&str; 6] = ["wire_bytes", "payload_bytes", "packets", "messages", "mpi_messages", "mpi_bytes"];
/// Where they stand in it.
pub(crate) const WIRE_BYTES: usize = 0;
pub(crate) const PAYLOAD_BYTES: usize = 1;
pub(crate) const PACKETS: usize = 2;
pub(crate) const MESSAGES: usize = 3;
pub(crate) const MPI_MESSAGES: usize = 4;
pub(crate) const MPI_BYTES: usize = 5;

/// Sums in the order of [`VALUES`].
pub type Values = [u64; VALUES.len()];

/// The window in which most was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// Its sum.
    pub sum: u64,
    /// Its start in nanoseconds since the epoch; the earliest of several.
    pub start_ns: i64,
}

/// What one sender sent to one receiver over time, or all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateSeries {
    /// The sums over all time.
    pub sums: Values,
    /// Peaks in the order of [`VALUES`], each with its own window.
    pub peaks: [Peak; VALUES.len()],
    /// An MPI library was recognised.
    pub has_mpi: bool,
    /// Sizes of packets and messages; each counts once, whatever was sent again.
    pub sizes: BTreeMap<(SizeOf, SizeClass), SizeSums>,
    /// Start and sums of the bins of the profile that are not empty.
    fine: BTreeMap<i64, Values>,
}

/// Rates over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rates {
    /// What pairs are of; `None` where they are not told apart.
    pub by: Option<By>,
    /// Width of a bin in nanoseconds.
    pub bin_ns: i64,
    /// Width of the bins of the profile, which is the resolution of the peaks.
    pub fine_ns: i64,
    /// Length of the window of the peaks: whole bins of the profile, as many as are asked for or there are.
    pub window_ns: i64,
    /// Start of the first and end of the last bin of the profile: means are over this time.
    pub span_ns: (i64, i64),
    /// The first packet of the captures, from which times are told, in nanoseconds since the epoch.
    pub origin_ns: i64,
    /// MPI messages were looked for.
    pub mpi_read: bool,
    /// All pairs together.
    pub total: RateSeries,
    /// Each pair.
    pub pairs: BTreeMap<(Label, Label), RateSeries>,
}

impl RateSeries {
    fn add(&mut self, row: &TimelineRow, has_mpi: bool) {
        let traffic = &row.traffic;
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

    /// The value, where it is known: those of MPI only where a library was recognised.
    #[must_use]
    pub fn known(&self, index: usize, value: u64) -> Option<u64> {
        (index < MPI_MESSAGES || self.has_mpi).then_some(value)
    }
}

fn add(sums: &mut Values, values: &Values) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum = sum.saturating_add(*value);
    }
}

impl Rates {
    /// The bins of a course, all of them, in the order of time: start and sums.
    pub fn bins<'a>(&self, course: &'a RateSeries) -> impl Iterator<Item = (i64, Values)> + use<'a> {
        Even::new(&course.fine, self.fine_ns, self.grid(), self.bin_ns)
    }

    /// How many bins there are.
    #[must_use]
    pub fn count(&self) -> i128 {
        let (first, end) = self.grid();
        (end - first) / i128::from(self.bin_ns)
    }

    /// Makes the bins twice as wide until there are no more rows than are written where nobody has asked for a width.
    #[must_use]
    pub fn widened(mut self) -> Self {
        // Times on both sides of 0 take two bins, however wide these are.
        let most = (MAX_ROWS_UNASKED / (self.pairs.len().max(1) as i128)).max(2);
        while self.count() > most {
            self.bin_ns = self.bin_ns.saturating_mul(2);
        }
        self
    }

    /// Start of the first and end of the last bin.
    fn grid(&self) -> (i128, i128) {
        let (bin_ns, start, end) = (i128::from(self.bin_ns), i128::from(self.span_ns.0), i128::from(self.span_ns.1));
        let next = (end + bin_ns - 1).div_euclid(bin_ns) * bin_ns;
        if start < end { (start.div_euclid(bin_ns) * bin_ns, next) } else { (0, 0) }
    }

    /// True where the profile's bins had to be shared out among those asked for.
    #[must_use]
    pub fn is_shared_out(&self) -> bool {
        self.bin_ns % self.fine_ns != 0
    }

    /// A sum as its mean rate per second.
    #[must_use]
    pub fn mean(&self, sum: u64) -> f64 {
        // At the end of what 64 bits hold a bin is cut short, and not what lies in it.
        per_second(sum, self.span_ns.1.saturating_sub(self.span_ns.0).max(self.fine_ns))
    }

    /// The rate of a peak per second.
    #[must_use]
    pub fn peak(&self, peak: Peak) -> f64 {
        per_second(peak.sum, self.window_ns)
    }

    /// Refuses to write more rows, of bins and pairs, than anyone can want.
    pub fn check_rows(&self) -> Result<(), AnalysisError> {
        check(self.count() * (self.pairs.len().max(1) as i128))
    }

    /// The same for what shows all pairs together.
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

/// The rates of a profile, in bins of `bin_ns` or, without it, in those of the profile. The window is rounded up to whole bins of the profile.
pub fn rates(profile: &Profile, by: Option<By>, bin_ns: Option<i64>, window_ns: i64) -> Result<Rates, AnalysisError> {
    let fine_ns = profile.bin_ns;
    if fine_ns <= 0 {
        return Err(AnalysisError::NoTimeline);
    }
    let who = EndpointLabels::new(profile, by.unwrap_or(By::Endpoint));
    let mut total = RateSeries::default();
    let mut pairs: BTreeMap<(Label, Label), RateSeries> = BTreeMap::new();
    let data = |index: u32| profile.connections.get(index as usize).filter(|connection| connection.kind == Kind::Data);
    for row in &profile.timeline {
        let Some(connection) = data(row.connection) else { continue };
        let has_mpi = profile.mpi_read && connection.stack.is_some();
        total.add(row, has_mpi);
        if by.is_some() {
            let pair = (who.sender(connection), who.receiver(connection));
            pairs.entry(pair).or_default().add(row, has_mpi);
        }
    }
    for row in &profile.sizes {
        let Some(connection) = data(row.connection) else { continue };
        let pair = by.is_some().then(|| pairs.get_mut(&(who.sender(connection), who.receiver(connection)))).flatten();
        for course in [Some(&mut total), pair].into_iter().flatten() {
            course.sizes.entry((row.of, row.size)).and_modify(|sums| *sums += row.sums).or_insert(row.sums);
        }
    }
    let ends = total.fine.keys().next().zip(total.fine.keys().next_back());
    let span_ns = ends.map_or((0, 0), |(first, last)| (*first, last.saturating_add(fine_ns)));
    let most = span_ns.1.saturating_sub(span_ns.0).max(fine_ns);
    let window_ns = whole_bins(window_ns.max(1), fine_ns).min(most);
    for course in std::iter::once(&mut total).chain(pairs.values_mut()) {
        course.peaks = even::peaks(&course.fine, window_ns, span_ns);
    }
    let bin_ns = bin_ns.unwrap_or(fine_ns);
    let origin_ns = super::origin_ns(profile, Some(span_ns.0));
    Ok(Rates { by, bin_ns, fine_ns, window_ns, span_ns, origin_ns, mpi_read: profile.mpi_read, total, pairs })
}

/// A length rounded up to whole bins.
fn whole_bins(length_ns: i64, bin_ns: i64) -> i64 {
    let bin_ns = i128::from(bin_ns);
    i64::try_from((i128::from(length_ns) + bin_ns - 1) / bin_ns * bin_ns).unwrap_or(i64::MAX)
}
