//! The start of a run: the steps of a plan are done, side by side where they do not need each other, each written down before. Where one cannot be done, all are undone.

use crate::config::Config;
use crate::effort::{self, Effort, Refusal};
use crate::folder::Folder;
use crate::journal::{Entry, JobLock, Journal, JournalError, PlanLock, State, now_ns};
use crate::manifest::CommandRun;
use crate::order::{lines, phases};
use crate::plan::Plan;
use crate::remote::process::Process;
use crate::remote::{Files, parallel};
use crate::sink;
use crate::step::{CaptureStep, HostfileStep, MirrorStep, Step};
use crate::undo::{self, Captures, Undone};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// A capture that has run so long, and has made its file, has started: its own word may come late, because its output is buffered.
const SETTLED: Duration = Duration::from_millis(300);
/// How often a capture that starts is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Time that is kept for undoing when a start fails; half of what there is, where that is less.
const FOR_UNDOING: Duration = Duration::from_secs(10);

/// A run that did not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The state folder or the journal does not do.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// What an earlier run of the job has left cannot be undone.
    #[error("job {job_id}: what an earlier run has left cannot be undone: {}; see to it, then `ibscope capture undo --job {job_id}`", what.join("; "))]
    Earlier {
        /// The job.
        job_id: u32,
        /// What is left.
        what: Vec<String>,
    },
    /// Steps could not be done; everything is undone, as far as possible.
    #[error("job {job_id}: not captured: {}{}", what.join("; "), aftermath(undone))]
    Failed {
        /// The job.
        job_id: u32,
        /// Why.
        what: Vec<String>,
        /// What came of undoing.
        undone: Box<Undone>,
    },
}

fn aftermath(undone: &Undone) -> String {
    if undone.left.is_empty() {
        return "; all of it is undone".to_owned();
    }
    format!("; left: {}; `ibscope capture undo` tries again", undone.left.join("; "))
}

/// A run that has started.
#[derive(Clone, Debug)]
pub struct Started {
    /// How long it took.
    pub took: Duration,
    /// Captures that run.
    pub captures: usize,
    /// Ports that are mirrored.
    pub ports: usize,
}

/// A job that nobody else works on, and of which nothing is left from before.
pub struct Claim {
    state: State,
    lock: JobLock,
    /// What was undone of earlier runs of the job.
    pub earlier: Vec<Undone>,
}

impl Claim {
    /// Takes the choice of sinks: what is planned now is not planned by others.
    pub fn turn(self, deadline: Instant) -> Result<Turn, JournalError> {
        let plan = self.state.lock_plan(deadline)?;
        Ok(Turn { lock: self.lock, plan })
    }
}

/// The choice of sinks.
pub struct Turn {
    lock: JobLock,
    plan: PlanLock,
}

impl Turn {
    /// Steps of other runs that are not undone, for [`crate::plan::Situation`], and journals that cannot be read.
    pub fn others(&self) -> (&[Step], &[String]) {
        (&self.plan.others, &self.plan.problems)
    }

    /// Opens the journal for a plan; others may plan from then on.
    pub fn open(self, plan: Plan) -> Result<Journal, JournalError> {
        self.plan.create(plan, self.lock)
    }
}

/// Takes a job: waits until nobody else works on it and undoes what an earlier run of the same id has left.
pub fn claim(config: &Config, job_id: u32, runner: &dyn Files, deadline: Instant) -> Result<Claim, RunError> {
    let state = State::open(&config.run.state_dir)?;
    let mut lock = state.lock_job(job_id, deadline)?;
    let mut earlier = Vec::new();
    for kept in state.journals()?.into_iter().filter(|kept| kept.job_id == job_id) {
        let journal = state.reopen(&kept.path, lock)?;
        let undone;
        // A hook has no time for fetching captures: they are fetched when the new run is undone.
        (undone, lock) = undo::undo(Effort { config, runner, deadline, ran: None }, &state, journal, Captures::Later);
        if !undone.is_restored {
            return Err(RunError::Earlier { job_id, what: undone.left });
        }
        earlier.push(undone);
    }
    Ok(Claim { state, lock, earlier })
}

