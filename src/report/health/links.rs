//! Health per link: what lies between a port and its switch, each direction for itself.
//!
//! ```text
//! port A ==from A==> switch ... switch ==to B==> port B
//! ```
//! A packet from A to B passes two of them, so it counts at both, and so does all that was observed of it: a packet that is sent again shows both links,
//! and the one that they have in common with others tells which is bad. Links between switches carry any of it and are not told apart.
//!
//! Responses are lost the other way than the requests whose row they stand in, and are counted there. A packet that one of two places of observation
//! lacks was missed at one of two links, no one knows which: half of such packets are in the estimate, none in its lower bound, all in the upper.

use super::super::units::{bytes, counted, group};
use super::row::severity;
use crate::model::profile::Repeats;
use crate::model::{Health, Kind, Profile};
use crate::report::columns::columns;
use ibscope_parsers::Endpoint;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Links with a sentence on what to look at.
const WORST: usize = 10;
/// Links in the table for people.
const MOST_ROWS: usize = 40;

/// Which way packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Direction {
    From,
    To,
}

impl Direction {
    const fn name(self) -> &'static str {
        match self {
            Self::From => "from",
            Self::To => "to",
        }
    }
}

/// Sums of one direction of a link.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    connections: u64,
    packets: u64,
    wire_bytes: u64,
    repeats: Repeats,
    health: Health,
    /// Never seen at all: best estimate, bounds.
    lost: [u64; 3],
}

impl Link {
    /// Packets that one of two places of observation lacks.
    const fn at_one_place(&self) -> u64 {
        self.health.one_sided_packets + self.health.missing_in_other_inputs
    }

    /// Packets that the capture of this link missed: best estimate, at least, at most; and the same as shares of those that passed.
    fn capture_loss(&self) -> [(u64, f64); 3] {
        let single = self.at_one_place();
        let [lost, least, most] = self.lost;
        [(lost, single.div_ceil(2)), (least, 0), (most, single)].map(|(unseen, missed)| {
            let passed = (self.packets + unseen).max(1);
            // What other inputs lack may be more than what counts, where there are several of them.
            (unseen + missed, ((unseen + missed) as f64 / passed as f64).min(1.0))
        })
    }

    const fn repeated(&self) -> u64 {
        self.repeats.request_packets + self.repeats.response_packets + self.repeats.acknowledge_packets
    }

    fn severity(&self) -> u64 {
        severity(&self.health, &self.repeats).saturating_add(self.at_one_place())
    }

    /// What to look at next.
    fn findings(&self, direction: Direction) -> Vec<String> {
        let health = &self.health;
        let mut findings = Vec::new();
        let damaged = health.icrc_bad_packets + health.vcrc_bad_packets;
        if damaged > 0 {
            findings.push(format!("{}: symbol errors and cable of this link", counted(damaged, "damaged packet")));
        }
        if self.repeated() > 0 {
            findings.push(format!(
                "{} sent again pass here: symbol errors and discards at both ends, first of the links with most of them",
                counted(self.repeated(), "packet")
            ));
        }
        if health.rnr_naks > 0 && direction == Direction::From {
            findings.push(format!(
                "{}: receive buffers of the processes at this port",
                counted(health.rnr_naks, "RNR NAK")
            ));
        }
        let marked = health.fecn_packets + health.ecn_ce_packets;
        if marked > 0 && direction == Direction::To {
            findings.push(format!(
                "{} marked for congestion on the way here: incast, or a receiver that is slow",
                counted(marked, "packet")
            ));
        }
        if health.cnp_packets > 0 && direction == Direction::To {
            findings.push(format!("{}: this port sends into congestion", counted(health.cnp_packets, "notification")));
        }
        let [(lost, _), ..] = self.capture_loss();
        if lost > 0 {
            findings.push(format!(
                "some {} missed by the capture: the mirror session, or the sink",
                counted(lost, "packet")
            ));
        }
        findings
    }
}

type Links = BTreeMap<(Endpoint, Direction), Link>;

/// All links that carried packets of applications.
fn links(profile: &Profile) -> Links {
    let mut links = Links::new();
    for connection in profile.connections.iter().filter(|connection| connection.kind == Kind::Data) {
        for end in [(connection.src, Direction::From), (connection.dst, Direction::To)] {
            let link = links.entry(end).or_default();
            link.connections += 1;
            link.packets += connection.traffic.packets;
            link.wire_bytes += connection.traffic.wire_bytes;
            link.repeats += connection.repeats;
        }
    }
    for row in &profile.health {
        let Some(connection) = profile.connections.get(row.connection as usize) else { continue };
        let health = &row.health;
        // Of responses the estimate is exact, so what is left of the bounds is about requests.
        let responses = health.lost_responses;
        let bounds = [health.lost_at_least, health.lost_at_most].map(|bound| bound.saturating_sub(responses));
        let requests = [health.lost_requests, bounds[0], bounds[1]];
        let ends = |src, dst| [(src, Direction::From), (dst, Direction::To)];
        for end in ends(connection.src, connection.dst) {
            let link = links.entry(end).or_default();
            link.health += *health;
            add(&mut link.lost, requests);
        }
        for end in ends(connection.dst, connection.src).into_iter().filter(|_| responses > 0) {
            add(&mut links.entry(end).or_default().lost, [responses; 3]);
        }
    }
    links
}

fn add(sums: &mut [u64; 3], more: [u64; 3]) {
    sums.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.saturating_add(more));
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
        let findings = link.findings(*direction);
        if !findings.is_empty() {
            lines.push(format!("\n{} port {}", direction.name(), name(endpoint)));
            lines.extend(findings.into_iter().map(|finding| format!("    {finding}")));
        }
    }
    lines.push(String::new());
    lines.join("\n")
}

/// Names and values of a link, in the order of the csv.
fn cells(endpoint: &Endpoint, direction: Direction, link: &Link) -> Vec<(&'static str, Value)> {
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
    let header = cells(&Endpoint::from_lid(ibscope_parsers::Lid(0)), Direction::From, &Link::default());
    let header: Vec<&str> = header.iter().map(|(name, _)| *name).collect();
    writeln!(out, "{}", header.join(","))?;
    for ((endpoint, direction), link) in &links(profile) {
        let values: Vec<String> =
            cells(endpoint, *direction, link).iter().map(|(_, value)| super::text(value)).collect();
        writeln!(out, "{}", values.join(","))?;
    }
    Ok(())
}

/// The lines of the csv as objects, with what to look at.
pub(super) fn json(profile: &Profile) -> Vec<Value> {
    let object = |((endpoint, direction), link): (&(Endpoint, Direction), &Link)| {
        let mut object = super::object(cells(endpoint, *direction, link));
        object.insert("findings".to_owned(), json!(link.findings(*direction)));
        Value::Object(object)
    };
    links(profile).iter().map(object).collect()
}
