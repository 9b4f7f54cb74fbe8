//! The fault matrix: each fault at each step of prolog, job and epilog. Afterwards, once the fault is
//! repaired and the sweeper ran, no port is mirrored, no process and no file is left, and the job was
//! never harmed.
//!
//! A step is a call of a program by a hook, on this machine or on a node. The gate stops the call, so
//! that a fault comes exactly there.

use crate::cases::{LONGEST, NODELIST};
use crate::container::until;
use crate::fault_steps::{MatrixSite, STEPS, Stage, Step};
use crate::gate::GateDecision;
use crate::ibdump::IbdumpFault;
use crate::injected::{InjectedFault as Fault, is_own_process};
use crate::jobs::{SAMPLE, install};
use crate::lab::HookLab;
use crate::site::{SiteConfig, environment};
use crate::sweeper::sweep;
use crate::tools;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

/// Every how many cases belong to the sample.
const SAMPLE_STRIDE: usize = 33;

/// The document with the counts.
const DOCUMENT: &str = "docs/faults.md";

/// Stand-in for squeue: the job runs as long as the file LIVE exists. Like Slurm's, it refuses an option
/// that it does not know.
const SQUEUE: &str = r#"#!/bin/sh
case "$*" in
'--noheader --format=%A %T --jobs '*)
    [ $# = 4 ] && [ -e 'LIVE' ] && echo "$4 RUNNING" && exit 0
    echo 'slurm_load_jobs error: Invalid job id specified' >&2
    exit 1
    ;;
'--noheader --format=%A --states=CONFIGURING,RUNNING,SUSPENDED --nodelist '*)
    [ $# = 5 ] && exit 0
    ;;
esac
echo "squeue: error: unrecognized arguments: $*" >&2
exit 1
"#;

/// Who ended the last mirror and the last process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RestoredBy {
    Hook,
    Sweeper,
}

/// A lab with a gate, whose hooks are called by the installed scripts.
struct Matrix {
    lab: HookLab,
    config: String,
    job: u32,
}

impl Matrix {
    fn start(user: &'static str, site: MatrixSite) -> Self {
        let lab = HookLab::start_as(user);
        lab.traffic(&tools::sample(SAMPLE));
        let (mirror, capture) = site.lines();
        let config =
            lab.configure(SiteConfig { mirror, capture, collect: "delete_fetched = true", ..SiteConfig::PLAIN });
        let text = fs::read_to_string(&config).expect("configuration");
        // squeue is the program beside sbatch.
        let sbatch = format!("\n[tools]\nsbatch = \"{}/bin/sbatch\"\n", lab.path().display());
        let text = text.replace("\n[tools]\n", &sbatch);
        fs::write(&config, &text).expect("configuration");
        let live = lab.path().join("live").display().to_string();
        let squeue = lab.path().join("bin/squeue");
        fs::write(&squeue, SQUEUE.replace("LIVE", &live)).expect("squeue");
        fs::set_permissions(&squeue, fs::Permissions::from_mode(0o755)).expect("permissions");
        lab.mount_disks();
        install(&lab, config.to_str().expect("path"));
        lab.build_gate();
        Self { lab, config: text, job: 900 }
    }

    /// Starts a hook.
    fn begin(&self, which: &str) -> Child {
        let (lab, user) = (&self.lab, self.lab.user);
        let script = lab.path().join("scripts").join(which).display().to_string();
        let (reuid, regid) = (format!("--reuid={user}"), format!("--regid={user}"));
        let words = ["setpriv", &reuid, &regid, "--clear-groups", &script].map(str::to_owned);
        let words = environment(which, self.job, NODELIST).into_iter().chain(words);
        lab.container.command(Path::new("/"), words).spawn().expect("a hook")
    }

    /// Waits for the end of a hook. It must end in time; if it was not killed, successfully.
    fn end(&self, mut hook: Child, is_killed: bool) {
        let begun = Instant::now();
        let status = until(LONGEST, "the end of a hook", || hook.try_wait().expect("a hook"));
        assert!(is_killed || status.success(), "{status} after {:?}: {}", begun.elapsed(), self.lab.log_text());
    }

    fn run(&self, which: &str) {
        self.end(self.begin(which), false);
    }

    /// Runs a hook, and causes a fault at a step of it.
    fn run_with(&self, which: &str, step: Step, fault: Fault) {
        self.lab.arm_gate(Some((step.call, step.number)));
        let mut hook = self.begin(which);
        until(LONGEST, "the step", || {
            let ended = hook.try_wait().expect("a hook");
            assert!(ended.is_none(), "{step:?} was not reached: {:?}", self.lab.gate_calls());
            self.lab.is_at_gate().then_some(())
        });
        self.lab.inject(fault, step.site == MatrixSite::MirrorsAtSinks);
        match fault {
            Fault::Hang => {}
            Fault::Fail => self.lab.open_gate(GateDecision::Fail),
            Fault::Lie => self.lab.open_gate(GateDecision::Lie),
            _ => self.lab.open_gate(GateDecision::Go),
        }
        let is_killed = matches!(fault, Fault::Killed | Fault::ControllerRestarted);
        self.end(hook, is_killed);
        if fault == Fault::ControllerRestarted {
            self.run(which);
        }
    }

