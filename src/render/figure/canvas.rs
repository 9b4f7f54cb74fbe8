//! The drawing primitives of all figures: texts, rectangles, lines and polygons in pixels, on an
//! SVG or a bitmap.
//!
//! A [`Figure`] draws itself on a [`Canvas`] without knowing the format. Both formats have the
//! same width of [`WIDTH`] units.

use super::scale::HIDDEN;
use crate::render::RenderError;
use plotters::backend::{BitMapBackend, DrawingBackend, SVGBackend};
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{PathElement, Polygon, Rectangle, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{
    BLACK, Color, FontDesc, FontFamily, FontStyle, FontTransform, RGBColor, TextStyle, WHITE, register_font,
};
use std::fmt::Display;
use std::sync::Once;

/// Width of every figure in pixels. The height follows from the content.
pub(super) const WIDTH: i32 = 1800;
/// Font size of a title.
pub(super) const TITLE: i32 = 64;
/// Font size of an axis title.
pub(super) const TEXT: i32 = 58;
/// Font size of the tick labels along an axis.
pub(super) const TICK: i32 = 54;
/// Margin around the figure.
pub(super) const MARGIN: i32 = 24;
/// Length of a tick on an axis.
pub(super) const TICK_LENGTH: i32 = 14;
/// Line width of axes and frames.
pub(super) const LINE: u32 = 3;
/// Distance of the lines of a hatched area along its edges.
const HATCH: i32 = 20;
/// Resolution written into a PNG: the figure is about 15 cm wide by default.
const PIXELS_PER_METER: u32 = 11_811;

/// PNG and PDF use the first font, which is embedded; browsers without that font use the others.
const FAMILY: &str = "DejaVu Sans, Verdana, sans-serif";
pub(super) static FONT: &[u8] = include_bytes!("dejavu-sans-subset.ttf");
static REGISTER: Once = Once::new();

/// A figure that is laid out and ready to be drawn.
pub(super) trait Figure {
    /// Height in pixels.
    fn height(&self) -> i32;

    /// Draws the figure on a canvas of either format.
    fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> Result<(), RenderError>;

    /// Returns the figure as an SVG document.
    fn svg(&self, heading: Option<&str>) -> Result<String, RenderError> {
        let size = (WIDTH.unsigned_abs(), (self.height() + heading_height(heading)).unsigned_abs());
        let mut svg = String::new();
        // Browsers center text on half the height of an `x`; digits and capitals are higher.
        Canvas::new(SVGBackend::with_string(&mut svg, size), (0.0, 0.07))?.finish(self, heading)?;
        // Fine units keep small cells exact; shown at half of its size, the drawing fits on a
        // screen. Crisp edges avoid seams between cells.
        let (wide, half) = (
            format!("width=\"{}\" height=\"{}\"", size.0, size.1),
            format!("width=\"{}\" height=\"{}\" shape-rendering=\"crispEdges\"", size.0 / 2, size.1 / 2),
        );
        // These default attributes are a third of the bytes where there are many cells. The
        // backend escapes quotation marks in texts, so only attributes match.
        Ok(svg.replacen(&wide, &half, 1).replace(" opacity=\"1\"", "").replace(" stroke=\"none\"", ""))
    }

    /// Returns the figure as the bytes of a PNG file.
    fn png(&self, heading: Option<&str>) -> Result<Vec<u8>, RenderError> {
        let size = (WIDTH.unsigned_abs(), (self.height() + heading_height(heading)).unsigned_abs());
        let mut pixels = vec![0; size.0 as usize * size.1 as usize * 3];
        // The bitmap backend puts letters in the upper part of their box and omits the gap before
        // the first letter.
        Canvas::new(BitMapBackend::with_buffer(&mut pixels, size), (0.05, 0.18))?.finish(self, heading)?;
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, size.0, size.1);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        // The figure consists of areas of one color: unfiltered rows compress best.
        encoder.set_filter(png::FilterType::NoFilter);
        encoder.set_compression(png::Compression::Default);
        encoder.set_pixel_dims(Some(png::PixelDimensions {
            xppu: PIXELS_PER_METER,
            yppu: PIXELS_PER_METER,
            unit: png::Unit::Meter,
        }));
        let mut writer = encoder.write_header().map_err(failed)?;
        writer.write_image_data(&pixels).map_err(failed)?;
        writer.finish().map_err(failed)?;
        Ok(file)
    }
}

