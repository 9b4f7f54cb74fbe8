//! The common frame of the quantile figures: title, legend, and one panel with a vertical axis of
//! times.

use super::axes::{Axis, Panel, X_AXIS_HEIGHT, title};
use super::canvas::{Area, Canvas, LINE, MARGIN, WIDTH};
use super::legend::{Legend, Swatch};
use super::scale::LIGHT;
use super::scale_end::{counted, mark};
use crate::render::RenderError;
use crate::render::latency::Subject;
use plotters::backend::DrawingBackend;

const HEIGHT: i32 = 760;

/// The frame of a quantile figure, without the quantiles and the horizontal axis.
pub(super) struct QuantileFrame {
    title: String,
    legend: Legend,
    pub(super) panel: Panel,
}

impl QuantileFrame {
    /// Creates a frame with these legend entries and an axis for these times in nanoseconds. With
    /// `most_ns`, the axis is linear and ends at this time.
    pub(super) fn new(
        subject: &Subject,
        colors: &[(&str, Swatch)],
        times_ns: impl Iterator<Item = u64> + Clone,
        most_ns: Option<u64>,
    ) -> Result<Self, RenderError> {
        let y = match most_ns {
            None => Axis::times(times_ns.clone(), "time", 7),
            Some(most_ns) => Axis::times_until(most_ns, "time", 7),
        };
        let beyond = times_ns.filter(|ns| most_ns.is_some() && y.is_exceeded(*ns as f64)).count();
        // Half of the last tick label extends beyond the end of the axis.
        let (left, right) = (Panel::left([&y])?, WIDTH - 5 * MARGIN);
        let legend = Legend::new(colors.iter().map(|(name, swatch)| ((*name).to_owned(), *swatch)), left, right)?;
        let top = legend.bottom + MARGIN;
        let panel = Panel { area: Area { left, top, right, bottom: top + HEIGHT }, y };
        Ok(Self { title: counted(title(subject), beyond, "percentile"), legend, panel })
    }

    /// Height of the figure.
    pub(super) const fn height(&self) -> i32 {
        self.panel.area.bottom + X_AXIS_HEIGHT
    }

    /// Width of the panel.
    pub(super) const fn width(&self) -> i32 {
        self.panel.area.right - self.panel.area.left
    }

    /// Draws title, legend and grid; call it before drawing the quantiles.
    pub(super) fn draw_under<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> Result<(), RenderError> {
        canvas.title(&self.title)?;
        self.legend.draw(canvas)?;
        self.panel.draw_grid(canvas)
    }

    /// Draws the range from one time to another, at least one line high; returns its upper and
    /// lower edge in pixels.
    pub(super) fn draw_interval<DB: DrawingBackend>(
        &self,
        canvas: &Canvas<DB>,
        (left, right): (i32, i32),
        (low_ns, high_ns): (u64, u64),
    ) -> Result<(i32, i32), RenderError> {
        let top = self.panel.y(high_ns as f64);
        let bottom = self.panel.y(low_ns as f64).max(top + LINE.cast_signed());
        canvas.fill(Area { left, top, right, bottom }, LIGHT)?;
        Ok((top, bottom))
    }

    /// Marks the range of a bin or box if one of its times lies beyond the axis.
    pub(super) fn draw_beyond<DB: DrawingBackend>(
        &self,
        canvas: &Canvas<DB>,
        edges: (i32, i32),
        highest_ns: u64,
    ) -> Result<(), RenderError> {
        if self.panel.y.is_exceeded(highest_ns as f64) { mark(canvas, self.panel.area, edges) } else { Ok(()) }
    }

    /// Draws frame and axes; call it after drawing the quantiles.
    pub(super) fn draw_over<DB: DrawingBackend>(&self, canvas: &Canvas<DB>, x: &Axis) -> Result<(), RenderError> {
        self.panel.draw_frame(canvas, x)?;
        self.panel.draw_x_axis(canvas, x)
    }
}
