//! Exit codes, the contents of standard output, and output files.

use super::{names, profile_of, text};
use crate::runs::decompressed;
use crate::tools::{HEADER_BYTES, command, ibscope, result, sample, walk};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn wrong_usage_ends_with_2_and_writes_no_result() {
    let path = sample("perftest-read-lat");
    let path = text(&path);
    for arguments in [
        &[][..],
        &["frobnicate"],
        &["matrix"],
        &["matrix", "--by", "host", path],
        &["matrix", "--frobnicate", path],
        &["matrix", "--format", "xml", path],
        &["matrix", "--min-coverage", "101", path],
        &["matrix", "--from", "yesterday", path],
        &["timeline", "--bin", "0ms", path],
        &["timeline", "--bin", "10", path],
        &["inspect", "--threads", "many", path],
    ] {
        let ran = ibscope(arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{arguments:?}: {}", ran.stderr);
        assert!(!ran.stderr.is_empty(), "{arguments:?}");
    }
    for argument in ["--help", "--version"] {
        let ran = ibscope([argument]);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{argument}");
        assert!(ran.stdout.contains("ibscope"), "{argument}");
    }
}

#[test]
fn standard_output_contains_only_results() {
    let path = sample("openib-mixed-4x1");
    for arguments in [&["matrix"][..], &["timeline"], &["inspect"], &["analyze"]] {
        let ran = ibscope(arguments.iter().copied().chain([text(&path)]));
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{arguments:?}: nothing to note");
        assert!(ran.stdout.lines().count() > 4, "{arguments:?}");
    }
    let folder = tempfile::tempdir().expect("folder");
    let profile = folder.path().join("out.ibp");
    let ran = ibscope(["analyze", text(&path), "-o", text(&profile)]);
    assert_eq!(ran.code, 0);
    assert!(ran.stderr.contains(text(&profile)) && !ran.stdout.contains("written"), "{}{}", ran.stdout, ran.stderr);
}

/// A capture in which every tenth record is too short for an ERF header, and the decodable share in
/// percent.
fn damaged(path: &Path) -> f64 {
    let whole = decompressed(&sample("perftest-read-lat"));
    let mut bytes = whole[..HEADER_BYTES].to_vec();
    let records = walk(&whole);
    let mut short = 0;
    for (index, record) in records.iter().enumerate() {
        if index % 10 == 9 {
            bytes.extend(&whole[record.place.start..][..8]);
            bytes.extend([10, 0, 0, 0, 10, 0, 0, 0]);
            bytes.extend(&record.data(&whole)[..10]);
            short += 1;
        } else {
            bytes.extend(&whole[record.place.clone()]);
        }
    }
    std::fs::write(path, bytes).expect("written");
    (records.len() - short) as f64 * 100.0 / records.len() as f64
}

#[test]
fn low_coverage_ends_with_3_and_writes_the_result() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("damaged.pcap");
    let percent = damaged(&path);
    assert!((90.0..90.1).contains(&percent), "{percent}");
    let profile = folder.path().join("out.ibp");
    let analyze = ["analyze", "-o", text(&profile)];
    for arguments in [&["matrix", "--format", "csv"][..], &["timeline", "--format", "csv"], &analyze] {
        let at_least = |percent: f64| {
            let percent = percent.to_string();
            ibscope(arguments.iter().copied().chain(["--min-coverage", &percent, text(&path)]))
        };
        let enough = at_least(90.0);
        assert_eq!(enough.code, 0, "{arguments:?}: {}", enough.stderr);
        let ran = at_least(90.5);
        assert_eq!(ran.code, 3, "{arguments:?}: {}", ran.stderr);
        assert_eq!(ran.stdout, enough.stdout, "{arguments:?}");
        assert!(ran.stderr.contains("--min-coverage") && ran.stderr.contains("90.5"), "{arguments:?}: {}", ran.stderr);
    }
    assert!(profile.join("profile.json").is_file());
    // A profile stores its coverage.
    assert_eq!(ibscope(["matrix", "--min-coverage", "90.5", text(&profile)]).code, 3);
    assert_eq!(ibscope(["matrix", "--min-coverage", "90", text(&profile)]).code, 0);
}

