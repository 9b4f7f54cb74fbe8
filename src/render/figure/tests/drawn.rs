//! Tests of positions and colors: measures rectangles and polygons of the SVG by the labeled ticks
//! of the axes, and compares them with the values that were drawn.

use super::{bin, bytes, matrix, matrix_svg, ranks, rates, rates_svg, texts, timeline, timeline_svg};
use crate::analysis::latency::LatencyKey;
use crate::analysis::matrix::TrafficUnit;
use crate::analysis::phases;
use crate::model::profile::{ConnectionRow, PairCoverage, RetransmissionSums, TimelineRow, Traffic};
use crate::model::{Histogram, Profile, Recorder, TrafficKind};
use crate::render::figure;
use crate::render::figure::scale::shade;
use crate::render::latency::Subject;
use ibscope_parsers::Qpn;
use plotters::style::RGBColor;
use std::collections::BTreeMap;

/// A rectangle with its color.
#[derive(Clone, Debug, PartialEq)]
struct Rect {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
    fill: String,
}

fn attribute<'a>(tag: &'a str, name: &str) -> &'a str {
    tag.split(&format!("{name}=\"")).nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default()
}

fn rects(svg: &str, fill: &str) -> Vec<Rect> {
    let rect = |tag: &str| {
        let number = |name: &str| attribute(tag, &format!(" {name}")).parse::<f64>().unwrap();
        let (left, top) = (number("x"), number("y"));
        Rect {
            left,
            top,
            right: left + number("width"),
            bottom: top + number("height"),
            fill: attribute(tag, "fill").to_owned(),
        }
    };
    svg.split("<rect")
        .skip(1)
        .map(|rest| rect(rest.split("/>").next().unwrap()))
        .filter(|rect| rect.fill == fill)
        .collect()
}

/// Points of the lines or polygons with a color.
fn points(svg: &str, tag: &str, color: &str) -> Vec<Vec<(f64, f64)>> {
    let opening = format!("<{tag}");
    let shapes = svg.split(&opening).skip(1).map(|rest| rest.split("/>").next().unwrap());
    let shapes = shapes.filter(|shape| shape.contains(color));
    shapes
        .map(|shape| {
            let numbers = attribute(shape, "points").split_whitespace().map(|point| point.split_once(',').unwrap());
            numbers.map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap())).collect()
        })
        .collect()
}

const GRID: &str = "#DEDEDE";

/// Height and value of each tick of the vertical axis of a panel, from the grid lines and their
/// labels.
fn left_axis(svg: &str, panel: std::ops::Range<f64>) -> Vec<(f64, f64)> {
    let lines = points(svg, "polyline", GRID);
    let mut heights: Vec<(f64, f64)> =
        lines.iter().map(|line| (line[0].1, line[0].0)).filter(|(y, _)| panel.contains(y)).collect();
    heights.sort_by(|a, b| a.0.total_cmp(&b.0));
    heights.dedup();
    let texts = texts(svg);
    let named = |(y, left): &(f64, f64)| {
        let mut near = texts.iter().filter(|(x, at, _)| f64::from(*x) < *left && (f64::from(*at) - y).abs() < 12.0);
        let value = near.find_map(|(_, _, text)| number(text)).expect("a label");
        (*y, value)
    };
    heights.iter().map(named).collect()
}

/// A number with its unit, in nanoseconds where it is a time.
fn number(text: &str) -> Option<f64> {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let factor = match unit {
        "" | "ns" => 1.0,
        "µs" => 1e3,
        "ms" => 1e6,
        _ => return None,
    };
    number.parse::<f64>().ok().map(|number| number * factor)
}

/// The value at a height, interpolated from two ticks of an axis.
fn value_at(axis: &[(f64, f64)], y: f64, is_log: bool) -> f64 {
    let scale = |value: f64| if is_log { value.ln() } else { value };
    let ((y0, v0), (y1, v1)) = (axis[0], *axis.last().unwrap());
    let value = scale(v0) + (y - y0) / (y1 - y0) * (scale(v1) - scale(v0));
    if is_log { value.exp() } else { value }
}

fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

fn near(found: f64, expected: f64, share: f64) {
    assert!((found - expected).abs() <= share * expected.abs().max(1e-9), "{found} is not {expected}");
}

#[test]
fn cells_of_a_matrix_have_the_colors_of_their_values() {
    // Linear from 0 to 127: each value has its own color of the 128.
    let matrix = matrix(ranks(2), &[((0, 1), bytes(127)), ((1, 0), bytes(64)), ((1, 1), bytes(2))]);
    let svg = matrix_svg(&matrix, TrafficUnit::MpiBytes).unwrap();
    let squares = |value: u32| {
        let all = rects(&svg, &hex(shade(f64::from(value) / 127.0)));
        all.into_iter()
            .find(|rect| {
                (rect.right - rect.left - (rect.bottom - rect.top)).abs() < 1.5 && rect.right - rect.left > 200.0
            })
            .unwrap()
    };
    let [most, half, least] = [127, 64, 2].map(squares);
    assert!(most.left > half.left && most.top < half.top, "row 0, column 1; row 1, column 0");
    assert!(least.left > half.left && (least.top - half.top).abs() < 1.5, "row 1, column 1");
}

