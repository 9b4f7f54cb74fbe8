//! A vector that grows without moving its entries.
//!
//! A `Vec` that grows by copying leaves free blocks of its former sizes, and many growing `Vec`s
//! side by side never fill them again. With a quarter of a million connections these blocks were
//! half of the memory of an analysis.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Entries per page: few enough that 32 shards of a small capture need little memory.
const PAGE: usize = 32;

/// Entries in pages of equal size, numbered from 0.
#[derive(Clone, Debug)]
pub struct PagedVec<T> {
    pages: Vec<Vec<T>>,
}

impl<T> Default for PagedVec<T> {
    fn default() -> Self {
        Self { pages: Vec::new() }
    }
}

impl<T> PagedVec<T> {
    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        // All pages but the last are full.
        self.pages.last().map_or(0, |last| (self.pages.len() - 1) * PAGE + last.len())
    }

    /// True if there are no entries.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// The entry with this number.
    #[must_use]
    #[inline]
    pub fn get(&self, number: usize) -> Option<&T> {
        self.pages.get(number / PAGE)?.get(number % PAGE)
    }

    /// The entry with this number, mutable.
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

    /// All entries in order, mutable.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.pages.iter_mut().flatten()
    }
}

impl<T> std::ops::Index<usize> for PagedVec<T> {
    type Output = T;

    #[inline]
    fn index(&self, number: usize) -> &T {
        &self.pages[number / PAGE][number % PAGE]
    }
}

impl<T> std::ops::IndexMut<usize> for PagedVec<T> {
    #[inline]
    fn index_mut(&mut self, number: usize) -> &mut T {
        &mut self.pages[number / PAGE][number % PAGE]
    }
}

/// Frees each page after its entries.
impl<T> IntoIterator for PagedVec<T> {
    type Item = T;
    type IntoIter = std::iter::Flatten<std::vec::IntoIter<Vec<T>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.pages.into_iter().flatten()
    }
}

impl<T> FromIterator<T> for PagedVec<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut paged = Self::default();
        values.into_iter().for_each(|value| paged.push(value));
        paged
    }
}

/// Serialized as a sequence.
impl<T: Serialize> Serialize for PagedVec<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Formats without end markers need the length first, which a flattened iterator does not
        // know.
        use serde::ser::SerializeSeq as _;
        let mut sequence = serializer.serialize_seq(Some(self.len()))?;
        self.iter().try_for_each(|value| sequence.serialize_element(value))?;
        sequence.end()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for PagedVec<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::<T>::deserialize(deserializer).map(|values| values.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_the_numbers_of_a_vector() {
        let mut paged = PagedVec::default();
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
        let read: PagedVec<usize> = postcard::from_bytes(&bytes).expect("read");
        assert!(read.into_iter().eq(0..paged.len()));
    }
}
