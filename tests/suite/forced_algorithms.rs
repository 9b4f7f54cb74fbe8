//! The collective operations of runs in which the program forced their algorithms, compared with the
//! calls that it logged.

use crate::collectives::{instances, matched_with, number};
use crate::runs;
use crate::tools::{CsvRow, in_parallel};
use std::sync::Mutex;

/// The runs without calls that the wire cannot show.
const RUNS: [&str; 11] = [
    "mpich4.2-coll-allgather-algos-4x1",
    "mpich4.2-coll-alltoall-algos-4x1",
    "mpich4.2-coll-barrier-algos-4x1",
    "mpich4.2-coll-reduce-algos-4x1",
    "ompi5-coll-allgather-algos-2x2",
    "ompi5-coll-alltoall-algos-2x2",
    "ompi5-coll-alltoall-algos-4x1",
    "ompi5-coll-barrier-algos-2x2",
    "ompi5-coll-barrier-algos-4x1",
    "ompi5-coll-reduce-algos-2x2",
    "ompi5-coll-reduce-algos-4x1",
];

/// Prefix of the run, operation, number of the algorithm, and its name.
const NAMES: [(&str, &str, &str, &str); 28] = [
    ("ompi5", "Allgather", "2", "bruck"),
    ("ompi5", "Allgather", "3", "recursive_doubling"),
    ("ompi5", "Allgather", "4", "ring"),
    ("ompi5", "Allgather", "5", "neighbor_exchange"),
    ("ompi5", "Alltoall", "1", "linear"),
    ("ompi5", "Alltoall", "2", "pairwise"),
    ("ompi5", "Alltoall", "3", "bruck"),
    ("ompi5", "Alltoall", "4", "linear"),
    ("ompi5", "Barrier", "1", "linear"),
    ("ompi5", "Barrier", "2", "double_ring"),
    ("ompi5", "Barrier", "3", "recursive_doubling"),
    ("ompi5", "Barrier", "4", "dissemination"),
    ("ompi5", "Barrier", "6", "tree"),
    ("ompi5", "Reduce", "1", "linear"),
    ("ompi5", "Reduce", "2", "chain"),
    ("ompi5", "Reduce", "3", "pipeline"),
    ("ompi5", "Reduce", "4", "binary"),
    ("ompi5", "Reduce", "5", "binomial"),
    ("ompi5", "Reduce", "6", "in_order_binary"),
    ("ompi5", "Reduce", "7", "rabenseifner"),
    ("mpich", "Allgather", "5", "ring"),
    ("mpich", "Allgather", "6", "recursive_doubling"),
    ("mpich", "Allgather", "7", "recursive_exchange"),
    ("mpich", "Alltoall", "4", "pairwise"),
    ("mpich", "Alltoall", "6", "linear"),
    ("mpich", "Barrier", "3", "dissemination"),
    ("mpich", "Barrier", "4", "recursive_doubling"),
    ("mpich", "Reduce", "1", "binomial"),
];

/// The name of the algorithm that sends the messages of a call. The fallbacks are those of the
/// sources of the libraries (see the README of the runs).
fn forced(run: &str, call: &CsvRow) -> &'static str {
    let ranks = call["comm_ranks"].split(' ').count() as i64;
    let is_power = ranks & (ranks - 1) == 0;
    let has_few = number(call, "bytes") / 8 < ranks;
    let (operation, algorithm) = (call["operation"].as_str(), call["alg"].as_str());
    match (run.starts_with("mpich"), operation, algorithm) {
        (true, "Allgather" | "Alltoall", "1" | "2") => "bruck",
        (true, "Allgather", "4") => {
            if is_power {
                "recursive_doubling"
            } else {
                "bruck"
            }
        }
        // With two ranks that remain, the distances are those of recursive doubling.
        (true, "Allgather", "7") if ranks < 4 => "recursive_doubling",
        (true, "Reduce", "4") => {
            if has_few {
                "binomial"
            } else {
                "rabenseifner"
            }
        }
        (false, "Allgather", "3") if !is_power => "bruck",
        // Two ranks exchange their blocks, as in a ring.
        (false, "Allgather", "5") if ranks % 2 == 1 || ranks == 2 => "ring",
        (false, "Reduce", "7") if has_few => "linear",
        _ => {
            let is_own =
                |row: &&(&str, &str, &str, &str)| run.starts_with(row.0) && row.1 == operation && row.2 == algorithm;
            NAMES.iter().find(is_own).unwrap_or_else(|| panic!("{run}: {call:?}")).3
        }
    }
}

