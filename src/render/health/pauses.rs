//! Pause and PFC frames in words, as a table for people, csv and JSON.

use crate::analysis::health::{PauseRow, longest_pause_ns, pause_rows};
use crate::model::Coverage;
use crate::model::coverage::Pauses;
use crate::model::link::Speed;
use crate::render::columns::columns;
use crate::render::units::{counted, group, span as duration};
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// Senders that are listed among other things.
const MOST_SENDERS: usize = 8;

/// What pause frames ask for, one line per sender.
pub(super) fn described(coverage: &Coverage, speed: Option<&Speed>) -> Vec<String> {
    let rows: Vec<PauseRow<'_>> = pause_rows(coverage).collect();
    let ask = |row: &PauseRow<'_>| {
        let asked = row.asked?;
        let longest = longest(asked, speed);
        let class = if row.class.is_empty() { String::new() } else { format!("{}: ", row.class) };
        Some(format!("{class}{} of up to {longest}, {} resumed", counted(asked.pauses, "pause"), group(asked.resumes)))
    };
    let line = |of: &[PauseRow<'_>]| {
        let asked = of.iter().filter_map(ask).collect::<Vec<_>>().join("; ");
        let separator = if asked.is_empty() { "" } else { ": " };
        format!("{} from {}{separator}{asked}", counted(of[0].frames, "frame"), of[0].sender)
    };
    rows.chunk_by(|a, b| a.sender == b.sender).take(MOST_SENDERS).map(line).collect()
}

fn longest(asked: &Pauses, speed: Option<&Speed>) -> String {
    match longest_pause_ns(asked, speed) {
        Some(ns) => duration(ns),
        None => format!("{} quanta", group(asked.longest_quanta)),
    }
}

/// A table for people.
#[must_use]
pub fn table(coverage: &Coverage, speed: Option<&Speed>) -> String {
    let mut table = columns(&["frames of", "class", "frames", "pauses", "resumed", "longest"], 2..6);
    let mut is_empty = true;
    for row in pause_rows(coverage) {
        is_empty = false;
        let mut cells = vec![row.sender.to_owned(), row.class.to_owned(), group(row.frames)];
        cells.extend(
            row.asked.into_iter().flat_map(|asked| [group(asked.pauses), group(asked.resumes), longest(asked, speed)]),
        );
        table.add_row(cells);
    }
    if is_empty { "no pause frame is in the captures\n".to_owned() } else { format!("{}\n", table.trim_fmt()) }
}

/// `sender,class,frames,pauses,resumes,longest_quanta,quanta,longest_ns`: a row for each sender and class. `sender` is its address and the kind of its
/// frames, `frames` those of all its classes; `longest_ns` is empty where the speed of the link is not given.
pub fn csv(coverage: &Coverage, speed: Option<&Speed>, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "sender,class,frames,pauses,resumes,longest_quanta,quanta,longest_ns")?;
    for PauseRow { sender, frames, class, asked } in pause_rows(coverage) {
        let values = asked.map_or_else(
            || ",,,,".to_owned(),
            |asked| {
                let longest_ns = longest_pause_ns(asked, speed).map(|ns| ns.to_string()).unwrap_or_default();
                format!("{},{},{},{},{longest_ns}", asked.pauses, asked.resumes, asked.longest_quanta, asked.quanta)
            },
        );
        writeln!(out, "{sender},{class},{frames},{values}")?;
    }
    Ok(())
}

/// What pauses are asked for, by sender and class.
pub(super) fn json(coverage: &Coverage, speed: Option<&Speed>) -> Map<String, Value> {
    let of = |(what, asked): (&String, &Pauses)| {
        let Pauses { pauses, resumes, longest_quanta, quanta } = asked;
        let object = json!({
            "pauses": pauses, "resumes": resumes, "longest_quanta": longest_quanta, "quanta": quanta,
            "longest_ns": longest_pause_ns(asked, speed),
        });
        (what.clone(), object)
    };
    coverage.pauses.iter().map(of).collect()
}
