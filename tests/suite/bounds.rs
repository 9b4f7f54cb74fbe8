//! Bounds on memory: everything beyond a bound is counted, and every command that shows affected
//! numbers prints a note.

use crate::health::without;
use crate::runs;
use crate::runs::decompressed;
use crate::tools::{Blocks, ibscope, sample, samples_folder};
use crate::wire::{WireBuilder, WireQueuePair, profile};
use ibscope::model::profile::CoverageState;
use ibscope::model::{Profile, TrafficKind};
use ibscope::pipeline::{AnalysisLimits, AnalysisMeasures, AnalysisOptions, analyze};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The note on a message that was evicted.
const EVICTED: &str =
    "messages that ibscope stopped tracking before their end, because too many were incomplete at a time: 1. ";

/// Asserts a note on left-out data: the subject, then the count.
fn assert_note(profile: &Profile, what: &str, count: u64) {
    let expected = format!("{what}: {count}. ");
    assert!(profile.notes.iter().any(|note| note.starts_with(&expected)), "{expected}: {:?}", profile.notes);
}

/// Each packet has its own connection. For some of the limits, the connections of the first batches
/// (of 1 MiB) are exactly as many as the limit, and those of later batches exceed it.
#[test]
fn no_batch_exceeds_the_limit_of_connections() {
    const PACKETS: u32 = 6000;
    let mut wire = WireBuilder::new();
    for qpn in 0..PACKETS {
        let (mut there, _) = WireQueuePair::pair((3, 0x100 + qpn), (4, 0x10_0000 + qpn));
        there.send(&mut wire, &[1; 1024]);
    }
    let path = [wire.file()];
    let limited = |max_connections: usize| {
        let options = AnalysisOptions {
            limits: AnalysisLimits { max_connections, ..AnalysisLimits::default() },
            threads: 1,
            bin_ns: None,
            measures: AnalysisMeasures { times: false, sizes: false, ..AnalysisMeasures::default() },
            ..AnalysisOptions::default()
        };
        let found = analyze(&path, &options, &|_| {}).expect("analysis");
        (found.connections.len(), found.coverage.untracked_packets)
    };
    let record_bytes = fs::metadata(&path[0]).expect("file").len() as usize / PACKETS as usize;
    // Batches of the first 4 MiB end within a few records of these numbers.
    for batches in 1..=4 {
        let per_batches = batches * (1 << 20) / record_bytes;
        for limit in per_batches - 3..=per_batches + 3 {
            assert_eq!(limited(limit), (limit, u64::from(PACKETS) - limit as u64));
        }
    }
}

/// Queue pairs between two LIDs are in one shard; the limit covers all shards together.
#[test]
fn connections_between_two_ports_fill_the_limit() {
    const QUEUE_PAIRS: u32 = 100;
    let mut wire = WireBuilder::new();
    for qpn in 0..QUEUE_PAIRS {
        let (mut there, mut back) = WireQueuePair::pair((3, 0x100 + qpn), (4, 0x200 + qpn));
        there.send(&mut wire, &[1; 64]);
        back.ack(&mut wire, &there);
    }
    let path = [wire.file()];
    let limited = |max_connections: usize, threads: usize| {
        let limits = AnalysisLimits { max_connections, ..AnalysisLimits::default() };
        let options = AnalysisOptions { limits, threads, ..AnalysisOptions::default() };
        analyze(&path, &options, &|_| {}).expect("analysis")
    };
    // One connection per direction, of one packet each.
    let all = limited(2 * QUEUE_PAIRS as usize, 2);
    assert_eq!((all.connections.len(), all.coverage.untracked_packets), (2 * QUEUE_PAIRS as usize, 0));
    assert!(all.notes.iter().all(|note| !note.contains("--max-connections")), "{:?}", all.notes);
    let some = limited(2 * QUEUE_PAIRS as usize - 1, 2);
    assert_eq!((some.connections.len(), some.coverage.untracked_packets), (2 * QUEUE_PAIRS as usize - 1, 1));
    assert_eq!(some, limited(2 * QUEUE_PAIRS as usize - 1, 1));
    assert_note(&some, "packets of connections beyond --max-connections 199", 1);
    assert!(some.connections.iter().all(|row| row.coverage.state == CoverageState::Unknown));
    // The last connection to start.
    let last = all.connections.iter().max_by_key(|row| row.first_time_ns).expect("a connection");
    assert!(some.connections.iter().all(|row| (row.src, row.dest_qp) != (last.src, last.dest_qp)));
}

