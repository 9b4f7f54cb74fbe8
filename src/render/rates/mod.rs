//! Rates as terminal tables, csv and JSON.
//!
//! In: sums per bin, peaks and size distributions. Out: text; rates are sums divided by time.

mod links;
mod views;

pub use links::{link_bins_csv, link_notes, links_csv, links_json, links_text};
pub(super) use links::{link_bins_table, links_table};
pub(super) use views::{SizeHeadings, bins_table, peaks_table, sizes_table};
pub use views::{csv, peaks_csv, sizes_csv};

use crate::analysis::matrix::TrafficUnit;
use crate::analysis::rates::{
    MESSAGES, MPI_BYTES, MPI_MESSAGES, PACKETS, PAYLOAD_BYTES, RateGrouping, RateSeries, Rates, VALUES, WIRE_BYTES,
};
use crate::analysis::{GroupBy, Label};
use crate::model::sampling::{EstimatedSum, EstimatedValue};
use crate::render::columns::rows_within;
use crate::render::table;
use crate::render::units::{Scale, duration, per_second, seconds_since, span, utc};
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use views::{PairRates, RateSizeRow, estimates_table, estimators, peaks_table_of, window};

/// Number of pairs in the terminal table.
const TOP_PAIRS: usize = 10;
/// Longest bar of a distribution, in characters, and the width of the columns before the bars.
const BAR: usize = 40;
const BEFORE_BARS: usize = 68;
/// With fewer bins than this, peaks are unreliable; a note warns of this.
const FEW_BINS: i64 = 10;

/// The terminal output: rates, peaks, pairs and size distributions. `is_profile` chooses the advice
/// for bins that are too wide. If the table of pairs is wider than `width` columns, it leaves out the
/// time of the peak, the packets and their peak, and the peak of the messages, in this order, until it fits.
#[must_use]
pub fn table(rates: &Rates, is_profile: bool, width: Option<usize>) -> String {
    let span_ns = rates.span_ns.1.saturating_sub(rates.span_ns.0);
    if span_ns == 0 {
        return "rates: no traffic\n".to_owned();
    }
    let mut text = format!(
        "rates over {} from {} s; times in s from the first packet, at {}\npeak: the highest mean over {}, in steps of {}\n{}\n{}",
        span(rates.traffic_length_ns().unsigned_abs()),
        seconds_since(rates.origin_ns, rates.traffic_ns.0),
        utc(rates.origin_ns),
        duration(rates.window_ns),
        duration(rates.fine_ns),
        rates.sampled.as_ref().map(|sampled| format!("{sampled}\n")).unwrap_or_default(),
        total(rates)
    );
    if span_ns / rates.fine_ns < FEW_BINS {
        let next = if is_profile { "analyze the captures with" } else { "choose" };
        let _ = writeln!(
            text,
            "\nThe traffic spans few bins, so the rates shown are lower than the real ones: {next} a smaller --bin."
        );
    }
    if rates.by.is_some() {
        text.push_str(&groups(rates, width));
    }
    text.push_str(&distributions(rates, width));
    text
}

/// The rates of all traffic.
fn total(rates: &Rates) -> String {
    let total = PairRates::total(rates);
    let order = [WIRE_BYTES, PAYLOAD_BYTES, MPI_BYTES, PACKETS, MESSAGES, MPI_MESSAGES];
    let rows = order.into_iter().filter_map(|index| total.peak(index));
    let estimates = rates.sampled.as_ref().map(|_| {
        let rows = [WIRE_BYTES, PAYLOAD_BYTES, PACKETS, MESSAGES].into_iter().filter_map(|index| total.peak(index));
        format!("\n{}\n", estimates_table().text(rows))
    });
    format!("{}\n{}", peaks_table().text(rows), estimates.unwrap_or_default())
}

