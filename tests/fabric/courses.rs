//! Captures that run and then go wrong, case by case, with the same outcome.

use crate::cases::{Step, hook, lab, starts};
use crate::container::until;
use crate::ibdump::Fault as Ibdump;
use crate::jobs::{clean, expected};
use crate::lab::{Lab, NODES};
use crate::site::Site;
use crate::switch::Fault as Switch;
use std::time::Duration;

/// A capture that runs and then goes wrong: what happens meanwhile, and what the epilog says.
struct Course {
    name: &'static str,
    before: Step,
    meanwhile: Step,
    says: &'static [&'static str],
    /// True where something is left that a later `undo` deals with, after this.
    left: Option<Step>,
}

const fn nothing(_: &mut Lab, _: u32) {}

const COURSES: [Course; 9] = [
    Course {
        name: "ibdump dies",
        before: nothing,
        meanwhile: |lab, _| {
            lab.ibdump_fault("sink1a", Some(Ibdump::Die));
            until(Duration::from_secs(10), "death", || {
                (lab.captures_running().iter().all(|line| !line.contains("sink1a"))).then_some(())
            });
        },
        says: &["sink1a: ibdump had ended before it was stopped", "undone"],
        left: None,
    },
    Course {
        name: "ibdump ignores SIGINT",
        before: |lab, _| lab.ibdump_fault("sink1a", Some(Ibdump::DeafToInt)),
        meanwhile: nothing,
        says: &["sink1a: 3176 packets", "ibdump did not heed SIGINT", "undone"],
        left: None,
    },
    Course {
        name: "ibdump ignores SIGINT and SIGTERM",
        before: |lab, _| lab.ibdump_fault("sink1a", Some(Ibdump::Deaf)),
        meanwhile: nothing,
        says: &["sink1a: an unknown number of packets", "was killed: the end of its file is lost"],
        left: None,
    },
    Course {
        name: "a sink's disk becomes full",
        before: |lab, _| {
            let captures = lab.path().join("captures").display().to_string();
            lab.container.succeeds(["mount", "-t", "tmpfs", "-o", "size=4m,mode=0700", "none", &captures]);
        },
        meanwhile: |lab, _| {
            // Everything that is written from now on does not fit.
            let file = lab.path().join("captures/fill").display().to_string();
            lab.container.run(["dd", "if=/dev/zero", &format!("of={file}"), "bs=64k"]);
        },
        says: &["sink1a: its file was empty and is deleted: nothing could be written", "undone"],
        left: Some(|lab, _| {
            let captures = lab.path().join("captures").display().to_string();
            lab.container.succeeds(["umount", &captures]);
        }),
    },
    Course {
        name: "a link goes down",
        before: nothing,
        meanwhile: |lab, _| {
            lab.link("n002", false);
            until(Duration::from_secs(5), "a link that is down", || {
                lab.tool("n002", &["ibstat"]).contains("State: Down").then_some(())
            });
        },
        says: &["undone"],
        left: None,
    },
    Course {
        name: "a sink cannot be reached",
        before: |lab, _| {
            lab.link("n002", true);
            until(Duration::from_secs(20), "a link that is up", || {
                lab.tool("n002", &["ibstat"]).contains("State: Active").then_some(())
            });
        },
        meanwhile: |lab, _| lab.stop_ssh_server("sink1a"),
        says: &["left: ", "sink1a: no connection"],
        left: Some(|lab, _| lab.start_ssh_server("sink1a")),
    },
    Course {
        name: "a switch keeps one port",
        before: nothing,
        meanwhile: |lab, _| lab.switch_fault(Some(Switch::Keep(lab.topology.place("n003").1 as u8))),
        says: &["left: ", "may still be mirrored", "busy"],
        left: Some(|lab, _| lab.switch_fault(None)),
    },
    Course {
        name: "a switch does not answer any more",
        before: nothing,
        meanwhile: |lab, _| lab.switch_fault(Some(Switch::Hang)),
        says: &["left: ", "may still be mirrored", "took longer than 2 s"],
        left: Some(|lab, _| lab.switch_fault(None)),
    },
    Course {
        name: "the same job id again, without an epilog",
        before: nothing,
        meanwhile: |lab, job| {
            let told = hook(lab, "prolog", job);
            assert!(told.contains("an earlier run under this id had not ended: undone first"), "{told}");
            assert!(told.contains("capturing: 2 captures, 4 ports mirrored"), "{told}");
            assert_eq!(lab.mirrored(), expected(lab, &NODES[..4], ["sink1a", "sink2a"], job));
        },
        says: &["undone"],
        left: None,
    },
];

/// Whatever happens to a capture that runs, the epilog restores the fabric, or says what is left and `undo` does it later.
pub(crate) fn whatever_happens_meanwhile_the_epilog_restores_the_fabric() {
    let mut lab = lab(Site { capture: "stop_s = 1", mirror: "timeout_s = 2", ..Site::PLAIN });
    for (index, case) in COURSES.iter().enumerate() {
        println!("{}", case.name);
        let job = 200 + index as u32;
        (case.before)(&mut lab, job);
        starts(&lab, job);
        (case.meanwhile)(&mut lab, job);
        let told = hook(&lab, "epilog", job);
        for says in case.says {
            assert!(told.contains(says), "{}: {says} is not in\n{told}", case.name);
        }
        if let Some(mend) = case.left {
            mend(&mut lab, job);
            let undone = lab.capture(&["undo", "--job", &job.to_string()]);
            assert_eq!(undone.code, 0, "{}: {}{}", case.name, undone.stdout, undone.stderr);
        }
        for node in ["sink1a", "sink2a"] {
            lab.ibdump_fault(node, None);
        }
        clean(&lab);
        // An epilog more finds nothing to do.
        assert_eq!(hook(&lab, "epilog", job), "", "{}", case.name);
    }
    // Nor does one without a prolog.
    assert_eq!(hook(&lab, "epilog", 299), "");
    clean(&lab);
}
