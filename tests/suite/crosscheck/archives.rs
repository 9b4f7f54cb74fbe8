//! Damaged trace archives, and other trace formats than OTF2.

use super::archive;
use crate::runs::{self, RecordedRun};
use crate::tools::{ProgramResult, command, ibscope, result};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

fn crosscheck(run: &RecordedRun, trace: &Path, more: &[&str]) -> ProgramResult {
    let sink = run.sink();
    let arguments = [OsStr::new("crosscheck"), sink.as_os_str(), trace.as_os_str()];
    ibscope(arguments.into_iter().chain(more.iter().map(OsStr::new)))
}

/// A copy of a run's archive, to be damaged; returns its anchor file.
fn copy(run: &RecordedRun, to: &Path) -> PathBuf {
    let anchor = archive(run).expect("archive");
    let folder = anchor.parent().expect("folder");
    let inner = folder.join("traces");
    fs::create_dir_all(to.join("traces")).expect("folder");
    let files = [folder, &inner].into_iter().flat_map(|folder| fs::read_dir(folder).expect("entries"));
    for path in files.map(|entry| entry.expect("entry").path()).filter(|path| path.is_file()) {
        let place = to.join(path.strip_prefix(folder).expect("below"));
        fs::write(place, fs::read(&path).expect("read")).expect("written");
    }
    to.join("traces.otf2")
}

fn assert_refused(ran: &ProgramResult, expected: &[&str]) {
    assert_eq!(ran.code, 1, "{} {}", ran.stdout, ran.stderr);
    assert_eq!(ran.stdout, "");
    for text in expected {
        assert!(ran.stderr.contains(text), "{text}: {}", ran.stderr);
    }
}

#[test]
fn broken_archives_are_rejected_with_the_reason() {
    let run = runs::named("scorep-ompi-rc-ring-2x1");
    let damage = |damage: &dyn Fn(&Path), expected: &[&str]| {
        let folder = tempfile::tempdir().expect("folder");
        let anchor = copy(&run, folder.path());
        damage(folder.path());
        let ran = crosscheck(&run, &anchor, &[]);
        assert_refused(&ran, expected);
        assert!(ran.stderr.contains(&*anchor.to_string_lossy()), "{}", ran.stderr);
    };
    let cut = |path: PathBuf, bytes: usize| {
        let whole = fs::read(&path).expect("file");
        fs::write(path, &whole[..bytes]).expect("cut");
    };
    damage(
        &|folder| fs::remove_file(folder.join("traces.otf2")).expect("removed"),
        &["the run was killed before its trace was complete"],
    );
    damage(
        &|folder| fs::remove_file(folder.join("traces/1.evt")).expect("removed"),
        &["a file of the archive is missing", "1.evt"],
    );
    // Without its definitions a location has no mapping of communicators; `otf2-print` does not
    // fail.
    damage(
        &|folder| fs::remove_file(folder.join("traces/1.def")).expect("removed"),
        &["a file of the archive is missing", "1.def"],
    );
    damage(
        &|folder| fs::remove_file(folder.join("traces.def")).expect("removed"),
        &["a file of the archive is missing", "traces.def"],
    );
    damage(&|folder| cut(folder.join("traces/0.evt"), 700), &["truncated or damaged"]);
    damage(&|folder| cut(folder.join("traces/0.evt"), 0), &["truncated or damaged"]);
    damage(&|folder| cut(folder.join("traces.def"), 3000), &["truncated or damaged"]);
    damage(&|folder| cut(folder.join("traces.otf2"), 10), &["truncated or damaged"]);
    let version = |folder: &Path| {
        let path = folder.join("traces.otf2");
        let mut bytes = fs::read(&path).expect("anchor");
        // After the magic number: the major version.
        bytes[8] = 9;
        fs::write(path, bytes).expect("written");
    };
    damage(&version, &["version conflicts", "newer OTF2 tools"]);
    let folder = tempfile::tempdir().expect("folder");
    let ran = crosscheck(&run, &folder.path().join("none.otf2"), &[]);
    assert_refused(&ran, &["none.otf2: cannot be read"]);
    // A capture is not a trace.
    assert_refused(&crosscheck(&run, &run.sink(), &[]), &["otf2-print cannot read this archive"]);
}

