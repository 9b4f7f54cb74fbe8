//! The notebooks run on a profile of a recorded run, and show the numbers of the truth and of the
//! program. Their stored outputs are those of a run on the profile of `make demo`. The Python package
//! that they use reads profiles as polars and as pandas frames.

use crate::python::{run, venv};
use crate::runs;
use crate::tools::{result, sample};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Executes a notebook in its folder; prints the output of its cells and the number of figures.
const EXECUTE: &str = r#"
import json, sys
import nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], 4)
nbformat.validate(notebook)
NotebookClient(notebook, timeout=600, resources={"metadata": {"path": sys.argv[2]}}).execute()
outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
text = [output.text for output in outputs if output.output_type == "stream" and output.name == "stdout"]
figures = sum("image/png" in output.get("data", {}) for output in outputs)
print(json.dumps({"text": text, "figures": figures}))
"#;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("notebooks")
}

fn notebooks() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder()).expect("notebooks").map(|entry| entry.expect("entry").path());
    let mut found: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|end| end == "ipynb")).collect();
    found.sort();
    assert!(found.len() >= 3, "{found:?}");
    found
}

/// The printed text of each cell, and the number of figures.
fn executed(name: &str, profile: &Path) -> (Vec<String>, u64) {
    let python = venv(&folder().join("requirements.txt"));
    let mut command = Command::new(python);
    command.args(["-c", EXECUTE]).arg(folder().join(name)).arg(folder());
    command.env("IBSCOPE", env!("CARGO_BIN_EXE_ibscope")).env("IBSCOPE_PROFILE", profile);
    // Fonts of figures and the state of the kernel must not go to the user's home.
    let home = tempfile::tempdir().expect("folder");
    for variable in ["MPLCONFIGDIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "PYTHONPYCACHEPREFIX"] {
        command.env(variable, home.path().join(variable));
    }
    let printed: Value = serde_json::from_str(&run(&mut command, "see notebooks/README.md")).expect("JSON");
    let text = printed["text"].as_array().expect("texts");
    (
        text.iter().map(|text| text.as_str().expect("text").to_owned()).collect(),
        printed["figures"].as_u64().expect("number"),
    )
}

/// The rows of a csv that a cell printed, without the header.
fn rows(text: &str, header: &str) -> Vec<Vec<String>> {
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some(header));
    lines.take_while(|line| !line.is_empty()).map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

/// The header of point-to-point messages by pair of ranks, in a notebook and below.
const PAIRS: &str = "src_rank,dst_rank,p2p_messages,p2p_mpi_bytes";

/// Asserts that a csv with the header [`PAIRS`] has the messages and bytes of the run's truth.
fn assert_is_truth(csv: &str, run: &runs::RecordedRun) {
    let found: BTreeMap<(u32, u32), (u64, u64)> = rows(csv, PAIRS)
        .iter()
        .map(|row| {
            let number = |index: usize| row[index].parse::<u64>().expect("number");
            ((number(0) as u32, number(1) as u32), (number(2), number(3)))
        })
        .filter(|(_, (messages, _))| *messages > 0)
        .collect();
    let truth = run.truth("wire.csv").expect("truth");
    assert_eq!(found, truth.into_iter().filter(|(_, (messages, _))| *messages > 0).collect());
}

fn profile(folder: &Path, run: &runs::RecordedRun) -> PathBuf {
    let place = folder.join("job.ibp");
    result(&["analyze", "-o", place.to_str().expect("path")], &[run.sink()]);
    place
}

/// The printed text of each cell, and the number of figures, as stored in the repository.
fn stored(name: &str) -> (Vec<String>, u64) {
    let text = std::fs::read_to_string(folder().join(name)).expect("notebook");
    let notebook: Value = serde_json::from_str(&text).expect("JSON");
    let cells = notebook["cells"].as_array().expect("cells").iter();
    let outputs: Vec<&Value> = cells.filter_map(|cell| cell["outputs"].as_array()).flatten().collect();
    assert!(outputs.iter().all(|output| output["output_type"] != "error"), "{name}");
    let printed = outputs.iter().filter(|output| output["name"] == "stdout").map(|output| {
        // nbformat stores a text as a list of lines.
        let lines = output["text"].as_array().expect("lines").iter();
        lines.map(|line| line.as_str().expect("line")).collect::<String>()
    });
    let figures = outputs.iter().filter(|output| !output["data"]["image/png"].is_null()).count();
    (printed.collect(), figures as u64)
}

/// `notebooks/README.md` has the command that stores the outputs.
#[test]
fn stored_outputs_are_those_of_the_demo() {
    let folder = tempfile::tempdir().expect("folder");
    let place = folder.path().join("openib-mixed-4x1.ibp");
    result(&["analyze", "-o", place.to_str().expect("path")], &[sample("openib-mixed-4x1")]);
    for path in notebooks() {
        let name = path.file_name().expect("name").to_str().expect("text");
        let stored = stored(name);
        assert!(!stored.0.is_empty() && stored.1 > 0, "{name}");
        assert_eq!(executed(name, &place), stored, "{name}");
    }
}

