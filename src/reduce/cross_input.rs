//! Measures the time of MPI messages from the sender's port in one input to the receiver's port in
//! another.
//!
//! In: a sample of messages from each tracker, the same messages in every input. Out: times in the
//! latencies of the connections, and the number of messages without a time.
//!
//! The input that observed nearly all messages of one direction first is at the sender's port. The
//! messages of the other direction must show the reverse. Otherwise the clocks of the inputs differ
//! by more than the transit time, and no time is measured.
//!
//! Invariant: a message counts only if both inputs observed it at one port each, equally often.

use super::combine::{CombinedTotals, SAME_TIME_NS};
use crate::model::{
    ConnectionKey, Interval, NcclShares, PacketRecord, RawMessage, Recorder, RequiredDetection, Sample, SizeClass,
    TimingKey, Verb,
};
use ibscope_parsers::Endpoint;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// A sampled MPI message as one input observed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TransitSample {
    connection: u32,
    psn: u32,
    key: TimingKey,
    required_detection: RequiredDetection,
    times_ns: (i64, i64),
}

impl TransitSample {
    /// Samples a message if it is a complete MPI message.
    #[must_use]
    pub fn of(message: &RawMessage) -> Option<Self> {
        let (stack, matching, _) = message.mpi.filter(|_| message.complete && message.transfer_verb != Verb::Atomic)?;
        let size = SizeClass::of(message.length_bytes?);
        (message.times_ns.0 != PacketRecord::NO_TIME).then(|| Self {
            connection: message.connection,
            psn: message.psn,
            key: TimingKey { interval: Interval::MpiMessage, verb: message.transfer_verb, size },
            required_detection: RequiredDetection::of(stack, matching),
            times_ns: message.times_ns,
        })
    }
}

/// The sample of one tracker of an input.
#[derive(Debug)]
pub struct TrackerSample {
    /// Index of the input.
    pub input: usize,
    /// Connections by their number in the tracker.
    pub keys: Vec<ConnectionKey>,
    /// The sampled messages.
    pub sample: Sample<TransitSample>,
}

/// Messages that two inputs hold and that have no time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UntimedMessages {
    /// The input at the sender's port is unknown.
    pub unclear: u64,
    /// The message would have arrived before it was sent.
    pub backwards: u64,
}

impl AddAssign for UntimedMessages {
    fn add_assign(&mut self, other: Self) {
        self.unclear += other.unclear;
        self.backwards += other.backwards;
    }
}

/// Class of a message. Connection, PSN and class identify a sampled message.
type MpiMessageClass = (RequiredDetection, TimingKey);
type SampleKey = (ConnectionKey, u32, MpiMessageClass);
/// The inputs that hold a message, with its first and last time in each.
type InputObservations = Vec<(usize, (i64, i64))>;
/// Two inputs, and sender and receiver.
type InputDirection = ((usize, usize), (Endpoint, Endpoint));

/// A message that two inputs hold, with its first and last time in each.
struct SharedMessage {
    inputs: (usize, usize),
    connection: ConnectionKey,
    class: MpiMessageClass,
    times_ns: [(i64, i64); 2],
}

