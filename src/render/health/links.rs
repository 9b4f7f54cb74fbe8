//! Health per link as terminal table, csv and JSON, with findings.

use crate::analysis::health::{Link, LinkDirection, Links, links};
use crate::model::Profile;
use crate::model::column::ColumnUnit::{Bytes, Count, Name, Percent};
use crate::render::table::Table;
use crate::render::units::{count_of, group};
use ibscope_parsers::Endpoint;
use serde_json::{Value, json};
use std::io::{self, Write};

/// Number of links whose findings are printed.
const WORST: usize = 10;
/// Maximum number of rows of the terminal table.
const MAX_ROWS: usize = 40;

/// One sentence per problem of a link: how often it occurred, and what to check next.
fn findings(row: &LinkRow<'_>) -> Vec<String> {
    let LinkRow { link, direction, is_sampled, .. } = *row;
    let health = &link.health;
    let mut findings = Vec::new();
    let damaged = health.icrc_bad_packets + health.vcrc_bad_packets;
    if damaged > 0 {
        findings
            .push(format!("{}: check symbol errors and the cable of this link", count_of(damaged, "damaged packet")));
    }
    if link.retransmitted_packets() > 0 {
        findings.push(format!(
            "{} on this link: check symbol errors and discards at both ends, starting with the links that have most of them",
            count_of(link.retransmitted_packets(), "retransmitted packet")
        ));
    }
    if health.rnr_naks > 0 && direction == LinkDirection::From {
        findings.push(format!(
            "{}: the processes at this port post too few receive buffers",
            count_of(health.rnr_naks, "RNR NAK")
        ));
    }
    let congested = health.fecn_packets + health.ecn_ce_packets;
    if congested > 0 && direction == LinkDirection::To {
        findings.push(format!(
            "{} with FECN or ECN on the way to this port: check for incast or a slow receiver",
            count_of(congested, "packet")
        ));
    }
    if health.cnp_packets > 0 && direction == LinkDirection::To {
        findings
            .push(format!("{}: this port sends into a congested path", count_of(health.cnp_packets, "notification")));
    }
    let [(lost, _), ..] = link.capture_loss();
    if lost > 0 && !is_sampled {
        findings.push(format!(
            "about {} missed by the capture: check the mirror session and the sink",
            count_of(lost, "packet")
        ));
    }
    findings
}

/// Columns that a narrow terminal leaves out, in this order.
const LEFT_OUT: [&str; 7] = ["bytes retransmitted", "on the wire", "VCRC", "ICRC", "FECN, ECN", "CNP", "RNR"];

/// The terminal table of at most `width` columns: the worst links first, then their findings.
#[must_use]
pub fn table(profile: &Profile, width: Option<usize>) -> String {
    let links = links(profile);
    let mut rows: Vec<LinkRow<'_>> = rows(profile, &links).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.link.severity()));
    let mut lines = vec![columns().text_within(&rows[..rows.len().min(MAX_ROWS)], width, &LEFT_OUT)];
    if rows.len() > MAX_ROWS {
        lines.push(format!(
            "the worst {MAX_ROWS} of {} link directions; --format csv or json lists all",
            group(rows.len() as u64)
        ));
    }
    for row in rows.into_iter().take(WORST) {
        let findings = findings(&row);
        if !findings.is_empty() {
            lines.push(format!("\n{} port {}", row.direction.name(), row.port()));
            lines.extend(findings.into_iter().map(|finding| format!("    {finding}")));
        }
    }
    lines.push(String::new());
    lines.join("\n")
}

/// One direction of a link, a row of the output.
pub(in crate::render) struct LinkRow<'a> {
    endpoint: &'a Endpoint,
    /// Name of the port, if it is known.
    name: Option<&'a str>,
    direction: LinkDirection,
    link: &'a Link,
    is_sampled: bool,
}

impl LinkRow<'_> {
    /// A value that a sample does not show; `None` in a sampled capture.
    fn of_all_packets<T>(&self, value: impl FnOnce(&Self) -> T) -> Option<T> {
        (!self.is_sampled).then(|| value(self))
    }

    /// Share of the packets that the capture missed, in percent. `bound` selects the best estimate
    /// (0), the lower bound (1) or the upper bound (2).
    fn lost_percent(&self, bound: usize) -> f64 {
        self.link.capture_loss()[bound].1 * 100.0
    }

    /// The port with its name.
    fn port(&self) -> String {
        match self.name {
            Some(name) => format!("{} {name}", self.endpoint),
            None => self.endpoint.to_string(),
        }
    }

    /// The packets that the capture missed, their bounds and their share.
    fn loss(&self) -> String {
        match self.link.capture_loss() {
            _ if self.is_sampled => "unknown".to_owned(),
            [_, _, (0, _)] => "0".to_owned(),
            [(lost, share), (least, _), (most, _)] => {
                format!("{} ({} to {}), {:.2} %", group(lost), group(least), group(most), share * 100.0)
            }
        }
    }
}

