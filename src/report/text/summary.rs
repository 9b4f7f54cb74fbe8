//! What an analysis found, in the ten seconds that a person has for it.

use super::super::label::printable;
use super::super::units::{bytes, count, counted, rate, seconds};
use super::{Style, aligned, lines, table, wrap};
use crate::model::profile::{Profile, Repeats, Traffic};
use crate::model::{Coverage, Kind};
use ibscope_parsers::Endpoint;
use std::collections::{BTreeMap, BTreeSet};

/// Inputs listed one by one.
const MAX_INPUTS: usize = 8;
/// Endpoints listed one by one.
const MAX_ENDPOINTS: usize = 16;
/// Kinds of frames named.
const MAX_KINDS: usize = 4;
const KEY: usize = 13;

/// The summary that follows an analysis.
#[must_use]
pub fn summary(profile: &Profile, style: &Style) -> String {
    let mut page = Page { text: String::new(), width: style.width };
    inputs(&mut page, profile);
    coverage(&mut page, &profile.coverage);
    traffic(&mut page, profile);
    endpoints(&mut page, profile, style);
    if !profile.notes.is_empty() {
        page.text.push('\n');
        for note in &profile.notes {
            page.line("note", &printable(note));
        }
    }
    page.text
}

/// Time as RFC 3339 in UTC.
pub(super) fn utc(time_ns: i64) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(time_ns)).map_or_else(|_| format!("{time_ns} ns"), |time| time.to_string())
}

struct Page {
    text: String,
    width: usize,
}

impl Page {
    fn line(&mut self, key: &str, value: &str) {
        self.text += &wrap(&format!("{key:<KEY$}{value}"), self.width, KEY);
        self.text.push('\n');
    }
}

fn inputs(page: &mut Page, profile: &Profile) {
    for input in profile.inputs.iter().take(MAX_INPUTS) {
        let records = counted(input.coverage.records, "record", "records");
        let value =
            format!("{} ({}, {}, {records})", printable(&input.name), input.format, bytes(input.length_bytes));
        page.line("input", &value);
    }
    let rest = profile.inputs.len().saturating_sub(MAX_INPUTS);
    if rest > 0 {
        page.line("", &format!("and {rest} more"));
    }
    if let (Some(first), Some(last)) = (profile.coverage.first_time_ns, profile.coverage.last_time_ns) {
        let span = seconds(i128::from(last) - i128::from(first));
        page.line("time", &format!("{} UTC, {span} s", utc(first).trim_end_matches('Z').replace('T', " ")));
    }
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "0 %".to_owned() } else { format!("{:.2} %", part as f64 * 100.0 / whole as f64) }
}

/// The most frequent kinds by name.
fn kinds(counts: &BTreeMap<String, u64>) -> String {
    let mut largest: Vec<(&String, &u64)> = counts.iter().filter(|&(_, &count)| count > 0).collect();
    largest.sort_by_key(|&(name, &count)| (std::cmp::Reverse(count), name));
    let mut shown: Vec<String> =
        largest.iter().take(MAX_KINDS).map(|(name, count)| format!("{} {}", printable(name), self::count(**count))).collect();
    if largest.len() > MAX_KINDS {
        shown.push(format!("{} more kinds", largest.len() - MAX_KINDS));
    }
    if shown.is_empty() { String::new() } else { format!(" ({})", shown.join(", ")) }
}

fn coverage(page: &mut Page, coverage: &Coverage) {
    let Coverage { records, infiniband, truncated, .. } = *coverage;
    let value = format!(
        "{}: {} InfiniBand ({}), {} other{}, {} not decoded{}",
        counted(records, "record", "records"),
        count(infiniband),
        percent(infiniband, records),
        count(coverage.other()),
        kinds(&coverage.other_frames),
        count(coverage.failed()),
        kinds(&coverage.undecoded),
    );
    page.line("packets", &value);
    if truncated > 0 {
        page.line("cut short", &format!("{} ({}); lengths come from the headers", count(truncated), percent(truncated, infiniband)));
    }
    let icrc = match (coverage.icrc_ok, coverage.icrc_bad) {
        (0, 0) => "not checked".to_owned(),
        (ok, bad) => format!("{} fit, {} do not", count(ok), count(bad)),
    };
    page.line("ICRC", &icrc);
    let others = [
        (coverage.mirror_copies, "copies", "seen at a second observation point, counted once"),
        (coverage.management, "management", "to queue pairs 0 and 1, not in the sums"),
        (coverage.multicast, "multicast", "not in the sums"),
        (coverage.outside_window, "left out", "outside --from and --to"),
        (coverage.unknown_opcode, "opcodes", "not defined by the specification"),
        (coverage.interface_drops, "lost", "dropped by the capturing interface: sums are too small"),
        (coverage.time_backwards, "time order", "earlier than the record before"),
        (coverage.without_time, "no time", "in the matrix, not in the timeline"),
        (coverage.window_overflows, "overflows", "connections where old repeats may be counted as new"),
        (coverage.mpi_incomplete, "incomplete", "MPI messages whose end was not seen"),
    ];
    for (number, key, meaning) in others {
        if number > 0 {
            page.line(key, &format!("{}, {meaning}", count(number)));
        }
    }
}

