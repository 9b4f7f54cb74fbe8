//! Phases as terminal table, csv and JSON.

use crate::analysis::Label;
use crate::analysis::matrix::MatrixCell;
use crate::analysis::phases::{Phase, PhaseCollective, Phases};
use crate::model::column::ColumnUnit::{Bytes, BytesPerSecond, Count, Flag, Name, Number, Ratio, Timestamp};
use crate::render::columns::rows_within;
use crate::render::table::groups::{self, HasCell, HasPair};
use crate::render::table::{Table, write_document};
use crate::render::units::{bytes, duration, group, seconds_since, time};
use serde_json::json;
use std::io::{self, Write};

/// One pair in the matrix of a phase.
pub(super) struct PhasePairRow<'a> {
    number: u64,
    phase: &'a Phase,
    src: &'a Label,
    dst: &'a Label,
    cell: &'a MatrixCell,
}

impl HasPair for PhasePairRow<'_> {
    fn pair(&self) -> Option<(&Label, &Label)> {
        Some((self.src, self.dst))
    }
}

impl HasCell for PhasePairRow<'_> {
    fn cell(&self) -> &MatrixCell {
        self.cell
    }
}

/// A collective operation of a phase.
pub(super) struct PhaseOperationRow<'a> {
    number: u64,
    phase: &'a Phase,
    collective: &'a PhaseCollective,
}

/// The columns of `phases --view phases`.
pub(super) fn phases_table() -> Table<Phase> {
    Table::new("ibscope phases --view phases --format csv")
        .column("from_ns", Timestamp, "start of the phase", |phase: &Phase| phase.from_ns)
        .column("to_ns", Timestamp, "end of the phase, exclusive", |phase| phase.to_ns)
        .column(
            "messages",
            Count,
            "MPI messages if an MPI library was detected in any phase, else transport messages",
            Phase::messages,
        )
        .column("mpi_bytes", Bytes, "MPI length of the messages; empty where no MPI library was detected", |phase| {
            phase.has_mpi.then(|| phase.bytes())
        })
        .column("payload_bytes", Bytes, "InfiniBand payload, without retransmissions", |phase| {
            phase.traffic.payload_bytes
        })
        .column("wire_bytes", Bytes, "bytes of all packets on the wire", |phase| phase.traffic.wire_bytes)
        .column("packets", Count, "all packets, with retransmissions", |phase| phase.traffic.packets)
        .column("p2p_messages", Count, "MPI messages, point-to-point", |phase| phase.traffic.p2p_messages)
        .column("collective_messages", Count, "MPI messages of collective operations", |phase| {
            phase.traffic.collective_messages
        })
        .column("pairs", Count, "pairs with traffic", |phase| phase.matrix.cells.len() as u64)
        .column("pattern", Name, "name of the communication pattern", |phase| phase.pattern.name.name())
        .column(
            "confidence",
            Ratio,
            "share of the pairs that match the pattern, times the share of the traffic that these pairs carry, 0 to 1",
            |phase| phase.pattern.confidence,
        )
        .decimals(3)
        .column("symmetric", Flag, "`true` if all pairs send both ways", |phase| phase.pattern.symmetric)
        .list("collectives", Name, "collective operations that were observed, separated by `;`", |phase| {
            phase.collectives.iter().map(|seen| seen.operation.as_str().into()).collect()
        })
        .column("wire_bytes_per_s", BytesPerSecond, "`wire_bytes` divided by the length of the phase", Phase::wire_rate)
}

/// The columns of `phases --view matrices`.
pub(super) fn matrices_table<'a>() -> Table<PhasePairRow<'a>> {
    Table::new("ibscope phases --view matrices --format csv")
        .column("phase", Number, "number of the phase, from 1", |row: &PhasePairRow<'_>| row.number)
        .column("from_ns", Timestamp, "start of the phase", |row| row.phase.from_ns)
        .column("to_ns", Timestamp, "end of the phase, exclusive", |row| row.phase.to_ns)
        .with(groups::cell)
}

/// The columns of `phases --view collectives`.
pub(super) fn operations_table<'a>() -> Table<PhaseOperationRow<'a>> {
    Table::new("ibscope phases --view collectives --format csv")
        .column("phase", Number, "number of the phase, from 1", |row: &PhaseOperationRow<'_>| row.number)
        .column("from_ns", Timestamp, "start of the phase", |row| row.phase.from_ns)
        .column("to_ns", Timestamp, "end of the phase, exclusive", |row| row.phase.to_ns)
        .name("operation", "a collective operation that was observed in the phase", |row| {
            Some(&row.collective.operation)
        })
        .column(
            "at_least_messages",
            Count,
            "lower bound of the operation's messages in this phase: those that cannot belong to another phase",
            |row| row.collective.at_least,
        )
}

fn numbered(phases: &Phases) -> impl Iterator<Item = (u64, &Phase)> {
    (1..).zip(&phases.phases)
}

fn pairs(phases: &Phases) -> impl Iterator<Item = PhasePairRow<'_>> {
    numbered(phases).flat_map(|(number, phase)| {
        phase.matrix.rows().map(move |(src, dst, cell)| PhasePairRow { number, phase, src, dst, cell })
    })
}

fn operations(phases: &Phases) -> impl Iterator<Item = PhaseOperationRow<'_>> {
    numbered(phases).flat_map(|(number, phase)| {
        phase.collectives.iter().map(move |collective| PhaseOperationRow { number, phase, collective })
    })
}

