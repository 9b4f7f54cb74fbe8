//! MPI messages from the port of their sender in one input to the port of their receiver in another.
//!
//! Each input draws a sample of its messages, the same ones as the others do. Which of two inputs is at the sender's port is told by which saw the
//! messages of that direction first, nearly always; the messages that come back must say the contrary. Where they do not, the clocks of the inputs
//! differ by more than packets need from port to port, and nothing can be said.

use super::Settled;
use crate::model::{
    Claim, ConnectionKey, Interval, Moved, PacketRecord, RawMessage, Recorder, Sample, SizeClass, TimingKey,
};
use ibscope_parsers::Endpoint;
use std::collections::BTreeMap;

/// Clocks of two captures of the same packets differ by less, or it is another packet of the same number.
const SAME_TIME_NS: i64 = 5_000_000_000;

/// An MPI message as one input has seen it.
#[derive(Clone, Copy, Debug)]
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

/// A message that two inputs have seen, with its first and last time in each.
struct Seen {
    inputs: (usize, usize),
    connection: ConnectionKey,
    of: (Claim, TimingKey),
    times_ns: [(i64, i64); 2],
}

impl Settled {
    /// Adds the times of messages that two inputs have seen once each. `drawn` is what trackers of the same pairs of endpoints have.
    pub fn join(&mut self, drawn: Vec<Drawn>) -> Untimed {
        let mut untimed = Untimed::default();
        let seen = self.seen(drawn);
        let senders = senders(&seen);
        let mut times: BTreeMap<(ConnectionKey, (Claim, TimingKey)), Recorder> = BTreeMap::new();
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
            totals.timings.entry((Some(claim), key)).or_default().merge(&recorder.finish());
        }
        untimed
    }

    /// The messages that two inputs have seen at one port each.
    fn seen(&self, drawn: Vec<Drawn>) -> Vec<Seen> {
        type Sights = Vec<(usize, (i64, i64))>;
        let mut sights: BTreeMap<(ConnectionKey, u32, (Claim, TimingKey)), (u64, Sights)> = BTreeMap::new();
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
            let same = both.filter(|[one, other]| one.0.abs_diff(other.0) < SAME_TIME_NS.unsigned_abs());
            seen.extend(same.map(|times_ns| Seen { inputs, connection, of, times_ns }));
        }
        seen
    }
}

/// By inputs and direction: how many more messages the first input saw before the second than after it.
fn senders(seen: &[Seen]) -> BTreeMap<((usize, usize), (Endpoint, Endpoint)), i64> {
    let mut senders: BTreeMap<_, i64> = BTreeMap::new();
    for Seen { inputs, connection, times_ns: [one, other], .. } in seen {
        let earlier = senders.entry((*inputs, (connection.src, connection.dst))).or_default();
        *earlier += (other.0 - one.0).signum();
    }
    senders
}
