//! For people at a terminal: the summary of an analysis, the matrix and the timeline.

use super::matrix::{Cell, Matrix, Selection, Unit};
use super::timeline::Timeline;
use super::who::By;
use super::who::Label;
use crate::report::columns::columns;
use std::fmt::Write as _;

mod gist;
mod heat;
pub(super) mod summary;

use super::scale::ColorScale;
use super::units::{self, Scale, group};
use heat::{heat, paint};
pub use summary::summary;

/// How tables look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Colours may be used.
    pub color: bool,
    /// Columns of the terminal.
    pub width: usize,
}

/// Most rows and columns that are shown with their numbers.
const MAX_NUMBERED: usize = 16;
/// Pairs in the list of the busiest.
const TOP_PAIRS: usize = 10;
/// Most lines of a timeline.
const MAX_LINES: usize = 60;

/// The matrix as a table: numbers up to 16 rows, a heat map of one character per cell above that.
#[must_use]
pub fn matrix_table(matrix: &Matrix, unit: Unit, style: &Style) -> String {
    let mut text = String::new();
    let what = title(matrix.by, matrix.selection, unit);
    if matrix.cells.is_empty() {
        return format!("{what}: no traffic\n");
    }
    if matrix.labels.len() <= MAX_NUMBERED {
        numbers(&mut text, matrix, unit, style, &what);
    } else {
        heat(&mut text, matrix, unit, style, &what);
    }
    text.push('\n');
    pairs(&mut text, matrix);
    footer(&mut text, matrix);
    text
}

fn title(by: By, selection: Selection, unit: Unit) -> String {
    let messages = matches!(unit, Unit::Messages | Unit::MpiBytes);
    let kind = match (messages, by, selection) {
        (true, By::Endpoint, Selection::All) if unit == Unit::Messages => " of the transport",
        (true, _, Selection::P2p) => ", point-to-point",
        (true, _, Selection::Collective) => ", collective",
        (true, _, Selection::All) => ", point-to-point and collective",
        (false, ..) => "",
    };
    let whom = match by {
        By::Endpoint => "endpoint",
        By::Rank => "rank",
    };
    format!("{}{kind} by {whom}", unit.name())
}

fn numbers(text: &mut String, matrix: &Matrix, unit: Unit, style: &Style, what: &str) {
    let values: Vec<u64> = matrix.cells.values().map(|cell| cell.value(unit)).collect();
    let largest = values.iter().copied().max().unwrap_or(0);
    let scale = Scale::for_table(unit, largest);
    let _ = writeln!(text, "{what}{}, row = sender, column = receiver", scale.suffix());
    let names: Vec<String> = matrix.labels.iter().map(Label::name).collect();
    let count = names.len() as u32;
    let value = |row: u32, column: u32| matrix.cells.get(&(row, column)).map(|cell| cell.value(unit));
    let row_total = |row: u32| (0..count).filter_map(|column| value(row, column)).sum::<u64>();
    let column_total = |column: u32| (0..count).filter_map(|row| value(row, column)).sum::<u64>();
    let cell_text = |value: Option<u64>| value.map_or_else(|| "·".to_owned(), |value| scale.show(value));
    let mut width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max("total".len());
    width = width.max(scale.show(values.iter().sum()).len()) + 2;
    let _ = write!(text, "{:>width$} ", "");
    for name in names.iter().map(String::as_str).chain(["total"]) {
        let _ = write!(text, "{name:>width$}");
    }
    text.push('\n');
    let colors = ColorScale::new(values.iter().copied()).filter(|_| style.color);
    for (row, name) in (0..).zip(&names) {
        let _ = write!(text, "{name:>width$} ");
        for column in 0..count {
            let shown = value(row, column);
            let padded = format!("{:>width$}", cell_text(shown));
            match shown.filter(|shown| *shown > 0).zip(colors) {
                Some((shown, colors)) => text.push_str(&paint(&colors, shown, &padded)),
                None => text.push_str(&padded),
            }
        }
        let _ = writeln!(text, "{:>width$}", scale.show(row_total(row)));
    }
    let _ = write!(text, "{:>width$} ", "total");
    for column in 0..count {
        let _ = write!(text, "{:>width$}", scale.show(column_total(column)));
    }
    let _ = writeln!(text, "{:>width$}", scale.show(values.iter().sum()));
}

