//! The table for people: what agrees in a few lines, what does not in full.

use super::rows::{MOST_PAIRS, signed};
use super::{NAME_RANKS, result, sums};
use crate::analysis::crosscheck::{agrees, all_causes, called, counts, operations, pairs_on_one_node};
use crate::crosscheck::{Cause, Clocks, Crosscheck, Difference, Pair, Sums, Traffic, Unidentified};
use crate::render::columns::columns;
use crate::render::units::{bytes, group, span, utc};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Differences that are told tag by tag.
const MOST_DIFFERENCES: usize = 20;

/// The whole of it.
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

/// What it comes to: a label, and what is to be said.
pub(crate) fn lines(crosscheck: &Crosscheck) -> Vec<(&'static str, String)> {
    let Crosscheck { trace, tracer, events, placement, nodes, .. } = crosscheck;
    let hosts: BTreeSet<&String> = nodes.values().collect();
    // Of a table they are messages, of a profile calls of MPI.
    let counted = if crosscheck.ranks.is_empty() { "events" } else { "calls of MPI" };
    let verdicts: Vec<String> = counts(crosscheck)
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(verdict, count)| format!("{} {}", group(count as u64), verdict.name()))
        .collect();
    let all = if verdicts.is_empty() { "no point-to-point messages".to_owned() } else { verdicts.join(", ") };
    let mut lines = vec![
        ("trace", format!("{trace}: {tracer}, {} {counted}", group(*events))),
        ("placement", format!("{} ranks on {} nodes, as {placement} says", nodes.len(), hosts.len())),
        (if crosscheck.ranks.is_empty() { "pairs" } else { "sums" }, all),
    ];
    let together = pairs_on_one_node(crosscheck);
    if together > 0 {
        lines.insert(2, ("same node", format!("{} pairs of ranks: not on the wire", group(together))));
    }
    if crosscheck.jobs > 1 {
        lines.insert(1, ("job", format!("{} of {} in the capture", crosscheck.job, crosscheck.jobs)));
    }
    let Traffic { mpi_bytes, wire_bytes, retransmitted_wire_bytes, .. } = crosscheck.traffic;
    if mpi_bytes > 0 && wire_bytes > 0 {
        let share = (wire_bytes as f64 - mpi_bytes as f64) * 100.0 / mpi_bytes as f64;
        let again = match retransmitted_wire_bytes {
            0 => String::new(),
            again => format!(", {} of them sent again", bytes(again)),
        };
        let (wire, mpi) = (bytes(wire_bytes), bytes(mpi_bytes));
        lines.push((
            "on the wire",
            format!("{wire} for {mpi} of MPI: {share:+.1} % (headers, acknowledgements{again})"),
        ));
    }
    let has = |is_it: fn(Cause) -> bool| all_causes(crosscheck).any(is_it);
    let parts = [
        has(|cause| cause == Cause::NotCaptured).then_some("ports were captured"),
        has(Cause::is_not_identified).then_some("ranks are identified"),
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

/// What is on the wire without a rank, and what it explains.
fn unidentified(text: &mut String, crosscheck: &Crosscheck) {
    if crosscheck.unidentified.is_empty() {
        return;
    }
    text.push_str("On the wire with a rank that is not identified, and what that explains:\n");
    let header = ["from", "to", "messages", "explaining", "bytes", "explaining"];
    let mut table = columns(&header, 0..6);
    let rank = |rank: Option<u32>| rank.map_or_else(|| "?".to_owned(), |rank| rank.to_string());
    for Unidentified { src, dst, wire, explaining } in crosscheck.unidentified.iter().take(MOST_PAIRS) {
        table.add_row([
            rank(*src),
            rank(*dst),
            group(wire.messages),
            group(explaining.messages),
            group(wire.bytes),
            group(explaining.bytes),
        ]);
    }
    let _ = writeln!(text, "{}", table.trim_fmt());
    if crosscheck.unidentified.len() > MOST_PAIRS {
        let more = crosscheck.unidentified.len() - MOST_PAIRS;
        let _ = writeln!(text, "... and {} more: --view unidentified and json have all", group(more as u64));
    }
    let _ = writeln!(text, "To list the queue pairs without a rank, and to name them: {NAME_RANKS}\n");
}

fn pairs(text: &mut String, crosscheck: &Crosscheck) {
    if crosscheck.pairs.is_empty() {
        return;
    }
    let header = ["from", "to", "messages", "wire", "bytes", "differ", "result"];
    let mut table = columns(&header, 0..6);
    let mut rows: Vec<&Pair> = crosscheck.pairs.iter().collect();
    // The worst first; else as they are.
    rows.sort_by_key(|pair| std::cmp::Reverse(pair.verdict));
    if rows.len() <= MOST_PAIRS {
        rows.sort_by_key(|pair| (pair.src, pair.dst));
    }
    for pair in rows.iter().take(MOST_PAIRS) {
        let Pair { src, dst, trace, wire, verdict, .. } = pair;
        table.add_row([
            src.to_string(),
            dst.to_string(),
            group(trace.messages),
            group(wire.messages),
            group(trace.bytes),
            signed(wire.bytes, trace.bytes),
            result(*verdict, &pair.causes),
        ]);
    }
    let _ = writeln!(text, "{}", table.trim_fmt());
    if rows.len() > MOST_PAIRS {
        let _ = writeln!(text, "... and {} more pairs: csv and json have all", group((rows.len() - MOST_PAIRS) as u64));
    }
    text.push('\n');
}

fn differences(text: &mut String, crosscheck: &Crosscheck) {
    let (sentences, more) = sentences(crosscheck);
    if sentences.is_empty() {
        return;
    }
    text.push_str("What differs:\n");
    for sentence in sentences {
        let _ = writeln!(text, "  {sentence}");
    }
    if more > 0 {
        let _ = writeln!(text, "  ... and {} more: json has all", group(more as u64));
    }
    text.push('\n');
}

/// What differs tag by tag, a sentence each, and how many more there are.
pub(crate) fn sentences(crosscheck: &Crosscheck) -> (Vec<String>, usize) {
    let all =
        || crosscheck.pairs.iter().flat_map(|pair| pair.differences.iter().map(move |difference| (pair, difference)));
    let sentences =
        all().take(MOST_DIFFERENCES).map(|(pair, difference)| sentence(crosscheck, pair, difference)).collect();
    (sentences, all().count().saturating_sub(MOST_DIFFERENCES))
}

fn sentence(crosscheck: &Crosscheck, pair: &Pair, difference: &Difference) -> String {
    let Difference { tag, communicators, contexts, trace, wire } = difference;
    let tag = tag.map_or_else(|| "all tags".to_owned(), |tag| format!("tag {tag}"));
    let over = if communicators.is_empty() { String::new() } else { format!(" over {}", communicators.join(" and ")) };
    let contexts: Vec<String> = contexts.iter().map(u32::to_string).collect();
    let context =
        if contexts.is_empty() { String::new() } else { format!(" (context {} on the wire)", contexts.join(", ")) };
    let sums = |sums: &Sums| format!("{} messages of {} bytes in all", group(sums.messages), group(sums.bytes));
    let what = if trace.messages == 0 {
        format!("{} on the wire are not in the trace", sums(wire))
    } else if wire.messages == 0 {
        format!("{} of the trace are not on the wire{}", sums(trace), not_identified(crosscheck, pair))
    } else {
        format!("the trace has {}, the wire {}", sums(trace), sums(wire))
    };
    format!("rank {} to {}, {tag}{over}{context}: {what}", pair.src, pair.dst)
}

/// Which rank of a pair is identified nowhere on the wire.
fn not_identified(crosscheck: &Crosscheck, pair: &Pair) -> String {
    let ranks = [pair.src, pair.dst].into_iter().filter(|rank| crosscheck.not_identified.contains(rank));
    let ranks: Vec<String> = ranks.map(|rank| rank.to_string()).collect();
    match ranks.len() {
        0 => String::new(),
        1 => format!(", where rank {} is not identified", ranks[0]),
        _ => format!(", where ranks {} are not identified", ranks.join(" and ")),
    }
}

fn collectives(text: &mut String, crosscheck: &Crosscheck) {
    let operations = operations(crosscheck);
    if operations.is_empty() {
        return;
    }
    let header = ["collective", "calls", "pairs", "promised", "wire pairs", "messages", "bytes", "tracer's"];
    let mut table = columns(&header, 1..8);
    for (operation, row) in operations {
        let tracer = if row.tracer.messages == 0 { String::new() } else { bytes(row.tracer.bytes) };
        table.add_row([
            operation.to_owned(),
            group(row.calls),
            group(row.pairs),
            bytes(row.promised_bytes),
            group(row.wire_pairs),
            group(row.wire.messages),
            bytes(row.wire.bytes),
            tracer,
        ]);
    }
    let _ = writeln!(text, "{}\n", table.trim_fmt());
    text.push_str(
        "Promised by the trace, and on the wire (the tracer's own included), between\n\
         ranks on different nodes. An algorithm may move bytes over other ranks, so the\n\
         two need not be equal.\n",
    );
}

/// The same pair by pair.
fn collectives_by_pair(text: &mut String, crosscheck: &Crosscheck) {
    let rows: Vec<_> = called(crosscheck).collect();
    if rows.is_empty() {
        return;
    }
    let mut table = columns(&["collective", "from", "to", "promised", "messages", "bytes"], 1..6);
    for pair in rows.iter().take(MOST_PAIRS) {
        table.add_row([
            pair.operation.clone(),
            pair.src.to_string(),
            pair.dst.to_string(),
            group(pair.promised_bytes),
            group(pair.wire_messages - pair.tracer.messages),
            group(pair.wire_bytes - pair.tracer.bytes),
        ]);
    }
    let _ = writeln!(text, "\n{}", table.trim_fmt());
    if rows.len() > MOST_PAIRS {
        let _ = writeln!(text, "... and {} more: csv and json have all", group((rows.len() - MOST_PAIRS) as u64));
    }
}

/// Clocks of the ranks, and how long a send takes to the wire.
fn clocks(text: &mut String, crosscheck: &Crosscheck) {
    let clocks = &crosscheck.clocks;
    if clocks.ranks.is_empty() {
        return;
    }
    let mut table = columns(&["clock", "starts at", "drift [ppm]", "known to", "sent", "received"], [0, 2, 3, 4, 5]);
    for clock in clocks.ranks.iter().take(MOST_PAIRS) {
        let known = match clock.uncertainty_ns {
            Some(ns) if clock.is_uneven => format!("uneven, {}", span(ns)),
            Some(ns) => span(ns),
            None => "one side only".to_owned(),
        };
        table.add_row([
            clock.rank.to_string(),
            utc(clock.offset_ns),
            format!("{:+.1}", clock.drift_ppm),
            known,
            group(clock.sent),
            group(clock.received),
        ]);
    }
    let _ = writeln!(text, "\n{}", table.trim_fmt());
    if clocks.ranks.len() > MOST_PAIRS {
        let _ = writeln!(text, "... and {} more ranks: json has all", group((clocks.ranks.len() - MOST_PAIRS) as u64));
    }
    if let Some(delays) = delays(clocks) {
        let _ = writeln!(text, "\nsend call to wire: {delays}");
    }
}

/// How long a send takes to the wire.
pub(crate) fn delays(clocks: &Clocks) -> Option<String> {
    let delays = clocks.send_to_wire.as_ref()?;
    let time = |ns: i64| format!("{}{}", if ns < 0 { "-" } else { "" }, span(ns.unsigned_abs()));
    let of = if clocks.of_every_message {
        "messages"
    } else {
        "first and last messages of their kind; captures instead of the profile give all"
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
    let header = ["one-sided: from", "to", "operations", "by RDMA", "bytes", "by RDMA", ""];
    let mut table = columns(&header, 0..6);
    for row in crosscheck.one_sided.iter().take(MOST_PAIRS) {
        let wire = |of: fn(&Sums) -> u64, form: fn(u64) -> String| {
            row.wire.as_ref().map(|sums| form(of(sums))).unwrap_or_default()
        };
        table.add_row([
            row.src.to_string(),
            row.dst.to_string(),
            group(row.trace.messages),
            wire(|sums| sums.messages, group),
            bytes(row.trace.bytes),
            wire(|sums| sums.bytes, bytes),
            row.result.text().to_owned(),
        ]);
    }
    let _ = writeln!(text, "\n{}", table.trim_fmt());
    if crosscheck.one_sided.len() > MOST_PAIRS {
        let _ = writeln!(
            text,
            "... and {} more pairs: json has all",
            group((crosscheck.one_sided.len() - MOST_PAIRS) as u64)
        );
    }
    text.push_str(
        "\nOne-sided operations have no envelope on the wire and are not judged. Beside them is\n\
         RDMA that belongs to no message.\n",
    );
}
