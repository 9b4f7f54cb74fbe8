//! Histogram of latencies: bars of nearly equal ratio between round times, from the smallest to the
//! largest time. The line below the title has the number of samples and the percentiles, the same
//! as in the report.

use super::axes::{Axis, Panel, X_AXIS_HEIGHT, time, title};
use super::canvas::{Area, Canvas, Figure, LINE, MARGIN, TICK, TITLE, TextAnchor, WIDTH, width};
use super::scale::OKABE_ITO;
use crate::analysis::latency::RoundBars;
use crate::model::Histogram;
use crate::render::RenderError;
use crate::render::latency::Subject;
use crate::render::units::count_of;
use plotters::backend::DrawingBackend;
use plotters::style::{BLACK, RGBColor};

const HEIGHT: i32 = 760;
/// Color of the median line and its label.
const MEDIAN: RGBColor = OKABE_ITO[5];
const LABEL_LINE: i32 = TICK + 14;

/// The laid-out histogram.
pub(super) struct Bars {
    title: String,
    drawn: RoundBars,
    median_ns: u64,
    /// The line of text below the title.
    notes: String,
    panel: Panel,
    x: Axis,
}

impl Bars {
    pub(super) fn new(subject: &Subject, times: &Histogram) -> Result<Self, RenderError> {
        if times.samples() == 0 {
            return Err(subject.nothing());
        }
        let bars = RoundBars::new(times);
        let most = bars.counts.iter().copied().max().unwrap_or_default();
        let y = Axis::counts(most as f64, "samples".to_owned(), 5);
        let left = Panel::left([&y])?;
        // The notes and the label of the median are between title and plot.
        let top = MARGIN + TITLE + 20 + 2 * LABEL_LINE;
        let area = Area { left, top, right: WIDTH - 3 * MARGIN, bottom: top + HEIGHT };
        let x_title = "time, logarithmic".to_owned();
        let x = Axis::round_bars(&bars.edges_ns, x_title, area.right - area.left)?;
        let within = |share: f64| format!("{} % within {}", share * 100.0, time(times.quantile(share) as f64));
        let notes = [
            count_of(times.samples(), "sample"),
            within(0.9),
            within(0.99),
            format!("maximum {}", time(times.max() as f64)),
        ]
        .join(", ");
        let median_ns = times.quantile(0.5);
        Ok(Self { title: title(subject), drawn: bars, median_ns, notes, panel: Panel { area, y }, x })
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
        let x = |bar: usize| self.panel.x(&self.x, bar as f64);
        for (bar, count) in self.drawn.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            // A bar with few samples is still visible: at least one line high.
            let height = self.panel.y(*count as f64).min(bottom - LINE.cast_signed());
            canvas.fill(Area { left: x(bar), top: height, right: x(bar + 1), bottom }, OKABE_ITO[0])?;
        }
        let median = self.panel.x(&self.x, self.drawn.position(self.median_ns));
        canvas.line(&[(median, top), (median, bottom)], MEDIAN, 3 * LINE)?;
        self.panel.draw_frame(canvas, &self.x)?;
        self.panel.draw_x_axis(canvas, &self.x)?;
        let label = format!("median {}", time(self.median_ns as f64));
        let half = width(&label, TICK)? / 2;
        let middle = median.clamp(self.panel.area.left + half, right - half);
        canvas.text(&label, (middle, top - LABEL_LINE / 2), TextAnchor::Middle, TICK, MEDIAN)?;
        let room = WIDTH - 2 * MARGIN;
        let size = (TICK * room / width(&self.notes, TICK)?.max(1)).min(TICK);
        canvas.text(&self.notes, (WIDTH / 2, top - LABEL_LINE * 3 / 2), TextAnchor::Middle, size, BLACK)
    }
}
