//! A capture file cut into records: classic pcap, pcapng, and the ERF header inside a record.
//!
//! In: bytes that start at a record or block. Out: the record's bytes, its time in nanoseconds since the epoch, its link
//! type, and how many bytes it took. Reading files is left to the caller, who feeds more bytes on `Truncated`:
//!
//! ```
//! # use ibscope_parsers::frame::{Framing, Item};
//! # fn main() -> Result<(), ibscope_parsers::ParseError> {
//! # let mut file = vec![0xD4, 0xC3, 0xB2, 0xA1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0, 0, 247, 0, 0, 0];
//! # file.extend([1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0, 7, 8, 9]);
//! let (mut framing, mut at) = Framing::detect(&file)?;
//! while at < file.len() {
//!     let (item, length) = framing.next(&file[at..])?;
//!     if let Item::Record(record) = item {
//!         assert_eq!((record.time_ns, record.data), (Some(1_000_002_000), &[7, 8, 9][..]));
//!     }
//!     at += length;
//! }
//! # Ok(())
//! # }
//! ```

pub mod boundary;
pub mod erf;
pub mod pcap;
pub mod pcapng;

use crate::error::{ParseError, take};
use crate::layer::Layer;
use crate::time::Resolution;
use core::fmt;
use nom::number::Endianness;

/// What the bytes of a record start with: a `LINKTYPE_` number of the tcpdump group's list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct LinkType(pub u16);

impl LinkType {
    /// Ethernet header.
    pub const ETHERNET: Self = Self(1);
    /// IPv4 or IPv6 header.
    pub const RAW: Self = Self(101);
    /// Linux cooked header, version 1.
    pub const SLL: Self = Self(113);
    /// ERF header, see [`erf`].
    pub const ERF: Self = Self(197);
    /// IP over InfiniBand: 4-byte header of RFC 4391.
    pub const IPOIB: Self = Self(242);
    /// InfiniBand local route header.
    pub const INFINIBAND: Self = Self(247);
    /// Linux cooked header, version 2.
    pub const SLL2: Self = Self(276);

    /// The name used in messages, "unknown" for numbers that this crate has no use for.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ETHERNET => "Ethernet",
            Self::RAW => "raw IP",
            Self::SLL => "Linux cooked v1",
            Self::ERF => "ERF",
            Self::IPOIB => "IP over InfiniBand",
            Self::INFINIBAND => "InfiniBand",
            Self::SLL2 => "Linux cooked v2",
            _ => "unknown",
        }
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.0)
    }
}

/// One captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Nanoseconds since the epoch; `None` for a simple packet block of pcapng, which has no time.
    pub time_ns: Option<i64>,
    /// What `data` starts with.
    pub link_type: LinkType,
    /// Index into [`Framing::interfaces`], 0 for classic pcap.
    pub interface: u32,
    /// The captured bytes.
    pub data: &'a [u8],
    /// Length of the packet before the capture cut it; never below `data.len()`, whatever the file says.
    pub original_bytes: u32,
}

/// Counters that the capturing program wrote for one interface (pcapng interface statistics block).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Index into [`Framing::interfaces`]; not checked.
    pub interface: u32,
    /// Packets received (`isb_ifrecv`).
    pub received: Option<u64>,
    /// Packets that the interface dropped for want of resources (`isb_ifdrop`).
    pub if_dropped: Option<u64>,
    /// Packets that the operating system dropped (`isb_osdrop`).
    pub os_dropped: Option<u64>,
}

/// What one step through a file found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A packet.
    Record(Record<'a>),
    /// Counters of the capture.
    Statistics(Statistics),
    /// A block that holds no packet.
    Other,
}

/// Where packets were captured: one per classic file, any number per pcapng section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Interface {
    /// What the interface's packets start with.
    pub link_type: LinkType,
    /// Most bytes that the capture keeps of a packet, 0 for no limit.
    pub snaplen_bytes: u32,
    /// Unit of the time stamps.
    pub resolution: Resolution,
    /// Seconds to add to the time stamps.
    pub offset_s: i64,
}

