//! Runs from start to end, with and without faults; all nodes are this machine.

use crate::lab::{LEAF, SinkLab, in_seconds, names, open, start, wait_until};
use ibscope_orchestrator::capture::PacketCounts;
use ibscope_orchestrator::journal::{JournalError, RunPhase, State, StepProgress};
use ibscope_orchestrator::manifest::Manifest;
use ibscope_orchestrator::remote::process::Signal;
use ibscope_orchestrator::remote::{
    CommandOutput, FilePart, Files, LocalRunner, RemoteError, Runner, TransferTimeouts,
};
use ibscope_orchestrator::run::{self, RunError};
use ibscope_orchestrator::{status, undo};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_mins(1);

#[test]
fn a_run_starts_and_is_undone() {
    let lab = SinkLab::new();
    let (config, runner) = (lab.config(""), lab.runner());
    let started = start(&config, &runner, lab.plan(7, "a", ["s1", "s2"], false), LONG).unwrap();
    assert_eq!((started.captures, started.ports), (2, 4));
    let leaf = |port: u8, which: u64| format!("{:x}-{port}", LEAF + which);
    assert_eq!(lab.mirrored(), [leaf(1, 0), leaf(2, 0), leaf(1, 1), leaf(2, 1)]);
    assert_eq!(fs::read_to_string(lab.hostfile(7)).unwrap(), "n1\nn2\n");
    assert!(!lab.processes().is_empty());
    let stored = State::open(&config.run.state_dir).unwrap().journals().unwrap();
    assert_eq!(
        stored.iter().map(|journal| (journal.job_id, journal.phase())).collect::<Vec<_>>(),
        [(7, Some(RunPhase::Running))]
    );

    let undone = undo::job(&config, 7, &runner, in_seconds(60)).unwrap();
    assert_eq!(undone.len(), 1);
    assert_eq!(undone[0].left, [""; 0]);
    assert!(undone[0].is_restored);
    lab.assert_restored("after the end");
    // The stand-in writes 8 packets of 42 bytes: LRH 8, BTH 12, 16, CRCs 6. Each has 32 more bytes
    // in the file, after a header of 24.
    for capture in &undone[0].captures {
        let ended = capture.ended.as_ref().unwrap();
        assert_eq!((ended.exit_status, ended.signal), (Some(0), Some(Signal::Int)));
        assert_eq!(ended.counted, Some(PacketCounts { packets: 8, bytes: Some(336), dropped: None }));
        assert_eq!(ended.bytes, Some(24 + 8 * (42 + 32)));
        assert_eq!(ended.remarks, [""; 0]);
        // They stay where they are, readable for their owner only, with the hash that sha256sum
        // computes.
        assert_eq!(fs::metadata(&capture.file).unwrap().permissions().mode() & 0o777, 0o600);
        let fetched = capture.fetched.as_ref().unwrap();
        let digest = Command::new("sha256sum").arg(&capture.file).output().unwrap();
        assert_eq!(fetched.sha256, String::from_utf8(digest.stdout).unwrap()[..64]);
        assert_eq!(fetched.file, capture.file);
    }
    let manifest = undone[0].manifest.clone().unwrap();
    assert_eq!(fs::metadata(&manifest).unwrap().permissions().mode() & 0o777, 0o600);
    let manifest = Manifest::read(&manifest).unwrap();
    assert_eq!(manifest.captures.iter().map(|capture| capture.port_guids.len()).collect::<Vec<_>>(), [2, 1]);
    for capture in &manifest.captures {
        // The sink's clock is the clock of this machine.
        let clock = capture.clock.unwrap();
        assert!(clock.offset_ns.unsigned_abs() <= clock.uncertainty_ns, "{clock:?}");
        let ended = capture.ended.as_ref().unwrap();
        assert_eq!((ended.signal.as_deref(), ended.status), (Some("INT"), Some(0)));
    }
    // Two captures; for each of four ports on, check and off; in order of time.
    let programs: Vec<&str> = manifest.commands.iter().map(|run| run.argv[0].as_str()).collect();
    let count = |program: &str| programs.iter().filter(|run| run.ends_with(program)).count();
    assert_eq!([count("ibdump-standin"), count("mkdir"), count("ls"), count("rm"), programs.len()], [2, 4, 4, 4, 14]);
    assert!(
        manifest.commands.is_sorted_by_key(|run| run.at_ns)
            && programs[..2].iter().all(|program| program.ends_with("ibdump-standin"))
    );
    // A second time there is nothing to do, and an epilog without a prolog has nothing to do
    // either.
    assert!(undo::job(&config, 7, &runner, in_seconds(60)).unwrap().is_empty());
    assert!(undo::job(&config, 8, &runner, in_seconds(60)).unwrap().is_empty());
}

