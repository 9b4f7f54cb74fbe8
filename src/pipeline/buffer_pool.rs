//! A pool of packet lists. New lists would grow with each batch and fault in new pages.

use super::readout::SHARDS;
use crate::model::Packets;
use std::sync::{Mutex, PoisonError};

/// Packets that the lists of a batch may have room for, all shards together: several times the
/// packets of a batch. Where traffic moves between shards over time, the lists of all shards grow.
const MAX_ROOM: usize = 1 << 16;

/// Packet lists of batches, one list per shard.
#[derive(Debug, Default)]
pub(super) struct BufferPool(Mutex<Vec<Vec<Packets>>>);

impl BufferPool {
    /// Lists from the pool, or new ones.
    pub(super) fn take(&self) -> Vec<Packets> {
        let old = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        old.unwrap_or_else(|| vec![Packets::default(); SHARDS])
    }

    /// Returns lists to the pool. Drops lists that grew beyond [`MAX_ROOM`].
    pub(super) fn give(&self, shards: Vec<Packets>) {
        if shards.iter().map(|packets| packets.records.capacity()).sum::<usize>() <= MAX_ROOM {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(shards);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists that grew beyond the bound are dropped; the next lists are empty.
    #[test]
    fn lists_with_too_much_room_are_not_kept() {
        for (room, kept) in [(MAX_ROOM, MAX_ROOM), (MAX_ROOM + 1, 0)] {
            let pool = BufferPool::default();
            let mut lists = pool.take();
            lists[0].records = Vec::with_capacity(room);
            assert_eq!(lists[0].records.capacity(), room);
            pool.give(lists);
            let again = pool.take();
            assert_eq!((again.len(), again[0].records.capacity()), (SHARDS, kept));
        }
    }
}
