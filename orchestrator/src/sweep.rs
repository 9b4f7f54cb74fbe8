//! The sweeper: undoes the runs that no live job owns, from their journals alone.
//!
//! The input is a state folder. Each run is undone with the configuration that its journal records,
//! and then with the current one if steps remain. The sweeper retries a run that could not be
//! undone, each time after a longer interval. It deletes only runs that were undone.

mod released;

pub(crate) use released::note_at_end;

use crate::analysis;
use crate::config::Config;
use crate::folder::Folder;
use crate::job::SlurmHook;
use crate::journal::{JournalError, RunPhase, RunRecord, State, StoredJournal, now_ns};
use crate::log::{Level, Log};
use crate::remote::{CommandOutput, LocalRunner, Runner as _, SshRunner, parallel};
use crate::retention;
use crate::status::{self, JobState};
use crate::timestamp::now_s;
use crate::undo::{self, FetchTiming, StoredOutcome, UndoReport};
use serde::Serialize;
use std::fs::TryLockError;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Interval of [`sweep`] for hooks and the systemd unit.
pub const RESTORE_INTERVAL: Duration = Duration::from_mins(1);

/// Shortest time between two sweeps of hooks.
const HOOK_INTERVAL: Duration = Duration::from_mins(1);
/// File in the state folder with the time at which a hook last began to sweep, in seconds since the
/// epoch.
const HOOK_SWEEP: &str = "hooks.swept";

/// Pause after the third attempt that left work; each further attempt doubles it. The first two are
/// those of prolog and epilog, so that the next sweep finds no pause.
const FIRST_PAUSE: Duration = Duration::from_secs(30);
const ATTEMPTS_OF_HOOKS: u32 = 2;
/// Longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_mins(30);
/// Runs that are undone at the same time.
const MAX_RUNS_AT_ONCE: usize = 8;
/// Time limit of the program that began a run of another version.
const OTHER_VERSION_TIMEOUT: Duration = Duration::from_mins(10);

/// Result of the sweep of a run.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum SweepOutcome {
    /// The run was undone, completely or in part.
    Undone(UndoReport),
    /// A live job owns the run, or somebody began it by hand.
    InUse,
    /// Another process works on the run.
    Busy,
    /// The program that began the run undid it, because this one cannot read its plan.
    UndoneByOtherVersion {
        /// Path of the program.
        program: PathBuf,
    },
    /// An earlier attempt left work, and the next one comes later.
    Waiting {
        /// Work that is left, one sentence each.
        left: Vec<String>,
        /// Seconds until the next attempt.
        next_s: u64,
    },
    /// The run cannot be undone.
    Failed {
        /// Reason, and the remedy.
        what: String,
    },
}

/// A run and the result of its sweep.
#[derive(Clone, Debug, Serialize)]
pub struct SweptRun {
    /// Job id.
    pub job_id: u32,
    /// Path of the journal.
    pub journal: PathBuf,
    /// The result.
    pub outcome: SweepOutcome,
}

impl SweptRun {
    /// True if the run should be undone but is not.
    pub fn is_left(&self) -> bool {
        match &self.outcome {
            SweepOutcome::Undone(report) => report.has_failed(),
            SweepOutcome::InUse | SweepOutcome::Busy | SweepOutcome::UndoneByOtherVersion { .. } => false,
            SweepOutcome::Waiting { .. } | SweepOutcome::Failed { .. } => true,
        }
    }
}

/// Sweeps a state folder. `current` is the current configuration, if it can be read. The runs of the
/// job `except` are left out. A folder that does not exist has no runs.
///
/// The transfer of a capture may take hours. Meanwhile the runs that occur are undone every
/// `interval`, and their captures stay for the next sweep.
pub fn sweep(
    state_dir: &Path,
    current: Option<&Config>,
    except: Option<u32>,
    interval: Duration,
) -> Result<Vec<SweptRun>, JournalError> {
    if !state_dir.exists() {
        return Ok(Vec::new());
    }
    let state = &State::open(state_dir)?;
    state.folder().remove_abandoned(None);
    let mut stored = state.journals()?;
    stored.retain(|stored| except != Some(stored.job_id));
    let work = || {
        parallel(&stored, MAX_RUNS_AT_ONCE, |stored| SweptRun {
            job_id: stored.job_id,
            journal: stored.path.clone(),
            outcome: sweep_run(state, stored, current, FetchTiming::Now),
        })
    };
    Ok(thread::scope(|scope| {
        let (end, ended) = mpsc::channel::<()>();
        let restore = move || {
            while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                restore_runs(state, current, except);
            }
        };
        // Without this thread, the next sweep undoes the runs that occur meanwhile.
        let _ = thread::Builder::new().spawn_scoped(scope, restore);
        let swept = work();
        drop(end);
        swept
    }))
}

