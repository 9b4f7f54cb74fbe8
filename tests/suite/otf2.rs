//! The command `otf2`: archives that the OTF2 tools read, with the messages of the truth.

use crate::memory::{self, MIB};
use crate::runs::{self, RecordedRun};
use crate::tools::{ProgramResult, ibscope};
use ibscope_samples::hard::Recording;
use ibscope_samples::hard::partial::keep;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Messages and bytes by sender and receiver.
type PairSums = BTreeMap<(u32, u32), (u64, u64)>;

fn write(inputs: &[PathBuf], output: &Path, more: &[&str]) -> ProgramResult {
    let inputs = inputs.iter().map(|path| path.to_str().expect("path"));
    let output = output.to_str().expect("path");
    ibscope(["otf2", "-o", output].into_iter().chain(more.iter().copied()).chain(inputs))
}

/// The events of an archive, as `otf2-print` prints them.
#[derive(Default)]
struct ArchiveEvents {
    sends: PairSums,
    receives: PairSums,
    /// One-sided operations by the rank that the bytes come from and the rank that they go to.
    one_sided: PairSums,
    /// Ends of collective operations by rank and operation.
    operations: BTreeMap<(u32, String), u64>,
    /// Pairs of begin and end of requests and one-sided operations.
    pairs: u64,
    /// Bytes per second from and to each port, by time; ports by name.
    rates: BTreeMap<String, BTreeMap<u64, [u64; 2]>>,
}

/// The number after `name`.
fn number(line: &str, name: &str) -> u64 {
    let (_, rest) = line.split_once(name).unwrap_or_else(|| panic!("{name}: {line}"));
    let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("{name}: {line}"))
}

/// Reads an archive. Checks that `otf2-print` has no warning, that no time of a location decreases,
/// and that all requests and one-sided operations end once, after their begin.
fn read(archive: &Path) -> ArchiveEvents {
    let anchor = archive.join("traces.otf2");
    let printed = Command::new("otf2-print").arg("-A").arg(&anchor).output().expect("make deps installs otf2-tools");
    assert!(printed.status.success() && printed.stderr.is_empty(), "{}: {printed:?}", anchor.display());
    let text = String::from_utf8(printed.stdout).expect("text");
    let (definitions, text) = text.split_once("=== Events").expect("events");
    let mut ports: BTreeMap<u32, String> = BTreeMap::new();
    for line in definitions.lines().filter(|line| line.starts_with("LOCATION ") && line.contains("Type: METRIC")) {
        let (_, name) = line.split_once("Name: \"port ").expect("port");
        ports.insert(number(line, "LOCATION") as u32, name.split('"').next().expect("name").to_owned());
    }
    let mut events = ArchiveEvents::default();
    let mut last: BTreeMap<u32, u64> = BTreeMap::new();
    // Rank, id and kind of the requests and operations under way.
    let mut open: BTreeSet<(u32, u64, &str)> = BTreeSet::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let Some(kind) = words.next().filter(|kind| ["MPI_", "RMA_", "METRIC"].iter().any(|of| kind.starts_with(of)))
        else {
            continue;
        };
        let rank: u32 = words.next().and_then(|word| word.parse().ok()).expect("location");
        let time: u64 = words.next().and_then(|word| word.parse().ok()).expect("time");
        let before = last.insert(rank, time).unwrap_or(0);
        assert!(before <= time, "{line}");
        let add = |sums: &mut PairSums, pair, length| {
            let sum = sums.entry(pair).or_default();
            *sum = (sum.0 + 1, sum.1 + number(line, length));
        };
        match kind {
            "MPI_SEND" | "MPI_ISEND" => add(&mut events.sends, (rank, number(line, "Receiver:") as u32), "Length:"),
            "MPI_RECV" | "MPI_IRECV" => add(&mut events.receives, (number(line, "Sender:") as u32, rank), "Length:"),
            "RMA_PUT" => add(&mut events.one_sided, (rank, number(line, "Remote:") as u32), "Bytes:"),
            "RMA_GET" => add(&mut events.one_sided, (number(line, "Remote:") as u32, rank), "Bytes:"),
            "MPI_COLLECTIVE_END" => {
                let (_, name) = line.split_once("Operation: ").expect("operation");
                *events.operations.entry((rank, name.split(',').next().expect("name").to_owned())).or_default() += 1;
            }
            "METRIC" => {
                let mut values = line
                    .split("UINT64; ")
                    .skip(1)
                    .map(|value| value.split(')').next().and_then(|value| value.parse().ok()).expect("value"));
                let rates = [values.next().expect("sent"), values.next().expect("received")];
                let before = events.rates.entry(ports[&rank].clone()).or_default().insert(time, rates);
                assert_eq!(before, None, "{line}");
            }
            _ => {}
        }
        match kind {
            "MPI_ISEND" => assert!(open.insert((rank, number(line, "Request:"), "send")), "{line}"),
            "MPI_IRECV_REQUEST" => assert!(open.insert((rank, number(line, "Request:"), "receive")), "{line}"),
            "RMA_PUT" | "RMA_GET" => assert!(open.insert((rank, number(line, "Matching:"), "one-sided")), "{line}"),
            "MPI_ISEND_COMPLETE" => assert!(open.remove(&(rank, number(line, "Request:"), "send")), "{line}"),
            "MPI_IRECV" => assert!(open.remove(&(rank, number(line, "Request:"), "receive")), "{line}"),
            "RMA_OP_COMPLETE_BLOCKING" => {
                assert!(open.remove(&(rank, number(line, "Matching:"), "one-sided")), "{line}");
            }
            _ => continue,
        }
        events.pairs += 1;
    }
    assert!(open.is_empty(), "{open:?}");
    // Each pair counted twice.
    events.pairs /= 2;
    events
}

