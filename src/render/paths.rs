//! Traffic classes, partitions and ECMP paths as terminal tables, csv and JSON, and the sentences
//! of their findings.

use super::table::{Table, write_document};
use super::units::{count_of, group};
use crate::analysis::paths::{
    ClassField, ClassRow, PairRow, PathFinding, PathProblem, PathTotals, TrafficClass, by_class, by_pair, findings,
};
use crate::model::Profile;
use crate::model::column::ColumnUnit::{Bytes, Count, Name, Number};
use crate::model::paths::p_key_text;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::{self, Write};

/// Version of the JSON document.
const VERSION: u32 = 2;
/// Findings that texts list one by one.
const LISTED_FINDINGS: usize = 10;

/// A row with sums.
trait HasTotals {
    fn totals(&self) -> &PathTotals;
}

impl HasTotals for ClassRow {
    fn totals(&self) -> &PathTotals {
        &self.totals
    }
}

impl HasTotals for PairRow {
    fn totals(&self) -> &PathTotals {
        &self.totals
    }
}

/// Adds the sums.
fn totals<R: HasTotals + 'static>(table: Table<R>) -> Table<R> {
    table
        .column("connections", Count, "directed connections with such packets", |row: &R| row.totals().connections)
        .headed("connec-\ntions")
        .column(
            "packets",
            Count,
            "packets; a packet and its mirror copy count once; management and multicast packets do not count",
            |row| row.totals().packets,
        )
        .headed("packets")
        .column("wire_bytes", Bytes, "bytes of these packets, from LRH to VCRC or the whole Ethernet frame", |row| {
            row.totals().wire_bytes
        })
        .headed("wire\nbytes")
        .column("retransmitted_packets", Count, "retransmitted packets", |row| row.totals().retransmitted_packets)
        .headed("retrans-\nmitted")
        .column("ecn_capable_packets", Count, "packets that switches can mark: ECN is not 0", |row| {
            row.totals().ecn_capable_packets
        })
        .column("ecn_ce_packets", Count, "packets with ECN \"congestion experienced\"", |row| {
            row.totals().ecn_ce_packets
        })
        .headed("ECN-\nCE")
}

fn shown<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Name and text of a field of a traffic class.
type FieldText = (&'static str, fn(&TrafficClass) -> Option<String>);

const FIELDS: [FieldText; 5] = [
    ("SL", |class| class.sl.map(|value| value.to_string())),
    ("VL", |class| class.vl.map(|value| value.to_string())),
    ("P_Key", |class| class.p_key.map(p_key_text)),
    ("DSCP", |class| class.dscp.map(|value| value.to_string())),
    ("PCP", |class| class.pcp.map(|value| value.to_string())),
];

/// A row with one or several traffic classes, of most packets first.
trait HasTrafficClasses {
    fn classes(&self) -> &[TrafficClass];
}

impl HasTrafficClasses for ClassRow {
    fn classes(&self) -> &[TrafficClass] {
        std::slice::from_ref(&self.class)
    }
}

impl HasTrafficClasses for PairRow {
    fn classes(&self) -> &[TrafficClass] {
        &self.classes
    }
}

/// Values of a field, each once, of most packets first.
fn values<'r, T: ToString>(
    row: &impl HasTrafficClasses,
    field: impl Fn(&TrafficClass) -> Option<T>,
) -> Vec<Cow<'r, str>> {
    let mut seen = BTreeSet::new();
    let texts = row.classes().iter().filter_map(field).map(|value| value.to_string());
    texts.filter(|text| seen.insert(text.clone())).map(Cow::Owned).collect()
}

/// Shows the fields that vary.
fn show_fields<R: HasTrafficClasses + 'static>(mut table: Table<R>, varying: &[bool]) -> Table<R> {
    for ((name, text), _) in FIELDS.into_iter().zip(varying).filter(|(_, is_shown)| **is_shown) {
        table = table.shown(name, move |row| {
            let texts = values(row, text);
            if texts.is_empty() { "-".to_owned() } else { texts.join(" ") }
        });
    }
    table
}