    /// Causes a fault while the job runs.
    fn disturb_job(&self, fault: Fault) {
        let lab = &self.lab;
        match fault {
            Fault::Fail => lab.ibdump_fault("sink1a", Some(IbdumpFault::Die)),
            Fault::Lie => {
                let files = "captures/*.pcap captures/*.ibp.tar";
                lab.container.run(["sh", "-c", &format!("cd {} && rm -f {files}", lab.path().display())]);
            }
            Fault::Killed => lab.kill(|line| line.contains("/captures/")),
            other => lab.inject(other, false),
        }
    }

    /// Runs a job with a fault at a step. Returns who restored the fabric.
    fn case(&mut self, step: Step, fault: Fault) -> RestoredBy {
        self.job += 1;
        let lab = &self.lab;
        fs::write(lab.path().join("live"), "").expect("file");
        if (step.stage, fault) == (Stage::Job, Fault::Hang) {
            lab.ibdump_fault("sink1a", Some(IbdumpFault::Deaf));
        }
        if step.stage == Stage::Prolog {
            self.run_with("prolog", step, fault);
        } else {
            self.run("prolog");
        }
        if step.stage != Stage::Prolog {
            assert_eq!((lab.mirrored().len(), lab.captures_running().is_empty()), (4, false), "{}", lab.log_text());
        }
        if step.stage == Stage::Job {
            self.disturb_job(fault);
        }
        if step.stage == Stage::Epilog {
            self.run_with("epilog", step, fault);
        } else {
            self.run("epilog");
        }
        fs::remove_file(lab.path().join("live")).expect("file");
        let by = if self.is_restored() { RestoredBy::Hook } else { RestoredBy::Sweeper };
        lab.open_gate(GateDecision::Go);
        lab.ibdump_fault("sink1a", None);
        lab.repair(fault, &self.config);
        lab.leave_gate();
        until(Duration::from_mins(2), "a sweep that leaves nothing", || {
            let swept = sweep(lab);
            if swept.code != 0 {
                println!("  sweep: {} {}{}", swept.code, swept.stdout, swept.stderr);
                std::thread::sleep(Duration::from_secs(5));
            }
            (swept.code == 0).then_some(())
        });
        self.check(step, fault);
        by
    }

    fn is_restored(&self) -> bool {
        self.lab.mirrored().is_empty() && self.lab.captures_running().is_empty()
    }

    /// Nothing is left.
    fn check(&self, step: Step, fault: Fault) {
        let lab = &self.lab;
        let what = || format!("{step:?} {fault:?}: {}", lab.log_text());
        assert_eq!(lab.mirrored(), BTreeMap::new(), "{}", what());
        let begun = Instant::now();
        loop {
            let left: Vec<String> =
                lab.container.processes().into_values().filter(|line| is_own_process(line)).collect();
            if left.is_empty() {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(15), "{left:#?}\n{}", what());
            std::thread::sleep(Duration::from_millis(100));
        }
        // The capture stays that `rm` did not delete, and the retention of the sink deletes it.
        let is_kept = (step.call, fault) == ("rm", Fault::Lie);
        let is_left = |name: &String| {
            name.contains(".part")
                || name.starts_with("hosts/")
                || name.starts_with("state/job-")
                || name.starts_with("captures/")
                    && Path::new(name).extension().is_some_and(|of| of == "pcap" || of == "tar")
                    && !is_kept
        };
        let left: Vec<String> = lab.files_on_disks().into_iter().filter(is_left).collect();
        assert_eq!(left, [""; 0], "{}", what());
        lab.remove_runs();
    }
}

/// Cases by who restored the fabric.
type Counts = BTreeMap<(Step, Fault), RestoredBy>;

