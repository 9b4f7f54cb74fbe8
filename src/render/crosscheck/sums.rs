//! Sums by rank, where a profile stands in for the trace.

use super::rows::{MOST_PAIRS, signed};
use super::{causes, result};
use crate::analysis::crosscheck::{OperationSums, missing_bytes, operation_sums};
use crate::crosscheck::{Crosscheck, RankSums};
use crate::render::columns::columns;
use crate::render::units::{bytes, group};
use std::fmt::Write as _;
use std::io::{self, Write};

/// Two rows per rank: what it sent, what it received.
pub(super) fn table(text: &mut String, crosscheck: &Crosscheck) {
    if crosscheck.ranks.is_empty() {
        return;
    }
    let header = ["rank", "", "calls", "messages", "bytes", "differ", "result"];
    let mut table = columns(&header, [0, 2, 3, 4, 5]);
    let mut rows: Vec<&RankSums> = crosscheck.ranks.iter().collect();
    if rows.len() > 2 * MOST_PAIRS {
        // The worst first; else as they are.
        rows.sort_by_key(|row| std::cmp::Reverse(row.verdict));
    }
    for row in rows.iter().take(2 * MOST_PAIRS) {
        let or_more = match row.uncertain_bytes {
            0 => String::new(),
            more => format!(" to {}", group(row.trace_bytes.saturating_add(more))),
        };
        table.add_row([
            row.rank.to_string(),
            row.direction.name().to_owned(),
            row.calls.map_or_else(|| "unknown".to_owned(), group),
            group(row.wire.messages),
            format!("{}{or_more}", group(row.trace_bytes)),
            signed(row.wire.bytes, row.trace_bytes),
            result(row.verdict, &row.causes),
        ]);
    }
    let _ = writeln!(text, "{}", table.trim_fmt());
    if rows.len() > 2 * MOST_PAIRS {
        let _ = writeln!(text, "... and {} more: csv and json have all", group((rows.len() - 2 * MOST_PAIRS) as u64));
    }
    let missing_bytes = missing_bytes(crosscheck);
    if missing_bytes > 0 {
        let _ = writeln!(
            text,
            "\nA profile has sums of each rank, but not by peer. {} that were sent are not\n\
             on the wire, which is explained where a node is missing as much of its sends as\n\
             of its receives. The trace (traces.otf2) has pairs.",
            bytes(missing_bytes)
        );
    }
    text.push('\n');
}

/// By operation: what ranks called, and what went between nodes. What they promise each other is not in a profile.
pub(super) fn collectives(text: &mut String, crosscheck: &Crosscheck) {
    let operations = operation_sums(crosscheck);
    if operations.is_empty() {
        return;
    }
    let header = ["collective", "calls", "sent", "received", "messages", "bytes", "tracer's"];
    let mut table = columns(&header, 1..7);
    for (operation, OperationSums { called: [calls, sent, received], wire, tracer }) in operations {
        let tracer = if tracer.messages == 0 { String::new() } else { bytes(tracer.bytes) };
        let [sent, received, on_wire] = [sent, received, wire.bytes].map(bytes);
        table.add_row([operation.to_owned(), group(calls), sent, received, group(wire.messages), on_wire, tracer]);
    }
    let _ = writeln!(text, "{}\n", table.trim_fmt());
    text.push_str(
        "Sent and received as the tracer counts, and on the wire (the tracer's own\n\
         included) between ranks on different nodes. An algorithm may move bytes over\n\
         other ranks, so they need not be equal.\n",
    );
}

/// The ranks with everything, for programs.
pub(super) fn csv(crosscheck: &Crosscheck, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "rank,direction,verdict,causes,calls,trace_bytes,uncertain_bytes,wire_messages,wire_mpi_bytes,tracer_messages,tracer_bytes,missing_bytes,unidentified_messages,unidentified_bytes"
    )?;
    for row in &crosscheck.ranks {
        let RankSums { rank, trace_bytes, uncertain_bytes, wire, tracer, missing_bytes, unidentified, .. } = row;
        writeln!(
            out,
            "{rank},{},{},{},{},{trace_bytes},{uncertain_bytes},{},{},{},{},{missing_bytes},{},{}",
            row.direction.name(),
            row.verdict.name(),
            causes(&row.causes, ";"),
            row.calls.map(|calls| calls.to_string()).unwrap_or_default(),
            wire.messages,
            wire.bytes,
            tracer.messages,
            tracer.bytes,
            unidentified.messages,
            unidentified.bytes,
        )?;
    }
    Ok(())
}
