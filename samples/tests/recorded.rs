//! Checks the table of `README.md`: every sample is a copy of the file that its row names and has
//! the stated number of records, and every truth is that of the run.

#![expect(clippy::unwrap_used, reason = "a test that cannot read its files has failed")]

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

/// The rows of the table: sample, file of the run, number of records.
fn rows() -> Vec<(String, String, usize)> {
    let readme = fs::read_to_string(folder().join("README.md")).unwrap();
    let rows = readme.lines().filter(|line| line.starts_with("| `") && line.contains(".pcap.zst"));
    rows.map(|line| {
        let cells: Vec<&str> = line.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        (cells[1].to_owned(), cells[2].to_owned(), cells[5].parse().unwrap())
    })
    .collect()
}

fn le32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().unwrap())
}

#[test]
fn every_sample_is_in_the_table() {
    let mut named: Vec<String> = rows().into_iter().map(|(sample, ..)| sample).collect();
    let files = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut present: Vec<String> =
        files.filter(|name| Path::new(name).extension().is_some_and(|end| end == "zst")).collect();
    named.sort();
    present.sort();
    assert_eq!(named, present);
    assert_eq!(named.len(), 8);
}

#[test]
fn samples_are_the_files_of_their_runs() {
    for (sample, source, records) in rows() {
        let bytes = fs::read(folder().join(&sample)).unwrap();
        assert!(bytes == fs::read(folder().join(&source)).unwrap(), "{sample} differs from {source}");
        let file = zstd::decode_all(&bytes[..]).unwrap();
        let mut copies: HashMap<&[u8], usize> = HashMap::new();
        let mut found = 0;
        let mut at = 24;
        // Link type 197: skip the ERF header, whose timestamp differs between mirror copies.
        let skipped = if le32(&file[20..]) == 197 { 16 } else { 0 };
        while at < file.len() {
            let length = le32(&file[at + 8..]) as usize;
            *copies.entry(&file[at + 16 + skipped..at + 16 + length]).or_default() += 1;
            at += 16 + length;
            found += 1;
        }
        assert_eq!(found, records, "{sample}");
        // A sink records every packet at two ports, so never an odd number of times.
        assert!(skipped == 0 || copies.values().all(|count| count % 2 == 0), "{sample}");
    }
}

#[test]
fn truths_are_those_of_their_runs() {
    let mut compared = 0;
    for (sample, source, _) in rows() {
        let run = folder().join(source).parent().unwrap().to_path_buf();
        let name = sample.split('.').next().unwrap();
        let (truth, original) = if name.starts_with("perftest") {
            (format!("{name}.truth.txt"), "stdout.txt")
        } else {
            (format!("{name}.truth.csv"), "wire.csv")
        };
        let truth = fs::read_to_string(folder().join(&truth)).unwrap();
        assert_eq!(truth, fs::read_to_string(run.join(original)).unwrap(), "{sample}");
        compared += 1;
    }
    assert_eq!(compared, 8);
}
