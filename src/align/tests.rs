//! Compares the samples of two captures.

use super::*;
use crate::model::{PacketFields, PacketRecord, Packets};
use ibscope_parsers::{Lid, PathFields, Psn, Qpn};

const ACK: u8 = 0x11;
const SEND_ONLY: u8 = 0x04;

/// Sample of SENDs from 1 to 2 and their ACKs, each with a PSN and a time.
fn sample_of(requests: impl Iterator<Item = (u32, i64)>, responses: impl Iterator<Item = (u32, i64)>) -> PacketSample {
    let packet = |slot, opcode, (psn, time_ns)| {
        let (opcode, psn) = (Opcode(opcode), Psn::new(psn));
        PacketRecord::new(PacketFields { time_ns, opcode, slot, psn, ..PacketFields::default() })
    };
    let key = |src, dst| {
        let ends = [src, dst].map(|lid| ibscope_parsers::Endpoint::from_lid(Lid(lid)));
        ConnectionKey::of(ends.into(), Opcode(SEND_ONLY), Qpn::new(7), 0)
    };
    let records = requests.map(|at| packet(0, SEND_ONLY, at)).chain(responses.map(|at| packet(1, ACK, at)));
    let packets =
        Packets { keys: vec![key(1, 2), key(2, 1)], paths: vec![PathFields::default(); 2], records: records.collect() };
    let mut sample = PacketSample::new(2);
    sample.add(sample.candidates(packets.iter()));
    sample
}

/// Jitter of up to 4095 ns, different for each number and salt.
fn jitter_ns(number: u32, salt: u64) -> i64 {
    ((u64::from(number) + salt).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 52) as i64
}

/// A part of a capture of one port. A steady sender reuses its PSNs in the next part, 3.4 s later.
fn part(part: u64) -> PacketSample {
    let sent_ns = move |number: u32| part as i64 * 3_400_000_000 + i64::from(number) * 1000 + jitter_ns(number, part);
    let response_ns = move |number: u32| sent_ns(number) + 10_000 + jitter_ns(number, part + 99);
    sample_of(
        (0..9000).map(move |number| (number, sent_ns(number))),
        (0..9000).map(move |number| (number, response_ns(number))),
    )
}

#[test]
fn parts_that_reuse_psns_keep_their_times() {
    let names = ["one".to_owned(), "other".to_owned()];
    let aligned = align(vec![part(0), part(1)], &names, &[], "");
    assert_eq!((aligned.clocks, aligned.rows), (vec![None; 2], vec![None; 2]));
    assert_eq!(aligned.unclear.len(), 1);
    assert_eq!(aligned.transits, []);
}

/// The same packets at both ports. The second clock is one minute ahead, so the captures do not
/// overlap in time.
#[test]
fn clocks_far_apart_are_compared() {
    let sent_ns = |number: u32| i64::from(number) * 1000 + jitter_ns(number, 0);
    let way_ns = |number: u32, salt: u64| 500 + jitter_ns(number, salt);
    let ahead_ns = 60_000_000_000;
    let here = sample_of(
        (0..9000).map(|number| (number, sent_ns(number))),
        (0..9000).map(|number| (number, sent_ns(number) + 20_000)),
    );
    let there = sample_of(
        (0..9000).map(|number| (number, sent_ns(number) + way_ns(number, 1) + ahead_ns)),
        (0..9000).map(|number| (number, sent_ns(number) + 20_000 - way_ns(number, 2) + ahead_ns)),
    );
    let aligned = align(vec![here, there], &["one".to_owned(), "other".to_owned()], &[], "");
    let row = aligned.rows[1].as_ref().expect("a clock");
    assert!(row.offset_ns.abs_diff(ahead_ns) <= row.uncertainty_ns && row.uncertainty_ns < 2000, "{row:?}");
}

