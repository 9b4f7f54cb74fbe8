//! Rates as panels: the wire rate over time with its peak, and below it the size distributions of
//! messages and packets.
//!
//! A distribution without data has no panel.

use super::axes::{
    Axis, EDGE, EDGE_TEXT, Panel, X_AXIS_HEIGHT, class_name, class_of, over_time, partial_edges, seconds,
    time as format_time,
};
use super::canvas::{Area, Canvas, Figure, MARGIN, TICK, TITLE, WIDTH, titled, widest};
use super::legend::{HEADER, key};
use super::scale::{OKABE_ITO, byte_unit, human_rate};
use super::scale_end::{counted, mark};
use crate::analysis::rates::{Rates, WIRE_BYTES};
use crate::render::RenderError;
use plotters::backend::DrawingBackend;
use plotters::style::RGBColor;
use std::collections::BTreeMap;

const UPPER: i32 = 560;
const LOWER: i32 = 330;
const MIN_CLASSES: u32 = 6;
/// Maximum number of bins of the upper panel; bins narrower than two pixels would flicker.
const MAX_BINS: i128 = 750;
const RATE: RGBColor = RGBColor(85, 85, 85);
/// Color of the window of the peak, drawn behind everything else.
const WINDOW: RGBColor = RGBColor(250, 219, 150);
/// Colors of the shares of the count and of the bytes.
const SHARES: [RGBColor; 2] = [OKABE_ITO[0], OKABE_ITO[1]];

/// By size class: its share of the count and its share of the bytes, in percent.
type ClassShares = BTreeMap<u32, [f64; 2]>;

/// The panel of a size distribution.
struct Distribution {
    /// The counted items, in the plural.
    of: &'static str,
    panel: Panel,
    classes: Axis,
    shares: ClassShares,
}

/// The laid-out figure.
pub(super) struct RatePanels {
    /// Mean rate of each bin in bytes per second.
    wire: Vec<f64>,
    /// Start of the first bin in seconds from the first packet, and width of a bin in seconds.
    bins_s: (f64, f64),
    /// Start and end of the window of the peak, in seconds from the first packet, and its rate in
    /// bytes per second.
    peak: ([f64; 2], f64),
    peak_text: String,
    /// Start and end of the bins in which the captures begin or end, in seconds from the first packet.
    edges_s: Vec<[f64; 2]>,
    /// For a sampled capture, the sentence on sampling.
    sampled: Option<String>,
    upper: Panel,
    time: Axis,
    distributions: Vec<Distribution>,
}

