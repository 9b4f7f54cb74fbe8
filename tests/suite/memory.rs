//! Peak memory is bounded by the batches in flight, the number of connections and the cells of the
//! timeline, and not by the size of the capture.

use ibscope_samples::SampleTotals;
use serde_json::Value;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub(crate) const MIB: u64 = 1 << 20;
/// Maximum for each of the runs below.
pub(crate) const MAX_BYTES: u64 = 300 * MIB;
/// Maximum of additional memory for a capture of fifteen times the size. 64 bytes for each of its
/// packets would need 127 MiB.
const MORE_BYTES: u64 = 64 * MIB;

/// The batches in flight grow with the threads, so their number must not depend on the machine.
pub(crate) const ANALYZE: &[&str] = &["analyze", "--threads", "2"];
/// Maximum per directed connection of a few packets: with all analyses, or packets only. Of these,
/// 40 bytes are for the path fields and for the squares that estimates need, and some 100 for the
/// union of inputs and the bounds of losses, before spare room. Batches in flight have room for the
/// connections of the batch before, 64 bytes each.
const MAX_BYTES_PER_CONNECTION: [(&[&str], u64); 2] = [(ANALYZE, 1920), (MATRIX, 1088)];
/// The timeline grows with the captured time, up to its bound of cells. With one bin it does not,
/// and the rest must not grow either.
const ANALYZE_ONE_BIN: &[&str] = &["analyze", "--threads", "2", "--bin", "1h"];
pub(crate) const MATRIX: &[&str] = &["matrix", "--no-mpi", "--format", "csv", "--threads", "2"];

/// A mirror sink's capture of 64 LIDs in ibdump's layout.
pub(crate) fn generate(path: &Path, bytes: u64) -> SampleTotals {
    generate_of(
        path,
        &ibscope_samples::SampleOptions { bytes, lids: 64, mirror: 2, ..ibscope_samples::SampleOptions::default() },
    )
}

/// Writes a capture to disk packet by packet.
pub(crate) fn generate_of(path: &Path, options: &ibscope_samples::SampleOptions) -> SampleTotals {
    let mut out = BufWriter::new(File::create(path).expect("create"));
    let totals = ibscope_samples::generate(options, &mut out).expect("generate");
    out.flush().expect("write");
    assert!(totals.file_bytes >= options.bytes);
    totals
}

/// Runs the program; returns its peak resident memory in bytes, and its output.
pub(crate) fn run(arguments: &[&str], capture: &Path) -> (u64, String) {
    let output = capture.with_extension("output");
    let mut child = Command::new(env!("CARGO_BIN_EXE_ibscope"))
        .args(arguments)
        .arg(capture)
        // Freed memory returns to the system at once, so the peak is the memory in use.
        .env("MIMALLOC_PURGE_DELAY", "0")
        .stdin(Stdio::null())
        .stdout(File::create(&output).expect("create"))
        .spawn()
        .expect("spawn");
    let peak_bytes = watch(&mut child);
    assert!(child.wait().expect("wait").success(), "{arguments:?}");
    // A smaller peak means that the program was not sampled while it ran.
    assert!(peak_bytes > MIB, "{arguments:?}: peak {peak_bytes} bytes");
    (peak_bytes, std::fs::read_to_string(output).expect("output"))
}

/// Compares a capture with an archive of another run; returns the peak resident memory in bytes and
/// the comparison.
pub(crate) fn crosscheck(capture: &Path, archive: &Path) -> (u64, Value) {
    let output = archive.with_extension("output");
    let mut child = Command::new(env!("CARGO_BIN_EXE_ibscope"))
        .arg("crosscheck")
        .args([capture, archive])
        .args(["--format", "json", "--threads", "2"])
        .stdin(Stdio::null())
        .stdout(File::create(&output).expect("create"))
        .stderr(Stdio::null())
        .spawn()
        .expect("spawn");
    let peak_bytes = watch(&mut child);
    assert_eq!(child.wait().expect("wait").code(), Some(4), "it differs");
    let json: Value = serde_json::from_reader(File::open(output).expect("output")).expect("json");
    (peak_bytes, json)
}

