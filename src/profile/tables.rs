//! Parquet tables of a profile: their columns, and how rows are written and read.
//!
//! In: rows of the profile, or the bytes of a Parquet file. Out: the bytes, or checked rows; every
//! row number that points into another table is in range. Only this folder uses polars.

use super::{ProfileError, parquet_check, path_columns};
use crate::model::RdmaSums;
use crate::model::column::ColumnUnit::{Bytes, Count, Name, Number, Timestamp};
use crate::model::column::{ColumnDescription, ColumnType};
use crate::model::message_table::{ConnectedMessage, messages_table};
use crate::model::profile::{
    BinRetransmissions, CmRow, CollectiveRow, ConnectionRow, CoverageState, HealthRow, PairCoverage,
    RetransmissionSums, TimelineRow, Traffic,
};
use crate::model::sampling::{EstimateQuality, EstimatedSum};
use crate::model::table::{Column as TableColumn, ColumnValue, Table};
use crate::model::{
    BinCongestion, ConnectionClass, ConnectionPaths, Health, MessageRow, PackedRows, PairEstimators, Profile,
    SampledConnection, SampledSums, SamplingWeight, TrafficKind, printable, quoted,
};
use ibscope_parsers::ib::Opcode;
use ibscope_parsers::mpi::LibraryStack;
use ibscope_parsers::{Endpoint, Qpn};
use polars::error::PolarsError;
use polars::polars_utils::compression::ZstdLevel;
use polars::prelude::{
    ChunkFullNull, ChunkedArray, Column, DataFrame, Float64Type, Int32Type, Int64Type, IntoSeries, NamedFrom,
    ParquetCompression, ParquetReader, ParquetWriter, PlSmallStr, PolarsNumericType, PolarsResult, SerReader, Series,
    UInt32Type, UInt64Type,
};
use polars_core::runtime::THREAD_POOL;
use rayon::prelude::*;
use std::io::Cursor;
use std::panic::catch_unwind;
use std::path::Path;
use std::sync::LazyLock;

/// A polars table, or the polars error.
pub(super) type TableResult = PolarsResult<DataFrame>;

/// The compression of all tables.
pub(super) fn compression() -> ParquetCompression {
    // The default level takes twice the time, for files that are a few percent smaller.
    ParquetCompression::Zstd(ZstdLevel::try_new(1).ok())
}

/// The meaning of the columns that refer to the table of connections.
pub(super) const CONNECTION: &str = "the row of `connections.parquet`, from 0";

/// The names of columns.
pub(super) fn names<const N: usize>(columns: [ColumnDescription; N]) -> [&'static str; N] {
    columns.map(|column| column.name)
}

/// Converts rows to a polars table.
pub(super) fn frame<R>(table: &Table<R>, rows: &[R]) -> TableResult {
    let columns = table.columns.iter().map(|column| series(column, rows).into());
    DataFrame::new(rows.len(), columns.collect())
}

/// Converts the values of a column to a polars series.
///
/// A value of another type than the column's becomes null. No column produces such a value: the
/// column's type follows from the return type of its function.
fn series<R>(column: &TableColumn<R>, rows: &[R]) -> Series {
    let name = column.description.name.into();
    let unsigned = || column.unsigned(rows).into_iter();
    let values = || column.values(rows).into_iter();
    let signed = |value| if let ColumnValue::Signed(number) = value { Some(number) } else { None };
    match column.description.column_type {
        ColumnType::U32 => numbers::<UInt32Type>(name, unsigned().map(|value| value.map(|number| number as u32))),
        ColumnType::U64 => numbers::<UInt64Type>(name, unsigned()),
        ColumnType::I32 => numbers::<Int32Type>(name, values().map(|value| signed(value).map(|number| number as i32))),
        ColumnType::I64 => numbers::<Int64Type>(name, values().map(signed)),
        ColumnType::F64 => {
            let real = |value| if let ColumnValue::Real(number) = value { Some(number) } else { None };
            numbers::<Float64Type>(name, values().map(real))
        }
        ColumnType::Bool => {
            let flag = |value| if let ColumnValue::Flag(flag) = value { Some(flag) } else { None };
            Series::new(name, values().map(flag).collect::<Vec<_>>())
        }
        ColumnType::Text | ColumnType::List | ColumnType::Label => {
            let text = |value| if let ColumnValue::Text(text) = value { Some(text) } else { None };
            Series::new(name, values().map(text).collect::<Vec<_>>())
        }
    }
}

