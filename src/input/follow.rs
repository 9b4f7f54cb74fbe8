//! Inputs that grow while they are read: a file, the files of a folder with a rotating capture, a
//! FIFO, standard input.

use super::capture::{Capture, Ending};
use super::fifo::{EndCondition, FifoReader, PAUSE};
use super::read_files::{FileIdentity, ReadFiles, SharedProgress, head_of, is_copy, is_same, place_of};
use super::sflow::SflowListener;
use super::source::{InputSource, SourceOptions};
use super::{InputError, is_stdin};
use crate::model::Batch;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Pauses between two checks for a newer file.
const PAUSES_PER_CHECK: u32 = 10;
/// Notes on files that could not be read, or not to their end. Further files are counted.
const MAX_NOTES: usize = 16;

/// Notes on the files of a folder, one for each file with a fault.
#[derive(Debug, Default)]
struct FileNotes {
    first: Vec<String>,
    /// Files with a note that is not kept.
    more: u64,
}

impl FileNotes {
    fn add(&mut self, note: String) {
        if self.first.len() < MAX_NOTES {
            self.first.push(note);
        } else {
            self.more += 1;
        }
    }

    /// All notes in one text; `None` if there are none.
    fn text(&self) -> Option<String> {
        let more = match self.more {
            0 => None,
            1 => Some("and 1 more file".to_owned()),
            more => Some(format!("and {more} more files")),
        };
        let texts: Vec<&str> = self.first.iter().chain(&more).map(String::as_str).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}

/// One input that grows. The files of a folder are read one after the other, oldest first.
pub struct Follower {
    watched_path: PathBuf,
    options: SourceOptions,
    end_condition: EndCondition,
    /// Files that were read or rejected, as long as they exist.
    read_files: ReadFiles,
    current: Capture,
    /// The file being read; `None` for a FIFO, and after the end of the last file.
    file: Option<(PathBuf, SharedProgress)>,
    /// Files that were read to their end, and their length.
    ended_files: u64,
    length_bytes: u64,
    notes: FileNotes,
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
        let mut done = ReadFiles::default();
        let mut notes = FileNotes::default();
        loop {
            let Some((path, identity)) = next_file(place, &done, None) else {
                if patience.is_over() {
                    return Ok(None);
                }
                if patience.until_now {
                    let why = notes.first.first().map(|note| format!(" ({note})")).unwrap_or_default();
                    return Err(InputError::NoCapture { path: place.to_owned(), why });
                }
                std::thread::sleep(PAUSE);
                continue;
            };
            let progress = SharedProgress::new(&identity);
            let tail = Tail::open(place, &path, &progress, &done, patience);
            match tail.and_then(|tail| live(&path, tail, options)) {
                Ok(current) => {
                    let mut follower = Self::new(place, options, patience, (current, Some((path, progress))));
                    (follower.read_files, follower.notes) = (done, notes);
                    return Ok(Some(follower));
                }
                Err(_) if patience.is_over() => return Ok(None),
                // The capture started again before its first packet.
                Err(_) if progress.lock().is_overwritten => {}
                // A folder may contain other files, or an old capture without packets.
                Err(error) if place.is_dir() => notes.add(error.to_string()),
                Err(error) => return Err(error),
            }
            progress.file_into(&mut done, path);
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
        (current, file): (Capture, Option<(PathBuf, SharedProgress)>),
    ) -> Self {
        let (place, options, patience) = (place.to_owned(), options.clone(), patience.clone());
        let (done, notes) = (ReadFiles::default(), FileNotes::default());
        Self {
            watched_path: place,
            options,
            end_condition: patience,
            read_files: done,
            current,
            file,
            ended_files: 0,
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
            let (path, progress) = self.file.take_if(|_| !self.end_condition.is_over())?;
            let Ending { digests, note: why, .. } = self.current.ending();
            self.ended_files += 1;
            self.length_bytes += digests.length_bytes;
            if let Some(why) = why {
                self.notes.add(format!("{}: {why}", path.display()));
            }
            self.read_files.forget_deleted(&self.watched_path);
            progress.file_into(&mut self.read_files, path);
            loop {
                let (path, identity) = next_file(&self.watched_path, &self.read_files, None)?;
                let progress = SharedProgress::new(&identity);
                let tail = Tail::open(&self.watched_path, &path, &progress, &self.read_files, &self.end_condition);
                match tail.and_then(|tail| live(&path, tail, &self.options)) {
                    Ok(next) => {
                        self.current = next;
                        self.file = Some((path, progress));
                        break;
                    }
                    Err(_) if self.end_condition.is_over() => return None,
                    Err(_) if progress.lock().is_overwritten => {}
                    Err(error) => self.notes.add(error.to_string()),
                }
                progress.file_into(&mut self.read_files, path);
            }
        }
    }