/// Does what is planned. When it fails everything is undone that was done, within the same deadline.
pub fn start(config: &Config, runner: &dyn Files, journal: Journal, deadline: Instant) -> Result<Started, RunError> {
    let began = Instant::now();
    let reserve = FOR_UNDOING.min(deadline.saturating_duration_since(began) / 2);
    let effort = Effort { config, runner, deadline: deadline.checked_sub(reserve).unwrap_or(began), ran: None };
    let job_id = journal.plan().job.id;
    let mut refusals = prepare(effort, &journal).unwrap_or_else(|error| vec![error.to_string()]);
    if refusals.is_empty() {
        for steps in phases(&journal.plan().steps) {
            // A change that cannot be written down is not made.
            refusals = do_phase(effort, &journal, &steps).unwrap_or_else(|error| vec![error.to_string()]);
            if !refusals.is_empty() {
                break;
            }
        }
    }
    if refusals.is_empty() {
        refusals.extend(journal.write(&Entry::Started { at_ns: now_ns() }).err().map(|error| error.to_string()));
    }
    if !refusals.is_empty() {
        let state = State::open(&config.run.state_dir)?;
        let (undone, _lock) =
            undo::undo(Effort { config, runner, deadline, ran: None }, &state, journal, Captures::Now);
        return Err(RunError::Failed { job_id, what: refusals, undone: Box::new(undone) });
    }
    let mut started = Started { took: began.elapsed(), captures: 0, ports: 0 };
    for step in &journal.plan().steps {
        match step {
            Step::Capture(_) => started.captures += 1,
            Step::Mirror(step) => started.ports += step.ports.len(),
            Step::Hostfile(_) => {}
        }
    }
    Ok(started)
}

/// What is better found out before anything is changed: a folder for captures that others can change, no room in it, a port that somebody else mirrors. Nodes are asked for the time besides.
fn prepare(effort: Effort<'_>, journal: &Journal) -> Result<Vec<Refusal>, JournalError> {
    let steps: Vec<(usize, &Step)> = journal.plan().steps.iter().enumerate().collect();
    let refusals = parallel(&steps, effort.width(), |&(place, step)| match step {
        Step::Capture(capture) => {
            let folder = capture.folder();
            let is_room = || effort.room_on(&capture.node, folder, effort.config.capture.disk_limit_bytes);
            let node = effort.node(&capture.node);
            if let Err(what) =
                node.and_then(|node| sink::prepare(&node, &capture.node, folder)).and_then(|()| is_room())
            {
                return Ok(Some(what));
            }
            journal.write(&Entry::Clock { at_ns: now_ns(), step: place, exchanges: effort.clock(&capture.node) })?;
            Ok(None)
        }
        Step::Mirror(step) => Ok(step.check_off.iter().find_map(|check| effort.check(check).err()).map(|what| {
            format!(
                "leaf {:#018x} is mirrored already, by somebody else or by a run whose journal is lost: {what}",
                step.leaf_guid
            )
        })),
        Step::Hostfile(_) => Ok(None),
    });
    refusals.into_iter().filter_map(Result::transpose).collect()
}

/// Does the steps of a phase; what could not be done.
fn do_phase(effort: Effort<'_>, journal: &Journal, steps: &[usize]) -> Result<Vec<Refusal>, JournalError> {
    journal.write(&Entry::Doing { at_ns: now_ns(), steps: steps.to_vec() })?;
    let plan = journal.plan();
    let lines = lines(&plan.steps, steps);
    let results = parallel(&lines, effort.width(), |line| {
        for &step in line {
            let ran = Mutex::default();
            if let Err(what) = do_step(effort.noting(&ran), journal, step)? {
                journal.write(&Entry::Failed {
                    at_ns: now_ns(),
                    step,
                    what: what.clone(),
                    ran: effort::taken(&ran),
                })?;
                return Ok(Some(what));
            }
        }
        Ok(None)
    });
    results.into_iter().filter_map(Result::transpose).collect()
}

