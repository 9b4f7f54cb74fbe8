//! Records that are not in the order of capture: a note says so, and no packet counts as lost.

use crate::concatenated::{TimedRecord, read, write};
use crate::recorded::profile;
use crate::runs::{self, RecordedRun, VARIED};
use crate::tools::in_parallel;
use ibscope::model::{Profile, TrustVerdict};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Records that a thread of the capturing program writes at a time.
const BLOCK: usize = 64;
const THREADS: usize = 4;

/// The records as several threads write them: each takes every fourth, and writes a block when it has
/// one.
fn written_by_threads(records: &[TimedRecord]) -> Vec<TimedRecord> {
    let blocks = records.chunks(BLOCK * THREADS);
    let of_thread = |block: &[TimedRecord], thread| block.iter().skip(thread).step_by(THREADS).cloned().collect();
    blocks
        .flat_map(|block| (0..THREADS).flat_map(move |thread| -> Vec<TimedRecord> { of_thread(block, thread) }))
        .collect()
}

fn note(profile: &Profile) -> Option<&String> {
    profile.notes.iter().find(|note| note.contains("not in the order of capture"))
}

#[test]
fn blocks_of_several_threads_are_noted_and_prove_no_loss() {
    let all: Vec<RecordedRun> = VARIED.iter().map(|name| runs::named(name)).collect();
    let noted = AtomicUsize::new(0);
    in_parallel(&all, |_, run| {
        let (header, _) = read(&run.node(1));
        let mut records: Vec<TimedRecord> = run.every_node().iter().flat_map(|path| read(path).1).collect();
        records.sort_by_key(|(time_ns, _)| *time_ns);
        let folder = tempfile::tempdir().expect("folder");
        let sorted = profile(&[write(folder.path(), "sorted.pcap", &header, &records)]);
        assert_eq!((note(&sorted), sorted.coverage.time_backwards), (None, 0), "{}", run.name);

        let unsorted = written_by_threads(&records);
        let steps = unsorted.windows(2).map(|pair| pair[0].0 - pair[1].0).filter(|step_ns| *step_ns > 0);
        let (count, longest_ns) = steps.fold((0, 0), |(count, longest): (u64, i64), ns| (count + 1, longest.max(ns)));
        let found = profile(&[write(folder.path(), "unsorted.pcap", &header, &unsorted)]);
        let coverage = &found.coverage;
        assert_eq!((coverage.time_backwards, coverage.longest_backwards_ns), (count, longest_ns), "{}", run.name);
        // A few or short steps prove no disorder.
        if count < 16 || longest_ns < 1_000_000 {
            assert_eq!(note(&found), None, "{}: {count}", run.name);
            return;
        }
        noted.fetch_add(1, Ordering::Relaxed);
        let expected = format!("{count} of {} records are earlier than the record before", records.len());
        assert!(note(&found).is_some_and(|note| note.contains(&expected)), "{}: {:?}", run.name, found.notes);
        assert_eq!(found.trust.verdict, TrustVerdict::Unknown, "{}: {:?}", run.name, found.trust);
        assert_eq!(found.trust.lost_by_capture_packets.at_least, 0, "{}", run.name);
        assert!(found.trust.reasons.iter().any(|reason| reason.contains("order of capture")), "{}", run.name);
    });
    assert!(noted.load(Ordering::Relaxed) > VARIED.len() / 2);
}

#[test]
fn a_clock_that_is_set_back_is_no_disorder() {
    let (header, mut records) = read(&runs::named(VARIED[0]).node(1));
    let middle = records.len() / 2;
    records.rotate_left(middle);
    let folder = tempfile::tempdir().expect("folder");
    let found = profile(&[write(folder.path(), "set-back.pcap", &header, &records)]);
    assert_eq!((note(&found), found.coverage.time_backwards), (None, 1));
}
