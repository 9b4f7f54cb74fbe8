//! Splits a capture file into records: classic pcap, pcapng, and the ERF header inside a record.
//!
//! In: bytes that start at a record or block. Out: the record's bytes, its time in nanoseconds
//! since the epoch, its link type, and the number of bytes consumed. The caller reads the file and
//! supplies more bytes on `Truncated`:
//! ```
//! # use ibscope_parsers::frame::{CaptureItem, Framing};
//! # fn main() -> Result<(), ibscope_parsers::ParseError> {
//! # let mut file = vec![0xD4, 0xC3, 0xB2, 0xA1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0, 0, 247, 0, 0, 0];
//! # file.extend([1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0, 7, 8, 9]);
//! let (mut framing, mut at) = Framing::detect(&file)?;
//! while at < file.len() {
//!     let (item, length) = framing.next(&file[at..])?;
//!     if let CaptureItem::Record(record) = item {
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

/// Protocol at the start of a record's data: a `LINKTYPE_` number from the tcpdump group's list.
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
    /// Linux netlink messages after a cooked header.
    pub const NETLINK: Self = Self(253);
    /// InfiniBand local route header.
    pub const INFINIBAND: Self = Self(247);
    /// Linux cooked header, version 2.
    pub const SLL2: Self = Self(276);

    /// Name used in messages; "unknown" for link types that this crate does not parse.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ETHERNET => "Ethernet",
            Self::RAW => "raw IP",
            Self::SLL => "Linux cooked v1",
            Self::ERF => "ERF",
            Self::IPOIB => "IP over InfiniBand",
            Self::NETLINK => "Linux netlink",
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
    /// Time in nanoseconds since the epoch; `None` for a simple packet block of pcapng, which has
    /// no timestamp.
    pub time_ns: Option<i64>,
    /// Link type of `data`.
    pub link_type: LinkType,
    /// Index into [`Framing::interfaces`], 0 for classic pcap.
    pub interface: u32,
    /// The captured bytes.
    pub data: &'a [u8],
    /// Length of the packet before truncation; at least `data.len()`, even if the file claims less.
    pub original_bytes: u32,
}

/// Packet counters that the capturing program wrote for one interface (pcapng interface statistics
/// block).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Index into [`Framing::interfaces`]; not checked.
    pub interface: u32,
    /// Packets received (`isb_ifrecv`).
    pub received: Option<u64>,
    /// Packets that the interface dropped for lack of resources (`isb_ifdrop`).
    pub if_dropped: Option<u64>,
    /// Packets that the operating system dropped (`isb_osdrop`).
    pub os_dropped: Option<u64>,
}

/// Packets that the capturing interfaces dropped, as a pcapng file states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceDrops {
    /// The dropped packets. Packet blocks and statistics blocks may state the same ones, so of each
    /// interface the larger sum counts.
    pub packets: u64,
    /// Blocks that state drops and are not counted, because the section has too many interfaces.
    pub left_out: u64,
}

/// Item found by one step through a capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureItem<'a> {
    /// A packet.
    Record(Record<'a>),
    /// Counters of the capture.
    Statistics(Statistics),
    /// A block that holds no packet.
    Other,
}

/// Interface on which packets were captured: one per classic pcap file, any number per pcapng
/// section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Interface {
    /// Link type of the interface's packets.
    pub link_type: LinkType,
    /// Snap length in bytes; 0 for no limit.
    pub snaplen_bytes: u32,
    /// Unit of the timestamps.
    pub resolution: Resolution,
    /// Seconds to add to the timestamps.
    pub offset_s: i64,
}

/// State of the walk through one capture file. Cheap to clone; a clone continues at the position
/// where it was made.
#[derive(Clone, Debug)]
pub enum Framing {
    /// Classic pcap: parameters of the whole file.
    Pcap(pcap::Pcap),
    /// pcapng: byte order and interfaces of the current section.
    Pcapng(pcapng::Section),
}

impl Framing {
    /// Records and blocks above this length are treated as corrupt.
    pub const MAX_RECORD_BYTES: usize = 16 << 20;

    /// Detects the format of a file from its first bytes; returns its framing and the length of its
    /// header in bytes.
    ///
    /// pcap needs 24 bytes; pcapng needs 12 and has header length 0, because [`Self::next`] reads
    /// its section header as a block.
    ///
    /// # Errors
    /// `Truncated` if `head` is too short; `Invalid` with field "magic" (the first four bytes in
    /// file order) if the file is no capture file.
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
    /// `Truncated` if `input` ends first: a call with `needed` bytes succeeds or asks for more.
    /// `Invalid` if the file is corrupt. An error leaves the framing unchanged.
    #[inline]
    pub fn next<'a>(&mut self, input: &'a [u8]) -> Result<(CaptureItem<'a>, usize), ParseError> {
        match self {
            Self::Pcap(pcap) => pcap.next(input).map(|(record, length)| (CaptureItem::Record(record), length)),
            Self::Pcapng(section) => section.next(input),
        }
    }

    /// Passes every whole record and block of `input` to `visit`. Returns the number of bytes
    /// consumed, and the error if the walk stopped before the end.
    #[inline]
    pub fn walk<'a>(
        &mut self,
        input: &'a [u8],
        mut visit: impl FnMut(&CaptureItem<'a>),
    ) -> (usize, Option<ParseError>) {
        let mut at = 0;
        // Match on the format once, not per record: moving an item through memory costs more than
        // all other work here.
        match self {
            Self::Pcap(pcap) => {
                while let Some(rest) = input.get(at..).filter(|rest| !rest.is_empty()) {
                    match pcap.next(rest) {
                        Ok((record, length)) => {
                            visit(&CaptureItem::Record(record));
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

    /// Packets that the interfaces dropped, as the blocks of a pcapng file up to the current position
    /// state. It only grows. In a classic file only ERF headers state drops: see
    /// [`erf::lost_before`].
    #[must_use]
    pub fn interface_drops(&self) -> InterfaceDrops {
        match self {
            Self::Pcap(_) => InterfaceDrops::default(),
            Self::Pcapng(section) => section.interface_drops(),
        }
    }

    /// Interfaces described up to the current position in the file.
    #[must_use]
    pub fn interfaces(&self) -> &[Interface] {
        match self {
            Self::Pcap(pcap) => core::slice::from_ref(pcap.interface()),
            Self::Pcapng(section) => section.interfaces(),
        }
    }
}

/// Byte order of numbers in a file.
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

    /// Walks `file` to its end or its first error; returns the number of items and the error.
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
                    if let CaptureItem::Record(record) = item {
                        assert!(record.original_bytes as usize >= record.data.len());
                        assert!(framing.interfaces().get(record.interface as usize).is_some());
                    }
                    (items, at) = (items + 1, at + length);
                }
                Err(error) => {
                    // A caller that is asked for no more bytes than it has would loop forever.
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

    /// Files that pass the first checks more often than random bytes do.
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
        // Blocks with consistent lengths, so that the parser reaches their bodies.
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
