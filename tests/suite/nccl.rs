//! NCCL's own transport: messages over one queue pair, over several, and over several ports.
//!
//! Recorded runs are compared with the counts of their programs. `model` sends messages like NCCL's
//! sources, in combinations of releases, devices and queue pairs without a recorded run; the
//! expected numbers follow by arithmetic.

pub(crate) mod instances;
mod model;

use crate::runs::decompressed;
use crate::tools::{self, HEADER_BYTES, walk};
use crate::wire::profile;
use ibscope::model::{Interval, Profile};
use ibscope::pipeline::{AnalysisOptions, analyze, merge};
use ibscope::profile::ProfileWriter;
use ibscope_samples::hard::frame::change_packets;
use ibscope_samples::hard::{Recording, combine, partial};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Messages and bytes by sending and receiving node.
type RankCells = BTreeMap<(u32, u32), (u64, u64)>;

const ONE_PORT: [&str; 3] = ["nccl-ring-2x1", "nccl2.18-ring-2x1", "nccl-ring-qps2split-2x1"];
const TWO_PORTS: &str = "nccl2.30-ring-multirail-2x1";

/// The capture of a recorded run at this observation point.
fn recorded(run: &str, place: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("samples/runs2/{run}/{place}.pcap.zst"))
}

/// All recorded runs with the ports of each of their two nodes.
fn runs() -> impl Iterator<Item = (&'static str, [Vec<PathBuf>; 2])> {
    let one = ONE_PORT.into_iter().map(|run| (run, [1, 2].map(|node| vec![recorded(run, &format!("node{node}"))])));
    let ports = |node| [0, 1].map(|rail| recorded(TWO_PORTS, &format!("node{node}.rail{rail}"))).to_vec();
    one.chain([(TWO_PORTS, [1, 2].map(ports))])
}

/// The counts of the program: rank R runs on node R + 1.
fn truth(run: &str) -> RankCells {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("samples/runs2/{run}/wire.csv"));
    let text = std::fs::read_to_string(path).expect("truth");
    let row = |line: &str| {
        let fields: Vec<u64> = line.split(',').map(|field| field.parse().expect("number")).collect();
        ((fields[0] as u32 + 1, fields[1] as u32 + 1), (fields[2], fields[3]))
    };
    text.lines().skip(1).map(row).collect()
}

/// The node of a port of the recorded runs: 10.77.0.N and 10.78.0.N, LID 16 + N and 32 + N.
fn node(endpoint: &str) -> u32 {
    match endpoint.rsplit_once('.') {
        Some((_, node)) => node.parse().expect("node"),
        None => endpoint.parse::<u32>().expect("LID") % 16,
    }
}

/// MPI messages and bytes by node, without pairs that have none.
fn by_node(profile: &Profile, node: impl Fn(&str) -> u32) -> RankCells {
    let mut cells = RankCells::new();
    for row in profile.connections.iter().filter(|row| row.traffic.p2p_messages > 0) {
        let cell: &mut (u64, u64) = cells.entry((node(&row.src.to_string()), node(&row.dst.to_string()))).or_default();
        *cell = (cell.0 + row.traffic.p2p_messages, cell.1 + row.traffic.p2p_mpi_bytes);
    }
    cells
}

/// Asserts that nothing exceeds the truth; returns true if all of it was found.
fn compare(found: &RankCells, truth: &RankCells, case: &str) -> bool {
    for (pair, (messages, bytes)) in found {
        let (most, most_bytes) = truth.get(pair).copied().unwrap_or_default();
        assert!(*messages <= most && *bytes <= most_bytes, "{case}: {pair:?} {messages} {bytes}, truth {truth:?}");
    }
    found == truth
}

/// The data of a program may begin with the bytes of a header of `ob1`.
#[test]
fn data_that_looks_like_a_header_of_an_mpi_library_is_data() {
    for run in ONE_PORT {
        // `MATCH` to `FIN` of `ob1`, in the two places that its headers have them.
        for byte in [0x41, 0x44, 0x47, 0x49] {
            let folder = tempfile::tempdir().expect("folder");
            let change = |node: u32| {
                let recording = Recording::read(&recorded(run, &format!("node{node}"))).expect("recording");
                let changed = change_packets(&recording, |_, frame, data| {
                    if frame.opcode.is_write() && frame.opcode.is_first() {
                        data[frame.payload_at..frame.payload_at + 8].fill(byte);
                        frame.seal(data);
                    }
                });
                let path = folder.path().join(format!("node{node}.pcap"));
                changed.write(&path).expect("written");
                path
            };
            let found = profile(&[1, 2].map(change));
            assert_eq!(by_node(&found, node), truth(run), "{run}, byte {byte:#x}");
        }
    }
}

