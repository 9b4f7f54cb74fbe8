//! Partial captures (some ports, the start of each packet), and many queue pairs.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{all, be16, le32, options, sums, walk, without_copies, write};
use crate::{SampleFraming, SampleKind, SampleOptions, generate_at_sinks};

/// A packet has a record at its sender's and its receiver's sink. It has two records at one sink
/// only if both nodes are there and packets are mirrored twice.
#[test]
fn sinks_record_the_packets_at_their_ports() {
    for good in all() {
        let options = SampleOptions { sinks: 3, lids: 8, ..good };
        let mut files = [Vec::new(), Vec::new(), Vec::new()];
        let totals = generate_at_sinks(&options, &mut files).unwrap();
        assert_eq!(files.iter().map(Vec::len).sum::<usize>() as u64, totals.file_bytes);
        assert!(totals.file_bytes >= options.bytes);
        // Eight nodes in three blocks: 1 to 3, 4 to 6, 7 and 8.
        let sink = |node: u16| usize::from(node > 3) + usize::from(node > 6);
        let mut times: HashMap<Vec<u8>, [u8; 3]> = HashMap::new();
        let mut once = Vec::new();
        let mut records = 0;
        for (at, file) in files.iter().enumerate() {
            let seen = walk(options.framing, file);
            assert!(seen.is_sorted_by_key(|packet| packet.time_ns));
            records += seen.len() as u64;
            for packet in seen {
                let start = if options.framing == SampleFraming::Native { 16 } else { 0 };
                let count = times.entry(packet.data[start..].to_vec()).or_default();
                if *count == [0; 3] {
                    once.push(packet.clone());
                }
                count[at] += 1;
            }
        }
        assert_eq!((records, sums(&once)), (totals.records, totals.pairs), "{options:?}");
        for packet in &once {
            let start = if options.framing == SampleFraming::Native { 16 } else { 0 };
            let mut expected = [0; 3];
            let (from, to) = (sink(packet.src), sink(packet.dst));
            expected[from] += 1;
            expected[to] += u8::from(from != to || options.mirror == 2);
            assert_eq!(times[&packet.data[start..]], expected, "{} -> {}", packet.src, packet.dst);
        }
    }
    let mut one = [Vec::new()];
    assert!(
        generate_at_sinks(&SampleOptions { sinks: 2, ..options(SampleFraming::Roce, SampleKind::Big, 1) }, &mut one)
            .is_err()
    );
}

/// Records are truncated at the limit and keep their original lengths, from which the totals
/// follow.
#[test]
fn truncated_records_keep_their_original_lengths() {
    for good in all() {
        for snaplen in [64, 96, 1000] {
            let options = SampleOptions { snaplen, ..good.clone() };
            let (file, totals) = write(&options);
            assert_eq!((le32(&file[16..]), file.len() as u64), (snaplen, totals.file_bytes));
            assert!((options.bytes..options.bytes + 450_000).contains(&totals.file_bytes));
            let mut packets: BTreeMap<(u16, u16), [u64; 4]> = BTreeMap::new();
            let mut rest = &file[24..];
            while !rest.is_empty() {
                let (captured, length) = (le32(&rest[8..]), le32(&rest[12..]));
                assert_eq!(captured, length.min(snaplen));
                let data = &rest[16..16 + captured as usize];
                rest = &rest[16 + captured as usize..];
                let (src, dst, wire_bytes, transport_at, after_bytes) = match options.framing {
                    SampleFraming::Native => {
                        assert_eq!(u32::from(be16(&data[14..])), length - 16);
                        (be16(&data[22..]), be16(&data[18..]), length - 16, 24, 6)
                    }
                    SampleFraming::Roce => (be16(&data[28..]), be16(&data[32..]), length, 42, 4),
                };
                let transport = &data[transport_at..];
                let extension_bytes = match transport[0] {
                    0x06 => 16,
                    0x11 => 4,
                    _ => 0,
                };
                let pad_bytes = u32::from(transport[1] >> 4 & 3);
                let payload_bytes = length - transport_at as u32 - 12 - extension_bytes - pad_bytes - after_bytes;
                let is_last = matches!(transport[0], 0x04 | 0x08);
                let pair = packets.entry((src, dst)).or_default();
                for (sum, value) in pair.iter_mut().zip([u32::from(is_last), payload_bytes, wire_bytes, 1]) {
                    *sum += u64::from(value);
                }
            }
            let observations = u64::from(options.mirror);
            let known = totals.pairs.iter().map(|(key, pair)| {
                (*key, [pair.messages, pair.payload_bytes, pair.wire_bytes, pair.packets].map(|sum| sum * observations))
            });
            assert_eq!(packets, known.collect(), "{options:?}");
        }
    }
}

/// Each of three nodes has the requested number of queue pairs with each other node, numbered
/// without a gap.
#[test]
fn queue_pairs_have_the_requested_number() {
    let options =
        SampleOptions { lids: 3, qps: 40, bytes: 1 << 20, ..options(SampleFraming::Native, SampleKind::Small, 1) };
    let seen = without_copies(&walk(options.framing, &write(&options).0), 1);
    let flows: BTreeSet<_> = seen.iter().map(super::WalkedPacket::flow).collect();
    assert_eq!(flows.len(), 3 * 2 * 40);
    for node in 1..=3 {
        let own: BTreeSet<u32> = flows.iter().filter(|(_, dst, _)| *dst == node).map(|(_, _, qpn)| *qpn).collect();
        assert_eq!((own.len(), own.last().unwrap() - own.first().unwrap()), (80, 79));
    }
}
