//! The journal of a run: every change is recorded before it is made, so that it can be undone even
//! after a crash.
//!
//! Each run has one file in the state folder, with a JSON object and a checksum per line (`line`).
//! Each line is synced to the disk before the change that it announces, and a later line records
//! the result. A process that is killed at any point leaves a journal that contains at least every
//! change that was made. An incomplete last line announces a change that was not begun, so it is
//! dropped. A journal gets its name when its first line is on the disk: without a first line it
//! cannot be undone.
//!
//! If a later line cannot be read, the lines before it still count, and every step that they do not
//! report as done or undone may have been begun ([`JournalEntry::Damaged`]).

mod entry;
mod line;
mod state;

pub(crate) use entry::now_ns;
pub use entry::{
    CaptureEnd, ClockExchanges, FetchedFile, JournalEntry, LidChange, RunOrigin, RunPhase, RunRecord, StepProgress,
    VERSION,
};
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
        "{}: line {line}: {what}; the journal has no readable plan: undo the run by hand with the commands in it, then delete it",
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

/// Suffix of the copy of a damaged journal.
const DAMAGED: &str = ".damaged";

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
    file: JournalFile,
    chain: ChecksumChain,
    record: RunRecord,
    observer: Option<Observer>,
}

/// The file of a journal.
enum JournalFile {
    /// An open file, and the bytes of its complete lines.
    Open(File, u64),
    /// A file that cannot be written, because its folder is read-only. A run is undone without it.
    ReadOnly(io::ErrorKind),
}

impl JournalFile {
    fn append(&mut self, chain: &mut ChecksumChain, entry: &JournalEntry) -> io::Result<()> {
        let (file, length) = match self {
            Self::Open(file, length) => (file, length),
            Self::ReadOnly(kind) => return Err(io::Error::from(*kind)),
        };
        // Part of a line may be left by a write that failed, for example on a full disk.
        if file.metadata()?.len() != *length {
            file.set_len(*length)?;
        }
        chain.append(file, entry)?;
        *length = file.metadata()?.len();
        Ok(())
    }
}

impl Journal {
    /// Creates the journal of a plan, before any step is done.
    fn create(
        folder: &Folder,
        name: &str,
        plan: CapturePlan,
        origin: Option<RunOrigin>,
        opened_ns: i64,
        lock: JobLock,
    ) -> Result<Self, JournalError> {
        let path = folder.path().join(name);
        let failed = |what| JournalError::file(&path, what);
        let entry = JournalEntry::Opened {
            version: VERSION,
            at_ns: opened_ns,
            plan: Box::new(plan.clone()),
            origin: origin.map(Box::new),
        };
        let mut chain = ChecksumChain::new();
        // The journal gets its name once its first line is on the disk.
        let placed = folder.place(OsStr::new(name), 0o600, |file| {
            chain = ChecksumChain::new();
            chain.append(file, &entry)
        });
        let file = placed.map_err(failed("the journal cannot be written"))?;
        let length = file.metadata().map_err(failed("the journal cannot be read"))?.len();
        let file = JournalFile::Open(file, length);
        let record = RunRecord::opened(entry).ok_or_else(|| broken(&path, 1, "it does not begin with the plan"))?;
        Ok(Self {
            path,
            plan,
            opened_ns,
            is_reopened: false,
            inner: Mutex::new(Inner { file, chain, record, observer: None }),
            lock,
        })
    }

