//! Scratch files: a file is written under a scratch name, and gets its own name once its content is on
//! the disk. A writer holds a lock on its scratch file, so those of killed writers can be removed.

use crate::folder::{Folder, OwnerIds, set_owner};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write as _};

/// Part of the names of scratch files, before the number of the process.
const SCRATCH: &str = ".part-";
/// Maximum number of attempts to write a file whose scratch file disappears.
const MAX_ATTEMPTS: usize = 3;

impl Folder {
    /// Replaces a file atomically: readers see the old content or the new one. The file is given to
    /// `owner`.
    pub fn replace(&self, name: &OsStr, bytes: &[u8], mode: u32, owner: Option<OwnerIds>) -> io::Result<()> {
        let write = |file: &mut File| file.write_all(bytes).and_then(|()| set_owner(file, owner));
        self.place(name, mode, write).map(drop)
    }

    /// Writes a file under another name, and renames it once its content is on the disk. Returns the
    /// file. `write` may be called again with an empty file.
    pub(crate) fn place(
        &self,
        name: &OsStr,
        mode: u32,
        mut write: impl FnMut(&mut File) -> io::Result<()>,
    ) -> io::Result<File> {
        let mut scratch = scratch_prefix(name);
        scratch.push(std::process::id().to_string());
        self.remove_abandoned(Some(name));
        let mut attempts = 0;
        loop {
            attempts += 1;
            // A process with the same number may have been killed at this point.
            self.remove(&scratch)?;
            let written: io::Result<File> = (|| {
                let mut file = self.create(&scratch, mode)?;
                // The lock shows that the writer lives. The file is complete without it, too.
                let is_locked = file.try_lock().is_ok();
                write(&mut file)?;
                self.put_in_place(&file, &scratch, name)?;
                if is_locked {
                    file.unlock()?;
                }
                Ok(file)
            })();
            match written {
                // Another process took the file for an abandoned one before it was locked.
                Err(error) if error.kind() == io::ErrorKind::NotFound && attempts < MAX_ATTEMPTS => {}
                Err(error) => {
                    // The error already names the cause; there may be no scratch file.
                    let _ = self.remove(&scratch);
                    return Err(error);
                }
                written => return written,
            }
        }
    }

    /// Removes scratch files that no living process writes; of one file, or of all. Those that cannot
    /// be removed only take space.
    pub(crate) fn remove_abandoned(&self, of: Option<&OsStr>) {
        for name in self.scratch_names(of).unwrap_or_default() {
            if self.read(&name).is_ok_and(|file| file.try_lock().is_ok()) {
                let _ = self.remove(&name);
            }
        }
    }

    /// Removes what processes that were killed while they replaced a file left of it. No process may
    /// be replacing it now.
    pub(crate) fn remove_scratch(&self, name: &OsStr) -> io::Result<()> {
        self.scratch_names(Some(name))?.iter().try_for_each(|found| self.remove(found))
    }

    /// Names of the scratch files in the folder; of one file, or of all.
    fn scratch_names(&self, of: Option<&OsStr>) -> io::Result<Vec<OsString>> {
        let prefix = of.map(scratch_prefix).unwrap_or_default();
        let mut names = self.names()?;
        names.retain(|name| is_scratch(name) && name.as_encoded_bytes().starts_with(prefix.as_encoded_bytes()));
        Ok(names)
    }
}

/// Start of the names under which processes write the new content of a file; the process number
/// follows.
fn scratch_prefix(name: &OsStr) -> OsString {
    let mut prefix = OsString::from(".");
    prefix.push(name);
    prefix.push(SCRATCH);
    prefix
}

/// True for a name that [`scratch_prefix`] begins.
pub(crate) fn is_scratch(name: &OsStr) -> bool {
    let text = name.to_string_lossy();
    let number = text.strip_prefix('.').and_then(|text| text.rsplit_once(SCRATCH)).map(|(_, number)| number);
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names in a folder, sorted.
    fn names(folder: &Folder) -> Vec<OsString> {
        let mut names = folder.names().unwrap();
        names.sort();
        names
    }

    #[test]
    fn scratch_files_of_killed_writers_are_removed() {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder::open(home.path()).unwrap();
        for name in [".a.part-1", ".a.part-2", ".b.part-3", ".a.part-x", "a.part-1", ".a.part-"] {
            folder.create(name, 0o600).unwrap();
        }
        // The writer of this one lives.
        let alive = folder.read(".a.part-2").unwrap();
        alive.lock().unwrap();
        folder.replace(OsStr::new("a"), b"new", 0o600, None).unwrap();
        assert_eq!(folder.bytes("a").unwrap(), b"new");
        assert_eq!(names(&folder), [".a.part-", ".a.part-2", ".a.part-x", ".b.part-3", "a", "a.part-1"]);
        folder.remove_abandoned(None);
        assert_eq!(names(&folder), [".a.part-", ".a.part-2", ".a.part-x", "a", "a.part-1"]);
        drop(alive);
        folder.remove_abandoned(None);
        assert_eq!(names(&folder), [".a.part-", ".a.part-x", "a", "a.part-1"]);
    }

    #[test]
    fn a_scratch_file_that_disappears_is_written_again() {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder::open(home.path()).unwrap();
        let mut calls = 0;
        let file = folder.place(OsStr::new("a"), 0o600, |file| {
            calls += 1;
            if calls == 1 {
                for name in folder.names()? {
                    folder.remove(name)?;
                }
            }
            file.write_all(b"whole")
        });
        // The lock belongs to the scratch file only.
        file.unwrap();
        folder.read("a").unwrap().try_lock().unwrap();
        assert_eq!((calls, folder.bytes("a").unwrap(), names(&folder)), (2, b"whole".to_vec(), vec!["a".into()]));
        let failed = folder.place(OsStr::new("b"), 0o600, |_| Err(io::ErrorKind::StorageFull.into()));
        assert_eq!(failed.err().map(|error| error.kind()), Some(io::ErrorKind::StorageFull));
        assert_eq!(names(&folder), ["a"]);
    }
}
