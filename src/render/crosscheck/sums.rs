//! Sums by rank, for a tracer's profile (`profile.cubex`), which has no pairs.

use super::rows::{MAX_PAIRS, signed};
use super::{causes, result};
use crate::analysis::crosscheck::{OperationSums, missing_bytes, operation_sums};
use crate::crosscheck::{Crosscheck, RankSums};
use crate::model::column::ColumnUnit::{Bytes, Count, Name, Number};
use crate::render::columns::columns as people_columns;
use crate::render::table::Table;
use crate::render::units::{bytes, group};
use std::fmt::Write as _;

/// Appends the terminal table, two rows per rank: sent and received.
pub(super) fn table(text: &mut String, crosscheck: &Crosscheck) {
    if crosscheck.ranks.is_empty() {
        return;
    }
    let mut rows: Vec<&RankSums> = crosscheck.ranks.iter().collect();
    if rows.len() > 2 * MAX_PAIRS {
        // If rows are left out, the worst must be among those that are shown.
        rows.sort_by_key(|row| std::cmp::Reverse(row.verdict));
    }
    let _ = writeln!(text, "{}", columns().text(rows.iter().take(2 * MAX_PAIRS).copied()));
    if rows.len() > 2 * MAX_PAIRS {
        let _ = writeln!(
            text,
            "... and {} more; --format csv or json lists all",
            group((rows.len() - 2 * MAX_PAIRS) as u64)
        );
    }
    let missing_bytes = missing_bytes(crosscheck);
    if missing_bytes > 0 {
        let _ = writeln!(
            text,
            "\nA profile has sums per rank, not per pair. {} that were sent are not on the\n\
             wire. If the missing sent and received bytes of a node are equal, its ranks\n\
             exchanged them within the node. To compare pairs, give the trace (traces.otf2).",
            bytes(missing_bytes)
        );
    }
    text.push('\n');
}

/// Appends one row per collective operation: calls and bytes of the ranks, and the messages between
/// nodes. A profile does not have the bytes that each rank expects from each other.
pub(super) fn collectives(text: &mut String, crosscheck: &Crosscheck) {
    let operations = operation_sums(crosscheck);
    if operations.is_empty() {
        return;
    }
    let header = ["collective", "calls", "sent", "received", "messages", "bytes", "tracer's"];
    let mut table = people_columns(&header, 1..7);
    for (operation, OperationSums { call_totals: [calls, sent, received], wire, tracer }) in operations {
        let tracer = if tracer.messages == 0 { String::new() } else { bytes(tracer.bytes) };
        let [sent, received, on_wire] = [sent, received, wire.bytes].map(bytes);
        table.add_row([operation.to_owned(), group(calls), sent, received, group(wire.messages), on_wire, tracer]);
    }
    let _ = writeln!(text, "{}\n", table.trim_fmt());
    text.push_str(
        "Sent and received are the tracer's counts; messages and bytes are on the wire\n\
         between ranks on different nodes, the tracer's own included. An algorithm may\n\
         route bytes through other ranks, so the numbers may differ.\n",
    );
}

/// The columns of the sums by rank.
pub(in crate::render) fn columns() -> Table<RankSums> {
    Table::new("ibscope crosscheck profile.cubex --format csv")
        .column("rank", Number, "rank", |row: &RankSums| row.rank)
        .headed("rank")
        .column("direction", Name, "`sent` or `received`", |row| row.direction.name())
        .headed("")
        .column("verdict", Name, "result of the comparison", |row| row.verdict.name())
        .list("causes", Name, "causes of a difference, separated by `;`", |row| causes(&row.causes))
        .column(
            "calls",
            Count,
            "calls that transfer one message each; empty where persistent requests were started",
            |row| row.calls,
        )
        .shown("calls", |row| row.calls.map_or_else(|| "unknown".to_owned(), group))
        .column("trace_bytes", Bytes, "bytes in the profile", |row| row.trace_bytes)
        .column("uncertain_bytes", Bytes, "bytes of `trace_bytes` that may belong to nonblocking collectives", |row| {
            row.uncertain_bytes
        })
        .column("wire_messages", Count, "messages on the wire", |row| row.wire.messages)
        .headed("messages")
        .shown("bytes", trace_bytes)
        .column("wire_mpi_bytes", Bytes, "MPI length of these messages", |row| row.wire.bytes)
        .shown("difference", |row| signed(row.wire.bytes, row.trace_bytes))
        .shown_left("result", |row| result(row.verdict, &row.causes))
        .column("tracer_messages", Count, "messages of the tracer among them", |row| row.tracer.messages)
        .column("tracer_bytes", Bytes, "MPI length of these messages", |row| row.tracer.bytes)
        .column(
            "missing_bytes",
            Bytes,
            "bytes of this rank in the Score-P profile that are missing on the wire for a known reason",
            |row| row.missing_bytes,
        )
        .column(
            "unidentified_messages",
            Count,
            "messages that explain missing bytes: on the wire with a sender or receiver whose rank is not identified",
            |row| row.unidentified.messages,
        )
        .column("unidentified_bytes", Bytes, "length of these messages", |row| row.unidentified.bytes)
}

/// The bytes in the profile, with their upper bound if some are uncertain.
fn trace_bytes(row: &RankSums) -> String {
    let or_more = match row.uncertain_bytes {
        0 => String::new(),
        more => format!(" to {}", group(row.trace_bytes.saturating_add(more))),
    };
    format!("{}{or_more}", group(row.trace_bytes))
}
