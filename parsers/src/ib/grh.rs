//! Global route header: 40 bytes in the layout of an IPv6 header.

use crate::error::take;
use crate::{Layer, ParseError};

/// Global route header (InfiniBand Architecture 8.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grh {
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Length in bytes from the end of the GRH through the ICRC.
    pub pay_len: u16,
    /// Next header: [`Grh::NEXT_HEADER_IBA`] if a BTH follows.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source GID.
    pub sgid: [u8; 16],
    /// Destination GID.
    pub dgid: [u8; 16],
}

impl Grh {
    /// Length in bytes.
    pub const LEN: usize = 40;
    /// `next_header` of the InfiniBand transport.
    pub const NEXT_HEADER_IBA: u8 = 0x1B;

    /// Parses the header from the first 40 bytes.
    ///
    /// # Errors
    /// `input` is shorter than 40 bytes, or the IP version is not 6.
    pub fn parse(input: &[u8]) -> Result<Self, ParseError> {
        let bytes = take::<{ Self::LEN }>(input, Layer::Grh)?;
        if bytes[0] >> 4 != 6 {
            return Err(ParseError::invalid(Layer::Grh, "IPVer", u64::from(bytes[0] >> 4)));
        }
        let mut sgid = [0; 16];
        sgid.copy_from_slice(&bytes[8..24]);
        let mut dgid = [0; 16];
        dgid.copy_from_slice(&bytes[24..40]);
        Ok(Self {
            traffic_class: bytes[0] << 4 | bytes[1] >> 4,
            flow_label: u32::from_be_bytes([0, bytes[1] & 0x0F, bytes[2], bytes[3]]),
            pay_len: u16::from_be_bytes([bytes[4], bytes[5]]),
            next_header: bytes[6],
            hop_limit: bytes[7],
            sgid,
            dgid,
        })
    }

    /// The header in wire format, with IP version 6.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0x000F_FFFF;
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&first.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.pay_len.to_be_bytes());
        bytes[6] = self.next_header;
        bytes[7] = self.hop_limit;
        bytes[8..24].copy_from_slice(&self.sgid);
        bytes[24..].copy_from_slice(&self.dgid);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ib::samples::NATIVE_GLOBAL;
    use hex_literal::hex;
    use proptest::prelude::*;

    #[test]
    fn fields_are_at_the_offsets_of_the_specification() {
        let expected = Grh {
            traffic_class: 0x5A,
            flow_label: 0xA_BCDE,
            pay_len: 32,
            next_header: 0x1B,
            hop_limit: 0x3F,
            sgid: hex!("fe80000000000000 0002c90300a1b2c3"),
            dgid: hex!("fe80000000000000 0002c90300d4e5f6"),
        };
        assert_eq!(Grh::parse(&NATIVE_GLOBAL[8..]), Ok(expected));
        // The length counts the bytes after the GRH, without the 2 bytes of VCRC.
        assert_eq!(NATIVE_GLOBAL.len(), 8 + Grh::LEN + 32 + 2);
    }

    #[test]
    fn only_version_6_is_a_grh() {
        let mut bytes = [0; 40];
        bytes[0] = 0x45;
        assert_eq!(Grh::parse(&bytes), Err(ParseError::invalid(Layer::Grh, "IPVer", 4)));
        assert_eq!(Grh::parse(&bytes[..39]), Err(ParseError::truncated(Layer::Grh, 40, 39)));
    }

    proptest! {
        #[test]
        fn written_headers_read_back(
            traffic_class: u8, flow_label in 0u32..1 << 20, pay_len: u16, next_header: u8, hop_limit: u8,
            sgid: [u8; 16], dgid: [u8; 16],
        ) {
            let grh = Grh { traffic_class, flow_label, pay_len, next_header, hop_limit, sgid, dgid };
            prop_assert_eq!(Grh::parse(&grh.to_bytes()), Ok(grh));
        }
    }
}