#[test]
fn inspect_has_the_same_exit_codes() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("damaged.pcap");
    damaged(&path);
    let at_least = |percent| ibscope(["inspect", "--format", "csv", "--min-coverage", percent, text(&path)]);
    let enough = at_least("90");
    assert_eq!(enough.code, 0, "{}", enough.stderr);
    let ran = at_least("90.5");
    assert_eq!(ran.stdout, enough.stdout);
    assert_eq!(ran.code, 3, "{}", ran.stderr);
}

#[test]
fn a_closed_pipe_is_no_error() {
    let folder = tempfile::tempdir().expect("folder");
    let path = sample("openib-mixed-4x1");
    let profile = folder.path().join("out.ibp");
    let analyze = ["analyze", "-o", text(&profile)];
    for (arguments, lines) in [
        (&["inspect", "--format", "csv"][..], 1),
        (&["inspect"], 3),
        (&["matrix"], 0),
        (&["timeline"], 0),
        (&analyze, 0),
    ] {
        let mut command = command(arguments.iter().copied().chain([text(&path)]));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
        let mut out = BufReader::with_capacity(64, child.stdout.take().expect("its output")).lines();
        for _ in 0..lines {
            out.next().expect("line").expect("line");
        }
        drop(out);
        let output = child.wait_with_output().expect("ended");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("ipe"), "{arguments:?}: {stderr}");
    }
    assert!(profile.join("profile.json").is_file(), "the profile is complete all the same");
}

/// As with `2>&1 | head -1`, and on a full disk.
#[test]
fn closed_outputs_never_end_in_a_panic() {
    let folder = tempfile::tempdir().expect("folder");
    let path = sample("openib-mixed-4x1");
    let profile = profile_of(folder.path(), &[&path], &[]);
    let again = folder.path().join("again.ibp");
    let closed = || {
        let (reader, writer) = std::io::pipe().expect("pipe");
        drop(reader);
        Stdio::from(writer)
    };
    let full = || Stdio::from(std::fs::File::options().write(true).open("/dev/full").expect("/dev/full"));
    for (arguments, code) in [
        (&["latency", text(&profile), "--by", "rank", "--all-sizes"][..], 0),
        (&["matrix", text(&profile), "--no-mpi"], 0),
        (&["messages", text(&path)], 0),
        (&["inspect", text(&path)], 0),
        (&["health", text(&path)], 0),
        (&["watch", "--once", text(&path)], 0),
        (&["analyze", "-o", text(&again), text(&path)], 0),
        (&["matrix", "missing.ibp"], 1),
        (&["matrix", "--by", "host", text(&path)], 2),
        (&["--help"], 0),
    ] {
        let both = command(arguments).stdout(closed()).stderr(closed()).status().expect("started");
        let error = command(arguments).stdout(Stdio::null()).stderr(full()).status().expect("started");
        assert_eq!([both.code(), error.code()], [Some(code); 2], "{arguments:?}");
    }
    assert!(again.join("profile.json").is_file(), "the profile is complete all the same");
    // Output that nobody can read is not a result.
    let full = command(["matrix", text(&profile)]).stdout(full()).stderr(Stdio::null()).status().expect("started");
    assert_eq!(full.code(), Some(1));
}

