//! Tests of the texts of the figures, read back from the SVG.

mod drawn;
mod latency;

use super::series::Series;
use super::*;
use crate::analysis::GroupBy;
use crate::analysis::Label;
use crate::analysis::fixture;
use crate::analysis::matrix::{MatrixCell, Selection};
use crate::analysis::timeline::TimelineBin;
use crate::model::profile::{
    ConnectionRow, CoverageState, PairCoverage, RetransmissionSums, SizeRow, TimelineRow, Traffic,
};
use crate::model::{Profile, SizeCategory, SizeClass, SizeSums, TrafficKind};
use ibscope_parsers::Qpn;
use std::collections::BTreeMap;
use std::sync::Arc;

fn endpoint(lid: u16, name: Option<&str>) -> Label {
    Label::Endpoint(lid.to_string().parse().unwrap(), name.map(str::to_owned))
}

fn bytes(mpi_bytes: u64) -> MatrixCell {
    MatrixCell {
        messages: 1,
        mpi_bytes: Some(mpi_bytes),
        payload_bytes: mpi_bytes,
        wire_bytes: mpi_bytes,
        packets: 1,
        ..MatrixCell::default()
    }
}

fn matrix(labels: Vec<Label>, cells: &[((u32, u32), MatrixCell)]) -> Matrix {
    let cells: BTreeMap<_, _> = cells.iter().copied().collect();
    Matrix {
        by: GroupBy::Rank,
        selection: Selection::P2p,
        labels,
        cells,
        jobs: Arc::default(),
        nodes: Arc::default(),
        estimators: None,
        insides: Vec::new(),
        sampled: None,
        is_partial: false,
    }
}

fn matrix_svg(matrix: &Matrix, unit: TrafficUnit) -> Result<String, RenderError> {
    super::matrix(matrix, unit, None)?.svg()
}

fn timeline_svg(timeline: &Timeline) -> Result<String, RenderError> {
    super::timeline(timeline, None)?.svg()
}

fn rates_svg(rates: &Rates) -> Result<String, RenderError> {
    super::rates(rates, None)?.svg()
}

fn ranks(count: u32) -> Vec<Label> {
    (0..count).map(Label::only).collect()
}

/// Position and content of all texts, unescaped.
fn texts(svg: &str) -> Vec<(i32, i32, String)> {
    let attribute = |tag: &str, name: &str| {
        let value = tag.split(&format!(" {name}=\"")).nth(1).unwrap().split('"').next().unwrap();
        value.parse::<i32>().unwrap()
    };
    let texts = svg.split("<text").skip(1).map(|text| text.split("</text>").next().unwrap().split_once('>').unwrap());
    texts.map(|(tag, text)| (attribute(tag, "x"), attribute(tag, "y"), text.trim().to_owned())).collect()
}

fn has_text(svg: &str, wanted: &str) -> bool {
    texts(svg).iter().any(|(_, _, text)| text == wanted)
}

fn bin(time_ns: i64, src: u32, wire_bytes: u64, messages: u64) -> TimelineBin {
    let cell = MatrixCell { messages, wire_bytes, packets: 1, ..MatrixCell::default() };
    TimelineBin { time_ns, src: Label::only(src), dst: None, cell, estimators: None }
}

fn timeline(bin_ns: i64, bins: Vec<TimelineBin>) -> Timeline {
    Timeline {
        by: GroupBy::Rank,
        selection: Selection::All,
        bin_ns,
        origin_ns: bins.first().map_or(0, |bin| bin.time_ns),
        captured_until_ns: None,
        sampled: None,
        bins,
    }
}

