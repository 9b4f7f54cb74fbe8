//! Partial captures of recorded runs: the first or the last records, or the first bytes of each
//! packet.

use crate::runs::{self, RecordedRun, decompressed, is_roce};
use crate::tools::{HEADER_BYTES, RawRecord, walk};
use crate::wire::{EndpointCells, by_rank, profile};
use ibscope::analysis::matrix::Selection;
use ibscope::model::profile::Traffic;
use ibscope::model::{Profile, RankIndex, TrafficKind};
use ibscope_parsers::Endpoint;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A parsed capture file in memory.
struct PartialCapture {
    bytes: Vec<u8>,
    records: Vec<RawRecord>,
}

impl PartialCapture {
    fn read(path: &Path) -> Self {
        let bytes = decompressed(path);
        let records = walk(&bytes);
        Self { bytes, records }
    }

    fn data(&self, record: usize) -> &[u8] {
        self.records[record].data(&self.bytes)
    }

    /// A range of the records, unchanged.
    fn part(&self, records: std::ops::Range<usize>) -> Vec<u8> {
        let mut part = self.bytes[..HEADER_BYTES].to_vec();
        self.records[records].iter().for_each(|record| part.extend(&self.bytes[record.place.clone()]));
        part
    }

    /// All records, truncated to `snap_bytes`; their original lengths stay.
    fn cut(&self, snap_bytes: usize) -> Vec<u8> {
        let mut cut = self.bytes[..HEADER_BYTES].to_vec();
        for record in &self.records {
            let data = record.data(&self.bytes);
            let kept = &data[..data.len().min(snap_bytes)];
            let head = &self.bytes[record.place.start..record.place.start + 8];
            cut.extend(head);
            cut.extend((kept.len() as u32).to_le_bytes());
            cut.extend(record.original_bytes.to_le_bytes());
            cut.extend(kept);
        }
        cut
    }
}

/// Analyzes captures in memory.
fn profile_of(files: &[Vec<u8>]) -> Profile {
    let folder = tempfile::tempdir().expect("folder");
    let paths: Vec<PathBuf> = (0..files.len()).map(|index| folder.path().join(format!("{index}.pcap"))).collect();
    paths.iter().zip(files).for_each(|(path, file)| std::fs::write(path, file).expect("written"));
    profile(&paths)
}

/// Packets, payload bytes and transport messages by pair of endpoints.
fn by_endpoint(profile: &Profile) -> BTreeMap<(Endpoint, Endpoint), [u64; 3]> {
    let mut cells: BTreeMap<_, [u64; 3]> = BTreeMap::new();
    for row in profile.connections.iter().filter(|row| row.kind == TrafficKind::Data) {
        let cell = cells.entry((row.src, row.dst)).or_default();
        let Traffic { packets, payload_bytes, messages, .. } = row.traffic;
        cell.iter_mut().zip([packets, payload_bytes, messages]).for_each(|(sum, value)| *sum += value);
    }
    cells
}

/// An InfiniBand packet of a sink, parsed by hand: ERF 16, LRH 8, BTH 12, extension headers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PartialPacket {
    src: u16,
    dst: u16,
    dest_qp: u32,
    psn: u32,
    opcode: u8,
}

const SEND_FIRST: u8 = 0x00;
const SEND_ONLY: u8 = 0x04;
const SEND_ONLY_IMMEDIATE: u8 = 0x05;
const WRITE_FIRST: u8 = 0x06;
const WRITE_ONLY: u8 = 0x0A;
const DATAGRAM: u8 = 0x64;
/// Opcodes of the last packets of SENDs and WRITEs, with and without immediate data.
const LAST: [u8; 4] = [0x02, 0x03, 0x08, 0x09];

/// The packet in a sink's record, and the offset of its payload.
fn packet(data: &[u8]) -> (PartialPacket, usize) {
    let number = |at: usize, bytes: usize| data[at..at + bytes].iter().fold(0, |sum, &byte| sum << 8 | u32::from(byte));
    assert_eq!(data[17] & 3, 2, "LRH, then BTH");
    let packet = PartialPacket {
        dst: number(18, 2) as u16,
        src: number(22, 2) as u16,
        opcode: data[24],
        dest_qp: number(29, 3),
        psn: number(33, 3),
    };
    // RETH 16, DETH 8, immediate 4.
    let extension = match packet.opcode {
        WRITE_FIRST | WRITE_ONLY => 16,
        DATAGRAM => 8,
        SEND_ONLY_IMMEDIATE => 4,
        _ => 0,
    };
    (packet, 36 + extension)
}

