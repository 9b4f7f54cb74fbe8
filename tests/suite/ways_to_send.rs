//! Programs that send in many ways, over several transports and protocols of UCX and libfabric
//! (`samples/runs4`): every message counts, and captures that begin late or miss connections do not look
//! complete.

use crate::connection_parts::by_connection;
use crate::runs::{self, RecordedRun, decompressed};
use crate::tools::{HEADER_BYTES, csv_rows, result, walk};
use ibscope_samples::hard::Recording;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Records between two starts of late captures.
const STEP: usize = 5;
/// Starts of late captures, from the first record on: the connections are set up, and the first messages
/// follow.
const STARTS: usize = 100;

/// Captures that miss half of the connections.
const SUBSETS: u64 = 24;

/// Messages and bytes of a pair of ranks, and whether they are complete.
type Cell = ((u64, u64), bool);

/// The cells with both ranks whose counts are known.
fn cells(captures: &[PathBuf]) -> BTreeMap<(u32, u32), Cell> {
    let text = result(&["matrix", "--by", "rank", "--format", "csv"], captures);
    let number = |text: &str| text.parse::<u64>().unwrap_or_else(|_| panic!("{text:?} is no number"));
    let rows = csv_rows(&text);
    let known = rows.iter().filter(|row| row["src"].parse::<u32>().is_ok() && row["dst"].parse::<u32>().is_ok());
    // Other cells are empty.
    let cells = known.filter(|row| !row["messages"].is_empty() && !row["mpi_bytes"].is_empty()).map(|row| {
        let counts = (number(&row["messages"]), number(&row["mpi_bytes"]));
        ((number(&row["src"]) as u32, number(&row["dst"]) as u32), (counts, row["coverage"] == "complete"))
    });
    cells.collect()
}

/// Messages and bytes between ranks of different nodes, as the program counted them.
fn sent(run: &RecordedRun) -> BTreeMap<(u32, u32), (u64, u64)> {
    let nodes = run.node_of_rank();
    let mut truth = run.truth("truth.csv").expect("truth.csv");
    truth.retain(|(src, dst), _| nodes[src] != nodes[dst]);
    truth
}

#[test]
fn every_way_to_send_counts() {
    for run in runs::of_fourth_set() {
        let mut found = cells(&run.every_node());
        found.retain(|_, (counts, _)| *counts != (0, 0));
        let counts: BTreeMap<_, _> = found.iter().map(|(pair, (counts, _))| (*pair, *counts)).collect();
        assert_eq!(counts, sent(&run), "{}", run.name);
    }
}

/// The first records of a file are left out, as if the capture had begun after them. A cell that is
/// `complete` has all messages of its pair, and no cell has more.
#[test]
fn late_captures_of_datagrams_are_complete_only_without_loss() {
    let folder = tempfile::tempdir().expect("folder");
    let late = folder.path().join("late.pcap");
    for run in runs::of_fourth_set().iter().filter(|run| run.name.contains("-ud-")) {
        let (whole, sent) = (decompressed(&run.every_node()[0]), sent(run));
        let mut incomplete = 0;
        for record in walk(&whole).iter().step_by(STEP).take(STARTS) {
            let start = record.place.start;
            std::fs::write(&late, [&whole[..HEADER_BYTES], &whole[start..]].concat()).expect("capture");
            for (pair, (counts, is_complete)) in cells(std::slice::from_ref(&late)) {
                let all = sent.get(&pair).copied().unwrap_or_default();
                let place = format!("{}, from byte {start}, {pair:?}: {counts:?} of {all:?}", run.name);
                assert!(counts.0 <= all.0 && counts.1 <= all.1, "{place}");
                assert!(!is_complete || counts == all, "{place}");
                incomplete += u32::from(counts != all);
            }
        }
        assert!(incomplete > 0, "{}: no message is before any start", run.name);
    }
}

/// Four ranks per node exchange equal messages, and UCX starts all connections at PSN 0. Half of the
/// connections are left out: no cell has the messages of another pair of ranks.
#[test]
fn captures_without_some_connections_exchange_no_ranks() {
    let folder = tempfile::tempdir().expect("folder");
    let some = folder.path().join("some.pcap");
    let runs = runs::of_fourth_set();
    let run = runs.iter().find(|run| run.name.contains("lulesh")).expect("a run of LULESH");
    let (whole, sent) = (Recording::read(&run.node(1)).expect("recording"), sent(run));
    let mut known = 0;
    for seed in 0..SUBSETS {
        by_connection(&whole, 2, seed)[0].write(&some).expect("capture");
        for (pair, (counts, is_complete)) in cells(std::slice::from_ref(&some)) {
            let all = sent.get(&pair).copied().unwrap_or_default();
            let place = format!("subset {seed}, {pair:?}: {counts:?} of {all:?}");
            assert!(counts.0 <= all.0 && counts.1 <= all.1, "{place}");
            assert!(!is_complete || counts == all, "{place}");
            known += u64::from(counts == all && counts.0 > 0);
        }
    }
    assert!(known > SUBSETS, "only {known} cells have the messages of their pair");
}
