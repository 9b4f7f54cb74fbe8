//! Shares of the connections of a capture: merged, they equal one analysis of the whole capture, byte
//! for byte.

use crate::memory::generate_of;
use crate::merge::{analyzed, apart, assert_same, cut, merged, partial};
use crate::runs::{self, RecordedRun};
use crate::tools::{ibscope, in_parallel};
use ibscope::model::ConnectionShare;
use ibscope::pipeline::{self, AnalysisLimits, AnalysisOptions};
use ibscope_samples::hard::Recording;
use ibscope_samples::hard::split::rotate;

use std::path::{Path, PathBuf};

/// Analyzes the shares of a capture, each into a profile of its own.
fn shared(capture: &Path, options: &AnalysisOptions, of: u32, folder: &Path) -> Vec<PathBuf> {
    shared_together(&[capture.to_owned()], options, of, folder)
}

/// Analyzes the shares of captures that are analyzed together, each into a profile of its own.
fn shared_together(captures: &[PathBuf], options: &AnalysisOptions, of: u32, folder: &Path) -> Vec<PathBuf> {
    let name = captures[0].file_name().expect("name").to_string_lossy();
    let profile = |share: ConnectionShare| {
        let options = AnalysisOptions { share: Some(share), ..options.clone() };
        analyzed(captures, &options, &folder.join(format!("{name}-{}-of-{of}.ibp", share.number)))
    };
    ConnectionShare::all(of).map(profile).collect()
}

/// Runs of each kind: MPI over RC and UD, ranks that share a node, NCCL, storage, two jobs, rails.
const KINDS: [&str; 8] = [
    "ompi-openib-mixed-2x2",
    "ompi-ud-ring2",
    "mpich4.2-rc-mixed-2x2",
    "nccl2.30-ring-multirail-2x1",
    "mixed-mpi-plus-nfs",
    "nvmeof-dd-2",
    "twojobs-mixed-halo-2x1",
    "ompi5-ucx-rc-multirail-mixed-2x1",
];

#[test]
fn shares_of_a_sink_merge_to_the_whole() {
    let runs: Vec<RecordedRun> = KINDS.into_iter().map(runs::of_any_set).collect();
    in_parallel(&runs, |index, run| {
        let folder = tempfile::tempdir().expect("folder");
        let capture = if run.sink().exists() { run.sink() } else { run.every_node().remove(0) };
        let whole = analyzed(std::slice::from_ref(&capture), &partial(), &folder.path().join("whole.ibp"));
        let of = [2, 3, 16, ConnectionShare::MAX][index % 4];
        let mut shares = shared(&capture, &partial(), of, folder.path());
        shares.reverse();
        assert_same(&run.name, &merged(&shares, &folder.path().join("merged.ibp")), &whole);
    });
}

/// Many ports, so that every share has connections.
#[test]
fn shares_of_many_ports_merge_to_the_whole() {
    let folder = tempfile::tempdir().expect("folder");
    let capture = folder.path().join("wide.pcap");
    let options = ibscope_samples::SampleOptions { bytes: 1 << 20, lids: 32, ..Default::default() };
    generate_of(&capture, &options);
    let whole = analyzed(std::slice::from_ref(&capture), &partial(), &folder.path().join("whole.ibp"));
    let shares = shared(&capture, &partial(), 5, folder.path());
    assert_same("wide", &merged(&shares, &folder.path().join("merged.ibp")), &whole);
}

/// A small bound makes the bins of the whole wider than those of each share.
#[test]
fn shares_with_narrower_bins_than_the_whole_merge_to_it() {
    let run = runs::named("ompi-openib-mixed-2x2");
    let folder = tempfile::tempdir().expect("folder");
    let options = AnalysisOptions { limits: AnalysisLimits { max_cells: 8, ..AnalysisLimits::default() }, ..partial() };
    let whole = analyzed(&[run.sink()], &options, &folder.path().join("whole.ibp"));
    let bin_ns = pipeline::load(&whole).expect("profile").bin_ns;
    assert!(bin_ns > pipeline::DEFAULT_BIN_NS, "{bin_ns}");
    let shares = shared(&run.sink(), &options, 4, folder.path());
    assert_same("small bound", &merged(&shares, &folder.path().join("merged.ibp")), &whole);
}

/// Captures in shares merge with each other and with whole ones.
#[test]
fn shares_of_two_captures_merge_with_a_whole_one() {
    let run = runs::named("ompi-rc-notrace-mixed-4x1");
    let folder = tempfile::tempdir().expect("folder");
    let captures = run.every_node();
    let whole = analyzed(&captures, &partial(), &folder.path().join("whole.ibp"));
    let mut profiles = shared(&captures[0], &partial(), 3, folder.path());
    profiles.extend(shared(&captures[2], &partial(), 2, folder.path()));
    profiles.push(analyzed(&[captures[1].clone(), captures[3].clone()], &partial(), &folder.path().join("rest.ibp")));
    assert_same(&run.name, &merged(&profiles, &folder.path().join("merged.ibp")), &whole);
}

