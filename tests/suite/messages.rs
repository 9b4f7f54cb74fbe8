//! Individual messages of the recorded runs, compared with every send of the applications.

use crate::recorded::{every_way, is_mpi};
use crate::runs::{self, RecordedRun};
use crate::tools::in_parallel;
use ibscope::model::{MessageRow, Profile, Verb};
use ibscope::pipeline::{AnalysisMeasures, AnalysisOptions, messages};
use ibscope_samples::hard::frame::PacketFrame;
use ibscope_samples::hard::{Recording, partial};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Sends by sender, receiver, tag and bytes.
type Sends = BTreeMap<(u32, u32, i32, u64), u64>;

fn read(paths: &[PathBuf], with_transport: bool) -> (Profile, Vec<MessageRow>) {
    let measures = AnalysisMeasures { icrc: false, ..AnalysisMeasures::default() };
    let options = AnalysisOptions { bin_ns: None, measures, ..AnalysisOptions::default() };
    let stream =
        messages(paths, &options, with_transport, &|_| {}).unwrap_or_else(|error| panic!("{paths:?}: {error}"));
    let profile = stream.profile().clone();
    (profile, stream.map(|row| row.expect("row")).collect())
}

fn is_p2p(row: &MessageRow) -> bool {
    row.operation() == Some("point-to-point")
}

/// The sends of the applications between nodes, as they recorded them.
fn sent(run: &RecordedRun) -> Sends {
    let nodes = run.node_of_rank();
    let mut sends = Sends::new();
    for rank in nodes.keys() {
        let text = runs::decompressed(&run.folder.join(format!("sends/sends.{rank}.csv.zst")));
        for line in String::from_utf8(text).expect("text").lines().skip(1) {
            let fields: Vec<&str> = line.split(',').collect();
            let [_, src, dst, tag, bytes, _] = fields[..] else { panic!("{line}") };
            let (src, dst) = (src.parse().expect("rank"), dst.parse().expect("rank"));
            if nodes[&src] != nodes[&dst] {
                *sends.entry((src, dst, tag.parse().expect("tag"), bytes.parse().expect("bytes"))).or_default() += 1;
            }
        }
    }
    sends
}

fn found(rows: &[MessageRow], counts: impl Fn(&MessageRow) -> bool) -> Sends {
    let mut sends = Sends::new();
    for row in rows.iter().filter(|row| is_p2p(row) && counts(row)) {
        let (src, dst) = (row.src_rank.expect("sender"), row.dst_rank.expect("receiver"));
        let identity = row.identity().expect("envelope");
        *sends.entry((src, dst, identity.tag, row.raw.length_bytes.expect("length"))).or_default() += 1;
    }
    sends
}

/// In all other runs, tracers send messages of their own.
#[test]
fn every_send_of_the_untraced_runs_is_a_row() {
    for name in ["ompi-openib-notrace-mixed-4x1", "ompi-rc-notrace-mixed-4x1"] {
        let run = runs::named(name);
        for paths in every_way(&run) {
            let (_, rows) = read(&paths, false);
            assert_eq!(found(&rows, |_| true), sent(&run), "{name}");
        }
    }
}

/// Score-P's messages use its own communicator, context 3 (runs/README.md). So do the application's
/// own messages in runs that lost that communicator.
#[test]
fn every_send_of_the_runs_with_two_ranks_per_node_under_score_p_is_a_row() {
    let mut checked = 0;
    for run in runs::all().iter().filter(|run| run.name.starts_with("scorep-") && run.truth("wire.csv").is_none()) {
        for paths in every_way(run) {
            let (_, rows) = read(&paths, false);
            let counts = |row: &MessageRow| row.identity().is_some_and(|identity| identity.context != 3);
            let found = found(&rows, counts);
            assert_eq!(found, sent(run), "{}: {paths:?}", run.name);
            let mut pairs: BTreeMap<(u32, u32), (u64, u64)> = BTreeMap::new();
            for ((src, dst, _, bytes), count) in found {
                let pair = pairs.entry((src, dst)).or_default();
                *pair = (pair.0 + count, pair.1 + count * bytes);
            }
            let nodes = run.node_of_rank();
            let mut truth = run.truth("truth.csv").expect("truth");
            truth.retain(|(src, dst), (messages, _)| nodes[src] != nodes[dst] && *messages > 0);
            assert_eq!(pairs, truth, "{}: {paths:?}", run.name);
        }
        checked += 1;
    }
    assert_eq!(checked, 3, "Score-P runs with two ranks per node");
}

