//! Traces that the tests write, for cases without a recorded run. The captures that the traces are
//! compared with are recorded.

use super::{Description, RecordedSend, noted_sends, read, with_captures, with_profile};
use crate::runs::{self, RecordedRun, decompressed, is_roce};
use crate::tools::{ProgramResult, ibscope, random, walk};
use ibscope::crosscheck::{CrosscheckError, CrosscheckVerdict, MessageSums, OneSidedPair, OneSidedResult};
use ibscope::pipeline::{AnalysisOptions, analyze, messages};
use ibscope_parsers::frame::LinkType;
use ibscope_parsers::ib::crc::icrc;
use ibscope_parsers::link::{LinkContent, locate};
use serde_json::json;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Four ranks on four nodes without a tracer: the wire has the program's messages only.
fn untraced() -> RecordedRun {
    runs::named("ompi-rc-notrace-mixed-4x1")
}

/// An archive of the sends that the program recorded.
fn archive(folder: &Path, sends: &[RecordedSend], threads: u32) -> std::path::PathBuf {
    let mut description = Description::new(4, threads);
    description.sends(sends);
    description.write(folder)
}

fn crosscheck(run: &RecordedRun, archive: &Path, more: &[&str]) -> ProgramResult {
    let captures = run.every_node();
    let arguments = [OsStr::new("crosscheck")].into_iter().chain(captures.iter().map(|path| path.as_os_str()));
    ibscope(arguments.chain([archive.as_os_str()]).chain(more.iter().map(OsStr::new)))
}

/// Index of a send between different nodes, which is on the wire.
fn between(sends: &[RecordedSend]) -> usize {
    sends.iter().position(|(_, src, dst, _, bytes)| src != dst && *bytes > 0).expect("a send")
}

#[test]
fn several_threads_of_a_rank_are_one_rank() {
    let (run, folder) = (untraced(), tempfile::tempdir().expect("folder"));
    let sends = noted_sends(&run);
    let trace = read(&archive(folder.path(), &sends, 3));
    let result = with_captures(&trace, &run.every_node());
    assert_eq!(result.pairs.len(), 12);
    for pair in &result.pairs {
        assert_eq!((pair.verdict, pair.excess()), (CrosscheckVerdict::Equal, (0, 0)), "{pair:?}");
    }
    assert_eq!(trace.ranks.len(), 4);
    // The archive's times are those of the nodes' clocks, from the first send on. Without receives,
    // the shortest delay shows the clock.
    let first_ns = sends.iter().map(|send| send.0).min().expect("a send");
    for clock in &result.clocks.ranks {
        assert!((clock.offset_ns - first_ns).abs() < 1_500_000, "{clock:?}, not {first_ns}");
    }
    assert_eq!(result.clocks.ranks.len(), 4);
}

/// Ranks 0 and 2 on one side, 3 and 1 on the other: a peer is an index in the other group. Two
/// threads of a rank send and receive in turn.
#[test]
fn intercommunicators_and_threads_count_right() {
    let (run, folder) = (untraced(), tempfile::tempdir().expect("folder"));
    let groups: [[u32; 2]; 2] = [[0, 2], [3, 1]];
    let mut description = Description::new(4, 2);
    description.communicators.push(json!({ "name": "between \"the two\" <7>", "groups": groups }));
    let side = |rank: &u32| usize::from(!groups[0].contains(rank));
    for (index, (time_ns, src, dst, tag, bytes)) in (0_u64..).zip(noted_sends(&run)) {
        let place = |of: u32| groups[side(&of)].iter().position(|rank| *rank == of).expect("a member");
        // Messages between the sides use the intercommunicator.
        let is_between = side(&src) != side(&dst);
        let (communicator, sender, receiver) =
            if is_between { (1, place(src), place(dst)) } else { (0, src as usize, dst as usize) };
        let (send, receive) = if index % 2 == 0 { ("send", "recv") } else { ("isend", "irecv") };
        description.events.push(json!([src, index % 2, send, time_ns, receiver, communicator, tag, bytes]));
        let later_ns = time_ns + 3_000_000_000;
        description.events.push(json!([dst, (index + 1) % 2, receive, later_ns, sender, communicator, tag, bytes]));
    }
    let trace = read(&description.write(folder.path()));
    assert_eq!((trace.sends.total().messages, trace.ranks.len()), (noted_sends(&run).len() as u64, 4));
    assert_eq!(trace.sends.total(), trace.receives.total());
    let result = with_captures(&trace, &run.every_node());
    let truth = run.truth("truth.csv").expect("truth");
    let found =
        result.pairs.iter().map(|pair| ((pair.src, pair.dst), (pair.trace.messages, pair.trace.bytes))).collect();
    assert_eq!(truth, found);
    for pair in result.pairs.iter().filter(|pair| pair.src != pair.dst) {
        assert_eq!((pair.verdict, pair.excess()), (CrosscheckVerdict::Equal, (0, 0)), "{pair:?}");
    }
}