/// Which fields differ between rows, and a line with the fields that all rows have in common:
/// tables with all of them are wider than terminals.
fn common_fields<R: HasTrafficClasses>(rows: &[R]) -> (Vec<bool>, String) {
    let mut common = Vec::new();
    let varying = FIELDS.into_iter().map(|(name, text)| {
        let mut all: BTreeSet<Vec<Cow<'_, str>>> = rows.iter().map(|row| values(row, text)).collect();
        let first = all.pop_first().unwrap_or_default();
        if all.is_empty() && !first.is_empty() {
            common.push(format!("{name} {}", first.join(" ")));
        }
        !all.is_empty()
    });
    let varying = varying.collect();
    (varying, if common.is_empty() { String::new() } else { format!("all rows: {}\n", common.join(", ")) })
}

/// The columns of `paths`.
pub(super) fn classes_table() -> Table<ClassRow> {
    classes_table_of(&[true; FIELDS.len()])
}

fn classes_table_of(varying: &[bool]) -> Table<ClassRow> {
    Table::new("ibscope paths --format csv")
        .column("sl", Number, "service level in the LRH; empty on Ethernet", |row: &ClassRow| row.class.sl.map(u32::from))
        .column("vl", Number, "virtual lane in the LRH; empty on Ethernet", |row| row.class.vl.map(u32::from))
        .column("p_key", Name, "partition key in the BTH, hexadecimal; bit 15 marks a full member; empty for packets beyond the limit of combinations", |row| {
            row.class.p_key.map(p_key_text)
        })
        .column("dscp", Number, "DSCP in the IP header, or the upper six bits of the traffic class in the GRH of RoCEv1; empty on InfiniBand", |row| {
            row.class.dscp.map(u32::from)
        })
        .column("pcp", Number, "priority in the outermost VLAN tag; empty without a tag", |row| row.class.pcp.map(u32::from))
        .with(|table| show_fields(table, varying))
        .with(totals)
        .column("port_pairs", Count, "directed pairs of ports with such packets", |row| row.port_pairs)
        .headed("port\npairs")
        .column("fewest_udp_src_ports", Count, "smallest number of UDP source ports that a pair of ports uses; if 1, all packets of that pair take one ECMP path; empty without UDP", |row| {
            row.fewest_source_ports
        })
        .column("most_udp_src_ports", Count, "lower bound of the largest number of UDP source ports that a pair of ports uses", |row| row.most_source_ports)
        .shown("source\nports", |row| match (row.fewest_source_ports, row.most_source_ports) {
            (Some(fewest), Some(most)) if fewest != most => format!("{} to {}", group(fewest), group(most)),
            (fewest, _) => shown(fewest.map(group)),
        })
}

/// The columns of `paths --by pair`.
pub(super) fn pairs_table() -> Table<PairRow> {
    pairs_table_of(&[true; FIELDS.len()])
}

fn pairs_table_of(varying: &[bool]) -> Table<PairRow> {
    Table::new("ibscope paths --by pair --format csv")
        .label("src", "sender: endpoint", |row: &PairRow| Some(&row.src))
        .label("dst", "receiver: endpoint", |row| Some(&row.dst))
        .shown_left("from", |row| row.src.name())
        .shown_left("to", |row| row.dst.name())
        .list("sl", Name, "service levels, most frequent first; the lists in the next columns are sorted in the same way, each by itself: entries at the same position do not belong together", |row| {
            values(row, |class| class.sl)
        })
        .list("vl", Name, "virtual lanes", |row| values(row, |class| class.vl))
        .list("p_key", Name, "partition keys, hexadecimal", |row| values(row, |class| class.p_key.map(p_key_text)))
        .list("dscp", Name, "DSCP values", |row| values(row, |class| class.dscp))
        .list("pcp", Name, "priorities in VLAN tags", |row| values(row, |class| class.pcp))
        .with(|table| show_fields(table, varying))
        .with(totals)
        .column("udp_src_ports", Count, "lower bound of the number of UDP source ports; empty without UDP", |row| {
            row.source_ports
        })
        .headed("source\nports")
}

/// Shown for a profile without path fields.
const NO_PATHS: &str = "the profile has no path fields: it has no data traffic, or was written before ibscope read them; \
                        analyze the captures again\n";

