//! Captures -> profile.

use super::admission::admit;
use super::align::{self, Read, Transits};
use super::bounds::Bounds;
use super::conclude::{Finished, conclude};
use super::merge;
use super::parts::{self, Head, Rest};
use super::readout::{InputReadout, Readout, SHARDS, ShardReadout, drawn_room};
use super::seam::Seam;
use super::spares::Spares;
use super::spill::{Spill, SpillFile};
use super::{Error, Options, cut, decode_options, pool};
use crate::align::Sights;
use crate::decode::{self, Decoded};
use crate::flow::{self, Depth, Events, Tracker};
use crate::input::{self, Capture, Ending, Feed, Piece, SourceOptions};
use crate::model::profile::{CmRow, Input};
use crate::model::{ConnectionEnd, Coverage, Kind, Live, Packet, Packets, Profile, Sample, Stamps};
use crate::reduce::{self, Accumulator, Passage};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Batches of a round per worker thread: enough that the end of a round, where workers wait for each other, is seldom.
pub(super) const BATCHES_PER_THREAD: usize = 2;
/// Packets that are looked up at a time: as many as a processor has loads under way, some times over.
const AHEAD: usize = 64;
/// Connection management messages that are kept per input and shard.
const MAX_CM: usize = 1 << 16;
/// Interfaces of an input whose drops are counted; a broken capture may name any number of them.
const MAX_INTERFACES: usize = 1 << 12;

/// Analyses captures. `progress` is told the bytes read so far, now and then.
pub fn analyze(paths: &[PathBuf], options: &Options, progress: &(dyn Fn(u64) + Sync)) -> Result<Profile, Error> {
    let depth = if options.read_mpi { Depth::Envelopes } else { Depth::Packets };
    run(paths, options, depth, progress).map(|finished| finished.profile)
}

/// Analyses captures to a depth.
pub(super) fn run(
    paths: &[PathBuf],
    options: &Options,
    depth: Depth,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Finished, Error> {
    let bytes_read = Arc::new(AtomicU64::new(0));
    let source = SourceOptions {
        xxh3: options.xxh3,
        sha256: options.sha256,
        bytes_read: Arc::clone(&bytes_read),
        stop: options.stop.clone(),
        max_decompressed_bytes: options.max_decompressed_bytes,
    };
    let is_stopped = || options.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed));
    let captures = match input::open(paths, &source) {
        Err(_) if is_stopped() => return Err(Error::Interrupted),
        opened => opened?,
    };
    let pool = pool(options.threads)?;
    let batches_per_round = pool.current_num_threads() * BATCHES_PER_THREAD;
    let report = || progress(bytes_read.load(Ordering::Relaxed));
    let Read { aligned, sights, streams, starts_ns } = match align::align(paths, options, &pool, &source, &report) {
        // Of what has come through pipes nothing is lost.
        _ if is_stopped() && paths.iter().any(|path| align::is_file(path)) => return Err(Error::Interrupted),
        aligned => aligned?,
    };
    let decode = decode_options(&captures, options, aligned.clocks.clone());
    let window_ns = (decode.from_ns, decode.to_ns);
    let mut inputs: Vec<Input> = captures.iter().map(describe).collect();
    for (input, row) in inputs.iter_mut().zip(&aligned.rows) {
        input.clock.clone_from(row);
    }
    let mut analysis = Analysis::new(inputs.len(), options, depth);
    analysis.sights = align::drawn_meanwhile(paths, options).then(|| Sights::new(1));
    let mut endings: Vec<Ending> = vec![Ending::default(); inputs.len()];
    let mut captures: Vec<Option<Capture>> = captures.into_iter().map(Some).collect();
    // The first files of all streams together, then their second ones.
    for turn in 0..streams.iter().map(Vec::len).max().unwrap_or(0) {
        let read: Vec<usize> = streams.iter().filter_map(|stream| stream.get(turn).copied()).collect();
        let now = read.iter().filter_map(|input| captures[*input].take());
        let now: Vec<Capture> = now.enumerate().map(|(place, capture)| capture.at(place)).collect();
        let decode = decode.of(&read);
        analysis.read(read.clone(), &streams, &starts_ns, turn);
        let mut feed = Feed::start(now, batches_per_round).map_err(Error::Threads)?;
        pool.install(|| {
            let mut decoded: Vec<Decoded> = Vec::new();
            loop {
                let pieces = feed.next(batches_per_round);
                if pieces.is_empty() && decoded.is_empty() {
                    break;
                }
                analysis.step(pieces, &mut decoded, &decode, &mut feed);
                report();
            }
        });
        read.iter().zip(feed.finish()).for_each(|(input, ending)| endings[*input] = ending);
    }
    let mut notes = align::notes(&inputs, &aligned, &align::streams(paths, options), options);
    let mut ending_notes = Vec::new();
    for (input, ending) in inputs.iter_mut().zip(endings) {
        input.length_bytes = ending.digests.length_bytes;
        input.xxh3_128 = ending.digests.xxh3_128;
        input.sha256 = ending.digests.sha256;
        input.interrupted = ending.interrupted;
        notes.extend(ending.note.iter().map(|note| format!("{}: {note}", input.name)));
        ending_notes.push(ending.note);
    }
    let drawn_meanwhile = analysis.sights.take();
    pool.install(|| {
        let mut readout = analysis.end();
        let parts = options.keep_parts.then(|| {
            readout.level();
            let mut rests: Vec<Rest> = Vec::new();
            let origins = paths.iter().zip(&aligned.clocks).zip(sights).zip(ending_notes);
            for (((path, clock), sights), note) in origins {
                rests.push(Rest {
                    note,
                    clock: *clock,
                    given: options.clocks.get(path).copied(),
                    found: merge::found(path, options),
                    is_stream: !align::is_file(path),
                    // One input is not read twice for this.
                    sights: sights.or_else(|| drawn_meanwhile.clone()),
                });
            }
            parts::level(&mut rests);
            parts::write(&Head::new(&inputs, options), &rests, &readout)
        });
        let transits = align::transits(aligned, options, window_ns);
        let is_cut = inputs.iter().any(|input| input.interrupted);
        let mut finished = match conclude(readout, inputs, notes, transits, options) {
            Err(Error::NoInfiniband { .. }) if is_cut => return Err(Error::Interrupted),
            finished => finished?,
        };
        finished.profile.parts = parts.transpose()?;
        Ok(finished)
    })
}