#[test]
fn a_cell_shows_its_value_in_its_row_and_column() {
    // 1.5 MiB from 0 to 1; 7 KiB from 1 to 0; 3 MiB / 7 KiB = 438.9, so the scale is logarithmic
    // from 7 KiB.
    let matrix = matrix(ranks(2), &[((0, 1), bytes(3 << 19)), ((1, 0), bytes(7 << 10)), ((1, 1), bytes(3 << 20))]);
    let svg = matrix_svg(&matrix, TrafficUnit::MpiBytes).unwrap();
    let texts = texts(&svg);
    let at = |wanted: &str| texts.iter().find(|(_, _, text)| text == wanted).map(|&(x, y, _)| (x, y)).unwrap();
    let (right, upper) = at("1.5 MiB");
    let (left, lower) = at("7 KiB");
    assert!(left < right && upper < lower);
    assert_eq!(at("3 MiB"), (right, lower));
    assert!(has_text(&svg, "sender (row)") && has_text(&svg, "receiver"));
    assert!(has_text(&svg, "MPI bytes (point-to-point) by rank"));
    assert!(has_text(&svg, "MPI bytes (log scale)"));
}

#[test]
fn nothing_to_draw() {
    let empty = matrix(vec![], &[]);
    assert!(matches!(matrix_svg(&empty, TrafficUnit::Packets), Err(RenderError::Empty)));
    assert!(matches!(super::matrix(&empty, TrafficUnit::Packets, None), Err(RenderError::Empty)));
    // There are packets, but no MPI bytes.
    let silent = matrix(ranks(1), &[((0, 0), MatrixCell { packets: 3, ..MatrixCell::default() })]);
    assert!(matches!(matrix_svg(&silent, TrafficUnit::MpiBytes), Err(RenderError::NoneOfUnit { unit: "MPI bytes" })));
    assert!(matrix_svg(&silent, TrafficUnit::Packets).is_ok());
    assert!(matches!(timeline_svg(&timeline(1, vec![])), Err(RenderError::Empty)));
    assert!(matches!(super::timeline(&timeline(1, vec![]), None), Err(RenderError::Empty)));
}

#[test]
fn names_cannot_break_out_of_the_svg() {
    let names = ["<script>a()", "\"/><a&b>'", "a\u{1}\u{fffe}b"];
    let labels: Vec<Label> = names.iter().zip(1..).map(|(name, lid)| endpoint(lid, Some(name))).collect();
    let mut matrix = matrix(labels.clone(), &[((0, 1), bytes(1)), ((1, 2), bytes(1))]);
    matrix.by = GroupBy::Endpoint;
    let bins = labels.iter().map(|src| TimelineBin { src: src.clone(), ..bin(0, 0, 1, 1) }).collect();
    for svg in [matrix_svg(&matrix, TrafficUnit::WireBytes).unwrap(), timeline_svg(&timeline(1, bins)).unwrap()] {
        assert!(svg.contains("&lt;script&gt;a()"));
        assert!(svg.contains("&quot;/&gt;&lt;a&amp;b&gt;&apos;"));
        assert!(svg.contains("a??b"));
        assert!(!svg.contains("<script") && !svg.contains("<a&"));
        // Every tag is one that the backend opens.
        let tags =
            svg.split('<').skip(1).map(|tag| tag.trim_start_matches('/').split([' ', '>', '\n']).next().unwrap());
        for tag in tags {
            assert!(["svg", "rect", "polyline", "polygon", "line", "text"].contains(&tag), "{tag}");
        }
    }
}

#[test]
fn long_names_are_shortened() {
    let labels = vec![endpoint(1, Some("a-very-long-name-of-a-host-0001")), endpoint(2, None)];
    let svg = matrix_svg(&matrix(labels, &[((0, 1), bytes(1))]), TrafficUnit::MpiBytes).unwrap();
    assert!(has_text(&svg, "a-ve…host-0001"));
}

