//! Hostile input: cases that attacks on the program found.

use ibscope::analysis::GroupBy;
use ibscope::analysis::matrix::{Selection, matrix};
use ibscope::analysis::timeline::timeline;
use ibscope::pipeline::{AnalysisLimits, AnalysisOptions, analyze, load};
use ibscope::render::matrix::timeline_csv;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A native packet with an LRH and a BTH, four bytes of ICRC and two of VCRC.
fn packet(opcode: u8, psn: u32, payload: &[u8], src: u16, qp: u32) -> Vec<u8> {
    let words = ((8 + 12 + payload.len().next_multiple_of(4) + 4) / 4) as u16;
    let mut bytes = vec![0, 2, 0, 2];
    bytes.extend(words.to_be_bytes());
    bytes.extend(src.to_be_bytes());
    bytes.extend([opcode, 0, 0xFF, 0xFF]);
    bytes.extend(qp.to_be_bytes());
    bytes.extend(psn.to_be_bytes());
    bytes.extend(payload);
    bytes.resize(usize::from(words) * 4 + 2, 0);
    bytes
}

fn pcap(packets: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut file = vec![0xD4, 0xC3, 0xB2, 0xA1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0, 0, 247, 0, 0, 0];
    for (index, packet) in packets.into_iter().enumerate() {
        for word in [1_700_000_000, index as u32, packet.len() as u32, packet.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(packet);
    }
    file
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let length = (body.len().next_multiple_of(4) + 12) as u32;
    let mut bytes = [kind.to_le_bytes(), length.to_le_bytes()].concat();
    bytes.extend(body);
    bytes.resize(length as usize - 4, 0);
    bytes.extend(length.to_le_bytes());
    bytes
}

fn section() -> Vec<u8> {
    block(0x0A0D_0D0A, &[0x4D, 0x3C, 0x2B, 0x1A, 1, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF])
}

/// An interface of link type 247 with nanoseconds and an offset in seconds.
fn interface(offset_s: i64) -> Vec<u8> {
    let mut body = vec![247, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, 9, 0, 0, 0, 14, 0, 8, 0];
    body.extend(offset_s.to_le_bytes());
    body.extend([0; 4]);
    block(1, &body)
}

fn enhanced(time_ns: u32, packet: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    for word in [0, 0, time_ns, packet.len() as u32, packet.len() as u32] {
        body.extend(word.to_le_bytes());
    }
    body.extend(packet);
    block(6, &body)
}

struct HostileFolder(tempfile::TempDir);

impl HostileFolder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("folder"))
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).expect("write");
        path
    }
}

fn ibscope(arguments: &[&str], path: &Path) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_ibscope")).args(arguments).arg(path).output().expect("ibscope");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn more_connections_than_cells_terminate() {
    let folder = HostileFolder::new();
    let path = folder.file("many.pcap", &pcap((0..500).map(|qp| packet(4, 0, b"", 1, qp + 2))));
    let limits = AnalysisLimits { max_cells: 10, ..AnalysisLimits::default() };
    let options = AnalysisOptions { limits, ..AnalysisOptions::default() };
    let profile = analyze(&[path], &options, &|_| {}).expect("analysis");
    assert_eq!(profile.connections.len(), 500);
    // All packets have one time, so no bins are too narrow.
    assert!(profile.notes.iter().any(|note| note.contains("500 rows, more than the 10")), "{:?}", profile.notes);
}

#[test]
fn interfaces_are_bounded() {
    let folder = HostileFolder::new();
    let mut file = [section(), interface(0), enhanced(1, &packet(4, 0, b"", 1, 5))].concat();
    file.extend(interface(0).repeat(70_000));
    let profile =
        analyze(&[folder.file("many.pcapng", &file)], &AnalysisOptions::default(), &|_| {}).expect("analysis");
    assert_eq!(profile.coverage.records, 1);
    let note = profile.notes.first().expect("a note");
    assert!(note.contains("corrupt_input") && note.contains("number of interfaces"), "{note}");
}

#[test]
fn blocks_before_the_first_packet_are_freed() {
    let folder = HostileFolder::new();
    let mut file = [section(), interface(0)].concat();
    file.extend(block(0x0BAD, &[7; 20]).repeat(300_000));
    let offset = file.len();
    file.extend(enhanced(1, &packet(4, 0, b"", 1, 5)));
    let whole = folder.file("late.pcapng", &file);
    assert_eq!(analyze(&[whole], &AnalysisOptions::default(), &|_| {}).expect("analysis").coverage.records, 1);
    let cut = folder.file("cut.pcapng", &file[..offset + 30]);
    let error = analyze(&[cut], &AnalysisOptions::default(), &|_| {}).expect_err("no packet").to_string();
    assert!(error.contains(&format!("ends at offset {}", offset + 30)), "{error}");
}

