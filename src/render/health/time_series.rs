//! Retransmissions, congestion and NAKs over time as terminal table, csv and JSON.

use super::pause_times::{pause_times_table, times_json};
use crate::analysis::Label;
use crate::analysis::health::{HealthSeries, HealthSums};
use crate::model::BinCongestion;
use crate::model::column::ColumnUnit::{Bytes, Count, Number, Timestamp};
use crate::model::link::Speed;
use crate::render::table::{Table, write_document};
use crate::render::units::{duration, group, seconds_since};
use serde_json::json;
use std::io::{self, Write};

/// Longest and shortest bars, in characters.
const BAR: usize = 40;
const MIN_BAR: usize = 8;
/// Width of the columns before the bars, without those of congestion, and width of one of these.
const BEFORE_BARS: usize = 52;
const CONGESTION_WIDTH: usize = 9;
/// Maximum number of bins in the terminal table, those with the most events.
const MAX_BINS: usize = 40;
/// Short names of the columns of [`BinCongestion`].
pub(in crate::render) const CONGESTION_NAMES: [&str; BinCongestion::COLUMNS.len()] =
    ["ECN CE", "FECN", "BECN", "CNPs", "NAKs", "RNR NAKs"];
/// Headings of the columns that a narrow terminal does not show, in this order.
const LEFT_OUT: [&str; 2] = ["share", "packets"];
/// The columns of congestion in a profile that does not have them.
const UNKNOWN: &str = "packets with ECN-CE, FECN or BECN, congestion notifications and NAKs over time: unknown, because an earlier version of ibscope wrote the profile; analyze the captures again\n";

/// The terminal table: the bins with retransmissions, congestion or NAKs, in time order, and those
/// with pause frames if there are any.
#[must_use]
pub fn time_series_table(series: &HealthSeries, speed: Option<&Speed>, width: Option<usize>) -> String {
    let events = events_table(series, width);
    if series.pauses.frames == 0 { events } else { format!("{events}\n{}", pause_times_table(&series.pauses, speed)) }
}

fn events_table(series: &HealthSeries, width: Option<usize>) -> String {
    let unknown = if series.has_congestion { "" } else { UNKNOWN };
    let mut rows: Vec<HealthBinRow<'_>> = all_senders(series).filter(|row| row.sums.events() > 0).collect();
    if rows.is_empty() {
        let none = if series.has_congestion { ", marked or refused" } else { "" };
        return format!("no packet was retransmitted{none}\n{unknown}");
    }
    let all = rows.len();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.sums.events()), row.time_ns));
    rows.truncate(MAX_BINS);
    rows.sort_by_key(|row| row.time_ns);
    let largest = rows.iter().map(|row| row.sums.retransmitted_packets).max().unwrap_or(0);
    let mut sum = BinCongestion::default();
    rows.iter().for_each(|row| sum += row.sums.congestion);
    let mut table = columns();
    let mut before_bars = BEFORE_BARS;
    for (index, _) in sum.values().into_iter().enumerate().filter(|(_, packets)| *packets > 0) {
        table = table.shown(CONGESTION_NAMES[index], move |row| group(row.sums.congestion.values()[index]));
        before_bars += CONGESTION_WIDTH;
    }
    let longest = width.map_or(BAR, |width| width.saturating_sub(before_bars).min(BAR));
    if largest > 0 && longest >= MIN_BAR {
        table = table.shown_left("", move |row| row.bar(largest, longest));
    }
    let kinds = if sum == BinCongestion::default() { "" } else { ", congestion and NAKs" };
    let which = match all {
        all if all > MAX_BINS => {
            let (all, width) = (group(all as u64), duration(series.bin_ns));
            format!(": the {MAX_BINS} bins with the most of them, of {all} bins of {width} each")
        }
        _ => format!(", bins of {}", duration(series.bin_ns)),
    };
    let rows = table.text_within(&rows, width, &LEFT_OUT);
    format!("retransmitted packets{kinds}{which}; time in s from the first packet\n{rows}\n{unknown}")
}

