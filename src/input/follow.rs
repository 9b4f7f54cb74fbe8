//! Inputs that grow while they are read: a file, the files of a folder that a capture rotates through, a FIFO, standard input.

use super::cut::{Capture, Ending};
use super::piped::{PAUSE, Patience, Piped};
use super::source::{Source, SourceOptions};
use super::{InputError, is_stdin};
use crate::model::Batch;
use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// First bytes of a file that tell it from another one of its name: file header, and the first record's time.
const HEAD_BYTES: usize = 64;
/// Pauses between two looks for another file.
const PAUSES: u32 = 10;
/// Notes on files that could not be read, or not to their end.
const MAX_NOTES: usize = 16;

/// One input that grows. The files of a folder follow each other in it, in the order in which they were written.
pub struct Follower {
    place: PathBuf,
    options: SourceOptions,
    patience: Patience,
    /// Files that were read, or could not be, as long as they are there.
    done: BTreeMap<PathBuf, Identity>,
    current: Capture,
    /// The file that is read: no FIFO.
    file: Option<(PathBuf, Identity)>,
    /// Bytes of the files before it.
    length_bytes: u64,
    notes: Vec<String>,
}

impl Follower {
    /// Waits for the first packet; `None` where the end came before it.
    pub fn open(place: &Path, options: &SourceOptions, patience: &Patience) -> Result<Option<Self>, InputError> {
        let failed = |source| InputError::Open { path: place.to_owned(), source };
        let kind = if is_stdin(place) { None } else { Some(fs::metadata(place).map_err(failed)?.file_type()) };
        if kind.is_none_or(|kind| kind.is_fifo() || kind.is_char_device() || kind.is_socket()) {
            let current = match live(place, Box::new(Piped::new(place.to_owned(), patience.clone())), options) {
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
                    (follower.done, follower.notes) = (done, notes);
                    return Ok(Some(follower));
                }
                Err(_) if patience.is_over() => return Ok(None),
                // A folder may hold other files, and an old one without a packet.
                Err(error) if place.is_dir() => note(&mut notes, &error),
                Err(error) => return Err(error),
            }
            done.insert(path, identity);
        }
    }

    fn new(
        place: &Path,
        options: &SourceOptions,
        patience: &Patience,
        (current, file): (Capture, Option<(PathBuf, Identity)>),
    ) -> Self {
        let (place, options, patience) = (place.to_owned(), options.clone(), patience.clone());
        let (done, notes) = (BTreeMap::new(), Vec::new());
        Self { place, options, patience, done, current, file, length_bytes: 0, notes }
    }

    /// Format of the first file, in one line.
    #[must_use]
    pub fn format(&self) -> &str {
        self.current.format()
    }

    /// The next whole records.
    pub(super) fn next_batch(&mut self, spare: Vec<u8>) -> Option<Batch> {
        let mut spare = spare;
        loop {
            if let Some(batch) = self.current.next_batch(std::mem::take(&mut spare)) {
                return Some(batch);
            }
            // A file ends where the next one has begun.
            let (path, identity) = self.file.take()?;
            if self.patience.is_over() {
                return None;
            }
            let Ending { digests, note: why, .. } = self.current.ending();
            self.length_bytes += digests.length_bytes;
            self.notes.extend(why.map(|why| format!("{}: {why}", path.display())));
            self.notes.truncate(MAX_NOTES);
            self.done.retain(|path, _| path.exists());
            let identity = identity.grown(&path);
            self.done.insert(path, identity);
            loop {
                let (path, identity) = next_file(&self.place, &self.done, None)?;
                let tail = Tail::open(&self.place, &path, &identity, &self.done, &self.patience);
                match tail.and_then(|tail| live(&path, tail, &self.options)) {
                    Ok(next) => {
                        self.current = next;
                        self.file = Some((path, identity));
                        break;
                    }
                    Err(_) if self.patience.is_over() => return None,
                    Err(error) => note(&mut self.notes, &error),
                }
                self.done.insert(path, identity);
            }
        }
    }

    /// How the last file ended. That it ends inside a record is no wonder where the end was asked for.
    pub(super) fn ending(&self) -> Ending {
        let Ending { mut digests, note, .. } = self.current.ending();
        if self.done.len() > 1 || self.file.is_some() && self.length_bytes > 0 {
            // The last file's bytes are counted already where it has ended; digests are of one file.
            digests.length_bytes = self.length_bytes + if self.file.is_some() { digests.length_bytes } else { 0 };
            digests.xxh3_128.clear();
            digests.sha256 = None;
        }
        let own = note.filter(|_| !self.patience.is_over() && self.notes.is_empty());
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
    let source = Source::new(raw, options).map_err(|source| InputError::Read {
        path: path.to_owned(),
        offset_bytes: 0,
        source,
        advice: "check the file and the disk that it lies on",
    })?;
    Capture::open_live(0, path, source)
}

