//! Faults that Slurm causes while a hook runs: it cancels the job, kills the hook, starts the job
//! again under the same id, or is killed itself.

use crate::container::until;
use crate::jobs::{SAMPLE, clean, install};
use crate::lab::{HookLab, LabSetting};
use crate::site::SiteConfig;
use crate::slurm::Hooks;
use crate::sweeper::sweep;
use crate::switch::SwitchFault;
use crate::tools;
use std::fs;
use std::time::Duration;

/// With these settings a hook would wait for a switch longer than Slurm waits for the hook.
const SLOW: SiteConfig = SiteConfig { mirror: "timeout_s = 50", ..SiteConfig::PLAIN };

/// A job that is canceled while its prolog waits, and one whose prolog Slurm kills: it is requeued
/// under its id, and captured the second time.
pub(crate) fn slurm_cancels_and_kills_prologs_and_the_fabric_is_restored(setting: LabSetting) {
    let lab = HookLab::start_in(setting);
    lab.traffic(&tools::sample(SAMPLE));
    let config = lab.configure(SLOW);
    let lines = install(&lab, config.to_str().expect("path"));
    lab.slurm(Hooks { lines: &lines, timeout_s: 20 });

    lab.switch_fault(Some(SwitchFault::Hang));
    let canceled = lab.submit(&["-N4", "--comment=ibscope=on"], "echo ran");
    until(Duration::from_secs(40), "a prolog that waits for the switch", || {
        (!lab.switch_calls().is_empty()).then_some(())
    });
    lab.slurm_tool(&["scancel", &canceled.to_string()]);
    lab.switch_fault(None);
    assert_eq!(lab.ended(canceled).0, "CANCELLED");
    restored(&lab);
    assert_eq!(lab.printed(canceled), "", "it never ran");

    lab.switch_fault(Some(SwitchFault::Hang));
    let killed = lab.submit(&["-N4", "--comment=ibscope=on", "--requeue"], "echo ran");
    until(Duration::from_secs(40), "a prolog that waits for the switch", || {
        (!lab.switch_calls().is_empty()).then_some(())
    });
    let wait_for_log = |what: &'static str| {
        let line = what.replace("=ID", &format!("={killed}"));
        until(Duration::from_mins(1), what, || lab.log_of_controller().contains(&line).then_some(()));
    };
    wait_for_log("prolog_slurmctld JobId=ID failed due to timing out");
    lab.switch_fault(None);
    restored(&lab);
    wait_for_log("Requeuing JobId=ID");
    // Without this it would begin again only after two minutes.
    lab.slurm_tool(&["scontrol", "update", &format!("JobId={killed}"), "StartTime=now"]);
    assert_eq!(lab.ended(killed), ("COMPLETED".to_owned(), "0:0".to_owned()), "{}", lab.log_text());
    assert_eq!(lab.printed(killed), "ran\n");
    let log_text = lab.log_text();
    assert!(log_text.contains(&format!("job {killed}: capturing: 2 captures, 4 ports mirrored")), "{log_text}");
    restored(&lab);
    assert_eq!(lab.drained().trim(), "");
}

