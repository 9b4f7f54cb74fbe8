//! Output files, and inputs, windows and rank maps with problems: the errors and the notes.

use super::{names, profile_of, text};
use crate::runs::decompressed;
use crate::tools::{ProgramResult, command, ibscope, ibscope_fed, result, sample, walk};
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The ways to write a file, as arguments before its name.
const WAYS: [&[&str]; 9] = [
    &["messages", "--parquet"],
    &["matrix", "--svg"],
    &["matrix", "--png"],
    &["matrix", "--pdf"],
    &["timeline", "--svg"],
    &["timeline", "--png"],
    &["latency", "--svg"],
    &["latency", "--png"],
    &["report", "-o"],
];

fn written(way: &[&str], place: &Path, input: &Path) -> ProgramResult {
    ibscope([way, &[text(place), text(input)]].concat())
}

fn refused(ran: &ProgramResult, code: i32, expected: &str) {
    assert_eq!((ran.code, ran.stdout.as_str()), (code, ""), "{}", ran.stderr);
    assert!(ran.stderr.contains(expected), "{expected}: {}", ran.stderr);
}

/// A copy of a sample that the test may lose.
fn capture_in(folder: &Path) -> PathBuf {
    let path = folder.join("capture.pcap.zst");
    fs::copy(sample("openib-mixed-4x1"), &path).expect("copied");
    path
}

