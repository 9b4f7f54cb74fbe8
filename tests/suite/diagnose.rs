//! `ibscope diagnose`: incidents that are injected into generated traffic, and recorded runs with
//! and without a known cause. Expected findings come from what was injected or recorded.

mod distorted;
mod job_scene;
mod jobs;
mod recorded;
mod scene;
mod split_jobs;

use crate::tools::{ibscope, in_parallel};
use scene::{Incident, Scene};
use serde_json::Value;
use std::ffi::OsString;
use std::path::PathBuf;

/// Seeds of each severity.
const SEEDS: u64 = 20;
/// Share of the scenes in which the right cause must come first.
const RIGHT_PERCENT: usize = 95;

/// The findings of captures.
fn findings(arguments: &[&str], inputs: &[PathBuf]) -> Vec<Value> {
    let words = ["diagnose", "--format", "json"].iter().chain(arguments).map(OsString::from);
    let ran = ibscope(words.chain(inputs.iter().map(|path| path.clone().into_os_string())));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    serde_json::from_str::<Vec<Value>>(&ran.stdout).expect("a JSON list")
}

fn names(findings: &[Value]) -> Vec<&str> {
    findings.iter().map(|finding| finding["finding"].as_str().expect("finding")).collect()
}

/// Names and subjects of the findings of one capture.
type Found = Vec<(String, String)>;

/// Runs a scene with each seed.
fn found(incidents: &[Incident]) -> Vec<Found> {
    of_seeds(|seed| {
        let mut scene = Scene::new(incidents, seed);
        findings(&["--link", scene::LINK], &[scene.file()])
    })
}

/// The findings for each seed.
fn of_seeds(run: impl Fn(u64) -> Vec<Value> + Sync) -> Vec<Found> {
    let seeds: Vec<u64> = (1..=SEEDS).collect();
    let results = std::sync::Mutex::new(Vec::new());
    in_parallel(&seeds, |_, seed| {
        let all = run(*seed);
        let text = |finding: &Value, member: &str| finding[member].as_str().expect("text").to_owned();
        let own = all.iter().map(|finding| (text(finding, "finding"), text(finding, "subject"))).collect();
        results.lock().expect("results").push(own);
    });
    results.into_inner().expect("results")
}

/// The right cause comes first, about the right port, in at least 95 % of the scenes.
fn comes_first(incident: Incident, finding: &str, subject: &str) {
    assert_only(&format!("{incident:?}"), &found(&[incident]), (finding, subject));
}

/// In at least 95 % of the captures, this is the only finding: the incident has one cause.
fn assert_only(case: &str, all: &[Found], (finding, subject): (&str, &str)) {
    let is_right = |own: &&Found| matches!(&own[..], [only] if only.0 == finding && only.1 == subject);
    let count = all.iter().filter(is_right).count();
    assert!(100 * count >= RIGHT_PERCENT * all.len(), "{case}: {count} of {}: {all:?}", all.len());
}

/// In at least 95 % of the captures, these are the findings, in any order.
fn assert_both(case: &str, all: &[Found], causes: &[&str]) {
    let has_both =
        |own: &&Found| own.len() == causes.len() && causes.iter().all(|cause| own.iter().any(|own| own.0 == *cause));
    let count = all.iter().filter(has_both).count();
    assert!(100 * count >= RIGHT_PERCENT * all.len(), "{case}: {count} of {}: {all:?}", all.len());
}

#[test]
fn healthy_traffic_has_no_finding() {
    let all = found(&[]);
    assert!(all.iter().all(Vec::is_empty), "{all:?}");
}

#[test]
fn a_lossy_link_is_found() {
    for percent in [2, 5, 10] {
        comes_first(Incident::Loss { port: 3, percent }, "fabric_loss", "link to port 3");
    }
}

#[test]
fn a_receiver_without_buffers_is_found() {
    for percent in [2, 5, 20] {
        comes_first(Incident::NotReady { port: 2, percent }, "receiver_not_ready", "port 2");
    }
}

#[test]
fn marks_of_congestion_are_found() {
    for percent in [5, 20] {
        comes_first(Incident::Marks { port: 4, percent }, "congestion", "toward port 4");
    }
}

#[test]
fn a_full_link_is_found() {
    for percent in [15, 60] {
        // One port sends all: its link is as full.
        comes_first(Incident::FullLink { port: 5, percent }, "saturated_link", "link to port 5, link from port 2");
    }
}

#[test]
fn incast_is_found() {
    for percent in [15, 60] {
        comes_first(Incident::Incast { port: 1, percent }, "incast", "link to port 1");
    }
}

/// Half of the capacity is no finding.
#[test]
fn a_link_that_is_half_full_has_no_finding() {
    let all = found(&[Incident::HalfFullLink { port: 5, percent: 60 }]);
    assert!(all.iter().all(Vec::is_empty), "{all:?}");
}

#[test]
fn two_causes_are_both_found() {
    for (incidents, causes) in [
        (
            [Incident::Loss { port: 3, percent: 5 }, Incident::NotReady { port: 2, percent: 5 }],
            ["fabric_loss", "receiver_not_ready"],
        ),
        (
            [Incident::Loss { port: 3, percent: 5 }, Incident::Incast { port: 1, percent: 60 }],
            ["fabric_loss", "incast"],
        ),
        (
            [Incident::NotReady { port: 2, percent: 5 }, Incident::Marks { port: 4, percent: 20 }],
            ["receiver_not_ready", "congestion"],
        ),
    ] {
        assert_both(&format!("{incidents:?}"), &found(&incidents), &causes);
    }
}

/// A capture that misses packets says so, and no finding blames the fabric.
#[test]
fn a_capture_with_losses_is_not_trusted() {
    let seeds: Vec<u64> = (1..=SEEDS).collect();
    in_parallel(&seeds, |_, seed| {
        let mut scene = Scene::new(&[Incident::CaptureLoss { percent: 5 }], *seed);
        let all = findings(&[], &[scene.file()]);
        assert_eq!(names(&all), ["capture_incomplete"], "seed {seed}: {all:?}");
        assert!(all[0]["numbers"]["lost_packets_at_least"].as_u64().expect("count") > 0, "{all:?}");
    });
}

#[test]
fn a_healthy_capture_has_one_line_of_text() {
    let mut scene = Scene::new(&[], 1);
    let path = scene.file();
    let ran = ibscope(["diagnose", path.to_str().expect("path")]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "no findings: all checks that were made passed\n"));
    assert!(ran.stderr.contains("not checked: saturated links and incast"), "{}", ran.stderr);
}

/// Every line of the text fits 80 columns, but for the command, which can be copied.
#[test]
fn the_text_fits_the_terminal() {
    let mut scene =
        Scene::new(&[Incident::Loss { port: 3, percent: 5 }, Incident::NotReady { port: 2, percent: 5 }], 1);
    let path = scene.file();
    let ran = ibscope(["diagnose", path.to_str().expect("path")]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.starts_with("2 findings, most severe first\n"), "{}", ran.stdout);
    let own = ran.stdout.lines().filter(|line| !line.contains("ibscope "));
    assert!(own.clone().all(|line| line.chars().count() <= 80), "{}", ran.stdout);
    // The evidence is a command that runs.
    for line in ran.stdout.lines().filter_map(|line| line.strip_prefix("    ibscope ")) {
        let shown = ibscope(line.split(' '));
        assert_eq!(shown.code, 0, "{line}: {}", shown.stderr);
    }
}
