//! Streamed tables: each row is written at once, so memory does not grow with the number of rows.

use super::{CsvRows, Table};
use crate::render::columns::not_shown;
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{self, Write};

/// The format of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFormat {
    /// Aligned columns for a terminal: endpoints by name where known, time since the first packet.
    Table,
    /// csv: a header and one record per row.
    Csv,
    /// JSON lines: one object per row, with the csv columns as members.
    Json,
}

/// A column of the terminal form. Rows are written before the next one is known, so its width is
/// fixed.
#[derive(Clone, Copy)]
pub(crate) struct LineColumn {
    heading: &'static str,
    width: usize,
    is_right: bool,
}

impl LineColumn {
    /// A column that is aligned left.
    pub(crate) const fn left(heading: &'static str, width: usize) -> Self {
        Self { heading, width, is_right: false }
    }

    /// A column that is aligned right.
    pub(crate) const fn right(heading: &'static str, width: usize) -> Self {
        Self { heading, width, is_right: true }
    }
}

/// The columns of the terminal form that fit.
pub(crate) struct LineLayout {
    /// The columns, each with its index among all.
    shown: Vec<(usize, LineColumn)>,
    left_out: Vec<&'static str>,
}

impl LineLayout {
    /// The columns that fit into `width`: leaves out those with the headings `order`, one after the
    /// other.
    pub(crate) fn new(columns: &[LineColumn], width: Option<usize>, order: &[&'static str]) -> Self {
        let layout = |left_out: usize| {
            let left_out = order[..left_out].to_vec();
            let is_shown = |(_, column): &(usize, LineColumn)| !left_out.contains(&column.heading);
            Self { shown: columns.iter().copied().enumerate().filter(is_shown).collect(), left_out }
        };
        let fits = |left_out: &usize| width.is_none_or(|width| layout(*left_out).width() <= width);
        layout((0..order.len()).find(fits).unwrap_or(order.len()))
    }

    /// The width of a line.
    fn width(&self) -> usize {
        let empty: Vec<String> = self.shown.iter().map(|(_, column)| "x".repeat(column.width)).collect();
        self.put(empty.iter().map(String::as_str)).chars().count()
    }

    fn header(&self) -> String {
        self.put(self.shown.iter().map(|(_, column)| column.heading))
    }

    /// A line with the cells of all columns.
    fn line(&self, cells: &[String]) -> String {
        self.put(self.shown.iter().map(|(index, _)| cells.get(*index).map_or("", String::as_str)))
    }

    fn put<'c>(&self, cells: impl Iterator<Item = &'c str>) -> String {
        let mut line = String::new();
        let mut is_after_right = false;
        for ((_, LineColumn { width, is_right, .. }), cell) in self.shown.iter().zip(cells) {
            let gap = if is_after_right && !is_right { "  " } else { " " };
            line.push_str(if line.is_empty() { "" } else { gap });
            _ = if *is_right { write!(line, "{cell:>width$}") } else { write!(line, "{cell:<width$}") };
            is_after_right = *is_right;
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// Writes rows in a [`LineFormat`].
pub(crate) struct RowWriter<'a, R> {
    table: Table<R>,
    out: RowOutput<'a>,
}

enum RowOutput<'a> {
    /// The header comes with the first row.
    People {
        layout: LineLayout,
        out: &'a mut dyn Write,
        has_header: bool,
    },
    Csv(Box<CsvRows<'a>>),
    Json(&'a mut dyn Write),
}

impl<'a, R> RowWriter<'a, R> {
    /// Writes the header of csv; `layout` is that of the terminal form.
    pub(crate) fn begin(
        form: LineFormat,
        table: Table<R>,
        layout: LineLayout,
        out: &'a mut dyn Write,
    ) -> io::Result<Self> {
        let out = match form {
            LineFormat::Table => RowOutput::People { layout, out, has_header: false },
            LineFormat::Csv => RowOutput::Csv(Box::new(CsvRows::begin(&table, out)?)),
            LineFormat::Json => RowOutput::Json(out),
        };
        Ok(Self { table, out })
    }

    /// Writes a row; `cells` returns the cells of all columns of the terminal form.
    pub(crate) fn write(&mut self, row: &R, cells: impl FnOnce() -> Vec<String>) -> io::Result<()> {
        match &mut self.out {
            RowOutput::People { layout, out, has_header } => {
                if !std::mem::replace(has_header, true) {
                    writeln!(out, "{}", layout.header())?;
                }
                writeln!(out, "{}", layout.line(&cells()))
            }
            RowOutput::Csv(csv) => csv.write(&self.table, row),
            RowOutput::Json(out) => writeln!(out, "{}", Value::Object(self.table.object(row))),
        }
    }

    /// Names the columns that do not fit, or writes `nothing` if there was no row, and writes the
    /// buffered rest. Without this call, an error of the last write is lost.
    pub(crate) fn finish(self, nothing: &str) -> io::Result<()> {
        match self.out {
            RowOutput::Csv(csv) => csv.finish(),
            RowOutput::People { out, has_header: false, .. } => writeln!(out, "{nothing}"),
            RowOutput::People { layout, out, .. } if !layout.left_out.is_empty() => {
                writeln!(out, "{}", not_shown(&layout.left_out))
            }
            RowOutput::People { .. } | RowOutput::Json(_) => Ok(()),
        }
    }
}
