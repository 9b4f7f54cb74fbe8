//! Lists of packets that are used again: new ones would grow with each batch, and the system would have to give them pages.

use super::readout::SHARDS;
use crate::model::Packets;
use std::sync::{Mutex, PoisonError};

/// Packets for which the lists of a batch may have room, of all shards together: some times as many as a batch has. Where traffic goes from one shard to
/// another with time, the lists of all of them grow.
const MOST_ROOM: usize = 1 << 16;

/// Lists for batches, each with one for every shard.
#[derive(Debug, Default)]
pub(super) struct Spares(Mutex<Vec<Vec<Packets>>>);

impl Spares {
    /// Old lists, or new ones.
    pub(super) fn take(&self) -> Vec<Packets> {
        let old = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        old.unwrap_or_else(|| vec![Packets::default(); SHARDS])
    }

    /// Takes back what is not needed any longer.
    pub(super) fn give(&self, shards: Vec<Packets>) {
        if shards.iter().map(|packets| packets.records.capacity()).sum::<usize>() <= MOST_ROOM {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(shards);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists that have grown beyond the bound are dropped; what is taken then is empty and as good.
    #[test]
    fn lists_with_too_much_room_are_not_kept() {
        for (room, kept) in [(MOST_ROOM, MOST_ROOM), (MOST_ROOM + 1, 0)] {
            let spares = Spares::default();
            let mut lists = spares.take();
            lists[0].records = Vec::with_capacity(room);
            assert_eq!(lists[0].records.capacity(), room);
            spares.give(lists);
            let again = spares.take();
            assert_eq!((again.len(), again[0].records.capacity()), (SHARDS, kept));
        }
    }
}
