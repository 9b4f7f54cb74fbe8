//! A long list of rows in little memory: as serialized bytes.
//!
//! Rows are mostly small numbers in wide fields. At the end of an analysis there are millions of
//! them, which from then on are only iterated over.

use postcard::ser_flavors::Flavor;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::marker::PhantomData;

/// Rows per page.
const PAGE: usize = 64;

/// Rows in order. A row that cannot be serialized is dropped; plain rows always can.
#[derive(Clone)]
pub struct PackedRows<T> {
    /// Full pages; `open` is the last one.
    pages: Vec<Box<[u8]>>,
    open: Vec<u8>,
    len: usize,
    marker: PhantomData<fn() -> T>,
}

impl<T> PackedRows<T> {
    /// Number of rows.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True without rows.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Removes all rows.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    fn page(&self, number: usize) -> &[u8] {
        self.pages.get(number).map_or(&self.open, |page| page)
    }
}

impl<T: Serialize> PackedRows<T> {
    /// Adds a row at the end.
    pub fn push(&mut self, row: &T) {
        let before = self.open.len();
        let written = postcard::serialize_with_flavor(row, ByteSink(&mut self.open));
        if written.is_err() {
            self.open.truncate(before);
            return;
        }
        self.len += 1;
        if self.len.is_multiple_of(PAGE) {
            self.pages.push(self.open.as_slice().into());
            self.open.clear();
        }
    }
}

/// Appends bytes to a vector.
struct ByteSink<'a>(&'a mut Vec<u8>);

impl Flavor for ByteSink<'_> {
    type Output = ();

    #[inline]
    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    #[inline]
    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        match bytes {
            // Most fields of a row are 0 or small.
            [byte] => self.0.push(*byte),
            _ => self.0.extend_from_slice(bytes),
        }
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

impl<T: DeserializeOwned> PackedRows<T> {
    /// All rows in order.
    pub fn iter(&self) -> Rows<'_, T> {
        Rows { list: self, next: 0, left: &[] }
    }
}

/// Iterates over the rows of a list.
#[derive(Clone)]
pub struct Rows<'a, T> {
    list: &'a PackedRows<T>,
    next: usize,
    left: &'a [u8],
}

impl<T: DeserializeOwned> Iterator for Rows<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        if self.next >= self.list.len {
            return None;
        }
        if self.next.is_multiple_of(PAGE) {
            self.left = self.list.page(self.next / PAGE);
        }
        let (row, left) = postcard::take_from_bytes(self.left).ok()?;
        self.left = left;
        self.next += 1;
        Some(row)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.list.len.saturating_sub(self.next);
        (left, Some(left))
    }
}

impl<T> Default for PackedRows<T> {
    fn default() -> Self {
        Self { pages: Vec::new(), open: Vec::new(), len: 0, marker: PhantomData }
    }
}

/// Compares the serialized bytes, which are equal for equal rows.
impl<T> PartialEq for PackedRows<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.len, &self.pages, &self.open) == (other.len, &other.pages, &other.open)
    }
}

impl<T: DeserializeOwned + fmt::Debug> fmt::Debug for PackedRows<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T: Serialize> Extend<T> for PackedRows<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, rows: I) {
        rows.into_iter().for_each(|row| self.push(&row));
    }
}

impl<T: Serialize> FromIterator<T> for PackedRows<T> {
    fn from_iter<I: IntoIterator<Item = T>>(rows: I) -> Self {
        let mut packed = Self::default();
        packed.extend(rows);
        packed
    }
}

impl<'a, T: DeserializeOwned> IntoIterator for &'a PackedRows<T> {
    type Item = T;
    type IntoIter = Rows<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_come_out_as_they_went_in(rows in prop::collection::vec((any::<u32>(), any::<i64>(), any::<Option<u8>>()), 0..3 * PAGE)) {
            let packed: PackedRows<_> = rows.iter().copied().collect();
            prop_assert_eq!((packed.len(), packed.is_empty()), (rows.len(), rows.is_empty()));
            prop_assert!(packed.iter().eq(rows.iter().copied()));
            prop_assert_eq!(packed.iter().size_hint(), (rows.len(), Some(rows.len())));
            let mut fewer: PackedRows<_> = rows.iter().copied().skip(1).collect();
            prop_assert_eq!(fewer == packed, rows.is_empty());
            fewer.clear();
            prop_assert!(fewer.is_empty() && fewer.iter().next().is_none());
        }
    }
}
