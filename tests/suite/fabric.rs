//! Link checksums, pause frames, congestion notifications, coalesced ACKs and UCX's own
//! retransmissions: recorded where possible, otherwise constructed.

use crate::health::{packets, total};
use crate::runs::{self, RecordedRun, decompressed, is_roce};
use crate::tools::{HEADER_BYTES, in_parallel, result, walk};
use crate::wire::{WireBuilder, WireQueuePair, profile};
use ibscope::model::profile::HealthRow;
use ibscope::model::{Health, Profile};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn written(folder: &Path, file: &[u8]) -> PathBuf {
    let path = folder.join("changed.pcap");
    std::fs::write(&path, file).expect("written");
    path
}

/// The health of a sender's connections, by service.
fn of(found: &Profile, src: u16, service: u8) -> Health {
    let row = |row: &HealthRow| {
        let connection = &found.connections[row.connection as usize];
        connection.src.to_string() == src.to_string() && connection.service == service
    };
    found.health.iter().find(row).expect("a row").health
}

/// The rows of a csv by column name.
fn csv(text: &str) -> Vec<BTreeMap<&str, &str>> {
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().expect("header").split(',').collect();
    lines.map(|line| header.iter().copied().zip(line.split(',')).collect()).collect()
}

#[test]
fn every_recorded_vcrc_is_right() {
    in_parallel(&runs::all(), |_, run: &RecordedRun| {
        let coverage = profile(&[run.sink()]).coverage;
        // One of the runs has a snap length.
        let whole = coverage.infiniband - coverage.truncated;
        assert!(whole > 100, "{}", run.name);
        assert_eq!((coverage.vcrc_ok, coverage.vcrc_bad), (whole, 0), "{}", run.name);
        // RoCE has no VCRC.
        let coverage = profile(&[run.node(1)]).coverage;
        assert_eq!((coverage.vcrc_ok, coverage.vcrc_bad), (0, 0), "{}", run.name);
    });
}

/// Messages of one packet and of five, 40 in all, and their ACKs; the last byte of every `nth`
/// packet is changed.
fn with_wrong_vcrc(nth: usize) -> (tempfile::TempDir, PathBuf, u64) {
    let mut wire = WireBuilder::new();
    let (mut there, mut back) = WireQueuePair::pair((3, 0x11), (4, 0x22));
    let long = vec![7; 20_000];
    for number in 0..40 {
        there.send(&mut wire, if number % 2 == 0 { b"request" } else { &long });
        back.ack(&mut wire, &there);
    }
    let mut file = std::fs::read(wire.file()).expect("capture");
    let ends: Vec<usize> = walk(&file).iter().map(|raw| raw.place.end - 1).step_by(nth).collect();
    ends.iter().for_each(|end| file[*end] ^= 0x10);
    let folder = tempfile::tempdir().expect("folder");
    let path = written(folder.path(), &file);
    (folder, path, ends.len() as u64)
}

#[test]
fn wrong_vcrcs_are_counted_if_the_capture_preserves_vcrcs() {
    let (_folder, path, changed) = with_wrong_vcrc(7);
    let found = profile(&[path]);
    // 20 messages of one packet, 20 of five, 40 ACKs.
    assert_eq!((found.coverage.vcrc_ok, found.coverage.vcrc_bad), (160 - changed, changed));
    assert_eq!((total(&found).0.vcrc_bad_packets, total(&found).0.icrc_bad_packets), (changed, 0));
    assert!(changed == 23 && found.notes.is_empty(), "{changed}: {:?}", found.notes);
    // An adapter that does not preserve the VCRC: the only note is about that.
    let (_folder, path, _) = with_wrong_vcrc(1);
    let found = profile(&[path]);
    assert_eq!((found.coverage.vcrc_ok, found.coverage.vcrc_bad, found.coverage.icrc_ok), (0, 0, 160));
    assert_eq!(total(&found).0.vcrc_bad_packets, 0);
    assert!(found.notes.iter().any(|note| note.contains("VCRC")), "{:?}", found.notes);
}

