//! `ibscope_parsers::frame` compared with pcap-parser, record by record.

use crate::recorded::profile;
use crate::runs;
use crate::tools::{Blocks, RawRecord, as_pcapng, random, sample, samples, walk};
use ibscope::model::TrustVerdict;
use ibscope_parsers::frame::{CaptureItem, Framing};
use pcap_parser::traits::PcapNGPacketBlock as _;
use pcap_parser::{Block, PcapBlockOwned, PcapNGSlice, parse_pcap_frame, parse_pcap_frame_be, parse_pcap_header};
use rayon::prelude::*;
use std::fmt::Display;

/// A record as both readers return it.
#[derive(Debug, PartialEq, Eq)]
struct ComparedRecord<'a> {
    time_ns: Option<i64>,
    link_type: u16,
    data: &'a [u8],
    original_bytes: u32,
}

/// Asserts equality, and names the first record that differs.
fn same(ours: &[ComparedRecord<'_>], theirs: &[ComparedRecord<'_>], case: &dyn Display) {
    for (index, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        assert_eq!(ours, theirs, "{case}: record {index}");
    }
    assert_eq!(ours.len(), theirs.len(), "{case}: records");
}

fn ours(file: &[u8]) -> Vec<ComparedRecord<'_>> {
    let (mut framing, mut at) = Framing::detect(file).expect("a capture file");
    let mut found = Vec::new();
    while at < file.len() {
        let (item, length) = framing.next(&file[at..]).expect("a record or block");
        if let CaptureItem::Record(record) = item {
            found.push(ComparedRecord {
                time_ns: record.time_ns,
                link_type: record.link_type.0,
                data: record.data,
                original_bytes: record.original_bytes,
            });
        }
        at += length;
    }
    assert_eq!(at, file.len());
    found
}

fn classic(file: &[u8]) -> Vec<ComparedRecord<'_>> {
    let (mut rest, header) = parse_pcap_header(file).expect("header");
    let parse = if header.is_bigendian() { parse_pcap_frame_be } else { parse_pcap_frame };
    let unit_ns = if header.is_nanosecond_precision() { 1 } else { 1000 };
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (left, record) = parse(rest).expect("record");
        found.push(ComparedRecord {
            time_ns: Some(i64::from(record.ts_sec) * 1_000_000_000 + i64::from(record.ts_usec) * unit_ns),
            link_type: header.network.0 as u16,
            data: record.data,
            original_bytes: record.origlen,
        });
        rest = left;
    }
    found
}

/// Only decimal units down to 10^-9 s, non-negative offsets, and seconds of 32 bits: pcap-parser
/// 0.17 returns wrong times for others.
fn sections(file: &[u8]) -> Vec<ComparedRecord<'_>> {
    let mut interfaces = Vec::new();
    let mut found = Vec::new();
    for block in PcapNGSlice::from_slice(file).expect("section header") {
        let PcapBlockOwned::NG(block) = block.expect("block") else { panic!("not pcapng") };
        match block {
            Block::SectionHeader(_) => interfaces.clear(),
            Block::InterfaceDescription(interface) => interfaces.push((
                interface.linktype.0 as u16,
                interface.ts_offset().cast_unsigned(),
                interface.ts_resolution().expect("a decimal unit"),
            )),
            Block::EnhancedPacket(packet) => {
                let (link_type, offset_s, per_second) = interfaces[packet.if_id as usize];
                let (seconds, fraction) = packet.decode_ts(offset_s, per_second);
                let fraction_ns = u128::from(fraction) * 1_000_000_000 / u128::from(per_second);
                // The padded data outlive the block; the result of `packet_data` does not.
                found.push(ComparedRecord {
                    time_ns: Some(i64::from(seconds) * 1_000_000_000 + fraction_ns as i64),
                    link_type,
                    data: &packet.data[..packet.packet_data().len()],
                    original_bytes: packet.origlen,
                });
            }
            Block::SimplePacket(packet) => found.push(ComparedRecord {
                time_ns: None,
                link_type: interfaces[0].0,
                data: &packet.data[..packet.packet_data().len()],
                original_bytes: packet.origlen,
            }),
            _ => {}
        }
    }
    found
}

#[test]
fn classic_files_are_split_like_in_pcap_parser() {
    let sinks = ["ompi-openib-bt.S-4x1", "ompi-rc-mixed-2x2", "perf-atomic-lat"].map(|name| runs::named(name).sink());
    let paths: Vec<_> = samples().into_iter().chain(sinks).collect();
    paths.par_iter().for_each(|path| {
        let file = runs::decompressed(path);
        let found = ours(&file);
        assert!(found.len() > 100, "{}", path.display());
        same(&found, &classic(&file), &path.display());
    });
}

