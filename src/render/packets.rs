//! Single packets as terminal lines, csv and JSON lines.

pub use super::table::LineFormat;
use super::table::{LineColumn, LineLayout, RowWriter, Table};
use crate::model::InspectedPacket;
use crate::model::column::ColumnUnit::{Bytes, Name, Number, Timestamp};
use ibscope_parsers::Endpoint;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// The columns of packets.
pub(super) fn packets_table() -> Table<InspectedPacket> {
    Table::new("ibscope inspect --format csv")
        .column("frame", Number, "number of the packet's record in its capture, from 1", |packet: &InspectedPacket| {
            packet.frame
        })
        .column("time_ns", Timestamp, "capture time; empty where the record has none", |packet| packet.time_ns)
        .column("src", Name, "endpoint of the sender", |packet| packet.src.to_string())
        .column("dst", Name, "endpoint of the receiver", |packet| packet.dst.to_string())
        .column("opcode", Name, "opcode name of the InfiniBand specification", |packet| packet.opcode.to_string())
        .column("dest_qp", Number, "queue pair of the receiver", |packet| packet.dest_qp.value())
        .column("psn", Number, "packet sequence number", |packet| packet.psn.value())
        .column("wire_bytes", Bytes, "length of the packet, from LRH to VCRC or the whole Ethernet frame", |packet| {
            packet.wire_bytes
        })
        .column("captured_bytes", Bytes, "bytes of the packet that are in the capture", |packet| packet.captured_bytes)
        .column(
            "payload_bytes",
            Bytes,
            "payload: bytes after the BTH and extension headers, without pad and ICRC",
            |packet| packet.payload_bytes,
        )
        .column("icrc", Name, "result of the check of the ICRC", |packet| packet.icrc.name())
}

/// Width of a line with all columns.
const ALL_COLUMNS: usize = 128;
/// Digits of a time below microseconds.
const NANOSECOND_DIGITS: usize = 3;

/// Writes packets as a stream of lines.
pub struct PacketLines<'a> {
    names: &'a BTreeMap<Endpoint, String>,
    is_narrow: bool,
    rows: RowWriter<'a, InspectedPacket>,
}

impl<'a> PacketLines<'a> {
    /// Begins the output. The terminal form has lines of at most `width` columns: if not all columns
    /// fit, times are in microseconds, and it leaves out the ICRC, the length on the wire, the frame,
    /// the queue pair, the payload and the PSN, in this order, until the others fit.
    pub fn begin(
        form: LineFormat,
        names: &'a BTreeMap<Endpoint, String>,
        width: Option<usize>,
        out: &'a mut dyn Write,
    ) -> io::Result<Self> {
        let is_narrow = width.is_some_and(|width| width < ALL_COLUMNS);
        // The longest address takes one more column, which the shorter names of most opcodes leave.
        let (time, endpoint, opcode) = if is_narrow { (10, 14, 28) } else { (13, 15, 30) };
        let columns = [
            LineColumn::right("frame", 7),
            LineColumn::right("time [s]", time),
            LineColumn::right("source", endpoint),
            LineColumn::right("destination", endpoint),
            LineColumn::left("opcode", opcode),
            LineColumn::right("dest QP", 8),
            LineColumn::right("PSN", 8),
            LineColumn::right("wire B", 6),
            LineColumn::right("payload", 7),
            LineColumn::left("ICRC", 9),
        ];
        let layout = LineLayout::new(&columns, width, &["ICRC", "wire B", "frame", "dest QP", "payload", "PSN"]);
        Ok(Self { names, is_narrow, rows: RowWriter::begin(form, packets_table(), layout, out)? })
    }

    /// Writes one packet; its time counts from `origin_ns`.
    pub fn packet(&mut self, packet: &InspectedPacket, origin_ns: Option<i64>) -> io::Result<()> {
        let Self { names, is_narrow, ref mut rows } = *self;
        rows.write(packet, || cells(packet, names, origin_ns, is_narrow))
    }

    /// Writes the buffered rest.
    pub fn finish(self) -> io::Result<()> {
        self.rows.finish("inspect: no packets")
    }
}

/// The cells of a packet in the terminal form.
fn cells(
    packet: &InspectedPacket,
    names: &BTreeMap<Endpoint, String>,
    origin_ns: Option<i64>,
    is_narrow: bool,
) -> Vec<String> {
    let mut time = since_start(packet.time_ns, origin_ns);
    if is_narrow && packet.time_ns.is_some() {
        time.truncate(time.len().saturating_sub(NANOSECOND_DIGITS));
    }
    let name = |endpoint: &Endpoint| names.get(endpoint).cloned().unwrap_or_else(|| endpoint.to_string());
    vec![
        packet.frame.to_string(),
        time,
        name(&packet.src),
        name(&packet.dst),
        packet.opcode.to_string(),
        format!("{:#x}", packet.dest_qp.value()),
        packet.psn.value().to_string(),
        packet.wire_bytes.to_string(),
        packet.payload_bytes.to_string(),
        packet.icrc.name().to_owned(),
    ]
}

/// Formats seconds since `origin_ns`; `-` without a time.
pub(crate) fn since_start(time_ns: Option<i64>, origin_ns: Option<i64>) -> String {
    let Some((time_ns, origin_ns)) = time_ns.zip(origin_ns) else { return "-".to_owned() };
    let since = time_ns.saturating_sub(origin_ns);
    let sign = if since < 0 { "-" } else { "" };
    let since = since.unsigned_abs();
    format!("{sign}{}.{:09}", since / 1_000_000_000, since % 1_000_000_000)
}