/// The same packets over twenty minutes at both ports. The second clock is ahead by `ahead_ns` and
/// is set forward by `step_ns` in the middle, so the uncertainty of the best line is the step less
/// the transit times.
fn with_step(ahead_ns: i64, step_ns: i64) -> Alignment {
    const PACKETS: u32 = 9000;
    let sent_ns = |number: u32| i64::from(number) * 134_000_001;
    let clock_ns = |number: u32| ahead_ns + if number < PACKETS / 2 { 0 } else { step_ns };
    let here = sample_of(
        (0..PACKETS).map(|number| (number, sent_ns(number))),
        (0..PACKETS).map(|number| (number, sent_ns(number) + 20_000)),
    );
    let there = sample_of(
        (0..PACKETS).map(|number| (number, sent_ns(number) + 500 + clock_ns(number))),
        (0..PACKETS).map(|number| (number, sent_ns(number) + 20_000 - 500 + clock_ns(number))),
    );
    align(vec![here, there], &["one".to_owned(), "other".to_owned()], &[], "")
}

#[test]
fn uneven_clocks_are_found_up_to_a_bound_and_refused_beyond() {
    let is_found = |ahead_ns, step_ns| {
        let aligned = with_step(ahead_ns, step_ns);
        let row = aligned.rows[1].as_ref();
        assert_eq!(aligned.unclear.len(), usize::from(row.is_none()));
        assert!(row.is_none_or(|row| !row.is_even), "{row:?}");
        assert_eq!(aligned.clocks[1].is_some(), row.is_some());
        row.is_some()
    };
    // The best line is ahead by `ahead_ns` and half of the step.
    let most_ns = MAX_APART_NS as i64;
    assert!(is_found(most_ns - 1_000_000, 100_000) && !is_found(most_ns + 1, 100_000));
    // The uncertainty is the step, less transits of 500 ns in either direction.
    let most_ns = MAX_UNEVEN_NS as i64;
    assert!(is_found(60_000_000_000, most_ns) && !is_found(60_000_000_000, most_ns + 2000));
}

/// A sample holds at most `MAX_INPUT_PACKETS` packets: those with the smallest hashes.
#[test]
fn packets_beyond_the_room_of_a_sample_leave_those_below_a_limit() {
    for packets in [packet_sample::MAX_INPUT_PACKETS as u32, packet_sample::MAX_INPUT_PACKETS as u32 + 1] {
        let sample = sample_of((0..packets).map(|number| (number, i64::from(number))), std::iter::empty()).finish(None);
        let is_whole = packets as usize == packet_sample::MAX_INPUT_PACKETS;
        assert_eq!((sample.packets.len(), sample.limit == u64::MAX), (packet_sample::MAX_INPUT_PACKETS, is_whole));
        assert!(sample.packets.iter().all(|(hash, _)| *hash < sample.limit));
    }
}

/// A packet that was truncated in its RETH is the same packet.
#[test]
fn a_truncated_reth_does_not_change_the_hash() {
    const READ_REQUEST: u8 = 0x0C;
    let ends = [1, 2].map(|lid| ibscope_parsers::Endpoint::from_lid(Lid(lid)));
    let hash_of = |opcode: u8, extension: u32| {
        let key = ConnectionKey::of(ends.into(), Opcode(opcode), Qpn::new(7), 0);
        let record = PacketRecord::new(PacketFields { opcode: Opcode(opcode), extension, ..PacketFields::default() });
        hash(crate::model::PacketRef { key: &key, record: &record })
    };
    assert_eq!(hash_of(READ_REQUEST, 4096), hash_of(READ_REQUEST, 0));
    assert_ne!(hash_of(ACK, 1), hash_of(ACK, 2), "an ACK of another message");
}

/// With one clock of microseconds, two ports give most packets the same timestamp, and some one step
/// later. They are two observation points, unlike files that hold the same records.
#[test]
fn equal_coarse_timestamps_are_no_repeated_records() {
    let sample = |late: u32| {
        let time_ns = move |number: u32| i64::from(number) * 10_000 + i64::from(number % 20 < late) * 1000;
        sample_of((0..2000).map(move |number| (number, time_ns(number))), std::iter::empty())
    };
    assert!(sample(0).overlaps(&sample(0)));
    assert!(!sample(0).overlaps(&sample(1)));
}
