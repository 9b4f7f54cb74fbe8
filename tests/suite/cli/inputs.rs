//! Input files other than captures, several captures, and retransmissions in them.

use super::{CsvCells, matrix_cells, profile_of, text};
use crate::recorded::profile;
use crate::runs::{self, RecordedRun, is_roce};
use crate::tools::{ibscope, in_parallel, result, sample, samples_folder};
use ibscope::model::TrafficKind;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

#[test]
fn names_are_in_tables_and_never_in_csv() {
    let folder = tempfile::tempdir().expect("folder");
    for (name, hosts) in [("openib-mixed-4x1", "hosts-native.csv"), ("ucx-rc-ring2.node1", "hosts-roce.csv")] {
        let path = sample(name);
        let hosts = samples_folder().join(hosts);
        let named = ["--hosts", text(&hosts)];
        let profile = profile_of(folder.path(), &[&path], &named);
        for arguments in [&["matrix"][..], &["analyze"], &["inspect"]] {
            let bare = result(arguments, &[&path]);
            let with_names = result(&[arguments, &named].concat(), &[&path]);
            assert!(!bare.contains("node1 ") && with_names.contains("node1"), "{name}: {arguments:?}");
            assert!(with_names.contains("node2"), "{name}: {arguments:?}");
        }
        assert!(result(&["matrix"], &[&profile]).contains("node1"), "{name}: the profile keeps the names");
        for command in ["matrix", "timeline", "inspect"] {
            let arguments = [command, "--format", "csv"];
            let csv = result(&arguments, &[&path]);
            assert_eq!(result(&[&arguments[..], &named].concat(), &[&path]), csv, "{name}: {command}");
        }
    }
}

#[test]
fn tables_that_cannot_be_read_name_file_and_line() {
    let folder = tempfile::tempdir().expect("folder");
    let path = sample("perftest-read-lat");
    let file = folder.path().join("table.csv");
    for (option, content, expected) in [
        ("--hosts", "17,node1\n", "line 1"),
        ("--hosts", "endpoint,name\n17,node1\nnode2\n", "line 3"),
        ("--hosts", "endpoint,name\n\n# a comment\n17,node1\n300000,node2\n", "line 5"),
        ("--hosts", "endpoint,name\n17,node1\n17,node2\n", "line 3"),
        ("--rankmap", "", "line 1"),
        ("--rankmap", "0,17\n", "line 1"),
        ("--rankmap", "rank,endpoint\n0,17\none,18\n", "line 3"),
        ("--rankmap", "rank,endpoint\n0,17\n1,node2\n", "line 3"),
        ("--rankmap", "rank,endpoint,qpn\n0,17,0x11\n\n1,18,many\n", "line 4"),
        ("--rankmap", "rank,endpoint\n0,17\n1,17\n", "line 3"),
    ] {
        std::fs::write(&file, content).expect("written");
        for command in ["matrix", "analyze", "inspect", "timeline"] {
            let ran = ibscope([command, option, text(&file), text(&path)]);
            assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{command} {content:?}");
            assert!(ran.stderr.contains(text(&file)) && ran.stderr.contains(expected), "{content:?}: {}", ran.stderr);
        }
    }
    for option in ["--hosts", "--rankmap"] {
        let ran = ibscope(["matrix", option, "no/such/file", text(&path)]);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{option}");
        assert!(ran.stderr.contains("no/such/file"), "{}", ran.stderr);
    }
}

const BY_RANK: [&str; 5] = ["matrix", "--format", "csv", "--by", "rank"];

/// The matrix by rank, with this rank map.
fn by_rank(paths: &[PathBuf], rankmap: &str) -> CsvCells {
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("ranks.csv");
    std::fs::write(&file, rankmap).expect("written");
    let arguments = [&BY_RANK[..], &["--rankmap", text(&file)]].concat();
    let cells = result(&arguments, paths);
    let profile = profile_of(folder.path(), paths, &[]);
    assert_eq!(result(&arguments, &[profile]), cells, "a profile takes a rank map later");
    matrix_cells(&cells)
}