impl RatePanels {
    /// Lays out the figure. With `most`, the axis of the rate ends at this number of bytes per second.
    pub(super) fn new(rates: &Rates, most: Option<u64>) -> Result<Self, RenderError> {
        let group = (rates.count() + MAX_BINS - 1) / MAX_BINS;
        let all: i128 = rates.count();
        if all == 0 {
            return Err(RenderError::Empty);
        }
        let group = usize::try_from(group.max(1)).unwrap_or(usize::MAX);
        rates.check_bins()?;
        let bin_s = rates.bin_ns as f64 / 1e9;
        let mut bins_of = rates.bins(&rates.total);
        let first_ns = bins_of.next().map_or(0, |(time_ns, _)| time_ns);
        let mut wire = vec![(0_u64, 0_u32); usize::try_from(all).unwrap_or_default().div_ceil(group)];
        for (at, (_, sums)) in rates.bins(&rates.total).enumerate() {
            if let Some((sum, count)) = wire.get_mut(at / group) {
                (*sum, *count) = (sum.saturating_add(sums[WIRE_BYTES]), *count + 1);
            }
        }
        let wire: Vec<f64> = wire.iter().map(|(sum, count)| *sum as f64 / (f64::from(*count) * bin_s)).collect();
        let span_s = all as f64 * bin_s;
        let peak = rates.total.peaks[WIRE_BYTES];
        let from_s = seconds(rates.origin_ns, peak.start_ns);
        let start_s = seconds(rates.origin_ns, first_ns);
        let (end_s, group_s) = (start_s + span_s, bin_s * group as f64);
        let captured_s = seconds(rates.origin_ns, rates.captured_until_ns);
        let edges_s = partial_edges((start_s, group_s, end_s), captured_s);
        let window_s = rates.window_ns as f64 / 1e9;
        let peak_rate = rates.peak(peak);
        let peak_text = format!("peak over {}: {}", format_time(rates.window_ns as f64), human_rate(peak_rate));

        let max = wire.iter().copied().fold(peak_rate, f64::max);
        if max <= 0.0 {
            return Err(RenderError::Empty);
        }
        let end = most.map(|most| most as f64);
        let (one, unit) = byte_unit(end.unwrap_or(max));
        let y = Axis::linear(end.unwrap_or(max), one, "", format!("wire rate, {unit}/s"), 5).ending_at(end);
        let mpi = rates.total.sizes.keys().any(|(of, _)| of.distribution() == "mpi_messages");
        let messages = if mpi {
            ("mpi_messages", "MPI messages", "MPI message")
        } else {
            ("messages", "messages", "payload of a message")
        };
        let found: Vec<(&str, &str, ClassShares)> = [messages, ("packets", "packets", "packet on the wire")]
            .into_iter()
            .map(|(distribution, of, size)| (of, size, shares(rates, distribution)))
            .filter(|(.., shares)| !shares.is_empty())
            .collect();
        let axes: Vec<Axis> = found
            .iter()
            .map(|(.., shares)| {
                let most = shares.values().flatten().copied().fold(0.0, f64::max);
                Axis::linear(most, 1.0, "", "share, %".to_owned(), 3)
            })
            .collect();
        let left = Panel::left(axes.iter().chain([&y]))?;
        // Half of the last tick label of a size axis extends beyond its end.
        let right = WIDTH - 5 * MARGIN;
        let top = MARGIN + TITLE + MARGIN / 2 + HEADER;
        let upper = Panel { area: Area { left, top, right, bottom: top + UPPER }, y };
        let time = over_time((start_s, span_s), bin_s * group as f64, right - left)?;
        let mut bottom = upper.area.bottom + X_AXIS_HEIGHT;
        let mut distributions = Vec::new();
        for ((of, size, shares), y) in found.into_iter().zip(axes) {
            let top = bottom + MARGIN + HEADER;
            let panel = Panel { area: Area { left, top, right, bottom: top + LOWER }, y };
            let ends = shares.keys().next().zip(shares.keys().next_back());
            let (first, last) = ends.map_or((0, 0), |(first, last)| (*first, *last));
            // Without more classes, two or three bars would fill the panel.
            let last = last.max(first + MIN_CLASSES - 1);
            let name = |class| class_name(class, true);
            let fits = |ticks: &[(f64, String)]| {
                let apart = f64::from(right - left) * ticks.get(1).map_or(1.0, |tick| tick.0 - ticks[0].0);
                let room = apart / f64::from(last + 1 - first);
                Ok(f64::from(widest(ticks.iter().map(|(_, text)| text.as_str()), TICK)?) + 30.0 <= room)
            };
            let classes = Axis::classes((first, last), name, format!("{size}, by power of two"), fits)?;
            bottom = panel.area.bottom + X_AXIS_HEIGHT;
            distributions.push(Distribution { of, panel, classes, shares });
        }
        Ok(Self {
            wire,
            bins_s: (start_s, bin_s * group as f64),
            peak: ([from_s, from_s + window_s], peak_rate),
            peak_text,
            edges_s,
            sampled: rates.sampled.clone(),
            upper,
            time,
            distributions,
        })
    }

    /// Outline of the rate over time, as a polygon that goes down to zero at both ends.
    fn outline(&self) -> Vec<(i32, i32)> {
        let (start_s, bin_s) = self.bins_s;
        let Area { left, right, bottom, .. } = self.upper.area;
        let x = |bin: usize| self.upper.x(&self.time, start_s + bin as f64 * bin_s);
        let mut points = vec![(left, bottom)];
        for (bin, rate) in self.wire.iter().enumerate() {
            let height = self.upper.y(*rate);
            points.extend([(x(bin), height), (x(bin + 1), height)]);
        }
        points.push((right, bottom));
        points.dedup();
        points
    }

