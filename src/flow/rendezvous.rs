//! Measures the phases of a rendezvous: from the ready-to-send to the data, the data, and from the
//! data to the completion notice.
//!
//! A completion notice carries an id that its addressee has assigned, so the notice is matched by
//! that id:
//!
//! ```text
//! READ   sender: RTS {request, address}   receiver: READ -> responses  receiver: done {request}
//! WRITE  receiver: CTS {fragment, address}   sender: WRITE             sender: done {fragment}
//! ```
//! A message that is granted in parts is done when all its parts are. All times are those at the
//! sender's port, where the capture observes it.

use super::arrivals::PendingTiming;
use super::assembly::join_times;
use crate::model::{
    HashMap, Interval, ObservedPorts, PacketRecord, RawMessage, RequiredDetection, SizeClass, Timing, TimingKey,
};
use ibscope_parsers::Endpoint;
use ibscope_parsers::mpi::MpiMessageId;
use std::collections::BTreeMap;

/// Rendezvous that are tracked per tracker; one more drops the oldest.
const MAX_OPEN: usize = 1 << 10;
/// Messages between two endpoints that may wait for the same notice, one per process. If there are
/// more, a notice without its connection matches none of them.
const MAX_NAMESAKES: usize = 64;
/// Parts that a message may be granted in. The completion of a message with more parts is unknown,
/// so its times are not measured.
const MAX_PIECES: usize = 64;

/// Sender, receiver and id of a completion notice.
type CompletionNotice = (Endpoint, Endpoint, MpiMessageId);

/// The rendezvous of one tracker, by message number.
#[derive(Debug, Default)]
pub(super) struct RendezvousTracker {
    open: BTreeMap<u64, OpenRendezvous>,
    awaited_by: HashMap<CompletionNotice, Vec<u64>>,
    /// Phases that have ended.
    pub(super) phases: Vec<RendezvousPhase>,
}

#[derive(Debug)]
struct OpenRendezvous {
    /// Number of the connection of the ready-to-send, and its time.
    connection: u32,
    from_ns: i64,
    required_detection: RequiredDetection,
    data_ns: (i64, i64),
    /// Set once all data have arrived.
    completed_key: Option<TimingKey>,
    /// Completion notices that are still to come.
    awaited_notices: Vec<CompletionNotice>,
    granted: bool,
}

/// A phase that the current packet ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct RendezvousPhase {
    pending: PendingTiming,
    to_ns: i64,
    /// The phase ends at the receiver of that packet, so its second observation ends the phase if
    /// there are two.
    arrives: bool,
}

impl RendezvousPhase {
    /// The time that ends with the first observation of the last packet.
    pub(super) fn timing(&self) -> Timing {
        let PendingTiming { connection, from_ns, key, required_detection: required } = self.pending;
        let observed_ports = if self.arrives { ObservedPorts::OnePort } else { ObservedPorts::Any };
        Timing::between(connection, (key, required), observed_ports, (from_ns, self.to_ns))
    }

    /// The pending time that the second observation of the packet ends.
    pub(super) fn pending(&self) -> Option<PendingTiming> {
        self.arrives.then_some(self.pending)
    }
}

impl RendezvousTracker {
    /// Takes a ready-to-send. `done` is the id in the notice that the receiver sends after its
    /// READ.
    pub(super) fn begin(
        &mut self,
        id: u64,
        (src, dst): (Endpoint, Endpoint),
        (connection, from_ns): (u32, i64),
        required: RequiredDetection,
        done: Option<MpiMessageId>,
    ) {
        if from_ns == PacketRecord::NO_TIME {
            return;
        }
        if self.open.len() >= MAX_OPEN
            && let Some((&oldest, _)) = self.open.first_key_value()
        {
            self.forget(oldest);
        }
        let data_ns = (PacketRecord::NO_TIME, PacketRecord::NO_TIME);
        let rendezvous = OpenRendezvous {
            connection,
            from_ns,
            required_detection: required,
            data_ns,
            completed_key: None,
            awaited_notices: Vec::new(),
            granted: false,
        };
        self.open.insert(id, rendezvous);
        if let Some(name) = done {
            self.expect(id, (dst, src, name));
        }
    }

    /// Takes a grant: the receiver lets the sender write. `done` is the id in the notice that the
    /// sender will send.
    pub(super) fn grant(&mut self, id: u64, (src, dst): (Endpoint, Endpoint), done: Option<MpiMessageId>) {
        let Some(rendezvous) = self.open.get_mut(&id) else { return };
        if !std::mem::replace(&mut rendezvous.granted, true) {
            // The receiver will not READ the data.
            let offered = std::mem::take(&mut rendezvous.awaited_notices);
            offered.iter().for_each(|notice| self.stop_expecting(id, notice));
        }
        if let Some(name) = done {
            self.expect(id, (src, dst, name));
        }
    }