    /// The ending of the last file. A truncated last record is not reported if the end was asked
    /// for.
    pub(super) fn ending(&self) -> Ending {
        let Ending { mut digests, note, .. } = self.current.ending();
        let files = self.ended_files + u64::from(self.file.is_some());
        if self.read_files.by_place.len() > 1 || files > 1 {
            // The bytes of an ended last file are counted already. Digests exist for a single file
            // only.
            digests.length_bytes = self.length_bytes + if self.file.is_some() { digests.length_bytes } else { 0 };
            digests.xxh3_128.clear();
            digests.sha256 = None;
        }
        let own = || note.filter(|_| !self.end_condition.is_over());
        Ending { digests, note: self.notes.text().or_else(own), interrupted: false }
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

/// The oldest file that was not read yet: any file of a folder, or the file at this path if it is a
/// new one. `reading` is left out.
fn next_file(
    place: &Path,
    done: &ReadFiles,
    reading: Option<(&Path, &FileIdentity)>,
) -> Option<(PathBuf, FileIdentity)> {
    let is_current = |path: &Path, identity: &FileIdentity| {
        reading.is_some_and(|known| is_same(known, (path, identity)) || is_copy((known.0, &known.1.head), path))
    };
    let is_new = |path: &Path, identity: &FileIdentity| !is_current(path, identity) && !done.contain(path, identity);
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
    progress: SharedProgress,
    read_files: ReadFiles,
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
        progress: &SharedProgress,
        done: &ReadFiles,
        patience: &EndCondition,
    ) -> Result<Box<dyn Read + Send>, InputError> {
        let failed = |source| InputError::Open { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        progress.lock().identity.place = place_of(&file.metadata().map_err(failed)?);
        Ok(Box::new(Self {
            file,
            watched_path: place.to_owned(),
            path: path.to_owned(),
            progress: progress.clone(),
            read_files: done.clone(),
            end_condition: patience.clone(),
            has_successor: false,
            checks: 0,
        }))
    }
}

impl Tail {
    /// Number of these bytes, which were just read, that belong to the file: 0 if another capture
    /// was written into it, because then they come from the middle of that capture.
    fn accept(&mut self, bytes: &[u8]) -> usize {
        let mut progress = self.progress.lock();
        let head = &progress.identity.head;
        let is_other = head_of(&self.file, head.len()).is_ok_and(|now| now != *head);
        progress.is_overwritten |= is_other;
        if progress.is_overwritten {
            self.has_successor = true;
            return 0;
        }
        progress.add(bytes);
        bytes.len()
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
            if count > 0 {
                return Ok(self.accept(&buffer[..count]));
            }
            if self.end_condition.until_now || self.has_successor {
                return Ok(0);
            }
            if self.checks.is_multiple_of(PAUSES_PER_CHECK) {
                let mut progress = self.progress.lock();
                progress.check(FileIdentity::of(&self.path));
                let reading = Some((self.path.as_path(), &progress.identity));
                // Data written between the last read and this check is read before the file ends.
                self.has_successor =
                    progress.is_overwritten || next_file(&self.watched_path, &self.read_files, reading).is_some();
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
    use std::io::Write as _;

    #[test]
    fn notes_beyond_the_bound_are_counted() {
        let text = |count: usize| {
            let mut notes = FileNotes::default();
            (0..count).for_each(|number| notes.add(format!("{number}.pcap: truncated")));
            notes.text().unwrap_or_default()
        };
        assert_eq!(text(0), "");
        assert_eq!(text(2), "0.pcap: truncated; 1.pcap: truncated");
        assert!(text(MAX_NOTES).ends_with("; 15.pcap: truncated"));
        assert_eq!(text(MAX_NOTES + 1), text(MAX_NOTES) + "; and 1 more file");
        assert_eq!(text(40), text(MAX_NOTES) + "; and 24 more files");
    }

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
        assert!(next_file(&path, &ReadFiles::default(), Some((&path, &first))).is_none());
        fs::write(&path, b"other").unwrap();
        assert!(!first.may_become(&FileIdentity::of(&path).unwrap()));
        assert!(next_file(&path, &ReadFiles::default(), Some((&path, &first))).is_some());
    }

    /// A reader that has read `old` from a file, which had the first `at_open` bytes when it was
    /// opened.
    fn reader(path: &Path, old: &[u8], at_open: usize) -> (Box<dyn Read + Send>, SharedProgress) {
        fs::write(path, &old[..at_open]).unwrap();
        let progress = SharedProgress::new(&FileIdentity::of(path).unwrap());
        let mut tail = Tail::open(path, path, &progress, &ReadFiles::default(), &EndCondition::default()).unwrap();
        File::options().append(true).open(path).unwrap().write_all(&old[at_open..]).unwrap();
        let mut read = vec![0; old.len()];
        tail.read_exact(&mut read).unwrap();
        assert_eq!(read, old);
        (tail, progress)
    }

    #[test]
    fn a_capture_that_starts_again_in_its_file_is_another_file() {
        const HEADER_BYTES: usize = 24;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sink.pcap");
        let capture = |record: u8, bytes: usize| [[7; HEADER_BYTES].as_slice(), &vec![record; bytes]].concat();
        let old = capture(1, 100);
        // The file was empty, had its header, or had records when it was opened. The new capture is
        // shorter than the old one, or longer.
        for at_open in [0, HEADER_BYTES, HEADER_BYTES + 50] {
            for bytes in [0, 50, 300] {
                let (mut tail, progress) = reader(&path, &old, at_open);
                fs::write(&path, capture(2, bytes)).unwrap();
                assert_eq!(tail.read(&mut [0; 1000]).unwrap(), 0, "{at_open}, {bytes}: bytes of another capture");
                let mut read_files = ReadFiles::default();
                let now = FileIdentity::of(&path).unwrap();
                read_files.by_place.insert(now.place, (path.clone(), now));
                progress.file_into(&mut read_files, path.clone());
                assert!(next_file(&path, &read_files, None).is_some(), "{at_open}, {bytes}: it was not read yet");
            }
        }
        // The first record of either capture comes after the same header.
        let (mut tail, progress) = reader(&path, &capture(1, 0), 0);
        let new = capture(2, 50);
        fs::write(&path, &new).unwrap();
        let mut read = [0; 50];
        tail.read_exact(&mut read).unwrap();
        assert_eq!(read, new[HEADER_BYTES..]);
        let mut read_files = ReadFiles::default();
        progress.file_into(&mut read_files, path.clone());
        assert!(next_file(&path, &read_files, None).is_none(), "it was read");
    }

    /// `tcpdump -z gzip` replaces each file that is done by a compressed one. With `-W`, the names are used
    /// again.
    #[test]
    fn a_compressed_copy_is_not_read_again() {
        let gzip = |bytes: &[u8]| {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        };
        let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap();
        // Compresses badly, so that a file with half of the bytes has a part of the content.
        let content = |seed: u32| -> Vec<u8> {
            (0..800_u32).flat_map(|number| (number ^ seed).wrapping_mul(0x9E37_79B1).to_be_bytes()).collect()
        };
        let folder = tempfile::tempdir().unwrap();
        let is_found = |done: &ReadFiles| next_file(folder.path(), done, None).map(|(path, _)| path);
        for (suffix, packed) in [("gz", gzip(&content(1))), ("zst", zstd(&content(1)))] {
            let other = if suffix == "gz" { gzip(&content(2)) } else { zstd(&content(2)) };
            let [name, copy] =
                ["sink.pcap".to_owned(), format!("sink.pcap.{suffix}")].map(|name| folder.path().join(name));
            for (first, second, of_second) in [(&name, &copy, &packed), (&copy, &name, &content(1))] {
                let of_first = if first == &name { content(1) } else { packed.clone() };
                let (_, progress) = reader(first, &of_first, of_first.len());
                // While the first one is read, and later; while the second one is written, and later.
                let parts = [0, 1, of_second.len() / 2, of_second.len()];
                for part in parts {
                    fs::write(second, &of_second[..part]).unwrap();
                    let identity = progress.lock().identity.clone();
                    let found = next_file(folder.path(), &ReadFiles::default(), Some((first, &identity)));
                    assert!(found.is_none() || first == &copy, "{suffix}, {part}: its copy while it is read");
                }
                let mut read_files = ReadFiles::default();
                progress.file_into(&mut read_files, first.clone());
                for part in parts {
                    fs::write(second, &of_second[..part]).unwrap();
                    assert_eq!(is_found(&read_files), None, "{suffix}, {part}");
                }
                fs::remove_file(first).unwrap();
                read_files.forget_deleted(folder.path());
                assert_eq!(is_found(&read_files), None, "{suffix}: the first one was deleted");
                // Another capture under the first name, while the copy of the old one exists.
                let of_another = if first == &name { content(2) } else { other.clone() };
                let (_, progress) = reader(first, &of_another, of_another.len());
                assert_eq!(is_found(&read_files).as_ref(), Some(first), "{suffix}: another capture");
                progress.file_into(&mut read_files, first.clone());
                assert_eq!(is_found(&read_files), None, "{suffix}: the copy of the old capture");
                fs::remove_file(second).unwrap();
                read_files.forget_deleted(folder.path());
                fs::write(second, if second == &copy { &packed } else { &of_first }).unwrap();
                assert_eq!(is_found(&read_files).as_ref(), Some(second), "{suffix}: a copy of no file");
                fs::remove_file(first).unwrap();
                fs::remove_file(second).unwrap();
            }
        }
    }

    /// A program that rotates captures renames a file, while it is read or later, and starts a new one
    /// under the old name.
    #[test]
    fn a_renamed_file_is_not_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let [path, renamed] = ["sink.pcap", "sink.pcap.1"].map(|name| folder.path().join(name));
        fs::write(&path, [1; 200]).unwrap();
        let first = FileIdentity::of(&path).unwrap();
        fs::rename(&path, &renamed).unwrap();
        let reading = Some((path.as_path(), &first));
        let mut read_files = ReadFiles::default();
        assert!(next_file(folder.path(), &read_files, reading).is_none(), "it is being read");
        fs::write(&path, [2; 100]).unwrap();
        let (found, second) = next_file(folder.path(), &read_files, reading).unwrap();
        assert_eq!(found, path);
        read_files.by_place.insert(first.place, (path.clone(), first));
        read_files.by_place.insert(second.place, (path, second));
        read_files.forget_deleted(folder.path());
        assert!(next_file(folder.path(), &read_files, None).is_none(), "both were read");
        fs::remove_file(&renamed).unwrap();
        read_files.forget_deleted(folder.path());
        assert_eq!(read_files.by_place.len(), 1);
    }
}
