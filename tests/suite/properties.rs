//! Properties of any capture: the same result for every file format, for a wrong bit at any
//! position, and bounded resources for each megabyte.

use crate::memory::{MIB, run};
use crate::runs::{self, decompressed, is_roce};
use crate::tools::{Blocks, HEADER_BYTES, RawRecord, in_parallel, link_type, random, sample, walk};
use ibscope::model::Profile;
use ibscope::model::profile::Input;
use ibscope::pipeline::{AnalysisOptions, ClockOptions, analyze};
use ibscope_parsers::ib::Lrh;
use ibscope_parsers::link::LinkContent;
use ibscope_parsers::{frame::LinkType, link::locate};
use std::path::{Path, PathBuf};

fn profile_with(paths: &[PathBuf], options: &AnalysisOptions) -> Profile {
    analyze(paths, options, &|_| {}).unwrap_or_else(|error| panic!("{paths:?}: {error}"))
}

/// The profile of a capture in memory, without the properties of the file itself.
fn of(folder: &Path, name: &str, bytes: &[u8]) -> Profile {
    let path = folder.join(name);
    std::fs::write(&path, bytes).expect("written");
    let mut profile =
        profile_with(std::slice::from_ref(&path), &AnalysisOptions { threads: 1, ..AnalysisOptions::default() });
    for Input { name, length_bytes, xxh3_128, format, .. } in &mut profile.inputs {
        (*name, *length_bytes, *xxh3_128, *format) = Default::default();
    }
    std::fs::remove_file(path).expect("removed");
    profile
}

/// A little-endian classic file in the other byte order.
fn big_endian(file: &[u8]) -> Vec<u8> {
    let mut reversed = file.to_vec();
    let records = walk(file);
    let fields = [(0, 4), (4, 2), (6, 2), (8, 4), (12, 4), (16, 4), (20, 4)].into_iter();
    let of_records = records.iter().flat_map(|record| (0..4).map(|field| (record.place.start + 4 * field, 4)));
    fields.chain(of_records).for_each(|(at, bytes)| reversed[at..at + bytes].reverse());
    reversed
}

/// The records as consecutive sections of pcapng, each with an interface of its own, in the unit of
/// the file.
fn sections(file: &[u8], count: usize, is_big: impl Fn(usize) -> bool) -> Vec<u8> {
    let records = walk(file);
    let is_nano = file[..4] == 0xA1B2_3C4D_u32.to_le_bytes();
    let section = |index: usize| {
        let blocks = Blocks { big_endian: is_big(index) };
        let unit = if is_nano { 9 } else { 6 };
        let snaplen = u32::from_le_bytes([file[16], file[17], file[18], file[19]]);
        let mut section = [blocks.section(), blocks.interface(link_type(file), snaplen, &[(9, &[unit])])].concat();
        for record in &records[records.len() * index / count..records.len() * (index + 1) / count] {
            let ticks = record.time_ns / if is_nano { 1 } else { 1000 };
            section.extend(blocks.packet(0, ticks.cast_unsigned(), record.data(file), record.original_bytes));
        }
        section
    };
    (0..count).flat_map(section).collect()
}

#[test]
fn byte_orders_and_joined_files_give_the_same_profile() {
    let folder = tempfile::tempdir().expect("folder");
    for name in ["perftest-read-lat", "ucx-rc-ring2.node1", "ucx-ud-ring2", "openib-mixed-4x1"] {
        let file = decompressed(&sample(name));
        let whole = of(folder.path(), name, &file);
        assert!(whole.coverage.infiniband > 100);
        for (form, bytes) in [
            ("big-endian", big_endian(&file)),
            ("pcapng", sections(&file, 1, |_| false)),
            ("big-endian pcapng", sections(&file, 1, |_| true)),
            ("three files of pcapng, one behind the other", sections(&file, 3, |index| index == 1)),
        ] {
            let other = of(folder.path(), name, &bytes);
            assert!(other == whole, "{name} as {form}: {:?} {:?}", other.coverage, whole.coverage);
        }
    }
}

