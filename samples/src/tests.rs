//! Compares the written bytes with the totals.
//!
//! The walk below parses the fields by the offsets of the formats and shares no code with the
//! generator; CRCs are checked with the parsers.

use std::collections::{BTreeMap, HashMap};
use std::io::ErrorKind;

use ibscope_parsers::frame::LinkType;
use ibscope_parsers::ib::crc::{CrcVerdict, verify_icrc, verify_vcrc};
use ibscope_parsers::link::{LinkContent, locate};

use crate::{PairTotals, SampleFraming, SampleKind, SampleOptions, SampleStack, SampleTotals, generate};

mod loss;
mod stacks;
mod truncation;

fn options(framing: SampleFraming, kind: SampleKind, mirror: u8) -> SampleOptions {
    SampleOptions { framing, kind, bytes: 400_000, lids: 5, mirror, seed: 42, ..SampleOptions::default() }
}

fn all() -> impl Iterator<Item = SampleOptions> {
    [SampleFraming::Native, SampleFraming::Roce].into_iter().flat_map(|framing| {
        [SampleKind::Small, SampleKind::Big]
            .into_iter()
            .flat_map(move |kind| [1, 2].map(move |mirror| options(framing, kind, mirror)))
    })
}

fn write(options: &SampleOptions) -> (Vec<u8>, SampleTotals) {
    let mut file = Vec::new();
    let totals = generate(options, &mut file).unwrap();
    (file, totals)
}

fn le32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().unwrap())
}

fn be16(bytes: &[u8]) -> u16 {
    u16::from_be_bytes([bytes[0], bytes[1]])
}

fn be24(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]])
}

/// A packet as parsed by the walk.
#[derive(Clone, Debug)]
struct WalkedPacket {
    time_ns: u64,
    data: Vec<u8>,
    src: u16,
    dst: u16,
    wire_bytes: u64,
    /// BTH through pad.
    transport: Vec<u8>,
}

impl WalkedPacket {
    fn opcode(&self) -> u8 {
        self.transport[0]
    }

    fn psn(&self) -> u32 {
        be24(&self.transport[9..])
    }

    fn ack_req(&self) -> bool {
        self.transport[8] == 0x80
    }

    /// Source, destination and destination queue pair.
    fn flow(&self) -> (u16, u16, u32) {
        (self.src, self.dst, be24(&self.transport[5..]))
    }

    fn extension_bytes(&self) -> usize {
        match self.opcode() {
            0x04 | 0x07 | 0x08 => 0,
            0x06 => 16,
            0x11 => 4,
            0x64 => 8,
            other => panic!("opcode {other:#x}"),
        }
    }

    fn payload(&self) -> &[u8] {
        let pad = usize::from(self.transport[1] >> 4 & 3);
        &self.transport[12 + self.extension_bytes()..self.transport.len() - pad]
    }

    fn payload_bytes(&self) -> u64 {
        self.payload().len() as u64
    }

    /// True for the last packet of a message.
    fn is_last(&self) -> bool {
        matches!(self.opcode(), 0x04 | 0x08 | 0x64)
    }
}

fn walk(framing: SampleFraming, file: &[u8]) -> Vec<WalkedPacket> {
    let (magic, link_type, per_fraction) = match framing {
        SampleFraming::Native => (0xA1B2_C3D4, 197, 1000),
        SampleFraming::Roce => (0xA1B2_3C4D, 1, 1),
    };
    assert_eq!((le32(file), le32(&file[20..])), (magic, link_type));
    let mut seen = Vec::new();
    let mut rest = &file[24..];
    while !rest.is_empty() {
        let length = le32(&rest[8..]) as usize;
        assert_eq!(le32(&rest[12..]) as usize, length);
        let time_ns = u64::from(le32(rest)) * 1_000_000_000 + u64::from(le32(&rest[4..])) * per_fraction;
        let data = &rest[16..16 + length];
        rest = &rest[16 + length..];
        let (src, dst, wire_bytes, transport) = match framing {
            SampleFraming::Native => {
                assert_eq!((data[8], data[9]), (21, 4));
                assert_eq!((usize::from(be16(&data[10..])), usize::from(be16(&data[14..]))), (length, length - 16));
                assert_eq!(usize::from(be16(&data[20..])) * 4 + 2, length - 16, "LRH PktLen");
                (be16(&data[22..]), be16(&data[18..]), length - 16, &data[24..length - 6])
            }
            SampleFraming::Roce => {
                assert_eq!(
                    (usize::from(be16(&data[16..])), usize::from(be16(&data[38..]))),
                    (length - 14, length - 34)
                );
                assert_eq!((be16(&data[26..]), be16(&data[30..]), be16(&data[36..])), (0x0A4D, 0x0A4D, 4791));
                let sum: u32 = data[14..34].chunks(2).map(|word| u32::from(be16(word))).sum();
                assert_eq!(sum % 0xFFFF, 0, "IPv4 header checksum");
                (be16(&data[28..]), be16(&data[32..]), length, &data[42..length - 4])
            }
        };
        let (data, transport) = (data.to_vec(), transport.to_vec());
        seen.push(WalkedPacket { time_ns, data, src, dst, wire_bytes: wire_bytes as u64, transport });
    }
    seen
}

