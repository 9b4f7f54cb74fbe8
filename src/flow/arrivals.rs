//! Times that end when a packet arrives at the port of its receiver.
//!
//! In a capture of both ports, the second observation of a packet is its arrival. Only the end of
//! an input shows whether the capture observes every packet twice, so a pending time waits here for
//! the arrival of its last packet, in a queue of limited length. If an earlier packet of the same
//! message has not arrived by then, the time waits for that one too: the receiver has the message
//! only after its retransmission.

use super::port_copies::PortCopies;
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

impl PendingTiming {
    fn until(&self, time_ns: i64) -> Timing {
        let Self { connection, from_ns, key, required_detection: required } = *self;
        Timing::between(connection, (key, required), ObservedPorts::BothPorts, (from_ns, time_ns))
    }
}

/// A time that waits for the arrival of a packet.
#[derive(Clone, Copy, Debug)]
struct AwaitedArrival {
    /// Number of the packet.
    number: i64,
    pending: PendingTiming,
    /// Arrival of the last packet, if an earlier one has not arrived. If that never does, only its
    /// second observation is missing.
    last_arrival_ns: Option<i64>,
}

/// Pending times of one connection, ordered by the number of the packet that ends them: first those
/// that requests end, then those that responses end.
#[derive(Debug, Default)]
pub(super) struct Arrivals([VecDeque<AwaitedArrival>; 2]);

impl Arrivals {
    /// Queues a time until the arrival of packet `number`. The queue keeps at most `room` times; of
    /// more, it ends or drops the one with the lowest number.
    pub(super) fn wait(
        &mut self,
        role: PacketRole,
        number: i64,
        pending: PendingTiming,
        room: usize,
        timings: &mut Vec<Timing>,
    ) {
        let Some(waiting) = self.0.get_mut(role as usize) else { return };
        while waiting.len() >= room
            && let Some(oldest) = waiting.pop_front()
        {
            timings.extend(oldest.last_arrival_ns.map(|time_ns| oldest.pending.until(time_ns)));
        }
        insert(waiting, AwaitedArrival { number, pending, last_arrival_ns: None });
    }

    /// Ends the times that wait for the arrival of packet `number` and of no other, and appends them
    /// to `timings`. `copies` has the packets of this role that have not arrived.
    pub(super) fn arrived(
        &mut self,
        role: PacketRole,
        (number, time_ns): (i64, i64),
        copies: &PortCopies,
        timings: &mut Vec<Timing>,
    ) {
        let Some(waiting) = self.0.get_mut(role as usize).filter(|waiting| !waiting.is_empty()) else { return };
        // Several messages may end with one packet.
        while let Ok(at) = waiting.binary_search_by_key(&number, |awaited| awaited.number)
            && let Some(awaited) = waiting.remove(at)
        {
            let time_ns = awaited.last_arrival_ns.map_or(time_ns, |last_ns| last_ns.max(time_ns));
            match copies.unarrived_before(number, awaited.pending.from_ns) {
                Some(earlier) => {
                    insert(waiting, AwaitedArrival { number: earlier, last_arrival_ns: Some(time_ns), ..awaited });
                }
                None => timings.push(awaited.pending.until(time_ns)),
            }
        }
    }

    /// Ends the times of which only second observations are missing, at the end of the input.
    pub(super) fn finish(&mut self, timings: &mut Vec<Timing>) {
        let waiting = self.0.iter_mut().flat_map(|waiting| waiting.drain(..));
        timings.extend(waiting.filter_map(|awaited| Some(awaited.pending.until(awaited.last_arrival_ns?))));
    }
}

fn insert(waiting: &mut VecDeque<AwaitedArrival>, awaited: AwaitedArrival) {
    let later = waiting.iter().rev().take_while(|other| other.number > awaited.number).count();
    waiting.insert(waiting.len() - later, awaited);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interval, PacketFields, PacketRecord, SizeClass, Verb};

    fn pending(from_ns: i64) -> PendingTiming {
        let key = TimingKey { interval: Interval::MpiMessage, verb: Verb::Send, size: SizeClass::of(8) };
        PendingTiming { connection: 0, from_ns, key, required_detection: None }
    }

    /// Packets 4 to 6 of a message were observed at the sender's port at 100 ns.
    fn sent() -> (PortCopies, Arrivals) {
        let (mut copies, mut arrivals) = (PortCopies::default(), Arrivals::default());
        (4..=6).for_each(|number| copies.first(number, 100, 16));
        arrivals.wait(PacketRole::Request, 6, pending(100), 16, &mut Vec::new());
        (copies, arrivals)
    }

    /// Packet `number` is observed again.
    fn again(number: i64, time_ns: i64, (copies, arrivals): &mut (PortCopies, Arrivals), timings: &mut Vec<Timing>) {
        copies.second(number, &PacketRecord::new(PacketFields { time_ns, ..PacketFields::default() }));
        arrivals.arrived(PacketRole::Request, (number, time_ns), copies, timings);
    }

    fn took(timings: &[Timing]) -> Vec<u64> {
        timings.iter().map(|timing| timing.ns).collect()
    }

    #[test]
    fn a_message_arrives_with_its_last_packet() {
        let (mut state, mut timings) = (sent(), Vec::new());
        for (number, time_ns, expected) in [(4, 110, &[][..]), (5, 120, &[]), (6, 130, &[30])] {
            again(number, time_ns, &mut state, &mut timings);
            assert_eq!(took(&timings), expected);
        }
    }

    /// The retransmission of packet 5 arrives after packet 6, and is the third observation.
    #[test]
    fn a_message_with_a_lost_packet_arrives_with_the_retransmission() {
        let (mut state, mut timings) = (sent(), Vec::new());
        again(4, 110, &mut state, &mut timings);
        again(6, 130, &mut state, &mut timings);
        assert!(timings.is_empty());
        let (copies, arrivals) = &mut state;
        let retransmitted = |time_ns| PacketRecord::new(PacketFields { time_ns, ..PacketFields::default() });
        copies.second(5, &retransmitted(5000));
        let arrival = copies.third(5, &retransmitted(5010)).expect("an arrival");
        arrivals.arrived(PacketRole::Request, (5, arrival.packet.time_ns), copies, &mut timings);
        assert_eq!(took(&timings), [4910]);
    }

    /// The capture misses the second observation of packet 5.
    #[test]
    fn a_missing_second_observation_does_not_prolong_a_message() {
        let (mut state, mut timings) = (sent(), Vec::new());
        again(4, 110, &mut state, &mut timings);
        again(6, 130, &mut state, &mut timings);
        state.1.finish(&mut timings);
        assert_eq!(took(&timings), [30]);
        // The queue is full.
        let (mut state, mut timings) = (sent(), Vec::new());
        again(6, 130, &mut state, &mut timings);
        state.1.wait(PacketRole::Request, 9, pending(300), 1, &mut timings);
        assert_eq!(took(&timings), [30]);
    }
}
