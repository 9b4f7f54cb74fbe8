//! The second observation of a packet: its arrival at the second port, or a retransmission.
//!
//! In a capture of both ports (sender S, receiver R), the second observation of a packet is usually
//! its arrival. If the packet was lost between the ports, it is the retransmission at the sender's
//! port, and the third observation is the arrival:
//!
//! ```text
//! first transmission arrives     S R
//! first transmission is lost     S . . . S R
//! ```
//! The fabric keeps the order of a connection, except with adaptive routing. So a second observation
//! is doubtful if a later packet arrived before, or if it comes late. A doubtful one waits here: a
//! third observation shows that it was a retransmission.
//!
//! In: the observations of the packets of one role of a connection. Out: their arrivals. Invariant:
//! an arrival is reported once.

use crate::model::PacketRecord;
use std::collections::VecDeque;

/// A second observation so much later (nanoseconds) than the first may be a retransmission: timeouts
/// take longer, and transits seldom do.
const DOUBTFUL_NS: i64 = 1_000_000;
/// Doubtful second observations of a connection and role that wait for a third one. The oldest of more
/// counts as an arrival.
const MAX_DOUBTFUL: usize = 1 << 6;
/// Packets of a connection and role that have not arrived although a later one has, and that are older
/// than the list of first observations.
const MAX_OVERTAKEN: usize = 1 << 6;

/// Number and time of packets that were observed once.
type FirstObservations = VecDeque<(i64, i64)>;

/// Packets of one role of a connection that have not arrived at the second port, or may not have.
#[derive(Debug)]
pub(super) struct PortCopies {
    firsts: FirstObservations,
    /// Highest number of a packet that arrived, and the time of its arrival.
    last_arrived: (i64, i64),
    /// Only if packets are lost, late or out of order.
    exceptions: Option<Box<Exceptions>>,
}

impl Default for PortCopies {
    fn default() -> Self {
        Self { firsts: VecDeque::new(), last_arrived: (i64::MIN, i64::MIN), exceptions: None }
    }
}

#[derive(Debug, Default)]
struct Exceptions {
    /// Packets that a later one has overtaken.
    overtaken: FirstObservations,
    doubtful: VecDeque<Arrival>,
}

/// A packet that arrived at the second port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) number: i64,
    /// The packet as observed there.
    pub(super) packet: PacketRecord,
    /// Time of its first observation, if that is known and was the same transmission.
    pub(super) first_ns: Option<i64>,
}

/// A second observation.
#[derive(Clone, Copy, Debug)]
pub(super) enum SecondObservation {
    /// Of a packet whose first observation is no longer known.
    Unpaired(Arrival),
    Arrived(Arrival),
    /// It waits for a third one. Another packet may have waited for long enough.
    Doubtful(Option<Arrival>),
}

/// Makes room for one more entry and few beyond, because there are many lists.
pub(super) fn make_room<T>(list: &mut VecDeque<T>) {
    if list.len() == list.capacity() {
        list.reserve_exact((list.len() / 2).max(1));
    }
}

/// Removes the entry of a packet and returns the time of its first observation.
fn take(list: &mut FirstObservations, number: i64) -> Option<i64> {
    // Arrivals come in the order of the packets, so the entry is near the front.
    let at = list.iter().position(|(first, _)| *first == number)?;
    // Entries before it stay for a while: their arrivals are missing or late.
    list.remove(at).map(|(_, first_ns)| first_ns)
}

impl PortCopies {
    /// Takes the first observation of packet `number`. The list keeps `room` packets.
    pub(super) fn first(&mut self, number: i64, time_ns: i64, room: usize) {
        if self.firsts.len() >= room
            && let Some(oldest) = self.firsts.pop_front()
            && oldest.0 < self.last_arrived.0
        {
            let overtaken = &mut self.exceptions.get_or_insert_default().overtaken;
            if overtaken.len() == MAX_OVERTAKEN {
                overtaken.pop_front();
            }
            overtaken.push_back(oldest);
        }
        make_room(&mut self.firsts);
        self.firsts.push_back((number, time_ns));
    }

    /// Takes the second observation of packet `number`.
    pub(super) fn second(&mut self, number: i64, packet: &PacketRecord) -> SecondObservation {
        let older = || take(&mut self.exceptions.as_mut()?.overtaken, number);
        let first_ns = take(&mut self.firsts, number).or_else(older);
        let arrival = Arrival { number, packet: *packet, first_ns };
        let Some(first_ns) = first_ns else { return SecondObservation::Unpaired(arrival) };
        // A retransmission of a packet that was first lost before the sender's port is overtaken by nothing.
        let is_in_order = number > self.last_arrived.0 || first_ns > self.last_arrived.1;
        if is_in_order && packet.time_ns.saturating_sub(first_ns) <= DOUBTFUL_NS {
            self.note_arrival(&arrival);
            return SecondObservation::Arrived(arrival);
        }
        let doubtful = &mut self.exceptions.get_or_insert_default().doubtful;
        let oldest = if doubtful.len() == MAX_DOUBTFUL { doubtful.pop_front() } else { None };
        doubtful.push_back(arrival);
        oldest.iter().for_each(|oldest| self.note_arrival(oldest));
        SecondObservation::Doubtful(oldest)
    }

    fn note_arrival(&mut self, arrival: &Arrival) {
        self.last_arrived = self.last_arrived.max((arrival.number, arrival.packet.time_ns));
    }

