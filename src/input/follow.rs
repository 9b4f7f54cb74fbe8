//! Inputs that grow while they are read: a file, the files of a folder with a rotating capture, a
//! FIFO, standard input.

use super::capture::{Capture, Ending};
use super::fifo::{EndCondition, FifoReader, PAUSE};
use super::sflow::SflowListener;
use super::source::{InputSource, SourceOptions};
use super::{InputError, is_stdin};
use crate::model::Batch;
use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// First bytes that distinguish a file from another one with the same name: file header and time of
/// the first record.
const HEAD_BYTES: usize = 64;
/// Pauses between two checks for a newer file.
const PAUSES_PER_CHECK: u32 = 10;
/// Notes on files that could not be read, or not to their end.
const MAX_NOTES: usize = 16;

/// One input that grows. The files of a folder are read one after the other, oldest first.
pub struct Follower {
    watched_path: PathBuf,
    options: SourceOptions,
    end_condition: EndCondition,
    /// Files that were read or rejected, as long as they exist.
    read_files: BTreeMap<PathBuf, FileIdentity>,
    current: Capture,
    /// The file being read; `None` for a FIFO.
    file: Option<(PathBuf, FileIdentity)>,
    /// Length of the files before the current one.
    length_bytes: u64,
    notes: Vec<String>,
}

impl Follower {
    /// Opens the input and waits for its first packet; `None` if the end condition was met before.
    pub fn open(place: &Path, options: &SourceOptions, patience: &EndCondition) -> Result<Option<Self>, InputError> {
        let failed = |source| InputError::Open { path: place.to_owned(), source };
        let kind = if is_stdin(place) { None } else { Some(fs::metadata(place).map_err(failed)?.file_type()) };
        if kind.is_none_or(|kind| kind.is_fifo() || kind.is_char_device() || kind.is_socket()) {
            let current = match live(place, Box::new(FifoReader::new(place.to_owned(), patience.clone())), options) {
                Err(_) if patience.is_over() => return Ok(None),
                opened => opened?,
            };
            return Ok(Some(Self::new(place, options, patience, (current, None))));
        }
        let mut done = BTreeMap::new();
        let mut notes = Vec::new();
        loop {
            let Some((path, identity)) = next_file(place, &done, None) else {
                if patience.is_over() {
                    return Ok(None);
                }
                if patience.until_now {
                    let why = notes.first().map(|note| format!(" ({note})")).unwrap_or_default();
                    return Err(InputError::NoCapture { path: place.to_owned(), why });
                }
                std::thread::sleep(PAUSE);
                continue;
            };
            match Tail::open(place, &path, &identity, &done, patience).and_then(|tail| live(&path, tail, options)) {
                Ok(current) => {
                    let mut follower = Self::new(place, options, patience, (current, Some((path, identity))));
                    (follower.read_files, follower.notes) = (done, notes);
                    return Ok(Some(follower));
                }
                Err(_) if patience.is_over() => return Ok(None),
                // A folder may contain other files, or an old capture without packets.
                Err(error) if place.is_dir() => note(&mut notes, &error),
                Err(error) => return Err(error),
            }
            done.insert(path, identity);
        }
    }

    /// Receives sFlow and waits for the first datagram; `None` if the end condition was met before.
    pub fn listen(
        listener: SflowListener,
        options: &SourceOptions,
        patience: &EndCondition,
    ) -> Result<Option<Self>, InputError> {
        let place = PathBuf::from(listener.name());
        let current = match live(&place, listener.into_reader(patience.clone()), options) {
            Err(_) if patience.is_over() => return Ok(None),
            opened => opened?,
        };
        Ok(Some(Self::new(&place, options, patience, (current, None))))
    }

    fn new(
        place: &Path,
        options: &SourceOptions,
        patience: &EndCondition,
        (current, file): (Capture, Option<(PathBuf, FileIdentity)>),
    ) -> Self {
        let (place, options, patience) = (place.to_owned(), options.clone(), patience.clone());
        let (done, notes) = (BTreeMap::new(), Vec::new());
        Self {
            watched_path: place,
            options,
            end_condition: patience,
            read_files: done,
            current,
            file,
            length_bytes: 0,
            notes,
        }
    }

    /// Format of the current file, in one line.
    #[must_use]
    pub fn format(&self) -> &str {
        self.current.format()
    }

