//! A sample of packets: two captures of the same packets yield the same sample, independently.

use serde::{Deserialize, Serialize};

/// The `room` items with the smallest hashes, regardless of the order in which the items arrive;
/// more until the next pruning. If two samples of the same items use the same hash, both contain
/// all items below the lower one of their limits.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample<T> {
    room: usize,
    /// Hashes from this value upward are dropped.
    limit: u64,
    kept: Vec<(u64, T)>,
}

impl<T> Sample<T> {
    /// An empty sample with room for at least one item.
    #[must_use]
    pub const fn new(room: usize) -> Self {
        Self { room: if room == 0 { 1 } else { room }, limit: u64::MAX, kept: Vec::new() }
    }

    /// True if an item with this hash would be kept for now.
    #[inline]
    #[must_use]
    pub const fn wants(&self, hash: u64) -> bool {
        hash < self.limit
    }

    /// Adds an item. Items with equal hashes are kept or dropped together.
    pub fn add(&mut self, hash: u64, item: T) {
        if !self.wants(hash) {
            return;
        }
        self.kept.push((hash, item));
        // Pruning at twice the room keeps it rare.
        if self.kept.len() >= 2 * self.room {
            self.prune();
        }
    }

    /// Reduces the room to `room`: the result is the sample that would have been drawn with it.
    pub fn narrow(&mut self, room: usize) {
        self.room = self.room.min(room).max(1);
        self.prune();
    }

    /// The items.
    pub fn items(&self) -> impl Iterator<Item = &T> {
        self.kept.iter().map(|(_, item)| item)
    }

    /// The items with their hashes.
    pub fn hashed(&self) -> impl Iterator<Item = (u64, &T)> {
        self.kept.iter().map(|(hash, item)| (*hash, item))
    }

    /// Hashes from this one on are dropped.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Drops all items with hashes from `limit` on, now and later.
    pub fn lower_limit(&mut self, limit: u64) {
        self.limit = self.limit.min(limit);
        self.kept.retain(|(hash, _)| *hash < limit);
    }

    /// The items, mutable.
    pub fn items_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.kept.iter_mut().map(|(_, item)| item)
    }

    fn prune(&mut self) {
        if self.kept.len() <= self.room {
            return;
        }
        let (_, (first_out, _), _) = self.kept.select_nth_unstable_by_key(self.room, |(hash, _)| *hash);
        self.limit = *first_out;
        let limit = self.limit;
        self.kept.retain(|(hash, _)| *hash < limit);
    }

    /// The limit below which the sample is complete, and the items sorted by hash.
    #[must_use]
    pub fn finish(mut self) -> (u64, Vec<(u64, T)>) {
        self.prune();
        // Pruning reorders items with equal hashes, so callers must compare their contents.
        self.kept.sort_by_key(|(hash, _)| *hash);
        (self.limit, self.kept)
    }
}

impl<T: Ord> Sample<T> {
    /// Sorts the items, independently of their order of arrival.
    pub fn sort(&mut self) {
        self.prune();
        self.kept.sort_unstable();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_smallest_hashes_are_kept_in_any_order(hashes in prop::collection::vec(0u64..500, 0..300), room in 1usize..40, more in 0usize..40) {
            let whole = |hashes: &[u64]| {
                let mut sample = Sample::new(room);
                hashes.iter().for_each(|&hash| sample.add(hash, hash));
                sample
            };
            let (limit, kept) = whole(&hashes).finish();
            let mut expected = hashes.clone();
            expected.sort_unstable();
            expected.retain(|hash| *hash < limit);
            prop_assert_eq!(kept.iter().map(|(hash, _)| *hash).collect::<Vec<_>>(), expected);
            prop_assert!(kept.len() <= room && (kept.len() == hashes.len() || limit < u64::MAX));
            let mut backwards = hashes.clone();
            backwards.reverse();
            prop_assert_eq!(whole(&backwards).finish(), (limit, kept.clone()));
            // A narrowed sample with more room equals this one.
            let mut wide = Sample::new(room + more);
            hashes.iter().for_each(|&hash| wide.add(hash, hash));
            wide.narrow(room);
            prop_assert_eq!(wide.finish(), (limit, kept));
        }
    }
}