/// Runs a program that the system may not allow.
fn allowed(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

#[allow(clippy::print_stderr, reason = "a skipped test prints a line")]
pub(crate) fn skipped(why: &str) {
    eprintln!("SKIPPED: {why}");
}

#[test]
fn no_input_is_replaced() {
    let folder = tempfile::tempdir().expect("folder");
    let path = capture_in(folder.path());
    let (soft, hard) = (folder.path().join("soft"), folder.path().join("hard"));
    symlink("capture.pcap.zst", &soft).expect("link");
    fs::hard_link(&path, &hard).expect("link");
    let bytes = fs::read(&path).expect("capture");
    let before = names(folder.path());
    for way in WAYS {
        for place in [&path, &soft, &hard] {
            refused(&written(way, place, &path), 1, "cannot be written: the command reads it");
            refused(&written(way, &path, place), 1, "cannot be written: the command reads it");
        }
        // The second of two inputs, and standard input.
        let ran = ibscope([way, &[text(&path), text(&sample("ucx-ud-ring2")), text(&path)]].concat());
        refused(&ran, 1, "the command reads it");
        let mut command = command([way, &[text(&path), "-"]].concat());
        command.stdin(fs::File::open(&path).expect("capture"));
        refused(&command.output().expect("started").into(), 1, "the command reads it (-)");
    }
    let hosts = folder.path().join("hosts.csv");
    fs::write(&hosts, "endpoint,name\n17,node1\n").expect("written");
    let ran = ibscope(["matrix", "--hosts", text(&hosts), "--svg", text(&hosts), text(&path)]);
    refused(&ran, 1, "the command reads it");
    assert_eq!(fs::read(&path).expect("capture"), bytes);
    fs::remove_file(&hosts).expect("removed");
    assert_eq!(names(folder.path()), before);
    let profile = profile_of(folder.path(), &[&path], &[]);
    let document = profile.join("profile.json");
    refused(&written(&["matrix", "--svg"], &document, &profile), 1, "the command reads it");
    result(&["matrix"], &[&profile]);
}

#[test]
fn no_profile_replaces_what_the_command_reads() {
    let folder = tempfile::tempdir().expect("folder");
    let profile = profile_of(folder.path(), &[sample("openib-mixed-4x1")], &["--partial"]);
    // A capture with the name of a file of a profile, and links to it.
    let inside = profile.join("parts.bin");
    let parts = fs::read(&inside).expect("parts");
    fs::copy(sample("openib-mixed-4x1"), &inside).expect("copied");
    let (soft, hard) = (folder.path().join("soft"), folder.path().join("hard"));
    symlink(&inside, &soft).expect("link");
    fs::hard_link(&inside, &hard).expect("link");
    let to_profile = folder.path().join("to-profile");
    symlink(&profile, &to_profile).expect("link");
    for input in [&inside, &soft, &hard] {
        for place in [&profile, &to_profile] {
            for way in [&["analyze"][..], &["watch", "--once"]] {
                let ran = ibscope([way, &[text(input), "-o", text(place)]].concat());
                refused(&ran, 1, &format!("cannot be replaced: the command reads {}", input.display()));
            }
        }
    }
    let mut from_stdin = command(["analyze", "-", "-o", text(&profile)]);
    from_stdin.stdin(fs::File::open(&inside).expect("capture"));
    refused(&from_stdin.output().expect("started").into(), 1, "cannot be replaced: the command reads -");
    assert_eq!(fs::read(&inside).expect("capture"), fs::read(sample("openib-mixed-4x1")).expect("sample"));
    fs::write(&inside, parts).expect("parts");
    let merged = ibscope(["merge", text(&profile), "-o", text(&to_profile)]);
    refused(&merged, 1, "cannot be replaced: the command reads");
    result(&["matrix"], &[&profile]);
}

/// `SIGXFSZ` would end the program without a message, and leave a partial file.
#[test]
fn a_limit_on_the_length_of_files_is_named_as_such() {
    let folder = tempfile::tempdir().expect("folder");
    let path = sample("ucx-rc-halo-4x1");
    let place = folder.path().join("out");
    let more: [&[&str]; 4] = [&["analyze", "-o"], &["trace", "-o"], &["anonymize", "-o"], &["messages", "--dataset"]];
    for way in WAYS.iter().chain(&more) {
        // In blocks of 512 or 1024 bytes.
        let script = format!("ulimit -f 1; exec {} \"$@\"", env!("CARGO_BIN_EXE_ibscope"));
        let mut limited = Command::new("sh");
        limited.args(["-c", &script, "sh"]).args(*way).args([&place, &path]);
        let ran = ProgramResult::from(limited.output().expect("started"));
        refused(&ran, 1, "cannot be written: File too large");
        assert!(ran.stderr.contains("ulimit -f"), "{way:?}: {}", ran.stderr);
        // A dataset is a folder that stays.
        let left = if place.is_dir() { names(&place) } else { names(folder.path()) };
        assert_eq!(left, [""; 0], "{way:?}");
    }
}

/// The output of a command into a FIFO.
fn through_a_fifo(way: &[&str], folder: &Path, input: &Path) -> Vec<u8> {
    let fifo = folder.join("fifo");
    assert!(allowed("mkfifo", &[text(&fifo)]));
    let bytes = std::thread::scope(|scope| {
        let reader = scope.spawn(|| fs::read(&fifo).expect("read"));
        let ran = written(way, &fifo, input);
        assert_eq!(ran.code, 0, "{way:?}: {}", ran.stderr);
        reader.join().expect("read")
    });
    assert!(fs::symlink_metadata(&fifo).expect("FIFO").file_type().is_fifo(), "{way:?}: it is one still");
    fs::remove_file(&fifo).expect("removed");
    bytes
}

#[test]
fn fifos_are_written_as_files_are() {
    let folder = tempfile::tempdir().expect("folder");
    let path = sample("ucx-rc-halo-4x1");
    let file = folder.path().join("file");
    for way in WAYS {
        assert_eq!(written(way, &file, &path).code, 0);
        let expected = fs::read(&file).expect("file");
        assert!(expected.len() > 1000);
        assert!(through_a_fifo(way, folder.path(), &path) == expected, "{way:?}");
    }
    assert_eq!(names(folder.path()), ["file"]);
}

#[test]
fn a_fifo_whose_reader_goes_away_is_an_error() {
    let folder = tempfile::tempdir().expect("folder");
    let fifo = folder.path().join("fifo");
    assert!(allowed("mkfifo", &[text(&fifo)]));
    for way in WAYS {
        let ran = std::thread::scope(|scope| {
            scope.spawn(|| drop(fs::File::open(&fifo).expect("opened")));
            written(way, &fifo, &sample("openib-mixed-4x1"))
        });
        refused(&ran, 1, "fifo: cannot be written: Broken pipe");
    }
}

/// A device node with the number of the null device: writes to it are discarded. Never the one in
/// `/dev`.
fn null_node(folder: &Path) -> Option<PathBuf> {
    let node = folder.join("node");
    if allowed("mknod", &[text(&node), "c", "1", "3"]) && fs::OpenOptions::new().write(true).open(&node).is_ok() {
        return Some(node);
    }
    skipped("device nodes cannot be made or used here");
    None
}

#[test]
fn a_device_node_is_not_replaced() {
    let folder = tempfile::tempdir().expect("folder");
    let Some(node) = null_node(folder.path()) else { return };
    for way in WAYS {
        let ran = written(way, &node, &sample("openib-mixed-4x1"));
        assert_eq!(ran.code, 0, "{way:?}: {}", ran.stderr);
        assert!(fs::symlink_metadata(&node).expect("node").file_type().is_char_device(), "{way:?}");
    }
    assert_eq!(names(folder.path()), ["node"]);
}

#[test]
fn links_stay_and_what_they_point_to_is_written() {
    let folder = tempfile::tempdir().expect("folder");
    let place = |name: &str| folder.path().join(name);
    fs::create_dir(place("below")).expect("folder");
    fs::write(place("below/old"), "text").expect("written");
    symlink("below/old", place("to-old")).expect("link");
    // A dangling link, through another link.
    symlink("to-new", place("chain")).expect("link");
    symlink(place("below/new"), place("to-new")).expect("link");
    let path = sample("openib-mixed-4x1");
    for way in WAYS {
        assert_eq!(written(way, &place("plain"), &path).code, 0);
        let expected = fs::read(place("plain")).expect("file");
        for (link, target) in [("to-old", "below/old"), ("chain", "below/new")] {
            let ran = written(way, &place(link), &path);
            assert_eq!(ran.code, 0, "{way:?} {link}: {}", ran.stderr);
            assert!(place(link).is_symlink() && !place(target).is_symlink(), "{way:?} {link}");
            assert!(fs::read(place(target)).expect("target") == expected, "{way:?} {link}");
        }
        fs::remove_file(place("below/new")).expect("removed");
    }
    assert_eq!((names(folder.path()).len(), names(&place("below"))), (5, vec!["old".to_owned()]));
    symlink("round", place("round")).expect("link");
    symlink("missing/file", place("nowhere")).expect("link");
    for link in ["round", "nowhere"] {
        refused(&written(&["matrix", "--svg"], &place(link), &path), 1, "cannot be written");
    }
}

#[test]
fn folders_are_refused() {
    let folder = tempfile::tempdir().expect("folder");
    let no_capture = folder.path().join("missing.pcap");
    for way in WAYS {
        // Before the input is opened.
        refused(&written(way, folder.path(), &no_capture), 1, "cannot be written: it is a folder");
        let new = folder.path().join("new/");
        refused(&written(way, &new, &no_capture), 1, "cannot be written: it is not a file name");
    }
    assert_eq!(names(folder.path()), [""; 0]);
}

#[test]
fn a_full_disk_is_named_as_such() {
    let folder = tempfile::tempdir().expect("folder");
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).expect("folder");
    if !allowed("mount", &["-t", "tmpfs", "-o", "size=4k", "tmpfs", text(&disk)]) {
        assert!(std::env::var_os("CI").is_none(), "a small disk can be mounted where CI runs");
        skipped("a small disk cannot be mounted here");
        return;
    }
    let path = sample("ucx-rc-halo-4x1");
    let ran = WAYS.map(|way| written(way, &disk.join("out"), &path));
    let left = names(&disk);
    assert!(allowed("umount", &[text(&disk)]));
    for ran in ran {
        refused(&ran, 1, "out: cannot be written: No space left on device");
        assert!(!ran.stderr.contains("parquet"), "{}", ran.stderr);
    }
    assert_eq!(left, [""; 0]);
}

