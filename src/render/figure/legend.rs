//! What the colours stand for, side by side under the title.

use super::canvas::{Anchor, Area, Canvas, MARGIN, TICK, TITLE, width};
use crate::render::RenderError;
use plotters::backend::DrawingBackend;
use plotters::style::{BLACK, RGBColor};

const LINE_HEIGHT: i32 = TICK + 14;
const SWATCH: i32 = 40;
/// From the swatch to the name, and from there to the next swatch.
const GAPS: (i32, i32) = (14, 50);

/// What an entry shows beside its name.
#[derive(Clone, Copy, Debug)]
pub(super) enum Swatch {
    Area(RGBColor),
    /// A line of this width.
    Line(RGBColor, i32),
}

struct Entry {
    name: String,
    swatch: Swatch,
    x: i32,
    y: i32,
}

/// The entries in as many lines as they need.
pub(super) struct Legend {
    entries: Vec<Entry>,
    /// Where they end.
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
            entries.push(Entry { name, swatch, x, y });
            x += needed + GAPS.1;
        }
        Ok(Self { entries, bottom: y + LINE_HEIGHT / 2 })
    }

    pub(super) fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> Result<(), RenderError> {
        for Entry { name, swatch, x, y } in &self.entries {
            let (color, height) = match swatch {
                Swatch::Area(color) => (color, SWATCH),
                Swatch::Line(color, width) => (color, *width),
            };
            let top = y - height / 2;
            canvas.fill(Area { left: *x, top, right: x + SWATCH, bottom: top + height }, *color)?;
            canvas.text(name, (x + SWATCH + GAPS.0, *y), Anchor::Left, TICK, BLACK)?;
        }
        Ok(())
    }
}