/// The columns of `health --by link`.
pub(in crate::render) fn columns<'a>() -> Table<LinkRow<'a>> {
    Table::new("ibscope health --by link --format csv")
        .column("endpoint", Name, "the port", |row: &LinkRow<'_>| row.endpoint.to_string())
        .shown_left("port", LinkRow::port)
        .column("direction", Name, "`from` the port to its switch, or `to` the port", |row| row.direction.name())
        .headed("direction")
        .column("connections", Count, "connections whose packets passed", |row| row.link.connections)
        .column("packets", Count, "packets that passed", |row| row.link.packets)
        .headed("packets")
        .column("wire_bytes", Bytes, "bytes of these packets on the wire", |row| row.link.wire_bytes)
        .headed("on the wire")
        .column(
            "retransmitted_packets",
            Count,
            "retransmissions among them, duplicate acknowledgements included",
            |row| row.of_all_packets(|row| row.link.retransmitted_packets()),
        )
        .headed("retransmitted")
        .column("retransmitted_wire_bytes", Bytes, "bytes of these retransmissions on the wire", |row| {
            row.of_all_packets(|row| row.link.retransmissions.wire_bytes)
        })
        .headed("bytes retransmitted")
        .column("naks", Count, "NAKs of all kinds but RNR", |row| row.link.health.naks())
        .headed("NAK")
        .column("nak_sequence", Count, "NAKs for a PSN sequence error", |row| row.link.health.nak_sequence)
        .column("rnr_naks", Count, "RNR NAKs: the receiver had no receive buffer", |row| row.link.health.rnr_naks)
        .headed("RNR")
        .column("cnp_packets", Count, "congestion notifications", |row| row.link.health.cnp_packets)
        .headed("CNP")
        .column("fecn_packets", Count, "packets with FECN", |row| row.link.health.fecn_packets)
        .column("becn_packets", Count, "packets with BECN that are not congestion notifications", |row| {
            row.link.health.becn_packets
        })
        .column("ecn_ce_packets", Count, "RoCE packets with ECN \"congestion experienced\"", |row| {
            row.link.health.ecn_ce_packets
        })
        .shown("FECN, ECN", |row| group(row.link.health.fecn_packets + row.link.health.ecn_ce_packets))
        .column("icrc_bad_packets", Count, "packets with a wrong ICRC", |row| row.link.health.icrc_bad_packets)
        .headed("ICRC")
        .column("vcrc_bad_packets", Count, "native packets with a wrong VCRC", |row| row.link.health.vcrc_bad_packets)
        .headed("VCRC")
        .column(
            "single_observation_packets",
            Count,
            "packets that were observed at only one of the two observation points of a file",
            |row| row.of_all_packets(|row| row.link.health.single_observation_packets),
        )
        .column(
            "missing_in_other_inputs",
            Count,
            "packets that other inputs do not hold, although those inputs overlap in time and observe the connection",
            |row| row.of_all_packets(|row| row.link.health.missing_in_other_inputs),
        )
        .column("lost_packets", Count, "packets that the capture missed, best estimate", |row| {
            row.of_all_packets(|row| row.link.capture_loss()[0].0)
        })
        .shown_left("capture loss", LinkRow::loss)
        .column("lost_at_least", Count, "lower bound of `lost_packets`", |row| {
            row.of_all_packets(|row| row.link.capture_loss()[1].0)
        })
        .column("lost_at_most", Count, "upper bound of `lost_packets`", |row| {
            row.of_all_packets(|row| row.link.capture_loss()[2].0)
        })
        .column("lost_percent", Percent, "`lost_packets` divided by the sum of captured and lost packets", |row| {
            row.of_all_packets(|row| row.lost_percent(0))
        })
        .decimals(4)
        .column("lost_percent_at_least", Percent, "lower bound of `lost_percent`", |row| {
            row.of_all_packets(|row| row.lost_percent(1))
        })
        .decimals(4)
        .column("lost_percent_at_most", Percent, "upper bound of `lost_percent`", |row| {
            row.of_all_packets(|row| row.lost_percent(2))
        })
        .decimals(4)
}

fn rows<'a>(profile: &'a Profile, links: &'a Links) -> impl Iterator<Item = LinkRow<'a>> {
    links.iter().map(move |((endpoint, direction), link)| LinkRow {
        endpoint,
        name: profile.names.get(endpoint).map(String::as_str),
        direction: *direction,
        link,
        is_sampled: profile.sampling.is_some(),
    })
}

/// Writes one csv row per link and direction.
pub fn csv(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let links = links(profile);
    columns().csv(rows(profile, &links), out)
}

/// The csv rows as JSON objects, with the findings.
pub(super) fn json(profile: &Profile) -> Vec<Value> {
    let links = links(profile);
    columns().objects_with(rows(profile, &links), "findings", |row| json!(findings(row)))
}
