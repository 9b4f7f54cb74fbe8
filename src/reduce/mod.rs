//! Sums per connection and per bin of time, kept so that they can be added in any order; [`Combiner`] removes mirror copies at the end.
//!
//! [`Accumulator`] takes packets as they come. Whether a packet seen twice is a mirror copy or a repeat is not known
//! then, so sums are kept by *occurrence*: first, second, later odd and later even ones. `copies` decides per pair of
//! endpoints how many observation points an input holds, which turns occurrences into transmissions; `points` picks, per
//! connection, the inputs that are counted; [`Combiner`] applies both, and `across` measures times from one input to another.

mod across;
mod bins;
mod combine;
mod copies;
mod health;
mod live;
mod points;

pub use across::{Drawn, Passage, Untimed};
pub use combine::{CombinedTotals, Combiner, ConnectionSums};
pub use live::live;

use crate::model::RdmaSums;
use crate::model::histogram::{COARSE_BUCKETS, coarse_bucket};
use crate::model::traffic::{MpiClass, MpiSeen, MpiSums, Shares};
use crate::model::{
    Claim, Kind, MpiMessage, PacketRecord, Paged, Recorder, Seen, Sight, SizeOf, Sizes, Start, Sums, Timing, TimingKey,
    Turn, Verb,
};
use bins::{Bins, Count, Ruler, TimeSlot, TrafficSlot, TrafficSums};
use serde::{Deserialize, Serialize};

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

/// Counts what is held.
fn count(most: &mut Option<usize>, is_new: bool) {
    if let Some(most) = most {
        *most += usize::from(is_new);
    }
}

/// Between which sights a time lies, what must be believed for it to count, and what it is of.
type Measured = (Sight, Option<Claim>, TimingKey);

/// Sums of one connection in one input, mirror copies included. What not every connection has stands apart: there may be many.
#[derive(Debug, Serialize, Deserialize)]
pub struct Partial {
    /// What was seen for the first time, by turn.
    first: [Sums; Turn::COUNT],
    /// Transport messages among it.
    first_messages: u64,
    /// What was seen more often.
    later: Option<Box<Later>>,
    /// Smallest and largest packet time; the other way round where there is none.
    times_ns: (i64, i64),
    /// First packets of messages that are of no library.
    unknown_starts: u64,
    mpi: Option<Box<MpiSeen>>,
    rdma: RdmaSums,
    times: Option<Box<Times>>,
    /// Of first sights alone, so that neither copies nor repeats matter.
    sizes: Sizes<SizeOf>,
    bins: Bins<TrafficSlot, TrafficSums>,
}

/// Sums of the second, of later odd and of later even sights.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Later {
    sums: [[Sums; OCCURRENCES - 1]; Turn::COUNT],
    messages: [u64; OCCURRENCES - 1],
}

/// Kinds of times that a connection has room for at a time: there are a few of each, and there may be many connections.
const KINDS_AT_ONCE: usize = 3;

/// Times between packets.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Times {
    /// A connection has a few: its kinds of messages and answers.
    recorders: Vec<(Measured, Recorder)>,
    /// Those that end with an answer, over time; their slots point into the list above.
    bins: Bins<TimeSlot, Count>,
}

impl Default for Partial {
    fn default() -> Self {
        Self {
            first: Default::default(),
            first_messages: 0,
            later: None,
            times_ns: (i64::MAX, i64::MIN),
            unknown_starts: 0,
            mpi: None,
            rdma: RdmaSums::default(),
            times: None,
            sizes: Sizes::default(),
            bins: Bins::default(),
        }
    }
}

impl Partial {
    /// Adds what has been seen before.
    #[inline(never)]
    fn later(&mut self, seen: &Seen, value: &TrafficSums) {
        let Some(class) = occurrence_class(seen.occurrence).checked_sub(1) else { return };
        let later = self.later.get_or_insert_default();
        later.sums[seen.turn as usize][class] += value.sums;
        later.messages[class] += value.messages;
    }

    /// The sums of a turn, by occurrence class.
    fn sums(&self, turn: usize) -> [Sums; OCCURRENCES] {
        let [second, odd, even] = self.later.as_ref().map_or_else(Default::default, |later| later.sums[turn]);
        [self.first[turn], second, odd, even]
    }

    /// The sums of all turns.
    fn all_sums(&self) -> [[Sums; OCCURRENCES]; Turn::COUNT] {
        std::array::from_fn(|turn| self.sums(turn))
    }

