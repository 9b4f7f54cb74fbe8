//! The journal of a run: what was done, written down before it is done, so that it can be undone whatever happens in between.
//!
//! One file per run in the state folder, a JSON object and a sum per line (`line`). Each line is
//! synced to the disk before the change that it announces, and a later line records the result. A
//! process that is killed at any point leaves a journal with at least everything that was done. An
//! incomplete last line announces a change that was not begun, so it is dropped. A journal gets its
//! name when its first line is on the disk: without a first line it is damaged.

mod entry;
mod line;
mod state;

pub(crate) use entry::now_ns;
pub use entry::{Clock, Ended, Entry, Fetched, Phase, Progress, Record, VERSION};
pub use state::{JobLock, Kept, PlanLock, State};

use crate::folder::Folder;
use crate::plan::Plan;
use line::Chain;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A state folder or a journal that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Reading or writing failed.
    #[error("{}: {what}: {source}; check run.state_dir in the configuration, who may write there and whether the disk is full", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What was being done.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody else works on the same.
    #[error("{}: somebody else works on {what}, and has not ended in {seconds:.1} s; `ibscope capture list` shows what is going on", path.display())]
    Locked {
        /// The lock.
        path: PathBuf,
        /// What it guards.
        what: String,
        /// How long it was waited for.
        seconds: f64,
    },
    /// A line makes no sense.
    #[error(
        "{}: line {line}: {what}; the journal is damaged or of another version of ibscope: undo the run by hand by the commands in it, then delete it",
        path.display()
    )]
    Broken {
        /// The journal.
        path: PathBuf,
        /// The line, from 1 on.
        line: usize,
        /// What is wrong.
        what: String,
    },
}

impl JournalError {
    fn file(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { path: path.to_owned(), what, source }
    }
}

/// Stands behind the name of a journal whose first line is not on the disk yet.
const UNFINISHED: &str = ".part";

/// Looks on while a journal is written: called after each entry that is on the disk.
pub type Observer = Box<dyn FnMut(&Entry) + Send>;

/// The journal of a run that is worked on. As long as it is there nobody else works on the same job.
pub struct Journal {
    path: PathBuf,
    plan: Plan,
    opened_ns: i64,
    is_reopened: bool,
    inner: Mutex<Inner>,
    lock: JobLock,
}

struct Inner {
    file: File,
    chain: Chain,
    record: Record,
    observer: Option<Observer>,
}

impl Journal {
    /// A journal for a plan of which nothing is done yet.
    fn create(folder: &Folder, name: &str, plan: Plan, opened_ns: i64, lock: JobLock) -> Result<Self, JournalError> {
        let path = folder.path().join(name);
        let failed = |what| JournalError::file(&path, what);
        let entry = Entry::Opened { version: VERSION, at_ns: opened_ns, plan: Box::new(plan.clone()) };
        let begun = unfinished(name);
        let (mut file, mut chain) =
            (folder.create(&begun, 0o600).map_err(failed("the journal cannot be created"))?, Chain::new());
        chain.append(&mut file, &entry).map_err(failed("the journal cannot be written"))?;
        let name = || folder.rename(OsStr::new(&begun), OsStr::new(name)).and_then(|()| folder.sync());
        name().map_err(failed("the journal cannot be given its name"))?;
        let record = Record::opened(entry).map(|(record, _)| record).ok_or_else(|| broken(&path, 1, "no opening"))?;
        Ok(Self {
            path,
            plan,
            opened_ns,
            is_reopened: false,
            inner: Mutex::new(Inner { file, chain, record, observer: None }),
            lock,
        })
    }

    /// Goes on with a journal.
    fn reopen(folder: &Folder, path: &Path, lock: JobLock) -> Result<Self, JournalError> {
        let failed = |what| JournalError::file(path, what);
        let name = path.file_name().unwrap_or_default();
        let text = folder.bytes(name).map_err(failed("the journal cannot be read"))?;
        let (record, used, chain) = read(path, &text)?;
        let file = folder.append(name).map_err(failed("the journal cannot be opened"))?;
        file.set_len(used as u64).map_err(failed("the journal's last line cannot be dropped"))?;
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

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was to be done.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// When it was opened, in nanoseconds since the epoch.
    pub fn opened_ns(&self) -> i64 {
        self.opened_ns
    }

    /// Somebody else has begun it, and may have been killed in the middle of something.
    pub(crate) fn is_reopened(&self) -> bool {
        self.is_reopened
    }

    /// The lock on the job, once the journal is done with.
    pub(crate) fn into_lock(self) -> JobLock {
        self.lock
    }

    /// What it says now.
    pub fn record(&self) -> Record {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).record.clone()
    }

    /// Has `observer` look on from now on.
    pub fn observe(&self, observer: Observer) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).observer = Some(observer);
    }

    /// Writes an entry; it is on the disk when this returns.
    pub fn write(&self, entry: &Entry) -> Result<(), JournalError> {
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

/// What a journal is called before its first line is on the disk.
fn unfinished(name: &str) -> String {
    format!("{name}{UNFINISHED}")
}

/// What a journal says, how many of its bytes say so, and what the next line follows on.
fn read(path: &Path, text: &[u8]) -> Result<(Record, usize, Chain), JournalError> {
    let mut record: Option<Record> = None;
    let mut used = 0;
    let mut chain = Chain::of(text.split(|byte| *byte == b'\n').next().unwrap_or_default());
    for (number, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let Some(line) = line.strip_suffix(b"\n") else {
            if line.contains(&0) {
                return Err(broken(path, number + 1, "it holds zeros in place of what was written"));
            }
            // Without its end it was cut off, whatever it says.
            break;
        };
        let json = chain.entry(line).ok_or_else(|| {
            broken(
                path,
                number + 1,
                "its sum is wrong: it was changed after it was written, or lines before it are gone",
            )
        })?;
        let entry: Entry = serde_json::from_slice(json).map_err(|error| broken(path, number + 1, error.to_string()))?;
        match &mut record {
            None => match Record::opened(entry) {
                Some((opened, VERSION)) => record = Some(opened),
                Some((_, version)) => {
                    return Err(broken(path, 1, format!("version {version}, where this program knows {VERSION}")));
                }
                None => return Err(broken(path, 1, "it does not begin with the plan")),
            },
            Some(record) => {
                if !record.apply(&entry) {
                    return Err(broken(path, number + 1, "it does not fit to the plan"));
                }
            }
        }
        used += line.len() + 1;
    }
    record.map(|record| (record, used, chain)).ok_or_else(|| broken(path, 1, "its first line is gone"))
}

#[cfg(test)]
mod tests;