    /// Numbers and rates of the bins beyond the end of the axis.
    fn beyond(&self) -> impl Iterator<Item = (usize, &f64)> {
        self.wire.iter().enumerate().filter(|(_, rate)| self.upper.y.is_exceeded(**rate))
    }

    fn draw_rate<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> Result<(), RenderError> {
        let Area { left, top, right, bottom } = self.upper.area;
        let ([from, to], rate) = self.peak;
        let (from, to) = (self.upper.x(&self.time, from), self.upper.x(&self.time, to));
        // Keep a very narrow window visible.
        let to = to.max(from + 4).min(right);
        self.upper.draw_edges(canvas, &self.time, &self.edges_s)?;
        canvas.fill(Area { left: from, top, right: to, bottom }, WINDOW)?;
        self.upper.draw_grid(canvas)?;
        canvas.polygon(&self.outline(), RATE)?;
        let height = self.upper.y(rate);
        canvas.line(&[(from, height), (to, height)], OKABE_ITO[5], 8)?;
        for (bin, _) in self.beyond() {
            let (start_s, bin_s) = self.bins_s;
            let x = |bin: usize| self.upper.x(&self.time, start_s + bin as f64 * bin_s);
            mark(canvas, self.upper.area, (x(bin), x(bin + 1)))?;
        }
        self.upper.draw_frame(canvas, &self.time)?;
        self.upper.draw_x_axis(canvas, &self.time)?;
        let header = top - HEADER / 2;
        let next = key(canvas, (left, header), WINDOW, &self.peak_text)?;
        if !self.edges_s.is_empty() {
            key(canvas, (next, header), EDGE, EDGE_TEXT)?;
        }
        Ok(())
    }
}

/// Shares of each class of a distribution in percent: of the count and of the bytes.
fn shares(rates: &Rates, distribution: &str) -> ClassShares {
    let sizes = rates.total.sizes.iter().filter(|((of, _), _)| of.distribution() == distribution);
    let mut all = [0.0; 2];
    let mut shares: ClassShares = BTreeMap::new();
    for ((_, size), sums) in sizes {
        let share = shares.entry(class_of(size.from_bytes())).or_default();
        for (index, value) in [sums.count, sums.bytes].into_iter().enumerate() {
            share[index] += value as f64;
            all[index] += value as f64;
        }
    }
    for share in shares.values_mut() {
        for (value, all) in share.iter_mut().zip(all) {
            *value = if all > 0.0 { *value * 100.0 / all } else { 0.0 };
        }
    }
    shares
}

impl Distribution {
    fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> Result<(), RenderError> {
        let Area { left, top, bottom, .. } = self.panel.area;
        let y = top - HEADER / 2;
        let next = key(canvas, (left, y), SHARES[0], &format!("of {}", self.of))?;
        key(canvas, (next, y), SHARES[1], "of their bytes")?;
        self.panel.draw_grid(canvas)?;
        for (class, shares) in &self.shares {
            for (index, share) in shares.iter().enumerate() {
                let edge = |part: f64| self.panel.x(&self.classes, f64::from(*class) + part);
                let (from, to) = if index == 0 { (0.1, 0.5) } else { (0.5, 0.9) };
                let height = self.panel.y(*share);
                if height < bottom {
                    let bar = Area { left: edge(from), top: height, right: edge(to), bottom };
                    canvas.fill(bar, SHARES[index])?;
                }
            }
        }
        self.panel.draw_frame(canvas, &self.classes)?;
        self.panel.draw_x_axis(canvas, &self.classes)
    }
}

impl Figure for RatePanels {
    fn height(&self) -> i32 {
        self.distributions.last().map_or(self.upper.area.bottom, |last| last.panel.area.bottom) + X_AXIS_HEIGHT
    }

    fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> Result<(), RenderError> {
        let title =
            if self.distributions.is_empty() { "Wire rate over time" } else { "Wire rate over time, and sizes" };
        let title = counted(title.to_owned(), self.beyond().count(), "bin");
        canvas.title(&titled(title, self.sampled.as_deref()))?;
        self.draw_rate(canvas)?;
        self.distributions.iter().try_for_each(|distribution| distribution.draw(canvas))
    }
}
