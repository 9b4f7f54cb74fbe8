//! What is kept is bounded, and what finds no room is counted and said by every command that shows numbers it belongs to.

use crate::runs;
use crate::runs::decompressed;
use crate::tools::{Blocks, ibscope, sample, samples_folder};
use crate::wire::{Queue, Wire, profile};
use ibscope::model::profile::CoverageState;
use ibscope::model::{Kind, Profile};
use ibscope::pipeline::{Options, analyze};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Notes on what was left out begin with what it is, and its count.
fn said(profile: &Profile, what: &str, count: u64) {
    let expected = format!("{what}: {count}. ");
    assert!(profile.notes.iter().any(|note| note.starts_with(&expected)), "{expected}: {:?}", profile.notes);
}

/// Queue pairs between two LIDs lie in one shard: the limit is that of all shards together.
#[test]
fn connections_between_two_ports_fill_the_limit() {
    const QUEUE_PAIRS: u32 = 100;
    let mut wire = Wire::new();
    for qpn in 0..QUEUE_PAIRS {
        let (mut there, mut back) = Queue::pair((3, 0x100 + qpn), (4, 0x200 + qpn));
        there.send(&mut wire, &[1; 64]);
        back.ack(&mut wire, &there);
    }
    let path = [wire.file()];
    let limited = |max_connections: usize, threads: usize| {
        let options = Options { max_connections, threads, ..Options::default() };
        analyze(&path, &options, &|_| {}).expect("analysis")
    };
    // A connection for each direction, of one packet each.
    let all = limited(2 * QUEUE_PAIRS as usize, 2);
    assert_eq!((all.connections.len(), all.coverage.not_followed), (2 * QUEUE_PAIRS as usize, 0));
    assert!(all.notes.iter().all(|note| !note.contains("--max-connections")), "{:?}", all.notes);
    let some = limited(2 * QUEUE_PAIRS as usize - 1, 2);
    assert_eq!((some.connections.len(), some.coverage.not_followed), (2 * QUEUE_PAIRS as usize - 1, 1));
    assert_eq!(some, limited(2 * QUEUE_PAIRS as usize - 1, 1));
    said(&some, "packets of connections beyond --max-connections 199", 1);
    assert!(some.connections.iter().all(|row| row.coverage.state == CoverageState::Unknown));
    // The one that comes last.
    let last = all.connections.iter().max_by_key(|row| row.first_time_ns).expect("a connection");
    assert!(some.connections.iter().all(|row| (row.src, row.dest_qp) != (last.src, last.dest_qp)));
}

#[test]
fn every_command_says_that_connections_were_left_out() {
    let folder = tempfile::tempdir().expect("folder");
    let place = |name: &str| folder.path().join(name).to_str().expect("path").to_owned();
    let capture = sample("openib-mixed-4x1");
    let capture = capture.to_str().expect("path");
    let (profile, trace, page) = (place("job.ibp"), place("trace.json"), place("report.html"));
    let limit = ["--max-connections", "2"];
    let expected = "packets of connections beyond --max-connections 2: ";
    let commands: [&[&str]; 13] = [
        &["analyze", "-o", &profile],
        &["matrix"],
        &["matrix", "--by", "rank"],
        &["timeline"],
        &["ranks"],
        &["messages"],
        &["collectives"],
        &["health"],
        &["latency"],
        &["rates"],
        &["phases"],
        &["trace", "-o", &trace],
        &["report", "-o", &page],
    ];
    for arguments in commands {
        let ran = ibscope([arguments, &limit[..], &[capture]].concat());
        assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.stderr);
        let told = [ran.stdout, ran.stderr].concat().replace('\n', " ");
        assert!(told.contains(expected) || arguments[0] == "report", "{arguments:?}: {told}");
    }
    assert!(fs::read_to_string(&page).expect("page").contains(expected));
    for command in ["summary", "matrix", "timeline", "ranks", "collectives", "health", "latency", "rates", "phases"] {
        let ran = ibscope([command, &profile]);
        let told = [ran.stdout, ran.stderr].concat();
        assert!(told.contains("--max-connections 2: "), "{command}: {told}");
    }
}

#[test]
fn introductions_beyond_those_that_are_kept_are_counted_and_said() {
    /// `MAX_WIREUPS`.
    const KEPT: u32 = 1 << 16;
    let mut wire = Wire::new();
    let mut queue = Queue::new(3, 4, 0x41);
    // As `constructed::udcm_gives_ranks_and_queue_pairs`: the sender's rank, and one queue pair.
    let mut payload = vec![0; 64];
    payload[0] = 100;
    payload[8..16].copy_from_slice(&0x5566_0000_5000u64.to_le_bytes());
    payload[16..24].copy_from_slice(&0x5566_0000_6000u64.to_le_bytes());
    payload[32..36].copy_from_slice(&(19_476u32 << 16 | 1).to_le_bytes());
    payload[36..40].copy_from_slice(&5u32.to_le_bytes());
    payload[40..44].copy_from_slice(&3i32.to_be_bytes());
    payload[44] = 1;
    payload[56..60].copy_from_slice(&0x77u32.to_be_bytes());
    for _ in 0..=KEPT {
        queue.datagram(&mut wire, 0, 0x40, &payload);
    }
    let found = profile(&[wire.file()]);
    assert_eq!(found.coverage.introductions_left_out, 1);
    said(&found, "wire-up messages and introductions that were counted and not kept", 1);
}