#[test]
fn standard_input_is_read_once_and_is_no_table() {
    for command in ["analyze", "inspect", "matrix", "timeline", "ranks", "messages", "collectives"] {
        refused(&ibscope([command, "-", "-"]), 2, "`-` is given more than once");
    }
    refused(&ibscope(["matrix", "--svg", "missing/folder/x", "-", "capture", "-"]), 2, "more than once");
    let path = sample("openib-mixed-4x1");
    refused(&ibscope(["messages", "--parquet", "-", text(&path)]), 2, "standard output cannot hold a Parquet table");
    let mut bytes = Vec::new();
    fs::File::open(&path).expect("sample").read_to_end(&mut bytes).expect("read");
    assert_eq!(ibscope_fed(["messages", "-"], &bytes).code, 0);
}

#[test]
fn commands_that_need_captures_say_so_of_a_profile() {
    let folder = tempfile::tempdir().expect("folder");
    let profile = profile_of(folder.path(), &[sample("openib-mixed-4x1")], &[]);
    for command in ["analyze", "inspect", "messages"] {
        let expected = format!(
            "is a profile, but `{command}` reads captures only; `matrix`, `latency` and other commands read profiles"
        );
        refused(&ibscope([command, text(&profile)]), 1, &expected);
        // The folder holds the profile, and no capture.
        refused(&ibscope([command, text(folder.path())]), 1, "no file in this folder is a capture");
    }
}

