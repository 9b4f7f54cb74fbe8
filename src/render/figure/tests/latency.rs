//! Tests of the texts of the latency figures and the retransmission figure.

use super::{has_text, texts};
use crate::analysis::health::{HealthBin, HealthSeries, HealthSums, PauseTimes};
use crate::analysis::latency::{BinKey, CellKey, LatencyKey, LatencySeries, Surface};
use crate::analysis::{GroupBy, Label};
use crate::model::histogram::coarse_bucket;
use crate::model::{BinCongestion, Histogram, Recorder};
use crate::render::RenderError;
use crate::render::figure::{self, Drawing};
use crate::render::latency::Subject;
use proptest::prelude::*;
use std::collections::BTreeMap;

const BIN_NS: i64 = 10_000_000;

fn of(values: impl IntoIterator<Item = (u64, usize)>) -> Histogram {
    let mut recorder = Recorder::default();
    values.into_iter().for_each(|(value, count)| (0..count).for_each(|_| recorder.record(value)));
    recorder.finish()
}

fn coarse(value: u64) -> Histogram {
    Histogram::of_coarse(&[(coarse_bucket(value), 3)].into())
}

fn key(verb: &'static str, from_bytes: u64) -> LatencyKey {
    LatencyKey { interval: "acknowledged", verb, from_bytes: Some(from_bytes), pair: None }
}

fn subject() -> Subject {
    Subject { interval: "acknowledged", verbs: vec!["SEND", "WRITE"] }
}

fn svg(drawing: Result<Drawing, RenderError>) -> String {
    drawing.unwrap().svg().unwrap()
}

#[test]
fn a_histogram_shows_its_median_its_percentiles_and_its_tail() {
    // 93 samples are 100 us and 7 are 40 ms: 90 % are within 100 us, 99 % are not.
    let latencies = [(key("SEND", 64), of([(100_000, 60), (40_000_000, 7)])), (key("WRITE", 0), of([(100_000, 33)]))];
    let svg = svg(figure::latency_histogram(&subject(), &latencies.into()));
    for text in [
        "Request to acknowledgement (SEND, WRITE)",
        "100 samples, 90 % within 100 µs, 99 % within 40 ms, maximum 40 ms",
        "median 100 µs",
        "time, logarithmic",
        "samples",
        "100 µs",
        "1 ms",
        "10 ms",
    ] {
        assert!(has_text(&svg, text), "{text}: {:?}", texts(&svg));
    }
    // Both bars: that of the tail is the last one.
    assert_eq!(svg.matches("fill=\"#0072B2\"").count(), 2);
}

#[test]
fn sizes_have_a_box_each() {
    let latencies: BTreeMap<LatencyKey, Histogram> =
        [(key("SEND", 64), of([(10_000, 1), (20_000, 8), (30_000, 1)])), (key("SEND", 1024), of([(900_000, 10)]))]
            .into();
    let svg = svg(figure::latency_sizes(&subject(), &latencies, None));
    for text in ["64 B", "2 KiB", "10 µs", "1 ms", "median", "10 to 90 % of the samples", "size of the message", "time"]
    {
        assert!(has_text(&svg, text), "{text}: {:?}", texts(&svg));
    }
    // The light blue of two boxes and of the legend entry.
    assert_eq!(svg.matches("fill=\"#B2D5E8\"").count(), 3);
}

fn surface(cells: &[((u64, u64), u64)]) -> Surface {
    let cell = |&((from_bytes, from_rate), ns): &((u64, u64), u64)| {
        (CellKey { interval: "acknowledged", pair: None, from_bytes, from_rate }, coarse(ns))
    };
    Surface { bin_ns: BIN_NS, cells: cells.iter().map(cell).collect() }
}

#[test]
fn a_surface_shows_its_medians_in_their_cells() {
    // The buckets of 12 and 1000: 12 is exact; 960 to 1023 has the middle 991.
    let svg = svg(figure::latency_surface(&subject(), &surface(&[((0, 256), 12), ((1, 0), 1000)]), None));
    let texts = texts(&svg);
    let at = |wanted: &str| texts.iter().find(|(_, _, text)| text == wanted).map(|&(x, y, _)| (x, y)).unwrap();
    let (small, large) = (at("12 ns"), at("991 ns"));
    // The larger size is further to the right, the higher rate further up.
    assert!(small.0 < large.0 && small.1 < large.1);
    for text in ["size of the message", "messages/s of a connection", "median (log scale)", "10 ns", "1 µs", "512"] {
        assert!(has_text(&svg, text), "{text}: {texts:?}");
    }
    assert_eq!(svg.matches("<text").count(), texts.len());
}