/// Undoes the runs that still change the fabric or the sinks, and fetches no capture. Each run's own
/// log names its faults.
fn restore_runs(state: &State, current: Option<&Config>, except: Option<u32>) {
    let mut stored = state.journals().unwrap_or_default();
    stored.retain(|stored| {
        let is_restored = stored.record.as_ref().is_ok_and(|record| record.occupying_steps().next().is_none());
        except != Some(stored.job_id) && !is_restored
    });
    parallel(&stored, MAX_RUNS_AT_ONCE, |stored| sweep_run(state, stored, current, FetchTiming::Later));
}

fn sweep_run(
    state: &State,
    stored: &StoredJournal,
    current: Option<&Config>,
    captures_go: FetchTiming,
) -> SweepOutcome {
    let record = match &stored.record {
        Ok(record) => record,
        Err(error) => {
            return match undo_with_other_version(state, stored) {
                Some(outcome) => outcome,
                None => SweepOutcome::Failed { what: error.to_string() },
            };
        }
    };
    let own = record.origin.as_ref().and_then(|origin| origin.config().ok());
    let Some(config) = own.as_ref().or(current) else {
        return SweepOutcome::Failed {
            what: format!(
                "{}: neither its own configuration nor the current one can be read; correct the configuration",
                stored.path.display()
            ),
        };
    };
    // This record may be old: other runs of this sweep come first. It saves a lock on the job of each
    // live run, and the record under the lock decides.
    let is_stale = |record: &RunRecord| nodes_without_job(config, current, record).is_none();
    if let Some(nodes) = nodes_without_job(config, current, record) {
        if !nodes.is_empty() {
            released::free(config, state, stored, &nodes);
        }
        return SweepOutcome::InUse;
    }
    let next_s = pause_left(record, now_ns()).as_secs();
    if next_s > 0 {
        return SweepOutcome::Waiting { left: record.left.clone(), next_s };
    }
    let mut outcome = undo_with(config, state, stored, captures_go.clone(), &is_stale);
    let differs = |other: &&Config| other.source.text != config.source.text;
    if is_incomplete(&outcome)
        && let Some(other) = current.filter(differs)
    {
        outcome = undo_with(other, state, stored, captures_go, &is_stale);
    }
    outcome
}

fn is_incomplete(outcome: &SweepOutcome) -> bool {
    match outcome {
        SweepOutcome::Undone(report) => report.has_failed(),
        SweepOutcome::Failed { .. } => true,
        _ => false,
    }
}

/// The nodes of a run that its live job has released, usually none. `None` if no live job owns the run: it
/// is not running, or its job has ended or was started again. A capture that somebody began by hand ends
/// with its job, if Slurm knows it, or by hand.
fn nodes_without_job(config: &Config, current: Option<&Config>, record: &RunRecord) -> Option<Vec<String>> {
    if record.phase != RunPhase::Running {
        return None;
    }
    let ask = |config: &Config| status::owner_of(config, &status::slurm_here(config), record);
    let mut owner = ask(config);
    // Somebody may have corrected the path of squeue since the run began.
    if let (JobState::NoAnswer(_), Some(other)) = (&owner.state, current)
        && other.source.text != config.source.text
    {
        owner = ask(other);
    }
    let is_of_hook = matches!(record.plan.job.hook, Some(SlurmHook::PrologSlurmctld | SlurmHook::PrologSlurmd));
    match owner.state {
        JobState::Ended => None,
        JobState::Unknown if is_of_hook => None,
        JobState::Live | JobState::Unknown => Some(owner.released),
        JobState::NoAnswer(why) => {
            status::warn_no_answer(config, &why);
            Some(Vec::new())
        }
    }
}

/// Time until the next attempt: after n attempts, the first pause doubled n - 3 times, from the end
/// of the last one; after two attempts, none.
fn pause_left(record: &RunRecord, now_ns: i64) -> Duration {
    let Some(doublings) = record.attempts.checked_sub(ATTEMPTS_OF_HOOKS + 1) else { return Duration::ZERO };
    let pause = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(doublings)).min(LONGEST_PAUSE);
    // A clock that was set back must not stop the sweeper.
    let since = u64::try_from(now_ns.saturating_sub(record.left_ns)).map_or(pause, Duration::from_nanos);
    pause.saturating_sub(since)
}

