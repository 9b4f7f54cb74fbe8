//! Parts of a cross-check as csv, beside the pairs.

use crate::crosscheck::{Crosscheck, Unidentified};
use crate::render::csv::quoted;
use std::io::{self, Write};

/// What differs without a reason: a row for each tag of a pair. `tag` is empty where tags are not told apart; several communicators and contexts are
/// set apart by `;`.
pub fn differences_csv(crosscheck: &Crosscheck, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "src,dst,tag,communicators,contexts,trace_messages,trace_bytes,wire_messages,wire_mpi_bytes")?;
    for (pair, row) in crosscheck.pairs.iter().flat_map(|pair| pair.differences.iter().map(move |row| (pair, row))) {
        let tag = row.tag.map(|tag| tag.to_string()).unwrap_or_default();
        let contexts: Vec<String> = row.contexts.iter().map(u32::to_string).collect();
        writeln!(
            out,
            "{},{},{tag},{},{},{},{},{},{}",
            pair.src,
            pair.dst,
            quoted(&row.communicators.join(";")),
            contexts.join(";"),
            row.trace.messages,
            row.trace.bytes,
            row.wire.messages,
            row.wire.bytes
        )?;
    }
    Ok(())
}

/// Clocks of the ranks. `uncertainty_ns` is empty where a rank only sends or only receives.
pub fn clocks_csv(crosscheck: &Crosscheck, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "rank,offset_ns,drift_ppm,uncertainty_ns,is_uneven,sent,received")?;
    for clock in &crosscheck.clocks.ranks {
        let known = clock.uncertainty_ns.map(|ns| ns.to_string()).unwrap_or_default();
        writeln!(
            out,
            "{},{},{},{known},{},{},{}",
            clock.rank, clock.offset_ns, clock.drift_ppm, clock.is_uneven, clock.sent, clock.received
        )?;
    }
    Ok(())
}

/// How long a send call takes to the wire: from the first to just below the second time, and how many messages.
pub fn delays_csv(crosscheck: &Crosscheck, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "from_ns,to_ns,messages")?;
    let classes = crosscheck.clocks.send_to_wire.iter().flat_map(|delays| &delays.buckets);
    classes.into_iter().try_for_each(|(from_ns, to_ns, count)| writeln!(out, "{from_ns},{to_ns},{count}"))
}

/// Calls of collective operations by all ranks, and their bytes as the tracer counts them.
pub fn calls_csv(crosscheck: &Crosscheck, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "operation,calls,sent_bytes,received_bytes")?;
    let mut calls = crosscheck.collective_calls.iter();
    calls.try_for_each(|row| writeln!(out, "{},{},{},{}", row.operation, row.calls, row.sent, row.received))
}

/// One-sided operations in the trace between ranks on different nodes.
pub fn one_sided_csv(crosscheck: &Crosscheck, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "src,dst,operations,bytes")?;
    let mut rows = crosscheck.one_sided.iter();
    rows.try_for_each(|row| writeln!(out, "{},{},{},{}", row.src, row.dst, row.trace.messages, row.trace.bytes))
}

/// Messages on the wire of which a rank is not identified. `src` or `dst`, or both, are empty.
pub fn unidentified_csv(crosscheck: &Crosscheck, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "src,dst,wire_messages,wire_mpi_bytes,explaining_messages,explaining_bytes")?;
    let rank = |rank: Option<u32>| rank.map(|rank| rank.to_string()).unwrap_or_default();
    crosscheck.unidentified.iter().try_for_each(|Unidentified { src, dst, wire, explaining }| {
        let (src, dst) = (rank(*src), rank(*dst));
        writeln!(out, "{src},{dst},{},{},{},{}", wire.messages, wire.bytes, explaining.messages, explaining.bytes)
    })
}
