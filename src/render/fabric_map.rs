//! The traffic on the links of a fabric as terminal text, csv and JSON.

use super::table::{Table, write_document};
use super::units::{bytes, count_of, group, wrap};
use crate::analysis::fabric_map::{
    FabricMap, LinkLoad, LinkTraffic, MappingTarget, NoMapping, NoRoute, ProcessMove, ProcessPlacement,
};
use crate::analysis::observed_ports::PORTS_MAY_BE_MISSING;
use crate::model::column::ColumnUnit::{Bytes, Count, Flag, Name, Number};
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Version of the JSON document.
const VERSION: u32 = 1;
/// Rows of each list in the terminal text.
const LISTED: usize = 20;

/// The columns of links.
pub(super) fn links_table() -> Table<LinkLoad> {
    Table::new("ibscope map --format csv")
        .name("from_name", "description of the node that sends", |row: &LinkLoad| Some(&row.from_name))
        .headed("from")
        .column("from_guid", Name, "GUID of the port that sends, hexadecimal", |row| guid(row.from.guid))
        .column("from_port", Number, "its number", |row| u32::from(row.from.number))
        .headed("port")
        .name("to_name", "description of the node that receives", |row| Some(&row.to_name))
        .headed("to")
        .column("to_guid", Name, "GUID of the port that receives, hexadecimal", |row| guid(row.to.guid))
        .column("to_port", Number, "its number", |row| u32::from(row.to.number))
        .headed("port")
        .column("between_switches", Flag, "true if both nodes are switches", LinkLoad::is_between_switches)
        .column("pairs", Count, "pairs of ports whose route has the link", |row| row.traffic.pairs)
        .headed("pairs")
        .column("payload_bytes", Bytes, "their InfiniBand payload bytes", |row| row.traffic.payload_bytes)
        .column("wire_bytes", Bytes, "their bytes on the wire", |row| row.traffic.wire_bytes)
        .column(
            "upper_wire_bytes",
            Bytes,
            "upper bound: the same bytes plus those of pairs that may use the link, because several shortest paths exist, or because their routes are unknown; empty if the captures may not show all ports",
            |row| row.upper_wire_bytes,
        )
        .shown("on the wire", on_wire)
}

/// The columns of a placement.
fn moves_table() -> Table<ProcessMove> {
    Table::new("ibscope map --format json")
        .name("node", "node that the processes run on", |row: &ProcessMove| Some(&row.node))
        .headed("processes of")
        .name("to_node", "node that they move to", |row| Some(&row.to_node))
        .headed("move to")
}

fn guid(guid: u64) -> String {
    format!("{guid:#018x}")
}

fn on_wire(link: &LinkLoad) -> String {
    let least = bytes(link.traffic.wire_bytes);
    match link.upper_wire_bytes {
        Some(_) if link.is_known() => least,
        Some(upper) => format!("{least} to {}", bytes(upper)),
        None => format!("≥ {least}"),
    }
}

/// The terminal text.
#[must_use]
pub fn text(map: &FabricMap) -> String {
    let hosts = count_of(map.host_ports as u64, "host port");
    let switches = if map.switches == 1 { "1 switch".to_owned() } else { format!("{} switches", map.switches) };
    let mut text = format!(
        "fabric    {hosts}, {switches}, {}\nroutes    {}\ntraffic   {} between {}: {} on the wire\n",
        count_of(map.cables as u64, "cable"),
        if map.has_tables { "from the forwarding tables" } else { "shortest paths" },
        count_of(map.traffic.pairs, "pair"),
        count_of(map.ports as u64, "port"),
        bytes(map.traffic.wire_bytes),
    );
    if map.left_out_bytes() > 0 {
        _ = writeln!(text, "no route  {} more on the wire", bytes(map.left_out_bytes()));
    }
    if map.traffic.wire_bytes > 0 {
        let mean = map.hop_bytes as f64 / map.traffic.wire_bytes as f64;
        _ = writeln!(text, "hop-bytes {}: each byte takes {mean:.2} links on average", bytes(map.hop_bytes));
    }
    _ = writeln!(text, "hottest   {}", hottest(map));
    let (uplinks, host_links): (Vec<_>, Vec<_>) = map.links.iter().partition(|link| link.is_between_switches());
    for (heading, links) in [("links between switches", uplinks), ("links of hosts", host_links)] {
        if links.is_empty() {
            continue;
        }
        let more = links.len().saturating_sub(LISTED);
        let shown = links.into_iter().take(LISTED);
        _ = writeln!(text, "\n{heading}, most bytes first\n{}", links_table().text(shown));
        if more > 0 {
            _ = writeln!(text, "{} more; csv and json have all", group(more as u64));
        }
    }
    _ = write!(text, "\n{}", placement(map));
    map.mapping.iter().for_each(|mapping| _ = write!(text, "\n{}", self::mapping(mapping)));
    text
}

fn hottest(map: &FabricMap) -> String {
    let Some(link) = map.hottest() else {
        return unknown_hottest(map)
            .map_or_else(|| "no traffic between switches".to_owned(), |reason| format!("unknown, because {reason}"));
    };
    let (from, to) = (&link.from, &link.to);
    format!(
        "{} port {} to {} port {}, {}",
        link.from_name,
        from.number,
        link.to_name,
        to.number,
        bytes(link.traffic.wire_bytes)
    )
}

