//! A comparison as a table for people, csv and JSON.

use crate::analysis::By;
use crate::analysis::compare::{Comparison, MovedRank, Pairing, Placements, Times, Verdict};
use crate::render::columns::columns;
use crate::render::latency::{key_csv, key_json, size, time};
use crate::render::units::{bytes, bytes_per_second, group, per_second, span};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{self, Write};

/// Pairs, and kinds of times, in the table.
const MOST: usize = 10;

/// The labels of what has none.
const NONE: &str = ",,,,";
/// The columns of csv.
const COLUMNS: &str = "section,interval,verb,from_bytes,src,dst,value,a,b,difference,ratio,a_samples,b_samples,a_low,a_high,b_low,b_high,\
                       longer_in_b,verdict";

/// For people: what differs, the most first.
#[must_use]
pub fn table(comparison: &Comparison) -> String {
    let [a, b] = &comparison.names;
    let placement = placement(&comparison.placements).map(|text| format!("{text}\n\n")).unwrap_or_default();
    let mut text = format!("A  {a}\nB  {b}\n\n{placement}{}", totals(comparison));
    text.push_str(&pairs(comparison));
    text.push_str(&times(comparison));
    text.push_str(&health(comparison));
    text.push_str(
        "\nCounts are exact. A difference of medians is called beyond chance where their 99 % intervals have no value in common. Both say what differs\n\
         between these two captures; what differs from run to run takes several runs of each.\n",
    );
    text
}

/// What differs in where the ranks are; `None` where nothing does.
pub(crate) fn placement(placements: &Placements) -> Option<String> {
    let Placements { ranks, moved, .. } = placements;
    let told = |MovedRank { rank, nodes: [a, b] }: &MovedRank| format!("rank {rank} ({a} in A, {b} in B)");
    let mut all: Vec<String> = moved.iter().take(MOST).map(told).collect();
    if moved.len() > MOST {
        all.push(format!("{} more, which json has", group((moved.len() - MOST) as u64)));
    }
    (!moved.is_empty()).then(|| {
        let (moved, ranks) = (group(moved.len() as u64), group(*ranks as u64));
        format!("The placement differs: {moved} of {ranks} ranks are on another node:\n{}.", all.join(",\n"))
    })
}

/// A number for people, by the unit in its name.
fn shown(value: &str, number: f64) -> String {
    if value.ends_with("_ns") {
        // Spans are told exactly, times to three digits.
        return if value == "time_ns" { span(number as u64) } else { time(number) };
    }
    if value.ends_with("bytes") { bytes(number as u64) } else { group(number as u64) }
}

/// The same of a rate per second.
fn shown_rate(value: &str, rate: f64) -> String {
    if value.ends_with("bytes") { bytes_per_second(rate) } else { per_second(rate) }
}