#[test]
fn every_logged_call_is_one_row_with_its_algorithm() {
    in_parallel(&RUNS, |_, name| {
        let run = runs::of_third_set(name);
        let (pairs, rest) = matched_with(&run, instances(&run.every_node()));
        for (call, row) in &pairs {
            let expected = forced(name, call);
            let names: Vec<&str> = row["algorithm"].split('|').collect();
            let is_pair = call["comm_ranks"].split(' ').count() == 2;
            // Between two ranks, both rounds of a double ring are a barrier, and the parts of
            // Rabenseifner's Reduce look like segments.
            let is_one_of_several = ["double_ring", "rabenseifner"].contains(&expected);
            let is_low_pair = is_pair && is_one_of_several && row["confidence"] != "high";
            assert!(names.contains(&expected) || is_low_pair, "{name}: {expected} for {call:?}, found {names:?}");
            // What another algorithm could have sent is not certain.
            assert!(names.len() == 1 || row["confidence"] != "high", "{name}: {row:?}");
            assert!(row["bytes"] == call["bytes"], "{name}: {call:?}, found {row:?}");
        }
        for row in &rest {
            assert_ne!(row["confidence"], "unknown", "{name}: {row:?}");
        }
    });
}

/// Where a library calls two operations, or truncates tags, no row is a wrong operation with high
/// or medium confidence.
#[test]
fn calls_that_the_wire_cannot_show_are_not_certain() {
    for (name, least) in [("ompi5-coll-allreduce-two-calls-4x1", 12), ("ompi5-coll-allgather-algos-4x1", 33)] {
        let run = runs::of_third_set(name);
        let rows = instances(&run.every_node());
        let calls = crate::tools::csv_rows(&std::fs::read_to_string(run.folder.join("coll_truth.csv")).expect("truth"));
        let mut right = 0;
        for call in &calls {
            let (first_ns, last_ns) = (number(call, "first_entry_ns"), number(call, "last_exit_ns"));
            let is_in = |row: &&CsvRow| {
                (first_ns..=last_ns).contains(&number(row, "start_ns")) && row["communicator"] != "world"
            };
            let own: Vec<&CsvRow> = rows.iter().filter(is_in).collect();
            let operation = call["operation"].to_lowercase();
            let is_right = |row: &&&CsvRow| row["operation"] == operation && row["bytes"] == call["bytes"];
            right += usize::from(own.iter().any(|row| is_right(&row)));
            for row in own.iter().filter(|row| !is_right(row)) {
                let is_uncertain = ["low", "unknown"].contains(&row["confidence"].as_str());
                // The 4 bytes by which the library agrees on a new communicator come in between.
                assert!(is_uncertain || row["bytes"] == "4", "{name}: {row:?} in {call:?}");
            }
        }
        assert!(right >= least, "{name}: {right} of {}", calls.len());
    }
}

/// The rows that name the last rank name the one of the log, and its skew differs by no more than the
/// stalls of the emulated machines.
#[test]
fn the_rank_that_entered_last_is_that_of_the_log() {
    let skews_ms = Mutex::new(Vec::new());
    in_parallel(&RUNS, |_, name| {
        let run = runs::of_third_set(name);
        let (pairs, _) = matched_with(&run, instances(&run.every_node()));
        for (call, row) in pairs.iter().filter(|(_, row)| !row["last_rank"].is_empty()) {
            assert_eq!(row["last_rank"], call["last_entering_rank"], "{name}: {call:?}");
            if !row["skew_ns"].is_empty() {
                let difference_ns = number(row, "skew_ns") - number(call, "last_minus_second_last_entry_ns");
                skews_ms.lock().expect("lock").push(difference_ns.abs() / 1_000_000);
            }
        }
    });
    let mut skews_ms = skews_ms.into_inner().expect("lock");
    skews_ms.sort_unstable();
    assert!(skews_ms.len() >= 50, "{} skews", skews_ms.len());
    assert!(skews_ms[skews_ms.len() * 3 / 4] <= 2, "{skews_ms:?}");
}