#[test]
fn the_matrix_equals_the_truth() {
    let folder = tempfile::tempdir().expect("folder");
    let run = runs::named("ompi-rc-notrace-mixed-4x1");
    let (text, figures) = executed("01-matrix.ipynb", &profile(folder.path(), &run));
    assert_eq!(figures, 2);
    let printed: String = text.concat();
    assert_is_truth(&printed, &run);
}

/// The notebook reads the buckets from the tables with its own arithmetic.
#[test]
fn latencies_equal_those_of_the_program() {
    let folder = tempfile::tempdir().expect("folder");
    let profile = profile(folder.path(), &runs::named("ompi-openib-notrace-mixed-4x1"));
    let (text, figures) = executed("02-latency.ipynb", &profile);
    assert_eq!(figures, 3);
    let found = rows(&text.concat(), "interval,verb,from_bytes,samples,median_ns,p99_ns");
    let csv = result(&["latency", "--format", "csv"], &[profile]);
    let mut lines = csv.lines();
    let header: Vec<&str> = lines.next().expect("header").split(',').collect();
    let column = |name: &str| header.iter().position(|column| *column == name).expect("column");
    let wanted = ["interval", "verb", "from_bytes", "samples", "median_ns", "p99_ns"].map(column);
    let mut expected: Vec<Vec<String>> = lines
        .map(|line| line.split(',').collect::<Vec<_>>())
        // Whole connections have no histogram in the profile.
        .filter(|fields| !fields[column("verb")].is_empty())
        .map(|fields| wanted.iter().map(|index| fields[*index].to_owned()).collect())
        .collect();
    let mut found = found;
    // Extremes are exact, while the notebook knows buckets only.
    found.sort();
    expected.sort();
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found[..4], expected[..4]);
        for (found, expected) in found[4..].iter().zip(&expected[4..]) {
            let [found, expected] = [found, expected].map(|ns| ns.parse::<f64>().expect("time"));
            assert!((found - expected).abs() <= expected * 0.001, "{found} and {expected}");
        }
    }
}

#[test]
fn the_timeline_is_complete_and_the_phases_equal_those_of_the_program() {
    let folder = tempfile::tempdir().expect("folder");
    let profile = profile(folder.path(), &runs::named("ompi-rc-mw-2x2"));
    let (text, figures) = executed("03-timeline-and-phases.ipynb", &profile);
    assert_eq!(figures, 2);
    let csv = result(&["matrix", "--format", "csv"], &[&profile]);
    let sum = |column: usize| -> u64 {
        csv.lines()
            .skip(1)
            .map(|line| line.split(',').nth(column).expect("field").parse::<u64>().expect("number"))
            .sum()
    };
    let expected = format!("{} bytes on the wire, {} packets", sum(5), sum(6));
    let printed = text.concat();
    assert!(printed.contains(&expected), "{expected}: {printed}");
    let phases = printed.find("from_s,").expect("phases");
    let in_phases: Vec<String> = rows(&printed[phases..], "from_s,to_s,pattern,wire_bytes")
        .into_iter()
        .map(|row| format!("{},{}", row[2], row[3]))
        .collect();
    let csv = result(&["phases", "--format", "csv"], &[&profile]);
    let header: Vec<&str> = csv.lines().next().expect("header").split(',').collect();
    let column = |name: &str| header.iter().position(|column| *column == name).expect("column");
    let (pattern, wire_bytes) = (column("pattern"), column("wire_bytes"));
    let expected: Vec<String> = csv
        .lines()
        .skip(1)
        .map(|line| line.split(',').collect::<Vec<_>>())
        .map(|fields| format!("{},{}", fields[pattern], fields[wire_bytes]))
        .collect();
    assert!(expected.len() > 2, "{expected:?}");
    assert_eq!(in_phases, expected);
}