#[test]
fn a_rank_map_overrides_inferred_ranks() {
    let paths = [sample("openib-mixed-4x1")];
    let inferred = matrix_cells(&result(&BY_RANK, &paths));
    assert_eq!(inferred.len(), 12);
    // Rank R runs on LID 17 + R; here in reverse order.
    let reversed = by_rank(&paths, "rank,endpoint\n3,17\n2,18\n1,0x13\n0,20\n");
    let reverse = |rank: &str| (3 - rank.parse::<u32>().expect("rank")).to_string();
    let expected: CsvCells = inferred.iter().map(|((src, dst), cell)| ((reverse(src), reverse(dst)), *cell)).collect();
    assert_eq!(reversed, expected);
    // Endpoints that the map does not list have no rank, even if one was inferred.
    let some = by_rank(&paths, "rank,endpoint\n7,17\n9,18\n");
    let mut expected = CsvCells::new();
    let label = |rank: &str| match rank {
        "0" => "7".to_owned(),
        "1" => "9".to_owned(),
        _ => "unknown".to_owned(),
    };
    for ((src, dst), cell) in &inferred {
        super::add(expected.entry((label(src), label(dst))).or_insert([None; 5]), cell);
    }
    assert_eq!(some, expected);
    assert!(some.contains_key(&("7".to_owned(), "unknown".to_owned())));
    assert!(some.contains_key(&("unknown".to_owned(), "unknown".to_owned())));
}

#[test]
fn a_rank_map_can_identify_processes_by_queue_pair() {
    // Two processes per node. The receiver is identified by its queue pair; the sender too, at
    // least if the packet contains it (UD).
    let path = runs::named("ompi-rc-mixed-2x2").node(1);
    let mut packets: BTreeMap<(String, u32), u64> = BTreeMap::new();
    let mut datagrams = 0;
    let inspected = result(&["inspect", "--format", "csv"], &[&path]);
    for line in inspected.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let dest_qp: u32 = fields[5].parse().expect("queue pair");
        if dest_qp > 1 {
            *packets.entry((fields[3].to_owned(), dest_qp)).or_default() += 1;
            datagrams += u64::from(fields[4].starts_with("UD_"));
        }
    }
    assert!(packets.len() >= 8 && datagrams > 8, "{datagrams} datagrams among {packets:?}");
    // Every queue pair is a rank of its own, or all but one are.
    for left_out in [None, Some(7)] {
        let mut rankmap = "rank,endpoint,qpn\n".to_owned();
        let mut expected: BTreeMap<String, u64> = BTreeMap::new();
        for (rank, ((endpoint, qpn), packets)) in packets.iter().enumerate() {
            let is_left_out = left_out == Some(rank);
            let label = if is_left_out { "unknown".to_owned() } else { rank.to_string() };
            *expected.entry(label).or_default() += packets;
            if !is_left_out {
                // Both notations of a number.
                let qpn = if rank % 2 == 0 { qpn.to_string() } else { format!("{qpn:#x}") };
                rankmap.extend([&rank.to_string(), ",", endpoint, ",", &qpn, "\n"]);
            }
        }
        let mut found: BTreeMap<String, u64> = BTreeMap::new();
        let mut from_known = 0;
        for ((src, dst), [.., packets]) in by_rank(std::slice::from_ref(&path), &rankmap) {
            let packets = packets.expect("packets");
            *found.entry(dst).or_default() += packets;
            from_known += if src == "unknown" { 0 } else { packets };
        }
        assert_eq!(found, expected);
        assert!(left_out.is_some() || from_known >= datagrams, "{from_known} of {datagrams}");
    }
}

