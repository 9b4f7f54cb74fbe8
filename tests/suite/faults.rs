//! Faults around the program: full disks, files that change while they are read, signals, clocks,
//! broken profiles. `docs/faults.md` describes the behavior and names the test of each fault; a
//! test compares that table with the suite.

mod writers;

use crate::runs;
use crate::tools::{ProgramResult, command, ibscope, result, sample, samples_folder, walk};
use ibscope::model::Profile;
use ibscope::pipeline::{self, load};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The library that injects one fault (`faults/fault.c`), compiled once per process.
fn fault() -> &'static Path {
    static BUILT: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, library) = BUILT.get_or_init(|| {
        let folder = tempfile::tempdir().expect("folder");
        let library = folder.path().join("fault.so");
        let source = samples_folder().parent().expect("root").join("tests/suite/faults/fault.c");
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).arg("-ldl");
        assert!(cc.status().expect("a C compiler, which the build takes too").success());
        (folder, library)
    });
    library
}

/// A capture of some MB in a folder of its own, and a path for its profile.
struct FaultCase {
    folder: tempfile::TempDir,
    capture: PathBuf,
    profile: PathBuf,
    file: Vec<u8>,
}

impl FaultCase {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let file = runs::decompressed(&runs::named("ompi-rc-ring2").sink());
        let (capture, profile) = (folder.path().join("sink.pcap"), folder.path().join("job.ibp"));
        fs::write(&capture, &file).expect("written");
        Self { folder, capture, profile, file }
    }

    fn analyze(&self) -> Command {
        let mut command = command(["analyze", "--threads", "1", "-o"]);
        command.arg(&self.profile).arg(&self.capture);
        command
    }

    /// Runs the analysis with this fault after `at` bytes of the capture.
    fn with(&self, fault_name: &str, at: usize) -> Output {
        let mut command = self.analyze();
        command.env("LD_PRELOAD", fault()).env("FAULT", fault_name).env("FAULT_AT", at.to_string());
        command.env("FAULT_FILE", &self.capture).output().expect("started")
    }

    fn loaded(&self) -> Profile {
        load(&self.profile).expect("a whole profile")
    }

    /// Number of records that end at or before this offset.
    fn records_until(&self, offset: usize) -> u64 {
        walk(&self.file).iter().filter(|record| record.place.end <= offset).count() as u64
    }

    /// Names of the entries of the folder.
    fn names(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(self.folder.path()).expect("folder");
        entries.map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned()).collect()
    }
}

const AT: usize = 3_000_000;

/// The only note on the input, which must start with `begins`.
fn note(profile: &Profile, begins: &str) -> String {
    let of_input = |note: &&String| note.contains("sink.pcap: ");
    let note = profile.notes.iter().find(of_input).unwrap_or_else(|| panic!("{:?}", profile.notes));
    let (_, note) = note.split_once("sink.pcap: ").expect("name");
    assert!(note.starts_with(begins), "{note}");
    note.to_owned()
}

/// The number after "offset".
fn offset(note: &str) -> usize {
    let (_, rest) = note.split_once("offset ").expect("an offset");
    rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().expect("number")
}

#[test]
fn a_read_error_keeps_what_was_read_and_says_where() {
    let case = FaultCase::new();
    let ran = ProgramResult::from(case.with("eio", AT));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let profile = case.loaded();
    let note = note(&profile, "read_error: ");
    assert!(note.contains("Input/output error") && note.contains("check the disk"), "{note}");
    assert!(ran.stdout.contains("read_error") && offset(&note) <= AT);
    assert_eq!(profile.coverage.records, case.records_until(AT));
}

#[test]
fn a_file_truncated_during_the_analysis_gives_the_records_before() {
    let case = FaultCase::new();
    let ran = ProgramResult::from(case.with("truncate", AT));
    assert_eq!((ran.code, fs::metadata(&case.capture).expect("capture").len()), (0, AT as u64), "{}", ran.stderr);
    let profile = case.loaded();
    let note = note(&profile, "truncated_input: ");
    assert_eq!(case.records_until(offset(&note) + 1), case.records_until(AT));
    assert_eq!(profile.coverage.records, case.records_until(AT));
}