fn do_step(effort: Effort<'_>, journal: &Journal, place: usize) -> Result<Result<(), Refusal>, JournalError> {
    let done = |process| {
        let ran = effort.ran.map(effort::taken).unwrap_or_default();
        journal.write(&Entry::Done { at_ns: now_ns(), step: place, process, ran })
    };
    let result = match &journal.plan().steps[place] {
        Step::Capture(step) => match launch(effort, step) {
            Ok(process) => {
                done(Some(process.clone()))?;
                return Ok(wait_ready(effort, step, &process));
            }
            Err(what) => Err(what),
        },
        Step::Mirror(step) => mirror(effort, step),
        Step::Hostfile(step) => hostfile(step),
    };
    if result.is_ok() {
        done(None)?;
    }
    Ok(result)
}

fn launch(effort: Effort<'_>, step: &CaptureStep) -> Result<Process, Refusal> {
    let node = effort.node(&step.node)?;
    let (at_ns, began) = (now_ns(), Instant::now());
    let launched = node.launch(step).map_err(|error| format!("{} did not start: {error}", step.backend.name()));
    effort.note(CommandRun {
        node: Some(step.node.clone()),
        argv: step.argv.clone(),
        at_ns,
        took_ns: began.elapsed().as_nanos() as u64,
        // It runs on; how it ended stands with the capture.
        status: None,
        error: launched.as_ref().err().cloned(),
    });
    launched
}

/// Waits until a capture runs and has made its file.
fn wait_ready(effort: Effort<'_>, step: &CaptureStep, process: &Process) -> Result<(), Refusal> {
    let (began, name) = (Instant::now(), step.backend.name());
    let patience = effort.time(Duration::from_secs(u64::from(effort.config.capture.ready_s)))?;
    loop {
        let sight = effort.node(&step.node)?.look(step, process).map_err(|error| error.to_string())?;
        if !sight.alive {
            return Err(format!("{}: {name} ended as soon as it was started: {}", step.node, last_words(&sight.log)));
        }
        if sight.bytes.is_some() && (step.backend.is_ready(&sight.log) || began.elapsed() >= SETTLED) {
            return Ok(());
        }
        if began.elapsed() >= patience {
            let file = step.file.display();
            return Err(format!(
                "{}: {name} runs, but has not made {file} in {:.1} s (capture.ready_s)",
                step.node,
                patience.as_secs_f64()
            ));
        }
        thread::sleep(LOOK_EVERY);
    }
}

fn last_words(log: &str) -> String {
    let said = crate::text::printable(log.as_bytes());
    if said.is_empty() { "it said nothing".to_owned() } else { said }
}

fn mirror(effort: Effort<'_>, step: &MirrorStep) -> Result<(), Refusal> {
    let of_leaf = |what| format!("leaf {:#018x}: {what}", step.leaf_guid);
    step.on.iter().try_for_each(|command| effort.command(command).map(drop)).map_err(of_leaf)?;
    let held = step.check.iter().try_for_each(|check| effort.check(check));
    held.map_err(|what| of_leaf(format!("mirroring was switched on, but {what}")))
}

/// A hostfile is for the job's user to read, and holds nothing that others may not know.
fn hostfile(step: &HostfileStep) -> Result<(), Refusal> {
    let write = || {
        let (folder, name) = Folder::of(&step.path)?;
        folder.put(name, step.text().as_bytes(), 0o644, None)
    };
    write().map_err(|error| {
        format!("the hostfile {} cannot be written: {error}; check sinks.hostfile_directory", step.path.display())
    })
}