    /// Transport messages by occurrence class.
    fn messages(&self) -> [u64; OCCURRENCES] {
        let [second, odd, even] = self.later.as_ref().map_or_else(Default::default, |later| later.messages);
        [self.first_messages, second, odd, even]
    }

    fn recorders(&mut self) -> impl Iterator<Item = &mut Recorder> {
        self.times.iter_mut().flat_map(|times| times.recorders.iter_mut().map(|(_, recorder)| recorder))
    }
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
#[derive(Debug, Serialize, Deserialize)]
pub struct Accumulator {
    partials: Paged<Partial>,
    /// For the bins of each [`OverTime`]; `None` where none are kept.
    rulers: [Option<Ruler>; 2],
    keeps_sizes: bool,
    /// Streams of messages for which there is still room.
    streams_left: usize,
    /// How often times were made coarser.
    coarseness: u32,
    /// Cells of each [`OverTime`], and buckets of times, that are held at most; `None` where that is not known.
    #[serde(skip)]
    most_cells: [Option<usize>; 2],
    #[serde(skip)]
    most_buckets: Option<usize>,
}

/// How exactly what is held is counted. All connections are gone through but for the first, which costs nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// No less than is held.
    AtMost,
    /// What is held.
    Held,
    /// What is held when all that belongs together has been joined.
    Joined,
}

impl Accumulator {
    /// An empty one. `bin_ns` is the width of the bins at first; `None` for no timelines. `keeps_sizes` asks for the sizes of packets and
    /// messages.
    #[must_use]
    pub fn new(bin_ns: Option<i64>, keeps_sizes: bool) -> Self {
        Self {
            partials: Paged::default(),
            rulers: [bin_ns.map(Ruler::new); 2],
            keeps_sizes,
            streams_left: MAX_STREAMS,
            coarseness: 0,
            most_cells: [Some(0); 2],
            most_buckets: Some(0),
        }
    }

    /// Touches the sums of connections whose packets come next.
    pub fn look_ahead(&self, records: &[PacketRecord], known: &[Option<u32>]) {
        for id in records.iter().filter_map(|record| known[record.slot() as usize]) {
            if let Some(partial) = self.partials.get(id as usize) {
                std::hint::black_box((partial.first[0].packets, partial.first_messages));
            }
        }
    }

    /// Makes sums for so many connections.
    pub fn grow(&mut self, connections: usize) {
        while self.partials.len() < connections {
            self.partials.push(Partial::default());
        }
    }

    /// Adds a packet.
    #[inline]
    pub fn packet(&mut self, packet: &PacketRecord, seen: &Seen) {
        let Self { partials, rulers, keeps_sizes, most_cells, .. } = self;
        // Sums grow with the connections.
        let Some(partial) = partials.get_mut(seen.connection as usize) else { return };
        let sums = Sums {
            packets: 1,
            wire_bytes: u64::from(packet.wire_bytes),
            // A congestion notification has none, whatever bytes a broken one carries.
            payload_bytes: if seen.turn == Turn::Other { 0 } else { u64::from(packet.payload_bytes) },
        };
        let value = TrafficSums { sums, messages: u64::from(seen.counts_message) };
        if seen.occurrence <= 1 {
            partial.first[seen.turn as usize] += sums;
            partial.first_messages += value.messages;
            let opcode = packet.opcode();
            if opcode.is_write() || opcode.is_read_response() {
                let messages = u64::from(opcode.is_first() || opcode.is_only());
                partial.rdma += RdmaSums { messages, payload_bytes: sums.payload_bytes };
            }
        } else {
            partial.later(seen, &value);
        }
        if *keeps_sizes
            && seen.occurrence == 1
            && packet.kind() == Kind::Data
            && let Some(of) = SizeOf::packet(seen.turn)
        {
            partial.sizes.record(seen.turn, of, u64::from(packet.wire_bytes));
        }
        if packet.time_ns == PacketRecord::NO_TIME {
            return;
        }
        let (first_ns, last_ns) = partial.times_ns;
        partial.times_ns = (first_ns.min(packet.time_ns), last_ns.max(packet.time_ns));
        if let Some(ruler) = &mut rulers[OverTime::Traffic as usize] {
            let class = occurrence_class(seen.occurrence);
            let is_new = partial.bins.add(ruler.bin(packet.time_ns), TrafficSlot::Occurrence(class as u8), value);
            count(&mut most_cells[OverTime::Traffic as usize], is_new);
        }
    }

    /// Adds what the first packet of a message showed to the connection's votes.
    pub fn start(&mut self, connection: u32, start: Start) {
        let Some(partial) = self.partials.get_mut(connection as usize) else { return };
        match start {
            Start::Recognised(form, envelope) => partial.mpi.get_or_insert_default().votes.start(form, envelope),
            // A library's own repeat says nothing new.
            Start::Repeated => {}
            Start::Unknown => partial.unknown_starts += 1,
        }
    }

