//! Generated captures, whose totals are known by construction: copies, missing copies, rotated
//! files, threads, damage.

use ibscope::model::profile::ConnectionRow;
use ibscope::model::{Profile, TrafficKind};
use ibscope::pipeline::{AnalysisLimits, AnalysisMeasures, AnalysisOptions, analyze};
use ibscope_samples::{SampleFraming, SampleKind as Traffic, SampleStack, SampleTotals, TrafficPattern};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

const HEADER_BYTES: usize = 24;

struct GeneratedSample {
    folder: tempfile::TempDir,
    bytes: Vec<u8>,
    totals: SampleTotals,
}

fn generate(framing: SampleFraming, kind: Traffic, mirror: u8, bytes: u64) -> GeneratedSample {
    let options = ibscope_samples::SampleOptions {
        framing,
        kind,
        bytes,
        lids: 6,
        mirror,
        seed: 7,
        ..ibscope_samples::SampleOptions::default()
    };
    let mut file = Vec::new();
    let totals = ibscope_samples::generate(&options, &mut file).expect("generate");
    GeneratedSample { folder: tempfile::tempdir().expect("folder"), bytes: file, totals }
}

impl GeneratedSample {
    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, bytes).expect("write");
        path
    }

    /// The records with their headers.
    fn records(&self) -> Vec<&[u8]> {
        let mut records = Vec::new();
        let mut rest = &self.bytes[HEADER_BYTES..];
        while !rest.is_empty() {
            let length = 16 + u32::from_le_bytes(rest[8..12].try_into().expect("length")) as usize;
            records.push(&rest[..length]);
            rest = &rest[length..];
        }
        records
    }

    /// A capture of some of the records.
    fn part<'a>(&'a self, name: &str, records: impl IntoIterator<Item = &'a [u8]>) -> PathBuf {
        let mut bytes = self.bytes[..HEADER_BYTES].to_vec();
        records.into_iter().for_each(|record| bytes.extend(record));
        self.file(name, &bytes)
    }
}

fn profile(paths: &[PathBuf]) -> Profile {
    analyze(paths, &AnalysisOptions::default(), &|_| {}).expect("analysis")
}

/// Messages, payload bytes, wire bytes and packets by endpoints as text.
type MatrixCells = BTreeMap<(String, String), [u64; 4]>;

fn matrix(profile: &Profile) -> MatrixCells {
    let mut cells = MatrixCells::new();
    for connection in profile.connections.iter().filter(|connection| connection.kind == TrafficKind::Data) {
        let cell = cells.entry((connection.src.to_string(), connection.dst.to_string())).or_default();
        let traffic = connection.traffic;
        let values = [traffic.messages, traffic.payload_bytes, traffic.wire_bytes, traffic.packets];
        cell.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }
    cells
}

fn expected(totals: &SampleTotals) -> MatrixCells {
    let cell = |(&(src, dst), pair): (&(u16, u16), &ibscope_samples::PairTotals)| {
        let values = [pair.messages, pair.payload_bytes, pair.wire_bytes, pair.packets];
        ((totals.endpoint(src), totals.endpoint(dst)), values)
    };
    totals.pairs.iter().map(cell).collect()
}

fn timeline_sums(profile: &Profile) -> MatrixCells {
    let mut cells = MatrixCells::new();
    for row in &profile.timeline {
        let connection = &profile.connections[row.connection as usize];
        let cell = cells.entry((connection.src.to_string(), connection.dst.to_string())).or_default();
        let traffic = row.traffic;
        let values = [traffic.messages, traffic.payload_bytes, traffic.wire_bytes, traffic.packets];
        cell.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }
    cells
}

