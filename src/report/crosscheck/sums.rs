//! Sums by rank, where a profile stands in for the trace.

use super::causes;
use super::table::{MOST_PAIRS, signed};
use crate::crosscheck::{Crosscheck, RankSums};
use crate::report::columns::columns;
use crate::report::units::{bytes, group};
use std::fmt::Write as _;
use std::io::{self, Write};

/// Two rows per rank: what it sent, what it received.
pub(super) fn table(text: &mut String, crosscheck: &Crosscheck) {
    if crosscheck.ranks.is_empty() {
        return;
    }
    let header = ["rank", "", "calls", "messages on the wire", "bytes", "on the wire", "differ", "verdict", ""];
    let mut table = columns(&header, [0, 2, 3, 4, 5, 6]);
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
            group(row.wire.bytes),
            signed(row.wire.bytes, row.trace_bytes),
            row.verdict.name().to_owned(),
            causes(&row.causes, ", "),
        ]);
    }
    let _ = writeln!(text, "{}", table.trim_fmt());
    if rows.len() > 2 * MOST_PAIRS {
        let _ = writeln!(text, "... and {} more: csv and json have all", group((rows.len() - 2 * MOST_PAIRS) as u64));
    }
    let same_node: u64 = crosscheck.ranks.iter().map(|row| row.missing_bytes).sum();
    if same_node > 0 {
        let _ = writeln!(
            text,
            "\nA profile has sums of each rank, not whom it talked to: {} that the wire lacks are explained as what is missing of a node's sends is missing of its\n\
             receives. The trace (traces.otf2) tells pairs.",
            bytes(same_node)
        );
    }
    text.push('\n');
}

/// The same with everything, for programs.
pub(super) fn csv(crosscheck: &Crosscheck, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "rank,direction,verdict,causes,calls,trace_bytes,uncertain_bytes,wire_messages,wire_mpi_bytes,tracer_messages,tracer_bytes,missing_bytes"
    )?;
    for row in &crosscheck.ranks {
        let RankSums { rank, trace_bytes, uncertain_bytes, wire, tracer, missing_bytes, .. } = row;
        writeln!(
            out,
            "{rank},{},{},{},{},{trace_bytes},{uncertain_bytes},{},{},{},{},{missing_bytes}",
            row.direction.name(),
            row.verdict.name(),
            causes(&row.causes, ";"),
            row.calls.map(|calls| calls.to_string()).unwrap_or_default(),
            wire.messages,
            wire.bytes,
            tracer.messages,
            tracer.bytes,
        )?;
    }
    Ok(())
}
