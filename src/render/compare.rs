//! A comparison of two runs as terminal tables, csv and JSON.

pub mod several;

use crate::analysis::compare::{
    Comparison, ComparisonVerdict, LatencyComparison, MovedRank, Placements, ValueComparison,
};
use crate::analysis::coverage::States;
use crate::analysis::latency::LatencyKey;
use crate::analysis::observed_ports::PORTS_MAY_BE_MISSING;
use crate::analysis::{GroupBy, Label};
use crate::model::column::ColumnUnit::{Bytes, Count, Name, Nanoseconds, OfValue, Ratio};
use crate::model::column::{ColumnDescription, ColumnType};
use crate::model::{Profile, TrustVerdict, count_either};
use crate::render::columns::columns;
use crate::render::table::{ColumnValue, Table, write_document};
use crate::render::trust;
use crate::render::units::{bytes, bytes_per_second, count_of, group, per_second, size, span, time};
use serde_json::json;
use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Maximum number of pairs, and of kinds of times, in the terminal tables.
const MOST: usize = 10;

/// The terminal output: the differences, largest first.
#[must_use]
pub fn table(comparison: &Comparison) -> String {
    let [a, b] = &comparison.names;
    let placement = placement(&comparison.placements).map(|text| format!("{text}\n\n")).unwrap_or_default();
    let mut text = format!("A  {a}\nB  {b}\n\n{placement}{}", totals(comparison));
    text.push_str(&pairs(comparison));
    text.push_str(&times(comparison));
    text.push_str(&health(comparison));
    text.push_str(
        "\nCounts of the captured packets are exact. Medians differ beyond chance if their 99 % confidence intervals do not overlap.\n\
         Both describe these two captures only; to measure how much runs vary, compare several runs of A and of B.\n",
    );
    let is_unknown =
        |times: &LatencyComparison| times.quantiles.iter().any(|own| own.verdict == ComparisonVerdict::Unknown);
    if comparison.times.iter().any(is_unknown) {
        text.push_str("It is unknown whether medians differ, because the times of a sampled capture are biased.\n");
    }
    text
}

/// Why counts of a run may be too low, as a clause of a sentence. `None` if it is that of a whole capture that
/// is complete, or in which all pairs are and only other packets may be missing.
pub(crate) fn doubt(profile: &Profile) -> Option<String> {
    let is_proven = profile.trust.verdict != TrustVerdict::Unknown;
    let has_incomplete_pairs = || States::of_endpoints(profile).incomplete().next().is_some();
    let of_capture = trust::doubt(&profile.trust).filter(|_| is_proven || has_incomplete_pairs());
    let outside = Some(profile.coverage.outside_window).filter(|records| *records > 0);
    let of_window = outside.map(|records| {
        format!("it covers a time window: {} outside it", count_either(records, "record is", "records are"))
    });
    [of_window, of_capture].into_iter().flatten().reduce(|window, capture| format!("{window}, and {capture}"))
}

/// The ranks that are on another node in B; `None` if there are none.
pub(crate) fn placement(placements: &Placements) -> Option<String> {
    let Placements { ranks, moved, .. } = placements;
    let describe = |MovedRank { rank, nodes: [a, b] }: &MovedRank| format!("rank {rank} ({a} in A, {b} in B)");
    let mut all: Vec<String> = moved.iter().take(MOST).map(describe).collect();
    if moved.len() > MOST {
        all.push(format!("{} more; --format json lists all", group((moved.len() - MOST) as u64)));
    }
    (!moved.is_empty()).then(|| {
        let (moved, ranks) = (group(moved.len() as u64), group(*ranks as u64));
        format!("The placement differs: {moved} of {ranks} ranks are on another node:\n{}.", all.join(",\n"))
    })
}

/// Formats a number by the unit in the name of its value.
fn format_value(value: &str, number: f64) -> String {
    if value.ends_with("_ns") {
        // The duration of a run with three decimal places, latencies with three digits.
        return if value == "time_ns" { span(number as u64) } else { time(number) };
    }
    if value.ends_with("bytes") { bytes(number as u64) } else { group(number as u64) }
}

