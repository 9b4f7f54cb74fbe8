//! Faults after the start of a capture, case by case. The outcome is always the same: the fabric is
//! restored.

use crate::cases::{LabAction, hook, lab, starts};
use crate::container::until;
use crate::ibdump::IbdumpFault as Ibdump;
use crate::jobs::{clean, expected};
use crate::lab::{HookLab, NODES};
use crate::site::SiteConfig;
use crate::switch::SwitchFault as Switch;
use std::time::Duration;

/// A fault after the start: the events before and during the capture, and the texts in the
/// epilog's log.
struct LateFailure {
    name: &'static str,
    before: LabAction,
    meanwhile: LabAction,
    expected: &'static [&'static str],
    /// Repairs the lab if the epilog leaves something for a later `undo`.
    repair: Option<LabAction>,
}

const fn nothing(_: &mut HookLab, _: u32) {}

const LATE_FAILURES: [LateFailure; 9] = [
    LateFailure {
        name: "ibdump dies",
        before: nothing,
        meanwhile: |lab, _| {
            lab.ibdump_fault("sink1a", Some(Ibdump::Die));
            until(Duration::from_secs(10), "death", || {
                (lab.captures_running().iter().all(|line| !line.contains("sink1a"))).then_some(())
            });
        },
        expected: &["sink1a: ibdump had ended before it was stopped", "undone"],
        repair: None,
    },
    LateFailure {
        name: "ibdump ignores SIGINT",
        before: |lab, _| lab.ibdump_fault("sink1a", Some(Ibdump::DeafToInt)),
        meanwhile: nothing,
        expected: &["sink1a: 3176 packets", "ibdump ignored SIGINT; SIGTERM ended it", "undone"],
        repair: None,
    },
    LateFailure {
        name: "ibdump ignores SIGINT and SIGTERM",
        before: |lab, _| lab.ibdump_fault("sink1a", Some(Ibdump::Deaf)),
        meanwhile: nothing,
        expected: &["sink1a: an unknown number of packets", "was killed: the end of the capture file is missing"],
        repair: None,
    },
    LateFailure {
        name: "the disk of a sink becomes full",
        before: |lab, _| {
            let captures = lab.path().join("captures").display().to_string();
            lab.container.succeeds(["mount", "-t", "tmpfs", "-o", "size=4m,mode=0700", "none", &captures]);
        },
        meanwhile: |lab, _| {
            // Nothing that is written from now on fits on the disk.
            let file = lab.path().join("captures/fill").display().to_string();
            lab.container.run(["dd", "if=/dev/zero", &format!("of={file}"), "bs=64k"]);
        },
        expected: &["sink1a: the capture file was empty and was deleted: nothing could be written", "undone"],
        repair: Some(|lab, _| {
            let captures = lab.path().join("captures").display().to_string();
            lab.container.succeeds(["umount", &captures]);
        }),
    },
    LateFailure {
        name: "a link goes down",
        before: nothing,
        meanwhile: |lab, _| {
            lab.link("n002", false);
            until(Duration::from_secs(5), "a link that is down", || {
                lab.tool("n002", &["ibstat"]).contains("State: Down").then_some(())
            });
        },
        expected: &["undone"],
        repair: None,
    },
    LateFailure {
        name: "a sink cannot be reached",
        before: |lab, _| {
            lab.link("n002", true);
            until(Duration::from_secs(20), "a link that is up", || {
                lab.tool("n002", &["ibstat"]).contains("State: Active").then_some(())
            });
        },
        meanwhile: |lab, _| lab.stop_ssh_server("sink1a"),
        expected: &["not undone: ", "sink1a: no connection"],
        repair: Some(|lab, _| lab.start_ssh_server("sink1a")),
    },
    LateFailure {
        name: "a switch keeps one port mirrored",
        before: nothing,
        meanwhile: |lab, _| lab.switch_fault(Some(Switch::Keep(lab.topology.place("n003").1 as u8))),
        expected: &["not undone: ", "may still be mirrored", "busy"],
        repair: Some(|lab, _| lab.switch_fault(None)),
    },
    LateFailure {
        name: "a switch no longer answers",
        before: nothing,
        meanwhile: |lab, _| lab.switch_fault(Some(Switch::Hang)),
        expected: &["not undone: ", "may still be mirrored", "took longer than 2 s"],
        repair: Some(|lab, _| lab.switch_fault(None)),
    },
    LateFailure {
        name: "the same job id again, without an epilog",
        before: nothing,
        meanwhile: |lab, job| {
            let log_text = hook(lab, "prolog", job);
            assert!(
                log_text.contains("an earlier run with this job id had not ended, and was undone first"),
                "{log_text}"
            );
            assert!(log_text.contains("capturing: 2 captures, 4 ports mirrored"), "{log_text}");
            assert_eq!(lab.mirrored(), expected(lab, &NODES[..4], ["sink1a", "sink2a"], job));
        },
        expected: &["undone"],
        repair: None,
    },
];

/// After any fault during a capture, the epilog restores the fabric, or reports what is left and
/// `undo` restores it later.
pub(crate) fn the_epilog_restores_the_fabric_after_any_fault() {
    let mut lab = lab(SiteConfig { capture: "stop_s = 1", mirror: "timeout_s = 2", ..SiteConfig::PLAIN });
    for (index, case) in LATE_FAILURES.iter().enumerate() {
        println!("{}", case.name);
        let job = 200 + index as u32;
        (case.before)(&mut lab, job);
        starts(&lab, job);
        (case.meanwhile)(&mut lab, job);
        let log_text = hook(&lab, "epilog", job);
        for expected in case.expected {
            assert!(log_text.contains(expected), "{}: {expected} is not in\n{log_text}", case.name);
        }
        if let Some(repair) = case.repair {
            repair(&mut lab, job);
            let undone = lab.capture(&["undo", "--job", &job.to_string()]);
            assert_eq!(undone.code, 0, "{}: {}{}", case.name, undone.stdout, undone.stderr);
        }
        for node in ["sink1a", "sink2a"] {
            lab.ibdump_fault(node, None);
        }
        clean(&lab);
        // A second epilog finds nothing to do.
        assert_eq!(hook(&lab, "epilog", job), "", "{}", case.name);
    }
    // Nor does an epilog without a prolog.
    assert_eq!(hook(&lab, "epilog", 299), "");
    clean(&lab);
}
