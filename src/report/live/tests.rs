use super::*;
use crate::model::live::LivePair;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

const SECOND: Duration = Duration::from_secs(1);

/// Sums of two pairs of endpoints, up to a moment of the capture.
fn live(last_ns: i64, [first, second]: [u64; 2]) -> Live {
    let pair = |src: &str, dst: &str, wire_bytes: u64| LivePair {
        src: src.parse().unwrap(),
        dst: dst.parse().unwrap(),
        traffic: Traffic { packets: wire_bytes / 100, wire_bytes, ..Traffic::default() },
        repeats: Repeats::default(),
    };
    let mut live = Live { pairs: vec![pair("17", "18", first), pair("18", "17", second)], ..Live::default() };
    live.coverage.first_time_ns = Some(0);
    live.coverage.last_time_ns = Some(last_ns);
    live.coverage.records = (first + second) / 100;
    live
}

fn assert_close(found: f64, expected: f64) {
    assert!((found - expected).abs() <= expected * 1e-12, "{found}, not {expected}");
}

#[test]
fn rates_are_those_of_the_capture_or_of_its_growth() {
    let mut progress = Progress::default();
    // Ten seconds of a file, read in one.
    progress.look(live(10_000_000_000, [1_000_000, 0]), SECOND);
    assert_close(progress.rate(), 100_000.0);
    // It goes on, and comes as it is made: 1.1 s of it within 1 s are no faster than 1.1 s allow.
    progress.look(live(11_100_000_000, [1_110_000, 0]), SECOND);
    assert_close(progress.rate(), 100_000.0);
    // Nothing comes for two looks, and then what was sent within the last second.
    progress.look(live(11_100_000_000, [1_110_000, 0]), SECOND);
    progress.look(live(11_100_000_000, [1_110_000, 0]), SECOND);
    assert_close(progress.rate(), 0.0);
    progress.look(live(14_000_000_000, [1_110_000, 50_000]), SECOND);
    assert_eq!((progress.rate(), progress.packets_per_s, progress.peak), (50_000.0, 500.0, 100_000.0));
    // 10 s, 1.1 s, two looks without packets and one with some.
    assert_close(progress.mean(), 1_160_000.0 / 14.1);
    let busiest: Vec<String> = progress.busiest(5).into_iter().map(|row| row.pair).collect();
    assert_eq!(busiest, ["18 → 17", "17 → 18"], "by the rate now, not by the sum");
}

#[test]
fn shares_are_rounded_away_from_all_and_nothing() {
    assert_eq!([percent(0, 7), percent(7, 7), percent(0, 0)], ["0 %", "100 %", "0 %"]);
    assert_eq!([percent(1, 1_000_000), percent(999_999, 1_000_000)], ["0.01 %", "99.99 %"]);
}

#[test]
fn the_screen_shows_names_and_numbers_at_any_size() {
    let names = BTreeMap::from([("17".parse().unwrap(), "node1".to_owned())]);
    let mut progress = Progress::new(names);
    progress.look(live(10_000_000_000, [1_000_000, 500_000]), SECOND);
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
                if width < 100 { "rates: all on the wire" } else { "repeats included" },
            ] {
                assert!(text.contains(expected), "{width} x {height}: {expected}: {text}");
            }
        }
    }
}
