//! How large packets and messages are: exact sums by power of two.
//!
//! Classes and not an HDR histogram: a packet adds to one of a few counters, which are exact, take 40 bytes each and need never be made
//! coarser. Most programs send few sizes, and where all of a class are equal its extremes say which size that is.

use super::{SizeClass, Turn, Verb};
use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

/// What has a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum SizeOf {
    /// A packet that asks, as long as it is on the wire: LRH to VCRC, or the whole Ethernet frame.
    Request,
    /// The same of READ responses and atomic acknowledgements.
    Response,
    /// The same of ACKs and NAKs.
    Acknowledge,
    /// The payload of a message sent by SEND.
    Send,
    /// That of an RDMA WRITE.
    Write,
    /// What an RDMA READ asks for.
    Read,
    /// What an atomic works on.
    Atomic,
    /// The payload of an unreliable datagram.
    Datagram,
    /// An MPI message, point-to-point.
    PointToPoint,
    /// An MPI message of a collective operation.
    Collective,
}

impl SizeOf {
    /// All of them, in the order of their discriminants.
    pub const ALL: [Self; 10] = [
        Self::Request,
        Self::Response,
        Self::Acknowledge,
        Self::Send,
        Self::Write,
        Self::Read,
        Self::Atomic,
        Self::Datagram,
        Self::PointToPoint,
        Self::Collective,
    ];

    /// Packets by turn; those without a number have no first sight, so they have no size here.
    #[must_use]
    pub const fn packet(turn: Turn) -> Option<Self> {
        match turn {
            Turn::Request => Some(Self::Request),
            Turn::Response => Some(Self::Response),
            Turn::Acknowledge => Some(Self::Acknowledge),
            Turn::Other => None,
        }
    }

    /// Messages of the transport.
    #[must_use]
    pub const fn message(verb: Verb) -> Self {
        match verb {
            Verb::Send => Self::Send,
            Verb::Write => Self::Write,
            Verb::Read => Self::Read,
            Verb::Atomic => Self::Atomic,
            Verb::Datagram => Self::Datagram,
        }
    }

    /// Which distribution it belongs to, as named in outputs: each thing is counted once in each.
    #[must_use]
    pub const fn distribution(self) -> &'static str {
        match self {
            Self::Request | Self::Response | Self::Acknowledge => "packets",
            Self::Send | Self::Write | Self::Read | Self::Atomic | Self::Datagram => "messages",
            Self::PointToPoint | Self::Collective => "mpi_messages",
        }
    }

    /// The name used in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Response => "response",
            Self::Acknowledge => "acknowledge",
            Self::Send => Verb::Send.name(),
            Self::Write => Verb::Write.name(),
            Self::Read => Verb::Read.name(),
            Self::Atomic => Verb::Atomic.name(),
            Self::Datagram => Verb::Datagram.name(),
            Self::PointToPoint => "point-to-point",
            Self::Collective => "collective",
        }
    }
}

/// Sizes of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeSums {
    /// How many.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The smallest of them, in bytes.
    pub smallest_bytes: u64,
    /// The largest of them, in bytes.
    pub largest_bytes: u64,
}

impl SizeSums {
    /// One thing of a size.
    #[must_use]
    pub const fn one(bytes: u64) -> Self {
        Self { count: 1, bytes, smallest_bytes: bytes, largest_bytes: bytes }
    }
}

impl AddAssign for SizeSums {
    fn add_assign(&mut self, other: Self) {
        self.count += other.count;
        // Lengths of MPI messages are what envelopes state: a broken capture may state anything.
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.smallest_bytes = self.smallest_bytes.min(other.smallest_bytes);
        self.largest_bytes = self.largest_bytes.max(other.largest_bytes);
    }
}

/// Sizes by what they are of and by class. There is a handful, which are looked for one by one; but the next size is likely to be of the class of the last, so
/// that is remembered for each of a few things which come in turns.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sizes<K> {
    entries: Vec<Entry<K>>,
    /// Where the last of each thing was found.
    #[serde(skip)]
    last: [u8; Turn::COUNT],
}

/// What the sizes are of, their class, and their sums.
type Entry<K> = ((K, SizeClass), SizeSums);

impl<K> Default for Sizes<K> {
    fn default() -> Self {
        Self { entries: Vec::new(), last: [0; Turn::COUNT] }
    }
}

impl<K: Copy + Ord> Sizes<K> {
    /// Adds one thing of a size. `thing` tells apart those that come in turns.
    #[inline]
    pub fn record(&mut self, thing: Turn, of: K, bytes: u64) {
        let key = (of, SizeClass::of(bytes));
        let last = &mut self.last[thing as usize];
        match self.entries.get_mut(usize::from(*last)) {
            Some((found, held)) if *found == key => *held += SizeSums::one(bytes),
            _ => {
                let at = self.place(key, SizeSums::one(bytes));
                self.last[thing as usize] = u8::try_from(at).unwrap_or(0);
            }
        }
    }

    /// Adds sums of a class.
    pub fn add(&mut self, key: (K, SizeClass), sums: SizeSums) {
        self.place(key, sums);
    }

    /// The same, and where they are.
    fn place(&mut self, key: (K, SizeClass), sums: SizeSums) -> usize {
        if let Some(at) = self.entries.iter().position(|(of, _)| *of == key) {
            self.entries[at].1 += sums;
            return at;
        }
        // Room for what is there: there may be many connections.
        if self.entries.len() == self.entries.capacity() {
            self.entries.reserve_exact(2);
        }
        self.entries.push((key, sums));
        self.entries.len() - 1
    }

    /// Adds all of another.
    pub fn merge(&mut self, other: Self) {
        for (key, sums) in other.entries {
            self.add(key, sums);
        }
    }

    /// Number of classes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// True without any.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The sums, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&(K, SizeClass), &SizeSums)> {
        self.entries.iter().map(|(key, sums)| (key, sums))
    }

    /// The sums, sorted by what they are of and by class.
    #[must_use]
    pub fn into_sorted(self) -> Vec<Entry<K>> {
        let mut all = self.entries;
        all.sort_unstable_by_key(|(key, _)| *key);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_class_has_its_sum_and_extremes() {
        let mut sizes = Sizes::default();
        [64, 127, 100, 128].iter().for_each(|bytes| sizes.record(Turn::Request, SizeOf::Send, *bytes));
        let sorted = sizes.into_sorted();
        let expected = SizeSums { count: 3, bytes: 291, smallest_bytes: 64, largest_bytes: 127 };
        assert_eq!(sorted[0], ((SizeOf::Send, SizeClass::of(64)), expected));
        assert_eq!(sorted[1], ((SizeOf::Send, SizeClass::of(128)), SizeSums::one(128)));
        assert_eq!(sorted.len(), 2);
    }

    proptest! {
        /// Whatever the order and however cut, the sums are those of all sizes.
        #[test]
        fn order_and_cuts_do_not_matter(
            values in prop::collection::vec((0usize..SizeOf::ALL.len(), any::<u32>()), 0..60),
            cut in 0usize..60,
        ) {
            let of = |values: &[(usize, u32)]| {
                let mut sizes = Sizes::default();
                let things = [Turn::Request, Turn::Response, Turn::Acknowledge, Turn::Other];
                values.iter().for_each(|&(of, bytes)| sizes.record(things[of % 4], SizeOf::ALL[of], u64::from(bytes)));
                sizes
            };
            let cut = cut.min(values.len());
            let mut joined = of(&values[cut..]);
            joined.merge(of(&values[..cut]));
            prop_assert_eq!(joined.into_sorted(), of(&values).into_sorted());
        }
    }
}
