//! Which files were read: a file that grows, is renamed, or is written again is identified by its
//! inode number and its first bytes.
//!
//! A program that rotates captures may compress a file when it is done: `tcpdump -z gzip` replaces
//! `NAME` by `NAME.gz`. Such a copy is identified by its name and the first bytes of its content.
//!
//! In: files and the bytes that were read of them. Out: whether a file is one of those. Invariant: a
//! file that contains another capture than the one that was read counts as unread.

use super::source::{InputSource, SourceOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
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

/// Files that were read or rejected.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadFiles {
    /// By device and inode number: the name then, and the identity.
    pub(super) by_place: BTreeMap<(u64, u64), (PathBuf, FileIdentity)>,
    /// By name without the suffix of a compression: the name of the last such file, and the first bytes
    /// of its content.
    contents: BTreeMap<PathBuf, (PathBuf, Vec<u8>)>,
}

impl ReadFiles {
    /// True if the file was read, under this name or another one: a program that rotates captures may
    /// rename or compress them.
    pub(super) fn contain(&self, path: &Path, identity: &FileIdentity) -> bool {
        self.contain_place(path, identity) || self.contain_copy(path)
    }

    fn contain_place(&self, path: &Path, identity: &FileIdentity) -> bool {
        let known = self.by_place.get(&identity.place);
        known.is_some_and(|(known_path, known)| is_same((known_path, known), (path, identity)))
    }

    fn contain_copy(&self, path: &Path) -> bool {
        self.contents.get(&plain_name(path)).is_some_and(|(read, head)| is_copy((read, head), path))
    }

    /// Forgets files that exist neither under their names nor in the watched folder. Compressed copies
    /// are remembered on their own, because a later file may get the name of the first one.
    pub(super) fn forget_deleted(&mut self, watched: &Path) {
        let entries = fs::read_dir(watched).into_iter().flatten().flatten();
        let files: Vec<(PathBuf, Metadata)> =
            entries.filter_map(|entry| Some((entry.path(), fs::metadata(entry.path()).ok()?))).collect();
        for (path, _) in files.iter().filter(|(_, found)| found.is_file()) {
            if let Ok(identity) = FileIdentity::of(path)
                && !self.contain_place(path, &identity)
                && self.contain_copy(path)
            {
                self.by_place.insert(identity.place, (path.clone(), identity));
            }
        }
        let in_folder: BTreeSet<(u64, u64)> = files.iter().map(|(_, found)| place_of(found)).collect();
        self.by_place.retain(|place, (path, _)| {
            in_folder.contains(place) || fs::metadata(path).is_ok_and(|found| place_of(&found) == *place)
        });
        let names: BTreeSet<&PathBuf> = files.iter().map(|(path, _)| path).collect();
        self.contents.retain(|_, (read, _)| names.contains(read));
    }
}

/// File header and first record header of a classic file, the shortest capture with a packet. Nothing was
/// counted from a shorter file.
const LEAST_CAPTURE_BYTES: usize = 40;

/// Suffixes of compressed files.
const COMPRESSED: [&str; 5] = ["gz", "zst", "xz", "bz2", "lz4"];

fn is_compressed_name(path: &Path) -> bool {
    path.extension().is_some_and(|suffix| COMPRESSED.iter().any(|own| suffix == *own))
}

/// The name without the suffix of a compression.
fn plain_name(path: &Path) -> PathBuf {
    if is_compressed_name(path) { path.with_extension("") } else { path.to_owned() }
}

/// True if `path` is another form, compressed or not, of a file that was read; `head` are the first bytes
/// of its content. A copy that is not written yet, or that cannot be decompressed, counts as one.
pub(super) fn is_copy((read, head): (&Path, &[u8]), path: &Path) -> bool {
    if read == path || head.len() < LEAST_CAPTURE_BYTES || plain_name(read) != plain_name(path) {
        return false;
    }
    let own = content_head(path);
    head.starts_with(&own) || own.starts_with(head)
}

/// The first bytes of the content of a file, at most [`HEAD_BYTES`]; less if the file is being written, and
/// nothing if it cannot be decompressed.
fn content_head(path: &Path) -> Vec<u8> {
    let mut head = Vec::new();
    let Ok(file) = File::open(path) else { return head };
    let Ok(source) = InputSource::new(Box::new(file), &SourceOptions::default()) else { return head };
    if source.compression == "plain" && is_compressed_name(path) {
        return head;
    }
    // The bytes before an error are part of the content.
    let _ = source.take(HEAD_BYTES as u64).read_to_end(&mut head);
    head
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
            read_files.by_place.remove(&progress.identity.place);
        } else {
            let head = if is_compressed_name(&path) { content_head(&path) } else { progress.identity.head.clone() };
            read_files.contents.insert(plain_name(&path), (path.clone(), head));
            read_files.by_place.insert(progress.identity.place, (path, progress.identity.clone()));
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
