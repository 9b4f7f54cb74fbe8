//! Adds up packets and messages per connection and time bin.
//!
//! In: packets, messages and times of one input, as the trackers yield them. Out: per connection
//! the transmissions of the inputs that count, without mirror copies. Invariant: sums can be added
//! in any order.
//!
//! The second observation of a packet alone does not show whether it is a mirror copy or a
//! retransmission. [`Accumulator`] therefore keeps sums by *occurrence*: first, second, later odd,
//! later even. `mirror_copies` decides per pair of endpoints how many observation points an input
//! holds, and so which occurrences are transmissions. `observation_points` chooses, per connection,
//! the inputs that count. [`Combiner`] applies both. `cross_input` measures times from one input to
//! another.

mod bins;
mod combine;
mod congestion;
mod cross_input;
mod health;
mod late_copies;
mod live;
mod marks;
mod mirror_copies;
mod observation_points;
mod overlap;
mod pair_parts;
mod paths;
mod point_sums;
mod record_series;

pub use combine::{CombinedTotals, Combiner, ShardConnections};
pub use cross_input::{TrackerSample, TransitSample, UntimedMessages};
pub use late_copies::LateCopies;
pub use live::live_sums;
pub use overlap::InputOverlap;

use crate::model::histogram::{COARSE_BUCKETS, coarse_bucket};
use crate::model::observation::{OCCURRENCES, occurrence_class};
use crate::model::{
    MpiClass, MpiMessage, MpiSums, MpiTotals, NcclShares, ObservedPorts, OperationMix, PacketObservation, PacketRecord,
    PacketRole, PacketSums, PagedVec, PointCount, RdmaSums, Recorder, RequiredDetection, SampledSums, SizeCategory,
    Sizes, StartEvent, Timing, TimingKey, TrafficKind, UpperLayerVotes, Verb,
};
use bins::{BinIndexer, Bins, Count, TimeSlot, TrafficSlot, TrafficSums};
use congestion::CongestionSlot;
use ibscope_parsers::PathFields;
use ibscope_parsers::ib::Service;
use paths::PathTally;
use serde::{Deserialize, Serialize};

/// Streams of messages of one accumulator, some 90 bytes each. Without this bound, a program that
/// gives every message its own tag would fill the memory.
const MAX_STREAMS: usize = 1 << 14;

/// The occurrence classes that are transmissions, and those that are retransmissions.
struct TransmissionRule {
    transmission: [bool; OCCURRENCES],
    retransmission: [bool; OCCURRENCES],
}

impl TransmissionRule {
    fn new(points: PointCount, can_retransmit: bool) -> Self {
        let (transmission, retransmission) = match points {
            PointCount::One => ([true; OCCURRENCES], [false, true, true, true]),
            // Every second observation is the mirror copy of the one before.
            PointCount::Two => ([true, false, true, false], [false, false, true, false]),
            // Which later observations are retransmissions is not known.
            PointCount::Unclear => ([true, false, false, false], [false; OCCURRENCES]),
        };
        Self { transmission, retransmission: retransmission.map(|is_later| is_later && can_retransmit) }
    }

    /// The rule for packets without a PSN. All of them count if the number of points is not known: they
    /// are numbered by their order only.
    fn unnumbered(points: PointCount) -> Self {
        Self::new(if points.is_two() { PointCount::Two } else { PointCount::One }, false)
    }
}

/// Raises a count by one, if the count is known and the element is new.
fn increment_if(most: &mut Option<usize>, is_new: bool) {
    if let Some(most) = most {
        *most += usize::from(is_new);
    }
}

/// The observation points between which a time lies, the detection that it requires, and its kind.
type MeasurementKey = (ObservedPorts, Option<RequiredDetection>, TimingKey);