/// The terminal table: one line per phase, and one per pause between phases. If the table is wider
/// than `width` columns, it leaves out the messages by operation, the end, the rate and the number of
/// collective messages, in this order, until it fits.
#[must_use]
pub fn table(phases: &Phases, width: Option<usize>) -> String {
    if phases.phases.is_empty() {
        return "phases: no traffic\n".to_owned();
    }
    let header = [
        "",
        "from [s]",
        "to [s]",
        "duration",
        "messages",
        "bytes",
        "wire rate",
        "pattern",
        "",
        "collective",
        "collective messages (at least)",
    ];
    let mut rows = Vec::new();
    let mut before_ns = None;
    for (number, phase) in (1..).zip(&phases.phases) {
        if let Some(before_ns) = before_ns.filter(|ns| *ns < phase.from_ns) {
            let lasted = duration(phase.from_ns.saturating_sub(before_ns));
            rows.push(vec![String::new(), String::new(), String::new(), lasted, "pause".to_owned()]);
        }
        before_ns = Some(phase.to_ns);
        let certain = phase.collectives.iter().filter(|seen| seen.at_least > 0);
        let collectives: Vec<String> =
            certain.map(|seen| format!("{} {}", group(seen.at_least), seen.operation)).collect();
        let confidence = if phase.pattern.confidence > 0.0 {
            format!("{:.0} %", phase.pattern.confidence * 100.0)
        } else {
            String::new()
        };
        rows.push(vec![
            number.to_string(),
            seconds_since(phases.origin_ns, phase.from_ns),
            seconds_since(phases.origin_ns, phase.to_ns),
            length(phase.length_ns()),
            group(phase.messages()),
            bytes(phase.bytes()),
            format!("{}/s", bytes(phase.wire_rate().round() as u64)),
            phase.pattern.name.name().to_owned(),
            confidence,
            group(phase.traffic.collective_messages),
            collectives.join(", "),
        ]);
    }
    format!("{}\n", rows_within(&header, &[0, 1, 2, 3, 4, 5, 6, 8, 9], &rows, (width, &[10, 2, 6, 9])))
}

/// The length of a phase: exact if it is whole milliseconds, otherwise in three digits, because the
/// first phase starts at the time of the first packet.
fn length(ns: i64) -> String {
    if ns % 1_000_000 == 0 { duration(ns) } else { time(ns as f64) }
}

/// Notes on windows that are wider than requested.
#[must_use]
pub fn notes(phases: &Phases, wanted_ns: Option<i64>) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(wanted_ns) = wanted_ns.filter(|wanted_ns| phases.window_ns > *wanted_ns) {
        notes.push(format!(
            "windows are {} wide instead of {}: a window consists of whole bins of the timeline, and there are at most 512 windows",
            duration(phases.window_ns),
            duration(wanted_ns)
        ));
    }
    notes
}

/// Writes one csv row per phase.
pub fn csv(phases: &Phases, out: &mut dyn Write) -> io::Result<()> {
    phases_table().csv(&phases.phases, out)
}

/// Writes one csv row per phase and pair with traffic.
pub fn matrices_csv(phases: &Phases, out: &mut dyn Write) -> io::Result<()> {
    matrices_table().csv(pairs(phases), out)
}

/// Writes one csv row per phase and collective operation.
pub fn collectives_csv(phases: &Phases, out: &mut dyn Write) -> io::Result<()> {
    operations_table().csv(operations(phases), out)
}

/// Writes one JSON object with the rows of all three csv views.
pub fn json(phases: &Phases, out: &mut dyn Write) -> io::Result<()> {
    let members = json!({
        "row": "sender",
        "column": "receiver",
        "by": phases.by.name(),
        "window_ns": phases.window_ns,
        "origin_ns": phases.origin_ns,
        "phases": phases_table().objects(&phases.phases),
        "matrices": matrices_table().objects(pairs(phases)),
        "collectives": operations_table().objects(operations(phases)),
    });
    write_document(out, "ibscope phases", 2, members)
}
