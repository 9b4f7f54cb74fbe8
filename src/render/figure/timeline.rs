//! Two panels over one axis of time: the traffic, bytes on the wire by sender and messages; what was sent again, packets by sender and
//! their share.

use super::axes::{Axis, BELOW, Panel, over_time};
use super::canvas::{Area, Canvas, Figure, MARGIN, WIDTH, cut};
use super::legend::{Legend, Swatch};
use super::scale::{OKABE_ITO, prefix_of};
use super::series::Series;
use crate::analysis::By;
use crate::analysis::health::Retransmissions;
use crate::analysis::matrix::Selection;
use crate::analysis::timeline::Timeline;
use crate::render::RenderError;
use plotters::backend::DrawingBackend;
use plotters::style::RGBColor;

const UPPER: i32 = 620;
const LOWER: i32 = 330;
/// Between the panels.
const BETWEEN: i32 = 60;
const OTHERS: RGBColor = RGBColor(153, 153, 153);
const OF_ALL: RGBColor = RGBColor(85, 85, 85);

/// Two panels with everything laid out.
pub(super) struct Panels {
    title: String,
    series: Series,
    legend: Legend,
    upper: Panel,
    lower: Panel,
    time: Axis,
}

impl Panels {
    /// The traffic over time.
    pub(super) fn traffic(timeline: &Timeline) -> Result<Self, RenderError> {
        let series = Series::traffic(timeline)?;
        let (wire_max, messages_max) = series.most();
        if wire_max <= 0.0 {
            return Err(RenderError::Empty);
        }
        let (one, prefix) = prefix_of(wire_max);
        let wire = Axis::linear(wire_max, one, "", format!("wire rate, {prefix}B/s"), 5);
        let messages = Axis::counts(messages_max, "messages/s".into(), 3);
        let selection = match (timeline.by, timeline.selection) {
            (By::Endpoint, Selection::All) => "messages",
            (By::Rank, Selection::All) => "MPI messages",
            (_, Selection::P2p) => "point-to-point messages",
            (_, Selection::Collective) => "collective messages",
            (_, Selection::OneSided) => "messages of one-sided operations",
        };
        let title = format!("Wire bytes by sending {}, and {selection}", sender(timeline.by));
        Self::new(title, series, wire, messages)
    }

    /// What was sent again over time.
    pub(super) fn retransmissions(repeated: &Retransmissions) -> Result<Self, RenderError> {
        let series = Series::retransmissions(repeated)?;
        let (packets_max, share_max) = series.most();
        if packets_max <= 0.0 {
            return Err(RenderError::NoRetransmissions);
        }
        let packets = Axis::counts(packets_max, "repeated packets".into(), 5);
        let share = Axis::linear(share_max, 1.0, "", "share, %".into(), 3);
        let title = format!("Packets sent again by sending {}, and their share", sender(repeated.by));
        Self::new(title, series, packets, share)
    }

    fn new(title: String, series: Series, upper: Axis, lower: Axis) -> Result<Self, RenderError> {
        let left = Panel::left([&upper, &lower])?;
        let right = WIDTH - 3 * MARGIN;
        let names = series.by_sender.iter().map(|(name, _)| cut(name));
        let legend = Legend::new(names.zip(colors().map(Swatch::Area)), left, right)?;
        let top = legend.bottom + MARGIN;
        let upper = Panel { area: Area { left, top, right, bottom: top + UPPER }, y: upper };
        let top = upper.area.bottom + BETWEEN;
        let lower = Panel { area: Area { left, top, right, bottom: top + LOWER }, y: lower };
        let time = over_time((series.start_s, series.span_s), series.bin_s, right - left)?;
        Ok(Self { title, series, legend, upper, lower, time })
    }

    /// The outline of values over time, down to zero at both ends.
    fn outline(&self, values: &[f64], panel: &Panel) -> Vec<(i32, i32)> {
        let x = |bin: usize| panel.x(&self.time, self.series.start_s + bin as f64 * self.series.bin_s);
        let Area { left, right, bottom, .. } = panel.area;
        let mut points = vec![(left, bottom)];
        let mut bin = 0;
        for run in values.chunk_by(|a, b| panel.y(*a) == panel.y(*b)) {
            let height = panel.y(run.first().copied().unwrap_or_default());
            points.extend([(x(bin), height), (x(bin + run.len()), height)]);
            bin += run.len();
        }
        points.push((right, bottom));
        points.dedup();
        points
    }

    fn draw_panel<DB: DrawingBackend>(
        &self,
        canvas: &Canvas<DB>,
        panel: &Panel,
        areas: &[(Vec<f64>, RGBColor)],
    ) -> Result<(), RenderError> {
        panel.draw_grid(canvas)?;
        // From the sum of all down to the first: each covers the lower part of the one before.
        for (values, color) in areas.iter().rev() {
            canvas.polygon(&self.outline(values, panel), *color)?;
        }
        panel.draw_frame(canvas, &self.time)
    }
}

impl Figure for Panels {
    fn height(&self) -> i32 {
        self.lower.area.bottom + BELOW
    }

    fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> Result<(), RenderError> {
        canvas.title(&self.title)?;
        self.legend.draw(canvas)?;
        let areas: Vec<(Vec<f64>, RGBColor)> = self.series.stacked().into_iter().zip(colors()).collect();
        self.draw_panel(canvas, &self.upper, &areas)?;
        self.draw_panel(canvas, &self.lower, &[(self.series.of_all.clone(), OF_ALL)])?;
        self.lower.draw_below(canvas, &self.time)
    }
}

/// Colours of senders, the last for all that have none of their own.
fn colors() -> impl Iterator<Item = RGBColor> {
    OKABE_ITO.into_iter().chain([OTHERS])
}

const fn sender(by: By) -> &'static str {
    match by {
        By::Rank => "rank",
        By::Endpoint => "endpoint",
    }
}
