//! Latencies by message size and by message rate of the connection, as a heat map of medians.

use super::axes::{Axis, Panel, X_AXIS_HEIGHT, class_name, class_of, fits_across, log_times, time, title};
use super::bar::ColorBar;
use super::canvas::{Area, Canvas, Figure, MARGIN, TICK, TITLE, TextAnchor, WIDTH, widest};
use super::scale::{ColorScale, is_light};
use super::scale_end::{color_scale, counted};
use crate::analysis::latency::Surface;
use crate::render::RenderError;
use crate::render::latency::Subject;
use plotters::backend::DrawingBackend;
use plotters::style::{BLACK, WHITE};

/// Height of the plot: less where its cells would exceed [`HIGHEST_CELL`], but at least
/// [`LEAST_HEIGHT`], so that the vertical texts fit.
const HEIGHT: i32 = 900;
const LEAST_HEIGHT: i32 = 700;
const HIGHEST_CELL: i32 = 150;
/// Smallest readable font size of a number.
const SMALLEST_NUMBER: i32 = 26;
/// Height of a tick label at the left, with its spacing.
const NAME_HEIGHT: i32 = TICK * 13 / 10;

/// The laid-out heat map.
pub(super) struct Heat {
    title: String,
    /// Size class and rate class of each cell, and its median in nanoseconds.
    cells: Vec<((u32, u32), u64)>,
    bar: ColorBar,
    panel: Panel,
    x: Axis,
}

impl Heat {
    /// Lays out the figure. With `most_ns`, the color scale is linear from 0 to this time.
    pub(super) fn new(subject: &Subject, surface: &Surface, most_ns: Option<u64>) -> Result<Self, RenderError> {
        let own = surface.cells.iter().filter(|(key, _)| key.interval == subject.interval);
        let cells: Vec<((u32, u32), u64)> = own
            .map(|(key, times)| ((class_of(key.from_bytes), class_of(key.from_rate)), times.quantile(0.5)))
            .collect();
        let ends = |classes: &mut dyn Iterator<Item = u32>| {
            classes.fold(None, |ends: Option<(u32, u32)>, class| {
                Some(ends.map_or((class, class), |(first, last)| (first.min(class), last.max(class))))
            })
        };
        let sizes = ends(&mut cells.iter().map(|((size, _), _)| *size));
        let rates = ends(&mut cells.iter().map(|((_, rate), _)| *rate));
        let (Some(sizes), Some(rates)) = (sizes, rates) else {
            return Err(subject.nothing());
        };
        let (from, to, ticks) = log_times(cells.iter().map(|(_, ns)| *ns), 7);
        let scale = color_scale(ColorScale { min: from as u64, max: to as u64, log: true }, most_ns);
        let (ticks, bar_title) = match most_ns.map(|most_ns| Axis::times_until(most_ns, "median", 7)) {
            None => (ticks, "median (log scale)".to_owned()),
            Some(axis) => (axis.ticks, format!("{} (linear scale)", axis.title)),
        };
        let ticks = ticks.into_iter().map(|(ns, text)| (ns as u64, text)).collect();
        let beyond = cells.iter().filter(|(_, ns)| most_ns.is_some_and(|most_ns| *ns > most_ns)).count();
        let bar = ColorBar::new(bar_title, scale, ticks, false)?;
        let height = HEIGHT.min((rates.1 - rates.0 + 1).cast_signed() * HIGHEST_CELL).max(LEAST_HEIGHT);
        let fits = |ticks: &[(f64, String)]| Ok(i32::try_from(ticks.len()).unwrap_or(i32::MAX) * NAME_HEIGHT <= height);
        let y_title = "messages/s of a connection".to_owned();
        let y = Axis::classes(rates, |class| class_name(class, false), y_title, fits)?;
        let left = Panel::left([&y])?;
        let right = WIDTH - bar.width();
        let top = MARGIN + TITLE + 2 * MARGIN;
        let panel = Panel { area: Area { left, top, right, bottom: top + height }, y };
        let x_title = "size of the message".to_owned();
        let x = Axis::classes(sizes, |class| class_name(class, true), x_title, fits_across(right - left))?;
        Ok(Self { title: counted(title(subject), beyond, "cell"), cells, bar, panel, x })
    }

    fn area(&self, (size, rate): (u32, u32)) -> Area {
        let (size, rate) = (f64::from(size), f64::from(rate));
        Area {
            left: self.panel.x(&self.x, size),
            right: self.panel.x(&self.x, size + 1.0),
            top: self.panel.y(rate + 1.0),
            bottom: self.panel.y(rate),
        }
    }

    /// Draws the medians as texts of the same size in all cells; none where they would be too small
    /// to read.
    fn draw_numbers<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> Result<(), RenderError> {
        let texts: Vec<String> = self.cells.iter().map(|(_, ns)| time(*ns as f64)).collect();
        let Some((first, _)) = self.cells.first() else { return Ok(()) };
        let Area { left, right, top, bottom } = self.area(*first);
        let room = (right - left) * 17 / 20;
        let size = (TICK * room / widest(texts.iter().map(String::as_str), TICK)?.max(1)).min(TICK);
        if size < SMALLEST_NUMBER || size > bottom - top {
            return Ok(());
        }
        for ((key, ns), text) in self.cells.iter().zip(&texts) {
            let Area { left, right, top, bottom } = self.area(*key);
            let color = if is_light(self.bar.color(*ns)) { BLACK } else { WHITE };
            let middle = (i32::midpoint(left, right), i32::midpoint(top, bottom));
            canvas.text(text, middle, TextAnchor::Middle, size, color)?;
        }
        Ok(())
    }
}

impl Figure for Heat {
    fn height(&self) -> i32 {
        self.panel.area.bottom + X_AXIS_HEIGHT
    }

    fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> Result<(), RenderError> {
        canvas.title(&self.title)?;
        for (key, ns) in &self.cells {
            canvas.fill(self.area(*key), self.bar.color(*ns))?;
        }
        self.draw_numbers(canvas)?;
        self.panel.draw_frame(canvas, &self.x)?;
        self.panel.draw_x_axis(canvas, &self.x)?;
        self.bar.draw(canvas, self.panel.area)
    }
}
