//! Lists the runs that are not closed, with their state as their journals record it.

use crate::config::Config;
use crate::folder::Folder;
use crate::job::MAX_NODES;
use crate::journal::{JournalError, RunPhase, RunRecord, State, StepProgress, StoredJournal, now_ns};
use crate::log;
use crate::remote::{CommandOutput, LocalRunner, Runner};
use crate::step::PlanStep;
use crate::text::printable;
use crate::timestamp::now_s;
use ibscope_parsers::tools::hostlist;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::{Duration, Instant};

/// State of a run.
#[derive(Clone, Debug, Serialize)]
pub struct RunStatus {
    /// Job id.
    pub job_id: u32,
    /// User of the job, if Slurm passed it.
    pub user: Option<String>,
    /// Progress of the run; `None` if the journal cannot be read.
    pub phase: Option<RunPhase>,
    /// True if a process works on the run at the moment.
    pub busy: bool,
    /// True if only captures are left to be fetched, and their transfer goes on.
    pub fetching: bool,
    /// Captures that run, or may run.
    pub captures: usize,
    /// Switch ports that are mirrored, or may be.
    pub ports: usize,
    /// Failed steps, work that is left, and faults of the journal; one sentence each.
    pub problems: Vec<String>,
    /// Path of the journal.
    pub journal: PathBuf,
}

impl RunStatus {
    /// State of the run in one word.
    pub fn state(&self) -> &'static str {
        match self.phase {
            None => "unreadable",
            Some(RunPhase::Starting) if self.busy => "starting",
            Some(RunPhase::Starting) => "aborted",
            Some(RunPhase::Running) => "running",
            Some(RunPhase::Undoing) if self.fetching => "fetching",
            Some(RunPhase::Undoing) if self.busy => "undoing",
            Some(RunPhase::Undoing) => "incomplete",
            Some(RunPhase::Closed) => "closed",
        }
    }

    /// True if the run should be undone but is not, and no process works on it.
    pub fn is_left(&self) -> bool {
        ["unreadable", "aborted", "incomplete"].contains(&self.state())
    }
}

/// States of [`RunStatus::state`] that open runs can have.
const STATES: [&str; 7] = ["starting", "running", "undoing", "fetching", "aborted", "incomplete", "unreadable"];

/// The runs as metrics in the text format of Prometheus. `swept_s` is the time of the last sweep,
/// in seconds since the epoch.
pub fn metrics(runs: &[RunStatus], swept_s: u64) -> String {
    let mut text = String::new();
    let mut gauge = |name: &str, help: &str, samples: &[(String, u64)]| {
        _ = writeln!(text, "# HELP ibscope_{name} {help}\n# TYPE ibscope_{name} gauge");
        for (labels, value) in samples {
            _ = writeln!(text, "ibscope_{name}{labels} {value}");
        }
    };
    let number = |value: usize| [(String::new(), value as u64)];
    let count = |state: &str| runs.iter().filter(|run| run.state() == state).count() as u64;
    let by_state = STATES.map(|state| (format!("{{state=\"{state}\"}}"), count(state)));
    gauge("runs", "Capture runs that are not undone, by state.", &by_state);
    let left = runs.iter().filter(|run| run.is_left()).count();
    gauge("runs_left", "Capture runs that should be undone but are not.", &number(left));
    let ports = runs.iter().map(|run| run.ports).sum();
    gauge("mirrored_ports", "Switch ports that are mirrored, or may be.", &number(ports));
    let captures = runs.iter().map(|run| run.captures).sum();
    gauge("captures", "Captures that run, or may run.", &number(captures));
    gauge(
        "sweep_timestamp_seconds",
        "Time of the last sweep, in seconds since the epoch.",
        &[(String::new(), swept_s)],
    );
    text
}

/// Writes the metrics to the file of `run.metrics`, atomically, for `node_exporter` to read.
pub fn write_metrics(config: &Config) -> Result<(), String> {
    let Some(path) = &config.run.metrics else { return Ok(()) };
    let runs = stored_runs(config, None).map_err(|error| error.to_string())?;
    let swept_s = now_s();
    let write = || {
        let (folder, name) = Folder::parent_of(path)?;
        folder.replace(name, metrics(&runs, swept_s).as_bytes(), 0o644, None)
    };
    write().map_err(|error: std::io::Error| format!("{}: {error}; check run.metrics", path.display()))
}