/// Each packet once, in order of its first record; asserts that every packet has `mirror` records.
fn without_copies(seen: &[WalkedPacket], mirror: u8) -> Vec<WalkedPacket> {
    let mut times: HashMap<&[u8], u8> = HashMap::new();
    let mut once = Vec::new();
    for packet in seen {
        // Skip the ERF header: its timestamp differs between mirror copies.
        let of_packet = if packet.data.len() as u64 == packet.wire_bytes { 0 } else { 16 };
        let count = times.entry(&packet.data[of_packet..]).or_default();
        *count += 1;
        if *count == 1 {
            once.push(packet.clone());
        }
    }
    assert!(times.values().all(|&count| count == mirror));
    once
}

/// Totals by pair; each packet must be there once.
fn sums(packets: &[WalkedPacket]) -> BTreeMap<(u16, u16), PairTotals> {
    let mut pairs: BTreeMap<(u16, u16), PairTotals> = BTreeMap::new();
    for packet in packets {
        let pair = pairs.entry((packet.src, packet.dst)).or_default();
        pair.packets += 1;
        pair.wire_bytes += packet.wire_bytes;
        pair.payload_bytes += packet.payload_bytes();
        pair.messages += u64::from(packet.is_last());
    }
    pairs
}

#[test]
fn totals_equal_a_walk_of_the_file() {
    for options in all() {
        let (file, totals) = write(&options);
        assert_eq!(file.len() as u64, totals.file_bytes);
        assert!((options.bytes..options.bytes + 450_000).contains(&totals.file_bytes), "{options:?}");
        let seen = walk(options.framing, &file);
        assert_eq!(seen.len() as u64, totals.records);
        assert!(seen.is_sorted_by_key(|packet| packet.time_ns));
        assert_eq!(sums(&without_copies(&seen, options.mirror)), totals.pairs, "{options:?}");
    }
}

#[test]
fn packet_sizes_and_ack_shares_match_the_documentation() {
    for options in all() {
        let seen = walk(options.framing, &write(&options).0);
        let (acks, requests): (Vec<_>, Vec<_>) = seen.iter().partition(|packet| packet.opcode() == 0x11);
        if options.kind == SampleKind::Small {
            let sizes: Vec<u64> = requests.iter().map(|packet| packet.wire_bytes).collect();
            assert_eq!((sizes.iter().min(), sizes.iter().max()), (Some(&66), Some(&126)));
        } else {
            assert_eq!(requests.len(), 3 * acks.len());
            let full = requests.iter().filter(|packet| packet.payload_bytes() == 4096).count();
            assert!(full * 10 > requests.len() * 8, "{full} of {}", requests.len());
        }
    }
}

#[test]
fn crcs_are_valid() {
    for options in all() {
        let link_type = if options.framing == SampleFraming::Native { LinkType::ERF } else { LinkType::ETHERNET };
        let vcrc = if options.framing == SampleFraming::Native { CrcVerdict::Ok } else { CrcVerdict::None };
        for packet in walk(options.framing, &write(&options).0) {
            let located = locate(link_type, &packet.data, packet.data.len() as u32);
            let Ok(LinkContent::Infiniband(location)) = located else { panic!("{located:?}") };
            assert_eq!(verify_icrc(&packet.data, &location), CrcVerdict::Ok);
            assert_eq!(verify_vcrc(&packet.data, &location), vcrc);
        }
    }
}

/// PSNs rise by one per request of a queue pair; every ACK acknowledges the last request that asked
/// for one, with the number of complete messages; WRITE messages have the length in their RETH.
#[test]
fn connections_follow_the_rules() {
    for options in all() {
        let packets = without_copies(&walk(options.framing, &write(&options).0), options.mirror);
        // Per direction and queue pair: the last PSN, and the bytes of the message still to come.
        let mut requests: HashMap<(u16, u16, u32), (u32, u64)> = HashMap::new();
        let mut asked: HashMap<(u16, u16, u32), u32> = HashMap::new();
        let mut complete: HashMap<(u16, u16, u32), u32> = HashMap::new();
        let mut acks: HashMap<(u16, u16, u32), u32> = HashMap::new();
        for packet in &packets {
            let flow = packet.flow();
            if packet.opcode() == 0x11 {
                assert_eq!(packet.transport[12], 0x1F);
                let msn = be24(&packet.transport[13..]);
                if let Some(before) = acks.insert(flow, packet.psn()) {
                    assert!((1..=4).contains(&(packet.psn().wrapping_sub(before) & 0xFF_FFFF)));
                }
                // Some queue pair of the other side has just asked for exactly this ACK.
                let partner = asked
                    .iter()
                    .find(|&(&(src, dst, _), &psn)| (src, dst, psn) == (packet.dst, packet.src, packet.psn()));
                let partner = *partner.expect("an ACK that nobody asked for").0;
                asked.remove(&partner);
                assert_eq!(msn, complete.get(&partner).copied().unwrap_or(0));
                continue;
            }
            let (psn, open) = requests.entry(flow).or_insert((packet.psn().wrapping_sub(1) & 0xFF_FFFF, 0));
            assert_eq!(packet.psn(), (*psn + 1) & 0xFF_FFFF);
            *psn = packet.psn();
            match packet.opcode() {
                0x06 => {
                    assert_eq!(*open, 0);
                    let dma_len = u32::from_be_bytes(packet.transport[24..28].try_into().unwrap());
                    *open = u64::from(dma_len) - packet.payload_bytes();
                }
                0x07 => *open -= packet.payload_bytes(),
                0x08 => {
                    assert_eq!(*open, packet.payload_bytes());
                    *open = 0;
                }
                _ => assert_eq!(*open, 0),
            }
            *complete.entry(flow).or_default() += u32::from(matches!(packet.opcode(), 0x04 | 0x08));
            if packet.ack_req() {
                assert_eq!(asked.insert(flow, packet.psn()), None);
            }
        }
        assert!(requests.values().all(|&(_, open)| open == 0), "a message is not complete");
        assert!(asked.is_empty(), "a request is not acknowledged");
    }
}

