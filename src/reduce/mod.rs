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
mod live;
mod points;
mod settle;

pub use across::{Drawn, Passage, Untimed};
pub use live::live;
pub use settle::{Ending, InputCopies, InputPartial, Settled, settle};

use crate::model::histogram::coarse_bucket;
use crate::model::traffic::{MpiClass, MpiSums, Votes};
use crate::model::{
    Claim, Kind, MpiMessage, PacketRecord, Recorder, Seen, Sight, SizeOf, Sizes, Start, Streams, Sums, Timing,
    TimingKey, Turn, Verb,
};
use bins::{Bins, Count, Ruler, TimeSlot, TrafficSlot, TrafficSums};
use std::collections::BTreeMap;

/// How often a packet has been seen, as far as it matters: 1, 2, odd from 3, even from 4.
const OCCURRENCES: usize = 4;

/// Streams of messages that an accumulator keeps apart, some 90 bytes each: a program that gives each message a tag of its own would have any number.
const MAX_STREAMS: usize = 1 << 14;

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
    /// Of first sights alone, so that neither copies nor repeats matter.
    /// By turn, and those of messages where [`Turn::Other`] would stand: each has a class of its own in front.
    sizes: [Sizes<SizeOf>; Turn::COUNT],
    mpi_sizes: Sizes<MpiClass>,
    streams: Streams,
    bins: Bins<TrafficSlot, TrafficSums>,
    /// Times that end with an answer; their slots point into `timings`.
    time_bins: Bins<TimeSlot, Count>,
}

/// What is kept over time, each in bins of its own width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverTime {
    /// Packets and messages.
    Traffic,
    /// Times between requests and their answers.
    Times,
}

/// The sums of all connections of one tracker.
#[derive(Debug)]
pub struct Accumulator {
    partials: Vec<Partial>,
    /// For the bins of each [`OverTime`]; `None` where none are kept.
    rulers: [Option<Ruler>; 2],
    keeps_sizes: bool,
    /// Streams of messages for which there is still room.
    streams_left: usize,
    /// How often times were made coarser.
    coarseness: u32,
}

impl Accumulator {
    /// An empty one. `bin_ns` is the width of the bins at first; `None` for no timelines. `keeps_sizes` asks for the sizes of packets and
    /// messages.
    #[must_use]
    pub fn new(bin_ns: Option<i64>, keeps_sizes: bool) -> Self {
        Self {
            partials: Vec::new(),
            rulers: [bin_ns.map(Ruler::new); 2],
            keeps_sizes,
            streams_left: MAX_STREAMS,
            coarseness: 0,
        }
    }

    /// Touches the sums of connections whose packets come next.
    pub fn look_ahead(&self, connections: &[Option<u32>]) {
        for partial in connections.iter().flatten().filter_map(|id| self.partials.get(*id as usize)) {
            std::hint::black_box((partial.sums[0][0].packets, partial.messages[0]));
        }
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
        if self.keeps_sizes
            && seen.occurrence == 1
            && packet.kind() == Kind::Data
            && let Some(of) = SizeOf::packet(seen.turn)
        {
            partial.sizes[seen.turn as usize].record(of, u64::from(packet.wire_bytes));
        }
        if packet.time_ns == PacketRecord::NO_TIME {
            return;
        }
        partial.times_ns = Some(match partial.times_ns {
            Some((first, last)) => (first.min(packet.time_ns), last.max(packet.time_ns)),
            None => (packet.time_ns, packet.time_ns),
        });
        if let Some(ruler) = &mut self.rulers[OverTime::Traffic as usize] {
            let value = TrafficSums { sums, messages };
            partial.bins.add(ruler.bin(packet.time_ns), TrafficSlot::Occurrence(class as u8), value);
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
        let of = partial.timings.iter().position(|(of, _)| *of == key).unwrap_or(partial.timings.len());
        if of == partial.timings.len() {
            let mut recorder = Recorder::default();
            (0..coarseness).for_each(|_| recorder.coarsen());
            partial.timings.push((key, recorder));
        }
        partial.timings[of].1.record(timing.ns);
        if let Some(ruler) = &mut self.rulers[OverTime::Times as usize]
            && timing.key.interval.is_answer()
        {
            // There are fewer kinds of times than numbers for them.
            let slot = TimeSlot { of: of as u16, bucket: coarse_bucket(timing.ns) };
            partial.time_bins.add(ruler.bin(timing.from_ns), slot, Count(1));
        }
    }

    /// Adds a message of the transport whose length is known.
    pub fn size(&mut self, connection: u32, verb: Verb, bytes: u64) {
        let partial = self.partials.get_mut(connection as usize).filter(|_| self.keeps_sizes);
        partial
            .into_iter()
            .for_each(|partial| partial.sizes[Turn::Other as usize].record(SizeOf::message(verb), bytes));
    }

    /// Adds an MPI message.
    pub fn message(&mut self, connection: u32, message: &MpiMessage) {
        let Some(partial) = self.partials.get_mut(connection as usize) else { return };
        let class = MpiClass::of(message);
        *partial.mpi.entry(class).or_default() += MpiSums { messages: 1, mpi_bytes: message.mpi_bytes };
        partial.streams.record(message, &mut self.streams_left);
        if self.keeps_sizes {
            partial.mpi_sizes.record(class, message.mpi_bytes);
        }
        if message.time_ns != PacketRecord::NO_TIME
            && let Some(ruler) = &mut self.rulers[OverTime::Traffic as usize]
        {
            let sums = Sums { packets: 0, wire_bytes: 0, payload_bytes: message.mpi_bytes };
            let value = TrafficSums { sums, messages: 1 };
            partial.bins.add(ruler.bin(message.time_ns), TrafficSlot::Mpi(class), value);
        }
    }

    /// Cells of a timeline that are held. With `exact`, those of the same bin are joined first.
    pub fn cells(&mut self, which: OverTime, exact: bool) -> usize {
        let cells = |partial: &mut Partial| match which {
            OverTime::Traffic => partial.bins.cells(exact),
            OverTime::Times => partial.time_bins.cells(exact),
        };
        self.partials.iter_mut().map(cells).sum()
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

    /// Makes the bins of a timeline twice as wide.
    pub fn widen(&mut self, which: OverTime) {
        self.rulers[which as usize].iter_mut().for_each(Ruler::widen);
        for partial in &mut self.partials {
            match which {
                OverTime::Traffic => partial.bins.widen(),
                OverTime::Times => partial.time_bins.widen(),
            }
        }
    }

    /// The sums as they are now, in the order of the connections' numbers.
    #[must_use]
    pub fn partials(&self) -> &[Partial] {
        &self.partials
    }

    /// The sums in the order of the connections' numbers.
    #[must_use]
    pub fn finish(self) -> Vec<Partial> {
        self.partials
    }
}
