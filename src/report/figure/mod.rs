//! Figures: SVG for papers and the web, PNG for everything else, drawn by the same code.
//!
//! Sizes are in units of 1/120 cm: a matrix 960 units wide is made for a column of 8 cm, where its text has 7 points. PNGs have
//! two pixels per unit (610 dpi) and say so.

mod canvas;
mod matrix;
mod png;
mod timeline;

use self::canvas::Canvas;
use super::ReportError;
use super::matrix::{Matrix, Unit};
use super::timeline::Timeline;

/// The matrix as a heat map, SVG.
pub fn matrix_svg(matrix: &Matrix, unit: Unit) -> Result<String, ReportError> {
    let figure = matrix::Figure::of(matrix, unit)?;
    canvas::svg(figure.size(), |canvas| figure.draw(canvas))
}

/// The matrix as a heat map, PNG.
pub fn matrix_png(matrix: &Matrix, unit: Unit) -> Result<Vec<u8>, ReportError> {
    let figure = matrix::Figure::of(matrix, unit)?;
    canvas::png(figure.size(), |canvas| figure.draw(canvas))
}

/// Rates over time, SVG.
pub fn timeline_svg(timeline: &Timeline) -> Result<String, ReportError> {
    let figure = timeline::Figure::of(timeline)?;
    canvas::svg(figure.size(), |canvas| figure.draw(canvas))
}

/// Rates over time, PNG.
pub fn timeline_png(timeline: &Timeline) -> Result<Vec<u8>, ReportError> {
    let figure = timeline::Figure::of(timeline)?;
    canvas::png(figure.size(), |canvas| figure.draw(canvas))
}
