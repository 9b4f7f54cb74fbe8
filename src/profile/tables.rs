//! The Parquet tables. polars stays within this folder.

use super::{ProfileError, claims};
use crate::model::RdmaSums;
use crate::model::profile::{
    CmRow, CollectiveRow, ConnectionRow, CoverageState, HealthRow, PairCoverage, Repeated, Repeats, TimelineRow,
    Traffic,
};
use crate::model::{Health, Kind, MessageRow, Packed, PacketRecord, Profile, printable, quoted};
use ibscope_parsers::ib::Opcode;
use ibscope_parsers::{Endpoint, Qpn};
use polars::error::PolarsError;
use polars::prelude::{
    Column, DataFrame, NamedFrom, ParquetCompression, ParquetReader, ParquetWriter, PolarsResult, SerReader, Series,
};
use polars_core::runtime::THREAD_POOL;
use std::io::Cursor;
use std::panic::catch_unwind;
use std::path::Path;
use std::sync::LazyLock;

/// A table as polars has it.
pub(super) type Frame = PolarsResult<DataFrame>;

/// How tables are compressed.
pub(super) const COMPRESSION: ParquetCompression = ParquetCompression::Zstd(None);

/// Columns that connections and the timeline share.
const TRAFFIC: [&str; 8] = [
    "packets",
    "wire_bytes",
    "payload_bytes",
    "messages",
    "p2p_messages",
    "p2p_mpi_bytes",
    "collective_messages",
    "collective_mpi_bytes",
];

fn traffic_values(traffic: &Traffic) -> [u64; 8] {
    [
        traffic.packets,
        traffic.wire_bytes,
        traffic.payload_bytes,
        traffic.messages,
        traffic.p2p_messages,
        traffic.p2p_mpi_bytes,
        traffic.collective_messages,
        traffic.collective_mpi_bytes,
    ]
}

fn traffic_from(values: [u64; 8]) -> Traffic {
    let [packets, wire_bytes, payload_bytes, messages, p2p_messages, p2p_mpi_bytes, collective_messages, last] = values;
    Traffic {
        packets,
        wire_bytes,
        payload_bytes,
        messages,
        p2p_messages,
        p2p_mpi_bytes,
        collective_messages,
        collective_mpi_bytes: last,
    }
}

const REPEATS: [&str; 5] = [
    "retransmitted_request_packets",
    "retransmitted_response_packets",
    "repeated_acknowledge_packets",
    "retransmitted_wire_bytes",
    "retransmitted_payload_bytes",
];

fn repeats_values(repeats: &Repeats) -> [u64; 5] {
    [
        repeats.request_packets,
        repeats.response_packets,
        repeats.acknowledge_packets,
        repeats.wire_bytes,
        repeats.payload_bytes,
    ]
}

fn repeats_from(
    [request_packets, response_packets, acknowledge_packets, wire_bytes, payload_bytes]: [u64; 5],
) -> Repeats {
    Repeats { request_packets, response_packets, acknowledge_packets, wire_bytes, payload_bytes }
}

/// What the timeline has beside [`TRAFFIC`].
const REPEATED: [&str; 2] = ["repeated_packets", "repeated_bytes"];

/// A column of the values that `of` takes from each row.
macro_rules! column {
    ($rows:expr, $name:expr, $type:ty, $of:expr) => {
        Column::from(Series::new($name.into(), $rows.iter().map($of).collect::<Vec<$type>>()))
    };
}

pub(super) use column;

