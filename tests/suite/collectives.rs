//! The collective operations of recorded runs, one by one, compared with the calls that their
//! programs logged (`coll_truth.csv`).

use crate::runs::{self, RecordedRun};
use crate::tools::{CsvRow, csv_rows, ibscope, in_parallel, result};
use ibscope_samples::Random;
use ibscope_samples::hard::Recording;
use ibscope_samples::hard::partial::{SamplingScheme, SamplingUnit, keep, subsample};
use ibscope_samples::wrap::in_psample;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Mutex;

const RUNS: [&str; 5] = [
    "mpich4.2-coll-default-4x1",
    "ompi5-coll-allreduce-algos-4x1",
    "ompi5-coll-bcast-algos-4x1",
    "ompi5-coll-default-4x1",
    "ompi5-coll-nohan-2x2",
];

/// The rows of `ibscope collectives --view instances`.
pub(crate) fn instances(captures: &[PathBuf]) -> Vec<CsvRow> {
    csv_rows(&result(&["collectives", "--view", "instances", "--format", "csv"], captures))
}

pub(crate) fn number(row: &CsvRow, column: &str) -> i64 {
    row[column].parse().expect("number")
}

/// True if the row is the operation of the logged call: on its communicator, at its time.
fn is_call(row: &CsvRow, call: &CsvRow) -> bool {
    // Guest clocks differ from the clock of the capture by less than 1 ms. Senders leave some
    // calls before their data are on the wire.
    let start_ns = number(row, "start_ns");
    let is_in_time =
        start_ns >= number(call, "first_entry_ns") - 1_000_000 && start_ns <= number(call, "last_exit_ns") + 60_000_000;
    let members: Vec<&str> = call["comm_ranks"].split(' ').collect();
    let communicator = &row["communicator"];
    let is_communicator = if call["comm"] == "world" {
        communicator == "world"
    } else {
        let lowest = members.iter().min().expect("members");
        communicator.ends_with(&format!("/{lowest}"))
    };
    let bytes = &row["bytes"];
    is_in_time
        && is_communicator
        && row["ranks"] == members.len().to_string()
        && row["operation"] == call["operation"].to_lowercase()
        && (bytes.is_empty() || *bytes == call["bytes"])
}

/// The name of the algorithm that the run forced. Open MPI falls back for vectors with fewer
/// elements than ranks, and to the plain ring if a block fits into a segment of 16 KiB.
fn forced_algorithm(call: &CsvRow) -> Option<&'static str> {
    let ranks = call["comm_ranks"].split(' ').count() as i64;
    let bytes = number(call, "bytes");
    Some(match (call["operation"].as_str(), call["alg"].as_str()) {
        ("Allreduce", "6") if bytes == 8 => "reduce_bcast",
        ("Allreduce", "3" | "4" | "5") if bytes == 8 => "recursive_doubling",
        ("Allreduce", "3") => "recursive_doubling",
        ("Allreduce", "5") if bytes / ranks > 16_384 => "segmented_ring",
        ("Allreduce", "4" | "5") => "ring",
        ("Allreduce", "6") => "rabenseifner",
        ("Bcast", "6") => "binomial",
        ("Bcast", "2") => "chain",
        ("Bcast", "3") => "pipeline",
        _ => return None,
    })
}

/// The logged calls of a run, each with its row, and the rows without a call.
fn matched(run: &str) -> (Vec<(CsvRow, CsvRow)>, Vec<CsvRow>) {
    let run = runs::of_second_set(run);
    let rows = instances(&[run.sink()]);
    matched_with(&run, rows)
}

pub(crate) fn matched_with(run: &RecordedRun, mut rows: Vec<CsvRow>) -> (Vec<(CsvRow, CsvRow)>, Vec<CsvRow>) {
    let calls = csv_rows(&std::fs::read_to_string(run.folder.join("coll_truth.csv")).expect("truth"));
    let pairs = calls.into_iter().map(|call| {
        let found = rows.iter().position(|row| is_call(row, &call));
        let found = found.unwrap_or_else(|| panic!("{}: no row for {call:?}", run.name));
        let row = rows.remove(found);
        (call, row)
    });
    (pairs.collect(), rows)
}