/// The terminal table by traffic class, and the findings.
#[must_use]
pub fn table(profile: &Profile) -> String {
    let rows = by_class(profile);
    if rows.is_empty() {
        return NO_PATHS.to_owned();
    }
    let (varying, common) = common_fields(&rows);
    format!("{common}{}\n{}", classes_table_of(&varying).text(rows), findings_text(profile))
}

/// The terminal table by pair of ports, and the findings. If the table is wider than `width` columns,
/// it leaves out the connections, the packets with ECN-CE and the source ports, in this order, until it
/// fits.
#[must_use]
pub fn pairs(profile: &Profile, width: Option<usize>) -> String {
    let rows = by_pair(profile);
    if rows.is_empty() {
        return NO_PATHS.to_owned();
    }
    let (varying, common) = common_fields(&rows);
    format!(
        "{common}{}\n{}",
        pairs_table_of(&varying).text_within(&rows, width, &["connec-\ntions", "ECN-\nCE", "source\nports"]),
        findings_text(profile)
    )
}

fn findings_text(profile: &Profile) -> String {
    let sentences = sentences(profile);
    if sentences.is_empty() {
        return String::new();
    }
    format!("\n{}\n", sentences.join("\n"))
}

/// Writes one csv row per traffic class.
pub fn csv(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    classes_table().csv(by_class(profile), out)
}

/// Writes one csv row per pair of ports.
pub fn pairs_csv(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    pairs_table().csv(by_pair(profile), out)
}

/// Writes one JSON object with both tables and the findings.
pub fn json(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let members = json!({
        "classes": classes_table().objects(by_class(profile)),
        "pairs": pairs_table().objects(by_pair(profile)),
        "findings": findings_json(profile),
    });
    write_document(out, "ibscope paths", VERSION, members)
}

/// The findings as JSON.
pub(super) fn findings_json(profile: &Profile) -> Value {
    let value = |finding: &PathFinding| {
        json!({
            "finding": finding.problem.name(),
            "src": finding.src.to_string(),
            "dst": finding.dst.to_string(),
            "connections": finding.connections,
            "packets": finding.packets,
            "text": sentence(finding),
        })
    };
    findings(profile).iter().map(value).collect()
}

/// One sentence per finding, and one for those beyond the first ten.
pub(super) fn sentences(profile: &Profile) -> Vec<String> {
    let all = findings(profile);
    let mut lines: Vec<String> = all.iter().take(LISTED_FINDINGS).map(sentence).collect();
    if let Some(more @ 1..) = all.len().checked_sub(LISTED_FINDINGS) {
        lines.push(format!("{}; --format json lists all", count_of(more as u64, "more finding")));
    }
    lines
}

fn sentence(finding: &PathFinding) -> String {
    let PathFinding { src, dst, problem, connections, packets } = finding;
    let (src, dst) = (src.name(), dst.name());
    let connections = count_of(*connections, "connection");
    match *problem {
        PathProblem::OneDirection { field, forward, backward } => {
            let name = field.name().to_uppercase();
            let next = match field {
                ClassField::Sl => "the path record or the library's service level option",
                ClassField::Dscp => "the traffic class (TOS) that both libraries set",
                ClassField::Pcp => "the mapping of priorities at both hosts",
            };
            format!(
                "{src} -> {dst}: {connections} with {name} {forward}, and {name} {backward} in the opposite direction: the \
                 traffic class applies to one direction only; check {next}"
            )
        }
        PathProblem::OneSourcePort { port } => format!(
            "{src} -> {dst}: all {connections} send from UDP source port {port}: ECMP puts all of them on one path; check \
             the flow label setting of the adapter"
        ),
        PathProblem::UnexpectedPartition { p_key, usual } => format!(
            "{src} -> {dst}: {} of {connections} with P_Key {}; nearly all packets have {}: check the partitions of the \
             subnet manager, or the pkey option of the library",
            count_of(*packets, "packet"),
            p_key_text(p_key),
            p_key_text(usual)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::fixture::two_jobs;

    #[test]
    fn a_profile_without_path_fields_says_so() {
        assert_eq!(table(&two_jobs()), NO_PATHS);
        assert_eq!(pairs(&two_jobs(), None), NO_PATHS);
        assert!(sentences(&two_jobs()).is_empty());
    }
}
