//! The rates of many senders as a heat map: row = sender, column = time.
//!
//! Stacked areas show only a few senders; most of a thousand senders would share one area.

use super::axes::seconds;
use super::bar::ColorBar;
use super::canvas::{shorten, titled};
use super::scale::{ColorScale, human};
use super::scale_end::{cells_beyond, color_scale};
use super::time_heat::{MAX_COLUMNS, MAX_ROWS, TimeHeat};
use crate::analysis::Label;
use crate::analysis::timeline::Timeline;
use crate::render::RenderError;
use std::collections::BTreeMap;

/// Lays out the heat map of wire rates. A column that is wider than a bin shows the mean rate in it; a
/// row of several senders shows the highest of them. With `most`, the color scale is linear from 0 to this
/// rate.
pub(super) fn sender_heat(timeline: &Timeline, most: Option<u64>) -> Result<TimeHeat, RenderError> {
    let (start_ns, end_ns) = timeline.span_ns().ok_or(RenderError::Empty)?;
    let bin_ns = timeline.bin_ns.max(1);
    let bins = end_ns.saturating_sub(start_ns) / bin_ns;
    let column_ns = ((bins + MAX_COLUMNS - 1) / MAX_COLUMNS).saturating_mul(bin_ns).max(1);
    let columns = usize::try_from((end_ns.saturating_sub(start_ns) + column_ns - 1) / column_ns).unwrap_or_default();
    let mut sent: BTreeMap<&Label, Vec<u64>> = BTreeMap::new();
    for bin in &timeline.bins {
        let column = usize::try_from((bin.time_ns - start_ns) / column_ns).unwrap_or_default();
        let sums = sent.entry(&bin.src).or_insert_with(|| vec![0; columns]);
        sums.get_mut(column).into_iter().for_each(|sum| *sum = sum.saturating_add(bin.cell.wire_bytes));
    }
    let names: Vec<String> = sent.keys().map(|label| shorten(&label.name())).collect();
    let block = sent.len().div_ceil(MAX_ROWS).max(1);
    let mut values = vec![0_u64; sent.len().div_ceil(block) * columns];
    for (index, sums) in sent.values().enumerate() {
        for (column, wire_bytes) in sums.iter().enumerate() {
            // The last column may be narrower.
            let from_ns = start_ns.saturating_add(column_ns.saturating_mul(column as i64));
            let width_ns = end_ns.saturating_sub(from_ns).clamp(1, column_ns);
            let rate = (*wire_bytes as f64 * 1e9 / width_ns as f64).round() as u64;
            let cell = values.get_mut(index / block * columns + column);
            cell.into_iter().for_each(|cell| *cell = (*cell).max(if *wire_bytes > 0 { rate.max(1) } else { 0 }));
        }
    }
    let scale = color_scale(ColorScale::new(values.iter().copied()).ok_or(RenderError::Empty)?, most);
    let ticks = scale.ticks(true).into_iter().map(|tick| (tick, human(tick, true))).collect();
    let kind = if scale.log { "log" } else { "linear" };
    let bar = ColorBar::new(format!("wire bytes/s ({kind} scale)"), scale, ticks, true)?;
    let sender = timeline.by.noun();
    let mut titles = vec![titled(format!("Wire rate by sending {sender}"), timeline.sampled.as_deref())];
    if block > 1 {
        titles.push(format!("a row shows the highest of {block} senders"));
    }
    titles.extend(cells_beyond(values.iter().copied(), &scale));
    let columns_s = (seconds(timeline.origin_ns, start_ns), column_ns as f64 / 1e9);
    let name = |row: usize| names.get(row * block).cloned().unwrap_or_default();
    TimeHeat::new(titles, (&format!("sending {sender}"), &name), (values, columns), columns_s, bar)
}