    /// Adds a share of a message of NCCL.
    pub fn share(&mut self, connection: u32, is_first: bool) {
        let Some(partial) = self.partials.get_mut(connection as usize) else { return };
        let (first, later) = (u64::from(is_first), u64::from(!is_first));
        partial.mpi.get_or_insert_default().shares += Shares { first, later };
    }

    /// Adds a time between packets.
    pub fn timing(&mut self, timing: &Timing) {
        let Some(partial) = self.partials.get_mut(timing.connection as usize) else { return };
        let coarseness = self.coarseness;
        let key = (timing.sight, timing.claim, timing.key);
        let times = partial.times.get_or_insert_default();
        let of = times.recorders.iter().position(|(of, _)| *of == key).unwrap_or(times.recorders.len());
        if of == times.recorders.len() {
            let mut recorder = Recorder::default();
            (0..coarseness).for_each(|_| recorder.coarsen());
            if of == times.recorders.capacity() {
                times.recorders.reserve_exact(KINDS_AT_ONCE);
            }
            times.recorders.push((key, recorder));
        }
        times.recorders[of].1.record(timing.ns);
        count(&mut self.most_buckets, true);
        if let Some(ruler) = &mut self.rulers[OverTime::Times as usize]
            && timing.key.interval.is_answer()
        {
            // There are fewer kinds of times than numbers for them.
            let slot = TimeSlot { of: of as u16, bucket: coarse_bucket(timing.ns) };
            let is_new = times.bins.add(ruler.bin(timing.from_ns), slot, Count(1));
            count(&mut self.most_cells[OverTime::Times as usize], is_new);
        }
    }

    /// Adds a message of the transport whose length is known.
    pub fn size(&mut self, connection: u32, verb: Verb, bytes: u64) {
        let partial = self.partials.get_mut(connection as usize).filter(|_| self.keeps_sizes);
        partial.into_iter().for_each(|partial| partial.sizes.record(Turn::Other, SizeOf::message(verb), bytes));
    }

    /// Adds an MPI message.
    pub fn message(&mut self, connection: u32, message: &MpiMessage) {
        let Some(partial) = self.partials.get_mut(connection as usize) else { return };
        let class = MpiClass::of(message);
        let mpi = partial.mpi.get_or_insert_default();
        *mpi.sums.or_default(class) += MpiSums { messages: 1, mpi_bytes: message.mpi_bytes };
        mpi.streams.record(message, &mut self.streams_left);
        if self.keeps_sizes {
            mpi.sizes.record(Turn::Request, class, message.mpi_bytes);
        }
        if message.time_ns != PacketRecord::NO_TIME
            && let Some(ruler) = &mut self.rulers[OverTime::Traffic as usize]
        {
            let sums = Sums { packets: 0, wire_bytes: 0, payload_bytes: message.mpi_bytes };
            let value = TrafficSums { sums, messages: 1 };
            let is_new = partial.bins.add(ruler.bin(message.time_ns), TrafficSlot::Mpi(class), value);
            count(&mut self.most_cells[OverTime::Traffic as usize], is_new);
        }
    }

    /// Cells of a timeline.
    pub fn cells(&mut self, which: OverTime, counted: Counted) -> usize {
        let most = &mut self.most_cells[which as usize];
        if let (Counted::AtMost, Some(most)) = (counted, *most) {
            return most;
        }
        let exact = counted == Counted::Joined;
        let cells = |partial: &mut Partial| match which {
            OverTime::Traffic => partial.bins.cells(exact),
            OverTime::Times => partial.times.as_mut().map_or(0, |times| times.bins.cells(exact)),
        };
        *most.insert(self.partials.iter_mut().map(cells).sum())
    }

    /// Buckets of times.
    pub fn buckets(&mut self, counted: Counted) -> usize {
        if let (Counted::AtMost, Some(most)) = (counted, self.most_buckets) {
            return most;
        }
        let buckets = |recorder: &mut Recorder| recorder.buckets(counted == Counted::Joined);
        let held = self.partials.iter_mut().flat_map(Partial::recorders).map(buckets).sum();
        *self.most_buckets.insert(held)
    }

    /// Keeps one bit less of each time.
    pub fn coarsen(&mut self) {
        self.coarseness += 1;
        self.partials.iter_mut().flat_map(Partial::recorders).for_each(Recorder::coarsen);
        self.most_buckets = None;
    }