/// The input ends at `--max-decompressed`.
#[test]
fn max_decompressed_limits_the_bytes_that_are_read() {
    let case = FaultCase::new();
    let cut = case.folder.path().join("cut.pcap");
    fs::write(&cut, &case.file[..AT]).expect("cut");
    let expected = pipeline::analyze(std::slice::from_ref(&cut), &pipeline::AnalysisOptions::default(), &|_| {})
        .expect("analysis");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&case.file).expect("compressed");
    for packed in [gzip.finish().expect("compressed"), zstd::encode_all(&case.file[..], 1).expect("compressed")] {
        fs::write(&case.capture, packed).expect("written");
        let with = |most: &str| {
            ProgramResult::from(case.analyze().args(["--max-decompressed", most]).output().expect("started"))
        };
        let ran = with(&AT.to_string());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let profile = case.loaded();
        let note = note(&profile, "limited_input: ");
        assert!(note.contains(&format!("--max-decompressed {AT}")) && ran.stdout.contains(&note), "{note}");
        let ends = walk(&case.file).into_iter().map(|record| record.place.end);
        assert_eq!(Some(offset(&note)), ends.filter(|end| *end <= AT).max());
        assert_eq!((profile.coverage, &profile.connections), (expected.coverage.clone(), &expected.connections));
        // A partial file has no digest.
        assert_eq!(profile.inputs[0].xxh3_128, "");
        let inspect =
            |arguments: &[&str], path: &Path| result(&[&["inspect", "--format", "csv"], arguments].concat(), &[path]);
        assert!(inspect(&["--max-decompressed", &AT.to_string()], &case.capture) == inspect(&[], &cut));
        let ran = with(&case.file.len().to_string());
        assert!(ran.code == 0 && !ran.stdout.contains("limited_input"), "{}", ran.stdout);
        assert_eq!(case.loaded().coverage.records, case.records_until(case.file.len()));
        let ran = with("30");
        assert_eq!(ran.code, 1);
        assert!(ran.stderr.contains("sink.pcap: cannot be read") && ran.stderr.contains("raise it"), "{}", ran.stderr);
    }
}

#[test]
fn a_file_rotated_while_it_is_read_is_read_to_its_end() {
    let case = FaultCase::new();
    let ran = ProgramResult::from(case.with("rotate", AT));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(case.names().contains("sink.pcap.1"));
    let profile = case.loaded();
    assert_eq!(profile.coverage.records, case.records_until(case.file.len()));
    assert!(!profile.notes.iter().any(|note| note.contains("sink.pcap")), "{:?}", profile.notes);
}

#[test]
fn a_signal_leaves_a_profile_of_what_was_read() {
    for (signal, code) in [("int", 130), ("term", 143), ("hup", 129)] {
        let case = FaultCase::new();
        let ran = ProgramResult::from(case.with(signal, AT));
        assert_eq!(ran.code, code, "{}", ran.stderr);
        assert!(
            ran.stderr.contains("ibscope: interrupted: the result covers only the records read so far"),
            "{}",
            ran.stderr
        );
        let profile = case.loaded();
        let note = note(&profile, "interrupted: analyzed up to offset ");
        assert!(note.contains(&format!("of the {} bytes of the file were read", case.file.len())), "{note}");
        assert!(ran.stdout.contains(&note[..40]), "{}", ran.stdout);
        let input = &profile.inputs[0];
        assert!(input.interrupted && input.xxh3_128.is_empty(), "no digest of a part");
        assert!((AT..case.file.len()).contains(&offset(&note)), "{note}");
        assert_eq!(input.coverage.records, case.records_until(offset(&note)));
        // Other commands show the profile, and point to the note.
        let shown = ibscope(["matrix", case.profile.to_str().expect("path")]);
        assert!(shown.code == 0 && shown.stderr.contains("`ibscope summary "), "{}", shown.stderr);
        assert_eq!(case.names(), ["job.ibp", "sink.pcap"].map(str::to_owned).into());
    }
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let case = FaultCase::new();
    let output = case.with("twice", AT);
    assert_eq!(output.status.signal(), Some(2));
    assert!(!case.profile.exists() && output.stdout.is_empty());
    assert_eq!(case.names(), ["sink.pcap".to_owned()].into(), "no scratch folder is left");
}

/// As for `nohup`, and jobs that a script starts in the background.
#[test]
fn a_signal_that_was_ignored_before_stays_ignored() {
    let case = FaultCase::new();
    let place = fifo(case.folder.path());
    let analyze = case.analyze();
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP INT; exec \"$@\"", "sh"]).arg(analyze.get_program()).args(analyze.get_args());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    let mut pipe = File::options().write(true).open(&place).expect("the other end");
    send(&child, "HUP");
    send(&child, "INT");
    pipe.write_all(&case.file).expect("written");
    drop(pipe);
    let ran = ProgramResult::from(child.wait_with_output().expect("ended"));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(case.loaded().coverage.records, case.records_until(case.file.len()));
}

