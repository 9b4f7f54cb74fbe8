//! The command `otf2`: archives that the OTF2 tools read, with the messages of the truth.

use crate::runs::{self, RecordedRun};
use crate::tools::{ProgramResult, ibscope};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Messages and bytes by sender and receiver.
type PairSums = BTreeMap<(u32, u32), (u64, u64)>;

fn write(inputs: &[PathBuf], output: &Path, more: &[&str]) -> ProgramResult {
    let inputs = inputs.iter().map(|path| path.to_str().expect("path"));
    let output = output.to_str().expect("path");
    ibscope(["otf2", "-o", output].into_iter().chain(more.iter().copied()).chain(inputs))
}

/// The sends, receives and ends of collective operations of an archive, as `otf2-print` prints them:
/// by pair, and by rank and operation. Checks that no time of a rank decreases.
fn read(archive: &Path) -> (PairSums, PairSums, BTreeMap<(u32, String), u64>) {
    let anchor = archive.join("traces.otf2");
    let everything = Command::new("otf2-print").arg("-A").arg(&anchor).output().expect("make deps installs otf2-tools");
    assert!(everything.status.success() && everything.stderr.is_empty(), "{}: {everything:?}", anchor.display());
    let output = Command::new("otf2-print").arg(&anchor).output().expect("otf2-print");
    assert!(output.status.success() && output.stderr.is_empty(), "{}", anchor.display());
    let text = String::from_utf8(output.stdout).expect("text");
    let number = |line: &str, name: &str| -> u64 {
        let (_, rest) = line.split_once(name).unwrap_or_else(|| panic!("{name}: {line}"));
        let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or_else(|_| panic!("{name}: {line}"))
    };
    let (mut sends, mut receives) = (PairSums::new(), PairSums::new());
    let mut operations = BTreeMap::new();
    let mut last: BTreeMap<u32, u64> = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let Some(kind @ ("MPI_SEND" | "MPI_RECV" | "MPI_COLLECTIVE_BEGIN" | "MPI_COLLECTIVE_END")) = words.next()
        else {
            continue;
        };
        let rank: u32 = words.next().and_then(|word| word.parse().ok()).expect("location");
        let time: u64 = words.next().and_then(|word| word.parse().ok()).expect("time");
        let before = last.insert(rank, time).unwrap_or(0);
        assert!(before <= time, "{line}");
        let add = |sums: &mut PairSums, pair| {
            let sum = sums.entry(pair).or_default();
            *sum = (sum.0 + 1, sum.1 + number(line, "Length:"));
        };
        match kind {
            "MPI_SEND" => add(&mut sends, (rank, number(line, "Receiver:") as u32)),
            "MPI_RECV" => add(&mut receives, (number(line, "Sender:") as u32, rank)),
            "MPI_COLLECTIVE_END" => {
                let (_, name) = line.split_once("Operation: ").expect("operation");
                *operations.entry((rank, name.split(',').next().expect("name").to_owned())).or_default() += 1;
            }
            _ => {}
        }
    }
    (sends, receives, operations)
}

/// Runs of different libraries, with two ranks per node, with loss, with one capture per node and
/// with a sink: the archive has the messages of the wire, and a cross-check with it finds no
/// difference.
#[test]
fn archives_have_the_messages_of_the_wire() {
    let of_first_set = [
        ("mpich-rc-mixed-2x2", false),
        ("ompi-openib-bt.S-4x1", false),
        ("ompi-rc-loss1-ring2", true),
        ("ompi-ofi-ring2", false),
        ("scorep-ompi-rc-comm-4x1", false),
    ]
    .map(|(name, sink)| (runs::named(name), sink));
    let of_second_set = ["ompi5-ucx-rc-multirail-mixed-2x1", "nccl-ring-qps2split-2x1", "mixed-mpi-plus-nfs"]
        .map(|name| (runs::of_second_set(name), false));
    let folder = tempfile::tempdir().expect("folder");
    let place = folder.path();
    for (run, is_sink) in of_first_set.into_iter().chain(of_second_set) {
        let inputs = if is_sink { vec![run.sink()] } else { run.every_node() };
        let archive = place.join(&run.name);
        let result = write(&inputs, &archive, &[]);
        assert_eq!(result.code, 0, "{}: {}", run.name, result.stderr);
        let (sends, receives, _) = read(&archive);
        let mut truth = run.truth("wire.csv").expect("wire.csv");
        truth.retain(|_, (messages, _)| *messages > 0);
        assert_eq!(sends, truth, "{}", run.name);
        assert_eq!(receives, truth, "{}", run.name);
        let inputs = inputs.iter().map(|path| path.to_str().expect("path").to_owned());
        let anchor = archive.join("traces.otf2").to_str().expect("path").to_owned();
        let compared = ibscope(["crosscheck".to_owned()].into_iter().chain(inputs).chain([anchor]));
        assert_eq!(compared.code, 0, "{}: {}{}", run.name, compared.stdout, compared.stderr);
    }
}

