//! Samples by time as bars of characters.

use super::units::time;
use crate::analysis::latency::{Key, Shape};
use crate::model::Histogram;
use crate::render::units::group;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// How many bars a terminal shows.
const LINES: [u64; 2] = [20, 10];

/// Longest bar, in characters.
const BAR: usize = 50;

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
