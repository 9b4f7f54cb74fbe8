//! Archives written for the tests: what no recorded run has. The captures beside them are recorded.

use super::{Description, Noted, noted, read, with_captures, with_profile};
use crate::runs::{self, Run};
use crate::tools::{Ran, ibscope};
use ibscope::crosscheck::{CrosscheckError, Sums, Verdict};
use ibscope::pipeline::{Options, analyze};
use serde_json::json;
use std::ffi::OsStr;
use std::path::Path;

/// Four ranks on four nodes, traced by nothing: the wire holds the program's messages alone.
fn untraced() -> Run {
    runs::named("ompi-rc-notrace-mixed-4x1")
}

/// An archive of what the program noted of its sends.
fn archive(folder: &Path, sends: &[Noted], threads: u32) -> std::path::PathBuf {
    let mut description = Description::new(4, threads);
    description.sends(sends);
    description.write(folder)
}

fn crosscheck(run: &Run, archive: &Path, more: &[&str]) -> Ran {
    let captures = run.every_node();
    let arguments = [OsStr::new("crosscheck")].into_iter().chain(captures.iter().map(|path| path.as_os_str()));
    ibscope(arguments.chain([archive.as_os_str()]).chain(more.iter().map(OsStr::new)))
}

/// Between different nodes, so that it is on the wire.
fn between(sends: &[Noted]) -> usize {
    sends.iter().position(|(_, src, dst, _, bytes)| src != dst && *bytes > 0).expect("a send")
}

#[test]
fn several_threads_of_a_rank_are_one_rank() {
    let (run, folder) = (untraced(), tempfile::tempdir().expect("folder"));
    let sends = noted(&run);
    let trace = read(&archive(folder.path(), &sends, 3));
    let result = with_captures(&trace, &run.every_node());
    assert_eq!(result.pairs.len(), 12);
    for pair in &result.pairs {
        assert_eq!((pair.verdict, pair.excess()), (Verdict::Equal, (0, 0)), "{pair:?}");
    }
    assert_eq!(trace.ranks.len(), 4);
    // The archive's times are those of the nodes' clocks, from the first send on; without receives a clock is known by the shortest delay.
    let first_ns = sends.iter().map(|send| send.0).min().expect("a send");
    for clock in &result.clocks.ranks {
        assert!((clock.offset_ns - first_ns).abs() < 1_500_000, "{clock:?}, not {first_ns}");
    }
    assert_eq!(result.clocks.ranks.len(), 4);
}