/// The table of connections.
pub(super) fn connections(rows: &[ConnectionRow]) -> PolarsResult<DataFrame> {
    let mut columns = vec![
        column!(rows, "src", String, |row| row.src.to_string()),
        column!(rows, "dst", String, |row| row.dst.to_string()),
        column!(rows, "kind", String, |row| row.kind.name().to_owned()),
        column!(rows, "service", String, |row| Opcode(row.service << 5).service().name().to_owned()),
        column!(rows, "service_code", u32, |row| u32::from(row.service)),
        column!(rows, "dest_qp", u32, |row| row.dest_qp.value()),
        column!(rows, "src_qp", Option<u32>, |row| row.src_qp.map(Qpn::value)),
        column!(rows, "src_qp_evidence", Option<String>, |row| row.src_qp_evidence.clone()),
        column!(rows, "first_time_ns", i64, |row| row.first_time_ns),
        column!(rows, "last_time_ns", i64, |row| row.last_time_ns),
        column!(rows, "stack", Option<String>, |row| row.stack.clone()),
        column!(rows, "job", Option<u32>, |row| row.job),
        column!(rows, "one_sided_messages", Option<u64>, |row| row.one_sided.map(|rdma| rdma.messages)),
        column!(rows, "one_sided_bytes", Option<u64>, |row| row.one_sided.map(|rdma| rdma.payload_bytes)),
        column!(rows, "coverage", String, |row| row.coverage.state.name().to_owned()),
        column!(rows, "missing_packets", u64, |row| row.coverage.missing_packets),
        column!(rows, "missing_messages", u64, |row| row.coverage.missing_messages),
    ];
    for (index, name) in TRAFFIC.into_iter().enumerate() {
        columns.push(column!(rows, name, u64, |row| traffic_values(&row.traffic)[index]));
    }
    for (index, name) in REPEATS.into_iter().enumerate() {
        columns.push(column!(rows, name, u64, |row| repeats_values(&row.repeats)[index]));
    }
    DataFrame::new(rows.len(), columns)
}

/// The table of time.
pub(super) fn timeline(rows: &[TimelineRow]) -> PolarsResult<DataFrame> {
    let mut columns =
        vec![column!(rows, "time_ns", i64, |row| row.time_ns), column!(rows, "connection", u32, |row| row.connection)];
    for (index, name) in TRAFFIC.into_iter().enumerate() {
        columns.push(column!(rows, name, u64, |row| traffic_values(&row.traffic)[index]));
    }
    let [packets, bytes] = REPEATED;
    columns.push(column!(rows, packets, u64, |row| row.repeated.packets));
    columns.push(column!(rows, bytes, u64, |row| row.repeated.wire_bytes));
    DataFrame::new(rows.len(), columns)
}

/// The table of collective operations.
pub(super) fn collectives(rows: &[CollectiveRow]) -> PolarsResult<DataFrame> {
    let columns = vec![
        column!(rows, "connection", u32, |row| row.connection),
        column!(rows, "operation", String, |row| row.operation.clone()),
        column!(rows, "messages", u64, |row| row.messages),
        column!(rows, "mpi_bytes", u64, |row| row.mpi_bytes),
    ];
    DataFrame::new(rows.len(), columns)
}

/// The table of health.
pub(super) fn health(rows: &[HealthRow]) -> PolarsResult<DataFrame> {
    let mut columns = vec![column!(rows, "connection", u32, |row| row.connection)];
    for (index, name) in Health::COLUMNS.into_iter().enumerate() {
        columns.push(column!(rows, name, u64, |row| row.health.values()[index]));
    }
    DataFrame::new(rows.len(), columns)
}

/// The table of connection management messages.
pub(super) fn cm(rows: &[CmRow]) -> PolarsResult<DataFrame> {
    let columns = vec![
        column!(rows, "time_ns", i64, |row| row.time_ns),
        column!(rows, "src", String, |row| row.src.to_string()),
        column!(rows, "dst", String, |row| row.dst.to_string()),
        column!(rows, "message", String, |row| row.message.clone()),
        column!(rows, "local_comm_id", u32, |row| row.local_comm_id),
        column!(rows, "remote_comm_id", Option<u32>, |row| row.remote_comm_id),
        column!(rows, "qpn", Option<u32>, |row| row.qpn.map(Qpn::value)),
        column!(rows, "starting_psn", Option<u32>, |row| row.starting_psn),
        column!(rows, "service_id", Option<u64>, |row| row.service_id),
        column!(rows, "world_rank", Option<u32>, |row| row.world_rank),
        column!(rows, "mpi_job", Option<u32>, |row| row.mpi_job),
    ];
    DataFrame::new(rows.len(), columns)
}

