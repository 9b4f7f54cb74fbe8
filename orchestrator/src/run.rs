//! Starts a run: does the steps of a plan, independent ones at the same time.
//!
//! Each step is written to the journal before it is done. If a step fails, all steps are undone.

use crate::config::Config;
use crate::context::{self, FailureText, RunContext};
use crate::folder::Folder;
use crate::journal::{JobLock, Journal, JournalEntry, JournalError, PlanLock, State, StepProgress, now_ns};
use crate::manifest::CommandRun;
use crate::order::{phases, sequences};
use crate::origin;
use crate::plan::CapturePlan;
use crate::remote::process::{RemoteProcess, reached_limit};
use crate::remote::{Files, RemoteError, parallel};
use crate::retention;
use crate::sink;
use crate::step::{CaptureStep, HostfileStep, MirrorStep, PlanStep};
use crate::undo::{self, FetchTiming, UndoReport};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// A capture that has run this long and has created its file counts as started. Its own message may
/// come late, because its output is buffered.
const READY_AFTER: Duration = Duration::from_millis(300);
/// Pause between two looks at a capture that starts.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time reserved for undoing a failed start, but at most half of the remaining time.
const UNDO_RESERVE: Duration = Duration::from_secs(10);

/// Reason why a run did not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The state folder or the journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// An earlier run of the job cannot be undone.
    #[error("job {job_id}: an earlier run cannot be undone: {}; correct this, then run `ibscope capture undo --job {job_id}`", what.join("; "))]
    Earlier {
        /// Job id.
        job_id: u32,
        /// Work that is left, one sentence each.
        what: Vec<String>,
    },
    /// Steps failed. All steps are undone as far as possible.
    #[error("job {job_id}: not captured: {}{}", what.join("; "), undo_text(undone))]
    Failed {
        /// Job id.
        job_id: u32,
        /// Reasons of the failures.
        what: Vec<String>,
        /// Result of undoing.
        undone: Box<UndoReport>,
    },
}

fn undo_text(undone: &UndoReport) -> String {
    if undone.left.is_empty() {
        return "; all changes are undone".to_owned();
    }
    format!("; not undone: {}; `ibscope capture undo` tries again", undone.left.join("; "))
}

/// Summary of a run that has started.
#[derive(Clone, Debug)]
pub struct StartSummary {
    /// Duration of the start.
    pub duration: Duration,
    /// Number of captures that run.
    pub captures: usize,
    /// Number of mirrored ports.
    pub ports: usize,
}

/// Claim on a job: no other process works on it, and earlier runs of it are undone.
pub struct JobClaim {
    state: State,
    lock: JobLock,
    /// Reports of the earlier runs that were undone.
    pub undone_runs: Vec<UndoReport>,
}

impl JobClaim {
    /// Takes the lock on planning, so that no other process chooses the same sinks.
    pub fn lock_plan(self, deadline: Instant) -> Result<PlanClaim, JournalError> {
        let plan = self.state.lock_plan(deadline)?;
        Ok(PlanClaim { lock: self.lock, plan })
    }
}

/// Claim on a job, with the lock on planning.
pub struct PlanClaim {
    lock: JobLock,
    plan: PlanLock,
}

impl PlanClaim {
    /// Steps of other runs that are not undone, for [`crate::plan::PlanContext`], and faults of
    /// journals that cannot be read.
    pub fn others(&self) -> (&[PlanStep], &[String]) {
        (&self.plan.others, &self.plan.problems)
    }

    /// Lets others plan again, without a plan of this run.
    pub fn release(self) -> JobClaim {
        JobClaim { state: self.plan.release(), lock: self.lock, undone_runs: Vec::new() }
    }

    /// Creates the journal of a plan, and lets others plan again. `config` is recorded in it, so
    /// that the run can be undone without the file of the configuration.
    pub fn open(self, plan: CapturePlan, config: &Config) -> Result<Journal, JournalError> {
        let origin = origin::of_run(config, self.plan.folder());
        self.plan.create(plan, Some(origin), self.lock)
    }
}

/// Claims a job: waits until no other process works on it, and undoes earlier runs with the same
/// job id.
pub fn claim_job(config: &Config, job_id: u32, runner: &dyn Files, deadline: Instant) -> Result<JobClaim, RunError> {
    let state = State::open(&config.run.state_dir)?;
    let mut lock = state.lock_job(job_id, deadline)?;
    let mut earlier = Vec::new();
    for kept in state.journals()?.into_iter().filter(|kept| kept.job_id == job_id) {
        let journal = state.reopen(&kept.path, lock)?;
        let undone;
        // A hook has no time to fetch captures. They are fetched when the new run is undone.
        (undone, lock) =
            undo::undo(RunContext { config, runner, deadline, command_log: None }, &state, journal, FetchTiming::Later);
        if !undone.is_restored {
            return Err(RunError::Earlier { job_id, what: undone.left });
        }
        earlier.push(undone);
    }
    Ok(JobClaim { state, lock, undone_runs: earlier })
}

