//! `ibscope storage`: the commands of recorded runs against the counters of their clients, whatever
//! port was captured, and of constructed conversations.
//!
//! Truth of the recorded runs (their logs): `NVMe`, `/sys/block/nvme0n1/stat` of the initiator: 85
//! reads of 4632 sectors, of which 3 reads of 24 sectors at the connect, and 82 writes of 4608
//! sectors. NFS, `/proc/self/mountstats` of the client and `/proc/net/rpc/nfsd` of the server.
//! iSER, SRP, errors of `NVMe` and rejects of RPC have no recorded run: their traffic is constructed
//! from the specifications that the functions name.

mod loss;

use crate::runs::{self, RecordedRun};
use crate::tools;
use crate::wire::{WireBuilder, WireQueuePair, profile, profile_of};
use ibscope::analysis::storage::{Storage, StoragePair, StorageTotals, storage};
use ibscope::analysis::storage_timeline::{StorageBin, StorageTimeline, storage_timeline};
use ibscope::model::{ConnectionClass, Profile, StorageResult, StorageRowKind};
use ibscope::pipeline::{AnalysisOptions, analyze, merge};
use ibscope::profile::ProfileWriter;
use ibscope_samples::hard::{Recording, combine, partial};
use std::path::PathBuf;

const SECTOR_BYTES: u64 = 512;

/// Commands, read bytes, written bytes, and commands by operation, by the counters of a client.
struct RunTruth {
    run: &'static str,
    class: ConnectionClass,
    commands: u64,
    read_bytes: u64,
    written_bytes: u64,
    operations: &'static [(&'static str, u64)],
    /// Nodes at whose ports all commands pass.
    nodes: &'static [u8],
}

const RUNS: [RunTruth; 3] = [
    RunTruth {
        run: "nvmeof-dd-2",
        class: ConnectionClass::NvmeOf,
        commands: 85 + 82,
        read_bytes: 4632 * SECTOR_BYTES,
        written_bytes: 4608 * SECTOR_BYTES,
        operations: &[("read", 85), ("write", 82)],
        nodes: &[1, 2],
    },
    RunTruth {
        run: "nfsrdma-dd-2",
        class: ConnectionClass::Nfs,
        // The server's counter of calls.
        commands: 104,
        read_bytes: 2_117_152,
        written_bytes: 2_117_158,
        operations: &[("read", 27), ("write", 26), ("close", 8)],
        nodes: &[1, 2],
    },
    RunTruth {
        run: "mixed-mpi-plus-nfs",
        class: ConnectionClass::Nfs,
        commands: 188,
        read_bytes: 7_471_104,
        written_bytes: 2_490_368,
        operations: &[("read", 57), ("write", 38)],
        nodes: &[1, 3],
    },
];

fn run(truth: &RunTruth) -> RecordedRun {
    runs::of_second_set(truth.run)
}

fn found(profile: &Profile) -> Storage {
    storage(profile).expect("a profile with storage commands")
}

/// The only pair of a profile.
fn only(storage: &Storage) -> (&StoragePair, &StorageTotals) {
    assert_eq!(storage.pairs.len(), 1, "{:?}", storage.pairs);
    storage.pairs.iter().next().expect("a pair")
}

fn assert_truth(truth: &RunTruth, profile: &Profile, case: &str) {
    let storage = found(profile);
    let (pair, totals) = only(&storage);
    let case = format!("{}, {case}: {:?}", truth.run, storage.notes);
    assert_eq!(pair.class, truth.class, "{case}");
    let expected = [truth.commands, truth.read_bytes, truth.written_bytes, 0].map(Some);
    assert_eq!([totals.commands, totals.read_bytes, totals.written_bytes, totals.errors], expected, "{case}");
    assert_eq!((totals.without_completion, totals.without_command, storage.notes.len()), (0, 0, 0), "{case}");
    assert_eq!(totals.times.samples(), truth.commands, "{case}");
    for (name, commands) in truth.operations {
        let of = storage.operations.iter().filter(|(key, _)| key.operation == *name && key.kind.is_counted());
        assert_eq!(of.map(|(_, counts)| counts.commands).sum::<u64>(), *commands, "{name}: {case}");
    }
}

