//! Ends a run: undoes all steps, the mirrors first and hostfiles last, then collects the captures
//! and writes the manifest. Captures are stopped even if a switch does not respond.
//!
//! Undoing can be repeated, also after a start that was interrupted anywhere. If two processes undo
//! the same run, the second one finds nothing to do. A step that cannot be undone does not stop the
//! others.

mod collect;
mod final_manifest;
mod final_state;
mod leaf;
#[cfg(test)]
mod leaf_tests;
mod report;
mod stop;
#[cfg(test)]
mod tests;
mod unattended;

pub use report::{StoppedCapture, UndoReport};
pub(crate) use unattended::{StoredOutcome, stored};

use crate::config::Config;
use crate::context::{self, FailureText, RunContext};
use crate::fabric::present::PresentLids;
use crate::folder::Folder;
use crate::journal::{JobLock, Journal, JournalEntry, JournalError, RunPhase, RunRecord, State, StepProgress, now_ns};
use crate::remote::{Files, parallel};
use crate::step::{CaptureStep, HostfileStep, MirrorStep, PlanStep};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Time limit until a command that was sent to a node runs.
const COMMAND_START_TIMEOUT: Duration = Duration::from_secs(1);
/// Time within which every command ends after its time limit.
const COMMAND_END_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time limit for the response of a file system.
const HOSTFILE_TIMEOUT: Duration = Duration::from_secs(5);
/// Captures are stopped after this time even if a switch has not answered yet. Until then they
/// receive what the switch still mirrors.
const MIRROR_PATIENCE: Duration = Duration::from_secs(2);
/// Captures are on their sinks, and the sweeper fetches them.
const NOT_FETCHED: &str = "its captures are not fetched yet";
/// Deadline of an undo without a hook that waits for it.
const NO_DEADLINE: Duration = Duration::from_hours(24);

/// Undoes the runs of a job. Returns one report per run. Captures that cannot be hashed and fetched
/// by the deadline stay where they are; the report lists them. A journal that cannot be read has a
/// report too, or is the error if the job has no other run.
pub fn job(
    config: &Config,
    job_id: u32,
    runner: &dyn Files,
    deadline: Instant,
) -> Result<Vec<UndoReport>, JournalError> {
    job_until(config, job_id, runner, (deadline, deadline), &|_| true)
}

/// Undoes the runs of a job without a deadline for hashing and fetching. `patience` limits the time
/// to wait for another process that works on the job.
pub fn job_without_deadline(
    config: &Config,
    job_id: u32,
    runner: &dyn Files,
    patience: Instant,
) -> Result<Vec<UndoReport>, JournalError> {
    job_until(config, job_id, runner, (patience, Instant::now() + NO_DEADLINE), &|_| true)
}

/// Undoes the runs of a job that are stale according to their journals, which are read under the lock
/// on the job. `times` are the end of the wait for that lock, and the deadline of the work.
fn job_until(
    config: &Config,
    job_id: u32,
    runner: &dyn Files,
    times: (Instant, Instant),
    is_stale: &dyn Fn(&RunRecord) -> bool,
) -> Result<Vec<UndoReport>, JournalError> {
    let (patience, deadline) = times;
    let state = State::open(&config.run.state_dir)?;
    let mut lock = state.lock_job(job_id, patience)?;
    let (mut all, mut failures) = (Vec::new(), Vec::new());
    for kept in state.journals()?.into_iter().filter(|kept| kept.job_id == job_id) {
        match kept.record {
            Ok(record) if !is_stale(&record) => continue,
            Ok(_) => {}
            // A journal without a plan does not keep the other runs of the job from being undone.
            Err(error) => {
                failures.push(error);
                continue;
            }
        }
        let journal = match state.reopen(&kept.path, lock) {
            Ok(journal) => journal,
            Err(error) => {
                failures.push(error);
                // The lock went with the journal.
                lock = match state.lock_job(job_id, patience) {
                    Ok(lock) => lock,
                    Err(error) => {
                        failures.push(error);
                        break;
                    }
                };
                continue;
            }
        };
        let undone;
        (undone, lock) =
            undo(RunContext { config, runner, deadline, command_log: None }, &state, journal, FetchTiming::Now);
        all.push(undone);
    }
    if all.is_empty() && !failures.is_empty() {
        return Err(failures.swap_remove(0));
    }
    // The callers log and analyze the runs that were undone.
    all.extend(failures.iter().map(|error| UndoReport::of_failure(job_id, error)));
    Ok(all)
}