#[test]
fn missing_tools_are_reported_with_the_remedy() {
    let run = runs::named("scorep-ompi-rc-ring-2x1");
    let (sink, trace) = (run.sink(), archive(&run).expect("archive"));
    let mut command = command([OsStr::new("crosscheck"), sink.as_os_str(), trace.as_os_str()]);
    let output = command.env("PATH", "/nonexistent").output().expect("it starts");
    let ran = ProgramResult::from(output);
    assert_refused(&ran, &["otf2-print, which reads OTF2 archives, is not installed", "apt install otf2-tools"]);
}

#[test]
fn tables_are_traces_too() {
    for name in ["ompi-openib-notrace-mixed-4x1", "ompi-rc-notrace-mixed-4x1"] {
        let run = runs::named(name);
        let truth = run.folder.join("truth.csv");
        let ran = crosscheck(&run, &truth, &[]);
        assert_eq!(ran.code, 0, "{} {}", ran.stdout, ran.stderr);
        assert!(ran.stdout.contains("12 equal\n"), "{}", ran.stdout);
        let folder = tempfile::tempdir().expect("folder");
        let changed = folder.path().join("changed.csv");
        let text = fs::read_to_string(&truth).expect("truth");
        let (first, rest) = text.split_once('\n').expect("header");
        let (row, rest) = rest.split_once('\n').expect("row");
        let (front, bytes) = row.rsplit_once(',').expect("bytes");
        let more = bytes.parse::<u64>().expect("number") + 1;
        fs::write(&changed, format!("{first}\n{front},{more}\n{rest}")).expect("written");
        let ran = crosscheck(&run, &changed, &[]);
        assert_eq!(ran.code, 4, "{} {}", ran.stdout, ran.stderr);
        assert!(ran.stdout.contains("11 equal, 1 unexplained"), "{}", ran.stdout);
        for (text, expected) in [
            ("src,dst,messages,bytes\n0,1,x,4\n", "changed.csv: line 2: `x` is not a number"),
            ("src,dst,messages,bytes\n0,1,3\n", "line 2: expected four fields"),
            ("src,dst,messages,bytes\n0,1,3,4\n0,1,3,4\n", "line 3: the pair 0,1 is already in the table"),
        ] {
            fs::write(&changed, text).expect("written");
            assert_refused(&crosscheck(&run, &changed, &[]), &[expected]);
        }
    }
}

