//! A comparison of three or more runs as terminal tables, csv and JSON.
//!
//! Runs have the letters A, B, C ... in the order of the command line.

use super::{MOST, end, format_rate, format_value, more, name, of_both};
use crate::analysis::compare::{PairInRuns, RunsComparison, TimesInRuns, ValueInRuns};
use crate::analysis::observed_ports::PORTS_MAY_BE_MISSING;
use crate::analysis::{GroupBy, Label};
use crate::model::column::ColumnUnit::{Bytes, Name, OfValue, Ratio};
use crate::render::columns::columns;
use crate::render::table::{Table, write_document};
use crate::render::units::{count_of, group, size, span};
use serde_json::json;
use std::fmt::Write as _;
use std::io::{self, Write};

/// The totals and rates of the terminal table: heading, name, and `mean` for a rate.
const SHOWN: [(&str, &str, Option<&str>); 5] = [
    ("time", "time_ns", None),
    ("packets", "packets", None),
    ("wire bytes", "wire_bytes", None),
    ("MPI bytes", "p2p_mpi_bytes", None),
    ("mean rate", "wire_bytes", Some("mean")),
];

/// The letter of a run: A to Z, then AA, AB ...
#[must_use]
pub fn letter(run: usize) -> String {
    let last = char::from(b'A' + (run % 26) as u8);
    match run / 26 {
        0 => last.to_string(),
        more => format!("{}{last}", letter(more - 1)),
    }
}

/// The terminal output: values by run, then those that vary most.
#[must_use]
pub fn table(comparison: &RunsComparison) -> String {
    let mut names = String::new();
    for (run, name) in comparison.names.iter().enumerate() {
        let _ = writeln!(names, "{:<3}{name}", letter(run));
    }
    format!(
        "{names}{}\n{}{}{}{}\n\
         spread: largest minus smallest value, divided by the median\n\
         deviates: run whose value lies outside the 99 % prediction interval of the others\n",
        placement(comparison),
        totals(comparison),
        pairs(comparison),
        times(comparison),
        health(comparison),
    )
}

/// The line on ranks that are on other nodes than in the first run; empty if there are none.
fn placement(comparison: &RunsComparison) -> String {
    let moved = comparison.moved_ranks.iter().enumerate().filter(|(_, ranks)| **ranks > 0);
    let moved: Vec<String> =
        moved.map(|(run, ranks)| format!("{} in {}", count_of(*ranks as u64, "rank"), letter(run))).collect();
    if moved.is_empty() {
        return String::new();
    }
    format!("\nThe placement differs from A: {} on another node.\n", moved.join(", "))
}

/// A number, or `-` if it is unknown.
fn shown(value: Option<f64>, format: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), format)
}

/// A number of a value in its unit.
fn text(value: &ValueInRuns, number: Option<f64>, is_rate: bool) -> String {
    let format = if is_rate { format_rate } else { format_value };
    shown(number, |number| format(value.value, number))
}

fn spread(value: &ValueInRuns) -> String {
    shown(value.spread(), |spread| match spread {
        0.0 => "=".to_owned(),
        _ if spread < 0.0005 => "< 0.1 %".to_owned(),
        _ => format!("{:.1} %", spread * 100.0),
    })
}

fn deviating(value: &ValueInRuns) -> String {
    value.deviating.map(letter).unwrap_or_default()
}

/// A row for each run, and for each statistic over the runs.
fn totals(comparison: &RunsComparison) -> String {
    let of = |(_, value, rate): &(&str, &str, Option<&str>)| match rate {
        None => comparison.totals.iter().find(|own| own.value == *value),
        Some(what) => {
            comparison.rates.iter().find(|(own, found)| own == what && found.value == *value).map(|(_, found)| found)
        }
    };
    let values: Vec<_> = SHOWN.iter().filter_map(|own| Some((own, of(own)?))).collect();
    let values: Vec<_> = values.into_iter().filter(|(_, value)| value.values.iter().any(Option::is_some)).collect();
    let header: Vec<&str> = std::iter::once("run").chain(values.iter().map(|((heading, ..), _)| *heading)).collect();
    let mut table = columns(&header, 1..header.len());
    let mut row = |name: String, cell: &dyn Fn(&ValueInRuns, bool) -> String| {
        let cells = values.iter().map(|((.., rate), value)| cell(value, rate.is_some()));
        table.add_row(std::iter::once(name).chain(cells));
    };
    for run in 0..comparison.names.len() {
        row(letter(run), &|value, is_rate| text(value, value.values.get(run).copied().flatten(), is_rate));
    }
    row("median".to_owned(), &|value, is_rate| text(value, value.median(), is_rate));
    row("spread".to_owned(), &|value, _| spread(value));
    row("deviates".to_owned(), &|value, _| deviating(value));
    let windows: Vec<String> = comparison.windows_ns.iter().map(|ns| span(ns.unsigned_abs())).collect();
    let differ = windows.windows(2).any(|pair| pair[0] != pair[1]);
    let note = format!("peaks are over windows of {}\n", windows.join(", "));
    format!("{}\n{}", table.trim_fmt(), if differ { note.as_str() } else { "" })
}

