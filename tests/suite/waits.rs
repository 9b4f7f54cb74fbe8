//! `ibscope waits`: iterations, stragglers and waits of recorded runs, compared with the times that
//! the program logged.

use crate::concatenated::{later, read, write};
use crate::runs::{self, RecordedRun};
use crate::tools::ibscope;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

fn output(arguments: &[&str], captures: &[PathBuf]) -> String {
    let arguments = ["waits"].iter().chain(arguments).map(OsStr::new);
    let result = ibscope(arguments.chain(captures.iter().map(|capture| capture.as_os_str())));
    assert_eq!(result.code, 0, "{}", result.stderr);
    result.stdout
}

fn job(captures: &[PathBuf]) -> Value {
    let json: Value = serde_json::from_str(&output(&["--format", "json"], captures)).expect("json");
    assert_eq!(json["jobs"].as_array().expect("jobs").len(), 1, "{json}");
    json["jobs"][0].clone()
}

/// Starts of the iterations of a rank, in ns.
fn starts(folder: &Path, rank: u32) -> Vec<i64> {
    let text = fs::read_to_string(folder.join(format!("straggler.{rank}.csv"))).expect("log of the program");
    let start = |line: &str| line.split(',').nth(3).expect("start_ns").parse().expect("number");
    text.lines().skip(1).map(start).collect()
}

/// Median period of the iterations that the program logged, in ns.
fn period_ns(folder: &Path) -> f64 {
    let mut steps: Vec<i64> = (0..4)
        .flat_map(|rank| starts(folder, rank).windows(2).map(|two| two[1] - two[0]).collect::<Vec<_>>())
        .collect();
    steps.sort_unstable();
    steps[steps.len() / 2] as f64
}

#[test]
fn the_straggler_of_a_recorded_run_is_found() {
    let run = runs::of_second_set("straggler-rank2-20ms-4x1");
    for captures in [vec![run.folder.join("sink.ib.pcap.zst")], run.every_node()] {
        let job = job(&captures);
        assert_eq!(job["iterations"], 30);
        let (period, truth) = (job["period_ns"].as_f64().expect("period"), period_ns(&run.folder));
        assert!((period / truth - 1.0).abs() <= 0.05, "period {period}, logged {truth}");
        let stragglers = job["stragglers"].as_array().expect("stragglers");
        assert_eq!(stragglers.len(), 1, "{job}");
        assert_eq!(stragglers[0]["rank"], 2);
        let delay_ms = stragglers[0]["delay_ns"].as_f64().expect("delay") / 1e6;
        assert!((16.0..=24.0).contains(&delay_ms), "{delay_ms} ms");
        // Ranks 0 and 3 exchange halos with rank 2.
        let longest: Vec<&Value> = job["waits"].as_array().expect("waits").iter().take(2).collect();
        assert!(longest.iter().all(|pair| pair["for_rank"] == 2), "{longest:?}");
    }
}

/// The frames that each node sends, from a capture of its port: no packet is in two of these captures. The
/// clock of node 3 is ahead.
fn sent_by_each_node(run: &RecordedRun, folder: &Path, ahead_ns: i64) -> Vec<PathBuf> {
    let sent = |(node, path): (u8, PathBuf)| {
        let (header, mut records) = read(&path);
        // After the pcap and the Ethernet header, the source address is at byte 12 of the IPv4 header.
        records
            .retain(|(_, record)| record[16 + 12..16 + 14] == [8, 0] && record[16 + 26..16 + 30] == [10, 77, 0, node]);
        let records = later(&records, if node == 3 { ahead_ns } else { 0 });
        write(folder, &format!("sent-by-node{node}.pcap"), &header, &records)
    };
    (1..).zip(run.every_node()).map(sent).collect()
}

#[test]
fn captures_without_common_packets_show_no_stragglers() {
    let run = runs::of_second_set("straggler-none-4x1");
    for ahead_ns in [0, 20_000_000, -50_000_000] {
        let folder = tempfile::tempdir().expect("folder");
        let captures = sent_by_each_node(&run, folder.path(), ahead_ns);
        // No packet is in two captures, so nothing shows that they are those of different ports.
        let reason = "the captures may show some ports only";
        let text = output(&[], &captures).replace('\n', " ");
        assert!(text.contains("iterations unknown, because") && text.contains(reason), "{text}");
        let of = |command: &[&str]| {
            let result = ibscope(command.iter().map(OsStr::new).chain(captures.iter().map(|path| path.as_os_str())));
            assert_eq!(result.code, 0, "{}", result.stderr);
            result
        };
        let diagnosis = of(&["diagnose"]);
        assert!(!["straggler", "imbalance", "late_sender"].iter().any(|kind| diagnosis.stdout.contains(kind)));
        let unchecked = "stragglers and imbalance, because the captures do not show the traffic of all ports";
        assert!(diagnosis.stderr.replace('\n', " ").contains(unchecked), "{}", diagnosis.stderr);
        let note = "could not be compared by packets that both hold";
        assert!(of(&["latency"]).stderr.contains(note));
        // The user states that the clocks agree.
        assert!(!of(&["latency", "--no-align"]).stderr.contains(note));
    }
}

