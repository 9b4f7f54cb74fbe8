//! Captures with one file for each port: marks, losses and repeated records that only one of the
//! files, or all of them, have. The truth follows from the changes.

use crate::runs::{self, RecordedRun};
use crate::tools::ibscope;
use crate::wire::{data_connections, profile};
use ibscope::model::profile::CoverageState;
use ibscope::model::{Profile, TrustVerdict};
use ibscope_parsers::Endpoint;
use ibscope_samples::hard::frame::{PacketFrame, change_packets};
use ibscope_samples::hard::{Recording, partial};
use std::ffi::OsStr;
use std::path::PathBuf;

/// The captures of the ports of a run, by node from 1.
fn recordings(run: &RecordedRun) -> Vec<Recording> {
    run.every_node().iter().map(|path| Recording::read(path).expect("recording")).collect()
}

/// The captures as files of a folder.
fn files(recordings: &[Recording]) -> (tempfile::TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().expect("folder");
    let write = |(number, recording): (usize, &Recording)| {
        let path = folder.path().join(format!("node{}.pcap", number + 1));
        recording.write(&path).expect("written");
        path
    };
    let paths = recordings.iter().enumerate().map(write).collect();
    (folder, paths)
}

fn health_sum(profile: &Profile, of: impl Fn(&ibscope::model::Health) -> u64) -> u64 {
    profile.health.iter().map(|row| of(&row.health)).sum()
}

/// The port of a node of the recorded runs.
fn port(node: usize) -> Endpoint {
    Endpoint::from_ipv4([10, 77, 0, node as u8])
}

/// A switch marks packets on their way, so only the receiver's port shows the marks.
#[test]
fn marks_of_one_port_count_whichever_file_counts() {
    for name in ["ompi-rc-notrace-mixed-4x1", "ompi-rc-mixed-2x2"] {
        let run = runs::named(name);
        let captures = recordings(&run);
        for node in 1..=captures.len() {
            let mut changed = captures.clone();
            let mut marks = 0;
            changed[node - 1] = change_packets(&captures[node - 1], |number, frame, data| {
                // The TOS of IPv4 follows 14 bytes of Ethernet and one byte.
                if frame.dst == port(node) && number % 3 == 0 {
                    data[15] |= 3;
                    marks += 1;
                    frame.seal(data);
                }
            });
            let (_folder, paths) = files(&changed);
            let found = profile(&paths);
            assert!(marks > 20, "{name}, node {node}");
            assert_eq!(health_sum(&found, |own| own.ecn_ce_packets), marks, "{name}, node {node}");
            let bins: u64 = found.timeline.iter().map(|bin| bin.congestion.ecn_ce_packets).sum();
            assert_eq!(bins, marks, "{name}, node {node}: time series");
            let by_path: u64 =
                found.connections.iter().flat_map(|row| &row.paths).map(|path| path.ecn_ce_packets).sum();
            assert_eq!(by_path, marks, "{name}, node {node}: paths");
        }
    }
}

/// All captures miss the same packets: a host that captures its own packets was too slow, or a mirror
/// lost the packets of several ports at a time.
#[test]
fn packets_that_all_ports_miss_prove_that_the_capture_is_incomplete() {
    for name in ["ompi-rc-halo-2x2", "ompi-rc-notrace-mixed-4x1"] {
        let run = runs::named(name);
        let captures = recordings(&run);
        let start_ns = captures[0].records[0].time_ns;
        // A tenth of the time, in the middle of the traffic.
        let is_kept = |time_ns: u64| (time_ns.saturating_sub(start_ns) / 20_000_000) % 10 != 5;
        let cut: Vec<Recording> =
            captures.iter().map(|own| partial::keep(own, |_, record| is_kept(record.time_ns))).collect();
        let dropped: usize = captures.iter().zip(&cut).map(|(all, kept)| all.records.len() - kept.records.len()).sum();
        let (_folder, paths) = files(&cut);
        let found = profile(&paths);
        let missed = health_sum(&found, |own| own.lost_at_least);
        assert!(missed > 0, "{name}: {dropped} records dropped");
        assert_eq!(found.trust.verdict, TrustVerdict::Incomplete, "{name}: {:?}", found.trust);
        let bounds = found.trust.lost_by_capture_packets;
        assert!(bounds.at_least > 0 && bounds.at_least <= dropped as u64, "{name}: {bounds:?} of {dropped}");
        let arguments = [OsStr::new("diagnose")].into_iter().chain(paths.iter().map(|path| path.as_os_str()));
        let shown = ibscope(arguments).stdout;
        assert!(shown.contains("capture_incomplete") && !shown.contains("straggler"), "{name}: {shown}");
    }
}

/// The mirror of one port records one packet in five twice.
#[test]
fn records_that_one_port_repeats_are_no_retransmissions() {
    for name in ["ompi-rc-mixed-2x2", "ompi-rc-halo-2x2"] {
        let run = runs::named(name);
        let captures = recordings(&run);
        let truth = profile(&files(&captures).1);
        let retransmitted =
            |found: &Profile| -> u64 { data_connections(found).map(|row| row.retransmissions.packets()).sum() };
        let mut repeated = captures.clone();
        let twice = captures[0].records.iter().enumerate().flat_map(|(number, record)| {
            let is_packet = PacketFrame::read(captures[0].link_type, record).is_some();
            std::iter::repeat_n(record.clone(), if is_packet && number % 5 == 0 { 2 } else { 1 })
        });
        repeated[0] = captures[0].with(twice.collect());
        let (_folder, paths) = files(&repeated);
        let found = profile(&paths);
        assert!(retransmitted(&found) <= retransmitted(&truth), "{name}: {} retransmitted", retransmitted(&found));
        for row in data_connections(&found) {
            let key = |row: &ibscope::model::profile::ConnectionRow| (row.src, row.dst, row.service, row.dest_qp);
            let own = data_connections(&truth).find(|own| key(own) == key(row)).expect("the same connection");
            let is_unknown = row.coverage.state == CoverageState::Unknown;
            assert!(row.traffic.packets <= own.traffic.packets || is_unknown, "{name}: {row:?}");
            assert!(
                row.retransmissions == own.retransmissions || row.coverage.state != CoverageState::Complete,
                "{name}"
            );
        }
        let arguments = [OsStr::new("diagnose")].into_iter().chain(paths.iter().map(|path| path.as_os_str()));
        let shown = ibscope(arguments).stdout;
        assert!(!shown.contains("fabric_loss"), "{name}: {shown}");
    }
}
