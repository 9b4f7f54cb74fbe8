//! Individual messages as terminal lines, csv and JSON lines.

use super::packets::since_start;
use super::table::{LineFormat, RowWriter};
use super::units::bytes;
use crate::model::message_table::{ConnectedMessage, messages_table, times};
use crate::model::{MessageRow, Profile};
use ibscope_parsers::Endpoint;
use std::fmt::Display;
use std::io::{self, Write};

/// Writes messages as a stream of lines.
pub struct MessageLines<'a> {
    rows: RowWriter<'a, ConnectedMessage<'a>>,
    origin_ns: Option<i64>,
}

impl<'a> MessageLines<'a> {
    /// Writes the header.
    pub fn begin(form: LineFormat, profile: &Profile, out: &'a mut dyn Write) -> io::Result<Self> {
        let header = format!(
            "{:>13} {:>15} {:>15} {:>10} {:<12} {:<8} {:<14} {:>11} {:>8} {:>12}",
            "time [s]", "from", "to", "bytes", "protocol", "verb", "operation", "tag", "context", "took [µs]"
        );
        let rows = RowWriter::begin(form, messages_table(), &header, out)?;
        Ok(Self { rows, origin_ns: profile.coverage.first_time_ns })
    }

    /// Writes one message.
    pub fn message(&mut self, row: &MessageRow, profile: &'a Profile) -> io::Result<()> {
        let Some(message) = ConnectedMessage::of(row, profile) else { return Ok(()) };
        let origin_ns = self.origin_ns;
        self.rows.write(&message, || line(&message, profile, origin_ns))
    }

    /// Writes the buffered rest.
    pub fn finish(self) -> io::Result<()> {
        self.rows.finish()
    }
}

/// The terminal line of a message.
fn line(message: &ConnectedMessage<'_>, profile: &Profile, origin_ns: Option<i64>) -> String {
    let ConnectedMessage { row, connection } = message;
    let name = |rank: Option<u32>, endpoint: &Endpoint| match (rank, row.job) {
        (Some(rank), Some(job)) if profile.jobs.len() > 1 => format!("rank {job}.{rank}"),
        (Some(rank), _) => format!("rank {rank}"),
        (None, _) => profile.name_of(*endpoint),
    };
    let (src, dst) = (name(row.src_rank, &connection.src), name(row.dst_rank, &connection.dst));
    let (first, last) = times(row);
    let time = since_start(first, origin_ns);
    let duration = first.zip(last).map(|(first, last)| format!("{:.3}", last.saturating_sub(first) as f64 / 1e3));
    let length = row.raw.length_bytes.map_or_else(|| "-".to_owned(), bytes);
    let (protocol, operation) = (row.protocol().unwrap_or("-"), row.operation().unwrap_or("-"));
    let tag = text(row.identity().map(|identity| identity.tag));
    let context = text(row.identity().map(|identity| identity.context));
    let duration = text(duration);
    let verb = row.raw.transfer_verb.lowercase_name();
    let incomplete = if row.raw.complete { "" } else { "  incomplete" };
    format!(
        "{time:>13} {src:>15} {dst:>15} {length:>10} {protocol:<12} {verb:<8} {operation:<14} {tag:>11} {context:>8} {duration:>12}{incomplete}"
    )
}

fn text<T: Display>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}