/// Sums of one connection in one input, mirror copies included. Boxed fields are those that most
/// connections do not need.
#[derive(Debug, Serialize, Deserialize)]
pub struct PartialSums {
    /// First observations, by packet role.
    first: [PacketSums; PacketRole::COUNT],
    /// Transport messages among the first observations.
    first_messages: u64,
    /// All later observations.
    later_observations: Option<Box<LaterSums>>,
    /// Squares of the sizes of all observations, for estimates from sampled captures.
    squares: SizeSquares,
    /// Smallest and largest packet time; `(MAX, MIN)` without one.
    times_ns: (i64, i64),
    /// Time of the last first observation of an ACK, or of a packet of an unacknowledged service.
    last_new_ns: i64,
    /// First packets of messages that match no library.
    unknown_starts: u64,
    upper_layers: Option<Box<UpperLayerVotes>>,
    operations: OperationMix,
    mpi: Option<Box<MpiTotals>>,
    rdma: RdmaSums,
    paths: PathTally,
    times: Option<Box<ConnectionTimes>>,
    /// Of first observations only, so that mirror copies and retransmissions do not count.
    sizes: Sizes<SizeCategory>,
    bins: Bins<TrafficSlot, TrafficSums>,
}

/// Sums of the squared sizes of packets.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct SizeSquares {
    payload_packets: u64,
    payload_bytes: u64,
    wire_bytes: u64,
}

impl SizeSquares {
    #[inline]
    const fn add(&mut self, sums: &PacketSums) {
        self.payload_packets += (sums.payload_bytes > 0) as u64;
        self.payload_bytes = self.payload_bytes.wrapping_add(sums.payload_bytes * sums.payload_bytes);
        self.wire_bytes = self.wire_bytes.wrapping_add(sums.wire_bytes * sums.wire_bytes);
    }
}

/// Sums of second, later odd and later even observations, and counts that few connections have.
#[derive(Debug, Default, Serialize, Deserialize)]
struct LaterSums {
    sums: [[PacketSums; OCCURRENCES - 1]; PacketRole::COUNT],
    messages: [u64; OCCURRENCES - 1],
    /// ACKs and packets of unacknowledged services among them that follow the first observation of such
    /// a packet within each of [`COPY_LIMITS_NS`].
    soon_packets: [[[u32; OCCURRENCES - 1]; PacketRole::COUNT]; COPY_LIMITS_NS.len()],
    /// Packets that show that a request was observed twice and not retransmitted.
    shown_copies: u64,
    naks: u64,
}

/// Copies of a packet are observed within this time, in nanoseconds. Adapters wait much longer for an
/// ACK before they retransmit: 67 ms with the usual local ACK timeout, 4.096 us x 2^14.
const QUICK_NS: i64 = 1_000_000;
/// Copies that a device delays on their way to the capture are observed within this time. A second
/// connection with the same PSNs comes later.
const DELAYED_NS: i64 = 100_000_000;
const COPY_LIMITS_NS: [i64; 2] = [QUICK_NS, DELAYED_NS];

/// Recorders that a connection allocates at a time: it has few, and there may be many connections.
const RECORDER_GROWTH: usize = 3;

/// Times between packets.
#[derive(Debug, Default, Serialize, Deserialize)]
struct ConnectionTimes {
    /// One recorder per kind of time.
    recorders: Vec<(MeasurementKey, Recorder)>,
    /// Time series of the response times. Its slots are indices into `recorders`.
    bins: Bins<TimeSlot, Count>,
}

impl Default for PartialSums {
    fn default() -> Self {
        Self {
            first: Default::default(),
            first_messages: 0,
            later_observations: None,
            squares: SizeSquares::default(),
            times_ns: (i64::MAX, i64::MIN),
            last_new_ns: PacketRecord::NO_TIME,
            unknown_starts: 0,
            upper_layers: None,
            operations: OperationMix::default(),
            mpi: None,
            rdma: RdmaSums::default(),
            paths: PathTally::default(),
            times: None,
            sizes: Sizes::default(),
            bins: Bins::default(),
        }
    }
}

