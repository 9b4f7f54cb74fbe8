//! Incidents that are injected into generated jobs. Expected findings come from the injection.

use super::job_scene::{JobIncident, capture};
use super::{Found, assert_both, assert_only, findings, of_seeds};
use crate::tools::ibscope;

fn found(incidents: &[JobIncident]) -> Vec<Found> {
    of_seeds(|seed| {
        let (_wire, path) = capture(incidents, seed);
        findings(&["--link", "100Gb/s"], &[path])
    })
}

fn is_only(incident: JobIncident, finding: &str, subject: &str) {
    assert_only(&format!("{incident:?}"), &found(&[incident]), (finding, subject));
}

fn has_none(incident: &[JobIncident]) {
    let all = found(incident);
    assert!(all.iter().all(Vec::is_empty), "{incident:?}: {all:?}");
}

#[test]
fn healthy_jobs_have_no_finding() {
    has_none(&[]);
    has_none(&[JobIncident::Rendezvous]);
    has_none(&[JobIncident::SmallMessages { rank: 1, percent: 80, is_storm: false }]);
    // Storage that slows nothing.
    has_none(&[JobIncident::Storage { rank: 1, factor: 1 }]);
}

#[test]
fn a_straggler_is_found() {
    for percent in [25, 40, 60] {
        is_only(JobIncident::Straggler { rank: 2, percent }, "straggler", "job 1, rank 2");
    }
}

/// The causes are in the application: no finding is about the network.
#[test]
fn an_imbalance_is_found_and_nothing_of_the_network() {
    for percent in [70, 150] {
        is_only(JobIncident::Imbalance { percent }, "imbalance", "job 1, ranks 0, 1, 2");
    }
}

/// Ranks that compute longer also receive later: the finding names the cause, not its consequences.
#[test]
fn causes_of_the_application_hide_late_receivers() {
    for (incident, finding, subject) in [
        (JobIncident::Straggler { rank: 2, percent: 40 }, "straggler", "job 1, rank 2"),
        (JobIncident::Imbalance { percent: 100 }, "imbalance", "job 1, ranks 0, 1, 2"),
    ] {
        let all = found(&[incident, JobIncident::Rendezvous]);
        assert_only(&format!("{incident:?}"), &all, (finding, subject));
    }
}

#[test]
fn a_late_receiver_is_found() {
    for percent in [20, 40, 60] {
        is_only(JobIncident::LateReceiver { rank: 3, percent }, "late_receiver", "job 1, rank 3");
    }
    has_none(&[JobIncident::LateReceiver { rank: 3, percent: 5 }]);
}

#[test]
fn a_stall_of_the_rendezvous_is_found() {
    for percent in [20, 40, 60] {
        is_only(JobIncident::Stall { percent }, "rendezvous_stall", "job 1");
    }
    has_none(&[JobIncident::Stall { percent: 5 }]);
}

#[test]
fn a_storm_of_small_messages_is_found() {
    for percent in [15, 30] {
        is_only(JobIncident::SmallMessages { rank: 1, percent, is_storm: true }, "small_messages", "path 18 -> 21");
    }
}

#[test]
fn storage_that_slows_a_job_is_found() {
    for factor in [3, 6, 12] {
        is_only(JobIncident::Storage { rank: 1, factor }, "storage_interference", "port 18");
    }
}

#[test]
fn two_causes_of_a_job_are_both_found() {
    let straggler = JobIncident::Straggler { rank: 4, percent: 40 };
    let storage = JobIncident::Storage { rank: 1, factor: 6 };
    let storm = JobIncident::SmallMessages { rank: 1, percent: 40, is_storm: true };
    let late = JobIncident::LateReceiver { rank: 3, percent: 40 };
    for (incidents, causes) in [
        ([straggler, storage], ["straggler", "storage_interference"]),
        ([late, storage], ["late_receiver", "storage_interference"]),
        ([late, storm], ["late_receiver", "small_messages"]),
    ] {
        assert_both(&format!("{incidents:?}"), &found(&incidents), &causes);
    }
}

/// The messages of the storm are most of the job, so its iterations are not the main loop: nothing is
/// blamed on a rank, and a note says so.
#[test]
fn a_storm_hides_a_straggler_and_a_note_says_so() {
    let straggler = JobIncident::Straggler { rank: 4, percent: 40 };
    let storm = JobIncident::SmallMessages { rank: 1, percent: 40, is_storm: true };
    let (_wire, path) = capture(&[straggler, storm], 1);
    let ran = ibscope(["diagnose".as_ref(), path.as_os_str()]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.starts_with("1 finding, most severe first\n"), "{}", ran.stdout);
    assert!(ran.stderr.contains("not checked: stragglers and imbalance of job 1"), "{}", ran.stderr);
}