#[test]
fn several_captures_are_inspected_in_the_order_of_time() {
    for name in ["ompi-rc-coll-2x2", "perf-atomic-lat", "ompi-openib-bt.S-4x1"] {
        let paths = runs::named(name).every_node();
        let inspect = |paths: &[PathBuf]| result(&["inspect", "--format", "csv"], paths);
        let time_ns = |line: &String| -> i64 { line.split(',').nth(1).expect("time").parse().expect("time") };
        let rows = |paths: &[PathBuf]| -> Vec<String> { inspect(paths).lines().skip(1).map(str::to_owned).collect() };
        let alone: Vec<Vec<String>> = paths.iter().map(|path| rows(std::slice::from_ref(path))).collect();
        assert!(alone.iter().all(|rows| rows.len() > 100 && rows.is_sorted_by_key(time_ns)), "{name}");
        let together = rows(&paths);
        assert!(together.is_sorted_by_key(time_ns), "{name}");
        // Sorting is stable: at equal times, the order of the inputs.
        let mut expected = alone.concat();
        expected.sort_by_key(time_ns);
        assert!(together == expected, "{name}");
    }
}

/// Retransmitted requests, responses and ACKs.
fn retransmissions(paths: &[PathBuf]) -> [u64; 3] {
    let profile = profile(paths);
    let mut sums = [0; 3];
    for connection in profile.connections.iter().filter(|connection| connection.kind == TrafficKind::Data) {
        let own = connection.retransmissions;
        let packets = [own.request_packets, own.response_packets, own.acknowledge_packets];
        sums.iter_mut().zip(packets).for_each(|(sum, packets)| *sum += packets);
    }
    sums
}

/// A simple count of retransmitted requests of reliable connections in a RoCE capture: requests
/// with the first PSN of an earlier one, and READ requests that start inside an earlier READ.
fn retransmitted_requests(path: &Path) -> (u64, u64) {
    /// Path MTU of all recorded runs.
    const MTU_BYTES: u32 = 4096;
    const READ_REQUEST: u8 = 0x0C;
    let mut started = BTreeSet::new();
    let mut taken = BTreeSet::new();
    let (mut equal, mut inside) = (0, 0);
    for frame in runs::records(path).iter().filter(|frame| is_roce(frame)) {
        let (addresses, bth) = (&frame[26..34], &frame[42..]);
        let (operation, dest_qp) = (bth[0], u32::from_be_bytes([0, bth[5], bth[6], bth[7]]));
        let is_request = matches!(operation, 0x00..=0x0C | 0x13 | 0x14 | 0x16 | 0x17);
        if !is_request {
            continue;
        }
        let psn = u32::from_be_bytes([0, bth[9], bth[10], bth[11]]);
        let span = match operation {
            READ_REQUEST => u32::from_be_bytes(bth[24..28].try_into().expect("RETH")).div_ceil(MTU_BYTES).max(1),
            _ => 1,
        };
        let place = |psn: u32| (addresses.to_vec(), dest_qp, psn & 0x00FF_FFFF);
        if !started.insert(place(psn)) {
            equal += 1;
        } else if taken.contains(&place(psn)) {
            inside += 1;
        }
        taken.extend((psn..psn + span).map(place));
    }
    (equal, inside)
}

#[test]
fn retransmissions_match_the_recorded_runs() {
    in_parallel(&runs::all(), |_, run: &RecordedRun| {
        // From the record of the runs, counted independently.
        let recorded = match run.name.as_str() {
            "ompi-rc-loss1-ring2" => 47,
            "perf-send-lat" => 8,
            "perf-write-lat" => 3,
            "perf-read-lat" | "ompi-rc-halo-2x2" => 1,
            _ => 0,
        };
        // Go-back to a response inside a READ: the record does not count these, because the request
        // differs.
        let restarted = if run.name == "ompi-rc-loss1-ring2" { 16 } else { 0 };
        let mut ways = vec![vec![run.sink()], run.every_node()];
        if run.nodes == 2 {
            ways.extend([vec![run.node(1)], vec![run.node(2)]]);
            assert_eq!(retransmitted_requests(&run.node(1)), (recorded, restarted), "{}", run.name);
        }
        for paths in ways {
            let found = retransmissions(&paths);
            assert_eq!(found[0], recorded + restarted, "{paths:?}: {found:?}");
            if run.name == "ompi-rc-loss1-ring2" {
                assert_eq!(found[1..], [565, 3], "{paths:?}");
            }
        }
    });
}
