//! Notes are printed once per analysis: by `analyze`, `summary` and commands that read captures.

use crate::runs;
use crate::tools::{ibscope, sample};
use ibscope_samples::hard::frame::PacketFrame;
use ibscope_samples::hard::{Recording, partial};

/// Commands on a profile print one line that points to the notes, with the verdict.
#[test]
fn commands_on_a_profile_point_to_the_notes_in_one_line() {
    let folder = tempfile::tempdir().expect("folder");
    let place = folder.path().join("job.ibp");
    let place = place.to_str().expect("path");
    let capture = sample("openib-mixed-4x1");
    let capture = capture.to_str().expect("path");
    let limited = ["--max-connections", "20"];
    let ran = ibscope([&["analyze", "-o", place, capture][..], &limited].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let summary = ibscope(["summary", place]).stdout;
    assert!(summary.contains("--max-connections 20: "), "{summary}");
    let lines =
        |text: &str| text.lines().filter(|line| line.starts_with("note: ")).map(str::to_owned).collect::<Vec<_>>();
    for command in ["matrix", "timeline", "ranks", "collectives", "health", "rates", "phases", "paths"] {
        let on_profile = lines(&ibscope([command, place]).stderr);
        let pointers = on_profile.iter().filter(|line| line.contains(&format!("`ibscope summary {place}` shows ")));
        assert_eq!(pointers.count(), 1, "{command}: {on_profile:?}");
        assert!(!on_profile.iter().any(|line| line.contains("--max-connections")), "{command}: {on_profile:?}");
        let on_capture = lines(&ibscope([&[command, capture][..], &limited].concat()).stderr);
        assert!(on_capture.iter().any(|line| line.contains("--max-connections 20: ")), "{command}: {on_capture:?}");
    }
    // Two profiles: one line for each.
    let compared = lines(&ibscope(["compare", place, place]).stderr);
    assert_eq!(compared.iter().filter(|line| line.contains("`ibscope summary ")).count(), 2, "{compared:?}");
}

/// Two of the four ports of a run: commands that show traffic print that other traffic may be missing.
#[test]
fn ports_that_may_be_missing_are_reported() {
    const NOTE: &str = "note: the captures may not show all ports: ";
    let run = runs::of_second_set("ompi5-coll-default-4x1");
    let commands: [&[&str]; 5] = [&["messages"], &["timeline"], &["trace"], &["rates"], &["rates", "--by", "link"]];
    for command in commands {
        let notes = |captures: &[std::path::PathBuf]| {
            let paths = captures.iter().map(|path| path.as_os_str());
            let ran = ibscope(command.iter().map(std::ffi::OsStr::new).chain(paths));
            assert_eq!(ran.code, 0, "{command:?}: {}", ran.stderr);
            ran.stderr.lines().filter(|line| line.starts_with(NOTE)).count()
        };
        assert_eq!(notes(&[run.node(1), run.node(2)]), 1, "{command:?}");
        assert_eq!(notes(&run.every_node()), 0, "{command:?}");
    }
}

/// One acknowledged SEND is missing. Commands that do not show the coverage of single pairs print how
/// many pairs are incomplete.
#[test]
fn a_missing_packet_is_reported_with_all_numbers() {
    let whole = runs::named("ompi-openib-ring2").node(1);
    let recording = Recording::read(&whole).expect("recording");
    let is_send = |index: usize| {
        let frame = PacketFrame::read(recording.link_type, &recording.records[index]);
        frame.is_some_and(|frame| frame.opcode.is_send() && frame.src_qp.is_none())
    };
    let middle = (recording.records.len() / 2..recording.records.len()).find(|index| is_send(*index)).expect("a SEND");
    let folder = tempfile::tempdir().expect("folder");
    let short = folder.path().join("node1.pcap");
    partial::keep(&recording, |index, _| index != middle).write(&short).expect("written");
    for command in ["timeline", "rates", "latency", "collectives", "phases", "messages", "waits", "storage", "paths"] {
        let note = |path: &std::path::Path| {
            let ran = ibscope([command.as_ref(), path.as_os_str()]);
            ran.stderr.lines().find(|line| line.contains("pairs of endpoints are incomplete")).map(str::to_owned)
        };
        let found = note(&short).unwrap_or_default();
        assert!(found.starts_with("note: 1 of 2 pairs "), "{command}: {found}");
        assert_eq!(note(&whole), None, "{command}");
    }
}

/// Without payload, nothing shows which messages belong together. Commands that do not show the coverage
/// of single pairs print that all pairs are unknown.
#[test]
fn pairs_of_a_truncated_capture_are_reported_with_all_numbers() {
    let recording = Recording::read(&runs::named("ompi-rc-ring2").sink()).expect("recording");
    let folder = tempfile::tempdir().expect("folder");
    let short = folder.path().join("short.pcap");
    partial::truncate(&recording, 44).write(&short).expect("written");
    for command in ["timeline", "rates", "collectives", "phases", "messages", "waits", "storage"] {
        let ran = ibscope([command.as_ref(), short.as_os_str()]);
        let note = ran.stderr.lines().find(|line| line.contains("pairs of endpoints are unknown"));
        assert!(note.is_some_and(|note| note.starts_with("note: all pairs ")), "{command}: {}", ran.stderr);
    }
}