/// Nothing of ranks 4 to 7 was captured, although all ports of the other ranks were: uncaptured
/// ports do not explain that.
#[test]
fn pairs_that_should_have_been_captured_are_not_explained() {
    let run = runs::named("ompi-rc-notrace-mixed-4x1");
    let folder = tempfile::tempdir().expect("folder");
    let more = folder.path().join("more.csv");
    let truth = fs::read_to_string(run.folder.join("truth.csv")).expect("truth");
    fs::write(&more, format!("{truth}0,4,1,8\n1,5,1,8\n2,6,1,8\n3,7,1,8\n")).expect("written");
    let ran = crosscheck(&run, &more, &[]);
    assert_eq!(ran.code, 4, "{} {}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("12 equal, 4 unexplained"), "{}", ran.stdout);
    // The port of node 1 does not show the pairs between other nodes.
    let truth = run.folder.join("truth.csv");
    let ran = ibscope([OsStr::new("crosscheck"), run.node(1).as_os_str(), truth.as_os_str()]);
    assert_eq!(ran.code, 0, "{} {}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("6 equal, 6 explained"), "{}", ran.stdout);
    assert!(ran.stdout.contains("agree, as far as ports were captured"), "{}", ran.stdout);
}

/// Two processes per node, from every source of a placement.
#[test]
fn placements_are_read_from_every_source() {
    let run = runs::named("ompi-rc-mixed-2x2");
    let trace = archive(&run).expect("archive");
    for file in ["stdout.txt", "rankmap.csv", "hostfile"] {
        let place = run.folder.join(file);
        let ran = crosscheck(&run, &trace, &["--placement", &place.to_string_lossy(), "--format", "csv"]);
        assert_eq!(ran.code, 0, "{file}: {} {}", ran.stdout, ran.stderr);
        let together = ran.stdout.lines().filter(|line| line.contains(",not on the wire (same node),")).count();
        assert_eq!(together, 4, "{file}: 0 and 1, 2 and 3, both ways: {}", ran.stdout);
        assert!(!ran.stdout.contains("unexplained"), "{}", ran.stdout);
    }
    // All ranks on nodes of their own: then nothing explains messages that never reached the wire.
    let folder = tempfile::tempdir().expect("folder");
    let wrong = folder.path().join("hosts");
    fs::write(&wrong, "a\nb\nc\nd\n").expect("written");
    let ran = crosscheck(&run, &trace, &["--placement", &wrong.to_string_lossy()]);
    assert!(ran.stderr.contains("share an endpoint in the capture, but are on different nodes"), "{}", ran.stderr);
    fs::write(&wrong, "a\n").expect("written");
    assert_refused(&crosscheck(&run, &trace, &["--placement", &wrong.to_string_lossy()]), &["rank 1 is missing"]);
}

#[test]
fn profiles_without_the_table_of_streams_say_what_to_do() {
    let run = runs::named("ompi-rc-ring2");
    let folder = tempfile::tempdir().expect("folder");
    let profile = folder.path().join("old.ibp");
    result(&["analyze", "-o", &profile.to_string_lossy()], &[run.sink()]);
    let trace = archive(&run).expect("archive");
    let ran = ibscope([OsStr::new("crosscheck"), profile.as_os_str(), trace.as_os_str()]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    // As in older versions: without the file, and without its digest.
    fs::remove_file(profile.join("streams.parquet")).expect("removed");
    let ran = ibscope([OsStr::new("crosscheck"), profile.as_os_str(), trace.as_os_str()]);
    assert_refused(&ran, &["streams.parquet"]);
    let document = profile.join("profile.json");
    let mut json: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&document).expect("document")).expect("json");
    json["tables"].as_object_mut().expect("tables").remove("streams.parquet").expect("digest");
    fs::write(&document, json.to_string()).expect("written");
    let ran = ibscope([OsStr::new("crosscheck"), profile.as_os_str(), trace.as_os_str()]);
    assert_refused(&ran, &["no table of messages by communicator and tag"]);
    // All other commands still show the profile.
    result(&["matrix", "--by", "rank"], &[&profile]);
}

#[test]
fn figures_show_both_and_their_difference() {
    let run = runs::named("scorep-ompi-rc-ring-2x1");
    let folder = tempfile::tempdir().expect("folder");
    let (svg, png) = (folder.path().join("c.svg"), folder.path().join("c.png"));
    let figures = ["--svg", &*svg.to_string_lossy(), "--png", &*png.to_string_lossy()];
    let ran = crosscheck(&run, &archive(&run).expect("archive"), &figures);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let text = fs::read_to_string(&svg).expect("svg");
    // 1 855 880 bytes in each direction: 1.77 MiB. Score-P adds 58 829 from rank 1 to 0 (57.5 KiB)
    // and 2 392 (2.34 KiB) back.
    for part in ["trace", "wire", "wire - trace", "sender", "receiver", "explained", "1.77", "+57.5", "+2.34"] {
        assert!(text.contains(&format!("\n{part}\n")) || text.contains(&format!(">{part}<")), "{part}");
    }
    assert!(fs::read(&png).expect("png").starts_with(b"\x89PNG"));
    // Inputs of the command are never overwritten.
    let ran = crosscheck(
        &run,
        &archive(&run).expect("archive"),
        &["--svg", &archive(&run).expect("archive").to_string_lossy()],
    );
    assert_refused(&ran, &["the command reads it"]);
}
