//! MPI messages from the port of their sender in one input to the port of their receiver in another.
//!
//! Each input draws a sample of its messages, the same ones as the others do. Which of two inputs is at the sender's port is told by which saw the
//! messages of that direction first, nearly always; the messages that come back must say the contrary. Where they do not, the clocks of the inputs
//! differ by more than packets need from port to port, and nothing can be said.

use super::combine::{CombinedTotals, SAME_TIME_NS};
use crate::model::{
    Claim, ConnectionKey, Interval, Moved, PacketRecord, RawMessage, Recorder, Sample, SizeClass, TimingKey,
};
use ibscope_parsers::Endpoint;
use ibscope_parsers::mpi::Form;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// An MPI message as one input has seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Passage {
    connection: u32,
    psn: u32,
    key: TimingKey,
    claim: Claim,
    times_ns: (i64, i64),
}

impl Passage {
    /// A message that is complete, if it is one of MPI.
    #[must_use]
    pub fn of(message: &RawMessage) -> Option<Self> {
        let (form, matching, _) = message.mpi.filter(|_| message.complete && message.moved != Moved::Atomic)?;
        let size = SizeClass::of(message.length_bytes?);
        if form == Form::Nccl && message.length_bytes? > message.wire_bytes {
            // Other connections carry the rest of it.
            return None;
        }
        (message.times_ns.0 != PacketRecord::NO_TIME).then(|| Self {
            connection: message.connection,
            psn: message.psn,
            key: TimingKey { interval: Interval::MpiMessage, verb: message.moved.verb(), size },
            claim: Claim::of(form, matching),
            times_ns: message.times_ns,
        })
    }
}

/// What one tracker of an input has drawn.
#[derive(Debug)]
pub struct Drawn {
    /// Index of the input.
    pub input: usize,
    /// Connections by their numbers in the tracker.
    pub keys: Vec<ConnectionKey>,
    /// Messages.
    pub sample: Sample<Passage>,
}

/// Messages that two inputs have seen and that no time is shown of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Untimed {
    /// It is not clear which input is at the port of their sender.
    pub unclear: u64,
    /// They would have come before they were sent.
    pub backwards: u64,
}

impl AddAssign for Untimed {
    fn add_assign(&mut self, other: Self) {
        self.unclear += other.unclear;
        self.backwards += other.backwards;
    }
}

/// What a message is of, and the connection and PSN that stand for it.
type Of = (Claim, TimingKey);
type Named = (ConnectionKey, u32, Of);
/// The inputs that have seen it, and when.
type Sights = Vec<(usize, (i64, i64))>;
/// Two inputs, and sender and receiver.
type Direction = ((usize, usize), (Endpoint, Endpoint));

/// A message that two inputs have seen, with its first and last time in each.
struct Seen {
    inputs: (usize, usize),
    connection: ConnectionKey,
    of: Of,
    times_ns: [(i64, i64); 2],
}

impl CombinedTotals {
    /// Adds the times of messages that two inputs have seen once each. `drawn` is what trackers of the same pairs of endpoints have.
    pub fn join(&mut self, drawn: Vec<Drawn>) -> Untimed {
        let mut untimed = Untimed::default();
        let seen = self.seen(drawn);
        let senders = senders(&seen);
        let mut times: BTreeMap<(ConnectionKey, Of), Recorder> = BTreeMap::new();
        for Seen { inputs, connection, of, times_ns: [one, other] } in seen {
            let pair = |(src, dst): (Endpoint, Endpoint)| senders.get(&(inputs, (src, dst))).copied().unwrap_or(0);
            let (there, back) = (pair((connection.src, connection.dst)), pair((connection.dst, connection.src)));
            if there == 0 || there.signum() == back.signum() {
                untimed.unclear += 1;
                continue;
            }
            let ns = if there > 0 { other.1.saturating_sub(one.0) } else { one.1.saturating_sub(other.0) };
            match u64::try_from(ns) {
                Ok(ns) => times.entry((connection, of)).or_default().record(ns),
                Err(_) => untimed.backwards += 1,
            }
        }
        for ((connection, (claim, key)), recorder) in times {
            let found = self.connections.binary_search_by_key(&connection, |totals| totals.key);
            let Some(totals) = found.ok().and_then(|at| self.connections.get_mut(at)) else { continue };
            totals.timings.or_default((Some(claim), key)).merge(recorder);
        }
        untimed
    }