    /// Opens an existing journal to continue it. An incomplete last line is dropped, and so are
    /// lines that cannot be read, after a copy of the file was made. In a read-only folder the
    /// journal is not written.
    fn reopen(folder: &Folder, path: &Path, lock: JobLock) -> Result<Self, JournalError> {
        let failed = |what| JournalError::file(path, what);
        let name = path.file_name().unwrap_or_default();
        let text = folder.bytes(name).map_err(failed("the journal cannot be read"))?;
        let (record, used, mut chain) = read(path, &text)?;
        let damage = record.damage.clone().filter(|_| used < text.len());
        let opened = (|| {
            if damage.is_some() {
                let mut copy = name.to_owned();
                copy.push(DAMAGED);
                folder.replace(&copy, &text, 0o600, None)?;
            }
            let file = folder.append(name)?;
            file.set_len(used as u64)?;
            let mut file = JournalFile::Open(file, used as u64);
            if let Some(what) = damage {
                file.append(&mut chain, &JournalEntry::Damaged { at_ns: now_ns(), what })?;
            }
            Ok(file)
        })();
        let file = match opened {
            Ok(file) => file,
            Err(error) if is_unwritable(&error) => JournalFile::ReadOnly(error.kind()),
            Err(error) => return Err(failed("the journal cannot be opened")(error)),
        };
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

    /// Writes an entry. The entry is on the disk when this returns. Results of undoing count in
    /// [`Journal::record`] even if they cannot be written.
    pub fn write(&self, entry: &JournalEntry) -> Result<(), JournalError> {
        let inner = &mut *self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let written = inner.file.append(&mut inner.chain, entry);
        let is_undo = matches!(
            entry,
            JournalEntry::Undoing { .. }
                | JournalEntry::Unmirrored { .. }
                | JournalEntry::LidsAtEnd { .. }
                | JournalEntry::Undone { .. }
                | JournalEntry::Clock { .. }
                | JournalEntry::Fetched { .. }
        );
        if written.is_ok() || is_undo {
            inner.record.apply(entry);
        }
        written.map_err(JournalError::file(&self.path, "the journal cannot be written"))?;
        if let Some(observer) = &mut inner.observer {
            observer(entry);
        }
        Ok(())
    }
}

fn broken(path: &Path, line: usize, what: impl Into<String>) -> JournalError {
    JournalError::Broken { path: path.to_owned(), line, what: what.into() }
}

/// True if a folder is read-only, full, or not writable for the current user. Errors of checks on
/// who owns a file have no number of the operating system.
fn is_unwritable(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    error.raw_os_error().is_some()
        && matches!(error.kind(), ReadOnlyFilesystem | PermissionDenied | StorageFull | QuotaExceeded)
}

/// The state of a run, the number of bytes in the lines that count, and the checksum chain for the
/// next line. Without a plan in the first line it is an error; a fault in a later line is the
/// damage of the record.
fn read(path: &Path, text: &[u8]) -> Result<(RunRecord, usize, ChecksumChain), JournalError> {
    let mut lines = text.split_inclusive(|byte| *byte == b'\n');
    let first = lines.next().and_then(|line| line.strip_suffix(b"\n"));
    let first = first.ok_or_else(|| broken(path, 1, "it is missing or truncated"))?;
    let mut chain = ChecksumChain::of(first);
    let entry = entry(first, &mut chain).map_err(|what| broken(path, 1, what))?;
    let mut record = RunRecord::opened(entry).ok_or_else(|| broken(path, 1, "it does not begin with the plan"))?;
    let mut used = first.len() + 1;
    for (number, line) in lines.enumerate() {
        let mut next = chain.clone();
        let fault = match line.strip_suffix(b"\n") {
            // A line without its end is incomplete, even if it parses: what it announces was not
            // begun.
            None if !line.contains(&0) => break,
            None => Some("it contains zeros instead of an entry".to_owned()),
            Some(json) => entry_after(json, &mut next, &mut record).err(),
        };
        if let Some(what) = fault {
            let changed_ns = record.changed_ns;
            record.damaged(changed_ns, &format!("{}: line {}: {what}", path.display(), number + 2));
            break;
        }
        chain = next;
        used += line.len();
    }
    Ok((record, used, chain))
}

/// The entry of a line without its line end.
fn entry(line: &[u8], chain: &mut ChecksumChain) -> Result<JournalEntry, String> {
    let json = chain
        .entry(line)
        .ok_or("its checksum is wrong: it was changed after it was written, or lines before it are missing")?;
    serde_json::from_slice(json).map_err(|error| error.to_string())
}

/// Applies the entry of a line after the first one.
fn entry_after(line: &[u8], chain: &mut ChecksumChain, record: &mut RunRecord) -> Result<(), String> {
    let entry = entry(line, chain)?;
    if record.apply(&entry) { Ok(()) } else { Err("it does not match the plan".to_owned()) }
}

#[cfg(test)]
mod tests;
