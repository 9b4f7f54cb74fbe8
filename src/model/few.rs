//! A map for few keys, of which there are very many.
//!
//! A tree takes a node for its first entry that has room for eleven: most of what a connection would take, a quarter of a million times.

use serde::{Deserialize, Serialize};
use std::ops::{Bound, RangeBounds};

/// Values by key, in the order of the keys, in a list that has no more room than it needs. Adding a key moves those behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(K, V)>")]
#[serde(bound(deserialize = "K: Ord + Deserialize<'de>, V: Deserialize<'de>"))]
pub struct Few<K, V>(Vec<(K, V)>);

impl<K, V> Few<K, V> {
    /// An empty one.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }
}

impl<K, V> Default for Few<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

/// Of several values for one key the first.
impl<K: Ord, V> From<Vec<(K, V)>> for Few<K, V> {
    fn from(mut entries: Vec<(K, V)>) -> Self {
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        entries.dedup_by(|next, kept| next.0 == kept.0);
        Self(entries)
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for Few<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        entries.into_iter().collect::<Vec<_>>().into()
    }
}

impl<K, V> IntoIterator for Few<K, V> {
    type Item = (K, V);
    type IntoIter = std::vec::IntoIter<(K, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<K: Ord, V> Few<K, V> {
    /// Number of keys.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// True without keys.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of a key.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.place(key).ok().map(|at| &mut self.0[at].1)
    }

    /// The value of a key, made where there is none.
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

    /// The same, with the default value.
    pub fn or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        self.or_insert_with(key, V::default)
    }

    /// Adds a value: joined with the one that the key has, where it has one.
    pub fn join(&mut self, key: K, value: V, join: impl FnOnce(&mut V, V)) {
        match self.get_mut(&key) {
            Some(held) => join(held, value),
            None => {
                self.or_insert_with(key, || value);
            }
        }
    }

    /// Keeps the entries of some keys.
    pub fn retain(&mut self, keeps: impl Fn(&K) -> bool) {
        self.0.retain(|(key, _)| keeps(key));
    }

    /// All entries, in the order of their keys.
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
        /// What it holds, and what it writes down and reads, is what a tree would.
        #[test]
        fn like_a_tree(entries in prop::collection::vec((0u8..40, any::<u16>()), 0..60), from in 0u8..40, to in 0u8..40) {
            let (mut few, mut tree) = (Few::<u8, u16>::default(), BTreeMap::<u8, u16>::new());
            for (key, value) in entries {
                *few.or_default(key) ^= value;
                *tree.entry(key).or_default() ^= value;
            }
            few.join(from, 7, |held, value| *held = held.wrapping_add(value));
            tree.entry(from).and_modify(|held| *held = held.wrapping_add(7)).or_insert(7);
            prop_assert_eq!((few.len(), few.is_empty()), (tree.len(), tree.is_empty()));
            prop_assert!(few.iter().eq(tree.iter()));
            prop_assert!((0..40).all(|key| few.get_mut(&key).copied() == tree.get(&key).copied()));
            if from <= to {
                prop_assert!(few.range(from..to).eq(tree.range(from..to)));
                prop_assert!(few.range(from..=to).eq(tree.range(from..=to)));
            }
            let read: Few<u8, u16> = postcard::from_bytes(&postcard::to_allocvec(&few).expect("written")).expect("read");
            prop_assert_eq!(&read, &few);
            few.retain(|key| *key >= from);
            tree.retain(|key, _| *key >= from);
            prop_assert!(few.into_iter().eq(tree));
        }
    }

    #[test]
    fn what_is_read_in_disorder_is_put_in_order() {
        let few: Few<u8, u8> = vec![(3, 1), (1, 2), (3, 4)].into();
        assert!(few.into_iter().eq([(1, 2), (3, 1)]));
    }
}
