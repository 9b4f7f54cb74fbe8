//! Figures as SVG, PNG and PDF: the matrix as a heat map (whole run or per phase), the timeline as two
//! panels, rates with size distributions, and latencies in several views.
//!
//! Each public function takes the result of an analysis and returns a [`Drawing`]. All
//! formats come from the same drawing functions and have the same proportions. Texts are large relative
//! to the figure, so that the figure stays readable in one column of a printed page, 8 cm wide.

mod axes;
mod bar;
mod canvas;
mod cells;
mod crosscheck;
mod histogram;
mod legend;
mod links;
mod matrix;
mod pdf;
mod percentiles;
mod phases;
mod quantiles;
mod rates;
mod runs;
mod scale;
mod scale_end;
mod sender_heat;
mod series;
mod sizes;
mod surface;
#[cfg(test)]
mod tests;
mod time_heat;
mod timeline;

use super::RenderError;
use super::latency::Subject;
use super::scale::{DARK_PART, LIGHT_PART};
use crate::analysis::compare::RunsComparison;
use crate::analysis::health::HealthSeries;
use crate::analysis::latency::{LatencyKey, LatencySeries, Surface};
use crate::analysis::link_rates::LinkRates;
use crate::analysis::matrix::{Matrix, TrafficUnit};
use crate::analysis::phases::Phases;
use crate::analysis::rates::Rates;
use crate::analysis::storage_timeline::StorageTimeline;
use crate::analysis::timeline::{ClassTimeline, Timeline};
use crate::crosscheck::Crosscheck;
use crate::model::Histogram;
use canvas::Figure;
use plotters::style::RGBColor;
use std::collections::BTreeMap;

/// A figure that is laid out and ready to be written as SVG, PNG or PDF.
pub struct Drawing {
    figure: Box<dyn Formats>,
    /// The line above the figure that the user chose.
    heading: Option<String>,
}

impl Drawing {
    fn of(figure: impl Figure + 'static) -> Self {
        Self { figure: Box::new(figure), heading: None }
    }

    /// The drawing with a line above it. Its own title stays, because that says what the figure shows.
    #[must_use]
    pub fn headed(self, heading: Option<String>) -> Self {
        Self { heading, ..self }
    }

    /// Returns the figure as an SVG document.
    pub fn svg(&self) -> Result<String, RenderError> {
        self.figure.as_svg(self.heading.as_deref())
    }

    /// Returns the figure as the bytes of a PNG file.
    pub fn png(&self) -> Result<Vec<u8>, RenderError> {
        self.figure.as_png(self.heading.as_deref())
    }

    /// Returns the figure as the bytes of a PDF file with one page.
    pub fn pdf(&self) -> Result<Vec<u8>, RenderError> {
        pdf::pdf(&self.svg()?)
    }
}

/// The formats that a figure draws itself in, without its type.
trait Formats {
    fn as_svg(&self, heading: Option<&str>) -> Result<String, RenderError>;
    fn as_png(&self, heading: Option<&str>) -> Result<Vec<u8>, RenderError>;
}

impl<F: Figure> Formats for F {
    fn as_svg(&self, heading: Option<&str>) -> Result<String, RenderError> {
        self.svg(heading)
    }

    fn as_png(&self, heading: Option<&str>) -> Result<Vec<u8>, RenderError> {
        self.png(heading)
    }
}

/// Draws the distribution of latencies over all pairs, verbs and sizes.
pub fn latency_histogram(
    subject: &Subject,
    latencies: &BTreeMap<LatencyKey, Histogram>,
) -> Result<Drawing, RenderError> {
    let mut sum = Histogram::default();
    latencies.iter().filter(|(key, _)| key.interval == subject.interval).for_each(|(_, times)| sum.merge(times));
    Ok(Drawing::of(histogram::Bars::new(subject, &sum)?))
}

/// Draws median latencies by message size, over all pairs and verbs. With `most_ns`, the scale ends at this
/// time.
pub fn latency_sizes(
    subject: &Subject,
    latencies: &BTreeMap<LatencyKey, Histogram>,
    most_ns: Option<u64>,
) -> Result<Drawing, RenderError> {
    let mut by_size: BTreeMap<u64, Histogram> = BTreeMap::new();
    for (key, times) in latencies.iter().filter(|(key, _)| key.interval == subject.interval) {
        if let Some(bytes) = key.from_bytes {
            by_size.entry(bytes).or_default().merge(times);
        }
    }
    Ok(Drawing::of(sizes::SizeBoxes::new(subject, &by_size, most_ns)?))
}

/// Draws median latencies by message size and message rate. With `most_ns`, the scale ends at this time.
pub fn latency_surface(subject: &Subject, surface: &Surface, most_ns: Option<u64>) -> Result<Drawing, RenderError> {
    Ok(Drawing::of(surface::Heat::new(subject, surface, most_ns)?))
}

