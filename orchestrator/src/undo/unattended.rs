//! Undoes a run for the sweeper, which no hook waits for: captures are transferred without the lock on
//! the job.

use super::collect::fetch_all;
use super::{FetchTiming, NO_DEADLINE, UndoReport, undo};
use crate::config::Config;
use crate::context::RunContext;
use crate::journal::{FetchedFile, Journal, JournalEntry, JournalError, RunRecord, State, StoredJournal, now_ns};
use crate::remote::Files;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time limit for a hook that works on the job while captures are fetched. Then the next sweep records
/// the captures.
const JOB_PATIENCE: Duration = Duration::from_mins(10);

/// Result of undoing one run in a state folder.
pub(crate) enum StoredOutcome {
    /// The run was undone, completely or in part.
    Undone(UndoReport),
    /// The run is not stale.
    InUse,
    /// Another process works on its job, or the run is closed.
    Busy,
}

/// Undoes one run in a state folder without a deadline for hashing and fetching, if it is stale.
///
/// `is_stale` gets the record as it is under the lock on the job: since `stored` was read, the run may
/// have started, and its job may run.
pub(crate) fn stored(
    config: &Config,
    state: &State,
    stored: &StoredJournal,
    runner: &dyn Files,
    captures_go: FetchTiming,
    is_stale: &dyn Fn(&RunRecord) -> bool,
) -> Result<StoredOutcome, JournalError> {
    let context = RunContext { config, runner, deadline: Instant::now() + NO_DEADLINE, command_log: None };
    let Some(journal) = reopen(state, stored, Instant::now())? else { return Ok(StoredOutcome::Busy) };
    let record = journal.record();
    if !is_stale(&record) {
        return Ok(StoredOutcome::InUse);
    }
    if captures_go == FetchTiming::Later || !record.has_started {
        return Ok(StoredOutcome::Undone(undo(context, state, journal, captures_go).0));
    }
    // A transfer may take hours. Meanwhile Slurm may start the job again, whose prolog needs the lock on
    // the job.
    let (undone, lock) = undo(context, state, journal, FetchTiming::Later);
    drop(lock);
    let Some(_transfer) = state.lock_transfer(&stored.path)? else { return Ok(StoredOutcome::Undone(undone)) };
    let Some(record) = state.journals()?.into_iter().find(|found| found.path == stored.path) else {
        return Ok(StoredOutcome::Undone(undone));
    };
    let fetched: Mutex<Vec<(usize, FetchedFile)>> = Mutex::default();
    let left = fetch_all(context, &record.record?, |place, file| {
        fetched.lock().unwrap_or_else(PoisonError::into_inner).push((place, file));
    });
    let Some(journal) = reopen(state, stored, Instant::now() + JOB_PATIENCE)? else {
        return Ok(StoredOutcome::Undone(undone));
    };
    for (step, fetched) in fetched.into_inner().unwrap_or_else(PoisonError::into_inner) {
        journal.write(&JournalEntry::Fetched { at_ns: now_ns(), step, fetched })?;
    }
    if !undone.is_restored {
        // This attempt has failed already. The next sweep continues.
        return Ok(StoredOutcome::Undone(undone));
    }
    Ok(StoredOutcome::Undone(undo(context, state, journal, FetchTiming::Tried(left)).0))
}

/// Reopens a journal. `None` if another process works on the job until the deadline, or if the run is
/// closed.
fn reopen(state: &State, stored: &StoredJournal, deadline: Instant) -> Result<Option<Journal>, JournalError> {
    let lock = match state.lock_job(stored.job_id, deadline) {
        Err(JournalError::Locked { .. }) => return Ok(None),
        lock => lock?,
    };
    if !stored.path.exists() {
        return Ok(None);
    }
    state.reopen(&stored.path, lock).map(Some)
}
