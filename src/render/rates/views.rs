//! The described tables of rates: bins, peaks and sizes.

use crate::analysis::Label;
use crate::analysis::rates::{
    MESSAGES, MPI_BYTES, MPI_MESSAGES, PACKETS, PAYLOAD_BYTES, Peak, RateSeries, RateValues, Rates, VALUES, WIRE_BYTES,
    per_second,
};
use crate::model::column::ColumnUnit::{
    Bytes, BytesPerSecond, Count, Name, Nanoseconds, OfValue, PerSecond, Timestamp,
};
use crate::model::column::{ColumnDescription, ColumnType, ColumnUnit};
use crate::model::sampling::{Estimate, EstimateQuality, EstimatedSum};
use crate::model::{ConnectionClass, PairEstimators, SizeCategory, SizeClass, SizeSums};
use crate::render::table::groups::{self, HasEstimates, HasPair};
use crate::render::table::{ColumnValue, CsvRows, Table};
use crate::render::units::{self, bits_per_second, bytes, bytes_per_second, group, seconds_since, size_range};
use std::borrow::Cow;
use std::io::{self, Write};

/// The rates of one pair or class, or without both of all traffic.
#[derive(Clone, Copy)]
pub(super) struct PairRates<'a> {
    pub(super) rates: &'a Rates,
    pub(super) pair: Option<&'a (Label, Label)>,
    pub(super) class: Option<ConnectionClass>,
    pub(super) series: &'a RateSeries,
}

impl<'a> PairRates<'a> {
    /// All pairs together.
    pub(super) const fn total(rates: &'a Rates) -> Self {
        Self { rates, pair: None, class: None, series: &rates.total }
    }

    /// Each pair.
    pub(super) fn pairs(rates: &'a Rates) -> impl Iterator<Item = Self> {
        rates.pairs.iter().map(move |(pair, series)| Self { rates, pair: Some(pair), class: None, series })
    }

    /// Each class.
    pub(super) fn classes(rates: &'a Rates) -> impl Iterator<Item = Self> {
        rates.classes.iter().map(move |(class, series)| Self { rates, pair: None, class: Some(*class), series })
    }

    /// All traffic, then each pair or class.
    fn all(rates: &'a Rates) -> impl Iterator<Item = Self> {
        std::iter::once(Self::total(rates)).chain(Self::pairs(rates)).chain(Self::classes(rates))
    }

    /// The classes of the rows.
    pub(super) fn class_names(&self) -> Vec<Cow<'a, str>> {
        match self.class {
            Some(class) => vec![Cow::Borrowed(class.name())],
            None => groups::class_names(self.series.classes),
        }
    }

    pub(super) fn pair(&self) -> Option<(&Label, &Label)> {
        self.pair.map(|(src, dst)| (src, dst))
    }

    /// The peaks of the known values.
    pub(super) fn peaks(self) -> impl Iterator<Item = PeakRow<'a>> {
        (0..VALUES.len()).filter_map(move |index| self.peak(index))
    }

    /// The peak of the value at `index` of [`VALUES`], if the value is known.
    pub(super) fn peak(self, index: usize) -> Option<PeakRow<'a>> {
        let sum = self.series.known(index, self.series.sums[index])?;
        Some(PeakRow { series: self, index, sum })
    }

    /// The sizes of packets and messages.
    pub(super) fn sizes(self) -> impl Iterator<Item = RateSizeRow<'a>> {
        self.series.sizes.iter().map(move |((of, class), sums)| RateSizeRow {
            series: self,
            of: *of,
            class: *class,
            sums,
        })
    }
}

/// One bin of a pair, a row of `--view bins`.
pub(in crate::render) struct BinRow<'a> {
    series: PairRates<'a>,
    time_ns: i64,
    sums: RateValues,
    /// For a sampled capture, the estimators of the sums.
    estimators: Option<PairEstimators>,
}

impl HasEstimates for BinRow<'_> {
    fn estimators(&self) -> Option<&PairEstimators> {
        self.estimators.as_ref()
    }
}