/// Reason why the hottest link is unknown, if traffic may be on a link between switches.
fn unknown_hottest(map: &FabricMap) -> Option<&'static str> {
    if map.is_partial {
        Some(PORTS_MAY_BE_MISSING)
    } else if map.has_open_routes() {
        Some("several shortest paths exist; give --routes")
    } else {
        (map.left_out_bytes() > 0).then_some("the routes of some traffic are unknown")
    }
}

fn placement(map: &FabricMap) -> String {
    let found = match &map.placement {
        Ok(found) => found,
        Err(reason) => return format!("{}\n", wrap(&format!("placement: unknown, because {}", reason.because()), 80)),
    };
    if found.moves.is_empty() {
        return "placement: no swap of two nodes gives fewer hop-bytes\n".to_owned();
    }
    if (found.before_hop_bytes - found.after_hop_bytes).saturating_mul(1000) < found.before_hop_bytes {
        return "placement: swaps of nodes save less than 0.1 % of the hop-bytes\n".to_owned();
    }
    let unfinished = if found.is_unfinished { "; the search was not finished" } else { "" };
    let sentence = format!("placement: {} if nodes swap their processes{unfinished}", change(found));
    sentence_and_moves(&sentence, found)
}

/// The line and the moves of a mapping that the user gave.
fn mapping(mapping: &Result<ProcessPlacement, NoMapping>) -> String {
    match mapping {
        Ok(found) => sentence_and_moves(&format!("mapping: {}", change(found)), found),
        Err(reason) => format!("{}\n", wrap(&format!("mapping: unknown, because {}", reason.because()), 80)),
    }
}

fn sentence_and_moves(sentence: &str, found: &ProcessPlacement) -> String {
    let mut text = format!("{}\n", wrap(sentence, 80));
    if found.moves.is_empty() {
        return text;
    }
    let moves = found.moves.iter().take(LISTED);
    _ = writeln!(text, "{}", moves_table().text(moves));
    let more = found.moves.len().saturating_sub(LISTED);
    if more > 0 {
        _ = writeln!(text, "{} more; json has all", group(more as u64));
    }
    text
}

/// The change of the hop-bytes.
fn change(found: &ProcessPlacement) -> String {
    let (before, after) = (found.before_hop_bytes, found.after_hop_bytes);
    let direction = match after.cmp(&before) {
        Ordering::Less => "fewer",
        Ordering::Equal => return format!("as many hop-bytes ({})", bytes(before)),
        Ordering::Greater => "more",
    };
    let percent = 100.0 * before.abs_diff(after) as f64 / before as f64;
    format!("{percent:.1} % {direction} hop-bytes ({} instead of {})", bytes(after), bytes(before))
}

/// The nodes as a target of Scotch: the leaves of a tree that are nodes, in their order (Scotch user's
/// guide, target architectures `sub` and `tleaf`).
#[must_use]
pub fn scotch(target: &MappingTarget) -> String {
    let mut text = format!("sub\n{}", target.leaves.len());
    target.leaves.iter().for_each(|leaf| _ = write!(text, " {leaf}"));
    _ = write!(text, "\ntleaf {}", target.levels.len());
    target.levels.iter().for_each(|(children, links)| _ = write!(text, " {children} {links}"));
    text.push('\n');
    text
}

/// Sentences on the traffic that is on no link.
#[must_use]
pub fn left_out(map: &FabricMap) -> Vec<String> {
    let sentence = |(reason, traffic): (&NoRoute, &LinkTraffic)| {
        format!(
            "{} on the wire of {} are on no link: {}",
            bytes(traffic.wire_bytes),
            count_of(traffic.pairs, "pair"),
            reason.because()
        )
    };
    map.left_out.iter().map(sentence).collect()
}

/// Writes one csv row per link and direction.
pub fn csv(map: &FabricMap, out: &mut dyn Write) -> io::Result<()> {
    links_table().csv(&map.links, out)
}

/// Writes the whole map as one JSON object.
pub fn json(map: &FabricMap, out: &mut dyn Write) -> io::Result<()> {
    let left_out: Vec<Value> = map
        .left_out
        .iter()
        .map(|(reason, traffic)| {
            json!({ "pairs": traffic.pairs, "wire_bytes": traffic.wire_bytes, "because": reason.because() })
        })
        .collect();
    let document = json!({
        "host_ports": map.host_ports,
        "switches": map.switches,
        "cables": map.cables,
        "routes": if map.has_tables { "forwarding tables" } else { "shortest paths" },
        "ports": map.ports,
        "pairs": map.traffic.pairs,
        "payload_bytes": map.traffic.payload_bytes,
        "wire_bytes": map.traffic.wire_bytes,
        "hop_bytes": map.hop_bytes,
        "left_out": left_out,
        "hottest_link": map.hottest().map(|link| links_table().object(link)),
        "links": links_table().objects(&map.links),
        "placement": placement_object(&map.placement.as_ref().map_err(|reason| reason.because())),
        "mapping": map.mapping.as_ref().map(|own| placement_object(&own.as_ref().map_err(NoMapping::because))),
    });
    write_document(out, "ibscope map", VERSION, document)
}

fn placement_object(found: &Result<&ProcessPlacement, String>) -> Value {
    let known = found.as_ref().ok();
    json!({
        "hop_bytes_after": known.map(|found| found.after_hop_bytes),
        "moves": known.map(|found| moves_table().objects(&found.moves)).unwrap_or_default(),
        "is_unfinished": known.map(|found| found.is_unfinished),
        "unknown_because": found.as_ref().err(),
    })
}