/// Formats a rate per second by the unit in the name of its value.
fn format_rate(value: &str, rate: f64) -> String {
    if value.ends_with("bytes") { bytes_per_second(rate) } else { per_second(rate) }
}

/// The value in A, the value in B, their difference, and their relation, as text.
pub(crate) fn texts(pairing: &ValueComparison, is_rate: bool) -> [String; 4] {
    let shown = if is_rate { format_rate } else { format_value };
    let side = |number: Option<f64>| number.map_or_else(|| "-".to_owned(), |number| shown(pairing.value, number));
    let difference = match pairing.difference() {
        None => "-".to_owned(),
        Some(0.0) => "0".to_owned(),
        Some(difference) => {
            let sign = if difference < 0.0 { "-" } else { "+" };
            format!("{sign}{}", shown(pairing.value, difference.abs()))
        }
    };
    let [a, b] = pairing.values.map(side);
    [a, b, difference, relative(pairing)]
}

/// The relation of B to A: in percent between half and double, else as a multiple.
fn relative(pairing: &ValueComparison) -> String {
    match pairing.ratio() {
        None => "-".to_owned(),
        Some(1.0) => "=".to_owned(),
        Some(0.0) => "-100 %".to_owned(),
        Some(ratio) if (0.5..2.0).contains(&ratio) => {
            let percent = (ratio - 1.0) * 100.0;
            // A difference that rounds to 0 is still shown as a difference.
            let least = if percent < 0.0 { "> -0.1 %" } else { "< +0.1 %" };
            if percent.abs() < 0.05 { least.to_owned() } else { format!("{percent:+.1} %") }
        }
        // Not 0, although it rounds to 0.
        Some(ratio) if ratio < 0.005 => "x < 0.01".to_owned(),
        Some(ratio) if ratio < 100.0 => format!("x {ratio:.2}"),
        Some(ratio) => format!("x {ratio:.0}"),
    }
}

/// The name of a value as text: without unit suffix and underscores.
pub(crate) fn name(value: &str) -> String {
    let unit_less = value.strip_suffix("_ns").unwrap_or(value);
    unit_less
        .replace("mpi_bytes", "MPI bytes")
        .replace("p2p", "point-to-point")
        .replace('_', " ")
        .replace("mpi ", "MPI ")
}

fn totals(comparison: &Comparison) -> String {
    let known = comparison.totals.iter().filter(|pairing| pairing.values.iter().any(Option::is_some));
    let rates = comparison.rates.iter().filter(|(_, pairing)| matches!(pairing.value, "wire_bytes" | "packets"));
    let rows = known
        .map(|pairing| CompareRow::new("total", pairing))
        .chain(rates.map(|(what, pairing)| CompareRow::rate(what, pairing)));
    let mut text = format!("{}\n", columns_of_comparison("").text(rows));
    let [a, b] = comparison.windows_ns.map(|ns| span(ns.unsigned_abs()));
    if a != b {
        let _ = writeln!(text, "a peak is the highest mean over {a} in A, and over {b} in B");
    }
    text.push_str(&time_of_means(comparison).unwrap_or_default());
    text
}

/// The line on the time of the mean rates, if it differs from `time` by more than 1 % in a run: mean
/// rates are over the time with data traffic, `time` is that of all packets.
fn time_of_means(comparison: &Comparison) -> Option<String> {
    let total = |value: &str| comparison.totals.iter().find(|pairing| pairing.value == value);
    let is_mean = |(what, pairing): &&(&str, ValueComparison)| *what == "mean" && pairing.value == "wire_bytes";
    let (times, sums) = (total("time_ns")?.values, total("wire_bytes")?.values);
    let (_, means) = comparison.rates.iter().find(is_mean)?;
    let length_ns = |side: usize| Some(sums[side]? * 1e9 / means.values[side].filter(|mean| *mean > 0.0)?);
    let lengths_ns = [length_ns(0)?, length_ns(1)?];
    let differs = |side: usize| Some((lengths_ns[side] - times[side]?).abs() > times[side]? * 0.01);
    if differs(0) != Some(true) && differs(1) != Some(true) {
        return None;
    }
    let [a, b] = lengths_ns.map(|ns| span(ns.round() as u64));
    Some(format!("mean rates are over the time of the data traffic: {a} in A, and {b} in B\n"))
}

