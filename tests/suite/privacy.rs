//! Traces of payload in profiles and results, and the permissions of these files.
//!
//! Two captures that differ only in their payload are analyzed: output that is equal depends on
//! none of it.

use crate::runs;
use crate::tools::{ibscope, link_type, random, walk};
use ibscope_parsers::frame::LinkType;
use ibscope_parsers::ib::crc::icrc;
use ibscope_parsers::ib::{CrcVerdict, Packet, crc};
use ibscope_parsers::link::{LinkContent, locate};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

/// The part of the payload that is changed.
#[derive(Clone, Copy, PartialEq)]
enum ChangedBytes {
    /// All payload, including that of management datagrams.
    All,
    /// Payload after the first packet of a message, and READ responses: pure data, unless messages
    /// are coalesced.
    Data,
}

/// The capture with other bytes in its payload, and right checksums.
fn changed(file: &[u8], what: ChangedBytes) -> (Vec<u8>, u64) {
    let mut random = random(9);
    let mut new = file.to_vec();
    let mut bytes = 0;
    for record in walk(file) {
        let data = &mut new[record.place.start + 16..record.place.end];
        let Ok(LinkContent::Infiniband(location)) = locate(LinkType(link_type(file)), data, record.original_bytes)
        else {
            continue;
        };
        let packet = Packet::parse_lax(data, &location).expect("packet");
        let opcode = packet.bth.opcode;
        let is_data = opcode.is_middle() || opcode.is_last() || opcode.is_read_response();
        let range = packet.payload_offset..packet.payload_offset + packet.payload.len();
        if what == ChangedBytes::Data && !is_data || crc::verify_icrc(data, &location) != CrcVerdict::Ok {
            continue;
        }
        bytes += range.len() as u64;
        data[range].iter_mut().for_each(|byte| *byte = random(256) as u8);
        let sum = icrc(location.encapsulation, data, &location).expect("whole");
        data[location.end() - 4..location.end()].copy_from_slice(&sum.to_le_bytes());
        if data.len() >= location.end() + 2 && link_type(file) != 1 {
            let sum = crc::vcrc(&data[location.start..location.end()]);
            data[location.end()..location.end() + 2].copy_from_slice(&sum.to_le_bytes());
        }
    }
    (new, bytes)
}

/// Everything that the program makes of a capture: files by name, and printed output.
fn everything(folder: &Path, file: &[u8], options: &[&str], partial: bool) -> BTreeMap<String, Vec<u8>> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir(folder).expect("folder");
    let at = |name: &str| folder.join(name).to_str().expect("path").to_owned();
    fs::write(at("sink.pcap"), file).expect("written");
    let mut made = BTreeMap::new();
    let mut run = |name: &str, arguments: &[&str]| {
        let ran = ibscope(arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.stderr);
        made.insert(format!("{name} stdout"), ran.stdout.into_bytes());
        made.insert(format!("{name} stderr"), ran.stderr.into_bytes());
    };
    let (capture, profile) = (at("sink.pcap"), at("job.ibp"));
    let mut arguments = vec!["analyze", &capture, "-o", &profile];
    arguments.extend(options);
    if partial {
        arguments.push("--partial");
    }
    run("analyze", &arguments);
    run("report", &["report", &profile, "-o", &at("report.html")]);
    run("matrix", &["matrix", &profile, "--format", "csv", "--svg", &at("matrix.svg")]);
    run("latency", &["latency", &profile, "--format", "csv", "--svg", &at("latency.svg")]);
    run("health", &["health", &profile, "--format", "json"]);
    run("rates", &["rates", &profile, "--format", "json", "--svg", &at("rates.svg")]);
    if options.is_empty() {
        run("messages", &["messages", &capture, "--transport", "--parquet", &at("messages.parquet")]);
        run("messages csv", &["messages", &capture, "--transport", "--format", "csv"]);
        run("trace", &["trace", &capture, "-o", &at("trace.json")]);
        run("watch", &["watch", "--once", &capture]);
        run("inspect", &["inspect", &capture, "--format", "csv"]);
    }
    for place in [folder, &folder.join("job.ibp")] {
        for entry in fs::read_dir(place).expect("folder") {
            let path = entry.expect("entry").path();
            if path.is_file() && !path.ends_with("sink.pcap") {
                let name = path.strip_prefix(folder).expect("inside").display().to_string();
                made.insert(name, fs::read(path).expect("file"));
            }
        }
    }
    made
}

