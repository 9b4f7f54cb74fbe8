//! Compares splitting a file into segments with reading it in order, and with a simple walk over
//! its bytes.

use super::*;
use crate::input::{self, Digests, SourceOptions};
use ibscope_parsers::frame::CaptureItem;
use proptest::prelude::*;
use sha2::{Digest as _, Sha256};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const HEADER_BYTES: usize = 24;
/// Bytes that are read of every input when it is opened.
const HEAD_BYTES: usize = 64 << 10;
const SECONDS: u32 = 1_700_000_000;

/// The result of reading a file.
#[derive(Debug, Default, PartialEq)]
struct Out {
    bytes: Vec<u8>,
    records: u64,
    digests: Digests,
    note: Option<String>,
    interrupted: bool,
}

impl Out {
    fn take(&mut self, batch: &Batch) {
        assert_eq!(batch.offset_bytes, (HEADER_BYTES + self.bytes.len()) as u64);
        assert_eq!(batch.first_record, self.records);
        let (whole, stop) = batch.framing.clone().walk(&batch.bytes, |item| {
            self.records += u64::from(matches!(item, CaptureItem::Record(_)));
        });
        assert!(!batch.bytes.is_empty() && whole == batch.bytes.len() && stop.is_none());
        self.bytes.extend(&batch.bytes);
    }

    fn end(&mut self, ending: Ending) {
        (self.digests, self.note, self.interrupted) = (ending.digests, ending.note, ending.interrupted);
    }
}

/// Results of the segments of a file.
#[derive(Debug, Default)]
struct SegmentStats {
    counted: usize,
    /// Length of the longest accepted one.
    longest: usize,
    /// Starts of segments that found records and were not accepted.
    rejected: Vec<u64>,
    /// Segments that found no record.
    failed: usize,
}

fn digested() -> SourceOptions {
    SourceOptions { xxh3: true, sha256: true, ..SourceOptions::default() }
}

fn open(path: &Path, options: &SourceOptions, batch_bytes: usize) -> Option<Capture> {
    let mut capture = input::open(&[path.to_owned()], options).ok()?.pop()?;
    capture.set_batch_bytes(batch_bytes);
    Some(capture)
}

fn in_order(path: &Path, batch_bytes: usize) -> Option<Out> {
    let mut capture = open(path, &digested(), batch_bytes)?;
    let mut out = Out::default();
    while let Some(batch) = capture.next_batch(Vec::new()) {
        out.take(&batch);
    }
    out.end(capture.ending());
    Some(out)
}

/// Reads a file in rounds of at most `most` tasks; `between` is called after each round.
fn in_segments(
    path: &Path,
    batch_bytes: usize,
    most: usize,
    options: &SourceOptions,
    mut between: impl FnMut(usize),
) -> Option<(Out, SegmentStats)> {
    let mut feed = Feed::start(vec![open(path, options, batch_bytes)?], 1).expect("threads");
    let (mut out, mut segments) = (Out::default(), SegmentStats::default());
    let mut before: Vec<Batch> = Vec::new();
    for round in 1.. {
        let tasks = feed.next(most);
        if tasks.is_empty() && before.is_empty() {
            break;
        }
        assert!(tasks.len() <= most);
        // In reverse, because workers may finish in any order.
        let mut results: Vec<_> = tasks.into_iter().rev().map(FeedTask::run).collect();
        results.reverse();
        feed.digest(before.iter());
        before.drain(..).for_each(|batch| feed.recycle(batch.bytes));
        for (mut batches, receipt) in results {
            let start_bytes =
                if let FeedOutcome::Segment { start_bytes, .. } = receipt.0 { Some(start_bytes) } else { None };
            segments.failed += usize::from(matches!(receipt.0, FeedOutcome::Failed { .. }));
            let counts = feed.accept(receipt, batches.iter_mut());
            match start_bytes {
                Some(_) if counts => {
                    segments.counted += 1;
                    segments.longest = segments.longest.max(batches[0].bytes.len());
                }
                start_bytes => segments.rejected.extend(start_bytes),
            }
            if counts {
                batches.iter().for_each(|batch| out.take(batch));
                before.extend(batches);
            }
        }
        between(round);
    }
    out.end(feed.finish().pop()?);
    assert_eq!(options.bytes_read.load(Ordering::Relaxed), out.digests.length_bytes);
    Some((out, segments))
}

