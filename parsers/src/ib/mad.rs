//! Management datagrams: the header common to all classes.

use crate::error::take;
use crate::ib::{be16, be32, be64};
use crate::{Layer, ParseError};

/// Header of a management datagram (InfiniBand Architecture 13.4.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MadHeader {
    /// Version of the base format, 1.
    pub base_version: u8,
    /// Management class.
    pub class: u8,
    /// Version of the class format.
    pub class_version: u8,
    /// Method; bit 7 is set in responses.
    pub method: u8,
    /// Status; bit 15 is the direction in directed-route packets.
    pub status: u16,
    /// Class-specific field; hop pointer and hop count in directed-route packets.
    pub class_specific: u16,
    /// Transaction id.
    pub tid: u64,
    /// Attribute id: the object that the datagram reads or writes.
    pub attr_id: u16,
    /// Attribute modifier.
    pub attr_mod: u32,
}

impl MadHeader {
    /// Length in bytes.
    pub const LEN: usize = 24;
    /// Subnet management, routed by LID.
    pub const CLASS_SM_LID: u8 = 0x01;
    /// Subnet management, directed route.
    pub const CLASS_SM_DIRECTED: u8 = 0x81;
    /// Subnet administration.
    pub const CLASS_SA: u8 = 0x03;
    /// Performance management.
    pub const CLASS_PERFORMANCE: u8 = 0x04;
    /// Baseboard management.
    pub const CLASS_BASEBOARD: u8 = 0x05;
    /// Device management.
    pub const CLASS_DEVICE: u8 = 0x06;
    /// Communication management.
    pub const CLASS_CM: u8 = 0x07;
    /// SNMP tunneling.
    pub const CLASS_SNMP: u8 = 0x08;
    /// Congestion control.
    pub const CLASS_CONGESTION: u8 = 0x21;
    /// Aggregation management (SHARP): the vendor class that NVIDIA's switches use
    /// (`IBIS_IB_CLASS_AM` of `ibutils2`).
    pub const CLASS_AGGREGATION: u8 = 0x0B;

    /// Parses the header from the first 24 bytes.
    ///
    /// # Errors
    /// `input` is shorter than 24 bytes.
    pub fn parse(input: &[u8]) -> Result<Self, ParseError> {
        let bytes = take::<{ Self::LEN }>(input, Layer::Mad)?;
        Ok(Self {
            base_version: bytes[0],
            class: bytes[1],
            class_version: bytes[2],
            method: bytes[3],
            status: be16(bytes, 4),
            class_specific: be16(bytes, 6),
            tid: be64(bytes, 8),
            attr_id: be16(bytes, 16),
            attr_mod: be32(bytes, 20),
        })
    }

    /// The header in wire format, reserved bits 0.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&[self.base_version, self.class, self.class_version, self.method]);
        bytes[4..6].copy_from_slice(&self.status.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.class_specific.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.tid.to_be_bytes());
        bytes[16..18].copy_from_slice(&self.attr_id.to_be_bytes());
        bytes[20..].copy_from_slice(&self.attr_mod.to_be_bytes());
        bytes
    }

    /// True for the response to a request.
    #[must_use]
    pub const fn is_response(&self) -> bool {
        self.method & 0x80 != 0
    }

    /// Name of the class used in messages and outputs.
    #[must_use]
    pub const fn class_name(&self) -> &'static str {
        match self.class {
            Self::CLASS_SM_LID => "subnet management",
            Self::CLASS_SM_DIRECTED => "subnet management, directed route",
            Self::CLASS_SA => "subnet administration",
            Self::CLASS_PERFORMANCE => "performance management",
            Self::CLASS_BASEBOARD => "baseboard management",
            Self::CLASS_DEVICE => "device management",
            Self::CLASS_CM => "communication management",
            Self::CLASS_SNMP => "SNMP tunneling",
            Self::CLASS_CONGESTION => "congestion control",
            Self::CLASS_AGGREGATION => "vendor, range 1: SHARP aggregation management",
            0x09..=0x0F => "vendor, range 1",
            0x30..=0x4F => "vendor, range 2",
            _ => "unknown class",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ib::samples::CM_REQ;
    use proptest::prelude::*;

    #[test]
    fn a_recorded_header_is_parsed() {
        // Ethernet 14, IPv4 20, UDP 8, BTH 12, DETH 8.
        let mad = MadHeader::parse(&CM_REQ[62..]).unwrap();
        let expected = MadHeader {
            base_version: 1,
            class: 0x07,
            class_version: 2,
            method: 0x03,
            status: 0,
            class_specific: 0,
            tid: 0x0000_0002_999B_2D97,
            attr_id: 0x10,
            attr_mod: 0,
        };
        assert_eq!(mad, expected);
        assert_eq!(mad.class_name(), "communication management");
        assert!(!mad.is_response());
    }

    #[test]
    fn responses_have_the_top_bit_of_the_method() {
        let mut bytes = [0; MadHeader::LEN];
        for (method, response) in [(0x01, false), (0x02, false), (0x12, false), (0x81, true), (0x86, true)] {
            bytes[3] = method;
            assert_eq!(MadHeader::parse(&bytes).unwrap().is_response(), response);
        }
        assert_eq!(MadHeader::parse(&bytes[..23]), Err(ParseError::truncated(Layer::Mad, 24, 23)));
    }

    #[test]
    fn classes_have_the_names_of_the_specification() {
        let name = |class| {
            let mut bytes = [0; MadHeader::LEN];
            bytes[1] = class;
            MadHeader::parse(&bytes).unwrap().class_name()
        };
        assert_eq!(name(0x01), "subnet management");
        assert_eq!(name(0x81), "subnet management, directed route");
        assert_eq!(name(0x03), "subnet administration");
        assert_eq!(name(0x04), "performance management");
        assert_eq!((name(0x09), name(0x0F)), ("vendor, range 1", "vendor, range 1"));
        assert_eq!(name(0x0B), "vendor, range 1: SHARP aggregation management");
        assert_eq!((name(0x30), name(0x4F)), ("vendor, range 2", "vendor, range 2"));
        assert_eq!((name(0x10), name(0x2F), name(0x50)), ("unknown class", "unknown class", "unknown class"));
    }

    proptest! {
        #[test]
        fn written_headers_read_back(
            head: [u8; 4], status: u16, class_specific: u16, tid: u64, attr_id: u16, attr_mod: u32,
        ) {
            let [base_version, class, class_version, method] = head;
            let mad = MadHeader {
                base_version, class, class_version, method, status, class_specific, tid, attr_id, attr_mod,
            };
            prop_assert_eq!(MadHeader::parse(&mad.to_bytes()), Ok(mad));
        }
    }
}
