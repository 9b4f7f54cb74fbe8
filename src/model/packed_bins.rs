//! A time series in little memory: as serialized bytes.
//!
//! A value takes about ten bytes instead of fifty, because its bin is the difference to the bin
//! before, and most sums are small numbers.

use super::packed::append;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::marker::PhantomData;

/// Values with their bins, in any order. A value that cannot be serialized is dropped; plain values
/// always can.
#[derive(Clone)]
pub struct PackedBins<T> {
    bytes: Vec<u8>,
    len: usize,
    last_bin: i64,
    marker: PhantomData<fn() -> T>,
}

impl<T> Default for PackedBins<T> {
    fn default() -> Self {
        Self { bytes: Vec::new(), len: 0, last_bin: 0, marker: PhantomData }
    }
}

impl<T> std::fmt::Debug for PackedBins<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PackedBins").field("len", &self.len).finish_non_exhaustive()
    }
}

impl<T> PackedBins<T> {
    /// Number of values.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True without values.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Frees the memory that no value uses.
    pub fn shrink_to_fit(&mut self) {
        self.bytes.shrink_to_fit();
    }
}

impl<T: Serialize> PackedBins<T> {
    /// Adds a value at the end.
    pub fn push(&mut self, bin: i64, value: &T) {
        let step = bin.wrapping_sub(self.last_bin);
        if append(&mut self.bytes, &(step, value)) {
            self.last_bin = bin;
            self.len += 1;
        }
    }
}

impl<T: DeserializeOwned> PackedBins<T> {
    /// All values with their bins, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (i64, T)> + '_ {
        let (mut left, mut bin) = (self.bytes.as_slice(), 0_i64);
        (0..self.len).map_while(move |_| {
            let ((step, value), rest) = postcard::take_from_bytes::<(i64, T)>(left).ok()?;
            left = rest;
            bin = bin.wrapping_add(step);
            Some((bin, value))
        })
    }
}

impl<T: Serialize> Extend<(i64, T)> for PackedBins<T> {
    fn extend<I: IntoIterator<Item = (i64, T)>>(&mut self, values: I) {
        values.into_iter().for_each(|(bin, value)| self.push(bin, &value));
    }
}

impl<T: Serialize> FromIterator<(i64, T)> for PackedBins<T> {
    fn from_iter<I: IntoIterator<Item = (i64, T)>>(values: I) -> Self {
        let mut packed = Self::default();
        packed.extend(values);
        packed.shrink_to_fit();
        packed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn values_come_out_as_they_went_in(values in prop::collection::vec((any::<i64>(), (any::<u64>(), any::<Option<u8>>())), 0..100)) {
            let packed: PackedBins<_> = values.iter().copied().collect();
            prop_assert_eq!((packed.len(), packed.is_empty()), (values.len(), values.is_empty()));
            prop_assert!(packed.iter().eq(values.iter().copied()));
        }
    }
}
