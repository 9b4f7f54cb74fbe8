//! The end of a scale that the user chose, so that figures of several runs have the same scale.
//!
//! Values beyond the end are marked and counted, never silently cut.

use super::canvas::{Area, Canvas};
use super::scale::ColorScale;
use crate::render::RenderError;
use crate::render::units::count_of;
use plotters::backend::DrawingBackend;
use plotters::style::{BLACK, RGBColor};

/// Color of the marks at the upper edge of a panel: no series has it.
const MARK: RGBColor = BLACK;
/// Height of a mark in pixels.
const HEIGHT: i32 = 16;
/// Smallest width of a mark in pixels.
const WIDTH: i32 = 4;

/// The color scale that is linear from 0 to `most`; `own` if the user chose no end.
pub(super) fn color_scale(own: ColorScale, most: Option<u64>) -> ColorScale {
    most.map_or(own, |max| ColorScale { max, log: false, ..own })
}

/// The title line on cells beyond the end of a color scale, if there are any.
pub(super) fn cells_beyond(values: impl Iterator<Item = u64>, scale: &ColorScale) -> Option<String> {
    let beyond = values.filter(|value| *value > scale.max).count() as u64;
    (beyond > 0).then(|| format!("{} above the scale, in the color of its end", count_of(beyond, "cell")))
}

/// A title that also counts the `what` beyond the end of the vertical axis, if there are any.
pub(super) fn counted(title: String, beyond: usize, what: &str) -> String {
    if beyond == 0 { title } else { format!("{title}; {} above the scale", count_of(beyond as u64, what)) }
}

/// Marks a part of the upper edge of a panel, from `left` to `right`.
pub(super) fn mark<DB: DrawingBackend>(
    canvas: &Canvas<DB>,
    panel: Area,
    (left, right): (i32, i32),
) -> Result<(), RenderError> {
    let right = right.max(left + WIDTH).min(panel.right);
    canvas.fill(Area { left: left.min(right - WIDTH), top: panel.top, right, bottom: panel.top + HEIGHT }, MARK)
}