/// Does the steps of the plan. If one fails, undoes all steps within the same deadline.
pub fn start(
    config: &Config,
    runner: &dyn Files,
    journal: Journal,
    deadline: Instant,
) -> Result<StartSummary, RunError> {
    let began = Instant::now();
    let reserve = UNDO_RESERVE.min(deadline.saturating_duration_since(began) / 2);
    let context =
        RunContext { config, runner, deadline: deadline.checked_sub(reserve).unwrap_or(began), command_log: None };
    let job_id = journal.plan().job.id;
    let mut failures = prepare(context, &journal).unwrap_or_else(|error| vec![error.to_string()]);
    if failures.is_empty() {
        for steps in phases(&journal.plan().steps) {
            // A change is only made after it was written to the journal.
            failures = do_phase(context, &journal, &steps).unwrap_or_else(|error| vec![error.to_string()]);
            if !failures.is_empty() {
                break;
            }
        }
    }
    if failures.is_empty() {
        failures = ended_early(context, &journal);
    }
    if failures.is_empty() {
        failures.extend(journal.write(&JournalEntry::Started { at_ns: now_ns() }).err().map(|error| error.to_string()));
    }
    if !failures.is_empty() {
        let state = State::open(&config.run.state_dir)?;
        let (undone, _lock) =
            undo::undo(RunContext { config, runner, deadline, command_log: None }, &state, journal, FetchTiming::Now);
        return Err(RunError::Failed { job_id, what: failures, undone: Box::new(undone) });
    }
    let mut started = StartSummary { duration: began.elapsed(), captures: 0, ports: 0 };
    for step in &journal.plan().steps {
        match step {
            PlanStep::Capture(_) => started.captures += 1,
            PlanStep::Mirror(step) => started.ports += step.ports.len(),
            PlanStep::Hostfile(_) => {}
        }
    }
    Ok(started)
}

/// Checks conditions before anything is changed: the folder for captures must be safe and have free
/// space, and no other process may mirror the ports. Also reads the clocks of the nodes. Returns
/// the reasons why the run cannot start.
fn prepare(context: RunContext<'_>, journal: &Journal) -> Result<Vec<FailureText>, JournalError> {
    let steps: Vec<(usize, &PlanStep)> = journal.plan().steps.iter().enumerate().collect();
    let failures = parallel(&steps, context.parallelism(), |&(place, step)| match step {
        PlanStep::Capture(capture) => {
            let folder = capture.folder();
            let is_room = || {
                retention::make_room(context, &capture.node, folder)?;
                context.check_free_space_on(&capture.node, folder, context.config.capture.min_free_bytes)
            };
            let node = context.node(&capture.node);
            if let Err(what) =
                node.and_then(|node| sink::prepare(&node, &capture.node, folder)).and_then(|()| is_room())
            {
                return Ok(Some(what));
            }
            journal.write(&JournalEntry::Clock {
                at_ns: now_ns(),
                step: place,
                exchanges: context.clock_exchanges(&capture.node),
            })?;
            Ok(None)
        }
        PlanStep::Mirror(step) => {
            let checked = parallel(&step.check_off, context.parallelism_of(step), |check| context.check(check).err());
            Ok(checked.into_iter().flatten().next().map(|what| {
                format!(
                    "leaf {:#018x} is mirrored already, by somebody else or by a run whose journal is lost: {what}",
                    step.leaf_guid
                )
            }))
        }
        PlanStep::Hostfile(_) => Ok(None),
    });
    failures.into_iter().filter_map(Result::transpose).collect()
}

/// Does the steps of a phase. Returns the failures.
fn do_phase(context: RunContext<'_>, journal: &Journal, steps: &[usize]) -> Result<Vec<FailureText>, JournalError> {
    journal.write(&JournalEntry::Doing { at_ns: now_ns(), steps: steps.to_vec() })?;
    let plan = journal.plan();
    let lines = sequences(&plan.steps, steps);
    let results = parallel(&lines, context.parallelism(), |line| {
        for &step in line {
            let ran = Mutex::default();
            if let Err(what) = do_step(context.with_command_log(&ran), journal, step)? {
                journal.write(&JournalEntry::Failed {
                    at_ns: now_ns(),
                    step,
                    what: what.clone(),
                    ran: context::take_commands(&ran),
                })?;
                return Ok(Some(what));
            }
        }
        Ok(None)
    });
    results.into_iter().filter_map(Result::transpose).collect()
}

fn do_step(context: RunContext<'_>, journal: &Journal, place: usize) -> Result<Result<(), FailureText>, JournalError> {
    let done = |process| {
        let ran = context.command_log.map(context::take_commands).unwrap_or_default();
        journal.write(&JournalEntry::Done { at_ns: now_ns(), step: place, process, ran })
    };
    let result = match &journal.plan().steps[place] {
        PlanStep::Capture(step) => match launch(context, step) {
            Ok(process) => {
                done(Some(process.clone()))?;
                return Ok(wait_ready(context, step, &process));
            }
            Err(what) => Err(what),
        },
        PlanStep::Mirror(step) => mirror(context, step),
        PlanStep::Hostfile(step) => hostfile(step),
    };
    if result.is_ok() {
        done(None)?;
    }
    Ok(result)
}

