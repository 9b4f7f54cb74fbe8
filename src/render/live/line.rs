//! A line of text for each look, where there is no terminal.

use super::percent::percent;
use crate::analysis::live::Progress;
use crate::render::units::{bytes, bytes_per_second, group};

/// What the columns of [`line()`] are.
#[must_use]
pub fn header() -> String {
    format!(
        "{:>12} {:>12} {:>12} {:>14} {:>10} {:>9} {:>9}  busiest pair",
        "time [s]", "packets/s", "wire/s", "packets", "wire", "repeated", "decoded"
    )
}

/// What is known now.
#[must_use]
pub fn line(progress: &Progress) -> String {
    let (traffic, repeats) = progress.live.total();
    let coverage = &progress.live.coverage;
    let busiest = progress.busiest(1).into_iter().next();
    let busiest = busiest
        .map_or_else(|| "-".to_owned(), |row| format!("{} {}", row.pair, bytes_per_second(row.wire_bytes_per_s)));
    format!(
        "{:>12.3} {:>12} {:>12} {:>14} {:>10} {:>9} {:>9}  {busiest}",
        progress.span_ns() as f64 / 1e9,
        group(progress.packets_per_s.round() as u64),
        bytes_per_second(progress.rate()),
        group(traffic.packets),
        bytes(traffic.wire_bytes),
        percent(repeats.packets(), traffic.packets),
        percent(coverage.records.saturating_sub(coverage.failed()), coverage.records),
    )
}
