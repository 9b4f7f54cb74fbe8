//! The analysis: captures in, their sums out.
//!
//! [`Reading`] reads the inputs in rounds: while one round of batches is split and decoded, the
//! packets of the round before pass through trackers and sums. Invariant: the result depends on the
//! files alone, not on threads or batch boundaries.

use super::admission::admit;
use super::align::Transits;
use super::bounds::MemoryBounds;
use super::buffer_pool::BufferPool;
use super::conclude::{AnalysisResult, conclude};
use super::file_overlap::FileOverlap;
use super::readout::{InputReadout, Readout, SHARDS, ShardReadout, transit_sample_room};
use super::spill::{Spill, SpillFile};
use super::{AnalysisOptions, PipelineError, for_each_batch};
use crate::align::{LookAlikes, PacketSample};
use crate::decode::{self, DecodeOptions, DecodedBatch};
use crate::flow::{self, Depth, Events, Tracker, UnionInput, UnionLedgers};
use crate::input::{Capture, Ending, Feed, FeedTask};
use crate::model::profile::{CmRow, Input};
use crate::model::{
    ConnectionEnd, ConnectionKey, ConnectionShare, Coverage, LiveSums, MirrorSequences, PacketRecord, PacketRef,
    Packets, RecentSamples, Sample, TimestampStats, TrafficKind,
};
use crate::reduce::{self, Accumulator, TransitSample};
use ibscope_parsers::PathFields;
use rayon::prelude::*;
use std::path::Path;

/// Batches of a round per worker thread: enough that workers seldom wait at the end of a round.
pub(super) const BATCHES_PER_THREAD: usize = 2;
/// Packets whose state is prefetched together: a few times as many as a processor has loads in
/// flight.
const PREFETCHED_PACKETS: usize = 64;
/// Connection management messages that are kept per input and shard.
const MAX_CM: usize = 1 << 16;

/// How the inputs are read: the files of each stream in order, and how their records are decoded.
pub(super) struct Reading<'a> {
    pub(super) streams: &'a [Vec<usize>],
    pub(super) repeated_from_ns: &'a [Option<i64>],
    pub(super) decode: &'a DecodeOptions,
    pub(super) look_alikes: &'a [LookAlikes],
    pub(super) batches_per_round: usize,
}

impl Reading<'_> {
    /// Time from which later files of the stream may repeat packets of its file number `position`.
    pub(super) fn repeated_from_ns(&self, stream: &[usize], position: usize) -> Option<i64> {
        let behind = stream.get(position + 1..).unwrap_or_default();
        behind.iter().filter_map(|input| self.repeated_from_ns[*input]).min()
    }

    /// Time in nanoseconds by which an input holds its packets later than the earlier input with the
    /// same packets; 0 without such an input.
    pub(super) fn apart_ns(&self, input: usize) -> i64 {
        let same = self.look_alikes.iter().find(|same| same.inputs.1 == input);
        same.map_or(0, |same| same.apart_ns.saturating_add(self.apart_ns(same.inputs.0)))
    }

    /// Reads all captures into the analysis, and returns how each one ended.
    pub(super) fn run(
        &self,
        captures: Vec<Capture>,
        analysis: &mut Analysis,
        pool: &rayon::ThreadPool,
        report: &(dyn Fn() + Sync),
    ) -> Result<Vec<Ending>, PipelineError> {
        let mut endings: Vec<Ending> = vec![Ending::default(); captures.len()];
        let mut captures: Vec<Option<Capture>> = captures.into_iter().map(Some).collect();
        // Read the first files of all streams together, then the second ones, and so on.
        for position in 0..self.streams.iter().map(Vec::len).max().unwrap_or(0) {
            let read: Vec<usize> = self.streams.iter().filter_map(|stream| stream.get(position).copied()).collect();
            let now = read.iter().filter_map(|input| captures[*input].take());
            let now: Vec<Capture> = now.enumerate().map(|(place, capture)| capture.at(place)).collect();
            let decode = self.decode.of(&read);
            analysis.start_inputs(read.clone(), self, position);
            let mut feed = Feed::start(now, self.batches_per_round).map_err(PipelineError::Threads)?;
            pool.install(|| {
                let mut decoded: Vec<DecodedBatch> = Vec::new();
                loop {
                    let tasks = feed.next(self.batches_per_round);
                    if tasks.is_empty() && decoded.is_empty() {
                        break;
                    }
                    analysis.step(tasks, &mut decoded, &decode, &mut feed);
                    report();
                }
            });
            read.iter().zip(feed.finish()).for_each(|(input, ending)| endings[*input] = ending);
        }
        Ok(endings)
    }
}