/// The clock of rank 1 is 5 ms ahead and gains 50 millionths. Calls begin 5 to 30 us before their
/// messages are on the wire, and end as long after.
#[test]
fn a_skewed_clock_is_found_within_the_stated_error() {
    const AHEAD_NS: i64 = 5_000_000;
    const GAIN_PPM: i64 = 50;
    let run = runs::named("ompi-openib-bt.S-4x1");
    let options = AnalysisOptions { bin_ns: None, ..AnalysisOptions::default() };
    let captures = run.every_node();
    let rows = messages(&captures, &options, false, &|_| {}).expect("messages").map(|row| row.expect("row"));
    let rows: Vec<_> = rows.filter(|row| row.identity().is_some_and(|identity| !identity.collective)).collect();
    let first_ns = rows.iter().map(|row| row.raw.times_ns.0).min().expect("a message");
    let last_ns = rows.iter().map(|row| row.raw.times_ns.1).max().expect("a message");
    let shown_ns = |rank: u32, time_ns: i64| {
        let since_ns = time_ns - first_ns + 1_000_000_000;
        if rank == 1 { since_ns + AHEAD_NS + since_ns * GAIN_PPM / 1_000_000 } else { since_ns }
    };
    let mut random = random(8);
    let mut late_ns = || 5_000 + random(25_000) as i64;
    let mut description = Description::new(4, 1);
    for row in &rows {
        let (src, dst) = (row.src_rank.expect("sender"), row.dst_rank.expect("receiver"));
        let (tag, bytes) = (row.identity().expect("MPI").tag, row.mpi_bytes().expect("length"));
        let (began_ns, ended_ns) = (row.raw.times_ns.0 - late_ns(), row.raw.times_ns.1 + late_ns());
        description.events.push(json!([src, 0, "send", shown_ns(src, began_ns), dst, 0, tag, bytes]));
        description.events.push(json!([dst, 0, "recv", shown_ns(dst, ended_ns), src, 0, tag, bytes]));
    }
    let folder = tempfile::tempdir().expect("folder");
    let trace = read(&description.write(folder.path()));
    let starts_ns = description.events.iter().map(|event| event[3].as_i64().expect("time")).min().expect("an event");
    let result = with_captures(&trace, &captures);
    assert_eq!(result.clocks.ranks.len(), 4);
    for clock in &result.clocks.ranks {
        let known_ns = clock.uncertainty_ns.expect("both sides") as f64;
        // A message is on the wire within 30 us of both calls, so a clock is known better than
        // that.
        assert!(known_ns <= 30_000.0 && !clock.is_uneven, "{clock:?}");
        for time_ns in [first_ns, first_ns.midpoint(last_ns), last_ns] {
            // Times of an archive are relative to its first event.
            let shown = (shown_ns(clock.rank, time_ns) - starts_ns) as f64;
            let fitted = shown * (1.0 + clock.drift_ppm / 1e6);
            let wrong_ns = fitted - (time_ns - clock.offset_ns) as f64;
            assert!(wrong_ns.abs() <= known_ns + 1.0, "{clock:?}: {wrong_ns} ns at {time_ns}");
        }
        let expected_ppm = if clock.rank == 1 { -(GAIN_PPM as f64) } else { 0.0 };
        let most_ppm = 2.0 * known_ns / (last_ns - first_ns) as f64 * 1e6;
        assert!((clock.drift_ppm - expected_ppm).abs() <= most_ppm, "{clock:?}: within {most_ppm}");
        assert!(most_ppm < GAIN_PPM as f64 / 2.0, "the run is long enough to show the rate: {most_ppm}");
    }
    let delays = result.clocks.send_to_wire.expect("messages");
    assert!(delays.min_ns >= -1 && (1..60_000).contains(&delays.median_ns), "{delays:?}");
    assert!(result.clocks.all_messages_matched);
}