#[test]
fn recorded_runs_have_the_counts_of_their_clients_at_every_port() {
    for truth in &RUNS {
        let run = run(truth);
        for node in truth.nodes {
            let path = run.folder.join(format!("node{node}.pcap.zst"));
            assert_truth(truth, &profile(&[path]), &format!("node {node}"));
        }
        assert_truth(truth, &profile(&[run.sink()]), "sink");
        assert_truth(truth, &profile(&run.every_node()), "all nodes");
    }
}

#[test]
fn a_merge_of_partial_profiles_has_the_same_commands() {
    let options = AnalysisOptions { keep_parts: true, ..AnalysisOptions::default() };
    for truth in &RUNS {
        let folder = tempfile::tempdir().expect("folder");
        let part = |(number, path): (usize, PathBuf)| {
            let place = folder.path().join(format!("{number}.ibp"));
            let profile = analyze(&[path], &options, &|_| {}).expect("profile");
            ProfileWriter::create(&place, &[]).expect("place").finish(&profile).expect("written");
            let read = ibscope::profile::read(&place).expect("a profile");
            assert_eq!(read.storage, profile.storage, "{}", truth.run);
            place
        };
        let places: Vec<PathBuf> = run(truth).every_node().into_iter().enumerate().map(part).collect();
        let merged = merge(&places, &AnalysisOptions::default()).expect("merged");
        assert_truth(truth, &merged, "merged");
    }
}

/// The bytes that the server moves by RDMA are those of the commands, except for data that travel
/// inside a command or completion: 64 writes of 4 KiB in the `NVMe` run.
#[test]
fn data_on_the_wire_are_the_data_of_the_commands() {
    let sums = |truth: &RunTruth| {
        let profile = profile(&[run(truth).sink()]);
        let rows: Vec<_> = profile.storage.iter().flatten().filter(|row| row.kind.is_counted()).cloned().collect();
        let sum = |of: fn(&ibscope::model::StorageCounts) -> u64| rows.iter().map(|row| of(&row.counts)).sum::<u64>();
        [sum(|counts| counts.rdma_read_bytes), sum(|counts| counts.rdma_written_bytes)]
    };
    assert_eq!(sums(&RUNS[0]), [RUNS[0].read_bytes, RUNS[0].written_bytes - 64 * 4096]);
    assert_eq!(sums(&RUNS[2]), [RUNS[2].read_bytes, RUNS[2].written_bytes]);
}

fn over_time(profile: &Profile, bin_ns: Option<i64>) -> StorageTimeline {
    storage_timeline(profile, &found(profile), bin_ns).expect("a timeline")
}

/// Sums over all bins: payload to the client, to the server, of jobs, and commands.
fn sums(timeline: &StorageTimeline) -> [u64; 4] {
    let sum = |value: &dyn Fn(&StorageBin) -> u64| timeline.bins.iter().map(value).sum();
    let commands = |bin: &StorageBin| bin.times.as_ref().expect("measured").samples();
    [sum(&|bin| bin.to_client_bytes), sum(&|bin| bin.to_server_bytes), sum(&|bin| bin.job_bytes), sum(&commands)]
}

/// The bins together have all commands, and the data of the commands with at most a tenth of
/// headers, whatever their width. MPI of the mixed run, by its truth: 5 567 640 B each way.
#[test]
fn bins_over_time_hold_all_commands_and_their_data() {
    for truth in &RUNS {
        let profile = profile(&[run(truth).sink()]);
        let expected = sums(&over_time(&profile, None));
        for bin_ns in [10_000_000, 70_000_000, 1_000_000_000, 1_000_000_000_000] {
            let timeline = over_time(&profile, Some(bin_ns));
            assert_eq!(sums(&timeline), expected, "{}, bins of {bin_ns} ns", truth.run);
            assert!(timeline.bins.iter().all(|bin| bin.time_ns % bin_ns == 0));
        }
        let [to_client, to_server, job, commands] = expected;
        for (data, bytes) in [(truth.read_bytes, to_client), (truth.written_bytes, to_server)] {
            assert!((data..data + data / 10).contains(&bytes), "{}: {bytes} B for {data} B of data", truth.run);
        }
        assert_eq!(commands, truth.commands, "{}", truth.run);
        let mpi_bytes = if truth.run.starts_with("mixed-mpi") { 2 * 5_567_640 } else { 0 };
        assert!((mpi_bytes..=mpi_bytes + mpi_bytes / 10).contains(&job), "{}: {job} B of MPI", truth.run);
    }
}

