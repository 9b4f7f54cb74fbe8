//! Rates as a table for people, csv and JSON.

mod views;

pub use views::{peaks_csv, sizes_csv};

use crate::analysis::matrix::Unit;
use crate::analysis::rates::{
    self, MESSAGES, MPI_BYTES, MPI_MESSAGES, PACKETS, PAYLOAD_BYTES, Peak, RateSeries, Rates, VALUES, Values,
    WIRE_BYTES,
};
use crate::analysis::{By, Label};
use crate::model::{SizeClass, SizeOf, SizeSums};
use crate::render::columns::columns;
use crate::render::csv::ends;
use crate::render::json::value;
use crate::render::units::{
    Scale, bytes, bytes_per_second, duration, group, per_second, seconds_since, size_range, span, utc,
};
use comfy_table::CellAlignment;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Pairs in the table.
const TOP_PAIRS: usize = 10;
/// Longest bar of a distribution, in characters.
const BAR: usize = 40;
/// Fewer bins than this say little about peaks.
const FEW_BINS: i64 = 10;

/// Rates and distributions for people, of a profile or of captures that were read for them.
#[must_use]
pub fn table(rates: &Rates, is_profile: bool) -> String {
    let span_ns = rates.span_ns.1.saturating_sub(rates.span_ns.0);
    if span_ns == 0 {
        return "rates: no traffic\n".to_owned();
    }
    let mut text = format!(
        "rates over {} from {}\npeak: the highest mean over {}, found in steps of {}; from and to are s from the first packet\n\n{}",
        span(span_ns.unsigned_abs()),
        utc(rates.span_ns.0),
        duration(rates.window_ns),
        duration(rates.fine_ns),
        total(rates)
    );
    if span_ns / rates.fine_ns < FEW_BINS {
        let next = if is_profile { "analyse the captures with" } else { "choose" };
        let _ = writeln!(
            text,
            "\nThe traffic lies in few bins, so rates are lower than they were: {next} a smaller --bin."
        );
    }
    if rates.by.is_some() {
        text.push_str(&pairs(rates));
    }
    text.push_str(&distributions(rates));
    text
}

