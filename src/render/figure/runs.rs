//! The busiest pairs in several runs: a row for each pair, and in it a point for each run.
//!
//! In: a comparison of runs. Out: bytes on one axis, the median of each pair, and the run that deviates
//! beyond chance, by its letter. Invariant: a run whose captures do not show a pair has no point, and
//! the label of the pair reports this.

use super::axes::{Axis, Panel, X_AXIS_HEIGHT};
use super::canvas::{Area, Canvas, Figure, MARGIN, TICK, TextAnchor, WIDTH, pixels, shorten};
use super::legend::{Legend, Swatch};
use super::scale::{OKABE_ITO, byte_unit};
use crate::analysis::compare::{PairInRuns, RunsComparison, ValueInRuns};
use crate::render::RenderError;
use crate::render::compare::several::letter;
use crate::render::units::{count_of, group};
use plotters::backend::DrawingBackend;
use plotters::style::{BLACK, RGBColor};

/// Maximum number of pairs.
const MAX_PAIRS: usize = 16;
/// Least heights of a row and of the panel, which has room for the title of its axis.
const ROW: i32 = 84;
const LEAST: i32 = 480;
/// Half of the side of a point.
const POINT: i32 = 9;
const RUN: RGBColor = OKABE_ITO[0];
const DEVIATING: RGBColor = OKABE_ITO[5];
const MEDIAN_WIDTH: u32 = 5;

/// The laid-out rows.
pub(super) struct RunPoints {
    title: String,
    legend: Legend,
    panel: Panel,
    x: Axis,
    rows: Vec<ValueInRuns>,
    runs: usize,
    /// Height of a row.
    row: i32,
}

impl RunPoints {
    pub(super) fn new(comparison: &RunsComparison) -> Result<Self, RenderError> {
        let (value, name) =
            if comparison.has_mpi_bytes() { ("mpi_bytes", "MPI bytes") } else { ("wire_bytes", "bytes on the wire") };
        let busiest = comparison.busiest(value, MAX_PAIRS);
        let rows: Vec<ValueInRuns> = busiest.iter().filter_map(|pair| pair.value(value)).cloned().collect();
        let most = rows.iter().filter_map(ValueInRuns::maximum).fold(0.0, f64::max);
        if most <= 0.0 {
            return Err(RenderError::Empty);
        }
        let runs = comparison.names.len();
        let labels = busiest.iter().zip(&rows).map(|(pair, row)| label(pair, row));
        // The first pair is at the top.
        let place = |row: usize| (rows.len() - row) as f64 - 0.5;
        let mut y = Axis::linear(rows.len() as f64, 1.0, "", "sender → receiver".to_owned(), 1)
            .ending_at(Some(rows.len() as f64));
        y.ticks = labels.enumerate().map(|(row, label)| (place(row), label)).collect();
        let (left, right) = (Panel::left([&y])?, WIDTH - 3 * MARGIN);
        let (one, unit) = byte_unit(most);
        let x = Axis::across((0.0, most * 1.06), one, format!("{name}, {unit}"), right - left)?;
        let mut entries = vec![("run", Swatch::Area(RUN)), ("median", Swatch::Line(BLACK, MEDIAN_WIDTH.cast_signed()))];
        if rows.iter().any(|row| row.deviating.is_some()) {
            entries.push(("deviates beyond chance", Swatch::Area(DEVIATING)));
        }
        let legend = Legend::new(entries.into_iter().map(|(name, swatch)| (name.to_owned(), swatch)), left, right)?;
        let top = legend.bottom + MARGIN;
        let row = ROW.max(LEAST / pixels(rows.len()));
        let panel = Panel { area: Area { left, top, right, bottom: top + row * pixels(rows.len()) }, y };
        let all = comparison.pairs.len();
        let which = if all > rows.len() {
            format!("the {} busiest of {} pairs", rows.len(), group(all as u64))
        } else {
            count_of(all as u64, "pair")
        };
        let title = format!("{}{} of {which} in {runs} runs", name[..1].to_uppercase(), &name[1..]);
        Ok(Self { title, legend, panel, x, rows, runs, row })
    }

    /// Position of a run in a row: equal values of several runs must not cover each other.
    fn y(&self, row: usize, run: usize) -> i32 {
        let (height, top) = (self.row * 2 / 3, self.panel.area.top + self.row * pixels(row) + self.row / 6);
        top + height * (2 * pixels(run) + 1) / (2 * pixels(self.runs).max(1))
    }

    fn draw_row<DB: DrawingBackend>(
        &self,
        canvas: &Canvas<DB>,
        row: usize,
        value: &ValueInRuns,
    ) -> Result<(), RenderError> {
        if let Some(median) = value.median() {
            let (x, top) = (self.panel.x(&self.x, median), self.panel.area.top + self.row * pixels(row));
            canvas.line(&[(x, top + 8), (x, top + self.row - 8)], BLACK, MEDIAN_WIDTH)?;
        }
        for (run, value_of_run) in value.values.iter().enumerate() {
            let Some(bytes) = value_of_run else { continue };
            let (x, y) = (self.panel.x(&self.x, *bytes), self.y(row, run));
            let deviates = value.deviating == Some(run);
            let color = if deviates { DEVIATING } else { RUN };
            canvas.fill(Area { left: x - POINT, top: y - POINT, right: x + POINT, bottom: y + POINT }, color)?;
            if deviates {
                let is_right = x < i32::midpoint(self.panel.area.left, self.panel.area.right);
                let (at, anchor) =
                    if is_right { (x + 2 * POINT, TextAnchor::Left) } else { (x - 2 * POINT, TextAnchor::Right) };
                canvas.text(&letter(run), (at, y), anchor, TICK, BLACK)?;
            }
        }
        Ok(())
    }
}

/// The label of a pair, with the number of runs that show it if these are not all.
fn label(pair: &PairInRuns, value: &ValueInRuns) -> String {
    let (src, dst) = &pair.pair;
    let known = value.values.iter().flatten().count();
    let ends = format!("{} → {}", shorten(&src.name()), shorten(&dst.name()));
    if known == value.values.len() {
        ends
    } else {
        format!("{ends} ({known} of {})", count_of(value.values.len() as u64, "run"))
    }
}

impl Figure for RunPoints {
    fn height(&self) -> i32 {
        self.panel.area.bottom + X_AXIS_HEIGHT
    }

    fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> Result<(), RenderError> {
        canvas.title(&self.title)?;
        self.legend.draw(canvas)?;
        self.panel.draw_grid(canvas)?;
        self.rows.iter().enumerate().try_for_each(|(row, value)| self.draw_row(canvas, row, value))?;
        self.panel.draw_frame(canvas, &self.x)?;
        self.panel.draw_x_axis(canvas, &self.x)
    }
}