#[test]
fn big_endian_files_are_split_like_in_pcap_parser() {
    for name in ["perftest-read-lat", "ucx-rc-ring2.node1"] {
        let little = runs::decompressed(&sample(name));
        let big = big_endian(&little);
        let found = ours(&big);
        same(&found, &classic(&big), &name);
        same(&found, &ours(&little), &format_args!("{name} in the other byte order"));
    }
}

/// The same classic file with all framing numbers in big-endian order.
fn big_endian(file: &[u8]) -> Vec<u8> {
    let mut reversed = file.to_vec();
    let mut reverse = |at: usize, bytes: usize| reversed[at..at + bytes].reverse();
    for (at, bytes) in [(0, 4), (4, 2), (6, 2), (8, 4), (12, 4), (16, 4), (20, 4)] {
        reverse(at, bytes);
    }
    for record in crate::tools::walk(file) {
        (0..4).for_each(|field| reverse(record.place.start + 4 * field, 4));
    }
    reversed
}

#[test]
fn a_sample_rewritten_as_pcapng_has_the_same_records() {
    for name in ["perftest-read-lat", "ucx-rc-ring2.node1", "ucx-ud-ring2"] {
        let plain = runs::decompressed(&sample(name));
        let pcapng = as_pcapng(&plain);
        let found = ours(&pcapng);
        same(&found, &sections(&pcapng), &name);
        same(&found, &ours(&plain), &format_args!("{name} as pcap"));
    }
}

const LINK_TYPES: [u16; 5] = [1, 101, 113, 197, 247];
/// Powers of ten for which pcap-parser's 32-bit fraction is large enough.
const UNITS: [u8; 5] = [0, 3, 6, 7, 9];

/// A file of sections in either byte order, with interfaces of every unit and link type, and blocks
/// of all kinds.
fn hand_made(seed: u64) -> Vec<u8> {
    let mut random = random(seed);
    let mut file = Vec::new();
    for section in 0..4 {
        let blocks = Blocks { big_endian: (section + seed).is_multiple_of(2) };
        file.extend(blocks.section());
        let mut units = Vec::new();
        for _ in 0..=random(4) {
            let (unit, link_type) = (UNITS[random(UNITS.len())], LINK_TYPES[random(LINK_TYPES.len())]);
            // pcap-parser reads the offset as little-endian in every section.
            let offset_s = if blocks.big_endian { 0 } else { (random(3) * 3600) as u64 };
            let name = [b'i', b'b', b'0', b'0', b'0'];
            let options = [(2, &name[..random(6)]), (9, &[unit][..]), (14, &offset_s.to_le_bytes())];
            // Without `if_tsresol` the unit is a microsecond.
            let (options, unit) = if random(4) == 0 { (&options[..1], 6) } else { (&options[..], unit) };
            file.extend(blocks.interface(link_type, 0, options));
            units.push(unit);
        }
        for _ in 0..40 {
            let data: Vec<u8> = (0..random(80)).map(|_| random(256) as u8).collect();
            let original_bytes = (data.len() + random(3) * 100) as u32;
            match random(8) {
                0 => file.extend(blocks.simple_packet(&data, data.len() as u32)),
                // pcap-parser rejects an unknown block without a body.
                1 => file.extend(blocks.block(0x0BAD, &[&data[..], &[0; 4]].concat())),
                // Name resolution without records, and interface statistics without counters.
                2 => file.extend(blocks.block(4, &[0; 4])),
                3 => file.extend(blocks.block(5, &[0; 12])),
                _ => {
                    let interface = random(units.len());
                    let second = 10u64.pow(u32::from(units[interface]));
                    let ticks = random(1 << 32) as u64 * second + random(usize::MAX) as u64 % second;
                    file.extend(blocks.packet(interface as u32, ticks, &data, original_bytes));
                }
            }
        }
    }
    file
}

#[test]
fn hand_made_sections_are_split_like_in_pcap_parser() {
    for seed in 0..500 {
        let file = hand_made(seed);
        let found = ours(&file);
        assert!(found.len() > 50, "seed {seed}: {} packets", found.len());
        same(&found, &sections(&file), &format_args!("seed {seed}"));
    }
}

#[test]
fn times_beyond_pcap_parser_are_exact() {
    let blocks = Blocks { big_endian: false };
    let time_ns = |options: &[(u16, &[u8])], ticks: u64| {
        let parts = [blocks.section(), blocks.interface(247, 0, options), blocks.packet(0, ticks, &[1, 2, 3], 3)];
        ours(&parts.concat())[0].time_ns.expect("time")
    };
    // Units of 2^-32 s: a second and a half.
    assert_eq!(time_ns(&[(9, &[0x80 | 32])], 3 << 31), 1_500_000_000);
    // A negative offset in seconds.
    assert_eq!(time_ns(&[(9, &[9]), (14, &(-10_i64).to_le_bytes())], 1), -9_999_999_999);
    // Units of 10^-12 s, rounded down.
    assert_eq!(time_ns(&[(9, &[12])], 1_700_000_123_456_789_999), 1_700_000_123_456_789);
    // A big-endian offset.
    let big = Blocks { big_endian: true };
    let parts = [big.section(), big.interface(247, 0, &[(14, &3600_i64.to_be_bytes())]), big.packet(0, 1, &[1], 1)];
    assert_eq!(ours(&parts.concat())[0].time_ns, Some(3_600_000_001_000));
    // Seconds above 32 bits: the year 2200.
    assert_eq!(time_ns(&[(9, &[6])], 7_258_118_400_000_001), 7_258_118_400_000_001_000);
}

