//! Inputs that are truncated, damaged, not captures, or not plain files.

use crate::runs::{decompressed, is_roce};
use crate::tools::{
    HEADER_BYTES, ProgramResult, as_pcapng, ibscope, ibscope_fed, in_parallel, link_type, random, result, sample, walk,
};
use ibscope::model::Profile;
use ibscope::pipeline::{AnalysisOptions, PipelineError, analyze};
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A capture in which every record is an InfiniBand packet.
struct IntactCapture {
    name: &'static str,
    bytes: Vec<u8>,
    /// Byte ranges of the records or blocks after the file header.
    pieces: Vec<Range<usize>>,
    /// Number of first pieces without a packet (pcapng section header and interface).
    before_packets: usize,
}

/// Native InfiniBand in microseconds, RoCE in nanoseconds, and pcapng.
fn captures() -> Vec<IntactCapture> {
    let native = decompressed(&sample("perftest-read-lat"));
    let mixed = decompressed(&sample("ucx-rc-ring2.node1"));
    let mut roce = mixed[..HEADER_BYTES].to_vec();
    for record in walk(&mixed).iter().filter(|record| is_roce(record.data(&mixed))) {
        roce.extend(&mixed[record.place.clone()]);
    }
    let pcapng = as_pcapng(&native);
    let classic = |name, bytes: Vec<u8>| {
        let pieces = walk(&bytes).into_iter().map(|record| record.place).collect();
        IntactCapture { name, bytes, pieces, before_packets: 0 }
    };
    let pieces = blocks(&pcapng);
    vec![
        classic("native", native),
        classic("roce", roce),
        IntactCapture { name: "pcapng", bytes: pcapng, pieces, before_packets: 2 },
    ]
}

/// Byte ranges of the blocks of a little-endian pcapng file.
fn blocks(file: &[u8]) -> Vec<Range<usize>> {
    let mut blocks = Vec::new();
    let mut at = 0;
    while at < file.len() {
        let length = u32::from_le_bytes(file[at + 4..at + 8].try_into().expect("length")) as usize;
        blocks.push(at..at + length);
        at += length;
    }
    blocks
}

impl IntactCapture {
    /// Lengths to truncate to: every one in the first KiB, and 200 random ones.
    fn cuts(&self) -> Vec<usize> {
        let mut random = random(self.bytes.len() as u64);
        (0..=1024).chain((0..200).map(|_| random(self.bytes.len()))).collect()
    }

    /// Number of complete pieces in a file truncated at `cut`, and the start of the incomplete
    /// piece, if any.
    fn left_at(&self, cut: usize) -> (usize, Option<usize>) {
        let whole = self.pieces.partition_point(|piece| piece.end <= cut);
        let inside = self.pieces.get(whole).filter(|piece| piece.start < cut);
        (whole, inside.map(|piece| piece.start))
    }
}

/// Analyzes bytes as a file.
fn analyze_bytes(folder: &Path, name: &str, bytes: &[u8]) -> Result<Profile, PipelineError> {
    let path = folder.join(name);
    std::fs::write(&path, bytes).expect("written");
    let options = AnalysisOptions { threads: 1, ..AnalysisOptions::default() };
    let profile = analyze(std::slice::from_ref(&path), &options, &|_| {});
    std::fs::remove_file(&path).expect("removed");
    profile
}

/// The note that has this word after the path of the input.
fn note<'a>(profile: &'a Profile, word: &str) -> Option<&'a str> {
    profile
        .notes
        .iter()
        .find_map(|note| note.split_once(": ").map(|(_, note)| note).filter(|note| note.starts_with(word)))
}

/// The number after `offset` in a note.
fn offset(note: &str) -> usize {
    let digits: String = note.split_once(" offset ").expect(note).1.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect(note)
}

