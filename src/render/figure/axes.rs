//! Axes: map values to positions in pixels, and choose round values as labeled ticks.
//!
//! Positions of values outside an axis are clamped to its ends.

use super::canvas::{Area, Canvas, LINE, MARGIN, TEXT, TICK, TICK_LENGTH, TextAnchor, widest};
use super::scale::{axis, human, prefix_of, step, ticks_between};
use crate::analysis::round_numbers::steps;
use crate::render::RenderError;
use crate::render::latency::Subject;
use plotters::backend::DrawingBackend;
use plotters::style::{BLACK, RGBColor};

/// Distance from a tick to its label.
const GAP: i32 = 8;
/// Color of the grid lines across a panel.
const GRID: RGBColor = RGBColor(222, 222, 222);
/// Color of the bins in which the captures begin or end, drawn behind everything else.
pub(super) const EDGE: RGBColor = RGBColor(214, 214, 214);
/// Legend of these bins.
pub(super) const EDGE_TEXT: &str = "captures begin or end here";
/// Height of the tick labels below a panel and of the axis title below the labels.
pub(super) const X_AXIS_HEIGHT: i32 = TICK_LENGTH + GAP + TICK + MARGIN / 2 + TEXT + MARGIN;

/// An axis: the values at its ends, its title and its labeled ticks.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    from: f64,
    to: f64,
    log: bool,
    pub(super) title: String,
    pub(super) ticks: Vec<(f64, String)>,
}

impl Axis {
    /// Linear axis from 0 to a little more than `max`, with at most about `most` ticks in units of
    /// `one`; every tick label but 0 ends with `suffix`.
    pub(super) fn linear(max: f64, one: f64, suffix: &str, title: String, most: u32) -> Self {
        // A margin above the largest value; an axis without values still needs a length.
        let to = if max > 0.0 { max * 1.04 } else { 1.0 };
        let mut ticks = axis(to / one, most);
        for (value, text) in &mut ticks {
            if *value > 0.0 {
                text.push_str(suffix);
            }
            *value *= one;
        }
        Self { from: 0.0, to, log: false, title, ticks }
    }

    /// The axis with its end at exactly `to`, if given.
    pub(super) fn ending_at(mut self, to: Option<f64>) -> Self {
        self.to = to.unwrap_or(self.to);
        self.ticks.retain(|(value, _)| *value <= self.to * (1.0 + 1e-9));
        self
    }

    /// True if the value lies beyond the end.
    pub(super) fn is_exceeded(&self, value: f64) -> bool {
        value > self.to
    }

    /// Axis of counts from 0 to a little more than `max`; ticks are at least 1 apart where `max` is
    /// less than `most`.
    pub(super) fn counts(max: f64, title: String, most: u32) -> Self {
        let (one, suffix) = if max < 10_000.0 { (1.0, "") } else { prefix_of(max) };
        let mut counts = Self::linear(max, one, suffix, title, most);
        if (1.0..f64::from(most)).contains(&max) {
            counts.ticks = ticks_between((0.0, counts.to), step(counts.to, most).max(1.0));
        }
        counts
    }

    /// Linear axis from exactly `from` to exactly `to`, with as many tick labels (at most about 8)
    /// as fit side by side in `room` pixels, in units of `one`.
    pub(super) fn across((from, to): (f64, f64), one: f64, title: String, room: i32) -> Result<Self, RenderError> {
        let span = (to - from) / one;
        let mut ticks = Vec::new();
        for most in (1..=8).rev() {
            let step = step(span, most);
            ticks = ticks_between((from / one, to / one), step);
            let apart = f64::from(room) * step / span;
            if f64::from(widest(ticks.iter().map(|(_, text)| text.as_str()), TICK)?) + 50.0 <= apart {
                break;
            }
        }
        ticks.iter_mut().for_each(|(value, _)| *value *= one);
        Ok(Self { from, to, log: false, title, ticks })
    }

