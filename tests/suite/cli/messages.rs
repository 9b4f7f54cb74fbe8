//! `messages` and `collectives` as a person or a script uses them.

use super::{profile_of, text};
use crate::runs;
use crate::tools::{ProgramResult, ibscope, in_parallel, result, sample, samples};
use polars::prelude::{ParquetReader, SerReader as _};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

const HEADER: &str = "first_time_ns,last_time_ns,src_rank,dst_rank,src,dst,src_qp,dest_qp,psn,stack,protocol,verb,operation,\
                      communicator_rank,context,tag,mpi_bytes,payload_bytes,wire_bytes,packets,complete,job,class";

fn ran(arguments: &[&str], input: &Path) -> ProgramResult {
    ibscope(arguments.iter().map(OsStr::new).chain([input.as_os_str()]))
}

fn fails(arguments: &[&str], input: &Path) -> String {
    let ran = ran(arguments, input);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{}", ran.stderr);
    ran.stderr
}

/// Rows of a csv by column name.
fn rows(csv: &str) -> Vec<BTreeMap<&str, &str>> {
    let mut lines = csv.lines();
    let header: Vec<&str> = lines.next().expect("header").split(',').collect();
    lines.map(|line| header.iter().copied().zip(line.split(',')).collect()).collect()
}

#[test]
fn csv_and_json_are_equal() {
    in_parallel(&samples(), |_, path| {
        for more in [&[][..], &["--transport"]] {
            let csv = result(&[&["messages", "--format", "csv"], more].concat(), &[path]);
            assert_eq!(csv.lines().next(), Some(HEADER));
            let json = result(&[&["messages", "--format", "json"], more].concat(), &[path]);
            let rows = rows(&csv);
            assert_eq!(rows.len(), json.lines().count());
            for (row, line) in rows.iter().zip(json.lines()) {
                let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line).expect("object");
                assert_eq!(object.len(), row.len(), "{line}");
                for (name, value) in &object {
                    let value = match value {
                        serde_json::Value::Null => String::new(),
                        serde_json::Value::String(text) => text.clone(),
                        other => other.to_string(),
                    };
                    assert_eq!(
                        row.get(name.as_str()).copied(),
                        Some(value.as_str()),
                        "{}: {name}: {line}",
                        path.display()
                    );
                }
            }
        }
    });
}

/// In order of the last packet, except for messages that the end of the capture truncates.
#[test]
fn rows_are_in_order_and_any_number_of_threads_gives_the_same() {
    for name in ["openib-mixed-4x1", "ucx-rc-ring2-loss1", "ucx-ud-ring2"] {
        let path = sample(name);
        let one = result(&["messages", "--transport", "--format", "csv", "--threads", "1"], &[&path]);
        let times: Vec<i64> = rows(&one).iter().map(|row| row["last_time_ns"].parse().expect("time")).collect();
        assert!(times.len() > 100 && times.is_sorted(), "{name}");
        for threads in ["2", "7"] {
            let more = result(&["messages", "--transport", "--format", "csv", "--threads", threads], &[&path]);
            assert!(one == more, "{name}: {threads} threads");
        }
    }
}

#[test]
fn the_parquet_table_equals_the_csv() {
    let folder = tempfile::tempdir().expect("folder");
    let place = folder.path().join("messages.parquet");
    for more in [&[][..], &["--transport"]] {
        let path = sample("ucx-rc-halo-4x1");
        let output = ran(&[&["messages", "--parquet", text(&place)], more].concat(), &path);
        assert_eq!((output.code, output.stdout.as_str()), (0, ""));
        let csv = result(&[&["messages", "--format", "csv"], more].concat(), &[&path]);
        let rows = rows(&csv);
        // Digits are in groups of three.
        assert!(output.stderr.replace(' ', "").contains(&format!("{}messageswritten", rows.len())));
        let table = ParquetReader::new(std::fs::File::open(&place).expect("table")).finish().expect("parquet");
        assert_eq!(table.height(), rows.len());
        let names: Vec<&str> = table.get_column_names().iter().map(|name| name.as_str()).collect();
        assert_eq!(names.join(","), HEADER);
        for name in names {
            let column = table.column(name).expect("column");
            for (index, row) in rows.iter().enumerate() {
                let value = column.get(index).expect("value");
                let value = if value.is_null() { String::new() } else { value.str_value().into_owned() };
                assert_eq!(value, row[name], "{name}, row {index}");
            }
        }
    }
}

