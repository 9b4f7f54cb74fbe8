//! Checks envelopes by the offsets of the formats, and with the parsers, which must recognize the
//! library and no other.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ibscope_parsers::mpi::{Carrier, LibraryStack, MpiMessagePart, Payload, recognize, udcm};

use super::{WalkedPacket, be24, options, sums, walk, without_copies, write};
use crate::{SampleFraming, SampleKind, SampleOptions, SampleStack, SampleTotals};

fn jobs() -> impl Iterator<Item = SampleOptions> {
    let stacks = [SampleStack::Ob1, SampleStack::Ucx].into_iter();
    let of_framing = |framing| [SampleKind::Small, SampleKind::Big].map(|kind| options(framing, kind, 2));
    stacks.flat_map(move |stack| {
        let good = [SampleFraming::Native, SampleFraming::Roce].into_iter().flat_map(of_framing);
        good.map(move |good| SampleOptions { stack, bytes: 4 << 20, ..good })
    })
}

fn packets(options: &SampleOptions) -> (Vec<WalkedPacket>, SampleTotals) {
    let (file, totals) = write(options);
    (without_copies(&walk(options.framing, &file), options.mirror), totals)
}

fn le<const N: usize>(payload: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes[..N].copy_from_slice(&payload[at..at + N]);
    u64::from_le_bytes(bytes)
}

/// Context, rank, tag and length of the MPI message that a SEND starts.
fn envelope(stack: SampleStack, payload: &[u8]) -> Option<[u64; 4]> {
    let data_bytes = |header: usize| (payload.len() - header) as u64;
    match (stack, payload[0]) {
        (SampleStack::Ob1, 0x41) => Some((18, data_bytes(18))),
        (SampleStack::Ob1, 0x42) => Some((36, le::<8>(payload, 20))),
        (SampleStack::Ucx, 2) => Some((9, data_bytes(9))),
        (SampleStack::Ucx, 9) => Some((42, le::<8>(payload, 33))),
        _ => None,
    }
    .map(|(header_bytes, mpi_bytes)| {
        assert!(payload.len() >= header_bytes);
        if stack == SampleStack::Ob1 {
            assert_eq!((payload[0], payload[5]), (payload[4], 0));
            return [le::<2>(payload, 6), le::<4>(payload, 8), le::<4>(payload, 12), mpi_bytes];
        }
        let tag = le::<8>(payload, 1);
        [tag & 0xF_FFFF, tag >> 20 & 0xF_FFFF, tag >> 40, mpi_bytes]
    })
}

#[test]
fn totals_of_ranks_equal_the_envelopes() {
    // Ranks of 13 bits span three bytes of a UCX tag.
    let large = jobs()
        .filter(|options| options.kind == SampleKind::Small)
        .map(|options| SampleOptions { lids: 5000, ..options });
    for options in jobs().chain(large) {
        let (packets, totals) = packets(&options);
        let mut expected = sums(&packets);
        let mut sequences: HashMap<(u16, u16), BTreeSet<u64>> = HashMap::new();
        for packet in packets.iter().filter(|packet| packet.opcode() == 0x04) {
            let Some([context, rank, tag, mpi_bytes]) = envelope(options.stack, packet.payload()) else { continue };
            assert_eq!((context, rank), (0, u64::from(packet.src) - 1));
            assert!((100..108).contains(&tag));
            let key = (packet.src, packet.dst);
            let pair = expected.get_mut(&key).unwrap();
            pair.mpi_messages += 1;
            pair.mpi_bytes += mpi_bytes;
            if options.stack == SampleStack::Ob1 {
                assert!(sequences.entry(key).or_default().insert(le::<2>(packet.payload(), 16)), "twice");
            }
        }
        assert_eq!(expected, totals.pairs, "{options:?}");
        // Sequence numbers of ob1 start at 1 for each receiver and have no gaps.
        for (key, numbers) in sequences {
            assert_eq!(numbers, (1..=totals.pairs[&key].mpi_messages).collect());
        }
        let mut table = Vec::new();
        totals.write_ranks_csv(&mut table).unwrap();
        let messages = totals.pairs.values().map(|pair| pair.mpi_messages);
        assert_eq!(String::from_utf8(table).unwrap().lines().count(), 1 + messages.filter(|&count| count > 0).count());
    }
}