/// A job that pauses while its node writes: a ring, then the `NVMe` run, then the ring again, 10 s
/// apart. No bin has both, and the storage lies between.
#[test]
fn a_job_that_waits_for_its_storage_can_be_seen() {
    const SECOND_NS: u64 = 1_000_000_000;
    let recording = |name: &str| Recording::read(&runs::of_any_set(name).sink()).expect("capture");
    let mut start_ns = 1_700_000_000 * SECOND_NS;
    let mut parts = Vec::new();
    for name in ["mpich-rc-ring2", "nvmeof-dd-2", "ompi-rc-ring2"] {
        let part = combine::start_at(&[recording(name)], start_ns).remove(0);
        start_ns = part.span_ns().1 + 10 * SECOND_NS;
        parts.push(part);
    }
    let spans: Vec<(u64, u64)> = parts.iter().map(Recording::span_ns).collect();
    let timeline = over_time(&profile_of(&combine::merge(&parts)), Some(1_000_000_000));
    let second = |ns: u64| (ns - ns % SECOND_NS).cast_signed();
    let is_within = |time_ns: i64, part: usize| (second(spans[part].0)..=second(spans[part].1)).contains(&time_ns);
    for bin in &timeline.bins {
        let (storage_bytes, time_ns) = (bin.to_client_bytes + bin.to_server_bytes, bin.time_ns);
        assert_eq!(storage_bytes > 0, is_within(time_ns, 1) && bin.job_bytes == 0, "{bin:?}");
        assert_eq!(bin.job_bytes > 0, is_within(time_ns, 0) || is_within(time_ns, 2), "{bin:?}");
    }
    let jobs = timeline.bins.iter().filter(|bin| bin.job_bytes > 0).map(|bin| bin.time_ns);
    assert!(jobs.clone().any(|time_ns| is_within(time_ns, 0)) && jobs.clone().any(|time_ns| is_within(time_ns, 2)));
}

/// The commands of `storage --view timeline`, its figure, and the line of the summary.
#[test]
fn outputs_over_time() {
    let folder = tempfile::tempdir().expect("folder");
    let svg = folder.path().join("storage.svg");
    let sink = runs::of_second_set("mixed-mpi-plus-nfs").sink();
    let args =
        ["storage", "--view", "timeline", "--format", "csv", "--bin", "1s", "--svg", svg.to_str().expect("path")];
    let csv = tools::result(&args, std::slice::from_ref(&sink));
    let commands =
        csv.lines().skip(1).map(|line| line.split(',').nth(6).expect("commands").parse::<u64>().expect("number"));
    assert_eq!(commands.sum::<u64>(), 188);
    let drawn = std::fs::read_to_string(svg).expect("figure");
    let texts = drawn.lines().map(str::trim).filter(|line| ["MPI, NCCL", "read", "written"].contains(line)).count();
    assert_eq!(texts, 3);
    let text = tools::result(&["storage", "--view", "timeline"], std::slice::from_ref(&sink));
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let summary = tools::result(&["analyze"], &[sink]);
    let line = summary.lines().find(|line| line.starts_with("storage")).expect("a line");
    // 7 471 104 and 2 490 368 bytes.
    assert!(line.contains("nfs: 188 commands (7.1 MiB read, 2.4 MiB written, 0 errors, median "), "{line}");
}

/// Two parts of a capture: no number is above the truth, together they are the whole, and commands
/// across the cut are named.
#[test]
fn parts_of_a_capture_count_the_commands_that_they_hold() {
    for truth in &RUNS {
        let recording = Recording::read(&run(truth).folder.join("node1.pcap.zst")).expect("capture");
        let records = recording.records.len();
        for cut in [records / 5, records / 3, records / 2, records * 4 / 5] {
            let parts = [0..cut, cut..records].map(|part| found(&profile_of(&partial::window(&recording, part))));
            let case = format!("{} cut at {cut}: {:?}", truth.run, parts.each_ref().map(|part| &part.pairs));
            let all: Vec<&StorageTotals> = parts.iter().flat_map(|part| part.pairs.values()).collect();
            let sum = |of: fn(&StorageTotals) -> Option<u64>| all.iter().filter_map(|totals| of(totals)).sum::<u64>();
            assert_eq!(sum(|totals| totals.commands), truth.commands, "{case}");
            let [first, later] = [0, 1].map(|part: usize| parts[part].pairs.values().next().expect("a pair"));
            assert_eq!(first.without_completion, later.without_command, "{case}");
            assert_eq!([first.without_command, later.without_completion], [0, 0], "{case}");
            let missing = [
                truth.read_bytes - sum(|totals| totals.read_bytes),
                truth.written_bytes - sum(|totals| totals.written_bytes),
            ];
            if first.without_completion == 0 {
                assert_eq!(missing, [0, 0], "{case}");
            } else {
                assert!(parts.iter().all(|part| !part.notes.is_empty()), "{case}");
            }
        }
    }
}