/// A rectangle in pixels, without its right and lower edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Area {
    pub(super) left: i32,
    pub(super) top: i32,
    pub(super) right: i32,
    pub(super) bottom: i32,
}

/// The point of a text that is put at the given position. Across its direction, the text is always
/// centered on the position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextAnchor {
    Left,
    Middle,
    Right,
    /// The text runs upwards; its middle is at the position.
    UpMiddle,
    /// The text runs upwards and ends at the position.
    UpRight,
}

/// A drawing surface of either format.
pub(super) struct Canvas<DB: DrawingBackend> {
    area: DrawingArea<DB, Shift>,
    /// Correction of text positions to the right and down, as a share of the font size.
    shift: (f64, f64),
}

impl<DB: DrawingBackend> Canvas<DB> {
    fn new(backend: DB, shift: (f64, f64)) -> Result<Self, RenderError> {
        let area = backend.into_drawing_area();
        area.fill(&WHITE).map_err(failed)?;
        Ok(Self { area, shift })
    }

    fn finish<F: Figure + ?Sized>(self, figure: &F, heading: Option<&str>) -> Result<(), RenderError> {
        if let Some(heading) = heading {
            self.title(heading)?;
        }
        let below = Self { area: self.area.margin(heading_height(heading), 0, 0, 0), shift: self.shift };
        figure.draw(&below)?;
        self.area.present().map_err(failed)
    }

    /// Draws a filled rectangle.
    pub(super) fn fill(&self, area: Area, color: RGBColor) -> Result<(), RenderError> {
        let corners = [(area.left, area.top), (area.right, area.bottom)];
        self.area.draw(&Rectangle::new(corners, color.filled())).map_err(failed)
    }

    /// Draws the border of a rectangle.
    pub(super) fn frame(&self, area: Area) -> Result<(), RenderError> {
        let Area { left, top, right, bottom } = area;
        self.line(&[(left, top), (right, top), (right, bottom), (left, bottom), (left, top)], BLACK, LINE)
    }

    /// Draws a line through points.
    pub(super) fn line(&self, points: &[(i32, i32)], color: RGBColor, width: u32) -> Result<(), RenderError> {
        self.area.draw(&PathElement::new(points, color.stroke_width(width))).map_err(failed)
    }

    /// Fills a rectangle that shows nothing, because its traffic cannot be seen: gray with white lines.
    pub(super) fn hatch(&self, area: Area) -> Result<(), RenderError> {
        self.fill(area, HIDDEN)?;
        let (across, down) = (area.right - area.left, area.bottom - area.top);
        // The lines meet a corner, so that small cells have one too.
        let first = i32::midpoint(across, down) % HATCH;
        for at in (first..across + down).step_by(HATCH as usize) {
            let ends = [(at - at.min(down), at.min(down)), (at.min(across), at - at.min(across))];
            self.line(&ends.map(|(x, y)| (area.left + x, area.top + y)), WHITE, LINE)?;
        }
        Ok(())
    }

    /// Draws a filled polygon.
    pub(super) fn polygon(&self, points: &[(i32, i32)], color: RGBColor) -> Result<(), RenderError> {
        self.area.draw(&Polygon::new(points, color.filled())).map_err(failed)
    }

    /// Draws the title of a figure, in a smaller font where it is too long.
    pub(super) fn title(&self, title: &str) -> Result<(), RenderError> {
        let room = WIDTH - 2 * MARGIN;
        let size = (TITLE * room / width(title, TITLE)?.max(1)).min(TITLE);
        self.text(title, (WIDTH / 2, MARGIN + TITLE / 2), TextAnchor::Middle, size, BLACK)
    }