#[test]
fn every_command_notes_untracked_connections() {
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
        let text = [ran.stdout, ran.stderr].concat().replace('\n', " ");
        assert!(text.contains(expected) || arguments[0] == "report", "{arguments:?}: {text}");
    }
    assert!(fs::read_to_string(&page).expect("page").contains(expected));
    for command in ["summary", "matrix", "timeline", "ranks", "collectives", "health", "latency", "rates", "phases"] {
        let ran = ibscope([command, &profile]);
        let text = [ran.stdout, ran.stderr].concat();
        // The summary has the note, every other command one line that points to it.
        let pointer = format!("`ibscope summary {profile}` shows ");
        assert_eq!(text.contains("--max-connections 2: "), command == "summary", "{command}: {text}");
        assert_eq!(text.contains(&pointer), command != "summary", "{command}: {text}");
    }
}

#[test]
fn library_connection_messages_beyond_the_bound_are_counted_in_a_note() {
    /// `MAX_WIREUPS`.
    const KEPT: u32 = 1 << 16;
    let mut wire = WireBuilder::new();
    let mut queue = WireQueuePair::new(3, 4, 0x41);
    // As in `constructed::udcm_gives_ranks_and_queue_pairs`: the sender's rank, and one queue pair.
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
    assert_eq!(found.coverage.connection_messages_left_out, 1);
    assert_note(&found, "wire-up and connection messages that were counted but not stored", 1);
}

#[test]
fn cm_messages_beyond_the_bound_are_counted_in_a_note() {
    /// `MAX_CM`.
    const KEPT: usize = 1 << 16;
    let mut wire = WireBuilder::new();
    let mut queue = WireQueuePair::new(3, 4, 1);
    // `ReadyToUse`: base version 1, class 7, class version 2, `Send()`, attribute 0x14 (InfiniBand
    // Architecture, 12.6).
    let mut payload = vec![0; 256];
    payload[..4].copy_from_slice(&[1, 7, 2, 3]);
    payload[17] = 0x14;
    for _ in 0..=KEPT {
        queue.datagram(&mut wire, 0x8001_0000, 1, &payload);
    }
    let found = profile(&[wire.file()]);
    assert_eq!(found.coverage.management, KEPT as u64 + 1);
    assert!(found.connections.iter().all(|row| row.kind == TrafficKind::Management));
    assert_note(&found, "connection management messages that were counted but not stored", 1);
}

/// Senders beyond the bound, with three frames each.
#[test]
fn pause_senders_beyond_the_bound_are_counted_in_a_note() {
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
    assert_note(&found, "pause frames of senders over the limit", FRAMES);
    let ran = ibscope(["health", path.to_str().expect("path")]);
    assert!(
        ran.stderr.contains("pause frames of senders over the limit")
            && !ran.stdout.contains("the packets show no problem"),
        "{}",
        ran.stdout
    );
}

/// Interface statistics (type 5) with `isb_ifdrop` (5) of two packets each.
#[test]
fn interfaces_beyond_the_bound_are_counted_in_a_note() {
    /// `MAX_INTERFACES`.
    const KEPT: u32 = 1 << 12;
    let blocks = Blocks { big_endian: false };
    let mut wire = WireBuilder::new();
    WireQueuePair::new(3, 4, 7).send(&mut wire, &[1; 64]);
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
    assert_note(&found, "statistics of interfaces over the limit", 1);
}