/// The peak of one value, a row of `--view peaks`.
pub(in crate::render) struct PeakRow<'a> {
    series: PairRates<'a>,
    /// Index of the value in [`VALUES`].
    index: usize,
    sum: u64,
}

impl PeakRow<'_> {
    const fn peak(&self) -> Peak {
        self.series.series.peaks[self.index]
    }

    const fn is_bytes(&self) -> bool {
        matches!(COLUMNS[self.index].0, Bytes)
    }

    /// The estimate of the sum in a sampled capture; unknown for MPI messages, whose lengths a
    /// sample rarely shows.
    pub(super) fn estimate(&self) -> Estimate {
        let sum = match self.index {
            WIRE_BYTES => EstimatedSum::WIRE_BYTES,
            PAYLOAD_BYTES => EstimatedSum::PAYLOAD_BYTES,
            PACKETS => EstimatedSum::PACKETS,
            MESSAGES => EstimatedSum::MESSAGES,
            _ => return Estimate::Unknown,
        };
        self.series.series.estimators.as_ref().map_or(Estimate::Unknown, |pair| sum.estimate(pair))
    }

    /// Formats a rate of the value. The rate on the wire has a second line in the unit of links.
    fn rate(&self, rate: f64) -> String {
        match self.index {
            WIRE_BYTES => format!("{}\n{}", bytes_per_second(rate), bits_per_second(rate)),
            _ if self.is_bytes() => bytes_per_second(rate),
            _ => units::per_second(rate),
        }
    }

    /// Start (0) or end (1) of the window with the peak.
    fn window(&self, end: usize) -> String {
        window(self.series.rates, self.peak())[end].clone()
    }
}

/// Start and end of the peak's window, in the form of `--from` and `--to`.
pub(super) fn window(rates: &Rates, peak: Peak) -> [String; 2] {
    if peak.sum == 0 {
        return ["-", "-"].map(str::to_owned);
    }
    [peak.start_ns, peak.start_ns.saturating_add(rates.window_ns)].map(|ns| seconds_since(rates.origin_ns, ns))
}

/// One size class, a row of `--view sizes`.
pub(in crate::render) struct RateSizeRow<'a> {
    series: PairRates<'a>,
    of: SizeCategory,
    class: SizeClass,
    sums: &'a SizeSums,
}

impl RateSizeRow<'_> {
    pub(super) const fn distribution(&self) -> &'static str {
        self.of.distribution()
    }

    pub(super) const fn count(&self) -> u64 {
        self.sums.count
    }

    /// Share of the packets or messages of the distribution, in percent.
    fn percent(&self) -> f64 {
        let sizes = self.series.series.sizes.iter();
        let alike = sizes.filter(|((of, _), _)| of.distribution() == self.distribution());
        self.count() as f64 * 100.0 / alike.map(|(_, sums)| sums.count).sum::<u64>() as f64
    }
}

/// The headings of the terminal table that depend on the distribution.
#[derive(Clone, Debug, Default)]
pub(in crate::render) struct SizeHeadings {
    /// Above the categories.
    pub(super) category: Cow<'static, str>,
    /// Above the smallest and largest size of a class.
    pub(super) sizes: Cow<'static, str>,
}

macro_rules! has_pair {
    ($($row:ident)*) => {
        $(impl HasClasses for $row<'_> {
            fn class_names(&self) -> Vec<Cow<'_, str>> {
                self.series.class_names()
            }
        }

        impl HasPair for $row<'_> {
            fn pair(&self) -> Option<(&Label, &Label)> {
                self.series.pair()
            }
        })*
    };
}

has_pair!(BinRow PeakRow RateSizeRow);

/// A row of the traffic of one or several classes.
trait HasClasses {
    fn class_names(&self) -> Vec<Cow<'_, str>>;
}

/// Adds `class`, the classes of the row.
fn class<R: HasClasses>(table: Table<R>) -> Table<R> {
    table.list("class", Name, groups::CLASSES, |row: &R| row.class_names())
}