/// An input without counts.
pub(super) fn input(path: &Path, format: &str) -> Input {
    Input {
        name: path.display().to_string(),
        length_bytes: 0,
        xxh3_128: String::new(),
        sha256: None,
        format: format.to_owned(),
        pairs_observed_once: 0,
        pairs_observed_twice: 0,
        clock: None,
        interrupted: false,
        ends_early: false,
        share: None,
        coverage: Coverage::default(),
    }
}

/// Coverage of an input, and of its stream.
type Coverages = (Coverage, Coverage);

/// State of a running analysis.
pub(super) struct Analysis {
    inputs: Vec<InputState>,
    /// By input: the first input of its stream; all inputs of the stream share the state of that
    /// one.
    first_of_stream: Vec<usize>,
    /// The inputs that are read now; batches refer to them by position in this list.
    current_inputs: Vec<usize>,
    bounds: MemoryBounds,
    max_connections: usize,
    /// The share of the connections that is tracked; `None` for all.
    share: Option<ConnectionShare>,
    /// Packet sample of a single input, by which `merge` compares its clock with others.
    pub(super) sample: Option<PacketSample>,
    buffers: BufferPool,
}

struct InputState {
    shards: Vec<Shard>,
    coverage: Coverage,
    last_time_ns: Option<i64>,
    followed: FollowedFiles,
    timestamps: TimestampStats,
    /// Sequence numbers of mirrors in all files of the stream that begins with this input.
    mirrors: MirrorSequences,
    /// The last samples of sFlow and psample in these files.
    recent_samples: RecentSamples,
}

/// The files of an input that grows, which are read one after the other and not compared: a file may
/// begin with records of the file before it. Files of other inputs are compared (`seam`).
#[derive(Default)]
struct FollowedFiles {
    /// Last time of the files before the current one, while these may hold records of the current one.
    shared_until_ns: Option<i64>,
    /// The longest step to an earlier time within a file, in nanoseconds.
    longest_step_ns: i64,
}

impl FollowedFiles {
    /// Takes the next batch of an input with these counts so far. Returns the number of its packets that
    /// a file before its own may hold too. `step_ns` is the step to an earlier time before the batch.
    fn shared_packets(&mut self, decoded: &DecodedBatch, so_far: &Coverage, step_ns: i64) -> u64 {
        let own = &decoded.counts.counts;
        if decoded.batch.first_record == 0 && so_far.records > 0 {
            // Several threads of a capturing program may exchange records, in a file and at its end.
            self.shared_until_ns = so_far.last_time_ns.filter(|_| step_ns > self.longest_step_ns);
        } else {
            self.longest_step_ns = self.longest_step_ns.max(step_ns);
        }
        self.longest_step_ns = self.longest_step_ns.max(own.longest_backwards_ns);
        let Some(until_ns) = self.shared_until_ns else { return 0 };
        self.shared_until_ns = Some(until_ns).filter(|_| own.first_time_ns.is_none_or(|first_ns| first_ns <= until_ns));
        let is_shared = |packet: &&PacketRecord| packet.time_ns != PacketRecord::NO_TIME && packet.time_ns <= until_ns;
        decoded.shards.iter().map(|packets| packets.records.iter().filter(is_shared).count() as u64).sum()
    }
}

