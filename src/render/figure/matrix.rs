//! The matrix as a heat map: row = sender, column = receiver.
//!
//! Of more than [`MAX_CELLS`] rows, a cell shows the largest value of a block, and the second title line
//! gives the size of a block. Cells of two ranks on one node are hatched; a pair that sent packets without
//! the shown unit has a 0.

use super::bar::ColorBar;
use super::canvas::{
    Area, Canvas, Figure, LINE, MARGIN, TEXT, TICK, TICK_LENGTH, TITLE, TextAnchor, WIDTH, pixels, shorten, widest,
    width,
};
use super::cells::{CellGrid, CellsWithoutValue, color};
use super::scale::{ColorScale, human, is_light};
use super::scale_end::{cells_beyond, color_scale};
use crate::analysis::coverage::States;
use crate::analysis::matrix::{Matrix, Selection, TrafficUnit};
use crate::analysis::round_numbers::steps;
use crate::model::profile::CoverageState;
use crate::render::RenderError;
use crate::render::coverage::meaning;
use plotters::backend::DrawingBackend;
use plotters::style::{BLACK, WHITE};

/// Maximum number of rows; more are combined in blocks, since finer cells could not be printed.
const MAX_CELLS: usize = 512;
/// Maximum number of rows whose cells are large enough to show their value.
const MAX_NUMBERS: usize = 10;
/// Longest side of the corner of a cell, in pixels.
const CORNER: i32 = 44;
/// Smallest readable font size of a number.
const SMALLEST_NUMBER: i32 = 26;

/// The laid-out heat map.
pub(super) struct HeatMap {
    is_bytes: bool,
    titles: Vec<String>,
    bar: ColorBar,
    /// Shortened names, one per label.
    names: Vec<String>,
    cells: CellGrid,
    without_value: CellsWithoutValue,
    /// Cells with a corner, because the captures do not hold all traffic of the pair.
    marked: Vec<(usize, usize)>,
    plot: Area,
    /// Every n-th label is shown: n at the left, n below.
    every: (usize, usize),
    /// Whether the labels below run upwards.
    upright: bool,
    height: i32,
}

impl HeatMap {
    /// Lays out the matrix. With `most`, the color scale is linear from 0 to this value, so figures of
    /// several runs have the same.
    pub(super) fn new(matrix: &Matrix, unit: TrafficUnit, most: Option<u64>) -> Result<Self, RenderError> {
        let labels = matrix.labels.len();
        let values = matrix.cells.iter().map(|(&ends, cell)| (ends, cell.value(unit)));
        let cells = CellGrid::new(values, labels, MAX_CELLS);
        let is_silent = matrix.cells.values().all(|cell| cell.packets == 0);
        let nothing = if is_silent { RenderError::Empty } else { RenderError::NoneOfUnit { unit: unit.name() } };
        let own = ColorScale::new(cells.values.iter().copied()).ok_or(nothing)?;
        let scale = color_scale(own, most);
        let is_bytes = unit.is_bytes();

        let names: Vec<String> = matrix.labels.iter().map(|label| shorten(&label.name())).collect();
        let name_width = widest(names.iter().map(String::as_str), TICK)?;
        let scale_name = if scale.log { "log" } else { "linear" };
        let of_sample = if matrix.sampled.is_some() { " in the sample" } else { "" };
        let ticks: Vec<(u64, String)> =
            scale.ticks(is_bytes).into_iter().map(|tick| (tick, human(tick, is_bytes))).collect();
        let bar = ColorBar::new(format!("{}{of_sample} ({scale_name} scale)", unit.name()), scale, ticks, true)?;
        let without_value = CellsWithoutValue::of(matrix, &cells, unit);
        let bar = if without_value.is_hatched { bar.with_hidden()? } else { bar };

        let mut titles = vec![title(matrix, unit)];
        if cells.block > 1 {
            let what = matrix.by.nouns();
            titles.push(format!("each cell shows the largest of {0} × {0} {what}", cells.block));
        }
        titles.extend(cells_beyond(cells.values.iter().copied(), &scale));
        titles.extend(matrix.sampled.as_deref().map(str::to_owned));
        let marked = marked(matrix).filter(|_| cells.block == 1).collect::<Vec<_>>();
        titles.extend(coverage_line(matrix, !marked.is_empty()));
        let left = MARGIN + TEXT + MARGIN / 2 + name_width + TICK_LENGTH + 8;
        let right = WIDTH - bar.width();
        let top = MARGIN + pixels(titles.len()) * (TITLE + 16) + MARGIN / 2;
        // Use a whole number of pixels per cell where cells are large enough.
        let per_cell = (right - left) / pixels(cells.count);
        let side = if per_cell >= 4 { per_cell * pixels(cells.count) } else { right - left };
        let plot = Area { left, top, right: left + side, bottom: top + side };

        let per_label = f64::from(side) / labels as f64;
        let upwards = steps().find(|&step| step as f64 * per_label >= 1.3 * f64::from(TICK)).unwrap_or(labels);
        let widths = names.iter().map(|name| width(name, TICK)).collect::<Result<Vec<_>, _>>()?;
        let across = steps().find(|&step| fits(&widths, step, per_label)).unwrap_or(labels);
        // Short labels (numbers) stay horizontal even if fewer fit; longer names run upwards if
        // more of them fit that way.
        let upright = across > upwards && name_width > width("00000", TICK)?;
        let below = if upright { name_width } else { TICK };
        let height = plot.bottom + TICK_LENGTH + 8 + below + MARGIN / 2 + TEXT + MARGIN;
        let every = (upwards, if upright { upwards } else { across });
        Ok(Self { is_bytes, titles, bar, names, cells, without_value, marked, plot, every, upright, height })
    }