#[test]
fn truncated_files_give_their_complete_records() {
    let folder = tempfile::tempdir().expect("folder");
    for whole in captures() {
        in_parallel(&whole.cuts(), |index, &cut| {
            let case = format!("{} cut at {cut}", whole.name);
            let result = analyze_bytes(folder.path(), &format!("{}-{index}.pcap", whole.name), &whole.bytes[..cut]);
            let (pieces, inside) = whole.left_at(cut);
            let records = pieces.saturating_sub(whole.before_packets);
            if records == 0 {
                let Err(PipelineError::Input(error)) = result else { panic!("{case}: no error") };
                assert!(error.to_string().contains(&format!("ends at offset {cut}")), "{case}: {error}");
                return;
            }
            let profile = result.unwrap_or_else(|error| panic!("{case}: {error}"));
            assert_eq!(profile.coverage.records, records as u64, "{case}");
            assert_eq!(profile.coverage.infiniband, records as u64, "{case}");
            let truncated_at = note(&profile, "truncated_input").map(offset);
            assert_eq!(truncated_at, inside, "{case}: {:?}", profile.notes);
            assert!(profile.notes.iter().all(|note| !note.contains("corrupt_input")), "{case}: {:?}", profile.notes);
        });
    }
}

#[test]
fn the_program_reports_where_a_file_is_truncated() {
    let folder = tempfile::tempdir().expect("folder");
    for whole in captures() {
        let first_end = whole.pieces[whole.before_packets].end;
        let hundredth = whole.pieces[100].clone();
        let cuts = [0, 3, 11, 24, 30, first_end - 1, first_end, first_end + 1, hundredth.start + 9, hundredth.end];
        for cut in cuts {
            let case = format!("{} cut at {cut}", whole.name);
            let path = folder.path().join(format!("{}-{cut}.pcap", whole.name));
            std::fs::write(&path, &whole.bytes[..cut]).expect("written");
            let (_, inside) = whole.left_at(cut);
            for arguments in [&["matrix", "--format", "csv"][..], &["inspect", "--format", "csv"]] {
                let ran = on(arguments, &path);
                if cut < first_end {
                    assert_eq!(ran.code, 1, "{case}");
                    // The header of a table may be there, but no row.
                    assert!(ran.stdout.lines().count() <= 1, "{case}: {}", ran.stdout);
                    assert!(ran.stderr.contains(&path.display().to_string()), "{case}: {}", ran.stderr);
                    assert!(ran.stderr.contains(&format!("ends at offset {cut}")), "{case}: {}", ran.stderr);
                    continue;
                }
                assert_eq!(ran.code, 0, "{case}: {}", ran.stderr);
                assert!(ran.stdout.lines().count() > 1, "{case}");
                assert_eq!(ran.stderr.contains("truncated_input"), inside.is_some(), "{case}: {}", ran.stderr);
                if inside.is_some() {
                    assert_eq!(Some(offset(&ran.stderr)), inside, "{case}: {}", ran.stderr);
                }
            }
        }
    }
}

fn on(arguments: &[&str], path: &Path) -> ProgramResult {
    ibscope(arguments.iter().map(AsRef::as_ref).chain([path.as_os_str()]))
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("gzip");
    encoder.finish().expect("gzip")
}

