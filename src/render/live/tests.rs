use super::percent::percent;
use super::*;
use crate::analysis::live::tests::live;
use crate::analysis::live::{LiveOrder, LiveProgress, LiveRows};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::collections::BTreeMap;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn shares_are_not_rounded_to_0_or_100_percent() {
    assert_eq!([percent(0, 7), percent(7, 7), percent(0, 0)], ["0 %", "100 %", "0 %"]);
    assert_eq!([percent(1, 1_000_000), percent(999_999, 1_000_000)], ["0.01 %", "99.99 %"]);
}

#[test]
fn the_screen_shows_names_and_numbers_at_any_size() {
    let names = BTreeMap::from([("17".parse().unwrap(), "node1".to_owned())]);
    let mut progress = LiveProgress::new(names, None);
    progress.update(live(10_000_000_000, [1_000_000, 500_000]), SECOND);
    for (width, height) in [(120, 40), (80, 24), (30, 8), (1, 1), (0, 0)] {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let view = ScreenView { color: width % 20 == 0, ..ScreenView::default() };
        terminal.draw(|frame| draw(frame, &progress, ("sink.pcap", "following"), SECOND, view)).unwrap();
        let buffer = terminal.backend().buffer();
        let text: String = buffer.content().iter().map(ratatui::buffer::Cell::symbol).collect();
        if width >= 80 {
            for expected in [
                "sink.pcap",
                "node1 → 18",
                "18 → node1",
                "97.7 KiB/s",
                " 146 KiB/s, ",
                "mean 146 KiB/s",
                "peak 146 KiB/s",
                "15 000",
                " pairs, by rate ",
                "q quits, printing the totals   s sorts   l shows links   p pauses",
                if width < 100 { "18 → node1" } else { "one column is 1 s" },
            ] {
                assert!(text.contains(expected), "{width} x {height}: {expected}: {text}");
            }
        }
    }
}

/// The text of a screen.
fn screen_text(progress: &LiveProgress, view: ScreenView, (width, height): (u16, u16)) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, progress, ("sink.pcap", "paused"), SECOND, view)).unwrap();
    terminal.backend().buffer().content().iter().map(ratatui::buffer::Cell::symbol).collect()
}

#[test]
fn the_table_has_the_rows_and_the_order_of_the_view() {
    let mut progress = LiveProgress::default();
    progress.update(live(10_000_000_000, [1_000_000, 500_000]), SECOND);
    for (order, name) in [
        (LiveOrder::Rate, "rate"),
        (LiveOrder::Wire, "bytes on the wire"),
        (LiveOrder::Packets, "packets"),
        (LiveOrder::Retransmitted, "retransmitted packets"),
    ] {
        let text = screen_text(&progress, ScreenView { rows: LiveRows::Links, order, color: false }, (80, 24));
        for expected in [&format!(" links, by {name} "), "port, direction", "17 sent", "18 received", "l shows pairs"] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(text.find("17 sent") < text.find("18 sent"), "{text}");
    }
    // Of four links, two have room.
    let text = screen_text(&progress, ScreenView { rows: LiveRows::Links, ..ScreenView::default() }, (80, 15));
    assert!(text.contains(" 2 of 4 links, by rate "), "{text}");
}
