//! Scratch files and folders: a result is written to a scratch path in the folder of its target,
//! and renamed to the target when it is complete.
//!
//! In: the target path that the user named. Out: a complete result at that path, or nothing.
//!
//! Invariant: a command that ends by an error, a panic, SIGINT, SIGTERM or SIGHUP removes its
//! scratch files. Only SIGKILL and a crash leave `NAME.part-XXXXXX` behind. Every result that needs
//! a scratch file therefore gets it here, and [`Scratch::commit`] does every rename into place.

mod path_resolution;
pub mod signals;

pub use path_resolution::{is_read_from, read_within, resolve};

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Only the owner may read a scratch folder.
const FOR_OWNER: u32 = 0o700;

/// The scratch files and folders of this process.
///
/// The lock is held while a scratch path is made, renamed or removed. A signal therefore finds each
/// path either in this set or committed or removed.
static ALL: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn lock_scratch_paths() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A scratch file or folder, removed on drop.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes a scratch file in the folder of `place` and opens it. `mode` holds its permission
    /// bits, which the umask may reduce.
    pub fn file(place: &Path, mode: u32) -> io::Result<(Self, File)> {
        Self::make(place, mode, |builder, folder| {
            let (file, path) = builder.tempfile_in(folder)?.keep().map_err(|error| error.error)?;
            Ok((path, file))
        })
    }

    /// Makes a scratch folder in the folder of `place`.
    pub fn folder(place: &Path) -> io::Result<Self> {
        let made = Self::make(place, FOR_OWNER, |builder, folder| Ok((builder.tempdir_in(folder)?.keep(), ())));
        made.map(|(scratch, ())| scratch)
    }

    fn make<T>(
        place: &Path,
        mode: u32,
        make: impl FnOnce(&tempfile::Builder<'_, '_>, &Path) -> io::Result<(PathBuf, T)>,
    ) -> io::Result<(Self, T)> {
        signals::start()?;
        let folder = folder_of(place);
        let prefix = beside(place, "part");
        let mut builder = tempfile::Builder::new();
        builder.prefix(&prefix).permissions(Permissions::from_mode(mode));
        let mut all = lock_scratch_paths();
        let (path, made) = make(&builder, folder).map_err(|error| scratch_error(&error, folder))?;
        all.insert(path.clone());
        Ok((Self { path }, made))
    }

    /// Path of the scratch file or folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path in the folder of `place` with the random suffix of this scratch, so it is as unlikely
    /// to exist.
    #[must_use]
    pub fn sibling(&self, place: &Path, what: &str) -> PathBuf {
        let name = self.path.to_string_lossy();
        let (_, suffix) = name.rsplit_once('-').unwrap_or_default();
        let mut name = beside(place, what);
        name.push(suffix);
        place.with_file_name(name)
    }

    /// Calls `put`, which renames the scratch path into place. A signal waits until `put` returns.
    pub fn commit<T>(self, put: impl FnOnce(&Path) -> T) -> T {
        let all = lock_scratch_paths();
        let result = put(&self.path);
        drop(all);
        result
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // After a signal the thread blocks here until the process ends, so that the command does
        // not report an error about scratch files that are gone.
        let mut all = lock_scratch_paths();
        remove(&self.path);
        all.remove(&self.path);
    }
}

/// An error of the crate `tempfile` without the name of the scratch file, which the user does not know.
fn scratch_error(error: &io::Error, folder: &Path) -> io::Error {
    if error.kind() == io::ErrorKind::NotFound {
        return io::Error::new(error.kind(), format!("the folder {} does not exist", folder.display()));
    }
    let system =
        error.get_ref().and_then(std::error::Error::source).and_then(|source| source.downcast_ref::<io::Error>());
    let code = system.unwrap_or(error).raw_os_error();
    code.map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}

/// `NAME.WHAT-`: the start of a scratch name for `NAME`.
fn beside(place: &Path, what: &str) -> OsString {
    let mut name = place.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{what}-"));
    name
}

/// The folder that contains `place`.
#[must_use]
pub fn folder_of(place: &Path) -> &Path {
    place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Removes a scratch file or folder that still exists. A failure must not hide the error that led
/// here.
fn remove(path: &Path) {
    /// The command may still be writing into its folder when a signal removes it.
    const TRIES: usize = 100;
    for _ in 0..TRIES {
        let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        let is_filled = removed.is_err_and(|error| error.kind() == io::ErrorKind::DirectoryNotEmpty);
        if !is_filled {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn scratch_that_is_not_committed_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("job.ibp");
        let scratch = Scratch::folder(&place).unwrap();
        fs::write(scratch.path().join("table"), "rows").unwrap();
        assert!(names(folder.path())[0].starts_with("job.ibp.part-"));
        assert_eq!(fs::metadata(scratch.path()).unwrap().permissions().mode() & 0o777, FOR_OWNER);
        let old = scratch.sibling(&place, "old").file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(old.replace(".old-", ".part-"), names(folder.path())[0]);
        drop(scratch);
        let (file, _) = Scratch::file(&place, 0o600).unwrap();
        drop(file);
        assert_eq!(names(folder.path()), [""; 0]);
        assert!(lock_scratch_paths().iter().all(|path| !path.starts_with(folder.path())));
    }

    #[test]
    fn scratch_that_is_committed_stays() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("report.html");
        let (scratch, _) = Scratch::file(&place, 0o666).unwrap();
        scratch.commit(|path| fs::rename(path, &place)).unwrap();
        assert_eq!(names(folder.path()), ["report.html"]);
    }
}
