//! NCCL over verbs: "clear to send" elements, which a receiver writes into the sender's memory (`net_ib.cc`, `net_ib/p2p.cc`).
//!
//! A WRITE of 1 to 8 elements of equal size, little-endian. The sender then writes the data to the addresses and ends with a
//! WRITE with immediate data ([`completion_bytes`]):
//!
//! ```text
//!              bytes  address  size      keys         elements  tag   index
//! 2.8  - 2.11  32     +0 u64   +8 u32    +16 u32      -         -     +12 u32, ready = 1 at +20
//! 2.12 - 2.19  32     +0       +8 u32    +12 u32      +16 u32   +20   +24 u64
//! 2.20 - 2.23  64     +0       +8 u32    +12 u32[2]   +20       +24   +32
//! 2.24 - 2.29  64     +0       +8 u64    +16 u32[4]   +32       +36   +40
//! 2.30         64     +0       +8 u64    +16 u32[8]   +48       +52   +56
//! ```
//! The tag is the rank of the process that will send the data, so the one that receives this WRITE; the index counts the
//! WRITEs of a connection from 1.

use super::bytes;

/// Most elements of one WRITE (`NCCL_NET_IB_MAX_RECVS`).
const ELEMENTS_LIMIT: u32 = 8;
const RANK_LIMIT: u32 = 1 << 20;
const INDEX_LIMIT: u64 = 1 << 40;
const SIZE_LIMIT_BYTES: u64 = 1 << 40;
/// User addresses, of the processor (47 bits) or of a GPU (49 bits).
const ADDRESS: core::ops::Range<u64> = 1 << 12..1 << 49;

/// Layout of the elements: the releases that have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Release {
    /// NCCL 2.8 to 2.11: no rank.
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

/// Where the fields of an element stand.
struct Fields {
    bytes: u32,
    wide_size: bool,
    key: usize,
    /// Number of elements of the WRITE, or in 2.8 the word that says ready.
    count: usize,
    tag: Option<usize>,
    index: usize,
    wide_index: bool,
}

impl Release {
    /// All layouts, the most specific ones first.
    const SEARCH: [Self; 5] = [Self::From2_30, Self::From2_24, Self::From2_20, Self::From2_12, Self::From2_8];

    const fn fields(self) -> Fields {
        let (bytes, wide_size, key, count, tag, index) = match self {
            Self::From2_8 => (32, false, 16, 20, None, 12),
            Self::From2_12 => (32, false, 12, 16, Some(20), 24),
            Self::From2_20 => (64, false, 12, 20, Some(24), 32),
            Self::From2_24 => (64, true, 16, 32, Some(36), 40),
            Self::From2_30 => (64, true, 16, 48, Some(52), 56),
        };
        Fields { bytes, wide_size, key, count, tag, index, wide_index: !matches!(self, Self::From2_8) }
    }

    /// Bytes of one element.
    #[must_use]
    pub const fn element_bytes(self) -> u32 {
        self.fields().bytes
    }
}

/// A WRITE of "clear to send" elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cts<'a> {
    /// Layout that fits.
    pub release: Release,
    /// Number of this WRITE on its connection, from 1.
    pub index: u64,
    /// Elements, 1 to 8.
    pub element_count: u32,
    /// Rank of the process that receives this WRITE and will send the data; in the communicator up to 2.17, in its topmost
    /// parent from 2.18 on. `None` before 2.12.
    pub rank: Option<u32>,
    payload: &'a [u8],
}

/// One buffer that the data may be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    /// Address: the RETH of the data names it.
    pub address: u64,
    /// Room at the address, in bytes.
    pub size_bytes: u64,
    /// Key of the first device.
    pub r_key: u32,
    /// As [`Cts::rank`], of this element.
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

/// Recognises a WRITE of `dma_bytes` (RETH `DMALen`) without immediate data. All elements that were captured must agree, and the
/// first must have been captured whole.
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

/// Element, number of elements and index, if all are plausible.
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
    let element = Element { address, size_bytes, r_key: word(fields.key)?, rank };
    plausible.then_some((element, word(fields.count)?, index))
}

/// Length in bytes of the data that a WRITE with immediate data completes.
///
/// `immediate` is the word as a number (big-endian on the wire). With one request it is the length; with several, `payload` holds
/// the `dma_bytes` = 4 bytes per request of their lengths. `None` where these were not captured. In 2.30's matching by request id the
/// immediate word is that id, and this number means nothing.
#[must_use]
pub fn completion_bytes(immediate: u32, requests: u32, payload: &[u8], dma_bytes: u32) -> Option<u64> {
    if requests <= 1 {
        return Some(u64::from(immediate));
    }
    if requests > ELEMENTS_LIMIT || dma_bytes != requests * 4 {
        return None;
    }
    let (lengths, _) = payload.get(..dma_bytes as usize)?.as_chunks::<4>();
    Some(lengths.iter().map(|&length| u64::from(u32::from_le_bytes(length))).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpi::noise;
    use alloc::vec::Vec;

    /// Constructed from the table of the layouts: elements of 4 MiB for rank 5, WRITE number 9.
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
    fn every_release_is_told_by_its_shape() {
        for (release, count) in ALL {
            let payload = write(release, count);
            let found = cts(&payload, payload.len() as u32).unwrap();
            assert_eq!((found.release, found.index, found.element_count), (release, 9, count));
            assert_eq!(found.rank, (release != Release::From2_8).then_some(5));
            let elements: Vec<Element> = found.elements().collect();
            assert_eq!(elements.len(), count as usize);
            let last = elements.last().unwrap();
            assert_eq!(last.address, 0x7F00_0000_0000 + u64::from(count - 1) * 0x100_0000);
            assert_eq!((last.size_bytes, last.r_key, last.rank), (4 << 20, 0xABCD, found.rank));
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
    fn cut_writes() {
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

    #[test]
    fn completions() {
        assert_eq!(completion_bytes(7, 1, &[], 0), Some(7));
        assert_eq!(completion_bytes(0, 2, &[1, 0, 0, 0, 0, 1, 0, 0], 8), Some(257));
        assert_eq!(completion_bytes(0, 2, &[1, 0, 0, 0, 0, 1, 0], 8), None);
        assert_eq!(completion_bytes(0, 2, &[0; 12], 12), None);
        assert_eq!(completion_bytes(0, u32::MAX, &[], u32::MAX), None);
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