/// Payload that matches no library: no two equal bytes in a row, and no small ones.
fn data(length_bytes: usize) -> Vec<u8> {
    (0..length_bytes).map(|at| (at * 37 + 0x8B) as u8 | 0x80).collect()
}

/// An Open MPI tag on `MPI_COMM_WORLD`: tag 63-40, rank 39-20, context 19-0.
fn open_mpi_tag(rank: u64, tag: u64) -> [u8; 8] {
    (tag << 40 | rank << 20).to_le_bytes()
}

/// UCX, active message 2: {tag, data}.
fn eager(rank: u64, tag: u64) -> Vec<u8> {
    [&[2][..], &open_mpi_tag(rank, tag), &data(40)].concat()
}

/// UCX, active message 9: {tag, endpoint id, request id, address, size, opcode u8}, then a packed
/// key.
fn ready_to_send(rank: u64, request: u64) -> Vec<u8> {
    let words = [0x7F00_0000_1230u64, request, 0x7F12_3456_0000, 100_000].map(u64::to_le_bytes);
    [&[9][..], &open_mpi_tag(rank, 5), words.as_flattened(), &[0, 0x10, 0, 0, 0, 9, 0x45, 0x23, 1, 0]].concat()
}

/// Eager messages in both directions, which identify ranks 0 and 1.
fn greet(wire: &mut WireBuilder, there: &mut WireQueuePair, back: &mut WireQueuePair) {
    for _ in 0..5 {
        there.send(wire, &eager(0, 3));
        back.ack(wire, there);
        back.send(wire, &eager(1, 3));
        there.ack(wire, back);
    }
}

/// Standard output and error of a command, on one line.
fn output(arguments: &[&str]) -> String {
    let ran = ibscope(arguments);
    assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.stderr);
    [ran.stdout, ran.stderr].concat().replace('\n', " ")
}

/// Rendezvous requests that are never continued.
#[test]
fn dropped_messages_are_noted_beside_single_messages() {
    /// `MAX_OPEN`.
    const KEPT: u64 = 1 << 12;
    let folder = tempfile::tempdir().expect("folder");
    let trace = folder.path().join("trace.json");
    for (open, evicted) in [(KEPT, false), (KEPT + 1, true)] {
        let mut wire = WireBuilder::new();
        let (mut there, mut back) = WireQueuePair::pair((0x11, 0x100), (0x12, 0x200));
        greet(&mut wire, &mut there, &mut back);
        for request in 0..open {
            there.send(&mut wire, &ready_to_send(0, 0x4000 + request));
        }
        back.ack(&mut wire, &there);
        let capture = wire.file();
        let capture = capture.to_str().expect("path");
        let messages = ["messages", "--format", "csv", capture];
        for arguments in [&messages[..], &["trace", "-o", trace.to_str().expect("path"), capture]] {
            let text = output(arguments);
            assert_eq!(text.contains(EVICTED), evicted, "{arguments:?}: {}", &text[text.len().saturating_sub(2000)..]);
        }
        let lines = ibscope(messages).stdout.lines().count() as u64;
        // The header, and ten eager messages.
        assert_eq!(lines, 1 + 10 + open);
    }
}

/// Each message has two packets; the capture is missing the second one.
#[test]
fn every_command_notes_dropped_messages_with_gaps() {
    /// `MAX_RUNS` of `flow/assembly.rs`.
    const KEPT: usize = 32;
    let folder = tempfile::tempdir().expect("folder");
    let (capture, place) = (folder.path().join("holes.pcap"), folder.path().join("holes.ibp"));
    let (capture, place) = (capture.to_str().expect("path"), place.to_str().expect("path"));
    for (open, evicted) in [(KEPT, false), (KEPT + 1, true)] {
        let mut wire = WireBuilder::new();
        let (mut there, mut back) = WireQueuePair::pair((3, 0x100), (4, 0x200));
        (0..open).for_each(|_| there.send(&mut wire, &data(5000)));
        back.ack(&mut wire, &there);
        let file = fs::read(wire.file()).expect("capture");
        fs::write(capture, without(&file, &(0..open).map(|message| 2 * message + 1).collect())).expect("capture");
        assert_eq!(output(&["analyze", "-o", place, capture]).contains(EVICTED), evicted);
        for command in [&["summary"][..], &["matrix"], &["timeline"], &["health"]] {
            let pointer = format!("`ibscope summary {place}` shows ");
            let expected = if command == ["summary"] { EVICTED } else { &pointer };
            assert!(!evicted || output(&[command, &[place]].concat()).contains(expected), "{command:?}");
        }
        assert_eq!(output(&["summary", place]).contains(EVICTED), evicted);
    }
}

