//! Rates over time: bytes of each sender, stacked, and messages.

use super::super::ReportError;
use super::super::timeline::{Series, Timeline};
use super::super::matrix::{By, Selection};
use super::super::units;
use super::canvas::{Align, BLACK, Canvas, GREY, TEXT, fit, text_width};
use plotters::backend::DrawingBackend;
use std::collections::BTreeMap;

const SIZE: (f64, f64) = (1440.0, 980.0);
const MARGIN: f64 = 16.0;
const LINE: f64 = TEXT * 1.3;
/// Senders with a colour of their own.
const SENDERS: usize = 8;
/// More steps than this cannot be told apart.
const MAX_STEPS: usize = 500;
const MAX_NAME: f64 = 220.0;
const SWATCH: f64 = 26.0;

/// Okabe and Ito's colours, readable without colour vision, and black as the eighth.
const COLORS: [(u8, u8, u8); SENDERS] = [
    (0, 114, 178),
    (230, 159, 0),
    (0, 158, 115),
    (204, 121, 167),
    (86, 180, 233),
    (213, 94, 0),
    (240, 228, 66),
    (70, 70, 70),
];
const OTHERS: (u8, u8, u8) = (175, 175, 175);

/// A layer of the stack: one sender, or all the others.
struct Layer {
    name: String,
    color: (u8, u8, u8),
    /// Wire bytes per step.
    bytes: Vec<f64>,
}

/// A laid-out figure.
pub(super) struct Figure<'a> {
    timeline: &'a Timeline,
    step_ns: i64,
    layers: Vec<Layer>,
    messages: Vec<f64>,
    left: f64,
    right: f64,
}

/// A panel's place and the values at its edges.
struct Panel {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    max: f64,
    steps: usize,
}

impl Panel {
    fn x(&self, step: f64) -> f64 {
        self.left + (self.right - self.left) * step / self.steps.max(1) as f64
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom - (self.bottom - self.top) * value / self.max
    }
}

impl<'a> Figure<'a> {
    pub(super) fn of(timeline: &'a Timeline) -> Result<Self, ReportError> {
        let series = timeline.series(MAX_STEPS);
        let layers = series.as_ref().map(|series| layers(timeline, series)).transpose()?.unwrap_or_default();
        let messages = series.as_ref().map(|series| series.total.iter().map(|cell| cell.messages as f64).collect());
        let mut names: f64 = 0.0;
        for layer in &layers {
            names = names.max(text_width(&layer.name, TEXT)?);
        }
        let legend = if layers.is_empty() { 0.0 } else { SWATCH + 12.0 + names + 24.0 };
        Ok(Self {
            timeline,
            step_ns: series.map_or(timeline.bin_ns, |series| series.step_ns),
            layers,
            messages: messages.unwrap_or_default(),
            left: MARGIN + LINE + 5.0 * TEXT * 0.62 + 20.0,
            right: SIZE.0 - MARGIN - legend.max(24.0),
        })
    }

    #[allow(clippy::unused_self, reason = "figures are used alike")]
    pub(super) fn size(&self) -> (u32, u32) {
        (SIZE.0 as u32, SIZE.1 as u32)
    }

    fn step_s(&self) -> f64 {
        self.step_ns as f64 / 1e9
    }

    pub(super) fn draw<B: DrawingBackend>(&self, canvas: &mut Canvas<B>) -> Result<(), ReportError> {
        let middle = 0.62 * SIZE.1;
        let bottom = SIZE.1 - MARGIN - 2.0 * LINE - 14.0;
        self.draw_bytes(canvas, MARGIN + 14.0, middle - 20.0)?;
        self.draw_messages(canvas, middle + 20.0, bottom)?;
        let wide = units::duration(self.step_ns);
        let label = format!("time from the first bin [s], sums per {wide}");
        let x = (self.left + self.right) / 2.0;
        canvas.text(&label, (x, SIZE.1 - MARGIN - TEXT / 2.0), TEXT, Align::Middle, BLACK)
    }

    fn panel(&self, top: f64, bottom: f64, max: f64) -> Panel {
        Panel { left: self.left, right: self.right, top, bottom, max, steps: self.messages.len() }
    }

    fn draw_bytes<B: DrawingBackend>(&self, canvas: &mut Canvas<B>, top: f64, bottom: f64) -> Result<(), ReportError> {
        let steps = self.messages.len();
        let at = |layer: &Layer, step: usize| layer.bytes.get(step).copied().unwrap_or(0.0) / self.step_s();
        let total = |step: usize| -> f64 { self.layers.iter().map(|layer| at(layer, step)).sum() };
        let max = (0..steps).map(total).fold(0.0, f64::max);
        let (factor, prefix) = units::si(max);
        let panel = self.panel(top, bottom, headroom(max));
        draw_axis(canvas, &panel, factor, &format!("wire rate [{prefix}B/s]"))?;
        for step in 0..steps {
            let (x0, x1) = (panel.x(step as f64), panel.x(step as f64 + 1.0));
            let mut below = 0.0;
            for layer in &self.layers {
                let above = below + at(layer, step);
                if above > below {
                    canvas.rect((x0, panel.y(above)), (x1, panel.y(below)), layer.color)?;
                }
                below = above;
            }
        }
        self.draw_frame(canvas, &panel, false)?;
        let x = self.right + 24.0;
        for (index, layer) in self.layers.iter().rev().enumerate() {
            let y = top + TEXT / 2.0 + LINE * index as f64;
            canvas.rect((x, y - SWATCH / 2.0), (x + SWATCH, y + SWATCH / 2.0), layer.color)?;
            canvas.text(&layer.name, (x + SWATCH + 12.0, y), TEXT, Align::Start, BLACK)?;
        }
        Ok(())
    }