#[test]
fn the_timeline_has_the_rates_of_its_bins() {
    // Bins of half a second: 10, 30, 0 and 50 B by rank 1 are 20, 60, 0 and 100 B/s; 1, 2, 0 and 3
    // messages are 2, 4, 0 and 6 per second.
    let half = 500_000_000;
    let svg =
        timeline_svg(&timeline(half, vec![bin(0, 1, 10, 1), bin(half, 1, 30, 2), bin(3 * half, 1, 50, 3)])).unwrap();
    let upper = points(&svg, "polygon", "#0072B2").pop().unwrap();
    let lower = points(&svg, "polygon", "#555555").pop().unwrap();
    for (points, expected) in [(upper, [20.0, 60.0, 0.0, 100.0]), (lower, [2.0, 4.0, 0.0, 6.0])] {
        let ends = points.iter().fold((f64::MAX, f64::MIN), |(low, high), (_, y)| (low.min(*y), high.max(*y)));
        // The panel extends above the highest point by 4 % of that point's height.
        let axis = left_axis(&svg, ends.0 - 60.0..ends.1 + 1.0);
        let (left, right) = (points[0].0, points.iter().map(|(x, _)| *x).fold(0.0, f64::max));
        for (bin, expected) in (0_u8..).zip(expected) {
            let x = left + (right - left) * (f64::from(bin) + 0.5) / 4.0;
            // The first and the last point are corners of the panel.
            let along = points.windows(2).find(|two| two[0].0 < x && x < two[1].0).unwrap();
            assert!(
                (value_at(&axis, along[0].1, false) - expected).abs() <= 0.01 * 100.0,
                "{axis:?} {along:?} {expected}"
            );
        }
    }
}

fn of(values: &[(u64, usize)]) -> Histogram {
    let mut recorder = Recorder::default();
    values.iter().for_each(|(value, count)| (0..*count).for_each(|_| recorder.record(*value)));
    recorder.finish()
}

fn subject() -> Subject {
    Subject { interval: "acknowledged", verbs: vec!["SEND"] }
}

fn key(from_bytes: u64) -> LatencyKey {
    LatencyKey { interval: "acknowledged", verb: "SEND", from_bytes: Some(from_bytes), pair: None }
}

#[test]
fn the_height_of_a_bar_is_its_number_of_samples() {
    // The 90th percentile is 110 us, so the axis ends at 500 us: bars of 10 us.
    let counts = [(35_000, 20), (75_000, 50), (110_000, 40)];
    let latencies = [(key(64), of(&counts))].into();
    let svg = figure::latency_histogram(&subject(), &latencies).unwrap().svg().unwrap();
    let bars = rects(&svg, "#0072B2");
    assert_eq!(bars.len(), 3);
    let axis = left_axis(&svg, 0.0..f64::from(figure::canvas::WIDTH));
    for (bar, (_, count)) in bars.iter().zip(counts) {
        near(value_at(&axis, bar.top, false), count as f64, 0.02);
        near(value_at(&axis, bar.bottom, false) + 1.0, 1.0, 0.1);
    }
}

#[test]
fn boxes_go_from_the_10th_to_the_90th_percentile() {
    // Ten samples each: the quantiles are the first, the sixth and the ninth sample in order;
    // powers of two are exact in the histogram.
    let times = [(key(64), [8_192, 16_384, 65_536]), (key(1024), [32_768, 262_144, 524_288])];
    let latencies: BTreeMap<LatencyKey, Histogram> = times
        .iter()
        .map(|(key, [low, middle, high])| (key.clone(), of(&[(*low, 2), (*middle, 5), (*high, 3)])))
        .collect();
    let svg = figure::latency_sizes(&subject(), &latencies, None).unwrap().svg().unwrap();
    let axis = left_axis(&svg, 0.0..f64::from(figure::canvas::WIDTH));
    // The first box belongs to the legend.
    let boxes = &rects(&svg, "#B2D5E8")[1..];
    assert_eq!(boxes.len(), 2);
    for (found, (_, [low, _, high])) in boxes.iter().zip(&times) {
        near(value_at(&axis, found.bottom, true), *low as f64, 0.02);
        near(value_at(&axis, found.top, true), *high as f64, 0.02);
    }
    let medians: Vec<f64> = points(&svg, "polyline", "stroke-width=\"12\"").iter().map(|line| line[0].1).collect();
    for (y, (_, [_, middle, _])) in medians.iter().zip(&times) {
        near(value_at(&axis, *y, true), *middle as f64, 0.02);
    }
    assert_eq!(medians.len(), 2);
}

