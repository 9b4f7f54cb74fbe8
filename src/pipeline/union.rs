//! The union of inputs that overlap in time: a second reading of the captures, for the pairs of
//! endpoints of which several inputs hold different packets, or different connections of NCCL.
//!
//! ```text
//! inputs -> queues, one per stream -> merged by time -> UnionLedgers -> Tracker -> sums
//!           packets of these pairs    file order kept   new packets
//! ```
//! In: the captures and the readout of their first reading. Out: one more readout per group of
//! overlapping inputs, with each transmission once. `conclude` counts it instead of the members.
//!
//! Invariants: the order of the packets, and so the result, depends on the files alone. Only
//! connections of the first reading are tracked. In memory are the packets of one batch per thread
//! and stream.

use super::analysis::{Reading, Shard};
use super::bounds::MemoryBounds;
use super::file_overlap::FileOverlap;
use super::readout::{InputReadout, Readout, SHARDS, ShardReadout, UnionReadout};
use super::{AnalysisOptions, PipelineError, align, for_each_batch};
use crate::decode::{self, DecodeOptions};
use crate::flow::{Depth, UnionInput, UnionLedgers};
use crate::input::{self, Capture, Feed, SourceOptions};
use crate::model::{Batch, ConnectionKey, Coverage, HashMap, PacketRecord, PacketRef, Packets, RecentSamples};
use crate::reduce::InputOverlap;
use ibscope_parsers::Endpoint;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

/// Copies of a packet differ by less than this in time (nanoseconds). The packets of an input with a
/// shorter snap length are merged this much later, so that the longer copy of a packet comes first.
const TRUNCATED_DELAY_NS: i64 = 10_000_000;

/// Packets that are merged before the shards count them.
const ROUND_PACKETS: usize = 1 << 16;

/// Reads the inputs again where they hold different packets of a connection. Empty if no two of
/// them do, if an input can be read only once, or if the reading was stopped.
pub(super) fn read(
    paths: &[PathBuf],
    options: &AnalysisOptions,
    (reading, depth): (&Reading<'_>, Depth),
    readout: &Readout,
    source: &SourceOptions,
) -> Result<Vec<UnionReadout>, PipelineError> {
    if options.keep_parts || reading.streams.len() < 2 || !paths.iter().all(|path| align::is_file(path)) {
        return Ok(Vec::new());
    }
    let mut overlap = InputOverlap::default();
    for input in &readout.inputs {
        overlap.input(input.times_ns, input.shards.par_iter().map(ShardReadout::sums));
    }
    let mut unions = Vec::new();
    for (members, times_ns) in overlap.groups() {
        let tracked = TrackedPairs::find(&members, &overlap, readout);
        if tracked.places.is_empty() {
            continue;
        }
        let delays_ns = delays_ns(reading.streams, &members, readout);
        let shards = tracked.read(paths, options, (reading, depth), (source, &delays_ns))?;
        if source.is_stopped() {
            return Ok(Vec::new());
        }
        let readout = InputReadout { coverage: Coverage::default(), times_ns: Some(times_ns), shards };
        unions.push(UnionReadout { members, readout });
    }
    Ok(unions)
}

/// The delay of each of these inputs: inputs with a shorter snap length than others come later.
fn delays_ns(streams: &[Vec<usize>], members: &[usize], readout: &Readout) -> BTreeMap<usize, i64> {
    let snap_bytes = |stream: &Vec<usize>| {
        let coverages = stream.iter().map(|input| &readout.inputs[*input].coverage);
        let truncated = coverages.filter(|coverage| coverage.truncated > 0);
        truncated.map(|coverage| coverage.longest_truncated_bytes).min().unwrap_or(usize::MAX)
    };
    let streams = streams.iter().filter(|stream| members.contains(&stream[0]));
    let inputs: Vec<(usize, usize)> = streams.map(|stream| (stream[0], snap_bytes(stream))).collect();
    let lengths: BTreeSet<usize> = inputs.iter().map(|(_, bytes)| *bytes).collect();
    let longer = |bytes: usize| lengths.range(bytes..).count() as i64 - 1;
    inputs.into_iter().map(|(input, bytes)| (input, longer(bytes) * TRUNCATED_DELAY_NS)).collect()
}

/// The pairs of ports that use NCCL and whose connections are distributed over these inputs. The
/// data of a message may be in one input, and the clear-to-send element that names its rank in
/// another.
fn divided_pairs<'a>(
    members: &[usize],
    shard: impl Fn(&usize) -> &'a ShardReadout,
) -> impl Iterator<Item = (Endpoint, Endpoint)> {
    let queues = members.iter().flat_map(|input| &shard(input).cts_queues);
    let of_nccl: BTreeSet<(Endpoint, Endpoint)> =
        queues.map(|queue| port_pair(queue.from, queue.to.endpoint)).collect();
    let mut pairs: BTreeMap<(Endpoint, Endpoint), DividedPair> = BTreeMap::new();
    for input in members.iter().filter(|_| !of_nccl.is_empty()) {
        for key in shard(input).connections.iter().map(|end| end.key) {
            if of_nccl.contains(&key.port_pair()) {
                let held = pairs.entry(key.port_pair()).or_default();
                held.inputs.insert(*input);
                *held.connections.entry(key).or_default() += 1;
            }
        }
    }
    let is_divided = |held: &DividedPair| held.connections.values().any(|count| *count != held.inputs.len());
    pairs.into_iter().filter(move |(_, held)| is_divided(held)).map(|(pair, _)| pair)
}