fn pairs(comparison: &Comparison) -> String {
    let what = if comparison.by == GroupBy::Rank { "ranks" } else { "endpoints" };
    let known = comparison.pairs.iter().filter(|pair| pair.is_known()).count();
    let unknown = not_captured(comparison);
    let differ: Vec<_> = comparison.pairs.iter().filter(|pair| pair.differs()).collect();
    if differ.is_empty() {
        let all = match (known, unknown.is_empty()) {
            (0, false) => return format!("\n{unknown}"),
            (1, true) => "the only pair".to_owned(),
            (count, true) => format!("all {} pairs", group(count as u64)),
            (count, false) => format!("the {} that both runs show", count_of(count as u64, "pair")),
        };
        return format!("\n{all} of {what} sent equal amounts in both runs\n{unknown}");
    }
    let title = format!("{} of {} pairs of {what} differ", group(differ.len() as u64), group(known as u64));
    let header = [title.as_str(), "messages", "", "MPI bytes", "", "wire bytes A", "B", "difference", ""];
    let mut table = columns(&header, 1..header.len());
    for pair in differ.iter().take(MOST) {
        let ((src, dst), values) = (&pair.pair, pair.values());
        let mut row = vec![format!("{} → {}", src.name(), dst.name())];
        for pairing in values.iter().filter(|pairing| matches!(pairing.value, "messages" | "mpi_bytes")) {
            let [_, _, difference, relation] = texts(pairing, false);
            row.extend([difference, relation]);
        }
        for pairing in values.iter().filter(|pairing| pairing.value == "wire_bytes") {
            row.extend(texts(pairing, false));
        }
        table.add_row(row);
    }
    let more = more(differ.len().saturating_sub(MOST));
    format!("\n{}\n{more}{unknown}", table.trim_fmt())
}

/// The line on rows that a table leaves out; empty if there are none.
fn more(left_out: usize) -> String {
    if left_out > 0 { format!("and {left_out} more; --format csv or json lists all\n") } else { String::new() }
}

/// The line on pairs that a run does not show; empty if there are none.
fn not_captured(comparison: &Comparison) -> String {
    let missing = |side: usize| comparison.pairs.iter().filter(|pair| !pair.is_captured[side]).count() as u64;
    let sides = ["A", "B"].into_iter().enumerate().map(|(side, name)| (name, missing(side)));
    let sides: Vec<String> = sides
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{} not captured in {name}", count_of(count, "pair")))
        .collect();
    if sides.is_empty() {
        return String::new();
    }
    format!("{}: unknown whether they differ, because {PORTS_MAY_BE_MISSING}\n", sides.join(", "))
}

fn times(comparison: &Comparison) -> String {
    let rows: Vec<&LatencyComparison> =
        comparison.times.iter().filter(|times| times.samples.iter().all(|count| *count > 0)).collect();
    if rows.is_empty() {
        return "\nno times were measured in both runs\n".to_owned();
    }
    let header =
        ["times", "verb", "size", "samples A", "B", "median A", "B", "", "B is longer", "p99 A", "B", "", "medians"];
    let mut table = columns(&header, 3..header.len() - 1);
    for times in rows.iter().take(MOST) {
        let size = size(times.key.from_bytes);
        let mut row = vec![times.key.interval.to_owned(), times.key.verb.to_owned(), size];
        row.extend(times.samples.map(group));
        for (index, pairing) in times.quantiles.iter().enumerate() {
            let [a, b, _, relation] = texts(pairing, false);
            row.extend([a, b, relation]);
            if index == 0 {
                row.push(times.longer_in_b.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0)));
            }
        }
        row.extend(times.quantiles.first().map(|median| median.verdict.name().to_owned()));
        table.add_row(row);
    }
    let more = more(comparison.times.len().saturating_sub(rows.len().min(MOST)));
    format!("\n{}\n{more}", table.trim_fmt())
}