/// A record as an enhanced packet block of interface 0, with a drop count (option 4), or as an obsolete
/// packet block (type 2), whose second field is a drop count.
fn with_drops(file: &[u8], record: &RawRecord, (is_obsolete, drops): (bool, u16)) -> Vec<u8> {
    let data = record.data(file);
    let time_ns = record.time_ns.cast_unsigned();
    let first = if is_obsolete { u32::from(drops) << 16 } else { 0 };
    let head = [first, (time_ns >> 32) as u32, time_ns as u32, data.len() as u32, record.original_bytes];
    let mut body = [&head.map(u32::to_le_bytes).concat(), data].concat();
    body.resize(body.len().next_multiple_of(4), 0);
    if !is_obsolete && drops > 0 {
        body.extend([&[4, 0, 8, 0][..], &u64::from(drops).to_le_bytes(), &[0; 4]].concat());
    }
    Blocks { big_endian: false }.block(if is_obsolete { 2 } else { 6 }, &body)
}

/// A capture of every packet, and the same records with statements of dropped packets.
#[test]
fn a_capture_that_states_drops_is_not_complete() {
    let whole = runs::decompressed(&runs::named("ompi-openib-ring2").sink());
    let records = walk(&whole);
    let middle = records.len() / 2;
    let blocks = Blocks { big_endian: false };
    let start = [blocks.section(), blocks.interface(crate::tools::link_type(&whole), 0, &[(9, &[9])])].concat();
    // The obsolete block for all records, so that drops are the only difference.
    let packets = |range: std::ops::Range<usize>, (is_obsolete, drops): (bool, u16)| -> Vec<u8> {
        let block = |at: usize| with_drops(&whole, &records[at], (is_obsolete, if at == middle { drops } else { 0 }));
        range.flat_map(block).collect()
    };
    let all = |form| packets(0..records.len(), form);
    let statistics = |if_dropped: u64| {
        let counter = [&[5, 0, 8, 0][..], &if_dropped.to_le_bytes(), &[0; 4]].concat();
        blocks.block(5, &[vec![0; 12], counter].concat())
    };
    let halves = [packets(0..middle, (false, 0)), packets(middle..records.len(), (false, 0))];
    // `lctr` of the ERF header: bytes 12 and 13.
    let mut erf = whole.clone();
    let header = records[middle].place.start + 16;
    erf[header + 12..header + 14].copy_from_slice(&[0, 5]);
    let erf_as_pcapng = |drops| {
        let blocks: Vec<u8> = (0..records.len())
            .flat_map(|at| with_drops(&erf, &records[at], (false, if at == middle { drops } else { 0 })))
            .collect();
        [start.clone(), blocks].concat()
    };
    let cases = [
        ("pcap", whole.clone(), 0),
        ("loss counter of ERF", erf.clone(), 5),
        ("the same as pcapng", erf_as_pcapng(0), 5),
        ("the same with epb_dropcount", erf_as_pcapng(5), 5),
        ("enhanced packets", [start.clone(), all((false, 0))].concat(), 0),
        ("epb_dropcount", [start.clone(), all((false, 5))].concat(), 5),
        ("obsolete packets", [start.clone(), all((true, 0))].concat(), 0),
        ("drops count", [start.clone(), all((true, 5))].concat(), 5),
        ("unknown drops count", [start.clone(), all((true, 0xFFFF))].concat(), 0),
        ("statistics of the same drops", [start.clone(), all((false, 5)), statistics(7)].concat(), 7),
        (
            "two sections",
            [&start, &halves[0], &statistics(100), &start, &halves[1], &statistics(60)].map(Vec::as_slice).concat(),
            160,
        ),
    ];
    let folder = tempfile::tempdir().expect("folder");
    for (name, bytes, drops) in cases {
        let path = folder.path().join("drops.pcapng");
        std::fs::write(&path, bytes).expect("written");
        let found = profile(&[path]);
        assert_eq!(found.coverage.records, records.len() as u64, "{name}");
        assert_eq!(found.coverage.interface_drops, drops, "{name}");
        assert_eq!(found.trust.verdict == TrustVerdict::Complete, drops == 0, "{name}: {:?}", found.trust);
        let reason = format!("{drops} packets were dropped by the capturing interfaces");
        assert_eq!(found.trust.reasons.contains(&reason), drops > 0, "{name}: {:?}", found.trust.reasons);
    }
}
