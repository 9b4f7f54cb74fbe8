//! Local route header: the first 8 bytes of every packet on an InfiniBand link.

use crate::error::take;
use crate::field::Lid;
use crate::{Layer, ParseError};

/// Local route header (InfiniBand Architecture 7.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lrh {
    /// Virtual lane, 4 bits.
    pub vl: u8,
    /// Link version, 4 bits; 0 in every version of the architecture so far.
    pub lver: u8,
    /// Service level, 4 bits.
    pub sl: u8,
    /// Link next header, 2 bits: 0 raw, 1 raw IPv6, 2 transport (BTH next), 3 global transport (GRH
    /// next).
    pub lnh: u8,
    /// Destination port.
    pub dlid: Lid,
    /// Length in words of 4 bytes from the LRH's first byte through the ICRC, 11 bits.
    pub pkt_len: u16,
    /// Source port.
    pub slid: Lid,
}

impl Lrh {
    /// Length in bytes.
    pub const LEN: usize = 8;
    /// `lnh` of a packet whose BTH follows the LRH.
    pub const LNH_LOCAL: u8 = 2;
    /// `lnh` of a packet whose GRH follows the LRH.
    pub const LNH_GLOBAL: u8 = 3;

    /// Parses the header from the first 8 bytes and ignores reserved bits.
    ///
    /// # Errors
    /// `input` is shorter than 8 bytes.
    #[inline]
    pub fn parse(input: &[u8]) -> Result<Self, ParseError> {
        let bytes = take::<{ Self::LEN }>(input, Layer::Lrh)?;
        Ok(Self {
            vl: bytes[0] >> 4,
            lver: bytes[0] & 0x0F,
            sl: bytes[1] >> 4,
            lnh: bytes[1] & 0x03,
            dlid: Lid(u16::from_be_bytes([bytes[2], bytes[3]])),
            pkt_len: u16::from_be_bytes([bytes[4], bytes[5]]) & 0x07FF,
            slid: Lid(u16::from_be_bytes([bytes[6], bytes[7]])),
        })
    }

    /// The header in wire format, reserved bits 0.
    #[must_use]
    pub const fn to_bytes(&self) -> [u8; Self::LEN] {
        let dlid = self.dlid.0.to_be_bytes();
        let words = (self.pkt_len & 0x07FF).to_be_bytes();
        let slid = self.slid.0.to_be_bytes();
        [
            self.vl << 4 | self.lver & 0x0F,
            self.sl << 4 | self.lnh & 0x03,
            dlid[0],
            dlid[1],
            words[0],
            words[1],
            slid[0],
            slid[1],
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ib::samples::NATIVE_ACK;
    use proptest::prelude::*;

    #[test]
    fn fields_are_at_the_offsets_of_the_specification() {
        // VL 2, LVer 0, SL 3, LNH 2, DLID 0x12, 7 words, SLID 0x11: 4 * 7 bytes and 2 of VCRC are
        // the whole packet.
        let lrh = Lrh::parse(&NATIVE_ACK).unwrap();
        let expected = Lrh { vl: 2, lver: 0, sl: 3, lnh: 2, dlid: Lid(0x12), pkt_len: 7, slid: Lid(0x11) };
        assert_eq!(lrh, expected);
        assert_eq!(usize::from(lrh.pkt_len) * 4 + 2, NATIVE_ACK.len());
    }

    #[test]
    fn reserved_bits_are_ignored() {
        let plain = Lrh::parse(&[0; 8]).unwrap();
        assert_eq!(Lrh::parse(&[0, 0x0C, 0, 0, 0xF8, 0, 0, 0]).unwrap(), plain);
    }

    #[test]
    fn seven_bytes_are_too_few() {
        assert_eq!(Lrh::parse(&[0; 7]), Err(ParseError::truncated(Layer::Lrh, 8, 7)));
    }

    proptest! {
        #[test]
        fn written_headers_read_back(
            vl in 0u8..16, lver in 0u8..16, sl in 0u8..16, lnh in 0u8..4, dlid: u16, pkt_len in 0u16..2048, slid: u16,
        ) {
            let lrh = Lrh { vl, lver, sl, lnh, dlid: Lid(dlid), pkt_len, slid: Lid(slid) };
            prop_assert_eq!(Lrh::parse(&lrh.to_bytes()), Ok(lrh));
        }
    }
}
