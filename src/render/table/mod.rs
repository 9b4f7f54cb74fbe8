//! Writes a [`Table`] as csv, JSON or terminal text.
//!
//! In: rows of an analysis. Out: text. A [`Table`] defines each column once, with its unit, its
//! meaning and the function that computes its value. csv and JSON therefore always have the same
//! columns, and `docs/columns.md` describes all of them.

mod document;
pub(crate) mod groups;
mod lines;
mod people;
mod value;

pub(crate) use crate::model::table::{ColumnValue, Table};
pub(crate) use document::write_document;
pub use lines::LineFormat;
pub(crate) use lines::{LineColumn, LineLayout, RowWriter};

use crate::analysis::Label;
use crate::model::column::{ColumnDescription, ColumnType, ColumnUnit};
use crate::model::table::{Column, ShownColumn, ShownText};
use crate::render::columns::{columns, within};
use serde_json::{Map, Value as Json};
use std::borrow::Borrow;
use std::io::{self, Write};

impl<R> Table<R> {
    /// Adds a column of senders or receivers: ranks or endpoints.
    pub(crate) fn label(
        self,
        name: &'static str,
        meaning: &'static str,
        label: impl for<'r> Fn(&'r R) -> Option<&'r Label> + 'static,
    ) -> Self {
        let description = ColumnDescription { name, column_type: ColumnType::Label, unit: ColumnUnit::Name, meaning };
        self.values(description, move |row| label(row).map_or(ColumnValue::Missing, ColumnValue::from))
    }

    /// A JSON object that maps column names to meanings.
    pub(crate) fn definitions(&self) -> Json {
        let definition = |column: &Column<R>| (column.description.name.to_owned(), column.description.meaning.into());
        Json::Object(self.columns.iter().map(definition).collect())
    }

    /// Writes csv: a header and one record per row.
    pub(crate) fn csv(&self, rows: impl IntoIterator<Item = impl Borrow<R>>, out: &mut dyn Write) -> io::Result<()> {
        let mut csv = CsvRows::begin(self, out)?;
        for row in rows {
            csv.write(self, row.borrow())?;
        }
        csv.finish()
    }

    /// Writes a single row as csv, one `name,value` record per column.
    pub(crate) fn csv_transposed(&self, row: &R, out: &mut dyn Write) -> io::Result<()> {
        let mut csv = csv::Writer::from_writer(out);
        csv.write_record(["name", "value"]).map_err(io_error)?;
        let mut field = String::new();
        for column in &self.columns {
            field.clear();
            column.value(row).put(column.decimals, &mut field);
            csv.write_record([column.description.name, &field]).map_err(io_error)?;
        }
        csv.flush()
    }

    /// A row as a JSON object with the csv columns as members.
    pub(crate) fn object(&self, row: &R) -> Map<String, Json> {
        let member = |column: &Column<R>| (column.description.name.to_owned(), column.value(row).json(column.decimals));
        self.columns.iter().map(member).collect()
    }

    /// The rows as JSON objects.
    pub(crate) fn objects(&self, rows: impl IntoIterator<Item = impl Borrow<R>>) -> Vec<Json> {
        rows.into_iter().map(|row| Json::Object(self.object(row.borrow()))).collect()
    }

    /// The rows as JSON objects with one additional member, `name`, that csv does not have.
    pub(crate) fn objects_with(
        &self,
        rows: impl IntoIterator<Item = impl Borrow<R>>,
        name: &str,
        value: impl Fn(&R) -> Json,
    ) -> Vec<Json> {
        let object = |row: &R| {
            let mut object = self.object(row);
            object.insert(name.to_owned(), value(row));
            Json::Object(object)
        };
        rows.into_iter().map(|row| object(row.borrow())).collect()
    }

    /// The rows as a terminal table.
    pub(crate) fn text(&self, rows: impl IntoIterator<Item = impl Borrow<R>>) -> String {
        self.text_without(rows, &[])
    }

    /// The rows as a terminal table of at most `width` columns. Leaves out the columns with the
    /// headings `order`, one after the other, until the table fits, and names them below it.
    pub(crate) fn text_within(&self, rows: &[R], width: Option<usize>, order: &[&str]) -> String {
        within(width, order, |left_out| self.text_without(rows, &order[..left_out]))
    }

    fn text_without(&self, rows: impl IntoIterator<Item = impl Borrow<R>>, headings: &[&str]) -> String {
        let shown: Vec<&ShownColumn<R>> =
            self.shown.iter().filter(|column| !headings.contains(&column.heading.as_ref())).collect();
        let names: Vec<&str> = shown.iter().map(|column| column.heading.as_ref()).collect();
        let right = shown.iter().enumerate().filter(|(_, column)| column.is_right).map(|(index, _)| index);
        let mut table = columns(&names, right);
        for row in rows {
            table.add_row(shown.iter().map(|column| self.shown_text(column, row.borrow())));
        }
        table.trim_fmt()
    }

    fn shown_text(&self, column: &ShownColumn<R>, row: &R) -> String {
        match &column.text {
            ShownText::Formatted(format) => format(row),
            ShownText::OfUnit(index) => {
                let Some(column) = self.columns.get(*index) else { return String::new() };
                people::text(&column.value(row), column.description.unit)
            }
        }
    }
}

