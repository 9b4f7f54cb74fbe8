//! Captures that are crafted to cost time and memory (`ibscope_samples::crafted`): small ones,
//! without time measurements. `make soak` measures large ones.

use crate::tools::sample;
use ibscope::analysis::GroupBy;
use ibscope::analysis::phases::{self, phases};
use ibscope::analysis::rates::{DEFAULT_WINDOW_NS, rates};
use ibscope::pipeline::{AnalysisOptions, analyze};
use ibscope_samples::crafted::CraftedCapture;
use std::path::{Path, PathBuf};

const KIB: usize = 1 << 10;

fn written(folder: &Path, shape: CraftedCapture, bytes: usize) -> PathBuf {
    let path = folder.join(format!("{}.pcap", shape.name()));
    std::fs::write(&path, shape.capture(bytes)).expect("written");
    path
}

/// Each map with keys from a capture has its own random seed, so two analyses of one capture hash
/// differently.
#[test]
fn results_do_not_depend_on_the_seed() {
    let folder = tempfile::tempdir().expect("folder");
    let crafted = CraftedCapture::ALL.map(|shape| written(folder.path(), shape, 64 * KIB));
    let recorded = ["openib-mixed-4x1", "perftest-read-lat"].map(sample);
    for path in crafted.into_iter().chain(recorded) {
        let [one, other] = [0, 1].map(|_| {
            let profile = analyze(std::slice::from_ref(&path), &AnalysisOptions::default(), &|_| {}).expect("analysis");
            let phases = phases(&profile, &phases::PhaseOptions::default());
            (profile, phases)
        });
        assert!(one.0.coverage.records > 0, "{path:?}");
        assert_eq!(one, other, "{path:?}");
    }
}

/// A star of 500 ranks: every connection joins the one job.
#[test]
fn connections_of_one_job_are_one_job() {
    let folder = tempfile::tempdir().expect("folder");
    let path = written(folder.path(), CraftedCapture::Star, 62 * KIB);
    let profile = analyze(&[path], &AnalysisOptions::default(), &|_| {}).expect("analysis");
    assert_eq!(profile.jobs.len(), 1, "{:?}", profile.notes);
    assert_eq!(profile.jobs[0].ranks as usize, profile.connections.len() / 2 + 1);
    assert!(profile.jobs[0].ranks > 500);
}

/// Without a chosen width, the rows of bins and pairs stay within one million. A chosen width is
/// kept.
#[test]
fn many_pairs_make_wider_bins() {
    let folder = tempfile::tempdir().expect("folder");
    let path = written(folder.path(), CraftedCapture::Days, 20 * KIB);
    let profile = analyze(&[path], &AnalysisOptions::default(), &|_| {}).expect("analysis");
    let found = rates(&profile, Some(GroupBy::Endpoint), None, DEFAULT_WINDOW_NS).expect("rates");
    let rows = |count: i128| count * found.pairs.len() as i128;
    assert!(rows(found.count()) > 1 << 22, "{} rows of {} pairs", rows(found.count()), found.pairs.len());
    let widened = found.clone().widened();
    assert!(rows(widened.count()) <= 1 << 20 && rows(widened.count()) > 1 << 18, "{} rows", rows(widened.count()));
    assert_eq!(widened.total.sums, found.total.sums);
}
