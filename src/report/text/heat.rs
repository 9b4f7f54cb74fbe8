//! A heat map of one or two characters per cell.

use super::super::color::{self, Shading};
use super::super::matrix::{Matrix, Unit};
use super::super::units::{self};
use super::Style;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// From little to much; a blank is nothing at all.
const SHADES: [char; 9] = ['.', ':', '-', '=', '+', '*', '#', '%', '@'];
/// Longer labels are cut.
const MAX_LABEL: usize = 20;

/// The map and its legend. Neighbouring labels are added up until it fits the width.
pub(super) fn map(matrix: &Matrix, unit: Unit, shading: Shading, style: &Style) -> String {
    let count = matrix.labels.len().max(1);
    let width_of = |block: usize| names(matrix, block).iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let room = |block: usize| style.width.saturating_sub(width_of(block) + 1).max(1);
    let mut block = 1;
    while count.div_ceil(block) > room(block) {
        block += 1;
    }
    let blocks = count.div_ceil(block);
    // A character is about twice as high as it is wide.
    let cell_width = if blocks * 2 <= room(block) { 2 } else { 1 };

    let mut sums: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    for (&(row, column), cell) in &matrix.cells {
        let sum = sums.entry((row as usize / block, column as usize / block)).or_default();
        *sum = sum.saturating_add(cell.value(unit).unwrap_or(0));
    }
    sums.retain(|_, sum| *sum > 0);
    let shading = if block == 1 {
        shading
    } else {
        Shading::of(sums.values().min().copied().zip(sums.values().max().copied()))
    };

    let names = names(matrix, block);
    let left = width_of(block);
    let mut text = column_numbers(matrix, block, left, cell_width);
    for (row, name) in names.iter().enumerate() {
        let mut line = format!("{name:>left$} ");
        for column in 0..blocks {
            let value = sums.get(&(row, column)).copied();
            line += &cell(value, shading, cell_width, style);
        }
        text += line.trim_end();
        text.push('\n');
    }
    text.push('\n');
    text += &legend(unit, shading, style);
    if block > 1 {
        let _ = writeln!(text, "each cell adds up {block} senders x {block} receivers");
    }
    text
}

fn cell(value: Option<u64>, shading: Shading, width: usize, style: &Style) -> String {
    let Some(value) = value else { return " ".repeat(width) };
    shade(shading.position(value as f64), width, style)
}

fn shade(position: f64, width: usize, style: &Style) -> String {
    if style.color {
        let (number, _) = color::ansi256(color::viridis(position));
        return format!("\x1b[48;5;{number}m{}\x1b[0m", " ".repeat(width));
    }
    let index = (position * SHADES.len() as f64) as usize;
    let letter = SHADES.get(index.min(SHADES.len() - 1)).copied().unwrap_or('@');
    std::iter::repeat_n(letter, width).collect()
}

fn legend(unit: Unit, shading: Shading, style: &Style) -> String {
    let show = |value: f64| {
        let value = value.round() as u64;
        if unit.is_bytes() { units::bytes(value) } else { units::count(value) }
    };
    let steps = if style.color { 24 } else { SHADES.len() };
    let ramp: String =
        (0..steps).map(|step| shade((step as f64 + 0.5) / steps as f64, 1, style)).collect();
    format!("{} {ramp} {}, {}; blank: nothing\n", show(shading.low()), show(shading.high()), shading.name())
}

/// What stands in front of each row.
fn names(matrix: &Matrix, block: usize) -> Vec<String> {
    let cut = |text: String| {
        if text.chars().count() <= MAX_LABEL {
            return text;
        }
        let tail = text.chars().count() - (MAX_LABEL - 2);
        std::iter::repeat_n('.', 2).chain(text.chars().skip(tail)).collect()
    };
    let rows = matrix.labels.chunks(block);
    rows.map(|labels| match labels {
        [only] => cut(only.long()),
        [first, .., last] => cut(format!("{}..{}", first.id(), last.id())),
        [] => String::new(),
    })
    .collect()
}

/// Numbers over the columns, as many as there is room for.
fn column_numbers(matrix: &Matrix, block: usize, left: usize, cell_width: usize) -> String {
    let mut line = " ".repeat(left + 1);
    let mut used = left + 1;
    for (column, labels) in matrix.labels.chunks(block).enumerate() {
        let start = left + 1 + column * cell_width;
        let Some(id) = labels.first().map(super::super::label::Label::id) else { continue };
        if start < used || (column > 0 && start == used) || id.chars().count() > 6 {
            continue;
        }
        line += &" ".repeat(start - used);
        line += &id;
        used = start + id.chars().count();
    }
    line.trim_end().to_owned() + "\n"
}
