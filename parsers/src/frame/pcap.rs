//! Classic pcap (libpcap `sf-pcap.c`): a 24-byte file header, then records of a 16- or 24-byte
//! header and data.

use super::{ByteOrder, Framing, Interface, LinkType, Record};
use crate::error::ParseError;
use crate::layer::Layer;
use crate::time::Resolution;
use nom::Parser as _;
use nom::bytes::complete::take;
use nom::number::complete::u32;

/// Length of the file header in bytes.
pub const FILE_HEADER_BYTES: usize = 24;

const MAGIC_US: u32 = 0xA1B2_C3D4;
const MAGIC_NS: u32 = 0xA1B2_3C4D;
/// Kuznetzov's patch: interface index, protocol and packet type follow the usual record header.
const MAGIC_MODIFIED: u32 = 0xA1B2_CD34;

/// Parameters of a classic pcap file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pcap {
    order: ByteOrder,
    /// Nanoseconds per unit of the timestamp's fraction: 1000 or 1.
    fraction_ns: u32,
    /// 16 or 24.
    record_header_bytes: usize,
    interface: Interface,
}

/// The four numbers at the start of every record header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordHeader {
    pub(super) seconds: u32,
    /// In the unit that the file's magic number selects.
    pub(super) fraction: u32,
    pub(super) incl_len: u32,
    pub(super) orig_len: u32,
}

impl RecordHeader {
    const ZEROS: Self = Self { seconds: 0, fraction: 0, incl_len: 0, orig_len: 0 };
}

impl Pcap {
    pub(super) fn detect(magic: [u8; 4], head: &[u8]) -> Result<(Self, usize), ParseError> {
        let little = u32::from_le_bytes(magic);
        let big = u32::from_be_bytes(magic);
        let known = |value| matches!(value, MAGIC_US | MAGIC_NS | MAGIC_MODIFIED);
        let (order, magic) = if known(little) {
            (ByteOrder::Little, little)
        } else if known(big) {
            (ByteOrder::Big, big)
        } else {
            return Err(ParseError::invalid(Layer::PcapHeader, "magic", u64::from(big)));
        };
        let (snaplen_bytes, network) =
            limits(order, head).ok_or(ParseError::truncated(Layer::PcapHeader, FILE_HEADER_BYTES, head.len()))?;
        let nanoseconds = magic == MAGIC_NS;
        let pcap = Self {
            order,
            fraction_ns: if nanoseconds { 1 } else { 1_000 },
            record_header_bytes: if magic == MAGIC_MODIFIED { 24 } else { 16 },
            interface: Interface {
                // The upper half of the field holds the length of the frame check sequence, or 0.
                link_type: LinkType(network as u16),
                snaplen_bytes,
                resolution: if nanoseconds { Resolution::NANOSECONDS } else { Resolution::MICROSECONDS },
                offset_s: 0,
            },
        };
        Ok((pcap, FILE_HEADER_BYTES))
    }

