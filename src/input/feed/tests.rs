//! Files that are cut at many places at once, held against the same files cut in order, and against a slow walk over their bytes.

use super::*;
use crate::input::{self, Digests, SourceOptions};
use ibscope_parsers::frame::Item;
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

/// What came out of a file.
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
            self.records += u64::from(matches!(item, Item::Record(_)));
        });
        assert!(!batch.bytes.is_empty() && whole == batch.bytes.len() && stop.is_none());
        self.bytes.extend(&batch.bytes);
    }

    fn end(&mut self, ending: Ending) {
        (self.digests, self.note, self.interrupted) = (ending.digests, ending.note, ending.interrupted);
    }
}

/// What became of stretches.
#[derive(Debug, Default)]
struct Stretches {
    counted: usize,
    /// Length of the longest that counted.
    longest: usize,
    /// Where those began that found records and did not count.
    lost: Vec<u64>,
    /// Found nothing.
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

/// Cuts a file in rounds of so many pieces; `between` is called after each.
fn divided(
    path: &Path,
    batch_bytes: usize,
    most: usize,
    options: &SourceOptions,
    mut between: impl FnMut(usize),
) -> Option<(Out, Stretches)> {
    let mut feed = Feed::start(vec![open(path, options, batch_bytes)?], 1).expect("threads");
    let (mut out, mut stretches) = (Out::default(), Stretches::default());
    let mut before: Vec<Batch> = Vec::new();
    for round in 1.. {
        let pieces = feed.next(most);
        if pieces.is_empty() && before.is_empty() {
            break;
        }
        assert!(pieces.len() <= most);
        // The last ones first: which worker is done when is not known.
        let mut cut: Vec<_> = pieces.into_iter().rev().map(Piece::cut).collect();
        cut.reverse();
        feed.digest(before.iter());
        before.drain(..).for_each(|batch| feed.recycle(batch.bytes));
        for (mut batches, receipt) in cut {
            let start_bytes =
                if let Outcome::Stretch { start_bytes, .. } = receipt.0 { Some(start_bytes) } else { None };
            stretches.failed += usize::from(matches!(receipt.0, Outcome::Failed { .. }));
            let counts = feed.settle(receipt, batches.iter_mut());
            match start_bytes {
                Some(_) if counts => {
                    stretches.counted += 1;
                    stretches.longest = stretches.longest.max(batches[0].bytes.len());
                }
                start_bytes => stretches.lost.extend(start_bytes),
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
    Some((out, stretches))
}

/// How a classic file is written.
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

    /// Where the records of a file end, as far as they are whole.
    fn ends(self, file: &[u8]) -> Vec<usize> {
        let (mut ends, mut at) = (Vec::new(), HEADER_BYTES);
        while let Some(length) = file.get(at + 8..at + 12).filter(|_| at + self.record_header_bytes <= file.len()) {
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

/// Numbers that look random, the same ones each time.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (state >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Data of a length that are records themselves, the last one cut.
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

/// What the file gives, by either way; the records are held against a walk of the test's own.
fn both(folder: &Folder, form: Form, file: &[u8], batch_bytes: usize, most: usize) -> Option<(Out, Stretches)> {
    let path = folder.file(file);
    let case = format!("{form:?}, {} bytes in batches of {batch_bytes}, {most} at a time", file.len());
    let expected = in_order(&path, batch_bytes);
    let found = divided(&path, batch_bytes, most, &digested(), |_| {});
    let Some((out, stretches)) = found else {
        assert!(expected.is_none(), "{case}");
        return None;
    };
    assert!(
        expected.as_ref() == Some(&out),
        "{case}: {stretches:?}: {:?} {:?}",
        expected.map(|out| out.note),
        out.note
    );
    let ends = form.ends(file);
    assert_eq!(out.records, ends.len() as u64, "{case}");
    assert!(out.bytes == file[HEADER_BYTES..ends.last().copied().unwrap_or(HEADER_BYTES)], "{case}");
    let read = &file[..out.digests.length_bytes as usize];
    assert_eq!(out.digests.xxh3_128, format!("{:032x}", xxhash_rust::xxh3::xxh3_128(read)), "{case}");
    let sha256 = Sha256::digest(read).iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    assert_eq!(out.digests.sha256, Some(sha256), "{case}");
    Some((out, stretches))
}

/// Every recorded capture, in stretches of several sizes.
#[test]
fn recorded_captures_are_what_they_are_in_order() {
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
        let (out, stretches) = both(&folder, form, &file, batch_bytes, 1 + index % 9).unwrap();
        assert_eq!((out.note, out.digests.length_bytes), (None, file.len() as u64), "{}", packed.display());
        counted += stretches.counted;
        possible += file.len() / batch_bytes;
    }
    // What is found is right but for next to nothing.
    assert!(counted * 100 > possible * 98, "{counted} of {possible}");
}

/// Data that are records themselves: what stretches find there does not count.
#[test]
fn data_that_look_like_records_mislead_nobody() {
    let folder = Folder::new();
    for form in FORMS {
        // Exactly whole records in the data, and the last one cut, so that a walk that was misled does not find back.
        for (length, inner) in [(40 * (form.record_header_bytes + 34), 34), (2_003, 34), (5_000, 200), (300, 1)] {
            let file = form.file((0..120).map(|_| records_inside(form, length, inner)));
            let (mut misled, ends) = (0, form.ends(&file));
            for batch_bytes in [100, 1_000, 4_096, 10_007] {
                let (out, stretches) = both(&folder, form, &file, batch_bytes, 5).unwrap();
                assert_eq!((out.records, out.note), (120, None));
                misled += stretches.lost.iter().filter(|start| !ends.contains(&(**start as usize))).count();
            }
            assert!(misled > 0, "{form:?}, {length}, {inner}");
        }
    }
}

#[test]
fn files_that_end_anywhere() {
    let folder = Folder::new();
    let file = FORMS[2].file((0..40).map(|number| noise(number, number as usize * 7 % 64)));
    for cut in 0..=file.len() {
        let Some((out, _)) = both(&folder, FORMS[2], &file[..cut], 256, 1 + cut % 5) else { continue };
        let end = FORMS[2].ends(&file[..cut]).pop().unwrap();
        let expected = (end < cut).then(|| format!("that starts at offset {end}:"));
        assert_eq!(out.note.is_some(), expected.is_some());
        if let (Some(note), Some(expected)) = (out.note, expected) {
            assert!(note.starts_with("truncated_input") && note.contains(&expected), "{note}");
        }
        assert_eq!(out.digests.length_bytes, cut as u64);
    }
}

/// How far a damaged file was read, and so its digest, does not depend on who has cut what is before the damage.
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
        // A header is seen to be wrong when it is there as a whole; behind the head, files are read up to multiples of a batch.
        let seen_bytes = (at + form.record_header_bytes).max(HEAD_BYTES + 1);
        let read_bytes = seen_bytes.next_multiple_of(batch_bytes).min(file.len());
        assert_eq!(out.digests.length_bytes, read_bytes as u64);
    }
}

/// Records that are longer than many stretches, and records of nothing, which nobody can find.
#[test]
fn long_and_empty_records() {
    let folder = Folder::new();
    for form in FORMS {
        let long = |number: u64| noise(number, if number % 10 == 5 { 70_000 } else { 300 });
        let file = form.file((0..60).map(long));
        let (_, stretches) = both(&folder, form, &file, 2_000, 6).unwrap();
        assert!(stretches.longest > 70_000 && stretches.failed > 0, "{stretches:?}");
        let empty = form.file((0..20_000).map(|_| Vec::new()));
        let (out, stretches) = both(&folder, form, &empty, 1_000, 6).unwrap();
        assert_eq!(out.records, 20_000);
        // The first one of a round needs not be found.
        assert!(stretches.failed > 0 && stretches.lost.is_empty(), "{stretches:?}");
    }
}

#[test]
fn files_that_change_while_they_are_read() {
    let folder = Folder::new();
    let form = FORMS[0];
    let file = form.file((0..1_000).map(|number| noise(number, 350)));
    let half = form.ends(&file)[499];
    // Grown by as much again in the midst of a record, when a part has been read.
    let path = folder.file(&file[..half - 100]);
    let grow = |round| {
        if round == 2 {
            let mut grown = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
            grown.write_all(&file[half - 100..]).unwrap();
        }
    };
    let (out, stretches) = divided(&path, 10_000, 4, &digested(), grow).unwrap();
    assert!(out.bytes == file[HEADER_BYTES..] && out.note.is_none(), "{:?}", out.note);
    assert!(stretches.counted > 30, "{stretches:?}");
    assert_eq!(out.digests.xxh3_128, format!("{:032x}", xxhash_rust::xxh3::xxh3_128(&file)));
    // Cut off: as if it had never been longer.
    let path = folder.file(&file);
    let cut = |round| {
        if round == 2 {
            std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(half as u64 - 100).unwrap();
        }
    };
    let (out, _) = divided(&path, 10_000, 4, &digested(), cut).unwrap();
    let end = half - (form.record_header_bytes + 350);
    assert!(out.bytes == file[HEADER_BYTES..end]);
    assert!(out.note.unwrap().contains(&format!("that starts at offset {end}:")));
    assert_eq!(out.digests.xxh3_128, format!("{:032x}", xxhash_rust::xxh3::xxh3_128(&file[..half - 100])));
}

#[test]
fn one_that_is_told_to_stop_says_where() {
    let folder = Folder::new();
    let file = FORMS[0].file((0..1_000).map(|number| noise(number, 350)));
    let path = folder.file(&file);
    let stop = Arc::new(AtomicBool::new(false));
    let options = SourceOptions { stop: Some(Arc::clone(&stop)), ..digested() };
    let (out, stretches) =
        divided(&path, 10_000, 4, &options, |round| stop.store(round >= 3, Ordering::Relaxed)).unwrap();
    assert_eq!(stretches.counted, 12);
    let end = FORMS[0].ends(&file).into_iter().find(|end| *end >= 120_000).unwrap();
    assert!(out.bytes == file[HEADER_BYTES..end]);
    let note = format!("interrupted: analysed up to offset {end} ({end} of the {} bytes", file.len());
    assert!(out.interrupted && out.note.as_ref().unwrap().starts_with(&note), "{:?}", out.note);
    assert_eq!((out.digests.xxh3_128.as_str(), out.digests.sha256), ("", None));
}

/// Plain and packed files beside each other: each comes as it does alone.
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
        let pieces = feed.next(7);
        if pieces.is_empty() && before.is_empty() {
            break;
        }
        feed.digest(before.iter());
        before.clear();
        for (mut batches, receipt) in pieces.into_iter().map(Piece::cut) {
            if feed.settle(receipt, batches.iter_mut()) {
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

/// Records of all sorts, and what may have happened to the file since.
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
    fn any_file_is_what_it_is_in_order((form, file) in damaged_file(), batch_bytes in 2..6_000_usize, most in 1..10_usize) {
        both(&Folder::new(), form, &file, batch_bytes, most);
    }
}
