//! NCCL over verbs: "clear to send" elements, which a receiver writes into the sender's memory, and
//! the data WRITEs that respond to them (`net_ib.cc`, `net_ib/p2p.cc`).
//!
//! A WRITE of 1 to 8 elements of equal size, little-endian:
//!
//! ```text
//!              bytes  address  size      keys         elements  tag   index
//! 2.8  - 2.11  32     +0 u64   +8 u32    +16 u32      -         -     +12 u32, ready = 1 at +20
//! 2.12 - 2.19  32     +0       +8 u32    +12 u32      +16 u32   +20   +24 u64
//! 2.20 - 2.23  64     +0       +8 u32    +12 u32[2]   +20       +24   +32
//! 2.24 - 2.29  64     +0       +8 u64    +16 u32[4]   +32       +36   +40
//! 2.30         64     +0       +8 u64    +16 u32[8]   +48       +52   +56
//! ```
//! The tag is the rank of the process that will send the data, which is the receiver of this WRITE.
//! The index counts the WRITEs of a connection from 1. There is one key per device of the receiver.
//!
//! The sender splits the data of each element evenly over some queue pairs ([`is_share`]), possibly
//! on several devices. Each of these queue pairs carries, in this order:
//!
//! ```text
//! one element       WRITE with immediate data: its share; or its share as a WRITE, then an empty WRITE with immediate data
//! several elements  for each a WRITE with its share, then a WRITE with immediate data: the lengths ([`lengths`]), empty before 2.20
//! ```
//! Shares may be empty. The immediate data of one element hold the length of the whole message
//! ([`Immediate`]).

use super::bytes;

/// Highest number of elements in one WRITE (`NCCL_NET_IB_MAX_RECVS`).
const ELEMENTS_LIMIT: u32 = 8;
/// Highest number of devices on one side of a connection (`NCCL_NET_MAX_DEVS_PER_NIC`).
const DEVICES_LIMIT: usize = 8;
/// Highest number of queue pairs of a connection (`NCCL_IB_MAX_QPS`).
const QUEUE_PAIRS_LIMIT: u64 = 128;
/// All shares but the last are multiples of this from 2.12.10 on; before, they have at least
/// `SHARE_MINIMUM_BYTES`.
const SHARE_ALIGNMENT_BYTES: u64 = 128;
const SHARE_MINIMUM_BYTES: u64 = 8;
const RANK_LIMIT: u32 = 1 << 20;
const INDEX_LIMIT: u64 = 1 << 40;
const SIZE_LIMIT_BYTES: u64 = 1 << 40;
/// User addresses of the CPU (47 bits) or of a GPU (49 bits).
const ADDRESS: core::ops::Range<u64> = 1 << 12..1 << 49;

/// Layout of the elements, by release.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Release {
    /// NCCL 2.8 to 2.11; no rank.
    From2_8,
    /// NCCL 2.12 to 2.19.
    From2_12,
    /// NCCL 2.20 to 2.23.
    From2_20,
    /// NCCL 2.24 to 2.29.
    From2_24,
    /// NCCL 2.30.
    From2_30,
}

/// Offsets and widths of the fields of an element.
struct Fields {
    bytes: u32,
    wide_size: bool,
    key: usize,
    keys: usize,
    /// Number of elements of the WRITE; in 2.8 the word that means "ready".
    count: usize,
    tag: Option<usize>,
    index: usize,
    wide_index: bool,
}

impl Release {
    /// All layouts, the most specific first.
    const SEARCH: [Self; 5] = [Self::From2_30, Self::From2_24, Self::From2_20, Self::From2_12, Self::From2_8];

    const fn fields(self) -> Fields {
        let (bytes, wide_size, key, keys, count, tag, index) = match self {
            Self::From2_8 => (32, false, 16, 1, 20, None, 12),
            Self::From2_12 => (32, false, 12, 1, 16, Some(20), 24),
            Self::From2_20 => (64, false, 12, 2, 20, Some(24), 32),
            Self::From2_24 => (64, true, 16, 4, 32, Some(36), 40),
            Self::From2_30 => (64, true, 16, 8, 48, Some(52), 56),
        };
        Fields { bytes, wide_size, key, keys, count, tag, index, wide_index: !matches!(self, Self::From2_8) }
    }

    /// Length of an element in bytes.
    #[must_use]
    pub const fn element_bytes(self) -> u32 {
        self.fields().bytes
    }

