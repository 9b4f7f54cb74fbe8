//! The timeline as a table with bars.

use super::super::matrix::{self, Unit};
use super::super::timeline::Timeline;
use super::super::units::{self, Scaled};
use super::{Style, aligned, footer, lines, table};

/// Lines of the table; more bins are added up.
const MAX_ROWS: usize = 40;
const BAR: usize = 24;

/// Sums of all pairs over time, one line per bin, or per several where there are many.
#[must_use]
pub fn timeline_table(timeline: &Timeline, style: &Style) -> String {
    let Some(series) = timeline.series(MAX_ROWS) else { return "no traffic\n".to_owned() };
    let (start, wide) = (super::summary::utc(series.start_ns), units::duration(series.step_ns));
    let mut text = format!("all {} pairs together, from {start}, sums per {wide}\n\n", timeline.by.name());

    let max = |unit| series.total.iter().filter_map(|cell| cell.value(unit)).max().unwrap_or(0);
    let scale = |unit: Unit| if unit.is_bytes() { Scaled::bytes(max(unit)) } else { Scaled::count(max(unit)) };
    let units = Unit::ALL.map(|unit| (unit, scale(unit)));
    let step_s = series.step_ns as f64 / 1e9;
    let fastest = max(Unit::WireBytes) as f64 / step_s;
    let (factor, prefix) = units::si(fastest);

    let mut header = vec!["time [s]".to_owned()];
    header.extend(units.iter().map(|(unit, scaled)| {
        let name = match unit {
            Unit::Messages => "messages",
            Unit::MpiBytes => "MPI",
            Unit::PayloadBytes => "payload",
            Unit::WireBytes => "wire",
            Unit::Packets => "packets",
        };
        format!("{name}{}", scaled.bracket())
    }));
    header.push(format!("wire [{prefix}B/s]"));
    header.push(String::new());
    let mut table = table(header, 0, style);
    for (step, cell) in (0_i64..).zip(&series.total) {
        let since_ns = i128::from(step) * i128::from(series.step_ns);
        let mut row = vec![aligned(units::seconds(since_ns), false)];
        row.extend(units.iter().map(|(unit, scaled)| {
            let is_empty = cell.packets == 0 && cell.value(*unit).unwrap_or(0) == 0;
            let value = cell.value(*unit).map_or_else(|| "-".to_owned(), |value| scaled.number(value));
            aligned(if is_empty { style.dot().to_owned() } else { value }, false)
        }));
        let rate = cell.wire_bytes as f64 / step_s;
        row.push(aligned(format!("{:.1}", rate / factor), false));
        row.push(aligned(bar(if fastest > 0.0 { rate / fastest } else { 0.0 }, style), true));
        table.add_row(row);
    }
    let rows = lines(&table);
    let fits = rows.iter().all(|line| line.chars().count() <= style.width);
    for row in rows {
        // Bars are the first to go.
        let row = if fits { row } else { row.chars().take(style.width).collect() };
        text += row.trim_end();
        text.push('\n');
    }
    text.push('\n');
    let timeline_notes = |unit| matrix::notes(timeline.by, timeline.selection, timeline.mpi_read, unit, &timeline.labels);
    let mut notes = timeline_notes(Unit::Messages);
    if series.step_ns != timeline.bin_ns {
        let bins = series.step_ns / timeline.bin_ns;
        let bin = units::duration(timeline.bin_ns);
        notes.insert(0, format!("each line adds up {bins} bins of {bin}; csv and JSON have every bin and pair"));
    }
    text + &footer(&notes, style)
}

fn bar(share: f64, style: &Style) -> String {
    let eighths = (share.clamp(0.0, 1.0) * BAR as f64 * 8.0).round() as usize;
    if !style.utf8 {
        return "#".repeat(eighths.div_ceil(8));
    }
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    "█".repeat(eighths / 8) + PARTS.get(eighths % 8).copied().unwrap_or_default()
}
