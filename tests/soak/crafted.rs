//! Limits of the time and memory that 1 MiB of any input may cost, for every command.

use crate::memory::{MAX_BYTES, MIB, watch};
use ibscope_samples::crafted::CraftedCapture;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const MAX_CPU_S: f64 = 5.0;
/// Linux counts the time of processes in hundredths of a second (`USER_HZ`).
const TICKS_PER_S: f64 = 100.0;

/// Commands that read the capture itself.
const OF_CAPTURES: [&[&str]; 5] = [
    &["matrix", "--by", "rank", "--format", "csv"],
    &["messages"],
    &["inspect"],
    &["collectives"],
    &["health", "--format", "csv"],
];
/// Commands that read the profile.
const OF_PROFILES: [&[&str]; 12] = [
    &["summary"],
    &["matrix", "--by", "rank"],
    &["matrix", "--format", "csv"],
    &["timeline", "--format", "csv"],
    &["ranks", "--format", "csv"],
    &["health"],
    &["latency"],
    &["rates", "--by", "rank", "--format", "csv"],
    &["rates", "--by", "endpoint", "--format", "json"],
    &["phases"],
    &["phases", "--format", "csv"],
    &["phases", "--by", "endpoint"],
];

/// CPU seconds and peak memory of a run of the program.
fn measured(arguments: &[&str], input: &Path, output: Option<&Path>) -> (f64, u64) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ibscope"));
    command.args(arguments).arg(input).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(output) = output {
        command.arg("-o").arg(output);
    }
    let before_s = waited_for_s();
    let mut child: Child = command.spawn().expect("spawn");
    let peak_bytes = watch(&mut child);
    let status = child.wait().expect("wait");
    // Captures without MPI traffic end with an exit status of their own; a signal is a crash.
    assert!(status.code().is_some_and(|code| code != 101), "{arguments:?} {}: {status}", input.display());
    (waited_for_s() - before_s, peak_bytes)
}

/// CPU seconds of all children that have been waited for (`proc_pid_stat(5)`, fields 16 and 17).
fn waited_for_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("stat");
    let behind_name = stat.rsplit_once(')').expect("a name").1;
    let fields: Vec<f64> = behind_name.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    // Field 3 is a letter and not in the list, so the first element is field 4.
    (fields[16 - 4] + fields[17 - 4]) / TICKS_PER_S
}

#[test]
fn a_mebibyte_costs_five_seconds_and_300_mib_at_most() {
    let folder = tempfile::tempdir().expect("folder");
    let mut faults = Vec::new();
    for shape in CraftedCapture::ALL {
        let capture = folder.path().join(format!("{}.pcap", shape.name()));
        let (profile, report) = (capture.with_extension("ibp"), capture.with_extension("html"));
        std::fs::write(&capture, shape.capture(MIB as usize)).expect("written");
        let mut measure = |arguments: &[&str], input: &Path, output: Option<&Path>| {
            let (cpu_s, peak_bytes) = measured(arguments, input, output);
            let line = format!("{} {}: {cpu_s:.2} s, {} MiB", shape.name(), arguments.join(" "), peak_bytes / MIB);
            println!("{line}");
            if cpu_s > MAX_CPU_S || peak_bytes > MAX_BYTES {
                faults.push(line);
            }
        };
        measure(&["analyze"], &capture, Some(&profile));
        OF_CAPTURES.iter().for_each(|arguments| measure(arguments, &capture, None));
        OF_PROFILES.iter().for_each(|arguments| measure(arguments, &profile, None));
        measure(&["report"], &profile, Some(&report));
    }
    assert_eq!(faults, Vec::<String>::new());
}
