//! The color bar at the right of a heat map: shows the value of each color.
//!
//! Cells take their colors from the bar, so cells and bar always agree.

use super::canvas::{Area, Canvas, LINE, MARGIN, TEXT, TICK, TICK_LENGTH, TextAnchor, WIDTH, widest};
use super::scale::{ColorScale, NONE, viridis};
use crate::render::RenderError;
use plotters::backend::DrawingBackend;
use plotters::style::{BLACK, RGBColor};

const BAR: i32 = 60;
/// Number of colors of the bar, and so of the cells.
const COLORS: u32 = 128;
/// Distance from a tick to its label.
const GAP: i32 = 8;

/// A color scale with its title and labeled ticks.
pub(super) struct ColorBar {
    title: String,
    scale: ColorScale,
    ticks: Vec<(u64, String)>,
    /// Whether the bar also shows the color of cells without a value.
    has_none: bool,
    names_width: i32,
}

impl ColorBar {
    pub(super) fn new(
        title: String,
        scale: ColorScale,
        ticks: Vec<(u64, String)>,
        has_none: bool,
    ) -> Result<Self, RenderError> {
        let names = ticks.iter().map(|(_, text)| text.as_str()).chain(has_none.then_some("none"));
        let names_width = widest(names, TICK)?;
        Ok(Self { title, scale, ticks, has_none, names_width })
    }

    /// Width of the bar with its texts and the gap to the plot, in pixels.
    pub(super) const fn width(&self) -> i32 {
        2 * MARGIN + BAR + TICK_LENGTH + GAP + self.names_width + MARGIN / 2 + TEXT + MARGIN
    }

    /// The color of a value above 0.
    pub(super) fn color(&self, value: u64) -> RGBColor {
        let steps = f64::from(COLORS - 1);
        viridis((self.scale.share(value) * steps).round() / steps)
    }

    /// Draws the bar beside the plot.
    pub(super) fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<DB>, plot: Area) -> Result<(), RenderError> {
        let left = plot.right + 2 * MARGIN;
        let below = if self.has_none { 2 * TICK } else { 0 };
        let bar = Area { left, right: left + BAR, top: plot.top, bottom: plot.bottom - below };
        let length = bar.bottom - bar.top;
        let y = |share: f64| bar.bottom - (share * f64::from(length)).round() as i32;
        // Each rectangle reaches down to the end of the bar, so that no seams are visible.
        for index in (0..COLORS).rev() {
            let top = y(f64::from(index + 1) / f64::from(COLORS));
            canvas.fill(Area { top, ..bar }, viridis(f64::from(index) / f64::from(COLORS - 1)))?;
        }
        canvas.frame(bar)?;
        for (tick, text) in &self.ticks {
            let y = y(self.scale.share(*tick));
            canvas.line(&[(bar.right, y), (bar.right + TICK_LENGTH, y)], BLACK, LINE)?;
            canvas.text(text, (bar.right + TICK_LENGTH + GAP, y), TextAnchor::Left, TICK, BLACK)?;
        }
        if self.has_none {
            let none = Area { top: plot.bottom - BAR, bottom: plot.bottom, ..bar };
            canvas.fill(none, NONE)?;
            canvas.frame(none)?;
            canvas.text(
                "none",
                (bar.right + TICK_LENGTH + GAP, none.bottom - BAR / 2),
                TextAnchor::Left,
                TICK,
                BLACK,
            )?;
        }
        let x = WIDTH - MARGIN - TEXT / 2;
        canvas.text(&self.title, (x, bar.top + length / 2), TextAnchor::UpMiddle, TEXT, BLACK)
    }
}
