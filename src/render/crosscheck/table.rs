//! The terminal output of a comparison: a few lines on agreement, all details of differences.

use super::pairs::{CrosscheckPairRow, columns as columns_of_pairs};
use super::rows::MAX_PAIRS;
use super::views::{clocks_table, one_sided_table, shown_operations_table, unidentified_table};
use super::{NAME_RANKS, sums};
use crate::analysis::crosscheck::{agrees, all_causes, called_pairs, counts, operations, pairs_on_one_node};
use crate::crosscheck::{
    Cause, Clocks, Crosscheck, Difference, MessageSums, OperationComparison, OperationResult, OperationsComparison,
    PairComparison, RankTraffic,
};
use crate::render::columns::columns;
use crate::render::units::{bytes, count_of, group, span, wrap};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Maximum number of differences that are listed tag by tag.
const MAX_DIFFERENCES: usize = 20;

/// The terminal output of a comparison.
#[must_use]
pub fn table(crosscheck: &Crosscheck) -> String {
    let mut text = String::new();
    head(&mut text, crosscheck);
    pairs(&mut text, crosscheck);
    sums::table(&mut text, crosscheck);
    unidentified(&mut text, crosscheck);
    differences(&mut text, crosscheck);
    if crosscheck.ranks.is_empty() {
        collectives(&mut text, crosscheck);
        collectives_by_pair(&mut text, crosscheck);
        operations_one_by_one(&mut text, crosscheck);
    } else {
        sums::collectives(&mut text, crosscheck);
    }
    clocks(&mut text, crosscheck);
    one_sided(&mut text, crosscheck);
    text
}

fn head(text: &mut String, crosscheck: &Crosscheck) {
    for (label, value) in lines(crosscheck) {
        let _ = writeln!(text, "{label:<13} {value}");
    }
    text.push('\n');
}

/// The result of the comparison as labeled lines.
pub(crate) fn lines(crosscheck: &Crosscheck) -> Vec<(&'static str, String)> {
    let Crosscheck { trace, tracer, events, placement, nodes, .. } = crosscheck;
    let hosts: BTreeSet<&String> = nodes.values().collect();
    // A trace records events, a profile counts MPI calls.
    let counted = if crosscheck.ranks.is_empty() { "event" } else { "MPI call" };
    let verdicts: Vec<String> = counts(crosscheck)
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(verdict, count)| format!("{} {}", group(count as u64), verdict.name()))
        .collect();
    let all = if verdicts.is_empty() { "no point-to-point messages".to_owned() } else { verdicts.join(", ") };
    let mut lines = vec![
        ("trace", format!("{trace}: {tracer}, {}", count_of(*events, counted))),
        ("placement", placement_line(nodes.len(), hosts.len(), placement)),
        (if crosscheck.ranks.is_empty() { "pairs" } else { "sums" }, all),
    ];
    let together = pairs_on_one_node(crosscheck);
    if together > 0 {
        lines.insert(2, ("same node", format!("{} of ranks: not on the wire", count_of(together, "pair"))));
    }
    if crosscheck.jobs > 1 {
        lines.insert(1, ("job", format!("{} of {} in the capture", crosscheck.job, crosscheck.jobs)));
    }
    let has = |is_it: fn(Cause) -> bool| all_causes(crosscheck).any(is_it);
    let is_incomplete = has(|cause| cause == Cause::Incomplete);
    let RankTraffic { mpi_bytes, wire_bytes, retransmitted_wire_bytes, .. } = crosscheck.traffic;
    if mpi_bytes > 0 && wire_bytes > 0 {
        let again = match retransmitted_wire_bytes {
            0 => String::new(),
            again => format!(", {} of them retransmitted", bytes(again)),
        };
        let (wire, mpi) = (bytes(wire_bytes), bytes(mpi_bytes));
        let share = (wire_bytes as f64 - mpi_bytes as f64) * 100.0 / mpi_bytes as f64;
        let line = if is_incomplete {
            format!("{wire} for at least {mpi} of MPI: the capture is incomplete{again}")
        } else {
            format!("{wire} for {mpi} of MPI: {share:+.1} % (headers, acknowledgements{again})")
        };
        lines.push(("on the wire", line));
    }
    let parts = [
        has(|cause| cause == Cause::NotCaptured).then_some("ports were captured"),
        has(Cause::is_not_identified).then_some("ranks are identified"),
        is_incomplete.then_some("messages are complete in the capture"),
    ];
    let parts: Vec<&str> = parts.into_iter().flatten().collect();
    let result = match (agrees(crosscheck), parts.is_empty()) {
        _ if verdicts.is_empty() => "nothing point-to-point was compared".to_owned(),
        (true, true) => "the wire and the trace agree".to_owned(),
        (true, false) => format!("the wire and the trace agree, as far as {}", parts.join(" and ")),
        (false, _) => "the wire and the trace DIFFER".to_owned(),
    };
    lines.push(("result", result));
    lines
}