impl PartialSums {
    /// Adds a packet that was observed before.
    #[inline(never)]
    fn add_later(&mut self, packet: &PacketRecord, observation: &PacketObservation, value: &TrafficSums) {
        let Some(class) = occurrence_class(observation.occurrence).checked_sub(1) else { return };
        let time_ns = packet.time_ns;
        let has_times = ![time_ns, self.last_new_ns].contains(&PacketRecord::NO_TIME);
        // A receiver without a buffer repeats its RNR NAK for each retransmission.
        let is_nak = CongestionSlot::is_nak(packet, observation.role);
        let since_new_ns = (has_times && !is_nak).then(|| time_ns.saturating_sub(self.last_new_ns));
        let later = self.later_observations.get_or_insert_default();
        for (packets, limit_ns) in later.soon_packets.iter_mut().zip(COPY_LIMITS_NS) {
            let count = &mut packets[observation.role as usize][class];
            *count = count.saturating_add(u32::from(since_new_ns.is_some_and(|ns| ns <= limit_ns)));
        }
        later.sums[observation.role as usize][class] += value.sums;
        later.messages[class] += value.messages;
    }

    /// Sums of a packet role, by occurrence class.
    fn sums(&self, role: usize) -> [PacketSums; OCCURRENCES] {
        let [second, odd, even] =
            self.later_observations.as_ref().map_or_else(Default::default, |later| later.sums[role]);
        [self.first[role], second, odd, even]
    }

    /// Sums by packet role and occurrence class. Most connections have first observations only.
    fn classified(&self) -> impl Iterator<Item = (usize, usize, &PacketSums)> {
        let first = self.first.iter().enumerate().map(|(role, sums)| (role, 0, sums));
        let later = self.later_observations.iter().flat_map(|later| later.sums.iter().enumerate());
        let later =
            later.flat_map(|(role, by_class)| by_class.iter().zip(1..).map(move |(sums, class)| (role, class, sums)));
        first.chain(later)
    }

    /// Sums of all packet roles.
    fn all_sums(&self) -> [[PacketSums; OCCURRENCES]; PacketRole::COUNT] {
        std::array::from_fn(|role| self.sums(role))
    }

    /// Second, later odd and later even observations of ACKs, or of packets of unacknowledged services,
    /// that follow a first one within each of [`COPY_LIMITS_NS`].
    fn soon_packets(&self, role: PacketRole) -> [[u64; OCCURRENCES - 1]; COPY_LIMITS_NS.len()] {
        let of_role = |later: &LaterSums| later.soon_packets.map(|packets| packets[role as usize].map(u64::from));
        self.later_observations.as_deref().map_or_else(Default::default, of_role)
    }

    /// Packets that show that a request was observed twice and not retransmitted, and NAKs.
    fn order_of_requests(&self) -> [u64; 2] {
        self.later_observations.as_ref().map_or_else(Default::default, |later| [later.shown_copies, later.naks])
    }

    /// Transport messages by occurrence class.
    fn messages(&self) -> [u64; OCCURRENCES] {
        let [second, odd, even] =
            self.later_observations.as_ref().map_or_else(Default::default, |later| later.messages);
        [self.first_messages, second, odd, even]
    }

    /// True if all packets with a PSN were observed equally often, at least three times, as at that many
    /// observation points without a retransmission.
    fn is_observed_evenly(&self) -> bool {
        let numbered = [PacketRole::Request, PacketRole::Response, PacketRole::Acknowledge];
        let counts = numbered.map(|role| self.sums(role as usize).map(|sums| sums.packets));
        let all: [u64; OCCURRENCES] = std::array::from_fn(|class| counts.iter().map(|of| of[class]).sum());
        let points = all.iter().sum::<u64>() / all[0].max(1);
        let is_even = |[first, second, odd, even]: [u64; OCCURRENCES]| {
            // Observations 3, 5, ... and 4, 6, ... of each packet.
            second == first && odd == first * ((points - 1) / 2) && even == first * (points / 2 - 1)
        };
        points > 2 && counts.into_iter().all(is_even)
    }

