//! Numbers of the recorded runs, compared column by column with those of version 0.1.0 before its
//! columns were renamed.
//!
//! `tests/values/recorded.txt` has a line for each table of each run: run, table, number of rows,
//! and the columns with a checksum of their values. A change that is meant to change numbers
//! replaces the file (`IBSCOPE_REPLACE_VALUES=1`) and gives the reason in its commit message. So
//! far five did: mean rates are over the time from the first packet to the last one, and so is the
//! peak of a capture that is shorter than the window; latencies, in all and over time, have the
//! interval `storage_command`, and sizes call the messages of NCCL `nccl`; the queue pairs of
//! `perf-send-lat` are no longer taken for those of a job without ranks; in a run with losses
//! (`ompi-rc-loss1-ring2`), only its own last response ends a READ, and an ACK measures only the message
//! with its PSN; phases without MPI messages count none, if others have some, instead of transport
//! messages. The column `reason` of `ranks` holds sentences and is left out.

use crate::runs::{self, RecordedRun};
use crate::tools::ibscope;
use polars::prelude::{AnyValue, ParquetReader, SerReader as _};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Columns that were renamed: table, or nothing for every table; old name, new name.
const RENAMED: [(Option<&str>, &str, &str); 12] = [
    (None, "repeated_acknowledge_packets", "duplicate_acknowledge_packets"),
    (None, "repeated_packets", "retransmitted_packets"),
    (Some("timeline.parquet"), "repeated_bytes", "retransmitted_wire_bytes"),
    (None, "moved_by", "verb"),
    (Some("sizes.parquet"), "of", "category"),
    (Some("rates --view sizes"), "of", "category"),
    (None, "library_repeats", "library_retransmissions"),
    (None, "one_sided_packets", "single_observation_packets"),
    (None, "open_psns", "unobserved_psns"),
    (Some("summary"), "cut_short", "truncated"),
    (None, "floor_ns", "theoretical_minimum_ns"),
    (Some("latency --link 100Gb/s --hops 3"), "ratio", "median_over_minimum"),
];

/// Converts a value whose form has changed since into the form of version 0.1.0. All other values
/// are compared unchanged.
fn as_before(table: &str, column: &str, value: &str) -> String {
    let number = || value.parse::<f64>().expect("number");
    match (table, column) {
        (_, _) if value.is_empty() => String::new(),
        ("connections.parquet", "src_qp_evidence") => match value {
            "connection_message" => "introduction",
            "responses" => "answers",
            "only_connection" => "alone",
            other => other,
        }
        .to_owned(),
        // Lists are separated by `;`.
        ("phases", "collectives") => value.replace(';', " "),
        // Digits behind the point are written where they are not 0.
        ("phases", "confidence") | ("latency --link 100Gb/s --hops 3", "median_over_minimum") => {
            format!("{:.3}", number())
        }
        ("health", "requests_per_ack" | "cnp_slowdown")
        | ("health --by link", "lost_percent" | "lost_percent_at_least" | "lost_percent_at_most")
        | ("summary", "decoded_percent") => format!("{:?}", number()),
        ("summary", name) if name.contains("_per_s_") => format!("{:?}", number()),
        _ => value.to_owned(),
    }
}

/// Runs of the second set to compare, in addition to all runs of the first set.
const SECOND_SET: [&str; 6] = [
    "mpich4.2-rc-mixed-2x2",
    "nccl-ring-2x1",
    "nvmeof-dd-2",
    "ompi5-ucx-rc-multirail-mixed-2x1",
    "ompi5-ucx-rc-rma-2x1",
    "twojobs-mixed-halo-2x1",
];

/// Views of a profile, all of them csv.
const VIEWS: [&str; 18] = [
    "summary",
    "matrix",
    "matrix --by rank",
    "timeline --by rank",
    "ranks",
    "collectives",
    "collectives --by rank",
    "rates --bin 100ms",
    "rates --view peaks",
    "rates --view sizes",
    "latency",
    "latency --by rank",
    "latency --view buckets",
    "latency --view timeline",
    "latency --link 100Gb/s --hops 3",
    "health",
    "health --by link",
    "phases",
];

/// Number of rows, and the checksum of each column.
type Columns = (usize, BTreeMap<String, u32>);