/// The number of ranks and nodes, and the source of the placement.
fn placement_line(ranks: usize, nodes: usize, placement: &str) -> String {
    let [ranks, nodes] = [(ranks, "rank"), (nodes, "node")].map(|(count, noun)| count_of(count as u64, noun));
    format!("{ranks} on {nodes}, from {placement}")
}

/// Appends the messages on the wire without a rank, and how many missing messages they explain.
fn unidentified(text: &mut String, crosscheck: &Crosscheck) {
    if crosscheck.unidentified.is_empty() {
        return;
    }
    text.push_str("Messages without an identified rank, and the missing messages that they explain:\n");
    let rows = crosscheck.unidentified.iter().take(MAX_PAIRS);
    let _ = writeln!(text, "{}", unidentified_table().text(rows));
    if crosscheck.unidentified.len() > MAX_PAIRS {
        let more = crosscheck.unidentified.len() - MAX_PAIRS;
        let _ = writeln!(text, "... and {} more; --view unidentified and --format json list all", group(more as u64));
    }
    let _ = writeln!(text, "To list the queue pairs without a rank and to assign ranks: {NAME_RANKS}\n");
}

fn pairs(text: &mut String, crosscheck: &Crosscheck) {
    if crosscheck.pairs.is_empty() {
        return;
    }
    let mut rows: Vec<&PairComparison> = crosscheck.pairs.iter().collect();
    // The worst first if rows are left out, else in rank order.
    rows.sort_by_key(|pair| std::cmp::Reverse(pair.verdict));
    if rows.len() <= MAX_PAIRS {
        rows.sort_by_key(|pair| (pair.src, pair.dst));
    }
    let shown = rows.iter().take(MAX_PAIRS).copied().map(CrosscheckPairRow::PointToPoint);
    let _ = writeln!(text, "{}", columns_of_pairs().text(shown));
    if rows.len() > MAX_PAIRS {
        let _ = writeln!(
            text,
            "... and {}; --format csv or json lists all",
            count_of((rows.len() - MAX_PAIRS) as u64, "more pair")
        );
    }
    text.push('\n');
}

fn differences(text: &mut String, crosscheck: &Crosscheck) {
    let (sentences, more) = sentences(crosscheck);
    if sentences.is_empty() {
        return;
    }
    text.push_str("Differences:\n");
    for sentence in sentences {
        let _ = writeln!(text, "  {sentence}");
    }
    if more > 0 {
        let _ = writeln!(text, "  ... and {} more; --format json lists all", group(more as u64));
    }
    text.push('\n');
}

/// The differences tag by tag, a sentence each, and the number of further ones.
pub(crate) fn sentences(crosscheck: &Crosscheck) -> (Vec<String>, usize) {
    let all =
        || crosscheck.pairs.iter().flat_map(|pair| pair.differences.iter().map(move |difference| (pair, difference)));
    let sentences =
        all().take(MAX_DIFFERENCES).map(|(pair, difference)| sentence(crosscheck, pair, difference)).collect();
    (sentences, all().count().saturating_sub(MAX_DIFFERENCES))
}