#[test]
fn totals_are_found_in_every_framing_once_and_mirrored() {
    for framing in [SampleFraming::Native, SampleFraming::Roce] {
        for kind in [Traffic::Small, Traffic::Big] {
            for mirror in [1, 2] {
                let generated = generate(framing, kind, mirror, 4 << 20);
                let profile = profile(&[generated.file("all.pcap", &generated.bytes)]);
                let case = format!("{framing:?} {kind:?} mirror {mirror}");
                assert_eq!(matrix(&profile), expected(&generated.totals), "{case}");
                assert_eq!(timeline_sums(&profile), expected(&generated.totals), "{case}: over time");
                assert_eq!(profile.coverage.records, generated.totals.records, "{case}");
                assert_eq!(profile.coverage.icrc_ok, generated.totals.records, "{case}");
                let packets: u64 = generated.totals.pairs.values().map(|pair| pair.packets).sum();
                assert_eq!(profile.coverage.mirror_copies, packets * u64::from(mirror - 1), "{case}");
            }
        }
    }
}

#[test]
fn lost_copies_do_not_change_the_matrix() {
    let generated = generate(SampleFraming::Native, Traffic::Small, 2, 4 << 20);
    // One of the two copies of every 23rd packet, alternating between the first and the second.
    let mut seen: HashMap<&[u8], usize> = HashMap::new();
    let mut packets = 0;
    let kept = generated.records().into_iter().filter(|record| {
        // Copies differ in the time of the ERF header: the packet starts after it.
        let packet = &record[32..];
        let (copy, number) = if let Some(number) = seen.remove(packet) {
            (1, number)
        } else {
            packets += 1;
            seen.insert(packet, packets);
            (0, packets)
        };
        number % 23 != 0 || number / 23 % 2 == copy
    });
    let path = generated.part("lossy.pcap", kept);
    let profile = profile(&[path]);
    assert_eq!(matrix(&profile), expected(&generated.totals));
    assert!(profile.coverage.records < generated.totals.records);
}

#[test]
fn two_ports_in_two_files_and_parts_in_sequence_count_once() {
    let generated = generate(SampleFraming::Native, Traffic::Small, 2, 4 << 20);
    let mut sides: [Vec<&[u8]>; 2] = [Vec::new(), Vec::new()];
    let mut seen: HashSet<&[u8]> = HashSet::new();
    for record in generated.records() {
        let side = usize::from(seen.remove(&record[32..]));
        if side == 0 {
            seen.insert(&record[32..]);
        }
        sides[side].push(record);
    }
    let sender = generated.part("sender.pcap", sides[0].iter().copied());
    let receiver = generated.part("receiver.pcap", sides[1].iter().copied());
    assert_eq!(matrix(&profile(&[sender.clone(), receiver.clone()])), expected(&generated.totals));
    assert_eq!(matrix(&profile(&[receiver.clone(), sender])), expected(&generated.totals));
    let half = sides[0].len() / 2;
    let first = generated.part("first.pcap", sides[0][..half].iter().copied());
    let second = generated.part("second.pcap", sides[0][half..].iter().copied());
    let rotated = profile(&[second.clone(), first.clone()]);
    assert_eq!(matrix(&rotated), expected(&generated.totals));
    assert_eq!(timeline_sums(&rotated), expected(&generated.totals));
    assert_eq!(matrix(&profile(&[first, receiver, second])), expected(&generated.totals));
}

/// The ranks equal those that the generator wrote into envelopes, and its retransmissions are
/// counted as in health.
#[test]
fn ranks_and_retransmissions_are_found_at_several_sinks() {
    for (stack, kind) in
        [(SampleStack::Ob1, Traffic::Small), (SampleStack::Ucx, Traffic::Small), (SampleStack::Ob1, Traffic::Big)]
    {
        let options = ibscope_samples::SampleOptions {
            kind,
            stack,
            bytes: 16 << 20,
            lids: 6,
            mirror: 2,
            loss_ppm: 10_000,
            sinks: 2,
            pattern: Some(TrafficPattern::Ring),
            seed: 7,
            ..ibscope_samples::SampleOptions::default()
        };
        let folder = tempfile::tempdir().expect("folder");
        let paths = ["0.pcap", "1.pcap"].map(|name| folder.path().join(name));
        let mut files = paths.each_ref().map(|path| std::fs::File::create(path).expect("file"));
        let totals = ibscope_samples::generate_at_sinks(&options, &mut files).expect("generate");
        let profile = profile(&paths);
        assert_eq!(matrix(&profile), expected(&totals), "{stack:?} {kind:?}");
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_ibscope"))
            .args(["matrix", "--by", "rank", "--format", "csv"])
            .args(&paths)
            .output()
            .expect("run");
        let printed = String::from_utf8(output.stdout).expect("text");
        let rows = printed.lines().skip(1).map(|row| row.split(',').take(4).collect::<Vec<_>>().join(","));
        // Ranks that only respond have packets and no messages.
        let found: HashSet<String> = rows.filter(|row| row.split(',').nth(2) != Some("0")).collect();
        let mut known = Vec::new();
        totals.write_ranks_csv(&mut known).expect("table");
        let known = String::from_utf8(known).expect("text");
        assert_eq!(found, known.lines().skip(1).map(str::to_owned).collect(), "{stack:?} {kind:?}");
    }
}