    /// Second and later observations of the packets of a role.
    fn later_packets(&self, role: PacketRole) -> u64 {
        let later = self.later_observations.iter().flat_map(|later| &later.sums[role as usize]);
        later.map(|sums| sums.packets).sum()
    }

    /// Sums of all observations, as the samples of a sampled capture.
    pub(super) fn sampled(&self) -> SampledSums {
        let mut all = PacketSums::default();
        self.classified().for_each(|(_, _, sums)| all += *sums);
        let SizeSquares { payload_packets, payload_bytes, wire_bytes } = self.squares;
        SampledSums {
            packets: all.packets,
            payload_packets,
            wire_bytes: all.wire_bytes,
            wire_squares: wire_bytes,
            payload_bytes: all.payload_bytes,
            payload_squares: payload_bytes,
            messages: self.messages().iter().sum(),
            open_mpi_messages: 0,
        }
    }

    fn recorders(&mut self) -> impl Iterator<Item = &mut Recorder> {
        self.times.iter_mut().flat_map(|times| times.recorders.iter_mut().map(|(_, recorder)| recorder))
    }
}

/// A time series. Each kind has its own bin width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeSeriesKind {
    /// Packets and messages.
    Traffic,
    /// Times between requests and their responses.
    Times,
}

/// The sums of all connections of one tracker.
#[derive(Debug, Serialize, Deserialize)]
pub struct Accumulator {
    partials: PagedVec<PartialSums>,
    /// By [`TimeSeriesKind`]; `None` without a time series.
    bin_indexers: [Option<BinIndexer>; 2],
    keeps_sizes: bool,
    /// Streams of messages that still fit in the bound.
    streams_left: usize,
    /// Number of times that latencies were made coarser.
    coarseness: u32,
    /// By [`TimeSeriesKind`]: upper bound of the cells in use; `None` if unknown.
    #[serde(skip)]
    cell_limits: [Option<usize>; 2],
    /// Upper bound of the traffic cells that are not sealed.
    #[serde(skip)]
    open_cells: usize,
    /// Upper bound of the buckets of times in use; `None` if unknown.
    #[serde(skip)]
    bucket_limit: Option<usize>,
}

/// Precision of the counts of cells and buckets. Only the upper bound needs no walk over all
/// connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountPrecision {
    /// At least the number in use.
    UpperBound,
    /// The number in use.
    Current,
    /// The number in use after equal cells are joined.
    Exact,
}

impl Accumulator {
    /// An empty accumulator. `bin_ns` is the initial bin width; `None` for no time series.
    /// `keeps_sizes` enables the histograms of packet and message sizes.
    #[must_use]
    pub fn new(bin_ns: Option<i64>, keeps_sizes: bool) -> Self {
        Self {
            partials: PagedVec::default(),
            bin_indexers: [bin_ns.map(BinIndexer::new); 2],
            keeps_sizes,
            streams_left: MAX_STREAMS,
            coarseness: 0,
            cell_limits: [Some(0); 2],
            open_cells: 0,
            bucket_limit: Some(0),
        }
    }

    /// Touches the sums of the connections whose packets come next, so that cache misses overlap.
    pub fn look_ahead(&self, records: &[PacketRecord], known: &[Option<u32>]) {
        for id in records.iter().filter_map(|record| known[record.slot() as usize]) {
            if let Some(partial) = self.partials.get(id as usize) {
                std::hint::black_box((partial.first[0].packets, partial.first_messages));
            }
        }
    }

    /// Makes sums for the first `connections` connections.
    pub fn grow(&mut self, connections: usize) {
        while self.partials.len() < connections {
            self.partials.push(PartialSums::default());
        }
    }

    /// Notes the path fields of the next packets, by slot; `known` are their connection numbers.
    /// `indices` gets the entry that counts the packets of each slot: 0 for the first combination
    /// of the connection. Returns true if there are others.
    pub fn note_paths(&mut self, known: &[Option<u32>], paths: &[PathFields], indices: &mut Vec<u8>) -> bool {
        indices.clear();
        indices.extend(known.iter().zip(paths).map(|(id, fields)| {
            let partial = id.and_then(|id| self.partials.get_mut(id as usize));
            partial.map_or(0, |partial| partial.paths.index(*fields))
        }));
        indices.iter().any(|index| *index > 0)
    }