/// The busiest pairs, or the classes.
fn groups(rates: &Rates, width: Option<usize>) -> String {
    let pairs = rates.pairs.iter().map(|((src, dst), series)| (format!("{} → {}", src.name(), dst.name()), series));
    let classes = rates.classes.iter().map(|(class, series)| (class.name().to_owned(), series));
    let mut rows: Vec<(String, &RateSeries)> = pairs.chain(classes).collect();
    let what = match rates.by {
        Some(RateGrouping::Pairs(GroupBy::Rank)) => "pairs of ranks",
        Some(RateGrouping::Class) => "classes",
        Some(RateGrouping::Pairs(_)) | None => "pairs",
    };
    let title = match rows.len() {
        count if count > TOP_PAIRS && rates.by != Some(RateGrouping::Class) => {
            format!("the {TOP_PAIRS} busiest of {count} {what}")
        }
        _ => what.to_owned(),
    };
    // The busiest first; the sort is stable, so equal pairs stay in label order.
    rows.sort_by_key(|(_, series)| std::cmp::Reverse(series.sums[WIRE_BYTES]));
    if rates.by != Some(RateGrouping::Class) {
        rows.truncate(TOP_PAIRS);
    }
    let highest = |series: &RateSeries| rates.peak(series.peaks[WIRE_BYTES]);
    let largest = rows.iter().map(|(_, series)| highest(series)).fold(0.0, f64::max);
    let scale = Scale::for_table(TrafficUnit::WireBytes, largest as u64);
    let wire = format!("wire {}/s", scale.unit());
    let header = [title.as_str(), "share", &wire, "peak", "from [s]", "messages/s", "peak", "packets/s", "peak"];
    let mut lines = Vec::new();
    let count = |rate: f64| per_second(rate).trim_end_matches(" /s").to_owned();
    for (name, series) in rows {
        let peak = series.peaks[WIRE_BYTES];
        let share = series.sums[WIRE_BYTES] as f64 * 100.0 / rates.total.sums[WIRE_BYTES].max(1) as f64;
        let mut row = vec![name, format!("{share:.1} %")];
        row.extend([rates.mean(series.sums[WIRE_BYTES]), highest(series)].map(|rate| scale.show(rate.round() as u64)));
        row.extend(window(rates, peak).into_iter().take(1));
        for index in [MESSAGES, PACKETS] {
            row.extend([rates.mean(series.sums[index]), rates.peak(series.peaks[index])].map(count));
        }
        lines.push(row);
    }
    let right: Vec<usize> = (1..header.len()).collect();
    format!("\n{}\n", rows_within(&header, &right, &lines, (width, &[4, 8, 7, 6])))
}

fn distributions(rates: &Rates, width: Option<usize>) -> String {
    let longest = width.map_or(BAR, |width| width.saturating_sub(BEFORE_BARS).clamp(1, BAR));
    let sizes = &rates.total.sizes;
    if sizes.is_empty() {
        return String::new();
    }
    let mut text = String::new();
    let library = rates.total.classes.library();
    let distributions = [
        ("messages", SizeHeadings { category: "transport messages".into(), sizes: "payload bytes each".into() }),
        (
            "mpi_messages",
            SizeHeadings {
                category: format!("{library} messages").into(),
                sizes: format!("{library} bytes each").into(),
            },
        ),
        ("packets", SizeHeadings { category: "packets, each once".into(), sizes: "wire bytes each".into() }),
    ];
    for (distribution, headings) in distributions {
        let rows: Vec<RateSizeRow<'_>> =
            PairRates::total(rates).sizes().filter(|row| row.distribution() == distribution).collect();
        if rows.iter().all(|row| row.count() == 0) {
            continue;
        }
        let most = rows.iter().map(RateSizeRow::count).max().unwrap_or(1).max(1);
        let table = sizes_table(headings).shown_left("", move |row| bar(row.count(), most, longest));
        let _ = writeln!(text, "\n{}", table.text(rows));
    }
    if !rates.mpi_read {
        text.push_str("\nMessages were not assembled: the captures were analyzed with --no-mpi.\n");
    }
    text
}

/// A bar as long as the count; `most` has a bar of `longest` characters, and a rare size still gets a bar.
fn bar(count: u64, most: u64, longest: usize) -> String {
    let length = (count as f64 / most as f64 * longest as f64).round() as usize;
    "█".repeat(length.max(1))
}

/// Notes on bins and windows that differ from the requested ones.
#[must_use]
pub fn notes(rates: &Rates, wanted_window_ns: Option<i64>, unasked_bin_ns: Option<i64>) -> Vec<String> {
    let mut notes = Vec::new();
    if rates.total.sizes.is_empty() && rates.window_ns > 0 {
        notes
            .push("a profile has sizes for its whole time only; pass the captures to see those of a window".to_owned());
    }
    if let Some(unasked_ns) = unasked_bin_ns.filter(|unasked_ns| *unasked_ns != rates.bin_ns) {
        notes.push(format!(
            "bins are {} wide, because bins of {} would be too many; choose the width with --bin",
            duration(rates.bin_ns),
            duration(unasked_ns)
        ));
    }
    if rates.is_shared_out() {
        notes.push(format!(
            "bins of {} are not a multiple of the profile's bins of {}: each of the profile's bins is divided among the new ones by overlap, so totals are exact \
             but single bins are estimates",
            duration(rates.bin_ns),
            duration(rates.fine_ns)
        ));
    }
    if let Some(wanted_ns) = wanted_window_ns.filter(|wanted_ns| *wanted_ns != rates.window_ns && rates.window_ns > 0) {
        let why = if wanted_ns < rates.window_ns {
            "a window consists of whole bins"
        } else {
            "the traffic lasts only that long"
        };
        notes.push(format!("the window is {} instead of {}: {why}", duration(rates.window_ns), duration(wanted_ns)));
    }
    notes
}