fn pairs(text: &mut String, matrix: &Matrix) {
    let mut rows: Vec<(&Label, &Label, &Cell)> = matrix.rows().collect();
    let shown = if rows.len() > TOP_PAIRS {
        format!("the {TOP_PAIRS} busiest of {} pairs", rows.len())
    } else {
        "pairs".to_owned()
    };
    rows.sort_by_key(|(src, dst, cell)| {
        (
            std::cmp::Reverse((cell.mpi_bytes.unwrap_or(0), cell.payload_bytes, cell.wire_bytes)),
            (*src).clone(),
            (*dst).clone(),
        )
    });
    rows.truncate(TOP_PAIRS);
    let header = [shown.as_str(), "messages", "MPI bytes", "payload bytes", "wire bytes", "packets"];
    let mut table = columns(&header, 1..header.len());
    for (src, dst, cell) in rows {
        table.add_row([
            format!("{} → {}", src.name(), dst.name()),
            group(cell.messages),
            cell.mpi_bytes.map_or_else(|| "-".to_owned(), group),
            group(cell.payload_bytes),
            group(cell.wire_bytes),
            group(cell.packets),
        ]);
    }
    let _ = writeln!(text, "{}", table.trim_fmt());
}

fn footer(text: &mut String, matrix: &Matrix) {
    if matrix.by == By::Rank {
        let _ = writeln!(
            text,
            "\nMessages and MPI bytes are those of the chosen traffic ({}); payload, wire bytes and packets are all traffic of the pair.",
            matrix.selection.name()
        );
    }
    if matrix.labels.iter().any(Label::is_unknown) {
        text.push_str("`unknown`: endpoints whose rank no message told; give --rankmap to name them.\n");
    }
}

/// Traffic over time, all pairs together: one line per bin, or per group of bins.
#[must_use]
pub fn timeline_table(timeline: &Timeline, style: &Style) -> String {
    let Some((start_ns, end_ns)) = timeline.span_ns() else { return "timeline: no traffic\n".to_owned() };
    let bins = usize::try_from((end_ns - start_ns) / timeline.bin_ns).unwrap_or(usize::MAX);
    let group_of = bins.div_ceil(MAX_LINES).max(1);
    let line_ns = timeline.bin_ns.saturating_mul(group_of as i64);
    let mut lines = vec![Cell::default(); bins.div_ceil(group_of)];
    for bin in &timeline.bins {
        let index = usize::try_from((bin.time_ns - start_ns) / line_ns).unwrap_or(usize::MAX);
        if let Some(line) = lines.get_mut(index) {
            line.merge(&bin.cell);
        }
    }
    let seconds = line_ns as f64 / 1e9;
    let largest = lines.iter().map(|line| line.wire_bytes).max().unwrap_or(0);
    let rate = Scale::for_table(Unit::WireBytes, (largest as f64 / seconds) as u64);
    let room = style.width.saturating_sub(58).clamp(10, 60);
    let mut text = format!(
        "traffic over time, {} per line, from {}; time in s from the first packet\n{:>14} {:>10} {:>12} {:>14}\n",
        units::duration(line_ns),
        units::utc(start_ns),
        "time [s]",
        "messages",
        "packets",
        format!("wire {}/s", rate.unit()),
    );
    for (index, line) in lines.iter().enumerate() {
        let line_start_ns = start_ns.saturating_add(line_ns.saturating_mul(index as i64));
        let time = units::seconds_since(timeline.origin_ns, line_start_ns);
        let bar = (line.wire_bytes as f64 / largest.max(1) as f64 * room as f64).round() as usize;
        let shown = rate.show((line.wire_bytes as f64 / seconds) as u64);
        let _ = writeln!(
            text,
            "{time:>14} {:>10} {:>12} {shown:>14}  {}",
            group(line.messages),
            group(line.packets),
            "█".repeat(bar)
        );
    }
    text
}

#[cfg(test)]
mod tests;
