//! The tracer eztrace sends messages of its own, which are on the wire and not in its trace. Its
//! definitions prove their number, and nothing beyond them is attributed to it.

use super::{archive, read, with_profile};
use crate::runs::{self, RecordedRun};
use crate::tools::ibscope;
use ibscope::crosscheck::{Cause, CrosscheckError, CrosscheckVerdict, MessageSums, PairComparison, Tracer, otf2};
use ibscope::model::Profile;
use ibscope::pipeline::{AnalysisOptions, analyze};
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// NAS FT: collective operations only.
fn ft() -> RecordedRun {
    runs::of_second_set("ompi-rc-ft.S-2x2")
}

fn analyzed(run: &RecordedRun) -> Profile {
    analyze(&[run.sink()], &AnalysisOptions::default(), &|_| {}).expect("profile")
}

/// The archive in the output of `otf2-print`.
fn printed(path: &Path) -> String {
    let output = Command::new("otf2-print").arg("-A").arg(path).output().expect("otf2-print");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_program_of_collectives_alone_is_compared() {
    let run = ft();
    let path = archive(&run).expect("archive");
    let ran = ibscope([OsStr::new("crosscheck"), run.sink().as_os_str(), path.as_os_str()]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(
        ran.stdout.contains("2 explained") && ran.stdout.contains("the wire and the trace agree"),
        "{}",
        ran.stdout
    );
    // 0 and 1, 2 and 3, in both directions.
    assert!(ran.stdout.contains("4 pairs of ranks: not on the wire"), "{}", ran.stdout);
    // Each rank calls `MPI_Alltoall` 8 times, `MPI_Reduce` 6, `MPI_Bcast` 2 and `MPI_Barrier` once
    // (four ranks; 68 events).
    for operation in ["alltoall         32", "barrier           4", "bcast             8", "reduce           24"] {
        let words: Vec<&str> = operation.split_whitespace().collect();
        let is_it = |line: &str| line.split_whitespace().take(2).eq(words.iter().copied());
        assert!(ran.stdout.lines().any(is_it), "{operation}: {}", ran.stdout);
    }
}

/// The messages of each rank follow from its definitions: they equal the messages that the wire has
/// beyond the program's messages.
#[test]
fn definitions_prove_the_tracers_messages_of_every_recorded_run() {
    let runs = runs::all().into_iter().filter(|run| run.truth("wire.csv").is_some()).chain([ft()]);
    let mut checked = 0;
    for run in runs {
        let Some(path) = archive(&run) else { continue };
        let trace = read(&path);
        let (truth, wire) = (run.truth("truth.csv").expect("truth"), run.truth("wire.csv").expect("wire"));
        if trace.tracer != Tracer::Eztrace {
            assert!(trace.own.is_empty(), "{}", run.name);
            continue;
        }
        let nodes = run.node_of_rank();
        assert_eq!(trace.own.keys().copied().collect::<Vec<u32>>(), (1..nodes.len() as u32).collect::<Vec<u32>>());
        for (rank, [kinds, contents]) in trace.own.iter().filter(|(rank, _)| nodes[rank] != nodes[&0]) {
            let of = |table: &std::collections::BTreeMap<(u32, u32), (u64, u64)>| {
                table.get(&(*rank, 0)).copied().unwrap_or_default()
            };
            let (all, own) = (of(&wire), of(&truth));
            let beyond = (all.0 - own.0, all.1 - own.1);
            assert_eq!(
                (kinds.messages + contents.messages, kinds.bytes + contents.bytes),
                beyond,
                "{}: rank {rank}",
                run.name
            );
            checked += 1;
        }
    }
    // 9 runs of two ranks, 7 of four on two nodes, 1 of four on four.
    assert_eq!(checked, 9 + 2 * 7 + 3, "senders on another node than rank 0");
}

/// With one region less in the archive of FT, one message of tag 17 and one of tag 18 are
/// unexplained.
#[test]
fn messages_beyond_the_definitions_are_not_explained() {
    let run = ft();
    let text = printed(&archive(&run).expect("archive"));
    let profile = analyzed(&run);
    let region = text
        .lines()
        .find(|line| line.starts_with("REGION") && line.contains(" 1073741828 "))
        .expect("mpi_reduce_ of rank 2");
    let trace = otf2::parse(Path::new("ft.otf2"), text.replace(&format!("{region}\n"), "").as_bytes()).expect("trace");
    // 4 bytes of tag 17, 8 of tag 18.
    let refused = with_profile(&trace, &profile).expect_err("two messages are the program's then");
    assert!(
        matches!(refused, CrosscheckError::NoMessages { tracer: Tracer::Eztrace, messages: 2, bytes: 12 }),
        "{refused}"
    );
    assert!(
        refused.to_string().contains("eztrace -t openmpi") && !refused.to_string().contains("Score-P"),
        "{refused}"
    );
}

/// With one region more, the wire has fewer messages than eztrace must have sent; all of them are
/// its.
#[test]
fn fewer_messages_than_proven_are_still_the_tracers() {
    let run = ft();
    let text = printed(&archive(&run).expect("archive"));
    let region = text
        .lines()
        .find(|line| line.starts_with("REGION") && line.contains(" 1073741828 "))
        .expect("mpi_reduce_ of rank 2");
    let more = text.replace(region, &format!("{region}\n{}", region.replace("1073741828", "1073741900")));
    let trace = otf2::parse(Path::new("ft.otf2"), more.as_bytes()).expect("trace");
    let result = with_profile(&trace, &analyzed(&run)).expect("compared");
    let own = |pair: &PairComparison| (pair.src, pair.dst, pair.tracer, pair.verdict, pair.causes.clone());
    // From wire.csv.
    let sums = MessageSums { messages: 48, bytes: 341 };
    let expected =
        [(2, 0), (3, 0)].map(|(src, dst)| (src, dst, sums, CrosscheckVerdict::Explained, vec![Cause::Tracer]));
    assert_eq!(result.pairs.iter().map(own).collect::<Vec<_>>(), expected);
}