    /// The next whole records; `None` at the end.
    pub(super) fn next_batch(&mut self, used_buffer: Vec<u8>) -> Option<Batch> {
        let mut used_buffer = used_buffer;
        loop {
            if let Some(batch) = self.current.next_batch(std::mem::take(&mut used_buffer)) {
                return Some(batch);
            }
            // A file ends when its successor has started.
            let (path, identity) = self.file.take()?;
            if self.end_condition.is_over() {
                return None;
            }
            let Ending { digests, note: why, .. } = self.current.ending();
            self.length_bytes += digests.length_bytes;
            self.notes.extend(why.map(|why| format!("{}: {why}", path.display())));
            self.notes.truncate(MAX_NOTES);
            self.read_files.retain(|path, _| path.exists());
            let identity = identity.grown(&path);
            self.read_files.insert(path, identity);
            loop {
                let (path, identity) = next_file(&self.watched_path, &self.read_files, None)?;
                let tail = Tail::open(&self.watched_path, &path, &identity, &self.read_files, &self.end_condition);
                match tail.and_then(|tail| live(&path, tail, &self.options)) {
                    Ok(next) => {
                        self.current = next;
                        self.file = Some((path, identity));
                        break;
                    }
                    Err(_) if self.end_condition.is_over() => return None,
                    Err(error) => note(&mut self.notes, &error),
                }
                self.read_files.insert(path, identity);
            }
        }
    }

    /// The ending of the last file. A truncated last record is not reported if the end was asked
    /// for.
    pub(super) fn ending(&self) -> Ending {
        let Ending { mut digests, note, .. } = self.current.ending();
        if self.read_files.len() > 1 || self.file.is_some() && self.length_bytes > 0 {
            // The bytes of an ended last file are counted already. Digests exist for a single file
            // only.
            digests.length_bytes = self.length_bytes + if self.file.is_some() { digests.length_bytes } else { 0 };
            digests.xxh3_128.clear();
            digests.sha256 = None;
        }
        let own = note.filter(|_| !self.end_condition.is_over() && self.notes.is_empty());
        let notes = || (!self.notes.is_empty()).then(|| self.notes.join("; "));
        Ending { digests, note: own.or_else(notes), interrupted: false }
    }
}

fn note(notes: &mut Vec<String>, error: &InputError) {
    if notes.len() < MAX_NOTES {
        notes.push(error.to_string());
    }
}

fn live(path: &Path, raw: Box<dyn Read + Send>, options: &SourceOptions) -> Result<Capture, InputError> {
    let source = InputSource::new(raw, options).map_err(|source| InputError::Read {
        path: path.to_owned(),
        offset_bytes: 0,
        source,
        advice: "check the file and its disk",
    })?;
    Capture::open_live(0, path, source)
}

/// Distinguishes a file from a later one with the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileIdentity {
    place: (u64, u64),
    head: Vec<u8>,
}

impl FileIdentity {
    fn of(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let mut head = vec![0; HEAD_BYTES];
        let mut filled = 0;
        while filled < HEAD_BYTES {
            match file.read_at(&mut head[filled..], filled as u64)? {
                0 => break,
                count => filled += count,
            }
        }
        head.truncate(filled);
        let found = file.metadata()?;
        Ok(Self { place: (found.dev(), found.ino()), head })
    }

    /// The identity with the first bytes that were written since.
    fn grown(self, path: &Path) -> Self {
        let now = if self.head.len() < HEAD_BYTES { Self::of(path).ok() } else { None };
        now.filter(|now| self.may_become(now)).unwrap_or(self)
    }

    /// True if the other file may be this one, grown.
    fn may_become(&self, other: &Self) -> bool {
        self.place == other.place && other.head.starts_with(&self.head)
    }
}