fn traffic(page: &mut Page, profile: &Profile) {
    let (mut sums, mut repeats, mut connections) = (Traffic::default(), Repeats::default(), 0);
    let mut stacks: BTreeMap<&str, u64> = BTreeMap::new();
    for row in profile.connections.iter().filter(|row| row.kind == Kind::Data) {
        sums = add(sums, row.traffic);
        let more = row.repeats;
        repeats.request_packets = repeats.request_packets.saturating_add(more.request_packets);
        repeats.response_packets = repeats.response_packets.saturating_add(more.response_packets);
        repeats.acknowledge_packets = repeats.acknowledge_packets.saturating_add(more.acknowledge_packets);
        repeats.wire_bytes = repeats.wire_bytes.saturating_add(more.wire_bytes);
        connections += 1;
        if let Some(stack) = &row.stack {
            *stacks.entry(stack).or_default() += 1;
        }
    }
    let span_ns = match (profile.coverage.first_time_ns, profile.coverage.last_time_ns) {
        (Some(first), Some(last)) => i128::from(last) - i128::from(first),
        _ => 0,
    };
    page.text.push('\n');
    let mean = if span_ns > 0 {
        format!(", {} on average", rate(sums.wire_bytes as f64 * 1e9 / span_ns as f64))
    } else {
        String::new()
    };
    page.line("traffic", &format!("{} on the wire in {}{mean}", bytes(sums.wire_bytes), counted(sums.packets, "packet", "packets")));
    page.line(
        "payload",
        &format!("{} in {}", bytes(sums.payload_bytes), counted(sums.messages, "transport message", "transport messages")),
    );
    if profile.mpi_read {
        let mpi = |name, bytes_, messages| format!("{name} {} in {}", bytes(bytes_), counted(messages, "message", "messages"));
        page.line(
            "MPI",
            &format!(
                "{}, {}",
                mpi("point-to-point", sums.p2p_mpi_bytes, sums.p2p_messages),
                mpi("collectives", sums.collective_mpi_bytes, sums.collective_messages)
            ),
        );
        let named: Vec<String> = stacks
            .iter()
            .map(|(stack, number)| format!("{} ({})", printable(stack), counted(*number, "connection", "connections")))
            .collect();
        let none = "none recognised".to_owned();
        let libraries = if named.is_empty() { none } else { format!("{} of {}", named.join(", "), count(connections)) };
        page.line("library", &libraries);
    } else {
        page.line("MPI", "not looked for (--no-mpi)");
    }
    let Repeats { request_packets, response_packets, acknowledge_packets, wire_bytes, .. } = repeats;
    if request_packets + response_packets + acknowledge_packets > 0 {
        let value = format!(
            "{}, {}, {}; {} on the wire",
            counted(request_packets, "request", "requests"),
            counted(response_packets, "response", "responses"),
            counted(acknowledge_packets, "acknowledgement", "acknowledgements"),
            bytes(wire_bytes)
        );
        page.line("repeated", &value);
    } else {
        page.line("repeated", "nothing");
    }
}

fn add(a: Traffic, b: Traffic) -> Traffic {
    Traffic {
        packets: a.packets.saturating_add(b.packets),
        wire_bytes: a.wire_bytes.saturating_add(b.wire_bytes),
        payload_bytes: a.payload_bytes.saturating_add(b.payload_bytes),
        messages: a.messages.saturating_add(b.messages),
        p2p_messages: a.p2p_messages.saturating_add(b.p2p_messages),
        p2p_mpi_bytes: a.p2p_mpi_bytes.saturating_add(b.p2p_mpi_bytes),
        collective_messages: a.collective_messages.saturating_add(b.collective_messages),
        collective_mpi_bytes: a.collective_mpi_bytes.saturating_add(b.collective_mpi_bytes),
    }
}

fn endpoints(page: &mut Page, profile: &Profile, style: &Style) {
    let data = profile.connections.iter().filter(|row| row.kind == Kind::Data);
    let mut endpoints: BTreeSet<Endpoint> = data.flat_map(|row| [row.src, row.dst]).collect();
    endpoints.extend(profile.ranks.iter().filter_map(|row| row.endpoint.parse::<Endpoint>().ok()));
    if endpoints.is_empty() {
        return;
    }
    page.text.push('\n');
    let mut header = vec!["endpoint".to_owned()];
    let has_names = !profile.names.is_empty();
    if has_names {
        header.push("name".to_owned());
    }
    header.extend(["rank".to_owned(), "known from".to_owned()]);
    let mut table = table(header, 4, style);
    for endpoint in endpoints.iter().take(MAX_ENDPOINTS) {
        let rows: Vec<_> =
            profile.ranks.iter().filter(|row| row.endpoint.parse() == Ok(*endpoint)).collect();
        let ranks: BTreeSet<u32> = rows.iter().map(|row| row.rank).collect();
        let ranks = ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        let mut cells = vec![endpoint.to_string()];
        if has_names {
            cells.push(profile.names.get(endpoint).map(|name| printable(name)).unwrap_or_default());
        }
        cells.push(if ranks.is_empty() { style.dot().to_owned() } else { ranks });
        let evidence: BTreeSet<&str> = rows.iter().map(|row| row.evidence.as_str()).collect();
        let (agreeing, disagreeing) = rows
            .iter()
            .fold((0_u64, 0_u64), |sums, row| (sums.0.saturating_add(row.agreeing), sums.1.saturating_add(row.disagreeing)));
        let mut why = evidence.into_iter().collect::<Vec<_>>().join(", ");
        if agreeing + disagreeing > 0 {
            why += &format!(", {} agree, {} disagree", count(agreeing), count(disagreeing));
        }
        cells.push(why);
        table.add_row(cells.into_iter().map(|text| aligned(text, true)).collect::<Vec<_>>());
    }
    for line in lines(&table) {
        page.text += &line;
        page.text.push('\n');
    }
    if endpoints.len() > MAX_ENDPOINTS {
        page.text += &format!(" and {} more endpoints\n", endpoints.len() - MAX_ENDPOINTS);
    }
}