fn health(comparison: &Comparison) -> String {
    // A sampled capture has no counts of most events, and the other run often has 0.
    let is_shown = |pairing: &&ValueComparison| {
        let [a, b] = pairing.values.map(|value| value.unwrap_or(0.0));
        pairing.verdict != ComparisonVerdict::Equal && (a, b) != (0.0, 0.0)
    };
    let differ: Vec<CompareRow<'_>> =
        comparison.health.iter().filter(is_shown).map(|pairing| CompareRow::new("health", pairing)).collect();
    if differ.is_empty() {
        return "\nhealth: no count differs\n".to_owned();
    }
    format!("\n{}\n", columns_of_comparison("health").text(differ))
}

/// One value in both runs, with the times, the pair or the rank that it belongs to.
pub(super) struct CompareRow<'a> {
    section: &'static str,
    /// The times that the row belongs to.
    times: Option<&'a LatencyComparison>,
    /// Sender and receiver of a pair's value, or the rank that is on another node.
    pair: [Option<&'a Label>; 2],
    value: String,
    /// Of a rate: `mean` or `peak`.
    rate: Option<&'a str>,
    /// Nodes of a rank that is on another node in B.
    nodes: Option<&'a [String; 2]>,
    pairing: Cow<'a, ValueComparison>,
}

impl<'a> CompareRow<'a> {
    fn new(section: &'static str, pairing: &'a ValueComparison) -> Self {
        let (value, pairing) = (pairing.value.to_owned(), Cow::Borrowed(pairing));
        Self { section, times: None, pair: [None; 2], value, rate: None, nodes: None, pairing }
    }

    fn rate(what: &'a str, pairing: &'a ValueComparison) -> Self {
        Self { value: format!("{}_per_s_{what}", pairing.value), rate: Some(what), ..Self::new("rate", pairing) }
    }

    /// The name of the value in the terminal tables.
    fn name(&self) -> String {
        match (self.rate, self.pairing.value) {
            (Some(what), "wire_bytes") => format!("{what} rate on the wire"),
            (Some(what), _) => format!("{what} packet rate"),
            (None, value) => name(value),
        }
    }

    /// The text for A (0), B (1), their difference (2) or their relation (3).
    fn text(&self, index: usize) -> String {
        texts(&self.pairing, self.rate.is_some())[index].clone()
    }

    fn key(&self) -> Option<&'a LatencyKey> {
        self.times.map(|times| &times.key)
    }

    /// Lower and upper end of the confidence interval of A (0) or B (1).
    fn interval(&self, side: usize) -> Option<[u64; 2]> {
        self.pairing.confidence_intervals[side].map(|bounds| [bounds.low_ns, bounds.high_ns])
    }
}

const fn end(name: &'static str, meaning: &'static str) -> ColumnDescription {
    ColumnDescription { name, column_type: ColumnType::Label, unit: Name, meaning }
}

/// A sender or receiver. The table has no column `job`, so traffic of no job is labeled as such
/// instead of `unknown`, which is the label of unknown ranks.
fn of_both(label: Option<&Label>) -> ColumnValue<'_> {
    match label {
        Some(label @ Label::NoJob) => ColumnValue::Text(label.to_string().into()),
        label => label.map_or(ColumnValue::Missing, ColumnValue::from),
    }
}