/// Runs cases for hooks of a user. After a case that fails the others go on, in another lab.
fn run_cases(user: &'static str, cases: &[(Step, Fault)]) -> Counts {
    let (mut counts, mut failures) = (Counts::new(), Vec::new());
    let mut lab = None;
    for &(step, fault) in cases {
        let begun = Instant::now();
        if lab.as_ref().is_some_and(|(of, _)| *of != step.site) {
            // Two labs at once would be in each other's way.
            lab = None;
        }
        let (_, matrix) = lab.get_or_insert_with(|| (step.site, Matrix::start(user, step.site)));
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| matrix.case(step, fault)));
        let name = format!("{user}: {:?} {:?} {} {}: {}", step.site, step.stage, step.call, step.number, fault.name());
        println!("{name}: {ran:?}, {:.1} s", begun.elapsed().as_secs_f64());
        fs::write(matrix.lab.path().join("log/ibscope"), "").expect("log");
        if let Ok(by) = ran {
            counts.insert((step, fault), by);
        } else {
            failures.push(name);
            lab = None;
        }
    }
    assert_eq!(failures, [""; 0], "{} of {} cases failed", failures.len(), cases.len());
    counts
}

/// Runs cases: every second one with hooks of root, and the others with hooks of Slurm's own user at
/// the same time.
fn run_as_both(cases: &[(usize, (Step, Fault))]) -> Counts {
    let of = |parity: usize| {
        let chosen = cases.iter().filter(|(index, _)| index % 2 == parity).map(|(_, case)| *case);
        chosen.collect::<Vec<_>>()
    };
    let [of_root, of_slurm] = [of(0), of(1)];
    std::thread::scope(|scope| {
        let root = scope.spawn(move || run_cases("root", &of_root));
        let slurm = scope.spawn(move || run_cases("slurm", &of_slurm));
        [root, slurm].into_iter().flat_map(|thread| thread.join().expect("cases of a user")).collect()
    })
}

/// All cases. Their numbers differ by one between neighboring steps and between neighboring faults, so
/// that each user has each step and each fault.
fn all_cases() -> Vec<(usize, (Step, Fault))> {
    let of_step = |(number, step): (usize, &Step)| {
        let step = *step;
        Fault::ALL.into_iter().enumerate().map(move |(index, fault)| (number + index, (step, fault)))
    };
    let all = STEPS.iter().enumerate().flat_map(of_step);
    // No hook runs during the job.
    all.filter(|(_, (step, fault))| (step.stage, *fault) != (Stage::Job, Fault::ControllerRestarted)).collect()
}

/// Numbers of cases of a fault in prolog, job and epilog.
fn cases_of(fault: Fault) -> [usize; 3] {
    let all = all_cases();
    let count = |stage| all.iter().filter(|(_, (step, of))| step.stage == stage && *of == fault).count();
    [Stage::Prolog, Stage::Job, Stage::Epilog].map(count)
}

/// Row of a fault in the table of the documents. `counts` are the cases that hooks and the sweeper
/// restored.
fn row(fault: Fault, counts: [usize; 2]) -> String {
    let numbers = cases_of(fault).into_iter().chain(counts).map(|number| format!(" {number} |"));
    format!("| {} |{}", fault.name(), numbers.collect::<String>())
}

/// A sample of the matrix. Cases in which a program hangs take long, and `make soak` runs them.
pub(crate) fn faults_at_some_steps_leave_nothing() {
    let all = all_cases().into_iter().filter(|(_, (_, fault))| *fault != Fault::Hang);
    run_as_both(&all.step_by(SAMPLE_STRIDE).collect::<Vec<_>>());
}

/// The whole matrix. Compares its counts with those of the documents, or writes them if
/// `IBSCOPE_BLESS` is set.
pub(crate) fn faults_at_all_steps_leave_nothing() {
    let counts = run_as_both(&all_cases());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(DOCUMENT);
    let mut text = fs::read_to_string(&path).expect("the document");
    for fault in Fault::ALL {
        let restored = |by| counts.iter().filter(|((_, of), found)| (*of, **found) == (fault, by)).count();
        let new = row(fault, [RestoredBy::Hook, RestoredBy::Sweeper].map(restored));
        println!("{new}");
        let start = format!("| {} |", fault.name());
        let old = text.lines().find(|line| line.starts_with(&start)).expect("a row of the fault").to_owned();
        text = text.replace(&old, &new);
    }
    if std::env::var_os("IBSCOPE_BLESS").is_some() {
        fs::write(path, text).expect("the document");
    }
}

/// The documents have a row for each fault, with the number of cases that there are.
pub(crate) fn the_documents_count_all_faults() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(DOCUMENT)).expect("the document");
    for fault in Fault::ALL {
        let start = format!("| {} |", fault.name());
        let line = text.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("{start} has no row"));
        let numbers: Vec<usize> = line[start.len()..].split('|').filter_map(|cell| cell.trim().parse().ok()).collect();
        let [prolog, job, epilog, of_hook, of_sweeper] = numbers[..] else { panic!("{line}: not five numbers") };
        assert_eq!([prolog, job, epilog], cases_of(fault), "{line}");
        assert_eq!(prolog + job + epilog, of_hook + of_sweeper, "{line}");
    }
}
