//! A long list of rows in little memory: as serialized bytes.
//!
//! Rows are mostly small numbers in wide fields. At the end of an analysis there are millions of
//! them, which from then on are only iterated over.

use postcard::ser_flavors::Flavor;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::marker::PhantomData;

/// Maximum number of rows per page.
const PAGE: usize = 64;

/// Some rows.
#[derive(Clone, Default)]
struct RowPage {
    rows: usize,
    bytes: Box<[u8]>,
}

/// Rows in order. A row that cannot be serialized is dropped; plain rows always can.
#[derive(Clone)]
pub struct PackedRows<T> {
    /// All pages but the last one, which is open.
    pages: Vec<RowPage>,
    open: Vec<u8>,
    open_rows: usize,
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

    /// Adds the rows of another list at the end.
    pub fn append(&mut self, mut other: Self) {
        self.close_page();
        self.pages.append(&mut other.pages);
        (self.open, self.open_rows) = (other.open, other.open_rows);
        self.len += other.len;
    }

    fn close_page(&mut self) {
        if self.open_rows > 0 {
            self.pages.push(RowPage { rows: self.open_rows, bytes: self.open.as_slice().into() });
            self.open.clear();
            self.open_rows = 0;
        }
    }

    /// The serialized rows.
    fn bytes(&self) -> impl Iterator<Item = &u8> {
        self.pages.iter().flat_map(|page| &page.bytes).chain(&self.open)
    }
}

impl<T: Serialize> PackedRows<T> {
    /// Adds a row at the end.
    pub fn push(&mut self, row: &T) {
        if !append(&mut self.open, row) {
            return;
        }
        self.len += 1;
        self.open_rows += 1;
        if self.open_rows == PAGE {
            self.close_page();
        }
    }
}

/// Serializes a value at the end of `bytes`; false, and nothing is added, if it cannot be serialized.
pub(super) fn append<T: Serialize>(bytes: &mut Vec<u8>, value: &T) -> bool {
    let before = bytes.len();
    let is_written = postcard::serialize_with_flavor(value, ByteSink(bytes)).is_ok();
    if !is_written {
        bytes.truncate(before);
    }
    is_written
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
        Rows { list: self, next_page: 0, left: &[], left_of_page: 0, left_of_all: self.len }
    }
}

/// Iterates over the rows of a list.
#[derive(Clone)]
pub struct Rows<'a, T> {
    list: &'a PackedRows<T>,
    next_page: usize,
    /// The rest of the current page, and its number of rows.
    left: &'a [u8],
    left_of_page: usize,
    left_of_all: usize,
}

impl<T: DeserializeOwned> Iterator for Rows<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        if self.left_of_all == 0 {
            return None;
        }
        if self.left_of_page == 0 {
            let list = self.list;
            let page = list.pages.get(self.next_page).map(|page| (&*page.bytes, page.rows));
            (self.left, self.left_of_page) = page.unwrap_or((&list.open, list.open_rows));
            self.next_page += 1;
        }
        let (row, left) = postcard::take_from_bytes(self.left).ok()?;
        self.left = left;
        self.left_of_page = self.left_of_page.saturating_sub(1);
        self.left_of_all -= 1;
        Some(row)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left_of_all, Some(self.left_of_all))
    }
}

impl<T> Default for PackedRows<T> {
    fn default() -> Self {
        Self { pages: Vec::new(), open: Vec::new(), open_rows: 0, len: 0, marker: PhantomData }
    }
}

/// Compares the serialized bytes, which are equal for equal rows.
impl<T> PartialEq for PackedRows<T> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.bytes().eq(other.bytes())
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
            let mut twice = packed.clone();
            twice.append(packed.clone());
            twice.extend(rows.iter().copied());
            let thrice = || rows.iter().chain(&rows).chain(&rows).copied();
            prop_assert!(twice.iter().eq(thrice()));
            prop_assert_eq!((twice.len(), twice), (3 * rows.len(), thrice().collect::<PackedRows<_>>()));
            let mut fewer: PackedRows<_> = rows.iter().copied().skip(1).collect();
            prop_assert_eq!(fewer == packed, rows.is_empty());
            fewer.clear();
            prop_assert!(fewer.is_empty() && fewer.iter().next().is_none());
        }
    }
}