/// All runs: the rows contain the sends of the application; the rest are the tracer's, and the sums
/// are those of wire.csv.
#[test]
fn rows_add_up_to_the_messages_on_the_wire() {
    let mut checked = 0;
    for run in runs::all().iter().filter(|run| is_mpi(run)) {
        let Some(wire) = run.truth("wire.csv") else { continue };
        for paths in every_way(run) {
            let (_, rows) = read(&paths, false);
            let place = format!("{}: {paths:?}", run.name);
            let found = found(&rows, |_| true);
            for (send, count) in sent(run) {
                assert!(found.get(&send).is_some_and(|found| *found >= count), "{place}: {send:?} x {count}");
            }
            let mut pairs: BTreeMap<(u32, u32), (u64, u64)> = BTreeMap::new();
            for ((src, dst, _, bytes), count) in found {
                let pair = pairs.entry((src, dst)).or_default();
                *pair = (pair.0 + count, pair.1 + count * bytes);
            }
            assert_eq!(pairs, wire, "{place}");
        }
        checked += 1;
    }
    assert_eq!(checked, 22, "runs with a wire.csv");
}

/// No message of the recorded runs is incomplete, including those with lost and retransmitted
/// packets. The packets of a message carry its data and headers, and little more.
#[test]
fn messages_are_complete_and_match_their_packets() {
    for run in runs::all().iter().filter(|run| is_mpi(run)) {
        for paths in every_way(run) {
            let (profile, rows) = read(&paths, false);
            let place = format!("{}: {paths:?}", run.name);
            assert!(!rows.is_empty(), "{place}");
            assert_eq!(profile.coverage.messages_evicted, 0, "{place}");
            for row in &rows {
                let raw = &row.raw;
                assert!(raw.complete, "{place}: {raw:?}");
                assert!(raw.times_ns.0 <= raw.times_ns.1, "{place}: {raw:?}");
                // Every packet has headers of at least 26 bytes (LRH, BTH, VCRC, ICRC), and of less
                // than 200 with the library's.
                let length_bytes = raw.length_bytes.expect("length");
                let data = length_bytes..length_bytes + raw.packets * 200 + 200;
                assert!(raw.wire_bytes >= raw.packets * 26 && data.contains(&raw.wire_bytes), "{place}: {raw:?}");
                let by_read = raw.transfer_verb == Verb::Read;
                assert!(!by_read || row.protocol() == Some("rendezvous"), "{place}: {raw:?}");
            }
        }
    }
}

/// Sums by rank pair and operation are equal, whether added up from rows or during the analysis.
#[test]
fn rows_and_sums_agree() {
    for name in ["ompi-rc-coll-2x2", "mpich-rc-mixed-2x2", "ompi-openib-put-ring2", "ompi-ud-ring2", "ompi-ofi-ring2"] {
        let run = runs::named(name);
        let (profile, rows) = read(&[run.sink()], false);
        let mut from_rows: BTreeMap<(u32, String), (u64, u64)> = BTreeMap::new();
        for row in &rows {
            let operation = row.operation().expect("operation").to_owned();
            let sums = from_rows.entry((row.connection, operation)).or_default();
            *sums = (sums.0 + 1, sums.1 + row.raw.length_bytes.expect("length"));
        }
        let mut from_sums: BTreeMap<(u32, String), (u64, u64)> = BTreeMap::new();
        for row in &profile.collectives {
            from_sums.insert((row.connection, row.operation.clone()), (row.messages, row.mpi_bytes));
        }
        for (index, row) in profile.connections.iter().enumerate().filter(|(_, row)| row.traffic.p2p_messages > 0) {
            let sums = (row.traffic.p2p_messages, row.traffic.p2p_mpi_bytes);
            from_sums.insert((index as u32, "point-to-point".to_owned()), sums);
        }
        assert_eq!(from_rows, from_sums, "{name}");
    }
}

