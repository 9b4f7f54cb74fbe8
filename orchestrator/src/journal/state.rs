//! The state folder: the journals of all runs, and the locks between concurrent hooks.

use super::{Journal, JournalError, RunOrigin, RunPhase, RunRecord, is_unwritable, now_ns, read};
use crate::folder::Folder;
use crate::plan::CapturePlan;
use crate::step::PlanStep;
use std::ffi::{OsStr, OsString};
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Number of closed journals that are kept for inspection.
const MAX_CLOSED_JOURNALS: usize = 200;

/// A state folder. Only root and the current user can write in it, because the commands of a
/// journal are run as root.
#[derive(Clone, Debug)]
pub struct State {
    folder: Arc<Folder>,
    /// `None` if the folder is missing in a read-only state folder.
    closed: Option<Arc<Folder>>,
}

/// A lock on a job: no other process starts or undoes its run. The operating system releases the
/// lock of a process that dies.
pub struct JobLock {
    folder: Arc<Folder>,
    /// Name of the lock file; `None` if the whole folder is locked.
    name: Option<String>,
    _file: File,
}

impl Drop for JobLock {
    fn drop(&mut self) {
        // Remove the file while it is locked. A process that waits for the lock notices that the
        // file is gone, and creates a new one.
        if let Some(name) = &self.name {
            let _ = self.folder.remove(name);
        }
    }
}

/// A lock on the transfer of the captures of a run.
pub(crate) struct TransferLock {
    folder: Arc<Folder>,
    name: Option<OsString>,
    _file: Option<File>,
}

impl Drop for TransferLock {
    fn drop(&mut self) {
        // A process that opened the file before may lock it too: then both hash the same files, and the
        // second one finds them complete.
        if let Some(name) = &self.name {
            let _ = self.folder.remove(name);
        }
    }
}

/// A lock on planning: no other process chooses sinks and analyzers. It also lists the resources
/// that other runs occupy.
pub struct PlanLock {
    /// Steps of other runs that are not undone.
    pub others: Vec<PlanStep>,
    /// Journals that cannot be read; the resources of their runs are unknown.
    pub problems: Vec<String>,
    state: State,
    _file: File,
}

/// A journal in the folder.
#[derive(Debug)]
pub struct StoredJournal {
    /// Job id, from the file name.
    pub job_id: u32,
    /// Path of the file.
    pub path: PathBuf,
    /// State of the run.
    pub record: Result<RunRecord, JournalError>,
}

impl State {
    /// Opens a state folder; creates it if it is missing.
    pub fn open(folder: &Path) -> Result<Self, JournalError> {
        let make = || {
            let state = Folder::make(folder, 0o700)?;
            let closed = match state.inside(OsStr::new("closed"), 0o700, None) {
                Ok(closed) => Some(Arc::new(closed)),
                Err(error) if is_unwritable(&error) => None,
                Err(error) => return Err(error),
            };
            Ok(Self { folder: Arc::new(state), closed })
        };
        make().map_err(JournalError::file(folder, "the state folder cannot be used"))
    }

    /// The folder itself.
    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Waits until no other process works on the job. In a read-only folder a lock file that exists
    /// is locked, or else the folder itself.
    pub fn lock_job(&self, job_id: u32, deadline: Instant) -> Result<JobLock, JournalError> {
        let name = format!("job-{job_id}.lock");
        let what = format!("job {job_id}");
        loop {
            let file = match self.folder.append_or_create(&name, 0o600) {
                Ok(file) => file,
                Err(error) if is_unwritable(&error) => {
                    let file = self.folder.read(&name).or_else(|_| self.folder.handle());
                    let path = self.folder.path().join(&name);
                    let file = file.map_err(JournalError::file(&path, "the lock cannot be opened"))?;
                    wait_for(&file, &path, &what, deadline)?;
                    return Ok(JobLock { folder: self.folder.clone(), name: None, _file: file });
                }
                Err(error) => {
                    return Err(JournalError::file(&self.folder.path().join(&name), "the lock cannot be opened")(
                        error,
                    ));
                }
            };
            wait_for(&file, &self.folder.path().join(&name), &what, deadline)?;
            let there = self.folder.read(&name).and_then(|there| there.metadata());
            // The previous holder may have removed the file that was locked here.
            if there.is_ok_and(|there| file.metadata().is_ok_and(|ours| ours.ino() == there.ino())) {
                return Ok(JobLock { folder: self.folder.clone(), name: Some(name), _file: file });
            }
        }
    }