/// The inputs with packets of a pair of ports, and for each connection the number of inputs that
/// hold its packets.
#[derive(Default)]
struct DividedPair {
    inputs: BTreeSet<usize>,
    connections: BTreeMap<ConnectionKey, usize>,
}

fn port_pair(one: Endpoint, other: Endpoint) -> (Endpoint, Endpoint) {
    (one.min(other), one.max(other))
}

/// The connections between the pairs that are read again.
struct TrackedPairs<'a> {
    members: &'a [usize],
    overlap: &'a InputOverlap,
    /// Shard and number of each connection.
    places: HashMap<ConnectionKey, (usize, u32)>,
    /// By shard: the connections by number.
    keys: Vec<Vec<ConnectionKey>>,
}

impl<'a> TrackedPairs<'a> {
    fn find(members: &'a [usize], overlap: &'a InputOverlap, readout: &Readout) -> Self {
        let keys_of = |shard: usize| {
            let own = |input: &usize| &readout.inputs[*input].shards[shard];
            let views = members.iter().map(|input| {
                let shard = own(input);
                (*input, shard.connections.iter().zip(shard.sums.partials().iter()).collect())
            });
            let mut pairs: BTreeSet<(Endpoint, Endpoint)> = overlap.differing_pairs(views);
            pairs.extend(divided_pairs(members, own));
            let all = members.iter().flat_map(|input| own(input).connections.iter().map(|end| end.key));
            let is_tracked = |key: &ConnectionKey| pairs.contains(&key.port_pair());
            let mut keys: Vec<ConnectionKey> =
                if pairs.is_empty() { Vec::new() } else { all.filter(is_tracked).collect() };
            keys.sort_unstable();
            keys.dedup();
            keys
        };
        let keys: Vec<Vec<ConnectionKey>> = (0..SHARDS).into_par_iter().map(keys_of).collect();
        let places = keys
            .iter()
            .enumerate()
            .flat_map(|(shard, keys)| keys.iter().zip(0..).map(move |(key, id)| (*key, (shard, id))));
        Self { members, overlap, places: places.collect(), keys }
    }

    fn read(
        &self,
        paths: &[PathBuf],
        options: &AnalysisOptions,
        (reading, depth): (&Reading<'_>, Depth),
        (source, delays_ns): (&SourceOptions, &BTreeMap<usize, i64>),
    ) -> Result<Vec<ShardReadout>, PipelineError> {
        let source = SourceOptions { bytes_read: Arc::default(), ..align::without_digests(source) };
        let mut streams: Vec<StreamQueue<'_>> = Vec::new();
        for stream in reading.streams.iter().filter(|stream| self.members.contains(&stream[0])) {
            let own: Vec<PathBuf> = stream.iter().map(|input| paths[*input].clone()).collect();
            streams.push(StreamQueue::new(stream, input::open(&own, &source)?, reading, delays_ns[&stream[0]]));
        }
        let mut shards: Vec<UnionShard> = self.keys.iter().map(|keys| UnionShard::new(options, depth, keys)).collect();
        let mut bounds = MemoryBounds::new(options);
        loop {
            let round = UnionRound::merge(&mut streams, self)?;
            if round.batches.is_empty() {
                break;
            }
            shards.par_iter_mut().zip(&round.order).for_each(|(shard, order)| shard.packets(&round.batches, order));
            bounds.enforce(&mut shards.iter_mut().map(|shard| shard.shard.sums()).collect::<Vec<_>>());
        }
        Ok(shards.into_par_iter().map(UnionShard::end).collect())
    }
}

/// A connection in one batch: its shard, its number there, and the input that holds it.
type SlotPlace = Option<(usize, u32, UnionInput)>;

/// A batch of which some packets are merged.
struct MergedBatch {
    bytes: Vec<u8>,
    packets: Packets,
    /// By slot; `None` for connections that are not tracked.
    places: Vec<SlotPlace>,
}

/// The packets of a stream that wait to be merged.
struct StreamQueue<'a> {
    /// First input of the stream.
    input: usize,
    stream: &'a [usize],
    captures: VecDeque<Capture>,
    /// Number of the current file in the stream.
    position: usize,
    feed: Option<(Feed, DecodeOptions)>,
    reading: &'a Reading<'a>,
    overlaps: Vec<FileOverlap>,
    recent_samples: RecentSamples,
    /// Is subtracted from the times for the merged order: the distance from another input with the same
    /// packets at other times, less the delay of a shorter snap length.
    earlier_ns: i64,
    /// Largest time so far, nanoseconds since the epoch: a record that is out of order keeps its
    /// place in the file.
    time_ns: i64,
    batches: VecDeque<QueuedBatch>,
}

