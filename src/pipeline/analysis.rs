//! Captures -> profile.

use super::align::{self, Transits};
use super::bounds::Bounds;
use super::fill::fill;
use super::spill::{Spill, SpillFile};
use super::{Error, Options, decode_options, pool};
use crate::decode::{self, Decoded};
use crate::flow::{self, ConnectionEnd, Depth, Events, Tracker};
use crate::input::{self, Capture, Readers, SourceOptions};
use crate::model::profile::{CmRow, Input};
use crate::model::{Batch, ConnectionKey, Coverage, Kind, Live, Marks, Profile, Sample, Stamps};
use crate::ranks::{self, Belief, Witnesses};
use crate::reduce::{self, Accumulator, Drawn, Ending, InputPartial, Passage, Untimed};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Parts into which the traffic of an input is dealt. More than cores, so that uneven parts even out; results do not
/// depend on it.
const SHARDS: usize = 32;
/// Batches of a round per worker thread: enough that the end of a round, where workers wait for each other, is seldom.
pub(super) const BATCHES_PER_THREAD: usize = 4;
/// Packets that are looked up at a time: as many as a processor has loads under way, some times over.
const AHEAD: usize = 64;
/// Connection management messages that are kept per input and shard.
const MAX_CM: usize = 1 << 16;
/// Interfaces of an input whose drops are counted; a broken capture may name any number of them.
const MAX_INTERFACES: usize = 1 << 12;
/// MPI messages that all inputs together remember, some 50 bytes each, to find those that two of them have seen; and fewest of an input and shard.
const MAX_DRAWN: usize = 1 << 17;
const FEWEST_DRAWN: usize = 1 << 6;

/// Analyses captures. `progress` is told the bytes read so far, now and then.
pub fn analyze(paths: &[PathBuf], options: &Options, progress: &(dyn Fn(u64) + Sync)) -> Result<Profile, Error> {
    let depth = if options.read_mpi { Depth::Envelopes } else { Depth::Packets };
    run(paths, options, depth, progress).map(|finished| finished.profile)
}

/// An analysis that has seen everything.
pub(super) struct Finished {
    pub(super) profile: Profile,
    pub(super) belief: Belief,
    /// Single messages, where they were asked for, and the row of each connection that counts by its number in them.
    pub(super) spills: Vec<(Vec<Option<u32>>, Spill)>,
}

/// Analyses captures to a depth.
pub(super) fn run(
    paths: &[PathBuf],
    options: &Options,
    depth: Depth,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Finished, Error> {
    let bytes_read = Arc::new(AtomicU64::new(0));
    let source = SourceOptions { xxh3: options.xxh3, sha256: options.sha256, bytes_read: Arc::clone(&bytes_read) };
    let captures = input::open(paths, &source)?;
    let pool = pool(options.threads)?;
    let batches_per_round = pool.current_num_threads() * BATCHES_PER_THREAD;
    let report = || progress(bytes_read.load(Ordering::Relaxed));
    let aligned = align::align(paths, options, &pool, &source, &report)?;
    let decode = decode_options(&captures, options, aligned.clocks.clone());
    let window_ns = (decode.from_ns, decode.to_ns);
    let mut inputs: Vec<Input> = captures.iter().map(describe).collect();
    for (input, row) in inputs.iter_mut().zip(&aligned.rows) {
        input.clock.clone_from(row);
    }
    let readers = Readers::start(captures, batches_per_round);
    let mut analysis = Analysis::new(inputs.len(), options, depth);
    pool.install(|| {
        let mut decoded: Vec<Decoded> = Vec::new();
        loop {
            let batches = readers.next(batches_per_round);
            if batches.is_empty() && decoded.is_empty() {
                break;
            }
            analysis.step(batches, &mut decoded, &decode, &readers);
            report();
        }
    });
    let mut notes = align::notes(&inputs, &aligned, paths, options);
    for (input, ending) in inputs.iter_mut().zip(readers.finish()) {
        input.length_bytes = ending.digests.length_bytes;
        input.xxh3_128 = ending.digests.xxh3_128;
        input.sha256 = ending.digests.sha256;
        notes.extend(ending.note.map(|note| format!("{}: {note}", input.name)));
    }
    let transits = align::transits(aligned, options, window_ns);
    pool.install(|| analysis.finish(inputs, notes, transits, options))
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
        coverage: Coverage::default(),
    }
}

