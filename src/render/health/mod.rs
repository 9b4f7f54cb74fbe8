//! What goes wrong on the fabric, and what the capture missed: totals, and the connections with most of it.
//!
//! A row is one direction between two queue pairs. What its packets say of the other direction stays with the row that carried it: NAKs and RNR
//! NAKs are sent by `src` about the requests of `dst`, and a congestion notification from `src` asks `dst` to slow down. The columns of csv and
//! json are those of [`Health`], the repeats of the table of connections, and the connection itself; all count transmissions, mirror copies
//! never. Management and multicast have no rows.

mod findings;
mod links;
mod pauses;
mod time_series;

pub use links::{csv as links_csv, table as links_table};
pub use pauses::{csv as pauses_csv, table as pauses_table};
pub use time_series::{time_series_csv, time_series_json, time_series_table};

use super::units::{bytes, counted, group, span as duration};
use crate::analysis::Label;
use crate::analysis::health::{
    ConnectionHealth, REPEATS, acknowledged_requests, connections, plain_acks, repeats_values, slowdown, totals,
};
use crate::model::link::Speed;
use crate::model::profile::Repeats;
use crate::model::{Health, Profile, printable};
use findings::{findings, who};
use pauses::{described as describe_pauses, json as pauses_json};
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// Connections that the table shows.
const WORST: usize = 10;
/// Columns of the csv in front of [`REPEATS`] and those of [`Health`].
const COLUMNS: [&str; 7] = ["src", "dst", "src_rank", "dst_rank", "service", "src_qp", "dest_qp"];
/// And behind them.
const BEHIND: [&str; 3] = ["requests_per_ack", "cnp_slowdown", "job"];

/// For people: totals, then the ten connections with most to say.
#[must_use]
pub fn table(profile: &Profile, speed: Option<&Speed>) -> String {
    let overview = overview(profile, speed, WORST);
    let mut lines: Vec<String> =
        overview.totals.into_iter().map(|(label, text)| format!("{label:<14}{text}")).collect();
    if overview.worst.is_empty() {
        lines.push("\nno connection has anything to look at".to_owned());
    } else {
        let (shown, all) = (overview.worst.len(), group(overview.connections as u64));
        lines.push(format!("\nthe worst {shown} of {all} connections with something to look at:"));
    }
    for (who, findings) in overview.worst {
        lines.push(who);
        lines.extend(findings.into_iter().map(|finding| format!("    {finding}")));
    }
    lines.push(String::new());
    lines.join("\n")
}

