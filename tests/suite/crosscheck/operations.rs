//! Collective operations of recorded traces compared with those on the wire, one by one.

use super::recorded::traced;
use super::{archive, read, with_captures};
use crate::runs;
use crate::tools::{CsvRow, csv_rows, ibscope, in_parallel, result};
use ibscope::crosscheck::{OperationComparison, OperationResult, Tracer};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// Calls of rank 0 by operation and communicator, as `otf2-print` lists them.
fn calls_of_one_rank(archive: &Path) -> BTreeMap<String, usize> {
    let output = Command::new("otf2-print").args(["-A", "-L", "0", "--"]).arg(archive).output().expect("otf2-print");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut calls = BTreeMap::new();
    let ends = ["MPI_COLLECTIVE_END ", "NON_BLOCKING_COLLECTIVE_COMPLETE "];
    for line in text.lines().filter(|line| ends.iter().any(|end| line.starts_with(end))) {
        let (_, rest) = line.split_once("Operation: ").expect("operation");
        let (operation, rest) = rest.split_once(", ").expect("communicator");
        let name = rest.split('"').nth(1).expect("name");
        if !operation.ends_with("_HANDLE") {
            *calls.entry(format!("{} {name}", operation.to_lowercase())).or_default() += 1;
        }
    }
    calls
}

fn is_found(row: &OperationComparison) -> bool {
    [OperationResult::Equal, OperationResult::OtherCommunicator].contains(&row.result)
}

/// On all runs with a trace, the wire has each operation of the trace, in its order, with its name.
/// Where the clocks of the ranks are known, all packets lie within the calls.
#[test]
fn the_wire_has_each_operation_of_the_trace() {
    in_parallel(&traced(), |_, run| {
        let path = archive(run).expect("archive");
        let trace = read(&path);
        for captures in [vec![run.sink()], run.every_node()] {
            let result = with_captures(&trace, &captures);
            let found = result.operations.expect("operations");
            let in_trace: Vec<&OperationComparison> =
                found.rows.iter().filter(|row| row.result.is_in_trace()).collect();
            for row in &in_trace {
                assert!(is_found(row), "{}: {row:?}", run.name);
                assert_eq!(row.operation, row.wire_operation, "{}: {row:?}", run.name);
                assert!(row.outside_ns.is_none_or(|ns| ns == 0), "{}: {row:?}", run.name);
            }
            // As many as rank 0 calls, and those of the communicator "odd", which has other ranks.
            let mut counts: BTreeMap<String, usize> = BTreeMap::new();
            for row in &in_trace {
                let communicator = row.communicator.as_deref().expect("communicator");
                let name = if communicator.starts_with("unnamed") { "" } else { communicator };
                *counts.entry(format!("{} {name}", row.operation.expect("operation"))).or_default() += 1;
            }
            if let Some(odd) = counts.remove("allgather odd") {
                assert_eq!(odd, 5, "{}", run.name);
            }
            assert_eq!(counts, calls_of_one_rank(&path), "{}", run.name);
            // Both are in the order of time, on each communicator.
            for of_one in in_trace.chunk_by(|a, b| a.communicator == b.communicator) {
                assert!(of_one.is_sorted_by_key(|row| row.number) && of_one.is_sorted_by_key(|row| row.start_ns));
            }
            // Two runs with two ranks per node do not show the clocks: a rank only sends to others.
            let has_clocks = !["ompi-rc-mw-2x2", "scorep-ompi-rc-mw-2x2"].contains(&run.name.as_str());
            let timed = in_trace.iter().filter(|row| row.outside_ns.is_some() && row.entry_ns.is_some()).count();
            assert_eq!(timed, if has_clocks { in_trace.len() } else { 0 }, "{}", run.name);
            // Score-P records the calls in which the library sends operations of its own.
            if matches!(trace.tracer, Tracer::ScoreP(_)) && has_clocks {
                assert!(found.of_tracer > 0, "{}", run.name);
                let others = found.rows.iter().filter(|row| row.result == OperationResult::OnlyOnWire);
                assert_eq!(others.count(), 0, "{}", run.name);
            }
        }
    });
}

