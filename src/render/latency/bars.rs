//! A histogram of times as terminal bars.

use crate::analysis::latency::{BarHistogram, LatencyKey};
use crate::model::Histogram;
use crate::render::units::{count_of, group, time};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The bar counts to choose from, the preferred one first.
const LINES: [u64; 2] = [20, 10];

/// Longest bar, in characters.
const BAR: usize = 50;

/// The histogram of an interval, all verbs, sizes and pairs together; empty without samples.
#[must_use]
pub fn bars(latencies: &BTreeMap<LatencyKey, Histogram>, interval: &str) -> String {
    let mut times = Histogram::default();
    latencies.iter().filter(|(key, _)| key.interval == interval).for_each(|(_, own)| times.merge(own));
    if times.samples() == 0 {
        return String::new();
    }
    let BarHistogram { limit_ns, counts, beyond } = BarHistogram::new(&times, &LINES);
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let median = times.quantile(0.5);
    let mut text = format!("{interval}: {} by time\n", count_of(times.samples(), "sample"));
    for (bar, count) in counts.iter().enumerate() {
        let edge = |bar: usize| limit_ns as f64 * bar as f64 / counts.len() as f64;
        let (from, to) = (edge(bar), edge(bar + 1));
        let length = (*count as f64 / most as f64 * BAR as f64).round() as usize;
        // A rare time still gets a bar.
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