pub(super) struct Shard {
    tracker: Tracker,
    sums: Accumulator,
    cm: Vec<CmRow>,
    cm_lost: u64,
    /// Packets of connections beyond the limit.
    untracked: u64,
    /// Records that later files of the stream may repeat, and the number of packets that were dropped
    /// because an earlier file holds them.
    overlap: FileOverlap,
    overlap_packets: u64,
    /// Events of the packets just processed, and the tracker's number of each connection of the
    /// batch (`None` beyond the limit). Fields, to reuse their memory.
    events: Events,
    connection_numbers: Vec<Option<u32>>,
    /// Entries that count the packets by path fields, by slot.
    path_indices: Vec<u8>,
    /// Individual messages, if the depth asks for them.
    spill: Option<Spill>,
    /// MPI messages that other inputs may have observed too.
    transit_samples: Option<Sample<TransitSample>>,
}

impl Analysis {
    /// An analysis of a number of inputs in a number of streams.
    pub(super) fn new((inputs, streams): (usize, usize), options: &AnalysisOptions, depth: Depth) -> Self {
        let file = SpillFile::default();
        let draws = (streams > 1 || options.keep_parts) && options.measures.times && depth >= Depth::Envelopes;
        let room = transit_sample_room(streams);
        let shard = || {
            let mut shard = Shard::new(options, (depth, options.measures.times), &file);
            if draws {
                shard.tracker.emit_messages();
                shard.transit_samples = Some(Sample::new(room));
            }
            if streams > 1 || options.keep_parts {
                shard.tracker.digest_packets();
            }
            shard
        };
        let input = || InputState {
            shards: (0..SHARDS).map(|_| shard()).collect(),
            coverage: Coverage::default(),
            last_time_ns: None,
            followed: FollowedFiles::default(),
            timestamps: TimestampStats::default(),
            mirrors: MirrorSequences::default(),
            recent_samples: RecentSamples::default(),
        };
        Self {
            inputs: (0..inputs).map(|_| input()).collect(),
            first_of_stream: (0..inputs).collect(),
            current_inputs: (0..inputs).collect(),
            bounds: MemoryBounds::new(options),
            max_connections: options.limits.max_connections,
            share: options.share,
            sample: None,
            buffers: BufferPool::default(),
        }
    }

    /// Starts file number `position` of each stream: `inputs` are these files.
    fn start_inputs(&mut self, inputs: Vec<usize>, reading: &Reading<'_>, position: usize) {
        for stream in reading.streams {
            stream.iter().for_each(|input| self.first_of_stream[*input] = stream[0]);
            let from_ns = reading.repeated_from_ns(stream, position);
            self.inputs[stream[0]].shards.iter_mut().for_each(|shard| shard.overlap.next_file(from_ns));
            if let Some([before, input]) = position.checked_sub(1).and_then(|before| stream.get(before..=position)) {
                self.inputs[*input].last_time_ns = self.inputs[*before].last_time_ns;
                self.inputs[*input].timestamps = self.inputs[*before].timestamps.continued();
            }
        }
        self.current_inputs = inputs;
    }

    /// One round: runs `tasks` and decodes their batches while the batches of the round before are counted.
    pub(super) fn step(
        &mut self,
        tasks: Vec<FeedTask>,
        decoded: &mut Vec<DecodedBatch>,
        options: &DecodeOptions,
        feed: &mut Feed,
    ) {
        let (samples, buffers, share) = (self.sample.take(), std::mem::take(&mut self.buffers), self.share);
        let keep_share = |decoded: &mut DecodedBatch| {
            if let Some(share) = share {
                let shards = decoded.shards.iter_mut().enumerate();
                shards.filter(|(shard, _)| !share.has_shard(*shard)).for_each(|(_, packets)| packets.clear());
            }
        };
        let decode = |batch| {
            let mut decoded = decode::decode(batch, options, buffers.take());
            let candidates =
                samples.as_ref().map(|samples| samples.candidates(decoded.shards.iter().flat_map(Packets::iter)));
            keep_share(&mut decoded);
            (decoded, candidates)
        };
        let digest = |feed: &mut Feed| feed.digest(decoded.iter().map(|decoded| &decoded.batch));
        let (next, _) =
            rayon::join(|| for_each_batch(tasks, decode), || rayon::join(|| self.round(decoded), || digest(feed)));
        (self.sample, self.buffers) = (samples, buffers);
        for used in decoded.drain(..) {
            self.recycle(used, feed);
        }
        for (mut batches, receipt) in next {
            let counts = feed.accept(receipt, batches.iter_mut().map(|(decoded, _)| &mut decoded.batch));
            for (own, candidates) in batches {
                if !counts {
                    self.recycle(own, feed);
                    continue;
                }
                if let (Some(samples), Some(candidates)) = (&mut self.sample, candidates) {
                    samples.add(candidates);
                }
                let stream = self.first_of_stream[self.current_inputs[own.batch.input as usize]];
                let recent = &mut self.inputs[stream].recent_samples;
                let mut own = decode::without_repeated_samples(own, options, recent);
                keep_share(&mut own);
                decoded.push(own);
            }
        }
    }