#[test]
fn every_logged_call_is_one_row_with_its_operation_and_algorithm() {
    in_parallel(&RUNS, |_, run| {
        let (pairs, rest) = matched(run);
        for (call, row) in &pairs {
            let names: Vec<&str> = row["algorithm"].split('|').collect();
            assert_ne!(names, ["unknown"], "{run}: {call:?}");
            if let Some(name) = forced_algorithm(call) {
                assert!(names.contains(&name), "{run}: {name} for {call:?}, found {names:?}");
            }
            // On two nodes, half of a Reduce_scatter_block is not on the wire: its block may have
            // several lengths.
            let is_hidden = run.ends_with("2x2") && call["operation"] == "Reduce_scatter_block";
            assert_eq!(row["bytes"].is_empty(), is_hidden, "{run}: {call:?}");
        }
        // The other rows are calls that the program does not log: those of MPI_Comm_dup, _split and
        // _free, the broadcast of the start time, and the last barrier. One comes inside a call:
        // the 4 bytes by which Open MPI's han agrees on a new communicator.
        for row in &rest {
            let start_ns = number(row, "start_ns");
            let is_inside = pairs
                .iter()
                .any(|(call, _)| start_ns > number(call, "first_entry_ns") && start_ns < number(call, "first_exit_ns"));
            assert!(!is_inside || row["bytes"] == "4", "{run}: {row:?}");
            assert_ne!(row["confidence"], "unknown", "{run}: {row:?}");
        }
    });
}

/// The machines are emulated and stall for tens of milliseconds between a call and its first packet,
/// which the wire cannot distinguish from a late call.
#[test]
fn the_rank_that_entered_last_is_that_of_the_log() {
    let found = Mutex::new(Vec::new());
    in_parallel(&RUNS, |_, run| {
        let named = matched(run).0.into_iter().filter(|(_, row)| !row["last_rank"].is_empty());
        let is_right = named.map(|(call, row)| call["last_entering_rank"] == row["last_rank"]);
        found.lock().expect("lock").extend(is_right);
    });
    let found: Vec<bool> = found.into_inner().expect("lock");
    let right = found.iter().filter(|is_right| **is_right).count();
    assert!(right >= 15 && right * 5 >= found.len() * 4, "{right} of {} are right", found.len());
}

/// The captures at the ports of the nodes have the same operations as those of the switch.
#[test]
fn captures_of_the_nodes_have_the_same_operations() {
    let run = runs::of_second_set("ompi5-coll-default-4x1");
    let without_times = |rows: Vec<CsvRow>| -> Vec<[String; 5]> {
        let columns = ["communicator", "instance", "operation", "algorithm", "bytes"];
        rows.into_iter().map(|row| columns.map(|column| row[column].clone())).collect()
    };
    assert_eq!(without_times(instances(&run.every_node())), without_times(instances(&[run.sink()])));
}

#[test]
fn a_note_says_that_operations_have_no_endpoints() {
    let capture = runs::of_second_set("ompi5-coll-default-4x1").sink();
    let arguments = ["collectives", "--view", "instances", "--by", "endpoint"].map(OsStr::new);
    let ran = ibscope(arguments.into_iter().chain([capture.as_os_str()]));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("--by does not change --view instances"), "{}", ran.stderr);
}