#[test]
fn a_capture_that_cannot_start_ends_the_start() {
    let lab = SinkLab::new();
    let (config, runner) = (lab.config(""), lab.runner());
    lab.misbehave("fail");
    let error = start(&config, &runner, lab.plan(7, "a", ["s1", "s2"], false), LONG).unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("s1: ibdump ended right after its start") && message.contains("command interface bad param"),
        "{message}"
    );
    assert!(message.contains("all changes are undone"), "{message}");
    lab.assert_restored("after a failed start");
    assert_eq!(names(&lab.folder.join("captures")), [""; 0]);
    assert!(!lab.folder.join("collected").exists());
}

#[test]
fn a_port_that_cannot_be_mirrored_ends_the_start() {
    let lab = SinkLab::new();
    let (config, runner) = (lab.config(""), lab.runner());
    // The folder of port 2 of the second leaf exists already, so the switch refuses to mirror the
    // port.
    let taken = lab.folder.join(format!("switch/{:x}-2", LEAF + 1));
    fs::create_dir(&taken).unwrap();
    let error = start(&config, &runner, lab.plan(7, "a", ["s1", "s2"], false), LONG).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("leaf 0xb8599f0300001001") && message.contains("File exists"), "{message}");
    lab.assert_restored("after a failed switch");
    assert_eq!(names(&lab.folder.join("captures")), [""; 0]);
}

/// A capture that ended by itself gives a remark, and the others are stopped normally.
#[test]
fn a_capture_that_dies_is_reported() {
    let lab = SinkLab::new();
    let (config, runner) = (lab.config(""), lab.runner());
    start(&config, &runner, lab.plan(7, "a", ["s1", "s2"], false), LONG).unwrap();
    lab.misbehave("die");
    wait_until("the captures die", || lab.processes().is_empty());
    let undone = undo::job(&config, 7, &runner, in_seconds(60)).unwrap();
    for capture in &undone[0].captures {
        let ended = capture.ended.as_ref().unwrap();
        assert_eq!((ended.exit_status, ended.signal), (Some(3), None));
        assert!(ended.remarks[0].contains("had ended before it was stopped"), "{ended:?}");
    }
    lab.assert_restored("after captures died");
}

#[test]
fn a_capture_that_ignores_a_signal_gets_the_next_one() {
    for (mode, signal, exit_status, remark) in [
        ("deaf-int", Signal::Term, Some(0), "ignored SIGINT; SIGTERM ended it"),
        ("deaf-int,deaf-term", Signal::Kill, Some(137), "the end of the capture file is missing"),
    ] {
        let lab = SinkLab::new();
        let (config, runner) = (lab.config(""), lab.runner());
        lab.misbehave(mode);
        start(&config, &runner, lab.plan(7, "a", ["s1", "s2"], false), LONG).unwrap();
        let undone = undo::job(&config, 7, &runner, in_seconds(60)).unwrap();
        for capture in &undone[0].captures {
            let ended = capture.ended.as_ref().unwrap();
            assert_eq!((ended.exit_status, ended.signal), (exit_status, Some(signal)), "{mode}");
            assert!(ended.remarks[0].contains(remark), "{mode}: {ended:?}");
        }
        lab.assert_restored(mode);
    }
}

#[test]
fn a_sink_without_free_space_is_found_before_anything_is_changed() {
    let lab = SinkLab::new();
    let (config, runner) = (lab.config("min_free_bytes = 1_000_000_000_000_000_000"), lab.runner());
    let error = start(&config, &runner, lab.plan(7, "a", ["s1", "s2"], false), LONG).unwrap_err().to_string();
    assert!(error.contains("s1: ") && error.contains("bytes free and needs 1000000000000000000"), "{error}");
    lab.assert_restored("after too little space");
    assert_eq!(names(&lab.folder.join("captures")), [""; 0]);
}

/// Slurm starts a job again under its id: the first run is undone before.
#[test]
fn the_same_job_again_undoes_the_run_before() {
    let lab = SinkLab::new();
    let (config, runner) = (lab.config(""), lab.runner());
    start(&config, &runner, lab.plan(7, "a", ["s1", "s2"], false), LONG).unwrap();
    let deadline = in_seconds(60);
    let claim = run::claim_job(&config, 7, &runner, deadline).unwrap();
    assert_eq!(claim.undone_runs.len(), 1);
    assert!(claim.undone_runs[0].is_restored && lab.processes().is_empty() && lab.mirrored().is_empty());
    // A hook has no time for the captures of the first run; they are fetched later.
    assert_eq!(claim.undone_runs[0].left, ["its captures are not fetched yet"]);
    let plan_claim = claim.lock_plan(deadline).unwrap();
    assert_eq!((plan_claim.others().0.len(), plan_claim.others().1.len()), (0, 0));
    let journal = plan_claim.open(lab.plan(7, "b", ["s1", "s2"], false), &config).unwrap();
    run::start(&config, &runner, journal, deadline).unwrap();
    assert_eq!(lab.mirrored().len(), 4);
    let undone = undo::job(&config, 7, &runner, in_seconds(60)).unwrap();
    let fetched: Vec<usize> = undone
        .iter()
        .map(|undone| undone.captures.iter().filter(|capture| capture.fetched.is_some()).count())
        .collect();
    assert_eq!(fetched, [2, 2]);
    lab.assert_restored("after the second run");
}