/// Makes a column of numbers. Most columns have a value in every row, or in none, and polars takes
/// such columns over without looking at each value.
fn numbers<T: PolarsNumericType>(name: PlSmallStr, values: impl Iterator<Item = Option<T::Native>>) -> Series
where
    ChunkedArray<T>: IntoSeries,
{
    let mut is_valid = Vec::with_capacity(values.size_hint().0);
    let numbers: Vec<T::Native> = values
        .map(|value| {
            is_valid.push(value.is_some());
            value.unwrap_or_default()
        })
        .collect();
    let nulls = is_valid.iter().filter(|is_valid| !**is_valid).count();
    if nulls == numbers.len() {
        return ChunkedArray::<T>::full_null(name, nulls).into_series();
    }
    let validity = (nulls > 0).then(|| is_valid.into_iter().collect());
    ChunkedArray::<T>::from_vec_validity(name, numbers, validity).into_series()
}

/// The columns of `connections.parquet`.
pub(super) fn connections() -> Table<ConnectionRow> {
    Table::new("connections.parquet")
        .column("src", Name, "endpoint of the sender", |row: &ConnectionRow| row.src.to_string())
        .column("dst", Name, "endpoint of the receiver", |row| row.dst.to_string())
        .column("kind", Name, "category of the packets: `data`, `management` or `multicast`", |row| row.kind.name())
        .column("service", Name, "`RC`, `UC`, `UD` ...", |row| Opcode(row.service << 5).service().name())
        .column("service_code", Number, "bits 7 to 5 of the opcode", |row| u32::from(row.service))
        .column("dest_qp", Number, "queue pair of the receiver", |row| row.dest_qp.value())
        .column("src_qp", Number, "queue pair of the sender; null where it is not known", |row| row.src_qp.map(Qpn::value))
        .name(
            "src_qp_evidence",
            "evidence for the sender's queue pair: `deth`, `cm`, `connection_message`, `wireup`, `echo`, `responses` or `only_connection`",
            |row| row.src_qp_evidence.as_deref(),
        )
        .column("first_time_ns", Timestamp, "time of the first packet", |row| row.first_time_ns)
        .column("last_time_ns", Timestamp, "time of the last packet", |row| row.last_time_ns)
        .name("stack", "MPI library whose envelopes were detected; null where there is none", |row| row.stack.as_deref())
        .column(
            "class",
            Name,
            "kind of program: `mpi`, `nccl`, `nvmeof`, `nfs`, `iser`, `srp`, `smb`, `ipoib`, `rds`, `lustre`, `ucx`, `libfabric`, `verbs`, `management` or `unknown`",
            |row| row.class.name(),
        )
        .column("job", Number, "number of the job; null where the connection belongs to none", |row| row.job)
        .column(
            "one_sided_messages",
            Count,
            "WRITEs and READs, counted in the direction in which the bytes move; null where the connection carries no one-sided MPI operations",
            |row| row.one_sided.map(|rdma| rdma.messages),
        )
        .column("one_sided_bytes", Bytes, "payload of the WRITEs and READs; null where `one_sided_messages` is", |row| row.one_sided.map(|rdma| rdma.payload_bytes))
        .column(
            "coverage",
            Name,
            "whether the capture holds all messages of the connection: `complete`, `incomplete`, `sampled` or `unknown`, as in the matrix; `unknown` in profiles that were written before this column existed",
            |row| row.coverage.state.name(),
        )
        .column("missing_packets", Count, "packets that were sent and are not in the capture, according to the sequence numbers", |row| {
            row.coverage.missing_packets
        })
        .column("missing_messages", Count, "MPI messages that began and whose length is unknown; no other column counts them", |row| {
            row.coverage.missing_messages
        })
        .counts(Traffic::COLUMNS, |row| row.traffic.values())
        .counts(RetransmissionSums::COLUMNS, |row| row.retransmissions.values())
        .with(path_columns::of_connections)
        .with(samples)
}