    /// Returns the buffers of a batch to their pools.
    fn recycle(&self, used: DecodedBatch, feed: &Feed) {
        feed.recycle(used.batch.bytes);
        self.buffers.give(used.shards);
    }

    /// Sums of the first input so far.
    pub(super) fn live(&self) -> LiveSums {
        let Some(input) = self.inputs.first() else { return LiveSums::default() };
        let shards = input.shards.iter();
        let connections: Vec<_> =
            shards.flat_map(|shard| shard.tracker.keys().zip(shard.sums.partials().iter())).collect();
        let mut live = reduce::live_sums(&connections);
        let mirror_copies = std::mem::replace(&mut live.coverage, input.coverage.clone()).mirror_copies;
        live.coverage.mirror_copies = mirror_copies;
        live.coverage.mirror_losses = input.mirrors.losses();
        live.coverage.sample_sources = input.mirrors.sample_sources();
        live.coverage.untracked_packets = input.untracked();
        live
    }

    /// Counts the packets of these batches. The batches of one input are in file order.
    fn round(&mut self, decoded: &[DecodedBatch]) {
        let Self { inputs, first_of_stream, current_inputs: now, max_connections, .. } = self;
        let input_of = |decoded: &DecodedBatch| now[decoded.batch.input as usize];
        inputs.par_iter_mut().enumerate().for_each(|(index, input)| {
            decoded.iter().filter(|decoded| input_of(decoded) == index).for_each(|decoded| input.count(decoded));
            let own: Vec<&DecodedBatch> =
                decoded.iter().filter(|decoded| first_of_stream[input_of(decoded)] == index).collect();
            if own.is_empty() {
                return;
            }
            // A session continues in the next file of the stream.
            own.iter().for_each(|decoded| input.mirrors.add(&decoded.counts.sequences));
            let mut trackers: Vec<&mut Tracker> = input.shards.iter_mut().map(|shard| &mut shard.tracker).collect();
            admit(&mut trackers, &own, *max_connections);
            input.shards.par_iter_mut().enumerate().for_each(|(shard, state)| {
                for decoded in &own {
                    state.packets(decoded, shard);
                }
            });
        });
        let Self { inputs, bounds, .. } = self;
        bounds.enforce_roughly(&mut all_sums(inputs));
    }

    /// Ends the analysis of inputs that grow, and makes the profile. `inputs` are the captures, `notes`
    /// those of reading.
    pub(super) fn finish(
        self,
        inputs: Vec<Input>,
        mut notes: Vec<String>,
        transits: Vec<Transits>,
        options: &AnalysisOptions,
    ) -> Result<AnalysisResult, PipelineError> {
        let shared = inputs.iter().zip(&self.inputs).filter(|(_, state)| state.coverage.overlap_left_out > 0);
        notes.extend(shared.map(|(input, _)| {
            format!(
                "{}: a file begins before the end of the file before it, so both may hold the same packets, and `watch` does \
                 not compare its files; `ibscope analyze` counts the packets of such files once",
                input.name
            )
        }));
        conclude(self.end(), inputs, (notes, &[]), transits, options)
    }

