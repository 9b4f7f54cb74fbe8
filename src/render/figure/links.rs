//! The rates of links as a heat map: row = port and direction, column = time.
//!
//! If there are more rows or bins than can be drawn, a cell shows the highest of its bins, and the
//! second title line reports this.

use super::axes::{seconds, time as format_time};
use super::bar::ColorBar;
use super::canvas::{shorten, titled};
use super::scale::{ColorScale, human};
use super::time_heat::{MAX_COLUMNS, MAX_ROWS, TimeHeat};
use crate::analysis::link_rates::{LinkRates, LinkSeries};
use crate::render::RenderError;

/// Cells hold utilization in this unit: one hundredth of a percent.
const SHARE_UNIT: f64 = 10_000.0;

/// Lays out the heat map.
pub(super) fn link_heat(rates: &LinkRates) -> Result<TimeHeat, RenderError> {
    let (from_ns, to_ns) = rates.span_ns;
    let bins = to_ns.saturating_sub(from_ns) / rates.bin_ns.max(1);
    if bins <= 0 || rates.links.is_empty() {
        return Err(RenderError::Empty);
    }
    let group = (bins + MAX_COLUMNS - 1) / MAX_COLUMNS;
    let block = rates.links.len().div_ceil(MAX_ROWS);
    let rows = rates.links.len().div_ceil(block);
    let column_ns = group.saturating_mul(rates.bin_ns);
    let columns = usize::try_from((bins + group - 1) / group).unwrap_or_default();
    let has_capacities = rates.has_capacities();
    let value = |link: &LinkSeries, rate: f64| {
        let share = link.share(rate).filter(|_| has_capacities);
        share.map_or(rate * 8.0, |share| share * SHARE_UNIT).round().max(1.0) as u64
    };
    let mut values = vec![0_u64; rows * columns];
    for (index, link) in rates.links.iter().enumerate() {
        for bin in link.bins.iter().filter(|bin| bin.wire_bytes > 0) {
            let column = usize::try_from((bin.time_ns - from_ns) / column_ns).unwrap_or_default();
            if let Some(cell) = values.get_mut(index / block * columns + column.min(columns - 1)) {
                *cell = (*cell).max(value(link, rates.rate(bin)));
            }
        }
    }
    let bar = bar(rates, &values)?;
    let mut titles = vec![titled("Rates of links over time".to_owned(), rates.sampled.as_deref())];
    if group > 1 || block > 1 {
        let links = if block > 1 { format!("{block} links, ") } else { String::new() };
        let bin = format_time(rates.bin_ns as f64);
        titles.push(format!("a cell shows the highest of {links}{group} bins of {bin}"));
    }
    if let Some(bound) = rates.common_bound().filter(|_| rates.sampled.is_none()) {
        titles.push(format!("lower bounds: {}", bound.because()));
    }
    let name = |row: usize| rates.links.get(row * block).map(label).unwrap_or_default();
    let columns_s = (seconds(rates.origin_ns, from_ns), column_ns as f64 / 1e9);
    TimeHeat::new(titles, ("port, direction", &name), (values, columns), columns_s, bar)
}

/// The name of a link: its port and direction.
fn label(link: &LinkSeries) -> String {
    format!("{} {}", shorten(&link.port.name()), link.direction.name())
}

/// The color bar: the utilization from 0 to at least 100 %, or the rate.
fn bar(rates: &LinkRates, values: &[u64]) -> Result<ColorBar, RenderError> {
    if !rates.has_capacities() {
        let scale = ColorScale::new(values.iter().copied()).ok_or(RenderError::Empty)?;
        let ticks = scale.ticks(false).into_iter().map(|tick| (tick, human(tick, false))).collect();
        let kind = if scale.log { "log" } else { "linear" };
        return ColorBar::new(format!("bit/s ({kind} scale)"), scale, ticks, true);
    }
    let highest = values.iter().copied().max().unwrap_or_default();
    let scale = ColorScale { min: 1, max: highest.max(SHARE_UNIT as u64), log: false };
    let ticks = (0..=5).map(|fifth| (fifth * SHARE_UNIT as u64 / 5, format!("{} %", fifth * 20))).collect();
    ColorBar::new("share of the capacity".to_owned(), scale, ticks, true)
}