/// Undoes every run that is not running, or whose job has ended according to `has_ended`, unless
/// another process works on it. A failure of one job does not stop the others. There is no
/// deadline, as in [`job_without_deadline`].
///
/// `has_ended` is called again under the lock on the job: a run that was starting may be running by
/// then, and other runs of the job may be running.
pub fn stale(
    config: &Config,
    runner: &dyn Files,
    patience: Instant,
    has_ended: impl Fn(u32) -> bool,
) -> Result<Vec<Result<UndoReport, JournalError>>, JournalError> {
    let state = State::open(&config.run.state_dir)?;
    let mut jobs: Vec<u32> = Vec::new();
    for kept in state.journals()? {
        let is_free = state.lock_job(kept.job_id, Instant::now()).is_ok();
        let is_stale = is_free && (kept.phase() != Some(RunPhase::Running) || has_ended(kept.job_id));
        if is_stale && !jobs.contains(&kept.job_id) {
            jobs.push(kept.job_id);
        }
    }
    let mut all = Vec::new();
    for job_id in jobs {
        let times = (patience, Instant::now() + NO_DEADLINE);
        let is_stale = |record: &RunRecord| record.phase != RunPhase::Running || has_ended(job_id);
        match job_until(config, job_id, runner, times, &is_stale) {
            Ok(undone) => all.extend(undone.into_iter().map(Ok)),
            Err(error) => all.push(Err(error)),
        }
    }
    Ok(all)
}

/// Time at which the captures of a started run are collected.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum FetchTiming {
    /// Together with the rest.
    Now,
    /// When the run is undone again; until then it is not closed.
    Later,
    /// They were collected before, except for these reasons.
    Tried(Vec<FailureText>),
}

/// Undoes a run. Returns the lock on its job.
pub(crate) fn undo(
    context: RunContext<'_>,
    state: &State,
    journal: Journal,
    captures_go: FetchTiming,
) -> (UndoReport, JobLock) {
    let config = context.config.for_user(journal.plan().job.user_id);
    let context = RunContext { config: &config, ..context };
    let work = RunUndo {
        context,
        journal: &journal,
        record: journal.record(),
        lids: OnceLock::new(),
        journal_problems: Mutex::default(),
    };
    work.note(&JournalEntry::Undoing { at_ns: now_ns() });
    let mut left = work.undo_all();
    let is_restored = left.is_empty();
    let (failures, mut is_fetching) = work.collect_at(captures_go, state, is_restored);
    left.extend(failures);
    let record = journal.record();
    let expected = left.len();
    let manifest = match work.manifest(&record) {
        Ok(manifest) => manifest,
        Err(what) => {
            left.push(what);
            None
        }
    };
    left.append(&mut work.journal_problems.lock().unwrap_or_else(PoisonError::into_inner));
    is_fetching &= left.len() == expected;
    let closing = if left.is_empty() {
        JournalEntry::Closed { at_ns: now_ns(), manifest: manifest.clone() }
    } else {
        JournalEntry::Left { at_ns: now_ns(), what: left.clone(), is_fetching }
    };
    let written = journal
        .write(&closing)
        .and_then(|()| if left.is_empty() { state.move_to_closed(journal.path()) } else { Ok(()) });
    left.extend(written.err().map(|error| error.to_string()));
    let undone = UndoReport {
        job_id: journal.plan().job.id,
        user_id: journal.plan().job.user_id,
        is_restored,
        left,
        unverified_ports: unverified_ports(&record),
        captures: captures(&record),
        manifest,
        is_fetching,
        can_retry: true,
    };
    (undone, journal.into_lock())
}

/// Number of ports whose mirrors were switched off without a check.
fn unverified_ports(record: &RunRecord) -> usize {
    let ports = record.plan.steps.iter().zip(&record.progress).map(|(step, progress)| match (step, progress) {
        (PlanStep::Mirror(step), StepProgress::Undone(_)) if step.check_off.is_empty() => step.ports.len(),
        _ => 0,
    });
    ports.sum()
}

/// The captures in a journal.
fn captures(record: &RunRecord) -> Vec<StoppedCapture> {
    let capture = |(place, (step, progress)): (usize, (&PlanStep, &StepProgress))| match (step, progress) {
        (_, StepProgress::Planned) | (PlanStep::Mirror(_) | PlanStep::Hostfile(_), _) => None,
        (PlanStep::Capture(step), progress) => Some(StoppedCapture {
            node: step.node.clone(),
            file: step.file.clone(),
            ended: if let StepProgress::Undone(ended) = progress { ended.clone() } else { None }
                .map(|ended| final_state::with_remarks(ended, record, step)),
            fetched: record.fetched.get(&place).cloned(),
        }),
    };
    record.plan.steps.iter().zip(&record.progress).enumerate().filter_map(capture).collect()
}

