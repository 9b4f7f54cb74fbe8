//! Times that end when a packet arrives at the port of its receiver.
//!
//! In a capture of both ports, the second observation of a packet is its arrival. Only the end of
//! an input shows whether the capture observes every packet twice, so a pending time waits here for
//! the second observation of its last packet, in a queue of limited length.

use crate::model::{ObservedPorts, PacketRole, RequiredDetection, Timing, TimingKey};
use std::collections::VecDeque;

/// A measurement that has started and not ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingTiming {
    /// Number of the connection that the time is attributed to.
    pub(super) connection: u32,
    pub(super) from_ns: i64,
    pub(super) key: TimingKey,
    pub(super) required_detection: Option<RequiredDetection>,
}

/// Pending times of one connection, ordered by the number of the packet that ends them: first those
/// that requests end, then those that responses end.
#[derive(Debug, Default)]
pub(super) struct Arrivals([VecDeque<(i64, PendingTiming)>; 2]);

impl Arrivals {
    /// Queues a time until the second observation of packet `number`. The queue keeps at most
    /// `room` times and drops the oldest first.
    pub(super) fn await_second_observation(
        &mut self,
        role: PacketRole,
        number: i64,
        pending: PendingTiming,
        room: usize,
    ) {
        let Some(waiting) = self.0.get_mut(role as usize) else { return };
        while waiting.len() >= room {
            waiting.pop_front();
        }
        if waiting.back().is_none_or(|(last, _)| *last <= number) {
            waiting.push_back((number, pending));
            return;
        }
        let later = waiting.iter().rev().take_while(|(other, _)| *other > number).count();
        waiting.insert(waiting.len() - later, (number, pending));
    }

    /// Ends the times that wait for the second observation of packet `number`, and appends them to
    /// `timings`.
    pub(super) fn second_observation(
        &mut self,
        role: PacketRole,
        number: i64,
        time_ns: i64,
        timings: &mut Vec<Timing>,
    ) {
        let Some(waiting) = self.0.get_mut(role as usize).filter(|waiting| !waiting.is_empty()) else { return };
        let at = waiting.partition_point(|(other, _)| *other < number);
        // Several messages may end with one packet.
        while let Some(&(_, pending)) = waiting.get(at).filter(|(other, _)| *other == number) {
            let PendingTiming { connection, from_ns, key, required_detection: claim } = pending;
            timings.push(Timing::between(connection, (key, claim), ObservedPorts::BothPorts, (from_ns, time_ns)));
            waiting.remove(at);
        }
    }
}
