//! Problems on the fabric and capture loss: totals, and the worst connections.
//!
//! In: a profile. Out: terminal text, csv and JSON. A row is one direction between two queue pairs
//! and counts the packets of that direction, even those that concern the other one: `src` sends
//! NAKs and RNR NAKs about the requests of `dst`, and a congestion notification from `src` asks
//! `dst` to slow down. All columns count transmissions; mirror copies do not count. Management and
//! multicast traffic has no rows.

mod description;
mod findings;
mod links;
mod pause_times;
mod pauses;
mod time_series;

pub(super) use links::columns as columns_of_links;
pub use links::{csv as links_csv, table as links_table};
pub(super) use pause_times::{columns as columns_of_pause_times, without_bin as pauses_without_bin};
pub use pause_times::{pause_times_csv, pause_times_table};
pub(super) use pauses::columns as columns_of_pauses;
pub use pauses::{csv as pauses_csv, table as pauses_table};
pub(super) use time_series::{CONGESTION_NAMES, columns as columns_of_time_series};
pub use time_series::{time_series_csv, time_series_json, time_series_table};

use super::table::{Table, write_document};
use super::units::count_of;
use crate::analysis::health::{
    self, ConnectionHealth, MirrorLoad, PauseTimes, column_totals, connections, mirror_load, slowdown,
};
use crate::model::column::ColumnUnit::{Name, Number, Ratio};
use crate::model::link::Speed;
use crate::model::profile::RetransmissionSums;
use crate::model::{Health, Profile};
use description::describe;
use findings::{connection_label, findings};
use ibscope_parsers::Qpn;
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// Number of connections in the terminal output.
const WORST: usize = 10;

/// The terminal output: totals, then the ten worst connections.
#[must_use]
pub fn table(profile: &Profile, speed: Option<&Speed>) -> String {
    let overview = overview(profile, speed, WORST);
    let mut lines: Vec<String> =
        overview.totals.into_iter().map(|(label, text)| format!("{label:<14}{text}")).collect();
    if overview.worst.is_empty() {
        lines.push("\nno connection has findings".to_owned());
    } else {
        let (shown, all) = (overview.worst.len(), count_of(overview.connections as u64, "connection"));
        lines.push(format!("\nthe worst {shown} of {all} with findings:"));
    }
    for (connection_label, findings) in overview.worst {
        lines.push(connection_label);
        lines.extend(findings.into_iter().map(|finding| format!("    {finding}")));
    }
    lines.push(String::new());
    lines.join("\n")
}

/// The health of a profile as text.
pub(super) struct Overview {
    /// Labels and texts. A line with an empty label continues the line before it.
    pub(super) totals: Vec<(&'static str, String)>,
    /// Number of connections with findings.
    pub(super) connections: usize,
    /// The worst connections: label and findings.
    pub(super) worst: Vec<(String, Vec<String>)>,
}

/// The totals and at most `most` of the worst connections.
pub(super) fn overview(profile: &Profile, speed: Option<&Speed>, most: usize) -> Overview {
    let totals = describe(profile, speed);
    let mut rows: Vec<ConnectionHealth<'_>> = connections(profile).filter(|row| row.severity() > 0).collect();
    // The sort is stable: connections of equal severity keep their order.
    rows.sort_by_key(|row| std::cmp::Reverse(row.severity()));
    let worst = rows.iter().take(most).map(|row| (connection_label(row), findings(row))).collect();
    Overview { totals, connections: rows.len(), worst }
}

/// Rounds to three decimal places; more would not be meaningful.
fn three_digits(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// The columns of `health`, one row per connection.
pub(super) fn connections_table<'a>() -> Table<ConnectionHealth<'a>> {
    let is_known =
        |row: &ConnectionHealth<'_>, column: &str| health::is_known(column, row.connection.sampled.is_some());
    Table::new("ibscope health --format csv")
        .label("src", "sender of the packets: endpoint", |row: &ConnectionHealth<'_>| Some(&row.endpoints.0))
        .label("dst", "receiver of the packets: endpoint", |row| Some(&row.endpoints.1))
        .column("src_rank", Number, "rank of the sender; empty where it is not known", |row| row.ranks.0.rank())
        .column("dst_rank", Number, "rank of the receiver; empty where it is not known", |row| row.ranks.1.rank())
        .column("service", Name, "`RC`, `UC`, `UD` ...", ConnectionHealth::service)
        .column("src_qp", Number, "queue pair of the sender; empty where it is not known", |row| {
            row.connection.src_qp.map(Qpn::value)
        })
        .column("dest_qp", Number, "queue pair of the receiver", |row| row.connection.dest_qp.value())
        .known_counts(RetransmissionSums::COLUMNS, |row| row.retransmissions.values(), is_known)
        .known_counts(Health::COLUMNS, |row| row.health.values(), is_known)
        .column(
            "requests_per_ack",
            Ratio,
            "ACK coalescing: SEND, WRITE and FLUSH packets of this row (retransmissions do not count) per ACK of the reverse connection (NAKs and duplicate ACKs do not count); empty where the reverse connection is not known. READs do not count: their responses acknowledge them",
            |row| row.requests_per_ack.map(three_digits),
        )
        .column(
            "cnp_slowdown",
            Ratio,
            "`cnp_gap_after_ns` divided by `cnp_gap_before_ns`: factor by which requests were farther apart after a congestion notification",
            |row| slowdown(&row.health).map(three_digits),
        )
        .column("job", Number, "number of the job; empty where the connection belongs to none", |row| row.ranks.0.job())
        .column("class", Name, "class of the connection: `mpi`, `nccl`, `nvmeof` ... or `unknown`", |row| {
            row.connection.class.name()
        })
}

/// Writes one csv row per connection, without the totals.
pub fn csv(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    connections_table().csv(connections(profile), out)
}

/// The load of the sink's link as JSON.
fn mirror_json(load: &MirrorLoad) -> Value {
    json!({
        "bytes_per_s": load.bytes_per_s.round(),
        "window_ns": load.window_ns,
        "from_ns": load.from_ns,
        "link_percent": three_digits(load.link_percent),
        "is_full": load.is_full(),
    })
}

/// Writes one JSON object: totals, pause frames, missing packets of each input, the csv rows, and
/// the findings on traffic classes, partitions and ECMP paths.
pub fn json(profile: &Profile, speed: Option<&Speed>, out: &mut dyn Write) -> io::Result<()> {
    let total = column_totals(profile).into_iter().map(|(column, count)| (column.name.to_owned(), json!(count)));
    let inputs = profile.inputs.iter();
    let inputs: Vec<Value> = inputs
        .map(|input| json!({ "name": input.name, "missing_packets": input.coverage.missing_packets, "interface_drops": input.coverage.interface_drops, "lost_mirrored_frames": input.coverage.lost_mirrored_frames() }))
        .collect();
    let connections = connections_table().objects_with(connections(profile), "findings", |row| json!(findings(row)));
    let members = json!({
        "trust": profile.trust,
        "total": total.collect::<Map<_, _>>(),
        "pauses": pauses::rows_json(&profile.coverage, speed),
        "pause_times": pause_times::times_json(&PauseTimes::of(profile), speed),
        "links": links::json(profile),
        "inputs": inputs,
        "mirror": speed.and_then(|speed| mirror_load(profile, speed)).as_ref().map(mirror_json),
        "connections": connections,
        "paths": super::paths::findings_json(profile),
    });
    write_document(out, "ibscope health", 2, members)
}