/// Removes the digests of the capture and of files that contain them.
fn without_digests(made: &mut BTreeMap<String, Vec<u8>>) {
    for (name, bytes) in made.iter_mut() {
        if name.contains("parts") {
            // Magic and version, then the header with the digests of inputs: length, stored length,
            // checksum, stored bytes.
            let stored = u64::from_le_bytes(bytes[20..28].try_into().expect("eight bytes"));
            bytes.drain(..12 + 24 + stored as usize);
            assert!(bytes.len() > 1000, "shards follow");
        }
        if name.ends_with("profile.json") {
            // The compressed header of the parts contains the digests, so its length may vary.
            let mut document: serde_json::Value = serde_json::from_slice(bytes).expect("json");
            document["tables"].as_object_mut().expect("tables").remove("parts.bin");
            *bytes = document.to_string().into_bytes();
        }
        // Tables and figures contain no digest.
        if ["json", "html", "stdout"].iter().any(|kind| name.contains(kind)) {
            let text = String::from_utf8_lossy(bytes).into_owned();
            let is_digest = |word: &str| word.len() == 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
            let mut words: Vec<&str> = text.split_inclusive(|c: char| !c.is_ascii_alphanumeric()).collect();
            words.iter_mut().for_each(|word| {
                if is_digest(word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric())) {
                    *word = "";
                }
            });
            *bytes = words.concat().into_bytes();
        }
    }
}

fn assert_same(case: &str, mut one: BTreeMap<String, Vec<u8>>, mut other: BTreeMap<String, Vec<u8>>) {
    assert_ne!(
        one["job.ibp/profile.json"], other["job.ibp/profile.json"],
        "{case}: the digests of the captures differ"
    );
    without_digests(&mut one);
    without_digests(&mut other);
    assert_eq!(one.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>());
    for (name, bytes) in &one {
        assert!(*bytes == other[name], "{case}: {name} depends on payload");
    }
}

#[test]
fn without_payload_nothing_depends_on_it() {
    let folder = tempfile::tempdir().expect("folder");
    for (name, is_native) in [
        ("ompi-rc-mixed-2x2", true),
        ("ompi-openib-bt.S-4x1", true),
        ("perf-cm-write-lat", false),
        ("ompi-ud-ring2", false),
    ] {
        let run = runs::named(name);
        let file = runs::decompressed(&if is_native { run.sink() } else { run.node(1) });
        let (other, bytes) = changed(&file, ChangedBytes::All);
        assert!(bytes > 10_000, "{name}: {bytes} bytes of payload");
        let made = [&file, &other].map(|file| everything(&folder.path().join("w"), file, &["--no-payload"], is_native));
        let [one, other] = made;
        assert!(!String::from_utf8_lossy(&one["job.ibp/profile.json"]).contains("rank\""), "{name}");
        assert_same(name, one, other);
    }
}

/// Runs whose coalesced messages never span several packets.
#[test]
fn nothing_depends_on_the_data_of_messages() {
    let folder = tempfile::tempdir().expect("folder");
    for name in ["ompi-rc-mixed-2x2", "ompi-openib-put-ring2"] {
        let file = runs::decompressed(&runs::named(name).sink());
        let (other, bytes) = changed(&file, ChangedBytes::Data);
        assert!(bytes > 100_000, "{name}: {bytes} bytes of data");
        let [one, other] = [&file, &other].map(|file| everything(&folder.path().join("w"), file, &[], false));
        assert_same(name, one, other);
    }
}

