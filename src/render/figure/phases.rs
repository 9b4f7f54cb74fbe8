//! The phases of a run: a strip with all phases along the time axis, and below it a small heat map
//! of each of the largest phases, in the same color scale. Cells of two ranks on one node are hatched, as in
//! the matrix.
//!
//! At most [`MAX_PHASES`] phases have a heat map; the second title line then gives their
//! number and their share of the bytes.

use super::axes::{Axis, seconds, time, unit};
use super::bar::ColorBar;
use super::canvas::{
    Area, Canvas, Figure, LINE, MARGIN, TEXT, TICK, TICK_LENGTH, TITLE, TextAnchor, WIDTH, pixels, shorten, widest,
    width,
};
use super::cells::{CellGrid, CellsWithoutValue};
use super::scale::{ColorScale, LIGHT, NONE, human};
use crate::analysis::matrix::{Matrix, MatrixCell, Selection, TrafficUnit};
use crate::analysis::phases::{Phase, Phases};
use crate::analysis::round_numbers::steps;
use crate::analysis::{GroupBy, Label};
use crate::render::RenderError;
use plotters::backend::DrawingBackend;
use plotters::style::{BLACK, WHITE};
use std::collections::BTreeSet;

/// Maximum number of heat maps; more would be too small to read.
const MAX_PHASES: usize = 9;
/// Maximum number of heat maps in two columns; more use three columns.
const TWO_COLUMNS: usize = 4;
/// Maximum number of rows of a heat map, so that a cell has at least two pixels.
const MAX_CELLS: usize = 200;
const STRIP: i32 = 100;
/// Distance between heat maps.
const BETWEEN: i32 = 36;
/// Distance from a tick to its label.
const GAP: i32 = 8;
/// Height of the two lines above a heat map.
const HEADER: i32 = 2 * TICK + 24;

/// The heat map of one phase.
struct PhasePanel {
    /// Heading of the heat map: number and length of the phase, and its pattern.
    lines: [String; 2],
    cells: CellGrid,
    without_value: CellsWithoutValue,
    square: Area,
    /// Whether there are labels at the left, and below.
    has_names: (bool, bool),
}

/// The laid-out figure.
pub(super) struct PhasesFigure {
    titles: Vec<String>,
    bar: ColorBar,
    /// Number of each phase, its start and end in seconds from the first packet, and whether it has
    /// a heat map.
    phases: Vec<(usize, f64, f64, bool)>,
    strip: Area,
    time: Axis,
    panels: Vec<PhasePanel>,
    /// Area of all heat maps with their headings.
    grid: Area,
    names: Vec<String>,
    /// Every n-th label is shown: n at the left, n below.
    every: (usize, usize),
}

/// The numbers of a sender and a receiver among the sorted labels.
fn places(labels: &[&Label], src: &Label, dst: &Label) -> Option<(u32, u32)> {
    let place = |label: &Label| labels.binary_search(&label).ok().map(|place| place as u32);
    place(src).zip(place(dst))
}

/// The cells of a phase by the labels of all shown phases, sorted. `captured` has the pairs that some
/// phase shows: where this phase has no packet of them, none is missing.
fn cells_of(
    matrix: &Matrix,
    labels: &[&Label],
    captured: &BTreeSet<(u32, u32)>,
    unit: TrafficUnit,
) -> (CellGrid, CellsWithoutValue) {
    let of_phase = matrix.rows().filter_map(|(src, dst, cell)| Some((places(labels, src, dst)?, *cell)));
    let none = captured.iter().map(|ends| (*ends, MatrixCell::default()));
    let all = Matrix {
        labels: labels.iter().copied().cloned().collect(),
        cells: none.chain(of_phase).collect(),
        ..matrix.clone()
    };
    let values = all.cells.iter().map(|(ends, cell)| (*ends, cell.value(unit)));
    let cells = CellGrid::new(values, labels.len(), MAX_CELLS);
    let without_value = CellsWithoutValue::of(&all, &cells, unit);
    (cells, without_value)
}