    /// As [`Accumulator::note_paths`], for one packet of a connection.
    pub fn note_path(&mut self, id: u32, fields: PathFields) -> u8 {
        self.partials.get_mut(id as usize).map_or(0, |partial| partial.paths.index(fields))
    }

    /// Counts a packet of a further combination of path fields, in addition to
    /// [`Accumulator::packet`].
    pub fn further_path(&mut self, index: u8, packet: &PacketRecord, observation: &PacketObservation) {
        if let Some(partial) = self.partials.get_mut(observation.connection as usize) {
            partial.paths.count(index, packet, observation);
        }
    }

    /// Adds a packet.
    #[expect(clippy::inline_always, reason = "the loop over the packets of one input keeps its state in registers")]
    #[inline(always)]
    pub fn packet(&mut self, packet: &PacketRecord, observation: &PacketObservation) {
        let Self { partials, bin_indexers: indexers, keeps_sizes, cell_limits, open_cells, .. } = self;
        // `grow` has made the sums of all connections.
        let Some(partial) = partials.get_mut(observation.connection as usize) else { return };
        let sums = PacketSums {
            packets: 1,
            wire_bytes: u64::from(packet.wire_bytes),
            // A CNP has no payload, even if a malformed one carries bytes.
            payload_bytes: if observation.role == PacketRole::Other { 0 } else { u64::from(packet.payload_bytes) },
        };
        let value = TrafficSums { sums, messages: u64::from(observation.counts_message) };
        partial.squares.add(&sums);
        if observation.occurrence <= 1 {
            partial.first[observation.role as usize] += sums;
            partial.first_messages += value.messages;
            let opcode = packet.opcode();
            if opcode.is_write() || opcode.is_read_response() {
                let messages = u64::from(opcode.is_first() || opcode.is_only());
                partial.rdma += RdmaSums { messages, payload_bytes: sums.payload_bytes };
            }
        } else {
            partial.add_later(packet, observation, &value);
        }
        if CongestionSlot::is_nak(packet, observation.role) {
            partial.later_observations.get_or_insert_default().naks += 1;
        }
        if observation.shows_copy {
            partial.later_observations.get_or_insert_default().shown_copies += 1;
        }
        if *keeps_sizes
            && observation.occurrence == 1
            && packet.kind() == TrafficKind::Data
            && let Some(of) = SizeCategory::packet(observation.role)
        {
            partial.sizes.record(observation.role, of, u64::from(packet.wire_bytes));
        }
        if packet.time_ns == PacketRecord::NO_TIME {
            return;
        }
        if observation.occurrence <= 1
            && (observation.role == PacketRole::Acknowledge
                || matches!(packet.opcode().service(), Service::Ud | Service::Uc))
        {
            partial.last_new_ns = packet.time_ns;
        }
        let (first_ns, last_ns) = partial.times_ns;
        partial.times_ns = (first_ns.min(packet.time_ns), last_ns.max(packet.time_ns));
        if let Some(indexer) = &mut indexers[TimeSeriesKind::Traffic as usize] {
            let class = occurrence_class(observation.occurrence);
            let is_new = partial.bins.add(indexer.bin(packet.time_ns), TrafficSlot::Occurrence(class as u8), value);
            increment_if(&mut cell_limits[TimeSeriesKind::Traffic as usize], is_new);
            *open_cells += usize::from(is_new);
            if CongestionSlot::may_have(packet, observation.role) {
                self.congestion(packet, observation);
            }
        }
    }