    /// Distance in the sender's memory between the elements of consecutive indices, in bytes.
    #[must_use]
    pub const fn slot_bytes(self) -> u32 {
        match self {
            Self::From2_8 => self.element_bytes(),
            _ => self.element_bytes() * ELEMENTS_LIMIT,
        }
    }

    /// Elements of the ring in the sender's memory: the fewest and the most in use. The ring has
    /// `NCCL_NET_MAX_REQUESTS` elements up to 2.11, and 8 times as many (`MAX_REQUESTS`) later; that
    /// number is 8 up to 2.18 and 32 from 2.19 on. Both are accepted for each layout, because other
    /// builds of the transport choose it themselves.
    #[must_use]
    pub const fn ring_slots(self) -> (u64, u64) {
        match self {
            Self::From2_8 => (8, 8),
            _ => (64, 256),
        }
    }

    /// Address of the ring, from an element and its index. From 2.20 on, a connection has one queue
    /// pair per device for its elements, and all of them give the same address. Up to 2.19 it has one
    /// queue pair (`qps[0]`) for all elements. So it does not matter that those of 2.19, which have
    /// the layout of 2.12 and a longer ring, give one of four addresses.
    #[must_use]
    pub const fn ring_address(self, index: u64, address: u64) -> u64 {
        let (fewest, most) = self.ring_slots();
        let slot = match self {
            Self::From2_8 => index % fewest,
            Self::From2_12 => index.wrapping_sub(1) % fewest,
            Self::From2_20 | Self::From2_24 | Self::From2_30 => index.wrapping_sub(1) % most,
        };
        address.wrapping_sub(slot * self.slot_bytes() as u64)
    }

    /// True if the last WRITE of several elements carries their lengths.
    #[must_use]
    pub const fn writes_lengths(self) -> bool {
        matches!(self, Self::From2_20 | Self::From2_24 | Self::From2_30)
    }
}

/// A WRITE of "clear to send" elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cts<'a> {
    /// Layout that matches.
    pub release: Release,
    /// Number of this WRITE on its connection, from 1.
    pub index: u64,
    /// Number of elements, 1 to 8.
    pub element_count: u32,
    /// Rank of the process that receives this WRITE and will send the data: in the communicator up
    /// to 2.17, in its topmost parent from 2.18 on. `None` before 2.12.
    pub rank: Option<u32>,
    payload: &'a [u8],
}

/// A buffer that the data may be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    /// Address of the buffer; the RETH of the data names it.
    pub address: u64,
    /// Length of the buffer in bytes.
    pub size_bytes: u64,
    /// Remote keys by device of the receiver; 0 if there is no such device. The RETH of the data
    /// names the key of its device.
    pub r_keys: [u32; DEVICES_LIMIT],
    /// Like [`Cts::rank`], for this element.
    pub rank: Option<u32>,
}

impl Cts<'_> {
    /// The elements that were captured whole.
    pub fn elements(&self) -> impl Iterator<Item = Element> + '_ {
        let element_bytes = self.release.element_bytes() as usize;
        self.payload
            .chunks_exact(element_bytes)
            .take(self.element_count as usize)
            .filter_map(|bytes| Some(element(self.release, bytes)?.0))
    }
}

/// Parses a WRITE of `dma_bytes` (RETH `DMALen`) without immediate data. All captured elements must
/// agree, and the first must be captured whole.
#[must_use]
pub fn cts(payload: &[u8], dma_bytes: u32) -> Option<Cts<'_>> {
    Release::SEARCH.into_iter().find_map(|release| {
        let element_bytes = release.element_bytes();
        let element_count = dma_bytes / element_bytes;
        // Before 2.12 a WRITE had one element.
        let most = if release == Release::From2_8 { 1 } else { ELEMENTS_LIMIT };
        if !dma_bytes.is_multiple_of(element_bytes) || !(1..=most).contains(&element_count) {
            return None;
        }
        let payload = payload.get(..dma_bytes as usize).unwrap_or(payload);
        let mut elements = payload.chunks_exact(element_bytes as usize).map(|bytes| element(release, bytes));
        let (first, count, index) = elements.next()??;
        if count != element_count {
            return None;
        }
        let agree = elements.all(|other| other.is_some_and(|(_, count, at)| count == element_count && at == index));
        agree.then_some(Cts { release, index, element_count, rank: first.rank, payload })
    })
}

