//! What goes wrong on the fabric, and what the capture missed: totals, and the connections with most of it.
//!
//! A row is one direction between two queue pairs. What its packets say of the other direction stays with the row that carried it: NAKs and RNR
//! NAKs are sent by `src` about the requests of `dst`, and a congestion notification from `src` asks `dst` to slow down. The columns of csv and
//! json are those of [`Health`], the repeats of the table of connections, and the connection itself; all count transmissions, mirror copies
//! never. Management and multicast have no rows.

mod over_time;

pub use over_time::{RepeatedBin, Retransmissions, retransmissions};

use super::units::{group, span as duration};
use super::who::{By, Label, Who};
use crate::model::profile::{ConnectionRow, HealthRow, Repeats};
use crate::model::{Health, Profile};
use ibscope_parsers::ib::Opcode;
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// Connections that the table shows.
const WORST: usize = 10;
/// Senders of pause frames that the table lists.
const MAX_PAUSE_SENDERS: usize = 8;
/// What one packet counts when connections are compared: a NAK that ends a connection, a wrong check sum, a receiver that is not ready.
const WEIGHT_FATAL: u64 = 10_000;
const WEIGHT_ICRC: u64 = 100;
const WEIGHT_RNR: u64 = 10;

/// Columns of the csv in front of those of [`Health`].
const COLUMNS: [&str; 10] = [
    "src",
    "dst",
    "src_rank",
    "dst_rank",
    "service",
    "src_qp",
    "dest_qp",
    "retransmitted_request_packets",
    "retransmitted_response_packets",
    "repeated_acknowledge_packets",
];

/// One connection.
#[derive(Clone, Debug)]
struct Row<'a> {
    connection: &'a ConnectionRow,
    health: Health,
    endpoints: (Label, Label),
    ranks: (Label, Label),
}

