//! `otf2`, `goal` and `chakra` on 50 million messages. Scratch files and results take up to 15 GB; the
//! captures go through a pipe.

use crate::memory::{self, MIB};
use ibscope_samples::{SampleOptions, SampleStack, TrafficPattern};
use std::fs;
use std::io::BufWriter;
use std::path::Path;
use std::process::{Command, Stdio};

/// Bytes of a capture with at least 16 and 50 million messages: a message and its share of the ACKs
/// take less than 155 bytes. With 16 million, the time series of `otf2` have their most rows.
const SIZES: [(u64, u64); 2] = [(16_000_000, 2_480_000_000), (50_000_000, 7_750_000_000)];

/// Peaks of 16 million messages, with a margin of a fourth or more.
const MOST_BYTES: [(&str, u64); 3] = [("otf2", 256 * MIB), ("goal", 512 * MIB), ("chakra", 512 * MIB)];

/// More memory for three times as many messages: the files that an external sort merges have a buffer of
/// 8 KiB each, and hold a million items.
const MORE_BYTES: u64 = 32 * MIB;

/// Writes a capture into the standard input of `command`, which writes `output` from it; returns the
/// peak resident memory in bytes, and the standard error.
fn export(command: &str, options: &SampleOptions, output: &Path) -> (u64, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ibscope"))
        .args([command, "-", "--threads", "2", "-o"])
        .arg(output)
        .env("MIMALLOC_PURGE_DELAY", "0")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("spawn");
    let mut stdin = BufWriter::new(child.stdin.take().expect("standard input"));
    let mut stderr = child.stderr.take().expect("standard error");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            ibscope_samples::generate(options, &mut stdin).expect("generate");
        });
        let printed = scope.spawn(move || std::io::read_to_string(&mut stderr).expect("text"));
        let peak_bytes = memory::watch(&mut child);
        let printed = printed.join().expect("text");
        assert!(child.wait().expect("wait").success(), "{printed}");
        (peak_bytes, printed)
    })
}

#[test]
fn fifty_million_messages_are_exported_in_bounded_memory() {
    let folder = tempfile::tempdir().expect("folder");
    for (command, most_bytes) in MOST_BYTES {
        let peaks = SIZES.map(|(messages, bytes)| {
            let options = SampleOptions {
                bytes,
                lids: 8,
                pattern: Some(TrafficPattern::Ring),
                stack: SampleStack::Ucx,
                ..SampleOptions::default()
            };
            let output = folder.path().join("output");
            let (peak_bytes, printed) = export(command, &options, &output);
            // "50 123 456 messages ...": the first number of the first line.
            let digits = printed.chars().take_while(|c| c.is_ascii_digit() || c.is_whitespace());
            let written: u64 = digits.filter(char::is_ascii_digit).collect::<String>().parse().expect("a number");
            assert!(written >= messages, "{command}: {printed}");
            println!("{command}: {written} messages, {} MiB", peak_bytes / MIB);
            if output.is_dir() { fs::remove_dir_all(&output) } else { fs::remove_file(&output) }.expect("removed");
            peak_bytes
        });
        assert!(peaks[0] < most_bytes && peaks[1] < peaks[0] + MORE_BYTES, "{command}: {peaks:?} bytes");
    }
}