    /// Axis of times in nanoseconds: logarithmic between round times where the largest is at least
    /// five times the smallest, else linear from 0. On a logarithmic axis, times of 0 lie at the
    /// lower end, which is then labeled 0.
    pub(super) fn times(values_ns: impl Iterator<Item = u64> + Clone, title: &str, most: usize) -> Self {
        let above_0 = values_ns.clone().filter(|ns| *ns > 0);
        let (min, max) = (above_0.clone().min().unwrap_or(1) as f64, above_0.max().unwrap_or(1) as f64);
        if max < 5.0 * min {
            let (one, name) = unit(max / 1e9);
            return Self::linear(max, one * 1e9, "", format!("{title}, {name}"), most as u32);
        }
        let has_0 = values_ns.clone().any(|ns| ns == 0);
        let (mut from, to, mut ticks) = log_times(values_ns, most);
        if has_0 {
            // Put 0 at least as far below the first label as labels are apart.
            from /= (to / from).powf(1.0 / most as f64).max(2.0);
            ticks.insert(0, (from, "0".to_owned()));
        }
        Self { from, to, log: true, title: title.to_owned(), ticks }
    }

    /// Linear axis of times from 0 to exactly `most_ns`.
    pub(super) fn times_until(most_ns: u64, title: &str, most: u32) -> Self {
        let (one, name) = unit(most_ns as f64 / 1e9);
        let axis = Self::linear(most_ns as f64, one * 1e9, "", format!("{title}, {name}"), most);
        axis.ending_at(Some(most_ns as f64))
    }

    /// Axis of size or rate classes from `first` to `last`, each 1 wide. `name` labels the lower
    /// bound of a class; `fits` decides how many labels there is room for.
    pub(super) fn classes(
        (first, last): (u32, u32),
        name: impl Fn(u32) -> String,
        title: String,
        fits: impl Fn(&[(f64, String)]) -> Result<bool, RenderError>,
    ) -> Result<Self, RenderError> {
        let mut ticks = Vec::new();
        for every in 1..=64 {
            ticks = (first..=last + 1).step_by(every).map(|class| (f64::from(class), name(class))).collect();
            if fits(&ticks)? {
                break;
            }
        }
        Ok(Self { from: f64::from(first), to: f64::from(last + 1), log: false, title, ticks })
    }

    /// Axis of bars between round times, each bar 1 wide. Labels the edges that are 1, 2 or 5 times
    /// a power of ten; fewer of them if the labels do not fit into `room` pixels.
    pub(super) fn round_bars(edges_ns: &[u64], title: String, room: i32) -> Result<Self, RenderError> {
        let bars = edges_ns.len().saturating_sub(1).max(1) as f64;
        let mut ticks = Vec::new();
        for digits in [&[1, 2, 5][..], &[1, 5], &[1]] {
            let is_round = |ns: u64| {
                ns.checked_ilog10()
                    .is_none_or(|power| digits.iter().any(|digit| 10_u64.pow(power).checked_mul(*digit) == Some(ns)))
            };
            let round = edges_ns.iter().enumerate().filter(|(_, ns)| is_round(**ns));
            ticks = round.map(|(at, ns)| (at as f64, time(*ns as f64))).collect();
            let apart = ticks.windows(2).map(|pair: &[(f64, String)]| pair[1].0 - pair[0].0).fold(bars, f64::min);
            if f64::from(widest(ticks.iter().map(|(_, text)| text.as_str()), TICK)? + 30)
                <= apart * f64::from(room) / bars
            {
                break;
            }
        }
        if ticks.is_empty() {
            ticks = edges_ns.iter().enumerate().map(|(at, ns)| (at as f64, time(*ns as f64))).collect();
        }
        Ok(Self { from: 0.0, to: bars, log: false, title, ticks })
    }

    /// Position of a value between the ends, from 0 to 1.
    pub(super) fn share(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.from) / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        share.clamp(0.0, 1.0)
    }
}

/// A plot area with its vertical axis; the horizontal axis may be shared with other panels.
#[derive(Clone, Debug)]
pub(super) struct Panel {
    pub(super) area: Area,
    pub(super) y: Axis,
}