/// Two calls write the dataset; the notebook reads it with polars and `DuckDB` and compares both.
#[test]
fn the_dataset_adds_up_to_the_truth_of_each_job() {
    let folder = tempfile::tempdir().expect("folder");
    let (text, figures) = executed("05-dataset.ipynb", folder.path());
    assert_eq!(figures, 1);
    let printed = text.concat();
    let header = "slurm_job,src_rank,dst_rank,messages,mpi_bytes";
    let mut found: BTreeMap<(String, u32, u32), (u64, u64)> = BTreeMap::new();
    for row in rows(&printed[printed.find(header).expect("pairs")..], header) {
        let number = |index: usize| row[index].parse::<u64>().expect("number");
        found.insert((row[0].clone(), number(1) as u32, number(2) as u32), (number(3), number(4)));
    }
    let header = "slurm_job,messages,median_bytes,largest_bytes";
    let sizes = rows(&printed[printed.find(header).expect("sizes")..], header);
    assert_eq!(sizes.len(), 2);
    let mut expected = BTreeMap::new();
    let jobs = [("bt", "ompi-openib-bt.S-4x1"), ("mixed", "ompi-rc-notrace-mixed-4x1")];
    for ((job, run), size) in jobs.into_iter().zip(&sizes) {
        let run = runs::named(run);
        let truth = run.truth("wire.csv").expect("truth");
        let messages: u64 = truth.values().map(|(messages, _)| messages).sum();
        assert_eq!(size[..2], [job.to_owned(), messages.to_string()]);
        let sums = truth.into_iter().filter(|(_, (messages, _))| *messages > 0);
        expected.extend(sums.map(|((src, dst), sums)| ((job.to_owned(), src, dst), sums)));
        // The matrix is equal.
        let csv = result(&["matrix", "--by", "rank", "--format", "csv"], &[run.sink()]);
        for row in rows(&csv, "src,dst,messages,mpi_bytes,payload_bytes,wire_bytes,packets,job,coverage,class") {
            let [src, dst] = [&row[0], &row[1]].map(|rank| rank.parse::<u32>().expect("rank"));
            let sums = [&row[2], &row[3]].map(|sum| sum.parse::<u64>().expect("sum"));
            if sums[0] > 0 {
                assert_eq!(found[&(job.to_owned(), src, dst)], (sums[0], sums[1]), "{job} {src} {dst}");
            }
        }
    }
    assert_eq!(found, expected);
}

/// Rank 2 of the run computes 20 ms longer than the others.
#[test]
fn the_straggler_is_the_one_of_the_run() {
    let (text, figures) = stored("07-straggler.ipynb");
    assert_eq!(figures, 2);
    let header = "rank,delay_ms,at_least_ms,of_period";
    let printed = text.concat();
    let rows = rows(&printed[printed.find(header).expect("stragglers")..], header);
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(rows[0][0], "2");
    let delay_ms: f64 = rows[0][1].parse().expect("time");
    assert!((delay_ms - 20.0).abs() < 2.5, "{delay_ms} ms");
}

/// Prints the sums of the package's matrix as csv, for either kind of frames, and its refusals.
const READ: &str = r#"
import sys
import ibscope
import narwhals as nw
assert "notebooks" not in ibscope.__file__, "the package is installed"
for frames in ["polars", "pandas"]:
    profile = ibscope.read(sys.argv[1], frames=frames)
    matrix = nw.from_native(profile.matrix())
    print("src_rank,dst_rank,p2p_messages,p2p_mpi_bytes")
    for row in matrix.select("src_rank", "dst_rank", "p2p_messages", "p2p_mpi_bytes").iter_rows():
        print(*row, sep=",")
    print()
    for table in profile.tables():
        assert list(nw.from_native(profile.table(table)).columns) == list(ibscope.columns(table)), table
    latencies = profile.latencies()
    print(nw.from_native(latencies)["count"].sum(), ibscope.quantile_ns(latencies, 0.5))
for folder, frames in [(sys.argv[2], "polars"), (sys.argv[1], "arrow"), (sys.argv[3], "polars")]:
    try:
        ibscope.read(folder, frames=frames)
    except ValueError as error:
        print(error)
"#;

#[test]
fn the_installed_package_reads_a_profile_as_polars_and_pandas_frames() {
    let own = tempfile::tempdir().expect("folder");
    let run_of = runs::named("ompi-rc-notrace-mixed-4x1");
    let profile = profile(own.path(), &run_of);
    let python = venv(&folder().join("requirements.txt"));
    let site = own.path().join("site");
    // pip builds in the folder of the source.
    let source = own.path().join("source");
    std::fs::create_dir_all(source.join("ibscope")).expect("folder");
    for name in ["pyproject.toml", "ibscope/__init__.py", "ibscope/columns.json", "ibscope/README.md"] {
        std::fs::copy(folder().join(name), source.join(name)).expect("copy");
    }
    let install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target"];
    run(Command::new(&python).args(install).args([&site, &source]), "requirements.txt has setuptools");
    let mut command = Command::new(&python);
    // A share of a capture, whose pairs are not all pairs.
    let share = own.path().join("share.ibp");
    result(&["analyze", "--partial", "--share", "1/2", "-o", share.to_str().expect("path")], &[run_of.node(1)]);
    command
        .args(["-c", READ])
        .arg(&profile)
        .arg(own.path())
        .arg(&share)
        .env("PYTHONPATH", &site)
        .current_dir(own.path());
    let printed = run(&mut command, "see notebooks/README.md");
    let [polars, pandas, refusals] = {
        let parts: Vec<&str> = printed.split(PAIRS).collect();
        let (pandas, refusals) = parts[2].split_at(parts[1].len());
        [format!("{PAIRS}{}", parts[1]), format!("{PAIRS}{pandas}"), refusals.to_owned()]
    };
    assert_eq!(polars, pandas);
    assert_is_truth(&polars, &run_of);
    assert!(refusals.contains("profile.json: no such file; `ibscope analyze"), "{refusals}");
    assert!(refusals.contains("frames='arrow'"), "{refusals}");
    assert!(refusals.contains("it has share 1/2 of the connections"), "{refusals}");
}