#[test]
fn a_capture_without_mpi_gives_a_hint() {
    let output = ran(&["messages"], &sample("perftest-read-lat"));
    assert_eq!((output.code, output.stdout.lines().count()), (0, 1), "the header alone");
    assert!(output.stderr.contains("--transport"));
    let reads = result(&["messages", "--transport"], &[&sample("perftest-read-lat")]);
    assert!(reads.lines().nth(1).is_some_and(|line| line.contains(" 64 B ") && line.contains("read")), "{reads}");
}

#[test]
fn tables_that_cannot_be_written_fail_before_the_work() {
    let folder = tempfile::tempdir().expect("folder");
    let nowhere = folder.path().join("missing/messages.parquet");
    let message = fails(&["messages", "--parquet", text(&nowhere)], &sample("ucx-ud-ring2"));
    assert!(message.contains("missing/messages.parquet: cannot be written"), "{message}");
    assert!(message.trim_end().ends_with("missing does not exist"), "{message}");
    assert_eq!(ran(&["messages", "--parquet", "x", "--format", "csv"], &sample("ucx-ud-ring2")).code, 2);
}

/// Both libraries name the blocking collectives of the program `coll` (Alltoall, Allreduce, Bcast,
/// Barrier).
#[test]
fn collectives_add_up_to_the_matrix() {
    let folder = tempfile::tempdir().expect("folder");
    let run = runs::named("scorep-ompi-rc-coll-4x1");
    let profile = profile_of(folder.path(), &[run.sink()], &[]);
    for by in ["rank", "endpoint"] {
        let arguments = ["collectives", "--by", by, "--format", "csv"];
        let csv = result(&arguments, &[&profile]);
        assert_eq!(csv, result(&arguments, &[&run.sink()]));
        assert_eq!(csv.lines().next(), Some("operation,src,dst,messages,mpi_bytes,job"));
        let mut sums: BTreeMap<(String, String), (u64, u64)> = BTreeMap::new();
        for row in rows(&csv) {
            let sum = sums.entry((row["src"].to_owned(), row["dst"].to_owned())).or_default();
            let number = |name: &str| row[name].parse::<u64>().expect("number");
            *sum = (sum.0 + number("messages"), sum.1 + number("mpi_bytes"));
        }
        let matrix = result(&["matrix", "--by", by, "--traffic", "collective", "--format", "csv"], &[&profile]);
        let cells = super::matrix_cells(&matrix).into_iter().filter(|(_, cell)| cell[0] != Some(0));
        let expected: BTreeMap<_, _> =
            cells.map(|(pair, cell)| (pair, (cell[0].expect("messages"), cell[1].expect("bytes")))).collect();
        assert_eq!(sums, expected);
        for operation in ["alltoall", "allreduce", "bcast", "barrier"] {
            assert!(rows(&csv).iter().any(|row| row["operation"] == operation), "{operation}");
        }
    }
    let table = result(&["collectives"], &[&profile]);
    assert!(table.lines().any(|line| line.trim_start().starts_with("alltoall")), "{table}");
    let message = fails(&["collectives", "--from", "1"], &profile);
    assert!(message.contains("for its whole time only; give the captures"), "{message}");
    let json: serde_json::Value =
        serde_json::from_str(&result(&["collectives", "--format", "json"], &[&profile])).expect("json");
    assert_eq!(json["schema"], "ibscope collectives");
    let nothing = result(&["collectives"], &[sample("perftest-read-lat")]);
    assert_eq!(nothing, "no message of a collective operation was detected\n");
}
