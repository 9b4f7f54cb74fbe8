//! The summary that `analyze` and `summary` print: inputs, traffic, jobs, coverage, health, ranks.

use super::{Style, lines::SummaryLines, summary_lines};
use crate::analysis::GroupBy;
use crate::analysis::classes::{ClassShare, class_shares};
use crate::analysis::coverage::States;
use crate::analysis::matrix::{Matrix, Selection, matrix};
use crate::analysis::totals::ProfileTotals;
use crate::model::profile::{CoverageState, RankRow};
use crate::model::sampling::EstimatedSum;
use crate::model::{ClassSet, ConnectionClass, Coverage, Profile, printable};
use crate::render::coverage::meaning;
use crate::render::matrix_note::mostly_collective;
use crate::render::ranks::{evidence, job_times_ns};
use crate::render::table::groups::shown;
use crate::render::trust;
use crate::render::units::{bytes, count_either, count_of, group, span, utc};
use ibscope_parsers::mpi::LibraryStack;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Endpoints that are listed with their rank; more are only counted.
const MAX_ENDPOINTS: usize = 16;
/// Jobs that are listed; more are only counted.
const MAX_JOBS: usize = 16;
/// Inputs that are listed; more are only counted.
const MAX_INPUTS: usize = 16;
/// Kinds of other frames that are listed; more are only counted.
const MAX_KINDS: usize = 5;

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

/// The lines of the summary: label and text. A line with an empty label continues the line before.
pub(crate) fn lines(profile: &Profile) -> Vec<(&'static str, String)> {
    let mut lines = SummaryLines { lines: Vec::new() };
    let coverage = &profile.coverage;
    inputs(&mut lines, profile);
    time(&mut lines, coverage);
    records(&mut lines, coverage);
    let totals = ProfileTotals::of(profile);
    sampling(&mut lines, profile, &totals);
    traffic(&mut lines, &totals);
    classes(&mut lines, profile);
    summary_lines::storage_line(&mut lines, profile);
    mpi(&mut lines, profile, &totals);
    jobs(&mut lines, profile);
    if let Some(sentence) = mostly_collective(&totals) {
        lines.put("collectives", &sentence);
    }
    let matrix = matrix(profile, GroupBy::Endpoint, Selection::All);
    coverage_of_pairs(&mut lines, &matrix);
    summary_lines::rate(&mut lines, profile);
    summary_lines::busiest(&mut lines, profile, matrix, totals.classes);
    summary_lines::latency_line(&mut lines, profile, totals.classes);
    summary_lines::health(&mut lines, profile);
    lines.put("trust", &trust::summary(&profile.trust));
    endpoints(&mut lines, profile, &totals);
    for note in &profile.notes {
        lines.put("note", note);
    }
    lines.lines
}

fn inputs(lines: &mut SummaryLines, profile: &Profile) {
    for input in profile.inputs.iter().take(MAX_INPUTS) {
        let copies = match (input.pairs_observed_once, input.pairs_observed_twice) {
            (_, 0) => "",
            (0, _) => "; every packet appears twice (both ports mirrored)",
            _ => "; the packets of some pairs appear twice (both ports mirrored)",
        };
        let format = &input.format;
        lines.put("input", &format!("{}: {}, {format}{copies}", printable(&input.name), bytes(input.length_bytes)));
    }
    if let Some(more) = profile.inputs.len().checked_sub(MAX_INPUTS).filter(|&more| more > 0) {
        lines.put("", &format!("and {more} more"));
    }
}

fn time(lines: &mut SummaryLines, coverage: &Coverage) {
    if let (Some(first), Some(last)) = (coverage.first_time_ns, coverage.last_time_ns) {
        let span = (last - first) as f64 / 1e9;
        lines.put("time", &format!("{span:.3} s from {}", utc(first)));
    }
}

/// The most frequent kinds with their counts, and how many more there are.
fn most_frequent(kinds: &BTreeMap<String, u64>) -> String {
    let mut sorted: Vec<(&String, u64)> = kinds.iter().map(|(name, count)| (name, *count)).collect();
    sorted.sort_by_key(|(name, count)| (Reverse(*count), *name));
    let listed = sorted.iter().take(MAX_KINDS).map(|(name, count)| format!("{} x {}", group(*count), printable(name)));
    let more = sorted.len().checked_sub(MAX_KINDS).filter(|more| *more > 0);
    let more = more.map(|more| count_either(more as u64, "other kind", "other kinds"));
    listed.chain(more).collect::<Vec<_>>().join(", ")
}