/// Connections beyond the limit are counted; the others are as without a limit, for any number of
/// threads.
#[test]
fn connections_beyond_the_limit_are_counted_in_a_note() {
    let generated = generate(SampleFraming::Native, Traffic::Small, 1, 4 << 20);
    let inputs = [generated.file("all.pcap", &generated.bytes)];
    let all = analyze(&inputs, &AnalysisOptions::default(), &|_| {}).expect("analysis");
    assert_eq!(all.coverage.untracked_packets, 0);
    let limited = |threads: usize| {
        let limits = AnalysisLimits { max_connections: 64, ..AnalysisLimits::default() };
        let options = AnalysisOptions { threads, limits, ..AnalysisOptions::default() };
        analyze(&inputs, &options, &|_| {}).expect("analysis")
    };
    let some = limited(1);
    assert_eq!(some, limited(3));
    let packets = |profile: &Profile| profile.connections.iter().map(|row| row.traffic.packets).sum::<u64>();
    assert!(some.connections.len() <= 64 && some.connections.len() < all.connections.len());
    assert!(some.coverage.untracked_packets > 0);
    assert_eq!(packets(&some) + some.coverage.untracked_packets, packets(&all));
    assert_eq!((some.coverage.infiniband, some.coverage.icrc_ok), (all.coverage.infiniband, all.coverage.icrc_ok));
    let of = |row: &ConnectionRow| (row.src, row.dst, row.service, row.dest_qp);
    for row in &some.connections {
        let same = all.connections.iter().find(|other| of(other) == of(row)).expect("the same connection");
        assert_eq!((row.traffic, row.retransmissions), (same.traffic, same.retransmissions));
    }
}

/// 1024 endpoints, each of which sends to all others: cells of pairs need wide bins, but totals and
/// senders keep at least 200 bins, with all packets.
#[test]
fn a_timeline_of_1024_endpoints_has_200_bins() {
    const BIN_NS: i64 = 200_000;
    let options = ibscope_samples::SampleOptions {
        framing: SampleFraming::Native,
        kind: Traffic::Small,
        bytes: 32 << 20,
        lids: 1024,
        mirror: 1,
        seed: 7,
        ..ibscope_samples::SampleOptions::default()
    };
    let mut bytes = Vec::new();
    let totals = ibscope_samples::generate(&options, &mut bytes).expect("generate");
    let generated = GeneratedSample { folder: tempfile::tempdir().expect("folder"), bytes, totals };
    let input = generated.file("wide.pcap", &generated.bytes);
    // Below the default limit: the generated 0.1 s have fewer cells than seconds of a real job.
    let limits = AnalysisLimits { max_cells: 150_000, ..AnalysisLimits::default() };
    let measures = AnalysisMeasures { mpi: false, icrc: false, ..AnalysisMeasures::default() };
    let options = AnalysisOptions { measures, limits, bin_ns: Some(BIN_NS), ..AnalysisOptions::default() };
    let profile = analyze(&[input], &options, &|_| {}).expect("analysis");
    let endpoints: HashSet<_> = profile.connections.iter().flat_map(|row| [row.src, row.dst]).collect();
    assert_eq!(endpoints.len(), 1024);
    let (senders, bin_ns) = profile.sender_series();
    assert!(bin_ns < profile.bin_ns, "pairs have bins of {} ns, senders of {bin_ns} ns", profile.bin_ns);
    let bins: HashSet<i64> = senders.iter().map(|row| row.time_ns).collect();
    assert!(bins.len() >= 200, "{} bins of {bin_ns} ns", bins.len());
    let packets: u64 = senders.iter().map(|row| row.traffic.packets).sum();
    assert_eq!(packets, generated.records().len() as u64);
}

