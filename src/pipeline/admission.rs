//! Which connections are followed where there are more than `--max-connections`: those whose first packets come first, in the order of the
//! file, whatever the shards and threads.

use crate::decode::Decoded;
use crate::flow::Tracker;

/// Makes the connections of these batches, which come next and in this order, where not all of them may be followed, and lets no other one in when
/// there are `most`. `trackers` are those of all shards of one input.
pub(super) fn admit(trackers: &mut [&mut Tracker], batches: &[&Decoded], most: usize) {
    let followed: usize = trackers.iter().map(|tracker| tracker.followed()).sum();
    let coming: usize = batches.iter().flat_map(|batch| &batch.shards).map(|packets| packets.keys.len()).sum();
    // Most captures have far fewer: the shards make them when they come to their packets. Where there are as many already, no other one is let in.
    if followed.saturating_add(coming) <= most || followed >= most {
        return;
    }
    let mut left = most - followed;
    for batch in batches {
        for (shard, slot) in in_file_order(batch) {
            left -= usize::from(trackers[shard].admit(&batch.shards[shard].keys[slot]));
            if left == 0 {
                trackers.iter_mut().for_each(|tracker| tracker.close());
                return;
            }
        }
    }
}

/// The connections of a batch by shard and slot, in the order of their first packets.
fn in_file_order(batch: &Decoded) -> Vec<(usize, usize)> {
    let mut firsts: Vec<(u32, usize, usize)> = Vec::new();
    for (shard, packets) in batch.shards.iter().enumerate() {
        // Slots are numbered in the order of their first packets.
        let mut slot = 0;
        for record in &packets.records {
            if record.slot() as usize == slot {
                firsts.push((record.payload_offset, shard, slot));
                slot += 1;
            }
        }
    }
    firsts.sort_unstable();
    firsts.into_iter().map(|(_, shard, slot)| (shard, slot)).collect()
}
