//! Captures whose packets passed more observation points than two, or a second one for a part of the
//! time. The truth is the same capture with one observation point.

use crate::runs::{self, RecordedRun};
use crate::tools::{CsvRow, csv_rows, ibscope, in_parallel};
use crate::wire::{data_connections, profile, profile_of};
use ibscope::model::Profile;
use ibscope::model::profile::{ConnectionRow, CoverageState};
use ibscope_samples::hard::frame::PacketFrame;
use ibscope_samples::hard::{Recording, combine, partial};
use std::ffi::OsStr;
use std::path::PathBuf;

/// Time from one observation point to the next, in nanoseconds.
const HOP_NS: i64 = 2000;
/// Packets of a pair of ports, from which on its ACKs show the number of points.
const MANY_PACKETS: u64 = 200;

/// The capture of the first node, and its profile; `None` if it has retransmissions.
fn one_point(run: &RecordedRun) -> Option<(Recording, Profile)> {
    let path = run.node(1);
    let truth = profile(std::slice::from_ref(&path));
    let retransmitted: u64 = truth.connections.iter().map(|row| row.retransmissions.packets()).sum();
    let is_one_point = truth.inputs.iter().all(|input| input.pairs_observed_twice == 0);
    // Without ACKs, nothing shows whether requests and responses are copies.
    let has_acks = !run.name.starts_with("perf-atomic") && !run.name.starts_with("perf-read");
    (retransmitted == 0 && is_one_point && has_acks).then(|| (Recording::read(&path).expect("recording"), truth))
}

fn named<'a>(profile: &'a Profile, own: &ConnectionRow) -> &'a ConnectionRow {
    let key = |row: &ConnectionRow| (row.src, row.dst, row.service, row.dest_qp, row.src_qp);
    data_connections(profile).find(|row| key(row) == key(own)).expect("the same connection")
}