impl Row<'_> {
    fn repeats(&self) -> Repeats {
        self.connection.repeats
    }

    fn service(&self) -> &'static str {
        Opcode(self.connection.service << 5).service().name()
    }

    /// For people: the rank where it is known, else the port by its name.
    fn who(&self) -> String {
        let name = |rank: &Label, endpoint: &Label| match rank {
            Label::Rank(rank) => format!("rank {rank}"),
            _ => endpoint.name(),
        };
        let (src, dst) = (name(&self.ranks.0, &self.endpoints.0), name(&self.ranks.1, &self.endpoints.1));
        format!("{src} -> {dst}, {} queue pair {:#x}", self.service(), self.connection.dest_qp.value())
    }

    fn severity(&self) -> u64 {
        let Health { nak_sequence, rnr_naks, icrc_bad_packets, .. } = self.health;
        let health = &self.health;
        let repeats = self.repeats();
        let fatal = health.naks() - nak_sequence;
        let single = repeats.request_packets
            + repeats.response_packets
            + nak_sequence
            + health.late_packets
            + health.cnp_packets
            + health.fecn_packets
            + health.becn_packets
            + health.ecn_ce_packets
            + health.library_repeats
            + health.open_psns
            + health.lost();
        [(fatal, WEIGHT_FATAL), (icrc_bad_packets, WEIGHT_ICRC), (rnr_naks, WEIGHT_RNR), (single, 1)]
            .into_iter()
            .fold(0u64, |sum, (count, weight)| sum.saturating_add(count.saturating_mul(weight)))
    }

    /// What went wrong and what to look at next, one sentence each.
    fn findings(&self) -> Vec<String> {
        let health = &self.health;
        let repeats = self.repeats();
        let mut findings = Vec::new();
        let mut say = |count: u64, what: String| {
            if count > 0 {
                findings.push(what);
            }
        };
        let fatal = [
            (
                health.nak_invalid_request,
                "invalid request",
                "a message longer than the receive buffer, or an operation that the queue pair does not allow",
            ),
            (
                health.nak_remote_access,
                "remote access error",
                "a wrong key or address: the memory was deregistered or never registered",
            ),
            (
                health.nak_remote_operational,
                "remote operational error",
                "a fault in the responder's adapter or host: see its logs",
            ),
            (health.nak_invalid_rd, "invalid RD request", "the reliable datagram domain of the responder"),
            (health.nak_reserved, "of a reserved code", "an adapter or a capture that is broken"),
        ];
        for (count, name, next) in fatal {
            say(count, format!("{} NAKs: {name}, which ends the connection; look for {next}", group(count)));
        }
        say(
            health.rnr_naks,
            format!(
                "{} RNR NAKs, waits of up to {}: the sender of this row posts too few receive buffers for what comes in",
                group(health.rnr_naks),
                duration(health.longest_rnr_timer_ns)
            ),
        );
        say(
            health.nak_sequence,
            format!(
                "{} NAKs: PSN sequence error: packets towards the sender of this row were lost on the path; check symbol errors and \
                 discards of its link and of the leaf ports",
                group(health.nak_sequence)
            ),
        );
        let cost = match health.episodes_timed {
            0 => String::new(),
            _ => format!(
                " that cost {} together, {} the longest",
                duration(health.episode_ns),
                duration(health.longest_episode_ns)
            ),
        };
        say(
            repeats.request_packets,
            format!(
                "{} requests sent again in {} go-back-N episodes{cost}: they or their ACKs were lost; check symbol errors and discards of the \
                 ports on the path, and the time-out of the queue pair",
                group(repeats.request_packets),
                group(health.episodes)
            ),
        );
        say(
            repeats.response_packets,
            format!(
                "{} READ or atomic responses sent again: responses were lost on the way to the receiver of this row; check the ports on that path",
                group(repeats.response_packets)
            ),
        );
        say(
            health.cnp_packets,
            format!(
                "{} congestion notifications: what comes the other way meets congestion; look for incast or a slow receiver",
                group(health.cnp_packets)
            ),
        );
        say(
            health.fecn_packets + health.ecn_ce_packets,
            format!(
                "{} packets marked for congestion on their way (FECN {}, ECN {}): a queue on this path is full",
                group(health.fecn_packets + health.ecn_ce_packets),
                group(health.fecn_packets),
                group(health.ecn_ce_packets)
            ),
        );
        say(
            health.becn_packets,
            format!(
                "{} packets with BECN: the receiver of this row was asked to slow down",
                group(health.becn_packets)
            ),
        );
        say(
            health.icrc_bad_packets,
            format!(
                "{} packets with a wrong ICRC: damage inside an adapter or switch, or in the capture",
                group(health.icrc_bad_packets)
            ),
        );
        say(
            health.library_repeats,
            format!(
                "{} datagrams sent again by UCX: they or their ACKs were lost or late; check discards, and UCX_UD_TIMEOUT",
                group(health.library_repeats)
            ),
        );
        say(
            health.lost(),
            format!(
                "capture loss of {} packets ({} to {}): they were acknowledged and never seen; the mirror port or the sink dropped them",
                group(health.lost()),
                group(health.lost_at_least),
                group(health.lost_at_most)
            ),
        );
        say(
            health.open_psns,
            format!(
                "{} PSNs never seen, and no acknowledgement of them: lost on the path, or by a capture that lacks the other direction",
                group(health.open_psns)
            ),
        );
        say(
            health.late_packets,
            format!(
                "{} packets behind a later PSN: sent again after a loss before the capture, or out of order (several paths)",
                group(health.late_packets)
            ),
        );
        findings
    }
}

fn rows(profile: &Profile) -> Vec<Row<'_>> {
    let (ports, ranks) = (Who::new(profile, By::Endpoint), Who::new(profile, By::Rank));
    let row = |HealthRow { connection, health }: &HealthRow| {
        let connection = profile.connections.get(*connection as usize)?;
        Some(Row {
            connection,
            health: *health,
            endpoints: (ports.sender(connection), ports.receiver(connection)),
            ranks: (ranks.sender(connection), ranks.receiver(connection)),
        })
    };
    profile.health.iter().filter_map(row).collect()
}

