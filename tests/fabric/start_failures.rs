//! Starts that fail, case by case. Afterwards no port is mirrored, nothing runs, the job was not
//! delayed, and the log reports the fault.

use crate::cases::{LabAction, hook, lab, starts};
use crate::ibdump::IbdumpFault as Ibdump;
use crate::jobs::clean;
use crate::lab::address;
use crate::site::SiteConfig;
use crate::switch::SwitchFault as Switch;
use crate::topology::PWNED;
use std::fs;

/// A start that fails: its cause, the texts in the log, and the repair.
struct StartFailure {
    name: &'static str,
    cause: LabAction,
    expected: &'static [&'static str],
    repair: LabAction,
    /// The prolog cannot undo everything either: the epilog does.
    needs_epilog: bool,
}

const START_FAILURES: [StartFailure; 8] = [
    StartFailure {
        name: "ibdump does not start",
        cause: |lab, _| lab.ibdump_fault("sink2a", Some(Ibdump::Start)),
        expected: &["sink2a", "ibdump ended right after its start", "Failed to set port sniffer1"],
        repair: |lab, _| lab.ibdump_fault("sink2a", None),
        needs_epilog: false,
    },
    StartFailure {
        name: "ibdump ends right after it was ready",
        cause: |lab, _| lab.ibdump_fault("sink2a", Some(Ibdump::Flash)),
        expected: &["sink2a", "ibdump ended right after its start", "Ready to capture"],
        repair: |lab, _| lab.ibdump_fault("sink2a", None),
        needs_epilog: false,
    },
    StartFailure {
        name: "a switch refuses one port",
        cause: |lab, _| lab.switch_fault(Some(Switch::Refuse(lab.topology.place("n004").1 as u8))),
        expected: &["0xb8599f0300001001", "port 2: refused"],
        repair: |lab, _| lab.switch_fault(None),
        needs_epilog: false,
    },
    StartFailure {
        name: "a switch does not answer",
        cause: |lab, _| {
            lab.configure(SiteConfig { mirror: "timeout_s = 1", ..SiteConfig::default() });
            lab.switch_fault(Some(Switch::Hang));
        },
        expected: &["took longer than 1 s", "may still be mirrored"],
        repair: |lab, _| {
            lab.configure(SiteConfig::default());
            lab.switch_fault(None);
        },
        needs_epilog: true,
    },
    StartFailure {
        name: "a compute node does not answer",
        cause: |lab, _| lab.stop_ssh_server("n002"),
        expected: &["n002: no connection to 127.0.0.12:2222"],
        repair: |lab, _| lab.start_ssh_server("n002"),
        needs_epilog: false,
    },
    StartFailure {
        name: "the host key of a node has changed",
        cause: |lab, _| {
            let path = lab.path().join("ssh/known_hosts");
            let text = fs::read_to_string(&path).expect("known hosts");
            let key = |node: &str| {
                let start = format!("[{}]:", address(node));
                text.lines().find(|line| line.starts_with(&start)).and_then(|line| line.split(' ').nth(2)).expect("key")
            };
            fs::write(&path, text.replace(key("n003"), key("n004"))).expect("known hosts");
            fs::write(lab.path().join("known_hosts.right"), &text).expect("known hosts");
        },
        expected: &["n003: the host key", "is not the one in"],
        repair: |lab, _| {
            fs::rename(lab.path().join("known_hosts.right"), lab.path().join("ssh/known_hosts")).expect("known hosts");
        },
        needs_epilog: false,
    },
    StartFailure {
        name: "the disk of a sink is full",
        cause: |lab, _| {
            lab.configure(SiteConfig { capture: "min_free_bytes = 1_000_000_000_000_000", ..SiteConfig::default() });
        },
        expected: &["bytes free and needs 1000000000000000"],
        repair: |lab, _| {
            lab.configure(SiteConfig::default());
        },
        needs_epilog: false,
    },
    StartFailure {
        name: "a port is mirrored by somebody else",
        cause: |lab, _| {
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
        expected: &["is mirrored already"],
        repair: |lab, _| {
            assert_eq!(lab.mirrored().len(), 1, "the mirror of somebody else stays");
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
        needs_epilog: false,
    },
];

/// Starts that fail are undone by the prolog itself, and the job runs.
pub(crate) fn a_start_that_fails_is_undone_and_the_job_runs() {
    let mut lab = lab(SiteConfig::default());
    for (index, case) in START_FAILURES.iter().enumerate() {
        println!("{}", case.name);
        let job = 100 + index as u32;
        (case.cause)(&mut lab, job);
        let log_text = hook(&lab, "prolog", job);
        for expected in case.expected {
            assert!(
                log_text.contains("error: ") && log_text.contains(expected),
                "{}: {expected} is not in\n{log_text}",
                case.name
            );
        }
        assert_eq!(log_text.contains("; not undone: "), case.needs_epilog, "{}: {log_text}", case.name);
        (case.repair)(&mut lab, job);
        if !case.needs_epilog {
            clean(&lab);
        }
        hook(&lab, "epilog", job);
        clean(&lab);
    }
    // Nothing is left that could disturb the next job.
    starts(&lab, 99);
    hook(&lab, "epilog", 99);
    clean(&lab);
    let runs = fs::read_dir(lab.path().join("runs")).expect("runs").count();
    assert_eq!(runs, 1, "only a job that was captured leaves a folder");
    assert!(!std::path::Path::new(PWNED).exists(), "a job's name was run");
}