/// Median, minimum and maximum of a value that is no rate.
fn statistics(value: &ValueInRuns) -> [String; 3] {
    [value.median(), value.minimum(), value.maximum()].map(|number| text(value, number, false))
}

/// A table of the first of `count` values with their names, and a line on the others.
fn variations<'a>(heading: &str, values: impl Iterator<Item = (String, &'a ValueInRuns)>, count: usize) -> String {
    let mut table = columns(&[heading, "median", "minimum", "maximum", "spread", "deviates"], 1..5);
    for (name, value) in values.take(MOST) {
        let [median, minimum, maximum] = statistics(value);
        table.add_row([name, median, minimum, maximum, spread(value), deviating(value)]);
    }
    format!("{}\n{}", table.trim_fmt(), more(count.saturating_sub(MOST)))
}

/// The bytes on the wire of the pairs that vary most.
fn pairs(comparison: &RunsComparison) -> String {
    let what = if comparison.by == GroupBy::Rank { "ranks" } else { "endpoints" };
    let all = comparison.pairs.len() as u64;
    let vary: Vec<&PairInRuns> = comparison.pairs.iter().filter(|pair| pair.varies()).collect();
    let hidden = not_captured(comparison);
    if vary.is_empty() {
        return format!("\nno pair of {what} varies over the runs that show it ({})\n{hidden}", count_of(all, "pair"));
    }
    let rows = vary.iter().filter_map(|pair| {
        let (src, dst) = &pair.pair;
        Some((format!("{} → {}", src.name(), dst.name()), pair.value("wire_bytes")?))
    });
    let count = group(vary.len() as u64);
    let table = variations("wire bytes", rows, vary.len());
    format!("\n{count} of {} of {what} vary\n{table}{hidden}", count_of(all, "pair"))
}

/// The line on pairs that a run does not show; empty if there are none.
fn not_captured(comparison: &RunsComparison) -> String {
    let missing =
        |run: usize| comparison.pairs.iter().filter(|pair| pair.is_captured.get(run) == Some(&false)).count() as u64;
    let runs = (0..comparison.names.len()).map(|run| (run, missing(run))).filter(|(_, count)| *count > 0);
    let runs: Vec<String> =
        runs.map(|(run, count)| format!("{} not captured in {}", count_of(count, "pair"), letter(run))).collect();
    if runs.is_empty() {
        return String::new();
    }
    format!("{}: unknown there, because {PORTS_MAY_BE_MISSING}\n", runs.join(", "))
}

fn times(comparison: &RunsComparison) -> String {
    let in_several =
        |times: &&TimesInRuns| times.quantiles.first().is_some_and(|median| median.values.iter().flatten().count() > 1);
    let all: Vec<&TimesInRuns> = comparison.times.iter().filter(in_several).collect();
    if all.is_empty() {
        return "\nno times were measured in two or more runs\n".to_owned();
    }
    let rows = all.iter().filter_map(|times| {
        let key = &times.key;
        Some((format!("{} {} {}", key.interval, key.verb, size(key.from_bytes)), times.quantiles.first()?))
    });
    format!("\n{}", variations("medians of times", rows, all.len()))
}

fn health(comparison: &RunsComparison) -> String {
    let vary: Vec<&ValueInRuns> = comparison.health.iter().filter(|own| own.varies()).collect();
    if vary.is_empty() {
        return "\nhealth: no count varies\n".to_owned();
    }
    let mut table = columns(&["health", "median", "minimum", "maximum"], 1..4);
    for value in vary {
        table.add_row(std::iter::once(name(value.value)).chain(statistics(value)));
    }
    format!("\n{}\n", table.trim_fmt())
}