    /// The messages that two inputs have seen at one port each.
    fn seen(&self, drawn: Vec<Drawn>) -> Vec<Seen> {
        let mut sights: BTreeMap<Named, (u64, Sights)> = BTreeMap::new();
        let mut limits: BTreeMap<usize, u64> = BTreeMap::new();
        for Drawn { input, keys, sample } in drawn {
            let (limit, kept) = sample.finish();
            limits.insert(input, limit);
            for (hash, passage) in kept {
                let Some(key) = keys.get(passage.connection as usize) else { continue };
                if self.copies.get(input).is_some_and(|copies| !copies.twice(key)) {
                    let of = (passage.claim, passage.key);
                    let (_, sights) = sights.entry((*key, passage.psn, of)).or_insert((hash, Vec::new()));
                    sights.push((input, passage.times_ns));
                }
            }
        }
        let mut seen = Vec::new();
        for ((connection, _, of), (hash, mut sights)) in sights {
            sights.sort_unstable();
            let runs: Vec<_> = sights.chunk_by(|a, b| a.0 == b.0).collect();
            // Numbers come again: as often in the one as in the other, or it is not clear which belong together.
            let [one, other] = runs.as_slice() else { continue };
            let inputs = (one[0].0, other[0].0);
            let is_drawn = [inputs.0, inputs.1].iter().all(|input| hash < limits[input]);
            if one.len() != other.len() || !is_drawn {
                continue;
            }
            let both = one.iter().zip(*other).map(|((_, one), (_, other))| [*one, *other]);
            // Else it is another packet of the same number.
            let same = both.filter(|[one, other]| one.0.abs_diff(other.0) < SAME_TIME_NS.unsigned_abs());
            seen.extend(same.map(|times_ns| Seen { inputs, connection, of, times_ns }));
        }
        seen
    }
}