/// First and last record of each packet of a sink, in which every packet appears twice.
fn places(sink: &PartialCapture) -> BTreeMap<PartialPacket, (usize, usize)> {
    let mut places = BTreeMap::new();
    for record in 0..sink.records.len() {
        let (packet, _) = packet(sink.data(record));
        places.entry(packet).or_insert((record, record)).1 = record;
    }
    places
}

/// The last packet of the message that starts with `first`.
fn last_of(places: &BTreeMap<PartialPacket, (usize, usize)>, first: PartialPacket) -> Option<PartialPacket> {
    // Messages of up to 1 MiB.
    let with = |psn, opcode| PartialPacket { psn: (first.psn + psn) & 0xFF_FFFF, opcode, ..first };
    (1..=256).flat_map(|psn| LAST.map(|opcode| with(psn, opcode))).find(|packet| places.contains_key(packet))
}

/// The library's format of a message start, for the recorded libraries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TestStack {
    Openib,
    UcxVerbs,
    UcxDatagrams,
    Rxm,
}

impl TestStack {
    fn of(run: &RecordedRun) -> Self {
        match &run.name {
            name if name.contains("openib") => Self::Openib,
            name if name.contains("-ud-") => Self::UcxDatagrams,
            name if name.contains("-ofi-") => Self::Rxm,
            _ => Self::UcxVerbs,
        }
    }

    /// True if the length of the MPI message is that of the transport message: ob1's MATCH, UCX's
    /// `EAGER_ONLY` and its synchronous form.
    fn needs_its_end(self, payload: &[u8]) -> bool {
        match self {
            Self::Openib => payload[0] == 0x41,
            Self::UcxVerbs => [2, 6].contains(&(payload[0] & 0x1F)),
            Self::UcxDatagrams | Self::Rxm => false,
        }
    }
}

/// The first record from `from` on that lies inside a message: both copies of its first packet come
/// before, both of its last packet after. Prefers a message that needs its end to be measured;
/// returns whether it is one.
fn inside_a_message(sink: &PartialCapture, from: usize, stack: TestStack) -> Option<(usize, bool)> {
    let places = places(sink);
    let firsts = places.iter().filter(|(packet, _)| [SEND_FIRST, WRITE_FIRST].contains(&packet.opcode));
    let inside = firsts.filter_map(|(first, &(record, last_copy))| {
        let at = from.max(last_copy + 1);
        let (end, _) = places[&last_of(&places, *first)?];
        let (_, payload) = packet(sink.data(record));
        let needs_end = first.opcode == SEND_FIRST && stack.needs_its_end(&sink.data(record)[payload..]);
        (at <= end).then_some((at, needs_end))
    });
    inside.min_by_key(|&(at, needs_end)| (!needs_end, at))
}

/// One run of each library, and those with several ranks per node.
const RUNS: [&str; 10] = [
    "ompi-rc-mixed-2x2",
    "ompi-rc-notrace-mixed-4x1",
    "ompi-rc-ring2",
    "ompi-openib-notrace-mixed-4x1",
    "ompi-openib-mixed-2x2",
    "ompi-openib-eagerrdma-ring2",
    "ompi-ud-ring2",
    "mpich-rc-ring2",
    "mpich-rc-mixed-2x2",
    "ompi-ofi-ring2",
];

fn node(endpoint: &str) -> u8 {
    match endpoint.strip_prefix("10.77.0.") {
        Some(node) => node.parse().expect("node"),
        None => endpoint.parse::<u8>().expect("LID") - 16,
    }
}

