//! The timeline as two panels over one axis of time: bytes on the wire by sender, and messages.

use super::canvas::{
    Anchor, Area, Canvas, Figure, LINE, MARGIN, TEXT, TICK, TICK_LENGTH, TITLE, WIDTH, cut, widest, width,
};
use super::scale::{OKABE_ITO, axis, prefix_of};
use super::series::Series;
use crate::report::By;
use crate::report::ReportError;
use crate::report::matrix::Selection;
use crate::report::timeline::Timeline;
use plotters::backend::DrawingBackend;
use plotters::style::{BLACK, RGBColor};

const UPPER: i32 = 620;
const LOWER: i32 = 330;
/// Between the panels.
const BETWEEN: i32 = 60;
const LEGEND_LINE: i32 = TICK + 14;
const SWATCH: i32 = 40;
const OTHERS: RGBColor = RGBColor(153, 153, 153);
const MESSAGES: RGBColor = RGBColor(85, 85, 85);
const GRID: RGBColor = RGBColor(222, 222, 222);

/// An entry of the legend and where it stands.
struct Entry {
    name: String,
    color: RGBColor,
    x: i32,
    y: i32,
}

/// A vertical axis: what one of its numbers is worth, its largest value, and its numbers.
struct Axis {
    one: f64,
    max: f64,
    title: String,
    ticks: Vec<(f64, String)>,
}

/// A timeline with everything laid out.
pub(super) struct Panels {
    title: String,
    series: Series,
    legend: Vec<Entry>,
    wire: Axis,
    messages: Axis,
    upper: Area,
    lower: Area,
    /// Nanoseconds and the like: what one of the numbers is in seconds, and its name.
    second: (f64, &'static str),
}

impl Panels {
    pub(super) fn new(timeline: &Timeline) -> Result<Self, ReportError> {
        let series = Series::new(timeline)?;
        let most = |rates: &[f64]| rates.iter().copied().fold(0.0, f64::max);
        let (wire_max, messages_max) =
            (series.stacked().last().map_or(0.0, |rates| most(rates)), most(&series.messages));
        if wire_max <= 0.0 {
            return Err(ReportError::Empty);
        }
        let (one, prefix) = prefix_of(wire_max);
        let wire = Axis::new(wire_max, one, "", format!("wire rate, {prefix}B/s"), 5);
        let (one, suffix) = prefix_of(messages_max);
        let messages = Axis::new(messages_max, one, suffix, "messages/s".into(), 3);
        let what = if timeline.by == By::Rank { "rank" } else { "endpoint" };
        let selection = match (timeline.by, timeline.selection) {
            (By::Endpoint, Selection::All) => "messages",
            (By::Rank, Selection::All) => "MPI messages",
            (_, Selection::P2p) => "point-to-point messages",
            (_, Selection::Collective) => "collective messages",
        };
        let title = format!("Wire bytes by sending {what}, and {selection}");

        let ticks = wire.ticks.iter().chain(&messages.ticks).map(|(_, text)| text.as_str());
        let left = MARGIN + TEXT + MARGIN / 2 + widest(ticks, TICK)? + TICK_LENGTH + 8;
        let right = WIDTH - 3 * MARGIN;
        let (legend, legend_bottom) = legend(&series, left, right)?;
        let top = legend_bottom + MARGIN;
        let upper = Area { left, top, right, bottom: top + UPPER };
        let top = upper.bottom + BETWEEN;
        let lower = Area { left, top, right, bottom: top + LOWER };
        let second = unit(series.span_s);
        Ok(Self { title, series, legend, wire, messages, upper, lower, second })
    }

    /// The outline of a rate over time, down to zero at both ends.
    fn outline(&self, rates: &[f64], panel: Area, max: f64) -> Vec<(i32, i32)> {
        let x = |bin: usize| {
            let share = (bin as f64 * self.series.bin_s / self.series.span_s).min(1.0);
            panel.left + (share * f64::from(panel.right - panel.left)).round() as i32
        };
        let mut points = vec![(panel.left, panel.bottom)];
        let mut bin = 0;
        for run in rates.chunk_by(|a, b| y(*a, panel, max) == y(*b, panel, max)) {
            let height = y(run.first().copied().unwrap_or_default(), panel, max);
            points.extend([(x(bin), height), (x(bin + run.len()), height)]);
            bin += run.len();
        }
        points.push((panel.right, panel.bottom));
        points.dedup();
        points
    }

