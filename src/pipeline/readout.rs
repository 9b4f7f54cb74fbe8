//! The readout of the trackers: the sums of each input at its end, with mirror copies, without
//! libraries or ranks.
//!
//! `conclude` makes the profile from a readout. `parts` stores it, so that `merge` can conclude
//! inputs that different runs of the program read.

use super::bounds::MemoryBounds;
use super::spill::Spill;
use crate::align::LookAlikes;
use crate::model::profile::CmRow;
use crate::model::{
    ConnectionEnd, ConnectionKey, ConnectionShare, Coverage, CtsQueue, MpiConnectionMessage, Sample, WorkerWireup,
};
use crate::reduce::{Accumulator, PartialSums, TransitSample};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// Shards of each input, by pair of endpoints. More than cores, so that uneven shards balance;
/// results do not depend on the number.
pub(super) const SHARDS: usize = ConnectionShare::MAX as usize;
/// MPI messages that all inputs together remember, about 50 bytes each, to find messages that two
/// inputs observed; and the minimum per input and shard. The pairs of a job of a few nodes lie in a
/// few shards; this is enough for all messages of such a job.
const MAX_TRANSIT_SAMPLES: usize = 1 << 19;
const MIN_TRANSIT_SAMPLES: usize = 1 << 6;

/// MPI messages that one shard of a stream remembers, by the number of streams. A single stream
/// counts as one of two, for a later merge.
pub(super) fn transit_sample_room(streams: usize) -> usize {
    (MAX_TRANSIT_SAMPLES / (streams.max(2) * SHARDS)).max(MIN_TRANSIT_SAMPLES)
}

/// The readout of all inputs, and the bounds that it was kept in.
pub(super) struct Readout {
    pub(super) inputs: Vec<InputReadout>,
    /// Unions of inputs that overlap in time and hold different packets.
    pub(super) unions: Vec<UnionReadout>,
    pub(super) bounds: MemoryBounds,
}

/// The union of some inputs. It has the connections whose packets differ between the inputs, with
/// each transmission once.
pub(super) struct UnionReadout {
    /// The inputs.
    pub(super) members: Vec<usize>,
    pub(super) readout: InputReadout,
}

/// The readout of one input.
pub(super) struct InputReadout {
    /// Counts over its records, without those of its shards. `conclude` adds the counts that follow from
    /// all inputs.
    pub(super) coverage: Coverage,
    /// Time of the first and of the last record of the input's stream, on the first input of the
    /// stream only.
    pub(super) times_ns: Option<(i64, i64)>,
    /// [`SHARDS`] shards, by pair of endpoints.
    pub(super) shards: Vec<ShardReadout>,
}

/// The readout of one shard of an input: its tracker and its sums.
#[derive(Serialize, Deserialize)]
pub(super) struct ShardReadout {
    /// Connections by number, and their sums in the same order.
    pub(super) connections: Vec<ConnectionEnd>,
    pub(super) sums: Accumulator,
    pub(super) cm: Vec<CmRow>,
    pub(super) cm_lost: u64,
    /// Packets of connections beyond the limit.
    pub(super) untracked_packets: u64,
    /// Packets that an earlier file of the stream had already.
    pub(super) overlap_packets: u64,
    /// Packets that a later file may repeat and that were not remembered.
    pub(super) overlap_left_out: u64,
    /// Messages that ibscope stopped tracking before their end, because too many were incomplete at
    /// a time.
    pub(super) evicted: u64,
    pub(super) wireups: Vec<WorkerWireup>,
    pub(super) connection_messages: Vec<MpiConnectionMessage>,
    /// Wire-up and connection messages beyond the bound.
    pub(super) connection_messages_left_out: u64,
    pub(super) cts_queues: Vec<CtsQueue>,
    /// MPI messages that other inputs may have observed too.
    pub(super) transit_samples: Option<Sample<TransitSample>>,
    /// Individual messages, if they were asked for; not stored in parts.
    #[serde(skip)]
    pub(super) spill: Option<Spill>,
}

