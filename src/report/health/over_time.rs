//! What was sent again, over time.

use crate::model::{Kind, Profile};
use crate::report::ReportError;
use crate::report::columns::columns;
use crate::report::csv::job;
use crate::report::units::{duration, group, seconds_since};
use crate::report::who::{By, Label, Who};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Packets that were sent again, by sender and bin of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retransmissions {
    /// What senders are: ranks where any is known.
    pub by: By,
    /// Width of a bin in nanoseconds.
    pub bin_ns: i64,
    /// The first packet of the captures, from which times are told, in nanoseconds since the epoch.
    pub origin_ns: i64,
    /// Sorted by time and sender; bins without packets are left out.
    pub bins: Vec<RepeatedBin>,
}

/// What one sender sent in one bin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepeatedBin {
    /// Start of the bin in nanoseconds since the epoch, a multiple of the width.
    pub time_ns: i64,
    /// Sender.
    pub src: Label,
    /// All packets, each transmission.
    pub packets: u64,
    /// Those of them that were sent before.
    pub repeated_packets: u64,
}

impl Retransmissions {
    /// First and one past the last bin, as their start times in nanoseconds since the epoch.
    #[must_use]
    pub fn span_ns(&self) -> Option<(i64, i64)> {
        let (first, last) = (self.bins.first()?, self.bins.last()?);
        Some((first.time_ns, last.time_ns.saturating_add(self.bin_ns)))
    }
}

/// What was sent again over time, in the bins of the profile's timeline.
pub fn retransmissions(profile: &Profile) -> Result<Retransmissions, ReportError> {
    if profile.bin_ns <= 0 {
        return Err(ReportError::NoTimeline);
    }
    let by = if profile.ranks.is_empty() { By::Endpoint } else { By::Rank };
    let who = Who::new(profile, by);
    let mut sums: BTreeMap<(i64, Label), (u64, u64)> = BTreeMap::new();
    for row in &profile.timeline {
        let connection = profile.connections.get(row.connection as usize);
        let Some(connection) = connection.filter(|connection| connection.kind == Kind::Data) else { continue };
        let (packets, repeated) = sums.entry((row.time_ns, who.sender(connection))).or_default();
        *packets += row.traffic.packets;
        *repeated += row.repeated.packets;
    }
    let bin = |((time_ns, src), (packets, repeated_packets))| RepeatedBin { time_ns, src, packets, repeated_packets };
    let origin_ns = crate::report::origin_ns(profile, sums.keys().map(|(time_ns, _)| *time_ns).next());
    Ok(Retransmissions { by, bin_ns: profile.bin_ns, origin_ns, bins: sums.into_iter().map(bin).collect() })
}

/// Longest bar, in characters.
const BAR: usize = 40;
/// Bins in the table: those in which most was sent again.
const MOST_BINS: usize = 40;

/// For people: the bins in which packets were sent again, in the order of time.
#[must_use]
pub fn over_time_table(repeats: &Retransmissions) -> String {
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
pub fn over_time_csv(repeats: &Retransmissions, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "time_ns,src,packets,repeated_packets,job")?;
    for RepeatedBin { time_ns, src, packets, repeated_packets } in &repeats.bins {
        writeln!(out, "{time_ns},{},{packets},{repeated_packets},{}", src.without_job(), job(src))?;
    }
    Ok(())
}

/// One object with the rows of the csv.
pub fn over_time_json(repeats: &Retransmissions, out: &mut dyn Write) -> io::Result<()> {
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
