//! Clock alignment of several captures: recorded runs with a single clock, in which the times of
//! some files are shifted to clocks of other rates and offsets.

use crate::runs::{self, RecordedRun};
use crate::tools::{ibscope, in_parallel, result};
use ibscope::analysis::GroupBy;
use ibscope::analysis::latency::{LatencyGrouping, latencies};
use ibscope::model::profile::Input;
use ibscope::model::{Clock, Interval, Profile};
use ibscope::pipeline::{self, AnalysisMeasures, AnalysisOptions, ClockOptions};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A clock: its offset at the first record of a file, and its rate from there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockSetting {
    pub(crate) ahead_ns: i64,
    pub(crate) ppm: f64,
    /// Resolution that times are truncated to.
    pub(crate) resolution_ns: i64,
}

impl ClockSetting {
    fn shift_ns(self, since_first_ns: i64) -> i64 {
        self.ahead_ns + (since_first_ns as f64 * self.ppm * 1e-6).round() as i64
    }
}

/// Copies a classic pcap file with shifted times; returns the copy and the original first time.
pub(crate) fn set(file: &Path, clock: ClockSetting, folder: &Path) -> (PathBuf, i64) {
    let mut bytes = runs::decompressed(file);
    // Magic number of files with nanoseconds; others have microseconds.
    let unit_ns: i64 = if bytes[..4] == [0x4D, 0x3C, 0xB2, 0xA1] { 1 } else { 1000 };
    let mut at = 24;
    let mut first_ns = None;
    while at < bytes.len() {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("word"));
        let length = word(at + 8) as usize;
        let time_ns = i64::from(word(at)) * 1_000_000_000 + i64::from(word(at + 4)) * unit_ns;
        let first_ns = *first_ns.get_or_insert(time_ns);
        let set_ns = time_ns + clock.shift_ns(time_ns - first_ns);
        let set_ns = set_ns - set_ns % clock.resolution_ns;
        bytes[at..at + 4].copy_from_slice(&((set_ns / 1_000_000_000) as u32).to_le_bytes());
        bytes[at + 4..at + 8].copy_from_slice(&((set_ns % 1_000_000_000 / unit_ns) as u32).to_le_bytes());
        at += 16 + length;
    }
    let name = file.file_name().expect("name").to_string_lossy().replace(".zst", "");
    let place = folder.join(name);
    std::fs::write(&place, bytes).expect("copy");
    (place, first_ns.expect("a record"))
}

fn without_mpi() -> AnalysisMeasures {
    AnalysisMeasures { mpi: false, ..AnalysisMeasures::default() }
}

fn analyze(paths: &[PathBuf], options: &AnalysisOptions) -> Profile {
    pipeline::analyze(paths, options, &|_| {}).expect("profile")
}

/// The correction of an input's time at a time of its own clock, according to the profile.
fn set_back_ns(input: &Input, own_ns: i64) -> f64 {
    let clock = input.clock.as_ref().expect("a clock");
    clock.offset_ns as f64 + (own_ns - clock.at_ns) as f64 * clock.drift_ppm * 1e-6
}

/// Times of the first and the last InfiniBand packet in a file.
fn span_ns(file: &Path) -> (i64, i64) {
    let times: Vec<i64> = runs::timed_records(file)
        .iter()
        .filter(|(_, frame)| runs::is_roce(frame))
        .map(|(time_ns, _)| *time_ns as i64)
        .collect();
    (*times.iter().min().expect("a packet"), *times.iter().max().expect("a packet"))
}

