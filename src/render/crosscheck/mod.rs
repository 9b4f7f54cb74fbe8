//! The comparison of an application's trace with the wire as terminal tables, csv and JSON.

mod pairs;
mod rows;
mod sums;
mod table;
mod views;

pub(super) use pairs::columns as columns_of_pairs;
pub(super) use sums::columns as columns_of_sums;
pub use table::table;
pub(super) use table::{delays, lines, sentences};
pub use views::{calls_csv, clocks_csv, delays_csv, differences_csv, one_sided_csv, operations_csv, unidentified_csv};
pub(super) use views::{
    calls_table, clocks_table, delays_table, differences_table, one_sided_table, operations_table, unidentified_table,
};

use crate::analysis::crosscheck::{agrees, counts};
use crate::crosscheck::{Cause, Crosscheck, CrosscheckVerdict, Delays, OperationsComparison};
use crate::render::table::write_document;
use serde_json::json;
use std::borrow::Cow;
use std::io::{self, Write};

/// The command and the option that list and assign unidentified ranks.
pub(super) const NAME_RANKS: &str = "ibscope ranks, --rankmap";

/// The causes as list items.
fn causes(causes: &[Cause]) -> Vec<Cow<'static, str>> {
    causes.iter().map(|cause| cause.text().into()).collect()
}

/// The text of a verdict and its causes; only the causes if they explain the whole difference.
fn result(verdict: CrosscheckVerdict, all: &[Cause]) -> String {
    match (verdict, all.is_empty()) {
        (_, true) => verdict.name().to_owned(),
        (CrosscheckVerdict::Explained, false) => causes(all).join(", "),
        (_, false) => format!("{}; {}", verdict.name(), causes(all).join(", ")),
    }
}

/// Writes one csv row per pair of ranks: point-to-point messages first, then collective operations.
/// For a trace that is itself a profile of sums, writes two rows per rank.
pub fn csv(crosscheck: &Crosscheck, out: &mut dyn Write) -> io::Result<()> {
    if crosscheck.ranks.is_empty() {
        pairs::columns().csv(pairs::rows(crosscheck).chain(pairs::collective_rows(crosscheck)), out)
    } else {
        sums::columns().csv(&crosscheck.ranks, out)
    }
}

/// Writes one JSON object with the rows of all csv views.
pub fn json(crosscheck: &Crosscheck, out: &mut dyn Write) -> io::Result<()> {
    let verdicts: serde_json::Map<String, serde_json::Value> =
        counts(crosscheck).into_iter().map(|(verdict, count)| (verdict.name().to_owned(), json!(count))).collect();
    let Crosscheck { trace, tracer, events, job, jobs, placement, nodes, not_identified, tolerance_percent, .. } =
        crosscheck;
    let members = json!({
        "agrees": agrees(crosscheck),
        "verdicts": verdicts,
        "trace": trace,
        "tracer": tracer,
        "events": events,
        "job": job,
        "jobs": jobs,
        "placement": placement,
        "nodes": nodes,
        "not_identified": not_identified,
        "tolerance_percent": tolerance_percent,
        "notes": crosscheck.notes,
        "traffic": crosscheck.traffic,
        "send_to_wire": crosscheck.clocks.send_to_wire.as_ref().map(quantiles),
        "all_messages_matched": crosscheck.clocks.all_messages_matched,
        "pairs": pairs::columns().objects(pairs::rows(crosscheck)),
        "collectives": pairs::columns().objects(pairs::collective_rows(crosscheck)),
        "ranks": sums::columns().objects(&crosscheck.ranks),
        "differences": views::differences_table().objects(views::differences(crosscheck)),
        "unidentified": views::unidentified_table().objects(&crosscheck.unidentified),
        "clocks": views::clocks_table().objects(&crosscheck.clocks.ranks),
        "delays": views::delays_table().objects(views::delays(crosscheck)),
        "calls": views::calls_table().objects(&crosscheck.collective_calls),
        "instances": views::operations_table().objects(views::operations(crosscheck)),
        "instance_counts": crosscheck.operations.as_ref().map(instance_counts),
        "one_sided": views::one_sided_table().objects(&crosscheck.one_sided),
    });
    write_document(out, "ibscope crosscheck", 2, members)
}

/// Collective operations that are not compared, and clocks that follow from those that are.
fn instance_counts(operations: &OperationsComparison) -> serde_json::Value {
    json!({
        "of_tracer": operations.of_tracer,
        "of_one_node": operations.of_one_node,
        "fitted_clocks": operations.own_clocks,
    })
}

/// The quantiles of the times from send call to wire; the histogram is in `delays`.
fn quantiles(delays: &Delays) -> serde_json::Value {
    let Delays { count, min_ns, median_ns, p90_ns, p99_ns, max_ns, .. } = delays;
    json!({
        "count": count, "min_ns": min_ns, "median_ns": median_ns, "p90_ns": p90_ns, "p99_ns": p99_ns, "max_ns": max_ns,
    })
}