/// Every offered request is granted, granted memory is written, and the written data are reported
/// as done. The offsets of the ids depend on the library.
#[test]
fn big_messages_use_a_rendezvous() {
    for options in jobs().filter(|options| options.kind == SampleKind::Big) {
        let (packets, totals) = packets(&options);
        let is_ob1 = options.stack == SampleStack::Ob1;
        let mut offered: HashMap<u64, (u16, u16, u64)> = HashMap::new();
        let mut granted: HashMap<u64, (u16, u16, u64, u64)> = HashMap::new();
        let mut written: HashMap<(u16, u16, u64), u64> = HashMap::new();
        let mut done = 0;
        for packet in &packets {
            let (key, payload) = ((packet.src, packet.dst), packet.payload());
            if packet.opcode() == 0x06 {
                let address = u64::from_be_bytes(packet.transport[12..20].try_into().unwrap());
                let bytes = u32::from_be_bytes(packet.transport[24..28].try_into().unwrap());
                written.insert((key.0, key.1, address), bytes.into());
            }
            if packet.opcode() != 0x04 {
                continue;
            }
            match (is_ob1, payload[0]) {
                (true, 0x42) | (false, 9) => {
                    let request = le::<8>(payload, if is_ob1 { 28 } else { 17 });
                    let [.., mpi_bytes] = envelope(options.stack, payload).unwrap();
                    assert_eq!(offered.insert(request, (key.0, key.1, mpi_bytes)), None);
                }
                (true, 0x48) | (false, 11) => {
                    let (request, reply, address, bytes) = if is_ob1 { (12, 20, 44, 52) } else { (1, 9, 17, 25) };
                    let [request, reply, address, bytes] =
                        [request, reply, address, bytes].map(|at| le::<8>(payload, at));
                    assert_eq!(offered.remove(&request), Some((key.1, key.0, bytes)));
                    assert_eq!(granted.insert(reply, (key.1, key.0, address, bytes)), None);
                }
                (true, 0x49) | (false, 16) => {
                    let reply = le::<8>(payload, if is_ob1 { 20 } else { 1 });
                    let (src, dst, address, bytes) = granted.remove(&reply).expect("nothing was granted");
                    assert_eq!((src, dst), key);
                    assert_eq!(written.remove(&(src, dst, address)), Some(bytes));
                    done += 1;
                }
                (false, 1) => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(offered.is_empty() && granted.is_empty() && written.is_empty());
        assert_eq!(done, totals.pairs.values().map(|pair| pair.mpi_messages).sum::<u64>());
    }
}

/// All envelopes are recognized as the stack's, data of RDMA WRITEs as no library's, and no payload
/// as another library's.
#[test]
fn the_parsers_find_the_stack() {
    for options in jobs() {
        let form = if options.stack == SampleStack::Ob1 { LibraryStack::Ob1 } else { LibraryStack::UcxVerbs };
        for packet in packets(&options).0 {
            let carrier = match packet.opcode() {
                0x04 => Carrier::Send,
                0x06 => Carrier::Write(u32::from_be_bytes(packet.transport[24..28].try_into().unwrap())),
                0x64 => Carrier::Datagram(u32::from_be_bytes(packet.transport[12..16].try_into().unwrap())),
                _ => continue,
            };
            let head = recognize(carrier, &Payload::whole(packet.payload()), Some(form));
            let is_control = |part| {
                !matches!(part, MpiMessagePart::Start(_) | MpiMessagePart::Coalesced | MpiMessagePart::Cached { .. })
            };
            match packet.opcode() {
                0x06 => assert_eq!(head, None),
                0x64 => assert!(head.is_some_and(|head| head.stack == form && is_control(head.part))),
                _ => {
                    let is_start = envelope(options.stack, packet.payload()).is_some();
                    assert!(head.is_some_and(|head| head.stack == form && is_control(head.part) != is_start));
                }
            }
        }
    }
}

/// udcm: both ends list each queue pair before the first packet to it, with their ranks and their
/// first PSN.
#[test]
fn connection_datagrams_precede_their_queue_pairs() {
    for options in jobs().filter(|options| options.stack == SampleStack::Ob1) {
        let (packets, _) = packets(&options);
        let mut listed: BTreeMap<(u16, u16), Vec<(u32, u32)>> = BTreeMap::new();
        let mut first: HashMap<(u16, u16, u32), u32> = HashMap::new();
        for packet in &packets {
            if packet.opcode() == 0x64 {
                let message = udcm::datagram(packet.payload(), packet.payload().len() as u32).expect("no CONNECT");
                assert_eq!(
                    (message.kind, message.world_rank),
                    (udcm::UdcmKind::Connect, Some(u32::from(packet.src) - 1))
                );
                assert_eq!(message.endpoint_index, u32::from(packet.dst) - 1);
                let payload = packet.payload();
                assert_eq!(payload.len(), 64);
                listed.entry((packet.src, packet.dst)).or_default().push((be24(&payload[57..]), be24(&payload[61..])));
            } else if packet.opcode() != 0x11 {
                let list = listed.get(&(packet.dst, packet.src)).expect("no connection message");
                assert!(list.iter().any(|(qpn, _)| *qpn == packet.flow().2));
                first.entry(packet.flow()).or_insert(packet.psn());
            }
        }
        let mut checked = 0;
        for (&(src, dst), list) in &listed {
            let others = &listed[&(dst, src)];
            assert_eq!((list.len(), others.len()), (3, 3));
            for ((_, psn), (other_qpn, _)) in list.iter().zip(others) {
                if let Some(began) = first.get(&(src, dst, *other_qpn)) {
                    assert_eq!(began, psn);
                    checked += 1;
                }
            }
        }
        assert_eq!(checked, first.len());
    }
}

/// UCX: the first request in each direction of every connection names both endpoints, the sender's
/// worker (one per node), and the sender's queue pair.
#[test]
fn wireup_comes_first() {
    for options in jobs().filter(|options| options.stack == SampleStack::Ucx) {
        let mut endpoints: BTreeMap<(u16, u16, u64), (u32, u64)> = BTreeMap::new();
        let mut to: BTreeSet<(u16, u16, u32)> = BTreeSet::new();
        let mut workers: BTreeMap<u16, u64> = BTreeMap::new();
        for packet in packets(&options).0.iter().filter(|packet| packet.opcode() != 0x11) {
            let payload = packet.payload();
            if to.insert(packet.flow()) {
                assert_eq!(packet.opcode(), 0x04);
                assert_eq!(payload[..5], [1, 3, 0, 0, 0]);
                assert_eq!(*workers.entry(packet.src).or_insert(le::<8>(payload, 22)), le::<8>(payload, 22));
                let (own, other) = (le::<8>(payload, 5), le::<8>(payload, 13));
                let own_qpn = le::<3>(payload, 40) as u32;
                assert_eq!(endpoints.insert((packet.src, packet.dst, own), (own_qpn, other)), None);
            }
        }
        assert_eq!(workers.values().collect::<BTreeSet<_>>().len(), workers.len());
        for (&(src, dst, own), &(own_qpn, other)) in &endpoints {
            // The other end names the same endpoints from its side, and receives packets at this
            // queue pair number.
            assert_eq!(endpoints[&(dst, src, other)].1, own);
            assert!(to.contains(&(dst, src, own_qpn)));
        }
        assert_eq!(endpoints.len(), to.len());
    }
}