    /// Adds a packet with congestion flags, a congestion notification or a NAK to its bin.
    #[cold]
    fn congestion(&mut self, packet: &PacketRecord, observation: &PacketObservation) {
        let Some(partial) = self.partials.get_mut(observation.connection as usize) else { return };
        let Some(indexer) = &mut self.bin_indexers[TimeSeriesKind::Traffic as usize] else { return };
        let sums = PacketSums { packets: 1, ..PacketSums::default() };
        for slot in CongestionSlot::of(packet, observation) {
            let value = TrafficSums { sums, messages: 0 };
            let is_new = partial.bins.add(indexer.bin(packet.time_ns), TrafficSlot::Congestion(slot), value);
            increment_if(&mut self.cell_limits[TimeSeriesKind::Traffic as usize], is_new);
            self.open_cells += usize::from(is_new);
        }
    }

    /// Adds the evidence from the first packet of a message to the connection's votes.
    pub fn start(&mut self, connection: u32, start: StartEvent) {
        let Some(partial) = self.partials.get_mut(connection as usize) else { return };
        match start {
            StartEvent::Recognized(stack, envelope) => partial.mpi.get_or_insert_default().votes.start(stack, envelope),
            StartEvent::AlsoMatches(message) => partial.upper_layers.get_or_insert_default().add(message),
            // A retransmission by the library is no new evidence.
            StartEvent::Retransmitted => {}
            StartEvent::Unknown(message) => {
                partial.unknown_starts += 1;
                if let Some(message) = message {
                    partial.upper_layers.get_or_insert_default().add(message);
                }
            }
        }
    }

    /// Adds a share of an NCCL message.
    pub fn share(&mut self, connection: u32, is_first: bool) {
        let Some(partial) = self.partials.get_mut(connection as usize) else { return };
        let (first, later) = (u64::from(is_first), u64::from(!is_first));
        partial.mpi.get_or_insert_default().shares += NcclShares { first, later };
    }

    /// Adds a time between packets.
    pub fn timing(&mut self, timing: &Timing) {
        let Some(partial) = self.partials.get_mut(timing.connection as usize) else { return };
        let coarseness = self.coarseness;
        let key = (timing.observed_ports, timing.required_detection, timing.key);
        let times = partial.times.get_or_insert_default();
        let of = times.recorders.iter().position(|(of, _)| *of == key).unwrap_or(times.recorders.len());
        if of == times.recorders.len() {
            let mut recorder = Recorder::default();
            (0..coarseness).for_each(|_| recorder.coarsen());
            if of == times.recorders.capacity() {
                times.recorders.reserve_exact(RECORDER_GROWTH);
            }
            times.recorders.push((key, recorder));
        }
        times.recorders[of].1.record(timing.ns);
        increment_if(&mut self.bucket_limit, true);
        if let Some(indexer) = &mut self.bin_indexers[TimeSeriesKind::Times as usize]
            && timing.key.interval.has_time_series()
        {
            // There are fewer kinds of times than `u16` values.
            let slot = TimeSlot { recorder: of as u16, bucket: coarse_bucket(timing.ns) };
            let is_new = times.bins.add(indexer.bin(timing.from_ns), slot, Count(1));
            increment_if(&mut self.cell_limits[TimeSeriesKind::Times as usize], is_new);
        }
    }

    /// Adds a transport message of known length.
    pub fn size(&mut self, connection: u32, verb: Verb, bytes: u64) {
        let Some(partial) = self.partials.get_mut(connection as usize) else { return };
        partial.operations.add(verb, bytes);
        if self.keeps_sizes {
            partial.sizes.record(PacketRole::Other, SizeCategory::message(verb), bytes);
        }
    }

