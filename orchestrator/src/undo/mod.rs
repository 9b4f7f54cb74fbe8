//! The end of a run: everything is undone in the reverse order, the fabric first, then captures are fetched. It can be done again and again, after a start that was cut
//! off anywhere, and by two at once, of whom the second finds nothing to do. What cannot be undone does not keep the rest from it.

mod collect;
mod stop;
mod tell;

use crate::config::Config;
use crate::effort::{self, Effort, Refusal};
use crate::folder::{Folder, Ids};
use crate::journal::{Ended, Entry, Fetched, JobLock, Journal, JournalError, Phase, Progress, Record, State, now_ns};
use crate::order::{lines, phases};
use crate::remote::{Files, parallel};
use crate::step::{HostfileStep, MirrorStep, Step};
use serde::Serialize;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// A command that was sent to a node runs after so long.
const STARTING: Duration = Duration::from_secs(1);
/// A command has ended so long after its time, whatever it is.
const ENDED: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A file system that takes longer does not answer.
const FILES: Duration = Duration::from_secs(5);
/// As long as nobody waits for it.
const LEISURE: Duration = Duration::from_hours(24);

/// What came of undoing a run.
#[derive(Clone, Debug, Serialize)]
pub struct Undone {
    /// The job.
    pub job_id: u32,
    /// Nothing is mirrored and nothing runs any more on behalf of the run.
    pub is_restored: bool,
    /// What is left to do, a sentence each. Empty: the run is closed.
    pub left: Vec<String>,
    /// The captures.
    pub captures: Vec<Capture>,
    /// The manifest, where there is something to tell.
    pub manifest: Option<PathBuf>,
}

/// A capture after its end.
#[derive(Clone, Debug, Serialize)]
pub struct Capture {
    /// The node that captured.
    pub node: String,
    /// Its file there.
    pub file: PathBuf,
    /// How it ended; none where it could not be stopped.
    pub ended: Option<Ended>,
    /// Where it is now, where that is known.
    pub fetched: Option<Fetched>,
}

/// Undoes what runs of a job have left; empty where there is nothing. Captures that cannot be hashed and fetched by the deadline stay where they are, which is told.
pub fn job(config: &Config, job_id: u32, runner: &dyn Files, deadline: Instant) -> Result<Vec<Undone>, JournalError> {
    job_until(config, job_id, runner, deadline, deadline)
}

/// The same without a hook's hurry: captures may take as long as they need. Who works on the job at the moment is waited for until `patience` is over.
pub fn at_leisure(
    config: &Config,
    job_id: u32,
    runner: &dyn Files,
    patience: Instant,
) -> Result<Vec<Undone>, JournalError> {
    job_until(config, job_id, runner, patience, Instant::now() + LEISURE)
}

fn job_until(
    config: &Config,
    job_id: u32,
    runner: &dyn Files,
    patience: Instant,
    deadline: Instant,
) -> Result<Vec<Undone>, JournalError> {
    let state = State::open(&config.run.state_dir)?;
    let mut lock = state.lock_job(job_id, patience)?;
    let mut all = Vec::new();
    for kept in state.journals()?.into_iter().filter(|kept| kept.job_id == job_id) {
        let journal = state.reopen(&kept.path, lock)?;
        let undone;
        (undone, lock) = undo(Effort { config, runner, deadline, ran: None }, &state, journal, Captures::Now);
        all.push(undone);
    }
    Ok(all)
}

/// Undoes every run that nobody works on and whose job has ended, by what `has_ended` says. A run that runs, of a job that does too, is left alone. One job that cannot be
/// undone does not keep the others from it. Nobody is in a hurry, as with [`at_leisure`].
pub fn stale(
    config: &Config,
    runner: &dyn Files,
    patience: Instant,
    has_ended: impl Fn(u32) -> bool,
) -> Result<Vec<Result<Undone, JournalError>>, JournalError> {
    let state = State::open(&config.run.state_dir)?;
    let mut jobs: Vec<u32> = Vec::new();
    for kept in state.journals()? {
        let is_free = state.lock_job(kept.job_id, Instant::now()).is_ok();
        let is_stale = is_free && (kept.phase() != Some(Phase::Running) || has_ended(kept.job_id));
        if is_stale && !jobs.contains(&kept.job_id) {
            jobs.push(kept.job_id);
        }
    }
    let mut all = Vec::new();
    for job_id in jobs {
        match at_leisure(config, job_id, runner, patience) {
            Ok(undone) => all.extend(undone.into_iter().map(Ok)),
            Err(error) => all.push(Err(error)),
        }
    }
    Ok(all)
}

/// When captures of a run that had started go where they are to stay.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Captures {
    /// With the rest.
    Now,
    /// When it is undone once more; until then the run is not closed.
    Later,
}

