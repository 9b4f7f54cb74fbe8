//! Samples of two captures against each other.

use super::*;
use crate::model::{Kind, Marks, PacketRecord, Packets};
use ibscope_parsers::{Lid, Psn, Qpn};

const ACK: u8 = 0x11;
const SEND_ONLY: u8 = 0x04;

/// SENDs from 1 to 2 and their ACKs, each a number and a time: what a capture holds.
fn sights(requests: impl Iterator<Item = (u32, i64)>, answers: impl Iterator<Item = (u32, i64)>) -> Sights {
    let packet = |slot, opcode, (psn, time_ns)| {
        let number = (Kind::Data, Psn::new(psn), false);
        PacketRecord::new(time_ns, (Opcode(opcode), slot), number, Marks::default(), 30, 0, 0, (0, 0))
    };
    let key = |src, dst| {
        let ends = [src, dst].map(|lid| ibscope_parsers::Endpoint::from_lid(Lid(lid)));
        ConnectionKey::of(ends.into(), Opcode(SEND_ONLY), Qpn::new(7), 0)
    };
    let records = requests.map(|at| packet(0, SEND_ONLY, at)).chain(answers.map(|at| packet(1, ACK, at)));
    let packets = Packets { keys: vec![key(1, 2), key(2, 1)], records: records.collect() };
    let mut sights = Sights::new(2);
    sights.add(sights.draw(packets.iter()));
    sights
}

/// Up to 4095 ns, another for each number and salt.
fn jitter_ns(number: u32, salt: u64) -> i64 {
    ((u64::from(number) + salt).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 52) as i64
}

/// A steady sender whose numbers come round again 3.4 s later, in the next part of the capture of one port.
fn part(turn: u64) -> Sights {
    let sent_ns = move |number: u32| turn as i64 * 3_400_000_000 + i64::from(number) * 1000 + jitter_ns(number, turn);
    let answered_ns = move |number: u32| sent_ns(number) + 10_000 + jitter_ns(number, turn + 99);
    sights(
        (0..9000).map(move |number| (number, sent_ns(number))),
        (0..9000).map(move |number| (number, answered_ns(number))),
    )
}

#[test]
fn parts_in_which_numbers_come_again_keep_their_times() {
    let names = ["one".to_owned(), "other".to_owned()];
    let aligned = align(vec![part(0), part(1)], &names, &[], "");
    assert_eq!((aligned.clocks, aligned.rows), (vec![None; 2], vec![None; 2]));
    assert_eq!(aligned.unclear.len(), 1);
    assert_eq!(aligned.transits, []);
}

/// The same packets at both ports, the second one's clock a minute ahead: no time in common, and yet one line.
#[test]
fn clocks_far_apart_are_held_against_each_other() {
    let sent_ns = |number: u32| i64::from(number) * 1000 + jitter_ns(number, 0);
    let way_ns = |number: u32, salt: u64| 500 + jitter_ns(number, salt);
    let ahead_ns = 60_000_000_000;
    let here = sights(
        (0..9000).map(|number| (number, sent_ns(number))),
        (0..9000).map(|number| (number, sent_ns(number) + 20_000)),
    );
    let there = sights(
        (0..9000).map(|number| (number, sent_ns(number) + way_ns(number, 1) + ahead_ns)),
        (0..9000).map(|number| (number, sent_ns(number) + 20_000 - way_ns(number, 2) + ahead_ns)),
    );
    let aligned = align(vec![here, there], &["one".to_owned(), "other".to_owned()], &[], "");
    let row = aligned.rows[1].as_ref().expect("a clock");
    assert!(row.offset_ns.abs_diff(ahead_ns) <= row.uncertainty_ns && row.uncertainty_ns < 2000, "{row:?}");
}

/// The same packets over twenty minutes at both ports. The second clock is ahead by so much, and set forward by a step in the
/// middle: no line fits it better than to within the step, less what the ways take.
fn with_step(ahead_ns: i64, step_ns: i64) -> Aligned {
    const PACKETS: u32 = 9000;
    let sent_ns = |number: u32| i64::from(number) * 134_000_001;
    let clock_ns = |number: u32| ahead_ns + if number < PACKETS / 2 { 0 } else { step_ns };
    let here = sights(
        (0..PACKETS).map(|number| (number, sent_ns(number))),
        (0..PACKETS).map(|number| (number, sent_ns(number) + 20_000)),
    );
    let there = sights(
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
    // 600 s apart, of which the step takes its half at either side.
    let most_ns = MAX_APART_NS as i64;
    assert!(is_found(most_ns - 1_000_000, 100_000) && !is_found(most_ns + 1, 100_000));
    // A line in the middle of a step of 1 ms and the ways of 500 ns to both sides is 1 ms off.
    let most_ns = MOST_UNEVEN_NS as i64;
    assert!(is_found(60_000_000_000, most_ns) && !is_found(60_000_000_000, most_ns + 2000));
}

/// A sample holds so many packets of one input, and of more those with the smallest hashes.
#[test]
fn packets_beyond_the_room_of_a_sample_leave_those_below_a_limit() {
    for packets in [sights::MOST_ROOM as u32, sights::MOST_ROOM as u32 + 1] {
        let drawing = sights((0..packets).map(|number| (number, i64::from(number))), std::iter::empty()).finish(None);
        let is_whole = packets as usize == sights::MOST_ROOM;
        assert_eq!((drawing.sights.len(), drawing.limit == u64::MAX), (sights::MOST_ROOM, is_whole));
        assert!(drawing.sights.iter().all(|(hash, _)| *hash < drawing.limit));
    }
}