#[test]
fn no_mpi_is_accepted_only_where_it_leaves_something() {
    let folder = tempfile::tempdir().expect("folder");
    let path = sample("openib-mixed-4x1");
    for command in ["collectives", "ranks", "messages", "inspect"] {
        refused(&ibscope([command, "--no-mpi", text(&path)]), 2, "--no-mpi");
    }
    let profile = profile_of(folder.path(), &[&path], &[]);
    for command in ["matrix", "timeline"] {
        let ran = ibscope([command, "--format", "csv", "--no-mpi", text(&profile)]);
        assert_eq!(ran.stdout, result(&[command, "--format", "csv"], &[&profile]));
        assert!(ran.stderr.contains("note: --no-mpi has no effect on a profile"), "{}", ran.stderr);
        assert!(!ibscope([command, "--no-mpi", text(&path)]).stderr.contains("no effect"));
    }
    let profile = profile_of(folder.path(), &[sample("ucx-ud-ring2")], &["--no-mpi"]);
    for command in ["collectives", "ranks"] {
        assert!(result(&[command], &[&profile]).contains("were not analyzed"), "{command}");
    }
}

#[test]
fn short_or_empty_windows_give_a_note() {
    const EMPTY: &str = "note: no packet in this window";
    const SHORT: &str = "a short window may not hold enough messages to detect a library";
    let folder = tempfile::tempdir().expect("folder");
    let path = sample("ucx-rc-ring2.node1");
    let printed = |command: &str, window: &[&str], path: &Path| {
        let ran = ibscope([&[command], window, &[text(path)]].concat());
        assert_eq!(ran.code, 0, "{command} {window:?}: {}", ran.stderr);
        ran.stderr
    };
    let times_ns: Vec<i64> = walk(&decompressed(&path)).iter().map(|record| record.time_ns).collect();
    let span_ns = times_ns.iter().max().expect("records") - times_ns.iter().min().expect("records");
    let end = format!("; the capture ends {:.6} s after its first record", span_ns as f64 / 1e9);
    for command in ["messages", "collectives", "matrix", "timeline", "ranks"] {
        let stderr = printed(command, &["--from", "100000"], &path);
        assert!(stderr.starts_with(EMPTY), "{command}: {stderr}");
        assert!(stderr.trim_end().ends_with(&end), "{command}: {stderr} {end}");
        assert_eq!(stderr.lines().count(), 1, "{command}: {stderr}");
        assert!(!printed(command, &[], &path).contains("window"), "{command}");
    }
    // Frames that are not InfiniBand come before the first packet that is.
    for (command, window) in
        [("inspect", ["--from", "100000"]), ("inspect", ["--to", "0.001"]), ("matrix", ["--to", "0.001"])]
    {
        assert_eq!(
            printed(command, &window, &path).trim_end(),
            "note: no InfiniBand packet in this window",
            "{command}"
        );
    }
    let profile = profile_of(folder.path(), &[&path], &[]);
    for command in ["matrix", "timeline"] {
        assert!(printed(command, &["--from", "100000"], &profile).starts_with(EMPTY), "{command}");
        assert!(
            !printed(command, &["--to", "1"], &profile).contains(SHORT),
            "{command}: the profile knows the library"
        );
    }
    // The first packets: connections are set up, and there are few messages.
    let first = result(&["inspect", "--format", "csv"], &[&path]);
    let time_ns = |line: &str| line.split(',').nth(1).expect("time").parse::<i64>().expect("time");
    let times_ns: Vec<i64> = first.lines().skip(1).map(time_ns).collect();
    let end = jiff::Timestamp::from_nanosecond(i128::from(times_ns[4])).expect("time").to_string();
    let few = ["--to", &end];
    for command in ["messages", "collectives", "matrix", "timeline"] {
        let stderr = printed(command, &few, &path);
        assert!(stderr.contains(SHORT) && stderr.contains("analyze -o"), "{command}: {stderr}");
        assert!(!stderr.contains(EMPTY), "{command}: {stderr}");
    }
    assert!(!printed("matrix", &["--no-mpi", few[0], few[1]], &path).contains(SHORT), "MPI was not read");
    let whole = printed("messages", &[], &sample("perftest-read-lat"));
    assert!(whole.contains("no MPI message was detected") && !whole.contains(SHORT), "{whole}");
}

