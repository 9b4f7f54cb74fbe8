//! `messages --dataset`: many calls write into one folder, each in a place of its own.

use super::text;
use crate::runs;
use crate::tools::{ProgramResult, ibscope, result, sample};
use polars::prelude::{DataFrame, ParquetReader, SerReader as _};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

fn write(dataset: &Path, more: &[&str], input: &Path) -> ProgramResult {
    let arguments = ["messages", "--dataset", text(dataset)];
    ibscope(arguments.iter().chain(more).map(OsStr::new).chain([input.as_os_str()]))
}

fn whole(dataset: &Path, more: &[&str], input: &Path) {
    let ran = write(dataset, more, input);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""), "{}", ran.stderr);
    assert!(ran.stderr.contains("messages written to"), "{}", ran.stderr);
}

/// All files in a folder and its subfolders, sorted.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("folder") {
        let path = entry.expect("entry").path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

fn table(path: &Path) -> DataFrame {
    ParquetReader::new(fs::File::open(path).expect("table")).finish().expect("parquet")
}

/// The rows of tables, one after the other, as lines of csv.
fn lines(paths: &[PathBuf]) -> Vec<String> {
    let mut lines = Vec::new();
    for path in paths {
        let table = table(path);
        for row in 0..table.height() {
            let values = table.columns().iter().map(|column| {
                let value = column.get(row).expect("value");
                if value.is_null() { String::new() } else { value.str_value().into_owned() }
            });
            lines.push(values.collect::<Vec<_>>().join(","));
        }
    }
    lines
}

fn csv(input: &Path) -> Vec<String> {
    result(&["messages", "--format", "csv"], &[input]).lines().skip(1).map(str::to_owned).collect()
}

#[test]
fn calls_write_side_by_side_and_replace_only_their_own_files() {
    let folder = tempfile::tempdir().expect("folder");
    let dataset = folder.path().join("messages");
    let sinks = ["ompi-rc-notrace-mixed-4x1", "ompi-openib-notrace-mixed-4x1"].map(|name| runs::named(name).sink());
    // Captures of two sinks with the same name, of one job.
    for sink in &sinks {
        whole(&dataset, &["--partition", "slurm_job=4711", "--file-rows", "50"], sink);
    }
    let jobs: Vec<PathBuf> =
        fs::read_dir(dataset.join("slurm_job=4711")).expect("job").map(|one| one.expect("one").path()).collect();
    assert_eq!(jobs.len(), 2, "no scratch folder is left: {jobs:?}");
    let mut found: Vec<Vec<String>> = Vec::new();
    for place in &jobs {
        let name = place.file_name().and_then(OsStr::to_str).expect("name");
        assert!(name.starts_with("capture=sink.ib.pcap.zst-"), "{name}");
        let files = files(place);
        let heights: Vec<usize> = files.iter().map(|path| table(path).height()).collect();
        assert!(files.len() > 2 && heights[..heights.len() - 1].iter().all(|height| *height == 50), "{heights:?}");
        assert!((1..=50).contains(heights.last().expect("file")), "{heights:?}");
        for (number, path) in files.iter().enumerate() {
            assert_eq!(
                path.file_name().and_then(OsStr::to_str),
                Some(format!("messages-{number:05}.parquet").as_str())
            );
        }
        found.push(lines(&files));
    }
    let mut expected = sinks.each_ref().map(|sink| csv(sink)).to_vec();
    found.sort();
    expected.sort();
    assert!(found == expected);

    // A second call with fewer files: the same rows; neither the other capture nor foreign files
    // change.
    let own = jobs.iter().find(|place| lines(&files(place)) == csv(&sinks[0])).expect("place");
    fs::write(own.join("notes.parquet.txt"), "mine").expect("write");
    let others = |paths: Vec<PathBuf>| {
        let others = paths.into_iter().filter(|path| !path.starts_with(own) || path.ends_with("notes.parquet.txt"));
        others.map(|path| (fs::read(&path).expect("read"), path)).collect::<Vec<_>>()
    };
    let before = others(files(&dataset));
    whole(&dataset, &["--partition", "slurm_job=4711"], &sinks[0]);
    assert!(before.len() > 3 && others(files(&dataset)) == before);
    assert_eq!(files(own), [own.join("messages-00000.parquet"), own.join("notes.parquet.txt")]);
    assert!(lines(&files(own)[..1]) == csv(&sinks[0]));
}

/// A table without rows has its columns, so that a query over many captures does not fail for one.
#[test]
fn a_capture_without_messages_has_a_table_without_rows() {
    let folder = tempfile::tempdir().expect("folder");
    whole(folder.path(), &[], &sample("perftest-read-lat"));
    whole(folder.path(), &[], &runs::named("ompi-rc-ring2").sink());
    let tables: Vec<DataFrame> = files(folder.path()).iter().map(|path| table(path)).collect();
    let mut heights: Vec<usize> = tables.iter().map(DataFrame::height).collect();
    heights.sort_unstable();
    assert!(heights.len() == 2 && heights[0] == 0 && heights[1] > 0, "{heights:?}");
    assert_eq!(tables[0].schema(), tables[1].schema());
}

#[test]
fn invalid_datasets_are_errors() {
    let folder = tempfile::tempdir().expect("folder");
    let dataset = folder.path().join("messages");
    let sink = runs::named("ompi-rc-ring2").sink();
    for (more, says) in [
        (&["--partition", "job"][..], "KEY=VALUE"),
        (&["--partition", "Job=1"], "lower case"),
        (&["--partition", "run=a/b"], "the value must be"),
        (&["--partition", "run="], "the value must be"),
        (&["--partition", "tag=1"], "a column `tag` already"),
        (&["--partition", "job=1"], "a column `job` already"),
        (&["--partition", "capture=1"], "a column `capture` already"),
        (&["--partition", "run=1", "--partition", "run=2"], "has a key twice"),
        (&["--parquet", "x.parquet"], "cannot be used with"),
        (&["--format", "csv"], "cannot be used with"),
        (&["--file-rows", "0"], "0"),
    ] {
        let ran = write(&dataset, more, &sink);
        assert_eq!(ran.code, 2, "{more:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(says), "{more:?}: {}", ran.stderr);
    }
    assert!(!dataset.exists());
    // Neither a file in the way nor an unreadable capture leaves anything.
    fs::write(&dataset, "").expect("write");
    let ran = write(&dataset, &[], &sink);
    assert!(ran.code == 1 && ran.stderr.contains("cannot be created"), "{}", ran.stderr);
    fs::remove_file(&dataset).expect("removed");
    let broken = folder.path().join("broken.pcap");
    fs::write(&broken, "no capture").expect("write");
    assert_eq!(write(&dataset, &[], &broken).code, 1);
    assert_eq!(files(&dataset), Vec::<PathBuf>::new());
}
