//! Individual messages as terminal lines, csv and JSON lines.

use super::packets::since_start;
use super::table::{LineColumn, LineFormat, LineLayout, RowWriter};
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
    /// Begins the output. The terminal form has lines of at most `width` columns: it leaves out verb,
    /// context, protocol, duration, tag and operation, in this order, until they fit.
    pub fn begin(
        form: LineFormat,
        profile: &Profile,
        width: Option<usize>,
        out: &'a mut dyn Write,
    ) -> io::Result<Self> {
        let names = name_width(profile);
        let columns = [
            LineColumn::right("time [s]", 13),
            LineColumn::right("from", names),
            LineColumn::right("to", names),
            LineColumn::right("bytes", 10),
            LineColumn::left("protocol", 12),
            LineColumn::left("verb", 8),
            LineColumn::left("operation", 14),
            LineColumn::right("tag", 11),
            LineColumn::right("context", 8),
            LineColumn::right("took [µs]", 12),
            LineColumn::left("", INCOMPLETE.len()),
        ];
        let order = ["verb", "context", "protocol", "took [µs]", "tag", "operation"];
        let rows = RowWriter::begin(form, messages_table(), LineLayout::new(&columns, width, &order), out)?;
        Ok(Self { rows, origin_ns: profile.coverage.first_time_ns })
    }

    /// Writes one message.
    pub fn message(&mut self, row: &MessageRow, profile: &'a Profile) -> io::Result<()> {
        let Some(message) = ConnectedMessage::of(row, profile) else { return Ok(()) };
        let origin_ns = self.origin_ns;
        self.rows.write(&message, || cells(&message, profile, origin_ns))
    }

    /// Writes the buffered rest.
    pub fn finish(self) -> io::Result<()> {
        self.rows.finish("messages: none")
    }
}

/// The mark of messages whose packets are not all in the capture.
const INCOMPLETE: &str = "incomplete";

/// Columns for the names of senders and receivers.
fn name_width(profile: &Profile) -> usize {
    let endpoints = profile.connections.iter().flat_map(|row| [row.src, row.dst]).map(|end| profile.name_of(end));
    let ranks = profile.ranks.iter().map(|row| rank_name(profile, row.rank, row.job));
    endpoints.chain(ranks).map(|name| name.chars().count()).max().unwrap_or(0).max("from".len())
}

fn rank_name(profile: &Profile, rank: u32, job: u32) -> String {
    if profile.jobs.len() > 1 { format!("rank {job}.{rank}") } else { format!("rank {rank}") }
}

/// The cells of a message in the terminal form.
fn cells(message: &ConnectedMessage<'_>, profile: &Profile, origin_ns: Option<i64>) -> Vec<String> {
    let ConnectedMessage { row, connection } = message;
    let name = |rank: Option<u32>, endpoint: &Endpoint| match (rank, row.job) {
        (Some(rank), Some(job)) => rank_name(profile, rank, job),
        (Some(rank), None) => format!("rank {rank}"),
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
    let incomplete = if row.raw.complete { "" } else { INCOMPLETE };
    let [protocol, verb, operation, incomplete] = [protocol, verb, operation, incomplete].map(str::to_owned);
    vec![time, src, dst, length, protocol, verb, operation, tag, context, duration, incomplete]
}

fn text<T: Display>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}