/// What goes wrong, for people.
pub(super) struct Overview {
    /// Labels and texts. A line without a label belongs to the one before.
    pub(super) totals: Vec<(&'static str, String)>,
    /// Connections with something to look at.
    pub(super) connections: usize,
    /// The worst of them: who, and what is to be said of it.
    pub(super) worst: Vec<(String, Vec<String>)>,
}

/// Totals, and at most so many of the worst connections.
pub(super) fn overview(profile: &Profile, speed: Option<&Speed>, most: usize) -> Overview {
    let totals = describe(profile, speed);
    let mut rows: Vec<ConnectionHealth<'_>> = connections(profile).filter(|row| row.severity() > 0).collect();
    // Equal ones stay in the order of connections.
    rows.sort_by_key(|row| std::cmp::Reverse(row.severity()));
    let worst = rows.iter().take(most).map(|row| (who(row), findings(row))).collect();
    Overview { totals, connections: rows.len(), worst }
}

/// The totals in words.
fn describe(profile: &Profile, speed: Option<&Speed>) -> Vec<(&'static str, String)> {
    let (health, repeats) = totals(profile);
    let mut lines = Vec::new();
    let mut put = |label: &'static str, text: String| lines.push((label, text));
    put(
        "repeated",
        format!(
            "{}, {}, {}, {} on the wire",
            counted(repeats.request_packets, "request"),
            counted(repeats.response_packets, "response"),
            counted(repeats.acknowledge_packets, "ACK"),
            bytes(repeats.wire_bytes)
        ),
    );
    let cost = match health.episodes_timed {
        0 => String::new(),
        timed => format!(
            ", {} in sum, {} on average, {} the longest",
            duration(health.episode_ns),
            duration(health.episode_ns / timed),
            duration(health.longest_episode_ns)
        ),
    };
    put("go-back-N", format!("{}{cost}", counted(health.episodes, "episode")));
    put(
        "NAKs",
        format!(
            "{} PSN sequence, {} invalid request, {} remote access, {} remote operation, {} invalid RD, {} reserved",
            group(health.nak_sequence),
            group(health.nak_invalid_request),
            group(health.nak_remote_access),
            group(health.nak_remote_operational),
            group(health.nak_invalid_rd),
            group(health.nak_reserved)
        ),
    );
    let timer = match health.rnr_naks {
        0 => String::new(),
        _ => format!(", waits of up to {}", duration(health.longest_rnr_timer_ns)),
    };
    put("RNR NAKs", format!("{}{timer}", group(health.rnr_naks)));
    put(
        "congestion",
        format!(
            "{} CNP, {} FECN, {} BECN, {} ECN-CE",
            group(health.cnp_packets),
            group(health.fecn_packets),
            group(health.becn_packets),
            group(health.ecn_ce_packets)
        ),
    );
    if let Some(times) = slowdown(&health) {
        let count = group(health.cnp_reactions);
        put("", format!("after a CNP requests came {times:.1} times as far apart ({count} measured)"));
    }
    for line in describe_pauses(&profile.coverage, speed) {
        put("pause", line);
    }
    let coverage = &profile.coverage;
    for (label, ok, bad) in
        [("wrong ICRC", coverage.icrc_ok, coverage.icrc_bad), ("wrong VCRC", coverage.vcrc_ok, coverage.vcrc_bad)]
    {
        // Only native captures have a VCRC, and not all of them.
        if ok + bad > 0 || label == "wrong ICRC" {
            put(label, format!("{} of {} checked", group(bad), group(ok + bad)));
        }
    }
    put("late", format!("{} behind a later PSN", counted(health.late_packets, "packet")));
    let acks = plain_acks(&health, &repeats);
    if acks > 0 {
        let per_ack = acknowledged_requests(&health, &repeats) as f64 / acks as f64;
        put("ACKs", format!("{}, for {per_ack:.2} SEND and WRITE packets each", group(acks)));
    }
    put(
        "capture loss",
        format!(
            "{}, {} acknowledged and never seen ({} to {}); {} never seen and not acknowledged",
            counted(health.lost_requests, "request"),
            counted(health.lost_responses, "response"),
            group(health.lost_at_least),
            counted(health.lost_at_most, "packet"),
            counted(health.open_psns, "PSN")
        ),
    );
    if profile.coverage.interface_drops > 0 {
        put(
            "",
            format!(
                "{} packets dropped by the capturing interfaces, as they say",
                group(profile.coverage.interface_drops)
            ),
        );
    }
    for input in profile.inputs.iter().filter(|input| input.coverage.missing_packets > 0) {
        put(
            "",
            format!(
                "{} lacks {} packets that another input has",
                printable(&input.name),
                group(input.coverage.missing_packets)
            ),
        );
    }
    if health.one_sided_packets > 0 {
        put("one-sided", format!("{} seen at one of two ports only", counted(health.one_sided_packets, "packet")));
    }
    if health.library_repeats + health.datagram_gap_psns > 0 {
        put(
            "datagrams",
            format!(
                "{} sent again by UCX; {} PSNs of UD queue pairs not seen here (normal: one sequence serves all destinations)",
                group(health.library_repeats),
                group(health.datagram_gap_psns)
            ),
        );
    }
    lines
}

/// One line per connection with something to say: the connection, its repeats, and the columns of [`Health`].
pub fn csv(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{},{},{},{}", COLUMNS.join(","), REPEATS.join(","), Health::COLUMNS.join(","), BEHIND.join(","))?;
    for row in connections(profile) {
        let values: Vec<String> = cells(&row).iter().map(|(_, value)| cell_text(value)).collect();
        writeln!(out, "{}", values.join(","))?;
    }
    Ok(())
}

/// One object: totals, pause frames, what each input lacks, and the lines of the csv as objects.
pub fn json(profile: &Profile, speed: Option<&Speed>, out: &mut dyn Write) -> io::Result<()> {
    let (health, repeats) = totals(profile);
    let mut total = object(health_cells(&health));
    total.extend(object(repeats_cells(&repeats)));
    let inputs = profile.inputs.iter();
    let inputs: Vec<Value> = inputs
        .map(|input| json!({ "name": input.name, "missing_packets": input.coverage.missing_packets, "interface_drops": input.coverage.interface_drops }))
        .collect();
    let connections = connections(profile).map(|row| {
        let mut connection = object(cells(&row));
        connection.insert("findings".to_owned(), json!(findings(&row)));
        Value::Object(connection)
    });
    let document = json!({
        "schema": "ibscope health",
        "version": 1,
        "total": total,
        "pause_frames": profile.coverage.pause_frames,
        "pauses": pauses_json(&profile.coverage, speed),
        "links": links::json(profile),
        "inputs": inputs,
        "connections": connections.collect::<Vec<_>>(),
    });
    writeln!(out, "{document:#}")
}

type Cell = (&'static str, Value);

fn cells(row: &ConnectionHealth<'_>) -> Vec<Cell> {
    let rank = |label: &Label| label.rank().map_or(Value::Null, |rank| json!(rank));
    let values = [
        json!(row.endpoints.0.to_string()),
        json!(row.endpoints.1.to_string()),
        rank(&row.ranks.0),
        rank(&row.ranks.1),
        json!(row.service()),
        json!(row.connection.src_qp.map(ibscope_parsers::Qpn::value)),
        json!(row.connection.dest_qp.value()),
    ];
    let own = COLUMNS.into_iter().zip(values);
    // Three digits are more than such a number is good for.
    let derived = |value: Option<f64>| value.map_or(Value::Null, |value| json!((value * 1000.0).round() / 1000.0));
    let behind = [derived(row.requests_per_ack), derived(slowdown(&row.health)), json!(row.ranks.0.job())];
    own.chain(repeats_cells(&row.repeats()))
        .chain(health_cells(&row.health))
        .chain(BEHIND.into_iter().zip(behind))
        .collect()
}

fn repeats_cells(repeats: &Repeats) -> Vec<Cell> {
    REPEATS.into_iter().zip(repeats_values(repeats).map(Value::from)).collect()
}

fn health_cells(health: &Health) -> Vec<Cell> {
    Health::COLUMNS.into_iter().zip(health.values().map(Value::from)).collect()
}

fn object(cells: Vec<Cell>) -> Map<String, Value> {
    cells.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn cell_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