    /// Adds an MPI message.
    pub fn message(&mut self, connection: u32, message: &MpiMessage) {
        let Some(partial) = self.partials.get_mut(connection as usize) else { return };
        let class = MpiClass::of(message);
        let mpi = partial.mpi.get_or_insert_default();
        *mpi.sums.or_default(class) += MpiSums { messages: 1, mpi_bytes: message.mpi_bytes };
        mpi.streams.record(message, &mut self.streams_left);
        if self.keeps_sizes {
            mpi.sizes.record(PacketRole::Request, class, message.mpi_bytes);
        }
        if message.time_ns != PacketRecord::NO_TIME
            && let Some(indexer) = &mut self.bin_indexers[TimeSeriesKind::Traffic as usize]
        {
            let sums = PacketSums { packets: 0, wire_bytes: 0, payload_bytes: message.mpi_bytes };
            let value = TrafficSums { sums, messages: 1 };
            let is_new = partial.bins.add(indexer.bin(message.time_ns), TrafficSlot::Mpi(class), value);
            increment_if(&mut self.cell_limits[TimeSeriesKind::Traffic as usize], is_new);
            self.open_cells += usize::from(is_new);
        }
    }

    /// Number of cells of a time series.
    pub fn cells(&mut self, which: TimeSeriesKind, precision: CountPrecision) -> usize {
        let most = &mut self.cell_limits[which as usize];
        if let (CountPrecision::UpperBound, Some(most)) = (precision, *most) {
            return most;
        }
        let exact = precision == CountPrecision::Exact;
        let cells = |partial: &mut PartialSums| match which {
            TimeSeriesKind::Traffic => partial.bins.cells(exact),
            TimeSeriesKind::Times => partial.times.as_mut().map_or(0, |times| times.bins.cells(exact)),
        };
        *most.insert(self.partials.iter_mut().map(cells).sum())
    }

    /// Upper bound of the number of buckets of times.
    pub fn buckets(&mut self) -> usize {
        let recorders = self.partials.iter().flat_map(|partial| &partial.times).flat_map(|times| &times.recorders);
        *self.bucket_limit.get_or_insert_with(|| recorders.map(|(_, recorder)| recorder.buckets()).sum())
    }

    /// Number of buckets of times: now, with one bit less of every time, with two bits less, and so
    /// on.
    pub fn buckets_if_coarser<const LEVELS: usize>(&mut self) -> [usize; LEVELS] {
        let mut counts = [0; LEVELS];
        let recorders = self.partials.iter_mut().flat_map(PartialSums::recorders);
        recorders.for_each(|recorder| recorder.add_buckets(&mut counts));
        self.bucket_limit = counts.first().copied();
        counts
    }

    /// Drops `bits` more bits of every time, past and future.
    pub fn coarsen(&mut self, bits: u32) {
        self.coarseness += bits;
        let recorders = self.partials.iter_mut().flat_map(PartialSums::recorders);
        recorders.for_each(|recorder| (0..bits).for_each(|_| recorder.coarsen()));
        self.bucket_limit = None;
    }

    /// Keeps the cells of the traffic so far in less memory.
    pub fn seal(&mut self) {
        self.partials.iter_mut().for_each(|partial| partial.bins.seal());
        self.open_cells = 0;
    }

    /// Upper bound of the traffic cells that are not sealed.
    #[must_use]
    pub const fn open_cells(&self) -> usize {
        self.open_cells
    }

    /// Doubles the bin width of a time series.
    pub fn widen(&mut self, which: TimeSeriesKind) {
        self.bin_indexers[which as usize].iter_mut().for_each(BinIndexer::widen);
        self.cell_limits[which as usize] = None;
        for partial in self.partials.iter_mut() {
            match which {
                TimeSeriesKind::Traffic => partial.bins.widen(),
                TimeSeriesKind::Times => partial.times.iter_mut().for_each(|times| times.bins.widen()),
            }
        }
    }

    /// Times of the first and the last packet in nanoseconds since the epoch.
    #[must_use]
    pub fn times_ns(&self) -> Option<(i64, i64)> {
        let timed = self.partials.iter().map(|partial| partial.times_ns).filter(|(first, last)| first <= last);
        timed.reduce(|(first, last), (own_first, own_last)| (first.min(own_first), last.max(own_last)))
    }

    /// Bin width in nanoseconds; `None` without a time series.
    #[must_use]
    pub fn bin_ns(&self, which: TimeSeriesKind) -> Option<i64> {
        self.bin_indexers[which as usize].map(BinIndexer::bin_ns)
    }

