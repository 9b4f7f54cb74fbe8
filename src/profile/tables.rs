//! Parquet tables of a profile: their columns, and how rows are written and read.
//!
//! In: rows of the profile, or the bytes of a Parquet file. Out: the bytes, or checked rows; every
//! row number that points into another table is in range. Only this folder uses polars.

use super::ProfileError;
use super::decode::TableFile;
use crate::model::column::ColumnDescription;
use crate::model::column::ColumnUnit::{Bytes, Count, Name, Number, Timestamp};
use crate::model::profile::{BinRetransmissions, CmRow, CollectiveRow, HealthRow, TimelineRow, Traffic};
use crate::model::table::Table;
use crate::model::{BinCongestion, Health, PackedRows, printable};
use ibscope_parsers::Qpn;
use std::path::Path;

/// The meaning of the columns that refer to the table of connections.
pub(super) const CONNECTION: &str = "the row of `connections.parquet`, from 0";

/// The names of columns.
pub(super) fn names<const N: usize>(columns: [ColumnDescription; N]) -> [&'static str; N] {
    columns.map(|column| column.name)
}

/// The columns of `timeline.parquet`.
pub(super) fn timeline() -> Table<TimelineRow> {
    time_series("timeline.parquet", CONNECTION)
}

/// The columns of `senders.parquet`.
pub(super) fn senders() -> Table<TimelineRow> {
    time_series(
        "senders.parquet",
        "row number of the sender's first connection of this job and class in `connections.parquet`, from 0",
    )
}

fn time_series(name: &'static str, connection: &'static str) -> Table<TimelineRow> {
    Table::new(name)
        .column("time_ns", Timestamp, "start of the bin, a multiple of its width", |row: &TimelineRow| row.time_ns)
        .column("connection", Number, connection, |row| row.connection)
        .counts(Traffic::COLUMNS, |row| row.traffic.values())
        .counts(BinRetransmissions::COLUMNS, |row| row.retransmissions.values())
        .counts(BinCongestion::COLUMNS, |row| row.congestion.values())
}

/// The columns of `collectives.parquet`.
pub(super) fn collectives() -> Table<CollectiveRow> {
    Table::new("collectives.parquet")
        .column("connection", Number, CONNECTION, |row: &CollectiveRow| row.connection)
        .name(
            "operation",
            "`barrier`, `bcast`, `allreduce` ...; `collective` where the library does not identify it",
            |row| Some(&row.operation),
        )
        .column("messages", Count, "MPI messages of the operation", |row| row.messages)
        .column("mpi_bytes", Bytes, "MPI length of these messages", |row| row.mpi_bytes)
}

/// The columns of `health.parquet`.
pub(super) fn health() -> Table<HealthRow> {
    Table::new("health.parquet")
        .column("connection", Number, CONNECTION, |row: &HealthRow| row.connection)
        .counts(Health::COLUMNS, |row| row.health.values())
}

/// The columns of `cm.parquet`, the connection management messages.
pub(super) fn cm() -> Table<CmRow> {
    Table::new("cm.parquet")
        .column("time_ns", Timestamp, "capture time of the message", |row: &CmRow| row.time_ns)
        .column("src", Name, "endpoint of the sender", |row| row.src.to_string())
        .column("dst", Name, "endpoint of the receiver", |row| row.dst.to_string())
        .name("message", "`REQ`, `REP`, `RTU`, `REJ`, `MRA`, `DREQ`, `DREP` ...", |row| Some(&row.message))
        .column("local_comm_id", Number, "communication id of the sender", |row| row.local_comm_id)
        .column("remote_comm_id", Number, "communication id of the receiver; null where the message has none", |row| row.remote_comm_id)
        .column("qpn", Number, "queue pair of the sender (REQ, REP), or the one to be closed (DREQ); else null", |row| {
            row.qpn.map(Qpn::value)
        })
        .column("starting_psn", Number, "first PSN that the receiver is to use (REQ, REP); else null", |row| row.starting_psn)
        .column("service_id", Number, "service id (REQ); else null", |row| row.service_id)
        .column("world_rank", Number, "rank in `MPI_COMM_WORLD`, from the sender's private data; null where the data has no rank", |row| {
            row.world_rank
        })
        .column(
            "mpi_job",
            Number,
            "job id next to the rank in the sender's private data (Open MPI's `openib`), where both sides of the exchange agree; else null",
            |row| row.mpi_job,
        )
}

