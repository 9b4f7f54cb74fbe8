//! Peak memory is bounded by the work under way, the number of connections and the cells of the timeline, not by the size
//! of the capture.

use ibscope_samples::Totals;
use serde_json::Value;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub(crate) const MIB: u64 = 1 << 20;
/// What any of the runs below may need.
pub(crate) const MOST_BYTES: u64 = 300 * MIB;
/// What a capture of fifteen times the size may need more. Keeping 64 bytes of each of its packets would need 127 MiB.
const MORE_BYTES: u64 = 64 * MIB;

/// The batches under way grow with the threads, so their number must not depend on the machine.
pub(crate) const ANALYZE: &[&str] = &["analyze", "--threads", "2"];
/// What a directed connection of a few packets may need: all that can be said of it, or its packets alone.
const MOST_OF_CONNECTION_BYTES: [(&[&str], u64); 2] = [(ANALYZE, 1920), (MATRIX, 768)];
/// The timeline grows with the time captured, up to its bound of cells. In one bin it does not, and what is left must
/// not grow either.
const ANALYZE_ONE_BIN: &[&str] = &["analyze", "--threads", "2", "--bin", "1h"];
pub(crate) const MATRIX: &[&str] = &["matrix", "--no-mpi", "--format", "csv", "--threads", "2"];

/// A mirror sink's capture of 64 LIDs in ibdump's layout.
pub(crate) fn generate(path: &Path, bytes: u64) -> Totals {
    generate_of(path, &ibscope_samples::Options { bytes, lids: 64, mirror: 2, ..ibscope_samples::Options::default() })
}

/// A capture, written to disk packet by packet.
pub(crate) fn generate_of(path: &Path, options: &ibscope_samples::Options) -> Totals {
    let mut out = BufWriter::new(File::create(path).expect("create"));
    let totals = ibscope_samples::generate(options, &mut out).expect("generate");
    out.flush().expect("write");
    assert!(totals.file_bytes >= options.bytes);
    totals
}

/// Runs the program; its peak resident memory in bytes, and what it printed.
pub(crate) fn run(arguments: &[&str], capture: &Path) -> (u64, String) {
    let output = capture.with_extension("output");
    let mut child = Command::new(env!("CARGO_BIN_EXE_ibscope"))
        .args(arguments)
        .arg(capture)
        // What is freed goes back at once: the peak is what is held, not what the allocator keeps.
        .env("MIMALLOC_PURGE_DELAY", "0")
        .stdin(Stdio::null())
        .stdout(File::create(&output).expect("create"))
        .spawn()
        .expect("spawn");
    let peak_bytes = watch(&mut child);
    assert!(child.wait().expect("wait").success(), "{arguments:?}");
    // A program that was not seen at work says nothing.
    assert!(peak_bytes > MIB, "{arguments:?}: peak {peak_bytes} bytes");
    (peak_bytes, std::fs::read_to_string(output).expect("output"))
}

/// Compares a capture with an archive of another run; its peak resident memory in bytes, and the comparison.
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
    let mut json: Value = serde_json::from_reader(File::open(output).expect("output")).expect("json");
    (peak_bytes, json["crosscheck"].take())
}

/// Peak resident memory until the program ends. The system keeps the high-water mark, so what is missed between two
/// looks is the growth of the last millisecond.
pub(crate) fn watch(child: &mut Child) -> u64 {
    let status = format!("/proc/{}/status", child.id());
    let mut peak_bytes = 0;
    while child.try_wait().expect("wait").is_none() {
        // The line is missing once the program has ended and has not yet been waited for.
        let seen_bytes = std::fs::read_to_string(&status).ok().and_then(|text| high_water(&text));
        peak_bytes = peak_bytes.max(seen_bytes.unwrap_or(0));
        std::thread::sleep(Duration::from_millis(1));
    }
    peak_bytes
}

/// `VmHWM:     1234 kB`, in bytes.
fn high_water(status: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    value.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// The matrix holds every packet of the capture, so memory is not saved by leaving traffic out.
pub(crate) fn assert_whole(csv: &str, totals: &Totals) {
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
    let totals = generate(&large, 240 * MIB);
    for arguments in [ANALYZE, ANALYZE_ONE_BIN, MATRIX] {
        let (small_bytes, _) = run(arguments, &small);
        let (large_bytes, printed) = run(arguments, &large);
        let measured = format!("{arguments:?}: {} MiB, then {} MiB", small_bytes / MIB, large_bytes / MIB);
        println!("{measured}");
        assert!(large_bytes < MOST_BYTES, "{measured}");
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
        // One port of 64 LIDs, with so many queue pairs at either end of each pair of ports, most of which send a message or two.
        let options = ibscope_samples::Options { bytes: 12 * MIB, lids: 64, qps: *qps, ..Default::default() };
        generate_of(capture, &options);
        let profile =
            ibscope::pipeline::analyze(std::slice::from_ref(capture), &ibscope::pipeline::Options::default(), &|_| {});
        profile.expect("analysis").connections.len() as u64
    });
    for (arguments, most_bytes) in MOST_OF_CONNECTION_BYTES {
        let [few_bytes, many_bytes] = captures.each_ref().map(|(_, capture)| run(arguments, capture).0);
        let own_bytes = many_bytes.saturating_sub(few_bytes) / (counts[1] - counts[0]);
        let measured =
            format!("{arguments:?}: {counts:?} connections, {few_bytes} and {many_bytes} bytes: {own_bytes} each");
        println!("{measured}");
        assert!(counts[1] > 8 * counts[0] && own_bytes < most_bytes, "{measured}");
    }
}
