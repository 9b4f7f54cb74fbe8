//! Extension headers between BTH and payload. The opcode determines which are present and in which
//! order.

use crate::error::take;
use crate::field::Qpn;
use crate::ib::{Opcode, be32, be64};
use crate::{Layer, ParseError};

/// Reliable datagram extension header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rdeth {
    /// End-to-end context number, 24 bits.
    pub ee_context: u32,
}

/// Datagram extension header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deth {
    /// Queue key.
    pub q_key: u32,
    /// Queue pair of the sender.
    pub src_qp: Qpn,
}

/// Extended reliable connection header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Xrceth {
    /// Number of the shared receive queue, 24 bits.
    pub srq: u32,
}

/// RDMA extension header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reth {
    /// Virtual address at the responder.
    pub va: u64,
    /// Remote key.
    pub r_key: u32,
    /// Length of the whole message in bytes.
    pub dma_len: u32,
}

/// Atomic extension header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicEth {
    /// Virtual address at the responder.
    pub va: u64,
    /// Remote key.
    pub r_key: u32,
    /// Value to swap in or to add.
    pub swap_add: u64,
    /// Value to compare with.
    pub compare: u64,
}

/// ACK extension header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aeth {
    /// Acknowledgement type and code; see [`Aeth::kind`].
    pub syndrome: u8,
    /// Message sequence number: messages that the responder has completed, 24 bits.
    pub msn: u32,
}

/// Meaning of an AETH.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AethKind {
    /// Acknowledgement.
    Ack {
        /// Receive credits; `None` if the responder announces none (shared receive queues).
        credits: Option<u16>,
    },
    /// Receiver not ready: it had no buffer.
    RnrNak {
        /// Time that the requester must wait, in nanoseconds.
        timer_ns: u64,
    },
    /// Negative acknowledgement.
    Nak(NakCode),
    /// Reserved syndrome.
    Reserved,
}

/// Reason of a NAK.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum NakCode {
    /// A packet is missing: the requester resends from the NAK's PSN on.
    PsnSequenceError,
    /// Invalid request.
    InvalidRequest,
    /// Remote access error.
    RemoteAccess,
    /// Remote operational error.
    RemoteOperational,
    /// Invalid reliable datagram request.
    InvalidRdRequest,
    /// Reserved code, 5 bits.
    Reserved(u8),
}

impl NakCode {
    /// Name used in messages and outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PsnSequenceError => "PSN sequence error",
            Self::InvalidRequest => "invalid request",
            Self::RemoteAccess => "remote access error",
            Self::RemoteOperational => "remote operational error",
            Self::InvalidRdRequest => "invalid RD request",
            Self::Reserved(_) => "reserved",
        }
    }
}

/// Credits of an ACK by its 5-bit code; code 31 announces none (InfiniBand Architecture 9.7.7.2.4).
const CREDITS: [u16; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144,
    8192, 12288, 16384, 24576, 32768,
];

/// RNR timer in units of 10 microseconds by its 5-bit code (InfiniBand Architecture 9.7.5.2.8).
const RNR_TIMER_10US: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
    6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

impl Aeth {
    /// Length in bytes.
    pub const LEN: usize = 4;

    /// Splits the four bytes of the header: the syndrome, then the MSN.
    #[must_use]
    pub const fn from_word(word: u32) -> Self {
        Self { syndrome: (word >> 24) as u8, msn: word & 0xFF_FFFF }
    }

    /// Decodes the syndrome.
    #[must_use]
    pub fn kind(self) -> AethKind {
        let code = self.syndrome & 0x1F;
        match self.syndrome >> 5 {
            0 => AethKind::Ack { credits: CREDITS.get(usize::from(code)).copied() },
            1 => AethKind::RnrNak { timer_ns: u64::from(RNR_TIMER_10US[usize::from(code)]) * 10_000 },
            3 => AethKind::Nak(match code {
                0 => NakCode::PsnSequenceError,
                1 => NakCode::InvalidRequest,
                2 => NakCode::RemoteAccess,
                3 => NakCode::RemoteOperational,
                4 => NakCode::InvalidRdRequest,
                other => NakCode::Reserved(other),
            }),
            _ => AethKind::Reserved,
        }
    }
}

/// Flush extension header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Feth {
    /// Placement type, 4 bits.
    pub placement: u8,
    /// Selectivity level, 2 bits.
    pub selectivity: u8,
}

/// Extension headers of one packet; `None` if the opcode has none of this type or the capture ends
/// before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ExtHeaders {
    /// Reliable datagram header.
    pub rdeth: Option<Rdeth>,
    /// Datagram header.
    pub deth: Option<Deth>,
    /// Extended reliable connection header.
    pub xrceth: Option<Xrceth>,
    /// RDMA header.
    pub reth: Option<Reth>,
    /// Atomic header.
    pub atomic: Option<AtomicEth>,
    /// ACK header.
    pub aeth: Option<Aeth>,
    /// Atomic acknowledge: the original value at the address.
    pub atomic_ack: Option<u64>,
    /// Immediate data, big-endian.
    pub imm: Option<u32>,
    /// Key that a SEND with Invalidate invalidates.
    pub ieth: Option<u32>,
    /// Flush header.
    pub feth: Option<Feth>,
}