impl InputReadout {
    /// The counts over its records and those of its shards.
    pub(super) fn whole_coverage(&self) -> Coverage {
        let mut coverage = self.coverage.clone();
        for shard in &self.shards {
            coverage.untracked_packets += shard.untracked_packets;
            coverage.overlap_packets += shard.overlap_packets;
            coverage.overlap_left_out += shard.overlap_left_out;
            coverage.connection_messages_left_out += shard.connection_messages_left_out;
        }
        coverage
    }
}

impl ShardReadout {
    /// The connections with their sums.
    pub(super) fn sums(&self) -> impl Iterator<Item = (&ConnectionKey, &PartialSums)> {
        self.connections.iter().map(|end| &end.key).zip(self.sums.partials().iter())
    }

    /// The connections by number.
    pub(super) fn keys(&self) -> Vec<ConnectionKey> {
        self.connections.iter().map(|end| end.key).collect()
    }
}

impl Readout {
    /// Adds the unions of inputs, within the bounds of all.
    pub(super) fn add_unions(&mut self, unions: Vec<UnionReadout>) {
        if unions.is_empty() {
            return;
        }
        self.unions = unions;
        let unions = self.unions.iter_mut().map(|union| &mut union.readout);
        let shards = self.inputs.iter_mut().chain(unions).flat_map(|input| input.shards.iter_mut());
        self.bounds.level(&mut shards.map(|shard| &mut shard.sums).collect::<Vec<_>>());
    }

    /// Gives inputs with the same packets the same times, so that these packets count once.
    pub(super) fn overlay(&mut self, look_alikes: &[LookAlikes]) {
        for LookAlikes { inputs: (first, second), .. } in look_alikes {
            let times_ns = self.inputs.get(*first).and_then(|input| input.times_ns);
            if let (Some(times_ns), Some(second)) = (times_ns, self.inputs.get_mut(*second)) {
                second.times_ns = second.times_ns.and(Some(times_ns));
            }
        }
    }

    /// Marks the packets of all connections of these streams, and of their unions, as uncertain. Streams
    /// are given by their first inputs.
    pub(super) fn doubt(&mut self, streams: &[usize]) {
        let inputs = self.inputs.iter_mut().enumerate().filter(|(input, _)| streams.contains(input));
        let unions = self.unions.iter_mut().filter(|union| union.members.iter().any(|member| streams.contains(member)));
        let readouts = inputs.map(|(_, input)| input).chain(unions.map(|union| &mut union.readout));
        let connections = readouts.flat_map(|readout| &mut readout.shards).flat_map(|shard| &mut shard.connections);
        connections.for_each(|end| end.continuity.uncertain = true);
    }

    /// Makes bins as wide, latencies as coarse and samples as small as if one run had read all
    /// inputs, which are `streams` streams. Changes nothing if one run did.
    pub(super) fn level(&mut self, streams: usize) {
        let room = transit_sample_room(streams);
        let shards = self.inputs.par_iter_mut().flat_map(|input| input.shards.par_iter_mut());
        shards.filter_map(|shard| shard.transit_samples.as_mut()).for_each(|sample| {
            sample.narrow(room);
            sample.sort();
        });
        let sums = self.inputs.iter_mut().flat_map(|input| input.shards.iter_mut()).map(|shard| &mut shard.sums);
        self.bounds.level(&mut sums.collect::<Vec<_>>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Sample;

    /// All inputs and shards together stay within the bound, and a full sample keeps the smallest
    /// hashes.
    #[test]
    fn transit_samples_stay_within_the_bound_and_keep_the_smallest_hashes() {
        for inputs in [1, 2, 3, 256] {
            assert!(transit_sample_room(inputs) * inputs * SHARDS <= MAX_TRANSIT_SAMPLES, "{inputs}");
        }
        assert_eq!(transit_sample_room(256), MIN_TRANSIT_SAMPLES);
        assert_eq!(transit_sample_room(257), MIN_TRANSIT_SAMPLES);
        let room = transit_sample_room(2) as u64;
        for messages in [room, room + 1] {
            let mut sample = Sample::new(transit_sample_room(2));
            (0..messages).for_each(|hash| sample.add(hash, ()));
            let (limit, kept) = sample.finish();
            assert_eq!((kept.len() as u64, limit), (room, if messages > room { room } else { u64::MAX }));
        }
    }
}
