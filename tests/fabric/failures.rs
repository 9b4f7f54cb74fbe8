//! What goes wrong, case by case: afterwards no port is mirrored, nothing runs, the job was not held up, and the log says what happened.

use crate::container::until;
use crate::ibdump::Fault as Ibdump;
use crate::jobs::{SAMPLE, clean, expected};
use crate::lab::{Lab, NODES, address};
use crate::site::Site;
use crate::switch::Fault as Switch;
use crate::tools;
use std::fs;
use std::time::{Duration, Instant};

const NODELIST: &str = "n[001-004]";

/// Hooks end by their deadline, whatever they wait for.
const LONGEST: Duration = Duration::from_secs(crate::site::DEADLINE_S + 2);

fn lab(site: Site) -> Lab {
    let lab = Lab::start();
    lab.traffic(&tools::sample(SAMPLE));
    lab.configure(site);
    lab
}

/// Calls a hook that must end well and in time; what it told.
fn hook(lab: &Lab, which: &str, job: u32) -> String {
    let before = lab.told().len();
    let start = Instant::now();
    let ran = lab.hook(which, job, NODELIST);
    assert_eq!(ran.code, 0, "{which} of job {job}: {}{}", ran.stderr, lab.told());
    assert!(start.elapsed() < LONGEST, "{which} of job {job}: {:?}", start.elapsed());
    lab.told()[before..].to_owned()
}

/// A capture that runs.
fn starts(lab: &Lab, job: u32) {
    let told = hook(lab, "prolog", job);
    assert!(told.contains("capturing: 2 captures, 4 ports mirrored"), "{told}");
}

/// A step of a case: the lab, and the number of the job.
type Step = fn(&mut Lab, u32);

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
        says: &["sink2a", "ibdump ended as soon as it was started", "Failed to open device"],
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
    assert!(!std::path::Path::new("/tmp/pwned").exists(), "a job's name was run");
}

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