fn describe(capture: &Capture) -> Input {
    input(capture.path(), capture.format())
}

/// An input of which nothing is counted yet.
pub(super) fn input(path: &Path, format: &str) -> Input {
    Input {
        name: path.display().to_string(),
        length_bytes: 0,
        xxh3_128: String::new(),
        sha256: None,
        format: format.to_owned(),
        pairs_seen_once: 0,
        pairs_seen_twice: 0,
        clock: None,
        interrupted: false,
        coverage: Coverage::default(),
    }
}

/// Counts over an input, and over its stream.
type Coverages = (Coverage, Coverage);

/// State of a running analysis.
pub(super) struct Analysis {
    inputs: Vec<InputState>,
    /// By input: the first one of its stream, whose state all of them share.
    first_of_stream: Vec<usize>,
    /// The inputs that are read now: batches name them by their place in this list.
    now: Vec<usize>,
    bounds: Bounds,
    max_connections: usize,
    /// The packets of a single input by which its clock can be held against that of others later, where they are asked for.
    sights: Option<Sights>,
    spares: Spares,
}

struct InputState {
    shards: Vec<Shard>,
    coverage: Coverage,
    last_time_ns: Option<i64>,
    stamps: Stamps,
    /// Drops by interface: the counters run up, so the largest is the last.
    drops: BTreeMap<u32, u64>,
}

struct Shard {
    tracker: Tracker,
    sums: Accumulator,
    cm: Vec<CmRow>,
    cm_lost: u64,
    /// Packets of connections that are not followed.
    not_followed: u64,
    /// What later files of the stream may hold too, and the packets that they did.
    seam: Seam,
    shared: u64,
    /// What the packets have just shown, and the numbers of the connections that a batch has, `None` where there is no room: here so that their memory is used again.
    events: Events,
    known: Vec<Option<u32>>,
    /// Single messages, where they are asked for.
    spill: Option<Spill>,
    /// MPI messages that other inputs may have seen too.
    drawn: Option<Sample<Passage>>,
}

impl Analysis {
    pub(super) fn new(inputs: usize, options: &Options, depth: Depth) -> Self {
        let file = SpillFile::default();
        let draws = (inputs > 1 || options.keep_parts) && options.read_times && depth >= Depth::Envelopes;
        let room = drawn_room(inputs);
        let tracker = || {
            let mut tracker = Tracker::new(depth, options.read_times, options.read_health);
            if draws {
                tracker.give_messages();
            }
            tracker
        };
        let shard = || Shard {
            tracker: tracker(),
            drawn: draws.then(|| Sample::new(room)),
            sums: Accumulator::new(options.bin_ns, options.read_sizes),
            cm: Vec::new(),
            cm_lost: 0,
            not_followed: 0,
            seam: Seam::default(),
            shared: 0,
            events: Events::default(),
            known: Vec::new(),
            spill: (depth >= Depth::Messages).then(|| Spill::new(file.clone())),
        };
        let input = || InputState {
            shards: (0..SHARDS).map(|_| shard()).collect(),
            coverage: Coverage::default(),
            last_time_ns: None,
            stamps: Stamps::default(),
            drops: BTreeMap::new(),
        };
        Self {
            inputs: (0..inputs).map(|_| input()).collect(),
            first_of_stream: (0..inputs).collect(),
            now: (0..inputs).collect(),
            bounds: Bounds::new(options),
            max_connections: options.max_connections,
            sights: None,
            spares: Spares::default(),
        }
    }