impl PhasesFigure {
    pub(super) fn new(phases: &Phases) -> Result<Self, RenderError> {
        let (Some(first), Some(last)) = (phases.phases.first(), phases.phases.last()) else {
            return Err(RenderError::Empty);
        };
        let has_mpi = phases.phases.iter().any(|phase| Selection::All.mpi(&phase.traffic).1 > 0);
        let unit_of_cells = if has_mpi { TrafficUnit::MpiBytes } else { TrafficUnit::PayloadBytes };
        let sum = |phase: &Phase| phase.matrix.total().value(unit_of_cells);
        let mut by_sum: Vec<(u64, usize)> =
            phases.phases.iter().map(sum).zip(0..).filter(|(sum, _)| *sum > 0).collect();
        let all: u64 = by_sum.iter().fold(0, |all, (sum, _)| all.saturating_add(*sum));
        by_sum.sort_by_key(|(sum, index)| (std::cmp::Reverse(*sum), *index));
        by_sum.truncate(MAX_PHASES);
        let chosen: BTreeSet<usize> = by_sum.iter().map(|(_, index)| *index).collect();
        let labels: BTreeSet<&Label> = chosen.iter().flat_map(|index| &phases.phases[*index].matrix.labels).collect();
        let labels: Vec<&Label> = labels.into_iter().collect();
        let partial = phases.phases.iter().filter(|phase| phase.matrix.is_partial);
        let pairs = partial.flat_map(|phase| phase.matrix.rows());
        let captured = pairs.filter_map(|(src, dst, _)| places(&labels, src, dst)).collect();
        let cells_of = |index: usize| cells_of(&phases.phases[index].matrix, &labels, &captured, unit_of_cells);
        let cells: Vec<(usize, (CellGrid, CellsWithoutValue))> =
            chosen.iter().map(|index| (*index, cells_of(*index))).collect();
        let values = cells.iter().flat_map(|(_, (cells, _))| cells.values.iter().copied());
        let scale = ColorScale::new(values).ok_or(RenderError::Empty)?;
        let ticks = scale.ticks(true).into_iter().map(|tick| (tick, human(tick, true))).collect();
        let scale_name = if scale.log { "log" } else { "linear" };
        let bar = ColorBar::new(format!("{} ({scale_name} scale)", unit_of_cells.name()), scale, ticks, true)?;
        let is_hatched = cells.iter().any(|(_, (_, without_value))| without_value.is_hatched);
        let bar = if is_hatched { bar.with_hidden()? } else { bar };

        let what = if has_mpi { "MPI bytes" } else { "Payload bytes" };
        let by = if phases.by == GroupBy::Rank { "rank" } else { "endpoint" };
        let mut titles = vec![format!("{what} by {by} in each phase")];
        if chosen.len() < phases.phases.len() {
            let share = by_sum.iter().map(|(sum, _)| *sum as f64).sum::<f64>() * 100.0 / all as f64;
            titles.push(format!("{} of {} phases, with {share:.0} % of the bytes", chosen.len(), phases.phases.len()));
        }
        let block = cells.first().map_or(1, |(_, (cells, _))| cells.block);
        if block > 1 {
            titles.push(format!("each cell shows the largest of {block} × {block} {by}s"));
        }
        let names: Vec<String> = labels.iter().map(|label| shorten(&label.name())).collect();
        let name_width = widest(names.iter().map(String::as_str), TICK)?;
        let left = MARGIN + TEXT + MARGIN / 2 + name_width + TICK_LENGTH + GAP;
        let top = MARGIN + pixels(titles.len()) * (TITLE + 16) + MARGIN / 2;
        let strip = Area { left, top, right: WIDTH - 3 * MARGIN, bottom: top + STRIP };
        let at_s = |ns: i64| seconds(phases.origin_ns, ns);
        let span_s = (at_s(first.from_ns), at_s(last.to_ns).max(at_s(first.from_ns) + 1e-9));
        let (one, name) = unit(span_s.1 - span_s.0);
        let time_title = format!("time from the first packet in {name} (windows of {})", time(phases.window_ns as f64));
        let axis = Axis::across(span_s, one, time_title, strip.right - strip.left)?;

        let columns = pixels(cells.len()).min(if cells.len() <= TWO_COLUMNS { 2 } else { 3 });
        let room = WIDTH - bar.width() - left - (columns - 1) * BETWEEN;
        // A single heat map does not fill the whole width.
        let side = (room / columns).min(WIDTH / 2);
        let grid_top = strip.bottom + TICK_LENGTH + GAP + TICK + MARGIN / 2 + TEXT + MARGIN;
        let rows = pixels(cells.len().div_ceil(columns as usize));
        let grid = Area {
            left,
            top: grid_top,
            right: left + columns * side + (columns - 1) * BETWEEN,
            bottom: grid_top + rows * (HEADER + side) + (rows - 1) * BETWEEN,
        };
        let count = pixels(cells.len());
        let shown = cells.into_iter().zip(0..).map(|((index, (cells, without_value)), n)| {
            let (row, column) = (n / columns, n % columns);
            let (left, top) =
                (grid.left + column * (side + BETWEEN), grid.top + HEADER + row * (side + HEADER + BETWEEN));
            let phase = &phases.phases[index];
            let lines =
                [format!("{}: {}", index + 1, time(phase.length_ns() as f64)), phase.pattern.name.name().to_owned()];
            let square = Area { left, top, right: left + side, bottom: top + side };
            PhasePanel { lines, cells, without_value, square, has_names: (column == 0, n + columns >= count) }
        });
        let shown: Vec<PhasePanel> = shown.collect();
        let of_time = |(phase, index): (&Phase, usize)| {
            (index + 1, at_s(phase.from_ns), at_s(phase.to_ns), chosen.contains(&index))
        };
        let of_time = phases.phases.iter().zip(0..).map(of_time).collect();
        let per_label = f64::from(side) / labels.len().max(1) as f64;
        let every =
            |apart: i32| steps().find(|step| *step as f64 * per_label >= f64::from(apart)).unwrap_or(labels.len());
        let every = (every(TICK * 13 / 10), every(name_width + 26));
        Ok(Self { titles, bar, phases: of_time, strip, time: axis, panels: shown, grid, names, every })
    }