impl ExtHeaders {
    /// Parses the extension headers of `opcode` from `input`, which begins after the BTH.
    ///
    /// # Errors
    /// A header is truncated; the error's offset is the header's offset in `input`.
    pub fn parse(opcode: Opcode, input: &[u8]) -> Result<Self, ParseError> {
        let (headers, stop) = Self::parse_lax(opcode, input);
        stop.map_or(Ok(headers), Err)
    }

    /// Like [`ExtHeaders::parse`], but returns the headers before a truncation together with the
    /// error.
    #[must_use]
    #[inline]
    pub fn parse_lax(opcode: Opcode, input: &[u8]) -> (Self, Option<ParseError>) {
        let mut headers = Self::default();
        if opcode.ext_bytes() == 0 {
            return (headers, None);
        }
        let stop = headers.fill(opcode, input).err();
        (headers, stop)
    }

    fn fill(&mut self, opcode: Opcode, input: &[u8]) -> Result<(), ParseError> {
        let mut reader = Reader { input, at: 0 };
        if opcode.has_rdeth() {
            self.rdeth = Some(Rdeth { ee_context: reader.u32()? & 0xFF_FFFF });
        }
        if opcode.has_deth() {
            let bytes = reader.take::<8>()?;
            self.deth = Some(Deth { q_key: be32(bytes, 0), src_qp: Qpn::new(be32(bytes, 4)) });
        }
        if opcode.has_xrceth() {
            self.xrceth = Some(Xrceth { srq: reader.u32()? & 0xFF_FFFF });
        }
        if opcode.has_feth() {
            let value = reader.u32()?;
            self.feth = Some(Feth { placement: (value & 0x0F) as u8, selectivity: (value >> 4 & 0x03) as u8 });
        }
        if opcode.has_reth() {
            let bytes = reader.take::<16>()?;
            self.reth = Some(Reth { va: be64(bytes, 0), r_key: be32(bytes, 8), dma_len: be32(bytes, 12) });
        }
        if opcode.has_atomic_eth() {
            let bytes = reader.take::<28>()?;
            self.atomic = Some(AtomicEth {
                va: be64(bytes, 0),
                r_key: be32(bytes, 8),
                swap_add: be64(bytes, 12),
                compare: be64(bytes, 20),
            });
        }
        if opcode.has_aeth() {
            self.aeth = Some(Aeth::from_word(reader.u32()?));
        }
        if opcode.has_atomic_ack() {
            self.atomic_ack = Some(be64(reader.take::<8>()?, 0));
        }
        if opcode.has_immediate() {
            self.imm = Some(reader.u32()?);
        }
        if opcode.has_invalidate() {
            self.ieth = Some(reader.u32()?);
        }
        if opcode == Opcode::CNP {
            reader.take::<16>()?;
        }
        Ok(())
    }
}