/// A batch, and the packets of it that are still to be merged: index and time in the merged order.
struct QueuedBatch {
    batch: Arc<MergedBatch>,
    packets: VecDeque<(u32, i64)>,
}

impl<'a> StreamQueue<'a> {
    fn new(stream: &'a [usize], captures: Vec<Capture>, reading: &'a Reading<'a>, delay_ns: i64) -> Self {
        Self {
            input: stream[0],
            stream,
            captures: captures.into(),
            position: 0,
            feed: None,
            reading,
            overlaps: (0..SHARDS).map(|_| FileOverlap::default()).collect(),
            recent_samples: RecentSamples::default(),
            earlier_ns: reading.apart_ns(stream[0]).saturating_sub(delay_ns),
            time_ns: i64::MIN,
            batches: VecDeque::new(),
        }
    }

    /// Time of the next packet in the merged order; reads on if necessary. `None` at the end.
    fn next_ns(&mut self, tracked: &TrackedPairs<'_>) -> Result<Option<i64>, PipelineError> {
        loop {
            self.batches.pop_front_if(|queued| queued.packets.is_empty());
            if let Some(queued) = self.batches.front() {
                match queued.packets.front() {
                    Some((_, time_ns)) => return Ok(Some(*time_ns)),
                    None => continue,
                }
            }
            if !self.read_on(tracked)? {
                return Ok(None);
            }
        }
    }

    /// Reads the next batches. Returns false at the end of the last file.
    fn read_on(&mut self, tracked: &TrackedPairs<'_>) -> Result<bool, PipelineError> {
        if self.feed.is_none() {
            let Some(capture) = self.captures.pop_front() else { return Ok(false) };
            let from_ns = self.reading.repeated_from_ns(self.stream, self.position);
            self.overlaps.iter_mut().for_each(|overlap| overlap.next_file(from_ns));
            let decode = self.reading.decode.of(&self.stream[self.position..=self.position]);
            let decode = DecodeOptions { check_icrc: false, ..decode };
            let feed =
                Feed::start(vec![capture.at(0)], self.reading.batches_per_round).map_err(PipelineError::Threads)?;
            self.feed = Some((feed, decode));
            self.position += 1;
        }
        let Some((feed, options)) = &mut self.feed else { return Ok(false) };
        let tasks = feed.next(self.reading.batches_per_round);
        if tasks.is_empty() {
            let _ = self.feed.take().map(|(feed, _)| feed.finish());
            return Ok(true);
        }
        let decode = |batch: Batch| decode::decode(batch, options, vec![Packets::default()]);
        let mut read: Vec<(Vec<u8>, Packets)> = Vec::new();
        for (mut piece, receipt) in for_each_batch(tasks, decode) {
            if !feed.accept(receipt, piece.iter_mut().map(|decoded| &mut decoded.batch)) {
                piece.into_iter().for_each(|decoded| feed.recycle(decoded.batch.bytes));
                continue;
            }
            for decoded in piece {
                let mut decoded = decode::without_repeated_samples(decoded, options, &mut self.recent_samples);
                let packets = decoded.shards.pop().unwrap_or_default();
                read.push((decoded.batch.bytes, packets));
            }
        }
        read.into_iter().for_each(|(bytes, packets)| self.queue(bytes, packets, tracked));
        Ok(true)
    }