    /// These inputs are read next: the one of this turn of each stream. `starts_ns`: where inputs begin.
    fn read(&mut self, inputs: Vec<usize>, streams: &[Vec<usize>], starts_ns: &[Option<i64>], turn: usize) {
        for stream in streams {
            stream.iter().for_each(|input| self.first_of_stream[*input] = stream[0]);
            let behind = stream.get(turn + 1..).unwrap_or_default();
            let from_ns = behind.iter().filter_map(|input| starts_ns[*input]).min();
            self.inputs[stream[0]].shards.iter_mut().for_each(|shard| shard.seam.turn(from_ns));
        }
        self.now = inputs;
    }

    /// One round: these pieces are cut and decoded while the packets of those of the round before go on their way.
    pub(super) fn step(
        &mut self,
        pieces: Vec<Piece>,
        decoded: &mut Vec<Decoded>,
        options: &decode::Options,
        feed: &mut Feed,
    ) {
        let (sights, spares) = (self.sights.take(), std::mem::take(&mut self.spares));
        let decode = |batch| {
            let decoded = decode::decode(batch, options, spares.take());
            let drawn = sights.as_ref().map(|sights| sights.draw(decoded.shards.iter().flat_map(Packets::iter)));
            (decoded, drawn)
        };
        let digest = |feed: &mut Feed| feed.digest(decoded.iter().map(|decoded| &decoded.batch));
        let (next, _) = rayon::join(|| cut(pieces, decode), || rayon::join(|| self.round(decoded), || digest(feed)));
        (self.sights, self.spares) = (sights, spares);
        for used in decoded.drain(..) {
            self.recycle(used, feed);
        }
        for (mut piece, receipt) in next {
            let counts = feed.settle(receipt, piece.iter_mut().map(|(decoded, _)| &mut decoded.batch));
            for (own, drawn) in piece {
                if !counts {
                    self.recycle(own, feed);
                    continue;
                }
                if let (Some(sights), Some(drawn)) = (&mut self.sights, drawn) {
                    sights.add(drawn);
                }
                decoded.push(own);
            }
        }
    }

    /// Keeps what is used again of a batch.
    fn recycle(&self, used: Decoded, feed: &Feed) {
        feed.recycle(used.batch.bytes);
        self.spares.give(used.shards);
    }

    /// What the first input has shown so far.
    pub(super) fn live(&self) -> Live {
        let Some(input) = self.inputs.first() else { return Live::default() };
        let shards = input.shards.iter();
        let connections: Vec<_> =
            shards.flat_map(|shard| shard.tracker.keys().zip(shard.sums.partials().iter())).collect();
        let mut live = reduce::live(&connections);
        let mirror_copies = std::mem::replace(&mut live.coverage, input.coverage.clone()).mirror_copies;
        live.coverage.mirror_copies = mirror_copies;
        live.coverage.interface_drops = input.dropped();
        live.coverage.not_followed = input.not_followed();
        live
    }

    /// Takes the packets of some batches. Those of one input are in file order.
    fn round(&mut self, decoded: &[Decoded]) {
        let Self { inputs, first_of_stream, now, max_connections, .. } = self;
        let input_of = |decoded: &Decoded| now[decoded.batch.input as usize];
        inputs.par_iter_mut().enumerate().for_each(|(index, input)| {
            decoded.iter().filter(|decoded| input_of(decoded) == index).for_each(|decoded| input.count(decoded));
            let own: Vec<&Decoded> =
                decoded.iter().filter(|decoded| first_of_stream[input_of(decoded)] == index).collect();
            if own.is_empty() {
                return;
            }
            let mut trackers: Vec<&mut Tracker> = input.shards.iter_mut().map(|shard| &mut shard.tracker).collect();
            admit(&mut trackers, &own, *max_connections);
            input.shards.par_iter_mut().enumerate().for_each(|(shard, state)| {
                for decoded in &own {
                    state.packets(decoded, shard);
                }
            });
        });
        self.bound();
    }

    fn bound(&mut self) {
        let shards = self.inputs.iter_mut().flat_map(|input| input.shards.iter_mut());
        self.bounds.hold(&mut shards.map(|shard| &mut shard.sums).collect::<Vec<_>>());
    }

    /// Ends the analysis: `inputs` are what was read, `notes` what is to be said of them already.
    pub(super) fn finish(
        self,
        inputs: Vec<Input>,
        notes: Vec<String>,
        transits: Vec<Transits>,
        options: &Options,
    ) -> Result<Finished, Error> {
        conclude(self.end(), inputs, notes, transits, options)
    }

