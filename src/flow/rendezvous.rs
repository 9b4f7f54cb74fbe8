//! The phases of a rendezvous: from the ready to send to its data, the data, and to the message that says that they are there.
//!
//! What says so names something of whom it is said to, so it is found by that:
//!
//! ```text
//! READ    sender: RTS {request, address}    receiver: READ -> responses    receiver -> sender: done {request}
//! WRITE   receiver: CTS {fragment, address}    sender: WRITE               sender -> receiver: done {fragment}
//! ```
//! A message that is granted piece by piece is done when all its pieces are. All times are those at the port of the sender of the message, where a
//! capture shows it.

use super::arrivals::Begun;
use super::assembly::join_times;
use crate::model::{Claim, HashMap, Interval, PacketRecord, RawMessage, Sight, SizeClass, Timing, TimingKey};
use ibscope_parsers::Endpoint;
use ibscope_parsers::mpi::Name;
use std::collections::BTreeMap;

/// Rendezvous that are followed per tracker; beyond that the oldest is forgotten.
const MAX_FOLLOWED: usize = 1 << 10;
/// Messages of which the same may be said between two endpoints: one of each process. Of more none is meant, but by its own
/// connection.
const MAX_NAMESAKES: usize = 64;
/// Pieces that one message may be granted in: of one with more it is not known when it is done, so its times are not measured.
const MAX_PIECES: usize = 64;

/// Who says it, to whom, of what.
type Saying = (Endpoint, Endpoint, Name);

/// The rendezvous of one tracker, by the number of their message.
#[derive(Debug, Default)]
pub(super) struct Rendezvous {
    followed: BTreeMap<u64, Followed>,
    awaited: HashMap<Saying, Vec<u64>>,
    /// What can be measured.
    pub(super) phases: Vec<Phase>,
}

#[derive(Debug)]
struct Followed {
    /// Number of the connection of its ready to send, and the time of that.
    connection: u32,
    from_ns: i64,
    claim: Claim,
    data_ns: (i64, i64),
    /// All its data have come.
    whole: Option<TimingKey>,
    /// What is still to be said of it.
    awaited: Vec<Saying>,
    granted: bool,
}

/// A phase that has ended with the packet that has just been seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phase {
    begun: Begun,
    to_ns: i64,
    /// It ends at the receiver of that packet, so that its second sight counts where there are two.
    arrives: bool,
}

impl Phase {
    /// The time, as the first sight of its last packet tells it.
    pub(super) fn timing(&self) -> Timing {
        let Begun { connection, from_ns, key, claim } = self.begun;
        let sight = if self.arrives { Sight::Alone } else { Sight::Any };
        Timing::between(connection, (key, Some(claim)), sight, (from_ns, self.to_ns))
    }

    /// What the second sight of the packet ends.
    pub(super) fn begun(&self) -> Option<Begun> {
        self.arrives.then_some(self.begun)
    }
}

impl Rendezvous {
    /// A ready to send. `done` is what the receiver will say to its sender once it has READ the data.
    pub(super) fn begin(
        &mut self,
        id: u64,
        (src, dst): (Endpoint, Endpoint),
        (connection, from_ns): (u32, i64),
        claim: Claim,
        done: Option<Name>,
    ) {
        if from_ns == PacketRecord::NO_TIME {
            return;
        }
        if self.followed.len() >= MAX_FOLLOWED
            && let Some((&oldest, _)) = self.followed.first_key_value()
        {
            self.forget(oldest);
        }
        let data_ns = (PacketRecord::NO_TIME, PacketRecord::NO_TIME);
        let followed =
            Followed { connection, from_ns, claim, data_ns, whole: None, awaited: Vec::new(), granted: false };
        self.followed.insert(id, followed);
        if let Some(name) = done {
            self.expect(id, (dst, src, name));
        }
    }

    /// The receiver lets the sender of the message write. `done` is what the sender will say to it.
    pub(super) fn grant(&mut self, id: u64, (src, dst): (Endpoint, Endpoint), done: Option<Name>) {
        let Some(followed) = self.followed.get_mut(&id) else { return };
        if !std::mem::replace(&mut followed.granted, true) {
            // It will not READ then.
            let offered = std::mem::take(&mut followed.awaited);
            offered.iter().for_each(|saying| self.unexpect(id, saying));
        }
        if let Some(name) = done {
            self.expect(id, (src, dst, name));
        }
    }