#[test]
fn many_labels_are_combined_in_blocks_and_thinned() {
    // 1200 labels: 3 per cell, 400 cells per row. The largest cell shows the largest of the first 3 x 3
    // labels.
    let cells: Vec<_> = (0..3).flat_map(|row| (0..3).map(move |column| ((row, column), bytes(9 << 20)))).collect();
    let svg = matrix_svg(&matrix(ranks(1200), &cells), TrafficUnit::MpiBytes).unwrap();
    assert!(has_text(&svg, "each cell shows the largest of 3 × 3 ranks"));
    // 9 MiB / 6 = 1.5 MiB, so ticks are 2 MiB apart and the last is 8 MiB.
    assert!(has_text(&svg, "8 MiB") && !has_text(&svg, "10 MiB"));
    // Labels at the left do not overlap: they are at least their height apart.
    let texts = texts(&svg);
    let x = texts.iter().filter(|(_, _, text)| text == "0").map(|&(x, _, _)| x).min().unwrap();
    let heights: Vec<i32> = texts.iter().filter(|text| text.0 == x).map(|&(_, y, _)| y).collect();
    assert!(heights.len() >= 5);
    assert!(heights.windows(2).all(|pair| pair[1] - pair[0] >= canvas::TICK));
}

/// Cells of two ranks on one node are hatched and labelled; others without traffic are not.
#[test]
fn cells_that_are_not_on_this_wire_are_hatched() {
    let mut profile = fixture::two_jobs();
    profile.keep_job(1).unwrap();
    let svg = |profile: &Profile| {
        let matrix = crate::analysis::matrix::matrix(profile, GroupBy::Rank, Selection::P2p);
        matrix_svg(&matrix, TrafficUnit::Packets).unwrap()
    };
    let hidden = |svg: &str| svg.matches("fill=\"#ACACAC\"").count();
    let separate = svg(&profile);
    assert_eq!((hidden(&separate), has_text(&separate, "this wire")), (0, false));
    // Rank 2 shares LID 9 with rank 0: two cells, and one in the legend.
    profile.ranks.extend([fixture::rank(1, 2, 9, Some(30)), fixture::rank(1, 3, 12, Some(31))]);
    profile.connections.push(fixture::connection(Some(1), (9, 30), (12, 31), 1));
    let shared = svg(&profile);
    assert_eq!((hidden(&shared), has_text(&shared, "this wire")), (3, true));
}

/// In a capture of some ports, all cells without packets are hatched except for the diagonal.
#[test]
fn pairs_that_the_captures_may_not_show_are_hatched() {
    let whole = matrix(ranks(3), &[((0, 1), bytes(5)), ((1, 0), bytes(7))]);
    let partial = Matrix { is_partial: true, ..whole.clone() };
    let svg = |matrix: &Matrix| matrix_svg(matrix, TrafficUnit::MpiBytes).unwrap();
    let hatched = |svg: &str| svg.matches("fill=\"#ACACAC\"").count();
    assert_eq!((hatched(&svg(&whole)), has_text(&svg(&whole), "this wire")), (0, false));
    // The background and the legend.
    assert_eq!((hatched(&svg(&partial)), has_text(&svg(&partial), "this wire")), (2, true));
    // The background of cells without traffic; the diagonal; the legend.
    let none = |svg: &str| svg.matches("fill=\"#ECECEA\"").count();
    assert_eq!((none(&svg(&whole)), none(&svg(&partial))), (2, 4));
}

/// Pairs whose numbers are lower bounds have a corner, unless all pairs are alike.
#[test]
fn incomplete_pairs_have_a_corner() {
    let of = |state: CoverageState| {
        let mut cell = bytes(5);
        cell.coverage.state = state;
        cell
    };
    let svg = |states: [CoverageState; 2]| {
        let cells = [((0, 1), of(states[0])), ((1, 0), of(states[1]))];
        matrix_svg(&matrix(ranks(2), &cells), TrafficUnit::MpiBytes).unwrap()
    };
    let corners = |svg: &str| svg.matches("<polygon").count();
    let (complete, incomplete) = (CoverageState::Complete, CoverageState::Incomplete);
    let [whole, mixed, incomplete] = [[complete; 2], [complete, incomplete], [incomplete; 2]].map(svg);
    assert_eq!([&whole, &mixed, &incomplete].map(|svg| corners(svg)), [0, 1, 0]);
    assert!(has_text(&mixed, "a corner marks pairs with missing packets, or whose coverage is unknown"));
    assert!(texts(&incomplete).iter().any(|(_, _, text)| text.starts_with("coverage of all pairs is incomplete")));
}