/// Links are sold in decimal bits.
fn bits_per_second(rate: f64) -> String {
    let bits = rate * 8.0;
    let units = [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")];
    let (one, unit) = units.into_iter().find(|(one, _)| bits >= *one).unwrap_or((1.0, "bit/s"));
    let value = bits / one;
    let decimals = if value >= 100.0 { 0 } else { usize::from(value < 10.0) + 1 };
    format!("{value:.decimals$} {unit}")
}

/// Start and end of the window, as `--from` and `--to` take them.
fn window(rates: &Rates, peak: Peak) -> [String; 2] {
    if peak.sum == 0 {
        return ["-", "-"].map(str::to_owned);
    }
    [peak.start_ns, peak.start_ns.saturating_add(rates.window_ns)].map(|ns| seconds_since(rates.origin_ns, ns))
}

fn total(rates: &Rates) -> String {
    let course = &rates.total;
    let mut table = columns(&["", "in all", "mean", "peak", "from [s]", "to [s]"], 1..6);
    let names = ["wire", "payload", "packets", "messages", "MPI messages", "MPI bytes"];
    for index in [WIRE_BYTES, PAYLOAD_BYTES, MPI_BYTES, PACKETS, MESSAGES, MPI_MESSAGES] {
        let Some(sum) = course.known(index, course.sums[index]) else { continue };
        let peak = course.peaks[index];
        let is_bytes = matches!(index, WIRE_BYTES | PAYLOAD_BYTES | MPI_BYTES);
        let (all, show): (String, fn(f64) -> String) =
            if is_bytes { (bytes(sum), bytes_per_second) } else { (group(sum), per_second) };
        let (mean, highest) = (rates.mean(sum), rates.peak(peak));
        let [from, to] = window(rates, peak);
        table.add_row([names[index].to_owned(), all, show(mean), show(highest), from, to]);
        if index == WIRE_BYTES {
            table.add_row([String::new(), String::new(), bits_per_second(mean), bits_per_second(highest)]);
        }
    }
    format!("{}\n", table.trim_fmt())
}

fn pairs(rates: &Rates) -> String {
    let mut rows: Vec<(&(Label, Label), &RateSeries)> = rates.pairs.iter().collect();
    let what = if rates.by == Some(By::Rank) { "pairs of ranks" } else { "pairs" };
    let title = match rows.len() {
        count if count > TOP_PAIRS => format!("the {TOP_PAIRS} busiest of {count} {what}"),
        _ => what.to_owned(),
    };
    // The busiest first, others in the order of their names.
    rows.sort_by_key(|(_, course)| std::cmp::Reverse(course.sums[WIRE_BYTES]));
    rows.truncate(TOP_PAIRS);
    let highest = |course: &RateSeries| rates.peak(course.peaks[WIRE_BYTES]);
    let largest = rows.iter().map(|(_, course)| highest(course)).fold(0.0, f64::max);
    let scale = Scale::for_table(Unit::WireBytes, largest as u64);
    let wire = format!("wire {}/s", scale.unit());
    let header = [title.as_str(), "share", &wire, "peak", "from [s]", "messages/s", "peak", "packets/s", "peak"];
    let mut table = columns(&header, 1..header.len());
    let count = |rate: f64| per_second(rate).trim_end_matches(" /s").to_owned();
    for ((src, dst), course) in rows {
        let peak = course.peaks[WIRE_BYTES];
        let share = course.sums[WIRE_BYTES] as f64 * 100.0 / rates.total.sums[WIRE_BYTES].max(1) as f64;
        let mut row = vec![format!("{} → {}", src.name(), dst.name()), format!("{share:.1} %")];
        row.extend([rates.mean(course.sums[WIRE_BYTES]), highest(course)].map(|rate| scale.show(rate.round() as u64)));
        row.extend(window(rates, peak).into_iter().take(1));
        for index in [MESSAGES, PACKETS] {
            row.extend([rates.mean(course.sums[index]), rates.peak(course.peaks[index])].map(count));
        }
        table.add_row(row);
    }
    format!("\n{}\n", table.trim_fmt())
}

fn distributions(rates: &Rates) -> String {
    let sizes = &rates.total.sizes;
    if sizes.is_empty() {
        return "\nSizes are kept without time: give the captures to see those of a part of it.\n".to_owned();
    }
    let mut text = String::new();
    let titles = [
        ("messages", "transport messages", "payload bytes each"),
        ("mpi_messages", "MPI messages", "MPI bytes each"),
        ("packets", "packets, each once", "wire bytes each"),
    ];
    for (distribution, title, each) in titles {
        let rows: Vec<(&(SizeOf, SizeClass), &SizeSums)> =
            sizes.iter().filter(|((of, _), _)| of.distribution() == distribution).collect();
        let all = rows.iter().map(|(_, sums)| sums.count).sum::<u64>();
        if all == 0 {
            continue;
        }
        let most = rows.iter().map(|(_, sums)| sums.count).max().unwrap_or(1).max(1);
        let mut table = columns(&[title, each, "count", "share", "bytes", ""], 1..6);
        if let Some(column) = table.column_mut(5) {
            column.set_cell_alignment(CellAlignment::Left);
        }
        for ((of, _), sums) in rows {
            let bar = (sums.count as f64 / most as f64 * BAR as f64).round() as usize;
            table.add_row([
                of.name().to_owned(),
                size_range(sums),
                group(sums.count),
                format!("{:.1} %", sums.count as f64 * 100.0 / all as f64),
                bytes(sums.bytes),
                // What is there has a bar, however short.
                "█".repeat(bar.max(1)),
            ]);
        }
        let _ = writeln!(text, "\n{}", table.trim_fmt());
    }
    if !rates.mpi_read {
        text.push_str("\nMessages were not put together: the captures were analysed with --no-mpi.\n");
    }
    text
}

/// What is to be said of the bins and the window.
#[must_use]
pub fn notes(rates: &Rates, wanted_window_ns: Option<i64>, unasked_bin_ns: Option<i64>) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(unasked_ns) = unasked_bin_ns.filter(|unasked_ns| *unasked_ns != rates.bin_ns) {
        notes.push(format!(
            "bins are {} wide, where those of {} would be too many: give --bin",
            duration(rates.bin_ns),
            duration(unasked_ns)
        ));
    }
    if rates.is_shared_out() {
        notes.push(format!(
            "bins of {} are no multiple of the profile's bins of {}: each of those is shared out among the new ones by their overlap, and sums are \
             kept",
            duration(rates.bin_ns),
            duration(rates.fine_ns)
        ));
    }
    if let Some(wanted_ns) = wanted_window_ns.filter(|wanted_ns| *wanted_ns != rates.window_ns && rates.window_ns > 0) {
        let why = if wanted_ns < rates.window_ns { "whole bins" } else { "all that there is" };
        notes.push(format!("the window of {} is {}: {why}", duration(wanted_ns), duration(rates.window_ns)));
    }
    notes
}

/// One row per bin, or per bin and pair: `time_ns,src,dst`, the sums and their rates. Bins without traffic are there too. `src` and `dst` are
/// empty where all pairs are together, and the values of MPI where no library was recognised.
pub fn csv(rates: &Rates, out: &mut dyn Write) -> io::Result<()> {
    let names = VALUES.join(",");
    let per_second = VALUES.map(|name| format!("{name}_per_s")).join(",");
    writeln!(out, "time_ns,src,dst,{names},{per_second},job")?;
    let mut courses: Vec<_> = courses(rates).map(|(pair, course)| (ends(pair), course, rates.bins(course))).collect();
    for _ in 0..rates.count() {
        for ([src, dst, job], course, bins) in &mut courses {
            let Some((time_ns, sums)) = bins.next() else { continue };
            let known =
                |index: usize, text: String| if course.known(index, 0).is_some() { text } else { String::new() };
            let values = texts(&sums, |index, sum| known(index, sum.to_string()));
            let rates = texts(&sums, |index, sum| known(index, rate(sum, rates.bin_ns).to_string()));
            writeln!(out, "{time_ns},{src},{dst},{values},{rates},{job}")?;
        }
    }
    Ok(())
}