/// Connections whose messages match no library.
#[test]
fn unassigned_queue_pairs_beyond_the_bound_are_counted_in_a_note() {
    /// `MAX_UNASSIGNED`.
    const KEPT: u32 = 1 << 16;
    let mut wire = WireBuilder::new();
    // Tags at the ports show UCX, so that the control messages of the other queue pairs count as
    // UCX's.
    let mut first = WireQueuePair::new(3, 4, 0x100);
    (0..8).for_each(|_| first.send(&mut wire, &eager(0, 3)));
    (1..=KEPT).for_each(|qpn| WireQueuePair::new(3, 4, 0x100 + qpn).send(&mut wire, &[1; 8]));
    let measures = AnalysisMeasures { times: false, health: false, sizes: false, ..AnalysisMeasures::default() };
    let options = AnalysisOptions { measures, bin_ns: None, ..AnalysisOptions::default() };
    let found = analyze(&[wire.file()], &options, &|_| {}).expect("analysis");
    assert_eq!(found.unassigned.len(), KEPT as usize);
    let note = "65537 queue pairs have no rank; only the first 65536 are listed";
    assert!(found.notes.iter().any(|own| own == note), "{:?}", found.notes);
}

/// Jobs of two ranks, each at two ports of its own.
#[test]
fn with_too_many_jobs_to_compare_all_are_in_doubt() {
    /// `MAX_COMPARED`.
    const COMPARED: u16 = 1 << 10;
    let measures = AnalysisMeasures { times: false, ..AnalysisMeasures::default() };
    let options = AnalysisOptions { measures, bin_ns: None, ..AnalysisOptions::default() };
    for (jobs, state, is_noted) in [(3, "complete", false), (COMPARED + 1, "unknown", true)] {
        let mut wire = WireBuilder::new();
        for job in 0..jobs {
            let (mut there, mut back) = WireQueuePair::pair((0x10 + 2 * job, 0x100), (0x11 + 2 * job, 0x200));
            greet(&mut wire, &mut there, &mut back);
        }
        let found = analyze(&[wire.file()], &options, &|_| {}).expect("analysis");
        let states: BTreeSet<&str> = found.connections.iter().map(|row| row.coverage.state.name()).collect();
        assert_eq!((found.jobs.len(), states), (usize::from(jobs), BTreeSet::from([state])), "{:?}", found.notes);
        let note = "the same ranks appear at other ports at the same time";
        assert_eq!(found.notes.iter().any(|own| own.contains(note)), is_noted, "{:?}", found.notes);
    }
}

/// UCX messages whose PSNs start at 0, with a gap between the first and the last.
#[test]
fn a_psn_gap_beyond_the_bound_leaves_the_coverage_unknown() {
    /// `MAX_GAP`.
    const HOLE: u32 = 1 << 16;
    for (hole, expected) in [(HOLE, ("incomplete", u64::from(HOLE))), (HOLE + 1, ("unknown", 0))] {
        let mut wire = WireBuilder::new();
        let (mut there, mut back) = WireQueuePair::pair((0x11, 0x100), (0x12, 0x200));
        (0..10).for_each(|_| greet(&mut wire, &mut there, &mut back));
        there.psn += hole;
        (0..10).for_each(|_| greet(&mut wire, &mut there, &mut back));
        let found = profile(&[wire.file()]);
        let row = found.connections.iter().find(|row| row.dest_qp.value() == 0x200).expect("a connection");
        assert_eq!((row.coverage.state.name(), row.coverage.missing_packets), expected, "{:?}", found.notes);
    }
}