/// A csv file that is written row by row.
pub(crate) struct CsvRows<'a> {
    csv: csv::Writer<&'a mut dyn Write>,
    /// The text of one field, kept so that it is allocated once.
    field: String,
}

impl<'a> CsvRows<'a> {
    /// Writes the header.
    pub(crate) fn begin<R>(table: &Table<R>, out: &'a mut dyn Write) -> io::Result<Self> {
        let mut csv = csv::Writer::from_writer(out);
        csv.write_record(table.columns.iter().map(|column| column.description.name)).map_err(io_error)?;
        Ok(Self { csv, field: String::new() })
    }

    /// Writes one record.
    pub(crate) fn write<R>(&mut self, table: &Table<R>, row: &R) -> io::Result<()> {
        for column in &table.columns {
            self.field.clear();
            column.value(row).put(column.decimals, &mut self.field);
            self.csv.write_field(&self.field).map_err(io_error)?;
        }
        self.csv.write_record(None::<&[u8]>).map_err(io_error)
    }

    /// Writes the buffered rest. Without this call, an error of the last write is lost.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.csv.flush()
    }
}

/// The error of the output itself: the conversion of the csv crate hides its kind, and a closed
/// pipe is no failure.
fn io_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    struct Row {
        label: Label,
        count: Option<u64>,
        share: f64,
        names: Vec<&'static str>,
    }

    fn table() -> Table<Row> {
        Table::new("some rows")
            .label("src", "the sender", |row: &Row| Some(&row.label))
            .shown_left("from", |row| row.label.name())
            .column("packets", ColumnUnit::Count, "its packets", |row| row.count)
            .headed("packets")
            .column("share", ColumnUnit::Ratio, "its share", |row| row.share)
            .decimals(2)
            .list("names", ColumnUnit::Name, "its names", |row| row.names.iter().map(|name| (*name).into()).collect())
    }

    fn rows() -> [Row; 2] {
        [
            Row { label: Label::only(3), count: Some(12_345), share: 0.126, names: vec!["a grid, 2x2", "b"] },
            Row { label: Label::NoJob, count: None, share: f64::NAN, names: Vec::new() },
        ]
    }

    #[test]
    fn csv_and_json_have_the_same_columns() {
        let mut out = Vec::new();
        table().csv(rows(), &mut out).unwrap();
        let expected = "src,packets,share,names\n3,12345,0.13,\"a grid, 2x2;b\"\nunknown,,,\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        let expected = json!([
            { "src": 3, "packets": 12_345, "share": 0.13, "names": ["a grid, 2x2", "b"] },
            { "src": "unknown", "packets": null, "share": null, "names": [] },
        ]);
        assert_eq!(Json::from(table().objects(rows())), expected);
        let names: Vec<&str> = table().describe().columns.iter().map(|column| column.name).collect();
        assert_eq!(names, ["src", "packets", "share", "names"]);
    }

    #[test]
    fn people_see_columns_with_a_heading() {
        let text = table().text(rows());
        assert_eq!(text, " from    packets\n 3        12 345\n no job        -", "{text}");
    }
}