/// Offsets of -3 s to +3 s and 20 ppm, in nanoseconds and in microseconds: every clock is found to
/// within 5 us, and within the stated uncertainty.
#[test]
fn clocks_are_found_within_their_bound() {
    let clocks = [
        ClockSetting { ahead_ns: -3_000_000_000, ppm: 20.0, resolution_ns: 1 },
        ClockSetting { ahead_ns: -1_234_567, ppm: -20.0, resolution_ns: 1 },
        ClockSetting { ahead_ns: 0, ppm: 20.0, resolution_ns: 1 },
        ClockSetting { ahead_ns: 42, ppm: 0.0, resolution_ns: 1 },
        ClockSetting { ahead_ns: 777_777_777, ppm: -20.0, resolution_ns: 1000 },
        ClockSetting { ahead_ns: 3_000_000_000, ppm: 20.0, resolution_ns: 1 },
    ];
    let all: Vec<RecordedRun> = runs::all().into_iter().filter(|run| run.nodes >= 2).collect();
    in_parallel(&all, |index, run| {
        let folder = tempfile::tempdir().expect("folder");
        let mut paths = vec![run.node(1)];
        let mut set_to: Vec<(ClockSetting, i64)> = Vec::new();
        for node in 2..=run.nodes {
            let clock = clocks[(index + usize::from(node)) % clocks.len()];
            let (path, first_ns) = set(&run.node(node), clock, folder.path());
            paths.push(path);
            set_to.push((clock, first_ns));
        }
        let profile = analyze(&paths, &AnalysisOptions { measures: without_mpi(), ..AnalysisOptions::default() });
        for ((input, node), (clock, first_ns)) in profile.inputs[1..].iter().zip(2..).zip(set_to) {
            let row = input.clock.as_ref().unwrap_or_else(|| panic!("{}: {}", run.name, input.name));
            let (from, to) = span_ns(&run.node(node));
            for time_ns in [from, i64::midpoint(from, to), to] {
                let shift_ns = clock.shift_ns(time_ns - first_ns);
                let error_ns = (set_back_ns(input, time_ns + shift_ns) - shift_ns as f64).abs();
                let place = format!("{} node {node}, {clock:?}: {row:?}", run.name);
                assert!(error_ns <= row.uncertainty_ns as f64 + 1.0, "{error_ns} ns: {place}");
                assert!(error_ns <= 5_000.0 && row.uncertainty_ns <= 5_000, "{error_ns} ns: {place}");
            }
        }
    });
}

/// Files with a common clock are not corrected.
#[test]
fn clocks_that_agree_are_left_alone() {
    for run in runs::all().iter().filter(|run| run.nodes >= 2) {
        let [aligned, left] = [true, false].map(|align| {
            let clocks = ClockOptions { align, ..ClockOptions::default() };
            let options = AnalysisOptions { clocks, measures: without_mpi(), ..AnalysisOptions::default() };
            analyze(&run.every_node(), &options)
        });
        assert_eq!((&aligned.timeline, &aligned.notes), (&left.timeline, &left.notes), "{}", run.name);
        for input in &aligned.inputs[1..] {
            let clock = input.clock.as_ref().expect("a clock");
            assert!(clock.offset_ns == 0 && clock.drift_ppm == 0.0 && clock.common_packets > 0, "{clock:?}");
        }
    }
}

/// The files of a run of some seconds are a minute apart. Without alignment they look like two
/// consecutive captures, and everything counts twice.
#[test]
fn counts_do_not_depend_on_the_clocks() {
    let run = runs::named("perf-send-lat");
    let folder = tempfile::tempdir().expect("folder");
    let (moved, _) =
        set(&run.node(2), ClockSetting { ahead_ns: 60_000_000_000, ppm: 0.0, resolution_ns: 1 }, folder.path());
    let paths = [run.node(1), moved];
    let packets = |profile: &Profile| profile.connections.iter().map(|row| row.traffic.packets).sum::<u64>();
    let straight = packets(&analyze(&run.every_node(), &AnalysisOptions::default()));
    assert_eq!(packets(&analyze(&paths, &AnalysisOptions::default())), straight);
    let clocks = ClockOptions { align: false, ..ClockOptions::default() };
    let unaligned = AnalysisOptions { clocks, ..AnalysisOptions::default() };
    assert_eq!(packets(&analyze(&paths, &unaligned)), 2 * straight);
}

/// Transit times of all requests and responses that both ports observed, compared with a simple
/// computation on files with a common clock.
#[test]
fn transit_times_match_a_simple_computation() {
    for name in ["ompi-rc-ring2", "ompi-openib-mixed-2x2", "perf-read-lat"] {
        let run = runs::named(name);
        // Source, destination, and the packet from the BTH on: the ICRC distinguishes
        // retransmissions.
        let observations = |node: u8| {
            let mut seen: BTreeMap<Vec<u8>, Vec<i64>> = BTreeMap::new();
            for (time_ns, frame) in runs::timed_records(&run.node(node)) {
                // Acknowledgements (opcode 17) and management (queue pair 1) are not timed.
                let counts = runs::is_roce(&frame) && frame[42] & 0x1F != 17 && frame[47..50] != [0, 0, 1];
                if counts {
                    seen.entry([&frame[26..34], &frame[42..]].concat()).or_default().push(time_ns as i64);
                }
            }
            seen
        };
        let (one, other) = (observations(1), observations(2));
        let mut slow: Vec<u64> = one
            .iter()
            .filter_map(|(packet, here)| Some((here, other.get(packet)?)))
            .flat_map(|(here, there)| here.iter().zip(there).map(|(a, b)| a.abs_diff(*b)).collect::<Vec<_>>())
            .collect();
        slow.sort_unstable();
        let profile = analyze(&run.every_node(), &AnalysisOptions::default());
        let mut found = ibscope::model::Histogram::default();
        for (key, times) in latencies(&profile, LatencyGrouping { by: Some(GroupBy::Endpoint), sizes: true }) {
            if key.interval == Interval::Transit.name() {
                found.merge(&times);
            }
        }
        assert_eq!(found.samples(), slow.len() as u64, "{name}");
        assert_eq!((found.min(), found.max()), (slow[0], slow[slow.len() - 1]), "{name}");
        for share in [0.1, 0.5, 0.9] {
            let exact = slow[(share * slow.len() as f64).ceil() as usize - 1];
            assert!(found.quantile(share).abs_diff(exact) * 1000 <= exact, "{name}: {share}");
        }
    }
}

