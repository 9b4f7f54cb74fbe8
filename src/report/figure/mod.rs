//! Figures as SVG and PNG: the matrix as a heat map, the timeline as two panels, rates over
//! the distributions of sizes.
//!
//! Both formats come from the same drawing functions and have the same proportions. Texts are large for the size of the
//! figure: it stays readable in one column of a printed page, 8 cm wide.

mod axes;
mod canvas;
mod matrix;
mod rates;
mod scale;
mod series;
#[cfg(test)]
mod tests;
mod timeline;

use super::ReportError;
use super::matrix::{Matrix, Unit};
use super::rates::Rates;
use super::timeline::Timeline;
use canvas::Figure;

/// The matrix as an SVG document.
pub fn matrix_svg(matrix: &Matrix, unit: Unit) -> Result<String, ReportError> {
    matrix::HeatMap::new(matrix, unit)?.svg()
}

/// The matrix as the bytes of a PNG file.
pub fn matrix_png(matrix: &Matrix, unit: Unit) -> Result<Vec<u8>, ReportError> {
    matrix::HeatMap::new(matrix, unit)?.png()
}

/// The timeline as an SVG document.
pub fn timeline_svg(timeline: &Timeline) -> Result<String, ReportError> {
    timeline::Panels::new(timeline)?.svg()
}

/// The timeline as the bytes of a PNG file.
pub fn timeline_png(timeline: &Timeline) -> Result<Vec<u8>, ReportError> {
    timeline::Panels::new(timeline)?.png()
}

/// Rates as an SVG document.
pub fn rates_svg(rates: &Rates) -> Result<String, ReportError> {
    rates::Panels::new(rates)?.svg()
}

/// Rates as the bytes of a PNG file.
pub fn rates_png(rates: &Rates) -> Result<Vec<u8>, ReportError> {
    rates::Panels::new(rates)?.png()
}
