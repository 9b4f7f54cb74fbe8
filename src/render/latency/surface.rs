//! Times by size and rate as a table for people, csv and JSON.

use super::quantiles::{csv, names, row_json, table};
use super::units::size;
use crate::analysis::latency::{CellKey, Surface};
use crate::render::units::group;
use serde_json::json;
use std::io::{self, Write};

/// A table for people; without rows, what is said of `nothing`.
#[must_use]
pub fn surface_table(surface: &Surface, nothing: &str) -> String {
    if surface.cells.is_empty() {
        return nothing.to_owned();
    }
    let has_pairs = surface.cells.keys().any(|key| key.pair.is_some());
    let labels: &[&str] =
        if has_pairs { &["interval", "from", "to", "size", "messages/s"] } else { &["interval", "size", "messages/s"] };
    let rows = surface.cells.iter().map(|(key, times)| {
        let mut row = vec![key.interval.to_owned()];
        row.extend(names(key.pair.as_ref()));
        row.push(size(Some(key.from_bytes)));
        row.push(match key.from_rate {
            0 => "below 1".to_owned(),
            1 => "1".to_owned(),
            from => format!("{}-{}", group(from), group((from - 1).saturating_add(from))),
        });
        (row, times)
    });
    table(labels, &[labels.len() - 2, labels.len() - 1], rows)
}

/// `interval,src,dst,from_bytes,from_rate,samples,p10_ns,median_ns,p90_ns,p99_ns,job`.
pub fn surface_csv(surface: &Surface, out: &mut dyn Write) -> io::Result<()> {
    let place = |key: &CellKey| format!("{},{}", key.from_bytes, key.from_rate);
    csv(
        "from_bytes,from_rate",
        surface.cells.iter().map(|(key, times)| (key.interval, &key.pair, place(key), times)),
        out,
    )
}

/// One object with the rows of the csv.
pub fn surface_json(surface: &Surface, out: &mut dyn Write) -> io::Result<()> {
    let rows = surface.cells.iter().map(|(key, times)| {
        let place = [("from_bytes", json!(key.from_bytes)), ("from_rate", json!(key.from_rate))];
        row_json(key.interval, &key.pair, &place, times)
    });
    let rows: Vec<_> = rows.collect();
    let document =
        json!({ "schema": "ibscope latency surface", "version": 1, "bin_ns": surface.bin_ns, "cells": rows });
    writeln!(out, "{document:#}")
}
