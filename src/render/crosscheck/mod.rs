//! A trace of the application beside the wire: a table for people, csv and JSON for programs.

mod rows;
mod sums;
mod table;
mod views;

pub use table::table;
pub(super) use table::{delays, lines, sentences};
pub use views::{calls_csv, clocks_csv, delays_csv, differences_csv, one_sided_csv, unidentified_csv};

use crate::analysis::crosscheck::{agrees, counts};
use crate::crosscheck::{Cause, Crosscheck, Pair, Verdict};
use serde_json::json;
use std::io::{self, Write};

/// What names the ranks that are not identified.
pub(super) const NAME_RANKS: &str = "ibscope ranks, --rankmap";

/// Names of causes.
fn causes(causes: &[Cause], separator: &str) -> String {
    causes.iter().map(|cause| cause.text()).collect::<Vec<_>>().join(separator)
}

/// A verdict for people: the causes alone where they explain everything.
fn result(verdict: Verdict, all: &[Cause]) -> String {
    match (verdict, all.is_empty()) {
        (_, true) => verdict.name().to_owned(),
        (Verdict::Explained, false) => causes(all, ", "),
        (_, false) => format!("{}; {}", verdict.name(), causes(all, ", ")),
    }
}

/// One row per pair of ranks, point-to-point; then those of collective operations, told by `operation`. Of a profile of sums, two rows per rank.
pub fn csv(crosscheck: &Crosscheck, out: &mut dyn Write) -> io::Result<()> {
    if !crosscheck.ranks.is_empty() {
        return sums::csv(crosscheck, out);
    }
    writeln!(
        out,
        "operation,src,dst,verdict,causes,trace_messages,trace_bytes,wire_messages,wire_mpi_bytes,tracer_messages,tracer_bytes,missing_messages,\
         missing_bytes,excess_messages,excess_bytes,wire_bytes,payload_bytes,retransmitted_wire_bytes,unidentified_messages,unidentified_bytes"
    )?;
    for pair in &crosscheck.pairs {
        let Pair {
            src,
            dst,
            trace,
            wire,
            tracer,
            missing,
            unidentified,
            wire_bytes,
            payload_bytes,
            retransmitted_wire_bytes,
            ..
        } = pair;
        let (messages, bytes) = pair.excess();
        writeln!(
            out,
            "point-to-point,{src},{dst},{},{},{},{},{},{},{},{},{},{},{messages},{bytes},{wire_bytes},{payload_bytes},{retransmitted_wire_bytes},{},{}",
            pair.verdict.name(),
            causes(&pair.causes, ";"),
            trace.messages,
            trace.bytes,
            wire.messages,
            wire.bytes,
            tracer.messages,
            tracer.bytes,
            missing.messages,
            missing.bytes,
            unidentified.messages,
            unidentified.bytes,
        )?;
    }
    for row in &crosscheck.collectives {
        writeln!(
            out,
            "{},{},{},,,,{},{},{},{},{},,,,,,,,,",
            row.operation,
            row.src,
            row.dst,
            row.promised_bytes,
            row.wire_messages,
            row.wire_bytes,
            row.tracer.messages,
            row.tracer.bytes
        )?;
    }
    Ok(())
}

/// One object with everything.
pub fn json(crosscheck: &Crosscheck, out: &mut dyn Write) -> io::Result<()> {
    let verdicts: serde_json::Map<String, serde_json::Value> =
        counts(crosscheck).into_iter().map(|(verdict, count)| (verdict.name().to_owned(), json!(count))).collect();
    let document = json!({
        "schema": "ibscope crosscheck",
        "version": 1,
        "agrees": agrees(crosscheck),
        "verdicts": verdicts,
        "crosscheck": crosscheck,
    });
    writeln!(out, "{document:#}")
}