/// The packets of a capture in two files that are interleaved in time; all packets of a pair of
/// endpoints are in one file.
#[test]
fn pairs_dealt_to_several_files_add_up() {
    let run = runs::named("ompi-rc-notrace-mixed-4x1");
    let folder = tempfile::tempdir().expect("folder");
    let file = decompressed(&run.sink());
    let ends = |record: &RawRecord| {
        // SLID and DLID, after the ERF header of 16 bytes.
        let [dlid, slid] = [18, 22].map(|at| u16::from_be_bytes([record.data(&file)[at], record.data(&file)[at + 1]]));
        u32::from(dlid.min(slid)) * 7 + u32::from(dlid.max(slid))
    };
    let dealt = |own: u32| {
        let path = folder.path().join(format!("{own}.pcap"));
        let records = walk(&file).into_iter().filter(|record| ends(record) % 3 == own);
        let bytes = records.flat_map(|record| file[record.place].to_vec());
        std::fs::write(&path, file[..HEADER_BYTES].iter().copied().chain(bytes).collect::<Vec<u8>>()).expect("part");
        path
    };
    let parts = [0, 1, 2].map(dealt);
    let clocks = ClockOptions { align: false, ..ClockOptions::default() };
    let options = AnalysisOptions { clocks, ..AnalysisOptions::default() };
    let (whole, together) = (profile_with(&[run.sink()], &options), profile_with(&parts, &options));
    assert!(parts.iter().all(|part| std::fs::metadata(part).expect("part").len() > 10_000));
    assert_eq!(together.connections, whole.connections);
    assert_eq!(together.timeline, whole.timeline);
    assert_eq!(together.health, whole.health);
    assert_eq!(together.coverage.records, whole.coverage.records);
    assert_eq!(together.ranks, whole.ranks);
}

/// A bit to flip in a capture.
struct Flip {
    /// Offset in the file, and bit.
    at: usize,
    bit: u8,
    /// True for a bit that the ICRC leaves out because it changes on the way.
    is_variant: bool,
}

/// Random bits of packets from LRH to ICRC, or from BTH to ICRC for RoCE.
fn flips(file: &[u8], records: &[RawRecord], count: usize) -> Vec<Flip> {
    let mut random = random(file.len() as u64);
    let flip = |_| {
        let record = &records[random(records.len())];
        let data = record.data(file);
        let found = locate(LinkType(link_type(file)), data, record.original_bytes);
        let Ok(LinkContent::Infiniband(location)) = found else { panic!("{found:?}") };
        let inside = random(location.ib_bytes);
        let bit = random(8) as u8;
        let is_native = location.start == 16;
        let bth = if is_native { Lrh::LEN } else { 0 };
        // VL and reserved bits of the LRH; FECN, BECN and reserved bits of the BTH.
        let is_variant = is_native && inside == 0 && bit >= 4 || inside == bth + 4;
        Flip { at: record.place.start + 16 + location.start + inside, bit, is_variant }
    };
    (0..count).map(flip).collect()
}

/// A wrong bit is either found by the packet's checksum or changes the packet's identity. It never
/// changes the number of records or other packets.
#[test]
fn a_flipped_bit_costs_one_packet() {
    let folder = tempfile::tempdir().expect("folder");
    for name in ["perftest-read-lat", "ucx-rc-ring2.node1"] {
        let mut file = decompressed(&sample(name));
        if link_type(&file) == 1 {
            let roce = walk(&file).into_iter().filter(|record| is_roce(record.data(&file)));
            let bytes = roce.take(300).flat_map(|record| file[record.place].to_vec());
            file = file[..HEADER_BYTES].iter().copied().chain(bytes).collect();
        }
        let records = walk(&file);
        let last = records[records.len().min(300) - 1].place.end;
        let (file, records) = (&file[..last], &records[..records.len().min(300)]);
        let whole = of(folder.path(), &format!("{name}.pcap"), file);
        assert_eq!((whole.coverage.icrc_ok, whole.coverage.icrc_bad), (records.len() as u64, 0));
        in_parallel(&flips(file, records, 400), |index, flip| {
            let mut bytes = file.to_vec();
            bytes[flip.at] ^= 1 << flip.bit;
            let case = format!("{name}: byte {} bit {}", flip.at, flip.bit);
            let found = of(folder.path(), &format!("{name}-{index}.pcap"), &bytes).coverage;
            let others = found.other_frames.values().chain(found.undecoded.values()).sum::<u64>();
            assert_eq!(found.records, records.len() as u64, "{case}");
            assert_eq!(found.records, found.infiniband + others, "{case}");
            assert!(found.icrc_ok + 1 >= whole.coverage.icrc_ok, "{case}");
            if !flip.is_variant {
                assert_eq!(found.icrc_ok + 1, whole.coverage.icrc_ok, "{case}: {found:?}");
            }
        });
    }
}

/// Opcode, PSN, receiver's queue pair, extension headers, source and destination.
type PacketTuple = (u8, u32, u32, Vec<u8>, (u16, u16));

/// A megabyte of packets, each of which causes as much work as possible.
struct HostileCase {
    name: &'static str,
    /// The packet with this number.
    packet: fn(u32) -> PacketTuple,
    /// Nanoseconds between two packets.
    step_ns: u64,
}