/// Two ranks per node. MPICH's barriers are between the leaders of the nodes, whose context id is
/// derived from that of `MPI_COMM_WORLD`. Open MPI's Allreduces on a communicator of all ranks are on
/// the wire between 0 and 2, and between 1 and 3.
#[test]
fn operations_of_several_ranks_per_node_are_on_the_communicator_of_the_call() {
    let expected = [
        ("mpich-rc-mixed-2x2", "barrier", "MPI_COMM_WORLD", "world"),
        ("ompi-rc-halo-2x2", "allreduce", "MPI_COMM_4", "5/0"),
    ];
    for (name, operation, communicator, on_wire) in expected {
        let run = runs::named(name);
        let trace = read(&archive(&run).expect("archive"));
        let found = with_captures(&trace, &[run.sink()]).operations.expect("operations");
        let is_own = |row: &&OperationComparison| {
            row.operation == Some(operation) && row.communicator.as_deref() == Some(communicator)
        };
        let rows: Vec<&OperationComparison> = found.rows.iter().filter(is_own).collect();
        assert_eq!(rows.len(), 2, "{name}");
        for row in rows {
            assert_eq!(row.result, OperationResult::Equal, "{name}: {row:?}");
            assert_eq!(row.wire_communicator.as_deref(), Some(on_wire), "{name}: {row:?}");
        }
    }
    let rows = csv_rows(&result(
        &["collectives", "--view", "instances", "--format", "csv"],
        &[runs::named("ompi-rc-halo-2x2").sink()],
    ));
    let is_own = |row: &&CsvRow| row["operation"] == "allreduce" && row["communicator"].starts_with("5/");
    let own: Vec<(&str, &str)> =
        rows.iter().filter(is_own).map(|row| (row["ranks"].as_str(), row["bytes"].as_str())).collect();
    // `halo` reduces one double per call.
    assert_eq!(own, [("4", "8"), ("4", "8")]);
}

#[test]
fn the_command_lists_and_counts_operations() {
    let run = runs::named("scorep-ompi-rc-coll-4x1");
    let trace = run.folder.join("trace/traces.otf2");
    let inputs = [run.sink(), trace];
    let text = result(&["crosscheck"], &inputs);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("one by one: 42 of 42 in the trace are on the wire, in the same order; 42 of 42 have all packets within their calls"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80 || line.starts_with("trace ")), "{text}");
    let rows = csv_rows(&result(&["crosscheck", "--view", "instances", "--format", "csv"], &inputs));
    assert_eq!(rows.iter().filter(|row| row["result"] == "equal").count(), 42);
    let document: serde_json::Value =
        serde_json::from_str(&result(&["crosscheck", "--format", "json"], &inputs)).expect("JSON");
    assert_eq!(document["instances"].as_array().expect("rows").len(), rows.len());
}

#[test]
fn a_profile_has_no_single_operations() {
    let run = runs::named("scorep-ompi-rc-ring-2x1");
    let folder = tempfile::tempdir().expect("folder");
    let profile = folder.path().join("job.ibp");
    result(&["analyze", "-o", profile.to_str().expect("path")], &[run.sink()]);
    let trace = run.folder.join("trace/traces.otf2");
    let arguments = ["crosscheck", "--view", "instances", "--format", "csv"].map(OsStr::new);
    let ran = ibscope(arguments.into_iter().chain([profile.as_os_str(), trace.as_os_str()]));
    assert_eq!((ran.code, csv_rows(&ran.stdout).len()), (0, 0), "{}", ran.stderr);
    assert!(ran.stderr.contains("single collective operations are not compared; give the captures"), "{}", ran.stderr);
}
