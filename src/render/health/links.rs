//! Health per link as a table for people, csv and JSON, with what to look at.

use super::cell_text;
use crate::analysis::health::{Link, LinkDirection, links};
use crate::model::Profile;
use crate::render::columns::columns;
use crate::render::units::{bytes, counted, group};
use ibscope_parsers::Endpoint;
use serde_json::{Value, json};
use std::io::{self, Write};

/// Links with a sentence on what to look at.
const WORST: usize = 10;
/// Links in the table for people.
const MOST_ROWS: usize = 40;

/// What to look at next.
fn findings(link: &Link, direction: LinkDirection) -> Vec<String> {
    let health = &link.health;
    let mut findings = Vec::new();
    let damaged = health.icrc_bad_packets + health.vcrc_bad_packets;
    if damaged > 0 {
        findings.push(format!("{}: symbol errors and cable of this link", counted(damaged, "damaged packet")));
    }
    if link.repeated() > 0 {
        findings.push(format!(
            "{} sent again pass here: symbol errors and discards at both ends, first of the links with most of them",
            counted(link.repeated(), "packet")
        ));
    }
    if health.rnr_naks > 0 && direction == LinkDirection::From {
        findings
            .push(format!("{}: receive buffers of the processes at this port", counted(health.rnr_naks, "RNR NAK")));
    }
    let marked = health.fecn_packets + health.ecn_ce_packets;
    if marked > 0 && direction == LinkDirection::To {
        findings.push(format!(
            "{} marked for congestion on the way here: incast, or a receiver that is slow",
            counted(marked, "packet")
        ));
    }
    if health.cnp_packets > 0 && direction == LinkDirection::To {
        findings.push(format!("{}: this port sends into congestion", counted(health.cnp_packets, "notification")));
    }
    let [(lost, _), ..] = link.capture_loss();
    if lost > 0 {
        findings
            .push(format!("some {} missed by the capture: the mirror session, or the sink", counted(lost, "packet")));
    }
    findings
}

/// A table for people: the worst links first, and what to look at.
#[must_use]
pub fn table(profile: &Profile) -> String {
    let links = links(profile);
    let mut rows: Vec<_> = links.iter().collect();
    rows.sort_by_key(|(_, link)| std::cmp::Reverse(link.severity()));
    let name = |endpoint: &Endpoint| match profile.names.get(endpoint) {
        Some(name) => format!("{endpoint} {name}"),
        None => endpoint.to_string(),
    };
    let header = [
        "port",
        "way",
        "packets",
        "on the wire",
        "sent again",
        "bytes again",
        "NAK",
        "RNR",
        "CNP",
        "FECN, ECN",
        "ICRC",
        "VCRC",
        "capture loss",
    ];
    let mut table = columns(&header, 2..header.len() - 1);
    for ((endpoint, direction), link) in rows.iter().take(MOST_ROWS) {
        let health = &link.health;
        let loss = match link.capture_loss() {
            [_, _, (0, _)] => "0".to_owned(),
            [(lost, share), (least, _), (most, _)] => {
                format!("{} ({} to {}), {:.2} %", group(lost), group(least), group(most), share * 100.0)
            }
        };
        table.add_row([
            name(endpoint),
            direction.name().to_owned(),
            group(link.packets),
            bytes(link.wire_bytes),
            group(link.repeated()),
            bytes(link.repeats.wire_bytes),
            group(health.naks()),
            group(health.rnr_naks),
            group(health.cnp_packets),
            group(health.fecn_packets + health.ecn_ce_packets),
            group(health.icrc_bad_packets),
            group(health.vcrc_bad_packets),
            loss,
        ]);
    }
    let mut lines = vec![table.trim_fmt()];
    if rows.len() > MOST_ROWS {
        lines.push(format!(
            "the worst {MOST_ROWS} of {} directions of links; csv and json have all",
            group(rows.len() as u64)
        ));
    }
    for ((endpoint, direction), link) in rows.into_iter().take(WORST) {
        let findings = findings(link, *direction);
        if !findings.is_empty() {
            lines.push(format!("\n{} port {}", direction.name(), name(endpoint)));
            lines.extend(findings.into_iter().map(|finding| format!("    {finding}")));
        }
    }
    lines.push(String::new());
    lines.join("\n")
}

/// Names and values of a link, in the order of the csv.
fn cells(endpoint: &Endpoint, direction: LinkDirection, link: &Link) -> Vec<(&'static str, Value)> {
    let health = &link.health;
    let [(lost, share), (least, least_share), (most, most_share)] = link.capture_loss();
    let percent = |share: f64| json!((share * 1e6).round() / 1e4);
    vec![
        ("endpoint", json!(endpoint.to_string())),
        ("direction", json!(direction.name())),
        ("connections", json!(link.connections)),
        ("packets", json!(link.packets)),
        ("wire_bytes", json!(link.wire_bytes)),
        ("retransmitted_packets", json!(link.repeated())),
        ("retransmitted_wire_bytes", json!(link.repeats.wire_bytes)),
        ("naks", json!(health.naks())),
        ("nak_sequence", json!(health.nak_sequence)),
        ("rnr_naks", json!(health.rnr_naks)),
        ("cnp_packets", json!(health.cnp_packets)),
        ("fecn_packets", json!(health.fecn_packets)),
        ("becn_packets", json!(health.becn_packets)),
        ("ecn_ce_packets", json!(health.ecn_ce_packets)),
        ("icrc_bad_packets", json!(health.icrc_bad_packets)),
        ("vcrc_bad_packets", json!(health.vcrc_bad_packets)),
        ("one_sided_packets", json!(health.one_sided_packets)),
        ("missing_in_other_inputs", json!(health.missing_in_other_inputs)),
        ("lost_packets", json!(lost)),
        ("lost_at_least", json!(least)),
        ("lost_at_most", json!(most)),
        ("lost_percent", percent(share)),
        ("lost_percent_at_least", percent(least_share)),
        ("lost_percent_at_most", percent(most_share)),
    ]
}

/// One line per link and direction.
pub fn csv(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    // The names stand there whatever the values are.
    let header = cells(&Endpoint::from_lid(ibscope_parsers::Lid(0)), LinkDirection::From, &Link::default());
    let header: Vec<&str> = header.iter().map(|(name, _)| *name).collect();
    writeln!(out, "{}", header.join(","))?;
    for ((endpoint, direction), link) in &links(profile) {
        let values: Vec<String> = cells(endpoint, *direction, link).iter().map(|(_, value)| cell_text(value)).collect();
        writeln!(out, "{}", values.join(","))?;
    }
    Ok(())
}

/// The lines of the csv as objects, with what to look at.
pub(super) fn json(profile: &Profile) -> Vec<Value> {
    let object = |((endpoint, direction), link): (&(Endpoint, LinkDirection), &Link)| {
        let mut object = super::object(cells(endpoint, *direction, link));
        object.insert("findings".to_owned(), json!(findings(link, *direction)));
        Value::Object(object)
    };
    links(profile).iter().map(object).collect()
}