/// Adds the samples of a sampled capture, their weight, and the estimates.
fn samples(mut table: Table<ConnectionRow>) -> Table<ConnectionRow> {
    for (index, description) in SampledSums::COLUMNS.into_iter().enumerate() {
        table = table.values(description, move |row| {
            let sampled = row.sampled.as_ref();
            sampled.map_or(ColumnValue::Missing, |sampled| ColumnValue::Unsigned(sampled.sums.values()[index]))
        });
    }
    let weight = |row: &ConnectionRow| row.sampled.as_ref()?.weight;
    let table = table
        .column(
            "sampled_one_in",
            Number,
            "an observation point takes one of this many packets (if `sampled_ports` is 0: transmissions per observation); null where the rate or the number of ports is not known",
            move |row| weight(row).map(|weight| weight.one_in),
        )
        .column(
            "sampled_ports",
            Number,
            "code of the ports that sample the connection: 1 = one port; 2 = two, independently; 3 = one or two, not known which; 4 = two with the same packets, because the mirror sampled before it copied; 0 = not known",
            move |row| weight(row).map(|weight| weight.ports),
        );
    let sums = [EstimatedSum::PACKETS, EstimatedSum::WIRE_BYTES, EstimatedSum::PAYLOAD_BYTES, EstimatedSum::MESSAGES];
    sums.into_iter().fold(table, estimates)
}

