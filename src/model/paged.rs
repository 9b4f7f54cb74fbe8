//! A list that grows without moving what it holds.
//!
//! A vector that grows by copying leaves holes in memory as large as it was, which many of them beside each other never fill again. With a quarter of a
//! million connections that was half of what an analysis took.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Entries of a page: few enough that 32 shards of a small capture take little.
const PAGE: usize = 32;

/// Entries in pages of equal size, numbered from 0 on.
#[derive(Clone, Debug)]
pub struct Paged<T> {
    pages: Vec<Vec<T>>,
}

impl<T> Default for Paged<T> {
    fn default() -> Self {
        Self { pages: Vec::new() }
    }
}

impl<T> Paged<T> {
    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        // All pages but the last are full.
        self.pages.last().map_or(0, |last| (self.pages.len() - 1) * PAGE + last.len())
    }

    /// True without entries.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// The entry with a number.
    #[must_use]
    #[inline]
    pub fn get(&self, number: usize) -> Option<&T> {
        self.pages.get(number / PAGE)?.get(number % PAGE)
    }

    /// The entry with a number, to be changed.
    #[must_use]
    #[inline]
    pub fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        self.pages.get_mut(number / PAGE)?.get_mut(number % PAGE)
    }

    /// Adds an entry at the end.
    pub fn push(&mut self, value: T) {
        if self.pages.last().is_none_or(|last| last.len() == PAGE) {
            self.pages.push(Vec::with_capacity(PAGE));
        }
        if let Some(last) = self.pages.last_mut() {
            last.push(value);
        }
    }

    /// All entries in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> + Clone {
        self.pages.iter().flatten()
    }

    /// All entries in order, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.pages.iter_mut().flatten()
    }
}

impl<T> std::ops::Index<usize> for Paged<T> {
    type Output = T;

    #[inline]
    fn index(&self, number: usize) -> &T {
        &self.pages[number / PAGE][number % PAGE]
    }
}

impl<T> std::ops::IndexMut<usize> for Paged<T> {
    #[inline]
    fn index_mut(&mut self, number: usize) -> &mut T {
        &mut self.pages[number / PAGE][number % PAGE]
    }
}

/// Gives up its pages one by one.
impl<T> IntoIterator for Paged<T> {
    type Item = T;
    type IntoIter = std::iter::Flatten<std::vec::IntoIter<Vec<T>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.pages.into_iter().flatten()
    }
}

impl<T> FromIterator<T> for Paged<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut paged = Self::default();
        values.into_iter().for_each(|value| paged.push(value));
        paged
    }
}

/// As a sequence.
impl<T: Serialize> Serialize for Paged<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Formats without ends need the length beforehand, which a flattened iterator does not know.
        use serde::ser::SerializeSeq as _;
        let mut sequence = serializer.serialize_seq(Some(self.len()))?;
        self.iter().try_for_each(|value| sequence.serialize_element(value))?;
        sequence.end()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Paged<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::<T>::deserialize(deserializer).map(|values| values.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_a_vector() {
        let mut paged = Paged::default();
        assert!(paged.is_empty() && paged.get(0).is_none());
        for number in 0..5 * PAGE + 3 {
            assert_eq!(paged.len(), number);
            paged.push(number);
        }
        *paged.get_mut(PAGE).expect("there") += 1;
        paged[PAGE] -= 1;
        assert!((0..paged.len()).all(|number| paged[number] == number && paged.get(number) == Some(&number)));
        assert!(paged.get(paged.len()).is_none());
        assert!(paged.iter().copied().eq(0..paged.len()));
        let bytes = postcard::to_allocvec(&paged).expect("written");
        assert_eq!(bytes, postcard::to_allocvec(&(0..paged.len()).collect::<Vec<_>>()).expect("written"));
        let read: Paged<usize> = postcard::from_bytes(&bytes).expect("read");
        assert!(read.into_iter().eq(0..paged.len()));
    }
}