/// Writes one JSON object: the parameters, and the rates of all traffic and of each pair or class.
///
/// Bins are lists of numbers without gaps, one list per csv column that is a sum. They are
/// streamed, because there may be millions.
pub fn json(rates: &Rates, out: &mut dyn Write) -> io::Result<()> {
    let document = RatesDocument {
        bin_ns: rates.bin_ns,
        by: rates.by.map(RateGrouping::name),
        classes: PairRates::classes(rates).map(document).collect(),
        from_ns: rates.span_ns.0,
        pairs: PairRates::pairs(rates).map(document).collect(),
        resolution_ns: rates.fine_ns,
        sampled: rates.sampled.as_deref(),
        schema: "ibscope rates",
        shared_out: rates.is_shared_out(),
        to_ns: rates.span_ns.1,
        total: document(PairRates::total(rates)),
        version: 2,
        window_ns: rates.window_ns,
    };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

/// The JSON document, its members in alphabetical order as in all other documents.
#[derive(Serialize)]
struct RatesDocument<'a> {
    bin_ns: i64,
    by: Option<&'static str>,
    classes: Vec<SeriesDocument<'a>>,
    from_ns: i64,
    pairs: Vec<SeriesDocument<'a>>,
    resolution_ns: i64,
    /// For a sampled capture, the sentence on sampling.
    sampled: Option<&'a str>,
    schema: &'static str,
    shared_out: bool,
    to_ns: i64,
    total: SeriesDocument<'a>,
    version: u32,
    window_ns: i64,
}

/// The rates of one pair, or of all pairs together.
#[derive(Serialize)]
struct SeriesDocument<'a> {
    bins: BTreeMap<&'static str, Option<RateBins<'a>>>,
    class: Vec<Cow<'a, str>>,
    /// Null for all pairs together, as in csv.
    dst: Value,
    /// For a sampled capture, the estimates of each bin by column; null where there is none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    estimates: BTreeMap<String, BinEstimates<'a>>,
    first_bin_ns: Option<i64>,
    job: Option<u32>,
    /// The rows of `--view peaks`.
    peaks: Vec<Value>,
    /// The rows of `--view sizes`.
    sizes: Vec<Value>,
    src: Value,
}

/// One of [`VALUES`] in all bins, serialized as a list.
struct RateBins<'a> {
    series: PairRates<'a>,
    index: usize,
}

impl Serialize for RateBins<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let PairRates { rates, series, .. } = self.series;
        serializer.collect_seq(rates.bins(series).map(|(_, sums)| sums[self.index]))
    }
}

/// A column of the estimates of all bins, serialized as a list.
struct BinEstimates<'a> {
    series: PairRates<'a>,
    sum: EstimatedSum,
    of: fn(EstimatedValue) -> u64,
}

impl Serialize for BinEstimates<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let PairRates { rates, series, .. } = self.series;
        serializer.collect_seq(rates.bins(series).map(|(time_ns, _)| {
            let estimators = estimators(rates, series, time_ns);
            estimators.and_then(|pair| self.sum.estimate(&pair).known()).map(self.of)
        }))
    }
}

/// The estimates of the bins of a sampled capture; empty if it is not sampled.
fn estimates(series: PairRates<'_>) -> BTreeMap<String, BinEstimates<'_>> {
    let ends: [fn(EstimatedValue) -> u64; 3] = [|value| value.estimate, |value| value.low, |value| value.high];
    let of = |sum: EstimatedSum| {
        let columns = sum.names().into_iter().zip(ends);
        columns.map(move |(name, of)| (name.to_owned(), BinEstimates { series, sum, of }))
    };
    let is_sampled = series.rates.sampled.is_some();
    EstimatedSum::ALL.into_iter().filter(|_| is_sampled).flat_map(of).collect()
}

fn document(series: PairRates<'_>) -> SeriesDocument<'_> {
    let known = |index: usize| series.series.known(index, 0).is_some();
    let bins = |(index, name)| (name, known(index).then_some(RateBins { series, index }));
    let label = |label: Option<&Label>| label.map_or(Value::Null, |label| table::ColumnValue::from(label).json(None));
    let (src, dst) = series.pair().unzip();
    SeriesDocument {
        bins: VALUES.into_iter().enumerate().map(bins).collect(),
        class: series.class_names(),
        dst: label(dst),
        estimates: estimates(series),
        first_bin_ns: series.rates.bins(series.series).next().map(|(time_ns, _)| time_ns),
        job: src.and_then(Label::job),
        peaks: peaks_table_of(series.rates).objects(series.peaks()),
        sizes: sizes_table(SizeHeadings::default()).objects(series.sizes()),
        src: label(src),
    }
}