/// What tells a file from another one that takes its name later.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Identity {
    place: (u64, u64),
    head: Vec<u8>,
}

impl Identity {
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

    /// The same with the first bytes that have come since.
    fn grown(self, path: &Path) -> Self {
        let now = if self.head.len() < HEAD_BYTES { Self::of(path).ok() } else { None };
        now.filter(|now| self.may_become(now)).unwrap_or(self)
    }

    /// True where a file that begins like this may be the other one, grown.
    fn may_become(&self, other: &Self) -> bool {
        self.place == other.place && other.head.starts_with(&self.head)
    }
}

/// The oldest file that is not read yet: of a folder any, else the one of this name, if it is another one now. `reading` is left out.
fn next_file(
    place: &Path,
    done: &BTreeMap<PathBuf, Identity>,
    reading: Option<(&Path, &Identity)>,
) -> Option<(PathBuf, Identity)> {
    let is_new = |path: &Path, identity: &Identity| {
        let is_same = |(other, known): (&Path, &Identity)| other == path && known.may_become(identity);
        !reading.is_some_and(is_same) && !done.get(path).is_some_and(|known| is_same((path, known)))
    };
    if !place.is_dir() {
        let identity = Identity::of(place).ok()?;
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
        let identity = Identity::of(&path).ok().filter(|identity| is_new(&path, identity))?;
        Some((path, identity))
    })
}

/// Names in the order of the numbers in them: `sink.pcap9` before `sink.pcap10`.
fn natural(path: &Path) -> Vec<(String, u64)> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut parts: Vec<(String, u64)> = Vec::new();
    for piece in name.split_inclusive(|c: char| !c.is_ascii_digit()) {
        let digits = piece.trim_end_matches(|c: char| !c.is_ascii_digit());
        parts.push((piece[digits.len()..].to_owned(), digits.parse().unwrap_or(0)));
    }
    parts
}

/// A file that may grow. It ends where the end is asked for, or where another file goes on and this one has no more.
struct Tail {
    file: File,
    place: PathBuf,
    path: PathBuf,
    identity: Identity,
    done: BTreeMap<PathBuf, Identity>,
    patience: Patience,
    /// Another file has begun: what is there now is the end.
    is_left: bool,
    /// Looks at this file since the last one for another.
    looks: u32,
}

impl Tail {
    fn open(
        place: &Path,
        path: &Path,
        identity: &Identity,
        done: &BTreeMap<PathBuf, Identity>,
        patience: &Patience,
    ) -> Result<Box<dyn Read + Send>, InputError> {
        let file = File::open(path).map_err(|source| InputError::Open { path: path.to_owned(), source })?;
        Ok(Box::new(Self {
            file,
            place: place.to_owned(),
            path: path.to_owned(),
            identity: identity.clone(),
            done: done.clone(),
            patience: patience.clone(),
            is_left: false,
            looks: 0,
        }))
    }
}

impl Read for Tail {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            // However much more is there.
            if self.patience.is_over() {
                return Ok(0);
            }
            let count = self.file.read(buffer)?;
            if count > 0 || self.patience.until_now || self.is_left {
                return Ok(count);
            }
            if self.looks.is_multiple_of(PAUSES) {
                self.identity = self.identity.clone().grown(&self.path);
                let reading = Some((self.path.as_path(), &self.identity));
                // What was written between the look at this file and the look for the next one is read before it ends.
                self.is_left = next_file(&self.place, &self.done, reading).is_some();
            }
            self.looks = self.looks.wrapping_add(1);
            if !self.is_left {
                std::thread::sleep(PAUSE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotated_names_count_as_people_do() {
        let mut names = ["a.pcap10", "a.pcap9", "a.pcap", "a.pcap1", "b_00002.pcap", "b_00010.pcap"].map(Path::new);
        names.sort_by_key(|path| natural(path));
        assert_eq!(names, ["a.pcap", "a.pcap1", "a.pcap9", "a.pcap10", "b_00002.pcap", "b_00010.pcap"].map(Path::new));
    }

    #[test]
    fn a_file_is_another_one_when_it_begins_in_another_way() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sink.pcap");
        fs::write(&path, b"first").unwrap();
        let first = Identity::of(&path).unwrap();
        fs::write(&path, b"first, and more").unwrap();
        assert!(first.may_become(&Identity::of(&path).unwrap()), "it has grown");
        assert!(next_file(&path, &BTreeMap::new(), Some((&path, &first))).is_none());
        fs::write(&path, b"other").unwrap();
        assert!(!first.may_become(&Identity::of(&path).unwrap()));
        assert!(next_file(&path, &BTreeMap::new(), Some((&path, &first))).is_some());
    }
}