/// For each of [`VALUES`], in order: unit and meaning of the sum, then name and unit of the rate.
const COLUMNS: [(ColumnUnit, &str, &str, ColumnUnit); VALUES.len()] = [
    (Bytes, "bytes of all packets on the wire, with retransmissions", "wire_bytes_per_s", BytesPerSecond),
    (Bytes, "InfiniBand payload, without retransmissions", "payload_bytes_per_s", BytesPerSecond),
    (Count, "all packets, with retransmissions", "packets_per_s", PerSecond),
    (Count, "transport messages", "messages_per_s", PerSecond),
    (
        Count,
        "MPI messages, point-to-point and collective, and NCCL messages; empty where no library was detected",
        "mpi_messages_per_s",
        PerSecond,
    ),
    (Bytes, "length of these messages; empty where no library was detected", "mpi_bytes_per_s", BytesPerSecond),
];

/// The name of a value in the terminal table.
fn name(row: &PeakRow<'_>) -> String {
    let library = row.series.series.classes.library();
    match row.index {
        MPI_MESSAGES => format!("{library} messages"),
        MPI_BYTES => format!("{library} bytes"),
        index => ["wire", "payload", "packets", "messages"][index].to_owned(),
    }
}

/// Adds the columns of the sums, then those of the rates.
fn values(mut table: Table<BinRow<'_>>) -> Table<BinRow<'_>> {
    let known = |row: &BinRow<'_>, index: usize| row.series.series.known(index, row.sums[index]);
    for (index, (unit, meaning, ..)) in COLUMNS.into_iter().enumerate() {
        let description = ColumnDescription { name: VALUES[index], column_type: ColumnType::U64, unit, meaning };
        table =
            table.values(description, move |row| known(row, index).map_or(ColumnValue::Missing, ColumnValue::Unsigned));
    }
    for (index, (.., name, unit)) in COLUMNS.into_iter().enumerate() {
        let meaning = "the sum of the bin divided by its width";
        let description = ColumnDescription { name, column_type: ColumnType::F64, unit, meaning };
        table = table.values(description, move |row| {
            let rate = |sum| ColumnValue::Real(per_second(sum, row.series.rates.bin_ns));
            known(row, index).map_or(ColumnValue::Missing, rate)
        });
    }
    table
}

/// The columns of `rates --view bins`.
pub(in crate::render) fn bins_table<'a>() -> Table<BinRow<'a>> {
    Table::new("ibscope rates --view bins --format csv")
        .column("time_ns", Timestamp, "start of the bin; bins without traffic have rows too", |row: &BinRow<'_>| {
            row.time_ns
        })
        .with(groups::pair)
        .with(values)
        .with(groups::job)
        .with(class)
}

/// The columns of `rates --view peaks`.
pub(in crate::render) fn peaks_table<'a>() -> Table<PeakRow<'a>> {
    Table::new("ibscope rates --view peaks --format csv")
        .with(groups::pair)
        .column("value", Name, "the column of `--view bins` that this row summarizes", |row: &PeakRow<'_>| {
            VALUES[row.index]
        })
        .shown_left("", name)
        .column("sum", OfValue, "sum over all time", |row| row.sum)
        .shown("total", |row| if row.is_bytes() { bytes(row.sum) } else { group(row.sum) })
        .column("mean_per_s", OfValue, "mean rate per second, from the first packet to the last one", |row| {
            row.series.rates.mean(row.sum)
        })
        .shown("mean", |row| row.rate(row.series.rates.mean(row.sum)))
        .column("peak_per_s", OfValue, "highest mean rate per second over a window", |row| {
            row.series.rates.peak(row.peak())
        })
        .shown("peak", |row| row.rate(row.series.rates.peak(row.peak())))
        .column("peak_sum", OfValue, "sum in that window", |row| row.peak().sum)
        .column("peak_from_ns", Timestamp, "start of that window; empty where the sum is 0", |row| {
            (row.peak().sum > 0).then(|| row.peak().start_ns)
        })
        .shown("from [s]", |row| row.window(0))
        .shown("to [s]", |row| row.window(1))
        .column("window_ns", Nanoseconds, "length of the window", |row| row.series.rates.window_ns)
        .with(groups::job)
        .with(class)
}