fn fifo(folder: &Path) -> PathBuf {
    let place = folder.join("sink.pcap");
    fs::remove_file(&place).expect("the capture");
    assert!(Command::new("mkfifo").arg(&place).status().expect("mkfifo").success());
    place
}

/// Waits until the condition is true.
fn wait(what: &str, is_true: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < Duration::from_mins(1), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn send(child: &Child, signal: &str) {
    assert!(Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().expect("kill").success());
}

#[test]
fn a_signal_ends_the_wait_for_a_pipe() {
    let case = FaultCase::new();
    let place = fifo(case.folder.path());
    let start = |case: &FaultCase| {
        let mut command = case.analyze();
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started")
    };
    // Before the first packet: nobody has opened the other end.
    let child = start(&case);
    let begun = || case.names().iter().any(|name| name.starts_with("job.ibp.part-"));
    wait("the analysis begins", begun);
    send(&child, "INT");
    let output = child.wait_with_output().expect("ended");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert!(stderr.contains("interrupted before any InfiniBand packet was counted; nothing was written"), "{stderr}");
    assert_eq!(case.names(), ["sink.pcap".to_owned()].into());
    // Inside a record, with more to come.
    let child = start(&case);
    let mut pipe = File::options().write(true).open(&place).expect("the other end");
    let records = walk(&case.file);
    let part = records[99].place.end + 20;
    pipe.write_all(&case.file[..part]).expect("written");
    let read = || {
        let io = fs::read_to_string(format!("/proc/{}/io", child.id())).unwrap_or_default();
        let characters = io.lines().find_map(|line| line.strip_prefix("rchar: ")?.parse::<usize>().ok());
        characters.is_none_or(|characters| characters > part)
    };
    wait("the pipe is read", read);
    // The analysis gets the bytes within a moment; the profile shows how many arrived.
    std::thread::sleep(Duration::from_millis(200));
    send(&child, "TERM");
    let output = child.wait_with_output().expect("ended");
    assert_eq!(output.status.code(), Some(143), "{}", String::from_utf8_lossy(&output.stderr));
    let profile = case.loaded();
    let note = note(&profile, "interrupted: analyzed up to offset ");
    assert_eq!(profile.coverage.records, case.records_until(offset(&note)));
    assert!(profile.coverage.records > 0 && profile.coverage.records <= 100);
}

#[test]
fn a_pipe_closed_by_its_writer_ends_the_capture() {
    let case = FaultCase::new();
    let place = fifo(case.folder.path());
    let child = case.analyze().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    let mut pipe = File::options().write(true).open(&place).expect("the other end");
    let records = walk(&case.file);
    let cut = records[1000].place.end + 20;
    pipe.write_all(&case.file[..cut]).expect("written");
    drop(pipe);
    let ran = ProgramResult::from(child.wait_with_output().expect("ended"));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let profile = case.loaded();
    assert_eq!(profile.coverage.records, 1001);
    assert_eq!(offset(&note(&profile, "truncated_input: ")), records[1000].place.end);
}

#[test]
fn a_killed_analysis_leaves_a_complete_profile_or_none() {
    let case = FaultCase::new();
    let old = sample("perftest-read-lat");
    let first = ibscope(["analyze", "-o", case.profile.to_str().expect("path"), old.to_str().expect("path")]);
    assert_eq!(first.code, 0, "{}", first.stderr);
    let old = case.loaded();
    let mut killed = 0;
    let mut absent = 0;
    for at in 1.. {
        let mut command = case.analyze();
        let output = command.env("LD_PRELOAD", fault()).env("FAULT_WRITE", at.to_string()).output().expect("started");
        if output.status.success() {
            break;
        }
        assert_eq!(output.status.code(), None, "{}", String::from_utf8_lossy(&output.stderr));
        killed += 1;
        let scratch = |what: &str| {
            let names = case.names();
            let name = names.iter().find(|name| name.starts_with(&format!("job.ibp.{what}-")))?;
            Some(case.folder.path().join(name))
        };
        if case.profile.exists() {
            let found = case.loaded();
            assert!(found == old || found.coverage.records == case.records_until(case.file.len()), "at {at}");
        } else {
            // The profile to be replaced is complete under its scratch name.
            absent += 1;
            let put_aside = scratch("old").expect("the old profile");
            assert_eq!(load(&put_aside).expect("whole"), old, "at {at}");
            fs::rename(put_aside, &case.profile).expect("back");
        }
        for what in ["part", "old"] {
            if let Some(left) = scratch(what) {
                fs::remove_dir_all(left).expect("removed");
            }
        }
    }
    assert!(killed > 20 && absent == 1, "killed {killed} times, absent {absent} times");
}

#[test]
fn a_full_disk_leaves_no_partial_profile() {
    let case = FaultCase::new();
    let disk = case.folder.path().join("disk");
    fs::create_dir(&disk).expect("folder");
    let mount = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).arg(&disk).output();
        output.is_ok_and(|output| output.status.success())
    };
    if !mount("mount", &["-t", "tmpfs", "-o", "size=40k", "tmpfs"]) {
        assert!(std::env::var_os("CI").is_none(), "a small disk can be mounted where CI runs");
        crate::cli::skipped("a small disk cannot be mounted here");
        return;
    }
    let place = disk.join("job.ibp");
    let text = |path: &Path| path.to_str().expect("path").to_owned();
    let ran = [
        vec!["analyze".to_owned(), text(&case.capture), "-o".to_owned(), text(&place)],
        vec!["anonymize".to_owned(), text(&case.capture), "-o".to_owned(), text(&place)],
        vec!["report".to_owned(), text(&case.capture), "-o".to_owned(), text(&place)],
        vec!["trace".to_owned(), text(&case.capture), "-o".to_owned(), text(&place)],
    ]
    .map(|arguments| (ibscope(&arguments), arguments[0].clone()));
    let left = fs::read_dir(&disk).expect("disk").count();
    assert!(mount("umount", &[]));
    for (ran, command) in ran {
        assert_eq!(ran.code, 1, "{command}: {}", ran.stderr);
        for wanted in [text(&place), "No space left on device".to_owned(), "make room".to_owned()] {
            assert!(ran.stderr.contains(&wanted), "{command}: {}", ran.stderr);
        }
    }
    assert_eq!(left, 0, "something is left on the disk");
}