/// Two runs at the same time: each keeps its commands.
#[test]
fn nfs_and_nvme_of_one_client_are_apart() {
    let recordings = [0, 1].map(|run_number: usize| Recording::read(&run(&RUNS[run_number]).sink()).expect("capture"));
    let together = combine::start_at(&recordings, 1_700_000_000_000_000_000);
    let storage = found(&profile_of(&combine::merge(&together)));
    for truth in &RUNS[..2] {
        let (_, totals) = storage.pairs.iter().find(|(pair, _)| pair.class == truth.class).expect("the class");
        let numbers = [totals.commands, totals.read_bytes, totals.written_bytes, totals.errors];
        let expected = [truth.commands, truth.read_bytes, truth.written_bytes, 0];
        assert_eq!(numbers, expected.map(Some), "{}: {:?}", truth.run, storage.notes);
    }
}

/// Both directions of a constructed connection. The client is LID 3, the server LID 4.
struct Conversation {
    wire: WireBuilder,
    client: WireQueuePair,
    server: WireQueuePair,
}

const KEY: u32 = 0x0123_4567;
const ADDRESS: u64 = 0x7F00_0000_1000;

impl Conversation {
    fn new() -> Self {
        let (mut client, mut server) = WireQueuePair::pair((3, 0x31), (4, 0x41));
        (client.psn, server.psn) = (0x12_3456, 0x65_4321);
        Self { wire: WireBuilder::new(), client, server }
    }

    fn command(&mut self, payload: &[u8]) {
        self.client.send(&mut self.wire, payload);
        self.server.ack(&mut self.wire, &self.client);
    }

    fn completion(&mut self, payload: &[u8]) {
        self.server.send(&mut self.wire, payload);
        self.client.ack(&mut self.wire, &self.server);
    }

    /// The server writes data into the memory of the client.
    fn write(&mut self, length_bytes: usize) {
        self.server.write(&mut self.wire, ADDRESS, KEY, &vec![0xA5; length_bytes]);
        self.client.ack(&mut self.wire, &self.server);
    }

    /// The server reads data from the memory of the client.
    fn read(&mut self, length_bytes: usize) {
        self.read_at(ADDRESS, length_bytes);
    }

    fn read_at(&mut self, address: u64, length_bytes: usize) {
        self.server.read(&mut self.wire, address, KEY, length_bytes);
        self.client.read_response(&mut self.wire, &self.server, &vec![0xA5; length_bytes]);
    }

    fn storage(&mut self) -> Storage {
        found(&profile(&[self.wire.file()]))
    }
}

