//! The columns of individual messages, for every form of them: csv, JSON and Parquet.

use super::column::ColumnUnit::{Bytes, Count, Flag, Name, Number, Timestamp};
use super::profile::ConnectionRow;
use super::table::Table;
use super::{ConnectionClass, MessageRow, PacketRecord, Profile};
use ibscope_parsers::Qpn;

/// A message with the connection of its first packet.
pub(crate) struct ConnectedMessage<'a> {
    pub(crate) row: MessageRow,
    pub(crate) connection: &'a ConnectionRow,
}

impl<'a> ConnectedMessage<'a> {
    /// A message of a profile with its connection; `None` if the connection number is out of range.
    pub(crate) fn of(row: &MessageRow, profile: &'a Profile) -> Option<Self> {
        let connection = profile.connections.get(row.connection as usize)?;
        Some(Self { row: row.clone(), connection })
    }
}

/// The columns of messages.
pub(crate) fn messages_table<'a>() -> Table<ConnectedMessage<'a>> {
    Table::new("ibscope messages --format csv")
        .column("first_time_ns", Timestamp, "capture time of the first packet, which carries the envelope", |of: &ConnectedMessage<'_>| {
            times(&of.row).0
        })
        .column("last_time_ns", Timestamp, "capture time of the last packet", |of| times(&of.row).1)
        .column(
            "src_rank",
            Number,
            "rank of the sender in `MPI_COMM_WORLD`, for any communicator of the message; empty where it is not known",
            |of| of.row.src_rank,
        )
        .column("dst_rank", Number, "rank of the receiver in `MPI_COMM_WORLD`; empty where it is not known", |of| {
            of.row.dst_rank
        })
        .column("src", Name, "endpoint of the sender", |of| of.connection.src.to_string())
        .column("dst", Name, "endpoint of the receiver", |of| of.connection.dst.to_string())
        .column("src_qp", Number, "queue pair of the sender; empty where it is not known", |of| {
            of.connection.src_qp.map(Qpn::value)
        })
        .column("dest_qp", Number, "queue pair of the receiver", |of| of.connection.dest_qp.value())
        .column("psn", Number, "PSN of the first packet: `ibscope inspect` shows the packet", |of| of.row.raw.psn)
        .name("stack", "the MPI library; empty where none was detected", |of| of.connection.stack.as_deref())
        .column("protocol", Name, "`eager`, `synchronous` or `rendezvous`; empty for transport messages", |of| of.row.protocol())
        .column("verb", Name, "operation that moved the data: `send`, `datagram`, `write`, `read` or `atomic`", |of| {
            of.row.raw.transfer_verb.lowercase_name()
        })
        .column("operation", Name, "`point-to-point`, the collective operation, or `nccl`, because messages of NCCL do not name their operation; empty for transport messages", |of| {
            let of_nccl = (of.connection.class == ConnectionClass::Nccl).then(|| ConnectionClass::Nccl.name());
            of.row.operation().map(|name| of_nccl.unwrap_or(name))
        })
        .column("communicator_rank", Number, "rank of the sender in the communicator, according to the envelope", |of| {
            of.row.identity().map(|identity| identity.rank)
        })
        .column("context", Number, "context id of the communicator, according to the envelope", |of| {
            of.row.identity().map(|identity| identity.context)
        })
        .column("tag", Number, "tag, according to the envelope", |of| of.row.identity().map(|identity| identity.tag))
        .column("mpi_bytes", Bytes, "MPI length; empty for transport messages, and where packets that show it are missing", |of| {
            of.row.mpi_bytes()
        })
        .column("payload_bytes", Bytes, "payload of a transport message that belongs to no MPI message (`--transport`); else empty", |of| {
            of.row.payload_bytes()
        })
        .column(
            "wire_bytes",
            Bytes,
            "packets of the message from the envelope to the last data, each once: the segments of an eager message, and the READ responses, WRITEs or SENDs of a rendezvous. If several messages share one SEND, its packets count for the first of them only",
            |of| of.row.raw.wire_bytes,
        )
        .column("packets", Count, "these packets", |of| of.row.raw.packets)
        .column("complete", Flag, "`true` if all packets of the message were captured", |of| of.row.raw.complete)
        .column("job", Number, "number of the job; empty where the message belongs to none", |of| of.row.job)
        .column("class", Name, "class of the connection: `mpi`, `nccl`, `nvmeof` ... or `unknown`", |of| of.connection.class.name())
}

/// Times of the first and of the last packet, where they have one.
pub(crate) fn times(row: &MessageRow) -> (Option<i64>, Option<i64>) {
    let time = |time_ns: i64| (time_ns != PacketRecord::NO_TIME).then_some(time_ns);
    (time(row.raw.times_ns.0), time(row.raw.times_ns.1))
}