#[test]
fn one_changed_byte_count_is_found_and_named() {
    let (run, folder) = (untraced(), tempfile::tempdir().expect("folder"));
    let mut sends = noted_sends(&run);
    let at = between(&sends);
    sends[at].4 += 1;
    let (_, src, dst, tag, _) = sends[at];
    let ran = crosscheck(&run, &archive(folder.path(), &sends, 1), &[]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    assert!(ran.stdout.contains("DIFFER"), "{}", ran.stdout);
    let named = format!("rank {src} to {dst}, tag {tag} over MPI_COMM_WORLD (context 0 on the wire): the trace has");
    assert!(ran.stdout.contains(&named), "{named}: {}", ran.stdout);
    assert_eq!(ran.stdout.matches("unexplained").count(), 2, "in the counts and at the pair: {}", ran.stdout);
}

#[test]
fn one_dropped_event_is_found_and_named() {
    let (run, folder) = (untraced(), tempfile::tempdir().expect("folder"));
    let mut sends = noted_sends(&run);
    let (_, src, dst, tag, bytes) = sends.remove(between(&sends));
    let path = archive(folder.path(), &sends, 1);
    let ran = crosscheck(&run, &path, &["--format", "json"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).expect("json");
    assert_eq!(json["agrees"], false);
    let pairs = json["pairs"].as_array().expect("pairs");
    let bad: Vec<&serde_json::Value> = pairs.iter().filter(|pair| pair["verdict"] != "equal").collect();
    assert_eq!(bad.len(), 1, "{bad:?}");
    assert_eq!((&bad[0]["src"], &bad[0]["dst"]), (&json!(src), &json!(dst)));
    let differences = json["differences"].as_array().expect("differences");
    assert_eq!(differences.len(), 1);
    let of = |column: &str| differences[0][column].as_u64().expect("number");
    let ends = (&differences[0]["src"], &differences[0]["dst"]);
    assert_eq!((ends, &differences[0]["tag"]), ((&json!(src), &json!(dst)), &json!(tag)));
    assert_eq!((of("wire_messages") - of("trace_messages"), of("wire_mpi_bytes") - of("trace_bytes")), (1, bytes));
    // One message is less than two percent of the messages of the run, but more than two percent of
    // the messages of its pair.
    let ran = crosscheck(&run, &path, &["--tolerance", "100"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("1 tolerated"), "{}", ran.stdout);
}

#[test]
fn messages_before_the_capture_began_are_explained() {
    let run = runs::named("ompi-rc-ring2");
    let path = super::archive(&run).expect("archive");
    let captures = run.every_node();
    let whole = with_captures(&read(&path), &captures);
    // In the middle of the program's messages, by the clock of rank 0.
    let profile = analyze(&captures, &AnalysisOptions::default(), &|_| {}).expect("profile");
    let start_ns = profile.coverage.first_time_ns.expect("time");
    let sends: Vec<i64> = noted_sends(&run).into_iter().map(|send| send.0).collect();
    let middle_ns = sends[sends.len() / 2];
    let late = format!("{}", (middle_ns - start_ns) as f64 / 1e9);
    for option in ["--from", "--to"] {
        let ran = crosscheck(&run, &path, &[option, &late[..late.len().min(11)]]);
        assert_eq!(ran.code, 0, "{option} {late}: {} {}", ran.stdout, ran.stderr);
        assert!(ran.stdout.contains("before or after the capture"), "{}", ran.stdout);
        assert!(!ran.stdout.contains("unexplained"), "{}", ran.stdout);
    }
    assert!(whole.pairs.iter().all(|pair| pair.missing == MessageSums::default()));
}

#[test]
fn traces_without_point_to_point_events_are_not_differences() {
    let (run, folder) = (untraced(), tempfile::tempdir().expect("folder"));
    let mut description = Description::new(4, 1);
    description.creator = "Score-P 8.4";
    for rank in 0..4 {
        description.events.push(json!([rank, 0, "work", 100]));
        description.events.push(json!([rank, 0, "collective", 200, "BARRIER", 0, null, 0, 0]));
    }
    let path = description.write(folder.path());
    let ran = crosscheck(&run, &path, &[]);
    assert_eq!(ran.code, 1, "{}", ran.stdout);
    assert!(
        ran.stderr.contains("the trace contains no point-to-point messages, but the wire carried 120 of the program"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("SCOREP_MPI_ENABLE_GROUPS"), "{}", ran.stderr);
    assert_eq!(ran.stdout, "");
    let ran = crosscheck(&run, &path, &["--collectives-only"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("barrier"), "{}", ran.stdout);
}

#[test]
fn one_sided_operations_and_messages_to_oneself_are_read() {
    let (run, folder) = (untraced(), tempfile::tempdir().expect("folder"));
    let mut description = Description::new(4, 1);
    description.communicators.push(json!({ "name": "my \"own\" <1>, Tag: 5", "members": null }));
    description.communicators.push(json!({ "name": "", "members": [3, 1] }));
    description.sends(&noted_sends(&run));
    let end = 1_900_000_000_000_000_000_i64;
    for (index, event) in [
        json!([0, 0, "put", end, 1, 4096]),
        json!([0, 0, "put", end, 1, 4]),
        json!([0, 0, "get", end, 2, 100]),
        json!([3, 0, "atomic", end, 0, 8, 16]),
        json!([2, 0, "send", end, 0, 1, 7, 1000]),
        json!([1, 0, "isend", end, 1, 2, 7, 0]),
        json!([2, 0, "flush", end]),
    ]
    .into_iter()
    .enumerate()
    {
        assert!(index < 7);
        description.events.push(event);
    }
    let trace = read(&description.write(folder.path()));
    let sums = |messages, bytes| MessageSums { messages, bytes };
    let expected = [((0, 1), sums(2, 4100)), ((2, 0), sums(1, 100)), ((3, 0), sums(1, 8)), ((0, 3), sums(1, 16))];
    assert_eq!(trace.rma, expected.into());
    let profile = analyze(&run.every_node(), &AnalysisOptions::default(), &|_| {}).expect("profile");
    let result = with_profile(&trace, &profile).expect("compared");
    let own = result.pairs.iter().find(|pair| (pair.src, pair.dst) == (2, 2)).expect("rank 2 to itself");
    assert_eq!((own.trace, own.verdict), (sums(1, 1000), CrosscheckVerdict::Explained));
    // On the communicator of ranks 3 and 1, its rank 1 is world rank 1: a message to itself.
    let own = result.pairs.iter().find(|pair| (pair.src, pair.dst) == (1, 1)).expect("rank 1 to itself");
    assert_eq!((own.trace, own.verdict), (sums(1, 0), CrosscheckVerdict::Explained));
    assert_eq!(result.one_sided.len(), 4);
    assert!(result.notes.iter().any(|note| note.contains("flushed its buffers 1 time during")), "{:?}", result.notes);
}

/// A recorded capture followed by RDMA, on a connection from node 1 to node 2: WRITEs of these
/// lengths, and READ requests.
fn with_rdma(run: &RecordedRun, folder: &Path, writes: &[u32], reads: &[u32]) -> PathBuf {
    let file = decompressed(&run.node(1));
    let records = walk(&file);
    let is_send = |frame: &[u8]| is_roce(frame) && frame[29] == 1 && frame[33] == 2 && frame[42] == 0x04;
    let last = records.iter().rev().find(|raw| is_send(raw.data(&file))).expect("a SEND from node 1 to node 2");
    let template = last.data(&file)[..54].to_vec();
    let end_ns = records.last().expect("a record").time_ns;
    // After all PSNs in flight.
    let first_psn = u32::from_be_bytes([0, template[51], template[52], template[53]]) + 1000;
    let mut bytes = file.clone();
    let operations = writes.iter().map(|length| (0x0A, *length)).chain(reads.iter().map(|length| (0x0C, *length)));
    for (index, (opcode, length)) in (1..).zip(operations) {
        let mut frame = template.clone();
        let data_bytes = if opcode == 0x0A { length as usize } else { 0 };
        let pad = data_bytes.next_multiple_of(4) - data_bytes;
        (frame[42], frame[43]) = (opcode, frame[43] & 0b1100_1111 | (pad as u8) << 4);
        frame[51..54].copy_from_slice(&((first_psn + index) & 0xFF_FFFF).to_be_bytes()[1..]);
        // RETH: address, key, length.
        frame.extend([&0x7000_0000_u64.to_be_bytes()[..], &9_u32.to_be_bytes(), &length.to_be_bytes()].concat());
        frame.resize(frame.len() + data_bytes + pad, 0x5A);
        let (ip, udp) = (frame.len() - 14 + 4, frame.len() - 34 + 4);
        frame[16..18].copy_from_slice(&(ip as u16).to_be_bytes());
        frame[38..40].copy_from_slice(&(udp as u16).to_be_bytes());
        frame.extend([0; 4]);
        let Ok(LinkContent::Infiniband(location)) = locate(LinkType::ETHERNET, &frame, frame.len() as u32) else {
            panic!("{frame:02x?}")
        };
        let sum = icrc(location.encapsulation, &frame, &location).expect("a whole packet");
        let at = frame.len() - 4;
        frame[at..].copy_from_slice(&sum.to_le_bytes());
        let time_ns = end_ns + i64::from(index) * 1_000_000;
        for word in
            [(time_ns / 1_000_000_000) as u32, (time_ns % 1_000_000_000) as u32, frame.len() as u32, frame.len() as u32]
        {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(frame);
    }
    let path = folder.join("rdma.pcap");
    std::fs::write(&path, bytes).expect("written");
    path
}

#[test]
fn one_sided_operations_are_compared_with_rdma() {
    let (run, folder) = (untraced(), tempfile::tempdir().expect("folder"));
    let capture = with_rdma(&run, folder.path(), &[4096, 100, 3], &[3000]);
    let mut description = Description::new(4, 1);
    description.ranks[3]["host"] = json!("node3");
    description.sends(&noted_sends(&run));
    let end = 1_900_000_000_000_000_000_i64;
    // From 0 to 1 the WRITEs and 7 bytes more; from 1 to 0 the READs; from 0 to 2 no RDMA; 2 and 3
    // are on one node.
    for event in [
        json!([0, 0, "put", end, 1, 4096]),
        json!([0, 0, "put", end, 1, 110]),
        json!([0, 0, "get", end, 1, 3000]),
        json!([0, 0, "put", end, 2, 64]),
        json!([2, 0, "put", end, 3, 8]),
    ] {
        description.events.push(event);
    }
    let archive = description.write(folder.path());
    let trace = read(&archive);
    let sums = |messages, bytes| MessageSums { messages, bytes };
    let row = |src, dst, trace, wire, result| OneSidedPair { src, dst, trace, wire, result };
    let expected = vec![
        row(0, 1, sums(2, 4206), Some(sums(3, 4199)), OneSidedResult::Fewer),
        row(0, 2, sums(1, 64), Some(sums(0, 0)), OneSidedResult::Fewer),
        row(1, 0, sums(1, 3000), Some(sums(1, 3000)), OneSidedResult::Equal),
        row(2, 3, sums(1, 8), Some(sums(0, 0)), OneSidedResult::SameNode),
    ];
    assert_eq!(with_captures(&trace, std::slice::from_ref(&capture)).one_sided, expected);
    // A profile has no individual operations, so pairs on different nodes are not compared.
    let profile = analyze(&[capture], &AnalysisOptions::default(), &|_| {}).expect("profile");
    let rows = with_profile(&trace, &profile).expect("compared").one_sided;
    let results: Vec<OneSidedResult> = rows.iter().map(|row| row.result).collect();
    let [no, same] = [OneSidedResult::NotCompared, OneSidedResult::SameNode];
    assert_eq!(results, [no, no, no, same]);
    assert!(rows.iter().all(|row| row.wire.is_none()));
}

/// Score-P's own messages use a communicator that is not in its trace. Messages of a program over
/// such a communicator are not Score-P's.
#[test]
fn program_messages_are_not_taken_for_the_tracers() {
    let run = runs::named("scorep-ompi-rc-halo-4x1");
    let trace = read(&super::archive(&run).expect("archive"));
    let profile = analyze(&run.every_node(), &AnalysisOptions::default(), &|_| {}).expect("profile");
    let whole = with_profile(&trace, &profile).expect("compared");
    assert!(whole.pairs.iter().all(|pair| pair.verdict != CrosscheckVerdict::Unexplained));
    let folder = tempfile::tempdir().expect("folder");
    // The same run, with a trace that has one message on `MPI_COMM_WORLD` and not its Cartesian
    // communicator.
    let mut description = Description::new(4, 1);
    description.creator = "Score-P 8.4";
    description.sends(&[(1_000, 0, 1, 99, 5)]);
    let result = with_profile(&read(&description.write(folder.path())), &profile);
    let unexplained: u64 = result.map_or(0, |result| {
        result
            .pairs
            .iter()
            .filter(|pair| pair.verdict == CrosscheckVerdict::Unexplained)
            .map(|pair| pair.wire.messages - pair.tracer.messages)
            .sum()
    });
    // 4 x 80 messages of the halo exchange, tags 0 to 3.
    assert_eq!(unexplained, 320);
}

#[test]
fn a_trace_of_another_run_is_rejected() {
    let (run, folder) = (untraced(), tempfile::tempdir().expect("folder"));
    let mut description = Description::new(8, 1);
    description.sends(&[(0, 4, 5, 1, 100), (10, 6, 7, 1, 100)]);
    let profile = analyze(&run.every_node(), &AnalysisOptions::default(), &|_| {}).expect("profile");
    let refused = with_profile(&read(&description.write(folder.path())), &profile).expect_err("nothing in common");
    assert!(matches!(refused, CrosscheckError::NothingInCommon { in_trace: 2, on_wire: 120 }), "{refused}");
}