/// Compares an archive with the captures that it was written from, and returns the JSON.
fn crosschecked(inputs: &[PathBuf], archive: &Path) -> serde_json::Value {
    let inputs = inputs.iter().map(|path| path.to_str().expect("path").to_owned());
    let anchor = archive.join("traces.otf2").to_str().expect("path").to_owned();
    let arguments = ["crosscheck", "--format", "json"].map(str::to_owned);
    let compared = ibscope(arguments.into_iter().chain(inputs).chain([anchor]));
    assert_eq!(compared.code, 0, "{}{}", compared.stdout, compared.stderr);
    let result: serde_json::Value = serde_json::from_str(&compared.stdout).expect("json");
    assert_eq!(result["differences"].as_array().map(Vec::len), Some(0), "{result}");
    result
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
        let events = read(&archive);
        let truth = run.wire_messages();
        assert_eq!(events.sends, truth, "{}", run.name);
        assert_eq!(events.receives, truth, "{}", run.name);
        assert_eq!((events.pairs, events.one_sided.len()), (0, 0), "{}", run.name);
        crosschecked(&inputs, &archive);
    }
}

/// With requests the archive has the same messages, with a begin and an end at both ranks.
#[test]
fn requests_begin_and_end_at_both_ranks() {
    let folder = tempfile::tempdir().expect("folder");
    for run in [runs::named("ompi-rc-mixed-2x2"), runs::of_second_set("mpich4.2-rc-mixed-2x2")] {
        let archive = folder.path().join(&run.name);
        let result = write(&run.every_node(), &archive, &["--requests"]);
        assert_eq!(result.code, 0, "{}: {}", run.name, result.stderr);
        let events = read(&archive);
        let truth = run.wire_messages();
        let messages: u64 = truth.values().map(|(messages, _)| messages).sum();
        assert!(messages > 0);
        assert_eq!(events.pairs, 2 * messages, "{}", run.name);
        assert_eq!(events.sends, truth, "{}", run.name);
        assert_eq!(events.receives, truth, "{}", run.name);
        crosschecked(&run.every_node(), &archive);
    }
}

/// One-sided operations are no messages, and have the bytes that the program moved.
#[test]
fn archives_have_the_one_sided_operations_of_the_program() {
    // Of the program, in each direction: bytes put, bytes got, and those of accumulates, which are a
    // READ and a WRITE.
    const BYTES: u64 = 3_125_632 + 3_125_632 + 2 * 295_488;
    let run = runs::of_second_set("ompi5-ucx-rc-rma-2x1");
    let folder = tempfile::tempdir().expect("folder");
    for more in [&[][..], &["--requests"]] {
        let archive = folder.path().join(format!("archive{}", more.len()));
        let result = write(&run.every_node(), &archive, more);
        assert_eq!(result.code, 0, "{}", result.stderr);
        let events = read(&archive);
        let bytes = |pair| events.one_sided.get(&pair).map_or(0, |(_, bytes)| *bytes);
        assert_eq!((bytes((0, 1)), bytes((1, 0))), (BYTES, BYTES));
        let operations: u64 = events.one_sided.values().map(|(operations, _)| operations).sum();
        assert_eq!((events.one_sided.len(), events.pairs), (2, operations));
        assert!(events.sends.is_empty() && events.receives.is_empty(), "{:?}", events.sends);
        let compared = crosschecked(&run.every_node(), &archive);
        assert_eq!(compared["pairs"].as_array().map(Vec::len), Some(0), "{compared}");
        let one_sided = compared["one_sided"].as_array().expect("one-sided operations");
        assert_eq!(one_sided.len(), 2, "{compared}");
        for pair in one_sided {
            assert_eq!((&pair["result"], pair["bytes"].as_u64()), (&"equal".into(), Some(BYTES)), "{pair}");
        }
    }
}