/// Two runs with the same `--vmax` have the same ticks and colors, whatever their values.
#[test]
fn runs_can_share_a_scale() {
    let svg = |largest: u64| {
        let matrix = matrix(ranks(2), &[((0, 1), bytes(largest)), ((1, 0), bytes(3 << 20))]);
        super::matrix(&matrix, TrafficUnit::MpiBytes, Some(6 << 20)).unwrap().svg().unwrap()
    };
    let [small, large] = [svg(1 << 10), svg(9 << 20)];
    // 3 of 6 MiB: the color of the middle, whether other values are 1 KiB or 9 MiB.
    let (red, green, blue) = crate::render::scale::shade((0.5_f64 * 127.0).round() / 127.0);
    let middle = format!("fill=\"#{red:02X}{green:02X}{blue:02X}\"");
    // A cell and a step of the color bar.
    assert_eq!([&small, &large].map(|svg| svg.matches(&middle).count()), [2, 2]);
    assert!([&small, &large].iter().all(|svg| has_text(svg, "6 MiB") && !has_text(svg, "8 MiB")));
    let beyond = "1 cell above the scale, in the color of its end";
    assert_eq!([&small, &large].map(|svg| has_text(svg, beyond)), [false, true]);
}

/// The axis ends at the chosen rate, and the bins above it are counted and marked at the upper edge.
#[test]
fn axes_can_end_at_a_chosen_value() {
    let rates = rates();
    let svg = |most: u64| super::rates(&rates, Some(most)).unwrap().svg().unwrap();
    let (low, high) = (svg(1 << 20), svg(1 << 30));
    assert!(has_text(&low, "wire rate, MiB/s") && has_text(&high, "wire rate, GiB/s"));
    let is_counted = |svg: &str| texts(svg).iter().any(|(_, _, text)| text.ends_with("above the scale"));
    assert!(is_counted(&low) && !is_counted(&high));
    // Frames and ticks are black too, but no rectangles.
    let marks = |svg: &str| {
        let rects = svg.split("<rect").skip(1).filter_map(|rest| rest.split("/>").next());
        rects.filter(|rect| rect.contains("fill=\"#000000\"")).count()
    };
    assert!(marks(&low) > 0 && marks(&high) == 0);
}

/// The line above a figure moves all of it down, and its own title stays.
#[test]
fn a_heading_is_above_the_figure() {
    let matrix = matrix(ranks(2), &[((0, 1), bytes(1))]);
    let svg = |heading: Option<&str>| {
        let drawing = super::matrix(&matrix, TrafficUnit::MpiBytes, None).unwrap();
        drawing.headed(heading.map(str::to_owned)).svg().unwrap()
    };
    let (plain, headed) = (texts(&svg(None)), texts(&svg(Some("run <1>"))));
    assert_eq!(headed[0].2, "run &lt;1&gt;");
    let down = headed[1].1 - plain[0].1;
    assert!(down > 0);
    let moved: Vec<_> = plain.into_iter().map(|(x, y, text)| (x, y + down, text)).collect();
    assert_eq!(headed[1..], moved);
}

#[test]
fn numbers_in_cells_fit_or_are_left_out() {
    for count in [1, 2, 5, 10] {
        // Values have at most four digits: 1000 to 1023 KiB.
        let cells: Vec<_> = (0..count).map(|rank| ((rank, rank), bytes(1001 << 10))).collect();
        let svg = matrix_svg(&matrix(ranks(count), &cells), TrafficUnit::MpiBytes).unwrap();
        assert!(has_text(&svg, "1001 KiB") || (has_text(&svg, "1001") && has_text(&svg, "KiB")), "{count}");
    }
    let svg = matrix_svg(&matrix(ranks(11), &[((0, 0), bytes(1001 << 10))]), TrafficUnit::MpiBytes).unwrap();
    assert!(!has_text(&svg, "1001 KiB") && !has_text(&svg, "1001"));
}

