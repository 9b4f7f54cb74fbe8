//! Sizes of packets and messages: exact sums by power of two.
//!
//! Classes instead of an HDR histogram: a packet adds to one of a few exact counters of 40 bytes,
//! which never need coarsening. Most programs send few sizes, and if all sizes of a class are
//! equal, its extremes give the size.

use super::{PacketRole, SizeClass, VecMap, Verb};
use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

/// A category of things with a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum SizeCategory {
    /// A request packet: its wire bytes (LRH to VCRC, or the whole Ethernet frame).
    Request,
    /// A READ response or atomic acknowledgement: its wire bytes.
    Response,
    /// An ACK or NAK: its wire bytes.
    Acknowledge,
    /// A message sent by SEND: its payload.
    Send,
    /// An RDMA WRITE: its payload.
    Write,
    /// An RDMA READ: the requested length.
    Read,
    /// An atomic operation: the size of its operand.
    Atomic,
    /// An unreliable datagram: its payload.
    Datagram,
    /// A point-to-point MPI message.
    PointToPoint,
    /// An MPI message of a collective operation.
    Collective,
    /// A message of NCCL, which does not name its operation.
    Nccl,
}

impl SizeCategory {
    /// All categories, in the order of their discriminants.
    pub const ALL: [Self; 11] = [
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
        Self::Nccl,
    ];

    /// The category of a packet with this role. Packets without a sequence number have none,
    /// because their first observation is unknown.
    #[must_use]
    pub const fn packet(role: PacketRole) -> Option<Self> {
        match role {
            PacketRole::Request => Some(Self::Request),
            PacketRole::Response => Some(Self::Response),
            PacketRole::Acknowledge => Some(Self::Acknowledge),
            PacketRole::Other => None,
        }
    }

    /// The category of a transport message with this verb.
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

    /// Name of the distribution in outputs; each thing counts once per distribution.
    #[must_use]
    pub const fn distribution(self) -> &'static str {
        match self {
            Self::Request | Self::Response | Self::Acknowledge => "packets",
            Self::Send | Self::Write | Self::Read | Self::Atomic | Self::Datagram => "messages",
            Self::PointToPoint | Self::Collective | Self::Nccl => "mpi_messages",
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
            Self::Nccl => "nccl",
        }
    }
}

/// Sizes of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeSums {
    /// Number of things.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The smallest of them, in bytes.
    pub smallest_bytes: u64,
    /// The largest of them, in bytes.
    pub largest_bytes: u64,
}

impl SizeSums {
    /// Sums of a single size.
    #[must_use]
    pub const fn one(bytes: u64) -> Self {
        Self { count: 1, bytes, smallest_bytes: bytes, largest_bytes: bytes }
    }
}

impl AddAssign for SizeSums {
    fn add_assign(&mut self, other: Self) {
        self.count += other.count;
        // Lengths of MPI messages come from envelopes: a damaged capture may contain any value.
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.smallest_bytes = self.smallest_bytes.min(other.smallest_bytes);
        self.largest_bytes = self.largest_bytes.max(other.largest_bytes);
    }
}

/// Sums by category and class. They are few and found by linear search. The next size of a category
/// is likely in the same class as the last one, so the last position is kept per packet role.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sizes<K> {
    entries: Vec<SizeEntry<K>>,
    /// Position of the last sums, by packet role.
    #[serde(skip)]
    last: [u8; PacketRole::COUNT],
}

/// Category and class with their sums.
type SizeEntry<K> = ((K, SizeClass), SizeSums);

impl<K> Default for Sizes<K> {
    fn default() -> Self {
        Self { entries: Vec::new(), last: [0; PacketRole::COUNT] }
    }
}

impl<K: Copy + Ord> Sizes<K> {
    /// Adds one size. `thing` selects which last position is used.
    #[inline]
    pub fn record(&mut self, thing: PacketRole, of: K, bytes: u64) {
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

    /// Adds the sums of a class.
    pub fn add(&mut self, key: (K, SizeClass), sums: SizeSums) {
        self.place(key, sums);
    }

    /// Adds the sums of a class and returns their position.
    fn place(&mut self, key: (K, SizeClass), sums: SizeSums) -> usize {
        if let Some(at) = self.entries.iter().position(|(of, _)| *of == key) {
            self.entries[at].1 += sums;
            return at;
        }
        // Grow in small steps: there may be many connections.
        if self.entries.len() == self.entries.capacity() {
            self.entries.reserve_exact(2);
        }
        self.entries.push((key, sums));
        self.entries.len() - 1
    }

    /// Adds all sums of another list.
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

    /// True if there are no classes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The sums, unsorted.
    pub fn iter(&self) -> impl Iterator<Item = (&(K, SizeClass), &SizeSums)> {
        self.entries.iter().map(|(key, sums)| (key, sums))
    }

    /// The sums in the form that is smallest in memory.
    #[must_use]
    pub fn into_map(self) -> VecMap<(K, SizeClass), SizeSums> {
        self.entries.into()
    }

    /// The sums, sorted by category and class.
    #[must_use]
    pub fn into_sorted(self) -> Vec<SizeEntry<K>> {
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
        [64, 127, 100, 128].iter().for_each(|bytes| sizes.record(PacketRole::Request, SizeCategory::Send, *bytes));
        assert!(sizes.clone().into_map().into_iter().eq(sizes.clone().into_sorted()));
        let sorted = sizes.into_sorted();
        let expected = SizeSums { count: 3, bytes: 291, smallest_bytes: 64, largest_bytes: 127 };
        assert_eq!(sorted[0], ((SizeCategory::Send, SizeClass::of(64)), expected));
        assert_eq!(sorted[1], ((SizeCategory::Send, SizeClass::of(128)), SizeSums::one(128)));
        assert_eq!(sorted.len(), 2);
    }

    proptest! {
        /// Neither the order nor a split of the sizes changes the sums.
        #[test]
        fn order_and_splits_do_not_matter(
            values in prop::collection::vec((0usize..SizeCategory::ALL.len(), any::<u32>()), 0..60),
            split in 0usize..60,
        ) {
            let of = |values: &[(usize, u32)]| {
                let mut sizes = Sizes::default();
                let things = [PacketRole::Request, PacketRole::Response, PacketRole::Acknowledge, PacketRole::Other];
                values.iter().for_each(|&(of, bytes)| sizes.record(things[of % 4], SizeCategory::ALL[of], u64::from(bytes)));
                sizes
            };
            let split = split.min(values.len());
            let mut joined = of(&values[split..]);
            joined.merge(of(&values[..split]));
            prop_assert_eq!(joined.into_sorted(), of(&values).into_sorted());
        }
    }
}
