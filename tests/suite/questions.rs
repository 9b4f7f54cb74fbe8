//! The questions of `docs/questions.md`: every command is run as it is written, and its answer is
//! compared with the truth of the recorded run.

use crate::runs;
use crate::tools::{CsvRow, csv_rows};
use ibscope_samples::Random;
use ibscope_samples::hard::Recording;
use ibscope_samples::hard::split::{rotate, split_points};
use polars::prelude::{ParquetReader, SerReader as _};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

const QUESTIONS: usize = 14;

/// The commands of each question.
fn commands() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/questions.md");
    let text = std::fs::read_to_string(path).expect("document");
    let block = |section: &str| {
        let (_, rest) = section.split_once("```sh\n").expect("a block");
        rest.split_once("```").expect("the end of the block").0.to_owned()
    };
    text.split("\n## ").skip(1).map(block).collect()
}

/// Runs the commands of a question in a folder with `samples`; returns the standard output.
fn answer(folder: &Path, number: usize) -> String {
    let commands = commands();
    assert_eq!(commands.len(), QUESTIONS);
    let program = Path::new(env!("CARGO_BIN_EXE_ibscope")).parent().expect("folder");
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    let script = format!("set -e\n{}", commands[number - 1]);
    let ran = Command::new("sh").args(["-c", &script]).current_dir(folder).env("PATH", path).output().expect("sh");
    assert!(ran.status.success(), "question {number}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).expect("text")
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("folder");
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("samples");
    std::os::unix::fs::symlink(samples, folder.path().join("samples")).expect("link");
    folder
}

/// Messages and bytes by pair of ranks in the csv of a matrix.
fn matrix(text: &str) -> BTreeMap<(u32, u32), (u64, u64)> {
    let number = |row: &CsvRow, column: &str| row[column].parse::<u64>().unwrap_or(0);
    let known = csv_rows(text).into_iter().filter(|row| row["src"] != "unknown" && row["dst"] != "unknown");
    let cells = known.map(|row| {
        let ends = (number(&row, "src") as u32, number(&row, "dst") as u32);
        (ends, (number(&row, "messages"), number(&row, "mpi_bytes")))
    });
    cells.filter(|(_, cell)| cell.0 > 0).collect()
}

fn wire(name: &str) -> BTreeMap<(u32, u32), (u64, u64)> {
    let mut truth = runs::of_any_set(name).truth("wire.csv").expect("truth");
    truth.retain(|_, cell| cell.0 > 0);
    truth
}

#[test]
fn the_answers_are_those_of_the_runs() {
    let folder = folder();
    let place = folder.path();
    assert_eq!(most(&matrix(&answer(place, 1))), most(&wire("ompi-rc-mixed-2x2")));

    let findings: Vec<Value> = serde_json::from_str(&answer(place, 2)).expect("JSON");
    let found: Vec<_> = findings.iter().map(|own| (own["finding"].as_str(), own["subject"].as_str())).collect();
    assert_eq!(found, [(Some("straggler"), Some("job 1, rank 3"))]);

    let waits: Value = serde_json::from_str(&answer(place, 3)).expect("JSON");
    let stragglers = waits["jobs"][0]["stragglers"].as_array().expect("stragglers").clone();
    assert_eq!(stragglers.iter().map(|own| own["rank"].as_u64()).collect::<Vec<_>>(), [Some(2)]);

    // The record of the run: 47 requests, 16 READs that restart, 565 responses and 3 ACKs, on one
    // of two links each.
    let links = csv_rows(&answer(place, 4));
    let sum: u64 = links
        .iter()
        .filter(|row| row["direction"] == "from")
        .map(|row| row["retransmitted_packets"].parse::<u64>().expect("count"))
        .sum();
    assert_eq!(sum, 47 + 16 + 565 + 3);

    let health: Value = serde_json::from_str(&answer(place, 5)).expect("JSON");
    assert_eq!(health["trust"]["verdict"], "complete");
}

/// The rank that sends most bytes, and how many.
fn most(cells: &BTreeMap<(u32, u32), (u64, u64)>) -> (u32, u64) {
    let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
    cells.iter().for_each(|((src, _), (_, bytes))| *sums.entry(*src).or_default() += bytes);
    sums.into_iter().max_by_key(|(_, bytes)| *bytes).expect("a sender")
}

#[test]
fn runs_are_compared_drawn_and_written_as_tables() {
    let folder = folder();
    let place = folder.path();
    // 5 ms are added to each packet: SEND to ACK grows by 5 ms, to within the jitter of the machines.
    let differences = csv_rows(&answer(place, 6));
    let longer: Vec<f64> = differences
        .iter()
        .filter(|row| {
            row["interval"] == "acknowledged" && row["value"] == "median_ns" && row["verdict"] == "beyond chance"
        })
        .map(|row| row["difference"].parse::<f64>().expect("ns"))
        .collect();
    assert!(!longer.is_empty() && longer.iter().all(|ns| (4e6..6.5e6).contains(ns)), "{longer:?}");

    answer(place, 7);
    let png = std::fs::read(place.join("matrix.png")).expect("png");
    assert!(
        png.starts_with(b"\x89PNG") && std::fs::read_to_string(place.join("matrix.svg")).expect("svg").contains("<svg")
    );

    answer(place, 8);
    // Every packet of the sink appears twice.
    let records = runs::records(&runs::named("ompi-openib-ring2").sink()).len() as u64;
    let table = std::fs::File::open(place.join("job.ibp/connections.parquet")).expect("table");
    let frame = ParquetReader::new(table).finish().expect("a DataFrame");
    let column = frame.column("packets").expect("column").u64().expect("numbers");
    let packets: u64 = column.iter().flatten().sum();
    assert_eq!(packets, records / 2);
}

#[test]
fn classes_endpoints_and_collectives_are_those_of_the_runs() {
    let folder = folder();
    let place = folder.path();
    let classes = csv_rows(&answer(place, 9));
    let sum = |class: &str, value: &str| -> u64 {
        let row = classes.iter().find(|row| row["class"] == class && row["value"] == value).expect("a class");
        row["sum"].parse().expect("number")
    };
    // The truth has point-to-point messages; setting up and ending MPI takes a few collective ones.
    assert!((2 * 150..=2 * 150 + 10).contains(&sum("mpi", "mpi_messages")), "{}", sum("mpi", "mpi_messages"));
    let bytes = 2 * 5_567_640;
    assert!((bytes..=bytes + 100).contains(&sum("mpi", "mpi_bytes")), "{}", sum("mpi", "mpi_bytes"));
    // Read and written over NFS, and the calls and replies.
    let nfs = 7_471_104 + 2_490_368;
    assert!((nfs..nfs * 105 / 100).contains(&sum("nfs", "payload_bytes")), "{}", sum("nfs", "payload_bytes"));

    // One READ request per iteration, and its response; perftest's output has the iterations.
    let run = runs::named("perf-read-lat");
    let pairs = csv_rows(&answer(place, 10));
    assert_eq!(pairs.iter().map(|row| row["src"].as_str()).collect::<BTreeSet<_>>(), BTreeSet::from(["17", "18"]));
    let data =
        runs::records(&run.sink()).into_iter().filter(|record| !matches!(record[16 + 13..16 + 16], [0, 0, 0 | 1]));
    let packets: u64 = pairs.iter().map(|row| row["packets"].parse::<u64>().expect("count")).sum();
    assert_eq!(2 * packets, data.count() as u64);

    // The log of the program: number of the forced algorithm of each call of 262144 bytes.
    let names = [("3", "recursive_doubling"), ("4", "ring"), ("5", "segmented_ring"), ("6", "rabenseifner")];
    let truth =
        std::fs::read_to_string(runs::of_second_set("ompi5-coll-allreduce-algos-4x1").folder.join("coll_truth.csv"));
    let logged = csv_rows(&truth.expect("log"));
    let mut expected: Vec<&str> = logged
        .iter()
        .filter(|row| row["operation"] == "Allreduce" && row["bytes"] == "262144")
        .map(|row| names.iter().find(|(number, _)| *number == row["alg"]).expect("an algorithm").1)
        .collect();
    let all = csv_rows(&answer(place, 11));
    let own = || all.iter().filter(|row| row["operation"] == "allreduce" && row["bytes"] == "262144");
    let mut found: Vec<&str> = own().map(|row| row["algorithm"].as_str()).collect();
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected);
    assert!(own().all(|row| row["duration_ns"].parse::<u64>().expect("ns") > 0));
}