#[test]
fn same_options_same_bytes() {
    for options in all() {
        let (file, totals) = write(&options);
        assert!((file.clone(), totals) == write(&options));
        assert!(file != write(&SampleOptions { seed: 43, ..options }).0);
    }
}

/// Mirroring does not change the traffic: with room for exactly as many packets, each has two
/// records, and most mirror copies have other packets in between.
#[test]
fn mirror_2_is_twice_the_packets() {
    for framing in [SampleFraming::Native, SampleFraming::Roce] {
        for kind in [SampleKind::Small, SampleKind::Big] {
            let (one, known_once) = write(&options(framing, kind, 1));
            let twice = SampleOptions { bytes: 2 * 400_000 - 24, ..options(framing, kind, 2) };
            let (two, known_twice) = write(&twice);
            assert_eq!(known_once.pairs, known_twice.pairs);
            assert_eq!(2 * known_once.records, known_twice.records);
            assert_eq!(2 * (one.len() - 24), two.len() - 24);
            let seen = walk(framing, &two);
            let adjacent = seen.windows(2).filter(|two| two[0].transport == two[1].transport).count();
            assert!(adjacent > 0 && adjacent < seen.len() / 4, "{adjacent} of {}", seen.len());
        }
    }
}

#[test]
fn options_out_of_range_are_rejected() {
    let good = options(SampleFraming::Native, SampleKind::Small, 1);
    let wrong = [
        SampleOptions { lids: 1, ..good.clone() },
        SampleOptions { lids: 0xC000, ..good.clone() },
        SampleOptions { mirror: 0, ..good.clone() },
        SampleOptions { mirror: 3, ..good.clone() },
        SampleOptions { loss_ppm: 500_001, ..good.clone() },
        SampleOptions { sinks: 0, ..good.clone() },
        SampleOptions { sinks: 2, ..good.clone() },
        SampleOptions { snaplen: 63, ..good.clone() },
        SampleOptions { qps: 0, ..good.clone() },
        SampleOptions { qps: 17, stack: SampleStack::Ucx, ..good.clone() },
        // 49150 nodes with 64 peers each: 1572800 pairs. A node has 64 x 300 000 queue pairs, more
        // than 24 bits can number.
        SampleOptions { lids: 0xBFFF, qps: 11, ..good.clone() },
        SampleOptions { lids: 2, qps: 0x100_0001, ..good.clone() },
        SampleOptions { lids: 3, qps: 0x80_0000, ..good.clone() },
    ];
    for options in wrong {
        let mut file = Vec::new();
        assert_eq!(generate(&options, &mut file).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert!(file.is_empty());
    }
    let (file, totals) = write(&SampleOptions { bytes: 0, ..good });
    assert_eq!((file.len(), totals.records, totals.pairs.len()), (24, 0, 0));
}

#[test]
fn totals_are_sorted_as_numbers() {
    let pair = PairTotals {
        messages: 1,
        payload_bytes: 2,
        wire_bytes: 3,
        packets: 4,
        retransmissions: 5,
        ..PairTotals::default()
    };
    let pairs = [((10, 9), pair), ((9, 10), pair), ((9, 300), pair)].into();
    let mut totals = SampleTotals { framing: SampleFraming::Native, records: 12, file_bytes: 100, pairs };
    let table = |totals: &SampleTotals| {
        let mut csv = Vec::new();
        totals.write_csv(&mut csv).unwrap();
        String::from_utf8(csv).unwrap()
    };
    let header = "src,dst,messages,payload_bytes,wire_bytes,packets,retransmitted_packets\n";
    assert_eq!(table(&totals), format!("{header}9,10,1,2,3,4,5\n9,300,1,2,3,4,5\n10,9,1,2,3,4,5\n"));
    totals.framing = SampleFraming::Roce;
    let rows = "10.77.0.9,10.77.0.10,1,2,3,4,5\n10.77.0.9,10.77.1.44,1,2,3,4,5\n10.77.0.10,10.77.0.9,1,2,3,4,5\n";
    assert_eq!(table(&totals), format!("{header}{rows}"));
}
