//! Figures as SVG and PNG: the matrix as a heat map, as a whole or of each phase, the timeline as two panels, rates over the distributions of sizes, times in
//! several views.
//!
//! Both formats come from the same drawing functions and have the same proportions. Texts are large for the size of the
//! figure: it stays readable in one column of a printed page, 8 cm wide.

mod axes;
mod bar;
mod canvas;
mod cells;
mod crosscheck;
mod histogram;
mod legend;
mod matrix;
mod percentiles;
mod phases;
mod quantiles;
mod rates;
mod scale;
mod series;
mod sizes;
mod surface;
#[cfg(test)]
mod tests;
mod timeline;

use super::RenderError;
use super::latency::Subject;
use crate::analysis::health::Retransmissions;
use crate::analysis::latency::{Key, LatencySeries, Surface};
use crate::analysis::matrix::{Matrix, Unit};
use crate::analysis::phases::Phases;
use crate::analysis::rates::Rates;
use crate::analysis::timeline::Timeline;
use crate::crosscheck::Crosscheck;
use crate::model::Histogram;
use canvas::Figure;
use plotters::style::RGBColor;
use std::collections::BTreeMap;

/// A figure that is ready to be drawn.
pub struct Drawing(Box<dyn Formats>);

impl Drawing {
    /// As an SVG document.
    pub fn svg(&self) -> Result<String, RenderError> {
        self.0.as_svg()
    }

    /// As the bytes of a PNG file.
    pub fn png(&self) -> Result<Vec<u8>, RenderError> {
        self.0.as_png()
    }
}

/// What any figure can be written as.
trait Formats {
    fn as_svg(&self) -> Result<String, RenderError>;
    fn as_png(&self) -> Result<Vec<u8>, RenderError>;
}

impl<F: Figure> Formats for F {
    fn as_svg(&self) -> Result<String, RenderError> {
        self.svg()
    }

    fn as_png(&self) -> Result<Vec<u8>, RenderError> {
        self.png()
    }
}

/// How often which time was measured, of all pairs, verbs and sizes together.
pub fn latency_histogram(subject: &Subject, latencies: &BTreeMap<Key, Histogram>) -> Result<Drawing, RenderError> {
    let mut sum = Histogram::default();
    latencies.iter().filter(|(key, _)| key.interval == subject.interval).for_each(|(_, times)| sum.merge(times));
    Ok(Drawing(Box::new(histogram::Bars::new(subject, &sum)?)))
}

/// Medians by the size of the messages, of all pairs and verbs together.
pub fn latency_sizes(subject: &Subject, latencies: &BTreeMap<Key, Histogram>) -> Result<Drawing, RenderError> {
    let mut by_size: BTreeMap<u64, Histogram> = BTreeMap::new();
    for (key, times) in latencies.iter().filter(|(key, _)| key.interval == subject.interval) {
        if let Some(bytes) = key.from_bytes {
            by_size.entry(bytes).or_default().merge(times);
        }
    }
    Ok(Drawing(Box::new(sizes::Sizes::new(subject, &by_size)?)))
}

/// Medians by the size of the messages and the rate at which they came.
pub fn latency_surface(subject: &Subject, surface: &Surface) -> Result<Drawing, RenderError> {
    Ok(Drawing(Box::new(surface::Heat::new(subject, surface)?)))
}

/// Percentiles over time.
pub fn latency_over_time(subject: &Subject, times: &LatencySeries) -> Result<Drawing, RenderError> {
    Ok(Drawing(Box::new(percentiles::Percentiles::new(subject, times)?)))
}

/// Packets that were sent again over time.
pub fn retransmissions(repeated: &Retransmissions) -> Result<Drawing, RenderError> {
    Ok(Drawing(Box::new(timeline::Panels::retransmissions(repeated)?)))
}

/// The matrix as a heat map.
pub fn matrix(matrix: &Matrix, unit: Unit) -> Result<Drawing, RenderError> {
    Ok(Drawing(Box::new(matrix::HeatMap::new(matrix, unit)?)))
}

/// A trace beside the wire.
pub fn crosscheck(crosscheck: &Crosscheck) -> Result<Drawing, RenderError> {
    Ok(Drawing(Box::new(crosscheck::Matrices::new(crosscheck)?)))
}

/// The traffic over time.
pub fn timeline(timeline: &Timeline) -> Result<Drawing, RenderError> {
    Ok(Drawing(Box::new(timeline::Panels::traffic(timeline)?)))
}

/// The matrix of each phase, under the times of all.
pub fn phases(phases: &Phases) -> Result<Drawing, RenderError> {
    Ok(Drawing(Box::new(phases::OverPhases::new(phases)?)))
}

/// Rates over the distributions of sizes.
pub fn rates(rates: &Rates) -> Result<Drawing, RenderError> {
    Ok(Drawing(Box::new(rates::Panels::new(rates)?)))
}

/// The colours of the figures, for other renderings, as `#rrggbb`.
#[derive(serde::Serialize)]
pub(super) struct Colors {
    /// A scale from low to high, at equal distances.
    scale: Vec<String>,
    /// Those of things to be told apart.
    apart: Vec<String>,
    /// Those of the outcomes of a cross-check, and their names.
    outcomes: Vec<(&'static str, String)>,
}

/// See [`Colors`].
pub(super) fn colors() -> Colors {
    let hex = |RGBColor(red, green, blue): RGBColor| format!("#{red:02x}{green:02x}{blue:02x}");
    let scale = super::scale::VIRIDIS.map(|(red, green, blue)| hex(RGBColor(red, green, blue)));
    let outcomes = crosscheck::OUTCOMES.map(|(outcome, color)| (outcome.name(), hex(color)));
    Colors { scale: scale.to_vec(), apart: scale::OKABE_ITO.map(hex).to_vec(), outcomes: outcomes.to_vec() }
}
