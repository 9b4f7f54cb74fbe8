//! The matrix of many ranks as a terminal heat map.

use super::Style;
use crate::analysis::Label;
use crate::analysis::matrix::{Matrix, TrafficUnit};
use crate::analysis::observed_ports::PORTS_MAY_BE_MISSING;
use crate::render::scale::{ColorScale, is_light, terminal, viridis};
use crate::render::units::Scale;
use std::fmt::Write as _;

/// Shades without color, from the least traffic to the most.
const SHADES: [char; 6] = ['.', '-', '=', '+', '#', '@'];
/// The cell of two ranks on one node, whose traffic is not on the wire: without color, and with.
const ONE_NODE: char = 'o';
const GRAY: u8 = 240;
/// Number of colors in the legend.
const STEPS: usize = 16;
/// Maximum and minimum width of the map in cells.
const WIDEST: usize = 160;
const NARROWEST: usize = 8;

/// Appends a heat map of the matrix to `text`.
///
/// A character is one cell, or with colors two cells, one above the other. With more labels than
/// columns, a cell is the sum of a block of pairs.
pub(super) fn heat(text: &mut String, matrix: &Matrix, unit: TrafficUnit, style: &Style, what: &str) {
    let count = matrix.labels.len();
    let names: Vec<String> = matrix.labels.iter().map(Label::name).collect();
    let margin = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let room = style.width.saturating_sub(margin + 2).clamp(NARROWEST, WIDEST);
    let block = count.div_ceil(room);
    let side = count.div_ceil(block);
    let mut sums = vec![BlockSum::Value(0); side * side];
    // A block of several pairs is not marked: its other pairs may be on the wire.
    for (row, column) in if block == 1 { matrix.pairs_on_one_node() } else { Vec::new() } {
        sums[row as usize * side + column as usize] = BlockSum::OneNode;
    }
    for (&(row, column), cell) in &matrix.cells {
        let value = cell.value(unit);
        if let Some(sum) = sums.get_mut(row as usize / block * side + column as usize / block).filter(|_| value > 0) {
            *sum = BlockSum::Value(sum.value().saturating_add(value));
        }
    }
    let Some(colors) = ColorScale::new(sums.iter().map(|sum| sum.value())) else {
        let _ = writeln!(text, "{what}: no traffic");
        return;
    };
    let each = if style.color { "cell" } else { "character" };
    let blocks = if block > 1 { format!(", each {each} {block} x {block}") } else { String::new() };
    let _ = writeln!(text, "{what}, row = sender, column = receiver, {count} x {count}{blocks}");
    let receivers = receivers(&names, block, side);
    if !receivers.is_empty() {
        let _ = writeln!(text, "{:>margin$} {receivers}", "");
    }
    let lines: Vec<&[BlockSum]> = sums.chunks(side).collect();
    let rows = if style.color { 2 } else { 1 };
    for (index, line) in lines.chunks(rows).enumerate() {
        let name = names.get(index * rows * block).map_or("", String::as_str);
        let _ = write!(text, "{name:>margin$} ");
        match line {
            [above, below] => {
                above.iter().zip(*below).for_each(|(above, below)| text.push_str(&halves(&colors, *above, *below)));
            }
            [above] if style.color => {
                above.iter().for_each(|above| text.push_str(&halves(&colors, *above, BlockSum::Value(0))));
            }
            _ => line.iter().copied().flatten().for_each(|sum| text.push(shade(&colors, *sum))),
        }
        text.push('\n');
    }
    let has_one_node = sums.contains(&BlockSum::OneNode);
    legend(text, &colors, (unit, matrix.is_partial), style, margin, has_one_node);
}

/// The line of column names above the map, as many as fit.
fn receivers(names: &[String], block: usize, side: usize) -> String {
    let widest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0) + 1;
    let step = [4, 8, 16, 32, 64].into_iter().find(|step| *step > widest).unwrap_or(side.max(1));
    let mut line = String::new();
    for at in (0..side).step_by(step) {
        let Some(name) = names.get(at * block) else { break };
        // The last name must not extend past the map.
        if at + name.chars().count() <= side {
            let _ = write!(line, "{name:<step$}");
        }
    }
    line.truncate(line.trim_end().len());
    line
}

/// The content of a cell of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockSum {
    Value(u64),
    /// Two ranks on one node, whose traffic is not on the wire.
    OneNode,
}

impl BlockSum {
    const fn value(self) -> u64 {
        match self {
            Self::Value(value) => value,
            Self::OneNode => 0,
        }
    }
}

/// A cell without traffic.
const EMPTY: BlockSum = BlockSum::Value(0);

/// Draws two cells, one above the other, as one character.
fn halves(colors: &ColorScale, above: BlockSum, below: BlockSum) -> String {
    let color = |sum: BlockSum| match sum {
        BlockSum::Value(value) => terminal(viridis(colors.share(value))),
        BlockSum::OneNode => GRAY,
    };
    match (above, below) {
        (EMPTY, EMPTY) => " ".to_owned(),
        (above, EMPTY) => format!("\x1b[38;5;{}m▀\x1b[0m", color(above)),
        (EMPTY, below) => format!("\x1b[38;5;{}m▄\x1b[0m", color(below)),
        (above, below) => format!("\x1b[38;5;{};48;5;{}m▀\x1b[0m", color(above), color(below)),
    }
}

fn shade(colors: &ColorScale, sum: BlockSum) -> char {
    let step = |value: u64| (colors.share(value) * (SHADES.len() - 1) as f64).round() as usize;
    match sum {
        BlockSum::Value(0) => ' ',
        BlockSum::Value(value) => SHADES[step(value).min(SHADES.len() - 1)],
        BlockSum::OneNode => ONE_NODE,
    }
}

fn legend(
    text: &mut String,
    colors: &ColorScale,
    (unit, is_partial): (TrafficUnit, bool),
    style: &Style,
    margin: usize,
    has_one_node: bool,
) {
    let scale = Scale::for_table(unit, colors.max);
    // A linear scale starts at 0, a logarithmic one at the smallest value.
    let (kind, from) = if colors.log { ("logarithmic", colors.min) } else { ("linear", 0) };
    let _ = write!(text, "{:>margin$} {kind} from {} ", "", scale.with_unit(from));
    if style.color {
        for step in 0..STEPS {
            let color = terminal(viridis(step as f64 / (STEPS - 1) as f64));
            let _ = write!(text, "\x1b[48;5;{color}m \x1b[0m");
        }
    } else {
        text.extend(SHADES);
    }
    let partial = format!("no packet captured, and {PORTS_MAY_BE_MISSING}");
    let blank = if is_partial { &partial } else { "no traffic" };
    let _ = writeln!(text, " to {}; blank: {blank}", scale.with_unit(colors.max));
    if has_one_node {
        let cell = if style.color { format!("\x1b[48;5;{GRAY}m \x1b[0m gray") } else { ONE_NODE.to_string() };
        let _ = writeln!(text, "{:>margin$} {cell}: not on the wire, because both ranks are on the same node", "");
    }
}

/// Writes `text` on the color of `value`.
pub(super) fn paint(colors: &ColorScale, value: u64, text: &str) -> String {
    let rgb = viridis(colors.share(value));
    let ink = if is_light(rgb) { 16 } else { 231 };
    format!("\x1b[48;5;{};38;5;{ink}m{text}\x1b[0m", terminal(rgb))
}