#[test]
fn packets_at_three_or_four_points_count_once() {
    let checked = std::sync::atomic::AtomicUsize::new(0);
    in_parallel(&runs::all(), |_, run| {
        let Some((recording, truth)) = one_point(run) else { return };
        for points in [3, 4] {
            let all: Vec<Recording> = (0..points).map(|hop| combine::shift(&recording, hop * HOP_NS)).collect();
            let found = profile_of(&combine::merge(&all));
            let mut short = 0;
            for own in data_connections(&truth) {
                let same = named(&found, own);
                let case = format!("{}, {points} points, {} to {}", run.name, own.src, own.dst);
                // Without ACKs nothing shows the points of a few packets.
                let is_decided = same.traffic.packets == own.traffic.packets || own.traffic.packets < MANY_PACKETS;
                short += u64::from(same.traffic.packets != own.traffic.packets);
                assert!(is_decided, "{case}: {} of {}", same.traffic.packets, own.traffic.packets);
                assert!(
                    same.retransmissions.packets() == 0 || same.coverage.state != CoverageState::Complete,
                    "{case}"
                );
            }
            assert!(short * 4 <= data_connections(&truth).count() as u64, "{}: {short} connections", run.name);
            checked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    });
    assert!(checked.into_inner() >= 20);
}

/// The second mirror is switched on late, or off early.
#[test]
fn a_second_point_for_a_part_of_the_time_leaves_no_complete_pair_with_too_many_packets() {
    let checked = std::sync::atomic::AtomicUsize::new(0);
    in_parallel(&runs::all(), |_, run| {
        let Some((recording, truth)) = one_point(run) else { return };
        let records = recording.records.len();
        for part in [0..records * 3 / 10, records * 7 / 10..records, 0..records * 6 / 10] {
            let second = combine::shift(&partial::window(&recording, part.clone()), HOP_NS);
            let found = profile_of(&combine::merge(&[recording.clone(), second]));
            for own in data_connections(&truth).filter(|own| own.traffic.packets >= MANY_PACKETS) {
                let same = named(&found, own);
                assert!(
                    same.traffic.packets <= own.traffic.packets || same.coverage.state != CoverageState::Complete,
                    "{}, {part:?}, {} to {}: {} of {}",
                    run.name,
                    own.src,
                    own.dst,
                    same.traffic.packets,
                    own.traffic.packets
                );
                checked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        }
    });
    assert!(checked.into_inner() >= 20);
}

/// A device between the mirror and the capture copies all packets once more, and delays the copies by 2 ms.
#[test]
fn copies_that_come_late_are_no_retransmissions() {
    const LATE_NS: i64 = 2_000_000;
    let checked = std::sync::atomic::AtomicUsize::new(0);
    in_parallel(&runs::all(), |_, run| {
        let Some((recording, truth)) = one_point(run) else { return };
        let twice = combine::merge(&[recording.clone(), combine::shift(&recording, HOP_NS)]);
        let found = profile_of(&combine::merge(&[twice.clone(), combine::shift(&twice, LATE_NS)]));
        for own in data_connections(&truth).filter(|own| own.traffic.packets >= MANY_PACKETS) {
            let same = named(&found, own);
            let case = format!("{}, {} to {}", run.name, own.src, own.dst);
            assert_eq!(same.traffic.packets, own.traffic.packets, "{case}");
            assert_eq!(same.retransmissions.packets(), 0, "{case}");
            checked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    });
    assert!(checked.into_inner() >= 20);
}

/// The second mirror is on for 5 % of the records. Nothing but the order of the requests shows it if
/// the capture has no ACKs.
#[test]
fn copies_of_a_short_time_count_once_and_are_no_retransmissions() {
    for name in ["mpich-rc-ring2", "ompi-rc-ring2"] {
        let (recording, _) = one_point(&runs::named(name)).expect("one point without retransmissions");
        let is_ack = |_: usize, record: &_| {
            PacketFrame::read(recording.link_type, record).is_some_and(|frame| frame.opcode.is_ack())
        };
        let without_acks = partial::keep(&recording, |index, record| !is_ack(index, record));
        for recording in [recording.clone(), without_acks] {
            let records = recording.records.len();
            let part = records * 40 / 100..records * 45 / 100;
            let second = combine::shift(&partial::window(&recording, part), HOP_NS);
            let found = profile_of(&combine::merge(&[recording.clone(), second]));
            for own in data_connections(&profile_of(&recording)).filter(|own| own.traffic.packets >= MANY_PACKETS) {
                let same = named(&found, own);
                assert_eq!(same.traffic, own.traffic, "{name}, {records} records");
                assert_eq!(same.retransmissions.packets(), 0, "{name}, {records} records");
            }
        }
    }
}

/// The captures of both nodes, each rotated at the same time of its own clock, in the middle of large
/// transfers: each second file continues that of its own node, so no packet counts twice.
#[test]
fn files_of_two_nodes_that_are_rotated_together_continue_their_own_node() {
    let run = runs::named("ompi-openib-mixed-2x2");
    for ahead_ns in [0, 20_000, 1_000_000, 5_000_000] {
        let [first, second] = [1, 2].map(|node| Recording::read(&run.node(node)).expect("capture"));
        rotated_together(&[first, combine::shift(&second, ahead_ns)], &run);
    }
}

fn rotated_together(nodes: &[Recording; 2], run: &RecordedRun) {
    let folder = tempfile::tempdir().expect("folder");
    let matrix = |paths: &[PathBuf]| {
        let words = ["matrix", "--by", "endpoint", "--format", "csv"].map(OsStr::new);
        ibscope(words.into_iter().chain(paths.iter().map(|path| path.as_os_str())))
    };
    let counts = |csv: &str| -> Vec<[String; 5]> {
        let row =
            |row: &CsvRow| ["src", "dst", "packets", "messages", "payload_bytes"].map(|column| row[column].clone());
        csv_rows(csv).iter().map(row).collect()
    };
    let expected = counts(&matrix(&[run.node(1), run.node(2)]).stdout);
    let mut times_ns: Vec<u64> =
        nodes[0].records.iter().filter(|record| record.data.len() > 1000).map(|record| record.time_ns).collect();
    times_ns.sort_unstable();
    assert!(times_ns.len() > 500, "large packets: {}", times_ns.len());
    for cut_ns in times_ns.iter().skip(40).step_by(times_ns.len() / 12) {
        let parts = nodes.iter().enumerate().flat_map(|(node, whole)| {
            [0..*cut_ns, *cut_ns..u64::MAX]
                .into_iter()
                .enumerate()
                .map(move |(part, times)| (node, part, partial::between(whole, times)))
        });
        let paths: Vec<PathBuf> = parts
            .map(|(node, part, file)| {
                let path = folder.path().join(format!("node{node}.{part}.pcap"));
                file.write(&path).expect("written");
                path
            })
            .collect();
        let ran = matrix(&paths);
        assert_eq!(counts(&ran.stdout), expected, "cut at {cut_ns}: {}", ran.stderr);
    }
}