/// How the bytes of one capture file are cut. Cheap to clone: a clone cuts from where the original stood.
#[derive(Clone, Debug)]
pub enum Framing {
    /// Classic pcap: the same for the whole file.
    Pcap(pcap::Pcap),
    /// pcapng: byte order and interfaces of the section that is being read.
    Pcapng(pcapng::Section),
}

impl Framing {
    /// A record or block above this is called corrupt.
    pub const MAX_RECORD_BYTES: usize = 16 << 20;

    /// The framing of a file and the length of its header in bytes, from the file's first bytes.
    ///
    /// 24 bytes are enough for pcap, 12 for pcapng, whose header length is 0: its section header is a block that
    /// [`Self::next`] reads.
    ///
    /// # Errors
    /// `Truncated` when `head` is shorter than that, `Invalid` with field "magic" (first four bytes, in file order) when
    /// it is no capture file.
    pub fn detect(head: &[u8]) -> Result<(Self, usize), ParseError> {
        let magic = take::<4>(head, Layer::PcapHeader)?;
        if *magic == pcapng::SECTION_HEADER.to_be_bytes() {
            return Ok((Self::Pcapng(pcapng::Section::detect(head)?), 0));
        }
        let (pcap, header_bytes) = pcap::Pcap::detect(*magic, head)?;
        Ok((Self::Pcap(pcap), header_bytes))
    }

    /// The record or block at the start of `input`, and its length in bytes, which is never 0.
    ///
    /// # Errors
    /// `Truncated` when `input` ends first; with `needed` bytes the next call succeeds or names a larger need.
    /// `Invalid` when the file is corrupt. After an error the framing is what it was before.
    #[inline]
    pub fn next<'a>(&mut self, input: &'a [u8]) -> Result<(Item<'a>, usize), ParseError> {
        match self {
            Self::Pcap(pcap) => pcap.next(input).map(|(record, length)| (Item::Record(record), length)),
            Self::Pcapng(section) => section.next(input),
        }
    }

    /// Walks the whole records and blocks of `input`: gives each to `visit`. How far it came, and why it stopped where that is not the
    /// end.
    #[inline]
    pub fn walk<'a>(&mut self, input: &'a [u8], mut visit: impl FnMut(&Item<'a>)) -> (usize, Option<ParseError>) {
        let mut at = 0;
        // Told apart once and not at every record: an item that is moved through memory costs more than all else here.
        match self {
            Self::Pcap(pcap) => {
                while let Some(rest) = input.get(at..).filter(|rest| !rest.is_empty()) {
                    match pcap.next(rest) {
                        Ok((record, length)) => {
                            visit(&Item::Record(record));
                            at += length;
                        }
                        Err(error) => return (at, Some(error)),
                    }
                }
            }
            Self::Pcapng(section) => {
                while let Some(rest) = input.get(at..).filter(|rest| !rest.is_empty()) {
                    match section.next(rest) {
                        Ok((item, length)) => {
                            visit(&item);
                            at += length;
                        }
                        Err(error) => return (at, Some(error)),
                    }
                }
            }
        }
        (at, None)
    }

    /// The interfaces known at this point of the file.
    #[must_use]
    pub fn interfaces(&self) -> &[Interface] {
        match self {
            Self::Pcap(pcap) => core::slice::from_ref(pcap.interface()),
            Self::Pcapng(section) => section.interfaces(),
        }
    }
}

