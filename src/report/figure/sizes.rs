//! Times by the size of the messages: medians, and the interval that holds 80 % of the samples.

use super::axes::{Axis, BELOW, Panel, class_name, class_of, fits_across, title};
use super::canvas::{Area, Canvas, Figure, LINE, MARGIN, WIDTH};
use super::legend::{Legend, Swatch};
use super::scale::{LIGHT, OKABE_ITO};
use crate::model::Histogram;
use crate::report::ReportError;
use crate::report::latency::Subject;
use plotters::backend::DrawingBackend;
use std::collections::BTreeMap;

const HEIGHT: i32 = 760;
/// The box of a class is so wide, of ten parts.
const BOX: f64 = 6.0;

/// Medians by size with everything laid out.
pub(super) struct Sizes {
    title: String,
    legend: Legend,
    /// Class, and the 10th, 50th and 90th percentile in nanoseconds.
    boxes: Vec<(u32, [u64; 3])>,
    panel: Panel,
    x: Axis,
}

impl Sizes {
    /// Of histograms by the smallest length of their size class.
    pub(super) fn new(subject: &Subject, by_size: &BTreeMap<u64, Histogram>) -> Result<Self, ReportError> {
        let quantiles = |times: &Histogram| [0.1, 0.5, 0.9].map(|share| times.quantile(share));
        let boxes: Vec<(u32, [u64; 3])> =
            by_size.iter().map(|(bytes, times)| (class_of(*bytes), quantiles(times))).collect();
        let (Some((first, _)), Some((last, _))) = (boxes.first(), boxes.last()) else {
            return Err(subject.nothing());
        };
        let y = Axis::times(boxes.iter().flat_map(|(_, quantiles)| *quantiles), "time", 7);
        let (left, right) = (Panel::left([&y])?, WIDTH - 3 * MARGIN);
        let items = [("median", Swatch::Line(OKABE_ITO[0], 12)), ("10 to 90 % of the samples", Swatch::Area(LIGHT))];
        let legend = Legend::new(items.into_iter().map(|(name, swatch)| (name.to_owned(), swatch)), left, right)?;
        let top = legend.bottom + MARGIN;
        let panel = Panel { area: Area { left, top, right, bottom: top + HEIGHT }, y };
        let name = |class| class_name(class, true);
        let x = Axis::classes((*first, *last), name, "size of the message".to_owned(), fits_across(right - left))?;
        Ok(Self { title: title(subject), legend, boxes, panel, x })
    }
}

impl Figure for Sizes {
    fn height(&self) -> i32 {
        self.panel.area.bottom + BELOW
    }

    fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> Result<(), ReportError> {
        canvas.title(&self.title)?;
        self.legend.draw(canvas)?;
        self.panel.draw_grid(canvas)?;
        for (class, quantiles) in &self.boxes {
            let [low, median, high] = quantiles.map(|ns| self.panel.y(ns as f64));
            let x = |part: f64| self.panel.x(&self.x, f64::from(*class) + part);
            // Not too wide where there are few.
            let middle = x(0.5);
            let half = ((x(1.0) - x(0.0)) * BOX as i32 / 20).min(70);
            let (left, right) = (middle - half, middle + half);
            let low = low.max(high + LINE.cast_signed());
            canvas.fill(Area { left, top: high, right, bottom: low }, LIGHT)?;
            for y in [low, high] {
                canvas.line(&[(left, y), (right, y)], OKABE_ITO[0], LINE)?;
            }
            canvas.line(&[(left, median), (right, median)], OKABE_ITO[0], 4 * LINE)?;
        }
        self.panel.draw_frame(canvas, &self.x)?;
        self.panel.draw_below(canvas, &self.x)
    }
}