#[test]
fn shares_of_sizes_are_those_of_the_profile() {
    // Four messages of one size; three packets of 4 KiB and one of 64 B: 75 and 25 % of the
    // packets, 99.5 and 0.5 % of their bytes.
    let svg = rates_svg(&rates()).unwrap();
    let bars = |fill: &str| -> Vec<Rect> {
        rects(&svg, fill)
            .into_iter()
            .filter(|rect| rect.right - rect.left > 45.0 || rect.bottom - rect.top > 45.0)
            .collect()
    };
    let value = |bar: &Rect| {
        let axis = left_axis(&svg, bar.bottom - 400.0..bar.bottom + 1.0);
        value_at(&axis, bar.top, false)
    };
    let counts: Vec<f64> = bars("#0072B2").iter().map(value).collect();
    assert_eq!(counts.len(), 3, "{counts:?}");
    for (found, expected) in counts.iter().zip([100.0, 25.0, 75.0]) {
        near(*found, expected, 0.03);
    }
    let of_bytes: Vec<f64> = bars("#E69F00").iter().map(value).collect();
    near(*of_bytes.first().unwrap(), 100.0, 0.02);
    near(*of_bytes.last().unwrap(), 3.0 * 4096.0 * 100.0 / (3.0 * 4096.0 + 64.0), 0.02);
}

/// Two ports that send in one direction first, then in the other: 1 s each, with a pause of 1 s.
fn two_phases() -> Profile {
    let end = |lid: u16| lid.to_string().parse().unwrap();
    let traffic = |payload_bytes| Traffic {
        packets: 1,
        messages: 1,
        payload_bytes,
        wire_bytes: payload_bytes,
        ..Traffic::default()
    };
    let connection = |src, dst, payload_bytes| ConnectionRow {
        src: end(src),
        dst: end(dst),
        kind: TrafficKind::Data,
        service: 0,
        dest_qp: Qpn::new(9),
        src_qp: None,
        src_qp_evidence: None,
        first_time_ns: 0,
        last_time_ns: 3_000_000_000,
        traffic: traffic(payload_bytes),
        retransmissions: RetransmissionSums::default(),
        stack: None,
        job: None,
        class: crate::model::ConnectionClass::default(),
        one_sided: None,
        coverage: PairCoverage::default(),
        sampled: None,
        paths: smallvec::SmallVec::default(),
        is_at_both_ports: None,
    };
    let row = |bin: i64, connection, bytes| TimelineRow {
        time_ns: bin * 100_000_000,
        connection,
        traffic: traffic(bytes),
        ..TimelineRow::default()
    };
    let first = (0..10).map(|bin| row(bin, 0, 12_700));
    let second = (20..30).map(|bin| row(bin, 1, 6_400));
    Profile {
        connections: vec![connection(1, 2, 127_000), connection(2, 1, 64_000)],
        timeline: first.chain(second).collect(),
        bin_ns: 100_000_000,
        ..Profile::default()
    }
}

#[test]
fn each_phase_has_its_matrix_and_its_time() {
    let found = phases::phases(&two_phases(), &phases::PhaseOptions::default());
    let bounds: Vec<(i64, i64)> = found.phases.iter().map(|phase| (phase.from_ns, phase.to_ns)).collect();
    assert_eq!(bounds, [(0, 1_000_000_000), (2_000_000_000, 3_000_000_000)]);
    let svg = figure::phases(&found).unwrap().svg().unwrap();
    // The strip: a third, a gap of a third, a third.
    let strips: Vec<Rect> = rects(&svg, "#B2D5E8");
    let [first, second] = &strips[..] else { panic!("{strips:?}") };
    let third = (second.right - first.left) / 3.0;
    for (found, expected) in [(first.right - first.left, third), (second.left - first.right, third)] {
        assert!((found - expected).abs() < 1.5, "{strips:?}");
    }
    // 127 000 B from 1 to 2, then 64 000 B back: the colors of 127 and 64 of 127.
    let cell = |value: u32| {
        let all = rects(&svg, &hex(shade(f64::from(value) / 127.0)));
        all.into_iter().find(|rect| rect.right - rect.left > 150.0).unwrap()
    };
    let (there, back) = (cell(127), cell(64));
    assert!(back.left > there.right, "the second heat map is at the right of the first");
    assert!((back.top - there.bottom).abs() < 1.5, "row 0 in the first, row 1 in the second");
    let texts: Vec<String> = texts(&svg).into_iter().map(|(_, _, text)| text).collect();
    for wanted in ["1: 1 s", "2: 1 s", "pair", "sender (row)", "receiver", "Payload bytes by endpoint in each phase"] {
        assert!(texts.iter().any(|text| text == wanted), "{wanted}: {texts:?}");
    }
}
