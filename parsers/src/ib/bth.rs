//! Base transport header: the 12 bytes that every InfiniBand transport packet has.

use crate::error::take;
use crate::field::{Psn, Qpn};
use crate::ib::Opcode;
use crate::{Layer, ParseError};

/// Base transport header (InfiniBand Architecture 9.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are the flag bits of the header")]
pub struct Bth {
    /// Transport service and operation.
    pub opcode: Opcode,
    /// Solicited event: the responder raises an event on completion.
    pub solicited: bool,
    /// Migration state.
    pub mig_req: bool,
    /// Pad bytes after the payload, 0 to 3.
    pub pad_count: u8,
    /// Version of the transport header, 4 bits; 0 in every version of the architecture so far.
    pub tver: u8,
    /// Partition key; bit 15 marks a full member.
    pub pkey: u16,
    /// Forward congestion notification.
    pub fecn: bool,
    /// Backward congestion notification.
    pub becn: bool,
    /// Queue pair at the destination.
    pub dest_qp: Qpn,
    /// The sender requests an acknowledgement.
    pub ack_req: bool,
    /// Packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// Length in bytes.
    pub const LEN: usize = 12;

    /// Parses the header from the first 12 bytes and ignores reserved bits.
    ///
    /// # Errors
    /// `input` is shorter than 12 bytes.
    #[inline]
    pub fn parse(input: &[u8]) -> Result<Self, ParseError> {
        take::<{ Self::LEN }>(input, Layer::Bth).map(Self::from_bytes)
    }

    /// The header in `bytes`.
    #[expect(clippy::inline_always, reason = "inlined, only the fields in use are decoded")]
    #[inline(always)]
    pub(crate) fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        Self {
            opcode: Opcode(bytes[0]),
            solicited: bytes[1] & 0x80 != 0,
            mig_req: bytes[1] & 0x40 != 0,
            pad_count: bytes[1] >> 4 & 0x03,
            tver: bytes[1] & 0x0F,
            pkey: u16::from_be_bytes([bytes[2], bytes[3]]),
            fecn: bytes[4] & 0x80 != 0,
            becn: bytes[4] & 0x40 != 0,
            dest_qp: Qpn::new(u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]])),
            ack_req: bytes[8] & 0x80 != 0,
            psn: Psn::new(u32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]])),
        }
    }

    /// The header in wire format, reserved bits 0.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let flags = u8::from(self.solicited) << 7 | u8::from(self.mig_req) << 6;
        let pkey = self.pkey.to_be_bytes();
        let congestion = u8::from(self.fecn) << 7 | u8::from(self.becn) << 6;
        let qp = self.dest_qp.value().to_be_bytes();
        let psn = self.psn.value().to_be_bytes();
        [
            self.opcode.0,
            flags | (self.pad_count & 0x03) << 4 | self.tver & 0x0F,
            pkey[0],
            pkey[1],
            congestion,
            qp[1],
            qp[2],
            qp[3],
            u8::from(self.ack_req) << 7,
            psn[1],
            psn[2],
            psn[3],
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ib::samples::{CNP, NATIVE_ACK, UC_SEND};
    use proptest::prelude::*;

    const PLAIN: Bth = Bth {
        opcode: Opcode(0),
        solicited: false,
        mig_req: false,
        pad_count: 0,
        tver: 0,
        pkey: 0xFFFF,
        fecn: false,
        becn: false,
        dest_qp: Qpn::new(0),
        ack_req: false,
        psn: Psn::new(0),
    };

    #[test]
    fn fields_are_at_the_offsets_of_the_specification() {
        let cnp = Bth { opcode: Opcode::CNP, becn: true, dest_qp: Qpn::new(0x118), ..PLAIN };
        assert_eq!(Bth::parse(&CNP[42..]), Ok(cnp));
        // The values that the scapy test sets: migreq 1, padcount 2, dqpn 211, psn 13571856.
        let uc = Bth {
            opcode: Opcode(0x24),
            mig_req: true,
            pad_count: 2,
            dest_qp: Qpn::new(211),
            psn: Psn::new(13_571_856),
            ..PLAIN
        };
        assert_eq!(Bth::parse(&UC_SEND[42..]), Ok(uc));
        let ack = Bth { opcode: Opcode(0x11), dest_qp: Qpn::new(0x87_0408), psn: Psn::new(0xD4_0A55), ..PLAIN };
        assert_eq!(Bth::parse(&NATIVE_ACK[8..]), Ok(ack));
    }

    #[test]
    fn every_flag_has_its_bit() {
        type Flag = fn(&Bth) -> bool;
        let bits: [(usize, u8, Flag); 5] = [
            (1, 0x80, |bth| bth.solicited),
            (1, 0x40, |bth| bth.mig_req),
            (4, 0x80, |bth| bth.fecn),
            (4, 0x40, |bth| bth.becn),
            (8, 0x80, |bth| bth.ack_req),
        ];
        for (set, &(byte, bit, _)) in bits.iter().enumerate() {
            let mut bytes = [0; Bth::LEN];
            bytes[byte] = bit;
            let bth = Bth::parse(&bytes).unwrap();
            for (other, (_, _, flag)) in bits.iter().enumerate() {
                assert_eq!(flag(&bth), other == set, "byte {byte} bit {bit:#x}");
            }
        }
    }

    #[test]
    fn reserved_bits_are_ignored() {
        let plain = Bth::parse(&[0; 12]).unwrap();
        assert_eq!(Bth::parse(&[0, 0, 0, 0, 0x3F, 0, 0, 0, 0x7F, 0, 0, 0]), Ok(plain));
    }

    #[test]
    fn eleven_bytes_are_too_few() {
        assert_eq!(Bth::parse(&[0; 11]), Err(ParseError::truncated(Layer::Bth, 12, 11)));
    }

    proptest! {
        #[test]
        fn written_headers_read_back(
            opcode: u8, flags: [bool; 5], pad_count in 0u8..4, tver in 0u8..16, pkey: u16, qp: u32, psn: u32,
        ) {
            let [solicited, mig_req, fecn, becn, ack_req] = flags;
            let bth = Bth {
                opcode: Opcode(opcode),
                solicited,
                mig_req,
                pad_count,
                tver,
                pkey,
                fecn,
                becn,
                dest_qp: Qpn::new(qp),
                ack_req,
                psn: Psn::new(psn),
            };
            prop_assert_eq!(Bth::parse(&bth.to_bytes()), Ok(bth));
        }
    }
}
