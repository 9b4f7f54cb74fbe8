//! ERF header at the start of a pcap record of link type 197 (Endace; wireshark `wiretap/erf.c`),
//! including the variant that ibdump writes.

use crate::error::{ParseError, take};
use crate::layer::Layer;
use crate::time::Resolution;

const HEADER_BYTES: usize = 16;
const EXTENSION_BYTES: usize = 8;
/// Offset byte and pad byte before the Ethernet header of [`ErfHeader::TYPE_ETHERNET`].
const ETHERNET_PAD_BYTES: usize = 2;
/// Bit 7 of the type and of the first byte of each extension header: another extension header
/// follows.
const MORE: u8 = 0x80;

/// ibdump's approximation of 2^32 / 10^6, which converts microseconds to a fraction of a second.
const IBDUMP_FACTOR: u64 = 4295;

/// Header of an ERF record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErfHeader {
    /// Time since the epoch in units of 2^-32 s; little-endian, unlike the other fields.
    pub timestamp: u64,
    /// Record type: the low seven bits of the type byte.
    pub record_type: u8,
    /// Bits 0-1 capture interface, 2 varying length, 3 truncated, 4 receive error, 5 internal
    /// error.
    pub flags: u8,
    /// Length of the record in bytes, header included. Do not split by it: it may include padding
    /// or exceed the pcap record.
    pub rlen: u16,
    /// Records lost before this one, or a color.
    pub loss_counter: u16,
    /// Length on the wire in bytes; for InfiniBand from the LRH through the VCRC.
    pub wlen: u16,
    /// Bytes before the packet: 16, plus 8 per extension header, plus 2 for
    /// [`Self::TYPE_ETHERNET`].
    pub header_bytes: usize,
}

impl ErfHeader {
    /// An Ethernet frame after two bytes of padding.
    pub const TYPE_ETHERNET: u8 = 2;
    /// InfiniBand packet starting at the LRH. ibdump also uses this type for Ethernet frames.
    pub const TYPE_INFINIBAND: u8 = 21;
    /// A flow-control packet of the InfiniBand link layer.
    pub const TYPE_INFINIBAND_LINK: u8 = 25;

    /// Parses the header at the start of a record's data.
    ///
    /// # Errors
    /// `Truncated` if `data` ends inside the header or an extension header.
    pub fn parse(data: &[u8]) -> Result<Self, ParseError> {
        let [t0, t1, t2, t3, t4, t5, t6, t7, kind, flags, r0, r1, l0, l1, w0, w1] =
            *take::<HEADER_BYTES>(data, Layer::Erf)?;
        let mut header_bytes = HEADER_BYTES;
        let mut more = kind & MORE != 0;
        while more {
            let Some(first) = data.get(header_bytes..).and_then(<[u8]>::first_chunk::<EXTENSION_BYTES>) else {
                return Err(ParseError::truncated(Layer::Erf, header_bytes + EXTENSION_BYTES, data.len()));
            };
            more = first[0] & MORE != 0;
            header_bytes += EXTENSION_BYTES;
        }
        let record_type = kind & !MORE;
        if record_type == Self::TYPE_ETHERNET {
            header_bytes += ETHERNET_PAD_BYTES;
            if data.len() < header_bytes {
                return Err(ParseError::truncated(Layer::Erf, header_bytes, data.len()));
            }
        }
        Ok(Self {
            timestamp: u64::from_le_bytes([t0, t1, t2, t3, t4, t5, t6, t7]),
            record_type,
            flags,
            rlen: u16::from_be_bytes([r0, r1]),
            loss_counter: u16::from_be_bytes([l0, l1]),
            wlen: u16::from_be_bytes([w0, w1]),
            header_bytes,
        })
    }

    /// Time in nanoseconds since the epoch, rounded down. In files that ibdump wrote, it is up to
    /// 7.6 µs too late, and a later record may have an earlier time.
    #[must_use]
    pub fn timestamp_ns(&self) -> i64 {
        Resolution::ERF.to_ns(self.timestamp, 0)
    }