    fn queue(&mut self, bytes: Vec<u8>, packets: Packets, tracked: &TrackedPairs<'_>) {
        let place = |key: &ConnectionKey| {
            let (shard, id) = tracked.places.get(key)?;
            let points = tracked.overlap.points_in_union(self.input, key);
            Some((*shard, *id, UnionInput { input: self.input, points }))
        };
        let places: Vec<SlotPlace> = packets.keys.iter().map(place).collect();
        let mut waiting = VecDeque::new();
        for (index, packet) in packets.iter().enumerate() {
            let Some((shard, ..)) = places[packet.slot() as usize] else { continue };
            let overlap = &mut self.overlaps[shard];
            if !overlap.is_idle() && overlap.is_shared(packet) {
                continue;
            }
            if packet.time_ns != PacketRecord::NO_TIME {
                self.time_ns = self.time_ns.max(packet.time_ns.saturating_sub(self.earlier_ns));
            }
            waiting.push_back((index as u32, self.time_ns));
        }
        match &self.feed {
            Some((feed, _)) if waiting.is_empty() => feed.recycle(bytes),
            _ => {
                let batch = Arc::new(MergedBatch { bytes, packets, places });
                self.batches.push_back(QueuedBatch { batch, packets: waiting });
            }
        }
    }
}

/// The next packets of all streams, in the order of time.
struct UnionRound {
    batches: Vec<Arc<MergedBatch>>,
    /// By shard: index of the batch, and of the packet in it.
    order: Vec<Vec<(u32, u32)>>,
}

impl UnionRound {
    fn merge(streams: &mut [StreamQueue<'_>], tracked: &TrackedPairs<'_>) -> Result<Self, PipelineError> {
        let mut round = Self { batches: Vec::new(), order: vec![Vec::new(); SHARDS] };
        let mut left = ROUND_PACKETS;
        // The batch of each stream that is in the round already.
        let mut current: Vec<Option<u32>> = vec![None; streams.len()];
        let mut times = Vec::new();
        for stream in streams.iter_mut() {
            times.push(stream.next_ns(tracked)?);
        }
        while left > 0 {
            // The stream with the earliest packet, and the time up to which it stays that.
            let next = times.iter().enumerate().filter_map(|(at, time_ns)| Some(((*time_ns)?, at)));
            let Some(first) = next.clone().min() else { break };
            let until = next.filter(|other| *other != first).min();
            let at = first.1;
            let is_first = |time_ns: i64| until.is_none_or(|until| (time_ns, at) < until);
            while left > 0 && times[at].is_some_and(is_first) {
                let Some(queued) = streams[at].batches.front_mut() else { break };
                let Some((index, _)) = queued.packets.pop_front() else { break };
                let number = *current[at].get_or_insert_with(|| {
                    round.batches.push(Arc::clone(&queued.batch));
                    round.batches.len() as u32 - 1
                });
                let slot = queued.batch.packets.records[index as usize].slot() as usize;
                if let Some((shard, ..)) = queued.batch.places[slot] {
                    round.order[shard].push((number, index));
                }
                left -= 1;
                if queued.packets.is_empty() {
                    current[at] = None;
                }
                times[at] = streams[at].next_ns(tracked)?;
            }
        }
        Ok(round)
    }
}

/// Tracker, sums and ledgers of one shard.
struct UnionShard {
    shard: Shard,
    ledgers: UnionLedgers,
}

impl UnionShard {
    fn new(options: &AnalysisOptions, depth: Depth, keys: &[ConnectionKey]) -> Self {
        Self { shard: Shard::of_union(options, depth, keys), ledgers: UnionLedgers::new(keys.len()) }
    }

    fn packets(&mut self, batches: &[Arc<MergedBatch>], order: &[(u32, u32)]) {
        for (batch, index) in order {
            let batch = &batches[*batch as usize];
            let record = &batch.packets.records[*index as usize];
            let slot = record.slot() as usize;
            let Some((_, id, of)) = batch.places[slot] else { continue };
            let packet = PacketRef { key: &batch.packets.keys[slot], record };
            self.shard.packet_of_union(packet, batch.packets.paths[slot], (id, of), &batch.bytes, &mut self.ledgers);
        }
        self.shard.take_events();
    }

    fn end(mut self) -> ShardReadout {
        let mut ends = self.shard.finish();
        for (id, end) in ends.iter_mut().enumerate() {
            end.overflowed |= self.ledgers.left_out(id);
        }
        self.shard.end(ends)
    }
}