    /// Draws a text. Endpoint names come from a file of the user: characters that XML cannot hold
    /// become `?`, and the backend escapes the rest.
    pub(super) fn text(
        &self,
        text: &str,
        (x, y): (i32, i32),
        anchor: TextAnchor,
        size: i32,
        color: RGBColor,
    ) -> Result<(), RenderError> {
        let (horizontal, transform) = match anchor {
            TextAnchor::Left => (HPos::Left, FontTransform::None),
            TextAnchor::Middle => (HPos::Center, FontTransform::None),
            TextAnchor::Right => (HPos::Right, FontTransform::None),
            TextAnchor::UpMiddle => (HPos::Center, FontTransform::Rotate270),
            TextAnchor::UpRight => (HPos::Right, FontTransform::Rotate270),
        };
        let [along, down] = [self.shift.0, self.shift.1].map(|shift| (shift * f64::from(size)).round() as i32);
        let position = match transform {
            FontTransform::None => (x + along, y + down),
            _ => (x + down, y - along),
        };
        let style = TextStyle::from(font(size).transform(transform)).color(&color);
        let style = style.pos(Pos::new(horizontal, VPos::Center));
        let text: String = text.chars().map(|c| if is_drawable(c) { c } else { '?' }).collect();
        self.area.draw(&Text::new(text, position, style)).map_err(failed)
    }
}

/// Height of the line above a figure.
fn heading_height(heading: Option<&str>) -> i32 {
    heading.map_or(0, |_| MARGIN + TITLE)
}

/// Width of a text in pixels.
pub(super) fn width(text: &str, size: i32) -> Result<i32, RenderError> {
    Ok(font(size).box_size(text).map_err(failed)?.0.cast_signed())
}

/// Width of the widest text in pixels.
pub(super) fn widest<'a>(texts: impl IntoIterator<Item = &'a str>, size: i32) -> Result<i32, RenderError> {
    texts.into_iter().try_fold(0, |most, text| Ok(most.max(width(text, size)?)))
}

/// The title of a figure of counts, which names the sample of a sampled capture.
pub(super) fn titled(title: String, sampled: Option<&str>) -> String {
    match sampled {
        Some(sampled) => format!("{title}: {sampled}"),
        None => title,
    }
}

/// A name shortened to at most 14 characters by removing its middle, since host names often differ
/// only at the end.
pub(super) fn shorten(name: &str) -> String {
    const FIRST: usize = 4;
    const LAST: usize = 9;
    let length = name.chars().count();
    if length <= FIRST + 1 + LAST {
        return name.to_owned();
    }
    name.chars().take(FIRST).chain(['…']).chain(name.chars().skip(length - LAST)).collect()
}

/// A small count as a number of pixels.
pub(super) fn pixels(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn font(size: i32) -> FontDesc<'static> {
    // If the registration fails, drawing the first text returns the error.
    REGISTER.call_once(|| drop(register_font(FAMILY, FontStyle::Normal, FONT)));
    FontDesc::new(FontFamily::Name(FAMILY), f64::from(size), FontStyle::Normal)
}

fn is_drawable(c: char) -> bool {
    !c.is_control() && c != '\u{fffe}' && c != '\u{ffff}'
}

fn failed(error: impl Display) -> RenderError {
    RenderError::Figure(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_keep_both_ends() {
        assert_eq!(shorten("node-0123456"), "node-0123456");
        assert_eq!(shorten("14 characters!"), "14 characters!");
        assert_eq!(shorten("cluster-rack07-node0042"), "clus…-node0042");
        assert_eq!(shorten("cluster-rack07-node0042").chars().count(), 14);
    }

    #[test]
    fn wider_texts_are_wider() {
        let one = width("0", 50).unwrap();
        assert!(one > 0);
        // All digits have the same width; each text is rounded down to whole pixels.
        assert!((width("00000000", 50).unwrap() - 8 * one).abs() <= 8);
        assert_eq!(widest(["0", "000", "00"], 50).unwrap(), width("000", 50).unwrap());
    }
}