    /// Adds data to a message. Spans without a time do not count.
    pub(super) fn data(&mut self, id: u64, times_ns: (i64, i64)) {
        if let Some(rendezvous) = self.open.get_mut(&id) {
            rendezvous.data_ns = join_times(rendezvous.data_ns, times_ns);
        }
    }

    /// Takes a message whose data have ended; only completion notices may follow.
    pub(super) fn end(&mut self, id: u64, message: &RawMessage) {
        let Some(rendezvous) = self.open.get_mut(&id) else { return };
        let (first_ns, last_ns) = rendezvous.data_ns;
        let Some(bytes) = message.length_bytes.filter(|_| message.complete && first_ns != PacketRecord::NO_TIME) else {
            return self.forget(id);
        };
        let key = |interval| TimingKey { interval, verb: message.transfer_verb, size: SizeClass::of(bytes) };
        let OpenRendezvous { connection, from_ns, required_detection: required, .. } = *rendezvous;
        let phase = |interval, from_ns, to_ns| RendezvousPhase {
            pending: PendingTiming { connection, from_ns, key: key(interval), required_detection: Some(required) },
            to_ns,
            arrives: false,
        };
        rendezvous.completed_key = Some(key(Interval::RendezvousCompletion));
        self.phases.push(phase(Interval::RendezvousRequest, from_ns, first_ns));
        self.phases.push(phase(Interval::RendezvousData, first_ns, last_ns));
        // No notice will come, or all came before the last data were observed.
        if rendezvous.awaited_notices.is_empty() {
            self.forget(id);
        }
    }

    /// Takes a completion notice from `src` to `dst` with the id `name`. `likely` are the
    /// connections whose ready-to-send is preferred.
    pub(super) fn done(
        &mut self,
        (src, dst): (Endpoint, Endpoint),
        name: MpiMessageId,
        likely: [Option<u32>; 2],
        time_ns: i64,
    ) {
        let notice = (src, dst, name);
        let Some(namesakes) = self.awaited_by.get(&notice) else { return };
        let own = |id: &&u64| self.open.get(id).is_some_and(|own| likely.contains(&Some(own.connection)));
        let oldest = || namesakes.first().filter(|_| namesakes.len() <= MAX_NAMESAKES);
        let Some(id) = namesakes.iter().find(own).or_else(oldest).copied() else { return };
        self.stop_expecting(id, &notice);
        let Some(rendezvous) = self.open.get_mut(&id) else { return };
        rendezvous.awaited_notices.retain(|awaited| *awaited != notice);
        let (Some(key), true) = (rendezvous.completed_key, rendezvous.awaited_notices.is_empty()) else { return };
        let pending = PendingTiming {
            connection: rendezvous.connection,
            from_ns: rendezvous.data_ns.1,
            key,
            required_detection: Some(rendezvous.required_detection),
        };
        if time_ns != PacketRecord::NO_TIME {
            self.phases.push(RendezvousPhase { pending, to_ns: time_ns, arrives: !rendezvous.granted });
        }
        self.open.remove(&id);
    }

    fn expect(&mut self, id: u64, notice: CompletionNotice) {
        let Some(connection) = self.open.get(&id).map(|rendezvous| rendezvous.connection) else { return };
        let namesakes = self.awaited_by.get(&notice).into_iter().flatten().copied();
        let same = |other: &u64| self.open.get(other).is_some_and(|other| other.connection == connection);
        // A library reuses an id when it is done, even if the capture missed that.
        let stale: Vec<u64> = namesakes.filter(|other| *other != id && same(other)).collect();
        stale.into_iter().for_each(|other| self.forget(other));
        let Some(rendezvous) = self.open.get_mut(&id) else { return };
        let namesakes = self.awaited_by.entry(notice).or_default();
        // One entry beyond the limit shows that there were more.
        if rendezvous.awaited_notices.len() < MAX_PIECES && namesakes.len() <= MAX_NAMESAKES {
            rendezvous.awaited_notices.push(notice);
            namesakes.push(id);
        } else {
            self.forget(id);
        }
    }

    fn stop_expecting(&mut self, id: u64, notice: &CompletionNotice) {
        if let Some(namesakes) = self.awaited_by.get_mut(notice) {
            namesakes.retain(|other| *other != id);
            if namesakes.is_empty() {
                self.awaited_by.remove(notice);
            }
        }
    }