    /// Data of a message. Spans without a time do not count.
    pub(super) fn data(&mut self, id: u64, times_ns: (i64, i64)) {
        if let Some(followed) = self.followed.get_mut(&id) {
            followed.data_ns = join_times(followed.data_ns, times_ns);
        }
    }

    /// A message of which nothing more will come but what is said of it.
    pub(super) fn end(&mut self, id: u64, message: &RawMessage) {
        let Some(followed) = self.followed.get_mut(&id) else { return };
        let (first_ns, last_ns) = followed.data_ns;
        let Some(bytes) = message.length_bytes.filter(|_| message.complete && first_ns != PacketRecord::NO_TIME) else {
            return self.forget(id);
        };
        let key = |interval| TimingKey { interval, verb: message.moved.verb(), size: SizeClass::of(bytes) };
        let Followed { connection, from_ns, claim, .. } = *followed;
        let phase = |interval, from_ns, to_ns| Phase {
            begun: Begun { connection, from_ns, key: key(interval), claim },
            to_ns,
            arrives: false,
        };
        followed.whole = Some(key(Interval::RendezvousCompletion));
        self.phases.push(phase(Interval::RendezvousRequest, from_ns, first_ns));
        self.phases.push(phase(Interval::RendezvousData, first_ns, last_ns));
        // Nothing will be said of it, or all has been said before its last data were seen.
        if followed.awaited.is_empty() {
            self.forget(id);
        }
    }

    /// `src` says to `dst` that what it calls `name` is done, at a time. `likely` are the connections of the ready to send that come first.
    pub(super) fn done(
        &mut self,
        (src, dst): (Endpoint, Endpoint),
        name: Name,
        likely: [Option<u32>; 2],
        time_ns: i64,
    ) {
        let saying = (src, dst, name);
        let Some(namesakes) = self.awaited.get(&saying) else { return };
        let own = |id: &&u64| self.followed.get(id).is_some_and(|own| likely.contains(&Some(own.connection)));
        let oldest = || namesakes.first().filter(|_| namesakes.len() <= MAX_NAMESAKES);
        let Some(id) = namesakes.iter().find(own).or_else(oldest).copied() else { return };
        self.unexpect(id, &saying);
        let Some(followed) = self.followed.get_mut(&id) else { return };
        followed.awaited.retain(|awaited| *awaited != saying);
        let (Some(key), true) = (followed.whole, followed.awaited.is_empty()) else { return };
        let begun = Begun { connection: followed.connection, from_ns: followed.data_ns.1, key, claim: followed.claim };
        if time_ns != PacketRecord::NO_TIME {
            self.phases.push(Phase { begun, to_ns: time_ns, arrives: !followed.granted });
        }
        self.followed.remove(&id);
    }

    fn expect(&mut self, id: u64, saying: Saying) {
        let Some(connection) = self.followed.get(&id).map(|followed| followed.connection) else { return };
        let namesakes = self.awaited.get(&saying).into_iter().flatten().copied();
        let same = |other: &u64| self.followed.get(other).is_some_and(|other| other.connection == connection);
        // A name is used again when it is done, whether that was captured or not.
        let stale: Vec<u64> = namesakes.filter(|other| *other != id && same(other)).collect();
        stale.into_iter().for_each(|other| self.forget(other));
        let Some(followed) = self.followed.get_mut(&id) else { return };
        let namesakes = self.awaited.entry(saying).or_default();
        // The one beyond the bound shows that it was reached.
        if followed.awaited.len() < MAX_PIECES && namesakes.len() <= MAX_NAMESAKES {
            followed.awaited.push(saying);
            namesakes.push(id);
        } else {
            self.forget(id);
        }
    }

    fn unexpect(&mut self, id: u64, saying: &Saying) {
        if let Some(namesakes) = self.awaited.get_mut(saying) {
            namesakes.retain(|other| *other != id);
            if namesakes.is_empty() {
                self.awaited.remove(saying);
            }
        }
    }

