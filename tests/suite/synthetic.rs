//! Generated captures, whose totals are known by construction: copies, lost copies, rotated files, threads, damage.

use ibscope::model::profile::ConnectionRow;
use ibscope::model::{Kind, Profile};
use ibscope::pipeline::{Options, analyze};
use ibscope_samples::{Framing, Kind as Traffic, Pattern, Stack, Totals};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

const HEADER_BYTES: usize = 24;

struct Generated {
    folder: tempfile::TempDir,
    bytes: Vec<u8>,
    totals: Totals,
}

fn generate(framing: Framing, kind: Traffic, mirror: u8, bytes: u64) -> Generated {
    let options = ibscope_samples::Options {
        framing,
        kind,
        bytes,
        lids: 6,
        mirror,
        seed: 7,
        ..ibscope_samples::Options::default()
    };
    let mut file = Vec::new();
    let totals = ibscope_samples::generate(&options, &mut file).expect("generate");
    Generated { folder: tempfile::tempdir().expect("folder"), bytes: file, totals }
}

impl Generated {
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
    analyze(paths, &Options::default(), &|_| {}).expect("analysis")
}

/// Messages, payload bytes, wire bytes, packets by endpoints as text.
type Matrix = BTreeMap<(String, String), [u64; 4]>;

fn matrix(profile: &Profile) -> Matrix {
    let mut cells = Matrix::new();
    for connection in profile.connections.iter().filter(|connection| connection.kind == Kind::Data) {
        let cell = cells.entry((connection.src.to_string(), connection.dst.to_string())).or_default();
        let traffic = connection.traffic;
        let values = [traffic.messages, traffic.payload_bytes, traffic.wire_bytes, traffic.packets];
        cell.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }
    cells
}

fn expected(totals: &Totals) -> Matrix {
    let cell = |(&(src, dst), pair): (&(u16, u16), &ibscope_samples::PairTotals)| {
        let values = [pair.messages, pair.payload_bytes, pair.wire_bytes, pair.packets];
        ((totals.endpoint(src), totals.endpoint(dst)), values)
    };
    totals.pairs.iter().map(cell).collect()
}