/// Runs that are not closed, the oldest first; of one job or of all jobs. Warns if Slurm does not
/// answer, because then nobody undoes the runs whose jobs have ended.
pub fn runs(config: &Config, job_id: Option<u32>) -> Result<Vec<RunStatus>, JournalError> {
    let runs = stored_runs(config, job_id)?;
    if let Some(run) = runs.iter().find(|run| run.phase == Some(RunPhase::Running))
        && let JobState::NoAnswer(why) = job_state(config, &slurm_here(config), run.job_id)
    {
        warn_no_answer(config, &why);
    }
    Ok(runs)
}

fn stored_runs(config: &Config, job_id: Option<u32>) -> Result<Vec<RunStatus>, JournalError> {
    if !config.run.state_dir.exists() {
        return Ok(Vec::new());
    }
    let state = State::open(&config.run.state_dir)?;
    let kept = state.journals()?.into_iter().filter(|kept| job_id.is_none_or(|job_id| kept.job_id == job_id));
    Ok(kept.map(|kept| run(&state, kept)).collect())
}

fn run(state: &State, kept: StoredJournal) -> RunStatus {
    let busy = state.lock_job(kept.job_id, Instant::now()).is_err();
    let phase = kept.phase();
    let mut run = RunStatus {
        job_id: kept.job_id,
        user: None,
        phase,
        busy,
        fetching: kept.record.as_ref().is_ok_and(|record| is_fetching(state, &kept.path, record)),
        captures: 0,
        ports: 0,
        problems: Vec::new(),
        journal: kept.path,
    };
    match kept.record {
        Err(error) => run.problems.push(error.to_string()),
        Ok(record) => {
            for (step, progress) in record.plan.steps.iter().zip(&record.progress) {
                match step {
                    _ if matches!(progress, StepProgress::Planned | StepProgress::Undone(_)) => {}
                    PlanStep::Capture(_) => run.captures += 1,
                    PlanStep::Mirror(step) => run.ports += step.ports.len(),
                    PlanStep::Hostfile(_) => {}
                }
            }
            run.problems.extend(record.damage);
            run.problems.extend(record.failed.into_values());
            run.problems.extend(record.left);
            run.user = record.plan.job.user;
        }
    }
    run
}

/// True if a process fetches the captures of a run, or if the next sweep will: the last attempt was not
/// long ago.
fn is_fetching(state: &State, journal: &Path, record: &RunRecord) -> bool {
    let since = u64::try_from(now_ns().saturating_sub(record.left_ns)).map_or(Duration::ZERO, Duration::from_nanos);
    let is_locked = || matches!(state.lock_transfer(journal), Ok(None));
    record.is_fetching && (since < NEXT_SWEEP || is_locked())
}

/// The next sweep follows within this time, unless the sweeper is off.
const NEXT_SWEEP: Duration = Duration::from_mins(10);

/// Time limit for Slurm's response.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A job as Slurm reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobState {
    /// The job waits, runs, or waits for its epilog.
    Live,
    /// The job has ended.
    Ended,
    /// Slurm does not know the job.
    Unknown,
    /// Slurm does not answer, for this reason.
    NoAnswer(String),
}

/// States of jobs that have not ended. A completing job waits for its epilog.
const LIVE_STATES: [&str; 10] = [
    "PENDING",
    "CONFIGURING",
    "POWER_UP_NODE",
    "RUNNING",
    "COMPLETING",
    "SUSPENDED",
    "STOPPED",
    "SIGNALING",
    "RESIZING",
    "STAGE_OUT",
];

/// Format of squeue's lines: the id by which hooks know a job, and its state. `%i` would show the
/// task of an array by the id of the array.
const LINE_FORMAT: &str = "--format=%A %T";