/// Order of the bytes of a number in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    const fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    const fn nom(self) -> Endianness {
        match self {
            Self::Little => Endianness::Little,
            Self::Big => Endianness::Big,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// Walks `file` to its end or first error: items found, and what stopped it.
    fn walk(file: &[u8]) -> (usize, Option<ParseError>) {
        let (mut framing, mut at) = match Framing::detect(file) {
            Ok(found) => found,
            Err(error) => return (0, Some(error)),
        };
        let mut items = 0;
        while at < file.len() {
            match framing.next(&file[at..]) {
                Ok((item, length)) => {
                    assert!(length > 0 && length <= file.len() - at);
                    if let Item::Record(record) = item {
                        assert!(record.original_bytes as usize >= record.data.len());
                        assert!(framing.interfaces().get(record.interface as usize).is_some());
                    }
                    (items, at) = (items + 1, at + length);
                }
                Err(error) => {
                    // Asking for no more than is there would be asked forever.
                    if let ErrorKind::Truncated { needed, available } = error.kind {
                        assert!(needed > available && available == file.len() - at);
                    }
                    return (items, Some(error));
                }
            }
        }
        (items, None)
    }

    #[test]
    fn names() {
        assert_eq!(std::format!("{}", LinkType::INFINIBAND), "InfiniBand (247)");
        assert_eq!(std::format!("{}", LinkType(147)), "unknown (147)");
    }

    #[test]
    fn not_a_capture_file() {
        let gzip = [0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 3, 0, 0];
        let error = Framing::detect(&gzip).unwrap_err();
        assert_eq!(error, ParseError::invalid(Layer::PcapHeader, "magic", 0x1F8B_0800));
    }

    #[test]
    fn detect_names_what_it_needs() {
        let need = |head: &[u8]| Framing::detect(head).unwrap_err();
        assert_eq!(need(&[]), ParseError::truncated(Layer::PcapHeader, 4, 0));
        assert_eq!(need(&[0x0A, 0x0D, 0x0D]), ParseError::truncated(Layer::PcapHeader, 4, 3));
        assert_eq!(need(&[0x0A, 0x0D, 0x0D, 0x0A]), ParseError::truncated(Layer::PcapHeader, 12, 4));
        assert_eq!(need(&[0xD4, 0xC3, 0xB2, 0xA1, 2]), ParseError::truncated(Layer::PcapHeader, 24, 5));
    }

    /// Bytes that get past the first checks more often than plain random ones.
    fn file() -> impl Strategy<Value = Vec<u8>> {
        let pcap = |magic: u32| {
            let mut head = magic.to_le_bytes().to_vec();
            head.extend([0; 20]);
            head
        };
        // A section with one interface, little-endian.
        let mut section = 0x0A0D_0D0A_u32.to_le_bytes().to_vec();
        section.extend([28, 0, 0, 0, 0x4D, 0x3C, 0x2B, 0x1A, 1, 0, 0, 0]);
        section.extend([0xFF; 8]);
        section.extend([28, 0, 0, 0]);
        section.extend([1, 0, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0]);
        let start = prop_oneof![
            Just(pcap(0xA1B2_C3D4)),
            Just(pcap(0xA1B2_3C4D)),
            Just(pcap(0xA1B2_CD34)),
            Just(section),
            Just(Vec::new())
        ];
        // Blocks with lengths that hold, so that the bodies are reached.
        let block = (0..8_u32, proptest::collection::vec(prop_oneof![0..4_u8, any::<u8>()], 0..16)).prop_map(
            |(block_type, words)| {
                let total = (12 + 4 * words.len()) as u32;
                let mut block = [block_type.to_le_bytes(), total.to_le_bytes()].concat();
                block.extend(words.iter().flat_map(|&word| [word, 0, 0, 0]));
                block.extend(total.to_le_bytes());
                block
            },
        );
        let blocks = proptest::collection::vec(block, 0..6).prop_map(|blocks| blocks.concat());
        let noise = proptest::collection::vec(prop_oneof![3 => 0..8_u8, 1 => any::<u8>()], 0..200);
        (start, blocks, noise).prop_map(|(start, blocks, noise)| [start, blocks, noise].concat())
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>) {
            walk(&bytes);
        }

        #[test]
        fn damaged_files_never_panic(bytes in file(), flip in any::<prop::sample::Index>(), value: u8) {
            walk(&bytes);
            let mut damaged = bytes;
            if !damaged.is_empty() {
                let at = flip.index(damaged.len());
                damaged[at] = value;
                walk(&damaged);
            }
        }
    }
}