fn totals(rows: &[Row<'_>]) -> (Health, Repeats) {
    rows.iter().fold(Default::default(), |(mut health, mut repeats): (Health, Repeats), row| {
        health += row.health;
        repeats += row.repeats();
        (health, repeats)
    })
}

/// For people: totals, then the ten connections with most to say.
#[must_use]
pub fn table(profile: &Profile) -> String {
    let mut rows = rows(profile);
    let (health, repeats) = totals(&rows);
    let mut lines: Vec<String> = Vec::new();
    let mut put = |label: &str, text: String| lines.push(format!("{label:<14}{text}"));
    put(
        "repeated",
        format!(
            "{} requests, {} responses, {} ACKs",
            group(repeats.request_packets),
            group(repeats.response_packets),
            group(repeats.acknowledge_packets)
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
    put("go-back-N", format!("{} episodes{cost}", group(health.episodes)));
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
    let pauses = &profile.coverage.pause_frames;
    for (sender, count) in pauses.iter().take(MAX_PAUSE_SENDERS) {
        put("pause", format!("{} frames from {sender}", group(*count)));
    }
    let checked = profile.coverage.icrc_ok + profile.coverage.icrc_bad;
    put("wrong ICRC", format!("{} of {} checked", group(profile.coverage.icrc_bad), group(checked)));
    put("late", format!("{} packets behind a later PSN", group(health.late_packets)));
    if health.acknowledge_packets > 0 {
        let per_ack = health.request_packets as f64 / health.acknowledge_packets as f64;
        put("ACKs", format!("{}, {per_ack:.2} request packets each", group(health.acknowledge_packets)));
    }
    put(
        "capture loss",
        format!(
            "{} requests, {} responses acknowledged and never seen ({} to {} packets); {} PSNs never seen and not acknowledged",
            group(health.lost_requests),
            group(health.lost_responses),
            group(health.lost_at_least),
            group(health.lost_at_most),
            group(health.open_psns)
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
            format!("{} lacks {} packets that another input has", input.name, group(input.coverage.missing_packets)),
        );
    }
    if health.one_sided_packets > 0 {
        put("one-sided", format!("{} packets seen at one of two ports only", group(health.one_sided_packets)));
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
    rows.retain(|row| row.severity() > 0);
    // Equal ones stay in the order of connections.
    rows.sort_by_key(|row| std::cmp::Reverse(row.severity()));
    if rows.is_empty() {
        lines.push("\nno connection has anything to look at".to_owned());
    } else {
        let shown = rows.len().min(WORST);
        lines.push(format!(
            "\nthe worst {shown} of {} connections with something to look at:",
            group(rows.len() as u64)
        ));
    }
    for row in rows.iter().take(WORST) {
        lines.push(row.who());
        lines.extend(row.findings().into_iter().map(|finding| format!("    {finding}")));
    }
    lines.push(String::new());
    lines.join("\n")
}

/// One line per connection with something to say: the connection, its repeats, and the columns of [`Health`].
pub fn csv(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{},{}", COLUMNS.join(","), Health::COLUMNS.join(","))?;
    for row in rows(profile) {
        let values: Vec<String> = cells(&row).iter().map(|(_, value)| text(value)).collect();
        writeln!(out, "{}", values.join(","))?;
    }
    Ok(())
}

/// One object: totals, pause frames, what each input lacks, and the lines of the csv as objects.
pub fn json(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let rows = rows(profile);
    let (health, repeats) = totals(&rows);
    let mut total = object(health_cells(&health));
    total.extend(object(repeats_cells(&repeats)));
    let inputs = profile.inputs.iter();
    let inputs: Vec<Value> = inputs
        .map(|input| json!({ "name": input.name, "missing_packets": input.coverage.missing_packets, "interface_drops": input.coverage.interface_drops }))
        .collect();
    let connections = rows.iter().map(|row| {
        let mut connection = object(cells(row));
        connection.insert("findings".to_owned(), json!(row.findings()));
        Value::Object(connection)
    });
    let document = json!({
        "schema": "ibscope health",
        "version": 1,
        "total": total,
        "pause_frames": profile.coverage.pause_frames,
        "inputs": inputs,
        "connections": connections.collect::<Vec<_>>(),
    });
    writeln!(out, "{document:#}")
}

type Cell = (&'static str, Value);

fn cells(row: &Row<'_>) -> Vec<Cell> {
    let rank = |label: &Label| match label {
        Label::Rank(rank) => json!(rank),
        _ => Value::Null,
    };
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
    own.chain(repeats_cells(&row.repeats())).chain(health_cells(&row.health)).collect()
}

fn repeats_cells(repeats: &Repeats) -> Vec<Cell> {
    let values = [repeats.request_packets, repeats.response_packets, repeats.acknowledge_packets];
    COLUMNS.into_iter().skip(COLUMNS.len() - values.len()).zip(values.map(Value::from)).collect()
}

fn health_cells(health: &Health) -> Vec<Cell> {
    Health::COLUMNS.into_iter().zip(health.values().map(Value::from)).collect()
}

fn object(cells: Vec<Cell>) -> Map<String, Value> {
    cells.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