/// The capture with other times, in seconds, for the records from this one on.
fn at_times(file: &[u8], from: usize, seconds: u32) -> Vec<u8> {
    let mut changed = file.to_vec();
    for record in walk(file).iter().skip(from) {
        changed[record.place.start..record.place.start + 4].copy_from_slice(&seconds.to_le_bytes());
    }
    changed
}

#[test]
fn clocks_that_jump_change_times_and_no_counts() {
    let case = FaultCase::new();
    let plain = ProgramResult::from(case.analyze().output().expect("started"));
    assert_eq!(plain.code, 0, "{}", plain.stderr);
    let expected = case.loaded();
    let records = walk(&case.file);
    let middle = records.len() / 2;
    let end_s = u32::MAX;
    // Back by years, to zero, and into the year 2106.
    for (name, file, backwards) in [
        ("back", at_times(&case.file, middle, 1_000_000_000), true),
        ("zero", at_times(&case.file, middle, 0), true),
        ("all zero", at_times(&case.file, 0, 0), false),
        ("ahead", at_times(&case.file, middle, end_s), false),
    ] {
        fs::write(&case.capture, &file).expect("written");
        let ran = ProgramResult::from(case.analyze().output().expect("started"));
        assert_eq!(ran.code, 0, "{name}: {}", ran.stderr);
        let profile = case.loaded();
        let sums = |profile: &Profile| {
            let rows = profile.connections.iter();
            rows.map(|row| (row.src, row.dst, row.dest_qp, row.traffic.packets, row.traffic.payload_bytes))
                .collect::<Vec<_>>()
        };
        assert_eq!(sums(&profile), sums(&expected), "{name}");
        // Times go backwards at the changed record, and within the second in which fractions now
        // follow each other.
        assert!(!backwards || profile.coverage.time_backwards > 0, "{name}");
        assert!(!backwards || ran.stdout.contains("earlier than the record before"), "{name}: {}", ran.stdout);
        assert!(profile.timeline.len() <= ibscope::pipeline::DEFAULT_MAX_CELLS, "{name}");
        let shown = ibscope(["timeline", case.profile.to_str().expect("path"), "--format", "csv"]);
        assert_eq!(shown.code, 0, "{name}: {}", shown.stderr);
    }
}

/// Every command that reads a profile.
const READERS: [&[&str]; 10] = [
    &["summary"],
    &["matrix"],
    &["timeline"],
    &["ranks"],
    &["collectives"],
    &["health"],
    &["latency"],
    &["rates"],
    &["phases"],
    &["report", "-o", "/dev/null"],
];