/// The work of undoing a run.
struct RunUndo<'a> {
    context: RunContext<'a>,
    journal: &'a Journal,
    /// State of the run before the work.
    record: RunRecord,
    /// The LIDs of the fabric, once they are read.
    lids: OnceLock<Result<PresentLids, FailureText>>,
    /// Entries that could not be written.
    journal_problems: Mutex<Vec<FailureText>>,
}

impl RunUndo<'_> {
    /// Writes an entry. If the journal cannot be written, the work goes on: it can be repeated
    /// later.
    fn note(&self, entry: &JournalEntry) {
        if let Err(error) = self.journal.write(entry) {
            let mut problems = self.journal_problems.lock().unwrap_or_else(PoisonError::into_inner);
            let what = error.to_string();
            if !problems.contains(&what) {
                problems.push(what);
            }
        }
    }

    /// Undoes all steps. Returns the reasons of failures.
    ///
    /// Steps of a kind are undone at the same time. Mirrors come first, but a switch that does not
    /// answer does not keep the captures running. Files come last: their file system may not
    /// answer.
    fn undo_all(&self) -> Vec<FailureText> {
        let places = |is_kind: fn(&PlanStep) -> bool| -> Vec<usize> {
            self.record
                .plan
                .steps
                .iter()
                .enumerate()
                .filter(|(_, step)| is_kind(step))
                .map(|(place, _)| place)
                .collect()
        };
        let undo = |places: &[usize]| -> Vec<FailureText> {
            let refused = parallel(places, self.context.parallelism(), |&place| self.undo(place).err());
            refused.into_iter().flatten().collect()
        };
        let mirrors = places(|step| matches!(step, PlanStep::Mirror(_)));
        let captures = places(|step| matches!(step, PlanStep::Capture(_)));
        let mut left = thread::scope(|scope| {
            // Without a thread, LIDs that changed are not noticed.
            let _ = thread::Builder::new().spawn_scoped(scope, || self.note_lids());
            let (end, ended) = mpsc::channel();
            let mirrors = &mirrors;
            let spawned = thread::Builder::new().spawn_scoped(scope, move || {
                let left = undo(mirrors);
                // The receiver no longer waits after a while.
                let _ = end.send(());
                left
            });
            let mut left = Vec::new();
            if let Ok(thread) = spawned {
                let _ = ended.recv_timeout(MIRROR_PATIENCE);
                let of_captures = undo(&captures);
                left.extend(
                    thread.join().unwrap_or_else(|_| vec!["mirrors may be left: a thread panicked".to_owned()]),
                );
                left.extend(of_captures);
            } else {
                left.extend(undo(mirrors));
                left.extend(undo(&captures));
            }
            left
        });
        left.extend(undo(&places(|step| matches!(step, PlanStep::Hostfile(_)))));
        left
    }

    /// Undoes a step if it was begun.
    fn undo(&self, place: usize) -> Result<(), FailureText> {
        let ran = Mutex::default();
        let context = self.context.with_command_log(&ran);
        let ended = match (&self.record.progress[place], &self.record.plan.steps[place]) {
            (StepProgress::Planned, PlanStep::Mirror(step)) if self.journal.is_reopened() => {
                if step.check_off.is_empty() {
                    return Ok(());
                }
                return check_never_mirrored(context, &*self.with_present_lid(step)?);
            }
            (StepProgress::Planned, PlanStep::Capture(step)) if self.journal.is_reopened() => {
                return check_never_captured(context, step);
            }
            (StepProgress::Planned | StepProgress::Undone(_), _) => return Ok(()),
            (progress, PlanStep::Capture(step)) => {
                let known = if let StepProgress::Done(process) = progress { process.as_ref() } else { None };
                let has_captured = self.record.has_started;
                if has_captured {
                    self.note(&JournalEntry::Clock {
                        at_ns: now_ns(),
                        step: place,
                        exchanges: context.clock_exchanges(&step.node),
                    });
                }
                let fetched = self.fetched_copy(step);
                let history = stop::CaptureHistory {
                    known,
                    is_refused: self.record.refused.contains(&place),
                    has_captured,
                    is_tried: self.record.phase == RunPhase::Undoing || fetched.is_some(),
                    address_change: self.address_change(&step.node),
                    fetched,
                };
                Some(stop::stop(context, step, &history)?)
            }
            (progress, PlanStep::Mirror(step)) => {
                if *progress == StepProgress::Started {
                    self.wait_for_commands(step)?;
                }
                let step = self.with_present_lid(step)?;
                if self.is_end_of_job() && matches!(progress, StepProgress::Done(_)) {
                    self.note_unmirrored(place, &step);
                }
                mirror_off(context, &step)?;
                None
            }
            (_, PlanStep::Hostfile(step)) => {
                remove_hostfile(context, step)?;
                None
            }
        };
        self.note(&JournalEntry::Undone { at_ns: now_ns(), step: place, ended, ran: context::take_commands(&ran) });
        Ok(())
    }

    /// Waits until no command runs that could switch a port on after it was switched off. A process
    /// that is killed leaves its command running until the command's time limit.
    fn wait_for_commands(&self, step: &MirrorStep) -> Result<(), FailureText> {
        if self.journal.is_reopened() {
            // A command that was sent may not have started yet.
            let since = Duration::from_nanos(u64::try_from(now_ns() - self.record.changed_ns).unwrap_or(0));
            thread::sleep(self.context.remaining(COMMAND_START_TIMEOUT.saturating_sub(since))?);
        }
        let began = Instant::now();
        let longest = step.on.iter().map(|command| command.timeout_s).max().unwrap_or(0);
        let places: BTreeSet<Option<&str>> = step.on.iter().map(|command| command.node.as_deref()).collect();
        for place in places {
            let commands: Vec<&[String]> = step
                .on
                .iter()
                .filter(|command| command.node.as_deref() == place)
                .map(|command| command.argv.as_slice())
                .collect();
            while self.context.node_or_here(place)?.is_running(&commands).map_err(|error| error.to_string())? {
                if began.elapsed() > Duration::from_secs(u64::from(longest)) + COMMAND_END_TIMEOUT {
                    return Err(format!(
                        "leaf {:#018x}: a command that mirrors its ports is still running; check it on the machine of mirror.run_on",
                        step.leaf_guid
                    ));
                }
                thread::sleep(POLL_INTERVAL);
            }
        }
        Ok(())
    }

    /// Collects the captures at this time. Returns what is left, and whether only transfers are, none of
    /// which has failed.
    fn collect_at(&self, time: FetchTiming, state: &State, is_restored: bool) -> (Vec<FailureText>, bool) {
        let later = || (vec![NOT_FETCHED.to_owned()], is_restored);
        match time {
            FetchTiming::Later if self.record.has_started => later(),
            FetchTiming::Tried(failures) if self.record.has_started => {
                (failures.into_iter().chain(self.delete_fetched()).collect(), false)
            }
            _ => self.collect(state).map_or_else(later, |failures| {
                // The next attempt has no deadline, and shows whether there is another reason.
                let is_late = !failures.is_empty() && Instant::now() >= self.context.deadline;
                (failures, is_restored && is_late)
            }),
        }
    }

    /// Collects the captures. Captures of a run that never started contain no traffic of the job,
    /// and are deleted. `None` if another process collects them.
    fn collect(&self, state: &State) -> Option<Vec<FailureText>> {
        let record = self.journal.record();
        if !record.has_started {
            let captures: Vec<_> = collect::ended_captures(&record).collect();
            let discard = |&(_, step, ended): &(_, _, _)| collect::discard(self.context, step, ended).err();
            let failures = parallel(&captures, self.context.parallelism(), discard);
            return Some(failures.into_iter().flatten().collect());
        }
        let _transfer = match state.lock_transfer(self.journal.path()) {
            Ok(lock) => lock?,
            Err(error) => return Some(vec![error.to_string()]),
        };
        let mut failures = collect::fetch_all(self.context, &record, |step, fetched| {
            self.note(&JournalEntry::Fetched { at_ns: now_ns(), step, fetched });
        });
        failures.extend(self.delete_fetched());
        Some(failures)
    }

    /// Deletes the captures on the sinks that are at their final place, if the configuration requests it.
    /// While the journal cannot be written, they stay: the next attempt finds no record of their place.
    fn delete_fetched(&self) -> Vec<FailureText> {
        if !self.journal_problems.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            return Vec::new();
        }
        let record = self.journal.record();
        let fetched: Vec<&CaptureStep> = collect::ended_captures(&record)
            .filter_map(|(place, step, _)| record.fetched.contains_key(&place).then_some(step))
            .collect();
        let deleted =
            parallel(&fetched, self.context.parallelism(), |step| collect::delete_fetched(self.context, step).err());
        deleted.into_iter().flatten().collect()
    }

    /// Writes the manifest of a run that has captured something.
    fn manifest(&self, record: &RunRecord) -> Result<Option<PathBuf>, FailureText> {
        if !record.has_started || captures(record).iter().all(|capture| capture.fetched.is_none()) {
            return Ok(None);
        }
        let owner = self.context.owner()?;
        let folder = collect::run_folder(self.context, record, owner)?;
        let path = final_manifest::manifest(record).write(&folder, owner).map_err(|error| error.to_string())?;
        // This must be last: from now on the owner can change the folder.
        folder.set_owner(owner).map_err(|error| format!("{}: {error}", folder.path().display()))?;
        Ok(Some(path))
    }
}