/// A table of single messages. Rows of connections that the profile does not have are left out: there are none.
pub(super) fn messages(rows: &[MessageRow], profile: &Profile) -> PolarsResult<DataFrame> {
    let rows: Vec<(&MessageRow, &ConnectionRow)> =
        rows.iter().filter_map(|row| Some((row, profile.connections.get(row.connection as usize)?))).collect();
    let time = |time_ns: i64| (time_ns != PacketRecord::NO_TIME).then_some(time_ns);
    let columns = vec![
        column!(rows, "first_time_ns", Option<i64>, |(row, _)| time(row.raw.times_ns.0)),
        column!(rows, "last_time_ns", Option<i64>, |(row, _)| time(row.raw.times_ns.1)),
        column!(rows, "src_rank", Option<u32>, |(row, _)| row.src_rank),
        column!(rows, "dst_rank", Option<u32>, |(row, _)| row.dst_rank),
        column!(rows, "src", String, |(_, on)| on.src.to_string()),
        column!(rows, "dst", String, |(_, on)| on.dst.to_string()),
        column!(rows, "src_qp", Option<u32>, |(_, on)| on.src_qp.map(Qpn::value)),
        column!(rows, "dest_qp", u32, |(_, on)| on.dest_qp.value()),
        column!(rows, "psn", u32, |(row, _)| row.raw.psn),
        column!(rows, "stack", Option<String>, |(_, on)| on.stack.clone()),
        column!(rows, "protocol", Option<String>, |(row, _)| row.protocol().map(str::to_owned)),
        column!(rows, "moved_by", String, |(row, _)| row.raw.moved.name().to_owned()),
        column!(rows, "operation", Option<String>, |(row, _)| row.operation().map(str::to_owned)),
        column!(rows, "communicator_rank", Option<u32>, |(row, _)| row.identity().map(|identity| identity.rank)),
        column!(rows, "context", Option<u32>, |(row, _)| row.identity().map(|identity| identity.context)),
        column!(rows, "tag", Option<i32>, |(row, _)| row.identity().map(|identity| identity.tag)),
        column!(rows, "mpi_bytes", Option<u64>, |(row, _)| row.mpi_bytes()),
        column!(rows, "payload_bytes", Option<u64>, |(row, _)| row.payload_bytes()),
        column!(rows, "wire_bytes", u64, |(row, _)| row.raw.wire_bytes),
        column!(rows, "packets", u64, |(row, _)| row.raw.packets),
        column!(rows, "complete", bool, |(row, _)| row.raw.complete),
        column!(rows, "job", Option<u32>, |(row, _)| row.job),
    ];
    DataFrame::new(rows.len(), columns)
}

/// Starts the threads of polars, which would panic where they are needed and cannot be started.
pub(super) fn start_threads() -> Result<(), ProfileError> {
    catch_unwind(|| LazyLock::force(&THREAD_POOL)).map(drop).map_err(|_| ProfileError::Threads)
}

/// Rows of a row group: some MB while it is made.
pub(super) const GROUP: usize = 1 << 14;

/// Rows in row groups.
pub(super) fn groups<T>(mut rows: impl Iterator<Item = T>) -> impl Iterator<Item = Vec<T>> {
    std::iter::from_fn(move || Some(rows.by_ref().take(GROUP).collect()).filter(|group: &Vec<T>| !group.is_empty()))
}

/// A table as it is stored, made a row group at a time: as a whole it would take as much memory again as the rows do. Not written by polars itself, which does not
/// pass on why a file cannot be written.
pub(super) fn bytes<T>(
    path: &Path,
    groups: impl Iterator<Item = impl AsRef<[T]>>,
    table: impl Fn(&[T]) -> Frame,
) -> Result<Vec<u8>, ProfileError> {
    let failed = |source| ProfileError::Table { path: path.to_owned(), action: "written", source };
    let mut bytes = Vec::new();
    let empty = table(&[]).map_err(failed)?;
    let writer = ParquetWriter::new(&mut bytes).with_compression(COMPRESSION).batched(empty.schema());
    let mut writer = writer.map_err(failed)?;
    for group in groups {
        table(group.as_ref()).and_then(|group| writer.write_batch(&group)).map_err(failed)?;
    }
    writer.finish().map_err(failed)?;
    drop(writer);
    Ok(bytes)
}