fn refused(case: &FaultCase, arguments: &[&str], expected: &[&str]) {
    let place = case.profile.to_str().expect("path");
    let ran = ibscope(arguments.iter().copied().chain([place]));
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{arguments:?}: {}", ran.stderr);
    for wanted in expected {
        assert!(ran.stderr.contains(wanted), "{arguments:?}: {}", ran.stderr);
    }
}

#[test]
fn a_profile_of_another_version_is_rejected_with_its_writer() {
    let case = FaultCase::new();
    assert_eq!(ProgramResult::from(case.analyze().output().expect("started")).code, 0);
    let path = case.profile.join("profile.json");
    let text = fs::read_to_string(&path).expect("text");
    let newer =
        text.replacen("\"version\": 4", "\"version\": 5", 1).replacen("\"ibscope\": \"", "\"ibscope\": \"9.", 1);
    assert_ne!(newer, text);
    fs::write(&path, newer).expect("written");
    for arguments in READERS {
        let writer = format!("use the ibscope that wrote it (9.{})", env!("CARGO_PKG_VERSION"));
        refused(&case, arguments, &["job.ibp/profile.json: profile version 5", &writer, "analyze the captures again"]);
    }
}

#[test]
fn broken_profiles_are_rejected_with_the_file_and_advice() {
    let case = FaultCase::new();
    let mut analyze = case.analyze();
    assert_eq!(ProgramResult::from(analyze.arg("--partial").output().expect("started")).code, 0);
    let broken = |name: &str, bytes: Option<&[u8]>, readers: &[&[&str]], expected: &[&str]| {
        let path = case.profile.join(name);
        let good = fs::read(&path).expect("file");
        match bytes {
            Some(bytes) => fs::write(&path, bytes).expect("written"),
            None => fs::remove_file(&path).expect("removed"),
        }
        readers.iter().for_each(|arguments| refused(&case, arguments, expected));
        fs::write(&path, good).expect("written");
    };
    let again = "analyze the captures again";
    for text in [&b""[..], b"{", b"\0\0\0\0", b"{\"format\": \"ibscope profile\"}", b"[]"] {
        broken("profile.json", Some(text), &READERS, &["job.ibp/profile.json: not a profile: ", again]);
    }
    for name in ["connections.parquet", "timeline.parquet", "health.parquet", "cm.parquet"] {
        let good = fs::read(case.profile.join(name)).expect("table");
        let mut flipped = good.clone();
        flipped[good.len() / 2] ^= 1;
        for bytes in [&flipped[..], &good[..good.len() / 2], b""] {
            broken(name, Some(bytes), &READERS[..2], &[&format!("job.ibp/{name}: damaged"), again]);
        }
        broken(name, None, &READERS[..2], &[&format!("job.ibp/{name}: cannot be read: No such file"), again]);
    }
    let parts = fs::read(case.profile.join("parts.bin")).expect("parts");
    let out = case.folder.path().join("merged.ibp");
    let merge: [&[&str]; 1] = [&["merge", "-o", out.to_str().expect("path")]];
    broken("parts.bin", Some(&parts[..parts.len() - 1]), &merge, &["job.ibp/parts.bin: damaged", again]);
    broken("parts.bin", None, &merge, &["job.ibp/parts.bin: cannot be read: No such file", again]);
    assert!(!out.exists());
    // The repaired profile is readable.
    assert_eq!(ibscope(["matrix", case.profile.to_str().expect("path")]).code, 0);
}

/// The names in the last column of the table of faults.
#[test]
fn every_test_that_the_table_of_faults_names_exists() {
    let root = samples_folder().parent().expect("root").to_owned();
    let text = fs::read_to_string(root.join("docs/faults.md")).expect("docs/faults.md");
    let mut names = BTreeSet::new();
    for line in text.lines().filter(|line| line.starts_with("| ")) {
        let last = line.trim_end_matches('|').rsplit('|').next().expect("a column");
        names.extend(last.split('`').skip(1).step_by(2).map(str::to_owned));
    }
    assert!(names.len() > 20, "{names:?}");
    let mut sources = Vec::new();
    let mut folders = vec![root.join("tests"), root.join("src"), root.join("orchestrator"), root.join("parsers/src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("folder") {
            let path = entry.expect("entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                sources.push(fs::read_to_string(path).expect("source"));
            }
        }
    }
    for name in names {
        let function = name.rsplit("::").next().expect("a name");
        // Some tests of `tests/fabric` are a function with a setting, under a name in its list.
        let places = [format!("fn {function}()"), format!("    (\"{function}\", ")];
        let found = sources.iter().any(|source| places.iter().any(|place| source.contains(place)));
        assert!(found, "docs/faults.md names the test `{name}`, which does not exist");
    }
}