/// Peak resident memory until the program ends, of itself or of a program that it runs, whichever is
/// larger. The system keeps the high-water mark, so sampling misses only the growth of the last
/// millisecond.
pub(crate) fn watch(child: &mut Child) -> u64 {
    let own = child.id().to_string();
    let mut peak_bytes = 0;
    while child.try_wait().expect("wait").is_none() {
        let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
        for process in children.split_whitespace().chain([own.as_str()]) {
            // The line disappears when the program has ended and its status is not collected yet.
            let status = std::fs::read_to_string(format!("/proc/{process}/status"));
            let seen_bytes = status.ok().and_then(|text| high_water(&text));
            peak_bytes = peak_bytes.max(seen_bytes.unwrap_or(0));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    peak_bytes
}

/// `VmHWM:     1234 kB`, in bytes.
fn high_water(status: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    value.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// The matrix contains every packet of the capture, so no memory is saved by dropping traffic.
pub(crate) fn assert_whole(csv: &str, totals: &SampleTotals) {
    let mut lines = csv.lines();
    let column = lines.next().expect("head").split(',').position(|name| name == "packets").expect("packets");
    let packets = |line: &str| line.split(',').nth(column).expect("packets").parse::<u64>().expect("number");
    let expected: u64 = totals.pairs.values().map(|pair| pair.packets).sum();
    assert_eq!(lines.map(packets).sum::<u64>(), expected);
}

#[test]
fn memory_does_not_grow_with_the_capture() {
    let folder = tempfile::tempdir().expect("folder");
    let (small, large) = (folder.path().join("small.pcap"), folder.path().join("large.pcap"));
    generate(&small, 16 * MIB);
    let totals = generate(&large, 120 * MIB);
    for arguments in [ANALYZE, ANALYZE_ONE_BIN, MATRIX] {
        let (small_bytes, _) = run(arguments, &small);
        let (large_bytes, printed) = run(arguments, &large);
        let measured = format!("{arguments:?}: {} MiB, then {} MiB", small_bytes / MIB, large_bytes / MIB);
        println!("{measured}");
        assert!(large_bytes < MAX_BYTES, "{measured}");
        if arguments != ANALYZE {
            assert!(large_bytes <= small_bytes + MORE_BYTES, "{measured}");
        }
        if arguments == MATRIX {
            assert_whole(&printed, &totals);
        }
    }
}

#[test]
fn a_connection_takes_little_memory() {
    let folder = tempfile::tempdir().expect("folder");
    let captures = [1, 32].map(|qps| (qps, folder.path().join(format!("{qps}.pcap"))));
    let counts = captures.each_ref().map(|(qps, capture)| {
        // One port of 64 LIDs, with `qps` queue pairs at either end of each pair of ports; most of
        // them send a message or two.
        let options = ibscope_samples::SampleOptions { bytes: 12 * MIB, lids: 64, qps: *qps, ..Default::default() };
        generate_of(capture, &options);
        let profile = ibscope::pipeline::analyze(
            std::slice::from_ref(capture),
            &ibscope::pipeline::AnalysisOptions::default(),
            &|_| {},
        );
        profile.expect("analysis").connections.len() as u64
    });
    for (arguments, most_bytes) in MAX_BYTES_PER_CONNECTION {
        let [few_bytes, many_bytes] = captures.each_ref().map(|(_, capture)| run(arguments, capture).0);
        let own_bytes = many_bytes.saturating_sub(few_bytes) / (counts[1] - counts[0]);
        let measured =
            format!("{arguments:?}: {counts:?} connections, {few_bytes} and {many_bytes} bytes: {own_bytes} each");
        println!("{measured}");
        assert!(counts[1] > 8 * counts[0] && own_bytes < most_bytes, "{measured}");
    }
}
