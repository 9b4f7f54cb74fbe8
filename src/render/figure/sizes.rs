//! Latencies by message size: per size class, the median and the range from the 10th to the 90th
//! percentile.

use super::axes::{Axis, class_name, class_of, fits_across};
use super::canvas::{Canvas, Figure, LINE};
use super::legend::Swatch;
use super::quantiles::QuantileFrame;
use super::scale::{LIGHT, OKABE_ITO};
use crate::model::Histogram;
use crate::render::RenderError;
use crate::render::latency::Subject;
use plotters::backend::DrawingBackend;
use std::collections::BTreeMap;

/// Width of a box in tenths of the width of its class.
const BOX: f64 = 6.0;

/// The laid-out boxes.
pub(super) struct SizeBoxes {
    frame: QuantileFrame,
    /// Size class, and its 10th, 50th and 90th percentile in nanoseconds.
    boxes: Vec<(u32, [u64; 3])>,
    x: Axis,
}

impl SizeBoxes {
    /// Lays out the figure. The key of a histogram is the lower bound of its size class in bytes.
    pub(super) fn new(
        subject: &Subject,
        by_size: &BTreeMap<u64, Histogram>,
        most_ns: Option<u64>,
    ) -> Result<Self, RenderError> {
        let quantiles = |times: &Histogram| [0.1, 0.5, 0.9].map(|share| times.quantile(share));
        let boxes: Vec<(u32, [u64; 3])> =
            by_size.iter().map(|(bytes, times)| (class_of(*bytes), quantiles(times))).collect();
        let (Some((first, _)), Some((last, _))) = (boxes.first(), boxes.last()) else {
            return Err(subject.nothing());
        };
        let colors = [("median", Swatch::Line(OKABE_ITO[0], 12)), ("10 to 90 % of the samples", Swatch::Area(LIGHT))];
        let all = boxes.iter().flat_map(|(_, quantiles)| *quantiles);
        let frame = QuantileFrame::new(subject, &colors, all, most_ns)?;
        let name = |class| class_name(class, true);
        let x = Axis::classes((*first, *last), name, "size of the message".to_owned(), fits_across(frame.width()))?;
        Ok(Self { frame, boxes, x })
    }
}

impl Figure for SizeBoxes {
    fn height(&self) -> i32 {
        self.frame.height()
    }

    fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> Result<(), RenderError> {
        self.frame.draw_under(canvas)?;
        for (class, [low, median, high]) in &self.boxes {
            let x = |part: f64| self.frame.panel.x(&self.x, f64::from(*class) + part);
            // Limit the width where there are few classes.
            let middle = x(0.5);
            let half = ((x(1.0) - x(0.0)) * BOX as i32 / 20).min(70);
            let (left, right) = (middle - half, middle + half);
            let (top, bottom) = self.frame.draw_interval(canvas, (left, right), (*low, *high))?;
            let median = self.frame.panel.y(*median as f64);
            for y in [bottom, top] {
                canvas.line(&[(left, y), (right, y)], OKABE_ITO[0], LINE)?;
            }
            canvas.line(&[(left, median), (right, median)], OKABE_ITO[0], 4 * LINE)?;
            self.frame.draw_beyond(canvas, (left, right), *high)?;
        }
        self.frame.draw_over(canvas, &self.x)
    }
}
