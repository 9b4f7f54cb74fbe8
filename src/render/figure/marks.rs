//! Marks in the cells of a matrix: pairs whose messages the capture does not hold in full, and ranks on one node. And what they mean.

use super::canvas::{Anchor, Area, Canvas, LINE, MARGIN, TICK, WIDTH, pixels, width};
use super::cells::Cells;
use crate::model::profile::CoverageState;
use crate::render::RenderError;
use crate::analysis::coverage::States;
use crate::analysis::matrix::{Matrix, Shown, Unit};
use crate::render::units::counted;
use crate::analysis::{Jobs, Label};
use plotters::backend::DrawingBackend;
use plotters::style::{BLACK, RGBColor, WHITE};

/// Ranks on one node, of which nothing was seen.
const ONE_NODE: RGBColor = RGBColor(172, 172, 172);
/// Cells with fewer pixels have no room for a mark in their corner.
const SMALLEST: i32 = 12;
/// Cells with fewer pixels have no line across.
const SMALLEST_LINE: i32 = 24;
/// Size of the legend, and from line to line.
const TEXT: i32 = TICK * 4 / 5;
const LINE_HEIGHT: i32 = TEXT + 14;
const SWATCH: i32 = 40;

/// What a cell is marked as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Coverage(CoverageState),
    OneNode,
}

/// The marks of a matrix, and the lines below it that say what they mean.
pub(super) struct Marks {
    /// By row and column.
    cells: Vec<((u32, u32), Mark)>,
    lines: Vec<(Option<Mark>, String)>,
    /// Labels with which another job begins.
    jobs: Vec<usize>,
}

impl Marks {
    /// Those of a matrix. `left_out` says that traffic of no job is not in it.
    pub(super) fn of(matrix: &Matrix, unit: Unit, left_out: bool) -> Self {
        let states = States::of(matrix.cells.values());
        let mut cells: Vec<_> = matrix
            .one_node()
            .into_iter()
            .filter(|ends| matrix.shown(*ends, unit) == Shown::OneNode)
            .map(|ends| (ends, Mark::OneNode))
            .collect();
        let mut lines = Vec::new();
        let mut line = |mark: Option<Mark>, text: &str| lines.push((mark, text.to_owned()));
        let jobs = matrix.labels.windows(2).zip(1..).filter(|(pair, _)| pair[0].job() != pair[1].job());
        let jobs: Vec<usize> = jobs.map(|(_, second)| second).collect();
        let several = matrix.labels.iter().rev().find_map(|label| match label {
            Label::Rank(rank, Jobs::Several) => Some(rank),
            _ => None,
        });
        if let Some(rank) = several {
            line(None, &format!("{}.{}: rank {} of job {}", rank.job, rank.rank, rank.rank, rank.job));
        }
        if !cells.is_empty() {
            line(Some(Mark::OneNode), "not on the wire: both ranks on one node");
        }
        match states.of_all() {
            Some(CoverageState::Complete) | None => {}
            Some(state) => line(None, &format!("coverage of all pairs: {}", state.name())),
        }
        if states.are_mixed() {
            for (state, count) in states.incomplete() {
                let count = counted(count, "pair");
                line(Some(Mark::Coverage(state)), &format!("{} ({count})", meaning(state)));
            }
            let states = matrix.cells.iter().map(|(ends, cell)| (*ends, cell.coverage.state));
            let marked = states.filter(|(_, state)| *state != CoverageState::Complete);
            cells.extend(marked.map(|(ends, state)| (ends, Mark::Coverage(state))));
        }
        if left_out {
            line(None, "traffic of no job is left out");
        }
        Self { cells, lines, jobs }
    }

    /// What the lines below take.
    pub(super) fn height(&self) -> i32 {
        if self.lines.is_empty() { 0 } else { pixels(self.lines.len()) * LINE_HEIGHT + MARGIN / 2 }
    }