fn sentence(crosscheck: &Crosscheck, pair: &PairComparison, difference: &Difference) -> String {
    let Difference { tag, communicators, contexts, trace, wire } = difference;
    let tag = tag.map_or_else(|| "all tags".to_owned(), |tag| format!("tag {tag}"));
    let over = if communicators.is_empty() { String::new() } else { format!(" over {}", communicators.join(" and ")) };
    let contexts: Vec<String> = contexts.iter().map(u32::to_string).collect();
    let context =
        if contexts.is_empty() { String::new() } else { format!(" (context {} on the wire)", contexts.join(", ")) };
    let sums = |sums: &MessageSums| {
        format!("{} of {} in total", count_of(sums.messages, "message"), count_of(sums.bytes, "byte"))
    };
    let what = if trace.messages == 0 {
        format!("only on the wire: {}", sums(wire))
    } else if wire.messages == 0 {
        format!("only in the trace: {}{}", sums(trace), not_identified(crosscheck, pair))
    } else {
        format!("the trace has {}, the wire {}", sums(trace), sums(wire))
    };
    format!("rank {} to {}, {tag}{over}{context}: {what}", pair.src, pair.dst)
}

/// The ranks of a pair that are identified nowhere on the wire, as part of a sentence.
fn not_identified(crosscheck: &Crosscheck, pair: &PairComparison) -> String {
    let ranks = [pair.src, pair.dst].into_iter().filter(|rank| crosscheck.not_identified.contains(rank));
    let ranks: Vec<String> = ranks.map(|rank| rank.to_string()).collect();
    match ranks.len() {
        0 => String::new(),
        1 => format!("; rank {} is not identified on the wire", ranks[0]),
        _ => format!("; ranks {} are not identified on the wire", ranks.join(" and ")),
    }
}

fn collectives(text: &mut String, crosscheck: &Crosscheck) {
    let operations = operations(crosscheck);
    if operations.is_empty() {
        return;
    }
    let header = ["collective", "calls", "pairs", "expected", "wire pairs", "messages", "bytes", "tracer's"];
    let mut table = columns(&header, 1..8);
    for (operation, row) in operations {
        let tracer = if row.tracer.messages == 0 { String::new() } else { bytes(row.tracer.bytes) };
        table.add_row([
            operation.to_owned(),
            group(row.calls),
            group(row.pairs),
            bytes(row.expected_bytes),
            group(row.wire_pairs),
            group(row.wire.messages),
            bytes(row.wire.bytes),
            tracer,
        ]);
    }
    let _ = writeln!(text, "{}\n", table.trim_fmt());
    text.push_str(
        "Calls, pairs and expected bytes are from the trace; wire pairs, messages and\n\
         bytes are from the wire and include the tracer's own messages. All columns but\n\
         calls count only ranks on different nodes. An algorithm may route bytes through\n\
         other ranks, so expected bytes and bytes may differ.\n",
    );
}

/// Appends the collective operations pair by pair.
fn collectives_by_pair(text: &mut String, crosscheck: &Crosscheck) {
    let rows: Vec<_> = called_pairs(crosscheck).collect();
    if rows.is_empty() {
        return;
    }
    let mut table = columns(&["collective", "from", "to", "expected", "messages", "bytes"], 1..6);
    for pair in rows.iter().take(MAX_PAIRS) {
        table.add_row([
            pair.operation.clone(),
            pair.src.to_string(),
            pair.dst.to_string(),
            group(pair.expected_bytes),
            group(pair.wire_messages - pair.tracer.messages),
            group(pair.wire_bytes - pair.tracer.bytes),
        ]);
    }
    let _ = writeln!(text, "\n{}", table.trim_fmt());
    if rows.len() > MAX_PAIRS {
        let _ =
            writeln!(text, "... and {} more; --format csv or json lists all", group((rows.len() - MAX_PAIRS) as u64));
    }
}

/// Appends the comparison of the collective operations, one by one: the sum, and those that differ.
fn operations_one_by_one(text: &mut String, crosscheck: &Crosscheck) {
    let Some(found) = crosscheck.operations.as_ref().filter(|found| !found.rows.is_empty()) else { return };
    let _ = writeln!(text, "\n{}", wrap(&operation_counts(found), 80));
    let differing = |row: &&OperationComparison| {
        row.result.is_in_trace() && ![OperationResult::Equal, OperationResult::OtherCommunicator].contains(&row.result)
    };
    let rows: Vec<&OperationComparison> = found.rows.iter().filter(differing).collect();
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(text, "{}", shown_operations_table().text(rows.iter().take(MAX_DIFFERENCES).copied()));
    if rows.len() > MAX_DIFFERENCES {
        let more = (rows.len() - MAX_DIFFERENCES) as u64;
        let _ = writeln!(text, "... and {}; --view instances lists all", count_of(more, "more operation"));
    }
}