/// `ob1` {tag u8, 0, credits u16}, then type and flags, context u16 @6, rank u32 @8, tag i32 @12,
/// number u16 @16: one message on each communicator.
#[test]
fn too_many_communicators_leave_the_coverage_unknown() {
    /// `MAX_NUMBERED`.
    const KEPT: u16 = 64;
    let message = |rank: u8, context: u16, number: u16| {
        let mut payload = vec![0x41, 0, 0, 0, 0x41, 0];
        payload.extend(context.to_le_bytes());
        payload.extend([rank, 0, 0, 0, 7, 0, 0, 0]);
        payload.extend(number.to_le_bytes());
        [payload, data(40)].concat()
    };
    for (communicators, state) in [(KEPT, "complete"), (KEPT + 1, "unknown")] {
        let mut wire = WireBuilder::new();
        let (mut there, mut back) = WireQueuePair::pair((0x11, 0x100), (0x12, 0x200));
        let on_world = (1..=20).map(|number| (0, number));
        for (context, number) in on_world.chain((1..communicators).map(|context| (context, 1))) {
            there.send(&mut wire, &message(0, context, number));
            back.ack(&mut wire, &there);
            back.send(&mut wire, &message(1, context, number));
            there.ack(&mut wire, &back);
        }
        let found = profile(&[wire.file()]);
        let states: Vec<&str> = found.connections.iter().map(|row| row.coverage.state.name()).collect();
        assert_eq!(states, [state; 2], "{communicators}: {:?}", found.notes);
    }
}

/// Messages with a tag of their own each. Sums are complete; messages beyond the bound are in a
/// stream without tag.
#[test]
fn messages_with_tags_beyond_the_bound_count_without_tag() {
    /// `MAX_STREAMS_PER_CONNECTION`.
    const KEPT: u64 = 1 << 10;
    for tags in [KEPT, KEPT + 1] {
        let mut wire = WireBuilder::new();
        let (mut there, mut back) = WireQueuePair::pair((0x11, 0x100), (0x12, 0x200));
        greet(&mut wire, &mut there, &mut back);
        // The greeting is one stream.
        for tag in 1..tags {
            there.send(&mut wire, &eager(0, 100 + tag));
        }
        back.ack(&mut wire, &there);
        let found = profile(&[wire.file()]);
        let at = found.connections.iter().position(|row| row.dest_qp.value() == 0x200).expect("a connection") as u32;
        let own: Vec<_> = found.streams.iter().flatten().filter(|row| row.connection == at).collect();
        let unnamed: u64 = own.iter().filter(|row| row.envelope.is_none()).map(|row| row.sums.messages).sum();
        assert_eq!((own.len() as u64, unnamed), (tags, tags - KEPT));
        assert_eq!(own.iter().map(|row| row.sums.messages).sum::<u64>(), 5 + tags - 1);
        assert_eq!(found.connections[at as usize].traffic.p2p_messages, 5 + tags - 1);
    }
}

/// UCX datagrams to endpoints of one queue pair: number 1 of each.
#[test]
fn datagram_endpoints_beyond_the_bound_are_counted_in_a_note() {
    /// `MAX_UD_ENDPOINTS`.
    const KEPT: u32 = 16;
    for endpoints in [KEPT, KEPT + 1] {
        let mut wire = WireBuilder::new();
        let mut queue = WireQueuePair::new(3, 4, 0x41);
        for endpoint in 0..endpoints {
            let mut payload = (2 << 27 | 1 << 24 | endpoint).to_le_bytes().to_vec();
            payload.extend([1, 0, 0, 0]);
            payload.extend(open_mpi_tag(0, 3));
            payload.extend(data(40));
            queue.datagram(&mut wire, 0x1EE7_A330, 0x31, &payload);
        }
        let found = profile(&[wire.file()]);
        assert_eq!(found.coverage.window_overflows, u64::from(endpoints - KEPT));
        if endpoints > KEPT {
            assert_note(&found, "connections with more PSN gaps than ibscope tracks", 1);
        }
    }
}