/// By inputs and direction: how many more messages the first input saw before the second than after it.
fn senders(seen: &[Seen]) -> BTreeMap<Direction, i64> {
    let mut senders: BTreeMap<Direction, i64> = BTreeMap::new();
    for Seen { inputs, connection, times_ns: [one, other], .. } in seen {
        let earlier = senders.entry((*inputs, (connection.src, connection.dst))).or_default();
        *earlier += (other.0 - one.0).signum();
    }
    senders
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ConnectionEnd, Kind, Verb};
    use crate::reduce::Combiner;
    use crate::reduce::copies::Copies;
    use ibscope_parsers::mpi::{Identity, Matching, Protocol};
    use ibscope_parsers::{Lid, Qpn};

    fn key(src: u16, dst: u16) -> ConnectionKey {
        let [src, dst] = [src, dst].map(|lid| Endpoint::from_lid(Lid(lid)));
        ConnectionKey { src, dst, kind: Kind::Data, service: 0, dest_qp: Qpn::new(7), src_qp: Qpn::new(0) }
    }

    /// Messages of 8 bytes on connection 0 (there) or 1 (back), with their PSN and times.
    fn drawn(input: usize, room: usize, messages: &[(u32, u32, (i64, i64))]) -> Drawn {
        let identity = Identity { rank: 0, context: 0, tag: 0, world: true, collective: false };
        let mut sample = Sample::new(room);
        for &(connection, psn, times_ns) in messages {
            let message = RawMessage {
                connection,
                psn,
                mpi: Some((Form::Ob1, Matching::Named(identity), Protocol::Eager)),
                moved: Moved::Send,
                length_bytes: Some(8),
                wire_bytes: 60,
                packets: 1,
                times_ns,
                complete: true,
            };
            sample.add(u64::from(psn), Passage::of(&message).expect("a message"));
        }
        Drawn { input, keys: vec![key(1, 2), key(2, 1)], sample }
    }

    fn join(one: &[(u32, u32, (i64, i64))], other: &[(u32, u32, (i64, i64))]) -> (Vec<u64>, Untimed) {
        joined(one, other, 100)
    }

    /// The times that are measured from 1 to 2 and back, and those that are not.
    fn joined(one: &[(u32, u32, (i64, i64))], other: &[(u32, u32, (i64, i64))], room: usize) -> (Vec<u64>, Untimed) {
        let mut totals = CombinedTotals::default();
        totals.copies.extend([Copies::default(), Copies::default()]);
        let partials = [key(1, 2), key(2, 1)].map(|key| {
            let mut partial = super::super::Partial { times_ns: (0, 1), ..Default::default() };
            partial.first[0].packets = 1;
            (key, partial)
        });
        let mut combiner = Combiner::default();
        combiner.input(Some((0, 1)), partials.iter().map(|(key, partial)| (key, partial)));
        let connections = partials.map(|(key, partial)| Box::new((ConnectionEnd::new(key), partial)));
        totals.connections = combiner.shard(vec![connections.into()]).connections;
        let untimed = totals.join(vec![drawn(0, room, one), drawn(1, 100, other)]);
        let timing = TimingKey { interval: Interval::MpiMessage, verb: Verb::Send, size: SizeClass::of(8) };
        let times = totals.connections.iter().flat_map(|totals| totals.timings.iter());
        let times = times.inspect(|((_, key), _)| assert_eq!(*key, timing));
        let of = |(_, times): (_, &Recorder)| times.clone().finish().values().collect::<Vec<_>>();
        (times.flat_map(of).flat_map(|(ns, count)| vec![ns; count as usize]).collect(), untimed)
    }

    /// ```text
    /// input 0, at 1:  |10 there 20|              |100 back 130|
    /// input 1, at 2:     |13 there 25|     |95 back 120|
    /// ```
    #[test]
    fn from_the_first_packet_here_to_the_last_one_there() {
        let found = join(&[(0, 5, (10, 20)), (1, 5, (100, 130))], &[(0, 5, (13, 25)), (1, 5, (95, 120))]);
        assert_eq!(found, (vec![15, 35], Untimed::default()));
    }

    #[test]
    fn clocks_that_say_the_same_of_both_directions_tell_nothing() {
        let found = join(&[(0, 5, (10, 20)), (1, 5, (90, 130))], &[(0, 5, (13, 25)), (1, 5, (95, 120))]);
        assert_eq!(found, (vec![], Untimed { unclear: 2, backwards: 0 }));
        // No input was first.
        let found = join(&[(0, 5, (10, 20))], &[(0, 5, (10, 20))]);
        assert_eq!(found, (vec![], Untimed { unclear: 1, backwards: 0 }));
    }

    #[test]
    fn what_would_have_come_before_it_was_sent_is_not_shown() {
        let most = [(0, 5, (10, 20)), (0, 6, (30, 40)), (0, 7, (50, 60))];
        let found = join(&most, &[(0, 5, (13, 25)), (0, 6, (33, 45)), (0, 7, (40, 45))]);
        assert_eq!(found, (vec![15, 15], Untimed { unclear: 0, backwards: 1 }));
    }

    #[test]
    fn numbers_that_come_again_are_taken_in_their_order() {
        let found = join(&[(0, 5, (10, 20)), (0, 5, (1000, 1020))], &[(0, 5, (1003, 1030)), (0, 5, (11, 22))]);
        assert_eq!(found, (vec![12, 30], Untimed::default()));
        let found = join(&[(0, 5, (10, 20))], &[(0, 5, (11, 22)), (0, 5, (1003, 1030))]);
        assert_eq!(found, (vec![], Untimed::default()), "it is not clear which");
    }

    #[test]
    fn only_what_both_have_drawn_counts() {
        let all: Vec<(u32, u32, (i64, i64))> =
            (0..20).map(|psn| (0, psn, (i64::from(psn), i64::from(psn) + 1))).collect();
        let later: Vec<(u32, u32, (i64, i64))> =
            all.iter().map(|&(connection, psn, (first, last))| (connection, psn, (first + 4, last + 4))).collect();
        let (times, untimed) = joined(&all, &later, 7);
        assert_eq!((times, untimed), (vec![5; 7], Untimed::default()));
    }
}