    /// Number of times that latencies were made coarser.
    #[must_use]
    pub const fn coarseness(&self) -> u32 {
        self.coarseness
    }

    /// True if all slots are in range. A deserialized accumulator may be damaged.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let is_known = |slot: TrafficSlot| match slot {
            TrafficSlot::Occurrence(class) => usize::from(class) < OCCURRENCES,
            TrafficSlot::Mpi(_) => true,
            TrafficSlot::Congestion(slot) => slot.is_sound(),
        };
        self.partials.iter().all(|partial| {
            let mut slots = partial.times.iter().flat_map(|times| times.bins.slots());
            partial.bins.slots().all(is_known) && slots.all(|slot| slot.bucket < COARSE_BUCKETS)
        })
    }

    /// The sums so far, by connection number.
    #[must_use]
    pub const fn partials(&self) -> &PagedVec<PartialSums> {
        &self.partials
    }

    /// The final sums, by connection number.
    #[must_use]
    pub fn finish(self) -> PagedVec<PartialSums> {
        self.partials
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ConnectionEnd, ConnectionKey, PacketFields};
    use ibscope_parsers::mpi::LibraryStack;
    use ibscope_parsers::{Endpoint, Lid, Psn, Qpn};

    /// UCX retransmits datagrams when acknowledgements are late, without any loss.
    #[test]
    fn retransmissions_by_a_library_are_no_votes_against_it() {
        let end = Endpoint::from_lid(Lid(1));
        let opcode = ibscope_parsers::ib::Opcode(0x64);
        let packet = PacketRecord::new(PacketFields { opcode, psn: Psn::new(1), ..PacketFields::default() });
        let key = ConnectionKey::of((end, end), opcode, Qpn::new(7), 0);
        let mut sums = Accumulator::new(None, false);
        sums.grow(1);
        sums.packet(
            &packet,
            &PacketObservation {
                connection: 0,
                role: PacketRole::Request,
                occurrence: 1,
                counts_message: true,
                shows_copy: false,
            },
        );
        for start in
            [StartEvent::Recognized(LibraryStack::UcxUd, None), StartEvent::Retransmitted, StartEvent::Unknown(None)]
        {
            sums.start(0, start);
        }
        let mut combiner = Combiner::default();
        combiner.input(Some((0, 0)), rayon::iter::once(sums.partials().iter().map(|sums| (&key, sums))));
        let shards = vec![combiner.shard(vec![(vec![ConnectionEnd::new(key)], sums.finish())])];
        let totals = combiner.finish(shards);
        let connection = &totals.connections[0];
        assert_eq!((connection.starts(), connection.votes().bare[LibraryStack::UcxUd as usize]), (2, 1));
    }

    /// Many connections with one tag per message. All messages count, with or without a stream.
    #[test]
    fn streams_of_all_connections_are_bounded() {
        use ibscope_parsers::mpi::{Envelope, Length, MatchFields};
        const TAGS: usize = 512;
        for connections in [MAX_STREAMS / TAGS, MAX_STREAMS / TAGS + 1] {
            let mut sums = Accumulator::new(None, false);
            sums.grow(connections);
            for message in 0..connections * TAGS {
                let matching = MatchFields::UcxTag(((message % TAGS) as u64) << 40);
                let envelope = Envelope { matching, length: Length::Explicit(8), sequence: None };
                let message_of = MpiMessage { stack: LibraryStack::UcxVerbs, envelope, mpi_bytes: 8, time_ns: 0 };
                sums.message((message / TAGS) as u32, &message_of);
            }
            let seen: Vec<_> = sums.partials().iter().filter_map(|partial| partial.mpi.as_ref()).collect();
            let streams: usize = seen.iter().map(|mpi| mpi.streams.iter().count()).sum();
            let messages: u64 = seen.iter().flat_map(|mpi| mpi.sums.iter()).map(|(_, sums)| sums.messages).sum();
            assert_eq!((streams, messages), (MAX_STREAMS, (connections * TAGS) as u64));
        }
    }
}