    /// Reads out the trackers of all inputs.
    pub(super) fn end(mut self) -> Readout {
        let ends: Vec<Vec<Vec<ConnectionEnd>>> =
            self.inputs.par_iter_mut().map(|input| input.shards.par_iter_mut().map(Shard::finish).collect()).collect();
        // The last messages may have added cells, and rounds leave cells that join or exceed the
        // bounds: the width must not depend on where rounds end.
        self.bounds.enforce(&mut all_sums(&mut self.inputs));
        let coverages: Vec<Coverage> = self.inputs.iter().map(InputState::coverage).collect();
        let mut streams: Vec<Coverage> = vec![Coverage::default(); coverages.len()];
        for (coverage, first) in coverages.iter().zip(&self.first_of_stream) {
            streams[*first].merge(coverage);
        }
        let end =
            |((input, ends), (coverage, stream)): ((InputState, Vec<Vec<ConnectionEnd>>), Coverages)| InputReadout {
                coverage,
                times_ns: stream.first_time_ns.zip(stream.last_time_ns),
                shards: input.shards.into_iter().zip(ends).map(|(shard, ends)| shard.end(ends)).collect(),
            };
        let inputs = self.inputs.into_iter().zip(ends).zip(coverages.into_iter().zip(streams)).map(end).collect();
        Readout { inputs, unions: Vec::new(), bounds: self.bounds }
    }
}

/// The sums of all shards of these inputs.
fn all_sums(inputs: &mut [InputState]) -> Vec<&mut Accumulator> {
    inputs.iter_mut().flat_map(|input| &mut input.shards).map(|shard| &mut shard.sums).collect()
}

impl InputState {
    /// Packets of connections beyond the limit.
    fn untracked(&self) -> u64 {
        self.shards.iter().map(|shard| shard.untracked).sum()
    }

    /// The coverage of the input, without the counts of its shards.
    fn coverage(&self) -> Coverage {
        let (same_time, same_time_longest_run, same_time_longest_run_bytes) = self.timestamps.same_time_counts();
        Coverage {
            mirror_losses: self.mirrors.losses(),
            mirrored_frames_left_out: self.mirrors.left_out(),
            sampler_steps: self.mirrors.steps(),
            sample_sources: self.mirrors.sample_sources(),
            same_time,
            same_time_longest_run,
            same_time_longest_run_bytes,
            ..self.coverage.clone()
        }
    }

    fn count(&mut self, decoded: &DecodedBatch) {
        let counts = &decoded.counts;
        if let Some((first, last)) = counts.times_ns {
            let backwards_ns = self.last_time_ns.map_or(0, |before| before.saturating_sub(first));
            self.coverage.overlap_left_out += self.followed.shared_packets(decoded, &self.coverage, backwards_ns);
            self.coverage.time_backwards += u64::from(backwards_ns > 0);
            self.coverage.longest_backwards_ns = self.coverage.longest_backwards_ns.max(backwards_ns);
            self.last_time_ns = Some(last);
        }
        self.timestamps.join(&counts.timestamps);
        self.coverage.merge(&counts.clone().into_coverage());
    }
}

impl Shard {
    /// An empty shard. `times` asks for times between packets.
    fn new(options: &AnalysisOptions, (depth, times): (Depth, bool), file: &SpillFile) -> Self {
        Self {
            tracker: Tracker::new(depth, times, options.measures.health),
            transit_samples: None,
            sums: Accumulator::new(options.bin_ns, options.measures.sizes),
            cm: Vec::new(),
            cm_lost: 0,
            untracked: 0,
            overlap: FileOverlap::default(),
            overlap_packets: 0,
            events: Events::default(),
            connection_numbers: Vec::new(),
            path_indices: Vec::new(),
            spill: (depth >= Depth::Messages).then(|| Spill::new(file.clone())),
        }
    }

    /// A shard for these connections of several inputs that are read together. It measures no
    /// times between packets, which come from different clocks.
    pub(super) fn of_union(options: &AnalysisOptions, depth: Depth, keys: &[ConnectionKey]) -> Self {
        let mut shard = Self::new(options, (depth, false), &SpillFile::default());
        keys.iter().for_each(|key| _ = shard.tracker.add_connection(key));
        shard.tracker.close();
        shard.sums.grow(keys.len());
        shard
    }

