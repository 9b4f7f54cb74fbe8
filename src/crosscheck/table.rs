//! Reads a plain table of messages, `src,dst,messages,bytes`, as other tools or a small program may
//! write it.

use super::message_sums::MessageSums;
use super::otf2::TraceError;
use super::trace::{AppTrace, StreamKey, TraceCommunicator, TraceStream, Tracer};
use crate::model::quoted;
use std::collections::BTreeSet;
use std::path::Path;

/// The header, by which a table is recognized.
const HEADER: &str = "src,dst,messages,bytes";

/// True if a text begins like such a table.
#[must_use]
pub fn is_table(text: &[u8]) -> bool {
    let text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
    text.starts_with(HEADER.as_bytes())
}

/// Reads the table. Ranks are those of `MPI_COMM_WORLD`.
pub fn read(path: &Path, text: &str) -> Result<AppTrace, TraceError> {
    let mut trace = AppTrace { name: path.display().to_string(), tracer: Tracer::Table, ..AppTrace::default() };
    trace.communicators.push(TraceCommunicator { name: "MPI_COMM_WORLD".to_owned(), ..TraceCommunicator::default() });
    let mut seen = BTreeSet::new();
    for (index, line) in text.lines().enumerate().skip(1).filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |what: String| TraceError::Table { path: path.to_owned(), line: index + 1, what };
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [src, dst, messages, bytes] = fields[..] else {
            return Err(wrong(format!("expected four fields, `{HEADER}`, but found {}", fields.len())));
        };
        let number =
            |field: &str| field.parse::<u64>().map_err(|_| wrong(format!("{} is not a number", quoted(field))));
        let rank = |field: &str| field.parse::<u32>().map_err(|_| wrong(format!("{} is not a rank", quoted(field))));
        let (src, dst) = (rank(src)?, rank(dst)?);
        if !seen.insert((src, dst)) {
            return Err(wrong(format!("the pair {src},{dst} is already in the table")));
        }
        let sums = MessageSums { messages: number(messages)?, bytes: number(bytes)? };
        trace.events = trace.events.saturating_add(sums.messages);
        trace.sends.add(StreamKey { src, dst, communicator: 0, tag: None }, TraceStream { sums, times_ns: None });
    }
    let ranks = trace.all_ranks();
    let size = ranks.last().map_or(0, |last| *last as usize + 1);
    // Fill the gaps in the rank numbers, unless most are missing: a mistyped rank must not create a
    // huge communicator.
    if size <= ranks.len().saturating_mul(2) {
        trace.communicators[0].members = (0..size as u32).collect();
    }
    trace.ranks = ranks.into_iter().map(|rank| (rank, None)).collect();
    Ok(trace)
}
