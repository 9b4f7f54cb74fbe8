//! The matrix as terminal text, one table per job.

use super::Style;
use super::heat::{heat, paint};
use crate::analysis::coverage::States;
use crate::analysis::matrix::{CellValue, Matrix, MatrixCell, Selection, TrafficUnit};
use crate::analysis::observed_ports::PORTS_MAY_BE_MISSING;
use crate::analysis::{GroupBy, Label};
use crate::model::profile::{CoverageState, JobRow};
use crate::render::coverage::{missing, sentences, symbol};
use crate::render::matrix::{self, UNKNOWN_MPI_BYTES, busiest};
use crate::render::scale::ColorScale;
use crate::render::units::{Scale, TOO_LITTLE, bytes, count_of, group, wrap};
use std::fmt::Write as _;

/// Maximum number of rows that are shown as numbers; larger matrices are heat maps.
const MAX_NUMBERED: usize = 16;
/// Number of pairs in the list of the busiest.
const TOP_PAIRS: usize = 10;

/// The matrix as text, one table per job: numbers for up to 16 rows, else a heat map.
#[must_use]
pub fn matrix_table(matrix: &Matrix, unit: TrafficUnit, style: &Style) -> String {
    let mut text = String::new();
    let what = title(matrix, unit);
    if matrix.cells.is_empty() {
        return format!("{what}: no traffic\n");
    }
    let (jobs, others): (Vec<_>, Vec<_>) =
        matrix.by_job().into_iter().partition(|(job, _)| job.is_some() || matrix.by.is_of_ports());
    let states = States::of(jobs.iter().flat_map(|(_, part)| part.cells.values()));
    if jobs.is_empty() {
        let _ = writeln!(text, "{what}: no job was detected");
    }
    let has_headings = jobs.len() > 1 || matrix.jobs.iter().any(|job| job.slurm_job_id.is_some());
    for (number, (job, part)) in jobs.iter().enumerate() {
        if number > 0 {
            text.push('\n');
        }
        if let Some(job) = job.filter(|_| has_headings) {
            let _ = writeln!(text, "{}", heading(job, &matrix.jobs));
        }
        if part.labels.len() <= MAX_NUMBERED {
            numbers(&mut text, part, unit, style, &what, states.are_mixed());
        } else {
            heat(&mut text, part, unit, style, &what);
        }
        text.push('\n');
        pairs(&mut text, part, states.are_mixed());
    }
    for (_, part) in &others {
        let MatrixCell { payload_bytes, wire_bytes, packets, .. } = part.total();
        let (payload, wire, packets) = (bytes(payload_bytes), bytes(wire_bytes), count_of(packets, "packet"));
        let states = States::of(part.cells.values());
        let states: Vec<&str> = states.incomplete().map(|(state, _)| state.name()).collect();
        let coverage = if states.is_empty() { String::new() } else { format!("; coverage {}", states.join(" and ")) };
        let sentence = format!(
            "traffic of no job: {payload} payload, {wire} on the wire, {packets}{coverage}; `--by endpoint` shows its senders and \
             receivers"
        );
        let _ = writeln!(text, "\n{}", wrap(&sentence, style.width));
    }
    footer(&mut text, (&jobs, unit), &states, style);
    text
}

/// The heading of a job; its number alone if the profile does not describe the job.
fn heading(job: u32, jobs: &[JobRow]) -> String {
    let known = jobs.iter().find(|row| row.job == job);
    known.map_or_else(|| format!("job {job}"), JobRow::describe)
}

fn title(matrix: &Matrix, unit: TrafficUnit) -> String {
    let Matrix { by, selection, .. } = *matrix;
    let classes = matrix.classes();
    let messages = matches!(unit, TrafficUnit::Messages | TrafficUnit::MpiBytes);
    let kind = match (messages, selection) {
        (true, _) if unit == TrafficUnit::Messages && selection.is_of_transport(by) => " of the transport",
        (true, Selection::P2p | Selection::All) if classes.has_only_nccl() => "",
        (true, Selection::P2p) => " (point-to-point)",
        (true, Selection::Collective) => " (collective)",
        (true, Selection::All) => " (point-to-point and collective)",
        (true, Selection::OneSided) => " (one-sided)",
        (false, ..) => "",
    };
    let whom = by.noun();
    let unit =
        if unit == TrafficUnit::MpiBytes { format!("{} bytes", classes.library()) } else { unit.name().to_owned() };
    format!("{unit}{kind} by {whom}")
}