    /// Takes the third observation of packet `number`. Returns its arrival if the second one was a
    /// retransmission.
    pub(super) fn third(&mut self, number: i64, packet: &PacketRecord) -> Option<Arrival> {
        let doubtful = &mut self.exceptions.as_mut()?.doubtful;
        let at = doubtful.iter().position(|own| own.number == number)?;
        doubtful.remove(at);
        let arrival = Arrival { number, packet: *packet, first_ns: None };
        self.note_arrival(&arrival);
        Some(arrival)
    }

    /// The last packet before `number` that was first observed at `from_ns` or later and has not
    /// arrived.
    pub(super) fn unarrived_before(&self, number: i64, from_ns: i64) -> Option<i64> {
        let exceptions = self.exceptions.as_deref();
        let doubtful = exceptions.iter().flat_map(|own| &own.doubtful);
        let doubtful = doubtful.filter_map(|own| Some((own.number, own.first_ns?)));
        let overtaken = exceptions.iter().flat_map(|own| &own.overtaken).copied();
        let all = self.firsts.iter().copied().chain(overtaken).chain(doubtful);
        all.filter(|(other, first_ns)| *other < number && *first_ns >= from_ns).map(|(other, _)| other).max()
    }

    /// Takes the arrivals that still wait for a third observation, at the end of the input.
    pub(super) fn finish(&mut self) -> VecDeque<Arrival> {
        self.exceptions.take().map(|own| own.doubtful).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::PacketFields;

    fn at(time_ns: i64) -> PacketRecord {
        PacketRecord::new(PacketFields { time_ns, ..PacketFields::default() })
    }

    /// Time of the first observation and of the arrival.
    fn times(arrival: Arrival) -> (Option<i64>, i64) {
        (arrival.first_ns, arrival.packet.time_ns)
    }

    #[test]
    fn a_second_observation_is_doubtful_if_it_is_late_or_overtaken() {
        for (second_ns, arrives) in [(DOUBTFUL_NS, true), (DOUBTFUL_NS + 1, false)] {
            let mut copies = PortCopies::default();
            copies.first(7, 0, 16);
            let second = copies.second(7, &at(second_ns));
            assert_eq!(matches!(second, SecondObservation::Arrived(_)), arrives, "{second:?}");
        }
        let mut copies = PortCopies::default();
        (7..=8).for_each(|number| copies.first(number, 0, 16));
        assert!(matches!(copies.second(8, &at(5)), SecondObservation::Arrived(_)));
        assert_eq!(copies.unarrived_before(8, 0), Some(7));
        assert!(matches!(copies.second(7, &at(6)), SecondObservation::Doubtful(None)));
        // It may still be on its way.
        assert_eq!(copies.unarrived_before(8, 0), Some(7));
        assert_eq!(copies.third(7, &at(9)).map(times), Some((None, 9)));
        assert_eq!((copies.unarrived_before(8, 0), copies.finish().len()), (None, 0));
    }

    /// Its first transmission was lost before the first port.
    #[test]
    fn a_retransmission_that_was_observed_after_a_later_packet_is_not_doubtful() {
        for (first_ns, arrives) in [(5, false), (6, true)] {
            let mut copies = PortCopies::default();
            copies.first(8, 0, 16);
            copies.second(8, &at(5));
            copies.first(7, first_ns, 16);
            let second = copies.second(7, &at(9));
            assert_eq!(matches!(second, SecondObservation::Arrived(_)), arrives, "{second:?}");
        }
    }

    #[test]
    fn a_doubtful_one_without_a_third_is_an_arrival() {
        let mut copies = PortCopies::default();
        let late_ns = |number: i64| number + 2 * DOUBTFUL_NS;
        for number in 0..=MAX_DOUBTFUL as i64 {
            copies.first(number, number, 16);
            let SecondObservation::Doubtful(oldest) = copies.second(number, &at(late_ns(number))) else { panic!() };
            let expected = (number == MAX_DOUBTFUL as i64).then(|| (Some(0), late_ns(0)));
            assert_eq!(oldest.map(times), expected);
        }
        let left: Vec<_> = copies.finish().into_iter().map(times).collect();
        let expected: Vec<_> = (1..=MAX_DOUBTFUL as i64).map(|number| (Some(number), late_ns(number))).collect();
        assert_eq!(left, expected);
    }

    /// The list of first observations is short; a packet that was overtaken is still known.
    #[test]
    fn packets_that_were_overtaken_are_kept_longer() {
        for (others, is_known) in [(MAX_OVERTAKEN as i64, true), (MAX_OVERTAKEN as i64 + 1, false)] {
            let mut copies = PortCopies::default();
            copies.first(0, 50, 1);
            copies.last_arrived = (1000, 55);
            // Each displaces the one before.
            (1..=others).for_each(|number| copies.first(number, 60, 1));
            let second = copies.second(0, &at(90));
            assert_eq!(matches!(second, SecondObservation::Doubtful(None)), is_known, "{second:?}");
        }
    }

    #[test]
    fn packets_from_before_the_time_do_not_count_as_unarrived() {
        let mut copies = PortCopies::default();
        copies.first(3, 100, 16);
        assert_eq!([100, 101].map(|from_ns| copies.unarrived_before(9, from_ns)), [Some(3), None]);
        assert_eq!(copies.unarrived_before(3, 0), None);
    }
}
