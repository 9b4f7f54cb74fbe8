//! The Parquet table of storage commands: one row per connection, operation and status.

use super::ProfileError;
use super::decode::TableFile;
use super::tables::{CONNECTION, names};
use crate::model::column::ColumnUnit::{Count, Name, Number};
use crate::model::storage::{STORAGE_KIND, STORAGE_RESULT};
use crate::model::table::Table;
use crate::model::{StorageCounts, StorageResult, StorageRow, StorageRowKind, printable};
use std::path::Path;

/// The table of storage commands.
pub(super) fn table() -> Table<StorageRow> {
    Table::new("storage.parquet")
        .column("connection", Number, CONNECTION, |row: &StorageRow| row.connection)
        .column("kind", Name, STORAGE_KIND, |row| row.kind.name())
        .name("operation", "operation in the terms of the protocol", |row| Some(&row.operation))
        .column("result", Name, STORAGE_RESULT, |row| row.result.name())
        .name("status", "status of the protocol, of RPC or of the transport", |row| Some(&row.status))
        .counts(StorageCounts::COLUMNS, |row| row.counts.values())
        .column("most_outstanding", Count, "most commands of the connection that were outstanding at a time; where packets are missing, without those whose completion may be missing", |row| {
            row.most_outstanding
        })
}

/// Reads the table; `path` is for errors, and `connections` is the number of rows of the table that
/// it refers to.
pub(super) fn read(path: &Path, bytes: Vec<u8>, connections: usize) -> Result<Vec<StorageRow>, ProfileError> {
    TableFile::open(path, bytes)?.read(|table| {
        let (connection, kind, result) = (table.u32("connection")?, table.text("kind")?, table.text("result")?);
        let (operation, status) = (table.text("operation")?, table.text("status")?);
        let (counts, most_outstanding) = (table.u64s(names(StorageCounts::COLUMNS))?, table.u64("most_outstanding")?);
        let row = |row: usize| {
            Ok(StorageRow {
                connection: table.connection(&connection, row, connections)?,
                kind: table.parse_name(
                    &kind,
                    row,
                    StorageRowKind::ALL,
                    StorageRowKind::name,
                    "not a kind of commands",
                )?,
                operation: printable(table.value(&operation, row)?),
                result: table.parse_name(&result, row, StorageResult::ALL, StorageResult::name, "not a result")?,
                status: printable(table.value(&status, row)?),
                counts: StorageCounts::from_values(table.values(&counts, row)?),
                most_outstanding: table.value(&most_outstanding, row)?,
            })
        };
        (0..table.rows()).map(row).collect()
    })
}