/// What csv has rows of: all pairs together, or each pair.
fn courses(rates: &Rates) -> impl Iterator<Item = (Option<&(Label, Label)>, &RateSeries)> {
    let total = rates.by.is_none().then_some((None, &rates.total));
    let pairs = rates.pairs.iter().filter(|_| rates.by.is_some()).map(|(pair, course)| (Some(pair), course));
    total.into_iter().chain(pairs)
}

fn texts(sums: &Values, text: impl Fn(usize, u64) -> String) -> String {
    let texts: Vec<String> = sums.iter().enumerate().map(|(index, sum)| text(index, *sum)).collect();
    texts.join(",")
}

fn rate(sum: u64, bin_ns: i64) -> f64 {
    rates::per_second(sum, bin_ns)
}

/// One object: what was asked for, and the course of everything and of each pair, with its bins as columns without gaps. Written as it is
/// made: there may be millions of bins.
pub fn json(rates: &Rates, out: &mut dyn Write) -> io::Result<()> {
    let pairs = rates
        .pairs
        .iter()
        .map(|((src, dst), course)| document(rates, course, [value(src), value(dst), json!(src.job())]));
    let document = Document {
        bin_ns: rates.bin_ns,
        by: rates.by.map(|by| if by == By::Rank { "rank" } else { "endpoint" }),
        from_ns: rates.span_ns.0,
        pairs: pairs.collect(),
        resolution_ns: rates.fine_ns,
        schema: "ibscope rates",
        shared_out: rates.is_shared_out(),
        to_ns: rates.span_ns.1,
        total: self::document(rates, &rates.total, Default::default()),
        version: 1,
        window_ns: rates.window_ns,
    };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

/// Members in the order of their names, as in all other documents.
#[derive(Serialize)]
struct Document<'a> {
    bin_ns: i64,
    by: Option<&'static str>,
    from_ns: i64,
    pairs: Vec<SeriesDocument<'a>>,
    resolution_ns: i64,
    schema: &'static str,
    shared_out: bool,
    to_ns: i64,
    total: SeriesDocument<'a>,
    version: u32,
    window_ns: i64,
}

#[derive(Serialize)]
struct SeriesDocument<'a> {
    bins: BTreeMap<&'static str, Option<Column<'a>>>,
    /// Both ends and the job are there for pairs alone.
    #[serde(skip_serializing_if = "Value::is_null")]
    dst: Value,
    first_bin_ns: Option<i64>,
    #[serde(skip_serializing_if = "Value::is_null")]
    job: Value,
    mean_per_s: BTreeMap<&'static str, Value>,
    peaks: BTreeMap<&'static str, Value>,
    sizes: Vec<Value>,
    #[serde(skip_serializing_if = "Value::is_null")]
    src: Value,
    sums: BTreeMap<&'static str, Value>,
}

/// One value of all bins.
struct Column<'a> {
    rates: &'a Rates,
    course: &'a RateSeries,
    index: usize,
}

impl Serialize for Column<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.rates.bins(self.course).map(|(_, sums)| sums[self.index]))
    }
}

fn document<'a>(rates: &'a Rates, course: &'a RateSeries, [src, dst, job]: [Value; 3]) -> SeriesDocument<'a> {
    let known = |index: usize| course.known(index, 0).is_some();
    let values = |of: &dyn Fn(usize) -> Value| {
        let value = |(index, name)| (name, if known(index) { of(index) } else { Value::Null });
        VALUES.into_iter().enumerate().map(value).collect()
    };
    let peak = |index: usize| {
        let peak = course.peaks[index];
        json!({ "per_s": rates.peak(peak), "sum": peak.sum, "from_ns": peak.start_ns })
    };
    let size = |((of, size), sums): (&(SizeOf, SizeClass), &SizeSums)| {
        json!({
            "distribution": of.distribution(), "of": of.name(), "from_bytes": size.from_bytes(), "count": sums.count,
            "bytes": sums.bytes, "smallest_bytes": sums.smallest_bytes, "largest_bytes": sums.largest_bytes,
        })
    };
    let column = |(index, name)| (name, known(index).then_some(Column { rates, course, index }));
    SeriesDocument {
        bins: VALUES.into_iter().enumerate().map(column).collect(),
        dst,
        first_bin_ns: rates.bins(course).next().map(|(time_ns, _)| time_ns),
        job,
        mean_per_s: values(&|index| json!(rates.mean(course.sums[index]))),
        peaks: values(&peak),
        sizes: course.sizes.iter().map(size).collect(),
        src,
        sums: values(&|index| json!(course.sums[index])),
    }
}
