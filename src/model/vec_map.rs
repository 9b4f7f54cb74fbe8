//! A map of few keys, for structures that exist once per connection.
//!
//! The first node of a `BTreeMap` has room for eleven entries, which would be most of the memory of
//! each of up to a quarter of a million connections.

use serde::{Deserialize, Serialize};
use std::ops::{Bound, RangeBounds};

/// A sorted list of keys and values without spare capacity. Inserting a key moves the entries after
/// it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(K, V)>")]
#[serde(bound(deserialize = "K: Ord + Deserialize<'de>, V: Deserialize<'de>"))]
pub struct VecMap<K, V>(Vec<(K, V)>);

impl<K, V> VecMap<K, V> {
    /// An empty map.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }
}

impl<K, V> Default for VecMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

/// The first of several values for one key wins.
impl<K: Ord, V> From<Vec<(K, V)>> for VecMap<K, V> {
    fn from(mut entries: Vec<(K, V)>) -> Self {
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        entries.dedup_by(|next, kept| next.0 == kept.0);
        Self(entries)
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for VecMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        entries.into_iter().collect::<Vec<_>>().into()
    }
}

impl<K, V> IntoIterator for VecMap<K, V> {
    type Item = (K, V);
    type IntoIter = std::vec::IntoIter<(K, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<K: Ord, V> VecMap<K, V> {
    /// Number of keys.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are no keys.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of a key, mutable.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.place(key).ok().map(|at| &mut self.0[at].1)
    }

    /// The value of a key, inserted if missing.
    pub fn or_insert_with(&mut self, key: K, value: impl FnOnce() -> V) -> &mut V {
        let at = self.place(&key).unwrap_or_else(|at| {
            if self.0.len() == self.0.capacity() {
                self.0.reserve_exact(self.0.len() / 4 + 1);
            }
            self.0.insert(at, (key, value()));
            at
        });
        &mut self.0[at].1
    }

    /// The value of a key, inserted as the default if missing.
    pub fn or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        self.or_insert_with(key, V::default)
    }

    /// Inserts a value, or joins it with the existing one.
    pub fn join(&mut self, key: K, value: V, join: impl FnOnce(&mut V, V)) {
        match self.get_mut(&key) {
            Some(held) => join(held, value),
            None => {
                self.or_insert_with(key, || value);
            }
        }
    }

    /// Keeps the entries with these keys.
    pub fn retain(&mut self, keeps: impl Fn(&K) -> bool) {
        self.0.retain(|(key, _)| keeps(key));
    }

    /// All entries, sorted by key.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> + Clone {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// The entries of a range of keys.
    pub fn range(&self, range: impl RangeBounds<K>) -> impl Iterator<Item = (&K, &V)> {
        let from = match range.start_bound() {
            Bound::Included(start) => self.0.partition_point(|(key, _)| key < start),
            Bound::Excluded(start) => self.0.partition_point(|(key, _)| key <= start),
            Bound::Unbounded => 0,
        };
        let inside = self.0.get(from..).unwrap_or_default().iter();
        inside.map(|(key, value)| (key, value)).take_while(move |(key, _)| match range.end_bound() {
            Bound::Included(end) => *key <= end,
            Bound::Excluded(end) => *key < end,
            Bound::Unbounded => true,
        })
    }

    fn place(&self, key: &K) -> Result<usize, usize> {
        self.0.binary_search_by(|(other, _)| other.cmp(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Contents and serialized form equal those of a tree.
        #[test]
        fn equals_a_tree(entries in prop::collection::vec((0u8..40, any::<u16>()), 0..60), from in 0u8..40, to in 0u8..40) {
            let (mut map, mut tree) = (VecMap::<u8, u16>::default(), BTreeMap::<u8, u16>::new());
            for (key, value) in entries {
                *map.or_default(key) ^= value;
                *tree.entry(key).or_default() ^= value;
            }
            map.join(from, 7, |held, value| *held = held.wrapping_add(value));
            tree.entry(from).and_modify(|held| *held = held.wrapping_add(7)).or_insert(7);
            prop_assert_eq!((map.len(), map.is_empty()), (tree.len(), tree.is_empty()));
            prop_assert!(map.iter().eq(tree.iter()));
            prop_assert!((0..40).all(|key| map.get_mut(&key).copied() == tree.get(&key).copied()));
            if from <= to {
                prop_assert!(map.range(from..to).eq(tree.range(from..to)));
                prop_assert!(map.range(from..=to).eq(tree.range(from..=to)));
            }
            let read: VecMap<u8, u16> = postcard::from_bytes(&postcard::to_allocvec(&map).expect("written")).expect("read");
            prop_assert_eq!(&read, &map);
            map.retain(|key| *key >= from);
            tree.retain(|key, _| *key >= from);
            prop_assert!(map.into_iter().eq(tree));
        }
    }

    #[test]
    fn unsorted_entries_are_sorted_when_read() {
        let map: VecMap<u8, u8> = vec![(3, 1), (1, 2), (3, 4)].into();
        assert!(map.into_iter().eq([(1, 2), (3, 1)]));
    }
}
