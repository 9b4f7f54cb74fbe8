//! Times that end where a packet arrives: with its second sight, at the port of its receiver.
//!
//! Whether a capture shows each packet twice is known at its end only, so the last packet of what is measured is remembered for a while.

use crate::model::{Claim, Sight, Timing, TimingKey, Turn};
use std::collections::VecDeque;

/// What began, and is to be measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    /// Number of the connection that it is of.
    pub(super) connection: u32,
    pub(super) from_ns: i64,
    pub(super) key: TimingKey,
    pub(super) claim: Claim,
}

/// What ends with packets of one connection, by the number of the packet: that of requests, and that of responses.
#[derive(Debug, Default)]
pub(super) struct Arrivals([VecDeque<(i64, Begun)>; 2]);

impl Arrivals {
    /// What ends with the second sight of a packet that has been seen once. At most `room` of them are remembered.
    pub(super) fn await_second(&mut self, turn: Turn, number: i64, begun: Begun, room: usize) {
        let Some(waiting) = self.0.get_mut(turn as usize) else { return };
        while waiting.len() >= room {
            waiting.pop_front();
        }
        if waiting.back().is_none_or(|(last, _)| *last <= number) {
            waiting.push_back((number, begun));
            return;
        }
        let later = waiting.iter().rev().take_while(|(other, _)| *other > number).count();
        waiting.insert(waiting.len() - later, (number, begun));
    }

    /// A packet is seen for the second time.
    pub(super) fn arrived(&mut self, turn: Turn, number: i64, time_ns: i64, timings: &mut Vec<Timing>) {
        let Some(waiting) = self.0.get_mut(turn as usize).filter(|waiting| !waiting.is_empty()) else { return };
        let at = waiting.partition_point(|(other, _)| *other < number);
        // Several messages may end with one packet.
        while let Some(&(_, begun)) = waiting.get(at).filter(|(other, _)| *other == number) {
            let Begun { connection, from_ns, key, claim } = begun;
            timings.push(Timing::between(connection, (key, Some(claim)), Sight::Twice, (from_ns, time_ns)));
            waiting.remove(at);
        }
    }
}