#[test]
fn every_view_of_a_recorded_run_is_exact() {
    for (run, [one, other]) in runs() {
        let every_port = [one.clone(), other.clone()].concat();
        for captures in [every_port, vec![recorded(run, "sink.ib")], one, other] {
            let profile = profile(&captures);
            assert_eq!(by_node(&profile, node), truth(run), "{captures:?}");
            let coverage = &profile.coverage;
            assert_eq!((coverage.mpi_incomplete, coverage.messages_evicted), (0, 0), "{captures:?}");
        }
    }
}

/// The ports of rail 0 carry the first share of each message, which states its length. The ports of
/// rail 1 carry the rest: alone they show no message, and all are missing.
#[test]
fn one_rail_alone() {
    for node_number in [1, 2] {
        let [first, second] =
            [0, 1].map(|rail| profile(&[recorded(TWO_PORTS, &format!("node{node_number}.rail{rail}"))]));
        assert_eq!(by_node(&first, node), truth(TWO_PORTS));
        assert_eq!(by_node(&second, node), RankCells::new());
        let messages: u64 = truth(TWO_PORTS).values().map(|cell| cell.0).sum();
        assert_eq!((first.coverage.mpi_incomplete, second.coverage.mpi_incomplete), (0, messages));
    }
}

/// Individual messages add up to the sums.
#[test]
fn single_messages_of_recorded_runs() {
    for (run, [one, _]) in runs() {
        for captures in [one, vec![recorded(run, "sink.ib")]] {
            let stream =
                ibscope::pipeline::messages(&captures, &AnalysisOptions::default(), false, &|_| {}).expect("messages");
            let connections = stream.profile().connections.clone();
            let mut found = RankCells::new();
            for row in stream {
                let row = row.expect("row");
                let connection = &connections[row.connection as usize];
                let pair = [connection.src, connection.dst].map(|endpoint| node(&endpoint.to_string()));
                let cell = found.entry((pair[0], pair[1])).or_default();
                *cell = (cell.0 + 1, cell.1 + row.raw.length_bytes.expect("length"));
                assert!(row.raw.complete, "{run}: {row:?}");
            }
            assert_eq!(found, truth(run), "{captures:?}");
        }
    }
}

/// With one capture per node, a message has one time, on whichever queue pairs its shares are.
#[test]
fn messages_over_several_queue_pairs_have_one_time_each() {
    for (run, [one, two]) in runs() {
        let captures: Vec<PathBuf> = one.into_iter().chain(two).collect();
        let profile = profile(&captures);
        let mut samples: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        for row in profile.latencies.iter().filter(|row| row.timing.interval == Interval::MpiMessage) {
            let connection = &profile.connections[row.connection as usize];
            assert!(connection.traffic.p2p_messages > 0, "{run}: {}", connection.dst);
            let pair = [connection.src, connection.dst].map(|endpoint| node(&endpoint.to_string()));
            *samples.entry((pair[0], pair[1])).or_default() += row.histogram.samples();
        }
        let truth = truth(run);
        assert!(!samples.is_empty(), "{run}: no times");
        assert!(samples.iter().all(|(pair, count)| *count <= truth[pair].0), "{run}: {samples:?} {truth:?}");
    }
}

/// Captures that continue in further files.
#[test]
fn rotated_captures() {
    let folder = tempfile::tempdir().expect("folder");
    for (run, _) in runs() {
        for files in [2, 5, 20] {
            let sink = recorded(run, "sink.ib");
            let part = |file: usize| {
                let part = |record: usize, records: usize| record * files / records == file;
                let path = with_records(folder.path(), &sink, part);
                let place = folder.path().join(format!("{file}.pcap"));
                std::fs::rename(path, &place).expect("renamed");
                place
            };
            let parts: Vec<PathBuf> = (0..files).map(part).collect();
            let profile = profile(&parts);
            let is_whole = compare(&by_node(&profile, node), &truth(run), &format!("{run} in {files} files"));
            // A message across the end of a file is incomplete.
            assert!(is_whole || profile.coverage.messages_with_gaps > 0, "{run} in {files} files");
        }
    }
}

