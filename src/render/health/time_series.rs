//! Retransmissions over time as terminal table, csv and JSON.

use crate::analysis::Label;
use crate::analysis::health::Retransmissions;
use crate::model::column::ColumnUnit::{Count, Number, Timestamp};
use crate::render::table::{Table, write_document};
use crate::render::units::{duration, group, seconds_since};
use serde_json::json;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{self, Write};

/// Longest bar, in characters.
const BAR: usize = 40;
/// Width of the columns before the bars.
const BEFORE_BARS: usize = 52;
/// Maximum number of bins in the terminal table, those with the most retransmissions.
const MAX_BINS: usize = 40;

/// The terminal table: the bins with retransmissions, in time order.
#[must_use]
pub fn time_series_table(series: &Retransmissions, width: Option<usize>) -> String {
    let mut rows = all_senders(series);
    rows.retain(|row| row.retransmitted_packets > 0);
    if rows.is_empty() {
        return "no packet was retransmitted\n".to_owned();
    }
    let all = rows.len();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.retransmitted_packets), row.time_ns));
    rows.truncate(MAX_BINS);
    rows.sort_by_key(|row| row.time_ns);
    let largest = rows.iter().map(|row| row.retransmitted_packets).max().unwrap_or(1).max(1);
    let longest = width.map_or(BAR, |width| width.saturating_sub(BEFORE_BARS).clamp(1, BAR));
    let table = columns().shown_left("", move |row| row.bar(largest, longest));
    let which = match all {
        all if all > MAX_BINS => {
            let (all, width) = (group(all as u64), duration(series.bin_ns));
            format!(": the {MAX_BINS} bins with the most of them, of {all} bins of {width} each")
        }
        _ => format!(", bins of {}", duration(series.bin_ns)),
    };
    format!("retransmitted packets{which}; time in s from the first packet\n{}\n", table.text(rows))
}

/// The packets in one bin, a row of the output.
pub(in crate::render) struct RetransmissionRow<'a> {
    time_ns: i64,
    /// Origin of relative times, in nanoseconds since the epoch.
    origin_ns: i64,
    /// `None` in the terminal table, which adds up all senders.
    src: Option<&'a Label>,
    packets: u64,
    retransmitted_packets: u64,
}

impl RetransmissionRow<'_> {
    /// Share of the packets that are retransmissions, in percent.
    fn percent(&self) -> f64 {
        self.retransmitted_packets as f64 * 100.0 / self.packets.max(1) as f64
    }

    /// A bar as long as the retransmissions; `largest` of them have the longest bar.
    fn bar(&self, largest: u64, longest: usize) -> String {
        let length = (self.retransmitted_packets as f64 / largest as f64 * longest as f64).round() as usize;
        "█".repeat(length.max(1))
    }
}

/// One row per bin and sender.
fn rows(series: &Retransmissions) -> impl Iterator<Item = RetransmissionRow<'_>> {
    series.bins.iter().map(move |bin| RetransmissionRow {
        time_ns: bin.time_ns,
        origin_ns: series.origin_ns,
        src: Some(&bin.src),
        packets: bin.packets,
        retransmitted_packets: bin.retransmitted_packets,
    })
}

/// One row per bin, in time order.
fn all_senders(series: &Retransmissions) -> Vec<RetransmissionRow<'_>> {
    let mut bins: BTreeMap<i64, RetransmissionRow<'_>> = BTreeMap::new();
    for row in rows(series) {
        match bins.entry(row.time_ns) {
            Entry::Vacant(bin) => _ = bin.insert(RetransmissionRow { src: None, ..row }),
            Entry::Occupied(mut bin) => {
                bin.get_mut().packets += row.packets;
                bin.get_mut().retransmitted_packets += row.retransmitted_packets;
            }
        }
    }
    bins.into_values().collect()
}

/// The columns of `health --by time`.
pub(in crate::render) fn columns<'a>() -> Table<RetransmissionRow<'a>> {
    Table::new("ibscope health --by time --format csv")
        .column("time_ns", Timestamp, "start of the bin", |row: &RetransmissionRow<'_>| row.time_ns)
        .shown("time [s]", |row| seconds_since(row.origin_ns, row.time_ns))
        .label("src", "sender: rank if the profile has any ranks, else endpoint", |row| row.src)
        .column("packets", Count, "packets of the sender, with retransmissions", |row| row.packets)
        .headed("packets")
        .column(
            "retransmitted_packets",
            Count,
            "retransmissions among them, duplicate acknowledgements included",
            |row| row.retransmitted_packets,
        )
        .headed("retransmitted")
        .shown("share", |row| format!("{:.2} %", row.percent()))
        .column(
            "job",
            Number,
            "number of the sender's job; empty where senders are endpoints, and for traffic of no job",
            |row| row.src.and_then(Label::job),
        )
}

/// Writes one csv row per bin and sender with packets.
pub fn time_series_csv(series: &Retransmissions, out: &mut dyn Write) -> io::Result<()> {
    columns().csv(rows(series), out)
}

/// Writes one JSON object with the csv rows.
pub fn time_series_json(series: &Retransmissions, out: &mut dyn Write) -> io::Result<()> {
    let members = json!({
        "by": series.by.name(), "bin_ns": series.bin_ns, "bins": columns().objects(rows(series)),
    });
    write_document(out, "ibscope health over time", 2, members)
}