#[test]
fn bins_without_traffic_are_zero() {
    // Bins of 0.5 s, the third and fourth are missing: 10 B in half a second are 20 B/s.
    let half = 500_000_000;
    let bins = vec![bin(2 * half, 1, 10, 1), bin(3 * half, 2, 30, 2), bin(6 * half, 2, 50, 3)];
    let series = Series::traffic(&timeline(half, bins)).unwrap();
    assert!((series.bin_s - 0.5).abs() < 1e-12 && (series.span_s - 2.5).abs() < 1e-12);
    // Rank 2 sent more.
    let expected = [("2", vec![0.0, 60.0, 0.0, 0.0, 100.0]), ("1", vec![20.0, 0.0, 0.0, 0.0, 0.0])];
    assert_eq!(series.by_sender, expected.map(|(name, rates)| (name.to_owned(), rates)));
    assert_eq!(series.total, [2.0, 4.0, 0.0, 0.0, 6.0]);
    assert_eq!(series.stacked().last().unwrap(), &[20.0, 60.0, 0.0, 0.0, 100.0]);
}

#[test]
fn many_bins_are_merged() {
    // 1501 bins of 1 s with 3 B each: 3 bins per sum, 501 sums, the last of a single bin. The rate
    // is the same everywhere.
    let second = 1_000_000_000;
    let series = Series::traffic(&timeline(second, (0..1501).map(|n| bin(n * second, 0, 3, 1)).collect())).unwrap();
    assert_eq!(series.by_sender, [("0".to_owned(), vec![3.0; 501])]);
    assert_eq!(series.total, [1.0; 501]);
    // Two bins of 1 ns, 10^9 s apart: the time between them needs no memory.
    let far = Series::traffic(&timeline(1, vec![bin(0, 0, 1, 1), bin(second * second, 0, 1, 1)])).unwrap();
    assert!(far.total.len() <= 750);
}

#[test]
fn the_least_busy_senders_are_combined_as_others() {
    // Senders 0 to 9 with 1 to 10 bytes: 9 to 3 are shown separately; 2, 1 and 0 are combined as
    // others with 3 + 2 + 1 bytes.
    let bins = (0..10).map(|src| bin(0, src, u64::from(src) + 1, 0)).collect();
    let timeline = timeline(1_000_000_000, bins);
    let series = Series::traffic(&timeline).unwrap();
    let names: Vec<&str> = series.by_sender.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["9", "8", "7", "6", "5", "4", "3", "3 others"]);
    assert_eq!(series.by_sender.last().unwrap().1, [6.0]);
    assert!(has_text(&timeline_svg(&timeline).unwrap(), "3 others"));
}

#[test]
fn pngs_have_the_proportions_of_the_svgs() {
    let matrix = matrix(ranks(3), &[((0, 1), bytes(5))]);
    let timeline = timeline(1000, vec![bin(0, 0, 1, 1)]);
    let pairs = [
        (
            matrix_svg(&matrix, TrafficUnit::MpiBytes).unwrap(),
            super::matrix(&matrix, TrafficUnit::MpiBytes, None).unwrap().png().unwrap(),
        ),
        (timeline_svg(&timeline).unwrap(), super::timeline(&timeline, None).unwrap().png().unwrap()),
    ];
    for (svg, png) in pairs {
        assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
        // Width and height follow the length and the name of the first chunk.
        let [width, height] = [16, 20].map(|at| u32::from_be_bytes(png[at..at + 4].try_into().unwrap()));
        assert!(svg.contains(&format!("viewBox=\"0 0 {width} {height}\"")));
    }
}