/// A flow-control frame of 60 bytes: IEEE 802.3, annex 31B, and 802.1Qbb.
fn pause(sender: u8, opcode: u16, fields: &[u16]) -> Vec<u8> {
    let mut frame = [0x01, 0x80, 0xC2, 0, 0, 0x01, 0x02, 0, 0, 0, 0, sender, 0x88, 0x08].to_vec();
    frame.extend([opcode].iter().chain(fields).flat_map(|word| word.to_be_bytes()));
    frame.resize(60, 0);
    frame
}

/// Constructed: no run has pause frames.
#[test]
fn pauses_are_counted_by_sender_and_class() {
    let mut file = decompressed(&runs::named("ompi-rc-ring2").node(1));
    let time = file[HEADER_BYTES..HEADER_BYTES + 8].to_vec();
    let frames = [
        // Classes 3 and 4; class 3 again, for less; class 3 resumes. The fields of other classes do
        // not count.
        pause(1, 0x0101, &[0b1_1000, 9, 9, 9, 0xFFFF, 100, 9, 9, 9]),
        pause(1, 0x0101, &[0b0_1000, 0, 0, 0, 1000, 0, 0, 0, 0]),
        pause(1, 0x0101, &[0b0_1000, 0, 0, 0, 0, 0, 0, 0, 0]),
        pause(2, 0x0101, &[0b1000_0001, 5, 0, 0, 0, 0, 0, 0, 6]),
        pause(2, 0x0001, &[256]),
    ];
    for frame in &frames {
        file.extend(&time);
        file.extend([60u32, 60].iter().flat_map(|length| length.to_le_bytes()));
        file.extend(frame);
    }
    let folder = tempfile::tempdir().expect("folder");
    let path = written(folder.path(), &file);
    let found = profile(std::slice::from_ref(&path));
    let pauses: Vec<_> = found
        .coverage
        .pauses
        .iter()
        .map(|(what, asked)| (what.as_str(), asked.pauses, asked.resumes, asked.longest_quanta, asked.quanta))
        .collect();
    assert_eq!(
        pauses,
        [
            ("02:00:00:00:00:01 PFC class 3", 2, 1, 65_535, 66_535),
            ("02:00:00:00:00:01 PFC class 4", 1, 0, 100, 100),
            ("02:00:00:00:00:02 PFC class 0", 1, 0, 5, 5),
            ("02:00:00:00:00:02 PFC class 7", 1, 0, 6, 6),
            ("02:00:00:00:00:02 pause", 1, 0, 256, 256),
        ]
    );
    let table = result(&["health"], &[&path]);
    assert!(table.contains("class 3: 2 pauses of up to 65 535 quanta, 1 frame to resume"), "{table}");
    // 65 535 x 512 bits at 100 Gbit/s are 335 539.2 ns.
    let table = result(&["health", "--link", "100Gb/s"], &[&path]);
    assert!(table.contains("class 3: 2 pauses of up to 335.539 µs, 1 frame to resume"), "{table}");
    let json: serde_json::Value =
        serde_json::from_str(&result(&["health", "--link", "4x EDR", "--format", "json"], &[&path])).expect("JSON");
    let pauses = json["pauses"].as_array().expect("pauses");
    let longest_ns =
        &pauses.iter().find(|row| row["sender"] == "02:00:00:00:00:02 pause").expect("sender")["longest_ns"];
    // 256 x 512 / 100.
    assert_eq!(*longest_ns, 1311);
    let csv = result(&["health", "--by", "pause", "--link", "100Gb/s", "--format", "csv"], &[&path]);
    assert_eq!(
        csv.lines().collect::<Vec<_>>(),
        [
            "sender,class,frames,pauses,resumes,longest_quanta,quanta,longest_ns",
            "02:00:00:00:00:01 PFC,class 3,3,2,1,65535,66535,335539",
            "02:00:00:00:00:01 PFC,class 4,3,1,0,100,100,512",
            "02:00:00:00:00:02 PFC,class 0,1,1,0,5,5,26",
            "02:00:00:00:00:02 PFC,class 7,1,1,0,6,6,31",
            "02:00:00:00:00:02 pause,,1,1,0,256,256,1311",
        ]
    );
    let table = result(&["health", "--by", "pause"], &[&path]);
    assert!(table.contains("65 535 quanta") && table.lines().count() == 6, "{table}");
}

