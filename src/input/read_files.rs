//! Which files were read: a file that grows, is renamed, or is written again is identified by its
//! inode number and its first bytes.
//!
//! In: files and the bytes that were read of them. Out: whether a file is one of those. Invariant: a
//! file that contains another capture than the one that was read counts as unread.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// First bytes that distinguish a file from another one with the same name: file header, or the
/// first blocks of pcapng with their options, and time of the first record.
const HEAD_BYTES: usize = 1024;

/// Distinguishes a file from a later one with the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileIdentity {
    /// Device and inode number.
    pub(super) place: (u64, u64),
    /// The first bytes, at most [`HEAD_BYTES`].
    pub(super) head: Vec<u8>,
    length_bytes: u64,
}

impl FileIdentity {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let found = file.metadata()?;
        Ok(Self { place: place_of(&found), head: head_of(&file, HEAD_BYTES)?, length_bytes: found.len() })
    }

    /// True if the other file may be this one, grown.
    pub(super) fn may_become(&self, other: &Self) -> bool {
        // Some file systems (FUSE, /proc) show the length 0 for files with content.
        let is_shorter = (1..self.length_bytes).contains(&other.length_bytes);
        self.place == other.place && other.head.starts_with(&self.head) && !is_shorter
    }
}

/// Files that were read or rejected, with their names then, by device and inode number.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadFiles(pub(super) BTreeMap<(u64, u64), (PathBuf, FileIdentity)>);

impl ReadFiles {
    /// True if the file was read, under this name or another one: a program that rotates captures may
    /// rename them.
    pub(super) fn contain(&self, path: &Path, identity: &FileIdentity) -> bool {
        self.0.get(&identity.place).is_some_and(|(known_path, known)| is_same((known_path, known), (path, identity)))
    }

    /// Forgets files that exist neither under their names nor in the watched folder.
    pub(super) fn forget_deleted(&mut self, watched: &Path) {
        let entries = fs::read_dir(watched).into_iter().flatten().flatten();
        let in_folder: BTreeSet<(u64, u64)> =
            entries.filter_map(|entry| fs::metadata(entry.path()).ok()).map(|found| place_of(&found)).collect();
        self.0.retain(|place, (path, _)| {
            in_folder.contains(place) || fs::metadata(path).is_ok_and(|found| place_of(&found) == *place)
        });
    }
}

/// True if a file that was read is this one. Nothing distinguishes an empty file from a new one with the
/// same inode number, but its name.
pub(super) fn is_same((known_path, known): (&Path, &FileIdentity), (path, identity): (&Path, &FileIdentity)) -> bool {
    known.may_become(identity) && (known_path == path || !known.head.is_empty())
}

pub(super) fn place_of(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// The first bytes of a file, at most `bytes`.
pub(super) fn head_of(file: &File, bytes: usize) -> io::Result<Vec<u8>> {
    let mut head = vec![0; bytes];
    let mut filled = 0;
    while filled < bytes {
        match file.read_at(&mut head[filled..], filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    head.truncate(filled);
    Ok(head)
}

/// The bytes of a file that were read so far.
#[derive(Debug)]
pub(super) struct ReadProgress {
    /// The identity of a file with only these bytes.
    pub(super) identity: FileIdentity,
    /// The same file contains another capture now, none of which was read.
    pub(super) is_overwritten: bool,
}

/// The progress of a file, shared by its reader and the follower.
#[derive(Clone, Debug)]
pub(super) struct SharedProgress(Arc<Mutex<ReadProgress>>);

impl SharedProgress {
    /// Nothing was read yet.
    pub(super) fn new(found: &FileIdentity) -> Self {
        let identity = FileIdentity { place: found.place, head: Vec::new(), length_bytes: 0 };
        Self(Arc::new(Mutex::new(ReadProgress { identity, is_overwritten: false })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, ReadProgress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the end of a file among those that were read. An overwritten file counts as unread,
    /// because the new capture may start with the same bytes.
    pub(super) fn file_into(&self, read_files: &mut ReadFiles, path: PathBuf) {
        let progress = self.lock();
        if progress.is_overwritten {
            read_files.0.remove(&progress.identity.place);
        } else {
            read_files.0.insert(progress.identity.place, (path, progress.identity.clone()));
        }
    }
}

impl ReadProgress {
    /// Adds the next bytes of the file.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        let missing = HEAD_BYTES - self.identity.head.len();
        self.identity.head.extend_from_slice(&bytes[..missing.min(bytes.len())]);
        self.identity.length_bytes += bytes.len() as u64;
    }

    /// Checks if another capture was written into the file.
    pub(super) fn check(&mut self, now: io::Result<FileIdentity>) {
        let is_other = |now: FileIdentity| now.place == self.identity.place && !self.identity.may_become(&now);
        self.is_overwritten = self.is_overwritten || now.is_ok_and(is_other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_shorter_than_before_is_another_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sink.pcapng");
        let bytes = [7; 3 * HEAD_BYTES];
        fs::write(&path, bytes).unwrap();
        let first = FileIdentity::of(&path).unwrap();
        assert!(first.may_become(&FileIdentity::of(&path).unwrap()));
        fs::write(&path, &bytes[..2 * HEAD_BYTES]).unwrap();
        assert!(!first.may_become(&FileIdentity::of(&path).unwrap()), "the first bytes are the same");
    }
}
