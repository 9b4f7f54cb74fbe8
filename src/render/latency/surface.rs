//! Times by message size and message rate as terminal table, csv and JSON.

use super::quantiles::{self, HasTimes, quantiles};
use crate::analysis::Label;
use crate::analysis::latency::{CellKey, Surface};
use crate::model::Histogram;
use crate::model::column::ColumnUnit::{Bytes, PerSecond};
use crate::render::table::groups::{self, HasPair};
use crate::render::table::{Table, write_document};
use crate::render::units::{group, size};
use serde_json::json;
use std::io::{self, Write};

/// The times of one size class and one rate class.
pub(in crate::render) struct SurfaceRow<'a> {
    key: &'a CellKey,
    times: &'a Histogram,
}

impl HasPair for SurfaceRow<'_> {
    fn pair(&self) -> Option<(&Label, &Label)> {
        self.key.pair.as_ref().map(|(src, dst)| (src, dst))
    }
}

impl HasTimes for SurfaceRow<'_> {
    fn times(&self) -> &Histogram {
        self.times
    }
}

/// The columns of `latency --view surface`.
pub(in crate::render) fn columns_of_surface<'a>(has_pairs: bool) -> Table<SurfaceRow<'a>> {
    Table::new("ibscope latency --view surface --format csv")
        .name("interval", groups::INTERVAL, |row: &SurfaceRow<'_>| Some(row.key.interval))
        .headed("interval")
        .with(groups::shown_pair(has_pairs))
        .column("from_bytes", Bytes, groups::FROM_BYTES, |row| row.key.from_bytes)
        .shown("size", |row| size(Some(row.key.from_bytes)))
        .column(
            "from_rate",
            PerSecond,
            "messages per second of the connection, in classes: from this value (0, 1, 2, 4 ...) to below the next",
            |row| row.key.from_rate,
        )
        .shown("messages/s", |row| match row.key.from_rate {
            0 => "below 1".to_owned(),
            1 => "1".to_owned(),
            from => format!("{}-{}", group(from), group((from - 1).saturating_add(from))),
        })
        .with(quantiles)
        .with(groups::job)
}

fn rows(surface: &Surface) -> impl Iterator<Item = SurfaceRow<'_>> {
    surface.cells.iter().map(|(key, times)| SurfaceRow { key, times })
}

/// The terminal table; `nothing` if there are no rows. If the table is wider than `width` columns, it
/// leaves out the p10, the p90 and the samples, in this order, until it fits.
#[must_use]
pub fn surface_table(surface: &Surface, nothing: &str, width: Option<usize>) -> String {
    if surface.cells.is_empty() {
        return nothing.to_owned();
    }
    let has_pairs = surface.cells.keys().any(|key| key.pair.is_some());
    let rows: Vec<_> = rows(surface).collect();
    format!("{}\n", columns_of_surface(has_pairs).text_within(&rows, width, &quantiles::LEFT_OUT))
}

/// Writes one csv row per size class and rate class.
pub fn surface_csv(surface: &Surface, out: &mut dyn Write) -> io::Result<()> {
    columns_of_surface(true).csv(rows(surface), out)
}

/// Writes one JSON object with the csv rows.
pub fn surface_json(surface: &Surface, out: &mut dyn Write) -> io::Result<()> {
    let cells = columns_of_surface(true).objects(rows(surface));
    write_document(out, "ibscope latency surface", 2, json!({ "bin_ns": surface.bin_ns, "cells": cells }))
}
