//! What a person reads in ten seconds after an analysis.

use super::{Style, lines::Lines, summary_lines};
use crate::analysis::By;
use crate::analysis::coverage::States;
use crate::analysis::matrix::{Selection, matrix};
use crate::analysis::totals::Totals;
use crate::model::profile::{CoverageState, RankRow};
use crate::model::{Coverage, Profile, printable};
use crate::render::coverage::meaning;
use crate::render::matrix_note::mostly_collective;
use crate::render::ranks::evidence;
use crate::render::units::{bytes, counted, group, span, utc};
use ibscope_parsers::Endpoint;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Endpoints that are listed with their rank; more are only counted.
const MAX_ENDPOINTS: usize = 16;
/// Jobs that are listed; more are only counted.
const MAX_JOBS: usize = 16;
/// Inputs that are listed; more are only counted.
const MAX_INPUTS: usize = 16;

/// The summary of a profile.
#[must_use]
pub fn summary(profile: &Profile, style: &Style) -> String {
    let mut text = String::new();
    for (label, value) in lines(profile) {
        let label = format!("{label:<13}");
        let _ = if style.color {
            writeln!(text, "\x1b[1m{label}\x1b[0m {value}")
        } else {
            writeln!(text, "{label} {value}")
        };
    }
    text
}

/// Its lines: a label, and what is to be said. One without a label belongs to the line before.
pub(crate) fn lines(profile: &Profile) -> Vec<(&'static str, String)> {
    let mut lines = Lines { lines: Vec::new() };
    let coverage = &profile.coverage;
    inputs(&mut lines, profile);
    time(&mut lines, coverage);
    records(&mut lines, coverage);
    let totals = Totals::of(profile);
    traffic(&mut lines, profile, &totals);
    jobs(&mut lines, profile);
    if let Some(sentence) = mostly_collective(&totals) {
        lines.put("collectives", &sentence);
    }
    coverage_of_pairs(&mut lines, profile);
    summary_lines::rate(&mut lines, profile);
    summary_lines::busiest(&mut lines, profile);
    summary_lines::answers(&mut lines, profile);
    summary_lines::health(&mut lines, profile);
    endpoints(&mut lines, profile, &totals.endpoints);
    for note in &profile.notes {
        lines.put("note", note);
    }
    lines.lines
}

fn inputs(lines: &mut Lines, profile: &Profile) {
    for input in profile.inputs.iter().take(MAX_INPUTS) {
        let copies = match (input.pairs_seen_once, input.pairs_seen_twice) {
            (_, 0) => "",
            (0, _) => "; each packet stands twice (both ports mirrored)",
            _ => "; some pairs stand twice (both ports mirrored)",
        };
        let format = &input.format;
        lines.put("input", &format!("{}: {}, {format}{copies}", printable(&input.name), bytes(input.length_bytes)));
    }
    if let Some(more) = profile.inputs.len().checked_sub(MAX_INPUTS).filter(|&more| more > 0) {
        lines.put("", &format!("and {more} more"));
    }
}

fn time(lines: &mut Lines, coverage: &Coverage) {
    if let (Some(first), Some(last)) = (coverage.first_time_ns, coverage.last_time_ns) {
        let span = (last - first) as f64 / 1e9;
        lines.put("time", &format!("{span:.3} s from {}", utc(first)));
    }
}

fn records(lines: &mut Lines, coverage: &Coverage) {
    let mut parts = vec![format!("{} InfiniBand", group(coverage.infiniband))];
    let mut also = |count: u64, what: &str| {
        if count > 0 {
            parts.push(format!("{} {what}", group(count)));
        }
    };
    also(coverage.other(), "other frames");
    also(coverage.failed(), "not decoded");
    also(coverage.outside_window, "outside the window");
    lines.put("records", &format!("{}: {}", group(coverage.records), parts.join(", ")));
    let named = |kinds: &BTreeMap<String, u64>| -> Vec<String> {
        kinds.iter().map(|(name, count)| format!("{} x {name}", group(*count))).collect()
    };
    if coverage.failed() > 0 {
        lines.put("not decoded", &named(&coverage.undecoded).join(", "));
    }
    let mut parts = Vec::new();
    let mut also = |count: u64, what: &str| {
        if count > 0 {
            parts.push(format!("{} {what}", group(count)));
        }
    };
    also(coverage.mirror_copies, "mirror copies");
    also(coverage.shared_packets, "in the file before as well");
    also(coverage.management, "management");
    also(coverage.multicast, "multicast");
    also(coverage.truncated, "cut by the snap length");
    also(coverage.unknown_opcode, "with an unknown opcode");
    also(coverage.icrc_bad, "with a wrong ICRC");
    also(coverage.vcrc_bad, "with a wrong VCRC");
    also(coverage.time_backwards, "back in time");
    also(coverage.without_time, "without a time");
    also(coverage.interface_drops, "dropped by the capturing interface");
    also(coverage.mpi_incomplete, "MPI messages without their end");
    also(coverage.mpi_cut, "MPI messages cut before their length (in no MPI column)");
    also(coverage.messages_with_gaps, "transport messages with packets missing");
    also(coverage.messages_without_start, "of them without their first packet");
    also(coverage.messages_evicted, "messages given up because too many were open");
    also(coverage.not_followed, "of connections beyond --max-connections (in no table)");
    also(coverage.window_overflows, "connections with more PSN holes than are remembered");
    if !parts.is_empty() {
        lines.put("of these", &parts.join(", "));
    }
    for (name, ok, bad) in
        [("ICRC", coverage.icrc_ok, coverage.icrc_bad), ("VCRC", coverage.vcrc_ok, coverage.vcrc_bad)]
    {
        if ok + bad > 0 {
            let share = if bad == 0 { "all fit".to_owned() } else { format!("{} fit", group(ok)) };
            lines.put(name, &format!("{} checked, {share}", group(ok + bad)));
        }
    }
}