fn launch(context: RunContext<'_>, step: &CaptureStep) -> Result<RemoteProcess, FailureText> {
    let node = context.node(&step.node)?;
    let (at_ns, began) = (now_ns(), Instant::now());
    let launched = node.launch(step);
    // The program keeps running; its exit status is recorded with the capture. A launch that failed
    // has the status that the node answered, if any.
    let status = match &launched {
        Err(RemoteError::Status { status, .. }) => Some(*status),
        _ => None,
    };
    let launched = launched.map_err(|error| format!("{} did not start: {error}", step.backend.name()));
    context.log_command(CommandRun {
        node: Some(step.node.clone()),
        argv: step.argv.clone(),
        at_ns,
        took_ns: began.elapsed().as_nanos() as u64,
        status,
        error: launched.as_ref().err().cloned(),
    });
    launched
}

/// Waits until a capture runs and has created its file.
fn wait_ready(context: RunContext<'_>, step: &CaptureStep, process: &RemoteProcess) -> Result<(), FailureText> {
    let (began, name) = (Instant::now(), step.backend.name());
    let time_limit = context.remaining(Duration::from_secs(u64::from(context.config.capture.ready_s)))?;
    loop {
        let status = context.node(&step.node)?.capture_status(step, process).map_err(|error| error.to_string())?;
        if !status.alive && reached_limit(&status.log).is_none() {
            return Err(format!("{}: {name} ended right after its start: {}", step.node, log_tail(&status.log)));
        }
        if status.bytes.is_some() && (step.backend.is_ready(&status.log) || began.elapsed() >= READY_AFTER) {
            return Ok(());
        }
        if began.elapsed() >= time_limit {
            let file = step.file.display();
            return Err(format!(
                "{}: {name} runs, but has not created {file} within {:.1} s (capture.ready_s)",
                step.node,
                time_limit.as_secs_f64()
            ));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Captures that have ended since they were launched: a program can fail right after it has printed
/// that it is ready.
fn ended_early(context: RunContext<'_>, journal: &Journal) -> Vec<FailureText> {
    let record = journal.record();
    let captures: Vec<(&CaptureStep, &RemoteProcess)> = journal
        .plan()
        .steps
        .iter()
        .zip(&record.progress)
        .filter_map(|(step, progress)| match (step, progress) {
            (PlanStep::Capture(step), StepProgress::Done(Some(process))) => Some((step, process)),
            _ => None,
        })
        .collect();
    // The mirrors were switched on in the meantime, which takes most of this time.
    let since = Duration::from_nanos(u64::try_from(now_ns().saturating_sub(record.changed_ns)).unwrap_or(0));
    thread::sleep(READY_AFTER.saturating_sub(since));
    let ended = parallel(&captures, context.parallelism(), |(step, process)| {
        let status = context.node(&step.node)?.capture_status(step, process).map_err(|error| error.to_string())?;
        if status.alive || reached_limit(&status.log).is_some() {
            return Ok(());
        }
        let name = step.backend.name();
        Err(format!("{}: {name} ended right after its start: {}", step.node, log_tail(&status.log)))
    });
    ended.into_iter().filter_map(Result::err).collect()
}

fn log_tail(log: &str) -> String {
    let printed = crate::text::printable(log.as_bytes());
    if printed.is_empty() { "it printed nothing".to_owned() } else { printed }
}

/// Runs the command of the analyzer, then those of the ports that share it at the same time, and then
/// all checks.
fn mirror(context: RunContext<'_>, step: &MirrorStep) -> Result<(), FailureText> {
    let of_leaf = |what| format!("leaf {:#018x}: {what}", step.leaf_guid);
    let (analyzer, ports) = step.on.split_at(usize::from(step.analyzer.is_some()).min(step.on.len()));
    analyzer.iter().try_for_each(|command| context.command(command).map(drop)).map_err(of_leaf)?;
    let most = context.parallelism_of(step);
    let switched = parallel(ports, most, |command| context.command(command).map(drop));
    switched.into_iter().collect::<Result<(), _>>().map_err(of_leaf)?;
    let checked = parallel(&step.check, most, |check| context.check(check));
    let checked = checked.into_iter().collect::<Result<(), _>>();
    checked.map_err(|what| of_leaf(format!("mirroring was switched on, but {what}")))
}

/// The job's user must be able to read the hostfile, and it contains nothing secret.
fn hostfile(step: &HostfileStep) -> Result<(), FailureText> {
    let write = || {
        let (folder, name) = Folder::parent_of(&step.path)?;
        folder.replace(name, step.text().as_bytes(), 0o644, None)
    };
    write().map_err(|error| {
        format!("the hostfile {} cannot be written: {error}; check sinks.hostfile_directory", step.path.display())
    })
}