fn records(lines: &mut SummaryLines, coverage: &Coverage) {
    let mut parts = vec![format!("{} InfiniBand", group(coverage.infiniband))];
    let mut also = |count: u64, one: &str, many: &str| {
        if count > 0 {
            parts.push(count_either(count, one, many));
        }
    };
    also(coverage.other(), "other frame", "other frames");
    also(coverage.failed(), "not decoded", "not decoded");
    also(coverage.outside_window, "outside the window", "outside the window");
    lines.put("records", &format!("{}: {}", group(coverage.records), parts.join(", ")));
    let named = |kinds: &BTreeMap<String, u64>| -> Vec<String> {
        kinds.iter().map(|(name, count)| format!("{} x {name}", group(*count))).collect()
    };
    if coverage.other() > 0 {
        lines.put("other frames", &most_frequent(&coverage.other_frames));
    }
    if !coverage.encapsulated.is_empty() {
        let kinds: Vec<String> =
            coverage.encapsulated.iter().map(|(name, count)| format!("{name} {}", group(*count))).collect();
        lines.put("encapsulated", &kinds.join(", "));
    }
    if coverage.failed() > 0 {
        lines.put("not decoded", &named(&coverage.undecoded).join(", "));
    }
    put_counts(
        lines,
        "of these",
        &[
            (coverage.mirror_copies, "mirror copy", "mirror copies"),
            (
                coverage.overlap_packets,
                "packet that the previous file holds too",
                "packets that the previous file holds too",
            ),
            (coverage.management, "management", "management"),
            (coverage.multicast, "multicast", "multicast"),
            (coverage.truncated, "truncated (not captured in full)", "truncated (not captured in full)"),
            (coverage.unknown_opcode, "with an unknown opcode", "with an unknown opcode"),
            (coverage.icrc_bad, "with a wrong ICRC", "with a wrong ICRC"),
            (coverage.vcrc_bad, "with a wrong VCRC", "with a wrong VCRC"),
            (coverage.time_backwards, "earlier than the record before", "earlier than the record before"),
            (coverage.without_time, "without a timestamp", "without a timestamp"),
            (
                coverage.untracked_packets,
                "of connections beyond --max-connections (in no table)",
                "of connections beyond --max-connections (in no table)",
            ),
        ],
    );
    put_counts(
        lines,
        "not captured",
        &[
            (
                coverage.interface_drops,
                "packet dropped by the capturing interface",
                "packets dropped by the capturing interface",
            ),
            (coverage.lost_mirrored_frames(), "frame lost by the mirror", "frames lost by the mirror"),
        ],
    );
    put_counts(
        lines,
        "incomplete",
        &[
            (coverage.mpi_incomplete, "MPI message without its end", "MPI messages without their end"),
            (
                coverage.mpi_truncated,
                "MPI message captured without the header field of its length (in no MPI column)",
                "MPI messages captured without the header field of their length (in no MPI column)",
            ),
            (
                coverage.truncated_headers,
                "packet captured without the header that may show a message",
                "packets captured without the header that may show a message",
            ),
            (
                coverage.messages_with_gaps,
                "transport message with missing packets",
                "transport messages with missing packets",
            ),
            (
                coverage.messages_without_start,
                "of these transport messages without its first packet",
                "of these transport messages without their first packet",
            ),
            (
                coverage.messages_evicted,
                "message that ibscope stopped tracking before its end, because too many were incomplete at a time",
                "messages that ibscope stopped tracking before their end, because too many were incomplete at a time",
            ),
            (
                coverage.window_overflows,
                "connection with more PSN gaps than ibscope tracks",
                "connections with more PSN gaps than ibscope tracks",
            ),
        ],
    );
    checksums(lines, coverage);
}

fn checksums(lines: &mut SummaryLines, coverage: &Coverage) {
    for (name, ok, bad) in
        [("ICRC", coverage.icrc_ok, coverage.icrc_bad), ("VCRC", coverage.vcrc_ok, coverage.vcrc_bad)]
    {
        if ok + bad > 0 {
            let share = if bad == 0 { "all correct".to_owned() } else { format!("{} correct", group(ok)) };
            lines.put(name, &format!("{} checked, {share}", group(ok + bad)));
        }
    }
}

/// One line with the counts that are not 0; no line without any.
fn put_counts(lines: &mut SummaryLines, name: &'static str, counts: &[(u64, &str, &str)]) {
    let counts = counts.iter().filter(|(count, ..)| *count > 0);
    let parts: Vec<String> = counts.map(|&(count, one, many)| count_either(count, one, many)).collect();
    if !parts.is_empty() {
        lines.put(name, &parts.join(", "));
    }
}

