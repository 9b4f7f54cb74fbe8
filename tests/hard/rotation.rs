//! A rotated capture gives the profile of the whole one, byte for byte but for the list of inputs.
//!
//! Every recorded run, at its sink and at one of its ports, is split at random records.

use crate::{THREADS, in_parallel};
use ibscope::pipeline::{AnalysisOptions, DigestChoice, ProfileWriter, analyze, captures_in};
use ibscope_samples::Random;
use ibscope_samples::hard::{Recording, combine, split};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// How the files of a rotated capture lie beside each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seam {
    /// Each record is in one file.
    Exact,
    /// The end of a file holds up to 200 records of the next.
    Shared,
    /// The first record of a file is 20 µs earlier than the last record of the file before.
    Disorder,
    /// Nothing was sent for 60 s between two files.
    Idle,
    /// As `Exact`, in any order on the command line.
    AnyOrder,
}

const SEAMS: [Seam; 5] = [Seam::Exact, Seam::Shared, Seam::Disorder, Seam::Idle, Seam::AnyOrder];
const PARTS: [usize; 6] = [2, 3, 5, 9, 20, 100];

fn captures() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("samples");
    let folders = ["runs", "runs2"].iter().flat_map(|set| std::fs::read_dir(root.join(set)).expect("runs"));
    let mut folders: Vec<PathBuf> = folders.map(|entry| entry.expect("entry").path()).collect();
    folders.sort();
    let files = folders.iter().flat_map(|folder| ["sink.ib.pcap.zst", "node1.pcap.zst"].map(|name| folder.join(name)));
    files.filter(|path| path.exists()).collect()
}

/// All files of the profile of these captures; `profile.json` without what may differ.
fn profile(recordings: &[Recording]) -> BTreeMap<String, Vec<u8>> {
    let folder = tempfile::tempdir().expect("folder");
    let write = |(number, recording): (usize, &Recording)| {
        let path = folder.path().join(format!("{number}.pcap"));
        recording.write(&path).expect("capture");
        path
    };
    profile_of(&recordings.iter().enumerate().map(write).collect::<Vec<_>>())
}

fn profile_of(paths: &[PathBuf]) -> BTreeMap<String, Vec<u8>> {
    let folder = tempfile::tempdir().expect("folder");
    let digests = DigestChoice { xxh3: false, sha256: false };
    let options = AnalysisOptions { threads: 1, digests, ..AnalysisOptions::default() };
    let profile = analyze(paths, &options, &|_| {}).expect("profile");
    let place = folder.path().join("p.ibp");
    ProfileWriter::create(&place, &[]).expect("place").finish(&profile).expect("written");
    let entries = std::fs::read_dir(&place).expect("profile").map(|entry| entry.expect("entry").path());
    let mut files: BTreeMap<String, Vec<u8>> = entries
        .map(|path| {
            (path.file_name().expect("name").to_string_lossy().into_owned(), std::fs::read(&path).expect("file"))
        })
        .collect();
    let mut document: Value = serde_json::from_slice(&files["profile.json"]).expect("json");
    document["inputs"].take();
    document["coverage"]["overlap_packets"].take();
    files.insert("profile.json".to_owned(), serde_json::to_vec_pretty(&document).expect("json"));
    files
}

/// A file without records is refused, which the suite checks elsewhere.
fn not_empty(files: Vec<Recording>) -> Vec<Recording> {
    files.into_iter().filter(|file| !file.records.is_empty()).collect()
}

/// The files, and the whole capture that they must equal.
fn rotated(whole: &Recording, parts: usize, seam: Seam, random: &mut Random) -> (Vec<Recording>, Recording) {
    let mut points = split::split_points(whole, parts, random);
    // With the time of its first record changed, a file of one record could be anywhere.
    if seam == Seam::Disorder {
        let mut last = 0;
        points.retain(|point| {
            let is_kept = *point >= last + 10;
            last = if is_kept { *point } else { last };
            is_kept
        });
    }
    let overlap = if seam == Seam::Shared { 1 + random.below(200) as usize } else { 0 };
    let exact = not_empty(split::rotate(whole, &points, 0));
    let whole = combine::concatenate(&exact);
    match seam {
        Seam::Exact => (exact, whole),
        Seam::Shared => (not_empty(split::rotate(&whole, &points, overlap)), whole),
        Seam::Disorder => {
            let files = split::disorder(&exact, 20_000);
            let whole = combine::concatenate(&files);
            (files, whole)
        }
        Seam::Idle => {
            let shift = |(number, file): (usize, &Recording)| combine::shift(file, number as i64 * 60_000_000_000);
            let files: Vec<Recording> = exact.iter().enumerate().map(shift).collect();
            let whole = combine::concatenate(&files);
            (files, whole)
        }
        Seam::AnyOrder => {
            let mut files = exact;
            split::shuffle(&mut files, random);
            (files, whole)
        }
    }
}