/// Reads the table of collective operations; `connections` is the length of the table of
/// connections.
pub(super) fn read_collectives(
    path: &Path,
    bytes: Vec<u8>,
    connections: usize,
) -> Result<Vec<CollectiveRow>, ProfileError> {
    TableFile::open(path, bytes)?.read(|table| {
        let (connection, operation) = (table.u32("connection")?, table.text("operation")?);
        let (messages, mpi_bytes) = (table.u64("messages")?, table.u64("mpi_bytes")?);
        let row = |row: usize| {
            Ok(CollectiveRow {
                connection: table.connection(&connection, row, connections)?,
                operation: printable(table.value(&operation, row)?),
                messages: table.value(&messages, row)?,
                mpi_bytes: table.value(&mpi_bytes, row)?,
            })
        };
        (0..table.rows()).map(row).collect()
    })
}

/// Reads the table of health; `connections` is the length of the table of connections.
pub(super) fn read_health(
    path: &Path,
    bytes: Vec<u8>,
    connections: usize,
) -> Result<PackedRows<HealthRow>, ProfileError> {
    TableFile::open(path, bytes)?.read_packed(|table| {
        let connection = table.u32("connection")?;
        // Older profiles of this version do not have the columns that were added later.
        let is_absent = |name: &str| Health::LATER_COLUMNS.contains(&name) && !table.has(name);
        let column = |name: &str| if is_absent(name) { Ok(vec![Some(0); table.rows()]) } else { table.u64(name) };
        let values = names(Health::COLUMNS).into_iter().map(column).collect::<Result<Vec<_>, ProfileError>>()?;
        let row = |row: usize| {
            let connection = table.connection(&connection, row, connections)?;
            Ok(HealthRow { connection, health: Health::from_values(table.values(&values, row)?) })
        };
        (0..table.rows()).map(row).collect()
    })
}

/// Reads the timeline, and whether it has counts of congestion; `connections` is the length of the
/// table of connections.
pub(super) fn read_timeline(
    path: &Path,
    bytes: Vec<u8>,
    connections: usize,
) -> Result<(Vec<TimelineRow>, bool), ProfileError> {
    let table = TableFile::open(path, bytes)?;
    // Profiles of earlier states of this version do not have these columns.
    let has_congestion = names(BinCongestion::COLUMNS).into_iter().any(|name| table.has(name));
    let rows = table.read(|table| {
        let (time, connection, traffic) =
            (table.i64("time_ns")?, table.u32("connection")?, table.u64s(names(Traffic::COLUMNS))?);
        let retransmitted = table.u64s(names(BinRetransmissions::COLUMNS))?;
        let congestion = has_congestion.then(|| table.u64s(names(BinCongestion::COLUMNS))).transpose()?;
        let row = |row: usize| {
            let connection = table.connection(&connection, row, connections)?;
            let traffic = Traffic::from_values(table.values(&traffic, row)?);
            let retransmissions = BinRetransmissions::from_values(table.values(&retransmitted, row)?);
            let congestion = match &congestion {
                Some(columns) => BinCongestion::from_values(table.values(columns, row)?),
                None => BinCongestion::default(),
            };
            Ok(TimelineRow { time_ns: table.value(&time, row)?, connection, traffic, retransmissions, congestion })
        };
        (0..table.rows()).map(row).collect()
    })?;
    Ok((rows, has_congestion))
}

/// Reads the table of connection management messages.
pub(super) fn read_cm(path: &Path, bytes: Vec<u8>) -> Result<Vec<CmRow>, ProfileError> {
    TableFile::open(path, bytes)?.read(|table| {
        let (time, src, dst, message) =
            (table.i64("time_ns")?, table.text("src")?, table.text("dst")?, table.text("message")?);
        let (local, remote) = (table.u32("local_comm_id")?, table.u32("remote_comm_id")?);
        let (qpn, psn, service) = (table.u32("qpn")?, table.u32("starting_psn")?, table.u64("service_id")?);
        let world_rank = table.u32("world_rank")?;
        let mpi_job = if table.has("mpi_job") { table.u32("mpi_job")? } else { Vec::new() };
        let row = |row: usize| {
            Ok(CmRow {
                time_ns: table.value(&time, row)?,
                src: table.endpoint(&src, row)?,
                dst: table.endpoint(&dst, row)?,
                message: printable(table.value(&message, row)?),
                local_comm_id: table.value(&local, row)?,
                remote_comm_id: remote.get(row).copied().flatten(),
                qpn: qpn.get(row).copied().flatten().map(Qpn::new),
                starting_psn: psn.get(row).copied().flatten(),
                protocol: None,
                service_id: service.get(row).copied().flatten(),
                world_rank: world_rank.get(row).copied().flatten(),
                mpi_job: mpi_job.get(row).copied().flatten(),
                mpi_port: None,
                mpi_queue: None,
            })
        };
        (0..table.rows()).map(row).collect()
    })
}
