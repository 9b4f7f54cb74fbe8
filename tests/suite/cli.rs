//! The program as a person or a script uses it.

mod dataset;
mod inputs;
mod messages;
mod outputs;
mod streams;
mod tables;
mod windows;

pub(crate) use outputs::skipped;

use crate::tools::result;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const MATRIX_HEADER: &str = "src,dst,messages,mpi_bytes,payload_bytes,wire_bytes,packets,job,coverage,class";
const TIMELINE_HEADER: &str = "time_ns,src,dst,messages,mpi_bytes,payload_bytes,wire_bytes,packets,job,class";

/// Numbers of a pair of endpoints or ranks: messages, MPI bytes, payload bytes, wire bytes,
/// packets. `None` if the csv has an empty field.
type CsvCell = [Option<u64>; 5];

/// Sums by sender and receiver.
type CsvCells = BTreeMap<(String, String), CsvCell>;

fn cell(fields: &[&str]) -> CsvCell {
    let value = |text: &&str| (!text.is_empty()).then(|| text.parse().expect("number"));
    let values: Vec<Option<u64>> = fields.iter().map(value).collect();
    values.try_into().expect("five values")
}

/// Adds two cells; two empty fields stay empty.
fn add(sum: &mut CsvCell, other: &CsvCell) {
    for (sum, other) in sum.iter_mut().zip(other) {
        *sum = match (*sum, *other) {
            (None, None) => None,
            (sum, other) => Some(sum.unwrap_or(0) + other.unwrap_or(0)),
        };
    }
}

/// The cells of a matrix in csv.
fn matrix_cells(csv: &str) -> CsvCells {
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some(MATRIX_HEADER));
    let mut cells = CsvCells::new();
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        let before = cells.insert((fields[0].to_owned(), fields[1].to_owned()), cell(&fields[2..7]));
        assert_eq!(before, None, "{line}: the pair is there twice");
    }
    cells
}

/// The sums of a timeline in csv by pair, over the bins for which `counts` is true.
fn timeline_cells(csv: &str, counts: impl Fn(i64) -> bool) -> CsvCells {
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some(TIMELINE_HEADER));
    let mut cells = CsvCells::new();
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        if counts(fields[0].parse().expect("time")) {
            let sum = cells.entry((fields[1].to_owned(), fields[2].to_owned())).or_insert([None; 5]);
            add(sum, &cell(&fields[3..8]));
        }
    }
    cells
}

/// Analyzes captures into a profile in the folder.
fn profile_of(folder: &Path, inputs: &[impl AsRef<Path>], more: &[&str]) -> PathBuf {
    let place = folder.join("profile.ibp");
    let mut arguments = vec!["analyze", "-o", place.to_str().expect("path")];
    arguments.extend(more);
    result(&arguments, inputs);
    place
}

/// Names of the entries of a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn text(path: &Path) -> &str {
    path.to_str().expect("path")
}
