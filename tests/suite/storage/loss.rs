//! Storage commands of captures that miss packets, or parts of packets.
//!
//! The truth is the same recording without losses.

use super::{RUNS, RunTruth, found, only, run};
use crate::runs;
use crate::wire::profile_of;
use ibscope::analysis::storage::{SizeKey, Storage};
use ibscope::model::{Histogram, Profile, StorageRowKind};
use ibscope::render::storage as rendered;
use ibscope::render::text::{self, Style};
use ibscope_samples::Random;
use ibscope_samples::hard::{Recording, partial};
use std::collections::BTreeMap;

const NVME: &RunTruth = &RUNS[0];

fn client_port(truth: &RunTruth) -> Recording {
    Recording::read(&run(truth).folder.join("node1.pcap.zst")).expect("capture")
}

/// The longest time by direction and size; the size of a command does not depend on losses.
fn longest(sizes: &BTreeMap<SizeKey, Histogram>) -> BTreeMap<(&'static str, u64), u64> {
    sizes.iter().map(|(key, times)| ((key.kind, key.from_bytes), times.max())).collect()
}

fn assert_within(storage: &Storage, truth: &Storage, case: &str) {
    let expected = longest(&truth.sizes);
    // Commands of an admin queue, if losses hide the kind of the queue.
    let hides_kind = storage.operations.keys().any(|key| key.kind == StorageRowKind::Unknown);
    for (size, ns) in longest(&storage.sizes).into_iter().filter(|_| !hides_kind) {
        assert!(ns <= expected[&size], "{case}: {size:?} {ns} ns, truth {} ns", expected[&size]);
    }
    let most = only(truth).1.most_outstanding.expect("a capture without losses");
    for totals in storage.pairs.values() {
        assert!(totals.outstanding_at_least <= most, "{case}: {totals:?}");
        assert!(totals.most_outstanding.is_none_or(|found| found == most), "{case}: {totals:?}");
        assert!(totals.untimed == 0 || storage.notes.iter().any(|note| note.contains("the times of")), "{case}");
    }
}

/// A time is that of a command, so none is longer than the longest.
#[test]
fn commands_of_a_capture_with_losses_have_no_longer_times() {
    let recording = client_port(NVME);
    let whole = profile_of(&recording);
    let truth = found(&whole);
    let limits = "these numbers; `ibscope storage`";
    let is_limited = |profile: &Profile| text::summary(profile, &Style { color: false, width: 80 }).contains(limits);
    assert!(truth.notes.is_empty() && !is_limited(&whole), "{:?}", truth.notes);
    for per_mille in [10, 50, 200, 500, 900] {
        for (seed, burst) in [(1, 1), (2, 1), (3, 1), (4, 5), (5, 20)] {
            let lossy = partial::lose(&recording, per_mille, burst, &mut Random::new(seed));
            let profile = profile_of(&lossy);
            let storage = found(&profile);
            assert_eq!(is_limited(&profile), !storage.notes.is_empty());
            let case = format!("{per_mille} of 1000 lost, seed {seed}, bursts of {burst}");
            assert_within(&storage, &truth, &case);
            if per_mille <= 50 {
                let (_, totals) = only(&storage);
                let completed = totals.commands.expect("commands") - totals.without_completion;
                assert!(totals.times.samples() * 2 >= completed, "{case}: {totals:?}");
                assert_eq!(totals.times.samples() + totals.untimed, completed, "{case}");
            }
        }
    }
}

/// The bytes of NFS need more of a packet than these headers: nothing is recognized.
#[test]
fn truncated_captures_without_a_command_are_unknown() {
    for truth in &RUNS[..2] {
        let storage = found(&profile_of(&partial::truncate(&client_port(truth), 64)));
        assert!(storage.pairs.is_empty(), "{:?}", storage.pairs);
        let because = "packets are truncated (snap length 64)";
        assert_eq!(storage.unknown_because.as_deref(), Some(because), "{}", truth.run);
        let text = format!("storage commands are unknown, because {because}\n");
        assert_eq!([rendered::table(&storage), rendered::sizes(&storage)], [text.clone(), text]);
    }
    // All connections are those of MPI.
    let mpi = Recording::read(&runs::of_any_set("ompi-rc-ring2").sink()).expect("capture");
    let storage = found(&profile_of(&partial::truncate(&mpi, 100)));
    assert_eq!((storage.pairs.len(), storage.unknown_because), (0, None));
}

/// Each number of a truncated capture is the right one or unknown with a reason.
#[test]
fn truncated_captures_have_no_wrong_number() {
    for truth in &RUNS {
        let recording = client_port(truth);
        let mut complete = 0;
        for snap_bytes in [62, 74, 84, 94, 100, 118, 130, 150, 174, 190, 212, 256, 320, 384] {
            let storage = found(&profile_of(&partial::truncate(&recording, snap_bytes)));
            let case = format!("{}, {snap_bytes} bytes: {:?} {:?}", truth.run, storage.pairs, storage.notes);
            assert!(storage.pairs.len() <= 1, "{case}");
            for totals in storage.pairs.values() {
                let numbers = [
                    (totals.commands, truth.commands),
                    (totals.read_bytes, truth.read_bytes),
                    (totals.written_bytes, truth.written_bytes),
                    (totals.errors, 0),
                ];
                assert!(numbers.iter().all(|(number, truth)| number.is_none_or(|number| number == *truth)), "{case}");
                let is_complete = numbers.iter().all(|(number, _)| number.is_some());
                assert!(is_complete || !storage.notes.is_empty(), "{case}");
                complete += u32::from(is_complete);
            }
        }
        assert!((1..14).contains(&complete), "{}: {complete}", truth.run);
    }
}