/// A variant of the classic pcap format.
#[derive(Clone, Copy, Debug)]
struct Form {
    magic: u32,
    put: fn(u32) -> [u8; 4],
    get: fn([u8; 4]) -> u32,
    record_header_bytes: usize,
}

const FORMS: [Form; 6] = [
    Form { magic: 0xA1B2_C3D4, put: u32::to_le_bytes, get: u32::from_le_bytes, record_header_bytes: 16 },
    Form { magic: 0xA1B2_C3D4, put: u32::to_be_bytes, get: u32::from_be_bytes, record_header_bytes: 16 },
    Form { magic: 0xA1B2_3C4D, put: u32::to_le_bytes, get: u32::from_le_bytes, record_header_bytes: 16 },
    Form { magic: 0xA1B2_3C4D, put: u32::to_be_bytes, get: u32::from_be_bytes, record_header_bytes: 16 },
    Form { magic: 0xA1B2_CD34, put: u32::to_le_bytes, get: u32::from_le_bytes, record_header_bytes: 24 },
    Form { magic: 0xA1B2_CD34, put: u32::to_be_bytes, get: u32::from_be_bytes, record_header_bytes: 24 },
];

impl Form {
    fn header(self) -> Vec<u8> {
        [self.magic, 0, 0, 0, 65_535, 247].into_iter().flat_map(self.put).collect()
    }

    fn record(self, number: usize, data: &[u8]) -> Vec<u8> {
        let length = data.len() as u32;
        let mut record: Vec<u8> = [SECONDS + number as u32 / 100, number as u32 % 100, length, length]
            .into_iter()
            .flat_map(self.put)
            .collect();
        record.resize(self.record_header_bytes, 7);
        record.extend(data);
        record
    }

    /// A file of records with these data.
    fn file(self, data: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
        let records = data.into_iter().enumerate().map(|(number, data)| self.record(number, &data));
        std::iter::once(self.header()).chain(records).flatten().collect()
    }

    /// Ends of the whole records of a file.
    fn ends(self, file: &[u8]) -> Vec<usize> {
        let (mut ends, mut at) = (Vec::new(), HEADER_BYTES);
        while let Some(length) = file.get(at + 8..at + 12).filter(|_| at + self.record_header_bytes <= file.len()) {
            // Zeros are no record.
            if file[at..at + 16] == [0; 16] {
                break;
            }
            let length = (self.get)(length.try_into().unwrap()) as usize;
            at += self.record_header_bytes + length;
            if length > 16 << 20 || at > file.len() {
                break;
            }
            ends.push(at);
        }
        ends
    }
}