/// A value in A and in B, their difference, and how they relate, for people.
pub(crate) fn texts(pairing: &Pairing, is_rate: bool) -> [String; 4] {
    let shown = if is_rate { shown_rate } else { shown };
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

/// Of values that are nearly equal the difference in percent, of others the multiple.
fn relative(pairing: &Pairing) -> String {
    match pairing.ratio() {
        None => "-".to_owned(),
        Some(1.0) => "=".to_owned(),
        Some(ratio) if (0.5..2.0).contains(&ratio) => {
            let percent = (ratio - 1.0) * 100.0;
            // What differs is not shown as if it did not.
            let least = if percent < 0.0 { "> -0.1 %" } else { "< +0.1 %" };
            if percent.abs() < 0.05 { least.to_owned() } else { format!("{percent:+.1} %") }
        }
        Some(ratio) if ratio < 100.0 => format!("x {ratio:.2}"),
        Some(ratio) => format!("x {ratio:.0}"),
    }
}

/// The name of a value for people.
pub(crate) fn name(value: &str) -> String {
    let unit_less = value.strip_suffix("_ns").unwrap_or(value);
    unit_less
        .replace("mpi_bytes", "MPI bytes")
        .replace("p2p", "point-to-point")
        .replace('_', " ")
        .replace("mpi ", "MPI ")
}

fn totals(comparison: &Comparison) -> String {
    let mut table = columns(&["", "A", "B", "difference", ""], 1..5);
    for pairing in comparison.totals.iter().filter(|pairing| pairing.values.iter().any(Option::is_some)) {
        let [a, b, difference, relation] = texts(pairing, false);
        table.add_row([name(pairing.value), a, b, difference, relation]);
    }
    for (what, pairing) in &comparison.rates {
        if !matches!(pairing.value, "wire_bytes" | "packets") {
            continue;
        }
        let [a, b, difference, relation] = texts(pairing, true);
        let rate = if pairing.value == "wire_bytes" { "rate on the wire" } else { "packet rate" };
        table.add_row([format!("{what} {rate}"), a, b, difference, relation]);
    }
    let mut text = format!("{}\n", table.trim_fmt());
    let [a, b] = comparison.windows_ns.map(|ns| span(ns.unsigned_abs()));
    if a != b {
        let _ = writeln!(text, "peaks are over {a} in A and over {b} in B");
    }
    text
}

fn pairs(comparison: &Comparison) -> String {
    let what = if comparison.by == By::Rank { "ranks" } else { "endpoints" };
    let differ: Vec<_> = comparison
        .pairs
        .iter()
        .map(|pair| (pair, pair.values()))
        .filter(|(_, values)| values.iter().any(|pairing| pairing.verdict != Verdict::Equal))
        .collect();
    if differ.is_empty() {
        return format!("\nall {} pairs of {what} have sent the same\n", comparison.pairs.len());
    }
    let title =
        format!("{} of {} pairs of {what} differ", group(differ.len() as u64), group(comparison.pairs.len() as u64));
    let header = [title.as_str(), "messages", "", "MPI bytes", "", "wire bytes A", "B", "difference", ""];
    let mut table = columns(&header, 1..header.len());
    for (pair, values) in differ.iter().take(MOST) {
        let (src, dst) = &pair.pair;
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
    let more = differ.len().saturating_sub(MOST);
    let more = if more > 0 { format!("and {more} more; csv and json have all\n") } else { String::new() };
    format!("\n{}\n{more}", table.trim_fmt())
}

fn times(comparison: &Comparison) -> String {
    let rows: Vec<&Times> =
        comparison.times.iter().filter(|times| times.samples.iter().all(|count| *count > 0)).collect();
    if rows.is_empty() {
        return "\nno time was measured in both\n".to_owned();
    }
    let header = [
        "times",
        "verb",
        "size",
        "samples A",
        "B",
        "median A",
        "B",
        "",
        "B is longer",
        "p99 A",
        "B",
        "",
        "of the medians",
    ];
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
    let more = comparison.times.len().saturating_sub(rows.len().min(MOST));
    let more = if more > 0 { format!("and {more} more; csv and json have all\n") } else { String::new() };
    format!("\n{}\n{more}", table.trim_fmt())
}

fn health(comparison: &Comparison) -> String {
    let differ: Vec<&Pairing> = comparison.health.iter().filter(|pairing| pairing.verdict != Verdict::Equal).collect();
    if differ.is_empty() {
        return "\nhealth: no count differs\n".to_owned();
    }
    let mut table = columns(&["health", "A", "B", "difference", ""], 1..5);
    for pairing in differ {
        let [a, b, difference, relation] = texts(pairing, false);
        table.add_row([name(pairing.value), a, b, difference, relation]);
    }
    format!("\n{}\n", table.trim_fmt())
}

/// One row per value. Fields that do not belong to a section are empty.
pub fn csv(comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{COLUMNS}")?;
    let mut row = |section: &str, labels: &str, value: &str, pairing: &Pairing, times: Option<&Times>| {
        let number = |number: Option<f64>| number.map(|number| number.to_string()).unwrap_or_default();
        let [a, b] = pairing.values.map(number);
        let (difference, ratio) = (number(pairing.difference()), number(pairing.ratio()));
        let samples =
            times.map_or_else(|| ",".to_owned(), |times| format!("{},{}", times.samples[0], times.samples[1]));
        let bounds = pairing
            .bounds
            .map(|bounds| bounds.map_or_else(|| ",".to_owned(), |b| format!("{},{}", b.low_ns, b.high_ns)));
        let longer = number(times.and_then(|times| times.longer_in_b));
        let verdict = pairing.verdict.name();
        writeln!(
            out,
            "{section},{labels},{value},{a},{b},{difference},{ratio},{samples},{},{longer},{verdict}",
            bounds.join(",")
        )
    };
    for pairing in &comparison.totals {
        row("total", NONE, pairing.value, pairing, None)?;
    }
    for moved in &comparison.placements.moved {
        let labels = format!(",,,{},", moved.rank);
        row("placement", &labels, "moved", &Pairing::differing("moved"), None)?;
    }
    for (what, pairing) in &comparison.rates {
        row("rate", NONE, &format!("{}_per_s_{what}", pairing.value), pairing, None)?;
    }
    for pairing in &comparison.health {
        row("health", NONE, pairing.value, pairing, None)?;
    }
    for pair in &comparison.pairs {
        let labels = format!(",,,{},{}", pair.pair.0, pair.pair.1);
        for pairing in pair.values() {
            row("pair", &labels, pairing.value, &pairing, None)?;
        }
    }
    for times in &comparison.times {
        for pairing in &times.quantiles {
            row("latency", &key_csv(&times.key), pairing.value, pairing, Some(times))?;
        }
    }
    Ok(())
}

/// One object with the rows of the csv by section.
pub fn json(comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
    let value = |pairing: &Pairing| {
        let [a, b] = pairing.values;
        let mut object = json!({
            "value": pairing.value, "a": a, "b": b, "difference": pairing.difference(), "ratio": pairing.ratio(),
            "verdict": pairing.verdict.name(),
        });
        if pairing.bounds.iter().any(Option::is_some) {
            let [a, b] = pairing.bounds.map(|bounds| bounds.map(|b| [b.low_ns, b.high_ns]));
            (object["a_interval"], object["b_interval"]) = (json!(a), json!(b));
        }
        object
    };
    let all = |pairings: &[Pairing]| pairings.iter().map(value).collect::<Vec<Value>>();
    let rates = comparison.rates.iter().map(|(what, pairing)| {
        let mut object = value(pairing);
        object["value"] = json!(format!("{}_per_s_{what}", pairing.value));
        object
    });
    let pairs = comparison.pairs.iter().map(
        |pair| json!({ "src": pair.pair.0.to_string(), "dst": pair.pair.1.to_string(), "values": all(&pair.values()) }),
    );
    let times = comparison.times.iter().map(|times| {
        let mut object = key_json(&times.key);
        // All pairs are together, of whatever job.
        object.remove("job");
        object.insert("samples".to_owned(), json!(times.samples));
        object.insert("longer_in_b".to_owned(), json!(times.longer_in_b));
        object.insert("quantiles".to_owned(), json!(all(&times.quantiles)));
        object
    });
    let moved = comparison.placements.moved.iter();
    let moved = moved.map(|MovedRank { rank, nodes: [a, b] }| json!({ "rank": rank.to_string(), "a": a, "b": b }));
    let document = json!({
        "schema": "ibscope compare",
        "version": 1,
        "a": comparison.names[0],
        "b": comparison.names[1],
        "by": if comparison.by == By::Rank { "rank" } else { "endpoint" },
        "confidence": 0.99,
        "windows_ns": comparison.windows_ns,
        "placement": {
            "ranks": comparison.placements.ranks,
            "moved": moved.collect::<Vec<_>>(),
            "pairs_on_one_node": comparison.placements.pairs_on_one_node,
        },
        "totals": all(&comparison.totals),
        "rates": rates.collect::<Vec<_>>(),
        "health": all(&comparison.health),
        "pairs": pairs.collect::<Vec<_>>(),
        "latencies": times.collect::<Vec<_>>(),
    });
    writeln!(out, "{document:#}")
}
