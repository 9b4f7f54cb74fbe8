//! The readout of the trackers: the sums of each input at its end, with mirror copies, without libraries or ranks.
//!
//! `conclude` makes the profile of it. `parts` writes it to disk, so that `merge` can conclude inputs that different
//! runs of the program read.

use super::bounds::Bounds;
use super::spill::Spill;
use crate::model::profile::CmRow;
use crate::model::{ConnectionEnd, ConnectionKey, Coverage, CtsQueue, Introduction, Sample, Wireup};
use crate::reduce::{Accumulator, Partial, Passage};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// Parts into which the traffic of an input is dealt. More than cores, so that uneven parts even out; results do not
/// depend on it.
pub(super) const SHARDS: usize = 32;
/// MPI messages that all inputs together remember, some 50 bytes each, to find those that two of them have seen; and fewest of an input and shard. A job of
/// a few nodes has its pairs in a few shards: this is enough for all messages of such a job, however its addresses deal them.
const MAX_DRAWN: usize = 1 << 19;
const FEWEST_DRAWN: usize = 1 << 6;

/// MPI messages that one shard of one of so many inputs remembers. A single input draws as one of two, for those that may join it.
pub(super) fn drawn_room(inputs: usize) -> usize {
    (MAX_DRAWN / (inputs.max(2) * SHARDS)).max(FEWEST_DRAWN)
}

/// All inputs.
pub(super) struct Readout {
    pub(super) inputs: Vec<InputReadout>,
    pub(super) bounds: Bounds,
}

/// One input.
pub(super) struct InputReadout {
    /// Counts over its records; `conclude` adds those that follow from all inputs.
    pub(super) coverage: Coverage,
    /// Time of the first and of the last record of its stream; of the first input of a stream alone.
    pub(super) times_ns: Option<(i64, i64)>,
    /// As many for each input, by the pairs of endpoints that they hold.
    pub(super) shards: Vec<ShardReadout>,
}

/// One tracker of an input.
#[derive(Serialize, Deserialize)]
pub(super) struct ShardReadout {
    /// Its connections by number, and their sums in the same order.
    pub(super) connections: Vec<ConnectionEnd>,
    pub(super) sums: Accumulator,
    pub(super) cm: Vec<CmRow>,
    pub(super) cm_lost: u64,
    /// Messages that were given up because too many were open.
    pub(super) evicted: u64,
    pub(super) wireups: Vec<Wireup>,
    pub(super) introductions: Vec<Introduction>,
    /// Wire-up messages and introductions that were not kept.
    pub(super) introductions_left_out: u64,
    pub(super) cts_queues: Vec<CtsQueue>,
    /// MPI messages that other inputs may have seen too.
    pub(super) drawn: Option<Sample<Passage>>,
    /// Single messages, where they were asked for: they are not written down.
    #[serde(skip)]
    pub(super) spill: Option<Spill>,
}

impl ShardReadout {
    /// Its connections with their sums.
    pub(super) fn sums(&self) -> impl Iterator<Item = (&ConnectionKey, &Partial)> {
        self.connections.iter().map(|end| &end.key).zip(self.sums.partials().iter())
    }

    /// The connections by number.
    pub(super) fn keys(&self) -> Vec<ConnectionKey> {
        self.connections.iter().map(|end| end.key).collect()
    }
}

impl Readout {
    /// Makes bins as wide, times as coarse and samples as large as if one run had read all inputs. It changes nothing
    /// where one run did.
    pub(super) fn level(&mut self) {
        let room = drawn_room(self.inputs.len());
        let shards = self.inputs.par_iter_mut().flat_map(|input| input.shards.par_iter_mut());
        shards.filter_map(|shard| shard.drawn.as_mut()).for_each(|drawn| {
            drawn.narrow(room);
            drawn.sort();
        });
        let sums = self.inputs.iter_mut().flat_map(|input| input.shards.iter_mut()).map(|shard| &mut shard.sums);
        self.bounds.level(&mut sums.collect::<Vec<_>>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Sample;

    /// As much as all inputs and shards may remember, no more; and of a shard's messages those with the smallest hashes.
    #[test]
    fn messages_beyond_those_that_are_drawn_leave_those_below_a_limit() {
        for inputs in [1, 2, 3, 256] {
            assert!(drawn_room(inputs) * inputs * SHARDS <= MAX_DRAWN, "{inputs}");
        }
        assert_eq!(drawn_room(256), FEWEST_DRAWN);
        assert_eq!(drawn_room(257), FEWEST_DRAWN);
        let room = drawn_room(2) as u64;
        for messages in [room, room + 1] {
            let mut sample = Sample::new(drawn_room(2));
            (0..messages).for_each(|hash| sample.add(hash, ()));
            let (limit, kept) = sample.finish();
            assert_eq!((kept.len() as u64, limit), (room, if messages > room { room } else { u64::MAX }));
        }
    }
}