/// The resources of one job are known to the next, from the moment its journal exists until it is
/// undone.
#[test]
fn jobs_know_of_each_other() {
    let lab = SinkLab::new();
    let (config, runner) = (lab.config(""), lab.runner());
    let others = |job_id| {
        let plan_claim =
            run::claim_job(&config, job_id, &runner, in_seconds(60)).unwrap().lock_plan(in_seconds(60)).unwrap();
        plan_claim.others().0.to_vec()
    };
    let plan = lab.plan(7, "a", ["s1", "s2"], false);
    let journal = open(&config, &runner, plan.clone(), in_seconds(60)).unwrap();
    assert_eq!(others(8), plan.steps);
    run::start(&config, &runner, journal, in_seconds(60)).unwrap();
    assert_eq!(others(8), plan.steps);
    undo::job(&config, 7, &runner, in_seconds(60)).unwrap();
    assert_eq!(others(8), []);
}

/// Two hooks on one job: the second waits until its deadline, and then reports the lock.
#[test]
fn two_processes_never_work_on_one_job_at_the_same_time() {
    let lab = SinkLab::new();
    let (config, runner) = (lab.config(""), lab.runner());
    let journal = open(&config, &runner, lab.plan(7, "a", ["s1", "s2"], false), in_seconds(60)).unwrap();
    let refused = undo::job(&config, 7, &runner, Instant::now() + Duration::from_millis(200)).unwrap_err();
    assert!(matches!(&refused, JournalError::Locked { what, .. } if what == "job 7"), "{refused}");
    // Another job is not affected.
    assert!(undo::job(&config, 8, &runner, in_seconds(60)).unwrap().is_empty());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| undo::job(&config, 7, &runner, in_seconds(60)).unwrap());
        run::start(&config, &runner, journal, in_seconds(60)).unwrap();
        assert_eq!(waiting.join().unwrap().len(), 1);
    });
    lab.assert_restored("after both");
}

/// A start that exceeds its deadline undoes itself, and reserves time for that.
#[test]
fn a_start_that_exceeds_its_deadline_is_undone() {
    let lab = SinkLab::new();
    let (config, runner) = (lab.config(""), lab.runner());
    let mut plan = lab.plan(7, "a", ["s1", "s2"], false);
    if let ibscope_orchestrator::step::PlanStep::Mirror(step) = &mut plan.steps[2] {
        step.on[1].argv = ["/bin/sleep", "30"].map(str::to_owned).to_vec();
        step.on[1].timeout_s = 30;
    }
    let error = start(&config, &runner, plan, Duration::from_secs(6)).unwrap_err();
    assert!(matches!(error, RunError::Failed { .. }), "{error}");
    assert!(error.to_string().contains("/bin/sleep took longer than"), "{error}");
    lab.assert_restored("after the deadline");
}

/// Sinks that send a hundred bytes and then nothing until a point in time. Records the offsets of
/// the requests.
struct SlowRunner {
    nodes: LocalRunner,
    until: Instant,
    offsets: Mutex<Vec<u64>>,
}

impl Runner for SlowRunner {
    fn run(&self, node: Option<&str>, argv: &[String], timeout: Duration) -> Result<CommandOutput, RemoteError> {
        self.nodes.run(node, argv, timeout)
    }
}