/// The rate of a sampled capture, and the estimates of its totals.
fn sampling(lines: &mut SummaryLines, profile: &Profile, totals: &ProfileTotals<'_>) {
    let Some(sampling) = profile.sampling else { return };
    lines.put("sampling", &sampling.describe());
    let Some(pair) = &totals.estimators else { return };
    if sampling.one_in.is_none() {
        let reason = profile.notes.iter().find_map(|note| note.strip_prefix("no estimates: "));
        let reason = reason.unwrap_or("the sampling rate is not known");
        lines.put("estimates", &format!("none, because {reason}; all numbers are those of the sample"));
        return;
    }
    let packets = shown(EstimatedSum::PACKETS.estimate(pair), group);
    let wire = shown(EstimatedSum::WIRE_BYTES.estimate(pair), bytes);
    let payload = shown(EstimatedSum::PAYLOAD_BYTES.estimate(pair), bytes);
    let messages = shown(EstimatedSum::MESSAGES.estimate(pair), group);
    let all = [("packets", packets), ("on the wire", wire), ("payload", payload), ("transport messages", messages)];
    for (number, (what, estimate)) in all.into_iter().enumerate() {
        lines.put(if number == 0 { "estimates" } else { "" }, &format!("{what} {estimate}"));
    }
    lines.put("", "estimated totals with 95 % intervals; all other numbers are those of the sample");
}

fn traffic(lines: &mut SummaryLines, totals: &ProfileTotals<'_>) {
    let ProfileTotals { traffic: total, retransmissions, .. } = totals;
    lines.put(
        "traffic",
        &format!(
            "{}, {} on the wire, {} payload in {}",
            count_of(total.packets, "packet"),
            bytes(total.wire_bytes),
            bytes(total.payload_bytes),
            count_of(total.messages, "transport message")
        ),
    );
    if retransmissions.packets() > 0 && totals.estimators.is_some() {
        let again = count_of(retransmissions.packets(), "packet");
        lines.put(
            "retransmitted",
            &format!(
                "unknown, because a sample does not show whether a packet was retransmitted or mirrored at both ports; {again} observed again"
            ),
        );
    } else if retransmissions.packets() > 0 {
        lines.put(
            "retransmitted",
            &format!(
                "{}, {}, {} ({} on the wire, not in the payload)",
                count_of(retransmissions.request_packets, "request"),
                count_of(retransmissions.response_packets, "response"),
                count_of(retransmissions.acknowledge_packets, "ACK"),
                bytes(retransmissions.wire_bytes)
            ),
        );
    }
}

/// The shares of the classes of connections, of all wire bytes.
fn classes(lines: &mut SummaryLines, profile: &Profile) {
    let shares = class_shares(profile);
    let total: u64 = shares.iter().map(|(_, share)| share.traffic.wire_bytes).sum();
    let share = |(class, share): &(ConnectionClass, ClassShare)| {
        let percent = share.traffic.wire_bytes as f64 * 100.0 / total.max(1) as f64;
        let (packets, wire) = (count_of(share.traffic.packets, "packet"), bytes(share.traffic.wire_bytes));
        format!("{} {percent:.1} % ({packets}, {wire})", class.name())
    };
    let all: Vec<String> = shares.iter().map(share).collect();
    if !all.is_empty() {
        lines.put("classes", &all.join(", "));
    }
}

fn mpi(lines: &mut SummaryLines, profile: &Profile, totals: &ProfileTotals<'_>) {
    let ProfileTotals { traffic: total, nccl, stacks, .. } = totals;
    if stacks.is_empty() {
        let why = if profile.mpi_read { "no MPI library detected" } else { "not analyzed (--no-mpi)" };
        lines.put("MPI", why);
        return;
    }
    // Messages of NCCL count as point-to-point in the sums, but do not name their operation.
    let (of_nccl, of_mpi): (Vec<&str>, Vec<&str>) =
        stacks.iter().copied().partition(|stack| *stack == LibraryStack::Nccl.name());
    if !of_mpi.is_empty() {
        let p2p_messages = total.p2p_messages.saturating_sub(nccl.p2p_messages);
        let text = format!(
            "point-to-point {}, {}; collective {}, {} ({})",
            count_of(p2p_messages, "message"),
            bytes(total.p2p_mpi_bytes.saturating_sub(nccl.p2p_mpi_bytes)),
            count_of(total.collective_messages, "message"),
            bytes(total.collective_mpi_bytes),
            of_mpi.join(", ")
        );
        lines.put("MPI", &text);
    }
    if !of_nccl.is_empty() {
        let text = format!("{}, {}", count_of(nccl.p2p_messages, "message"), bytes(nccl.p2p_mpi_bytes));
        lines.put("NCCL", &text);
    }
}