    /// Locks the transfer of the captures of a run, which does not need the lock on its job. `None` if
    /// another process transfers them. In a read-only folder there is no such lock.
    pub(crate) fn lock_transfer(&self, journal: &Path) -> Result<Option<TransferLock>, JournalError> {
        let name = Path::new(name_of(journal)).with_extension("transfer").into_os_string();
        let path = self.folder.path().join(&name);
        let file = match self.folder.append_or_create(&name, 0o600) {
            Ok(file) => file,
            Err(error) if is_unwritable(&error) => {
                return Ok(Some(TransferLock { folder: self.folder.clone(), name: None, _file: None }));
            }
            Err(error) => return Err(JournalError::file(&path, "the lock cannot be opened")(error)),
        };
        match file.try_lock() {
            Ok(()) => Ok(Some(TransferLock { folder: self.folder.clone(), name: Some(name), _file: Some(file) })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(JournalError::file(&path, "the file cannot be locked")(source)),
        }
    }

    /// Waits until no other process plans.
    pub fn lock_plan(&self, deadline: Instant) -> Result<PlanLock, JournalError> {
        let path = self.folder.path().join("plan.lock");
        let file = self.folder.append_or_create("plan.lock", 0o600);
        let file = file.map_err(JournalError::file(&path, "the lock cannot be opened"))?;
        wait_for(&file, &path, "the choice of sinks", deadline)?;
        let (mut others, mut problems) = (Vec::new(), Vec::new());
        for kept in self.journals()? {
            match kept.record {
                Ok(record) => {
                    others.extend(record.occupying_steps().cloned());
                    problems.extend(leftover(kept.job_id, &record));
                }
                Err(error) => problems.push(error.to_string()),
            }
        }
        Ok(PlanLock { others, problems, state: self.clone(), _file: file })
    }

    /// Journals of runs that are not closed, the oldest first.
    pub fn journals(&self) -> Result<Vec<StoredJournal>, JournalError> {
        list(&self.folder)
    }

    /// Journals of closed runs, the oldest first.
    pub fn closed_journals(&self) -> Result<Vec<StoredJournal>, JournalError> {
        self.closed.as_deref().map_or_else(|| Ok(Vec::new()), list)
    }

    /// Opens a journal to continue it.
    pub(crate) fn reopen(&self, path: &Path, lock: JobLock) -> Result<Journal, JournalError> {
        Journal::reopen(&self.folder, path, lock)
    }

    /// Moves a journal to the folder of closed journals, and removes the oldest closed journals
    /// beyond the limit.
    pub(crate) fn move_to_closed(&self, path: &Path) -> Result<(), JournalError> {
        let failed = || JournalError::file(path, "the journal cannot be moved to the folder of closed journals");
        let Some(folder) = &self.closed else { return Err(failed()(io::ErrorKind::ReadOnlyFilesystem.into())) };
        self.folder.rename_into(name_of(path), folder).map_err(failed())?;
        let closed = self.closed_journals()?;
        for kept in closed.iter().take(closed.len().saturating_sub(MAX_CLOSED_JOURNALS)) {
            // Another process may remove the same file.
            let _ = folder.remove(name_of(&kept.path));
        }
        Ok(())
    }
}

impl PlanLock {
    /// The state folder.
    pub(crate) fn folder(&self) -> &Folder {
        self.state.folder()
    }

    /// Releases the lock.
    pub(crate) fn release(self) -> State {
        self.state
    }

    /// Creates the journal of a run, and releases the lock.
    pub(crate) fn create(
        self,
        plan: CapturePlan,
        origin: Option<RunOrigin>,
        lock: JobLock,
    ) -> Result<Journal, JournalError> {
        let folder = &self.state.folder;
        let opened_ns = now_ns();
        let name = format!("job-{}-{opened_ns}.journal", plan.job.id);
        Journal::create(folder, &name, plan, origin, opened_ns, lock)
    }
}

fn name_of(path: &Path) -> &OsStr {
    path.file_name().unwrap_or_default()
}

/// A run that ended, but is not undone yet, and that occupies sinks or ports.
fn leftover(job_id: u32, record: &RunRecord) -> Option<String> {
    let occupied = record.occupying_steps().count();
    (record.attempts > 0 && occupied > 0).then(|| {
        format!(
            "job {job_id} has ended but is not undone yet: its sinks and ports are not used for this job; `ibscope capture status --job {job_id}` \
             shows the reason"
        )
    })
}

/// Waits until the file is locked.
fn wait_for(file: &File, path: &Path, what: &str, deadline: Instant) -> Result<(), JournalError> {
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(source)) => {
                return Err(JournalError::file(path, "the file cannot be locked")(source));
            }
            Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                let seconds = began.elapsed().as_secs_f64();
                return Err(JournalError::Locked { path: path.to_owned(), what: what.to_owned(), seconds });
            }
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(10)),
        }
    }
}

fn list(folder: &Folder) -> Result<Vec<StoredJournal>, JournalError> {
    let failed = || JournalError::file(folder.path(), "the state folder cannot be read");
    let mut names: Vec<(i64, u32, PathBuf)> = Vec::new();
    for name in folder.names().map_err(failed())? {
        if let Some((job_id, opened_ns)) = name.to_str().and_then(parse_name) {
            names.push((opened_ns, job_id, folder.path().join(name)));
        }
    }
    names.sort();
    let kept = names.into_iter().filter_map(|(_, job_id, path)| match folder.bytes(name_of(&path)) {
        Ok(text) => Some(StoredJournal { job_id, record: read(&path, &text).map(|(record, ..)| record), path }),
        // The file was moved or removed in the meantime.
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(source) => Some(StoredJournal {
            job_id,
            record: Err(JournalError::file(&path, "the journal cannot be read")(source)),
            path,
        }),
    });
    Ok(kept.collect())
}

/// Job id and time from the name of a journal.
fn parse_name(name: &str) -> Option<(u32, i64)> {
    let (job_id, opened_ns) = name.strip_prefix("job-")?.strip_suffix(".journal")?.split_once('-')?;
    Some((job_id.parse().ok()?, opened_ns.parse().ok()?))
}

impl StoredJournal {
    /// Progress of the run; `None` if the journal cannot be read.
    pub fn phase(&self) -> Option<RunPhase> {
        match &self.record {
            Ok(record) => Some(record.phase),
            Err(_) => None,
        }
    }
}