impl CombinedTotals {
    /// Adds the times of messages that two inputs observed at one port each. `samples` are those of
    /// all trackers of the same pairs of endpoints.
    pub fn add_shared_message_times(&mut self, samples: Vec<TrackerSample>) -> UntimedMessages {
        let mut untimed = UntimedMessages::default();
        let mut shared = self.shared_messages(samples);
        shared.retain(|message| !self.has_later_shares_only(&message.connection));
        let senders = sender_votes(&shared);
        let mut times: BTreeMap<(ConnectionKey, MpiMessageClass), Recorder> = BTreeMap::new();
        for SharedMessage { inputs, connection, class: of, times_ns: [one, other] } in shared {
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
        for ((connection, (detection, key)), recorder) in times {
            let found = self.connections.binary_search_by_key(&connection, |totals| totals.key);
            let Some(totals) = found.ok().and_then(|at| self.connections.get_mut(at)) else { continue };
            totals.latencies.or_default((Some(detection), key)).merge(recorder);
        }
        untimed
    }

    /// True for a path of NCCL whose messages count on the path of their first shares instead.
    fn has_later_shares_only(&self, connection: &ConnectionKey) -> bool {
        let found = self.connections.binary_search_by_key(connection, |totals| totals.key);
        let totals = found.ok().and_then(|at| self.connections.get(at));
        let mpi = totals.and_then(|totals| totals.mpi.as_ref());
        mpi.is_some_and(|mpi| mpi.shares != NcclShares::default() && mpi.sums.iter().next().is_none())
    }

    /// The messages that two inputs hold, each at one port.
    fn shared_messages(&self, samples: Vec<TrackerSample>) -> Vec<SharedMessage> {
        let mut observations: BTreeMap<SampleKey, (u64, InputObservations)> = BTreeMap::new();
        let mut limits: BTreeMap<usize, u64> = BTreeMap::new();
        for TrackerSample { input, keys, sample } in samples {
            let (limit, messages) = sample.finish();
            limits.insert(input, limit);
            for (hash, transit) in messages {
                let Some(key) = keys.get(transit.connection as usize) else { continue };
                if self.mirror_copies.get(input).is_some_and(|copies| !copies.of(key).is_two()) {
                    let of = (transit.required_detection, transit.key);
                    let (_, found) = observations.entry((*key, transit.psn, of)).or_insert((hash, Vec::new()));
                    found.push((input, transit.times_ns));
                }
            }
        }
        let mut shared = Vec::new();
        for ((connection, _, of), (hash, mut found)) in observations {
            found.sort_unstable();
            let runs: Vec<_> = found.chunk_by(|a, b| a.0 == b.0).collect();
            // PSNs wrap around. If one input holds more messages with a PSN than the other, it is
            // unknown which ones match.
            let [one, other] = runs.as_slice() else { continue };
            let inputs = (one[0].0, other[0].0);
            let is_sampled = [inputs.0, inputs.1].iter().all(|input| hash < limits[input]);
            if one.len() != other.len() || !is_sampled {
                continue;
            }
            let both = one.iter().zip(*other).map(|((_, one), (_, other))| [*one, *other]);
            // Messages farther apart in time are different ones with the same PSN.
            let same = both.filter(|[one, other]| one.0.abs_diff(other.0) < SAME_TIME_NS.unsigned_abs());
            shared.extend(same.map(|times_ns| SharedMessage { inputs, connection, class: of, times_ns }));
        }
        shared
    }
}

/// By pair of inputs and direction: how many more messages the first input observed earlier than
/// the second, than later.
fn sender_votes(shared: &[SharedMessage]) -> BTreeMap<InputDirection, i64> {
    let mut senders: BTreeMap<InputDirection, i64> = BTreeMap::new();
    for SharedMessage { inputs, connection, times_ns: [one, other], .. } in shared {
        let earlier = senders.entry((*inputs, (connection.src, connection.dst))).or_default();
        *earlier += (other.0 - one.0).signum();
    }
    senders
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ConnectionEnd, TrafficKind};
    use crate::reduce::Combiner;
    use crate::reduce::mirror_copies::MirrorCopies;
    use ibscope_parsers::mpi::{Identity, LibraryStack, MatchFields, Protocol};
    use ibscope_parsers::{Lid, Qpn};

    fn key(src: u16, dst: u16) -> ConnectionKey {
        let [src, dst] = [src, dst].map(|lid| Endpoint::from_lid(Lid(lid)));
        ConnectionKey { src, dst, kind: TrafficKind::Data, service: 0, dest_qp: Qpn::new(7), src_qp: Qpn::new(0) }
    }

    /// Messages of 8 bytes on connection 0 (there) or 1 (back), with their PSN and times.
    fn sample_of(input: usize, room: usize, messages: &[(u32, u32, (i64, i64))]) -> TrackerSample {
        let identity = Identity { rank: 0, context: 0, tag: 0, world: true, collective: false };
        let mut sample = Sample::new(room);
        for &(connection, psn, times_ns) in messages {
            let message = RawMessage {
                connection,
                psn,
                mpi: Some((LibraryStack::Ob1, MatchFields::Named(identity), Protocol::Eager)),
                transfer_verb: Verb::Send,
                length_bytes: Some(8),
                wire_bytes: 60,
                packets: 1,
                times_ns,
                complete: true,
                receive: None,
            };
            sample.add(u64::from(psn), TransitSample::of(&message).expect("a message"));
        }
        TrackerSample { input, keys: vec![key(1, 2), key(2, 1)], sample }
    }

    fn join(one: &[(u32, u32, (i64, i64))], other: &[(u32, u32, (i64, i64))]) -> (Vec<u64>, UntimedMessages) {
        joined(one, other, 100)
    }

