//! A figure as PDF: the SVG of the figure, converted to a page of the same proportions.
//!
//! Lines and areas stay vectors, and texts stay texts, in the font that is embedded in the program.
//! The result depends on the figure alone: neither on fonts of the system nor on the time.

use super::canvas::FONT;
use crate::render::RenderError;
use svg2pdf::usvg::{Options, ShapeRendering, Tree};
use svg2pdf::{ConversionOptions, PageOptions};

/// Pixels of the SVG per inch of the page: the figure is 15.24 cm wide, like the PNG.
const PIXELS_PER_INCH: f32 = 150.0;

/// Converts a figure; `svg` is its SVG document.
pub(super) fn pdf(svg: &str) -> Result<Vec<u8>, RenderError> {
    let mut options = Options { shape_rendering: ShapeRendering::CrispEdges, ..Options::default() };
    options.fontdb_mut().load_font_data(FONT.to_vec());
    let failed = |error: &dyn std::fmt::Display| RenderError::Figure(error.to_string());
    let tree = Tree::from_str(svg, &options).map_err(|error| failed(&error))?;
    let page = PageOptions { dpi: PIXELS_PER_INCH };
    svg2pdf::to_pdf(&tree, ConversionOptions::default(), page).map_err(|error| failed(&error))
}