    fn forget(&mut self, id: u64) {
        let Some(followed) = self.followed.remove(&id) else { return };
        followed.awaited.iter().for_each(|saying| self.unexpect(id, saying));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Moved;
    use ibscope_parsers::Lid;
    use ibscope_parsers::mpi::{Form, Matching, Protocol};

    fn ends() -> (Endpoint, Endpoint) {
        (Endpoint::from_lid(Lid(1)), Endpoint::from_lid(Lid(2)))
    }

    fn begin(rendezvous: &mut Rendezvous, id: u64, done: Option<Name>) {
        let claim = Claim::of(Form::Ob1, Matching::UcxTag(7));
        rendezvous.begin(id, ends(), (id as u32, 10), claim, done);
    }

    /// Its data came from 20 to 30.
    fn end(rendezvous: &mut Rendezvous, id: u64) {
        rendezvous.data(id, (20, 30));
        let message = RawMessage {
            connection: id as u32,
            psn: 0,
            mpi: Some((Form::Ob1, Matching::UcxTag(7), Protocol::Rendezvous)),
            moved: Moved::Write,
            length_bytes: Some(100),
            wire_bytes: 0,
            packets: 0,
            times_ns: (10, 30),
            complete: true,
        };
        rendezvous.end(id, &message);
    }

    /// Phases by how they are called.
    fn phases(rendezvous: &Rendezvous, interval: Interval) -> Vec<(u32, i64)> {
        let own = rendezvous.phases.iter().filter(|phase| phase.begun.key.interval == interval);
        own.map(|phase| (phase.begun.connection, phase.to_ns)).collect()
    }

    #[test]
    fn the_oldest_of_too_many_rendezvous_is_not_measured() {
        for (count, first) in [(MAX_FOLLOWED as u64, 0), (MAX_FOLLOWED as u64 + 1, 1)] {
            let mut rendezvous = Rendezvous::default();
            (0..count).for_each(|id| begin(&mut rendezvous, id, None));
            (0..count).for_each(|id| end(&mut rendezvous, id));
            let measured = phases(&rendezvous, Interval::RendezvousData);
            assert_eq!((measured.len(), measured[0]), (MAX_FOLLOWED, (first, 30)));
        }
    }

    /// The last piece is done last: of a message with more pieces than are kept its end is not known.
    #[test]
    fn a_message_of_too_many_pieces_is_not_measured() {
        for (pieces, expected) in
            [(MAX_PIECES as u64, vec![(1, 1000 + MAX_PIECES as i64)]), (MAX_PIECES as u64 + 1, vec![])]
        {
            let mut rendezvous = Rendezvous::default();
            begin(&mut rendezvous, 1, None);
            let (src, dst) = ends();
            (1..=pieces).for_each(|piece| rendezvous.grant(1, (src, dst), Some(Name::Fragment(piece))));
            end(&mut rendezvous, 1);
            for piece in 1..=pieces {
                rendezvous.done((src, dst), Name::Fragment(piece), [None; 2], 1000 + piece as i64);
            }
            assert_eq!(phases(&rendezvous, Interval::RendezvousCompletion), expected);
        }
    }

    /// What is said of one of too many with the same name, without its connection, is said of none of them.
    #[test]
    fn of_too_many_messages_of_one_name_none_is_guessed() {
        let (src, dst) = ends();
        for (namesakes, guessed) in [(MAX_NAMESAKES as u64, 1), (MAX_NAMESAKES as u64 + 1, 0)] {
            let mut rendezvous = Rendezvous::default();
            (0..namesakes).for_each(|id| begin(&mut rendezvous, id, Some(Name::Request(7))));
            (0..namesakes).for_each(|id| end(&mut rendezvous, id));
            rendezvous.done((dst, src), Name::Request(7), [None; 2], 40);
            assert_eq!(phases(&rendezvous, Interval::RendezvousCompletion).len(), guessed);
            rendezvous.phases.clear();
            // Of the others each is told by its connection.
            for id in guessed as u64..namesakes {
                rendezvous.done((dst, src), Name::Request(7), [Some(id as u32), None], 1000 + id as i64);
            }
            let expected: Vec<(u32, i64)> =
                (guessed as u64..namesakes).map(|id| (id as u32, 1000 + id as i64)).collect();
            assert_eq!(phases(&rendezvous, Interval::RendezvousCompletion), expected);
        }
    }
}
