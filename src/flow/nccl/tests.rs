use super::path::MAX_EVIDENCE;
use super::queue::MAX_KEYS;
use super::*;
use crate::model::{PacketFields, PacketRecord};
use ibscope_parsers::ib::Opcode;
use ibscope_parsers::mpi::Envelope;
use ibscope_parsers::mpi::nccl::Release;
use ibscope_parsers::{Lid, Psn, Qpn};

const QUEUE: u32 = 0;
const PATH: u32 = 1;
const RING: u64 = 0x5577_0000_0000;
const BUFFERS: u64 = 0x7F12_0000_0000;
const BUFFER_BYTES: u64 = 1 << 20;
const KEY: u32 = 0x1700;
/// Size of each receive when several are posted together in one buffer.
const PART_BYTES: u64 = 1 << 16;

fn data_way() -> DataDirection {
    (Endpoint::from_lid(Lid(1)), Endpoint::from_lid(Lid(2)))
}

fn buffer(index: u64) -> u64 {
    BUFFERS + index * BUFFER_BYTES
}

/// Posts a receive with this index, from this rank, for `messages` messages; elements in the
/// format of NCCL 2.20.
fn post(nccl: &mut Nccl, index: u64, rank: u32, (keys, messages): ([u32; 2], u64)) -> NcclOutcome {
    let element = |part: u64| {
        let mut bytes = vec![0; 64];
        bytes[..8].copy_from_slice(&(buffer(index) + part * PART_BYTES).to_le_bytes());
        bytes[8..12].copy_from_slice(&(PART_BYTES as u32).to_le_bytes());
        bytes[12..16].copy_from_slice(&keys[0].to_le_bytes());
        bytes[16..20].copy_from_slice(&keys[1].to_le_bytes());
        bytes[20..24].copy_from_slice(&(messages as u32).to_le_bytes());
        bytes[24..28].copy_from_slice(&rank.to_le_bytes());
        bytes[32..40].copy_from_slice(&index.to_le_bytes());
        bytes
    };
    let payload: Vec<u8> = (0..messages).flat_map(element).collect();
    let (src, dst) = data_way();
    let reth = Reth { va: RING + index % 256 * 512, r_key: 1, dma_len: payload.len() as u32 };
    nccl.clear_to_send((dst, src), (QUEUE, 0), &payload, reth).expect("an element")
}

/// A WRITE of one packet over a path; with immediate data it ends a message.
fn write(nccl: &mut Nccl, psn: u32, (va, key): (u64, u32), bytes: u16, word: Option<u32>, body: &[u8]) -> NcclOutcome {
    let opcode = Opcode(if word.is_some() { 0x0B } else { 0x0A });
    let psn = Psn::new(psn);
    let record = PacketRecord::new(PacketFields { opcode, psn, payload_bytes: bytes, ..PacketFields::default() });
    let reth = Reth { va, r_key: key, dma_len: bytes.into() };
    let message = Transport { immediate: word, ..Transport::new(&record, None, Some(reth)) };
    nccl.write(data_way(), PATH, &message, body)
}

/// Rank and length of the messages that ended, the number of unknown messages, and the number
/// of messages that may not be NCCL's.
type OutcomeSums = (Vec<(Option<u32>, u64)>, usize, usize);

fn add(sum: &mut OutcomeSums, outcome: NcclOutcome) {
    let rank = |envelope: Envelope| envelope.matching.identity(ibscope_parsers::mpi::TagLayout::OpenMpi);
    let ended = outcome.ended.into_iter();
    sum.0.extend(ended.map(|own| (own.envelope.and_then(rank).map(|own| own.rank), own.sums.length_bytes)));
    sum.1 += outcome.unknown.len();
    sum.2 += outcome.others.len();
}

fn length(index: u64) -> u16 {
    0x0700 + index as u16
}

/// Posts receives of two ranks in turn, then writes their messages.
fn receives(count: u64) -> OutcomeSums {
    let (mut nccl, mut sum) = (Nccl::default(), OutcomeSums::default());
    for index in 1..=count {
        add(&mut sum, post(&mut nccl, index, index as u32 % 2, ([KEY, 0], 1)));
    }
    for index in 1..=count {
        let bytes = length(index);
        add(&mut sum, write(&mut nccl, index as u32, (buffer(index), KEY), bytes, Some(bytes.into()), &[]));
    }
    add(&mut sum, nccl.finish());
    sum
}

/// 2.8 has rings of 8 elements, 2.19 of 256; an index far away must be in its slot.
#[test]
fn the_length_of_a_ring_follows_the_release() {
    let is_one = |release: Release, slots: u64, distance: u64| {
        let slot = |index: u64| RING + index % slots * u64::from(release.slot_bytes());
        is_one_ring(release, (9, slot(9)), (9 + distance, slot(9 + distance)))
    };
    for distance in [1, 7, 8, 63, 64, 100, 255, 256, 1000, 123_457] {
        assert!(is_one(Release::From2_8, 8, distance), "{distance}");
        for release in [Release::From2_12, Release::From2_20, Release::From2_24, Release::From2_30] {
            assert!(is_one(release, 64, distance) && is_one(release, 256, distance), "{release:?}, {distance}");
        }
    }
    assert!(!is_one(Release::From2_20, 8, 100));
    assert!(!is_one(Release::From2_8, 64, 100));
}

#[test]
fn a_message_whose_receive_is_gone_is_unknown() {
    let most = MAX_RECEIVES as u64;
    for (count, unknown) in [(most, 0), (most + 1, 1)] {
        let expected = (1 + unknown..=count).map(|index| (Some(index as u32 % 2), u64::from(length(index))));
        assert_eq!(receives(count), (expected.collect(), unknown as usize, 0));
    }
}

