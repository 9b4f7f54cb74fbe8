//! Messages one by one: a table for people, csv and JSON lines for programs.

use super::packets::{Form, since_start};
use super::units::bytes;
use crate::model::profile::ConnectionRow;
use crate::model::{MessageRow, PacketRecord, Profile};
use ibscope_parsers::{Endpoint, Qpn};
use std::fmt::Display;
use std::io::{self, Write};

/// The columns of csv, in their order; JSON has the same names.
const COLUMNS: &str = "first_time_ns,last_time_ns,src_rank,dst_rank,src,dst,src_qp,dest_qp,psn,stack,protocol,moved_by,operation,\
                       communicator_rank,context,tag,mpi_bytes,payload_bytes,wire_bytes,packets,complete,job";

/// A stream of lines.
pub struct Lines<'a> {
    form: Form,
    out: &'a mut dyn Write,
    start_ns: Option<i64>,
}

impl<'a> Lines<'a> {
    /// Writes the header.
    pub fn begin(form: Form, profile: &Profile, out: &'a mut dyn Write) -> io::Result<Self> {
        match form {
            Form::Table => writeln!(
                out,
                "{:>13} {:>15} {:>15} {:>10} {:<12} {:<8} {:<14} {:>11} {:>8} {:>12}",
                "time [s]", "from", "to", "bytes", "protocol", "moved by", "operation", "tag", "context", "lasted [us]"
            )?,
            Form::Csv => writeln!(out, "{COLUMNS}")?,
            Form::Json => {}
        }
        Ok(Self { form, out, start_ns: profile.coverage.first_time_ns })
    }

    /// Writes one message.
    pub fn message(&mut self, row: &MessageRow, profile: &Profile) -> io::Result<()> {
        let Some(connection) = profile.connections.get(row.connection as usize) else { return Ok(()) };
        match self.form {
            Form::Table => self.line(row, connection, profile),
            Form::Csv => self.csv(row, connection),
            Form::Json => self.json(row, connection),
        }
    }

    fn line(&mut self, row: &MessageRow, connection: &ConnectionRow, profile: &Profile) -> io::Result<()> {
        let who = |rank: Option<u32>, endpoint: &Endpoint| match (rank, row.job) {
            (Some(rank), Some(job)) if profile.jobs.len() > 1 => format!("rank {job}.{rank}"),
            (Some(rank), _) => format!("rank {rank}"),
            (None, _) => profile.names.get(endpoint).cloned().unwrap_or_else(|| endpoint.to_string()),
        };
        let (src, dst) = (who(row.src_rank, &connection.src), who(row.dst_rank, &connection.dst));
        let (first, last) = times(row);
        let time = since_start(first, &mut self.start_ns);
        let lasted = first.zip(last).map(|(first, last)| format!("{:.3}", last.saturating_sub(first) as f64 / 1e3));
        let length = row.raw.length_bytes.map_or_else(|| "-".to_owned(), bytes);
        let (protocol, operation) = (row.protocol().unwrap_or("-"), row.operation().unwrap_or("-"));
        let tag = text(row.identity().map(|identity| identity.tag), "-");
        let context = text(row.identity().map(|identity| identity.context), "-");
        let lasted = text(lasted, "-");
        let moved = row.raw.moved.name();
        let incomplete = if row.raw.complete { "" } else { "  incomplete" };
        writeln!(
            self.out,
            "{time:>13} {src:>15} {dst:>15} {length:>10} {protocol:<12} {moved:<8} {operation:<14} {tag:>11} {context:>8} \
             {lasted:>12}{incomplete}"
        )
    }

    fn csv(&mut self, row: &MessageRow, connection: &ConnectionRow) -> io::Result<()> {
        let (first, last) = times(row);
        let (first, last) = (text(first, ""), text(last, ""));
        let (src_rank, dst_rank) = (text(row.src_rank, ""), text(row.dst_rank, ""));
        let ConnectionRow { src, dst, .. } = connection;
        let (src_qp, dest_qp) = (text(connection.src_qp.map(Qpn::value), ""), connection.dest_qp.value());
        let stack = connection.stack.as_deref().unwrap_or_default();
        let (protocol, operation) = (row.protocol().unwrap_or_default(), row.operation().unwrap_or_default());
        let identity = row.identity();
        let rank = text(identity.map(|identity| identity.rank), "");
        let context = text(identity.map(|identity| identity.context), "");
        let tag = text(identity.map(|identity| identity.tag), "");
        let (mpi_bytes, payload_bytes) = (text(row.mpi_bytes(), ""), text(row.payload_bytes(), ""));
        let (psn, moved) = (row.raw.psn, row.raw.moved.name());
        let (wire_bytes, packets, complete) = (row.raw.wire_bytes, row.raw.packets, row.raw.complete);
        let job = text(row.job, "");
        writeln!(
            self.out,
            "{first},{last},{src_rank},{dst_rank},{src},{dst},{src_qp},{dest_qp},{psn},{stack},{protocol},{moved},{operation},\
             {rank},{context},{tag},{mpi_bytes},{payload_bytes},{wire_bytes},{packets},{complete},{job}"
        )
    }

    fn json(&mut self, row: &MessageRow, connection: &ConnectionRow) -> io::Result<()> {
        let (first, last) = times(row);
        let identity = row.identity();
        let object = serde_json::json!({
            "first_time_ns": first, "last_time_ns": last, "src_rank": row.src_rank, "dst_rank": row.dst_rank,
            "src": connection.src.to_string(), "dst": connection.dst.to_string(),
            "src_qp": connection.src_qp.map(Qpn::value), "dest_qp": connection.dest_qp.value(), "psn": row.raw.psn,
            "stack": connection.stack, "protocol": row.protocol(), "moved_by": row.raw.moved.name(),
            "operation": row.operation(), "communicator_rank": identity.map(|identity| identity.rank),
            "context": identity.map(|identity| identity.context), "tag": identity.map(|identity| identity.tag),
            "mpi_bytes": row.mpi_bytes(), "payload_bytes": row.payload_bytes(), "wire_bytes": row.raw.wire_bytes,
            "packets": row.raw.packets, "complete": row.raw.complete, "job": row.job,
        });
        writeln!(self.out, "{object}")
    }
}

/// Times of the first and of the last packet, where they have one.
pub(crate) fn times(row: &MessageRow) -> (Option<i64>, Option<i64>) {
    let time = |time_ns: i64| (time_ns != PacketRecord::NO_TIME).then_some(time_ns);
    (time(row.raw.times_ns.0), time(row.raw.times_ns.1))
}

fn text<T: Display>(value: Option<T>, nothing: &str) -> String {
    value.map_or_else(|| nothing.to_owned(), |value| value.to_string())
}