/// Checks that a mirror without an entry in the journal is off, because a journal can lose its last
/// lines unnoticed. Nothing is switched off, because somebody else may mirror the ports.
fn check_never_mirrored(context: RunContext<'_>, step: &MirrorStep) -> Result<(), FailureText> {
    step.check_off.iter().try_for_each(|check| context.check(check)).map_err(|what| {
        format!(
            "leaf {:#018x}: the journal has no entry for mirroring it, but {what}: somebody else mirrors it, or lines of the journal are missing; check the switch",
            step.leaf_guid
        )
    })
}

/// Checks that a capture without an entry in the journal does not run, because a journal can lose its
/// last lines unnoticed. Nothing is stopped, because a run deletes its captures if no line shows that it
/// has started.
fn check_never_captured(context: RunContext<'_>, step: &CaptureStep) -> Result<(), FailureText> {
    let found = context.node(&step.node)?.find_capture(step).map_err(|error| error.to_string())?;
    if found.processes.is_empty() && !found.launching {
        return Ok(());
    }
    let (file, name) = (step.file.display(), step.backend.name());
    let ids: Vec<String> = found.processes.iter().map(|process| process.pid.to_string()).collect();
    let what = if ids.is_empty() {
        format!("{name} is being launched")
    } else {
        format!("{name} runs there; end it with `kill -INT {}`, which keeps its file", ids.join(" "))
    };
    Err(format!("{}: lines of the journal are missing: it has no entry for the capture {file}, but {what}", step.node))
}