impl Files for SlowRunner {
    fn read_file(
        &self,
        node: &str,
        part: FilePart<'_>,
        timeouts: TransferTimeouts,
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<String, RemoteError> {
        self.offsets.lock().unwrap().push(part.offset);
        self.nodes.read_file(node, part, timeouts, &mut |chunk| {
            let (first, rest) = chunk.split_at(100);
            sink(first)?;
            std::thread::sleep(self.until.saturating_duration_since(Instant::now()));
            sink(rest)
        })
    }
}

/// A capture that is not fetched by the deadline stays and is reported, and the next attempt
/// continues its transfer.
#[test]
fn fetching_ends_by_the_deadline_and_is_continued_later() {
    let lab = SinkLab::new();
    let (mut config, runner) = (lab.config(""), lab.runner());
    config.collect.fetch = true;
    start(&config, &runner, lab.plan(7, "a", ["s1", "s2"], false), LONG).unwrap();
    let deadline = in_seconds(8);
    let slow = SlowRunner { nodes: lab.runner(), until: deadline, offsets: Mutex::default() };
    let undone = undo::job(&config, 7, &slow, deadline).unwrap().remove(0);
    assert!(undone.is_restored && undone.captures.iter().all(|capture| capture.fetched.is_none()), "{undone:?}");
    let reason = "the deadline has passed (run.deadline_s); the next attempt continues the transfer";
    let is_reported = |sink| {
        undone.left.iter().any(|left| left.contains(&format!("-{sink}.pcap of {sink}")) && left.contains(reason))
    };
    assert!(undone.left.len() == 2 && is_reported("s1") && is_reported("s2"), "{undone:?}");
    assert!(lab.mirrored().is_empty() && lab.processes().is_empty());
    let run = status::runs(&config, Some(7)).unwrap().remove(0);
    assert!(!undone.has_failed() && run.state() == "fetching" && !run.is_left(), "{run:?}");
    // Undoing by hand has no deadline for the work: the deadline that has passed only limits
    // waiting.
    let undone = undo::job_without_deadline(&config, 7, &slow, Instant::now()).unwrap().remove(0);
    assert_eq!(undone.left, [""; 0]);
    for capture in &undone.captures {
        let fetched = capture.fetched.as_ref().unwrap();
        assert_eq!(fs::read(&fetched.file).unwrap(), fs::read(&capture.file).unwrap());
    }
    assert_eq!(*slow.offsets.lock().unwrap(), [0, 0, 100, 100]);
    lab.assert_restored("without a deadline");
}

/// A process that reads the capture, or has its name among other arguments, is not the capture.
#[test]
fn a_process_that_reads_a_capture_is_not_stopped() {
    let lab = SinkLab::new();
    let (config, runner) = (lab.config(""), lab.runner());
    start(&config, &runner, lab.plan(7, "a", ["s1", "s2"], false), LONG).unwrap();
    let file = lab.capture("a", "s1").file;
    let mut reader = Command::new("tail").arg("-f").arg(&file).stdout(std::process::Stdio::null()).spawn().unwrap();
    let undone = undo::job(&config, 7, &runner, in_seconds(60)).unwrap();
    assert!(undone[0].is_restored);
    assert!(reader.try_wait().unwrap().is_none());
    reader.kill().unwrap();
    reader.wait().unwrap();
    lab.assert_restored("beside a reader");
}

/// A switch that does not stop mirroring a port: the rest is undone, the run stays open, and the
/// next attempt closes it.
#[test]
fn a_step_that_cannot_be_undone_is_tried_again() {
    let lab = SinkLab::new();
    let (config, runner) = (lab.config(""), lab.runner());
    let mut plan = lab.plan(7, "a", ["s1", "s2"], false);
    let gate = lab.folder.join("gate");
    if let ibscope_orchestrator::step::PlanStep::Mirror(step) = &mut plan.steps[2] {
        let mut check = step.check[0].clone();
        check.command.argv = ["/bin/ls", &gate.display().to_string()].map(str::to_owned).to_vec();
        check.expect.clear();
        step.check_off = vec![check];
    }
    fs::create_dir(&gate).unwrap();
    start(&config, &runner, plan, LONG).unwrap();
    fs::remove_dir(&gate).unwrap();
    let undone = undo::job(&config, 7, &runner, in_seconds(60)).unwrap();
    assert!(!undone[0].is_restored && undone[0].left[0].contains("is still mirrored"), "{:?}", undone[0].left);
    assert!(lab.processes().is_empty() && lab.mirrored().is_empty());
    let stored = State::open(&config.run.state_dir).unwrap().journals().unwrap();
    let record = stored[0].record.as_ref().unwrap();
    assert_eq!(record.left, undone[0].left);
    assert_eq!(record.progress.iter().filter(|progress| matches!(progress, StepProgress::Undone(_))).count(), 4);
    fs::create_dir(&gate).unwrap();
    // The run is not in the phase `running`, so it is stale whether or not the job has ended.
    let undone = undo::stale(&config, &runner, in_seconds(60), |_| false).unwrap();
    assert_eq!(undone[0].as_ref().unwrap().left, [""; 0]);
    lab.assert_restored("after the second try");
}

/// `undo --all-stale` undoes runs of jobs that have ended, and leaves the others.
#[test]
fn only_stale_runs_are_undone() {
    let lab = SinkLab::new();
    let (config, runner) = (lab.config(""), lab.runner());
    start(&config, &runner, lab.plan(7, "a", ["s1", "s2"], false), LONG).unwrap();
    assert!(undo::stale(&config, &runner, in_seconds(60), |_| false).unwrap().is_empty());
    assert_eq!(lab.mirrored().len(), 4);
    assert_eq!(undo::stale(&config, &runner, in_seconds(60), |job_id| job_id == 7).unwrap().len(), 1);
    lab.assert_restored("after a stale run");
}
