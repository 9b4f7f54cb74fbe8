//! Histogram of latencies.
//!
//! The time axis ends at twice the 90th percentile, rounded up to 1, 2 or 5 times a power of ten.
//! So a few outliers do not compress the rest, and two captures of the same application usually
//! have the same axis. A box shows the share of samples beyond the axis and the maximum.

use super::axes::{Axis, Panel, X_AXIS_HEIGHT, time, title, unit};
use super::canvas::{Area, Canvas, Figure, LINE, MARGIN, TICK, TITLE, TextAnchor, WIDTH, pixels, widest, width};
use super::scale::OKABE_ITO;
use crate::analysis::latency::BarHistogram;
use crate::model::Histogram;
use crate::render::RenderError;
use crate::render::latency::Subject;
use crate::render::units::count_of;
use plotters::backend::DrawingBackend;
use plotters::style::{BLACK, RGBColor, WHITE};

const HEIGHT: i32 = 760;
/// Color of the median line and its label.
const MEDIAN: RGBColor = OKABE_ITO[5];
/// Possible numbers of bars: the largest is used whose bars are not finer than the capture's clock.
const BARS: [u64; 4] = [50, 25, 20, 10];
const BOX_LINE: i32 = TICK + 14;

/// The laid-out histogram.
pub(super) struct Bars {
    title: String,
    /// Samples per bar.
    counts: Vec<u64>,
    limit_ns: u64,
    median_ns: u64,
    /// Lines of text in the box.
    notes: [String; 3],
    panel: Panel,
    x: Axis,
}

impl Bars {
    pub(super) fn new(subject: &Subject, times: &Histogram) -> Result<Self, RenderError> {
        if times.samples() == 0 {
            return Err(subject.nothing());
        }
        let BarHistogram { limit_ns, counts, beyond } = BarHistogram::new(times, &BARS);
        let bars = counts.len();
        let most = counts.iter().copied().max().unwrap_or_default();
        let y = Axis::counts(most as f64, "samples".to_owned(), 5);
        let left = Panel::left([&y])?;
        // The label of the median is between title and plot.
        let top = MARGIN + TITLE + 20 + BOX_LINE;
        let area = Area { left, top, right: WIDTH - 3 * MARGIN, bottom: top + HEIGHT };
        let (one, name) = unit(limit_ns as f64 / 1e9);
        let x_title = format!("time, {name} (bars of {})", time(limit_ns as f64 / bars as f64));
        let x = Axis::across((0.0, limit_ns as f64), one * 1e9, x_title, area.right - area.left)?;
        let share = beyond as f64 * 100.0 / times.samples() as f64;
        let digits = if share > 0.0 && share < 0.1 { 3 } else { 1 };
        let notes = [
            count_of(times.samples(), "sample"),
            format!("{share:.digits$} % beyond {}", time(limit_ns as f64)),
            format!("maximum {}", time(times.max() as f64)),
        ];
        let median_ns = times.quantile(0.5);
        Ok(Self { title: title(subject), counts, limit_ns, median_ns, notes, panel: Panel { area, y }, x })
    }

    fn draw_box<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> Result<(), RenderError> {
        let inner = widest(self.notes.iter().map(String::as_str), TICK)?;
        let right = self.panel.area.right - MARGIN;
        let top = self.panel.area.top + MARGIN;
        let area = Area {
            left: right - inner - 2 * MARGIN,
            top,
            right,
            bottom: top + pixels(self.notes.len()) * BOX_LINE + MARGIN,
        };
        canvas.fill(area, WHITE)?;
        canvas.frame(area)?;
        for (index, note) in self.notes.iter().enumerate() {
            let y = top + MARGIN / 2 + pixels(index) * BOX_LINE + BOX_LINE / 2;
            canvas.text(note, (area.left + MARGIN, y), TextAnchor::Left, TICK, BLACK)?;
        }
        Ok(())
    }
}

impl Figure for Bars {
    fn height(&self) -> i32 {
        self.panel.area.bottom + X_AXIS_HEIGHT
    }

    fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> Result<(), RenderError> {
        canvas.title(&self.title)?;
        self.panel.draw_grid(canvas)?;
        let Area { top, bottom, right, .. } = self.panel.area;
        let bar_ns = self.limit_ns as f64 / self.counts.len() as f64;
        let x = |bar: usize| self.panel.x(&self.x, bar as f64 * bar_ns);
        for (bar, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            // A bar with few samples is still visible: at least one line high.
            let height = self.panel.y(*count as f64).min(bottom - LINE.cast_signed());
            canvas.fill(Area { left: x(bar), top: height, right: x(bar + 1), bottom }, OKABE_ITO[0])?;
        }
        let median = self.panel.x(&self.x, self.median_ns as f64);
        canvas.line(&[(median, top), (median, bottom)], MEDIAN, 3 * LINE)?;
        self.panel.draw_frame(canvas, &self.x)?;
        self.panel.draw_x_axis(canvas, &self.x)?;
        let label = format!("median {}", time(self.median_ns as f64));
        let half = width(&label, TICK)? / 2;
        let middle = median.clamp(self.panel.area.left + half, right - half);
        canvas.text(&label, (middle, top - BOX_LINE / 2), TextAnchor::Middle, TICK, MEDIAN)?;
        self.draw_box(canvas)
    }
}