/// Reads the table of connections. `path` is for errors, here and below.
pub(super) fn read_connections(path: &Path, bytes: Vec<u8>) -> Result<Vec<ConnectionRow>, ProfileError> {
    let table = Table::open(path, bytes)?;
    let (src, dst, kind) = (table.text("src")?, table.text("dst")?, table.text("kind")?);
    let (service, dest_qp, src_qp) = (table.u32("service_code")?, table.u32("dest_qp")?, table.u32("src_qp")?);
    let (first, last) = (table.i64("first_time_ns")?, table.i64("last_time_ns")?);
    let (stack, src_qp_evidence) = (table.text("stack")?, table.text("src_qp_evidence")?);
    let has_jobs = table.has("job");
    let job = if has_jobs { table.u32("job")? } else { Vec::new() };
    let one_sided = if has_jobs { table.u64s(["one_sided_messages", "one_sided_bytes"])? } else { Vec::new() };
    let coverage = if has_jobs { table.text("coverage")? } else { Vec::new() };
    let missing = if has_jobs { table.u64s(["missing_packets", "missing_messages"])? } else { Vec::new() };
    let traffic = table.u64s(TRAFFIC)?;
    let repeats = table.u64s(REPEATS)?;
    let row = |row: usize| {
        let endpoint = |column: &[Option<&str>]| table.endpoint(column, row);
        Ok(ConnectionRow {
            src: endpoint(&src)?,
            dst: endpoint(&dst)?,
            kind: table.named(&kind, row, Kind::ALL, Kind::name, "no kind of traffic")?,
            service: table.value(&service, row)? as u8,
            dest_qp: Qpn::new(table.value(&dest_qp, row)?),
            src_qp: src_qp.get(row).copied().flatten().map(Qpn::new),
            src_qp_evidence: src_qp_evidence.get(row).copied().flatten().map(printable),
            first_time_ns: table.value(&first, row)?,
            last_time_ns: table.value(&last, row)?,
            traffic: traffic_from(table.values(&traffic, row)?),
            repeats: repeats_from(table.values(&repeats, row)?),
            stack: stack.get(row).copied().flatten().map(printable),
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
                let state =
                    table.named(&coverage, row, CoverageState::ALL, CoverageState::name, "no class of coverage")?;
                PairCoverage { state, missing_packets, missing_messages }
            } else {
                PairCoverage { state: CoverageState::Unknown, ..PairCoverage::default() }
            },
        })
    };
    (0..table.rows()).map(row).collect()
}

/// Reads the table of collective operations; `connections` is the length of the table that it points into.
pub(super) fn read_collectives(
    path: &Path,
    bytes: Vec<u8>,
    connections: usize,
) -> Result<Vec<CollectiveRow>, ProfileError> {
    let table = Table::open(path, bytes)?;
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

/// Reads the table of health; `connections` is the length of the table that it points into.
pub(super) fn read_health(path: &Path, bytes: Vec<u8>, connections: usize) -> Result<Packed<HealthRow>, ProfileError> {
    let table = Table::open(path, bytes)?;
    let (connection, values) = (table.u32("connection")?, table.u64s(Health::COLUMNS)?);
    let row = |row: usize| {
        let connection = table.connection(&connection, row, connections)?;
        Ok(HealthRow { connection, health: Health::from_values(table.values(&values, row)?) })
    };
    (0..table.rows()).map(row).collect()
}

/// Reads the table of time; `connections` is the length of the table that it points into.
pub(super) fn read_timeline(path: &Path, bytes: Vec<u8>, connections: usize) -> Result<Vec<TimelineRow>, ProfileError> {
    let table = Table::open(path, bytes)?;
    let (time, connection, traffic) = (table.i64("time_ns")?, table.u32("connection")?, table.u64s(TRAFFIC)?);
    let repeated = table.u64s(REPEATED)?;
    let row = |row: usize| {
        let connection = table.connection(&connection, row, connections)?;
        let traffic = traffic_from(table.values(&traffic, row)?);
        let [packets, wire_bytes] = table.values(&repeated, row)?;
        let repeated = Repeated { packets, wire_bytes };
        Ok(TimelineRow { time_ns: table.value(&time, row)?, connection, traffic, repeated })
    };
    (0..table.rows()).map(row).collect()
}

/// Reads the table of connection management messages.
pub(super) fn read_cm(path: &Path, bytes: Vec<u8>) -> Result<Vec<CmRow>, ProfileError> {
    let table = Table::open(path, bytes)?;
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
            service_id: service.get(row).copied().flatten(),
            world_rank: world_rank.get(row).copied().flatten(),
            mpi_job: mpi_job.get(row).copied().flatten(),
            mpi_port: None,
            mpi_queue: None,
        })
    };
    (0..table.rows()).map(row).collect()
}