    /// Recovers the microsecond timestamp that ibdump encoded as `seconds * 2^32 + microseconds *
    /// 4295`, in nanoseconds since the epoch; `None` for a header that ibdump did not write.
    ///
    /// A header counts as ibdump's if it has type 21, no loss, no extension, an `rlen` of exactly
    /// `wlen` + 16, and a fraction of this form. One in 4295 of all other fractions has this form
    /// too.
    #[must_use]
    pub fn ibdump_time_ns(&self) -> Option<i64> {
        let plain = self.record_type == Self::TYPE_INFINIBAND
            && self.header_bytes == HEADER_BYTES
            && self.loss_counter == 0
            && usize::from(self.rlen) == usize::from(self.wlen) + HEADER_BYTES;
        if !plain {
            return None;
        }
        let (mut seconds, mut fraction) = (self.timestamp >> 32, self.timestamp & 0xFFFF_FFFF);
        if !fraction.is_multiple_of(IBDUMP_FACTOR) {
            // From 999 993 µs on, the fraction exceeds 2^32 and carries into the seconds.
            seconds = seconds.checked_sub(1)?;
            fraction += 1 << 32;
        }
        let microseconds = fraction / IBDUMP_FACTOR;
        let ours = fraction.is_multiple_of(IBDUMP_FACTOR) && microseconds < 1_000_000;
        // The result is below 2^63 for every 32-bit second.
        ours.then_some((seconds * 1_000_000_000 + microseconds * 1_000).cast_signed())
    }
}

