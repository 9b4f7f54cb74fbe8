//! What figures are drawn on: rectangles, lines and text, as SVG or as pixels.

use super::super::ReportError;
use super::png;
use plotters::backend::{BitMapBackend, DrawingBackend, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{
    Color as _, FontFamily, FontStyle, FontTransform, IntoFont as _, IntoTextStyle as _, RGBColor, ShapeStyle, register_font,
};
use std::fmt::Display;
use std::sync::OnceLock;

/// Pixels per unit in PNGs.
const PNG_SCALE: f64 = 2.0;
/// At 120 units per centimetre.
const PNG_PIXELS_PER_METER: u32 = 24_000;
/// The name is what SVG readers look for; pixels are drawn with the font that is registered under it.
const FONT: &str = "DejaVu Sans, sans-serif";

/// Ordinary text.
pub(super) const TEXT: f64 = 34.0;
/// Ink of text and axes.
pub(super) const BLACK: (u8, u8, u8) = (30, 30, 30);
/// Paper.
pub(super) const WHITE: (u8, u8, u8) = (255, 255, 255);
/// What is there and says nothing: empty cells, frames, lines of the grid.
pub(super) const GREY: (u8, u8, u8) = (228, 228, 228);

/// Where a text stands beside its point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Align {
    /// The text starts at the point.
    Start,
    /// The point is the text's middle.
    Middle,
    /// The text ends at the point.
    End,
}

/// A drawing surface in units.
pub(super) struct Canvas<B: DrawingBackend> {
    backend: B,
    scale: f64,
    /// How far below its point, in parts of its size, a backend must be told to draw a text that is to be centred on it.
    text_shift: f64,
}

/// Draws an SVG document of this size in units.
pub(super) fn svg(
    (width, height): (u32, u32),
    draw: impl FnOnce(&mut Canvas<SVGBackend<'_>>) -> Result<(), ReportError>,
) -> Result<String, ReportError> {
    let mut document = String::new();
    {
        let backend = SVGBackend::with_string(&mut document, (width, height));
        let mut canvas = Canvas { backend, scale: 1.0, text_shift: 0.06 };
        canvas.rect((0.0, 0.0), (f64::from(width), f64::from(height)), WHITE)?;
        draw(&mut canvas)?;
        canvas.backend.present().map_err(|error| ReportError::Drawing(error.to_string()))?;
    }
    Ok(document)
}

/// Draws a PNG of this size in units.
pub(super) fn png(
    (width, height): (u32, u32),
    draw: impl FnOnce(&mut Canvas<BitMapBackend<'_>>) -> Result<(), ReportError>,
) -> Result<Vec<u8>, ReportError> {
    let scaled = |units: u32| (f64::from(units) * PNG_SCALE) as u32;
    let size = (scaled(width), scaled(height));
    let mut pixels = vec![255; size.0 as usize * size.1 as usize * 3];
    {
        let backend = BitMapBackend::with_buffer_and_format(&mut pixels, size).map_err(failed)?;
        let mut canvas = Canvas { backend, scale: PNG_SCALE, text_shift: 0.18 };
        draw(&mut canvas)?;
        canvas.backend.present().map_err(failed)?;
    }
    Ok(png::encode(&pixels, size, PNG_PIXELS_PER_METER)?)
}

/// Width of a text in units.
pub(super) fn text_width(text: &str, size: f64) -> Result<f64, ReportError> {
    register()?;
    let (width, _) = (FontFamily::Name(FONT), size).into_font().box_size(text).map_err(failed)?;
    Ok(f64::from(width))
}

/// The text, or its two ends around an ellipsis where it is wider than `room`. Names differ at either end.
pub(super) fn fit(text: &str, size: f64, room: f64) -> Result<String, ReportError> {
    let letters: Vec<char> = text.chars().collect();
    let mut keep = letters.len();
    let mut shown = text.to_owned();
    while keep > 2 && text_width(&shown, size)? > room {
        keep -= 1;
        let (head, tail) = (keep / 2, keep - keep / 2);
        let ends = letters.iter().take(head).chain(&['…']).chain(letters.iter().skip(letters.len() - tail));
        shown = ends.collect();
    }
    Ok(shown)
}

impl<B: DrawingBackend> Canvas<B> {
    fn at(&self, (x, y): (f64, f64)) -> (i32, i32) {
        ((x * self.scale).round() as i32, (y * self.scale).round() as i32)
    }

    /// A filled rectangle.
    pub(super) fn rect(
        &mut self,
        from: (f64, f64),
        to: (f64, f64),
        color: (u8, u8, u8),
    ) -> Result<(), ReportError> {
        let (from, to) = (self.at(from), self.at(to));
        self.backend.draw_rect(from, to, &fill(color), true).map_err(failed)
    }

    /// A line through points.
    pub(super) fn line(
        &mut self,
        points: &[(f64, f64)],
        color: (u8, u8, u8),
        width: f64,
    ) -> Result<(), ReportError> {
        let style = fill(color).stroke_width((width * self.scale).round() as u32);
        let points: Vec<_> = points.iter().map(|&point| self.at(point)).collect();
        self.backend.draw_path(points, &style).map_err(failed)
    }

    /// A text on one line, its middle at the height of `at`.
    pub(super) fn text(
        &mut self,
        text: &str,
        at: (f64, f64),
        size: f64,
        align: Align,
        color: (u8, u8, u8),
    ) -> Result<(), ReportError> {
        let at = self.at((at.0, at.1 + size * self.text_shift));
        self.write(text, at, size, (align, FontTransform::None), color)
    }

    /// A text that is read from below, its middle on the vertical line through `at`; [`Align::Start`] is its lower end.
    pub(super) fn text_up(
        &mut self,
        text: &str,
        at: (f64, f64),
        size: f64,
        align: Align,
        color: (u8, u8, u8),
    ) -> Result<(), ReportError> {
        let at = self.at((at.0 + size * self.text_shift, at.1));
        self.write(text, at, size, (align, FontTransform::Rotate270), color)
    }

    fn write(
        &mut self,
        text: &str,
        at: (i32, i32),
        size: f64,
        (align, transform): (Align, FontTransform),
        color: (u8, u8, u8),
    ) -> Result<(), ReportError> {
        register()?;
        let h_pos = match align {
            Align::Start => HPos::Left,
            Align::Middle => HPos::Center,
            Align::End => HPos::Right,
        };
        let style = (FontFamily::Name(FONT), size * self.scale)
            .into_font()
            .transform(transform)
            .into_text_style(&self.backend.get_size())
            .color(&rgb(color))
            .pos(Pos::new(h_pos, VPos::Center));
        self.backend.draw_text(text, &style, at).map_err(failed)
    }
}

fn rgb((red, green, blue): (u8, u8, u8)) -> RGBColor {
    RGBColor(red, green, blue)
}

fn fill(color: (u8, u8, u8)) -> ShapeStyle {
    rgb(color).filled()
}

fn failed(error: impl Display) -> ReportError {
    ReportError::Drawing(error.to_string())
}

/// Makes the font known to plotters, once.
fn register() -> Result<(), ReportError> {
    static DONE: OnceLock<bool> = OnceLock::new();
    let bytes = include_bytes!("DejaVuSans-subset.ttf");
    if *DONE.get_or_init(|| register_font(FONT, FontStyle::Normal, bytes).is_ok()) {
        Ok(())
    } else {
        Err(failed("the font is damaged"))
    }
}