/// The columns of `compare`; `heading` is the one of the values in the terminal table.
pub(super) fn columns_of_comparison<'a>(heading: &'static str) -> Table<CompareRow<'a>> {
    Table::new("ibscope compare --format csv")
        .column("section", Name, "`total`, `placement`, `rate`, `health`, `pair` or `latency`", |row: &CompareRow<'_>| row.section)
        .column("interval", Name, "in `latency` rows: the measured interval; else empty", |row| row.key().map(|key| key.interval))
        .column("verb", Name, "in `latency` rows: the verb; else empty", |row| row.key().map(|key| key.verb))
        .column("from_bytes", Bytes, "in `latency` rows: the size class; else empty", |row| row.key().and_then(|key| key.from_bytes))
        .values(end("src", "in `pair` rows: the sender; in `placement` rows: the rank; else empty"), |row| of_both(row.pair[0]))
        .values(end("dst", "in `pair` rows: the receiver; else empty"), |row| of_both(row.pair[1]))
        .name(
            "value",
            "the name of the value, with its unit; `moved` for a rank that is on another node in B; `pairs_on_one_node` counts ordered pairs of ranks that share a node",
            |row| Some(&row.value),
        )
        .shown_left(heading, CompareRow::name)
        .column("a", OfValue, "the value in A", |row| row.pairing.values[0])
        .shown("A", |row| row.text(0))
        .column("b", OfValue, "the value in B", |row| row.pairing.values[1])
        .shown("B", |row| row.text(1))
        .column("difference", OfValue, "B minus A", |row| row.pairing.difference())
        .shown("difference", |row| row.text(2))
        .column("ratio", Ratio, "B divided by A", |row| row.pairing.ratio())
        .shown("", |row| row.text(3))
        .column("a_samples", Count, "in `latency` rows: number of times that were measured in A", |row| row.times.map(|times| times.samples[0]))
        .column("b_samples", Count, "in `latency` rows: number of times that were measured in B", |row| row.times.map(|times| times.samples[1]))
        .column("a_low", Nanoseconds, "in `latency` rows: lower end of the interval that holds the true quantile of A with 99 % confidence", |row| {
            row.interval(0).map(|ends| ends[0])
        })
        .column("a_high", Nanoseconds, "upper end of the interval of A", |row| row.interval(0).map(|ends| ends[1]))
        .column("b_low", Nanoseconds, "lower end of the interval of B", |row| row.interval(1).map(|ends| ends[0]))
        .column("b_high", Nanoseconds, "upper end of the interval of B", |row| row.interval(1).map(|ends| ends[1]))
        .column("longer_in_b", Ratio, "in `latency` rows: probability that a time of B is longer than one of A, 0 to 1", |row| {
            row.times.and_then(|times| times.longer_in_b)
        })
        .column("verdict", Name, "see [two runs](report.md#two-runs)", |row| row.pairing.verdict.name())
        .name("a_node", "in `placement` rows: node of the rank in A; else empty", |row| row.nodes.map(|[a, _]| a.as_str()))
        .name("b_node", "in `placement` rows: node of the rank in B; else empty", |row| row.nodes.map(|[_, b]| b.as_str()))
}

/// All values, section by section.
fn rows(comparison: &Comparison) -> impl Iterator<Item = CompareRow<'_>> {
    let totals = comparison.totals.iter().map(|pairing| CompareRow::new("total", pairing));
    let moved = comparison.placements.moved.iter().map(|MovedRank { rank, nodes }| CompareRow {
        section: "placement",
        times: None,
        pair: [Some(rank), None],
        value: "moved".to_owned(),
        rate: None,
        nodes: Some(nodes),
        pairing: Cow::Owned(ValueComparison::differing("moved")),
    });
    let rates = comparison.rates.iter().map(|(what, pairing)| CompareRow::rate(what, pairing));
    let health = comparison.health.iter().map(|pairing| CompareRow::new("health", pairing));
    let pairs = comparison.pairs.iter().flat_map(|pair| {
        pair.values().into_iter().map(move |pairing| CompareRow {
            section: "pair",
            times: None,
            pair: [Some(&pair.pair.0), Some(&pair.pair.1)],
            value: pairing.value.to_owned(),
            rate: None,
            nodes: None,
            pairing: Cow::Owned(pairing),
        })
    });
    let times = comparison.times.iter().flat_map(|times| {
        times
            .quantiles
            .iter()
            .map(move |pairing| CompareRow { times: Some(times), ..CompareRow::new("latency", pairing) })
    });
    totals.chain(moved).chain(rates).chain(health).chain(pairs).chain(times)
}

/// Writes one csv row per value. Fields that do not apply to its section are empty.
pub fn csv(comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
    columns_of_comparison("").csv(rows(comparison), out)
}

/// Writes one JSON object with the csv rows.
pub fn json(comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
    let members = json!({
        "a": comparison.names[0],
        "b": comparison.names[1],
        "by": comparison.by.name(),
        "confidence": 0.99,
        "windows_ns": comparison.windows_ns,
        "ranks": comparison.placements.ranks,
        "values": columns_of_comparison("").objects(rows(comparison)),
    });
    write_document(out, "ibscope compare", 2, members)
}
