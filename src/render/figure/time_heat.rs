//! A heat map over time: a row for each link or sender, a column for each bin.

use super::axes::{Axis, Panel, X_AXIS_HEIGHT, over_time};
use super::bar::ColorBar;
use super::canvas::{Area, Canvas, Figure, MARGIN, TEXT, TICK, TITLE, TextAnchor, WIDTH, pixels, width};
use super::cells::color;
use super::scale::NONE;
use crate::render::RenderError;
use plotters::backend::DrawingBackend;
use plotters::style::BLACK;

/// Maximum number of rows; if there are more, callers combine several into the highest of them.
pub(super) const MAX_ROWS: usize = 400;
/// Maximum number of columns; narrower ones would be invisible.
pub(super) const MAX_COLUMNS: i64 = 600;
/// Height of the plot for few rows, and of a row that has a label.
const HIGHEST_ROW: i32 = 120;
const LEAST_HEIGHT: i32 = 500;
const MOST_HEIGHT: i32 = 1600;
/// Height of a label with its spacing.
const LABEL_HEIGHT: i32 = TICK * 12 / 10;

/// The laid-out heat map.
pub(super) struct TimeHeat {
    titles: Vec<String>,
    /// Values row by row; 0 means no traffic.
    values: Vec<u64>,
    columns: usize,
    /// Start of the first column in seconds from the first packet, and width of a column.
    columns_s: (f64, f64),
    bar: ColorBar,
    panel: Panel,
    x: Axis,
}

impl TimeHeat {
    /// Lays out a heat map. The second and later titles are smaller. `names` is the title of the
    /// vertical axis, and the name of a row; `values` are row by row, with the number of columns.
    pub(super) fn new(
        titles: Vec<String>,
        names: (&str, &dyn Fn(usize) -> String),
        (values, columns): (Vec<u64>, usize),
        columns_s: (f64, f64),
        bar: ColorBar,
    ) -> Result<Self, RenderError> {
        let rows = values.len() / columns.max(1);
        if rows == 0 {
            return Err(RenderError::Empty);
        }
        let height = (pixels(rows) * HIGHEST_ROW).clamp(LEAST_HEIGHT, MOST_HEIGHT);
        let every = usize::try_from(pixels(rows) * LABEL_HEIGHT / height).unwrap_or_default() + 1;
        let mut y = Axis::classes((0, rows as u32 - 1), |_| String::new(), names.0.to_owned(), |_| Ok(true))?;
        y.ticks = (0..rows).step_by(every).map(|row| ((rows - row) as f64 - 0.5, names.1(row))).collect();
        let left = Panel::left([&y])?;
        let right = WIDTH - bar.width();
        let top = MARGIN + pixels(titles.len()) * (TITLE + 16) + MARGIN / 2;
        let panel = Panel { area: Area { left, top, right, bottom: top + height }, y };
        let x = over_time((columns_s.0, columns as f64 * columns_s.1), columns_s.1, right - left)?;
        Ok(Self { titles, values, columns, columns_s, bar, panel, x })
    }

    fn draw_cells<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> Result<(), RenderError> {
        let rows = self.values.len() / self.columns.max(1);
        canvas.fill(self.panel.area, NONE)?;
        for (row, values) in self.values.chunks(self.columns.max(1)).enumerate() {
            let below = (rows - row) as f64;
            let (top, bottom) = (self.panel.y(below), self.panel.y(below - 1.0));
            let mut start = 0;
            // Neighbors of the same color become one rectangle, which keeps files small.
            for run in values.chunk_by(|&a, &b| color(&self.bar, a) == color(&self.bar, b)) {
                let end = start + run.len();
                let x = |column: usize| self.panel.x(&self.x, self.columns_s.0 + column as f64 * self.columns_s.1);
                if let Some(&value) = run.first().filter(|&&value| value > 0) {
                    canvas.fill(Area { left: x(start), top, right: x(end), bottom }, color(&self.bar, value))?;
                }
                start = end;
            }
        }
        Ok(())
    }
}

impl Figure for TimeHeat {
    fn height(&self) -> i32 {
        self.panel.area.bottom + X_AXIS_HEIGHT
    }

    fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> Result<(), RenderError> {
        for (index, title) in self.titles.iter().enumerate() {
            let size = if index == 0 { TITLE } else { TEXT };
            let size = (size * (WIDTH - 2 * MARGIN) / width(title, size)?.max(1)).min(size);
            let y = MARGIN + TITLE / 2 + pixels(index) * (TITLE + 16);
            canvas.text(title, (WIDTH / 2, y), TextAnchor::Middle, size, BLACK)?;
        }
        self.draw_cells(canvas)?;
        self.panel.draw_frame(canvas, &self.x)?;
        self.panel.draw_x_axis(canvas, &self.x)?;
        self.bar.draw(canvas, self.panel.area)
    }
}