/// Number of collective operations of the trace on the wire, and of those only on the wire.
fn operation_counts(found: &OperationsComparison) -> String {
    let count = |result: OperationResult| found.rows.iter().filter(|row| row.result == result).count() as u64;
    let [equal, elsewhere, other_times, unknown, only_in_trace, in_handle_call, outside, only_on_wire] =
        OperationResult::ALL.map(count);
    let on_wire = equal + elsewhere + other_times + unknown;
    let in_trace = on_wire + only_in_trace;
    let mut sentence = format!(
        "collective operations one by one: {} of {} in the trace are on the wire, in the same order",
        group(on_wire),
        group(in_trace)
    );
    let timed = found.rows.iter().filter(|row| row.outside_ns.is_some()).count() as u64;
    let bound_ns = found.rows.iter().filter_map(|row| row.bound_ns).max();
    if let Some(bound_ns) = bound_ns.filter(|_| timed > 0) {
        let fitted = if found.own_clocks > 0 { ", fitted to the operations themselves" } else { "" };
        let within = timed - other_times;
        let _ = write!(
            sentence,
            "; {} of {} have all packets within their calls (clocks known to {}{fitted})",
            group(within),
            group(timed),
            span(bound_ns)
        );
    }
    if timed < on_wire {
        let untimed = group(on_wire - timed);
        let _ = write!(sentence, "; the times of {untimed} are not compared, because no clock of their ranks is known");
    }
    if elsewhere > 0 {
        let _ = write!(sentence, "; {} on a communicator of the library", group(elsewhere));
    }
    let only = [
        (in_handle_call, "in calls that create or free an object"),
        (outside, "before the first or after the last call"),
        (only_on_wire, "between the calls"),
        (found.of_tracer, "on the tracer's communicator"),
    ];
    let only: Vec<String> = only
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{} {what}", group(count)))
        .collect();
    if !only.is_empty() {
        let _ = write!(sentence, "; only on the wire: {}", only.join(", "));
    }
    if found.of_one_node > 0 {
        let _ = write!(sentence, "; {} of ranks on one node are not on the wire", group(found.of_one_node));
    }
    sentence
}

/// Appends the clocks of the ranks, and the time from send call to wire.
fn clocks(text: &mut String, crosscheck: &Crosscheck) {
    let clocks = &crosscheck.clocks;
    if clocks.ranks.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{}", clocks_table().text(clocks.ranks.iter().take(MAX_PAIRS)));
    if clocks.ranks.len() > MAX_PAIRS {
        let _ = writeln!(
            text,
            "... and {}; --format json lists all",
            count_of((clocks.ranks.len() - MAX_PAIRS) as u64, "more rank")
        );
    }
    if let Some(delays) = delays(clocks) {
        let _ = writeln!(text, "\nsend call to wire: {delays}");
    }
}

/// The quantiles of the time from send call to wire, as one line.
pub(crate) fn delays(clocks: &Clocks) -> Option<String> {
    let delays = clocks.send_to_wire.as_ref()?;
    let time = |ns: i64| format!("{}{}", if ns < 0 { "-" } else { "" }, span(ns.unsigned_abs()));
    let of = if clocks.all_messages_matched {
        "messages"
    } else {
        "messages: only the first and the last of each sender, receiver and tag"
    };
    Some(format!(
        "minimum {}, median {}, 90 % {}, 99 % {}, maximum {} ({} {of})",
        time(delays.min_ns),
        time(delays.median_ns),
        time(delays.p90_ns),
        time(delays.p99_ns),
        time(delays.max_ns),
        group(delays.count),
    ))
}

fn one_sided(text: &mut String, crosscheck: &Crosscheck) {
    if crosscheck.one_sided.is_empty() {
        return;
    }
    let rows = crosscheck.one_sided.iter().take(MAX_PAIRS);
    let _ = writeln!(text, "\n{}", one_sided_table().text(rows));
    if crosscheck.one_sided.len() > MAX_PAIRS {
        let _ = writeln!(
            text,
            "... and {}; --format json lists all",
            count_of((crosscheck.one_sided.len() - MAX_PAIRS) as u64, "more pair")
        );
    }
    text.push_str(
        "\nOne-sided operations have no envelope on the wire, so they get no verdict. Next to\n\
         them are the RDMA operations that belong to no message.\n",
    );
}
