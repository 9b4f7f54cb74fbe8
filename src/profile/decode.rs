//! Parquet files as rows, a few row groups at a time.
//!
//! The columns of a table need several times the memory of its rows. So the columns of a long table
//! are not in memory at the same time.

use super::{ProfileError, encode, parquet_check, threads};
use crate::model::{PackedRows, quoted};
use ibscope_parsers::Endpoint;
use polars::error::PolarsError;
use polars::io::parquet::read::ParallelStrategy;
use polars::prelude::{Column, DataFrame, FileMetadataRef, ParquetReader, PolarsResult, SerReader};
use serde::Serialize;
use std::io::Cursor;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Parts of a table that are decoded at the same time, each in its thread.
const PARTS_AT_A_TIME: usize = 4;

/// A Parquet file in memory, with its path for errors. Its sizes are checked, its values are not.
pub(super) struct TableFile<'a> {
    path: &'a Path,
    bytes: Vec<u8>,
    metadata: FileMetadataRef,
}

impl<'a> TableFile<'a> {
    /// Checks a file.
    ///
    /// A correct digest only shows that the file has not changed since somebody wrote the profile;
    /// its content is untrusted. The Parquet reader allocates as many rows as the file claims to
    /// have and panics on damaged input, so `parquet_check` runs first and panics are caught.
    pub(super) fn open(path: &'a Path, bytes: Vec<u8>) -> Result<Self, ProfileError> {
        threads::start()?;
        let metadata = unless_damaged(path, || parquet_check::valid_metadata(&bytes))?;
        Ok(Self { path, bytes, metadata })
    }

    /// Number of rows.
    pub(super) fn rows(&self) -> usize {
        self.metadata.num_rows
    }

    /// True if the table has the column; profiles of older versions do not have all columns.
    pub(super) fn has(&self, name: &str) -> bool {
        self.metadata.schema().fields().iter().any(|field| field.name() == name)
    }

    /// Reads all rows; `of_part` converts a part of the table.
    pub(super) fn read<T: Send>(
        &self,
        of_part: impl Fn(&TableReader<'_>) -> Result<Vec<T>, ProfileError> + Sync,
    ) -> Result<Vec<T>, ProfileError> {
        let mut all = Vec::new();
        // The file may claim more rows than the memory has room for. Then the vector grows with the rows.
        let _ = all.try_reserve_exact(self.rows());
        self.for_each_part(of_part, |rows| all.extend(rows))?;
        Ok(all)
    }

    /// As [`Self::read`], packed.
    pub(super) fn read_packed<T: Send + Serialize>(
        &self,
        of_part: impl Fn(&TableReader<'_>) -> Result<Vec<T>, ProfileError> + Sync,
    ) -> Result<PackedRows<T>, ProfileError> {
        let mut all = PackedRows::default();
        self.for_each_part(of_part, |rows| all.extend(rows))?;
        Ok(all)
    }

    /// Converts the parts of the table by `of_part`, several at a time, and calls `add` with the rows
    /// of each in order.
    pub(super) fn for_each_part<T: Send>(
        &self,
        of_part: impl Fn(&TableReader<'_>) -> Result<Vec<T>, ProfileError> + Sync,
        mut add: impl FnMut(Vec<T>),
    ) -> Result<(), ProfileError> {
        for parts in self.parts().chunks(PARTS_AT_A_TIME) {
            let task = |part: &Range<usize>| -> threads::Task<'_, Result<Vec<T>, ProfileError>> {
                let part = part.clone();
                Box::new(|| of_part(&self.decode(part)?))
            };
            for rows in threads::in_parallel(parts.iter().map(task).collect()) {
                add(rows?);
            }
        }
        Ok(())
    }

    /// The ranges of rows to decode: those of the row groups, with short groups joined.
    fn parts(&self) -> Vec<Range<usize>> {
        let mut parts: Vec<Range<usize>> = Vec::new();
        for group in &self.metadata.row_groups {
            let rows = group.num_rows();
            if let Some(part) = parts.last_mut().filter(|part| part.len() + rows <= encode::GROUP) {
                part.end += rows;
            } else {
                let start = parts.last().map_or(0, |part| part.end);
                parts.push(start..start + rows);
            }
        }
        parts
    }

    fn decode(&self, rows: Range<usize>) -> Result<TableReader<'_>, ProfileError> {
        let decode = || {
            // The other strategies decode the row groups before the slice, too.
            let mut reader = ParquetReader::new(Cursor::new(&self.bytes))
                .read_parallel(ParallelStrategy::RowGroups)
                .with_slice(Some((rows.start, rows.len())));
            reader.set_metadata(self.metadata.clone());
            reader.finish().map(Some)
        };
        let frame = unless_damaged(self.path, decode)?;
        Ok(TableReader { path: self.path, first_row: rows.start, frame })
    }
}

/// Calls a function of the Parquet reader. The file is damaged if it panics or returns `None`.
fn unless_damaged<T>(path: &Path, read: impl FnOnce() -> PolarsResult<Option<T>>) -> Result<T, ProfileError> {
    let damaged = || ProfileError::Damaged { path: path.to_owned() };
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(value)) => value.ok_or_else(damaged),
        Ok(Err(source)) => Err(ProfileError::Table { path: path.to_owned(), action: "read", source }),
        Err(_) => Err(damaged()),
    }
}