#[test]
fn connection_messages_beyond_those_that_are_kept_are_counted_and_said() {
    /// `MAX_CM`.
    const KEPT: usize = 1 << 16;
    let mut wire = Wire::new();
    let mut queue = Queue::new(3, 4, 1);
    // ReadyToUse: base version 1, class 7, class version 2, Send(), attribute 0x14 (InfiniBand Architecture, 12.6).
    let mut payload = vec![0; 256];
    payload[..4].copy_from_slice(&[1, 7, 2, 3]);
    payload[17] = 0x14;
    for _ in 0..=KEPT {
        queue.datagram(&mut wire, 0x8001_0000, 1, &payload);
    }
    let found = profile(&[wire.file()]);
    assert_eq!(found.coverage.management, KEPT as u64 + 1);
    assert!(found.connections.iter().all(|row| row.kind == Kind::Management));
    said(&found, "connection management messages that were counted and not kept", 1);
}

/// Senders whose names come first are told apart, of three frames each.
#[test]
fn senders_of_pauses_beyond_those_that_are_told_apart_are_counted_and_said() {
    /// `MAX_PAUSE_SENDERS`.
    const KEPT: u16 = 1 << 10;
    const FRAMES: u64 = 3;
    let mut file = decompressed(&runs::named("ompi-rc-ring2").node(1));
    let time = file[24..32].to_vec();
    for sender in (0..=KEPT).rev() {
        for _ in 0..FRAMES {
            let mut frame = [0x01, 0x80, 0xC2, 0, 0, 0x01, 0x02, 0, 0, 0].to_vec();
            frame.extend(sender.to_be_bytes());
            frame.extend([0x88, 0x08, 0x00, 0x01, 0xFF, 0xFF]);
            frame.resize(60, 0);
            file.extend(&time);
            file.extend([60u32, 60].iter().flat_map(|length| length.to_le_bytes()));
            file.extend(frame);
        }
    }
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("pauses.pcap");
    fs::write(&path, &file).expect("capture");
    let found = profile(std::slice::from_ref(&path));
    let last = format!("02:00:00:00:{:02x}:{:02x} pause", KEPT >> 8, KEPT & 0xFF);
    assert_eq!((found.coverage.pause_frames.len(), found.coverage.pause_frames.get(&last)), (usize::from(KEPT), None));
    assert_eq!(found.coverage.pause_frames_left_out, FRAMES);
    said(&found, "pause frames of senders beyond those that are told apart", FRAMES);
    let ran = ibscope(["health", path.to_str().expect("path")]);
    assert!(
        ran.stderr.contains("pause frames of senders beyond") && !ran.stdout.contains("nothing went wrong"),
        "{}",
        ran.stdout
    );
}

/// Interface statistics (type 5) with `isb_ifdrop` (5) of two packets each.
#[test]
fn interfaces_beyond_those_that_are_told_apart_are_counted_and_said() {
    /// `MAX_INTERFACES`.
    const KEPT: u32 = 1 << 12;
    let blocks = Blocks { big_endian: false };
    let mut wire = Wire::new();
    Queue::new(3, 4, 7).send(&mut wire, &[1; 64]);
    let packet = fs::read(wire.file()).expect("capture")[24 + 16..].to_vec();
    let mut file = blocks.section();
    for _ in 0..=KEPT {
        file.extend(blocks.interface(247, 0, &[]));
    }
    file.extend(blocks.packet(0, 1, &packet, packet.len() as u32));
    for interface in 0..=KEPT {
        let head = [interface, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
        let dropped = [&[5, 0, 8, 0][..], &2u64.to_le_bytes(), &[0; 4]].concat();
        file.extend(blocks.block(5, &[head, dropped].concat()));
    }
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("interfaces.pcapng");
    fs::write(&path, &file).expect("capture");
    let found = profile(&[path]);
    assert_eq!(found.coverage.interface_drops, 2 * u64::from(KEPT));
    assert_eq!(found.coverage.statistics_left_out, 1);
    said(&found, "statistics of interfaces beyond those that are told apart", 1);
}

/// Files of sources below a folder.
fn sources(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("folder") {
        let path = entry.expect("entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(fs::read_to_string(path).expect("source"));
        }
    }
}

/// Each constant that bounds what is kept of a capture has a row that says what happens beyond it.
#[test]
fn every_bound_stands_in_the_table_of_bounds() {
    let root = samples_folder().parent().expect("root").to_owned();
    let mut files = Vec::new();
    for folder in ["align", "decode", "flow", "model", "pipeline", "ranks", "reduce"] {
        sources(&root.join("src").join(folder), &mut files);
    }
    let is_bound = |name: &&str| ["MAX_", "MOST_"].iter().any(|start| name.starts_with(start));
    let named =
        files.iter().flat_map(|file| file.lines()).filter_map(|line| line.split_once("const ")?.1.split_once(": "));
    let bounds: BTreeSet<&str> = named.map(|(name, _)| name).filter(is_bound).collect();
    let text = fs::read_to_string(root.join("docs/bounds.md")).expect("docs/bounds.md");
    let cells = text.lines().filter(|line| line.starts_with("| `")).filter_map(|line| line.split('|').nth(1));
    let listed: BTreeSet<&str> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).filter(is_bound).collect();
    assert!(bounds.len() > 50, "{bounds:?}");
    assert_eq!(bounds, listed);
}
