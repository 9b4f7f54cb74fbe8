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
    // The axis ends beyond most times; without longer ones, it ends with the bar of the longest.
    let last = if beyond > 0 { None } else { counts.iter().rposition(|count| *count > 0) };
    let shown = last.map_or(counts.len(), |last| last + 1);
    let mut text = format!("{interval}: {} by time\n", count_of(times.samples(), "sample"));
    for (bar, count) in counts.iter().enumerate().take(shown) {
        let edge = |bar: usize| limit_ns as f64 * bar as f64 / counts.len() as f64;
        let (from, to) = (edge(bar), edge(bar + 1));
        let length = (*count as f64 / most as f64 * BAR as f64).round() as usize;
        // A rare time still gets a bar.
        let length = if *count > 0 { length.max(1) } else { 0 };
        let mark = if (from..to).contains(&(median as f64)) { "  median" } else { "" };
        let line = format!("{:>9} {:>10}  {}{mark}", time(from), group(*count), "█".repeat(length));
        let _ = writeln!(text, "{}", line.trim_end());
    }
    if beyond > 0 {
        let (limit, count, longest) = (time(limit_ns as f64), group(beyond), time(times.max() as f64));
        let _ = writeln!(text, "{limit:>9} {count:>10}  beyond, up to {longest}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Recorder;

    fn of(times_ns: &[u64]) -> String {
        let mut recorder = Recorder::default();
        times_ns.iter().for_each(|time_ns| recorder.record(*time_ns));
        let key = LatencyKey { interval: "acknowledged", verb: "SEND", from_bytes: None, pair: None };
        bars(&BTreeMap::from([(key, recorder.finish())]), "acknowledged")
    }

    #[test]
    fn the_last_bar_has_the_longest_time() {
        // Twice the 90th percentile is 11.4 ms, so the axis goes to 20 ms in steps of 1 ms.
        let text = of(&[633_000, 2_070_000, 2_270_000, 5_710_000]);
        let starts: Vec<&str> = text.lines().skip(1).map(|line| line[..9].trim()).collect();
        assert_eq!(starts, ["0", "1.00 ms", "2.00 ms", "3.00 ms", "4.00 ms", "5.00 ms"], "{text}");
        assert!(!text.contains("beyond"), "{text}");
    }

    #[test]
    fn times_beyond_the_axis_have_a_line() {
        // Twice the 90th percentile is 1.8 µs, so the axis goes to 2 µs.
        let text = of(&[&[900; 98][..], &[50_000; 2]].concat());
        assert_eq!(text.lines().last(), Some("  2.00 µs          2  beyond, up to 50.0 µs"), "{text}");
        assert!(text.lines().count() > 11, "all bars of the axis: {text}");
    }
}