/// Asks Slurm for the state of a job.
pub fn job_state(config: &Config, runner: &dyn Runner, job_id: u32) -> JobState {
    let (squeue, id) = (config.tools.squeue.to_string_lossy(), job_id.to_string());
    let argv = [&squeue, "--noheader", LINE_FORMAT, "--jobs", &id].map(str::to_owned);
    let output = match runner.run(None, &argv, ANSWER_TIMEOUT) {
        Ok(output) => output,
        Err(error) => return JobState::NoAnswer(error.to_string()),
    };
    if !output.is_success() {
        let printed = printable(&output.stderr);
        if printed.contains("Invalid job id") {
            return JobState::Unknown;
        }
        return JobState::NoAnswer(format!("{squeue} ended with status {}: {printed}", output.status));
    }
    // The id of an array is also the id of one of its tasks, and squeue lists all tasks for it. A job
    // that is not listed has ended.
    let printed = String::from_utf8_lossy(&output.stdout);
    let is_live = printed
        .lines()
        .filter_map(|line| line.trim().split_once(' '))
        .any(|(listed, state)| listed == id && LIVE_STATES.contains(&state.trim()));
    if is_live { JobState::Live } else { JobState::Ended }
}

/// The current start of a job, as far as Slurm reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct JobStart {
    state: String,
    /// Number of earlier starts with the same id.
    restarts: Option<u32>,
    /// Time since this start, without the time in which the job was suspended.
    elapsed: Option<Duration>,
    /// Nodes of the job; empty if Slurm lists none.
    nodes: Vec<String>,
}

/// Fields of squeue with a separator instead of a fixed width. `JobID` is the id by which hooks know a
/// job.
const START_FORMAT: &str = "--Format=JobID:|,State:|,RestartCnt:|,TimeUsed:|,NodeList:|";

/// A prolog ends within this time after it began the capture, and so does the state of a job before its
/// prolog.
const PENDING_GRACE: Duration = Duration::from_mins(5);
/// Difference of two clocks that shows nothing.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(5);

/// Asks Slurm for the current start of a job; `None` if it does not answer.
fn job_start(config: &Config, runner: &dyn Runner, job_id: u32) -> Option<JobStart> {
    let (squeue, id) = (config.tools.squeue.to_string_lossy(), job_id.to_string());
    let argv = [&squeue, "--noheader", START_FORMAT, "--jobs", &id].map(str::to_owned);
    let output = runner.run(None, &argv, ANSWER_TIMEOUT).ok().filter(CommandOutput::is_success)?;
    let printed = String::from_utf8_lossy(&output.stdout);
    printed.lines().find_map(|line| {
        let mut fields = line.split('|').map(str::trim);
        let mut next = || fields.next().unwrap_or_default();
        (next() == id).then(|| JobStart {
            state: next().to_owned(),
            restarts: next().parse().ok(),
            elapsed: elapsed(next()),
            nodes: hostlist::expand(next(), MAX_NODES).unwrap_or_default(),
        })
    })
}

/// A duration as Slurm prints it: `MINUTES:SECONDS`, with hours, and with days: `1-02:03:04`.
fn elapsed(text: &str) -> Option<Duration> {
    let (days, clock) = text.split_once('-').unwrap_or(("0", text));
    let parts: Vec<u64> = clock.split(':').map(str::parse).collect::<Result<_, _>>().ok()?;
    let seconds = (2..=3).contains(&parts.len()).then(|| parts.iter().fold(0, |all: u64, part| all * 60 + part))?;
    Some(Duration::from_secs(days.parse::<u64>().ok()?.checked_mul(24 * 60 * 60)?.checked_add(seconds)?))
}

/// True if a run that a hook began belongs to an earlier start of its job, which Slurm has requeued
/// since. `asked_ns` is the time at which Slurm was asked.
///
/// `PrologSlurmctld` runs while the job is CONFIGURING, and its epilog while it is COMPLETING. Slurm counts
/// the restart when it requeues the job, before the epilog.
fn is_earlier_start(record: &RunRecord, start: &JobStart, asked_ns: i64) -> bool {
    let Some(restarts) = record.plan.job.known_restarts() else { return false };
    let is_later = start.restarts.is_some_and(|now| now > restarts);
    let since = |at_ns: i64| Duration::from_nanos(u64::try_from(asked_ns.saturating_sub(at_ns)).unwrap_or(0));
    match start.state.as_str() {
        "PENDING" => is_later || since(record.changed_ns) > PENDING_GRACE,
        // The epilog has the work.
        "COMPLETING" => false,
        // A hook of an old Slurm may not know the count, so the time must agree.
        _ => {
            let began_later = |elapsed: Duration| elapsed + CLOCK_TOLERANCE < since(record.opened_ns);
            is_later && start.elapsed.is_some_and(began_later)
        }
    }
}