/// The columns of a part of a table.
pub(super) struct TableReader<'a> {
    path: &'a Path,
    /// Number of rows before this part.
    first_row: usize,
    frame: DataFrame,
}

/// Defines a method that returns the values of a column by name; nulls are `None`.
macro_rules! reader {
    ($name:ident, $type:ty, $access:ident, $own:expr) => {
        pub(super) fn $name(&self, name: &str) -> Result<Vec<Option<$type>>, ProfileError> {
            let column = self.frame.column(name).and_then(Column::$access).map_err(|source| self.unreadable(source))?;
            Ok(column.iter().map($own).collect())
        }
    };
}

impl TableReader<'_> {
    reader!(u32, u32, u32, |value| value);
    reader!(u64, u64, u64, |value| value);
    reader!(i64, i64, i64, |value| value);
    reader!(f64, f64, f64, |value| value);

    /// The strings of a column. Fails on a string over 256 bytes: ibscope writes short names only.
    pub(super) fn text(&self, name: &str) -> Result<Vec<Option<&str>>, ProfileError> {
        const MAX_BYTES: usize = 256;
        let column = self.frame.column(name).and_then(Column::str).map_err(|source| self.unreadable(source))?;
        match column.iter().position(|text| text.is_some_and(|text| text.len() > MAX_BYTES)) {
            Some(row) => Err(self.invalid_value(row, format!("the text in `{name}` has more than {MAX_BYTES} bytes"))),
            None => Ok(column.iter().collect()),
        }
    }

    pub(super) fn u64s<const N: usize>(&self, names: [&str; N]) -> Result<Vec<Vec<Option<u64>>>, ProfileError> {
        names.into_iter().map(|name| self.u64(name)).collect()
    }

    /// True if the table has the column; profiles of older versions do not have all columns.
    pub(super) fn has(&self, name: &str) -> bool {
        self.frame.column(name).is_ok()
    }

    /// Number of rows of this part. All methods count rows from its start.
    pub(super) fn rows(&self) -> usize {
        self.frame.height()
    }

    /// Number of rows of the table before this part.
    pub(super) fn first_row(&self) -> usize {
        self.first_row
    }

    pub(super) fn value<T: Clone>(&self, column: &[Option<T>], row: usize) -> Result<T, ProfileError> {
        column
            .get(row)
            .cloned()
            .flatten()
            .ok_or_else(|| self.invalid_value(row, "a required value is missing".to_owned()))
    }

    /// A value of a field that holds numbers up to `most`; `None` for null.
    pub(super) fn field(
        &self,
        (name, column): (&str, &[Option<u32>]),
        row: usize,
        most: u32,
    ) -> Result<Option<u32>, ProfileError> {
        let value = column.get(row).copied().flatten();
        match value.filter(|value| *value > most) {
            Some(value) => Err(self.invalid_value(row, format!("{value} in `{name}` is larger than {most}"))),
            None => Ok(value),
        }
    }

    pub(super) fn values<const N: usize>(
        &self,
        columns: &[Vec<Option<u64>>],
        row: usize,
    ) -> Result<[u64; N], ProfileError> {
        let mut values = [0; N];
        for (value, column) in values.iter_mut().zip(columns) {
            *value = self.value(column, row)?;
        }
        Ok(values)
    }

    /// The row number of a connection; fails if it is `connections` or above.
    pub(super) fn connection(
        &self,
        column: &[Option<u32>],
        row: usize,
        connections: usize,
    ) -> Result<u32, ProfileError> {
        let connection = self.value(column, row)?;
        if connection as usize >= connections {
            return Err(self.invalid_value(
                row,
                format!("connection {connection} is out of range: the profile has {connections}"),
            ));
        }
        Ok(connection)
    }

    /// Finds the value in `all` whose name is in this row. For any other name, returns an error
    /// that describes the name by `else_is`.
    pub(super) fn parse_name<T: Copy, const N: usize>(
        &self,
        column: &[Option<&str>],
        row: usize,
        all: [T; N],
        name: impl Fn(T) -> &'static str,
        else_is: &str,
    ) -> Result<T, ProfileError> {
        let text = self.value(column, row)?;
        let found = all.into_iter().find(|one| name(*one) == text);
        found.ok_or_else(|| self.invalid_value(row, format!("{} is {else_is}", quoted(text))))
    }

    pub(super) fn endpoint(&self, column: &[Option<&str>], row: usize) -> Result<Endpoint, ProfileError> {
        let text = self.value(column, row)?;
        text.parse().map_err(|error| self.invalid_value(row, format!("{} is {error}", quoted(text))))
    }

    pub(super) fn invalid_value(&self, row: usize, what: String) -> ProfileError {
        ProfileError::Value { path: self.path.to_owned(), row: self.first_row + row, what }
    }

    fn unreadable(&self, source: PolarsError) -> ProfileError {
        ProfileError::Table { path: self.path.to_owned(), action: "read", source }
    }
}
