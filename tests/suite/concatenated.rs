//! Captures joined into one file, and the same capture given twice: every packet counts once, or a
//! note says that packets may count twice. Messages and payload count once in any case.
//!
//! The expected sums are those of the captures of the ports, given as separate files once each.

use crate::recorded::{matrix, profile};
use crate::runs::{self, RecordedRun, VARIED, decompressed};
use crate::tools::{HEADER_BYTES, RawRecord, in_parallel, walk};
use ibscope::model::profile::{ConnectionRow, CoverageState};
use ibscope::model::{Profile, Trust, TrustVerdict};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const SECOND_NS: i64 = 1_000_000_000;
/// The service of datagrams: bits 7 to 5 of the opcode.
const UD: u8 = 3;

/// A record: its time in nanoseconds since the epoch, and its bytes with the header.
pub(crate) type TimedRecord = (i64, Vec<u8>);

/// The file header of a capture in nanoseconds, and its records.
pub(crate) fn read(path: &Path) -> (Vec<u8>, Vec<TimedRecord>) {
    let file = decompressed(path);
    assert_eq!(file[..4], 0xA1B2_3C4D_u32.to_le_bytes(), "times in nanoseconds, as `later` writes them");
    let record = |raw: &RawRecord| (raw.time_ns, file[raw.place.clone()].to_vec());
    (file[..HEADER_BYTES].to_vec(), walk(&file).iter().map(record).collect())
}

pub(crate) fn later(records: &[TimedRecord], by_ns: i64) -> Vec<TimedRecord> {
    let moved = |(time_ns, bytes): &TimedRecord| {
        let time_ns = time_ns + by_ns;
        let mut bytes = bytes.clone();
        bytes[0..4].copy_from_slice(&((time_ns / SECOND_NS) as u32).to_le_bytes());
        bytes[4..8].copy_from_slice(&((time_ns % SECOND_NS) as u32).to_le_bytes());
        (time_ns, bytes)
    };
    records.iter().map(moved).collect()
}

pub(crate) fn write(folder: &Path, name: &str, header: &[u8], records: &[TimedRecord]) -> PathBuf {
    let path = folder.join(name);
    let bytes: Vec<&[u8]> = std::iter::once(header).chain(records.iter().map(|(_, bytes)| bytes.as_slice())).collect();
    std::fs::write(&path, bytes.concat()).expect("written");
    path
}

/// Checks the sums. Where a connection has more gaps between its ACKs than are tracked, those of the
/// second capture in a file may count again, with a note.
fn check(found: &Profile, expected: &BTreeMap<(u8, u8), [u64; 3]>, case: &str) {
    let sums = matrix(found);
    if sums == *expected {
        return;
    }
    let without_packets = |sums: &BTreeMap<(u8, u8), [u64; 3]>| {
        let sums = sums.iter().map(|(pair, [messages, bytes, _])| (*pair, [*messages, *bytes]));
        sums.collect::<Vec<_>>()
    };
    assert_eq!(without_packets(&sums), without_packets(expected), "{case}");
    let has_note = found.notes.iter().any(|note| note.contains("Late retransmissions may count as new packets"));
    assert!(has_note, "{case}: {sums:?}, expected {expected:?}, notes {:?}", found.notes);
}

/// Ports of a lossless capture, one after the other in a file: what only one port holds was lost on the
/// fabric, and no packet was lost by the capture.
#[test]
fn joined_ports_prove_no_loss_by_the_capture() {
    for name in ["ompi-rc-loss1-ring2", "ompi-rc-mixed-2x2"] {
        let run = runs::named(name);
        let captures: Vec<(Vec<u8>, Vec<TimedRecord>)> = run.every_node().iter().map(|path| read(path)).collect();
        let joined: Vec<TimedRecord> = captures.iter().flat_map(|(_, records)| records.clone()).collect();
        let folder = tempfile::tempdir().expect("folder");
        let found = profile(&[write(folder.path(), "joined", &captures[0].0, &joined)]);
        let lost = found.trust.lost_by_capture_packets;
        assert!(found.trust.verdict != TrustVerdict::Incomplete && lost.at_least == 0, "{name}: {:?}", found.trust);
    }
}