    /// Draws a corner in each cell whose number is a lower bound or uncertain.
    fn draw_corners<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> Result<(), RenderError> {
        for (row, column) in &self.marked {
            let Area { top, right, left, .. } = self.cells.area(self.plot, *row, (*column, column + 1));
            let side = ((right - left) / 4).clamp(3, CORNER);
            let value = self.cells.values.get(row * self.cells.count + column).copied().unwrap_or_default();
            let ink = if is_light(color(&self.bar, value)) { BLACK } else { WHITE };
            canvas.polygon(&[(right - side, top), (right, top), (right, top + side)], ink)?;
        }
        Ok(())
    }

    fn side(&self) -> i32 {
        self.plot.right - self.plot.left
    }

    /// Start of a label in pixels from the edge of the plot.
    fn offset(&self, label: usize) -> i32 {
        self.cells.offset(label, self.side())
    }

    /// Draws the values as texts of the same size in all cells: on one line, or with the unit below
    /// the number. A pair whose packets have no value of the unit has a 0. Draws none where the texts would be too small to read.
    fn draw_numbers<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> Result<(), RenderError> {
        let values = &self.cells.values;
        let texts: Vec<String> = values.iter().map(|&value| human(value, self.is_bytes)).collect();
        let room = self.side() / pixels(self.cells.count) * 17 / 20;
        let size_for = |texts: &mut dyn Iterator<Item = &str>| -> Result<i32, RenderError> {
            let at_tick = widest(texts, TICK)?.max(1);
            Ok((TICK * room / at_tick).min(TICK))
        };
        let used = || texts.iter().zip(values).filter(|&(_, &value)| value > 0).map(|(text, _)| text.as_str());
        let one_line = size_for(&mut used())?;
        let two_lines = size_for(&mut used().flat_map(|text| text.split(' ')))?.min(room / 2);
        let split = one_line < TICK * 3 / 4 && two_lines > one_line;
        let size = if split { two_lines } else { one_line };
        if size < SMALLEST_NUMBER {
            return Ok(());
        }
        for (index, (text, &value)) in texts.iter().zip(values).enumerate().filter(|(_, (_, value))| **value > 0) {
            let (row, column) = (index / self.cells.count, index % self.cells.count);
            let cell = self.cells.area(self.plot, row, (column, column + 1));
            let (x, y) = (i32::midpoint(cell.left, cell.right), i32::midpoint(cell.top, cell.bottom));
            let ink = if is_light(color(&self.bar, value)) { BLACK } else { WHITE };
            match text.split_once(' ').filter(|_| split) {
                Some((number, unit)) => {
                    canvas.text(number, (x, y - size * 9 / 20), TextAnchor::Middle, size, ink)?;
                    canvas.text(unit, (x, y + size * 9 / 20), TextAnchor::Middle, size, ink)?;
                }
                None => canvas.text(text, (x, y), TextAnchor::Middle, size, ink)?,
            }
        }
        for (row, column) in &self.without_value.zeros {
            let cell = self.cells.area(self.plot, *row, (*column, column + 1));
            let middle = (i32::midpoint(cell.left, cell.right), i32::midpoint(cell.top, cell.bottom));
            canvas.text("0", middle, TextAnchor::Middle, size, BLACK)?;
        }
        Ok(())
    }

