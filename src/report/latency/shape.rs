//! The shape of a distribution of times: samples by time, for figures and terminals.
//!
//! The axis goes from 0 to twice the 90th percentile, rounded up to 1, 2 or 5 times a power of ten: a few outliers do not squeeze the rest, and two
//! captures of the same application have the same axis.

use super::{Key, time};
use crate::model::Histogram;
use crate::report::scale::round_up;
use crate::report::units::group;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// How many bars a terminal shows.
const LINES: [u64; 2] = [20, 10];
/// Longest bar, in characters.
const BAR: usize = 50;

/// Samples by time.
pub(in crate::report) struct Shape {
    /// Where the axis ends.
    pub(in crate::report) limit_ns: u64,
    /// Samples of each bar.
    pub(in crate::report) counts: Vec<u64>,
    /// Samples beyond the axis.
    pub(in crate::report) beyond: u64,
}

impl Shape {
    /// The shape in one of these numbers of bars, the most first: as many as the clock of the capture allows without leaving every second one empty.
    pub(in crate::report) fn new(times: &Histogram, choices: &[u64]) -> Self {
        let limit_ns = round_up(2 * times.quantile(0.9).clamp(5, u64::MAX / 16));
        let finest_ns = finest(times, limit_ns);
        let fits = |bars: &&u64| limit_ns / **bars * 10 >= finest_ns * 9;
        let bars = choices.iter().find(fits).or(choices.last()).copied().unwrap_or(1).min(limit_ns);
        let mut counts = vec![0; usize::try_from(bars).unwrap_or_default()];
        let mut beyond = 0;
        for (value, count) in times.values() {
            let bar = u128::from(value) * u128::from(bars) / u128::from(limit_ns);
            match usize::try_from(bar).ok().and_then(|bar| counts.get_mut(bar)) {
                Some(bar) => *bar += count,
                None => beyond += count,
            }
        }
        Self { limit_ns, counts, beyond }
    }
}

/// The smallest step between times that were measured below a limit: that of the capture's clock, or what the buckets leave of it. 0 where there
/// are too few to tell.
fn finest(times: &Histogram, limit_ns: u64) -> u64 {
    const FEW: usize = 5;
    let values: Vec<u64> = times.values().map(|(value, _)| value).take_while(|value| *value < limit_ns).collect();
    if values.len() < FEW {
        return 0;
    }
    values.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap_or_default()
}

/// Samples of an interval by time as bars of characters, all verbs, sizes and pairs together; empty where there are none.
#[must_use]
pub fn bars(latencies: &BTreeMap<Key, Histogram>, interval: &str) -> String {
    let mut times = Histogram::default();
    latencies.iter().filter(|(key, _)| key.interval == interval).for_each(|(_, own)| times.merge(own));
    if times.samples() == 0 {
        return String::new();
    }
    let Shape { limit_ns, counts, beyond } = Shape::new(&times, &LINES);
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let median = times.quantile(0.5);
    let mut text = format!("{interval}: {} samples by time\n", group(times.samples()));
    for (bar, count) in counts.iter().enumerate() {
        let edge = |bar: usize| limit_ns as f64 * bar as f64 / counts.len() as f64;
        let (from, to) = (edge(bar), edge(bar + 1));
        let length = (*count as f64 / most as f64 * BAR as f64).round() as usize;
        // Seldom is not never.
        let length = if *count > 0 { length.max(1) } else { 0 };
        let mark = if (from..to).contains(&(median as f64)) { "  median" } else { "" };
        let line = format!("{:>9} {:>10}  {}{mark}", time(from), group(*count), "█".repeat(length));
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let _ = writeln!(
        text,
        "{:>9} {:>10}  beyond, up to {}",
        time(limit_ns as f64),
        group(beyond),
        time(times.max() as f64)
    );
    text
}
