//! For people at a terminal: the summary of an analysis, the matrix and the timeline.

use super::matrix::{Cell, Matrix, Selection, Unit};
use super::timeline::Timeline;
use super::who::By;
use super::who::Label;
use crate::report::columns::columns;
use std::fmt::Write as _;

pub(super) mod summary;

use super::units::{self, Scale, group};
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
/// Shades from no traffic to the most, without colour.
const SHADES: [char; 6] = ['.', '-', '=', '+', '#', '@'];
/// Viridis in the 256-colour cube: equal steps for every kind of colour vision.
const VIRIDIS: [u8; 8] = [53, 60, 24, 30, 29, 71, 148, 226];

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
    let colors = Colors::new(&values);
    for (row, name) in (0..).zip(&names) {
        let _ = write!(text, "{name:>width$} ");
        for column in 0..count {
            let shown = value(row, column);
            let padded = format!("{:>width$}", cell_text(shown));
            match shown.filter(|_| style.color) {
                Some(shown) => text.push_str(&colors.paint(shown, &padded)),
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

/// One character per cell; where there are more labels than columns, blocks of labels are added up.
fn heat(text: &mut String, matrix: &Matrix, unit: Unit, style: &Style, what: &str) {
    let count = matrix.labels.len();
    let names: Vec<String> = matrix.labels.iter().map(Label::name).collect();
    let margin = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let room = style.width.saturating_sub(margin + 2).clamp(8, 120);
    let block = count.div_ceil(room);
    let side = count.div_ceil(block);
    let mut sums = vec![0u64; side * side];
    for (&(row, column), cell) in &matrix.cells {
        if let Some(sum) = sums.get_mut(row as usize / block * side + column as usize / block) {
            *sum += cell.value(unit);
        }
    }
    let colors = Colors::new(&sums);
    let blocks = if block > 1 { format!(", each character {block} x {block}") } else { String::new() };
    let _ = writeln!(text, "{what}, row = sender, column = receiver, {count} x {count}{blocks}");
    for (index, row) in sums.chunks(side).enumerate() {
        let name = names.get(index * block).map_or("", String::as_str);
        let _ = write!(text, "{name:>margin$} ");
        for &sum in row {
            match (sum, style.color) {
                (0, _) => text.push(' '),
                (_, true) => text.push_str(&colors.paint(sum, " ")),
                (_, false) => text.push(colors.shade(sum)),
            }
        }
        text.push('\n');
    }
    let scale = Scale::for_table(unit, colors.largest);
    let kind = if colors.log { "logarithmic" } else { "linear" };
    let _ = write!(text, "{:>margin$} {kind} from {} ", "", scale.with_unit(colors.smallest));
    for (step, shade) in SHADES.into_iter().enumerate() {
        let sum = colors.at(step as f64 / (SHADES.len() - 1) as f64);
        if style.color {
            text.push_str(&colors.paint(sum, " "));
        } else {
            text.push(shade);
        }
    }
    let _ = writeln!(text, " to {}; blank: no traffic", scale.with_unit(colors.largest));
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
    if matrix.labels.contains(&Label::Unknown) {
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

/// Colours and shades for values, linear or logarithmic by their spread.
struct Colors {
    smallest: u64,
    largest: u64,
    log: bool,
}

impl Colors {
    fn new(values: &[u64]) -> Self {
        let nonzero = || values.iter().copied().filter(|&value| value > 0);
        let (smallest, largest) = (nonzero().min().unwrap_or(0), nonzero().max().unwrap_or(0));
        Self { smallest, largest, log: largest / smallest.max(1) > 100 }
    }

    /// 0 for the smallest value, 1 for the largest.
    fn position(&self, value: u64) -> f64 {
        let (value, smallest, largest) = (value as f64, self.smallest as f64, self.largest as f64);
        let position = if self.log {
            (value / smallest).ln() / (largest / smallest).ln()
        } else {
            // From zero: a linear scale that starts elsewhere makes small differences look large.
            value / largest
        };
        if position.is_finite() { position.clamp(0.0, 1.0) } else { 0.0 }
    }

    fn at(&self, position: f64) -> u64 {
        if self.log {
            let (smallest, largest) = (self.smallest as f64, self.largest as f64);
            (smallest * (largest / smallest).powf(position)).round() as u64
        } else {
            (self.largest as f64 * position).round() as u64
        }
    }

    fn shade(&self, value: u64) -> char {
        SHADES[(self.position(value) * (SHADES.len() - 1) as f64).round() as usize]
    }

    fn paint(&self, value: u64, text: &str) -> String {
        let step = (self.position(value) * (VIRIDIS.len() - 1) as f64).round() as usize;
        let ink = if step > VIRIDIS.len() / 2 { 16 } else { 231 };
        format!("\x1b[48;5;{}m\x1b[38;5;{ink}m{text}\x1b[0m", VIRIDIS[step])
    }
}

#[cfg(test)]
mod tests;