    /// Draws the marks into the cells of a square, whose colours by row and column are these.
    pub(super) fn draw<DB: DrawingBackend>(
        &self,
        canvas: &Canvas<DB>,
        square: Area,
        cells: &Cells,
        color: impl Fn(u32, u32) -> RGBColor,
    ) -> Result<(), RenderError> {
        for &((row, column), mark) in self.cells.iter().filter(|_| cells.block == 1) {
            let area = cells.area(square, row as usize, (column as usize, column as usize + 1));
            draw(canvas, area, mark, color(row, column))?;
        }
        for job in &self.jobs {
            let at = cells.offset(*job, square.right - square.left);
            let (x, y) = (square.left + at, square.top + at);
            canvas.line(&[(x, square.top), (x, square.bottom)], BLACK, LINE)?;
            canvas.line(&[(square.left, y), (square.right, y)], BLACK, LINE)?;
        }
        Ok(())
    }

    /// Draws the lines; `bottom` is where the last one ends.
    pub(super) fn legend<DB: DrawingBackend>(
        &self,
        canvas: &Canvas<DB>,
        left: i32,
        bottom: i32,
    ) -> Result<(), RenderError> {
        let top = bottom - pixels(self.lines.len()) * LINE_HEIGHT;
        for ((mark, text), number) in self.lines.iter().zip(0..) {
            let y = top + number * LINE_HEIGHT + LINE_HEIGHT / 2;
            let area = Area { left, top: y - SWATCH / 2, right: left + SWATCH, bottom: y + SWATCH / 2 };
            if let Some(mark) = mark {
                canvas.fill(area, WHITE)?;
                draw(canvas, area, *mark, WHITE)?;
                canvas.frame(area)?;
            }
            let x = if mark.is_some() { left + SWATCH + 14 } else { left };
            let room = WIDTH - MARGIN - x;
            let size = (TEXT * room / width(text, TEXT)?.max(1)).min(TEXT);
            canvas.text(text, (x, y), Anchor::Left, size, BLACK)?;
        }
        Ok(())
    }
}

/// A state in a few words.
const fn meaning(state: CoverageState) -> &'static str {
    match state {
        CoverageState::Complete => "complete",
        CoverageState::Incomplete => "incomplete: a lower bound",
        CoverageState::Sampled => "sampled by the mirror",
        CoverageState::Unknown => "unknown whether packets are missing",
    }
}

/// A mark in a cell of this colour.
fn draw<DB: DrawingBackend>(canvas: &Canvas<DB>, area: Area, mark: Mark, color: RGBColor) -> Result<(), RenderError> {
    let Area { left, top, right, bottom } = area;
    let side = (right - left).min(bottom - top);
    let ink = if is_dark(color) { WHITE } else { BLACK };
    // In the corner at the upper right, beside the number.
    let size = (side / 4).clamp(6, 30);
    let (x, y) = (right - 3, top + 3);
    match mark {
        Mark::OneNode => {
            // Lines between cells stay.
            let inset = if side >= SMALLEST_LINE { 2 } else { 0 };
            let inner = Area { left: left + inset, top: top + inset, right: right - inset, bottom: bottom - inset };
            canvas.fill(inner, ONE_NODE)?;
            if side >= SMALLEST_LINE {
                canvas.line(&[(inner.left, inner.bottom), (inner.right, inner.top)], WHITE, LINE)?;
            }
            Ok(())
        }
        Mark::Coverage(_) if side < SMALLEST => Ok(()),
        Mark::Coverage(CoverageState::Complete) => Ok(()),
        Mark::Coverage(CoverageState::Incomplete) => canvas.polygon(&[(x - size, y), (x, y), (x, y + size)], ink),
        Mark::Coverage(CoverageState::Sampled) => {
            let half = size / 2;
            canvas.polygon(&[(x - half, y), (x, y + half), (x - half, y + size), (x - size, y + half)], ink)
        }
        Mark::Coverage(CoverageState::Unknown) => {
            canvas.fill(Area { left: x - size, top: y, right: x, bottom: y + size }, ink)?;
            let border = (size / 5).max(2);
            let inner = Area { left: x - size + border, top: y + border, right: x - border, bottom: y + size - border };
            canvas.fill(inner, color)
        }
    }
}

/// True where white is read better than black.
fn is_dark(RGBColor(red, green, blue): RGBColor) -> bool {
    !crate::render::scale::is_light((red, green, blue))
}