/// Packets that the capturing device lost between a record and the one before it, as the ERF header at
/// the start of `data` states. 0 if the header is truncated, and for record types other than the three
/// of [`ErfHeader`]: some of them use the field as a color.
#[must_use]
#[inline]
pub fn lost_before(data: &[u8]) -> u64 {
    const TYPES: [u8; 3] = [ErfHeader::TYPE_ETHERNET, ErfHeader::TYPE_INFINIBAND, ErfHeader::TYPE_INFINIBAND_LINK];
    match data.first_chunk::<HEADER_BYTES>() {
        Some(header) if TYPES.contains(&(header[8] & !MORE)) => u16::from_be_bytes([header[12], header[13]]).into(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hex_literal::hex;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// A header as ibdump writes it for a packet of 290 bytes.
    fn ibdump(timestamp: u64) -> Vec<u8> {
        [&timestamp.to_le_bytes()[..], &hex!("15 04 0132 0000 0122")].concat()
    }

    #[test]
    fn fields() {
        // 0.75 s, type 21, interface 1, rlen 312, lost 3, wlen 290.
        let header = ErfHeader::parse(&hex!("000000C0 67452301 15 05 0138 0003 0122 FFFF")).unwrap();
        let expected = ErfHeader {
            timestamp: 0x0123_4567_C000_0000,
            record_type: ErfHeader::TYPE_INFINIBAND,
            flags: 5,
            rlen: 312,
            loss_counter: 3,
            wlen: 290,
            header_bytes: 16,
        };
        assert_eq!(header, expected);
        assert_eq!(header.timestamp_ns(), 0x0123_4567 * 1_000_000_000 + 750_000_000);
        assert_eq!(header.ibdump_time_ns(), None);
    }

    #[test]
    fn extension_headers_and_ethernet_pad() {
        for (kind, extensions, expected) in [(21, 0, 16), (21, 1, 24), (21, 3, 40), (2, 0, 18), (2, 2, 34), (25, 1, 24)]
        {
            let mut data = std::vec![0; 16];
            data[8] = kind;
            for left in (0..extensions).rev() {
                let last = data.len() - 8;
                data[last] |= 0x80;
                // Bit 7 is ignored in the other bytes; the last extension header has it clear.
                data.extend([0x05, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, left]);
            }
            data.resize(data.len() + if kind == 2 { 2 } else { 0 }, 0);
            let header = ErfHeader::parse(&data).unwrap();
            assert_eq!((header.record_type, header.header_bytes), (kind, expected));
            assert_eq!(data.len(), expected);
            for cut in 0..data.len() {
                let error = ErfHeader::parse(&data[..cut]).unwrap_err();
                let needed = if cut < 16 { 16 } else { expected.min(16 + (cut - 16) / 8 * 8 + 8) };
                assert_eq!(error, ParseError::truncated(Layer::Erf, needed, cut));
            }
        }
    }

    /// Includes the microseconds from 999993 on, whose fraction overflows into the seconds.
    #[test]
    fn every_microsecond_of_ibdump() {
        let second = 1_700_000_000_u64;
        for microseconds in (0..1_000_000_u64).step_by(997).chain(999_980..1_000_000) {
            let timestamp = (second << 32) + microseconds * 4295;
            let header = ErfHeader::parse(&ibdump(timestamp)).unwrap();
            let time_ns = 1_700_000_000_000_000_000 + microseconds.cast_signed() * 1_000;
            assert_eq!(header.ibdump_time_ns(), Some(time_ns), "{microseconds}");
            // 4295 is 0.032704 units too long, 7.614 ps: at most 7614 ns within a second.
            let drift_ns = header.timestamp_ns() - time_ns;
            assert!((0..=7_614).contains(&drift_ns), "{microseconds}: {drift_ns}");
        }
    }

    #[test]
    fn headers_that_ibdump_did_not_write() {
        let good = ibdump((9 << 32) + 4295 * 12);
        let time = |data: &[u8]| ErfHeader::parse(data).unwrap().ibdump_time_ns();
        assert_eq!(time(&good), Some(9_000_012_000));
        // Another type, a loss, a padded rlen.
        for (at, value) in [(8, 24), (13, 1), (11, 0x38)] {
            let mut other = good.clone();
            other[at] = value;
            assert_eq!(time(&other), None, "byte {at}");
        }
        let mut extended = good.clone();
        extended[8] |= 0x80;
        extended.extend([0; 8]);
        assert_eq!(time(&extended), None);
        assert_eq!(time(&ibdump((9 << 32) + 4295 * 12 + 1)), None);
        // Looks like a carry, but the fraction would be a full second:
        // (2^32 + 4295 * 7 + 2639) / 4295 = 1 000 000 µs.
        assert_eq!(time(&ibdump((9 << 32) + 2639 + 4295 * 6)), Some(8_999_999_000));
        assert_eq!(time(&ibdump((9 << 32) + 2639 + 4295 * 7)), None);
        assert_eq!(time(&ibdump(2639)), None);
    }

    /// Types 2 (Ethernet), 21 (InfiniBand) and 25 (InfiniBand link) have a loss counter. Type 11 has a
    /// color in its place.
    #[test]
    fn lost_packets_are_those_of_the_loss_counter() {
        let with = |record_type: u8| {
            let mut data = ibdump(0);
            data[8] = record_type;
            data[12..14].copy_from_slice(&[1, 2]);
            data
        };
        for (record_type, lost) in [(2, 258), (21, 258), (25, 258), (0x15 | 0x80, 258), (11, 0), (16, 0), (27, 0)] {
            assert_eq!(lost_before(&with(record_type)), lost, "type {record_type}");
        }
        assert_eq!(lost_before(&ibdump(0)), 0);
        assert_eq!(lost_before(&with(21)[..15]), 0);
    }

    #[test]
    fn longest_rlen_does_not_wrap() {
        let mut data = ibdump(0);
        data[10..12].copy_from_slice(&[0, 15]);
        data[14..16].copy_from_slice(&[0xFF, 0xFF]);
        assert_eq!(ErfHeader::parse(&data).unwrap().ibdump_time_ns(), None);
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(data: Vec<u8>) {
            if let Ok(header) = ErfHeader::parse(&data) {
                prop_assert!(header.header_bytes <= data.len());
                prop_assert!(header.timestamp_ns() >= 0);
                let _ = header.ibdump_time_ns();
            }
        }
    }
}