fn undo_with(
    config: &Config,
    state: &State,
    stored: &StoredJournal,
    captures_go: FetchTiming,
    is_stale: &dyn Fn(&RunRecord) -> bool,
) -> SweepOutcome {
    let log = Log::open(config.run.log.as_deref(), config.run.syslog, &format!("job {}", stored.job_id));
    let runner = match SshRunner::new(config) {
        Ok(runner) => runner,
        Err(error) => return failed(&log, error.to_string()),
    };
    match undo::stored(config, state, stored, &runner, captures_go, is_stale) {
        Ok(StoredOutcome::Busy) => SweepOutcome::Busy,
        Ok(StoredOutcome::InUse) => SweepOutcome::InUse,
        Ok(StoredOutcome::Undone(report)) => {
            log.write(Level::Info, "the sweeper undoes this run, because no live job owns it");
            report.log(&log);
            analysis::start_and_log(config, &report, &runner, &log);
            SweepOutcome::Undone(report)
        }
        Err(error) => failed(&log, error.to_string()),
    }
}

fn failed(log: &Log, what: String) -> SweepOutcome {
    log.write(Level::Error, &what);
    SweepOutcome::Failed { what }
}

/// Lets the program that began a run sweep it, if this program cannot read the run's plan. `None`
/// if there is no such program.
fn undo_with_other_version(state: &State, stored: &StoredJournal) -> Option<SweepOutcome> {
    let text = state.folder().bytes(stored.path.file_name()?).ok()?;
    let line = text.split_inclusive(|byte| *byte == b'\n').next()?.strip_suffix(b"\n")?;
    let json = line.split(|byte| *byte == b'\t').next()?;
    let opened: serde_json::Value = serde_json::from_slice(json).ok()?;
    let program = PathBuf::from(opened.get("origin")?.get("program")?.as_str()?);
    // Only programs in the state folder, which nobody else can write.
    let is_copy = program.parent() == Some(&state.folder().path().join(crate::origin::PROGRAM_FOLDER));
    let is_own = std::fs::canonicalize("/proc/self/exe").is_ok_and(|own| own == program);
    if !is_copy || is_own || !program.exists() {
        return None;
    }
    let state_dir = state.folder().path().to_string_lossy().into_owned();
    let argv = [
        program.to_string_lossy().into_owned(),
        "hook".to_owned(),
        "sweep".to_owned(),
        "--state-dir".to_owned(),
        state_dir,
    ];
    let ran = LocalRunner::default().run(None, &argv, OTHER_VERSION_TIMEOUT);
    let is_done = ran.as_ref().is_ok_and(CommandOutput::is_success) || !stored.path.exists();
    Some(if is_done {
        SweepOutcome::UndoneByOtherVersion { program }
    } else {
        let what = ran.map_or_else(|error| error.to_string(), |output| crate::text::printable(&output.stderr));
        SweepOutcome::Failed {
            what: format!("{}: {} could not undo it: {what}", stored.path.display(), program.display()),
        }
    })
}

/// True if a hook may sweep now, because no hook has begun to within the last minute. Records the time
/// of this sweep.
///
/// Each sweep asks Slurm about every open run, and the retention logs in to every sink. Without this
/// limit, a cluster whose jobs take seconds would do this all the time.
pub(crate) fn claim_hook_sweep(state: &State) -> bool {
    // A folder that cannot be written must not stop the sweeps.
    claim_hook_sweep_at(state.folder(), now_s()).unwrap_or(true)
}