/// Every file of a profile's folder.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let file = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.expect("entry").path();
        (path.file_name().expect("name").to_string_lossy().into_owned(), std::fs::read(&path).expect("file"))
    };
    std::fs::read_dir(folder).expect("profile").map(file).collect()
}

#[test]
fn any_number_of_threads_writes_the_same_bytes() {
    let generated = generate(SampleFraming::Roce, Traffic::Small, 2, 6 << 20);
    let mut inputs = vec![generated.file("all.pcap", &generated.bytes)];
    inputs.extend(crate::runs::named("ompi-rc-notrace-mixed-4x1").every_node());
    for (case, max_cells) in [("plenty", 1 << 20), ("few", 60)] {
        let mut first: Option<BTreeMap<String, Vec<u8>>> = None;
        for threads in [1, 2, 3, 16] {
            let limits = AnalysisLimits { max_cells, ..AnalysisLimits::default() };
            let options = AnalysisOptions { threads, limits, ..AnalysisOptions::default() };
            let profile = analyze(&inputs, &options, &|_| {}).expect("analysis");
            let place = generated.folder.path().join(format!("{case}-{threads}.ibp"));
            ibscope::pipeline::ProfileWriter::create(&place, &[]).expect("place").finish(&profile).expect("written");
            assert_eq!(ibscope::pipeline::load(&place).expect("read"), profile, "{case}, {threads} threads");
            let widened = profile.notes.iter().any(|note| note.contains("widened"));
            assert_eq!(widened, case == "few");
            // Both time series were widened.
            let is_wider = |bin_ns: i64| bin_ns > ibscope::pipeline::DEFAULT_BIN_NS;
            let [traffic, times] = [profile.bin_ns, profile.latency_bin_ns].map(is_wider);
            assert_eq!((traffic, times), (widened, widened), "{case}");
            let written = files(&place);
            assert_eq!(written.len(), 13 + usize::from(profile.sender_bin_ns > 0));
            match &first {
                None => first = Some(written),
                Some(first) => assert!(*first == written, "{case}: {threads} threads differ from 1"),
            }
        }
    }
}

/// A file with an unreadable record in the middle is read up to there, for any number of threads,
/// and its digest covers the same bytes.
#[test]
fn any_number_of_threads_reads_a_damaged_file_alike() {
    let mut generated = generate(SampleFraming::Native, Traffic::Small, 1, 9 << 20);
    let records = generated.records();
    let ends = records.iter().scan(HEADER_BYTES, |end, record| {
        *end += record.len();
        Some(*end)
    });
    let (index, at) = ends.enumerate().find(|(_, end)| *end > 7 << 20).expect("a record there");
    generated.bytes[at + 8..at + 12].fill(0xFF);
    let input = generated.file("damaged.pcap", &generated.bytes);
    let profile_with = |threads| {
        let measures = AnalysisMeasures { mpi: false, icrc: false, ..AnalysisMeasures::default() };
        let options = AnalysisOptions { threads, measures, bin_ns: None, ..AnalysisOptions::default() };
        analyze(std::slice::from_ref(&input), &options, &|_| {}).expect("analysis")
    };
    let first = profile_with(1);
    assert_eq!(first.coverage.records, index as u64 + 1);
    assert!(first.notes.iter().any(|note| note.contains(&format!("corrupt_input: the record at offset {at} "))));
    for threads in [2, 3, 16] {
        assert!(profile_with(threads) == first, "{threads} threads differ from 1");
    }
}
