//! The large tests, run by `make soak`: more than 256 MiB of captures. Their small versions are in `tests/suite`.

#[path = "../suite/memory.rs"]
mod memory;

use memory::{ANALYZE, MATRIX, MIB, MOST_BYTES, assert_whole, generate, run};

#[test]
fn memory_is_bounded_on_two_gibibytes() {
    let folder = tempfile::tempdir().expect("folder");
    let capture = folder.path().join("capture.pcap");
    let totals = generate(&capture, 2048 * MIB);
    for arguments in [ANALYZE, MATRIX] {
        let (peak_bytes, printed) = run(arguments, &capture);
        let measured = format!("{arguments:?}: {} MiB", peak_bytes / MIB);
        println!("{measured}");
        assert!(peak_bytes < MOST_BYTES, "{measured}");
        if arguments == MATRIX {
            assert_whole(&printed, &totals);
        }
    }
}
