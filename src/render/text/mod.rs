//! Terminal output: the summary of an analysis, the matrix and the timeline.

use crate::analysis::matrix::{MatrixCell, TrafficUnit};
use crate::analysis::timeline::Timeline;
use std::fmt::Write as _;

mod heat;
mod lines;
mod matrix;
pub(super) mod summary;
mod summary_lines;

use super::units::{self, Scale, group};
pub use matrix::matrix_table;
pub use summary::summary;

/// The terminal that tables are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// True to write ANSI colors.
    pub color: bool,
    /// Width of the terminal in columns.
    pub width: usize,
}

/// Maximum number of lines of a timeline.
const MAX_LINES: usize = 60;

/// The traffic of all pairs over time, one line per bin or per group of bins.
#[must_use]
pub fn timeline_table(timeline: &Timeline, style: &Style) -> String {
    let Some((start_ns, end_ns)) = timeline.span_ns() else { return "timeline: no traffic\n".to_owned() };
    let bins = usize::try_from((end_ns - start_ns) / timeline.bin_ns).unwrap_or(usize::MAX);
    let group_of = bins.div_ceil(MAX_LINES).max(1);
    let line_ns = timeline.bin_ns.saturating_mul(group_of as i64);
    let mut lines = vec![MatrixCell::default(); bins.div_ceil(group_of)];
    for bin in &timeline.bins {
        let index = usize::try_from((bin.time_ns - start_ns) / line_ns).unwrap_or(usize::MAX);
        if let Some(line) = lines.get_mut(index) {
            line.merge(&bin.cell);
        }
    }
    let sampled = timeline.sampled.as_ref().map(|sampled| format!("{sampled}\n")).unwrap_or_default();
    let seconds = line_ns as f64 / 1e9;
    let largest = lines.iter().map(|line| line.wire_bytes).max().unwrap_or(0);
    let rate = Scale::for_table(TrafficUnit::WireBytes, (largest as f64 / seconds) as u64);
    let grouped = match group_of {
        1 => String::new(),
        bins => format!(" ({bins} bins; csv has each)"),
    };
    let room = style.width.saturating_sub(58).clamp(10, 60);
    let mut text = format!(
        "traffic over time, {} per line{grouped}, the first from {}; time in s from the first packet\n{sampled}{:>14} {:>10} {:>12} {:>14}\n",
        units::duration(line_ns),
        units::utc(start_ns),
        "time [s]",
        "messages",
        "packets",
        format!("wire {}/s", rate.unit()),
    );
    for (index, line) in lines.iter().enumerate() {
        let line_start_ns = start_ns.saturating_add(line_ns.saturating_mul(index as i64));
        let time = units::seconds_since(timeline.origin_ns, line_start_ns);
        let bar = (line.wire_bytes as f64 / largest.max(1) as f64 * room as f64).round() as usize;
        let shown = rate.show((line.wire_bytes as f64 / seconds) as u64);
        let _ = writeln!(
            text,
            "{time:>14} {:>10} {:>12} {shown:>14}  {}",
            group(line.messages),
            group(line.packets),
            "█".repeat(bar)
        );
    }
    text
}

#[cfg(test)]
mod tests;