/// Two PFC frames one second after the first packet, and a pause of all traffic one second later: one
/// analysis of two captures, and partial profiles of each.
#[test]
fn pauses_have_times() {
    let mut file = decompressed(&runs::named("ompi-rc-ring2").node(1));
    let mut other = file[..HEADER_BYTES].to_vec();
    let first_s = u32::from_le_bytes(file[HEADER_BYTES..HEADER_BYTES + 4].try_into().expect("seconds"));
    let record = |at_s: u32, frame: &[u8]| {
        [[first_s + at_s, 0, 60, 60].iter().flat_map(|word| word.to_le_bytes()).collect(), frame.to_vec()].concat()
    };
    file.extend(record(1, &pause(1, 0x0101, &[0b1_1000, 9, 9, 9, 0xFFFF, 100, 9, 9, 9])));
    other.extend(record(1, &pause(1, 0x0101, &[0b0_1000, 0, 0, 0, 0, 0, 0, 0, 0])));
    other.extend(record(2, &pause(2, 0x0001, &[256])));
    let folder = tempfile::tempdir().expect("folder");
    let place = |name: &str| folder.path().join(name).display().to_string();
    let captures = [place("a.pcap"), place("b.pcap")];
    captures.iter().zip([&file, &other]).for_each(|(path, bytes)| fs::write(path, bytes).expect("capture"));
    let csv =
        |inputs: &[String]| result(&["health", "--by", "pause-time", "--link", "100Gb/s", "--format", "csv"], inputs);
    let [first, second] = [1, 2].map(|at_s| u64::from(first_s + at_s) * 1_000_000_000);
    // 65 635 and 256 quanta of 512 bits at 100 Gbit/s.
    let expected = format!(
        "time_ns,frames,pauses,resumes,quanta,paused_ns\n{first},2,2,1,65635,336051\n{second},1,1,0,256,1311\n"
    );
    assert_eq!(csv(&captures), expected);
    let parts = [place("a.ibp"), place("b.ibp")];
    for (capture, part) in captures.iter().zip(&parts) {
        result(&["analyze", "--partial", "-o", part], &[capture]);
    }
    let merged = place("merged.ibp");
    result(&["merge", "-o", &merged], &parts);
    assert_eq!(csv(std::slice::from_ref(&merged)), expected);
    let table = result(&["health", "--by", "time"], &[&merged]);
    assert!(table.contains("pause and PFC frames, bins of 1 ms"), "{table}");
    assert!(table.contains("65 635 quanta"), "{table}");
    let json: serde_json::Value =
        serde_json::from_str(&result(&["health", "--by", "time", "--format", "json"], &[&merged])).expect("JSON");
    assert_eq!((&json["pause_times"]["bin_ns"], &json["pause_times"]["without_bin"]), (&1_000_000.into(), &0.into()));
    assert_eq!(json["pause_times"]["bins"][1]["quanta"], 256);
    let svg = place("health.svg");
    result(&["health", "--svg", &svg], &[&merged]);
    let svg = fs::read_to_string(svg).expect("figure");
    assert!(svg.contains("and pause frames") || svg.contains("Pause frames;"), "{svg}");
    // 1001 bins of 1 ms in at most 150 bins.
    assert!(svg.contains("pause and PFC frames, bins of 7 ms"), "the panel has a key");
    // A profile of an earlier version has the frames without their times.
    let document = fs::read_to_string(place("merged.ibp/profile.json")).expect("profile");
    let mut old: serde_json::Value = serde_json::from_str(&document).expect("JSON");
    old["coverage"].as_object_mut().expect("coverage").remove("pause_series").expect("the series");
    fs::write(place("merged.ibp/profile.json"), old.to_string()).expect("profile");
    let table = result(&["health", "--by", "pause-time"], &[&merged]);
    assert!(table.starts_with("the time of 3 pause frames is unknown"), "{table}");
}