    fn draw_messages<B: DrawingBackend>(&self, canvas: &mut Canvas<B>, top: f64, bottom: f64) -> Result<(), ReportError> {
        let rates: Vec<f64> = self.messages.iter().map(|messages| messages / self.step_s()).collect();
        let max = rates.iter().copied().fold(0.0, f64::max);
        let (factor, prefix) = units::si(max);
        let panel = self.panel(top, bottom, headroom(max));
        let is_mpi = self.timeline.by == By::Rank || self.timeline.selection != Selection::All;
        let what = if is_mpi { "MPI msgs" } else { "messages" };
        let unit = if prefix.is_empty() { "1/s".to_owned() } else { format!("{prefix}/s") };
        draw_axis(canvas, &panel, factor, &format!("{what} [{unit}]"))?;
        let mut points = Vec::with_capacity(rates.len() * 2);
        for (step, &rate) in rates.iter().enumerate() {
            points.push((panel.x(step as f64), panel.y(rate)));
            points.push((panel.x(step as f64 + 1.0), panel.y(rate)));
        }
        if !points.is_empty() {
            canvas.line(&points, BLACK, 2.0)?;
        }
        self.draw_frame(canvas, &panel, true)
    }

    /// The axis of time, with numbers in the lowest panel.
    fn draw_frame<B: DrawingBackend>(&self, canvas: &mut Canvas<B>, panel: &Panel, numbers: bool) -> Result<(), ReportError> {
        canvas.line(&[(panel.left, panel.top), (panel.left, panel.bottom), (panel.right, panel.bottom)], BLACK, 2.0)?;
        let span_s = self.step_s() * panel.steps.max(1) as f64;
        let step_s = units::nice_step(span_s, 8);
        let decimals = units::step_decimals(step_s);
        let ticks = (span_s / step_s + 1e-9).floor() as usize;
        for tick in 0..=ticks {
            let time_s = tick as f64 * step_s;
            let x = panel.left + (panel.right - panel.left) * time_s / span_s;
            canvas.line(&[(x, panel.bottom), (x, panel.bottom + 8.0)], BLACK, 2.0)?;
            if numbers {
                let text = format!("{time_s:.decimals$}");
                canvas.text(&text, (x, panel.bottom + 14.0 + TEXT / 2.0), TEXT, Align::Middle, BLACK)?;
            }
        }
        Ok(())
    }
}

/// Marks and lines of the grid in a panel, and what it shows.
fn draw_axis<B: DrawingBackend>(canvas: &mut Canvas<B>, panel: &Panel, factor: f64, name: &str) -> Result<(), ReportError> {
    let step = units::nice_step(panel.max / factor, 5);
    let decimals = units::step_decimals(step);
    let ticks = (panel.max / factor / step + 1e-9).floor() as usize;
    for tick in 0..=ticks {
        let value = tick as f64 * step;
        let y = panel.y(value * factor);
        canvas.line(&[(panel.left, y), (panel.right, y)], GREY, 2.0)?;
        canvas.text(&format!("{value:.decimals$}"), (panel.left - 10.0, y), TEXT, Align::End, BLACK)?;
    }
    canvas.text_up(name, (MARGIN + TEXT / 2.0, (panel.top + panel.bottom) / 2.0), TEXT, Align::Middle, BLACK)
}

/// The axis ends a little above the largest value.
fn headroom(max: f64) -> f64 {
    if max > 0.0 { max * 1.05 } else { 1.0 }
}

/// The senders with the most bytes, in the order of their numbers, and then the others as one.
fn layers(timeline: &Timeline, series: &Series) -> Result<Vec<Layer>, ReportError> {
    let mut totals: BTreeMap<u32, u64> = BTreeMap::new();
    for (&(_, sender), cell) in &series.by_sender {
        let total = totals.entry(sender).or_default();
        *total = total.saturating_add(cell.wire_bytes);
    }
    let mut largest: Vec<(u64, u32)> = totals.into_iter().map(|(sender, bytes)| (bytes, sender)).collect();
    largest.sort_unstable_by_key(|&(bytes, sender)| (std::cmp::Reverse(bytes), sender));
    let mut shown: Vec<u32> = largest.iter().take(SENDERS).map(|&(_, sender)| sender).collect();
    shown.sort_unstable();

    let steps = series.total.len();
    let mut layers = Vec::new();
    for (&sender, color) in shown.iter().zip(COLORS) {
        let label = timeline.labels.get(sender as usize);
        let name = fit(&label.map(super::super::label::Label::short).unwrap_or_default(), TEXT, MAX_NAME)?;
        let name = if timeline.by == By::Rank && name.parse::<u32>().is_ok() { format!("rank {name}") } else { name };
        layers.push(Layer { name, color, bytes: vec![0.0; steps] });
    }
    if largest.len() > SENDERS {
        let name = format!("{} others", largest.len() - SENDERS);
        layers.push(Layer { name, color: OTHERS, bytes: vec![0.0; steps] });
    }
    for (&(step, sender), cell) in &series.by_sender {
        let index = shown.binary_search(&sender).unwrap_or(shown.len());
        if let Some(bytes) = layers.get_mut(index).and_then(|layer| layer.bytes.get_mut(step as usize)) {
            *bytes += cell.wire_bytes as f64;
        }
    }
    Ok(layers)
}
