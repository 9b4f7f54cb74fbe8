//! The table of snap lengths in docs/method.md: with each stated length the messages by pair of
//! ranks are those of the whole capture, and with one byte less some are missing.

use crate::runs;
use crate::wire::{data_connections, profile, profile_of};
use ibscope::analysis::GroupBy;
use ibscope::analysis::matrix::{Selection, matrix};
use ibscope::model::profile::CoverageState;
use ibscope::model::{JobRank, Profile, Trust, TrustVerdict};
use ibscope_samples::hard::{Recording, combine, partial};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Messages, bytes and coverage by sender and receiver.
type RankSums = BTreeMap<(JobRank, JobRank), (u64, u64, CoverageState)>;

/// The recorded run whose library has the longest header of a row.
const RUNS: [(&str, &str); 7] = [
    ("`openib`, SEND", "ompi-openib-ring2"),
    ("`openib`, eager RDMA", "ompi-openib-eagerrdma-ring2"),
    ("UCX RC", "ompi-rc-ring2"),
    ("UCX UD", "ompi-ud-ring2"),
    ("libfabric rxm", "ompi-ofi-ring2"),
    ("NCCL 2.12 to 2.19, up to 4 receives together", "nccl2.18-ring-2x1"),
    ("NCCL 2.20 and later", "nccl-ring-2x1"),
];

/// ERF header 16, LRH 8, BTH 12.
const NATIVE_BYTES: usize = 36;
/// Ethernet 14, IPv4 20, UDP 8, BTH 12.
const ROCE_BYTES: usize = 54;

/// The rows of the table: name, and lengths in bytes after the BTH, native, and of `RoCEv2`.
fn rows() -> Vec<(String, [usize; 3])> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/method.md");
    let text = std::fs::read_to_string(path).expect("docs/method.md");
    let table = text.split("## Captures with a snap length").nth(1).expect("section").lines();
    let table = table.skip_while(|line| !line.starts_with("|---")).skip(1).take_while(|line| line.starts_with('|'));
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        (cells[0].to_owned(), [1, 2, 3].map(|at| cells[at].parse().expect("a length")))
    };
    table.map(row).collect()
}

fn by_rank(captures: &[Recording], snap_bytes: usize) -> RankSums {
    let folder = tempfile::tempdir().expect("folder");
    let write = |(number, capture): (usize, &Recording)| {
        let path = folder.path().join(format!("{number}.pcap"));
        partial::truncate(capture, snap_bytes).write(&path).expect("capture");
        path
    };
    let paths: Vec<PathBuf> = captures.iter().enumerate().map(write).collect();
    let matrix = matrix(&profile(&paths), GroupBy::Rank, Selection::All);
    let cells = matrix.rows().filter(|(.., cell)| cell.messages > 0);
    let sums = cells.filter_map(|(src, dst, cell)| {
        let pair = (src.process()?, dst.process()?);
        Some((pair, (cell.messages, cell.mpi_bytes.unwrap_or_default(), cell.coverage.state)))
    });
    sums.collect()
}

#[test]
fn each_row_of_the_table_is_exact() {
    let rows = rows();
    assert_eq!(rows.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), RUNS.map(|(name, _)| name));
    for ((name, [header, native, roce]), (_, run)) in rows.iter().zip(RUNS) {
        assert_eq!((*native, *roce), (NATIVE_BYTES + header, ROCE_BYTES + header), "{name}");
        let run = runs::of_any_set(run);
        for (paths, snap_bytes) in [(vec![run.sink()], *native), (run.every_node(), *roce)] {
            let captures: Vec<Recording> = paths.iter().map(|path| Recording::read(path).expect("capture")).collect();
            let whole = by_rank(&captures, usize::MAX);
            assert!(!whole.is_empty(), "{name}");
            assert_eq!(by_rank(&captures, snap_bytes), whole, "{name}: {snap_bytes} bytes");
            let messages = |sums: &RankSums| sums.values().map(|(messages, ..)| messages).sum::<u64>();
            let fewer = by_rank(&captures, snap_bytes - 1);
            assert!(messages(&fewer) < messages(&whole), "{name}: {} bytes are enough", snap_bytes - 1);
        }
    }
}

/// A pair whose envelopes may be beyond the end of the records is never called complete.
#[test]
fn pairs_that_may_miss_messages_are_not_complete() {
    for ((name, [header, ..]), (_, run)) in rows().iter().zip(RUNS) {
        let run = runs::of_any_set(run);
        for (paths, headers_bytes) in [(vec![run.sink()], NATIVE_BYTES), (run.every_node(), ROCE_BYTES)] {
            let captures: Vec<Recording> = paths.iter().map(|path| Recording::read(path).expect("capture")).collect();
            let whole = by_rank(&captures, usize::MAX);
            for snap_bytes in (headers_bytes..headers_bytes + header).step_by(6) {
                for (pair, sums) in by_rank(&captures, snap_bytes) {
                    let is_complete = sums.2 == CoverageState::Complete;
                    assert!(!is_complete || whole[&pair] == sums, "{name}: {snap_bytes} bytes: {pair:?}: {sums:?}");
                }
            }
        }
    }
}

/// One port is captured whole, the other one up to a byte within the DETH (bytes 54 to 61), so that its
/// datagrams have no source queue pair and do not equal those of the first port. No packet is missing.
#[test]
fn datagrams_without_a_source_queue_pair_prove_no_loss() {
    for name in ["ompi-rc-mixed-2x2", "ompi-ud-ring2"] {
        let run = runs::named(name);
        let [one, other] = [1, 2].map(|node| Recording::read(&run.node(node)).expect("capture"));
        let packets = |profile: &Profile| {
            let mut pairs: BTreeMap<_, (u64, bool)> = BTreeMap::new();
            for row in data_connections(profile) {
                let pair = pairs.entry((row.src, row.dst)).or_default();
                pair.0 += row.traffic.packets;
                pair.1 |= row.coverage.state == CoverageState::Unknown;
            }
            pairs
        };
        let expected = packets(&profile_of(&combine::merge(&[one.clone(), other.clone()])));
        for snap_bytes in [ROCE_BYTES + 4, ROCE_BYTES + 7] {
            let truncated = partial::truncate(&other, snap_bytes);
            let folder = tempfile::tempdir().expect("folder");
            let paths = [("1.pcap", &one), ("2.pcap", &truncated)].map(|(name, capture)| {
                let path = folder.path().join(name);
                capture.write(&path).expect("capture");
                path
            });
            for found in [profile_of(&combine::merge(&[one.clone(), truncated.clone()])), profile(&paths)] {
                let case = format!("{name}, {snap_bytes} bytes: {:?}", found.trust);
                assert_eq!(found.trust.verdict, TrustVerdict::Unknown, "{case}");
                let Trust { lost_by_capture_packets, lost_on_fabric_packets, .. } = found.trust;
                assert_eq!((lost_by_capture_packets.at_least, lost_on_fabric_packets.at_least), (0, 0), "{case}");
                assert!(found.trust.input_losses.is_empty(), "{case}");
                for (pair, (packets, is_unknown)) in packets(&found) {
                    assert!(is_unknown || packets == expected[&pair].0, "{case}: {pair:?}: {packets}");
                }
            }
        }
    }
}