const COURSES: [Course; 8] = [
    Course {
        name: "ibdump dies",
        before: |lab, _| lab.ibdump_fault("sink1a", Some(Ibdump::Die)),
        meanwhile: |lab, _| {
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
            lab.container.succeeds(["mount", "-t", "tmpfs", "-o", "size=4m", "none", &captures]);
        },
        meanwhile: |lab, _| {
            // Everything that is written from now on does not fit.
            let file = lab.path().join("captures/fill").display().to_string();
            lab.container.run(["dd", "if=/dev/zero", &format!("of={file}"), "bs=64k"]);
        },
        says: &["sink1a: the capture told nothing at its end", "undone"],
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
    let mut lab = lab(Site { capture: "stop_s = 1", ..Site::default() });
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

/// Prologs are killed by -9 at every call of the switches, and at moments in between: all of it, and then the epilog restores the fabric; or the hook alone,
/// as Slurm does, and then its work undoes what it has begun.
pub(crate) fn a_prolog_that_is_killed_anywhere_is_undone() {
    let lab = lab(Site::default());
    let mut job = 300;
    for call in 1..=4 {
        lab.switch_fault(Some(Switch::Kill(call)));
        let told = killed(&lab, job);
        assert!(!told.contains("capturing"), "{told}");
        assert!(lab.mirrored().len() >= call.div_ceil(2), "call {call}: it was killed after the change");
        lab.switch_fault(None);
        hook(&lab, "epilog", job);
        clean(&lab);
        job += 1;
    }
    // A run of the whole takes so long here; twenty moments of it.
    let start = Instant::now();
    starts(&lab, job);
    let whole = start.elapsed();
    hook(&lab, "epilog", job);
    for moment in 1..20 {
        job += 1;
        let mut prolog = begun(&lab, job);
        std::thread::sleep(whole * moment / 20);
        if moment % 2 == 0 {
            lab.container.run(["pkill", "-KILL", "-x", "ibscope"]);
            prolog.wait().expect("a hook");
            hook(&lab, "epilog", job);
        } else if is_hook_killed(&lab) {
            prolog.wait().expect("a hook");
            until(LONGEST, "end of its work", || {
                (!lab.container.processes().values().any(|line| line.contains("ibscope hook"))).then_some(())
            });
        } else {
            prolog.wait().expect("a hook");
            hook(&lab, "epilog", job);
        }
        clean(&lab);
    }
    // A prolog is killed and no epilog comes: `undo --all-stale` sees to it.
    lab.switch_fault(Some(Switch::Kill(2)));
    killed(&lab, job);
    lab.switch_fault(None);
    let listed = lab.capture(&["list"]);
    assert!(listed.stdout.contains("cut off"), "{}", listed.stdout);
    let undone = lab.capture(&["undo", "--all-stale"]);
    assert_eq!(undone.code, 0, "{}{}", undone.stdout, undone.stderr);
    clean(&lab);
}

/// Kills the hook, not what works for it; false where it has ended.
fn is_hook_killed(lab: &Lab) -> bool {
    let is_hook = |line: &String| line.contains("ibscope hook prolog") && !line.contains("--work");
    let processes = lab.container.processes();
    let Some((pid, _)) = processes.iter().find(|(_, line)| is_hook(line)) else { return false };
    lab.container.run(["kill", "-KILL", &pid.to_string()]).status.success()
}

/// Runs a prolog that is killed by somebody else.
fn killed(lab: &Lab, job: u32) -> String {
    let before = lab.told().len();
    let status = begun(lab, job).wait().expect("a hook");
    assert!(!status.success(), "{status}");
    lab.told()[before..].to_owned()
}

/// A prolog that has just been started.
fn begun(lab: &Lab, job: u32) -> std::process::Child {
    let path = lab.path().join("capture.toml").display().to_string();
    let program = lab.path().join("bin/ibscope").display().to_string();
    let words = [&program, "hook", "prolog", "--config", &path].map(str::to_owned);
    let words = crate::site::environment("prolog", job, NODELIST).into_iter().chain(words);
    lab.container.command(std::path::Path::new("/"), words).spawn().expect("a hook")
}

/// A sink that does not answer is left out: the other one on its leaf takes its place, and the log says so.
pub(crate) fn a_sink_that_does_not_answer_is_replaced() {
    let lab = lab(Site::default());
    lab.stop_ssh_server("sink1a");
    starts(&lab, 600);
    assert_eq!(lab.mirrored(), expected(&lab, &NODES[..4], ["sink1b", "sink2a"], 600), "{}", lab.told());
    assert!(lab.told().contains("warning: a sink is left out: sink1a: no connection"), "{}", lab.told());
    hook(&lab, "epilog", 600);
    clean(&lab);
}

/// Two jobs that begin and end at the same time on the same leaf have a sink each.
pub(crate) fn two_jobs_at_once_on_one_leaf_have_a_sink_each() {
    let lab = lab(Site::default());
    let both = |which| {
        std::thread::scope(|scope| {
            let one = scope.spawn(|| lab.hook(which, 400, "n[001-002]").code);
            let two = scope.spawn(|| lab.hook(which, 401, "n[005-006]").code);
            assert_eq!((one.join().expect("one"), two.join().expect("two")), (0, 0), "{}", lab.told());
        });
    };
    both("prolog");
    let mirrored = lab.mirrored();
    assert_eq!(mirrored.len(), 4, "{}", lab.told());
    let sinks = |job: u32| {
        let mut sinks: Vec<u8> =
            mirrored.values().filter(|mirror| mirror.job == job).map(|mirror| mirror.sink).collect();
        sinks.dedup();
        sinks
    };
    let (one, two) = (sinks(400), sinks(401));
    assert!(one.len() == 1 && two.len() == 1 && one != two, "{mirrored:?}");
    both("epilog");
    clean(&lab);
}

/// As Prolog and Epilog of the nodes, only the first node's acts.
pub(crate) fn hooks_of_nodes_act_on_the_first_one_only() {
    let lab = lab(Site::default());
    for node in ["n002", "n003", "n004"] {
        assert_eq!(lab.node_hook("prolog", 500, NODELIST, node).code, 0);
    }
    assert_eq!((lab.mirrored().len(), lab.captures_running().len()), (0, 0));
    assert_eq!(lab.node_hook("prolog", 500, NODELIST, "n001").code, 0);
    assert_eq!(lab.mirrored().len(), 4, "{}", lab.told());
    assert_eq!(lab.node_hook("epilog", 500, NODELIST, "n002").code, 0);
    assert_eq!(lab.mirrored().len(), 4, "{}", lab.told());
    assert_eq!(lab.node_hook("epilog", 500, NODELIST, "n001").code, 0);
    clean(&lab);
}