/// Constructed: no run has congestion notifications.
#[test]
fn requests_slow_down_after_a_notification() {
    let mut wire = WireBuilder::new();
    let (mut there, mut back) = WireQueuePair::pair((3, 0x11), (4, 0x22));
    let mut now_ns = 1_700_000_000_000_000_000;
    let mut exchange =
        |wire: &mut WireBuilder, count: u32, gap_ns: i64, (there, back): (&mut WireQueuePair, &mut WireQueuePair)| {
            for _ in 0..count {
                now_ns += gap_ns;
                there.send(wire.at(now_ns), b"request");
                back.ack(wire, there);
            }
        };
    exchange(&mut wire, 40, 10_000, (&mut there, &mut back));
    // To queue pair 0x11 at 3, like its ACKs.
    back.notify(&mut wire);
    exchange(&mut wire, 40, 30_000, (&mut there, &mut back));
    back.notify(&mut wire);
    exchange(&mut wire, 40, 60_000, (&mut there, &mut back));
    // Too few requests follow.
    back.notify(&mut wire);
    exchange(&mut wire, 15, 60_000, (&mut there, &mut back));
    let found = profile(&[wire.file()]);
    let health = of(&found, 3, 0);
    assert_eq!((health.cnp_reactions, health.cnp_gap_before_ns, health.cnp_gap_after_ns), (2, 40_000, 90_000));
    assert_eq!((of(&found, 4, 0).cnp_reactions, of(&found, 4, 4).cnp_packets), (0, 3));
    let path = wire.file();
    let text = result(&["health", "--format", "csv"], &[&path]);
    let slowdown: Vec<&str> = csv(&text).iter().map(|row| row["cnp_slowdown"]).collect();
    assert_eq!(slowdown, ["2.25", "", ""]);
    assert!(result(&["health"], &[&path]).contains("2.2 times as far apart"));
}

#[test]
fn requests_per_ack_are_counted() {
    let mut wire = WireBuilder::new();
    let (mut there, mut back) = WireQueuePair::pair((3, 0x11), (4, 0x22));
    for _ in 0..10 {
        for _ in 0..3 {
            there.send(&mut wire, b"request");
        }
        back.ack(&mut wire, &there);
        back.send(&mut wire, b"request");
        there.ack(&mut wire, &back);
        // A response with data, not an ACK.
        there.read(&mut wire, 0x1000, 9, 64);
        back.read_response(&mut wire, &there, &[5; 64]);
    }
    // Neither a NAK nor a duplicate ACK acknowledges new requests.
    back.refuse(&mut wire, there.psn, 0x60);
    let path = wire.file();
    let text = result(&["health", "--format", "csv"], &[&path]);
    let ratios: Vec<&str> = csv(&text).iter().map(|row| row["requests_per_ack"]).collect();
    assert_eq!(ratios, ["3", "1"]);
    // A simple count on recorded connections: SENDs and WRITEs without retransmissions, and ACKs
    // without NAKs and duplicates, of both directions together.
    for name in ["ompi-rc-ring2", "ompi-openib-ring2", "perf-send-lat", "ompi-rc-loss1-ring2"] {
        let path = runs::named(name).node(1);
        let (mut requests, mut acks) = (BTreeSet::new(), BTreeSet::new());
        let mut naks = 0;
        for packet in packets(&decompressed(&path)) {
            let key = (packet.connection(), packet.psn);
            match packet.opcode {
                0x00..=0x0B | 0x16 | 0x17 => drop(requests.insert(key)),
                0x11 if packet.syndrome >> 5 == 0 => drop(acks.insert(key)),
                0x11 => naks += 1,
                _ => {}
            }
        }
        let json: serde_json::Value =
            serde_json::from_str(&result(&["health", "--format", "json"], &[&path])).expect("JSON");
        let sum = |column: &str| json["total"][column].as_u64().expect("number");
        let found = sum("request_packets") - sum("retransmitted_request_packets") - sum("data_requests");
        // READs that restart inside an earlier one are retransmissions by their range, and not
        // among these.
        assert_eq!(found, requests.len() as u64, "{name}");
        let table = result(&["health"], &[&path]);
        let line = table.lines().find(|line| line.starts_with("ACKs")).expect("a line");
        let shown: u64 =
            line["ACKs".len()..].split(',').next().expect("number").replace(' ', "").parse().expect("number");
        // An ACK with the PSN of an earlier NAK counts as a duplicate: at most as many as there are
        // NAKs.
        let all = acks.len() as u64;
        assert!(shown <= all && all <= shown + naks, "{name}: {shown}, {all}, {naks}");
    }
}