fn claim_hook_sweep_at(folder: &Folder, now_s: u64) -> io::Result<bool> {
    let mut file = folder.append_or_create(HOOK_SWEEP, 0o600)?;
    match file.try_lock() {
        Ok(()) => {}
        // Another hook begins to sweep.
        Err(TryLockError::WouldBlock) => return Ok(false),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let last_s: Option<u64> = String::from_utf8_lossy(&folder.bytes(HOOK_SWEEP)?).trim().parse().ok();
    // A clock that was set back must not stop the sweeps.
    if last_s.and_then(|last_s| now_s.checked_sub(last_s)).is_some_and(|since_s| since_s < HOOK_INTERVAL.as_secs()) {
        return Ok(false);
    }
    file.set_len(0)?;
    file.write_all(now_s.to_string().as_bytes())?;
    Ok(true)
}

/// Deletes captures and runs beyond the limits of the configuration, and logs each deletion. Returns
/// the faults, one sentence each.
pub fn retain(config: &Config) -> Vec<String> {
    let log = Log::open(config.run.log.as_deref(), config.run.syslog, "retention");
    let kept = SshRunner::new(config)
        .map_err(|error| vec![error.to_string()])
        .and_then(|runner| retention::retain(config, &runner, &log));
    let faults = kept.err().unwrap_or_default();
    faults.iter().for_each(|fault| log.write(Level::Warning, fault));
    faults
}

/// Configuration of the newest open run of a job, for an epilog that cannot read the current one.
pub fn config_of_job(state_dir: &Path, job_id: u32) -> Option<Config> {
    let journals = State::open(state_dir).and_then(|state| state.journals()).ok()?;
    journals
        .into_iter()
        .rev()
        .filter(|stored| stored.job_id == job_id)
        .find_map(|stored| stored.record.ok()?.origin?.config().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::SlurmJob;
    use crate::journal::JournalEntry;
    use crate::plan::CapturePlan;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Instant;

    fn plan(id: u32) -> CapturePlan {
        CapturePlan {
            job: SlurmJob { id, ..SlurmJob::default() },
            started_s: 1,
            compute: Vec::new(),
            sinks: Vec::new(),
            steps: Vec::new(),
            warnings: Vec::new(),
            hostfile: Vec::new(),
        }
    }

    /// The sweep reads the journals once. A prolog that ends before the turn of its run leaves a run of
    /// a live job, which the old record does not show.
    #[test]
    fn a_run_whose_prolog_ends_during_the_sweep_keeps_its_capture() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("known_hosts"), "").unwrap();
        fs::write(at("id"), "").unwrap();
        fs::set_permissions(at("id"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(at("squeue"), format!("#!/bin/sh\ncat '{}'\n", at("jobs").display())).unwrap();
        fs::set_permissions(at("squeue"), fs::Permissions::from_mode(0o755)).unwrap();
        let text = format!(
            "[ssh]\nkey = \"{0}/id\"\nknown_hosts = \"{0}/known_hosts\"\n[tools]\nsqueue = \"{0}/squeue\"\n[mirror]\n\
             backend = \"none\"\n[capture]\nbackend = \"ibdump\"\ndirectory = \"/c\"\n[collect]\ndirectory = \"{0}/runs\"\n\
             [run]\nstate_dir = \"{0}/state\"\nsyslog = false\n",
            folder.path().display()
        );
        let config = Config::parse(&text, Path::new("x")).unwrap();
        let state = State::open(&config.run.state_dir).unwrap();
        let soon = || Instant::now() + Duration::from_secs(30);
        let lock = state.lock_job(7, soon()).unwrap();
        let journal = state.lock_plan(soon()).unwrap().create(plan(7), None, lock).unwrap();
        let read = state.journals().unwrap().remove(0);
        let sweep = || sweep_run(&state, &read, Some(&config), FetchTiming::Now);
        fs::write(at("jobs"), "7 RUNNING\n").unwrap();
        assert!(matches!(sweep(), SweepOutcome::Busy), "its prolog works on it");
        journal.write(&JournalEntry::Started { at_ns: 1 }).unwrap();
        drop(journal);
        let outcome = sweep();
        assert!(matches!(outcome, SweepOutcome::InUse), "{outcome:?}");
        assert_eq!(state.journals().unwrap().remove(0).phase(), Some(RunPhase::Running));
        // The job has ended, and its epilog was lost.
        fs::write(at("jobs"), "").unwrap();
        let outcome = sweep();
        assert!(matches!(&outcome, SweepOutcome::Undone(report) if report.left.is_empty()), "{outcome:?}");
    }

    #[test]
    fn hooks_sweep_at_most_once_a_minute() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::open(place.path()).unwrap();
        let claims = |now_s| claim_hook_sweep_at(&folder, now_s).unwrap();
        assert_eq!([100, 100, 159, 160, 219, 300].map(claims), [true, false, false, true, false, true]);
        assert!(claims(50), "the clock was set back");
        assert!(!claims(51));
        let file = place.path().join(HOOK_SWEEP);
        let held = fs::File::open(&file).unwrap();
        held.lock().unwrap();
        assert!(!claims(500), "another hook begins to sweep");
        drop(held);
        fs::write(&file, "nonsense").unwrap();
        assert!(claims(500));
        // If the time cannot be recorded, every hook sweeps.
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        let state = State::open(place.path()).unwrap();
        assert!(claim_hook_sweep(&state) && claim_hook_sweep(&state));
    }

    #[test]
    fn pauses_double_up_to_a_limit() {
        let second_ns = 1_000_000_000;
        let opened = JournalEntry::Opened { version: 2, at_ns: 0, plan: Box::new(plan(7)), origin: None };
        let mut record = RunRecord::opened(opened).unwrap();
        assert_eq!(pause_left(&record, 0), Duration::ZERO, "nothing was tried yet");
        for expected_s in [0, 0, 30, 60, 120, 240, 480, 960, 1800, 1800] {
            record.apply(&JournalEntry::Left { at_ns: 100 * second_ns, what: Vec::new(), is_fetching: false });
            assert_eq!(pause_left(&record, 100 * second_ns), Duration::from_secs(expected_s));
            assert_eq!(pause_left(&record, (100 + expected_s as i64) * second_ns), Duration::ZERO);
            assert_eq!(pause_left(&record, 99 * second_ns), Duration::ZERO, "the clock was set back");
        }
    }
}
