//! Reading a plain table of messages, `src,dst,messages,bytes`: what other tools, or a few lines of a program of one's own, write.

use super::message_sums::Sums;
use super::otf2::TraceError;
use super::trace::{Communicator, Stream, StreamKey, Trace, Tracer};
use crate::model::quoted;
use std::collections::BTreeSet;
use std::path::Path;

/// The header that tells such a table.
const HEADER: &str = "src,dst,messages,bytes";

/// True where a text begins as such a table.
#[must_use]
pub fn is_table(text: &[u8]) -> bool {
    let text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
    text.starts_with(HEADER.as_bytes())
}

/// Reads the table. Ranks are those of `MPI_COMM_WORLD`.
pub fn read(path: &Path, text: &str) -> Result<Trace, TraceError> {
    let mut trace = Trace { name: path.display().to_string(), tracer: Tracer::Table, ..Trace::default() };
    trace.communicators.push(Communicator { name: "MPI_COMM_WORLD".to_owned(), ..Communicator::default() });
    let mut seen = BTreeSet::new();
    for (index, line) in text.lines().enumerate().skip(1).filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |what: String| TraceError::Table { path: path.to_owned(), line: index + 1, what };
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [src, dst, messages, bytes] = fields[..] else {
            return Err(wrong(format!("expected four fields, `{HEADER}`, and found {}", fields.len())));
        };
        let number = |field: &str| field.parse::<u64>().map_err(|_| wrong(format!("{} is no number", quoted(field))));
        let rank = |field: &str| field.parse::<u32>().map_err(|_| wrong(format!("{} is no rank", quoted(field))));
        let (src, dst) = (rank(src)?, rank(dst)?);
        if !seen.insert((src, dst)) {
            return Err(wrong(format!("the pair {src},{dst} stands in the table already")));
        }
        let sums = Sums { messages: number(messages)?, bytes: number(bytes)? };
        trace.events = trace.events.saturating_add(sums.messages);
        trace.sends.add(StreamKey { src, dst, communicator: 0, tag: None }, Stream { sums, times_ns: None });
    }
    let ranks = trace.all_ranks();
    let size = ranks.last().map_or(0, |last| *last as usize + 1);
    // Without gaps, whoever communicates; a mistyped rank must not make a huge one.
    if size <= ranks.len().saturating_mul(2) {
        trace.communicators[0].members = (0..size as u32).collect();
    }
    trace.ranks = ranks.into_iter().map(|rank| (rank, None)).collect();
    Ok(trace)
}
