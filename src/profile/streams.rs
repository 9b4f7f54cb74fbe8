//! The Parquet table of streams: MPI messages by connection, communicator, sender in it, tag and operation.

use super::ProfileError;
use super::tables::{Table, column};
use crate::model::StreamSums;
use crate::model::profile::{StreamEnvelope, StreamRow};
use ibscope_parsers::mpi::Operation;
use polars::prelude::{Column, DataFrame, NamedFrom, PolarsResult, Series};
use std::path::Path;

/// The table of streams.
pub(super) fn table(rows: &[StreamRow]) -> PolarsResult<DataFrame> {
    let columns = vec![
        column!(rows, "connection", u32, |row| row.connection),
        column!(rows, "operation", String, |row| row.operation.name().to_owned()),
        column!(rows, "context", Option<u32>, |row| row.envelope.map(|envelope| envelope.context)),
        column!(rows, "is_world", Option<u32>, |row| row.envelope.map(|envelope| u32::from(envelope.world))),
        column!(rows, "communicator_rank", Option<u32>, |row| row.envelope.map(|envelope| envelope.rank)),
        column!(rows, "tag", Option<i64>, |row| row.envelope.map(|envelope| i64::from(envelope.tag))),
        column!(rows, "messages", u64, |row| row.sums.messages),
        column!(rows, "mpi_bytes", u64, |row| row.sums.mpi_bytes),
        column!(rows, "first_time_ns", Option<i64>, |row| row.sums.times_ns.map(|times| times.0)),
        column!(rows, "last_time_ns", Option<i64>, |row| row.sums.times_ns.map(|times| times.1)),
    ];
    DataFrame::new(rows.len(), columns)
}

/// Reads it; `path` is for errors, and `connections` is the length of the table that it points into.
pub(super) fn read(path: &Path, bytes: Vec<u8>, connections: usize) -> Result<Vec<StreamRow>, ProfileError> {
    let table = Table::open(path, bytes)?;
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
                tag: i32::try_from(tag).map_err(|_| table.bad(row, format!("{tag} is no tag")))?,
            })
        } else {
            None
        };
        Ok(StreamRow {
            connection: table.connection(&connection, row, connections)?,
            envelope,
            operation: table.named(&operation, row, Operation::ALL, Operation::name, "no operation")?,
            sums: StreamSums {
                messages: table.value(&messages, row)?,
                mpi_bytes: table.value(&mpi_bytes, row)?,
                times_ns: first.get(row).copied().flatten().zip(last.get(row).copied().flatten()),
            },
        })
    };
    (0..table.rows()).map(row).collect()
}