/// One connection in twenty bins of 10 ms: 10^6 bytes in the sixth, and one byte in the first and
/// the last. One message size and two packet sizes.
fn rates() -> Rates {
    let end = |lid: u16| lid.to_string().parse().unwrap();
    let traffic = |wire_bytes| Traffic { packets: 1, wire_bytes, ..Traffic::default() };
    let row = |bin: i64, bytes| TimelineRow {
        time_ns: bin * 10_000_000,
        connection: 0,
        traffic: traffic(bytes),
        ..TimelineRow::default()
    };
    let size = |of, count, bytes: u64| SizeRow {
        connection: 0,
        category: of,
        size: SizeClass::of(bytes),
        sums: SizeSums { count, bytes: count * bytes, smallest_bytes: bytes, largest_bytes: bytes },
    };
    let profile = Profile {
        connections: vec![ConnectionRow {
            src: end(1),
            dst: end(2),
            kind: TrafficKind::Data,
            service: 0,
            dest_qp: Qpn::new(9),
            src_qp: None,
            src_qp_evidence: None,
            first_time_ns: 0,
            last_time_ns: 199_000_000,
            traffic: traffic(1_000_002),
            retransmissions: RetransmissionSums::default(),
            stack: None,
            job: None,
            class: crate::model::ConnectionClass::default(),
            one_sided: None,
            coverage: PairCoverage::default(),
            sampled: None,
            paths: smallvec::SmallVec::default(),
            is_at_both_ports: None,
        }],
        timeline: vec![row(0, 1), row(5, 1_000_000), row(19, 1)],
        sizes: [
            size(SizeCategory::Send, 4, 65_536),
            size(SizeCategory::Request, 3, 4096),
            size(SizeCategory::Acknowledge, 1, 64),
        ]
        .into_iter()
        .collect(),
        bin_ns: 10_000_000,
        ..Profile::default()
    };
    crate::analysis::rates::rates(&profile, None, None, 50_000_000).unwrap()
}

#[test]
fn rates_show_their_peak_and_the_sizes() {
    let svg = rates_svg(&rates()).unwrap();
    // The peak is 10^6 bytes in 50 ms: 2 * 10^7 / 2^20 = 19.07 MiB/s. The bin itself has them in
    // 10 ms: 95.4 MiB/s, so the axis has a tick at 80 and none at 100.
    assert!(has_text(&svg, "peak over 50 ms: 19.1 MiB/s"));
    assert!(has_text(&svg, "wire rate, MiB/s") && has_text(&svg, "80"));
    assert!(has_text(&svg, "of messages") && has_text(&svg, "64 KiB"));
    assert!(has_text(&svg, "of packets") && has_text(&svg, "64 B") && has_text(&svg, "4 KiB"));
    // No text extends beyond the edges: tick labels are centered on their ticks.
    assert!(texts(&svg).iter().all(|(x, _, _)| (0..canvas::WIDTH).contains(x)));
    let png = super::rates(&rates(), None).unwrap().png().unwrap();
    let [width, height] = [16, 20].map(|at| u32::from_be_bytes(png[at..at + 4].try_into().unwrap()));
    assert!(svg.contains(&format!("viewBox=\"0 0 {width} {height}\"")));
}

/// The legend of the upper panel has two entries in one line.
#[test]
fn the_legend_of_rates_is_within_the_picture() {
    let mut rates = rates();
    // The last packet comes before the end of the last bin.
    (rates.captured_until_ns, rates.window_ns) = (rates.span_ns.0, 125_000_000);
    let svg = rates_svg(&rates).unwrap();
    assert!(texts(&svg).iter().any(|(_, _, text)| text.starts_with("peak over 125 ms: ")));
    let (x, _, text) = texts(&svg).into_iter().find(|(_, _, text)| text == axes::EDGE_TEXT).unwrap();
    let right = x + canvas::width(&text, canvas::TICK).unwrap();
    assert!(right <= canvas::WIDTH - canvas::MARGIN, "{text} ends at {right}");
}

#[test]
fn rates_without_sizes_are_one_panel() {
    let mut rates = rates();
    let height =
        |svg: &str| svg.split("viewBox=\"0 0 1800 ").nth(1).unwrap().split('"').next().unwrap().parse::<u32>().unwrap();
    let whole = height(&rates_svg(&rates).unwrap());
    rates.total.sizes.clear();
    let svg = rates_svg(&rates).unwrap();
    assert!(height(&svg) < whole / 2 && !svg.contains("share, %"));
    rates.span_ns = (0, 0);
    assert!(matches!(rates_svg(&rates), Err(RenderError::Empty)));
}