/// Bytes with parts written at offsets.
fn bytes(length: usize, parts: &[(usize, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0; length];
    for (at, part) in parts {
        bytes[*at..*at + part.len()].copy_from_slice(part);
    }
    bytes
}

/// Checks commands, read and written bytes, errors, commands without completion, completions without
/// command, and the bytes that RDMA moved.
fn assert_numbers(storage: &Storage, class: ConnectionClass, expected: [u64; 6], rdma_bytes: [u64; 2]) {
    let (pair, totals) = only(storage);
    assert_eq!((pair.class, pair.client.to_string().as_str(), pair.server.to_string().as_str()), (class, "3", "4"));
    let [commands, read_bytes, written_bytes, errors, without_completion, without_command] = expected;
    let numbers = [totals.commands, totals.read_bytes, totals.written_bytes, totals.errors];
    assert_eq!(numbers, [commands, read_bytes, written_bytes, errors].map(Some), "{:?}", storage.notes);
    assert_eq!([totals.without_completion, totals.without_command], [without_completion, without_command]);
    let sum = |of: fn(&ibscope::model::StorageCounts) -> u64| storage.operations.values().map(of).sum::<u64>();
    assert_eq!([sum(|counts| counts.rdma_read_bytes), sum(|counts| counts.rdma_written_bytes)], rdma_bytes);
}

/// SRP command (T10 SRP r16a, section 6.8) with one direct descriptor.
pub(crate) fn srp_command(tag: u64, cdb: u8, is_write: bool, length_bytes: u32) -> Vec<u8> {
    let descriptor = [&ADDRESS.to_be_bytes()[..], &KEY.to_be_bytes(), &length_bytes.to_be_bytes()].concat();
    let formats = if is_write { 0x10 } else { 0x01 };
    bytes(64, &[(0, &[0x02]), (5, &[formats]), (8, &tag.to_be_bytes()), (32, &[cdb]), (48, &descriptor)])
}

/// SRP response (section 6.9): flags, status, and the residual counts of data out and data in.
pub(crate) fn srp_response(tag: u64, flags: u8, status: u8, residuals: [u32; 2]) -> Vec<u8> {
    let [out, into] = residuals.map(u32::to_be_bytes);
    let parts: [(usize, &[u8]); 5] =
        [(0, &[0xC1]), (8, &tag.to_be_bytes()), (18, &[flags, status]), (20, &out), (24, &into)];
    bytes(36, &parts)
}

#[test]
fn constructed_srp() {
    let mut srp = Conversation::new();
    // 10 reads of 8 KiB, the last one 1000 bytes short (data-in underflow).
    for tag in 0..10 {
        srp.command(&srp_command(tag, 0x28, false, 8192));
        srp.write(if tag == 9 { 7192 } else { 8192 });
        let response = if tag == 9 { srp_response(tag, 0x20, 0, [0, 1000]) } else { srp_response(tag, 0, 0, [0, 0]) };
        srp.completion(&response);
    }
    // 5 writes of 4 KiB, two of them outstanding at a time, completed in the other order.
    // They share a memory key, as with one registration of all memory.
    let address = |tag: u64| 0x1000_0000 + 4096 * tag;
    for tag in [20, 21] {
        let mut command = srp_command(tag, 0x2A, true, 4096);
        command[48..56].copy_from_slice(&address(tag).to_be_bytes());
        srp.command(&command);
    }
    [21, 20].into_iter().for_each(|tag| {
        srp.read_at(address(tag), 2048);
        srp.read_at(address(tag) + 2048, 2048);
        srp.completion(&srp_response(tag, 0, 0, [0, 0]));
    });
    for tag in 22..25 {
        srp.command(&srp_command(tag, 0x8A, true, 4096));
        srp.read(4096);
        srp.completion(&srp_response(tag, 0, 0, [0, 0]));
    }
    // INQUIRY of 96 bytes transfers data, but none of a block.
    srp.command(&srp_command(30, 0x12, false, 96));
    srp.write(96);
    srp.completion(&srp_response(30, 0, 0, [0, 0]));
    // A write with CHECK CONDITION, and one without a response.
    srp.command(&srp_command(31, 0x2A, true, 4096));
    srp.completion(&srp_response(31, 0, 2, [0, 0]));
    srp.command(&srp_command(32, 0x2A, true, 4096));
    // A response to a command before the capture.
    srp.completion(&srp_response(77, 0, 0, [0, 0]));
    let storage = srp.storage();
    let read_bytes = 10 * 8192 - 1000;
    let expected = [10 + 5 + 1 + 2, read_bytes, 5 * 4096, 1, 1, 1];
    assert_numbers(&storage, ConnectionClass::Srp, expected, [read_bytes + 96, 5 * 4096]);
    let (_, totals) = only(&storage);
    // The command of the last response may have been outstanding with all of these.
    assert_eq!((totals.most_outstanding, totals.outstanding_at_least), (None, 2));
    assert_eq!((totals.times.samples(), totals.untimed), (17, 0));
}

/// iSER header (RFC 7145, section 9.2) with a SCSI command (RFC 7143, section 11.3).
fn iser_command(tag: u32, cdb: u8, is_write: bool, length_bytes: u32) -> Vec<u8> {
    let (valid, stag, flags) = if is_write { (0x08, 4, 0xA1) } else { (0x04, 16, 0xC1) };
    let parts: [(usize, &[u8]); 7] = [
        (0, &[0x10 | valid]),
        (stag, &KEY.to_be_bytes()),
        (stag + 4, &ADDRESS.to_be_bytes()),
        (28, &[0x01, flags]),
        (44, &tag.to_be_bytes()),
        (48, &length_bytes.to_be_bytes()),
        (60, &[cdb]),
    ];
    bytes(76, &parts)
}

/// SCSI response (RFC 7143, section 11.4): residual flag, status and residual count.
fn iser_response(tag: u32, underflow: u8, status: u8, residual: u32) -> Vec<u8> {
    let parts: [(usize, &[u8]); 4] = [
        (0, &[0x10]),
        (28, &[0x21, 0x80 | underflow, 0, status]),
        (44, &tag.to_be_bytes()),
        (72, &residual.to_be_bytes()),
    ];
    bytes(76, &parts)
}

#[test]
fn constructed_iser() {
    let mut iser = Conversation::new();
    for tag in 1..=8 {
        iser.command(&iser_command(tag, 0x28, false, 16384));
        iser.write(if tag == 8 { 16384 - 512 } else { 16384 });
        iser.completion(&iser_response(tag, if tag == 8 { 0x02 } else { 0 }, 0, if tag == 8 { 512 } else { 0 }));
    }
    for tag in 9..=12 {
        iser.command(&iser_command(tag, 0x2A, true, 8192));
        iser.read(8192);
        iser.completion(&iser_response(tag, 0, 0, 0));
    }
    // NOP-Out and NOP-In (RFC 7143, sections 11.18 and 11.19) are no SCSI commands.
    iser.command(&bytes(76, &[(0, &[0x10]), (28, &[0x00, 0x80]), (44, &99u32.to_be_bytes())]));
    iser.completion(&bytes(76, &[(0, &[0x10]), (28, &[0x20, 0x80]), (44, &99u32.to_be_bytes())]));
    // READ CAPACITY with 8 bytes, and a read that fails.
    iser.command(&iser_command(13, 0x25, false, 8));
    iser.write(8);
    iser.completion(&iser_response(13, 0, 0, 0));
    iser.command(&iser_command(14, 0x28, false, 16384));
    iser.completion(&iser_response(14, 0, 2, 0));
    let read_bytes = 8 * 16384 - 512;
    assert_numbers(
        &iser.storage(),
        ConnectionClass::Iser,
        [14, read_bytes, 4 * 8192, 1, 0, 0],
        [read_bytes + 8, 4 * 8192],
    );
}

/// `NVMe` command (NVM Express base specification, "Common Command Format") with a keyed SGL.
fn nvme_command(opcode: u8, id: u16, length_bytes: u32, blocks: u16) -> Vec<u8> {
    let [a, b, c, _] = length_bytes.to_le_bytes();
    let parts: [(usize, &[u8]); 8] = [
        (0, &[opcode, 0x40]),
        (2, &id.to_le_bytes()),
        (4, &[1]),
        (24, &ADDRESS.to_le_bytes()),
        (32, &[a, b, c]),
        (35, &KEY.to_le_bytes()),
        (39, &[0x40]),
        (48, &blocks.wrapping_sub(1).to_le_bytes()),
    ];
    bytes(64, &parts)
}

/// `NVMe` completion: the status is status code type and code, above the phase tag.
fn nvme_completion(id: u16, status: u16) -> Vec<u8> {
    bytes(16, &[(12, &id.to_le_bytes()), (14, &(status << 1).to_le_bytes())])
}

/// An I/O queue whose Connect command is before the capture: its READs and WRITEs show the kind.
#[test]
fn constructed_nvme_errors() {
    let mut nvme = Conversation::new();
    for id in 0..6 {
        nvme.command(&nvme_command(0x02, id, 4096, 8));
        nvme.write(4096);
        nvme.completion(&nvme_completion(id, 0));
    }
    // Unrecovered read error (media error, 0x281), LBA out of range (0x80).
    for (id, status) in [(6, 0x281), (7, 0x80)] {
        nvme.command(&nvme_command(0x02, id, 4096, 8));
        nvme.completion(&nvme_completion(id, status));
    }
    // The client uses id 8 again: the first completion is missing.
    nvme.command(&nvme_command(0x01, 8, 4096, 8));
    nvme.command(&nvme_command(0x01, 8, 4096, 8));
    nvme.read(4096);
    nvme.completion(&nvme_completion(8, 0));
    let storage = nvme.storage();
    assert_numbers(&storage, ConnectionClass::NvmeOf, [10, 6 * 4096, 4096, 2, 1, 0], [6 * 4096, 4096]);
    let errors = storage.operations.keys().filter(|key| key.result == StorageResult::Error);
    let statuses: Vec<&str> = errors.map(|key| key.status.as_str()).collect();
    assert_eq!(statuses, ["status 0x281", "status 0x80"]);
}

/// Commands of an admin queue are no I/O, and a queue of unknown kind has no known bytes: Get Log
/// Page and READ have the same operation code.
#[test]
fn constructed_nvme_queues_of_other_kinds() {
    for (is_admin, kind) in [(true, StorageRowKind::Admin), (false, StorageRowKind::Unknown)] {
        let mut nvme = Conversation::new();
        if is_admin {
            // Identify.
            nvme.command(&nvme_command(0x06, 100, 4096, 1));
            nvme.completion(&nvme_completion(100, 0));
        }
        for id in 0..5 {
            // 4096 bytes are 1024 words: a log page of this length.
            let mut log_page = nvme_command(0x02, id, 4096, 1);
            log_page[42..44].copy_from_slice(&1023u16.to_le_bytes());
            nvme.command(&log_page);
            nvme.write(4096);
            nvme.completion(&nvme_completion(id, 0));
        }
        let storage = nvme.storage();
        assert!(storage.operations.keys().all(|key| key.kind == kind), "{:?}", storage.operations);
        let (_, totals) = only(&storage);
        let expected = if is_admin { (Some(0), Some(0), 6) } else { (Some(5), None, 0) };
        assert_eq!((totals.commands, totals.read_bytes, totals.admin_commands), expected, "{:?}", storage.notes);
        assert_eq!(storage.notes.is_empty(), is_admin, "{:?}", storage.notes);
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// An NFS version 3 call in RPC-over-RDMA (RFC 8166, RFC 5531, RFC 1813): a READ of 32 KiB, into a
/// write chunk.
fn nfs3_read(xid: u32) -> Vec<u8> {
    let chunk = [1, 1, KEY, 32768, 0x7F00, 0x1000, 0, 0];
    let header = [&[xid, 1, 32, 0, 0][..], &chunk].concat();
    // Call, RPC version 2, program, version 3, READ; no credential; handle of 8 bytes, offset, count.
    let call = [xid, 0, 2, 100_003, 3, 6, 0, 0, 0, 0, 8, 1, 2, 0, 0, 32768];
    words(&[header, call.to_vec()].concat())
}

/// Its reply: the write chunk with the bytes that were written, attributes, count, end of file.
fn nfs3_reply(xid: u32, count: u32) -> Vec<u8> {
    let header = [xid, 1, 32, 0, 0, 1, 1, KEY, count, 0x7F00, 0x1000, 0, 0];
    let accepted = [xid, 1, 0, 0, 0, 0];
    let results = [&[0, 1][..], &[7; 21], &[count, 0, count]].concat();
    words(&[&header[..], &accepted, &results].concat())
}

#[test]
fn constructed_nfs_rejects_and_errors() {
    let mut nfs = Conversation::new();
    for xid in 1..=6 {
        nfs.command(&nfs3_read(xid));
        // The last one reads the end of the file.
        let count = if xid == 6 { 1001 } else { 32768 };
        nfs.write(count as usize);
        nfs.completion(&nfs3_reply(xid, count));
    }
    let header = |xid: u32| [xid, 1, 32, 0, 0, 0, 0];
    // NFS3ERR_STALE (70), a rejected credential (AUTH_ERROR), a program that is not available.
    let replies: [&[u32]; 3] = [&[1, 0, 0, 0, 0, 70, 0], &[1, 1, 1, 2], &[1, 0, 0, 0, 1]];
    for (xid, reply) in (7..).zip(replies) {
        nfs.command(&nfs3_read(xid));
        nfs.completion(&words(&[&header(xid)[..], &[xid], reply].concat()));
    }
    // RDMA_ERROR with ERR_CHUNK (2).
    nfs.command(&nfs3_read(10));
    nfs.completion(&words(&[10, 1, 32, 4, 2, 0, 0]));
    let read_bytes = 5 * 32768 + 1001;
    let storage = nfs.storage();
    assert_numbers(&storage, ConnectionClass::Nfs, [10, read_bytes, 0, 4, 0, 0], [read_bytes, 0]);
    let errors = storage.operations.keys().filter(|key| key.result == StorageResult::Error);
    let statuses: Vec<&str> = errors.map(|key| key.status.as_str()).collect();
    assert_eq!(statuses, ["rpc 0x1", "rpc 0x101", "status 0x46", "transport 0x2"]);
}