/// Draws latency percentiles over time. With `most_ns`, the scale ends at this time.
pub fn latency_over_time(
    subject: &Subject,
    times: &LatencySeries,
    most_ns: Option<u64>,
) -> Result<Drawing, RenderError> {
    Ok(Drawing::of(percentiles::Percentiles::new(subject, times, most_ns)?))
}

/// Draws retransmissions, congestion and NAKs over time.
pub fn health(series: &HealthSeries) -> Result<Drawing, RenderError> {
    Ok(Drawing::of(timeline::TimelinePanels::health(series)?))
}

/// Draws the matrix as a heat map. With `most`, the color scale is linear from 0 to this value, whatever
/// the values of the matrix.
pub fn matrix(matrix: &Matrix, unit: TrafficUnit, most: Option<u64>) -> Result<Drawing, RenderError> {
    Ok(Drawing::of(matrix::HeatMap::new(matrix, unit, most)?))
}

/// Draws the busiest pairs of several runs, with the median and the run that deviates.
pub fn runs(comparison: &RunsComparison) -> Result<Drawing, RenderError> {
    Ok(Drawing::of(runs::RunPoints::new(comparison)?))
}

/// Draws an application trace and the captured traffic side by side.
pub fn crosscheck(crosscheck: &Crosscheck) -> Result<Drawing, RenderError> {
    Ok(Drawing::of(crosscheck::Matrices::new(crosscheck)?))
}

/// Draws the traffic over time: stacked by sender, or as a heat map of the senders if most of the
/// traffic would be that of the others. With `most`, the scale of the rates ends at this number of bytes per
/// second.
pub fn timeline(timeline: &Timeline, most: Option<u64>) -> Result<Drawing, RenderError> {
    let series = series::Series::traffic(timeline)?;
    if series.is_mostly_others() {
        return Ok(Drawing::of(sender_heat::sender_heat(timeline, most)?));
    }
    Ok(Drawing::of(timeline::TimelinePanels::traffic(timeline, series, most)?))
}

/// Draws the traffic of each class over time, with the scale of [`timeline`].
pub fn class_timeline(timeline: &ClassTimeline, most: Option<u64>) -> Result<Drawing, RenderError> {
    Ok(Drawing::of(timeline::TimelinePanels::classes(timeline, most)?))
}

/// Draws the storage traffic over time, beside that of the jobs of its clients.
pub fn storage_timeline(timeline: &StorageTimeline) -> Result<Drawing, RenderError> {
    Ok(Drawing::of(timeline::TimelinePanels::storage(timeline)?))
}

/// Draws the matrix of each phase below a time axis with all phases.
pub fn phases(phases: &Phases) -> Result<Drawing, RenderError> {
    Ok(Drawing::of(phases::PhasesFigure::new(phases)?))
}

/// Draws the wire rate over time above the distributions of sizes. With `most`, the scale of the rate ends at
/// this number of bytes per second.
pub fn rates(rates: &Rates, most: Option<u64>) -> Result<Drawing, RenderError> {
    Ok(Drawing::of(rates::RatePanels::new(rates, most)?))
}

/// Draws the rates of links over time as a heat map.
pub fn link_rates(rates: &LinkRates) -> Result<Drawing, RenderError> {
    Ok(Drawing::of(links::link_heat(rates)?))
}

/// The colors of the figures, for other renderings, as `#rrggbb`.
#[derive(serde::Serialize)]
pub(super) struct Colors {
    /// The color scale from low to high, in equal steps.
    scale: Vec<String>,
    /// The parts of this scale that values have in the light and in the dark theme.
    parts: ScaleParts,
    /// Colors that distinguish categories.
    apart: Vec<String>,
    /// Name and color of each outcome of a cross-check.
    outcomes: Vec<(&'static str, String)>,
}

/// From the color of the smallest value to that of the largest, 0 to 1 on the scale.
#[derive(serde::Serialize)]
struct ScaleParts {
    light: (f64, f64),
    dark: (f64, f64),
}

/// Returns the colors that all renderings share.
pub(super) fn colors() -> Colors {
    let hex = |RGBColor(red, green, blue): RGBColor| format!("#{red:02x}{green:02x}{blue:02x}");
    let scale = super::scale::VIRIDIS.map(|(red, green, blue)| hex(RGBColor(red, green, blue)));
    let outcomes = crosscheck::OUTCOMES.map(|(outcome, color)| (outcome.name(), hex(color)));
    Colors {
        scale: scale.to_vec(),
        parts: ScaleParts { light: LIGHT_PART, dark: DARK_PART },
        apart: scale::OKABE_ITO.map(hex).to_vec(),
        outcomes: outcomes.to_vec(),
    }
}