/// Undoes a run. The lock on its job is given back.
pub(crate) fn undo(effort: Effort<'_>, state: &State, journal: Journal, captures_go: Captures) -> (Undone, JobLock) {
    let work = Work { effort, journal: &journal, record: journal.record(), troubles: Mutex::default() };
    work.note(&Entry::Undoing { at_ns: now_ns() });
    let steps = &journal.plan().steps;
    let mut left: Vec<Refusal> = Vec::new();
    // The fabric first, and files last: they may be where nothing answers.
    let is_files = |phase: &&Vec<usize>| phase.iter().all(|&place| matches!(steps[place], Step::Hostfile(_)));
    let all = phases(steps);
    let (files, others): (Vec<_>, Vec<_>) = all.iter().rev().partition(is_files);
    for phase in others.into_iter().chain(files) {
        let lines = lines(steps, phase);
        let refused = parallel(&lines, effort.width(), |line| {
            line.iter().rev().filter_map(|&place| work.undo(place).err()).collect::<Vec<_>>()
        });
        left.extend(refused.into_iter().flatten());
    }
    let is_restored = left.is_empty();
    if captures_go == Captures::Now || !work.record.has_started {
        left.extend(work.collect());
    } else {
        left.push("its captures are not fetched yet".to_owned());
    }
    let record = journal.record();
    let manifest = match work.manifest(&record) {
        Ok(manifest) => manifest,
        Err(what) => {
            left.push(what);
            None
        }
    };
    left.append(&mut work.troubles.lock().unwrap_or_else(PoisonError::into_inner));
    let closing = if left.is_empty() {
        Entry::Closed { at_ns: now_ns(), manifest: manifest.clone() }
    } else {
        Entry::Left { at_ns: now_ns(), what: left.clone() }
    };
    let written =
        journal.write(&closing).and_then(|()| if left.is_empty() { state.put_away(journal.path()) } else { Ok(()) });
    left.extend(written.err().map(|error| error.to_string()));
    let undone = Undone { job_id: journal.plan().job.id, is_restored, left, captures: captures(&record), manifest };
    (undone, journal.into_lock())
}

/// The captures that a journal tells of.
fn captures(record: &Record) -> Vec<Capture> {
    let capture = |(place, (step, progress)): (usize, (&Step, &Progress))| match (step, progress) {
        (_, Progress::Planned) | (Step::Mirror(_) | Step::Hostfile(_), _) => None,
        (Step::Capture(step), progress) => Some(Capture {
            node: step.node.clone(),
            file: step.file.clone(),
            ended: if let Progress::Undone(ended) = progress { ended.clone() } else { None },
            fetched: record.fetched.get(&place).cloned(),
        }),
    };
    record.plan.steps.iter().zip(&record.progress).enumerate().filter_map(capture).collect()
}

/// Undoing a run.
struct Work<'a> {
    effort: Effort<'a>,
    journal: &'a Journal,
    /// What the journal said at first.
    record: Record,
    /// Entries that could not be written.
    troubles: Mutex<Vec<Refusal>>,
}

