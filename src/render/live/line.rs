//! One line of text per interval, for output that is not a terminal.

use super::percent::percent;
use crate::analysis::live::{LiveOrder, LiveProgress, LiveRows};
use crate::model::sampling::EstimatedSum;
use crate::render::table::groups::shown;
use crate::render::units::{bytes, bytes_per_second, count_of, group};

/// Returns the column headings of [`line()`].
#[must_use]
pub fn header() -> String {
    format!(
        "{:>12} {:>12} {:>12} {:>14} {:>10} {:>13} {:>9}  busiest pair",
        "time [s]", "packets/s", "wire/s", "packets", "wire", "retransmitted", "decoded"
    )
}

/// Returns the current progress as one line.
#[must_use]
pub fn line(progress: &LiveProgress) -> String {
    let (traffic, retransmissions) = progress.live.total();
    let coverage = &progress.live.coverage;
    let busiest = progress.rows(LiveRows::Pairs, LiveOrder::Rate, 1).0.into_iter().next();
    let busiest = busiest.map_or_else(
        || "-".to_owned(),
        |row| format!("{} {}", progress.row_name(row.ends), bytes_per_second(row.wire_bytes_per_s)),
    );
    let line = format!(
        "{:>12.3} {:>12} {:>12} {:>14} {:>10} {:>13} {:>9}  {busiest}",
        progress.span_ns() as f64 / 1e9,
        group(progress.packets_per_s.round() as u64),
        bytes_per_second(progress.rate()),
        group(traffic.packets),
        bytes(traffic.wire_bytes),
        percent(retransmissions.packets(), traffic.packets),
        percent(coverage.records.saturating_sub(coverage.failed()), coverage.records),
    );
    let estimates = progress.total_estimators().map(|pair| {
        let packets = shown(EstimatedSum::PACKETS.estimate(&pair), group);
        let wire = shown(EstimatedSum::WIRE_BYTES.estimate(&pair), bytes);
        format!("counts of the sample; estimated total {packets} packets, {wire}")
    });
    let lost = progress.live.sflow.map(|sflow| format!("{} lost", count_of(sflow.lost_datagrams, "datagram")));
    [Some(line), estimates, lost].into_iter().flatten().collect::<Vec<_>>().join("; ")
}
