//! Scratch files and folders: a result is written beside its place and renamed into it when it is whole.
//!
//! In: the place that the user named. Out: a whole result in that place, or nothing. Invariant: whatever ends the command - an error, a panic, SIGINT,
//! SIGTERM or SIGHUP - removes its scratch files; only SIGKILL and a crash leave `NAME.part-XXXXXX` behind. So every result that needs a scratch
//! file gets it here, and every rename into place happens in [`Scratch::commit`].

mod place;
pub mod signals;

pub use place::{is_read_from, read_within, resolve};

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Only the owner may look into a scratch folder.
const FOR_OWNER: u32 = 0o700;

/// The scratch files and folders of this process.
///
/// The lock is held while one is made, renamed or removed, so that a signal finds each of them either here or done with.
static ALL: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn all() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A scratch file or folder. It is removed when this is dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes a scratch file beside `place` and opens it. `mode` says who may read it, as far as the umask lets them.
    pub fn file(place: &Path, mode: u32) -> io::Result<(Self, File)> {
        Self::make(place, mode, |builder, folder| {
            let (file, path) = builder.tempfile_in(folder)?.keep().map_err(|error| error.error)?;
            Ok((path, file))
        })
    }

    /// Makes a scratch folder beside `place`.
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
        let mut all = all();
        let (path, made) = make(&builder, folder)?;
        all.insert(path.clone());
        Ok((Self { path }, made))
    }

    /// The scratch file or folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A name beside `place` that ends as the name of this scratch does, and is as free.
    #[must_use]
    pub fn sibling(&self, place: &Path, what: &str) -> PathBuf {
        let name = self.path.to_string_lossy();
        let (_, suffix) = name.rsplit_once('-').unwrap_or_default();
        let mut name = beside(place, what);
        name.push(suffix);
        place.with_file_name(name)
    }

    /// Lets `put` rename what was written. A signal that comes meanwhile waits for the end of it.
    pub fn commit<T>(self, put: impl FnOnce(&Path) -> T) -> T {
        let all = all();
        let result = put(&self.path);
        drop(all);
        result
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // After a signal this waits for the end of the process: the command is not to report that its scratch files are gone.
        let mut all = all();
        remove(&self.path);
        all.remove(&self.path);
    }
}

/// `NAME.WHAT-`, the beginning of a name beside `NAME`.
fn beside(place: &Path, what: &str) -> OsString {
    let mut name = place.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{what}-"));
    name
}

/// The folder that a place is in.
#[must_use]
pub fn folder_of(place: &Path) -> &Path {
    place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Removes a scratch file or folder, if it is still there. A failure must not hide the error that led here.
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
        assert!(all().iter().all(|path| !path.starts_with(folder.path())));
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
