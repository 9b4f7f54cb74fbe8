//! What all figures draw with: texts, rectangles, lines and polygons in pixels, on an SVG or a bitmap.

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
/// Size of a title.
pub(super) const TITLE: i32 = 64;
/// Size of the name of an axis.
pub(super) const TEXT: i32 = 58;
/// Size of the numbers and names along an axis.
pub(super) const TICK: i32 = 54;
/// Around everything.
pub(super) const MARGIN: i32 = 24;
/// Marks on an axis.
pub(super) const TICK_LENGTH: i32 = 14;
/// Axes and frames.
pub(super) const LINE: u32 = 3;
/// Resolution written into a PNG: about 15 cm wide where nothing else is said.
const PIXELS_PER_METRE: u32 = 11_811;

/// The first is in the bitmap, and in browsers that have it; the others are for those that have not.
const FAMILY: &str = "DejaVu Sans, Verdana, sans-serif";
static FONT: &[u8] = include_bytes!("dejavu-sans-subset.ttf");
static REGISTER: Once = Once::new();

/// A figure that is ready to be drawn.
pub(super) trait Figure {
    /// Height in pixels.
    fn height(&self) -> i32;

    /// Draws it, on whatever it is.
    fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> Result<(), RenderError>;

    /// As an SVG document.
    fn svg(&self) -> Result<String, RenderError> {
        let size = (WIDTH.unsigned_abs(), self.height().unsigned_abs());
        let mut svg = String::new();
        // Browsers centre text on half the height of an `x`; digits and capitals are higher.
        Canvas::new(SVGBackend::with_string(&mut svg, size), (0.0, 0.07))?.finish(self)?;
        // The drawing is in fine units for the sake of small cells; shown at half of that, it fits on a screen.
        // Crisp edges: no seams between cells.
        let (wide, half) = (
            format!("width=\"{}\" height=\"{}\"", size.0, size.1),
            format!("width=\"{}\" height=\"{}\" shape-rendering=\"crispEdges\"", size.0 / 2, size.1 / 2),
        );
        // What goes without saying is a third of the bytes where there are many cells. Texts hold no quotation marks.
        Ok(svg.replacen(&wide, &half, 1).replace(" opacity=\"1\"", "").replace(" stroke=\"none\"", ""))
    }

    /// As the bytes of a PNG file.
    fn png(&self) -> Result<Vec<u8>, RenderError> {
        let size = (WIDTH.unsigned_abs(), self.height().unsigned_abs());
        let mut pixels = vec![0; size.0 as usize * size.1 as usize * 3];
        // On bitmaps letters stand in the upper part of their box, and without the gap before the first.
        Canvas::new(BitMapBackend::with_buffer(&mut pixels, size), (0.05, 0.18))?.finish(self)?;
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, size.0, size.1);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        // Areas of one colour: rows as they are compress best.
        encoder.set_filter(png::FilterType::NoFilter);
        encoder.set_compression(png::Compression::Default);
        encoder.set_pixel_dims(Some(png::PixelDimensions {
            xppu: PIXELS_PER_METRE,
            yppu: PIXELS_PER_METRE,
            unit: png::Unit::Meter,
        }));
        let mut writer = encoder.write_header().map_err(failed)?;
        writer.write_image_data(&pixels).map_err(failed)?;
        writer.finish().map_err(failed)?;
        Ok(file)
    }
}

/// A rectangle in pixels; the right and lower edges do not belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Area {
    pub(super) left: i32,
    pub(super) top: i32,
    pub(super) right: i32,
    pub(super) bottom: i32,
}

/// Which point of a text is put at the position. Its middle line always is at the height of the position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Left,
    Middle,
    Right,
    /// The text runs upwards, its middle is at the position.
    UpMiddle,
    /// The text runs upwards and ends at the position.
    UpRight,
}

/// Something to draw on.
pub(super) struct Canvas<DB: DrawingBackend> {
    area: DrawingArea<DB, Shift>,
    /// How far texts have to move to the right and down to be where they should, as a share of their size.
    shift: (f64, f64),
}

impl<DB: DrawingBackend> Canvas<DB> {
    fn new(backend: DB, shift: (f64, f64)) -> Result<Self, RenderError> {
        let area = backend.into_drawing_area();
        area.fill(&WHITE).map_err(failed)?;
        Ok(Self { area, shift })
    }