impl Work<'_> {
    /// Writes an entry. A journal that cannot be written does not keep anything from being undone: it will be undone again.
    fn note(&self, entry: &Entry) {
        if let Err(error) = self.journal.write(entry) {
            let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
            let what = error.to_string();
            if !troubles.contains(&what) {
                troubles.push(what);
            }
        }
    }

    /// Undoes a step, if it was begun.
    fn undo(&self, place: usize) -> Result<(), Refusal> {
        let ran = Mutex::default();
        let effort = self.effort.noting(&ran);
        let ended = match (&self.record.progress[place], &self.record.plan.steps[place]) {
            (Progress::Planned, Step::Mirror(step)) if self.journal.is_reopened() => return not_begun(effort, step),
            (Progress::Planned | Progress::Undone(_), _) => return Ok(()),
            (progress, Step::Capture(step)) => {
                let known = if let Progress::Done(process) = progress { process.as_ref() } else { None };
                let has_captured = self.record.has_started;
                if has_captured {
                    self.note(&Entry::Clock { at_ns: now_ns(), step: place, exchanges: effort.clock(&step.node) });
                }
                Some(stop::stop(effort, step, known, self.record.failed.contains_key(&place), has_captured)?)
            }
            (progress, Step::Mirror(step)) => {
                if *progress == Progress::Begun {
                    self.wait_for_commands(step)?;
                }
                mirror_off(effort, step)?;
                None
            }
            (_, Step::Hostfile(step)) => {
                remove_hostfile(effort, step)?;
                None
            }
        };
        self.note(&Entry::Undone { at_ns: now_ns(), step: place, ended, ran: effort::taken(&ran) });
        Ok(())
    }

    /// Waits until no command is under way any more that would switch a port on after it was switched off: who is killed leaves it running. It ends at the latest when
    /// its own time is over.
    fn wait_for_commands(&self, step: &MirrorStep) -> Result<(), Refusal> {
        if self.journal.is_reopened() {
            // One that was sent may not have been started yet.
            let since = Duration::from_nanos(u64::try_from(now_ns() - self.record.changed_ns).unwrap_or(0));
            thread::sleep(self.effort.time(STARTING.saturating_sub(since))?);
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
            while self.effort.place(place)?.is_running(&commands).map_err(|error| error.to_string())? {
                if began.elapsed() > Duration::from_secs(u64::from(longest)) + ENDED {
                    return Err(format!(
                        "leaf {:#018x}: a command that mirrors its ports does not come to an end",
                        step.leaf_guid
                    ));
                }
                thread::sleep(LOOK_EVERY);
            }
        }
        Ok(())
    }

    /// Captures go where they are to stay. Those of a run that never started hold nothing of the job's: they are deleted.
    fn collect(&self) -> Vec<Refusal> {
        let record = self.journal.record();
        let places: Vec<usize> = (0..record.progress.len()).collect();
        let owner = OnceLock::new();
        let refused = parallel(&places, self.effort.width(), |&place| {
            let (Step::Capture(step), Progress::Undone(Some(ended))) =
                (&record.plan.steps[place], &record.progress[place])
            else {
                return Ok(());
            };
            if !record.has_started {
                return collect::discard(self.effort, step, ended);
            }
            let Some(bytes) = ended.bytes else { return Ok(()) };
            if !record.fetched.contains_key(&place) {
                let owner = owner.get_or_init(|| self.effort.owner()).clone()?;
                let fetched = collect::collect(self.effort, step, bytes, owner, || self.folder(owner))?;
                self.note(&Entry::Fetched { at_ns: now_ns(), step: place, fetched });
            }
            collect::tidy(self.effort, step)
        });
        refused.into_iter().filter_map(Result::err).collect()
    }

    /// The run's own folder for its manifest and captures.
    fn folder(&self, owner: Option<Ids>) -> Result<Folder, Refusal> {
        let directory = &self.effort.config.collect.directory;
        let name = self.journal.plan().run_name();
        let made = Folder::make(directory, 0o700).and_then(|all| all.inside(OsStr::new(&name), 0o700, owner));
        made.map_err(|error| {
            format!("{} cannot be used: {error}; check collect.directory", directory.join(&name).display())
        })
    }

    /// Writes the manifest of a run that has captured something.
    fn manifest(&self, record: &Record) -> Result<Option<PathBuf>, Refusal> {
        if !record.has_started || captures(record).iter().all(|capture| capture.fetched.is_none()) {
            return Ok(None);
        }
        let owner = self.effort.owner()?;
        let folder = self.folder(owner)?;
        let path = tell::manifest(record).write(&folder, owner).map_err(|error| error.to_string())?;
        // Last: from now on it is the owner's to change.
        folder.give(owner).map_err(|error| format!("{}: {error}", folder.path().display()))?;
        Ok(Some(path))
    }
}

/// Checks that a mirror is off that the journal never announced: a journal can lose its last lines
/// without a trace. Nothing is switched off, because somebody else may mirror the ports.
fn not_begun(effort: Effort<'_>, step: &MirrorStep) -> Result<(), Refusal> {
    step.check_off.iter().try_for_each(|check| effort.check(check)).map_err(|what| {
        format!(
            "leaf {:#018x}: the journal says nothing of mirroring it, and {what}: somebody else mirrors it, or lines of the journal are gone; look at the switch",
            step.leaf_guid
        )
    })
}

/// Runs all of the commands, whatever one says.
fn mirror_off(effort: Effort<'_>, step: &MirrorStep) -> Result<(), Refusal> {
    let refused: Vec<Refusal> = step.off.iter().filter_map(|command| effort.command(command).err()).collect();
    if !refused.is_empty() {
        return Err(format!("leaf {:#018x} may still be mirrored: {}", step.leaf_guid, refused.join("; ")));
    }
    match step.check_off.iter().find_map(|check| effort.check(check).err()) {
        Some(what) => Err(format!("leaf {:#018x} is still mirrored: {what}", step.leaf_guid)),
        None => Ok(()),
    }
}

/// Removes a hostfile if it is still the one that was written. A file system that does not answer keeps nobody waiting.
fn remove_hostfile(effort: Effort<'_>, step: &HostfileStep) -> Result<(), Refusal> {
    let failed = |what: &str| format!("the hostfile {} cannot be removed: {what}", step.path.display());
    let patience = effort.time(FILES)?;
    let (answer, answered) = mpsc::channel();
    let step = step.clone();
    let spawned = thread::Builder::new().spawn(move || {
        let remove = || {
            let (folder, name) = Folder::of(&step.path)?;
            match folder.bytes(name) {
                Ok(text) if text == step.text().as_bytes() => folder.remove(name),
                Ok(_) => Ok(()),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                Err(error) => Err(error),
            }
        };
        // Nobody may be listening any more.
        let _ = answer.send(remove());
    });
    spawned.map_err(|error| failed(&format!("no thread can be started: {error}")))?;
    match answered.recv_timeout(patience) {
        Ok(removed) => removed.map_err(|error| failed(&error.to_string())),
        Err(_) => Err(failed("its file system does not answer")),
    }
}