    fn draw_panel<DB: DrawingBackend>(
        &self,
        canvas: &Canvas<DB>,
        panel: Area,
        axis: &Axis,
        areas: &[(Vec<f64>, RGBColor)],
    ) -> Result<(), ReportError> {
        for (value, _) in &axis.ticks {
            let y = y(value * axis.one, panel, axis.max);
            canvas.line(&[(panel.left, y), (panel.right, y)], GRID, 2)?;
        }
        // From the sum of all down to the first: each covers the lower part of the one before.
        for (rates, color) in areas.iter().rev() {
            canvas.polygon(&self.outline(rates, panel, axis.max), *color)?;
        }
        canvas.frame(panel)?;
        for (value, text) in &axis.ticks {
            let y = y(value * axis.one, panel, axis.max);
            canvas.line(&[(panel.left - TICK_LENGTH, y), (panel.left, y)], BLACK, LINE)?;
            canvas.text(text, (panel.left - TICK_LENGTH - 8, y), Anchor::Right, TICK, BLACK)?;
        }
        let middle = i32::midpoint(panel.top, panel.bottom);
        canvas.text(&axis.title, (MARGIN + TEXT / 2, middle), Anchor::UpMiddle, TEXT, BLACK)?;
        for (x, _) in self.times()? {
            canvas.line(&[(x, panel.bottom), (x, panel.bottom + TICK_LENGTH)], BLACK, LINE)?;
        }
        Ok(())
    }

    /// Positions and texts of the axis of time: as many as fit.
    fn times(&self) -> Result<Vec<(i32, String)>, ReportError> {
        let (left, right) = (self.lower.left, self.lower.right);
        let span = self.series.span_s / self.second.0;
        let mut ticks = Vec::new();
        for most in (1..=8).rev() {
            ticks = axis(span, most);
            let room = f64::from(right - left) * ticks.get(1).map_or(span, |tick| tick.0) / span;
            if f64::from(widest(ticks.iter().map(|(_, text)| text.as_str()), TICK)?) + 50.0 <= room {
                break;
            }
        }
        let x = |value: f64| left + (value / span * f64::from(right - left)).round() as i32;
        Ok(ticks.into_iter().map(|(value, text)| (x(value), text)).collect())
    }
}

impl Figure for Panels {
    fn height(&self) -> i32 {
        self.lower.bottom + TICK_LENGTH + 8 + TICK + MARGIN / 2 + TEXT + MARGIN
    }

    fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> Result<(), ReportError> {
        canvas.title(&self.title)?;
        for Entry { name, color, x, y } in &self.legend {
            let swatch = Area { left: *x, top: y - SWATCH / 2, right: x + SWATCH, bottom: y + SWATCH / 2 };
            canvas.fill(swatch, *color)?;
            canvas.text(name, (x + SWATCH + 14, *y), Anchor::Left, TICK, BLACK)?;
        }
        let colors = self.legend.iter().map(|entry| entry.color);
        let areas: Vec<(Vec<f64>, RGBColor)> = self.series.stacked().into_iter().zip(colors).collect();
        self.draw_panel(canvas, self.upper, &self.wire, &areas)?;
        self.draw_panel(canvas, self.lower, &self.messages, &[(self.series.messages.clone(), MESSAGES)])?;
        for (x, text) in self.times()? {
            canvas.text(&text, (x, self.lower.bottom + TICK_LENGTH + 8 + TICK / 2), Anchor::Middle, TICK, BLACK)?;
        }
        let (one, name) = unit(self.series.bin_s);
        let width = ((self.series.bin_s / one) * 1000.0).round() / 1000.0;
        let title = format!("time from the first bin in {} (bins of {width} {name})", self.second.1);
        let x = i32::midpoint(self.lower.left, self.lower.right);
        canvas.text(&title, (x, self.height() - MARGIN - TEXT / 2), Anchor::Middle, TEXT, BLACK)
    }
}

impl Axis {
    fn new(max: f64, one: f64, suffix: &str, title: String, most: u32) -> Self {
        // A little room above; and an axis with nothing on it still needs a length.
        let max = if max > 0.0 { max * 1.04 } else { 1.0 };
        let mut ticks = axis(max / one, most);
        for (_, text) in ticks.iter_mut().filter(|(value, _)| *value > 0.0) {
            text.push_str(suffix);
        }
        Self { one, max, title, ticks }
    }
}

fn y(rate: f64, panel: Area, max: f64) -> i32 {
    panel.bottom - (rate / max * f64::from(panel.bottom - panel.top)).round() as i32
}

/// The unit of time in which so many seconds are 1 or more.
fn unit(seconds: f64) -> (f64, &'static str) {
    // Half a nanosecond of tolerance: bins are whole nanoseconds.
    [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs")]
        .into_iter()
        .find(|&(one, _)| seconds >= one - 5e-10)
        .unwrap_or((1e-9, "ns"))
}

/// The entries side by side, in as many lines as they need, and where they end.
fn legend(series: &Series, left: i32, right: i32) -> Result<(Vec<Entry>, i32), ReportError> {
    let mut entries = Vec::new();
    let (mut x, mut y) = (left, MARGIN + TITLE + 20 + LEGEND_LINE / 2);
    for (index, (name, _)) in series.wire.iter().enumerate() {
        let name = cut(name);
        let needed = SWATCH + 14 + width(&name, TICK)?;
        if x > left && x + needed > right {
            (x, y) = (left, y + LEGEND_LINE);
        }
        let color = OKABE_ITO.get(index).copied().unwrap_or(OTHERS);
        entries.push(Entry { name, color, x, y });
        x += needed + 50;
    }
    Ok((entries, y + LEGEND_LINE / 2))
}