#[test]
fn times_at_the_limits_do_not_overflow() {
    let folder = HostileFolder::new();
    for offset_s in [-9_223_372_037, -9_223_372_036, 9_223_372_036, i64::MAX, i64::MIN] {
        let mut file = [section(), interface(offset_s)].concat();
        (0..3).for_each(|psn| file.extend(enhanced(1000 + psn, &packet(4, psn, &[1; 16], 1, 5))));
        let path = folder.file("extreme.pcapng", &file);
        let profile = analyze(&[path], &AnalysisOptions::default(), &|_| {}).expect("analysis");
        for bin_ns in [None, Some(70_000_000), Some(10_000_000_000)] {
            let timeline = timeline(&profile, GroupBy::Endpoint, Selection::All, bin_ns).expect("timeline");
            let packets: u64 = timeline.bins.iter().map(|bin| bin.cell.packets).sum();
            assert_eq!(packets, 3, "{offset_s} {bin_ns:?}");
            assert!(timeline.bins.iter().all(|bin| (bin.time_ns < 0) == (offset_s < 0)), "{offset_s} {bin_ns:?}");
        }
    }
}

#[test]
fn broken_congestion_notifications_add_up() {
    let folder = HostileFolder::new();
    let path = folder.file("cnp.pcap", &pcap((0..3).map(|_| packet(0x81, 0, &[7; 20], 1, 5))));
    let profile = analyze(&[path], &AnalysisOptions::default(), &|_| {}).expect("analysis");
    let total = matrix(&profile, GroupBy::Endpoint, Selection::All).total();
    let timeline = timeline(&profile, GroupBy::Endpoint, Selection::All, None).expect("timeline");
    assert_eq!((total.packets, total.payload_bytes), (3, 0));
    assert!(timeline.bins.iter().all(|bin| bin.cell.payload_bytes == 0));
    timeline_csv(&timeline, &mut std::io::sink()).expect("csv");
}

#[test]
fn damaged_tables_are_rejected_before_they_are_read() {
    let folder = HostileFolder::new();
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("samples/perftest-read-lat.pcap.zst");
    let place = folder.0.path().join("job.ibp");
    let profile = analyze(&[sample], &AnalysisOptions::default(), &|_| {}).expect("analysis");
    ibscope::pipeline::ProfileWriter::create(&place, &[]).expect("place").finish(&profile).expect("written");
    for table in ["connections.parquet", "timeline.parquet", "cm.parquet"] {
        let path = place.join(table);
        let good = std::fs::read(&path).expect("table");
        for at in (0..good.len()).step_by(good.len() / 40 + 1) {
            let mut bad = good.clone();
            bad[at] ^= 0x55;
            std::fs::write(&path, &bad).expect("write");
            let error = load(&place).expect_err("damaged").to_string();
            assert!(error.contains(table) && error.contains("analyze the captures again"), "{error}");
        }
        std::fs::write(&path, good).expect("write");
    }
    assert_eq!(load(&place).expect("whole again"), profile);
}

/// A special file in place of a file of a profile may block, have no end, or exceed the memory.
#[test]
fn special_files_in_a_profile_are_rejected_before_they_are_read() {
    let folder = HostileFolder::new();
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("samples/perftest-read-lat.pcap.zst");
    let place = folder.0.path().join("job.ibp");
    let profile = analyze(&[sample], &AnalysisOptions::default(), &|_| {}).expect("analysis");
    ibscope::pipeline::ProfileWriter::create(&place, &[]).expect("place").finish(&profile).expect("written");
    let refused = |path: &Path, expected: &str| {
        // With 4 GB of memory and a minute, so that an endless file does not exhaust the machine.
        let script = format!("ulimit -v 4000000; exec timeout 60 {} matrix \"$1\"", env!("CARGO_BIN_EXE_ibscope"));
        let output = Command::new("sh").args(["-c", &script, "sh"]).arg(&place).output().expect("started");
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{}: {printed}", path.display());
        assert!(printed.contains(&format!("{}: {expected}", path.display())), "{printed}");
        assert!(printed.contains("analyze the captures again"), "{printed}");
    };
    for (name, too_long) in [("profile.json", "107374182400 bytes long"), ("health.parquet", "damaged")] {
        let path = place.join(name);
        let good = std::fs::read(&path).expect("file");
        std::fs::File::options().write(true).open(&path).and_then(|file| file.set_len(100 << 30)).expect("sparse");
        refused(&path, too_long);
        std::fs::remove_file(&path).expect("removed");
        std::os::unix::fs::symlink("/dev/zero", &path).expect("link");
        refused(&path, "not a regular file");
        std::fs::remove_file(&path).expect("removed");
        assert!(Command::new("mkfifo").arg(&path).status().expect("mkfifo").success());
        refused(&path, "not a regular file");
        std::fs::remove_file(&path).expect("removed");
        std::fs::create_dir(&path).expect("folder");
        refused(&path, "not a regular file");
        std::fs::remove_dir(&path).expect("removed");
        std::fs::write(&path, good).expect("written");
    }
    // A document may claim any length for a table.
    let (document, table) = (place.join("profile.json"), place.join("health.parquet"));
    let length = std::fs::metadata(&table).expect("table").len();
    let text = std::fs::read_to_string(&document).expect("document");
    let claimed = text.replacen(
        &format!("\"length_bytes\": {length},\n      \"xxh3"),
        "\"length_bytes\": 107374182400,\n      \"xxh3",
        1,
    );
    assert_ne!(claimed, text);
    std::fs::write(&document, claimed).expect("written");
    std::fs::File::options().write(true).open(&table).and_then(|file| file.set_len(100 << 30)).expect("sparse");
    refused(&table, "107374182400 bytes long");
}