/// The jobs, if there are several, and the queue pairs without a rank.
fn jobs(lines: &mut SummaryLines, profile: &Profile) {
    if profile.jobs.len() > 1 {
        lines.put("jobs", &format!("{}; `rank 2.0` is rank 0 of job 2", group(profile.jobs.len() as u64)));
        for job in profile.jobs.iter().take(MAX_JOBS) {
            let times = job_times_ns(job).map(|(first, last)| {
                format!(", {} from {}", span(last.saturating_sub(first).unsigned_abs()), utc(first))
            });
            lines.put("", &format!("{}{}", job.describe(), times.unwrap_or_default()));
        }
        if let Some(more) = profile.jobs.len().checked_sub(MAX_JOBS).filter(|more| *more > 0) {
            lines.put("", &format!("and {more} more"));
        }
    }
    let unassigned = profile.unassigned.len() as u64;
    if unassigned > 0 {
        let verb = if unassigned == 1 { "has" } else { "have" };
        let count = count_of(unassigned, "queue pair");
        lines.put("unassigned", &format!("{count} with MPI traffic {verb} no rank; `ibscope ranks` lists the reasons"));
    }
}

/// The coverage of the endpoint pairs; no line if all are complete.
fn coverage_of_pairs(lines: &mut SummaryLines, matrix: &Matrix) {
    let states = States::of(matrix.cells.values());
    if let Some(state) = states.of_all() {
        if state != CoverageState::Complete {
            lines.put("coverage", &format!("all pairs {}", meaning(state)));
        }
        return;
    }
    let all = count_of(matrix.cells.len() as u64, "pair");
    let parts: Vec<String> =
        states.incomplete().map(|(state, count)| format!("{} {}", group(count), state.name())).collect();
    if !parts.is_empty() {
        lines.put("coverage", &format!("of {all}: {}; `ibscope matrix` marks them", parts.join(", ")));
    }
}

fn endpoints(lines: &mut SummaryLines, profile: &Profile, totals: &ProfileTotals<'_>) {
    let endpoints = &totals.endpoints;
    lines.put("endpoints", &group(endpoints.len() as u64));
    if endpoints.len() > MAX_ENDPOINTS {
        let with_rank: BTreeSet<&str> = profile.ranks.iter().map(|row| row.endpoint.as_str()).collect();
        let with_rank = endpoints.iter().filter(|endpoint| with_rank.contains(endpoint.to_string().as_str())).count();
        lines.put("", &format!("{} of them with a rank", group(with_rank as u64)));
        return;
    }
    for endpoint in endpoints {
        let text = endpoint.to_string();
        let name = profile.names.get(endpoint).map(|name| format!(" {name}")).unwrap_or_default();
        let here: Vec<&RankRow> = profile.ranks.iter().filter(|row| row.endpoint == text).collect();
        let several = profile.jobs.len() > 1;
        let ranks: Vec<String> = here
            .chunk_by(|a, b| (a.job, a.rank) == (b.job, b.rank))
            .map(|rows| rank(rows, several, totals.classes))
            .collect();
        let ranks = if ranks.is_empty() { "rank unknown".to_owned() } else { ranks.join("; ") };
        lines.put("", &format!("{text}{name}: {ranks}"));
    }
}

/// Describes a rank at an endpoint by its rows: one for all queue pairs, or one for each. With
/// `several` jobs, names the job.
fn rank(rows: &[&RankRow], several: bool, classes: ClassSet) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let queue_pairs = match (first.qpn, rows.len()) {
        (None, _) => String::new(),
        (Some(qpn), 1) => format!(" (queue pair {qpn:#x})"),
        (Some(_), count) => format!(" ({count} queue pairs)"),
    };
    let against = match first.disagreeing {
        0 => String::new(),
        others => format!(", {} another rank", count_either(others, "names", "name")),
    };
    let job = if several { format!("{}.", first.job) } else { String::new() };
    format!("rank {job}{}{queue_pairs}: {}{against}", first.rank, evidence(first, classes.library()))
}
