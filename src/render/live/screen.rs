//! The terminal screen of `ibscope watch`: wire rate over time, totals and coverage, busiest pairs,
//! and message sizes.
//!
//! Drawing works at every terminal size; panels and columns without room are omitted.

use super::percent::percent;
use crate::analysis::live::{LiveOrder, LiveProgress, LiveRows};
use crate::model::sampling::EstimatedSum;
use crate::render::table::groups::shown;
use crate::render::units::{bytes, bytes_per_second, group, per_second, size_range};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::border;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table};
use std::time::Duration;

/// Widths of the totals and of the message sizes, in characters.
const TOTALS_WIDTH: u16 = 36;
const SIZES_WIDTH: u16 = 42;
/// Minimum width of the pairs next to the sizes: the names of both ends need room.
const PAIRS_WIDTH: u16 = 56;
/// Least widths of the pairs with a share column and a wire column.
const SHARE_FROM: u16 = 74;
const WIRE_FROM: u16 = 64;
/// Largest and smallest height of the rate and the totals, in lines with their frames.
const RATE_HEIGHT: u16 = 16;
const LOW_HEIGHT: u16 = 8;

/// The choices of the user, which keys change.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScreenView {
    /// The rows of the table.
    pub rows: LiveRows,
    /// Their order.
    pub order: LiveOrder,
    /// Allows colors.
    pub color: bool,
}

/// Draws the current progress. `place` names the growing capture, `state` the activity of the
/// program with it, `every` is the interval of one column of the rate.
pub fn draw(
    frame: &mut Frame<'_>,
    progress: &LiveProgress,
    (place, state): (&str, &str),
    every: Duration,
    view: ScreenView,
) {
    let look = ScreenStyle { color: view.color };
    let rate_height = (frame.area().height / 2).clamp(LOW_HEIGHT, RATE_HEIGHT);
    let [title, above, below, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Max(rate_height),
        Constraint::Min(5),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let narrow = frame.area().width < PAIRS_WIDTH + SIZES_WIDTH;
    let heading = Line::from(vec![
        Span::styled("ibscope watch  ", ScreenStyle::strong()),
        Span::raw(place.to_owned()),
        Span::styled(format!("  {state}"), look.faint()),
    ]);
    frame.render_widget(Paragraph::new(heading), title);
    let [rate, totals] = Layout::horizontal([Constraint::Min(20), Constraint::Length(TOTALS_WIDTH)]).areas(above);
    draw_rate(frame, progress, &look, rate);
    draw_totals(frame, progress, &look, totals);
    let sizes_width = if narrow { 0 } else { SIZES_WIDTH };
    let [pairs, sizes] = Layout::horizontal([Constraint::Min(20), Constraint::Length(sizes_width)]).areas(below);
    draw_rows(frame, progress, &look, view, pairs);
    if !narrow {
        draw_sizes(frame, progress, &look, sizes);
    }
    let other = match view.rows {
        LiveRows::Pairs => "links",
        LiveRows::Links => "pairs",
    };
    let hint = format!("q quits, printing the totals   s sorts   l shows {other}   p pauses");
    let column = format!("   one column is {} s", every.as_secs_f64());
    let rates = "   rates are wire bytes, headers and retransmissions included";
    let room = usize::from(frame.area().width);
    let hints = [format!("{hint}{column}{rates}"), format!("{hint}{column}"), hint];
    let hint = hints.iter().find(|hint| hint.len() <= room).or(hints.last()).map_or("", String::as_str);
    frame.render_widget(Paragraph::new(Span::styled(hint.to_owned(), look.faint())), keys);
}

/// Styles of the screen, with or without colors.
struct ScreenStyle {
    color: bool,
}

impl ScreenStyle {
    fn strong() -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    fn faint(&self) -> Style {
        if self.color { Style::new().fg(Color::DarkGray) } else { Style::new() }
    }

    /// Blue bars and orange alarms: distinguishable with any kind of color vision.
    fn bar(&self) -> Style {
        if self.color { Style::new().fg(Color::Indexed(32)) } else { Style::new() }
    }

    fn alarm(&self) -> Style {
        if self.color { Style::new().fg(Color::Indexed(208)).add_modifier(Modifier::BOLD) } else { Self::strong() }
    }

    fn panel<'a>(&self, title: impl Into<Line<'a>>) -> Block<'a> {
        Block::bordered().border_set(border::ROUNDED).border_style(self.faint()).title(title)
    }
}