/// Every rank in the result is right, for every queue pair with a rank, and no message is counted
/// that was not sent.
fn assert_nothing_false(case: &str, run: &RecordedRun, found: &Profile, whole: &Profile) {
    let nodes = run.node_of_rank();
    for row in &found.ranks {
        assert_eq!(nodes.get(&row.rank), Some(&node(&row.endpoint)), "{case}: {row:?}");
    }
    let (named, right) = (RankIndex::new(&found.ranks), RankIndex::new(&whole.ranks));
    for row in &found.connections {
        for (endpoint, qpn) in [(row.dst, Some(row.dest_qp)), (row.src, row.src_qp)] {
            let (named, right) = (named.rank(endpoint, qpn), right.rank(endpoint, qpn));
            assert!(named.is_none() || named == right, "{case}: {endpoint} {qpn:?} is {right:?}, not {named:?}");
        }
    }
    let Some(wire) = run.truth("wire.csv") else { return };
    for ((src, dst), (messages, bytes)) in by_rank(found, Selection::P2p) {
        let (Ok(src), Ok(dst)) = (src.parse(), dst.parse()) else { continue };
        let most = wire.get(&(src, dst)).copied().unwrap_or_default();
        assert!(messages <= most.0 && bytes <= most.1, "{case}: {src} to {dst}: {messages}, {bytes} of {most:?}");
    }
}

/// True if the result reports incomplete messages.
fn reports_incomplete_messages(profile: &Profile) -> bool {
    profile.coverage.messages_without_start > 0 && profile.coverage.messages_with_gaps > 0
}

#[test]
fn parts_of_a_run_have_no_wrong_rank_and_count_nothing_twice() {
    let mut cases = 0;
    for run in RUNS.map(runs::named) {
        for path in run.every_node().into_iter().chain([run.sink()]) {
            let whole = profile(std::slice::from_ref(&path));
            let capture = PartialCapture::read(&path);
            let records = capture.records.len();
            for range in [0..records / 3, 0..records * 2 / 3, records / 3..records, records * 2 / 3..records] {
                let case = format!("{}: records {range:?} of {records}", path.display());
                let part = profile_of(&[capture.part(range.clone())]);
                assert_eq!(part.coverage.records, range.len() as u64, "{case}");
                assert_nothing_false(&case, &run, &part, &whole);
                cases += 1;
            }
        }
    }
    // Eight runs on two nodes and two on four.
    assert_eq!(cases, (8 * 3 + 2 * 5) * 4);
}

/// Windows anywhere in the runs with two ranks per node: one of them may have sent messages, the
/// other not yet.
#[test]
fn windows_of_runs_with_two_ranks_per_node_have_no_wrong_rank() {
    let mut cases = 0;
    for run in runs::all().iter().filter(|run| run.name.ends_with("2x2")) {
        let whole = profile(&[run.sink()]);
        let sink = PartialCapture::read(&run.sink());
        let records = sink.records.len();
        for from in (0..8).map(|eighth| records * eighth / 8) {
            for length in [records / 16, records / 5, records / 2, records] {
                let range = from..(from + length).min(records);
                let case = format!("{}: records {range:?} of {records}", run.name);
                let part = profile_of(&[sink.part(range)]);
                assert_nothing_false(&case, run, &part, &whole);
                cases += 1;
            }
        }
    }
    assert_eq!(cases, 9 * 8 * 4, "runs with two ranks per node");
}

/// A READ request that was not captured leaves one message incomplete, although its buffer is
/// reused many times.
#[test]
fn a_lost_read_request_costs_one_message() {
    const READ_REQUEST: u8 = 0x0C;
    let run = runs::named("ompi-rc-ring2");
    let capture = PartialCapture::read(&run.node(1));
    // The BTH follows Ethernet, IPv4 and UDP.
    let is_read = |record: &usize| is_roce(capture.data(*record)) && capture.data(*record)[42] == READ_REQUEST;
    let reads: Vec<usize> = (0..capture.records.len()).filter(is_read).collect();
    assert_eq!(reads.len(), 20, "two for each of ten messages");
    let folder = tempfile::tempdir().expect("folder");
    for lost in [0, 3, 10, 19] {
        let path = folder.path().join("lost.pcap");
        let (before, after) = (capture.part(0..reads[lost]), capture.part(reads[lost] + 1..capture.records.len()));
        std::fs::write(&path, [before.as_slice(), &after[HEADER_BYTES..]].concat()).expect("written");
        let options = ibscope::pipeline::AnalysisOptions::default();
        let rows: Vec<_> = ibscope::pipeline::messages(&[path], &options, false, &|_| {})
            .expect("messages")
            .map(|row| row.expect("row"))
            .collect();
        let incomplete: Vec<_> = rows.iter().filter(|row| !row.raw.complete).collect();
        assert_eq!((incomplete.len(), rows.len()), (1, 153), "READ {lost}");
        assert_eq!(incomplete[0].raw.length_bytes, Some(262_144), "its envelope states it");
    }
}