fn over_time(bins: &[(i64, Histogram)]) -> LatencySeries {
    let bin = |(bin, times): &(i64, Histogram)| {
        (BinKey { interval: "acknowledged", pair: None, time_ns: bin * BIN_NS }, times.clone())
    };
    let origin_ns = bins.first().map_or(0, |(bin, _)| bin * BIN_NS);
    LatencySeries { bin_ns: BIN_NS, origin_ns, bins: bins.iter().map(bin).collect() }
}

#[test]
fn percentiles_over_time_leave_gaps() {
    // Bins 5, 6 and 9 are two runs: two lines each for the median and for 99 %, and three boxes
    // besides the one of the legend.
    let svg = svg(figure::latency_over_time(
        &subject(),
        &over_time(&[(5, coarse(1000)), (6, coarse(50_000)), (9, coarse(2000))]),
        None,
    ));
    for text in
        ["median", "10 to 90 %", "99 %", "time from the first packet in ms (bins of 10 ms)", "1 µs", "100 µs", "0"]
    {
        assert!(has_text(&svg, text), "{text}: {:?}", texts(&svg));
    }
    assert_eq!(svg.matches("fill=\"#B2D5E8\"").count(), 4);
    assert_eq!(svg.split("<polyline").skip(1).filter(|line| line.contains("#D55E00")).count(), 2);
}

#[test]
fn many_bins_of_times_are_merged() {
    // 601 bins: eleven per sum, 55 sums.
    let bins: Vec<_> = (0..601).map(|bin| (bin, coarse(1000))).collect();
    let svg = svg(figure::latency_over_time(&subject(), &over_time(&bins), None));
    assert!(has_text(&svg, "time from the first packet in s (bins of 110 ms)"));
    assert_eq!(svg.matches("fill=\"#B2D5E8\"").count(), 55 + 1);
}

fn retransmissions(bins: &[(i64, u32, u64, u64)]) -> HealthSeries {
    let bin = |&(bin, src, packets, retransmitted_packets): &(i64, u32, u64, u64)| HealthBin {
        time_ns: bin * BIN_NS,
        src: Label::only(src),
        sums: HealthSums { packets, retransmitted_packets, ..HealthSums::default() },
    };
    let bins = bins.iter().map(bin).collect();
    HealthSeries {
        by: GroupBy::Rank,
        bin_ns: BIN_NS,
        origin_ns: 0,
        captured_until_ns: None,
        has_congestion: true,
        bins,
        pauses: PauseTimes::default(),
    }
}

/// ECN marks of two senders in one bin and a notification in the next: a third panel.
#[test]
fn congestion_is_shown_by_kind() {
    let mut found = retransmissions(&[(0, 0, 100, 0), (0, 1, 50, 0), (1, 1, 60, 0)]);
    let counts = [(30, 0), (12, 0), (0, 5)];
    for (bin, (ecn_ce_packets, cnp_packets)) in found.bins.iter_mut().zip(counts) {
        bin.sums.congestion = BinCongestion { ecn_ce_packets, cnp_packets, ..BinCongestion::default() };
    }
    let series = super::Series::congestion(&found).unwrap();
    let expected = [("ECN CE", vec![42.0, 0.0]), ("CNPs", vec![0.0, 5.0])];
    assert_eq!(series.by_sender, expected.map(|(name, counts)| (name.to_owned(), counts)));
    let svg = svg(figure::health(&found));
    for text in ["Congestion and NAKs; no packet was retransmitted", "ECN CE", "CNPs", "packets", "40"] {
        assert!(has_text(&svg, text), "{text}: {:?}", texts(&svg));
    }
}

#[test]
fn retransmissions_are_shown_by_sender() {
    // Bin 2: 30 of 120 packets, a quarter.
    let found = retransmissions(&[(0, 0, 100, 0), (2, 0, 60, 10), (2, 1, 40, 20), (2, 2, 20, 0)]);
    let series = super::Series::retransmissions(&found).unwrap();
    let expected = [("1", vec![0.0, 0.0, 20.0]), ("0", vec![0.0, 0.0, 10.0])];
    assert_eq!(series.by_sender, expected.map(|(name, counts)| (name.to_owned(), counts)));
    assert_eq!(series.total, [0.0, 0.0, 25.0]);
    let svg = svg(figure::health(&found));
    for text in
        ["Retransmitted packets by sending rank, and their share", "retransmitted packets", "share, %", "1", "30", "20"]
    {
        assert!(has_text(&svg, text), "{text}: {:?}", texts(&svg));
    }
}