    /// Position of a time, in seconds from the first packet, on the strip.
    fn x(&self, seconds: f64) -> i32 {
        self.strip.left + (self.time.share(seconds) * f64::from(self.strip.right - self.strip.left)).round() as i32
    }

    fn draw_strip<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> Result<(), RenderError> {
        let Area { top, bottom, left, right } = self.strip;
        for (number, from_s, to_s, is_shown) in &self.phases {
            let (from, to) = (self.x(*from_s), self.x(*to_s));
            canvas.fill(Area { left: from, top, right: to, bottom }, if *is_shown { LIGHT } else { NONE })?;
            canvas.line(&[(from, top), (from, bottom)], WHITE, LINE)?;
            canvas.line(&[(to, top), (to, bottom)], WHITE, LINE)?;
            let text = number.to_string();
            if width(&text, TICK)? + GAP < to - from {
                canvas.text(
                    &text,
                    (i32::midpoint(from, to), i32::midpoint(top, bottom)),
                    TextAnchor::Middle,
                    TICK,
                    BLACK,
                )?;
            }
        }
        canvas.frame(self.strip)?;
        let y = bottom + TICK_LENGTH + GAP + TICK / 2;
        for (value, text) in &self.time.ticks {
            let x = self.x(*value);
            canvas.line(&[(x, bottom), (x, bottom + TICK_LENGTH)], BLACK, LINE)?;
            canvas.text(text, (x, y), TextAnchor::Middle, TICK, BLACK)?;
        }
        let y = y + TICK / 2 + MARGIN / 2 + TEXT / 2;
        canvas.text(&self.time.title, (i32::midpoint(left, right), y), TextAnchor::Middle, TEXT, BLACK)
    }

    fn draw_phase<DB: DrawingBackend>(&self, canvas: &Canvas<DB>, shown: &PhasePanel) -> Result<(), RenderError> {
        let PhasePanel { lines, cells, without_value, square, has_names } = shown;
        let middle = i32::midpoint(square.left, square.right);
        for (line, up) in lines.iter().zip([3, 1]) {
            let size = (TICK * (square.right - square.left) / width(line, TICK)?.max(1)).min(TICK);
            canvas.text(line, (middle, square.top - up * HEADER / 4), TextAnchor::Middle, size, BLACK)?;
        }
        without_value.draw_background(canvas, cells, *square)?;
        cells.draw(canvas, *square, &self.bar)?;
        without_value.draw_on_one_node(canvas, cells, *square)?;
        canvas.frame(*square)?;
        let side = square.right - square.left;
        for (label, name) in self.names.iter().enumerate() {
            let at = i32::midpoint(cells.offset(label, side), cells.offset(label + 1, side));
            if has_names.0 && label.is_multiple_of(self.every.0) {
                let (left, y) = (square.left, square.top + at);
                canvas.line(&[(left - TICK_LENGTH, y), (left, y)], BLACK, LINE)?;
                canvas.text(name, (left - TICK_LENGTH - GAP, y), TextAnchor::Right, TICK, BLACK)?;
            }
            if has_names.1 && label.is_multiple_of(self.every.1) {
                let (x, bottom) = (square.left + at, square.bottom);
                canvas.line(&[(x, bottom), (x, bottom + TICK_LENGTH)], BLACK, LINE)?;
                canvas.text(name, (x, bottom + TICK_LENGTH + GAP + TICK / 2), TextAnchor::Middle, TICK, BLACK)?;
            }
        }
        Ok(())
    }
}

impl Figure for PhasesFigure {
    fn height(&self) -> i32 {
        self.grid.bottom + TICK_LENGTH + GAP + TICK + MARGIN / 2 + TEXT + MARGIN
    }

    fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> Result<(), RenderError> {
        for (index, title) in self.titles.iter().enumerate() {
            let size = if index == 0 { TITLE } else { TEXT };
            let y = MARGIN + TITLE / 2 + pixels(index) * (TITLE + 16);
            canvas.text(title, (WIDTH / 2, y), TextAnchor::Middle, size, BLACK)?;
        }
        self.draw_strip(canvas)?;
        self.panels.iter().try_for_each(|shown| self.draw_phase(canvas, shown))?;
        let Area { left, top, right, bottom } = self.grid;
        let middle = (i32::midpoint(left, right), i32::midpoint(top, bottom));
        canvas.text("sender (row)", (MARGIN + TEXT / 2, middle.1), TextAnchor::UpMiddle, TEXT, BLACK)?;
        canvas.text("receiver", (middle.0, self.height() - MARGIN - TEXT / 2), TextAnchor::Middle, TEXT, BLACK)?;
        self.bar.draw(canvas, Area { top: top + HEADER, ..self.grid })
    }
}
