use super::percent::percent;
use super::*;
use crate::analysis::live::LiveProgress;
use crate::analysis::live::tests::live;
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
        terminal.draw(|frame| draw(frame, &progress, ("sink.pcap", "following"), SECOND, width % 20 == 0)).unwrap();
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
                if width < 100 { "rates: wire bytes" } else { "retransmissions included" },
            ] {
                assert!(text.contains(expected), "{width} x {height}: {expected}: {text}");
            }
        }
    }
}