impl Panel {
    /// Left edge, in pixels, that panels with these vertical axes need.
    pub(super) fn left<'a>(axes: impl IntoIterator<Item = &'a Axis>) -> Result<i32, RenderError> {
        let ticks = axes.into_iter().flat_map(|axis| axis.ticks.iter().map(|(_, text)| text.as_str()));
        Ok(MARGIN + TEXT + MARGIN / 2 + widest(ticks, TICK)? + TICK_LENGTH + GAP)
    }

    /// Position of a value on the horizontal axis, in pixels.
    pub(super) fn x(&self, x: &Axis, value: f64) -> i32 {
        self.area.left + (x.share(value) * f64::from(self.area.right - self.area.left)).round() as i32
    }

    /// Position of a value on the vertical axis, in pixels.
    pub(super) fn y(&self, value: f64) -> i32 {
        self.area.bottom - (self.y.share(value) * f64::from(self.area.bottom - self.area.top)).round() as i32
    }

    /// Draws the grid lines at the vertical ticks; the plot is drawn over them.
    pub(super) fn draw_grid<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> Result<(), RenderError> {
        for (value, _) in &self.y.ticks {
            let y = self.y(*value);
            canvas.line(&[(self.area.left, y), (self.area.right, y)], GRID, 2)?;
        }
        Ok(())
    }

    /// Draws the bins in which the captures begin or end, from their starts and ends in seconds.
    pub(super) fn draw_edges<DB: DrawingBackend>(
        &self,
        canvas: &Canvas<DB>,
        x: &Axis,
        edges_s: &[[f64; 2]],
    ) -> Result<(), RenderError> {
        let Area { top, bottom, .. } = self.area;
        for edge in edges_s {
            let [left, right] = edge.map(|time| self.x(x, time));
            canvas.fill(Area { left, top, right: right.max(left + 4), bottom }, EDGE)?;
        }
        Ok(())
    }

    /// Draws the frame, the vertical axis, and the ticks (without labels) of the horizontal axis.
    pub(super) fn draw_frame<DB: DrawingBackend>(&self, canvas: &Canvas<DB>, x: &Axis) -> Result<(), RenderError> {
        let Area { left, top, bottom, .. } = self.area;
        canvas.frame(self.area)?;
        for (value, text) in &self.y.ticks {
            let y = self.y(*value);
            canvas.line(&[(left - TICK_LENGTH, y), (left, y)], BLACK, LINE)?;
            canvas.text(text, (left - TICK_LENGTH - GAP, y), TextAnchor::Right, TICK, BLACK)?;
        }
        let middle = i32::midpoint(top, bottom);
        canvas.text(&self.y.title, (MARGIN + TEXT / 2, middle), TextAnchor::UpMiddle, TEXT, BLACK)?;
        for (value, _) in &x.ticks {
            let x = self.x(x, *value);
            canvas.line(&[(x, bottom), (x, bottom + TICK_LENGTH)], BLACK, LINE)?;
        }
        Ok(())
    }

    /// Draws the tick labels and the title of the horizontal axis.
    pub(super) fn draw_x_axis<DB: DrawingBackend>(&self, canvas: &Canvas<DB>, x: &Axis) -> Result<(), RenderError> {
        let Area { left, right, bottom, .. } = self.area;
        let y = bottom + TICK_LENGTH + GAP + TICK / 2;
        for (value, text) in &x.ticks {
            canvas.text(text, (self.x(x, *value), y), TextAnchor::Middle, TICK, BLACK)?;
        }
        let y = bottom + X_AXIS_HEIGHT - MARGIN - TEXT / 2;
        canvas.text(&x.title, (i32::midpoint(left, right), y), TextAnchor::Middle, TEXT, BLACK)
    }
}