    fn finish<F: Figure + ?Sized>(self, figure: &F) -> Result<(), RenderError> {
        figure.draw(&self)?;
        self.area.present().map_err(failed)
    }

    /// A filled rectangle.
    pub(super) fn fill(&self, area: Area, color: RGBColor) -> Result<(), RenderError> {
        let corners = [(area.left, area.top), (area.right, area.bottom)];
        self.area.draw(&Rectangle::new(corners, color.filled())).map_err(failed)
    }

    /// The border of a rectangle.
    pub(super) fn frame(&self, area: Area) -> Result<(), RenderError> {
        let Area { left, top, right, bottom } = area;
        self.line(&[(left, top), (right, top), (right, bottom), (left, bottom), (left, top)], BLACK, LINE)
    }

    /// A line through points.
    pub(super) fn line(&self, points: &[(i32, i32)], color: RGBColor, width: u32) -> Result<(), RenderError> {
        self.area.draw(&PathElement::new(points, color.stroke_width(width))).map_err(failed)
    }

    /// A filled polygon.
    pub(super) fn polygon(&self, points: &[(i32, i32)], color: RGBColor) -> Result<(), RenderError> {
        self.area.draw(&Polygon::new(points, color.filled())).map_err(failed)
    }

    /// The title of a figure, smaller where it is long.
    pub(super) fn title(&self, title: &str) -> Result<(), RenderError> {
        let room = WIDTH - 2 * MARGIN;
        let size = (TITLE * room / width(title, TITLE)?.max(1)).min(TITLE);
        self.text(title, (WIDTH / 2, MARGIN + TITLE / 2), Anchor::Middle, size, BLACK)
    }

    /// A text. Names of endpoints come from a file of the user: what XML cannot hold is replaced, the rest is escaped
    /// by the backend.
    pub(super) fn text(
        &self,
        text: &str,
        (x, y): (i32, i32),
        anchor: Anchor,
        size: i32,
        color: RGBColor,
    ) -> Result<(), RenderError> {
        let (horizontal, transform) = match anchor {
            Anchor::Left => (HPos::Left, FontTransform::None),
            Anchor::Middle => (HPos::Center, FontTransform::None),
            Anchor::Right => (HPos::Right, FontTransform::None),
            Anchor::UpMiddle => (HPos::Center, FontTransform::Rotate270),
            Anchor::UpRight => (HPos::Right, FontTransform::Rotate270),
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

/// Width of a text in pixels.
pub(super) fn width(text: &str, size: i32) -> Result<i32, RenderError> {
    Ok(font(size).box_size(text).map_err(failed)?.0.cast_signed())
}

/// The width of the widest of some texts.
pub(super) fn widest<'a>(texts: impl IntoIterator<Item = &'a str>, size: i32) -> Result<i32, RenderError> {
    texts.into_iter().try_fold(0, |most, text| Ok(most.max(width(text, size)?)))
}

/// A name of at most 14 characters: longer ones lose their middle, since names of hosts often differ at the end only.
pub(super) fn cut(name: &str) -> String {
    const FIRST: usize = 4;
    const LAST: usize = 9;
    let length = name.chars().count();
    if length <= FIRST + 1 + LAST {
        return name.to_owned();
    }
    name.chars().take(FIRST).chain(['…']).chain(name.chars().skip(length - LAST)).collect()
}

/// A small number as pixels.
pub(super) fn pixels(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn font(size: i32) -> FontDesc<'static> {
    // A font that cannot be registered shows up as an error of the first text.
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
        assert_eq!(cut("node-0123456"), "node-0123456");
        assert_eq!(cut("14 characters!"), "14 characters!");
        assert_eq!(cut("cluster-rack07-node0042"), "clus…-node0042");
        assert_eq!(cut("cluster-rack07-node0042").chars().count(), 14);
    }

    #[test]
    fn wider_texts_are_wider() {
        let one = width("0", 50).unwrap();
        assert!(one > 0);
        // Digits have one width; each text is rounded down to whole pixels on its own.
        assert!((width("00000000", 50).unwrap() - 8 * one).abs() <= 8);
        assert_eq!(widest(["0", "000", "00"], 50).unwrap(), width("000", 50).unwrap());
    }
}