/// Every rank ends each operation of the program once, with the operation that the program called.
#[test]
fn archives_have_the_collective_operations_of_the_program() {
    let run: RecordedRun = runs::of_second_set("ompi5-coll-default-4x1");
    let folder = tempfile::tempdir().expect("folder");
    let archive = folder.path().join("archive");
    let result = write(&run.every_node(), &archive, &[]);
    assert_eq!(result.code, 0, "{}", result.stderr);
    let (_, _, operations) = read(&archive);
    let calls = crate::tools::csv_rows(&fs::read_to_string(run.folder.join("coll_truth.csv")).expect("truth"));
    let mut expected: BTreeMap<(u32, String), u64> = BTreeMap::new();
    for call in &calls {
        for rank in call["comm_ranks"].split(' ') {
            let rank = rank.parse().expect("rank");
            *expected.entry((rank, call["operation"].to_ascii_uppercase())).or_default() += 1;
        }
    }
    for (call, times) in expected {
        // The library itself calls some operations more when it makes communicators.
        assert!(operations.get(&call).is_some_and(|found| *found >= times), "{call:?}: {times}, {operations:?}");
    }
}

/// Nothing of the user is replaced, a Python without the module is named, and neither leaves
/// anything behind.
#[test]
fn failures_leave_nothing_behind() {
    let folder = tempfile::tempdir().expect("folder");
    let place = folder.path();
    let run = runs::named("ompi-rc-ring2");
    let existing = place.join("existing");
    fs::create_dir(&existing).expect("folder");
    let result = write(&[run.sink()], &existing, &[]);
    assert_eq!(result.code, 1, "{}", result.stderr);
    assert!(result.stderr.contains("existing: cannot be written: already exists; remove it"), "{}", result.stderr);
    let python = place.join("python");
    fs::write(&python, "#!/bin/sh\nexec /usr/bin/python3 -I -S \"$@\"\n").expect("script");
    fs::set_permissions(&python, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("mode");
    let output = place.join("none");
    let python = python.to_str().expect("path");
    let sink = run.sink();
    let result =
        ibscope(["otf2", "-o", output.to_str().expect("path"), "--python", python, sink.to_str().expect("path")]);
    assert_eq!(result.code, 1, "{}", result.stderr);
    assert!(result.stderr.contains("install the OTF2 module of Python"), "{}", result.stderr);
    let result =
        ibscope(["otf2", "-o", output.to_str().expect("path"), "--python", "/no/python", sink.to_str().expect("path")]);
    assert_eq!(result.code, 1, "{}", result.stderr);
    assert!(result.stderr.contains("/no/python: cannot be run"), "{}", result.stderr);
    // Captures of storage have no ranks, and those of two jobs need a choice.
    let storage = runs::of_second_set("nvmeof-dd-2");
    let result = write(&storage.every_node(), &output, &[]);
    assert!(result.code == 1 && result.stderr.contains("no MPI job with known ranks"), "{}", result.stderr);
    let two = runs::of_second_set("twojobs-mixed-halo-2x1");
    let result = write(&two.every_node(), &output, &[]);
    assert!(result.code == 1 && result.stderr.contains("choose one with --job N"), "{}", result.stderr);
    let result = write(&two.every_node(), &output, &["--job", "2"]);
    assert_eq!(result.code, 0, "{}", result.stderr);
    let mut names: Vec<_> =
        fs::read_dir(place).expect("folder").map(|entry| entry.expect("entry").file_name()).collect();
    names.sort();
    assert_eq!(names, ["existing", "none", "python"]);
}
