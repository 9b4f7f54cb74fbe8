//! The color bar at the right of a heat map: shows the value of each color.
//!
//! Cells take their colors from the bar, so cells and bar always agree.

use super::canvas::{Area, Canvas, LINE, MARGIN, TEXT, TICK, TICK_LENGTH, TextAnchor, WIDTH, widest};
use super::scale::{ColorScale, NONE, shade};
use crate::render::RenderError;
use plotters::backend::DrawingBackend;
use plotters::style::{BLACK, RGBColor};

const BAR: i32 = 60;
/// Number of colors of the bar, and so of the cells.
const COLORS: u32 = 128;
/// The lines of the label of cells whose traffic cannot be seen.
const NOT_ON_THIS_WIRE: [&str; 2] = ["not on", "this wire"];
/// Distance from a tick to its label.
const GAP: i32 = 8;

/// A color scale with its title and labeled ticks.
pub(super) struct ColorBar {
    title: String,
    scale: ColorScale,
    ticks: Vec<(u64, String)>,
    /// Whether the bar also shows the color of cells without a value.
    has_none: bool,
    /// Whether the bar also shows the hatching of cells whose traffic is not on this wire.
    has_hidden: bool,
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
        Ok(Self { title, scale, ticks, has_none, has_hidden: false, names_width })
    }

    /// Also explains the hatching of cells whose traffic is not on this wire.
    pub(super) fn with_hidden(self) -> Result<Self, RenderError> {
        let names_width = self.names_width.max(widest(NOT_ON_THIS_WIRE, TICK)?);
        Ok(Self { has_hidden: true, names_width, ..self })
    }

    /// Width of the bar with its texts and the gap to the plot, in pixels.
    pub(super) const fn width(&self) -> i32 {
        2 * MARGIN + BAR + TICK_LENGTH + GAP + self.names_width + MARGIN / 2 + TEXT + MARGIN
    }

    /// The color of a value above 0.
    pub(super) fn color(&self, value: u64) -> RGBColor {
        let steps = f64::from(COLORS - 1);
        shade((self.scale.share(value) * steps).round() / steps)
    }

    /// Draws the bar beside the plot.
    pub(super) fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<DB>, plot: Area) -> Result<(), RenderError> {
        let left = plot.right + 2 * MARGIN;
        let below = i32::from(self.has_none) * 2 * TICK + i32::from(self.has_hidden) * 3 * TICK;
        let bar = Area { left, right: left + BAR, top: plot.top, bottom: plot.bottom - below };
        let length = bar.bottom - bar.top;
        let y = |share: f64| bar.bottom - (share * f64::from(length)).round() as i32;
        // Each rectangle reaches down to the end of the bar, so that no seams are visible.
        for index in (0..COLORS).rev() {
            let top = y(f64::from(index + 1) / f64::from(COLORS));
            canvas.fill(Area { top, ..bar }, shade(f64::from(index) / f64::from(COLORS - 1)))?;
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
        if self.has_hidden {
            let bottom = plot.bottom - i32::from(self.has_none) * 2 * TICK - TICK / 2;
            let hidden = Area { top: bottom - BAR, bottom, ..bar };
            canvas.hatch(hidden)?;
            canvas.frame(hidden)?;
            for (line, text) in (0..).zip(NOT_ON_THIS_WIRE) {
                let y = hidden.bottom - BAR / 2 + (2 * line - 1) * TICK * 11 / 20;
                canvas.text(text, (bar.right + TICK_LENGTH + GAP, y), TextAnchor::Left, TICK, BLACK)?;
            }
        }
        let x = WIDTH - MARGIN - TEXT / 2;
        canvas.text(&self.title, (x, bar.top + length / 2), TextAnchor::UpMiddle, TEXT, BLACK)
    }
}
