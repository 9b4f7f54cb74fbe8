//! Shared parts of the tests of failures: a lab whose hooks are called directly, with the
//! environment of slurmctld.

use crate::jobs::SAMPLE;
use crate::lab::HookLab;
use crate::site::SiteConfig;
use crate::tools;
use std::time::{Duration, Instant};

/// Nodes of the job.
pub(crate) const NODELIST: &str = "n[001-004]";

/// Time limit of a hook: its deadline, whatever it waits for.
pub(crate) const LONGEST: Duration = Duration::from_secs(crate::site::DEADLINE_S + 2);

pub(crate) fn lab(site: SiteConfig) -> HookLab {
    lab_as("root", site)
}

/// A lab whose hooks run as this user.
pub(crate) fn lab_as(user: &'static str, site: SiteConfig) -> HookLab {
    let lab = HookLab::start_as(user);
    lab.traffic(&tools::sample(SAMPLE));
    lab.configure(site);
    lab
}

/// Calls a hook that must succeed in time. Returns its lines in the log.
pub(crate) fn hook(lab: &HookLab, which: &str, job: u32) -> String {
    let before = lab.log_text().len();
    let start = Instant::now();
    let ran = lab.hook(which, job, NODELIST);
    assert_eq!(ran.code, 0, "{which} of job {job}: {}{}", ran.stderr, lab.log_text());
    assert!(start.elapsed() < LONGEST, "{which} of job {job}: {:?}", start.elapsed());
    lab.log_text()[before..].to_owned()
}

/// Starts a capture.
pub(crate) fn starts(lab: &HookLab, job: u32) {
    let log_text = hook(lab, "prolog", job);
    assert!(log_text.contains("capturing: 2 captures, 4 ports mirrored"), "{log_text}");
}

/// An action in a case. The arguments are the lab and the job id.
pub(crate) type LabAction = fn(&mut HookLab, u32);