#[test]
fn truncated_compressed_files_give_an_error_or_a_note() {
    let folder = tempfile::tempdir().expect("folder");
    let path = sample("ucx-ud-ring2");
    let plain = decompressed(&path);
    let records = walk(&plain);
    let packed = [("zst", std::fs::read(path).expect("sample")), ("gz", gzip(&plain))];
    for (name, packed) in packed {
        let mut random = random(packed.len() as u64);
        let ends = (0..20).chain(packed.len() - 20..packed.len());
        let cuts: Vec<usize> = ends.chain((0..200).map(|_| random(packed.len()))).collect();
        let results = AtomicUsize::new(0);
        in_parallel(&cuts, |index, &cut| {
            let case = format!("{name} of {} bytes cut at {cut}", packed.len());
            match analyze_bytes(folder.path(), &format!("{index}.pcap.{name}"), &packed[..cut]) {
                Err(PipelineError::Input(_)) => {}
                Err(error) => panic!("{case}: {error}"),
                Ok(profile) => {
                    let text =
                        note(&profile, "truncated_input").unwrap_or_else(|| panic!("{case}: {:?}", profile.notes));
                    let whole = records.partition_point(|record| record.place.end <= offset(text));
                    assert_eq!(profile.coverage.records, whole as u64, "{case}: {text}");
                    results.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let results = results.into_inner();
        assert!((100..cuts.len()).contains(&results), "{name}: {results} of {} cuts gave a result", cuts.len());
    }
}

#[test]
fn every_kind_of_input_gives_the_same_rows() {
    let folder = tempfile::tempdir().expect("folder");
    for name in ["perftest-read-lat", "ucx-rc-ring2.node1"] {
        let sample = sample(name);
        let plain = decompressed(&sample);
        let (first, second) = plain.split_at(plain.len() / 3);
        let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 1).expect("zstd");
        let ways = [
            ("plain.pcap", plain.clone()),
            ("one.gz", gzip(&plain)),
            ("members.gz", [gzip(first), gzip(second)].concat()),
            // As `gunzip` reads it.
            ("padded.gz", [gzip(&plain), vec![0; 10_240]].concat()),
            ("frames.zst", [zstd(first), zstd(second)].concat()),
            // The format is detected from the content, not from the name.
            ("misnamed.pcap", zstd(&plain)),
            ("rewritten.pcapng", as_pcapng(&plain)),
        ];
        for arguments in
            [&["inspect", "--format", "csv"][..], &["matrix", "--format", "csv"], &["timeline", "--format", "csv"]]
        {
            let expected = result(arguments, &[&sample]);
            assert!(expected.lines().count() > 2, "{name}: {arguments:?}");
            for (way, bytes) in &ways {
                let path = folder.path().join(way);
                std::fs::write(&path, bytes).expect("written");
                assert_eq!(result(arguments, &[path]), expected, "{name}: {arguments:?} of {way}");
            }
            for bytes in [&plain, &std::fs::read(&sample).expect("sample")] {
                let ran = ibscope_fed(arguments.iter().chain(&["-"]), bytes);
                assert_eq!((ran.code, ran.stdout), (0, expected.clone()), "{name}: {arguments:?} of -: {}", ran.stderr);
            }
            let pipe = folder.path().join("pipe");
            let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
            assert!(made.success());
            let from_pipe = std::thread::scope(|scope| {
                scope.spawn(|| std::fs::write(&pipe, &plain).expect("written"));
                result(arguments, &[&pipe])
            });
            assert_eq!(from_pipe, expected, "{name}: {arguments:?} of a FIFO");
            std::fs::remove_file(pipe).expect("removed");
        }
    }
}

#[test]
fn an_invalid_record_ends_the_input() {
    let folder = tempfile::tempdir().expect("folder");
    for whole in captures() {
        let middle = whole.pieces.len() / 2;
        let place = whole.pieces[middle].clone();
        // `incl_len` of a record, `total_length` of a block.
        let at = place.start + if whole.before_packets == 0 { 8 } else { 4 };
        let mut bytes = whole.bytes.clone();
        bytes[at..at + 4].copy_from_slice(&[0xFF; 4]);
        let profile = analyze_bytes(folder.path(), "corrupt.pcap", &bytes).expect(whole.name);
        let text = note(&profile, "corrupt_input").unwrap_or_else(|| panic!("{}: {:?}", whole.name, profile.notes));
        assert_eq!(offset(text), place.start, "{}: {text}", whole.name);
        assert_eq!(profile.coverage.records, (middle - whole.before_packets) as u64, "{}", whole.name);
        let path = folder.path().join("corrupt.pcap");
        std::fs::write(&path, &bytes).expect("written");
        for command in ["matrix", "timeline", "inspect"] {
            let ran = on(&[command, "--format", "csv"], &path);
            assert_eq!(ran.code, 0, "{}", ran.stderr);
            let expected = format!("note: {}: corrupt_input: the record at offset {} ", path.display(), place.start);
            assert!(ran.stderr.contains(&expected), "{}", ran.stderr);
        }
    }
}

/// A host that crashes may leave the last blocks of its files as zeros, which are no records of 1970.
#[test]
fn zeros_after_the_last_record_end_the_input() {
    let folder = tempfile::tempdir().expect("folder");
    // Also more than a part that a worker reads at a time.
    for zeros in [16, 4096, 3 << 20] {
        for whole in captures().iter().filter(|whole| whole.before_packets == 0) {
            let expected = analyze_bytes(folder.path(), "whole.pcap", &whole.bytes).expect(whole.name);
            let bytes = [whole.bytes.clone(), vec![0; zeros]].concat();
            let profile = analyze_bytes(folder.path(), "zeros.pcap", &bytes).expect(whole.name);
            let text = note(&profile, "corrupt_input").unwrap_or_else(|| panic!("{}: {:?}", whole.name, profile.notes));
            assert_eq!(offset(text), whole.bytes.len(), "{}: {text}", whole.name);
            assert_eq!(profile.coverage.records, expected.coverage.records, "{}", whole.name);
            assert_eq!(profile.coverage.first_time_ns, expected.coverage.first_time_ns, "{}", whole.name);
        }
    }
}

#[test]
fn other_files_are_rejected_with_path_reason_and_next_step() {
    let folder = tempfile::tempdir().expect("folder");
    let file = |name: &str, bytes: &[u8]| -> PathBuf {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        path
    };
    let mut ip_over_ib = decompressed(&sample("perftest-read-lat"));
    assert_eq!(link_type(&ip_over_ib), 197);
    ip_over_ib[20] = 242;
    let only_header = ip_over_ib[..HEADER_BYTES].iter().copied().enumerate();
    let only_header: Vec<u8> = only_header.map(|(at, byte)| if at == 20 { 197 } else { byte }).collect();
    let png = [0x89, b'P', b'N', b'G', 0x0D, 0x0A, 0x1A, 0x0A, 0, 0, 0, 13];
    let cases = [
        (file("zeros", &[0; 5000]), ["starts with 00 00 00 00", "editcap"]),
        (file("text", b"frame,time_ns,src,dst\n1,2,3,4\n"), ["starts with 66 72 61 6d", "editcap"]),
        (file("figure.png", &png), ["starts with 89 50 4e 47", "editcap"]),
        // The magic numbers of the xz and the bzip2 format.
        (file("a.pcap.xz", b"\xFD7zXZ\0\0\x04\xE6\xD6\xB4\x46"), ["starts with fd 37 7a 58", "`xz -d`"]),
        (file("a.pcap.bz2", b"BZh91AY&SY\0\0\0\0"), ["starts with 42 5a 68 39", "`bunzip2`"]),
        (file("empty", &[]), ["ends at offset 0", "was the capture started"]),
        (file("only-header.pcap", &only_header), ["it holds no packet", "was the capture started"]),
        (file("empty.gz", &gzip(&[])), ["ends at offset 0", "was the capture started"]),
        (file("ipoib.pcap", &ip_over_ib), ["link type IP over InfiniBand (242)", "capture with ibdump"]),
        (folder.path().join("missing"), ["cannot be opened", "No such file"]),
        (folder.path().to_owned(), ["director", ""]),
    ];
    for (path, expected) in cases {
        for command in ["analyze", "inspect", "matrix", "timeline"] {
            let ran = on(&[command], &path);
            let case = format!("{command} {}: {}", path.display(), ran.stderr);
            assert_eq!(ran.code, 1, "{case}");
            assert!(ran.stderr.starts_with("ibscope: "), "{case}");
            assert!(ran.stderr.contains(&path.display().to_string()), "{case}");
            for text in expected {
                // Messages of the operating system use "directory", those of ibscope "folder".
                assert!(ran.stderr.replace("folder", "directory").contains(text), "{case}");
            }
            assert_eq!(ran.stderr.lines().count(), 1, "{case}");
            // `inspect` streams, so the header of its table may be there.
            assert!(ran.stdout.lines().count() <= usize::from(command == "inspect"), "{case}: {}", ran.stdout);
        }
    }
}

#[test]
fn captures_without_infiniband_are_rejected_with_their_content() {
    let folder = tempfile::tempdir().expect("folder");
    let mixed = decompressed(&sample("ucx-rc-ring2.node1"));
    let mut others = mixed[..HEADER_BYTES].to_vec();
    let records = walk(&mixed);
    let kept: Vec<_> = records.iter().filter(|record| !is_roce(record.data(&mixed))).collect();
    for record in &kept {
        others.extend(&mixed[record.place.clone()]);
    }
    let path = folder.path().join("others.pcap");
    std::fs::write(&path, others).expect("written");
    let ran = on(&["matrix"], &path);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{}", ran.stderr);
    let expected = format!("no InfiniBand packet among {} records", kept.len());
    assert!(ran.stderr.contains(&expected) && ran.stderr.contains("x TCP"), "{}", ran.stderr);
    assert!(ran.stderr.contains("UDP port 4791"), "{}", ran.stderr);
}