#[test]
fn rank_maps_that_match_badly_give_a_note() {
    let folder = tempfile::tempdir().expect("folder");
    let map = folder.path().join("map.csv");
    let path = sample("openib-mixed-4x1");
    let profile = profile_of(folder.path(), &[&path], &[]);
    let printed = |content: &str| {
        fs::write(&map, content).expect("written");
        let run = |command: &str, input: &Path| {
            let ran = ibscope([command, "--rankmap", text(&map), text(input)]);
            assert_eq!(ran.code, 0, "{command}: {}", ran.stderr);
            ran.stderr
        };
        let stderr = run("matrix", &path);
        for command in ["analyze", "timeline", "ranks", "messages", "collectives"] {
            let other = run(command, &path);
            let is_of_the_map = |line: &&str| line.contains("rank map");
            assert!(other.lines().filter(is_of_the_map).eq(stderr.lines().filter(is_of_the_map)), "{command}: {other}");
        }
        assert_eq!(run("matrix", &profile), stderr);
        stderr
    };
    assert_eq!(printed("rank,endpoint\n0,17\n1,18\n9,99\n"), "", "some match");
    let none = printed("rank,endpoint\n0,117\n1,118\n1,118\n");
    assert_eq!(none.trim_end(), "note: rank map: none of its 2 endpoints is in the traffic");
    let several = printed("rank,endpoint\n0,17\n0,18\n1,19\n");
    assert!(several.starts_with("note: rank map: rank 0 is on several endpoints (17, 18)"), "{several}");
    // In the messages, ports 17 to 20 have ranks 0 to 3.
    let places = |printed: &str| -> Vec<String> {
        let notes = printed.lines().filter_map(|line| line.strip_prefix("note: rank map: "));
        notes.map(|note| note.split(": ").next().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(places(&several)[1..], ["rank 0 at 18", "rank 1 at 19"], "{several}");
    assert_eq!(several.lines().count(), 3, "{several}");
    let exact = printed("rank,endpoint,qpn\n0,17,0x11\n0,18,0x12\n");
    assert_eq!(places(&exact), ["rank 0 at 18 queue pair 0x12"], "queue pairs are exact: {exact}");
    assert_eq!(exact.lines().count(), 1, "{exact}");
    fs::write(&map, "# of a job\nrank,endpoint\n0,17\n\n16777215,19\n16777216,18\n").expect("written");
    for command in ["matrix", "analyze", "inspect", "messages"] {
        let ran = ibscope([command, "--rankmap", text(&map), text(&path)]);
        refused(&ran, 1, "map.csv: line 6: `16777216` is not a rank");
    }
}