/// The rates of a port are those of the frames in its capture, in bins of 1 ms.
#[test]
fn link_rates_are_those_of_the_frames_at_the_port() {
    const BIN_NS: u64 = 1_000_000;
    let folder = tempfile::tempdir().expect("folder");
    for run in [runs::named("ompi-rc-mixed-2x2"), runs::of_second_set("ompi5-ucx-rc-rma-2x1")] {
        let archive = folder.path().join(&run.name);
        let result = write(&[run.node(1)], &archive, &[]);
        assert_eq!(result.code, 0, "{}", result.stderr);
        let mut expected: BTreeMap<u64, [u64; 2]> = BTreeMap::new();
        let records = runs::timed_records(&run.node(1)).into_iter().filter(|(_, frame)| runs::is_roce(frame));
        for (time_ns, frame) in records {
            // 14 bytes of Ethernet, and the length in the IPv4 header. Node 1 has the address 10.77.0.1.
            let bytes = 14 + u64::from(u16::from_be_bytes([frame[16], frame[17]]));
            let is_sent = frame[26..30] == [10, 77, 0, 1];
            assert!(is_sent || frame[30..34] == [10, 77, 0, 1]);
            expected.entry(time_ns / BIN_NS * BIN_NS).or_default()[usize::from(!is_sent)] += bytes * 1000;
        }
        let events = read(&archive);
        let samples = &events.rates["10.77.0.1"];
        let ends = samples.keys().skip(1);
        let mut found = BTreeMap::new();
        for ((start_ns, rates), end_ns) in samples.iter().zip(ends) {
            let bins = (*start_ns..*end_ns).step_by(BIN_NS as usize).filter(|_| *rates != [0, 0]);
            found.extend(bins.map(|bin_ns| (bin_ns, *rates)));
        }
        assert_eq!(found, expected, "{}", run.name);
        assert_eq!(samples.last_key_value().map(|(_, rates)| *rates), Some([0, 0]), "the end");
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
    let operations = read(&archive).operations;
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

/// Two of the four ports, and one port without one of 33 records: the archive has no operation that the
/// archive of all ports does not have, and notes count those that it leaves out.
#[test]
fn operations_that_the_messages_do_not_show_are_left_out() {
    const UNMATCHED: &str = "collective operations are left out, because their messages match no known algorithm";
    const PORTS: &str = "note: the captures may not show all ports: ";
    let run = runs::of_second_set("ompi5-coll-default-4x1");
    let folder = tempfile::tempdir().expect("folder");
    let operations = |inputs: &[PathBuf], name: &str| {
        let archive = folder.path().join(name);
        let result = write(inputs, &archive, &[]);
        assert_eq!(result.code, 0, "{}", result.stderr);
        (read(&archive).operations, result.stderr)
    };
    let (whole, notes) = operations(&run.every_node(), "whole");
    assert!(!notes.contains(UNMATCHED) && !notes.contains(PORTS), "{notes}");
    let (part, notes) = operations(&[run.node(1), run.node(2)], "part");
    assert!(notes.contains(UNMATCHED) && notes.contains(PORTS), "{notes}");
    assert!(!part.is_empty());
    for (call, found) in &part {
        assert!(whole.get(call).is_some_and(|all| found <= all), "{call:?}: {found}, {whole:?}");
    }
    let lossy = folder.path().join("lossy.pcap");
    let recording = Recording::read(&runs::of_second_set("ompi5-coll-allreduce-algos-4x1").node(1)).expect("capture");
    keep(&recording, |index, _| index % 33 != 7).write(&lossy).expect("written");
    let (found, notes) = operations(&[lossy], "lossy");
    assert!(found.is_empty(), "{found:?}");
    assert!(notes.contains("left out, because messages of their communicators are missing"), "{notes}");
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

/// Peak memory of the program in Python while it writes this number of sends of one rank, in bytes.
fn writer_peak_bytes(sends: u64) -> u64 {
    let folder = tempfile::tempdir().expect("folder");
    let mut child = Command::new("/usr/bin/python3")
        .args(["-c", ibscope::render::otf2::WRITER])
        .arg(folder.path().join("archive"))
        .stdin(Stdio::piped())
        .spawn()
        .expect("make deps installs python3-otf2");
    let mut stdin = BufWriter::new(child.stdin.take().expect("standard input"));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let definitions = serde_json::json!({
                "creator": "test", "ranks": ["n1", "n2"], "window": null, "ports": [], "rate": "", "operations": [],
                "communicators": [{ "name": "MPI_COMM_WORLD", "members": [0, 1] }],
            });
            writeln!(stdin, "{definitions}").expect("definitions");
            for number in 0..sends {
                let numbers = [1_000 * number, 8, 0, number].map(u64::to_le_bytes);
                // From rank 0 to 1, with tag 7.
                let words = [0, 0, 1, 0, 7, 0].map(u32::to_le_bytes);
                stdin.write_all(&[numbers.concat(), words.concat()].concat()).expect("a record");
            }
            stdin.flush().expect("records");
        });
        let peak_bytes = memory::watch(&mut child);
        assert!(child.wait().expect("wait").success());
        assert_eq!(read(&folder.path().join("archive")).sends[&(0, 1)], (sends, 8 * sends));
        peak_bytes
    })
}

/// By default, the OTF2 library keeps all events of a rank in memory, up to 128 MiB.
#[test]
fn memory_of_the_writer_does_not_grow_with_the_messages() {
    let peaks = [20_000, 800_000].map(writer_peak_bytes);
    // An event takes 18 bytes: 13 MiB more.
    assert!(peaks[1] < peaks[0] + 5 * MIB, "{peaks:?} bytes");
}
