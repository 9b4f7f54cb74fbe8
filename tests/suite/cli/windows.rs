//! The options `--from` and `--to`.

use super::{CsvCells, MATRIX_HEADER, add, matrix_cells, profile_of, text, timeline_cells};
use crate::runs::{self, decompressed};
use crate::tools::{ibscope, result, sample, walk};
use std::path::Path;

const MATRIX: [&str; 3] = ["matrix", "--format", "csv"];

fn windowed(path: &Path, window: &[&str]) -> CsvCells {
    matrix_cells(&result(&[&MATRIX, window].concat(), &[path]))
}

fn seconds(ns: i64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

fn rfc3339(ns: i64) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(ns)).expect("time").to_string()
}

/// Packets and wire bytes; the other columns need earlier packets (a retransmission is known by its
/// original).
fn countable(cells: CsvCells) -> Vec<(String, String, Option<u64>, Option<u64>)> {
    cells.into_iter().map(|((src, dst), [.., wire_bytes, packets])| (src, dst, wire_bytes, packets)).collect()
}

/// Times of the records.
fn times_ns(path: &Path) -> Vec<i64> {
    walk(&decompressed(path)).iter().map(|record| record.time_ns).collect()
}

#[test]
fn two_halves_are_the_whole() {
    let roce =
        [sample("ucx-rc-ring2.node1"), runs::named("ompi-rc-mixed-2x2").node(2), runs::named("perf-send-lat").node(1)];
    let sinks = [sample("openib-mixed-4x1"), sample("ucx-ud-ring2")];
    let middle = |times_ns: &[i64]| times_ns[times_ns.len() / 2];
    // In a sink, the two copies of a packet must stay together: the window ends in the longest
    // pause of the middle half.
    let pause = |times_ns: &[i64]| {
        let quarter = times_ns.len() / 4;
        let pairs = times_ns[quarter..3 * quarter].windows(2);
        pairs.max_by_key(|pair| pair[1] - pair[0]).map(|pair| pair[1]).expect("times")
    };
    let cases = roce.iter().map(|path| (path, middle as fn(&[i64]) -> i64));
    for (path, cut) in cases.chain(sinks.iter().map(|path| (path, pause as fn(&[i64]) -> i64))) {
        let place = path.display();
        let times_ns = times_ns(path);
        let cut_ns = cut(&times_ns);
        let (relative, absolute) = (seconds(cut_ns - times_ns[0]), rfc3339(cut_ns));
        let before = windowed(path, &["--to", &relative]);
        let after = windowed(path, &["--from", &relative]);
        assert!(!before.is_empty() && !after.is_empty(), "{place}");
        assert_eq!(windowed(path, &["--to", &absolute]), before, "{place}: {relative} is {absolute}");
        assert_eq!(windowed(path, &["--from", &absolute]), after, "{place}: {relative} is {absolute}");
        let mut sum = before;
        for (pair, cell) in after {
            add(sum.entry(pair).or_insert([None; 5]), &cell);
        }
        assert_eq!(countable(sum), countable(windowed(path, &[])), "{place} cut at {relative}");
    }
}

#[test]
fn windows_count_exactly_the_packets_inside() {
    let path = sample("ucx-rc-ring2.node1");
    let inspect = |window: &[&str]| result(&[&["inspect", "--format", "csv"], window].concat(), &[&path]);
    let all = inspect(&[]);
    let times_ns: Vec<i64> =
        all.lines().skip(1).map(|line| line.split(',').nth(1).expect("time").parse().expect("time")).collect();
    // From one packet, inclusive, to another, exclusive.
    let (from, to) = (times_ns[300], times_ns[900]);
    let inside = inspect(&["--from", &rfc3339(from), "--to", &rfc3339(to)]);
    let kept = |time_ns: &i64| (from..to).contains(time_ns);
    let (header, lines) = all.split_once('\n').expect("header");
    let expected = lines.lines().zip(&times_ns).filter(|(_, time_ns)| kept(time_ns)).map(|(line, _)| line);
    assert!(inside.lines().eq([header].into_iter().chain(expected)));
    let shifted = rfc3339(from).replace('Z', "+00:00");
    assert_eq!(inspect(&["--from", &shifted, "--to", &rfc3339(to)]), inside, "another way to write the zone");
    let nothing = result(&[&MATRIX[..], &["--from", "100000"]].concat(), &[&path]);
    assert_eq!(nothing.trim_end(), MATRIX_HEADER, "an empty window is no error");
}

#[test]
fn windows_of_a_profile_are_whole_bins() {
    const BIN_NS: i64 = 5_000_000;
    let folder = tempfile::tempdir().expect("folder");
    let path = sample("openib-mixed-4x1");
    let times_ns = times_ns(&path);
    let profile = profile_of(folder.path(), &[&path], &["--bin", "5ms"]);
    let timeline = result(&["timeline", "--format", "csv"], &[&profile]);
    let span_ns = times_ns[times_ns.len() - 1] - times_ns[0];
    let (from, to) = (times_ns[0] + span_ns / 3, times_ns[0] + span_ns / 2);
    let aligned = |ns: i64| ns.div_euclid(BIN_NS) * BIN_NS;
    for (from, to, cuts_bins) in [(from, to, true), (aligned(from), aligned(to), false)] {
        let expected = timeline_cells(&timeline, |time_ns| time_ns < to && time_ns + BIN_NS > from);
        assert!(!expected.is_empty());
        let relative = [seconds(from - times_ns[0]), seconds(to - times_ns[0])];
        let absolute = [rfc3339(from), rfc3339(to)];
        for [from, to] in [&relative, &absolute] {
            let window = ["--from", from, "--to", to];
            let of = |command| ibscope([&[command, "--format", "csv"], &window[..], &[text(&profile)]].concat());
            let (matrix, timeline) = (of("matrix"), of("timeline"));
            assert_eq!(timeline_cells(&timeline.stdout, |_| true), expected, "{window:?}");
            assert_eq!(matrix_cells(&matrix.stdout), expected, "{window:?}");
            for ran in [matrix, timeline] {
                assert_eq!(ran.code, 0);
                assert_eq!(ran.stderr.contains("whole bins"), cuts_bins, "{window:?}: {}", ran.stderr);
            }
        }
    }
}
