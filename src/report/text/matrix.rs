//! The matrix as a table, or as a heat map where a table has no room.

use super::super::color::{self, Shading};
use super::super::matrix::{By, Cell, Matrix, Selection, Unit};
use super::super::units::Scaled;
use super::{Style, aligned, footer, heat, lines, shaded, table};
use std::cmp::Reverse;

/// Largest number of labels with a table; a heat map says more about more.
const MAX_LABELS: usize = 16;
/// Pairs listed below a heat map.
const TOP: usize = 10;

/// The matrix for a terminal: a table with sums at its margins, or a heat map and the ten largest pairs.
#[must_use]
pub fn matrix_table(matrix: &Matrix, unit: Unit, style: &Style) -> String {
    let range = matrix.range(unit);
    let scaled = scale(unit, range.map_or(0, |(_, max)| max));
    let shading = Shading::of(range);
    let mut text = format!("{}{} by {}", title(matrix, unit), scaled.bracket(), matrix.by.name());
    text += "; row = sender, column = receiver\n\n";
    if matrix.cells.is_empty() {
        text += "no traffic\n";
    } else if let Some(full) = full(matrix, unit, &scaled, shading, style) {
        text += &full;
        text.push('\n');
        text += &legend(matrix, unit, shading, style);
    } else {
        text += &heat::map(matrix, unit, shading, style);
        text.push('\n');
        text += &top(matrix, unit, style);
        text.push('\n');
    }
    text + &footer(&matrix.notes(unit), style)
}

fn scale(unit: Unit, max: u64) -> Scaled {
    if unit.is_bytes() { Scaled::bytes(max) } else { Scaled::count(max) }
}

fn title(matrix: &Matrix, unit: Unit) -> String {
    let is_mpi = match unit {
        Unit::MpiBytes => true,
        Unit::Messages => matrix.by == By::Rank || matrix.selection != Selection::All,
        _ => false,
    };
    let name = match unit {
        Unit::Messages if is_mpi => "MPI messages",
        Unit::Messages => "transport messages",
        Unit::MpiBytes => "MPI bytes",
        Unit::PayloadBytes => "InfiniBand payload",
        Unit::WireBytes => "bytes on the wire",
        Unit::Packets => "packets",
    };
    if is_mpi { format!("{name} ({})", matrix.selection.title()) } else { name.to_owned() }
}

/// The whole table, or nothing where it is too large for the terminal.
fn full(matrix: &Matrix, unit: Unit, scaled: &Scaled, shading: Shading, style: &Style) -> Option<String> {
    if matrix.labels.len() > MAX_LABELS {
        return None;
    }
    // Names head the columns where they fit, else the numbers, which the rows explain.
    [true, false].into_iter().find_map(|names| {
        let plain = build(matrix, unit, scaled, (names, None), &Style { color: false, ..*style });
        let fits = plain.iter().all(|line| line.chars().count() <= style.width);
        let lines = if style.color { build(matrix, unit, scaled, (names, Some(shading)), style) } else { plain };
        fits.then(|| lines.join("\n") + "\n")
    })
}

fn build(
    matrix: &Matrix,
    unit: Unit,
    scaled: &Scaled,
    (names, shading): (bool, Option<Shading>),
    style: &Style,
) -> Vec<String> {
    let count = matrix.labels.len();
    let mut header = vec![String::new()];
    header.extend(matrix.labels.iter().map(|label| if names { label.short() } else { label.id() }));
    header.push("sum".to_owned());
    let mut table = table(header, 1, style);

    let number = |cell: Option<&Cell>| match cell {
        None => style.dot().to_owned(),
        Some(cell) => cell.value(unit).map_or_else(|| "-".to_owned(), |value| scaled.number(value)),
    };
    let mut columns: Vec<Option<Cell>> = vec![None; count];
    let mut all: Option<Cell> = None;
    for (row, label) in (0..).zip(&matrix.labels) {
        let mut cells = vec![aligned(label.long(), true)];
        let mut sum: Option<Cell> = None;
        for (column, column_sum) in (0..).zip(&mut columns) {
            let cell = matrix.cells.get(&(row, column));
            if let Some(cell) = cell {
                for sum in [&mut sum, column_sum, &mut all] {
                    sum.get_or_insert_default().add(cell);
                }
            }
            let value = cell.and_then(|cell| cell.value(unit)).filter(|&value| value > 0);
            cells.push(match (shading, value) {
                (Some(shading), Some(value)) => {
                    shaded(number(cell), color::viridis(shading.position(value as f64)))
                }
                _ => aligned(number(cell), false),
            });
        }
        cells.push(aligned(number(sum.as_ref()), false));
        table.add_row(cells);
    }
    let mut sums = vec![aligned("sum".to_owned(), true)];
    sums.extend(columns.iter().chain([&all]).map(|sum| aligned(number(sum.as_ref()), false)));
    table.add_row(sums);
    lines(&table)
}

fn legend(matrix: &Matrix, unit: Unit, shading: Shading, style: &Style) -> String {
    let mut parts = Vec::new();
    if matrix.cells.len() < matrix.labels.len().pow(2) {
        parts.push(format!("{} no packet", style.dot()));
    }
    if matrix.cells.values().any(|cell| cell.value(unit).is_none()) {
        parts.push("- no MPI library recognised".to_owned());
    }
    if style.color {
        parts.push(format!("colours {}", shading.name()));
    }
    if parts.is_empty() { String::new() } else { parts.join("; ") + "\n" }
}

/// The pairs with the largest values.
fn top(matrix: &Matrix, unit: Unit, style: &Style) -> String {
    let mut pairs: Vec<(&(u32, u32), &Cell)> = matrix.cells.iter().collect();
    pairs.sort_by_key(|&(pair, cell)| (Reverse(cell.value(unit)), *pair));
    let total = pairs.len();
    pairs.truncate(TOP);

    let scales = Unit::ALL.map(|unit| scale(unit, pairs.iter().filter_map(|(_, cell)| cell.value(unit)).max().unwrap_or(0)));
    let mut header = vec!["sender".to_owned(), "receiver".to_owned()];
    for (unit, scaled) in Unit::ALL.into_iter().zip(&scales) {
        let name = match unit {
            Unit::Messages => "messages",
            Unit::MpiBytes => "MPI",
            Unit::PayloadBytes => "payload",
            Unit::WireBytes => "wire",
            Unit::Packets => "packets",
        };
        header.push(format!("{name}{}", scaled.bracket()));
    }
    let mut table = table(header, 2, style);
    for (&(src, dst), cell) in &pairs {
        let long = |index| matrix.label(index).map(super::super::label::Label::long).unwrap_or_default();
        let mut row = vec![aligned(long(src), true), aligned(long(dst), true)];
        for (unit, scaled) in Unit::ALL.into_iter().zip(&scales) {
            let text = cell.value(unit).map_or_else(|| "-".to_owned(), |value| scaled.number(value));
            row.push(aligned(text, false));
        }
        table.add_row(row);
    }
    format!("the {} largest of {total} pairs\n\n{}\n", pairs.len(), lines(&table).join("\n"))
}