/// The second file contains one direction only, so the clocks cannot be compared; a note reports
/// this.
#[test]
fn one_direction_alone_is_not_enough() {
    let run = runs::named("perf-send-lat");
    let folder = tempfile::tempdir().expect("folder");
    let bytes = runs::decompressed(&run.node(2));
    let mut half = bytes[..24].to_vec();
    let mut at = 24;
    while at < bytes.len() {
        let length = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().expect("length")) as usize;
        let record = &bytes[at..at + 16 + length];
        // Sent by node 1: 10.77.0.1.
        if runs::is_roce(&record[16..]) && record[16 + 29] == 1 {
            half.extend(record);
        }
        at += record.len();
    }
    let place = folder.path().join("half.pcap");
    std::fs::write(&place, half).expect("half");
    let ran = ibscope(["analyze".as_ref(), run.node(1).as_os_str(), place.as_os_str()]);
    let what = "cannot be compared: no pair of endpoints has packets of both directions in both captures";
    assert!(ran.stdout.contains(what), "{}", ran.stdout);
}

/// Clocks of a manifest, which names captures by path, take precedence. Captures that it does not
/// name are compared with those that it names.
#[test]
fn a_manifest_sets_clocks() {
    let run = runs::named("perf-send-lat");
    let folder = tempfile::tempdir().expect("folder");
    let (moved, first_ns) =
        set(&run.node(2), ClockSetting { ahead_ns: 60_000_000_000, ppm: 0.0, resolution_ns: 1 }, folder.path());
    std::fs::copy(run.node(1), folder.path().join("node1.pcap.zst")).expect("copy");
    let paths = [folder.path().join("node1.pcap.zst"), moved];
    let place = folder.path().join("manifest.json");
    let given = |clocks: &[(&str, i64)]| {
        let capture = |(file, offset_ns): &(&str, i64)| {
            let clock = format!(r#"{{"at_ns": {first_ns}, "offset_ns": {offset_ns}, "uncertainty_ns": 700}}"#);
            format!(r#"{{"sink": "node", "file": "{file}", "port_guids": [], "clock": {clock}}}"#)
        };
        let captures = clocks.iter().map(capture).collect::<Vec<_>>().join(", ");
        std::fs::write(&place, format!(r#"{{"version": 1, "job_id": 1, "captures": [{captures}]}}"#))
            .expect("manifest");
        place.to_str().expect("path")
    };
    let matrix = ["matrix", "--format", "csv"];
    let transit = ["latency", "--format", "csv", "--interval", "transit"];
    for arguments in [&matrix[..], &transit] {
        let straight = result(arguments, &run.every_node());
        let with = |clocks: &[(&str, i64)]| result(&[arguments, &["--manifest", given(clocks)]].concat(), &paths);
        assert!(straight.lines().count() > 1);
        assert_eq!(with(&[("node2.pcap", 60_000_000_000)]), straight);
        assert_eq!(with(&[("node2.pcap", 60_000_000_000), ("node1.pcap.zst", 0)]), straight);
        if arguments == matrix {
            // On the clock of the second capture, the first is a minute behind.
            assert_eq!(with(&[("node2.pcap", 0)]), straight);
        }
        // A wrong clock of the user applies as well.
        let wrong = [("node2.pcap", 0), ("node1.pcap.zst", 0)];
        assert_ne!(with(&wrong), straight);
        // A clock that is known to a part of a second only is found from packets, unless alignment
        // is off.
        let coarse = given(&wrong);
        let text = std::fs::read_to_string(coarse).expect("manifest");
        std::fs::write(coarse, text.replace("_ns\": 700", "_ns\": 500000000")).expect("manifest");
        let coarse = [arguments, &["--manifest", coarse]].concat();
        // Packets show the clock to about 20 ns, so times differ by that much.
        if arguments == matrix {
            assert_eq!(result(&coarse, &paths), straight);
        }
        assert_ne!(result(&[&coarse[..], &["--no-align"]].concat(), &paths), straight);
    }
}

/// The port of one node, from a sink of both: the first observation of the packets it sends, the
/// second observation of the packets it receives.
pub(crate) fn port(sink: &Path, lid: u16, folder: &Path) -> PathBuf {
    let bytes = runs::decompressed(sink);
    let mut port = bytes[..24].to_vec();
    let mut observations: BTreeMap<&[u8], usize> = BTreeMap::new();
    let mut at = 24;
    while at < bytes.len() {
        let length = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().expect("length")) as usize;
        let record = &bytes[at..at + 16 + length];
        // After the pcap and the ERF header; LRH: DLID @2, SLID @6.
        let packet = &record[32..];
        let times = observations.entry(packet).or_default();
        *times += 1;
        let [to, from] = [2, 6].map(|at| u16::from_be_bytes([packet[at], packet[at + 1]]));
        let is_odd = *times % 2 == 1;
        let is_of_port = if from == lid { is_odd } else { to == lid && !is_odd };
        if is_of_port {
            port.extend(record);
        }
        at += record.len();
    }
    let place = folder.join(format!("port{lid}.pcap"));
    std::fs::write(&place, port).expect("port");
    place
}

/// Number of packets, and of samples of transit times and MPI transfer times; and the notes.
fn found(paths: &[PathBuf]) -> (u64, u64, u64, Vec<String>) {
    let profile = analyze(paths, &AnalysisOptions::default());
    let samples = |interval: Interval| {
        let own = profile.latencies.iter().filter(|row| row.timing.interval == interval);
        own.map(|row| row.histogram.samples()).sum()
    };
    let packets = profile.connections.iter().map(|row| row.traffic.packets).sum();
    (packets, samples(Interval::Transit), samples(Interval::MpiMessage), profile.notes)
}

/// A capture at a sink with both ports, and a capture of one of the ports with another clock, in
/// any order: everything counts once, and the sink's times apply.
#[test]
fn a_sink_is_aligned_with_a_port() {
    let run = runs::named("ompi-openib-mixed-2x2");
    let folder = tempfile::tempdir().expect("folder");
    let ports = [17, 18].map(|lid| port(&run.sink(), lid, folder.path()));
    let clock = ClockSetting { ahead_ns: -7_000_000_000, ppm: 30.0, resolution_ns: 1000 };
    let (moved, first_ns) = set(&run.sink(), clock, folder.path());
    let alone = found(&[run.sink()]);
    for paths in [vec![ports[0].clone(), moved.clone()], vec![moved.clone(), ports[1].clone()]] {
        let (packets, transits, messages, _) = found(&paths);
        assert_eq!((packets, transits, messages), (alone.0, alone.1, alone.2), "{paths:?}");
    }
    let profile = analyze(&[ports[0].clone(), moved], &AnalysisOptions::default());
    let row = profile.inputs[1].clock.as_ref().expect("a clock");
    let shift_ns = clock.shift_ns(row.at_ns - clock.ahead_ns - first_ns);
    let error_ns = (row.offset_ns - shift_ns).abs();
    assert!(error_ns <= row.uncertainty_ns as i64 + 1 && row.uncertainty_ns <= 5_000, "{error_ns}: {row:?}");
}

/// The same port twice adds no transit times and loses none.
#[test]
fn a_port_given_twice_counts_once() {
    let run = runs::named("ompi-rc-ring2");
    let folder = tempfile::tempdir().expect("folder");
    let (again, _) =
        set(&run.node(1), ClockSetting { ahead_ns: 2_000_000_000, ppm: 0.0, resolution_ns: 1 }, folder.path());
    let (packets, transits, ..) = found(&run.every_node());
    let (same_packets, none, ..) = found(&[run.node(1), again.clone()]);
    assert_eq!((same_packets, none), (packets, 0));
    let (all_packets, all_transits, ..) = found(&[run.node(1), again, run.node(2)]);
    assert_eq!((all_packets, all_transits), (packets, transits));
}

/// A clock that was set by 1 ms in mid-capture, or that runs unevenly and is an hour off, is not
/// corrected.
#[test]
fn clocks_that_were_set_in_mid_capture_are_not_corrected() {
    let run = runs::named("ompi-rc-ring2");
    let folder = tempfile::tempdir().expect("folder");
    let (hour, _) =
        set(&run.node(2), ClockSetting { ahead_ns: 3_600_000_000_000, ppm: 0.0, resolution_ns: 1 }, folder.path());
    // The second half of the records, 1 ms later.
    let mut bytes = runs::decompressed(&run.node(2));
    let mut at = 24;
    while at < bytes.len() {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("word"));
        let (length, ns) = (word(at + 8) as usize, word(at + 4));
        if at > bytes.len() / 2 && ns < 999_000_000 {
            bytes[at + 4..at + 8].copy_from_slice(&(ns + 1_000_000).to_le_bytes());
        }
        at += 16 + length;
    }
    let jump = folder.path().join("jump.pcap");
    std::fs::write(&jump, bytes).expect("jump");
    let profile = analyze(&[run.node(1), jump.clone()], &AnalysisOptions::default());
    assert_eq!(profile.inputs[1].clock, None, "{jump:?}");
    assert!(profile.notes.iter().any(|note| note.contains("contradict each other")), "{:?}", profile.notes);
    assert!(profile.latencies.iter().all(|row| row.timing.interval != Interval::Transit), "{jump:?}");
    // An evenly running clock is found, however large its offset.
    let profile = analyze(&[run.node(1), hour], &AnalysisOptions::default());
    let row = profile.inputs[1].clock.as_ref().expect("a clock");
    assert!((row.offset_ns - 3_600_000_000_000).unsigned_abs() <= row.uncertainty_ns, "{row:?}");
}

/// Clocks that no line relates, an hour apart, and the same capture an hour later: the packets count
/// once, and a note says that there may have been two runs.
#[test]
fn the_same_packets_at_other_times_count_once() {
    let run = runs::named("ompi-rc-ring2");
    let folder = tempfile::tempdir().expect("folder");
    let hour = ClockSetting { ahead_ns: 3_600_000_000_000, ppm: 0.0, resolution_ns: 1 };
    let (again, _) = set(&run.node(1), hour, folder.path());
    let (other, _) = set(&run.node(2), hour, folder.path());
    let mut bytes = std::fs::read(&other).expect("capture");
    let (mut at, half) = (24, bytes.len() / 2);
    while at < bytes.len() {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("word"));
        let (seconds, length) = (word(at), word(at + 8) as usize);
        // The clock was set in mid-capture.
        if at > half {
            bytes[at..at + 4].copy_from_slice(&(seconds + 7).to_le_bytes());
        }
        at += 16 + length;
    }
    let uneven = folder.path().join("uneven.pcap");
    std::fs::write(&uneven, bytes).expect("uneven");
    let (packets, ..) = found(&run.every_node());
    for second in [again, uneven] {
        let (both, _, _, notes) = found(&[run.node(1), second.clone()]);
        assert_eq!(both, packets, "{second:?}: {notes:?}");
        assert!(notes.iter().any(|note| note.contains("hold the same packets")), "{second:?}: {notes:?}");
    }
}

/// If a manifest has some clocks, the others are compared with those.
#[test]
fn unknown_clocks_are_compared_with_given_ones() {
    let run = runs::named("ompi-rc-notrace-mixed-4x1");
    let folder = tempfile::tempdir().expect("folder");
    let clock = ClockSetting { ahead_ns: 3_000_000_000, ppm: 0.0, resolution_ns: 1 };
    let (moved, first_ns) = set(&run.node(2), clock, folder.path());
    let paths = [run.node(1), moved.clone(), run.node(3)];
    // The given clock of node 1 is 1 s ahead.
    let given = |path: PathBuf, offset_ns: i64| {
        (path, (Clock { own_ns: first_ns, reference_ns: first_ns - offset_ns, gain: 0.0 }, 100))
    };
    let known = BTreeMap::from([given(run.node(1), 1_000_000_000), given(run.node(3), 1_000_000_000)]);
    let clocks = ClockOptions { supplied: known, ..ClockOptions::default() };
    let profile = analyze(&paths, &AnalysisOptions { clocks, ..AnalysisOptions::default() });
    let row = profile.inputs[1].clock.as_ref().expect("a clock");
    assert_eq!(row.reference, "manifest");
    let error_ns = (row.offset_ns - 4_000_000_000).unsigned_abs();
    assert!(error_ns <= row.uncertainty_ns && row.uncertainty_ns <= 5_000, "{error_ns}: {row:?}");
    let straight = found(&[run.node(1), run.node(2), run.node(3)]).0;
    assert_eq!(profile.connections.iter().map(|row| row.traffic.packets).sum::<u64>(), straight);
}