/// Element, number of elements and index; `None` if one is implausible.
fn element(release: Release, element: &[u8]) -> Option<(Element, u32, u64)> {
    let fields = release.fields();
    let word = |at| bytes(element, at).map(u32::from_le_bytes);
    let long = |at| bytes(element, at).map(u64::from_le_bytes);
    let address = long(0)?;
    let size_bytes = if fields.wide_size { long(8)? } else { u64::from(word(8)?) };
    let index = if fields.wide_index { long(fields.index)? } else { u64::from(word(fields.index)?) };
    let rank = match fields.tag {
        Some(at) => Some(word(at)?),
        None => None,
    };
    let plausible = ADDRESS.contains(&address)
        && size_bytes < SIZE_LIMIT_BYTES
        && (1..INDEX_LIMIT).contains(&index)
        && rank.is_none_or(|rank| rank < RANK_LIMIT);
    let mut r_keys = [0; DEVICES_LIMIT];
    for (device, key) in r_keys.iter_mut().enumerate().take(fields.keys) {
        *key = word(fields.key + 4 * device)?;
    }
    let element = Element { address, size_bytes, r_keys, rank };
    plausible.then_some((element, word(fields.count)?, index))
}

/// Meaning of the immediate data of a message of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Immediate {
    /// Length of the message, least significant byte first: up to 2.28.
    LittleEndian,
    /// Length of the message, most significant byte first: 2.29 and later.
    BigEndian,
    /// Number of the message, from 0: 2.29.7 and later, if the receiver matches by number
    /// (`NCCL_IB_RECEIVER_SIDE_MATCHING_SCHEME`, port failover).
    Number,
}

impl Immediate {
    /// All meanings.
    pub const ALL: [Self; 3] = [Self::LittleEndian, Self::BigEndian, Self::Number];

    /// Length that `word` states; `word` is the immediate data read most significant byte first.
    /// `None` for [`Immediate::Number`].
    #[must_use]
    pub const fn length_bytes(self, word: u32) -> Option<u32> {
        match self {
            Self::LittleEndian => Some(word.swap_bytes()),
            Self::BigEndian => Some(word),
            Self::Number => None,
        }
    }

    /// True if this meaning of `word` is consistent with a queue pair that wrote `share_bytes` at
    /// `offset` of the element with this index. `share_bytes` must not be 0.
    #[must_use]
    pub fn is_consistent(self, word: u32, index: u64, offset: u64, share_bytes: u64) -> bool {
        match self.length_bytes(word) {
            // Before 2.12.10 shares were not aligned.
            Some(bytes) => {
                is_share(bytes.into(), offset, share_bytes, true)
                    || self == Self::LittleEndian && is_share(bytes.into(), offset, share_bytes, false)
            }
            None => u64::from(word) == index.wrapping_sub(1) % u64::from(u32::MAX),
        }
    }
}

/// True if some number of queue pairs gives one of them the share `share_bytes` at `offset` of a
/// message of `message_bytes`. `share_bytes` must not be 0.
#[must_use]
pub fn is_share(message_bytes: u64, offset: u64, share_bytes: u64, is_aligned: bool) -> bool {
    let Some(left) = message_bytes.checked_sub(offset).filter(|left| share_bytes <= *left) else { return false };
    let step = |queue_pairs: u64| {
        let even = message_bytes.div_ceil(queue_pairs);
        if is_aligned { even.next_multiple_of(SHARE_ALIGNMENT_BYTES) } else { even.max(SHARE_MINIMUM_BYTES) }
    };
    let fits = |step: u64| offset.is_multiple_of(step) && share_bytes == left.min(step);
    offset == 0 && left == share_bytes || (2..=QUEUE_PAIRS_LIMIT).map(step).any(fits)
}

