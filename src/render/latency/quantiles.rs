//! Rows of quantiles: what the time series and the surface of times have in common.

use super::units::{number, time};
use crate::analysis::Label;
use crate::model::Histogram;
use crate::render::columns::columns;
use crate::render::csv::ends;
use crate::render::json;
use crate::render::units::group;
use serde_json::json;
use std::io::{self, Write};

pub(super) type Pair = Option<(Label, Label)>;

/// Names and values, in the order of the csv.
fn values(times: &Histogram) -> [(&'static str, u64); 5] {
    let quantile = |share| times.quantile(share);
    [
        ("samples", times.samples()),
        ("p10_ns", quantile(0.1)),
        ("median_ns", quantile(0.5)),
        ("p90_ns", quantile(0.9)),
        ("p99_ns", quantile(0.99)),
    ]
}

/// Labels of both ends, for people.
pub(super) fn names(pair: Option<&(Label, Label)>) -> Vec<String> {
    pair.map(|(src, dst)| vec![src.name(), dst.name()]).unwrap_or_default()
}

/// A table for people, of rows with the same first columns.
pub(super) fn table<'a>(
    labels: &[&str],
    right: &[usize],
    rows: impl Iterator<Item = (Vec<String>, &'a Histogram)>,
) -> String {
    let header = [labels, &["samples", "p10", "median", "p90", "p99"]].concat();
    let mut table = columns(&header, right.iter().copied().chain(labels.len()..header.len()));
    for (mut row, times) in rows {
        let [(_, samples), quantiles @ ..] = values(times);
        row.push(group(samples));
        row.extend(quantiles.map(|(_, ns)| time(ns as f64)));
        table.add_row(row);
    }
    format!("{}\n", table.trim_fmt())
}

pub(super) fn csv<'a>(
    place: &str,
    rows: impl Iterator<Item = (&'a str, &'a Pair, String, &'a Histogram)>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let names = values(&Histogram::default()).map(|(name, _)| name).join(",");
    writeln!(out, "interval,src,dst,{place},{names},job")?;
    for (interval, pair, place, times) in rows {
        let [src, dst, job] = ends(pair.as_ref());
        let values = values(times).map(|(_, value)| number(value as f64)).join(",");
        writeln!(out, "{interval},{src},{dst},{place},{values},{job}")?;
    }
    Ok(())
}

pub(super) fn row_json(
    interval: &str,
    pair: &Pair,
    place: &[(&str, serde_json::Value)],
    times: &Histogram,
) -> serde_json::Map<String, serde_json::Value> {
    let mut row = serde_json::Map::new();
    row.insert("interval".to_owned(), json!(interval));
    row.extend(json::ends(pair.as_ref()).map(|(name, value)| (name.to_owned(), value)));
    row.extend(place.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    row.extend(values(times).map(|(name, value)| (name.to_owned(), json!(value))));
    row
}
