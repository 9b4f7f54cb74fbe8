//! Panels over one time axis, for one of three figures:
//!
//! - traffic: wire bytes by sender or class, and messages;
//! - storage: payload in each direction, that of jobs, and commands;
//! - health: retransmitted packets by sender, their share of all packets, and if there are any, the
//!   packets that show congestion, loss or a slow receiver.

use super::axes::{Axis, EDGE, EDGE_TEXT, Panel, X_AXIS_HEIGHT, over_time};
use super::canvas::{Area, Canvas, Figure, MARGIN, WIDTH, shorten, titled};
use super::legend::{HEADER, Legend, Swatch, key};
use super::scale::{OKABE_ITO, byte_unit};
use super::scale_end::{counted, mark};
use super::series::Series;
use crate::analysis::GroupBy;
use crate::analysis::health::HealthSeries;
use crate::analysis::matrix::Selection;
use crate::analysis::storage_timeline::StorageTimeline;
use crate::analysis::timeline::{ClassTimeline, Timeline};
use crate::render::RenderError;
use plotters::backend::DrawingBackend;
use plotters::style::RGBColor;

const UPPER: i32 = 620;
const LOWER: i32 = 330;
/// Distance between the panels.
const BETWEEN: i32 = 60;
const OTHERS: RGBColor = RGBColor(153, 153, 153);
const TOTAL_COLOR: RGBColor = RGBColor(85, 85, 85);

/// The laid-out panels.
pub(super) struct TimelinePanels {
    title: String,
    series: Series,
    legend: Legend,
    upper: Panel,
    lower: Panel,
    /// The panels below: the stacked values of each are those of its series, which may have other
    /// bins.
    more: Vec<(Panel, Series)>,
    time: Axis,
}

impl TimelinePanels {
    /// Lays out the traffic over time.
    pub(super) fn traffic(timeline: &Timeline, series: Series, most: Option<u64>) -> Result<Self, RenderError> {
        let selection = match (timeline.by, timeline.selection) {
            (GroupBy::Rank, Selection::All) => "MPI messages",
            (_, Selection::All) => "messages",
            (_, Selection::P2p) => "point-to-point messages",
            (_, Selection::Collective) => "collective messages",
            (_, Selection::OneSided) => "messages of one-sided operations",
        };
        let title = format!("Wire bytes by sending {}, and {selection}", timeline.by.noun());
        Self::of_rates((title, timeline.sampled.as_deref()), series, ("wire rate", "messages/s"), most)
    }

    /// Lays out the traffic of each class over time.
    pub(super) fn classes(timeline: &ClassTimeline, most: Option<u64>) -> Result<Self, RenderError> {
        let title = "Wire bytes by class, and messages".to_owned();
        Self::of_rates(
            (title, timeline.sampled.as_deref()),
            Series::classes(timeline)?,
            ("wire rate", "messages/s"),
            most,
        )
    }

    /// Lays out the storage traffic beside that of jobs.
    pub(super) fn storage(timeline: &StorageTimeline) -> Result<Self, RenderError> {
        let title = "Payload of storage beside jobs, and storage commands".to_owned();
        let names = ("payload rate", "commands/s");
        Self::of_rates((title, timeline.sampled.as_deref()), Series::storage(timeline)?, names, None)
    }

    /// `names` are those of the two axes. With `most`, the upper axis ends at this rate.
    fn of_rates(
        (title, sampled): (String, Option<&str>),
        series: Series,
        names: (&str, &str),
        most: Option<u64>,
    ) -> Result<Self, RenderError> {
        let (bytes_max, counts_max) = series.most();
        if bytes_max <= 0.0 {
            return Err(RenderError::Empty);
        }
        let end = most.map(|most| most as f64);
        let (one, unit) = byte_unit(end.unwrap_or(bytes_max));
        let bytes = Axis::linear(end.unwrap_or(bytes_max), one, "", format!("{}, {unit}/s", names.0), 5).ending_at(end);
        let sums = series.stacked().pop().unwrap_or_default();
        let title = counted(title, sums.iter().filter(|sum| bytes.is_exceeded(**sum)).count(), "bin");
        let counts = Axis::counts(counts_max, names.1.into(), 3);
        Self::new(title, sampled, series, bytes, counts)
    }

    /// Lays out retransmissions, congestion, NAKs and pause frames over time.
    pub(super) fn health(health: &HealthSeries) -> Result<Self, RenderError> {
        let series = Series::retransmissions(health)?;
        let (packets_max, share_max) = series.most();
        let packets = Axis::counts(packets_max.max(1.0), "retransmitted packets".into(), 5);
        let share = Axis::linear(if share_max > 0.0 { share_max } else { 1.0 }, 1.0, "", "share, %".into(), 3);
        let title = if packets_max > 0.0 {
            format!("Retransmitted packets by sending {}, and their share", health.by.noun())
        } else {
            "No packet was retransmitted".to_owned()
        };
        let mut panels = Self::new(title, None, series, packets, share)?;
        let congestion = Series::congestion(health)?;
        let (most, _) = congestion.most();
        if most > 0.0 {
            panels.title = if packets_max > 0.0 {
                format!("Retransmitted packets by sending {}, congestion and NAKs", health.by.noun())
            } else {
                "Congestion and NAKs; no packet was retransmitted".to_owned()
            };
            panels.add("packets", congestion);
        }
        if !health.pauses.bins.is_empty() {
            panels.title = match (packets_max > 0.0, most > 0.0) {
                (false, false) => "Pause frames; no packet was retransmitted".to_owned(),
                _ => format!("{}, and pause frames", panels.title),
            };
            panels.add("frames", Series::pauses(&health.pauses)?);
        }
        Ok(panels)
    }