/// Runs all commands, even if one fails: those of the ports at the same time, then the one of the
/// analyzer that they share.
fn mirror_off(context: RunContext<'_>, step: &MirrorStep) -> Result<(), FailureText> {
    let of_ports = if step.analyzer.is_some() { step.off.len().saturating_sub(1) } else { step.off.len() };
    let (ports, analyzer) = step.off.split_at(of_ports);
    let most = context.parallelism_of(step);
    let mut refused: Vec<FailureText> =
        parallel(ports, most, |command| context.command(command).err()).into_iter().flatten().collect();
    refused.extend(analyzer.iter().filter_map(|command| context.command(command).err()));
    if !refused.is_empty() {
        return Err(format!("leaf {:#018x} may still be mirrored: {}", step.leaf_guid, summary(&refused)));
    }
    match parallel(&step.check_off, most, |check| context.check(check).err()).into_iter().flatten().next() {
        Some(what) => Err(format!("leaf {:#018x} is still mirrored: {what}", step.leaf_guid)),
        None => Ok(()),
    }
}

/// The first reasons, and how many more there are.
fn summary(reasons: &[FailureText]) -> FailureText {
    const MAX_REASONS: usize = 4;
    let mut text = reasons.iter().take(MAX_REASONS).map(String::as_str).collect::<Vec<_>>().join("; ");
    if let Some(more) = reasons.len().checked_sub(MAX_REASONS).filter(|more| *more > 0) {
        _ = write!(text, "; and {more} more");
    }
    text
}

/// Removes a hostfile if nobody changed its content, and what a process that was killed while it
/// wrote the hostfile left. The removal runs in a thread of its own, because a file system may not
/// respond.
fn remove_hostfile(context: RunContext<'_>, step: &HostfileStep) -> Result<(), FailureText> {
    let failed = |what: &str| format!("the hostfile {} cannot be removed: {what}", step.path.display());
    let time_limit = context.remaining(HOSTFILE_TIMEOUT)?;
    let (answer, answered) = mpsc::channel();
    let step = step.clone();
    let spawned = thread::Builder::new().spawn(move || {
        let remove = || {
            let (folder, name) = Folder::parent_of(&step.path)?;
            folder.remove_scratch(name)?;
            match folder.bytes(name) {
                Ok(text) if text == step.text().as_bytes() => folder.remove(name),
                Ok(_) => Ok(()),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                Err(error) => Err(error),
            }
        };
        // The receiver may be gone.
        let _ = answer.send(remove());
    });
    spawned.map_err(|error| failed(&format!("a thread cannot be started: {error}")))?;
    match answered.recv_timeout(time_limit) {
        Ok(removed) => removed.map_err(|error| failed(&error.to_string())),
        Err(_) => Err(failed("its file system does not answer")),
    }
}
