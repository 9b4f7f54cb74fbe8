//! Admission of connections under `--max-connections`: the connections whose first packets come
//! first in the file are tracked.
//!
//! Invariant: the choice does not depend on shards, threads or batch boundaries.

use crate::decode::DecodedBatch;
use crate::flow::Tracker;

/// Creates the connections of the next batches, in file order, if the limit of `most` connections
/// falls into these batches; closes the trackers when the limit is reached. `trackers` are those of
/// all shards of one input.
pub(super) fn admit(trackers: &mut [&mut Tracker], batches: &[&DecodedBatch], most: usize) {
    let followed: usize = trackers.iter().map(|tracker| tracker.tracked_connections()).sum();
    let coming: usize = batches.iter().flat_map(|batch| &batch.shards).map(|packets| packets.keys.len()).sum();
    // The shards may have reached the limit themselves, with the connections of earlier batches.
    if followed >= most {
        trackers.iter_mut().for_each(|tracker| tracker.close());
        return;
    }
    // Below the limit, the shards create the connections themselves.
    if followed.saturating_add(coming) <= most {
        return;
    }
    let mut left = most - followed;
    for batch in batches {
        for (shard, slot) in in_file_order(batch) {
            left -= usize::from(trackers[shard].add_connection(&batch.shards[shard].keys[slot]));
            if left == 0 {
                trackers.iter_mut().for_each(|tracker| tracker.close());
                return;
            }
        }
    }
}

/// The connections of a batch by shard and slot, in the order of their first packets.
fn in_file_order(batch: &DecodedBatch) -> Vec<(usize, usize)> {
    let mut firsts: Vec<(usize, usize, usize)> = Vec::new();
    for (shard, packets) in batch.shards.iter().enumerate() {
        // Slots are numbered in the order of first packets.
        let mut slot = 0;
        for record in &packets.records {
            if record.slot() as usize == slot {
                firsts.push((record.payload_offset(), shard, slot));
                slot += 1;
            }
        }
    }
    firsts.sort_unstable();
    firsts.into_iter().map(|(_, shard, slot)| (shard, slot)).collect()
}