/// The job of a run, as far as the run is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunOwner {
    /// State of the job; ended if the run belongs to an earlier start of it.
    pub(crate) state: JobState,
    /// Nodes that the job has released since the run began, in the order of the job.
    pub(crate) released: Vec<String>,
}

/// Asks Slurm for the job of a run that is running.
pub(crate) fn owner_of(config: &Config, runner: &dyn Runner, record: &RunRecord) -> RunOwner {
    let job = &record.plan.job;
    let of_state = |state| RunOwner { state, released: Vec::new() };
    let asked_ns = now_ns();
    let state = job_state(config, runner, job.id);
    if state != JobState::Live || job.known_restarts().is_none() {
        return of_state(state);
    }
    let Some(start) = job_start(config, runner, job.id) else { return of_state(state) };
    if is_earlier_start(record, &start, asked_ns) {
        return of_state(JobState::Ended);
    }
    // The list of a completing job shrinks while its nodes become free.
    let is_complete = ["RUNNING", "SUSPENDED"].contains(&start.state.as_str()) && !start.nodes.is_empty();
    let released = if is_complete { released(&job.nodes, &start.nodes) } else { Vec::new() };
    RunOwner { state, released }
}

/// The nodes that are no longer among those of the job.
pub(crate) fn released(before: &[String], now: &[String]) -> Vec<String> {
    let now: BTreeSet<&String> = now.iter().collect();
    before.iter().filter(|node| !now.contains(node)).cloned().collect()
}

/// True if Slurm reports the job as ended or does not know it, or if the run of the job belongs to an
/// earlier start of it. If Slurm does not answer, the job counts as running, with a warning.
pub fn has_ended(config: &Config, runner: &dyn Runner, job_id: u32) -> bool {
    let journals = config.run.state_dir.exists().then(|| State::open(&config.run.state_dir)?.journals());
    let is_running = |record: &RunRecord| record.plan.job.id == job_id && record.phase == RunPhase::Running;
    let record = journals.and_then(Result::ok).unwrap_or_default().into_iter().find_map(|stored| {
        let record = stored.record.ok()?;
        is_running(&record).then_some(record)
    });
    let state = match &record {
        Some(record) => owner_of(config, runner, record).state,
        None => job_state(config, runner, job_id),
    };
    match state {
        JobState::Ended | JobState::Unknown => true,
        JobState::Live => false,
        JobState::NoAnswer(why) => {
            warn_no_answer(config, &why);
            false
        }
    }
}

/// Runs Slurm's programs on this machine, where no ssh key is needed.
pub(crate) fn slurm_here(config: &Config) -> LocalRunner {
    let slurm_conf = config.run.slurm_conf.as_ref();
    LocalRunner {
        environment: slurm_conf
            .map(|path| ("SLURM_CONF".to_owned(), path.to_string_lossy().into_owned()))
            .into_iter()
            .collect(),
    }
}

/// Warns on standard error and in the log that Slurm does not answer; once per process, because a
/// command asks for the job of each run.
pub(crate) fn warn_no_answer(config: &Config, why: &str) {
    static WARNED: Once = Once::new();
    let log = (config.run.log.as_deref(), config.run.syslog);
    log::warn_once(&WARNED, log, "slurm", || no_answer_text(why));
}