    /// Reads out the trackers of all inputs.
    pub(super) fn end(mut self) -> Readout {
        let ends: Vec<Vec<Vec<ConnectionEnd>>> =
            self.inputs.par_iter_mut().map(|input| input.shards.par_iter_mut().map(Shard::finish).collect()).collect();
        // The last messages may have added cells, and the last round left some that join: the width must not depend on where rounds ended.
        self.bound();
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
        Readout { inputs, bounds: self.bounds }
    }
}

impl InputState {
    /// Packets that the capturing interfaces have dropped.
    fn dropped(&self) -> u64 {
        self.drops.values().fold(0, |sum: u64, drops| sum.saturating_add(*drops))
    }

    /// Packets of connections for which there was no room.
    fn not_followed(&self) -> u64 {
        self.shards.iter().map(|shard| shard.not_followed).sum()
    }

    /// Packets that a file held which a file before it had already.
    fn shared(&self) -> u64 {
        self.shards.iter().map(|shard| shard.shared).sum()
    }

    /// Packets that files after theirs may hold too, and that are not remembered.
    fn seam_left_out(&self) -> u64 {
        self.shards.iter().map(|shard| shard.seam.left_out()).sum()
    }

    /// All that is known of what was read.
    fn coverage(&self) -> Coverage {
        let (same_time, same_time_most, same_time_most_bytes) = self.stamps.together();
        let interface_drops = self.dropped();
        let not_followed = self.not_followed();
        let shared_packets = self.shared();
        let seam_left_out = self.seam_left_out();
        Coverage {
            interface_drops,
            not_followed,
            shared_packets,
            seam_left_out,
            same_time,
            same_time_most,
            same_time_most_bytes,
            ..self.coverage.clone()
        }
    }

    fn count(&mut self, decoded: &Decoded) {
        let counts = &decoded.counts;
        for statistics in &counts.statistics {
            let dropped = statistics.if_dropped.unwrap_or(0).saturating_add(statistics.os_dropped.unwrap_or(0));
            if self.drops.len() < MAX_INTERFACES || self.drops.contains_key(&statistics.interface) {
                let seen = self.drops.entry(statistics.interface).or_default();
                *seen = (*seen).max(dropped);
            } else {
                self.coverage.statistics_left_out += 1;
            }
        }
        if let Some((first, last)) = counts.times_ns {
            self.coverage.time_backwards += u64::from(self.last_time_ns.is_some_and(|before| first < before));
            self.last_time_ns = Some(last);
        }
        self.stamps.join(&counts.stamps);
        self.coverage.merge(&counts.clone().into_coverage());
    }
}

impl Shard {
    fn packets(&mut self, decoded: &Decoded, shard: usize) {
        let bytes = decoded.batch.bytes.as_slice();
        let Some(Packets { keys, records }) = decoded.shards.get(shard) else { return };
        self.tracker.connections(keys, &mut self.known);
        self.sums.grow(self.tracker.followed());
        let is_alone = self.seam.is_idle();
        for records in records.chunks(AHEAD) {
            self.tracker.look_ahead(records, &self.known, bytes);
            if !self.tracker.is_near() {
                self.sums.look_ahead(records, &self.known);
            }
            for record in records {
                // Slots were given together with the keys.
                let slot = record.slot() as usize;
                let packet = Packet { key: &keys[slot], record };
                if !is_alone && self.seam.is_shared(packet) {
                    self.shared += 1;
                    continue;
                }
                match self.known[slot] {
                    Some(id) => {
                        let seen = self.tracker.packet(packet, id, bytes, &mut self.events);
                        self.sums.packet(record, &seen);
                    }
                    None => self.not_followed += 1,
                }
                if packet.kind() == Kind::Management
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

    fn take_events(&mut self) {
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
            let Some(drawn) = &mut self.drawn else { continue };
            let hash = self.tracker.hash(&message);
            if drawn.wants(hash)
                && let Some(passage) = Passage::of(&message)
            {
                drawn.add(hash, passage);
            }
        }
    }

    fn finish(&mut self) -> Vec<ConnectionEnd> {
        let ends = self.tracker.finish(&mut self.events);
        self.take_events();
        self.tracker.forget();
        ends
    }

    fn end(self, connections: Vec<ConnectionEnd>) -> ShardReadout {
        ShardReadout {
            connections,
            evicted: self.tracker.evicted(),
            wireups: self.tracker.wireups().to_vec(),
            introductions: self.tracker.introductions().to_vec(),
            introductions_left_out: self.tracker.introductions_left_out(),
            cts_queues: self.tracker.cts_queues().to_vec(),
            sums: self.sums,
            cm: self.cm,
            cm_lost: self.cm_lost,
            drawn: self.drawn,
            spill: self.spill,
        }
    }
}