#[test]
fn files_with_messages_are_private_unless_they_were_shared_before() {
    let folder = tempfile::tempdir().expect("folder");
    let at = |name: &str| folder.path().join(name).to_str().expect("path").to_owned();
    let capture = runs::named("ompi-rc-ring2").sink().to_str().expect("path").to_owned();
    let mode = |name: &str| fs::metadata(at(name)).expect(name).mode() & 0o777;
    let write = || {
        for arguments in [
            vec!["analyze", &capture, "-o", &at("job.ibp")],
            vec!["messages", &capture, "--parquet", &at("messages.parquet")],
            vec!["trace", &capture, "-o", &at("trace.json")],
            vec!["anonymize", &capture, "-o", &at("shared.pcap"), "--names", &at("names.csv")],
            vec!["matrix", &capture, "--svg", &at("matrix.svg")],
        ] {
            // A umask that lets everybody read new files.
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", "umask 022; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_ibscope")]).args(&arguments);
            let output = shell.output().expect("sh");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    };
    write();
    for name in ["messages.parquet", "trace.json", "names.csv"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
    assert_eq!(mode("job.ibp"), 0o700);
    // Files that are made to be shared.
    assert_eq!([mode("matrix.svg"), mode("shared.pcap")], [0o644, 0o644]);
    for (name, shared) in [("job.ibp", 0o750), ("messages.parquet", 0o640), ("matrix.svg", 0o600)] {
        fs::set_permissions(at(name), fs::Permissions::from_mode(shared)).expect("permissions");
    }
    write();
    assert_eq!([mode("job.ibp"), mode("messages.parquet"), mode("matrix.svg")], [0o750, 0o640, 0o600]);
}

/// Terminal controls: colors, a title, another writing direction.
const ORDERS: &str = "\u{1b}[31m\u{1b}]0;owned\u{7}\u{202e}\u{9b}2J";

#[test]
fn names_contain_no_terminal_controls() {
    let folder = tempfile::tempdir().expect("folder");
    let at = |name: &str| folder.path().join(name).to_str().expect("path").to_owned();
    let capture = at(&format!("sink{ORDERS}.pcap"));
    let file = runs::decompressed(&runs::named("perf-write-lat").sink());
    // Truncated, so that notes contain the name.
    fs::write(&capture, &file[..file.len() - 3]).expect("written");
    fs::write(at("hosts.csv"), format!("endpoint,name\n17,node{ORDERS}\n")).expect("written");
    fs::write(at("bad.csv"), format!("endpoint,name\n{ORDERS}\n")).expect("written");
    let profile = at(&format!("job{ORDERS}.ibp"));
    let missing = at(&format!("none{ORDERS}.pcap"));
    for (arguments, code) in [
        (vec!["analyze", &capture, "-o", &profile, "--hosts", &at("hosts.csv")], 0),
        (vec!["summary", &profile], 0),
        (vec!["matrix", &profile], 0),
        (vec!["health", &capture], 0),
        (vec!["inspect", &capture], 0),
        (vec!["messages", &capture], 0),
        (vec!["watch", "--once", &capture], 0),
        (vec!["matrix", &missing], 1),
        (vec!["matrix", &capture, "--hosts", &at("bad.csv")], 1),
        (vec!["anonymize", &capture, "-o", &at("x.pcap")], 1),
    ] {
        let ran = ibscope(&arguments);
        assert_eq!(ran.code, code, "{arguments:?}: {}", ran.stderr);
        for text in [&ran.stdout, &ran.stderr] {
            let orders = text.chars().find(|c| c.is_control() && *c != '\n' || *c == '\u{202e}');
            assert_eq!(orders, None, "{arguments:?}: {text:?}");
        }
    }
}