#[test]
fn one_changed_byte_count_is_found_and_named() {
    let (run, folder) = (untraced(), tempfile::tempdir().expect("folder"));
    let mut sends = noted(&run);
    let at = between(&sends);
    sends[at].4 += 1;
    let (_, src, dst, tag, _) = sends[at];
    let ran = crosscheck(&run, &archive(folder.path(), &sends, 1), &[]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    assert!(ran.stdout.contains("DIFFER"), "{}", ran.stdout);
    let named = format!("rank {src} to {dst}, tag {tag} over MPI_COMM_WORLD (context 0 on the wire): the trace has");
    assert!(ran.stdout.contains(&named), "{named}: {}", ran.stdout);
    assert_eq!(ran.stdout.matches("unexplained").count(), 2, "in the counts and at the pair: {}", ran.stdout);
}

#[test]
fn one_dropped_event_is_found_and_named() {
    let (run, folder) = (untraced(), tempfile::tempdir().expect("folder"));
    let mut sends = noted(&run);
    let (_, src, dst, tag, bytes) = sends.remove(between(&sends));
    let path = archive(folder.path(), &sends, 1);
    let ran = crosscheck(&run, &path, &["--format", "json"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).expect("json");
    assert_eq!(json["agrees"], false);
    let pairs = json["crosscheck"]["pairs"].as_array().expect("pairs");
    let bad: Vec<&serde_json::Value> = pairs.iter().filter(|pair| pair["verdict"] != "equal").collect();
    assert_eq!(bad.len(), 1, "{bad:?}");
    assert_eq!((&bad[0]["src"], &bad[0]["dst"]), (&json!(src), &json!(dst)));
    let differences = bad[0]["differences"].as_array().expect("differences");
    assert_eq!(differences.len(), 1);
    let of = |side: &str, what: &str| differences[0][side][what].as_u64().expect("number");
    assert_eq!(differences[0]["tag"], json!(tag));
    assert_eq!(
        (of("wire", "messages") - of("trace", "messages"), of("wire", "bytes") - of("trace", "bytes")),
        (1, bytes)
    );
    // One message of some hundred is within two percent of the messages of the run, not of its pair.
    let ran = crosscheck(&run, &path, &["--tolerance", "100"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("1 tolerated"), "{}", ran.stdout);
}

#[test]
fn messages_before_the_capture_began_are_explained() {
    let run = runs::named("ompi-rc-ring2");
    let path = super::archive(&run).expect("archive");
    let captures = run.every_node();
    let whole = with_captures(&read(&path), &captures);
    // In the middle of the program's messages, by the clock of rank 0.
    let profile = analyze(&captures, &Options::default(), &|_| {}).expect("profile");
    let start_ns = profile.coverage.first_time_ns.expect("time");
    let sends: Vec<i64> = noted(&run).into_iter().map(|send| send.0).collect();
    let middle_ns = sends[sends.len() / 2];
    let late = format!("{}", (middle_ns - start_ns) as f64 / 1e9);
    for option in ["--from", "--to"] {
        let ran = crosscheck(&run, &path, &[option, &late[..late.len().min(11)]]);
        assert_eq!(ran.code, 0, "{option} {late}: {} {}", ran.stdout, ran.stderr);
        assert!(ran.stdout.contains("before or after the capture"), "{}", ran.stdout);
        assert!(!ran.stdout.contains("unexplained"), "{}", ran.stdout);
    }
    assert!(whole.pairs.iter().all(|pair| pair.missing == Sums::default()));
}

#[test]
fn traces_without_point_to_point_events_are_told_from_differences() {
    let (run, folder) = (untraced(), tempfile::tempdir().expect("folder"));
    let mut description = Description::new(4, 1);
    for rank in 0..4 {
        description.events.push(json!([rank, 0, "work", 100]));
        description.events.push(json!([rank, 0, "collective", 200, "BARRIER", 0, null, 0, 0]));
    }
    let path = description.write(folder.path());
    let ran = crosscheck(&run, &path, &[]);
    assert_eq!(ran.code, 1, "{}", ran.stdout);
    assert!(
        ran.stderr.contains("the trace holds no point-to-point message, and the wire shows 120 of the program"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("SCOREP_MPI_ENABLE_GROUPS"), "{}", ran.stderr);
    assert_eq!(ran.stdout, "");
    let ran = crosscheck(&run, &path, &["--collectives-only"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("barrier"), "{}", ran.stdout);
}

#[test]
fn one_sided_operations_and_messages_to_oneself_are_read() {
    let (run, folder) = (untraced(), tempfile::tempdir().expect("folder"));
    let mut description = Description::new(4, 1);
    description.communicators.push(json!({ "name": "my \"own\" <1>, Tag: 5", "members": null }));
    description.communicators.push(json!({ "name": "", "members": [3, 1] }));
    description.sends(&noted(&run));
    let end = 1_900_000_000_000_000_000_i64;
    for (index, event) in [
        json!([0, 0, "put", end, 1, 4096]),
        json!([0, 0, "put", end, 1, 4]),
        json!([0, 0, "get", end, 2, 100]),
        json!([3, 0, "atomic", end, 0, 8, 16]),
        json!([2, 0, "send", end, 0, 1, 7, 1000]),
        json!([1, 0, "isend", end, 1, 2, 7, 0]),
        json!([2, 0, "flush", end]),
    ]
    .into_iter()
    .enumerate()
    {
        assert!(index < 7);
        description.events.push(event);
    }
    let trace = read(&description.write(folder.path()));
    let sums = |messages, bytes| Sums { messages, bytes };
    let expected = [((0, 1), sums(2, 4100)), ((2, 0), sums(1, 100)), ((3, 0), sums(1, 8)), ((0, 3), sums(1, 16))];
    assert_eq!(trace.rma, expected.into());
    let profile = analyze(&run.every_node(), &Options::default(), &|_| {}).expect("profile");
    let result = with_profile(&trace, &profile).expect("compared");
    let own = result.pairs.iter().find(|pair| (pair.src, pair.dst) == (2, 2)).expect("rank 2 to itself");
    assert_eq!((own.trace, own.verdict), (sums(1, 1000), Verdict::Explained));
    // Over the communicator of ranks 3 and 1, its rank 1 is world rank 1: to itself again.
    let own = result.pairs.iter().find(|pair| (pair.src, pair.dst) == (1, 1)).expect("rank 1 to itself");
    assert_eq!((own.trace, own.verdict), (sums(1, 0), Verdict::Explained));
    assert_eq!(result.one_sided.len(), 4);
    assert!(result.notes.iter().any(|note| note.contains("wrote out its buffers 1 times")), "{:?}", result.notes);
}

/// Score-P's own messages go over a communicator that is not in its trace. A program's messages over such a one are none of its.
#[test]
fn what_only_looks_like_the_tracers_own_is_not() {
    let run = runs::named("scorep-ompi-rc-halo-4x1");
    let trace = read(&super::archive(&run).expect("archive"));
    let profile = analyze(&run.every_node(), &Options::default(), &|_| {}).expect("profile");
    let whole = with_profile(&trace, &profile).expect("compared");
    assert!(whole.pairs.iter().all(|pair| pair.verdict != Verdict::Unexplained));
    let folder = tempfile::tempdir().expect("folder");
    // The same run as if its Cartesian communicator were not in the trace, but one message on MPI_COMM_WORLD were.
    let mut description = Description::new(4, 1);
    description.creator = "Score-P 8.4";
    description.sends(&[(1_000, 0, 1, 99, 5)]);
    let result = with_profile(&read(&description.write(folder.path())), &profile);
    let unexplained: u64 = result.map_or(0, |result| {
        result
            .pairs
            .iter()
            .filter(|pair| pair.verdict == Verdict::Unexplained)
            .map(|pair| pair.wire.messages - pair.tracer.messages)
            .sum()
    });
    // 4 x 80 messages of the halo exchange, tags 0 to 3.
    assert_eq!(unexplained, 320);
}

#[test]
fn a_trace_of_another_run_is_refused_where_nothing_fits() {
    let (run, folder) = (untraced(), tempfile::tempdir().expect("folder"));
    let mut description = Description::new(8, 1);
    description.sends(&[(0, 4, 5, 1, 100), (10, 6, 7, 1, 100)]);
    let profile = analyze(&run.every_node(), &Options::default(), &|_| {}).expect("profile");
    let refused = with_profile(&read(&description.write(folder.path())), &profile).expect_err("nothing in common");
    assert!(matches!(refused, CrosscheckError::NothingInCommon { in_trace: 2, on_wire: 120 }), "{refused}");
}
