//! What Slurm does to hooks that are not done: cancels the job, kills the hook, starts the job again under the same id.

use crate::container::until;
use crate::jobs::{SAMPLE, clean, install};
use crate::lab::Lab;
use crate::site::Site;
use crate::slurm::Hooks;
use crate::switch::Fault;
use crate::tools;
use std::time::Duration;

/// A hook would wait longer for a switch that does not answer than Slurm waits for the hook.
const SLOW: Site = Site { mirror: "timeout_s = 50", ..Site::PLAIN };

/// A job that is cancelled while its prolog waits, and one whose prolog Slurm kills: it is requeued under its id, and captured the second time.
pub(crate) fn slurm_cancels_and_kills_prologs_and_the_fabric_is_restored() {
    let lab = Lab::start();
    lab.traffic(&tools::sample(SAMPLE));
    let config = lab.configure(SLOW);
    let lines = install(&lab, config.to_str().expect("path"));
    lab.slurm(Hooks { lines: &lines, timeout_s: 20 });

    lab.switch_fault(Some(Fault::Hang));
    let cancelled = lab.submit(&["-N4", "--comment=ibscope=on"], "echo ran");
    until(Duration::from_secs(40), "a prolog that waits for the switch", || {
        (!lab.switch_calls().is_empty()).then_some(())
    });
    lab.slurm_tool(&["scancel", &cancelled.to_string()]);
    lab.switch_fault(None);
    assert_eq!(lab.ended(cancelled).0, "CANCELLED");
    restored(&lab);
    assert_eq!(lab.printed(cancelled), "", "it never ran");

    lab.switch_fault(Some(Fault::Hang));
    let killed = lab.submit(&["-N4", "--comment=ibscope=on", "--requeue"], "echo ran");
    until(Duration::from_secs(40), "a prolog that waits for the switch", || {
        (!lab.switch_calls().is_empty()).then_some(())
    });
    let says = |what: &'static str| {
        let line = what.replace("=ID", &format!("={killed}"));
        until(Duration::from_mins(1), what, || lab.log_of_controller().contains(&line).then_some(()));
    };
    says("prolog_slurmctld JobId=ID failed due to timing out");
    lab.switch_fault(None);
    restored(&lab);
    says("Requeuing JobId=ID");
    // By itself it would begin again after two minutes.
    lab.slurm_tool(&["scontrol", "update", &format!("JobId={killed}"), "StartTime=now"]);
    assert_eq!(lab.ended(killed), ("COMPLETED".to_owned(), "0:0".to_owned()), "{}", lab.told());
    assert_eq!(lab.printed(killed), "ran\n");
    let told = lab.told();
    assert!(told.contains(&format!("job {killed}: capturing: 2 captures, 4 ports mirrored")), "{told}");
    restored(&lab);
    assert_eq!(lab.drained().trim(), "");
}

/// Epilogs of the controller may still run when Slurm shows the job as ended, as may the work of hooks that were killed.
fn restored(lab: &Lab) {
    until(Duration::from_mins(1), "a fabric without mirrors", || {
        let is_done = !lab.container.processes().values().any(|line| line.contains("ibscope hook"))
            && lab.mirrored().is_empty()
            && lab.captures_running().is_empty()
            && lab.capture(&["list"]).stdout == "no runs\n";
        is_done.then_some(())
    });
    clean(lab);
}

impl Lab {
    fn log_of_controller(&self) -> String {
        std::fs::read_to_string(self.path().join("log/slurmctld")).unwrap_or_default()
    }
}