#[test]
fn a_figure_without_data_is_an_error() {
    let empty = |drawing: Result<Drawing, RenderError>| matches!(drawing, Err(RenderError::EmptyTimes { .. }));
    assert!(empty(figure::latency_histogram(&subject(), &BTreeMap::new())));
    assert!(empty(figure::latency_sizes(&subject(), &BTreeMap::new(), None)));
    assert!(empty(figure::latency_surface(&subject(), &surface(&[]), None)));
    assert!(empty(figure::latency_over_time(&subject(), &over_time(&[]), None)));
    assert!(matches!(figure::health(&retransmissions(&[])), Err(RenderError::Empty)));
}

/// A healthy run has a figure too, whose title states that no packet was retransmitted.
#[test]
fn a_run_without_retransmissions_has_empty_panels() {
    for silent in [retransmissions(&[(0, 0, 100, 0)]), retransmissions(&[(0, 0, 0, 0)])] {
        let svg = figure::health(&silent).unwrap().svg().unwrap();
        for text in ["No packet was retransmitted", "retransmitted packets", "share, %"] {
            assert!(has_text(&svg, text), "{text}: {:?}", texts(&svg));
        }
    }
}

fn any_time() -> impl Strategy<Value = u64> {
    (0u32..65).prop_flat_map(|bits| 0..=u64::MAX.checked_shr(64 - bits).unwrap_or(0))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_times_can_be_drawn(
        times in prop::collection::vec((any_time(), 1usize..4, any_time(), any_time(), any::<i64>()), 1..30),
        bin_ns in 1i64..i64::MAX,
    ) {
        let class = |value: u64| value.checked_ilog2().map_or(0, |power| 1 << power);
        let mut latencies: BTreeMap<LatencyKey, Histogram> = BTreeMap::new();
        let (mut cells, mut bins) = (BTreeMap::new(), BTreeMap::new());
        for (ns, count, bytes, rate, time_ns) in times {
            latencies.entry(key("SEND", class(bytes))).or_default().merge(&of([(ns, count)]));
            let (interval, pair) = ("acknowledged", None);
            let cell = CellKey { interval, pair: None, from_bytes: class(bytes), from_rate: class(rate) };
            cells.insert(cell, coarse(ns));
            let time_ns = time_ns.div_euclid(bin_ns).saturating_mul(bin_ns);
            bins.insert(BinKey { interval, pair, time_ns }, coarse(ns));
        }
        let drawings = [
            figure::latency_histogram(&subject(), &latencies),
            figure::latency_sizes(&subject(), &latencies, None),
            figure::latency_surface(&subject(), &Surface { bin_ns, cells }, None),
            figure::latency_over_time(&subject(), &LatencySeries { bin_ns, origin_ns: 0, bins }, None),
        ];
        for drawing in drawings {
            prop_assert!(!texts(&drawing.unwrap().svg().unwrap()).is_empty());
        }
    }

    #[test]
    fn any_retransmissions_can_be_drawn(
        bins in prop::collection::vec((any::<i64>(), 0u32..12, any::<u32>(), any::<u32>()), 1..30),
        bin_ns in 1i64..i64::MAX,
    ) {
        let row = |(time_ns, src, packets, retransmitted_packets): (i64, u32, u32, u32)| HealthBin {
            time_ns: time_ns.div_euclid(bin_ns).saturating_mul(bin_ns),
            src: Label::only(src),
            sums: HealthSums {
                packets: packets.into(),
                retransmitted_packets: retransmitted_packets.into(),
                congestion: BinCongestion { naks: packets.into(), ..BinCongestion::default() },
                ..HealthSums::default()
            },
        };
        let mut bins: Vec<HealthBin> = bins.into_iter().map(row).collect();
        bins.sort_by_key(|bin| bin.time_ns);
        let all = HealthSeries { by: GroupBy::Endpoint, bin_ns, origin_ns: 0, captured_until_ns: None, has_congestion: true, bins, pauses: PauseTimes::default() };
        prop_assert!(!texts(&figure::health(&all).unwrap().svg().unwrap()).is_empty());
    }
}
