//! Recorded runs one after the other: `phases` must find the change point between them.

use crate::runs::{self, RecordedRun, decompressed};
use crate::tools::in_parallel;
use ibscope::analysis::phases::{self, Phases};
use ibscope::pipeline::{AnalysisOptions, analyze};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The runs whose programs recorded sends between nodes, with the times of the first and the last
/// send.
pub(crate) fn runs_with_sends() -> Vec<(RecordedRun, [i64; 2])> {
    let runs: Vec<_> = runs::all().into_iter().filter_map(|run| main_loop(&run).map(|bounds| (run, bounds))).collect();
    assert_eq!(runs.len(), 22);
    runs
}

/// Times of the first and the last send between nodes, as the program recorded them. One run
/// recorded the tracer's own sends too.
fn main_loop(run: &RecordedRun) -> Option<[i64; 2]> {
    let nodes = run.node_of_rank();
    let mut times = Vec::new();
    for rank in nodes.keys() {
        let path = run.folder.join(format!("sends/sends.{rank}.csv.zst"));
        let text = path.exists().then(|| String::from_utf8(decompressed(&path)).expect("text"))?;
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split(',').collect();
            let node = |rank: &str| nodes[&rank.parse::<u32>().expect("rank")];
            let is_tracer = run.name == "ompi-openib-bt.S-4x1" && ["17", "18"].contains(&fields[3]);
            if node(fields[1]) != node(fields[2]) && !is_tracer {
                times.push(fields[0].parse::<i64>().expect("time"));
            }
        }
    }
    Some([*times.iter().min()?, *times.iter().max()?])
}

/// Distance of a time from the nearest start or end of a phase.
pub(crate) fn off_ns(phases: &Phases, time_ns: i64) -> i64 {
    let bounds = phases.phases.iter().flat_map(|phase| [phase.from_ns, phase.to_ns]);
    bounds.map(|bound| (bound - time_ns).abs()).min().expect("phases")
}

/// A record of a sink: its offset, its time, and whether it carries traffic (no management, no
/// acknowledgement).
struct RunRecords {
    at: usize,
    us: i64,
    is_traffic: bool,
}

fn records(file: &[u8]) -> Vec<RunRecords> {
    let word = |at: usize| i64::from(u32::from_le_bytes(file[at..at + 4].try_into().expect("word")));
    let mut records = Vec::new();
    let mut at = 24;
    while at < file.len() {
        // ERF and LRH precede the BTH.
        let bth = &file[at + 16 + 24..];
        let is_acknowledge = bth[0] & 0x1F == 0x11;
        let is_traffic = !is_acknowledge && u32::from_be_bytes([0, bth[5], bth[6], bth[7]]) > 1;
        records.push(RunRecords { at, us: word(at) * 1_000_000 + word(at + 4), is_traffic });
        at += 16 + word(at + 8) as usize;
    }
    records
}

/// Joins two sinks into one capture, the second 100 ms after the end of the first. Returns also the
/// end of the first run's traffic and the start of the second's.
fn one_after_the_other(runs: &[String; 2], folder: &Path) -> (PathBuf, [i64; 2]) {
    let [first, mut second] = runs.each_ref().map(|name| decompressed(&runs::named(name).sink()));
    let (before, after) = (records(&first), records(&second));
    let end_us = before.iter().map(|record| record.us).max().expect("records");
    let shift_us = end_us + 100_000 - after.iter().map(|record| record.us).min().expect("records");
    for RunRecords { at, us, .. } in &after {
        let us = us + shift_us;
        second[*at..at + 4].copy_from_slice(&((us / 1_000_000) as u32).to_le_bytes());
        second[at + 4..at + 8].copy_from_slice(&((us % 1_000_000) as u32).to_le_bytes());
    }
    let mut both = first;
    both.extend_from_slice(&second[24..]);
    let path = folder.join(format!("{}.{}.pcap", runs[0], runs[1]));
    std::fs::write(&path, both).expect("write");
    let traffic = |records: &[RunRecords]| {
        records.iter().filter(|record| record.is_traffic).map(|record| record.us).collect::<Vec<_>>()
    };
    let ends_us = traffic(&before).into_iter().max().expect("traffic");
    let begins_us = traffic(&after).into_iter().min().expect("traffic") + shift_us;
    (path, [ends_us * 1000, begins_us * 1000])
}

/// The pairs of runs without a change point within a window of the pause, from the last traffic of
/// the first run to the first traffic of the second.
pub(crate) fn missed(pairs: &[[String; 2]]) -> Vec<String> {
    let folder = tempfile::tempdir().expect("folder");
    let missed = Mutex::new(Vec::new());
    in_parallel(pairs, |_, pair| {
        let (path, [ends_ns, begins_ns]) = one_after_the_other(pair, folder.path());
        let profile = analyze(std::slice::from_ref(&path), &AnalysisOptions::default(), &|_| {}).expect("profile");
        std::fs::remove_file(path).expect("removed");
        let found = phases::phases(&profile, &phases::PhaseOptions::default());
        let mut bounds = found.phases.iter().flat_map(|phase| [phase.from_ns, phase.to_ns]);
        if !bounds.any(|ns| (ends_ns - found.window_ns..=begins_ns + found.window_ns).contains(&ns)) {
            missed.lock().expect("lock").push(format!("{} {}", pair[0], pair[1]));
        }
    });
    let mut missed = missed.into_inner().expect("lock");
    missed.sort();
    missed
}