/// The document of a profile has no digest: anyone may write one.
#[test]
fn names_in_a_foreign_profile_contain_no_terminal_controls() {
    let place = HostileFolder::new();
    let capture = place.file("some.pcap", &pcap([packet(4, 1, b"some", 17, 5)]));
    let profile = place.0.path().join("some.ibp");
    assert_eq!(ibscope(&["analyze", "-o", profile.to_str().unwrap()], &capture).0, Some(0));
    let document = profile.join("profile.json");
    let mut foreign: serde_json::Value = serde_json::from_slice(&std::fs::read(&document).unwrap()).unwrap();
    let bell = "a \u{1b}[2J\u{7} bell";
    let counts = |coverage: &mut serde_json::Value| {
        for counts in ["other_frames", "undecoded", "pause_frames"] {
            coverage[counts] = serde_json::json!({ bell: 3 });
        }
        let pauses = serde_json::json!({ "pauses": 1, "resumes": 1, "longest_quanta": 8, "quanta": 8 });
        coverage["pauses"] = serde_json::json!({ bell: pauses });
    };
    counts(&mut foreign["coverage"]);
    counts(&mut foreign["inputs"][0]["coverage"]);
    foreign["inputs"][0]["format"] = serde_json::json!(bell);
    std::fs::write(&document, foreign.to_string()).unwrap();
    let mut all = String::new();
    for command in ["summary", "health", "matrix", "timeline"] {
        let output = Command::new(env!("CARGO_BIN_EXE_ibscope")).arg(command).arg(&profile).output().unwrap();
        let printed = [output.stdout, output.stderr].concat();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&printed));
        all += &String::from_utf8(printed).unwrap();
    }
    assert!(!all.contains(['\u{1b}', '\u{7}']), "{all:?}");
    assert!(all.contains("a \\u{1b}[2J\\u{7} bell"), "{all}");
}

#[test]
fn user_tables_from_spreadsheets_are_read_and_nonsense_is_rejected() {
    let folder = HostileFolder::new();
    let capture = Path::new(env!("CARGO_MANIFEST_DIR")).join("samples/perftest-read-lat.pcap.zst");
    let with = |option: &str, text: &str| {
        let table = folder.file("table.csv", text.as_bytes());
        ibscope(&["matrix", option, table.to_str().expect("path")], &capture)
    };
    assert_eq!(with("--hosts", "\u{feff}endpoint,name\r\n17,node1\r\n").0, Some(0));
    assert_eq!(with("--rankmap", "\u{feff}rank,endpoint\r\n0,17\r\n").0, Some(0));
    for option in ["--hosts", "--rankmap"] {
        let header = if option == "--hosts" { "endpoint,name\n" } else { "rank,endpoint\n0," };
        let (code, error) = with(option, &format!("{header}\x1b[31m{}", "x".repeat(100_000)));
        assert_eq!(code, Some(1));
        assert!(error.len() < 1000 && !error.contains('\x1b'), "{} bytes", error.len());
    }
    let many: Vec<String> = (1..40_000).map(|lid| format!("{lid},{lid}")).collect();
    assert_eq!(with("--rankmap", &format!("rank,endpoint\n{}", many.join("\n"))).0, Some(0));
    assert_eq!(ibscope(&["matrix", "--threads", "1025"], &capture).0, Some(2));
}