/// What differs between the two profiles.
fn difference(one: &BTreeMap<String, Vec<u8>>, other: &BTreeMap<String, Vec<u8>>) -> Option<String> {
    let tables: BTreeSet<&String> =
        one.keys().chain(other.keys()).filter(|name| one.get(*name) != other.get(*name)).collect();
    let text = |files: &BTreeMap<String, Vec<u8>>| String::from_utf8(files["profile.json"].clone()).expect("text");
    let (one, other) = (text(one), text(other));
    let missing = |of: &str, others: &str| -> Vec<String> {
        of.lines().filter(|line| !others.lines().any(|other| other == *line)).take(6).map(str::to_owned).collect()
    };
    (!tables.is_empty()).then(|| {
        format!("{tables:?} differ; of the whole {:?}; of the files {:?}", missing(&one, &other), missing(&other, &one))
    })
}

/// Checks cases of all captures: `(capture, parts, seam)` by number.
fn check(cases: &[(usize, usize, Seam)]) {
    let captures = captures();
    assert!(captures.len() >= 80, "{}", captures.len());
    let failed = Mutex::new(Vec::new());
    in_parallel(cases, THREADS, |&(capture, parts, seam)| {
        let path = &captures[capture % captures.len()];
        let whole = Recording::read(path).expect("capture");
        let mut random = Random::new((capture * 1000 + parts * 10) as u64 + seam as u64);
        let (files, whole) = rotated(&whole, parts, seam, &mut random);
        if let Some(difference) = difference(&profile(&[whole]), &profile(&files)) {
            let folder = path.parent().expect("folder").file_name().expect("name").to_string_lossy().into_owned();
            let name = path.file_name().expect("name").to_string_lossy().into_owned();
            if let Some(keep) = std::env::var_os("IBSCOPE_HARD_KEEP") {
                let write = |(number, file): (usize, &Recording)| {
                    let name = format!("{capture}-{parts}-{seam:?}-{number}.pcap");
                    file.write(&Path::new(&keep).join(name)).expect("capture");
                };
                files.iter().enumerate().for_each(write);
            }
            failed.lock().expect("list").push(format!("{folder}/{name}, {parts} parts, {seam:?}: {difference}"));
        }
    });
    let mut failed = failed.into_inner().expect("list");
    failed.sort();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Each capture once, with parts and seams in turn.
#[test]
fn rotated_captures_equal_the_whole() {
    let count = captures().len();
    let case = |capture: usize| (capture, PARTS[capture % PARTS.len()], SEAMS[capture / PARTS.len() % SEAMS.len()]);
    check(&(0..count).map(case).collect::<Vec<_>>());
}

#[test]
#[ignore = "takes minutes; `make soak` runs it"]
fn all_rotated_captures_equal_the_whole() {
    let cases = (0..captures().len())
        .flat_map(|capture| PARTS.iter().flat_map(move |parts| SEAMS.iter().map(move |seam| (capture, *parts, *seam))));
    check(&cases.collect::<Vec<_>>());
}

/// Four sinks with 16 files each, in a folder for each sink, give the profile of the four whole
/// files. The sinks are those of four leaf switches with one node each.
#[test]
fn a_folder_of_four_rotated_sinks_equals_four_files() {
    const SINKS: usize = 4;
    const FILES: usize = 16;
    for name in ["runs/scorep-ompi-rc-halo-4x1", "runs/ompi-openib-notrace-mixed-4x1", "runs2/ompi5-coll-default-4x1"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("samples").join(name).join("sink.ib.pcap.zst");
        let sink = Recording::read(&path).expect("capture");
        let sinks = split::by_leaf(&sink, SINKS, |endpoint| endpoint.low_bits() as usize % SINKS);
        let folder = tempfile::tempdir().expect("folder");
        let mut random = Random::new(name.len() as u64);
        for (number, sink) in sinks.iter().enumerate() {
            assert!(sink.records.len() > FILES * 16, "{name}: {} records at sink {number}", sink.records.len());
            let own = folder.path().join(format!("sink{number}"));
            std::fs::create_dir(&own).expect("folder");
            // No file is shorter than half of the mean.
            let length = sink.records.len() / FILES;
            let shift = |file: usize| file * length - random.below(length as u64 / 2) as usize;
            let points: Vec<usize> = (1..FILES).map(shift).collect();
            let files = split::rotate(sink, &points, 0);
            for (file, recording) in files.iter().enumerate() {
                recording.write(&own.join(format!("{file:02}.pcap"))).expect("capture");
            }
        }
        std::fs::write(folder.path().join("notes.txt"), "not a capture").expect("notes");
        let found = captures_in(folder.path()).expect("captures");
        assert_eq!(found.skipped, [PathBuf::from("notes.txt")]);
        assert_eq!(found.captures.len(), SINKS * FILES);
        let difference = difference(&profile(&sinks), &profile_of(&found.captures));
        assert_eq!(difference, None, "{name}");
    }
}