#[test]
fn a_run_without_straggler_has_none() {
    let run = runs::of_second_set("straggler-none-4x1");
    for captures in [vec![run.folder.join("sink.ib.pcap.zst")], run.every_node()] {
        let job = job(&captures);
        assert_eq!(job["iterations"], 30);
        let (period, truth) = (job["period_ns"].as_f64().expect("period"), period_ns(&run.folder));
        assert!((period / truth - 1.0).abs() <= 0.05, "period {period}, logged {truth}");
        assert_eq!(job["stragglers"], serde_json::json!([]));
    }
}

/// A port shows its own messages only. Without those of the others, a rank that waits seems to
/// compute, so nothing is known.
#[test]
fn one_port_of_several_shows_no_iterations() {
    let runs = [runs::of_second_set("straggler-rank2-20ms-4x1"), runs::named("ompi-openib-bt.S-4x1")];
    for capture in runs.iter().flat_map(RecordedRun::every_node) {
        let job = job(std::slice::from_ref(&capture));
        let reason = job["unknown_because"].as_str().unwrap_or_default();
        assert!(reason.starts_with("the captures may show some ports only"), "{}: {job}", capture.display());
    }
}

/// Other ranks, a shorter delay, two ranks per node, another program, another library.
#[test]
fn other_stragglers_are_found_with_their_delay() {
    let runs = [
        ("straggler-rank1-5ms-4x1", 1, 5.0),
        ("straggler-rank3-5ms-2x2", 3, 5.0),
        ("cg-rank3-5ms-4x1", 3, 5.0),
        ("mpich4.2-cg-rank0-10ms-4x1", 0, 10.0),
    ];
    for (name, rank, expected_ms) in runs {
        let run = runs::of_third_set(name);
        let job = job(&run.every_node());
        assert_eq!(job["iterations"], 30, "{name}");
        let (period, truth) = (job["period_ns"].as_f64().expect("period"), period_ns(&run.folder));
        assert!((period / truth - 1.0).abs() <= 0.05, "{name}: period {period}, logged {truth}");
        let stragglers = job["stragglers"].as_array().expect("stragglers");
        assert_eq!(stragglers.len(), 1, "{name}: {job}");
        assert_eq!(stragglers[0]["rank"], rank, "{name}");
        let delay_ms = stragglers[0]["delay_ns"].as_f64().expect("delay") / 1e6;
        assert!((delay_ms / expected_ms - 1.0).abs() <= 0.2, "{name}: {delay_ms} ms");
    }
}

#[test]
fn other_runs_without_straggler_have_none() {
    for name in ["cg-none-4x1", "straggler-none-2x2"] {
        let run = runs::of_third_set(name);
        let job = job(&run.every_node());
        assert_eq!(job["iterations"], 30, "{name}");
        let (period, truth) = (job["period_ns"].as_f64().expect("period"), period_ns(&run.folder));
        assert!((period / truth - 1.0).abs() <= 0.05, "{name}: period {period}, logged {truth}");
        assert_eq!(job["stragglers"], serde_json::json!([]), "{name}");
    }
}

/// The Allreduce goes between ranks 0 and 2 only, and rank 0 answers: the wire shows no delay.
#[test]
fn ranks_that_are_not_compared_are_counted() {
    let run = runs::of_third_set("cg-rank2-5ms-2x2");
    let job = job(&run.every_node());
    assert_eq!((&job["iterations"], &job["compared_ranks"]), (&30.into(), &2.into()));
    assert_eq!(job["stragglers"], serde_json::json!([]));
    let text = output(&[], &run.every_node());
    assert!(text.contains("stragglers not known, because only 2 of 4 ranks"), "{text}");
}

/// No recorded run but the one made with a straggler has one, and jobs without a loop say so.
#[test]
fn other_recorded_runs_have_no_straggler() {
    for run in runs::all().into_iter().filter(|run| run.folder.join("truth.csv").exists()) {
        let json: Value = serde_json::from_str(&output(&["--format", "json"], &run.every_node())).expect("json");
        for job in json["jobs"].as_array().expect("jobs") {
            assert_eq!(job["stragglers"], serde_json::json!([]), "{}: {job}", run.name);
            assert_eq!(job["iterations"].is_null(), job["unknown_because"].is_string(), "{}: {job}", run.name);
        }
    }
}

#[test]
fn csv_has_a_row_per_pair() {
    let run = runs::of_second_set("straggler-rank2-20ms-4x1");
    let csv = output(&["--format", "csv"], &[run.folder.join("sink.ib.pcap.zst")]);
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("job,waiting_rank,for_rank,times,wait_ns,share"));
    assert_eq!(lines.count(), 8, "each rank exchanges messages with two others");
}