/// 32-bit FNV-1a over values, each with a terminator.
fn checksum(values: impl Iterator<Item = String>) -> u32 {
    let bytes = values.flat_map(|value| value.into_bytes().into_iter().chain([0xFF]));
    bytes.fold(0x811C_9DC5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// A value as text, independent of the width of its type.
fn text(value: &AnyValue<'_>) -> String {
    match value {
        AnyValue::Null => String::new(),
        AnyValue::Boolean(flag) => flag.to_string(),
        value if value.dtype().is_float() => format!("{:?}", value.extract::<f64>().expect("number")),
        value => value.get_str().map_or_else(|| value.to_string(), str::to_owned),
    }
}

fn parquet(path: &Path, name: &str) -> Columns {
    let table = ParquetReader::new(fs::File::open(path).expect("table")).finish().expect("table");
    let columns = table.columns().iter().map(|column| {
        let values = column.as_materialized_series();
        (
            column.name().to_string(),
            checksum(
                (0..values.len()).map(|row| as_before(name, column.name(), &text(&values.get(row).expect("value")))),
            ),
        )
    });
    (table.height(), columns.collect())
}

fn csv(text: &str, view: &str) -> Columns {
    let mut rows = text.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
    let names: Vec<String> = rows.next().expect("header");
    let rows: Vec<Vec<String>> = rows.collect();
    let column = |at: usize| checksum(rows.iter().map(|row| as_before(view, &names[at], &row[at])));
    (rows.len(), names.iter().enumerate().map(|(at, name)| (name.clone(), column(at))).collect())
}

/// The summary has its values in rows: each becomes a column with one value.
fn rows_as_columns(text: &str) -> Columns {
    let mut columns: BTreeMap<String, u32> = BTreeMap::new();
    for row in text.lines().skip(1) {
        let (name, value) = row.split_once(',').expect("name,value");
        let hash = checksum([as_before("summary", name, value)].into_iter());
        columns.entry(name.to_owned()).and_modify(|all| *all = all.rotate_left(1) ^ hash).or_insert(hash);
    }
    (1, columns)
}

/// All tables of a run by name.
fn tables(run: &RecordedRun, folder: &Path) -> BTreeMap<String, Columns> {
    let profile = folder.join("run.ibp");
    let captures = if run.sink().exists() { vec![run.sink()] } else { run.every_node() };
    let words = ["analyze".into(), "-o".into(), profile.clone()].into_iter().chain(captures);
    let ran = ibscope(words.collect::<Vec<PathBuf>>());
    assert_eq!(ran.code, 0, "{}: {}", run.name, ran.stderr);
    let mut tables = BTreeMap::new();
    for entry in fs::read_dir(&profile).expect("profile") {
        let path = entry.expect("entry").path();
        if path.extension().is_some_and(|ending| ending == "parquet") {
            let name = path.file_name().expect("name").to_string_lossy().into_owned();
            let columns = parquet(&path, &name);
            tables.insert(name, columns);
        }
    }
    for view in VIEWS {
        let words = view.split(' ').chain(["--format", "csv", profile.to_str().expect("UTF-8")]);
        let ran = ibscope(words);
        assert_eq!(ran.code, 0, "{} {view}: {}", run.name, ran.stderr);
        let columns = if view == "summary" { rows_as_columns(&ran.stdout) } else { csv(&ran.stdout, view) };
        tables.insert(view.to_owned(), columns);
    }
    fs::remove_dir_all(&profile).expect("profile");
    tables
}

fn renamed(table: &str, column: &str) -> String {
    let of_table = |other: Option<&str>| other.is_none_or(|other| other == table);
    let renamed = RENAMED.iter().find(|(other, old, _)| of_table(*other) && *old == column);
    renamed.map_or(column, |(_, _, new)| *new).to_owned()
}

fn recorded() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/values/recorded.txt")
}

#[test]
fn numbers_of_recorded_runs_are_as_before_their_columns_were_renamed() {
    let folder = tempfile::tempdir().expect("folder");
    let runs: Vec<RecordedRun> = runs::all().into_iter().chain(SECOND_SET.map(runs::of_second_set)).collect();
    let tables = runs.iter().map(|run| (run.name.clone(), tables(run, folder.path())));
    let now: BTreeMap<String, BTreeMap<String, Columns>> = tables.collect();
    if std::env::var_os("IBSCOPE_REPLACE_VALUES").is_some() {
        let mut lines = String::new();
        for (run, tables) in &now {
            for (table, (rows, columns)) in tables {
                let columns: Vec<String> = columns.iter().map(|(name, sum)| format!("{name}={sum:08x}")).collect();
                writeln!(lines, "{run}\t{table}\t{rows}\t{}", columns.join(" ")).expect("text");
            }
        }
        fs::write(recorded(), lines).expect("values");
    }
    let before = fs::read_to_string(recorded()).expect("values");
    let mut differences = Vec::new();
    let mut compared = 0;
    for line in before.lines() {
        let mut fields = line.split('\t');
        let mut next = || fields.next().expect("field");
        let (run, table, rows, columns) = (next(), next(), next(), next());
        let Some((rows_now, columns_now)) = now.get(run).and_then(|tables| tables.get(table)) else {
            differences.push(format!("{run} {table}: missing"));
            continue;
        };
        if rows_now.to_string() != rows {
            differences.push(format!("{run} {table}: {rows_now} rows, {rows} before"));
        }
        for column in columns.split(' ') {
            let (name, sum) = column.split_once('=').expect("column=checksum");
            compared += 1;
            match columns_now.get(&renamed(table, name)) {
                None => differences.push(format!("{run} {table}: no column {name}")),
                Some(now) if format!("{now:08x}") != sum => {
                    differences.push(format!("{run} {table}: {name} differs"));
                }
                Some(_) => {}
            }
        }
    }
    assert!(compared > 5000, "{compared} columns");
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}