fn no_answer_text(why: &str) -> String {
    format!(
        "Slurm does not answer: {why}; captures of jobs that may have ended are not undone; check tools.squeue and \
         run.slurm_conf in the configuration, and whether slurmctld runs"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::{CommandOutput, RemoteError};

    fn config(tools: &str) -> Config {
        let text = format!(
            "[ssh]\nkey = \"/k\"\nknown_hosts = \"/h\"\n[tools]\n{tools}\n[mirror]\nbackend = \"none\"\n[capture]\n\
             backend = \"ibdump\"\ndirectory = \"/c\"\n[collect]\ndirectory = \"/r\"\n[run]\nsyslog = false\n"
        );
        Config::parse(&text, Path::new("x")).unwrap()
    }

    /// squeue as Slurm has it: the id of an array lists all of its tasks.
    struct Squeue {
        status: i32,
        stdout: &'static str,
        stderr: &'static str,
    }

    impl Runner for Squeue {
        fn run(&self, node: Option<&str>, argv: &[String], _: Duration) -> Result<CommandOutput, RemoteError> {
            assert_eq!(node, None);
            assert_eq!(argv, ["/opt/slurm/bin/squeue", "--noheader", "--format=%A %T", "--jobs", "4"]);
            let bytes = |text: &str| text.as_bytes().to_vec();
            Ok(CommandOutput { status: self.status, stdout: bytes(self.stdout), stderr: bytes(self.stderr) })
        }
    }

    #[test]
    fn only_the_job_itself_counts_among_the_tasks_of_its_array() {
        let config = config("squeue = \"/opt/slurm/bin/squeue\"");
        let state = |stdout| job_state(&config, &Squeue { status: 0, stdout, stderr: "" }, 4);
        assert_eq!(state("5 RUNNING\n"), JobState::Ended, "the task of this id has ended, another one runs");
        assert_eq!(state("5 RUNNING\n4 COMPLETING\n"), JobState::Live);
        assert_eq!(state("4 RUNNING\n"), JobState::Live);
        assert_eq!(state("4 COMPLETED\n14 RUNNING\n44 RUNNING\n"), JobState::Ended);
        assert_eq!(state(""), JobState::Ended);
    }

    #[test]
    fn a_squeue_that_fails_is_no_answer() {
        let config = config("squeue = \"/opt/slurm/bin/squeue\"");
        let state = |status, stderr| job_state(&config, &Squeue { status, stdout: "", stderr }, 4);
        assert_eq!(state(1, "slurm_load_jobs error: Invalid job id specified\n"), JobState::Unknown);
        let refused = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)";
        let why = format!("/opt/slurm/bin/squeue ended with status 1: {refused}");
        assert_eq!(state(1, refused), JobState::NoAnswer(why));
    }

    #[test]
    fn a_missing_squeue_is_named_with_the_next_step() {
        let config = config("sbatch = \"/no/slurm/here/sbatch\"");
        let JobState::NoAnswer(why) = job_state(&config, &slurm_here(&config), 4) else { panic!("no squeue answers") };
        let text = no_answer_text(&why);
        assert!(text.starts_with("Slurm does not answer: /no/slurm/here/squeue ended with status 127: "), "{text}");
        assert!(text.contains("check tools.squeue and run.slurm_conf"), "{text}");
        assert!(!has_ended(&config, &slurm_here(&config), 4), "the job may run");
    }

    #[test]
    fn squeue_is_beside_sbatch_unless_a_key_names_it() {
        let squeue = |tools| config(tools).tools.squeue;
        assert_eq!(squeue(""), Path::new("/usr/bin/squeue"));
        assert_eq!(squeue("sbatch = \"/opt/slurm/bin/sbatch\""), Path::new("/opt/slurm/bin/squeue"));
        assert_eq!(squeue("sbatch = \"/a/sbatch\"\nsqueue = \"/b/squeue\""), Path::new("/b/squeue"));
    }

    #[test]
    fn metrics_count_runs_ports_and_captures() {
        let run = |phase, busy, ports| RunStatus {
            job_id: 1,
            user: None,
            phase,
            busy,
            fetching: false,
            captures: 1,
            ports,
            problems: Vec::new(),
            journal: PathBuf::new(),
        };
        let runs = [
            run(Some(RunPhase::Running), false, 4),
            run(Some(RunPhase::Undoing), false, 2),
            run(Some(RunPhase::Undoing), true, 0),
            run(None, false, 0),
        ];
        let text = metrics(&runs, 17);
        for line in [
            "ibscope_runs{state=\"running\"} 1",
            "ibscope_runs{state=\"incomplete\"} 1",
            "ibscope_runs{state=\"undoing\"} 1",
            "ibscope_runs{state=\"unreadable\"} 1",
            "ibscope_runs{state=\"aborted\"} 0",
            "# TYPE ibscope_runs_left gauge",
            "ibscope_runs_left 2",
            "ibscope_mirrored_ports 6",
            "ibscope_captures 4",
            "ibscope_sweep_timestamp_seconds 17",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