/// Parts that are analyzed separately and merged add up to the same.
#[test]
fn merged_parts_of_a_run_over_two_ports() {
    let folder = tempfile::tempdir().expect("folder");
    let ports = [0, 1].map(|rail| recorded(TWO_PORTS, &format!("node1.rail{rail}")));
    let options = AnalysisOptions { keep_parts: true, ..AnalysisOptions::default() };
    let part = |(number, port): (usize, &PathBuf)| {
        let profile = analyze(std::slice::from_ref(port), &options, &|_| {}).expect("profile");
        let place = folder.path().join(format!("{number}.ibp"));
        ProfileWriter::create(&place, &[]).expect("place").finish(&profile).expect("written");
        place
    };
    let parts: Vec<PathBuf> = ports.iter().enumerate().map(part).collect();
    let merged = merge(&parts, &AnalysisOptions::default()).expect("merged");
    assert_eq!(by_node(&merged, node), truth(TWO_PORTS));
    assert_eq!(merged.coverage.mpi_incomplete, 0);
}

/// A copy of a capture with some of its records.
fn with_records(folder: &Path, path: &Path, mut keeps: impl FnMut(usize, usize) -> bool) -> PathBuf {
    let is_packed = path.extension().is_some_and(|extension| extension == "zst");
    let bytes = if is_packed { decompressed(path) } else { std::fs::read(path).expect("capture") };
    let mut kept = bytes[..HEADER_BYTES].to_vec();
    let records = walk(&bytes);
    for (number, record) in records.iter().enumerate() {
        if keeps(number, records.len()) {
            kept.extend(&bytes[record.place.clone()]);
        }
    }
    let copy = folder.join(path.file_name().expect("name")).with_extension("copy");
    std::fs::write(&copy, kept).expect("written");
    copy
}

