//! Streamed tables: each row is written at once, so memory does not grow with the number of rows.

use super::{CsvRows, Table};
use serde_json::Value;
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

/// Writes rows in a [`LineFormat`].
pub(crate) struct RowWriter<'a, R> {
    table: Table<R>,
    out: RowOutput<'a>,
}

enum RowOutput<'a> {
    People(&'a mut dyn Write),
    Csv(Box<CsvRows<'a>>),
    Json(&'a mut dyn Write),
}

impl<'a, R> RowWriter<'a, R> {
    /// Writes the header; `header` is the header line of the terminal form.
    pub(crate) fn begin(form: LineFormat, table: Table<R>, header: &str, out: &'a mut dyn Write) -> io::Result<Self> {
        let out = match form {
            LineFormat::Table => {
                writeln!(out, "{header}")?;
                RowOutput::People(out)
            }
            LineFormat::Csv => RowOutput::Csv(Box::new(CsvRows::begin(&table, out)?)),
            LineFormat::Json => RowOutput::Json(out),
        };
        Ok(Self { table, out })
    }

    /// Writes a row; `line` returns its line in the terminal form.
    pub(crate) fn write(&mut self, row: &R, line: impl FnOnce() -> String) -> io::Result<()> {
        match &mut self.out {
            RowOutput::People(out) => writeln!(out, "{}", line()),
            RowOutput::Csv(csv) => csv.write(&self.table, row),
            RowOutput::Json(out) => writeln!(out, "{}", Value::Object(self.table.object(row))),
        }
    }
    /// Writes the buffered rest. Without this call, an error of the last write is lost.
    pub(crate) fn finish(self) -> io::Result<()> {
        match self.out {
            RowOutput::Csv(csv) => csv.finish(),
            RowOutput::People(_) | RowOutput::Json(_) => Ok(()),
        }
    }
}