#[test]
fn overlapping_and_rotated_sinks_count_each_packet_once() {
    let folder = folder();
    let place = folder.path();
    assert_eq!(matrix(&answer(place, 12)), wire("ompi-openib-mixed-2x2"));

    let links = csv_rows(&answer(place, 13));
    assert_eq!(links.len(), 8);
    // 125 MB/s are the capacity: the run moves less than that in all.
    let total: u64 = links.iter().map(|row| row["wire_bytes"].parse::<u64>().expect("bytes")).sum();
    assert!(total < 125_000_000, "{total}");
    assert!(links.iter().all(|row| row["busy_share"].parse::<f64>() == Ok(0.0)), "{links:?}");

    // Four captures of one port each, in four files each.
    let run = runs::named("ompi-openib-notrace-mixed-4x1");
    let rotated = place.join("rotated");
    std::fs::create_dir(&rotated).expect("folder");
    let mut random = Random::new(28);
    for node in 1..=4 {
        let whole = Recording::read(&run.node(node)).expect("capture");
        let points = split_points(&whole, 4, &mut random);
        for (part, file) in rotate(&whole, &points, 0).iter().enumerate() {
            file.write(&rotated.join(format!("sink{node}.{part}.pcap"))).expect("written");
        }
    }
    assert_eq!(matrix(&answer(place, 14)), wire("ompi-openib-notrace-mixed-4x1"));
}