    fn forget(&mut self, id: u64) {
        let Some(rendezvous) = self.open.remove(&id) else { return };
        rendezvous.awaited_notices.iter().for_each(|notice| self.stop_expecting(id, notice));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Verb;
    use ibscope_parsers::Lid;
    use ibscope_parsers::mpi::{LibraryStack, MatchFields, Protocol};

    fn ends() -> (Endpoint, Endpoint) {
        (Endpoint::from_lid(Lid(1)), Endpoint::from_lid(Lid(2)))
    }

    fn begin(rendezvous: &mut RendezvousTracker, id: u64, done: Option<MpiMessageId>) {
        let required = RequiredDetection::of(LibraryStack::Ob1, MatchFields::UcxTag(7));
        rendezvous.begin(id, ends(), (id as u32, 10), required, done);
    }

    /// Ends a message whose data came from 20 to 30 ns.
    fn end(rendezvous: &mut RendezvousTracker, id: u64) {
        rendezvous.data(id, (20, 30));
        let message = RawMessage {
            connection: id as u32,
            psn: 0,
            mpi: Some((LibraryStack::Ob1, MatchFields::UcxTag(7), Protocol::Rendezvous)),
            transfer_verb: Verb::Write,
            length_bytes: Some(100),
            wire_bytes: 0,
            packets: 0,
            times_ns: (10, 30),
            complete: true,
            receive: None,
        };
        rendezvous.end(id, &message);
    }

    /// Connections and end times of the phases of this interval.
    fn phases(rendezvous: &RendezvousTracker, interval: Interval) -> Vec<(u32, i64)> {
        let own = rendezvous.phases.iter().filter(|phase| phase.pending.key.interval == interval);
        own.map(|phase| (phase.pending.connection, phase.to_ns)).collect()
    }

    #[test]
    fn the_oldest_of_too_many_rendezvous_is_not_measured() {
        for (count, first) in [(MAX_OPEN as u64, 0), (MAX_OPEN as u64 + 1, 1)] {
            let mut rendezvous = RendezvousTracker::default();
            (0..count).for_each(|id| begin(&mut rendezvous, id, None));
            (0..count).for_each(|id| end(&mut rendezvous, id));
            let measured = phases(&rendezvous, Interval::RendezvousData);
            assert_eq!((measured.len(), measured[0]), (MAX_OPEN, (first, 30)));
        }
    }

    /// The notice of the last part comes last, so the completion of a message with too many parts
    /// is unknown.
    #[test]
    fn a_message_in_too_many_parts_is_not_measured() {
        for (pieces, expected) in
            [(MAX_PIECES as u64, vec![(1, 1000 + MAX_PIECES as i64)]), (MAX_PIECES as u64 + 1, vec![])]
        {
            let mut rendezvous = RendezvousTracker::default();
            begin(&mut rendezvous, 1, None);
            let (src, dst) = ends();
            (1..=pieces).for_each(|piece| rendezvous.grant(1, (src, dst), Some(MpiMessageId::Fragment(piece))));
            end(&mut rendezvous, 1);
            for piece in 1..=pieces {
                rendezvous.done((src, dst), MpiMessageId::Fragment(piece), [None; 2], 1000 + piece as i64);
            }
            assert_eq!(phases(&rendezvous, Interval::RendezvousCompletion), expected);
        }
    }

    /// A notice without its connection matches none of too many messages that wait for it.
    #[test]
    fn too_many_messages_with_one_id_match_none_of_them() {
        let (src, dst) = ends();
        for (namesakes, guessed) in [(MAX_NAMESAKES as u64, 1), (MAX_NAMESAKES as u64 + 1, 0)] {
            let mut rendezvous = RendezvousTracker::default();
            (0..namesakes).for_each(|id| begin(&mut rendezvous, id, Some(MpiMessageId::SenderRequest(7))));
            (0..namesakes).for_each(|id| end(&mut rendezvous, id));
            rendezvous.done((dst, src), MpiMessageId::SenderRequest(7), [None; 2], 40);
            assert_eq!(phases(&rendezvous, Interval::RendezvousCompletion).len(), guessed);
            rendezvous.phases.clear();
            // The other notices are matched by their connections.
            for id in guessed as u64..namesakes {
                rendezvous.done((dst, src), MpiMessageId::SenderRequest(7), [Some(id as u32), None], 1000 + id as i64);
            }
            let expected: Vec<(u32, i64)> =
                (guessed as u64..namesakes).map(|id| (id as u32, 1000 + id as i64)).collect();
            assert_eq!(phases(&rendezvous, Interval::RendezvousCompletion), expected);
        }
    }
}