    /// Measured times from 1 to 2 and back, and the number of messages without one.
    fn joined(
        one: &[(u32, u32, (i64, i64))],
        other: &[(u32, u32, (i64, i64))],
        room: usize,
    ) -> (Vec<u64>, UntimedMessages) {
        let mut totals = CombinedTotals::default();
        totals.mirror_copies.extend([MirrorCopies::default(), MirrorCopies::default()]);
        let partials = [key(1, 2), key(2, 1)].map(|key| {
            let mut partial = super::super::PartialSums { times_ns: (0, 1), ..Default::default() };
            partial.first[0].packets = 1;
            (key, partial)
        });
        let mut combiner = Combiner::default();
        combiner.input(Some((0, 1)), rayon::iter::once(partials.iter().map(|(key, partial)| (key, partial))));
        let (ends, sums): (Vec<_>, Vec<_>) =
            partials.map(|(key, partial)| (ConnectionEnd::new(key), partial)).into_iter().unzip();
        totals.connections = combiner.shard(vec![(ends, sums.into_iter().collect())]).connections;
        let untimed = totals.add_shared_message_times(vec![sample_of(0, room, one), sample_of(1, 100, other)]);
        let timing = TimingKey { interval: Interval::MpiMessage, verb: Verb::Send, size: SizeClass::of(8) };
        let times = totals.connections.iter().flat_map(|totals| totals.latencies.iter());
        let times = times.inspect(|((_, key), _)| assert_eq!(*key, timing));
        let of = |(_, times): (_, &Recorder)| times.clone().finish().values().collect::<Vec<_>>();
        (times.flat_map(of).flat_map(|(ns, count)| vec![ns; count as usize]).collect(), untimed)
    }

    /// ```text
    /// input 0, at 1:  |10 there 20|              |100 back 130|
    /// input 1, at 2:     |13 there 25|     |95 back 120|
    /// ```
    #[test]
    fn a_time_lasts_from_the_first_packet_at_the_sender_to_the_last_at_the_receiver() {
        let found = join(&[(0, 5, (10, 20)), (1, 5, (100, 130))], &[(0, 5, (13, 25)), (1, 5, (95, 120))]);
        assert_eq!(found, (vec![15, 35], UntimedMessages::default()));
    }

    #[test]
    fn an_input_that_is_first_in_both_directions_gives_no_time() {
        let found = join(&[(0, 5, (10, 20)), (1, 5, (90, 130))], &[(0, 5, (13, 25)), (1, 5, (95, 120))]);
        assert_eq!(found, (vec![], UntimedMessages { unclear: 2, backwards: 0 }));
        // Neither input was first.
        let found = join(&[(0, 5, (10, 20))], &[(0, 5, (10, 20))]);
        assert_eq!(found, (vec![], UntimedMessages { unclear: 1, backwards: 0 }));
    }

    #[test]
    fn a_message_that_arrives_before_it_was_sent_gives_no_time() {
        let most = [(0, 5, (10, 20)), (0, 6, (30, 40)), (0, 7, (50, 60))];
        let found = join(&most, &[(0, 5, (13, 25)), (0, 6, (33, 45)), (0, 7, (40, 45))]);
        assert_eq!(found, (vec![15, 15], UntimedMessages { unclear: 0, backwards: 1 }));
    }

    #[test]
    fn messages_of_equal_psn_match_in_their_order() {
        let found = join(&[(0, 5, (10, 20)), (0, 5, (1000, 1020))], &[(0, 5, (1003, 1030)), (0, 5, (11, 22))]);
        assert_eq!(found, (vec![12, 30], UntimedMessages::default()));
        let found = join(&[(0, 5, (10, 20))], &[(0, 5, (11, 22)), (0, 5, (1003, 1030))]);
        assert_eq!(found, (vec![], UntimedMessages::default()), "the match is unknown");
    }

    #[test]
    fn only_messages_in_both_samples_count() {
        let all: Vec<(u32, u32, (i64, i64))> =
            (0..20).map(|psn| (0, psn, (i64::from(psn), i64::from(psn) + 1))).collect();
        let later: Vec<(u32, u32, (i64, i64))> =
            all.iter().map(|&(connection, psn, (first, last))| (connection, psn, (first + 4, last + 4))).collect();
        let (times, untimed) = joined(&all, &later, 7);
        assert_eq!((times, untimed), (vec![5; 7], UntimedMessages::default()));
    }
}