/// The columns of `rates --view peaks`, with the estimates of a sampled capture.
pub(super) fn peaks_table_of<'a>(rates: &Rates) -> Table<PeakRow<'a>> {
    let names = ["sum_estimate", "sum_low", "sum_high"];
    if rates.sampled.is_some() {
        groups::estimate_of_value(peaks_table(), names, |row: &PeakRow<'_>| row.estimate())
    } else {
        peaks_table()
    }
}

/// The estimates of the sums of a sampled capture, for the terminal.
pub(super) fn estimates_table<'a>() -> Table<PeakRow<'a>> {
    Table::new("the estimates of `ibscope rates`")
        .shown_left("estimated total", name)
        .shown("estimate, 95 % interval", |row| {
            groups::shown(row.estimate(), if row.is_bytes() { bytes } else { group })
        })
}

/// The columns of `rates --view sizes`.
pub(in crate::render) fn sizes_table<'a>(headings: SizeHeadings) -> Table<RateSizeRow<'a>> {
    Table::new("ibscope rates --view sizes --format csv")
        .with(groups::pair)
        .column(
            "distribution",
            Name,
            "`packets` (bytes on the wire), `messages` (payload of transport messages) or `mpi_messages` (MPI length)",
            |row: &RateSizeRow<'_>| row.of.distribution(),
        )
        .column(
            "category",
            Name,
            "of packets `request`, `response` or `acknowledge`; of messages the verb; of MPI messages `point-to-point` or `collective`; of NCCL messages `nccl`",
            |row| row.of.name(),
        )
        .headed(headings.category)
        .column("from_bytes", Bytes, "size class: from this power of two to below the next", |row| {
            row.class.from_bytes()
        })
        .shown(headings.sizes, |row| size_range(row.sums))
        .column("count", Count, "packets or messages of the class; retransmissions do not count", |row| row.sums.count)
        .headed("count")
        .shown("share", |row| format!("{:.1} %", row.percent()))
        .column("bytes", Bytes, "sum of the sizes", |row| row.sums.bytes)
        .headed("bytes")
        .column("smallest_bytes", Bytes, "smallest size", |row| row.sums.smallest_bytes)
        .column("largest_bytes", Bytes, "largest size", |row| row.sums.largest_bytes)
        .with(groups::job)
        .with(class)
}

/// Writes one csv row per bin, or per bin and pair or class if the rates are grouped.
pub fn csv(rates: &Rates, out: &mut dyn Write) -> io::Result<()> {
    let total = rates.by.is_none().then(|| PairRates::total(rates));
    let groups = PairRates::pairs(rates).chain(PairRates::classes(rates));
    let mut all: Vec<_> = total.into_iter().chain(groups).map(|series| (series, rates.bins(series.series))).collect();
    let is_sampled = rates.sampled.is_some();
    let table = if is_sampled { bins_table().with(groups::estimates) } else { bins_table() };
    let mut csv = CsvRows::begin(&table, out)?;
    for _ in 0..rates.count() {
        for (series, bins) in &mut all {
            let Some((time_ns, sums)) = bins.next() else { continue };
            let estimators = estimators(rates, series.series, time_ns);
            csv.write(&table, &BinRow { series: *series, time_ns, sums, estimators })?;
        }
    }
    csv.finish()
}

/// The estimators of a bin of a sampled capture: unknown where the bins are not whole bins of the
/// profile.
pub(super) fn estimators(rates: &Rates, series: &RateSeries, time_ns: i64) -> Option<PairEstimators> {
    let unknown = || PairEstimators::unknown(EstimateQuality::default());
    rates.sampled.as_ref().map(|_| rates.bin_estimators(series, time_ns).unwrap_or_else(unknown))
}

/// Writes one csv row per value, of all traffic and of each pair or class.
pub fn peaks_csv(rates: &Rates, out: &mut dyn Write) -> io::Result<()> {
    peaks_table_of(rates).csv(PairRates::all(rates).flat_map(PairRates::peaks), out)
}

/// Writes one csv row per size class, of all traffic and of each pair or class.
pub fn sizes_csv(rates: &Rates, out: &mut dyn Write) -> io::Result<()> {
    sizes_table(SizeHeadings::default()).csv(PairRates::all(rates).flat_map(PairRates::sizes), out)
}