/// Lost requests and responses of a capture with READs, according to its health table.
fn lost(wire: &mut WireBuilder) -> (u64, u64, u64, u64) {
    let health = crate::health::total(&profile(&[wire.file()])).0;
    (health.lost_requests, health.lost_responses, health.lost_at_least, health.lost_at_most)
}

/// READs of three responses, each followed by a SEND. Of every third READ the request is missing,
/// of the next one all responses.
#[test]
fn loss_is_exact_whenever_requests_and_responses_are_compared() {
    /// `MAX_EXPECTED_RANGES` and `MAX_FIRST_RESPONSES`: two of three READs have a request, and two
    /// of three a response.
    const BOUNDS: [usize; 2] = [128, 512];
    for count in BOUNDS.into_iter().flat_map(|bound| [bound * 3 / 2 - 2, bound * 3 / 2, bound * 3 / 2 + 2]) {
        let (mut wire, mut missing) = (WireBuilder::new(), WireBuilder::new());
        let (mut there, mut back) = WireQueuePair::pair((3, 0x11), (4, 0x22));
        (there.mtu_bytes, back.mtu_bytes) = (1024, 1024);
        there.send(&mut wire, &[1; 2000]);
        back.ack(&mut wire, &there);
        let mut expected = (0, 0);
        for number in 0..count {
            let (has_request, has_responses) = (number % 3 != 1, number % 3 != 2);
            there.read(if has_request { &mut wire } else { &mut missing }, 0x1000, 9, 3000);
            back.read_response(if has_responses { &mut wire } else { &mut missing }, &there, &[5; 3000]);
            expected = (expected.0 + u64::from(!has_request), expected.1 + 3 * u64::from(!has_responses));
            there.send(&mut wire, b"next");
            back.ack(&mut wire, &there);
        }
        let both = expected.0 + expected.1;
        assert_eq!(lost(&mut wire), (expected.0, expected.1, both, both), "{count} READs");
    }
}

/// READs of three responses, all in flight at once and each followed by a SEND, which no adapter
/// does. The responses of the first READ are missing.
#[test]
fn too_many_waiting_requests_widen_the_bounds_of_loss() {
    /// `MAX_EXPECTED_RANGES`: at this number, the oldest request is compared at once.
    const KEPT: usize = 128;
    for (reads, is_exact) in [(KEPT - 1, true), (KEPT, false)] {
        let mut wire = WireBuilder::new();
        let (mut there, mut back) = WireQueuePair::pair((3, 0x11), (4, 0x22));
        (there.mtu_bytes, back.mtu_bytes) = (1024, 1024);
        for _ in 0..20 {
            there.send(&mut wire, &[1; 2000]);
            back.ack(&mut wire, &there);
        }
        let mut reads_sent = Vec::new();
        for _ in 0..reads {
            there.read(&mut wire, 0x1000, 9, 3000);
            reads_sent.push(there.clone());
            there.send(&mut wire, b"next");
        }
        reads_sent[1..].iter().for_each(|request| back.read_response(&mut wire, request, &[5; 3000]));
        back.ack(&mut wire, &there);
        let (requests, responses, at_least, at_most) = lost(&mut wire);
        assert_eq!(requests, 0);
        if is_exact {
            assert_eq!((responses, at_least, at_most), (3, 3, 3));
        } else {
            assert!(responses <= 3 && at_least <= 3 && at_most > 3, "{responses}, {at_least} to {at_most}");
        }
    }
}