fn timeline_sums(profile: &Profile) -> Matrix {
    let mut cells = Matrix::new();
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
    for framing in [Framing::Native, Framing::Roce] {
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
    let generated = generate(Framing::Native, Traffic::Small, 2, 4 << 20);
    // One of the two copies of every 23rd packet, the first and the second by turns.
    let mut seen: HashMap<&[u8], usize> = HashMap::new();
    let mut packets = 0;
    let kept = generated.records().into_iter().filter(|record| {
        // The ERF header differs in time only: the packet starts behind it.
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
    let generated = generate(Framing::Native, Traffic::Small, 2, 4 << 20);
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

/// What the generator wrote into envelopes is what is found by rank, and what it sent again counts as in health.
#[test]
fn ranks_and_repeats_are_found_at_several_sinks() {
    for (stack, kind) in [(Stack::Ob1, Traffic::Small), (Stack::Ucx, Traffic::Small), (Stack::Ob1, Traffic::Big)] {
        let options = ibscope_samples::Options {
            kind,
            stack,
            bytes: 16 << 20,
            lids: 6,
            mirror: 2,
            loss_ppm: 10_000,
            sinks: 2,
            pattern: Some(Pattern::Ring),
            seed: 7,
            ..ibscope_samples::Options::default()
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
        // Ranks that only answer have packets and no messages.
        let found: HashSet<String> = rows.filter(|row| row.split(',').nth(2) != Some("0")).collect();
        let mut known = Vec::new();
        totals.write_ranks_csv(&mut known).expect("table");
        let known = String::from_utf8(known).expect("text");
        assert_eq!(found, known.lines().skip(1).map(str::to_owned).collect(), "{stack:?} {kind:?}");
    }
}

/// What finds no room is counted, and what does is as it would be without a limit, whatever the threads.
#[test]
fn connections_beyond_the_limit_are_counted_and_said() {
    let generated = generate(Framing::Native, Traffic::Small, 1, 4 << 20);
    let inputs = [generated.file("all.pcap", &generated.bytes)];
    let all = analyze(&inputs, &Options::default(), &|_| {}).expect("analysis");
    assert_eq!(all.coverage.not_followed, 0);
    let limited = |threads: usize| {
        let options = Options { threads, max_connections: 64, ..Options::default() };
        analyze(&inputs, &options, &|_| {}).expect("analysis")
    };
    let some = limited(1);
    assert_eq!(some, limited(3));
    let packets = |profile: &Profile| profile.connections.iter().map(|row| row.traffic.packets).sum::<u64>();
    assert!(some.connections.len() <= 64 && some.connections.len() < all.connections.len());
    assert!(some.coverage.not_followed > 0);
    assert_eq!(packets(&some) + some.coverage.not_followed, packets(&all));
    assert_eq!((some.coverage.infiniband, some.coverage.icrc_ok), (all.coverage.infiniband, all.coverage.icrc_ok));
    let of = |row: &ConnectionRow| (row.src, row.dst, row.service, row.dest_qp);
    for row in &some.connections {
        let same = all.connections.iter().find(|other| of(other) == of(row)).expect("the same connection");
        assert_eq!((row.traffic, row.repeats), (same.traffic, same.repeats));
    }
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
    let generated = generate(Framing::Roce, Traffic::Small, 2, 6 << 20);
    let mut inputs = vec![generated.file("all.pcap", &generated.bytes)];
    inputs.extend(crate::runs::named("ompi-rc-notrace-mixed-4x1").every_node());
    for (case, max_cells) in [("plenty", 1 << 20), ("few", 500)] {
        let mut first: Option<BTreeMap<String, Vec<u8>>> = None;
        for threads in [1, 2, 3, 16] {
            let options = Options { threads, max_cells, ..Options::default() };
            let profile = analyze(&inputs, &options, &|_| {}).expect("analysis");
            let place = generated.folder.path().join(format!("{case}-{threads}.ibp"));
            ibscope::pipeline::Writer::create(&place, &[]).expect("place").finish(&profile).expect("written");
            assert_eq!(ibscope::pipeline::load(&place).expect("read"), profile, "{case}, {threads} threads");
            let widened = profile.notes.iter().any(|note| note.contains("widened"));
            assert_eq!(widened, case == "few");
            // Both timelines were.
            let is_wider = |bin_ns: i64| bin_ns > ibscope::pipeline::DEFAULT_BIN_NS;
            let [traffic, times] = [profile.bin_ns, profile.latency_bin_ns].map(is_wider);
            assert_eq!((traffic, times), (widened, widened), "{case}");
            let written = files(&place);
            assert_eq!(written.len(), 11);
            match &first {
                None => first = Some(written),
                Some(first) => assert!(*first == written, "{case}: {threads} threads differ from 1"),
            }
        }
    }
}

/// A file that cannot be read on from somewhere in its midst is read up to there, whoever reads which part of it, and its digest is of the same bytes.
#[test]
fn any_number_of_threads_reads_a_damaged_file_alike() {
    let mut generated = generate(Framing::Native, Traffic::Small, 1, 9 << 20);
    let records = generated.records();
    let ends = records.iter().scan(HEADER_BYTES, |end, record| {
        *end += record.len();
        Some(*end)
    });
    let (index, at) = ends.enumerate().find(|(_, end)| *end > 7 << 20).expect("a record there");
    generated.bytes[at + 8..at + 12].fill(0xFF);
    let input = generated.file("damaged.pcap", &generated.bytes);
    let analysed = |threads| {
        let options = Options { threads, read_mpi: false, check_icrc: false, bin_ns: None, ..Options::default() };
        analyze(std::slice::from_ref(&input), &options, &|_| {}).expect("analysis")
    };
    let first = analysed(1);
    assert_eq!(first.coverage.records, index as u64 + 1);
    assert!(first.notes.iter().any(|note| note.contains(&format!("corrupt_input: the record at offset {at} "))));
    for threads in [2, 3, 16] {
        assert!(analysed(threads) == first, "{threads} threads differ from 1");
    }
}
