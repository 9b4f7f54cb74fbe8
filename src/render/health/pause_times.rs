//! Pause and PFC frames over time as terminal table, csv and JSON.

use crate::analysis::health::PauseTimes;
use crate::model::column::ColumnUnit::{Count, Nanoseconds, Quanta, Timestamp};
use crate::model::link::Speed;
use crate::model::pause_series::PauseBin;
use crate::render::table::Table;
use crate::render::units::{count_of, duration, group, seconds_since, span};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{self, Write};

/// Maximum number of bins in the terminal table, those with the most frames.
const MAX_BINS: usize = 40;

/// The frames in one bin, a row of the output, on links of a known or unknown speed.
pub(in crate::render) struct PauseBinRow<'a> {
    time_ns: i64,
    /// Origin of relative times, in nanoseconds since the epoch.
    origin_ns: i64,
    sums: PauseBin,
    speed: Option<&'a Speed>,
}

impl PauseBinRow<'_> {
    /// Upper bound of the paused time in nanoseconds.
    fn paused_ns(&self) -> Option<u64> {
        PauseTimes::paused_ns(self.sums, self.speed)
    }
}

/// The columns of `health --by pause-time`.
pub(in crate::render) fn columns<'a>() -> Table<PauseBinRow<'a>> {
    Table::new("ibscope health --by pause-time --format csv")
        .column("time_ns", Timestamp, "start of the bin; bins without frames are left out", |row: &PauseBinRow<'_>| {
            row.time_ns
        })
        .shown("time [s]", |row| seconds_since(row.origin_ns, row.time_ns))
        .column("frames", Count, "pause and PFC frames of all senders", |row| row.sums.frames)
        .headed("frames")
        .column(
            "pauses",
            Count,
            "requests for a pause; a PFC frame may have one for each of its classes, and a frame that could not be read has none",
            |row| row.sums.pauses,
        )
        .headed("pauses")
        .column("resumes", Count, "requests to resume", |row| row.sums.resumes)
        .headed("resumed")
        .column(
            "quanta",
            Quanta,
            "sum of all requested pauses; an upper bound, because a frame may end the previous pause early",
            |row| row.sums.quanta,
        )
        .shown("paused at most", |row| match row.paused_ns() {
            Some(ns) => span(ns),
            None => format!("{} quanta", group(row.sums.quanta)),
        })
        .column(
            "paused_ns",
            Nanoseconds,
            "`quanta` as time at the link speed of `--link`, of all senders and classes together; empty without `--link`",
            PauseBinRow::paused_ns,
        )
}

fn rows<'a>(times: &'a PauseTimes, speed: Option<&'a Speed>) -> impl Iterator<Item = PauseBinRow<'a>> {
    let row = move |&(time_ns, sums)| PauseBinRow { time_ns, origin_ns: times.origin_ns, sums, speed };
    times.bins.iter().map(row)
}

/// The terminal table, in the order of time.
#[must_use]
pub fn pause_times_table(times: &PauseTimes, speed: Option<&Speed>) -> String {
    if times.frames == 0 {
        return "the captures contain no pause frames\n".to_owned();
    }
    let mut shown: Vec<PauseBinRow<'_>> = rows(times, speed).collect();
    shown.sort_by_key(|row| (std::cmp::Reverse(row.sums.frames), row.time_ns));
    shown.truncate(MAX_BINS);
    shown.sort_by_key(|row| row.time_ns);
    let (all, width) = (times.bins.len(), duration(times.bin_ns));
    let which = match all {
        all if all > MAX_BINS => {
            format!(": the {MAX_BINS} bins with the most of them, of {} bins of {width} each", group(all as u64))
        }
        _ => format!(", bins of {width}"),
    };
    let mut text = String::new();
    if !shown.is_empty() {
        let _ =
            writeln!(text, "pause and PFC frames{which}; time in s from the first packet\n{}", columns().text(shown));
    }
    if let Some(note) = without_bin(times) {
        let _ = writeln!(text, "{note}");
    }
    text
}

/// The sentence on frames that are in no bin.
pub(in crate::render) fn without_bin(times: &PauseTimes) -> Option<String> {
    (times.without_bin > 0).then(|| {
        format!(
            "the time of {} is unknown: the records have no time, or an earlier version of ibscope wrote the profile",
            count_of(times.without_bin, "pause frame")
        )
    })
}

/// Writes one csv row per bin with pause frames.
pub fn pause_times_csv(times: &PauseTimes, speed: Option<&Speed>, out: &mut dyn Write) -> io::Result<()> {
    columns().csv(rows(times, speed), out)
}

/// The width of the bins, and the csv rows as JSON objects.
pub(super) fn times_json(times: &PauseTimes, speed: Option<&Speed>) -> Value {
    json!({ "bin_ns": times.bin_ns, "without_bin": times.without_bin, "bins": columns().objects(rows(times, speed)) })
}
