//! The large tests, run by `make soak`: more than 256 MiB of captures, or 1 MiB that was made to
//! cost time. Their small versions are in `tests/suite`.

mod archive;
mod crafted;
mod exports;
#[path = "../suite/joined.rs"]
#[allow(dead_code)]
mod joined;
#[path = "../suite/memory.rs"]
mod memory;
// The suite uses parts of these modules that the large tests do not use.
#[path = "../suite/runs.rs"]
#[allow(dead_code)]
mod runs;
#[path = "../suite/tools.rs"]
#[allow(dead_code)]
mod tools;
#[path = "../suite/unknown.rs"]
mod unknown;
#[path = "../suite/wire.rs"]
#[allow(dead_code)]
mod wire;
#[path = "../suite/writing.rs"]
#[allow(dead_code)]
mod writing;

use ibscope_samples::SampleTotals;
use memory::{ANALYZE, MATRIX, MAX_BYTES, MIB, assert_whole, generate, generate_of, run};
use std::path::Path;

/// Checks that each command needs less memory than its limit for a capture, and that it reads the
/// whole capture.
fn assert_bounded(capture: &Path, totals: &SampleTotals, most_bytes: [(&[&str], u64); 2]) {
    for (arguments, most_bytes) in most_bytes {
        let (peak_bytes, printed) = run(arguments, capture);
        let measured = format!("{arguments:?}: {} MiB", peak_bytes / MIB);
        println!("{measured}");
        assert!(peak_bytes < most_bytes, "{measured}");
        if arguments == MATRIX {
            assert_whole(&printed, totals);
        }
    }
}

#[test]
fn memory_is_bounded_on_two_gibibytes() {
    let folder = tempfile::tempdir().expect("folder");
    let capture = folder.path().join("capture.pcap");
    let totals = generate(&capture, 2048 * MIB);
    assert_bounded(&capture, &totals, [(ANALYZE, MAX_BYTES), (MATRIX, MAX_BYTES)]);
}

/// A hundred thousand directed connections with some two hundred packets each take about 4 KiB
/// each, and 1 KiB for the matrix alone, in addition to the memory of every run. A fifth is the
/// margin for differences between systems.
#[test]
fn memory_of_a_hundred_thousand_connections() {
    let folder = tempfile::tempdir().expect("folder");
    let capture = folder.path().join("capture.pcap");
    let options = ibscope_samples::SampleOptions {
        bytes: 2048 * MIB,
        lids: 1563,
        qps: 1,
        ..ibscope_samples::SampleOptions::default()
    };
    let totals = generate_of(&capture, &options);
    assert_bounded(&capture, &totals, [(ANALYZE, 500 * MIB), (MATRIX, 170 * MIB)]);
}

#[test]
fn ten_million_random_packets_are_unknown() {
    unknown::random_payloads_stay_unknown(10_000_000);
}

#[test]
fn ten_million_packets_of_other_protocols_are_no_job() {
    unknown::shaped_payloads_are_no_job(10_000_000);
}

#[test]
fn a_command_ended_at_a_random_moment_leaves_only_whole_results() {
    writing::end_at_random_moments(200);
}

#[test]
fn any_two_runs_are_distinguished_within_a_window() {
    let names: Vec<String> = joined::runs_with_sends().into_iter().map(|(run, _)| run.name).collect();
    let pairs: Vec<[String; 2]> = names
        .iter()
        .flat_map(|first| {
            names.iter().filter(move |second| *second != first).map(|second| [first.clone(), second.clone()])
        })
        .collect();
    assert_eq!(pairs.len(), 462);
    let missed = joined::missed(&pairs);
    assert_eq!(missed, Vec::<String>::new());
}