/// Reads headers one after the other.
struct Reader<'a> {
    input: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    #[inline]
    fn take<const N: usize>(&mut self) -> Result<&[u8; N], ParseError> {
        let rest = self.input.get(self.at..).unwrap_or_default();
        let bytes = take::<N>(rest, Layer::ExtHeader).map_err(|error| error.add_offset(self.at))?;
        self.at += N;
        Ok(bytes)
    }

    #[inline]
    fn u32(&mut self) -> Result<u32, ParseError> {
        self.take::<4>().map(|bytes| u32::from_be_bytes(*bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hex_literal::hex;

    /// Bytes 01 02 03 .., longer than the extension headers of any opcode.
    const COUNTING: [u8; 44] = {
        let mut bytes = [0; 44];
        let mut at = 0;
        while at < bytes.len() {
            bytes[at] = at as u8 + 1;
            at += 1;
        }
        bytes
    };

    #[test]
    fn every_header_has_its_place() {
        let none = ExtHeaders::default();
        let of = |code: u8| ExtHeaders::parse(Opcode(code), &COUNTING).unwrap();
        let aeth = Some(Aeth { syndrome: 1, msn: 0x02_0304 });
        let reth = Some(Reth { va: 0x0102_0304_0506_0708, r_key: 0x090A_0B0C, dma_len: 0x0D0E_0F10 });
        assert_eq!(of(0x00), none);
        assert_eq!(of(0x03), ExtHeaders { imm: Some(0x0102_0304), ..none });
        assert_eq!(of(0x06), ExtHeaders { reth, ..none });
        assert_eq!(of(0x0B), ExtHeaders { reth, imm: Some(0x1112_1314), ..none });
        assert_eq!(of(0x11), ExtHeaders { aeth, ..none });
        assert_eq!(of(0x12), ExtHeaders { aeth, atomic_ack: Some(0x0506_0708_090A_0B0C), ..none });
        let atomic = AtomicEth {
            va: 0x0102_0304_0506_0708,
            r_key: 0x090A_0B0C,
            swap_add: 0x0D0E_0F10_1112_1314,
            compare: 0x1516_1718_191A_1B1C,
        };
        assert_eq!(of(0x13), ExtHeaders { atomic: Some(atomic), ..none });
        assert_eq!(of(0x17), ExtHeaders { ieth: Some(0x0102_0304), ..none });
        // FETH first: byte 4 = 0x04 is placement 4, selectivity 0; then the RETH.
        let flushed = Reth { va: 0x0506_0708_090A_0B0C, r_key: 0x0D0E_0F10, dma_len: 0x1112_1314 };
        let feth = Some(Feth { placement: 4, selectivity: 0 });
        assert_eq!(of(0x1C), ExtHeaders { feth, reth: Some(flushed), ..none });
        let deth = Some(Deth { q_key: 0x0102_0304, src_qp: Qpn::new(0x06_0708) });
        assert_eq!(of(0x65), ExtHeaders { deth, imm: Some(0x090A_0B0C), ..none });
        let rd = ExtHeaders {
            rdeth: Some(Rdeth { ee_context: 0x02_0304 }),
            deth: Some(Deth { q_key: 0x0506_0708, src_qp: Qpn::new(0x0A_0B0C) }),
            imm: Some(0x0D0E_0F10),
            ..none
        };
        assert_eq!(of(0x45), rd);
        let xrc = ExtHeaders { xrceth: Some(Xrceth { srq: 0x02_0304 }), imm: Some(0x0506_0708), ..none };
        assert_eq!(of(0xA5), xrc);
        assert_eq!(of(0xB1), ExtHeaders { aeth, ..none });
        assert_eq!(of(0x81), none);
        assert_eq!(of(0xC0), none);
    }

    #[test]
    fn flush_fields_are_separated() {
        let bytes = [&hex!("0000003f")[..], &COUNTING].concat();
        let feth = ExtHeaders::parse(Opcode(0x1C), &bytes).unwrap().feth;
        assert_eq!(feth, Some(Feth { placement: 15, selectivity: 3 }));
    }

    #[test]
    fn truncation_keeps_the_headers_before_it() {
        for code in 0..=0xFF {
            let opcode = Opcode(code);
            let whole = usize::from(opcode.ext_bytes());
            assert!(ExtHeaders::parse(opcode, &COUNTING[..whole]).is_ok(), "{opcode}");
            for there in 0..whole {
                let (_, stop) = ExtHeaders::parse_lax(opcode, &COUNTING[..there]);
                let stop = stop.unwrap();
                assert!(stop.is_truncated() && stop.offset <= there, "{opcode} {there}");
                assert_eq!(ExtHeaders::parse(opcode, &COUNTING[..there]), Err(stop));
            }
        }
        let (headers, stop) = ExtHeaders::parse_lax(Opcode(0x0B), &COUNTING[..18]);
        assert!(headers.reth.is_some() && headers.imm.is_none());
        assert_eq!(stop, Some(ParseError::truncated(Layer::ExtHeader, 4, 2).add_offset(16)));
    }

    #[test]
    fn ack_credits_match_the_table() {
        let credits = [
            0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
            4096, 6144, 8192, 12288, 16384, 24576, 32768,
        ];
        for (syndrome, credits) in (0..).zip(credits) {
            assert_eq!(Aeth { syndrome, msn: 0 }.kind(), AethKind::Ack { credits: Some(credits) });
        }
        assert_eq!(Aeth { syndrome: 0x1F, msn: 0 }.kind(), AethKind::Ack { credits: None });
    }

    #[test]
    fn rnr_naks_give_the_timer_of_the_table() {
        let milliseconds = [
            655.36, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.16, 0.24, 0.32, 0.48, 0.64, 0.96, 1.28, 1.92, 2.56,
            3.84, 5.12, 7.68, 10.24, 15.36, 20.48, 30.72, 40.96, 61.44, 81.92, 122.88, 163.84, 245.76, 327.68, 491.52,
        ];
        for (code, milliseconds) in (0u8..).zip(milliseconds) {
            let AethKind::RnrNak { timer_ns } = (Aeth { syndrome: 0x20 | code, msn: 0 }).kind() else {
                panic!("code {code}")
            };
            assert!((timer_ns as f64 / 1e6 - milliseconds).abs() < 1e-9, "code {code}: {timer_ns}");
        }
    }

    #[test]
    fn naks_and_reserved_syndromes_are_distinguished() {
        let kind = |syndrome| Aeth { syndrome, msn: 0 }.kind();
        assert_eq!(kind(0x60), AethKind::Nak(NakCode::PsnSequenceError));
        assert_eq!(kind(0x61), AethKind::Nak(NakCode::InvalidRequest));
        assert_eq!(kind(0x62), AethKind::Nak(NakCode::RemoteAccess));
        assert_eq!(kind(0x63), AethKind::Nak(NakCode::RemoteOperational));
        assert_eq!(kind(0x64), AethKind::Nak(NakCode::InvalidRdRequest));
        assert_eq!(kind(0x65), AethKind::Nak(NakCode::Reserved(5)));
        assert_eq!([0x40, 0x5F, 0x80, 0xFF].map(kind), [AethKind::Reserved; 4]);
    }
}