/// Appends the numbers of a job. With `marks`, cells of incomplete pairs get a symbol.
fn numbers(text: &mut String, matrix: &Matrix, unit: TrafficUnit, style: &Style, what: &str, marks: bool) {
    let values: Vec<u64> = matrix.cells.values().map(|cell| cell.value(unit)).collect();
    let largest = values.iter().copied().max().unwrap_or(0);
    let scale = Scale::for_table(unit, largest);
    let _ = writeln!(text, "{what}{}, row = sender, column = receiver", scale.suffix());
    let names: Vec<String> = matrix.labels.iter().map(Label::name).collect();
    let count = names.len() as u32;
    let mark = |state: CoverageState| if marks { symbol(state) } else { "" };
    let cell = |ends: (u32, u32)| match matrix.cell_value(ends, unit) {
        CellValue::Nothing => "·".to_owned(),
        CellValue::OneNode => ONE_NODE.to_owned(),
        CellValue::NotCaptured => NOT_CAPTURED.to_owned(),
        CellValue::Value(value) => {
            let state = matrix.cells.get(&ends).map_or_else(CoverageState::default, |cell| cell.coverage.state);
            format!("{}{}", mark(state), scale.show(value))
        }
    };
    // A sum has the worst coverage of its cells.
    let total = |cells: &mut dyn Iterator<Item = &MatrixCell>| {
        let mut sum = MatrixCell::default();
        cells.for_each(|cell| sum.merge(cell));
        format!("{}{}", mark(sum.coverage.state), scale.show(sum.value(unit)))
    };
    let row_total = |row: u32| total(&mut matrix.cells.range((row, 0)..=(row, u32::MAX)).map(|(_, cell)| cell));
    let column_total = |column: u32| total(&mut (0..count).filter_map(|row| matrix.cells.get(&(row, column))));
    let all = total(&mut matrix.cells.values());
    let mut width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max("total".len());
    width = width.max(all.chars().count()) + 2;
    let colors = ColorScale::new(values.iter().copied()).filter(|_| style.color);
    // A matrix that is wider than the terminal is folded: some receivers after the others.
    let columns: Vec<Option<u32>> = (0..count).map(Some).chain([None]).collect();
    let per_line = (style.width.saturating_sub(width + 1) / width).max(1);
    for (part, columns) in columns.chunks(per_line).enumerate() {
        if part > 0 {
            text.push('\n');
        }
        let _ = write!(text, "{:>width$} ", "");
        for column in columns {
            let name = column.and_then(|column| names.get(column as usize)).map_or("total", String::as_str);
            let _ = write!(text, "{name:>width$}");
        }
        text.push('\n');
        for (row, name) in (0..).zip(&names) {
            let _ = write!(text, "{name:>width$} ");
            for column in columns {
                let Some(column) = *column else {
                    let _ = write!(text, "{:>width$}", row_total(row));
                    continue;
                };
                let padded = format!("{:>width$}", cell((row, column)));
                let value = matrix.cells.get(&(row, column)).map(|cell| cell.value(unit));
                match value.filter(|value| *value > 0).zip(colors) {
                    Some((value, colors)) => text.push_str(&paint(&colors, value, &padded)),
                    None => text.push_str(&padded),
                }
            }
            text.push('\n');
        }
        let _ = write!(text, "{:>width$} ", "total");
        for column in columns {
            let sum = column.map_or_else(|| all.clone(), &column_total);
            let _ = write!(text, "{sum:>width$}");
        }
        text.push('\n');
    }
}

/// The cell of two ranks on one node.
pub(super) const ONE_NODE: &str = "=";
/// The cell of a pair that the captures may not show.
const NOT_CAPTURED: &str = "?";