/// Adds the estimate of one sum, and its interval.
fn estimates(table: Table<ConnectionRow>, sum: EstimatedSum) -> Table<ConnectionRow> {
    let value = move |row: &ConnectionRow| sum.estimate(&PairEstimators::of(row.sampled.as_ref()?)).known();
    let table = table.column(
        sum.name(),
        sum.unit,
        "estimate of the total from the sampled packets; null for captures that are not sampled, below 30 samples, and where the rate is not known",
        move |row| value(row).map(|value| value.estimate),
    );
    sum.interval(table, value)
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

/// Converts messages to a polars table. Skips messages whose connection the profile does not have;
/// a consistent profile has none.
pub(super) fn messages(rows: &[MessageRow], profile: &Profile) -> TableResult {
    let rows: Vec<_> = rows.iter().filter_map(|row| ConnectedMessage::of(row, profile)).collect();
    frame(&messages_table(), &rows)
}

/// Starts the polars thread pool early and returns an error if that fails; polars itself would
/// panic at first use.
pub(super) fn start_threads() -> Result<(), ProfileError> {
    catch_unwind(|| LazyLock::force(&THREAD_POOL)).map(drop).map_err(|_| ProfileError::Threads)
}

/// A piece of work that may run in any thread.
pub(super) type Task<'a, T> = Box<dyn FnOnce() -> T + Send + 'a>;

/// Runs tasks in the threads of polars, several at a time. Returns the results in order.
pub(super) fn in_parallel<T: Send>(tasks: Vec<Task<'_, T>>) -> Vec<T> {
    THREAD_POOL.install(|| tasks.into_par_iter().with_max_len(1).map(|task| task()).collect())
}

/// Rows per row group; a group takes a few MB while it is written.
pub(super) const GROUP: usize = 1 << 14;

/// Splits rows into chunks of [`GROUP`] rows.
pub(super) fn groups<T>(mut rows: impl Iterator<Item = T>) -> impl Iterator<Item = Vec<T>> {
    std::iter::from_fn(move || Some(rows.by_ref().take(GROUP).collect()).filter(|group: &Vec<T>| !group.is_empty()))
}

/// Encodes a table as Parquet, one row group at a time, so that the rows are not held twice.
///
/// The caller writes the bytes to the file, because polars does not report why a write failed.
/// `path` is for errors.
pub(super) fn bytes<R>(
    path: &Path,
    groups: impl Iterator<Item = impl AsRef<[R]>>,
    table: &Table<R>,
) -> Result<Vec<u8>, ProfileError> {
    let failed = |source| ProfileError::Table { path: path.to_owned(), action: "written", source };
    let mut bytes = Vec::new();
    let empty = frame(table, &[]).map_err(failed)?;
    let writer =
        ParquetWriter::new(&mut bytes).with_compression(compression()).set_parallel(false).batched(empty.schema());
    let mut writer = writer.map_err(failed)?;
    for group in groups {
        frame(table, group.as_ref()).and_then(|group| writer.write_batch(&group)).map_err(failed)?;
    }
    writer.finish().map_err(failed)?;
    drop(writer);
    Ok(bytes)
}

/// Reads the table of connections. `path` is for errors in all read functions.
pub(super) fn read_connections(path: &Path, bytes: Vec<u8>) -> Result<Vec<ConnectionRow>, ProfileError> {
    let table = TableReader::open(path, bytes)?;
    let (src, dst, kind) = (table.text("src")?, table.text("dst")?, table.text("kind")?);
    let (service, dest_qp, src_qp) = (table.u32("service_code")?, table.u32("dest_qp")?, table.u32("src_qp")?);
    let (first, last) = (table.i64("first_time_ns")?, table.i64("last_time_ns")?);
    let (stack, src_qp_evidence) = (table.text("stack")?, table.text("src_qp_evidence")?);
    let has_jobs = table.has("job");
    let job = if has_jobs { table.u32("job")? } else { Vec::new() };
    let one_sided = if has_jobs { table.u64s(["one_sided_messages", "one_sided_bytes"])? } else { Vec::new() };
    let coverage = if has_jobs { table.text("coverage")? } else { Vec::new() };
    let missing = if has_jobs { table.u64s(["missing_packets", "missing_messages"])? } else { Vec::new() };
    let traffic = table.u64s(names(Traffic::COLUMNS))?;
    let retransmissions = table.u64s(names(RetransmissionSums::COLUMNS))?;
    let samples = SampleColumns::of(&table)?;
    let has_classes = table.has("class");
    let classes = if has_classes { table.text("class")? } else { Vec::new() };
    let row = |row: usize| {
        let endpoint = |column: &[Option<&str>]| table.endpoint(column, row);
        let class = if has_classes {
            table.parse_name(&classes, row, ConnectionClass::ALL, ConnectionClass::name, "not a class")?
        } else {
            let kind = table.parse_name(&kind, row, TrafficKind::ALL, TrafficKind::name, "not a kind of traffic")?;
            class_of_stack(kind, stack.get(row).copied().flatten())
        };
        Ok(ConnectionRow {
            src: endpoint(&src)?,
            dst: endpoint(&dst)?,
            kind: table.parse_name(&kind, row, TrafficKind::ALL, TrafficKind::name, "not a kind of traffic")?,
            service: table.value(&service, row)? as u8,
            dest_qp: Qpn::new(table.value(&dest_qp, row)?),
            src_qp: src_qp.get(row).copied().flatten().map(Qpn::new),
            src_qp_evidence: src_qp_evidence.get(row).copied().flatten().map(|text| printable(text).into()),
            first_time_ns: table.value(&first, row)?,
            last_time_ns: table.value(&last, row)?,
            traffic: Traffic::from_values(table.values(&traffic, row)?),
            retransmissions: RetransmissionSums::from_values(table.values(&retransmissions, row)?),
            stack: stack.get(row).copied().flatten().map(printable),
            class,
            job: job.get(row).copied().flatten(),
            one_sided: match &one_sided[..] {
                [messages, bytes] => {
                    let value = |column: &[Option<u64>]| column.get(row).copied().flatten();
                    let sums = |(messages, payload_bytes)| RdmaSums { messages, payload_bytes };
                    value(messages).zip(value(bytes)).map(sums)
                }
                _ => None,
            },
            coverage: if has_jobs {
                let [missing_packets, missing_messages] = table.values(&missing, row)?;
                let state = table.parse_name(
                    &coverage,
                    row,
                    CoverageState::ALL,
                    CoverageState::name,
                    "not a class of coverage",
                )?;
                PairCoverage { state, missing_packets, missing_messages }
            } else {
                PairCoverage { state: CoverageState::Unknown, ..PairCoverage::default() }
            },
            sampled: samples.get(row).map(Box::new),
            paths: ConnectionPaths::new(),
        })
    };
    (0..table.rows()).map(row).collect()
}

/// The class in a profile from before it was a column, as far as the other columns show it.
fn class_of_stack(kind: TrafficKind, stack: Option<&str>) -> ConnectionClass {
    match (kind, stack) {
        (TrafficKind::Management, _) => ConnectionClass::Management,
        (_, Some(stack)) if stack == LibraryStack::Nccl.name() => ConnectionClass::Nccl,
        (_, Some(_)) => ConnectionClass::Mpi,
        (_, None) => ConnectionClass::Unknown,
    }
}

/// The columns with the samples; empty in profiles from before they existed.
#[derive(Default)]
struct SampleColumns {
    sums: Vec<Vec<Option<u64>>>,
    one_in: Vec<Option<f64>>,
    ports: Vec<Option<u32>>,
}

impl SampleColumns {
    fn of(table: &TableReader<'_>) -> Result<Self, ProfileError> {
        if !table.has("sampled_one_in") {
            return Ok(Self::default());
        }
        Ok(Self {
            sums: table.u64s(names(SampledSums::COLUMNS))?,
            one_in: table.f64("sampled_one_in")?,
            ports: table.u32("sampled_ports")?,
        })
    }

    /// The samples of a connection; [`super`] adds what all of them have in common.
    fn get(&self, row: usize) -> Option<SampledConnection> {
        let values: Vec<u64> = self.sums.iter().map_while(|column| column.get(row).copied().flatten()).collect();
        let sums = SampledSums::from_values(values.try_into().ok()?);
        let one_in = self.one_in.get(row).copied().flatten().filter(|one_in| one_in.is_finite() && *one_in >= 1.0);
        let ports = self.ports.get(row).copied().flatten().filter(|ports| *ports <= SamplingWeight::TWO_TOGETHER);
        let weight = one_in.zip(ports).map(|(one_in, ports)| SamplingWeight { one_in, ports });
        Some(SampledConnection { sums, weight, quality: EstimateQuality::default() })
    }
}

/// Reads the table of collective operations; `connections` is the length of the table of
/// connections.
pub(super) fn read_collectives(
    path: &Path,
    bytes: Vec<u8>,
    connections: usize,
) -> Result<Vec<CollectiveRow>, ProfileError> {
    let table = TableReader::open(path, bytes)?;
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
}

/// Reads the table of health; `connections` is the length of the table of connections.
pub(super) fn read_health(
    path: &Path,
    bytes: Vec<u8>,
    connections: usize,
) -> Result<PackedRows<HealthRow>, ProfileError> {
    let table = TableReader::open(path, bytes)?;
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
}

/// Reads the timeline, and whether it has counts of congestion; `connections` is the length of the
/// table of connections.
pub(super) fn read_timeline(
    path: &Path,
    bytes: Vec<u8>,
    connections: usize,
) -> Result<(Vec<TimelineRow>, bool), ProfileError> {
    let table = TableReader::open(path, bytes)?;
    let (time, connection, traffic) =
        (table.i64("time_ns")?, table.u32("connection")?, table.u64s(names(Traffic::COLUMNS))?);
    let retransmitted = table.u64s(names(BinRetransmissions::COLUMNS))?;
    // Profiles of earlier states of this version do not have these columns.
    let has_congestion = names(BinCongestion::COLUMNS).into_iter().any(|name| table.has(name));
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
    Ok(((0..table.rows()).map(row).collect::<Result<_, _>>()?, has_congestion))
}

/// Reads the table of connection management messages.
pub(super) fn read_cm(path: &Path, bytes: Vec<u8>) -> Result<Vec<CmRow>, ProfileError> {
    let table = TableReader::open(path, bytes)?;
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
}

/// A decoded table, with its path for errors.
pub(super) struct TableReader<'a> {
    path: &'a Path,
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

impl<'a> TableReader<'a> {
    /// Decodes a table.
    ///
    /// A correct digest only shows that the file has not changed since somebody wrote the profile;
    /// its content is untrusted. The Parquet reader allocates as many rows as the file claims to
    /// have and panics on damaged input, so `parquet_check` runs first and panics are caught.
    pub(super) fn open(path: &'a Path, bytes: Vec<u8>) -> Result<Self, ProfileError> {
        start_threads()?;
        let read = catch_unwind(|| {
            if parquet_check::has_valid_columns(&bytes)? {
                ParquetReader::new(Cursor::new(bytes)).finish().map(Some)
            } else {
                Ok(None)
            }
        });
        let damaged = || ProfileError::Damaged { path: path.to_owned() };
        let frame = read.map_err(|_| damaged())?.map_err(|source| ProfileError::Table {
            path: path.to_owned(),
            action: "read",
            source,
        })?;
        Ok(Self { path, frame: frame.ok_or_else(damaged)? })
    }

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

    pub(super) fn rows(&self) -> usize {
        self.frame.height()
    }

    pub(super) fn value<T: Clone>(&self, column: &[Option<T>], row: usize) -> Result<T, ProfileError> {
        column
            .get(row)
            .cloned()
            .flatten()
            .ok_or_else(|| self.invalid_value(row, "a required value is missing".to_owned()))
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

    fn endpoint(&self, column: &[Option<&str>], row: usize) -> Result<Endpoint, ProfileError> {
        let text = self.value(column, row)?;
        text.parse().map_err(|error| self.invalid_value(row, format!("{} is {error}", quoted(text))))
    }

    pub(super) fn invalid_value(&self, row: usize, what: String) -> ProfileError {
        ProfileError::Value { path: self.path.to_owned(), row, what }
    }

    fn unreadable(&self, source: PolarsError) -> ProfileError {
        ProfileError::Table { path: self.path.to_owned(), action: "read", source }
    }
}