/// A job that is canceled while it runs, and one that is requeued: it is captured each time.
pub(crate) fn running_jobs_are_canceled_and_requeued(lab: &HookLab) {
    let runs = |id: u32| {
        until(Duration::from_mins(1), "a captured job", || {
            (lab.mirrored().len() == 4 && lab.job(id).0 == "RUNNING").then_some(())
        });
    };
    let canceled = lab.submit(&["-N4", "--comment=ibscope=on"], "sleep 300");
    runs(canceled);
    lab.slurm_tool(&["scancel", &canceled.to_string()]);
    assert_eq!(lab.ended(canceled).0, "CANCELLED");
    restored(lab);

    let go = lab.path().join("go").display().to_string();
    let script = format!("while [ ! -e {go} ]; do sleep 0.1; done; echo ran");
    let requeued = lab.submit(&["-N4", "--comment=ibscope=on", "--requeue"], &script);
    runs(requeued);
    lab.slurm_tool(&["scontrol", "requeue", &requeued.to_string()]);
    until(Duration::from_mins(1), "a job that waits again", || (lab.job(requeued).0 == "PENDING").then_some(()));
    restored(lab);
    fs::write(go, "").expect("file");
    // Without this it would begin again only after two minutes.
    lab.slurm_tool(&["scontrol", "update", &format!("JobId={requeued}"), "StartTime=now"]);
    assert_eq!(lab.ended(requeued), ("COMPLETED".to_owned(), "0:0".to_owned()), "{}", lab.log_text());
    assert_eq!(lab.printed(requeued), "ran\n");
    let captured = format!("job {requeued}: capturing: 2 captures, 4 ports mirrored");
    assert_eq!(lab.log_text().matches(&captured).count(), 2, "{}", lab.log_text());
    restored(lab);
}

/// slurmctld is restarted during a prolog, a job and an epilog. Each job completes, and the fabric is
/// restored.
pub(crate) fn slurmctld_is_restarted_and_the_fabric_is_restored(setting: LabSetting) {
    let lab = HookLab::start_in(setting);
    lab.traffic(&tools::sample(SAMPLE));
    let config = lab.configure(SiteConfig { mirror: "timeout_s = 10", ..SiteConfig::PLAIN });
    let lines = install(&lab, config.to_str().expect("path"));
    lab.slurm(Hooks { lines: &lines, timeout_s: 70 });
    let go = lab.path().join("go");
    for stage in ["prolog", "job", "epilog"] {
        println!("{stage}");
        _ = fs::remove_file(&go);
        lab.switch_fault((stage == "prolog").then_some(SwitchFault::Hang));
        let wait = format!("while [ ! -e {} ]; do sleep 0.1; done", go.display());
        let id = lab.submit(&["-N4", "--comment=ibscope=on", "--requeue"], &wait);
        until(Duration::from_secs(40), "a call of the switch", || (!lab.switch_calls().is_empty()).then_some(()));
        if stage != "prolog" {
            until(Duration::from_mins(1), "a captured job", || {
                (lab.mirrored().len() == 4 && lab.job(id).0 == "RUNNING").then_some(())
            });
        }
        if stage == "epilog" {
            lab.switch_fault(Some(SwitchFault::Hang));
            fs::write(&go, "").expect("file");
            until(Duration::from_secs(40), "an epilog that waits for the switch", || {
                (!lab.switch_calls().is_empty()).then_some(())
            });
        }
        lab.restart_controller();
        lab.switch_fault(None);
        if stage == "job" {
            assert_eq!(lab.mirrored().len(), 4, "a live job keeps its capture");
        }
        fs::write(&go, "").expect("file");
        let ended = until(Duration::from_mins(3), "end of the job", || (!lab.is_active(id)).then(|| lab.job(id)));
        assert_eq!(ended, ("COMPLETED".to_owned(), "0:0".to_owned()), "{}", lab.log_text());
        until(Duration::from_secs(75), "a fabric that the epilog or the sweeper restored", || {
            (lab.mirrored().is_empty() && lab.captures_running().is_empty() && sweep(&lab).code == 0).then_some(())
        });
        restored(&lab);
        assert_eq!(lab.drained().trim(), "", "{stage}");
    }
}

/// Waits until the fabric is restored, and checks it. Epilogs of the controller may still run when
/// Slurm shows the job as ended, and so may workers of killed hooks.
pub(crate) fn restored(lab: &HookLab) {
    until(Duration::from_mins(1), "a fabric without mirrors", || {
        let is_done = !lab.container.processes().values().any(|line| line.contains("ibscope hook"))
            && lab.mirrored().is_empty()
            && lab.captures_running().is_empty()
            && lab.capture(&["list"]).stdout == "no runs\n";
        is_done.then_some(())
    });
    clean(lab);
}