/// State of a running analysis.
pub(super) struct Analysis {
    inputs: Vec<InputState>,
    bounds: Bounds,
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
    /// What the packets have just shown, and the connections of the next: here so that their memory is used again.
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
        let draws = inputs > 1 && options.read_times && depth >= Depth::Envelopes;
        let room = (MAX_DRAWN / (inputs.max(1) * SHARDS)).max(FEWEST_DRAWN);
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
        Self { inputs: (0..inputs).map(|_| input()).collect(), bounds: Bounds::new(options) }
    }

    /// One round: these batches are decoded while the packets of those of the round before go on their way.
    pub(super) fn step(
        &mut self,
        batches: Vec<Batch>,
        decoded: &mut Vec<Decoded>,
        options: &decode::Options,
        readers: &Readers,
    ) {
        let (next, ()) = rayon::join(
            || batches.into_par_iter().map(|batch| decode::decode(batch, options, SHARDS)).collect::<Vec<_>>(),
            || self.round(decoded),
        );
        for used in std::mem::replace(decoded, next) {
            readers.recycle(used.batch.bytes);
        }
    }

    /// What the first input has shown so far.
    pub(super) fn live(&self) -> Live {
        let Some(input) = self.inputs.first() else { return Live::default() };
        let keys: Vec<_> = input.shards.par_iter().map(|shard| shard.tracker.keys()).collect();
        let shards = input.shards.iter().zip(keys);
        let connections: Vec<_> =
            shards.flat_map(|(shard, keys)| keys.into_iter().map(|(_, key)| key).zip(shard.sums.partials())).collect();
        let mut live = reduce::live(&connections);
        let mirror_copies = std::mem::replace(&mut live.coverage, input.coverage.clone()).mirror_copies;
        live.coverage.mirror_copies = mirror_copies;
        live.coverage.interface_drops = input.dropped();
        live
    }

    /// Takes the packets of some batches. Those of one input are in file order.
    fn round(&mut self, decoded: &[Decoded]) {
        self.inputs.par_iter_mut().enumerate().for_each(|(index, input)| {
            let own = || decoded.iter().filter(move |decoded| decoded.batch.input as usize == index);
            if own().next().is_none() {
                return;
            }
            input.shards.par_iter_mut().enumerate().for_each(|(shard, state)| {
                for decoded in own() {
                    state.packets(decoded, shard);
                }
            });
            own().for_each(|decoded| input.count(decoded));
        });
        self.bound();
    }

    fn bound(&mut self) {
        let shards = self.inputs.iter_mut().flat_map(|input| input.shards.iter_mut());
        self.bounds.hold(&mut shards.map(|shard| &mut shard.sums).collect::<Vec<_>>());
    }

    pub(super) fn finish(
        mut self,
        mut inputs: Vec<Input>,
        mut notes: Vec<String>,
        transits: Vec<Transits>,
        options: &Options,
    ) -> Result<Finished, Error> {
        let ends: Vec<Vec<Vec<ConnectionEnd>>> =
            self.inputs.par_iter_mut().map(|input| input.shards.par_iter_mut().map(Shard::finish).collect()).collect();
        // The last messages may have added cells, and the last round left some that join: the width must not depend on where rounds ended.
        self.bound();
        let mut coverage = Coverage::default();
        let mut cm = Vec::new();
        let mut cm_lost = 0;
        let (mut wireups, mut introductions) = (Vec::new(), Vec::new());
        let mut partials = Vec::new();
        let mut spills: Vec<(usize, Vec<ConnectionKey>, Spill)> = Vec::new();
        let mut drawn: Vec<Vec<Drawn>> = (0..SHARDS).map(|_| Vec::new()).collect();
        for (index, ((state, input), ends)) in self.inputs.into_iter().zip(&mut inputs).zip(ends).enumerate() {
            input.coverage = state.coverage.clone();
            input.coverage.interface_drops = state.dropped();
            let (same_time, most, most_bytes) = state.stamps.together();
            input.coverage.same_time = same_time;
            input.coverage.same_time_most = most;
            input.coverage.same_time_most_bytes = most_bytes;
            // Some adapters do not keep the VCRC of what they mirror; it says nothing then.
            let keeps_vcrc = input.coverage.vcrc_ok >= input.coverage.vcrc_bad;
            if !keeps_vcrc {
                let (vcrc_ok, vcrc_bad) = (&mut input.coverage.vcrc_ok, &mut input.coverage.vcrc_bad);
                notes.push(format!(
                    "{}: the VCRC of {vcrc_bad} of {} packets does not fit: it was not kept by what mirrored or captured them, and is not counted",
                    input.name,
                    *vcrc_ok + *vcrc_bad
                ));
                (*vcrc_ok, *vcrc_bad) = (0, 0);
            }
            let mut partial = InputPartial {
                times_ns: input.coverage.first_time_ns.zip(input.coverage.last_time_ns),
                connections: BTreeMap::new(),
            };
            for ((shard, ends), drawn) in state.shards.into_iter().zip(ends).zip(&mut drawn) {
                let keys = || ends.iter().map(|end| end.key).collect();
                drawn.extend(shard.drawn.map(|sample| Drawn { input: index, keys: keys(), sample }));
                cm.extend(shard.cm);
                cm_lost += shard.cm_lost;
                coverage.messages_evicted += shard.tracker.evicted();
                wireups.extend_from_slice(shard.tracker.wireups());
                introductions.extend_from_slice(shard.tracker.introductions());
                spills.extend(shard.spill.map(|spill| (index, keys(), spill)));
                for (end, sums) in ends.into_iter().zip(shard.sums.finish()) {
                    let ConnectionEnd { key, missing, overflowed, partners, mut health } = end;
                    if !keeps_vcrc {
                        health.forget(Marks::VCRC_BAD);
                    }
                    partial.connections.insert(key, (sums, Ending { missing, overflowed, partners, health }));
                }
            }
            partials.push(partial);
        }
        let mut settled = reduce::settle(partials);
        align::add(&mut settled.connections, transits);
        let mut untimed = Untimed::default();
        for drawn in drawn {
            let shard = settled.join(drawn);
            untimed.unclear += shard.unclear;
            untimed.backwards += shard.backwards;
        }
        for (input, copies) in inputs.iter_mut().zip(&settled.inputs) {
            input.coverage.mirror_copies = copies.mirror_copies;
            input.coverage.missing_packets = copies.missing_packets;
            input.pairs_seen_once = copies.pairs_seen_once;
            input.pairs_seen_twice = copies.pairs_seen_twice;
            coverage.merge(&input.coverage);
        }
        coverage.window_overflows = settled.window_overflows;
        if coverage.infiniband == 0 && coverage.outside_window == 0 {
            return Err(no_infiniband(&coverage));
        }
        notes.extend(self.bounds.notes());
        if settled.continued > 0 {
            notes.push(format!(
                "{} connections go on from one input to the next: a message that lies across the end of a file is incomplete, and a packet that \
                 is sent again after it counts as new",
                settled.continued
            ));
        }
        if settled.left_out > 0 {
            notes.push(format!(
                "the inputs overlap in part: of {} connections only the input with most of their packets counts, and packets that another one \
                 alone holds do not",
                settled.left_out
            ));
        }
        if untimed.unclear + untimed.backwards > 0 {
            notes.push(format!(
                "of {} MPI messages that two inputs have seen it cannot be told how long they took: the clocks of the inputs differ by more than that",
                untimed.unclear + untimed.backwards
            ));
        }
        if cm_lost > 0 {
            notes.push(format!("{cm_lost} connection management messages were counted and not kept"));
        }
        cm.sort_by_key(cm_order);
        // Copies of one message, from mirrors and from several inputs, differ in time only.
        cm.dedup_by(|a, b| cm_identity(a) == cm_identity(b));
        cm.sort_by_key(|row| row.time_ns);
        let named = ranks::named(&settled.connections, &wireups);
        let witnesses = Witnesses {
            connections: &settled.connections,
            cm: &cm,
            wireups: &wireups,
            named: &named,
            introductions: &introductions,
        };
        let paired = ranks::pair(&witnesses);
        let belief = ranks::believe(&witnesses, &paired);
        for connection in &settled.connections {
            let missing = connection.missing;
            coverage.messages_with_gaps += missing.with_gaps;
            coverage.messages_without_start += missing.without_start;
            coverage.messages_evicted += missing.evicted;
            // What looks like MPI and is not believed has lost no MPI message.
            if belief.form(&connection.key).is_some() {
                coverage.mpi_incomplete += missing.mpi_incomplete;
                coverage.mpi_cut += missing.mpi_cut;
            }
        }
        let (learnt, unsettled) = ranks::learn(&witnesses, &belief, &paired);
        let (ranks, unsettled) = match &options.rankmap {
            Some(rankmap) => (rankmap.clone(), Vec::new()),
            None => (learnt, unsettled),
        };
        notes.extend(unsettled);
        let (bin_ns, latency_bin_ns) = self.bounds.bins_ns();
        let mut profile = Profile {
            inputs,
            coverage,
            notes,
            bin_ns,
            latency_bin_ns,
            mpi_read: options.read_mpi,
            times_read: options.read_mpi && options.read_times,
            names: options.names.clone(),
            leaves: options.leaves.clone(),
            ibscope: env!("CARGO_PKG_VERSION").to_owned(),
            ranks,
            cm,
            ..Profile::default()
        };
        fill(&mut profile, &mut settled.connections, &belief, &paired);
        let row = |input: usize, key: &ConnectionKey| {
            let index = settled.connections.binary_search_by_key(key, |connection| connection.key).ok()?;
            settled.connections[index].inputs.contains(&(input as u32)).then_some(index as u32)
        };
        let spills = spills
            .into_iter()
            .map(|(input, keys, spill)| (keys.iter().map(|key| row(input, key)).collect(), spill))
            .collect();
        Ok(Finished { profile, belief, spills })
    }
}