#[test]
fn the_first_part_of_a_run_reports_incomplete_messages() {
    let mut incomplete_stacks = BTreeSet::new();
    for run in RUNS.map(runs::named) {
        let stack = TestStack::of(&run);
        let sink = PartialCapture::read(&run.sink());
        let records = sink.records.len();
        for from in [records / 3, records * 2 / 3] {
            // If every length is in the first packet, no message is missing anything.
            let Some((at, true)) = inside_a_message(&sink, from, stack) else { continue };
            let part = profile_of(&[sink.part(0..at)]);
            assert!(part.coverage.mpi_incomplete > 0, "{}: cut at {at} of {records}", run.name);
            incomplete_stacks.insert(format!("{stack:?}"));
        }
    }
    assert!(incomplete_stacks.contains("Openib") && incomplete_stacks.contains("UcxVerbs"), "{incomplete_stacks:?}");
}

#[test]
fn the_last_part_of_a_run_reports_incomplete_messages() {
    let mut missing = Vec::new();
    let mut cases = 0;
    for run in RUNS.map(runs::named) {
        let stack = TestStack::of(&run);
        let sink = PartialCapture::read(&run.sink());
        let records = sink.records.len();
        for from in [records / 3, records * 2 / 3] {
            let Some((at, _)) = inside_a_message(&sink, from, stack) else { continue };
            let part = profile_of(&[sink.part(at..records)]);
            cases += 1;
            if !reports_incomplete_messages(&part) {
                missing.push(format!("{}: records from {at} of {records}: {:?}", run.name, part.notes));
            }
        }
    }
    // Datagrams are complete or absent.
    assert!(cases >= 12, "{cases}");
    assert!(missing.is_empty(), "no report in {} of {cases} cases:\n{}", missing.len(), missing.join("\n"));
}

/// The files of a run truncated to `snap_bytes` per packet: the sink, or all ports.
fn cut(paths: &[PathBuf], snap_bytes: usize) -> (Profile, u64) {
    let captures: Vec<PartialCapture> = paths.iter().map(|path| PartialCapture::read(path)).collect();
    let files: Vec<Vec<u8>> = captures.iter().map(|capture| capture.cut(snap_bytes)).collect();
    // The RoCE files contain TCP as well, the sinks only InfiniBand (ERF type 21 in byte 8). A
    // packet without the two bytes of its VCRC counts as complete: some recorders always omit them.
    let is_cut = |capture: &PartialCapture, record: &RawRecord| {
        let data = record.data(&capture.bytes);
        let original_bytes = record.original_bytes as usize;
        if is_roce(data) {
            original_bytes > snap_bytes
        } else {
            data[8] & 0x7F == 21 && original_bytes - 2 > snap_bytes
        }
    };
    let of = |capture: &PartialCapture| capture.records.iter().filter(|record| is_cut(capture, record)).count() as u64;
    (profile_of(&files), captures.iter().map(of).sum())
}

fn as_cells(truth: &BTreeMap<(u32, u32), (u64, u64)>) -> EndpointCells {
    truth.iter().map(|(&(src, dst), &sums)| ((src.to_string(), dst.to_string()), sums)).collect()
}

#[test]
fn endpoints_do_not_depend_on_how_much_of_a_packet_was_captured() {
    for run in RUNS.map(runs::named) {
        for paths in [vec![run.sink()], run.every_node()] {
            let whole = by_endpoint(&profile(&paths));
            for snap_bytes in [128, 64] {
                let (found, truncated) = cut(&paths, snap_bytes);
                let case = format!("{}: {snap_bytes} bytes of {paths:?}", run.name);
                assert_eq!(by_endpoint(&found), whole, "{case}");
                assert!(truncated > 0, "{case}");
                assert_eq!(found.coverage.truncated, truncated, "{case}");
                assert_eq!(found.coverage.icrc_ok, found.coverage.infiniband - truncated, "{case}");
                assert_eq!((found.coverage.failed(), found.coverage.icrc_bad), (0, 0), "{case}");
            }
        }
    }
}