    /// The record at the start of `input`, and its length in bytes with its header. Runs for every
    /// packet of a file, so it reads fields of fixed size and allocates nothing.
    #[inline]
    pub(super) fn next<'a>(&self, input: &'a [u8]) -> Result<(Record<'a>, usize), ParseError> {
        let Some(header) = self.header(input) else {
            return Err(ParseError::truncated(Layer::PcapRecord, self.record_header_bytes, input.len()));
        };
        // A host that crashed may leave zeros at the end of its files. They would be records of no bytes,
        // captured in 1970.
        if header == RecordHeader::ZEROS {
            return Err(ParseError::invalid(Layer::PcapRecord, "header", 0));
        }
        let captured_bytes = header.incl_len as usize;
        if captured_bytes > Framing::MAX_RECORD_BYTES {
            return Err(ParseError::invalid(Layer::PcapRecord, "incl_len", u64::from(header.incl_len)));
        }
        let length = self.record_header_bytes + captured_bytes;
        let Some(data) = input.get(self.record_header_bytes..length) else {
            return Err(ParseError::truncated(Layer::PcapRecord, length, input.len()));
        };
        let record = Record {
            // A fraction of more than a second: the magic number has the wrong unit, or the header is damaged.
            time_ns: (header.fraction < self.fractions_per_second()).then(|| self.time_ns(header)),
            link_type: self.interface.link_type,
            interface: 0,
            data,
            original_bytes: header.orig_len.max(header.incl_len),
        };
        Ok((record, length))
    }

    /// The record header at the start of `input`; `None` if `input` ends inside it.
    #[inline]
    pub(super) fn header(&self, input: &[u8]) -> Option<RecordHeader> {
        if input.len() < self.record_header_bytes {
            return None;
        }
        let h = input.first_chunk::<16>()?;
        Some(RecordHeader {
            seconds: self.order.u32([h[0], h[1], h[2], h[3]]),
            fraction: self.order.u32([h[4], h[5], h[6], h[7]]),
            incl_len: self.order.u32([h[8], h[9], h[10], h[11]]),
            orig_len: self.order.u32([h[12], h[13], h[14], h[15]]),
        })
    }

    /// Time in nanoseconds since the epoch. No pair of u32 values overflows an i64.
    #[inline]
    pub(super) const fn time_ns(&self, header: RecordHeader) -> i64 {
        header.seconds as i64 * 1_000_000_000 + header.fraction as i64 * self.fraction_ns as i64
    }

    /// Units of the timestamp's fraction per second.
    pub(super) const fn fractions_per_second(&self) -> u32 {
        1_000_000_000 / self.fraction_ns
    }

    pub(super) const fn record_header_bytes(&self) -> usize {
        self.record_header_bytes
    }

    pub(super) const fn interface(&self) -> &Interface {
        &self.interface
    }
}

/// Fields snaplen and network of the file header. Magic, version, time zone and accuracy are
/// skipped.
fn limits(order: ByteOrder, head: &[u8]) -> Option<(u32, u32)> {
    let number = || u32::<_, ()>(order.nom());
    let (_, (_, snaplen, network)) = (take(16_usize), number(), number()).parse(head).ok()?;
    Some((snaplen, network))
}

#[cfg(test)]
mod tests {
    use super::super::CaptureItem;
    use super::*;
    use std::vec::Vec;

    type Put = fn(u32) -> [u8; 4];
    const ORDERS: [Put; 2] = [u32::to_le_bytes, u32::to_be_bytes];

    fn file_header(put: Put, magic: u32, network: u32) -> Vec<u8> {
        // The version field is left 0: the parser does not read it.
        [magic, 0, 0, 0, 65535, network].into_iter().flat_map(put).collect()
    }

    fn record(put: Put, header: [u32; 4], extra: usize, data: &[u8]) -> Vec<u8> {
        let mut bytes: Vec<u8> = header.into_iter().flat_map(put).collect();
        bytes.resize(16 + extra, 0xEE);
        bytes.extend(data);
        bytes
    }

    /// The time of a record is unknown if its fraction is not below a second.
    #[test]
    fn a_fraction_of_more_than_a_second_is_no_time() {
        for (magic, per_second) in [(MAGIC_US, 1_000_000), (MAGIC_NS, 1_000_000_000)] {
            for (fraction, has_time) in [(per_second - 1, true), (per_second, false), (u32::MAX, false)] {
                let mut file = file_header(u32::to_le_bytes, magic, 247);
                file.extend(record(u32::to_le_bytes, [7, fraction, 1, 1], 0, b"x"));
                let (mut framing, start) = Framing::detect(&file[..24]).unwrap();
                let CaptureItem::Record(record) = framing.next(&file[start..]).unwrap().0 else { panic!("no record") };
                assert_eq!((record.time_ns.is_some(), record.data), (has_time, &b"x"[..]), "{magic:#x} {fraction}");
            }
        }
    }