/// The lengths in bytes of a message of several elements, from the payload of its last WRITE of
/// `dma_bytes`. `None` if the payload is no list of lengths or was not captured whole.
pub fn lengths(payload: &[u8], dma_bytes: u32) -> Option<impl Iterator<Item = u32> + '_> {
    if !dma_bytes.is_multiple_of(4) || !(2..=ELEMENTS_LIMIT).contains(&(dma_bytes / 4)) {
        return None;
    }
    let (lengths, _) = payload.get(..dma_bytes as usize)?.as_chunks::<4>();
    Some(lengths.iter().map(|length| u32::from_le_bytes(*length)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpi::noise;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    /// The slots of `ncclIbPostFifo` and, before 2.12, of `ncclIbIrecv`.
    #[test]
    fn all_elements_of_a_ring_give_its_address() {
        const RING: u64 = 0x7F00_1234_0000;
        for (release, slots, bytes, first) in [
            (Release::From2_8, 8, 32, 0),
            (Release::From2_12, 64, 8 * 32, 1),
            (Release::From2_20, 256, 8 * 64, 1),
            (Release::From2_24, 256, 8 * 64, 1),
            (Release::From2_30, 256, 8 * 64, 1),
        ] {
            for index in (1..1000).chain([1 << 33, (1 << 33) + 77]) {
                let address = RING + (index - first) % slots * bytes;
                assert_eq!(release.ring_address(index, address), RING, "{release:?}, index {index}");
            }
        }
    }

    /// Constructed from the table of layouts: elements of 4 MiB for rank 5, WRITE number 9.
    fn write(release: Release, count: u32) -> Vec<u8> {
        let mut payload = Vec::new();
        for number in 0..count {
            let mut element = alloc::vec![0; release.element_bytes() as usize];
            let mut put = |at: usize, value: u64, bytes: usize| {
                element[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
            };
            put(0, 0x7F00_0000_0000 + u64::from(number) * 0x100_0000, 8);
            put(8, 4 << 20, 4);
            match release {
                Release::From2_8 => {
                    put(12, 9, 4);
                    put(16, 0xABCD, 4);
                    put(20, 1, 4);
                }
                Release::From2_12 => {
                    put(12, 0xABCD, 4);
                    put(16, count.into(), 4);
                    put(20, 5, 4);
                    put(24, 9, 8);
                }
                Release::From2_20 => {
                    put(12, 0xABCD, 4);
                    put(20, count.into(), 4);
                    put(24, 5, 4);
                    put(32, 9, 8);
                }
                Release::From2_24 => {
                    put(16, 0xABCD, 4);
                    put(32, count.into(), 4);
                    put(36, 5, 4);
                    put(40, 9, 8);
                }
                Release::From2_30 => {
                    put(16, 0xABCD, 4);
                    put(48, count.into(), 4);
                    put(52, 5, 4);
                    put(56, 9, 8);
                }
            }
            payload.extend(element);
        }
        payload
    }

    const ALL: [(Release, u32); 9] = [
        (Release::From2_8, 1),
        (Release::From2_12, 1),
        (Release::From2_12, 8),
        (Release::From2_20, 1),
        (Release::From2_20, 8),
        (Release::From2_24, 1),
        (Release::From2_24, 8),
        (Release::From2_30, 1),
        (Release::From2_30, 8),
    ];

    #[test]
    fn every_release_is_recognized_by_its_shape() {
        for (release, count) in ALL {
            let payload = write(release, count);
            let found = cts(&payload, payload.len() as u32).unwrap();
            assert_eq!((found.release, found.index, found.element_count), (release, 9, count));
            assert_eq!(found.rank, (release != Release::From2_8).then_some(5));
            let elements: Vec<Element> = found.elements().collect();
            assert_eq!(elements.len(), count as usize);
            let last = elements.last().unwrap();
            assert_eq!(last.address, 0x7F00_0000_0000 + u64::from(count - 1) * 0x100_0000);
            assert_eq!((last.size_bytes, last.rank), (4 << 20, found.rank));
            assert_eq!(last.r_keys, [0xABCD, 0, 0, 0, 0, 0, 0, 0]);
        }
    }

    #[test]
    fn elements_must_agree() {
        let mut payload = write(Release::From2_24, 2);
        assert!(cts(&payload, 128).is_some());
        payload[64 + 40] = 8;
        assert!(cts(&payload, 128).is_none(), "index");
        assert!(cts(&write(Release::From2_24, 3), 128).is_none(), "count");
        assert!(cts(&write(Release::From2_24, 9), 576).is_none(), "more than there can be");
        assert!(cts(&write(Release::From2_24, 1), 65).is_none(), "no multiple");
    }

    #[test]
    fn truncated_writes() {
        for (release, count) in ALL {
            let payload = write(release, count);
            for cut in 0..payload.len() {
                let found = cts(&payload[..cut], payload.len() as u32);
                assert_eq!(found.is_some(), cut >= release.element_bytes() as usize, "{release:?} {cut}");
                let elements = found.map_or(0, |found| found.elements().count());
                assert_eq!(elements, cut / release.element_bytes() as usize, "{release:?} {cut}");
            }
        }
    }

    /// Each key is at its offset in the table of layouts.
    #[test]
    fn keys_of_several_devices() {
        for (release, key, keys) in [
            (Release::From2_8, 16, 1),
            (Release::From2_12, 12, 1),
            (Release::From2_20, 12, 2),
            (Release::From2_24, 16, 4),
            (Release::From2_30, 16, 8),
        ] {
            let mut payload = write(release, 1);
            for device in 0..keys {
                payload[key + 4 * device] = device as u8 + 1;
                payload[key + 4 * device + 1..][..3].fill(0);
            }
            let element = cts(&payload, release.element_bytes()).unwrap().elements().next().unwrap();
            let expected: Vec<u32> = (1..=8).map(|key| if key <= keys as u32 { key } else { 0 }).collect();
            assert_eq!(element.r_keys, expected[..], "{release:?}");
        }
    }

    #[test]
    fn lengths_of_several_elements() {
        let of = |payload: &[u8], dma_bytes| lengths(payload, dma_bytes).map(Iterator::collect::<Vec<_>>);
        assert_eq!(of(&[1, 0, 0, 0, 0, 1, 0, 0], 8), Some(alloc::vec![1, 256]));
        assert_eq!(of(&[1, 0, 0, 0, 0, 1, 0], 8), None, "not captured");
        assert_eq!(of(&[0; 40], 36), None, "more than there can be");
        assert_eq!(of(&[0; 40], 4), None, "one");
        assert_eq!(of(&[0; 40], 10), None, "no multiple");
        assert_eq!(of(&[], u32::MAX), None);
    }

    /// The split as in NCCL's source: ceil(size / n), rounded up to a multiple of 128 since
    /// 2.12.10, at least 8 before. Any other range is no share.
    #[test]
    fn shares_of_a_message() {
        for is_aligned in [true, false] {
            for bytes in [1u64, 7, 8, 100, 128, 129, 1000, 4096, 8193, 300_000, 1 << 20, 4 << 20] {
                let mut written = BTreeSet::new();
                for queue_pairs in 1..=QUEUE_PAIRS_LIMIT {
                    let even = bytes.div_ceil(queue_pairs);
                    let step = if is_aligned { even.div_ceil(128) * 128 } else { even.max(8) };
                    let step = if queue_pairs == 1 { bytes } else { step };
                    written.extend((0..bytes).step_by(step as usize).map(|at| (at, step.min(bytes - at))));
                }
                for &(at, share) in &written {
                    let near = [(at, share), (at + 1, share), (at, share + 1), (at, share - 1)];
                    for (at, share) in near.into_iter().filter(|(_, share)| *share > 0) {
                        let expected = written.contains(&(at, share));
                        assert_eq!(is_share(bytes, at, share, is_aligned), expected, "{share} at {at} of {bytes}");
                    }
                }
            }
        }
        assert!(!is_share(1000, 0, 1001, true) && !is_share(1000, 0, 600, true) && !is_share(1000, 100, 512, true));
        assert!(!is_share(u64::MAX, 1, 5, true) && !is_share(0, 1, 1, false));
    }

    /// A length is not mistaken for a length in the other byte order, because that length would
    /// need more queue pairs than any connection has.
    #[test]
    fn byte_order_of_the_immediate_data() {
        for (bytes, share) in
            [(8u32, 8u64), (1000, 512), (8193, 4224), (65536, 32768), (1 << 20, 1 << 20), (300_000, 150_016)]
        {
            let consistent = |word: u32| Immediate::ALL.map(|read| read.is_consistent(word, 77, 0, share));
            assert_eq!(consistent(bytes), [false, true, false], "{bytes}");
            assert_eq!(consistent(bytes.swap_bytes()), [true, false, false], "{bytes}");
            assert_eq!(consistent(76), [false, false, true], "{bytes}");
        }
    }

    #[test]
    fn noise_is_not_taken() {
        for length_bytes in [32, 64, 128, 256, 512] {
            let rate = noise::rate(length_bytes, &[(7, 0)], 1.0 / 256.0, 100_000, |payload, _| {
                cts(payload, length_bytes as u32).is_some()
            });
            assert!(rate < 1e-6, "{rate}");
        }
        // Regular data: constants, counters, powers of two.
        for fill in 0..=u8::MAX {
            assert!(cts(&[fill; 64], 64).is_none() && cts(&[fill; 32], 32).is_none(), "{fill}");
        }
        for width in [4usize, 8] {
            for start in 0..32u64 {
                let data: Vec<u8> = (0..8).flat_map(|n: u64| (start + n).to_le_bytes()[..width].to_vec()).collect();
                assert!(cts(&data, data.len() as u32).is_none(), "{start}");
            }
        }
    }
}