const THERE: (u16, u16) = (1, 2);
const BACK: (u16, u16) = (2, 1);

/// `RETH` of a READ of this many bytes.
fn reth(number: u32, bytes: u32) -> Vec<u8> {
    [&u64::from(number).to_be_bytes()[..], &[0; 4], &bytes.to_be_bytes()].concat()
}

/// The worst cases for connections, gaps, requests, responses, congestion flags and bins.
const HOSTILE: [HostileCase; 9] = [
    HostileCase {
        name: "connections",
        packet: |n| (4, 0, n + 2, Vec::new(), (1 + (n % 40_000) as u16, 2)),
        step_ns: 1,
    },
    HostileCase { name: "holes", packet: |n| (4, n * 2, 5, Vec::new(), THERE), step_ns: 1 },
    HostileCase {
        name: "holes backwards",
        packet: |n| (4, 0u32.wrapping_sub(n * 2), 5, Vec::new(), THERE),
        step_ns: 1,
    },
    HostileCase { name: "beginnings", packet: |n| (0, n * 2, 5, Vec::new(), THERE), step_ns: 1 },
    HostileCase { name: "absurd reads", packet: |n| (0x0C, n * 4, 5, reth(n, u32::MAX), THERE), step_ns: 1 },
    HostileCase {
        name: "answers to nothing",
        packet: |n| {
            if n % 2 == 0 { (0x0C, n, 5, reth(n, 64), THERE) } else { (0x10, n * 7919, 9, vec![0x1F, 0, 0, 1], BACK) }
        },
        step_ns: 1,
    },
    HostileCase {
        name: "notifications",
        packet: |n| if n % 2 == 0 { (4, n, 5, Vec::new(), THERE) } else { (0x81, 0, 9, vec![0; 16], BACK) },
        step_ns: 1,
    },
    HostileCase { name: "bins", packet: |n| (4, 0, n + 2, Vec::new(), THERE), step_ns: 100_000_000_000 },
    HostileCase {
        name: "datagrams",
        packet: |n| (0x64, n, 5, [0x1EE7_A330_u32.to_be_bytes(), (n & 0xFF_FFFF).to_be_bytes()].concat(), THERE),
        step_ns: 1,
    },
];

impl HostileCase {
    /// The capture: nanoseconds, native, checksums 0.
    fn bytes(&self) -> Vec<u8> {
        let mut file: Vec<u8> =
            [0xA1B2_3C4D, 0x0004_0002, 0, 0, 0xFFFF, 247u32].into_iter().flat_map(u32::to_le_bytes).collect();
        for number in 0.. {
            let (opcode, psn, dest_qp, extension, (src, dst)) = (self.packet)(number);
            let ib_bytes = Lrh::LEN + 12 + extension.len() + 4;
            let mut packet = vec![0, 2];
            packet.extend([dst, (ib_bytes / 4) as u16, src].into_iter().flat_map(u16::to_be_bytes));
            packet.extend([opcode, 0, 0xFF, 0xFF]);
            packet.extend([dest_qp & 0xFF_FFFF, psn & 0xFF_FFFF].into_iter().flat_map(u32::to_be_bytes));
            packet.extend(extension);
            packet.resize(ib_bytes + 2, 0);
            if file.len() + 16 + packet.len() > MIB as usize {
                return file;
            }
            let time_ns = 1_000_000_000 + u64::from(number) * self.step_ns;
            let length = packet.len() as u64;
            let head = [time_ns / 1_000_000_000, time_ns % 1_000_000_000, length, length];
            file.extend(head.into_iter().flat_map(|word| (word as u32).to_le_bytes()));
            file.extend(packet);
        }
        file
    }
}

/// Maximum memory for a megabyte beyond that for a few packets: 256 bytes for each of its bytes.
const MAX_BYTES: u64 = 256 * MIB;

#[test]
fn a_hostile_mebibyte_stays_within_bounds() {
    let folder = tempfile::tempdir().expect("folder");
    let page = folder.path().join("page.html");
    let page = page.to_str().expect("path");
    for hostile in HOSTILE {
        let path = folder.path().join(format!("{}.pcap", hostile.name));
        std::fs::write(&path, hostile.bytes()).expect("written");
        for arguments in [&["analyze"][..], &["messages", "--format", "csv"], &["report", "-o", page]] {
            let (peak_bytes, _) = run(&[arguments, &["--threads", "2"]].concat(), &path);
            assert!(peak_bytes < MAX_BYTES, "{} {arguments:?}: {} MiB", hostile.name, peak_bytes / MIB);
        }
    }
}