    /// Two records with every magic number and byte order.
    #[test]
    fn every_magic_in_both_orders() {
        for put in ORDERS {
            for (magic, unit_ns, extra) in [(0xA1B2_C3D4, 1_000, 0), (0xA1B2_3C4D, 1, 0), (0xA1B2_CD34, 1_000, 8)] {
                let mut file = file_header(put, magic, 247);
                file.extend(record(put, [1_700_000_000, 999_999, 5, 90], extra, b"hello"));
                file.extend(record(put, [u32::MAX, 1, 0, 0], extra, b""));
                let (mut framing, start) = Framing::detect(&file[..24]).unwrap();
                assert_eq!(start, 24);
                let (item, length) = framing.next(&file[start..]).unwrap();
                assert_eq!(length, 16 + extra + 5);
                let expected = Record {
                    time_ns: Some(1_700_000_000_000_000_000 + 999_999 * unit_ns),
                    link_type: LinkType::INFINIBAND,
                    interface: 0,
                    data: b"hello",
                    original_bytes: 90,
                };
                assert_eq!(item, CaptureItem::Record(expected), "{magic:#x}");
                let (item, last) = framing.next(&file[start + length..]).unwrap();
                let CaptureItem::Record(record) = item else { panic!("no record") };
                assert_eq!((record.time_ns, record.data), (Some(4_294_967_295_000_000_000 + unit_ns), &[][..]));
                assert_eq!(start + length + last, file.len());
            }
        }
    }

    /// Zeros are no record, but a record without data is.
    #[test]
    fn zeros_are_no_record() {
        for put in ORDERS {
            let (mut framing, _) = Framing::detect(&file_header(put, 0xA1B2_3C4D, 247)).unwrap();
            let error = framing.next(&[0; 64]).unwrap_err();
            assert_eq!(error, ParseError::invalid(Layer::PcapRecord, "header", 0));
            assert!(framing.next(&record(put, [1, 0, 0, 0], 0, b"")).is_ok());
            assert!(framing.next(&record(put, [0, 0, 0, 60], 0, b"")).is_ok());
        }
    }

    #[test]
    fn upper_half_of_network_is_no_link_type() {
        for put in ORDERS {
            // 0x14: a frame check sequence of two 16-bit words is present.
            let (framing, _) = Framing::detect(&file_header(put, 0xA1B2_C3D4, 0x1400_0001)).unwrap();
            let [interface] = framing.interfaces() else { panic!("one interface") };
            assert_eq!(interface.link_type, LinkType::ETHERNET);
            assert_eq!(interface.snaplen_bytes, 65535);
            assert_eq!((interface.resolution, interface.offset_s), (Resolution::MICROSECONDS, 0));
        }
    }

    #[test]
    fn truncated_at_every_byte() {
        for (magic, header) in [(0xA1B2_C3D4, 16), (0xA1B2_CD34, 24)] {
            let put = u32::to_le_bytes as Put;
            let (mut framing, _) = Framing::detect(&file_header(put, magic, 1)).unwrap();
            let bytes = record(put, [1, 2, 7, 7], header - 16, b"1234567");
            for cut in 0..bytes.len() {
                let error = framing.next(&bytes[..cut]).unwrap_err();
                let needed = if cut < header { header } else { header + 7 };
                assert_eq!(error, ParseError::truncated(Layer::PcapRecord, needed, cut));
            }
            assert_eq!(framing.next(&bytes).unwrap().1, bytes.len());
        }
    }

    #[test]
    fn file_header_truncated_at_every_byte() {
        let header = file_header(u32::to_be_bytes, 0xA1B2_3C4D, 1);
        for cut in 4..24 {
            let error = Framing::detect(&header[..cut]).unwrap_err();
            assert_eq!(error, ParseError::truncated(Layer::PcapHeader, 24, cut));
        }
    }

    #[test]
    fn length_above_the_limit_is_corrupt() {
        let put = u32::to_le_bytes as Put;
        let (mut framing, _) = Framing::detect(&file_header(put, 0xA1B2_C3D4, 1)).unwrap();
        let limit = 16 << 20;
        let error = framing.next(&record(put, [0, 0, limit + 1, 0], 0, b"")).unwrap_err();
        assert_eq!(error, ParseError::invalid(Layer::PcapRecord, "incl_len", 16_777_217));
        let error = framing.next(&record(put, [0, 0, limit, 0], 0, b"")).unwrap_err();
        assert_eq!(error, ParseError::truncated(Layer::PcapRecord, 16_777_232, 16));
    }

    #[test]
    fn original_length_below_the_captured_one() {
        let put = u32::to_le_bytes as Put;
        let (mut framing, _) = Framing::detect(&file_header(put, 0xA1B2_C3D4, 1)).unwrap();
        let bytes = record(put, [0, 0, 3, 0], 0, b"abc");
        let (CaptureItem::Record(record), 19) = framing.next(&bytes).unwrap() else { panic!("no record") };
        assert_eq!(record.original_bytes, 3);
    }
}