/// 92 payload bytes of a SEND at a sink, 76 of a WRITE, 84 of a datagram; 74, 58 and 66 in RoCEv2:
/// more than any library needs.
#[test]
fn with_128_bytes_everything_is_visible() {
    for run in RUNS.map(runs::named) {
        let wire = as_cells(&run.truth("wire.csv").expect("wire.csv"));
        for paths in [vec![run.sink()], run.every_node()] {
            let (found, _) = cut(&paths, 128);
            assert_eq!(by_rank(&found, Selection::P2p), wire, "{}: {paths:?}", run.name);
        }
    }
}

/// Messages and bytes that are visible with this many payload bytes of a SEND, a WRITE and a
/// datagram: those whose envelope and length were captured. Parsed by hand from the whole sink, for
/// any rank and communicator, including collectives.
fn visible(sink: &PartialCapture, stack: TestStack, [send, write, datagram]: [usize; 3]) -> (u64, u64) {
    let places = places(sink);
    let mut sums = (0, 0);
    let mut seen = BTreeSet::new();
    for (&first, &(record, _)) in &places {
        let data = sink.data(record);
        let (_, payload) = packet(data);
        // 4 bytes of ICRC and 2 of VCRC; the pad count is in BTH byte 1.
        let wire_bytes = |record: usize| {
            let data = sink.data(record);
            data.len() - packet(data).1 - usize::from(data[25] >> 4 & 3) - 6
        };
        let starts = [SEND_FIRST, SEND_ONLY, SEND_ONLY_IMMEDIATE, WRITE_FIRST, WRITE_ONLY, DATAGRAM];
        if !starts.contains(&first.opcode) || first.dest_qp <= 1 {
            continue;
        }
        let is_write = [WRITE_FIRST, WRITE_ONLY].contains(&first.opcode);
        let captured = match first.opcode {
            DATAGRAM => datagram,
            _ if is_write => write,
            _ => send,
        };
        let message_bytes = match first.opcode {
            SEND_FIRST | WRITE_FIRST => {
                let Some(last) = last_of(&places, first) else { continue };
                let between = (last.psn.wrapping_sub(first.psn) & 0xFF_FFFF) as usize;
                between * wire_bytes(record) + wire_bytes(places[&last].0)
            }
            _ => wire_bytes(record),
        };
        let payload = &data[payload..payload + wire_bytes(record)];
        let word = |at: usize| u64::from_le_bytes(payload[at..at + 8].try_into().expect("eight bytes"));
        // Where the envelope ends, and the length, if it is stated.
        let (envelope_ends, stated, beyond) = match stack {
            // Rank at P+8, tag at P+12; MATCH ends with its data, RNDV and RGET state the length at
            // P+20.
            TestStack::Openib if payload.len() >= 18 && payload[0] == payload[4] => match payload[0] {
                0x41 => (16, None, if is_write { 22 } else { 18 }),
                0x42 | 0x43 => (28, Some(word(20)), 0),
                _ => continue,
            },
            TestStack::UcxVerbs if !is_write && first.opcode != DATAGRAM && payload.len() >= 9 => {
                match payload[0] & 0x1F {
                    2 => (9, None, 9),
                    6 => (9, None, 25),
                    3 | 7 => (17, Some(word(9)), 0),
                    9 => (41, Some(word(33)), 0),
                    _ => continue,
                }
            }
            // NETH: bit 24 is is-message, bits 27 to 31 are the id. An equal number is a
            // retransmission.
            TestStack::UcxDatagrams if first.opcode == DATAGRAM && payload.len() >= 16 && payload[3] & 1 == 1 => {
                if !seen.insert((first.src, first.dst, payload[..3].to_vec(), payload[4..6].to_vec())) {
                    continue;
                }
                match payload[3] >> 3 {
                    2 => (16, None, 16),
                    6 => (16, None, 32),
                    3 | 7 => (24, Some(word(16)), 0),
                    9 => (48, Some(word(40)), 0),
                    _ => continue,
                }
            }
            _ => continue,
        };
        if envelope_ends <= captured {
            sums = (sums.0 + 1, sums.1 + stated.unwrap_or(message_bytes as u64 - beyond));
        }
    }
    sums
}

/// The sum of all pairs, including unknown ranks.
fn total(profile: &Profile) -> (u64, u64) {
    by_rank(profile, Selection::All).values().fold((0, 0), |sum, cell| (sum.0 + cell.0, sum.1 + cell.1))
}