impl InputState {
    /// Packets that the capturing interfaces have dropped.
    fn dropped(&self) -> u64 {
        self.drops.values().fold(0, |sum: u64, drops| sum.saturating_add(*drops))
    }

    fn count(&mut self, decoded: &Decoded) {
        let counts = &decoded.counts;
        for statistics in &counts.statistics {
            let dropped = statistics.if_dropped.unwrap_or(0).saturating_add(statistics.os_dropped.unwrap_or(0));
            if self.drops.len() < MAX_INTERFACES || self.drops.contains_key(&statistics.interface) {
                let seen = self.drops.entry(statistics.interface).or_default();
                *seen = (*seen).max(dropped);
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
        let packets = decoded.shards.get(shard).map_or(&[][..], Vec::as_slice);
        for packets in packets.chunks(AHEAD) {
            self.tracker.look_ahead(packets, bytes, &mut self.known);
            self.sums.look_ahead(&self.known);
            for (packet, known) in packets.iter().zip(&self.known) {
                let seen = self.tracker.packet(packet, *known, bytes, &mut self.events);
                self.sums.packet(packet, &seen);
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
        ends
    }
}

fn cm_identity(row: &CmRow) -> impl PartialEq + use<> {
    (row.src, row.dst, row.message.clone(), row.local_comm_id, row.remote_comm_id)
}

fn cm_order(row: &CmRow) -> impl Ord + use<> {
    (row.src, row.dst, row.local_comm_id, row.remote_comm_id, row.message.clone(), row.time_ns)
}

fn no_infiniband(coverage: &Coverage) -> Error {
    let kinds = coverage.other_frames.iter().chain(&coverage.undecoded);
    let found: Vec<String> = kinds.map(|(name, count)| format!("{count} x {name}")).collect();
    let advice = if coverage.failed() > 0 {
        "the records are too short or damaged: capture at least 64 bytes of each packet"
    } else {
        "was the capture made on an InfiniBand port with ibdump, or on a RoCE port with UDP port 4791 in it?"
    };
    Error::NoInfiniband { records: coverage.records, found: found.join(", "), advice }
}
