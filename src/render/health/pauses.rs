//! Pause and PFC frames as summary lines, terminal table, csv and JSON.

use crate::analysis::health::{PauseRow, longest_pause_ns, pause_rows};
use crate::model::Coverage;
use crate::model::column::ColumnUnit::{Count, Nanoseconds, Quanta};
use crate::model::coverage::Pauses;
use crate::model::link::Speed;
use crate::render::table::Table;
use crate::render::units::{count_either, count_of, group, span as duration};
use serde_json::Value;
use std::io::{self, Write};

/// Maximum number of senders in the summary lines.
const MAX_SENDERS: usize = 8;

/// One line per sender: its pause frames, and per class the pauses that they request.
pub(super) fn descriptions(coverage: &Coverage, speed: Option<&Speed>) -> Vec<String> {
    let rows: Vec<PauseRow<'_>> = pause_rows(coverage).collect();
    let ask = |row: &PauseRow<'_>| {
        let pauses = row.pauses?;
        let longest = longest(pauses, speed);
        let class = if row.class.is_empty() { String::new() } else { format!("{}: ", row.class) };
        Some(format!(
            "{class}{} of up to {longest}, {}",
            count_of(pauses.pauses, "pause"),
            count_either(pauses.resumes, "frame to resume", "frames to resume")
        ))
    };
    let line = |of: &[PauseRow<'_>]| {
        let pauses = of.iter().filter_map(ask).collect::<Vec<_>>().join("; ");
        let separator = if pauses.is_empty() { "" } else { ": " };
        format!("{} from {}{separator}{pauses}", count_of(of[0].frames, "frame"), of[0].sender)
    };
    rows.chunk_by(|a, b| a.sender == b.sender).take(MAX_SENDERS).map(line).collect()
}

fn longest(pauses: &Pauses, speed: Option<&Speed>) -> String {
    match longest_pause_ns(pauses, speed) {
        Some(ns) => duration(ns),
        None => format!("{} quanta", group(pauses.longest_quanta)),
    }
}

/// The pause frames of one sender and class, on links of a known or unknown speed.
pub(in crate::render) struct SpeedRow<'a> {
    row: PauseRow<'a>,
    speed: Option<&'a Speed>,
}

impl SpeedRow<'_> {
    fn number(&self, of: impl Fn(&Pauses) -> u64) -> Option<u64> {
        self.row.pauses.map(of)
    }

    /// The text for the requested pauses; empty if no frame could be read.
    fn text(&self, text: impl Fn(&Pauses) -> String) -> String {
        self.row.pauses.map(text).unwrap_or_default()
    }
}

/// The columns of `health --by pause`.
pub(in crate::render) fn columns<'a>() -> Table<SpeedRow<'a>> {
    Table::new("ibscope health --by pause --format csv")
        .name("sender", "MAC address of the sender and kind of its frames", |row: &SpeedRow<'_>| Some(row.row.sender))
        .headed("frames of")
        .name("class", "priority class of PFC frames; empty for frames that pause all traffic", |row| {
            Some(row.row.class)
        })
        .headed("class")
        .column("frames", Count, "frames of that sender and kind, of all classes", |row| row.row.frames)
        .headed("frames")
        .column(
            "pauses",
            Count,
            "requests for a pause; empty where no frame could be read, as are all following columns",
            |row| row.number(|pauses| pauses.pauses),
        )
        .shown("pauses", |row| row.text(|pauses| group(pauses.pauses)))
        .column("resumes", Count, "requests to resume", |row| row.number(|pauses| pauses.resumes))
        .shown("resumed", |row| row.text(|pauses| group(pauses.resumes)))
        .column("longest_quanta", Quanta, "the longest pause", |row| row.number(|pauses| pauses.longest_quanta))
        .column(
            "quanta",
            Quanta,
            "sum of all pauses; an upper bound, because a frame may end the previous pause early",
            |row| row.number(|pauses| pauses.quanta),
        )
        .column(
            "longest_ns",
            Nanoseconds,
            "the longest pause at the link speed of `--link`; empty without `--link`",
            |row| row.row.pauses.and_then(|pauses| longest_pause_ns(pauses, row.speed)),
        )
        .shown("longest", |row| row.text(|pauses| longest(pauses, row.speed)))
}

fn rows<'a>(coverage: &'a Coverage, speed: Option<&'a Speed>) -> impl Iterator<Item = SpeedRow<'a>> {
    pause_rows(coverage).map(move |row| SpeedRow { row, speed })
}

/// The terminal table.
#[must_use]
pub fn table(coverage: &Coverage, speed: Option<&Speed>) -> String {
    if pause_rows(coverage).next().is_none() {
        return "the captures contain no pause frames\n".to_owned();
    }
    format!("{}\n", columns().text(rows(coverage, speed)))
}

/// Writes one csv row per sender and class.
pub fn csv(coverage: &Coverage, speed: Option<&Speed>, out: &mut dyn Write) -> io::Result<()> {
    columns().csv(rows(coverage, speed), out)
}

/// The csv rows as JSON objects.
pub(super) fn rows_json(coverage: &Coverage, speed: Option<&Speed>) -> Vec<Value> {
    columns().objects(rows(coverage, speed))
}
