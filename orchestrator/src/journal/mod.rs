//! The journal of a run: every change is written down before it is made, so that it can be undone
//! whatever happens in between.
//!
//! Each run has one file in the state folder, with a JSON object and a checksum per line (`line`).
//! Each line is synced to the disk before the change that it announces, and a later line records
//! the result. A process that is killed at any point leaves a journal with at least everything that
//! was done. An incomplete last line announces a change that was not begun, so it is dropped. A
//! journal gets its name when its first line is on the disk: without a first line it is damaged.

mod entry;
mod line;
mod state;

pub(crate) use entry::now_ns;
pub use entry::{CaptureEnd, ClockExchanges, FetchedFile, JournalEntry, RunPhase, RunRecord, StepProgress, VERSION};
pub use state::{JobLock, PlanLock, State, StoredJournal};

use crate::folder::Folder;
use crate::plan::CapturePlan;
use line::ChecksumChain;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Reason why a state folder or a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Reading or writing failed.
    #[error("{}: {what}: {source}; check run.state_dir in the configuration, its permissions, and whether the disk is full", path.display())]
    File {
        /// Path of the file or folder.
        path: PathBuf,
        /// Operation that failed.
        what: &'static str,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Another process holds a lock.
    #[error("{}: another process is working on {what} and did not finish within {seconds:.1} s; `ibscope capture list` shows the runs", path.display())]
    Locked {
        /// Path of the lock.
        path: PathBuf,
        /// Name of the locked resource.
        what: String,
        /// Seconds spent waiting for the lock.
        seconds: f64,
    },
    /// A line cannot be read.
    #[error(
        "{}: line {line}: {what}; the journal is damaged or from another version of ibscope: undo the run by hand with the commands in it, then delete it",
        path.display()
    )]
    Broken {
        /// Path of the journal.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// Description of the fault.
        what: String,
    },
}

impl JournalError {
    fn file(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { path: path.to_owned(), what, source }
    }
}

/// Suffix of a journal's name until its first line is on the disk.
const UNFINISHED: &str = ".part";

/// Called after each entry that was synced to the disk.
pub type Observer = Box<dyn FnMut(&JournalEntry) + Send>;

/// The journal of a run in progress. It holds the lock on the job, so no other process works on the
/// same job.
pub struct Journal {
    path: PathBuf,
    plan: CapturePlan,
    opened_ns: i64,
    is_reopened: bool,
    inner: Mutex<Inner>,
    lock: JobLock,
}

struct Inner {
    file: File,
    chain: ChecksumChain,
    record: RunRecord,
    observer: Option<Observer>,
}

impl Journal {
    /// Creates the journal of a plan, before any step is done.
    fn create(
        folder: &Folder,
        name: &str,
        plan: CapturePlan,
        opened_ns: i64,
        lock: JobLock,
    ) -> Result<Self, JournalError> {
        let path = folder.path().join(name);
        let failed = |what| JournalError::file(&path, what);
        let entry = JournalEntry::Opened { version: VERSION, at_ns: opened_ns, plan: Box::new(plan.clone()) };
        let begun = unfinished(name);
        let (mut file, mut chain) =
            (folder.create(&begun, 0o600).map_err(failed("the journal cannot be created"))?, ChecksumChain::new());
        chain.append(&mut file, &entry).map_err(failed("the journal cannot be written"))?;
        let placed = folder.put_in_place(&file, OsStr::new(&begun), OsStr::new(name));
        placed.map_err(failed("the journal cannot be renamed"))?;
        let record = RunRecord::opened(entry)
            .map(|(record, _)| record)
            .ok_or_else(|| broken(&path, 1, "it does not begin with the plan"))?;
        Ok(Self {
            path,
            plan,
            opened_ns,
            is_reopened: false,
            inner: Mutex::new(Inner { file, chain, record, observer: None }),
            lock,
        })
    }