/// One record in 33 is missing: ibscope may assign messages of later calls to an earlier one.
#[test]
fn operations_with_missing_messages_have_low_confidence() {
    let run = runs::of_second_set("ompi5-coll-allreduce-algos-4x1");
    let folder = tempfile::tempdir().expect("folder");
    let lossy = |path: PathBuf| {
        let place = folder.path().join(path.with_extension("").file_name().expect("name"));
        let whole = Recording::read(&path).expect("capture");
        keep(&whole, |index, _| index % 33 != 7).write(&place).expect("written");
        place
    };
    let rows = instances(&run.every_node().into_iter().take(1).map(lossy).collect::<Vec<_>>());
    assert!(rows.len() > 5, "{rows:?}");
    assert!(rows.iter().all(|row| ["low", "unknown"].contains(&row["confidence"].as_str())), "{rows:?}");
    let place = folder.path().join("node1.pcap");
    let text = result(&["collectives", "--view", "instances"], &[place]);
    assert!(text.contains("? low confidence: several calls could send these messages"), "{text}");
    let whole = result(&["collectives", "--view", "instances"], &run.every_node());
    let is_low = |text: &str| text.contains("? low confidence");
    let has_low = instances(&run.every_node()).iter().any(|row| row["confidence"] == "low");
    assert_eq!(is_low(&whole), has_low);
}

/// Operations of a sampled capture are unknown, whether the user or the records state the rate, or it
/// follows from the missing packets.
#[test]
fn operations_of_a_sample_are_unknown() {
    let capture = runs::of_second_set("ompi5-coll-default-4x1").sink();
    let folder = tempfile::tempdir().expect("folder");
    let whole = Recording::read(&runs::named("scorep-ompi-rc-coll-4x1").node(1)).expect("a recording");
    let choice = (SamplingUnit::Record, SamplingScheme::Random);
    let sample = subsample(&[whole], 1, 4, choice, &mut Random::new(7)).remove(0);
    let [stated, inferred] = ["psample.pcap", "bare.pcap"].map(|name| folder.path().join(name));
    in_psample(&sample, 4).write(&stated).expect("written");
    sample.write(&inferred).expect("written");
    for (capture, sampled) in [(capture, Some("1/10")), (stated, None), (inferred, None)] {
        let run = |format: &str| {
            let rate = sampled.iter().flat_map(|rate| ["--sampled", rate]);
            let arguments = ["collectives", "--view", "instances", "--format", format].into_iter().chain(rate);
            let ran = ibscope(arguments.map(OsStr::new).chain([capture.as_os_str()]));
            assert_eq!(ran.code, 0, "{}", ran.stderr);
            ran.stdout
        };
        let text = run("table");
        let expected = "collective operations unknown, because the mirror sampled the packets";
        assert!(text.starts_with(expected), "{text}");
        assert_eq!(csv_rows(&run("csv")).len(), 0);
        let document: serde_json::Value = serde_json::from_str(&run("json")).expect("JSON");
        assert_eq!(document["instances"], serde_json::json!([]));
        assert!(document["unknown_because"].as_str().expect("reason").contains("sampled"), "{document}");
    }
}

/// Runs with `reduce_scatter_block`, with long names of algorithms, and with a second job.
#[test]
fn terminal_tables_fit_80_columns() {
    let runs = RUNS.iter().chain(&["twojobs-mixed-halo-2x1", "nccl-ring-2x1"]);
    for run in runs.map(|name| runs::of_second_set(name)) {
        for view in [&["collectives", "--view", "instances"][..], &["collectives"]] {
            let text = result(view, &[run.sink()]);
            let wide = text.lines().find(|line| line.chars().count() > 80);
            assert_eq!(wide, None, "{} {view:?}", run.name);
        }
    }
}

/// The trace of Score-P has 12 barriers, and 10 each of the other operations. Score-P adds a barrier
/// at the end, and duplicates the communicator, for which Open MPI calls three nonblocking Allreduces.
#[test]
fn the_number_of_operations_is_that_of_the_trace() {
    let rows = instances(&[runs::named("scorep-ompi-rc-coll-4x1").sink()]);
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for row in rows.iter().filter(|row| row["communicator"] == "world") {
        *counts.entry(row["operation"].as_str()).or_default() += 1;
    }
    let expected = [("allreduce", 10 + 3), ("alltoall", 10), ("barrier", 12 + 1), ("bcast", 10)];
    assert_eq!(counts, BTreeMap::from(expected));
}
