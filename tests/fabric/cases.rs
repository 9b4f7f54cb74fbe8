//! What the tests of failures share: a lab whose hooks are called by hand, as slurmctld calls them.

use crate::jobs::SAMPLE;
use crate::lab::Lab;
use crate::site::Site;
use crate::tools;
use std::time::{Duration, Instant};

/// Nodes of the job.
pub(crate) const NODELIST: &str = "n[001-004]";

/// Hooks end by their deadline, whatever they wait for.
pub(crate) const LONGEST: Duration = Duration::from_secs(crate::site::DEADLINE_S + 2);

pub(crate) fn lab(site: Site) -> Lab {
    lab_as("root", site)
}

/// The same with hooks that run as this user.
pub(crate) fn lab_as(user: &'static str, site: Site) -> Lab {
    let lab = Lab::start_as(user);
    lab.traffic(&tools::sample(SAMPLE));
    lab.configure(site);
    lab
}

/// Calls a hook that must end well and in time; what it told.
pub(crate) fn hook(lab: &Lab, which: &str, job: u32) -> String {
    let before = lab.told().len();
    let start = Instant::now();
    let ran = lab.hook(which, job, NODELIST);
    assert_eq!(ran.code, 0, "{which} of job {job}: {}{}", ran.stderr, lab.told());
    assert!(start.elapsed() < LONGEST, "{which} of job {job}: {:?}", start.elapsed());
    lab.told()[before..].to_owned()
}

/// A capture that runs.
pub(crate) fn starts(lab: &Lab, job: u32) {
    let told = hook(lab, "prolog", job);
    assert!(told.contains("capturing: 2 captures, 4 ports mirrored"), "{told}");
}

/// A step of a case: the lab, and the number of the job.
pub(crate) type Step = fn(&mut Lab, u32);