/// For complete packets, [`visible`] agrees with the program: this checks the parser of the test.
#[test]
fn the_parser_of_the_test_agrees_on_complete_packets() {
    for run in RUNS.map(runs::named).iter().filter(|run| TestStack::of(run) != TestStack::Rxm) {
        let sink = PartialCapture::read(&run.sink());
        let found = visible(&sink, TestStack::of(run), [usize::MAX; 3]);
        assert_eq!(found, total(&profile(&[run.sink()])), "{}", run.name);
    }
}

/// 28 payload bytes of a SEND, 12 of a WRITE, 20 of a datagram, after 16 bytes of ERF, LRH 8, BTH
/// 12 and RETH or DETH.
///
/// Of `openib`, all SENDs are visible (MATCH needs 16, RNDV and RGET 28). Of its eager RDMA only
/// the rank is visible, which ends with byte 12, but no tag, so nothing can be counted. Of UCX over
/// RC, all eager messages are visible (9 and 17), but not the length of RTS (41); of UCX over UD,
/// messages of one fragment (16, not 24); of rxm (64), none.
#[test]
fn with_64_bytes_at_a_sink_short_envelopes_are_visible() {
    let mut short = Vec::new();
    for run in RUNS.map(runs::named) {
        let stack = TestStack::of(&run);
        let (found, _) = cut(&[run.sink()], 64);
        let case = format!("{}: 64 bytes at the sink", run.name);
        let whole = profile(&[run.sink()]);
        assert_nothing_false(&case, &run, &found, &whole);
        if stack == TestStack::Rxm {
            assert_eq!((found.ranks.len(), total(&found)), (0, (0, 0)), "{case}");
            assert!(found.connections.iter().all(|row| row.stack.is_none()), "{case}");
            continue;
        }
        let expected = visible(&PartialCapture::read(&run.sink()), stack, [28, 12, 20]);
        assert!(expected.0 > 20, "{case}: {expected:?}");
        if total(&found) != expected {
            short.push(format!("{case}: {:?}, not {expected:?}", total(&found)));
        }
        let ranks: BTreeSet<u32> = found.ranks.iter().map(|row| row.rank).collect();
        let all: BTreeSet<u32> = run.node_of_rank().into_keys().collect();
        if ranks != all {
            short.push(format!("{case}: ranks {ranks:?}, not {all:?}"));
        }
        // Messages that are not counted are reported.
        if found.coverage.mpi_truncated != total(&whole).0 - expected.0 {
            short.push(format!(
                "{case}: {} of {} reported as truncated",
                found.coverage.mpi_truncated,
                total(&whole).0 - expected.0
            ));
        }
    }
    assert!(short.is_empty(), "{}", short.join("\n"));
}

/// 10 payload bytes of a SEND, 2 of a datagram, none of a WRITE, after Ethernet 14, IPv4 20, UDP 8
/// and BTH 12.
///
/// Of UCX over RC, messages in one active message (9) are visible; of UCX over UD and of rxm, none.
/// Of `openib`, the lower half of the rank is visible and no length: the result must not be wrong.
#[test]
fn with_64_bytes_of_roce_little_is_visible() {
    let mut short = Vec::new();
    for run in RUNS.map(runs::named) {
        let stack = TestStack::of(&run);
        let (found, _) = cut(&run.every_node(), 64);
        let case = format!("{}: 64 bytes at the ports", run.name);
        assert_nothing_false(&case, &run, &found, &profile(&run.every_node()));
        match stack {
            TestStack::UcxDatagrams | TestStack::Rxm => {
                assert_eq!((found.ranks.len(), total(&found)), (0, (0, 0)), "{case}");
                assert!(found.connections.iter().all(|row| row.stack.is_none()), "{case}");
            }
            TestStack::UcxVerbs => {
                let expected = visible(&PartialCapture::read(&run.sink()), stack, [10, 0, 2]);
                assert!(expected.0 > 20, "{case}: {expected:?}");
                if total(&found) != expected {
                    short.push(format!("{case}: {:?}, not {expected:?}", total(&found)));
                }
            }
            TestStack::Openib => {}
        }
    }
    assert!(short.is_empty(), "{}", short.join("\n"));
}