fn draw_rate(frame: &mut Frame<'_>, progress: &LiveProgress, look: &ScreenStyle, area: Rect) {
    let now = Span::styled(format!(" {}, ", bytes_per_second(progress.rate())), ScreenStyle::strong());
    let [mean, peak] = [progress.mean(), progress.peak].map(bytes_per_second);
    // The mean moves below the plot where it has no room beside the peak.
    let room = usize::from(area.width.saturating_sub(2));
    let both = format!("mean {mean}, peak {peak} ");
    let has_room = now.width() + both.len() <= room;
    let title = if has_room { both } else { format!("peak {peak} ") };
    let mut panel = look.panel(Line::from(vec![now, Span::raw(title)]));
    if !has_room {
        panel = panel.title_bottom(format!(" mean {mean} "));
    }
    let width = usize::from(panel.inner(area).width);
    let shown = progress.rates.iter().skip(progress.rates.len().saturating_sub(width));
    // The newest rate is at the right.
    let mut bars = vec![0; width.saturating_sub(progress.rates.len())];
    bars.extend(shown.map(|rate| rate.round() as u64));
    let top = bars.iter().copied().max().unwrap_or(0).max(1);
    let panel = panel.title_bottom(Line::from(format!(" top {} ", bytes_per_second(top as f64))).right_aligned());
    frame.render_widget(Sparkline::default().block(panel).data(bars).max(top).style(look.bar()), area);
}

fn draw_totals(frame: &mut Frame<'_>, progress: &LiveProgress, look: &ScreenStyle, area: Rect) {
    let live = &progress.live;
    let (traffic, retransmissions) = live.total();
    let coverage = &live.coverage;
    let plain = Style::new();
    let bad = |count: u64| if count > 0 { look.alarm() } else { plain };
    let decoded = percent(coverage.records.saturating_sub(coverage.failed()), coverage.records);
    let lost = live.sflow.map(|sflow| ("lost datagrams", group(sflow.lost_datagrams), bad(sflow.lost_datagrams)));
    let rows = [
        ("time", format!("{:.3} s", progress.span_ns() as f64 / 1e9), plain),
        ("packets", group(traffic.packets), plain),
        ("packets now", per_second(progress.packets_per_s), plain),
        ("wire", bytes(traffic.wire_bytes), plain),
        ("messages", group(traffic.messages), plain),
        (
            "retransmitted",
            format!("{}  {}", group(retransmissions.packets()), percent(retransmissions.packets(), traffic.packets)),
            bad(retransmissions.packets()),
        ),
        ("decoded", format!("{decoded} of {}", group(coverage.records)), bad(coverage.failed())),
        ("wrong ICRC", group(coverage.icrc_bad), bad(coverage.icrc_bad)),
        ("dropped", group(coverage.interface_drops), bad(coverage.interface_drops)),
        ("mirror copies", group(coverage.mirror_copies), plain),
        ("payload", bytes(traffic.payload_bytes), plain),
        ("connections", group(live.connections), plain),
        ("other frames", group(coverage.other()), plain),
        ("truncated", group(coverage.truncated), plain),
    ];
    let (first, rest) = rows.split_at(4);
    let rows = first.iter().cloned().chain(lost).chain(rest.iter().cloned());
    let rows = rows.map(|(name, value, style)| {
        Row::new([Cell::new(Span::styled(name, look.faint())), Cell::new(Line::styled(value, style).right_aligned())])
    });
    let table = Table::new(rows, [Constraint::Length(14), Constraint::Fill(1)]).block(look.panel(" totals "));
    frame.render_widget(table, area);
}

