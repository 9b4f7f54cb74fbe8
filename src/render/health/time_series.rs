//! What was sent again over time, as a table for people, csv and JSON.

use crate::analysis::By;
use crate::analysis::health::{RepeatedBin, Retransmissions};
use crate::render::columns::columns;
use crate::render::csv::job;
use crate::render::units::{duration, group, seconds_since};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Longest bar, in characters.
const BAR: usize = 40;
/// Bins in the table: those in which most was sent again.
const MOST_BINS: usize = 40;

/// For people: the bins in which packets were sent again, in the order of time.
#[must_use]
pub fn time_series_table(repeats: &Retransmissions) -> String {
    let mut bins: BTreeMap<i64, (u64, u64)> = BTreeMap::new();
    for bin in &repeats.bins {
        let (packets, repeated) = bins.entry(bin.time_ns).or_default();
        *packets += bin.packets;
        *repeated += bin.repeated_packets;
    }
    let mut rows: Vec<(i64, u64, u64)> =
        bins.into_iter().map(|(time_ns, (packets, repeated))| (time_ns, packets, repeated)).collect();
    rows.retain(|(_, _, repeated)| *repeated > 0);
    if rows.is_empty() {
        return "no packet was sent again\n".to_owned();
    }
    let all = rows.len();
    rows.sort_by_key(|(time_ns, _, repeated)| (std::cmp::Reverse(*repeated), *time_ns));
    rows.truncate(MOST_BINS);
    rows.sort_unstable();
    let largest = rows.iter().map(|(_, _, repeated)| *repeated).max().unwrap_or(1).max(1);
    let mut table = columns(&["time [s]", "packets", "sent again", "share", ""], 0..4);
    for (time_ns, packets, repeated) in rows {
        let bar = (repeated as f64 / largest as f64 * BAR as f64).round() as usize;
        table.add_row([
            seconds_since(repeats.origin_ns, time_ns),
            group(packets),
            group(repeated),
            format!("{:.2} %", repeated as f64 * 100.0 / packets.max(1) as f64),
            "█".repeat(bar.max(1)),
        ]);
    }
    let which = match all {
        all if all > MOST_BINS => {
            format!("the {MOST_BINS} bins of {} with most of {}", duration(repeats.bin_ns), group(all as u64))
        }
        _ => format!("bins of {}", duration(repeats.bin_ns)),
    };
    format!("packets sent again, {which}; time in s from the first packet\n{}\n", table.trim_fmt())
}

/// `time_ns,src,packets,repeated_packets,job`: a row for each bin and sender with packets.
pub fn time_series_csv(repeats: &Retransmissions, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "time_ns,src,packets,repeated_packets,job")?;
    for RepeatedBin { time_ns, src, packets, repeated_packets } in &repeats.bins {
        writeln!(out, "{time_ns},{},{packets},{repeated_packets},{}", src.without_job(), job(src))?;
    }
    Ok(())
}

/// One object with the rows of the csv.
pub fn time_series_json(repeats: &Retransmissions, out: &mut dyn Write) -> io::Result<()> {
    let row = |bin: &RepeatedBin| {
        json!({
            "time_ns": bin.time_ns, "src": bin.src.without_job(), "job": bin.src.job(), "packets": bin.packets,
            "repeated_packets": bin.repeated_packets,
        })
    };
    let document = json!({
        "schema": "ibscope health over time",
        "version": 1,
        "by": if repeats.by == By::Rank { "rank" } else { "endpoint" },
        "bin_ns": repeats.bin_ns,
        "bins": repeats.bins.iter().map(row).collect::<Vec<_>>(),
    });
    writeln!(out, "{document:#}")
}
