//! Latencies over time: the median, the range from the 10th to the 90th percentile, and the 99th
//! percentile.
//!
//! Bins without samples leave a gap.

use super::axes::{Axis, over_time, seconds};
use super::canvas::{Canvas, Figure, LINE};
use super::legend::Swatch;
use super::quantiles::QuantileFrame;
use super::scale::{LIGHT, OKABE_ITO};
use crate::analysis::latency::LatencySeries;
use crate::model::Histogram;
use crate::render::RenderError;
use crate::render::latency::Subject;
use plotters::backend::DrawingBackend;
use plotters::style::RGBColor;
use std::collections::BTreeMap;

/// Maximum number of bins; more are merged, since narrow bins look noisy and have too few samples
/// for quantiles.
const MAX_BINS: i128 = 60;
const HIGH: RGBColor = OKABE_ITO[5];
const MEDIAN_WIDTH: u32 = 8;
const HIGH_WIDTH: u32 = 4;

/// The laid-out percentiles.
pub(super) struct Percentiles {
    frame: QuantileFrame,
    /// Number of each bin, and its 10th, 50th, 90th and 99th percentile in nanoseconds.
    bins: Vec<(i64, [u64; 4])>,
    /// Start of the first bin in seconds from the first packet, and width of a bin in seconds.
    bins_s: (f64, f64),
    x: Axis,
}

impl Percentiles {
    pub(super) fn new(subject: &Subject, times: &LatencySeries, most_ns: Option<u64>) -> Result<Self, RenderError> {
        let own = || times.bins.iter().filter(|(key, _)| key.interval == subject.interval);
        let starts = || own().map(|(key, _)| i128::from(key.time_ns));
        let (Some(first_ns), Some(last_ns), 1..) = (starts().min(), starts().max(), times.bin_ns) else {
            return Err(subject.nothing());
        };
        let bin_ns = i128::from(times.bin_ns);
        let count = (last_ns - first_ns) / bin_ns + 1;
        let width_ns = bin_ns * ((count + MAX_BINS - 1) / MAX_BINS);
        let mut sums: BTreeMap<i64, Histogram> = BTreeMap::new();
        for (key, times) in own() {
            let bin = (i128::from(key.time_ns) - first_ns) / width_ns;
            let bin = i64::try_from(bin).unwrap_or_default();
            sums.entry(bin).and_modify(|sum| sum.merge(times)).or_insert_with(|| times.clone());
        }
        let quantiles = |times: &Histogram| [0.1, 0.5, 0.9, 0.99].map(|share| times.quantile(share));
        let percentiles: Vec<(i64, [u64; 4])> = sums.iter().map(|(bin, times)| (*bin, quantiles(times))).collect();
        let colors = [
            ("median", Swatch::Line(OKABE_ITO[0], MEDIAN_WIDTH.cast_signed())),
            ("10 to 90 %", Swatch::Area(LIGHT)),
            ("99 %", Swatch::Line(HIGH, HIGH_WIDTH.cast_signed())),
        ];
        let all = percentiles.iter().flat_map(|(_, quantiles)| *quantiles);
        let frame = QuantileFrame::new(subject, &colors, all, most_ns)?;
        let (span_s, bin_s) = ((count * bin_ns) as f64 / 1e9, width_ns as f64 / 1e9);
        let start_s = seconds(times.origin_ns, i64::try_from(first_ns).unwrap_or_default());
        let x = over_time((start_s, span_s), bin_s, frame.width())?;
        Ok(Self { frame, bins: percentiles, bins_s: (start_s, bin_s), x })
    }

    /// Draws a percentile as steps, interrupted where there are no samples.
    fn draw_steps<DB: DrawingBackend>(
        &self,
        canvas: &Canvas<DB>,
        which: usize,
        color: RGBColor,
        width: u32,
    ) -> Result<(), RenderError> {
        for run in self.bins.chunk_by(|a, b| a.0 + 1 == b.0) {
            let step = |(bin, quantiles): &(i64, [u64; 4])| {
                let y = self.frame.panel.y(quantiles[which] as f64);
                let (left, right) = self.edges(*bin);
                [(left, y), (right, y)]
            };
            canvas.line(&run.iter().flat_map(step).collect::<Vec<_>>(), color, width)?;
        }
        Ok(())
    }

    fn edges(&self, bin: i64) -> (i32, i32) {
        let (start_s, bin_s) = self.bins_s;
        let [left, right] = [bin, bin + 1].map(|bin| self.frame.panel.x(&self.x, start_s + bin as f64 * bin_s));
        (left, right.max(left + LINE.cast_signed()))
    }
}

impl Figure for Percentiles {
    fn height(&self) -> i32 {
        self.frame.height()
    }

    fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> Result<(), RenderError> {
        self.frame.draw_under(canvas)?;
        for (bin, [low, _, high, _]) in &self.bins {
            self.frame.draw_interval(canvas, self.edges(*bin), (*low, *high))?;
        }
        self.draw_steps(canvas, 3, HIGH, HIGH_WIDTH)?;
        self.draw_steps(canvas, 1, OKABE_ITO[0], MEDIAN_WIDTH)?;
        for (bin, [.., highest]) in &self.bins {
            self.frame.draw_beyond(canvas, self.edges(*bin), *highest)?;
        }
        self.frame.draw_over(canvas, &self.x)
    }
}