fn pairs(text: &mut String, matrix: &Matrix, marks: bool) {
    let count = matrix.rows().count();
    if count > TOP_PAIRS {
        let _ = writeln!(text, " the {TOP_PAIRS} busiest of {} pairs", group(count as u64));
    }
    let table = if marks { matrix::covered_table().headed("coverage") } else { matrix::matrix_table() };
    let table = table.renamed("MPI bytes", format!("{} bytes", matrix.classes().library()));
    let _ = writeln!(text, "{}", table.text(busiest(matrix, TOP_PAIRS)));
    if matrix.estimators.is_some() {
        let _ = writeln!(text, "\n{}", matrix::estimates_table().text(busiest(matrix, TOP_PAIRS)));
    }
}

/// The meaning of the cells without a plain number, of the matrices that have such cells.
fn symbols<'a>(matrices: impl Iterator<Item = &'a Matrix>, unit: TrafficUnit) -> Option<String> {
    let (mut nothing, mut none, mut not_captured, mut little) = (false, false, false, None);
    for matrix in matrices {
        let count = matrix.labels.len() as u32;
        let scale = Scale::for_table(unit, matrix.cells.values().map(|cell| cell.value(unit)).max().unwrap_or(0));
        for ends in (0..count).flat_map(|row| (0..count).map(move |column| (row, column))) {
            match matrix.cell_value(ends, unit) {
                CellValue::Nothing => nothing = true,
                CellValue::Value(0) => none = true,
                CellValue::Value(value) if scale.show(value) == TOO_LITTLE => little = Some(scale.unit()),
                CellValue::NotCaptured => not_captured = true,
                CellValue::Value(_) | CellValue::OneNode => {}
            }
        }
    }
    let parts = [
        nothing.then(|| "· no traffic".to_owned()),
        none.then(|| "0 traffic of other kinds only".to_owned()),
        not_captured.then(|| format!("{NOT_CAPTURED} no packet captured, and {PORTS_MAY_BE_MISSING}")),
        little.map(|name| format!("{TOO_LITTLE} less than 0.1 {name}")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("Cells: {}.", parts.join("; ")))
}

/// Appends the meaning of the numbers, and the packets that are missing from them.
fn footer(text: &mut String, (jobs, unit): (&[(Option<u32>, Matrix)], TrafficUnit), states: &States, style: &Style) {
    let mut lines = Vec::new();
    let Some((_, first)) = jobs.first() else { return };
    if first.by == GroupBy::Rank {
        lines.push(format!(
            "Messages and {} bytes count the selected traffic ({}); payload, wire bytes and packets count all traffic of the pair.",
            first.classes().library(),
            first.selection.name()
        ));
    }
    if let Some(sampled) = &first.sampled {
        lines.push(format!("The capture is {sampled}. Estimated totals have 95 % intervals."));
        if first.by == GroupBy::Rank {
            lines.push(format!("MPI bytes, estimated total: {UNKNOWN_MPI_BYTES}."));
        }
    }
    // A heat map has a legend of its own.
    let has_numbers = |part: &Matrix| part.labels.len() <= MAX_NUMBERED;
    lines.extend(symbols(jobs.iter().map(|(_, part)| part).filter(|part| has_numbers(part)), unit));
    if jobs.iter().any(|(_, part)| has_numbers(part) && !part.pairs_on_one_node().is_empty()) {
        lines.push(match first.by {
            GroupBy::Rank => format!("{ONE_NODE} not on the wire: the two ranks are on the same node."),
            _ => format!("{ONE_NODE} not on the wire: messages between ranks on the same node."),
        });
    }
    if jobs.iter().flat_map(|(_, part)| &part.labels).any(Label::is_unknown) {
        lines.push(
            "unknown: processes without a rank; `ibscope ranks` lists the reasons, and --rankmap assigns ranks."
                .to_owned(),
        );
    }
    lines.extend(sentences(states));
    if !lines.is_empty() {
        text.push('\n');
    }
    for line in lines {
        let _ = writeln!(text, "{}", wrap(&line, style.width));
    }
    for (job, part) in jobs {
        let missing = missing(part);
        if !missing.is_empty() {
            let of = job.filter(|_| jobs.len() > 1).map(|job| format!(" of job {job}")).unwrap_or_default();
            let heading = if part.sampled.is_some() { "not in the sample" } else { "missing from the capture" };
            let _ = writeln!(text, "\n{heading}{of}:\n  {}", missing.join("\n  "));
        }
    }
}