/// The oldest file that was not read yet: any file of a folder, or the file at this path if it is a
/// new one. `reading` is left out.
fn next_file(
    place: &Path,
    done: &BTreeMap<PathBuf, FileIdentity>,
    reading: Option<(&Path, &FileIdentity)>,
) -> Option<(PathBuf, FileIdentity)> {
    let is_new = |path: &Path, identity: &FileIdentity| {
        let is_same = |(other, known): (&Path, &FileIdentity)| other == path && known.may_become(identity);
        !reading.is_some_and(is_same) && !done.get(path).is_some_and(|known| is_same((path, known)))
    };
    if !place.is_dir() {
        let identity = FileIdentity::of(place).ok()?;
        return is_new(place, &identity).then(|| (place.to_owned(), identity));
    }
    let mut files: Vec<(PathBuf, Metadata)> = fs::read_dir(place)
        .ok()?
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let is_hidden = path.file_name()?.as_encoded_bytes().starts_with(b".");
            let found = fs::metadata(&path).ok().filter(|found| found.is_file() && !is_hidden)?;
            Some((path, found))
        })
        .collect();
    files.sort_by_cached_key(|(path, found)| ((found.mtime(), found.mtime_nsec()), natural(path)));
    files.into_iter().find_map(|(path, _)| {
        let identity = FileIdentity::of(&path).ok().filter(|identity| is_new(&path, identity))?;
        Some((path, identity))
    })
}

/// Sort key that orders numbers in names by value: `sink.pcap9` before `sink.pcap10`.
fn natural(path: &Path) -> Vec<(String, u64)> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut parts: Vec<(String, u64)> = Vec::new();
    for piece in name.split_inclusive(|c: char| !c.is_ascii_digit()) {
        let digits = piece.trim_end_matches(|c: char| !c.is_ascii_digit());
        parts.push((piece[digits.len()..].to_owned(), digits.parse().unwrap_or(0)));
    }
    parts
}

/// A file that may grow. It ends at the end condition, or when it has a successor and no more data.
struct Tail {
    file: File,
    watched_path: PathBuf,
    path: PathBuf,
    identity: FileIdentity,
    read_files: BTreeMap<PathBuf, FileIdentity>,
    end_condition: EndCondition,
    /// Its successor has started: the current end is final.
    has_successor: bool,
    /// Checks for new data, counted to know when to check for a successor.
    checks: u32,
}

impl Tail {
    fn open(
        place: &Path,
        path: &Path,
        identity: &FileIdentity,
        done: &BTreeMap<PathBuf, FileIdentity>,
        patience: &EndCondition,
    ) -> Result<Box<dyn Read + Send>, InputError> {
        let file = File::open(path).map_err(|source| InputError::Open { path: path.to_owned(), source })?;
        Ok(Box::new(Self {
            file,
            watched_path: place.to_owned(),
            path: path.to_owned(),
            identity: identity.clone(),
            read_files: done.clone(),
            end_condition: patience.clone(),
            has_successor: false,
            checks: 0,
        }))
    }
}

impl Read for Tail {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            // Ends even if there is more data.
            if self.end_condition.is_over() {
                return Ok(0);
            }
            let count = self.file.read(buffer)?;
            if count > 0 || self.end_condition.until_now || self.has_successor {
                return Ok(count);
            }
            if self.checks.is_multiple_of(PAUSES_PER_CHECK) {
                self.identity = self.identity.clone().grown(&self.path);
                let reading = Some((self.path.as_path(), &self.identity));
                // Data written between the last read and this check is read before the file ends.
                self.has_successor = next_file(&self.watched_path, &self.read_files, reading).is_some();
            }
            self.checks = self.checks.wrapping_add(1);
            if !self.has_successor {
                std::thread::sleep(PAUSE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotated_names_are_sorted_by_number() {
        let mut names = ["a.pcap10", "a.pcap9", "a.pcap", "a.pcap1", "b_00002.pcap", "b_00010.pcap"].map(Path::new);
        names.sort_by_key(|path| natural(path));
        assert_eq!(names, ["a.pcap", "a.pcap1", "a.pcap9", "a.pcap10", "b_00002.pcap", "b_00010.pcap"].map(Path::new));
    }

    #[test]
    fn a_file_with_another_start_is_another_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sink.pcap");
        fs::write(&path, b"first").unwrap();
        let first = FileIdentity::of(&path).unwrap();
        fs::write(&path, b"first, and more").unwrap();
        assert!(first.may_become(&FileIdentity::of(&path).unwrap()), "it has grown");
        assert!(next_file(&path, &BTreeMap::new(), Some((&path, &first))).is_none());
        fs::write(&path, b"other").unwrap();
        assert!(!first.may_become(&FileIdentity::of(&path).unwrap()));
        assert!(next_file(&path, &BTreeMap::new(), Some((&path, &first))).is_some());
    }
}