/// Messages to unknown memory wait; those beyond the limit are counted as such.
#[test]
fn messages_to_unknown_memory_beyond_the_limit_are_counted() {
    for count in [MAX_WAITING as u64, MAX_WAITING as u64 + 1] {
        let (mut nccl, mut sum) = (Nccl::default(), OutcomeSums::default());
        for index in 0..count {
            add(&mut sum, write(&mut nccl, index as u32, (buffer(index), KEY), length(index), Some(7), &[]));
        }
        assert_eq!(sum, (vec![], 0, count as usize - MAX_WAITING));
        add(&mut sum, nccl.finish());
        assert_eq!(sum, (vec![], 0, count as usize));
    }
}

/// Empty messages do not show the format of the lengths; one with data then shows it for the
/// waiting ones.
#[test]
fn too_many_messages_without_a_length_are_unknown() {
    for (count, unknown) in [(MAX_WAITING as u64, 0), (MAX_WAITING as u64 + 1, 1)] {
        let (mut nccl, mut sum) = (Nccl::default(), OutcomeSums::default());
        add(&mut sum, post(&mut nccl, 1, 3, ([KEY, 0], 1)));
        (0..count).for_each(|index| add(&mut sum, write(&mut nccl, index as u32, (0, KEY), 0, Some(0), &[])));
        assert_eq!(sum, (vec![], unknown, 0));
        let bytes = length(1);
        add(&mut sum, write(&mut nccl, count as u32, (buffer(1), KEY), bytes, Some(bytes.into()), &[]));
        let mut expected = vec![(Some(3), 0); MAX_WAITING];
        expected.push((Some(3), u64::from(bytes)));
        assert_eq!(sum, (expected, unknown, 0));
    }
}

/// Messages received together: one WRITE each, and one with all lengths. With one WRITE too
/// many the WRITEs cannot be assigned, but the last one still has the lengths.
#[test]
fn too_many_writes_are_not_assigned_to_messages() {
    for writes in [MAX_CHAIN as u64, MAX_CHAIN as u64 + 1] {
        let (mut nccl, mut sum) = (Nccl::default(), OutcomeSums::default());
        add(&mut sum, post(&mut nccl, 1, 3, ([KEY, 0], MAX_CHAIN as u64)));
        let lengths: Vec<u32> = (0..MAX_CHAIN as u32).map(|part| 100 + part).collect();
        for part in 0..writes {
            let at = part.min(MAX_CHAIN as u64 - 1);
            let bytes = lengths[at as usize] as u16;
            add(&mut sum, write(&mut nccl, part as u32, (buffer(1) + at * PART_BYTES, KEY), bytes, None, &[]));
        }
        let body: Vec<u8> = lengths.iter().flat_map(|bytes| bytes.to_le_bytes()).collect();
        add(&mut sum, write(&mut nccl, writes as u32, (RING, KEY), body.len() as u16, Some(0), &body));
        add(&mut sum, nccl.finish());
        let expected: Vec<(Option<u32>, u64)> = lengths.iter().map(|bytes| (Some(3), u64::from(*bytes))).collect();
        assert_eq!(sum, (expected, 0, 0), "{writes}");
    }
}

/// Every receive has memory with its own key, and the message comes when all receives are gone.
#[test]
fn memory_with_a_key_beyond_the_limit_has_no_known_owner() {
    for (keys, others) in [(MAX_KEYS as u64, 0), (MAX_KEYS as u64 + 1, 1)] {
        let (mut nccl, mut sum) = (Nccl::default(), OutcomeSums::default());
        for index in 1..=keys + MAX_RECEIVES as u64 {
            let key = KEY + index.min(keys) as u32;
            add(&mut sum, post(&mut nccl, index, 3, ([key, 0], 1)));
        }
        add(&mut sum, write(&mut nccl, 0, (buffer(0), KEY + keys as u32), 700, Some(700), &[]));
        // A message that waits for its length is unknown in the end.
        add(&mut sum, nccl.finish());
        assert_eq!(sum, (vec![], 1 - others, others));
    }
}

#[test]
fn evidence_of_a_queue_and_of_a_path_is_bounded() {
    let key = |(src, dst): DataDirection| ConnectionKey::of((src, dst), Opcode(4), Qpn::new(7), 0);
    let (src, dst) = data_way();
    for count in [MAX_EVIDENCE as u64, MAX_EVIDENCE as u64 + 1] {
        let mut nccl = Nccl::default();
        (1..=count).for_each(|index| _ = post(&mut nccl, index, 3, ([KEY, KEY + 1], 1)));
        // To memory that no receive names.
        for index in 1..=count {
            write(&mut nccl, index as u32, (buffer(1000 + index), KEY), 8, Some(8), &[]);
        }
        let queues = nccl.queues(&[key((dst, src)), key((src, dst))]);
        let expected: Vec<(u64, u64)> = (1..=MAX_EVIDENCE as u64).map(|index| (buffer(index), PART_BYTES)).collect();
        assert_eq!((queues.len(), &queues[0].memory), (1, &expected));
        let unplaced: Vec<u64> = queues[0].paths[0].unmatched.iter().map(|(address, _)| *address).collect();
        let expected: Vec<u64> = (1..=MAX_EVIDENCE as u64).map(|index| buffer(1000 + index)).collect();
        assert_eq!(unplaced, expected);
    }
}
