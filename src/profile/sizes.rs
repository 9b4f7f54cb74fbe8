//! The Parquet table of sizes: one row per connection, category of sizes, and power of two.

use super::ProfileError;
use super::decode::TableFile;
use super::tables::CONNECTION;
use crate::model::column::ColumnUnit::{Bytes, Count, Name, Number};
use crate::model::profile::SizeRow;
use crate::model::table::Table;
use crate::model::{PackedRows, SizeCategory, SizeClass, SizeSums};
use std::path::Path;

const NUMBER_COLUMNS: [&str; 5] = ["from_bytes", "count", "bytes", "smallest_bytes", "largest_bytes"];

/// The table of sizes.
pub(super) fn table() -> Table<SizeRow> {
    Table::new("sizes.parquet")
        .column("connection", Number, CONNECTION, |row: &SizeRow| row.connection)
        .column(
            "distribution",
            Name,
            "`packets` (bytes on the wire), `messages` (payload of transport messages) or `mpi_messages` (MPI length)",
            |row| row.category.distribution(),
        )
        .column(
            "category",
            Name,
            "kind of the packets or messages: `request`, `response` or `acknowledge`; the verb; `point-to-point`, `collective` or `nccl`",
            |row| row.category.name(),
        )
        .column("from_bytes", Bytes, "size class: from this power of two to below the next", |row| {
            row.size.from_bytes()
        })
        .column("count", Count, "packets or messages of the class; retransmissions do not count", |row| row.sums.count)
        .column("bytes", Bytes, "sum of their sizes", |row| row.sums.bytes)
        .column("smallest_bytes", Bytes, "the smallest size", |row| row.sums.smallest_bytes)
        .column("largest_bytes", Bytes, "the largest size", |row| row.sums.largest_bytes)
}

/// Reads the table. `path` is for errors; `connections` is the number of rows of the table of
/// connections.
pub(super) fn read(path: &Path, bytes: Vec<u8>, connections: usize) -> Result<PackedRows<SizeRow>, ProfileError> {
    TableFile::open(path, bytes)?.read_packed(|table| {
        let (connection, category, numbers) =
            (table.u32("connection")?, table.text("category")?, table.u64s(NUMBER_COLUMNS)?);
        let row = |row: usize| {
            let category =
                table.parse_name(&category, row, SizeCategory::ALL, SizeCategory::name, "not a category of sizes")?;
            let [from_bytes, count, bytes, smallest_bytes, largest_bytes] = table.values(&numbers, row)?;
            let size = SizeClass::of(from_bytes);
            if count == 0
                || smallest_bytes > largest_bytes
                || [smallest_bytes, largest_bytes].map(SizeClass::of) != [size; 2]
            {
                return Err(table.invalid_value(
                    row,
                    format!(
                        "{count} sizes from {smallest_bytes} to {largest_bytes} are outside the class of {from_bytes}"
                    ),
                ));
            }
            let sums = SizeSums { count, bytes, smallest_bytes, largest_bytes };
            Ok(SizeRow { connection: table.connection(&connection, row, connections)?, category, size, sums })
        };
        (0..table.rows()).map(row).collect()
    })
}