/// READs of eight responses before any packet shows the path MTU: unexpected PSNs are not lost
/// requests.
#[test]
fn too_many_reads_of_unknown_length_are_not_counted_as_loss() {
    /// `MAX_READS_OF_UNKNOWN_LENGTH`.
    const KEPT: usize = 64;
    for reads in [KEPT, KEPT + 1] {
        let mut wire = WireBuilder::new();
        let (mut there, mut back) = WireQueuePair::pair((3, 0x11), (4, 0x22));
        (there.mtu_bytes, back.mtu_bytes) = (1024, 1024);
        let mut reads_sent = Vec::new();
        for _ in 0..reads {
            there.read(&mut wire, 0x1000, 9, 8 * 1024);
            reads_sent.push(there.clone());
        }
        reads_sent.iter().for_each(|request| back.read_response(&mut wire, request, &[5; 8 * 1024]));
        there.send(&mut wire, b"last");
        back.ack(&mut wire, &there);
        let (requests, responses, at_least, at_most) = lost(&mut wire);
        assert_eq!((requests, responses, at_least), (0, 0, 0));
        // Beyond the bound one request may be missing; its state is unknown.
        assert_eq!(at_most, (reads - KEPT) as u64);
    }
}

/// Sources in a folder: path and text.
fn sources(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).expect("folder") {
        let path = entry.expect("entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&path).expect("source");
            found.push((path.to_str().expect("path").to_owned(), text));
        }
    }
}

/// The texts in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The rows of the tables of bounds, by column.
fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    rows.map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
}

/// Each constant that bounds memory has a row with the effect beyond it.
#[test]
fn the_table_of_bounds_has_every_bound() {
    let root = samples_folder().parent().expect("root").to_owned();
    let mut files = Vec::new();
    for folder in [
        "align",
        "analysis/collective_instances",
        "analysis/fabric_map",
        "analysis/waits",
        "analysis/nccl_collectives",
        "decode",
        "flow",
        "input",
        "model",
        "pipeline",
        "ranks",
        "reduce",
    ] {
        sources(&root.join("src").join(folder), &mut files);
    }
    let single = root.join("src/analysis/cluster_order.rs");
    files.push((single.to_str().expect("path").to_owned(), fs::read_to_string(&single).expect("source")));
    let is_bound = |name: &str| name.starts_with("MAX_");
    let mut bounds = BTreeSet::new();
    for (path, file) in &files {
        let place = path.rsplit_once("/src/").expect("a source").1;
        let named = file.lines().filter_map(|line| line.split_once("const ")?.1.split_once(": "));
        bounds.extend(named.map(|(name, _)| name).filter(|name| is_bound(name)).map(|name| (place, name)));
    }
    let text = fs::read_to_string(root.join("docs/bounds.md")).expect("docs/bounds.md");
    let mut listed = BTreeSet::new();
    for row in rows(&text) {
        let place = quoted(row[1]).next().unwrap_or_default();
        listed.extend(quoted(row[0]).filter(|name| is_bound(name)).map(|name| (place, name)));
    }
    assert!(bounds.len() > 60, "{bounds:?}");
    assert_eq!(bounds, listed);
}

/// Each row names existing tests, in the module that it names.
#[test]
fn every_test_that_the_table_of_bounds_names_exists() {
    let root = samples_folder().parent().expect("root").to_owned();
    let text = fs::read_to_string(root.join("docs/bounds.md")).expect("docs/bounds.md");
    let mut files = Vec::new();
    for folder in ["src", "tests/suite"] {
        sources(&root.join(folder), &mut files);
    }
    let mut count = 0;
    for row in rows(&text) {
        let tests: Vec<&str> = quoted(row[4]).collect();
        assert!(!tests.is_empty(), "no test: {row:?}");
        for test in tests {
            let (module, function) = test.rsplit_once("::").expect("a module");
            let module = module.trim_end_matches("::tests").replace("::", "/");
            let places = [format!("/{module}.rs"), format!("/{module}/mod.rs"), format!("/{module}/tests.rs")];
            let is_place = |path: &str| places.iter().any(|place| path.ends_with(place));
            let function = format!("fn {function}(");
            let found = files.iter().any(|(path, file)| is_place(path) && file.contains(&function));
            assert!(found, "docs/bounds.md names the test `{test}`, which does not exist");
            count += 1;
        }
    }
    assert!(count > 60, "{count}");
}