/// A table that was read.
pub(super) struct Table<'a> {
    path: &'a Path,
    frame: DataFrame,
}

/// The values of one column, with gaps.
macro_rules! reader {
    ($name:ident, $type:ty, $access:ident, $own:expr) => {
        pub(super) fn $name(&self, name: &str) -> Result<Vec<Option<$type>>, ProfileError> {
            let column = self.frame.column(name).and_then(Column::$access).map_err(|source| self.unreadable(source))?;
            Ok(column.iter().map($own).collect())
        }
    };
}

impl<'a> Table<'a> {
    /// Reads a table. That its digest fits says only that it stood there when the profile was put together, by whomever: the reader of Parquet
    /// believes what it reads, makes room for rows that a few bytes claim, and panics where it should refuse.
    pub(super) fn open(path: &'a Path, bytes: Vec<u8>) -> Result<Self, ProfileError> {
        start_threads()?;
        let read = catch_unwind(|| {
            if claims::hold(&bytes)? { ParquetReader::new(Cursor::new(bytes)).finish().map(Some) } else { Ok(None) }
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

    /// Texts are names that ibscope gave: those of others are as short.
    pub(super) fn text(&self, name: &str) -> Result<Vec<Option<&str>>, ProfileError> {
        const MOST_BYTES: usize = 256;
        let column = self.frame.column(name).and_then(Column::str).map_err(|source| self.unreadable(source))?;
        match column.iter().position(|text| text.is_some_and(|text| text.len() > MOST_BYTES)) {
            Some(row) => Err(self.bad(row, format!("the text in `{name}` has more than {MOST_BYTES} bytes"))),
            None => Ok(column.iter().collect()),
        }
    }

    pub(super) fn u64s<const N: usize>(&self, names: [&str; N]) -> Result<Vec<Vec<Option<u64>>>, ProfileError> {
        names.into_iter().map(|name| self.u64(name)).collect()
    }

    /// True where the table has the column: profiles written before it was kept have none.
    fn has(&self, name: &str) -> bool {
        self.frame.column(name).is_ok()
    }

    pub(super) fn rows(&self) -> usize {
        self.frame.height()
    }

    pub(super) fn value<T: Clone>(&self, column: &[Option<T>], row: usize) -> Result<T, ProfileError> {
        column.get(row).cloned().flatten().ok_or_else(|| self.bad(row, "a value is missing".to_owned()))
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

    /// A row number in the table of connections.
    pub(super) fn connection(
        &self,
        column: &[Option<u32>],
        row: usize,
        connections: usize,
    ) -> Result<u32, ProfileError> {
        let connection = self.value(column, row)?;
        if connection as usize >= connections {
            return Err(self.bad(row, format!("connection {connection} is not in the table of {connections}")));
        }
        Ok(connection)
    }

    /// What the name in a row stands for, of all that there may be; `else_is` is said of any other.
    pub(super) fn named<T: Copy, const N: usize>(
        &self,
        column: &[Option<&str>],
        row: usize,
        all: [T; N],
        name: impl Fn(T) -> &'static str,
        else_is: &str,
    ) -> Result<T, ProfileError> {
        let text = self.value(column, row)?;
        let found = all.into_iter().find(|one| name(*one) == text);
        found.ok_or_else(|| self.bad(row, format!("{} is {else_is}", quoted(text))))
    }

    fn endpoint(&self, column: &[Option<&str>], row: usize) -> Result<Endpoint, ProfileError> {
        let text = self.value(column, row)?;
        text.parse().map_err(|error| self.bad(row, format!("{} is {error}", quoted(text))))
    }

    pub(super) fn bad(&self, row: usize, what: String) -> ProfileError {
        ProfileError::Value { path: self.path.to_owned(), row, what }
    }

    fn unreadable(&self, source: PolarsError) -> ProfileError {
        ProfileError::Table { path: self.path.to_owned(), action: "read", source }
    }
}