#[test]
fn outputs_that_cannot_be_written_fail_before_anything_is_read() {
    let folder = tempfile::tempdir().expect("folder");
    let nowhere = folder.path().join("no/such/folder/out");
    let file = folder.path().join("file");
    std::fs::write(&file, "text").expect("written");
    let below_a_file = file.join("out");
    let taken = folder.path().join("taken");
    std::fs::create_dir(&taken).expect("folder");
    let dangling = folder.path().join("dangling");
    symlink("no/such/folder/out", &dangling).expect("link");
    for place in [&nowhere, &below_a_file, &taken, &dangling] {
        let place = text(place);
        for arguments in [
            ["analyze", "-o", place, "-"],
            ["matrix", "--svg", place, "-"],
            ["matrix", "--png", place, "-"],
            ["timeline", "--svg", place, "-"],
            ["timeline", "--png", place, "-"],
            ["latency", "--svg", place, "-"],
            ["health", "--png", place, "-"],
            ["messages", "--parquet", place, "-"],
        ] {
            // Standard input stays open without data: a command that reads it waits.
            let mut command = command(arguments);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().expect("started");
            let stdin = child.stdin.take();
            let deadline = Instant::now() + Duration::from_secs(20);
            while child.try_wait().expect("wait").is_none() {
                if Instant::now() > deadline {
                    child.kill().expect("killed");
                    panic!("{arguments:?}: reads before it opens its output");
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            drop(stdin);
            let output = child.wait_with_output().expect("ended");
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{arguments:?}: {stderr}");
            assert!(stderr.contains(place), "{arguments:?}: {stderr}");
            assert!(output.stdout.is_empty(), "{arguments:?}");
        }
    }
    assert_eq!(names(folder.path()), ["dangling", "file", "taken"]);
}

#[test]
fn a_profile_replaces_a_profile_and_nothing_else() {
    let folder = tempfile::tempdir().expect("folder");
    let (first, second) = (sample("perftest-read-lat"), sample("ucx-rc-ring2.node1"));
    let keep = folder.path().join("keep");
    std::fs::create_dir(&keep).expect("folder");
    std::fs::write(keep.join("thesis.tex"), "text").expect("written");
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).expect("folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "text").expect("written");
    for place in [&keep, &empty, &file] {
        let ran = ibscope(["analyze", text(&first), "-o", text(place)]);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{}: {}", place.display(), ran.stderr);
        assert!(ran.stderr.contains(text(place)) && ran.stderr.contains("no profile"), "{}", ran.stderr);
    }
    assert_eq!(names(folder.path()), ["empty", "file", "keep"]);
    assert_eq!((names(&keep), names(&empty)), (vec!["thesis.tex".to_owned()], Vec::new()));
    assert_eq!(std::fs::read(&file).expect("file"), b"text");
    let matrix = |place: &Path| result(&["matrix", "--format", "csv"], &[place]);
    let profile = profile_of(folder.path(), &[&first], &[]);
    assert_eq!(matrix(&profile), matrix(&first));
    profile_of(folder.path(), &[&second], &[]);
    assert_eq!(matrix(&profile), matrix(&second));
    assert_eq!(
        names(&profile),
        [
            "cm.parquet",
            "collectives.parquet",
            "connections.parquet",
            "health.parquet",
            "latencies.parquet",
            "latency_buckets.parquet",
            "latency_timeline.parquet",
            "paths.parquet",
            "profile.json",
            "sizes.parquet",
            "storage.parquet",
            "streams.parquet",
            "timeline.parquet"
        ]
    );
    assert_eq!(names(folder.path()), ["empty", "file", "keep", "profile.ibp"]);
}

#[test]
fn a_folder_with_other_files_beside_a_profile_json_is_not_replaced() {
    let folder = tempfile::tempdir().expect("folder");
    let keep = folder.path().join("keep");
    std::fs::create_dir(&keep).expect("folder");
    std::fs::write(keep.join("profile.json"), r#"{"name": "of some other program"}"#).expect("written");
    std::fs::write(keep.join("thesis.tex"), "text").expect("written");
    let ran = ibscope(["analyze", text(&sample("perftest-read-lat")), "-o", text(&keep)]);
    assert_eq!(names(&keep), ["profile.json", "thesis.tex"], "{}", ran.stderr);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
}

/// Replacing the old profile would remove them.
#[test]
fn folders_and_links_named_as_files_of_a_profile_stay() {
    let folder = tempfile::tempdir().expect("folder");
    let path = sample("perftest-read-lat");
    let profile = profile_of(folder.path(), &[&path], &[]);
    let table = profile.join("health.parquet");
    let again = || {
        let ran = ibscope(["analyze", text(&path), "-o", text(&profile)]);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{}", ran.stderr);
        assert!(ran.stderr.contains("contains health.parquet, which is not a regular file"), "{}", ran.stderr);
    };
    let kept = folder.path().join("kept");
    std::fs::rename(&table, &kept).expect("moved");
    symlink(&kept, &table).expect("link");
    again();
    assert!(table.is_symlink());
    std::fs::remove_file(&table).expect("removed");
    std::fs::create_dir(&table).expect("folder");
    std::fs::write(table.join("thesis.tex"), "text").expect("written");
    again();
    assert_eq!(std::fs::read(table.join("thesis.tex")).expect("file"), b"text");
    assert_eq!(names(folder.path()), ["kept", "profile.ibp"]);
}

#[test]
fn a_profile_is_written_to_the_target_of_a_link() {
    let folder = tempfile::tempdir().expect("folder");
    let place = |name: &str| folder.path().join(name);
    std::fs::create_dir(place("below")).expect("folder");
    // A dangling link, through another link.
    symlink("to-new", place("chain")).expect("link");
    symlink("below/new.ibp", place("to-new")).expect("link");
    for name in ["perftest-read-lat", "ucx-rc-ring2.node1"] {
        let path = sample(name);
        result(&["analyze", "-o", text(&place("chain"))], &[&path]);
        assert!(place("chain").is_symlink() && place("to-new").is_symlink() && !place("below/new.ibp").is_symlink());
        let matrix = |place: &Path| result(&["matrix", "--format", "csv"], &[place]);
        assert_eq!(matrix(&place("below/new.ibp")), matrix(&path));
    }
    // A relative path without a folder is in the current folder.
    let mut here = command(["analyze", "-o", "here.ibp", text(&sample("perftest-read-lat"))]);
    assert!(here.current_dir(folder.path()).stdout(Stdio::null()).status().expect("started").success());
    assert_eq!(names(folder.path()), ["below", "chain", "here.ibp", "to-new"]);
    assert_eq!(names(&place("below")), ["new.ibp"]);
}

#[test]
fn no_scratch_files_stay() {
    let folder = tempfile::tempdir().expect("folder");
    let no_capture = tempfile::NamedTempFile::new().expect("file");
    let place = |name| folder.path().join(name);
    let (profile, svg, png) = (place("out.ibp"), place("out.svg"), place("out.png"));
    for arguments in [
        &["analyze", "-o", text(&profile)][..],
        &["matrix", "--svg", text(&svg), "--png", text(&png)],
        &["timeline", "--svg", text(&svg), "--png", text(&png)],
    ] {
        let ran = ibscope(arguments.iter().copied().chain([text(no_capture.path())]));
        assert_eq!(ran.code, 1, "{arguments:?}");
        assert_eq!(names(folder.path()), [""; 0], "{arguments:?} left something after a failure");
    }
    let whole = sample("perftest-read-lat");
    result(&["analyze", "-o", text(&profile)], &[&whole]);
    result(&["matrix", "--svg", text(&svg), "--png", text(&png)], &[&whole]);
    assert_eq!(names(folder.path()), ["out.ibp", "out.png", "out.svg"]);
}

const ESCAPE: char = '\x1b';

#[test]
fn colors_only_where_they_are_wanted() {
    let path = sample("openib-mixed-4x1");
    let table = |color: &[&str], no_color: Option<&str>| {
        let mut command = command([&["matrix"], color, &[text(&path)]].concat());
        command.envs(no_color.map(|value| ("NO_COLOR", value)));
        let output = command.output().expect("started");
        String::from_utf8(output.stdout).expect("text")
    };
    assert!(!table(&[], None).contains(ESCAPE), "not a terminal");
    assert!(table(&["--color", "always"], None).contains(ESCAPE));
    assert!(table(&["--color", "always"], Some("1")).contains(ESCAPE), "an option overrides the environment");
    assert!(!table(&["--color", "never"], None).contains(ESCAPE));
    let csv = result(&["matrix", "--format", "csv", "--color", "always"], &[&path]);
    assert!(!csv.contains(ESCAPE), "csv is for programs");
    let on_a_terminal = |color: &str, no_color: Option<&str>| {
        let line = format!("{} matrix --color {color} {}", env!("CARGO_BIN_EXE_ibscope"), path.display());
        let mut script = Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm-256color").env_remove("NO_COLOR");
        script.envs(no_color.map(|value| ("NO_COLOR", value))).stdin(Stdio::null());
        let output = script.output().expect("`script`, of Debian's bsdutils");
        assert!(output.status.success());
        String::from_utf8(output.stdout).expect("text")
    };
    assert!(on_a_terminal("auto", None).contains("\x1b[48;5;"));
    assert!(!on_a_terminal("auto", Some("1")).contains("\x1b[48;5;"));
    assert!(on_a_terminal("auto", Some("")).contains("\x1b[48;5;"), "empty counts as not set");
    assert!(!on_a_terminal("never", None).contains("\x1b[48;5;"));
}