fn traffic(lines: &mut Lines, profile: &Profile, totals: &Totals<'_>) {
    let Totals { traffic: total, repeats, stacks, .. } = totals;
    lines.put(
        "traffic",
        &format!(
            "{} packets, {} on the wire, {} payload in {} transport messages",
            group(total.packets),
            bytes(total.wire_bytes),
            bytes(total.payload_bytes),
            group(total.messages)
        ),
    );
    if repeats.packets() > 0 {
        lines.put(
            "repeated",
            &format!(
                "{} requests, {} responses, {} ACKs ({} on the wire, not in the payload)",
                group(repeats.request_packets),
                group(repeats.response_packets),
                group(repeats.acknowledge_packets),
                bytes(repeats.wire_bytes)
            ),
        );
    }
    if stacks.is_empty() {
        let why = if profile.mpi_read { "no MPI library recognised" } else { "not looked for" };
        lines.put("MPI", why);
        return;
    }
    lines.put(
        "MPI",
        &format!(
            "point-to-point {} messages, {}; collective {} messages, {} ({})",
            group(total.p2p_messages),
            bytes(total.p2p_mpi_bytes),
            group(total.collective_messages),
            bytes(total.collective_mpi_bytes),
            stacks.iter().copied().collect::<Vec<_>>().join(", ")
        ),
    );
}

/// The jobs where there are several, and processes without a rank.
fn jobs(lines: &mut Lines, profile: &Profile) {
    if profile.jobs.len() > 1 {
        lines.put("jobs", &group(profile.jobs.len() as u64));
        for job in profile.jobs.iter().take(MAX_JOBS) {
            let lasted = job.last_time_ns.saturating_sub(job.first_time_ns).unsigned_abs();
            lines.put("", &format!("{}, {} from {}", job.describe(), span(lasted), utc(job.first_time_ns)));
        }
        if let Some(more) = profile.jobs.len().checked_sub(MAX_JOBS).filter(|more| *more > 0) {
            lines.put("", &format!("and {more} more"));
        }
    }
    let unassigned = profile.unassigned.len() as u64;
    if unassigned > 0 {
        let count = counted(unassigned, "queue pair");
        lines.put("unassigned", &format!("{count} with MPI traffic without a rank; `ibscope ranks` says why"));
    }
}

/// Pairs of endpoints whose messages the capture does not hold in full.
fn coverage_of_pairs(lines: &mut Lines, profile: &Profile) {
    let matrix = matrix(profile, By::Endpoint, Selection::All);
    let states = States::of(matrix.cells.values());
    if let Some(state) = states.of_all() {
        if state != CoverageState::Complete {
            lines.put("coverage", &format!("all pairs {}", meaning(state)));
        }
        return;
    }
    let all = counted(matrix.cells.len() as u64, "pair");
    let parts: Vec<String> =
        states.incomplete().map(|(state, count)| format!("{} {}", group(count), state.name())).collect();
    if !parts.is_empty() {
        lines.put("coverage", &format!("of {all}: {}; `ibscope matrix` marks them", parts.join(", ")));
    }
}

fn endpoints(lines: &mut Lines, profile: &Profile, endpoints: &BTreeSet<Endpoint>) {
    lines.put("endpoints", &group(endpoints.len() as u64));
    if endpoints.len() > MAX_ENDPOINTS {
        lines.put("", &format!("{} of them with a rank", group(profile.ranks.len() as u64)));
        return;
    }
    for endpoint in endpoints {
        let text = endpoint.to_string();
        let name = profile.names.get(endpoint).map(|name| format!(" {name}")).unwrap_or_default();
        let here: Vec<&RankRow> = profile.ranks.iter().filter(|row| row.endpoint == text).collect();
        let several = profile.jobs.len() > 1;
        let ranks: Vec<String> =
            here.chunk_by(|a, b| (a.job, a.rank) == (b.job, b.rank)).map(|rows| rank(rows, several)).collect();
        let ranks = if ranks.is_empty() { "rank unknown".to_owned() } else { ranks.join("; ") };
        lines.put("", &format!("{text}{name}: {ranks}"));
    }
}

/// A rank at an endpoint, by its rows: one for all queue pairs, or one for each. Of several jobs the job is named.
fn rank(rows: &[&RankRow], several: bool) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let queue_pairs = match (first.qpn, rows.len()) {
        (None, _) => String::new(),
        (Some(qpn), 1) => format!(" (queue pair {qpn:#x})"),
        (Some(_), count) => format!(" ({count} queue pairs)"),
    };
    let against = match first.disagreeing {
        0 => String::new(),
        others => format!(", {} say another", group(others)),
    };
    let job = if several { format!("job {} ", first.job) } else { String::new() };
    format!("{job}rank {}{queue_pairs}: {}{against}", first.rank, evidence(first))
}