/// The files of one capture and another capture in each share.
#[test]
fn shares_of_the_files_of_a_capture_merge_to_the_whole() {
    let run = runs::named("ompi-rc-notrace-mixed-4x1");
    let folder = tempfile::tempdir().expect("folder");
    let mut captures = cut(&run.node(1), 3, folder.path());
    captures.push(run.node(2));
    captures.sort();
    let whole = analyzed(&captures, &partial(), &folder.path().join("whole.ibp"));
    let mut shares = shared_together(&captures, &partial(), 3, folder.path());
    shares.reverse();
    assert_same(&run.name, &merged(&shares, &folder.path().join("merged.ibp")), &whole);
    // Shares that do not fit together.
    let backwards: Vec<PathBuf> = captures.iter().rev().cloned().collect();
    for (captures, options, expected) in [
        (&backwards, &partial(), "different captures"),
        (&captures, &apart(&captures, &partial()), "different --streams"),
    ] {
        let other = folder.path().join("other");
        std::fs::create_dir_all(&other).expect("folder");
        shares[0] = shared_together(captures, options, 3, &other).remove(2);
        let error = pipeline::merge(&shares, &AnalysisOptions::default()).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// The second file repeats records of the first one, mixed with others. Each share finds those of its own
/// connections.
#[test]
fn shares_of_files_that_repeat_records_merge_to_the_whole() {
    const OVERLAP: usize = 600;
    let whole = Recording::read(&runs::named("ompi-openib-mixed-2x2").sink()).expect("capture");
    let folder = tempfile::tempdir().expect("folder");
    let point = whole.records.len() / 2;
    let mut files = rotate(&whole, &[point], OVERLAP);
    files[0].records.remove(point + OVERLAP / 2);
    let place = |file: usize| folder.path().join(format!("sink.{file}.pcap"));
    let captures: Vec<PathBuf> = (0..files.len()).map(place).collect();
    files.iter().zip(&captures).for_each(|(file, place)| file.write(place).expect("written"));
    let whole = analyzed(&captures, &partial(), &folder.path().join("whole.ibp"));
    let repeated = pipeline::load(&whole).expect("profile").coverage.overlap_packets;
    assert!((OVERLAP as u64 / 2..OVERLAP as u64).contains(&repeated), "{repeated}");
    let shares = shared_together(&captures, &partial(), 5, folder.path());
    assert_same("repeated records", &merged(&shares, &folder.path().join("merged.ibp")), &whole);
}

#[test]
fn a_share_is_never_taken_for_the_whole() {
    let run = runs::named("ompi-openib-mixed-2x2");
    let folder = tempfile::tempdir().expect("folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let sink = run.sink().display().to_string();
    for (share, name) in [("1/3", "1.ibp"), ("2/3", "2.ibp"), ("3/3", "3.ibp"), ("1/2", "half.ibp")] {
        let ran = ibscope(["analyze", &sink, "--partial", "--share", share, "-o", &at(name)]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert!(ran.stdout.starts_with(&format!("share {share}: ")), "{}", ran.stdout);
    }
    assert_eq!(ibscope(["analyze", &sink, "--partial", "-o", &at("whole.ibp")]).code, 0);
    for command in ["matrix", "summary", "ranks", "phases", "diagnose", "health"] {
        let ran = ibscope([command, &at("2.ibp")]);
        let expected = "it has share 2/3 of the connections of its capture; merge all shares";
        assert!(ran.code == 1 && ran.stderr.contains(expected), "{command}: {}{}", ran.stdout, ran.stderr);
        assert_eq!(ran.stdout, "", "{command}");
    }
    for (profiles, expected) in [
        (&["1.ibp", "3.ibp"][..], "1 of its 3 shares are missing: 2; analyze them with --share NUMBER/3"),
        (&["2.ibp"], "2 of its 3 shares are missing: 1, 3"),
        (&["1.ibp", "2.ibp", "2.ibp", "3.ibp"], "give each capture once"),
        (&["1.ibp", "2.ibp", "3.ibp", "whole.ibp"], "give each capture once"),
        (&["1.ibp", "2.ibp", "half.ibp"], "were analyzed with different --share"),
    ] {
        let words = ["merge".to_owned(), "-o".to_owned(), at("merged.ibp")];
        let ran = ibscope(words.into_iter().chain(profiles.iter().map(|name| at(name))));
        assert!(ran.code == 1 && ran.stderr.contains(expected), "{profiles:?}: {}", ran.stderr);
        assert!(!Path::new(&at("merged.ibp")).exists());
    }
    for (words, expected) in [
        (&["--share", "1/2"][..], "--partial"),
        (&["--partial", "--share", "3/2"], "a share is K/N"),
        (&["--partial", "--share", "1/33"], "a share is K/N"),
    ] {
        let ran = ibscope([&["analyze", &sink, "-o", &at("x.ibp")], words].concat());
        assert!(ran.code == 2 && ran.stderr.contains(expected), "{words:?}: {}", ran.stderr);
    }
}