    /// Adds a panel below the others.
    fn add(&mut self, what: &str, series: Series) {
        let Area { left, right, bottom, .. } = self.last_panel().area;
        let top = bottom + BETWEEN + HEADER;
        let y = Axis::counts(series.most().0, what.into(), 3);
        self.more.push((Panel { area: Area { left, top, right, bottom: top + LOWER }, y }, series));
    }

    fn new(
        title: String,
        sampled: Option<&str>,
        series: Series,
        upper: Axis,
        lower: Axis,
    ) -> Result<Self, RenderError> {
        let title = titled(title, sampled);
        let left = Panel::left([&upper, &lower])?;
        let right = WIDTH - 3 * MARGIN;
        let names = series.by_sender.iter().map(|(name, _)| shorten(name));
        let edges = (!series.edges_s.is_empty()).then(|| (EDGE_TEXT.to_owned(), Swatch::Area(EDGE)));
        let legend = Legend::new(names.zip(colors().map(Swatch::Area)).chain(edges), left, right)?;
        let top = legend.bottom + MARGIN;
        let upper = Panel { area: Area { left, top, right, bottom: top + UPPER }, y: upper };
        let top = upper.area.bottom + BETWEEN;
        let lower = Panel { area: Area { left, top, right, bottom: top + LOWER }, y: lower };
        let time = over_time((series.start_s, series.span_s), series.bin_s, right - left)?;
        Ok(Self { title, series, legend, upper, lower, more: Vec::new(), time })
    }

    /// Outline of values over time, as a polygon that goes down to zero at both ends.
    fn outline(&self, values: &[f64], series: &Series, panel: &Panel) -> Vec<(i32, i32)> {
        let Area { left, right, bottom, .. } = panel.area;
        let x = |bin: usize| panel.x(&self.time, series.start_s + bin as f64 * series.bin_s).clamp(left, right);
        let mut points = vec![(left, bottom), (x(0), bottom)];
        let mut bin = 0;
        for run in values.chunk_by(|a, b| panel.y(*a) == panel.y(*b)) {
            let height = panel.y(run.first().copied().unwrap_or_default());
            points.extend([(x(bin), height), (x(bin + run.len()), height)]);
            bin += run.len();
        }
        points.extend([(x(values.len()), bottom), (right, bottom)]);
        points.dedup();
        points
    }

    fn last_panel(&self) -> &Panel {
        self.more.last().map_or(&self.lower, |(panel, _)| panel)
    }

    fn draw_panel<DB: DrawingBackend>(
        &self,
        canvas: &Canvas<DB>,
        panel: &Panel,
        series: &Series,
        areas: &[(Vec<f64>, RGBColor)],
    ) -> Result<(), RenderError> {
        panel.draw_edges(canvas, &self.time, &self.series.edges_s)?;
        panel.draw_grid(canvas)?;
        // Draw the sum of all senders first; each following area covers the lower part of it.
        for (values, color) in areas.iter().rev() {
            canvas.polygon(&self.outline(values, series, panel), *color)?;
        }
        panel.draw_frame(canvas, &self.time)
    }
}

impl Figure for TimelinePanels {
    fn height(&self) -> i32 {
        self.last_panel().area.bottom + X_AXIS_HEIGHT
    }

    fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> Result<(), RenderError> {
        canvas.title(&self.title)?;
        self.legend.draw(canvas)?;
        let areas: Vec<(Vec<f64>, RGBColor)> = self.series.stacked().into_iter().zip(colors()).collect();
        self.draw_panel(canvas, &self.upper, &self.series, &areas)?;
        let sums = areas.last().map(|(sums, _)| sums.as_slice()).unwrap_or_default();
        for (bin, _) in sums.iter().enumerate().filter(|(_, sum)| self.upper.y.is_exceeded(**sum)) {
            let x = |bin: usize| self.upper.x(&self.time, self.series.start_s + bin as f64 * self.series.bin_s);
            mark(canvas, self.upper.area, (x(bin), x(bin + 1)))?;
        }
        self.draw_panel(canvas, &self.lower, &self.series, &[(self.series.total.clone(), TOTAL_COLOR)])?;
        for (panel, series) in &self.more {
            let Area { left, top, .. } = panel.area;
            let mut next = left;
            for ((name, _), color) in series.by_sender.iter().zip(colors()) {
                next = key(canvas, (next, top - HEADER / 2), color, name)?;
            }
            let areas: Vec<(Vec<f64>, RGBColor)> = series.stacked().into_iter().zip(colors()).collect();
            self.draw_panel(canvas, panel, series, &areas)?;
        }
        self.last_panel().draw_x_axis(canvas, &self.time)
    }
}

/// Colors of the senders; the last color is for the combined others.
fn colors() -> impl Iterator<Item = RGBColor> {
    OKABE_ITO.into_iter().chain([OTHERS])
}
