//! The legend of a figure: colors and their names, side by side below the title.

use super::canvas::{Area, Canvas, MARGIN, TICK, TITLE, TextAnchor, width};
use crate::render::RenderError;
use plotters::backend::DrawingBackend;
use plotters::style::{BLACK, RGBColor};

const LINE_HEIGHT: i32 = TICK + 14;
const SWATCH: i32 = 40;
/// Distances from a swatch to its name, and from a name to the next swatch.
const GAPS: (i32, i32) = (14, 50);
/// Height of the legend line above a panel.
pub(super) const HEADER: i32 = TICK + 30;

/// Draws a legend entry, a colored square with its text; returns where the next may begin.
pub(super) fn key<DB: DrawingBackend>(
    canvas: &Canvas<DB>,
    (x, y): (i32, i32),
    color: RGBColor,
    text: &str,
) -> Result<i32, RenderError> {
    canvas.fill(Area { left: x, top: y - SWATCH / 2, right: x + SWATCH, bottom: y + SWATCH / 2 }, color)?;
    canvas.text(text, (x + SWATCH + GAPS.0, y), TextAnchor::Left, TICK, BLACK)?;
    Ok(x + SWATCH + GAPS.0 + width(text, TICK)? + GAPS.1)
}

/// The colored shape beside the name of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) enum Swatch {
    Area(RGBColor),
    /// A line with this width in pixels.
    Line(RGBColor, i32),
    /// An area whose traffic cannot be seen.
    Hatched,
}

struct LegendEntry {
    name: String,
    swatch: Swatch,
    x: i32,
    y: i32,
}

/// Legend entries, wrapped into as many lines as needed.
pub(super) struct Legend {
    entries: Vec<LegendEntry>,
    /// Lower edge of the last line.
    pub(super) bottom: i32,
}

impl Legend {
    pub(super) fn new(
        items: impl Iterator<Item = (String, Swatch)>,
        left: i32,
        right: i32,
    ) -> Result<Self, RenderError> {
        let mut entries = Vec::new();
        let (mut x, mut y) = (left, MARGIN + TITLE + 20 + LINE_HEIGHT / 2);
        for (name, swatch) in items {
            let needed = SWATCH + GAPS.0 + width(&name, TICK)?;
            if x > left && x + needed > right {
                (x, y) = (left, y + LINE_HEIGHT);
            }
            entries.push(LegendEntry { name, swatch, x, y });
            x += needed + GAPS.1;
        }
        Ok(Self { entries, bottom: y + LINE_HEIGHT / 2 })
    }

    pub(super) fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> Result<(), RenderError> {
        for LegendEntry { name, swatch, x, y } in &self.entries {
            let area = |height: i32| {
                let top = y - height / 2;
                Area { left: *x, top, right: x + SWATCH, bottom: top + height }
            };
            match swatch {
                Swatch::Area(color) => canvas.fill(area(SWATCH), *color)?,
                Swatch::Line(color, width) => canvas.fill(area(*width), *color)?,
                Swatch::Hatched => canvas.hatch(area(SWATCH))?,
            }
            canvas.text(name, (x + SWATCH + GAPS.0, *y), TextAnchor::Left, TICK, BLACK)?;
        }
        Ok(())
    }
}
