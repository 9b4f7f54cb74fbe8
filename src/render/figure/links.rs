//! The rates of links as a heat map: row = port and direction, column = time.
//!
//! Where rows or bins are more than can be drawn, a cell shows the highest of its bins, and the
//! second title line says so.

use super::axes::{Axis, Panel, X_AXIS_HEIGHT, over_time, seconds, time as format_time};
use super::bar::ColorBar;
use super::canvas::{
    Area, Canvas, Figure, MARGIN, TEXT, TICK, TITLE, TextAnchor, WIDTH, pixels, shorten, titled, width,
};
use super::cells::color;
use super::scale::{ColorScale, NONE, human};
use crate::analysis::link_rates::{LinkRates, LinkSeries};
use crate::render::RenderError;
use plotters::backend::DrawingBackend;
use plotters::style::BLACK;

/// Most rows; more links are drawn as the highest of several.
const MAX_ROWS: usize = 400;
/// Most columns; narrower ones could not be seen.
const MAX_COLUMNS: i64 = 600;
/// Height of the plot for few rows, and of a row that has a label.
const HIGHEST_ROW: i32 = 120;
const LEAST_HEIGHT: i32 = 500;
const MOST_HEIGHT: i32 = 1600;
/// Height of a label with its spacing.
const LABEL_HEIGHT: i32 = TICK * 12 / 10;
/// Cells hold utilization in this unit: one hundredth of a percent.
const SHARE_UNIT: f64 = 10_000.0;

/// The laid-out heat map.
pub(super) struct LinkHeat {
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

impl LinkHeat {
    pub(super) fn new(rates: &LinkRates) -> Result<Self, RenderError> {
        let (from_ns, to_ns) = rates.span_ns;
        let bins = to_ns.saturating_sub(from_ns) / rates.bin_ns.max(1);
        if bins <= 0 || rates.links.is_empty() {
            return Err(RenderError::Empty);
        }
        let group = (bins + MAX_COLUMNS - 1) / MAX_COLUMNS;
        let block = rates.links.len().div_ceil(MAX_ROWS);
        let rows = rates.links.len().div_ceil(block);
        let column_ns = group.saturating_mul(rates.bin_ns);
        let columns = usize::try_from((bins + group - 1) / group).unwrap_or_default();
        let value =
            |rate: f64| rates.share(rate).map_or(rate * 8.0, |share| share * SHARE_UNIT).round().max(1.0) as u64;
        let mut values = vec![0_u64; rows * columns];
        for (index, link) in rates.links.iter().enumerate() {
            for bin in link.bins.iter().filter(|bin| bin.wire_bytes > 0) {
                let column = usize::try_from((bin.time_ns - from_ns) / column_ns).unwrap_or_default();
                if let Some(cell) = values.get_mut(index / block * columns + column.min(columns - 1)) {
                    *cell = (*cell).max(value(rates.rate(bin)));
                }
            }
        }
        let bar = bar(rates, &values)?;
        let mut titles = vec![titled("Rates of links over time".to_owned(), rates.sampled.as_deref())];
        if group > 1 || block > 1 {
            let links = if block > 1 { format!("{block} links, ") } else { String::new() };
            let bin = format_time(rates.bin_ns as f64);
            titles.push(format!("a cell shows the highest of {links}{group} bins of {bin}"));
        }
        if let Some(bound) = rates.common_bound().filter(|_| rates.sampled.is_none()) {
            titles.push(format!("lower bounds: {}", bound.because()));
        }
        let height = (pixels(rows) * HIGHEST_ROW).clamp(LEAST_HEIGHT, MOST_HEIGHT);
        let every = usize::try_from(pixels(rows) * LABEL_HEIGHT / height).unwrap_or_default() + 1;
        let mut y = Axis::classes((0, rows as u32 - 1), |_| String::new(), "port, direction".to_owned(), |_| Ok(true))?;
        let name = |row: usize| rates.links.get(row * block).map(label).unwrap_or_default();
        y.ticks = (0..rows).step_by(every).map(|row| ((rows - row) as f64 - 0.5, name(row))).collect();
        let left = Panel::left([&y])?;
        let right = WIDTH - bar.width();
        let top = MARGIN + pixels(titles.len()) * (TITLE + 16) + MARGIN / 2;
        let panel = Panel { area: Area { left, top, right, bottom: top + height }, y };
        let columns_s = (seconds(rates.origin_ns, from_ns), column_ns as f64 / 1e9);
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

/// The name of a link: its port and direction.
fn label(link: &LinkSeries) -> String {
    format!("{} {}", shorten(&link.port.name()), link.direction.name())
}

/// The color bar: the utilization from 0 to at least 100 %, or the rate.
fn bar(rates: &LinkRates, values: &[u64]) -> Result<ColorBar, RenderError> {
    if rates.capacity.known().is_none() {
        let scale = ColorScale::new(values.iter().copied()).ok_or(RenderError::Empty)?;
        let ticks = scale.ticks(false).into_iter().map(|tick| (tick, human(tick, false))).collect();
        let kind = if scale.log { "log" } else { "linear" };
        return ColorBar::new(format!("bit/s ({kind} scale)"), scale, ticks, true);
    }
    let highest = values.iter().copied().max().unwrap_or_default();
    let scale = ColorScale { min: 1, max: highest.max(SHARE_UNIT as u64), log: false };
    let ticks = (0..=5).map(|fifth| (fifth * SHARE_UNIT as u64 / 5, format!("{} %", fifth * 20))).collect();
    ColorBar::new("share of the capacity".to_owned(), scale, ticks, true)
}

impl Figure for LinkHeat {
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