/// One value in one run.
pub(in crate::render) struct RunRow<'a> {
    section: &'static str,
    /// The times that the row belongs to.
    times: Option<&'a TimesInRuns>,
    /// Sender and receiver of a pair's value.
    pair: Option<&'a (Label, Label)>,
    value: String,
    of: &'a ValueInRuns,
    run: usize,
}

/// The columns of `compare` for three or more profiles.
pub(in crate::render) fn columns_of_runs<'a>() -> Table<RunRow<'a>> {
    Table::new("ibscope compare A.ibp B.ibp C.ibp --format csv")
        .column("section", Name, "`total`, `rate`, `health`, `pair` or `latency`", |row: &RunRow<'_>| row.section)
        .column("interval", Name, "in `latency` rows: the measured interval; else empty", |row| {
            row.times.map(|times| times.key.interval)
        })
        .column("verb", Name, "in `latency` rows: the verb; else empty", |row| row.times.map(|times| times.key.verb))
        .column("from_bytes", Bytes, "in `latency` rows: the size class; else empty", |row| {
            row.times.and_then(|times| times.key.from_bytes)
        })
        .values(end("src", "in `pair` rows: the sender; else empty"), |row| of_both(row.pair.map(|pair| &pair.0)))
        .values(end("dst", "in `pair` rows: the receiver; else empty"), |row| of_both(row.pair.map(|pair| &pair.1)))
        .name("value", "the name of the value, with its unit", |row| Some(&row.value))
        .column("run", Name, "the letter of the run: `A` is the first profile of the command line", |row| letter(row.run))
        .column("in_run", OfValue, "the value in this run; empty if the run has none, or if its captures may not show the pair", |row| {
            row.of.values.get(row.run).copied().flatten()
        })
        .column("median", OfValue, "median over the runs that have the value; this and all following columns are the same in all rows of a value", |row| {
            row.of.median()
        })
        .column("minimum", OfValue, "the smallest value of a run", |row| row.of.minimum())
        .column("maximum", OfValue, "the largest value of a run", |row| row.of.maximum())
        .column("spread", Ratio, "`maximum` minus `minimum`, divided by `median`; empty if the median is 0, or if only one run has the value", |row| {
            row.of.spread()
        })
        .column("deviating_run", Name, "the letter of the run that deviates beyond chance; else empty", |row| {
            row.of.deviating.map(letter)
        })
        .column("verdict", Name, "see [several runs](report.md#several-runs)", |row| row.of.verdict.name())
}

/// All values of all runs, section by section.
fn rows(comparison: &RunsComparison) -> impl Iterator<Item = RunRow<'_>> {
    let plain = |section, of| (section, None, None, None, of);
    let totals = comparison.totals.iter().map(move |of| plain("total", of));
    let rates = comparison.rates.iter().map(|(what, of)| ("rate", Some(*what), None, None, of));
    let health = comparison.health.iter().map(move |of| plain("health", of));
    let pairs = comparison.pairs.iter().flat_map(|pair| pair.values.iter().map(move |of| (pair, of)));
    let pairs = pairs.map(|(pair, of)| ("pair", None, Some(&pair.pair), None, of));
    let times = comparison.times.iter().flat_map(|times| times.quantiles.iter().map(move |of| (times, of)));
    let times = times.map(|(times, of)| ("latency", None, None, Some(times), of));
    let values = totals.chain(rates).chain(health).chain(pairs).chain(times);
    values.flat_map(|(section, rate, pair, times, of)| {
        let value = match rate {
            None => of.value.to_owned(),
            Some(what) => format!("{}_per_s_{what}", of.value),
        };
        (0..of.values.len()).map(move |run| RunRow { section, times, pair, value: value.clone(), of, run })
    })
}

/// Writes one csv row per value and run. Fields that do not apply to its section are empty.
pub fn csv(comparison: &RunsComparison, out: &mut dyn Write) -> io::Result<()> {
    columns_of_runs().csv(rows(comparison), out)
}

/// Writes one JSON object with the csv rows.
pub fn json(comparison: &RunsComparison, out: &mut dyn Write) -> io::Result<()> {
    let members = json!({
        "runs": comparison.names,
        "by": comparison.by.name(),
        "confidence": 0.99,
        "windows_ns": comparison.windows_ns,
        "moved_ranks": comparison.moved_ranks,
        "values": columns_of_runs().objects(rows(comparison)),
    });
    write_document(out, "ibscope compare of several runs", 1, members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_continue_behind_z() {
        assert_eq!([0, 25, 26, 51, 52, 701, 702].map(letter), ["A", "Z", "AA", "AZ", "BA", "ZZ", "AAA"]);
    }
}