/// Pseudo-random bytes, the same for the same seed.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (state >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Data of this length that look like records, the last one truncated.
fn records_inside(form: Form, length: usize, inner: usize) -> Vec<u8> {
    let mut data: Vec<u8> = (0..).flat_map(|number| form.record(number, &vec![3; inner])).take(length).collect();
    data.resize(length, 0);
    data
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join("some.pcap");
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

/// Reads the file both ways and compares the results with each other and with the test's own walk.
fn both(folder: &Folder, form: Form, file: &[u8], batch_bytes: usize, most: usize) -> Option<(Out, SegmentStats)> {
    let path = folder.file(file);
    let case = format!("{form:?}, {} bytes in batches of {batch_bytes}, {most} at a time", file.len());
    let expected = in_order(&path, batch_bytes);
    let found = in_segments(&path, batch_bytes, most, &digested(), |_| {});
    let Some((out, segments)) = found else {
        assert!(expected.is_none(), "{case}");
        return None;
    };
    assert!(expected.as_ref() == Some(&out), "{case}: {segments:?}: {:?} {:?}", expected.map(|out| out.note), out.note);
    let ends = form.ends(file);
    assert_eq!(out.records, ends.len() as u64, "{case}");
    assert!(out.bytes == file[HEADER_BYTES..ends.last().copied().unwrap_or(HEADER_BYTES)], "{case}");
    let read = &file[..out.digests.length_bytes as usize];
    assert_eq!(out.digests.xxh3_128, format!("{:032x}", xxhash_rust::xxh3::xxh3_128(read)), "{case}");
    let sha256 = Sha256::digest(read).iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    assert_eq!(out.digests.sha256, Some(sha256), "{case}");
    Some((out, segments))
}

/// All recorded captures, in segments of several sizes.
#[test]
fn recorded_captures_are_the_same_in_segments_and_in_order() {
    let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("samples/runs");
    let mut packed: Vec<PathBuf> = Vec::new();
    for run in std::fs::read_dir(runs).unwrap().map(|run| run.unwrap().path()).filter(|run| run.is_dir()) {
        let files = std::fs::read_dir(run).unwrap().map(|file| file.unwrap().path());
        packed.extend(files.filter(|file| file.to_string_lossy().ends_with(".pcap.zst")));
    }
    packed.sort();
    assert!(packed.len() > 100, "{}", packed.len());
    let folder = Folder::new();
    let (mut counted, mut possible) = (0, 0);
    for (index, packed) in packed.iter().enumerate() {
        let file = zstd::decode_all(std::fs::File::open(packed).unwrap()).unwrap();
        let form = FORMS.into_iter().find(|form| file.starts_with(&(form.put)(form.magic))).unwrap();
        let batch_bytes = [40_000, 64 << 10, 128 << 10, 1 << 20][index % 4];
        let (out, segments) = both(&folder, form, &file, batch_bytes, 1 + index % 9).unwrap();
        assert_eq!((out.note, out.digests.length_bytes), (None, file.len() as u64), "{}", packed.display());
        counted += segments.counted;
        possible += file.len() / batch_bytes;
    }
    // Nearly all segments find a true record start.
    assert!(counted * 100 > possible * 98, "{counted} of {possible}");
}

/// Data that look like records: records that segments find there do not count.
#[test]
fn data_that_look_like_records_do_not_count() {
    let folder = Folder::new();
    for form in FORMS {
        // The data end at a record end, or with a truncated record, after which a misled walk
        // cannot find true records again.
        for (length, inner) in [(40 * (form.record_header_bytes + 34), 34), (2_003, 34), (5_000, 200), (300, 1)] {
            let file = form.file((0..120).map(|_| records_inside(form, length, inner)));
            let (mut misled, ends) = (0, form.ends(&file));
            for batch_bytes in [100, 1_000, 4_096, 10_007] {
                let (out, segments) = both(&folder, form, &file, batch_bytes, 5).unwrap();
                assert_eq!((out.records, out.note), (120, None));
                misled += segments.rejected.iter().filter(|start| !ends.contains(&(**start as usize))).count();
            }
            assert!(misled > 0, "{form:?}, {length}, {inner}");
        }
    }
}

#[test]
fn files_that_end_anywhere() {
    let folder = Folder::new();
    let file = FORMS[2].file((0..40).map(|number| noise(number, number as usize * 7 % 64)));
    for length in 0..=file.len() {
        let Some((out, _)) = both(&folder, FORMS[2], &file[..length], 256, 1 + length % 5) else { continue };
        let end = FORMS[2].ends(&file[..length]).pop().unwrap();
        let expected = (end < length).then(|| format!("inside the record at offset {end} ("));
        assert_eq!(out.note.is_some(), expected.is_some());
        if let (Some(note), Some(expected)) = (out.note, expected) {
            assert!(note.starts_with("truncated_input") && note.contains(&expected), "{note}");
        }
        assert_eq!(out.digests.length_bytes, length as u64);
    }
}

/// How far a damaged file is read, and so its digest, is the same whether the bytes before the
/// damage were read in order or in segments.
#[test]
fn files_that_are_damaged_somewhere() {
    let folder = Folder::new();
    let form = FORMS[0];
    let whole = form.file((0..600).map(|number| noise(number, 400)));
    let record_bytes = form.record_header_bytes + 400;
    for (case, record) in (1..600).step_by(13).enumerate() {
        let mut file = whole.clone();
        let at = HEADER_BYTES + record * record_bytes;
        file[at + 8..at + 12].copy_from_slice(&[0xFF; 4]);
        let batch_bytes = [4_096, 10_000, 40_000][case % 3];
        let (out, _) = both(&folder, form, &file, batch_bytes, 1 + case % 7).unwrap();
        assert_eq!(out.records, record as u64);
        let note = out.note.unwrap();
        assert!(note.starts_with(&format!("corrupt_input: the record at offset {at} ")), "{note}");
        // An invalid header is detected once it is complete; after the first 64 KiB, reads end at
        // multiples of the batch size.
        let seen_bytes = (at + form.record_header_bytes).max(HEAD_BYTES + 1);
        let read_bytes = seen_bytes.next_multiple_of(batch_bytes).min(file.len());
        assert_eq!(out.digests.length_bytes, read_bytes as u64);
    }
}

/// Records longer than several segments, and empty records, which no search can find.
#[test]
fn long_and_empty_records() {
    let folder = Folder::new();
    for form in FORMS {
        let long = |number: u64| noise(number, if number % 10 == 5 { 70_000 } else { 300 });
        let file = form.file((0..60).map(long));
        let (_, segments) = both(&folder, form, &file, 2_000, 6).unwrap();
        assert!(segments.longest > 70_000 && segments.failed > 0, "{segments:?}");
        let empty = form.file((0..20_000).map(|_| Vec::new()));
        let (out, segments) = both(&folder, form, &empty, 1_000, 6).unwrap();
        assert_eq!(out.records, 20_000);
        // The first segment of a round needs no search.
        assert!(segments.failed > 0 && segments.rejected.is_empty(), "{segments:?}");
    }
}

#[test]
fn files_that_change_while_they_are_read() {
    let folder = Folder::new();
    let form = FORMS[0];
    let file = form.file((0..1_000).map(|number| noise(number, 350)));
    let half = form.ends(&file)[499];
    // The second half is appended inside a record, after a part has been read.
    let path = folder.file(&file[..half - 100]);
    let grow = |round| {
        if round == 2 {
            let mut grown = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
            grown.write_all(&file[half - 100..]).unwrap();
        }
    };
    let (out, segments) = in_segments(&path, 10_000, 4, &digested(), grow).unwrap();
    assert!(out.bytes == file[HEADER_BYTES..] && out.note.is_none(), "{:?}", out.note);
    assert!(segments.counted > 30, "{segments:?}");
    assert_eq!(out.digests.xxh3_128, format!("{:032x}", xxhash_rust::xxh3::xxh3_128(&file)));
    // Truncated: as if the file had never been longer.
    let path = folder.file(&file);
    let truncate = |round| {
        if round == 2 {
            std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(half as u64 - 100).unwrap();
        }
    };
    let (out, _) = in_segments(&path, 10_000, 4, &digested(), truncate).unwrap();
    let end = half - (form.record_header_bytes + 350);
    assert!(out.bytes == file[HEADER_BYTES..end]);
    assert!(out.note.unwrap().contains(&format!("inside the record at offset {end} (")));
    assert_eq!(out.digests.xxh3_128, format!("{:032x}", xxhash_rust::xxh3::xxh3_128(&file[..half - 100])));
}

#[test]
fn a_stopped_input_reports_its_offset() {
    let folder = Folder::new();
    let file = FORMS[0].file((0..1_000).map(|number| noise(number, 350)));
    let path = folder.file(&file);
    let stop = Arc::new(AtomicBool::new(false));
    let options = SourceOptions { stop: Some(Arc::clone(&stop)), ..digested() };
    let (out, segments) =
        in_segments(&path, 10_000, 4, &options, |round| stop.store(round >= 3, Ordering::Relaxed)).unwrap();
    assert_eq!(segments.counted, 12);
    let end = FORMS[0].ends(&file).into_iter().find(|end| *end >= 120_000).unwrap();
    assert!(out.bytes == file[HEADER_BYTES..end]);
    let note = format!("interrupted: analyzed up to offset {end} ({end} of the {} bytes", file.len());
    assert!(out.interrupted && out.note.as_ref().unwrap().starts_with(&note), "{:?}", out.note);
    assert_eq!((out.digests.xxh3_128.as_str(), out.digests.sha256), ("", None));
}

/// Plain and compressed files together: each gives the same result as alone.
#[test]
fn several_inputs() {
    let folder = Folder::new();
    let files: Vec<Vec<u8>> =
        (0..4).map(|seed| FORMS[0].file((0..500).map(|number| noise(seed * 1_000 + number, 300)))).collect();
    let paths: Vec<PathBuf> = files
        .iter()
        .enumerate()
        .map(|(index, file)| {
            let path = folder.0.path().join(format!("{index}.pcap"));
            let packed = if index % 2 == 1 { zstd::encode_all(&file[..], 1).unwrap() } else { file.clone() };
            std::fs::write(&path, packed).unwrap();
            path
        })
        .collect();
    let mut captures = input::open(&paths, &digested()).unwrap();
    captures.iter_mut().for_each(|capture| capture.set_batch_bytes(9_000));
    let mut feed = Feed::start(captures, 3).expect("threads");
    let mut outs: Vec<Out> = (0..4).map(|_| Out::default()).collect();
    let mut before: Vec<Batch> = Vec::new();
    loop {
        let tasks = feed.next(7);
        if tasks.is_empty() && before.is_empty() {
            break;
        }
        feed.digest(before.iter());
        before.clear();
        for (mut batches, receipt) in tasks.into_iter().map(FeedTask::run) {
            if feed.accept(receipt, batches.iter_mut()) {
                batches.iter().for_each(|batch| outs[batch.input as usize].take(batch));
                before.extend(batches);
            }
        }
    }
    for ((ending, mut out), path) in feed.finish().into_iter().zip(outs).zip(&paths) {
        out.end(ending);
        assert!(Some(out) == in_order(path, 9_000), "{}", path.display());
    }
}

/// All kinds of records, and a possible damage.
fn damaged_file() -> impl Strategy<Value = (Form, Vec<u8>)> {
    let length = prop_oneof![0..40_usize, 0..3_000_usize];
    let record = (length, 0..4_u8, any::<u64>(), 1..90_usize);
    let form = proptest::sample::select(FORMS.to_vec());
    let damage = (0..4_u8, any::<proptest::sample::Index>(), any::<u8>());
    (form, proptest::collection::vec(record, 1..60), damage).prop_map(|(form, records, (damage, at, byte))| {
        let data = |(length, fill, seed, inner)| match fill {
            0 => vec![0; length],
            1 => vec![byte; length],
            2 => noise(seed, length),
            _ => records_inside(form, length, inner),
        };
        let mut file = form.file(records.into_iter().map(data));
        let at = HEADER_BYTES + at.index(file.len() - HEADER_BYTES);
        match damage {
            0 => {}
            1 => file.truncate(at),
            2 => file[at] = byte,
            _ => file.extend(vec![byte; at % 100]),
        }
        (form, file)
    })
}

proptest! {
    #[test]
    fn any_file_is_the_same_in_segments_and_in_order((form, file) in damaged_file(), batch_bytes in 2..6_000_usize, most in 1..10_usize) {
        both(&Folder::new(), form, &file, batch_bytes, most);
    }
}
