//! Starts that do not work, case by case: afterwards no port is mirrored, nothing runs, the job was not held up, and the log says what happened.

use crate::cases::{Step, hook, lab, starts};
use crate::ibdump::Fault as Ibdump;
use crate::jobs::clean;
use crate::lab::address;
use crate::site::Site;
use crate::switch::Fault as Switch;
use crate::topology::PWNED;
use std::fs;

/// A start that does not work: what is wrong, what the log says, and how it is put right.
struct Start {
    name: &'static str,
    wrong: Step,
    says: &'static [&'static str],
    right: Step,
    /// The prolog cannot undo it either: the epilog does.
    left: bool,
}

const STARTS: [Start; 7] = [
    Start {
        name: "ibdump does not start",
        wrong: |lab, _| lab.ibdump_fault("sink2a", Some(Ibdump::Start)),
        says: &["sink2a", "ibdump ended as soon as it was started", "Failed to set port sniffer1"],
        right: |lab, _| lab.ibdump_fault("sink2a", None),
        left: false,
    },
    Start {
        name: "a switch refuses one port",
        wrong: |lab, _| lab.switch_fault(Some(Switch::Refuse(lab.topology.place("n004").1 as u8))),
        says: &["0xb8599f0300001001", "port 2: refused"],
        right: |lab, _| lab.switch_fault(None),
        left: false,
    },
    Start {
        name: "a switch does not answer",
        wrong: |lab, _| {
            lab.configure(Site { mirror: "timeout_s = 1", ..Site::default() });
            lab.switch_fault(Some(Switch::Hang));
        },
        says: &["took longer than 1 s", "may still be mirrored"],
        right: |lab, _| {
            lab.configure(Site::default());
            lab.switch_fault(None);
        },
        left: true,
    },
    Start {
        name: "a compute node does not answer",
        wrong: |lab, _| lab.stop_ssh_server("n002"),
        says: &["n002: no connection to 127.0.0.12:2222"],
        right: |lab, _| lab.start_ssh_server("n002"),
        left: false,
    },
    Start {
        name: "the host key of a node has changed",
        wrong: |lab, _| {
            let path = lab.path().join("ssh/known_hosts");
            let text = fs::read_to_string(&path).expect("known hosts");
            let key = |node: &str| {
                let start = format!("[{}]:", address(node));
                text.lines().find(|line| line.starts_with(&start)).and_then(|line| line.split(' ').nth(2)).expect("key")
            };
            fs::write(&path, text.replace(key("n003"), key("n004"))).expect("known hosts");
            fs::write(lab.path().join("known_hosts.right"), &text).expect("known hosts");
        },
        says: &["n003: the host key", "is not the one in"],
        right: |lab, _| {
            fs::rename(lab.path().join("known_hosts.right"), lab.path().join("ssh/known_hosts")).expect("known hosts");
        },
        left: false,
    },
    Start {
        name: "the disk of a sink is full",
        wrong: |lab, _| {
            lab.configure(Site { capture: "disk_limit_bytes = 1_000_000_000_000_000", ..Site::default() });
        },
        says: &["bytes free and needs 1000000000000000"],
        right: |lab, _| {
            lab.configure(Site::default());
        },
        left: false,
    },
    Start {
        name: "a port is mirrored by somebody else",
        wrong: |lab, _| {
            let program = lab.path().join("bin/switchctl").display().to_string();
            lab.container.succeeds([
                &program,
                "on",
                "--leaf",
                "0xb8599f0300001000",
                "--port",
                "1",
                "--to",
                "6",
                "--job",
                "4000000",
            ]);
        },
        says: &["is mirrored already"],
        right: |lab, _| {
            assert_eq!(lab.mirrored().len(), 1, "what is somebody else's stays");
            let program = lab.path().join("bin/switchctl").display().to_string();
            lab.container.succeeds([
                &program,
                "off",
                "--leaf",
                "0xb8599f0300001000",
                "--port",
                "1",
                "--to",
                "6",
                "--job",
                "4000000",
            ]);
        },
        left: false,
    },
];

/// Starts that fail are undone by the prolog itself, and the job runs.
pub(crate) fn a_start_that_fails_is_undone_and_the_job_runs() {
    let mut lab = lab(Site::default());
    for (index, case) in STARTS.iter().enumerate() {
        println!("{}", case.name);
        let job = 100 + index as u32;
        (case.wrong)(&mut lab, job);
        let told = hook(&lab, "prolog", job);
        for says in case.says {
            assert!(told.contains("error: ") && told.contains(says), "{}: {says} is not in\n{told}", case.name);
        }
        assert_eq!(told.contains("; left: "), case.left, "{}: {told}", case.name);
        (case.right)(&mut lab, job);
        if !case.left {
            clean(&lab);
        }
        hook(&lab, "epilog", job);
        clean(&lab);
    }
    // Nothing of all that is in the way of the next job.
    starts(&lab, 99);
    hook(&lab, "epilog", 99);
    clean(&lab);
    let runs = fs::read_dir(lab.path().join("runs")).expect("runs").count();
    assert_eq!(runs, 1, "only a job that was captured leaves a folder");
    assert!(!std::path::Path::new(PWNED).exists(), "a job's name was run");
}