/// A UCX datagram in a RoCE frame, parsed by hand: Ethernet 14, IPv4 20, UDP 8, BTH 12, DETH 8,
/// then UCX's header: word (24 bits of endpoint, flags from bit 24), number at 4.
fn ucx(frame: &[u8]) -> Option<(Vec<u8>, u32, u16)> {
    let is_ucx = is_roce(frame) && frame.get(42) == Some(&0x64) && frame.get(54..58) == Some(&[0x1E, 0xE7, 0xA3, 0x30]);
    let header = frame.get(62..70).filter(|_| is_ucx)?;
    let word = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
    // Addresses, both queue pairs, endpoint.
    let place = [&frame[26..34], &frame[47..50], &frame[59..62], &header[..3]].concat();
    Some((place, word, u16::from_le_bytes([header[4], header[5]])))
}

/// Counts datagrams that carry messages (bit 24). A bare ACK has the number of the next message
/// without taking it. Counting ACKs as well would give 15 to 91 "retransmissions" in runs without
/// loss.
#[test]
fn retransmissions_of_ucx_datagrams_are_found() {
    let mut messages = 0;
    for run in runs::all().iter().filter(|run| run.nodes == 2) {
        let file = decompressed(&run.node(1));
        let datagrams: Vec<_> = walk(&file).iter().filter_map(|raw| ucx(raw.data(&file))).collect();
        if datagrams.is_empty() {
            continue;
        }
        let count = |of_messages: bool| {
            let mut seen = BTreeSet::new();
            let mut own = datagrams.iter().filter(|(_, word, _)| !of_messages || word >> 24 & 1 == 1);
            own.by_ref().filter(|(place, _, number)| !seen.insert((place, number))).count() as u64
        };
        for paths in [vec![run.node(1)], vec![run.sink()], run.every_node()] {
            assert_eq!(total(&profile(&paths)).0.library_retransmissions, count(true), "{}: {paths:?}", run.name);
        }
        messages += datagrams.len();
        if run.name == "ompi-ud-ring2" {
            assert_eq!((count(true), count(false)), (0, 61));
        }
    }
    assert!(messages > 1000, "{messages}");
}

/// Some messages of a recorded run are retransmitted under new PSNs, as UCX does.
#[test]
fn retransmissions_by_ucx_are_counted_separately() {
    let file = decompressed(&runs::named("ompi-ud-ring2").node(1));
    let mut changed = file[..HEADER_BYTES].to_vec();
    let (mut number, mut again) = (0, 0);
    for raw in walk(&file) {
        let record = &file[raw.place.clone()];
        changed.extend(record);
        let Some((_, word, _)) = ucx(raw.data(&file)) else { continue };
        number += 1;
        if word >> 24 & 1 == 1 && number % 10 == 0 {
            let mut copy = record.to_vec();
            // Record header 16; the PSN is at 9 in the BTH. The new PSN is far from all others.
            let psn = 0x40_0000u32 + again;
            copy[16 + 42 + 9..16 + 42 + 12].copy_from_slice(&psn.to_be_bytes()[1..]);
            changed.extend(copy);
            again += 1;
        }
    }
    let folder = tempfile::tempdir().expect("folder");
    let path = written(folder.path(), &changed);
    let (health, repeats) = total(&profile(&[path]));
    assert!(again > 50, "{again}");
    assert_eq!(health.library_retransmissions, u64::from(again));
    // No retransmissions of the transport, and no loss.
    assert_eq!((repeats.request_packets, health.lost(), health.unobserved_psns), (0, 0, 0));
}