    /// Makes the bins of a timeline twice as wide.
    pub fn widen(&mut self, which: OverTime) {
        self.rulers[which as usize].iter_mut().for_each(Ruler::widen);
        self.most_cells[which as usize] = None;
        for partial in self.partials.iter_mut() {
            match which {
                OverTime::Traffic => partial.bins.widen(),
                OverTime::Times => partial.times.iter_mut().for_each(|times| times.bins.widen()),
            }
        }
    }

    /// Width of the bins in nanoseconds; `None` where there are none.
    #[must_use]
    pub fn bin_ns(&self, which: OverTime) -> Option<i64> {
        self.rulers[which as usize].map(Ruler::bin_ns)
    }

    /// How often times were made coarser.
    #[must_use]
    pub const fn coarseness(&self) -> u32 {
        self.coarseness
    }

    /// True where all values are such as an accumulator has: asked of those that were written down.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let is_known = |slot: TrafficSlot| match slot {
            TrafficSlot::Occurrence(class) => usize::from(class) < OCCURRENCES,
            TrafficSlot::Mpi(_) => true,
        };
        self.partials.iter().all(|partial| {
            let mut slots = partial.times.iter().flat_map(|times| times.bins.slots());
            partial.bins.slots().all(is_known) && slots.all(|slot| slot.bucket < COARSE_BUCKETS)
        })
    }

    /// The sums as they are now, in the order of the connections' numbers.
    #[must_use]
    pub const fn partials(&self) -> &Paged<Partial> {
        &self.partials
    }

    /// The sums in the order of the connections' numbers.
    #[must_use]
    pub fn finish(self) -> Paged<Partial> {
        self.partials
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ConnectionEnd, ConnectionKey, Marks};
    use ibscope_parsers::mpi::Form;
    use ibscope_parsers::{Endpoint, Lid, Psn, Qpn};

    /// UCX repeats datagrams when acknowledgements are late, without any loss.
    #[test]
    fn repeats_of_a_library_do_not_speak_against_it() {
        let end = Endpoint::from_lid(Lid(1));
        let opcode = ibscope_parsers::ib::Opcode(0x64);
        let number = (Kind::Data, Psn::new(1), false);
        let packet = PacketRecord::new(0, (opcode, 0), number, Marks::default(), 30, 0, 0, (0, 0));
        let key = ConnectionKey::of((end, end), opcode, Qpn::new(7), 0);
        let mut sums = Accumulator::new(None, false);
        sums.grow(1);
        sums.packet(&packet, &Seen { connection: 0, turn: Turn::Request, occurrence: 1, counts_message: true });
        for start in [Start::Recognised(Form::UcxUd, None), Start::Repeated, Start::Unknown] {
            sums.start(0, start);
        }
        let mut combiner = Combiner::default();
        combiner.input(Some((0, 0)), sums.partials().iter().map(|sums| (&key, sums)));
        let connections = sums.finish().into_iter().map(|sums| Box::new((ConnectionEnd::new(key), sums)));
        let shards = vec![combiner.shard(vec![connections.collect()])];
        let totals = combiner.finish(shards);
        let connection = &totals.connections[0];
        assert_eq!((connection.starts(), connection.votes().bare[Form::UcxUd as usize]), (2, 1));
    }

    /// Many connections with a tag for each message. All messages count, with or without a stream.
    #[test]
    fn streams_of_all_connections_are_bounded() {
        use ibscope_parsers::mpi::{Envelope, Length, Matching};
        const TAGS: usize = 512;
        for connections in [MAX_STREAMS / TAGS, MAX_STREAMS / TAGS + 1] {
            let mut sums = Accumulator::new(None, false);
            sums.grow(connections);
            for message in 0..connections * TAGS {
                let matching = Matching::UcxTag(((message % TAGS) as u64) << 40);
                let envelope = Envelope { matching, length: Length::Stated(8), sequence: None };
                let message_of = MpiMessage { form: Form::UcxVerbs, envelope, mpi_bytes: 8, time_ns: 0 };
                sums.message((message / TAGS) as u32, &message_of);
            }
            let seen: Vec<_> = sums.partials().iter().filter_map(|partial| partial.mpi.as_ref()).collect();
            let streams: usize = seen.iter().map(|mpi| mpi.streams.iter().count()).sum();
            let messages: u64 = seen.iter().flat_map(|mpi| mpi.sums.iter()).map(|(_, sums)| sums.messages).sum();
            assert_eq!((streams, messages), (MAX_STREAMS, (connections * TAGS) as u64));
        }
    }
}