fn draw_rows(frame: &mut Frame<'_>, progress: &LiveProgress, look: &ScreenStyle, view: ScreenView, area: Rect) {
    let room = usize::from(area.height.saturating_sub(3));
    let all = progress.rate();
    let right = |text: String| Cell::new(Line::from(text).right_aligned());
    let is_sampled = progress.one_in().is_some();
    // An estimate takes the room of the share and of the counted bytes, and a sample does not show
    // retransmissions.
    let has = |width: u16| area.width >= width && !is_sampled;
    let (rows, count) = progress.rows(view.rows, view.order, room);
    let rows = rows.into_iter().map(|row| {
        let share = if all > 0.0 { row.wire_bytes_per_s * 100.0 / all } else { 0.0 };
        let retransmitted = row.retransmissions.packets();
        let style = if retransmitted > 0 { look.alarm() } else { Style::new() };
        let mut cells = vec![Cell::new(progress.row_name(row.ends)), right(bytes_per_second(row.wire_bytes_per_s))];
        cells.extend(has(SHARE_FROM).then(|| right(format!("{share:.0} %"))));
        cells.extend(has(WIRE_FROM).then(|| right(bytes(row.traffic.wire_bytes))));
        cells.push(right(group(row.traffic.packets)));
        cells.push(match row.estimators {
            Some(pair) => right(shown(EstimatedSum::WIRE_BYTES.estimate(&pair), bytes)),
            None => Cell::new(Line::styled(group(retransmitted), style).right_aligned()),
        });
        Row::new(cells)
    });
    let (names, heading) = match view.rows {
        LiveRows::Pairs => ("pairs", "sender → receiver"),
        LiveRows::Links => ("links", "port, direction"),
    };
    let order = match view.order {
        LiveOrder::Rate => "rate",
        LiveOrder::Wire => "bytes on the wire",
        LiveOrder::Packets => "packets",
        LiveOrder::Retransmitted => "retransmitted packets",
    };
    let title = if count > room {
        format!(" {room} of {} {names}, by {order} ", group(count as u64))
    } else {
        format!(" {names}, by {order} ")
    };
    let columns = [
        (true, "wire/s", 12),
        (has(SHARE_FROM), "share", 6),
        (has(WIRE_FROM), "wire", 10),
        (true, "packets", 11),
        (!is_sampled, "retransmitted", 13),
        (is_sampled, "wire, estimated total", 33),
    ];
    let columns = || columns.into_iter().filter(|(is_shown, ..)| *is_shown);
    let widths = std::iter::once(Constraint::Fill(1)).chain(columns().map(|(.., width)| Constraint::Length(width)));
    let names = columns().map(|(_, name, _)| right(name.to_owned()));
    let header = Row::new(std::iter::once(Cell::new(heading)).chain(names)).style(look.faint());
    let mut panel = look.panel(title);
    if let Some(pair) = progress.total_estimators() {
        let packets = shown(EstimatedSum::PACKETS.estimate(&pair), group);
        let wire = shown(EstimatedSum::WIRE_BYTES.estimate(&pair), bytes);
        panel = panel.title_bottom(format!(" counts of the sample; estimated total {packets} packets, {wire} "));
    }
    frame.render_widget(Table::new(rows, widths).header(header).block(panel), area);
}

fn draw_sizes(frame: &mut Frame<'_>, progress: &LiveProgress, look: &ScreenStyle, area: Rect) {
    let panel = look.panel(" transport messages ");
    let inner = panel.inner(area);
    let sizes = progress.sizes();
    let most = sizes.values().map(|sums| sums.count).max().unwrap_or(0).max(1);
    let names = [Constraint::Length(19), Constraint::Length(11), Constraint::Fill(1)];
    // The bar gets the width that the two text columns and the spaces between them leave.
    let bar = f64::from(inner.width.saturating_sub(19 + 11 + 2));
    // Where there is no room for all sizes, show the largest.
    let room = usize::from(inner.height.saturating_sub(1));
    let rows = sizes.values().skip(sizes.len().saturating_sub(room)).map(|sums| {
        let length = (sums.count as f64 / most as f64 * bar).round() as usize;
        Row::new([
            Cell::new(Line::from(size_range(sums)).right_aligned()),
            Cell::new(Line::from(group(sums.count)).right_aligned()),
            // Every size with messages has a visible bar.
            Cell::new(Span::styled("▆".repeat(length.max(1)), look.bar())),
        ])
    });
    let header = ["payload bytes", "count", ""].map(|name| Cell::new(Line::from(name).right_aligned()));
    let table = Table::new(rows, names).header(Row::new(header).style(look.faint())).block(panel);
    frame.render_widget(table, area);
}
