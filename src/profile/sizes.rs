//! The Parquet table of sizes: one row per connection, what the sizes are of, and power of two.

use super::ProfileError;
use super::tables::{Table, column};
use crate::model::profile::SizeRow;
use crate::model::{Packed, SizeClass, SizeOf, SizeSums};
use polars::prelude::{Column, DataFrame, NamedFrom, PolarsResult, Series};
use std::path::Path;

const NUMBERS: [&str; 5] = ["from_bytes", "count", "bytes", "smallest_bytes", "largest_bytes"];

/// The table of sizes.
pub(super) fn table(rows: &[SizeRow]) -> PolarsResult<DataFrame> {
    let columns = vec![
        column!(rows, "connection", u32, |row| row.connection),
        column!(rows, "distribution", String, |row| row.of.distribution().to_owned()),
        column!(rows, "of", String, |row| row.of.name().to_owned()),
        column!(rows, "from_bytes", u64, |row| row.size.from_bytes()),
        column!(rows, "count", u64, |row| row.sums.count),
        column!(rows, "bytes", u64, |row| row.sums.bytes),
        column!(rows, "smallest_bytes", u64, |row| row.sums.smallest_bytes),
        column!(rows, "largest_bytes", u64, |row| row.sums.largest_bytes),
    ];
    DataFrame::new(rows.len(), columns)
}

/// Reads it; `path` is for errors, and `connections` is the length of the table that it points into.
pub(super) fn read(path: &Path, bytes: Vec<u8>, connections: usize) -> Result<Packed<SizeRow>, ProfileError> {
    let table = Table::open(path, bytes)?;
    let (connection, of, numbers) = (table.u32("connection")?, table.text("of")?, table.u64s(NUMBERS)?);
    let row = |row: usize| {
        let of = table.named(&of, row, SizeOf::ALL, SizeOf::name, "nothing that has a size")?;
        let [from_bytes, count, bytes, smallest_bytes, largest_bytes] = table.values(&numbers, row)?;
        let size = SizeClass::of(from_bytes);
        if count == 0
            || smallest_bytes > largest_bytes
            || [smallest_bytes, largest_bytes].map(SizeClass::of) != [size; 2]
        {
            return Err(table.bad(
                row,
                format!("{count} sizes from {smallest_bytes} to {largest_bytes} are none from {from_bytes}"),
            ));
        }
        let sums = SizeSums { count, bytes, smallest_bytes, largest_bytes };
        Ok(SizeRow { connection: table.connection(&connection, row, connections)?, of, size, sums })
    };
    (0..table.rows()).map(row).collect()
}