/// perftest's iterations, counted from its command line; see runs/README.md.
#[test]
fn transport_messages_of_perftest() {
    for (name, moved, count) in [
        ("perf-read-lat", Verb::Read, 500),
        ("perf-atomic-lat", Verb::Atomic, 200),
        ("perf-send-lat", Verb::Send, 1000),
    ] {
        let run = runs::named(name);
        for paths in every_way(&run) {
            let (_, rows) = read(&paths, true);
            assert!(rows.iter().all(|row| row.mpi.is_none() && row.raw.complete), "{name}");
            assert_eq!(rows.iter().filter(|row| row.raw.transfer_verb == moved).count(), count, "{name}: {paths:?}");
        }
        assert_eq!(read(&[run.sink()], false).1, []);
    }
}

/// Times, packets and wire bytes of the complete messages, by sender, receiver, queue pair, PSN and
/// length. A key may occur several times.
type CompleteMessages = BTreeMap<(String, String, u32, u32, Option<u64>), Vec<(i64, i64, u64, u64)>>;

fn complete_messages(path: &Path) -> (CompleteMessages, usize) {
    let (profile, rows) = read(&[path.to_owned()], false);
    let mut complete = CompleteMessages::new();
    for row in rows.iter().filter(|row| row.raw.complete) {
        let connection = &profile.connections[row.connection as usize];
        let raw = &row.raw;
        let (src, dst) = (connection.src.to_string(), connection.dst.to_string());
        let key = (src, dst, connection.dest_qp.value(), raw.psn, raw.length_bytes);
        complete.entry(key).or_default().push((raw.times_ns.0, raw.times_ns.1, raw.packets, raw.wire_bytes));
    }
    (complete, rows.len())
}

/// If a packet is missing, no complete message has data of another one.
#[test]
fn complete_messages_have_their_own_data_only() {
    let runs = [
        runs::named("ompi-openib-ring2"),
        runs::of_second_set("ompi5-ucx-rc-rndvput-mixed-2x2"),
        runs::named("ompi-ud-ring2"),
        runs::named("ompi-ofi-ring2"),
    ];
    for run in &runs {
        let path = run.folder.join("node1.pcap.zst");
        let whole = Recording::read(&path).expect("recording");
        let (truth, messages) = complete_messages(&path);
        assert!(messages > 20, "{}: {messages} messages", run.name);
        let carries_data = |index: &usize| {
            let frame = PacketFrame::read(whole.link_type, &whole.records[*index]);
            frame.is_some_and(|frame| !frame.opcode.is_ack())
        };
        let data: Vec<usize> = (0..whole.records.len()).filter(carries_data).collect();
        let stride = (data.len() / 80).max(1);
        let lost: Vec<usize> = data.iter().skip(3).step_by(stride).copied().collect();
        let folder = tempfile::tempdir().expect("folder");
        in_parallel(&lost, |case, lost| {
            let path = folder.path().join(format!("{case}.pcap"));
            partial::keep(&whole, |index, _| index != *lost).write(&path).expect("capture");
            let (found, left) = complete_messages(&path);
            for (key, rows) in &found {
                let known = truth.get(key).map_or(&[][..], Vec::as_slice);
                assert!(rows.iter().all(|row| known.contains(row)), "{}: without {lost}: {key:?} {rows:?}", run.name);
            }
            // A missing packet affects its own message and few others.
            let complete: usize = found.values().map(Vec::len).sum();
            assert!(complete + 10 >= messages, "{}: without {lost}: {complete} of {left}", run.name);
        });
    }
}