/// The packets in one bin, a row of the output.
pub(in crate::render) struct HealthBinRow<'a> {
    time_ns: i64,
    /// Origin of relative times, in nanoseconds since the epoch.
    origin_ns: i64,
    /// `None` in the terminal table, which adds up all senders.
    src: Option<&'a Label>,
    sums: HealthSums,
    has_congestion: bool,
}

impl HealthBinRow<'_> {
    /// Share of the packets that are retransmissions, in percent.
    fn percent(&self) -> f64 {
        self.sums.retransmitted_packets as f64 * 100.0 / self.sums.packets.max(1) as f64
    }

    /// A bar as long as the retransmissions; `largest` of them have the longest bar.
    fn bar(&self, largest: u64, longest: usize) -> String {
        let retransmitted = self.sums.retransmitted_packets;
        let length = (retransmitted as f64 / largest as f64 * longest as f64).round() as usize;
        "█".repeat(length.max(usize::from(retransmitted > 0)))
    }
}

/// One row per bin and sender.
fn rows(series: &HealthSeries) -> impl Iterator<Item = HealthBinRow<'_>> {
    let HealthSeries { origin_ns, has_congestion, .. } = *series;
    series.bins.iter().map(move |bin| HealthBinRow {
        time_ns: bin.time_ns,
        origin_ns,
        src: Some(&bin.src),
        sums: bin.sums,
        has_congestion,
    })
}

/// One row per bin, in time order.
fn all_senders(series: &HealthSeries) -> impl Iterator<Item = HealthBinRow<'_>> {
    let HealthSeries { origin_ns, has_congestion, .. } = *series;
    let bins = series.of_all_senders().into_iter();
    bins.map(move |(time_ns, sums)| HealthBinRow { time_ns, origin_ns, src: None, sums, has_congestion })
}

/// The columns of `health --by time`.
pub(in crate::render) fn columns<'a>() -> Table<HealthBinRow<'a>> {
    Table::new("ibscope health --by time --format csv")
        .column("time_ns", Timestamp, "start of the bin", |row: &HealthBinRow<'_>| row.time_ns)
        .shown("time [s]", |row| seconds_since(row.origin_ns, row.time_ns))
        .label("src", "sender: rank if the profile has any ranks, else endpoint", |row| row.src)
        .column("packets", Count, "packets of the sender, with retransmissions", |row| row.sums.packets)
        .headed("packets")
        .column(
            "retransmitted_packets",
            Count,
            "retransmissions among them, duplicate acknowledgements included",
            |row| row.sums.retransmitted_packets,
        )
        .headed("retransmitted")
        .shown("share", |row| format!("{:.2} %", row.percent()))
        .column(
            "job",
            Number,
            "number of the sender's job; empty where senders are endpoints, and for traffic of no job",
            |row| row.src.and_then(Label::job),
        )
        .column("wire_bytes", Bytes, "bytes of the packets on the wire", |row| row.sums.wire_bytes)
        .known_counts(BinCongestion::COLUMNS, |row| row.sums.congestion.values(), |row, _| row.has_congestion)
}

/// Writes one csv row per bin and sender with packets.
pub fn time_series_csv(series: &HealthSeries, out: &mut dyn Write) -> io::Result<()> {
    columns().csv(rows(series), out)
}

/// Writes one JSON object with the csv rows, and with those of the pause frames over time.
pub fn time_series_json(series: &HealthSeries, speed: Option<&Speed>, out: &mut dyn Write) -> io::Result<()> {
    let members = json!({
        "by": series.by.name(), "bin_ns": series.bin_ns, "bins": columns().objects(rows(series)),
        "pause_times": times_json(&series.pauses, speed),
    });
    write_document(out, "ibscope health over time", 2, members)
}