/// Two ports in one file, by time, whose clocks differ by a second or more. Nothing was lost, and no
/// queue pair was reused.
#[test]
fn ports_with_clocks_seconds_apart_prove_no_loss() {
    for name in ["ompi-openib-ring2", "ompi-rc-mixed-2x2", "mpich-rc-mixed-2x2"] {
        let run = runs::named(name);
        let expected = profile(&run.every_node());
        let (header, first) = read(&run.node(1));
        let (_, second) = read(&run.node(2));
        let folder = tempfile::tempdir().expect("folder");
        for ahead_s in [1, 2, 10] {
            let case = format!("{name}, {ahead_s} s");
            let mut records = [first.clone(), later(&second, ahead_s * SECOND_NS)].concat();
            records.sort_by_key(|(time_ns, _)| *time_ns);
            let found = profile(&[write(folder.path(), "ahead.pcap", &header, &records)]);
            check(&found, &matrix(&expected), &case);
            let Trust { verdict, lost_by_capture_packets, lost_on_fabric_packets, .. } = &found.trust;
            assert!(matches!(verdict, TrustVerdict::Unknown), "{case}: {:?}", found.trust);
            assert_eq!((lost_by_capture_packets.at_least, lost_on_fabric_packets.at_least), (0, 0), "{case}");
            assert!(found.trust.input_losses.is_empty(), "{case}: {:?}", found.trust.input_losses);
            // Packets that are observed again may be those of a second connection.
            let is_unknown = |row: &ConnectionRow| row.coverage.state == CoverageState::Unknown;
            assert!(found.connections.iter().any(is_unknown), "{case}");
            // Datagrams that set up a connection have no retransmissions either.
            let retransmitted = |profile: &Profile| {
                let reliable = profile.connections.iter().filter(|row| row.service != UD);
                reliable.map(|row| row.retransmissions.packets()).sum::<u64>()
            };
            assert_eq!(retransmitted(&found), retransmitted(&expected), "{case}");
        }
    }
}

#[test]
fn ports_joined_into_one_file_count_once() {
    let mut all: Vec<RecordedRun> = VARIED.iter().map(|name| runs::named(name)).collect();
    all.push(runs::named("ompi-openib-notrace-mixed-4x1"));
    in_parallel(&all, |_, run| {
        let ports = run.every_node();
        let expected = matrix(&profile(&ports));
        let captures: Vec<(Vec<u8>, Vec<TimedRecord>)> = ports.iter().map(|path| read(path)).collect();
        let header = &captures[0].0;
        let mut joined: Vec<TimedRecord> = captures.iter().flat_map(|(_, records)| records.clone()).collect();
        let backwards: Vec<TimedRecord> = captures.iter().rev().flat_map(|(_, records)| records.clone()).collect();
        let folder = tempfile::tempdir().expect("folder");
        let forms = [("joined", joined.clone()), ("backwards", backwards)];
        joined.sort_by_key(|(time_ns, _)| *time_ns);
        for (name, records) in forms.into_iter().chain([("by-time", joined)]) {
            let path = write(folder.path(), name, header, &records);
            check(&profile(&[path]), &expected, &format!("{}, {name}", run.name));
        }
    });
}

#[test]
fn the_same_capture_twice_counts_once() {
    let all: Vec<RecordedRun> = VARIED.iter().map(|name| runs::named(name)).collect();
    in_parallel(&all, |_, run| {
        let (header, records) = read(&run.node(1));
        let folder = tempfile::tempdir().expect("folder");
        let file = |name: &str, records: &[TimedRecord]| write(folder.path(), name, &header, records);
        let one = file("one.pcap", &records);
        let expected = matrix(&profile(std::slice::from_ref(&one)));
        let appended = [records.clone(), records.clone()].concat();
        // Longer than the run, so that the second copy follows the first one.
        let repeated = [records.clone(), later(&records, 3600 * SECOND_NS)].concat();
        let moved = |name: &str, by_ns: i64| vec![one.clone(), file(name, &later(&records, by_ns))];
        let forms = [
            ("same file", vec![one.clone(), one.clone()]),
            ("100 us later", moved("us.pcap", 100_000)),
            ("1 s later", moved("second.pcap", SECOND_NS)),
            ("1 h later", moved("hour.pcap", 3600 * SECOND_NS)),
            ("appended", vec![file("appended.pcap", &appended)]),
            ("appended, 1 h later", vec![file("repeated.pcap", &repeated)]),
        ];
        for (name, paths) in forms {
            check(&profile(&paths), &expected, &format!("{}, {name}", run.name));
        }
    });
}