/// A number that depends on the seed and on the record.
fn noise(seed: u64, record: usize) -> u64 {
    let mixed = (seed << 32 ^ record as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 33
}

/// Captures that start late, end early, or have gaps: nothing exceeds the truth, and missing
/// messages are reported.
#[test]
fn captures_with_gaps_never_exceed_the_truth() {
    let folder = tempfile::tempdir().expect("folder");
    for (run, views) in runs() {
        let truth = truth(run);
        let views = views.into_iter().chain([vec![recorded(run, "sink.ib")]]);
        for (view, captures) in views.enumerate() {
            let check = |case: String, keeps: &dyn Fn(usize, usize) -> bool| {
                let copies: Vec<PathBuf> =
                    captures.iter().map(|path| with_records(folder.path(), path, keeps)).collect();
                let case = format!("{run}, view {view}, {case}");
                let found = by_node(&profile(&copies), node);
                compare(&found, &truth, &case);
                found.values().map(|cell| cell.0).sum::<u64>()
            };
            let all: u64 = truth.values().map(|cell| cell.0).sum();
            for part in 1..8 {
                check(format!("from {part}/8 on"), &|record, records| record * 8 >= part * records);
                check(format!("until {part}/8"), &|record, records| record * 8 < part * records);
            }
            for (one_in, seed) in [(2, 1), (3, 2), (5, 3), (10, 4), (50, 5), (100, 6)] {
                check(format!("1 in {one_in}"), &|record, _| noise(seed, record).is_multiple_of(one_in));
            }
            for (one_in, seed, percent) in [(5, 7, 50), (20, 8, 80), (100, 9, 90)] {
                let case = format!("without 1 in {one_in}");
                let messages = check(case.clone(), &|record, _| !noise(seed, record).is_multiple_of(one_in));
                assert!(messages * 100 >= all * percent, "{run}, view {view}, {case}: {messages} of {all}");
            }
        }
    }
}

/// Writes a changed copy of a capture.
fn written(changed: &Recording, folder: &Path, capture: &Path) -> PathBuf {
    let place = folder.join(capture.file_name().expect("name")).with_extension("changed");
    changed.write(&place).expect("written");
    place
}

/// One node's capture ends inside the headers of each packet, or stops early as well: the other one has all
/// messages, and no length is read from the next record.
#[test]
fn a_truncated_capture_takes_nothing_from_a_whole_one() {
    let folder = tempfile::tempdir().expect("folder");
    for (run, [one, other]) in runs() {
        for (most_bytes, parts) in [(54, 2), (58, 1), (70, 2), (78, 2), (128, 1)] {
            let cut = |path: &PathBuf| {
                let whole = Recording::read(path).expect("capture");
                let start = partial::window(&whole, 0..whole.records.len() * parts / 2);
                written(&partial::truncate(&start, most_bytes), folder.path(), path)
            };
            let whole = || one.iter().cloned();
            let truncated = || other.iter().map(cut);
            for captures in [whole().chain(truncated()).collect(), truncated().chain(whole()).collect::<Vec<_>>()] {
                let found = by_node(&profile(&captures), node);
                assert_eq!(found, truth(run), "{run}, records of {most_bytes} bytes, {parts} of 2 parts");
            }
        }
    }
}

/// Each rail has a sink with a clock of its own.
#[test]
fn sinks_of_two_rails_with_distant_clocks_show_one_job() {
    let folder = tempfile::tempdir().expect("folder");
    for seconds in [2, 50, 1000] {
        let later = |path: PathBuf| {
            let recorded = Recording::read(&path).expect("capture");
            written(&combine::shift(&recorded, seconds * 1_000_000_000), folder.path(), &path)
        };
        let rail = |rail| [1, 2].map(|node| recorded(TWO_PORTS, &format!("node{node}.rail{rail}")));
        let profile = profile(&[rail(0).to_vec(), rail(1).map(later).to_vec()].concat());
        assert_eq!(by_node(&profile, node), truth(TWO_PORTS), "{seconds} s");
        assert_eq!((profile.jobs.len(), profile.coverage.mpi_incomplete), (1, 0), "{seconds} s");
    }
}

/// The data by channel and by rail are those of the program; two rails carry half each.
#[test]
fn channels_and_rails_carry_the_bytes_of_the_program() {
    for (run, _) in runs() {
        let sink = recorded(run, "sink.ib");
        let csv = tools::result(&["collectives", "--view", "channels", "--format", "csv"], &[sink]);
        let header: Vec<&str> = csv.lines().next().expect("header").split(',').collect();
        let column = |name: &str| header.iter().position(|column| *column == name).expect(name);
        let mut sums: BTreeMap<(String, (u32, u32)), (u64, u64)> = BTreeMap::new();
        let mut messages: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        for line in csv.lines().skip(1) {
            let fields: Vec<&str> = line.split(',').collect();
            let number = |name: &str| fields[column(name)].parse::<u64>().expect("number");
            let pair = (number("src") as u32 + 1, number("dst") as u32 + 1);
            let sum = sums.entry((fields[column("path")].to_owned(), pair)).or_default();
            *sum = (sum.0 + 1, sum.1 + number("bytes"));
            let of_mean = fields[column("of_mean")].parse::<f64>();
            let is_known = fields[column("path")] == "rail" || run != TWO_PORTS;
            assert_eq!(of_mean.is_ok(), is_known, "{run}: {line}");
            assert!(of_mean.is_ok_and(|of_mean| (of_mean - 1.0).abs() < 0.1) || !is_known, "{run}: {line}");
            if fields[column("path")] != "rail" {
                *messages.entry(pair).or_default() += number("messages");
            }
        }
        assert_eq!(messages, truth(run).into_iter().map(|(pair, (messages, _))| (pair, messages)).collect(), "{run}");
        let rails = if run == TWO_PORTS { 2 } else { 1 };
        for (pair, (_, bytes)) in truth(run) {
            let (channels, channel_bytes) = sums[&("channel".to_owned(), pair)];
            let unknown_bytes = sums.get(&("no_channel".to_owned(), pair)).map_or(0, |(_, bytes)| *bytes);
            assert_eq!((channels, channel_bytes + unknown_bytes), (1, bytes), "{run}: channels");
            // Over two rails, every second receive is posted through the other port.
            assert_eq!(unknown_bytes > 0, run == TWO_PORTS, "{run}");
            // Beside the data there are the lengths of 8 times two messages that are received
            // together: 4 bytes each, on one queue pair or on both.
            let rail = sums[&("rail".to_owned(), pair)];
            assert_eq!(rail.0, rails, "{run}: rails");
            assert!(
                (bytes..=bytes + 2 * 8 * 2 * 4).contains(&rail.1),
                "{run}: {} B on the rails for {bytes} B",
                rail.1
            );
        }
    }
}
