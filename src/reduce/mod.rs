//! Sums per connection and per bin of time, kept so that they can be added in any order and settled at the end.
//!
//! [`Accumulator`] takes packets as they come. Whether a packet seen twice is a mirror copy or a repeat is not known
//! then, so sums are kept by *occurrence*: first, second, later odd and later even ones. `copies` decides per pair of
//! endpoints how many observation points an input holds, which turns occurrences into transmissions; `points` picks, per
//! connection, the inputs that are counted; [`settle()`] puts both together, and `across` measures from one input to another.

mod across;
mod bins;
mod copies;
mod health;
mod points;
mod settle;

pub use across::{Drawn, Passage, Untimed};
pub use settle::{Ending, InputCopies, InputPartial, Settled, settle};

use crate::model::traffic::{MpiClass, MpiSums, Votes};
use crate::model::{Claim, MpiMessage, PacketRecord, Recorder, Seen, Sight, Start, Sums, Timing, TimingKey, Turn};
use bins::{Bins, Slot};
use std::collections::BTreeMap;

/// How often a packet has been seen, as far as it matters: 1, 2, odd from 3, even from 4.
const OCCURRENCES: usize = 4;

/// The class of the `occurrence`-th sight of a packet.
const fn occurrence_class(occurrence: u32) -> usize {
    match occurrence {
        0 | 1 => 0,
        2 => 1,
        odd if odd % 2 == 1 => 2,
        _ => 3,
    }
}

/// Between which sights a time lies, what must be believed for it to count, and what it is of.
type Measured = (Sight, Option<Claim>, TimingKey);

/// Sums of one connection in one input, not yet settled.
#[derive(Debug, Default)]
pub struct Partial {
    /// By turn and occurrence class.
    sums: [[Sums; OCCURRENCES]; Turn::COUNT],
    /// Transport messages by occurrence class.
    messages: [u64; OCCURRENCES],
    /// Smallest and largest packet time.
    times_ns: Option<(i64, i64)>,
    mpi: BTreeMap<MpiClass, MpiSums>,
    votes: Votes,
    /// A connection has a few: its kinds of messages and answers.
    timings: Vec<(Measured, Recorder)>,
    bins: Bins,
}

/// The sums of all connections of one tracker.
#[derive(Debug)]
pub struct Accumulator {
    partials: Vec<Partial>,
    bin_ns: Option<i64>,
    /// How often times were made coarser.
    coarseness: u32,
}

impl Accumulator {
    /// An empty one. `bin_ns` is the width of the timeline's bins; `None` for no timeline.
    #[must_use]
    pub fn new(bin_ns: Option<i64>) -> Self {
        Self { partials: Vec::new(), bin_ns, coarseness: 0 }
    }

    /// Adds a packet.
    pub fn packet(&mut self, packet: &PacketRecord, seen: &Seen) {
        let index = seen.connection as usize;
        if index >= self.partials.len() {
            // As for the connections of a tracker: room is not doubled.
            if index >= self.partials.capacity() {
                self.partials.reserve_exact(index / 8 + 8);
            }
            self.partials.resize_with(index + 1, Partial::default);
        }
        let bin_ns = self.bin_ns;
        let partial = &mut self.partials[index];
        let class = occurrence_class(seen.occurrence);
        let sums = Sums {
            packets: 1,
            wire_bytes: u64::from(packet.wire_bytes),
            // A congestion notification has none, whatever bytes a broken one carries.
            payload_bytes: if seen.turn == Turn::Other { 0 } else { u64::from(packet.payload_bytes) },
        };
        partial.sums[seen.turn as usize][class] += sums;
        let messages = u64::from(seen.counts_message);
        partial.messages[class] += messages;
        if packet.time_ns == PacketRecord::NO_TIME {
            return;
        }
        partial.times_ns = Some(match partial.times_ns {
            Some((first, last)) => (first.min(packet.time_ns), last.max(packet.time_ns)),
            None => (packet.time_ns, packet.time_ns),
        });
        if let Some(bin_ns) = bin_ns {
            partial.bins.add(packet.time_ns.div_euclid(bin_ns), Slot::Occurrence(class as u8), sums, messages);
        }
    }

    /// Adds what the first packet of a message showed to the connection's votes.
    pub fn start(&mut self, connection: u32, start: Start) {
        let Some(partial) = self.partials.get_mut(connection as usize) else { return };
        partial.votes.start(start);
    }

    /// Adds a time between packets.
    pub fn timing(&mut self, timing: &Timing) {
        let Some(partial) = self.partials.get_mut(timing.connection as usize) else { return };
        let coarseness = self.coarseness;
        let key = (timing.sight, timing.claim, timing.key);
        if let Some((_, recorder)) = partial.timings.iter_mut().find(|(of, _)| *of == key) {
            recorder.record(timing.ns);
            return;
        }
        let mut recorder = Recorder::default();
        (0..coarseness).for_each(|_| recorder.coarsen());
        recorder.record(timing.ns);
        partial.timings.push((key, recorder));
    }

    /// Adds an MPI message.
    pub fn message(&mut self, connection: u32, message: &MpiMessage) {
        let Some(partial) = self.partials.get_mut(connection as usize) else { return };
        let class = MpiClass::of(message);
        *partial.mpi.entry(class).or_default() += MpiSums { messages: 1, mpi_bytes: message.mpi_bytes };
        if let Some(bin_ns) = self.bin_ns.filter(|_| message.time_ns != PacketRecord::NO_TIME) {
            let sums = Sums { packets: 0, wire_bytes: 0, payload_bytes: message.mpi_bytes };
            partial.bins.add(message.time_ns.div_euclid(bin_ns), Slot::Mpi(class), sums, 1);
        }
    }

    /// Cells of the timeline that are held. With `exact`, those of the same bin are joined first.
    pub fn cells(&mut self, exact: bool) -> usize {
        self.partials.iter_mut().map(|partial| partial.bins.cells(exact)).sum()
    }

    /// Buckets of times that are held. With `exact`, equal ones are joined first.
    pub fn buckets(&mut self, exact: bool) -> usize {
        let recorders = self.partials.iter_mut().flat_map(|partial| partial.timings.iter_mut());
        recorders.map(|(_, recorder)| recorder.buckets(exact)).sum()
    }

    /// Keeps one bit less of each time.
    pub fn coarsen(&mut self) {
        self.coarseness += 1;
        self.partials
            .iter_mut()
            .flat_map(|partial| partial.timings.iter_mut())
            .for_each(|(_, recorder)| recorder.coarsen());
    }

    /// Makes the bins twice as wide.
    pub fn widen(&mut self) {
        self.bin_ns = self.bin_ns.map(|bin_ns| bin_ns.saturating_mul(2));
        for partial in &mut self.partials {
            partial.bins.widen();
        }
    }

    /// The sums in the order of the connections' numbers.
    #[must_use]
    pub fn finish(self) -> Vec<Partial> {
        self.partials
    }
}