/// Start and end of each bin in which the captures begin or end. `bins_s` has the start of the first
/// bin, the width of a bin and the end of the last one, and `captured_s` the time of the last packet, in
/// seconds from the first packet.
pub(super) fn partial_edges(bins_s: (f64, f64, f64), captured_s: f64) -> Vec<[f64; 2]> {
    let (start_s, bin_s, end_s) = bins_s;
    let bins = ((end_s - start_s) / bin_s).ceil().max(1.0);
    let first = (start_s < 0.0).then_some([start_s, (start_s + bin_s).min(end_s)]);
    let last = (end_s > captured_s).then_some([start_s + (bins - 1.0) * bin_s, end_s]);
    first.into_iter().chain(last).collect()
}

/// Round times below and above the given times, and at most about `most` labeled round times
/// between them. Times of 0 are ignored.
pub(super) fn log_times(values_ns: impl Iterator<Item = u64> + Clone, most: usize) -> (f64, f64, Vec<(f64, String)>) {
    let above_0 = values_ns.filter(|ns| *ns > 0);
    let (min, max) = (above_0.clone().min().unwrap_or(1), above_0.max().unwrap_or(1));
    let round = || steps().map(|step| step as u64).take_while(|step| *step < u64::MAX / 10);
    let from = round().take_while(|value| *value <= min).last().unwrap_or(1);
    // An axis needs a length.
    let to = round().find(|value| *value >= max && *value > from).unwrap_or(u64::MAX);
    let within: Vec<u64> = round().filter(|value| (from..=to).contains(value)).collect();
    // All steps of 1, 2, 5; if too many, the powers of ten; if still too many, every n-th power.
    let powers: Vec<u64> = within
        .iter()
        .copied()
        .filter(|value| value.ilog10() > 0 && 10_u64.pow(value.ilog10()) == *value || *value == 1)
        .collect();
    let named: Vec<u64> = if within.len() <= most || powers.len() < 2 {
        within
    } else {
        let every = powers.len().div_ceil(most);
        powers.into_iter().step_by(every).collect()
    };
    (from as f64, to as f64, named.into_iter().map(|ns| (ns as f64, time(ns as f64))).collect())
}

/// Returns a predicate: tick labels at equal distances across `room` pixels do not touch.
pub(super) fn fits_across(room: i32) -> impl Fn(&[(f64, String)]) -> Result<bool, RenderError> {
    move |ticks| {
        let apart = room / i32::try_from(ticks.len()).unwrap_or(i32::MAX).max(1);
        Ok(widest(ticks.iter().map(|(_, text)| text.as_str()), TICK)? + 30 <= apart)
    }
}

/// Title of a latency figure: the interval and the verbs.
pub(super) fn title(subject: &Subject) -> String {
    let what = match subject.interval {
        "acknowledged" => "Request to acknowledgement",
        "first_response" => "Request to first response",
        "last_response" => "Request to last response",
        "message" => "First to last packet of a message",
        "interval" => "Message to next message",
        "transit" => "Sender's to receiver's port",
        "rendezvous_request" => "Ready to send to first packet of the data",
        "rendezvous_data" => "First to last packet of the data",
        "rendezvous_completion" => "Last packet of the data to completion",
        "mpi_message" => "MPI message, sender's to receiver's port",
        "set_up" => "Connection set-up",
        "tear_down" => "Connection tear-down",
        other => other,
    };
    if subject.verbs.is_empty() { what.to_owned() } else { format!("{what} ({})", subject.verbs.join(", ")) }
}