    fn draw_axes<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> Result<(), RenderError> {
        let Area { left, top, right, bottom } = self.plot;
        let middle = |label: usize| i32::midpoint(self.offset(label), self.offset(label + 1));
        for (label, name) in self.names.iter().enumerate() {
            let at = middle(label);
            if label.is_multiple_of(self.every.0) {
                canvas.line(&[(left - TICK_LENGTH, top + at), (left, top + at)], BLACK, LINE)?;
                canvas.text(name, (left - TICK_LENGTH - 8, top + at), TextAnchor::Right, TICK, BLACK)?;
            }
            if label.is_multiple_of(self.every.1) {
                canvas.line(&[(left + at, bottom), (left + at, bottom + TICK_LENGTH)], BLACK, LINE)?;
                let y = bottom + TICK_LENGTH + 8;
                if self.upright {
                    canvas.text(name, (left + at, y), TextAnchor::UpRight, TICK, BLACK)?;
                } else {
                    canvas.text(name, (left + at, y + TICK / 2), TextAnchor::Middle, TICK, BLACK)?;
                }
            }
        }
        let middle = self.side() / 2;
        canvas.text("sender (row)", (MARGIN + TEXT / 2, top + middle), TextAnchor::UpMiddle, TEXT, BLACK)?;
        canvas.text("receiver", (left + middle, self.height - MARGIN - TEXT / 2), TextAnchor::Middle, TEXT, BLACK)?;
        for (index, title) in self.titles.iter().enumerate() {
            let size = if index == 0 { TITLE } else { TEXT };
            let size = (size * (WIDTH - 2 * MARGIN) / width(title, size)?.max(1)).min(size);
            let y = MARGIN + TITLE / 2 + pixels(index) * (TITLE + 16);
            // Center the title over the plot, but keep it within the figure.
            let half = width(title, size)? / 2;
            let x = i32::midpoint(left, right).clamp(MARGIN + half, (WIDTH - MARGIN - half).max(MARGIN + half));
            canvas.text(title, (x, y), TextAnchor::Middle, size, BLACK)?;
        }
        Ok(())
    }
}

impl Figure for HeatMap {
    fn height(&self) -> i32 {
        self.height
    }

    fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> Result<(), RenderError> {
        self.without_value.draw_background(canvas, &self.cells, self.plot)?;
        self.cells.draw(canvas, self.plot, &self.bar)?;
        self.without_value.draw_on_one_node(canvas, &self.cells, self.plot)?;
        self.draw_corners(canvas)?;
        canvas.frame(self.plot)?;
        if self.cells.count <= MAX_NUMBERS {
            self.draw_numbers(canvas)?;
        }
        self.draw_axes(canvas)?;
        self.bar.draw(canvas, self.plot)
    }
}

/// Row and column of each pair whose coverage is not complete, if the coverage of the pairs
/// differs.
fn marked(matrix: &Matrix) -> impl Iterator<Item = (usize, usize)> {
    let are_mixed = States::of(matrix.cells.values()).are_mixed();
    let cells =
        matrix.cells.iter().filter(move |(_, cell)| are_mixed && cell.coverage.state != CoverageState::Complete);
    cells.map(|((row, column), _)| (*row as usize, *column as usize))
}

/// The title line on the coverage of the pairs, unless all are complete.
fn coverage_line(matrix: &Matrix, has_corners: bool) -> Option<String> {
    let all = States::of(matrix.cells.values()).of_all();
    match all.filter(|state| ![CoverageState::Complete, CoverageState::Sampled].contains(state)) {
        Some(state) => Some(format!("coverage of all pairs is {}", meaning(state))),
        None if has_corners => {
            Some("a corner marks pairs with missing packets, or whose coverage is unknown".to_owned())
        }
        None => None,
    }
}

/// Title of the figure. The selection does not apply to payload, wire bytes and packets.
fn title(matrix: &Matrix, unit: TrafficUnit) -> String {
    let by = format!("by {}", matrix.by.noun());
    let classes = matrix.classes();
    let selection = match matrix.selection {
        Selection::P2p if classes.has_only_nccl() => "",
        Selection::P2p => " (point-to-point)",
        Selection::Collective => " (collective)",
        Selection::OneSided => " (one-sided)",
        Selection::All => "",
    };
    match unit {
        TrafficUnit::Messages if matrix.selection.is_of_transport(matrix.by) => format!("Messages {by}"),
        TrafficUnit::Messages => format!("{} messages{selection} {by}", classes.library()),
        TrafficUnit::MpiBytes => format!("{} bytes{selection} {by}", classes.library()),
        TrafficUnit::PayloadBytes => format!("Payload bytes {by}"),
        TrafficUnit::WireBytes => format!("Wire bytes {by}"),
        TrafficUnit::Packets => format!("Packets {by}"),
    }
}

/// Whether labels of these widths do not touch if every `step`-th is shown.
fn fits(widths: &[i32], step: usize, per_label: f64) -> bool {
    const GAP: f64 = 26.0;
    let shown = || widths.iter().copied().step_by(step).map(f64::from);
    shown().zip(shown().skip(1)).all(|(a, b)| f64::midpoint(a, b) + GAP <= step as f64 * per_label)
}
