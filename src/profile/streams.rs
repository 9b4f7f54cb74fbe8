//! The Parquet table of streams: MPI messages by connection, communicator, sender's rank in it, tag
//! and operation.

use super::ProfileError;
use super::decode::TableFile;
use super::tables::CONNECTION;
use crate::model::StreamSums;
use crate::model::column::ColumnUnit::{Bytes, Count, Flag, Name, Number, Timestamp};
use crate::model::profile::{StreamEnvelope, StreamRow};
use crate::model::table::Table;
use ibscope_parsers::mpi::MpiOperation;
use std::path::Path;

/// The table of streams.
pub(super) fn table() -> Table<StreamRow> {
    Table::new("streams.parquet")
        .column("connection", Number, CONNECTION, |row: &StreamRow| row.connection)
        .column("operation", Name, "`point-to-point` or the collective operation", |row| row.operation.name())
        .column("context", Number, "context id of the communicator; null, like the next three columns, for messages beyond the limit of distinguished tags", |row| {
            row.envelope.map(|envelope| envelope.context)
        })
        .column("is_world", Flag, "1 if the communicator is `MPI_COMM_WORLD`, else 0", |row| {
            row.envelope.map(|envelope| u32::from(envelope.world))
        })
        .column("communicator_rank", Number, "rank of the sender in the communicator", |row| {
            row.envelope.map(|envelope| envelope.rank)
        })
        .column("tag", Number, "tag", |row| row.envelope.map(|envelope| i64::from(envelope.tag)))
        .column("messages", Count, "MPI messages", |row| row.sums.messages)
        .column("mpi_bytes", Bytes, "their MPI length", |row| row.sums.mpi_bytes)
        .column("first_time_ns", Timestamp, "time of the envelope of the first message", |row| {
            row.sums.times_ns.map(|times| times.0)
        })
        .column("last_time_ns", Timestamp, "time of the envelope of the last message", |row| {
            row.sums.times_ns.map(|times| times.1)
        })
}

/// Reads the table; `path` is for errors, and `connections` is the number of rows of the table that
/// it refers to.
pub(super) fn read(path: &Path, bytes: Vec<u8>, connections: usize) -> Result<Vec<StreamRow>, ProfileError> {
    TableFile::open(path, bytes)?.read(|table| {
        let (connection, operation) = (table.u32("connection")?, table.text("operation")?);
        let (context, world) = (table.u32("context")?, table.u32("is_world")?);
        let (rank, tag) = (table.u32("communicator_rank")?, table.i64("tag")?);
        let (messages, mpi_bytes) = (table.u64("messages")?, table.u64("mpi_bytes")?);
        let (first, last) = (table.i64("first_time_ns")?, table.i64("last_time_ns")?);
        let row = |row: usize| {
            let envelope = if context.get(row).copied().flatten().is_some() {
                let tag = table.value(&tag, row)?;
                Some(StreamEnvelope {
                    context: table.value(&context, row)?,
                    world: table.value(&world, row)? != 0,
                    rank: table.value(&rank, row)?,
                    tag: i32::try_from(tag).map_err(|_| table.invalid_value(row, format!("{tag} is not a tag")))?,
                })
            } else {
                None
            };
            Ok(StreamRow {
                connection: table.connection(&connection, row, connections)?,
                envelope,
                operation: table.parse_name(&operation, row, MpiOperation::ALL, MpiOperation::name, "no operation")?,
                sums: StreamSums {
                    messages: table.value(&messages, row)?,
                    mpi_bytes: table.value(&mpi_bytes, row)?,
                    times_ns: first.get(row).copied().flatten().zip(last.get(row).copied().flatten()),
                },
            })
        };
        (0..table.rows()).map(row).collect()
    })
}