/// The largest unit of time, at most the second, in which `seconds` is 1 or more: its length in
/// seconds and its name.
pub(super) fn unit(seconds: f64) -> (f64, &'static str) {
    // Half a nanosecond of tolerance: bins are whole nanoseconds.
    [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs")]
        .into_iter()
        .find(|&(one, _)| seconds >= one - 5e-10)
        .unwrap_or((1e-9, "ns"))
}

/// A time with its unit, in three digits.
pub(super) fn time(ns: f64) -> String {
    let (mut one, mut name) = unit(ns / 1e9);
    // A value that rounds to 1000 of a unit is 1 of the next unit.
    if ns / 1e9 / one >= 999.5 {
        (one, name) = unit(one * 1000.0);
    }
    let value = ns / 1e9 / one;
    let decimals = if value >= 99.95 { 0 } else { usize::from(value < 9.995) + 1 };
    let text = format!("{value:.decimals$}");
    let text = if decimals > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {name}")
}

/// Time axis over bins of `bin_s` seconds: starts at `start_s`, in seconds from the first packet,
/// and is `span_s` seconds long. `room` is its length in pixels.
pub(super) fn over_time((start_s, span_s): (f64, f64), bin_s: f64, room: i32) -> Result<Axis, RenderError> {
    let (one, name) = unit(span_s);
    let title = format!("time from the first packet in {name} (bins of {})", time(bin_s * 1e9));
    Axis::across((start_s, start_s + span_s), one, title, room)
}

/// Seconds from one time to another, both in nanoseconds since the epoch.
pub(super) fn seconds(from_ns: i64, to_ns: i64) -> f64 {
    (i128::from(to_ns) - i128::from(from_ns)) as f64 / 1e9
}

/// Number of a class of lengths or rates, from its lower bound: 0, 1, 2, 4 ... give 0, 1, 2, 3 ...
pub(super) fn class_of(from: u64) -> u32 {
    from.checked_ilog2().map_or(0, |power| power + 1)
}

/// Lower bound of a class as text, the inverse of [`class_of`].
pub(super) fn class_name(class: u32, is_bytes: bool) -> String {
    match class.checked_sub(1) {
        None => "0".to_owned(),
        Some(power) => human(1_u64.checked_shl(power).unwrap_or(u64::MAX), is_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn times_have_three_digits_and_a_unit() {
        for (ns, text) in [
            (7.0, "7 ns"),
            (1000.0, "1 µs"),
            (188_123.0, "188 µs"),
            (999_700.0, "1 ms"),
            (1_234_567.0, "1.23 ms"),
            (2e10, "20 s"),
            (0.0, "0 ns"),
        ] {
            assert_eq!(time(ns), text);
        }
    }

    #[test]
    fn times_that_differ_much_lie_on_a_logarithmic_axis() {
        let axis = Axis::times([3_000_u64, 0, 800_000].into_iter(), "time", 9);
        assert_eq!(
            names(&axis),
            ["0", "2 µs", "5 µs", "10 µs", "20 µs", "50 µs", "100 µs", "200 µs", "500 µs", "1 ms"]
        );
        // 0 lies below every other value.
        assert!(axis.share(0.0) < 1e-9 && axis.share(2_000.0) > 0.05 && axis.share(1e6) > 1.0 - 1e-9);
        let few = Axis::counts(1.0, String::new(), 5);
        assert_eq!(names(&few), ["0", "1"]);
        assert_eq!(names(&Axis::counts(1600.0, String::new(), 5)), ["0", "500", "1000", "1500"]);
        let wide = Axis::times([1_000_u64, 1_000_000_000].into_iter(), "time", 9);
        assert_eq!(names(&wide), ["1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s"]);
        // 100 µs is a third of the way from 1 µs to 1 s: two of six decades.
        assert!((wide.share(100_000.0) - 2.0 / 6.0).abs() < 1e-9);
        let near = Axis::times([200_000_u64, 300_000].into_iter(), "time", 5);
        assert_eq!((names(&near), near.title.as_str()), (vec!["0", "100", "200", "300"], "time, µs"));
    }

    #[test]
    fn classes_are_named_by_their_lower_bound() {
        let all = Axis::classes((0, 4), |class| class_name(class, true), String::new(), |_| Ok(true)).unwrap();
        assert_eq!(names(&all), ["0", "1 B", "2 B", "4 B", "8 B", "16 B"]);
        let few = Axis::classes((0, 11), |class| class_name(class, true), String::new(), |ticks| Ok(ticks.len() < 5));
        assert_eq!(names(&few.unwrap()), ["0", "8 B", "128 B", "2 KiB"]);
        for from in [0, 1, 2, 4, 1 << 40, 1 << 63] {
            assert_eq!(class_name(class_of(from), false), human(from, false));
        }
    }
}