    /// Takes a packet of an input of a union, of connection `id`.
    pub(super) fn packet_of_union(
        &mut self,
        packet: PacketRef<'_>,
        fields: PathFields,
        of: (u32, UnionInput),
        bytes: &[u8],
        ledgers: &mut UnionLedgers,
    ) {
        if let Some(seen) = ledgers.packet(&mut self.tracker, packet, of, bytes, &mut self.events) {
            self.sums.packet(packet.record, &seen);
            let path = self.sums.note_path(of.0, fields);
            if path > 0 {
                self.sums.further_path(path, packet.record, &seen);
            }
        }
    }

    pub(super) const fn sums(&mut self) -> &mut Accumulator {
        &mut self.sums
    }

    fn packets(&mut self, decoded: &DecodedBatch, shard: usize) {
        let bytes = decoded.batch.bytes.as_slice();
        let Some(Packets { keys, paths, records }) = decoded.shards.get(shard) else { return };
        self.tracker.connections(keys, &mut self.connection_numbers);
        self.sums.grow(self.tracker.tracked_connections());
        let has_further_paths = self.sums.note_paths(&self.connection_numbers, paths, &mut self.path_indices);
        let is_alone = self.overlap.is_idle();
        for records in records.chunks(PREFETCHED_PACKETS) {
            self.tracker.look_ahead(records, &self.connection_numbers, bytes);
            if !self.tracker.is_near() {
                self.sums.look_ahead(records, &self.connection_numbers);
            }
            for record in records {
                // Slots were assigned together with the keys.
                let slot = record.slot() as usize;
                let packet = PacketRef { key: &keys[slot], record };
                if !is_alone && self.overlap.is_shared(packet) {
                    self.overlap_packets += 1;
                    continue;
                }
                match self.connection_numbers[slot] {
                    Some(id) => {
                        let seen = self.tracker.packet(packet, id, bytes, &mut self.events);
                        self.sums.packet(record, &seen);
                        if has_further_paths && self.path_indices[slot] > 0 {
                            self.sums.further_path(self.path_indices[slot], record, &seen);
                        }
                    }
                    None => self.untracked += 1,
                }
                if packet.kind() == TrafficKind::Management
                    && let Some(message) = flow::connection_management(packet, bytes)
                {
                    if self.cm.len() < MAX_CM {
                        self.cm.push(message);
                    } else {
                        self.cm_lost += 1;
                    }
                }
            }
            self.take_events();
        }
    }

    pub(super) fn take_events(&mut self) {
        for (connection, start) in self.events.starts.drain(..) {
            self.sums.start(connection, start);
        }
        for (connection, message) in self.events.mpi.drain(..) {
            self.sums.message(connection, &message);
        }
        for timing in self.events.timings.drain(..) {
            self.sums.timing(&timing);
        }
        for (connection, is_first) in self.events.shares.drain(..) {
            self.sums.share(connection, is_first);
        }
        for (connection, verb, bytes) in self.events.sizes.drain(..) {
            self.sums.size(connection, verb, bytes);
        }
        for message in self.events.messages.drain(..) {
            self.spill.iter_mut().for_each(|spill| spill.push(&message));
            let Some(sample) = &mut self.transit_samples else { continue };
            let hash = self.tracker.hash(&message);
            if sample.wants(hash)
                && let Some(transit) = TransitSample::of(&message)
            {
                sample.add(hash, transit);
            }
        }
    }

    pub(super) fn finish(&mut self) -> Vec<ConnectionEnd> {
        let ends = self.tracker.finish(&mut self.events);
        self.take_events();
        self.tracker.forget();
        ends
    }

    pub(super) fn end(self, connections: Vec<ConnectionEnd>) -> ShardReadout {
        ShardReadout {
            connections,
            untracked_packets: self.untracked,
            overlap_packets: self.overlap_packets,
            overlap_left_out: self.overlap.left_out(),
            evicted: self.tracker.evicted(),
            wireups: self.tracker.wireups().to_vec(),
            connection_messages: self.tracker.connection_messages().to_vec(),
            connection_messages_left_out: self.tracker.connection_messages_left_out(),
            cts_queues: self.tracker.cts_queues().to_vec(),
            sums: self.sums,
            cm: self.cm,
            cm_lost: self.cm_lost,
            transit_samples: self.transit_samples,
            spill: self.spill,
        }
    }
}