    /// Opens an existing journal to continue it. An incomplete last line is dropped.
    fn reopen(folder: &Folder, path: &Path, lock: JobLock) -> Result<Self, JournalError> {
        let failed = |what| JournalError::file(path, what);
        let name = path.file_name().unwrap_or_default();
        let text = folder.bytes(name).map_err(failed("the journal cannot be read"))?;
        let (record, used, chain) = read(path, &text)?;
        let file = folder.append(name).map_err(failed("the journal cannot be opened"))?;
        file.set_len(used as u64).map_err(failed("the journal's incomplete last line cannot be removed"))?;
        let (plan, opened_ns) = (record.plan.clone(), record.opened_ns);
        Ok(Self {
            path: path.to_owned(),
            plan,
            opened_ns,
            is_reopened: true,
            inner: Mutex::new(Inner { file, chain, record, observer: None }),
            lock,
        })
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The plan.
    pub fn plan(&self) -> &CapturePlan {
        &self.plan
    }

    /// Time at which the journal was opened, in nanoseconds since the epoch.
    pub fn opened_ns(&self) -> i64 {
        self.opened_ns
    }

    /// True if another process began the run. That process may have been killed in the middle of a
    /// step.
    pub(crate) fn is_reopened(&self) -> bool {
        self.is_reopened
    }

    /// Ends the work on the journal and returns the lock on the job.
    pub(crate) fn into_lock(self) -> JobLock {
        self.lock
    }

    /// Current state of the run.
    pub fn record(&self) -> RunRecord {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).record.clone()
    }

    /// Calls `observer` after each further entry.
    pub fn observe(&self, observer: Observer) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).observer = Some(observer);
    }

    /// Writes an entry. The entry is on the disk when this returns.
    pub fn write(&self, entry: &JournalEntry) -> Result<(), JournalError> {
        let inner = &mut *self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner
            .chain
            .append(&mut inner.file, entry)
            .map_err(JournalError::file(&self.path, "the journal cannot be written"))?;
        inner.record.apply(entry);
        if let Some(observer) = &mut inner.observer {
            observer(entry);
        }
        Ok(())
    }
}

fn broken(path: &Path, line: usize, what: impl Into<String>) -> JournalError {
    JournalError::Broken { path: path.to_owned(), line, what: what.into() }
}

/// Name of a journal until its first line is on the disk.
fn unfinished(name: &str) -> String {
    format!("{name}{UNFINISHED}")
}

/// The state of a run, the number of bytes in complete lines, and the checksum chain for the next
/// line.
fn read(path: &Path, text: &[u8]) -> Result<(RunRecord, usize, ChecksumChain), JournalError> {
    let mut record: Option<RunRecord> = None;
    let mut used = 0;
    let mut chain = ChecksumChain::of(text.split(|byte| *byte == b'\n').next().unwrap_or_default());
    for (number, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let Some(line) = line.strip_suffix(b"\n") else {
            if line.contains(&0) {
                return Err(broken(path, number + 1, "it contains zeros instead of an entry"));
            }
            // A line without its end is incomplete, even if it parses.
            break;
        };
        let json = chain.entry(line).ok_or_else(|| {
            broken(
                path,
                number + 1,
                "its checksum is wrong: it was changed after it was written, or lines before it are missing",
            )
        })?;
        let entry: JournalEntry =
            serde_json::from_slice(json).map_err(|error| broken(path, number + 1, error.to_string()))?;
        match &mut record {
            None => match RunRecord::opened(entry) {
                Some((opened, VERSION)) => record = Some(opened),
                Some((_, version)) => {
                    return Err(broken(path, 1, format!("version {version}; this program reads version {VERSION}")));
                }
                None => return Err(broken(path, 1, "it does not begin with the plan")),
            },
            Some(record) => {
                if !record.apply(&entry) {
                    return Err(broken(path, number + 1, "it does not match the plan"));
                }
            }
        }
        used += line.len() + 1;
    }
    record.map(|record| (record, used, chain)).ok_or_else(|| broken(path, 1, "its first line is missing"))
}

#[cfg(test)]
mod tests;
